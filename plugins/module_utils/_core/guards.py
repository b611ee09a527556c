# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds a run back: so much is broken that it may be an outage, and max_repairs. Pure: no I/O
here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Callable, TypeVar

from .codes import Reason
from .engine import Finding

K = TypeVar("K", bound=Hashable)


def is_most(broken: int, total: int) -> bool:
    """More than half. Also of one, two or three: a single one may be the only sign of an outage."""
    return 2 * broken > total


def most_of(broken: Mapping[K, int], total: Mapping[K, int]) -> list[K]:
    """The groups of which most is broken."""
    return [group for group, count in broken.items() if is_most(count, total[group])]


def majority(broken: int, total: int, what: str, unless: str, whose: str = "the node's") -> Reason:
    """Why what looks broken on a node is not repaired. ``unless``: what makes it no outage."""
    return Reason(
        "majority_broken",
        f"{broken} of {whose} {total} {what} look broken at once: that may be an outage. "
        f"If {unless}, set accept_majority",
    )


def too_many(limit: int, size: int = 1) -> Reason:
    """Why something is left for the next run. ``size``: as how many repairs it counts."""
    more = f", and this takes {size}" if size > 1 else ""
    return Reason(
        "too_many_repairs", f"max_repairs is {limit}{more}: run again for this one, or raise it"
    )


def limit_repairs(
    findings: Iterable[Finding], limit: int, size: Callable[[Finding], int] = lambda _one: 1
) -> list[Finding]:
    """Refuse the repairs beyond max_repairs, and return them."""
    refused, left = [], limit
    for finding in findings:
        needed = size(finding)
        # One may not fit while a smaller, later one does.
        if needed > left:
            finding.refuse(too_many(limit, needed))
            refused.append(finding)
        else:
            left -= needed
    return refused
