# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose root is hostile answers what it likes, in place of the module that was
sent to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader

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
    said = {"skipped": True, "results": [{"skipped": True}]}
    assert as_run({"changed": False, **said, "ceph": {}}) == {"changed": False, "ceph": {}}


@pytest.mark.parametrize(
    ("role", "goes_on", "kept"),
    [
        ("residual_paths", False, {"failed": True, "unreachable": True, "msg": "lost"}),
        ("node_fence", True, {"unreachable": True, "msg": "lost"}),
        (None, False, {"unreachable": True, "msg": "lost"}),
    ],
)
def test_a_role_has_failed_on_a_host_that_is_lost(
    role: str | None, goes_on: bool, kept: dict[str, Any]
) -> None:
    """For one that is only unreachable Ansible runs no rescue, and may end the run. Whether it is,
    the connection says, and not the host.
    """

    def lost() -> dict[str, Any]:
        raise AnsibleConnectionFailure("lost")

    task = SimpleNamespace(_role=role, ignore_unreachable=goes_on)
    assert on_node.answered(task, lost) == kept
    assert on_node.answered(task, lambda: {"unreachable": True, "msg": "x"}) == {"msg": "x"}


def test_no_text_of_ours_is_obeyed_by_a_terminal() -> None:
    """Whoever is root on a host writes the labels and messages of the tasks after this one."""
    evil = "\x1b]52;c;eA==\x07\u202e"
    answer = {"pods": [{"namespace": evil, evil: [evil]}], "unit": evil, "count": 3, evil: True}
    kept = on_node.as_run({**answer, "ansible_facts": {"ansible_python": "x"}})
    assert json.dumps(kept, ensure_ascii=False).isprintable() and kept["count"] == 3
    assert "\\u001b" not in json.dumps(kept) and len(kept) == 5


# They ask no host anything.
HERE = {"assert", "debug", "fail", "group_by", "import_playbook", "import_role", "import_tasks"}
HERE |= {"include_role", "include_tasks", "meta", "set_fact", "set_stats"}
OURS = {"check_scope", "compliance_report", "conclude", "on_node", *REMOTE}
HARMLESS = {f"ansible.builtin.{name}" for name in HERE}
HARMLESS |= {f"storage_ops.runbooks.{name}" for name in OURS}
NODE_ROLES = ("fuse_recovery", "iscsi_ready", "nfs_check", "pod_mounts", "residual_paths")


def on_a_host(tasks: list[dict[str, Any]], host: bool) -> set[str]:
    """What these tasks run on a host that is not the controller; ``host``: theirs is not."""
    found: set[str] = set()
    for task in tasks:
        there = task.get("delegate_to", "" if host else "localhost") != "localhost"
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            found |= on_a_host(task.get(part, []), there)
        actions = {key for key in task if "." in key or key in {"action", "local_action"}}
        assert actions or {"block", "hosts"} & set(task), task
        found |= actions if there else set()
    return found


def all_tasks() -> dict[str, set[str]]:
    """By file, what roles and playbooks run on hosts."""
    found = {}
    for file in COLLECTION.glob("roles/*/tasks/*.yml"):
        role = file.parents[1].name
        tasks = DataLoader().load_from_file(str(file))
        found[f"{role}/{file.name}"] = on_a_host(tasks, role in NODE_ROLES)
    for file in COLLECTION.glob("playbooks/**/*.yml"):
        loaded = DataLoader().load_from_file(str(file))
        for play in loaded if isinstance(loaded, list) else []:
            there = play.get("hosts") != "localhost"
            # Else Ansible runs its own module there first.
            assert "hosts" not in play or play["gather_facts"] is False, file
            name = str(file.relative_to(COLLECTION))
            found[name] = found.get(name, set()) | on_a_host([play], there)
    return found


def test_nothing_runs_on_a_host_but_through_it() -> None:
    """What a host answers, and what ssh says of it, is data: also of what reads no result."""
    found = all_tasks()
    assert "storage_ops.runbooks.on_node" in found["playbooks/tasks/reach.yml"]
    assert "storage_ops.runbooks.on_node" in found["attachment_repair/restart_on_host.yml"]
    assert {file: others for file, ran in found.items() if (others := ran - HARMLESS)} == {}


@pytest.mark.parametrize("name", REMOTE)
def test_what_runs_elsewhere_goes_through_it(name: str) -> None:
    routes = RUNTIME["plugin_routing"]["modules"]
    assert routes[name]["action_plugin"] == "storage_ops.runbooks.on_node"
