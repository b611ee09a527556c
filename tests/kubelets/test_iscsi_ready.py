# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is not ready for iSCSI when its first volume comes (R14): below a pod that waits for
it, with a real kubelet and a CSI driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.kubelet.csi import LunDriver
from support.failover import NODE_A
from support.kind import on
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene, counting
from support.node import Node
from support.reattach import REPAIR

# As on a node that was never prepared: no session, no daemon that iscsiadm could start, no module,
# and nothing that would load one.
UNPREPARE = """
labctl logout
multipath -F
systemctl stop iscsid.socket iscsid.service
sed -i.lab '/^iscsid.startup/d' /etc/iscsi/iscsid.conf
sed -i.lab '/iscsi/d' /etc/modules-load.d/lab.conf
rmmod ib_iser
rmmod iscsi_tcp libiscsi_tcp libiscsi scsi_transport_iscsi
"""
# As all nodes are; the driver has logged in to its own target by now.
PREPARE = """
mv /etc/iscsi/iscsid.conf.lab /etc/iscsi/iscsid.conf
mv /etc/modules-load.d/lab.conf.lab /etc/modules-load.d/lab.conf
rm /etc/modules-load.d/storage_ops-iscsi_tcp.conf
systemctl start iscsid.socket
iscsiadm -m node -p 127.0.0.1 --login && iscsiadm -m node -p 127.0.0.2 --login
"""


def load(scene: KubeletScene, check: bool = False, **asked: str) -> tuple[int, str]:
    """The playbook for A as an operator runs it: its exit code, and what it said."""
    inventory = scene.inventory(scene.kubelets.folder / "iscsi-inventory")
    run = scene.cluster.playbook(
        "load_iscsi_modules", check, user=REPAIR, inventory=inventory, target=NODE_A, **asked
    )
    return run.rc, run.text


def refused(scene: KubeletScene) -> bool:
    """The driver has said why it cannot log in."""
    return any("can not connect to iSCSI daemon" in said for said in scene.told())


@pytest.mark.variation
def test_the_first_volume(scene: KubeletScene, luns: LunDriver, tmp_path: Path) -> None:
    vm, node = scene.vm(), Node(scene.vm())
    vm.run(UNPREPARE, timeout=120, check=False)
    assert not loaded(node)
    luns.add_volume("db")
    scene.create("db", ["db"], **counting("db"), grace=1, **on(NODE_A))
    scene.cluster.wait(lambda: refused(scene), "the driver cannot log in", POD_DEADLINE)
    (pod,) = scene.pods(NODE_A)

    triage = scene.cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds="1")
    assert "STOR-04 major: pod default/db-" in triage.text, triage.text
    assert f"load_iscsi_modules -i inventory -e target={NODE_A}" in triage.text, triage.text
    played, report = scene.compliance(tmp_path / "before")
    found = {
        (finding["host"], finding["control"], finding["object"]["name"])
        for finding in report["findings"]
    }
    missing = {(NODE_A, "STOR-04", name) for name in ("iscsi_tcp", "iscsid")}
    assert found == missing and played.rc != 0, report["findings"]

    rc, said = load(scene, check=True)
    assert rc == 0 and "planned: load_module iscsi_tcp" in said, said
    assert "set start_iscsid to start it" in said, said
    rc, said = load(scene, check=True, iscsi_ready_start_iscsid="true")
    assert rc == 0 and "2 would be repaired" in said, said
    assert not loaded(node)
    assert not node.sh("ls /etc/modules-load.d | grep storage_ops", check=False)
    rc, said = load(scene, iscsi_ready_start_iscsid="true")
    assert rc == 0 and "2 repaired and proven" in said, said

    scene.wait_running(NODE_A, seconds=2 * POD_DEADLINE)
    scene.writes_on()
    (same,) = scene.pods(NODE_A)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    rc, said = load(scene, iscsi_ready_start_iscsid="true")
    assert rc == 0 and "| CHANGED" not in said, said
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text
    controls = {host["name"]: host["controls"] for host in report["hosts"]}
    assert controls[NODE_A]["STOR-04"] == "pass", controls
    scene.writes_on()
    lines = [line.number for line in scene.lines(NODE_A)]
    assert lines == list(range(1, len(lines) + 1))
    vm.run(PREPARE, timeout=120)


def loaded(node: Node) -> bool:
    """The node's kernel has the module."""
    return "\niscsi_tcp " in node.sh("lsmod")
