# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS that will not mount (STOR-09): the kernel's own server and client, a firewall, servers that
do not answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.state import READY, State
from lab.vm import Vm
from support.fixtures import fresh_node
from support.node import Node, Outcome

SHARE = "192.0.2.10:/srv/share"
SILENT = Path(__file__).parents[1] / "lab/mounts/nfs_silent.py"
OURS = "storage_ops-nfs-"


# A node that is its own NFS server, at addresses of a network that no other card leads to.
NFS = State(
    name="nfs",
    files={
        "/etc/exports": b"/srv/share *(rw,no_subtree_check)\n"
        b"/srv/closed 203.0.113.9(rw,no_subtree_check)\n",
    },
    commands=(
        "mkdir -p /srv/share /srv/closed",
        "ip link add storage0 type dummy && ip link set storage0 up",
        "for n in 10 11 12; do ip address add 192.0.2.$n/24 dev storage0; done",
        "systemctl start rpcbind nfs-server",
    ),
    before=READY,
)


@pytest.fixture
def nfs(vm: Vm) -> Iterator[Node]:
    """See NFS."""
    yield from fresh_node(vm, NFS)


def serve(node: Node, *arguments: str) -> None:
    """Restart the server's threads, as with other versions."""
    node.sh(["sh", "-c", f"rpc.nfsd 0; rpc.nfsd {' '.join(arguments)} 4; exportfs -r"])


def states(outcome: Outcome, number: int = 0) -> dict[str, str]:
    """What became of the mount in each version."""
    return {
        version: entry["state"]
        for version, entry in outcome.result["shares"][number]["versions"].items()
    }


def left_behind(node: Node) -> str:
    """Processes, mounts and folders of the module that are still there."""
    mounts = f"grep -l {OURS} /proc/[0-9]*/mountinfo"
    return node.sh(
        f"pgrep -a 'mount|timeout|unshare' | grep {OURS}; {mounts}; ls /run | grep {OURS}",
        check=False,
    )


@pytest.mark.variation
def test_versions_switched_off_one_by_one(nfs: Node) -> None:
    """From the highest down, as mount.nfs tries them: what is wanted and not offered is found, with
    what would do instead.
    """
    node, ok, off = nfs, "ok", "not offered"
    all_on = node.ansible("nfs_mount_check", shares=[SHARE])
    assert all_on.findings == []
    assert not all_on.changed
    assert states(all_on) == {"3": ok, "4.0": ok, "4.1": ok, "4.2": ok}
    for without, instead in ((("4.2",), "4.1"), (("4.2", "4.1"), "4.0"), (("4",), "3")):
        serve(node, *(f"-N {version}" for version in without))
        outcome = node.ansible("nfs_mount_check", check=True, shares=[SHARE], wanted_version="4.2")
        finding = outcome.finding(SHARE)
        assert f"{SHARE}: the server does not offer NFS 4.2" == finding["summary"]
        assert f"set mountOptions [nfsvers={instead}] in the StorageClass" in finding["reason"]
        offered = {version for version, state in states(outcome).items() if state == ok}
        assert max(offered) == instead
        assert set(states(outcome).values()) == {ok, off}
    # A StorageClass that asks for none gets the highest there is.
    assert node.ansible("nfs_mount_check", shares=[SHARE], versions=["4.2", "3"]).findings == []
    serve(node, "-N 3")
    outcome = node.ansible("nfs_mount_check", shares=[SHARE], wanted_version="3")
    assert states(outcome) == {"3": off, "4.0": ok, "4.1": ok, "4.2": ok}
    assert (
        "enable NFS 3 on the server, or set mountOptions [nfsvers=4.2]"
        in outcome.finding(SHARE)["reason"]
    )
    assert left_behind(node) == ""


