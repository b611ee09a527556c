# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node a module runs on: all access to files, commands and devices goes through a Host.

Tests give another one in its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import time
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Callable, TypeVar

from .._core.bounded import (
    MAX_WORKERS,
    CommandResult,
    Deadline,
    Reply,
    call,
    call_each,
    run_command,
)
from .._core.errors import StorageOpsError
from . import fdinfo, scsi

# Seconds that are kept back from the deadline for taking an action back.
UNDO_SECONDS = 10.0
# Seconds that are enough for one process among many. One of the usual kind takes milliseconds; but
# all of them share the processors, which on a busy node have other work, too.
ONE_SECONDS = 10.0
# Bytes of a file that is read as a whole. Others may lengthen some files of /proc.
MOST_BYTES = 2**24
# Bytes of a line that are kept. The path of a mount may have any length, since folders can be made
# and mounted on by relative paths (mount(2)).
MOST_LINE = 2**20
_CHUNK = 2**16
# Of a longer line, so many bytes of each later word are kept: any path that a system call takes
# (include/uapi/linux/limits.h, PATH_MAX).
MOST_WORD = 2**12
# And of all of them.
MOST_WORDS = 2**16
# ioctl_ns(2). Where an architecture numbers it differently, the kernel does not know this number.
_NS_GET_USERNS = 0xB701
# The kernel numbers the first user namespace so (PROC_USER_INIT_INO). Where there is none but this,
# /proc/PID/ns has no link to it.
FIRST_USERS = ("user:[4026531837]", "")
# The capabilities that a process has or may get by execve(2) (capabilities(7)), as bit masks.
_CAPABILITIES = re.compile(r"^Cap(?:Prm|Eff|Bnd):\s*([0-9a-f]+)$", re.MULTILINE | re.ASCII)
_CAP_SYS_ADMIN = 1 << 21
# Bytes. Options that are looked for come first; a Java program has a few thousand.
_MOST_COMMAND_LINE = 65_536
# How often a process is read whose threads end meanwhile. One file of a thread takes less than most
# threads live, and those that wait for a processor live longer. So at most one such process of each
# processor is looked at so often.
LOOKS = 100
# Seconds for that: with 100,000 threads, it takes milliseconds to come to the last of them. On a
# busy node one look may take that long, so some are made in any case.
SECONDS = 0.5
LEAST_LOOKS = 10
# Of the threads of a process, so many are listed for one look; and for its newest, so many from the
# end on, some of which may have ended.
_NEAR, _END = 64, 4
# Parts of all that follow each other so are spread over them, however many they are.
_STEP = 0.618
# The bit of a thread that ends, and has dropped its files or will (include/linux/sched.h).
_PF_EXITING = 4

_Found = TypeVar("_Found")


class Fleeting(StorageOpsError):
    """A process cannot be read, since one of its threads after the other ends."""


