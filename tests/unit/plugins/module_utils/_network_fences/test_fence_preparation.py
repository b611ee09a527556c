# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""For which nodes a NetworkFence is made, with which addresses, and for which none may be."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding, Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import (
    network_fence as nf,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.lease import RunLease
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    Entry,
    FenceObject,
    config_map_path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    FENCED,
    MESSAGES,
    UNFENCED,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.own import object_name
from ansible_collections.storage_ops.runbooks.plugins.module_utils._network_fences import (
    plan as prep,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._network_fences.runbook import (
    FencePreparation,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import (
    FakeCluster,
    Slow,
    path_of,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import LEDGER as FENCE

DRIVER = "rbd.csi.ceph.com"
# Ceph was read, and its blocklist is empty.
FREE: dict[str, Any] = {
    "fsid": "f",
    "read_at": "2026-01-31T10:00:00Z",
    "observations": 1,
    "seconds": 0.0,
    "families": ["IPv4"],
    "blocklist": [],
    "images": [],
}
PARAMS: dict[str, Any] = {
    "driver": DRIVER,
    "cluster_id": "c1",
    "secret_name": "s",
    "secret_namespace": "ceph-csi",
    "network_fence_class": "",
    "nodes": [],
    "name_prefix": "storage-ops-",
    "addresses": {},
    "ceph": FREE,
    "ledger_namespace": "storage-ops",
    "fence_timeout": 60.0,
    "max_repairs": 10,
}
BY_CLASS: dict[str, Any] = {
    "network_fence_class": "ceph",
    "driver": "",
    "cluster_id": "",
    "secret_name": "",
    "secret_namespace": "",
}


def node(name: str, *addresses: str, ready: str = "True", **meta: Any) -> dict[str, Any]:
    listed = [
        {"type": "Hostname", "address": name},
        *({"type": "InternalIP", "address": address} for address in addresses),
    ]
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [*listed, {"type": "ExternalIP", "address": "192.0.2.1"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **meta},
        "spec": {},
        "status": status,
    }


def fence(
    name: str,
    *cidrs: str,
    state: str = UNFENCED,
    message: str = "",
    source: str = "",
    **spec: Any,
) -> dict[str, Any]:
    spec = {
        "driver": DRIVER,
        "parameters": {"clusterID": "c1"},
        "cidrs": list(cidrs),
        "fenceState": state,
        **spec,
    }
    status = {"result": "Succeeded", "message": message or MESSAGES[state]}
    return {
        "apiVersion": nf.GROUP,
        "kind": "NetworkFence",
        "metadata": {"name": name, "annotations": {nf.ADDRESSES_FROM: source}},
        "spec": spec,
        "status": status,
    }


def endpoint(
    name: str,
    driver: str = DRIVER,
    capability: str = "network_fence.NETWORK_FENCE",
    at: str = "pod://csi-{}.ceph-csi:9070",
    **clients: list[str],
) -> dict[str, Any]:
    reports = [
        {
            "networkFenceClassName": name,
            "ClientDetails": [{"id": "x", "cidrs": [cidr]} for cidr in cidrs],
        }
        for name, cidrs in clients.items()
    ]
    status = {
        "state": "Connected",
        "capabilities": [capability] if capability else [],
        "networkFenceClientStatus": reports,
    }
    spec = {"driver": {"name": driver, "nodeID": name, "endpoint": at.format(name)}}
    meta = {"name": f"{name}-{driver}", "namespace": "ceph-csi"}
    return {
        "apiVersion": nf.GROUP,
        "kind": "CSIAddonsNode",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def sidecar(node: str, **spec: Any) -> dict[str, Any]:
    """The pod of the driver on a node."""
    container = {"name": "csi-addons", "args": ["--node-id=x", "--controller-port=9070"]}
    host = {"name": "socket-dir", "hostPath": {"path": f"/var/lib/kubelet/plugins/{DRIVER}"}}
    spec = {"nodeName": node, "containers": [container], "volumes": [host], **spec}
    meta = {"name": f"csi-{node}", "namespace": "ceph-csi"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def class_item(name: str = "ceph", cluster_id: str = "c1", **parameters: str) -> dict[str, Any]:
    secret = {f"{prep.SECRET_KEY}name": "s", f"{prep.SECRET_KEY}namespace": "ceph-csi"}
    spec = {"provisioner": DRIVER, "parameters": {"clusterID": cluster_id, **secret, **parameters}}
    return {
        "apiVersion": nf.GROUP,
        "kind": "NetworkFenceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def reading(entry: str, kind: str, address: str) -> dict[str, Any]:
    blocked = {"entry": entry, "kind": kind, "address": address, "until": "2026-02-01T00:00:00Z"}
    return {**FREE, "blocklist": [blocked]}


def just_after() -> datetime:
    """What the server's clock says after FREE was read."""
    return datetime(2026, 1, 31, 10, 0, 20, tzinfo=timezone.utc)


def runbook(cluster: FakeCluster, **params: Any) -> FencePreparation:
    cluster.clock = just_after
    options = prep.make_options({**PARAMS, **params})
    # Where each CSIAddonsNode says that it is from, unless a test has that pod already.
    for found in [*cluster.objects.values()]:
        pod = sidecar(found["spec"]["driver"]["nodeID"]) if found["kind"] == "CSIAddonsNode" else {}
        if pod and path_of(pod) not in cluster.objects:
            cluster.add(pod)
    return FencePreparation(cluster, options, lambda _seconds: settle(cluster))  # type: ignore[arg-type]


def settle(cluster: FakeCluster) -> None:
    """What the controller does."""
    for found in cluster.objects.values():
        if found["kind"] == "NetworkFence":
            found["status"] = {
                "result": "Succeeded",
                "message": MESSAGES[found["spec"]["fenceState"]],
            }


def planned(cluster: FakeCluster, **params: Any) -> Plan:
    made = runbook(cluster, **params)
    return made.plan(made.gather())


def only(cluster: FakeCluster, **params: Any) -> Finding:
    (finding,) = planned(cluster, **params).findings
    return finding


def test_a_fence_is_made_unfenced_and_nothing_is_left_to_do() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1", "fd00::1"), endpoint("provisioner"))
    made = runbook(cluster, nodes=["a"])
    plan = made.plan(made.gather())
    (finding,) = plan.findings
    engine._carry_out(made, plan)
    assert [action.outcome for action in plan.actions] == ["done"]
    body = cluster.objects[f"{nf.FENCES}/storage-ops-a"]
    assert body["spec"] == {
        "cidrs": ["10.0.0.1/32", "fd00::1/128"],
        "fenceState": "Unfenced",
        "driver": DRIVER,
        "secret": {"name": "s", "namespace": "ceph-csi"},
        "parameters": {"clusterID": "c1"},
    }
    assert "unverified" not in finding.evidence["proof"][0], "Ceph was read"
    assert finding.evidence["addresses_from"].startswith("its InternalIP")
    assert addresses_from(cluster) == "node"
    assert planned(cluster).findings == []
    assert "1 node, each with" in made.healthy(made.gather())


def addresses_from(cluster: FakeCluster) -> str:
    """What node_fence is told about the addresses of the NetworkFence of node a."""
    (fence,) = nf.list_fences(cluster) or ()  # type: ignore[arg-type]
    return fence.addresses_from


@pytest.mark.parametrize(("addresses", "source"), [({}, "driver"), ({"a": ["10.9.0.2"]}, "option")])
def test_whence_the_addresses_are_is_kept(addresses: dict[str, Any], source: str) -> None:
    reports = endpoint("a", capability="network_fence.GET_CLIENTS_TO_FENCE", ceph=["10.9.0.1/32"])
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), reports, class_item())
    made = runbook(cluster, **BY_CLASS, addresses=addresses)
    engine._carry_out(made, made.plan(made.gather()))
    assert addresses_from(cluster) == source


STRANGER = "10.99.0.7"


@pytest.mark.parametrize(
    "items",
    [
        (node("a", "10.0.0.1"),),
        (node("a", "10.0.0.1"), endpoint("a", ceph=["10.9.0.1/32"])),
    ],
)
def test_what_a_node_says_counts_only_beside_cephs_blocklist(items: tuple[Any, ...]) -> None:
    """A host outside the cluster may be fenced there, and no object here knows it."""
    cluster = FakeCluster(*items, endpoint("provisioner"), class_item())
    finding = only(cluster, ceph=None)
    assert (finding.verdict, finding.code) == ("refuse", "ceph_not_read")
    assert "have Ceph's blocklist read" in finding.reason
    assert "give the option addresses" in finding.reason
    assert only(cluster).verdict == "repair"
    made = runbook(cluster, ceph=None, addresses={"a": ["10.9.0.1"]})
    plan = made.plan(made.gather())
    engine._carry_out(made, plan)
    assert "Ceph itself was not read" in plan.findings[0].evidence["proof"][0]
    # What is there already unfences nothing new.
    assert planned(cluster, ceph=None).findings == []
    # Where no address is known, that alone is told.
    unknown = only(FakeCluster(node("a"), endpoint("provisioner")), ceph=None)
    assert (unknown.code, "option ceph" in unknown.reason) == ("address_unknown", False)


@pytest.mark.parametrize(
    ("kubelet", "driver", "believed"),
    [
        (["10.0.0.1", STRANGER], [], False),
        (["10.0.0.1", "fd00::1"], [], True),
        (["10.0.0.1", "fd00::1", "fd00::7"], [], False),
        (["10.0.0.1"], ["10.9.0.1/32", f"{STRANGER}/32"], False),
        (["10.0.0.1"], ["10.9.0.1/32", "fd00::1/128"], True),
        (["10.0.0.1"], ["10.9.0.1/32", "10.9.0.1/32"], True),
        (["10.0.0.1", STRANGER], ["10.9.0.1/32"], True),
    ],
)
def test_a_nodes_word_counts_for_one_address_of_each_family(
    kubelet: list[str], driver: list[str], believed: bool
) -> None:
    """What it names beyond may be a stranger's, whose fence an unfencing would take away."""
    items = (node("a", *kubelet), node("b", "10.0.0.2"), endpoint("a", ceph=driver))
    cluster = FakeCluster(*items, endpoint("provisioner"), class_item())
    findings = {found.name: found for found in planned(cluster).findings}
    assert findings["b"].verdict == "repair"
    assert (findings["a"].verdict == "repair") is believed
    if not believed:
        assert findings["a"].code == "address_unknown"
        assert "give the option addresses" in findings["a"].reason
        # Nor is one that was made so before taken for the node's.
        cluster.add(fence("storage-ops-a", *findings["a"].evidence["cidrs"], source="node"))
        assert verdicts(cluster) == {"a": "refuse", "b": "repair"}
        both = findings["a"].evidence["cidrs"]
        assert verdicts(cluster, addresses={"a": both}) == {"b": "repair"}


def test_one_node_that_claims_many_addresses_is_told_in_short() -> None:
    many = [f"10.99.{number // 250}.{number % 250}" for number in range(2000)]
    cluster = FakeCluster(node("a", *many), endpoint("provisioner"))
    finding = only(cluster)
    assert "10.99.0.4/32 (+1995 more)" in finding.reason and "10.99.0.5/" not in finding.reason
    cluster.add(fence("storage-ops-a", *many, "10.98.0.1"))
    misfit = only(cluster, addresses={"a": ["10.9.0.1"]}).reason
    assert "(+1996 more) instead of 10.9.0.1/32" in misfit and "10.99.0.5" not in misfit


def test_a_node_that_speaks_for_another_is_not_believed() -> None:
    """nodeID is free text, and the sidecars of all nodes write with one account."""
    honest = endpoint("b", ceph=["10.9.0.2/32"])
    nodes = (node("a", "10.0.0.1"), node("b", "10.0.0.2"), endpoint("provisioner"), class_item())
    for other in ([f"{STRANGER}/32"], ["fd00::7/128"], ["10.9.0.0/24"]):
        second = endpoint("b", ceph=other)
        second["metadata"]["name"] = "second"
        cluster = FakeCluster(*nodes, honest, second)
        findings = {found.name: found for found in planned(cluster).findings}
        assert (findings["a"].verdict, findings["b"].verdict) == ("repair", "refuse")
        assert findings["b"].code == "address_unknown"
        assert "report different addresses for node b" in findings["b"].reason
        given = {"b": ["10.9.0.2"]}
        assert verdicts(cluster, addresses=given) == {"a": "repair", "b": "repair"}
    # What another driver reports, or a provisioner that reports nothing, or the same, contradicts
    # nothing.
    for said in (
        endpoint("b", driver="other", ceph=[f"{STRANGER}/32"]),
        endpoint("b"),
        endpoint("b", ceph=["10.9.0.2/32"]),
    ):
        said["metadata"]["name"] = "second"
        cluster = FakeCluster(*nodes, honest, said)
        assert verdicts(cluster) == {"a": "repair", "b": "repair"}


def forged(at: str = "pod://csi-a.ceph-csi:9070", state: str = "Connected") -> dict[str, Any]:
    """What node a writes as if it were node b's."""
    item = endpoint("b", at=at, ceph=[f"{STRANGER}/32"])
    item["metadata"]["name"], item["status"]["state"] = "forged", state
    return item


NODES = (
    *(node("a", "10.0.0.1"), node("b", "10.0.0.2"), endpoint("provisioner"), class_item()),
    sidecar("a"),
)
PORTS = {"containers": [{"name": "x", "ports": [{"containerPort": 9070}]}]}


def test_a_report_from_another_node_is_not_believed_and_not_passed_over_where_it_is_alone() -> None:
    """The controller asked a pod of node a, and no kubelet writes on which node a pod is. But it
    may be node b's own report, with its endpoint changed: then the InternalIP is not what Ceph
    sees, and a NetworkFence for it was made, and found to be well.
    """
    own = endpoint("b", ceph=["10.9.0.2/32"], at="pod://csi-a.ceph-csi:9070")
    for cluster in (FakeCluster(*NODES, forged()), FakeCluster(*NODES, own)):
        findings = {found.name: found for found in planned(cluster).findings}
        assert findings["a"].verdict == "repair"
        assert (findings["b"].verdict, findings["b"].code) == ("refuse", "address_unknown")
        assert "its pod is on node a" in findings["b"].reason
        assert verdicts(cluster, addresses={"b": ["10.9.0.2"]}) == {"a": "repair", "b": "repair"}
    # Nor does it take the place of what the driver on node b says, nor the address of node a.
    honest = endpoint("b", ceph=["10.9.0.2/32"])
    for cidr in ("10.0.0.1/32", f"{STRANGER}/32"):
        lie = forged()
        lie["status"]["networkFenceClientStatus"][0]["ClientDetails"][0]["cidrs"] = [cidr]
        findings = {
            found.name: found for found in planned(FakeCluster(*NODES, honest, lie)).findings
        }
        assert {found.verdict for found in findings.values()} == {"repair"}
        assert findings["b"].evidence["cidrs"] == ["10.9.0.2/32"]


@pytest.mark.parametrize(
    ("report", "pods", "why"),
    [
        (forged("pod://csi-z.ceph-csi:9070"), (), "no pod of its namespace is at its endpoint"),
        # A pod of its own namespace, which a tenant has on the node.
        (forged("pod://csi-b.evil:9070"), (), "no pod of its namespace is at its endpoint"),
        (forged("10.0.0.2:9070"), (), "no pod of its namespace is at its endpoint"),
        (forged("pod://csi-b.ceph-csi:9070:1"), (), "no pod of its namespace is at its endpoint"),
        # A Service leads from there to any pod.
        (forged("pod://csi-b.ceph-csi:31000"), (), "does not have that port"),
        (forged("pod://csi-b.ceph-csi:9070"), (sidecar("b", volumes=[]),), "is no driver's"),
        (forged("pod://csi-b.ceph-csi:9070", "Retrying"), (), "it is Retrying"),
        (forged("pod://csi-b.ceph-csi:9070", ""), (), "it is not connected"),
        (forged("pod://csi-b.ceph-csi:9070"), (sidecar("b", nodeName=""),), "is on no node"),
    ],
)
def test_a_report_that_may_be_the_drivers_is_neither_used_nor_passed_over(
    report: dict[str, Any], pods: tuple[dict[str, Any], ...], why: str
) -> None:
    cluster = FakeCluster(*NODES, *pods, report)
    findings = {found.name: found for found in planned(cluster).findings}
    assert findings["a"].verdict == "repair"
    assert (findings["b"].verdict, findings["b"].code) == ("refuse", "address_unknown")
    assert "CSIAddonsNode ceph-csi/forged (" in findings["b"].reason
    assert why in findings["b"].reason
    assert verdicts(cluster, addresses={"b": ["10.9.0.2"]}) == {"a": "repair", "b": "repair"}
    # Beside one that is proven it does not count.
    cluster.add(endpoint("b", ceph=["10.9.0.2/32"]))
    assert pods or verdicts(cluster)["b"] == "repair"


def test_a_report_is_read_again_right_before_it_is_used() -> None:
    """Its endpoint may be changed after the controller has asked."""
    report = endpoint("b", ceph=["10.9.0.2/32"])
    cluster = FakeCluster(*NODES, report, sidecar("b", **PORTS))
    made = runbook(cluster, nodes=["b"])
    plan = made.plan(made.gather())
    assert plan.findings[0].evidence["cidrs"] == ["10.9.0.2/32"]
    cluster.add(endpoint("b", at="pod://csi-a.ceph-csi:9070", ceph=["10.9.0.2/32"]))
    engine._carry_out(made, plan)
    assert (plan.findings[0].verdict, plan.findings[0].code) == ("refuse", "world_changed")
    assert f"{nf.FENCES}/storage-ops-b" not in cluster.objects


@pytest.mark.parametrize("hour", [9, 11])
def test_an_old_reading_of_ceph_does_not_show_what_is_blocked_now(hour: int) -> None:
    ceph = {**FREE, "read_at": f"2026-01-31T{hour:02}:00:00Z"}
    with pytest.raises(StorageOpsError, match="read it again") as error:
        planned(FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner")), ceph=ceph)
    assert error.value.code == "ceph_reading_unfit"


@pytest.mark.parametrize("flips", [0, 2])
def test_an_endpoint_that_was_changed_and_changed_back_is_not_believed(flips: int) -> None:
    """A node writes the CSIAddonsNode of another: it has its own pod asked, and both of our looks
    see the other node's. So nothing may have been written in between, for as long as the controller
    takes to ask again.
    """
    report = endpoint("b", ceph=[f"{STRANGER}/32"])
    report["metadata"]["generation"] = 2
    cluster = FakeCluster(*NODES, report, sidecar("b", **PORTS))
    slept: list[float] = []
    made = runbook(cluster, nodes=["b"])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not cluster.objects.get(f"{nf.FENCES}/storage-ops-b"):
            cluster.objects[path_of(report)]["metadata"]["generation"] += flips
        settle(cluster)

    made._sleep = sleep
    plan = made.plan(made.gather())
    engine._carry_out(made, plan)
    assert slept[0] > 14
    assert (plan.findings[0].verdict == "refuse") == bool(flips), plan.findings[0].reason
    assert (f"{nf.FENCES}/storage-ops-b" in cluster.objects) != bool(flips)


def test_a_word_that_is_no_drivers_is_not_waited_for() -> None:
    cluster = FakeCluster(*NODES)
    slept: list[float] = []
    made = runbook(cluster, nodes=["b"])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        settle(cluster)

    made._sleep = sleep
    engine._carry_out(made, made.plan(made.gather()))
    assert all(seconds < 1 for seconds in slept)


def test_check_mode_asks_the_server_and_makes_nothing() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"))
    made = runbook(cluster)
    plan = made.plan(made.gather())
    engine._rehearse(made, plan)
    assert cluster.requests[-1] == f"create {nf.FENCES} (dry run)"
    assert f"{nf.FENCES}/storage-ops-a" not in cluster.objects
    assert plan.actions[0].command == [
        "POST",
        nf.FENCES,
        "name=storage-ops-a",
        "spec.fenceState=Unfenced",
        "spec.cidrs=10.0.0.1/32",
    ]


def test_by_a_class_with_what_the_driver_reports() -> None:
    reports = endpoint(
        "a",
        capability="network_fence.GET_CLIENTS_TO_FENCE",
        ceph=["10.9.0.1/32"],
        other=["10.8.0.1/32"],
    )
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), reports, class_item())
    finding = only(cluster, **BY_CLASS)
    assert finding.repair[0].subject.body["spec"] == {
        "cidrs": ["10.9.0.1/32"],
        "fenceState": "Unfenced",
        "networkFenceClassName": "ceph",
    }
    assert (finding.evidence["driver"], finding.evidence["clusterID"]) == (DRIVER, "c1")
    # Without a class, what is reported for the same cluster counts, and nothing else.
    assert only(cluster).evidence["cidrs"] == ["10.9.0.1/32"]
    assert only(cluster, cluster_id="c2").evidence["cidrs"] == ["10.0.0.1/32"]
    # What the user says counts most.
    assert only(cluster, addresses={"a": ["10.7.0.1", "10.7.1.5/24"]}).evidence["cidrs"] == [
        "10.7.0.1/32",
        "10.7.1.0/24",
    ]


def test_what_a_driver_reports_and_is_no_address_prevents_nothing() -> None:
    # The driver on a node says what its node lets it say.
    reports = endpoint("a", ceph=["x", "10.9.0.1/32", "{{ 1 }}"])
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), reports, class_item())
    assert only(cluster, **BY_CLASS).evidence["cidrs"] == ["10.9.0.1/32"]


@pytest.mark.parametrize(
    ("there", "done"),
    [
        (fence("storage-ops-a", "10.0.0.1/32"), True),
        (fence("theirs", "10.0.0.1/32"), True),
        (fence("theirs", "10.0.0.1"), True),
        (fence("storage-ops-a", "10.0.0.1/32", message="fencing operation successful"), False),
        (fence("storage-ops-a", "10.0.0.1/32", state=FENCED), False),
        (fence("storage-ops-a", "10.0.0.2/32"), False),
        (fence("storage-ops-a", "10.0.0.1/32", "nonsense"), False),
        (fence("storage-ops-a", "10.0.0.1/32", driver="cephfs.csi.ceph.com"), False),
        (fence("storage-ops-a", "10.0.0.1/32", parameters={"clusterID": "c2"}), False),
        (fence("storage-ops-a", "10.0.0.1/32", networkFenceClassName="ceph"), False),
        (fence("theirs", "10.0.0.0/24"), False),
    ],
)
def test_what_is_there_will_do_or_refuses(there: dict[str, Any], done: bool) -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), class_item(), there)
    findings = planned(cluster).findings
    assert (findings == []) is done
    for finding in findings:
        assert (
            finding.verdict == "refuse"
            and there["metadata"]["name"] in finding.reason
            and not finding.repair
        )


