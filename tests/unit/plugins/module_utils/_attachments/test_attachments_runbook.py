# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read and when, what is done to the cluster, and what is proven of it; against an API
server in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments import (
    runbook as audit,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments.runbook import (
    VolumeAttachments,
    make_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments.state import (
    AttachmentOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import followed
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Conflict,
    Forbidden,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    attachment_name,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Module

DRIVER = "csi.example.com"
OLD = "2026-01-01T00:00:00Z"
VAS = "/apis/storage.k8s.io/v1/volumeattachments"
HEALTHY = [
    "get /version",
    f"list {VAS}",
    "list /api/v1/persistentvolumes",
    "list /api/v1/nodes",
    "list /api/v1/pods",
]
PENDING_ONLY = frozenset({"STOR-15"})

Object = dict[str, Any]


def node(
    name: str = "n1",
    ready: str = "True",
    attached: tuple[str, ...] = (),
    in_use: tuple[str, ...] = (),
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": OLD}],
            "volumesAttached": [
                {"name": unique_name(DRIVER, f"h-{volume}"), "devicePath": ""}
                for volume in attached
            ],
            "volumesInUse": [unique_name(DRIVER, f"h-{volume}") for volume in in_use],
        },
    }


def volume(name: str = "a", phase: str = "Bound", namespace: str = "shop") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": f"h-{name}"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": namespace, "name": f"claim-{name}", "uid": "c"},
        },
        "status": {"phase": phase},
    }


def twin(name: str = "twin") -> Object:
    """Another PersistentVolume for the volume of "a" on the storage."""
    made = volume(name)
    made["spec"]["csi"]["volumeHandle"] = "h-a"
    return made


def claim(name: str = "a", bound_to: str = "a", phase: str = "Bound") -> Object:
    meta = {"name": f"claim-{name}", "namespace": "shop"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {"volumeName": bound_to},
        "status": {"phase": phase},
    }


def attachment(name: str = "a", on: str = "n1", **meta: Any) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {
            "name": attachment_name(DRIVER, f"h-{name}", on),
            "uid": f"uid-{name}-{on}",
            **meta,
        },
        "spec": {"attacher": DRIVER, "nodeName": on, "source": {"persistentVolumeName": name}},
        "status": {"attached": True},
    }


def pod(name: str = "web-0", uses: str = "a", on: str = "n1", phase: str = "Running") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "nodeName": on,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{uses}"}}],
        },
        "status": {"phase": phase},
    }


ORPHAN = attachment()["metadata"]["name"]


