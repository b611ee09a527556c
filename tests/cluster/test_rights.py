# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rights that are shipped are those that are used: what the auditor could do and did not, by
the audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Cluster
from fixtures import control_plane
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.build import OLD
from lab.kubernetes.controlplane import ControlPlane
from rights import AUDIT, HOME, granted, unused

QUICK: dict[str, Any] = {"min_age": 1, "observation_seconds": 1}
# Only where a list is long: tests/cluster/test_big_clusters.py.
LISTS = ("volumeattachments", "persistentvolumes", "persistentvolumeclaims", "nodes", "pods")
LONG = {*(f"watch {name}" for name in LISTS), "list csinodes"}


@pytest.fixture(scope="module")
def plane_1_20() -> Iterator[ControlPlane]:
    """Kubernetes 1.20.2, which has the bugs, with an audit log."""
    yield from control_plane(OLD, audited=HOME)


def test_the_audit_has_no_right_that_it_does_not_use(control_plane_1_20: Cluster) -> None:
    cluster, api = control_plane_1_20, control_plane_1_20.api
    storage: dict[str, Any] = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    api.create({**storage, "metadata": {"name": "lab"}, "provisioner": faults.DRIVER})
    faults.collision(cluster.plane, lengths=(68,))
    faults.attach(api, "db", faults.DRIVER, "vol-db", "n1")
    api.add_volume("waiting", faults.DRIVER, "vol-waiting")
    cluster.plane.kill_controller_manager()
    api.create(k8s.pod("web", ["waiting"], "n1"))
    cluster.stay_ready("n1", "collision-68")

    def run(module: str, **options: Any) -> Any:
        answer = cluster.ansible(module, user=AUDIT, **options)
        assert not answer.failed and not answer.changed, answer.msg
        return answer

    every = run("cluster_storage_info", pending_seconds=1, grace_seconds=1, **QUICK)
    assert "not_assessed" not in every.result and every.findings
    run("volumeattachment_info", **QUICK)
    run("node_fence_info", nodes=["n1"])
    run("pod_volume_info", stuck_seconds=1, namespace="default", node="n1")
    api.create(k8s.namespace("quiet"))
    run("pod_volume_info", namespace="quiet")
    run("csi_volume_info", provisioners=[faults.DRIVER], nodes=["n1"])
    # Nothing is fenced here, and 1.20 cannot have CSI-Addons.
    fences = {"get configmaps storage-ops", "list networkfences", "list networkfenceclasses"}
    assert unused(cluster, "storage-ops-audit", granted(AUDIT)) == fences | LONG
