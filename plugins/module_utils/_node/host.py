# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The node a module runs on: every file, command and device it touches goes through here, so that
tests can hand in another.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any, Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
    Reply,
    call,
    call_each,
    run_command,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import scsi

# Kept back from the deadline for taking an action back (seconds).
UNDO_SECONDS = 10.0


class Host:
    """Files, commands and SCSI disks of this node, all of it paid from one deadline.

    ``root``: folder that stands for ``/`` (captured trees in tests). ``command_timeout``: seconds
    for one command.
    """

    def __init__(self, deadline: Deadline, command_timeout: float, root: str = "/") -> None:
        self.deadline = deadline
        self.command_timeout = command_timeout
        self.name = os.uname().nodename
        self.kernel = os.uname().release
        self._root = root
        # A caller that ignores it has inherited that to us, and the fate of a child could not be
        # learnt.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def require_root(self) -> None:
        """Without root half of the evidence is unreadable, and what is unreadable must not look
        like nothing.
        """
        if os.geteuid() != 0:
            raise StorageOpsError(
                "this module reads other processes' mounts and asks "
                "disks: run it as root (become: true)",
                code="privileges_missing",
            )

    def path(self, path: str) -> str:
        """Where ``path`` really is."""
        return os.path.join(self._root, path.lstrip("/"))

    def read(self, path: str, errors: str = "replace") -> str | None:
        """The text of a small file without its final newline; None if it is not there or cannot be
        read.

        ``errors``: what becomes of bytes that are no text. With ``surrogateescape`` paths stay what
        they are, but may not be shown.
        """
        try:
            with open(self.path(path), encoding="utf-8", errors=errors, newline="") as file:
                return file.read().rstrip("\n")
        except OSError:
            return None

    def read_bytes(self, path: str) -> bytes | None:
        """All of a small file; None if it is not there or cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if it is not there."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether ``path`` is there; a dangling link counts."""
        return os.path.lexists(self.path(path))

    def resolve(self, path: str) -> str:
        """``path`` with all links followed, as seen from this node's root."""
        real = os.path.realpath(self.path(path))
        root = os.path.realpath(self._root)
        return real if root == "/" else real[len(root) :]

    def link(self, path: str) -> str:
        """What the link at ``path`` says; empty if it is none."""
        try:
            return os.readlink(self.path(path))
        except PermissionError as error:
            raise StorageOpsError(
                f"{path} may not be read: run as root, with all of its capabilities",
                code="privileges_missing",
            ) from error
        except OSError:
            return ""

    def run(self, argv: Sequence[str], timeout: float | None = None) -> CommandResult:
        """Run a command, bounded by ``timeout`` (default: ``command_timeout``) and by
        the deadline.
        """
        return run_command(argv, self.deadline.cap(timeout or self.command_timeout))

    def bounded(self, function: Callable[[], Any], timeout: float | None = None) -> Reply:
        """Run something that may block in a child; its result must be JSON-able."""
        return call(function, self.deadline.cap(timeout or self.command_timeout))

    def ask(self, questions: Sequence[tuple[str, bool]], timeout: float) -> list[scsi.Answer]:
        """Ask disks, all in parallel: (device name such as ``sda``, ask for REPORT LUNS too) ->
        answer, in order.
        """

        def asking(question: tuple[str, bool]) -> dict[str, Any]:
            name, report_luns = question
            return scsi.ask(self.path(f"/dev/{name}"), timeout, report_luns)

        # The kernel's timeout holds for each command, and a conversation has a few.
        replies = call_each(asking, questions, timeout + 1, self.deadline.remaining())
        return [
            scsi.Answer(problem=reply.problem, denied=reply.error == "PermissionError")
            if reply.problem
            else scsi.Answer.from_json(reply.value)
            for reply in replies
        ]

    def sleep(self, seconds: float) -> None:
        """Wait, but not past the deadline."""
        if seconds > self.deadline.remaining():
            raise StorageOpsError(
                f"the deadline would pass while waiting for {seconds:g} s; nothing more was done. "
                "Raise 'deadline' or narrow the scope",
                code="deadline_passed",
            )
        time.sleep(seconds)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Poll ``condition`` for at most ``seconds``; whether it came true."""
        until = Deadline(self.deadline.cap(seconds), self.deadline.clock)
        pause = 0.02
        while not condition():
            if not until.remaining():
                return False
            time.sleep(min(pause, until.remaining()))
            pause = min(pause * 2, 0.5)
        return True
