# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role attachment_repair makes of what it is given, as Ansible computes it."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROLE = Path(__file__).resolve().parents[3] / "roles/attachment_repair"


def role(name: str, **given: Any) -> Any:
    """The role's variable of that name, with everything at its default that is not given."""
    loader = DataLoader()
    # Since ansible-core 2.19 only what is trusted is a template.
    trusted = (
        {"trusted_as_template": True}
        if "trusted_as_template" in signature(loader.load_from_file).parameters
        else {}
    )
    variables: dict[str, Any] = {"ansible_check_mode": False}
    for file in ("defaults", "vars"):
        variables.update(loader.load_from_file(str(ROLE / file / "main.yml"), **trusted))
    variables.update(given)
    return Templar(loader=loader, variables=variables).template(
        variables[f"__attachment_repair_{name}"]
    )


@pytest.mark.parametrize(
    ("given", "limit"), [(0, 0), ("0", 0), ("", 10), (" ", 10), ("3", 3), (12, 12)]
)
def test_no_repairs_is_not_ten(given: Any, limit: int) -> None:
    assert int(role("limit", attachment_repair_max_repairs=given)) == limit


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


NAMED = {
    "driver": "csi.example.com",
    "namespace": "csi",
    "name": "controller",
    "container": "provisioner",
}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", {}),
        ({}, {}),
        (NAMED, NAMED),
        (
            '{"driver": "csi.example.com", "namespace": "csi", "name": "controller", "container": '
            '"provisioner"}',
            NAMED,
        ),
        (
            "driver: csi.example.com\nnamespace: csi\nname: controller\ncontainer: provisioner\n",
            NAMED,
        ),
    ],
)
def test_a_survey_gives_the_provisioner_as_text(given: Any, wanted: dict[str, str]) -> None:
    assert role("provisioner", attachment_repair_provisioner=given) == wanted


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
    found = role(
        "only_refused", workload_reattach_result={"findings": findings}, ansible_check_mode=check
    )
    assert str(found) == str(only)
