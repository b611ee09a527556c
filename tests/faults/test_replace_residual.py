# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod that hangs since residual disks on its node hide the new LUN (R7): a real control plane,
and a real node under the same name.

There is no kubelet on the node. A stand-in for it, and for a Fibre Channel driver's NodeStage, asks
the node's real kernel for the LUN.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes.api import Api, Object, path
from lab.kubernetes.kubelets import KubeletStandIn
from support.cluster import LOCAL, Cluster, Played
from support.node import COLLECTION, QUICK, Node, remote_environment
from support.reattach import DRIVER, REPAIR, no_trace

NODE = "node1"
NOT_FOUND = (
    'MountVolume.MountDevice failed for volume "pv-web" : rpc error: code = Internal desc '
    "= Fibre Channel volume device not found"
)
SURVEY = {
    "replace_hosts": "",
    "replace_stuck_seconds": "1",
    "replace_mount_timeout": "20",
    "residual_paths_observations": str(QUICK["observations"]),
    "residual_paths_observation_seconds": str(QUICK["observation_seconds"]),
    "residual_paths_rescan_targets": "true",
    "residual_paths_strict": "",
    "workload_reattach_scale_down": "false",
}


class Stager(KubeletStandIn):
    """Runs a pod once the node's kernel has the disk that its volume is; until then it says what a
    driver says, and tries again.
    """

    def __init__(self, api: Api, node: Node, lun: int, wwid: str) -> None:
        super().__init__(api, [NODE])
        self.node, self.lun, self.wwid = node, lun, wwid
        # Pods that are tried only once, as by a driver that remembers its failure.
        self.sulks: set[str] = set()
        self._waiting: dict[str, Object] = {}
        self._staged: set[str] = set()
        # The node may be slow, and the heartbeats must go on.
        self._driver = threading.Thread(target=self._stage_pods, name="driver", daemon=True)

    def start(self) -> None:
        """Both threads."""
        super().start()
        self._driver.start()

    def stop(self) -> None:
        """Both end."""
        super().stop()
        self._driver.join()

    def _run(self, pod: Object) -> None:
        if pod["metadata"]["uid"] in self._staged:
            super()._run(pod)
        else:
            self._waiting[pod["metadata"]["uid"]] = pod

    def _stage_pods(self) -> None:
        tried: set[str] = set()
        while not self._stop.wait(4):
            for uid, pod in list(self._waiting.items()):
                if uid in self._staged or (uid in tried and uid in self.sulks):
                    continue
                tried.add(uid)
                if self._stage():
                    self._staged.add(uid)
                else:
                    self.api.create(
                        k8s.event(
                            {**pod, "apiVersion": "v1", "kind": "Pod"}, "FailedMount", NOT_FOUND
                        )
                    )

    def _stage(self) -> bool:
        """As drivers do: scan for the LUN at each target, then look for a disk of that name."""
        scan = (
            f"for host in $(ls /sys/class/iscsi_host); do echo '0 0 {self.lun}' > "
            "/sys/class/scsi_host/$host/scan; done"
        )
        return (
            self.node.sh(
                f"{scan}; cat /sys/block/sd*/device/wwid 2>/dev/null | grep -c naa.{self.wwid[1:]}",
                check=False,
            )
            != "0"
        )


