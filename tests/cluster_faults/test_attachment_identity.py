# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attachments that look left over by their names, and are not: each would have let two
nodes write.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from lab.kubernetes.faults import DRIVER
from support.cluster import Cluster
from support.node import Outcome
from support.reattach import REPAIR, Workload
from support.selection import variation

EBS = "ebs.csi.aws.com"
DISK = "vol-0123456789abcdef0"
# That every attachment of a node looks left over is accepted, so that it is no reason to refuse.
QUICK: dict[str, Any] = {
    "min_age_seconds": 1,
    "observation_seconds": 1,
    "detach_timeout": 10,
    "accept_majority": True,
}
both = pytest.mark.parametrize(
    "fixture", ["control_plane_current", variation("control_plane_1_20")]
)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, fixture: str) -> Cluster:
    """The cluster of the version that a test is run with, with two nodes and a namespace for us."""
    found: Cluster = request.getfixturevalue(fixture)
    found.api.create(k8s.csi_driver(DRIVER), k8s.csi_driver(EBS))
    found.kubelets("n1", "n2", drivers=(DRIVER, EBS))
    return found


def attachment(volume: str, driver: str, handle: str, node: str) -> k8s.Object:
    name = k8s.attachment_name(handle, driver, node)
    source = {"persistentVolumeName": volume}
    spec = {"attacher": driver, "nodeName": node, "source": source}
    meta = {"name": name}
    return {"apiVersion": k8s.STORAGE, "kind": "VolumeAttachment", "metadata": meta, "spec": spec}


def phase_of(cluster: Cluster, name: str) -> str:
    return str(
        (cluster.api.find("PersistentVolume", name) or {"status": {}})["status"].get("phase")
    )


def is_attached(cluster: Cluster, name: str) -> bool:
    found = cluster.api.find("VolumeAttachment", name) or {}
    return bool((found.get("status") or {}).get("attached"))


def released(cluster: Cluster, driver: str = DRIVER, handle: str = "vol-a") -> str:
    """The attachment to n1 of a volume whose claim is gone; no controller manager knows of it."""
    volume, _claim = k8s.volume("a", driver, handle)
    volume["spec"]["claimRef"]["uid"] = "00000000-0000-0000-0000-000000000000"
    made = attachment("pv-a", driver, handle, "n1")
    cluster.api.create(volume, made)
    name = str(made["metadata"]["name"])
    cluster.wait(lambda: is_attached(cluster, name), "attached")
    cluster.wait(lambda: phase_of(cluster, "pv-a") == "Released", "released")
    time.sleep(1.1)
    return name


def repair(cluster: Cluster, check: bool = False, **options: Any) -> Outcome:
    return cluster.ansible("volumeattachment_repair", check, user=REPAIR, **{**QUICK, **options})


def refused(cluster: Cluster, name: str, *words: str, **options: Any) -> None:
    """Check mode and the run say the same, and nothing is deleted."""
    before = cluster.attachment_uids()
    for check in (True, False):
        outcome = repair(cluster, check, **options)
        assert cluster.attachment_uids() == before, outcome.msg
        finding = outcome.finding(name)
        assert (finding["verdict"], outcome.changed) == ("refuse", False), finding["reason"]
        for word in words:
            assert word in finding["reason"]


# a node made again under its old name


@both
def test_an_attachment_that_is_older_than_its_node_is_refused(cluster: Cluster) -> None:
    """The host of the old node may go on writing, whoever has its name now."""
    name = released(cluster)
    cluster.api.delete(path("Node", "n1"))
    cluster.api.create(k8s.node("n1"))
    cluster.api.heartbeat("n1")
    refused(cluster, name, "n1 was created again", "fail_over_volumes")


