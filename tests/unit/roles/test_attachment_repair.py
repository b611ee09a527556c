# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role attachment_repair makes of what it is given, as Ansible computes it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import variable


def role(name: str, **given: Any) -> Any:
    """The role's variable of that name."""
    return variable("attachment_repair", name, **given)


@pytest.mark.parametrize(
    ("leader", "inventory", "wanted"),
    [
        ("master1.site-a.example", ["master1.site-b.example", "worker1"], []),
        (
            "master1.site-a.example",
            ["master1.site-b.example", "master1.site-a.example"],
            ["master1.site-a.example"],
        ),
        ("master1.site-a.example", ["master1", "worker1"], ["master1"]),
        ("master1", ["master1.site-b.example", "master10", "worker1"], ["master1.site-b.example"]),
        (
            "master1",
            ["master1.site-a.example", "master1.site-b.example"],
            ["master1.site-a.example", "master1.site-b.example"],
        ),
        ("master1", ["master1.site-a.example", "master1"], ["master1"]),
        ("master1.site-a.example", ["master10", "master1x.site-a.example"], []),
    ],
)
def test_the_host_of_the_leader(leader: str, inventory: list[str], wanted: list[str]) -> None:
    """More than one is refused."""
    finding = {
        "control": "STOR-13",
        "verdict": "report",
        "evidence": {"leader": f"{leader}_9d1f-4c"},
    }
    found = role(
        "leader_hosts", attachment_repair_result={"findings": [finding]}, groups={"all": inventory}
    )
    assert list(found) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", []),
        ("systemctl restart kcm", ["systemctl", "restart", "kcm"]),
        (["a b", "c"], ["a b", "c"]),
    ],
)
def test_a_survey_gives_a_command_as_text(given: Any, wanted: list[str]) -> None:
    assert role("restart_command", attachment_repair_restart_command=given) == wanted


def test_workloads_are_read_from_findings_and_not_from_evidence() -> None:
    """Evidence is cut for AWX; what is refused is not moved."""
    workload = {
        "kind": "StatefulSet",
        "namespace": "shop",
        "name": "db",
        "claims": ["data"],
        "attachments": ["uid"],
        "missing": ["publishInfo"],
    }
    findings = [
        {
            "control": "STOR-14",
            "verdict": "report",
            "evidence": {"cut": "left out"},
            "workload": workload,
        },
        {
            "control": "STOR-14",
            "verdict": "report",
            "evidence": {"workload_title": "StatefulSet shop/db"},
        },
        {
            "control": "STOR-14",
            "verdict": "refuse",
            "evidence": {},
            "workload": {**workload, "name": "other"},
        },
        {
            "control": "STOR-13",
            "verdict": "report",
            "evidence": {},
            "workload": {**workload, "name": "not asked for"},
        },
    ]
    given = {
        "attachment_repair_result": {"findings": findings},
        "attachment_repair_reattach_missing_metadata": "true",
    }
    assert list(role("workloads", **given)) == [workload]


def finding(verdict: str, **evidence: Any) -> dict[str, Any]:
    return {"verdict": verdict, "evidence": evidence}


@pytest.mark.parametrize(
    ("findings", "check", "only"),
    [
        ([finding("refuse")], False, True),
        # The first pods of a workload were moved and proven, the next ones are refused.
        ([finding("repair", proof=["back"]), finding("refuse")], False, True),
        # Moved, and not proven.
        ([finding("repair"), finding("refuse")], False, False),
        ([finding("repair")], False, False),
        # The API server did not answer.
        ([], False, False),
        ([], True, False),
        ([finding("repair"), finding("refuse")], True, True),
    ],
)
def test_only_refusals_let_the_run_go_on(
    findings: list[dict[str, Any]], check: bool, only: bool
) -> None:
    found = role("only_refused", workload_reattach_result={"findings": findings}, check=check)
    assert str(found) == str(only)


def lost(name: str, node: str) -> dict[str, Any]:
    return {
        "control": "STOR-13",
        "verdict": "report",
        "object": {"name": name, "node": node},
        "evidence": {"uid": f"uid-{name}"},
    }


def after_a_look(word: str, *found: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {
        "attachment_repair_result": {"findings": list(found)},
        "attachment_repair_lost_status": word,
        "__attachment_repair_redone": [],
        **given,
    }


@pytest.mark.parametrize(
    ("word", "nodes", "restarts"),
    [
        ("restart_leader", [], False),
        # A kubelet can write that of itself, in each run.
        ("restart_leader", ["n1", "n1"], False),
        ("restart_leader", ["n1", "n2"], True),
        ("restart_leader_for_one_node", ["n1"], True),
        ("restart_leader_for_one_node", [], False),
        ("reattach", ["n1", "n2"], False),
    ],
)
def test_one_kubelet_has_nothing_restarted(word: str, nodes: list[str], restarts: bool) -> None:
    found = [lost(f"va{number}", node) for number, node in enumerate(nodes)]
    assert role("restarts", **after_a_look(word, *found)) is restarts


@pytest.mark.parametrize(
    ("word", "after", "check", "done"),
    [
        ("restart_leader", {"findings": []}, False, ["a", "b"]),
        ("restart_leader", {"findings": [lost("b", "n2")], "failed": True}, False, ["a"]),
        ("restart_leader", {"failed": True, "msg": "no answer"}, False, []),
        ("restart_leader", None, True, ["a", "b"]),
        ("report", None, False, []),
    ],
)
def test_what_a_restart_has_not_repaired_is_left(
    word: str, after: dict[str, Any] | None, check: bool, done: list[str]
) -> None:
    given = {} if after is None else {"__attachment_repair_after": after}
    found = after_a_look(word, lost("a", "n1"), lost("b", "n2"), check=check, **given)
    assert sorted(role("done", **found)) == done


def test_a_process_in_another_network_namespace_is_not_the_leader() -> None:
    """A tenant's pod can have any name and command line."""
    name = f"lookalike-{os.getpid()}"
    script = "import sys, time; print(flush=True); time.sleep(60)"
    own = [sys.executable, "-c", script, name]
    command = role("pids", attachment_repair_leader_process=f"^[^ ]*python.* {name}$")
    with contextlib.ExitStack() as stack:
        started = []
        for prefix in ([], ["unshare", "--user", "--net"]):
            process = stack.enter_context(
                subprocess.Popen([*prefix, *own], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout
            process.stdout.readline()
            started.append(process)
        if started[1].poll() is not None:
            pytest.skip("no namespaces here")
        seen = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, check=True
        ).stdout.split()
    assert seen == [str(started[0].pid)]