class Time:
    """A clock that only runs while somebody sleeps; ``meanwhile`` is what happens then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps.append(seconds)
        self.meanwhile()


def runbook(
    cluster: Any, time: Time | None = None, strict: bool = False, **options: Any
) -> VolumeAttachments:
    time = time or Time()
    given = {"accept_majority": True, **options}
    return VolumeAttachments(
        cluster, AttachmentOptions(**given), 60.0, time.sleep, lambda: time.now, strict
    )


def gather(cluster: FakeCluster, time: Time | None = None, **options: Any) -> Any:
    return runbook(cluster, time, **options).gather()


def repair(
    cluster: FakeCluster, check_mode: bool = False, time: Time | None = None, **options: Any
) -> dict[str, Any]:
    """What the module returns."""
    module = Module(check_mode)
    with pytest.raises(SystemExit):
        engine.run(module, lambda: runbook(cluster, time, **options), False)
    return module.result


def outcomes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["action"], action["outcome"]) for action in result["actions"]]


def left_over(*more: Object, version: str = "v1.31.4") -> FakeCluster:
    """A cluster with an orphan on n1, whose PersistentVolume is released."""
    return FakeCluster(
        node(), node("n2"), volume(phase="Released"), attachment(), *more, version=version
    )


# what is read


def test_a_healthy_cluster_is_five_requests_and_no_waiting() -> None:
    cluster = FakeCluster(
        node(attached=("a",), in_use=("a",)), volume(), attachment(), pod(), pod("idle", on="n2")
    )
    time = Time()
    found = runbook(cluster, time)
    state = found.gather()
    assert cluster.requests == HEALTHY
    assert time.naps == []
    assert found.plan(state).findings == []
    text = (
        "1 VolumeAttachment, 1 PersistentVolume, 1 node, nothing found by STOR-11, STOR-12, "
        "STOR-13, STOR-14, STOR-15"
    )
    assert found.healthy(state) == text


@pytest.mark.parametrize(
    ("controls", "requests"),
    [
        ({"STOR-11"}, HEALTHY[:4]),
        ({"STOR-12"}, HEALTHY[:3]),
        ({"STOR-13"}, HEALTHY[:4]),
        ({"STOR-14"}, HEALTHY[1:2]),
        ({"STOR-15"}, HEALTHY[1:]),
    ],
)
def test_controls_read_only_what_they_need(controls: set[str], requests: list[str]) -> None:
    cluster = FakeCluster(node(attached=("a",), in_use=("a",)), volume(), attachment(), pod())
    gather(cluster, controls=frozenset(controls))
    assert cluster.requests == requests


def test_only_the_pods_of_suspects_are_read() -> None:
    cluster = FakeCluster(
        node(attached=("a", "b"), in_use=("b",)),
        volume(),
        volume("b"),
        attachment(),
        attachment("b"),
        pod(),
    )
    time = Time()
    state = gather(cluster, time)
    # The kubelet has not yet said that it uses "a", but a pod does.
    assert cluster.requests == [*HEALTHY, "list /api/v1/pods"]
    assert [found.name for found in state.first.pods] == ["web-0"]
    assert time.naps == []


def test_a_suspect_is_observed_again() -> None:
    cluster = left_over()
    time = Time()
    state = gather(cluster, time, observations=3, observation_seconds=20)
    assert time.naps == [10, 10]
    assert [seen.at for seen in state.observations] == [0, 10, 20]
    again = [f"get {VAS}/{ORPHAN}", "get /api/v1/persistentvolumes/a", "get /api/v1/nodes/n1"]
    users = ["get /api/v1/namespaces/shop/persistentvolumeclaims/claim-a", "list /api/v1/pods"]
    lease = "get /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
    assert cluster.requests == [
        *HEALTHY,
        *users,
        "list /apis/storage.k8s.io/v1/csidrivers",
        lease,
        *again,
        *users,
        *again,
        *users,
    ]


def test_attachments_are_read_before_pods() -> None:
    cluster = left_over(pod("x", "b", phase="Pending"))
    gather(cluster)
    first = [
        request for request in cluster.requests if request in (f"list {VAS}", "list /api/v1/pods")
    ][0]
    assert first == f"list {VAS}"


def test_many_suspects_cost_lists_instead_of_many_requests() -> None:
    names = [f"v{number}" for number in range(audit.MAX_GETS + 1)]
    objects = [
        item
        for name in names
        for item in (volume(name, "Released"), attachment(name), claim(name, "other"))
    ]
    cluster = FakeCluster(node(), *objects)
    gather(cluster)
    assert cluster.count("list") == 11
    assert cluster.count("get") < 5


def test_many_nodes_cost_a_list_for_each_namespace_or_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "MAX_NODE_LISTS", 1)

    def pod_lists(namespaces: int) -> set[str]:
        wanted = [(f"n{number}", f"ns{number % namespaces}") for number in range(3)]
        objects = [
            item
            for number, (on, space) in enumerate(wanted)
            for item in (
                node(on),
                volume(f"v{number}", namespace=space),
                attachment(f"v{number}", on),
            )
        ]
        cluster = FakeCluster(*objects)
        gather(cluster, controls=frozenset({"STOR-11"}))
        return {request for request in cluster.requests if request.endswith("/pods")}

    assert pod_lists(2) == {"list /api/v1/namespaces/ns0/pods", "list /api/v1/namespaces/ns1/pods"}
    monkeypatch.setattr(audit, "MAX_NAMESPACE_LISTS", 1)
    assert pod_lists(2) == {"list /api/v1/pods"}


def test_pods_that_wait_are_looked_into() -> None:
    waiting = pod(phase="Pending")
    cluster = FakeCluster(
        node(),
        volume(),
        waiting,
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": DRIVER}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e", "namespace": "shop"},
            "reason": "SuccessfulAttachVolume",
            "source": {"component": "attachdetach-controller"},
            "lastTimestamp": OLD,
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
            "spec": {"holderIdentity": "cp1_x"},
        },
    )
    time = Time()
    found = runbook(cluster, time, controls=PENDING_ONLY)
    (finding,) = found.plan(found.gather()).findings
    assert (finding.control, finding.name) == ("STOR-15", "web-0")
    assert finding.evidence["leader"] == "cp1_x"
    assert finding.evidence["last_attach_event_seconds_ago"] > 0
    assert time.naps == [30]
    assert f"get {VAS}/{ORPHAN}" in cluster.requests


@pytest.mark.parametrize("status", [0, 504])
def test_events_that_cannot_be_read_end_no_audit(status: int) -> None:
    """A tenant may write any number of them, and they only explain."""
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": DRIVER}]},
    }
    cluster = FakeCluster(node(), volume(), pod(phase="Pending"), driver)

    def refuse(_verb: str, path: str) -> None:
        if path == "/api/v1/events":
            raise KubeError("no answer in time", status)

    cluster.before = refuse
    found = runbook(cluster, Time(), controls=PENDING_ONLY)
    (finding,) = found.plan(found.gather()).findings
    assert finding.control == "STOR-15"
    assert finding.evidence["last_attach_event_seconds_ago"] is None
    assert "not known, since the events could not be read in time" in finding.reason


def test_a_pod_whose_driver_is_not_on_the_node_is_not_waited_for() -> None:
    time = Time()
    state = gather(FakeCluster(node(), volume(), pod(phase="Pending")), time, controls=PENDING_ONLY)
    assert time.naps == [] and len(state.observations) == 1


def test_an_attachment_that_lacks_metadata_is_not_observed_again() -> None:
    cluster = FakeCluster(node(attached=("a",), in_use=("a",)), volume(), attachment(), pod())
    time = Time()
    found = runbook(cluster, time, required_metadata={DRIVER: ("publishInfo",)})
    (finding,) = found.plan(found.gather()).findings
    assert finding.control == "STOR-14"
    assert finding.evidence["pods"][0].startswith("shop/web-0 Running")
    assert time.naps == []


def test_a_single_control_still_knows_the_volume_and_its_pods() -> None:
    cluster = FakeCluster(volume(), attachment(), pod())
    found = runbook(
        cluster, controls=frozenset({"STOR-14"}), required_metadata={DRIVER: ("publishInfo",)}
    )
    (finding,) = found.plan(found.gather()).findings
    assert finding.workload is not None and finding.workload["claims"] == ["claim-a"]
    assert cluster.requests == [
        f"list {VAS}",
        "list /api/v1/persistentvolumes",
        "list /api/v1/pods",
    ]


def test_no_time_left_to_observe_is_an_error() -> None:
    cluster = left_over()
    cluster.deadline = audit_deadline(20)
    with pytest.raises(StorageOpsError, match="no time to observe suspects for another 30 s"):
        gather(cluster)


def audit_deadline(seconds: float) -> Any:
    return FakeCluster(seconds=seconds).deadline


@pytest.mark.parametrize(
    "request_path", ["/api/v1/pods", "/api/v1/nodes", VAS, "/api/v1/persistentvolumes"]
)
def test_a_list_that_is_forbidden_ends_the_run(request_path: str) -> None:
    cluster = left_over()

    def forbid(_verb: str, path: str) -> None:
        if path == request_path:
            raise Forbidden("cannot list it", 403)

    cluster.before = forbid
    result = repair(cluster)
    assert result["failed"] and result["findings"] == [] and result["changed"] is False
    assert result["msg"] == "cannot list it"


# what is done


def test_an_orphan_is_deleted_and_proven_gone() -> None:
    cluster = left_over()
    result = repair(cluster)
    assert not result["failed"], result["msg"]
    assert result["msg"] == "1 finding, 1 repaired and proven"
    assert outcomes(result) == [("delete_volumeattachment", "done")]
    assert f"{VAS}/{ORPHAN}" not in cluster.objects
    assert result["findings"][0]["evidence"]["proof"][0] == f"{ORPHAN} (uid uid-a-n1) is gone"
    again = repair(cluster)
    assert (again["changed"], again["findings"]) == (False, [])


def test_check_mode_asks_for_a_dry_run_and_deletes_nothing() -> None:
    cluster = left_over()
    result = repair(cluster, check_mode=True)
    assert result["changed"] is True
    assert outcomes(result) == [("delete_volumeattachment", "planned")]
    assert cluster.requests[-1] == f"delete {VAS}/{ORPHAN} (dry run)"
    assert f"{VAS}/{ORPHAN}" in cluster.objects


def test_check_mode_tells_what_would_be_forbidden() -> None:
    cluster = left_over()
    cluster.before = lambda verb, _path: forbid_deletion(verb)
    result = repair(cluster, check_mode=True)
    assert result["changed"] is False
    (found,) = result["findings"]
    assert found["verdict"] == "refuse"
    assert "would fail: no right to delete" in found["reason"]


def forbid_deletion(verb: str) -> None:
    if verb == "delete":
        raise Forbidden("no right to delete", 403)


def test_a_deletion_that_is_refused_changed_nothing() -> None:
    cluster = left_over()
    cluster.before = lambda verb, _path: forbid_deletion(verb)
    result = repair(cluster)
    assert result["failed"] and result["changed"] is False
    assert outcomes(result) == [("delete_volumeattachment", "skipped")]


def before_the_last_look(cluster: FakeCluster, change: Callable[[], None]) -> None:
    """Have the change happen after the plan and before the last look; the third time the attachment
    is read for itself.
    """
    reads = []

    def hook(verb: str, path: str) -> None:
        reads.extend([path] if (verb, path) == ("get", f"{VAS}/{ORPHAN}") else [])
        if len(reads) == 2 and (verb, path) == ("get", f"{VAS}/{ORPHAN}"):
            change()

    cluster.before = hook


WORLD_CHANGES: dict[str, tuple[Callable[[FakeCluster], Any], str]] = {
    "gone": (lambda cluster: cluster.remove(attachment()), "it is gone already"),
    "replaced": (
        lambda cluster: cluster.add(attachment() | {"metadata": {"name": ORPHAN, "uid": "new"}}),
        "replaced by another one of the same name, uid new",
    ),
    "being deleted": (
        lambda cluster: cluster.add(attachment(deletionTimestamp=OLD)),
        "it is already being deleted",
    ),
    "needed": (lambda cluster: cluster.add(pod()), "needed by pod shop/web-0 on n1"),
    "needed by a pending pod": (
        lambda cluster: cluster.add(pod(phase="Pending")),
        "needed by pod shop/web-0 on n1",
    ),
    "in use": (
        lambda cluster: cluster.add(node(in_use=("a",))),
        "needed by the kubelet of n1, by volumesInUse",
    ),
    "node away": (lambda cluster: cluster.add(node(ready="Unknown")), "n1 is not ready"),
    "node gone": (lambda cluster: cluster.remove(node()), "n1 does not exist"),
    "bound again": (
        lambda cluster: cluster.add(volume()),
        "nothing proves any more that it is left over",
    ),
    "another volume of that handle": (
        lambda cluster: cluster.add(twin()),
        "has the same driver and handle",
    ),
}


@pytest.mark.parametrize(("change", "reason"), WORLD_CHANGES.values(), ids=WORLD_CHANGES)
def test_the_world_changes_after_the_plan(
    change: Callable[[FakeCluster], Any], reason: str
) -> None:
    cluster = left_over()
    before_the_last_look(cluster, lambda: change(cluster))
    refused(repair(cluster), reason)
    assert cluster.count("delete") == 0


def refused(result: dict[str, Any], reason: str) -> None:
    """The world did the right thing meanwhile, or somebody else: nothing was done, and that is no
    failure.
    """
    assert (result["failed"], result["changed"], result["actions"]) == (False, False, [])
    (finding,) = [found for found in result["findings"] if found["object"]["name"] == ORPHAN]
    assert finding["verdict"] == "refuse"
    assert reason in finding["reason"]


def test_the_others_are_repaired_though_one_is_gone_by_itself() -> None:
    cluster = left_over(volume("b", "Released"), attachment("b"))
    other = attachment("b")["metadata"]["name"]
    reads = []

    def vanish(verb: str, path: str) -> None:
        reads.extend([path] if (verb, path) == ("get", f"{VAS}/{ORPHAN}") else [])
        if len(reads) == 2 and f"{VAS}/{ORPHAN}" in cluster.objects:
            cluster.remove(attachment())

    cluster.before = vanish
    result = repair(cluster)
    refused(result | {"changed": False, "actions": []}, "it is gone already")
    assert outcomes(result) == [("delete_volumeattachment", "done")]
    assert f"{VAS}/{other}" not in cluster.objects


def test_a_named_attachment_that_is_gone_by_itself_fails_the_run() -> None:
    cluster = left_over()
    before_the_last_look(cluster, lambda: cluster.remove(attachment()))
    result = repair(cluster, names=(ORPHAN,))
    assert result["failed"] and result["changed"] is False
    assert "it is gone already" in result["msg"]


def test_a_failing_last_look_changes_nothing() -> None:
    cluster = left_over()

    def fail() -> None:
        raise KubeError("the API server went away", 0)

    before_the_last_look(cluster, fail)
    result = repair(cluster)
    assert result["failed"] and result["changed"] is False
    assert cluster.count("delete") == 0


def at_the_deletion(cluster: FakeCluster, change: Callable[[], Any]) -> None:
    cluster.before = lambda verb, _path: change() if verb == "delete" else None


def test_one_that_is_replaced_at_the_last_moment_stays() -> None:
    cluster = left_over()
    at_the_deletion(
        cluster, lambda: cluster.add(attachment() | {"metadata": {"name": ORPHAN, "uid": "new"}})
    )
    refused(repair(cluster), "it was replaced meanwhile")
    assert cluster.objects[f"{VAS}/{ORPHAN}"]["metadata"]["uid"] == "new"


def test_a_pod_that_appears_at_the_last_moment_fails_the_run_by_name() -> None:
    cluster = left_over()
    at_the_deletion(cluster, lambda: cluster.add(pod()))
    result = repair(cluster)
    assert result["failed"] and result["changed"] is True
    assert outcomes(result) == [("delete_volumeattachment", "failed")]
    assert "pod shop/web-0 appeared on n1 while its attachment was deleted" in result["msg"]
    assert "workload_reattach -a 'namespace=shop claims=claim-a'" in result["msg"]


@pytest.mark.parametrize("pods", [(), (pod(),)], ids=["nobody came", "a pod came"])
def test_a_deletion_whose_answer_was_lost_was_done(pods: tuple[Object, ...]) -> None:
    """The request was repeated, and met the attachment that the controller manager had
    made since.
    """
    cluster = left_over()

    def lose() -> None:
        cluster.add(attachment() | {"metadata": {"name": ORPHAN, "uid": "new"}})
        for item in pods:
            cluster.add(item)
        error = Conflict("Precondition failed: UID", 409)
        error.repeated = True
        raise error

    at_the_deletion(cluster, lose)
    result = repair(cluster)
    assert result["failed"] and result["changed"] is True
    if pods:
        assert "pod shop/web-0 appeared on n1 while its attachment was deleted" in result["msg"]
    else:
        assert outcomes(result) == [("delete_volumeattachment", "done")]
        assert "it was created again, though no pod needs it" in result["msg"]


def test_an_answer_that_is_lost_may_have_changed_something() -> None:
    cluster = left_over()

    def lose() -> None:
        raise KubeError("no answer", 0)

    at_the_deletion(cluster, lose)
    result = repair(cluster)
    assert result["failed"] and result["changed"] is True


def held(cluster: FakeCluster, **status: Any) -> None:
    item = attachment(finalizers=["external-attacher/x"])
    cluster.add(item | {"status": {"attached": True, **status}})


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "says nothing: is it running?"),
        ({"detachError": {"message": "LUN busy", "time": OLD}}, "says: LUN busy."),
    ],
)
def test_a_held_finalizer_ends_the_wait_and_stays(status: dict[str, Any], said: str) -> None:
    cluster = left_over()
    held(cluster, **status)
    time = Time()
    result = repair(cluster, time=time)
    assert result["failed"] and result["changed"] is True
    assert "still there 60 s later, held by external-attacher/x" in result["msg"]
    assert said in result["msg"]
    assert time.now == 30 + 60
    assert cluster.objects[f"{VAS}/{ORPHAN}"]["metadata"]["finalizers"] == ["external-attacher/x"]
    assert not [request for request in cluster.requests if request.startswith("patch")]
    (finding,) = repair(cluster)["findings"]
    assert finding["verdict"] == "refuse"
    assert "external-attacher/x is held" in finding["reason"]


def test_a_finalizer_that_goes_in_time() -> None:
    cluster = left_over()
    held(cluster)
    time = Time()

    def let_go() -> None:
        if time.now > 40 and f"{VAS}/{ORPHAN}" in cluster.objects:
            cluster.remove(attachment())

    time.meanwhile = let_go
    assert not repair(cluster, time=time)["failed"]


def test_an_attachment_that_comes_back_for_nobody_is_no_proof() -> None:
    cluster = left_over()
    held(cluster)
    time = Time()
    time.meanwhile = lambda: (
        cluster.add(attachment() | {"metadata": {"name": ORPHAN, "uid": "new"}})
        if time.now > 30
        else None
    )
    result = repair(cluster, time=time)
    assert result["failed"]
    assert "not proven: it was created again, though no pod needs it" in result["msg"]


def test_an_attachment_that_comes_back_for_a_pod_is_right() -> None:
    cluster = left_over()
    held(cluster)
    time = Time()

    def pod_comes() -> None:
        if time.now > 30:
            cluster.add(attachment() | {"metadata": {"name": ORPHAN, "uid": "new"}})
            cluster.add(pod())

    time.meanwhile = pod_comes
    assert not repair(cluster, time=time)["failed"]


def test_a_node_status_that_does_not_follow_is_no_proof() -> None:
    cluster = left_over()
    at_the_deletion(cluster, lambda: cluster.add(node(attached=("a",))))
    result = repair(cluster)
    assert result["failed"]
    assert "not proven: volumesAttached of n1 still lists it" in result["msg"]


def test_a_node_that_is_made_again_after_the_deletion_is_no_proof() -> None:
    cluster = left_over()
    stranger = node() | {"metadata": {**node()["metadata"], "uid": "new"}}
    at_the_deletion(cluster, lambda: cluster.add(stranger))
    result = repair(cluster)
    assert result["failed"]
    assert "not proven: n1 is gone, or another node with that name now" in result["msg"]


@pytest.mark.parametrize("check_mode", [True, False], ids=["check", "run"])
def test_what_the_node_status_lists_is_refused_before_it_is_deleted(check_mode: bool) -> None:
    """Check mode plans nothing that the run could not prove."""
    cluster = left_over()
    cluster.add(node(attached=("a",)))
    refused(repair(cluster, check_mode), "volumesAttached of n1 lists it")
    assert cluster.count("delete") == 0


NEW_NODE = {**node()["metadata"], "uid": "new"}


@pytest.mark.parametrize("looks", [1, 2], ids=["while it is observed", "right before"])
def test_a_node_of_the_same_name_is_another_node(looks: int) -> None:
    cluster = left_over()
    reads: list[str] = []

    def made_again(verb: str, path: str) -> None:
        reads.extend([path] if (verb, path) == ("get", "/api/v1/nodes/n1") else [])
        if len(reads) == looks and path == "/api/v1/nodes/n1":
            cluster.add(node() | {"metadata": NEW_NODE})

    cluster.before = made_again
    refused(repair(cluster), "n1 is another node with that name now")
    assert cluster.count("delete") == 0


def test_no_time_left_to_delete() -> None:
    cluster = left_over()
    cluster.deadline = audit_deadline(60)
    result = repair(cluster)
    assert result["failed"] and result["changed"] is False
    assert "less than 65 s are left of the deadline" in result["msg"]


def test_the_sibling_that_waits_is_looked_at_again() -> None:
    """Another node waits for the volume: that is the proof, and it must still hold."""
    waiting = attachment(on="n2") | {
        "status": {"attached": False, "attachError": {"message": "in use by n1", "time": OLD}}
    }
    wants = pod(on="n2", phase="Pending")
    cluster = FakeCluster(node(), node("n2", in_use=("a",)), volume(), attachment(), waiting, wants)
    assert not repair(cluster)["failed"]
    assert f"{VAS}/{ORPHAN}" not in cluster.objects
    cluster.add(attachment())
    before_the_last_look(cluster, lambda: cluster.add(attachment(on="n2")))
    refused(repair(cluster), "nothing proves any more")


def test_without_its_volume_the_claims_are_asked() -> None:
    cluster = FakeCluster(node(), attachment(), claim(bound_to="a"), pod(on="n2"))
    assert not repair(cluster)["failed"]
    assert f"{VAS}/{ORPHAN}" not in cluster.objects
    needed = FakeCluster(node(), attachment(), claim(bound_to="a"), pod())
    assert repair(needed, controls=frozenset({"STOR-11"}))["findings"] == []
    named = FakeCluster(node(), attachment(), claim(bound_to="a", phase="Lost"), pod())
    refused(repair(named, controls=frozenset({"STOR-11"})), "pod shop/web-0 has the claim claim-a")


def test_named_attachments_are_told_why_they_are_in_order() -> None:
    cluster = FakeCluster(node(attached=("a",), in_use=("a",)), volume(), attachment())
    result = repair(cluster, names=(ORPHAN, "csi-gone"))
    assert result["msg"].endswith(
        f"{ORPHAN} is needed by the kubelet of n1, by volumesInUse; csi-gone does not exist"
    )


def test_a_named_attachment_that_is_young_is_told_when_to_look_again() -> None:
    cluster = FakeCluster(
        node(attached=("a",)), volume(phase="Released"), attachment(creationTimestamp=OLD)
    )
    cluster.clock = lambda: datetime(2026, 1, 1, 0, 0, 13, tzinfo=timezone.utc)
    assert repair(cluster, names=(ORPHAN,), min_age_seconds=300.0)["msg"].endswith(
        f"{ORPHAN} is 13 s old, and only what is older than min_age_seconds (300 s) counts as "
        "left over: run again in 287 s, or lower min_age_seconds (playbook: "
        "attachment_repair_min_age_seconds)"
    )


def test_a_pod_of_another_volume_of_the_same_handle_keeps_the_attachment() -> None:
    """Static PersistentVolumes of one share, one for each namespace, have one attachment for each
    node.
    """
    bound = claim("twin", "twin")
    assert (
        repair(left_over(twin(), bound, pod(uses="twin")), controls=frozenset({"STOR-11"}))[
            "findings"
        ]
        == []
    )
    refused(repair(left_over(twin(), bound)), "has the same driver and handle")
    gone = FakeCluster(node(), attachment(), twin(), bound, pod(uses="twin"))
    assert repair(gone, controls=frozenset({"STOR-11"}))["findings"] == []
    assert gone.count("delete") == 0


def test_a_pod_of_another_volume_that_comes_while_it_is_observed() -> None:
    cluster = left_over(twin(), claim("twin", "twin"))
    time = Time()
    time.meanwhile = lambda: cluster.add(pod(uses="twin"))
    assert repair(cluster, time=time, controls=frozenset({"STOR-11"}))["findings"] == []


def test_a_driver_that_is_no_longer_attached_is_not_waited_for() -> None:
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False},
    }
    lost = FakeCluster(node(in_use=("a",)), volume(), attachment(), pod(), driver)
    time = Time()
    assert repair(lost, time=time)["findings"] == []
    assert time.naps == []


def test_drivers_are_read_where_names_collide() -> None:
    name = "csi-unity.dellemc.com"
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"attachRequired": False},
    }
    long = volume()
    long["spec"]["csi"] = {"driver": name, "volumeHandle": "v" * (68 - len(name) - 1)}
    only = frozenset({"STOR-12"})
    assert len(repair(FakeCluster(long, version="v1.20.2"), controls=only)["findings"]) == 1
    assert repair(FakeCluster(long, driver, version="v1.20.2"), controls=only)["findings"] == []


@pytest.mark.parametrize(("hours", "young"), [(-1, True), (1, False)])
def test_ages_are_those_of_the_api_server(hours: int, young: bool) -> None:
    """Whatever the clock of the controller says."""
    made = datetime.now(timezone.utc)
    cluster = FakeCluster(
        node(), volume(phase="Released"), attachment(creationTimestamp=f"{made:%Y-%m-%dT%H:%M:%SZ}")
    )
    cluster.clock = lambda: made + timedelta(hours=hours)
    assert (repair(cluster)["findings"] == []) is young


@pytest.mark.parametrize(
    ("scope", "word"),
    [
        ({"nodes": ("wrker01",)}, "node wrker01"),
        ({"drivers": ("csi.exmaple.com",)}, "driver csi.exmaple.com"),
        ({"namespaces": ("shpo",)}, "namespace shpo"),
    ],
)
def test_a_scope_that_nothing_is_in_is_told(scope: dict[str, tuple[str, ...]], word: str) -> None:
    cluster = left_over()
    told = repair(cluster, **scope)
    assert not told["failed"]
    assert told["msg"].endswith(f"; no VolumeAttachment in the cluster is of {word}")
    result = repair(cluster, strict=True, **scope)
    assert result["failed"] and result["changed"] is False
    assert f"no VolumeAttachment in the cluster is of {word}" in result["msg"]


@pytest.mark.parametrize(
    "scope",
    [{"nodes": ("n1",)}, {"drivers": (DRIVER,)}, {"namespaces": ("shop",)}, {"names": (ORPHAN,)}],
)
def test_a_scope_whose_last_attachment_was_deleted_is_no_error(
    scope: dict[str, tuple[str, ...]],
) -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}}
    cluster = left_over(driver)
    assert repair(cluster, strict=True, **scope)["changed"] is True
    again = repair(cluster, strict=True, **scope)
    assert (again["failed"], again["changed"]) == (False, False)


# options


def params(**given: Any) -> dict[str, Any]:
    defaults = {name: option["default"] for name, option in audit.SCOPE.options.items()}
    return {**defaults, **given}


def test_defaults_of_the_options_are_those_of_the_modules() -> None:
    assert make_options(params()) == AttachmentOptions(max_repairs=1_000_000)
    assert make_options(params(max_repairs=3, accept_majority=True)) == AttachmentOptions(
        max_repairs=3, accept_majority=True
    )
    assert make_options(params(controls=["STOR-12"])).controls == {"STOR-12"}
    assert make_options(params(names=[" csi-1 "])).names == ("csi-1",)


def test_required_metadata_replaces_what_is_known_of_a_driver() -> None:
    options = make_options(params(required_metadata={"csi.huawei.com": [], "x": ["a"]}))
    assert options.required_metadata == {"csi.huawei.com": (), "x": ("a",)}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"observations": 0}, "observations is 0; give at least 1"),
        ({"min_age_seconds": float("nan")}, "min_age_seconds is nan"),
        ({"detach_timeout": 0.5}, "detach_timeout is 0.5"),
        ({"max_repairs": -1}, "max_repairs is -1"),
        ({"controls": []}, "controls is empty"),
        ({"names": [" "]}, "names has an empty name"),
        ({"required_metadata": {"x": "publishInfo"}}, "must give a list of keys for x"),
        ({"required_metadata": {"x": [1]}}, "must give a list of keys for x"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], error: str) -> None:
    with pytest.raises(StorageOpsError, match=error):
        make_options(params(**given))


# where it is read from


class Cached(FakeCluster):
    """An API server whose memory is behind: what it answers from there lacks some objects."""

    def __init__(self, *objects: Object, unknown: str = "") -> None:
        super().__init__(*objects)
        self.unknown = unknown
        self.is_behind = False

    def read(self, path: str, pick: Callable[[Object], Any], **options: Any) -> Any:
        if options.get("cached") and self.is_behind:
            name = self.unknown

            def pick_known(item: Object) -> Any:
                return None if item["metadata"]["name"] == name else pick(item)

            return super().read(path, pick_known, **options)
        return super().read(path, pick, **options)


@pytest.mark.parametrize(
    ("new", "reason"),
    [(pod(), "needed by pod shop/web-0"), (twin(), "has the same driver and handle")],
    ids=["pods", "volumes"],
)
def test_the_last_look_reads_what_etcd_has(new: Object, reason: str) -> None:
    """What the API server has not heard of yet, for it answers from its memory, is seen all the
    same.
    """
    cluster = Cached(
        node(), node("n2"), volume(phase="Released"), attachment(), unknown=new["metadata"]["name"]
    )

    def come() -> None:
        cluster.is_behind = True
        cluster.add(new)

    before_the_last_look(cluster, come)
    refused(repair(cluster), reason)
    assert cluster.count("delete") == 0


def test_the_look_after_the_deletion_reads_what_etcd_has() -> None:
    cluster = Cached(node(), volume(phase="Released"), attachment(), unknown="web-0")

    def come() -> None:
        cluster.is_behind = True
        cluster.add(pod())

    at_the_deletion(cluster, come)
    result = repair(cluster)
    assert result["failed"] and "pod shop/web-0 appeared on n1" in result["msg"]


# what is followed

ONLY_ORPHANS = frozenset({"STOR-11"})


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is suspicious is more than can be read one by one."""
    monkeypatch.setattr(followed, "SHORT", -1)
    monkeypatch.setattr(audit, "MAX_GETS", 0)
    monkeypatch.setattr(audit, "MAX_NODE_LISTS", 0)
    monkeypatch.setattr(audit, "MAX_NAMESPACE_LISTS", 0)


