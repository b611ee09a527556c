# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose root is hostile answers what it likes, in place of the module that was sent to it,
with both ansible-cores.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.common import patient

ROOT = Path(__file__).resolve().parents[2]
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
    beside: str = "",
    shown: dict[str, str] | None = None,
) -> tuple[dict[str, Any], str]:
    """What the controller keeps of an answer: seen by the next task, and all that was printed.

    ``beside``: what the host says after it, and as an error; ``shown``: settings of Ansible's.
    """
    evil = folder / "python"
    said = f"cat <<'END'\n{json.dumps(answer or ANSWER, ensure_ascii=False)}\nEND\n"
    said += f"printf '%s' '{beside}'\nprintf '%s' '{beside}' >&2\n" if beside else ""
    evil.write_text(f"#!/bin/sh\n{said}", encoding="utf-8")
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
        **(shown or {}),
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


class NoSsh:
    """What answers in place of ssh at a host's address, before ssh has seen a key."""

    def __init__(self) -> None:
        # Its name is short: ssh shows a hundred characters of what is said.
        self.folder = tempfile.TemporaryDirectory()
        self.done = Path(self.folder.name) / "done"
        self.server = socket.create_server(("127.0.0.1", 0))
        self.host = {
            "ansible_connection": "ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": self.server.getsockname()[1],
            "ansible_python_interpreter": sys.executable,
        }
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        # What follows "SSH-" is no version. With ansible-core 2.16 it ran on the controller.
        said = f"SSH-{{{{ lookup('pipe', 'echo >{self.done}') }}}}"
        while True:
            try:
                connection, _address = self.server.accept()
            except OSError:
                return
            connection.sendall(f"{said}\r\n".encode())
            connection.close()

    def run(
        self, programs: Path, folder: Path, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ansible-playbook, and see that what it was answered did not run."""
        environment = {**os.environ, "ANSIBLE_HOME": str(folder / "home")}
        try:
            ended = subprocess.run(
                [str(programs / "ansible-playbook"), *arguments],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=patient(120),
                check=False,
            )
        finally:
            self.server.close()
        assert not self.done.exists(), ended.stdout + ended.stderr
        return ended


@pytest.mark.parametrize("by", ["storage_ops.runbooks.ceph_client_info", "setup", "raw"])
def test_who_answers_in_place_of_ssh_writes_no_template(
    programs: Path, tmp_path: Path, by: str
) -> None:
    evil = NoSsh()
    task = {
        "setup": through("ansible.builtin.setup"),
        "raw": through("ansible.builtin.raw", _raw_params="true"),
    }
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_connection": "local"},
        "tasks": [
            {
                **task.get(by, {by: {}}),
                "delegate_to": "node",
                "register": "answer",
                "ignore_unreachable": True,
                "vars": evil.host,
            },
            {
                "ansible.builtin.assert": {
                    "that": ["answer.unreachable", "'lookup(' in answer.msg"],
                    "fail_msg": "{{ answer.msg }}",
                }
            },
        ],
    }
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    ended = evil.run(programs, tmp_path, "-i", "localhost,node,", str(playbook))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_ceph_host_that_is_not_there_lets_the_rest_of_compliance_run(
    programs: Path, tmp_path: Path
) -> None:
    """The task of compliance that asks it, and a report after it: run_once, for all hosts."""
    tasks = yaml.safe_load((ROOT / "playbooks/tasks/record_ceph_clients.yml").read_text("utf-8"))
    (asking,) = [task for task in tasks if "storage_ops.runbooks.rbd_watcher_info" in task]
    plays = yaml.safe_load((ROOT / "playbooks/compliance.yml").read_text("utf-8"))
    (recording,) = [play for play in plays if "tasks/record_ceph_clients.yml" in str(play)]
    (block,) = recording["tasks"]
    of_all = {key: recording[key] for key in ("hosts", "strategy", "gather_facts")}
    wanted = {
        "__record_asked": {"volumes": [{"volume": "v", "pool": "p", "image": "i"}]},
        "__record_ceph": {},
        "__record_host": "node",
    }
    report = {"ansible.builtin.debug": {"msg": "written: {{ __record_problem }}"}, "run_once": True}
    told = [
        {**of_all, "vars": wanted, "tasks": [{"block": [asking], "rescue": block["rescue"]}]},
        {**of_all, "any_errors_fatal": True, "tasks": [{**report, "delegate_to": "localhost"}]},
    ]
    playbook, inventory = tmp_path / "play.yml", tmp_path / "hosts.yml"
    playbook.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    evil = NoSsh()
    hosts = {"localhost": {"ansible_connection": "local"}, "node": evil.host}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    ended = evil.run(programs, tmp_path, "-i", str(inventory), str(playbook))
    # compliance fails at its end in any case; a rescued run_once does with ansible-core 2.19.
    assert "written: Failed to connect" in ended.stdout, ended.stdout + ended.stderr


def test_a_playbook_asks_whether_who_answers_is_there_at_all(
    programs: Path, tmp_path: Path
) -> None:
    """By its first task on a host, before any module of ours."""
    evil = NoSsh()
    inventory = tmp_path / "hosts.yml"
    hosts = {"localhost": {"ansible_connection": "local"}, "node": evil.host}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    playbook = "storage_ops.runbooks.clean_residual_paths"
    ended = evil.run(programs, tmp_path, "-i", str(inventory), "-e", "target=node", playbook)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "1 not assessed: node (" in ended.stdout, ended.stdout


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


@pytest.mark.parametrize(
    "task", [{"storage_ops.runbooks.ceph_client_info": {}}, through("ansible.builtin.setup")]
)
def test_no_answer_is_read_later(programs: Path, tmp_path: Path, task: dict[str, Any]) -> None:
    """Ansible reads that of an asynchronous task with an action of its own, and took its facts."""
    job = {"ansible_job_id": "1", "started": 1, "finished": 1, **ANSWER}
    asked = {**task, "async": 10, "poll": 1, "ignore_errors": True}
    seen, printed = answered(programs, tmp_path, asked, answer=job)
    assert seen["facts"] == "unset" and "evil" not in json.dumps(seen["all"])
    assert "cannot run with async" in " ".join(printed.split())
    assert "CUSTOM STATS" not in printed and "evil" not in printed


def test_an_operator_reads_what_sudo_says(programs: Path, tmp_path: Path) -> None:
    """And not what Ansible's reader of JSON missed."""
    said = "sudo: a password is required"
    sudo = tmp_path / "sudo"
    sudo.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n", encoding="utf-8")
    sudo.chmod(0o755)
    # Root needs no sudo to become root; another user could not read what is copied.
    become = {"become": True, "become_user": "nobody", "ignore_errors": True}
    shown = {"ANSIBLE_BECOME_EXE": str(sudo), "ANSIBLE_PIPELINING": "1"}
    task = {"storage_ops.runbooks.multipath_residual": {}, **become}
    seen, _printed = answered(programs, tmp_path, task, hostile=False, shown=shown)
    assert said in seen["result"] and "json" not in seen["result"].lower(), seen


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


@pytest.mark.parametrize(
    "task", [{"storage_ops.runbooks.ceph_client_info": {}}, through("ansible.builtin.setup")]
)
def test_no_terminal_obeys_what_ansible_warns_of(
    programs: Path, tmp_path: Path, task: dict[str, Any]
) -> None:
    """Such as what comes after the JSON, and values that no module may return; the rest
    is as it was.
    """
    evil = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"
    kept = "caf\u00e9\u00a0\U000e0001"
    answer = {"changed": False, "msg": kept, "_ansible_x": evil, "add_host": evil}
    seen, printed = answered(programs, tmp_path, task, answer=answer, beside=f"evil {evil}")
    assert seen["result"] == "caf\u00e9\\xa0\\U000e0001"
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(printed), printed
    # Old ansible-cores break the lines of a warning.
    words = " ".join(printed.split())
    assert "junk after the JSON data: evil" in words and "ZXZpbA==" in printed
    assert "no module may set it: _ansible_x, add_host" in words


def made(kind: str, **fields: Any) -> dict[str, Any]:
    """What ansible-core 2.19 makes an object of, where an answer has it."""
    return {"__ansible_type": kind, **fields}


EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e"
EVENT = made("Event", msg=EVIL)
TAGS = [made("Deprecated", msg=EVIL)]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            {"storage_ops.runbooks.ceph_client_info": {}},
            {
                "msg": made("_AnsibleTaggedInt", value=3, tags=TAGS),
                "warnings": [made("WarningSummary", event=EVENT)],
                "deprecations": [made("DeprecationSummary", event=EVENT)],
                "exception": made("ErrorSummary", event=EVENT),
            },
        ),
        (through("ansible.builtin.setup"), {"other": EVIL}),
        # The module stat, by which the action asks for the file.
        (through("ansible.builtin.copy", dest="/nowhere/x", content="x"), {"msg": EVIL}),
    ],
)
def test_no_terminal_obeys_what_is_no_text(
    programs: Path, tmp_path: Path, task: dict[str, Any], said: dict[str, Any]
) -> None:
    """Objects, and whatever is printed of a failure: Ansible's JSON has U+009B as it is."""
    answer = {"changed": False, "failed": True, **said}
    _seen, printed = answered(programs, tmp_path, {**task, "ignore_errors": True}, answer=answer)
    assert "ZXZpbA==" in printed
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(printed), printed