def test_the_node_is_made_again_between_plan_and_apply(control_plane_current: Cluster) -> None:
    """Within the same second, so that only its uid tells."""
    cluster = control_plane_current
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    name = released(cluster)
    proxy = cluster.proxy()
    # As seen by the last look only: the same node by its name and age, and another one by its uid.
    stranger = cluster.api.find("Node", "n1") or {}
    stranger["metadata"]["uid"] = "11111111-0000-0000-0000-000000000000"
    proxy.on("GET", "/nodes/n1$", first=2, status=200, body=stranger)
    outcome = cluster.ansible("volumeattachment_repair", user=REPAIR, proxy=proxy, **QUICK)
    assert name in cluster.attachment_uids(), outcome.msg
    assert "n1 is another node" in outcome.finding(name)["reason"]


def test_a_workload_on_a_node_that_was_made_again_is_not_moved(
    control_plane_current: Cluster,
) -> None:
    """Its volume would be detached from a name, and the host that has it may write."""
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    workload = Workload(cluster, "db")
    where, pods = workload.node(), workload.pods()
    time.sleep(1.1)
    cluster.api.delete(path("Node", where))
    cluster.api.create(k8s.node(where))
    cluster.api.heartbeat(where)
    before = cluster.attachment_uids()
    outcome = cluster.ansible("workload_reattach", user=REPAIR, namespace="default", claims=["db"])
    assert outcome.failed and f"{where} was created again" in outcome.msg, outcome.msg
    assert (workload.pods(), cluster.attachment_uids()) == (pods, before)


# two PersistentVolumes of one disk, and what the controller manager knows


def in_tree(name: str, handle: str) -> tuple[k8s.Object, k8s.Object]:
    """A volume of the plugin that was in Kubernetes, for a disk that has a CSI volume as well."""
    volume, claim = k8s.volume(name, EBS, handle)
    del volume["spec"]["csi"]
    volume["spec"]["awsElasticBlockStore"] = {"volumeID": f"aws://eu-1a/{handle}"}
    return volume, claim


@both
def test_a_migrated_volume_of_the_same_disk_keeps_the_attachment(cluster: Cluster) -> None:
    name = released(cluster, EBS, DISK)
    cluster.api.create(*in_tree("b", DISK))
    cluster.wait(lambda: phase_of(cluster, "pv-b") == "Bound", "the other volume is bound")
    refused(cluster, name, "pv-b", "has the same driver and handle")
    cluster.api.create(k8s.pod("uses-b", ["b"], "n1"))
    before = cluster.attachment_uids()
    outcome = repair(cluster)
    assert cluster.attachment_uids() == before
    assert "STOR-11" not in [finding["control"] for finding in outcome.findings]


def test_what_the_controller_manager_still_lists_is_refused(control_plane_current: Cluster) -> None:
    """It knows of a need that no claim tells: here a migrated volume within a pod."""
    cluster = control_plane_current
    cluster.api.create(k8s.csi_driver(EBS))
    cluster.kubelets("n1", drivers=(EBS,))
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    cluster.api.merge(path("CSINode", "n1"), {"metadata": {"annotations": migrated}})
    name = released(cluster, EBS, DISK)
    inline = {"name": "data", "awsElasticBlockStore": {"volumeID": DISK}}
    cluster.api.create(k8s.pod("inline", [], "n1", volumes=[inline]))
    listed = k8s.unique_name(EBS, DISK)
    cluster.wait(lambda: listed in cluster.api.volumes_attached("n1"), "listed", 60)
    refused(cluster, name, "volumesAttached of n1")


# claims that are gone


def by_force(cluster: Cluster, kind: str, name: str) -> None:
    cluster.api.merge(path(kind, name), {"metadata": {"finalizers": None}})
    cluster.api.delete(path(kind, name))
    if cluster.api.find(kind, name):
        # The controllers that protect it may have been quicker.
        cluster.api.merge(path(kind, name), {"metadata": {"finalizers": None}})
    cluster.wait(lambda: cluster.api.find(kind, name) is None, f"{kind} {name} is gone")


