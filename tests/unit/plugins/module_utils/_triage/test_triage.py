# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Triage over an API server in memory: what it reads, and what it makes of it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.shortening import MAX_ITEMS
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Forbidden,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.events import (
    Message,
    pick_message,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    MAX_MESSAGE,
    attachment_name,
    pick_node,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage import (
    catalogue,
    messages,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.messages import (
    MAX_MESSAGES,
    Newest,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.plan import (
    CONTROLS,
    plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.runbook import (
    Triage,
    triage_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.state import (
    TriageOptions,
    pick_seen,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)
DRIVER = "csi.example.com"
RUN = "ansible-playbook storage_ops.runbooks"
NUMBERS = itertools.count()


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    name: str = "web-0",
    node: str = "worker-1",
    namespace: str = "shop",
    age: float = 300,
    **changes: Any,
) -> dict[str, Any]:
    """A pod that waits for its containers on its node, with one claim ``data``."""
    conditions = (
        [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(age)}] if node else []
    )
    item: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": ago(age),
        },
        "spec": {
            "nodeName": node,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": conditions,
            "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]
            if node
            else [],
        },
    }
    for part, values in changes.items():
        item[part].update(values)
    return item


def unscheduled(why: str) -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
    }
    return pod(node="", status={"conditions": [condition]})


def running(
    name: str = "web-0",
    node: str = "worker-1",
    ready: bool = True,
    since: float = 300,
    **changes: Any,
) -> dict[str, Any]:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": ago(since)}
    started = {"state": {"running": {"startedAt": ago(since)}}}
    changes.setdefault(
        "status", {"phase": "Running", "conditions": [condition], "containerStatuses": [started]}
    )
    return pod(name, node, **changes)


def claim(
    name: str = "data", namespace: str = "shop", volume: str = "pv-1", phase: str = "Bound"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
        "spec": {"volumeName": volume},
        "status": {"phase": phase},
    }


def volume(
    name: str = "pv-1", mode: str = "ReadWriteOnce", phase: str = "Bound", **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"},
            "accessModes": [mode],
            "claimRef": {"namespace": "shop", "name": "data", "uid": "uid-shop-data"},
            **spec,
        },
        "status": {"phase": phase},
    }


def node(
    name: str = "worker-1",
    ready: str = "True",
    attached: Any = (),
    in_use: Any = (),
    managed: bool = True,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
            if managed
            else {},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "volumesAttached": [
                {"name": unique_name(DRIVER, f"handle-{name}"), "devicePath": ""}
                for name in attached
            ],
            "volumesInUse": [unique_name(DRIVER, f"handle-{name}") for name in in_use],
        },
    }


def attachment(
    on: str = "worker-1", of: str = "pv-1", meta: Any = None, **status: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {
            "name": attachment_name(DRIVER, f"handle-{of}", on),
            "creationTimestamp": ago(280),
            **(meta or {}),
        },
        "spec": {"attacher": DRIVER, "nodeName": on, "source": {"persistentVolumeName": of}},
        "status": {"attached": True, **status},
    }


def event(
    reason: str, message: str, of: str = "uid-web-0", seconds: float = 10, **changes: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{next(NUMBERS)}", "namespace": "shop"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 3,
        "lastTimestamp": ago(seconds),
        "involvedObject": {
            "kind": "PersistentVolumeClaim" if of.startswith("uid-shop-") else "Pod",
            "uid": of,
        },
        **changes,
    }


def csi_node(name: str = "worker-1", *drivers: str) -> dict[str, Any]:
    entries = [{"name": driver} for driver in drivers]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": entries},
    }


def lease() -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
        "spec": {"holderIdentity": "cp-1_0f1e", "renewTime": ago(200)},
    }


# A volume that is attached as it should be.
FINE = (claim(), volume(), node(attached=("pv-1",)), attachment())


def fake(*objects: dict[str, Any]) -> FakeCluster:
    """A cluster where it is NOW, whatever our own clock says."""
    cluster = FakeCluster(*objects)
    cluster.clock = lambda: NOW
    return cluster


def triage(*objects: dict[str, Any], **options: Any) -> list[Finding]:
    """The findings, each of them well-formed."""
    runbook = Triage(fake(*objects), TriageOptions(**options))
    findings = runbook.plan(runbook.gather()).findings
    for finding in findings:
        assert (finding.kind, finding.verdict, finding.repair) == ("pod", "report", [])
        assert finding.control in CONTROLS
        assert finding.namespace and finding.reason
        assert not re.search(r"{\w*[a-z]", finding.reason + finding.summary)
    return findings


def one(*objects: dict[str, Any], **options: Any) -> Finding:
    findings = triage(*objects, **options)
    assert len(findings) == 1, [finding.summary for finding in findings]
    return findings[0]


def healthy(*objects: dict[str, Any], **options: Any) -> str:
    runbook = Triage(fake(*objects), TriageOptions(**options))
    state = runbook.gather()
    assert runbook.plan(state).findings == []
    return runbook.healthy(state)


# which pods are stuck


@pytest.mark.parametrize(
    "item",
    [
        running(),
        pod(age=119),
        running(ready=False),
        pod(status={"phase": "Succeeded"}),
        pod(status={"phase": "Failed"}),
        running(metadata={"deletionTimestamp": ago(59)}),
    ],
)
def test_not_stuck(item: dict[str, Any]) -> None:
    assert healthy(item, *FINE) == "no pod is stuck; 1 pods looked at"


def test_healthy_cluster_costs_two_lists() -> None:
    cluster = fake(running(), *FINE)
    Triage(cluster, TriageOptions()).gather()
    assert cluster.requests == [
        "list /apis/storage.k8s.io/v1/volumeattachments",
        "list /api/v1/pods",
    ]


def test_named_pod() -> None:
    scope = {"namespace": "shop", "pod": "web-0"}
    assert healthy(running(), pod("web-1"), *FINE, **scope).startswith(
        "pod shop/web-0 is Running and Ready. Only its"
    )
    bare = running(spec={"volumes": []})
    assert healthy(bare, pod("web-1"), *FINE, **scope) == "pod shop/web-0 is Running and Ready"
    assert (
        healthy(pod(age=30), *FINE, **scope)
        == "pod shop/web-0 is Pending for 30 s, not yet for stuck_seconds (120)"
    )
    assert "not Ready, and nothing says" in healthy(running(ready=False), *FINE, **scope)
    assert (
        healthy(pod(status={"phase": "Succeeded"}), **scope)
        == "pod shop/web-0 has ended (Succeeded)"
    )
    assert "being deleted" in healthy(running(metadata={"deletionTimestamp": ago(1)}), **scope)
    with pytest.raises(
        StorageOpsError, match="pod shop/web-0 does not exist.*kubectl -n shop get pods"
    ):
        triage(pod("web-1"), **scope)
    assert one(pod(), pod("web-1"), *FINE, **scope).name == "web-0"


