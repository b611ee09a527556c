# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of a cluster for STOR-16 and STOR-17, what is found, and what each finding says is
to be done.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.images import image_of
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fence_audit import (
    plan as fence_audit_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fence_audit import (
    runbook as fence_audit,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fence_audit.runbook import (
    make_audit,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    MOST_NAMES,
    Entry,
    FenceObject,
    Ledger,
    Ledgers,
    config_map_path,
    name_size,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    pick_fence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    attachment_name,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Module

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)
LONG_AGO, JUST_NOW = "2026-03-01T11:50:00Z", "2026-03-01T11:59:00Z"
RBD, OTHER = "rbd.csi.ceph.com", "csi.example.com"
OUT = "node.kubernetes.io/out-of-service"
TAINT = {"key": OUT, "value": "nodeshutdown", "effect": "NoExecute"}
# What a healthy cluster costs.
HEALTHY = ["list /api/v1/nodes", "list /api/v1/namespaces/storage-ops/configmaps", "get /apis"]
LEDGER = Ledger(
    node="a",
    node_uid="uid-a",
    boot_id="boot-1",
    machine="m-a",
    method="ceph",
    phase="detached",
    cluster_id="ceph-1",
    fsid="f",
    addresses=("10.0.0.1",),
    entries=(Entry("10.0.0.1", "address", True, "2027-03-01T00:00:00Z"),),
    network_fences=(),
    source={"10.0.0.1": "watcher"},
    volumes=("pv-db",),
    unverified=False,
    cordoned=True,
    tainted=True,
    by="awx",
    run="run-0",
    at="2026-03-01T11:55:00Z",
)
BY_OBJECT = LEDGER._replace(
    method="network_fence",
    entries=(),
    network_fences=(FenceObject("fence-a", "uid-f", ("10.0.0.1/32",), True),),
)

Object = dict[str, Any]


def node(
    name: str,
    ready: str = "True",
    since: str = LONG_AGO,
    address: str = "",
    boot: str = "boot-1",
    *taints: Object,
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
            "nodeInfo": {"bootID": boot, "systemUUID": f"M-{name}"},
            "addresses": [
                {"type": "InternalIP", "address": address or f"10.0.0.{ord(name[0]) - 96}"},
                {"type": "Hostname", "address": name},
            ],
        },
    }


LOST = node("a", "Unknown")


def volume(name: str, driver: str = RBD, modes: tuple[str, ...] = ("ReadWriteOnce",)) -> Object:
    image = {"pool": "rbd", "imageName": name} if driver == RBD else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"secret": "x"}},
        "spec": {
            "csi": {
                "driver": driver,
                "volumeHandle": f"h-{name}",
                "volumeAttributes": {"clusterID": "ceph-1", **image},
                "nodeStageSecretRef": {"name": "s", "namespace": "n"},
            },
            "accessModes": list(modes),
            "storageClassName": "fast",
            "claimRef": {"namespace": "shop", "name": name, "uid": "c"},
        },
        "status": {"phase": "Bound"},
    }


def attachment(name: str, on: str = "a", driver: str = RBD, attached: bool = True) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(driver, f"h-{name}", on)},
        "spec": {"attacher": driver, "nodeName": on, "source": {"persistentVolumeName": name}},
        "status": {"attached": attached},
    }


def network_fence(state: str = "Fenced", cidr: str = "10.0.0.1/32") -> Object:
    return {
        "apiVersion": "csiaddons.openshift.io/v1alpha1",
        "kind": "NetworkFence",
        "metadata": {"name": "fence-a", "uid": "uid-f"},
        "spec": {
            "driver": RBD,
            "fenceState": state,
            "cidrs": [cidr],
            "parameters": {"clusterID": "ceph-1"},
        },
        "status": {"result": "Succeeded", "message": "fencing operation successful"},
    }


def blocked(entry: str, kind: str = "address") -> Object:
    spelled = {"address": f"{entry}:0/0", "range": entry.replace("/", ":0/"), "client": entry}[kind]
    address = entry.rpartition(":")[0] if kind == "client" else entry
    return {"entry": spelled, "kind": kind, "address": address, "until": "2027-01-01T00:00:00Z"}


def reading(*blocklist: Object, fsid: str = "f", watchers: tuple[str, ...] = ()) -> Object:
    seen = [
        {
            "address": entry.rpartition(":")[0],
            "entry": entry,
            "client": "client.7",
            "cookie": "1",
            "seen": 2,
            "persistent": True,
            "mirror": False,
        }
        for entry in watchers
    ]
    image = {
        "volume": "pv-db",
        "pool": "rbd",
        "namespace": "",
        "image": "db",
        "problem": "",
        "locks": [],
        "client_addresses": [],
    }
    images = [{**image, "watchers": seen}]
    return {
        "fsid": fsid,
        "read_at": "2026-03-01T12:00:00Z",
        "observations": 2,
        "seconds": 1,
        "families": ["IPv4"],
        "blocklist": list(blocklist),
        "images": images,
    }


def world(*objects: Object, ledger: Ledger | None = None) -> FakeCluster:
    cluster = FakeCluster(*objects)
    cluster.clock = lambda: NOW
    if ledger:
        Ledgers(cluster, "storage-ops").write(ledger)  # type: ignore[arg-type]
    cluster.requests.clear()
    return cluster


def audit(cluster: FakeCluster, *nodes: str, **options: Any) -> Object:
    params: Object = {
        "controls": ["STOR-16", "STOR-17"],
        "nodes": list(nodes),
        "ceph": None,
        "grace_seconds": 120.0,
        "ledger_namespace": "storage-ops",
        **options,
    }
    module = Module()
    with pytest.raises(SystemExit):
        engine.report(module, lambda: make_audit(cluster, params), params["controls"])  # type: ignore[arg-type]
    assert "exception" not in module.result, module.result
    assert not module.result["changed"]
    assert all(request.split()[0] in ("get", "list") for request in cluster.requests)
    return module.result


def only(result: Object, control: str, severity: str, *words: str) -> Object:
    """The only finding, whose summary or reason has these words."""
    assert len(result["findings"]) == 1, [finding["summary"] for finding in result["findings"]]
    finding: Object = result["findings"][0]
    assert (finding["control"], finding["severity"], finding["verdict"]) == (
        control,
        severity,
        "report",
    )
    said = f"{finding['summary']}: {finding['reason']}"
    for word in words:
        assert word in said, said
    return finding


