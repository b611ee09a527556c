# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit of open files of the containerd of a real kubelet (R10): put right while pods run,
which go on; a pod that begins then has the new one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.kubernetes import api as k8s
from support.failover import NODE_A
from support.kind import on
from support.kubelets import POD_DEADLINE, KubeletScene, counting
from support.reattach import REPAIR

# What infinity comes to on distributions whose systemd raises fs.nr_open; and a usual one.
HUGE, USUAL = 1073741816, 1048576
DROP_IN = "/etc/systemd/system/containerd.service.d/50-storage_ops-nofile.conf"


def allow(scene: KubeletScene, files: int) -> None:
    """So many are what systemd, and so a containerd without a limit, may have."""
    scene.vm().run(
        f"sysctl -qw fs.nr_open={max(files, USUAL)} && prlimit --pid 1 --nofile=:{files} && "
        "systemctl daemon-reload && systemctl restart containerd",
        timeout=120,
    )


def limit(scene: KubeletScene, name: str) -> int:
    """Of the application's first process."""
    (pod,) = scene.pods(NODE_A, name)
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    run = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
    said = scene.vm().run(
        f"awk '/open files/ {{print $5}}' /proc/$(cat {run}/{container}/init.pid)/limits"
    )
    return int(said.stdout)


@pytest.mark.variation
def test_pods_go_on(scene: KubeletScene, tmp_path: Path) -> None:
    inventory = scene.inventory(scene.kubelets.folder / "limit-inventory")

    def play(check: bool = False, asked: str = "true") -> tuple[int, str]:
        told = {f"nfs_check_{name}": asked for name in ("write_limit", "restart_runtime")}
        run = scene.cluster.playbook(
            "check_nfs", check, user=REPAIR, inventory=inventory, target=NODE_A, **told
        )
        return run.rc, run.text

    allow(scene, HUGE)
    scene.count()
    assert limit(scene, "db") == HUGE
    (before,) = scene.pods(NODE_A)
    played, report = scene.compliance(tmp_path / "before")
    found = [(finding["host"], finding["control"]) for finding in report["findings"]]
    assert found == [(NODE_A, "STOR-10")] and played.rc != 0, report["findings"]
    rc, said = play(asked="false")
    assert rc != 0 and f"may open {HUGE} files each" in said and "| CHANGED" not in said, said
    rc, said = play(check=True)
    assert rc == 0 and "| CHANGED" in said, said
    assert not scene.vm().run(f"cat {DROP_IN}", check=False).stdout
    rc, said = play()
    assert rc == 0 and "LimitNOFILE is in order" in said, said
    rc, said = play()
    assert rc == 0 and "| CHANGED" not in said, said

    scene.writes_on()
    (after,) = scene.pods(NODE_A)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [entry["restartCount"] for entry in after["status"]["containerStatuses"]] == [0]
    assert limit(scene, "db") == HUGE
    scene.deploy("late", **counting("late"), **on(NODE_A))
    scene.writes_on(name="late")
    assert limit(scene, "late") == USUAL
    played, report = scene.compliance(tmp_path / "after")
    assert report["findings"] == [] and played.rc == 0, played.text

    for name in ("db", "late"):
        scene.api.delete(k8s.path("Deployment", name))
    scene.cluster.wait(lambda: scene.attachment() is None, "db is detached", POD_DEADLINE)
    scene.wait_unmapped()
    scene.vm().run(["rm", DROP_IN])
    allow(scene, USUAL)
