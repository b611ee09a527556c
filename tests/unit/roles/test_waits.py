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
# What watches, waits, or reads a whole cluster, for more than ten seconds with its defaults.
LONG = {
    "cluster_storage_info",
    "container_restart",
    "fuse_remount",
    "multipath_residual",
    "network_fence_prepare",
    "node_storage_info",
    "volume_user_info",
    "volumeattachment_repair",
    "workload_reattach",
}
# What does so in these states alone.
LONG_STATES = {
    "node_fence": {"fenced"},
    "node_release": {"unfenced"},
    "volume_failover": {"attached", "detached"},
}
SECONDS = 10
NAMED = re.compile(r"\(seconds\) (?:\{\{[^{}]*\}\}|\d+)$")


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
    return any(_waits(name.removeprefix(OURS), task[name] or {}, task) for name in task)


def _waits(module: str, options: Any, task: dict[str, Any]) -> bool:
    if module in LONG:
        return True
    if module == "awx_object":
        return options["arguments"].get("wait") is True
    if module in LONG_STATES:
        return options["state"] in LONG_STATES[module]
    if module == "rbd_watcher_info":
        return "gone" in options or _is_long(options.get("observation_seconds", 0))
    if module in ("ansible.builtin.pause", "community.general.ipmi_power"):
        return _is_long(options.get("seconds", options.get("timeout", 0)))
    # A command that is given time. A request by HTTP is answered at once, or the machine is off.
    return module == "on_node" and "timeout" in task and options["module"] != "ansible.builtin.uri"


def _is_long(seconds: float | str) -> bool:
    """Of what is computed when it runs, only that may be as long as it likes."""
    return isinstance(seconds, str) or seconds > SECONDS


FOLDERS = ("roles/*/tasks", "playbooks", "playbooks/tasks")
FILES = [path for folder in FOLDERS for path in sorted(ROOT.glob(f"{folder}/*.yml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_may_be_silent_tells_for_how_long(path: Path) -> None:
    found = [task for task in tasks_of(yaml.load(path.read_text("utf-8"), Loader)) if waits(task)]
    wrong = [task["name"] for task in found if not NAMED.search(task["name"])]
    assert wrong == []


def test_there_are_such_tasks() -> None:
    count = 0
    for path in FILES:
        count += sum(map(waits, tasks_of(yaml.load(path.read_text("utf-8"), Loader))))
    assert count >= 23
