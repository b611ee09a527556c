# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LUN numbers that the array has exchanged: what a scan brings in must never join a map that reads
another volume.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.node import Node


@pytest.fixture
def node(node: Node) -> Iterator[Node]:
    """A volume has other SCSI addresses afterwards, so that of its map are not compared; those of
    the others are.
    """
    node.guarded = False
    yield node
    before = node.vm.begun
    swapped = {
        lun for lun, entry in node.state()["luns"].items() if entry != before["luns"].get(lun)
    }
    for lun, entry in before["luns"].items():
        if lun not in swapped:
            hctls = sorted(path["hctl"] for path in before["maps"][entry["wwid"]]["paths"].values())
            now = node.state()["maps"][entry["wwid"]]["paths"]
            assert sorted(path["hctl"] for path in now.values()) == hctls, f"LUN {lun}"


def swap(node: Node, *luns: int) -> None:
    """Each number gets the volume of the next one, and the last that of the first."""
    for lun in luns:
        node.labctl(f"lun unmap {lun}")
    for lun, other in zip(luns, (*luns[1:], luns[0]), strict=True):
        node.labctl(f"lun map {lun} lun{other}")


def content(node: Node, device: str) -> str:
    """Which volume a device reads: ``lun1``; empty if it has been written over."""
    command = (
        f"dd if=/dev/{device} bs=4096 count=1 iflag=direct 2>/dev/null | head -c 15 | tr -d '\\0'"
    )
    text = node.sh(command)
    return text[len("content of ") :] if text.startswith("content of ") else ""


def volumes(node: Node) -> dict[str, set[str]]:
    """Map -> what its paths read, each for itself; a map with more than one volume is mixed."""
    maps = node.state()["maps"].values()
    return {entry["name"]: {content(node, path) for path in entry["paths"]} for entry in maps}


def repaired(node: Node, *luns: int) -> None:
    """Every volume is back in a map of its own with both paths, and none is mixed."""
    assert all(len(read) == 1 for read in volumes(node).values()), volumes(node)
    wanted = {node.map_of(lun)[0]: {f"lun{lun}"} for lun in (1, 2, 3, 4)}

    def complete() -> bool:
        maps = node.state()["maps"]
        return all(len(maps.get(node.map_of(lun)[1], {}).get("paths", [])) == 2 for lun in luns)

    node.wait(complete, "the maps are back with both paths")
    assert volumes(node) == wanted


def test_unused_maps_are_taken_apart_together(node: Node) -> None:
    swap(node, 1, 2)
    first, second = node.map_of(1)[0], node.map_of(2)[0]
    assert volumes(node)[first] == {"lun2"}, "this is the danger: it reads the other volume's data"
    run = node.residual()
    assert not run.failed, run.msg
    repaired(node, 1, 2)
    (finding,) = run.findings
    assert (finding["control"], finding["severity"], finding["verdict"]) == (
        "STOR-02",
        "critical",
        "repair",
    )
    assert finding["object"]["name"] == f"{first}, {second}"
    assert run.outcomes == [("flush_map", "done"), ("flush_map", "done"), ("replace_paths", "done")]
    assert node.residual().findings == []
    assert node.residual(check=True).findings == []


def test_one_in_use_refuses_all(node: Node) -> None:
    name, _wwid = node.map_of(2)
    node.sh(
        f"mkfs.ext4 -q /dev/mapper/{name} && mkdir -p /mnt/a && mount /dev/mapper/{name} /mnt/a"
    )
    swap(node, 1, 2)
    before = node.shape()
    run = node.residual()
    assert node.shape() == before
    assert not run.failed, run.msg
    (finding,) = run.findings
    assert (finding["control"], finding["verdict"]) == ("STOR-02", "refuse")
    assert f"{name}: mounted at /mnt/a" in finding["reason"]
    assert run.outcomes == []


@pytest.mark.variation
def test_a_longer_cycle(node: Node) -> None:
    swap(node, 1, 2, 3)
    run = node.residual(accept_majority=True)
    assert not run.failed, run.msg
    repaired(node, 1, 2, 3)
    assert run.outcomes == [("flush_map", "done")] * 3 + [("replace_paths", "done")]
    assert node.residual().findings == []


def test_a_swap_that_one_portal_has_been_cleaned_of(node: Node) -> None:
    """As by hand, at one portal: both maps are mixed by now.

    What serves them stays, and they form again with it.
    """
    names = [node.map_of(lun)[0] for lun in (1, 2)]
    swap(node, 1, 2)
    host = min(disk["hctl"].split(":")[0] for disk in node.state()["disks"].values())
    for lun in (1, 2):
        node.sh(f"echo 1 > /sys/class/scsi_device/{host}:0:0:{lun}/device/delete")
    for lun in (1, 2):
        node.sh(f"echo '0 0 {lun}' > /sys/class/scsi_host/host{host}/scan")
    node.wait(
        lambda: volumes(node)[names[0]] == volumes(node)[names[1]] == {"lun1", "lun2"}, "mixed maps"
    )
    kept = {f"{host}:0:0:1", f"{host}:0:0:2"}
    before = {
        disk["hctl"]: name for name, disk in node.state()["disks"].items() if disk["hctl"] in kept
    }
    run = node.residual()
    assert not run.failed, run.msg
    repaired(node, 1, 2)
    assert run.outcomes == [("flush_map", "done"), ("flush_map", "done"), ("replace_paths", "done")]
    after = {
        disk["hctl"]: name for name, disk in node.state()["disks"].items() if disk["hctl"] in kept
    }
    assert after == before
    assert node.residual().findings == []


@pytest.mark.variation
def test_killed_between_the_maps(node: Node) -> None:
    """One map is flushed, the other is not: its disks and that map are one repair for
    the next run.
    """
    swap(node, 1, 2)
    node.wrap("multipath", after='[ "$1" = -f ] && kill -9 $PPID')
    node.killed()
    node.sh("rm -f /usr/local/sbin/multipath")
    run = node.residual()
    assert not run.failed, run.msg
    repaired(node, 1, 2)
    assert [action for action, _outcome in run.outcomes] == ["flush_map", "replace_paths"]
    assert node.residual().findings == []
