# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stuck pods on a real API server, told apart with exactly the rights of the audit manifest.

What the controller manager and the scheduler say here, they say themselves. There is no CSI driver
on a lab node, so what its kubelet would say is posted in its place, in its words.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from support.cluster import Cluster

DRIVER = "csi.example.com"
EBS = "ebs.csi.aws.com"
RBAC = Path(__file__).parents[2] / "playbooks" / "files" / "rbac-audit.yml"
old = pytest.mark.parametrize("fixture", ["control_plane_1_20"])
current = pytest.mark.parametrize("fixture", ["control_plane_current"])
both = pytest.mark.parametrize("fixture", ["control_plane_1_20", "control_plane_current"])
UNATTACHED = "no VolumeAttachment is created for"


@pytest.fixture
def cluster(request: pytest.FixtureRequest, fixture: str) -> Cluster:
    """The cluster of the version that a test is run with, with two nodes whose kubelets are not
    there to mount anything.
    """
    found: Cluster = request.getfixturevalue(fixture)
    found.api.create(k8s.csi_driver(DRIVER))
    for node in ("n1", "n2"):
        found.api.add_node(node, DRIVER)
    found.stay_ready("n1", "n2")
    return found


def triage(cluster: Cluster, **options: Any) -> list[dict[str, Any]]:
    """The findings of a run that may only audit, and that changes nothing.

    Whatever waits for a second is stuck.
    """
    before = cluster.attachment_uids()
    outcome = cluster.ansible("pod_volume_info", user=RBAC, **{"stuck_seconds": 1, **options})
    assert not outcome.failed and not outcome.changed and outcome.outcomes == [], outcome.msg
    assert cluster.attachment_uids() == before
    assert all(finding["verdict"] == "report" for finding in outcome.findings)
    return outcome.findings


def one(cluster: Cluster, **options: Any) -> dict[str, Any]:
    """The only finding."""
    findings = triage(cluster, **options)
    assert len(findings) == 1, findings
    return findings[0]


def stuck(
    cluster: Cluster, name: str = "web", node: str = "n1", driver: str = DRIVER, **options: Any
) -> dict[str, Any]:
    """A pod with a volume of its own on a node, waiting for longer than a second."""
    cluster.api.add_volume(name, driver, f"vol-{name}", **options)
    return waiting(cluster, name, [name], node)


def waiting(
    cluster: Cluster, name: str, claims: list[str], node: str = "", **options: Any
) -> dict[str, Any]:
    cluster.api.create(k8s.pod(name, claims, node, **options))
    time.sleep(1.2)
    found = cluster.api.find("Pod", name)
    assert found
    return found


def said(cluster: Cluster, reason: str) -> bool:
    """Somebody of the real ones has made such an event."""
    return any(event["reason"] == reason for event in cluster.api.all("Event"))


def attached(cluster: Cluster, name: str, node: str = "n1") -> None:
    """The controller manager has told the node."""
    cluster.wait(
        lambda: any(
            volume.endswith(f"^vol-{name}") for volume in cluster.api.volumes_attached(node)
        ),
        f"{name} attached",
    )


@both
def test_healthy(cluster: Cluster) -> None:
    cluster.kubelets("n1").start()
    faults.attach(cluster.api, "data", DRIVER, "vol-1", "n1")
    cluster.wait(
        lambda: (cluster.api.find("Pod", "data-first") or {})["status"]["phase"] == "Running",
        "the pod runs",
    )
    outcome = cluster.ansible("pod_volume_info", user=RBAC, stuck_seconds=1)
    assert (outcome.findings, outcome.msg) == (
        [],
        "nothing to do: no pod is stuck; 1 pods looked at",
    )
    named = cluster.ansible("pod_volume_info", user=RBAC, namespace="default", pod="data-first")
    assert named.msg.startswith(
        "nothing to do: pod default/data-first is Running and Ready. Only its node can tell"
    ), named.msg
    missing = cluster.ansible("pod_volume_info", user=RBAC, namespace="default", pod="no-such")
    assert missing.failed and "pod default/no-such does not exist" in missing.msg


