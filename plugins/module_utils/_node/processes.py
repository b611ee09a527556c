# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Every process with its mount namespace, its pod, and the mounts that it uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .._core.bounded import Reply, call_each
from .._core.errors import StorageOpsError
from . import fdinfo
from .control_groups import container_id_of, pod_uid_of
from .host import Host
from .unmount import mount_id_of

# How many open files, and how many mappings, are read of one process. A process with more is not
# known to use, or not to use, a mount. A tenant's may have a million open files (fs.nr_open).
MOST_FILES = 100_000
# Seconds for one process. A process of the usual kind takes milliseconds.
_SECONDS = 10.0


@dataclass(frozen=True)
class Process:
    """A process.

    ``namespace``: text of the link /proc/PID/ns/mnt. ``pod``: UID of its pod, or empty.
    ``container``: ID of its container, or empty. ``uses``: (ID of a mount of its namespace, how it
    uses that), each once. ``unknown``: why its uses could not be read; empty if they were.
    """

    pid: int
    command: str
    namespace: str
    pod: str
    container: str
    uses: tuple[tuple[int, str], ...] = ()
    unknown: str = ""

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


def read_processes(host: Host, uses: bool = True) -> list[Process]:
    """All processes, by ID, without those that end meanwhile. Raises StorageOpsError.

    ``uses``: whether to find the mounts that each uses. A process whose uses cannot be read, since
    it hangs or has too many, is there with ``unknown``.
    """
    proc = host.path("/proc")
    # None of this can be made to hang or to be long by the process itself.
    reply = host.bounded(lambda: list(filter(None, map(partial(_identity, proc), _pids(proc)))))
    if reply.problem:
        raise StorageOpsError(f"the processes of this node could not be read: {reply.problem}")
    if not uses:
        return [Process(*identity) for identity in reply.value]
    # Each by itself, and the node's own first: a tenant may have any number of processes, each with
    # as much to read as its limits allow.
    known = sorted(reply.value, key=lambda identity: (bool(identity[3]), identity[0]))
    seconds = host.deadline.cap(host.command_timeout)
    replies = call_each(
        lambda identity: _process(proc, identity[0]), known, min(seconds, _SECONDS), seconds
    )
    read = [_read(identity, reply) for identity, reply in zip(known, replies)]
    return sorted((process for process in read if process), key=lambda process: process.pid)


def _read(identity: list[Any], reply: Reply) -> Process | None:
    """The process of a reply of ``_process``; None if it has ended."""
    if reply.problem:
        return replace(Process(*identity), unknown=reply.problem)
    if reply.value is None:
        return None
    # Its identity, too, since another process may have its ID by now.
    now, uses = reply.value
    return replace(Process(*now), uses=tuple((number, how) for number, how in uses))


def _pids(proc: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())


def _identity(proc: str, pid: int) -> tuple[Any, ...] | None:
    """The first fields of a ``Process``; None if it has ended."""
    base = f"{proc}/{pid}"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        cgroup = _text(f"{base}/cgroup")
        return (
            pid,
            _text(f"{base}/comm").rstrip("\n"),
            os.readlink(f"{base}/ns/mnt"),
            pod_uid_of(cgroup),
            container_id_of(cgroup),
        )
    return None


def _process(proc: str, pid: int) -> tuple[Any, list[tuple[int, str]]] | None:
    """The same with its uses."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        uses = sorted(set(_uses(f"{proc}/{pid}")))
        identity = _identity(proc, pid)
        return (identity, uses) if identity else None
    return None


def _uses(base: str) -> Iterator[tuple[int, str]]:
    """(ID of a mount, how a process uses it), with repetitions."""
    # All are opened with O_PATH, which asks no server, so that none can block this (open(2)).
    for name, how in (("cwd", "working directory"), ("root", "root"), ("exe", "program")):
        # A kernel thread has no program, and its links cannot be followed.
        with contextlib.suppress(FileNotFoundError):
            yield _mount_of(f"{base}/{name}"), how
    for name in _names(f"{base}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield fdinfo.read(f"{base}/fdinfo/{name}").mount, "open file"
    # Not from maps, where each line has a path as long as the process likes.
    for name in _names(f"{base}/map_files"):
        with contextlib.suppress(FileNotFoundError):
            yield _mount_of(f"{base}/map_files/{name}"), "mapped file"


def _names(folder: str) -> Iterator[str]:
    """The names in a folder. Raises StorageOpsError if there are too many."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == MOST_FILES:
                raise StorageOpsError(f"more than {MOST_FILES} in {folder}")
            yield entry.name


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