def space(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def test_scope() -> None:
    pods = [pod("a", "worker-1"), pod("b", "worker-2"), pod("c", "worker-1", namespace="other")]
    assert {finding.name for finding in triage(*pods)} == {"a", "b", "c"}
    assert {finding.name for finding in triage(*pods, namespace="shop")} == {"a", "b"}
    assert {finding.name for finding in triage(*pods, node="worker-1")} == {"a", "c"}
    assert "in namespace shop on node worker-3" in healthy(
        *pods, node("worker-3"), space("shop"), namespace="shop", node="worker-3"
    )


def test_a_scope_that_may_be_a_typing_error() -> None:
    there = [pod(), node("worker-3"), space("shop"), space("idle")]
    with pytest.raises(StorageOpsError, match=r"^no node wrk1: is it misspelt\?$"):
        triage(*there, node="wrk1")
    with pytest.raises(StorageOpsError, match=r"^no node wrk1: is it misspelt\?$"):
        triage(*there, node="wrk1", namespace="shop")
    for scope in ({"namespace": "shopp"}, {"namespace": "shopp", "node": "worker-3"}):
        with pytest.raises(StorageOpsError, match=r"^no namespace shopp: is it misspelt\?$"):
            triage(*there, **scope)
    assert "0 pods looked at in namespace idle" in healthy(*there, namespace="idle")
    assert "0 pods looked at on node worker-3" in healthy(*there, node="worker-3")
    assert "0 pods looked at in namespace shop on node worker-3" in healthy(
        *there, namespace="shop", node="worker-3"
    )
    assert healthy() == "no pod is stuck; 0 pods looked at"


def test_stuck_seconds() -> None:
    assert one(pod(age=5), *FINE, stuck_seconds=4).name == "web-0"


# what the objects prove


def test_status_lacks_the_volume() -> None:
    made = attachment()
    found = one(
        pod(),
        claim(),
        volume(),
        node(),
        made,
        event("FailedMount", "timed out waiting for the condition"),
    )
    name = made["metadata"]["name"]
    assert (found.control, found.severity) == ("STOR-13", "major")
    assert found.runbook == "storage_ops.runbooks.repair_volumeattachments"
    assert (
        f"{RUN}.repair_volumeattachments -e attachment_repair_names={name} -e "
        "attachment_repair_lost_status=reattach" in found.reason
    )
    assert "has been waiting on worker-1 for 300 s" in found.summary
    assert found.evidence["messages"] == [
        "FailedMount x3 10 s ago: timed out waiting for the condition"
    ]
    assert found.evidence["claims"] == ["data: bound to pv-1 (csi.example.com, handle-pv-1)"]
    assert found.evidence["attachments"] == [f"{name} on worker-1: attached"]
    assert (found.evidence["volumes_attached"], found.evidence["volumes_in_use"]) == ([], [])
    assert found.evidence["node"] == "worker-1 is Ready"


def test_metadata_missing() -> None:
    found = one(pod(), *FINE, required_metadata={DRIVER: ("publishInfo",)})
    assert found.control == "STOR-14"
    more = '-e \'{"attachment_repair_required_metadata": {"csi.example.com": ["publishInfo"]}}\''
    assert (
        f"attachment_repair_reattach_missing_metadata=true {more} (with --check first)"
        in found.reason
    )
    there = attachment(attachmentMetadata={"publishInfo": "{}"})
    assert one(pod(), *FINE[:3], there, required_metadata={DRIVER: ("publishInfo",)}).control == ""


def test_nobody_attaches() -> None:
    found = one(pod(), claim(), volume(), node(), csi_node("worker-1", DRIVER), lease())
    assert (found.control, found.runbook) == ("STOR-15", "")
    assert "no VolumeAttachment is created for pv-1 on worker-1" in found.summary
    assert found.evidence["leader"] == "cp-1_0f1e, lease renewed 200 s ago"
    assert "cp-1_0f1e" in found.reason
    assert found.evidence["last_attach"] == "none that is still known"
    other = event(
        "SuccessfulAttachVolume",
        "AttachVolume.Attach succeeded",
        of="other",
        type="Normal",
        seconds=40,
        source={"component": "attachdetach-controller"},
    )
    # Another component has no say in it.
    theirs = event("SuccessfulAttachVolume", "x", of="other", seconds=5, source={"component": "x"})
    known = [pod(), claim(), volume(), node(), csi_node("worker-1", DRIVER)]
    assert "none that is still known" in one(*known, theirs).reason
    assert (
        "last attach of any volume, by its events: 40 s ago"
        in one(pod(), claim(), volume(), node(), csi_node("worker-1", DRIVER), other).reason
    )
    assert "no lease" in one(pod(), claim(), volume(), node(), csi_node("worker-1", DRIVER)).reason


def test_why_nobody_attaches() -> None:
    known = [pod(), claim(), csi_node("worker-1", DRIVER), lease()]
    assert "lacks the annotation" in one(*known, volume(), node(managed=False)).summary
    assert (
        "CSINode worker-1 lacks the driver"
        in one(pod(), claim(), volume(), node(), csi_node("worker-1", "other")).summary
    )
    assert "CSINode worker-1 lacks the driver" in one(pod(), claim(), volume(), node()).summary
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False},
    }
    in_tree = volume()
    del in_tree["spec"]["csi"]
    for objects in ([*known, volume(), node(), driver], [*known, in_tree, node()]):
        found = one(*objects)
        assert (found.control, found.severity) == ("", "minor")
    unbound = one(pod(), claim(phase="Pending", volume=""), node())
    assert (unbound.control, "claim data is not bound" in unbound.summary) == ("", True)
    held = one(*known, volume(), node(), node("worker-2"), attachment("worker-2"))
    assert held.control == "STOR-11"


EBS = "ebs.csi.aws.com"


def migrated(*plugins: str) -> list[dict[str, Any]]:
    """A volume of a former in-tree plugin, and a node that leaves these plugins to drivers."""
    old = volume()
    del old["spec"]["csi"]
    old["spec"]["awsElasticBlockStore"] = {"volumeID": "aws://eu-1a/vol-1"}
    there = csi_node("worker-1", EBS)
    there["metadata"]["annotations"] = {
        "storage.alpha.kubernetes.io/migrated-plugins": ",".join(plugins)
    }
    return [pod(), claim(), old, node(), there, lease()]


def test_nobody_attaches_a_migrated_volume() -> None:
    found = one(*migrated("kubernetes.io/gce-pd", "kubernetes.io/aws-ebs"))
    assert (found.control, "no VolumeAttachment is created for pv-1" in found.summary) == (
        "STOR-15",
        True,
    )
    # The in-tree plugin attaches it, without a VolumeAttachment.
    for plugins in ((), ("kubernetes.io/gce-pd",)):
        assert (one(*migrated(*plugins)).control, one(*migrated(*plugins)).severity) == (
            "",
            "minor",
        )
    *others, there, held = migrated("kubernetes.io/aws-ebs")
    there["spec"]["drivers"] = []
    assert f"CSINode worker-1 lacks the driver {EBS}" in one(*others, there, held).summary
    detached = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": EBS},
        "spec": {"attachRequired": False},
    }
    assert one(*migrated("kubernetes.io/aws-ebs"), detached).control == ""


def test_status_that_lacks_a_migrated_volume() -> None:
    made = attachment()
    made["metadata"]["name"] = attachment_name(EBS, "vol-1", "worker-1")
    made["spec"]["attacher"] = EBS
    objects = migrated("kubernetes.io/aws-ebs")
    found = one(*objects, made)
    assert (found.control, found.evidence["volumes_attached"]) == ("STOR-13", [])
    objects[3]["status"]["volumesAttached"] = [
        {"name": unique_name(EBS, "vol-1"), "devicePath": ""}
    ]
    found = one(*objects, made)
    assert (found.control, found.evidence["volumes_attached"]) == ("", [unique_name(EBS, "vol-1")])


def test_an_attachment_that_names_another_volume_of_the_same_handle() -> None:
    shared = attachment()
    shared["spec"]["source"]["persistentVolumeName"] = "pv-twin"
    found = one(
        pod(), claim(), volume(), node(attached=("pv-1",)), shared, csi_node("worker-1", DRIVER)
    )
    assert "there is no VolumeAttachment" not in found.summary
    assert found.control == ""


def test_attacher_is_silent_or_refuses() -> None:
    silent = one(pod(), *FINE[:3], attachment(attached=False))
    assert silent.control == "STOR-15"
    assert "has not answered" in silent.summary and "280 s" in silent.summary
    nowhere = one(pod(), *FINE[:3], attachment(attached=False), csi_node("worker-1", "other"))
    assert (nowhere.control, nowhere.severity) == ("", "major")
    assert f"CSINode worker-1 lacks the driver {DRIVER}" in nowhere.summary
    assert "has not answered" in nowhere.summary
    said = one(
        pod(), *FINE[:3], attachment(attached=False, attachError={"message": "array is full {0}"})
    )
    assert (
        said.control == "" and "attaching pv-1 to worker-1 fails: array is full {0}" in said.summary
    )
    assert "attachError: array is full {0}" in said.evidence["attachments"][0]
    known = one(
        pod(),
        *FINE[:3],
        attachment(
            attached=False, attachError={"message": "CSINode worker-1 does not contain driver x"}
        ),
    )
    assert "node-driver-registrar" in known.reason


def other_node(
    *objects: dict[str, Any], ready: str = "True", in_use: tuple[str, ...] = (), **made: Any
) -> Finding:
    """A pod on worker-1 whose volume is attached to worker-2."""
    multi = event(
        "FailedAttachVolume",
        'Multi-Attach error for volume "pv-1" Volume is already exclusively attached to one node',
    )
    there = node("worker-2", ready, in_use=in_use)
    return one(
        pod(),
        claim(),
        node(),
        there,
        attachment("worker-2", **made),
        multi,
        *objects,
        *([] if objects else [volume()]),
    )