class Host:
    """Files, commands and SCSI disks of this node, all bounded by one deadline.

    ``command_timeout``: seconds for one command. ``root``: folder in place of ``/``, for captured
    trees in tests.
    """

    def __init__(self, deadline: Deadline, command_timeout: float, root: str = "/") -> None:
        self.deadline = deadline
        self.command_timeout = command_timeout
        self.name = os.uname().nodename
        self.kernel = os.uname().release
        self._root = root
        # "Ignored" is inherited through execve(2). Then the kernel reaps children by itself, and
        # waitpid(2) cannot tell how they ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def require_root(self) -> None:
        """Raise StorageOpsError unless this runs as root."""
        # Without root most evidence is unreadable, which must not look as if there were none.
        if os.geteuid() != 0:
            raise StorageOpsError(
                "this module reads other processes' mounts and asks "
                "disks: run it as root (become: true)",
                code="privileges_missing",
            )

    def path(self, path: str) -> str:
        """The real path, below ``root``."""
        return os.path.join(self._root, path.lstrip("/"))

    def read(self, path: str, errors: str = "replace", most: int = MOST_BYTES) -> str | None:
        """The text of a small file without its final newlines; None if it cannot be read.

        ``errors``: what becomes of bytes that are no UTF-8. With ``surrogateescape`` a path stays
        usable, but must not be shown. Raises StorageOpsError if it has more than ``most`` bytes.
        """
        # As bytes, which keeps carriage returns. They may be part of a path.
        chunks, left = [], most
        try:
            for chunk in _chunks(self.path(path), self.deadline):
                chunks.append(chunk)
                left -= len(chunk)
                if left < 0:
                    raise StorageOpsError(
                        f"{path} has more than {most} bytes", code="evidence_unreadable"
                    )
        except OSError:
            return None
        return b"".join(chunks).decode("utf-8", errors).rstrip("\n")

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a file of any length, as ``lines_of``."""
        return lines_of(self.path(path), self.deadline)

    def command_line(self, pid: str) -> list[str]:
        """The first words of a process's command line; none if it cannot be read.

        May block (fs/proc/base.c get_mm_cmdline): call it in a child.
        """
        # A process may set its command line to all of its memory (prctl(2), PR_SET_MM_MAP).

        def reading(base: str) -> bytes:
            with open(f"{base}/cmdline", "rb") as file:
                return file.read(_MOST_COMMAND_LINE)

        try:
            text = self.of_living(pid, reading) or b""
        except (OSError, Fleeting):
            return []
        return text.decode("utf-8", "replace").split("\0")

    def read_bytes(self, path: str) -> bytes | None:
        """The bytes of a small file; None if it cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty if it cannot be read."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            # Most folders of sysfs come and go with devices: one that has just gone is empty.
            return []

    def listing(self, path: str) -> list[str]:
        """The same, where what is not there is a proof: raises StorageOpsError if a folder that
        exists cannot be read.
        """
        try:
            return sorted(os.listdir(self.path(path)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageOpsError(
                f"{path} cannot be read: {error.strerror}", code="evidence_unreadable"
            ) from error

    def exists(self, path: str) -> bool:
        """Whether ``path`` exists; a dangling link counts."""
        # stat would follow the link, perhaps to a server that does not answer.
        return os.path.lexists(self.path(path))

    def resolve(self, path: str) -> str:
        """``path`` with all links resolved, as seen from ``root``."""
        real = os.path.realpath(self.path(path))
        root = os.path.realpath(self._root)
        return real if root == "/" else real[len(root) :]

    def link(self, path: str) -> str:
        """The text of the link at ``path``; empty if it is no link or cannot be read."""
        try:
            return os.readlink(self.path(path))
        # Links in /proc need ptrace rights (proc_pid_ns(5)); silence would hide their users.
        except PermissionError as error:
            raise StorageOpsError(
                f"{path} may not be read: run as root, with all of its capabilities",
                code="privileges_missing",
            ) from error
        except OSError:
            return ""

    def living(self, pid: str) -> str:
        """The folder of a process in /proc, as ``living``; its own if all threads have ended.

        The thread may end at any moment: what it does not show is no evidence (see of_living).
        """
        with contextlib.suppress(OSError):
            return f"/proc/{os.path.basename(living(self.path(f'/proc/{pid}')))}"
        return f"/proc/{pid}"

    def of_living(self, pid: str, function: Callable[[str], _Found]) -> _Found | None:
        """As ``of_living``, by the ID of the process.

        Raises StorageOpsError if a process that lives may not be read.
        """
        until = Deadline(self.deadline.cap(SECONDS), self.deadline.clock)
        try:
            return of_living(self.path(f"/proc/{pid}"), function, until=until)
        # Links in /proc need ptrace rights (proc_pid_ns(5)); silence would hide their users.
        except PermissionError as error:
            raise StorageOpsError(
                f"/proc/{pid} may not be read: run as root, with all of its capabilities",
                code="privileges_missing",
            ) from error

    def namespace(self, pid: str) -> str:
        """The mount namespace of a process, as the text of its link; empty if it has ended.

        Raises Fleeting, and StorageOpsError as of_living.
        """
        return self.of_living(pid, lambda base: os.readlink(f"{base}/ns/mnt")) or ""

    def may_mount(self, pid: str) -> bool:
        """Whether a process may have mounted something in a namespace of the node, or attached a
        device; so, too, if that is unknown.
        """
        # Both need CAP_SYS_ADMIN in the first user namespace (fs/namespace.c, may_mount;
        # drivers/block/nbd.c, nbd_ioctl and nbd_genl_connect). A process may have given it up
        # since, or have it from fusermount3, which is set-user-ID: it is in its bounding set then.
        # Containers do not have it there, unless they are privileged.

        try:
            # Each of a thread that lives, but not of the same: a process enters no other user
            # namespace while it has several threads (unshare(2), setns(2)), and never comes back
            # to the first one.
            return bool(
                self.of_living(pid, is_admin)
                and self.of_living(pid, lambda base: _user_namespace(base) in FIRST_USERS)
            )
        except (Fleeting, OSError):
            return True

    def owner(self, pid: str) -> str | None:
        """The user namespace that owns the mount namespace of a process, as the text of a link
        /proc/PID/ns/user; empty if the kernel does not tell it, None if the process has ended.
        """

        def asking(base: str) -> str:
            with fdinfo.opened(f"{base}/ns/mnt", os.O_RDONLY) as namespace:
                try:
                    found = fcntl.ioctl(namespace, _NS_GET_USERNS)
                except OSError:
                    return ""
                try:
                    return f"user:[{os.fstat(found).st_ino}]"
                finally:
                    os.close(found)

        try:
            return self.of_living(pid, asking)
        except (Fleeting, OSError):
            return ""

    def run(self, argv: Sequence[str], timeout: float | None = None) -> CommandResult:
        """Run a command for at most ``timeout`` seconds (default: ``command_timeout``), and not
        past the deadline.
        """
        return run_command(argv, self.deadline.cap(timeout or self.command_timeout))

    def for_one_of_many(self) -> tuple[float, float]:
        """Seconds for one of many processes, and for all of them.

        Of those that hang, a few must leave time for the others.
        """
        seconds = self.deadline.cap(self.command_timeout)
        return min(seconds, max(ONE_SECONDS, seconds / 3)), seconds

    def bounded(self, function: Callable[[], Any], timeout: float | None = None) -> Reply:
        """Run a function that may block, in a child. Its result must be representable as JSON."""
        return call(function, self.deadline.cap(timeout or self.command_timeout))

    def ask(
        self,
        questions: Sequence[tuple[str, bool]],
        timeout: float,
        owners: Sequence[Hashable],
    ) -> list[scsi.Answer]:
        """Ask disks in parallel; one answer for each question, in order.

        ``questions``: (kernel name of the disk, whether to send REPORT LUNS, too). ``timeout``:
        seconds for each command. ``owners``: of each, whose turns it uses up.
        """

        def asking(question: tuple[str, bool]) -> dict[str, Any]:
            name, report_luns = question
            return scsi.ask(self.path(f"/dev/{name}"), timeout, report_luns)

        # The kernel bounds each command by itself (sg_io_hdr.timeout), so any number of disks may
        # be asked at a time; the second is for the child.
        replies = call_each(
            asking,
            questions,
            timeout + 1,
            self.deadline.remaining(),
            owners=owners,
            workers=MAX_WORKERS,
        )
        return [
            scsi.Answer(problem=reply.problem, denied=reply.error == "PermissionError")
            if reply.problem
            else scsi.Answer.from_json(reply.value)
            for reply in replies
        ]

    def sleep(self, seconds: float) -> None:
        """Wait; raises StorageOpsError if the deadline would pass meanwhile."""
        # Said at once, not after the wait: the time that is left serves what comes next.
        if seconds > self.deadline.remaining():
            raise StorageOpsError(
                f"the deadline would pass while waiting for {seconds:g} s; nothing more was done. "
                "Raise 'deadline' or narrow the scope",
                code="deadline_passed",
            )
        time.sleep(seconds)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Poll ``condition`` for at most ``seconds``; returns whether it became true."""
        until = Deadline(self.deadline.cap(seconds), self.deadline.clock)
        pause = 0.02
        while not condition():
            if not until.remaining():
                return False
            time.sleep(min(pause, until.remaining()))
            # Most conditions come true at once, a few take seconds.
            pause = min(pause * 2, 0.5)
        return True


def living(base: str, look: int = 0) -> str:
    """The folder of a process in /proc, or of another thread of it if its first has ended; its own
    if all have.

    ``look``: how often the others have ended meanwhile.
    """
    # The first stays as a zombie, without open files, mounts and namespaces (kernel/exit.c do_exit,
    # exit_task_namespaces). Others are released when they end. /proc/TID is in no listing, and has
    # all that /proc/PID has (fs/proc/base.c proc_pid_lookup).
    proc, _slash, pid = base.rpartition("/")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        # Without the right to it, the function that reads more says so.
        with contextlib.suppress(PermissionError):
            os.readlink(f"{base}/ns/mnt")
        return base
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return f"{proc}/{_other(base, pid, look)}"
    return base


def _other(base: str, first: str, look: int) -> str:
    """The ID of another thread of a process; that of its first if there is none."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with fdinfo.opened(f"{base}/task", flags) as folder:
        many = _many(os.fstat(folder))
        # In turns: the newest, which lives longest where threads follow each other; the oldest,
        # which lives on where others do that beside it; and one of those between, most of which
        # live on where any of the others do not.
        place = (max(0, many + 2 - _END), 0, 2 + int(many * (look * _STEP % 1)))[look % 3]
        # A place is a number there, and "." and ".." have the first two (fs/proc/base.c
        # proc_task_readdir). So not all are listed, of which there may be 100,000. The kernel goes
        # by those before in a tenth of that time. If so many have ended, the oldest.
        for begin in (place, 0):
            os.lseek(folder, begin, os.SEEK_SET)
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, _NEAR) if entry.name != first]
            if names:
                return names[0 if look % 3 else -1]
    return first


