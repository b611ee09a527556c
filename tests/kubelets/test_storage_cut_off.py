# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that reaches the API server, and its storage no more. Nothing calls it lost, so no run
fences it; and once its storage is back, its pod goes on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failover import NODE_A, NODE_B
from support.fencing import Fencing
from support.kubelets import KubeletScene


@pytest.mark.variation
def test_ceph_alone_is_out_of_reach(scene: KubeletScene, tmp_path: Path) -> None:
    fencing, ceph = Fencing(scene), scene.storage.ceph
    scene.count()
    (pod,) = scene.pods()
    image = f"rbd/{scene.image()}"
    scene.cut_storage()
    scene.look(lambda: not ceph.watchers(image), "the watch has ended")
    stopped = scene.acknowledged()

    # Nobody has the image open, as if it could be given to another node.
    before = fencing.state()
    for check in (True, False):
        refused = fencing.fail_over(check=check)
        assert refused.rc != 0 and f"node {NODE_A} is Ready" in refused.text, refused.text
        assert fencing.state() == before
    # The run of the night comes to its end, names what does not answer, and looks at all else.
    played, report = scene.compliance(tmp_path / "cut")
    found = [
        (finding["host"], finding["control"], finding["verdict"], finding["code"])
        for finding in report["findings"]
    ]
    assert found == [(NODE_A, "STOR-08", "refuse", "device_unusable")], report["findings"]
    assert played.rc != 0 and "ext4 on /dev/rbd0 does not answer" in played.text, played.text
    hosts = {host["name"]: set(host["controls"].values()) for host in report["hosts"]}
    for name in (NODE_B, "cluster", "ceph"):
        assert hosts[name] <= {"pass", "not_applicable"}, hosts
    assert fencing.state() == before and scene.acknowledged() == stopped

    scene.heal()
    scene.wait_written(stopped)
    (same,) = scene.pods(NODE_A)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [entry["restartCount"] for entry in same["status"]["containerStatuses"]] == [0]
    numbers = [line.number for line in scene.lines(NODE_A)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > stopped
    assert len(ceph.watchers(image)) == 1
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text