FAIL_OVER = "storage_ops.runbooks.fail_over_volumes"


def test_volume_on_a_lost_node() -> None:
    found = other_node(ready="Unknown")
    assert (found.control, found.runbook) == ("STOR-16", FAIL_OVER)
    assert "worker-2, which does not report" in found.summary
    # Not a volume that the playbook can fence.
    assert found.reason.startswith(
        "the playbook fences Ceph RBD volumes; for others prove that worker-2 is off"
    )
    rbd = volume(csi={"driver": "rook-ceph.rbd.csi.ceph.com", "volumeHandle": "handle-pv-1"})
    reason = other_node(rbd, ready="Unknown").reason
    assert reason.startswith(
        f"ansible-playbook {FAIL_OVER} -i inventory -e target=worker-2 (with --check"
    )
    gone = one(pod(), claim(), volume(), node(), attachment("worker-3"))
    assert gone.control == "STOR-16" and "worker-3, which does not exist" in gone.summary


def test_volume_used_elsewhere() -> None:
    user = running("db-0", "worker-2")
    found = other_node(volume(), user)
    assert found.control == "" and "where pod shop/db-0 needs it" in found.summary
    ending = other_node(
        volume(), running("db-0", "worker-2", metadata={"deletionTimestamp": ago(30)})
    )
    assert "shop/db-0 (being deleted)" in ending.summary
    mounted = other_node(in_use=("pv-1",))
    assert mounted.control == "" and "volumesInUse" in mounted.summary
    shared = one(
        pod(),
        claim(),
        volume(mode="ReadWriteMany"),
        node(),
        csi_node("worker-1", DRIVER),
        attachment("worker-2"),
    )
    assert shared.control == "STOR-15"


def test_orphan_elsewhere() -> None:
    found = other_node()
    assert (found.control, "nothing proves that it is left over" in found.reason) == (
        "STOR-11",
        True,
    )
    # A playbook repairs what is named there.
    assert "attachment" not in found.evidence
    refused = attachment(attached=False, attachError={"message": "volume is in use on worker-2"})
    proven = other_node(volume(), refused)
    name = attachment_name(DRIVER, "handle-pv-1", "worker-2")
    assert proven.control == "STOR-11"
    assert (
        f"{RUN}.repair_volumeattachments -e attachment_repair_names={name} (with --check first)"
        in proven.reason
    )
    assert "worker-1 waits for it" in proven.evidence["because"][0]
    assert f"attachment_repair_names={proven.evidence['attachment']} " in proven.reason


def test_detach_hangs() -> None:
    meta = {"deletionTimestamp": ago(400), "finalizers": ["external-attacher/csi-example-com"]}
    found = other_node(meta=meta, detachError={"message": "array is down"})
    assert found.control == "STOR-11"
    assert (
        "was deleted 400 s ago and is still there, held by external-attacher/csi-example-com: "
        "array is down" in found.summary
    )
    assert "never strip the finalizer" in found.reason and RUN not in found.reason
    own = one(pod(), *FINE[:3], attachment(meta=meta))
    assert own.control == "STOR-11" and "was deleted" in own.summary


def test_node_is_lost() -> None:
    found = one(pod(), claim(), volume(), node(ready="False"))
    assert found.control == "" and "its node worker-1 is not Ready" in found.summary


# pods that do not end


def test_does_not_end() -> None:
    ending = {"deletionTimestamp": ago(90)}
    lost = one(running(metadata=ending), claim(), volume(), node(ready="Unknown"), attachment())
    assert lost.control == "STOR-16" and "is being deleted on worker-1 for 90 s" in lost.summary
    assert one(running(metadata=ending), *FINE).severity == "major"
    bare = one(running(metadata=ending, spec={"volumes": []}), node())
    assert bare.severity == "info" and "no persistent volume" in bare.summary
    held = one(running(metadata={**ending, "finalizers": ["example.com/keep"]}), *FINE)
    assert held.severity == "info" and "example.com/keep" in held.summary
    dead = event("FailedMount", "rpc error: desc = stat /x: transport endpoint is not connected")
    assert one(running(metadata=ending), *FINE, dead).control == "STOR-05"


# what messages say


def test_message_on_the_node() -> None:
    found = one(
        pod(), *FINE, event("FailedMount", "MountVolume: Fibre Channel volume device not found")
    )
    assert found.control == "STOR-03"
    assert found.reason.startswith(
        f"{RUN}.clean_residual_paths -i inventory -e target=worker-1 (with --check first); "
    )
    whole = "storage_ops.runbooks.replace_residual_volume in its place (-i inventory -e target="
    assert f"{whole}shop/web-0)" in found.reason
    # What a playbook would move.
    assert found.workload == {"namespace": "shop", "claims": ["data"]}
    other = one(pod(), *FINE, event("FailedMount", "mount.nfs: No route to host"))
    assert (other.control, other.runbook) == ("STOR-09", "storage_ops.runbooks.check_nfs")
    assert other.reason.startswith(
        f"{RUN}.check_nfs -i inventory -e target=worker-1 (with --check first); from the node"
    )


def test_unknown_message_is_shown() -> None:
    words = (
        'MountVolume.SetUp failed for volume "pv-1" : rpc error: code = Internal desc = the '
        "array says 42 {0}"
    )
    vague = event(
        "FailedMount",
        "Unable to attach or mount volumes: timed out waiting for the condition",
        seconds=1,
    )
    found = one(pod(), *FINE, event("FailedMount", words), vague)
    assert (found.control, found.severity) == ("", "major")
    assert words in found.summary
    assert f"FailedMount x3 10 s ago: {words}" in found.evidence["messages"]
    minor = one(pod(), *FINE, event("NetworkNotReady", "whatever that is"))
    assert (minor.control, minor.severity) == (
        "",
        "minor",
    ) and "NetworkNotReady: whatever that is" in minor.summary


def test_not_storage() -> None:
    waiting = {
        "state": {
            "waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "web:1"'}
        }
    }
    image = one(pod(status={"containerStatuses": [waiting]}), *FINE)
    assert (image.control, image.severity) == ("", "info")
    assert image.reason.startswith("not storage: ")
    assert image.evidence["messages"] == ['ImagePullBackOff: Back-off pulling image "web:1"']
    cpu = one(
        unscheduled("0/3 nodes are available: 3 Insufficient cpu."),
        claim(phase="Pending", volume=""),
    )
    assert cpu.severity == "info" and "no node takes the pod" in cpu.summary
    init = {"initContainerStatuses": [{"state": {"running": {"startedAt": ago(200)}}}]}
    assert one(pod(status=init), *FINE).severity == "info"


def test_cause_before_what_it_leads_to() -> None:
    events = [
        event(
            "FailedMount",
            "Unable to attach or mount volumes: timed out waiting for the condition",
            seconds=1,
        ),
        event("FailedMount", "an operation with the given Volume ID 1 already exists", seconds=2),
        event("FailedMount", "rpc error: desc = publishInfo doesn't exist", seconds=3),
    ]
    found = one(pod(), *FINE, *events)
    assert found.control == "STOR-14"
    assert [message.split(":")[0] for message in found.evidence["messages"]] == [
        f"FailedMount x3 {n} s ago" for n in (1, 2, 3)
    ]


def test_outdated_message_does_not_count() -> None:
    events = [
        event(
            "FailedMount",
            "driver name csi.example.com not found in the list of registered CSI drivers",
            seconds=900,
        ),
        event("FailedMount", "Output: mount.nfs: No route to host", seconds=5),
    ]
    found = one(pod(age=1000), *FINE, *events)
    assert found.control == "STOR-09"
    assert len(found.evidence["messages"]) == 2


def test_scheduling_is_over_when_there_is_a_node() -> None:
    old = event(
        "FailedScheduling",
        "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
        seconds=5,
    )
    assert "no event and no object says why" in one(pod(), *FINE, old).summary


def nfs(server: str = "192.0.2.10", folder: str = "/srv/data") -> dict[str, Any]:
    return {"nfs": {"server": server, "path": folder}}


