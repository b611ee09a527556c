# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses volumes, over an API server in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    BOUNDS,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.users import (
    MAX_PODS_OF_VOLUME,
    MAX_VOLUMES,
    VolumeUsers,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster


def volume(name: str, claim: str = "data") -> dict[str, Any]:
    reference = {"namespace": "shop", "name": claim, "uid": f"uid-{claim}"}
    spec = {"csi": {"driver": "d", "volumeHandle": name}, "claimRef": reference}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": name},
        "spec": spec if claim else {"csi": spec["csi"]},
    }


def pod(name: str, claim: str = "data", phase: str = "Running", **meta: Any) -> dict[str, Any]:
    claims = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8", "uid": "r"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"pod-template-hash": "5d8"},
            "ownerReferences": [{**owner, "controller": True}],
            **meta,
        },
        "spec": {"nodeName": "n1", "volumes": claims},
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"state": {"running" if phase == "Running" else "terminated": {}}}
            ],
        },
    }


def ask(
    *objects: dict[str, Any], volumes: tuple[str, ...] = ("pv-1",), pods: tuple[str, ...] = ()
) -> dict[str, Any]:
    audit = VolumeUsers(FakeCluster(*objects), volumes, pods)
    assert audit.plan(audit.gather()).findings == []
    return audit.facts()


def test_pods_of_a_volume_and_their_workloads() -> None:
    bare = pod("bare", ownerReferences=[])
    job = pod(
        "job",
        labels={},
        ownerReferences=[{"kind": "Job", "name": "j-1", "uid": "j", "controller": True}],
    )
    told = ask(volume("pv-1"), volume("pv-2", "other"), pod("web"), bare, job, pod("x", "other"))
    assert told["volumes"] == [{"name": "pv-1", "claim": "shop/data", "pods": 3}]
    assert {one["name"]: one["owner"] for one in told["pods"]} == {
        "web": "Deployment web",
        "bare": "",
        "job": "Job j-1",
    }
    assert told["pods"][0]["claims"] == ["shop/data"] and told["pods"][0]["node"] == "n1"


def test_a_hash_that_is_not_its_own_names_no_deployment() -> None:
    told = ask(volume("pv-1"), pod("web", labels={"pod-template-hash": "d8"}))
    assert told["pods"][0]["owner"] == "ReplicaSet web-5d8"


def test_pods_by_uid() -> None:
    # One that has ended may still have its mount, and then its node names it.
    told = ask(pod("done", "", "Succeeded"), pod("web"), volumes=(), pods=("uid-done", "uid-gone"))
    assert [one["name"] for one in told["pods"]] == ["done"] and told["volumes"] == []
    assert ask(volume("pv-1"), pod("done", phase="Succeeded"))["pods"] == []


def test_many_pods_are_counted() -> None:
    pods = [pod(f"web-{number}") for number in range(MAX_PODS_OF_VOLUME + 30)]
    told = ask(volume("pv-1"), *pods)
    assert told["volumes"][0]["pods"] == len(pods)
    assert len(told["pods"]) == MAX_PODS_OF_VOLUME
    last = pods[-1]["metadata"]["uid"]
    assert len(ask(volume("pv-1"), *pods, pods=(last,))["pods"]) == MAX_PODS_OF_VOLUME + 1


def test_an_object_that_cannot_be_understood_costs_only_itself() -> None:
    broken = pod("broken")
    broken["spec"] = {"nodeName": "n1", "volumes": [7]}
    told = ask(volume("pv-1"), pod("web"), broken)
    assert [one["name"] for one in told["pods"]] == ["web"] and told["unread"] == 1


def test_without_a_question_nothing_is_read() -> None:
    cluster = FakeCluster(pod("web"))
    assert VolumeUsers(cluster, (), ()).gather() == ((), (), ()) and cluster.requests == []
    # A volume without a claim has no pods.
    assert ask(volume("pv-1", ""), pod("web"))["pods"] == []


def test_too_many_names_are_refused() -> None:
    with pytest.raises(BadOption, match="volumes has 301 names, and at most 300"):
        VolumeUsers(FakeCluster(), ["pv"] * (MAX_VOLUMES + 1), ())


def test_the_playbook_hands_on_what_names_the_api_server() -> None:
    text = (Path(__file__).parents[5] / "playbooks/compliance.yml").read_text("utf-8")
    listed = re.search(r"\n +__access:\n((?: +- \w+\n)+)", text)
    assert listed
    spec = AUTH.merge(BOUNDS).to_kwargs()["argument_spec"]
    names = {name for key, one in spec.items() for name in (key, *one.get("aliases", ()))}
    assert sorted(names) == [line.split()[1] for line in listed[1].splitlines()]
