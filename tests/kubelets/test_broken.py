# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compliance run over a node with a kernel of its own that is broken in six ways at once: each is
found where it is, and nothing else is. What is broken in the cluster is in
tests/kind/test_compliance.py.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.kubelet.csi import BucketDriver
from support.failover import NODE_A, NODE_B
from support.kind import on
from support.kubelets import POD_DEADLINE, KubeletScene, counting, mount_over, waiting
from support.node import Node

# It makes two words of BUCKET:PATH.
HUNG = "^s3fs hung "
LUN = 2


class Broken:
    """Whatever takes its time comes before what the next change would mend."""

    def __init__(self, scene: KubeletScene, buckets: BucketDriver) -> None:
        self.scene, self.buckets, self.node = scene, buckets, Node(scene.vm())
        self.map, self.wwid = self.node.map_of(LUN)
        self.point = ""

    def break_it(self) -> None:
        """All of it on A."""
        scene, node = self.scene, self.node
        scene.deploy("other", **counting("other"), **on(NODE_A))
        scene.deploy("shut", **counting("shut"), **on(NODE_A))
        self._begin("dead")
        # No pattern matches what is dead.
        point = self._point("dead")
        self.buckets.kill(NODE_A)
        dead = "Transport endpoint is not connected"
        scene.look(lambda: dead in node.sh(f"ls {point} 2>&1", check=False), "it is dead")
        self._begin("hung")
        node.sh(f"pkill -STOP -f '{HUNG}'")
        scene.writes_on(name="other")
        scene.writes_on(name="shut")
        # As an error of its device: Documentation/ABI/testing/sysfs-fs-ext4.
        point = self._point("shut")
        node.sh(f"mount -o remount,errors=remount-ro {point}")
        device = node.sh(f"findmnt -no SOURCE {point}").strip()
        node.sh(f"echo broken > /sys/fs/ext4/{Path(device).name}/trigger_fs_error")
        scene.volume("db")
        scene.create("db", ["db"], **waiting("db"), grace=1, **on(NODE_A))
        scene.cluster.wait(lambda: scene.pods(NODE_A), "db has a node", POD_DEADLINE)
        self.point = mount_over(scene, "db", "other")
        # Asked for at each boot, and not there; the daemon has no socket that would start it.
        node.sh("systemctl stop iscsid.socket iscsid.service")
        node.sh("sed -i.lab '/^iscsid.startup/d' /etc/iscsi/iscsid.conf")
        node.unmap(LUN)

    def mend(self) -> None:
        """As it was, but for the pods."""
        node = self.node
        node.sh("mv /etc/iscsi/iscsid.conf.lab /etc/iscsi/iscsid.conf")
        node.sh("systemctl start iscsid.socket")
        node.labctl(f"lun map {LUN}")
        node.labctl("rescan")
        node.wait(lambda: self.wwid in node.state()["maps"], f"{self.map} is back")
        node.sh(f"umount {self.point}")
        node.sh(f"pkill -CONT -f '{HUNG}'")

    def _begin(self, name: str) -> None:
        self.buckets.add_volume(name)
        self.scene.create(name, [name], **counting(name), grace=1, **on(NODE_A))
        self.scene.wait_running(NODE_A, name, POD_DEADLINE)
        self.scene.writes_on(name=name)

    def _point(self, name: str) -> str:
        where = f"/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/pv-{name}/mount"
        return self.node.sh(f"ls -d {where}").strip()


@pytest.fixture
def broken(scene: KubeletScene, buckets: BucketDriver) -> Iterator[Broken]:
    """All of it; then its pods go, as if nothing had been."""
    found = Broken(scene, buckets)
    found.break_it()
    yield found
    found.mend()


def names(scene: KubeletScene) -> dict[str, str]:
    """Of what is a part of an object's name: the application, or the plugin."""
    known = {}
    for pod in scene.api.all("Pod"):
        meta = pod["metadata"]
        generated = meta["labels"].get("pod-template-hash", "")
        name = meta["generateName"].removesuffix(f"{generated}-").rstrip("-")
        known |= {meta["uid"]: name, meta["name"]: name}
    for volume in scene.api.all("PersistentVolume"):
        handle = volume["spec"]["csi"]["volumeHandle"]
        name = volume["metadata"]["name"].removeprefix("pv-")
        known |= {handle: name, hashlib.sha256(handle.encode()).hexdigest(): name}
    return known


@pytest.mark.variation
def test_each_control_finds_its_own(broken: Broken, tmp_path: Path) -> None:
    scene = broken.scene
    before = scene.cluster.attachment_uids(), scene.storage.ceph.osd_map(), broken.node.shape()
    played, report = scene.compliance(tmp_path)
    assert played.rc != 0, played.text

    known = names(scene)
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for finding in report["findings"]:
        name = finding["object"]["name"]
        short = next((known[part] for part in name.split("/") if part in known), name)
        found[finding["host"], finding["control"]].add(short)
    assert found == {
        (NODE_A, "STOR-01"): {broken.map},
        (NODE_A, "STOR-04"): {"iscsid"},
        # Plugins see all mounts of their node.
        (NODE_A, "STOR-05"): {"dead", "csi-rbdplugin", "csi-s3"},
        (NODE_A, "STOR-06"): {"hung"},
        (NODE_A, "STOR-07"): {"db"},
        (NODE_A, "STOR-08"): {"shut"},
    }, report["findings"]

    # All else was looked at, and is well.
    hosts = {host["name"]: host["controls"] for host in report["hosts"]}
    failed = {
        name: {one for one, state in controls.items() if state == "fail"}
        for name, controls in hosts.items()
    }
    assert failed == {
        NODE_A: {f"STOR-0{number}" for number in (1, 4, 5, 6, 7, 8)},
        NODE_B: set(),
        "cluster": set(),
        "ceph": set(),
    }, hosts
    for name, controls in hosts.items():
        assert set(controls.values()) <= {"fail", "pass", "not_applicable"}, (name, controls)
    after = scene.cluster.attachment_uids(), scene.storage.ceph.osd_map(), broken.node.shape()
    assert after == before
    scene.writes_on(name="other")
