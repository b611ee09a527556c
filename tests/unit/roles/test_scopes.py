# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A variable of a play, a block or a task is known in it, and in none that comes after: only facts
and results stay. Ansible finds it when it gets there, after the node was changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
# Not the name of an attribute, nor a text.
NAME = re.compile(r"(?<![\w.'\"])__[a-z]\w*")


class Loader(yaml.SafeLoader):
    """Also of what Ansible must not fill in."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def load(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), Loader)


def stay(part: Any) -> Iterator[str]:
    """Names of facts and results; a loop's variable is not used outside of it."""
    if isinstance(part, list):
        for one in part:
            yield from stay(one)
    elif isinstance(part, dict):
        yield from part.get("ansible.builtin.set_fact", {})
        yield from (part[key] for key in ("register", "loop_var") if key in part)
        for one in part.values():
            yield from stay(one)


def unknown(part: Any, known: set[str]) -> Iterator[str]:
    """Our names that are used where they are not known."""
    if isinstance(part, str):
        yield from set(NAME.findall(part)) - known
    elif isinstance(part, list):
        for one in part:
            yield from unknown(one, known)
    elif isinstance(part, dict):
        for one in part.values():
            yield from unknown(one, known | set(part.get("vars", {})))


PLAYBOOKS = sorted(ROOT.glob("playbooks/*.yml"))
# Playbooks import each other, and include files with tasks.
STAY = {name for path in ROOT.glob("playbooks/**/*.yml") for name in stay(load(path))}


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_what_a_play_uses_is_known_there(path: Path) -> None:
    for play in load(path):
        files = [load(path.parent / name) for name in play.get("vars_files", [])]
        assert set(unknown(play, STAY.union(*files))) == set(), play["name"]


def test_this_test_finds_names() -> None:
    tasks = [
        {
            "name": "Begin",
            "vars": {"__one": "{{ target }}"},
            "ansible.builtin.debug": {"var": "__one"},
        },
        {"name": "Go on", "when": "__one is defined and 'x.__two' == hostvars.here.__three"},
    ]
    assert set(unknown(tasks, set())) == {"__one"}
