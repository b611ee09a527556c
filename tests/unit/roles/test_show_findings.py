# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role show_findings prints of a result, as Ansible computes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import ROLES, load, rendered

REASON = "10.0.0.5 is protected"
OTHER = "its disk is in use"


def finding(reason: str) -> dict[str, Any]:
    return {
        "control": "STOR-16",
        "severity": "critical",
        "object": {"kind": "Node", "name": "worker01"},
        "summary": "it is lost",
        "verdict": "refuse",
        "reason": reason,
        "code": "address_protected",
        "evidence": {"ready": "Unknown"},
    }


def shown(result: dict[str, Any]) -> str:
    """The lines of the template."""
    variables = {"show_findings_result": result}
    templar = Templar(loader=DataLoader(), variables=variables)
    lookup = lookup_loader.get("template", loader=DataLoader(), templar=templar)
    template = str(ROLES / "show_findings/templates/findings.j2")
    return str(lookup.run([template], variables=variables)[0]).strip()


def test_actions_without_room_are_counted() -> None:
    done = {"action": "unmount", "target": "/mnt", "outcome": "done", "seconds": 0}
    result = {"msg": "done", "findings": [], "actions": [done]}
    assert shown(result).endswith("\nactions:\n  done: unmount /mnt")
    text = shown({**result, "actions_left_out": 850})
    assert "\nactions: (+850 more that have no room)\n  done: unmount /mnt" in text


@pytest.mark.parametrize("failed", [False, True])
def test_a_task_that_failed_has_printed_its_message(failed: bool) -> None:
    findings = [finding(REASON), finding(OTHER)]
    text = shown({"failed": failed, "msg": f"refused 2: {REASON}", "findings": findings})
    assert text.count(REASON) == (0 if failed else 2), text
    # Not every reason is in a message.
    assert text.count(f"verdict: refuse - {OTHER}") == 1, text
    assert text.count("code: address_protected") == text.count("ready: Unknown") == 2, text


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({"failed": True, "msg": "MODULE FAILURE"}, False),
        ({"failed": True, "msg": "refused", "findings": []}, False),
        ({"failed": True, "msg": "refused", "findings": [finding(REASON)]}, True),
        ({"msg": "nothing to do", "findings": []}, True),
    ],
)
def test_nothing_is_printed_where_all_was_printed(
    result: dict[str, Any], wanted: bool, tmp_path: Path
) -> None:
    (task,) = load(ROLES / "show_findings/tasks/main.yml")
    (tmp_path / "when.yml").write_text(json.dumps({"when": f"{{{{ {task['when']} }}}}"}))
    when = load(tmp_path / "when.yml")["when"]
    assert str(rendered(when, {"show_findings_result": result})) == str(wanted)
