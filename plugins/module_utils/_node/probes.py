# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether mounted folders answer.

mountinfo and mountpoint(1) show a dead mount like a healthy one, so each folder is read.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.bounded import Reply, call_each
from . import fdinfo
from .control_groups import pod_uid_of, text_of
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
# How many children may wait for one device, with those of earlier runs. Each keeps the memory of
# its run for as long as the mount hangs, and a node may be audited every night.
MOST_HELD = 8
# SIGKILL in a mask of pending signals (proc_pid_status(5)).
_PENDING = re.compile(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", re.MULTILINE)
_KILLED = 1 << 8


@dataclass(frozen=True)
class Answer:
    """What a folder answered.

    ``state``: OK; DEAD, its server has ended; HUNG, no answer in time; ERROR, anything else, which
    says nothing about its server. ``step``: statvfs or listing, whichever failed or hung; else
    empty. ``error``: a name such as ENOTCONN. ``text``: why, as a sentence. ``left``: ID of the
    child that is in D state and could not be ended, or 0.
    """

    state: str
    step: str = ""
    error: str = ""
    text: str = ""
    left: int = 0

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
) -> list[Answer]:
    """Probe folders in parallel; one answer for each path, in order.

    ``timeout``: seconds for each, within the deadline. ``owners``: whose each is, as for
    ``call_each``. ``devices``: of the superblock of each, as major:minor, where one that children
    of earlier runs still wait for is not asked once more without end; it hangs. The topmost mount
    of a path answers. A file that is mounted by itself (a subPath) is opened instead of listed.
    """
    held = held_children(host) if devices else {}
    waiting = {
        index: held[device] for index, device in enumerate(devices) if is_enough(held.get(device))
    }
    asked = [index for index in range(len(paths)) if index not in waiting]
    said = _probe(
        host,
        [host.path(paths[index]) for index in asked],
        timeout,
        [owners[index] for index in asked] if owners else (),
        [devices[index] for index in asked] if devices else (),
    )
    answers = dict(zip(asked, said))
    answers.update((index, hung_before(pids)) for index, pids in waiting.items())
    return [answers[index] for index in range(len(paths))]


def probe_opened(host: Host, descriptor: int, timeout: float) -> Answer:
    """The same for what an O_PATH descriptor holds, whatever is at its path by now."""
    (answer,) = _probe(host, [descriptor], timeout)
    return answer


def _probe(
    host: Host,
    asked: Sequence[str | int],
    timeout: float,
    owners: Sequence[Hashable] = (),
    devices: Sequence[str] = (),
) -> list[Answer]:
    """Probe paths, or O_PATH descriptors."""
    # Shared with the children, to know how far one came that never returns.
    with mmap.mmap(-1, max(1, len(asked))) as steps:

        def asking(index: int) -> dict[str, str] | None:
            if devices:
                call_self(devices[index])
            try:
                steps[index] = 1
                os.statvfs(asked[index])
                steps[index] = 2
                _list(asked[index])
            except OSError as error:
                return {
                    "error": errno.errorcode.get(error.errno or 0, str(error.errno)),
                    "text": error.strerror or str(error),
                }
            return None

        deadline = host.deadline
        replies = call_each(
            asking, range(len(asked)), timeout, deadline.remaining(), deadline.clock, owners
        )
        return [_judge(reply, _STEPS[step]) for reply, step in zip(replies, steps[: len(asked)])]


def call_self(device: str) -> None:
    """Name this child after what it is about to ask."""
    # Only a help for later runs.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(f"{_NAME}{device}")


def held_children(host: Host) -> dict[str, list[int]]:
    """By device, the children of earlier runs that still wait for it, though they were killed."""
    found: dict[str, list[int]] = {}
    for pid in filter(str.isdigit, host.names("/proc")):
        name = host.read(f"/proc/{pid}/comm") or ""
        # The kernel gives a device's number to no other as long as one waits for it. What is of a
        # pod, or may be, has the name that it likes.
        device = name[len(_NAME) :] if name.startswith(_NAME) else ""
        if device and _is_killed(host, pid) and _is_ours(host, pid):
            found.setdefault(device, []).append(int(pid))
    return found


def hung_before(pids: Sequence[int]) -> Answer:
    """What a mount answers that so many wait for already."""
    return Answer(HUNG, text=still(pids), left=pids[0])


def is_enough(pids: Sequence[int] | None) -> bool:
    """So many wait that no other is to ask the same."""
    return len(pids or ()) >= MOST_HELD


def still(pids: Sequence[int]) -> str:
    """The sentence about them."""
    return (
        f"{len(pids)} processes of earlier runs of this check still wait for its answer (as pid "
        f"{pids[0]}), so it is not asked again"
    )


def _is_ours(host: Host, pid: str) -> bool:
    """A process is of no pod, and lives: one that has ended may be of any, and waits for nothing
    but its parent.
    """
    try:
        cgroup = host.of_living(pid, text_of)
    except Fleeting:
        return False
    return cgroup is not None and not pod_uid_of(cgroup)


def _is_killed(host: Host, pid: str) -> bool:
    """SIGKILL was sent to a process, and has not ended it."""
    masks = _PENDING.findall(host.read(f"/proc/{pid}/status") or "")
    return any(int(mask, 16) & _KILLED for mask in masks)


def _list(asked: str | int) -> None:
    """Read the first entry of a folder."""
    with opened_itself(asked) if isinstance(asked, str) else _reopened(asked) as found:
        if stat.S_ISDIR(os.fstat(found).st_mode):
            # scandir() duplicates the descriptor, and closes only its own.
            with os.scandir(found) as entries:
                next(entries, None)


@contextlib.contextmanager
def opened_itself(path: str, folder: int | None = None) -> Iterator[int]:
    """A descriptor of a folder or regular file; raises OSError for links and all else.

    ``folder``: descriptor of the folder that a relative ``path`` is in.
    """
    # Opening a pipe or a device may wait or have effects: a watchdog that is opened and closed may
    # reset the machine (Documentation/watchdog/watchdog-api.rst). So the file is found with O_PATH,
    # checked, and then opened through /proc, in case a tenant exchanges it in between.
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | flags, dir_fd=folder)
    except NotADirectoryError:
        found = os.open(path, os.O_PATH | flags, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise
            opened = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(found)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _reopened(descriptor: int) -> Iterator[int]:
    """The same of what an O_PATH descriptor holds."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    # This link leads to the opened file itself (proc_pid_fd(5)).
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with fdinfo.opened(f"/proc/self/fd/{descriptor}", flags) as found:
        yield found


def _judge(reply: Reply, step: str) -> Answer:
    said: dict[str, Any] | None = reply.value
    if reply.timed_out:
        return Answer(HUNG, step, text=reply.problem, left=reply.left)
    if reply.problem:
        return Answer(ERROR, step, text=reply.problem, left=reply.left)
    if said:
        return Answer(DEAD if said["error"] in DEAD_ERRORS else ERROR, step, **said)
    return Answer(OK)
