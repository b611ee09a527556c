# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy cluster with real kubelets and a real CSI driver: not one finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.kind.csi import Driver
from support.kind import IMPATIENT, NAME, KindCluster, counting
from support.reattach import Workload

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"


@pytest.mark.smoke
def test_nothing_is_found(cluster: KindCluster, driver: Driver, tmp_path: Path) -> None:
    for kind, name in (("StatefulSet", "db"), ("Deployment", "web")):
        Workload(cluster, name, kind, driver=NAME, **counting(name))
    assert driver.attached().keys() == {"vol-db", "vol-web"}
    before = cluster.attachment_uids()

    every = cluster.ansible("cluster_storage_info", user=AUDITOR, **IMPATIENT)
    assert (every.failed, every.findings) == (False, []), every.result
    assert "not_assessed" not in every.result and "lost" not in every.result

    stuck = cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds=1, triage_strict=True)
    assert stuck.rc == 0, stuck.text

    played, report = cluster.compliance(tmp_path, AUDITOR, IMPATIENT)
    assert played.rc == 0, played.text
    assert report["findings"] == []
    (host,) = report["hosts"]
    assert set(host["controls"].values()) == {"pass"}, host
    assert cluster.attachment_uids() == before
