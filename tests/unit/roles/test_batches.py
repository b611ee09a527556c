# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts a playbook repairs at a time: one, unless the user says how many. In check mode
nothing is changed, so all are looked at together, and wait together. tests/adhoc runs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import load, rendered

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
WITH_BATCH = sorted(path for path in PLAYBOOKS.glob("*.yml") if "\n# batch " in path.read_text())


@pytest.mark.parametrize("path", WITH_BATCH, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("given", "check", "expected"),
    [
        ({}, False, "1"),
        # A survey's unanswered question.
        ({"batch": ""}, False, "1"),
        ({"batch": "5"}, False, "5"),
        ({}, True, "100%"),
        ({"batch": ""}, True, "100%"),
        ({"batch": 2}, True, "2"),
        ({"batch": "10%"}, True, "10%"),
    ],
)
def test_hosts_at_a_time(path: Path, given: dict[str, Any], check: bool, expected: str) -> None:
    (serial,) = [play["serial"] for play in load(path) if "serial" in play]
    assert str(rendered(serial, {**given, "ansible_check_mode": check})) == expected


def test_every_playbook_that_goes_host_by_host_lets_the_user_choose() -> None:
    found = [path for path in sorted(PLAYBOOKS.glob("*.yml")) if "\n  serial:" in path.read_text()]
    # That one repairs the nodes that triage names, and has no such variable.
    assert [path for path in found if path.stem != "respond"] == WITH_BATCH
    assert len(WITH_BATCH) == 5
