# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main incident with real parts: a kubelet that is cut off from the API server, while its
node's kernel goes on writing.
"""

from __future__ import annotations

import pytest
from support.failover import NODE_A, NODE_B
from support.fencing import DEFAULTS, OUT_OF_SERVICE, Fencing
from support.kubelets import POD_DEADLINE, KubeletScene


@pytest.mark.variation
def test_the_node_writes_on_and_comes_back(scene: KubeletScene) -> None:
    fencing, ceph = Fencing(scene), scene.storage.ceph
    address = scene.vm().address
    scene.count()
    (watcher,) = ceph.watchers(f"rbd/{scene.image()}")
    assert watcher["address"].startswith(f"{address}:0/")

    scene.cut()
    scene.wait_lost(seconds=180)
    scene.wait_waiting()
    scene.writes_on()

    # Ceph, what the driver has noted, and the Node object agree, so nothing has to be watched for
    # longer.
    run = fencing.fail_over(**DEFAULTS)
    assert run.rc == 0, run.text
    assert "2 in 5" in run.text and "in 61" not in run.text, run.text
    assert set(ceph.blocklist()) == {f"{address}:0/0"}
    assert scene.attached(NODE_B) and scene.attachment(NODE_A) is None
    assert fencing.cordoned and OUT_OF_SERVICE in scene.taints()
    scene.wait_running(NODE_B, seconds=POD_DEADLINE)
    scene.wait_written(0, NODE_B)
    last = scene.acknowledged()
    lines = scene.lines(NODE_B)
    numbers, nodes = [line.number for line in lines], [line.node for line in lines]
    assert numbers == list(range(1, len(lines) + 1))
    first = nodes.index(NODE_B)
    assert set(nodes[:first]) == {NODE_A} and set(nodes[first:]) == {NODE_B}
    assert last < numbers[first]

    # Somebody has the device open, so the kubelet that is back cannot give it up.
    device = scene.vm().run("ls -d /dev/rbd[0-9]*").stdout.strip()
    pid = scene.vm().run(f"nohup sleep 100000 <{device} >/dev/null 2>&1 & echo $!").stdout.strip()
    scene.heal()
    scene.wait_back(seconds=180)
    scene.inventory(fencing.inventory)
    state = fencing.state()
    refused = fencing.release()
    assert refused.rc != 0 and device in refused.text, refused.text
    assert fencing.state() == state

    scene.vm().run(["kill", pid])
    scene.wait_unmapped()
    fencing.let_go()
    # Not one write of A has come after B's first.
    assert scene.acknowledged() == last
    assert {line.node for line in scene.lines(NODE_B)[first:]} == {NODE_B}
