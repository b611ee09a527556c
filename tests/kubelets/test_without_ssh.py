# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with a kernel of its own is reached through a pod on it, as
docs/guides/nodes_without_ssh.md says. By ssh the same is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.kind.python_image import IMAGE, python_image
from lab.kubelet.csi import BucketDriver
from lab.kubernetes import api as k8s
from support.cluster import Played
from support.failover import NODE_A
from support.fixtures import start_if_it_can_be_had
from support.kind import on
from support.kubelets import (
    AUDITOR,
    POD_DEADLINE,
    KubeletScene,
    counting,
    mount_over,
    served,
    waiting,
)
from support.mounts import layers
from support.node import PATIENT, QUICK, REMOUNT, Node
from support.node_pods import NodePods
from support.reattach import REPAIR

# The pod requests no processor, so of one that others keep busy it gets the least. On a busy
# machine 40 s were not enough to read sshd.
BUSY = {**PATIENT, "command_timeout": 300}
# As from a survey: all strings.
LOOKS = {f"residual_paths_{name}": str(value) for name, value in QUICK.items()}
LOOKS["residual_paths_options"] = json.dumps(BUSY)
# Where the kubelet has the volume of a pod that is the only one with it.
POINT = "/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/pv-{name}/mount"


class Ways:
    """Two ways to A, of which the pod is the one for playbooks."""

    def __init__(self, scene: KubeletScene, pods: NodePods, folder: Path) -> None:
        self.scene, self.node = scene, Node(scene.vm())
        self._pods = pods
        self._sources = (scene.inventory(folder / "inventory"), pods.source)
        # Of what was found last.
        self.reasons: list[str] = []

    def audit(self) -> set[tuple[str, str, str]]:
        """Control, object and verdict of what is found through the pod, and by ssh."""
        by_ssh, found = (self._told(source) for source in self._sources)
        assert found == by_ssh
        assert not found["not_assessed"] and not found["changed"], found
        return {
            (one["control"], one["object"]["name"], one["verdict"]) for one in found["findings"]
        }

    def play(self, name: str, check: bool = False, **asked: str) -> Played:
        """A repair, which leaves nothing broken."""
        played = self.scene.cluster.playbook(
            name, check, user=REPAIR, inventory=self._sources[1], target=NODE_A, **asked
        )
        # What has failed is told last, and of a long message only the start is kept.
        assert played.rc == 0, played.text[-3000:]
        return played

    def _told(self, source: Path) -> dict[str, Any]:
        """All but times, and numbers that are others at each look."""
        self._pods.source = source
        answer = self._pods.ansible(NODE_A, "node_storage_info", AUDITOR, **QUICK, **BUSY)
        self.reasons = [one["reason"] for one in answer.findings]
        keys = ("failed", "changed", "not_applicable", "not_assessed")
        parts = ("control", "severity", "object", "verdict", "code", "summary")
        findings = [{key: one.get(key) for key in parts} for one in answer.findings]
        return {**{key: answer.result.get(key) for key in keys}, "findings": findings}


@pytest.fixture
def ways(scene: KubeletScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ways]:
    """With a pod on A, for one test."""
    pods = NodePods(scene.cluster, tmp_path)
    monkeypatch.setenv("PATH", pods.path)
    start_if_it_can_be_had(
        "an image with Python", lambda: scene.vm().import_image(python_image(), IMAGE)
    )
    try:
        pods.start(AUDITOR, REPAIR, **on(NODE_A))
        yield Ways(scene, pods, tmp_path)
    finally:
        pods.remove()


@pytest.mark.variation
def test_a_residual_map(ways: Ways) -> None:
    node = ways.node
    name, wwid = node.map_of(2)
    node.unmap(2)
    assert ways.audit() == {("STOR-01", name, "repair")}
    shape = node.shape()
    planned = ways.play("clean_residual_paths", check=True, **LOOKS)
    assert "1 would be repaired" in planned.text, planned.text[-3000:]
    assert node.shape() == shape
    done = ways.play("clean_residual_paths", **LOOKS)
    assert "1 repaired and proven" in done.text, done.text[-3000:]
    node.gone(2)
    node.check_neighbours()
    again = ways.play("clean_residual_paths", **LOOKS)
    assert "| CHANGED" not in again.text, again.text[-3000:]
    assert ways.audit() == set()

    # Its number is served again, and is a healthy map.
    node.labctl("lun map 2")
    node.labctl("rescan")
    node.wait(lambda: wwid in node.state()["maps"], f"{name} is back")


