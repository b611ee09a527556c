# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook repair_volumeattachments on what only it puts together: moving workloads, restarting
the leader, setting a prefix.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.attacher import Behaviour
from lab.kubernetes.build import OLD
from lab.kubernetes.controlplane import ControlPlane
from support.cluster import Cluster, Played, User, fresh
from support.reattach import DRIVER, REPAIR, Workload, no_trace
from support.selection import variation

# With what only attachment_repair_provisioner needs, as it is shipped for one driver.
PROVISIONING = (REPAIR, REPAIR.with_name("rbac-repair-provisioner.yml"))
HUAWEI = "csi.huawei.com"
RACK = "csi-rack.example.com"
PLAYBOOK = "repair_volumeattachments"
QUICK: dict[str, Any] = {
    "attachment_repair_observation_seconds": "3",
    "workload_reattach_ready_timeout": "40",
    "target": "all",
}


def play(cluster: Cluster, check: bool = False, name: str = PLAYBOOK, **given: Any) -> Played:
    return cluster.playbook(name, check=check, user=REPAIR, **{**QUICK, **given})


# STOR-14


def test_missing_publish_info_is_repaired_workload_by_workload(
    control_plane_current: Cluster,
) -> None:
    """3 of 40 attachments, 2 workloads, one of which can run on one node only: all are recreated,
    the others are never touched.
    """
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(HUAWEI,))
    cluster.attacher.behave(HUAWEI, Behaviour(metadata={"publishInfo": "{}"}))
    broken = [
        Workload(cluster, "shared", replicas=2, driver=HUAWEI, **SPREAD),
        Workload(cluster, "bound", driver=HUAWEI, **ON_N1),
    ]
    crowd = [f"other-{number}" for number in range(37)]
    for name in crowd:
        cluster.api.add_volume(name, HUAWEI, f"vol-{name}")
        cluster.api.create(k8s.workload("Deployment", name, [name]))
    cluster.wait(lambda: len(attached(cluster)) == 40, "40 attachments", 120)
    for workload in broken:
        workload.lose_metadata()
    gone = {found["metadata"]["uid"] for workload in broken for found in workload.attachments()}
    assert len(gone) == 3
    before, pods = cluster.attachment_uids(), all_pods(cluster)
    moved = {uid for workload in broken for uid in workload.pods()}

    plain = play(cluster)
    # What is only reported is left, and a run that was to repair says so.
    assert plain.rc != 0 and " left: " in plain.text, plain.text
    assert plain.text.count("STOR-14 major") == 3
    check = play(cluster, check=True, attachment_repair_reattach_missing_metadata="true")
    assert check.rc == 0, check.text
    assert check.text.count("planned: evict_pod") == 3
    assert (cluster.attachment_uids(), all_pods(cluster)) == (before, pods)

    run = play(cluster, attachment_repair_reattach_missing_metadata="true")
    assert run.rc == 0, run.text
    # The pod that leaves the first node of the shared volume comes to the second one, whose turn is
    # yet to come.
    assert run.text.count("done: evict_pod") == 4
    assert "with publishInfo" in run.text
    for workload in broken:
        workload.wait_ready()
        assert not workload.pods() & moved
        for found in workload.attachments():
            assert found["status"]["attachmentMetadata"] == {"publishInfo": "{}"}
    assert not set(cluster.attachment_uids().values()) & gone
    assert pods - moved <= all_pods(cluster)
    assert len(set(before.values()) & set(cluster.attachment_uids().values())) == 37
    no_trace(cluster)

    now = cluster.attachment_uids(), all_pods(cluster)
    for again in (
        play(cluster, attachment_repair_reattach_missing_metadata="true"),
        play(cluster, check=True),
    ):
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    assert (cluster.attachment_uids(), all_pods(cluster)) == now


ON_N1 = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
SPREAD = {
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "shared"}},
                    },
                }
            ]
        }
    }
}


def attached(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        found
        for found in cluster.api.all("VolumeAttachment")
        if (found.get("status") or {}).get("attached")
    ]


def all_pods(cluster: Cluster) -> set[str]:
    return {found["metadata"]["uid"] for found in cluster.api.all("Pod")}


