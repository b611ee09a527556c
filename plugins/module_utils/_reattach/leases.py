# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Leases by which a node that is held counts as held by workload_reattach.

What is noted on a Node may be its kubelet's (NodeRestriction lets it write its own annotations).
A kubelet may write Leases in the namespace kube-node-lease alone, so the ledger in a Lease of
another namespace is the one that counts, as with a fence (see _fences/ledger.py). There is one for
each node and set of claims.

The lock is that of _kube/lease.py; only the ledger in its annotations is read and judged here. A
workload that was scaled down has the same ledger and no Lease, so the ledger has an end of its own,
and names a process, which may be known to have ended before that. A hold is not renewed: it lasts
as long as its run may.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .._core.engine import NotStarted
from .._kube.client import Cluster, Conflict
from .._kube.lease import Leases
from .._kube.objects import CORDON, HOLD, Lease, Node, parse_time, pick_lease
from .._kube.own import LABELS, object_name
from .records import HeldNode, MoveLedger, ledgers

_NODE, _UID = "runbooks.storage-ops/node", "runbooks.storage-ops/node-uid"
_LABELS = {**LABELS, HOLD: "true"}


class Kept(NamedTuple):
    """A ledger as its Lease has it. ``node``: name and uid."""

    node: tuple[str, str]
    ledger: MoveLedger
    lease: Lease


class HoldLeases:
    """Those of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._leases = Leases(namespace)

    def all(self, cluster: Cluster) -> list[Kept]:
        """Every ledger that is kept, of whatever node. One that cannot be read keeps nothing."""
        found = self._leases.all(cluster, _pick, _LABELS)
        return [kept for several in found for kept in several]

    def of(self, cluster: Cluster, node: Node) -> list[Kept]:
        """Those of a node, and not of one that had its name before."""
        # By uid, since a Node that was made again is not held by what was noted for the one before.
        return [kept for kept in self.all(cluster) if kept.node == (node.name, node.uid)]

    def take(
        self, cluster: Cluster, node: Node, ledger: MoveLedger, left: Iterable[Kept], dry_run: bool
    ) -> None:
        """Keep a ledger, in the place of what a run that is over has ``left``.

        Raises NotStarted where another run was quicker.
        """
        name = self.name_of(node, ledger)
        over = next((kept.lease for kept in left if kept.lease.name == name), None)
        since, until = parse_time(ledger.since), parse_time(ledger.until)
        seconds = (until - since).total_seconds() if since and until else 0
        noted = {ledger.key: ledger.value, _NODE: node.name, _UID: node.uid}
        holder = ledger.by or "unknown"
        try:
            self._leases.take(cluster, name, holder, seconds, over, _LABELS, noted, dry_run)
        except Conflict as error:
            raise NotStarted(
                f"another run has taken the {self._leases.title(name)}: run again",
                code="lease_held",
            ) from error

    def release(self, cluster: Cluster, kept: Kept) -> None:
        """Delete exactly that one."""
        self._leases.give_back(cluster, kept.lease)

    @staticmethod
    def name_of(node: Node, ledger: MoveLedger) -> str:
        """By node and claims."""
        # One Lease for a node and a set of claims: two moves of other claims do not exclude each
        # other.
        return object_name(node.name, f"move-{ledger.key.rpartition('.')[2]}")


def believed(host: HeldNode, kept: Iterable[Kept]) -> HeldNode:
    """With the ledgers that count: what our Leases say of a node that has our taint."""
    # Without the taint the node takes pods, so what a Lease says holds nothing any more.
    mine = [each.ledger for each in kept if each.node == (host.node.name, host.node.uid)]
    return host._replace(ledgers=tuple(mine) if host.held else ())


def _pick(item: dict[str, Any]) -> list[Kept]:
    # A Lease that another tool has made has none of these annotations.
    noted = item["metadata"].get("annotations") or {}
    node = (str(noted.get(_NODE) or ""), str(noted.get(_UID) or ""))
    if not all(node):
        return []
    return [Kept(node, ledger, pick_lease(item)) for ledger in ledgers(item, CORDON)]
