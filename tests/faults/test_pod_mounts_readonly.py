# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that turned read-only (STOR-08): real I/O errors below real filesystems, and volumes that are read-only on purpose."""

from __future__ import annotations

from typing import Any

import pytest
from faults.test_pod_mounts import OTHER_UID, UID, Mounts, volumes
from node import Node, Outcome

__all__ = ["volumes"]

THIRD_UID = "8a1b2c3d-1111-2222-3333-444455556666"
PORTALS = ("127.0.0.1", "127.0.0.2")


def turn(mounts: Mounts, *folders: str) -> None:
    """Change what is known already, which needs nothing but the journal, until the filesystem gives up; each has a file ``data``."""
    sh = mounts.node.sh

    def gave_up() -> bool:
        change = "touch {0}/data; timeout 100 sync -f {0}; ls {0}; touch {0}/more"
        told = {folder: sh(f"({change.format(folder)}) 2>&1", check=False, timeout=120) for folder in folders}
        # ext4 still lets one read; a new file may also fail since the disk has to be asked where there is room.
        return all("Read-only file system" in said or f"'{folder}': Input/output error" in said for folder, said in told.items())

    mounts.node.wait(gave_up, "the filesystems give up", 200)


def turned(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The findings of STOR-08, by volume; without those of volumes that no pod has."""
    found = [finding for finding in outcome.findings if finding["control"] == "STOR-08"]
    return {volume: finding for finding in found for volume in finding["evidence"]["volumes"]}


def anew(mounts: Mounts, uid: str, volume: str, lun: int) -> None:
    """What becomes of a volume whose workload is moved: unmounted here, and mounted again."""
    mounts.csi(f"unpublish {uid} {volume} , unstage {volume} , stage {volume} {mounts.devices[lun]} , publish {uid} {volume}")


@pytest.mark.smoke
def test_error_below_ext4_and_xfs(volumes: Node) -> None:
    """Refused while the error lasts, found when it is over, gone when the volume is mounted anew. Nothing is ever remounted."""
    mounts = Mounts(volumes, flaky=True)
    mounts.break_device(1)
    mounts.break_device(2)
    turn(mounts, mounts.point, mounts.other)
    before = mounts.table()
    found = turned(mounts.repair())
    assert {volume: finding["verdict"] for volume, finding in found.items()} == {"pv-a": "refuse", "pv-b": "refuse"}
    assert all("cannot be read: Input/output error" in finding["reason"] for finding in found.values())
    mounts.mend_device(1)
    mounts.mend_device(2)
    run = mounts.repair()
    assert (run.changed, run.failed, run.outcomes) == (False, False, [])
    found = turned(run)
    assert {volume: finding["verdict"] for volume, finding in found.items()} == {"pv-a": "report", "pv-b": "report"}
    assert {volume: finding["workload"]["pods"] for volume, finding in found.items()} == {"pv-a": [UID], "pv-b": [OTHER_UID]}
    assert "Remounting filesystem read-only" in found["pv-a"]["evidence"]["log"][-1]
    assert found["pv-b"]["evidence"]["answer"] == "Input/output error"
    assert mounts.table() == before
    anew(mounts, UID, "pv-a", 1)
    anew(mounts, OTHER_UID, "pv-b", 2)
    assert turned(mounts.repair()) == {}


def test_read_only_on_purpose(volumes: Node) -> None:
    """A pod that only reads, a volume staged read-only, a LUN that cannot be written; and one that somebody has remounted."""
    node, mounts = volumes, Mounts(volumes)
    again = f"unpublish {OTHER_UID} pv-b , unstage pv-b , stage pv-b {mounts.devices[2]} ro , publish {OTHER_UID} pv-b"
    mounts.csi(f"publish {THIRD_UID} pv-a ro , {again} , unstage pv-c")
    node.sh(f"blockdev --setro {mounts.devices[3]}")
    mounts.csi(f"stage pv-c {mounts.devices[3]}")
    assert mounts.repair().findings == []
    # Only the filesystem is, and nothing says why.
    node.sh(f"mount -o remount,ro {mounts.point}")
    (finding,) = mounts.repair().findings
    assert (finding["verdict"], finding["evidence"]["volumes"]) == ("refuse", ["pv-a"])
    assert "nothing shows that an error was the reason" in finding["reason"]


def test_portal_loss(volumes: Node) -> None:
    """As an outage of the array is: refused until every path is back."""
    node, mounts = volumes, Mounts(volumes)
    for portal in PORTALS:
        node.labctl(f"portal down {portal}")
    turn(mounts, mounts.point, mounts.other)
    found = turned(mounts.repair())
    assert {finding["verdict"] for finding in found.values()} == {"refuse"}
    assert "a path is down" in found["pv-a"]["reason"]
    node.labctl(f"portal up {PORTALS[0]}")
    name = node.map_of(1)[0]
    node.wait(lambda: "active ready" in node.sh(f"multipathd show map {name} topology"), "one path is back", 120)
    assert "a path is down" in turned(mounts.repair())["pv-a"]["reason"]
    node.labctl(f"portal up {PORTALS[1]}")
    node.wait(lambda: "failed" not in node.sh("multipathd show topology"), "all paths are back", 120)
    found = turned(mounts.repair())
    assert {volume: finding["verdict"] for volume, finding in found.items()} == {"pv-a": "report", "pv-b": "report"}
    assert any("EXT4-fs" in line for line in found["pv-a"]["evidence"]["log"])
    assert any("XFS" in line for line in found["pv-b"]["evidence"]["log"])
    anew(mounts, UID, "pv-a", 1)
    anew(mounts, OTHER_UID, "pv-b", 2)
    assert turned(mounts.repair()) == {}
