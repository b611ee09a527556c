# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a device is free; real ones are on a node."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import usage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import Device


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
    real = os.open

    def opened(path: str, how: int, *more: int, **where: int) -> int:
        # Others open files meanwhile, as pytest does when it removes old folders.
        if path != "/dev/sdz":
            return real(path, how, *more, **where)
        assert how == os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK
        if error:
            raise OSError(error, os.strerror(error))
        return os.dup(0)

    monkeypatch.setattr(usage.os, "open", opened)
    found = usage.claimed(Host(Deadline(60), 10), [Device("sdz", "65:144", "")])
    assert [reason.code for reason in found["sdz"]] == codes


def test_a_device_that_does_not_answer_is_not_free() -> None:
    (reason,) = usage.claimed(Host(Deadline(0), 10), [Device("sdz", "65:144", "")])["sdz"]
    assert reason == "whether sdz is free is unknown: no answer before the deadline"
    assert reason.code == "evidence_unreadable"
