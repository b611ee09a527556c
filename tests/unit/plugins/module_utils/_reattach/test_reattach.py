# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is moved, how, and who is not; what is taken back, what a later run finishes, and what counts
as proof.
"""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import objects
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Cluster,
    Conflict,
    KubeError,
    TooMany,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    attachment_name,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach import (
    gathering,
    records,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach import runbook as io
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach.records import (
    ReattachOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach.runbook import (
    Reattach,
    reattach_options,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster, path_of
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Exit, Module

DRIVER = "csi.example.com"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/storage-ops/leases"
is_held = objects.is_held
OLD = "2026-01-01T00:00:00Z"


def node(name: str, ready: str = "True", **fields: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": OLD}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **fields},
        "spec": {},
        "status": {"conditions": conditions},
    }


def claim(name: str, phase: str = "Bound", **meta: Any) -> list[dict[str, Any]]:
    reference = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}", **meta},
            "spec": {"volumeName": f"pv-{name}", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": phase},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}"},
            "spec": {
                "csi": {"driver": DRIVER, "volumeHandle": f"h-{name}"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": reference,
            },
            "status": {"phase": "Bound"},
        },
    ]


def attachment(
    claim_name: str, node_name: str, metadata: dict[str, str] | None = None, **meta: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(DRIVER, f"h-{claim_name}", node_name), **meta},
        "spec": {
            "attacher": DRIVER,
            "nodeName": node_name,
            "source": {"persistentVolumeName": f"pv-{claim_name}"},
        },
        "status": {"attached": True, "attachmentMetadata": metadata or {}},
    }


def owner(kind: str, name: str) -> dict[str, Any]:
    group = {
        "ReplicationController": "v1",
        "Job": "batch/v1",
        "Node": "v1",
        "Custom": "example.com/v1",
    }.get(kind, "apps/v1")
    reference = {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-{name}"}
    return {"ownerReferences": [{**reference, "controller": True}]}


REPLICA_SET = ("ReplicaSet", "web-1")


def pod(
    name: str,
    node_name: str,
    *claims: str,
    made_by: tuple[str, str] | None = REPLICA_SET,
    **fields: Any,
) -> dict[str, Any]:
    volumes = [
        {"name": claim_name, "persistentVolumeClaim": {"claimName": claim_name}}
        for claim_name in claims
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "shop",
            "name": name,
            **(owner(*made_by) if made_by else {}),
            **fields.pop("meta", {}),
        },
        "spec": {
            "nodeName": node_name,
            "volumes": volumes,
            "terminationGracePeriodSeconds": 1,
            **fields,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def workload(kind: str, name: str, replicas: int = 1, **template: Any) -> dict[str, Any]:
    meta = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta,
        "spec": {"replicas": replicas, "template": {"spec": template}},
    }


def replica_set() -> dict[str, Any]:
    meta = {"namespace": "shop", "name": "web-1", "uid": "uid-web-1", **owner("Deployment", "web")}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {}}


class World(FakeCluster):
    """An API server whose controllers act at once: an evicted pod's volume is detached, and the pod
    is made again where it may run.
    """

    def __init__(self, *objects: dict[str, Any], version: str = "v1.31.4") -> None:
        super().__init__(node("n1"), node("n2"), replica_set(), version=version)
        self.detaches = True
        self.returns_to = "n2"
        self.metadata: dict[str, str] = {"publishInfo": "{}"}
        self.born = 0
        for item in objects:
            self.add(item)
            for made_by in item["metadata"].get("ownerReferences", []):
                if made_by["kind"] == "StatefulSet" and not any(
                    item["kind"] == "StatefulSet" for item in objects
                ):
                    self.add(workload("StatefulSet", made_by["name"]))

    def at(self, kind: str, name: str) -> dict[str, Any] | None:
        return next(
            (
                item
                for item in self.objects.values()
                if item["kind"] == kind and item["metadata"]["name"] == name
            ),
            None,
        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.objects.values() if item["kind"] == kind]

    def list(self, path: str, pick: Any, **how: Any) -> list[Any]:
        self._controllers()
        return super().list(path, pick, **how)

    def patch(
        self, path: str, body: Any, dry_run: bool = False, kind: str = "merge"
    ) -> dict[str, Any]:
        answer = super().patch(path, body, dry_run, kind)
        if "/deployments/" in path and not dry_run and answer["spec"]["replicas"] == 0:
            for item in self.of("Pod"):
                self._delete(item)
        return answer

    def _delete(self, item: dict[str, Any]) -> None:
        super()._delete(item)
        if item["kind"] != "Pod" or path_of(item) in self.objects:
            return
        for volume in item["spec"]["volumes"]:
            name = volume["persistentVolumeClaim"]["claimName"]
            old = self.at(
                "VolumeAttachment", attachment_name(DRIVER, f"h-{name}", item["spec"]["nodeName"])
            )
            if old and self.detaches:
                super()._delete(old)
        deployment = self.at("Deployment", "web")
        self.born += 1
        if deployment is None or deployment["spec"]["replicas"]:
            again = {
                key: value
                for key, value in item["metadata"].items()
                if key in ("namespace", "ownerReferences")
            }
            self._make({**item, "metadata": {**again, "name": f"again-{self.born}"}})
        else:
            self.waiting = {
                **item,
                "metadata": {
                    "namespace": "shop",
                    "name": f"again-{self.born}",
                    **owner("ReplicaSet", "web-1"),
                },
            }

    def _make(self, item: dict[str, Any]) -> None:
        status = {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
            ],
        }
        self.add({**item, "spec": {**item["spec"], "nodeName": ""}, "status": status})

    def _controllers(self) -> None:
        deployment = self.at("Deployment", "web")
        if deployment and deployment["spec"]["replicas"] and getattr(self, "waiting", None):
            self._make(self.waiting)
            self.waiting = None
        for item in self.of("Pod"):
            target = self.at("Node", self.returns_to)
            if (
                item["spec"]["nodeName"]
                or not target
                or target["spec"].get("unschedulable")
                or is_held(target)
            ):
                continue
            item["spec"]["nodeName"] = self.returns_to
            item["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            for volume in item["spec"]["volumes"]:
                made = attachment(
                    volume["persistentVolumeClaim"]["claimName"], self.returns_to, self.metadata
                )
                if path_of(made) not in self.objects:
                    self.add(made)


def n1(world: World) -> dict[str, Any]:
    return world.objects["/api/v1/nodes/n1"]


def held(world: World) -> bool:
    """New pods are kept off node n1."""
    return is_held(n1(world))


QUICK = {"eviction_timeout": 6.0, "detach_timeout": 1.0, "ready_timeout": 1.0}
# For what is never detached: these waits do not sleep, they keep a processor busy.
NEVER = {**QUICK, "detach_timeout": 0.05}


def run(
    world: Any, *claims: str, check: bool = False, sleep: Any = None, **given: Any
) -> dict[str, Any]:
    module = Module(check)
    options = ReattachOptions("shop", claims or ("data",), **{**QUICK, **given})
    with pytest.raises(Exit):
        engine.run(
            module,
            lambda: Reattach(
                lambda _seconds: world, 300.0, options, sleep=sleep or (lambda _seconds: None)
            ),
            False,
        )
    return module.result


def outcomes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["action"], action["outcome"]) for action in result["actions"]]


def plan(world: Any, *claims: str, **given: Any) -> Plan:
    reattach = Reattach(
        lambda _seconds: world, 300.0, ReattachOptions("shop", claims or ("data",), **given)
    )
    return reattach.plan(reattach.gather())


def refusal(world: World, *claims: str, **given: Any) -> str:
    """Run it, and see it refused: the reason."""
    before = json.dumps(world.objects, sort_keys=True)
    result = run(world, *claims, **given)
    assert result["failed"]
    assert result["actions"] == []
    assert not result["changed"]
    assert json.dumps(world.objects, sort_keys=True) == before
    assert [finding["verdict"] for finding in result["findings"]] == ["refuse"]
    return str(result["findings"][0]["reason"])


def standard(*more: dict[str, Any], **fields: Any) -> World:
    """A Deployment with one pod on n1."""
    return World(
        *claim("data"),
        attachment("data", "n1"),
        pod("web-a", "n1", "data", **fields),
        workload("Deployment", "web"),
        *more,
    )


# moving


def test_a_pod_is_moved_and_proven() -> None:
    world = standard()
    old = world.of("VolumeAttachment")[0]["metadata"]["uid"]
    result = run(world)
    assert not result["failed"], result["msg"]
    assert outcomes(result) == [
        ("cordon_node", "done"),
        ("evict_pod", "done"),
        ("wait_detached", "done"),
        ("uncordon_node", "done"),
    ]
    finding = result["findings"][0]
    assert finding["object"] == {
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "node": "n1",
    }
    new = world.of("VolumeAttachment")
    assert [item["spec"]["nodeName"] for item in new] == ["n2"]
    assert new[0]["metadata"]["uid"] != old
    assert any(new[0]["metadata"]["uid"] in line for line in finding["evidence"]["proof"])
    left = n1(world)
    assert not is_held(left) and not left["metadata"].get("annotations")


def test_check_mode_rehearses_and_changes_nothing() -> None:
    world = standard()
    before = json.dumps(world.objects, sort_keys=True)
    result = run(world, check=True)
    assert result["changed"] and not result["failed"]
    assert {outcome for _verb, outcome in outcomes(result)} == {"planned"}
    assert json.dumps(world.objects, sort_keys=True) == before
    assert [request for request in world.requests if request.endswith("(dry run)")] == [
        f"create {LEASES} (dry run)",
        "patch /api/v1/nodes/n1 (dry run)",
        "create /api/v1/namespaces/shop/pods/web-a/eviction (dry run)",
    ]


def test_a_workload_that_can_run_only_on_its_node_returns_after_the_uncordon() -> None:
    world = standard()
    world.returns_to = "n1"
    result = run(world)
    assert not result["failed"], result["msg"]
    assert [item["spec"]["nodeName"] for item in world.of("Pod")] == ["n1"]


def test_without_a_condition_it_moves_every_time() -> None:
    world = standard()
    assert outcomes(run(world))
    world.returns_to = "n1"
    assert ("evict_pod", "done") in outcomes(run(world))


@pytest.mark.parametrize("condition", ["attachments", "required_metadata"])
def test_with_a_condition_a_second_run_does_nothing(condition: str) -> None:
    world = standard()
    uid = world.of("VolumeAttachment")[0]["metadata"]["uid"]
    given: dict[str, Any] = (
        {"attachments": (uid,)}
        if condition == "attachments"
        else {"required_metadata": ("publishInfo",)}
    )
    first = run(world, **given)
    assert ("evict_pod", "done") in outcomes(first), first["msg"]
    second = run(world, **given)
    assert not second["failed"] and not second["changed"] and second["findings"] == []


def test_only_what_lacks_the_metadata_is_moved() -> None:
    world = World(
        *claim("a"),
        *claim("b"),
        attachment("a", "n1"),
        attachment("b", "n1", {"publishInfo": "x"}),
        pod("a-0", "n1", "a", made_by=("StatefulSet", "a")),
        pod("b-0", "n1", "b", made_by=("StatefulSet", "b")),
    )
    stays = world.at("Pod", "b-0")
    result = run(world, "a", "b", required_metadata=("publishInfo",))
    assert not result["failed"], result["msg"]
    assert [
        action["target"] for action in result["actions"] if action["action"] == "evict_pod"
    ] == ["shop/a-0"]
    assert world.at("Pod", "b-0") == stays


def test_claims_that_share_a_pod_are_moved_together_and_others_one_after_the_other() -> None:
    world = World(
        *claim("a"),
        *claim("b"),
        *claim("c"),
        attachment("a", "n1"),
        attachment("b", "n1"),
        attachment("c", "n1"),
        pod("ab-0", "n1", "a", "b", made_by=("StatefulSet", "ab")),
        pod("c-0", "n1", "c", made_by=("StatefulSet", "c")),
    )
    result = run(world, "c", "b", "a")
    assert not result["failed"], result["msg"]
    assert [
        action["target"] for action in result["actions"] if action["action"] == "wait_detached"
    ] == ["c", "a, b"]


def test_a_pod_that_is_going_already_is_only_waited_for() -> None:
    world = standard(meta={"deletionTimestamp": "2999-01-01T00:00:00Z"})
    verbs = [action.verb for action in plan(world).actions]
    assert verbs == ["cordon_node", "wait_detached", "uncordon_node"]


def test_pods_that_have_ended_are_no_concern() -> None:
    ended = pod("old", "n1", "data")
    ended["status"] = {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {}}}]}
    world = World(*claim("data"), ended)
    result = run(world)
    assert result["msg"] == "nothing to do: no pod that runs on a node uses data in shop"


def test_a_node_that_has_no_room_for_the_note_is_left_all_the_same() -> None:
    """Its kubelet may fill the annotations of its own Node. Moves of two namespaces failed so, and
    no workload of their driver was moved any more, from any node. The Lease is what counts.
    """
    world = standard()
    n1(world)["metadata"]["annotations"] = {"full": "x" * (256 * 1024 - len("full"))}
    result = run(world)
    assert not result["failed"], result["msg"]
    assert [item["spec"]["nodeName"] for item in world.of("VolumeAttachment")] == ["n2"]
    assert not held(world) and list(n1(world)["metadata"]["annotations"]) == ["full"]
    assert not world.of("Lease")


def test_a_cordon_by_somebody_else_stays() -> None:
    world = standard()
    world.objects["/api/v1/nodes/n1"]["spec"]["unschedulable"] = True
    result = run(world)
    assert not result["failed"], result["msg"]
    assert world.objects["/api/v1/nodes/n1"]["spec"] == {"unschedulable": True}
    assert "n1 is cordoned, and not by us" in result["findings"][0]["evidence"]["proof"]


@pytest.mark.parametrize(
    "verb", ["/eviction", "/nodes/n1"], ids=["while it is held", "as it is held"]
)
def test_a_node_that_an_operator_cordons_meanwhile_stays_cordoned(verb: str) -> None:
    """Of one that is cordoned already "kubectl cordon" sends nothing, so ours must be none."""
    world = standard()

    def operator(_verb: str, path: str) -> None:
        if path.endswith(verb):
            assert verb != "/eviction" or held(world) and "unschedulable" not in n1(world)["spec"]
            n1(world)["spec"]["unschedulable"] = True

    world.before = operator
    result = run(world)
    assert not result["failed"], result["msg"]
    assert n1(world)["spec"] == {"unschedulable": True} and not n1(world)["metadata"]["annotations"]


def test_taints_of_others_stay() -> None:
    world = standard()
    theirs = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    n1(world)["spec"]["taints"] = theirs
    assert not run(world)["failed"]
    assert n1(world)["spec"]["taints"] == theirs and not n1(world)["metadata"]["labels"]


def test_a_cordon_of_another_move_is_shared() -> None:
    """The node is released by whoever is last."""
    other = ledger(claims=("other",), key="runbooks.storage-ops/cordon.00000000")
    world = standard()
    hold(world, "n1", other)
    result = run(world)
    assert not result["failed"], result["msg"]
    assert ("cordon_node", "done") in outcomes(result)
    left = world.objects["/api/v1/nodes/n1"]
    assert is_held(left)
    assert list(left["metadata"]["annotations"]) == [other.key]


@pytest.mark.parametrize(
    ("version", "api"),
    [("v1.20.2", "policy/v1beta1"), ("v1.22.0", "policy/v1"), ("v1.36.3", "policy/v1")],
)
def test_the_eviction_fits_the_version(version: str, api: str) -> None:
    world = World(
        *claim("data"), attachment("data", "n1"), pod("web-a", "n1", "data"), version=version
    )
    bodies: list[dict[str, Any]] = []
    create = world.create

    def spy(path: str, body: dict[str, Any], **how: Any) -> dict[str, Any]:
        bodies.append(body)
        return create(path, body, **how)

    world.create = spy  # type: ignore[method-assign]
    uid = world.of("Pod")[0]["metadata"]["uid"]
    run(world)
    (body,) = [body for body in bodies if body["kind"] == "Eviction"]
    assert body["apiVersion"] == api
    assert body["deleteOptions"]["preconditions"] == {"uid": uid}


# refusing


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"made_by": None}, "has no controller"),
        ({"made_by": ("DaemonSet", "ds")}, "a DaemonSet's pod comes back to its node"),
        ({"made_by": ("Job", "job")}, "counts as a failure of the Job"),
        ({"made_by": ("Node", "n1")}, "static pod"),
        ({"meta": {"deletionTimestamp": OLD}}, "should have been gone"),
        ({"tolerations": [{"operator": "Exists"}]}, "set scale_down to scale Deployment web down"),
        (
            {"tolerations": [{"operator": "Exists"}], "made_by": ("Custom", "x")},
            "none that can be scaled here",
        ),
    ],
)
def test_pods_that_are_not_moved(fields: dict[str, Any], reason: str) -> None:
    assert reason in refusal(standard(**fields))


def test_a_custom_controller_is_trusted_only_if_that_is_accepted() -> None:
    reason = refusal(standard(made_by=("Custom", "pg")))
    assert (
        "belongs to Custom.example.com pg, a kind that is not known to recreate its pods" in reason
    )
    result = run(standard(made_by=("Custom", "pg")), accept_unknown_owners=True)
    assert not result["failed"], result["msg"]
    assert result["findings"][0]["object"]["kind"] == "Custom"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (
            {"apiVersion": "example.com/v1"},
            "belongs to ReplicaSet.example.com web-1, a kind that is",
        ),
        ({"uid": "another"}, "its ReplicaSet.apps web-1 is gone, or being deleted"),
        ({"name": "web-2"}, "its ReplicaSet.apps web-2 is gone, or being deleted"),
    ],
)
def test_only_an_owner_that_is_there_makes_its_pods_again(
    reference: dict[str, str], reason: str
) -> None:
    world = standard()
    for item in world.of("Pod"):
        item["metadata"]["ownerReferences"][0].update(reference)
    assert reason in refusal(world)
    assert "web-1" not in reason or refusal(world, accept_unknown_owners="is gone" in reason)


def test_an_owner_that_is_being_deleted_makes_no_pods_again() -> None:
    world = standard()
    world.of("ReplicaSet")[0]["metadata"]["deletionTimestamp"] = OLD
    assert "its ReplicaSet.apps web-1 is gone, or being deleted" in refusal(world)


def test_a_replication_controller_makes_its_pods_again() -> None:
    meta = {"namespace": "shop", "name": "rc", "uid": "uid-rc"}
    item = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": meta}
    result = run(standard(item, made_by=("ReplicationController", "rc")))
    assert not result["failed"], result["msg"]


def test_an_attachment_that_is_older_than_its_node_is_not_moved_off() -> None:
    world = standard()
    n1(world)["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    assert "n1 was created again after the attachment" in refusal(world)


@pytest.mark.parametrize("gone", [True, False])
def test_a_node_that_is_made_again_while_it_is_left_is_no_proof(gone: bool) -> None:
    """The status of the new one lists nothing as in use; the host of the old one may have it
    mounted.
    """
    world = standard()
    stranger = node("n1", uid="another")

    def made_again(_verb: str, path: str) -> None:
        if path.endswith("/eviction"):
            world.remove(n1(world))
            if not gone:
                world.add(stranger)

    world.before = made_again
    result = run(world)
    assert result["failed"] and "node n1 is gone, or another one now" in result["msg"]


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_a_fail_over(ready: str) -> None:
    world = World(
        *claim("data"), attachment("data", "n3"), pod("web-a", "n3", "data"), node("n3", ready)
    )
    assert f"node n3 of pod shop/web-a is not Ready ({ready})" in refusal(world)


def test_a_node_that_does_not_exist_is_a_fail_over() -> None:
    world = World(*claim("data"), attachment("data", "n3"), pod("web-a", "n3", "data"))
    assert "fail_over_volumes" in refusal(world)


def test_claims_that_are_not_in_order() -> None:
    assert refusal(World()) == "there is no claim data"
    assert "is not bound to a volume (phase Pending)" in refusal(
        World(*claim("data", phase="Pending"))
    )
    assert "generic ephemeral volume" in refusal(World(*claim("data", **owner("Pod", "web-a"))))


@pytest.mark.parametrize("phase", ["Pending", "Lost", "Bound"])
@pytest.mark.parametrize("uid", ["uid-data", "uid-old", ""])
def test_a_claim_that_names_the_volume_of_another_moves_nothing_of_it(phase: str, uid: str) -> None:
    """Whoever makes it may name any volume."""
    claimed, named = claim("data", phase=phase)
    space = "bank" if uid == "uid-data" else "shop"
    named["spec"]["claimRef"] = {"namespace": space, "name": "data", "uid": uid}
    world = World(claimed, named, attachment("data", "n1"), pod("web-a", "n1", "data"))
    uids = (world.of("VolumeAttachment")[0]["metadata"]["uid"],)
    for given in ({}, {"attachments": uids}, {"required_metadata": ("publishInfo",)}):
        assert "claim data is not bound to a volume" in refusal(world, **given)
        (finding,) = run(world, **given)["findings"]
        assert (finding["evidence"]["volumes"], finding["evidence"]["attachments"]) == ([], [])


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "PersistentVolume"])
def test_what_is_being_deleted_is_not_moved(kind: str) -> None:
    """Only its pods keep it: without them it goes, and by the reclaim policy its data."""
    world = standard()
    world.of(kind)[0]["metadata"]["deletionTimestamp"] = OLD
    assert "data is being deleted, and only its pods keep the data" in refusal(world)


@pytest.mark.parametrize("tolerations", [[], [{"operator": "Exists"}]])
def test_a_claim_that_is_deleted_right_before_its_pod_goes(
    tolerations: list[dict[str, str]],
) -> None:
    world = standard(tolerations=tolerations)
    nodes: list[str] = []

    def delete(verb: str, path: str) -> None:
        # The last look before the first change has read the owners of the pods.
        nodes.extend([path] if path.endswith("/replicasets/web-1") else [])
        if len(nodes) == 2:
            world.of("PersistentVolumeClaim")[0]["metadata"]["deletionTimestamp"] = OLD

    world.before = delete
    result = run(world, scale_down=True)
    assert result["failed"] and "claim data is being deleted" in result["msg"], result
    assert world.at("Pod", "web-a") and not held(world)
    assert world.of("Deployment")[0]["spec"]["replicas"] == 1


def test_a_pod_with_an_ephemeral_volume_besides_is_not_moved() -> None:
    world = standard()
    world.of("Pod")[0]["spec"]["volumes"].append({"name": "cache", "ephemeral": {}})
    assert "has generic ephemeral volumes (cache), whose data is deleted with it" in refusal(world)


def test_what_is_lost_with_a_pod_is_told() -> None:
    world = standard()
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    world.of("Pod")[0]["spec"]["volumes"] += volumes
    assert plan(world).findings[0].evidence["empty_dirs"] == ["shop/web-a: scratch"]


def test_ages_are_by_the_clock_of_the_api_server() -> None:
    """Ours says that the pod should have gone long ago."""
    world = standard(meta={"deletionTimestamp": OLD})
    world.now = lambda: datetime(2026, 1, 1, 0, 0, 10, tzinfo=timezone.utc)  # type: ignore[method-assign]
    assert [action.verb for action in plan(world).actions] == [
        "cordon_node",
        "wait_detached",
        "uncordon_node",
    ]


def test_more_pods_than_max_repairs() -> None:
    world = standard(pod("web-b", "n1", "data"))
    assert "2 pods would be moved, and max_repairs is 1" in refusal(world, max_repairs=1)


def test_max_repairs_is_for_the_whole_run() -> None:
    world = World(
        *claim("a"),
        *claim("b"),
        attachment("a", "n1"),
        attachment("b", "n1"),
        pod("a-0", "n1", "a"),
        pod("b-0", "n1", "b"),
    )
    result = run(world, "a", "b", max_repairs=1)
    assert result["failed"] and result["changed"]
    assert sorted(finding["verdict"] for finding in result["findings"]) == ["refuse", "repair"]
    assert (
        "1 pods would be moved, and max_repairs is 1 pods a run, of which 0 are left"
        in result["msg"]
    )


def test_an_attachment_nobody_stands_on() -> None:
    world = standard(attachment("data", "n2", uid="orphan"))
    assert "there is no pod to move (see STOR-11)" in refusal(world, attachments=("orphan",))


def test_an_attachment_that_is_held_by_a_finalizer() -> None:
    held = attachment(
        "data",
        "n2",
        uid="held",
        deletionTimestamp=OLD,
        finalizers=["external-attacher/csi-example-com"],
    )
    held["status"]["detachError"] = {"message": "array is busy", "time": OLD}
    reason = refusal(standard(held), attachments=("held",))
    assert "held by external-attacher/csi-example-com" in reason and "array is busy" in reason


def test_an_attachment_of_another_volume_is_a_mistake() -> None:
    world = standard(*claim("other"), attachment("other", "n1", uid="stranger"))
    result = run(world, attachments=("stranger",))
    assert result["failed"] and "of another volume" in result["msg"]


# scaling


def tolerant(*more: dict[str, Any], **fields: Any) -> World:
    return standard(*more, tolerations=[{"operator": "Exists"}], **fields)


def test_what_a_cordon_does_not_keep_away_is_scaled_down_and_up() -> None:
    world = tolerant()
    result = run(world, scale_down=True)
    assert not result["failed"], result["msg"]
    assert outcomes(result) == [
        ("scale_down", "done"),
        ("wait_detached", "done"),
        ("scale_up", "done"),
    ]
    deployment = world.at("Deployment", "web")
    assert (
        deployment
        and deployment["spec"]["replicas"] == 1
        and not deployment["metadata"]["annotations"]
    )
    assert "create /api/v1/namespaces/shop/pods/web-a/eviction (dry run)" in world.requests


def test_a_template_that_names_its_node_is_scaled_too() -> None:
    world = World(
        *claim("data"),
        attachment("data", "n1"),
        pod("web-a", "n1", "data"),
        workload("Deployment", "web", nodeName="n1"),
    )
    assert "names its node in its template: set scale_down" in refusal(world)
    assert "(playbook: workload_reattach_scale_down)" in refusal(world)


def test_an_autoscaler_would_work_against_it() -> None:
    scaler = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
    }
    assert "HorizontalPodAutoscaler" in refusal(tolerant(scaler), scale_down=True)


def stateful(policy: str, replicas: int = 1) -> World:
    made = workload("StatefulSet", "db", replicas)
    made["spec"]["persistentVolumeClaimRetentionPolicy"] = {
        "whenDeleted": "Retain",
        "whenScaled": policy,
    }
    tolerations = [{"operator": "Exists"}]
    return World(
        *claim("data"),
        attachment("data", "n1"),
        made,
        pod("db-0", "n1", "data", made_by=("StatefulSet", "db"), tolerations=tolerations),
    )


def test_scaling_must_not_delete_claims() -> None:
    for given in ({}, {"scale_down": True}):
        reason = refusal(stateful("Delete"), **given)
        assert reason == f"StatefulSet shop/db is not scaled down: {records.DELETES_CLAIMS}"
    assert [action.verb for action in plan(stateful("Retain"), scale_down=True).actions] == [
        "scale_down",
        "wait_detached",
        "scale_up",
    ]


def test_scaling_that_would_delete_claims_by_now() -> None:
    world = stateful("Retain")
    path = "/apis/apps/v1/namespaces/shop/statefulsets/db"

    def change(verb: str, asked: str) -> None:
        if (verb, asked) == ("get", path):
            world.objects[path]["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = (
                "Delete"
            )

    world.before = change
    result = run(world, scale_down=True)
    assert result["failed"] and not result["changed"] and records.DELETES_CLAIMS in result["msg"], (
        result
    )
    assert world.objects[path]["spec"]["replicas"] == 1


def test_a_workload_that_was_scaled_up_by_hand_after_a_killed_run() -> None:
    """What is written on it says nothing any more."""
    world = standard()
    old = ledger(key="runbooks.storage-ops/scale.12345678", replicas=3)
    world.of("Deployment")[0]["metadata"]["annotations"] = {old.key: old.value}
    assert [action.verb for action in plan(world).actions] == [
        "cordon_node",
        "evict_pod",
        "wait_detached",
        "uncordon_node",
    ]


def test_a_budget_is_asked_before_scaling() -> None:
    world = tolerant()
    world.before = lambda verb, path: _refuse(path.endswith("/eviction"))
    result = run(world, scale_down=True)
    assert result["failed"] and "disruption budget" in result["msg"]
    deployment = world.at("Deployment", "web")
    assert deployment and deployment["spec"]["replicas"] == 1


def test_a_workload_is_scaled_up_again_after_a_failure() -> None:
    world = tolerant()
    world.detaches = False
    result = run(world, scale_down=True, **NEVER)
    assert result["failed"]
    assert outcomes(result) == [
        ("scale_down", "done"),
        ("wait_detached", "failed"),
        ("scale_up", "skipped"),
        ("scale_up", "done"),
    ]
    deployment = world.at("Deployment", "web")
    assert (
        deployment
        and deployment["spec"]["replicas"] == 1
        and not deployment["metadata"]["annotations"]
    )


# failing


def _refuse(really: bool) -> None:
    if really:
        raise TooMany(
            "cannot create pods/eviction: Cannot evict pod as it would violate the pod's "
            "disruption budget",
            429,
        )


def test_check_mode_finds_out_about_a_budget() -> None:
    world = standard()
    world.before = lambda verb, path: _refuse(path.endswith("/eviction"))
    result = run(world, check=True)
    assert result["failed"] and "disruption budget" in result["msg"]
    assert result["actions"] == [] and not result["changed"]


def test_a_budget_that_refuses_for_long_fails_and_the_node_is_uncordoned() -> None:
    world = standard()
    world.before = lambda verb, path: _refuse(path.endswith("/eviction"))
    result = run(world, eviction_timeout=1.0)
    assert result["failed"] and result["changed"]
    assert "disruption budget" in result["msg"] and "uncordon_node n1 was done" in result["msg"]
    assert not held(world)
    assert world.at("Pod", "web-a")


def test_a_budget_that_gives_way_is_waited_for() -> None:
    world = standard()
    refused = []

    def twice(verb: str, path: str) -> None:
        if path.endswith("/eviction") and len(refused) < 2:
            refused.append(path)
            _refuse(True)

    world.before = twice
    result = run(world)
    assert not result["failed"], result["msg"]


def test_an_attacher_that_does_not_detach_fails_and_the_node_is_uncordoned() -> None:
    world = standard()
    world.detaches = False
    held = world.of("VolumeAttachment")[0]
    held["metadata"].update(finalizers=["external-attacher/x"], deletionTimestamp=OLD)
    held["status"]["detachError"] = {"message": "array is busy", "time": OLD}
    result = run(world, **NEVER)
    assert result["failed"]
    for text in (
        "held by external-attacher/x",
        "array is busy",
        "A finalizer is never removed here",
        "uncordon_node n1 was done",
    ):
        assert text in result["msg"]
    assert held["metadata"]["finalizers"] == ["external-attacher/x"]


def test_a_kubelet_that_does_not_unmount() -> None:
    world = standard()
    world.objects["/api/v1/nodes/n1"]["status"]["volumesInUse"] = [unique_name(DRIVER, "h-data")]
    assert "n1 still uses pv-data (volumesInUse)" in run(world, **NEVER)["msg"]


def test_a_pod_that_comes_back_too_early() -> None:
    """Nothing keeps a pod away that names its node itself."""
    world = standard()
    world.detaches = False
    early = pod("early", "n1", "data", made_by=("Custom", "x"))
    world.before = lambda verb, path: world.add(early) if path.endswith("/eviction") else None
    result = run(world)
    assert result["failed"]
    assert (
        "pod shop/early" in result["msg"]
        and "came to n1 before the volume had left it" in result["msg"]
    )
    assert not held(world)


def test_unstaged_does_not_wait_for_the_attachment() -> None:
    world = standard()
    world.detaches = False
    world.returns_to = "n1"
    result = run(world, wait_for="unstaged")
    assert not result["failed"], result["msg"]
    assert ("wait_unstaged", "done") in outcomes(result)


def test_what_is_not_attached_gets_the_time_to_be_unstaged_before_pods_may_come_back() -> None:
    world = World(*claim("data"), pod("web-a", "n1", "data"), workload("Deployment", "web"))
    world.returns_to = "n1"
    cordoned = []

    def sleep(seconds: float) -> None:
        cordoned.append((seconds, held(world)))

    result = run(world, wait_for="unstaged", unstage_seconds=7.0, sleep=sleep)
    assert not result["failed"], result["msg"]
    assert (7.0, True) in cordoned
    # Of what is attached, volumesInUse tells.
    cordoned.clear()
    world = standard()
    world.returns_to = "n1"
    run(world, wait_for="unstaged", unstage_seconds=7.0, sleep=sleep)
    assert (7.0, True) not in cordoned


def test_a_pod_that_comes_while_its_volume_is_unstaged() -> None:
    world = World(*claim("data"), pod("web-a", "n1", "data"), workload("Deployment", "web"))
    result = run(
        world,
        wait_for="unstaged",
        sleep=lambda _seconds: world.add(pod("early", "n1", "data", made_by=("Custom", "x"))),
    )
    assert result["failed"] and "came to n1 before the volume had left it" in result["msg"]
    assert not held(world)


def test_pods_that_do_not_become_ready_are_no_proof() -> None:
    world = standard()
    world.returns_to = "nowhere"
    result = run(world)
    assert result["failed"] and result["changed"]
    assert (
        "0 of 1 new pods are Ready" in result["msg"] and "0/2 nodes are available" in result["msg"]
    )


def test_an_attachment_without_its_metadata_is_no_proof() -> None:
    world = standard()
    world.metadata = {}
    result = run(world, required_metadata=("publishInfo",))
    assert result["failed"]
    assert "has no publishInfo although it is new: the driver does not publish it" in result["msg"]


def test_a_workload_that_wants_fewer_pods_meanwhile_is_no_failure() -> None:
    world = standard(pod("web-b", "n1", "data"))
    result = run(world)
    assert not result["failed"], result["msg"]


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_takes_back_what_was_begun(number: signal.Signals) -> None:
    world = standard()
    world.detaches = False

    def interrupt(_seconds: float) -> None:
        os.kill(os.getpid(), number)

    result = run(world, detach_timeout=60.0, sleep=interrupt)
    assert (
        result["failed"]
        and f"interrupted by {number.name}" in result["msg"]
        and "uncordon_node n1 was done" in result["msg"]
    )
    left = world.objects["/api/v1/nodes/n1"]
    assert not is_held(left) and not left["metadata"].get("annotations")


class Outage:
    """Requests of a kind fail so many times."""

    def __init__(self, world: World, verb: str, text: str, status: int, times: int) -> None:
        self.world, self.what, self.status, self.left = world, (verb, text), status, times
        world.before = self

    def __call__(self, verb: str, path: str) -> None:
        begun = any(
            request.startswith("create") and "eviction" in request
            for request in self.world.requests
        )
        if verb == self.what[0] and self.what[1] in path and begun and self.left:
            self.left -= 1
            raise KubeError(f"cannot {verb} {path}: no answer", self.status)


@pytest.mark.parametrize("status", [0, 429, 500, 503])
@pytest.mark.parametrize(
    ("verb", "text"),
    [("list", "/pods"), ("get", "/volumeattachments/"), ("get", "/nodes/"), ("patch", "/nodes/")],
)
def test_an_api_server_that_is_away_for_a_while(verb: str, text: str, status: int) -> None:
    """While it waits, while it takes back the cordon, and while it looks for proof."""
    world = standard()
    outage = Outage(world, verb, text, status, 5)
    result = run(world, detach_timeout=60.0, ready_timeout=60.0)
    assert not result["failed"], result["msg"]
    assert not outage.left and not held(world)


@pytest.mark.parametrize("status", [0, 429, 503])
@pytest.mark.parametrize("verb", ["get", "patch"])
def test_an_api_server_that_is_away_when_a_cordon_is_taken_back(verb: str, status: int) -> None:
    world = standard()
    world.detaches = False
    asked: list[float] = []
    outage = Outage(world, verb, "/nodes/", status, 0)

    def connect(seconds: float) -> World:
        asked.append(seconds)
        outage.left = 20 * (len(asked) > 1)
        return world

    module = Module(False)
    options = ReattachOptions("shop", ("data",), **NEVER)
    with pytest.raises(Exit):
        engine.run(
            module, lambda: Reattach(connect, 300.0, options, sleep=lambda _seconds: None), False
        )
    assert "uncordon_node n1 was done" in module.result["msg"]
    assert len(asked) == 2 and asked[1] > 200, "all that is left of the deadline"
    assert not outage.left and not held(world)


def test_an_api_server_that_stays_away() -> None:
    world = standard()
    world.deadline = Deadline(31.0)
    world.before = Outage(world, "patch", "/nodes/", 0, 10**6)

    def sleep(seconds: float) -> None:
        world.deadline = Deadline(world.deadline.remaining() - seconds)

    result = run(world, sleep=sleep)
    assert (
        result["failed"]
        and "cordon_node n1 could not be undone: cannot patch /api/v1/nodes/n1: no answer"
        in result["msg"]
    )


def test_a_refusal_is_not_waited_for() -> None:
    world = standard()
    outage = Outage(world, "get", "/volumeattachments/", 403, 10**6)
    result = run(world)
    assert result["failed"] and outage.left == 10**6 - 1


# several nodes


def shared(*nodes: str) -> World:
    """A Deployment with one claim, and a pod on each of these nodes."""
    pods = [pod(f"web-{name}", name, "data") for name in nodes]
    return World(
        *claim("data"),
        node("n3"),
        *[attachment("data", name) for name in nodes],
        workload("Deployment", "web", len(nodes)),
        *pods,
    )


@pytest.mark.parametrize("condition", ["", "attachments", "required_metadata"])
@pytest.mark.parametrize("returns_to", ["n1", "n2", "n3"])
def test_nodes_are_left_one_after_the_other(condition: str, returns_to: str) -> None:
    """Also what comes to a node whose turn is yet to come is moved off it, and nothing is left on
    an old attachment.
    """
    world = shared("n1", "n2", "n3")
    world.returns_to = returns_to
    old = {item["metadata"]["uid"] for item in world.of("VolumeAttachment")}
    pods = {item["metadata"]["uid"] for item in world.of("Pod")}
    conditions: dict[str, dict[str, Any]] = {
        "attachments": {"attachments": tuple(old)},
        "required_metadata": {"required_metadata": ("publishInfo",)},
    }
    cordons: list[int] = []
    world.before = lambda verb, path: cordons.append(
        sum(is_held(item) for item in world.of("Node"))
    )
    result = run(world, **conditions.get(condition, {}))
    assert not result["failed"], result["msg"]
    assert max(cordons) == 1
    moves = [action for action in result["actions"] if action["action"] != "evict_pod"]
    assert [(action["action"], action["outcome"]) for action in moves] == 3 * [
        ("cordon_node", "done"),
        ("wait_detached", "done"),
        ("uncordon_node", "done"),
    ]
    assert [finding["object"]["node"] for finding in result["findings"]] == ["n1", "n2", "n3"]
    assert not old & {item["metadata"]["uid"] for item in world.of("VolumeAttachment")}
    assert len(world.of("Pod")) == 3 and not pods & {
        item["metadata"]["uid"] for item in world.of("Pod")
    }
    evicted = len([action for action in result["actions"] if action["action"] == "evict_pod"])
    assert evicted == {"n1": 3, "n2": 4, "n3": 5}[returns_to], (
        "what came to a node that is left later goes once more"
    )
    assert len(result["findings"][-1]["evidence"]["pods"]) == (3 if returns_to == "n3" else 1)


def test_only_the_nodes_that_were_named_are_left() -> None:
    world = shared("n1", "n2")
    world.returns_to = "n3"
    world.add(node("n3"))
    left = world.at("Pod", "web-n2")
    result = run(world, nodes=("n1",))
    assert not result["failed"], result["msg"]
    assert [finding["object"]["node"] for finding in result["findings"]] == ["n1"]
    assert [
        action["target"] for action in result["actions"] if action["action"] == "evict_pod"
    ] == ["shop/web-n1"]
    assert world.at("Pod", "web-n2") == left
    assert run(world, nodes=("n1",))["findings"] == []


def test_what_comes_to_the_next_node_counts_for_max_repairs() -> None:
    world = shared("n1", "n2")
    result = run(world, max_repairs=2)
    assert result["failed"] and result["changed"]
    assert "max_repairs" in result["msg"]
    assert [finding["verdict"] for finding in result["findings"]] == ["repair", "refuse"]
    assert not any(is_held(item) for item in world.of("Node"))


def test_pods_that_stay_are_no_proof() -> None:
    """One of n2 is Ready all the time; that of n1 never comes back."""
    world = shared("n1", "n2")
    world.returns_to = "nowhere"
    uid = next(
        item["metadata"]["uid"]
        for item in world.of("VolumeAttachment")
        if item["spec"]["nodeName"] == "n1"
    )
    result = run(world, attachments=(uid,))
    assert result["failed"] and "0 of 1 new pods are Ready" in result["msg"]


def test_a_node_that_is_not_ready_keeps_no_other_from_being_left() -> None:
    world = shared("n1", "n2")
    world.objects["/api/v1/nodes/n2"]["status"]["conditions"][0]["status"] = "False"
    world.returns_to = "n3"
    result = run(world)
    assert result["failed"] and "node n2 of pod shop/web-n2 is not Ready" in result["msg"]
    assert [
        action["target"] for action in result["actions"] if action["action"] == "evict_pod"
    ] == ["shop/web-n1"]
    assert world.at("Pod", "web-n2")


# races


def test_a_new_pod_between_plan_and_apply() -> None:
    world = standard()
    seen: list[str] = []

    def second_look(verb: str, path: str) -> None:
        if verb == "list" and path.endswith("/pods"):
            seen.append(path)
            if len(seen) == 2:
                world.add(pod("web-b", "n2", "data"))

    world.before = second_look
    result = run(world)
    assert result["failed"] and not result["changed"]
    assert "have changed since the plan" in result["msg"]
    assert outcomes(result) == []


def test_a_new_pod_between_plan_and_apply_on_one_of_several_nodes() -> None:
    """What was planned for the other nodes no longer holds either."""
    world = shared("n1", "n2")
    seen: list[str] = []

    def second_look(verb: str, path: str) -> None:
        seen.extend([path] if verb == "list" and path.endswith("/pods") else [])
        if len(seen) == 2 and not world.at("Pod", "web-n3"):
            world.add(pod("web-n3", "n3", "data"))

    world.before = second_look
    result = run(world)
    assert result["failed"] and not result["changed"]
    assert [finding["verdict"] for finding in result["findings"]] == ["refuse", "refuse"]


def test_a_node_that_changes_while_it_is_patched_is_read_again() -> None:
    world = standard()
    raced: list[str] = []

    def heartbeat(verb: str, path: str) -> None:
        if verb == "patch" and len(raced) < 3:
            raced.append(path)
            world._touch(world.objects["/api/v1/nodes/n1"])

    world.before = heartbeat
    result = run(world)
    assert not result["failed"], result["msg"]


def test_a_pod_that_is_replaced_by_one_of_the_same_name_is_gone() -> None:
    world = World(
        *claim("data"),
        attachment("data", "n1"),
        pod("db-0", "n1", "data", made_by=("StatefulSet", "db")),
    )

    def replaced(verb: str, path: str) -> None:
        if path.endswith("/eviction"):
            old = world.at("Pod", "db-0")
            if old:
                world._delete(old)
                world.add(pod("db-0", "", "data", made_by=("StatefulSet", "db")))

    world.before = replaced
    result = run(world)
    assert not result["failed"], result["msg"]


def test_a_conflict_that_is_none_of_uid_is_an_error() -> None:
    world = standard()

    def conflict(verb: str, path: str) -> None:
        if path.endswith("/eviction"):
            raise Conflict("the object has been modified", 409)

    world.before = conflict
    result = run(world)
    assert (
        result["failed"]
        and "has been modified" in result["msg"]
        and "uncordon_node n1 was done" in result["msg"]
    )


# a run that was killed


def ledger(**fields: Any) -> records.MoveLedger:
    given: dict[str, Any] = {
        "key": "runbooks.storage-ops/cordon.12345678",
        "namespace": "shop",
        "claims": ("data",),
        "attachments": (),
        "pods": (),
        "since": OLD,
        "until": "2026-01-01T00:15:00Z",
        "by": "awx-7",
        "process": "",
    }
    return records.MoveLedger(**{**given, **fields})


def hold(world: World, name: str, held: records.MoveLedger) -> None:
    item = world.objects[f"/api/v1/nodes/{name}"]
    item["spec"]["taints"] = [{"key": objects.HOLD, "effect": "NoSchedule"}]
    item["metadata"].setdefault("labels", {})[objects.HOLD] = "true"
    item["metadata"].setdefault("annotations", {})[held.key] = held.value
    lease(world, held)


def lease(world: World, held: records.MoveLedger) -> None:
    """That by which it counts."""
    io.HoldLeases("storage-ops").take(world, objects.pick_node(n1(world)), held, (), False)  # type: ignore[arg-type]


class Killed(BaseException):
    """No Exception: nothing of ours catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("at", range(1, 40))
