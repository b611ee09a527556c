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
import stat
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.bounded import Reply, call_each
from . import fdinfo
from .host import Host

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
    host: Host, paths: Sequence[str], timeout: float, owners: Sequence[Hashable] = ()
) -> list[Answer]:
    """Probe folders in parallel; one answer for each path, in order.

    ``timeout``: seconds for each, within the deadline. ``owners``: whose each is, as for
    ``call_each``. The topmost mount of a path answers. A file that is mounted by itself (a subPath)
    is opened instead of listed.
    """
    return _probe(host, [host.path(path) for path in paths], timeout, owners)


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
