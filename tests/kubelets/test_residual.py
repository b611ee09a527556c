# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LUNs that a node keeps (R6), and a volume that gets the number of one (R7): a real kubelet, and a
CSI driver over iSCSI and multipath. Each application notes what its volume is known to have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.kubelet.csi import LunDriver
from lab.kubernetes import api as k8s
from support.failover import NODE_A, NODE_B
from support.kind import on
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene, counting
from support.node import QUICK, Node
from support.reattach import REPAIR

# As from a survey: all strings.
LOOKS = {f"residual_paths_{name}": str(value) for name, value in QUICK.items()}
# Of a pod that waits for its node, however long that is away.
LOYAL = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
    for key in ("not-ready", "unreachable")
]
NOTHING: dict[str, Any] = {"map": None, "disks": {}}


class Applications:
    """Deployments on A, each with a volume of its own name."""

    def __init__(self, scene: KubeletScene, driver: LunDriver) -> None:
        self.scene, self.driver, self.api = scene, driver, scene.api
        self.node = Node(scene.vm())
        self.wwids: dict[str, str] = {}

    def start(self, *names: str, **spec: Any) -> None:
        """Applications with new volumes, until they write. One after the other: a container that
        does not start within two minutes has failed.
        """
        for name in names:
            self.wwids[name] = self.driver.add_volume(name)
            self.begin(name, **spec)
            self.wait_writing(name)

    def begin(self, name: str, **spec: Any) -> None:
        """An application; without more of a spec it begins on B if A is lost."""
        self.scene.create(name, [name], **counting(name), grace=1, **spec)

    def end(self, name: str) -> None:
        """It is over; its node has still to give the volume up."""
        self.api.delete(k8s.path("Deployment", name))
        self.scene.cluster.wait(lambda: not self.scene.pods(name=name), f"{name} ends", 60)

    def wait_writing(self, name: str, node: str = NODE_A) -> None:
        """It has its volume, and writes more than it has before."""
        self.scene.wait_running(node, name, POD_DEADLINE)
        self.scene.writes_on(node, name)
        if node == NODE_A:
            self.wait_paths(name, "active")

    def wait_paths(self, name: str, state: str) -> None:
        """Both paths of its map on A are in this state."""
        self.node.wait(lambda: self._paths(name) == [state, state], f"{name}: paths {state}")

    def wait_detached(self, name: str) -> None:
        """Kubernetes and the array have taken it from A."""
        wait = self.scene.cluster.wait
        wait(lambda: self.scene.attachment(NODE_A, name) is None, f"{name} is detached", 120)
        assert name not in self.driver.numbers(NODE_A)

    def check_lines(self, name: str, node: str = NODE_A) -> int:
        """All that it has written is there, once; how much that is."""
        numbers = [line.number for line in self.scene.lines(node, name)]
        assert numbers == list(range(1, len(numbers) + 1))
        return len(numbers)

    def pod(self, name: str, node: str = NODE_A) -> tuple[str, str, list[int]]:
        """Its one pod: name, uid, and how often its containers were started again."""
        (found,) = self.scene.pods(node, name)
        started = [entry["restartCount"] for entry in found["status"]["containerStatuses"]]
        return found["metadata"]["name"], found["metadata"]["uid"], started

    def devices(self, name: str) -> dict[str, Any]:
        """Its map on A by name and device, and the disks of its own."""
        state, wwid = self.node.state(), self.wwids[name]
        found = state["maps"].get(wwid)
        return {
            "map": found and (found["name"], found["dm"], sorted(found["paths"])),
            "disks": {
                disk: entry["hctl"]
                for disk, entry in state["disks"].items()
                if entry["wwid"] == wwid
            },
        }

    def play(self, name: str, check: bool = False, **extra: Any) -> tuple[int, str]:
        """Run a playbook; its exit code, and what it said."""
        inventory = self.scene.inventory(self.scene.kubelets.folder / "residual-inventory")
        run = self.scene.cluster.playbook(
            name, check, user=REPAIR, inventory=inventory, **LOOKS, **extra
        )
        return run.rc, run.text

    def _paths(self, name: str) -> list[str]:
        found = self.node.state()["maps"].get(self.wwids[name], {"paths": {}})
        return [path["dm_state"] for path in found["paths"].values()]


