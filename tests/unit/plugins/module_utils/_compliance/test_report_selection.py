# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JMESPath over findings: what is wrong with an expression is told before anything runs, by its
place.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import selection
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance.selection import (
    Expression,
    make_exceptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

FINDINGS = [
    {
        "control": "STOR-01",
        "severity": "critical",
        "host": "n1",
        "object": {"node": "worker01"},
        "evidence": {"size": 7},
    },
    {
        "control": "STOR-09",
        "severity": "major",
        "host": "n2",
        "object": {"node": "worker02"},
        "evidence": {},
    },
]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("[?severity=='critical' && object.node=='worker01']", [0]),
        ("[?starts_with(host, 'n')]", [0, 1]),
        ("[]", [0, 1]),
        ("[1:]", [1]),
        ("[?host=='n3']", []),
        ("[?code=='lease_held']", []),
        ("[?@.object.node=='worker02' && verdict!='refuse']", [1]),
        ("[?contains(['STOR-01', 'STOR-02'], control) && contains(control, '-0')]", [0]),
        ("[?repair[0].action=='x' || repair[?target=='y'] || evidence.*.name]", []),
        ("sort_by(@, &host)[::-1]", [0, 1]),
        ("[?evidence.size && evidence.size > `5`]", [0]),
    ],
)
def test_what_is_selected(text: str, chosen: list[int]) -> None:
    assert Expression(text, "select").of(FINDINGS) == chosen


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[?severity=='critical'", r"select is not JMESPath: .* at character 23 of"),
        (
            "[?severity=='critical",
            r"select is not JMESPath: Unclosed ' delimiter at character 13 of",
        ),
        ("[?severity = 'x']", r"select is not JMESPath: .* at character 12 of"),
        ("[?nothing(host)]", "Unknown function: nothing"),
        ("[].host", "must select whole findings"),
        ("length(@)", "must select whole findings"),
        ("[0]", "must select whole findings"),
        ("*", "must select whole findings"),
        ("severity", "must select whole findings"),
        ("not_a_key", "findings have no 'not_a_key'"),
        ("[?code=='in_use_mountd']", "the code of a finding is never 'in_use_mountd'"),
        ("[?severity=='crtical']", "the severity of a finding is never 'crtical'"),
        (
            "[?host=='n1'] | [?@.verdict!='repaired']",
            "the verdict of a finding is never 'repaired'",
        ),
        (
            "[?contains(['STOR-01','STOR-99'], control)]",
            "the control of a finding is never 'STOR-99'",
        ),
        ('[?contains(`["STOR-99"]`, control)]', "the control of a finding is never 'STOR-99'"),
        ("[?contains(control, 'STORE')]", "the control of a finding is never 'STORE'"),
        ('[?severity=="critical"]', "findings have no 'critical'"),
        ("[?object.host=='n1']", "the object of a finding has no 'host'"),
        (
            "[?contains(evidence.name, 'x')]",
            "cannot be applied to every finding.*test for others first",
        ),
        ("[?starts_with(host)]", "select is not JMESPath|cannot be applied"),
    ],
)
def test_what_cannot_be_right_for_any_finding(text: str, said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        Expression(text, "select")


@given(st.text(alphabet="[]?=&|'`\"@.*(){},:abc<>! \\\n0\u20ac", max_size=20))
def test_any_text_is_an_expression_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(StorageOpsError):
        Expression(text, "select").of(FINDINGS)


def test_the_examples_of_the_guide_run() -> None:
    guide = (Path(__file__).resolve().parents[5] / "docs/guides/report.md").read_text()
    examples = re.findall(r"^\| `(\[.*?\])` \|", guide, re.MULTILINE)
    assert len(examples) >= 7
    for example in examples:
        Expression(example, "select").check_narrow()


TODAY = datetime.date(2026, 11, 22)


def exception(**more: Any) -> dict[str, Any]:
    return {
        "select": "[?host=='n1']",
        "owner": "me",
        "reason": "why",
        "expires": "2026-12-31",
        **more,
    }


def test_exceptions() -> None:
    first, second = make_exceptions(
        [exception(), exception(expires=datetime.date(2026, 1, 2))], TODAY
    )
    assert first.note() == {"owner": "me", "reason": "why", "expires": "2026-12-31"}
    assert second.expires == "2026-01-02", "YAML makes a date of it"
    assert make_exceptions(
        [exception(expires="2027-11-23", select="[?evidence.paths[0]=='sdb']")], TODAY
    )
    assert not first.expired("2026-12-31") and first.expired("2027-01-01")


@pytest.mark.parametrize(
    ("given_exceptions", "said"),
    [
        ({"select": "x"}, "must be a list"),
        (["x"], "exception 1 is not a dictionary"),
        (
            [exception(), exception(owner="", reason=None)],
            "exception 2 lacks owner, reason: who accepts",
        ),
        ([{"select": "[?host=='n1']"}], "exception 1 lacks expires, owner, reason"),
        ([exception(expires="31.12.2026")], "exception 1: expires must be a day as YYYY-MM-DD"),
        ([exception(until="x")], "exception 1 has unknown keys: until"),
        ([exception(select="[?")], "select of exception 1 is not JMESPath"),
        ([exception(expires="2027-11-24")], "exception 1: expires must be within 366 days"),
        ([exception(expires="9999-12-31")], "exception 1: expires must be within 366 days"),
        *(
            ([exception(select=everything)], "would accept every finding")
            for everything in (
                "@",
                "[]",
                "[*]",
                "[?severity]",
                "[?`true`]",
                "[?severity!='info']",
                "[?host!='n1']",
                "reverse(@)",
            )
        ),
        *(
            ([exception(select=places)], "not the places in their list")
            for places in ("[:1000]", "sort_by(@, &host)[:1]", "[?host=='n1'] | [1:]")
        ),
    ],
)
def test_exceptions_that_are_none(given_exceptions: Any, said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        make_exceptions(given_exceptions, TODAY)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "jmespath", None)
    with pytest.raises(StorageOpsError, match="needs the Python library jmespath"):
        Expression("[]", "select")
