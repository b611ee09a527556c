# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that cannot be read must not look like one without disks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import scsi
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.residual import ResidualPaths
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.residual_plan import Options


class Node(Host):
    """A tree of files whose disks all answer the same."""

    def __init__(self, root: Path, answer: scsi.Answer) -> None:
        super().__init__(Deadline(60), 5, str(root))
        self.answer = answer

    def require_root(self) -> None:
        pass

    def ask(self, questions: Sequence[tuple[str, bool]], timeout: float) -> list[scsi.Answer]:
        return [self.answer for _question in questions]


def with_a_disk(root: Path) -> None:
    device = root / "sys/class/scsi_disk/0:0:0:0/device"
    (device / "block/sda").mkdir(parents=True)
    (device / "state").write_text("running\n")
    (device / "block/sda/dev").write_text("8:0\n")
    (root / "sys/block").mkdir()


def test_a_place_without_sysfs_is_no_node(tmp_path: Path) -> None:
    with pytest.raises(StorageOpsError, match="there is no /sys here"):
        ResidualPaths(Node(tmp_path, scsi.Answer()), Options()).gather()


def test_a_mount_namespace_of_its_own_is_no_node(tmp_path: Path) -> None:
    """What it looks for in /dev, and flushes there, may be another thing on the node."""
    with_a_disk(tmp_path)
    for pid, namespace in (("1", "mnt:[1]"), ("self", "mnt:[2]")):
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/ns/mnt").symlink_to(namespace)
    with pytest.raises(StorageOpsError, match="in a mount namespace of its own, not the node's"):
        ResidualPaths(Node(tmp_path, scsi.Answer(problem="no answer within 5.0 s")), Options()).gather()


def test_disks_that_may_not_be_asked_are_no_healthy_ones(tmp_path: Path) -> None:
    with_a_disk(tmp_path)
    with pytest.raises(StorageOpsError, match="sda may not be asked: run as root, with all of its capabilities"):
        ResidualPaths(Node(tmp_path, scsi.Answer(problem="PermissionError: [Errno 1] Operation not permitted")), Options()).gather()


def test_a_local_disk_that_does_not_answer_is_none_of_an_array(tmp_path: Path) -> None:
    with_a_disk(tmp_path)
    runbook = ResidualPaths(Node(tmp_path, scsi.Answer(problem="no answer within 5.0 s")), Options())
    assert runbook.plan(runbook.gather()).findings == []
