# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dead FUSE mounts on a real node: what is replaced, and what is not touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.mounts import (
    Kubelet,
    Volume,
    bindfs,
    die,
    layers,
    lists,
    mounts,
    remount,
    served,
    upload,
)
from support.node import Node

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    MOST_CHILDREN,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import MOST_HELD

BINDFS = ["bindfs", "-f", "{options}", "{source}", "{target}"]


def known(volume: Volume, **more: Any) -> dict[str, Any]:
    """What the cluster would tell of a volume that bindfs serves."""
    return {
        "volumes": [
            {
                "volume": volume.name,
                "handle": volume.handle,
                "sources": ["/srv/data"],
                "command": BINDFS,
                **more,
            }
        ]
    }


@pytest.mark.variation
def test_staging_publish_and_subpath_share_one_server(node: Node) -> None:
    """Check, run, run again; each mount point gets the new mount as it was, also read-only, and
    nothing of the repair is left.
    """
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    published = volume.publish()
    read_only = volume.publish("-o ro")
    uid = next(iter(volume.pods))
    inner = volume.subpath(uid, "sub")
    points = [volume.staging, published, read_only, inner]
    assert remount(node).findings == []

    die(node, server)
    before = mounts(node)
    planned = remount(node, check=True, **known(volume))
    (finding,) = planned.findings
    assert (finding["control"], finding["object"]["name"], finding["verdict"]) == (
        "STOR-05",
        volume.staging,
        "repair",
    )
    assert {outcome for _action, outcome in planned.outcomes} == {"planned"}
    assert mounts(node) == before

    run = remount(node, **known(volume))
    assert not run.failed, run.msg
    assert [action for action, _outcome in run.outcomes] == [
        "mount",
        *["replace_mount"] * 4,
        "clean_up",
    ]
    for point in points:
        assert len(layers(node, point)) == 1
    assert {layers(node, point)[0][0] for point in points} == {layers(node, volume.staging)[0][0]}
    assert lists(node, published) == ["file", "sub"]
    assert lists(node, inner) == ["file"]
    assert node.sh(f"touch {read_only}/x", check=False) == ""
    assert "ro" in node.sh(f"findmnt -n -o VFS-OPTIONS {read_only}").split(",")
    assert node.sh("ls -A /run/storage_ops/fuse") == ""
    again = remount(node, **known(volume))
    assert (again.findings, again.changed) == ([], False)


@pytest.mark.variation
def test_stacked_dead_mounts_go_and_what_lies_below_stays(node: Node) -> None:
    """Two dead ones on a filesystem of another kind; elsewhere a dead one below a mount that
    answers, which is left alone.
    """
    kubelet = Kubelet(node)
    volume, renewed = kubelet.volume(), kubelet.volume("pvc-2")
    node.sh(f"mkdir -p {volume.stage()} && mount -t tmpfs below {volume.staging}")
    servers = [bindfs(node, volume.staging), bindfs(node, volume.staging, options="-o nonempty")]
    published = volume.publish()
    # The driver has mounted it again at the staging path, and the pod still has the old one.
    servers.append(bindfs(node, renewed.stage()))
    old = renewed.publish()
    # Else what is mounted on the one is mounted on the other, too, since they are peers.
    node.sh(f"mount --make-private {old}")
    for server in servers:
        die(node, server)
    node.sh("mkdir /mnt/new")
    bindfs(node, "/mnt/new")
    node.sh(f"mount --bind /mnt/new {renewed.staging}")
    stacks = {point: layers(node, point) for point in (volume.staging, renewed.staging)}

    assert (
        "3 of the node's 4 FUSE mounts of s3.csi.example.com look broken"
        in remount(node, check=True, accept_majority=False, **known(volume)).msg
    )
    planned = remount(node, check=True, **known(volume))
    assert sorted(finding["object"]["name"] for finding in planned.findings) == sorted(
        [volume.staging, old]
    )
    assert len(planned.finding(volume.staging)["evidence"]["devices"]) == 2
    assert [action["action"] for action in planned.finding(old)["repair"]] == [
        "adopt_mount",
        "replace_mount",
        "clean_up",
    ]

    run = remount(node, **known(volume))
    assert not run.failed, run.msg
    below, *_dead = stacks[volume.staging]
    assert layers(node, volume.staging)[0] == below
    assert [layer[1] for layer in layers(node, volume.staging)] == ["tmpfs", "fuse"]
    assert layers(node, renewed.staging) == stacks[renewed.staging]
    assert [layer[0] for layer in layers(node, old)] == [stacks[renewed.staging][-1][0]]
    for point in (volume.staging, published, old):
        assert lists(node, point) == ["file", "sub"]
    # What is dead below the renewed mount is met by nobody, and cannot be taken away without that.
    assert remount(node).findings == []


