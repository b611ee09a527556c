# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text and data from nodes made fit to be shown. Pure: no I/O here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A node may answer anything; what a page can show and a person can read is far less.
MAX_TEXT = 4_000
MAX_ITEMS = 200
MAX_DEPTH = 8

# Control characters, surrogates, and what changes the direction of writing: they fake or break what
# is shown. XML 1.0 (section 2.2, Characters) forbids most of them.
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)


def text(value: Any, most: int = MAX_TEXT) -> str:
    """The value as text that can be shown anywhere; what is cut is counted."""
    whole = value if isinstance(value, str) else str(value)
    if len(whole) > most:
        whole = f"{whole[:most]} (+{len(whole) - most} more characters)"
    # Ansible's strings are subclasses that json and templates treat specially; this makes plain
    # ones.
    return _UNFIT.sub(_visible, whole) if _UNFIT.search(whole) else str.__str__(whole)


def line(value: Any, most: int = MAX_TEXT) -> str:
    """The same on one line."""
    return " ".join(text(value, most).split())


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Data of JSON's types only, none of it without bounds."""
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # JavaScript reads numbers as doubles, which hold integers up to 2**53 exactly (RFC 8259,
        # 6).
        return int(value) if -(2**53) < value < 2**53 else str(value)
    if isinstance(value, float):
        # JSON has neither infinity nor NaN (RFC 8259, 6); for both the difference is NaN.
        return float(value) if value - value == 0 else str(value)
    if depth == 0:
        return "(more below)"
    if isinstance(value, Mapping):
        return _plain_mapping(value, depth - 1)
    if isinstance(value, (list, tuple)):
        kept = [plain(item, depth - 1) for item in value[:MAX_ITEMS]]
        return [*kept, f"(+{len(value) - MAX_ITEMS} more)"] if len(value) > MAX_ITEMS else kept
    return text(value)


def _plain_mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    items = list(value.items())
    whole = {text(key, 200): plain(item, depth) for key, item in items[:MAX_ITEMS]}
    if len(items) > MAX_ITEMS:
        whole["more"] = f"(+{len(items) - MAX_ITEMS} more)"
    return whole


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
