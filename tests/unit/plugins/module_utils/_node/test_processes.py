# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import processes
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import mount_id

POD = "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"
UNDER = POD.replace("-", "_")
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable"
ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "line",
    [
        f"0::{BURSTABLE}-pod{UNDER}.slice/cri-containerd-{ID}.scope",
        f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope/container",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/"
        f"cri-containerd-{ID}.scope",
        f"12:memory:/kubepods/besteffort/pod{POD}/{ID}\n0::/",
        f"0::/../../kubepods/pod{POD}/{ID}",
        f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice"
        f":cri-containerd:{ID}",
    ],
)
def test_pod_and_container_of_a_control_group(line: str) -> None:
    assert processes.pod_uid_of(line) == POD
    assert processes.container_id_of(line) == ID


def test_watcher_of_a_container_is_of_its_pod_and_no_container() -> None:
    line = f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{ID}.scope"
    assert (processes.pod_uid_of(line), processes.container_id_of(line)) == (POD, "")


def test_static_pods_have_a_hash_for_a_uid() -> None:
    uid = "0123456789abcdef" * 2
    assert processes.pod_uid_of(f"0::{BURSTABLE}-pod{uid}.slice/cri-containerd-{ID}.scope") == uid


@pytest.mark.parametrize(
    "line",
    [
        "0::/system.slice/ssh.service",
        f"0::/system.slice/docker-{ID}.scope",
        "0::/kubepods.slice/kubepods-burstable.slice",
        f"0::/user.slice/kubepods-pod{POD}x.slice/{ID}",
        "",
    ],
)
def test_what_is_no_pod(line: str) -> None:
    assert processes.pod_uid_of(line) == ""
    assert processes.container_id_of(line) == ""


def test_uses_of_a_process(tmp_path: Path) -> None:
    """Of a process of our own: the mounts of its folder, its root, its program, and of what it has
    open and mapped.
    """
    with (
        (tmp_path / "file").open("w") as file,
        subprocess.Popen(["sleep", "60"], cwd=tmp_path, stdout=file) as sleeper,
    ):
        here = mount_id(str(tmp_path))
        wanted = {(here, "working directory"), (here, "open file"), (mount_id("/"), "root")}
        uses: set[tuple[int, str]] = set()
        try:
            # A process that has just begun maps its files one after the other.
            until = time.monotonic() + 20
            while (
                not (wanted <= uses and {"program", "mapped file"} <= {how for number, how in uses})
                and time.monotonic() < until
            ):
                with contextlib.suppress(FileNotFoundError):
                    uses = set(processes._uses(f"/proc/{sleeper.pid}"))
        finally:
            sleeper.kill()
    assert wanted <= uses
    assert {"program", "mapped file"} <= {how for number, how in uses}


def test_a_process_that_may_not_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/cgroup").mkdir()
    with pytest.raises(StorageOpsError, match="processes of this node could not be read"):
        processes.read_processes(Host(Deadline(10), 5, str(tmp_path)))


def test_processes_that_have_ended_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "proc/4711").mkdir(parents=True)
    assert processes.read_processes(Host(Deadline(10), 5, str(tmp_path))) == []
