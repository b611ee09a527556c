# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must be refused, with the reason named and nothing changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.node import Node
from support.selection import variation


def mounted(node: Node, device: str) -> str:
    folder = f"/mnt/{device.rpartition('/')[2]}"
    node.sh(f"mkfs.ext4 -q {device} && mkdir -p {folder} && mount {device} {folder}")
    return f"mounted at {folder}"


def mounted_elsewhere(node: Node, device: str) -> str:
    folder = f"/mnt/{device.rpartition('/')[2]}"
    node.sh(f"mkfs.ext4 -q {device} && mkdir -p {folder}")
    node.sh(
        f"setsid unshare --mount sh -c 'mount {device} {folder} && exec sleep 900' >/dev/null 2>&1 "
        "</dev/null &"
    )
    node.wait(
        lambda: node.sh("dmsetup info -c --noheadings -o open " + device) == "1",
        "mounted in a namespace of its own",
    )
    assert folder not in node.sh("cat /proc/1/mountinfo")
    return f"mounted at {folder} in the mount namespace of pid"


def logical_volume(node: Node, device: str) -> str:
    node.sh(
        f"pvcreate -qq {device} && vgcreate -qq vglab {device} && "
        "lvcreate -qq -y -n lv1 -L 12M vglab"
    )
    return "(vglab-lv1, LVM)"


def swapped_on(node: Node, device: str) -> str:
    node.sh(f"mkswap {device} && swapon {device}")
    return "is swap"


def opened(node: Node, device: str) -> str:
    node.labctl(f"hold {device}")
    return "opened by"


def bound_into_a_container(node: Node, device: str) -> str:
    """As the kubelet does it for a raw block volume."""
    node.sh(
        "mkdir -p /var/lib/kubelet/dev && touch /var/lib/kubelet/dev/pod && mount --bind "
        f"$(readlink -f {device}) /var/lib/kubelet/dev/pod"
    )
    return "its device node is bound at /var/lib/kubelet/dev/pod"


@pytest.mark.parametrize(
    "uses",
    [
        (mounted, mounted_elsewhere, logical_volume),
        variation((swapped_on, opened, bound_into_a_container)),
    ],
)
def test_maps_in_use(node: Node, uses: tuple[Callable[[Node, str], str], ...]) -> None:
    names = {lun: node.map_of(lun)[0] for lun in (1, 2, 3)}
    partition = mounted(node, node.partition(4)[0])
    reasons = {
        names[lun]: use(node, f"/dev/mapper/{names[lun]}")
        for lun, use in zip(names, uses, strict=True)
    }
    reasons[node.map_of(4)[0]] = partition
    node.unmap(1, 2, 3, 4)
    before = node.shape()
    # The risks that may be accepted are about readers that hang and about an outage, not about
    # users.
    outcome = node.residual(fail_hung_readers=True, accept_majority=True)
    assert {finding["object"]["name"] for finding in outcome.findings} == set(reasons)
    for name, reason in reasons.items():
        assert outcome.finding(name)["verdict"] == "refuse"
        assert reason in outcome.finding(name)["reason"], outcome.finding(name)["reason"]
    assert not outcome.changed
    assert outcome.outcomes == []
    assert node.shape() == before


@pytest.mark.variation
def test_refusal_fails_the_task_when_asked_for(node: Node) -> None:
    name, _wwid = node.map_of(2)
    mounted(node, f"/dev/mapper/{name}")
    node.unmap(2)
    before = node.shape()
    for options in ({"maps": [name]}, {"strict": True}):
        outcome = node.residual(**options)
        assert outcome.failed
        assert not outcome.changed
        assert f"mounted at /mnt/{name}" in outcome.msg
    assert node.shape() == before


@pytest.mark.smoke
def test_one_portal_down(node: Node) -> None:
    """One of two paths of every map fails, and multipath -ll shows what an unmapped LUN would."""
    node.labctl("portal down 127.0.0.2")
    node.wait(lambda: "failed faulty" in node.sh("multipath -ll"), "paths failed", 120)
    before = node.shape()
    outcome = node.residual()
    assert len(outcome.findings) == 4
    for finding in outcome.findings:
        assert finding["verdict"] == "refuse"
        assert finding["severity"] == "minor"
        assert "transport outage: iSCSI session" in finding["reason"]
        assert "still serves the LUN" in finding["reason"]
    assert not outcome.changed
    assert node.shape() == before


@pytest.mark.variation
def test_all_portals_down(node: Node) -> None:
    """Every path of every map is dead, and nothing proves that a LUN is gone."""
    node.queue()
    for portal in ("127.0.0.1", "127.0.0.2"):
        node.labctl(f"portal down {portal}")
    node.wait(lambda: "active ready" not in node.sh("multipath -ll"), "paths failed", 120)
    before = node.shape()
    outcome = node.residual(accept_majority=True, fail_hung_readers=True)
    assert len(outcome.findings) == 4
    assert {finding["verdict"] for finding in outcome.findings} == {"refuse"}
    assert all("transport outage" in finding["reason"] for finding in outcome.findings)
    assert node.shape() == before


