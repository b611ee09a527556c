# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that a process in the driver's pod serves (rbd-nbd), not the node's kernel: its node is
cut off from the API server and writes on, fails over, and is released.
"""

from __future__ import annotations

import pytest
from support.failover import NODE_A
from support.fencing import Fencing
from support.kubelets import KubeletScene, counting

SERVERS = "pgrep -x rbd-nbd"


@pytest.mark.variation
def test_a_process_of_the_driver_has_the_image(scene: KubeletScene) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()
    scene.volume("db", mounter="rbd-nbd")
    scene.deploy("db", ["db"], **counting("db"))
    scene.wait_written(2)
    device = vm.run("findmnt -rno SOURCE -t ext4 | grep -m 1 nbd").stdout.strip()
    pid = vm.run(f"nohup sleep 100000 <{device} >/dev/null 2>&1 & echo $!").stdout.strip()

    last, first = scene.fail_over(fencing.fail_over)
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"}
    assert fencing.ledger and fencing.ledger["source"] == {vm.address: "watcher"}

    scene.heal()
    scene.wait_back(seconds=180)
    scene.inventory(fencing.inventory)
    before = fencing.state()
    refused = fencing.release()
    assert refused.rc != 0 and f"rbd-nbd {device}" in refused.text, refused.text
    assert fencing.state() == before

    vm.run(["kill", pid])
    scene.look(lambda: not vm.run(SERVERS, check=False).stdout, f"{NODE_A} has unmapped all")
    fencing.let_go()
    # Not one write of A has come after B's first.
    assert scene.acknowledged() == last and scene.moved_once() == first
    scene.move_back()
