# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether mounted folders and block devices answer.

mountinfo and mountpoint(1) show a dead mount like a healthy one, so each folder is read.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from .._core.bounded import Reply, call_each
from .._core.texts import is_number, words
from . import fdinfo
from .control_groups import may_be_ours, pod_uid_of, text_of
from .host import Fleeting, Host

OK = "ok"
DEAD = "dead"
HUNG = "hung"
ERROR = "error"

# ENOTCONN: the server has ended (fs/fuse/dev.c __fuse_request_send). ECONNABORTED: it ended, or its
# connection was aborted, while the request waited (fuse_abort_conn). ESTALE comes from a live
# server.
DEAD_ERRORS = ("ENOTCONN", "ECONNABORTED")
# Some servers answer statvfs by themselves while their backend hangs, so a listing follows.
_STEPS = ("", "statvfs", "listing")

# What a child is called while it asks a mount: this, and the device. So a later run knows it.
# 15 bytes in all (PR_SET_NAME of prctl(2)).
_NAME = "sops"
# In place of the device, on a way to a mount (see way_of).
_WAY = "~"
# And while it asks a block device, which may answer though a filesystem on it hangs.
_BLOCK_NAME = "sopd"
# How many children may wait for one device, with those of earlier runs, until it is asked only once
# in a while. Each keeps the memory of its run for as long as the mount hangs, and a node may be
# audited every night.
MOST_HELD = 8
# The same in a run that may repair, whose evidence has to be its own.
MOST_HELD_BY_REPAIRS = 32
# SIGKILL in a mask of pending signals (proc_pid_status(5)).
_PENDING = re.compile(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", re.MULTILINE | re.ASCII)
_KILLED = 1 << 8


@dataclass(frozen=True)
class Device:
    """A block device that is asked.

    ``name``: the kernel's. ``number``: major:minor. ``owner``: whose turns it uses up.
    """

    name: str
    number: str
    owner: Hashable


@dataclass(frozen=True)
class Answer:
    """What a folder answered.

    ``state``: OK; DEAD, its server has ended; HUNG, no answer in time; ERROR, anything else, which
    says nothing about its server. ``step``: statvfs or listing, whichever failed or hung; else
    empty. ``error``: a name such as ENOTCONN. ``text``: why, as a sentence. ``left``: ID of the
    child that is in D state and could not be ended, or 0. ``asked``: whether it says so in this
    run; if not, only children of earlier runs still wait for it.
    """

    state: str
    step: str = ""
    error: str = ""
    text: str = ""
    left: int = 0
    asked: bool = True

    @property
    def unasked(self) -> bool:
        """Whether this is no answer of the folder, as where time ran out, or too many hang."""
        return self.state == ERROR and not self.error


def probe_folders(
    host: Host,
    paths: Sequence[str],
    timeout: float,
    owners: Sequence[Hashable] = (),
    devices: Sequence[str] = (),
    most: int = MOST_HELD,
) -> list[Answer]:
    """Probe folders in parallel; one answer for each path, in order.

    ``timeout``: seconds for each, within the deadline. ``owners``: whose each is, as for
    ``call_each``. ``devices``: of the superblock of each, as major:minor, where one that children
    of earlier runs still wait for is not asked once more without end; it hangs. ``most``: as for
    ``held_children``. The topmost mount of a path answers; no link on the way is followed. A file
    that is mounted by itself (a subPath) is opened instead of listed.
    """
    held = held_children(host, most) if devices else {}
    waiting = {index: held[device] for index, device in enumerate(devices) if device in held}
    asked = [index for index in range(len(paths)) if index not in waiting]
    said = _probe(
        host,
        [host.path(paths[index]) for index in asked],
        timeout,
        [owners[index] for index in asked] if owners else (),
    )
    answers = dict(zip(asked, said))
    answers.update((index, hung_before(pids)) for index, pids in waiting.items())
    return [answers[index] for index in range(len(paths))]


def ask_devices(
    host: Host,
    function: Callable[[str], Any],
    devices: Sequence[Device],
    timeout: float,
    more: float,
) -> dict[str, Reply]:
    """Ask block devices something that may never return; by name what ``function(name)`` gave.

    All at once, and in turns of their owners: a tenant may have any number of disks whose server
    does not answer. ``timeout``: seconds for each. ``more``: seconds that all together may take
    beyond that, for those that wait for a turn. One that children of earlier runs still wait for
    is not asked once more without end.
    """
    held = _held_disks(host)
    waiting = {
        index: held[device.number] for index, device in enumerate(devices) if device.number in held
    }
    asked = [device for index, device in enumerate(devices) if index not in waiting]

    def asking(device: Device) -> Any:
        _rename(f"{_BLOCK_NAME}{device.number}")
        return function(device.name)

    budget = host.deadline.cap(timeout + more)
    owners = [device.owner for device in asked]
    replies = call_each(asking, asked, timeout, budget, host.deadline.clock, owners)
    found = {device.name: reply for device, reply in zip(asked, replies)}
    for index, pids in waiting.items():
        found[devices[index].name] = Reply(problem=still(pids), left=pids[0])
    return found


def probe_opened(host: Host, descriptor: int, timeout: float) -> Answer:
    """The same for what an O_PATH descriptor holds, whatever is at its path by now."""
    (answer,) = _probe(host, [descriptor], timeout)
    return answer


def _probe(
    host: Host, asked: Sequence[str | int], timeout: float, owners: Sequence[Hashable] = ()
) -> list[Answer]:
    """Probe paths, or O_PATH descriptors."""
    # Shared with the children, to know how far one came that never returns.
    with mmap.mmap(-1, max(1, len(asked))) as steps:

        def asking(index: int) -> dict[str, str] | None:
            try:
                steps[index] = 1
                with _reached(asked[index]) as found:
                    os.statvfs(found)
                    steps[index] = 2
                    list_held(found)
            except OSError as error:
                return {
                    "error": errno.errorcode.get(error.errno or 0, str(error.errno)),
                    "text": error.strerror or str(error),
                }
            return None

        deadline = host.deadline
        # Where each is someone's, there may be any number of slow ones.
        budget = deadline.share(host.command_timeout + timeout) if owners else deadline.remaining()
        replies = call_each(asking, range(len(asked)), timeout, budget, deadline.clock, owners)
        return [_judge(reply, _STEPS[step]) for reply, step in zip(replies, steps[: len(asked)])]


@contextlib.contextmanager
def _reached(asked: str | int) -> Iterator[int]:
    """An O_PATH descriptor of what is asked."""
    if isinstance(asked, str):
        with walked("/", asked) as found:
            yield found
    else:
        call_self(asked)
        yield asked


@contextlib.contextmanager
def walked(root: str, path: str, way: str = "") -> Iterator[int]:
    """An O_PATH descriptor of what is at a path below a root, no link of which is followed. Raises
    OSError.

    This child is called after what it holds all the way, since each look-up may hang; or, if that
    is given, by ``way`` until it holds what is asked for: see ``way_of``.
    """
    found = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if way:
            _rename(f"{_NAME}{way}")
        else:
            call_self(found)
        for name in filter(None, path.split("/")):
            # What is mounted there by now is found without a question to it.
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found)
            os.close(found)
            found = inner
            if not way:
                call_self(found)
        if way:
            call_self(found)
        yield found
    finally:
        os.close(found)


