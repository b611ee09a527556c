# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dead FUSE mounts that are left to the kubelet: only what pods have left behind is unmounted.

The tests play the kubelet.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.mounts import Kubelet, Volume, bindfs, die, layers, lists, mounts, remount, start
from support.node import Node


def told(volume: Volume, *pods: dict[str, Any]) -> dict[str, Any]:
    """What the cluster says of the volume's pods; those that it does not mention are gone."""
    return {
        "strategy": "kubelet",
        "volumes": [{"volume": volume.name, "handle": volume.handle, "pods": list(pods)}],
    }


def container(node: Node, uid: str, command: str = "sleep 600") -> int:
    """A process in the control group of a pod; its pid."""
    pod = f"kubepods-besteffort-pod{uid.replace('-', '_')}.slice"
    slices = "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice"
    group = f"{slices}/{pod}/cri-containerd-{'c' * 64}.scope"
    node.sh(f"mkdir -p {group}")
    return start(node, f"sh -c 'echo $$ > {group}/cgroup.procs && exec {command}'")


@pytest.mark.variation
def test_left_behind_by_a_pod_that_is_deleted(node: Node) -> None:
    """Refused while it may be in use, each time with the reason; then unmounted, unstaged by the
    kubelet, and nothing is left to find.
    """
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    published = volume.publish()
    (uid,) = tuple(volume.pods)
    inner = volume.subpath(uid, "sub")
    die(node, server)
    pod: dict[str, Any] = {"uid": uid, "namespace": "default", "name": "web-0"}
    before = mounts(node)
    stays = remount(node, containers_timeout=60, **told(volume, pod))
    assert (stays.failed, stays.changed) == (False, False)
    assert "default/web-0 is not being deleted" in stays.finding(volume.staging)["reason"]
    assert stays.finding(volume.staging)["evidence"]["evict"] == ["default/web-0"]
    running, pod["terminating"] = container(node, uid), True
    late = remount(node, containers_timeout=2, **told(volume, pod))
    reason = late.finding(volume.staging)["reason"]
    assert "wait_for_containers was not started" in reason
    assert f"still run after 2 s: sleep (pid {running})" in reason
    assert mounts(node) == before

    planned = remount(node, check=True, containers_timeout=60, **told(volume, pod))
    assert planned.outcomes == [
        (action, "planned")
        for action in ("wait_for_containers", "unmount", "unmount", "wait_unstaged")
    ]
    # The role has the pod deleted meanwhile; once its mounts are gone the kubelet removes its
    # folder, and unstages.
    kubelet = (
        f"sleep 8; kill {running}; while grep -q {uid} /proc/1/mountinfo; do sleep 0.2; "
        f"done; rm -rf /var/lib/kubelet/pods/{uid}"
    )
    start(node, f"sh -c '{kubelet}; umount -l {volume.staging}'")
    run = remount(node, containers_timeout=60, **told(volume, pod))
    assert not run.failed, run.msg
    assert run.outcomes == [
        (action, "done")
        for action in ("wait_for_containers", "unmount", "unmount", "wait_unstaged")
    ]
    for point in (published, inner, volume.staging):
        assert layers(node, point) == []
    again = remount(node, **told(volume))
    assert (again.findings, again.changed) == ([], False)


@pytest.mark.variation
def test_a_staging_mount_that_the_kubelet_has_forgotten(node: Node) -> None:
    """It goes at once when no pod has a folder of the volume, and after a while when the kubelet
    does not unstage; not before.
    """
    kubelet = Kubelet(node)
    forgotten, slow, wanted = (kubelet.volume(f"pvc-{number}") for number in range(3))
    servers = [bindfs(node, volume.stage()) for volume in (forgotten, slow, wanted)]
    published = slow.publish()
    wanted.publish()
    (uid,) = slow.pods
    for server in servers:
        die(node, server)
    # A pod of the third still has its folder, although its mount is gone.
    node.sh(f"umount -l {next(iter(wanted.pods.values()))}")
    start(
        node,
        f"sh -c 'while grep -q {uid} /proc/1/mountinfo; do sleep 0.2; done; rm -rf "
        f"/var/lib/kubelet/pods/{uid}'",
    )
    volumes = [entry for volume in (forgotten, slow, wanted) for entry in told(volume)["volumes"]]
    run = remount(node, strategy="kubelet", volumes=volumes, unstage_timeout=4)
    assert not run.failed, run.msg
    assert sorted(
        (action["action"], action["target"]) for action in run.result["actions"]
    ) == sorted(
        [("unmount", forgotten.staging), ("unmount", published), ("wait_unstaged", slow.staging)]
    )
    assert "still has folders of this volume" in run.finding(wanted.staging)["reason"]
    assert [layers(node, volume.staging) == [] for volume in (forgotten, slow, wanted)] == [
        True,
        True,
        False,
    ]


@pytest.mark.variation
def test_a_driver_that_shares_the_folder_does_not_count(node: Node) -> None:
    """Its copies go with the node's own; those of a stranger's namespace do not, and so nothing is
    done.
    """
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    volume.publish()
    start(node, "unshare -m --propagation shared sleep 600")
    die(node, server)
    planned = remount(node, check=True, **told(volume))
    assert planned.finding(volume.staging)["verdict"] == "repair"
    start(node, "unshare -m --propagation private sleep 700")
    node.wait(lambda: node.sh("pgrep -f 'sleep 700'", check=False) != "", "the stranger lives")
    refused = remount(node, **told(volume))
    assert (
        "it is also mounted in the mount namespace of" in refused.finding(volume.staging)["reason"]
    )
    assert len(layers(node, volume.staging)) == 1
    assert lists(node, "/srv/data") == ["file", "sub"]
