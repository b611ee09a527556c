# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The multipath maps of a node, through a pod on it: multipathd's socket is abstract,
so of the node's network, and udev and dmsetup wait for each other by the node's semaphores.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.kind.python_image import python_image
from support.failover import NODE_A
from support.fixtures import start_if_it_can_be_had
from support.kubelets import KubeletScene
from support.node import QUICK, Node
from support.node_pods import NodePods

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"
LUN = 1


@pytest.fixture
def node_pods(
    scene: KubeletScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodePods]:
    """A pod on each node."""

    def bring() -> None:
        packed = base64.b64encode(gzip.compress(python_image().read_bytes(), 1)).decode()
        for vm in scene.kubelets.nodes.values():
            unpack = "base64 -d | gunzip | ctr -n k8s.io images import -"
            vm.run(unpack, timeout=600, stdin=packed)

    start_if_it_can_be_had("an image with Python", bring)
    found = NodePods(scene.cluster, tmp_path)
    monkeypatch.setenv("PATH", found.path)
    try:
        found.start(AUDITOR)
        yield found
    finally:
        found.remove()


def test_a_residual_map(scene: KubeletScene, node_pods: NodePods) -> None:
    node = Node(scene.vm())
    name, wwid = node.map_of(LUN)
    healthy = node_pods.ansible(NODE_A, "node_storage_info", AUDITOR, controls=["STOR-01"])
    assert not healthy.failed and healthy.findings == [], healthy.result
    assert "STOR-01" not in healthy.result["not_applicable"], healthy.result
    node.unmap(LUN)
    before = node.shape()

    check = node_pods.ansible(NODE_A, "multipath_residual", AUDITOR, "--check", **QUICK)
    assert check.finding(name)["verdict"] == "repair", check.result
    assert {outcome for _action, outcome in check.outcomes} == {"planned"}
    assert node.shape() == before

    run = node_pods.ansible(NODE_A, "multipath_residual", AUDITOR, **QUICK)
    assert not run.failed and {outcome for _action, outcome in run.outcomes} == {"done"}, run.result
    assert run.outcomes[0][0] == "flush_map"
    node.gone(LUN)
    node.check_neighbours()
    again = node_pods.ansible(NODE_A, "multipath_residual", AUDITOR, **QUICK)
    assert not again.failed and again.findings == [], again.result
    assert wwid not in json.dumps(node.state()["maps"])
