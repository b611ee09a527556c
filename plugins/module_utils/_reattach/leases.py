# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The Leases by which a node that is held counts as held by workload_reattach.

What is noted on a Node may be its kubelet's (NodeRestriction lets it write its own annotations).
A kubelet may write Leases in the namespace kube-node-lease alone, so the ledger in a Lease of
another namespace is the one that counts, as with a fence (see _fences/ledger.py). There is one for
each node and set of claims.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import NotStarted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    LABELS,
    object_name,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Cluster,
    Conflict,
    NotFound,
    path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    HOLD,
    Node,
    parse_time,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.own import create_own
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach.records import (
    CORDON,
    Host,
    Ledger,
    ledgers,
)

_NODE, _UID = "runbooks.storage-ops/node", "runbooks.storage-ops/node-uid"
_LABELS = {**LABELS, HOLD: "true"}


class Kept(NamedTuple):
    """A ledger as its Lease has it. ``node``: name and uid; ``uid``: of the Lease."""

    node: tuple[str, str]
    ledger: Ledger
    name: str
    uid: str


class HoldLeases:
    """Those of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._folder = path("coordination.k8s.io/v1", "leases", namespace=namespace)

    def all(self, cluster: Cluster) -> list[Kept]:
        """Every ledger that is kept, of whatever node. One that cannot be read keeps nothing."""
        # A label selector is evaluated by the API server, so other Leases are not even sent.
        found = cluster.list(
            self._folder, _pick, labels=",".join(f"{key}={text}" for key, text in _LABELS.items())
        )
        return [kept for several in found for kept in several]

    def of(self, cluster: Cluster, node: Node) -> list[Kept]:
        """Those of a node, and not of one that had its name before."""
        # By uid, since a Node that was made again is not held by what was noted for the one before.
        return [kept for kept in self.all(cluster) if kept.node == (node.name, node.uid)]

    def take(
        self, cluster: Cluster, node: Node, ledger: Ledger, left: Iterable[Kept], dry_run: bool
    ) -> str:
        """Keep a ledger, in the place of what a run that is over has ``left``; returns the Lease's
        name.

        Raises NotStarted where another run was quicker.
        """
        # create fails where the name is taken (409 AlreadyExists), so of two runs one wins.
        # acquireTime is a MicroTime, and leaseDurationSeconds must be positive (ValidateLeaseSpec
        # of pkg/apis/coordination/validation/validation.go).
        name = self.name_of(node, ledger)
        stale = [kept for kept in left if kept.name == name]
        since, until = parse_time(ledger.since), parse_time(ledger.until)
        seconds = round((until - since).total_seconds()) if since and until else 0
        noted = {ledger.key: ledger.value, _NODE: node.name, _UID: node.uid}
        body: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": _LABELS,
                "annotations": noted,
            },
            "spec": {
                "holderIdentity": ledger.by or "unknown",
                "acquireTime": f"{since:%Y-%m-%dT%H:%M:%S.%fZ}" if since else None,
                "leaseDurationSeconds": max(1, seconds),
            },
        }
        if dry_run and stale:
            return name
        for kept in stale:
            self.release(cluster, kept)
        try:
            create_own(cluster, self._folder, body, dry_run)
        except Conflict as error:
            raise NotStarted(
                f"another run has taken the Lease {self._namespace}/{name}: run again",
                code="lease_held",
            ) from error
        return name

    def release(self, cluster: Cluster, kept: Kept) -> None:
        """Delete exactly that one."""
        with contextlib.suppress(NotFound, Conflict):
            cluster.delete(f"{self._folder}/{kept.name}", kept.uid)

    @staticmethod
    def name_of(node: Node, ledger: Ledger) -> str:
        """By node and claims."""
        # One Lease for a node and a set of claims: two moves of other claims do not exclude each
        # other.
        return object_name(node.name, f"move-{ledger.key.rpartition('.')[2]}")


def believed(host: Host, kept: Iterable[Kept]) -> Host:
    """With the ledgers that count: what our Leases say of a node that has our taint."""
    # Without the taint the node takes pods, so what a Lease says holds nothing any more.
    mine = [each.ledger for each in kept if each.node == (host.node.name, host.node.uid)]
    return host._replace(ledgers=tuple(mine) if host.held else ())


def _pick(item: dict[str, Any]) -> list[Kept]:
    # A Lease that another tool has made has none of these annotations.
    meta = item["metadata"]
    noted = meta.get("annotations") or {}
    node = (str(noted.get(_NODE) or ""), str(noted.get(_UID) or ""))
    return (
        [Kept(node, ledger, meta["name"], meta["uid"]) for ledger in ledgers(item, CORDON)]
        if all(node)
        else []
    )
