# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every process with its mount namespace, its pod, and the mounts that it uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Callable

from .._core.bounded import Deadline, Reply, call_each
from .._core.errors import StorageOpsError
from .._core.texts import is_number
from .._core.turns import in_turns
from . import fdinfo, threads
from .control_groups import UNKNOWN, container_id_of, of_pod, of_process, pod_uid_of, text_of
from .host import SECONDS, Fleeting, Host, count, of_living, target_of
from .kubelet import namespaces_of
from .threads import FILES, FOLDERS, each_apart

# How many open files, and how many mappings, are read of one process. A process with more is not
# known to use, or not to use, a mount. A tenant's may have a million open files (fs.nr_open).
MOST_FILES = 100_000
# How many are read at a time. More would only share the processors, which the node needs.
_WORKERS = 16
# Of a process that was not asked for.
NOT_READ = "its open files were not read"
# Of one that was not looked at, since its owner has too many.
_NO_TURN = "there was no time to look at it"
# Of the threads of one, which may be in mount namespaces of their own.
THREADS = "not all of its threads were looked at"


# The fields of a Process but its uses.
Identity = dict[str, Any]


@dataclass(frozen=True)
class Process:
    """A process; or a thread of one, by its ID, that has a mount namespace for itself.

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
    asked = [
        process for process in known if process.may_be_in(namespaces) and process.unknown != THREADS
    ]
    replies = ask_each(host, lambda process: _process(proc, process.pid), asked)
    read = {process: _read(process, reply) for process, reply in zip(asked, replies)}
    return [found for process in known for found in [read.get(process, process)] if found]


def identify(host: Host) -> list[Process]:
    """All processes, by ID, of which no uses were read. Raises StorageOpsError.

    Of an owner with too many, the others are there with ``unknown`` and without a name: they may be
    in any mount namespace.
    """
    proc = host.path("/proc")
    seconds, clock = host.deadline.cap(host.command_timeout), host.deadline.clock
    # None of this can be made to hang or to be long by the process itself. A quarter of the time is
    # for whose they are, one for the rest of it, one for their threads, and one to hand it on.
    # One with very many threads, which end meanwhile, has at most a quarter of each.
    spaces = namespaces_of(host)
    reply = host.bounded(lambda: _identities(proc, partial(Deadline, seconds / 4, clock), spaces))
    if reply.problem:
        raise StorageOpsError(f"the processes of this node could not be read: {reply.problem}")
    read, left, unseen = reply.value
    # What is known of a process comes last of what has its ID.
    found = [Process(**identity, unknown=THREADS) for identity in unseen]
    found += [Process(**identity, unknown=NOT_READ) for identity in read]
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
    replies = call_each(
        lambda number: function(asked[number]),
        order,
        *host.for_one_of_many(),
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
    return sorted(int(name) for name in os.listdir(proc) if is_number(name))


def _identities(
    proc: str, begin: Callable[[], Deadline], spaces: Mapping[str, str]
) -> tuple[list[Identity], list[tuple[str, str, list[int]]], list[Identity]]:
    """The fields of each ``Process`` but its uses; pod, owner and IDs of those for which no time
    was left; and of which not all threads were looked at.

    ``spaces``: by uid of each pod its namespace.
    """
    # A tenant may have hundreds of thousands of processes. Whose they are is one file each.
    deadline = begin()
    owners = {
        pid: _owner(f"{proc}/{pid}") if deadline.remaining() else (UNKNOWN, UNKNOWN)
        for pid in _pids(proc)
    }
    deadline = begin()
    found: list[Identity | None] = []
    left: dict[tuple[str, str], list[int]] = {}
    # The node's own first, and last those that may be of any pod (see ask_each).
    turns = sorted(
        in_turns(owners, owners.__getitem__),
        key=lambda pid: (bool(owners[pid][0]), owners[pid][0] == UNKNOWN),
    )
    for pid in turns:
        if deadline.remaining():
            found.append(_identity(proc, pid, deadline))
        else:
            left.setdefault(owners[pid], []).append(pid)
    known = list(filter(None, found))
    apart, unseen = _threads(proc, known, begin(), spaces)
    return known + apart, [(*owner, pids) for owner, pids in left.items()], unseen


def _limit(deadline: Deadline) -> Deadline:
    """For one look at one process: however many take as long as that, some time is left."""
    return Deadline(min(SECONDS, deadline.share(0)), deadline.clock)


def _threads(
    proc: str, known: Sequence[Identity], deadline: Deadline, spaces: Mapping[str, str]
) -> tuple[list[Identity], list[Identity]]:
    """The threads with mount namespaces for themselves, and the processes of which not all threads
    were looked at.
    """
    several = [
        (identity, many)
        for identity in known
        for many in [count(f"{proc}/{identity['pid']}")]
        if many > 1
    ]
    found: list[Identity] = []
    unseen = []
    for (identity, _many), share in threads.in_shares(
        several,
        lambda one: spaces.get(one[0]["pod"], one[0]["owner"]),
        lambda one: one[1],
        lambda one: not one[0]["pod"],
        deadline,
    ):
        try:
            found += _apart(proc, identity, share)
        except StorageOpsError:
            # Anyone may have threads that end one after the other. What is open is read later.
            if threads.may_have_namespaces(f"{proc}/{identity['pid']}", _limit(deadline)):
                # A thread of a pod has no volume that is not the pod's: its process tells which.
                unseen.append(identity if identity["pod"] else {**identity, "namespace": ""})
    return found, unseen


def _apart(proc: str, identity: Identity, deadline: Deadline) -> list[Identity]:
    """One thread of a process in each mount namespace that it does not show itself."""

    base = f"{proc}/{identity['pid']}"

    # Not by the thread that lives, which may end before all others are read.
    def looking(_living: str) -> list[Identity]:
        return [
            _identity_of(int(os.path.basename(thread)), thread)
            for thread in threads.namespaces(base, identity["namespace"], deadline)
        ]

    return of_living(base, looking, until=deadline) or []


def _owner(base: str) -> tuple[str, str]:
    """Pod and owner of a process, as of a ``Process``."""
    # If it has ended, its identity shows that.
    cgroup = of_process(base) or UNKNOWN
    pod = pod_uid_of(cgroup)
    return pod, pod or cgroup


def _identity(proc: str, pid: int, deadline: Deadline) -> Identity | None:
    """The fields of a ``Process`` but its uses; None if it has ended."""
    base = f"{proc}/{pid}"
    try:
        return of_living(base, partial(_identity_of, pid), until=_limit(deadline))
    except Fleeting:
        return _in_parts(pid, base, deadline)


def _in_parts(pid: int, base: str, deadline: Deadline) -> Identity | None:
    """The same of a process of which no thread lives until all of that is read."""
    # One file is mostly read. Without it, the process may be of any pod, or in any namespace.
    cgroup = of_process(base)
    try:
        until = _limit(deadline)
        namespace = of_living(base, lambda thread: os.readlink(f"{thread}/ns/mnt"), until=until)
    except Fleeting:
        namespace = ""
    if namespace is None or not cgroup:
        return None
    return {"pid": pid, "command": "", "namespace": namespace, **_whose(cgroup)}


def _identity_of(pid: int, base: str) -> Identity:
    return {
        **_whose(text_of(base)),
        "pid": pid,
        "command": _text(f"{base}/comm").rstrip("\n"),
        "namespace": os.readlink(f"{base}/ns/mnt"),
    }


def _whose(cgroup: str) -> Identity:
    pod = pod_uid_of(cgroup)
    return {"pod": pod, "container": container_id_of(cgroup), "owner": pod or cgroup}


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
    yield from chain.from_iterable(each_apart(base, FOLDERS, _folders))
    # A kernel thread has no program.
    with contextlib.suppress(FileNotFoundError):
        yield fdinfo.mount_at(f"{base}/exe"), "program"
    for mount in set().union(*each_apart(base, FILES, _open_files)):
        yield mount, "open file"
    # Not from maps, where each line has a path as long as the process likes.
    for name in _names(f"{base}/map_files"):
        with contextlib.suppress(FileNotFoundError):
            yield fdinfo.mount_at(f"{base}/map_files/{name}"), "mapped file"


def _folders(thread: str) -> list[tuple[int, str]]:
    found = []
    for name, how in (("cwd", "working directory"), ("root", "root")):
        # Those of a kernel thread cannot be followed.
        with contextlib.suppress(FileNotFoundError):
            found.append((fdinfo.mount_at(f"{thread}/{name}"), how))
    return found


def _open_files(thread: str) -> set[int]:
    """IDs of the mounts that the open files of a thread are in."""
    found = set()
    for name in _names(f"{thread}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(fdinfo.read(f"{thread}/fdinfo/{name}").mount)
    return found


def has_open(base: str, path: str) -> bool:
    """Whether a process has a file open, by the text of its links. Call it in a child.

    ``base``: its folder in /proc. Raises StorageOpsError if it has too many open files.
    """

    def reading(thread: str) -> bool:
        for name in _names(f"{thread}/fd"):
            # One that is closed meanwhile hides none of the others.
            with contextlib.suppress(FileNotFoundError):
                if target_of(f"{thread}/fd/{name}") == path:
                    return True
        return False

    def looking(thread: str) -> bool:
        return any(each_apart(thread, FILES, reading))

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
