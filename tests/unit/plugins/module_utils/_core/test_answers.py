# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a survey, an extra variable or the inventory gave for an option."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import answers
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

WORDS = {"type": "list", "elements": "str", "default": []}
LINES = {"type": "list", "elements": "path", "default": []}
SWITCH = {"type": "raw", "default": False}
ON = {"type": "raw", "default": True}
NUMBER = {"type": "raw", "default": 300}
TEXT = {"type": "str", "default": ""}
DATA = {"type": "raw", "default": {}}
LIST = {"type": "raw", "default": []}
DICTS = {"type": "list", "elements": "dict", "default": []}


def value(option: dict[str, Any], given: Any) -> Any:
    return answers.read({"r_o": option}, {"r_o": given}).get("r_o")


@pytest.mark.parametrize(
    ("option", "given", "wanted"),
    [
        (WORDS, "10.0.0.5, 10.0.0.6\nfd00::5", ["10.0.0.5", "10.0.0.6", "fd00::5"]),
        (WORDS, ["a", "b,c", ["d"]], ["a", "b", "c", "d"]),
        (WORDS, 7, ["7"]),
        (LINES, "/var/lib/a b\n /c,d \n\n", ["/var/lib/a b", "/c,d"]),
        (LINES, ["/a b"], ["/a b"]),
        (SWITCH, "Yes", True),
        (SWITCH, "1", True),
        (SWITCH, True, True),
        (ON, "off", False),
        (ON, "0", False),
        (ON, False, False),
        (NUMBER, "0", "0"),
        (NUMBER, 0, 0),
        (NUMBER, " 2.5 ", "2.5"),
        (TEXT, " n1 ", "n1"),
        (DATA, '{"a": ["b"]}', {"a": ["b"]}),
        (DATA, "a: [b]\n", {"a": ["b"]}),
        (DATA, {"a": 1}, {"a": 1}),
        (DATA, "{}", None),
        (LIST, "[]", None),
        (LIST, '[{"a": 1}]', [{"a": 1}]),
        (DICTS, [{"a": 1}], [{"a": 1}]),
    ],
)
def test_an_answer(option: dict[str, Any], given: Any, wanted: Any) -> None:
    assert value(option, given) == wanted


@pytest.mark.parametrize("given", ["", "  ", None])
@pytest.mark.parametrize("option", [WORDS, LINES, SWITCH, ON, NUMBER, TEXT, DATA, LIST, DICTS])
def test_no_answer_is_the_default_and_nothing_where_that_is_empty(
    option: dict[str, Any], given: Any
) -> None:
    read = answers.read({"r_o": option}, {"r_o": given})
    default = option["default"]
    assert read == ({} if default in ("", [], {}) and default is not False else {"r_o": default})
    assert read == answers.read({"r_o": option}, {})


def test_no_repairs_is_not_the_default() -> None:
    assert value({"type": "raw", "default": 10}, 0) == 0
    assert value({"type": "raw", "default": 10}, "0") == "0"


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        (SWITCH, "flase", "must be true or false, not 'flase'"),
        (SWITCH, 2, "must be true or false, not 2"),
        (ON, ["true"], "must be true or false, not ['true']"),
        (NUMBER, "soon", "must be a number, not 'soon'"),
        (NUMBER, "nan", "must be a number, not 'nan'"),
        (NUMBER, "inf", "must be a number, not 'inf'"),
        (NUMBER, True, "must be a number, not True"),
        (NUMBER, [3], "must be a number, not [3]"),
        (DATA, "[1]", "must be a dictionary, as JSON or YAML, not [1]"),
        (DATA, "{a", "must be a dictionary, as JSON or YAML: "),
        (LIST, "{}", "must be a list, as JSON or YAML, not {}"),
        (WORDS, {"a": 1}, "must be a list, not a dictionary"),
        (WORDS, [""], "names nothing and is not empty: ['']"),
        (WORDS, " , ", "names nothing and is not empty: ','"),
        (WORDS, [[]], "names nothing and is not empty: [[]]"),
        (LINES, [" "], "names nothing and is not empty: [' ']"),
    ],
)
def test_an_answer_that_does_not_fit(option: dict[str, Any], given: Any, said: str) -> None:
    with pytest.raises(StorageOpsError) as raised:
        value(option, given)
    assert f"Nothing was touched: r_o {said}" in str(raised.value)
    assert raised.value.code == "bad_option"


def test_all_that_does_not_fit_is_told_at_once_and_shortly() -> None:
    with pytest.raises(StorageOpsError) as raised:
        answers.read({"a": SWITCH, "b": NUMBER, "c": TEXT}, {"a": "x" * 10_000, "b": "y", "c": "z"})
    told = str(raised.value)
    assert "a must be true or false" in told and "b must be a number, not 'y'" in told
    assert len(told) < 500


@given(
    strategies.sampled_from([WORDS, LINES, SWITCH, NUMBER, TEXT, DATA, LIST]),
    strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.floats() | strategies.text(),
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    ),
)
def test_whatever_is_given_fits_or_is_refused(option: dict[str, Any], given: Any) -> None:
    told = ""
    try:
        answers.read({"r_o": option}, {"r_o": given})
    except StorageOpsError as error:
        told = str(error)
    assert not told or told.startswith(
        ("Nothing was touched: r_o must be ", "Nothing was touched: r_o names nothing")
    )
