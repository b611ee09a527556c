# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fenced node is given back by the playbook: never before its old clients are proven gone, and
exactly what is ours.

The node is a stand-in, so its reboot is another bootID in its status, which the test writes.
"""

from __future__ import annotations

from support.failover import ADDRESSES, NODE_A, Failover
from support.fencing import INVENTORY, OUT_OF_SERVICE, Fencing

OURS = f"{ADDRESSES[NODE_A]}:0/0"
# Entries of others: of Ceph's own making, when a lock is broken, and an operator's.
AUTOMATIC, FOREIGN = "192.0.2.7:0/4711", "192.0.2.9:0/0"


def test_release(failover_current: Failover) -> None:
    scene, fencing = failover_current, Fencing(failover_current)
    ceph = scene.storage.ceph
    for entry in (AUTOMATIC, FOREIGN):
        ceph.run("osd", "blocklist", "add", entry, "3600")
    nothing = fencing.release()
    assert nothing.rc == 0 and "| CHANGED" not in nothing.text, nothing.text
    scene.lose()
    scene.wait_waiting()
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert set(ceph.blocklist()) == {OURS, AUTOMATIC, FOREIGN} and OUT_OF_SERVICE in scene.taints(
        NODE_A
    )
    scene.wait_running()

    def refused(check: bool, *words: str) -> None:
        before = fencing.state()
        refusal = fencing.release(check=check)
        assert refusal.rc != 0, refusal.text
        for word in words:
            assert word in refusal.text, refusal.text
        assert fencing.state() == before

    # Silent still; then back without a reboot, and the node was not looked at; then asked, which
    # is another host here.
    refused(False, "not Ready")
    scene.recover()
    for check in (True, False):
        refused(
            check,
            "was not rebooted since it was fenced",
            "the node was not looked at",
            "Reboot the node",
        )
    variables = "ansible_connection=local ansible_become=false ansible_python_interpreter"
    fencing.inventory.write_text(f"{INVENTORY}{NODE_A} {variables}=/nowhere/python3\n")
    refused(False, "the node was not looked at", "node-a could not be asked for its clients: ")
    fencing.inventory.write_text(f"{INVENTORY}{NODE_A} {variables}=/usr/bin/python3\n")
    refused(False, "was not rebooted since it was fenced", "was read in another boot")

    scene.recover(rebooted=True)
    without = fencing.release(node_release_ceph_host="")
    assert without.rc != 0 and "node_release_ceph_host" in without.text
    before = fencing.state()
    check = fencing.release(check=True)
    assert check.rc == 0 and "planned: untaint_node" in check.text, check.text
    assert fencing.state() == before

    run = fencing.release()
    assert run.rc == 0, run.text
    fencing.nothing_left()
    assert set(ceph.blocklist()) == {AUTOMATIC, FOREIGN}
    before = fencing.state()
    for check in (False, True):
        again = fencing.release(check=check)
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
        assert fencing.state() == before
    # What comes back is a client as any other.
    scene.writer.kill()
    assert not scene.node_a_opens().error
