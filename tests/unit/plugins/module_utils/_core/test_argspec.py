# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all modules do with the options that users give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.argspec import (
    NO_LIMIT,
    POSITIVE,
    check_numbers,
    given_names,
    given_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption


@pytest.mark.parametrize(
    ("value", "bound", "fits"),
    [
        (0.5, 1, "at least 1"),
        (float("nan"), 1, "at least 1"),
        (float("inf"), 1, "at least 1"),
        (61, (1, 60), "1 to 60"),
        (0, (1, 60), "1 to 60"),
        (0.0, POSITIVE, "more than 0"),
        (float("nan"), POSITIVE, "more than 0"),
        (1, 31_536_000, "at least 31536000"),
    ],
)
def test_numbers_that_fit_nothing(value: float, bound: Any, fits: str) -> None:
    with pytest.raises(BadOption, match=f"seconds is .*; give {fits}$"):
        check_numbers({"seconds": value}, {"seconds": bound})


def test_numbers_that_fit() -> None:
    check_numbers({"seconds": 1, "left_out": None}, {"seconds": (1, 1), "left_out": 3, "other": 3})
    check_numbers({"seconds": 1e-9}, {"seconds": POSITIVE})


@dataclass(frozen=True)
class Limited:
    name: str = "default"
    max_repairs: int = 10


@dataclass(frozen=True)
class Unlimited:
    name: str = "default"


def test_what_is_not_given_has_its_default() -> None:
    assert given_options(Unlimited, {"name": None, "other": 1}) == {}
    assert given_options(Unlimited, {"name": ""}) == {"name": ""}
    assert given_options(Limited, {"name": "x", "max_repairs": 0}) == {
        "name": "x",
        "max_repairs": 0,
    }


def test_what_repairs_nothing_has_no_limit() -> None:
    assert given_options(Limited, {"name": "x"}) == {"name": "x", "max_repairs": NO_LIMIT}


def test_names() -> None:
    given = {"nodes": [" a ", "b", "a"], "pods": None}
    assert given_names(given, "nodes", "pods", "left_out") == {
        "nodes": ("a", "b"),
        "pods": (),
        "left_out": (),
    }
    assert given_names(given, "nodes", strip=False) == {"nodes": (" a ", "b", "a")}


def test_an_empty_name() -> None:
    with pytest.raises(BadOption, match="^nodes has an empty name; leave the option out"):
        given_names({"nodes": ["a", " "]}, "nodes")
    assert given_names({"paths": [" "]}, "paths", strip=False) == {"paths": (" ",)}
    with pytest.raises(BadOption, match="^paths has an empty name; name it$"):
        given_names({"paths": [""]}, "paths", strip=False, otherwise="name it")
