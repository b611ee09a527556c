# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose root is hostile answers what it likes, in place of the module that was
sent to it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.action import on_node
from ansible_collections.storage_ops.runbooks.plugins.action.on_node import as_run, without_orders

COLLECTION = Path(__file__).resolve().parents[4]
RUNTIME = yaml.safe_load((COLLECTION / "meta/runtime.yml").read_text(encoding="utf-8"))
REMOTE = [*RUNTIME["action_groups"]["node"], *RUNTIME["action_groups"]["ceph"]]


@pytest.mark.parametrize(
    ("said", "interpreter", "kept"),
    [
        (
            {"ansible_facts": {"p": "/python"}},
            {"p": "/python"},
            {"ansible_facts": {"p": "/python"}},
        ),
        (
            {"ansible_facts": {"p": "/evil", "x": 1}},
            {"p": "/python"},
            {"facts": {"x": 1}, "ansible_facts": {"p": "/python"}},
        ),
        ({"ansible_facts": ["x"], "add_host": {"host_name": "h"}, "add_group": "g"}, {}, {}),
        ({"ansible_stats": {"data": {"x": 1}}}, {}, {}),
    ],
)
def test_what_is_kept_of_a_result(
    said: dict[str, Any], interpreter: dict[str, Any], kept: dict[str, Any]
) -> None:
    """The Python that the controller has found on the host is its own word."""
    assert without_orders({"changed": False, **said}, interpreter) == {"changed": False, **kept}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_host_does_not_make_the_controller_read_for_hours(
    monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    monkeypatch.setattr(on_node, "MOST_TAKEN", 1000)

    class Action:
        """The part of an action that is wrapped."""

        said = ""

        def _low_level_execute_command(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            return {"rc": 0, "stdout": "", "stderr": "", stream: self.said}

        def _parse_returned_data(self, data: dict[str, Any]) -> dict[str, Any]:
            return data

    action = Action()
    on_node.escape(action)
    action.said = "x" * 1000
    assert action._low_level_execute_command()[stream] == action.said
    action.said += "x"
    refused = action._low_level_execute_command()
    said = json.loads(refused["stdout"])
    assert (refused["rc"], refused["stderr"], said["failed"]) == (1, "", True)
    assert "answered with 1001 characters, and 1000 are read" in said["msg"]
    assert refused["stdout_lines"] == [refused["stdout"].strip()]


def test_no_module_of_ours_was_skipped_that_has_run() -> None:
    """Else Ceph's host could pass for one that was not to be asked."""
    assert as_run({"changed": False, "skipped": True, "ceph": {}}) == {"changed": False, "ceph": {}}


def test_no_text_of_ours_is_obeyed_by_a_terminal() -> None:
    """Whoever is root on a host writes the labels and messages of the tasks after this one."""
    evil = "\x1b]52;c;eA==\x07\u202e"
    answer = {"pods": [{"namespace": evil, evil: [evil]}], "unit": evil, "count": 3, evil: True}
    kept = on_node.as_run({**answer, "ansible_facts": {"ansible_python": "x"}})
    assert json.dumps(kept, ensure_ascii=False).isprintable() and kept["count"] == 3
    assert "\\u001b" not in json.dumps(kept) and len(kept) == 5


def test_no_role_for_nodes_lets_a_result_in() -> None:
    """By a module that is not ours. raw reads no result, and the others work on the controller."""
    harmless = {"raw", "assert", "debug", "fail", "set_fact", "include_role", "import_role"}
    harmless |= {"include_tasks", "import_tasks", "import_playbook", "async_status"}
    roles = ("fuse_recovery", "iscsi_ready", "nfs_check", "pod_mounts", "residual_paths")
    files = [
        file for role in roles for file in (COLLECTION / "roles" / role / "tasks").glob("*.yml")
    ]
    files.append(COLLECTION / "playbooks/load_iscsi_modules.yml")
    used = {
        (file.name, name)
        for file in files
        for name in re.findall(r"(?m)^ +ansible\.builtin\.(\w+):", file.read_text(encoding="utf-8"))
    }
    assert {(file, name) for file, name in used if name not in harmless} == set()


@pytest.mark.parametrize("name", REMOTE)
def test_what_runs_elsewhere_goes_through_it(name: str) -> None:
    routes = RUNTIME["plugin_routing"]["modules"]
    assert routes[name]["action_plugin"] == "storage_ops.runbooks.on_node"
