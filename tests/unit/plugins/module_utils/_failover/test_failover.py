# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which volumes leave a lost node, by which way, what keeps them there, and what a run that is
killed leaves to the next one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover import (
    plan as failover_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover import (
    runbook as failover_runbook,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.plan import (
    FailoverOptions,
    pick_lost_pod,
    with_claims,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.runbook import (
    Failover,
    StillFenced,
    failover_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    Reading,
    parse_reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.lease import RunLease
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    Entry,
    FenceObject,
    Ledger,
    Ledgers,
    PowerFence,
    RunOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.power import (
    PowerReading,
    parse_power,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import Filters
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Forbidden,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    attachment_name,
    pick_claim,
    pick_tenant,
    pick_volume,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import (
    FakeCluster,
    Slow,
    path_of,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    MACHINE,
    POWERED,
    looks,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Exit, Module

# The last one attaches nothing.
RBD, OTHER, NFS = "rbd.csi.ceph.com", "csi.example.com", "nfs.csi.example.com"
OUT = "node.kubernetes.io/out-of-service"
TAINTED = {"key": OUT, "value": "nodeshutdown", "effect": "NoExecute"}
TOLERANT = [{"key": OUT, "operator": "Exists", "effect": "NoExecute"}]
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
LEDGER = Ledger(
    node="a",
    node_uid="uid-a",
    boot_id="boot-1",
    method="ceph",
    phase="fenced",
    cluster_id="ceph-1",
    fsid="f",
    addresses=("10.0.0.1",),
    entries=(Entry("10.0.0.1", "address", True, "2999-01-01T00:00:00Z"),),
    network_fences=(),
    source={"10.0.0.1": "watcher"},
    volumes=("pv-db",),
    unverified=False,
    cordoned=True,
    tainted=False,
    by="awx",
    run="run-1",
    at="2026-01-01T00:00:00Z",
)


def node(name: str, ready: str, *taints: dict[str, str]) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {
        "conditions": conditions,
        "nodeInfo": {"bootID": "boot-1"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    spec = {"taints": list(taints)} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": status,
    }


def claim(name: str, driver: str = RBD, **meta: Any) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}", **meta},
            "spec": {"volumeName": f"pv-{name}", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}"},
            "spec": {
                "csi": {"driver": driver, "volumeHandle": f"h-{name}"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": f"class-{driver}",
                "claimRef": {"namespace": "shop", "name": name, "uid": f"uid-{name}"},
            },
            "status": {"phase": "Bound"},
        },
    ]


def attachment(name: str, node_name: str = "a", driver: str = RBD, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(driver, f"h-{name}", node_name), **meta},
        "spec": {
            "attacher": driver,
            "nodeName": node_name,
            "source": {"persistentVolumeName": f"pv-{name}"},
        },
        "status": {"attached": True},
    }


def pod(
    name: str, *claims: str, node_name: str = "a", owner: str = "ReplicaSet", **spec: Any
) -> dict[str, Any]:
    reference = {"kind": owner, "name": name, "uid": f"uid-{name}", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "ownerReferences": [reference]},
        "spec": {
            "nodeName": node_name,
            "volumes": [
                {"name": claim_name, "persistentVolumeClaim": {"claimName": claim_name}}
                for claim_name in claims
            ],
            **spec,
        },
        "status": {"phase": "Running" if node_name == "a" else "Pending"},
    }


def event(about: dict[str, Any], name: str, reason: str, text: str, last: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "shop", "name": name},
        "involvedObject": {"uid": about["metadata"]["uid"]},
        **{"type": "Warning", "reason": reason, "message": text, "lastTimestamp": last},
    }


class World(FakeCluster):
    """An API server whose controllers act whenever something is read, except where ``broken`` says
    otherwise.
    """

    def __init__(
        self,
        *objects: dict[str, Any],
        ledger: Ledger | None = LEDGER,
        lost: bool = True,
        version: str = "v1.31.4",
    ) -> None:
        super().__init__(node("a", "Unknown", UNREACHABLE), node("b", "True"), version=version)
        self.shift = timedelta()
        # What the run's own clock shows. ``slow``: so many seconds a LIST of pods there takes;
        # ``slow_events``: of events.
        self.slow_events: dict[str, float] = {}
        # What was made of each LIST.
        self.kept: list[str] = []
        self.spent = 0.0
        self.slow: dict[str, float] = {}
        self.clock = lambda: datetime.now(timezone.utc) + self.shift
        # "collect": the pod garbage collector does not look; "detach": nothing is detached;
        # "attach": nothing is attached; "replace": no pod is made again; "start": no new pod runs.
        # "attach pv-db", "start db-1-again": that one alone.
        self.broken: set[str] = set()
        self.returns_to = "b"
        for item in objects:
            self.add(item)
        if not lost:
            self.remove(node("a", ""))
        if ledger:
            Ledgers(self, "storage-ops").write(ledger)  # type: ignore[arg-type]
        self.requests.clear()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.objects.values() if item["kind"] == kind]

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.of(kind)]

    def _driver_of(self, name: str) -> str:
        """The driver of a PersistentVolume; empty if there is none."""
        found = self.objects.get(f"/api/v1/persistentvolumes/{name}", {"spec": {}})
        return str((found["spec"].get("csi") or {}).get("driver", ""))

    def attached(self) -> set[tuple[str, str]]:
        return {
            (item["spec"]["source"]["persistentVolumeName"], item["spec"]["nodeName"])
            for item in self.of("VolumeAttachment")
        }

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
        self._controllers()
        return super().get(path, query)

    def list(self, path: str, pick: Any, **how: Any) -> list[Any]:
        self._controllers()
        *_folders, namespace, resource = path.split("/")
        of = {"pods": self.slow, "events": self.slow_events}.get(resource, {})
        self.spent += of.get(namespace, 0.0)
        found = super().list(path, pick, **how)
        self.kept.append(repr(found))
        return found

    def at(self, name: str) -> dict[str, Any]:
        return self.objects[f"/api/v1/nodes/{name}"]

    @property
    def taints(self) -> list[str]:
        return [taint["key"] for taint in self.at("a")["spec"].get("taints", [])]

    def ledger(self) -> Ledger:
        found = Ledgers(self, "storage-ops").read("a", self.objects.get("/api/v1/nodes/a"))  # type: ignore[arg-type]
        assert found
        return found

    def _delete(self, item: dict[str, Any]) -> None:
        super()._delete(item)
        if (
            item["kind"] == "Pod"
            and path_of(item) not in self.objects
            and "replace" not in self.broken
        ):
            meta = {
                "namespace": item["metadata"]["namespace"],
                "name": f"{item['metadata']['name']}-again",
                "ownerReferences": item["metadata"]["ownerReferences"],
            }
            spec = {**item["spec"], "nodeName": self.returns_to}
            trouble = {
                "type": "PodScheduled",
                "status": "False",
                "message": "0/2 nodes are available",
            }
            status = {"phase": "Pending", "conditions": [] if self.returns_to else [trouble]}
            self.add({**item, "metadata": meta, "spec": spec, "status": status})

    def _controllers(self) -> None:
        out = "/api/v1/nodes/a" in self.objects and OUT in self.taints
        for item in self.of("Pod"):
            if (
                out
                and "collect" not in self.broken
                and item["spec"]["nodeName"] == "a"
                and item["spec"].get("tolerations") != TOLERANT
            ):
                self._delete(item)
        used = {
            (f"pv-{volume['persistentVolumeClaim']['claimName']}", item["spec"]["nodeName"])
            for item in self.of("Pod")
            for volume in _claimed(item)
        }
        for item in self.of("VolumeAttachment"):
            place = item["spec"]["source"]["persistentVolumeName"], item["spec"]["nodeName"]
            if out and place[1] == "a" and place not in used and "detach" not in self.broken:
                self._delete(item)
        taken = {name for name, _node in self.attached()}
        for name, where in used:
            if name not in taken and where and not {"attach", f"attach {name}"} & self.broken:
                driver = self._driver_of(name)
                if driver not in ("", NFS):
                    self.add(attachment(name[3:], where, driver))
        for item in self.of("Pod"):
            volumes = {
                f"pv-{volume['persistentVolumeClaim']['claimName']}" for volume in _claimed(item)
            }
            volumes = {name for name in volumes if self._driver_of(name) not in ("", NFS)}
            here = {name for name, where in self.attached() if where == item["spec"]["nodeName"]}
            if (
                item["spec"]["nodeName"] == "b"
                and item["status"]["phase"] == "Pending"
                and volumes <= here
                and not {"start", f"start {item['metadata']['name']}"} & self.broken
            ):
                item["status"] = {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                }


def _claimed(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [volume for volume in item["spec"]["volumes"] if "persistentVolumeClaim" in volume]


def reading(
    *entries: str, fsid: str = "f", age: float = 0.0, until: str = "2999-01-01T00:00:00Z"
) -> Reading:
    """What Ceph was read to have on its blocklist."""
    at = f"{datetime.now(timezone.utc) - timedelta(seconds=age):%Y-%m-%dT%H:%M:%SZ}"
    there = [
        {"entry": f"{entry}:0/0", "kind": "address", "address": entry, "until": until}
        for entry in entries
    ]
    return parse_reading(
        {
            "fsid": fsid,
            "read_at": at,
            "observations": 1,
            "seconds": 0,
            "families": ["IPv4"],
            "blocklist": there,
            "images": [],
        }
    )


def options(**given: Any) -> FailoverOptions:
    base = {
        "filters": Filters(),
        "detach_timeout": 5.0,
        "attach_timeout": 20.0,
        "ready_timeout": 10.0,
        "reading": reading("10.0.0.1"),
    }
    return FailoverOptions("a", **{**base, **given})


def run(
    world: World,
    check: bool = False,
    run_id: str = "run-1",
    fence: Ledger | None = None,
    **given: Any,
) -> dict[str, Any]:
    """With a clock that goes on only while it sleeps."""
    module = Module(check)
    world.spent = 0.0

    def sleep(pause: float) -> None:
        world.spent += pause

    given.setdefault("reading", reading("10.0.0.1", age=-world.shift.total_seconds()))
    run_options = RunOptions("a", run_id, "storage-ops", 180.0, 0.0, fence)
    failover = Failover(
        world, run_options, options(check=check, **given), check, sleep, lambda: world.spent
    )  # type: ignore[arg-type]
    with pytest.raises(Exit):
        engine.run(module, lambda: failover, False)
    return module.result


def outcomes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["action"], action["outcome"]) for action in result["actions"]]


def verbs(result: dict[str, Any]) -> list[str]:
    assert not result["failed"], result["msg"]
    assert {outcome for _verb, outcome in outcomes(result)} <= {"done"}
    return [verb for verb, _outcome in outcomes(result)]


def contents(world: World) -> str:
    leases = [place for place in world.objects if "/leases/" in place]
    return json.dumps(
        {place: item for place, item in world.objects.items() if place not in leases},
        sort_keys=True,
    )


def refusal(world: World, **given: Any) -> str:
    """See it refused in check mode and for real, with nothing changed and no lease left: the
    reason.
    """
    before = contents(world)
    for check in (True, False):
        result = run(world, check, **given)
        assert result["failed"] and result["actions"] == [] and not result["changed"], result
        assert contents(world) == before
        assert "Lease" not in {item["kind"] for item in world.objects.values()}
    assert [finding["verdict"] for finding in result["findings"]] == ["refuse"]
    assert result["findings"][0]["control"] == "STOR-16"
    return str(result["findings"][0]["reason"])


def standard(*more: dict[str, Any], **how: Any) -> World:
    return World(*claim("db"), attachment("db"), pod("db-1", "db"), *more, **how)


# the two ways


def test_the_taint() -> None:
    world = standard()
    result = run(world)
    assert verbs(result) == [
        "taint_node",
        "force_delete_pod",
        "wait_detached",
        "wait_attached",
        "wait_ready",
        "record_detached",
    ]
    assert world.taints == ["node.kubernetes.io/unreachable", OUT]
    assert world.attached() == {("pv-db", "b")}
    assert (world.ledger().phase, world.ledger().tainted) == ("detached", True)
    assert result["fence"] == world.ledger().to_dict()
    (finding,) = result["findings"]
    assert finding["object"] == {"kind": "Node", "name": "a", "node": "a"}
    assert "containers of this node may still run" in finding["evidence"]["warning"]
    assert finding["evidence"]["detach"] == "taint" and finding["evidence"]["why_no_taint"] == []
    proof = " ".join(finding["evidence"]["proof"])
    assert (
        "pv-db has no VolumeAttachment and no pod on a (seen at " in proof
        and "pv-db is attached to b for pod shop/db-1-again" in proof
    )


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"version": "v1.20.2"}, "Kubernetes v1.20.2 is too old for the taint"),
        ({"version": "v1.27.9"}, "takes 1.28 or later"),
        ({"lost": False}, "there is no node a any more"),
        ({"filters": Filters(namespaces=("shop",))}, "a filter was given"),
        ({"unfenced": True}, "pv-other (claim shop/other, csi.example.com)"),
        ({"detach": "volumes"}, ""),
    ],
)
def test_one_by_one(how: dict[str, Any], why: str) -> None:
    given = {name: how.pop(name) for name in ("filters", "detach") if name in how}
    more = (
        [*claim("other", OTHER), attachment("other", driver=OTHER)]
        if how.pop("unfenced", False)
        else []
    )
    world = standard(*more, **how)
    result = run(world, **given)
    assert verbs(result) == [
        "force_delete_pod",
        "delete_volumeattachment",
        "wait_detached",
        "wait_attached",
        "wait_ready",
        "record_detached",
    ]
    assert "delete /api/v1/namespaces/shop/pods/db-1 (grace 0)" in world.requests
    assert ("pv-db", "b") in world.attached() and ("pv-db", "a") not in world.attached()
    assert (("pv-other", "a") in world.attached()) == bool(more)
    assert (world.ledger().phase, world.ledger().tainted) == ("detached", False)
    evidence = result["findings"][0]["evidence"]
    assert evidence["detach"] == "volumes" and why in " ".join(evidence["why_no_taint"])


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"version": "v1.20.2"}, "too old"),
        ({"lost": False}, "there is no node a any more"),
        ({"filters": Filters(claims=("shop/db",))}, "a filter was given"),
    ],
)
def test_the_taint_asked_for_where_it_does_not_do(how: dict[str, Any], why: str) -> None:
    given = {name: how.pop(name) for name in ["filters"] if name in how}
    assert why in refusal(standard(**how), detach="taint", **given)


def test_the_taint_asked_for_with_unfenced_volumes_names_them() -> None:
    nfs = claim("nfs", NFS)
    world = standard(
        *claim("other", OTHER), attachment("other", driver=OTHER), *nfs, pod("web", "nfs")
    )
    reason = refusal(world, detach="taint")
    assert (
        "pv-other (claim shop/other, csi.example.com), pv-nfs (of pod shop/web)" in reason
        and "accept_unfenced_volumes" in reason
    )
    assert verbs(run(world, detach="taint", accept_unfenced_volumes=True))[0] == "taint_node"


@pytest.mark.parametrize("filters", [Filters(), Filters(claims=("shop/db",))])
def test_step_by_step(filters: Filters) -> None:
    """The fence is proven between the steps: the first one waits for no pod, and writes nothing."""
    world = standard(
        *claim("log"), attachment("log"), ledger=LEDGER._replace(volumes=("pv-db", "pv-log"))
    )
    first = run(world, state="detached", detach="volumes", filters=filters)
    every = [] if filters.active else ["delete_volumeattachment"]
    wanted = ["force_delete_pod", "delete_volumeattachment", *every, "wait_detached"]
    assert verbs(first) == wanted
    assert first["left"] == ["pv-db"] if filters.active else ["pv-db", "pv-log"]
    assert world.ledger().phase == "fenced"
    assert verbs(run(world, state="detached", detach="volumes", filters=filters)) == []

    second = run(world, awaited=tuple(first["left"]), detach="volumes", filters=filters)
    assert verbs(second) == ["wait_attached", "wait_ready", "record_detached"]
    assert second["left"] == []
    noted = ("fenced", ("pv-db",)) if filters.active else ("detached", ("pv-db", "pv-log"))
    assert (world.ledger().phase, world.ledger().detached) == noted
    assert second["findings"][0]["summary"] == "what has left the lost node a is awaited elsewhere"
    proof = " ".join(second["findings"][0]["evidence"]["proof"])
    assert "pod shop/db-1-again is Running and Ready on b" in proof
    assert verbs(run(world, detach="volumes", filters=filters)) == []


def test_what_was_taken_off_in_an_earlier_step_and_is_not_attached() -> None:
    world = standard()
    world.broken.add("attach")
    assert verbs(run(world, state="detached", detach="volumes")) != []
    result = run(world, awaited=("pv-db",), detach="volumes")
    assert result["failed"] and "waits for pv-db" in result["msg"], result["msg"]


def test_a_taint_that_is_there_already_is_not_ours() -> None:
    world = standard()
    world.at("a")["spec"]["taints"].append({**TAINTED, "value": "by-hand"})
    world.broken.add("detach")
    world.before = lambda verb, path: world.broken.clear() if verb == "patch" else None
    assert verbs(run(world)) == ["wait_detached", "wait_attached", "wait_ready", "record_detached"]
    assert not world.ledger().tainted