def test_killed_at_any_request_the_next_run_finishes(at: int, scaled: bool) -> None:
    """Without any condition, too: the next run takes up what was begun, and then it is done."""
    world = tolerant() if scaled else standard()
    uid = world.of("VolumeAttachment")[0]["metadata"]["uid"]
    pod_uid = world.of("Pod")[0]["metadata"]["uid"]

    def kill(verb: str, path: str) -> None:
        if len(world.requests) == at:
            raise Killed

    world.before = kill
    module = Module(False)
    options = ReattachOptions("shop", ("data",), **QUICK, scale_down=True)
    try:
        engine.run(
            module,
            lambda: Reattach(lambda _seconds: world, 300.0, options, sleep=lambda _seconds: None),
            False,
        )
    except Exit:
        assert at > len(world.requests)
    except Killed:
        world.before = lambda verb, path: None
        result = run(world, scale_down=True)
        assert not result["failed"], result["msg"]
    for item in world.objects.values():
        assert not item["metadata"].get("annotations")
        assert not is_held(item)
    assert world.of("Deployment")[0]["spec"]["replicas"] == 1
    assert len(world.of("Pod")) == 1 and world.of("Pod")[0]["metadata"]["uid"] != pod_uid
    assert uid not in [item["metadata"]["uid"] for item in world.of("VolumeAttachment")]


