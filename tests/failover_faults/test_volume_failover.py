# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of a lost node are detached by real controllers.

The fence is one of paper here: its ledger says that it is there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from lab.kubernetes.attacher import OK, Behaviour
from lab.kubernetes.proxy import Proxy
from support.cluster import Cluster, fresh
from support.failover import HEARTBEAT, IMPATIENT
from support.fencing import RBAC
from support.node import Outcome
from support.reattach import kill_module
from support.selection import variation

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    Entry,
    Ledger,
    Ledgers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    OWN_NAMESPACE,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import make_cluster

RBD, OTHER = "rbd.csi.ceph.com", "csi.example.com"
OUT, UNREACHABLE = "node.kubernetes.io/out-of-service", "node.kubernetes.io/unreachable"
TOLERANT = {"key": OUT, "operator": "Exists", "effect": "NoExecute"}
CONFIG_MAP = path("ConfigMap", "storage-ops-fence-a", OWN_NAMESPACE)
LEASE = path("Lease", "storage-ops-fence-a", OWN_NAMESPACE)
# A run that was killed leaves its lease, and the next one waits for that.
QUICK = {"run_id": "run-1", "lease_seconds": 10, "lease_timeout": 30}
# Without any, the API server would not wait for the kubelet, and the pods of a lost node would go
# by themselves.
GRACE = {"grace": 30}
DETACH, ATTACH, READY, RECORD = "wait_detached", "wait_attached", "wait_ready", "record_detached"


