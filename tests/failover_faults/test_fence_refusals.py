# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a node from being fenced, on a real control plane and a real Ceph: nothing is changed
then. And what does not.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path, unique_name
from support.cluster import Played
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import RBAC, Fencing
from support.node import Outcome
from support.reattach import kill_module
from support.selection import variation

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    OWN_NAMESPACE,
)

A, B = ADDRESSES[NODE_A], ADDRESSES[NODE_B]
CONFIG_MAP = path("ConfigMap", f"storage-ops-fence-{NODE_A}", OWN_NAMESPACE)
LEASE = path("Lease", f"storage-ops-fence-{NODE_A}", OWN_NAMESPACE)
ANNOTATION = "runbooks.storage-ops/fence"
# The defaults would take minutes.
QUICK = {"grace_seconds": 1, "accept_short_observation": True, "lease_timeout": 0}


@pytest.fixture
def lost(failover_current: Failover) -> Failover:
    """Node A is lost, and its client writes on."""
    failover_current.lose()
    return failover_current


def read(scenario: Failover, observations: int = 3, **options: Any) -> dict[str, Any]:
    """What rbd_watcher_info says about the volumes of node A."""
    volumes = [
        found
        for found in scenario.api.all("PersistentVolume")
        if (found["spec"].get("csi") or {}).get("driver") == "rbd.csi.ceph.com"
    ]
    run = scenario.storage.ansible(
        "rbd_watcher_info",
        volumes=volumes,
        observations=observations,
        observation_seconds=3 if observations > 1 else 0,
        **options,
    )
    assert not run.failed, run.msg
    return dict(run.result["ceph"])


def fence(
    scenario: Failover,
    ceph: dict[str, Any] | None = None,
    state: str = "intended",
    check: bool = False,
    **options: Any,
) -> Outcome:
    options = {"node": NODE_A, "run_id": uuid.uuid4().hex, "state": state, **QUICK, **options}
    options |= {"user": RBAC, **({"ceph": ceph} if ceph else {})}
    return scenario.cluster.ansible("node_fence", check=check, **options)


def traces(scenario: Failover) -> dict[str, Any]:
    """All that a fence would leave somewhere."""
    node = scenario.node()
    return {
        "cordon": node["spec"].get("unschedulable", False),
        "annotation": (node["metadata"].get("annotations") or {}).get(ANNOTATION, ""),
        "ledger": scenario.api.get(CONFIG_MAP) is not None,
        "lease": scenario.api.get(LEASE) is not None,
        "blocklist": sorted(scenario.storage.entries()),
    }


def refused(
    scenario: Failover,
    reason: str,
    ceph: dict[str, Any] | None = None,
    checks: tuple[bool, ...] = (False,),
    **options: Any,
) -> None:
    """It says so, and changes nothing."""
    before = traces(scenario)
    assert (
        not before["cordon"]
        and not before["annotation"]
        and not before["ledger"]
        and not before["lease"]
    )
    for check in checks:
        run = fence(scenario, ceph, check=check, **options)
        assert run.failed and not run.changed and run.outcomes == [], run.result
        assert reason in run.msg, run.msg
        assert traces(scenario) == before


def test_a_node_that_is_not_lost(failover_current: Failover) -> None:
    scenario = failover_current
    ceph = read(scenario)
    refused(scenario, "is Ready", ceph, checks=(True, False))
    # The kubelet is there, and says that it is not ready.
    scenario.api.heartbeat(NODE_A, "False")
    refused(scenario, "its kubelet is reporting (Ready=False)", ceph)
    scenario.lose()
    refused(scenario, "s only, and grace_seconds asks for 60 s", ceph, grace_seconds=60)


def test_who_waits_for_the_volumes(lost: Failover) -> None:
    """Kubernetes has no attachment for the new pod yet; it says Multi-Attach in an event."""
    lost.wait_waiting()
    (finding,) = lost.cluster.ansible("node_fence_info", user=RBAC, grace_seconds=1).findings
    (pod,) = lost.pods(NODE_B)
    assert finding["evidence"]["waiting_elsewhere"] == [
        f"pv-db on {NODE_B} for pod default/{pod['metadata']['name']}"
    ]


