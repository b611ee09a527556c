# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing attaches a pod's volume: the driver's attacher is scaled to zero, or the controller
manager is gone. Triage and compliance say which; when it is back, the pod starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.kind.csi import Driver
from lab.kubernetes import api as k8s
from support.kind import NAME, KindCluster, counting, on
from support.reattach import REPAIR, Workload

AUDITOR = REPAIR.with_name("rbac-audit.yml")
# A pod that has waited for so long counts, and one that does for a moment longer is seen twice.
SECONDS = 5


def test_no_attacher(cluster: KindCluster, driver: Driver, tmp_path: Path) -> None:
    _prepare(cluster)
    driver.stop_attacher()
    try:
        name = _attachment(cluster)
        said = f"has not answered VolumeAttachment {name}"
        stuck, found = _start_in_vain(cluster, tmp_path, said)
        assert "csi-attacher" in stuck["reason"]
        assert found["evidence"]["unanswered_attachments"] == [name]
        assert f"the external-attacher of {NAME} has not answered" in found["reason"]
    finally:
        driver.start_attacher()
    _recovers(cluster, driver)


def test_no_controller_manager(cluster: KindCluster, driver: Driver, tmp_path: Path) -> None:
    _prepare(cluster)
    with cluster.without_controller_manager():
        said = "no VolumeAttachment is created for pv-db"
        stuck, found = _start_in_vain(cluster, tmp_path, said)
        assert stuck["evidence"]["leader"].startswith(f"{cluster.kind.control_plane}_"), stuck
        assert found["evidence"]["missing_attachments"] == [_attachment(cluster)]
        assert "the controller manager does not attach" in found["reason"]
    _recovers(cluster, driver)


def _prepare(cluster: KindCluster) -> None:
    """What was there before runs on, and is no finding."""
    Workload(cluster, "web", "Deployment", driver=NAME, **counting("web"))
    cluster.api.add_volume("db", NAME, "vol-db")


def _start_in_vain(
    cluster: KindCluster, folder: Path, said: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What triage and compliance find of a pod that now begins to wait; triage has ``said`` this of
    it by then.
    """
    worker, _other = cluster.kind.workers
    cluster.api.create(k8s.pod("db", ["db"], **counting("db"), **on(worker)))

    def named() -> list[dict[str, Any]]:
        found = cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=SECONDS).findings
        # The controller manager may take its time to make the VolumeAttachment.
        return found if any(said in one["summary"] for one in found) else []

    stuck = cluster.wait(named, "the pod is stuck", 60)
    before = cluster.attachment_uids()
    options = {"pending_seconds": SECONDS, "observation_seconds": 1}
    played, report = cluster.compliance(folder, AUDITOR, options)
    assert played.rc != 0, played.text
    assert cluster.attachment_uids() == before
    found = report["findings"]
    for each in (stuck, found):
        assert [(one["object"]["name"], one["control"]) for one in each] == [("db", "STOR-15")], (
            each
        )
    return stuck[0], found[0]


def _attachment(cluster: KindCluster) -> str:
    return k8s.attachment_name("vol-db", NAME, cluster.kind.workers[0])


def _recovers(cluster: KindCluster, driver: Driver) -> None:
    cluster.wait(lambda: int(driver.written("vol-db", "count") or 0) > 3, "it runs", 120)
    assert cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=1).findings == []