def test_a_workload_that_is_refused_does_not_keep_the_others_out(
    control_plane_current: Cluster,
) -> None:
    """Not even where only one may be moved; the run fails at its end, with its name.

    No repairs means none.
    """
    cluster = control_plane_current
    cluster.kubelets("n1", drivers=(HUAWEI,))
    cluster.attacher.behave(HUAWEI, Behaviour(metadata={"publishInfo": "{}"}))
    # The first of the list is the one that is refused.
    bare, name = sorted(
        ("a", "b"), key=lambda name: k8s.attachment_name(f"vol-{name}", HUAWEI, "n1")
    )
    cluster.api.add_volume(bare, HUAWEI, f"vol-{bare}")
    cluster.api.create(k8s.pod(bare, [bare], "n1"))
    workload = Workload(cluster, name, kind="StatefulSet", driver=HUAWEI)
    cluster.wait(lambda: len(attached(cluster)) == 2, "2 attachments")
    for found in attached(cluster):
        cluster.api.merge(
            path("VolumeAttachment", found["metadata"]["name"]) + "/status",
            {"status": {"attachmentMetadata": None}},
        )
    before, pods, moved = cluster.attachment_uids(), all_pods(cluster), workload.pods()
    given = {
        "attachment_repair_reattach_missing_metadata": "true",
        "attachment_repair_required_metadata": "",
    }

    none = play(cluster, attachment_repair_max_repairs=0, **given)
    assert (
        none.rc != 0
        and f"StatefulSet default/{name}" in none.text.partition("left for the next run")[2]
    ), none.text
    assert (cluster.attachment_uids(), all_pods(cluster)) == (before, pods)
    check = play(cluster, check=True, attachment_repair_max_repairs="1", **given)
    assert check.rc != 0 and "planned: evict_pod" in check.text, check.text
    assert (cluster.attachment_uids(), all_pods(cluster)) == (before, pods)
    run = play(cluster, attachment_repair_max_repairs="1", **given)
    assert run.rc != 0 and f"1 workloads could not be moved: Pod default/{bare}: " in run.text, (
        run.text
    )
    assert "has no controller that would recreate it" in run.text
    workload.wait_ready()
    assert all_pods(cluster) & pods == pods - moved
    assert workload.attachment()["status"]["attachmentMetadata"] == {"publishInfo": "{}"}
    no_trace(cluster)


def without_metadata(cluster: Cluster, *places: tuple[str, str, str]) -> list[Workload]:
    """Workloads whose attachments lack publishInfo, by namespace, name and driver."""
    for namespace in dict.fromkeys(namespace for namespace, _name, _driver in places):
        cluster.api.create(k8s.namespace(namespace))
    workloads = [
        Workload(cluster, name, driver=driver, namespace=namespace)
        for namespace, name, driver in places
    ]
    for workload in workloads:
        workload.lose_metadata()
    return workloads


def move(cluster: Cluster, workloads: list[Workload]) -> tuple[set[str], Played]:
    """The names of the workloads that the playbook has moved, and its run."""
    pods = [workload.pods() for workload in workloads]
    run = play(
        cluster,
        attachment_repair_reattach_missing_metadata="true",
        attachment_repair_required_metadata=dict.fromkeys((HUAWEI, RACK), ["publishInfo"]),
        workload_reattach_ready_timeout="15",
    )
    moved = {
        workload.name
        for workload, before in zip(workloads, pods, strict=True)
        if not workload.pods() & before
    }
    return moved, run


def test_a_tenant_whose_move_fails_keeps_no_other_out(control_plane_current: Cluster) -> None:
    """His second workload is not tried; the next run finishes what is to be done."""
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(HUAWEI,))
    cluster.attacher.behave(HUAWEI, Behaviour(metadata={"publishInfo": "{}"}))
    for name in ("a", "b"):
        cluster.attacher.behave(f"pv-{name}", Behaviour())
    workloads = without_metadata(
        cluster, ("evil", "a", HUAWEI), ("evil", "b", HUAWEI), ("shop", "c", HUAWEI)
    )
    moved, run = move(cluster, workloads)
    assert run.rc != 0 and len(moved) == 2 and "c" in moved, run.text
    text = " ".join(run.text.split())
    assert "the moves of 1 workloads failed: ReplicaSet evil/" in text, text
    assert "the driver does not publish it" in text, text
    assert f"a move in its namespace failed with the driver {HUAWEI}" in text, text
    workloads[2].wait_ready()
    assert workloads[2].attachment()["status"]["attachmentMetadata"] == {"publishInfo": "{}"}
    no_trace(cluster)

    for name in ("a", "b"):
        cluster.attacher.behave(f"pv-{name}", Behaviour(metadata={"publishInfo": "{}"}))
    moved, run = move(cluster, workloads)
    assert run.rc == 0 and moved == {"a", "b"}, run.text
    no_trace(cluster)


