# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is cut off from the API server and writes on, to an RBD image and to a LUN by iSCSI
and multipath: its BMC takes its power away, so the volumes of both drivers move. No Ceph is asked.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.bmc.bmc import USER, Redfish
from lab.kubelet.csi import LunDriver
from lab.kubernetes.api import path
from support.failover import NODE_A, NODE_B
from support.fencing import OUT_OF_SERVICE, Fencing
from support.kubelets import POD_DEADLINE, KubeletScene, counting

# The second one is of an array that has no fence of its own.
NAMES = ("db", "files")


@pytest.fixture
def bmc(scene: KubeletScene, tmp_path: Path) -> Iterator[Redfish]:
    """That of A's machine, which is the emulated one that A runs on."""
    with Redfish(tmp_path / "bmc", str(uuid.uuid4()), scene.vm()) as found:
        yield found


@pytest.mark.variation
def test_what_is_behind_the_bmc_dies(scene: KubeletScene, luns: LunDriver, bmc: Redfish) -> None:
    fencing, vm = Fencing(scene, ceph=False), scene.vm()
    luns.add_volume("files")
    scene.count()
    scene.create("files", ["files"], **counting("files"))
    scene.wait_running(NODE_A, "files", POD_DEADLINE)
    scene.inventory(fencing.inventory)
    scene.cut()
    scene.wait_lost(seconds=180)
    for name in NAMES:
        scene.wait_waiting(name)
        scene.writes_on(name=name)
    boot = scene.node()["status"]["nodeInfo"]["bootID"]

    given = told("node_fence", bmc, method="power", power_seconds="2")
    planned = fencing.fail_over(check=True, **given)
    assert planned.rc == 0, planned.text
    assert vm.running and fencing.ledger is None
    for name in NAMES:
        scene.writes_on(name=name)
    run = fencing.fail_over(**given)
    assert run.rc == 0, run.text
    assert not vm.running
    assert fencing.ledger and fencing.ledger["method"] == "power"
    assert OUT_OF_SERVICE in scene.taints()
    for name in NAMES:
        scene.wait_running(NODE_B, name, POD_DEADLINE)
        scene.wait_written(0, NODE_B, name)
        moved_once(scene, name)

    released = fencing.release(**told("node_release", bmc, power_on="true"))
    assert released.rc == 0, released.text
    fencing.nothing_left()
    assert vm.running and scene.node()["status"]["nodeInfo"]["bootID"] != boot
    # All that A knew to be written, its power lost, came before B's first.
    for name in NAMES:
        assert scene.acknowledged(name=name) < moved_once(scene, name)
    (pod,) = scene.pods(NODE_B)
    scene.api.delete(path("Pod", pod["metadata"]["name"], "default"))
    scene.wait_running(NODE_A, seconds=POD_DEADLINE)
    scene.writes_on()


def told(role: str, bmc: Redfish, **more: str) -> dict[str, Any]:
    """What the role is told of A's BMC, as from a survey."""
    bmcs = {NODE_A: bmc.mapped, NODE_B: {"kind": "ipmi", "address": "b.test"}}
    given = {"bmcs": json.dumps(bmcs), "bmc_user": USER, "bmc_password": bmc.password, **more}
    return {f"{role}_{name}": value for name, value in given.items()}


def moved_once(scene: KubeletScene, name: str) -> int:
    """The first number that B has written; all lines are there, and A's come before it."""
    lines = scene.lines(NODE_B, name)
    numbers, nodes = [line.number for line in lines], [line.node for line in lines]
    assert numbers == list(range(1, len(lines) + 1))
    first = nodes.index(NODE_B)
    assert set(nodes[:first]) == {NODE_A} and set(nodes[first:]) == {NODE_B}
    return numbers[first]
