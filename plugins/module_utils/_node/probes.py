# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Whether mounted folders answer: what mountinfo, stat and mountpoint say of a dead one is that all
is well.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Reply,
    call_each,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

OK = "ok"
DEAD = "dead"
HUNG = "hung"
ERROR = "error"

# ENOTCONN: the server is gone. ECONNABORTED: it went while we were asking. ESTALE is said by a
# server that lives.
DEAD_ERRORS = ("ENOTCONN", "ECONNABORTED")
# A server whose backend is stuck still answers the first of them.
_STEPS = ("", "statvfs", "listing")


@dataclass(frozen=True)
class Answer:
    """What a folder answered.

    ``state``: ok; dead, its server is gone; hung, no answer in all the time it had; error, anything
    else, which says nothing of its server.
    ``step``: statvfs or listing, whichever failed or hung; empty if all is well or it was never
    asked. ``error``: name such as ENOTCONN.
    ``text``: why, as a sentence. ``left``: pid of the child that the kernel does not let go of, or
    0.
    """

    state: str
    step: str = ""
    error: str = ""
    text: str = ""
    left: int = 0


def probe_folders(host: Host, paths: Sequence[str], timeout: float) -> list[Answer]:
    """Ask folders, all in parallel, each for at most ``timeout`` seconds and all within the
    deadline; one answer per path, in order.

    What answers is the topmost mount there. A file that is mounted by itself (a subPath) is opened
    in place of the listing.
    """
    # How far each one came is to be known of a child that does not return.
    with mmap.mmap(-1, max(1, len(paths))) as steps:

        def asking(index: int) -> dict[str, str] | None:
            try:
                steps[index] = 1
                os.statvfs(host.path(paths[index]))
                steps[index] = 2
                _list(host.path(paths[index]))
            except OSError as error:
                return {
                    "error": errno.errorcode.get(error.errno or 0, str(error.errno)),
                    "text": error.strerror or str(error),
                }
            return None

        deadline = host.deadline
        replies = call_each(
            asking, range(len(paths)), timeout, deadline.remaining(), deadline.clock
        )
        return [_judge(reply, _STEPS[step]) for reply, step in zip(replies, steps[: len(paths)])]


def _list(path: str) -> None:
    """Read the first entry of a folder."""
    with opened_itself(path) as found:
        if stat.S_ISDIR(os.fstat(found).st_mode):
            # It has a descriptor of its own.
            with os.scandir(found) as entries:
                next(entries, None)


@contextlib.contextmanager
def opened_itself(path: str, folder: int | None = None) -> Iterator[int]:
    """A folder or a file to be read, no link and nothing else; ``folder``: the open one that it is
    in.

    To open a pipe or a device may wait, or do something: a watchdog that was opened and closed
    resets the machine. So what was looked at is what is opened, whoever exchanges it in between.
    """
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


def _judge(reply: Reply, step: str) -> Answer:
    said: dict[str, Any] | None = reply.value
    if reply.timed_out:
        return Answer(HUNG, step, text=reply.problem, left=reply.left)
    if reply.problem:
        return Answer(ERROR, step, text=reply.problem, left=reply.left)
    if said:
        return Answer(DEAD if said["error"] in DEAD_ERRORS else ERROR, step, **said)
    return Answer(OK)