@pytest.mark.parametrize(
    ("item", "does"),
    [(pod(), "does not begin"), (running(metadata={"deletionTimestamp": ago(90)}), "does not end")],
)
def test_no_event_tells_of_a_server_that_does_not_answer(item: dict[str, Any], does: str) -> None:
    found = one(item, claim(), volume(csi=None, **nfs()), node())
    assert (found.control, found.severity) == ("STOR-09", "minor")
    assert does in found.summary and "the NFS share 192.0.2.10:/srv/data" in found.summary
    run = f"{RUN}.check_nfs -i inventory -e target=worker-1"
    assert found.reason.startswith(f"{run} -e nfs_check_shares=192.0.2.10:/srv/data (with")
    assert "look at the log of the kubelet on worker-1" in found.reason
    assert found.evidence["shares"] == ["192.0.2.10:/srv/data"]


def test_a_share_that_no_claim_gives() -> None:
    inline = {"volumes": [{"name": "data", **nfs("2001:db8::1", "/srv/a b")}]}
    found = one(pod(spec=inline), node())
    assert found.control == "STOR-09" and "[2001:db8::1]:/srv/a b" in found.summary
    # What a shell would take apart is in no command.
    assert "nfs_check_shares" not in found.reason and f"{RUN}.check_nfs" in found.reason
    assert one(running(spec=inline, metadata={"deletionTimestamp": ago(90)}), node()).control


REFUSED = (
    'MountVolume.SetUp failed for volume "pv-1" : mount failed: exit status 32\n'
    "Mounting command: mount\nMounting arguments: -t nfs -o nfsvers=4.1 192.0.2.10:/srv/data "
    "/var/lib/kubelet/pods/899ba4ed-10e5-48c7-a5c0-dbe9b0f8b041/volumes/kubernetes.io~nfs/pv-1\n"
    "Output: mount.nfs: mounting 192.0.2.10:/srv/data failed, reason given by server: No such file "
    "or directory"
)
CHECK = f"{RUN}.check_nfs -i inventory -e target=worker-1"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], ""),
        (["nfsvers=4.1", "retry=0"], "4.1"),
        (["hard,vers=4"], "4"),
        (["v3", "nolock"], "3"),
        # The last one counts; what no NFS server of today has is in no command.
        (["nfsvers=3", "nfsvers=4.2"], "4.2"),
        (["vers=2"], ""),
    ],
)
def test_the_share_that_could_not_be_mounted(options: list[str], wanted: str) -> None:
    mine = volume(csi=None, mountOptions=options, **nfs())
    found = one(pod(), claim(), mine, node(), event("FailedMount", REFUSED))
    assert found.control == "STOR-09" and "has no such export" in found.summary
    version = f" -e nfs_check_wanted_version={wanted}" if wanted else ""
    assert found.reason.startswith(
        f"{CHECK} -e nfs_check_shares=192.0.2.10:/srv/data{version} (with --check first); correct"
    )
    # The same without an event.
    silent = one(pod(), claim(), mine, node())
    assert f"-e nfs_check_shares=192.0.2.10:/srv/data{version} (with" in silent.reason


def test_the_share_of_several_that_could_not_be_mounted() -> None:
    named = [{"name": name, **nfs(folder=f"/srv/{name}")} for name in ("dat", "data")]
    several = pod(spec={"volumes": [*named, *pod()["spec"]["volumes"]]})
    other = volume(csi=None, mountOptions=["nfsvers=3"], **nfs(folder="/srv/other"))
    said = event("FailedMount", REFUSED)
    found = one(several, claim(), other, node(), said)
    assert f"{CHECK} -e nfs_check_shares=192.0.2.10:/srv/data (" in found.reason
    # That of no volume of the pod, as a driver would mount it, or as a tenant writes it.
    assert one(pod(), *FINE, said).reason.startswith(f"{CHECK} (with")


def test_a_share_for_no_command() -> None:
    odd = volume(csi=None, mountOptions=["nfsvers=3"], **nfs(folder="/srv/a;b"))
    said = event("FailedMount", REFUSED.replace("/srv/data", "/srv/a;b"))
    assert one(pod(), claim(), odd, node(), said).reason.startswith(f"{CHECK} (with")


def test_what_is_told_of_a_share_counts_more() -> None:
    said = event("FailedMount", "Output: mount.nfs: access denied by server while mounting")
    found = one(pod(), claim(), volume(csi=None, **nfs()), node(), said)
    assert "does not export that directory" in found.summary and "shares" not in found.evidence
    # The check of the shares tries other versions, too.
    assert f"{RUN}.check_nfs" in found.reason
    # What was never mounted keeps no pod from ending.
    ending, before = (
        pod(metadata={"deletionTimestamp": ago(90)}),
        {**said, "lastTimestamp": ago(400)},
    )
    found = one(ending, claim(), volume(csi=None, **nfs()), node(), before)
    assert "does not export" not in found.summary


def test_claim_says_why() -> None:
    missing = event(
        "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found', of="uid-shop-data"
    )
    found = one(
        unscheduled("pod has unbound immediate PersistentVolumeClaims"),
        claim(phase="Pending", volume=""),
        missing,
    )
    assert "names no StorageClass" in found.summary
    assert found.evidence["claims"] == ["data: Pending"]
    assert "storageclass" in found.evidence["claim_messages"][0]
    words = "no persistent volumes available for this claim and no storage class is set"
    normal = event("FailedBinding", words, of="uid-shop-data", type="Normal")
    assert (
        "names no StorageClass"
        in one(pod(node=""), claim(phase="Pending", volume=""), normal).summary
    )


def test_missing_claim_and_volume() -> None:
    assert "claim data does not exist" in one(pod(), node()).summary
    assert one(pod(), node(), claim()).evidence["claims"] == [
        "data: bound to pv-1, which does not exist"
    ]


def test_running_but_not_ready() -> None:
    dead = "Readiness probe failed: ls: cannot access '/data': Transport endpoint is not connected"
    assert one(running(ready=False), *FINE, event("Unhealthy", dead)).control == "STOR-05"
    # Before its containers were started, or not about a volume.
    healthy(
        running(ready=False),
        *FINE,
        event("FailedMount", "mount.nfs: No route to host", seconds=400),
    )
    healthy(
        running(ready=False),
        *FINE,
        event("Unhealthy", "Readiness probe failed: HTTP 503"),
        event("New", "thing"),
    )
    assert one(running(ready=False), *FINE, event("FailedMount", "new words")).severity == "major"


DEAD = "cat: /data/x: Transport endpoint is not connected"


def crashing(last_words: str, **status: Any) -> dict[str, Any]:
    """Its container ends again and again, beside one that runs."""
    item = running(ready=False)
    item["status"]["containerStatuses"][0].update(name="proxy", ready=True)
    ended = {"reason": "Error", "exitCode": 1, "message": last_words}
    waits = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
        "lastState": {"terminated": ended},
    }
    item["status"]["containerStatuses"].append(
        {"name": "main", "ready": False, "restartCount": 7, **waits, **status}
    )
    return item


def test_last_words_of_a_container_that_does_not_come_up() -> None:
    assert one(crashing(DEAD), *FINE).control == "STOR-05"
    # Its runtime cannot even look at the mount.
    mount = "/var/lib/kubelet/pods/u/volumes/v/mount"
    words = f'error mounting "{mount}" to rootfs: stat {mount}: transport endpoint is not connected'
    cannot = {"waiting": {"reason": "CreateContainerError", "message": words}}
    assert one(crashing("", state=cannot, lastState={}), *FINE).control == "STOR-05"
    # No words of storage, and what a container said that has come up since.
    healthy(crashing("panic: nil"), *FINE)
    healthy(crashing(DEAD, state={"running": {"startedAt": ago(5)}}), *FINE)


def test_named_pod_that_runs_tells_what_its_containers_do_and_who_knows_of_its_mounts() -> None:
    scope = {"namespace": "shop", "pod": "web-0"}
    probe = event("Unhealthy", "Readiness probe failed: HTTP 503")
    older = event("Unhealthy", "Liveness probe failed: HTTP 500", seconds=90)
    said = healthy(crashing("panic: nil"), *FINE, probe, older, **scope)
    assert said.startswith(
        "pod shop/web-0 is Running but not Ready, and nothing says that a volume is the cause; "
        "container main is waiting, CrashLoopBackOff, ended before with Error (exit code 1), "
        "restarted 7 times; Readiness probe failed: HTTP 503. Only its node can tell whether its "
        "mounts work"
    )
    command = (
        f"{RUN}.compliance -i inventory -e target=worker-1 -e "
        "compliance_report_controls=STOR-05,STOR-06,STOR-07,STOR-08 checks"
    )
    assert command in said and command in healthy(running(), *FINE, **scope)


