# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What rclone has left on the disk, in real files with notes as rclone writes them (1.60)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import caches
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import CACHES
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

KEY = "0123456789abcdef"
ARRIVED: dict[str, Any] = {"Size": 1, "Fingerprint": "1,2026-11-26", "Dirty": False}


class Node:
    """A node's disk, on which systemd runs with control groups of version 2."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / CACHES[1:] / KEY
        (root / "sys/fs/cgroup/system.slice").mkdir(parents=True)
        (root / "proc").mkdir()

    def keep(self, name: str, note: str | None) -> None:
        texts = {"vfs": "data", "vfsMeta": note}
        for kind, text in texts.items():
            path = self.cache / kind / "storage_ops/bucket" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_text(text)

    def serve(self, folder: str, key: str = KEY) -> None:
        unit = self.root / folder[1:] / f"storage_ops-fuse-{key}.service"
        unit.mkdir(parents=True)
        (unit / "cgroup.procs").write_text("77\n")
        (self.root / "proc/77").mkdir(exist_ok=True)
        self.environ(f"HOME=/root\0RCLONE_CACHE_DIR={CACHES}/{KEY}\0")

    def environ(self, text: str) -> None:
        (self.root / "proc/77/environ").write_text(text)

    def tidy(self) -> list[str]:
        """The files that are left, of data and of notes."""
        caches.tidy(Host(Deadline(60), 10, str(self.root)))
        found = [path for path in self.cache.rglob("*") if path.is_file()]
        return sorted(str(path.relative_to(self.cache)) for path in found)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = Node(tmp_path)
    found.keep("a/b", json.dumps(ARRIVED, indent="\t"))
    return found


LEFT = ["vfs/storage_ops/bucket/a/b", "vfsMeta/storage_ops/bucket/a/b"]


def test_what_has_arrived_is_removed(node: Node) -> None:
    """Files of tenants stayed in plain text for ever."""
    assert node.tidy() == []
    assert not node.cache.exists() and node.cache.parent.exists()


@pytest.mark.parametrize(
    "note",
    [
        json.dumps({**ARRIVED, "Dirty": True}),
        # Nothing tells that it is in the bucket.
        json.dumps({**ARRIVED, "Fingerprint": ""}),
        json.dumps({**ARRIVED, "Dirty": None}),
        json.dumps({"Fingerprint": "x"}),
        "[]",
        # The node lost its power while it was written.
        "",
        '{"Dirty": false, "Fingerprint": "x',
        None,
    ],
)
def test_what_may_not_have_arrived_stays(node: Node, note: str | None) -> None:
    node.keep("a/c", note)
    kept = ["vfs/storage_ops/bucket/a/c", *(["vfsMeta/storage_ops/bucket/a/c"] if note else [])]
    left = node.tidy()
    assert [one for one in left if one.endswith("/b")] == []
    assert left == kept if note != "" else left == [*kept, "vfsMeta/storage_ops/bucket/a/c"]


def test_a_note_that_is_a_link_is_not_followed(node: Node) -> None:
    note = node.cache / LEFT[1]
    note.rename(node.root / "note")
    note.symlink_to(node.root / "note")
    assert node.tidy() == LEFT


@pytest.mark.parametrize("folder", ["system.slice", "storage_ops.slice/storage_ops-fuse.slice"])
@pytest.mark.parametrize("tree", ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd"])
def test_what_a_server_uses_stays(node: Node, tree: str, folder: str) -> None:
    """Also of another repair: it is of the same volume. That of an earlier release was in the slice
    of all services.
    """
    (node.root / "sys/fs/cgroup/system.slice").rmdir()
    (node.root / tree[1:] / "system.slice").mkdir(parents=True)
    folder = f"{tree}/{folder}"
    node.serve(folder, "fedcba9876543210")
    assert node.tidy() == LEFT
    # Of another volume.
    node.environ(f"RCLONE_CACHE_DIR={CACHES}/other\0")
    assert node.tidy() == []


def test_where_it_is_not_known_what_is_used_all_stays(node: Node) -> None:
    node.serve("/sys/fs/cgroup/system.slice")
    (node.root / "proc/77/environ").unlink()
    assert node.tidy() == LEFT
    # It has ended.
    (node.root / "proc/77").rmdir()
    assert node.tidy() == []


def test_without_systemd_all_stays(node: Node) -> None:
    (node.root / "sys/fs/cgroup/system.slice").rmdir()
    assert node.tidy() == LEFT