def test_a_finished_move_whose_cordon_was_left_is_only_uncordoned() -> None:
    world = World(
        *claim("data"),
        attachment("data", "n2"),
        pod("web-b", "n2", "data"),
        workload("Deployment", "web"),
    )
    hold(world, "n1", ledger(attachments=("gone",), pods=("gone-too",)))
    moved = world.of("Pod")[0]["metadata"]["uid"]
    result = run(world)
    assert not result["failed"], result["msg"]
    assert outcomes(result) == [("uncordon_node", "done")]
    finding = result["findings"][0]
    assert (
        finding["summary"].startswith("left behind by a move of data in shop")
        and "awx-7" in finding["reason"]
    )
    assert world.of("Pod")[0]["metadata"]["uid"] == moved
    assert not held(world)


def test_what_was_left_is_released_although_the_move_is_refused() -> None:
    world = standard(made_by=None)
    hold(world, "n1", ledger(pods=(world.of("Pod")[0]["metadata"]["uid"],)))
    result = run(world)
    assert result["failed"], "the pod has no controller"
    assert outcomes(result) == [("uncordon_node", "done")]
    assert world.at("Pod", "web-a")
    assert not held(world)


def test_ledgers_of_others_are_left_alone() -> None:
    world = World(*claim("data"))
    for number, other in enumerate([ledger(claims=("other",)), ledger(namespace="elsewhere")]):
        hold(world, "n1", other._replace(key=f"runbooks.storage-ops/cordon.0000000{number}"))
    texts = [
        "no JSON",
        "[" * 100_000,
        "null",
        ledger().value.replace('"replicas": ', '"replicas": Infinity, "x": '),
    ]
    noted = {f"runbooks.storage-ops/cordon.x{number}": text for number, text in enumerate(texts)}
    world.objects["/api/v1/nodes/n1"]["metadata"]["annotations"].update(noted)
    before = json.dumps(world.objects, sort_keys=True)
    assert run(world)["findings"] == []
    assert json.dumps(world.objects, sort_keys=True) == before


