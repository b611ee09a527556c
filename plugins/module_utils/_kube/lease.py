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
    ) -> None:
        """Create it for so many seconds, in the place of one that is ``over``.

        Raises Conflict where another run was quicker.
        """
        if over:
            if dry_run:
                return  # the one that is over is there still, so a creation would be refused
            self.give_back(cluster, over)
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
                **_renewal(cluster, seconds),
            },
        }
        create_own(cluster, self._path(), body, dry_run)

    def renew(self, cluster: Cluster, lease: Lease, seconds: float) -> None:
        """Have it for so many more seconds. Raises Conflict or NotFound where it was changed, or
        deleted, since it was read.
        """
        meta = {"uid": lease.uid, "resourceVersion": lease.version}
        body = {"metadata": meta, "spec": _renewal(cluster, seconds)}
        cluster.patch(self._path(lease.name), body)

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


def _renewal(cluster: Cluster, seconds: float) -> Object:
    return {"renewTime": _now(cluster), "leaseDurationSeconds": max(1, round(seconds))}


def _now(cluster: Cluster) -> str:
    return f"{cluster.now():%Y-%m-%dT%H:%M:%S.%fZ}"