@pytest.mark.smoke
@both
def test_multi_attach(cluster: Cluster) -> None:
    """The controller manager's own words, and what the objects prove: the volume is used, or its
    node is lost.
    """
    kubelets = cluster.kubelets("n1", "n2")
    faults.attach(cluster.api, "data", DRIVER, "vol-1", "n1")
    cluster.wait(
        lambda: (cluster.api.find("Pod", "data-first") or {})["status"]["phase"] == "Running",
        "the pod runs",
    )
    waiting(cluster, "second", ["data"], "n2")
    cluster.wait(lambda: said(cluster, "FailedAttachVolume"), "Multi-Attach")
    finding = one(cluster)
    assert finding["object"] == {
        "kind": "pod",
        "namespace": "default",
        "name": "second",
        "node": "n2",
    }
    assert finding["control"] == ""
    assert "pv-data is attached to n1, where pod default/data-first needs it" in finding["summary"]
    assert any(
        "Multi-Attach error for volume" in message for message in finding["evidence"]["messages"]
    )
    kubelets.stop()
    cluster.api.heartbeat("n1", ready="Unknown")
    found = {finding["object"]["name"]: finding for finding in triage(cluster)}
    # The pod that ran there is told the same as soon as it is not ready any more.
    assert set(found) <= {"second", "data-first"}
    assert {finding["control"] for finding in found.values()} == {"STOR-16"}
    lost = found["second"]
    assert (lost["control"], lost["runbook"]) == (
        "STOR-16",
        "storage_ops.runbooks.fail_over_volumes",
    )
    assert "pv-data is attached to n1, which does not report" in lost["summary"]
    assert "for others prove that n1 is off or fenced" in lost["reason"]


@both
def test_attach_fails(cluster: Cluster) -> None:
    cluster.attacher.behave(
        DRIVER, Behaviour(fail="rpc error: code = Internal desc = the array is full")
    )
    stuck(cluster)
    cluster.wait(lambda: said(cluster, "FailedAttachVolume"), "FailedAttachVolume")
    finding = one(cluster)
    assert (finding["control"], finding["severity"]) == ("", "major")
    assert (
        "attaching pv-web to n1 fails: rpc error: code = Internal desc = the array is full"
        in finding["summary"]
    )
    assert any(
        "AttachVolume.Attach failed for volume" in message
        for message in finding["evidence"]["messages"]
    )
    cluster.attacher.behave(DRIVER, Behaviour(silent=True))
    stuck(cluster, "next")
    silent = one(cluster, namespace="default", pod="next")
    assert (
        f"the external-attacher of {DRIVER} has not answered VolumeAttachment" in silent["summary"]
    )


@current
@pytest.mark.parametrize(
    ("reason", "words", "control", "command"),
    [
        (
            "FailedMount",
            'MountVolume.MountDevice failed for volume "pv-web" : rpc error: code = Internal desc '
            "= Fibre Channel volume device not found",
            "STOR-03",
            "ansible-playbook storage_ops.runbooks.clean_residual_paths -i inventory -e target=n1",
        ),
        (
            "FailedMount",
            'MountVolume.MountDevice failed for volume "pv-web" : rpc error: code = Internal desc '
            "= something quite new {0}",
            "",
            "only the message itself explains it",
        ),
    ],
)
def test_messages_of_the_kubelet(
    cluster: Cluster, reason: str, words: str, control: str, command: str
) -> None:
    """Posted here in the kubelet's place: the lab has no node with a CSI driver."""
    pod = stuck(cluster)
    attached(cluster, "web")
    vague = (
        "Unable to attach or mount volumes: unmounted volumes=[web], unattached volumes=[web]: "
        "timed out waiting for the condition"
    )
    cluster.api.create(k8s.event(pod, "FailedMount", vague), k8s.event(pod, reason, words, count=7))
    finding = one(cluster)
    assert finding["control"] == control
    assert finding["reason"].startswith(command)
    assert any(
        message.endswith(words) and "FailedMount x7" in message
        for message in finding["evidence"]["messages"]
    )
    assert control or words in finding["summary"]