class Scene:
    """LUN 2 was detached and left its disks behind; the array has given its number to the volume of
    a new pod, which hangs.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        ends: contextlib.ExitStack,
        mounted: bool = False,
        bare: bool = False,
    ) -> None:
        self.cluster, self.node = cluster, node
        self.map, self.wwid = node.map_of(2)
        if mounted:
            node.sh(
                f"mkfs.ext4 -q /dev/mapper/{self.map} && mkdir -p /mnt/a && mount "
                f"/dev/mapper/{self.map} /mnt/a"
            )
        self.other = node.labctl("lun new fresh 48 FRESH").split()[-1]
        node.labctl("lun unmap 2")
        node.labctl("lun map 2 fresh")
        cluster.api.add_node(NODE, DRIVER)
        self.stager = ends.enter_context(Stager(cluster.api, node, 2, self.other))
        cluster.api.add_volume("web", DRIVER, "vol-web")
        spec = k8s.pod("web", ["web"], NODE) if bare else k8s.workload("Deployment", "web", ["web"])
        cluster.api.create(spec)
        cluster.wait(
            lambda: any(event["message"] == NOT_FOUND for event in cluster.api.all("Event")),
            "the pod hangs",
            60,
        )

    def pods(self) -> dict[str, tuple[str, str]]:
        """Name -> (uid, phase)."""
        found = self.cluster.api.all("Pod", "default")
        return {
            pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["phase"])
            for pod in found
        }

    def play(self, check: bool = False, **extra: Any) -> Played:
        """The playbook, as AWX runs it: both inventories, all answers as strings."""
        (name,) = self.pods()
        command = [
            "ansible-playbook",
            f"{COLLECTION}.replace_residual_volume",
            *LOCAL[:2],
            "-i",
            str(self.node.vm.inventory()),
        ]
        command += [
            "-e",
            json.dumps({**SURVEY, "target": f"default/{name}\n", **extra}),
            *(["--check"] if check else []),
        ]
        settings = {
            **remote_environment(),
            "K8S_AUTH_KUBECONFIG": str(self.cluster.kubeconfig(REPAIR)),
        }
        return Played.of(command, settings)

    def refused(self, *said: str, **extra: Any) -> str:
        """It fails with these words, and changes neither the node nor the pod."""
        before = self.pods(), self.node.shape(), self.cluster.attachment_uids()
        for check in (True, False):
            run = self.play(check, **extra)
            assert run.rc != 0, run.text
            for words in said:
                assert words in run.text, run.text
            assert (self.pods(), self.node.shape(), self.cluster.attachment_uids()) == before
            no_trace(self.cluster)
        return run.text


@pytest.fixture
def make_scene(control_plane_1_20: Cluster, node: Node) -> Iterator[Callable[..., Scene]]:
    """Set it up; its kubelet ends with the test."""
    control_plane_1_20.api.create(k8s.csi_driver(DRIVER))
    with contextlib.ExitStack() as ends:
        yield lambda **options: Scene(control_plane_1_20, node, ends, **options)


@pytest.mark.variation
def test_hidden_lun(make_scene: Callable[..., Scene]) -> None:
    """Planned, done, proven, and nothing left to do.

    The pod need not be recreated: the kubelet tries again by itself.
    """
    scene = make_scene()
    cluster, node = scene.cluster, scene.node
    before, shape = scene.pods(), node.shape()
    ((name, (uid, _phase)),) = before.items()
    planned = scene.play(check=True)
    assert planned.rc == 0, planned.text
    assert f"planned: flush_map {scene.map}" in planned.text
    assert planned.text.count("planned: replace_path") == 2
    assert planned.text.count("planned: scan_target") == 2
    assert f"planned: evict_pod default/{name}" in planned.text
    assert (scene.pods(), node.shape()) == (before, shape)
    no_trace(cluster)

    done = scene.play()
    assert done.rc == 0, done.text
    assert f"done: flush_map {scene.map}" in done.text
    assert "Running and Ready" in done.text
    assert "done: evict_pod" not in done.text
    # The node was changed, and nothing else.
    assert [line for line in done.text.splitlines() if "| CHANGED" in line] == [
        "node1 | CHANGED => {"
    ]
    assert scene.pods() == {name: (uid, "Running")}
    assert scene.wwid not in node.state()["maps"]
    node.wait(
        lambda: len(node.state()["maps"].get(scene.other, {}).get("paths", [])) == 2,
        "the new LUN has a map of its own",
    )
    no_trace(cluster)

    again = scene.play()
    assert again.rc == 0, again.text
    assert "Running and Ready" in again.text
    assert "| CHANGED" not in again.text
    assert "Clean residual maps and disks" not in again.text


@pytest.mark.variation
def test_pod_that_needs_to_be_made_anew(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    cluster = scene.cluster
    ((name, (uid, _phase)),) = scene.pods().items()
    scene.stager.sulks.add(uid)
    done = scene.play(replace_mount_timeout="5", replace_hosts=json.dumps({NODE: "node1"}))
    assert done.rc == 0, done.text
    assert f"done: evict_pod default/{name}" in done.text
    ((new, (new_uid, phase)),) = scene.pods().items()
    assert (new != name, new_uid != uid, phase) == (True, True, "Running")
    no_trace(cluster)


def test_mounted_map_is_refused_and_the_pod_left_alone(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(mounted=True)
    scene.refused("mounted at /mnt/a", "the pod was not touched")
    # Somebody who takes refusals for unimportant does not get around it.
    scene.refused("the pod was not touched", residual_paths_strict="false")


@pytest.mark.variation
def test_refused_before_the_node_is_touched(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    cluster = scene.cluster
    scene.refused("is not in the inventory as worker01", replace_hosts={NODE: "worker01"})
    scene.refused("target is required", target="")
    scene.refused("does not exist", target="default/web-0")
    scene.refused(
        "replace_mount_timeout must be whole seconds, not soon", replace_mount_timeout="soon"
    )
    # The node's kubelet has given up.
    scene.stager.stop()
    cluster.api.heartbeat(NODE, ready="False")
    assert "Clean residual maps and disks" not in scene.refused("is not Ready")


@pytest.mark.variation
def test_pod_that_nobody_would_make_again(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(bare=True)
    text = scene.refused("has no controller that would recreate it")
    assert "Clean residual maps and disks" not in text


@pytest.mark.variation
def test_unscheduled_pod(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    cluster, node = scene.cluster, scene.node
    cluster.api.merge(path("Node", NODE), {"spec": {"unschedulable": True}})
    (name,) = scene.pods()
    cluster.api.delete(path("Pod", name), grace=0)
    cluster.wait(
        lambda: name not in scene.pods() and len(scene.pods()) == 1, "another pod waits for a node"
    )
    time.sleep(1.2)
    before, shape = scene.pods(), node.shape()
    run = scene.play()
    assert run.rc != 0 and "this playbook is not for it" in run.text, run.text
    assert (scene.pods(), node.shape()) == (before, shape)


@pytest.mark.variation
def test_scan_finds_what_was_hidden_and_leaves_no_finding(node: Node) -> None:
    """The module alone: another LUN number, which nobody has scanned for yet."""
    node.labctl("lun new fresh 48 FRESH")
    node.unmap(2)
    other = node.labctl("lun map 7 fresh").split()[-1]
    shape = node.shape()
    planned = node.residual(check=True, rescan_targets=True)
    assert [verb for verb, _outcome in planned.outcomes] == [
        "flush_map",
        "delete_path",
        "delete_path",
        "scan_target",
        "scan_target",
    ]
    assert node.shape() == shape
    run = node.residual(rescan_targets=True)
    assert not run.failed, run.msg
    assert run.outcomes[-2:] == [("scan_target", "done")] * 2
    proof = run.findings[0]["evidence"]["proof"]
    assert sum(f", {other})" in sentence for sentence in proof) == 2, proof
    node.gone(2)
    node.wait(
        lambda: len(node.state()["maps"].get(other, {}).get("paths", [])) == 2,
        "the new LUN has a map",
    )
    for check in (False, True):
        again = node.residual(check=check, rescan_targets=True)
        assert (again.findings, again.changed) == ([], False)


@pytest.mark.variation
def test_scan_that_brings_nothing(node: Node) -> None:
    node.unmap(2)
    run = node.residual(rescan_targets=True)
    assert not run.failed, run.msg
    assert (
        sum(
            sentence.endswith("which brought nothing new")
            for sentence in run.findings[0]["evidence"]["proof"]
        )
        == 2
    )
    node.gone(2)
    assert node.residual(rescan_targets=True).findings == []
