# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes with a real external-attacher, a real external-provisioner, a real driver and real
kubelets; an application that keeps its data.
"""

from __future__ import annotations

from typing import Any

import pytest
from lab.kind.csi import CLASS, Driver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.cluster import Played
from support.kind import NAME, KindCluster, attach, counting, left_over, on
from support.reattach import REPAIR, Workload, no_trace

AUDITOR = REPAIR.with_name("rbac-audit.yml")
FINALIZER = f"external-attacher/{NAME.replace('.', '-')}"


@pytest.mark.smoke
def test_a_stateful_set_is_moved_with_its_data(cluster: KindCluster, driver: Driver) -> None:
    db = Workload(cluster, "db", "StatefulSet", driver=NAME, **counting("db"))
    old, node = db.attachment()["metadata"]["uid"], db.node()
    assert driver.attached() == {"vol-db": node}
    reached = _count(cluster, driver, 10)
    given = {"namespace": "default", "claims": ["db"], "attachments": [old]}

    check = cluster.ansible("workload_reattach", check=True, user=REPAIR, **given)
    assert not check.failed and check.changed, check.msg
    assert db.attachment()["metadata"]["uid"] == old and db.node() == node

    run = cluster.ansible("workload_reattach", user=REPAIR, **given)
    assert not run.failed, run.msg
    assert run.outcomes == [
        (verb, "done") for verb in ("cordon_node", "evict_pod", "wait_detached", "uncordon_node")
    ]
    db.wait_ready()
    assert db.node() != node and driver.attached() == {"vol-db": db.node()}
    # It has gone on from where it was, and goes on.
    assert _count(cluster, driver, reached + 1) > reached
    no_trace(cluster)

    again = cluster.ansible("workload_reattach", user=REPAIR, **given)
    assert (again.failed, again.changed, again.findings) == (False, False, []), again.msg

    # The kubelets and the driver are at ease with it: the pod can go, and another comes.
    cluster.api.delete(path("StatefulSet", "db"))
    cluster.wait(lambda: driver.attached() == {}, f"detached: {driver.logs()}", 120)


def test_a_left_over_attachment_goes_by_the_attacher(cluster: KindCluster, driver: Driver) -> None:
    """Its volume is released, its finalizer is the real one; then the volume can be deleted."""
    api, (worker, _other) = cluster.api, cluster.kind.workers
    name = left_over(cluster, "gone", worker)
    assert driver.attached() == {"vol-gone": worker}
    found = api.find("VolumeAttachment", name)
    assert found and found["metadata"]["finalizers"] == [FINALIZER]

    check = _repair(cluster, check=True)
    assert api.find("VolumeAttachment", name), check.text
    played = _repair(cluster)
    assert played.rc == 0, played.text
    assert api.find("VolumeAttachment", name) is None
    assert driver.attached() == {}
    second = _repair(cluster)
    assert second.rc == 0 and '"changed": true' not in second.text, second.text
    api.delete(path("PersistentVolume", "pv-gone"))
    cluster.wait(lambda: api.find("PersistentVolume", "pv-gone") is None, "the volume is gone")


def test_a_pod_that_waits_gets_its_volume_and_its_data(
    cluster: KindCluster, driver: Driver
) -> None:
    """An attachment is left over where the volume was, so the real attacher cannot attach it where
    its pod is by now.
    """
    api, (before, now) = cluster.api, cluster.kind.workers
    api.add_volume("db", NAME, "vol-db")
    left = attach(cluster, "pv-db", "vol-db", before)
    # What the application has written there. With a pod there, the controller manager would know
    # of an attachment.
    reached = 1_000_000
    data = cluster.kind.volumes / "vol-db" / "count"
    data.parent.mkdir(mode=0o777)
    data.write_text(f"{reached}\n")
    api.create(k8s.workload("StatefulSet", "db", ["db"], **counting("db"), **on(now)))

    def stuck() -> list[dict[str, Any]]:
        found = cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=1).findings
        # At first nothing says that it cannot be attached.
        repaired = "storage_ops.runbooks.repair_volumeattachments"
        return [one for one in found if one["control"] == "STOR-11" and repaired in one["reason"]]

    (finding,) = cluster.wait(stuck, "triage knows the repair", 60)
    assert finding["object"]["name"] == "db-0", finding
    assert _state(cluster, "db-0") == "ContainerCreating"

    check = _repair(cluster, check=True)
    assert check.rc == 0 and api.find("VolumeAttachment", left), check.text
    assert driver.attached() == {"vol-db": before}
    played = _repair(cluster)
    assert played.rc == 0, played.text
    assert api.find("VolumeAttachment", left) is None
    # It has gone on from where it was, and goes on.
    assert _count(cluster, driver, reached + 1) > reached
    assert driver.attached() == {"vol-db": now} and _state(cluster, "db-0") == "running"
    second = _repair(cluster)
    assert second.rc == 0 and '"changed": true' not in second.text, second.text


@pytest.mark.usefixtures("provisioner")
def test_the_provisioner_deletes_a_volume_after_the_repair(
    cluster: KindCluster, driver: Driver
) -> None:
    """It has made the volume, and does not delete it while an attachment is left."""
    api, (worker, _other) = cluster.api, cluster.kind.workers
    api.create(k8s.claim("data", CLASS))
    api.create(k8s.workload("StatefulSet", "data", ["data"], **counting("data"), **on(worker)))
    claim = path("PersistentVolumeClaim", "data")
    volume = cluster.wait(
        lambda: (api.get(claim) or {})["spec"].get("volumeName"), "a volume is made", 60
    )
    made = (api.find("PersistentVolume", volume) or {})["spec"]
    handle = made["csi"]["volumeHandle"]
    assert made["persistentVolumeReclaimPolicy"] == "Delete" and handle == volume
    cluster.wait(lambda: int(driver.written(handle, "count") or 0) >= 5, "it counts", 60)

    api.delete(path("StatefulSet", "data"))
    cluster.wait(lambda: api.all("VolumeAttachment") == [], f"detached: {driver.logs()}", 120)
    name = attach(cluster, volume, handle, worker)
    api.delete(claim)
    cluster.wait(lambda: _is_refused(cluster, volume, worker), "it does not delete", 60)
    assert driver.written(handle, "count")

    check = _repair(cluster, check=True)
    assert check.rc == 0 and api.find("VolumeAttachment", name), check.text
    played = _repair(cluster)
    assert played.rc == 0, played.text
    assert api.find("VolumeAttachment", name) is None and driver.attached() == {}
    cluster.wait(lambda: api.find("PersistentVolume", volume) is None, "the volume is gone", 60)
    assert not (cluster.kind.volumes / handle).exists()
    second = _repair(cluster)
    assert second.rc == 0 and '"changed": true' not in second.text, second.text


def _state(cluster: KindCluster, pod: str) -> str:
    """What the only container of a pod waits for, or that it runs."""
    status = (cluster.api.find("Pod", pod) or {})["status"]
    ((state, about),) = status["containerStatuses"][0]["state"].items()
    return str(about.get("reason", state))


def _is_refused(cluster: KindCluster, volume: str, node: str) -> bool:
    # canDeleteVolume of external-provisioner's pkg/controller/controller.go.
    said = f"persistentvolume {volume} is still attached to node {node}"
    return any(said in event["message"] for event in cluster.api.all("Event"))


def _repair(cluster: KindCluster, check: bool = False) -> Played:
    return cluster.playbook(
        "repair_volumeattachments",
        check=check,
        user=REPAIR,
        target="all",
        attachment_repair_min_age_seconds=0,
        attachment_repair_observation_seconds=1,
        # It is all that its node has.
        attachment_repair_accept_majority=True,
    )


def _count(cluster: KindCluster, driver: Driver, least: int) -> int:
    """How far the application has come, once it has come so far."""
    cluster.wait(
        lambda: int(driver.written("vol-db", "count") or 0) >= least, f"counted to {least}", 60
    )
    return int(driver.written("vol-db", "count"))