@both
def test_nobody_attaches(cluster: Cluster) -> None:
    """The controller manager is dead: R8, and each of its exclusions."""
    for name in ("no-attach.example.com", "absent.example.com"):
        cluster.api.create(k8s.csi_driver(name, attach_required=not name.startswith("no")))
    cluster.api.merge(
        path("CSINode", "n1"), {"spec": k8s.csi_node("n1", DRIVER, "no-attach.example.com")["spec"]}
    )
    cluster.api.create(k8s.node("unmanaged"), k8s.csi_node("unmanaged", DRIVER))
    cluster.api.merge(path("Node", "unmanaged"), {"metadata": {"annotations": {k8s.MANAGED: None}}})
    for claim, driver in (
        ("a", DRIVER),
        ("b", "no-attach.example.com"),
        ("c", "absent.example.com"),
        ("d", DRIVER),
    ):
        cluster.api.add_volume(claim, driver, f"vol-{claim}")
    cluster.plane.kill_controller_manager()
    # Now nothing takes that for too long ago.
    cluster.api.heartbeat("unmanaged")
    # The lab's controller manager is alone and takes no lease; this is the one that a leader leaves
    # behind.
    spec = {
        "holderIdentity": "cp-1_0f1e",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseDurationSeconds": 15,
    }
    meta = {"name": "kube-controller-manager", "namespace": "kube-system"}
    cluster.api.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
    )
    for claim, node in (("a", "n1"), ("b", "n1"), ("c", "n1"), ("d", "unmanaged")):
        cluster.api.create(k8s.pod(f"web-{claim}", [claim], node))
    time.sleep(1.2)
    found = {finding["object"]["name"]: finding for finding in triage(cluster)}
    assert found["web-a"]["control"] == "STOR-15"
    assert UNATTACHED in found["web-a"]["summary"]
    assert found["web-a"]["evidence"]["leader"].startswith("cp-1_0f1e, lease renewed ")
    assert "last attach of any volume, by its events: none" in found["web-a"]["reason"]
    assert (found["web-b"]["control"], found["web-b"]["severity"]) == ("", "minor")
    assert "CSINode n1 lacks the driver absent.example.com" in found["web-c"]["summary"]
    assert "unmanaged lacks the annotation" in found["web-d"]["summary"]


@current
def test_attachment_lacks_metadata(cluster: Cluster) -> None:
    cluster.api.create(k8s.csi_driver("csi.huawei.com"))
    cluster.api.merge(path("CSINode", "n1"), {"spec": k8s.csi_node("n1", "csi.huawei.com")["spec"]})
    stuck(cluster, driver="csi.huawei.com")
    attached(cluster, "web")
    finding = one(cluster)
    name = k8s.attachment_name("vol-web", "csi.huawei.com", "n1")
    assert finding["control"] == "STOR-14"
    assert f"VolumeAttachment {name} lacks publishInfo" in finding["summary"]
    assert finding["runbook"] == "storage_ops.runbooks.repair_volumeattachments"
    assert finding["reason"].startswith(
        "ansible-playbook storage_ops.runbooks.repair_volumeattachments -e "
        f"attachment_repair_names={name} "
    )


@old
def test_status_lacks_the_volume(cluster: Cluster) -> None:
    """The bug itself, by the controller manager that has it."""
    lost = faults.lost_attachment(cluster.plane, node="n1")
    cluster.wait(lambda: lost.unique_name not in cluster.api.volumes_attached("n1"), "lost")
    time.sleep(1.2)
    finding = one(cluster)
    assert finding["object"]["name"] == lost.pod
    assert finding["control"] == "STOR-13"
    assert finding["reason"].startswith(
        "ansible-playbook storage_ops.runbooks.repair_volumeattachments -e "
        f"attachment_repair_names={lost.attachment} -e attachment_repair_lost_status=reattach"
    )


