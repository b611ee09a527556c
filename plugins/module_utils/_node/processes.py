# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every process with its mount namespace, its pod, and the mounts that it uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable

from .._core.bounded import Deadline, Reply, call_each
from .._core.errors import StorageOpsError
from .._core.turns import in_turns
from . import fdinfo
from .control_groups import UNKNOWN, container_id_of, of_pod, pod_uid_of, text_of
from .host import Fleeting, Host, of_living, target_of

# How many open files, and how many mappings, are read of one process. A process with more is not
# known to use, or not to use, a mount. A tenant's may have a million open files (fs.nr_open).
MOST_FILES = 100_000
# Seconds for one process. A process of the usual kind takes milliseconds.
_SECONDS = 10.0
# How many are read at a time. More would only share the processors, which the node needs.
_WORKERS = 16
# Of a process that was not asked for.
NOT_READ = "its open files were not read"
# Of one that was not looked at, since its owner has too many.
_NO_TURN = "there was no time to look at it"


@dataclass(frozen=True)
class Process:
    """A process.

    ``namespace``: text of the link /proc/PID/ns/mnt; empty if that is not known. ``pod``: UID of
    its pod, UNKNOWN, or empty. ``container``: ID of its container, or empty. ``uses``: (ID of a
    mount of its namespace, how it uses that), each once. ``unknown``: why its uses were not read;
    empty if they were. ``owner``: its pod, or the control group of what is in none.
    """

    pid: int
    command: str
    namespace: str
    pod: str
    container: str
    uses: tuple[tuple[int, str], ...] = ()
    unknown: str = ""
    owner: str = ""

    def describe(self) -> str:
        """``postgres (pid 4711)``."""
        return f"{self.command or 'a process' + of_pod(self.pod)} (pid {self.pid})"

    def may_be_in(self, namespaces: Collection[str]) -> bool:
        """Whether it is in one of these mount namespaces; so, too, if that is unknown."""
        return bool(namespaces) and self.namespace in ("", *namespaces)


def require_host_namespace(host: Host) -> None:
    """Raise StorageOpsError unless this runs in the mount namespace of process 1."""
    # Elsewhere /dev and the mounts are not the node's, and an unmount would not reach the node.
    if host.link("/proc/self/ns/mnt") != host.link("/proc/1/ns/mnt"):
        raise StorageOpsError(
            "this runs in a mount namespace of its own, not the node's: connect to the node itself "
            "(by ssh, not in a container)",
            code="privileges_missing",
        )


def read_processes(host: Host, namespaces: Collection[str] = ()) -> list[Process]:
    """All processes, by ID, without those that end meanwhile. Raises StorageOpsError.

    ``namespaces``: the mounts that a process uses are found if it is in one of these mount
    namespaces. A process of which they cannot be read, since it hangs or has too many, is there
    with ``unknown``, as are those that were not asked for.
    """
    proc = host.path("/proc")
    known = identify(host)
    asked = [process for process in known if process.may_be_in(namespaces)]
    replies = ask_each(host, lambda process: _process(proc, process.pid), asked)
    read = {process.pid: _read(process, reply) for process, reply in zip(asked, replies)}
    return [found for process in known for found in [read.get(process.pid, process)] if found]


def identify(host: Host) -> list[Process]:
    """All processes, by ID, of which no uses were read. Raises StorageOpsError.

    Of an owner with too many, the others are there with ``unknown`` and without a name: they may be
    in any mount namespace.
    """
    proc = host.path("/proc")
    seconds, clock = host.deadline.cap(host.command_timeout), host.deadline.clock
    # None of this can be made to hang or to be long by the process itself. A third of the time is
    # for whose they are, one for the rest of it, and one to hand it on.
    reply = host.bounded(lambda: _identities(proc, partial(Deadline, seconds / 3, clock)))
    if reply.problem:
        raise StorageOpsError(f"the processes of this node could not be read: {reply.problem}")
    read, left = reply.value
    found = [Process(**identity, unknown=NOT_READ) for identity in read]
    found += [
        Process(pid, "", "", pod, "", (), _NO_TURN, owner)
        for pod, owner, pids in left
        for pid in pids
    ]
    return sorted(found, key=lambda process: process.pid)


def ask_each(
    host: Host, function: Callable[[Process], Any], asked: Sequence[Process]
) -> list[Reply]:
    """What ``function`` finds of each process, in a child; one reply per process, in order.

    Each by itself, and in turns of their pods: a tenant may have any number of processes, each with
    as much to read as its limits allow.
    """
    # The node's own first, by their services: no pod can add to those. Last those that may be of
    # any pod, as one.
    pods = [process.pod for process in asked]
    order = sorted(range(len(asked)), key=lambda one: (bool(pods[one]), pods[one] == UNKNOWN))
    seconds = host.deadline.cap(host.command_timeout)
    replies = call_each(
        lambda number: function(asked[number]),
        order,
        min(seconds, _SECONDS),
        seconds,
        owners=[asked[number].owner for number in order],
        workers=_WORKERS,
    )
    by_number = dict(zip(order, replies))
    return [by_number[number] for number in range(len(asked))]


