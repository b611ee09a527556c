# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All cluster controls in one call: what is read how often, and what one of them cannot read does
to the others.
"""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Forbidden,
    KubeError,
    path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    CORDON,
    HOLD,
    attachment_name,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.shared_lists import (
    SharedLists,
)
from ansible_collections.storage_ops.runbooks.plugins.modules.cluster_storage_info import (
    CONTROLS,
    make_parts,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Module

DRIVER = "csi.example.com"
VAS, PVS, NODES, PODS = (
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/api/v1/persistentvolumes",
    "/api/v1/nodes",
    "/api/v1/pods",
)
LONG_AGO = "2026-01-01T00:00:00Z"

Object = dict[str, Any]


def node(name: str, ready: str = "True") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "managedFields": [{"manager": "kubelet"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": LONG_AGO}],
            "nodeInfo": {"bootID": "b", "machineID": "m", "systemUUID": "u"},
            "images": [{"names": ["image"]}],
        },
    }


def volume(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": f"h-{name}"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "shop", "name": f"claim-{name}", "uid": "c"},
        },
        "status": {"phase": "Bound"},
    }


def attachment(name: str, on: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(DRIVER, f"h-{name}", on)},
        "spec": {"attacher": DRIVER, "nodeName": on, "source": {"persistentVolumeName": name}},
        "status": {"attached": True},
    }


def pod(volumes: list[str], on: str) -> Object:
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"claim-{name}"}} for name in volumes
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop"},
        "spec": {"nodeName": on, "volumes": claims},
        "status": {"phase": "Running"},
    }


def audit(cluster: FakeCluster, **options: Any) -> Object:
    module = Module()
    given = {
        "controls": CONTROLS,
        "ceph": None,
        "ceph_problem": "",
        "grace_seconds": 120.0,
        "ledger_namespace": "storage-ops",
        "min_age_seconds": 300.0,
        "observations": 2,
        "observation_seconds": 0.0,
        "pending_seconds": 120.0,
        "required_metadata": {},
        "names": [],
        "drivers": [],
        "nodes": [],
        "namespaces": [],
        **options,
    }
    with pytest.raises(SystemExit):
        engine.report_parts(module, lambda: make_parts(cluster, given), given["controls"])  # type: ignore[arg-type]
    return module.result


def refusing(cluster: FakeCluster, resource: str, error: Callable[[], KubeError]) -> None:
    def before(_verb: str, place: str) -> None:
        if place.endswith(resource):
            raise error()

    cluster.before = before


def forbidden() -> KubeError:
    return Forbidden("cannot list it: forbidden", 403)


def lists(cluster: FakeCluster) -> list[str]:
    return [request for request in cluster.requests if request.startswith("list ")]


def test_a_healthy_cluster_is_read_once() -> None:
    cluster = FakeCluster(node("n1"), volume("a"))
    result = audit(cluster)
    assert (result["failed"], result["findings"]) == (False, [])
    assert result["msg"].startswith("nothing to do: 1 of 1 nodes are Ready")
    assert "lost" not in result
    assert lists(cluster) == [
        f"list {VAS}",
        f"list {NODES}",
        "list /api/v1/namespaces/storage-ops/configmaps",
        f"list {PVS}",
        f"list {PODS}",
    ]


def test_a_lost_node_reads_no_list_a_second_time() -> None:
    names = [f"v{number}" for number in range(150)]
    cluster = FakeCluster(node("n1", "Unknown"), node("n2"), pod(names, "n1"))
    for name in names:
        cluster.add(volume(name))
        cluster.add(attachment(name, "n1"))
    result = audit(cluster)
    assert [found["control"] for found in result["findings"]] == ["STOR-16"]
    assert [lists(cluster).count(f"list {shared}") for shared in (VAS, NODES, PVS)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("resource", "unread"),
    [
        ("/nodes", {"STOR-11", "STOR-13", "STOR-15", "STOR-16", "STOR-17"}),
        ("/configmaps", {"STOR-16", "STOR-17"}),
        ("/pods", {"STOR-15"}),
        ("/persistentvolumes", {"STOR-11", "STOR-12", "STOR-13", "STOR-15"}),
        ("/version", {"STOR-11", "STOR-12", "STOR-13"}),
        ("/volumeattachments", {"STOR-11", "STOR-12", "STOR-13", "STOR-14", "STOR-15"}),
    ],
)
def test_what_may_not_be_read_is_not_assessed_and_the_rest_is(
    resource: str, unread: set[str]
) -> None:
    cluster = FakeCluster(node("n1"), volume("a"))
    refusing(cluster, resource, forbidden)
    result = audit(cluster)
    assert result["failed"]
    assert result["not_assessed"] == dict.fromkeys(sorted(unread), "cannot list it: forbidden")


def test_a_finding_is_told_once_though_each_control_was_tried_alone() -> None:
    cordoned = node("n1")
    cordoned["metadata"]["annotations"] = {
        f"{CORDON}x": json.dumps(
            {"namespace": "shop", "by": "awx", "since": LONG_AGO, "claims": ["data"]}
        )
    }
    cordoned["spec"] = {"taints": [{"key": HOLD, "effect": "NoSchedule"}]}
    cluster = FakeCluster(cordoned, node("lost", "Unknown"), volume("a"), attachment("a", "lost"))
    both = audit(cluster)["findings"]
    assert [found["control"] for found in both].count("") == 1
    refusing(cluster, "/version", forbidden)
    result = audit(cluster)
    assert sorted(result["not_assessed"]) == ["STOR-11", "STOR-12", "STOR-13"]
    kept = [found for found in both if found["control"] not in result["not_assessed"]]
    # Summaries say for how many seconds a node has been lost.
    told = [(found["control"], found["object"]) for found in result["findings"]]
    assert told == [(found["control"], found["object"]) for found in kept]


def test_an_api_server_that_never_answers_is_asked_once() -> None:
    cluster = FakeCluster()
    refusing(cluster, "", lambda: KubeError("no connection"))
    result = audit(cluster)
    assert (result["msg"], sorted(result["not_assessed"]), len(cluster.requests)) == (
        "no connection",
        CONTROLS,
        1,
    )


def test_an_outage_between_two_audits_is_asked_through() -> None:
    cluster = FakeCluster(node("n1"))
    shared = SharedLists(cluster)  # type: ignore[arg-type]
    assert shared.list(NODES, lambda item: item["metadata"]["name"], cached=True) == ["n1"]
    refusing(cluster, PODS, lambda: KubeError("no connection"))
    with pytest.raises(KubeError):
        shared.list(PODS, lambda item: item)
    assert shared.get(path("v1", "nodes", "n1"))


def test_what_nobody_looks_at_is_not_kept_and_the_newest_is_read_where_it_is_asked_for() -> None:
    cluster = FakeCluster(node("n1"))
    shared = SharedLists(cluster)  # type: ignore[arg-type]
    (kept,) = shared.list(NODES, lambda item: item, cached=True)
    assert "managedFields" not in kept["metadata"] and sorted(kept["status"]) == [
        "conditions",
        "nodeInfo",
    ]
    cluster.add(node("n2"))
    assert len(shared.list(NODES, lambda item: item, cached=True)) == 1
    assert len(shared.list(NODES, lambda item: item)) == 2


def test_a_blocklist_that_should_have_been_read() -> None:
    result = audit(FakeCluster(node("n1")), ceph_problem="ceph01 is unreachable")
    assert result["not_assessed"] == {
        "STOR-17": "Ceph's blocklist was not read: ceph01 is unreachable"
    }
    assert not audit(FakeCluster(node("n1")), ceph_problem="x", controls=["STOR-11"])["failed"]


def test_only_what_the_controls_need_is_read() -> None:
    cluster = FakeCluster(node("n1"))
    assert not audit(cluster, controls=["STOR-14"])["failed"]
    assert lists(cluster) == [f"list {VAS}"]
    assert "controls is empty" in audit(FakeCluster(), controls=[])["msg"]


@pytest.mark.parametrize("scope", ["names", "drivers", "nodes", "namespaces"])
@pytest.mark.parametrize("control", ["STOR-16", "STOR-17"])
def test_lost_nodes_and_fences_cannot_be_narrowed_down(scope: str, control: str) -> None:
    cluster = FakeCluster(node("n1"), volume("a"), attachment("a", "n1"))
    told = audit(cluster, controls=["STOR-11", control], **{scope: ["n1"]})
    assert told["failed"] and told["msg"].startswith(f"{scope}: STOR-16 and STOR-17 are about")
    assert cluster.requests == []


def test_one_node_can_be_looked_at_alone() -> None:
    cluster = FakeCluster(
        node("n1"),
        node("n2"),
        volume("a"),
        volume("b"),
        attachment("a", "n1"),
        attachment("b", "n2"),
    )
    told = audit(cluster, controls=CONTROLS[:5], nodes=["n2"])
    found = {finding["object"]["node"] for finding in told["findings"]}
    assert not told["failed"] and found == {"n2"}