@old
def test_orphan_elsewhere(cluster: Cluster) -> None:
    """What the 68-character bug leaves behind keeps the volume from the next node; the array says
    so.
    """
    left = faults.collision(cluster.plane, lengths=(68,))[68]
    waiting(cluster, "web", [left.claim], "n2")
    name = k8s.attachment_name(left.handle, left.driver, "n2")
    cluster.wait(
        lambda: (
            (cluster.api.find("VolumeAttachment", name) or {}).get("status", {}).get("attachError")
        ),
        "refused by the array",
    )
    finding = one(cluster)
    assert finding["control"] == "STOR-11"
    assert (
        f"pv-{left.claim} is attached to {left.node}, where no pod needs it" in finding["summary"]
    )
    command = (
        "ansible-playbook storage_ops.runbooks.repair_volumeattachments -e "
        f"attachment_repair_names={left.attachment} "
    )
    assert finding["reason"].startswith(command)


@current
def test_not_storage(cluster: Cluster) -> None:
    """The scheduler's own words about a pod that no node has room for, and about one whose claim is
    not bound.
    """
    cluster.api.create(
        k8s.pod(
            "big",
            containers=[
                {"name": "main", "image": "lab", "resources": {"requests": {"cpu": "1000"}}}
            ],
        )
    )
    claim = k8s.volume("unbound", DRIVER, "x")[1]
    del claim["spec"]["volumeName"]
    cluster.api.create(claim)
    waiting(cluster, "unbound", ["unbound"])
    cluster.wait(
        lambda: (
            len(
                [
                    event
                    for event in cluster.api.all("Event")
                    if event["reason"] == "FailedScheduling"
                ]
            )
            >= 2
        ),
        "not scheduled",
    )
    found = {finding["object"]["name"]: finding for finding in triage(cluster)}
    assert (found["big"]["control"], found["big"]["severity"]) == ("", "info")
    assert found["big"]["reason"].startswith("not storage: ")
    assert any("Insufficient cpu" in message for message in found["big"]["evidence"]["messages"])
    assert found["unbound"]["severity"] == "major"
    assert found["unbound"]["evidence"]["claims"] == ["unbound: Pending"]


@current
def test_lost_node(cluster: Cluster) -> None:
    """A pod that ran when its node was lost is told so, whatever its kubelet said at the reconnect
    before.
    """
    kubelets = cluster.kubelets("n1")
    kubelets.start()
    faults.attach(cluster.api, "data", DRIVER, "vol-1", "n1")
    cluster.wait(
        lambda: (cluster.api.find("Pod", "data-first") or {})["status"]["phase"] == "Running",
        "the pod runs",
    )
    pod = cluster.api.find("Pod", "data-first")
    assert pod
    cluster.api.create(
        k8s.event(
            pod,
            "FailedMount",
            f"driver name {DRIVER} not found in the list of registered CSI drivers",
        )
    )
    kubelets.stop()
    cluster.api.heartbeat("n1", ready="Unknown")
    # What the node lifecycle controller does with the pods of such a node.
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": k8s.now()}
    status = {"status": {"conditions": [unready]}}
    cluster.api.call(
        "PATCH",
        path("Pod", "data-first") + "/status",
        status,
        "application/strategic-merge-patch+json",
    )
    time.sleep(1.2)
    finding = one(cluster)
    assert (
        finding["control"] == "STOR-16" and "its node n1 does not report" in finding["summary"]
    ), finding