@pytest.mark.variation
def test_portal(nfs: Node) -> None:
    """Dropped, refused, rejected, no route, no such name, all in one call; the one that works is
    not among the findings.
    """
    node = nfs
    node.sh(
        "nft 'add table inet t; add chain inet t in { type filter hook input priority 0; };"
        " add rule inet t in ip daddr 192.0.2.11 tcp dport 2049 drop;"
        " add rule inet t in ip daddr 192.0.2.12 tcp dport 2049 reject with tcp reset;'"
    )
    shares = {
        "192.0.2.11:/srv/share": (
            "TCP 2049 of 192.0.2.11 does not answer",
            "no answer",
            "a firewall or security group",
        ),
        "192.0.2.12:/srv/share": (
            "TCP 2049 of 192.0.2.12 refuses connections",
            "refused",
            "the firewall that rejects this node",
        ),
        "203.0.113.1:/srv/share": (
            "there is no way to TCP 2049 of 203.0.113.1",
            "no route",
            "see the route in the evidence",
        ),
        "nas.invalid:/srv/share": ("the name nas.invalid has no address", "", "correct the name"),
    }
    outcome = node.ansible("nfs_mount_check", shares=[SHARE, *shares], versions=["4.2"])
    assert {finding["object"]["name"] for finding in outcome.findings} == set(shares)
    for number, (share, (summary, state, reason)) in enumerate(shares.items(), 1):
        finding = outcome.finding(share)
        assert finding["summary"].startswith(f"{share} cannot be mounted: {summary}")
        assert reason in finding["reason"]
        assert (finding["control"], finding["severity"], finding["verdict"]) == (
            "STOR-09",
            "major",
            "report",
        )
        ports = [
            port["state"]
            for port in outcome.result["shares"][number]["ports"]
            if port["service"] == "nfs"
        ]
        assert ports == ([state] if state else [])
        # Nothing is mounted from where nothing answers: Linux would hold up everybody's mounts for
        # it.
        assert states(outcome, number) == {}
    assert outcome.finding("203.0.113.1:/srv/share")["evidence"]["routes"] == [
        "203.0.113.1: RTNETLINK answers: Network is unreachable"
    ]
    # NFS 3 needs the portmapper too.
    node.sh(
        "nft add rule inet t in tcp dport 111 reject with tcp reset; nft add rule inet t in udp "
        "dport 111 reject"
    )
    outcome = node.ansible("nfs_mount_check", shares=[SHARE], versions=["4.2"], wanted_version="3")
    reason = outcome.finding(SHARE)["reason"]
    assert reason.startswith(
        "NFS 3 also needs the portmapper and mountd: portmapper at 192.0.2.10 TCP 111: refused"
    ), reason
    assert "set mountOptions [nfsvers=4.2]" in reason


@pytest.mark.variation
def test_exports_that_are_closed_or_not_there(nfs: Node) -> None:
    shares = ["192.0.2.10:/srv/closed", "192.0.2.10:/srv/none"]
    outcome = nfs.ansible("nfs_mount_check", shares=shares, versions=["3", "4.2"])
    assert states(outcome, 0)["3"] == "denied"
    assert states(outcome, 1) == {"3": "denied", "4.2": "no such export"}
    assert "no such export in NFS 4.2" in outcome.finding(shares[1])["summary"]
    # The same share is well and open, but the node has no helper.
    nfs.sh("mv /sbin/mount.nfs /sbin/mount.nfs.away")
    finding = nfs.ansible("nfs_mount_check", shares=[SHARE], versions=["4.2"]).finding(SHARE)
    assert (finding["verdict"], finding["reason"][:27]) == ("refuse", "mount.nfs is not installed,")


@pytest.mark.variation
def test_share_that_takes_longer_than_the_deadline(nfs: Node) -> None:
    """The server's mountd is stopped, so the kernel there gets no answer about exports: mounts
    hang, are killed, and leave nothing.
    """
    node = nfs
    node.sh("pkill -STOP rpc.mountd && exportfs -f")
    outcome = node.ansible(
        "nfs_mount_check", shares=[SHARE], versions=["4.1"], mount_timeout=8, slow_seconds=8
    )
    finding = outcome.finding(SHARE)
    assert finding["summary"] == f"{SHARE}: mounting it as NFS 4.1 was not done within 8 s"
    assert "look at its NFS threads and mountd" in finding["reason"]
    assert states(outcome) == {"4.1": "no answer"}
    assert left_behind(node) == ""
    # Slow, but in time: what was asked is answered late.
    node.sh("(sleep 8; pkill -CONT rpc.mountd) >/dev/null 2>&1 </dev/null &")
    slow = node.ansible(
        "nfs_mount_check", shares=[SHARE], versions=["4.1"], mount_timeout=60, slow_seconds=1
    )
    assert "mounting it as NFS 4.1 takes" in slow.finding(SHARE)["summary"]
    assert slow.finding(SHARE)["severity"] == "minor"
    assert node.ansible("nfs_mount_check", shares=[SHARE], versions=["4.1"]).findings == []


