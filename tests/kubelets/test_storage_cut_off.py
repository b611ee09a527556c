# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that reaches its storage no more. Where it still reaches the API server, nothing calls it
lost, so no run fences it; and once its storage is back, its pod goes on. Where it reaches neither,
it fails over, and what it still had to write is refused when its network is back.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failover import NODE_A, NODE_B
from support.fencing import Fencing
from support.kubelets import POD_DEADLINE, KubeletScene


@pytest.mark.variation
def test_ceph_alone_is_out_of_reach(scene: KubeletScene, tmp_path: Path) -> None:
    fencing, ceph = Fencing(scene), scene.storage.ceph
    scene.count()
    (pod,) = scene.pods()
    image = f"rbd/{scene.image()}"
    scene.cut_storage()
    scene.look(lambda: not ceph.watchers(image), "the watch has ended")
    stopped = scene.acknowledged()

    # Nobody has the image open, as if it could be given to another node.
    before = fencing.state()
    for check in (True, False):
        refused = fencing.fail_over(check=check)
        assert refused.rc != 0 and f"node {NODE_A} is Ready" in refused.text, refused.text
        assert fencing.state() == before
    # The run of the night comes to its end, names what does not answer, and looks at all else.
    played, report = scene.compliance(tmp_path / "cut")
    found = [
        (finding["host"], finding["control"], finding["verdict"], finding["code"])
        for finding in report["findings"]
    ]
    assert found == [(NODE_A, "STOR-08", "refuse", "device_unusable")], report["findings"]
    assert played.rc != 0 and "ext4 on /dev/rbd0 does not answer" in played.text, played.text
    hosts = {host["name"]: set(host["controls"].values()) for host in report["hosts"]}
    for name in (NODE_B, "cluster", "ceph"):
        assert hosts[name] <= {"pass", "not_applicable"}, hosts
    assert fencing.state() == before and scene.acknowledged() == stopped

    scene.heal()
    scene.wait_written(stopped)
    (same,) = scene.pods(NODE_A)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [entry["restartCount"] for entry in same["status"]["containerStatuses"]] == [0]
    numbers = [line.number for line in scene.lines(NODE_A)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > stopped
    assert len(ceph.watchers(image)) == 1
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text


@pytest.mark.variation
def test_neither_ceph_nor_the_api_server_is_in_reach(scene: KubeletScene) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()
    scene.count()
    image = f"rbd/{scene.image()}"
    vm.run("dmesg --clear")
    written = scene.acknowledged()
    vm.cut_off(str(scene.kubelets.port()), *scene.kubelets.ceph_ports())
    scene.wait_lost(seconds=180)
    scene.wait_waiting()
    scene.look(lambda: not ceph.watchers(image), "the watch has ended")
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"}
    # Ceph shows no watcher, so the address is the one that the CSI driver has noted.
    assert fencing.ledger and fencing.ledger["source"] == {vm.address: "metadata"}
    scene.wait_running(NODE_B, seconds=POD_DEADLINE)
    scene.wait_written(0, NODE_B)
    last, first = scene.acknowledged(), scene.moved_once()
    assert written <= last < first

    scene.heal()
    # It tries, and Ceph refuses (ESHUTDOWN, BLOCKLISTED).
    said = "dmesg | grep 'rbd.* result -108'"
    scene.look(lambda: vm.run(said, check=False).stdout, "A is refused")
    scene.wait_back(seconds=180)
    scene.inventory(fencing.inventory)
    scene.wait_unmapped()
    fencing.let_go()
    # Not one write of A has come after B's first.
    assert scene.acknowledged() == last and scene.moved_once() == first
    scene.move_back()