@pytest.mark.parametrize("again", [False, variation(True)], ids=["gone", "made again"])
def test_a_running_pod_whose_claim_was_removed_by_force(
    control_plane_current: Cluster, again: bool
) -> None:
    """Nor does a new claim of that name tell what the pod, which is older, has mounted."""
    cluster = control_plane_current
    kubelets = cluster.kubelets("n1", drivers=(DRIVER,))
    made = faults.attach(cluster.api, "a", DRIVER, "vol-a", "n1")
    running = path("Pod", made.pod)
    cluster.wait(lambda: (cluster.api.get(running) or {})["status"].get("phase") == "Running", "up")
    # Kubelet and controller manager have been restarted, and know no more than the API tells.
    kubelets.stop()
    cluster.plane.kill_controller_manager()
    status = {"status": {"volumesInUse": [], "volumesAttached": []}}
    cluster.api.merge(path("Node", "n1") + "/status", status)
    by_force(cluster, "PersistentVolumeClaim", "a")
    by_force(cluster, "PersistentVolume", made.volume)
    if again:
        time.sleep(1.1)
        cluster.api.create(*_elsewhere())
    cluster.api.renew("n1")
    refused(cluster, made.attachment, f"pod default/{made.pod}", "claim a")


def _elsewhere() -> tuple[k8s.Object, k8s.Object]:
    """A claim of the old name, for another volume."""
    volume, claim = k8s.volume("a", DRIVER, "vol-b")
    volume["metadata"]["name"] = claim["spec"]["volumeName"] = "pv-new"
    return volume, claim


# who waits


def test_an_error_elsewhere_is_no_sign_without_a_pod_that_waits(
    control_plane_current: Cluster,
) -> None:
    """Nor is an error of a pod that waits, unless it is about this attachment."""
    cluster = control_plane_current
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    cluster.api.add_volume("a", DRIVER, "vol-a")
    made = attachment("pv-a", DRIVER, "vol-a", "n1")
    name = made["metadata"]["name"]
    cluster.api.create(made)
    cluster.wait(lambda: is_attached(cluster, name), "attached")
    other = attachment("pv-a", DRIVER, "vol-a", "n2")

    def fails() -> dict[str, Any]:
        found = cluster.api.find("VolumeAttachment", other["metadata"]["name"]) or {}
        return dict((found.get("status") or {}).get("attachError") or {})

    # The array refuses the second node since the first one has the volume; no pod is there.
    cluster.api.create(other)
    cluster.wait(lambda: "already published" in fails().get("message", ""), "refused")
    before = cluster.attachment_uids()
    for expired in (False, True):
        if expired:
            password = "rpc error: code = Internal desc = array password expired"
            cluster.attacher.behave("pv-a", Behaviour(fail=password, detach=False))
            cluster.wait(lambda: "password" in fails()["message"], "another error")
            cluster.api.create(k8s.pod("waits", ["a"], "n2"))
        outcome = repair(cluster)
        assert cluster.attachment_uids() == before, json.dumps(outcome.findings)
        assert outcome.finding(name)["verdict"] == "report"


# answers that are none


@pytest.mark.parametrize("resource", ["pods", variation("persistentvolumeclaims")])
def test_a_list_without_items_is_no_empty_list(
    control_plane_current: Cluster, resource: str
) -> None:
    cluster = control_plane_current
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    name = released(cluster)
    if resource == "persistentvolumeclaims":
        by_force(cluster, "PersistentVolume", "pv-a")
    proxy = cluster.proxy()
    hollow = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
    proxy.on("GET", rf"/{resource}\?", status=200, body=hollow)
    given = {**QUICK, "deadline": 30}
    outcome = cluster.ansible("volumeattachment_repair", user=REPAIR, proxy=proxy, **given)
    assert name in cluster.attachment_uids(), outcome.msg
    assert outcome.failed and resource in outcome.msg and "items" in outcome.msg


# most of what there is


def test_a_single_attachment_is_most_of_them(control_plane_current: Cluster) -> None:
    cluster = control_plane_current
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    name = released(cluster)
    refused(cluster, name, "1 attachments look broken at once", accept_majority=False)
    done = repair(cluster)
    assert done.outcomes == [("delete_volumeattachment", "done")] and not done.failed, done.msg