@pytest.mark.variation
def test_server_that_hangs_does_not_make_others_look_slow(nfs: Node) -> None:
    """Linux lets no NFS mount begin while that of another server hangs; so the good one is measured
    once more, alone.
    """
    node = nfs
    node.sh(
        "ip netns add far && ip link add far0 type veth peer name far1 netns far && ip address add "
        "198.51.100.1/24 dev far0 && ip link set far0 up && ip -n far address add 198.51.100.2/24 "
        "dev far1 && ip -n far link set far1 up"
    )
    node.vm.run("cat > /usr/local/sbin/nfs_silent", stdin=SILENT.read_text())
    node.sh(
        "setsid ip netns exec far python3 /usr/local/sbin/nfs_silent 198.51.100.2 >/dev/null 2>&1 "
        "</dev/null &"
    )
    node.wait(
        lambda: node.sh("ip netns exec far ss -Hltn sport = 2049") != "",
        "the silent server listens",
    )
    silent = "198.51.100.2:/vol"
    outcome = node.ansible(
        "nfs_mount_check",
        shares=[silent, SHARE],
        versions=["4.0", "4.1"],
        mount_timeout=15,
        slow_seconds=12,
    )
    assert [finding["object"]["name"] for finding in outcome.findings] == [silent]
    assert "was not done within 15 s" in outcome.finding(silent)["summary"]
    assert states(outcome, 0) == {"4.0": "no answer", "4.1": "no answer"}
    assert states(outcome, 1) == {"4.0": "ok", "4.1": "ok"}
    assert left_behind(node) == ""
    # Somebody else's mount that hangs is named.
    node.sh("mkdir /run/theirs")
    node.sh(f"setsid mount -t nfs -o vers=4.1 {silent} /run/theirs >/dev/null 2>&1 </dev/null &")
    node.wait(lambda: node.sh("pgrep mount.nfs", check=False) != "", "the mount hangs")
    outcome = node.ansible(
        "nfs_mount_check", shares=[SHARE], versions=["4.1"], mount_timeout=8, slow_seconds=8
    )
    finding = outcome.finding(SHARE)
    assert "1 other mounts hang on this node" in finding["reason"]
    assert f"(/sbin/mount.nfs {silent} /run/theirs)" in finding["evidence"]["hanging_mounts"][0]


def test_killed_in_the_middle(nfs: Node) -> None:
    """The mounts end by themselves, in time, and nobody ever saw them; the next run takes the
    folder away.
    """
    node = nfs
    node.sh("pkill -STOP rpc.mountd && exportfs -f")
    # The folder that it mounts at has its pid in its name.
    killer = f"name=$(ls /run | grep {OURS}); kill -9 ${{name#{OURS}}}; touch /run/killed"
    killer = f"while ! pgrep mount.nfs >/dev/null; do sleep 0.2; done; {killer}"
    node.sh(f"setsid sh -c {node.quote(killer)} >/dev/null 2>&1 </dev/null &")
    outcome = node.ansible("nfs_mount_check", shares=[SHARE], mount_timeout=8, slow_seconds=8)
    assert outcome.failed and "shares" not in outcome.result
    node.wait(lambda: node.sh("ls /run/killed", check=False) != "", "the module was killed")
    assert not {"nfs", "nfs4"} & set(node.sh("findmnt -rno FSTYPE").split())
    node.wait(lambda: node.sh("pgrep mount.nfs", check=False) == "", "the mounts have ended", 30)
    assert OURS not in node.sh("cat /proc/[0-9]*/mountinfo", check=False)
    assert node.sh(f"ls /run | grep {OURS}") != ""
    node.sh("pkill -CONT rpc.mountd")
    mount = (
        f"mkdir -p /mnt/mine && timeout 20 mount -t nfs -o vers=4.1 {SHARE} /mnt/mine && "
        "umount /mnt/mine && echo mounted"
    )
    node.wait(lambda: node.sh(mount, check=False) == "mounted", "the server is itself again", 90)
    assert node.ansible("nfs_mount_check", shares=[SHARE], versions=["4.1"]).findings == []
    assert left_behind(node) == ""


@pytest.mark.variation
def test_what_the_kubelet_has_mounted(nfs: Node) -> None:
    """Without shares, one of each server from which the kubelet has mounted, and the version that
    these mounts have.
    """
    node = nfs
    pods = "/var/lib/kubelet/pods/0b1e3f3c-6d0a-4c6e-9f5e-1f1e0d5a7c11/volumes/kubernetes.io~nfs"
    node.sh(
        f"mkdir -p {pods}/a {pods}/b /mnt/mine && mount -t nfs -o vers=4.1 {SHARE} {pods}/a && "
        f"mount -t nfs -o vers=4.1 {SHARE} {pods}/b && mount -t nfs -o vers=3,nolock "
        "192.0.2.11:/srv/share /mnt/mine"
    )
    outcome = node.ansible("nfs_mount_check", versions=["4.2"])
    assert outcome.findings == []
    found = outcome.result["shares"]
    assert [(share["share"], share["versions_in_use"], share["mounts"]) for share in found] == [
        (SHARE, ["4.1"], 2)
    ]
    assert states(outcome) == {"4.2": "ok", "4.1": "ok"}
    node.sh(f"umount -l {pods}/a {pods}/b /mnt/mine")
    assert node.ansible("nfs_mount_check").msg.startswith(
        "nothing to do: no NFS share is mounted below /var/lib/kubelet"
    )
