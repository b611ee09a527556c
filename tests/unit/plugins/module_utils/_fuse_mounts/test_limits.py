# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the container of a driver may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    limits as driver_limits,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.limits import (
    Limits,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

ROOT, DRIVER = "/var/lib/kubelet", "s3.csi.example.com"
UID = "0a1b2c3d_1111_2222_3333_444455556666"
POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID}.slice"
CONTAINER = f"{POD}/cri-containerd-{'c' * 64}.scope"
SOCKET = f"30 1 8:1 {ROOT}/plugins/{DRIVER} /csi rw - ext4 /dev/vda rw\n"
PODS = f"31 1 8:1 {ROOT}/pods {ROOT}/pods rw shared:7 - ext4 /dev/vda rw\n"


class Node:
    """Processes and control groups of a captured tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process(1, "0::/init.scope\n", "")

    def process(self, pid: int, cgroup: str, more: str) -> None:
        proc = self.folder / "proc" / str(pid)
        (proc / "ns").mkdir(parents=True)
        (proc / "mountinfo").write_text(f"1 0 8:1 / / rw - ext4 /dev/vda rw\n{more}")
        (proc / "cgroup").write_text(cgroup)
        os.symlink(f"mnt:[{pid}]", proc / "ns/mnt")
        os.symlink("/", proc / "root")

    def limit(self, path: str, text: str) -> None:
        target = self.folder / "sys/fs/cgroup" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")

    def read(self) -> dict[str, Limits]:
        return driver_limits.read(
            Host(Deadline(60), 10, str(self.folder)), ROOT, {DRIVER, "other.example.com"}
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_container_and_its_pod_both_hold(node: Node) -> None:
    node.process(7, f"0::{CONTAINER}\n", SOCKET + PODS)
    node.limit(f"{CONTAINER}/memory.max", "268435456")
    node.limit(f"{POD}/memory.max", "max")
    node.limit(f"{CONTAINER}/pids.max", "max")
    node.limit(f"{POD}/pids.max", "1024")
    assert node.read() == {DRIVER: Limits(268435456, 1024)}


def test_without_limits_there_are_none(node: Node) -> None:
    node.process(7, f"0::{CONTAINER}\n", SOCKET + PODS)
    node.limit(f"{CONTAINER}/memory.max", "max")
    assert node.read() == {DRIVER: Limits()}


def test_the_older_control_groups(node: Node) -> None:
    path = f"/kubepods/burstable/pod{UID.replace('_', '-')}/{'d' * 64}"
    node.process(
        7, f"12:pids:{path}\n9:cpu,cpuacct:{path}\n4:memory:{path}\n0::{path}\n", SOCKET + PODS
    )
    node.limit(f"memory{path}/memory.limit_in_bytes", "134217728")
    node.limit(f"memory{path.rpartition('/')[0]}/memory.limit_in_bytes", "9223372036854771712")
    node.limit(f"pids{path}/pids.max", "64")
    node.limit(f"cpu,cpuacct{path}/memory.limit_in_bytes", "1")
    assert node.read() == {DRIVER: Limits(134217728, 64)}


@pytest.mark.parametrize(
    "mounts",
    [
        SOCKET,
        PODS,
        SOCKET + PODS.replace("shared:7 ", ""),
        SOCKET.replace(f"{DRIVER} ", f"{DRIVER}.other ") + PODS,
        SOCKET + PODS.replace(f"{ROOT}/pods rw", "/elsewhere rw"),
        # A folder of that name in a tenant's volume, on the same disk or on another one.
        SOCKET.replace(ROOT, f"{ROOT}/pods/x/volumes/kubernetes.io~empty-dir/e") + PODS,
        SOCKET.replace("8:1", "8:2") + PODS,
    ],
)
def test_sidecars_and_others_are_not_it(node: Node, mounts: str) -> None:
    node.process(7, f"0::{CONTAINER}\n", mounts)
    assert node.read() == {}


def test_the_folder_may_be_on_a_disk_of_its_own(node: Node) -> None:
    own = f"21 1 8:9 /data {ROOT} rw shared:3 - ext4 /dev/vdb rw\n"
    (node.folder / "proc/1/mountinfo").write_text(f"1 0 8:1 / / rw - ext4 /dev/vda rw\n{own}")
    node.process(7, f"0::{CONTAINER}\n", SOCKET + PODS)
    assert node.read() == {}
    theirs = SOCKET.replace(f"8:1 {ROOT}", "8:9 /data")
    node.process(8, f"0::{CONTAINER}\n", theirs + PODS)
    assert node.read() == {DRIVER: Limits()}


def test_a_process_of_the_nodes_own_is_no_container(node: Node) -> None:
    node.process(7, "0::/system.slice/kubelet.service\n", SOCKET + PODS)
    assert node.read() == {}


def test_of_two_it_is_not_known_which(node: Node) -> None:
    for pid, letter in ((7, "c"), (8, "d")):
        node.process(pid, f"0::{POD}/cri-containerd-{letter * 64}.scope\n", SOCKET + PODS)
    assert node.read() == {}


def test_a_path_that_leads_upwards_is_not_followed(node: Node) -> None:
    node.process(7, f"0::/../..{CONTAINER}\n", SOCKET + PODS)
    assert node.read() == {DRIVER: Limits()}
