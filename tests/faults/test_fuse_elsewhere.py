# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drivers that keep their FUSE mount in a folder of their own and bind it for pods, as JuiceFS and
Mountpoint for S3 do.
"""

from __future__ import annotations

from typing import Any

from support.mounts import Kubelet, Volume, bindfs, die, layers, lists, mounts, remount
from support.node import Node

OTHER_UID = "9a1b2c3d-1111-2222-3333-444455556666"
FOLDER = "/var/lib/juicefs/volume/pvc-1-abcdef"
BINDFS = ["bindfs", "-f", "{options}", "{source}", "{target}"]


def known(volume: Volume) -> dict[str, Any]:
    """What the cluster would tell of a volume that bindfs serves."""
    return {
        "volumes": [
            {
                "volume": volume.name,
                "handle": volume.handle,
                "sources": ["/srv/data"],
                "command": BINDFS,
            }
        ]
    }


def test_the_mount_of_the_driver_is_not_left_dead(node: Node) -> None:
    """The next pod would get it: whose server it is, is said, and nothing is done to the pods'
    mounts.
    """
    volume = Kubelet(node).volume()
    node.sh(f"mkdir -p {FOLDER}")
    server = bindfs(node, FOLDER)
    group = f"/sys/fs/cgroup/kubepods.slice/kubepods-pod{OTHER_UID.replace('-', '_')}.slice"
    node.sh(f"mkdir -p {group} && echo {server} > {group}/cgroup.procs")
    point = volume.publish(source=FOLDER)
    assert remount(node).findings == []
    before = mounts(node)
    node.sh(f"kill -STOP {server}")
    hung = remount(node, abort_hung_connections=True, probe_timeout=2, **known(volume))
    (finding,) = hung.findings
    assert (finding["control"], finding["verdict"], hung.outcomes) == ("STOR-06", "refuse", [])
    assert f"the driver's own mount at {FOLDER}" in finding["reason"]
    assert f"its server may be that of the pod {OTHER_UID}" in finding["reason"]
    assert finding["evidence"]["outside"] == [FOLDER]
    assert mounts(node) == before

    die(node, server)
    for strategy in ("remount", "kubelet"):
        dead = remount(node, strategy=strategy, **known(volume))
        (finding,) = dead.findings
        assert (finding["control"], finding["verdict"], dead.outcomes) == ("STOR-05", "refuse", [])
        assert "its server is gone, or of no pod" in finding["reason"]
        assert mounts(node) == before
    # The pod of the driver is there again, and has renewed its mount.
    node.sh(f"umount --lazy {FOLDER}")
    bindfs(node, FOLDER)
    run = remount(node, **known(volume))
    assert not run.failed, run.msg
    assert (len(layers(node, point)), lists(node, point)) == (1, ["file", "sub"])
    assert lists(node, FOLDER) == ["file", "sub"]
    assert remount(node).findings == []