LONG = [
    VAS,
    "/api/v1/persistentvolumes",
    "/api/v1/nodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/pods",
]


def while_it_is_observed(*changes: Callable[[], Any]) -> Time:
    """The time between the two observations, in which this happens."""
    time = Time()
    left = list(changes)

    def happen() -> None:
        while left:
            left.pop(0)()

    time.meanwhile = happen
    return time


@pytest.mark.usefixtures("many")
def test_long_lists_are_read_once_and_asked_for_changes_all_at_once() -> None:
    cluster = left_over(claim("b", "b"))
    time = while_it_is_observed(lambda: cluster.add(claim("c", "c")))
    state = gather(cluster, time, controls=ONLY_ORPHANS)
    lists = [
        request
        for request in cluster.requests
        if request.startswith("list") and request[5:] in LONG
    ]
    assert sorted(lists) == sorted(f"list {where}" for where in LONG)
    asked = [request for request in cluster.requests if request.split()[0] in ("newest", "watch")]
    assert asked == [f"{verb} {where}" for where in LONG for verb in ("newest", "watch")]
    assert cluster.count("get") == 2  # the version, and the lease
    assert (
        list(state.last.attachments) == [ORPHAN]
        and list(state.last.volumes) == ["a"]
        and list(state.last.nodes) == ["n1"]
    )