def test_one_that_is_being_deleted_is_waited_for() -> None:
    there = fence("storage-ops-a", "10.0.0.1/32")
    there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (
        "wait until it is gone"
        in only(FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), there)).reason
    )


def test_a_fence_of_another_driver_is_in_nobodys_way_unless_it_is_fenced() -> None:
    other = fence("cephfs", "10.0.0.1/32", driver="cephfs.csi.ceph.com")
    assert only(FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), other)).repair
    # Even where this node's own one is as it should be.
    other = fence("cephfs", "10.0.0.0/30", driver="cephfs.csi.ceph.com", state=FENCED)
    for more in ((), (fence("storage-ops-a", "10.0.0.1/32"),)):
        finding = only(FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), other, *more))
        assert (
            finding.reason.startswith("NetworkFence cephfs fences 10.0.0.0/30")
            and not finding.repair
        )


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (node("a", "10.0.0.1", ready="Unknown"), "its Ready is Unknown"),
        (node("a", "10.0.0.1", ready="False"), "its Ready is False"),
        (
            node("a", "10.0.0.1", annotations={ANNOTATION: "whatever"}),
            "a ledger says that it is fenced",
        ),
        (node("a"), "it has no InternalIP"),
        (node("a", "10.0.0.2"), "10.0.0.2/32 is an address of b too"),
        (node("a", "10.0.0.1", "10.0.0.2"), "10.0.0.2/32 is an address of b too"),
    ],
)
def test_refused_nodes(item: dict[str, Any], reason: str) -> None:
    cluster = FakeCluster(item, node("b", "10.0.0.2"), endpoint("provisioner"))
    finding = only(cluster, nodes=["a"])
    assert (
        finding.verdict == "refuse"
        and finding.named
        and reason in finding.reason
        and not finding.repair
    )


