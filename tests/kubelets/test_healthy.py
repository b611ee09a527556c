# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy cluster on nodes with kernels of their own: real kubelets, krbd, iSCSI maps, staging
mounts, projected volumes. Not one finding.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failover import NODE_A, NODE_B
from support.kind import projecting
from support.kubelets import KubeletScene, counting


@pytest.mark.variation
def test_nothing_is_found(scene: KubeletScene, tmp_path: Path) -> None:
    scene.deploy("db", **projecting(counting("db"), "db"))
    scene.writes_on()
    for kept in ("~projected/projected ", "/volume-subpaths/projected/"):
        assert kept in scene.vm().run("cat /proc/1/mountinfo").stdout, kept
    before = scene.cluster.attachment_uids(), scene.storage.ceph.osd_map()
    played, report = scene.compliance(tmp_path)
    assert report["findings"] == []
    assert played.rc == 0, played.text
    hosts = {host["name"]: host for host in report["hosts"]}
    assert hosts.keys() == {NODE_A, NODE_B, "cluster", "ceph"}
    for host in hosts.values():
        assert set(host["controls"].values()) <= {"pass", "not_applicable"}, host
    after = scene.cluster.attachment_uids(), scene.storage.ceph.osd_map()
    assert after == before
    scene.writes_on()
