# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text from nodes is bounded, and shows what it holds instead of doing it."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import clean


class Tagged(str):
    """As Ansible's own strings, which are more than one."""


@given(st.text())
def test_nothing_unprintable_is_left(given_text: str) -> None:
    shown = clean.text(given_text)
    assert not [
        letter
        for letter in shown
        if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"
    ]
    shown.encode()
    assert "\n" not in clean.line(given_text)


def test_what_is_shown() -> None:
    assert clean.text("a\x1b[31mb\u202ec\ud800") == r"a\x1b[31mb\u202ec\ud800"
    assert clean.text("x" * 5_000).endswith(" (+1000 more characters)")
    assert not isinstance(clean.text(Tagged("x")), Tagged) and not isinstance(
        clean.plain([Tagged("x")])[0], Tagged
    )
    assert clean.plain({"a": list(range(300)), 1: float("nan"), "big": 2**70}) == {
        "a": [*range(200), "(+100 more)"],
        "1": "nan",
        "big": str(2**70),
    }
    assert len(clean.plain({str(number): number for number in range(300)})) == 201


def test_depth_has_an_end() -> None:
    deep: Any = "x"
    for _level in range(5_000):
        deep = [deep]
    assert "more below" in json.dumps(clean.plain(deep))
