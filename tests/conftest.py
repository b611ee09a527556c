# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of all tests: how property tests run, and which of the variations run.

The oldest Python that a node may have loads this too, without the lab.
"""

from __future__ import annotations

import signal
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Property tests are about what comes out, not about how busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# A variation belongs to one share for good; the commit's hash chooses the share.
SHARES = 20


@pytest.fixture
def heard() -> Iterator[None]:
    """Signals as at a terminal: nohup, or a job that a shell runs in the background, ignores some
    of them.
    """
    usual = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that `make faults` gives."""
    parser.addoption(
        "--variations",
        default="all",
        metavar="all|commit|K",
        help="of the tests marked as variations: all, the share that the commit chooses, or share "
        f"K of 0 to {SHARES - 1}",
    )


def share_of(nodeid: str) -> int:
    """The share that a test belongs to; it depends on nothing but its name."""
    return zlib.crc32(nodeid.encode()) % SHARES


def chosen(option: str, commit: str) -> int | None:
    """The share to run; None is all of them. Raises pytest.UsageError."""
    if option == "all":
        return None
    if option == "commit":
        return int(commit, 16) % SHARES
    if option.isdigit() and int(option) < SHARES:
        return int(option)
    raise pytest.UsageError(
        f"--variations={option}: it is all, commit, or a number from 0 to {SHARES - 1}"
    )


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    root = Path(__file__).resolve().parents[1]
    answer = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    return answer.stdout.strip() or "0"


def pytest_configure(config: pytest.Config) -> None:
    """Decide once, and tell it to the workers of pytest-xdist by the same option."""
    option = config.getoption("--variations")
    config.stash[SHARE] = chosen(option, _commit() if option == "commit" else "0")


def pytest_report_header(config: pytest.Config) -> str:
    """Say which share runs, and how to repeat it."""
    share = config.stash[SHARE]
    return (
        "variations: all"
        if share is None
        else f"variations: share {share} of {SHARES}; again: make faults SHARE={share}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leave out the variations of other shares."""
    share = config.stash[SHARE]
    if share is None:
        return
    left = [
        item
        for item in items
        if item.get_closest_marker("variation") and share_of(item.nodeid) != share
    ]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


SHARE: pytest.StashKey[int | None] = pytest.StashKey()
