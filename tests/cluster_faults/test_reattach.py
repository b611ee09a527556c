# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a workload from being moved, and what is left when it fails or is killed in the
middle: nothing.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from support.cluster import Cluster, User
from support.identities import as_kubelet, restricted
from support.node import Outcome
from support.reattach import (
    DRIVER,
    REPAIR,
    SCALING,
    TOLERANT,
    Workload,
    is_held,
    kill_module,
    leases,
    no_trace,
)
from support.selection import variation

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import client

QUICK = {"eviction_timeout": 6, "detach_timeout": 8, "ready_timeout": 30}


@pytest.fixture
def cluster(control_plane_current: Cluster) -> Cluster:
    """Two nodes of a current Kubernetes."""
    control_plane_current.kubelets("n1", "n2", drivers=(DRIVER,))
    return control_plane_current


def reattach(cluster: Cluster, *claims: str, **options: Any) -> Outcome:
    user: User = SCALING if options.get("scale_down") else REPAIR
    given = {"namespace": "default", "claims": list(claims or ("web",)), **QUICK, **options}
    return cluster.ansible("workload_reattach", user=user, **given)


def refused(cluster: Cluster, workload: Workload, reason: str, **options: Any) -> None:
    """It says so in check mode and for real, and changes nothing."""
    before = workload.pods(), cluster.attachment_uids()
    for check in (True, False):
        run = reattach(cluster, workload.name, check=check, **options)
        assert run.failed and not run.changed and run.outcomes == [], run.result
        assert reason in run.msg, run.msg
        assert (workload.pods(), cluster.attachment_uids()) == before
    no_trace(cluster)


def hold_with_budget(cluster: Cluster, name: str) -> None:
    old = cluster.plane.number.startswith("1.20.")
    cluster.api.create(k8s.budget(name, name, 1, version="policy/v1beta1" if old else "policy/v1"))

    def counted() -> bool:
        (found,) = cluster.api.call("GET", budgets(old))["items"]
        return bool(found.get("status", {}).get("currentHealthy") == 1)

    cluster.wait(counted, "the budget counts its pod")


def budgets(old: bool) -> str:
    return f"/apis/policy/{'v1beta1' if old else 'v1'}/namespaces/default/poddisruptionbudgets"


@pytest.mark.parametrize("fixture", [variation("control_plane_1_20"), "control_plane_current"])
def test_a_budget_that_allows_no_disruption(request: pytest.FixtureRequest, fixture: str) -> None:
    """Check mode has found it out by a rehearsal; a real run has tried for a while, and has left
    nothing behind.
    """
    cluster: Cluster = request.getfixturevalue(fixture)
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    web = Workload(cluster, "web")
    hold_with_budget(cluster, "web")
    before = web.pods(), cluster.attachment_uids()
    check = reattach(cluster, check=True)
    assert check.failed and not check.changed
    assert "disruption budget" in check.msg
    run = reattach(cluster)
    assert run.failed and run.changed
    assert "disruption budget" in run.msg and "uncordon_node" in run.msg
    assert ("evict_pod", "failed") in run.outcomes
    assert (web.pods(), cluster.attachment_uids()) == before
    no_trace(cluster)


def test_a_daemonset(cluster: Cluster) -> None:
    refused(
        cluster,
        Workload(cluster, "web", "DaemonSet"),
        "a DaemonSet's pod comes back to its node at once",
        scale_down=True,
    )


def test_what_tolerates_a_cordon_is_refused(cluster: Cluster) -> None:
    refused(
        cluster, Workload(cluster, "web", **TOLERANT), "set scale_down to scale Deployment web down"
    )


def test_what_tolerates_a_cordon_is_scaled_when_that_is_accepted(cluster: Cluster) -> None:
    web = Workload(cluster, "web", **TOLERANT)
    old, pods = web.attachment()["metadata"]["uid"], web.pods()
    run = reattach(cluster, scale_down=True)
    assert not run.failed, run.msg
    assert [verb for verb, _outcome in run.outcomes] == ["scale_down", "wait_detached", "scale_up"]
    assert web.attachment()["metadata"]["uid"] != old and not web.pods() & pods
    assert (cluster.api.find("Deployment", "web") or {})["spec"]["replicas"] == 1
    no_trace(cluster)
    cluster.used("rbac-repair-scale-down.yml", "patch deployments")


