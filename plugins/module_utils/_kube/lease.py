# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases as locks, and the only code that takes, renews and gives back one.

A Lease is created, which fails where its name is taken, or renewed under its uid and
resourceVersion, so of two runs that find it free the API server lets one through. Every holder has
a Lease of its own, so that one which comes back late can neither renew nor delete another's. Times
are the API server's, whose clock is the only one that all runs see.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Callable, TypeVar

from .._core.errors import StorageOpsError
from .changing import delete_exactly
from .client import Cluster, Object, path
from .objects import Lease, pick_lease
from .own import LABELS, create_own, selector

T = TypeVar("T")
_VERSION = "coordination.k8s.io/v1"


class Leases:
    """Those of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def title(self, name: str) -> str:
        """As messages name it."""
        return f"Lease {self._namespace}/{name}"

    def get(self, cluster: Cluster, name: str) -> Lease | None:
        """The Lease of that name as it is now. Raises StorageOpsError if its end is unknown."""
        item = cluster.get(self._path(name))
        lease = pick_lease(item) if item else None
        if item and lease and lease.renewed is None and (item.get("spec") or {}).get("renewTime"):
            raise StorageOpsError(
                f"the {self.title(name)} has a renewTime that is no time, so a run may be at "
                "work: delete it when none is",
                code="evidence_unreadable",
            )
        return lease

    def all(
        self, cluster: Cluster, pick: Callable[[Object], T | None], labels: Mapping[str, str]
    ) -> list[T]:
        """What ``pick`` makes of those that have these labels."""
        # A label selector is evaluated by the API server, so other Leases are not even sent.
        return cluster.list(self._path(), pick, labels=selector(labels))

    def take(
        self,
        cluster: Cluster,
        name: str,
        holder: str,
        seconds: float,
        over: Lease | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> float:
        """Create it for so many seconds, in the place of one that is ``over``; returns when it
        ends at the earliest, by the clock of the cluster's deadline.

        Raises Conflict where another run was quicker.
        """
        if over:
            if dry_run:
                return 0.0  # the one that is over is there still: a creation would be refused
            self.give_back(cluster, over)
        term = _Term(cluster, seconds)
        # acquireTime is a MicroTime, and leaseDurationSeconds must be positive (ValidateLeaseSpec
        # of pkg/apis/coordination/validation/validation.go).
        body: Object = {
            "apiVersion": _VERSION,
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": dict(labels or LABELS),
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "holderIdentity": holder,
                "acquireTime": _now(cluster),
                **term.begin(),
            },
        }
        create_own(cluster, self._path(), body, dry_run)
        return term.end()

    def renew(self, cluster: Cluster, lease: Lease, seconds: float) -> float:
        """Have it for so many more seconds; returns as ``take`` does.

        Raises Conflict or NotFound where it was changed, or deleted, since it was read.
        """
        meta = {"uid": lease.uid, "resourceVersion": lease.version}
        term = _Term(cluster, seconds)
        # Made for each try: a renewal that comes through late is no older for it.
        cluster.patch(self._path(lease.name), lambda: {"metadata": meta, "spec": term.begin()})
        return term.end()

    def give_back(self, cluster: Cluster, lease: Lease, dry_run: bool = False) -> None:
        """Delete exactly that one, unless it was renewed since it was read."""
        # Its uid stays the same when its owner, who is late, renews it.
        where = self._path(lease.name)
        delete_exactly(cluster, where, lease.uid, dry_run, version=lease.version)

    def _path(self, name: str = "") -> str:
        return path(_VERSION, "leases", name, self._namespace)


def read_leader(cluster: Cluster) -> Lease | None:
    """The Lease of the controller manager that leads."""
    # It has the name of its component (LeaderElection.ResourceName of
    # cmd/kube-controller-manager/app/options/options.go).
    item = cluster.get(path(_VERSION, "leases", "kube-controller-manager", "kube-system"))
    return pick_lease(item) if item else None


class _Term:
    """For how long a Lease is had, from the last try of the request that takes or renews it on."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster, self._seconds = cluster, max(1, round(seconds))
        self._sent = 0.0
        self._renewed = cluster.now()

    def begin(self) -> Object:
        """The fields of its spec, as they are sent now."""
        self._sent, self._renewed = self._cluster.deadline.clock(), self._cluster.now()
        return {"renewTime": _time(self._renewed), "leaseDurationSeconds": self._seconds}

    def end(self) -> float:
        """Once the request was answered: when it ends at the earliest, by the clock of the
        cluster's deadline.
        """
        # What we took for the API server's time may have been behind it, as after an answer that
        # was long on its way. The answer to this request tells: it was given after the request was
        # sent, at a time that is now known, in whole seconds.
        behind = (self._cluster.now() - self._renewed).total_seconds()
        return self._sent + self._seconds - behind - 1.0


def _now(cluster: Cluster) -> str:
    return _time(cluster.now())


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
