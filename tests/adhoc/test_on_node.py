# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose root is hostile answers what it likes, in place of the module that was sent to it,
with both ansible-cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.common import patient

ANSWER = {
    "changed": False,
    "msg": "nothing to do",
    "findings": [],
    "actions": [],
    "ansible_facts": {
        "node_release_old_machine_confirmed_off": True,
        "discovered_interpreter_python": "/evil",
    },
    "ansible_stats": {
        "data": {"ansible_python_interpreter": "/evil"},
        "per_host": False,
        "aggregate": False,
    },
}


# What the next task of the controller sees; role defaults count less than facts.
SEEN = {
    "facts": "{{ node_release_old_machine_confirmed_off | default('unset') }}",
    "all": "{{ ansible_facts }}",
    "result": "{{ answer.msg | default('') }}",
    # By which the report knows that an audit ended on its way.
    "ended": "{{ answer.exception is defined }}",
}


def answered(
    programs: Path,
    folder: Path,
    task: dict[str, Any],
    hostile: bool = True,
    answer: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
    """What the controller keeps of an answer: seen by the next task, and all that was printed."""
    evil = folder / "python"
    evil.write_text(
        f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer or ANSWER)}\nEND\n", encoding="utf-8"
    )
    evil.chmod(0o755)
    interpreter = str(evil) if hostile else sys.executable
    seen = folder / "seen.json"
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_connection": "local"},
        "tasks": [
            {
                **task,
                "delegate_to": "node",
                "register": "answer",
                "vars": {"ansible_connection": "local", "ansible_python_interpreter": interpreter},
            },
            {
                "ansible.builtin.copy": {"dest": str(seen), "content": "{{ SEEN | to_json }}"},
                "vars": {"SEEN": SEEN, "ansible_python_interpreter": sys.executable},
            },
        ],
    }
    playbook = folder / "play.yml"
    playbook.write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    environment = {
        **os.environ,
        "ANSIBLE_SHOW_CUSTOM_STATS": "1",
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_HOME": str(folder / "home"),
    }
    command = [
        str(programs / "ansible-playbook"),
        "-i",
        "localhost,node,",
        str(playbook),
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(seen.read_text(encoding="utf-8")), done.stdout + done.stderr


def test_the_defaults_of_a_module_are_its_own(programs: Path, tmp_path: Path) -> None:
    """A role gives most options so; the module itself runs, and refuses this one."""
    task = {"storage_ops.runbooks.nfs_mount_check": {"shares": []}, "ignore_errors": True}
    defaults = {"module_defaults": {"storage_ops.runbooks.nfs_mount_check": {"no_such_option": 1}}}
    _seen, printed = answered(programs, tmp_path, {**task, **defaults}, hostile=False)
    assert "no_such_option" in printed


def through(module: str, **arguments: Any) -> dict[str, Any]:
    return {"storage_ops.runbooks.on_node": {"module": module, "arguments": arguments}}


@pytest.mark.parametrize(
    "task",
    [
        {"storage_ops.runbooks.ceph_client_info": {}},
        through("ansible.builtin.setup"),
        through("ansible.builtin.command", argv=["true"]),
    ],
)
def test_a_node_can_set_no_variable_and_no_artifact(
    programs: Path, tmp_path: Path, task: dict[str, Any]
) -> None:
    """It would switch on what the operator has not accepted, and be an extra variable of AWX's next
    job.
    """
    seen, printed = answered(programs, tmp_path, task)
    assert seen["result"] == "nothing to do"
    assert seen["facts"] == "unset" and "evil" not in json.dumps(seen["all"])
    assert "CUSTOM STATS" not in printed and "evil" not in printed


def test_a_module_of_another_collection_does_what_it_does(programs: Path, tmp_path: Path) -> None:
    """Some have an action plugin of their own, which works on the controller, too."""
    file = tmp_path / "written"
    task = through("ansible.builtin.copy", dest=str(file), content="{{ 40 + 2 }}", mode="0640")
    answered(programs, tmp_path, task, hostile=False)
    assert file.read_text(encoding="utf-8") == "42" and file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("failed", [False, True])
def test_no_terminal_obeys_a_result(programs: Path, tmp_path: Path, failed: bool) -> None:
    """Ansible prints warnings, differences and errors as they come."""
    evil = "x\x1b]0;evil\x07"
    said = {
        "failed": failed,
        "msg": evil,
        "exception": evil,
        "warnings": [evil],
        "deprecations": [{"msg": evil, "version": "9"}],
    }
    diff = [{"before": "", "after": f"{evil}\n", "before_header": evil}]
    task = {"storage_ops.runbooks.ceph_client_info": {}, "ignore_errors": True, "diff": True}
    seen, printed = answered(
        programs, tmp_path, task, answer={"changed": True, **said, "diff": diff}
    )
    assert str(seen["ended"]) == "True"
    assert "\x1b]0;evil" not in printed and "x\\x1b]0;evil" in printed