# In each text, to be a line of its own, wherever Ansible or a terminal ends one.
FORGED = "worker02 : ok=9"
SAID = f"{FORGED}{EVIL}\n\n{FORGED}\r{FORGED}\u2028{FORGED}\x85{FORGED}" + "x" * 200
# All that the ansible-cores read in a result, each of a type that it has not (UnifiedTaskResult of
# ansible/_internal/_task.py, TaskExecutor, StrategyBase, CallbackBase).
READ = (
    *("changed", "failed", "unreachable", "skipped", "warnings", "deprecations", "msg", "diff"),
    *("rc", "results", "invocation", "attempts", "finished", "module_stderr", "ansible_job_id"),
    *("ansible_stats", "add_host", "add_group", "_ansible_no_log", "_ansible_x"),
    *("_ansible_verbose_always", "_ansible_verbose_override", "_ansible_item_label"),
    *("_ansible_suppress_tmpdir_delete", "_ansible_delegated_vars", "_ansible_parsed"),
)
# ansible-core 2.22 masks such texts in all that it prints.
SECRETS = {"_ansible_new_secrets": ["localhost", "PLAY RECAP"]}


def event(**more: Any) -> dict[str, Any]:
    """All that an event of ansible-core 2.19 has to be printed."""
    fields = ("msg", "formatted_source_context", "formatted_traceback", "help_text")
    return made("Event", **dict.fromkeys(fields, SAID), **more)