def _many(task: os.stat_result) -> int:
    # The kernel counts threads as links of that folder (fs/proc/base.c proc_task_getattr).
    return task.st_nlink - 2


def count(base: str) -> int:
    """How many threads a process has; 0 if it has ended. ``base``: its folder in /proc."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _many(os.stat(f"{base}/task"))
    return 0


def of_living(
    base: str,
    function: Callable[[str], _Found],
    files: bool = False,
    until: Deadline | None = None,
) -> _Found | None:
    """What a function finds of a process, by the folder of a thread that lives; None if it ended.

    ``base``: its folder in /proc. ``function`` may raise FileNotFoundError or ProcessLookupError
    when the thread ends. ``files``: it looks at open files. ``until``: then there are no more than
    LEAST_LOOKS looks; by default, in SECONDS. Raises Fleeting, and PermissionError.
    """
    found, denied = None, 0
    until = until or Deadline(SECONDS)
    for look in range(LOOKS):
        if look >= LEAST_LOOKS and not until.remaining():
            break
        thread = base
        try:
            thread = living(base, look)
            found = function(thread)
            if not (files and ends(thread)):
                return found
        except (FileNotFoundError, ProcessLookupError):
            pass
        except PermissionError:
            # A link in ns/ of a thread that has ended says so (fs/proc/namespaces.c
            # proc_ns_readlink). Of one that lives, each look says so.
            denied += 1
            if denied == LOOKS:
                raise
        if not _has_threads(base):
            return found
    raise Fleeting("its threads end while it is read", code="evidence_unreadable")


def _user_namespace(base: str) -> str:
    """The text of a thread's link; empty if the kernel has no user namespaces."""
    try:
        return os.readlink(f"{base}/ns/user")
    except FileNotFoundError:
        # So says a thread that has ended, too, but not of this one.
        os.readlink(f"{base}/ns/mnt")
        return ""