MOMENTS: dict[str, Callable[[FakeCluster], list[Callable[[], Any]]]] = {
    "a pod": lambda cluster: [lambda: cluster.add(pod()), lambda: cluster.remove(pod())],
    "a pod that ended": lambda cluster: [
        lambda: cluster.add(pod()),
        lambda: cluster.add(pod(phase="Succeeded")),
    ],
    "a pod that starts": lambda cluster: [
        lambda: cluster.add(pod(phase="Pending")),
        lambda: cluster.remove(pod()),
    ],
    "a kubelet": lambda cluster: [
        lambda: cluster.add(node(in_use=("a",))),
        lambda: cluster.add(node()),
    ],
    "a pod that stays": lambda cluster: [lambda: cluster.add(pod())],
    "a kubelet that goes on": lambda cluster: [lambda: cluster.add(node(in_use=("a",)))],
}


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("who", MOMENTS)
def test_what_needed_it_for_a_moment_needs_it(who: str) -> None:
    cluster = left_over()
    result = repair(
        cluster, time=while_it_is_observed(*MOMENTS[who](cluster)), controls=ONLY_ORPHANS
    )
    assert result["findings"] == [] and cluster.count("delete") == 0


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    "other",
    [pod(on="n2"), pod(uses="b"), node("n2", in_use=("a",))],
    ids=["elsewhere", "another's", "elsewhere in use"],
)
def test_who_did_not_need_it_does_not_matter(other: Object) -> None:
    cluster = left_over()

    def come_and_go() -> None:
        cluster.add(other)
        cluster.remove(other)
        cluster.add(node("n2"))

    result = repair(cluster, time=while_it_is_observed(come_and_go), controls=ONLY_ORPHANS)
    assert outcomes(result) == [("delete_volumeattachment", "done")]


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("for_a_moment", [True, False])
def test_an_entry_that_was_there_for_a_moment_is_not_lost(for_a_moment: bool) -> None:
    cluster = FakeCluster(node(in_use=("a",)), volume(), attachment(), pod())
    listed = [lambda: cluster.add(node(attached=("a",), in_use=("a",)))] if for_a_moment else []
    time = while_it_is_observed(*listed, lambda: cluster.add(node(in_use=("a",))))
    found = repair(cluster, time=time, controls=frozenset({"STOR-13"}))["findings"]
    assert [finding["control"] for finding in found] == ([] if for_a_moment else ["STOR-13"])


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("tells", [True, False])
def test_a_watch_that_cannot_tell_is_no_sign_that_nothing_happened(tells: bool) -> None:
    """The API server's memory does not get to know of what comes; etcd has it."""
    cluster = left_over()
    changes = cluster.changes
    cluster.tells_progress = False

    def told(path: str, version: int) -> Any:
        return changes(path, version) if tells else iter([])

    cluster.changes = told  # type: ignore[method-assign]
    time = while_it_is_observed(lambda: cluster.add(pod()))
    assert repair(cluster, time=time, controls=ONLY_ORPHANS)["findings"] == []