def test_whoever_else_holds_the_image(lost: Failover) -> None:
    """A client on the healthy node that stays refuses. So does one that comes and goes while the
    volume is attached to the lost node alone: what a node says of its addresses proves nothing, and
    none stages what is not attached to it. The user may say that it is another host.
    """
    writer = lost.node_b_opens()
    refused(lost, f"its address {B} belongs to node {NODE_B} (Ready)", read(lost))
    writer.close()
    lost.node_b_visits()
    for _try in range(20):
        ceph = read(lost)
        seen = [found["address"] for found in ceph["images"][0]["watchers"]]
        if B in seen:
            break
    assert B in seen, "the visitor was never seen"
    refused(lost, "which no other node has, at an address that would not be fenced", ceph)
    run = fence(lost, ceph, check=True, other_addresses=[B])
    assert not run.failed and run.result["fence"]["addresses"] == [A], run.msg


def test_a_pod_that_names_the_silent_node_does_not_hold_up_its_fence(lost: Failover) -> None:
    """Kubernetes attaches its volume there, and a client at an unknown address has it open."""
    (since,) = (
        condition["lastTransitionTime"]
        for condition in lost.node()["status"]["conditions"]
        if condition["type"] == "Ready"
    )
    # Times of the API are whole seconds, and in the same one nothing is later.
    fell = datetime.fromisoformat(since)
    lost.cluster.wait(lambda: datetime.now(UTC) >= fell + timedelta(seconds=1), "later")
    lost.volume("late")
    lost.api.create(k8s.pod("late", ["late"], NODE_A))
    lost.cluster.wait(lambda: lost.attached(NODE_A, "late"), "the volume is attached to A", 60)
    lost.client_opens("late", "127.0.0.22")
    ceph = read(lost)
    run = fence(lost, ceph, check=True)
    assert not run.failed and run.result["fence"]["volumes"] == ["pv-db"], run.msg
    (left,) = [found for found in run.findings if found["verdict"] == "report"]
    assert (
        left["object"]["name"] == "pv-late"
        and "attached after the node fell silent" in (left["reason"])
    )
    # Once the node calls it in use, it may have it open. But no node has one of krbd by librbd.
    item = lost.api.get(path("PersistentVolume", "pv-late"))
    assert item
    name = unique_name("rbd.csi.ceph.com", item["spec"]["csi"]["volumeHandle"])
    in_use = [*(lost.node()["status"].get("volumesInUse") or []), name]
    where = path("Node", NODE_A) + "/status"
    lost.api.merge(where, {"status": {"volumesInUse": in_use}})
    run = fence(lost, ceph, check=True)
    assert not run.failed and run.result["fence"]["volumes"] == ["pv-db"], run.msg
    (left,) = [found for found in run.findings if found["verdict"] == "report"]
    assert (left["code"], left["severity"]) == ("client_unknown", "major")
    assert "by librbd, as no node has it" in left["reason"], left
    # What is not read of it is left out, too, and what a run has not begun with.
    images = [found for found in ceph["images"] if found["volume"] != "pv-late"]
    for options, code in (({}, "ceph_not_read"), ({"volumes": ["pv-db"]}, "volume_not_fenced")):
        run = fence(lost, {**ceph, "images": images}, check=True, **options)
        assert not run.failed and run.result["fence"]["volumes"] == ["pv-db"], run.msg
        (left,) = [found for found in run.findings if found["verdict"] == "report"]
        assert (left["object"]["name"], left["code"]) == ("pv-late", code)


def test_a_node_that_lost_its_power(lost: Failover) -> None:
    """Nobody holds its image: then nobody knows its address, unless the user does, or knows that it
    is off.
    """
    lost.writer.close()
    lost.cluster.wait(lambda: not lost.watches(), "the watch is gone")
    gone = read(lost)
    refused(lost, f"it is unknown from which address node {NODE_A} reaches Ceph", gone)
    refused(lost, "Set node_confirmed_off", gone, method="none")
    assert fence(lost, gone, check=True, fence_addresses=[A]).result["fence"]["source"] == {
        A: "fence_addresses"
    }
    off = fence(lost, gone, check=True, method="none", node_confirmed_off=True)
    assert not off.failed and off.result["fence"]["entries"] == []
    lost.node_a_opens()
    refused(
        lost,
        "is said to be off (node_confirmed_off), but its images are held",
        read(lost),
        method="none",
        node_confirmed_off=True,
    )