def test_a_ledger_on_a_node_that_takes_pods_says_nothing() -> None:
    world = standard()
    hold(world, "n1", ledger(pods=("long-gone",)))
    del n1(world)["spec"]["taints"]
    result = run(world)
    assert not result["failed"], result["msg"]
    assert result["findings"][0]["reason"] == "it was asked for"
    assert not world.objects["/api/v1/nodes/n1"]["metadata"]["annotations"]


def living(minutes: float, process: str = "another host") -> records.MoveLedger:
    """What a run has written that ends in so many minutes at the latest."""
    now = datetime.now(timezone.utc)
    since, until = (
        f"{at:%Y-%m-%dT%H:%M:%SZ}"
        for at in (now - timedelta(minutes=5), now + timedelta(minutes=minutes))
    )
    return ledger(since=since, until=until, process=process)


def test_another_run_may_be_at_work() -> None:
    """Two would take back each other's cordon."""
    world = standard()
    held = living(10)
    hold(world, "n1", held)
    reason = refusal(world)
    assert reason.startswith(
        f"another run is at work on these claims, begun by awx-7 at {held.since}: wait for its "
        f"end, {held.until}"
    )


def test_a_run_whose_time_is_over_is_finished() -> None:
    world = standard()
    hold(world, "n1", living(-1))
    result = run(world)
    assert not result["failed"], result["msg"]
    assert not held(world)