@pytest.mark.parametrize("tells", [True, False], ids=["watched", "read again"])
def test_volumes_are_read_once_and_the_own_one_before_each_deletion(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "SHORT", -1)
    cluster = left_over(volume("b", "Released"), attachment("b"))
    cluster.tells_progress = tells
    time = while_it_is_observed(lambda: cluster.add(claim("z", "z")))
    assert len(outcomes(repair(cluster, time=time, controls=ONLY_ORPHANS))) == 2
    asked = [
        request
        for request in cluster.requests
        if "persistentvolumes" in request or request.startswith("delete")
    ]
    before = {asked[at - 1] for at, request in enumerate(asked) if request.startswith("delete")}
    assert before == {f"get /api/v1/persistentvolumes/{name}" for name in "ab"}
    assert asked.count("list /api/v1/persistentvolumes") == (1 if tells else 3)
    assert asked.count("watch /api/v1/persistentvolumes") == (2 if tells else 1)


def test_the_own_volume_is_looked_at_whatever_it_is() -> None:
    """Nothing tells which disk it is, so it does not look like one that shares the attachment."""

    def odd(phase: str) -> Object:
        made = volume(phase=phase)
        made["spec"]["flexVolume"] = made["spec"].pop("csi")
        return made

    cluster = FakeCluster(node(), node("n2"), odd("Released"), attachment())
    before_the_last_look(cluster, lambda: cluster.add(odd("Bound")) and None)
    refused(repair(cluster), "nothing proves any more that it is left over")
    assert cluster.count("delete") == 0