def test_a_pod_that_tolerates_the_taint_is_deleted_by_force() -> None:
    world = World(
        *claim("db"),
        attachment("db"),
        pod("db-1", "db", tolerations=TOLERANT),
        pod("web", tolerations=TOLERANT),
    )
    assert verbs(run(world)) == [
        "taint_node",
        "force_delete_pod",
        "wait_detached",
        "wait_attached",
        "wait_ready",
        "record_detached",
    ]
    assert "web" in world.names("Pod") and world.attached() == {("pv-db", "b")}


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": OUT, "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        (
            {"key": OUT, "value": "nodeshutdown", "effect": "NoExecute", "tolerationSeconds": 60},
            True,
        ),
        ({"key": OUT, "value": "other"}, False),
        ({"key": OUT, "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "node.kubernetes.io/unreachable", "operator": "Exists"}, False),
    ],
)
def test_who_tolerates_the_taint(toleration: dict[str, Any], tolerates: bool) -> None:
    item = pod("db-1", "db", tolerations=[toleration])
    item["metadata"]["uid"] = "u"
    lost = pick_lost_pod(item)
    assert lost and lost.tolerates == tolerates


# who is not detached


@pytest.mark.parametrize("phase", ["intended", "releasing"])
def test_the_fence_must_be_proven(phase: str) -> None:
    text = {"intended": "was begun and is not proven", "releasing": "is being released"}[phase]
    assert text in refusal(standard(ledger=LEDGER._replace(phase=phase)))


def test_without_a_ledger() -> None:
    assert "nothing proves that node a is fenced" in refusal(standard(ledger=None))


def test_a_ledger_in_another_namespace() -> None:
    """A run with another namespace has another Lease, so it would not keep out of the
    other's way.
    """
    ledger = LEDGER._replace(namespace="vault")
    world = standard(ledger=None)
    Ledgers(world, "vault").write(ledger)  # type: ignore[arg-type]
    before = contents(world)
    for check in (True, False):
        result = run(world, check)
        assert (
            result["failed"]
            and not result["changed"]
            and "give ledger_namespace vault" in result["msg"]
        )
        assert contents(world) == before and not world.of("Lease")


@pytest.mark.parametrize(
    ("ready", "text"),
    [("True", "is back (Ready=True)"), ("False", "has a kubelet that reports (Ready=False)")],
)
def test_a_node_that_reports(ready: str, text: str) -> None:
    world = standard()
    world.at("a")["status"]["conditions"][0]["status"] = ready
    reason = refusal(world)
    assert text in reason and "release_fenced_node" in reason


def test_another_node_of_that_name() -> None:
    world = standard()
    world.at("a")["metadata"]["uid"] = "uid-new"
    assert "node a is another one (uid uid-new)" in refusal(world)


def test_a_fence_does_not_outlive_a_boot() -> None:
    """The node has other clients then, and may have another address."""
    assert "rebooted since it was fenced" in refusal(
        standard(ledger=LEDGER._replace(boot_id="boot-0"))
    )


# what Ceph says of the fence


GONE = "Ceph's blocklist has no entry for 10.0.0.1"


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (
            None,
            "nothing was read of Ceph (option ceph), so whether node a is fenced now is not known",
        ),
        (reading(), GONE),
        (reading("10.0.0.2"), GONE),
        (reading("10.0.0.1", until="2026-01-01T13:00:00Z"), "expires too soon"),
        (reading("10.0.0.1", fsid="f2"), "the ledger is about f"),
        (reading("10.0.0.1", age=150), "read it again"),
    ],
)
@pytest.mark.parametrize("method", ["ceph", "network_fence"])
def test_ceph_itself_must_show_the_fence(method: str, read: Reading | None, reason: str) -> None:
    """Right before anything is detached; and with state held right afterwards, when the node may be
    back.
    """
    ledger = (LEDGER if method == "ceph" else NETWORK)._replace(volumes=("pv-db",))
    fence = network_fence("Fenced", "fencing operation successful")
    world = standard(fence, ledger=ledger)
    before = contents(world)
    result = run(world, reading=read)
    assert result["failed"] and reason in result["msg"] and contents(world) == before, result["msg"]
    assert [finding["verdict"] for finding in result["findings"]] == ["refuse"]
    # Nor is it noted that all has left.
    left = run(World(*claim("db"), fence, ledger=ledger), reading=read)
    assert left["failed"] and reason in left["msg"] and left["actions"] == []
    assert verbs(run(standard(fence, ledger=ledger)))
    back = standard(fence, ledger=ledger)
    back.at("a")["status"]["conditions"][0]["status"] = "True"
    with pytest.raises(StorageOpsError, match="may write to what was detached from it") as said:
        held(back, reading=read)
    assert reason in str(said.value)
    assert held(back) == ledger._replace(revision=1).to_dict()


def held(world: World, ledger: Ledger | None = None, **given: Any) -> dict[str, Any]:
    """The ledger, unless the fence is gone."""
    still = StillFenced(
        world, RunOptions("a", "run-1", "storage-ops", 180.0, 0.0, None), options(**given)
    )  # type: ignore[arg-type]
    still.gather()
    assert still.plan(None) == Plan([]) and "Lease" not in {
        item["kind"] for item in world.objects.values()
    }
    return dict(still.facts()["fence"])


def test_who_cannot_ask_ceph_has_said_so() -> None:
    """By a NetworkFence whose message alone has proven it, or by the word that the node is off; and
    check mode has fenced nobody.
    """
    fence = network_fence("Fenced", "fencing operation successful")
    assert verbs(run(standard(fence, ledger=NETWORK._replace(unverified=True)), reading=None))
    assert verbs(
        run(
            standard(ledger=LEDGER._replace(method="none", entries=(), addresses=())),
            reading=reading(fsid="other"),
        )
    )
    assert not run(standard(), check=True, reading=None)["failed"]
    assert held(standard(), check=True, reading=None) == {}


def test_nothing_was_detached_from_a_node_whose_fence_was_never_proven() -> None:
    """Nobody is told to switch it off at once."""
    world = standard(ledger=LEDGER._replace(phase="intended"))
    with pytest.raises(StorageOpsError, match="is not proven") as said:
        held(world)
    assert "switch it off" not in str(said.value)
    # It was, and is to become larger.
    world = standard(ledger=LEDGER._replace(phase="intended", proven=True))
    with pytest.raises(StorageOpsError, match="is not proven.*switch it off at once"):
        held(world)


def test_a_fence_that_was_lost_since() -> None:
    world = standard(ledger=LEDGER._replace(phase="releasing"))
    with pytest.raises(StorageOpsError, match="is being released"):
        held(world)
    world = standard()
    unfence(world)
    with pytest.raises(StorageOpsError, match="NetworkFence f-a is Unfenced and covers"):
        held(world)
    world = standard()
    world.objects = {
        place: item for place, item in world.objects.items() if "/configmaps/" not in place
    }
    world.at("a")["metadata"]["annotations"] = {}
    with pytest.raises(StorageOpsError, match="has no ledger any more"):
        held(world)


OVER = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("method", "over", "counts"),
    [
        ("ceph", [Entry("10.0.0.1", "address", True, OVER)], True),
        # Left from before the node booted, and before network_fence.
        ("ceph", [*LEDGER.entries, Entry("10.0.0.9", "address", True, OVER)], False),
        ("network_fence", [Entry("10.0.0.1", "address", True, OVER)], False),
    ],
)
def test_a_fence_that_has_run_out(method: str, over: list[Entry], counts: bool) -> None:
    world = standard(ledger=LEDGER._replace(entries=tuple(over), method=method))
    read = reading("10.0.0.1", *(entry.entry for entry in over))
    if counts:
        assert f"ended by itself at {OVER}" in refusal(world)
    else:
        assert verbs(run(world, reading=read))


def test_a_network_fence_of_an_address_from_before_the_boot() -> None:
    old = FenceObject("f-old", "uid-old", ("10.0.0.9/32",), True)
    ledger = NETWORK._replace(network_fences=(old, *NETWORK.network_fences))
    assert verbs(
        run(standard(network_fence("Fenced", "fencing operation successful"), ledger=ledger))
    )


def test_a_network_fence_that_was_made_anew() -> None:
    """The one that is gone is in the ledger still; the new one does, or the blocklist."""
    gone = FenceObject("f-a", "uid-gone", ("10.0.0.1/32",), True)
    there = network_fence("Fenced", "fencing operation successful")
    assert verbs(
        run(
            standard(there, ledger=NETWORK._replace(network_fences=(gone, *NETWORK.network_fences)))
        )
    )
    assert verbs(run(standard(ledger=LEDGER._replace(network_fences=(gone,)))))
    alone = run(standard(there, ledger=NETWORK._replace(network_fences=(gone,))))
    assert alone["failed"] and "is gone" in alone["msg"]
    # One of another name may be for another Ceph.
    other = NETWORK._replace(network_fences=(gone._replace(name="f-b"), *NETWORK.network_fences))
    assert "is gone" in run(standard(there, ledger=other))["msg"]


NETWORK = LEDGER._replace(
    method="network_fence",
    entries=(),
    network_fences=(FenceObject("f-a", "uid-f", ("10.0.0.1/32",), True),),
)


def network_fence(state: str, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "csiaddons.openshift.io/v1alpha1",
        "kind": "NetworkFence",
        "metadata": {"name": "f-a", "uid": "uid-f"},
        "spec": {"driver": RBD, "cidrs": ["10.0.0.1/32"], "fenceState": state},
        "status": {"result": "Succeeded", "message": message},
    }


@pytest.mark.parametrize(
    ("state", "message", "text"),
    [
        ("Unfenced", "unfencing operation successful", "is Unfenced"),
        ("Fenced", "unfencing operation successful", "its status says Succeeded: unfencing"),
        ("", "", "is gone"),
        ("Fenced", "fencing operation successful", ""),
    ],
)
def test_a_network_fence_must_still_hold(state: str, message: str, text: str) -> None:
    world = standard(*([network_fence(state, message)] if state else []), ledger=NETWORK)
    if text:
        assert text in refusal(world)
    else:
        assert verbs(run(world))


@pytest.mark.parametrize(
    ("driver", "cluster_id", "state", "cidr", "counts"),
    [
        (RBD, "ceph-1", "Unfenced", "10.0.0.0/24", True),
        (RBD, "ceph-2", "Unfenced", "10.0.0.1/32", True),
        ("cephfs.csi.ceph.com", "ceph-1", "Unfenced", "10.0.0.1/32", True),
        ("", "", "Unfenced", "10.0.0.1/32", True),
        (OTHER, "ceph-2", "Unfenced", "10.0.0.1/32", False),
        (RBD, "ceph-1", "Fenced", "10.0.0.1/32", False),
        (RBD, "ceph-1", "Unfenced", "10.0.0.2/32", False),
    ],
)
def test_a_network_fence_that_would_take_the_fence_back(
    driver: str, cluster_id: str, state: str, cidr: str, counts: bool
) -> None:
    """Whoever made it, its controller unfences the address again whenever it starts."""
    item = network_fence(state, "unfencing operation successful")
    item["spec"].update(driver=driver, cidrs=[cidr], parameters={"clusterID": cluster_id})
    if counts:
        assert "NetworkFence f-a is Unfenced and covers 10.0.0.1" in refusal(standard(item))
    else:
        assert verbs(run(standard(item)))


def at_deletion(world: World, pod_name: str, act: Callable[[World], None]) -> None:
    """Something happens right before the first deletion of that pod, or of any one."""

    def before(verb: str, path: str) -> None:
        if verb == "delete" and f"/pods/{pod_name}" in path:
            world.before = lambda verb, path: None
            act(world)

    world.before = before


def unfence(world: World) -> None:
    world.add(network_fence("Unfenced", "unfencing operation successful"))


def expire(world: World) -> None:
    world.shift = timedelta(days=400_000)


def dawdle(world: World) -> None:
    """What was read of Ceph is too old then."""
    world.shift = timedelta(seconds=125)


@pytest.mark.parametrize(
    ("version", "change"), [("v1.31.4", "taint_node"), ("v1.20.2", "force_delete_pod")]
)
@pytest.mark.parametrize(
    ("act", "text"),
    [
        (unfence, "NetworkFence f-a is Unfenced"),
        (expire, "ended by itself at 2999-"),
        (dawdle, "read it again"),
    ],
)
def test_the_fence_is_looked_at_again_before_the_first_change(
    version: str, change: str, act: Callable[[World], None], text: str
) -> None:
    world = among(crowd(e0=1), version=version)
    looks: list[str] = []

    def before(verb: str, path: str) -> None:
        looks.append(path)
        if verb == "get" and path == "/api/v1/nodes/a" and looks.count(path) == 2:
            world.before = lambda verb, path: None
            act(world)

    world.before = before
    result = run(world)
    assert (
        result["failed"]
        and not result["changed"]
        and f"{change} was not started: " in result["msg"]
        and text in result["msg"]
    )
    assert [finding["object"]["kind"] for finding in result["findings"]] == ["Node"]
    assert world.attached() == {("pv-db", "a"), ("pv-e0", "a")} and OUT not in world.taints


@pytest.mark.parametrize("act", [unfence, expire, dawdle])
def test_the_fence_is_looked_at_again_before_every_change(act: Callable[[World], None]) -> None:
    world = standard(version="v1.20.2")
    at_deletion(world, "", act)
    result = run(world)
    assert result["failed"] and outcomes(result)[:2] == [
        ("force_delete_pod", "done"),
        ("delete_volumeattachment", "skipped"),
    ]
    assert ("pv-db", "a") in world.attached()


def test_what_was_read_of_ceph_may_grow_old_while_it_waits() -> None:
    world = standard()

    def before(verb: str, path: str) -> None:
        if OUT in world.taints:
            dawdle(world)

    world.before = before
    result = run(world)
    assert not result["failed"] and outcomes(result) == [
        ("taint_node", "done"),
        # Kubernetes does it, too.
        ("force_delete_pod", "skipped"),
        *[(verb, "done") for verb in ("wait_detached", "wait_attached", "wait_ready")],
        ("record_detached", "done"),
    ]


def test_a_filter_that_chooses_nothing_that_is_fenced() -> None:
    world = standard(*claim("other", OTHER), attachment("other", driver=OTHER))
    assert "choose none of the volumes that are fenced: pv-db" in refusal(
        world, filters=Filters(namespaces=("bank",))
    )
    reason = refusal(world, filters=Filters(claims=("shop/db", "shop/other")))
    assert reason == "claim shop/other has no volume that is fenced"


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_a_pod_with_a_volume_that_is_not_fenced(version: str) -> None:
    world = World(
        *[
            *claim("db"),
            attachment("db"),
            *claim("other", OTHER),
            attachment("other", driver=OTHER),
            pod("db-1", "db", "other"),
        ],
        version=version,
    )
    reason = refusal(world)
    assert "pod shop/db-1 uses it together with pv-other, which is not fenced" in reason
    # One by one, the other volume stays where it is, and the new pod waits for it.
    assert verbs(
        run(
            world, accept_unfenced_volumes=True, ready_timeout=0.0 if version == "v1.20.2" else 10.0
        )
    )
    assert ("pv-db", "b") in world.attached()


ISCSI = {"name": "data", "iscsi": {"targetPortal": "10.0.0.9", "iqn": "iqn.2026-01.x:y", "lun": 0}}


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        (ISCSI, "the inline iscsi volume data"),
        ({"name": "data", "nfs": {"server": "s", "path": "/"}}, "the inline nfs volume data"),
        (
            {"name": "data", "csi": {"driver": "smb.csi.k8s.io"}},
            "the inline csi smb.csi.k8s.io volume data",
        ),
        (
            {"name": "data", "flexVolume": {"driver": "ceph.rook.io/rook"}},
            "the inline flexVolume ceph.rook.io/rook volume data",
        ),
        ({"name": "data", "csi": {"driver": "secrets-store.csi.k8s.io"}}, ""),
        ({"name": "data", "emptyDir": {}}, ""),
        ({"name": "data", "hostPath": {"path": "/var/log"}}, ""),
        ({"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}, ""),
        ({"name": "data"}, ""),
    ],
)
def test_inline_volumes(volume: dict[str, Any], text: str) -> None:
    item = pod("web", volumes=[volume])
    item["metadata"]["uid"] = "u"
    lost = pick_lost_pod(item)
    assert lost and lost.inline == ((text,) if text else ())


def test_a_pod_with_an_inline_volume_only() -> None:
    """It has no claim and no VolumeAttachment, and its new pod would be a second writer all the
    same.
    """
    world = standard(pod("web", volumes=[ISCSI]))
    assert "not fenced: the inline iscsi volume data of pod shop/web" in refusal(
        world, detach="taint"
    )
    result = run(world)
    assert "taint_node" not in verbs(result) and "web" in world.names("Pod")
    assert result["findings"][0]["evidence"]["not_fenced"] == [
        "the inline iscsi volume data of pod shop/web"
    ]
    assert (
        verbs(run(standard(pod("web", volumes=[ISCSI])), accept_unfenced_volumes=True))[0]
        == "taint_node"
    )


def waiting(*claims: str, created: str = "2026-01-01T00:00:01Z", **spec: Any) -> dict[str, Any]:
    """A pod of which nothing ever ran; it was created a second after the node fell silent."""
    item = pod("web", *claims, **spec)
    item["metadata"]["creationTimestamp"] = created
    item["status"] = {"phase": "Pending"}
    return item


# Shows that volumes of that driver are attached.
SHOWN = [*claim("cache", OTHER), attachment("cache", "b", OTHER)]


@pytest.mark.parametrize(
    ("created", "shown", "taints"),
    [
        ("2026-01-01T00:00:01Z", SHOWN, True),
        ("2026-01-01T00:00:01Z", [], False),
        ("2026-01-01T00:00:00Z", SHOWN, False),
    ],
    ids=["late", "late, and nothing is attached", "in time"],
)
def test_a_pod_that_never_ran_keeps_no_other_from_the_taint(
    created: str, shown: list[dict[str, Any]], taints: bool
) -> None:
    """Any tenant may name a lost node in a pod. Its kubelet has not mounted what is attached."""
    world = standard(*claim("files", OTHER), *shown)
    # The controller manager has not attached it yet.
    world.broken = {"attach pv-files"}
    world.add(waiting("files", created=created))
    assert (verbs(run(world))[0] == "taint_node") is taints
    assert ("pv-db", "b") in world.attached()


