# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dead FUSE mounts from end to end (R5): a real control plane, and a real node under the same name
with a real FUSE server.

There is no kubelet on the node. A stand-in for it mounts and unmounts volumes there as pods come
and go in the API.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes.api import Api, Object, path
from lab.kubernetes.kubelets import KubeletStandIn
from lab.vm import Vm
from support.cluster import LOCAL, Cluster, Played
from support.containers import Pod, Runtime, mount, runtime
from support.fixtures import fresh_node
from support.mounts import DRIVER, Kubelet, Volume, bindfs, die, layers
from support.node import COLLECTION, REMOUNT, Node, remote_environment
from support.reattach import REPAIR, no_trace

NODE = "node1"
SECRET = "7b8c2f1eplanted"
# As from a survey: texts.
SURVEY = {
    "target": NODE,
    "fuse_recovery_read_cluster": "true",
    "fuse_recovery_provisioners": DRIVER,
    "fuse_recovery_drivers": json.dumps(
        {DRIVER: {"command": ["bindfs", "-f", "{source}", "{target}"], "sources": ["/srv/web"]}}
    ),
    "fuse_recovery_restart_pods": "",
    "fuse_recovery_max_repairs": "5",
    # Its volume is the node's only one.
    "fuse_recovery_accept_majority": "true",
    "fuse_recovery_options": json.dumps(REMOUNT),
}


class Mounter(KubeletStandIn):
    """Besides what a kubelet says, what it does on one node: it ends the containers of pods that
    go, and unmounts their volume.
    """

    def __init__(self, api: Api, nodes: list[str], scene: Scene) -> None:
        super().__init__(api, nodes)
        self._scene = scene
        self._going: dict[str, Object] = {}
        # The node may be slow, and the heartbeats must go on.
        self._worker = threading.Thread(target=self._work, name="mounter", daemon=True)

    def start(self) -> None:
        """Both threads."""
        super().start()
        self._worker.start()

    def stop(self) -> None:
        """Both end."""
        super().stop()
        self._worker.join()

    def _remove(self, pod: Object) -> None:
        if pod["spec"]["nodeName"] == NODE:
            self._going[pod["metadata"]["uid"]] = pod
        else:
            super()._remove(pod)

    def _work(self) -> None:
        while not self._stop.wait(1):
            for uid, pod in list(self._going.items()):
                if self._scene.unmounted(uid):
                    del self._going[uid]
                    super()._remove(pod)


