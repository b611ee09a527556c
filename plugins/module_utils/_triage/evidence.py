# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a finding of triage shows of the objects and messages it was made from.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Callable, TypeVar

from .._core.shortening import MAX_ITEMS
from .._kube.events import Message
from .._kube.objects import Attachment, Claim, Node, Pod, unique_name
from .state import Seen, TriageState, elapsed, node_state

# Messages that a finding shows of one object.
MAX_MESSAGES = 10

T = TypeVar("T")


def evidence_of(seen: Seen, state: TriageState) -> dict[str, Any]:
    """What was read about a pod, verbatim; a part that has nothing to show is left out."""
    pod, node = seen.pod, state.seen.nodes.get(seen.pod.node)
    newest_first = sorted(
        [*seen.waiting, *state.messages.get(pod.uid, ())],
        key=lambda message: message.last or state.now,
        reverse=True,
    )
    claims = state.claims_of(pod)
    said_of_claims = (
        text
        for _name, claim in claims
        if claim
        for text in _described(state.messages.get(claim.uid, ()), state.now)
    )
    parts: dict[str, Any] = {
        "phase": "Terminating" if pod.deleted else pod.phase,
        "messages": _described(newest_first, state.now),
        "claims": _first(claims, lambda known: f"{known[0]}: {_claim_state(known[1], state)}"),
        "claim_messages": list(islice(said_of_claims, MAX_ITEMS)),
        "attachments": _first(
            [
                attachment
                for volume in state.bound(pod)
                for attachment in state.seen.by_volume.get(volume.name, ())
            ],
            lambda attachment: _attachment_state(attachment, state.now),
        ),
        "node": f"{pod.node} {node_state(node)}" if pod.node else "",
    }
    # A phase is always there; without it a reader could not tell a waiting from an ending pod.
    shown = {name: part for name, part in parts.items() if part or name == "phase"}
    return {**shown, **_node_lists(pod, node, state)}


def _first(items: Sequence[T], tell: Callable[[T], str]) -> list[str]:
    """As many as a finding shows, and how many more there are."""
    # The others are not even made into texts, since a tenant's pod may have 50,000 claims.
    most = MAX_ITEMS - 1 if len(items) > MAX_ITEMS else MAX_ITEMS
    left = len(items) - most
    return [tell(item) for item in items[:most]] + ([f"(+{left} more)"] if left > 0 else [])


def _node_lists(pod: Pod, node: Node | None, state: TriageState) -> dict[str, list[str]]:
    """Which of the pod's volumes the node's status lists; empty lists say that it lists none."""
    # volumesAttached is written by the controller manager, volumesInUse by the kubelet; which of
    # them lacks a volume shows whose turn it is.
    names = [
        unique_name(*volume.disk)
        for volume in state.bound(pod)
        if state.driver_of(volume, pod.node)
    ]
    if not node or not names:
        return {}
    return {
        "volumes_attached": [name for name in names if name in node.volumes_attached],
        "volumes_in_use": [name for name in names if name in node.volumes_in_use],
    }


def _described(messages: Iterable[Message], now: datetime) -> list[str]:
    return [_describe(message, now) for message in list(messages)[:MAX_MESSAGES]]


def _describe(message: Message, now: datetime) -> str:
    times = f" x{message.times}" if message.times > 1 else ""
    when = f" {elapsed(now, message.last)} ago" if message.last else ""
    return f"{message.reason}{times}{when}: {message.text}"


def _claim_state(claim: Claim | None, state: TriageState) -> str:
    if claim is None:
        return "does not exist"
    if not state.is_bound(claim):
        if claim.phase == "Bound":
            return f"Bound, but {claim.volume} does not name it"
        wanted = f", to be bound to {claim.volume}" if claim.volume else ""
        return f"{claim.phase or 'not bound'}{wanted}"
    volume = state.seen.volumes.get(claim.volume)
    if volume is None:
        return f"bound to {claim.volume}, which does not exist"
    return f"bound to {claim.volume}" + (
        f" ({volume.driver}, {volume.handle})" if volume.driver else ""
    )


def _attachment_state(attachment: Attachment, now: datetime) -> str:
    words = [
        f"{attachment.name} on {attachment.node}: "
        f"{'attached' if attachment.attached else 'not attached'}"
    ]
    # Only the keys: drivers put credentials and addresses of arrays into the values.
    if attachment.metadata:
        words.append(f"metadata {', '.join(attachment.metadata)}")
    if attachment.deleted:
        words.append(f"deleted {elapsed(now, attachment.deleted)} ago")
    for what, error in (
        ("attachError", attachment.attach_error),
        ("detachError", attachment.detach_error),
    ):
        if error:
            words.append(f"{what}: {error.message}")
    return ", ".join(words)