def test_scaling_takes_rights_of_its_own(cluster: Cluster) -> None:
    web = Workload(cluster, "web", **TOLERANT)
    pods = web.pods()
    for check in (True, False):
        run = cluster.ansible(
            "workload_reattach", check, REPAIR, namespace="default", claims=["web"], scale_down=True
        )
        assert run.failed and not run.changed and "rbac-repair-scale-down.yml" in run.msg, run.msg
        assert web.pods() == pods
    no_trace(cluster)


def test_scaling_asks_budgets_first(cluster: Cluster) -> None:
    web = Workload(cluster, "web", **TOLERANT)
    hold_with_budget(cluster, "web")
    pods = web.pods()
    for check in (True, False):
        run = reattach(cluster, check=check, scale_down=True)
        assert run.failed and "disruption budget" in run.msg
        assert web.pods() == pods
    no_trace(cluster)


def test_a_bare_pod(cluster: Cluster) -> None:
    cluster.api.add_volume("web", DRIVER, "vol-web")
    cluster.api.create(k8s.pod("web", ["web"], "n1"))
    cluster.wait(lambda: cluster.api.all("VolumeAttachment"), "attached")
    run = reattach(cluster)
    assert run.failed and not run.changed
    assert "pod default/web has no controller that would recreate it" in run.msg
    assert cluster.api.find("Pod", "web")


def test_a_node_that_is_not_ready(cluster: Cluster) -> None:
    web = Workload(cluster, "web")
    cluster.api.heartbeat(web.node(), "False")
    refused(cluster, web, "is not Ready (False)")


def test_an_operators_cordon_stays(cluster: Cluster) -> None:
    web = Workload(cluster, "web")
    node = web.node()
    cluster.api.merge(path("Node", node), {"spec": {"unschedulable": True}})
    run = reattach(cluster)
    assert not run.failed, run.msg
    stays_cordoned(cluster, node)


def stays_cordoned(cluster: Cluster, node: str) -> None:
    """By the operator, and nothing is left of us."""
    found = cluster.api.find("Node", node) or {}
    assert found["spec"]["unschedulable"] is True
    cluster.api.merge(path("Node", node), {"spec": {"unschedulable": None}})
    no_trace(cluster)


def kubectl_cordon(cluster: Cluster, node: str) -> None:
    """As kubectl does: it sends nothing where the node is cordoned already
    (CordonHelper.UpdateIfRequired of k8s.io/kubectl).
    """
    if not (cluster.api.find("Node", node) or {})["spec"].get("unschedulable"):
        cluster.api.merge(path("Node", node), {"spec": {"unschedulable": True}})


def test_a_node_that_an_operator_cordons_meanwhile_stays_cordoned(cluster: Cluster) -> None:
    web = Workload(cluster, "web")
    node, pods = web.node(), web.pods()
    proxy = cluster.proxy()
    proxy.on("POST", "/eviction$", times=1, before=lambda: kubectl_cordon(cluster, node))
    run = reattach(cluster, proxy=proxy)
    assert not run.failed and not web.pods() & pods, run.msg
    stays_cordoned(cluster, node)


def test_an_owner_that_makes_nothing_again(cluster: Cluster) -> None:
    """The pod would be gone for good, as check mode says; whoever knows better says so."""
    api = cluster.api
    widget = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "widget", "namespace": "default"},
    }
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "widget",
        "uid": api.create(widget)["metadata"]["uid"],
    }
    api.add_volume("web", DRIVER, "vol-web")
    pod = k8s.pod("web", ["web"], "n1")
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    api.create(pod)
    where = path("Pod", "web")
    cluster.wait(lambda: (api.get(where) or {})["status"].get("phase") == "Running", "it runs", 60)
    for check in (True, False):
        run = reattach(cluster, check=check)
        assert run.failed and not run.changed, run.msg
        assert (
            "belongs to ConfigMap widget, a kind that is not known to recreate its pods" in run.msg
        )
        assert api.get(where)
    run = reattach(cluster, accept_unknown_owners=True, ready_timeout=2)
    assert run.failed and "0 of 1 new pods are Ready" in run.msg and api.get(where) is None


def test_a_replication_controller_makes_its_pod_again(cluster: Cluster) -> None:
    web = Workload(cluster, "web", "ReplicationController")
    pods, node = web.pods(), web.node()
    run = reattach(cluster)
    assert not run.failed, run.msg
    assert not web.pods() & pods and web.node() != node
    no_trace(cluster)
    cluster.used("rbac-repair.yml", "get replicationcontrollers")


