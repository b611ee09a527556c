# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS volumes that a real kubelet mounts (R9): their server goes away, and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.kubelet.cluster import Kubelets
from lab.kubelet.nfs import NfsServer
from lab.kubernetes import api as k8s
from support.failover import NODE_A, NODE_B
from support.kind import on
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene, counting
from support.reattach import REPAIR

# A mount takes an emulated node seconds.
PATIENT = {"slow_seconds": 25, "mount_timeout": 30}


@pytest.fixture
def nfs(scene: KubeletScene, kubelets: Kubelets) -> Iterator[NfsServer]:
    """An NFS server on B, for one test."""
    found = NfsServer(kubelets, NODE_B)
    found.start()
    yield found
    # What still hangs there would do so for ever, and whatever is unmounted waits for it.
    found.serve()
    scene.cluster.reset()
    scene.look(lambda: not mounted(scene), "nothing of it is mounted")
    found.remove()


def mounted(scene: KubeletScene) -> list[str]:
    """NFS mounts on A, of which none is asked anything."""
    said = scene.vm().run("grep ' - nfs4 ' /proc/1/mountinfo", check=False).stdout
    return [line.split()[4] for line in said.splitlines()]


def mounting(scene: KubeletScene, name: str) -> str:
    """The process on A that mounts this application's volume."""
    return scene.vm().run(["pgrep", "-f", f"^/sbin/mount.nfs.*pv-{name}"], check=False).stdout


def begin(scene: KubeletScene, name: str) -> None:
    """An application on A, until it writes."""
    scene.create(name, [name], **counting(name), grace=1, **on(NODE_A))
    scene.wait_running(NODE_A, name, POD_DEADLINE)
    scene.writes_on(name=name)


def end(scene: KubeletScene, *names: str) -> None:
    """The applications are over, and their kubelet has unmounted everything."""
    for name in names:
        scene.api.delete(k8s.path("Deployment", name))
    scene.cluster.wait(lambda: not any(scene.pods(name=name) for name in names), "ended", 60)
    scene.look(lambda: not mounted(scene), "nothing is mounted")


def healthy(scene: KubeletScene) -> None:
    """A run of the playbook finds nothing."""
    rc, said = check_nfs(scene)
    assert rc == 0 and "mounted in time" in said, said


def pod(scene: KubeletScene, name: str) -> tuple[str, list[int]]:
    """Its one pod on A: uid, and how often its containers were started again."""
    (found,) = scene.pods(NODE_A, name)
    started = [entry["restartCount"] for entry in found["status"].get("containerStatuses") or []]
    return found["metadata"]["uid"], started


def check_nfs(scene: KubeletScene, check: bool = False, **asked: str) -> tuple[int, str]:
    """The playbook for A as an operator runs it: its exit code, and what it said. It changes
    nothing that is not asked for.
    """
    inventory = scene.inventory(scene.kubelets.folder / "nfs-inventory")
    run = scene.cluster.playbook(
        "check_nfs",
        check,
        user=REPAIR,
        inventory=inventory,
        target=NODE_A,
        nfs_check_options=json.dumps(PATIENT),
        nfs_check_versions="4.2",
        **asked,
    )
    assert asked or "| CHANGED" not in run.text, run.text
    return run.rc, run.text


@pytest.mark.alternate
def test_the_server_goes_away(scene: KubeletScene, nfs: NfsServer, tmp_path: Path) -> None:
    nfs.add_volume("db")
    begin(scene, "db")
    before = pod(scene, "db")
    nfs.stop()
    # Another share of that server: its mount hangs in the kernel, and the kubelet says nothing.
    nfs.add_volume("late")
    scene.create("late", ["late"], **counting("late"), grace=1, **on(NODE_A))
    scene.look(lambda: mounting(scene, "late"), "the mount of late hangs")
    played, report = scene.compliance(tmp_path)
    found = [(finding["host"], finding["control"]) for finding in report["findings"]]
    assert found == [(NODE_A, "STOR-09")] and played.rc != 0, report["findings"]
    assert all("not_assessed" not in host["controls"].values() for host in report["hosts"])
    rc, said = check_nfs(scene, check=True, nfs_check_strict="true")
    assert rc != 0 and "TCP 2049 of 192.0.2.12 refuses connections" in said, said
    assert "start the NFS server there" in said and "pv-late" in said, said
    triage = scene.cluster.playbook("triage", user=AUDITOR, triage_stuck_seconds="1")
    assert "STOR-09 minor: pod default/late-" in triage.text, triage.text
    told = f"check_nfs -i inventory -e target={NODE_A} -e nfs_check_shares={nfs.share('late')}"
    assert told in triage.text, triage.text

    nfs.serve()
    scene.writes_on()
    assert pod(scene, "db") == before
    scene.wait_running(NODE_A, "late", POD_DEADLINE)
    scene.writes_on(name="late")
    healthy(scene)
    # Not one line is lost, and none is there twice.
    last = scene.acknowledged()
    numbers = nfs.numbers("db")
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= last
    end(scene, "db", "late")
    begin(scene, "db")
    assert nfs.numbers("db")[: len(numbers)] == numbers
