# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The world changes, or the API server fails, in mid-run: nothing is deleted on stale knowledge,
and every run ends with a clear word.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from lab.kubernetes.attacher import OK, Behaviour
from lab.kubernetes.faults import DRIVER
from lab.kubernetes.proxy import Proxy
from support.cluster import LOCAL, Cluster
from support.node import COLLECTION, Outcome, environment
from support.selection import variation

REPAIRER = Path(__file__).parents[2] / "playbooks/files/rbac-repair.yml"
# There is one attachment, so each that is left over is most of them.
QUICK: dict[str, Any] = {
    "min_age_seconds": 1,
    "observation_seconds": 1,
    "detach_timeout": 10,
    "accept_majority": True,
}
HANDLE = "vol-a"
NAME = k8s.attachment_name(HANDLE, DRIVER, "n1")
WHERE = path("VolumeAttachment", NAME)
# The attachment is asked for by its name in the second observation, and then in the last look
# before it is deleted.
LAST_LOOK = 2


@pytest.fixture
def cluster(control_plane_current: Cluster) -> Cluster:
    """A cluster with one attachment that is left over: its volume is released, and no controller
    manager knows of it.
    """
    found = control_plane_current
    found.api.create(k8s.csi_driver(DRIVER))
    found.kubelets("n1", "n2", drivers=(DRIVER,))
    volume, _claim = k8s.volume("a", DRIVER, HANDLE)
    volume["spec"]["claimRef"]["uid"] = "00000000-0000-0000-0000-000000000000"
    found.api.create(volume, attachment())
    found.wait(lambda: attached(found) and phase(found) == "Released", "attached and released")
    time.sleep(1.1)
    return found