def test_a_healthy_cluster_costs_three_lists() -> None:
    cluster = world(node("a"), node("b"), volume("pv-db"), attachment("pv-db"))
    result = audit(cluster)
    assert result["findings"] == [] and result["lost"] == []
    assert "2 of 2 nodes are Ready, 0 have a fence" in result["msg"]
    assert cluster.requests == HEALTHY


# STOR-16


def test_a_lost_node_whose_kubelet_wrote_a_time_that_is_still_to_come() -> None:
    """The time of the taint is none of its words."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": LONG_AGO}
    lying = node("a", "Unknown", "2099-01-01T00:00:00Z", "", "boot-1", taint)
    result = audit(world(lying, node("b"), volume("pv-db"), attachment("pv-db")))
    only(result, "STOR-16", "critical", "a has been lost for 600 s and holds 1 volumes")
    assert [found["not_ready_seconds"] for found in result["lost"]] == [600.0]


def test_a_lost_node_that_holds_a_volume() -> None:
    cluster = world(LOST, node("b"), volume("pv-db"), attachment("pv-db"), attachment("pv-db", "b"))
    result = audit(cluster)
    finding = only(
        result,
        "STOR-16",
        "critical",
        "a has been lost for 600 s and holds 1 volumes",
        "fail_over_volumes -e target=a",
    )
    assert finding["object"] == {"kind": "Node", "name": "a", "node": "a"}
    assert finding["evidence"]["volumes"] == [f"pv-db (shop/pv-db, {RBD})"]
    assert finding["evidence"]["waiting_elsewhere"] == ["pv-db on b"]
    assert (
        finding["evidence"]["taints"] == []
        and finding["runbook"] == "storage_ops.runbooks.fail_over_volumes"
    )
    (lost,) = result["lost"]
    assert (lost["node"], lost["ready"], lost["not_ready_seconds"], lost["boot_id"]) == (
        "a",
        "Unknown",
        600,
        "boot-1",
    )
    assert (
        lost["addresses"] == ["10.0.0.1"] and lost["ledger"] == {} and lost["volumes_left_out"] == 0
    )
    (held,) = lost["volumes"]
    assert held == {
        "name": "pv-db",
        "driver": RBD,
        "cluster_id": "ceph-1",
        "claim": "shop/pv-db",
        "storage_class": "fast",
        "attachment": attachment_name(RBD, "h-pv-db", "a"),
        "used": False,
        "pv": held["pv"],
    }
    assert held["pv"]["spec"]["csi"]["volumeAttributes"]["imageName"] == "pv-db"
    assert "secret" not in str(held["pv"]).lower()


@pytest.mark.parametrize(
    "objects",
    [
        # Not for long enough, reporting itself, nothing there, or shared with others anyway.
        (node("a", "Unknown", JUST_NOW), volume("pv-db"), attachment("pv-db")),
        (node("a", "False"), volume("pv-db"), attachment("pv-db")),
        (LOST,),
        (LOST, volume("pv-db", modes=("ReadWriteMany",)), attachment("pv-db")),
        # A kubelet stages nothing before it is attached.
        (LOST, volume("pv-db"), attachment("pv-db", attached=False)),
    ],
)
def test_no_volume_is_held(objects: tuple[Object, ...]) -> None:
    result = audit(world(*objects, node("b")))
    assert result["findings"] == []
    assert [lost["node"] for lost in result["lost"]] == ["a"]


def pod(
    claim: str, on: str = "a", name: str = "", phase: str = "Running", namespace: str = "shop"
) -> Object:
    source = {"persistentVolumeClaim": {"claimName": claim}}
    spec = {"nodeName": on, "volumes": [{"name": "data", **source}]}
    meta = {"name": name or claim, "namespace": namespace, "deletionTimestamp": LONG_AGO}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": phase},
    }


def test_what_its_status_still_has_in_use_is_held_whatever_its_attachment_says() -> None:
    (finding,) = audit(
        world(using(LOST, "pv-db"), node("b"), volume("pv-db"), attachment("pv-db", attached=False))
    )["findings"]
    assert "holds 1 volumes" in finding["summary"]


def test_who_waits_for_its_volumes() -> None:
    """As long as Kubernetes calls the volume attached to the lost node it makes no attachment
    elsewhere: only the pod tells.
    """
    there = (LOST, node("b"), volume("pv-db"), attachment("pv-db"))

    def waiting(*pods: Object) -> list[str]:
        (finding,) = audit(world(*there, *pods))["findings"]
        return list(finding["evidence"]["waiting_elsewhere"])

    new = pod("pv-db", "b", "db-2", "Pending")
    assert waiting(new) == ["pv-db on b for pod shop/db-2"]
    assert waiting(new, attachment("pv-db", "b"), attachment("pv-db", "c")) == [
        "pv-db on b for pod shop/db-2",
        "pv-db on c",
    ]
    for other in (
        pod("pv-db", "b", "db-2"),
        pod("pv-db", "", "db-2", "Pending"),
        pod("pv-db", "a", "db-2", "Pending"),
        pod("other", "b", "db-2", "Pending"),
        pod("pv-db", "b", "db-2", "Pending", "stock"),
    ):
        assert waiting(other) == []
    # Each volume has its own.
    stock = volume("pv-stock")
    stock["spec"]["claimRef"] = {"namespace": "stock", "name": "pv-db", "uid": "c"}
    more = [volume("pv-web"), attachment("pv-web"), stock, attachment("pv-stock")]
    assert waiting(new, *more) == ["pv-db on b for pod shop/db-2"]
    # Of a node that is not lost nothing is asked.
    cluster = world(*there, new, attachment("pv-db", "b"))
    assert audit(cluster, "b")["findings"] == []
    assert not [request for request in cluster.requests if "pods" in request]


def using(item: Object, *volumes: str) -> Object:
    """A node whose kubelet last called these in use."""
    return {
        **item,
        "status": {
            **item["status"],
            "volumesInUse": [unique_name(RBD, f"h-{name}") for name in volumes],
        },
    }


@pytest.mark.parametrize("sign", [[using(LOST, "pv-db")], [LOST, pod("pv-db")]])
def test_a_volume_that_was_detached_by_force(sign: list[Object]) -> None:
    cluster = world(*sign, node("b"), volume("pv-db"), attachment("pv-db", "b"))
    result = audit(cluster, ceph=reading(watchers=("10.0.0.1:0/7",)))
    what = "may still use 1 volumes that are not attached to it any more"
    finding = only(result, "STOR-16", "critical", what, "fail_over_volumes -e target=a")
    assert "no other node can use" not in finding["summary"]
    evidence = finding["evidence"]
    assert (evidence["not_attached"], evidence["waiting_elsewhere"]) == (["pv-db"], ["pv-db on b"])
    assert evidence["watchers"] == ["10.0.0.1:0/7 (client.7) of rbd/db"]
    (held,) = result["lost"][0]["volumes"]
    assert (held["name"], held["attachment"], held["used"], held["driver"]) == (
        "pv-db",
        "",
        True,
        RBD,
    )
    assert held["pv"]["spec"]["csi"]["volumeAttributes"]["imageName"] == "pv-db"
    named = audit(cluster, "a")
    assert named["lost"][0]["volumes"] == [held] and not [
        request for request in cluster.requests if "claims" in request
    ]


def test_what_is_never_attached_is_told_and_is_no_finding() -> None:
    """No attachment keeps it from other nodes; but a node that is switched off is fenced for it."""
    share = volume("pv-files", driver="nfs.csi.k8s.io")
    result = audit(world(LOST, pod("pv-files"), share), "a")
    (held,) = result["lost"][0]["volumes"]
    assert (held["name"], held["used"], held["driver"]) == ("pv-files", True, "nfs.csi.k8s.io")
    assert held["pv"] == {} and result["findings"] == []


def test_who_waits_for_what_was_detached_by_force() -> None:
    new = pod("pv-db", "b", "db-2", "Pending")
    for modes, held in ((("ReadWriteOnce",), True), (("ReadWriteMany",), False)):
        found = audit(world(using(LOST, "pv-db"), node("b"), volume("pv-db", modes=modes), new))[
            "findings"
        ]
        waiting = [finding["evidence"]["waiting_elsewhere"] for finding in found]
        assert waiting == [["pv-db on b for pod shop/db-2"]] * held


def test_a_fence_that_covers_what_was_detached_by_force() -> None:
    """Until it is proven, the volume is told once; then the node's old status says nothing any
    more.
    """
    for phase, used in (("intended", True), ("detached", False)):
        result = audit(
            world(
                using(LOST, "pv-db"),
                volume("pv-db"),
                attachment("pv-db", "b"),
                ledger=LEDGER._replace(phase=phase),
            )
        )
        (held,) = result["lost"][0]["volumes"]
        assert (held["name"], held["attachment"], held["used"]) == ("pv-db", "", used)
        assert len(result["findings"]) == used


def test_pods_are_read_node_by_node_and_not_those_of_ready_nodes() -> None:
    volumes = [volume(name) for name in ("pv-1", "pv-2", "pv-3")]
    cluster = world(
        LOST,
        node("b", "Unknown"),
        node("c"),
        *volumes,
        pod("pv-1"),
        pod("pv-2", "b"),
        pod("pv-3", "c"),
    )
    assert [[held["name"] for held in lost["volumes"]] for lost in audit(cluster)["lost"]] == [
        ["pv-1"],
        ["pv-2"],
    ]
    assert (
        cluster.requests.count("list /api/v1/pods"),
        cluster.requests.count("list /api/v1/persistentvolumes"),
    ) == (2, 1)
    cluster.requests.clear()
    assert (
        audit(cluster, "c")["lost"][0]["volumes"] == []
        and "list /api/v1/pods" not in cluster.requests
    )


def test_volumes_of_other_storage_are_told_apart() -> None:
    mixed = world(
        LOST,
        volume("pv-db"),
        attachment("pv-db"),
        volume("pv-x", OTHER),
        attachment("pv-x", driver=OTHER),
    )
    only(
        audit(mixed),
        "STOR-16",
        "critical",
        "fail_over_volumes -e target=a",
        f"Volumes of {OTHER} are not Ceph RBD",
    )
    alone = only(
        audit(world(LOST, volume("pv-x", OTHER), attachment("pv-x", driver=OTHER))),
        "STOR-16",
        "critical",
        "are not Ceph RBD",
    )
    assert "fail_over_volumes -e target=a" not in alone["reason"]


@pytest.mark.parametrize("phase", ["intended", "fenced"])
def test_a_fail_over_that_was_interrupted(phase: str) -> None:
    cluster = world(LOST, volume("pv-db"), ledger=LEDGER._replace(phase=phase))
    only(
        audit(cluster),
        "STOR-16",
        "critical",
        "holds no volume any more",
        f"interrupted when it was {phase}",
        "fail_over_volumes -e target=a",
    )


def test_a_release_that_was_interrupted_and_the_node_is_lost_again() -> None:
    cluster = world(LOST, ledger=LEDGER._replace(phase="releasing"))
    only(
        audit(cluster),
        "STOR-16",
        "critical",
        "lost again while its release was under way",
        "fail_over_volumes -e target=a",
    )


def test_a_fail_over_that_is_done_is_no_finding() -> None:
    """The ledger's volumes are told all the same: a second run of the fail-over has to look at
    their images.
    """
    cluster = world(LOST, volume("pv-db"), ledger=LEDGER)
    result = audit(cluster)
    assert result["findings"] == []
    (held,) = result["lost"][0]["volumes"]
    assert (held["name"], held["attachment"], held["driver"]) == ("pv-db", "", RBD)
    assert result["lost"][0]["ledger"]["phase"] == "detached"


def test_a_volume_that_the_fence_does_not_cover() -> None:
    cluster = world(LOST, volume("pv-db"), volume("pv-web"), attachment("pv-web"), ledger=LEDGER)
    only(audit(cluster), "STOR-16", "critical", "holds 1 volumes", "these are not in its fence")


def test_a_watcher_that_outlives_the_fence() -> None:
    cluster = world(LOST, volume("pv-db"), ledger=LEDGER)
    held = reading(blocked("10.0.0.1"), watchers=("10.0.0.1:0/7", "10.0.0.2:0/8"))
    finding = only(
        audit(cluster, ceph=held),
        "STOR-16",
        "critical",
        "Ceph still sees 1 of its watchers",
        "the fence does not hold",
    )
    assert finding["evidence"]["watchers"] == ["10.0.0.1:0/7 (client.7) of rbd/db"]
    assert (
        audit(cluster, ceph=reading(blocked("10.0.0.1"), watchers=("10.0.0.2:0/8",)))["findings"]
        == []
    )


def test_watchers_are_evidence_where_nobody_has_fenced() -> None:
    cluster = world(LOST, volume("pv-db"), attachment("pv-db"))
    finding = only(audit(cluster, ceph=reading(watchers=("10.0.0.1:0/7",))), "STOR-16", "critical")
    assert finding["evidence"]["watchers"] == ["10.0.0.1:0/7 (client.7) of rbd/db"]


# which nodes


def test_named_nodes_are_returned_whether_they_are_lost_or_not() -> None:
    cluster = world(
        node("a"),
        LOST | {"metadata": {"name": "b", "uid": "uid-b"}},
        volume("pv-db"),
        attachment("pv-db"),
    )
    result = audit(cluster, "a")
    assert result["findings"] == []
    assert [
        (lost["node"], lost["ready"], lost["not_ready_seconds"]) for lost in result["lost"]
    ] == [("a", "True", 0)]
    assert [held["name"] for held in result["lost"][0]["volumes"]] == ["pv-db"]
    # Attachments before the node that may lose them; and not the nodes nobody asked for.
    assert cluster.requests[:2] == [
        "list /apis/storage.k8s.io/v1/volumeattachments",
        "get /api/v1/nodes/a",
    ]


def test_a_node_that_nobody_knows_is_an_error() -> None:
    result = audit(world(node("a")), "aa")
    assert result["failed"] and "there is no node aa" in result["msg"]


def test_a_node_whose_object_is_gone_is_known_by_what_is_left() -> None:
    result = audit(world(node("b"), volume("pv-db"), attachment("pv-db"), ledger=LEDGER), "a")
    (lost,) = result["lost"]
    assert (lost["ready"], lost["addresses"], lost["ledger"]["node"]) == ("", [], "a")
    assert [held["name"] for held in lost["volumes"]] == ["pv-db"]


def test_many_volumes_of_nodes_that_were_not_named_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fence_audit_plan, "_MAX_VOLUMES", 900)
    monkeypatch.setattr(fence_audit, "_MAX_GETS", 1)
    objects = [LOST, node("b", "Unknown")]
    for name, on in (("pv-1", "a"), ("pv-2", "b")):
        objects += [volume(name), attachment(name, on)]
    cluster = world(*objects)
    assert [
        (len(lost["volumes"]), lost["volumes_left_out"]) for lost in audit(cluster)["lost"]
    ] == [(1, 0), (0, 1)]
    assert "list /api/v1/persistentvolumes" in cluster.requests
    assert [
        (len(lost["volumes"]), lost["volumes_left_out"])
        for lost in audit(cluster, "a", "b")["lost"]
    ] == [(1, 0), (1, 0)]


def of_tenant(number: int, namespace: str, claim: str, driver: str = RBD) -> list[Object]:
    """A volume as Rook makes it, and its attachment to node a."""
    ending = f"{number:08x}-1111-2222-3333-444444444444"
    item = volume(f"pvc-{ending}", driver)
    csi = item["spec"]["csi"]
    csi["volumeHandle"] = f"0001-0009-rook-ceph-0000000000000002-{ending}"
    if driver == RBD:
        csi["volumeAttributes"] = {
            "clusterID": "rook-ceph",
            "imageName": f"csi-vol-{ending}",
            "pool": "replicapool",
            "journalPool": "replicapool",
        }
    item["spec"]["claimRef"].update(namespace=namespace, name=claim)
    attached = attachment(f"pvc-{ending}", driver=driver)
    attached["metadata"]["name"] = f"csi-{number:064x}"
    return [item, attached]


def test_the_claims_of_one_tenant_do_not_make_a_named_node_too_long() -> None:
    """300 claims of the longest names, and one pod that names the lost node: the attach/detach
    controller attaches them all. What has no room is named, and nothing of others is left out.
    """
    evil = [
        item
        for number in range(600)
        for item in of_tenant(number, "t" * 63, f"c{number}-" + "x" * 240)
    ]
    shop = [item for number in range(20) for item in of_tenant(9000 + number, "shop", f"{number}")]
    others = [node(f"n{number}") for number in range(100)]
    others += [
        item
        for number in range(200)
        for item in (volume(f"pv-n{number}"), attachment(f"pv-n{number}", f"n{number // 2}"))
    ]
    result = audit(world(LOST, *evil, *shop, *others), "a")
    assert not result.get("failed"), result["msg"]
    (lost,) = result["lost"]
    named = [entry["name"] for entry in lost["volumes"]]
    assert len(lost["neighbours"]) == 200 and len(named) > 300
    assert lost["volumes_left_out"] == 620 - len(named) > 0
    every = {item["metadata"]["name"] for item in (*evil, *shop) if "csi" in item["spec"]}
    assert len(every) == 620 and every > set(named)
    assert sum(entry["claim"].startswith("shop/") for entry in lost["volumes"]) == 20
    # All that rbd_watcher_info needs to find them, and each claim once.
    assert all(image_of(entry["pv"], {}) for entry in lost["volumes"])
    assert "claimRef" not in str(lost)


def test_what_has_no_room_is_never_of_the_fence_and_of_ceph_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The release asks Ceph for what is fenced, and the fence for images alone."""
    monkeypatch.setattr(fence_audit_plan, "_MAX_NAMED", 1250)
    shop = [item for number in range(3) for item in of_tenant(number, "shop", f"c{number}")]
    sans = [of_tenant(7, "bank", "x", "san.example.com"), of_tenant(8, "bank", "y", "san.io")]
    last = shop[4]["metadata"]["name"]
    ledger = LEDGER._replace(volumes=(last,), phase="detached", boot_id="boot-0")
    (lost,) = audit(world(LOST, *shop, *sans[0], *sans[1], ledger=ledger), "a")["lost"]
    assert [entry["name"] for entry in lost["volumes"]] == [shop[0]["metadata"]["name"], last]
    assert lost["volumes_left_out"] == 3
    (lost,) = audit(world(LOST, *sans[0]), "a")["lost"]
    assert [entry["pv"] for entry in lost["volumes"]] == [{}]
    assert lost["volumes"][0]["driver"] == "san.example.com"


