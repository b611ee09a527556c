# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tenant holds its own pod on the lost node: the others' volumes are moved and proven, the fence
stays for what is left, and the next run goes on with that.
"""

from __future__ import annotations

from lab.kubernetes import api as k8s
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import Fencing

MERGE = "application/merge-patch+json"


def hold(scene: Failover, name: str, *finalizers: str) -> None:
    """Give the Deployment's pod on A these finalizers, and no others."""
    (pod,) = scene.pods(NODE_A, name)
    where = k8s.path("Pod", pod["metadata"]["name"], "default")
    scene.api.call("PATCH", where, {"metadata": {"finalizers": [*finalizers]}}, MERGE)


def test_a_pod_that_its_tenant_holds(failover_current: Failover) -> None:
    scene, fencing = failover_current, Fencing(failover_current)
    scene.deploy("ev")
    scene.node_a_opens("ev")
    hold(scene, "ev", "tenant.example.com/keep")
    scene.lose()
    scene.wait_waiting()
    # With the taint, Kubernetes itself calls such a pod Failed, and detaches its volume.
    given = {
        "volume_failover_detach": "volumes",
        "volume_failover_options": {"detach_timeout": 15},
    }
    for _run in range(2):
        run = fencing.fail_over(**given)
        assert run.rc != 0, run.text
        assert "of pv-ev is still on node-a" in run.text, run.text
        # Where pv-ev goes once its VolumeAttachment is gone is chance: the attach-detach controller
        # wants it for both pods, and takes the nodes in no order (attachDesiredVolumes of
        # pkg/controller/volume/attachdetach/reconciler/reconciler.go).
        assert scene.attached(NODE_B)
        scene.wait_running(NODE_B)
        ledger = fencing.ledger
        assert ledger and (ledger["phase"], ledger["detached"]) == ("fenced", ["pv-db"])
        assert f"{ADDRESSES[NODE_A]}:0/0" in scene.storage.ceph.blocklist()
        assert fencing.lease is None
    # The release takes nothing of the fence away, either.
    run = fencing.release()
    assert run.rc != 0 and fencing.ledger == ledger, run.text
    assert f"{ADDRESSES[NODE_A]}:0/0" in scene.storage.ceph.blocklist()

    hold(scene, "ev")
    run = fencing.fail_over(**given)
    assert run.rc == 0, run.text
    assert scene.attached(NODE_B, "ev")
    ledger = fencing.ledger
    assert ledger and (ledger["phase"], ledger["detached"]) == ("detached", ["pv-db", "pv-ev"])
    scene.recover(rebooted=True)
    run = fencing.release()
    assert run.rc == 0, run.text
    fencing.nothing_left()
