# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster is one: real kubelets run pods on both workers, and no test sees another's."""

from __future__ import annotations

import pytest
from lab.kubernetes import api as k8s
from support.kind import KindCluster, on, running


@pytest.mark.smoke
def test_pods_run_on_both_workers(cluster: KindCluster) -> None:
    api, kind = cluster.api, cluster.kind
    assert {name: api.ready(name) for name in kind.nodes} == dict.fromkeys(kind.nodes, "True")
    for worker in kind.workers:
        said = running(f"echo from {worker}; sleep 1000")
        api.create(k8s.pod(worker, **said, **on(worker)))
    for worker in kind.workers:
        cluster.wait(lambda name=worker: cluster.logs(name) if _runs(cluster, name) else "", worker)  # type: ignore[misc]
        found = api.find("Pod", worker)
        assert found and found["spec"]["nodeName"] == worker
        assert cluster.logs(worker) == f"from {worker}\n"


def test_nothing_is_left_to_the_next_test(cluster: KindCluster) -> None:
    api, (worker, _other) = cluster.api, cluster.kind.workers
    api.create(k8s.workload("Deployment", "web", **running("sleep 1000"), **on(worker)))
    api.add_volume("data", "csi.nobody.example", "vol-1")
    api.merge(k8s.path("Node", worker), {"spec": {"unschedulable": True}})
    cluster.wait(lambda: len(cluster.left()) >= 4, "the deployment has its pod")

    cluster.reset()
    assert cluster.left() == []
    found = api.find("Node", worker)
    assert found and not found["spec"].get("unschedulable") and not found["spec"].get("taints")


def _runs(cluster: KindCluster, name: str) -> bool:
    return ((cluster.api.find("Pod", name) or {}).get("status") or {}).get("phase") == "Running"