NFS_INLINE = {"name": "files", "nfs": {"server": "s", "path": "/"}}
EPHEMERAL = {"name": "files", "csi": {"driver": OTHER}}


@pytest.mark.parametrize("volume", [NFS_INLINE, EPHEMERAL])
def test_a_late_pod_may_have_mounted_what_is_never_attached(volume: dict[str, Any]) -> None:
    """Inline volumes are not, whatever their driver does; so the taint would go too far. The
    volumes of the fence leave one by one all the same.
    """
    world = standard(waiting(volumes=[volume]), *SHOWN)
    assert "volume files of pod shop/web" in refusal(world, detach="taint")
    assert "taint_node" not in verbs(run(world)) and ("pv-db", "b") in world.attached()


EVILS = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"namespace": "evil", "name": "mine", "uid": "uid-mine"},
}


def of_evil(volume: str, phase: str, deleted: str = "") -> list[dict[str, Any]]:
    """A pod on the lost node, and its claim, which names the volume."""
    item = pod("evil", "mine", owner="DaemonSet")
    item["metadata"]["namespace"] = "evil"
    item["spec"]["volumes"].append(NFS_INLINE)
    item["status"] = {"phase": "Pending"}
    meta = {**EVILS["metadata"], **({"deletionTimestamp": deleted} if deleted else {})}
    claimed = {"spec": {"volumeName": volume}, "status": {"phase": phase}}
    return [item, {**EVILS, "metadata": meta, **claimed}]


@pytest.mark.parametrize("deleted", ["", "2026-01-01T00:00:00Z"])
@pytest.mark.parametrize("phase", ["", "Pending", "Lost", "Bound"])
@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_a_claim_that_names_the_volume_of_another_keeps_that_nowhere(
    version: str, phase: str, deleted: str
) -> None:
    """Any tenant may make one. Its pod is no user of the volume, whatever else it has."""
    world = standard(version=version)
    world.broken = {"attach pv-mine"}
    for item in of_evil("pv-db", phase, deleted):
        world.add(item)
    result = run(world)
    assert "taint_node" not in verbs(result) and ("pv-db", "b") in world.attached()
    assert "evil" in world.names("Pod")


@pytest.mark.parametrize("deleted", ["", "2026-01-01T00:00:00Z"])
@pytest.mark.parametrize(("phase", "named"), [("", ""), ("Pending", ""), ("Pending", "pv-other")])
def test_a_claim_that_was_never_bound_keeps_no_other_from_the_taint(
    phase: str, named: str, deleted: str
) -> None:
    world = standard(*claim("other", OTHER), attachment("other", "b", OTHER))
    world.broken = {"attach pv-mine"}
    item, claimed = of_evil(named, phase, deleted)
    del item["spec"]["volumes"][1:]
    world.add(item)
    world.add(claimed)
    assert verbs(run(world))[0] == "taint_node"
    # That would be the list.
    assert "get /api/v1/persistentvolumes" not in world.requests


@pytest.mark.parametrize(
    ("phase", "uid", "volumes", "unclear"),
    [
        ("Bound", "uid-db", {"pv-db": RBD}, ()),
        # The volume is gone, and the controller manager has not noticed yet.
        ("Bound", None, {"pv-db": ""}, ()),
        ("Bound", "uid-old", {}, ("claim db, which is Bound, and no volume says so",)),
        ("Bound", "", {}, ("claim db, which is Bound, and no volume says so",)),
        ("Lost", None, {}, ("claim db, which is Lost, and no volume says so",)),
        ("Lost", "uid-db", {}, ("claim db, which is Lost, and no volume says so",)),
        ("Pending", "uid-db", {}, ()),
        ("", None, {}, ()),
    ],
)
def test_what_a_pods_claim_has(
    phase: str, uid: str | None, volumes: dict[str, str], unclear: tuple[str, ...]
) -> None:
    """``uid``: that of the claim in the volume; None if there is no such volume."""
    item = pod("db-1", "db")
    item["metadata"]["uid"] = "u"
    claimed, named = claim("db")
    claimed["status"]["phase"] = phase
    named["metadata"]["uid"] = "u"
    named["spec"]["claimRef"]["uid"] = uid
    there = {} if uid is None else {"pv-db": pick_volume(named)}
    lost = pick_lost_pod(item)
    assert lost
    found = with_claims(lost, {("shop", "db"): pick_claim(claimed)}, there)
    assert (found.volumes, found.unclear) == (volumes, unclear)


def test_a_pod_with_a_claim_of_which_the_volume_is_unclear() -> None:
    claimed, named = claim("log")
    claimed["status"]["phase"] = "Lost"
    world = standard(claimed, named, pod("log-1", "log"))
    text = "claim log, which is Lost, and no volume says so (of pod shop/log-1)"
    assert text in refusal(world, detach="taint")
    both = World(*claim("db"), attachment("db"), claimed, named, pod("db-1", "db", "log"))
    # What is not bound is not attached.
    both.broken.add("attach pv-log")
    both.remove(attachment("log"))
    assert "together with the volume of claim log, which is Lost" in refusal(both)


def test_a_pod_with_any_number_of_claims_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A pod may name claims that do not exist, and each would be a request.
    monkeypatch.setattr(failover_plan, "MOST_CLAIMS", 2)
    evil = pod("evil-1", *(f"none-{number}" for number in range(50)))
    evil["metadata"]["namespace"] = "evil"
    world = standard()
    world.broken = {f"attach pv-none-{number}" for number in range(50)}
    world.add(evil)
    # What was not read may be any storage, as what does not exist.
    assert "claim none-2 (and 47 more), which was not read" in refusal(world, detach="taint")
    result = run(world, detach="volumes")
    asked = {asked for asked in world.requests if "/evil/persistentvolumeclaims/" in asked}
    assert len(asked) == 2, asked
    assert ("pv-db", "b") in world.attached() and not result.get("failed"), result


def crowded(created: str, spaces: int, number: int) -> World:
    """A tenant's pods that name the lost node, one in each of its namespaces, with many claims."""
    world = standard()
    for space in range(spaces):
        names = [f"c{count}" for count in range(number)]
        evil = pod(f"evil-{space}", *names)
        evil["metadata"] |= {"namespace": f"a-evil-{space}", "creationTimestamp": created}
        world.add({**evil, "status": {"phase": "Pending"}})
        for name in names:
            metadata = {"namespace": f"a-evil-{space}", "name": name}
            spec = {"volumeName": f"no-{space}-{name}"}
            kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            world.add({**kind, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    world.broken = {f"attach pv-{name}" for name in names}
    return world


@pytest.mark.parametrize("created", ["2026-02-01T00:00:00Z", "2025-12-31T00:00:00Z"])
def test_the_many_claims_of_a_tenant_do_not_take_the_time_of_the_others(created: str) -> None:
    """Each is a request, and what was read of Ceph is no proof after two minutes."""
    world = crowded(created, spaces=7, number=100)

    def slow(verb: str, _path: str) -> None:
        if verb == "get" and not world.attached() - {("pv-db", "a")}:
            world.spent += 0.1
            world.shift += timedelta(seconds=0.1)

    world.before = slow
    result = run(world, reading=reading("10.0.0.1"))
    assert ("pv-db", "b") in world.attached() and not result["failed"], result["msg"]
    asked = [one for one in world.requests if "/persistentvolumeclaims/" in one]
    # In turns; what the node cannot have opened is the last.
    is_late = created > "2026-01-02"
    assert "/shop/" in asked[0 if is_late else 7] and len(asked) < 300
    # Of a pod that the node may have had, what was not read may be any storage.
    assert (("taint_node", "done") in outcomes(result)) is is_late


def test_of_a_pod_with_any_number_of_claims_few_names_are_kept() -> None:
    """Any number of such pods may name a lost node, and each was 20 MB in memory."""
    evil = pod("evil-1", *(f"c{number:05}" for number in range(45_000)))
    evil["metadata"]["uid"] = "u"
    lost = pick_lost_pod(evil)
    assert lost and len(lost.pod.claims) == 1001 and lost.more == 43_999
    claimed, named = claim("c00000")
    named["spec"]["claimRef"]["uid"] = claimed["metadata"]["uid"] = named["metadata"]["uid"] = "u"
    read = {("shop", f"c{number:05}"): None for number in range(1000)}
    first = {("shop", "c00000"): pick_claim(claimed)}
    found = with_claims(lost, {**read, **first}, {"pv-c00000": pick_volume(named)})
    assert found.pod.claims == ("c00000",) and list(found.volumes) == ["pv-c00000"]
    assert [text.partition(", which")[0] for text in found.unclear] == [
        "claim c00001 (and 998 more)",
        "claim c01000 (and 43999 more)",
    ]
    # Where an older pod has named what is kept, the others are still not read.
    every = with_claims(lost, {("shop", name): None for name in lost.pod.claims}, {})
    assert [text.partition(", which")[0] for text in every.unclear] == [
        "claim c00000 (and 1000 more)",
        "43999 claims",
    ]


def test_a_late_pod_has_no_volume_of_a_claim_that_is_not_there() -> None:
    world = standard()
    world.broken = {"attach pv-nothing"}
    world.add(waiting("nothing"))
    assert verbs(run(world))[0] == "taint_node"


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_a_pod_with_a_fenced_and_an_inline_volume(version: str) -> None:
    both = pod("db-1", "db")
    both["spec"]["volumes"].append(ISCSI)
    world = World(*claim("db"), attachment("db"), both, version=version)
    assert (
        "pod shop/db-1 uses it together with the inline iscsi volume data, which is not fenced"
        in refusal(world)
    )
    assert verbs(run(world, accept_unfenced_volumes=True))


@pytest.mark.parametrize("field", ["volumesAttached", "volumesInUse"])
def test_a_volume_that_only_the_nodes_status_knows(field: str) -> None:
    def world(*names: str) -> World:
        made = standard()
        made.at("a")["status"][field] = [
            {"name": name} if field == "volumesAttached" else name for name in names
        ]
        return made

    other = "kubernetes.io/iscsi/10.0.0.9:3260:iqn.2026-01.x:y:0"
    assert f"not fenced: {other} (by the node's status)" in refusal(world(other), detach="taint")
    assert "taint_node" not in verbs(run(world(other)))
    # The fence's own volume, attached or not any more, is none.
    mine = world(f"kubernetes.io/csi/{RBD}^h-db")
    assert "taint_node" in verbs(run(mine))
    mine = world(f"kubernetes.io/csi/{RBD}^h-db")
    mine.remove(attachment("db"))
    assert "taint_node" in verbs(run(mine))


def test_the_others_leave_and_the_ledger_says_which() -> None:
    more = [
        *claim("log"),
        attachment("log"),
        *claim("other", OTHER),
        attachment("other", driver=OTHER),
        pod("log-1", "log", "other"),
    ]
    world = standard(*more, ledger=LEDGER._replace(volumes=("pv-db", "pv-log")))
    result = run(world)
    assert result["failed"] and "PersistentVolume pv-log" in result["msg"]
    assert outcomes(result) == [
        (verb, "done")
        for verb in (
            "force_delete_pod",
            "delete_volumeattachment",
            "wait_detached",
            "wait_attached",
            "wait_ready",
            "record_detached",
        )
    ]
    assert ("pv-db", "b") in world.attached() and ("pv-log", "a") in world.attached()
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    before = contents(world)
    again = run(world)
    assert again["failed"] and again["actions"] == [] and contents(world) == before


def test_a_pod_with_two_fenced_volumes_is_deleted_once() -> None:
    world = World(
        *[
            *claim("db"),
            attachment("db"),
            *claim("log"),
            attachment("log"),
            pod("db-1", "db", "log"),
        ],
        ledger=LEDGER._replace(volumes=("pv-db", "pv-log")),
        version="v1.20.2",
    )
    assert verbs(run(world)).count("force_delete_pod") == 1
    assert world.attached() == {("pv-db", "b"), ("pv-log", "b")}


@pytest.mark.parametrize(("tolerations", "version"), [([], "v1.20.2"), (TOLERANT, "v1.31.4")])
def test_a_daemon_set_would_make_its_pod_again(tolerations: Sequence[Any], version: str) -> None:
    world = World(
        *claim("db"),
        attachment("db"),
        pod("db-1", "db", owner="DaemonSet", tolerations=tolerations),
        version=version,
    )
    assert "belongs to a DaemonSet" in refusal(world)


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_a_claim_that_is_being_deleted(version: str) -> None:
    world = World(
        *claim("db", deletionTimestamp="2026-01-01T00:00:00Z"),
        attachment("db"),
        pod("db-1", "db"),
        version=version,
    )
    assert "claim db is being deleted, and only pod shop/db-1 keeps it" in refusal(world)


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_all_that_is_fenced_goes_in_one_run(version: str) -> None:
    """Who has named a node and seen it fenced has named its volumes, by whatever way they leave."""
    names = [f"d{number}" for number in range(12)]
    parts = [
        part for name in names for part in (*claim(name), attachment(name), pod(f"p-{name}", name))
    ]
    files = pod("files")
    files["spec"]["volumes"].append({"name": "files", "nfs": {"server": "nfs", "path": "/"}})
    world = World(
        *parts,
        files,
        ledger=LEDGER._replace(volumes=tuple(f"pv-{name}" for name in names)),
        version=version,
    )
    result = run(world)
    assert verbs(result).count("delete_volumeattachment") == 12 and "taint_node" not in verbs(
        result
    )
    assert world.ledger().phase == "detached"


def test_a_filter_takes_a_part() -> None:
    more = [*claim("log"), attachment("log"), pod("log-1", "log")]
    world = standard(*more, ledger=LEDGER._replace(volumes=("pv-db", "pv-log")))
    chosen = Filters(claims=("shop/db",))
    assert verbs(run(world, filters=chosen))
    assert world.ledger().detached == ("pv-db",)
    assert (
        world.attached() == {("pv-db", "b"), ("pv-log", "a")} and world.ledger().phase == "fenced"
    )
    again = run(world, filters=chosen)
    assert not again["changed"] and not again["failed"] and again["findings"] == []
    assert (
        verbs(run(world, filters=Filters(storage_classes=(f"class-{RBD}",))))[-1]
        == "record_detached"
    )


# in which order, and how many in one run


def of_tenant(namespace: str, *items: dict[str, Any]) -> list[dict[str, Any]]:
    """The same objects, in another namespace."""
    for item in items:
        if "namespace" in item["metadata"]:
            item["metadata"]["namespace"] = namespace
        if item["kind"] == "PersistentVolume":
            item["spec"]["claimRef"]["namespace"] = namespace
    return [*items]


def crowd(**numbers: int) -> list[dict[str, Any]]:
    """Volumes of a tenant called evil, each with so many pods on the lost node."""
    return [
        item
        for name, number in numbers.items()
        for item in of_tenant(
            "evil",
            *claim(name),
            attachment(name),
            *(pod(f"{name}-{count}", name) for count in range(number)),
        )
    ]


def among(crowd_: list[dict[str, Any]], **how: Any) -> World:
    """Those volumes, which come first in the ledger, and pv-db of another tenant."""
    names = [item["metadata"]["name"] for item in crowd_ if item["kind"] == "PersistentVolume"]
    return standard(*crowd_, ledger=LEDGER._replace(volumes=(*names, "pv-db")), **how)


def deleted(result: dict[str, Any]) -> list[str]:
    """What was deleted: pods by their names, attachments as "detach" and their number."""
    short = {attachment(name)["metadata"]["name"]: f"detach {name}" for name in ("db", "e0", "e1")}
    return [
        short.get(action["target"], action["target"])
        for action in result["actions"]
        if action["action"] in ("force_delete_pod", "delete_volumeattachment")
    ]


def test_volumes_leave_one_after_the_other_in_turns_of_namespaces() -> None:
    """A tenant's many pods and many claims give it no more turns: else they use up the time in
    which the volumes of all others could leave.
    """
    world = among(crowd(e0=3, e1=1), version="v1.20.2")
    result = run(world)
    assert not result["failed"], result["msg"]
    assert deleted(result) == [
        *("shop/db-1", "detach db"),
        # Each detach comes right after the pods of its volume.
        *("evil/e0-0", "evil/e0-1", "evil/e0-2", "detach e0"),
        *("evil/e1-0", "detach e1"),
    ]
    assert ("pv-db", "b") in world.attached() and world.ledger().phase == "detached"


def test_many_claims_give_a_tenant_no_more_turns() -> None:
    world = among(crowd(e0=1, e1=1), version="v1.20.2")
    assert deleted(run(world)) == [
        *("evil/e0-0", "detach e0"),
        *("shop/db-1", "detach db"),
        *("evil/e1-0", "detach e1"),
    ]


def test_a_volume_with_more_pods_than_a_run_deletes_stays_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover_plan, "MOST_DELETIONS", 5)
    world = among(crowd(e0=6), version="v1.20.2")
    world.broken.add("replace")
    check = run(world, check=True)
    result = run(world)
    assert (
        deleted(check)
        == deleted(result)
        == [
            *("shop/db-1", "detach db"),
            *("evil/e0-0", "evil/e0-1", "evil/e0-2"),
        ]
    )
    for told in (check, result):
        assert told["failed"] and told["code"] == "too_many_deletions", told
        assert "PersistentVolume pv-e0: 4 of its pods and attachments are left" in told["msg"]
    # The others are proven and noted all the same.
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    assert ("pv-e0", "a") in world.attached()
    # Further runs end it, with those alone that are left.
    again = run(world)
    assert not again["failed"], again["msg"]
    assert deleted(again) == ["evil/e0-3", "evil/e0-4", "evil/e0-5", "detach e0"]
    assert world.ledger().phase == "detached"


def with_one_pod_of_two() -> World:
    """One of two tenants has e0 and e1 in one pod, and e1 is being detached already."""
    going = attachment("e1", finalizers=["a"], deletionTimestamp="2026-01-01T00:00:00Z")
    theirs = [*claim("e0"), attachment("e0"), *claim("e1"), going, pod("both", "e0", "e1")]
    volumes = ("pv-db", "pv-e0", "pv-e1")
    return standard(
        *of_tenant("evil", *theirs), ledger=LEDGER._replace(volumes=volumes), version="v1.20.2"
    )


def both_stay(world: World, result: dict[str, Any], code: str) -> list[str]:
    """The run fails for them alone, and does not wait for either: why."""
    assert result["failed"] and result["code"] == code, result
    names = [finding["object"]["name"] for finding in result["findings"]]
    assert names == ["pv-e0", "pv-e1", "a"] or names == ["a", "pv-e0", "pv-e1"]
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    assert result["left"] == ["pv-db"] and world.spent < 5
    return [finding["reason"] for finding in result["findings"] if finding["code"] == code]


def test_a_pod_of_two_volumes_that_is_left_keeps_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the second is awaited in vain, and all others with it."""
    monkeypatch.setattr(failover_plan, "MOST_DELETIONS", 2)
    world = with_one_pod_of_two()
    result = run(world)
    assert deleted(result) == ["shop/db-1", "detach db"]
    first, second = both_stay(world, result, "too_many_deletions")
    assert first.startswith("2 of its pods and attachments are left")
    assert second.startswith("1 of its pods and attachments are left")
    # Further runs have the pod to delete, once.
    assert deleted(run(world)) == ["evil/both", "detach e0"]


def test_a_pod_of_two_volumes_whose_turn_does_not_come_keeps_both() -> None:
    world = with_one_pod_of_two()

    def before(verb: str, path: str) -> None:
        if verb == "delete" and "/volumeattachments/" in path:
            dawdle(world)

    world.before = before
    result = run(world)
    assert [outcome for verb, outcome in outcomes(result) if verb == "force_delete_pod"] == [
        "done",
        "skipped",
    ]
    for why in both_stay(world, result, "ceph_reading_unfit"):
        assert why.startswith("its turn did not come")


def test_a_part_of_a_volume_whose_turn_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run leaves in any case has its finding already."""
    monkeypatch.setattr(failover_plan, "MOST_DELETIONS", 5)
    world = among(crowd(e0=6), version="v1.20.2")
    at_deletion(world, "e0-0", dawdle)
    result = run(world)
    assert [finding["object"]["name"] for finding in result["findings"]] == ["pv-e0", "a"]
    assert result["code"] == "too_many_deletions" and world.ledger().detached == ("pv-db",)


def test_a_run_with_nothing_but_a_part_of_one_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover_plan, "MOST_DELETIONS", 2)
    world = World(*crowd(e0=3), ledger=LEDGER._replace(volumes=("pv-e0",)), version="v1.20.2")
    world.broken.add("replace")
    result = run(world)
    assert result["failed"] and outcomes(result) == [("force_delete_pod", "done")] * 2
    assert "still attached to the lost node a" in result["findings"][1]["summary"]
    assert ("pv-e0", "a") in world.attached() and world.ledger().phase == "fenced"
    assert verbs(run(world))[-1] == "record_detached"


