# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The callback, as somebody at a shell uses it, with both ansible-cores.

The host is this machine, so there is little to find.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient, wait

MODULE = "storage_ops.runbooks.iscsi_module_check"
# What the role attachment_repair notes of moves.
NOTED = ("failed", "failures", "untried", "redone")
EVIL = "mnt\x1b[31m\x9b2J\u202e"
SHOWN = "mnt\\x1b[31m\\x9b2J\\u202e"
PLAYBOOK = """
- name: Look, and show it
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Look
      storage_ops.runbooks.iscsi_module_check:
        modules: [not_a_module]
      register: seen
      check_mode: true

    - name: Show it
      ansible.builtin.import_role:
        name: storage_ops.runbooks.show_findings
      vars:
        show_findings_result: "{{ seen }}"
"""


def hostile(fails: bool) -> dict[str, Any]:
    """A result of which every text would clear the screen."""
    repair = {
        "action": "unmount",
        "target": EVIL,
        "command": ["umount", EVIL],
        "outcome": "planned",
        "seconds": 0.0,
    }
    finding = {
        "control": "STOR-05",
        "severity": "major",
        "object": {"kind": "FUSE mount", "name": EVIL, "node": "worker01"},
        "summary": EVIL,
        "evidence": {"source": EVIL},
        "verdict": "repair",
        "reason": EVIL,
        "runbook": "storage_ops.runbooks.recover_fuse_mounts",
        "repair": [repair],
    }
    diff = {"before": f"{EVIL}\n", "after": ""}
    return {
        "fails": fails,
        "msg": EVIL,
        "changed": True,
        "findings": [finding],
        "actions": [repair],
        "diff": diff,
        "exception": EVIL,
    }


