# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one pod's mount that cannot be repaired means for the others. That the kernel does what is
asked of it is tested on a node.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import NotStarted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import processes
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.copies import Others
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import Mount
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts import (
    runbook as pod_mounts,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.model import (
    PodMountOptions,
)

ROOT = "/var/lib/kubelet"
# One that is known to bind from its staging mount.
DRIVER = "rbd.csi.ceph.com"
PODS = ("00000000-1111-2222-3333-444455556666", "ffffffff-1111-2222-3333-444455556666")


class Node(Host):
    """Two tenants' pods, on whose volume another mount is, twice.

    ``steps``: what happens right before each unmount.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(Deadline(300), 10, str(root))
        self.root = root
        self.lines_of: list[str] = ["1 0 8:1 / / rw - ext4 /dev/sda1 rw"]
        self.number = 1
        self.steps: Iterator[Callable[[], object]] = iter(())
        (root / "proc/self").mkdir(parents=True)
        for number in (0, 1):
            for point in (self.staging(number), *[self.point(number)] * 3):
                note = {"driverName": DRIVER, "volumeHandle": f"vol-{number}"}
                (root / point[1:]).mkdir(parents=True, exist_ok=True)
                (root / point[1:]).with_name("vol_data.json").write_text(json.dumps(note))
                self.mount(point, f"253:{number}")

    def staging(self, number: int) -> str:
        handle = hashlib.sha256(f"vol-{number}".encode()).hexdigest()
        return f"{ROOT}/plugins/kubernetes.io/csi/{DRIVER}/{handle}/globalmount"

    def point(self, number: int) -> str:
        return f"{ROOT}/pods/{PODS[number]}/volumes/kubernetes.io~csi/pv-{number}/mount"

    def mount(self, point: str, device: str) -> None:
        under = [line.split()[0] for line in self.lines_of if line.split()[4] == point]
        self.number += 1
        line = f"{self.number} {(under or ['1'])[-1]} {device} / {point} rw - ext4 x rw"
        self.lines_of.append(line)
        self._write()

    def unmount(self, point: str, folder: bool = True) -> None:
        """All of it, as the kubelet does. ``folder``: it goes, too."""
        self.lines_of = [line for line in self.lines_of if line.split()[4] != point]
        self._write()
        if folder:
            shutil.rmtree(self.root / point[1:])

    def take(self, mount: Mount) -> None:
        next(self.steps, bool)()
        self.lines_of = [line for line in self.lines_of if line.split()[0] != str(mount.id)]
        self._write()

    def layers(self, number: int) -> int:
        return sum(line.split()[4] == self.point(number) for line in self.lines_of)

    def _write(self) -> None:
        (self.root / "proc/self/mountinfo").write_text("\n".join(self.lines_of))

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        return condition()


class Watched(pod_mounts.PodMounts):
    """Something happens right before the proof."""

    late: Callable[[], object] = bool

    def verify(self, finding: engine.Finding) -> list[str]:
        late, self.late = self.late, bool
        late()
        return super().verify(finding)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path)
    monkeypatch.setattr(pod_mounts, "other_mounts", lambda *_asked: Others((), {}, {}))
    monkeypatch.setattr(processes, "read_processes", lambda *_asked: [])
    monkeypatch.setattr(pod_mounts, "unmount", lambda _host, mount, _root: node.take(mount))
    return node


def repair(node: Node, late: Callable[[], object] = bool) -> dict[str, Any]:
    """``ended``: why the run ended; ``failed``: the repairs that failed alone."""
    runbook = Watched(node, PodMountOptions(accept_majority=True))
    runbook.late = late
    plan = pure.plan(runbook._mounts(ROOT), PodMountOptions(accept_majority=True))
    assert [len(finding.repair) for finding in plan.findings] == [2, 2]
    ended = ""
    try:
        engine._carry_out(runbook, plan)
    except StorageOpsError as error:
        ended = str(error)
    failed = [finding.reason for finding in plan.findings if finding.failed]
    half = bool(engine._half_made(plan))
    return {"ended": ended, "failed": failed, "half made": half}


def test_both_are_repaired(node: Node) -> None:
    assert repair(node) == {"ended": "", "failed": [], "half made": False}
    assert [node.layers(number) for number in (0, 1)] == [1, 1]


def test_a_pod_that_comes_up_between_two_layers_keeps_the_rest_for_itself(node: Node) -> None:
    """Its tenant restarts it: the layer that is gone was not the volume, or was there twice."""

    def comes_up() -> None:
        raise NotStarted("a container of the pod runs")

    node.steps = iter([bool, comes_up])
    told = repair(node)
    assert (told["ended"], told["half made"]) == ("", False)
    assert "a container of the pod runs" in str(told["failed"])
    assert [node.layers(number) for number in (0, 1)] == [2, 1]


@pytest.mark.parametrize(("look", "left"), [(1, 3), (2, 2)])
def test_users_that_cannot_be_read_end_no_other_repair(
    node: Node, monkeypatch: pytest.MonkeyPatch, look: int, left: int
) -> None:
    """Before the first layer, or between two: a tenant's process can prevent it."""
    looks = iter(range(1, 9))

    def unread(*_asked: object) -> Others:
        if next(looks) == look:
            raise StorageOpsError("not all mount namespaces of the node could be read")
        return Others((), {}, {})

    monkeypatch.setattr(pod_mounts, "other_mounts", unread)
    told = repair(node)
    assert (told["ended"], told["half made"]) == ("", False)
    assert "not all mount namespaces" in str(told["failed"])
    assert [node.layers(number) for number in (0, 1)] == [left, 1]


def test_a_proof_that_cannot_be_read_ends_no_other_repair(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pod_mounts.read_table

    def fails(*_asked: object) -> None:
        monkeypatch.setattr(pod_mounts, "read_table", real)
        raise StorageOpsError("the mounts were different each of 10 times")

    told = repair(node, lambda: monkeypatch.setattr(pod_mounts, "read_table", fails))
    assert (told["ended"], told["half made"]) == ("", False)
    assert "is not proven: the mounts were different" in str(told["failed"])
    assert node.layers(1) == 1


def gone(node: Node) -> None:
    node.unmount(node.point(0))


def gone_with_its_volume(node: Node) -> None:
    gone(node)
    node.unmount(node.staging(0))


def mounted_again(node: Node) -> None:
    node.mount(node.point(0), "253:0")


@pytest.mark.parametrize("happens", [gone, gone_with_its_volume, mounted_again])
def test_a_pod_that_is_deleted_before_the_proof_ends_no_other_repair(
    node: Node, happens: Callable[[Node], None]
) -> None:
    told = repair(node, lambda: happens(node))
    assert (told["ended"], told["half made"]) == ("", False)
    assert "is not proven" in str(told["failed"])
    assert node.layers(1) == 1


def lost_its_volume(node: Node) -> None:
    node.unmount(node.point(0), folder=False)


def lost_the_staging_mount(node: Node) -> None:
    node.unmount(node.staging(0), folder=False)


@pytest.mark.parametrize(
    ("happens", "said"),
    [(lost_its_volume, "is gone, too"), (lost_the_staging_mount, "globalmount is gone")],
)
def test_what_must_stay_and_is_gone_ends_the_run(
    node: Node, happens: Callable[[Node], None], said: str
) -> None:
    """The pod has a folder of the node's disk, or all pods of the volume will."""
    told = repair(node, lambda: happens(node))
    assert said in told["ended"] and told["half made"] is True
    assert node.layers(1) == 3
