# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Lease that keeps two runs from working at the same node at once."""

from __future__ import annotations

import time
from typing import Callable

from .._core.engine import NotStarted
from .._core.errors import StorageOpsError
from .._kube.client import Cluster, Conflict, NotFound
from .._kube.lease import Leases
from .._kube.objects import Lease, is_over
from .._kube.own import object_name

# A Lease lasts minutes, so one request a second loses no time and loads no server.
_POLL_SECONDS = 1.0


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
        self._leases, self._node, self._name = Leases(namespace), node, object_name(node)

    def take(self, wait: float) -> None:
        """Take or renew it. While another run has it, wait until that one releases it or it runs
        out by the API server's clock.

        Raises StorageOpsError that names the holder after ``wait`` seconds, or when the deadline is
        near.
        """
        began = time.monotonic()
        while True:
            held = self._held()
            if not self._is_others(held):
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
        return self._busy(held) if self._is_others(held) else ""

    def check(self) -> None:
        """Renew it. Raises NotStarted if it is ours no more."""
        # A run that was stopped for longer than its Lease lasts may find that another one has
        # worked in between, so it asks before each change.
        held = self._held()
        lost = f"this run has lost the {self._leases.title(self._name)}"
        if held is None or held.holder != self._run:
            now = f"run {held.holder} has it now" if held else "it was deleted"
            raise NotStarted(
                f"{lost} ({now}), so another one may be at work: run again", code="lease_lost"
            )
        try:
            self._take(held)
        except (Conflict, NotFound) as error:
            raise NotStarted(f"{lost}: {error}. Run again", code="lease_lost") from error

    def release(self, dry_run: bool = False) -> None:
        """Delete it, if it is ours, or what a run that was killed has left of its own and that has
        run out.
        """
        held = self._held()
        if held and not self._is_others(held):
            self._leases.give_back(self._cluster, held, dry_run)

    def _held(self) -> Lease | None:
        return self._leases.get(self._cluster, self._name)

    def _is_others(self, held: Lease | None) -> bool:
        return (
            held is not None
            and held.holder not in ("", self._run)
            and not is_over(held.until, self._cluster.now())
        )

    def _take(self, held: Lease | None) -> None:
        if held and held.holder == self._run:
            self._leases.renew(self._cluster, held, self._seconds)
        else:
            self._leases.take(self._cluster, self._name, self._run, self._seconds, held)

    def _busy(self, held: Lease | None) -> str:
        if held is None:
            raise AssertionError("a Lease that is not there has no holder")
        until = f"{held.until:%H:%M:%S}Z" if held.until else "once"
        return (
            f"another run ({held.holder}) is working on node {self._node}; its "
            f"{self._leases.title(self._name)} runs out at {until} unless it is renewed"
        )
