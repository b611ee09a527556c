# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that hangs, with a Ceph of both families of addresses: nothing shows its client any more,
and Kubernetes knows one of its two addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.ceph.cluster import Ceph
from lab.ceph.net import CLIENTS, IPV4, IPV6
from lab.common import wait
from lab.kubernetes.controlplane import ControlPlane
from support.cluster import fresh
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import Fencing
from support.fixtures import own_name
from support.storage import fresh_storage

SIX = dict(zip(ADDRESSES, CLIENTS, strict=True))


@pytest.fixture
def scene(plane_failover_current: ControlPlane) -> Iterator[Failover]:
    """The monitor map lists IPv6 first, so that is what clients have."""
    ceph = Ceph(own_name("both"), families=(IPV6, IPV4))
    ceph.start()
    for storage in fresh_storage(ceph):
        for cluster in fresh(plane_failover_current):
            scenario = Failover(cluster, storage, SIX)
            yield scenario
            scenario.close()
    ceph.remove()


@pytest.mark.variation
def test_a_node_that_hangs_is_fenced_at_both_families_or_not_at_all(scene: Failover) -> None:
    """A fence of the address that Kubernetes knows would let it write beside the next writer."""
    fencing, ceph, writer = Fencing(scene), scene.storage.ceph, scene.writer
    assert writer.address == SIX[NODE_A]
    scene.set_addresses(NODE_A, ADDRESSES[NODE_A])
    scene.lose()
    scene.wait_waiting()
    writer.pause()
    wait(lambda: not scene.watches(), "its watch has run out", 60)
    before, content = fencing.state(), scene.content()

    addresses = ADDRESSES[NODE_A]
    refused = fencing.fail_over(node_fence_fence_addresses=addresses)
    assert refused.rc != 0 and "no IPv6 address of node node-a is fenced" in refused.text, (
        refused.text
    )
    assert "pv-db" in refused.text and "fence_addresses" in refused.text, refused.text
    assert fencing.state() == before and ceph.blocklist() == {}

    addresses = f"{ADDRESSES[NODE_A]},{SIX[NODE_A]}"
    run = fencing.fail_over(node_fence_fence_addresses=addresses)
    assert run.rc == 0, run.text
    assert set(ceph.blocklist()) == {f"{ADDRESSES[NODE_A]}:0/0", f"[{SIX[NODE_A]}]:0/0"}
    assert scene.attached(NODE_B) and scene.attachment(NODE_A) is None
    scene.wait_running(NODE_B)
    other = scene.node_b_opens()
    assert other.address == SIX[NODE_B]

    writer.resume()
    wait(lambda: writer.error, "the node that wakes up gets an error")
    acknowledged = other.acknowledged
    wait(lambda: other.acknowledged > acknowledged, "the next writer goes on")
    assert writer.content() == content and not other.error

    scene.recover(rebooted=True)
    run = fencing.release()
    assert run.rc == 0, run.text
    fencing.nothing_left()
    assert ceph.blocklist() == {}
