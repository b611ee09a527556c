# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of all tests: how property tests run, and which of those run that CI takes in turn.

The oldest Python that a node may have loads this too, without the lab.
"""

from __future__ import annotations

import signal
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import settings

# Property tests are about what comes out, not about how busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# `make units` runs all examples with this machine's Python, and then the same tests with others.
settings.register_profile("again", deadline=None, max_examples=10)
# Of how many shares CI takes one at a time, by mark; of a test on real parts without any, one of
# ten. A number from 0 to 29 chooses a share of each kind.
SHARES = {"smoke": 1, "variation": 30, "": 10}
NUMBERS = 30


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
        "--turn",
        default="all",
        metavar="all|K",
        help=f"all tests, or those whose turn it is with the number K from 0 to {NUMBERS - 1}",
    )


def taken(nodeids: Iterable[str], mark: str, number: int) -> set[str]:
    """The tests of a mark in the share that a number chooses.

    The tests of a folder are dealt out by their names, so that its shares differ by one test at
    most: a test of one folder may take ten times as long as one of another.
    """
    folders: dict[str, list[str]] = {}
    for nodeid in nodeids:
        folders.setdefault(nodeid.partition("::")[0].rpartition("/")[0], []).append(nodeid)
    found = set()
    for folder, tests in folders.items():
        # Without the folder's offset, the same shares would get the remainder of every folder.
        first = (number - _spread(folder)) % SHARES[mark]
        found.update(sorted(tests, key=_spread)[first :: SHARES[mark]])
    return found


def _spread(name: str) -> int:
    """An order in which tests with similar names are far apart."""
    return zlib.crc32(name.encode())


def chosen(option: str) -> int | None:
    """The number whose shares run; None is all of them. Raises pytest.UsageError."""
    if option == "all":
        return None
    if option.isdigit() and int(option) < NUMBERS:
        return int(option)
    raise pytest.UsageError(f"--turn={option}: it is all, or a number from 0 to {NUMBERS - 1}")


def pytest_configure(config: pytest.Config) -> None:
    """Decide, and have no process for each test."""
    config.stash[NUMBER] = chosen(config.getoption("--turn"))
    # ansible-test runs each test in a process of its own. `make units` runs the same ones without,
    # so they need none, and thousands of them cost as much as all that the tests do.
    forked = config.pluginmanager.get_plugin("ansible_forked")
    if forked is not None:
        config.pluginmanager.unregister(forked)
        settings.load_profile("again")


def pytest_report_header(config: pytest.Config) -> str:
    """Say whose turn it is, and how to repeat it."""
    number = config.stash[NUMBER]
    return f"turn: {'all' if number is None else f'{number}; again: make faults SHARE={number}'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leave out the tests of other shares."""
    number = config.stash[NUMBER]
    if number is None:
        return
    marked: dict[str, list[str]] = {}
    for item in items:
        mark = next((mark for mark in SHARES if mark and item.get_closest_marker(mark)), "")
        marked.setdefault(mark, []).append(item.nodeid)
    runs = set().union(*(taken(names, mark, number) for mark, names in marked.items()))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in runs])
    items[:] = [item for item in items if item.nodeid in runs]


NUMBER: pytest.StashKey[int | None] = pytest.StashKey()