def test_what_was_read_of_ceph_grows_too_old_for_the_volumes_whose_turn_has_not_come() -> None:
    """They stay; what has been detached before is proven and noted all the same."""
    world = among(crowd(e0=2, e1=2), version="v1.20.2")
    at_deletion(world, "e0-0", dawdle)
    result = run(world)
    assert result["failed"] and result["code"] == "ceph_reading_unfit", result
    assert outcomes(result) == [
        *[("force_delete_pod", "done"), ("delete_volumeattachment", "done")],
        *[("force_delete_pod", "done"), ("force_delete_pod", "skipped")],
        ("delete_volumeattachment", "skipped"),
        *[("force_delete_pod", "skipped")] * 2,
        ("delete_volumeattachment", "skipped"),
        *[(verb, "done") for verb in ("wait_detached", "wait_attached", "wait_ready")],
        ("record_detached", "done"),
    ]
    left = [finding["object"]["name"] for finding in result["findings"][1:]]
    assert left == ["pv-e0", "pv-e1"] and "read it again" in result["findings"][1]["reason"]
    assert {("pv-db", "b"), ("pv-e0", "a"), ("pv-e1", "a")} <= world.attached()
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    assert result["left"] == ["pv-db"]
    again = run(world)
    assert not again["failed"] and world.ledger().phase == "detached", again["msg"]


@pytest.mark.parametrize("act", [unfence, expire])
def test_a_fence_that_is_lost_ends_the_run_whoever_has_left(act: Callable[[World], None]) -> None:
    world = among(crowd(e0=2), version="v1.20.2")
    at_deletion(world, "e0-0", act)
    result = run(world)
    assert result["failed"] and result["half_made"], result
    assert [outcome for _verb, outcome in outcomes(result)] == ["done"] * 3 + ["skipped"] * 6
    assert [finding["object"]["kind"] for finding in result["findings"]] == ["Node"]
    assert ("pv-e0", "a") in world.attached()


def test_what_was_read_of_ceph_grows_too_old_and_no_volume_is_detached() -> None:
    world = among(crowd(e0=3), version="v1.20.2")
    at_deletion(world, "db-1", dawdle)
    result = run(world)
    assert result["failed"] and "read it again" in result["msg"], result
    assert {outcome for _verb, outcome in outcomes(result)[1:]} == {"skipped"}
    assert {("pv-db", "a"), ("pv-e0", "a")} <= world.attached()


# what the taint would do later


def test_the_taint_does_not_wait_for_the_pod_garbage_collector() -> None:
    """Which looks every 20 seconds: each pod that uses a fenced volume is deleted right away."""
    world = among([*crowd(e0=2), pod("web"), pod("web-2", volumes=[])])
    world.broken.add("collect")
    result = run(world)
    assert verbs(result)[0] == "taint_node"
    assert deleted(result) == ["shop/db-1", "evil/e0-0", "evil/e0-1"]
    deletes = [request for request in world.requests if request.startswith("delete /api/v1/")]
    assert deletes[0] == "delete /api/v1/namespaces/shop/pods/db-1 (grace 0)"
    assert {"web", "web-2"} <= set(world.names("Pod"))
    assert world.attached() == {("pv-db", "b"), ("pv-e0", "b")}


def test_with_the_taint_no_pod_is_deleted_before_it_is_set() -> None:
    world = standard()
    world.broken.add("collect")
    seen: list[bool] = []

    def before(verb: str, path: str) -> None:
        if verb == "delete" and "/pods/" in path:
            seen.append(OUT in world.taints)

    world.before = before
    verbs(run(world))
    assert seen == [True]


def replace(world: World) -> None:
    world.objects["/api/v1/namespaces/shop/pods/db-1"]["metadata"]["uid"] = "uid-of-another"


def test_with_the_taint_a_pod_of_another_uid_stays() -> None:
    world = standard()
    world.broken.add("collect")
    at_deletion(world, "", replace)
    result = run(world)
    assert result["failed"] and "pod shop/db-1 of pv-db is still on a" in result["msg"]
    assert "db-1" in world.names("Pod") and world.ledger().phase == "fenced"


@pytest.mark.parametrize("act", [unfence, expire])
def test_with_the_taint_the_fence_is_looked_at_again_before_every_pod(
    act: Callable[[World], None],
) -> None:
    world = among(crowd(e0=1))
    world.broken.add("collect")
    at_deletion(world, "", act)
    result = run(world)
    assert result["failed"] and outcomes(result)[:3] == [
        ("taint_node", "done"),
        ("force_delete_pod", "done"),
        ("force_delete_pod", "skipped"),
    ]
    assert "db-1" in world.names("Pod")


def no_pod_may_be_deleted(verb: str, path: str) -> None:
    if verb == "delete" and "/pods/" in path:
        raise Forbidden("cannot delete pods", 403)


def test_with_the_taint_a_pod_that_may_not_be_deleted_is_left_to_kubernetes() -> None:
    world = standard()
    world.before = no_pod_may_be_deleted
    check = run(world, check=True)
    assert not check["failed"] and check["changed"], check["msg"]
    result = run(world)
    assert not result["failed"], result["msg"]
    assert outcomes(result)[:2] == [("taint_node", "done"), ("force_delete_pod", "skipped")]
    assert world.attached() == {("pv-db", "b")} and world.ledger().phase == "detached"


def test_with_the_taint_a_pod_that_tolerates_it_must_be_deleted() -> None:
    world = World(*claim("db"), attachment("db"), pod("db-1", "db", tolerations=TOLERANT))
    world.before = no_pod_may_be_deleted
    assert "force_delete_pod shop/db-1 would fail" in run(world, check=True)["msg"]
    result = run(world)
    assert result["failed"] and "cannot delete pods" in result["msg"]
    assert ("force_delete_pod", "skipped") in outcomes(result)


def test_with_the_taint_a_pod_of_a_daemon_set_is_left_to_kubernetes() -> None:
    """Its controller may not have seen the taint yet, and would make the pod again there."""
    world = World(*claim("db"), attachment("db"), pod("db-1", "db", owner="DaemonSet"))
    assert "force_delete_pod" not in verbs(run(world))
    assert world.attached() == {("pv-db", "b")}


def test_with_the_taint_so_many_pods_at_most_are_not_left_to_kubernetes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them that tolerates the taint is deleted all the same: nothing else would."""
    monkeypatch.setattr(failover_plan, "MOST_HASTENED", 3)
    stays = of_tenant("evil", pod("e1-9", "e1", tolerations=TOLERANT))
    world = among([*crowd(e0=1, e1=3), *stays])
    result = run(world)
    assert deleted(result) == ["evil/e0-0", "shop/db-1", "evil/e1-0", "evil/e1-9"]
    assert not result["failed"] and world.ledger().phase == "detached"


# one volume that cannot be failed over, and the others

TWO = LEDGER._replace(volumes=("pv-db", "pv-ev"))


def two(**meta: Any) -> World:
    """The volumes of two tenants; ``meta``: of the pod that one of them has on the lost node."""
    theirs = pod("ev-1", "ev")
    theirs["metadata"].update(meta)
    return standard(*claim("ev"), attachment("ev"), theirs, ledger=TWO)


def one_left(world: World, code: str, said: str, **given: Any) -> dict[str, Any]:
    """A run that fails for pv-ev alone: pv-db is proven, and the ledger says so."""
    result = run(world, **given)
    assert result["failed"] and result["code"] == code, result
    node_, ev = result["findings"]
    assert ev["object"] == {"kind": "PersistentVolume", "name": "pv-ev", "node": "a"}
    assert (ev["verdict"], ev["code"]) == ("refuse", code) and said in ev["reason"]
    assert "PersistentVolume pv-ev" in result["msg"] and said in result["msg"]
    proof = " ".join(node_["evidence"].get("proof", []))
    assert "pod shop/db-1-again is Running and Ready on b" in proof and "pv-ev" not in proof
    assert ("pv-db", "b") in world.attached()
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    assert result["fence"] == world.ledger().to_dict()
    return result


def all_done(world: World, **given: Any) -> None:
    """Once the cause is gone, the next run ends the work, and the one after it does nothing."""
    assert verbs(run(world, **given))[-1] == "record_detached"
    assert world.attached() == {("pv-db", "b"), ("pv-ev", "b")}
    assert (world.ledger().phase, world.ledger().detached) == ("detached", ("pv-db", "pv-ev"))
    assert verbs(run(world, **given)) == []


@pytest.mark.parametrize("detach", ["taint", "volumes"])
def test_a_pod_that_its_tenant_holds_keeps_no_other_volume_from_its_proof(detach: str) -> None:
    world = two(finalizers=["tenant.example.com/keep"])
    result = one_left(world, "not_detached", "pod shop/ev-1 of pv-ev is still on a", detach=detach)
    assert result["left"] == ["pv-db"] and ("pv-ev", "a") in world.attached()
    kept = world.ledger().to_dict()
    # The next run has the stuck one alone to do, and does no harm to what is proven.
    again = run(world, detach=detach)
    assert again["failed"] and "pv-ev" in again["msg"] and "pv-db" not in again["msg"]
    assert world.ledger().to_dict() == kept and ("pv-db", "b") in world.attached()
    (stuck,) = [item for item in world.of("Pod") if item["metadata"]["name"] == "ev-1"]
    stuck["metadata"]["finalizers"] = []
    world._delete(stuck)
    all_done(world, detach=detach)


def test_step_by_step_with_a_volume_that_stays() -> None:
    """As the role calls it: what the first step has taken off is proven by the last one."""
    world = two(finalizers=["tenant.example.com/keep"])
    first = run(world, state="detached")
    assert first["failed"] and first["code"] == "not_detached" and first["left"] == ["pv-db"]
    assert "pv-ev" in first["msg"] and world.ledger().detached == ()
    one_left(world, "not_detached", "still on a", awaited=("pv-db",), detach_timeout=1.0)


def test_a_run_that_was_killed_before_the_proof_and_a_volume_that_stays() -> None:
    """What has left is proven by the next run, although nothing of the kind is left to detach."""
    world = two(finalizers=["tenant.example.com/keep"])
    assert run(world, state="detached")["left"] == ["pv-db"]
    one_left(world, "not_detached", "still on a")


def test_a_volume_that_is_not_attached_elsewhere() -> None:
    world = two()
    world.broken.add("attach pv-ev")
    one_left(world, "not_attached", "waits for pv-ev: there is no VolumeAttachment")
    world.broken.clear()
    all_done(world)


def test_one_new_pod_that_does_not_run() -> None:
    world = two()
    world.broken.add("start ev-1-again")
    result = one_left(world, "not_attached", "pod shop/ev-1-again on b is Pending")
    assert "not Running and Ready within 10 s (ready_timeout)" in result["msg"]
    world.broken.clear()
    all_done(world)


def with_pods_on_b(number: int) -> World:
    """The two volumes, and so many pods of pv-ev on the other node, none of which starts."""
    more = [pod(f"ev-{count}-again", "ev", node_name="b") for count in range(1, number + 1)]
    world = two()
    for item in more:
        world.broken.add(f"start {item['metadata']['name']}")
        world.add(item)
    return world


def test_any_number_of_waiting_pods_keeps_no_other_volume_from_its_proof() -> None:
    """Each would be a request at each look, and one more for its events."""

    def asked(number: int) -> tuple[int, int]:
        world = with_pods_on_b(number)
        one_left(world, "not_attached", "pod shop/ev-1-again on b is Pending")
        requests = world.requests
        return (
            len([asked for asked in requests if asked.startswith("get") and "/volumeatt" in asked]),
            len([asked for asked in requests if asked.startswith("list") and "/events" in asked]),
        )

    (attachments, events), few = asked(40), asked(4)
    assert (attachments, events) == few and events == 3


def moved_to_evil(*objects: dict[str, Any]) -> list[dict[str, Any]]:
    """The same in the namespace evil."""
    found = copy.deepcopy([*objects])
    for item in found:
        for part in (item["metadata"], item.get("spec", {}).get("claimRef", {})):
            part.update({"namespace": "evil"} if "namespace" in part else {})
    return found


def test_events_of_one_tenant_keep_no_other_volume_from_its_proof() -> None:
    """A LIST of 200 events of 500 kB took 7 s, and one was made for each volume of each pod."""
    names = [f"ev{number}" for number in range(40)]
    theirs = [item for name in names for item in (*claim(name), attachment(name))]
    pods = [pod(f"x{number}", *names) for number in range(3)]
    ledger = LEDGER._replace(volumes=("pv-db", *(f"pv-{name}" for name in names)))
    world = standard(*moved_to_evil(*theirs, *pods), ledger=ledger)
    world.slow_events["evil"] = 7.5
    world.broken |= {f"start x{number}-again" for number in range(3)}
    world.deadline = Deadline(300.0, lambda: world.spent)
    result = run(world)
    assert "pv-db" in world.ledger().detached, result["msg"]
    asked = [request for request in world.requests if "/evil/events" in request]
    assert len(asked) == 1
    assert "its events were not read" in result["msg"]


def test_of_the_pods_of_a_lost_node_little_is_kept() -> None:
    """A tenant's pods of 1 MB each filled the memory between the fence and the detach."""
    large = pod("big", containers=[{"name": "c", "env": [{"name": "MANY-BYTES"}] * 1000}])
    many = pod("many", volumes=[{"name": "v", "nfs": {"server": "s"}}] * 5000)
    world = standard(large, many)
    run(world, check=True)
    assert not any("MANY-BYTES" in kept for kept in world.kept)
    assert max(map(len, world.kept)) < 80_000


def test_any_number_of_nodes_keeps_no_other_volume_from_its_proof() -> None:
    """Each node of a waiting pod would be a request at each look."""

    def asked(number: int) -> int:
        world = two()
        world.broken.add("attach pv-ev")
        for count in range(number):
            world.add(pod(f"ev-{count}-again", "ev", node_name=f"n{count}"))
        result = one_left(world, "not_attached", "waits for pv-ev")
        assert world.spent < 60 and "attach_timeout" in result["msg"]
        return len([asked for asked in world.requests if "/volumeattachments" in asked])

    assert asked(60) == asked(30)