def test_a_driver_that_publishes_nothing_breaks_two_workloads(
    control_plane_current: Cluster,
) -> None:
    """What did not help in two namespaces is not tried in the third; another driver's is moved."""
    cluster = control_plane_current
    cluster.kubelets("n1", "n2", drivers=(HUAWEI, RACK))
    cluster.attacher.behave(RACK, Behaviour(metadata={"publishInfo": "{}"}))
    workloads = without_metadata(
        cluster,
        *((f"in-{name}", name, HUAWEI) for name in "abc"),
        ("in-d", "d", RACK),
    )
    moved, run = move(cluster, workloads)
    assert run.rc != 0 and len(moved) == 3 and "d" in moved, run.text
    text = " ".join(run.text.split())
    assert "the moves of 2 workloads failed: ReplicaSet in-" in text, text
    assert "1 workloads were not tried: ReplicaSet in-" in text, text
    assert f" failed with the driver {HUAWEI}" in text, text
    no_trace(cluster)


# STOR-13


def lose(
    cluster: Cluster, name: str = "lost", node: str = "n1", ready: bool = True
) -> faults.Attached:
    """A Deployment's volume is attached, and missing from its node's status for good."""
    api = cluster.api
    found = faults.Attached(DRIVER, f"vol-{name}", name, node, "")
    if ready:
        Workload(cluster, name, nodeSelector={"kubernetes.io/hostname": node})
    else:
        api.add_volume(name, DRIVER, f"vol-{name}")
        api.create(
            k8s.workload("Deployment", name, [name], nodeSelector={"kubernetes.io/hostname": node})
        )
    cluster.wait(lambda: found.unique_name in api.volumes_attached(node), "attached", 60)
    with faults.detach_denied(api):
        api.merge(path("Deployment", name), {"spec": {"replicas": 0}})
        faults._wait_for_failed_detach(cluster.plane, found, 90, failures=3)
        time.sleep(0.5)
        api.merge(path("Deployment", name), {"spec": {"replicas": 1}})
        cluster.wait(
            lambda: [pod for pod in api.all("Pod") if pod["spec"].get("nodeName") == node],
            "scheduled",
            10,
        )
        time.sleep(0.5)
    time.sleep(3)
    assert found.unique_name not in api.volumes_attached(node)
    return found


@pytest.mark.variation
def test_a_lost_status_is_repaired_by_moving_the_pod(control_plane_1_20: Cluster) -> None:
    cluster = control_plane_1_20
    cluster.kubelets("n1", "n2", drivers=(DRIVER,))
    found = lose(cluster)
    before = cluster.attachment_uids(), all_pods(cluster)
    report = play(cluster)
    assert report.rc != 0 and "STOR-13 major" in report.text, report.text
    check = play(cluster, check=True, attachment_repair_lost_status="reattach")
    assert check.rc == 0 and "planned: evict_pod" in check.text, check.text
    assert (cluster.attachment_uids(), all_pods(cluster)) == before
    run = play(cluster, attachment_repair_lost_status="reattach")
    assert run.rc == 0 and "done: uncordon_node n1" in run.text, run.text
    assert found.unique_name in cluster.api.volumes_attached("n1")
    assert (
        cluster.attachment_uids().keys() == before[0].keys()
        and cluster.attachment_uids() != before[0]
    )
    again = play(cluster, attachment_repair_lost_status="reattach")
    assert again.rc == 0 and "| CHANGED" not in again.text and "STOR-13 major" not in again.text, (
        again.text
    )
    no_trace(cluster)


@pytest.mark.variation
def test_a_hollow_kubelet_proceeds_after_the_pod_was_moved(control_plane_1_20: Cluster) -> None:
    """It has no CSI driver, so its pod never runs and the run says so; but it waits for the status
    no longer.
    """
    cluster = control_plane_1_20
    kubelet = cluster.hollow_kubelet("hollow")
    found = lose(cluster, node="hollow", ready=False)
    cluster.wait(
        lambda: "not attached according to node status" in kubelet.log, "the kubelet waits", 60
    )
    run = play(
        cluster, attachment_repair_lost_status="reattach", workload_reattach_ready_timeout="3"
    )
    assert (
        run.rc != 0
        and "done: uncordon_node hollow" in run.text
        and "new pods are Ready" in run.text
    ), run.text
    proceeds(cluster, found, kubelet)
    no_trace(cluster)


def proceeds(cluster: Cluster, found: faults.Attached, kubelet: Any) -> None:
    cluster.wait(
        lambda: found.unique_name in cluster.api.volumes_attached("hollow"),
        "the status is complete",
        30,
    )
    (pod,) = cluster.api.all("Pod")
    uid = pod["metadata"]["uid"]

    def lines() -> list[str]:
        return [line for line in kubelet.log.splitlines() if "MountVolume" in line and uid in line]

    cluster.wait(lines, "the kubelet goes on to the mount", 130)