def test_addresses_that_are_not_this_nodes_alone(lost: Failover) -> None:
    ceph = read(lost)
    refused(
        lost,
        f"address {A} (watcher) is one of protected_addresses",
        ceph,
        protected_addresses=["127.0.0.0/28"],
    )
    refused(lost, f"belongs to node {NODE_B} (Ready)", ceph, fence_addresses=[B])
    lost.set_addresses(NODE_B, B, A)
    refused(lost, f"its address {A} belongs to node {NODE_B} (Ready)", ceph)


def test_evidence_that_does_not_do(lost: Failover) -> None:
    refused(lost, "nothing was read of Ceph")
    refused(lost, "Ceph was looked at 1 times", read(lost, observations=1))
    ceph = read(lost)
    short = fence(lost, ceph, expiry_seconds=3600)
    assert short.failed and "give at least 604800" in short.msg


def test_no_network_fence(lost: Failover) -> None:
    refused(lost, "CSI-Addons is not installed", read(lost), method="network_fence")
    lost.api.create(network_fence_resource())
    where = "/apis/csiaddons.openshift.io/v1alpha1/networkfences"
    lost.cluster.wait(lambda: lost.api.request("GET", where)[0] == 200, "the resource is served")
    refused(lost, f"covers {A}: prepare one", read(lost), method="network_fence")


@pytest.mark.parametrize("callback", ["default", "storage_ops.runbooks.findings"])
def test_a_failed_run_prints_a_refusal_in_one_task(lost: Failover, callback: str) -> None:
    """The task that refuses. The last one names that task, the code and the next command."""
    fencing = Fencing(lost)
    with fencing.inventory.open("a") as inventory:
        inventory.write("gone ansible_host=127.0.0.1 ansible_port=1\n")
    fencing.callback = callback

    def ended(run: Played, refusal: str, task: str, code: str) -> str:
        assert run.rc == 2, run.text
        _head, *tasks = run.text.split("\nTASK [")
        # ansible-core itself prints the message of a failed task twice, and then its findings.
        assert [
            found.partition("]")[0].rpartition(" : ")[2] for found in tasks if refusal in found
        ] == [task], run.text
        if callback != "default":
            assert run.text.count(refusal) <= 2, run.text
        paragraph = tasks[-1].partition("FAILED! => ")[2]
        assert f"task '{task}' failed{code and f' ({code})'}. " in paragraph, run.text
        if callback != "default":
            assert tasks[-1].count("Next, once that is mended") == 1, run.text
        return paragraph

    rehearsal = "Rehearse the decision which clients to fence"
    run = fencing.fail_over(node_fence_protected_addresses="127.0.0.0/28")
    told = ended(run, "is one of protected_addresses", rehearsal, "address_protected")
    assert f"{NODE_A} was not fenced: " in told and f"fail_over_volumes -e target={NODE_A}" in told
    run = fencing.fail_over(node_fence_ceph_host="gone")
    ended(run, "gone cannot be reached", "Stop if the Ceph host does not answer", "")
    assert "Next: make ansible gone -m ping work" in run.text, run.text
    fencing.callback = ""
    assert fencing.fail_over().rc == 0
    fencing.callback = callback
    run = fencing.release()
    check = "Check whether the node may be released, and record that the release has begun"
    told = ended(run, "is not Ready (Ready=Unknown", check, "node_not_ready")
    assert f"release_fenced_node -e target={NODE_A}" in told, told