# a tenant whose pods take long to read, and the others


def slow_two(seconds: float, **meta: Any) -> World:
    """The volumes of two tenants; a LIST of the pods of the one takes so long. ``meta``: of its
    pod.
    """
    theirs = pod("ev-1", "ev")
    theirs["metadata"].update(meta)
    world = standard(*of_tenant("evil", *claim("ev"), attachment("ev"), theirs), ledger=TWO)
    world.slow = {"evil": seconds}
    return world


def test_a_namespace_whose_pods_take_too_long_to_read_costs_itself_alone() -> None:
    world = slow_two(200.0, finalizers=["tenant.example.com/keep"])
    # That its attachment is gone does not prove that it has left.
    world.broken.add("attach pv-ev")
    world.remove(attachment("ev"))
    said = "those of namespace evil could not be read within 200 s"
    result = one_left(world, "not_detached", said)
    assert world.spent < 210 and result["left"] == ["pv-db"]


def test_a_namespace_that_takes_long_once_volumes_have_left() -> None:
    world = slow_two(0.0)

    def before(verb: str, path: str) -> None:
        if ("pv-ev", "a") not in world.attached():
            world.slow = {"evil": 200.0}

    world.before = before
    result = one_left(world, "not_attached", "those of namespace evil could not be read")
    assert "(attach_timeout)" in result["msg"] and "no pod elsewhere" not in result["msg"]


def test_a_namespace_that_takes_long_once_volumes_are_attached() -> None:
    world = slow_two(0.0)

    asked: list[str] = []

    def before(verb: str, path: str) -> None:
        asked.append(path.rsplit("/", 1)[-1])
        # The next step begins with a look at the node.
        if asked[-1] == "a" and attachment_name(RBD, "h-ev", "b") in asked:
            world.slow = {"evil": 200.0}

    world.before = before
    result = one_left(world, "not_attached", "those of namespace evil could not be read")
    assert "(ready_timeout)" in result["msg"]


def test_an_honest_namespace_of_many_pods_gets_more_time() -> None:
    world = slow_two(15.0)
    assert verbs(run(world, detach_timeout=60.0, attach_timeout=60.0, ready_timeout=60.0))
    assert world.ledger().phase == "detached"


@pytest.mark.parametrize("nth", [1, 2])
def test_a_late_run_deletes_nothing_of_a_node_that_was_given_back(nth: int) -> None:
    """Its reads were tried again for longer than its Lease lasts. Another run had released the node
    meanwhile, and its pods ran: their objects and attachments were deleted.
    """
    world = standard()

    def given_back() -> None:
        world.at("a")["status"]["conditions"][0]["status"] = "True"
        RunLease(world, "storage-ops", "a", "run-2", 180.0).take(0.0)  # type: ignore[arg-type]
        Ledgers(world, "storage-ops").remove(world.ledger())  # type: ignore[arg-type]
        world.requests.clear()

    # Once before the pod is deleted, and once before its attachment is.
    Slow(world, ("get", "/configmaps/"), ("get", "/apis"), nth=nth, meanwhile=given_back)
    result = run(world, detach="volumes")
    done = [] if nth == 1 else [("force_delete_pod", "done")]
    assert outcomes(result)[: len(done)] == done
    assert "done" not in [outcome for _verb, outcome in outcomes(result)[len(done) :]]
    assert (result["failed"], result["code"]) == (True, "lease_lost"), result["msg"]
    assert world.count("delete") == 0 and ("pv-db", "a") in world.attached()


def test_what_was_read_of_ceph_is_judged_after_all_other_reads() -> None:
    """Its age was that of before the NetworkFences were read, which took minutes."""
    world = standard()
    Slow(world, ("get", "/apis"))
    result = run(world, detach="volumes", reading=reading("10.0.0.1", age=60))
    assert (result["failed"], result["code"]) == (True, "ceph_reading_unfit"), result["msg"]
    assert "db-1" in world.names("Pod") and ("pv-db", "a") in world.attached()


def test_the_lease_is_renewed_where_no_pods_are_read() -> None:
    """A volume without a claim has none."""
    _claim, volume = claim("db")
    del volume["spec"]["claimRef"]
    world = World(volume, attachment("db", finalizers=["a"]))
    run(world, detach_timeout=200.0)
    renewed = [
        asked for asked in world.requests if asked.startswith("patch") and "/leases/" in asked
    ]
    # Before each of the two steps, and three times in the wait.
    assert world.spent > 190 and len(renewed) == 5


def test_the_lease_is_renewed_within_a_look() -> None:
    world = standard(
        *[
            item
            for tenant in "uvwxyz"
            for item in of_tenant(tenant, *claim(tenant), attachment(tenant), pod(tenant, tenant))
        ],
        ledger=LEDGER._replace(volumes=("pv-db", *(f"pv-{name}" for name in "uvwxyz"))),
    )
    world.slow = dict.fromkeys("uvwxyz", 50.0)
    at: list[float] = []

    def before(verb: str, path: str) -> None:
        if verb == "patch" and "/leases/" in path:
            at.append(world.spent)

    world.before = before
    run(world)
    assert max(later - earlier for earlier, later in zip(at, at[1:])) < 180


@pytest.mark.parametrize("seconds", [100.0, 170.0])
def test_a_deadline_that_passes_in_a_look_costs_what_is_not_proven(seconds: float) -> None:
    """The others are noted in what is left of it."""
    world = two()
    world.broken.add("attach pv-ev")
    world.deadline = Deadline(seconds, lambda: world.spent)
    result = one_left(world, "not_attached", "waits for pv-ev", attach_timeout=300.0)
    said = f"not within the {seconds - 45:.0f} s that the deadline left for attach_timeout"
    assert said in result["msg"] and world.spent <= seconds - 45


def test_what_is_proven_in_the_end_is_read_again() -> None:
    """Not what a wait has read that ran out of time."""
    world = two()
    world.broken.add("start ev-1-again")
    world.slow = {"shop": 0.9}

    def before(verb: str, path: str) -> None:
        if verb == "patch" and "/configmaps/" in path and OUT in world.taints:
            for item in world.of("Pod"):
                if item["metadata"]["name"] == "db-1-again":
                    item["status"] = {"phase": "Running"}
            world.broken.add("start db-1-again")

    world.before = before
    result = run(world)
    assert result["failed"] and result["code"] == "repair_unproven", result
    assert "pod shop/db-1-again on b is not Ready" in result["msg"]


def test_so_many_pods_that_wait_are_told() -> None:
    """A tenant makes any number of them, and the advice would be cut off behind their names."""
    world = with_pods_on_b(40)
    world.broken.add("attach pv-ev")
    reason = run(world)["findings"][1]["reason"]
    assert "(attach_timeout)" in reason and reason.endswith("(+35 more)"), reason
    assert reason.count("waits for pv-ev") == 5


class Unsearched(tuple[str, ...]):
    """Claims of a pod, among which none may be looked for."""

    def __contains__(self, claim: object) -> bool:
        raise AssertionError(f"{claim} is looked for in {self[0]} and others")


def test_no_pod_is_compared_with_each_volume() -> None:
    """A tenant may have thousands of both, and they are looked at again and again."""
    item = pod("db-1", "db", "log")
    item["metadata"]["uid"] = "u"
    tenant = pick_tenant(item, ("db",))
    assert tenant
    both = tenant._replace(pod=tenant.pod._replace(claims=Unsearched(("db", "db", "log"))))
    volumes: list[Any] = [
        SimpleNamespace(name=f"pv-{name}", volume=SimpleNamespace(claim=("shop", name)))
        for name in ("db", "log", "other")
    ]
    volumes.append(SimpleNamespace(name="gone", volume=None))
    found = failover_runbook._users_of([both], volumes)
    assert found == {"pv-db": [both], "pv-log": [both], "pv-other": [], "gone": []}


def test_so_many_pods_that_do_not_run_are_told() -> None:
    result = run(with_pods_on_b(40))
    assert "37 more pods of pv-ev are not Ready" in result["findings"][1]["reason"]


def test_what_was_proven_and_is_no_more() -> None:
    """Between the waits and the proof: that volume fails, and the others are proven."""
    world = two()

    def before(verb: str, path: str) -> None:
        # The ledger is written after the waits.
        if verb == "patch" and "/configmaps/" in path and OUT in world.taints:
            for item in world.of("Pod"):
                if item["metadata"]["name"] == "ev-1-again":
                    item["status"] = {"phase": "Running"}

    world.before = before
    result = run(world)
    assert result["failed"] and result["code"] == "repair_unproven", result
    assert [finding["object"]["name"] for finding in result["findings"]] == ["a", "pv-ev"]
    proof = " ".join(result["findings"][0]["evidence"]["proof"])
    assert "pod shop/db-1-again is Running" in proof and "pv-ev" not in proof


def test_an_api_server_that_does_not_answer_is_no_single_volume() -> None:
    world = two()

    def before(verb: str, path: str) -> None:
        if verb == "list" and path.endswith("/pods") and OUT in world.taints:
            raise KubeError("the API server is overloaded", 503)

    world.before = before
    result = run(world)
    assert result["failed"] and "the API server is overloaded" in result["msg"]
    assert ("wait_detached", "failed") in outcomes(result)
    assert [finding["object"]["name"] for finding in result["findings"]] == ["a"]


# waiting and proof


def test_a_finalizer_that_holds() -> None:
    held = attachment("db", finalizers=["external-attacher/rbd-csi-ceph-com"])
    held["status"]["detachError"] = {"message": "array is busy"}
    world = World(*claim("db"), held, pod("db-1", "db"), version="v1.20.2")
    result = run(world)
    assert result["failed"] and result["changed"]
    for text in (
        "held by external-attacher/rbd-csi-ceph-com; the attacher says: array is busy",
        "A finalizer is never removed here",
    ):
        assert text in result["msg"]
    assert outcomes(result)[2:] == [
        ("wait_detached", "failed"),
        ("wait_attached", "skipped"),
        ("wait_ready", "skipped"),
        ("record_detached", "skipped"),
    ]
    assert world.ledger().phase == "fenced"
    again = run(world)
    assert [verb for verb, _outcome in outcomes(again)] == [
        "wait_detached",
        "wait_attached",
        "wait_ready",
        "record_detached",
    ]


def test_a_controller_manager_that_does_not_detach() -> None:
    world = standard()
    world.broken.add("detach")
    result = run(world)
    assert result["failed"] and "the controller manager does not detach it from a" in result["msg"]
    assert world.ledger().tainted
    world.broken.clear()
    assert verbs(run(world)) == ["record_detached"] or verbs(run(world)) == []
    assert world.attached() == {("pv-db", "b")}


@pytest.mark.parametrize(("version", "seconds"), [("v1.20.2", 90), ("v1.31.4", 20)])
def test_no_new_attachment(version: str, seconds: int) -> None:
    world = standard(version=version)
    world.broken.add("attach")
    result = run(world)
    assert result["failed"] and f"not within {seconds} s (attach_timeout)" in result["msg"]
    assert "pod shop/db-1-again on b waits for pv-db: there is no VolumeAttachment" in result["msg"]
    assert world.ledger().phase == "fenced"
    world.broken.clear()
    assert verbs(run(world)) == ["wait_attached", "wait_ready", "record_detached"]


def test_an_attachment_that_fails() -> None:
    world = standard()
    world.broken.add("attach")
    failed = attachment("db", "b")
    failed["status"] = {"attached": False, "attachError": {"message": "still being used"}}
    world.add(failed)
    assert "is not attached: still being used" in run(world)["msg"]


def test_a_workload_without_a_new_pod_is_reported() -> None:
    world = standard()
    world.broken.add("replace")
    result = run(world)
    assert verbs(result)[-1] == "record_detached"
    assert (
        "pv-db is free, and waits for a pod: there is none that uses it"
        in result["findings"][0]["evidence"]["proof"]
    )


def test_a_pod_without_a_node_is_reported() -> None:
    world = standard()
    world.returns_to = ""
    result = run(world)
    assert verbs(result)[-1] == "record_detached"
    done, homeless = result["findings"]
    assert "pod shop/db-1-again has no node" in " ".join(done["evidence"]["proof"])
    assert homeless["object"] == {
        "kind": "Pod",
        "namespace": "shop",
        "name": "db-1-again",
        "node": "",
    }
    assert (homeless["verdict"], homeless["severity"]) == ("report", "major")
    assert (
        "0/2 nodes are available" in homeless["reason"]
        and "pv-db (claim shop/db" in homeless["summary"]
    )
    assert result["msg"] == "2 findings, 1 repaired and proven, 1 only reported"


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_a_new_pod_that_does_not_run(version: str) -> None:
    """Attached is not mounted: what NodeStage says ends the run, and so it does the next one, until
    the pod is Ready.
    """
    world = standard(version=version)
    world.broken.add("start")
    result = run(world)
    assert result["failed"] and outcomes(result)[-2:] == [
        ("wait_ready", "failed"),
        ("record_detached", "skipped"),
    ]
    assert (
        "not Running and Ready within 10 s (ready_timeout): pod shop/db-1-again on b is Pending"
        in result["msg"]
    )
    assert "it has no events" in result["msg"]
    assert world.attached() == {("pv-db", "b")} and world.ledger().phase == "fenced"
    (found,) = world.of("Pod")
    found["status"] = {
        "phase": "Running",
        "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
    }
    for number, text in enumerate(("rbd image is still being used", "too old"), 1):
        world.add(
            event(found, f"e-{number}", "FailedMount", text, f"2026-01-01T00:0{3 - number}:00Z")
        )
    again = run(world)
    assert [verb for verb, _outcome in outcomes(again)] == [
        "wait_attached",
        "wait_ready",
        "record_detached",
    ]
    told = (
        "pod shop/db-1-again on b is not Ready (CrashLoopBackOff); last event: FailedMount: rbd "
        "image is still being used"
    )
    assert again["failed"] and told in again["msg"]

    def forbid(verb: str, path: str) -> None:
        if path.endswith("/events"):
            raise Forbidden("cannot list events", 403)

    world.before = forbid
    assert "CrashLoopBackOff); its events cannot be read: cannot list events" in run(world)["msg"]
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    last = run(world)
    assert verbs(last) == ["wait_attached", "wait_ready", "record_detached"]
    assert (
        "pod shop/db-1-again is Running and Ready on b" in last["findings"][0]["evidence"]["proof"]
    )


def test_nothing_is_said_of_pods_that_are_not_waited_for() -> None:
    world = standard()
    world.broken.add("start")
    result = run(world, ready_timeout=0.0)
    assert verbs(result) == [
        "taint_node",
        "force_delete_pod",
        "wait_detached",
        "wait_attached",
        "record_detached",
    ]
    assert (
        "whether the new pods run is not proven (ready_timeout is 0)"
        in result["findings"][0]["evidence"]["proof"]
    )


def test_the_trouble_of_an_older_pod_with_a_shared_volume_is_its_own() -> None:
    def world(created: str) -> World:
        items = claim("db")
        items[1]["spec"]["accessModes"] = ["ReadWriteMany"]
        other = pod("web", "db", node_name="b")
        other["metadata"]["creationTimestamp"] = created
        other["status"]["phase"] = "Running"
        return World(*items, attachment("db"), attachment("db", "b"), pod("db-1", "db"), other)

    assert verbs(run(world("2025-12-31T23:59:59Z")))
    assert "pod shop/web on b is not Ready" in run(world("2026-01-01T00:00:01Z"))["msg"]


def test_a_pod_that_comes_back_to_the_lost_node() -> None:
    world = standard(version="v1.20.2")
    world.returns_to = "a"
    result = run(world)
    assert result["failed"] and "pod shop/db-1-again of pv-db is still on a" in result["msg"]


def test_a_shared_volume_is_detached_from_this_node_only() -> None:
    items = claim("db")
    items[1]["spec"]["accessModes"] = ["ReadWriteMany"]
    world = World(
        *items,
        attachment("db"),
        attachment("db", "b"),
        pod("db-1", "db"),
        pod("db-2", "db", node_name="b"),
        version="v1.20.2",
    )
    assert verbs(run(world))
    assert world.attached() == {("pv-db", "b")}


def test_a_pod_is_left_after_its_attachment_has_gone() -> None:
    """Kubernetes itself detaches after six minutes, and then a StatefulSet still waits for its old
    pod.
    """
    world = World(ledger=None, version="v1.20.2")
    world.broken.add("attach")
    for item in (*claim("db"), pod("db-0", "db", owner="StatefulSet")):
        world.add(item)
    Ledgers(world, "storage-ops").write(LEDGER)  # type: ignore[arg-type]
    world.before = lambda verb, path: world.broken.clear() if verb == "delete" else None
    assert verbs(run(world)) == [
        "force_delete_pod",
        "wait_detached",
        "wait_attached",
        "wait_ready",
        "record_detached",
    ]
    assert world.attached() == {("pv-db", "b")}


# check mode, second runs, other runs, interruptions


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_check_mode_rehearses_and_changes_nothing(version: str) -> None:
    world = standard(version=version)
    before = json.dumps(world.objects, sort_keys=True)
    result = run(world, check=True)
    assert (
        result["changed"]
        and not result["failed"]
        and {outcome for _verb, outcome in outcomes(result)} == {"planned"}
    )
    assert json.dumps(world.objects, sort_keys=True) == before
    changes = [request for request in world.requests if request.split()[0] not in ("get", "list")]
    assert changes and all(request.endswith("(dry run)") for request in changes)
    assert result["fence"]["phase"] == "detached" and result["fence"]["tainted"] == (
        version != "v1.20.2"
    )


