# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS volumes that a real kubelet mounts: their server goes away, and comes back (R9), or refuses
what they ask for (R9, R10).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lab.kubelet.cluster import Kubelets
from lab.kubelet.nfs import OTHER_CLIENT, NfsServer
from lab.kubernetes import api as k8s
from support.failover import NODE_A, NODE_B
from support.kind import on
from support.kubelets import AUDITOR, POD_DEADLINE, KubeletScene, counting
from support.node import NFS
from support.reattach import REPAIR


class Refused(NamedTuple):
    """What a server refuses a volume: how that is exported and asked for; what mount.nfs says, what
    triage makes of it, and what the node finds.
    """

    volume: dict[str, str]
    event: str
    summary: str
    cause: str


# Of an export for others, NFS 4 says that it is not there.
_ABSENT = (
    "failed, reason given by server: No such file or directory",
    f"the NFS server has no such export, or none for node {NODE_A}",
    "the server has no such export in NFS 4.2",
)
REFUSED = {
    "none": Refused({"client": ""}, *_ABSENT),
    "hidden": Refused({"client": OTHER_CLIENT}, *_ABSENT),
    "closed": Refused(
        {"client": OTHER_CLIENT, "version": "3"},
        "access denied by server while mounting",
        f"the NFS server does not export that directory to node {NODE_A}",
        "the server denies this node access as NFS 3",
    ),
    "old": Refused(
        {"version": "4.0"},
        "mount.nfs: Protocol not supported",
        "the NFS server does not offer the version or transport that the mount asks for",
        "the server does not offer NFS 4.0",
    ),
}


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
    said = scene.vm().run(r"grep ' - nfs4\? ' /proc/1/mountinfo", check=False).stdout
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
        nfs_check_options=json.dumps(NFS),
        **{"target": NODE_A, "nfs_check_versions": "4.2", **asked},
    )
    assert asked or "| CHANGED" not in run.text, run.text
    return run.rc, run.text


@pytest.mark.variation
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


def unrefused(scene: KubeletScene) -> list[str]:
    """The applications about which the kubelet has not yet said why they wait."""
    return [
        name
        for name, refused in REFUSED.items()
        if not any(refused.event in said for said in scene.told(name))
    ]


def stuck(scene: KubeletScene) -> dict[str, dict[str, Any]]:
    """What triage says of each application that waits."""
    found = scene.cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=1).findings
    return {finding["object"]["name"].partition("-")[0]: finding for finding in found}


def arguments(finding: dict[str, Any]) -> dict[str, str]:
    """Those of the command that triage names for check_nfs."""
    command, _check, _look = finding["reason"].partition(" (with --check first); ")
    words = shlex.split(command)
    assert words[:2] == ["ansible-playbook", "storage_ops.runbooks.check_nfs"], finding
    return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.mark.variation
def test_the_server_refuses(scene: KubeletScene, nfs: NfsServer) -> None:
    nfs.offer(without="4.0")
    # Before any pod: a client to which nothing at all is exported is told something else.
    for name, refused in REFUSED.items():
        nfs.add_volume(name, **refused.volume)
        nfs.write(name, f"1 {NODE_B}")
    for name in REFUSED:
        scene.create(name, [name], **counting(name), grace=1, **on(NODE_A))
    scene.cluster.wait(lambda: not unrefused(scene), "each is refused", POD_DEADLINE)
    before = {name: pod(scene, name) for name in REFUSED}
    found = stuck(scene)
    assert set(found) == set(REFUSED), found
    for name, refused in REFUSED.items():
        finding = found[name]
        assert (finding["control"], finding["severity"]) == ("STOR-09", "major"), finding
        assert refused.summary in finding["summary"], finding
        rc, said = check_nfs(scene, check=True, nfs_check_strict="true", **arguments(finding))
        assert rc != 0 and f"{nfs.share(name)}: {refused.cause}" in said, said

    for name in ("none", "hidden", "closed"):
        nfs.export(name)
    nfs.offer()
    for name in REFUSED:
        # The kubelet waits for up to two minutes before it tries again.
        scene.wait_running(NODE_A, name, 2 * POD_DEADLINE)
        scene.writes_on(name=name)
        # It has read what was there.
        numbers = nfs.numbers(name)
        assert numbers == list(range(1, len(numbers) + 1)), name
    assert {name: pod(scene, name) for name in REFUSED} == before
    assert not stuck(scene)
    healthy(scene)
    end(scene, *REFUSED)