def test_a_ledger_without_annotation_counts_too() -> None:
    ledger = (
        '{"version": 1, "node": "a", "node_uid": "u", "boot_id": "b", "method": "ceph", "phase": '
        '"fenced", "cluster_id": "c1", "fsid": "f", "addresses": [], "entries": [], '
        '"network_fences": [], "source": {}, "volumes": [], "unverified": false, "cordoned": true, '
        '"tainted": false, "by": "me", "run": "r", "at": "2026-01-01T00:00:00Z", "revision": 1}'
    )
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"), kept_as(ledger))
    assert "a ledger says that it is fenced" in only(cluster).reason
    own = FakeCluster(node("a", "10.0.0.5"), endpoint("provisioner"), kept_as(FENCE.text))
    assert "is fenced for node" not in only(own).reason


def kept_as(ledger: str) -> dict[str, Any]:
    """The ConfigMap of node a's ledger."""
    meta = {
        "name": "storage-ops-fence-a",
        "namespace": "storage-ops",
        "labels": {"app.kubernetes.io/managed-by": "storage-ops-runbooks"},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"ledger": ledger}}


@pytest.mark.parametrize("how", ["addresses", "entries", "network_fences"])
def test_a_kubelet_has_no_fence_of_another_node_taken_off(how: str) -> None:
    """What is made is Unfenced, and so unfences what it covers, once.

    Ceph sees node a at 10.9.0.1, which no Node object says but that of b.
    """
    bare = FENCE._replace(addresses=(), entries=(), network_fences=())
    fenced = {
        "addresses": bare._replace(addresses=("10.9.0.1",)),
        "entries": bare._replace(entries=(Entry("10.9.0.0/29", "range", True, ""),)),
        "network_fences": bare._replace(
            network_fences=(FenceObject("f", "u", ("10.9.0.1/32",), True),)
        ),
    }[how]
    nodes = node("a", "10.0.0.1", ready="Unknown"), node("b", "10.0.0.2", "10.9.0.1")
    cluster = FakeCluster(*nodes, endpoint("provisioner"), kept_as(fenced.text))
    finding = only(cluster, nodes=["b"])
    assert finding.verdict == "refuse" and "10.9.0.1/32 is fenced for node a" in finding.reason
    # Nor is one that was fenced since it was looked.
    cluster = FakeCluster(*nodes, endpoint("provisioner"))
    made = runbook(cluster, nodes=["b"], addresses={"b": ["10.9.0.1"]})
    plan = made.plan(made.gather())
    kept = kept_as(fenced.text)
    cluster.objects[config_map_path("a", "storage-ops")] = kept
    with pytest.raises(engine.NotStarted, match="is fenced for node a"):
        made.apply(plan.actions[0])


