# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A volume whose filesystem has given up after I/O errors (R13): below a real pod, which a real
kubelet and driver give it again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.kubernetes import api as k8s
from support.cluster import Played
from support.failover import NODE_A
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene
from support.node import PATIENT
from support.reattach import REPAIR


@pytest.mark.variation
def test_the_workload_is_moved_once_the_image_answers(scene: KubeletScene, tmp_path: Path) -> None:
    ceph, vm = scene.storage.ceph, scene.vm()
    inventory = scene.inventory(scene.kubelets.folder / "readonly-inventory")

    def play(check: bool = False) -> Played:
        return scene.cluster.playbook(
            "repair_pod_mounts",
            check,
            user=REPAIR,
            inventory=inventory,
            target=NODE_A,
            pod_mounts_options=json.dumps(PATIENT),
            pod_mounts_reattach="true",
            # Its volume is the node's only one.
            pod_mounts_accept_majority="true",
        )

    scene.count()
    ceph.run("osd", ceph.word, "add", vm.address, "3600")
    failed = "dmesg | grep -e 'EXT4-fs (rbd.*Remounting filesystem read-only'"
    scene.look(lambda: vm.run(failed, check=False).stdout, "ext4 gives up")
    last = scene.acknowledged()
    refused = play()
    assert refused.rc != 0 and "cannot be read" in refused.text, refused.text

    ceph.run("osd", ceph.word, "rm", vm.address)
    _played, report = scene.compliance(tmp_path / "before")
    found = [(finding["host"], finding["control"]) for finding in report["findings"]]
    assert found == [(NODE_A, "STOR-08")], report["findings"]
    (old,) = scene.pods()
    # No event of a pod that runs tells it, so triage sends to the node.
    about = {"triage_namespace": "default", "triage_pod": old["metadata"]["name"]}
    triage = scene.cluster.playbook("triage", user=AUDITOR, **about)
    assert f"compliance -i inventory -e target={NODE_A} " in triage.text, triage.text
    assert "a filesystem that turned read-only is STOR-08" in triage.text, triage.text
    planned = play(check=True)
    assert planned.rc == 0 and "planned: evict_pod default/db-" in planned.text, planned.text
    assert [pod["metadata"]["uid"] for pod in scene.pods()] == [old["metadata"]["uid"]]
    assert scene.acknowledged() == last
    done = play()
    assert done.rc == 0 and "done: evict_pod default/db-" in done.text, done.text

    (new,) = scene.pods()
    node = new["spec"]["nodeName"]
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    scene.wait_running(node, seconds=POD_DEADLINE)
    scene.writes_on(node)
    lines = scene.lines(node)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) > last
    again = play()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text
    scene.writes_on(node)

    # Driver and kubelet can do with what is left.
    scene.api.delete(k8s.path("Deployment", "db"))
    scene.cluster.wait(lambda: not scene.pods(), "db ends", POD_DEADLINE)
    scene.cluster.wait(lambda: scene.attachment(node) is None, "db is detached", POD_DEADLINE)
    assert vm.run("ls /sys/bus/rbd/devices").stdout == ""
