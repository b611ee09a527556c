# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy cluster with real kubelets and a real CSI driver, and its nodes: not one finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.kind.csi import Driver
from support.kind import IMPATIENT, NAME, KindCluster, counting, on, projecting
from support.reattach import Workload

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"


@pytest.mark.smoke
def test_nothing_is_found(cluster: KindCluster, driver: Driver, tmp_path: Path) -> None:
    nodes = cluster.kind.workers
    for kind, name, node in zip(("StatefulSet", "Deployment"), ("db", "web"), nodes, strict=True):
        spec = projecting(counting(name), name)
        Workload(cluster, name, kind, driver=NAME, **spec, **on(node))
        # That of the token that every pod gets, that of the test's own, and its file's.
        for kept in ("projected/kube-api-access-", "projected/projected ", "subpaths/projected/"):
            assert kept in cluster.kind.on(node, "cat", "/proc/1/mountinfo"), kept
    assert driver.attached() == dict(zip(("vol-db", "vol-web"), nodes, strict=True))
    before = cluster.attachment_uids()

    every = cluster.ansible("cluster_storage_info", user=AUDITOR, **IMPATIENT)
    assert (every.failed, every.findings) == (False, []), every.result
    assert "not_assessed" not in every.result and "lost" not in every.result

    stuck = cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds=1, triage_strict=True)
    assert stuck.rc == 0, stuck.text

    inventory = cluster.inventory(tmp_path, *nodes)
    played, report = cluster.compliance(tmp_path, AUDITOR, IMPATIENT, inventory)
    assert played.rc == 0, played.text
    assert report["findings"] == []
    hosts = {host["name"]: set(host["controls"].values()) for host in report["hosts"]}
    assert hosts.keys() == {*nodes, "cluster"}
    assert hosts.pop("cluster") == {"pass"}, report["hosts"]
    # No node of kind has what some of them are about.
    for node, states in hosts.items():
        assert states == {"pass", "not_applicable"}, (node, report["hosts"])
    assert cluster.attachment_uids() == before