def test_check_mode_takes_the_ledger_that_would_be() -> None:
    world = standard(ledger=None)
    result = run(world, check=True, fence=LEDGER)
    assert not result["failed"] and result["changed"]
    assert "has no ledger" in run(world, fence=LEDGER)["findings"][0]["reason"]


def test_check_mode_takes_the_network_fences_that_would_be() -> None:
    """Before the fence they are Unfenced, and nothing but the steps before would change that."""
    world = standard(network_fence("Unfenced", "unfencing operation successful"), ledger=None)
    result = run(world, check=True, fence=NETWORK)
    assert not result["failed"] and result["changed"], result["msg"]


def test_check_mode_says_what_the_server_would_refuse() -> None:
    world = standard()

    def forbid(verb: str, path: str) -> None:
        if verb == "patch":
            raise Forbidden("cannot patch nodes", 403)

    world.before = forbid
    result = run(world, check=True)
    assert result["failed"] and "taint_node a would fail: cannot patch nodes" in result["msg"]


def test_another_run_is_at_work() -> None:
    world = standard()
    before = contents(world)
    Failover(
        world, RunOptions("a", "run-2", "storage-ops", 180.0, 0.0, None), options(), False
    ).prepare()  # type: ignore[arg-type]
    check = run(world, check=True)
    assert (
        check["failed"]
        and "another run (run-2) is working on node a" in check["msg"]
        and check["findings"][0]["verdict"] == "refuse"
    )
    real = run(world)
    assert check["code"] == real["code"] == "lease_held"
    assert (
        real["failed"]
        and "another run (run-2) is working on node a" in real["msg"]
        and not real["changed"]
    )
    assert contents(world) == before
    assert verbs(run(world, run_id="run-2"))


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
@pytest.mark.parametrize("lost", [True, False])
def test_a_second_run_changes_nothing(version: str, lost: bool) -> None:
    world = standard(version=version, lost=lost)
    assert verbs(run(world))
    before = contents(world)
    again = run(world)
    assert not again["failed"] and not again["changed"] and again["findings"] == [], again
    assert (
        again["msg"]
        == "nothing to do: none of the 1 volumes of the fence is attached to a any more"
    )
    assert contents(world) == before
    assert not world.of("Lease")


class Killed(BaseException):
    pass


def change_number(number: int, act: Callable[[], None]) -> Callable[[str, str], None]:
    """Something happens right before the change of that number."""
    seen = [0]

    def before(verb: str, path: str) -> None:
        seen[0] += verb not in ("get", "list")
        if seen[0] == number and verb not in ("get", "list"):
            act()

    return before


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
@pytest.mark.parametrize("number", range(1, 30))
def test_killed_before_any_change(version: str, number: int) -> None:
    """The next run, once the lease has run out, ends as if nothing had been."""
    wanted = standard(version=version)
    run(wanted)
    world = standard(version=version)
    world.before = change_number(number, kill)
    try:
        run(world)
    except Killed:
        assert world.ledger().phase in ("fenced", "detached")
    else:
        assert number > len(
            [request for request in world.requests if request.split()[0] not in ("get", "list")]
        )
    world.before = lambda verb, path: None
    world.shift = timedelta(seconds=200)
    result = run(world, run_id="run-2")
    assert not result["failed"], result["msg"]
    assert (
        world.at("a")["metadata"]["annotations"]["runbooks.storage-ops/fence"]
        == world.ledger().text
    )
    assert world.attached() == {("pv-db", "b")}
    assert world.taints == wanted.taints and len(world.of("ConfigMap")) == 1
    assert world.ledger()._replace(revision=0) == wanted.ledger()._replace(revision=0)
    assert not run(world)["changed"]


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
@pytest.mark.parametrize("number", range(1, 12))
def test_the_node_comes_back_before_any_change(version: str, number: int) -> None:
    """No step is taken that looks at the node after that."""
    world = standard(version=version)

    def come_back() -> None:
        world.at("a")["status"]["conditions"][0]["status"] = "True"
        world.came_back = len(world.requests)  # type: ignore[attr-defined]
        world._touch(world.at("a"))

    world.before = change_number(number, come_back)
    result = run(world)
    since = getattr(world, "came_back", None)
    if since is None:
        assert not result["failed"]
        return
    changes = [
        request
        for request in world.requests[since:]
        if request.split()[0] not in ("get", "list") and "/leases" not in request
    ]
    # What was under way when the node came back cannot know it; the ledger is written in two
    # places.
    assert (
        len(
            [
                request
                for request in changes
                if "configmaps" not in request and "PATCH" not in request
            ]
        )
        <= 1
    ), changes
    if result["failed"]:
        assert "node a is back (Ready=True)" in result["msg"] or "is not proven" in result["msg"]


def test_a_node_that_comes_back_before_the_first_change_is_refused() -> None:
    world = standard()
    looks = []

    def before(verb: str, path: str) -> None:
        looks.append(path == "/api/v1/nodes/a")
        if sum(looks) == 2:
            world.at("a")["status"]["conditions"][0]["status"] = "True"

    world.before = before
    result = run(world)
    assert (
        result["failed"] and not result["changed"] and result["findings"][0]["verdict"] == "refuse"
    )
    assert "taint_node was not started: node a is back" in result["msg"]
    assert OUT not in world.taints and not world.ledger().tainted


def test_a_missing_right_prevents_and_changes_nothing() -> None:
    world = standard(version="v1.20.2")

    def forbid(verb: str, path: str) -> None:
        if verb == "delete" and "/pods/" in path:
            raise Forbidden("cannot delete pods", 403)

    world.before = forbid
    result = run(world)
    assert result["failed"] and not result["changed"] and "cannot delete pods" in result["msg"]
    assert world.attached() == {("pv-db", "a")}


def test_an_api_server_that_is_away_for_a_while_is_waited_for() -> None:
    world = standard()
    left = [3]

    def before(verb: str, path: str) -> None:
        if verb == "get" and "/volumeattachments/" in path and left[0]:
            left[0] -= 1
            raise KubeError("no connection", 0)

    world.before = before
    assert verbs(run(world))


def test_the_lease_is_renewed_while_it_waits() -> None:
    world = standard(version="v1.20.2")
    world.broken.add("attach")
    run(world)
    assert (
        len(
            [
                request
                for request in world.requests
                if request.startswith("patch") and "/leases/" in request
            ]
        )
        >= 5
    )


# options


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"detach_timeout": 0.0}, "detach_timeout is 0; give at least 1"),
        ({"attach_timeout": float("nan")}, "attach_timeout is nan"),
        ({"detach_timeout": float("inf")}, "detach_timeout is inf"),
        ({"ready_timeout": float("inf")}, "ready_timeout is inf"),
        ({"ready_timeout": -1.0}, "ready_timeout is -1; give at least 0"),
        ({"deadline": float("inf")}, "deadline is inf"),
        ({"deadline": 10.0}, "deadline is 10; give at least 60"),
        ({"namespaces": ["shop", " "]}, "namespaces has an empty name"),
        ({"claims": ["db"]}, "claims has db; give each as namespace/name"),
    ],
)
def test_options_that_do_not_do(given: dict[str, Any], text: str) -> None:
    with pytest.raises(StorageOpsError, match=text):
        failover_options({**PARAMS, **given}, False)


PARAMS: dict[str, Any] = {
    **{
        "node": "a",
        "namespaces": [],
        "claims": [" shop/db "],
        "storage_classes": [],
        "detach": "auto",
    },
    **{
        "accept_unfenced_volumes": False,
        "detach_timeout": 120.0,
        "attach_timeout": 120.0,
        "ready_timeout": 180.0,
    },
    **{"deadline": 900.0, "ceph": None, "state": "attached", "awaited": [], "power": []},
}


def test_options() -> None:
    assert failover_options(PARAMS, True) == FailoverOptions(
        "a", Filters(claims=("shop/db",)), check=True
    )


# a node that is switched off


def says(state: str = "off", age: float = 0.0, **more: Any) -> tuple[PowerReading, ...]:
    """What its BMC has said so many seconds ago."""
    at = f"{datetime.now(timezone.utc) - timedelta(seconds=age):%Y-%m-%dT%H:%M:%SZ}"
    return parse_power(looks({"state": state, "read_at": at, **more}))


OFF = LEDGER._replace(
    method="power", entries=(), addresses=(), power=POWERED.power, volumes=("pv-db", "pv-other")
)


def mixed(**how: Any) -> World:
    """RBD, another driver's, one that is never attached, and an inline one."""
    nfs = {"name": "share", "nfs": {"server": "192.0.2.1", "path": "/"}}
    world = World(
        *claim("db"),
        attachment("db"),
        *claim("other", driver=OTHER),
        attachment("other", driver=OTHER),
        *claim("files", driver=NFS),
        pod("db-1", "db", "other"),
        pod("files-1", "files"),
        **{"ledger": OFF, **how},
    )
    for item in world.of("Pod"):
        item["spec"]["volumes"].append(nfs)
    return world


def test_whatever_driver_has_it_nothing_is_written_by_a_node_that_is_off() -> None:
    world = mixed()
    result = run(world, reading=None, power=says())
    assert verbs(result)[:2] == ["taint_node", "force_delete_pod"], result
    (finding,) = result["findings"]
    assert finding["evidence"]["not_fenced"] == [] and "warning" not in finding["evidence"]
    assert finding["evidence"]["fence"]["bmc"] == "192.0.2.11"
    assert world.attached() == {("pv-db", "b"), ("pv-other", "b")}
    assert world.ledger().phase == "detached"


def test_what_the_fence_of_a_node_that_is_off_leaves_out_is_detached_by_a_taint_alone() -> None:
    """A client that is none of the node's has it open: its proof left it out."""
    world = World(
        *(*claim("db"), attachment("db"), pod("db-1", "db")),
        *(*claim("copied"), attachment("copied"), pod("copied-1", "copied")),
        ledger=OFF._replace(volumes=("pv-db",)),
    )
    run(world, reading=None, power=says(), detach="volumes")
    assert world.attached() == {("pv-db", "b"), ("pv-copied", "a")}
    assert "copied-1" in world.names("Pod")


def of_earlier_machine(*names: str, version: str = "v1.31.4") -> World:
    """A node that is off, and younger than these of its pods: db-1, kept-1, both-1, line-0. The
    fence has left out what kept-1 uses, and both-1 too.
    """
    both = pod("both-1", "both", "kept")
    world = World(
        *(*claim("db"), attachment("db"), pod("db-1", "db")),
        *(*claim("kept"), attachment("kept"), pod("kept-1", "kept")),
        *(*claim("both"), attachment("both"), both, in_line("line-0")),
        ledger=OFF._replace(volumes=("pv-both", "pv-db")),
        version=version,
    )
    world.at("a")["metadata"]["creationTimestamp"] = "2025-06-01T00:00:00Z"
    for item in world.of("Pod"):
        is_older = item["metadata"]["name"] in names
        item["metadata"]["creationTimestamp"] = f"2025-0{5 if is_older else 7}-01T00:00:00Z"
    return world


@pytest.mark.parametrize("version", ["v1.31.4", "v1.20.2"])
def test_what_the_machine_of_before_may_have_stays(version: str) -> None:
    """It was not switched off, so a taint would give its volumes a second writer."""
    world = of_earlier_machine("kept-1", "line-0", version=version)
    result = run(world, reading=None, power=says())
    assert result["failed"] and OUT not in world.taints
    assert world.attached() == {("pv-db", "b"), ("pv-kept", "a"), ("pv-both", "a")}
    assert sorted(world.names("Pod")) == ["both-1", "db-1-again", "kept-1", "line-0"]
    told = {one["object"]["name"]: one["reason"] for one in result["findings"]}
    assert "pod shop/both-1 uses pv-kept, which the machine that had" in told["pv-both"]
    assert "pod shop/line-0 is older than this Node object" in told["line-0"]
    assert world.ledger().phase == "fenced"


def test_the_taint_is_refused_that_would_end_what_the_machine_of_before_may_run() -> None:
    for names in (("kept-1",), ("line-0",)):
        world = of_earlier_machine(*names)
        result = run(world, reading=None, power=says(), detach="taint")
        assert (result["failed"], result["code"]) == (True, "volume_not_fenced")
        assert "the machine that had its name before may write there" in result["msg"]
        result = run(
            world, reading=None, power=says(), detach="taint", accept_unfenced_volumes=True
        )
        assert result["failed"] and OUT not in world.taints
    # Nothing is older than the Node object.
    world = of_earlier_machine()
    assert not run(world, reading=None, power=says())["failed"] and OUT in world.taints


def test_what_was_attached_to_the_machine_of_before_stays() -> None:
    world = of_earlier_machine()
    for item in world.of("VolumeAttachment"):
        if item["spec"]["source"]["persistentVolumeName"] == "pv-kept":
            item["metadata"]["creationTimestamp"] = "2025-05-01T00:00:00Z"
    result = run(world, reading=None, power=says())
    assert result["failed"] and OUT not in world.taints
    assert ("pv-kept", "a") in world.attached() and ("pv-db", "b") in world.attached()
    assert {"both-1", "kept-1", "line-0-again"} <= {*world.names("Pod")}


SHARES = OFF._replace(volumes=("pv-csi", "pv-plain"))
NEVER = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": NFS},
    "spec": {"attachRequired": False},
}
EXPORT = {"server": "192.0.2.1", "path": "/"}


def shares(*more: dict[str, Any], **how: Any) -> World:
    """A node with nothing but NFS: by a driver, by the kubelet itself, and inline."""
    plain = claim("plain")
    plain[1]["spec"]["nfs"] = EXPORT
    del plain[1]["spec"]["csi"]
    return World(
        *(NEVER, *claim("csi", driver=NFS), *plain),
        *(pod("csi-0", "csi"), pod("plain-0", "plain"), in_line("line-0"), *more),
        **{"ledger": SHARES, **how},
    )


def in_line(name: str, **spec: Any) -> dict[str, Any]:
    item = pod(name, **spec)
    item["spec"]["volumes"].append({"name": "share", "nfs": EXPORT})
    return item


def moved_shares(world: World) -> dict[str, Any]:
    """Fail it over, and see that a second run has nothing to do."""
    result = run(world, reading=None, power=says())
    done = verbs(result)
    assert world.ledger().phase == "detached"
    assert world.of("VolumeAttachment") == []
    assert {item["spec"]["nodeName"] for item in world.of("Pod")} == {"b"}
    again = run(world, reading=None, power=says())
    assert not again["failed"] and not again["changed"], again
    return {**result, "done": done}


@pytest.mark.parametrize("version", ["v1.31.4", "v1.20.2"])
def test_pods_with_nothing_but_nfs_leave_a_node_that_is_off(version: str) -> None:
    """Nothing else would end them: its kubelet does not, and nothing is attached."""
    world = shares(version=version)
    # The pod garbage collector looks only every 20 s.
    world.broken.add("collect")
    result = moved_shares(world)
    assert result["done"] == [
        *(["taint_node"] if version == "v1.31.4" else []),
        *["force_delete_pod"] * 3,
        *("wait_detached", "wait_attached", "wait_ready", "record_detached"),
    ]
    proof = str(result["findings"])
    assert "pv-csi is in use: pod shop/csi-0-again" in proof and f"{NFS} attaches nothing" in proof
    assert "pv-plain is in use" in proof and "NFS is never attached" in proof
    assert "pod shop/line-0 (" in proof and "is not on a any more" in proof
    assert "0 volumes of the fence still attached to the lost node a, and 2 used there" in proof


def test_a_node_with_nothing_but_storage_in_line() -> None:
    world = World(in_line("line-0"), ledger=OFF._replace(volumes=()))
    assert moved_shares(world)["done"] == [
        *("taint_node", "force_delete_pod", "wait_detached", "record_detached"),
    ]


