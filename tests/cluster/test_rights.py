# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rights of the auditor's account, by the audit log.

Those of other accounts are shown where playbooks use them.
"""

from __future__ import annotations

from typing import Any

from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from support.cluster import Cluster
from support.rights import FILES

AUDIT = FILES / "rbac-audit.yml"
QUICK: dict[str, Any] = {"min_age_seconds": 1, "observation_seconds": 1}


def test_the_rights_of_the_audit(control_plane_1_20: Cluster) -> None:
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
    run("cluster_storage_info", controls=["STOR-11"], nodes=["n1"], **QUICK)
    run("node_fence_info", nodes=["n1"])
    run("pod_volume_info", stuck_seconds=1, namespace="default", node="n1")
    api.create(k8s.namespace("quiet"))
    run("pod_volume_info", namespace="quiet")
    run("csi_volume_info", provisioners=[faults.DRIVER], nodes=["n1"])
    # Long lists are in test_big_clusters.py, and NetworkFences in tests/failover.
    cluster.used(
        "rbac-audit.yml",
        "get /version",
        "get /apis",
        "get volumeattachments",
        "list volumeattachments",
        "get persistentvolumes",
        "list persistentvolumes",
        "get persistentvolumeclaims",
        "list persistentvolumeclaims",
        "get nodes",
        "list nodes",
        "list pods",
        "get namespaces",
        "list events",
        "get csidrivers",
        "list csidrivers",
        "get csinodes",
        "list storageclasses",
        "list configmaps storage-ops",
        "get leases kube-system/kube-controller-manager",
    )
