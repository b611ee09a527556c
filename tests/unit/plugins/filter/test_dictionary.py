# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a template calls it, and that every playbook reads JSON by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.storage_ops.runbooks.plugins.filter.dictionary import FilterModule

read = FilterModule().filters()["dictionary"]
PLAYBOOKS = Path(__file__).resolve().parents[4] / "playbooks"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({"a": 1}, {"a": 1}), ('{"a": {"b": [1]}}\n', {"a": {"b": [1]}}), ("", {}), (" \n", {})],
)
def test_a_dictionary_or_its_text(given: Any, wanted: dict[str, Any]) -> None:
    assert read(given, "var") == wanted


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ('{"a": "secret"', "no valid JSON: Expecting ',' delimiter: line 1 column 15 (char 14)"),
        ("secret", "no valid JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "no valid JSON: "),
        ('["secret"]', "no dictionary"),
        (["secret"], "no dictionary"),
        (None, "no dictionary"),
        (7, "no dictionary"),
    ],
)
def test_object_cause_and_next_step_and_no_value(given: Any, cause: str) -> None:
    with pytest.raises(AnsibleFilterError) as told:
        read(given, "compliance_node_options")
    text = str(told.value)
    assert text.startswith(f"compliance_node_options is {cause}"), text
    assert "Give a dictionary or its JSON text" in text and "secret" not in text


def test_every_playbook_reads_json_by_it() -> None:
    """from_json tells where a text breaks, and not in which variable."""
    told = {path.name: path.read_text("utf-8") for path in PLAYBOOKS.glob("**/*.yml")}
    assert [name for name, text in told.items() if "from_json" in text] == []
    calls = re.findall(
        r"\{\{ (\w+) \| default\(\{\}, true\)\s+\| storage_ops\.runbooks\.dictionary\('(\w+)'\)",
        "\n".join(told.values()),
    )
    assert calls and all(variable == name for variable, name in calls), calls
    documented = re.findall(
        r"(?m)^# ((?:triage|respond|replace|network_fence|compliance)_\w+) .*(?:\n#  .*)?JSON\s",
        "\n".join(told.values()),
    )
    assert {name for name, _twice in calls} >= set(documented), documented
