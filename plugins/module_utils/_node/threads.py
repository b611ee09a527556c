# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What threads of a process have for themselves: open files, folders, a mount namespace
(unshare(2)).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Callable, TypeVar

from .._core.bounded import Deadline
from .._core.errors import StorageOpsError
from .._core.turns import in_turns
from .host import Fleeting, count, ends, is_admin, of_living

# Of one process, so many threads are looked at, which takes some seconds, and 60 MiB. Large
# programs have a few thousand.
MOST_THREADS = 500_000
# Of one process, so many tables that its threads have for themselves. Programs have one or two; and
# each is compared with all threads.
MOST_APART = 32
# How often they are listed while some of them end.
_LISTS = 20
# Types of kcmp(2): the table of open files; root and working directory.
FILES, FOLDERS = 2, 3
# The number of kcmp(2) (arch/*/entry/syscalls/*.tbl; include/uapi/asm-generic/unistd.h).
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}

_Found = TypeVar("_Found")
_Item = TypeVar("_Item")


def in_shares(
    several: Sequence[_Item],
    owner: Callable[[_Item], Hashable],
    size: Callable[[_Item], int],
    is_own: Callable[[_Item], bool],
    until: Deadline,
) -> Iterator[tuple[_Item, Deadline]]:
    """Each process, and until when its threads may be looked at.

    ``size``: how many it has. ``is_own``: whether it is of no pod.
    """
    # The node's own strictly first: no pod can add to those, and without them nothing is known.
    for item in in_turns([item for item in several if is_own(item)], owner, size=size):
        yield item, until
    # An owner may have any number of them.
    most = until.share(0)
    left: defaultdict[Hashable, float] = defaultdict(lambda: most)
    for item in in_turns([item for item in several if not is_own(item)], owner, size=size):
        began = until.clock()
        yield item, Deadline(until.cap(left[owner(item)]), until.clock)
        left[owner(item)] -= until.clock() - began


def of_others(base: str, look: Callable[[str], _Found]) -> list[_Found]:
    """What a function finds of each other thread of a process, by its folder in /proc.

    ``base``: the folder of one thread; that of the first is there for as long as any of them.
    Raises Fleeting if one after the other ends meanwhile, StorageOpsError if there are too many
    threads, and FileNotFoundError if that one, or all, have ended.
    """
    seen = {os.path.basename(os.path.realpath(base))}
    found = []
    for _list in range(_LISTS):
        # Those that have come meanwhile: each has what the thread has that made it.
        new = [task for task in os.listdir(f"{base}/task") if task not in seen]
        seen.update(new)
        if len(seen) > MOST_THREADS:
            raise StorageOpsError(f"it has more than {MOST_THREADS} threads")
        ended = False
        for task in new:
            thread = f"{base}/task/{task}"
            try:
                found.append(look(thread))
            except (FileNotFoundError, ProcessLookupError):
                ended = True
            except PermissionError:
                # A link in ns/ of a thread that has ended says so, too (see of_living).
                if not has_ended(thread):
                    raise
                ended = True
        if not ended:
            return found
    raise Fleeting("its threads end while they are read", code="evidence_unreadable")


def has_ended(thread: str) -> bool:
    """Whether a thread has ended, or ends."""
    try:
        return ends(thread)
    except (FileNotFoundError, ProcessLookupError):
        return True


def may_have_namespaces(base: str, until: Deadline | None = None) -> bool:
    """Whether threads of a process may have mount namespaces for themselves; so, too, if that is
    unknown.

    ``until``: as of ``of_living``.
    """
    # To make one, as to enter one, needs CAP_SYS_ADMIN, be it in a user namespace of its own. And
    # such a process makes none while it has several threads (unshare(2), setns(2)).
    try:
        return bool(of_living(base, is_admin, until=until))
    except (Fleeting, OSError):
        return True


def namespaces(base: str, known: str, deadline: Deadline) -> list[str]:
    """The folder of a thread of a process in each mount namespace but one.

    ``base``: the folder of its first thread. ``known``: text of the link ns/mnt of that one, or of
    one that lives if it has ended. Raises as of_others, and StorageOpsError when the deadline
    passes.
    """
    found: dict[str, str] = {}

    def look(thread: str) -> None:
        if not deadline.remaining():
            raise StorageOpsError("there was no time to look at all of its threads")
        found.setdefault(os.readlink(f"{thread}/ns/mnt"), thread)

    of_others(base, look)
    return [thread for link, thread in found.items() if link != known]


def each_apart(base: str, kind: int, function: Callable[[str], _Found]) -> list[_Found]:
    """What a function finds of a thread, and of one other for each table that threads of its
    process have for themselves.

    ``kind``: FILES or FOLDERS. Raises ProcessLookupError if one of these ends meanwhile, and as
    of_others and ``function``.
    """
    found = [function(base)]
    for thread in _apart(base, kind):
        try:
            found.append(function(thread))
            ended = has_ended(thread)
        except (FileNotFoundError, ProcessLookupError):
            ended = True
        # Others may have had the same one. Where that is not known, these are in the list as well.
        if ended and _can_compare():
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), thread)
    return found


def _apart(base: str, kind: int) -> list[str]:
    """The folders of a thread for each table that is not that of the thread at ``base``."""
    if count(base) < 2:
        return []
    if not _can_compare():
        return of_others(base, str)
    first = int(os.path.basename(os.path.realpath(base)))
    apart: dict[int, str] = {}

    def look(thread: str) -> None:
        task = int(os.path.basename(thread))
        if all(_differ(one, task, kind) for one in (first, *apart)):
            # What ends has none. As the first thread, it may be there for as long as its process.
            if has_ended(thread):
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), thread)
            apart[task] = thread
            if len(apart) > MOST_APART:
                raise StorageOpsError(
                    f"more than {MOST_APART} of its threads have open files of their own"
                )

    of_others(base, look)
    return list(apart.values())


@cache
def _can_compare() -> bool:
    """Whether this kernel has kcmp(2), and its number is known here."""
    with contextlib.suppress(OSError):
        return not _differ(os.getpid(), os.getpid(), FILES)
    return False


def _differ(one: int, other: int, kind: int) -> bool:
    """Whether two threads have different tables. Raises OSError."""
    number = _KCMP.get(os.uname().machine)
    # A program of 32 bits has other numbers.
    if number is None or sys.maxsize < 2**32:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    found = _library().syscall(number, one, other, kind, 0, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return bool(found)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
