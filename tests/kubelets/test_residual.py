# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a loss of power leaves on a node with LUNs: its pods move on, and nothing removes their maps
when it boots (R6). Then the array gives one of the LUN numbers to the next volume (R7).

The kubelet that is back finds volumes of pods that are gone, and nothing mounted there. Older ones
do not have such volumes unstaged (reconstructVolume and cleanupMounts of
pkg/kubelet/volumemanager/reconciler); newer ones do, but a driver that asks what is mounted, as
csi-powerstore does, has no device to remove. So the volumes are detached, and their maps stay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.kubelet.csi import LunDriver
from lab.kubernetes import api as k8s
from support.failover import NODE_A, NODE_B
from support.kind import on
from support.kubelets import POD_DEADLINE, KubeletScene, counting
from support.node import QUICK, Node

MOVED = ("first", "second")
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

    def add_volume(self, name: str) -> None:
        """The volume. It has no LUN number yet."""
        self.wwids[name] = self.driver.add_volume(name)

    def begin(self, name: str, **spec: Any) -> None:
        """The application; without more of a spec it begins on B if A is lost."""
        # Three that write five times a second are too much for an emulated node.
        self.scene.create(name, [name], **counting(name, seconds=2), grace=1, **spec)

    def wait_writing(self, name: str, node: str = NODE_A) -> None:
        """It has its volume, and writes more than it has before."""
        self.scene.wait_running(node, name, POD_DEADLINE)
        self.scene.writes_on(node, name)
        if node == NODE_A:
            self.wait_paths(name, "active")

    def wait_paths(self, name: str, state: str) -> None:
        """Both paths of its map on A are in this state."""
        self.node.wait(lambda: self._paths(name) == [state, state], f"{name}: paths {state}")

    def check_lines(self, name: str, node: str = NODE_A) -> int:
        """All that it has written is there, once; how much that is."""
        numbers = [line.number for line in self.scene.lines(node, name)]
        assert numbers == list(range(1, len(numbers) + 1))
        return len(numbers)

    def end(self, name: str) -> None:
        """The pod is gone, and its volume unstaged and detached."""
        self.api.delete(k8s.path("Deployment", name))
        wait = self.scene.cluster.wait
        wait(lambda: not self.scene.pods(name=name), f"{name} ends", 60)
        wait(lambda: self.scene.attachment(NODE_A, name) is None, f"{name} is detached", 60)
        assert name not in self.driver.numbers(NODE_A)

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

    def told(self, name: str) -> list[str]:
        """What events say of its pods."""
        found = self.api.all("Event", "default")
        return [
            event["message"]
            for event in found
            if event["involvedObject"]["name"].startswith(f"{name}-")
        ]

    def _paths(self, name: str) -> list[str]:
        found = self.node.state()["maps"].get(self.wwids[name], {"paths": {}})
        return [path["dm_state"] for path in found["paths"].values()]


def lose_power(apps: Applications) -> None:
    """A is without power until its pods have moved on, and boots."""
    scene, vm = apps.scene, apps.scene.vm()
    written = {name: scene.acknowledged(name=name) for name in (*MOVED, "stays")}
    # A node that has run for days has written all this.
    vm.run("sync -f /")
    vm.stop()
    scene.wait_lost(seconds=180)
    for name in MOVED:
        scene.wait_waiting(name)
    vm.power_on()
    scene.wait_back(seconds=180)
    for name in MOVED:
        apps.wait_writing(name, NODE_B)
        assert apps.check_lines(name, NODE_B) >= written[name]
        assert scene.attachment(NODE_A, name) is None
    apps.wait_writing("stays")
    assert apps.check_lines("stays") >= written["stays"]


@pytest.mark.alternate
def test_a_node_that_lost_power(scene: KubeletScene, luns: LunDriver, tmp_path: Path) -> None:
    apps, cluster = Applications(scene, luns), scene.cluster
    for name in (*MOVED, "stays"):
        apps.add_volume(name)
        apps.begin(name, **({"tolerations": LOYAL} if name == "stays" else {}))
        # One after the other: a container that does not start within two minutes has failed.
        apps.wait_writing(name)
    numbers = luns.numbers(NODE_A)
    # Which of the two is attached first is open.
    reused, other = sorted(MOVED, key=numbers.__getitem__)
    lose_power(apps)
    assert set(luns.numbers(NODE_A)) == {"stays"}
    for name in MOVED:
        apps.wait_paths(name, "failed")

    # The next volume gets the number, and its disks are hidden by the old ones.
    apps.add_volume("next")
    apps.begin("next", **on(NODE_A))
    cluster.wait(
        lambda: any("VolumeDeviceNotFound" in said for said in apps.told("next")),
        "the driver finds no device",
        POD_DEADLINE,
    )
    assert luns.numbers(NODE_A)["next"] == numbers[reused]
    assert apps.devices("next") == NOTHING
    apps.wait_paths(reused, "active")
    (stuck,) = scene.pods(NODE_A, "next")

    played, report = scene.compliance(tmp_path / "before")
    found = [
        (finding["host"], finding["control"], finding["evidence"].get("wwid"))
        for finding in report["findings"]
    ]
    residual = {"STOR-02": apps.wwids[reused], "STOR-01": apps.wwids[other]}
    assert sorted(found) == sorted((NODE_A, *each) for each in residual.items()), report["findings"]
    assert played.rc != 0, played.text

    inventory = scene.inventory(tmp_path / "hosts")

    def clean(good: bool = True, check: bool = False, all_detached: bool = False) -> str:
        # It needs no API server, so its account may do nothing there.
        told: dict[str, Any] = {"target": NODE_A, **LOOKS}
        if all_detached:
            told["residual_paths_accept_majority"] = "true"
        run = cluster.playbook(
            "clean_residual_paths", check, user="nobody", inventory=inventory, **told
        )
        assert (run.rc == 0) == good, run.text
        return run.text

    shape = apps.node.shape()
    assert "look broken at once" in clean(good=False)
    assert "2 would be repaired" in clean(check=True, all_detached=True)
    assert apps.node.shape() == shape
    others = apps.pod("stays"), apps.devices("stays"), [apps.pod(name, NODE_B) for name in MOVED]
    assert "2 repaired and proven" in clean(all_detached=True)
    for name in MOVED:
        assert apps.devices(name) == NOTHING

    # The kubelet tries again, and the application begins.
    apps.wait_writing("next")
    assert apps.pod("next") == (stuck["metadata"]["name"], stuck["metadata"]["uid"], [0])
    assert "no residual among them" in clean()
    for name, node in {"next": NODE_A, "stays": NODE_A, "first": NODE_B, "second": NODE_B}.items():
        scene.writes_on(node, name)
        apps.check_lines(name, node)
    assert others == (
        *(apps.pod("stays"), apps.devices("stays")),
        [apps.pod(name, NODE_B) for name in MOVED],
    )

    # Driver and kubelet can do with what is left: a volume goes, and comes back; one that has moved
    # on comes back, too.
    written = apps.check_lines("next")
    apps.end("next")
    apps.node.wait(lambda: apps.devices("next") == NOTHING, "the driver has removed its map")
    apps.begin("next", **on(NODE_A))
    apps.wait_writing("next")
    assert apps.check_lines("next") > written
    last = scene.acknowledged(NODE_B, "first")
    scene.api.delete(k8s.path("Pod", apps.pod("first", NODE_B)[0]))
    scene.wait_running(NODE_A, "first", POD_DEADLINE)
    scene.wait_written(last, name="first")
    assert apps.check_lines("first") > last
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text
