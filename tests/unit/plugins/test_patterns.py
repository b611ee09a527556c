# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No pattern takes cubic time or more for what others write.

A text of 4,000 characters took half a minute. No clock is asked: what a pattern costs is read from
its structure, as the greatest number of repeats that can share one stretch of text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
# Up to this many, a repeat is as good as a constant.
FEW = 100
# Files with a pattern that looks costly, and why that does not matter.
BOUNDED = {
    "action/check_scope.py": "the operator's own playbook, and each line begins it once",
    "module_utils/_ceph/cli.py": "one line of the Ceph host's ceph.conf",
    "module_utils/_ceph/watchers.py": "match: it begins once",
    "module_utils/_ceph_clients/runbook.py": "what the kernel writes of its own client",
    "module_utils/_fences/power.py": "fullmatch of an address in the operator's inventory",
    "module_utils/_pod_mounts/backing.py": "fullmatch of a record of the kernel: at most 1 KiB",
}
CHARACTERS = frozenset(chr(number) for number in range(256))
CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
REPEATS = {sre.MAX_REPEAT, sre.MIN_REPEAT}
# How a pattern's text is known where it is put together: f-strings are read with this in the place
# of each part.
PART = "[a-z]"


def characters(op: Any, value: Any) -> frozenset[str]:
    """Those that one item of a pattern can be."""
    if op is sre.LITERAL:
        return frozenset({chr(value), chr(value).swapcase()})
    if op is sre.NOT_LITERAL:
        return CHARACTERS - {chr(value)}
    if op is sre.RANGE:
        return frozenset(char for char in CHARACTERS if value[0] <= ord(char) <= value[1])
    if op is sre.CATEGORY:
        return frozenset(char for char in CHARACTERS if re.match(CATEGORIES[value], char))
    if op is sre.IN:
        found = frozenset().union(*(characters(*one) for one in value if one[0] is not sre.NEGATE))
        return CHARACTERS - found if value[0][0] is sre.NEGATE else found
    return CHARACTERS


def flat(items: Any) -> Iterator[list[tuple[str, frozenset[str]]]]:
    """Each way through a pattern, as ("once" or "many", the characters) of each of its items."""
    ways: list[list[tuple[str, frozenset[str]]]] = [[]]
    for op, value in items:
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            inner: list[list[tuple[str, frozenset[str]]]] = [[]]
        elif op is sre.SUBPATTERN:
            inner = list(flat(value[-1]))
        elif op is sre.BRANCH:
            inner = [way for one in value[1] for way in flat(one)]
        elif op in REPEATS:
            inner = list(flat(value[2]))
            every = frozenset().union(*(chars for way in inner for _kind, chars in way))
            if value[1] > FEW:
                nested = any(kind == "many" for way in inner for kind, _chars in way)
                # A repeat within a repeat shares a stretch with itself, unless something that
                # cannot be in it lies between two turns.
                inner = [
                    [("many", every)] * (1 + 2 * any(_loops(way) for way in inner))
                    if nested
                    else [("many", every)]
                ]
            elif not value[0]:
                inner = [[], *inner]
        else:
            inner = [[("once", characters(op, value))]]
        ways = [[*way, *more] for way in ways for more in inner]
    yield from ways


def _loops(way: list[tuple[str, frozenset[str]]]) -> bool:
    """Whether two turns of a repeat may share a stretch of one repeat within it."""
    return any(kind == "many" and all(chars & other for _kind, other in way) for kind, chars in way)


def degree(pattern: str, flags: int = 0) -> int:
    """With which power of a text's length the time grows; 1 if it does as the text does."""
    items = list(parser.parse(pattern, flags))
    anchored = bool(items) and items[0][0] in (sre.AT, sre.ASSERT, sre.ASSERT_NOT)
    worst = 1
    for way in flat(items):
        for first, (kind, chars) in enumerate(way):
            if kind != "many":
                continue
            shared, count = chars, 1
            for other_kind, other in way[first + 1 :]:
                if not shared & other:
                    break
                if other_kind == "many":
                    shared, count = shared & other, count + 1
            # A search begins again at each place that may be within the first repeat.
            begins = not anchored and all(one & chars for _kind, one in way[:first])
            worst = max(worst, count + begins)
    return worst


def text_of(node: ast.expr, known: dict[str, str]) -> str | None:
    """The text of a constant or an f-string; None of anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [
            text_of(part, known)
            if isinstance(part, ast.Constant)
            else known.get(part.value.id, PART)
            if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
            else PART
            for part in node.values
        ]
        return "".join(part or "" for part in parts)
    return None


def patterns() -> Iterator[tuple[str, str]]:
    """(where, text) of each pattern in plugins."""
    for file in sorted(PLUGINS.rglob("*.py")):
        tree = ast.parse(file.read_text())
        known = {
            node.targets[0].id: text
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            for text in [text_of(node.value, {})]
            if text is not None
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and (node.func.value.id, node.func.attr in FUNCTIONS) == ("re", True)
            ):
                text = text_of(node.args[0], known)
                if text is not None:
                    yield f"{file.relative_to(PLUGINS)}:{node.lineno}", text


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"[\w.-]*(?:secret|akid)[\w.-]*=", 3),
        (r"(?<![\w.-])[\w.-]+", 1),
        (r"://(\S*)@", 2),
        (r"^a*b", 1),
        (r"\s*,\s*", 2),
        (r"(a+)+", 4),
        (r"(?:a+,)*", 2),
        (r"(?:a+|b)*", 4),
        (r"a{1,20}", 1),
    ],
)
def test_the_degree_of_a_pattern(pattern: str, expected: int) -> None:
    assert degree(pattern) == expected


def test_no_pattern_takes_cubic_time() -> None:
    found = list(patterns())
    assert len(found) > 50
    costly = {where.partition(":")[0]: text for where, text in found if degree(text) > 2}
    assert sorted(costly) == sorted(BOUNDED), costly
