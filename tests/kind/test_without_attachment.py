# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A driver with attachRequired: false beside one with an attacher, which is gone: its pods need no
VolumeAttachment, and only the other driver's are found without an answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.kind.csi import Driver, UnattachedDriver
from lab.kubernetes import api as k8s
from support.kind import IMPATIENT, NAME, KindCluster, counting, on
from support.reattach import REPAIR, Workload

AUDITOR = REPAIR.with_name("rbac-audit.yml")
NO_FOLDER = "mkdir /srv/volumes/vol-file: not a directory"


def test_none_is_missed(
    cluster: KindCluster, driver: Driver, unattached_driver: UnattachedDriver, tmp_path: Path
) -> None:
    share = unattached_driver.name
    Workload(cluster, "share", "Deployment", driver=share, **counting("share"))
    Workload(cluster, "db", "StatefulSet", driver=NAME, **counting("db"))
    assert _attached(cluster) == {"pv-db"}

    driver.stop_attacher()
    try:
        # It starts: nothing has to attach its volume.
        _start(cluster, "late", share)
        cluster.wait(lambda: int(driver.written("vol-late", "count") or 0) > 3, "it counts", 60)
        # One cannot start for a reason of its own, and one waits for the attacher.
        (cluster.kind.volumes / "vol-file").write_text("a file")
        _start(cluster, "file", share)
        _start(cluster, "waits", NAME)
        cluster.wait(lambda: NO_FOLDER in _messages(cluster), "the kubelet says why", 60)
        cluster.wait(lambda: {"pv-db", "pv-waits"} <= _attached(cluster), "it is to be attached")
        # What the kubelet could not read at first is over once it has asked the driver.
        cluster.wait(lambda: NO_FOLDER in _stuck(cluster)["file"]["summary"], "triage says why", 60)
        stuck = _stuck(cluster)
        assert {name: found["control"] for name, found in stuck.items()} == {
            "file": "",
            "waits": "STOR-15",
        }, stuck
        assert NO_FOLDER in stuck["file"]["summary"], stuck
        played, report = cluster.compliance(tmp_path, AUDITOR, IMPATIENT)
        found = [(one["control"], one["object"]["name"]) for one in report["findings"]]
        assert found == [("STOR-15", "waits")], report["findings"]
        (host,) = report["hosts"]
        assert "not_assessed" not in host["controls"].values(), played.text
    finally:
        driver.start_attacher()
    cluster.wait(lambda: int(driver.written("vol-waits", "count") or 0) > 3, "it counts", 120)
    assert _stuck(cluster).keys() == {"file"}
    assert _attached(cluster) == {"pv-db", "pv-waits"}


def _start(cluster: KindCluster, name: str, driver: str) -> None:
    cluster.api.add_volume(name, driver, f"vol-{name}")
    worker, _other = cluster.kind.workers
    cluster.api.create(k8s.pod(name, [name], **counting(name), **on(worker)))


def _attached(cluster: KindCluster) -> set[str]:
    """The volumes that have a VolumeAttachment."""
    found = cluster.api.all("VolumeAttachment")
    return {str(one["spec"]["source"]["persistentVolumeName"]) for one in found}


def _stuck(cluster: KindCluster) -> dict[str, dict[str, Any]]:
    """What triage finds, by pod."""
    outcome = cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=1)
    assert not outcome.failed and not outcome.changed, outcome.msg
    return {str(one["object"]["name"]): one for one in outcome.findings}


def _messages(cluster: KindCluster) -> str:
    """What all events say."""
    return "\n".join(event["message"] for event in cluster.api.all("Event"))
