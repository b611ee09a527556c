# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which workloads are still moved after moves have failed. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# A driver that publishes nothing fails in every namespace; a pod that never becomes Ready fails in
# its owner's alone. So one namespace proves nothing about the driver.
_NAMESPACES = 2


def withheld(workload: Mapping[str, Any], failed: Iterable[Mapping[str, Any]]) -> str:
    """Why a workload is not moved after the moves of ``failed``; empty if it is.

    Both are the ``workload`` of findings; a failed one may have the ``code`` of its failure. One
    with volumes of several drivers counts for each.
    """
    moves = list(failed)
    # Whoever ends a run does not want the next move.
    if any(move.get("code") == "interrupted" for move in moves):
        return "the run was interrupted"
    for driver in workload["drivers"]:
        namespaces = sorted({move["namespace"] for move in moves if driver in move["drivers"]})
        if len(namespaces) >= _NAMESPACES:
            told = " and ".join(namespaces[:_NAMESPACES])
            return f"moves in the namespaces {told} failed with the driver {driver}"
        if workload["namespace"] in namespaces:
            return f"a move in its namespace failed with the driver {driver}"
    return ""