def test_the_next_pod_of_that_name_is_not_evicted(cluster: Cluster) -> None:
    """A StatefulSet has made its pod again before the eviction comes, which is for the old one."""
    db = Workload(cluster, "db", "StatefulSet")
    old, proxy = db.pods(), cluster.proxy()
    new: set[str] = set()

    def replace() -> None:
        cluster.api.delete(path("Pod", "db-0"), grace=0)
        new.update(cluster.wait(lambda: db.pods() - old, "the next pod"))

    rule = proxy.on("POST", "/eviction$", times=1, before=replace)
    run = reattach(cluster, "db", proxy=proxy)
    assert rule.matched and not run.failed, run.msg
    assert ("evict_pod", "done") in run.outcomes
    db.wait_ready()
    assert db.pods() == new and not new & old
    no_trace(cluster)
    cluster.used("rbac-repair.yml", "get pods")


def test_the_second_eviction_fails(cluster: Cluster) -> None:
    """What was cordoned is uncordoned, and the run says what was done and what was not."""
    web = Workload(cluster, "web", replicas=2, nodeSelector={"kubernetes.io/hostname": "n1"})
    pods = web.pods()
    proxy = cluster.proxy()
    refusal = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "admission webhook says no",
        "code": 400,
    }
    proxy.on(
        "POST",
        r"/eviction",
        first=2,
        status=400,
        headers={"Content-Type": "application/json"},
        body=refusal,
    )
    run = reattach(cluster, proxy=proxy)
    assert run.failed and run.changed
    assert "admission webhook says no" in run.msg and "uncordon_node" in run.msg
    assert [outcome for verb, outcome in run.outcomes if verb == "evict_pod"] == ["done", "failed"]
    assert ("wait_detached", "skipped") in run.outcomes
    web.wait_ready()
    assert len(web.pods() & pods) == 1
    no_trace(cluster)


def test_a_kubelet_that_never_finishes(control_plane_current: Cluster) -> None:
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(DRIVER,), unmount_seconds=1000)
    web = Workload(cluster, "web", grace=1)
    old = web.attachment()["metadata"]["uid"]
    run = reattach(cluster)
    assert run.failed and run.changed
    for text in ("is still on", "volumesInUse", "uncordon_node"):
        assert text in run.msg, run.msg
    assert web.attachment()["metadata"]["uid"] == old
    no_trace(cluster)


def test_an_attacher_that_never_detaches(cluster: Cluster) -> None:
    """The finalizer stays, and the run ends in time and says who holds it."""
    web = Workload(cluster, "web")
    cluster.attacher.behave(DRIVER, Behaviour(fail="array is busy", attach=False))
    run = reattach(cluster)
    assert run.failed and run.changed
    for text in (
        "held by external-attacher/csi-example-com",
        "array is busy",
        "A finalizer is never removed here",
        "uncordon_node",
    ):
        assert text in run.msg, run.msg
    (held,) = [found for found in web.attachments() if "deletionTimestamp" in found["metadata"]]
    assert held["metadata"]["finalizers"] == ["external-attacher/csi-example-com"]
    no_trace(cluster)


@pytest.mark.parametrize(
    ("moment", "scaled"),
    [
        ("held", False),
        variation("evicted", False),
        variation("detached", False),
        variation("held", True),
        ("detached", True),
    ],
)
def test_killed_and_run_again(cluster: Cluster, moment: str, scaled: bool) -> None:
    """Without any condition: the next run takes up what was begun, evicts nobody twice, and leaves
    nothing behind.
    """
    web = Workload(cluster, "web", **(TOLERANT if scaled else {}))
    old, pods = web.attachment()["metadata"]["uid"], web.pods()
    proxy = cluster.proxy()
    at = {
        "held": ("PATCH", r"/nodes/|/deployments/"),
        "evicted": ("POST", r"/eviction$"),
        "detached": ("GET", r"/volumeattachments/csi-"),
    }
    kill = proxy.on(*at[moment], times=1, after=kill_module)
    died = reattach(cluster, proxy=proxy, scale_down=scaled)
    assert died.failed and "findings" not in died.result, died.result
    assert kill.matched
    proxy.clear()
    run = reattach(cluster, proxy=proxy, scale_down=scaled)
    assert not run.failed, run.msg
    assert ("uncordon_node" if not scaled else "scale_up", "done") in run.outcomes
    evictions = [request for request in proxy.requests if re.search(r"/eviction$", request.path)]
    assert len(evictions) == (1 if moment == "held" and not scaled else 0)
    web.wait_ready()
    assert not web.pods() & pods
    assert web.attachment()["metadata"]["uid"] != old
    no_trace(cluster)


