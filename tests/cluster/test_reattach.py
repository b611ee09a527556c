# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moving a workload, with exactly the rights that are shipped for it."""

from __future__ import annotations

import pytest
from support.cluster import Cluster
from support.reattach import DRIVER, REPAIR, SCALING, TOLERANT, Workload, is_held, no_trace

both = pytest.mark.parametrize("fixture", ["control_plane_1_20", "control_plane_current"])


@pytest.fixture
def cluster(request: pytest.FixtureRequest, fixture: str) -> Cluster:
    """The cluster of the version that a test is run with."""
    found: Cluster = request.getfixturevalue(fixture)
    return found


@pytest.mark.smoke
@both
def test_a_deployment_is_moved_once_and_proven(cluster: Cluster) -> None:
    """Check, run, run again, check again."""
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    web = Workload(cluster, "web")
    other = Workload(cluster, "other")
    old, node = web.attachment(), web.node()
    before = cluster.attachment_uids(), web.pods(), other.pods()
    given = {"namespace": "default", "claims": ["web"], "attachments": [old["metadata"]["uid"]]}

    check = cluster.ansible("workload_reattach", check=True, user=REPAIR, **given)
    assert not check.failed, check.msg
    assert check.changed
    assert {outcome for _verb, outcome in check.outcomes} == {"planned"}
    assert (cluster.attachment_uids(), web.pods(), other.pods()) == before
    no_trace(cluster)

    run = cluster.ansible("workload_reattach", user=REPAIR, **given)
    assert not run.failed, run.msg
    assert run.outcomes == [
        (verb, "done") for verb in ("cordon_node", "evict_pod", "wait_detached", "uncordon_node")
    ]
    finding = run.finding("web")
    assert finding["object"] == {
        "kind": "Deployment",
        "namespace": "default",
        "name": "web",
        "node": node,
    }
    new = web.attachment()
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert web.node() != node
    assert any(new["metadata"]["uid"] in line for line in finding["evidence"]["proof"])
    assert other.pods() == before[2]
    no_trace(cluster)

    for again in (
        cluster.ansible("workload_reattach", user=REPAIR, **given),
        cluster.ansible("workload_reattach", check=True, user=REPAIR, **given),
    ):
        assert not again.failed and not again.changed and again.findings == [], again.msg
    cluster.used(
        "rbac-repair.yml",
        "get /version",
        "get persistentvolumes",
        "get persistentvolumeclaims",
        "list persistentvolumeclaims",
        "get volumeattachments",
        "list volumeattachments",
        "list pods",
        "create pods/eviction",
        "get deployments",
        "list deployments",
        "list statefulsets",
        "get replicasets",
        "get nodes",
        "list nodes",
        "patch nodes",
        "list leases storage-ops",
        "create leases storage-ops",
        "delete leases storage-ops",
    )


@both
def test_a_workload_that_can_run_on_one_node_only_is_made_again_there(cluster: Cluster) -> None:
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    web = Workload(cluster, "web", nodeSelector={"kubernetes.io/hostname": "n1"})
    old, pods = web.attachment()["metadata"]["uid"], web.pods()
    run = cluster.ansible("workload_reattach", user=REPAIR, namespace="default", claims=["web"])
    assert not run.failed, run.msg
    assert web.node() == "n1"
    assert web.attachment()["metadata"]["uid"] != old
    assert not web.pods() & pods
    no_trace(cluster)


@both
def test_a_stateful_set_is_moved(cluster: Cluster) -> None:
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    db = Workload(cluster, "db", "StatefulSet")
    old, pods, node = db.attachment()["metadata"]["uid"], db.pods(), db.node()
    check = cluster.ansible(
        "workload_reattach", check=True, user=REPAIR, namespace="default", claims=["db"]
    )
    assert not check.failed and db.pods() == pods, check.msg
    run = cluster.ansible("workload_reattach", user=REPAIR, namespace="default", claims=["db"])
    assert not run.failed, run.msg
    assert run.outcomes == [
        (verb, "done") for verb in ("cordon_node", "evict_pod", "wait_detached", "uncordon_node")
    ]
    assert run.finding("db")["object"]["kind"] == "StatefulSet"
    assert db.attachment()["metadata"]["uid"] != old and not db.pods() & pods and db.node() != node
    no_trace(cluster)
    cluster.used("rbac-repair.yml", "get statefulsets")


@both
def test_a_stateful_set_is_scaled_down_and_up(cluster: Cluster) -> None:
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    db = Workload(cluster, "db", "StatefulSet", **TOLERANT)
    old, pods = db.attachment()["metadata"]["uid"], db.pods()
    run = cluster.ansible(
        "workload_reattach", user=SCALING, namespace="default", claims=["db"], scale_down=True
    )
    assert not run.failed, run.msg
    assert run.outcomes == [(verb, "done") for verb in ("scale_down", "wait_detached", "scale_up")]
    assert db.attachment()["metadata"]["uid"] != old and not db.pods() & pods
    assert (cluster.api.find("StatefulSet", "db") or {})["spec"]["replicas"] == 1
    no_trace(cluster)
    cluster.used(
        "rbac-repair-scale-down.yml",
        "patch statefulsets",
        "list horizontalpodautoscalers",
    )


@both
def test_a_shared_volume_leaves_its_nodes_one_after_the_other(cluster: Cluster) -> None:
    """There are only these nodes, so pods come to one whose turn is yet to come, and are moved once
    more.
    """
    cluster.kubelets("n1", "n2", "n3", drivers=(DRIVER,))
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    spread |= {"labelSelector": {"matchLabels": {"app": "web"}}}
    web = Workload(cluster, "web", replicas=3, topologySpreadConstraints=[spread])
    old, pods = {found["metadata"]["uid"] for found in web.attachments()}, web.pods()
    nodes = {found["spec"]["nodeName"] for found in web.living()}
    assert len(nodes) > 1
    proxy = cluster.proxy()
    cordoned: list[int] = []

    def count() -> None:
        cordoned.append(sum(is_held(found) for found in cluster.api.all("Node")))

    proxy.on("PATCH", "/nodes/", after=count)
    run = cluster.ansible(
        "workload_reattach",
        user=REPAIR,
        proxy=proxy,
        namespace="default",
        claims=["web"],
        attachments=sorted(old),
    )
    assert not run.failed, run.msg
    assert max(cordoned) == 1
    assert [outcome for verb, outcome in run.outcomes if verb == "cordon_node"] == ["done"] * len(
        nodes
    )
    web.wait_ready()
    assert not web.pods() & pods
    assert not old & {found["metadata"]["uid"] for found in web.attachments()}
    no_trace(cluster)


def test_rights_for_the_audit_are_not_enough(control_plane_current: Cluster) -> None:
    cluster = control_plane_current
    cluster.kubelets("n1", drivers=(DRIVER,))
    Workload(cluster, "web")
    run = cluster.ansible(
        "workload_reattach",
        user=REPAIR.with_name("rbac-audit.yml"),
        namespace="default",
        claims=["web"],
    )
    assert run.failed and not run.changed
    assert 'resources: ["deployments"], verbs: ["list"]' in run.msg