@pytest.mark.parametrize("alive", [True, False])
def test_a_run_that_was_killed_on_this_host_is_finished_at_once(alive: bool) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    process = gathering.process_of(str(pid))
    assert process and process != gathering.process_of()
    try:
        if not alive:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        world = standard()
        hold(world, "n1", living(10, process))
        result = run(world)
        assert result["failed"] is alive, result["msg"]
        assert held(world) is alive
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(("part", "ended"), [(None, True), (0, False), (1, False), (3, True)])
def test_what_is_known_of_a_process(part: int | None, ended: bool) -> None:
    """Itself; of another host; of another pid namespace; one whose number was given to another."""
    parts = gathering.process_of().split()
    if part is not None:
        parts[part] = "1"
    assert gathering.has_ended(" ".join(parts)) is ended
    assert not gathering.has_ended("")
    for number in ("x", "9" * 30):
        assert not gathering.has_ended(" ".join([*parts[:2], number, "1"]))


@pytest.mark.parametrize("scaled", [False, True])
def test_another_run_begins_right_before_ours(scaled: bool) -> None:
    world = tolerant() if scaled else standard()
    path = "/apis/apps/v1/namespaces/shop/deployments/web" if scaled else "/api/v1/nodes/n1"
    looks: list[str] = []

    def begin(verb: str, asked: str) -> None:
        looks.extend([asked] if asked.endswith("/replicasets/web-1") else [])
        if (verb, asked) == ("get", path) and len(looks) == 2:
            held = living(10)
            item = world.objects[path]
            taint = {"key": objects.HOLD, "effect": "NoSchedule"}
            item["spec"].update({"replicas": 0} if scaled else {"taints": [taint]})
            if scaled:
                held = held._replace(key=held.key.replace("cordon", "scale"), replicas=1)
            item["metadata"]["annotations"] = {held.key: held.value}
            if not scaled:
                lease(world, held)

    world.before = begin
    result = run(world, scale_down=scaled)
    assert (
        result["failed"] and not result["changed"] and "another run is at work" in result["msg"]
    ), result
    assert world.objects[path]["metadata"]["annotations"]


