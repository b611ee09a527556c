# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod comes back to a volume whose attachment lacks what the driver's plugin needs to stage it: a
real kubelet tries in vain, the real attacher mends nothing, and a move of the pod does.

As after an update of the driver: the old one had attached the volume without it, and its pods ran
on until they were made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.kind.csi import Driver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.kind import NAME, KindCluster, counting, on
from support.reattach import REPAIR, Workload, no_trace

AUDITOR = REPAIR.with_name("rbac-audit.yml")
NEEDED = {NAME: ["folder"]}
SAID = "the attachment does not say which folder"


def test_it_is_found_and_repaired(cluster: KindCluster, driver: Driver, tmp_path: Path) -> None:
    api, (worker, _other) = cluster.api, cluster.kind.workers
    db = Workload(cluster, "db", "StatefulSet", driver=NAME, **counting("db"), **on(worker))
    calm = Workload(cluster, "calm", "StatefulSet", driver=NAME, **counting("calm"), **on(worker))
    cluster.wait(lambda: int(driver.written("vol-db", "count") or 0) >= 5, "it counts", 60)
    db.lose_metadata()
    cluster.wait(lambda: _waits_in_vain(cluster, db), "the kubelet says why", 120)
    reached = int(driver.written("vol-db", "count"))
    uids, undisturbed = cluster.attachment_uids(), calm.pods()

    given: dict[str, Any] = {"stuck_seconds": 1, "required_metadata": NEEDED}
    (finding,) = cluster.ansible("pod_volume_info", user=AUDITOR, **given).findings
    assert (finding["object"]["name"], finding["control"]) == ("db-0", "STOR-14"), finding
    name = k8s.attachment_name("vol-db", NAME, worker)
    assert f"-e attachment_repair_names={name} " in finding["reason"], finding
    options = {"required_metadata": NEEDED, "observation_seconds": 1, "pending_seconds": 1}
    played, report = cluster.compliance(tmp_path, AUDITOR, options)
    found = [(one["control"], one["object"]["name"]) for one in report["findings"]]
    assert found == [("STOR-14", name)], played.text

    check = _play(cluster, name, check=True)
    assert check.rc == 0 and "planned: evict_pod" in check.text, check.text
    assert cluster.attachment_uids() == uids
    run = _play(cluster, name)
    assert run.rc == 0 and f"done: uncordon_node {worker}" in run.text, run.text
    db.wait_ready()
    assert db.attachment()["status"]["attachmentMetadata"] == {"folder": "vol-db"}
    assert cluster.attachment_uids()[name] != uids[name]
    assert driver.attached() == {"vol-db": worker, "vol-calm": worker}
    # It goes on from where it was; its neighbour never stopped.
    cluster.wait(lambda: int(driver.written("vol-db", "count")) > reached + 5, "it goes on", 60)
    assert calm.pods() == undisturbed
    again = _play(cluster, name)
    assert again.rc == 0 and "evict_pod" not in again.text, again.text
    no_trace(cluster)

    # The kubelet and the driver are at ease with it.
    for workload in ("db", "calm"):
        api.delete(path("StatefulSet", workload))
    cluster.wait(lambda: driver.attached() == {}, f"detached: {driver.logs()}", 120)


def _waits_in_vain(cluster: KindCluster, db: Workload) -> bool:
    """Its pod is made again, until the kubelet has unstaged the volume before it came back."""
    for pod in db.living():
        uid = pod["metadata"]["uid"]
        if pod["status"].get("phase") == "Running":
            cluster.api.delete(path("Pod", "db-0"), grace=1)
            return False
        said = [one for one in cluster.api.all("Event") if one["involvedObject"].get("uid") == uid]
        return any(SAID in one["message"] for one in said)
    return False


def _play(cluster: KindCluster, name: str, check: bool = False) -> Any:
    variables = {
        "attachment_repair_names": name,
        "attachment_repair_reattach_missing_metadata": True,
        "attachment_repair_required_metadata": NEEDED,
        "attachment_repair_observation_seconds": 1,
    }
    return cluster.playbook("repair_volumeattachments", check=check, user=REPAIR, **variables)
