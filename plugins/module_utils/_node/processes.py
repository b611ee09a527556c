# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Every process with its mount namespace, its pod, and the mounts that it uses."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import mount_id_of

# Control groups of pods, by the cgroupfs driver (kubepods/burstable/podUID/ID) and by systemd's
# (kubepods-burstable-podUID.slice, with each - of the UID as _ ; cri-containerd-ID.scope, or
# :cri-containerd:ID if runc does not use systemd). See kubernetes
# pkg/kubelet/cm/cgroup_manager_linux.go and pod_container_manager_linux.go. The UID of a static pod
# is a hash without dashes. With a --cgroup-root, as in kind, its name is in front of all of these.
# conmon, which watches a container of CRI-O, belongs to the node.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(
    rf"/(?:[^/:]*-)?pod(?P<uid>{_UID})(?:\.slice)?(?:[/:]|$)", re.ASCII | re.MULTILINE
)
_CONTAINER = re.compile(
    r"[/:](?!crio-conmon-)(?:[a-z-]+-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)",
    re.ASCII | re.MULTILINE,
)


@dataclass(frozen=True)
class Process:
    """A process.

    ``namespace``: text of the link /proc/PID/ns/mnt. ``pod``: UID of its pod, or empty.
    ``container``: ID of its container, or empty. ``uses``: (ID of a mount of its namespace, how it
    uses that), each once.
    """

    pid: int
    command: str
    namespace: str
    pod: str
    container: str
    uses: tuple[tuple[int, str], ...]

    def describe(self) -> str:
        """``postgres (pid 4711)``."""
        return f"{self.command} (pid {self.pid})"


def require_host_namespace(host: Host) -> None:
    """Raise StorageOpsError unless this runs in the mount namespace of process 1."""
    # Elsewhere /dev and the mounts are not the node's, and an unmount would not reach the node.
    if host.link("/proc/self/ns/mnt") != host.link("/proc/1/ns/mnt"):
        raise StorageOpsError(
            "this runs in a mount namespace of its own, not the node's: connect to the node itself "
            "(by ssh, not in a container)",
            code="privileges_missing",
        )


def pod_uid_of(cgroup: str) -> str:
    """The UID of the pod in a /proc/PID/cgroup; empty if there is none."""
    match = _POD.search(cgroup)
    return match["uid"].replace("_", "-") if match else ""


def container_id_of(cgroup: str) -> str:
    """The ID of the pod's container in a /proc/PID/cgroup; empty if there is none."""
    match = _CONTAINER.search(cgroup) if pod_uid_of(cgroup) else None
    return match["id"] if match else ""


def read_processes(host: Host, uses: bool = True) -> list[Process]:
    """All processes, by ID, without those that end meanwhile. Raises StorageOpsError.

    ``uses``: whether to find the mounts that each uses. Only that can fail because of a process
    that hangs on a mount.
    """
    reply = host.bounded(lambda: [list(fields) for fields in _scan(host.path("/proc"), uses)])
    if reply.problem:
        raise StorageOpsError(f"the processes of this node could not be read: {reply.problem}")
    return [
        Process(
            pid, command, namespace, pod, container, tuple((number, how) for number, how in uses)
        )
        for pid, command, namespace, pod, container, uses in reply.value
    ]


def _scan(proc: str, with_uses: bool) -> Iterator[tuple[Any, ...]]:
    for pid in sorted(filter(str.isdigit, os.listdir(proc)), key=int):
        base = f"{proc}/{pid}"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            cgroup = _text(f"{base}/cgroup")
            pod, container = pod_uid_of(cgroup), container_id_of(cgroup)
            uses = sorted(set(_uses(base))) if with_uses else []
            yield (
                int(pid),
                _text(f"{base}/comm").rstrip("\n"),
                os.readlink(f"{base}/ns/mnt"),
                pod,
                container,
                uses,
            )


def _uses(base: str) -> Iterator[tuple[int, str]]:
    """(ID of a mount, how a process uses it), with repetitions."""
    # All are opened with O_PATH, which asks no server, so that none can block this (open(2)).
    for name, how in (("cwd", "working directory"), ("root", "root"), ("exe", "program")):
        # A kernel thread has no program, and its links cannot be followed.
        with contextlib.suppress(FileNotFoundError):
            yield _mount_of(f"{base}/{name}"), how
    for descriptor in os.listdir(f"{base}/fd"):
        with contextlib.suppress(FileNotFoundError):
            for line in _text(f"{base}/fdinfo/{descriptor}").splitlines():
                if line.startswith("mnt_id:"):
                    yield int(line.split()[1]), "open file"
    # Most files are mapped several times; one area of each is enough.
    files: dict[str, str] = {}
    for line in _text(f"{base}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            files.setdefault(" ".join(fields[3:]), fields[0])
    for area in files.values():
        # maps pads addresses with zeroes, map_files does not (fs/proc/task_mmu.c, fs/proc/base.c).
        area = "-".join(f"{int(end, 16):x}" for end in area.split("-"))
        with contextlib.suppress(FileNotFoundError):
            yield _mount_of(f"{base}/map_files/{area}"), "mapped file"


def _mount_of(path: str) -> int:
    # These links lead straight to the open file, without a lookup by name (proc_pid_fd(5)).
    descriptor = os.open(path, os.O_PATH)
    try:
        return mount_id_of(descriptor)
    finally:
        os.close(descriptor)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