@pytest.mark.variation
def test_killed_and_the_rest_was_done_by_others(cluster: Cluster) -> None:
    """Only the cordon is left: it is a finding of its own."""
    web = Workload(cluster, "web")
    proxy = cluster.proxy()
    proxy.on("POST", r"/eviction$", times=1, after=kill_module)
    assert reattach(cluster, proxy=proxy).failed
    web.wait_ready()
    cluster.wait(lambda: len(web.attachments()) == 1, "the old one is detached")
    pods = web.pods()
    run = reattach(cluster)
    assert not run.failed, run.msg
    assert run.outcomes == [("uncordon_node", "done")]
    assert (
        run.findings[0]["object"]["kind"] == "node"
        and "left behind by a move of web" in run.findings[0]["summary"]
    )
    assert web.pods() == pods
    no_trace(cluster)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, variation(signal.SIGINT), variation(signal.SIGHUP)]
)
@pytest.mark.parametrize("scaled", [False, True])
def test_cancelled(cluster: Cluster, scaled: bool, number: signal.Signals) -> None:
    """As by Ctrl-C, or "Cancel" in AWX."""
    web = Workload(cluster, "web", **(TOLERANT if scaled else {}))
    proxy = cluster.proxy()
    proxy.on("GET", r"/volumeattachments/csi-", times=1, after=lambda: kill_module(number))
    run = reattach(cluster, proxy=proxy, scale_down=scaled)
    assert run.failed and f"interrupted by {number.name}" in run.msg, run.result
    assert ("scale_up" if scaled else "uncordon_node", "done") in run.outcomes
    web.wait_ready()
    no_trace(cluster)


def test_an_api_server_that_is_away_while_a_cordon_is_taken_back(cluster: Cluster) -> None:
    """For longer than a request is tried again, and than is kept for taking back."""
    Workload(cluster, "web")
    cluster.attacher.behave(DRIVER, Behaviour(fail="array is busy", attach=False))
    proxy = cluster.proxy()
    away = proxy.on("PATCH", r"/nodes/", first=2, times=10, status=503)
    run = reattach(cluster, proxy=proxy, detach_timeout=2)
    assert run.failed and "array is busy" in run.msg and "uncordon_node" in run.msg, run.msg
    assert away.matched == 12
    no_trace(cluster)


def leave_behind(cluster: Cluster, **changes: str) -> str:
    """A run is killed after its cordon; what it has written is changed. Returns the node."""
    proxy = cluster.proxy()
    proxy.on("PATCH", r"/nodes/", times=1, after=kill_module)
    assert reattach(cluster, proxy=proxy).failed
    (node,) = [found for found in cluster.api.all("Node") if is_held(found)]
    name = str(node["metadata"]["name"])
    (lease,) = leases(cluster)
    noted = {
        key: value
        for key, value in node["metadata"]["annotations"].items()
        if key.startswith("runbooks.storage-ops/")
    }
    ((key, value),) = noted.items()
    assert lease["metadata"]["annotations"][key] == value
    changed = {"metadata": {"annotations": {key: json.dumps({**json.loads(value), **changes})}}}
    for where in (path("Node", name), path("Lease", lease["metadata"]["name"], "storage-ops")):
        cluster.api.merge(where, changed)
    return name


def test_a_cordon_after_a_killed_run_is_an_operators(cluster: Cluster) -> None:
    web = Workload(cluster, "web")
    node = leave_behind(cluster, since="2026-01-01T00:00:00Z", until="2026-01-01T00:15:00Z")
    kubectl_cordon(cluster, node)
    run = reattach(cluster)
    assert not run.failed, run.msg
    web.wait_ready()
    stays_cordoned(cluster, node)


def test_another_run_is_at_work(cluster: Cluster) -> None:
    """On another host, so it is unknown whether it lives, until its time is over."""
    web = Workload(cluster, "web")
    pods = web.pods()
    node = leave_behind(cluster, process="another host", until="2999-01-01T00:00:00Z", by="awx-7")
    for check in (True, False):
        run = reattach(cluster, check=check)
        assert (
            run.failed
            and not run.changed
            and "another run is at work on these claims, begun by awx-7" in run.msg
        ), run.msg
    assert web.pods() == pods
    assert is_held(cluster.api.find("Node", node) or {})


