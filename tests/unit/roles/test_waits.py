# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""In AWX a job shows the names of its tasks and nothing else while one runs: those that may be
silent for long tell for how long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
OURS = "storage_ops.runbooks."
# What watches, or waits, for more than ten seconds with its defaults.
LONG = {"multipath_residual", "volumeattachment_repair", "workload_reattach", "node_storage_info"}
NAMED = re.compile(r"\(seconds\) \{\{[^{}]*\}\}$")


class Loader(yaml.SafeLoader):
    """Also of what Ansible must not fill in."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def tasks_of(several: Any) -> Iterator[dict[str, Any]]:
    """All tasks, also those in blocks and plays."""
    for one in several or []:
        for part in ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks"):
            yield from tasks_of(one.get(part))
        if "block" not in one and "hosts" not in one:
            yield one


def waits(task: dict[str, Any]) -> bool:
    """Whether it may be silent for more than ten seconds when nothing is wrong. What is tried again
    (`until`) is not: each attempt is shown.
    """
    if task.get("check_mode") is True or task.get("poll") == 0:
        return False
    modules = {name.removeprefix(OURS) for name in task if name.startswith(OURS)}
    options = [task[name] or {} for name in task if name.startswith(OURS)]
    return (
        bool(modules & LONG)
        or ("volume_failover" in modules and options[0]["state"] == "attached")
        or any("observation_seconds" in option for option in options)
    )


FILES = sorted(ROOT.glob("roles/*/tasks/*.yml")) + sorted(ROOT.glob("playbooks/*.yml"))
# They wait for a few seconds, or for a fence that is seconds away.
SHORT = {
    "Wait until the watches of the fenced clients are gone",
    "Read from which addresses other nodes reach Ceph",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_may_be_silent_tells_for_how_long(path: Path) -> None:
    found = [task for task in tasks_of(yaml.load(path.read_text("utf-8"), Loader)) if waits(task)]
    wrong = [task["name"] for task in found if not NAMED.search(task["name"])]
    assert set(wrong) <= SHORT


def test_there_are_such_tasks() -> None:
    count = 0
    for path in FILES:
        count += sum(map(waits, tasks_of(yaml.load(path.read_text("utf-8"), Loader))))
    assert count >= 8
