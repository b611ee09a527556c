# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The Lease that keeps two runs from working at the same node at once."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import Callable, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import NotStarted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
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
    parse_time,
    shifted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.own import create_own

_POLL_SECONDS = 1.0


class _Held(NamedTuple):
    """The Lease as it is. ``until``: when it runs out unless it is renewed."""

    holder: str
    uid: str
    version: str
    until: datetime | None


class RunLease:
    """The Lease by which one run after another works at a node.

    Its modules share it by their run.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        node: str,
        run: str,
        seconds: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._run, self._seconds, self._sleep = cluster, run, seconds, sleep
        self._name, self._namespace, self._node = object_name(node), namespace, node
        self._folder = path("coordination.k8s.io/v1", "leases", namespace=namespace)

    def take(self, wait: float) -> None:
        """Take or renew it. While another run has it, wait until that one releases it or it runs
        out by the API server's clock.

        Raises StorageOpsError that names the holder after ``wait`` seconds, or when the deadline is
        near.
        """
        # The Lease is created, or replaced under its resourceVersion, so of two runs that find it
        # free the API server lets one through. Times are the API server's, whose clock is the only
        # one that all runs see.
        began = time.monotonic()
        while True:
            held = self._held()
            if held is None or held.holder == self._run or self._is_over(held):
                try:
                    return self._take(held)
                except (Conflict, NotFound):
                    pass  # another run was quicker
            elif time.monotonic() - began + _POLL_SECONDS > self._cluster.deadline.cap(wait):
                raise StorageOpsError(
                    f"{self._busy(held)}; {wait:g} s (lease_timeout) were "
                    "waited for it. Nothing was changed",
                    code="lease_held",
                )
            self._sleep(_POLL_SECONDS)

    def holder(self) -> str:
        """Who else works at the node right now, as a sentence; empty if none does.

        For check mode, which takes no Lease.
        """
        held = self._held()
        return (
            ""
            if held is None or held.holder == self._run or self._is_over(held)
            else self._busy(held)
        )

    def check(self) -> None:
        """Renew it. Raises NotStarted if it is ours no more."""
        # A run that was stopped for longer than its Lease lasts may find that another one has
        # worked in between, so it asks before each change.
        held = self._held()
        if held is None or held.holder != self._run:
            now = f"run {held.holder} has it now" if held else "it was deleted"
            raise NotStarted(
                f"this run has lost the Lease {self._namespace}/{self._name} ({now}), so another "
                "one may be at work: run again",
                code="lease_lost",
            )
        try:
            self._take(held)
        except (Conflict, NotFound) as error:
            raise NotStarted(
                f"this run has lost the Lease {self._namespace}/{self._name}: {error}. Run again",
                code="lease_lost",
            ) from error

    def release(self, dry_run: bool = False) -> None:
        """Delete it, if it is ours, or what a run that was killed has left of its own and that has
        run out.
        """
        held = self._held()
        if held is None or (held.holder != self._run and not self._is_over(held)):
            return
        with contextlib.suppress(NotFound, Conflict):
            self._cluster.delete(f"{self._folder}/{self._name}", held.uid, dry_run=dry_run)

    def _held(self) -> _Held | None:
        item = self._cluster.get(f"{self._folder}/{self._name}")
        if item is None:
            return None
        meta, spec = item["metadata"], item.get("spec") or {}
        renewed = parse_time(spec.get("renewTime"))
        if spec.get("renewTime") and renewed is None:
            raise StorageOpsError(
                f"the Lease {self._namespace}/{self._name} has a renewTime that is no time, so a "
                f"run may be at work at node {self._node}: delete it when none is",
                code="evidence_unreadable",
            )
        until = shifted(renewed, spec.get("leaseDurationSeconds") or 0) if renewed else None
        return _Held(spec.get("holderIdentity") or "", meta["uid"], meta["resourceVersion"], until)

    def _is_over(self, held: _Held) -> bool:
        return not held.holder or held.until is None or self._cluster.now() > held.until

    def _take(self, held: _Held | None) -> None:
        now = f"{self._cluster.now():%Y-%m-%dT%H:%M:%S.%fZ}"
        where = f"{self._folder}/{self._name}"
        # Every holder has a Lease of its own, so that one which comes back late can neither renew
        # nor delete another's.
        if held and held.holder != self._run:
            self._cluster.delete(where, held.uid)
            held = None
        if held:
            meta = {"uid": held.uid, "resourceVersion": held.version}
            self._cluster.patch(
                where,
                {
                    "metadata": meta,
                    "spec": {"renewTime": now, "leaseDurationSeconds": self._duration},
                },
            )
            return
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, "labels": LABELS},
            "spec": {
                "holderIdentity": self._run,
                "acquireTime": now,
                "renewTime": now,
                "leaseDurationSeconds": self._duration,
            },
        }
        create_own(self._cluster, self._folder, body)

    @property
    def _duration(self) -> int:
        return round(self._seconds)

    def _busy(self, held: _Held) -> str:
        until = f"{held.until:%H:%M:%S}Z" if held.until else "once"
        where = f"{self._namespace}/{self._name}"
        return (
            f"another run ({held.holder}) works at node {self._node}; its Lease {where} runs "
            f"out at {until} unless it is renewed"
        )