@pytest.mark.variation
def test_portal_down_just_now(node: Node) -> None:
    """The kernel has not noticed yet: disks still run, sessions are logged in, and only the
    question gets no answer.
    """
    node.labctl("portal down 127.0.0.2")
    before = node.shape()
    outcome = node.residual(probe_timeout=2)
    assert len(outcome.findings) == 4
    assert {finding["verdict"] for finding in outcome.findings} == {"refuse"}
    assert node.shape() == before


@pytest.mark.variation
def test_path_deleted_by_hand(node: Node) -> None:
    """A map with one path left that serves it is no finding at all."""
    path = node.paths_of(2)[0]
    hctl = node.state()["disks"][path]["hctl"]
    node.sh(f"echo 1 > /sys/block/{path}/device/delete")
    node.wait(lambda: path not in node.state()["disks"], "the path is gone")
    assert node.residual().findings == []
    host, channel, target, lun = hctl.split(":")
    node.sh(f"echo '{channel} {target} {lun}' > /sys/class/scsi_host/host{host}/scan")
    node.wait(
        lambda: len(node.state()["maps"][node.map_of(2)[1]]["paths"]) == 2, "the path is back"
    )


@pytest.mark.variation
@pytest.mark.parametrize("state", ["standby", "unavailable"])
def test_foreign_sense_code(node: Node, state: str) -> None:
    """A controller that is not ready (02/04/0b, 02/04/0c) still has the LUN."""
    name, _wwid = node.map_of(2)
    node.labctl(f"alua 2 {state}")
    node.wait(lambda: "active ready" not in node.sh(f"multipath -ll {name}"), "paths are not ready")
    node.refused(name, "no sign that the LUN is gone: TEST UNIT READY 02/04/")


@pytest.mark.variation
def test_missing_vpd_page(node: Node) -> None:
    """A disk that answers and names itself in no way: whether it is the map's LUN
    cannot be told.
    """
    before = set(node.state()["disks"])
    node.vm.plug_disk("nameless", 64)
    try:
        node.wait(lambda: len(node.state()["disks"]) == len(before) + 1, "the disk is there")
        (disk,) = set(node.state()["disks"]) - before
        size, dev = node.sh(f"cat /sys/block/{disk}/size /sys/block/{disk}/dev").split()
        table = f"0 {size} multipath 0 0 1 1 service-time 0 1 1 {dev} 1"
        node.sh(
            f"dmsetup create mpathx --uuid mpath-3600140500000000000000000000000 --table '{table}'"
        )
        finding = node.refused("mpathx", "VPD 0x83 missing")
        assert finding["control"] == "STOR-02"
        node.sh("dmsetup remove mpathx")
    finally:
        node.vm.unplug_disk("nameless")


@pytest.mark.variation
def test_multipathd_down(node: Node) -> None:
    node.unmap(2)
    name, _wwid = node.map_of(2)
    node.labctl("multipathd stop")
    node.refused(name, "multipathd does not answer")
    assert node.sh("systemctl is-active multipathd.service", check=False) == "inactive", (
        "asking must not have started it"
    )


@pytest.mark.variation
def test_multipathd_frozen(node: Node) -> None:
    """It accepts the question and never answers: bounded, and refused."""
    node.unmap(2)
    name, _wwid = node.map_of(2)
    before = node.shape()
    node.labctl("multipathd freeze")
    outcome = node.residual(command_timeout=5)
    node.labctl("multipathd thaw")
    finding = outcome.finding(name)
    assert finding["verdict"] == "refuse"
    assert "multipathd" in finding["reason"]
    assert not outcome.changed
    assert node.shape() == before


@pytest.mark.variation
def test_multipathd_answers_timeout(node: Node) -> None:
    """What a busy daemon's client prints, with exit status 0."""
    node.unmap(2)
    name, _wwid = node.map_of(2)
    node.wrap("multipathd", before='[ "$1 $2" = "show maps" ] && echo timeout && exit 0')
    node.refused(name, "multipathd answered 'timeout' instead of its maps and paths")


@pytest.mark.variation
def test_observation_too_short(node: Node) -> None:
    node.unmap(2)
    name, _wwid = node.map_of(2)
    # However long the node takes to look twice, it is not ten minutes.
    node.sh(
        "sed -i 's/max_polling_interval .*/max_polling_interval 600/' /etc/multipath.conf && "
        "multipathd reconfigure"
    )
    assert "max_polling_interval 600" in node.sh("multipathd show config local | tr -d '\"'")
    node.refused(name, "observation too short", observation_seconds=1)
    node.refused(name, "a single observation", observations=1)