@pytest.mark.parametrize("tells", [True, False], ids=["watched", "read again"])
def test_a_twin_that_comes_between_two_deletions(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "SHORT", -1)
    cluster = left_over(volume("b", "Released"), attachment("b"))
    cluster.tells_progress = tells

    def come(verb: str, path: str) -> None:
        if verb == "delete":
            made = volume("twin")
            made["spec"]["csi"]["volumeHandle"] = "h-b" if path.endswith(ORPHAN) else "h-a"
            cluster.add(made)

    cluster.before = come
    result = repair(cluster, controls=ONLY_ORPHANS)
    assert outcomes(result) == [("delete_volumeattachment", "done")]
    (refusal,) = [found for found in result["findings"] if found["verdict"] == "refuse"]
    assert "has the same driver and handle" in refusal["reason"]
    assert f"{VAS}/{refusal['object']['name']}" in cluster.objects


# claims that are gone


def test_a_pod_whose_claim_and_volume_are_gone_keeps_the_attachment() -> None:
    cluster = FakeCluster(node(), attachment(), pod())
    refused(
        repair(cluster, controls=frozenset({"STOR-11"})), "names the claim claim-a, which does not"
    )
    assert cluster.count("delete") == 0


def test_a_pod_that_comes_with_a_claim_that_does_not_exist_is_seen_by_the_last_look() -> None:
    cluster = FakeCluster(node(), attachment())
    before_the_last_look(cluster, lambda: cluster.add(pod()) and None)
    refused(repair(cluster), "names the claim claim-a, which does not exist")


