# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads pods and VolumeAttachments again and again while volumes are awaited, so that no tenant
takes the time of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from .._core.turns import TurnOver, timed
from .._fences.state import ATTACHMENTS, AttachedVolume
from .._kube.client import Cluster, within
from .._kube.objects import (
    Attachment,
    Tenant,
    attachment_name,
    pick_attachment,
    pick_tenant,
)
from .plan import Remark

# So long the first LIST of the pods of one namespace may take (seconds): thousands of pods.
_FIRST_SECONDS = 10.0
# And any at least, however little is left.
_LEAST_SECONDS = 1.0
# So many attachments are read one by one; for more, one LIST has all of the cluster.
_MOST_GETS = 20


class PodLists:
    """The pods of volumes, read namespace by namespace, each for a limited time.

    ``renew`` is called before each; ``longest``: so many seconds one may take; ``spare``: the
    seconds that are left for waiting.
    """

    def __init__(
        self,
        cluster: Cluster,
        renew: Callable[[], None],
        longest: float,
        spare: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._renew, self._longest = cluster, renew, longest
        self._spare, self._clock = spare, clock
        # How long the last LIST of a namespace took, what the API server said if it did not end,
        # and what was read since begin().
        self._took: dict[str, float] = {}
        self._said: dict[str, str] = {}
        self._known: dict[tuple[str, str], list[Tenant]] = {}
        self._until = clock()

    def begin(self, seconds: float = 0.0) -> float:
        """Forget what was read, and take so many seconds for the looks that follow, or what is
        left if that is less; how many. Every namespace is read once, even in no time.
        """
        seconds = min(seconds, max(0.0, self._spare()))
        self._known.clear()
        self._until = self._clock() + seconds
        return seconds

    def read(
        self, volumes: Sequence[AttachedVolume], node: str = ""
    ) -> tuple[list[Tenant], list[Remark]]:
        """The pods of these volumes that have not ended, on one node or everywhere, and a remark
        about each volume whose pods could not be read in time.
        """
        claims: dict[str, list[AttachedVolume]] = {}
        for covered in volumes:
            if covered.volume and covered.volume.claim[1]:
                claims.setdefault(covered.volume.claim[0], []).append(covered)
        found: list[Tenant] = []
        unread: list[Remark] = []
        # Anyone may have any number of pods in a namespace. So the slow ones come last, and once
        # the time is over, what was read before has to do for them.
        for namespace in sorted(claims, key=lambda name: (self._took.get(name, 0.0), name)):
            if self._clock() < self._until or (namespace, node) not in self._known:
                self._look(namespace, claims[namespace], node)
            known = self._known.get((namespace, node))
            found += known or []
            if known is None:
                unread += [self._unread(namespace, covered) for covered in claims[namespace]]
        return found, unread

    def _look(self, namespace: str, volumes: Iterable[AttachedVolume], node: str) -> None:
        """One LIST; what was read of the namespace before stays if it takes too long."""
        self._renew()
        began = self._clock()
        # An honest namespace with many pods gets more time whenever it was too little.
        seconds = min(max(_FIRST_SECONDS, 2 * self._took.get(namespace, 0.0)), self._longest)
        seconds = max(_LEAST_SECONDS, min(seconds, self._spare()))
        names = frozenset(covered.volume.claim[1] for covered in volumes if covered.volume)

        pick = timed(seconds, self._clock, lambda item: _user_of(item, names))
        folder = f"/api/v1/namespaces/{namespace}/pods"
        fields = f"spec.nodeName={node}" if node else ""
        try:
            with within(self._cluster, seconds):
                self._known[namespace, node] = self._cluster.list(folder, pick, fields=fields)
        except TurnOver as error:
            self._said[namespace] = str(error)
        finally:
            self._took[namespace] = self._clock() - began

    def _unread(self, namespace: str, covered: AttachedVolume) -> Remark:
        return Remark(
            covered.name,
            f"whether pods use {covered.name} is not known: those of namespace {namespace} could "
            f"not be read within {self._took.get(namespace, 0.0):.0f} s "
            f"({self._said.get(namespace) or 'does it have very many?'})",
        )


def read_attachments(
    cluster: Cluster, places: Iterable[tuple[AttachedVolume, str]]
) -> Mapping[tuple[str, str], Attachment]:
    """The attachments of volumes to nodes that there are, by the names of both."""
    # A tenant may have pods on any number of nodes, and each request takes time of the others.
    names = {(covered.name, node): _name(covered, node) for covered, node in places}
    wanted = set(names.values())
    if "" in wanted or len(wanted) > _MOST_GETS:
        found = cluster.list(ATTACHMENTS, pick_attachment)
    else:
        items = [cluster.get(f"{ATTACHMENTS}/{name}") for name in sorted(wanted)]
        found = [pick_attachment(item) for item in items if item]
    named = {entry.name: entry for entry in found}
    placed = {(entry.volume, entry.node): entry for entry in found}
    either = {
        place: named.get(name) if name else placed.get(place) for place, name in names.items()
    }
    return {place: entry for place, entry in either.items() if entry}


def _name(covered: AttachedVolume, node: str) -> str:
    """The name of the volume's attachment to a node, as far as it can be known."""
    # It is a hash of handle, driver and node (getAttachmentName of pkg/volume/csi/csi_attacher.go),
    # so the new one can be asked for before it is there. A migrated volume does not tell by what
    # handle its attachment is named.
    if covered.attachment.name and covered.attachment.node == node:
        return covered.attachment.name
    if covered.volume and covered.volume.driver:
        return attachment_name(covered.volume.driver, covered.volume.handle, node)
    return ""


def _user_of(item: dict[str, Any], claims: frozenset[str]) -> Tenant | None:
    """A pod that uses one of the claims, with no others: it may have any number of these."""
    tenant = pick_tenant(item, claims)
    if tenant is None:
        return None
    its = tuple(claim for claim in tenant.pod.claims if claim in claims)
    return tenant._replace(pod=tenant.pod._replace(claims=its))
