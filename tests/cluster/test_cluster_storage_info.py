# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All cluster controls in one call, with exactly the rights of the audit manifest: found, read
once, and not assessed where not read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.proxy import Proxy
from support.cluster import Cluster

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"
# Long enough to be observed twice, and short enough for a test.
QUICK: dict[str, Any] = {
    "min_age_seconds": 1,
    "observation_seconds": 1,
    "pending_seconds": 1,
    "grace_seconds": 1,
}
TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


def lists(proxy: Proxy) -> dict[str, int]:
    """How often each list was read as a whole from the API server's memory, which is what an audit
    begins with.
    """
    whole = [
        match[1]
        for asked in proxy.requests
        for match in [re.fullmatch(r".*/(\w+)\?resourceVersion=0", asked.path)]
        if match
    ]
    return {resource: whole.count(resource) for resource in sorted(set(whole))}


def break_everything(cluster: Cluster) -> None:
    """Something for each control but STOR-13, which takes a minute: what would repair it is stopped
    first.
    """
    api = cluster.api
    faults.collision(cluster.plane, lengths=(68,))
    faults.attach(api, "db", faults.DRIVER, "vol-db", "gone")
    api.add_node("n1", "csi.huawei.com", faults.DRIVER)
    faults.attach(api, "huawei", "csi.huawei.com", "vol-huawei", "n1")
    api.add_node("back")
    api.add_volume("waiting", faults.DRIVER, "vol-waiting")
    cluster.plane.kill_controller_manager()
    api.create(k8s.pod("web", ["waiting"], "n1"))
    api.merge(path("Node", "back"), {"spec": {"taints": [TAINT]}})
    for name in ("n1", "back", "collision-68"):
        api.heartbeat(name)
    api.heartbeat("gone", "Unknown")


@pytest.mark.smoke
def test_every_control_in_one_call(control_plane_1_20: Cluster, tmp_path: Path) -> None:
    """Found; each list read once; one that may not be read is told; and the playbook's report says
    the same.
    """
    cluster = control_plane_1_20
    healthy = cluster.ansible("cluster_storage_info", user=AUDITOR)
    assert (healthy.failed, healthy.findings) == (False, []), healthy.msg
    break_everything(cluster)
    before = cluster.attachment_uids()
    proxy = cluster.proxy()

    every = cluster.ansible("cluster_storage_info", user=AUDITOR, proxy=proxy, **QUICK)
    assert not every.failed and not every.changed, every.msg
    found = {(finding["control"], finding["object"]["node"]) for finding in every.findings}
    assert {control for control, _node in found} == {
        "STOR-11",
        "STOR-12",
        "STOR-14",
        "STOR-15",
        "STOR-16",
        "STOR-17",
    }
    assert {("STOR-16", "gone"), ("STOR-17", "back"), ("STOR-15", "n1"), ("STOR-14", "n1")} <= found
    assert "not_assessed" not in every.result and "lost" not in every.result
    read = lists(proxy)
    assert {"nodes": 1, "persistentvolumes": 1, "volumeattachments": 1}.items() <= read.items()
    assert set(read.values()) == {1}, read

    # What may not be read is told for those that need it; the others find what they found.
    proxy.clear()
    proxy.on("GET", "/configmaps", status=403)
    some = cluster.ansible("cluster_storage_info", user=AUDITOR, proxy=proxy, **QUICK)
    assert some.failed and set(some.result["not_assessed"]) == {"STOR-16", "STOR-17"}
    assert (
        "configmaps" in some.result["not_assessed"]["STOR-17"]
        and "rbac-audit.yml" in some.result["not_assessed"]["STOR-17"]
    )
    assert {finding["control"] for finding in some.findings} == {
        "STOR-11",
        "STOR-12",
        "STOR-14",
        "STOR-15",
    }
    proxy.clear()
    proxy.on("GET", r"/pods\?", status=403)
    fewer = cluster.ansible("cluster_storage_info", user=AUDITOR, proxy=proxy, **QUICK)
    assert {"STOR-11", "STOR-15"} <= set(
        fewer.result["not_assessed"]
    ) and "STOR-12" not in fewer.result["not_assessed"]
    assert "STOR-12" in {finding["control"] for finding in fewer.findings}

    # The run of the night, red as asked, after its report was written.
    played, report = cluster.compliance(tmp_path, AUDITOR, QUICK)
    assert played.rc == 2, played.text
    (host,) = report["hosts"]
    assert (host["kind"], host["status"], host["controls"]["STOR-13"]) == (
        "cluster",
        "assessed",
        "pass",
    )
    assert {
        (finding["control"], finding["object"]["node"]) for finding in report["findings"]
    } == found
    assert cluster.attachment_uids() == before
