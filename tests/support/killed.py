# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs that are killed one after the other, until one comes to its end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cluster import Played

CALLBACKS = Path(__file__).parent / "callbacks"
# More steps or writes than any run has.
MANY = 20


def until_one_ends(run: Callable[[list[str]], str], check: Callable[[], None]) -> list[str]:
    """What each run was killed at. ``run`` is told that of the runs before, and says nothing if it
    came to its end; ``check``: what holds after each.
    """
    killed: list[str] = []
    for _number in range(MANY):
        at = run(killed)
        check()
        if not at:
            return killed
        killed.append(at)
    raise AssertionError(f"no run came to its end: {killed}")


def each_step(start: Callable[[], Played], check: Callable[[], None], among: str = "") -> list[str]:
    """Kill a run after its first change, the next one after the first by a task of another name,
    and so on; the names of the tasks. ``among``: only tasks whose names begin so.
    """

    def run(names: list[str]) -> str:
        patch.setenv("SPARED", json.dumps(names))
        played = start()
        assert played.rc in (0, -signal.SIGKILL), played.text
        said = played.text.rpartition("killed after: ")[2].partition("\n")[0]
        return said if played.rc else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(CALLBACKS))
        patch.setenv("ANSIBLE_CALLBACKS_ENABLED", "kill_after")
        patch.setenv("AMONG", among)
        return until_one_ends(run, check)
