# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that cannot be read must not look like one without disks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import bounded
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import host, scsi
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.model import (
    ResidualOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.runbook import (
    ResidualPaths,
)


class Node(Host):
    """A tree of files whose disks all answer the same."""

    def __init__(self, root: Path, answer: scsi.Answer) -> None:
        super().__init__(Deadline(60), 5, str(root))
        self.answer = answer

    def require_root(self) -> None:
        pass

    def ask(
        self,
        questions: Sequence[tuple[str, bool]],
        timeout: float,
        owners: Sequence[Hashable],
    ) -> list[scsi.Answer]:
        return [self.answer for _question in questions]


def with_a_disk(root: Path) -> None:
    device = root / "sys/class/scsi_disk/0:0:0:0/device"
    (device / "block/sda").mkdir(parents=True)
    (device / "state").write_text("running\n")
    (device / "block/sda/dev").write_text("8:0\n")
    (root / "sys/block").mkdir()


def test_a_place_without_sysfs_is_no_node(tmp_path: Path) -> None:
    with pytest.raises(StorageOpsError, match="there is no /sys here"):
        ResidualPaths(Node(tmp_path, scsi.Answer()), ResidualOptions()).gather()


def test_a_mount_namespace_of_its_own_is_no_node(tmp_path: Path) -> None:
    """What it looks for in /dev, and flushes there, may be another thing on the node."""
    with_a_disk(tmp_path)
    for pid, namespace in (("1", "mnt:[1]"), ("self", "mnt:[2]")):
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/ns/mnt").symlink_to(namespace)
    with pytest.raises(StorageOpsError, match="in a mount namespace of its own, not the node's"):
        ResidualPaths(
            Node(tmp_path, scsi.Answer(problem="no answer within 5.0 s")), ResidualOptions()
        ).gather()


def test_disks_that_may_not_be_asked_are_no_healthy_ones(tmp_path: Path) -> None:
    with_a_disk(tmp_path)
    with pytest.raises(
        StorageOpsError, match="sda could not be asked: run as root, with all of its capabilities"
    ) as caught:
        ResidualPaths(
            Node(tmp_path, scsi.Answer(problem="Operation not permitted", denied=True)),
            ResidualOptions(),
        ).gather()
    assert caught.value.code == "privileges_missing"


@pytest.mark.parametrize(("error", "denied"), [(PermissionError, True), (FileNotFoundError, False)])
def test_whether_a_disk_may_be_asked_is_told_by_the_kind_of_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], denied: bool
) -> None:
    def ask(*_arguments: Any) -> Any:
        raise error(1, "whatever it is called")

    monkeypatch.setattr(scsi, "ask", ask)
    (answer,) = Host(Deadline(60), 5, str(tmp_path)).ask([("sda", False)], 5.0, [""])
    assert (answer.denied, "whatever it is called" in answer.problem) == (denied, True)


def test_disks_that_do_not_answer_leave_none_of_another_server_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there may be children, none of which SIGKILL ends, and named before the others."""
    pids: list[int] = []
    monkeypatch.setattr(bounded, "_kill", pids.append)
    monkeypatch.setattr(host, "MAX_WORKERS", 2)

    def ask(path: str, _timeout: float, _report_luns: bool) -> dict[str, Any]:
        while path.endswith("hangs"):
            signal.pause()
        return {"ready": "good"}

    monkeypatch.setattr(scsi, "ask", ask)
    names = ["hangs"] * 3 + ["well"]
    owners = [name == "hangs" for name in names]
    try:
        questions = [(name, False) for name in names]
        answers = Host(Deadline(60), 5, str(tmp_path)).ask(questions, 0.0, owners)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert [answer.ready for answer in answers] == ["not asked"] * 3 + ["good"]


def test_a_local_disk_that_does_not_answer_is_none_of_an_array(tmp_path: Path) -> None:
    with_a_disk(tmp_path)
    runbook = ResidualPaths(
        Node(tmp_path, scsi.Answer(problem="no answer within 5.0 s")), ResidualOptions()
    )
    assert runbook.plan(runbook.gather()).findings == []


@pytest.mark.parametrize(("state", "observed"), [("running", 3), ("blocked", 1), ("offline", 1)])
def test_only_what_another_look_may_decide_is_observed(
    tmp_path: Path, state: str, observed: int
) -> None:
    """A disk that the kernel itself calls down is refused, however often it is looked at."""
    with_a_disk(tmp_path)
    device = tmp_path / "sys/class/scsi_disk/0:0:0:0/device"
    (device / "state").write_text(f"{state}\n")
    session = tmp_path / "sys/class/iscsi_session/session1"
    session.mkdir(parents=True)
    (session / "state").write_text("LOGGED_IN\n")
    # The folder of the device is below that of its session.
    below = tmp_path / "sys/devices/platform/host0/session1/target0:0:0"
    below.mkdir(parents=True)
    device.rename(below / "0:0:0:0")
    device.symlink_to(below / "0:0:0:0")
    for pid in ("1", "self"):
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "proc/1/root").symlink_to("/")
    (tmp_path / "proc/1/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/vda1 rw\n")
    node = Node(tmp_path, scsi.Answer("05/25/00", "05/25/00"))
    runbook = ResidualPaths(node, ResidualOptions(observation_seconds=0))
    found = runbook.gather()
    assert len(found.observations) == observed
    (finding,) = runbook.plan(found).findings
    assert (finding.control, finding.verdict) == ("STOR-03", "refuse")
