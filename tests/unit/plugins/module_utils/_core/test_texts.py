# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines, words and numbers, of what may have separators and digits of Unicode in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import texts, untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs.plan import port_of

# All at which str.splitlines() and str.split() split, and that no kernel takes for a separator.
OTHERS = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"


@pytest.mark.parametrize("one", OTHERS)
def test_separators_of_unicode_are_characters_as_others(one: str) -> None:
    text = f"a{one}b"
    assert texts.lines(text) == texts.words(text) == [text]
    assert texts.stripped(one) == one


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\nb", "a\n\nb\n\n", "\na"])
def test_lines_are_those_of_python_where_only_line_feeds_are(text: str) -> None:
    assert texts.lines(text) == text.splitlines()


@given(st.text(alphabet="a \t\n\r\v\f"))
def test_words_are_those_of_python_where_only_blanks_of_ascii_are(text: str) -> None:
    assert texts.words(text) == text.split()
    assert texts.stripped(text) == text.strip()


@pytest.mark.parametrize("text", ["", "\u00b2", "\u0663", "1\u0663", "-1", " 1", "1_0"])
def test_what_is_no_number(text: str) -> None:
    assert not texts.is_number(text)


def test_a_number() -> None:
    assert texts.is_number("0123456789")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", []),
        ("\r\n \n", []),
        ("sudo: a password is required\r\n", ["sudo: a password is required"]),
        ("warning\n\nsudo: no\n", ["warning", "sudo: no"]),
        ("a\nb\nc\nd\n", ["a", "b", "d"]),
        ("Traceback (most recent call last):\n  File\nKeyError: 'x'\n", ["KeyError: 'x'"]),
        ("Traceback", ["Traceback"]),
        ("Traceback\nKeyError: 1\ncommand terminated with exit code 1\n", ["KeyError: 1"]),
        ("command terminated with exit code 126\n", ["command terminated with exit code 126"]),
    ],
)
def test_what_is_read_of_a_program_that_did_not_do_its_work(text: str, told: list[str]) -> None:
    assert texts.telling(text) == told


def test_a_digit_of_unicode_ends_nothing() -> None:
    """``²`` is a digit, by str.isdigit(), of which int() makes no number."""
    assert port_of(["port=\u00b2"]) == 2049
    assert port_of(["port=\u0663\u0663"]) == 2049


@pytest.mark.parametrize("one", OTHERS)
def test_a_password_with_a_blank_of_unicode_is_masked(one: str) -> None:
    assert untrusted.masked(f"at ftp://user:pass{one}word@host/x") == "at ftp://********@host/x"