# what a tenant has written on his own workload


@pytest.mark.parametrize(
    ("replicas", "verdict"), [(3, "refuse"), (0, "repair"), (-1, "repair"), (10**9, "repair")]
)
def test_a_tenants_annotation_has_nothing_scaled(replicas: int, verdict: str) -> None:
    """Beside the pod there is a Deployment without replicas that says that a run which was killed
    has scaled it down. No consent to scale was given. What is no number of replicas is no ledger.
    """
    made = workload("Deployment", "trap", 0)
    held = ledger(by="x")
    held = held._replace(key=held.key.replace("cordon", "scale"), replicas=replicas)
    made["metadata"]["annotations"] = {held.key: held.value}
    world = standard(made)
    before = json.dumps(made, sort_keys=True)
    result = run(world)
    assert not any(verb.startswith("scale") for verb, _outcome in outcomes(result)), result["msg"]
    assert json.dumps(made, sort_keys=True) == before
    assert verdict in [finding["verdict"] for finding in result["findings"]]
    if verdict == "refuse":
        assert result["code"] == "consent_required" and "set scale_down" in result["msg"]


@pytest.mark.parametrize(("noted", "scaled"), [(10_000, 10_000), (10_001, 0)])
def test_with_consent_a_note_scales_its_own_workload_and_no_further(
    noted: int, scaled: int
) -> None:
    """What its owner can do himself; nothing else in his namespace, and no absurd number."""
    trap, other = workload("Deployment", "trap", 0), workload("Deployment", "other", 0)
    held = ledger(by="x")
    held = held._replace(key=held.key.replace("cordon", "scale"), replicas=noted)
    trap["metadata"]["annotations"] = {held.key: held.value}
    # It names claims that are not moved here.
    strange = held._replace(claims=("elsewhere",))
    other["metadata"]["annotations"] = {strange.key: strange.value}
    world = World(*claim("data"), trap, other)
    run(world, scale_down=True)
    replicas = {
        item["metadata"]["name"]: item["spec"]["replicas"] for item in world.of("Deployment")
    }
    assert replicas == {"trap": scaled, "other": 0}


