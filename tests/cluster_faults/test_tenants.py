# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tenant with the ClusterRole edit in its own namespace writes what a real API server takes: the
pods and events of others are seen all the same.
"""

from __future__ import annotations

import asyncio
import logging
import runpy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient, wait
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.cluster import Cluster
from support.identities import as_user

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import client

DRIVER = "csi.example.com"
ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "playbooks/files"
SOURCE = runpy.run_path(str(ROOT / "extensions/eda/plugins/event_source/kubernetes_events.py"))
# It misses nothing that is made after it has logged this.
BEGUN = "watching the warnings about pods from now on"
EVIL, GOOD = "evil", "shop"
PODS, EVENTS = f"/api/v1/namespaces/{EVIL}/pods", f"/api/v1/namespaces/{EVIL}/events"


def tenant(cluster: Cluster) -> client.Cluster:
    """What a user may do who may edit one namespace."""
    # The controller manager puts the rules of edit together.
    edit = "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"
    cluster.wait(lambda: (cluster.api.get(edit) or {}).get("rules"), "the role edit has rules")
    rbac = "rbac.authorization.k8s.io"
    cluster.api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "eve", "namespace": EVIL},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "eve"}],
        }
    )
    return as_user(cluster, "eve", "system:authenticated")


def write_events(eve: client.Cluster) -> None:
    """One from the year 0, one almost as big as the API server takes, and one about a pod of
    another namespace.
    """
    pod = eve.create(PODS, k8s.pod("events", [], "n1", EVIL))
    event = k8s.event(pod, "FailedMount", "x")
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), "0000-01-01T00:00:00Z")
    assert eve.create(EVENTS, {**event, **times}).items() >= times.items()
    big = k8s.event(pod, "FailedMount", "x" * 1_400_000)
    assert len(eve.create(EVENTS, big)["message"]) == 1_400_000
    about = k8s.event(
        {**pod, "metadata": {**pod["metadata"], "namespace": GOOD}}, "FailedMount", "x"
    )
    begun, seen = ("2026-01-01T00:00:00.000000Z", "2026-01-01T01:00:00.000000Z")
    newer = {
        "eventTime": begun,
        "series": {"count": 9, "lastObservedTime": seen},
        "action": "x",
        "reportingComponent": "kubelet",
        "reportingInstance": "n1",
        **dict.fromkeys(("firstTimestamp", "lastTimestamp", "source", "count")),
    }
    meta = {"name": "about-another", "namespace": EVIL}
    foreign = eve.create(EVENTS, {**about, **newer, "metadata": meta})
    assert foreign["involvedObject"]["namespace"] == GOOD


def delete_slowly(eve: client.Cluster) -> None:
    """A pod whose deletion seems to have begun before the year 1."""
    grace = 100_000_000_000
    pod = k8s.pod("grace", [], "n1", EVIL)
    pod["spec"]["terminationGracePeriodSeconds"] = grace
    where = path("Pod", "grace", EVIL)
    eve.delete(where, eve.create(PODS, pod)["metadata"]["uid"])
    left: dict[str, Any] = (eve.get(where) or {})["metadata"]
    # So many seconds overflow the time.Duration of BeforeDelete (k8s.io/apiserver,
    # pkg/registry/rest/delete.go): the deletion ends in 246 years, not in 3170.
    assert left["deletionGracePeriodSeconds"] == grace
    assert "2200" < left["deletionTimestamp"] < "2400"


def warn(cluster: Cluster, pod: dict[str, Any]) -> None:
    """What the kubelet says of a stuck pod, for ten minutes."""
    begun = f"{datetime.now(UTC) - timedelta(minutes=10):%Y-%m-%dT%H:%M:%SZ}"
    said = 'MountVolume.SetUp failed for volume "pv-web" : rpc error: the array is full'
    cluster.api.create({**k8s.event(pod, "FailedMount", said), "firstTimestamp": begun})


def handed_on(
    cluster: Cluster, act: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> dict[str, str]:
    """The first event that the event source hands on, of those that a function makes."""
    given = {"kubeconfig": str(cluster.kubeconfig(FILES / "rbac-events.yml"))}

    async def watch() -> dict[str, str]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(SOURCE["main"](queue, given))
        await asyncio.to_thread(wait, lambda: BEGUN in caplog.messages, BEGUN)
        await asyncio.to_thread(act)
        found = await asyncio.wait_for(queue.get(), patient(30))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        kept: dict[str, str] = found["kubernetes_event"]
        return kept

    with caplog.at_level(logging.INFO, SOURCE["LOG"].name):
        return asyncio.run(watch())


def test_nothing_that_a_tenant_writes_hides_the_pods_of_others(
    control_plane_current: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, api = control_plane_current, control_plane_current.api
    api.create(k8s.csi_driver(DRIVER), k8s.namespace(EVIL), k8s.namespace(GOOD))
    api.add_node("n1", DRIVER)
    cluster.stay_ready("n1")
    api.add_volume("web", DRIVER, "vol-web", namespace=GOOD)
    web = api.create(k8s.pod("web", ["web"], "n1", namespace=GOOD))
    eve = tenant(cluster)
    with pytest.raises(client.Forbidden):
        eve.create(EVENTS.replace(EVIL, GOOD), k8s.event(web, "FailedMount", "x"))
    delete_slowly(eve)

    def write() -> None:
        write_events(eve)
        warn(cluster, web)

    event = handed_on(cluster, write, caplog)
    assert (event["namespace"], event["pod"], event["reason"]) == (GOOD, "web", "FailedMount")
    # It has seen both of the tenant's before.
    assert "an event that cannot be read was passed over (ValueError)" in caplog.messages
    assert "an event of more than 1048576 bytes was passed over" in caplog.messages

    run = cluster.ansible("pod_volume_info", user=FILES / "rbac-audit.yml", stuck_seconds=0)
    assert not run.failed and not run.changed, run.msg
    # The one that is deleted has time left. A finding about objects that cannot be read would be
    # one more.
    about = [finding["object"] for finding in run.findings]
    told = {(found.get("namespace"), found["name"]) for found in about}
    assert told == {(GOOD, "web"), (EVIL, "events")}, run.findings
