# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab proves itself: what later tests stand on is really there."""

from __future__ import annotations

import http.client
import os
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient, wait
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from lab.kubernetes.build import CURRENT, OLD
from lab.kubernetes.controlplane import ControlPlane
from support.cluster import Cluster

DRIVER = "csi.example.com"
ATTACHMENTS = path("VolumeAttachment")
both = pytest.mark.parametrize("fixture", ["control_plane_1_20", "control_plane_current"])


@pytest.fixture
def cluster(request: pytest.FixtureRequest, fixture: str) -> Cluster:
    """The cluster of the version that a test is run with."""
    found: Cluster = request.getfixturevalue(fixture)
    return found


@both
def test_version(cluster: Cluster) -> None:
    version = cluster.api.call("GET", "/version")
    assert version["gitVersion"] == f"v{cluster.plane.number}"
    assert (
        cluster.plane.number == "1.20.2"
        if cluster.plane.version == OLD
        else tuple(map(int, cluster.plane.number.split(".")))[:2] >= (1, 34)
    )


@pytest.mark.smoke
@both
def test_users(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody may do anything; somebody with a manifest may do what it says, and nothing else."""
    assert cluster.plane.api("nobody").request("GET", ATTACHMENTS)[0] == 403
    manifest = tmp_path / "reader.yml"
    manifest.write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: lab}}\n"
        "  - apiVersion: rbac.authorization.k8s.io/v1\n    kind: ClusterRole\n"
        "    metadata: {name: reader}\n"
        "    rules: [{apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [get, "
        "list]}]\n"
        "  - apiVersion: rbac.authorization.k8s.io/v1\n    kind: ClusterRoleBinding\n"
        "    metadata: {name: reader}\n"
        "    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}\n"
        "    subjects: [{kind: ServiceAccount, name: reader, namespace: lab}]\n"
    )
    reader = cluster.plane.api(cluster.plane.user_for(manifest))
    assert reader.request("GET", ATTACHMENTS)[0] == 200
    assert reader.request("DELETE", ATTACHMENTS + "/x")[0] == 403
    assert reader.request("GET", path("Pod", namespace=""))[0] == 403


@both
def test_attach_and_detach(cluster: Cluster) -> None:
    """The controller manager attaches and detaches through the stand-in; a second node does not get
    the volume.
    """
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    found = faults.attach(cluster.api, "data", DRIVER, "vol-1", "n1")
    attachment = cluster.api.find("VolumeAttachment", found.attachment)
    assert attachment
    assert attachment["metadata"]["finalizers"] == ["external-attacher/csi-example-com"]
    wait(
        lambda: (cluster.api.find("Pod", found.pod) or {})["status"]["phase"] == "Running",
        "the pod runs",
    )
    node = cluster.api.find("Node", "n1")
    assert node and node["status"]["volumesInUse"] == [found.unique_name]

    cluster.api.create(k8s.pod("thief", ["data"], "n2"))
    name = k8s.attachment_name("vol-1", DRIVER, "n2")

    # The controller itself may refuse (an event), and if it does not, the array does.
    def refused() -> Any:
        events = [
            event for event in cluster.api.all("Event") if event["reason"] == "FailedAttachVolume"
        ]
        return events or (cluster.api.find("VolumeAttachment", name) or {}).get("status", {}).get(
            "attachError"
        )

    wait(refused, "refused")
    cluster.api.delete(path("Pod", "thief"), grace=0)

    cluster.api.delete(path("Pod", found.pod))
    wait(lambda: cluster.api.all("VolumeAttachment") == [], "detached")
    assert cluster.api.volumes_attached("n1") == []


def test_attacher_modes(control_plane_current: Cluster) -> None:
    """Failing, silent and slow attachers look as they should, and a change of mind is enough to go
    on.
    """
    cluster = control_plane_current
    cluster.api.add_node("n1", DRIVER)
    cluster.attacher.behave(DRIVER, Behaviour(fail="no room on the array"))
    cluster.api.add_volume("data", DRIVER, "vol-1")
    cluster.api.create(k8s.pod("web", ["data"], "n1"))
    name = k8s.attachment_name("vol-1", DRIVER, "n1")

    def status() -> Any:
        return (cluster.api.find("VolumeAttachment", name) or {}).get("status") or {}

    assert (
        wait(lambda: status().get("attachError"), "attachError")["message"]
        == "no room on the array"
    )
    cluster.attacher.behave(DRIVER, Behaviour(metadata={"publishInfo": "{}"}))
    wait(lambda: status().get("attached"), "attached")
    assert status()["attachmentMetadata"] == {"publishInfo": "{}"}
    cluster.attacher.behave("pv-data", Behaviour(silent=True))
    cluster.api.delete(path("Pod", "web"), grace=0)
    wait(
        lambda: (
            "deletionTimestamp" in (cluster.api.find("VolumeAttachment", name) or {})["metadata"]
        ),
        "deletion asked for",
    )
    time.sleep(1)
    assert cluster.api.find("VolumeAttachment", name)
    cluster.attacher.behave("pv-data", Behaviour(slow=2))
    wait(lambda: cluster.api.find("VolumeAttachment", name) is None, "gone")


@both
def test_scheduler(cluster: Cluster) -> None:
    """A Deployment's pod is placed, attached and run; its node falls silent on request."""
    kubelets = cluster.kubelets("n1", drivers=(DRIVER,))
    cluster.api.create(k8s.csi_driver(DRIVER))
    cluster.api.add_volume("data", DRIVER, "vol-1")
    cluster.api.create(k8s.workload("Deployment", "web", ["data"]))
    wait(
        lambda: (
            (cluster.api.call("GET", path("Deployment", "web"))["status"].get("readyReplicas")) == 1
        ),
        "web is ready",
    )
    (pod,) = cluster.api.all("Pod")
    assert pod["spec"]["nodeName"] == "n1"
    kubelets.stop_node("n1")
    cluster.api.heartbeat("n1", ready="False")
    wait(
        lambda: (cluster.api.find("Node", "n1") or {})["spec"].get("taints"), "the node has taints"
    )


@pytest.mark.smoke
def test_hollow_kubelet(control_plane_1_20: Cluster) -> None:
    """It has the volume in use, and waits until it is attached according to the node's status."""
    cluster = control_plane_1_20
    kubelet = cluster.hollow_kubelet("hollow")
    cluster.attacher.behave(DRIVER, Behaviour(silent=True))
    cluster.api.add_volume("data", DRIVER, "vol-1")
    cluster.api.create(k8s.pod("web", ["data"], "hollow"))
    unique = k8s.unique_name(DRIVER, "vol-1")
    wait(
        lambda: (
            (cluster.api.find("Node", "hollow") or {})["status"].get("volumesInUse") == [unique]
        ),
        "volumesInUse",
        60,
    )
    wait(lambda: "not attached according to node status" in kubelet.log, "it waits", 60)
    assert "Controller attach succeeded" not in kubelet.log
    cluster.attacher.behave(DRIVER)
    wait(lambda: "Controller attach succeeded" in kubelet.log, "it goes on", 60)


@both
def test_no_kubelet_no_answer(cluster: Cluster) -> None:
    """A deleted pod stays Terminating while its node is silent, and as long as the stand-in is told
    so.
    """
    kubelets = cluster.kubelets("n1", drivers=(DRIVER,))
    cluster.api.create(k8s.pod("web", node_name="n1", grace=1))
    wait(lambda: (cluster.api.find("Pod", "web") or {})["status"]["phase"] == "Running", "running")
    kubelets.stuck.add("default/web")
    cluster.api.delete(path("Pod", "web"))
    time.sleep(2)
    assert "deletionTimestamp" in (cluster.api.find("Pod", "web") or {})["metadata"]
    kubelets.stuck.clear()
    wait(lambda: cluster.api.find("Pod", "web") is None, "gone")


def test_proxy(control_plane_current: Cluster) -> None:
    """Each rule does what it says, once; everything is remembered."""
    cluster = control_plane_current
    proxy = cluster.proxy()
    cluster.api.create(k8s.namespace("one"))
    token = cluster.plane.token("admin")

    def get(where: str = "/api/v1/namespaces") -> tuple[int, bytes, str | None]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            proxy.port,
            context=ssl.create_default_context(cafile=cluster.plane.ca),
            timeout=patient(30),
        )
        connection.request(
            "GET", where, headers={"Authorization": f"Bearer {token}", "User-Agent": "me"}
        )
        answer = connection.getresponse()
        found = answer.status, answer.read(), answer.getheader("Retry-After")
        connection.close()
        return found

    assert b'"one"' in get()[1]
    proxy.on("GET", "namespaces", times=1, status=429, headers={"Retry-After": "3"})
    assert get()[0::2] == (429, "3")
    assert get()[0] == 200
    proxy.on("GET", "namespaces", times=1, reset=True)
    with pytest.raises(ConnectionResetError):
        get()
    proxy.on("GET", "namespaces", times=1, cut=0.5)
    with pytest.raises(http.client.IncompleteRead):
        get()
    # Large answers come without a length.
    for number in range(3):
        cluster.api.create(
            {
                **k8s.namespace(f"large-{number}"),
                "metadata": {"name": f"large-{number}", "annotations": {"x": "x" * 100000}},
            }
        )
    proxy.on("GET", "namespaces", times=1, cut=0.5)
    with pytest.raises(http.client.IncompleteRead):
        get()
    assert len(get()[1]) > 300000
    seen = []
    proxy.on(
        "GET",
        "namespaces",
        times=1,
        before=lambda: seen.append("before"),
        after=lambda: seen.append("after"),
    )
    assert get()[0] == 200
    assert seen == ["before", "after"]
    released = threading.Event()
    rule = proxy.on("GET", "nodes", hold=released)
    with ThreadPoolExecutor() as pool:
        held = pool.submit(get, "/api/v1/nodes?limit=5")
        wait(lambda: rule.matched == 1, "it is held")
        assert not held.done()
        released.set()
        assert held.result()[0] == 200
    last = proxy.requests[-1]
    # It notes so after the client has the answer.
    wait(lambda: last.status == 200, "it was answered in full")
    assert (last.path, last.agent) == ("/api/v1/nodes?limit=5", "me")