@pytest.mark.parametrize("spec", [{}, {"tolerations": TOLERANT}])
def test_which_pods_with_storage_in_line_are_left(spec: dict[str, Any]) -> None:
    """What would be made again there, what was never there, and what keeps data."""
    daemon = in_line("daemon", owner="DaemonSet", **spec)
    late = in_line("late", **spec)
    late["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    late["status"] = {"phase": "Pending"}
    keeps = in_line("keeps", **spec)
    keeps["spec"]["volumes"].append({"name": "d", "persistentVolumeClaim": {"claimName": "doomed"}})
    doomed = claim("doomed", driver=OTHER, deletionTimestamp="2026-01-01T00:00:00Z")
    # Beside one that keeps their volume there, too.
    shared, other = in_line("shared", **spec), in_line("other", **spec)
    for item, names in ((shared, ["plain"]), (other, ["plain", "doomed"])):
        item["spec"]["volumes"] += [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names
        ]
    world = shares(daemon, late, keeps, shared, other, *doomed, version="v1.20.2")
    world.broken |= {"collect", "attach"}
    run(world, reading=None, power=says())
    left = [item["metadata"]["name"] for item in world.of("Pod")]
    assert sorted(name for name in left if "again" not in name) == [
        *("daemon", "keeps", "late"),
        *("other", "plain-0", "shared"),
    ]


def test_storage_in_line_is_moved_only_from_a_node_that_is_off() -> None:
    world = standard()
    world.add(in_line("line-0"))
    world.broken.add("collect")
    run(world, accept_unfenced_volumes=True)
    assert "line-0" in world.names("Pod") and "db-1" not in world.names("Pod")
    # And a filter chooses volumes.
    world = shares(version="v1.20.2")
    run(world, reading=None, power=says(), filters=Filters(claims=("shop/csi",)))
    assert {"line-0", "plain-0", "csi-0-again"} == {*world.names("Pod")}


def test_a_pod_with_storage_in_line_that_stays_keeps_no_volume_from_its_proof() -> None:
    """Its tenant has given it a finalizer."""
    world = shares()
    stuck = world.objects["/api/v1/namespaces/shop/pods/line-0"]
    stuck["metadata"]["finalizers"] = ["example.com/mine"]
    result = run(world, reading=None, power=says())
    assert result["failed"], result["msg"]
    (told,) = (one for one in result["findings"] if one["object"]["kind"] == "Pod")
    assert "pod shop/line-0 is still on a" in told["reason"] and told["code"] == "not_detached"
    assert world.ledger().phase == "fenced"
    assert world.ledger().detached == ("pv-csi", "pv-plain")
    del world.objects["/api/v1/namespaces/shop/pods/line-0"]
    assert not run(world, reading=None, power=says())["failed"]
    assert world.ledger().phase == "detached"


def test_a_pod_with_storage_in_line_whose_turn_comes_too_late_stays_alone() -> None:
    """What the BMC has said is too old by then: that pod is left to the next run."""
    world = shares(in_line("line-1"), version="v1.20.2")
    at_deletion(world, "line-0", dawdle)
    result = run(world, reading=None, power=says())
    assert result["failed"], result["msg"]
    (told,) = (one for one in result["findings"] if one["object"]["kind"] == "Pod")
    assert told["object"]["name"] == "line-1" and told["code"] == "power_reading_unfit"
    assert "its turn did not come" in told["reason"], told
    # What had its turn before is proven, and nothing that was not deleted is said to be gone.
    assert world.ledger().detached == ("pv-csi",)
    assert world.ledger().phase == "fenced" and "line-1" in world.names("Pod")
    assert not run(world, reading=None, power=says(age=-125))["failed"]
    assert world.ledger().phase == "detached"


def test_the_taint_is_a_beginning_too() -> None:
    """What it takes off the node is awaited, also if the first pod's turn comes too late."""
    world = shares()
    stays = world.objects["/api/v1/namespaces/shop/pods/line-0"]
    stays["spec"]["tolerations"] = TOLERANT

    def before(verb: str, path: str) -> None:
        if verb == "patch" and path.endswith("/nodes/a"):
            dawdle(world)

    world.before = before
    result = run(world, reading=None, power=says())
    (told,) = (one for one in result["findings"] if one["object"]["kind"] == "Pod")
    assert told["object"]["name"] == "line-0" and told["code"] == "power_reading_unfit"
    assert world.ledger().detached == ("pv-csi", "pv-plain")


def test_a_run_that_has_nothing_but_a_pod_whose_turn_comes_too_late_fails() -> None:
    world = World(in_line("line-0"), ledger=OFF._replace(volumes=()), version="v1.20.2")
    Slow(world, ("get", "/apis"))
    result = run(world, reading=None, power=says(age=60))
    assert (result["failed"], result["code"]) == (True, "power_reading_unfit"), result
    assert "line-0" in world.names("Pod") and world.ledger().phase == "fenced"


@pytest.mark.parametrize("doomed", [False, True])
def test_the_taint_by_name_is_used_for_pods_with_storage_in_line_or_nothing_is(
    doomed: bool,
) -> None:
    item = in_line("line-0")
    item["spec"]["volumes"].append({"persistentVolumeClaim": {"claimName": "old"}})
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if doomed else {}
    world = World(
        *(item if doomed else in_line("line-0"), *claim("old", driver=OTHER, **meta)),
        ledger=OFF._replace(volumes=()),
        version="v1.31.4" if doomed else "v1.20.2",
    )
    world.broken.add("collect")
    result = run(world, reading=None, power=says(), detach="taint")
    assert result["failed"] and not result["actions"] and world.names("Pod") == ["line-0"]
    assert result["code"] == ("claim_would_be_lost" if doomed else "version_unsupported")


def with_claim(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    """A pod with an inline volume and these claims."""
    item = in_line(name, **spec)
    item["spec"]["volumes"] += [
        {"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims
    ]
    return item


def kept(world: World, code: str, name: str = "line-0") -> str:
    """It stays, a finding of its own says why, and the others are proven and noted."""
    result = run(world, reading=None, power=says())
    assert result["failed"] and name in world.names("Pod"), result["msg"]
    told = [one for one in result["findings"] if one["object"]["kind"] == "Pod"]
    assert [(one["object"]["name"], one["code"]) for one in told] == [(name, code)]
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    return str(told[0]["reason"])


def one_volume(*more: dict[str, Any], version: str = "v1.20.2") -> World:
    """A node that is off, with one volume of the fence."""
    # The claims of older pods are read first.
    user = pod("db-1", "db")
    user["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    world = World(
        *(*claim("db"), attachment("db"), user, *more),
        ledger=OFF._replace(volumes=("pv-db",)),
        version=version,
    )
    world.broken.add("collect")
    world.at("a")["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z"
    return world


def test_a_pod_with_storage_in_line_and_a_volume_that_is_no_part_of_the_fence() -> None:
    """It would move without a ledger and without a proof."""
    more = [with_claim("line-0", "later"), *claim("later", driver=OTHER)]
    assert "uses pv-later, which is no part" in kept(one_volume(*more), "volume_not_fenced")
    # The taint ends it in any case, but for one that tolerates it.
    world = one_volume(*more, version="v1.31.4")
    world.broken.clear()
    assert not run(world, reading=None, power=says())["failed"]
    assert world.ledger().phase == "detached"
    more[0]["spec"]["tolerations"] = TOLERANT
    kept(one_volume(*more, version="v1.31.4"), "volume_not_fenced")


def test_the_taint_takes_only_what_leaves_with_something_off_the_node() -> None:
    """Nothing else leaves, so it is not set: the pod stayed, and the run ended green."""
    more = [with_claim("line-0", "later"), *claim("later", driver=OTHER)]
    world = World(*more, ledger=OFF._replace(volumes=()), version="v1.31.4")
    result = run(world, reading=None, power=says())
    assert result["failed"] and OUT not in world.taints and world.names("Pod") == ["line-0"]
    (told,) = (one for one in result["findings"] if one["object"]["kind"] == "Pod")
    assert told["code"] == "volume_not_fenced" and world.ledger().phase == "fenced"


def test_more_pods_with_storage_in_line_than_are_hastened_are_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover_plan, "MOST_HASTENED", 1)
    pods = [in_line(f"line-{number}") for number in range(3)]
    world = World(*pods, ledger=OFF._replace(volumes=()), version="v1.31.4")
    result = run(world, check=True, reading=None, power=says())
    (evidence,) = (one["evidence"] for one in result["findings"])
    names = [text.split()[0] for text in evidence["pods"]]
    assert names == ["shop/line-0", "shop/line-1", "shop/line-2"]


def test_a_filtered_run_does_not_end_while_a_pod_with_storage_in_line_is_there() -> None:
    given: dict[str, Any] = {"reading": None, "power": says(), "detach": "volumes"}
    chosen = Filters(claims=("shop/db",))
    world = one_volume(in_line("line-0"))
    assert not run(world, filters=chosen, **given)["failed"]
    assert (world.ledger().phase, world.ledger().detached) == ("fenced", ("pv-db",))
    assert not run(world, **given)["failed"]
    assert world.ledger().phase == "detached"


def test_a_pod_with_storage_in_line_and_a_claim_that_is_unclear() -> None:
    text = kept(one_volume(with_claim("line-0", "gone")), "volume_not_fenced")
    assert "the volume of claim gone, which does not exist" in text
    # One that is not bound has no volume.
    waits = claim("waits")
    waits[0]["status"] = {"phase": "Pending"}
    world = one_volume(with_claim("line-0", "waits"), waits[0])
    assert not run(world, reading=None, power=says())["failed"]
    assert "line-0-again" in world.names("Pod")


@pytest.mark.parametrize("version", ["v1.20.2", "v1.31.4"])
def test_a_claim_that_was_not_read_may_be_being_deleted(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """With the last pod the claim goes, and its data."""
    monkeypatch.setattr(failover_plan, "MOST_CLAIMS", 2)
    world = one_volume(
        with_claim("line-0", "gone", "doomed", "more"),
        *claim("doomed", driver=OTHER, deletionTimestamp="2026-01-01T00:00:00Z"),
        version=version,
    )
    # It is the third of its namespace.
    text = kept(world, "claim_would_be_lost")
    assert "which was not read" in text and "would be lost with the pod" in text
    assert OUT not in world.taints
    # The same goes for a pod with a volume of the fence.
    world = one_volume(version=version)
    item = world.objects["/api/v1/namespaces/shop/pods/db-1"]
    item["spec"]["volumes"] += [
        {"name": one, "persistentVolumeClaim": {"claimName": one}} for one in ("x", "y", "z")
    ]
    result = run(world, reading=None, power=says())
    assert result["code"] == "claim_would_be_lost" and "db-1" in world.names("Pod"), result
    assert OUT not in world.taints


def test_of_many_pods_that_stay_only_some_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover_plan, "MOST_TOLD", 2)
    crowd_ = of_tenant("evil", *(with_claim(f"line-{number}", "gone") for number in range(5)))
    world = one_volume(*crowd_, with_claim("line-9", "gone"))
    result = run(world, reading=None, power=says())
    told = [one for one in result["findings"] if one["object"]["kind"] == "Pod"]
    assert [one["object"]["namespace"] for one in told] == ["evil", "shop"]
    assert told[-1]["evidence"]["more"] == "4 more pods stay on the node"
    assert world.ledger().phase == "fenced"


def test_more_pods_with_storage_in_line_than_a_run_deletes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover_plan, "MOST_DELETIONS", 3)
    world = shares(in_line("line-1"), version="v1.20.2")
    result = run(world, reading=None, power=says())
    assert result["failed"] and "1 pods with inline volumes are left" in str(result["findings"])
    assert world.ledger().phase == "fenced"
    assert not run(world, reading=None, power=says())["failed"]
    assert world.ledger().phase == "detached"


def test_pods_with_storage_in_line_take_turns_with_the_volumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the many pods and volumes of one tenant leave no room for those of any other."""
    monkeypatch.setattr(failover_plan, "MOST_DELETIONS", 3)
    volumes = ("pv-e0", "pv-e1")
    world = World(
        *(*crowd(e0=3, e1=1), in_line("line-0"), in_line("line-1")),
        ledger=OFF._replace(volumes=volumes),
        version="v1.20.2",
    )
    result = run(world, reading=None, power=says())
    assert deleted(result) == ["shop/line-0", "shop/line-1", "evil/e0-0"]
    assert result["failed"] and result["code"] == "too_many_deletions"
    # And the other way round.
    lines = of_tenant("evil", *(in_line(f"line-{number}") for number in range(9)))
    world = World(
        *(*lines, *claim("db"), attachment("db"), pod("db-1", "db")),
        ledger=OFF._replace(volumes=("pv-db",)),
        version="v1.20.2",
    )
    result = run(world, reading=None, power=says())
    assert sorted(deleted(result)) == ["detach db", "evil/line-0", "shop/db-1"]
    assert world.ledger().detached == ("pv-db",) and world.ledger().phase == "fenced"


def test_what_is_never_attached_has_moved_once_its_new_pod_runs() -> None:
    """Else it waits, and a further run ends it."""
    world = shares()
    world.broken.add("start")
    result = run(world, reading=None, power=says())
    assert result["failed"] and world.ledger().phase == "fenced"
    assert "NFS is never attached, and the pod does not run with it yet" in result["msg"]
    world.broken.clear()
    assert not run(world, reading=None, power=says())["failed"]
    assert world.ledger().phase == "detached"


def asked(world: World, what: str) -> int:
    return len([request for request in world.requests if what in request])


def crowd_elsewhere(world: World, number: int, phase: str) -> None:
    """So many new pods of one tenant's claim on another node."""
    world.objects["/api/v1/persistentvolumes/pv-plain"]["spec"]["accessModes"] = ["ReadWriteMany"]
    for count in range(number):
        new = pod(f"more-{count}", "plain", node_name="c")
        new["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
        new["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        world.add(new)


def test_a_claim_of_many_pods_is_read_once_in_a_wait() -> None:
    """Each of them asked for it, in each look."""
    world = shares()
    crowd_elsewhere(world, 50, "Running")
    world.broken.add("start csi-0-again")
    assert run(world, reading=None, power=says())["failed"]
    # When it is gathered, in the wait, at its end, and in the proof.
    assert asked(world, "persistentvolumeclaims/plain") <= 4
    # Of one whose pods do not run, only when it is gathered.
    assert asked(world, "persistentvolumeclaims/csi") == 1
    assert world.ledger().detached == ("pv-plain",)


def test_what_is_told_of_drivers_is_read_once_in_a_wait() -> None:
    world = shares()
    world.broken.add("start")
    assert run(world, reading=None, power=says())["failed"] and world.spent > 15
    # In the wait, and at its end.
    assert asked(world, "csidrivers") == 2
    # And before it for what is attached to the lost node.
    assert asked(world, "list /apis/storage.k8s.io/v1/volumeattachments") <= 5


class Turncoat(World):
    """Its driver begins to attach while its volumes are awaited, right before the pods run."""

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
        found = super().get(path, query)
        if "csidrivers" in path and "start" in self.broken:
            self.told = True
        return found

    def list(self, path: str, pick: Any, **how: Any) -> list[Any]:
        found = super().list(path, pick, **how)
        if getattr(self, "told", False) and path.endswith("/shop/pods"):
            self.told = False
            self.broken.discard("start")
            self.add(attachment("elsewhere", "c", NFS))
        return found


@pytest.mark.parametrize("late", [False, True])
def test_what_was_told_is_asked_again_before_it_is_noted(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another volume is awaited in vain, so that the wait ends by its time."""
    monkeypatch.setitem(globals(), "World", Turncoat)
    ev = of_tenant("evil", *claim("ev", OTHER), attachment("ev", driver=OTHER), pod("ev-1", "ev"))
    names = ("pv-csi", "pv-ev") if late else ("pv-csi",)
    world = shares(*(ev if late else []), ledger=SHARES._replace(volumes=names))
    world.broken |= {"start", "attach pv-ev"}
    result = run(world, reading=None, power=says())
    assert result["failed"] and world.ledger().detached == (), result


def test_claims_that_take_too_long_cost_their_namespace_alone() -> None:
    theirs = claim("ev", driver=NFS)
    world = shares(
        *of_tenant("evil", *theirs, pod("ev-1", "ev")),
        ledger=SHARES._replace(volumes=("pv-csi", "pv-ev", "pv-plain")),
    )

    def before(verb: str, path: str) -> None:
        if path.endswith("/evil/persistentvolumeclaims/ev") and "ev-1" not in world.names("Pod"):
            world.spent += 200.0

    world.before = before
    result = run(world, reading=None, power=says(), attach_timeout=100.0)
    (told,) = (one for one in result["findings"] if one["object"]["kind"] == "PersistentVolume")
    assert told["object"]["name"] == "pv-ev" and "whether pv-ev is in use is not known" in str(told)
    assert world.ledger().detached == ("pv-csi", "pv-plain")


def test_a_finalizer_delays_no_volume() -> None:
    """A tenant kept the proof of all for as long as detach_timeout, by one pod."""
    world = shares()
    stuck = world.objects["/api/v1/namespaces/shop/pods/line-0"]
    stuck["metadata"]["finalizers"] = ["example.com/mine"]
    result = run(world, reading=None, power=says(), detach_timeout=600.0)
    assert world.spent <= 31 and world.ledger().detached == ("pv-csi", "pv-plain")
    (told,) = (one for one in result["findings"] if one["object"]["kind"] == "Pod")
    assert "not within 30 s: pod shop/line-0 is still on a, held by example.com/mine" in str(told)


def test_a_pod_without_a_finalizer_is_waited_for() -> None:
    """The pod garbage collector has many before it."""
    world = shares()
    ends = world._delete

    def delete(item: dict[str, Any]) -> None:
        if item["metadata"]["name"] != "line-0" or world.spent > 100:
            ends(item)

    world._delete = delete  # type: ignore[method-assign]
    world.objects["/api/v1/nodes/a"]["spec"]["taints"].append(TAINTED)
    assert not run(world, reading=None, power=says(), detach_timeout=600.0)["failed"]
    assert 100 < world.spent < 110 and world.ledger().phase == "detached"


def test_the_pods_of_the_node_are_listed_in_no_look() -> None:
    """Any tenant may add any number of them."""
    world = shares()
    moved_shares(world)
    # By each of two runs when they gather, for the fence and for what is deleted.
    assert world.requests.count("list /api/v1/pods") == 4


class OldPods(World):
    """Whose new pods are the old ones, as far as their uid tells."""

    def add(self, item: dict[str, Any]) -> dict[str, Any]:
        meta = item["metadata"]
        if item["kind"] == "Pod":
            meta["uid"] = f"uid-{meta['name'].removesuffix('-again')}"
        return super().add(item)


def test_a_pod_that_was_on_the_lost_node_is_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for made, failed in ((World, False), (OldPods, True)):
        monkeypatch.setitem(globals(), "World", made)
        result = run(shares(), reading=None, power=says())
        assert result["failed"] is failed, result["msg"]


def old_pod(world: World, modes: str, ready: str) -> World:
    """A pod elsewhere has had the claim for long. ``ready``: since when the lost node's kubelet
    says that it is not.
    """
    world.objects["/api/v1/persistentvolumes/pv-plain"]["spec"]["accessModes"] = [modes]
    world.at("a")["status"]["conditions"][0]["lastTransitionTime"] = ready
    world.at("a")["spec"]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    old = pod("old", "plain", node_name="c")
    old["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    world.add(old)
    return world


# Nothing keeps NFS from several nodes, whatever its access modes say; and what the lost kubelet
# says may be from before, or still to come.
OLD_PODS = pytest.mark.parametrize("modes", ["ReadWriteMany", "ReadWriteOnce"])
TIMES = pytest.mark.parametrize(
    "ready", ["2026-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"]
)


@OLD_PODS
@TIMES
def test_what_pods_elsewhere_had_before_does_not_wait_for_these(modes: str, ready: str) -> None:
    """Several nodes may have it, and one of its pods may have trouble that is not ours."""
    world = old_pod(shares(), modes, ready)
    result = run(world, reading=None, power=says())
    assert not result["failed"], result["msg"]
    assert world.ledger().phase == "detached"


@OLD_PODS
@TIMES
def test_a_pod_that_had_it_before_proves_nothing(modes: str, ready: str) -> None:
    world = old_pod(shares(), modes, ready)
    world.broken.add("replace")
    old = world.objects["/api/v1/namespaces/shop/pods/old"]
    old["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    proof = str(run(world, reading=None, power=says())["findings"][0]["evidence"]["proof"])
    assert "pv-plain is free" in proof and "pv-plain is in use" not in proof, proof
    assert "shop/old" not in proof


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_after_a_detach_by_force_only_an_attachment_proves_anything(phase: str) -> None:
    """Its new pod is said to run, and the driver attaches."""
    new = pod("db-1-again", "db", node_name="b")
    new["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
    world = World(*claim("db"), {**NEVER, "metadata": {"name": RBD}, "spec": {}})
    world.broken.add("attach")
    world.add(new)
    result = run(world)
    assert result["failed"] and "there is no VolumeAttachment" in result["msg"], result
    assert world.ledger().phase == "fenced"


def test_an_account_that_may_not_read_drivers_is_told() -> None:
    world = shares()

    def forbid(verb: str, path: str) -> None:
        if "csidrivers" in path:
            raise Forbidden("no", 403)

    world.before = forbid
    result = run(world, reading=None, power=says())
    assert result["failed"] and f"may not read CSIDriver {NFS}" in str(result["findings"])
    assert world.ledger().detached == ("pv-plain",)


def test_what_others_have_switched_off_writes_nothing_either() -> None:
    """A command tells it right before and after, and must mean this machine."""
    told = {"kind": "external", "address": "cloud01", "system": "", "node": "a", "status": 0}
    power = PowerFence("external", "cloud01", uuid=MACHINE)
    machine = f"{MACHINE}/m"

    def outside() -> World:
        world = mixed(ledger=OFF._replace(method="external", power=power, machine=machine))
        (lost,) = (item for item in world.of("Node") if item["metadata"]["name"] == "a")
        info = {"systemUUID": MACHINE, "machineID": "m"}
        lost["status"]["nodeInfo"] = {**lost["status"].get("nodeInfo", {}), **info}
        return world

    for answer in ({"state": "on"}, {"node": "b"}):
        world = outside()
        result = run(world, reading=None, power=says(**{**told, **answer}))
        assert result["failed"] and not result["changed"], result
        with pytest.raises(StorageOpsError, match="switch it off at once"):
            held(outside(), reading=None, power=says(**{**told, **answer}))
    world = outside()
    result = run(world, reading=None, power=says(**told))
    assert verbs(result)[:2] == ["taint_node", "force_delete_pod"], result
    assert world.attached() == {("pv-db", "b"), ("pv-other", "b")}


def test_without_the_taint_all_of_them_leave_one_by_one() -> None:
    world = mixed(ledger=OFF._replace(volumes=(*OFF.volumes, "pv-files")), version="v1.20.2")
    world.add(NEVER)
    assert "delete_volumeattachment" in verbs(run(world, reading=None, power=says()))
    assert world.attached() == {("pv-db", "b"), ("pv-other", "b")}


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ((), "was not asked"),
        (says("on"), "says on of node a"),
        (says(age=130.0), "read it again"),
        (says(address="192.0.2.12"), "is not the one by which node a was switched off"),
        (says(uuid="4c4c4544-0034-5210-8051-000000000000"), "is not the one by which"),
    ],
)
def test_the_bmc_must_say_off_right_before_anything_is_detached(
    power: tuple[PowerReading, ...], words: str
) -> None:
    before = mixed()
    for check in (False,):
        result = run(before, check, reading=None, power=power)
        assert result["failed"] and not result["changed"], result
        assert words in result["findings"][0]["reason"]
    with pytest.raises(StorageOpsError, match="switch it off at once") as said:
        held(mixed(), reading=None, power=power)
    assert words in str(said.value)
    assert held(mixed(), reading=None, power=says())["power"]["address"] == "192.0.2.11"


def test_what_was_read_of_the_bmc_may_grow_old_while_it_waits() -> None:
    """Then what is left is left to the next run, as with a reading of Ceph."""
    world = World(
        *claim("db"),
        attachment("db"),
        pod("db-1", "db"),
        *claim("other", driver=OTHER),
        attachment("other", driver=OTHER),
        pod("other-1", "other"),
        ledger=OFF,
        version="v1.20.2",
    )
    at_deletion(world, "other-1", dawdle)
    result = run(world, reading=None, power=says())
    assert result["failed"] and "power_reading_unfit" in str(result["findings"]), result
    assert world.attached() == {("pv-other", "a"), ("pv-db", "b")}


# what no fence reaches


def unreached(world: World, **given: Any) -> dict[str, dict[str, Any]]:
    """By name, what is told of the pods and volumes that stay on a node that is fenced in Ceph. The
    volume of the fence moves all the same, and a second run tells the same.
    """
    for _time in range(2):
        result = run(world, **given)
        assert not result["failed"], result["msg"]
        told = {
            one["object"]["name"]: one
            for one in result["findings"]
            if one["object"]["kind"] != "Node"
        }
        assert {(one["verdict"], one["severity"]) for one in told.values()} <= {("report", "major")}
    assert ("pv-db", "b") in world.attached() and world.ledger().phase == "detached"
    return told


def in_tree(name: str, source: dict[str, Any], **spec: Any) -> list[dict[str, Any]]:
    """A claim whose volume no driver of CSI has."""
    claimed, volume = claim(name)
    del volume["spec"]["csi"]
    volume["spec"] |= {**source, **spec}
    return [claimed, volume]


CEPHFS = "cephfs.csi.ceph.com"
LUN = {"iscsi": {"targetPortal": "192.0.2.7", "iqn": "iqn.2026-01.com.example:disk", "lun": 0}}


@pytest.mark.parametrize(
    ("items", "storage"),
    [
        ([*claim("x", OTHER), attachment("x", driver=OTHER)], f"pv-x ({OTHER})"),
        (claim("x", NFS), f"pv-x ({NFS})"),
        ([*claim("x", CEPHFS), attachment("x", driver=CEPHFS)], f"pv-x ({CEPHFS})"),
        (in_tree("x", {"nfs": EXPORT}), "pv-x (nfs)"),
        (in_tree("x", LUN), "pv-x (iscsi)"),
        # Its volume is gone.
        (claim("x")[:1], "pv-x (its PersistentVolume is gone)"),
        ([], "the volume of claim x, which does not exist"),
    ],
)
def test_a_pod_whose_storage_no_fence_reaches_is_named(
    items: list[dict[str, Any]], storage: str
) -> None:
    """It stayed on the node, and the run ended green."""
    world = standard(*items, pod("x-1", "x"))
    told = unreached(world)
    assert [*told] == ["x-1"] and "x-1" in world.names("Pod") and OUT not in world.taints
    assert told["x-1"]["code"] == "storage_unreached"
    reason = told["x-1"]["reason"]
    assert f"uses {storage}, which the fence of node a (method ceph) does not cover" in reason
    assert "run again with method power" in reason
    assert ("a finding of its own says why" in reason) is (CEPHFS in storage)


def test_a_pod_that_no_fence_reaches_and_that_keeps_data_is_not_to_be_deleted() -> None:
    doomed = claim("x", OTHER, deletionTimestamp="2026-01-01T00:00:00Z")
    items = [*doomed, attachment("x", driver=OTHER), pod("x-1", "x")]
    told = unreached(standard(*copy.deepcopy(items)))
    assert told["x-1"]["code"] == "claim_would_be_lost"
    items = [*in_tree("x", LUN), pod("x-1", "x")]
    items[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    result = run(one_volume(*items), reading=None, power=says())
    (one,) = (found for found in result["findings"] if found["object"]["kind"] == "Pod")
    assert one["code"] == "claim_would_be_lost" and "by hand" not in one["reason"]


def test_a_pod_with_storage_in_line_that_no_fence_reaches_is_named() -> None:
    told = unreached(standard(in_line("line-0")))
    assert "uses the inline nfs volume share, which the fence" in told["line-0"]["reason"]


HERE = {
    "nodeAffinity": {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "example.com/n", "operator": "In", "values": ["a"]}]}
            ]
        }
    }
}


@pytest.mark.parametrize(
    "items",
    [
        in_tree("x", {"local": {"path": "/mnt"}}),
        in_tree("x", {"hostPath": {"path": "/mnt"}}),
        [*claim("x", OTHER), attachment("x", driver=OTHER)],
    ],
)
def test_a_pod_whose_data_is_on_the_lost_node_is_named(items: list[dict[str, Any]]) -> None:
    if "csi" in items[1]["spec"]:
        items[1]["spec"] |= HERE
    told = unreached(standard(*items, pod("x-1", "x")))
    assert [*told] == ["x-1"] and told["x-1"]["code"] == "data_on_node"
    assert "no other node can have it" in told["x-1"]["reason"]
    # With storage of which nothing is known, it has data elsewhere as well, perhaps.
    told = unreached(standard(*items, pod("x-1", "x", "y")))
    assert told["x-1"]["code"] == "storage_unreached"


def test_what_no_pod_uses_and_is_on_the_lost_node_alone_is_named_so() -> None:
    items = [*claim("x", OTHER), attachment("x", driver=OTHER)]
    items[1]["spec"] |= HERE
    told = unreached(standard(*items))
    assert told["pv-x"]["code"] == "data_on_node"


def test_a_node_that_was_said_to_be_off_is_not_to_be_switched_off() -> None:
    world = standard(
        *claim("x", NFS), pod("x-1", "x"), ledger=LEDGER._replace(method="none", entries=())
    )
    (told,) = [
        one["reason"] for one in run(world)["findings"] if one.get("code") == "storage_unreached"
    ]
    assert "you have said that its node is off" in told and "Switch" not in told


@pytest.mark.parametrize(
    ("operator", "values", "more"),
    [("In", ["a", "b"], []), ("In", ["b"], []), ("NotIn", ["a"], []), ("In", ["a"], ["b"])],
)
def test_a_volume_that_other_nodes_may_have_is_not_on_the_lost_one(
    operator: str, values: list[str], more: list[str]
) -> None:
    items = [*claim("x", OTHER), attachment("x", driver=OTHER)]
    terms = [
        {"matchExpressions": [{"key": "k", "operator": one, "values": which}]}
        for one, which in [(operator, values), *([("In", more)] if more else [])]
    ]
    items[1]["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    told = unreached(standard(*items, pod("x-1", "x")))
    assert told["x-1"]["code"] == "storage_unreached"


def test_what_stays_on_the_node_in_any_case_is_not_named() -> None:
    """What belongs there, has no storage, never mounted any, or is told with a volume."""
    late = waiting("late", created="2026-01-02T00:00:00Z")
    never = waiting("never", created="2025-12-31T00:00:00Z")
    never["metadata"]["name"] = "never"
    waits = claim("waits")
    waits[0]["status"] = {"phase": "Pending"}
    world = standard(
        *(in_line("agent", owner="DaemonSet"), in_line("static", owner="Node"), pod("bare")),
        *(late, *claim("late", OTHER), attachment("late", driver=OTHER)),
        *(*waits[:1], pod("waits-1", "waits")),
        # Attached after the node fell silent, for a pod that never ran.
        *(never, *claim("never", OTHER)),
        attachment("never", driver=OTHER, creationTimestamp="2026-01-02T00:00:00Z"),
    )
    assert unreached(world) == {}


def test_a_pod_of_a_fenced_volume_is_told_with_that() -> None:
    world = World(
        *(*claim("db"), attachment("db"), *claim("x", OTHER), attachment("x", driver=OTHER)),
        pod("db-1", "db", "x"),
    )
    result = run(world)
    assert [one["object"]["name"] for one in result["findings"]] == ["pv-db"]


def test_a_volume_that_no_pod_uses_any_more_is_named() -> None:
    """Its pod was deleted by force, and the new one waits, while the node may write."""
    world = standard(*claim("x", OTHER), attachment("x", driver=OTHER))
    told = unreached(world)
    assert [*told] == ["pv-x"] and told["pv-x"]["code"] == "storage_unreached"
    assert "pv-x (claim shop/x, csi.example.com) stays attached to" in told["pv-x"]["summary"]
    # Of those of Ceph, too: that of another Ceph was never asked for.
    told = unreached(standard(*claim("x", CEPHFS), attachment("x", driver=CEPHFS)))
    assert "a finding of its own says why" in told["pv-x"]["reason"]
    # One that is gone is needed by nobody, and what came late was never mounted there.
    assert unreached(standard(attachment("x", driver=OTHER))) == {}
    late = attachment("x", driver=OTHER, creationTimestamp="2026-01-02T00:00:00Z")
    assert unreached(standard(*claim("x", OTHER), late)) == {}


def test_whoever_takes_them_off_the_node_is_told_of_none() -> None:
    """The taint ends them, but for a pod that tolerates it; a filter chooses others."""
    items = [*claim("x", OTHER), attachment("x", driver=OTHER), pod("x-1", "x")]
    world = standard(*copy.deepcopy(items))
    result = run(world, accept_unfenced_volumes=True)
    assert [one["object"]["kind"] for one in result["findings"]] == ["Node"]
    assert OUT in world.taints and "x-1" not in world.names("Pod")

    items[-1]["spec"]["tolerations"] = TOLERANT
    told = unreached(standard(*copy.deepcopy(items)), accept_unfenced_volumes=True)
    assert [*told] == ["x-1"]

    result = run(standard(*items), filters=Filters(claims=("shop/db",)))
    assert [one["object"]["kind"] for one in result["findings"]] == ["Node"]


def test_in_check_mode_nothing_is_said_of_what_may_join_the_fence() -> None:
    """Whether CephFS does is known once the node is fenced."""
    items = [*claim("x", CEPHFS), attachment("x", driver=CEPHFS), pod("x-1", "x")]
    result = run(standard(*items, in_line("line-0")), check=True)
    named = {one["object"]["name"] for one in result["findings"]}
    assert named == {"a", "line-0"}
    # Nothing joins one of another kind.
    none = LEDGER._replace(method="none", entries=(), addresses=())
    result = run(standard(*items, ledger=none), check=True)
    assert "x-1" in {one["object"]["name"] for one in result["findings"]}


def test_many_pods_that_no_fence_reaches_keep_no_room_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover_plan, "MOST_TOLD", 2)
    many = of_tenant("evil", *(in_line(f"line-{number}") for number in range(5)))
    result = run(standard(*many, in_line("line-9")))
    told = [one for one in result["findings"] if one["object"]["kind"] == "Pod"]
    assert [one["object"]["namespace"] for one in told] == ["evil", "shop"]
    assert told[-1]["evidence"]["more"] == "4 more pods stay on the node"


def test_a_pod_on_a_node_that_is_off_is_named_where_no_taint_ends_it() -> None:
    """Of in-tree iSCSI nothing tells that another node has it, so no fence has it."""
    items = [*in_tree("x", LUN), pod("x-1", "x")]

    def told(**how: Any) -> dict[str, Any]:
        world = one_volume(*copy.deepcopy(items), **how)
        world.broken.clear()
        result = run(world, reading=None, power=says())
        assert not result["failed"] and world.ledger().phase == "detached", result
        pods = [one for one in result["findings"] if one["object"]["kind"] == "Pod"]
        assert ("x-1" in world.names("Pod")) is bool(pods)
        return {one["object"]["name"]: one for one in pods}

    found = told(version="v1.20.2")["x-1"]
    assert found["code"] == "storage_unreached" and found["verdict"] == "report"
    assert "uses pv-x (iscsi), which is no part of the fence" in found["reason"]
    assert "delete the pod by hand: its node is off" in found["reason"]
    assert told(version="v1.31.4") == {}
    items[-1]["spec"]["tolerations"] = TOLERANT
    assert [*told(version="v1.31.4")] == ["x-1"]
    # Another machine of the node's name may run it.
    items[-1]["metadata"]["creationTimestamp"] = "2023-01-01T00:00:00Z"
    reason = told(version="v1.20.2")["x-1"]["reason"]
    assert "is older than this Node object" in reason and "its node is off" not in reason


def test_a_pod_that_nothing_leaves_the_node_with_is_named() -> None:
    """Then the taint is not set, so that nothing ends it."""
    world = World(*in_tree("x", LUN), pod("x-1", "x"), ledger=OFF._replace(volumes=()))
    result = run(world, reading=None, power=says())
    told = [one["object"]["name"] for one in result["findings"] if one["object"]["kind"] == "Pod"]
    assert told == ["x-1"] and OUT not in world.taints


def test_what_a_fence_in_ceph_has_and_is_never_attached_moves_too() -> None:
    """CephFS of a driver that attaches nothing."""
    world = standard(
        *(NEVER, *claim("files", driver=NFS), pod("files-1", "files")),
        ledger=LEDGER._replace(volumes=("pv-db", "pv-files")),
    )
    result = run(world)
    assert verbs(result)[0] == "taint_node"
    assert (world.ledger().phase, world.ledger().detached) == ("detached", ("pv-db", "pv-files"))
    assert "pv-files is in use: pod shop/files-1-again" in str(result["findings"])
    assert [one["object"]["kind"] for one in result["findings"]] == ["Node"]