class Scene:
    """A workload with a FUSE volume on the node, and a second node for it to go to."""

    def __init__(self, cluster: Cluster, node: Node, ends: contextlib.ExitStack) -> None:
        node.guarded = False
        self.cluster, self.node, self.api = cluster, node, cluster.api
        self.api.create(k8s.csi_driver(DRIVER, attach_required=False))
        for name in (NODE, "n2"):
            self.api.add_node(name, DRIVER)
        self.published: dict[str, tuple[Volume, str]] = {}
        ends.enter_context(Mounter(self.api, [NODE, "n2"], self))
        secret: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s3", "namespace": "default"},
        }
        self.api.create({**secret, "stringData": {"accessKeyID": "AK", "secretAccessKey": SECRET}})
        self.server, self.uid, self.pod, self.volume = self.add("web")
        self.point = self.published[self.uid][1]
        self.main: Pod | None = None

    def add(self, name: str) -> tuple[int, str, str, Volume]:
        """A workload with a volume of its own, on the node: the server's pid, the pod's uid and
        name, and the volume.
        """
        mine = Volume(Kubelet(self.node), f"pv-{name}")
        volume, claim = k8s.volume(name, DRIVER, mine.handle, modes=("ReadWriteMany",))
        volume["spec"]["csi"]["nodeStageSecretRef"] = {"namespace": "default", "name": "s3"}
        self.api.merge(path("Node", "n2"), {"spec": {"unschedulable": True}})
        self.api.create(volume, claim, k8s.workload("Deployment", name, [name], grace=30))
        uid, pod = self.cluster.wait(lambda: self._running(name), "the pod runs", 60)
        self.api.merge(path("Node", "n2"), {"spec": {"unschedulable": None}})
        server = bindfs(self.node, mine.stage(), f"/srv/{name}")
        self.published[uid] = (mine, mine.publish(uid=uid))
        return server, uid, pod, mine

    def add_bare(self, name: str, namespace: str) -> tuple[int, str]:
        """The same, but for a pod that nothing would make again: the server's pid, and the pod's
        uid.
        """
        mine = Volume(Kubelet(self.node), f"pv-{name}")
        volume, claim = k8s.volume(name, DRIVER, mine.handle, namespace, modes=("ReadWriteMany",))
        self.api.create(k8s.namespace(namespace), volume, claim)
        self.api.create(k8s.pod(name, [name], NODE, namespace))
        where = path("Pod", name, namespace)
        uid = str((self.api.get(where) or {})["metadata"]["uid"])
        server = bindfs(self.node, mine.stage(), f"/srv/{name}")
        self.published[uid] = (mine, mine.publish(uid=uid))
        return server, uid

    def _running(self, app: str) -> tuple[str, str] | None:
        pods = [
            pod["metadata"]
            for pod in self.api.all("Pod", "default")
            if pod["status"]["phase"] == "Running"
        ]
        mine = [meta for meta in pods if meta["labels"]["app"] == app]
        return (mine[0]["uid"], mine[0]["name"]) if mine else None

    def unmounted(self, uid: str) -> bool:
        """What a kubelet does for a pod that goes.

        It does not get a dead mount off, so that has to be done for it.
        """
        node, (volume, point) = self.node, self.published[uid]
        node.sh(
            f"test ! -e /run/pod-{uid} || kill $(cat /run/pod-{uid}); rm -f /run/pod-{uid}",
            check=False,
        )
        if layers(node, point):
            return False
        node.sh(
            f"rm -rf {volume.kubelet.root}/pods/{uid}; umount {volume.staging}; rm -rf "
            f"{volume.stage_folder}",
            check=False,
        )
        return True

    def run_process(self) -> None:
        """A process in the pod's control group, inside of its volume."""
        group = f"/sys/fs/cgroup/kubepods/pod{self.uid}/{'c' * 64}"
        self.node.sh(
            f"mkdir -p {group} && cd {self.point} && (setsid sleep 1000 > /dev/null 2>&1 < "
            f"/dev/null & echo $! > /run/pod-{self.uid}) && cat /run/pod-{self.uid} > "
            f"{group}/cgroup.procs"
        )

    def run_container(self) -> None:
        """The pod's container, of a real runtime."""
        self.main = (
            Runtime(self.node)
            .run(self.uid, self.pod, {"name": "main", "mounts": [mount("/web", self.point)]})
            .started()
        )

    def sees(self) -> str:
        """What the container gets."""
        assert self.main
        _id, pid = self.main.containers()["main"]
        return self.node.sh(f"ls /proc/{pid}/root/web 2>&1", check=False)

    def play(self, check: bool = False, **extra: Any) -> Played:
        """The playbook, as AWX runs it: all answers as strings, and the rights that ship, with one
        Secret.
        """
        command = [
            "ansible-playbook",
            f"{COLLECTION}.recover_fuse_mounts",
            *LOCAL[:2],
            "-i",
            str(self.node.vm.inventory()),
            "-v",
        ]
        command += ["-e", json.dumps({**SURVEY, **extra}), *(["--check"] if check else [])]
        kubeconfig = self.cluster.kubeconfig(REPAIR)
        settings = {**remote_environment(), "K8S_AUTH_KUBECONFIG": str(kubeconfig)}
        run = Played.of(command, settings)
        assert SECRET not in run.text
        return run

    def pods(self) -> list[tuple[str, str]]:
        """(uid, node) of the pods."""
        return [
            (pod["metadata"]["uid"], pod["spec"].get("nodeName", ""))
            for pod in self.api.all("Pod", "default")
        ]


@pytest.fixture
def scene(control_plane_1_20: Cluster, vm: Vm) -> Iterator[Scene]:
    """Everything runs; the kubelet ends with the test."""
    for node in fresh_node(vm, runtime()):
        with contextlib.ExitStack() as ends:
            yield Scene(control_plane_1_20, node, ends)


def changed(run: Played) -> bool:
    """Some task says so, or would."""
    return "| CHANGED" in run.text


def test_mounted_anew_and_the_container_restarted(scene: Scene) -> None:
    """Planned, done, proven inside of the container, and nothing left to do.

    A Secret that may not be read stops it before that.
    """
    node, before = scene.node, scene.pods()
    scene.run_container()
    assert scene.main and scene.sees() == "file\nsub"
    old = scene.main.containers()
    die(node, scene.server)
    denied = scene.play()
    assert denied.rc != 0 and "default/s3" in denied.text, denied.text
    assert "answered 403" in denied.text, denied.text
    assert not changed(denied)
    scene.cluster.let_read("s3", "default")

    planned = scene.play(check=True)
    assert planned.rc == 0, planned.text
    assert "planned: replace_mount" in planned.text
    assert f"planned: stop_container {scene.pod}/main" in planned.text
    assert "not connected" in scene.sees()

    done = scene.play()
    assert done.rc == 0, done.text
    assert f"done: stop_container {scene.pod}/main" in done.text
    assert scene.sees() == "file\nsub"
    assert scene.main.containers() != old
    assert (scene.pods(), "inner") == (before, node.sh(f"cat {scene.point}/sub/file"))
    assert node.sh(f"grep -rl {SECRET} /run /tmp /etc/systemd 2>/dev/null", check=False) == ""
    assert SECRET not in node.sh("journalctl --no-pager; ps axww -o args")

    again = scene.play()
    assert again.rc == 0, again.text
    assert not changed(again), again.text
    assert scene.sees() == "file\nsub"
    no_trace(scene.cluster)


