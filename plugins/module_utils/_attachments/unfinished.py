# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that workload_reattach still keeps new pods off: it runs, or it was killed.

Pure: no I/O here.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import NamedTuple

from .._core import untrusted
from .._core.engine import Finding
from .._kube.objects import Node, age, parse_time
from .findings import duration
from .state import AttachmentState

# Moves of a node, and claims of a move, that are told: a kubelet may have written any number.
_MOST_MOVES = 10
_MOST_CLAIMS = 20


def unfinished_moves(state: AttachmentState) -> list[Finding]:
    """One finding for each move that a node's annotations tell about."""
    return [finding for node in state.first.nodes.values() for finding in _of_node(node, state)]


def _of_node(node: Node, state: AttachmentState) -> list[Finding]:
    # Several moves may hold one node, each with its own annotation. Any text may be there, so what
    # cannot be read is left out, and not an error of the audit.
    moves = filter(None, map(_read, node.cordons))
    found = [_unfinished_move(node, move, state) for move in islice(moves, _MOST_MOVES)]
    left = sum(1 for _move in moves)
    if left:
        found[-1].evidence["more"] = left
    return found


class Move(NamedTuple):
    """A move of pods, as the annotation of the node has it; its kubelet may have written that."""

    namespace: str
    claims: list[str]
    by: str
    since: datetime | None


def _read(text: str) -> Move | None:
    """The annotation; None where it has another form than ours."""
    try:
        cordon = untrusted.from_json(text)
        claims = cordon["claims"]
        # A text is iterated as well, letter by letter.
        if not isinstance(claims, list):
            return None
        return Move(
            str(cordon["namespace"]),
            [str(claim) for claim in claims],
            str(cordon["by"]),
            parse_time(str(cordon["since"])),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _unfinished_move(node: Node, move: Move, state: AttachmentState) -> Finding:
    # No command to be copied: a kubelet would choose whose pods the operator moves. Node
    # authorization lets a kubelet change the annotations of its own Node
    # (plugin/pkg/admission/noderestriction/admission.go).
    # Cut before they are put together: the annotations of a node have 256 KiB
    # (TotalAnnotationSizeLimitB of k8s.io/apimachinery/pkg/api/validation), and a namespace of half
    # of that with each of 30,000 claims is 4 GB.
    namespace, claims = untrusted.shown(move.namespace, 253), move.claims
    who = f"{untrusted.shown(move.by, 100)} {duration(age(state.now, move.since))} ago"
    return Finding(
        # It is no fault of storage, but explains why pods of these claims stay Pending.
        control="",
        severity="major",
        kind="node",
        name=node.name,
        node=node.name,
        summary=f"node {node.name} takes no new pods since {who}, to move those of "
        f"{untrusted.shown(namespace, 100)}/{untrusted.shown(', '.join(claims), 500)}",
        reason="an annotation of the node says so, which its kubelet may have written too: check "
        "whether there was such a run. If there was, and it has ended, the module "
        "workload_reattach finishes it and frees the node, for these claims",
        # By these the scope knows whose pods wait. Not the turns: the kubelet may have written
        # them, and in the name of any namespace.
        evidence={
            "claims": [
                f"{namespace}/{untrusted.shown(claim, 253)}" for claim in claims[:_MOST_CLAIMS]
            ],
        },
    )