WRONG = {**dict.fromkeys(READ, SAID), SAID: SAID, **SECRETS}
CHAIN = made("EventChain", msg_reason=SAID, traceback_reason=SAID, event=event(), follow=True)
DEEP_EVENT = event(chain=CHAIN, events=[event()])
BY = made("PluginInfo", resolved_name=SAID, type=made("PluginType", value="module"))
TYPED = {
    "failed": True,
    "msg": made("_AnsibleTaggedStr", value=SAID, tags=[made("Deprecated", msg=SAID)]),
    "warnings": [made("WarningSummary", event=DEEP_EVENT)],
    "deprecations": [
        made("DeprecationSummary", event=DEEP_EVENT, deprecator=BY, date=SAID, version=SAID)
    ],
    # Of a traceback the lines may stay.
    "exception": made("ErrorSummary", event=made("Event", msg=SAID, formatted_traceback=EVIL)),
    "other": made("_AnsibleTaggedDict", value={"x": SAID}, tags=[made("Deprecated", msg=SAID)]),
    "_ansible_x": made("WarningSummary", event=DEEP_EVENT),
    **SECRETS,
}
LISTS = {
    "warnings": [SAID, [SAID], {"msg": SAID}, 7, None],
    "deprecations": [SAID, {"msg": SAID, "collection_name": SAID, SAID: SAID}, {"version": SAID}],
    "diff": [{"before": "", "after": EVIL, "before_header": SAID, "after_header": SAID}],
    "rc": [SAID],
    "ansible_facts": {SAID: SAID, "discovered_interpreter_python": SAID},
}


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"storage_ops.runbooks.ceph_client_info": {}}, WRONG),
        ({"storage_ops.runbooks.ceph_client_info": {}}, LISTS),
        ({"storage_ops.runbooks.ceph_client_info": {}}, TYPED),
        # Old ansible-cores fail with an error for facts that are none.
        (through("ansible.builtin.setup"), {"ansible_facts": SAID, "msg": SAID, "failed": True}),
        # Not even the answer as a whole is what it says that it is.
        (through("ansible.builtin.setup"), made("WarningSummary", event=DEEP_EVENT)),
        (through("ansible.builtin.setup"), {"x": made("NoSuchType", msg=SAID), **LISTS}),
        # This action runs another one, which Ansible loads by itself.
        (through("ansible.builtin.shell", cmd="true"), {**TYPED, "_ansible_x": SAID}),
        (through("ansible.builtin.shell", cmd="true"), WRONG),
    ],
)
def test_no_part_of_an_answer_forges_a_line(
    programs: Path, tmp_path: Path, task: dict[str, Any], said: dict[str, Any]
) -> None:
    """With all that Ansible can print of it."""
    seen, printed = answered(
        programs,
        tmp_path,
        {**task, "ignore_errors": True, "diff": True},
        answer=said,
        beside=SAID,
        shown={"ANSIBLE_VERBOSITY": "3", "ANSIBLE_DISPLAY_TRACEBACK": "always"},
    )
    assert "ZXZpbA==" in printed or "has no attribute 'keys'" in printed
    assert not {"\x1b", "\x07", "\r", "\x85", "\x9b", "\u2028", "\u202e"} & set(printed), printed
    # A text of several lines is indented, or has a bar before each (Sub-Event).
    lines = [line.lstrip(" |") for line in printed.splitlines()]
    assert [line for line in lines if line.startswith(FORGED)] == [], printed
    assert FORGED not in json.dumps(seen["all"])
    assert "\nPLAY RECAP ***" in printed and "[localhost" in printed
