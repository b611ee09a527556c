# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node without power: its kernel's watch has ended with it, and what tells whom to fence is what
the CSI driver noted. It boots while it is fenced, and is given back for its new boot ID.
"""

from __future__ import annotations

import pytest
from lab.kubernetes.api import path
from support.failover import NODE_A, NODE_B
from support.fencing import OUT_OF_SERVICE, Fencing
from support.kubelets import POD_DEADLINE, KubeletScene


@pytest.mark.variation
def test_the_node_boots_and_serves_again(scene: KubeletScene) -> None:
    fencing, ceph = Fencing(scene), scene.storage.ceph
    image, vm = f"rbd/{scene.image()}", scene.vm()
    scene.count()
    boot = scene.node()["status"]["nodeInfo"]["bootID"]
    written = scene.acknowledged()

    vm.stop()
    scene.wait_lost(seconds=180)
    scene.wait_waiting()
    scene.look(lambda: not ceph.watchers(image), "the watch has ended")
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"}
    assert fencing.ledger and fencing.ledger["source"] == {vm.address: "metadata"}
    scene.wait_running(NODE_B, seconds=POD_DEADLINE)
    scene.wait_written(0, NODE_B)
    lines = scene.lines(NODE_B)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    # What fdatasync(2) has acknowledged has outlived the power.
    assert lines[written - 1] == (written, NODE_A)

    def refused(reason: str) -> None:
        state = fencing.state()
        refusal = fencing.release()
        assert refusal.rc != 0 and reason in refusal.text, refusal.text
        assert fencing.state() == state

    refused("not Ready")
    vm.power_on()
    scene.wait_back(seconds=180)
    assert scene.node()["status"]["nodeInfo"]["bootID"] != boot
    assert fencing.cordoned and OUT_OF_SERVICE in scene.taints()
    fencing.let_go()

    # The application prefers A.
    (pod,) = scene.pods(NODE_B)
    scene.api.delete(path("Pod", pod["metadata"]["name"], "default"))
    scene.wait_running(NODE_A, seconds=POD_DEADLINE)
    last = scene.acknowledged(NODE_B)
    scene.wait_written(last)
    numbers = [line.number for line in scene.lines(NODE_A)]
    assert numbers == list(range(1, len(numbers) + 1))
