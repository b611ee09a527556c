# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy cluster on nodes with kernels of their own: real kubelets, krbd, iSCSI maps, staging
mounts. Not one finding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.failover import NODE_A, NODE_B
from support.kubelets import KubeletScene
from support.node import QUICK

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"


@pytest.mark.alternate
def test_nothing_is_found(scene: KubeletScene, tmp_path: Path) -> None:
    scene.count()
    before = scene.cluster.attachment_uids(), scene.storage.ceph.json("osd", "dump")["epoch"]
    ceph = scene.storage.connection()
    asked: dict[str, Any] = {
        "target": f"{NODE_A}\n{NODE_B}",
        "compliance_report_folder": str(tmp_path),
        "compliance_report_strict": "true",
        "compliance_node_options": json.dumps(QUICK),
        "compliance_ceph_host": "localhost",
        **{f"compliance_ceph_{name}": value for name, value in ceph.items()},
    }
    played = scene.cluster.playbook(
        "compliance", user=AUDITOR, inventory=scene.inventory(tmp_path / "inventory"), **asked
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["findings"] == []
    assert played.rc == 0, played.text
    hosts = {host["name"]: host for host in report["hosts"]}
    assert hosts.keys() == {NODE_A, NODE_B, "cluster", "ceph"}
    for host in hosts.values():
        assert set(host["controls"].values()) <= {"pass", "not_applicable"}, host
    after = scene.cluster.attachment_uids(), scene.storage.ceph.json("osd", "dump")["epoch"]
    assert after == before
    begun = scene.acknowledged()
    scene.cluster.wait(lambda: scene.acknowledged() > begun, "db still writes")