@pytest.fixture
def limited(cluster: Cluster) -> Iterator[Cluster]:
    """See restricted()."""
    with restricted(cluster.plane):
        yield cluster


def test_a_kubelet_keeps_no_run_away(limited: Cluster) -> None:
    """It makes of the annotation of a run that was killed one that is at work for ever, and of
    other pods; a Lease it cannot write.
    """
    web, other = Workload(limited, "web"), Workload(limited, "other")
    node = leave_behind(limited)
    (lease,) = leases(limited)
    kubelet, stay = as_kubelet(limited, node), other.pods()
    where = path("Lease", lease["metadata"]["name"], "storage-ops")
    ((key, value),) = [
        each for each in lease["metadata"]["annotations"].items() if "/cordon." in each[0]
    ]
    forever = {
        "process": "another host",
        "until": "2999-01-01T00:00:00Z",
        "by": "evil",
        "pods": sorted(stay),
    }
    body = {"metadata": {"annotations": {key: json.dumps({**json.loads(value), **forever})}}}
    kubelet.patch(path("Node", node), body)
    for act in (
        lambda: kubelet.patch(where, body),
        lambda: kubelet.delete(where, lease["metadata"]["uid"]),
        lambda: kubelet.create(
            where.rpartition("/")[0], {**lease, "metadata": {**lease["metadata"], "name": "x"}}
        ),
        lambda: kubelet.patch(path("Node", node), {"spec": {"taints": []}}),
    ):
        with pytest.raises(client.Forbidden):
            act()
    run = reattach(limited)
    assert not run.failed, run.msg
    told = run.finding(node)
    assert (told["verdict"], "its kubelet may have written that" in told["reason"]) == (
        "report",
        True,
    )
    assert ("uncordon_node", "done") in run.outcomes
    assert other.pods() == stay
    web.wait_ready()
    no_trace(limited)


def test_a_claim_that_is_being_deleted(cluster: Cluster) -> None:
    """Its pod keeps it, and with it the data."""
    web = Workload(cluster, "web")
    cluster.api.delete(path("PersistentVolumeClaim", "web"))
    cluster.wait(
        lambda: (
            "deletionTimestamp"
            in (cluster.api.find("PersistentVolumeClaim", "web") or {}).get("metadata", {})
        ),
        "it is being deleted",
    )
    refused(cluster, web, "claim web is being deleted, and only its pods keep the data")
    assert cluster.api.find("PersistentVolume", "pv-web")


def test_scaling_a_stateful_set_that_would_delete_its_claims(cluster: Cluster) -> None:
    db = Workload(cluster, "db", "StatefulSet", **TOLERANT)
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    cluster.api.merge(
        path("StatefulSet", "db"), {"spec": {"persistentVolumeClaimRetentionPolicy": policy}}
    )
    refused(cluster, db, "whenScaled: Delete", scale_down=True)
    assert cluster.api.find("PersistentVolumeClaim", "db")


def test_a_pod_appears_between_plan_and_apply(cluster: Cluster) -> None:
    web = Workload(cluster, "web", replicas=2)
    pods = web.pods()
    proxy = cluster.proxy()

    def scale_up() -> None:
        cluster.api.merge(path("Deployment", "web"), {"spec": {"replicas": 3}})
        web.replicas = 3
        web.wait_ready()

    proxy.on("GET", r"/namespaces/default/pods\?", first=2, times=1, before=scale_up)
    run = reattach(cluster, proxy=proxy)
    assert run.failed and not run.changed, run.result
    assert "have changed since the plan" in run.msg
    assert pods < web.pods()
    no_trace(cluster)


def test_the_api_server_restarts_in_the_middle(cluster: Cluster) -> None:
    web = Workload(cluster, "web")
    proxy = cluster.proxy()
    proxy.on("GET", r"/volumeattachments/csi-", times=1, before=cluster.plane.restart_apiserver)
    run = reattach(cluster, proxy=proxy, detach_timeout=60)
    assert not run.failed, run.msg
    web.wait_ready()
    no_trace(cluster)


def test_a_driver_that_still_publishes_nothing(control_plane_1_20: Cluster) -> None:
    cluster = control_plane_1_20
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    web = Workload(cluster, "web")
    run = reattach(cluster, required_metadata=["publishInfo"], ready_timeout=5)
    assert run.failed and run.changed
    assert "has no publishInfo although it is new: the driver does not publish it" in run.msg
    web.wait_ready()
    no_trace(cluster)
