# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compliance run over a cluster and its nodes that are broken in ten ways at once: each is found
where it is, and nothing else is.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.common import LabError
from lab.kind.buckets import BucketDriver
from lab.kind.cluster import VOLUMES
from lab.kind.csi import Driver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import attachment_name, path
from support.kind import (
    NAME,
    KindCluster,
    add_disk,
    counting,
    left_over,
    lose_status,
    on,
    running,
)
from support.reattach import REPAIR, Workload

AUDITOR = REPAIR.with_name("rbac-audit.yml")
OPTIONS: dict[str, Any] = {
    "min_age_seconds": 0,
    "observation_seconds": 1,
    "pending_seconds": 5,
    "grace_seconds": 1,
    # What the lab's driver gives with each attachment.
    "required_metadata": {NAME: ["folder"]},
}
# An administrator asks for it at each boot; no node of kind has iscsid.
ISCSI = "/etc/modules-load.d/iscsi.conf"


class Broken:
    """All of it on one node but for the one that is lost, and pods that have nothing or wait for
    something else.
    """

    def __init__(self, cluster: KindCluster, driver: Driver, buckets: BucketDriver) -> None:
        self.cluster, self.driver, self.buckets = cluster, driver, buckets
        self.worker, self.other = cluster.kind.workers
        self._ends = contextlib.ExitStack()

    def break_it(self) -> None:
        """Whatever takes its time comes before what the next change would mend."""
        self._start()
        self._break_buckets()
        self._break_mounts()
        self._break_cluster()

    def close(self) -> None:
        """As it was, but for the pods."""
        self._ends.close()

    def on_worker(self, *command: str, data: bytes | None = None) -> str:
        """What a command on the node with the faults says."""
        return self.cluster.kind.on(self.worker, *command, data=data)

    def _at_the_end(self, *command: str) -> None:
        self._ends.callback(self.on_worker, *command)

    def _start(self) -> None:
        cluster, here = self.cluster, on(self.worker)
        for name in ("web", "status", "old"):
            Workload(cluster, name, "StatefulSet", driver=NAME, **counting(name), **here)
        there = on(self.other)
        Workload(cluster, "lost", "StatefulSet", driver=NAME, **counting("lost"), **there)
        left_over(cluster, "gone", self.worker)
        second = running("sleep 1000", claim="lost")
        cluster.api.create(k8s.pod("second", ["lost"], **second, **here))
        waiting = running("sleep 1000")
        waiting["containers"][0]["envFrom"] = [{"secretRef": {"name": "nothing"}}]
        cluster.api.create(k8s.pod("secret-missing", **waiting, **here))

    def _break_buckets(self) -> None:
        """Of two servers, one is dead, and one hangs."""
        # It makes two words of BUCKET:PATH.
        hung = "^s3fs hung "
        self._add_bucket("dead")
        self.buckets.kill(self.worker)
        # The old one may end a moment after the new one has begun.
        self.cluster.wait(lambda: self._is_dead("dead"), "dead")
        self._add_bucket("hung")
        self.on_worker("pkill", "-STOP", "-f", hung)
        self._at_the_end("pkill", "-CONT", "-f", hung)

    def _add_bucket(self, name: str) -> None:
        self.buckets.add_volume(name)
        spec = running("sleep 1000", claim=name)
        self.cluster.api.create(k8s.pod(name, [name], **spec, **on(self.worker)))
        self.cluster.wait(lambda: self._runs(name), f"{name} runs", 90)

    def _runs(self, name: str) -> bool:
        found = self.cluster.api.find("Pod", name)
        return bool(found and found["status"].get("phase") == "Running")

    def _is_dead(self, name: str) -> bool:
        try:
            self.cluster.kind.kubectl("exec", name, "--", "ls", f"/{name}")
        except LabError as exc:
            return "Transport endpoint is not connected" in str(exc)
        return False

    def _break_mounts(self) -> None:
        """Something is mounted on a volume, and another one's filesystem is given up."""
        uid = (self.cluster.api.find("Pod", "web-0") or {})["metadata"]["uid"]
        mount = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/pv-web/mount"
        # Or what is mounted on it would come onto the staging mount, too.
        self.on_worker("mount", "--make-private", mount)
        self.on_worker("mount", "--types=tmpfs", "another", mount)
        self._at_the_end("umount", mount)

        folder = f"{VOLUMES}/vol-shut"
        given = ["mkfs.ext4", "-q", "-e", "remount-ro"]
        device, holder = add_disk(self.cluster.kind, self.worker, "shut", *given)
        self._at_the_end("kill", holder)
        self.on_worker("mkdir", folder)
        self.on_worker("mount", device, folder)
        self._at_the_end("umount", folder)
        here = on(self.worker)
        Workload(self.cluster, "shut", "StatefulSet", driver=NAME, **counting("shut"), **here)
        # As an error of its device: Documentation/ABI/testing/sysfs-fs-ext4. The kernel is that of
        # this machine, and a node has its /sys read-only.
        trigger = Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error")
        trigger.write_text("the device is broken")

        self.on_worker("tee", ISCSI, data=b"iscsi_tcp\n")
        self._at_the_end("rm", ISCSI)

    def _break_cluster(self) -> None:
        """An attachment lacks what the driver has said, nothing attaches, a node is lost, and the
        other's status lacks a volume.
        """
        api, kind = self.cluster.api, self.cluster.kind
        old = path("VolumeAttachment", attachment_name("vol-old", NAME, self.worker))
        api.merge(f"{old}/status", {"status": {"attachmentMetadata": None}})
        self.driver.stop_attacher()
        self._ends.callback(self.driver.start_attacher)
        kind.on(self.other, "systemctl", "stop", "kubelet")
        self._ends.callback(self._find_again)
        lost = "the node is lost"
        self.cluster.wait(lambda: api.ready(self.other) == "Unknown", lost, 120)
        api.add_volume("waits", NAME, "vol-waits")
        waits = running("sleep 1000", claim="waits")
        api.create(k8s.pod("waits", ["waits"], **waits, **on(self.worker)))
        asked = attachment_name("vol-waits", NAME, self.worker)
        self.cluster.wait(lambda: api.find("VolumeAttachment", asked), "to be attached", 60)
        # Last, since the next change of an attachment there mends it.
        lose_status(self.cluster, "vol-status", self.worker)

    def _find_again(self) -> None:
        self.cluster.kind.on(self.other, "systemctl", "start", "kubelet")
        back = "the node is back"
        self.cluster.wait(lambda: self.cluster.api.ready(self.other) == "True", back, 120)