@pytest.fixture(scope="module")
def elected() -> Iterator[ControlPlane]:
    """A control plane whose controller manager holds a lease, so that its leader has a name."""
    plane = ControlPlane(
        f"elected-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}-{os.getpid()}",
        OLD,
        leader_elect=True,
    )
    plane.start()
    yield plane
    plane.remove()


@pytest.fixture
def led(elected: ControlPlane) -> Iterator[Cluster]:
    """The cluster of it; its controller manager is started again when it ends, as a kubelet does
    with a static pod.
    """
    for cluster in fresh(elected):
        elected.supervise()
        yield cluster
        elected.unsupervise()


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    """Our playbook with the host of the control plane, which is this one, in the inventory."""
    book = tmp_path / "play.yml"
    book.write_text(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
        f"    - ansible.builtin.add_host: {{name: {socket.gethostname()}, ansible_connection: "
        f"local}}\n"
        f"- import_playbook: storage_ops.runbooks.{PLAYBOOK}\n"
    )
    return str(book)


def test_a_lost_status_is_repaired_by_a_restart_of_the_leader(led: Cluster, inventory: str) -> None:
    """SIGTERM to exactly that process; a hollow kubelet proceeds."""
    kubelet = led.hollow_kubelet("hollow")
    found = lose(led, node="hollow", ready=False)
    cluster_manager = led.plane.processes["kube-controller-manager"]
    old, before = cluster_manager.pid, cluster_manager.pid
    uids = led.attachment_uids(), all_pods(led)
    ours = rf"^[^ ]*kube-controller-manager .*--kubeconfig={led.plane.folder}/"
    given = {
        "attachment_repair_lost_status": "restart_leader_for_one_node",
        "ansible_become": False,
        "attachment_repair_leader_process": ours,
    }

    one = play(led, name=inventory, **{**given, "attachment_repair_lost_status": "restart_leader"})
    assert one.rc != 0 and "the status of hollow alone" in " ".join(one.text.split()), one.text
    assert cluster_manager.pid == old
    check = play(led, check=True, name=inventory, **given)
    assert check.rc == 0 and "A restart makes it read the world again" in check.text, check.text
    assert cluster_manager.pid == old
    run = play(led, name=inventory, **given)
    assert run.rc == 0, run.text
    assert "no volume is missing from the status of its node" in run.text
    assert cluster_manager.pid not in (None, before)
    proceeds(led, found, kubelet)
    assert (led.attachment_uids(), all_pods(led)) == uids
    again = play(led, name=inventory, **given)
    assert again.rc == 0 and again.text.count("| CHANGED") == 1, "add_host is the only change"
    assert "STOR-13 major" not in again.text


@pytest.mark.variation
def test_a_restart_by_a_command(led: Cluster, tmp_path: Path) -> None:
    led.kubelets("n1", "n2", drivers=(DRIVER,))
    lose(led)
    process = led.plane.processes["kube-controller-manager"]
    old = process.pid
    given = {"attachment_repair_lost_status": "restart_leader_for_one_node"}
    lost = play(led, **given)
    assert lost.rc != 0 and "Add the host to the inventory" in lost.text, lost.text
    assert process.pid == old
    command = [sys.executable, "-c", f"import os, signal; os.kill({old}, signal.SIGTERM)"]
    check = play(led, check=True, attachment_repair_restart_command=command, **given)
    assert check.rc == 0 and process.pid == old, check.text
    run = play(led, attachment_repair_restart_command=command, **given)
    assert run.rc == 0 and "no volume is missing" in run.text, run.text
    assert process.pid not in (None, old)


# STOR-12


def provisioner(args: list[str] | None) -> dict[str, Any]:
    made = k8s.workload("Deployment", "unity-controller", namespace="csi-unity")
    containers = made["spec"]["template"]["spec"]["containers"]
    containers.append(
        {"name": "csi-provisioner", "image": "lab", **({"args": args} if args is not None else {})}
    )
    return made


HANDLE = "{}-0123456789-iSCSI-fnm00153800463-sv_99"


