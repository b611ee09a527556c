# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Lease that keeps two runs from working at the same node at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Callable

from .._core.engine import NotStarted, Prevented
from .._core.errors import StorageOpsError
from .._kube.changing import again
from .._kube.client import Cluster, Conflict, KubeError, NotFound
from .._kube.lease import Leases
from .._kube.objects import Lease, is_over
from .._kube.own import object_name

# A Lease lasts minutes, so one request a second loses no time and loads no server.
_POLL_SECONDS = 1.0
# The part of its time that is not used: another API server's clock may be ahead, and a request that
# was sent may be on its way.
_KEPT = 1 / 12


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
        # Until when it is used, by the clock of the cluster's deadline.
        self._until = 0.0

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
        lost = f"this run has lost the {self._leases.title(self._name)}"

        def renew() -> None:
            held = self._held()
            if held is None or held.holder != self._run:
                now = f"run {held.holder} has it now" if held else "it was deleted"
                raise NotStarted(
                    f"{lost} ({now}), so another one may be at work: run again", code="lease_lost"
                )
            self._take(held)

        try:
            # Of a renewal whose answer was lost, the repetition is refused.
            again(renew)
        except (Conflict, NotFound) as error:
            raise NotStarted(f"{lost}: {error}. Run again", code="lease_lost") from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Renew it, for a change. No request that is made in here is sent once it is over.

        A KubeError before the change becomes NotStarted where the Lease is over, else Prevented.
        """
        # A request is tried again for minutes, and so is each one before it. Meanwhile another run
        # may have taken the node over.
        sent = -1
        try:
            self.check()
            sent = self._cluster.sent
            with self._cluster.deadline.shortened(self._left()):
                yield
        except KubeError as error:
            # The API server may have done it.
            if sent not in (-1, self._cluster.sent):
                raise
            # The client gives up a little earlier, where no time is left for another try.
            if sent >= 0 and self._left() < self._seconds * _KEPT:
                raise self._too_late() from error
            raise Prevented(str(error), error.code) from error

    def _left(self) -> float:
        return self._until - self._cluster.deadline.clock()

    def _too_late(self) -> NotStarted:
        return NotStarted(
            f"the {self._leases.title(self._name)} of this run was over, or nearly so, before the "
            "change could be made: the API server answers too slowly. Run again, or raise "
            "lease_seconds",
            code="lease_lost",
        )

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
            ends = self._leases.renew(self._cluster, held, self._seconds)
        else:
            ends = self._leases.take(self._cluster, self._name, self._run, self._seconds, held)
        self._until = ends - self._seconds * _KEPT

    def _busy(self, held: Lease | None) -> str:
        if held is None:
            raise AssertionError("a Lease that is not there has no holder")
        until = f"{held.until:%H:%M:%S}Z" if held.until else "once"
        return (
            f"another run ({held.holder}) is working on node {self._node}; its "
            f"{self._leases.title(self._name)} runs out at {until} unless it is renewed"
        )