def call_self(held: int) -> None:
    """Name this child after the file system of a descriptor, which it is about to ask.

    Not after what it has yet to find: on the way there it may wait for another one, and then the
    number of what it is called after is free, and the next mount's.
    """
    with contextlib.suppress(OSError):
        _rename(f"{_NAME}{fdinfo.kept(held).device}")


def _rename(name: str) -> None:
    # Only a help for later runs.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def way_of(owner: str) -> str:
    """In place of a device, the paths that an owner has made, which lead to mounts: there may be
    any number of filesystems of its own on them. 60 bits, as many as there is room for: who
    chooses the name of a namespace must not find one with the digest of another's.
    """
    digest = hashlib.sha256(owner.encode()).digest()
    return f"{_WAY}{base64.urlsafe_b64encode(digest).decode()[:10]}"


def held_children(host: Host, most: int = MOST_HELD) -> dict[str, list[int]]:
    """By device, or ``way_of``, the children of earlier runs that still wait for it, though they
    were killed.

    Only those that are not to be asked now: for each at least ``most`` wait, and it was asked not
    long ago.
    """
    found = _killed_children(host, _NAME, most)
    many = {device: pids for device, pids in found.items() if not device.startswith(_WAY)}
    # In a child, as any look at open files. What it cannot tell does not replace a question.
    reply = host.bounded(lambda: _holding(host, many)) if many else Reply(value={})
    ways = {way: pids for way, pids in found.items() if way not in many}
    return {
        device: pids
        for device, pids in {**(reply.value or {}), **ways}.items()
        if len(pids) >= most and not _is_due(host, pids)
    }


def _held_disks(host: Host) -> dict[str, list[int]]:
    """The same for block devices. Their nodes are the host's own, so a child waits for nothing else
    on the way to one, and the kernel keeps a number for as long as open(2) of it waits.
    """
    many = _killed_children(host, _BLOCK_NAME, MOST_HELD)
    return {number: pids for number, pids in many.items() if not _is_due(host, pids)}