@pytest.mark.parametrize("driver", [RBD, "san.example.com"])
def test_a_fence_of_many_volumes_is_told_as_long_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    """By power every volume is fenced, and each later run begins with what is told here. A thousand
    claims of one tenant made it too long for any: nothing was failed over, nor released.
    """
    # A tenth of everything.
    monkeypatch.setattr(fence_audit_plan, "_MAX_NAMED", 25_000)
    monkeypatch.setattr(engine, "MAX_RESULT_CHARACTERS", 50_000)
    evil = [item for number in range(130) for item in of_tenant(number, "evil", "x" * 253, driver)]
    names = [item["metadata"]["name"] for item in evil[::2]]
    mine = of_tenant(5000, "shop", "mine")
    cluster = world(LOST, *evil, *mine)
    (lost,) = audit(cluster, "a")["lost"]
    told = [entry["name"] for entry in lost["volumes"]]
    assert mine[0]["metadata"]["name"] in told and lost["volumes_left_out"] == 131 - len(told) > 0

    # A ledger that one run with room for them all has made.
    ledger = LEDGER._replace(volumes=tuple(names), phase="fenced", node_uid=LOST["metadata"]["uid"])
    later = [*evil, *mine]
    result = audit(world(LOST, *later, ledger=ledger), "a")
    assert not result.get("failed"), result["msg"]
    # They have left: there is room for what has not.
    gone = [item for item in later if "csi" in item["spec"]] + [mine[1]]
    (lost,) = audit(world(LOST, *gone, ledger=ledger), "a")["lost"]
    assert mine[0]["metadata"]["name"] in [entry["name"] for entry in lost["volumes"]]
    # And before the release what is fenced comes first, as far as Ceph is asked about it.
    back = node("a", "True")
    result = audit(world(back, *gone, ledger=ledger), "a")
    assert not result.get("failed"), result["msg"]
    (lost,) = result["lost"]
    fenced = [entry for entry in lost["volumes"] if entry["name"] in names]
    assert bool(fenced) is (driver == RBD) and all(entry["pv"] for entry in fenced)
    assert lost["ledger"]["volumes"] == names


