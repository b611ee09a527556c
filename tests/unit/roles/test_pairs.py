# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No variable has tuples: ansible-core before 2.16.14, 2.17.7 and 2.18.1 does not see that a tuple
has a text of others. Where one variable hands it on to another, it takes the text for a template
(CVE-2024-11079; AnsibleContext._is_unsafe of ansible/template looks into dictionaries and lists).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import ROLES, load

# Filters that make more of two lists than both have.
CROSSING = re.compile(
    r"(?P<what>[\w.]+|\))\s*\|\s*(?:subelements|product|permutations|combinations)\b"
)
# Filters that make tuples, and what makes something else of each of them.
PAIRS = re.compile(
    r"\|\s*(?:zip|zip_longest|subelements|groupby|product|dictsort|items|permutations"
    r"|combinations)\b"
)
MAPPED = re.compile(r"\|\s*map\b")


def left_as_tuples(expression: str) -> list[str]:
    """The parts of an expression that end in tuples."""
    found, above = [], [""]
    for char in re.sub(r"'(?:[^'\\]|\\.)*'", "''", expression) + ")":
        if char == "(":
            above.append("")
        elif char != ")":
            above[-1] += char
        else:
            part = above.pop()
            for one in re.split(r"\+|\bif\b|\belse\b|,", part):
                last = [*PAIRS.finditer(one)]
                made_a_dictionary = bool(above) and above[-1].endswith("dict")
                if last and not MAPPED.search(one, last[-1].end()) and not made_a_dictionary:
                    found.append(one.strip())
            if above:
                above[-1] += "()"
    return found


def texts(value: Any) -> Iterator[str]:
    """All texts in what a file of YAML has."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("a | zip(b)", ["a | zip()"]),
        ("a | zip(b) | map('list')", []),
        ("a | zip(b | zip(c)) | map('join', ' (')", ["b | zip()"]),
        ("dict(a | zip(b))", []),
        ("a | product(['x']) | list + b | product(c) | map('list')", ["a | product() | list"]),
        ("x | map('extract', dict(a | zip(b))) | zip(y)", ["x | map() | zip()"]),
    ],
)
def test_what_it_finds(expression: str, found: list[str]) -> None:
    assert left_as_tuples(expression) == found


def with_filter(filters: re.Pattern[str]) -> list[tuple[Path, str]]:
    """The expressions of roles and playbooks that have such a filter, each with its file."""
    files = [*ROLES.parent.glob("playbooks/**/*.yml"), *ROLES.glob("*/*/*.yml")]
    return [
        (path, expression)
        for path in files
        for text in texts(load(path))
        for expression in re.findall(r"\{\{(.*?)\}\}", text, re.S)
        if filters.search(expression)
    ]


def test_no_variable_has_tuples() -> None:
    looked_at = with_filter(PAIRS)
    # Else this test finds nothing because it looks at nothing.
    assert len(looked_at) > 10
    assert {
        (path.name, part) for path, expression in looked_at for part in left_as_tuples(expression)
    } == set()


def test_nothing_crosses_two_lists_of_one_answer() -> None:
    """Root on a host fills both with hundreds of thousands of entries. A task that computes a
    variable has no limit of time or memory, so it would end the run of all hosts.
    """
    looked_at = with_filter(CROSSING)
    crossed = [one for _path, text in looked_at for one in CROSSING.finditer(text)]
    assert len(crossed) > 3
    # What the cluster has said, or the operator.
    assert {match["what"] for match in crossed} == {"__fuse_recovery_found", "__wanted", ")"}
    # The one that has a filter before it.
    assert [path.name for path, text in looked_at if re.search(r"\)\s*\|\s*product", text)] == [
        "configure_awx.yml"
    ]
