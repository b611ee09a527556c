# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lost node from the first look to the last: what triage, compliance and check mode say of it,
the fail-over, the same run again, and its release. It is cut off from the API server and writes on;
or its machine freezes, its watch ends, and it wakes up in the middle of its work.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.failover import NODE_A, NODE_B
from support.fencing import Fencing
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene


def check_told(scene: KubeletScene, folder: Path, reached: bool) -> None:
    """Both audits name the node, and compliance nothing else; ``reached``: by ssh."""
    triage = scene.cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds="1")
    assert "STOR-16 major: pod default/db-" in triage.text, triage.text
    told = f"fail_over_volumes -i inventory -e target={NODE_A}"
    assert told in triage.text, triage.text
    seconds = json.dumps({"grace_seconds": 1})
    played, report = scene.compliance(folder, compliance_cluster_options=seconds)
    found = [
        (finding["host"], finding["control"], finding["object"]["name"])
        for finding in report["findings"]
    ]
    assert found == [("cluster", "STOR-16", NODE_A)] and played.rc != 0, report["findings"]
    hosts = {host["name"]: set(host["controls"].values()) for host in report["hosts"]}
    fine = {"pass", "not_applicable"}
    assert hosts[NODE_B] <= fine and hosts["ceph"] <= fine, hosts
    if reached:
        assert hosts[NODE_A] <= fine, hosts
    else:
        assert hosts[NODE_A] == {"not_assessed"}, hosts


@pytest.mark.variation
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "cut_off"])
def test_the_whole_story(scene: KubeletScene, tmp_path: Path, frozen: bool) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()
    scene.count()
    # Somebody has the device open, so the kubelet that is back cannot give it up.
    device = vm.run("ls -d /dev/rbd[0-9]*").stdout.strip()
    pid = vm.run(f"nohup sleep 100000 <{device} >/dev/null 2>&1 & echo $!").stdout.strip()
    vm.run("dmesg --clear")
    written = scene.acknowledged()
    if frozen:
        vm.freeze()
    else:
        scene.cut()
    scene.wait_lost(seconds=180)
    scene.wait_waiting()
    if frozen:
        watched = f"rbd/{scene.image()}"
        scene.look(lambda: not ceph.watchers(watched), "the watch has ended")

    check_told(scene, tmp_path, reached=not frozen)
    before = fencing.state()
    planned = fencing.fail_over(check=True)
    assert planned.rc == 0 and "planned: write_fence_ledger" in planned.text, planned.text
    assert fencing.state() == before
    if not frozen:
        scene.writes_on()
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"}
    source = "metadata" if frozen else "watcher"
    assert fencing.ledger and fencing.ledger["source"] == {vm.address: source}
    scene.wait_running(NODE_B, seconds=POD_DEADLINE)
    scene.wait_written(0, NODE_B)
    first = scene.moved_once()
    before = fencing.state()
    for check in (True, False):
        again = fencing.fail_over(check=check)
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
        assert fencing.state() == before

    if frozen:
        vm.thaw()
    # It tries, and Ceph refuses (ESHUTDOWN, BLOCKLISTED).
    scene.look(
        lambda: vm.run("dmesg | grep 'rbd.* result -108'", check=False).stdout, "A is refused"
    )
    last = scene.acknowledged()
    assert written <= last < first
    if not frozen:
        scene.heal()
    scene.wait_back(seconds=180)
    scene.inventory(fencing.inventory)
    before = fencing.state()
    refused = fencing.release()
    assert refused.rc != 0 and device in refused.text, refused.text
    assert fencing.state() == before

    vm.run(["kill", pid])
    scene.wait_unmapped()
    fencing.let_go()
    before = fencing.state()
    again = fencing.release()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
    assert fencing.state() == before
    # Not one write of A has come after B's first.
    assert scene.acknowledged() == last and scene.moved_once() == first
    scene.move_back()
