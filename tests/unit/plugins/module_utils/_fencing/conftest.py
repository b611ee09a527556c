# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""For each decision that a test of this folder has made: what another node says of itself takes no
refusal away.

A node may write any address into its own status, have its driver report it, and note it on any
image. So with such a claim nothing may be fenced, proven or moved that would not be without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    ClientAddress,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    DRIVER,
    MESSAGES,
    UNFENCED,
    NetworkFence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import NodeState
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.options import (
    Decision,
    FenceOptions,
)

# Of more addresses each is as good as another.
_MOST = 8
Asked = tuple[str, Any, NodeState, FenceOptions, Decision]
Claimed = tuple[str, NodeState, FenceOptions]


@pytest.fixture(autouse=True)
def _no_claim_takes_a_refusal_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decide each case of the test once more, with each claim beside."""
    asked: list[Asked] = []

    def watched(name: str, decide: Any) -> Any:
        def decided(state: NodeState, options: FenceOptions, *busy: str) -> Decision:
            decision: Decision = decide(state, options, *busy)
            # What neither is refused nor leaves anything out has nothing to lose.
            if not busy and any(found.verdict != "repair" for found in decision.plan.findings):
                asked.append((name, decide, state, options, decision))
            return decision

        return decided

    for name in ("intend", "confirm"):
        monkeypatch.setattr(pure, name, watched(name, getattr(pure, name)))
    yield
    for name, decide, state, options, before in asked:
        for what, claimed, given in _claims(state, options):
            after = decide(claimed, given)
            assert _allowed(after) <= _allowed(before), (
                f"{name} with {what}: {_told(before)} becomes {_told(after)}"
            )


def _allowed(decision: Decision) -> set[str]:
    """What may be done by this decision: which volumes it fences, and whether that is proven."""
    # A volume that is reported beside is no part of the fence.
    ledger = None if decision.plan.refusals else decision.ledger
    if ledger is None:
        return set()
    proven = {f"proven {name}" for name in ledger.volumes if ledger.phase != "intended"}
    return {*ledger.volumes, *proven, *ledger.addresses}


def _told(decision: Decision) -> str:
    return str([(found.verdict, found.code) for found in decision.plan.findings])


def _claims(state: NodeState, options: FenceOptions) -> Iterator[Claimed]:
    """The case with one more claim of the first other node: of each address that matters."""
    if not state.others:
        return
    first, *rest = state.others
    for address in sorted(_addresses(state, options))[:_MOST]:
        if address not in first.addresses:
            lying = first._replace(addresses=(*first.addresses, address))
            yield f"{address} in a status", state._replace(others=(lying, *rest)), options
        fence = _reported(first.node.name, address)
        yield (
            f"{address} reported by a driver",
            state._replace(fences=(*(state.fences or ()), fence)),
            options,
        )
        yield f"{address} noted", state, _noted(options, first.node.name, address)


def _addresses(state: NodeState, options: FenceOptions) -> set[str]:
    """Where any client is, or was, and what the node itself has."""
    reading = options.reading
    images = reading.images if reading else ()
    return {
        *(watcher.address for image in images for watcher in image.watchers),
        *(lock.address for image in images for lock in image.locks),
        *(one.address for files in (reading and reading.files) or () for one in files.sessions),
        *(record.address for record in state.records.found.values()),
        *(state.host.addresses if state.host else ()),
        *(state.ledger.addresses if state.ledger else ()),
        *options.fence_addresses,
    }


def _reported(node: str, address: str) -> NetworkFence:
    told = (UNFENCED, "Succeeded", MESSAGES[UNFENCED])
    name, uid = f"storage-ops-{node}", f"uid-of-a-claim-{node}"
    ranges = (f"{address}/{128 if ':' in address else 32}",)
    # Of another Ceph, so that it is no way to fence by.
    return NetworkFence(name, uid, "another", "another", ranges, *told, None, None, "", DRIVER)


def _noted(options: FenceOptions, node: str, address: str) -> FenceOptions:
    if options.reading is None:
        return options
    note = ClientAddress(node, address)
    images = tuple(
        image._replace(client_addresses=(*image.client_addresses, note))
        for image in options.reading.images
    )
    return options.__class__(
        **{**vars(options), "reading": options.reading._replace(images=images)}
    )
