# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compliance run over a cluster that is broken in several ways at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.kind.csi import Driver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import attachment_name, path
from support.kind import NAME, KindCluster, counting, left_over, lose_status, on, running
from support.reattach import REPAIR, Workload

AUDITOR = REPAIR.with_name("rbac-audit.yml")
OPTIONS: dict[str, Any] = {
    "min_age_seconds": 0,
    "observation_seconds": 1,
    "pending_seconds": 5,
    "grace_seconds": 1,
    # What the lab's driver gives with each attachment.
    "required_metadata": {NAME: ["folder"]},
}


@pytest.fixture
def broken(cluster: KindCluster, driver: Driver) -> Iterator[KindCluster]:
    """All of it, and pods that have nothing or wait for something else."""
    api, (worker, other) = cluster.api, cluster.kind.workers
    for name in ("web", "status", "old"):
        Workload(cluster, name, "StatefulSet", driver=NAME, **counting(name), **on(worker))
    Workload(cluster, "lost", "StatefulSet", driver=NAME, **counting("lost"), **on(other))
    left_over(cluster, "gone", worker)
    api.create(k8s.pod("second", ["lost"], **running("sleep 1000", claim="lost"), **on(worker)))
    waiting = running("sleep 1000")
    waiting["containers"][0]["envFrom"] = [{"secretRef": {"name": "nothing"}}]
    api.create(k8s.pod("secret-missing", **waiting, **on(worker)))

    old = path("VolumeAttachment", attachment_name("vol-old", NAME, worker))
    api.merge(f"{old}/status", {"status": {"attachmentMetadata": None}})
    driver.stop_attacher()
    cluster.kind.on(other, "systemctl", "stop", "kubelet")
    try:
        api.add_volume("waits", NAME, "vol-waits")
        api.create(
            k8s.pod("waits", ["waits"], **running("sleep 1000", claim="waits"), **on(worker))
        )
        cluster.wait(lambda: api.ready(other) == "Unknown", "the node is lost", 120)
        # Last, since the next change of an attachment there mends it.
        lose_status(cluster, "status", worker)
        yield cluster
    finally:
        cluster.kind.on(other, "systemctl", "start", "kubelet")
        driver.start_attacher()
        cluster.wait(lambda: api.ready(other) == "True", "the node is back", 120)


def test_each_control_finds_its_own(broken: KindCluster, tmp_path: Path) -> None:
    worker, other = broken.kind.workers
    before = broken.attachment_uids()
    played, report = broken.compliance(tmp_path, AUDITOR, OPTIONS)
    assert played.rc != 0, played.text
    found = sorted(
        (finding["control"], finding["object"]["name"]) for finding in report["findings"]
    )
    assert found == sorted(
        [
            ("STOR-11", attachment_name("vol-gone", NAME, worker)),
            ("STOR-13", attachment_name("vol-status", NAME, worker)),
            ("STOR-14", attachment_name("vol-old", NAME, worker)),
            ("STOR-15", "waits"),
            ("STOR-16", other),
        ]
    ), report["findings"]
    (host,) = report["hosts"]
    assert host["controls"] == {
        **{f"STOR-{number}": "fail" for number in (11, 13, 14, 15, 16)},
        **{"STOR-12": "pass", "STOR-17": "pass"},
    }
    assert broken.attachment_uids() == before