def test_words_of_containers_are_no_finding_of_storage() -> None:
    for text in (
        "Liveness probe failed: can't create /tmp/x: Read-only file system",
        "Readiness probe failed: ssh: exit status 255",
    ):
        healthy(running(ready=False), *FINE, event("Unhealthy", text))
        found = one(pod(), *FINE, event("Unhealthy", text))
        assert (found.control, found.severity) == ("", "info")
    assert (
        one(pod(), *FINE, event("FailedMount", "chmod /x: read-only file system")).control
        == "STOR-08"
    )


# what is over, and what counts more than a message


LOST = "driver name csi.example.com not found in the list of registered CSI drivers"
UNBOUND = "error processing PVC shop/data: PVC is not bound"


def test_lost_node_counts_more_than_any_message() -> None:
    """A running pod's own event may be of the reconnect before; the node is why it is not ready."""
    old = event("FailedMount", LOST, seconds=1002)
    item = running(
        ready=False,
        since=270,
        status={"containerStatuses": [{"state": {"running": {"startedAt": ago(1500)}}}]},
    )
    item["status"].update(
        phase="Running",
        conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": ago(230)}],
    )
    found = one(item, claim(), volume(), node(ready="Unknown"), attachment(), old)
    assert (found.control, found.severity) == (
        "STOR-16",
        "major",
    ) and "its node worker-1 does not report" in found.summary
    rbd = volume(csi={"driver": "rbd.csi.ceph.com", "volumeHandle": "handle-pv-1"})
    assert (
        f"{FAIL_OVER} -i inventory -e target=worker-1"
        in one(item, claim(), rbd, node(ready="Unknown"), old).reason
    )
    assert one(pod(), claim(), volume(), node(ready="Unknown")).control == "STOR-16"
    bare = {**item, "spec": {"nodeName": "worker-1", "volumes": []}}
    without = one(bare, node(ready="Unknown"), old)
    assert (without.control, without.severity) == (
        "",
        "info",
    ) and "does not report" in without.summary
    # With a node that is heard of, an event from long before it became not ready is over, a younger
    # one is not.
    healthy(item, *FINE, old)
    assert one(item, *FINE, event("FailedMount", LOST, seconds=200)).severity == "major"


def test_driver_that_answers_is_registered() -> None:
    """After a reboot a kubelet misses the driver for some seconds, and says what is wrong right
    after that.
    """
    error = (
        'MountVolume.MountDevice failed for volume "pv-1" : rpc error: code = Internal desc = '
        "something new"
    )
    missing = event("FailedMount", LOST, seconds=60)
    found = one(pod(), *FINE, missing, event("FailedMount", error, seconds=40))
    assert "something new" in found.summary
    for text, seconds in (
        (error, 80),
        (error.replace("Internal", "Unavailable"), 40),
        ("timed out", 40),
    ):
        assert (
            "not registered"
            in one(pod(), *FINE, missing, event("FailedMount", text, seconds=seconds)).summary
        )


# Of kubelet 1.36.3, in the seconds after an attach that went well.
FORBIDDEN = (
    'MountVolume.WaitForAttach failed for volume "{}" : volume handle-pv-1 has GET error for '
    'volume attachment csi-1: volumeattachments.storage.k8s.io "csi-1" is forbidden: User '
    '"system:node:worker-1" cannot get resource "volumeattachments" in API group "storage.k8s.io" '
    "at the cluster scope: no relationship found between node 'worker-1' and this object"
)
NOT_LISTED = 'Volume not attached according to node status for volume "{}" (UniqueName: "x")'
# Of kubelet 1.36.3, as soon as a pod has its node.
UNREAD_CLAIM = (
    "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to "
    "process volumes=[data]: error processing PVC default/data: failed to fetch PVC from API "
    'server: persistentvolumeclaims "data" is forbidden: User "system:node:worker-1" cannot get '
    'resource "persistentvolumeclaims" in API group "" in the namespace "default": no '
    "relationship found between node 'worker-1' and this object"
)


@pytest.mark.parametrize(
    ("text", "control"), [(FORBIDDEN, "STOR-13"), (NOT_LISTED, "STOR-13"), (UNREAD_CLAIM, "")]
)
def test_what_went_before_the_driver_was_asked_to_mount_has_passed(text: str, control: str) -> None:
    old = event("FailedMount", text.format("pv-1"), seconds=500)
    error = (
        'MountVolume.SetUp failed for volume "pv-1" : rpc error: code = Unknown desc = no such file'
    )
    found = one(pod(), *FINE, old, event("FailedMount", error, seconds=3))
    assert found.control == "" and "no such file" in found.summary
    # An answer about another volume, an older one, and one of no driver prove nothing.
    for said, seconds in (
        (error.replace("pv-1", "pv-2"), 3),
        (error, 501),
        (error.replace("Unknown", "Unavailable"), 3),
        (error.replace("SetUp", "WaitForAttach"), 3),
    ):
        found = one(pod(), *FINE, old, event("FailedMount", said, seconds=seconds))
        assert found.control == control and "no such file" not in found.summary, said


def test_ending_pod_of_a_driver_that_is_gone() -> None:
    ending = {"deletionTimestamp": ago(90), "deletionGracePeriodSeconds": 30}
    stale = event("FailedMount", UNBOUND, seconds=200)
    gone = one(running(metadata=ending), *FINE, csi_node("worker-1", "other"), stale)
    assert (
        "CSINode worker-1 lacks the driver csi.example.com" in gone.summary
        and "node pod" in gone.reason
    )
    # Against its own evidence: all claims are bound.
    there = one(
        running(metadata=ending),
        *FINE,
        csi_node("worker-1", DRIVER),
        event("FailedMount", UNBOUND, seconds=5),
    )
    assert "not unmounted its volumes" in there.summary
    # Said before it was deleted: of what it then did. What is wrong on the node still is.
    setup = event("FailedMount", "MountVolume: new words", seconds=121)
    assert "new words" not in one(running(metadata=ending), *FINE, setup).summary
    assert (
        "new words"
        in one(
            running(metadata=ending),
            *FINE,
            event("FailedMount", "MountVolume: new words", seconds=119),
        ).summary
    )
    dead = event("FailedMount", "stat /x: transport endpoint is not connected", seconds=200)
    assert one(running(metadata=ending), *FINE, dead).control == "STOR-05"


def test_claim_without_a_volume_is_still_told() -> None:
    told = event("FailedMount", UNBOUND)
    assert (
        "has no volume yet" in one(pod(), claim(phase="Pending", volume=""), node(), told).summary
    )


def test_driver_missing_on_the_node_of_a_waiting_pod() -> None:
    """Whether its volume is attached, or needs no attachment."""
    detached = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False},
    }
    for objects in (FINE, (claim(), volume(), node(), detached)):
        assert (
            "CSINode worker-1 lacks the driver"
            in one(pod(), *objects, csi_node("worker-1", "other")).summary
        )
    silent = one(pod(), claim(), volume(), node(), detached, csi_node("worker-1", DRIVER))
    assert "node pod of csi.example.com there, which mounts without an attachment" in silent.reason


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("Pending", "data: Pending, to be bound to pv-1"),
        ("Lost", "data: Lost, to be bound to pv-1"),
        ("Bound", "data: Bound, but pv-1 does not name it"),
    ],
)
def test_a_claim_that_names_the_volume_of_another(phase: str, told: str) -> None:
    """Whoever makes it may name any volume, and learns nothing of it."""
    others = volume(claimRef={"namespace": "bank", "name": "data", "uid": "uid-bank-data"})
    world = [claim(phase=phase), others, attachment(), node(), csi_node("worker-1", DRIVER)]
    finding = one(pod(), *world, lease())
    assert finding.control == "" and "claim data is not bound to a volume" in finding.summary
    assert finding.evidence["claims"] == [told] and "attachments" not in finding.evidence
    # Nor is anything read of the nodes that it is attached to.
    cluster = fake(pod(), *world, attachment("worker-9"), node("worker-9"), lease())
    assert Triage(cluster, TriageOptions()).gather().seen.attachments == {}
    assert "get /api/v1/nodes/worker-9" not in cluster.requests


