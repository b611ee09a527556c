# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What would let the lost node and the new one write to one volume: the fence hits a stranger, not
all of the node, or goes again.
"""

from __future__ import annotations

import time

import pytest
from lab.ceph.client import Writer
from lab.ceph.mirror import Mirror
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import Fencing
from support.selection import variation

A, SECOND, SITE = ADDRESSES[NODE_A], "127.0.0.21", "127.0.0.13"
# Where node B reaches Ceph, which Kubernetes does not know.
THEIRS = "127.0.0.22"


def freeze(scene: Failover, *writers: Writer) -> None:
    """They hang, until their watches are over; each may wake up again."""
    for writer in writers:
        writer.pause()
    scene.cluster.wait(
        lambda: not any(map(scene.storage.watches, writers)), "the watches are over", 60
    )


def test_rbd_mirror_is_not_the_lost_node(failover_current: Failover) -> None:
    """The other site's daemon alone watches both images of a node that hangs; that is no evidence.

    Once the node goes on, it moves.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    scene.deploy("log")
    log, ceph = scene.node_a_opens("log"), scene.storage.ceph
    with Mirror(ceph, SITE) as mirror:
        mirror.start(*map(scene.image, ("db", "log")))
        scene.lose()
        scene.wait_waiting()
        freeze(scene, scene.writer, log)
        run = fencing.fail_over()
        assert (
            run.rc != 0
            and f"it is unknown from which address node {NODE_A} reaches Ceph" in run.text
        ), run.text
        assert ceph.blocklist() == {} and scene.attached(NODE_A) and scene.attached(NODE_A, "log")

        for writer in (scene.writer, log):
            writer.resume()
        scene.cluster.wait(
            lambda: all(map(scene.storage.watches, (scene.writer, log))), "A goes on", 60
        )
        run = fencing.fail_over()
        assert run.rc == 0, run.text
        assert set(ceph.blocklist()) == {f"{A}:0/0"} and scene.writer.error and log.error
        assert (
            scene.attached(NODE_B)
            and scene.attached(NODE_B, "log")
            and mirror.watches(scene.image())
        )


def test_every_address_of_the_node_is_fenced(failover_current: Failover) -> None:
    """One of its clients hangs on its second address, where nobody sees it; it must not go on when
    it wakes up.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    scene.set_addresses(NODE_A, A, SECOND)
    scene.deploy("log")
    log = scene.client_opens("log", SECOND)
    scene.lose()
    scene.wait_waiting()
    freeze(scene, log)
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert set(scene.storage.ceph.blocklist()) == {f"{A}:0/0", f"{SECOND}:0/0"}
    assert scene.attached(NODE_B, "log")
    written = log.acknowledged
    log.resume()
    scene.cluster.wait(
        lambda: log.error or log.acknowledged > written + 1,
        "the client that hung goes on, or is refused",
        60,
    )
    assert log.error and log.acknowledged <= written + 1


def test_what_nobody_sees_needs_the_fence_of_the_whole_node(failover_current: Failover) -> None:
    """The second address is another node's too, so it is not fenced; and nothing says where the
    image of log is open.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    scene.set_addresses(NODE_A, A, SECOND)
    scene.set_addresses(NODE_B, ADDRESSES[NODE_B], SECOND)
    scene.deploy("log")
    scene.lose()
    # Until then the controllers make pods.
    for name in ("db", "log"):
        scene.wait_waiting(name)
    before = fencing.state()
    run = fencing.fail_over()
    assert run.rc != 0 and "nothing shows from where pv-log is held" in run.text, run.text
    assert fencing.state() == before


def test_a_kubelet_that_claims_where_another_node_reaches_ceph(failover_current: Failover) -> None:
    """B writes to a volume of its own; the fence of A must not hit it."""
    scene, fencing = failover_current, Fencing(failover_current)
    scene.volume("theirs")
    scene.api.create(k8s.pod("theirs", ["theirs"], NODE_B))
    scene.cluster.wait(lambda: scene.attached(NODE_B, "theirs"), "B has a volume of its own", 60)
    theirs = scene.client_opens("theirs", THEIRS)
    scene.set_addresses(NODE_A, A, THEIRS)
    scene.lose()
    scene.wait_waiting()
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert set(scene.storage.ceph.blocklist()) == {f"{A}:0/0"} and scene.writer.error
    written = theirs.acknowledged
    scene.cluster.wait(
        lambda: theirs.error or theirs.acknowledged > written + 1, "B writes, or is refused", 60
    )
    assert not theirs.error
    assert f"belongs to {THEIRS}:0/" in run.text, run.text


# The module's own writes: the ledger says fenced, and nothing is detached yet; and the first thing
# that is detached.
FENCED, DETACHED = ("PATCH", "/configmaps/storage-ops-fence-"), ("DELETE", "/volumeattachments/")
# The role node_fence proves the fence, and what it has read of Ceph is too old for another module
# after so many seconds.
APART, TOO_OLD = {"node_fence_prove": "true"}, 11.0


@pytest.mark.parametrize(
    ("moment", "given", "seconds", "is_detached"),
    [
        (DETACHED, {}, 0.0, True),
        variation(FENCED, {}, 0.0, True),
        variation(FENCED, APART, TOO_OLD, False),
    ],
    ids=["while_detaching", "while_proving", "before_detaching"],
)
def test_a_fence_that_vanishes(
    failover_1_20: Failover,
    moment: tuple[str, str],
    given: dict[str, str],
    seconds: float,
    is_detached: bool,
) -> None:
    """Somebody clears the blocklist in the middle of the run: it fails, says so, and detaches
    nothing that is attached still once it has read that.
    """

    def clear() -> None:
        scene.storage.ceph.run("osd", scene.storage.ceph.word, "clear")
        time.sleep(seconds)

    scene, fencing = failover_1_20, Fencing(failover_1_20)
    fencing.proxy = scene.cluster.proxy()
    scene.lose()
    scene.wait_waiting()
    cleared = fencing.proxy.on(*moment, first=1, times=1, after=clear)
    run = fencing.fail_over(**given)
    assert cleared.matched and scene.storage.ceph.blocklist() == {}
    assert run.rc != 0 and f"Ceph's blocklist has no entry for {A}" in run.text, run.text
    assert ("may write to what was detached" in run.text) == is_detached, run.text
    assert (scene.attachment(NODE_A) is None) == is_detached
    # It ends before it waits for pods, and so before it notes that all is done.
    assert fencing.ledger and fencing.ledger["phase"] == "fenced"


def test_a_node_made_again_under_its_name(failover_current: Failover) -> None:
    """The machine of before hangs with a volume open; the new one of its name, at another address,
    is lost with a volume of its own.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    freeze(scene, scene.writer)
    scene.kubelets.stop_node(NODE_A)
    scene.api.delete(path("Node", NODE_A))
    scene.api.create(k8s.node(NODE_A))
    scene.set_addresses(NODE_A, SECOND)
    scene.recover(rebooted=True)
    scene.deploy("log")
    scene.client_opens("log", SECOND)
    scene.lose()
    run = fencing.fail_over()
    assert run.rc != 0 and "pv-db was attached before this Node object was made" in run.text, (
        run.text
    )
    assert scene.storage.ceph.blocklist() == {} and scene.attached(NODE_A)