def test_a_ledger_that_is_full_leaves_room_for_what_is_attached() -> None:
    """A run fences what it is told, and the next one what had no room before. So the ledger grows
    from run to run, and at 440,000 characters no further run could begin, nor the release.
    """
    names = [f"pvc-{number:08x}-1111-2222-3333-444444444444" for number in range(5000)]
    full = tuple(names[: MOST_NAMES // name_size(names[0])])
    ledger = LEDGER._replace(volumes=full, detached=full, node_uid=LOST["metadata"]["uid"])
    evil = [
        item
        for number in range(6000, 6600)
        for item in of_tenant(number, "t" * 63, f"c{number}-" + "x" * 240)
    ]
    others = [node(f"n{number}") for number in range(100)]
    others += [
        item
        for number in range(200)
        for item in (volume(f"pv-n{number}"), attachment(f"pv-n{number}", f"n{number // 2}"))
    ]
    result = audit(world(LOST, *evil, *others, ledger=ledger), "a")
    assert not result.get("failed"), result["msg"]
    (lost,) = result["lost"]
    assert len(lost["ledger"]["volumes"]) == len(full) > 1000 and lost["volumes_left_out"] > 0
    # What volume_failover returns in the end.
    told = {"fence": ledger.to_dict(), "left": list(full)}
    assert len(json.dumps(told)) < engine.MAX_RESULT_CHARACTERS // 2


def test_what_was_attached_too_late_takes_no_room_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant's pod that names the lost node has volumes attached there, which no fence has. Those
    of the same namespace, or of a dozen of its own, took the place of what the node has open.
    """
    monkeypatch.setattr(fence_audit_plan, "_MAX_NAMED", 1250)
    late = [item for number in range(9) for item in of_tenant(number, f"t{number}", "c")]
    late += [item for number in range(10, 19) for item in of_tenant(number, "shop", f"l{number}")]
    for item in late[1::2]:
        item["metadata"]["creationTimestamp"] = JUST_NOW
    old = [item for number in range(30, 32) for item in of_tenant(number, "shop", f"c{number}")]
    mine = [item["metadata"]["name"] for item in old[::2]]
    (lost,) = audit(world(LOST, *late, *old), "a")["lost"]
    assert [entry["name"] for entry in lost["volumes"]] == mine
    assert lost["volumes_left_out"] == 18
    # One that the kubelet calls in use, or of which a container ran, did not come too late.
    used = node("a", "Unknown")
    handle = late[0]["spec"]["csi"]["volumeHandle"]
    used["status"]["volumesInUse"] = [unique_name(RBD, handle)]
    ran = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "t1", "uid": "p"},
        "spec": {
            "nodeName": "a",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
        "status": {"phase": "Running", "containerStatuses": [{"restartCount": 1, "state": {}}]},
    }
    (lost,) = audit(world(used, ran, *late, *old[:2]), "a")["lost"]
    names = [entry["name"] for entry in lost["volumes"]]
    assert len(names) == 2 and set(names) < {
        late[0]["metadata"]["name"],
        late[2]["metadata"]["name"],
        mine[0],
    }


def test_who_has_volumes_of_other_nodes_shows_where_those_reach_ceph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that no kubelet has another node fenced by claiming its address on Ceph's network."""
    objects = [LOST, node("b"), node("c"), volume("pv-db"), attachment("pv-db")]
    for number in range(3):
        objects += [volume(f"pv-b{number}"), attachment(f"pv-b{number}", "b")]
    objects += [
        volume("pv-c"),
        attachment("pv-c", "c"),
        # Who has these open may be either node, or none; or Ceph knows nothing of them.
        volume("pv-a-both"),
        attachment("pv-a-both", "b"),
        attachment("pv-a-both", "c"),
        volume("pv-late"),
        attachment("pv-late", "c", attached=False),
        volume("pv-san", "san.example.com"),
        attachment("pv-san", "c", "san.example.com"),
    ]
    (lost,) = audit(world(*objects, attachment("pv-gone", "d")), "a")["lost"]
    found = [item["metadata"]["name"] for item in lost["neighbours"]]
    assert found == ["pv-b0", "pv-b1", "pv-c"] and lost["neighbours_left_out"] == 0
    assert lost["neighbours"][0]["spec"]["csi"]["volumeAttributes"]["imageName"] == "pv-b0"
    monkeypatch.setattr(fence_audit_plan, "MAX_NEIGHBOURS", 1)
    (lost,) = audit(world(*objects), "a")["lost"]
    assert len(lost["neighbours"]) == 2 and lost["neighbours_left_out"] == 1
    # Who has a volume of the lost node, too, comes first, whatever its name.
    (lost,) = audit(world(*objects, attachment("pv-db", "c")), "a")["lost"]
    assert [item["metadata"]["name"] for item in lost["neighbours"]] == ["pv-c"]
    # What goes on to no fence needs none of it.
    (lost,) = audit(world(*objects))["lost"]
    assert (lost["neighbours"], lost["neighbours_left_out"]) == ([], 0)


# STOR-17


def test_a_fence_on_a_node_that_is_back_after_a_reboot() -> None:
    finding = only(
        audit(world(node("a", "True", LONG_AGO, "", "boot-2", TAINT), ledger=LEDGER)),
        "STOR-17",
        "major",
        "a is Ready, and its fence is still there",
        "it was rebooted since",
        "release_fenced_node -e target=a",
    )
    assert (
        finding["evidence"]["boot_id"] == "boot-2"
        and finding["evidence"]["boot_id_when_fenced"] == "boot-1"
    )
    assert finding["evidence"]["out_of_service"] is True


def test_a_fence_on_a_node_that_is_back_without_a_reboot() -> None:
    only(
        audit(world(node("a"), ledger=LEDGER)),
        "STOR-17",
        "major",
        "not rebooted since (same bootID)",
        "reboot it and run ansible-playbook storage_ops.runbooks.release_fenced_node -e target=a,",
    )


def test_a_fence_on_a_node_that_is_another_machine_now() -> None:
    other = node("a", "True", LONG_AGO, "", "boot-2")
    other["status"]["nodeInfo"]["systemUUID"] = "m-new"
    found = only(
        audit(world(other, ledger=LEDGER)),
        "STOR-17",
        "major",
        "(its systemUUID/machineID was m-a and is m-new)",
    )
    assert (
        "node_release_old_machine_confirmed_off=true" in found["reason"]
        and "rebooted since" not in found["reason"]
    )


def test_a_release_that_was_interrupted() -> None:
    only(
        audit(world(node("a"), ledger=LEDGER._replace(phase="releasing"))),
        "STOR-17",
        "major",
        "its release was interrupted",
    )


def test_a_fence_of_a_node_that_is_no_more() -> None:
    only(
        audit(world(node("b"), ledger=LEDGER)),
        "STOR-17",
        "major",
        "there is no such node any more",
        "remove the fence by hand",
    )


def test_the_taint_without_a_ledger() -> None:
    tainted = node("a", "True", LONG_AGO, "", "boot-1", TAINT)
    only(
        audit(world(tainted)),
        "STOR-17",
        "major",
        "a is Ready, and still carries the taint",
        f"kubectl taint node a {OUT}-",
    )
    assert audit(world(node("a", "Unknown", LONG_AGO, "", "boot-1", TAINT)))["findings"] == []


def test_a_node_that_claims_the_address_of_another_has_no_fence_taken_back() -> None:
    """What a kubelet says of its addresses is its own word; a fence that goes is two writers of one
    volume.
    """
    liar = node("b", address="10.0.0.1")
    result = audit(world(LOST, liar, network_fence(), ledger=BY_OBJECT))
    (finding,) = (one for one in result["findings"] if one["object"]["kind"] == "NetworkFence")
    assert (
        "it is the fence of a, by its ledger, and stays" in finding["reason"]
        and "Unfenced" not in finding["reason"]
    )
    by_hand = only(
        audit(world(LOST, liar, network_fence())),
        "STOR-17",
        "major",
        "leave it until that host is off",
    )
    assert "Unfenced" not in by_hand["reason"] and "perhaps fenced by hand" in by_hand["reason"]
    entry = only(
        audit(world(LOST, liar), ceph=reading(blocked("10.0.0.1"))),
        "STOR-17",
        "major",
        "leave it until that host is off",
    )
    assert "blocklist rm" not in entry["reason"]


def test_single_addresses_of_a_network_fence_are_looked_up() -> None:
    """A big cluster has thousands of nodes, each with a NetworkFence, and each node any number of
    addresses.
    """

    class Homes(dict[str, set[str]]):
        looks = 0

        def __iter__(self) -> Any:
            self.looks += 1
            return super().__iter__()

    homes = Homes({"10.0.0.1": {"a"}, "10.0.0.2": {"c", "b"}, "192.0.2.1": {"d"}})

    def covered(cidr: str) -> list[str]:
        return fence_audit_plan._covered_nodes(pick_fence(network_fence(cidr=cidr), {}), homes)

    assert (covered("10.0.0.2/32"), covered("10.0.0.9/32"), homes.looks) == (["b", "c"], [], 0)
    assert (covered("10.0.0.0/24"), homes.looks) == (["a", "b", "c"], 1)


def test_a_network_fence_that_covers_a_ready_node() -> None:
    words = (
        "NetworkFence fence-a is Fenced and covers a",
        "which its kubelet alone says",
        "Do not delete it",
    )
    finding = only(
        audit(world(node("a"), node("b"), network_fence(cidr="10.0.0.1/32"))),
        "STOR-17",
        "major",
        *words,
    )
    assert finding["object"] == {"kind": "NetworkFence", "name": "fence-a", "node": "a"}
    wide = only(
        audit(world(node("a"), node("b"), network_fence(cidr="10.0.0.0/24"))),
        "STOR-17",
        "major",
        "covers a, b",
    )
    assert wide["evidence"]["nodes"] == ["a", "b"]
    assert audit(world(node("a"), network_fence("Unfenced")))["findings"] == []
    assert audit(world(LOST, network_fence()))["findings"] == []
    # What a ledger names is told with its fence.
    only(
        audit(world(node("a"), network_fence(), ledger=BY_OBJECT)),
        "STOR-17",
        "major",
        "a is Ready, and its fence is still there",
    )


@pytest.mark.parametrize(
    ("host", "severity", "words"),
    [(LOST, "critical", "switch it off"), (None, "critical", "switch it off")],
)
def test_a_fence_that_has_expired_by_itself(host: Object | None, severity: str, words: str) -> None:
    over = LEDGER._replace(entries=(Entry("10.0.0.1", "address", True, "2026-03-01T11:59:59Z"),))
    result = audit(world(*([host] if host else []), node("b"), ledger=over))
    (expired, *_others) = result["findings"]
    assert (expired["control"], expired["severity"]) == ("STOR-17", severity)
    assert (
        "the fence of a has expired by itself (10.0.0.1 at 2026-03-01T11:59:59Z)"
        in expired["summary"]
        and words in expired["reason"]
    )


def test_an_expired_fence_of_a_ready_node() -> None:
    over = LEDGER._replace(entries=(Entry("10.0.0.1", "address", True, "2026-03-01T11:59:59Z"),))
    found = {
        finding["summary"]: finding["severity"]
        for finding in audit(world(node("a"), ledger=over))["findings"]
    }
    assert len(found) == 2 and set(found.values()) == {"major"}
    assert any("has expired by itself" in summary for summary in found)


def test_an_entry_that_somebody_has_renewed_has_not_expired() -> None:
    over = LEDGER._replace(entries=(Entry("10.0.0.1", "address", True, "2026-03-01T11:59:59Z"),))
    assert audit(world(LOST, ledger=over), ceph=reading(blocked("10.0.0.1")))["findings"] == []


def test_a_ledger_without_its_entry() -> None:
    words = (
        "the ledger of a has 10.0.0.1, but Ceph's blocklist does not",
        "it was removed, but not by a release",
    )
    only(audit(world(LOST, ledger=LEDGER), ceph=reading()), "STOR-17", "critical", *words)
    # A nonce of the same address is another entry.
    only(
        audit(world(LOST, ledger=LEDGER), ceph=reading(blocked("10.0.0.1:0/7", "client"))),
        "STOR-17",
        "critical",
        *words,
    )
    for phase in ("intended", "releasing"):
        found = audit(world(LOST, ledger=LEDGER._replace(phase=phase)), ceph=reading())["findings"]
        assert [finding["control"] for finding in found] == ["STOR-16"]
    # More was to be fenced since it was proven, or it was to become one by power.
    changed = LEDGER._replace(phase="intended", proven=True, addresses=())
    found = audit(world(LOST, ledger=changed), ceph=reading())["findings"]
    (told,) = [one for one in found if one["control"] == "STOR-17"]
    assert told["severity"] == "critical"
    assert "it was removed, or a run ended before it was added" in told["reason"]
    # Another Ceph cluster's blocklist says nothing.
    assert audit(world(LOST, ledger=LEDGER), ceph=reading(fsid="other"))["findings"] == []


def test_a_network_fence_without_its_entry() -> None:
    words = "the ledger of a has 10.0.0.1, but Ceph's blocklist does not"
    only(
        audit(world(LOST, network_fence(), ledger=BY_OBJECT), ceph=reading()),
        "STOR-17",
        "critical",
        words,
    )
    for entry in (blocked("10.0.0.1/32", "range"), blocked("10.0.0.1")):
        assert (
            audit(world(LOST, network_fence(), ledger=BY_OBJECT), ceph=reading(entry))["findings"]
            == []
        )


@pytest.mark.parametrize("entry", [blocked("10.0.0.1"), blocked("10.0.0.0/24", "range")])
def test_an_entry_without_a_ledger(entry: Object) -> None:
    """Any kubelet may say that the address is its own, so no command to remove it is offered."""
    finding = only(
        audit(world(node("a"), node("c")), ceph=reading(entry)),
        "STOR-17",
        "major",
        "and no ledger knows it",
        "whoever set it has to remove it",
    )
    assert finding["object"]["kind"] == "BlocklistEntry" and finding["object"]["node"] == "a"
    lost = only(
        audit(world(LOST), ceph=reading(entry)),
        "STOR-17",
        "major",
        "perhaps the node was fenced by hand",
    )
    assert "ceph osd" not in finding["reason"] + lost["reason"]


@pytest.mark.parametrize(
    "entry",
    [
        # Ceph makes these itself whenever a lock is broken; and these cover no node.
        blocked("10.0.0.1:0/7", "client"),
        blocked("10.9.9.9"),
        blocked("10.9.9.0/24", "range"),
    ],
)
def test_entries_that_are_no_finding(entry: Object) -> None:
    assert audit(world(node("a"), node("b")), ceph=reading(entry))["findings"] == []


def test_entries_that_somebody_has_noted() -> None:
    """In a ledger, also as one that was there before it; or by a NetworkFence."""
    foreign = LEDGER._replace(entries=(*LEDGER.entries, Entry("10.0.0.0/24", "range", False, "")))
    assert (
        audit(
            world(LOST, node("b"), ledger=foreign),
            ceph=reading(blocked("10.0.0.1"), blocked("10.0.0.0/24", "range")),
        )["findings"]
        == []
    )
    found = audit(world(node("a"), network_fence()), ceph=reading(blocked("10.0.0.1/32", "range")))[
        "findings"
    ]
    assert [finding["object"]["kind"] for finding in found] == ["NetworkFence"]


def test_an_entry_of_ipv6() -> None:
    entry = {"entry": "[fd00::5]:0/0", "kind": "address", "address": "fd00::5", "until": ""}
    only(
        audit(world(node("a", address="fd00:0::5")), ceph=reading(entry)),
        "STOR-17",
        "major",
        "Ceph's blocklist has fd00::5 of a",
    )


# ledgers


def test_a_ledger_that_cannot_be_read() -> None:
    cluster = world(LOST, node("b"), ledger=LEDGER)
    cluster.objects[config_map_path("a", "storage-ops")]["data"]["ledger"] = "{"
    only(audit(cluster), "STOR-17", "major", "the ledger of a cannot be read")
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"] = {ANNOTATION: "{"}
    only(audit(cluster, "a"), "STOR-17", "major", "the ledger of a cannot be read")


def test_a_note_that_says_something_else() -> None:
    cluster = world(LOST, ledger=LEDGER)
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"] = {ANNOTATION: "x"}
    assert "has an annotation that cannot be read" in copies(cluster)[0]
    text = LEDGER._replace(run="other", revision=7).text
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"] = {ANNOTATION: text}
    found = only(
        audit(cluster, "a"),
        "STOR-17",
        "major",
        "the ledger of a contradicts the annotation of the node",
    )
    assert "The ConfigMap counts" in found["reason"]


def copies(cluster: FakeCluster, *nodes: str, **options: Any) -> list[str]:
    """What is said of a ledger that is not kept twice."""
    found = [
        finding
        for finding in audit(cluster, *nodes, **options)["findings"]
        if finding["severity"] == "minor"
    ]
    assert all(
        finding["control"] == "STOR-17" and finding["object"]["name"] == "a" for finding in found
    )
    return [f"{finding['summary']}: {finding['reason']}" for finding in found]


def test_the_copy_that_was_written_last_counts() -> None:
    """And the other one is found: a run was killed between the two."""
    cluster = world(node("a"), ledger=LEDGER)
    old = cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"][ANNOTATION]
    begun = LEDGER._replace(phase="releasing", revision=1)
    Ledgers(cluster, "storage-ops").write(begun)  # type: ignore[arg-type]
    cluster.requests.clear()
    assert copies(cluster) == []
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"][ANNOTATION] = old
    assert "its release was interrupted" in audit(cluster)["findings"][0]["reason"]
    (said,) = copies(cluster)
    assert "has an older annotation: it says detached (revision 1), the ConfigMap releasing" in said
    assert "release_fenced_node -e target=a" in said


@pytest.mark.parametrize("text", ["x", LEDGER.text])
def test_an_annotation_alone_is_no_ledger(text: str) -> None:
    """Its kubelet may have written it; and it is told."""
    cluster = world(node("a"))
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"] = {ANNOTATION: text}
    for names in ((), ("a",)):
        found = only(
            audit(cluster, *names),
            "STOR-17",
            "major",
            "the ledger of a is nowhere, although the node has the annotation of one",
        )
        assert "so it is ignored" in found["reason"]


def test_an_annotation_that_belongs_to_another_namespace() -> None:
    cluster = world(LOST)
    Ledgers(cluster, "vault").write(LEDGER._replace(namespace="vault"))  # type: ignore[arg-type]
    cluster.requests.clear()
    found = only(
        audit(cluster),
        "STOR-17",
        "major",
        "the ledger of a is in namespace vault by its annotation, but this run looks in "
        "storage-ops",
    )
    said = found["reason"]
    assert "A node may write its own annotation" in said and "give ledger_namespace vault" in said
    assert copies(cluster, ledger_namespace="vault") == []


def test_a_config_map_alone_is_a_ledger() -> None:
    """Unless the Node object was recreated, on which nothing is noted."""
    cluster = world(LOST, ledger=LEDGER)
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"] = {}
    (said,) = copies(cluster)
    assert (
        "has no annotation, only its ConfigMap" in said and "fail_over_volumes -e target=a" in said
    )
    cluster.objects["/api/v1/nodes/a"]["metadata"]["uid"] = "uid-new"
    assert copies(cluster) == []
    cluster.remove(LOST)
    assert copies(cluster) == []


def test_copies_that_contradict_each_other() -> None:
    cluster = world(LOST, ledger=LEDGER)
    text = cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"][ANNOTATION]
    cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"][ANNOTATION] = text.replace(
        "10.0.0.1", "10.0.0.7"
    )
    only(
        audit(cluster),
        "STOR-17",
        "major",
        "contradicts the annotation of the node, which is not older",
    )


def test_a_ledger_that_was_copied_to_another_node() -> None:
    cluster = world(LOST, node("b"), ledger=LEDGER)
    copy = json.loads(json.dumps(cluster.objects[config_map_path("a", "storage-ops")]))
    copy["metadata"]["name"] = "storage-ops-fence-b"
    cluster.objects[config_map_path("b", "storage-ops")] = copy
    finding = only(audit(cluster), "STOR-17", "major", "the ledger of b cannot be read")
    assert "it was copied by hand" in finding["evidence"]["problem"]


def test_a_missing_right_is_an_error() -> None:
    cluster = world(node("a"))

    def forbid(_verb: str, place: str) -> None:
        if "configmaps" in place:
            raise Forbidden("cannot list configmaps", 403)

    cluster.before = forbid
    result = audit(cluster)
    assert result["failed"] and "cannot list configmaps" in result["msg"]


# options


def test_controls_are_left_out() -> None:
    cluster = world(LOST, volume("pv-db"), attachment("pv-db"))
    assert audit(cluster, controls=["STOR-17"])["findings"] == []
    assert audit(cluster, controls=["STOR-17"])["lost"]


@pytest.mark.parametrize(
    "options",
    [
        {"grace_seconds": -1},
        {"grace_seconds": float("nan")},
        {"grace_seconds": float("inf")},
        {"controls": []},
        {"nodes": [" "]},
    ],
)
def test_options_that_make_no_sense(options: Object) -> None:
    assert audit(world(node("a")), **options)["failed"]


def test_no_credentials_among_the_attributes_of_a_volume() -> None:
    """Results are logged, and AWX keeps them; some drivers want credentials there."""
    item = volume("pv-s3", driver="csi-rclone")
    item["spec"]["csi"]["volumeAttributes"].update(
        {"s3-secret-access-key": "planted", "configData": "[s3]\nsecret_access_key = planted"}
    )
    cluster = world(LOST, node("b"), item, attachment("pv-s3", driver="csi-rclone"))
    for nodes in ((), ("a",)):
        result = audit(cluster, *nodes)
        assert result["lost"][0]["volumes"] and "planted" not in json.dumps(result)