def run(*command: str | Path, callback: str = "storage_ops.runbooks.findings") -> str:
    """What is printed, as to a file."""
    environment = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
        "ANSIBLE_STDOUT_CALLBACK": callback,
        "ANSIBLE_LIBRARY": str(Path(__file__).parent / "modules"),
        # No cluster, whatever this machine has.
        "K8S_AUTH_KUBECONFIG": "/nowhere/kubeconfig",
    }
    python = f"ansible_python_interpreter={sys.executable}"
    answer = subprocess.run(
        [*command, "-i", "localhost,", "-c", "local", "-e", python],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert "Traceback" not in answer.stdout + answer.stderr and "Callback" not in answer.stderr, (
        answer.stdout + answer.stderr
    )
    return answer.stdout + answer.stderr


LONG = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Wait for the file
      ansible.builtin.wait_for: {path: "{{ file }}", sleep: 1, timeout: 300}
"""


@pytest.mark.parametrize("adhoc", [False, True])
def test_a_long_task_tells_how_long_it_takes(programs: Path, tmp_path: Path, adhoc: bool) -> None:
    """On a terminal, while it runs; nothing of it goes into a file."""
    playbook, file = tmp_path / "play.yml", tmp_path / "file"
    playbook.write_text(LONG)
    python = f"ansible_python_interpreter={sys.executable}"
    command: tuple[str | Path, ...] = (
        programs / "ansible-playbook",
        playbook,
        "-e",
        f"file={file}",
    )
    said = "Wait for the file"
    if adhoc:
        wanted = f"path={file} sleep=1 timeout=300"
        command = (programs / "ansible", "all", "-m", "ansible.builtin.wait_for", "-a", wanted)
        said = "ansible.builtin.wait_for on all"
    terminal, side = pty.openpty()
    environment = {
        **os.environ,
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
        "ANSIBLE_STDOUT_CALLBACK": "storage_ops.runbooks.findings",
        "STORAGE_OPS_PROGRESS_SECONDS": "0.5",
    }
    told = ""
    with subprocess.Popen(
        [*command, "-i", "localhost,", "-c", "local", "-e", python],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=side,
        text=True,
    ) as child:
        os.close(side)
        os.set_blocking(terminal, False)

        def tells() -> bool:
            nonlocal told
            with contextlib.suppress(BlockingIOError):
                told += os.read(terminal, 4096).decode()
            return bool(re.search(rf"^  \[\d+ s\] {said}\r?$", told, re.MULTILINE))

        try:
            wait(tells, "the task to tell how long it takes")
            file.touch()
            output, _none = child.communicate(timeout=patient(120))
        finally:
            child.kill()
            os.close(terminal)
    assert child.returncode == 0 and f" s] {said}" not in output, output + told
    assert f" s] {said}" not in run(*command)


def test_ad_hoc(programs: Path) -> None:
    """A table and no JSON; on one line what found nothing; -v adds evidence, -vvv is what it always
    was.
    """

    def look(*arguments: str) -> str:
        return run(
            programs / "ansible",
            "all",
            "-m",
            MODULE,
            "--check",
            "-a",
            '{"modules": ["not_a_module"]}',
            *arguments,
        )

    text = look()
    assert "SEVERITY  CONTROL  OBJECT" in text and "kernel module" in text and "{" not in text, text
    assert "  refused   kernel module not_a_module: " in text
    evidence = look("-v")
    assert "\n  kernel module not_a_module\n    kernel: " in evidence, evidence
    # Since ansible-core 2.21 without "invocation".
    assert '"findings": [' in look("-vvv") and '"findings": [' not in evidence


def test_hostile_results(programs: Path) -> None:
    """Nothing reaches the terminal that it would obey: not in a table, a failure, evidence or a
    diff. Other modules print as ever.
    """
    for fails in (False, True):
        text = run(
            programs / "ansible",
            "all",
            "-m",
            "says",
            "-a",
            json.dumps({"result": json.dumps(hostile(fails))}),
            "-v",
            "--diff",
        )
        assert f"{'FAILED!' if fails else 'changed: [localhost]'} => {SHOWN}\n" in text, text
        assert f"  planned   unmount {SHOWN}: umount '{SHOWN}'\n" in text, text
        assert f"    source: {SHOWN}\n" in text
        assert fails or f"\n-{SHOWN}\n" in text, text
        assert all(character.isprintable() or character == "\n" for character in text), text
    pong = run(programs / "ansible", "all", "-m", "ansible.builtin.ping")
    assert "ok: [localhost] => {" in pong and '"pong"' in pong, pong
    assert "UNREACHABLE! => {" in run(
        programs / "ansible", "all", "-m", MODULE, "-e", "ansible_connection=ssh ansible_port=1"
    )


@pytest.mark.smoke
def test_playbook(programs: Path, tmp_path: Path) -> None:
    """What the callback has shown the role show_findings does not show once more."""
    playbook = tmp_path / "playbook.yml"
    playbook.write_text(PLAYBOOK)
    text = run(programs / "ansible-playbook", playbook)
    # Once: the message of the result has its reason too, which is told below the table.
    assert text.count("kernel module not_a_module: ") == 1, text
    assert "\nok: [localhost]\n\nPLAY RECAP" in text, text


def test_no_result_is_a_template(programs: Path, tmp_path: Path) -> None:
    """Jinja that a tenant or a node has written is text: where it is shown, and where
    it is told.
    """
    done = tmp_path / "done"
    evil = f"{{{{ 7 * 7 }}}} {{{{ lookup('ansible.builtin.pipe', 'touch {done}') }}}}"
    result = json.loads(json.dumps(hostile(False)).replace(json.dumps(EVIL)[1:-1], evil))
    finding = result["findings"][0]
    assert finding["evidence"]["source"] == evil
    names = dict.fromkeys(("kind", "namespace", "name"), evil)
    finding["workload"] = {**names, "claims": [evil], "attachments": [evil], "drivers": [evil]}
    # The words of a play are templates, so the text comes from a file. Behind a blank
    # ansible-core 2.16 takes it for a text and not for a dictionary.
    told = tmp_path / "told.json"
    told.write_text(f" {json.dumps(result)}")
    from_file = f"{{{{ lookup('ansible.builtin.file', '{told}') }}}}"
    tasks = [
        {"name": "Look", "says": {"result": from_file}, "register": "seen"},
        {
            "name": "Show it",
            "ansible.builtin.import_role": {"name": "storage_ops.runbooks.show_findings"},
            "vars": {"show_findings_result": "{{ seen }}"},
        },
        {
            "name": "Note what is left, as a role does",
            "storage_ops.runbooks.conclude": {"findings": "{{ seen.findings }}"},
            "register": "__fuse_recovery_outcome",
            "vars": {"__conclude_later": True},
        },
        {
            "name": "Tell it, as a playbook does",
            "storage_ops.runbooks.conclude": {"hosts": ["localhost"]},
            "ignore_errors": True,
        },
        {
            "name": "Begin to move",
            "ansible.builtin.set_fact": {
                "__attachment_repair_moved": 0,
                "__attachment_repair_refused": ["{{ seen.msg }}"],
                "__attachment_repair_left": [],
                **{f"__attachment_repair_{name}": [] for name in NOTED},
            },
        },
        {
            "name": "Move it twice, which fails without a cluster",
            "ansible.builtin.include_role": {
                "name": "storage_ops.runbooks.attachment_repair",
                "tasks_from": "move.yml",
                "public": True,
            },
            "loop": [1, 2],
            "vars": {
                "__attachment_repair": {"options": {"max_repairs": 1}},
                "__attachment_repair_workload": "{{ seen.findings[0].workload }}",
            },
        },
        {
            "name": "Say who was not moved",
            "ansible.builtin.debug": {"msg": "{{ __attachment_repair_unmoved }}"},
            "vars": {
                "__attachment_repair": {"options": {"max_repairs": 1}},
                "__attachment_repair_workloads": [],
            },
        },
    ]
    play = {"name": "Look", "hosts": "localhost", "gather_facts": False, "tasks": tasks}
    playbook = tmp_path / "playbook.yml"
    playbook.write_text(json.dumps([play]))
    # This callback leaves the showing to the role.
    text = run(programs / "ansible-playbook", playbook, callback="ansible.builtin.default")
    shown, _head, rest = text.partition("TASK [Tell it")
    told_left, _head, rest = rest.partition("TASK [Move it")
    moved = rest.partition("TASK [Say who")[2]
    assert "  {{ 7 * 7 }} {{ lookup(" in shown and "  source: {{ 7 * 7 }} {{ lookup(" in shown, text
    assert "1 left: localhost: FUSE mount {{ 7 * 7 }} {{ lookup(" in told_left, text
    assert "1 workloads could not be moved: {{ 7 * 7 }}" in moved, text
    assert "the moves of 1 workloads failed: {{ 7 * 7 }}" in moved, text
    assert "failed with the driver {{ 7 * 7 }}" in moved, text
    assert "49 " not in text and not done.exists(), text