def is_admin(base: str) -> bool:
    """Whether a thread has CAP_SYS_ADMIN, or may get it; so, too, if that is unknown."""
    with open(f"{base}/status", encoding="utf-8", errors="replace") as file:
        masks = _CAPABILITIES.findall(file.read())
    return not masks or any(int(mask, 16) & _CAP_SYS_ADMIN for mask in masks)


def ends(thread: str) -> bool:
    """Whether a thread ends, and so may look as if it had nothing open."""
    # It drops its files before its namespaces, and is released last (kernel/exit.c do_exit).
    return bool(int(_stat(thread)[6]) & _PF_EXITING)


def _stat(base: str) -> list[bytes]:
    """The fields behind the name, which may contain brackets (proc_pid_stat(5))."""
    with open(f"{base}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2].split(b" ")


def _has_threads(base: str) -> bool:
    """Whether a thread of a process lives."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        # By their count, which is of one moment: a list may lack those that come while others go.
        # Or its first, or the one that has become that (fs/exec.c de_thread).
        return count(base) > 1 or not ends(base)
    return False


def target_of(link: str) -> str:
    """The path to which a link of a process leads; the link's own if that is too long.

    Raises OSError, as FileNotFoundError for a file that was closed. It asks no server.
    """
    try:
        return os.readlink(link)
    except OSError as error:
        # A path of more than a page is in no link (fs/proc/base.c do_proc_readlink), and its file
        # is open all the same.
        if error.errno == errno.ENAMETOOLONG:
            return link
        raise


def lines_of(path: str, deadline: Deadline) -> Iterator[bytes]:
    """The lines of a file, without their line feeds; only one of them is kept at a time.

    Of a line with more than MOST_LINE bytes, so many are there, and then at most MOST_WORD of each
    word after them, MOST_WORDS in all. Raises OSError, and StorageOpsError when the deadline
    passes.
    """
    begun = words = b""
    for chunk in _chunks(path, deadline):
        first, *others = chunk.split(b"\n")
        room = MOST_LINE - len(begun)
        begun += first[:room]
        # One that goes on is cut again, and stays as it is.
        cut = (word[:MOST_WORD] for word in (words + first[room:]).split(b" "))
        words = b" ".join(cut)[:MOST_WORDS]
        if others:
            yield begun + words
            *whole, begun = others
            yield from whole
            words = b""
    if begun:
        yield begun + words


def _chunks(path: str, deadline: Deadline) -> Iterator[bytes]:
    """The bytes of a file, in pieces of at most _CHUNK."""
    with open(path, "rb", buffering=0) as file:
        number = 0
        chunk = file.read(_CHUNK)
        while chunk:
            yield chunk
            number += len(chunk)
            # Only what is long takes long.
            if number >= _CHUNK and not deadline.remaining():
                raise StorageOpsError(
                    f"the deadline passed while {path} was read: raise deadline, or find out whose "
                    "it is",
                    code="deadline_passed",
                )
            chunk = file.read(_CHUNK)