@pytest.mark.variation
def test_a_wrong_pod_mount(ways: Ways) -> None:
    """Another volume is over that of a pod that still waits."""
    scene, node = ways.scene, ways.node
    scene.deploy("other", **counting("other"), **on(NODE_A))
    scene.writes_on(name="other")
    scene.volume("db")
    scene.create("db", ["db"], **waiting("db"), grace=1, **on(NODE_A))
    scene.cluster.wait(lambda: scene.pods(NODE_A), "db has a node", POD_DEADLINE)
    point = mount_over(scene, "db", "other")

    assert ways.audit() == {("STOR-07", point, "repair")}, ways.reasons
    asked = {"pod_mounts_options": json.dumps(BUSY)}
    planned = ways.play("repair_pod_mounts", check=True, **asked)
    assert f"planned: unmount {point}" in planned.text, planned.text[-3000:]
    assert len(layers(node, point)) == 2
    done = ways.play("repair_pod_mounts", **asked)
    assert "1 repaired and proven" in done.text, done.text[-3000:]
    assert len(layers(node, point)) == 1
    again = ways.play("repair_pod_mounts", **asked)
    assert "| CHANGED" not in again.text, again.text[-3000:]
    assert ways.audit() == set()

    # Now it can start.
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    scene.api.create({**settings, "metadata": {"name": "settings", "namespace": "default"}})
    scene.wait_running(NODE_A, seconds=2 * POD_DEADLINE)
    for app in ("db", "other"):
        scene.writes_on(name=app)
        numbers = [line.number for line in scene.lines(NODE_A, app)]
        assert numbers == list(range(1, len(numbers) + 1)), app
    scene.api.delete(k8s.path("ConfigMap", "settings", "default"))


@pytest.mark.variation
def test_a_dead_fuse_mount(ways: Ways, buckets: BucketDriver) -> None:
    scene, node = ways.scene, ways.node
    buckets.add_volume("web")
    scene.create("web", ["web"], **counting("web"), grace=1, **on(NODE_A))
    scene.wait_running(NODE_A, "web", POD_DEADLINE)
    scene.writes_on(name="web")
    (pod,) = scene.pods(name="web")
    (point,) = node.sh(f"ls -d {POINT.format(name='web')}").split()
    buckets.kill(NODE_A)
    dead = "Transport endpoint is not connected"
    scene.look(lambda: dead in node.sh(f"ls {point} 2>&1", check=False), "it is dead")
    reached, mounts = scene.acknowledged(name="web"), served(scene)

    found = ways.audit()
    assert {control for control, _name, _verdict in found} == {"STOR-05"}, found
    # As an operator does who knows that the driver was restarted.
    options = json.dumps({**REMOUNT, **BUSY})
    asked = {"fuse_recovery_accept_majority": "true", "fuse_recovery_options": options}
    planned = ways.play("recover_fuse_mounts", check=True, **asked)
    assert "planned: replace_mount" in planned.text, planned.text[-3000:]
    assert "planned: stop_container" in planned.text, planned.text[-3000:]
    assert served(scene) == mounts
    ways.play("recover_fuse_mounts", **asked)
    again = ways.play("recover_fuse_mounts", **asked)
    assert "| CHANGED" not in again.text, again.text[-3000:]
    assert ways.audit() == set()

    # The pod is the same, and so is what it has written.
    scene.wait_written(reached, name="web")
    (same,) = scene.pods(name="web")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [entry["restartCount"] for entry in same["status"]["containerStatuses"]] == [1]
    numbers = [line.number for line in scene.lines(NODE_A, "web")]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > reached
