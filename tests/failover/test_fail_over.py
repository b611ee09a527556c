# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is lost while it writes: the playbook fences it, moves its volume, and lets no write of it
through any more.
"""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from lab.common import patient
from lab.kubernetes.addons.addons import Addons
from support.cluster import LOCAL, Played
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import DEFAULTS, FAIL_OVER, OUT_OF_SERVICE, RELEASE, USER, Fencing
from support.node import COLLECTION, environment
from support.rights import FILES
from support.selection import lowest

ADDRESS = ADDRESSES[NODE_A]


def moved(scene: Failover, fencing: Fencing, entry: str, four_ways: bool = False) -> Played:
    """End to end: the run, and what it comes to on both sides; with four_ways also check mode
    before, and a second run in both modes. Returns the run.
    """
    writer, ceph = scene.writer, scene.storage.ceph
    scene.lose()
    scene.wait_waiting()
    assert writer.error == "" and scene.watches()

    if four_ways:
        before = fencing.state()
        check = fencing.fail_over(check=True)
        assert check.rc == 0, check.text
        assert "planned: write_fence_ledger" in check.text and "planned: cordon_node" in check.text
        assert fencing.state() == before

    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert writer.error, "A may still write"
    assert not scene.watches()
    assert set(ceph.blocklist()) == {entry}
    assert scene.attached(NODE_B) and scene.attachment(NODE_A) is None
    assert fencing.lease is None and fencing.cordoned
    ledger = fencing.ledger
    assert ledger and ledger["phase"] == "detached" and ledger["addresses"] == [ADDRESS]
    scene.wait_running(NODE_B)

    fenced_at = scene.content()
    other = scene.node_b_opens()
    time.sleep(2)
    assert scene.content() == fenced_at <= writer.acknowledged + 1
    assert other.acknowledged and not other.error

    before = fencing.state()
    for check_mode in (False, True) if four_ways else ():
        again = fencing.fail_over(check=check_mode)
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
        assert fencing.state() == before
    return run


@pytest.mark.parametrize(
    ("playbook", "name"),
    [(FAIL_OVER, ""), (FAIL_OVER, "all"), (FAIL_OVER, "node-a,node-b"), (RELEASE, "")],
)
def test_nothing_without_one_node(playbook: str, name: str) -> None:
    command = [
        "ansible-playbook",
        f"{COLLECTION}.{playbook}",
        *LOCAL,
        "-e",
        json.dumps({"target": name}),
    ]
    answer = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=patient(60), env=environment()
    )
    assert answer.returncode != 0 and "target is required: the name of one node" in answer.stdout, (
        answer.stdout + answer.stderr
    )


@pytest.mark.variation
def test_lowest_ansible_core(failover_current: Failover) -> None:
    """Its templates make text of what the modules are given."""
    fencing = Fencing(failover_current)
    fencing.program = lowest("ansible-playbook")
    moved(failover_current, fencing, f"{ADDRESS}:0/0")


def test_volumes_one_by_one(failover_1_20: Failover) -> None:
    fencing = Fencing(failover_1_20)
    moved(failover_1_20, fencing, f"{ADDRESS}:0/0")
    assert OUT_OF_SERVICE not in failover_1_20.taints(NODE_A)
    failover_1_20.cluster.used(
        "rbac-fence.yml",
        "get /version",
        "get /apis",
        "get nodes",
        "list nodes",
        "patch nodes",
        "get volumeattachments",
        "list volumeattachments",
        "delete volumeattachments",
        "get persistentvolumes",
        "get persistentvolumeclaims",
        "list pods",
        "delete pods",
        "get configmaps storage-ops",
        "list configmaps storage-ops",
        "create configmaps storage-ops",
        "patch configmaps storage-ops",
        "get leases storage-ops",
        "create leases storage-ops",
        "patch leases storage-ops",
        "delete leases storage-ops",
    )


def test_a_long_look_where_the_short_one_is_not_enough(failover_current: Failover) -> None:
    # The lab's client is one of librbd, and nothing is noted of it.
    scene, fencing = failover_current, Fencing(failover_current)
    scene.lose()
    scene.wait_waiting()
    run = fencing.fail_over(**DEFAULTS)
    assert run.rc == 0 and scene.attached(NODE_B), run.text
    assert run.text.index("2 in 5") < run.text.index("3 in 61"), run.text


@pytest.mark.smoke
def test_out_of_service_taint(failover_current: Failover) -> None:
    fencing = Fencing(failover_current)
    run = moved(failover_current, fencing, f"{ADDRESS}:0/0", four_ways=True)
    assert OUT_OF_SERVICE in failover_current.taints(NODE_A)
    # Right after the taint, and not when the pod garbage collector looks.
    assert run.text.index("done: taint_node") < run.text.index("done: force_delete_pod"), run.text


def test_nothing_is_changed_that_could_not_be_brought_to_its_end(
    failover_current: Failover,
) -> None:
    scene, fencing = failover_current, Fencing(failover_current)
    scene.lose()
    scene.wait_waiting()
    before = fencing.state()

    def refused(*words: str, **given: str) -> None:
        run = fencing.fail_over(**given)
        assert run.rc != 0, run.text
        for word in words:
            assert word in run.text, run.text

    # What ceph-csi has: it could add the entry, but not find out whom that hits.
    scene.storage.user("rbd", mon="profile rbd", osd="profile rbd")
    fencing.user = "rbd"
    refused("as client.rbd. Grant mon 'allow r'")
    fencing.user = USER
    refused("is not a host of the inventory", node_fence_ceph_host="ceph-amdin")
    refused("must be true or false, not 'flase'", node_fence_node_confirmed_off="flase")
    refused("must be true or false", volume_failover_accept_unfenced_volumes="flase")
    refused("volume_failover_detach must be one of", volume_failover_detach="all")
    refused("give each as namespace/name", volume_failover_claims="data")
    assert fencing.state() == before and not scene.writer.error
    scene.storage.ceph.freeze()
    refused("node-a was not fenced")
    scene.storage.ceph.thaw()
    assert fencing.state() == before and not scene.writer.error


def test_network_fence(failover_current: Failover, addons: Addons) -> None:
    """What was prepared is taken, by the real controller; Ceph proves it.

    Its release leaves the NetworkFence, Unfenced.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    addons.make_class("ceph")
    addons.create(f"storage-ops-{NODE_A}", f"{ADDRESS}/32", class_name="ceph")
    moved(scene, fencing, f"cidr:{ADDRESS}:0/32")
    ledger = fencing.ledger
    assert ledger and ledger["method"] == "network_fence" and not ledger["unverified"]
    assert addons.get(f"storage-ops-{NODE_A}")["spec"]["fenceState"] == "Fenced"
    audit = {"user": FILES / "rbac-audit.yml", "controls": ["STOR-16", "STOR-17"]}
    seen = scene.cluster.ansible("cluster_storage_info", **audit)
    assert not seen.failed, seen.msg
    scene.cluster.used("rbac-audit.yml", "list networkfences", "list networkfenceclasses")

    scene.recover(rebooted=True)
    run = fencing.release()
    assert run.rc == 0, run.text
    fencing.nothing_left()
    assert scene.storage.ceph.blocklist() == {}
    assert addons.get(f"storage-ops-{NODE_A}")["spec"]["fenceState"] == "Unfenced"
    scene.cluster.used(
        "rbac-fence.yml",
        "get networkfences",
        "list networkfences",
        "patch networkfences",
        "list networkfenceclasses",
        "delete configmaps storage-ops",
    )


@pytest.mark.variation
def test_network_fence_without_access_to_ceph(failover_current: Failover, addons: Addons) -> None:
    scene, fencing = failover_current, Fencing(failover_current, ceph=False)
    addons.create(f"storage-ops-{NODE_A}", f"{ADDRESS}/32")
    scene.lose()
    scene.wait_waiting()
    # A NetworkFence that somebody made says what it covers, and not that this is the node's address
    # on Ceph's network.
    refused = fencing.fail_over()
    assert refused.rc != 0 and "fence_addresses" in refused.text and fencing.ledger is None, (
        refused.text
    )
    run = fencing.fail_over(node_fence_fence_addresses=ADDRESS)
    assert run.rc == 0, run.text
    ledger = fencing.ledger
    assert ledger and ledger["unverified"] and ledger["phase"] == "detached"
    assert scene.writer.error and scene.attached(NODE_B)
    scene.recover(rebooted=True)
    run = fencing.release()
    assert run.rc == 0 and "unverified" in run.text, run.text
    fencing.nothing_left()
    assert scene.storage.ceph.blocklist() == {}