WAITS = {"containerID": "", "restartCount": 0, "lastState": {}, "state": {"waiting": {}}}


@pytest.mark.parametrize(
    ("statuses", "ran"),
    [
        ({}, False),
        ({"containerStatuses": [WAITS], "initContainerStatuses": [WAITS]}, False),
        ({"containerStatuses": [WAITS], "initContainerStatuses": [{"state": {}}]}, True),
        ({"initContainerStatuses": [{**WAITS, "containerID": "containerd://1"}]}, True),
        ({"containerStatuses": [{**WAITS, "restartCount": 1}]}, True),
        ({"containerStatuses": [{**WAITS, "lastState": {"terminated": {}}}]}, True),
    ],
)
@pytest.mark.parametrize("made_since", [False, True])
def test_a_pod_that_never_ran_keeps_no_attachment_of_others(
    statuses: Object, ran: bool, made_since: bool
) -> None:
    """A tenant can have one on each node, for ever, with a claim that does not exist, or was made
    after it.
    """
    waits = pod("x", uses="nothing", phase="Pending")
    waits["status"].update(statuses)
    waits["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    late = claim("nothing", bound_to="", phase="Pending")
    late["metadata"]["creationTimestamp"] = "2020-01-02T00:00:00Z"
    cluster = FakeCluster(node(), attachment(), waits, *([late] if made_since else []))
    result = repair(cluster, controls=frozenset({"STOR-11"}))
    if ran:
        refused(result, "was there before its claim" if made_since else "which does not exist")
    else:
        assert outcomes(result) == [("delete_volumeattachment", "done")]


def test_what_a_kubelet_mounts_before_the_first_container_starts_stays() -> None:
    """It has the volume in volumesInUse by then."""
    waits = pod("x", uses="nothing", phase="Pending")
    busy = node(in_use=("a",))
    assert repair(FakeCluster(busy, attachment(), waits))["findings"] == []
    cluster = FakeCluster(node(), attachment(), waits)
    before_the_last_look(cluster, lambda: cluster.add(busy) and None)
    result = repair(cluster, controls=frozenset({"STOR-11"}))
    assert outcomes(result) == [] and cluster.count("delete") == 0


def test_a_volume_that_was_made_available_by_hand_is_left_over_unless_a_claim_still_has_it() -> (
    None
):
    free = volume(phase="Available")
    del free["spec"]["claimRef"]
    assert outcomes(repair(FakeCluster(node(), free, attachment()))) == [
        ("delete_volumeattachment", "done")
    ]
    needed = FakeCluster(node(), free, attachment(), claim(), pod())
    assert repair(needed, controls=frozenset({"STOR-11"}))["findings"] == []
    assert needed.count("delete") == 0


# what was named


@pytest.mark.parametrize(
    ("named", "seconds", "verdict"),
    [(True, 130, "repair"), (True, 129, "refuse"), (False, 130, "report")],
)
def test_a_named_attachment_that_is_unused_for_long(
    named: bool, seconds: float, verdict: str
) -> None:
    """Longer than any controller manager waits between two tries to detach."""
    cluster = FakeCluster(node(), volume(), attachment())
    names = (ORPHAN,) if named else ()
    result = repair(cluster, names=names, observation_seconds=seconds)
    (finding,) = result["findings"]
    assert finding["verdict"] == verdict
    assert (f"{VAS}/{ORPHAN}" not in cluster.objects) is (verdict == "repair")
    if verdict != "repair":
        assert "its PersistentVolume is Bound" in finding["reason"]
        assert "observation_seconds: 130" in finding["reason"]