@pytest.mark.variation
def test_containers_that_keep_the_dead_mount_are_told(node: Node) -> None:
    """A bind of the mount itself keeps it, private or slave; a slave of the folder above it gets
    the new one.
    """
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    published = volume.publish()
    above = published.rpartition("/")[0]
    node.sh("mkdir -p /c/private /c/slave /c/above")
    pids = {}
    for how, mount in {
        "private": f"mount --bind {published} /c/private && mount --make-private /c/private",
        "slave": f"mount --bind {published} /c/slave && mount --make-slave /c/slave",
        "above": f"mount --rbind {above} /c/above",
    }.items():
        node.sh(
            f"setsid unshare -m --propagation slave sh -c '{mount} && touch /run/{how} && exec "
            "sleep 600' > /dev/null 2>&1 < /dev/null & "
        )
        node.wait(lambda how=how: node.sh(f"ls /run/{how}", check=False) != "", f"{how} is bound")
        pids[how] = int(node.sh("pgrep -n -x sleep"))
    die(node, server)
    run = remount(node, **known(volume))
    assert not run.failed, run.msg
    stale = {(entry["pid"], entry["point"]) for entry in run.result["stale"]}
    assert stale == {(pids["private"], "/c/private"), (pids["slave"], "/c/slave")}
    assert lists(node, f"/proc/{pids['above']}/root/c/above/mount") == ["file", "sub"]
    assert "not connected" in node.sh(
        f"ls /proc/{pids['private']}/root/c/private 2>&1", check=False
    )


def test_a_hung_mount_is_only_cut_when_that_is_allowed(node: Node) -> None:
    """A stuck backend, and a server that is stopped.

    Without leave nothing is touched; one that is freed again answers.
    """
    kubelet = Kubelet(node)
    stuck, stopped = kubelet.volume(), kubelet.volume("pvc-2")
    served(node, f"{upload(node, 'fuse_stuck')} {stuck.stage()}", stuck.staging)
    server = bindfs(node, stopped.stage())
    node.sh(f"kill -STOP {server}")
    before = mounts(node)
    refused = remount(node, probe_timeout=6, **known(stopped))
    assert not refused.failed
    assert not refused.changed
    assert mounts(node) == before
    for volume, step in ((stuck, "listing"), (stopped, "statvfs")):
        finding = refused.finding(volume.staging)
        assert (finding["control"], finding["verdict"]) == ("STOR-06", "refuse")
        assert "abort_hung_connections" in finding["reason"]
        assert f" {step}: " in finding["evidence"]["answer"]
    # A question that the server has not even read ends with who asked it; the kernel waits for any
    # other.
    (held,) = refused.finding(stuck.staging)["evidence"]["held"]
    assert node.process_state(held) == "D"
    assert refused.finding(stopped.staging)["evidence"]["held"] == []

    run = remount(
        node,
        probe_timeout=6,
        abort_hung_connections=True,
        paths=[stopped.staging],
        **known(stopped),
    )
    assert not run.failed, run.msg
    assert [action for action, _outcome in run.outcomes] == [
        "mount",
        "abort_connection",
        "replace_mount",
        "clean_up",
    ]
    assert lists(node, stopped.staging) == ["file", "sub"]

    node.sh("touch /run/unstuck")
    node.wait(lambda: node.process_state(held) == "", "the child has ended")
    assert "nothing to do" in remount(node).msg