def test_pods_of_several_drivers_on_one_node() -> None:
    """Each driver is asked for, whichever of the pods comes last."""
    other = "no-attach.example.com"
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": other},
        "spec": {"attachRequired": False},
    }
    theirs = {"volumes": [{"persistentVolumeClaim": {"claimName": "other"}}]}
    second = volume(
        "pv-2",
        csi={"driver": other, "volumeHandle": "x"},
        claimRef={"namespace": "shop", "name": "other", "uid": "uid-shop-other"},
    )
    bound = [
        claim(),
        volume(),
        claim("other", volume="pv-2"),
        second,
        driver,
        node(),
        csi_node("worker-1", DRIVER, other),
        lease(),
    ]
    for names in (("a", "b"), ("b", "a")):
        pods = [pod(names[0]), pod(names[1], spec=theirs)]
        found = {finding.name: finding.control for finding in triage(*pods, *bound)}
        assert found == {names[0]: "STOR-15", names[1]: ""}


def test_static_pod() -> None:
    """Its kubelet's events are about the uid of its file."""
    static = pod(metadata={"annotations": {"kubernetes.io/config.mirror": "hash"}})
    told = event("FailedMount", "MountVolume: Fibre Channel volume device not found", of="hash")
    assert one(static, *FINE, told).control == "STOR-03"
    assert "no event" in one(pod(), *FINE, told).summary


def test_a_pod_that_says_it_is_static() -> None:
    """Any pod may be made with the annotation: it is no selector, and takes no messages from
    others.
    """
    told = event("FailedMount", "MountVolume: Fibre Channel volume device not found")
    # A selector is looked at where there is something to select from.
    other = event("Killing", "x", of="uid-other", metadata={"name": "e", "namespace": "evil"})
    for text in ("x,evil", "x,metadata.name=y", "x y", "x" * 65, "", "uid-web-0", "uid-shop-data"):
        evil = pod(
            "evil",
            namespace="evil",
            metadata={"uid": "uid-evil", "annotations": {"kubernetes.io/config.mirror": text}},
        )
        for objects in ((pod(), evil), (evil, pod())):
            found = {
                finding.name: finding.control for finding in triage(*objects, *FINE, told, other)
            }
            assert found == {"web-0": "STOR-03", "evil": ""}


def test_claim_that_waits_for_the_scheduler() -> None:
    words = "waiting for first consumer to be created before binding"
    waits = event("WaitForFirstConsumer", words, of="uid-shop-data", type="Normal")
    found = one(pod(), claim(phase="Pending", volume=""), node(), waits)
    assert (
        "put on worker-1 without the scheduler (spec.nodeName)" in found.summary
        and "nodeSelector" in found.reason
    )
    unscheduled_pod = one(
        unscheduled("0/3 nodes are available: 3 Insufficient cpu."),
        claim(phase="Pending", volume=""),
        waits,
    )
    assert "no node takes the pod" in unscheduled_pod.summary


def test_secret_of_the_driver_is_missing() -> None:
    words = (
        "fetching NodeStageSecretRef default/s3 failed: kubernetes.io/csi: failed to find the "
        "secret s3 in the namespace default"
    )
    found = one(
        pod(),
        *FINE,
        event("FailedMount", f'MountVolume.MountDevice failed for volume "pv-1" : {words}'),
    )
    assert (found.control, found.severity) == (
        "",
        "major",
    ) and "the Secret that the PersistentVolume names" in found.summary


def test_metadata_missing_of_a_renamed_driver() -> None:
    words = event(
        "FailedMount",
        'MountVolume.MountDevice failed for volume "pv-1" : rpc '
        "error: desc = publishInfo doesn't exist",
    )
    found = one(pod(), *FINE, words)
    name = attachment_name(DRIVER, "handle-pv-1", "worker-1")
    more = '{"attachment_repair_required_metadata": {"csi.example.com": ["publishInfo"]}}'
    assert (
        f"attachment_repair_names={name} -e attachment_repair_reattach_missing_metadata=true -e "
        f"'{more}' (with --check" in found.reason
    )
    # One that has it was made meanwhile.
    assert (
        RUN
        not in one(
            pod(), *FINE[:3], attachment(attachmentMetadata={"publishInfo": "{}"}), words
        ).reason
    )


def test_lost_status_of_an_in_tree_volume() -> None:
    """No VolumeAttachment is made for it: what the node says it uses, and is not told to have."""
    old = volume()
    del old["spec"]["csi"]
    lost = node()
    lost["status"]["volumesInUse"] = ["kubernetes.io/qcloud-cbs/disk-1"]
    words = event("FailedMount", 'Volume not attached according to node status for volume "pv-1"')
    found = one(pod(), claim(), old, lost, words)
    where = (
        "-e target=worker-1 -e attachment_repair_namespaces=shop -e "
        "attachment_repair_lost_status=reattach"
    )
    assert (found.control, f"{RUN}.repair_volumeattachments {where}" in found.reason) == (
        "STOR-13",
        True,
    )
    lost["status"]["volumesAttached"] = [
        {"name": "kubernetes.io/qcloud-cbs/disk-1", "devicePath": ""}
    ]
    assert RUN not in one(pod(), claim(), old, lost, words).reason


def test_blocker_keeps_the_command_back() -> None:
    """What would be refused is not offered, whatever else proves that the attachment is
    left over.
    """
    waiting = attachment(attached=False, attachError={"message": "volume is in use on worker-2"})
    twin = volume("pv-2", csi={"driver": DRIVER, "volumeHandle": "handle-pv-1"})
    assert RUN in other_node(volume(), waiting).reason
    by_hand = attachment("worker-2", meta={"name": "made-by-hand"})
    blocked = one(pod(), claim(), volume(), node(), node("worker-2"), by_hand, waiting, twin)
    assert (
        blocked.control == "STOR-11"
        and RUN not in blocked.reason
        and "nothing proves" in blocked.reason
    )


# gathering


def test_attachments_are_read_before_pods() -> None:
    cluster = fake(pod(), *FINE)
    Triage(cluster, TriageOptions()).gather()
    assert [request.rsplit("/", 1)[1] for request in cluster.requests[:2]] == [
        "volumeattachments",
        "pods",
    ]


def test_many_pods_are_read_in_bulk() -> None:
    def requests(size: int) -> int:
        of_claim = [
            {"volumes": [{"persistentVolumeClaim": {"claimName": f"c-{number}"}}]}
            for number in range(size)
        ]
        pods = [pod(f"web-{number}", spec=spec) for number, spec in enumerate(of_claim)]
        claims = [claim(f"c-{number}", volume=f"pv-{number}") for number in range(size)]
        volumes = [volume(f"pv-{number}") for number in range(size)]
        events = [
            event("FailedMount", "mount.nfs: No route to host", of=f"uid-web-{number}")
            for number in range(size)
        ]
        cluster = fake(*pods, *claims, *volumes, *events, node())
        runbook = Triage(cluster, TriageOptions())
        findings = runbook.plan(runbook.gather()).findings
        assert len(findings) == size
        assert {
            finding.name for finding in findings if "No route" in finding.evidence["messages"][0]
        } == {f"web-{n}" for n in range(size)}
        return len(cluster.requests)

    assert requests(100) == requests(50) < 15


def test_neighbours_on_other_nodes_count() -> None:
    """With a node given, the pods of other nodes that use the claim are still known."""
    user = running("db-0", "worker-2")
    found = one(
        pod(),
        claim(),
        volume(),
        node(),
        node("worker-2"),
        attachment("worker-2"),
        user,
        node="worker-1",
    )
    assert "where pod shop/db-0 needs it" in found.summary


def test_forbidden_is_an_error() -> None:
    cluster = fake(pod(), *FINE)

    def refuse(_verb: str, place: str) -> None:
        if place.endswith("/events"):
            raise Forbidden("events is forbidden", 403)

    cluster.before = refuse
    with pytest.raises(Forbidden):
        Triage(cluster, TriageOptions()).gather()


def test_event_shapes() -> None:
    old = {
        "type": "Warning",
        "reason": "R",
        "message": "m",
        "involvedObject": {"uid": "u"},
        "metadata": {"creationTimestamp": ago(9)},
    }
    series = {
        **old,
        "eventTime": ago(50),
        "series": {"count": 7, "lastObservedTime": ago(2)},
        "lastTimestamp": None,
    }
    found = pick_message(series)
    assert found and found[1].times == 7 and found[1].last == NOW - timedelta(seconds=2)
    bare = pick_message(old)
    assert bare and bare[1].times == 1 and bare[1].last == NOW - timedelta(seconds=9)
    assert pick_message({**old, "type": "Normal"}) is None


