# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A clock for what has a deadline: it goes on by what was done, however slow the machine is."""

from __future__ import annotations

import fcntl
import os
import time
from typing import Callable

# Who has read the clock so often has gone through its loop at least twice, and seen all that was
# there to be seen when the condition came true.
_READINGS = 8
# Seconds. Only so that a test that hangs ends.
_PATIENCE = 300.0


class Steps:
    """Stands still until a condition holds, then jumps by so many seconds; then the next one."""

    def __init__(self, *steps: tuple[Callable[[], bool], float]) -> None:
        self.now = 0.0
        self._steps = list(steps)
        self._held = 0
        self._end = time.monotonic() + _PATIENCE

    def __call__(self) -> float:
        if self._steps and self._steps[0][0]():
            self._held += 1
        if self._held > _READINGS:
            self.now += self._steps.pop(0)[1]
            self._held = 0
        if time.monotonic() > self._end:
            raise AssertionError(f"what the clock waits for at {self.now:g} s does not happen")
        return self.now


class Arrivals:
    """How often our children have come somewhere."""

    def __init__(self) -> None:
        self._file = os.memfd_create("arrivals")
        # So that no two of them write to the same place.
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)

    def note(self) -> None:
        """One more."""
        os.write(self._file, b".")

    @property
    def count(self) -> int:
        """So many until now."""
        return os.fstat(self._file).st_size

    def close(self) -> None:
        """Forget them."""
        os.close(self._file)


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does, however long a busy machine takes."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