# what a kubelet has written on its own node


def lone(world: World, held: records.MoveLedger) -> None:
    """On a node with our taint, and without a Lease."""
    hold(world, "n1", held)
    for item in world.of("Lease"):
        world.remove(item)


FOREVER = {"since": OLD, "until": "2999-01-01T00:00:00Z", "process": "another host"}


def test_a_kubelet_keeps_no_move_away() -> None:
    """It says that another run is at work on claims of others; before, each run for them was
    refused.
    """
    world = standard()
    lone(world, ledger(**FOREVER, pods=("x",)))
    result = run(world)
    assert not result["failed"], result["msg"]
    told, moved = sorted(
        result["findings"], key=lambda finding: str(finding["verdict"]), reverse=True
    )
    assert (moved["verdict"], moved["reason"]) == ("repair", "it was asked for")
    assert (told["verdict"], told["severity"], told["object"]["name"]) == ("report", "major", "n1")
    assert "its kubelet may have written that" in told["reason"]
    assert not held(world) and world.of("Lease") == []


def test_a_kubelet_says_nothing_of_claims_that_were_not_asked_for() -> None:
    world = standard()
    lone(world, ledger(**FOREVER, claims=("other",)))
    assert [finding["verdict"] for finding in run(world)["findings"]] == ["repair"]


