# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loop devices; what the kernel answers is tested on a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import loops
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host


@pytest.mark.parametrize("number", [(0, 45), (253, 4), (0, 300), (259, 1)])
def test_device_numbers(number: tuple[int, int]) -> None:
    """As the kernel writes them into lo_device (huge_encode_dev)."""
    info = os.makedev(*number).to_bytes(8, "little") + b"\xff" * 224
    assert loops.filesystem_of(info) == f"{number[0]}:{number[1]}"


def test_what_is_no_loop_device_is_left_out(tmp_path: Path) -> None:
    """A file of the name, no file, another device, a link."""
    (tmp_path / "dev").mkdir()
    for minor, name in enumerate(("file", "gone", "null", "link")):
        folder = tmp_path / "sys/devices/virtual/block" / name
        folder.mkdir(parents=True)
        links = tmp_path / "sys/dev/block"
        links.mkdir(parents=True, exist_ok=True)
        (links / f"7:{minor}").symlink_to(folder)
    (tmp_path / "dev/file").touch()
    (tmp_path / "dev/null").symlink_to("/dev/null")
    (tmp_path / "dev/link").symlink_to("/dev/null")
    host = Host(Deadline(30), 5, str(tmp_path))
    devices = ["7:0", "7:1", "7:2", "7:3", "7:9", "253:1", "17:1"]
    assert loops.read_backing(host, dict.fromkeys(devices, "")) == {}
    assert loops.read_backing(host, {}) == {}


def test_loop_devices_are_asked_in_turns_of_their_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 of one tenant, with files on a server that hangs, left those of all others unasked. One
    below another is of the same owner.
    """
    links = tmp_path / "sys/dev/block"
    links.mkdir(parents=True)
    asked: list[tuple[list[str], list[str]]] = []

    def call(_function: Any, items: Any, *_bounds: float, owners: Any) -> list[Reply]:
        devices = [device for device, _path in items]
        asked.append((devices, list(owners)))
        return [Reply(value="7:5" if device == "7:1" else "8:1") for device in devices]

    monkeypatch.setattr(loops, "call_each", call)
    node = Host(Deadline(300), 5, str(tmp_path))
    found = loops.read_backing(node, {"7:1": "many", "7:2": "few", "8:9": "none"})
    assert found == {"7:1": "7:5", "7:2": "8:1", "7:5": "8:1"}
    assert asked == [(["7:1", "7:2"], ["many", "few"]), (["7:5"], ["many"])]
    # One that is below those of several is of each of them.
    asked.clear()
    monkeypatch.setattr(
        loops, "call_each", lambda *given, **how: [Reply(value="7:5")] * len(call(*given, **how))
    )
    loops.read_backing(node, {"7:1": "many", "7:2": "few"})
    assert asked[1] == (["7:5"], [("many", "few")])
