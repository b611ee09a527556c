# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attachments with a real external-attacher, a real driver and real kubelets; an application that
keeps its data.
"""

from __future__ import annotations

import pytest
from lab.kind.csi import Driver
from lab.kubernetes.api import path
from support.cluster import Played
from support.kind import NAME, KindCluster, counting, left_over
from support.reattach import REPAIR, Workload, no_trace

FINALIZER = f"external-attacher/{NAME.replace('.', '-')}"


@pytest.mark.smoke
def test_a_stateful_set_is_moved_with_its_data(cluster: KindCluster, driver: Driver) -> None:
    db = Workload(cluster, "db", "StatefulSet", driver=NAME, **counting("db"))
    old, node = db.attachment()["metadata"]["uid"], db.node()
    assert driver.attached() == {"vol-db": node}
    reached = _count(cluster, driver, 10)
    given = {"namespace": "default", "claims": ["db"], "attachments": [old]}

    check = cluster.ansible("workload_reattach", check=True, user=REPAIR, **given)
    assert not check.failed and check.changed, check.msg
    assert db.attachment()["metadata"]["uid"] == old and db.node() == node

    run = cluster.ansible("workload_reattach", user=REPAIR, **given)
    assert not run.failed, run.msg
    assert run.outcomes == [
        (verb, "done") for verb in ("cordon_node", "evict_pod", "wait_detached", "uncordon_node")
    ]
    db.wait_ready()
    assert db.node() != node and driver.attached() == {"vol-db": db.node()}
    # It has gone on from where it was, and goes on.
    assert _count(cluster, driver, reached + 1) > reached
    no_trace(cluster)

    again = cluster.ansible("workload_reattach", user=REPAIR, **given)
    assert (again.failed, again.changed, again.findings) == (False, False, []), again.msg

    # The kubelets and the driver are at ease with it: the pod can go, and another comes.
    cluster.api.delete(path("StatefulSet", "db"))
    cluster.wait(lambda: driver.attached() == {}, f"detached: {driver.logs()}", 120)


def test_a_left_over_attachment_goes_by_the_attacher(cluster: KindCluster, driver: Driver) -> None:
    """Its volume is released, its finalizer is the real one; then the volume can be deleted."""
    api, (worker, _other) = cluster.api, cluster.kind.workers
    name = left_over(cluster, "gone", worker)
    assert driver.attached() == {"vol-gone": worker}
    found = api.find("VolumeAttachment", name)
    assert found and found["metadata"]["finalizers"] == [FINALIZER]

    check = _repair(cluster, check=True)
    assert api.find("VolumeAttachment", name), check.text
    played = _repair(cluster)
    assert played.rc == 0, played.text
    assert api.find("VolumeAttachment", name) is None
    assert driver.attached() == {}
    second = _repair(cluster)
    assert second.rc == 0 and '"changed": true' not in second.text, second.text
    api.delete(path("PersistentVolume", "pv-gone"))
    cluster.wait(lambda: api.find("PersistentVolume", "pv-gone") is None, "the volume is gone")


def _repair(cluster: KindCluster, check: bool = False) -> Played:
    return cluster.playbook(
        "repair_volumeattachments",
        check=check,
        user=REPAIR,
        target="all",
        attachment_repair_min_age_seconds=0,
        attachment_repair_observation_seconds=1,
        # It is all that its node has.
        attachment_repair_accept_majority=True,
    )


def _count(cluster: KindCluster, driver: Driver, least: int) -> int:
    """How far the application has come, once it has come so far."""
    cluster.wait(
        lambda: int(driver.written("vol-db", "count") or 0) >= least, f"counted to {least}", 60
    )
    return int(driver.written("vol-db", "count"))