def test_options() -> None:
    params = {
        "namespace": " shop",
        "pod": "",
        "node": "",
        "stuck_seconds": 1.0,
        "required_metadata": {"d": ["k"]},
    }
    options = triage_options(params)
    assert options.namespace == "shop"
    assert options.required_metadata == {"csi.huawei.com": ("publishInfo",), "d": ("k",)}
    with pytest.raises(
        StorageOpsError, match=r"needs its namespace: set namespace \(playbook: triage_namespace\)"
    ):
        triage_options({**params, "namespace": "", "pod": "web-0"})
    with pytest.raises(
        StorageOpsError,
        match="required_metadata must give a list of keys for csi.huawei.com, not 'publishInfo'",
    ):
        triage_options({**params, "required_metadata": {"csi.huawei.com": "publishInfo"}})
    for wrong in (-1.0, float("nan")):
        with pytest.raises(StorageOpsError, match="stuck_seconds"):
            triage_options({**params, "stuck_seconds": wrong})


@given(
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    on=st.sampled_from(["", "worker-1", "lost"]),
    deleted=st.booleans(),
    ready=st.sampled_from(["True", "False", "Unknown"]),
    bound=st.sampled_from(["Bound", "Pending", "Lost"]),
    attached=st.sampled_from(["", "worker-1", "worker-2"]),
    words=st.text(),
)
def test_whatever_the_objects_say(
    phase: str, on: str, deleted: bool, ready: str, bound: str, attached: str, words: str
) -> None:
    """One finding or none, never a crash, and never one for a pod that runs and is ready."""
    item = pod(
        node=on,
        status={"phase": phase},
        **({"metadata": {"deletionTimestamp": ago(90)}} if deleted else {}),
    )
    made = [attachment(attached)] if attached else []
    objects = [
        item,
        claim(phase=bound),
        volume(),
        node(ready=ready),
        *made,
        event("FailedMount", words),
    ]
    runbook = Triage(fake(*objects), TriageOptions())
    findings = runbook.plan(runbook.gather()).findings
    assert len(findings) <= 1
    assert bool(findings) == (deleted or phase in ("Pending", "Unknown", "Running"))


def test_nobody_speaks_for_the_pods_of_another_namespace() -> None:
    """Of many pods the events are read by namespace, and an event may name the uid of any pod."""
    stuck = [pod(f"web-{number}") for number in range(30)]
    said = event("FailedMount", "rpc error: desc = stat /x: transport endpoint is not connected")
    forged = {**said, "metadata": {"name": "forged", "namespace": "evil"}}
    objects = (*FINE, *stuck, pod("x", namespace="evil"))
    assert {finding.control for finding in triage(*objects, forged)} == {
        finding.control for finding in triage(*objects)
    }
    assert "STOR-05" in {finding.control for finding in triage(*objects, said)}


def test_a_pod_that_says_nothing_of_itself() -> None:
    seen = pick_seen({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {}})
    assert (seen.since, seen.started, seen.waiting) == (None, None, ())


# what tenants write


@pytest.mark.parametrize(
    "when", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
)
def test_no_event_ends_a_triage(when: str) -> None:
    """The API stores them; the first one ended a cluster-wide triage with ValueError, for
    everybody.
    """
    told = [
        event("FailedMount", "MountVolume.SetUp failed: x", **{field: when})
        for field in ("lastTimestamp", "eventTime", "firstTimestamp")
    ]
    told.append(event("FailedMount", "x", series={"count": 2, "lastObservedTime": when}))
    finding = one(pod(), *told, *FINE)
    assert "FailedMount" in finding.summary
    found = one(
        pod(status={"containerStatuses": [{"state": {"running": {"startedAt": when}}}]}), *FINE
    )
    assert found.name == "web-0"


def test_a_huge_message_is_cut_when_it_is_read() -> None:
    """1.4 MB, as many as an object can hold, took the catalogue minutes."""
    huge = "MountVolume " * 120_000
    _uid, message = pick_message(event("FailedMount", huge)) or ("", None)
    assert message and len(message.text) == MAX_MESSAGE
    (waiting,) = pick_seen(
        pod(
            status={"containerStatuses": [{"state": {"waiting": {"reason": "x", "message": huge}}}]}
        )
    ).waiting
    assert len(waiting.text) == MAX_MESSAGE
    finding = one(pod(), event("FailedMount", huge), *FINE)
    assert len(repr(finding.to_result())) < 20_000


def stuck(namespace: str, number: int) -> dict[str, Any]:
    return pod(f"web-{number}", namespace=namespace)


def test_what_there_is_no_time_for_is_counted_and_the_rest_is_judged() -> None:
    """Pods come in turns, so the many of one namespace take no time from others'."""
    many = [stuck("evil", number) for number in range(50)]
    theirs = {"namespace": "evil", "name": "data", "uid": "uid-evil-data"}
    bound = [claim(namespace="evil", volume="pv-2"), volume("pv-2", claimRef=theirs)]
    bound += [attachment(of="pv-2"), node(attached=("pv-1", "pv-2"))]
    cluster = fake(*many, pod("db-0"), *FINE, *bound)
    runbook = Triage(cluster, TriageOptions())
    state = runbook.gather()
    left = iter([True] * 3 + [False])
    found = plan(state, TriageOptions(), lambda: next(left)).findings
    assert [one.namespace for one in found if one.kind == "pod"] == ["evil", "shop", "evil"]
    (counted,) = [one for one in found if one.kind == "findings"]
    assert counted.evidence == {"not_assessed": ["evil: 48"]}
    assert "deadline" in counted.reason
    cluster.deadline = Deadline(0)
    (counted,) = runbook.plan(state).findings
    assert counted.name == "51 more"
    named = Triage(cluster, TriageOptions(namespace="shop", pod="db-0"))
    with pytest.raises(StorageOpsError, match="the deadline passed before the pod was judged"):
        named.plan(replace(state, named=state.suspects[0]))


@pytest.mark.parametrize("seconds", [7.2, 9.0, 200.0])
def test_events_of_one_namespace_take_no_time_from_others(seconds: float) -> None:
    """A LIST of 200 events of 500 kB took 7 s, one for each pod and claim, and its end by the
    deadline was the end of the triage.
    """
    spent = 0.0

    def slow(_verb: str, path: str) -> None:
        nonlocal spent
        spent += seconds if "/evil/events" in path else 0.0

    wants = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    theirs = [pod(f"x{number}", namespace="evil", spec=wants) for number in range(19)]
    theirs += [claim(namespace="evil", phase="Pending")]
    said = event("FailedMount", "x", of="uid-x0", metadata={"name": "e", "namespace": "evil"})
    told = event("FailedMount", "MountVolume: Fibre Channel volume device not found")
    cluster = fake(pod(), *FINE, told, *theirs, said)
    cluster.deadline = Deadline(300.0, lambda: spent)
    cluster.before = slow
    runbook = Triage(cluster, TriageOptions())
    findings = runbook.plan(runbook.gather()).findings
    assert [one.control for one in findings if one.namespace == "shop"] == ["STOR-03"]
    late = [one.evidence for one in findings if one.kind == "events"]
    assert bool(late) == (seconds == 200.0)
    named = Triage(cluster, TriageOptions(namespace="evil", pod="x0"))
    spent = 0.0
    if late:
        assert late[0]["not_assessed"][0].startswith("evil: ")
        with pytest.raises(StorageOpsError, match="events of namespace evil could not be read"):
            named.gather()