def _killed_children(host: Host, begin: str, most: int) -> dict[str, list[int]]:
    """By what follows in their names, processes of the host that were killed and are there still,
    where they are as many.
    """
    found: dict[str, list[int]] = {}
    for pid in filter(is_number, host.names("/proc")):
        name = host.read(f"/proc/{pid}/comm") or ""
        # What is of a pod, or may be, has the name that it likes.
        device = name[len(begin) :] if name.startswith(begin) else ""
        if device and _is_killed(host, pid) and _is_ours(host, pid):
            found.setdefault(device, []).append(int(pid))
    return {device: pids for device, pids in found.items() if len(pids) >= most}


def _holding(host: Host, children: dict[str, list[int]]) -> dict[str, list[int]]:
    """Of the children, those that have a file of the device open that they are called after.

    As long as one has, the kernel gives the number of the device to no other.
    """
    return {
        device: [pid for pid in pids if device in _devices(host, pid)]
        for device, pids in children.items()
    }


def _devices(host: Host, pid: int) -> set[str]:
    """Of the file systems of what a process has open."""
    found = set()
    folder = f"/proc/{pid}/fd"
    for name in host.names(folder):
        with contextlib.suppress(OSError):
            found.add(fdinfo.kept(host.path(f"{folder}/{name}")).device)
    return found


def _is_due(host: Host, pids: Sequence[int]) -> bool:
    """Whether a mount is asked again, though many wait: the last time was as long ago as the first
    was before that. So whatever their requests have come to, it is asked in the end, and the number
    of children grows with the logarithm of time only.
    """
    begun = [_begun(host, str(pid)) for pid in pids]
    # One that has just ended has had its answer.
    if None in begun:
        return True
    times = sorted(time for time in begun if time is not None)
    now = _begun(host, "self") or 0
    return now - times[-1] >= times[-1] - times[0]


def _begun(host: Host, pid: str) -> int | None:
    """When a process began, in ticks since boot; None if it has ended."""
    # The 22nd field, with the command in brackets as the second (proc_pid_stat(5)).
    fields = words((host.read(f"/proc/{pid}/stat") or "").rpartition(") ")[2])
    return int(fields[19]) if len(fields) > 19 else None


def hung_before(pids: Sequence[int]) -> Answer:
    """What a mount answers that so many wait for already."""
    return Answer(HUNG, text=still(pids), left=pids[0], asked=False)


def still(pids: Sequence[int]) -> str:
    """The sentence about them."""
    return (
        f"{len(pids)} processes of earlier runs of this check still wait for its answer (as pid "
        f"{pids[0]}), so it is not asked again"
    )


def _is_ours(host: Host, pid: str) -> bool:
    """A process is of no pod but this module's, and lives: one that has ended may be of any, and
    waits for nothing but its parent.
    """
    try:
        cgroup = host.of_living(pid, text_of)
    except Fleeting:
        return False
    return cgroup is not None and may_be_ours(host, pod_uid_of(cgroup))


def _is_killed(host: Host, pid: str) -> bool:
    """SIGKILL was sent to a process, and has not ended it."""
    masks = _PENDING.findall(host.read(f"/proc/{pid}/status") or "")
    return any(int(mask, 16) & _KILLED for mask in masks)


def list_held(descriptor: int) -> os.stat_result:
    """Read the first entry of what an O_PATH descriptor holds, if it is a folder; else open it.
    Raises OSError for links and all else that is no regular file.
    """
    # Opening a pipe or a device may wait or have effects: a watchdog that is opened and closed may
    # reset the machine (Documentation/watchdog/watchdog-api.rst). So what is held is checked, and
    # then opened through /proc, in case a tenant exchanges it in between.
    status = os.fstat(descriptor)
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    # This link leads to the opened file itself (proc_pid_fd(5)).
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with fdinfo.opened(f"/proc/self/fd/{descriptor}", flags) as found:
        # Asks the server; fstat may be answered from the kernel's cache.
        os.fstatvfs(found)
        if stat.S_ISDIR(status.st_mode):
            # scandir() duplicates the descriptor, and closes only its own.
            with os.scandir(found) as entries:
                next(entries, None)
    return status


def _judge(reply: Reply, step: str) -> Answer:
    said: dict[str, Any] | None = reply.value
    if reply.timed_out:
        return Answer(HUNG, step, text=reply.problem, left=reply.left)
    if reply.problem:
        return Answer(ERROR, step, text=reply.problem, left=reply.left)
    if said:
        return Answer(DEAD if said["error"] in DEAD_ERRORS else ERROR, step, **said)
    return Answer(OK)