def _read(process: Process, reply: Reply) -> Process | None:
    """The process with a reply of ``_process``; None if it has ended."""
    if reply.problem:
        return replace(process, unknown=reply.problem)
    if reply.value is None:
        return None
    # Its identity, too, since another process may have its ID by now.
    now, uses = reply.value
    return Process(**now, uses=tuple((number, how) for number, how in uses))


def _pids(proc: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())


def _identities(
    proc: str, begin: Callable[[], Deadline]
) -> tuple[list[dict[str, Any]], list[tuple[str, str, list[int]]]]:
    """The fields of each ``Process`` but its uses; and pod, owner and IDs of those for which no
    time was left.
    """
    # A tenant may have hundreds of thousands of processes. Whose they are is one file each.
    deadline = begin()
    owners = {
        pid: _owner(f"{proc}/{pid}") if deadline.remaining() else (UNKNOWN, UNKNOWN)
        for pid in _pids(proc)
    }
    deadline = begin()
    found = []
    left: dict[tuple[str, str], list[int]] = {}
    for pid in in_turns(owners, owners.__getitem__):
        if deadline.remaining():
            found.append(_identity(proc, pid))
        else:
            left.setdefault(owners[pid], []).append(pid)
    return list(filter(None, found)), [(*owner, pids) for owner, pids in left.items()]


def _owner(base: str) -> tuple[str, str]:
    """Pod and owner of a process, as of a ``Process``."""
    try:
        cgroup = text_of(base)
        # A pod's process whose first thread has ended may look as if it were in no pod.
        if not pod_uid_of(cgroup):
            cgroup = of_living(base, text_of) or UNKNOWN
    # If it has ended, its identity shows that.
    except (FileNotFoundError, ProcessLookupError, Fleeting):
        cgroup = UNKNOWN
    pod = pod_uid_of(cgroup)
    return pod, pod or cgroup


def _identity(proc: str, pid: int) -> dict[str, Any] | None:
    """The fields of a ``Process`` but its uses; None if it has ended."""
    try:
        return of_living(f"{proc}/{pid}", partial(_identity_of, pid))
    except Fleeting:
        nothing = {"namespace": "", "pod": UNKNOWN, "container": "", "owner": UNKNOWN}
        return {"pid": pid, "command": "", **nothing}


def _identity_of(pid: int, base: str) -> dict[str, Any]:
    cgroup = text_of(base)
    pod = pod_uid_of(cgroup)
    return {
        "pid": pid,
        "command": _text(f"{base}/comm").rstrip("\n"),
        "namespace": os.readlink(f"{base}/ns/mnt"),
        "pod": pod,
        "container": container_id_of(cgroup),
        "owner": pod or cgroup,
    }


def _process(proc: str, pid: int) -> tuple[Any, list[tuple[int, str]]] | None:
    """The same with its uses."""

    def reading(base: str) -> tuple[Any, list[tuple[int, str]]]:
        # Its identity last: another process may have its ID by now.
        uses = sorted(set(_uses(base)))
        return _identity_of(pid, base), uses

    return of_living(f"{proc}/{pid}", reading, files=True)


def _uses(base: str) -> Iterator[tuple[int, str]]:
    """(ID of a mount, how a process uses it), with repetitions."""
    # All are opened with O_PATH, which asks hardly any server (open(2)).
    for name, how in (("cwd", "working directory"), ("root", "root"), ("exe", "program")):
        # A kernel thread has no program, and its links cannot be followed.
        with contextlib.suppress(FileNotFoundError):
            yield fdinfo.mount_at(f"{base}/{name}"), how
    for name in _names(f"{base}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield fdinfo.read(f"{base}/fdinfo/{name}").mount, "open file"
    # Not from maps, where each line has a path as long as the process likes.
    for name in _names(f"{base}/map_files"):
        with contextlib.suppress(FileNotFoundError):
            yield fdinfo.mount_at(f"{base}/map_files/{name}"), "mapped file"


def has_open(base: str, path: str) -> bool:
    """Whether a process has a file open, by the text of its links. Call it in a child.

    ``base``: its folder in /proc. Raises StorageOpsError if it has too many open files.
    """

    def looking(thread: str) -> bool:
        for name in _names(f"{thread}/fd"):
            # One that is closed meanwhile hides none of the others.
            with contextlib.suppress(FileNotFoundError):
                if target_of(f"{thread}/fd/{name}") == path:
                    return True
        return False

    return bool(of_living(base, looking, files=True))


def _names(folder: str) -> Iterator[str]:
    """The names in a folder. Raises StorageOpsError if there are too many."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == MOST_FILES:
                raise StorageOpsError(f"more than {MOST_FILES} in {folder}")
            yield entry.name


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