@pytest.mark.variation
def test_left_to_the_kubelet(scene: Scene) -> None:
    """The pods go, what keeps them is unmounted, the volume is unstaged, and only then may they
    come back.

    Pods that share nothing go one after the other.
    """
    node = scene.node
    other, _uid, name, volume = scene.add("shop")
    before = scene.pods()
    scene.run_process()
    die(node, scene.server)
    die(node, other)
    wrong = scene.play(check=True, fuse_recovery_strategy="kubelet", fuse_recovery_node="n2")
    assert wrong.rc == 0 and "the kubelet calls this node node1" in wrong.text, wrong.text
    assert "planned:" not in wrong.text
    planned = scene.play(check=True, fuse_recovery_strategy="kubelet")
    assert planned.rc == 0, planned.text
    assert "planned: unmount" in planned.text
    for pod in (scene.pod, name):
        assert f"planned: evict_pod default/{pod}" in planned.text
    assert scene.pods() == before and layers(node, scene.point)
    no_trace(scene.cluster)

    done = scene.play(
        fuse_recovery_strategy="kubelet",
        fuse_recovery_move_timeout="300",
        fuse_recovery_options=json.dumps({**REMOUNT, "unstage_timeout": 20}),
    )
    assert done.rc == 0, done.text
    for pod, point in ((scene.pod, scene.point), (name, volume.staging)):
        assert f"done: unmount {point}" in done.text or f"done: wait_unstaged {point}" in done.text
        assert f"done: evict_pod default/{pod}" in done.text
    for point in (
        *(point for _volume, point in scene.published.values()),
        scene.volume.staging,
        volume.staging,
    ):
        assert layers(node, point) == []
    after = scene.pods()
    assert [place for _uid, place in after] == ["n2", "n2"]
    assert not {uid for uid, _place in before} & {uid for uid, _place in after}
    no_trace(scene.cluster)

    again = scene.play(fuse_recovery_strategy="kubelet")
    assert again.rc == 0, again.text
    assert not changed(again) and scene.pods() == after


@pytest.mark.variation
def test_a_tenant_whose_pod_cannot_be_moved_keeps_no_other_from_it(scene: Scene) -> None:
    """His comes first; it stays, and the run fails at its end with the reason."""
    node, before = scene.node, scene.pods()
    theirs, uid = scene.add_bare("bare", "a-tenant")
    scene.run_process()
    die(node, scene.server)
    die(node, theirs)
    given = {
        "fuse_recovery_strategy": "kubelet",
        "fuse_recovery_move_timeout": "300",
        "fuse_recovery_options": json.dumps({**REMOUNT, "unstage_timeout": 20}),
    }
    planned = scene.play(check=True, **given)
    assert "planned: unmount" in planned.text, planned.text
    assert f"planned: evict_pod default/{scene.pod}" in planned.text
    assert scene.pods() == before
    run = scene.play(**given)
    assert run.rc != 0 and "left: node1: " in run.text, run.text
    assert "namespace a-tenant: its pods were not moved: " in run.text
    assert f"done: evict_pod default/{scene.pod}" in run.text
    assert layers(node, scene.point) == [] and layers(node, scene.published[uid][1])
    assert [place for _uid, place in scene.pods()] == ["n2"]
    no_trace(scene.cluster)


@pytest.mark.variation
def test_without_the_cluster_only_the_node_is_repaired(scene: Scene) -> None:
    node = scene.node
    die(node, scene.server)
    volume = {
        "volume": "pv-web",
        "sources": ["/srv/web"],
        "command": ["bindfs", "-f", "{source}", "{target}"],
    }
    alone = {"fuse_recovery_read_cluster": "false", "fuse_recovery_volumes": json.dumps([volume])}
    refused = scene.play(**{**alone, "fuse_recovery_volumes": "", "fuse_recovery_strict": "true"})
    assert refused.rc != 0 and not changed(refused), refused.text
    done = scene.play(**alone)
    assert done.rc == 0, done.text
    assert node.sh(f"ls {scene.point}") == "file\nsub"
    assert "Restart containers" not in done.text
    misspelt = scene.play(fuse_recovery_read_cluster="maybe")
    assert misspelt.rc != 0 and "must be true or false" in misspelt.text