def network_fence_resource() -> dict[str, Any]:
    """The resource alone, of any form: nobody acts on it here."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "networkfences.csiaddons.openshift.io"},
        "spec": {
            "group": "csiaddons.openshift.io",
            "names": {
                "plural": "networkfences",
                "singular": "networkfence",
                "kind": "NetworkFence",
            },
            "scope": "Cluster",
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_a_fence_is_proven_by_ceph_alone(lost: Failover) -> None:
    """Check mode changes nothing; the fence is taken for one once the entry is there and the watch
    gone; then nothing is left to do.
    """
    before = traces(lost)
    ceph = read(lost)
    check = fence(lost, ceph, check=True)
    assert check.outcomes == [("write_fence_ledger", "planned"), ("cordon_node", "planned")]
    handed = fence(
        lost, read(lost, observations=1), state="fenced", check=True, fence=check.result["fence"]
    )
    assert (
        handed.outcomes == [("record_fence", "planned")]
        and handed.result["fence"]["phase"] == "fenced"
    )
    assert traces(lost) == before
    begun = fence(lost, ceph, run_id="one")
    assert not begun.failed and begun.outcomes == [
        ("write_fence_ledger", "done"),
        ("cordon_node", "done"),
    ], begun.msg
    assert begun.result["fence"]["addresses"] == [A] and begun.result["fence"]["cordoned"]
    # Another run keeps off as long as this one has its Lease.
    other = fence(lost, ceph, run_id="two")
    assert other.failed and "another run (one) is working on node" in other.msg
    late = fence(lost, state="held", run_id="two")
    assert late.failed and "has lost the Lease" in late.msg
    held = fence(lost, state="held", run_id="one")
    assert not held.failed and not held.changed and held.result["fence"] == begun.result["fence"], (
        held.msg
    )
    unproven = fence(lost, read(lost, observations=1), state="fenced", run_id="one")
    assert (
        unproven.failed
        and f"Ceph's blocklist has no entry for {A}" in unproven.msg
        and unproven.result["fence"]["phase"] == "intended"
    )
    entries = [found["entry"] for found in begun.result["fence"]["entries"]]
    assert not lost.storage.ansible("ceph_blocklist", entries=entries, expiry_seconds=604800).failed
    proof = read(lost, observations=1, gone=entries)
    proven = fence(lost, proof, state="fenced", run_id="one")
    assert (
        proven.outcomes == [("record_fence", "done")]
        and proven.result["fence"]["phase"] == "fenced"
    ), proven.msg
    assert not lost.watches()
    until = proven.result["fence"]["entries"][0]["until"]
    assert proof["blocklist"][0]["until"] == until
    # What was read before the ledger was written proves nothing more.
    proof = read(lost, observations=1)
    for state in ("intended", "fenced"):
        again = fence(lost, proof, state=state, run_id="one")
        assert (
            not again.failed
            and not again.changed
            and again.result["fence"] == proven.result["fence"]
        ), again.msg
    unlocked = lost.cluster.ansible("run_lease", node=NODE_A, run_id="one", user=RBAC)
    assert not unlocked.failed and not unlocked.changed and not traces(lost)["lease"]


@pytest.mark.parametrize(
    ("method", "where"), [("POST", "/configmaps"), variation("PATCH", f"/nodes/{NODE_A}")]
)
def test_killed_right_after_a_write(lost: Failover, method: str, where: str) -> None:
    """Its Lease stays; the next run waits for that to run out, and comes to one ledger, and one
    cordon that is noted as ours.
    """
    proxy = lost.cluster.proxy()
    ceph = read(lost)
    proxy.on(method, where, first=1, times=1, after=lambda: kill_module(module="node_fence"))
    options = {"node": NODE_A, "run_id": "killed", "state": "intended", "ceph": ceph, **QUICK}
    killed = lost.cluster.ansible("node_fence", user=RBAC, proxy=proxy, lease_seconds=10, **options)
    assert killed.failed and "findings" not in killed.result
    assert traces(lost)["lease"] and traces(lost)["ledger"]
    run = fence(lost, ceph, lease_timeout=30, run_id="next")
    assert not run.failed, run.msg
    ledger = run.result["fence"]
    assert (
        ledger["cordoned"]
        and ledger["addresses"] == [A]
        and [found["ours"] for found in ledger["entries"]] == [True]
    )
    assert traces(lost)["cordon"] and traces(lost)["annotation"]
    again = fence(lost, ceph, run_id="next")
    assert not again.changed and again.result["fence"] == ledger, again.msg
