# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two VM nodes with real kubelets and krbd, as a fail-over finds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lab.common import wait
from lab.kubelet.cluster import Kubelets
from lab.kubelet.node import BUSYBOX, KubeletVm
from lab.kubernetes.api import path

from support.cluster import Played
from support.failover import NODE_A, NODE_B, Scene
from support.kind import Running
from support.node import PATIENT, QUICK
from support.storage import Storage

# On each node's own disk: what an application knows to be written.
ACKNOWLEDGED = "/var/lib/acknowledged"
KUBELET = "/var/lib/kubelet"
# A pod takes an emulated node up to a minute, and its mount is tried again after up to two.
POD_DEADLINE = 120.0
AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"


class Line(NamedTuple):
    """What the application has written: a number, and the node where it was."""

    number: int
    node: str


class KubeletScene(Scene):
    """The Deployment ``db`` on A, which counts in a file of its volume. It notes a number on the
    node's own disk once fdatasync(2) has said that it is written.
    """

    cluster: Running

    def __init__(self, kubelets: Kubelets, storage: Storage) -> None:
        self.kubelets = kubelets
        super().__init__(Running(kubelets, tuple(kubelets.nodes)), storage)
        for image in json.loads(storage.ceph.rbd("ls", "rbd", "--format", "json")):
            unused = partial(self._unused, f"rbd/{image}")
            self.cluster.wait(unused, f"{image} is unmapped", POD_DEADLINE)
            storage.ceph.rbd("rm", "--no-progress", f"rbd/{image}")
        for vm in kubelets.nodes.values():
            vm.run(["rm", "-rf", ACKNOWLEDGED])

    def count(self) -> None:
        """Begin."""
        self.deploy("db", **counting("db"))
        self.wait_written(2)

    def vm(self, node: str = NODE_A) -> KubeletVm:
        """The machine."""
        return self.kubelets.nodes[node]

    def inventory(self, target: Path) -> Path:
        """Write an inventory of the nodes, and of this machine, which has Ceph's commands."""
        python = "{{ ansible_playbook_python }}"
        local = {"ansible_connection": "local", "ansible_python_interpreter": python}
        hosts = {
            "localhost": local,
            "ceph-admin": {**local, "ansible_python_interpreter": "/usr/bin/python3"},
        }
        hosts |= {node: vm.login() for node, vm in self.kubelets.nodes.items()}
        target.write_text(json.dumps({"all": {"hosts": hosts}}))
        return target

    def cut(self, node: str = NODE_A) -> None:
        """The node reaches the API server no more, and Ceph as before."""
        self.vm(node).cut_off(str(self.kubelets.port()))

    def cut_storage(self, node: str = NODE_A) -> None:
        """The node reaches Ceph no more, and the API server as before."""
        self.vm(node).cut_off(*self.kubelets.ceph_ports())

    def heal(self, node: str = NODE_A) -> None:
        """It reaches everything again."""
        self.vm(node).heal()

    def acknowledged(self, node: str = NODE_A, name: str = "db") -> int:
        """The last number that the application on this node knows to be written; 0: none."""
        said = self.vm(node).run(f"cat {ACKNOWLEDGED}/{name}", check=False).stdout.strip()
        return int(said or 0)

    def writes_on(self, node: str = NODE_A, name: str = "db") -> None:
        """See that the application has written more than before."""
        self.wait_written(self.acknowledged(node, name), node, name)

    def wait_written(self, number: int, node: str = NODE_A, name: str = "db") -> None:
        """The application on this node has written more than so much."""
        self.look(lambda: self.acknowledged(node, name) > number, f"{name} has written {number}")

    def look(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something that a node is asked for."""
        # Each look takes the processor, of the node and of this machine, from what is waited for.
        wait(condition, what, POD_DEADLINE, pause=1)

    def fail_over(self, run: Callable[[], Played]) -> tuple[int, int]:
        """A is cut off from the API server, called lost, and writes on until ``run`` has fenced it.
        The last number that A knows to be written, and the first that B has written.
        """
        self.cut()
        self.wait_lost(seconds=180)
        self.wait_waiting()
        self.writes_on()
        played = run()
        assert played.rc == 0, played.text
        self.wait_running(NODE_B, seconds=POD_DEADLINE)
        self.wait_written(0, NODE_B)
        last, first = self.acknowledged(), self.moved_once()
        assert 0 < last < first
        return last, first

    def lines(self, node: str, name: str = "db") -> list[Line]:
        """All lines in the volume, as a node that has it mounted reads them."""
        where = f"/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/pv-{name}/mount/lines"
        said = self.vm(node).run(f"cat {where}").stdout
        return [Line(int(number), where) for number, where in map(str.split, said.splitlines())]

    def moved_once(self, name: str = "db") -> int:
        """The first number that B has written; all lines are there, and A's come before it."""
        lines = self.lines(NODE_B, name)
        numbers, nodes = [line.number for line in lines], [line.node for line in lines]
        assert numbers == list(range(1, len(lines) + 1))
        first = nodes.index(NODE_B)
        assert set(nodes[:first]) == {NODE_A} and set(nodes[first:]) == {NODE_B}
        return numbers[first]

    def move_back(self, name: str = "db") -> None:
        """The application, which prefers A, goes on there from what it had on B."""
        last = self.acknowledged(NODE_B, name)
        (pod,) = self.pods(NODE_B, name)
        # A shell that is process 1 heeds no SIGTERM.
        self.api.delete(path("Pod", pod["metadata"]["name"], "default"), grace=1)
        self.wait_running(NODE_A, name, POD_DEADLINE)
        self.wait_written(last, NODE_A, name)
        numbers = [line.number for line in self.lines(NODE_A, name)]
        assert numbers == list(range(1, len(numbers) + 1))

    def told(self, name: str = "db") -> list[str]:
        """What events say of an application's pods."""
        return [
            event["message"]
            for event in self.api.all("Event", "default")
            if event["involvedObject"].get("name", "").startswith(f"{name}-")
        ]

    def mapped(self, node: str = NODE_A) -> list[str]:
        """The numbers of the images that the node's kernel has open."""
        return self.vm(node).run("ls /sys/bus/rbd/devices").stdout.split()

    def wait_unmapped(self, node: str = NODE_A) -> None:
        """It has none open any more."""
        self.look(lambda: not self.mapped(node), f"{node} has unmapped all")

    def compliance(self, folder: Path, **more: str) -> tuple[Played, dict[str, Any]]:
        """The run of the night over nodes, cluster and Ceph, strict, with these variables in
        addition; and the report of it.
        """
        folder.mkdir(exist_ok=True)
        ceph = self.storage.connection()
        asked: dict[str, Any] = {
            "target": "\n".join(self.kubelets.nodes),
            "compliance_report_folder": str(folder),
            "compliance_report_strict": "true",
            "compliance_node_options": json.dumps({**QUICK, **PATIENT}),
            "compliance_node_timeout": str(PATIENT["deadline"] + 60),
            "compliance_ceph_host": "localhost",
            **{f"compliance_ceph_{name}": value for name, value in ceph.items()},
            **more,
        }
        played = self.cluster.playbook(
            "compliance", user=AUDITOR, inventory=self.inventory(folder / "inventory"), **asked
        )
        return played, json.loads((folder / "report.json").read_text())

    def _unused(self, image: str) -> bool:
        return not self.storage.ceph.watchers(image)


def counting(claim: str) -> dict[str, Any]:
    """Of a pod's spec: an application that goes on counting from where the volume is."""
    # With -d it is fdatasync(2). In Linux 6.1, fsync(2) on CephFS forgets that a write has failed:
    # ceph_fsync of fs/ceph/caps.c drops what file_write_and_wait_range has returned.
    script = (
        f"cd /{claim}; n=$(busybox tail -n 1 lines | busybox cut -d ' ' -f 1); n=${{n:-0}}",
        "while :; do",
        "    n=$((n + 1))",
        f'    echo "$n $NODE" >> lines && busybox sync -d lines && echo $n > /acknowledged/{claim}',
        # Emulated, two programs for each line keep a quarter of a processor busy at five a second.
        "    sleep 1",
        "done",
    )
    container: dict[str, Any] = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "\n".join(script)],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [
            {"name": claim, "mountPath": f"/{claim}"},
            {"name": "acknowledged", "mountPath": "/acknowledged"},
        ],
    }
    volumes = [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim}},
        {
            "name": "acknowledged",
            "hostPath": {"path": ACKNOWLEDGED, "type": "DirectoryOrCreate"},
        },
    ]
    return {"containers": [container], "volumes": volumes}