@pytest.mark.parametrize(
    ("fixture", "prefix", "args", "wanted"),
    [
        ("control_plane_1_20", "pvc", None, ["--volume-name-prefix=pvcxxxxxxxx"]),
        variation(
            "control_plane_1_20",
            "csivol",
            ["--volume-name-prefix", "csivol"],
            ["--volume-name-prefix", "csivolxxxxx"],
        ),
        variation(
            "control_plane_current", "pvc", ["--v=5"], ["--v=5", "--volume-name-prefix=pvcxxxxxxxx"]
        ),
        (
            "control_plane_current",
            "csivol",
            ["--volume-name-prefix=csivol", "--v=5"],
            ["--volume-name-prefix=csivolxxxxx", "--v=5"],
        ),
    ],
)
def test_the_prefix_of_new_volumes(
    request: pytest.FixtureRequest,
    fixture: str,
    prefix: str,
    args: list[str] | None,
    wanted: list[str],
) -> None:
    """Check, run, run again.

    With one digit at its end "pvc-..." is 61 bytes long, "csivol-..." 64.
    """
    cluster: Cluster = request.getfixturevalue(fixture)
    cluster.api.create(k8s.namespace("csi-unity"), provisioner(args))
    cluster.api.add_volume("old", RACK, HANDLE.format(prefix))
    where = {"namespace": "csi-unity", "name": "unity-controller"}
    given = {
        **QUICK,
        "attachment_repair_provisioner": {"driver": RACK, **where, "container": "csi-provisioner"},
    }

    def play(check: bool = False, user: User = PROVISIONING) -> Played:
        return cluster.playbook(PLAYBOOK, check, user=user, **given)

    def now() -> list[str] | None:
        found = cluster.api.find("Deployment", "unity-controller", "csi-unity") or {}
        result: list[str] | None = found["spec"]["template"]["spec"]["containers"][1].get("args")
        return result

    refused = play(user=REPAIR)
    assert refused.rc != 0 and "rbac-repair-provisioner.yml" in refused.text, refused.text
    assert now() == args
    check = play(check=True)
    assert check.rc == 0 and "| CHANGED" in check.text, check.text
    assert now() == args
    run = play()
    assert run.rc == 0 and "| CHANGED" in run.text, run.text
    assert now() == wanted
    again = play()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    assert now() == wanted
    cluster.used(
        "rbac-repair-provisioner.yml",
        "get deployments csi-unity/unity-controller",
        "patch deployments csi-unity/unity-controller",
        refused=True,
    )


def test_the_prefix_in_a_custom_resource(control_plane_current: Cluster) -> None:
    """Any object will do: here a ConfigMap, which the shipped rights do not cover."""
    cluster = control_plane_current
    cluster.api.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "rack", "annotations": {"rack/prefix": "csivol"}},
        }
    )
    named: dict[str, Any] = {
        "driver": RACK,
        "api_version": "v1",
        "kind": "ConfigMap",
        "namespace": "default",
        "name": "rack",
        "path": "/metadata/annotations/rack~1prefix",
    }
    named["handles"] = [HANDLE.format("csivol")]
    # A survey sends it as text.
    for given, changed in ((json.dumps(named), True), (named, False)):
        run = cluster.playbook(PLAYBOOK, user="admin", **QUICK, attachment_repair_provisioner=given)
        assert run.rc == 0 and ("| CHANGED" in run.text) == changed, run.text
        assert (cluster.api.find("ConfigMap", "rack") or {})["metadata"]["annotations"] == {
            "rack/prefix": "csivolxxxxx"
        }


# the target


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "Say where to look"),
        ({"target": "n1,all"}, "Say where to look"),
        ({"target": "n*"}, "Say where to look"),
        ({"target": "n1", "attachment_repair_nodes": "n2"}, "does not read attachment_repair"),
    ],
)
def test_without_a_target_nothing_is_looked_at(
    control_plane_current: Cluster, given: dict[str, str], word: str
) -> None:
    proxy = control_plane_current.proxy()
    run = control_plane_current.playbook(PLAYBOOK, user=REPAIR, proxy=proxy, **given)
    assert run.rc != 0 and word in " ".join(run.text.split()), run.text
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (
            {"attachment_repair_lost_status": "restart"},
            "must be one of report, reattach, restart_leader",
        ),
        (
            {"attachment_repair_reattach_missing_metadata": "flase"},
            "must be true or false, not 'flase'",
        ),
    ],
)
def test_misspelt_words_stop_the_run(
    control_plane_current: Cluster, given: dict[str, str], word: str
) -> None:
    run = play(control_plane_current, **given)
    assert run.rc != 0 and word in run.text


def test_a_part_of_the_cluster_is_target_enough(control_plane_current: Cluster) -> None:
    control_plane_current.kubelets("n1", "n2")
    run = control_plane_current.playbook(PLAYBOOK, user=REPAIR, target="n1, n2")
    assert run.rc == 0, run.text
