# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence, and other lists of a finding, in a result that has little room. Pure: no I/O here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import untrusted

MAX_ITEMS = 50
# The evidence of one finding, where the result is too long, and each value that stays of it.
MAX_EVIDENCE = 20_000
MAX_VALUE = 4_000
# Of each text in such a value: to show some of them serves more than to show one.
MAX_TEXT = 500
# What playbooks, and the report, decide by. It stays where other evidence has no room, or whoever
# makes a result long would decide for others.
DECIDING = frozenset(
    {
        *("attachment", "bugs", "claim", "claims", "leader", "phase", "pod", "pods", "proof"),
        *("uid", "version", "volume", "volumes", "wwid", "wwids"),
    }
)


def clip(value: Any) -> Any:
    """``value`` with every long list cut to MAX_ITEMS and a last item that counts the rest."""
    if isinstance(value, dict):
        return {key: clip(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        kept = [clip(item) for item in value[:MAX_ITEMS]]
        left = len(value) - len(kept)
        return kept + [f"(+{left} more)"] if left > 0 else kept
    return value


def deciding(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """What of it is DECIDING, each value in MAX_VALUE."""
    told = {
        key: fitting(value, MAX_VALUE)
        if isinstance(value, (list, tuple))
        else untrusted.clean(clip(value))
        for key, value in evidence.items()
        if key in DECIDING
    }
    return {key: value for key, value in told.items() if length(value) <= MAX_VALUE}


def shortened(evidence: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence as it is told, in about MAX_EVIDENCE: of the longest values the beginning."""
    short, excess = dict(told), length(told) - MAX_EVIDENCE
    for key in sorted(told, key=lambda name: length(told[name]), reverse=True):
        if excess <= 0:
            break
        value = evidence.get(key, told[key])
        if isinstance(value, (list, tuple)):
            # What playbooks decide by is whole, or is left out.
            each = untrusted.MAX_SHOWN if key in DECIDING else MAX_TEXT
            short[key] = fitting(value, MAX_VALUE, each=each)
        elif length(told[key]) > MAX_VALUE:
            short[key] = f"(+{length(told[key])} characters)"
        excess += length(short[key]) - length(told[key])
    return short


def fitting(
    items: Sequence[Any], most: int, number: int = MAX_ITEMS, each: int = untrusted.MAX_SHOWN
) -> list[Any]:
    """The first so many that have room in so many characters, and a last item that counts the
    rest. ``each``: characters of each text in them.
    """
    kept: list[Any] = []
    for item in items[:number]:
        told = untrusted.clean(clip(item), each)
        most -= length(told) + 2
        if most < 0:
            break
        kept.append(told)
    left = len(items) - len(kept)
    return [*kept, f"(+{left} more)"] if left > 0 else kept


def length(value: Any) -> int:
    """Its characters in the result."""
    return len(json.dumps(value))
