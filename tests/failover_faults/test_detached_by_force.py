# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Six minutes after the lost node's pods are gone, Kubernetes has its volume attached to B alone,
while A's client goes on writing.

The attachment is taken away by hand here, which the controller manager notices within a minute.
"""

from __future__ import annotations

import time

from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import Fencing


def test_detached_by_force(failover_current: Failover) -> None:
    scene, fencing = failover_current, Fencing(failover_current)
    scene.lose()
    scene.wait_waiting()
    for pod in scene.pods(NODE_A):
        scene.api.delete(path("Pod", pod["metadata"]["name"]), grace=0)
    attachment = scene.attachment(NODE_A)
    assert attachment
    scene.api.delete(path("VolumeAttachment", attachment["metadata"]["name"]))
    scene.cluster.wait(lambda: scene.attached(NODE_B), "B has the volume", 150)
    assert not scene.pods(NODE_A) and scene.attachment(NODE_A) is None
    # B is told that the image is in use, and tries again; and has a volume of its own open. So it
    # is known from where B reaches Ceph, or A's client could as well be B's.
    scene.node_b_visits()
    scene.volume("cache")
    scene.api.create(k8s.pod("cache", ["cache"], NODE_B))
    scene.cluster.wait(lambda: scene.attached(NODE_B, "cache"), "B has its own volume", 60)
    scene.node_b_opens("cache")
    written = scene.writer.acknowledged
    scene.cluster.wait(lambda: scene.writer.acknowledged > written, "A goes on writing", 10)
    assert scene.writer.error == "" and scene.watches()

    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert scene.writer.error and not scene.watches()
    ledger = fencing.ledger
    assert ledger and (ledger["phase"], ledger["addresses"], ledger["volumes"]) == (
        "detached",
        [ADDRESSES[NODE_A]],
        ["pv-db"],
    )
    fenced_at = scene.content()
    time.sleep(2)
    assert scene.content() == fenced_at <= scene.writer.acknowledged + 1
    scene.cluster.used("rbac-fence.yml", "list persistentvolumes")