def test_what_a_kubelet_lists_is_not_compared_with_each_entry_of_the_blocklist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root on a node chooses the length of its list; no other node was prepared meanwhile."""
    compared: list[int] = []
    meet = prep._meet

    def counted(*given: Any) -> bool:
        compared.append(1)
        return meet(*given)

    monkeypatch.setattr(prep, "_meet", counted)
    entries = [
        {"entry": f"172.16.0.{number}:0/1", "kind": "client", "address": f"172.16.0.{number}"}
        for number in range(1, 201)
    ]
    wide = {"entry": "172.17.0.0/24", "kind": "range", "address": "172.17.0.0/24"}
    ceph = {**FREE, "blocklist": [{**one, "until": "x"} for one in (*entries, wide)]}
    crowd = [f"10.0.1.{number}" for number in range(200)]
    evil = node("evil", *crowd, "172.16.0.7", "172.17.0.9")
    told = planned(FakeCluster(evil, node("b", "10.0.0.2"), endpoint("provisioner")), ceph=ceph)
    reasons = {found.name: found.reason for found in told.findings}
    assert "172.16.0.7:0/1" in reasons["evil"] and "172.17.0.0/24" in reasons["evil"]
    assert [found.name for found in told.findings if found.repair] == ["b"]
    assert len(compared) < 1000


@pytest.mark.parametrize("said", [STRANGER, f"::ffff:{STRANGER}", "::FFFF:a63:7"])
@pytest.mark.parametrize("whose", ["kubelet", "driver"])
def test_an_ipv4_mapped_address_is_the_ipv4_one(whose: str, said: str) -> None:
    """ceph-csi unfences the IPv4 address where it is given the mapped one (getIPRange)."""
    word = f"{said}/32" if said == STRANGER else f"{said}/128"
    b = (
        (node("b", said),)
        if whose == "kubelet"
        else (node("b", "10.0.0.2"), endpoint("b", ceph=[word]))
    )
    common = (*b, endpoint("provisioner"), class_item())
    there = f"{STRANGER}/32"
    # The blocklist of Ceph, another node, and the ledger of one.
    entry = reading(f"{STRANGER}:0/0", "address", STRANGER)
    assert only(FakeCluster(*common), ceph=entry).code == "ceph_entry_left"
    shared = FakeCluster(node("a", STRANGER), *common)
    assert {found.code for found in planned(shared).findings} == {"fence_shared"}
    fenced = kept_as(FENCE._replace(addresses=(STRANGER,)).text)
    finding = only(FakeCluster(*common, fenced))
    assert finding.code == "fence_shared" and f"{there} is fenced for node a" in finding.reason
    # A range that Ceph has as IPv6.
    mapped = f"::ffff:{STRANGER}/128"
    assert only(FakeCluster(*common), ceph=reading(mapped, "range", mapped)).verdict == "refuse"
    # Nothing opposes it, and what is made has the one spelling.
    assert only(FakeCluster(*common)).repair[0].subject.body["spec"]["cidrs"] == [there]
    # One that an earlier version has made is none that ceph-csi and Ceph agree on.
    cluster = FakeCluster(*common, fence("storage-ops-b", mapped))
    settle(cluster)
    assert f"with {mapped} instead of {there}" in only(cluster).reason


@pytest.mark.parametrize("said", ["0.0.0.0", "127.0.0.1", "ff02::1", "fe80::1", "fe80::1%eth0"])
def test_an_address_of_no_host_is_not_prepared(said: str) -> None:
    cluster = FakeCluster(node("a", said), endpoint("provisioner"))
    assert only(cluster).code == "address_unknown"
    width = 128 if ":" in said else 32
    driver = endpoint("b", ceph=[f"{said}/{width}", "10.0.0.9/32"])
    cluster = FakeCluster(
        node("b", "10.0.0.2", said), driver, endpoint("provisioner"), class_item()
    )
    assert only(cluster).evidence["cidrs"] == ["10.0.0.9/32"]


def test_a_kubelet_that_posts_nonsense_keeps_no_other_node_unprepared() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), node("b", "x; y"), endpoint("provisioner"))
    assert verdicts(cluster) == {"a": "repair", "b": "refuse"}


def test_a_kubelet_that_claims_all_addresses_keeps_no_other_node_unprepared() -> None:
    """status.addresses is its own to write: a range there, or the addresses of all others."""
    evil = node("evil", "10.0.0.9", "0.0.0.0/0", "::/0")
    nodes = node("a", "10.0.0.1"), node("b", "10.0.0.2"), evil
    cluster = FakeCluster(*nodes, endpoint("provisioner"))
    assert {found.verdict for found in planned(cluster).findings} == {"repair"}


def verdicts(cluster: FakeCluster, **params: Any) -> dict[str, str]:
    return {found.name: found.verdict for found in planned(cluster, **params).findings}


REPORTS = endpoint("a", capability="network_fence.GET_CLIENTS_TO_FENCE", ceph=["10.9.0.1/32"])
# What root on a node says by its kubelet, and by the driver on it.
LIES = {
    "kubelet": (node("evil", "10.0.0.9", "10.9.0.1"),),
    "driver": (
        node("evil", "10.0.0.9"),
        endpoint("evil", ceph=["10.0.0.9/32", "10.9.0.1/32"]),
    ),
}


@pytest.mark.parametrize("how", LIES)
def test_of_two_nodes_that_claim_an_address_neither_is_believed(how: str) -> None:
    cluster = FakeCluster(
        node("a", "10.0.0.1"), REPORTS, *LIES[how], endpoint("provisioner"), class_item()
    )
    for finding in planned(cluster).findings:
        other = {"a": "evil", "evil": "a"}[finding.name]
        assert finding.verdict == "refuse" and finding.code == "fence_shared", finding
        assert f"10.9.0.1/32 is an address of {other} too" in finding.reason
        assert f"neither {finding.name} nor {other} is believed" in finding.reason
        assert "give the option addresses" in finding.reason
    # The user's word outweighs that of a node: for the one that is honest, or the one that is not.
    assert verdicts(cluster, addresses={"a": ["10.9.0.1"]}) == {"a": "repair", "evil": "refuse"}
    assert set(verdicts(cluster, addresses={"evil": ["10.0.0.9"]}).values()) == {"repair"}
    # It is kept with the NetworkFence that was made by it, and also against the node's new word.
    kept = fence("storage-ops-a", "10.9.0.1", source="option")
    cluster.add(kept)
    assert verdicts(cluster) == {"evil": "refuse"}
    cluster.add(fence("storage-ops-a", "10.9.0.7/32", source="option"))
    assert "a" not in verdicts(cluster)
    corrected = only(cluster, nodes=["a"], addresses={"a": ["10.9.0.1"]})
    assert "with 10.9.0.7/32 instead of 10.9.0.1/32" in corrected.reason
    cluster.add(fence("storage-ops-a", "nonsense", source="option"))
    assert only(cluster, nodes=["a"]).evidence["addresses_from"].startswith("its CSIAddonsNode")
    # But not of another driver's; and one that was made by the node's word is no longer believed.
    other = fence("storage-ops-a", "10.9.0.1/32", source="option", driver="cephfs.csi.ceph.com")
    for there in (other, fence("storage-ops-a", "10.9.0.1/32", source="driver")):
        cluster.add(there)
        assert verdicts(cluster) == {"a": "refuse", "evil": "refuse"}
        assert only(cluster, nodes=["a"]).code == "fence_shared"


def test_a_driver_does_not_take_the_address_that_a_kubelet_says_of_another_node() -> None:
    evil = endpoint("evil", ceph=["10.0.0.1/32"])
    nodes = node("a", "10.0.0.1"), node("evil", "10.0.0.9")
    cluster = FakeCluster(*nodes, evil, endpoint("provisioner"), class_item())
    assert verdicts(cluster) == {"a": "refuse", "evil": "refuse"}


def test_the_network_fence_of_another_node_does_not_prepare_one_that_claims_its_address() -> None:
    evil = endpoint("evil", ceph=["10.9.0.1/32"])
    nodes = node("a", "10.0.0.1"), node("evil", "10.0.0.9")
    there = fence("storage-ops-a", "10.9.0.1/32", source="driver", networkFenceClassName="ceph")
    cluster = FakeCluster(*nodes, evil, endpoint("provisioner"), class_item(), there)
    finding = only(cluster, **BY_CLASS, nodes=["evil"])
    assert (finding.verdict, finding.code) == ("refuse", "fence_shared")
    assert "10.9.0.1/32 is an address of a too" in finding.reason
    # As long as it is there, whatever the user says of node a.
    told = planned(cluster, **BY_CLASS, addresses={"a": ["10.9.0.7"]}).findings
    assert [found.code for found in told] == ["network_fence_unfit", "fence_shared"]
    for cidr in ("10.9.0.1", "10.9.0.0/30"):
        told = planned(cluster, **BY_CLASS, nodes=["evil"], addresses={"evil": [cidr]}).findings
        assert told[0].code == "fence_shared" and "the NetworkFence of a" in told[0].reason


def test_the_user_gives_an_address_to_one_node() -> None:
    nodes = node("a", "10.0.0.1"), node("b", "10.0.0.2")
    cluster = FakeCluster(*nodes, endpoint("provisioner"))
    finding = planned(cluster, addresses={"a": ["10.9.0.1"], "b": ["10.9.0.1"]}).findings[0]
    assert finding.code == "fence_shared" and "correct the option addresses" in finding.reason
    # What a node says does not matter where the user gives its addresses, but for a range.
    given = {"a": ["10.9.0.1"], "b": ["10.0.0.1"]}
    assert set(verdicts(cluster, addresses=given).values()) == {"repair"}
    given = {"a": ["10.9.0.1"], "b": ["10.0.0.0/30"]}
    assert verdicts(cluster, addresses=given) == {"a": "repair", "b": "refuse"}


def test_a_range_that_a_driver_reports_is_shown_and_not_used() -> None:
    wide = ["0.0.0.0/0", "10.9.0.1/32", "10.0.0.0/30", "::/0"]
    evil = endpoint("evil", ceph=wide)
    nodes = node("a", "10.0.0.1"), node("evil", "10.0.0.9")
    cluster = FakeCluster(*nodes, evil, endpoint("provisioner"), class_item())
    findings = {found.name: found for found in planned(cluster).findings}
    assert {found.verdict for found in findings.values()} == {"repair"}
    assert findings["evil"].evidence["cidrs"] == ["10.9.0.1/32"]
    assert findings["evil"].evidence["not_used"] == [
        "0.0.0.0/0 (a range, reported by the driver)",
        "10.0.0.0/30 (a range, reported by the driver)",
        "::/0 (a range, reported by the driver)",
    ]
    assert "not_used" not in findings["a"].evidence


def test_an_internal_ip_that_another_node_has_beside_what_its_driver_reports() -> None:
    reports = endpoint("b", capability="network_fence.GET_CLIENTS_TO_FENCE", ceph=["10.9.0.2/32"])
    nodes = node("a", "10.0.0.1", "10.0.0.2"), node("b", "10.0.0.2")
    cluster = FakeCluster(*nodes, endpoint("provisioner"), reports, class_item())
    finding = only(cluster, nodes=["a"])
    assert "10.0.0.2/32 is an address of b too" in finding.reason and not finding.repair
    # By the user's word it is node a's.
    told = only(cluster, nodes=["a"], addresses={"a": ["10.0.0.2"]})
    assert told.verdict == "repair"


@pytest.mark.parametrize(
    ("entry", "kind", "address", "refused"),
    [
        ("10.0.0.1:0/0", "address", "10.0.0.1", True),
        ("10.0.0.1:0/123", "client", "10.0.0.1", True),
        ("cidr:10.0.0.0:0/24", "range", "10.0.0.0/24", True),
        ("10.0.0.11:0/0", "address", "10.0.0.11", False),
        ("cidr:[fd00::]:0/64", "range", "fd00::/64", False),
    ],
)
def test_what_ceph_has_blocked_already(entry: str, kind: str, address: str, refused: bool) -> None:
    finding = only(
        FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner")),
        ceph=reading(entry, kind, address),
    )
    assert (finding.verdict == "refuse") is refused
    assert finding.evidence["blocklist"] == "read"
    assert entry in finding.reason or not refused


def test_a_range_shared_with_another_node() -> None:
    cluster = FakeCluster(
        node("a", "10.0.0.1"), node("b", "10.0.0.2"), node("c", "10.1.0.1"), endpoint("provisioner")
    )
    wanted = {"a": "refuse", "b": "refuse", "c": "repair"}
    assert verdicts(cluster, addresses={"a": "10.0.0.0/24"}) == wanted


def test_no_more_than_max_repairs() -> None:
    cluster = FakeCluster(
        *(node(f"n{number}", f"10.0.0.{number}") for number in range(1, 5)), endpoint("provisioner")
    )
    plan = planned(cluster, max_repairs=2)
    assert [finding.verdict for finding in plan.findings] == [
        "repair",
        "repair",
        "refuse",
        "refuse",
    ]
    assert "max_repairs is 2" in plan.refusals[0].reason
    assert plan.refusals[0].code == "too_many_repairs"


def test_a_big_cluster_is_planned_in_no_time() -> None:
    nodes = [
        node(f"n{number:04}", f"10.{number // 250}.0.{number % 250}") for number in range(2000)
    ]
    fences = [
        fence(f"storage-ops-n{number:04}", f"10.{number // 250}.0.{number % 250}/32")
        for number in range(1990)
    ]
    assert len(planned(FakeCluster(*nodes, *fences, endpoint("provisioner"))).findings) == 10


@pytest.mark.parametrize(
    ("items", "params", "said"),
    [
        ([node("a", "10.0.0.1")], {}, "has no NetworkFences: install CSI-Addons"),
        (
            [node("a", "10.0.0.1"), endpoint("x", driver="other")],
            {},
            f"no CSIAddonsNode has driver {DRIVER}.*there are other",
        ),
        (
            [endpoint("x", capability="service.NODE_SERVICE")],
            {},
            "has the capability network_fence.NETWORK_FENCE",
        ),
        ([endpoint("x")], {"nodes": ["a"]}, "there is no node a"),
        ([endpoint("x")], {"addresses": {"a": ["10.0.0.1"]}}, "there is no node a"),
        (
            [endpoint("x"), class_item("other")],
            BY_CLASS,
            "no NetworkFenceClass ceph; there are other",
        ),
        ([endpoint("x"), class_item(cluster_id="")], BY_CLASS, "lacks the parameters clusterID"),
    ],
)
def test_errors(items: list[dict[str, Any]], params: dict[str, Any], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        planned(FakeCluster(*items), **params)


def test_an_old_csi_addons_lists_no_capabilities() -> None:
    assert only(FakeCluster(node("a", "10.0.0.1"), endpoint("x", capability=""))).repair


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"driver": ""}, "give driver, cluster_id"),
        ({"secret_name": ""}, "give driver, cluster_id"),
        ({"network_fence_class": "ceph"}, "leave driver, cluster_id"),
        ({"fence_timeout": 0.5}, "fence_timeout is 0.5; give 1 to 3600"),
        ({"fence_timeout": float("nan")}, "fence_timeout is nan"),
        ({"fence_timeout": float("inf")}, "fence_timeout is inf"),
        ({"nodes": [" "]}, "empty name"),
        ({"addresses": {"a": []}}, "list of addresses for a"),
        ({"addresses": {"a": ["10.0.0"]}}, "addresses of a: .*10.0.0"),
        ({"addresses": {"a": ["10.0.0.1/99"]}}, "addresses of a"),
        ({"ceph": {"blocklist": []}}, "read_at is missing"),
    ],
)
def test_options_that_do_not_fit(params: dict[str, Any], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        prep.make_options({**PARAMS, **params})


def race(change: Any) -> Plan:
    """Plan, then let something happen right before the first action."""
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"))
    made = runbook(cluster)
    plan = made.plan(made.gather())
    change(cluster)
    engine._carry_out(made, plan)
    return plan


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda cluster: cluster.objects[path_of(node("a"))]["status"]["conditions"][0].update(
                status="Unknown"
            ),
            "no longer Ready",
        ),
        (
            lambda cluster: cluster.objects[path_of(node("a"))]["metadata"].update(
                annotations={ANNOTATION: "{}"}
            ),
            "is being fenced",
        ),
        (
            lambda cluster: cluster.objects[path_of(node("a"))]["status"].update(addresses=[]),
            "has other addresses",
        ),
        (lambda cluster: cluster.remove(node("a")), "the node is gone"),
        (
            lambda cluster: cluster.add(node("a", "10.0.0.1")),
            "the node is gone, or another one has its name",
        ),
        (
            lambda cluster: cluster.add(fence("new", "10.0.0.1/32", state=FENCED)),
            "NetworkFence new is Fenced now",
        ),
        (
            lambda cluster: cluster.add(fence("storage-ops-a", "10.0.0.1/32")),
            "made by another client meanwhile",
        ),
    ],
)
def test_what_has_changed_since_the_plan_is_refused(change: Any, said: str) -> None:
    plan = race(change)
    assert [finding.verdict for finding in plan.findings] == ["refuse"] and said in plan.findings[
        0
    ].reason


LEASE = f"/apis/coordination.k8s.io/v1/namespaces/storage-ops/leases/{object_name('a')}"


def test_a_node_that_another_run_works_at_gets_none() -> None:
    """It may be about to fence the node, and the new object would take its entries away."""

    def begin(cluster: FakeCluster) -> None:
        RunLease(cluster, "storage-ops", "a", "run-1", 180.0).take(0.0)  # type: ignore[arg-type]

    plan = race(begin)
    (finding,) = plan.findings
    assert (finding.verdict, finding.code) == ("refuse", "lease_held")
    assert "another run (run-1) is working on node a" in finding.reason


def test_no_run_can_fence_the_node_while_its_network_fence_is_made() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"))
    made = runbook(cluster)
    plan = made.plan(made.gather())
    told: list[str] = []

    def begin(verb: str, path: str) -> None:
        if (verb, path) == ("create", nf.FENCES):
            cluster.before = lambda verb, path: None
            other = RunLease(cluster, "storage-ops", "a", "run-1", 180.0)  # type: ignore[arg-type]
            told.append(other.holder())

    cluster.before = begin
    engine._carry_out(made, plan)
    assert "another run (network-fences-" in told[0]
    # Given back, before it is waited for the controller.
    assert LEASE not in cluster.objects


def test_a_creation_that_comes_late_is_not_begun() -> None:
    """Its reads were tried again for minutes, and another run had begun to fence the node."""
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"))
    made = runbook(cluster)
    plan = made.plan(made.gather())

    def begin() -> None:
        RunLease(cluster, "storage-ops", "a", "run-1", 180.0).take(0.0)  # type: ignore[arg-type]

    Slow(cluster, ("get", "/nodes/a"), ("get", "/apis"), meanwhile=begin)
    engine._carry_out(made, plan)
    (finding,) = plan.findings
    assert (finding.verdict, finding.code) == ("refuse", "lease_lost"), finding.reason
    assert f"{nf.FENCES}/storage-ops-a" not in cluster.objects
    assert cluster.objects[LEASE]["spec"]["holderIdentity"] == "run-1"


def test_with_too_little_time_none_is_made() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), node("b", "10.0.0.2"), endpoint("provisioner"))
    made = runbook(cluster)
    cluster.deadline = Deadline(29, lambda: 0.0)
    plan = made.plan(made.gather())
    with pytest.raises(engine.ActionFailed, match="less than 30 s are left") as caught:
        engine._carry_out(made, plan)
    assert caught.value.code == "deadline_passed"
    assert [action.outcome for action in plan.actions] == ["skipped", "skipped"]
    assert cluster.count("create") == 0 and LEASE not in cluster.objects
    cluster.deadline = Deadline(30, lambda: 0.0)
    plan = made.plan(made.gather())
    engine._carry_out(made, plan)
    assert [action.outcome for action in plan.actions] == ["done", "done"]


def test_one_that_nobody_acts_on_fails_and_stays() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), endpoint("provisioner"))
    cluster.clock = just_after
    options = prep.make_options({**PARAMS, "fence_timeout": 1.0})
    made = FencePreparation(cluster, options, lambda _seconds: None)  # type: ignore[arg-type]
    plan = made.plan(made.gather())
    engine._carry_out(made, plan)
    assert [action.outcome for action in plan.actions] == ["failed"]
    assert plan.findings[0].failed and "Its controller does not answer" in plan.findings[0].reason
    assert "half_made" not in engine._half_made(plan)
    # The next run says so too, and makes no second one.
    assert "but its status says nothing yet" in only(cluster).reason


def test_a_node_that_the_driver_cannot_unfence_keeps_no_other_unprepared() -> None:
    cluster = FakeCluster(node("a", "10.0.0.1"), node("b", "10.0.0.2"), endpoint("provisioner"))
    cluster.clock = just_after
    options = prep.make_options({**PARAMS, "fence_timeout": 1.0})

    def answer(_seconds: float) -> None:
        settle(cluster)
        made = cluster.objects[f"{nf.FENCES}/storage-ops-a"]
        made["status"] = {"result": "Failed", "message": "context deadline exceeded"}

    made = FencePreparation(cluster, options, answer)  # type: ignore[arg-type]
    plan = made.plan(made.gather())
    engine._carry_out(made, plan)
    assert [(found.name, found.failed) for found in plan.findings] == [("a", True), ("b", False)]
    assert [action.outcome for action in plan.actions] == ["failed", "done"]
