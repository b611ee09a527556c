# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's status lacks a volume that is attached: a real kubelet waits for the entry, and the real
attacher detaches and attaches the volume when its workload is moved.

No current controller manager loses the entry by itself (tests/cluster_faults has one that does),
so the test takes it away while the kubelet is down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.kind.csi import Driver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path, unique_name
from support.kind import NAME, KindCluster, counting, lose_status, on
from support.reattach import REPAIR, Workload, no_trace

AUDITOR = REPAIR.with_name("rbac-audit.yml")
LOST = unique_name(NAME, "vol-db")


def test_it_is_found_and_repaired(cluster: KindCluster, driver: Driver, tmp_path: Path) -> None:
    worker, _other = cluster.kind.workers
    db = Workload(cluster, "db", "StatefulSet", driver=NAME, **counting("db"), **on(worker))
    calm = Workload(cluster, "calm", "StatefulSet", driver=NAME, **counting("calm"), **on(worker))
    cluster.wait(lambda: int(driver.written("vol-db", "count") or 0) >= 5, "it counts", 60)
    _lose(cluster, driver, worker)
    reached = int(driver.written("vol-db", "count"))
    uids, undisturbed = cluster.attachment_uids(), calm.pods()

    stuck = cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=1)
    (finding,) = stuck.findings
    assert (finding["object"]["name"], finding["control"]) == ("db-0", "STOR-13"), finding
    name = k8s.attachment_name("vol-db", NAME, worker)
    assert f"-e attachment_repair_names={name} -e attachment_repair_lost" in finding["reason"]
    played, report = cluster.compliance(tmp_path, AUDITOR, {"observation_seconds": 1})
    assert [found["control"] for found in report["findings"]] == ["STOR-13"], played.text

    check = _play(cluster, check=True)
    assert check.rc == 0 and "planned: evict_pod" in check.text, check.text
    assert cluster.attachment_uids() == uids
    run = _play(cluster)
    assert run.rc == 0 and f"done: uncordon_node {worker}" in run.text, run.text
    db.wait_ready()
    assert LOST in cluster.api.volumes_attached(worker)
    assert driver.attached() == {"vol-db": worker, "vol-calm": worker}
    # It goes on from where it was; its neighbour never stopped.
    cluster.wait(lambda: int(driver.written("vol-db", "count")) > reached + 5, "it goes on", 60)
    assert calm.pods() == undisturbed
    again = _play(cluster)
    assert again.rc == 0 and "evict_pod" not in again.text, again.text
    no_trace(cluster)

    # The kubelet and the driver are at ease with it: the pod goes, and another comes.
    old = db.pods()
    cluster.api.delete(path("Pod", "db-0"))
    cluster.wait(lambda: db.pods() and db.pods() != old, "another pod", 60)
    db.wait_ready()
    for name in ("db", "calm"):
        cluster.api.delete(path("StatefulSet", name))
    cluster.wait(lambda: driver.attached() == {}, f"detached: {driver.logs()}", 120)


def _lose(cluster: KindCluster, driver: Driver, worker: str) -> None:
    """The pod starts on its node when the volume is attached there and not in the status."""
    api = cluster.api
    api.merge(path("StatefulSet", "db"), {"spec": {"replicas": 0}})
    cluster.wait(lambda: "vol-db" not in driver.attached(), "detached", 90)
    cluster.kind.on(worker, "systemctl", "stop", "kubelet")
    try:
        api.merge(path("StatefulSet", "db"), {"spec": {"replicas": 1}})
        lose_status(cluster, "vol-db", worker)
    finally:
        cluster.kind.on(worker, "systemctl", "start", "kubelet")
    cluster.wait(lambda: _waits(cluster, worker), "the kubelet wants the volume", 90)
    assert LOST not in api.volumes_attached(worker)


def _waits(cluster: KindCluster, worker: str) -> bool:
    """It wants the volume, and waits: by no event, and in its log only after two minutes."""
    status = (cluster.api.find("Pod", "db-0") or {"status": {}})["status"]
    node = (cluster.api.find("Node", worker) or {"status": {}})["status"]
    return bool(status.get("containerStatuses")) and LOST in (node.get("volumesInUse") or [])


def _play(cluster: KindCluster, check: bool = False) -> Any:
    name = k8s.attachment_name("vol-db", NAME, cluster.kind.workers[0])
    variables = {
        "attachment_repair_names": name,
        "attachment_repair_lost_status": "reattach",
        "attachment_repair_observation_seconds": 1,
    }
    return cluster.playbook("repair_volumeattachments", check=check, user=REPAIR, **variables)
