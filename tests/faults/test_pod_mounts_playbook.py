# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook repair_pod_mounts: a real control plane and a real node of one name, where a
stand-in for the kubelet mounts the volume.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from faults.test_pod_mounts import Mounts, volumes
from faults.test_pod_mounts_readonly import turn
from lab.kubernetes import api as k8s
from lab.kubernetes.api import Api, Object
from lab.kubernetes.kubelets import KubeletStandIn
from support.cluster import LOCAL, Cluster, Played
from support.fixtures import control_plane_current, plane_current
from support.node import COLLECTION, PATIENT, Node, remote_environment
from support.reattach import REPAIR, no_trace

__all__ = ["control_plane_current", "plane_current", "volumes"]

NODE = "node1"
# As the kubelet of the node notes it.
DRIVER = "csi.huawei.com"
VOLUME = "pv-web"
SURVEY = {
    "target": "node1",
    "batch": "",
    "pod_mounts_volumes": "",
    "pod_mounts_max_repairs": "",
    # Its volume is the node's only one.
    "pod_mounts_accept_majority": "true",
    "pod_mounts_strict": "false",
    "pod_mounts_options": json.dumps(PATIENT),
    "workload_reattach_scale_down": "",
}


class Kubelet(KubeletStandIn):
    """Mounts the volume for each pod that it runs, in which a process of the pod is at work;
    unmounts it before it calls it unused.
    """

    def __init__(self, api: Api, mounts: Mounts) -> None:
        super().__init__(api, [NODE])
        self.mounts = mounts
        # Uid of a pod -> its process on the node.
        self.running: dict[str, int] = {}

    def point(self, uid: str) -> str:
        """Where a pod has the volume."""
        return self.mounts.point_of(uid, VOLUME)

    def _run(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if not self.running:
            self.mounts.csi(f"stage {VOLUME} {self.mounts.devices[1]}")
        self.mounts.csi(f"publish {uid} {VOLUME}")
        self.running[uid] = self.mounts.pod(uid, self.point(uid))
        super()._run(pod)

    def _report(self, name: str, volumes: set[str]) -> None:
        for uid in set(self.running) - set(self._mounted[name]):
            self.mounts.node.sh(
                f"kill {self.running[uid]}; while [ -e "
                f"/proc/{self.running[uid]}/root/proc ]; do :; done"
            )
            self.mounts.csi(f"unpublish {uid} {VOLUME}")
            del self.running[uid]
            if not self.running:
                self.mounts.csi(f"unstage {VOLUME}")
        super()._report(name, volumes)


class Scene:
    """A Deployment whose pod runs on the node, with its volume mounted."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster, self.node = cluster, node
        self.mounts = Mounts(node, flaky=(1, 2), volumes=False)
        cluster.api.create(k8s.csi_driver(DRIVER))
        cluster.api.add_node(NODE, DRIVER)
        self.kubelet = Kubelet(cluster.api, self.mounts)
        self.kubelet.start()
        cluster.api.add_volume("web", DRIVER, f"vol-{VOLUME}")
        cluster.api.create(k8s.workload("Deployment", "web", ["web"]))
        cluster.wait(lambda: bool(self.kubelet.running), "the pod runs on the node", 60)

    @property
    def pod(self) -> str:
        """Uid of the pod."""
        (uid,) = tuple(self.kubelet.running)
        return uid

    @property
    def point(self) -> str:
        """Where it has the volume."""
        return self.kubelet.point(self.pod)

    def play(self, check: bool = False, reattach: str = "true", **extra: Any) -> Played:
        """The playbook, as AWX runs it: all answers as strings."""
        command = [
            "ansible-playbook",
            f"{COLLECTION}.repair_pod_mounts",
            *LOCAL[:2],
            "-i",
            str(self.node.vm.inventory()),
        ]
        command += [
            "-e",
            json.dumps({**SURVEY, "pod_mounts_reattach": reattach, **extra}),
            *(["--check"] if check else []),
        ]
        settings = {
            **remote_environment(),
            "K8S_AUTH_KUBECONFIG": str(self.cluster.kubeconfig(REPAIR)),
        }
        return Played.of(command, settings)


@pytest.fixture
def scene(control_plane_current: Cluster, volumes: Node) -> Iterator[Scene]:
    """See Scene; its kubelet ends with the test."""
    scene = Scene(control_plane_current, volumes)
    yield scene
    scene.kubelet.stop()


def test_volume_that_turned_read_only(scene: Scene) -> None:
    """Refused while the error lasts; then the workload is moved: planned, refused without leave,
    done.
    """
    cluster, mounts, node = scene.cluster, scene.mounts, scene.node
    first = scene.pod
    node.sh(f"touch {scene.point}/data && sync -f {scene.point}")
    mounts.break_device(1)
    turn(mounts, scene.point)
    refused = scene.play()
    assert refused.rc != 0 and "cannot be read: Input/output error" in refused.text, refused.text
    mounts.mend_device(1)
    planned = scene.play(check=True)
    assert planned.rc == 0, planned.text
    assert "STOR-08 critical: volume filesystem" in planned.text
    assert "planned: evict_pod default/web-" in planned.text
    # Without leave to move it, it is left.
    left = scene.play(reattach="")
    assert left.rc == 2 and "| CHANGED" not in left.text and "1 left: node1: " in left.text, (
        left.text
    )
    assert scene.pod == first
    no_trace(cluster)

    done = scene.play()
    assert done.rc == 0, done.text
    assert "done: evict_pod default/web-" in done.text
    assert "none wrong or read-only by error" in done.text
    cluster.wait(lambda: bool(scene.kubelet.running), "the pod is back", 60)
    assert scene.pod != first
    node.sh(f"echo written > {scene.point}/data")
    no_trace(cluster)


@pytest.mark.variation
def test_wrong_mount_in_use(scene: Scene) -> None:
    """Another volume lies on it while its container runs: refused without leave, moved,
    and proven.
    """
    cluster, mounts, node = scene.cluster, scene.mounts, scene.node
    first = scene.pod
    node.sh(f"echo written > {scene.point}/data")
    node.sh(
        f"mkdir -p /mnt/b && mount {mounts.devices[2]} /mnt/b && mount --make-private "
        f"{scene.point} && mount --bind /mnt/b {scene.point}"
    )
    old = scene.point
    named = scene.play(reattach="false", pod_mounts_volumes=VOLUME)
    assert named.rc != 0 and "of a container of the pod runs" in named.text, named.text
    assert (scene.pod, mounts.layers(old)) == (first, 2)
    done = scene.play(pod_mounts_volumes=f"{VOLUME}\n")
    assert done.rc == 0, done.text
    assert "done: evict_pod default/web-" in done.text
    cluster.wait(lambda: bool(scene.kubelet.running), "the pod is back", 60)
    assert (mounts.layers(old), node.sh(f"cat {scene.point}/data")) == (0, "written")
    second = scene.pod
    no_trace(cluster)

    again = scene.play()
    assert again.rc == 0 and "none wrong or read-only by error" in again.text, again.text
    assert "evict_pod" not in again.text
    assert scene.pod == second


@pytest.mark.variation
def test_a_workload_that_cannot_be_moved_keeps_no_other_from_it(scene: Scene) -> None:
    """The first of two volumes that turned read-only is none of this cluster's."""
    mounts, node, first = scene.mounts, scene.node, scene.pod
    uid = "0a1b2c3d-1111-2222-3333-444455556666"
    mounts.csi(f"stage pv-a {mounts.devices[2]} , publish {uid} pv-a")
    other = mounts.point_of(uid, "pv-a")
    for number, point in ((1, scene.point), (2, other)):
        node.sh(f"touch {point}/data && sync -f {point}")
        mounts.break_device(number)
        turn(mounts, point)
        mounts.mend_device(number)
    run = scene.play()
    assert run.rc != 0, run.text
    assert "left: node1: volume pv-a: its workload was not moved: The cluster has no" in run.text
    assert "done: evict_pod default/web-" in run.text, run.text
    scene.cluster.wait(lambda: bool(scene.kubelet.running), "the pod is back", 60)
    assert scene.pod != first
    node.sh(f"echo written > {scene.point}/data")
    no_trace(scene.cluster)


@pytest.mark.variation
def test_another_cluster(scene: Scene) -> None:
    """It has a volume of that name, and it is not the one that the node has."""
    mounts = scene.mounts
    uid = scene.pod
    note = f"{scene.point.rpartition('/')[0]}/vol_data.json"
    staging = mounts.staging_of(VOLUME)
    moved = staging.replace(
        staging.split("/")[-2], scene.node.sh("printf other | sha256sum").split()[0]
    )
    scene.node.sh(
        f"sed -i 's/vol-pv-web/other/' {note}; mkdir -p {moved} && mount --bind {staging} {moved}"
    )
    scene.node.sh(f"mount --make-private {scene.point} && mount --bind /mnt {scene.point}")
    run = scene.play()
    assert run.rc != 0 and "is this the cluster that the node belongs to?" in run.text, run.text
    assert scene.pod == uid
    scene.node.sh(f"umount {scene.point} {moved}; sed -i 's/other/vol-pv-web/' {note}")