@both
def test_api_server_restarts(cluster: Cluster) -> None:
    """What it knew it knows again."""
    cluster.api.create(k8s.namespace("kept"))
    cluster.plane.restart_apiserver()
    assert cluster.api.find("Namespace", "kept")


def test_supervised(control_plane_1_20: Cluster) -> None:
    """A supervised controller manager comes back by itself, as a static pod's does."""
    plane = control_plane_1_20.plane
    plane.supervise()
    process = plane.processes["kube-controller-manager"]
    first = process.pid
    assert first
    os.kill(first, 9)
    wait(lambda: process.pid not in (None, first), "another one")
    plane.unsupervise()


@pytest.mark.parametrize("version", [OLD, CURRENT])
def test_stop_leaves_nothing(version: str, request: pytest.FixtureRequest) -> None:
    """No process and no file is left; an instance beside the others is none of their business."""
    # Where the version cannot be had, this says so.
    request.getfixturevalue("plane_1_20" if version == OLD else "plane_current")
    plane = ControlPlane(f"test-lab-{os.getpid()}", version, scheduler=False, leader_elect=True)
    plane.start()
    pids = [process.pid for process in plane.processes.values() if process.pid]
    assert len(pids) == 3
    lease = wait(
        lambda: plane.api().find("Lease", "kube-controller-manager", "kube-system"),
        "the leader's lease",
    )
    assert lease["spec"]["holderIdentity"]
    plane.remove()
    assert not [
        pid
        for pid in pids
        if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert not plane.folder.exists()


def left(cluster: Cluster, found: faults.Attached) -> tuple[bool, bool]:
    """Whether the VolumeAttachment still says attached, undisturbed, and whether its node's status
    does.
    """
    attachment = cluster.api.find("VolumeAttachment", found.attachment)
    whole = bool(
        attachment
        and attachment["status"]["attached"]
        and "deletionTimestamp" not in attachment["metadata"]
    )
    return whole, found.unique_name in cluster.api.volumes_attached(found.node)


@pytest.mark.smoke
@both
def test_collision(cluster: Cluster) -> None:
    """In 1.20 the volume with 68 characters keeps its attachment; in a current version
    none does.
    """
    made = faults.collision(cluster.plane)
    bug = cluster.plane.version == OLD
    wait(
        lambda: len(cluster.api.all("VolumeAttachment")) == (1 if bug else 0), "the others detached"
    )
    time.sleep(1)
    assert {length: left(cluster, found) for length, found in made.items()} == {
        67: (False, False),
        68: (bug, False),
        69: (False, False),
    }


def test_lost_attachment(control_plane_1_20: Cluster) -> None:
    """Attached, needed, in use, and missing from volumesAttached for good; a restart of the
    controller manager finds it again.
    """
    cluster = control_plane_1_20
    cluster.kubelets("n1", drivers=(faults.DRIVER,))
    found = faults.lost_attachment(cluster.plane, node="n1")
    # Two periods of the stand-in, and more than the back-off would have taken.
    time.sleep(5)
    assert left(cluster, found) == (True, False)
    assert (cluster.api.find("Node", "n1") or {})["status"]["volumesInUse"] == [found.unique_name]
    assert (cluster.api.find("Pod", found.pod) or {})["status"]["phase"] == "Pending"
    cluster.plane.restart_controller_manager()
    wait(lambda: left(cluster, found) == (True, True), "found again")
    wait(
        lambda: (cluster.api.find("Pod", found.pod) or {})["status"]["phase"] == "Running",
        "the pod runs",
    )


def test_killed_in_backoff(control_plane_1_20: Cluster) -> None:
    """Nobody needs it, and the new controller manager does not know."""
    found = faults.killed_in_backoff(control_plane_1_20.plane)
    time.sleep(3)
    assert left(control_plane_1_20, found) == (True, False)