@current
def test_claim_that_waits_for_the_scheduler(cluster: Cluster) -> None:
    """In the words of the real volume binder."""
    waits = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "later"},
        "provisioner": DRIVER,
    }
    claim = k8s.volume("late", DRIVER, "x")[1]
    del claim["spec"]["volumeName"]
    claim["spec"]["storageClassName"] = "later"
    cluster.api.create({**waits, "volumeBindingMode": "WaitForFirstConsumer"}, claim)
    waiting(cluster, "placed", ["late"], "n1")
    cluster.wait(lambda: said(cluster, "WaitForFirstConsumer"), "the binder waits")
    finding = one(cluster)
    assert "put on n1 without the scheduler (spec.nodeName)" in finding["summary"], finding


@current
def test_driver_is_gone_from_the_node(cluster: Cluster) -> None:
    """The volume is attached, and the node's driver has gone since."""
    stuck(cluster)
    attached(cluster, "web")
    cluster.api.merge(
        path("CSINode", "n1"), {"spec": k8s.csi_node("n1", "other.example.com")["spec"]}
    )
    finding = one(cluster)
    assert f"CSINode n1 lacks the driver {DRIVER}" in finding["summary"], finding


@pytest.mark.parametrize(
    ("fixture", "migrated"), [("control_plane_current", True), ("control_plane_1_20", False)]
)
def test_nobody_attaches_a_migrated_volume(cluster: Cluster, migrated: bool) -> None:
    """A controller manager that is dead, and a volume that a driver attaches where the node says
    that it leaves the plugin to one.
    """
    left = {
        "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs" if migrated else ""
    }
    node = k8s.csi_node("n1", EBS)
    cluster.api.create(k8s.csi_driver(EBS))
    cluster.api.merge(
        path("CSINode", "n1"), {"metadata": {"annotations": left}, "spec": node["spec"]}
    )
    volume, claim = k8s.volume("old", EBS, "x")
    del volume["spec"]["csi"]
    cluster.api.create(
        {
            **volume,
            "spec": {**volume["spec"], "awsElasticBlockStore": {"volumeID": "aws://eu-1a/vol-1"}},
        },
        claim,
    )
    cluster.wait(
        lambda: (
            (cluster.api.find("PersistentVolumeClaim", "old") or {})["status"].get("phase")
            == "Bound"
        ),
        "bound",
    )
    if migrated:
        # The controller manager itself does so.
        cluster.api.create(k8s.pod("shows", ["old"], "n1"))
        name = k8s.attachment_name("vol-1", EBS, "n1")
        cluster.wait(
            lambda: cluster.api.find("VolumeAttachment", name), "attached by the driver", 60
        )
        assert all(finding["control"] == "" for finding in triage(cluster)), triage(cluster)
        cluster.api.delete(path("Pod", "shows"), grace=0)
        cluster.wait(lambda: cluster.api.find("VolumeAttachment", name) is None, "detached", 60)
    cluster.plane.kill_controller_manager()
    waiting(cluster, "web", ["old"], "n1")
    audited = cluster.ansible(
        "cluster_storage_info",
        user=RBAC,
        controls=["STOR-15"],
        pending_seconds=1,
        observation_seconds=1,
    )
    assert (one(cluster)["control"] == "STOR-15") is migrated
    assert [finding["object"]["name"] for finding in audited.findings] == (
        ["web"] if migrated else []
    )


