# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers that keep a dead mount although the node has a new one: real ones, of a
real runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lab.vm import Vm
from support.containers import UNIT, Pod, Runtime, mount, new_uid, runtime
from support.fixtures import fresh_node
from support.mounts import Kubelet, bindfs, die
from support.node import Node


class Scene:
    """Pods with a FUSE volume each, of a driver that does not stage: as most, with a probe, with a
    view of new mounts, one left well.
    """

    def __init__(self, node: Node) -> None:
        node.guarded = False
        self.node = node
        self.runtime = Runtime(node)
        self.kubelet = Kubelet(node)
        self.pods: dict[str, Pod] = {}
        self.folders: dict[str, str] = {}
        self.servers: dict[str, int] = {}
        for name in ("web", "probed", "slave", "well"):
            uid = new_uid()
            self.folders[name] = (
                f"{self.kubelet.root}/pods/{uid}/volumes/kubernetes.io~csi/pv-{name}"
            )
            node.sh(f"mkdir -p {self.folders[name]}/mount")
            self.serve(name)
            # Of the folder around it, new mounts are seen.
            source, propagation = (
                (self.folders[name], 1) if name == "slave" else (f"{self.folders[name]}/mount", 0)
            )
            entry: dict[str, Any] = {
                "name": "main",
                "mounts": [mount("/data", source, propagation)],
            }
            if name == "probed":
                entry["probe"] = "/data"
            self.pods[name] = self.runtime.run(uid, name, entry)
        for pod in self.pods.values():
            pod.started()

    def serve(self, name: str) -> None:
        """Mount the volume on the node."""
        self.servers[name] = bindfs(self.node, f"{self.folders[name]}/mount", f"/srv/{name}")

    def kill(self, *names: str) -> None:
        for name in names:
            die(self.node, self.servers[name])

    def renew(self, *names: str) -> None:
        """What fuse_remount comes to."""
        for name in names:
            self.node.sh(f"umount -l {self.folders[name]}/mount")
            self.serve(name)

    def ids(self) -> dict[str, str]:
        return {
            name: pod.containers()["main"][0]
            for name, pod in self.pods.items()
            if "main" in pod.containers()
        }

    def sees(self, name: str) -> str:
        """What the container of a pod gets from its volume."""
        _id, pid = self.pods[name].containers()["main"]
        folder = "/data/mount" if name == "slave" else "/data"
        return self.node.sh(f"ls /proc/{pid}/root{folder} 2>&1", check=False)

    def known(self, *names: str, **more: Any) -> list[dict[str, Any]]:
        """What the cluster says."""
        return [
            {
                "pod": self.pods[name].uid,
                "namespace": "default",
                "pod_name": name,
                "container": "main",
                "mount_path": "/data",
                "claim": name,
                "probe": name == "probed",
                "restart_policy": "Always",
                **more,
            }
            for name in names
        ]


@pytest.fixture
def scene(vm: Vm) -> Iterator[Scene]:
    """Everything runs."""
    for node in fresh_node(vm, runtime()):
        yield Scene(node)


@pytest.mark.variation
def test_four_ways(scene: Scene) -> None:
    """Planned, done, proven, and nothing left to do. Who sees the new mount by itself, or never had
    a dead one, is left alone.

    Where a liveness probe covers the mount, the kubelet restarts the container; we only wait.
    """
    node, before = scene.node, scene.ids()
    everybody = scene.known(*scene.pods)
    # Its probe must not be quicker than we are.
    node.sh(f"systemctl kill --signal STOP {UNIT}")
    scene.kill("web", "slave", "probed")
    refused = node.ansible("container_restart", containers=everybody, accept_majority=True)
    assert {finding["verdict"] for finding in refused.findings} == {"refuse"}
    assert "does not answer either" in refused.finding("web/main")["reason"]
    scene.renew("web", "slave", "probed")
    assert scene.sees("slave") == "file\nsub"
    assert "not connected" in scene.sees("web")
    # The only one that is known.
    never = node.ansible(
        "container_restart",
        containers=scene.known("web", restart_policy="Never"),
        accept_majority=True,
    )
    (pod,) = never.result["pods"]
    assert (pod["uid"], pod["name"], pod["claims"]) == (scene.pods["web"].uid, "web", ["web"])
    assert not never.changed

    planned = node.ansible("container_restart", check=True, containers=everybody)
    assert sorted(planned.outcomes) == [
        ("await_liveness_probe", "planned"),
        ("stop_container", "planned"),
    ]
    assert (planned.changed, scene.ids()) == (True, before)
    node.sh(f"systemd-run --quiet --on-active 10 systemctl kill --signal CONT {UNIT}")
    done = node.ansible("container_restart", containers=everybody)
    assert not done.failed, done.msg
    # As long as the pod says, through the real runtime.
    commands = [action["command"] for action in done.result["actions"]]
    (stop,) = (command for command in commands if "stop" in command)
    assert stop[-3:-1] == ["--timeout", "7"]
    assert sorted(done.outcomes) == [("await_liveness_probe", "done"), ("stop_container", "done")]
    after = scene.ids()
    for name in ("web", "probed"):
        (proof,) = done.finding(f"{name}/main")["evidence"]["proof"]
        assert after[name] != before[name] and after[name][:12] in proof
        assert scene.sees(name) == "file\nsub"
    assert [after[name] for name in ("slave", "well")] == [
        before[name] for name in ("slave", "well")
    ]
    for check in (False, True):
        again = node.ansible("container_restart", check, containers=everybody)
        assert (again.findings, again.changed, scene.ids()) == ([], False, after)

    # A run that is killed right after it stopped a container has lost nothing: the kubelet starts
    # it again.
    scene.kill("web")
    scene.renew("web")
    killer = 'crictl "$@"\ncase "$*" in *" stop "*) kill -9 $PPID;; esac'
    node.vm.run(
        "cat > /usr/local/sbin/killer && chmod +x /usr/local/sbin/killer",
        stdin=f"#!/bin/sh\n{killer}\n",
    )
    assert node.ansible(
        "container_restart",
        containers=scene.known("web"),
        accept_majority=True,
        crictl="killer",
    ).failed
    node.wait(
        lambda: scene.ids().get("web") not in (None, after["web"]),
        "the kubelet has started it again",
        120,
    )
    assert node.ansible("container_restart", containers=everybody).findings == []
    assert scene.sees("web") == "file\nsub"