MOVED = ("first", "second")


def lose_power(apps: Applications) -> None:
    """A is without power until its pods have moved on, and boots.

    At that time it still has their LUNs, and its kernel finds them. The kubelet that is back finds
    volumes of pods that are gone, and nothing mounted there. Older ones do not have such volumes
    unstaged (reconstructVolume and cleanupMounts of pkg/kubelet/volumemanager/reconciler); newer
    ones do, but a driver that asks what is mounted, as csi-powerstore does, has no device to
    remove. So the volumes are detached, and their maps stay.
    """
    scene, vm = apps.scene, apps.scene.vm()
    written = {name: scene.acknowledged(name=name) for name in (*MOVED, "stays")}
    # An emulated node's kubelet can be ready before its disks are, which Fibre Channel's are long
    # before. And a node that has run for days has written all this.
    vm.run("systemctl disable -q kubelet && sync -f /")
    vm.stop()
    scene.wait_lost(seconds=180)
    for name in MOVED:
        scene.wait_waiting(name)
    vm.power_on()
    for name in written:
        apps.wait_paths(name, "active")
    vm.run("systemctl enable -q --now kubelet")
    scene.wait_back(seconds=180)
    for name in MOVED:
        apps.wait_writing(name, NODE_B)
        assert apps.check_lines(name, NODE_B) >= written[name]
        apps.wait_detached(name)
        apps.wait_paths(name, "failed")
    apps.wait_writing("stays")
    assert apps.check_lines("stays") >= written["stays"]


@pytest.mark.variation
def test_a_node_that_lost_power(scene: KubeletScene, luns: LunDriver, tmp_path: Path) -> None:
    apps = Applications(scene, luns)
    apps.start(*MOVED)
    apps.start("stays", tolerations=LOYAL)
    lose_power(apps)

    # Nothing waits any more, so only the node tells of them.
    triage = scene.cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds="1")
    assert "no pod is stuck" in triage.text, triage.text
    played, report = scene.compliance(tmp_path / "before")
    found = sorted(
        (finding["host"], finding["control"], finding["evidence"].get("wwid"))
        for finding in report["findings"]
    )
    assert found == sorted((NODE_A, "STOR-01", apps.wwids[name]) for name in MOVED)
    assert played.rc != 0, played.text

    def clean(check: bool = False, all_detached: str = "") -> tuple[int, str]:
        asked = {"target": NODE_A, "residual_paths_accept_majority": all_detached}
        return apps.play("clean_residual_paths", check, **asked)

    def others() -> list[Any]:
        moved = [apps.pod(name, NODE_B) for name in MOVED]
        return [*moved, apps.pod("stays"), apps.devices("stays")]

    shape, before = apps.node.shape(), others()
    rc, said = clean()
    assert rc != 0 and "look broken at once" in said, said
    rc, said = clean(check=True, all_detached="true")
    assert rc == 0 and "2 would be repaired" in said, said
    assert apps.node.shape() == shape
    rc, said = clean(all_detached="true")
    assert rc == 0 and "2 repaired and proven" in said, said
    for name in MOVED:
        assert apps.devices(name) == NOTHING
    rc, said = clean()
    assert rc == 0 and "| CHANGED" not in said, said
    for name, node in {"stays": NODE_A, "first": NODE_B, "second": NODE_B}.items():
        scene.writes_on(node, name)
        apps.check_lines(name, node)
    assert others() == before

    # Driver and kubelet can do with what is left: a volume that has moved on comes back, and goes.
    last = scene.acknowledged(NODE_B, "first")
    scene.api.delete(k8s.path("Pod", apps.pod("first", NODE_B)[0]))
    scene.wait_running(NODE_A, "first", POD_DEADLINE)
    scene.wait_written(last, name="first")
    assert apps.check_lines("first") > last
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text
    apps.end("first")
    apps.wait_detached("first")
    assert apps.devices("first") == NOTHING