@pytest.fixture
def broken(cluster: KindCluster, driver: Driver, bucket_driver: BucketDriver) -> Iterator[Broken]:
    """All of it, until the end of the test; then its pods go, as if nothing had been."""
    found = Broken(cluster, driver, bucket_driver)
    try:
        found.break_it()
        yield found
    finally:
        found.close()
    cluster.reset()
    cluster.wait(lambda: not bucket_driver.mounts(found.worker), "no bucket is left", 90)


def test_each_control_finds_its_own(broken: Broken, tmp_path: Path) -> None:
    cluster, worker, other = broken.cluster, broken.worker, broken.other
    before = cluster.attachment_uids()
    inventory = cluster.inventory(tmp_path, worker, other)
    played, report = cluster.compliance(tmp_path, AUDITOR, OPTIONS, inventory)
    assert played.rc != 0, played.text

    plugins = [*broken.buckets.plugins(worker), *broken.driver.plugins(worker)]
    drivers = [f"{plugin['metadata']['name']}/driver" for plugin in plugins]
    known = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in cluster.api.all("Pod")}
    staged = {"dead": "dead", "hung": "hung", "vol-shut": "shut"}
    known |= {hashlib.sha256(handle.encode()).hexdigest(): name for handle, name in staged.items()}
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for finding in report["findings"]:
        name = finding["object"]["name"]
        short = next((known[part] for part in name.split("/") if part in known), name)
        found[finding["host"], finding["control"]].append(short)
    # What else of iSCSI a node lacks depends on the kernel.
    assert "iscsid" in found.pop((worker, "STOR-04")), report["findings"]
    assert {key: sorted(names) for key, names in found.items()} == {
        # Plugins see all mounts of their node; of two that are bad, they are named once.
        (worker, "STOR-05"): sorted(["dead", "dead/main", *drivers]),
        (worker, "STOR-06"): ["hung", "hung/main"],
        (worker, "STOR-07"): ["web-0"],
        (worker, "STOR-08"): ["shut"],
        ("cluster", "STOR-11"): [attachment_name("vol-gone", NAME, worker)],
        ("cluster", "STOR-13"): [attachment_name("vol-status", NAME, worker)],
        ("cluster", "STOR-14"): [attachment_name("vol-old", NAME, worker)],
        ("cluster", "STOR-15"): ["waits"],
        ("cluster", "STOR-16"): [other],
    }, report["findings"]

    hosts = {host["name"]: host["controls"] for host in report["hosts"]}
    failed = {name: _with(controls, "fail") for name, controls in hosts.items()}
    assert failed == {
        worker: {4, 5, 6, 7, 8},
        other: set(),
        "cluster": {11, 13, 14, 15, 16},
    }, hosts
    # All else was looked at.
    for name, controls in hosts.items():
        assert set(controls.values()) <= {"fail", "pass", "not_applicable"}, (name, controls)
    assert cluster.attachment_uids() == before


def _with(controls: dict[str, str], state: str) -> set[int]:
    return {int(name.partition("-")[2]) for name, found in controls.items() if found == state}
