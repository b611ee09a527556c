# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator or a neighbour has done before, and what is known all the same: it must not keep
the volumes where they are.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from lab.kubernetes import api as k8s
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import Fencing

ENTRY = f"{ADDRESSES[NODE_A]}:0/0"


def end(scene: Failover) -> datetime:
    """Until when the entry of node A is there."""
    return datetime.strptime(scene.storage.ceph.blocklist()[ENTRY], "%Y-%m-%dT%H:%M:%S.%f%z")


def test_an_entry_by_hand_and_a_shared_volume(failover_current: Failover) -> None:
    """An operator has blocked the node for Ceph's hour, so Ceph shows no client of it: the entry
    says that an address is blocked, not whose it is. And B has one of the volumes too, by right.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    scene.volume("share", modes=["ReadWriteMany"])
    scene.deploy("share", ["share"])
    scene.api.create(k8s.pod("reader", ["share"], NODE_B))
    scene.cluster.wait(lambda: scene.attached(NODE_B, "share"), "B has the shared volume too")
    scene.node_a_opens("share")
    theirs = scene.node_b_opens("share")
    scene.lose()
    scene.storage.ceph.run("osd", "blocklist", "add", ENTRY)
    before = end(scene)
    scene.cluster.wait(lambda: not scene.watches(), "A has lost its watch", 60)

    # That B is at its address, B alone says.
    refused = fencing.fail_over()
    assert refused.rc != 0 and "client_unknown" in refused.text, refused.text
    named = {"node_fence_other_addresses": [ADDRESSES[NODE_B]]}
    refused = fencing.fail_over(**named)
    assert refused.rc != 0 and "address_unknown" in refused.text, refused.text
    assert "client_unknown" not in refused.text, refused.text
    assert scene.attachment(NODE_A) and end(scene) == before
    for _run in range(2):
        run = fencing.fail_over(node_fence_fence_addresses=[ADDRESSES[NODE_A]], **named)
        assert run.rc == 0, run.text
        assert end(scene) - before > timedelta(days=300)
    assert (
        scene.attached(NODE_B)
        and not scene.attachment(NODE_A)
        and not scene.attachment(NODE_A, "share")
        and not theirs.error
    )

    scene.recover(rebooted=True)
    run = fencing.release()
    assert run.rc == 0, run.text
    assert timedelta() <= end(scene) - before <= timedelta(minutes=2)
    fencing.nothing_left()
    again = fencing.release()
    assert again.rc == 0 and "| CHANGED" not in again.text, again.text