def keep_map(apps: Applications, name: str) -> None:
    """A detach that fails halfway: the driver cannot remove the map, since a process has it open.
    Then its plugin is replaced, and the new one finds nothing mounted.
    """
    scene, vm = apps.scene, apps.scene.vm()
    device = f"/dev/mapper/{apps.devices(name)['map'][0]}"
    pid = vm.run(f"nohup sleep 100000 <{device} >/dev/null 2>&1 & echo $!").stdout.strip()
    apps.end(name)
    mounts = f"grep {device} /proc/mounts"
    apps.node.wait(lambda: not apps.node.sh(mounts, check=False), f"{name} is unmounted")
    for pod in apps.driver.plugins(NODE_A):
        scene.api.delete(k8s.path("Pod", pod["metadata"]["name"], "kube-system"))
    apps.wait_detached(name)
    vm.run(["kill", pid])
    apps.wait_paths(name, "failed")


@pytest.mark.variation
def test_the_next_volume_gets_the_number(scene: KubeletScene, luns: LunDriver) -> None:
    apps = Applications(scene, luns)
    apps.start("former", "neighbour")
    number = luns.numbers(NODE_A)["former"]
    keep_map(apps, "former")
    written = scene.acknowledged(name="former")

    apps.wwids["next"] = luns.add_volume("next")
    apps.begin("next", **on(NODE_A))
    scene.cluster.wait(
        lambda: any("VolumeDeviceNotFound" in said for said in scene.told("next")),
        "the driver finds no device",
        POD_DEADLINE,
    )
    assert luns.numbers(NODE_A)["next"] == number
    assert apps.devices("next") == NOTHING
    # The old map reads the new volume, and looks well.
    apps.wait_paths("former", "active")
    name, uid, _started = apps.pod("next")
    triage = scene.cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds="1")
    assert f"STOR-03 major: pod default/{name}" in triage.text, triage.text
    run = "storage_ops.runbooks.replace_residual_volume in its place (-i inventory -e target="
    assert f"{run}default/{name})" in triage.text, triage.text

    def replace(check: bool = False) -> str:
        asked = {"target": f"default/{name}", "replace_stuck_seconds": "1"}
        rc, said = apps.play("replace_residual_volume", check, **asked)
        assert rc == 0, said
        return said

    shape, neighbour = apps.node.shape(), (apps.pod("neighbour"), apps.devices("neighbour"))
    planned = replace(check=True)
    assert "STOR-02" in planned and planned.count("planned: replace_path") == 2, planned
    assert apps.node.shape() == shape
    done = replace()
    assert "1 repaired and proven" in done and "done: evict_pod" not in done, done
    assert apps.devices("former") == NOTHING
    apps.wait_writing("next")
    # The kubelet has tried again, and the application began.
    assert apps.pod("next") == (name, uid, [0])
    again = replace()
    assert "nothing to do" in again and "| CHANGED" not in again, again

    # Driver and kubelet can do with what is left, and nothing has written into the wrong volume.
    apps.check_lines("next")
    apps.end("next")
    apps.wait_detached("next")
    assert apps.devices("next") == NOTHING
    apps.begin("former", **on(NODE_A))
    apps.wait_writing("former")
    assert luns.numbers(NODE_A)["former"] == number
    assert apps.check_lines("former") > written
    scene.writes_on(name="neighbour")
    apps.check_lines("neighbour")
    assert (apps.pod("neighbour"), apps.devices("neighbour")) == neighbour
