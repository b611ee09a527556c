# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of a btrfs; what the kernel answers is tested on a node."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import btrfs
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

FSID = "5e0f6d5c-1111-2222-3333-444455556666"
STATS = "write_errs {0}\nread_errs 1\nflush_errs 0\ncorruption_errs 0\ngeneration_errs 0\n"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    devices = tmp_path / "sys/fs/btrfs" / FSID / "devices"
    devices.mkdir(parents=True)
    for name in ("dm-1", "dm-2"):
        (tmp_path / "sys/devices" / name).mkdir(parents=True)
        (devices / name).symlink_to(f"../../../../devices/{name}")
    (devices / "dm-3").symlink_to("../../../../devices/dm-3")
    for number, text in (("1", STATS.format(2)), ("2", STATS.format(40)), ("3", "invalid\n")):
        folder = tmp_path / "sys/fs/btrfs" / FSID / "devinfo" / number
        folder.mkdir(parents=True)
        (folder / "error_stats").write_text(text)
    (tmp_path / "sys/fs/btrfs/features").mkdir()
    return Host(Deadline(30), 5, str(tmp_path))


def test_fsid() -> None:
    """It stands behind two numbers of 8 bytes, as linux/btrfs.h has it."""
    info = b"\x01" * 16 + uuid.UUID(FSID).bytes + b"\xff" * 992
    assert btrfs.fsid_of(info) == FSID


def test_members(host: Host) -> None:
    """Without what is gone."""
    assert btrfs._members(host, FSID) == ("dm-1", "dm-2")
    assert btrfs._members(host, FSID.replace("5", "6")) == ()


def test_what_is_no_btrfs_is_left_out(host: Host, tmp_path: Path) -> None:
    """A folder of another filesystem, a file, a link, nothing."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    names = ("folder", "file", "link", "gone")
    points = {f"0:{number}": f"/{name}" for number, name in enumerate(names)}
    assert btrfs.read_devices(host, points) == {}
    assert btrfs.read_devices(host, {}) == {}


def test_counted_errors(host: Host) -> None:
    counted = {"write_errs": "42", "read_errs": "2"}
    counted |= dict.fromkeys(("flush_errs", "corruption_errs", "generation_errs"), "0")
    assert btrfs.counted_errors(host, "dm-2") == counted
    assert btrfs.counted_errors(host, "dm-4") == {}