def attachment() -> k8s.Object:
    spec = {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv-a"}}
    return {
        "apiVersion": k8s.STORAGE,
        "kind": "VolumeAttachment",
        "metadata": {"name": NAME},
        "spec": spec,
    }


def attached(cluster: Cluster) -> bool:
    return bool(((cluster.api.get(WHERE) or {}).get("status") or {}).get("attached"))


def phase(cluster: Cluster) -> str:
    return str(
        (cluster.api.find("PersistentVolume", "pv-a") or {"status": {}})["status"].get("phase")
    )


def run(cluster: Cluster, proxy: Proxy, check: bool = False, **options: Any) -> Outcome:
    return cluster.ansible(
        "volumeattachment_repair", check, user=REPAIRER, proxy=proxy, **{**QUICK, **options}
    )


def refused(
    cluster: Cluster, proxy: Proxy, *words: str, failed: bool = False, **options: Any
) -> None:
    """The run changes nothing and says why.

    It fails where it could not go on, and not where the world did the right thing meanwhile.
    """
    uids = cluster.attachment_uids()
    outcome = run(cluster, proxy, **options)
    assert outcome.failed == failed and not outcome.changed, outcome.msg
    assert outcome.outcomes in ([], [("delete_volumeattachment", "skipped")])
    for word in words:
        assert word in outcome.msg
    deletions = [
        request
        for request in proxy.requests
        if request.method == "DELETE" and request.status == 200
    ]
    assert deletions == []
    assert set(cluster.attachment_uids()) == set(uids)


def done(outcome: Outcome) -> None:
    assert not outcome.failed and outcome.outcomes == [("delete_volumeattachment", "done")], (
        outcome.msg
    )


def replace(cluster: Cluster) -> str:
    """Another attachment of the same name; its uid."""
    cluster.api.delete(WHERE)
    cluster.wait(lambda: cluster.api.get(WHERE) is None, "the old one is gone")
    cluster.api.create(attachment())
    cluster.wait(lambda: attached(cluster), "the new one is attached")
    return cluster.attachment_uids()[NAME]


def pod_appears(cluster: Cluster) -> None:
    """A pod on that node needs the volume: the claim is back and bound to it."""
    cluster.api.merge(path("PersistentVolume", "pv-a"), {"spec": {"claimRef": {"uid": None}}})
    _volume, claim = k8s.volume("a", DRIVER, HANDLE)
    cluster.api.create(claim)
    cluster.wait(lambda: phase(cluster) == "Bound", "bound again")
    cluster.api.create(k8s.pod("comes", ["a"], "n1"))


# races


def test_replaced_between_plan_and_apply(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    before = cluster.attachment_uids()[NAME]
    proxy.on("GET", f"{NAME}$", first=LAST_LOOK, times=1, before=lambda: replace(cluster))
    refused(cluster, proxy, "it was replaced by another one of the same name")
    assert cluster.attachment_uids()[NAME] != before


def test_replaced_at_the_last_moment(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.on("DELETE", NAME, times=1, before=lambda: replace(cluster))
    refused(cluster, proxy, "it was replaced meanwhile")


def test_a_pod_appears_between_plan_and_apply(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.on("GET", f"{NAME}$", first=LAST_LOOK, times=1, before=lambda: pod_appears(cluster))
    refused(cluster, proxy, "it is needed by")


def test_a_pod_appears_while_it_is_deleted(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.on("DELETE", NAME, times=1, after=lambda: pod_appears(cluster))
    outcome = run(cluster, proxy)
    assert outcome.failed and outcome.changed, outcome.msg
    assert outcome.outcomes == [("delete_volumeattachment", "failed")]
    assert "pod default/comes appeared on n1 while its attachment was deleted" in outcome.msg
    assert "workload_reattach -a 'namespace=default claims=a'" in outcome.msg


def test_the_node_goes_away_between_plan_and_apply(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.on(
        "GET",
        f"{NAME}$",
        first=LAST_LOOK,
        times=1,
        before=lambda: cluster.api.heartbeat("n1", "False"),
    )
    refused(cluster, proxy, "its node n1 is not ready")


def test_the_volume_is_bound_again(cluster: Cluster) -> None:
    proxy = cluster.proxy()

    def bound() -> None:
        cluster.api.merge(path("PersistentVolume", "pv-a"), {"spec": {"claimRef": {"uid": None}}})
        cluster.api.create(k8s.volume("a", DRIVER, HANDLE)[1])
        cluster.wait(lambda: phase(cluster) == "Bound", "bound again")

    proxy.on("GET", f"{NAME}$", first=LAST_LOOK, times=1, before=bound)
    refused(cluster, proxy, "nothing proves any more that it is left over")


def test_another_volume_of_that_handle_appears_between_plan_and_apply(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    twin = k8s.volume("twin", DRIVER, HANDLE)[0]
    proxy.on("GET", f"{NAME}$", first=LAST_LOOK, times=1, before=lambda: cluster.api.create(twin))
    refused(cluster, proxy, "pv-twin", "has the same driver and handle")


# an API server that fails


def test_the_api_server_is_restarted_in_mid_run(cluster: Cluster) -> None:
    proxy = cluster.proxy()

    def start() -> None:
        cluster.plane.start_apiserver()
        proxy.clear()

    def restart() -> None:
        cluster.plane.stop_apiserver()
        # As a load balancer does: nobody gets to an API server that is not ready.
        proxy.on("", "", reset=True)
        threading.Thread(target=start).start()

    rule = proxy.on("GET", f"{NAME}$", first=LAST_LOOK, times=1, before=restart)
    done(run(cluster, proxy))
    assert rule.matched > LAST_LOOK, "the request was not made again"


def test_too_many_requests(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    for method, where in (("GET", "/volumeattachments"), ("GET", "/nodes"), ("DELETE", NAME)):
        proxy.on(method, where, times=2, status=429, headers={"Retry-After": "1"})
    done(run(cluster, proxy))


@pytest.mark.parametrize(
    "action",
    [
        {"status": 429, "headers": {"Retry-After": "1"}},
        variation({"status": 503}),
        variation({"reset": True}),
    ],
    ids=str,
)
def test_a_storm_that_does_not_end(cluster: Cluster, action: dict[str, Any]) -> None:
    proxy = cluster.proxy()
    proxy.on("GET", "/nodes", **action)
    refused(cluster, proxy, "nodes", "tries in", failed=True, deadline=30)


def test_the_deadline_ends_a_storm(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.on("GET", "/nodes", status=429, headers={"Retry-After": "60"})
    outcome = run(cluster, proxy, deadline=20)
    assert outcome.failed and not outcome.changed
    assert "deadline" in outcome.msg


def test_connections_are_reset(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    for method, where in (
        ("GET", "/version"),
        ("GET", "/volumeattachments"),
        ("GET", "/pods"),
        ("DELETE", NAME),
    ):
        proxy.on(method, where, times=1, reset=True)
    done(run(cluster, proxy))


def test_the_answer_to_the_deletion_is_lost(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.on("DELETE", NAME, times=1, cut=0.0)
    done(run(cluster, proxy))


@pytest.mark.parametrize(
    "resource", ["volumeattachments", "persistentvolumes", "nodes", "pods", "csidrivers"]
)
def test_one_list_is_forbidden(cluster: Cluster, resource: str) -> None:
    proxy = cluster.proxy()
    proxy.on("GET", rf"/{resource}\?", status=403)
    refused(cluster, proxy, f'resources: ["{resource}"], verbs: ["list"]', failed=True)


@pytest.mark.parametrize("resource", ["volumeattachments", "persistentvolumes", "nodes", "pods"])
def test_a_list_is_cut_in_the_middle(cluster: Cluster, resource: str) -> None:
    proxy = cluster.proxy()
    proxy.on("GET", rf"/{resource}\?", times=1, cut=0.5)
    done(run(cluster, proxy))


def test_a_list_that_is_always_cut_in_one_answer_is_read_in_pages(cluster: Cluster) -> None:
    """As the API server does with whoever reads too slowly."""
    proxy = cluster.proxy()
    rule = proxy.on("GET", r"/pods\?.*resourceVersion=0", cut=0.5)
    done(run(cluster, proxy, deadline=60))
    assert rule.matched


def test_a_list_that_is_always_cut_is_no_list(cluster: Cluster) -> None:
    """Half a list of pods would make an orphan of what a pod of the other half needs."""
    proxy = cluster.proxy()
    proxy.on("GET", r"/pods\?", cut=0.5)
    refused(cluster, proxy, "pods", failed=True, deadline=30)


def test_forbidden_to_delete_is_told_in_check_mode(cluster: Cluster) -> None:
    auditor = REPAIRER.with_name("rbac-audit.yml")
    outcome = cluster.ansible("volumeattachment_repair", check=True, user=auditor, **QUICK)
    assert not outcome.failed and not outcome.changed
    assert 'verbs: ["delete"]' in outcome.finding(NAME)["reason"]


# killed


def killed(cluster: Cluster, proxy: Proxy, arm: Callable[[Callable[[], None]], object]) -> None:
    """Start a run, and let it be killed where ``arm`` has put the blow."""
    options = {"kubeconfig": str(cluster.kubeconfig(REPAIRER, proxy)), **QUICK}
    command = [
        "ansible",
        "localhost",
        *LOCAL,
        "-m",
        f"{COLLECTION}.volumeattachment_repair",
        "-a",
        json.dumps(options),
    ]
    struck = threading.Event()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        start_new_session=True,
    )

    def blow() -> None:
        # Ansible's workers and the module are in sessions of their own.
        for pid in [*_children(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        struck.set()

    arm(blow)
    output, _nothing = process.communicate(timeout=patient(120))
    assert struck.is_set() and '"actions"' not in output, output


def _children(parent: int) -> list[int]:
    """All descendants of a process, youngest first."""
    table = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], check=True, capture_output=True, text=True
    ).stdout
    parents = {int(pid): int(above) for pid, above in (line.split() for line in table.splitlines())}
    found = [parent]
    for pid in found:
        found += [child for child, above in parents.items() if above == pid]
    return found[:0:-1]


def test_killed_before_the_deletion_and_run_again(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    killed(
        cluster,
        proxy,
        lambda blow: proxy.on("GET", f"{NAME}$", first=LAST_LOOK, times=1, before=blow),
    )
    assert NAME in cluster.attachment_uids()
    proxy.clear()
    done(run(cluster, proxy))


def test_killed_at_the_deletion_and_run_again(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    cluster.attacher.behave(DRIVER, Behaviour(silent=True))
    killed(cluster, proxy, lambda blow: proxy.on("DELETE", NAME, times=1, after=blow))
    proxy.clear()
    while_held = run(cluster, proxy)
    assert not while_held.failed and not while_held.changed, while_held.msg
    cluster.attacher.behave(DRIVER, OK)
    cluster.wait(lambda: not cluster.attachment_uids(), "the attacher lets go")
    again = run(cluster, proxy)
    assert not again.failed and not again.changed and again.findings == [], again.msg