def test_runs_pile_up_no_children_on_a_mount_that_hangs(node: Node) -> None:
    """Each run of each night left one more, with its memory. The mount counts as hung all the same,
    and is repaired.
    """
    kubelet = Kubelet(node)
    stuck = kubelet.volume()
    served(node, f"{upload(node, 'fuse_stuck')} {stuck.stage()}", stuck.staging)

    def waiting() -> list[str]:
        return node.sh("ps -eo stat=,comm= | grep ^D || true").splitlines()

    for _run in range(MOST_HELD + 2):
        finding = remount(node, probe_timeout=2).finding(stuck.staging)
        assert (finding["control"], finding["verdict"]) == ("STOR-06", "refuse"), finding
    assert len(waiting()) == MOST_HELD and all(" sops" in one for one in waiting()), waiting()
    assert f"{MOST_HELD} processes of earlier runs" in finding["evidence"]["answer"]
    node.sh("touch /run/unstuck")
    node.wait(lambda: not waiting(), "the children have ended")
    assert "nothing to do" in remount(node).msg


def test_an_endless_listing_ends_at_the_servers_limit(node: Node) -> None:
    """The kernel ends that server, in a pod's listing and in our own look at a new mount; the node
    and the other mount are well.
    """
    kubelet = Kubelet(node)
    endless, other = kubelet.volume(), kubelet.volume("pvc-2")
    command = upload(node, "fuse_endless")
    server = served(node, f"{command} {endless.stage()}", endless.staging)
    published = endless.publish()
    neighbour = bindfs(node, other.stage())
    shared = other.publish()
    entry = {
        "volume": endless.name,
        "sources": ["endless"],
        "command": [*command.split(), "{target}"],
        "memory_max": 64,
    }
    die(node, server)
    boot = node.sh("cat /proc/sys/kernel/random/boot_id")
    run = remount(node, volumes=[entry])
    assert not run.failed, run.msg
    assert lists(node, published) == ["file"]
    new = int(node.sh(f"pgrep -f '^{command} '"))

    def only_its_server_was_killed(times: int) -> None:
        """By its own limit, not by the node's lack of memory."""
        killed = node.sh("dmesg | grep 'Killed process'").splitlines()
        assert len(killed) == times, killed
        assert all("Memory cgroup out of memory" in line for line in killed), killed
        assert node.process_state(neighbour), "the other mount's server"
        assert lists(node, shared) == lists(node, other.staging) == ["file", "sub"]
        assert node.sh("cat /proc/sys/kernel/random/boot_id") == boot
        assert node.sh("systemctl is-system-running", check=False) != "stopping"

    node.sh("touch /run/endless")
    assert "pages-were-kept" not in node.sh(f"ls {published} 2>&1", check=False)
    node.wait(lambda: not node.process_state(new), "the server has reached its limit", 60)
    only_its_server_was_killed(1)
    assert "oom-kill" in node.sh("journalctl -u 'storage_ops-fuse-*'")

    again = remount(node, volumes=[entry])
    assert again.failed and "no FUSE mount" not in again.msg, again.msg
    only_its_server_was_killed(2)
    assert node.sh("ls -A /run/storage_ops/fuse") == ""
    node.sh("rm /run/endless")
    run = remount(node, volumes=[entry])
    assert not run.failed, run.msg
    assert lists(node, published) == ["file"]


