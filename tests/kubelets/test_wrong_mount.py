# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another volume over that of a pod that still waits (R12), with a real kubelet and driver: it is
taken off, and the pod goes on with its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.kubernetes import api as k8s
from support.cluster import Played
from support.failover import NODE_A
from support.kind import on
from support.kubelets import POD_DEADLINE, KubeletScene, counting, mount_over, waiting
from support.node import PATIENT
from support.reattach import REPAIR


@pytest.mark.variation
def test_another_volume_over_that_of_a_pod(scene: KubeletScene, tmp_path: Path) -> None:
    inventory = scene.inventory(scene.kubelets.folder / "mounts-inventory")

    def play(check: bool = False, **asked: str) -> Played:
        told = {"target": NODE_A, "pod_mounts_options": json.dumps(PATIENT), **asked}
        return scene.cluster.playbook(
            "repair_pod_mounts", check, user=REPAIR, inventory=inventory, **told
        )

    scene.deploy("other", **counting("other"), **on(NODE_A))
    scene.writes_on(name="other")
    scene.volume("db")
    scene.create("db", ["db"], **waiting("db"), grace=1, **on(NODE_A))
    scene.cluster.wait(lambda: scene.pods(NODE_A), "db has a node", POD_DEADLINE)
    point = mount_over(scene, "db", "other")
    (neighbour,), (pod,) = scene.pods(NODE_A, "other"), scene.pods(NODE_A)
    layers = f"grep -c ' {point} ' /proc/1/mountinfo"

    played, report = scene.compliance(tmp_path / "before")
    found = [
        (finding["host"], finding["control"], finding["object"]["name"])
        for finding in report["findings"]
    ]
    assert found == [(NODE_A, "STOR-07", point)] and played.rc != 0, report["findings"]
    planned = play(check=True)
    assert planned.rc == 0 and f"planned: unmount {point}" in planned.text, planned.text
    assert scene.vm().run(layers).stdout.strip() == "2"
    done = play()
    assert done.rc == 0 and "1 repaired and proven" in done.text, done.text
    assert scene.vm().run(layers).stdout.strip() == "1"
    again = play()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text

    settings = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    name = {"name": "settings", "namespace": "default"}
    scene.api.create({**settings, "metadata": name})
    # The kubelet waits for up to two minutes before it tries again.
    scene.wait_running(NODE_A, seconds=2 * POD_DEADLINE)
    scene.writes_on()
    scene.writes_on(name="other")
    # Each has written into its own volume only.
    for app in ("db", "other"):
        numbers = [line.number for line in scene.lines(NODE_A, app)]
        assert numbers == list(range(1, len(numbers) + 1)), app
    for app, before in {"db": pod, "other": neighbour}.items():
        (after,) = scene.pods(NODE_A, app)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert [entry["restartCount"] for entry in after["status"]["containerStatuses"]] == [0]
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text

    # Driver and kubelet can do with what is left.
    scene.api.delete(k8s.path("ConfigMap", "settings", "default"))
    for app in ("db", "other"):
        scene.api.delete(k8s.path("Deployment", app))
    scene.cluster.wait(lambda: scene.attachment() is None, "db is detached", POD_DEADLINE)
    scene.wait_unmapped()