def waiting(name: str) -> dict[str, Any]:
    """Of a pod's spec: the application, which needs a ConfigMap that is not there yet."""
    spec = counting(name)
    spec["volumes"].append({"name": "settings", "configMap": {"name": "settings"}})
    # A volume that no container mounts is not waited for.
    mounts = spec["containers"][0]["volumeMounts"]
    mounts.append({"name": "settings", "mountPath": "/settings"})
    return spec


def mount_over(scene: KubeletScene, name: str, other: str) -> str:
    """Mount another application's volume over that of this one's pod; where that is."""
    (pod,) = scene.pods(NODE_A, name)
    place = f"volumes/kubernetes.io~csi/pv-{name}/mount"
    point = f"{KUBELET}/pods/{pod['metadata']['uid']}/{place}"
    scene.look(
        lambda: scene.vm().run(f"grep ' {point} ' /proc/1/mountinfo", check=False).stdout,
        f"{name} has its volume",
    )
    source = f"{KUBELET}/pods/*/volumes/kubernetes.io~csi/pv-{other}/mount"
    scene.vm().run(f"mount --bind {source} {point}")
    return point


def served(scene: KubeletScene) -> str:
    """Mounts of s3fs on A, of which none is asked anything."""
    return scene.vm().run("grep ' - fuse.s3fs ' /proc/1/mountinfo", check=False).stdout
