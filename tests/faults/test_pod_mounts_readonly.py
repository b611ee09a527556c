# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that turned read-only (STOR-08): real I/O errors below real filesystems, and volumes that
are read-only on purpose.
"""

from __future__ import annotations

import base64
import gzip
import subprocess
from pathlib import Path
from typing import Any

import pytest
from faults.test_pod_mounts import LUN_SECTORS, OTHER_UID, UID, Mounts, volumes
from lab.common import patient
from support.node import Node, Outcome

__all__ = ["volumes"]

THIRD_UID = "8a1b2c3d-1111-2222-3333-444455556666"
VOLUMES_OF = {"pv-a": UID, "pv-b": OTHER_UID, "pv-c": THIRD_UID}
PORTALS = ("127.0.0.1", "127.0.0.2")


def turn(mounts: Mounts, *folders: str) -> None:
    """Change what is known already, which needs nothing but the journal, until the filesystem gives
    up; each has a file ``data``.
    """
    sh = mounts.node.sh

    def gave_up() -> bool:
        change = "touch {0}/data; timeout 100 sync -f {0}; ls {0}; touch {0}/more"
        told = {
            folder: sh(f"({change.format(folder)}) 2>&1", check=False, timeout=120)
            for folder in folders
        }
        # ext4 still lets one read; a new file may also fail since the disk has to be asked where
        # there is room.
        return all(
            "Read-only file system" in said or f"'{folder}': Input/output error" in said
            for folder, said in told.items()
        )

    mounts.node.wait(gave_up, "the filesystems give up", 200)


def turned(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The findings of STOR-08, by volume; without those of volumes that no pod has."""
    found = [finding for finding in outcome.findings if finding["control"] == "STOR-08"]
    return {volume: finding for finding in found for volume in finding["evidence"]["volumes"]}


