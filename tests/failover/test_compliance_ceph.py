# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compliance run with a cluster and its Ceph: what only both together show, and what is said
when one of them is not there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.failover import ADDRESSES, NODE_B, Failover

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"


def test_a_blocked_node_that_no_ledger_knows(failover_current: Failover, tmp_path: Path) -> None:
    """It is found by the blocklist of a real Ceph; without Ceph STOR-17 is not assessed, and the
    rest is.
    """
    scene = failover_current
    scene.storage.ceph.run("osd", "blocklist", "add", ADDRESSES[NODE_B], "3600")
    entries = set(scene.storage.ceph.blocklist())
    asked: dict[str, Any] = {
        "compliance_report_folder": str(tmp_path),
        "compliance_report_controls": "STOR-11\nSTOR-16\nSTOR-17",
        "compliance_ceph_host": "localhost",
        **{f"compliance_ceph_{name}": value for name, value in scene.storage.connection().items()},
    }

    def hosts(**variables: Any) -> dict[str, dict[str, Any]]:
        played = scene.cluster.playbook("compliance", user=AUDITOR, **{**asked, **variables})
        assert played.rc == 0, played.text
        return {
            host["name"]: host
            for host in json.loads((tmp_path / "report.json").read_text())["hosts"]
        }

    seen = hosts()
    assert seen["cluster"]["controls"] == {"STOR-11": "pass", "STOR-16": "pass", "STOR-17": "fail"}
    assert seen["ceph"]["status"] == "assessed"
    (finding,) = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert finding["control"] == "STOR-17" and ADDRESSES[NODE_B] in finding["summary"]

    seen = hosts(compliance_ceph_keyring=str(tmp_path / "nowhere"))
    assert seen["cluster"]["controls"] == {
        "STOR-11": "pass",
        "STOR-16": "pass",
        "STOR-17": "not_assessed",
    }
    assert "Ceph's blocklist was not read" in seen["cluster"]["reasons"]["STOR-17"]
    assert seen["ceph"]["status"] == "not_assessed"
    assert set(scene.storage.ceph.blocklist()) == entries
