# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A LUN number given to another volume while the old disks stay: healthy everywhere but in a fresh
inquiry (STOR-02).
"""

from __future__ import annotations

import pytest
from support.node import Node


@pytest.fixture
def reused(node: Node) -> tuple[str, str, str]:
    """LUN 2 is unmapped and another volume mapped under its number; (map, old WWID, new WWID)."""
    name, wwid = node.map_of(2)
    other = node.labctl("lun new victim 48 VICTIM-DATA").split()[-1]
    node.labctl("lun unmap 2")
    node.labctl("lun map 2 victim")
    node.wait(
        lambda: node.sh(f"multipathd show map {name} topology").count("active ready running") == 2,
        "it looks healthy",
    )
    # This is the danger: the old map reads the other volume's data.
    assert first_bytes(node, f"/dev/mapper/{name}").startswith("VICTIM-DATA")
    return name, wwid, other


def first_bytes(node: Node, device: str) -> str:
    return node.sh(
        f"dd if={device} bs=4096 count=1 iflag=direct 2>/dev/null | head -c 11 | tr -d '\\0'"
    )


def test_unused_map_is_replaced(node: Node, reused: tuple[str, str, str]) -> None:
    name, wwid, other = reused
    check = node.residual(check=True)
    finding = check.finding(name)
    assert (finding["control"], finding["severity"], finding["verdict"]) == (
        "STOR-02",
        "critical",
        "repair",
    )
    assert finding["evidence"]["wwid"] == wwid
    assert finding["evidence"]["other_wwids"] == [other]
    run = node.residual()
    assert not run.failed, run.msg
    assert run.outcomes == [
        ("flush_map", "done"),
        ("replace_path", "done"),
        ("replace_path", "done"),
    ]
    assert wwid not in node.state()["maps"]
    node.wait(
        lambda: len(node.state()["maps"].get(other, {}).get("paths", [])) == 2,
        "the new LUN has a map of its own",
    )
    new = node.state()["maps"][other]["name"]
    assert first_bytes(node, f"/dev/mapper/{new}").startswith("VICTIM-DATA")
    for path in node.state()["maps"][other]["paths"]:
        assert first_bytes(node, f"/dev/{path}").startswith("VICTIM-DATA")
    assert node.residual().findings == []
    assert node.residual(check=True).findings == []


def test_mounted_map_is_refused(node: Node) -> None:
    name, wwid = node.map_of(2)
    node.sh(
        f"mkfs.ext4 -q /dev/mapper/{name} && mkdir -p /mnt/a && mount /dev/mapper/{name} /mnt/a"
    )
    other = node.labctl("lun new victim 64 VICTIM-DATA").split()[-1]
    node.labctl("lun unmap 2")
    node.labctl("lun map 2 victim")
    finding = node.refused(name, "mounted at /mnt/a")
    assert (finding["control"], finding["severity"]) == ("STOR-02", "critical")
    assert finding["evidence"]["wwid"] == wwid
    assert finding["evidence"]["other_wwids"] == [other]


@pytest.mark.variation
def test_after_a_rescan(node: Node, reused: tuple[str, str, str]) -> None:
    """sysfs has learnt the new name, the map has not."""
    _name, wwid, other = reused
    node.labctl("rescan")
    run = node.residual(flush_empty_maps=True)
    assert not run.failed, run.msg
    # udev may have moved the paths by now, and multipathd dropped the old map with them; what is
    # still there must go.
    assert {finding["verdict"] for finding in run.findings} <= {"repair"}, run.findings
    assert wwid not in node.state()["maps"]
    node.wait(
        lambda: other in [disk["wwid"] for disk in node.state()["disks"].values()],
        "the new LUN is there under its own name",
    )
    assert node.residual(flush_empty_maps=True).findings == []


def test_another_volume_with_the_same_wwid(node: Node) -> None:
    """A copy, or an array that hands a name out twice: only the T10 name, which has the whole
    serial number, tells.
    """
    name, wwid = node.map_of(2)
    assert node.labctl("lun new twin 48 VICTIM-DATA")
    serial = "/sys/kernel/config/target/core/fileio_0/{}/wwn/vpd_unit_serial"
    own = node.sh(f"cat {serial.format('lun2')}").rpartition(" ")[2]
    # LIO makes the WWID of the first 25 digits.
    node.sh(f"echo {own[:25]}0000000 > {serial.format('twin')}")
    node.labctl("lun unmap 2")
    node.labctl("lun map 2 twin")
    node.wait(
        lambda: node.sh(f"multipathd show map {name} topology").count("active ready running") == 2,
        "it looks healthy",
    )
    assert first_bytes(node, f"/dev/mapper/{name}").startswith("VICTIM-DATA")
    finding = node.refused(name, "answers with the same WWID, but as 1LIO-ORG_FILEIO:")
    assert (finding["control"], finding["severity"], finding["evidence"]["wwid"]) == (
        "STOR-02",
        "critical",
        wwid,
    )