def test_a_kubelet_does_not_choose_what_is_moved() -> None:
    """What it has made of the annotation of a run that was killed: the Lease still says whose pods
    were to go.
    """
    world = World(
        *claim("data"),
        attachment("data", "n2"),
        pod("web-b", "n2", "data"),
        workload("Deployment", "web"),
    )
    (mine,) = world.of("Pod")
    hold(world, "n1", ledger(attachments=("gone",), pods=("gone-too",)))
    altered = ledger(
        pods=(mine["metadata"]["uid"],),
        attachments=(world.of("VolumeAttachment")[0]["metadata"]["uid"],),
    )
    n1(world)["metadata"]["annotations"] = {altered.key: altered.value}
    result = run(world)
    assert outcomes(result) == [("uncordon_node", "done")]
    assert world.of("Pod") == [mine]
    assert {finding["verdict"] for finding in result["findings"]} == {"report", "repair"}
    assert not held(world) and world.of("Lease") == []


def test_a_kubelet_that_takes_the_annotation_off_frees_no_node() -> None:
    world = standard()
    hold(world, "n1", living(10))
    n1(world)["metadata"]["annotations"] = {}
    assert "another run is at work on these claims" in refusal(world)


def test_the_lease_of_a_node_that_had_the_name_says_nothing() -> None:
    world = standard()
    hold(world, "n1", living(10))
    n1(world)["metadata"]["uid"] = "another"
    result = run(world)
    assert ("evict_pod", "done") in outcomes(result)


def test_two_that_begin_at_once_see_each_other() -> None:
    """Of other sets of claims, so their Leases have other names."""
    world = standard()

    def begin(verb: str, path: str) -> None:
        if (verb, path) == ("create", LEASES) and not world.of("Lease"):
            world.before = lambda verb, path: None
            lease(world, living(10))

    world.before = begin
    result = run(world)
    assert result["failed"] and "another run is at work" in result["msg"]
    assert not held(world) and len(world.of("Lease")) == 1


@pytest.mark.parametrize("prefix", [objects.CORDON, records.SCALE])
def test_no_tenant_finds_claims_with_the_key_of_others(prefix: str) -> None:
    """Of these two sets of claims the first 32 bits of the hash are the same. The move of one gave
    back the Lease, and with it the node, of the other.
    """
    theirs, own = (records.ClaimGroup("evil", (claim,)) for claim in ("c33819", "c177987"))
    assert theirs.key(prefix) != own.key(prefix)
    name = own.key(prefix).partition("/")[2]
    assert len(name) <= 63 and len(name.rpartition(".")[2]) >= 32


def test_who_was_quicker_has_the_lease() -> None:
    world = standard()

    def begin(verb: str, path: str) -> None:
        if (verb, path) == ("create", LEASES) and not world.of("Lease"):
            world.before = lambda verb, path: None
            lease(
                world,
                living(10)._replace(key=records.ClaimGroup("shop", ("data",)).key(objects.CORDON)),
            )

    world.before = begin
    result = run(world)
    assert (
        result["failed"]
        and "another run has taken the Lease storage-ops/storage-ops-move-" in result["msg"]
    )
    assert not held(world) and len(world.of("Lease")) == 1


def test_a_lease_that_somebody_deletes_meanwhile_leaves_no_node_held() -> None:
    world = standard()

    def delete(verb: str, path: str) -> None:
        if path.endswith("/eviction"):
            for item in world.of("Lease"):
                world.remove(item)

    world.before = delete
    result = run(world)
    assert not result["failed"], result["msg"]
    assert not held(world)


@pytest.mark.parametrize(
    ("held_there", "over", "stays"),
    [(False, True, False), (False, False, True), (True, True, True)],
)
def test_what_a_run_has_left_that_was_killed_right_before_its_end(
    held_there: bool, over: bool, stays: bool
) -> None:
    """The Lease of a node that is not held any more goes with the next run, unless another may just
    begin there.
    """
    world = World(
        *claim("data"),
        attachment("data", "n2"),
        pod("web-b", "n2", "data"),
        workload("Deployment", "web"),
    )
    other = living(-1 if over else 10)
    if held_there:
        hold(world, "n1", other._replace(claims=("data", "x"), namespace="elsewhere"))
    else:
        lease(world, other)
    run(world)
    assert (f"{LEASES}/storage-ops-move-12345678-n1" in world.objects) is stays


def test_check_mode_takes_no_lease() -> None:
    world = standard()
    run(world, check=True)
    assert world.of("Lease") == []


# reading


def test_what_cannot_be_read_is_an_error_and_never_nothing() -> None:
    for resource in (
        "volumeattachments",
        "pods",
        "persistentvolumeclaims",
        "deployments",
        "nodes",
        "leases",
    ):
        world = standard()

        def broken(verb: str, path: str, resource: str = resource) -> None:
            if verb == "list" and path.endswith(resource):
                raise KubeError(f"cannot list {resource}", 403)

        world.before = broken
        result = run(world)
        assert (
            result["failed"]
            and not result["changed"]
            and f"cannot list {resource}" in result["msg"]
        )


def test_attachments_are_read_before_pods() -> None:
    world = standard()
    plan(world)
    lists = [request for request in world.requests if request.startswith("list ")]
    assert lists.index("list /apis/storage.k8s.io/v1/volumeattachments") < lists.index(
        "list /api/v1/namespaces/shop/pods"
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("claims", [], "at least one claim"),
        ("claims", [" "], "claims has an empty name"),
        ("namespace", " ", "name the namespace"),
        ("attachments", [""], "attachments has an empty name"),
        ("detach_timeout", 0.0, "detach_timeout is 0; give at least 1"),
        ("ready_timeout", float("nan"), "ready_timeout is nan"),
        ("deadline", 10.0, "deadline is 10; give at least 60"),
    ],
)
def test_options_that_make_no_sense(name: str, value: Any, text: str) -> None:
    given: dict[str, Any] = {
        **{
            field: getattr(ReattachOptions("shop", ("data",)), field)
            for field in ReattachOptions.__dataclass_fields__
        },
        "deadline": 900.0,
        "claims": ["data"],
    }
    assert reattach_options(given).claims == ("data",)
    with pytest.raises(StorageOpsError, match=text):
        reattach_options({**given, name: value})


def test_the_interface_is_the_clients() -> None:
    assert {name for name in dir(Cluster) if not name.startswith("_")} <= {
        name for name in dir(World()) if not name.startswith("_")
    }