@pytest.mark.variation
def test_two_hundred_mounts_of_which_fifty_hang(node: Node) -> None:
    """All of them are found within one time-out and a little, of which only so many are asked that
    few children hang; those that answer are asked once, and are what they were.
    """
    kubelet = Kubelet(node)
    points = [kubelet.volume(f"pvc-{number}").staging for number in range(200)]
    node.vm.run("xargs mkdir -p", stdin="\n".join(points))
    command = upload(node, "fuse_many")
    node.sh("mkdir -p /run/many")
    # Ansible connects before systemd has two hundred mounts to digest, which takes the emulated
    # processor a while.
    assert remount(node).findings == []
    server = served(node, f"{command} /run/many 50 {' '.join(points)}", points[-1])
    node.wait(lambda: len(json.loads(node.sh("cat /run/many/counts"))) == 200, "the server counts")
    node.sh("systemctl list-units --type=mount && sleep 0.5", timeout=240)

    def children() -> list[int]:
        # Each is named after the mount that it asks.
        return sorted(map(int, node.sh("pgrep ^sops || true").split()))

    assert children() == []
    asked, before = json.loads(node.sh("cat /run/many/counts")), mounts(node)
    run = remount(node, check=True, probe_timeout=10)
    assert sorted(finding["object"]["name"] for finding in run.findings) == sorted(points[150:])
    assert mounts(node) == before
    node.sh("sleep 0.5")
    now = json.loads(node.sh("cat /run/many/counts"))
    for point in points[:150]:
        more = {
            what: count - asked[point].get(what, 0)
            for what, count in now[point].items()
            if count != asked[point].get(what, 0)
        }
        # The kernel asks again for attributes that are older than a second (attr_valid of
        # fuse_attr_out, include/uapi/linux/fuse.h), as they are on a busy node.
        assert more.pop("getattr", 1) in (1, 2) and more.pop("releasedir", 1) == 1
        # Once of what is at the path, and once of what was opened there.
        assert more == {"statfs": 2, "opendir": 1, "readdir": 1}
    held = sorted(pid for finding in run.findings for pid in finding["evidence"].get("held", ()))
    assert len(held) == MOST_CHILDREN
    # Of the others it says that it does not know.
    unasked = [finding for finding in run.findings if "held" not in finding["evidence"]]
    assert {finding["verdict"] for finding in unasked} == {"report"}
    assert all(finding["summary"].endswith("is not known") for finding in unasked)
    assert children() == held
    node.sh(f"kill -USR1 {server}")
    node.wait(lambda: not children(), "the children have ended")
    assert remount(node).findings == []


def test_hostile_names_lead_nowhere(node: Node) -> None:
    """Links, newlines and mounts elsewhere: only what is the kubelet's by its whole path, without a
    link, is replaced.
    """
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    published = volume.publish()
    (uid,) = tuple(volume.pods)
    pods = "/var/lib/kubelet/pods"
    other = f"{pods}/0a1b2c3d-1111-2222-3333-444455556666/volumes"
    for path in (
        f"{other}/kubernetes.io~csi/pvc-1/mount\n/etc",
        f"{other}/x y",
        f"{pods}/.hidden/volumes/kubernetes.io~csi/p/mount",
        "/mnt/s3",
    ):
        node.sh(["sh", "-c", 'mkdir -p "$1" && mount --bind "$2" "$1"', "sh", path, volume.staging])
    die(node, server)
    # A pod's folder is moved away, mounts and all, and a link is put in its place.
    node.sh(
        f"mkdir /srv/decoy && mv {pods}/{uid} /srv/decoy/pod && ln -s /srv/decoy/pod {pods}/{uid}"
    )
    device = layers(node, volume.staging)[0][0]
    count = f"grep -c ' {device} ' /proc/1/mountinfo"
    assert node.sh(count) == "6"
    named = remount(node, paths=[published], **known(volume))
    assert (named.failed, named.changed) == (True, False)
    assert "no FUSE mount of the kubelet is there" in named.msg
    run = remount(node, **known(volume))
    assert not run.failed, run.msg
    (finding,) = run.findings
    assert finding["evidence"]["mounts"] == [f"{volume.staging} (staging)"]
    assert any("mount\\n" in path for path in finding["evidence"]["outside"])
    (left,) = [line for line in finding["evidence"]["proof"] if "is still mounted at" in line]
    assert "/mnt/s3" in left and volume.staging not in left
    assert lists(node, volume.staging) == ["file", "sub"]
    assert node.sh(count) == "5"
    assert remount(node).findings == []
