# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role attachment_repair makes of what it is given, as Ansible computes it."""

from __future__ import annotations

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