@pytest.mark.parametrize("status", [0, 504])
def test_events_in_which_nothing_fits_end_no_triage(status: int) -> None:
    """The API server sends nothing while it looks for what fits among a tenant's million events,
    and in the end gives up. That was the end of the triage of all.
    """
    spent = 0.0

    def hangs(_verb: str, path: str) -> None:
        nonlocal spent
        if "/evil/events" in path:
            # For as long as it may, or until the server gives up.
            spent += cluster.deadline.remaining() if status == 0 else 5.0
            raise KubeError("no answer in time", status)

    told = event("FailedMount", "MountVolume: Fibre Channel volume device not found")
    theirs = [pod(namespace="evil"), claim(namespace="evil", phase="Pending")]
    cluster = fake(pod(), *FINE, told, *theirs)
    cluster.deadline = Deadline(300.0, lambda: spent)
    cluster.before = hangs
    runbook = Triage(cluster, TriageOptions())
    findings = runbook.plan(runbook.gather()).findings
    assert [one.control for one in findings if one.namespace == "shop"] == ["STOR-03"]
    (late,) = [one.evidence for one in findings if one.kind == "events"]
    assert late["not_assessed"][0].startswith("evil: ")
    named = Triage(cluster, TriageOptions(namespace="evil", pod="web-0"))
    spent = 0.0
    with pytest.raises(StorageOpsError, match="events of namespace evil could not be read"):
        named.gather()


def test_a_busy_api_server_has_two_seconds_for_each_namespace() -> None:
    """In an outage many namespaces have stuck pods, and a share of the time would be too short."""
    spent = 0.0

    def slow(_verb: str, path: str) -> None:
        nonlocal spent
        spent += 1.0 if "/busy-" in path else 0.0

    # The quick ones come last, and with them a share would be half a second.
    spaces = [f"{kind}-{number}" for kind in ("busy", "quick") for number in range(20)]
    stuck = [pod(namespace=space) for space in spaces]
    told = [
        event("FailedMount", "x", metadata={"name": space, "namespace": space}) for space in spaces
    ]
    cluster = fake(*stuck, *told, node())
    cluster.deadline = Deadline(45.0, lambda: spent)
    cluster.before = slow
    assert not Triage(cluster, TriageOptions()).gather().unread_events


@pytest.mark.parametrize(("status", "ends"), [(0, False), (504, False), (403, True)])
def test_events_about_attaching_that_cannot_be_read_end_no_triage(status: int, ends: bool) -> None:
    def refuse(_verb: str, path: str) -> None:
        if path == "/api/v1/events":
            raise (Forbidden if ends else KubeError)("no", status)

    cluster = fake(pod(), claim(), volume(), node(), csi_node("worker-1", DRIVER), lease())
    cluster.before = refuse
    runbook = Triage(cluster, TriageOptions())
    if ends:
        with pytest.raises(Forbidden):
            runbook.gather()
        return
    (found,) = runbook.plan(runbook.gather()).findings
    assert found.control == "STOR-15"
    assert "not known, since the events could not be read in time" in found.reason


def test_the_last_attach_is_one_time_however_many_events_there_are() -> None:
    """4 kB of the text of each were kept."""
    source = {"component": "attachdetach-controller"}
    events = [
        event("SuccessfulAttachVolume", "x" * 5_000, of="other", seconds=number, source=source)
        for number in (50, 40, 60)
    ]
    cluster = fake(pod(), claim(), volume(), node(), csi_node("worker-1", DRIVER), *events)
    kept: list[Any] = []
    read = cluster.read

    def noted(path: str, pick: Any, **options: Any) -> Any:
        listing = read(path, pick, **options)
        kept.extend(listing.items if path == "/api/v1/events" else [])
        return listing

    cluster.read = noted  # type: ignore[method-assign]
    state = Triage(cluster, TriageOptions()).gather()
    assert state.last_attach == NOW - timedelta(seconds=40)
    assert not kept


class Compared(str):
    """A text that counts how often it is compared."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def test_the_lists_of_a_kubelet_are_not_compared_each_with_each() -> None:
    """Of 70,000 names in each that took 18 s, for each pod that waits there."""
    names = [f"kubernetes.io/fc/{number}" for number in range(300)]
    kubelets = pick_node({**node(), "metadata": {"name": "worker-1", "uid": "u"}})._replace(
        volumes_in_use=tuple(map(Compared, names)),
        volumes_attached=tuple(map(Compared, reversed(names))),
    )
    assert not messages._lacks_in_tree(kubelets)
    assert Compared.count <= 2 * len(names)
    assert messages._lacks_in_tree(kubelets._replace(volumes_attached=()))


def test_events_of_one_pod_take_no_time_from_others(monkeypatch: Any) -> None:
    """4,000 events of a pod took half a minute, and its turn ended the run."""
    asked = []
    match = catalogue.match
    monkeypatch.setattr(
        catalogue, "match", lambda reason, text: asked.append(text) or match(reason, text)
    )
    text = "driver name x not found in the list of registered CSI drivers {}"
    events = [event("FailedMount", text.format(number), seconds=number) for number in range(2000)]
    found = triage(pod(), *events, pod("db-0"), *FINE)
    assert len(found) == 2
    # Of each message it is asked whether it has passed, whether it is about storage, what it says.
    assert len(asked) <= 3 * MAX_MESSAGES
    assert text.format(0) in found[0].evidence["messages"][0]


def test_a_pod_of_many_claims_takes_no_room_from_others() -> None:
    """One of 48,000 had a finding as long as a whole result, with texts for each of them."""
    wants = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        for number in range(5_000)
    ]
    many = pod("x", namespace="evil", spec={"volumes": wants})
    some = pod("y", namespace="evil", spec={"volumes": wants[:100]})
    theirs = [claim("c7", "evil", phase="Pending"), claim("z", "evil")]
    cluster = fake(many, some, pod(), *FINE, *theirs)
    runbook = Triage(cluster, TriageOptions())
    state = runbook.gather()
    assert set(state.seen.claims) == {("evil", "c7"), ("shop", "data")}
    by_name = {finding.name: finding for finding in runbook.plan(state).findings}
    assert by_name["x"].evidence["claims"][0] == "c0: does not exist"
    assert by_name["x"].evidence["claims"][48:] == ["c48: does not exist", "(+4951 more)"]
    assert len(by_name["y"].evidence["claims"]) == MAX_ITEMS
    assert by_name["x"].workload is None
    assert by_name["y"].workload == {
        "namespace": "evil",
        "claims": [f"c{number}" for number in range(100)],
    }
    assert len(repr(by_name["x"].to_result())) < 20_000


def test_a_claim_of_many_volumes_is_one_claim() -> None:
    wants = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": "data"}}
        for number in range(50)
    ]
    found = one(pod(spec={"volumes": wants}), *FINE)
    assert found.workload == {"namespace": "shop", "claims": ["data"]}
    assert len(found.evidence["claims"]) == 1


def test_the_newest_messages_of_an_object_are_kept() -> None:
    newest = Newest()
    for number in range(500):
        said = Message("R", str(number), 1, NOW - timedelta(seconds=(number * 7) % 500))
        newest.add(said)
        newest.add(said)
    newest.add(Message("R", "without a time", 1, None))
    kept = newest.all()
    assert len(kept) == MAX_MESSAGES
    assert {message.last for message in kept} == {
        NOW - timedelta(seconds=number) for number in range(MAX_MESSAGES)
    }


def test_an_object_that_cannot_be_read_is_named_and_the_rest_is_judged() -> None:
    """No API server stores that; whatever it is, one object must not end the run."""
    broken = pod("evil-0", namespace="evil", spec={"volumes": 7})
    odd_claim = {**claim(), "spec": {"accessModes": 7}}
    cluster = fake(broken, pod(), odd_claim, *FINE[1:])
    runbook = Triage(cluster, TriageOptions())
    found = runbook.plan(runbook.gather()).findings
    assert [one.name for one in found if one.kind == "pod"] == ["web-0"]
    (left,) = [one for one in found if one.kind == "objects"]
    assert [text.partition(":")[0] for text in left.evidence["not_assessed"]] == [
        "evil/evil-0",
        "shop/data",
    ]
    for namespace, name, place in (
        ("evil", "evil-0", "evil/evil-0"),
        ("shop", "web-0", "shop/data"),
    ):
        with pytest.raises(StorageOpsError, match=f"cannot read {place}") as error:
            Triage(cluster, TriageOptions(namespace=namespace, pod=name)).gather()
        assert error.value.code == "evidence_unreadable"


@pytest.mark.parametrize("grace", [10**11, 2**63 - 1])
def test_a_pod_that_may_end_for_ever_ends_no_triage(grace: int) -> None:
    meta = {"deletionTimestamp": ago(300), "deletionGracePeriodSeconds": grace}
    endless = pod("evil-0", namespace="evil", metadata=meta)
    found = triage(endless, pod(), claim(namespace="evil"), *FINE)
    assert {one.namespace for one in found} == {"evil", "shop"}
