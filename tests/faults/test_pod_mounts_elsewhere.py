# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drivers that publish something else than a bind of their staging mount (STOR-07)."""

from __future__ import annotations

from support.mounts import DRIVER, Kubelet, bindfs, die, layers, mounts
from support.node import Node


def test_a_loop_device_on_a_file_of_the_staging_mount(node: Node) -> None:
    """As ctrox's csi-s3 does it with s3backer: the pod's mount is the volume, and stays."""
    volume = Kubelet(node).volume()
    server = bindfs(node, volume.stage())
    node.sh("truncate -s 16M /srv/data/image && mkfs.ext4 -q /srv/data/image")
    point = volume.publish(source=f"{volume.staging}/image", how="-o loop")
    node.sh(f"echo mine > {point}/data; sync -f {point}")
    before = mounts(node)
    healthy = node.ansible("csi_mount_repair", False)
    assert (healthy.failed, healthy.outcomes, healthy.findings) == (False, [], []), healthy.findings
    assert (mounts(node), node.sh(f"cat {point}/data")) == (before, "mine")
    # A file of the node's own disk is not the volume, and the driver may have made it all the same.
    node.sh(f"umount {point}; cp /srv/data/image /root/image; mount -o loop /root/image {point}")
    before = mounts(node)
    refused = node.ansible("csi_mount_repair", False)
    finding = refused.finding(point)
    assert (finding["verdict"], refused.outcomes) == ("refuse", [])
    assert f"where the driver {DRIVER}" in finding["reason"]
    assert mounts(node) == before
    # A server that is gone cannot be asked; its mounts are another control's.
    die(node, server)
    assert node.ansible("csi_mount_repair", False).outcomes == []
    assert mounts(node) == before


def test_a_bind_from_a_private_folder(node: Node) -> None:
    """What the driver has staged is not what it publishes: which is right, it alone knows."""
    volume = Kubelet(node).volume()
    private = "/var/lib/kubelet/plugins/s3.csi.example.com/private"
    node.sh(f"mount -t tmpfs staged {volume.stage()}")
    node.sh(f"mkdir -p {private} && mount -t tmpfs volume {private} && echo mine > {private}/data")
    point = volume.publish(source=private)
    before = mounts(node)
    refused = node.ansible("csi_mount_repair", False)
    finding = refused.finding(point)
    assert (finding["verdict"], finding["severity"]) == ("refuse", "minor")
    assert f"where the driver {DRIVER}" in finding["reason"]
    assert [layer["is"] for layer in finding["evidence"]["layers"]] == ["unknown"]
    assert (mounts(node), node.sh(f"cat {point}/data")) == (before, "mine")
    # Who knows the driver says so, and then it is what should be there, or what should not.
    said = {DRIVER: "elsewhere"}
    assert node.ansible("csi_mount_repair", False, publish_from=said).findings == []
    said = {DRIVER: "staging"}
    # It is the only one of the node.
    refused = node.ansible("csi_mount_repair", False, publish_from=said, accept_majority=True)
    assert (refused.finding(point)["severity"], refused.outcomes) == ("critical", [])
    assert "the volume is not below it" in refused.finding(point)["reason"]
    node.sh(f"umount {point} && mount --bind {volume.staging} {point}")
    node.sh(f"mount --make-private {point} && mount --bind {private} {point}")
    run = node.ansible("csi_mount_repair", False, publish_from=said, accept_majority=True)
    assert (run.failed, run.outcomes) == (False, [("unmount", "done")]), run.msg
    assert [layer[0] for layer in layers(node, point)] == [layers(node, volume.staging)[0][0]]


def test_a_staging_folder_without_its_mount(node: Node) -> None:
    """The driver failed to mount and published the folder all the same: the pod writes to the
    node's disk.
    """
    volume = Kubelet(node).volume()
    volume.stage()
    point = volume.publish()
    node.sh(f"echo lost > {point}/data")
    before = mounts(node)
    said = {DRIVER: "staging"}
    refused = node.ansible("csi_mount_repair", False, publish_from=said)
    finding = refused.finding(point)
    assert (finding["severity"], finding["verdict"]) == ("critical", "refuse")
    assert "the pod writes to the node's own disk" in finding["summary"]
    assert volume.staging in finding["summary"]
    assert (refused.outcomes, mounts(node)) == ([], before)
    assert node.sh(f"cat {volume.staging}/data") == "lost"
    # Without a word of the driver it is said, too.
    assert node.ansible("csi_mount_repair", False).finding(point)["severity"] == "minor"
    # The pod goes, its files are taken away, and the next one gets the volume.
    (uid,) = tuple(volume.pods)
    node.sh(f"umount {point}; mv {volume.staging}/data /root/")
    volume.unpublish(uid)
    bindfs(node, volume.staging)
    volume.publish()
    assert node.ansible("csi_mount_repair", False, publish_from=said).findings == []