def test_most_maps_dead_at_once(node: Node) -> None:
    """4 of 6 maps look dead: an outage until somebody says that they were all detached."""
    for lun in (5, 6):
        node.labctl(f"lun new lun{lun} 16")
        node.labctl(f"lun map {lun}")
    node.labctl("rescan")
    node.wait(
        lambda: sum(len(entry["paths"]) == 2 for entry in node.state()["maps"].values()) == 6,
        "6 maps",
    )
    node.unmap(1, 2)
    more = [node.state()["maps"][node.state()["luns"][str(lun)]["wwid"]]["name"] for lun in (5, 6)]
    for lun, name in zip((5, 6), more, strict=True):
        node.labctl(f"lun unmap {lun}")
        node.wait_for_failed_paths(name)
    name, _wwid = node.map_of(1)
    node.refused(name, "4 of the node's 6 maps look broken at once")
    node.refused(more[0], "4 of the node's 6 maps look broken at once", maps=[])
    run = node.residual(accept_majority=True)
    assert not run.failed, run.msg
    assert len(run.findings) == 4
    assert {outcome for _action, outcome in run.outcomes} == {"done"}
    node.gone(1)
    node.gone(2)


@pytest.fixture
def plain_disk(node: Node) -> str:
    """A disk of LUN 2 that is a path of no map, since its map was flushed."""
    name, wwid = node.map_of(2)
    node.sh(f"multipathd del map {name}")
    node.wait(lambda: wwid not in node.state()["maps"], "the map is gone")
    return node.paths_of(2)[0]


def claimed(node: Node, disk: str) -> str:
    node.labctl(f"hold --excl {disk}")
    return "claimed exclusively"


@pytest.mark.variation
@pytest.mark.parametrize("use", [claimed, opened, mounted])
def test_plain_disk_in_use(node: Node, plain_disk: str, use: Callable[[Node, str], str]) -> None:
    reason = use(node, f"/dev/{plain_disk}")
    node.labctl("lun unmap 2")
    outcome = node.residual()
    finding = outcome.finding(plain_disk)
    assert (finding["control"], finding["verdict"]) == ("STOR-03", "refuse")
    assert reason in finding["reason"]
    # The other disk of the LUN is as dead, and free.
    other = node.paths_of(2)[1]
    assert outcome.finding(other)["verdict"] == "repair"
    disks = node.state()["disks"]
    assert plain_disk in disks
    assert other not in disks


def test_disk_that_the_kernel_set_offline(node: Node) -> None:
    """As after too many errors: it stays so, and cannot be asked.

    What helps is said, and then it is a residual map as any other.
    """
    name, _wwid = node.map_of(2)
    path = node.paths_of(2)[0]
    node.sh(f"echo offline > /sys/block/{path}/device/state")
    node.unmap(2)
    remedy = f"echo running > /sys/block/{path}/device/state"
    finding = node.refused(name, remedy)
    assert "transport outage" not in finding["reason"]
    node.sh(remedy)
    run = node.residual()
    assert not run.failed, run.msg
    node.gone(2)


def test_loop_device_on_a_path_that_is_gone(node: Node) -> None:
    """Its backing file can no longer be found by its path, and no process has the map open: not
    something that hangs and could be freed.
    """
    name, _wwid = node.map_of(2)
    node.sh("modprobe loop")
    node.sh(
        f"cp -a $(readlink -f /dev/mapper/{name}) /root/elsewhere && losetup /dev/loop0 "
        "/root/elsewhere && rm /root/elsewhere"
    )
    node.unmap(2)
    for accepted in (False, True):
        finding = node.refused(name, "behind loop0", fail_hung_readers=accepted)
        assert "fail_hung_readers" not in finding["reason"]
    node.sh("losetup -d /dev/loop0")
    run = node.residual()
    assert not run.failed, run.msg
    node.gone(2)


@pytest.mark.variation
def test_in_a_mount_namespace_of_its_own(node: Node) -> None:
    """As in a container with the host's processes: what it sees in /dev, and who has mounted what,
    need not be so on the node.
    """
    node.unmap(2)
    before = node.shape()
    python = node.sh("readlink -f /usr/bin/python3")
    script = f'#!/bin/sh\nexec unshare --mount {python} "$@"\n'
    node.vm.run(
        "rm /usr/bin/python3 && cat > /usr/bin/python3 && chmod +x /usr/bin/python3", stdin=script
    )
    run = node.residual()
    node.sh(f"ln -sf {python} /usr/bin/python3")
    assert run.failed and "in a mount namespace of its own" in run.msg, run.msg
    assert node.shape() == before
    run = node.residual()
    assert not run.failed, run.msg
    node.gone(2)