class Lost:
    """Node a, which is to be lost, and node b."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.api = cluster, cluster.api
        self.old = cluster.plane.number.startswith("1.20.")
        self.kubelets = cluster.kubelets("a", "b", drivers=(RBD, OTHER), heartbeat=HEARTBEAT)

    def volume(self, name: str, driver: str = RBD) -> None:
        """A volume and its claim."""
        self.api.add_volume(name, driver, f"vol-{name}")

    def bare(self, name: str, *claims: str, **spec: Any) -> None:
        """A pod on a, which nobody makes again."""
        self.api.create(k8s.pod(name, claims, "a", **{**GRACE, **spec}))
        self._wait_running(name, "a")

    def deploy(self, name: str, *claims: str, tolerations: Any = ()) -> None:
        """A Deployment that runs on a, and can run on b. It is evicted as soon as a is lost."""
        prefer = {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
            ]
        }
        affinity = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": prefer}
                ]
            }
        }
        spec = {"affinity": affinity, "tolerations": [*IMPATIENT, *tolerations], **GRACE}
        self.api.create(k8s.workload("Deployment", name, claims, **spec))
        self._wait_running(name, "a")

    def lose(self, *volumes: str, **changes: Any) -> None:
        """Node a falls silent, and is fenced, says its ledger: with these volumes."""
        self.kubelets.stop_node("a")
        self.cluster.wait(lambda: self._ready() == "Unknown", "a is lost", 40)
        self.cluster.wait(
            lambda: self.taints().count(UNREACHABLE) == 2, "a is tainted, with both effects", 40
        )
        self.cluster.wait(
            self._no_pod_is_ready, "the controller manager has called the pods of a not ready", 40
        )
        node = self.node()
        fence = Ledger(
            **{
                **{
                    "node": "a",
                    "node_uid": node["metadata"]["uid"],
                    "boot_id": "",
                    "method": "ceph",
                    "phase": "fenced",
                },
                **{
                    "cluster_id": "c",
                    "fsid": "f",
                    "addresses": ("192.0.2.1",),
                    "network_fences": (),
                    "source": {"192.0.2.1": "watcher"},
                },
                **{
                    "entries": (Entry("192.0.2.1", "address", True, "2999-01-01T00:00:00Z"),),
                    "volumes": volumes,
                    "unverified": False,
                },
                **{
                    "cordoned": False,
                    "tainted": False,
                    "by": "a test",
                    "run": "run-0",
                    "at": k8s.now(),
                    **changes,
                },
            }
        )
        params = {
            "kubeconfig": str(self.cluster.kubeconfig()),
            "request_timeout": 30.0,
            "deadline": 60.0,
        }
        ledgers = Ledgers(make_cluster(params), OWN_NAMESPACE)
        kept = ledgers.read(fence.node, None)
        ledgers.write(fence._replace(revision=kept.revision if kept else 0))

    def wait_waiting(self, name: str) -> None:
        """The new pod is on b, and Kubernetes has said that the volume is still attached to a."""

        def told() -> bool:
            pods = {
                found["metadata"]["uid"]
                for found in self.api.all("Pod")
                if found["spec"].get("nodeName") == "b"
            }
            events = self.api.all("Event", "default")
            return any(
                event["reason"] == "FailedAttachVolume" and event["involvedObject"]["uid"] in pods
                for event in events
            )

        self.cluster.wait(told, f"the new pod of {name} waits", 60)

    def come_back(self) -> None:
        """Its kubelet reports again, and the controller manager has noticed and taken its taints
        off.
        """
        self.kubelets.start_node("a")
        self.cluster.wait(lambda: self._ready() == "True", "a is back", 20)
        self.cluster.wait(
            lambda: UNREACHABLE not in self.taints(), "a has no taints of a lost node", 40
        )

    def run(self, check: bool = False, proxy: Proxy | None = None, **options: Any) -> Outcome:
        """Our module."""
        given = {"ceph": self.reading(), **QUICK, **options}
        given |= {"user": RBAC, "node": "a"}
        return self.cluster.ansible("volume_failover", check=check, proxy=proxy, **given)

    def reading(self) -> dict[str, Any]:
        """What Ceph would say of the fence."""
        entry = {
            "entry": "192.0.2.1:0/0",
            "kind": "address",
            "address": "192.0.2.1",
            "until": "2999-01-01T00:00:00Z",
        }
        return {
            "fsid": "f",
            "read_at": k8s.now(),
            "observations": 1,
            "seconds": 0,
            "families": ["IPv4"],
            "blocklist": [entry],
            "images": [],
        }

    def node(self) -> dict[str, Any]:
        """Node a."""
        return self.api.call("GET", path("Node", "a"))

    def taints(self) -> list[str]:
        """Of node a."""
        return [taint["key"] for taint in self.node()["spec"].get("taints", [])]

    def ledger(self) -> dict[str, Any]:
        """As the node has it, which is as the ConfigMap has it."""
        noted = self.node()["metadata"]["annotations"]["runbooks.storage-ops/fence"]
        found = self.api.call("GET", CONFIG_MAP)
        assert found["data"]["ledger"] == noted
        return dict(k8s.json.loads(noted))

    def attached(self) -> set[tuple[str, str]]:
        """Volume and node of every VolumeAttachment that is attached."""
        found = [
            entry
            for entry in self.api.all("VolumeAttachment")
            if (entry.get("status") or {}).get("attached")
        ]
        return {
            (entry["spec"]["source"]["persistentVolumeName"], entry["spec"]["nodeName"])
            for entry in found
        }

    def everything(self) -> Any:
        """What a run that changes nothing leaves as it is.

        A node's own version changes with its status.
        """
        pods = {
            found["metadata"]["uid"]: found["metadata"]["resourceVersion"]
            for found in self.api.all("Pod")
        }
        node = self.node()
        attachments = [
            (found["metadata"]["uid"], found["metadata"].get("deletionTimestamp"))
            for found in self.api.all("VolumeAttachment")
        ]
        kept = self.api.get(CONFIG_MAP)
        return (
            pods,
            sorted(attachments),
            node["spec"],
            node["metadata"]["annotations"],
            kept and kept["metadata"]["resourceVersion"],
        )

    def no_lease(self) -> None:
        """Nobody is kept out."""
        assert self.api.get(LEASE) is None

    def _ready(self) -> str:
        return next(
            str(found["status"])
            for found in self.node()["status"]["conditions"]
            if found["type"] == "Ready"
        )

    def _no_pod_is_ready(self) -> bool:
        here = [found for found in self.api.all("Pod") if found["spec"].get("nodeName") == "a"]
        conditions = [entry for found in here for entry in found["status"].get("conditions", [])]
        return not any(
            entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions
        )

    def _wait_running(self, name: str, node: str) -> None:
        def running() -> bool:
            pods = [
                found for found in self.api.all("Pod") if found["metadata"]["name"].startswith(name)
            ]
            return any(
                found["spec"].get("nodeName") == node and found["status"].get("phase") == "Running"
                for found in pods
            )

        self.cluster.wait(running, f"{name} runs on {node}", 60)


@pytest.fixture
def lost_1_20(plane_failover_1_20: Any) -> Iterator[Lost]:
    """On Kubernetes 1.20.2, which does not know the taint."""
    for cluster in fresh(plane_failover_1_20):
        yield Lost(cluster)


@pytest.fixture
def lost_current(plane_failover_current: Any) -> Iterator[Lost]:
    """On a current Kubernetes."""
    for cluster in fresh(plane_failover_current):
        yield Lost(cluster)


def refused(lost: Lost, reason: str, **options: Any) -> None:
    """In check mode and for real; nothing is changed."""
    before = lost.everything()
    for check in (True, False):
        run = lost.run(check, **options)
        assert run.failed and not run.changed and run.outcomes == [], run.result
        assert reason in run.msg, run.msg
        assert lost.everything() == before
    lost.no_lease()


def done(run: Outcome) -> list[str]:
    """The actions of a run that went well."""
    assert not run.failed, run.msg
    assert {outcome for _verb, outcome in run.outcomes} == {"done"}
    return [verb for verb, _outcome in run.outcomes]


def converged(lost: Lost) -> None:
    """A further run has nothing to do."""
    before = lost.everything()
    again = lost.run()
    assert not again.failed and not again.changed and again.findings == [], again.result
    assert lost.everything() == before
    lost.no_lease()


@pytest.mark.parametrize(
    ("fixture", "tainting"), [("lost_current", True), variation("lost_1_20", False)]
)
def test_from_a_to_b(request: pytest.FixtureRequest, fixture: str, tainting: bool) -> None:
    """Check mode changes nothing; then the new pod, which has waited, gets its volume; a second run
    changes nothing.
    """
    lost: Lost = request.getfixturevalue(fixture)
    lost.volume("db")
    lost.deploy("db", "db")
    lost.lose("pv-db")
    lost.wait_waiting("db")
    old = {found["metadata"]["uid"] for found in lost.api.all("VolumeAttachment")}
    before = lost.everything()
    check = lost.run(check=True)
    assert (
        not check.failed
        and check.changed
        and {outcome for _verb, outcome in check.outcomes} == {"planned"}
    ), check.result
    assert lost.everything() == before
    lost.no_lease()
    began = time.monotonic()
    run = lost.run()
    seconds = time.monotonic() - began
    expected = (
        # Its pod does not wait for the pod garbage collector.
        ["taint_node", "force_delete_pod"]
        if tainting
        else ["force_delete_pod", "delete_volumeattachment"]
    )
    assert done(run) == [*expected, DETACH, ATTACH, READY, RECORD]
    assert [verb for verb, _outcome in check.outcomes] == done(run)
    assert lost.attached() == {("pv-db", "b")}
    assert not old & {found["metadata"]["uid"] for found in lost.api.all("VolumeAttachment")}
    ledger = lost.ledger()
    assert (ledger["phase"], ledger["tainted"]) == ("detached", tainting)
    assert {key: value for key, value in run.result["fence"].items() if key != "revision"} == {
        key: value for key, value in ledger.items() if key != "revision"
    }
    assert (OUT in lost.taints()) == tainting and UNREACHABLE in lost.taints()
    proof = " ".join(run.findings[0]["evidence"]["proof"])
    assert re.search(
        r"pv-db has no VolumeAttachment and no pod on a \(seen at \d\d:\d\d:\d\dZ\)", proof
    ), proof
    assert "pv-db is attached to b for pod default/db-" in proof
    assert re.search(r"pod default/db-\S+ is Running and Ready on b", proof), proof
    assert (
        "storage is protected from them by the fence, the application is not"
        in run.findings[0]["evidence"]["warning"]
    )
    converged(lost)
    steps = {action["action"]: action["seconds"] for action in run.result["actions"]}
    print(f"\n{fixture}, {'taint' if tainting else 'one by one'}: {seconds:.1f} s; {steps}")


@pytest.mark.variation
def test_another_drivers_volume_stays(lost_current: Lost) -> None:
    """It is not fenced, so the taint would go too far, and the only way is one by one.

    An inline one has no VolumeAttachment at all.
    """
    lost = lost_current
    for name, driver in (("db", RBD), ("other", OTHER)):
        lost.volume(name, driver)
        lost.bare(name, name)
    disk = {"targetPortal": "192.0.2.9", "iqn": "iqn.2026-01.com.example:disk", "lun": 0}
    lost.bare("disk", volumes=[{"name": "disk", "iscsi": disk}])
    lost.lose("pv-db")
    refused(
        lost,
        "the taint would detach volumes that are not fenced: pv-other (claim default/other, "
        "csi.example.com)",
        detach="taint",
    )
    run = lost.run()
    assert "taint_node" not in done(run)
    assert lost.attached() == {("pv-other", "a")}
    assert OUT not in lost.taints()
    assert run.findings[0]["evidence"]["not_fenced"] == [
        "pv-other (claim default/other, csi.example.com)",
        "the inline iscsi volume disk of pod default/disk",
        "kubernetes.io/iscsi/192.0.2.9:iqn.2026-01.com.example:disk:0 (by the node's status)",
    ]
    assert (
        lost.api.find("Pod", "other")
        and lost.api.find("Pod", "disk")
        and not lost.api.find("Pod", "db")
    )
    # The run says so, and so does the next one.
    for told in (run.findings[1:], lost.run().findings):
        assert {(one["object"]["name"], one["code"]) for one in told} == {
            ("other", "storage_unreached"),
            ("disk", "storage_unreached"),
        }, told


@pytest.mark.variation
def test_all_that_is_fenced_goes_in_one_run(lost_current: Lost) -> None:
    """Twelve volumes, and a share that is not fenced, so the taint would go too far."""
    lost = lost_current
    names = [f"d{number}" for number in range(12)]
    for name in names:
        lost.volume(name)
    lost.bare("db", *names)
    lost.bare("files", volumes=[{"name": "files", "nfs": {"server": "192.0.2.9", "path": "/"}}])
    lost.lose(*(f"pv-{name}" for name in names))
    assert done(lost.run()).count("delete_volumeattachment") == 12
    assert lost.attached() == set() and lost.ledger()["phase"] == "detached"


@pytest.mark.variation
def test_a_tenant_with_many_pods_comes_after_the_others(lost_current: Lost) -> None:
    """Whoever may create pods may name the lost node in any number of them."""
    lost = lost_current
    lost.api.create(k8s.namespace("another"))
    lost.api.add_volume("many", RBD, "vol-many", "another")
    lost.volume("db")
    lost.deploy("db", "db")
    lost.lose("pv-many", "pv-db")
    lost.wait_waiting("db")
    for number in range(20):
        name = f"many-{number}"
        lost.api.create(k8s.pod(name, ["many"], "a", namespace="another", **GRACE))
    run = lost.run(detach="volumes")
    pod, detach = "force_delete_pod", "delete_volumeattachment"
    assert done(run) == [pod, detach, *[pod] * 20, detach, DETACH, ATTACH, READY, RECORD]
    assert run.result["actions"][0]["target"].startswith("default/db-"), run.result
    assert lost.attached() == {("pv-db", "b")}


def test_a_pod_that_tolerates_the_taint(lost_current: Lost) -> None:
    """Kubernetes leaves it alone, and with it its volume; another one that tolerates, without a
    fenced volume, stays.
    """
    lost = lost_current
    lost.volume("db")
    lost.deploy("db", "db", tolerations=[TOLERANT])
    lost.bare("agent", tolerations=[{"operator": "Exists"}])
    lost.lose("pv-db")
    assert done(lost.run()) == ["taint_node", "force_delete_pod", DETACH, ATTACH, READY, RECORD]
    assert lost.attached() == {("pv-db", "b")}
    assert lost.api.find("Pod", "agent")


@pytest.mark.variation
def test_a_new_pod_that_cannot_mount(lost_current: Lost) -> None:
    """What is attached is not all: the run says what the kubelet says, and so does every further
    one until the pod runs.
    """
    lost = lost_current
    lost.volume("db")
    lost.deploy("db", "db")
    lost.lose("pv-db")
    lost.wait_waiting("db")
    start, lost.kubelets._run = lost.kubelets._run, lambda pod: None  # type: ignore[method-assign]
    (new,) = [found for found in lost.api.all("Pod") if found["spec"].get("nodeName") == "b"]
    said = "MountVolume.MountDevice failed: rbd image is still being used"
    event = k8s.event({"apiVersion": "v1", "kind": "Pod", **new}, "FailedMount", said)
    # The controller manager may yet say once more that it waits.
    lost.api.create({**event, "lastTimestamp": "2999-01-01T00:00:00Z"})
    run = lost.run(ready_timeout=2)
    assert run.failed and run.outcomes[-2:] == [(READY, "failed"), (RECORD, "skipped")], run.result
    assert (
        f"pod default/{new['metadata']['name']} on b is Pending" in run.msg
        and f"last event: FailedMount: {said}" in run.msg
    ), run.msg
    assert lost.attached() == {("pv-db", "b")} and lost.ledger()["phase"] == "fenced"
    lost.kubelets._run = start  # type: ignore[method-assign]
    assert done(lost.run()) == [ATTACH, READY, RECORD]
    lost.cluster.used("rbac-fence.yml", "list events")
    converged(lost)


@pytest.mark.variation
def test_a_finalizer_that_holds(lost_1_20: Lost) -> None:
    """It stays, and the run ends in time and says who holds it.

    When the driver can again, the next run ends it.
    """
    lost = lost_1_20
    lost.volume("db")
    lost.bare("db", "db")
    lost.lose("pv-db")
    lost.cluster.attacher.behave(RBD, Behaviour(fail="array is busy", attach=False))
    run = lost.run(detach_timeout=8)
    assert run.failed and run.changed
    for text in (
        "held by external-attacher/rbd-csi-ceph-com",
        "the attacher says: array is busy",
        "A finalizer is never removed here",
    ):
        assert text in run.msg, run.msg
    assert run.outcomes[-4:] == [
        (DETACH, "failed"),
        (ATTACH, "skipped"),
        (READY, "skipped"),
        (RECORD, "skipped"),
    ]
    (held,) = lost.api.all("VolumeAttachment")
    assert (
        held["metadata"]["finalizers"] == ["external-attacher/rbd-csi-ceph-com"]
        and "deletionTimestamp" in held["metadata"]
    )
    assert lost.ledger()["phase"] == "fenced"
    lost.no_lease()
    lost.cluster.attacher.behave(RBD, OK)
    assert done(lost.run())[-1] == RECORD
    converged(lost)


def test_a_pod_that_its_tenant_holds(lost_current: Lost) -> None:
    """Its volume alone stays: the other one is moved, proven and noted, by one run."""
    lost = lost_current
    for name in ("db", "ev"):
        lost.volume(name)
        lost.deploy(name, name)
    (held,) = [found for found in lost.api.all("Pod") if found["metadata"]["name"][:2] == "ev"]
    where = path("Pod", held["metadata"]["name"], held["metadata"]["namespace"])

    def hold(*finalizers: str) -> None:
        body = {"metadata": {"finalizers": [*finalizers]}}
        lost.api.call("PATCH", where, body, "application/merge-patch+json")

    hold("tenant.example.com/keep")
    lost.lose("pv-db", "pv-ev")
    lost.wait_waiting("db")
    # With the taint, the pod garbage collector calls such a pod Failed, and its volume is detached.
    for _run in range(2):
        run = lost.run(detach="volumes", detach_timeout=8)
        assert run.failed and run.result["code"] == "not_detached", run.result
        assert "of pv-ev is still on a" in run.msg, run.msg
        assert ("pv-db", "b") in lost.attached()
        assert (lost.ledger()["phase"], lost.ledger()["detached"]) == ("fenced", ["pv-db"])
        lost.no_lease()
    hold()
    assert done(lost.run(detach="volumes"))[-1] == RECORD
    assert lost.attached() == {("pv-db", "b"), ("pv-ev", "b")}
    assert (lost.ledger()["phase"], lost.ledger()["detached"]) == ("detached", ["pv-db", "pv-ev"])
    converged(lost)


@pytest.mark.parametrize("fixture", [variation("lost_1_20"), "lost_current"])
def test_the_node_is_back(request: pytest.FixtureRequest, fixture: str) -> None:
    lost: Lost = request.getfixturevalue(fixture)
    lost.volume("db")
    lost.bare("db", "db")
    lost.lose("pv-db")
    lost.come_back()
    refused(
        lost,
        "node a is back (Ready=True): nothing is detached from "
        "it. Its fence stays; release it with",
    )
    assert lost.attached() == {("pv-db", "a")}


def test_the_node_comes_back_in_the_middle(lost_1_20: Lost) -> None:
    """After the first pod was deleted: nothing else is."""
    lost = lost_1_20
    for name in ("db", "log"):
        lost.volume(name)
        lost.bare(name, name)
    lost.lose("pv-db", "pv-log")
    proxy = lost.cluster.proxy()
    proxy.on("DELETE", r"/pods/", times=1, after=lost.come_back)
    run = lost.run(proxy=proxy)
    assert run.failed and run.changed and "node a is back (Ready=True)" in run.msg, run.result
    assert [outcome for _verb, outcome in run.outcomes] == ["done", *["skipped"] * 7]
    assert ("pv-log", "a") in lost.attached() and lost.api.find("Pod", "log")
    assert lost.ledger()["phase"] == "fenced"


@pytest.mark.variation
def test_the_nodes_object_is_deleted(lost_current: Lost) -> None:
    """The ledger is in a ConfigMap too. Nothing can be tainted, so it goes one by one."""
    lost = lost_current
    lost.volume("db")
    lost.deploy("db", "db")
    lost.lose("pv-db")
    lost.api.delete(path("Node", "a"))
    assert lost.run(detach="taint").msg.count("there is no node a any more")
    assert done(lost.run())[-1] == RECORD
    assert lost.attached() == {("pv-db", "b")}
    assert k8s.json.loads(lost.api.call("GET", CONFIG_MAP)["data"]["ledger"])["phase"] == "detached"


# The unit tests kill it before every request.
MOMENTS = [
    ("lost_current", "PATCH", r"/nodes/a", 2),
    ("lost_1_20", "DELETE", r"/volumeattachments/", 1),
]


@pytest.mark.parametrize(("fixture", "method", "where", "number"), MOMENTS)
def test_killed_and_run_again(
    request: pytest.FixtureRequest, fixture: str, method: str, where: str, number: int
) -> None:
    """Right after a change, before the module has heard of it: the next run, which waits for the
    lease, brings it to the same end.
    """
    lost: Lost = request.getfixturevalue(fixture)
    lost.volume("db")
    lost.bare("db", "db")
    lost.lose("pv-db")
    proxy = lost.cluster.proxy()
    kill = proxy.on(
        method, where, first=number, times=1, after=lambda: kill_module(module="volume_failover")
    )
    died = lost.run(proxy=proxy)
    assert died.failed and "findings" not in died.result, died.result
    assert kill.matched >= number
    held = lost.api.get(LEASE)
    assert held and held["spec"]["holderIdentity"] == "run-1"
    run = lost.run(run_id="run-2")
    assert not run.failed, run.msg
    assert lost.attached() == set() and not lost.api.find("Pod", "db")
    ledger = lost.ledger()
    tainted = fixture == "lost_current"
    assert (ledger["phase"], ledger["tainted"], lost.taints().count(OUT)) == (
        "detached",
        tainted,
        int(tainted),
    )
    ours = [
        found
        for found in lost.api.all("ConfigMap")
        if found["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by")
    ]
    assert len(ours) == 1
