# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compliance run over nodes with a kernel of their own, and their cluster, that are broken in ten
ways at once: each is found where it is, and nothing else is.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.kubelet.csi import BucketDriver, RbdDriver
from lab.kubernetes.api import attachment_name, path
from support.failover import NODE_A, NODE_B, RBD
from support.kind import left_over, lose_status, on
from support.kubelets import POD_DEADLINE, KubeletScene, counting, mount_over, waiting
from support.node import Node

# It makes two words of BUCKET:PATH.
HUNG = "^s3fs hung "
LUN = 2
OPTIONS = {
    "min_age_seconds": 0,
    "observation_seconds": 1,
    "pending_seconds": 5,
    "grace_seconds": 1,
}


class Broken:
    """Whatever takes its time comes before what the next change would mend."""

    def __init__(self, scene: KubeletScene, buckets: BucketDriver) -> None:
        self.scene, self.buckets, self.node = scene, buckets, Node(scene.vm())
        self.driver = RbdDriver(scene.kubelets)
        self.map, self.wwid = self.node.map_of(LUN)
        self.point = self.gone = ""

    def break_it(self) -> None:
        """All of it on A, but for the node that is lost: B."""
        self._break_node()
        self._break_cluster()

    def _break_node(self) -> None:
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

    def _break_cluster(self) -> None:
        """An attachment is left over, a node is lost with a volume, nothing attaches, and A's
        status lacks a volume.
        """
        scene = self.scene
        self.gone = left_over(scene.cluster, "gone", NODE_A, RBD)
        scene.volume("lost")
        scene.create("lost", ["lost"], **counting("lost"), grace=1, **on(NODE_B))
        scene.wait_running(NODE_B, "lost", POD_DEADLINE)
        scene.writes_on(NODE_B, "lost")
        scene.cut(NODE_B)
        scene.wait_lost(NODE_B, seconds=180)
        self.driver.stop_attacher()
        scene.volume("waits")
        scene.create("waits", ["waits"], **counting("waits"), grace=1, **on(NODE_A))
        asked = "waits is to be attached"
        scene.cluster.wait(lambda: scene.attachment(NODE_A, "waits"), asked, POD_DEADLINE)
        # Last, since the next change of an attachment there mends it.
        lose_status(scene.cluster, self.handle("other"), NODE_A, RBD)

    def handle(self, name: str) -> str:
        """By which the driver knows a volume."""
        found = self.scene.api.call("GET", path("PersistentVolume", f"pv-{name}"))
        return str(found["spec"]["csi"]["volumeHandle"])

    def mend(self) -> None:
        """As it was, but for the pods."""
        self.driver.start_attacher()
        self.scene.heal(NODE_B)
        self.scene.wait_back(NODE_B, seconds=180)
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
        generated = meta.get("labels", {}).get("pod-template-hash", "")
        name = meta.get("generateName", meta["name"]).removesuffix(f"{generated}-").rstrip("-")
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
    options = json.dumps(OPTIONS)
    played, report = scene.compliance(tmp_path, compliance_cluster_options=options)
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
        ("cluster", "STOR-11"): {broken.gone},
        ("cluster", "STOR-13"): {attachment_name(broken.handle("other"), RBD, NODE_A)},
        ("cluster", "STOR-15"): {"waits"},
        ("cluster", "STOR-16"): {NODE_B},
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
        "cluster": {f"STOR-{number}" for number in (11, 13, 15, 16)},
        "ceph": set(),
    }, hosts
    for name, controls in hosts.items():
        assert set(controls.values()) <= {"fail", "pass", "not_applicable"}, (name, controls)
    after = scene.cluster.attachment_uids(), scene.storage.ceph.osd_map(), broken.node.shape()
    assert after == before
    scene.writes_on(name="other")