@current
def test_running_pod_on_a_dead_mount(cluster: Cluster) -> None:
    """It runs, and is not stuck.

    Its containers say so where they end; where they do not, its node alone knows.
    """
    kubelets = cluster.kubelets("n1")
    faults.attach(cluster.api, "data", DRIVER, "vol-1", "n1")
    cluster.wait(
        lambda: (cluster.api.find("Pod", "data-first") or {})["status"]["phase"] == "Running",
        "the pod runs",
    )
    kubelets.stop()
    named = cluster.ansible(
        "pod_volume_info", user=RBAC, namespace="default", pod="data-first", stuck_seconds=1
    )
    assert (
        named.findings == [] and "-e target=n1 -e compliance_report_controls=STOR-05," in named.msg
    ), named.msg
    ended = {
        "reason": "Error",
        "exitCode": 1,
        "message": "cat: /data/x: Transport endpoint is not connected",
    }
    main = {"name": "main", "ready": False, "restartCount": 7, "image": "lab", "imageID": "lab"}
    main |= {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": ended},
    }
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": k8s.now()}
    status = {"conditions": [unready], "containerStatuses": [main]}
    cluster.api.call(
        "PATCH",
        path("Pod", "data-first") + "/status",
        {"status": status},
        "application/strategic-merge-patch+json",
    )
    time.sleep(1.2)
    finding = one(cluster)
    assert finding["control"] == "STOR-05", finding
    assert finding["reason"].startswith(
        "ansible-playbook storage_ops.runbooks.recover_fuse_mounts -i inventory -e target=n1"
    )
    ended["message"] = "panic"
    cluster.api.call(
        "PATCH",
        path("Pod", "data-first") + "/status",
        {"status": status},
        "application/strategic-merge-patch+json",
    )
    named = cluster.ansible(
        "pod_volume_info", user=RBAC, namespace="default", pod="data-first", stuck_seconds=1
    )
    assert named.findings == [] and "container main is waiting, CrashLoopBackOff" in named.msg, (
        named.msg
    )


@current
def test_scope(cluster: Cluster) -> None:
    """A pod of another namespace is not looked at, and one that does not end is found."""
    cluster.api.create(
        k8s.namespace("other"), k8s.pod("stranger", node_name="n2", namespace="other")
    )
    ending = k8s.pod("ending", node_name="n1", grace=1)
    ending["metadata"]["finalizers"] = ["example.com/keep"]
    cluster.api.create(ending)
    waiting(cluster, "web", [], "n1")
    assert {finding["object"]["name"] for finding in triage(cluster)} == {
        "stranger",
        "ending",
        "web",
    }
    assert {finding["object"]["name"] for finding in triage(cluster, namespace="default")} == {
        "ending",
        "web",
    }
    assert {finding["object"]["name"] for finding in triage(cluster, node="n2")} == {"stranger"}


@current
def test_forbidden_events(cluster: Cluster) -> None:
    """A part that cannot be read is an error that names it, not a picture without it."""
    stuck(cluster)
    proxy = cluster.proxy()
    proxy.on("GET", "/events", status=403)
    outcome = cluster.ansible("pod_volume_info", user=RBAC, proxy=proxy, stuck_seconds=1)
    assert outcome.failed and outcome.findings == []
    assert "events" in outcome.msg and "verbs: [" in outcome.msg


@pytest.mark.smoke
@current
def test_playbook(cluster: Cluster) -> None:
    """As AWX runs it: answers of a survey are strings, and empty ones count as none."""
    pod = stuck(cluster)
    attached(cluster, "web")
    cluster.api.create(
        k8s.event(
            pod,
            "FailedMount",
            "rpc error: code = Internal desc = rbd image pool/img is still being used",
        )
    )
    survey = {
        "triage_namespace": "default",
        "triage_pod": "",
        "triage_node": "",
        "triage_stuck_seconds": "1",
    }
    played = cluster.playbook("triage", user=RBAC, **survey)
    assert played.rc == 0, played.text
    assert "STOR-16 major: pod default/web" in played.text
    assert "another client still has the RBD image open" in played.text
    assert "rbd image pool/img is still being used" in played.text
    assert (
        "no pod is stuck; 0 pods looked at in namespace kube-public"
        in cluster.playbook("triage", user=RBAC, triage_namespace="kube-public").text
    )
    mistyped = cluster.playbook("triage", user=RBAC, triage_namespace="defualt")
    assert mistyped.rc != 0 and "no namespace defualt: is it misspelt?" in mistyped.text
    bad = cluster.playbook("triage", user=RBAC, triage_pod="web")
    assert bad.rc != 0 and "needs its namespace" in bad.text
