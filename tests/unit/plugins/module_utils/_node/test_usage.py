# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a device is free; real ones are on a node."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import usage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host


class Here(Host):
    """A node whose probes run in this process."""

    def __init__(self, problem: str = "") -> None:
        super().__init__(Deadline(60), 10)
        self.problem = problem

    def bounded(self, function: Callable[[], Any], timeout: float | None = None) -> Reply:
        return Reply(problem=self.problem) if self.problem else Reply(value=function())


@pytest.mark.parametrize(
    ("error", "codes"),
    [
        (0, []),
        (errno.EBUSY, ["in_use_held"]),
        # What the kernel says only after it has looked for a holder.
        (errno.EIO, []),
        (errno.ENXIO, []),
    ],
)
def test_a_device_that_is_claimed_is_in_use(
    error: int, codes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = []

    def opened(path: str, how: int) -> int:
        flags.append((path, how))
        if error:
            raise OSError(error, os.strerror(error))
        return os.dup(0)

    monkeypatch.setattr(usage.os, "open", opened)
    assert [reason.code for reason in usage.exclusive_open(Here(), "sdz")] == codes
    assert flags == [("/dev/sdz", os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK)]


def test_a_device_that_does_not_answer_is_not_free() -> None:
    (reason,) = usage.exclusive_open(Here("no answer in 10 s"), "sdz")
    assert reason.code == "evidence_unreadable" and "no answer in 10 s" in reason
