# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role attachment_repair when moves fail, with both ansible-cores: whose workloads it still
moves. Its two modules are stand-ins, so no cluster is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient

ROOT = Path(__file__).resolve().parents[2]
# Answers with what a file says of its module, for a move by the namespace; notes whom it moved.
STAND_IN = """#!/usr/bin/python
# WANT_JSON
import json, pathlib, sys

asked = json.loads(pathlib.Path(sys.argv[1]).read_text())
folder = pathlib.Path({folder!r})
answers = json.loads((folder / "answers.json").read_text())
name = asked.get("namespace") or "look"
if name != "look":
    with (folder / "moved").open("a") as moved:
        moved.write(f"{{name}}/{{asked['claims'][0]}}\\n")
print(json.dumps(answers.get(name, answers["moved"])))
"""
MOVED: dict[str, Any] = {"changed": True, "msg": "moved", "findings": [], "actions": []}
NOT_READY = {
    **MOVED,
    "failed": True,
    "msg": "the new pods are not Ready",
    "code": "repair_unproven",
    "findings": [
        {
            "control": "",
            "severity": "info",
            "object": {"kind": "ReplicaSet", "name": "web", "node": "n1"},
            "summary": "1 pod to be moved",
            "verdict": "repair",
            "code": "",
            "reason": "it was asked for",
            "runbook": "",
            "evidence": {},
            "repair": [],
        }
    ],
}
BARE = {
    **NOT_READY,
    "changed": False,
    "msg": "a bare pod",
    "code": "pod_not_recreated",
    "findings": [{**NOT_READY["findings"][0], "verdict": "refuse", "reason": "a bare pod"}],
}
INTERRUPTED = {**NOT_READY, "msg": "interrupted by SIGTERM", "code": "interrupted"}


def lacks(name: str, namespace: str, driver: str) -> dict[str, Any]:
    """A finding with a workload to move."""
    return {
        **NOT_READY["findings"][0],
        "control": "STOR-14",
        "severity": "major",
        "object": {"kind": "VolumeAttachment", "name": f"va-{name}", "node": "n1"},
        "summary": "it lacks publishInfo",
        "verdict": "report",
        "evidence": {"uid": f"uid-{name}"},
        "workload": {
            "kind": "ReplicaSet",
            "namespace": namespace,
            "name": name,
            "claims": [name],
            "attachments": [f"uid-{name}"],
            "drivers": [driver],
            "missing": ["publishInfo"],
        },
    }


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    """The collection with stand-ins for the modules that ask the cluster."""
    copy = tmp_path / "ansible_collections/storage_ops/runbooks"
    for part in ("plugins", "roles", "meta"):
        shutil.copytree(ROOT / part, copy / part)
    shutil.copy(ROOT / "galaxy.yml", copy)
    for module in ("volumeattachment_repair", "workload_reattach"):
        (copy / f"plugins/modules/{module}.py").write_text(STAND_IN.format(folder=str(tmp_path)))
    return tmp_path


def repair(
    programs: Path, folder: Path, findings: list[dict[str, Any]], **given: Any
) -> tuple[list[str], str]:
    """Who was moved, and all that was printed by a run that has to fail."""
    answers = {"look": {**MOVED, "changed": False, "findings": findings}, "moved": MOVED}
    moves = given.pop("moves")
    (folder / "answers.json").write_text(json.dumps({**answers, **moves}))
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [
            {"ansible.builtin.set_fact": {"workload_reattach_result": BARE}},
            {
                "ansible.builtin.include_role": {"name": "storage_ops.runbooks.attachment_repair"},
                "vars": {"attachment_repair_reattach_missing_metadata": True, **given},
            },
        ],
    }
    playbook = folder / "play.yml"
    playbook.write_text(json.dumps([play]))
    environment = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_HOME": str(folder / "home"),
    }
    done = subprocess.run(
        [str(programs / "ansible-playbook"), "-i", "localhost,", str(playbook)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, text
    moved = folder / "moved"
    return moved.read_text().split() if moved.exists() else [], text


def test_one_tenant_whose_moves_fail_keeps_no_other_out(programs: Path, collections: Path) -> None:
    """His own further workloads of that driver are not tried, and the run fails at its end."""
    findings = [
        lacks("a", "evil", "slow.example.com"),
        lacks("b", "bare", "slow.example.com"),
        lacks("c", "shop", "slow.example.com"),
        lacks("d", "evil", "slow.example.com"),
        lacks("e", "evil", "well.example.com"),
    ]
    # His workload of another driver fails as well, and has its own turn.
    moved, text = repair(programs, collections, findings, moves={"evil": NOT_READY, "bare": BARE})
    assert moved == ["evil/a", "bare/b", "shop/c", "evil/e"], text
    told = text.partition("Fail if a workload was not moved")[2]
    assert "1 workloads could not be moved: ReplicaSet bare/b: a bare pod" in told, text
    assert (
        "the moves of 2 workloads failed: ReplicaSet evil/a: the new pods are not Ready; "
        "ReplicaSet evil/e: the new pods are not Ready" in told
    ), text
    assert (
        "1 workloads were not tried: ReplicaSet evil/d: a move in its namespace failed with the "
        "driver slow.example.com" in told
    ), text


def test_a_driver_that_publishes_nothing_breaks_two_workloads(
    programs: Path, collections: Path
) -> None:
    """Those of other drivers are moved."""
    findings = [lacks(name, f"in-{name}", "silent.example.com") for name in "abcd"]
    findings += [lacks("e", "in-e", "well.example.com")]
    moved, text = repair(
        programs, collections, findings, moves={f"in-{name}": NOT_READY for name in "abcd"}
    )
    assert moved == ["in-a/a", "in-b/b", "in-e/e"], text
    told = text.partition("Fail if a workload was not moved")[2]
    assert "the moves of 2 workloads failed: ReplicaSet in-a/a" in told, text
    why = "moves in the namespaces in-a and in-b failed with the driver silent.example.com"
    assert f"2 workloads were not tried: ReplicaSet in-c/c: {why}; " in told, text
    assert f"ReplicaSet in-d/d: {why}" in told, text


def test_no_move_begins_after_an_interruption(programs: Path, collections: Path) -> None:
    findings = [lacks(name, f"in-{name}", f"{name}.example.com") for name in "ab"]
    moved, text = repair(programs, collections, findings, moves={"in-a": INTERRUPTED})
    assert moved == ["in-a/a"] and "in-b/b: the run was interrupted" in text, text


def test_a_move_without_a_result_is_not_judged_by_the_one_before(
    programs: Path, collections: Path
) -> None:
    """An option that is refused before its module runs was refused by no module."""
    findings = [lacks(name, f"in-{name}", "a.example.com") for name in "abc"]
    moved, text = repair(
        programs, collections, findings, moves={}, workload_reattach_max_repairs="many"
    )
    told = text.partition("Fail if a workload was not moved")[2]
    assert moved == [] and "the moves of 2 workloads failed: " in told, text
    assert "could not be moved" not in told and "a bare pod" not in told, text
