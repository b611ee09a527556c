# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubernetes 1.20.2 with its own kubelets on VM nodes: volumes are staged by another path, and the
controller manager has the bugs of its time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.ceph.cluster import Ceph
from lab.kubelet.cluster import Kubelets
from lab.kubelet.csi import RbdDriver
from lab.kubernetes import faults
from lab.kubernetes.api import path
from lab.kubernetes.build import OLD
from lab.kubernetes.controlplane import lost_after
from support.cluster import Played
from support.failover import NODE_A, NODE_B, RBD
from support.fencing import OUT_OF_SERVICE, Fencing
from support.fixtures import own_name, start_if_it_can_be_had
from support.kind import on, projecting
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene, counting
from support.reattach import REPAIR, no_trace
from support.storage import Storage

OWN = "kubelets-1-20"
# All that an event says; the kubelet's log says more.
WAITS = "Unable to attach or mount volumes: unmounted volumes=[db]"


@pytest.fixture(scope="module")
def kubelets() -> Iterator[Kubelets]:
    """Two nodes, with the CSI driver, its real external-attacher, and a Ceph."""
    ceph = Ceph(own_name(OWN))
    ceph.start()
    found = Kubelets(
        own_name(OWN),
        ceph,
        (NODE_A, NODE_B),
        machines=f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}-1-20",
        version=OLD,
        controller_manager_args=lost_after(90),
    )
    start_if_it_can_be_had("VM nodes with kubelets of 1.20.2", found.start)
    start_if_it_can_be_had("the CSI driver", RbdDriver(found).start)
    # It started when no node was Ready. Without a restart it evicts no pod from a node lost later.
    found.restart_controller_manager()
    yield found
    found.remove()
    ceph.remove()


@pytest.fixture
def scene(kubelets: Kubelets) -> KubeletScene:
    """The nodes for one test."""
    return KubeletScene(kubelets, Storage(kubelets.ceph))


@pytest.mark.variation
def test_nothing_is_found_and_a_lost_status_is_repaired(
    scene: KubeletScene, tmp_path: Path
) -> None:
    cluster, api = scene.cluster, scene.api
    scene.deploy("db", **projecting(counting("db"), "db"), **on(NODE_A), grace=1)
    scene.writes_on()
    assert "/kubernetes.io/csi/pv/pv-db/globalmount" in scene.vm().run("cat /proc/mounts").stdout
    played, report = scene.compliance(tmp_path / "healthy")
    assert report["findings"] == [] and played.rc == 0, played.text

    handle = api.call("GET", path("PersistentVolume", "pv-db"))["spec"]["csi"]["volumeHandle"]
    lost = faults.Attached(RBD, handle, "db", NODE_A, "")
    where = path("Deployment", "db")
    with faults.detach_denied(api):
        api.merge(where, {"spec": {"replicas": 0}})
        # As lost_attachment: between two attempts of the controller to detach it.
        faults._wait_for_failed_detach(scene.kubelets, lost, POD_DEADLINE, failures=3)
        time.sleep(0.5)
        api.merge(where, {"spec": {"replicas": 1}})
        cluster.wait(lambda: scene.pods(NODE_A), "scheduled", 10)
        time.sleep(0.5)
    # After two minutes.
    told = 3 * POD_DEADLINE
    cluster.wait(lambda: any(WAITS in said for said in scene.told()), "it waits", told)
    assert lost.unique_name not in api.volumes_attached(NODE_A)
    written = scene.acknowledged()

    triage = cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds="1")
    assert "STOR-13 major: pod default/db-" in triage.text, triage.text
    _played, report = scene.compliance(tmp_path / "lost")
    found = [(finding["host"], finding["control"]) for finding in report["findings"]]
    assert found == [("cluster", "STOR-13")], report["findings"]

    def play(check: bool = False) -> Played:
        asked = {"target": NODE_A, "attachment_repair_lost_status": "reattach"}
        return cluster.playbook("repair_volumeattachments", check, user=REPAIR, **asked)

    (waiting,) = scene.pods()
    check = play(check=True)
    assert check.rc == 0 and "planned: evict_pod" in check.text, check.text
    assert [pod["metadata"]["uid"] for pod in scene.pods()] == [waiting["metadata"]["uid"]]
    run = play()
    assert run.rc == 0 and f"done: uncordon_node {NODE_A}" in run.text, run.text
    assert lost.unique_name in api.volumes_attached(NODE_A)
    scene.wait_running(NODE_A, seconds=POD_DEADLINE)
    scene.wait_written(written, NODE_A)
    numbers = [line.number for line in scene.lines(NODE_A)]
    assert numbers == list(range(1, len(numbers) + 1))
    again = play()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    no_trace(cluster)
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text

    # Driver and kubelet can do with what is left.
    api.delete(where)
    cluster.wait(lambda: scene.attachment() is None, "db is detached", POD_DEADLINE)
    scene.wait_unmapped()


@pytest.mark.variation
def test_a_lost_node_fails_over_without_the_taint(scene: KubeletScene) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()
    scene.count()
    # This kubelet stops waiting for a volume after two minutes, and tries again later.
    longer = {"volume_failover_ready_timeout": "300"}
    last, first = scene.fail_over(lambda: fencing.fail_over(**longer))
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"}
    # This release does not know the taint.
    assert fencing.cordoned and OUT_OF_SERVICE not in scene.taints()

    scene.heal()
    scene.wait_back(seconds=180)
    scene.inventory(fencing.inventory)
    scene.wait_unmapped()
    fencing.let_go()
    # Not one write of A has come after B's first.
    assert scene.acknowledged() == last and scene.moved_once() == first
    scene.move_back()