def verdicts(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Of what turned gives."""
    return {volume: finding["verdict"] for volume, finding in found.items()}


def again(mounts: Mounts, uid: str, volume: str, lun: int) -> None:
    """What becomes of a volume whose workload is moved: unmounted here, and mounted again."""
    mounts.csi(
        f"unpublish {uid} {volume} , unstage {volume} , stage {volume} {mounts.devices[lun]} , "
        f"publish {uid} {volume}"
    )


@pytest.fixture
def btrfs(tmp_path: Path) -> str:
    """A btrfs of the size of a LUN, packed; the nodes have no program that makes one."""
    image = tmp_path / "btrfs"
    with image.open("wb") as file:
        file.truncate(LUN_SECTORS * 512)
    # Without mixed block groups there is no room for one in so little.
    subprocess.run(["mkfs.btrfs", "-q", "--mixed", image], check=True, timeout=patient(60))
    return base64.b64encode(gzip.compress(image.read_bytes())).decode()


def test_error_below_ext4_xfs_and_btrfs(volumes: Node, btrfs: str) -> None:
    """Refused while the error lasts, found when it is over, gone once the volume is remounted.

    Nothing is ever remounted. btrfs has no device number of its own in mountinfo.
    """
    mounts = Mounts(volumes, flaky=(1, 2, 3))
    mounts.csi("unstage pv-c")
    volumes.vm.run(f"base64 -d | gunzip > {mounts.devices[3]}", stdin=btrfs)
    # udev has to see it, or the kernel does not know it as a btrfs to be mounted.
    volumes.sh("udevadm settle -t 20")
    mounts.csi(f"stage pv-c {mounts.devices[3]} , publish {THIRD_UID} pv-c")
    third = mounts.point_of(THIRD_UID, "pv-c")
    volumes.sh(f"echo C > {third}/data; sync -f {third}")
    luns = (1, 2, 3)
    for lun in luns:
        mounts.break_device(lun)
    turn(mounts, mounts.point, mounts.other, third)
    before = mounts.table()
    found = turned(mounts.repair())
    assert verdicts(found) == dict.fromkeys(VOLUMES_OF, "refuse")
    assert all(
        "cannot be read: Input/output error" in finding["reason"] for finding in found.values()
    )
    for lun in luns:
        mounts.mend_device(lun)
    run = mounts.repair()
    assert (run.changed, run.failed, run.outcomes) == (False, False, [])
    found = turned(run)
    assert verdicts(found) == dict.fromkeys(VOLUMES_OF, "report")
    pods = {volume: finding["workload"]["pods"] for volume, finding in found.items()}
    assert pods == {volume: [uid] for volume, uid in VOLUMES_OF.items()}
    assert "Remounting filesystem read-only" in found["pv-a"]["evidence"]["log"][-1]
    assert found["pv-b"]["evidence"]["answer"] == "Input/output error"
    evidence = found["pv-c"]["evidence"]
    name = volumes.sh(f"readlink {mounts.devices[3]}").strip().rpartition("/")[2]
    number = next(line.split(" ")[2] for line in before if f" {third} " in line)
    assert (evidence["type"], evidence["device"]) == ("btrfs", f"{number} ({name})")
    assert number.startswith("0:")
    assert f"(device {name}: state E" in evidence["log"][-1]
    assert evidence["errors"]["write_errs"] != "0"
    assert mounts.table() == before
    for lun, (volume, uid) in zip(luns, VOLUMES_OF.items(), strict=True):
        again(mounts, uid, volume, lun)
    # The errors that btrfs counts stay, and say nothing of now.
    assert turned(mounts.repair()) == {}


def test_read_only_on_purpose(volumes: Node) -> None:
    """A pod that only reads, a volume staged read-only, a LUN that cannot be written."""
    node, mounts = volumes, Mounts(volumes)
    again = (
        f"unpublish {OTHER_UID} pv-b , unstage pv-b , stage pv-b {mounts.devices[2]} ro , "
        f"publish {OTHER_UID} pv-b"
    )
    mounts.csi(f"publish {THIRD_UID} pv-a ro , {again} , unstage pv-c")
    node.sh(f"blockdev --setro {mounts.devices[3]}")
    mounts.csi(f"stage pv-c {mounts.devices[3]}")
    assert mounts.repair().findings == []
    # Only the filesystem is, and nothing says why: an administrator may have done it.
    node.sh(f"mount -o remount,ro {mounts.point}")
    (finding,) = mounts.repair().findings
    assert (finding["severity"], finding["verdict"]) == ("minor", "refuse")
    assert finding["evidence"]["volumes"] == ["pv-a"]
    assert "nothing shows that an error was the reason" in finding["reason"]


def test_a_program_that_is_called_like_a_message_of_xfs(volumes: Node) -> None:
    """Any tenant so had the healthy volume of another taken for one that was shut down."""
    node, mounts = volumes, Mounts(volumes)
    names = [
        node.sh(f"readlink {mounts.devices[lun]}").rpartition("/")[2]
        # ext4 and xfs.
        for lun in (1, 2)
    ]
    node.sh('cp "$(readlink -f /usr/bin/python3)" "/tmp/Shutting down filesystem"')
    for name in names:
        crash = (
            f"import ctypes; ctypes.CDLL(None).prctl(15, b'XFS ({name}): '); "
            "ctypes.pythonapi.PyObject_Repr(1)"
        )
        program = "'/tmp/Shutting down filesystem'"
        node.sh(
            f"setpriv --reuid 65534 --clear-groups {program} -c {node.quote(crash)}", check=False
        )
        said = node.sh(f"dmesg | grep -F 'XFS ({name}): ['")
        assert "segfault" in said and "in Shutting down filesystem[" in said
    assert mounts.repair().findings == []


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
    node.wait(
        lambda: "active ready" in node.sh(f"multipathd show map {name} topology"),
        "one path is back",
        120,
    )
    assert "a path is down" in turned(mounts.repair())["pv-a"]["reason"]
    node.labctl(f"portal up {PORTALS[1]}")
    node.wait(
        lambda: "failed" not in node.sh("multipathd show topology"), "all paths are back", 120
    )
    found = turned(mounts.repair())
    assert {volume: finding["verdict"] for volume, finding in found.items()} == {
        "pv-a": "report",
        "pv-b": "report",
    }
    assert any("EXT4-fs" in line for line in found["pv-a"]["evidence"]["log"])
    assert any("XFS" in line for line in found["pv-b"]["evidence"]["log"])
    again(mounts, UID, "pv-a", 1)
    again(mounts, OTHER_UID, "pv-b", 2)
    assert turned(mounts.repair()) == {}


@pytest.mark.variation
def test_write_protected_by_the_array(volumes: Node) -> None:
    """Read again it can be, but a workload that is moved would be no better off.

    The kernel does not notice the protection, so the device itself does not look read-only.
    """
    node, mounts = volumes, Mounts(volumes, volumes=False)
    before = set(node.sh("ls /dev/mapper").split())
    node.labctl("scsi-debug load 1 64")
    (name,) = set(node.sh("ls /dev/mapper").split()) - before
    node.sh(f"mkfs.ext4 -q /dev/mapper/{name}")
    mounts.csi(f"stage pv-a /dev/mapper/{name} , publish {UID} pv-a")
    node.sh(f"echo A > {mounts.point}/data; sync -f {mounts.point}")
    assert mounts.repair().findings == []
    protect = "echo {} > /sys/module/scsi_debug/parameters/wp"
    node.sh(protect.format(1))
    turn(mounts, mounts.point)
    (finding,) = mounts.repair().findings
    assert (finding["control"], finding["verdict"]) == ("STOR-08", "refuse")
    assert "the array has it write-protected" in finding["reason"]
    assert not finding["evidence"]["device_read_only"] and "workload" not in finding
    node.sh(protect.format(0))
    (finding,) = mounts.repair().findings
    assert finding["verdict"] == "report" and "can be read again" in finding["reason"]
    mounts.csi(f"unpublish {UID} pv-a , unstage pv-a")
    node.labctl("scsi-debug unload")
