# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads pods, claims and VolumeAttachments again and again while volumes are awaited, so that no
tenant takes the time of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable

from .._core.turns import TurnOver, timed
from .._core.untrusted import few
from .._fences.state import ATTACHMENTS, AttachedVolume
from .._kube.client import Cluster, path, within
from .._kube.objects import (
    Attachment,
    Claim,
    Pod,
    Tenant,
    attachment_name,
    is_bound,
    pick_attachment,
    pick_claim,
    pick_tenant,
)
from .plan import Remark

# So long what is first read of one namespace may take (seconds): thousands of pods.
_FIRST_SECONDS = 10.0
# And any at least, however little is left.
_LEAST_SECONDS = 1.0
# So many attachments are read one by one; for more, one LIST has all of the cluster.
_MOST_GETS = 20


@dataclass
class _Turns:
    """Namespaces, each of which is read for a limited time, the slow ones last.

    ``_renew`` is called before each; ``_longest``: so many seconds one may take; ``_spare``: the
    seconds that are left for waiting. ``_took``: how long a namespace took last; ``_said``: what
    the API server said if it did not end.
    """

    _cluster: Cluster
    _renew: Callable[[], None]
    _longest: float
    _spare: Callable[[], float]
    _clock: Callable[[], float]
    _took: dict[str, float] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)

    def _in_order(self, namespaces: Iterable[str]) -> list[str]:
        return sorted(namespaces, key=lambda name: (self._took.get(name, 0.0), name))

    @contextmanager
    def _turn(self, namespace: str) -> Iterator[float]:
        """For what is read of one namespace, so many seconds; what takes longer just ends."""
        self._renew()
        began = self._clock()
        # An honest namespace with many objects gets more time whenever it was too little.
        seconds = min(max(_FIRST_SECONDS, 2 * self._took.get(namespace, 0.0)), self._longest)
        seconds = max(_LEAST_SECONDS, min(seconds, self._spare()))
        try:
            with within(self._cluster, seconds):
                yield seconds
        except TurnOver as error:
            self._said[namespace] = str(error)
        finally:
            self._took[namespace] = self._clock() - began

    def _why_unread(self, namespace: str) -> str:
        return (
            f"of namespace {namespace} could not be read within "
            f"{self._took.get(namespace, 0.0):.0f} s "
            f"({self._said.get(namespace) or 'does it have very many?'})"
        )


@dataclass
class PodLists(_Turns):
    """The pods of volumes, one LIST for each namespace. ``_known``: what was read since begin()."""

    _known: dict[tuple[str, str], list[Tenant]] = field(default_factory=dict)
    _until: float = float("-inf")

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
        claims = _by_namespace(volumes)
        found: list[Tenant] = []
        unread: list[Remark] = []
        # Anyone may have any number of pods in a namespace. So the slow ones come last, and once
        # the time is over, what was read before has to do for them.
        for namespace in self._in_order(claims):
            if self._clock() < self._until or (namespace, node) not in self._known:
                self._look(namespace, claims[namespace], node)
            known = self._known.get((namespace, node))
            found += known or []
            if known is None:
                unread += [self._unread(namespace, covered) for covered in claims[namespace]]
        return found, unread

    def _look(self, namespace: str, volumes: Iterable[AttachedVolume], node: str) -> None:
        """One LIST; what was read of the namespace before stays if it takes too long."""
        names = frozenset(covered.volume.claim[1] for covered in volumes if covered.volume)
        fields = f"spec.nodeName={node}" if node else ""
        with self._turn(namespace) as seconds:
            pick = timed(seconds, self._clock, lambda item: _user_of(item, names))
            folder = f"/api/v1/namespaces/{namespace}/pods"
            self._known[namespace, node] = self._cluster.list(folder, pick, fields=fields)

    def _unread(self, namespace: str, covered: AttachedVolume) -> Remark:
        return Remark(
            covered.name,
            f"whether pods use {covered.name} is not known: those {self._why_unread(namespace)}",
        )


class BarePods(_Turns):
    """The pods that have inline volumes, and no volume of the fence."""

    def read(self, pods: Sequence[Pod], node: str) -> tuple[list[Remark], list[Remark]]:
        """About those that are still on that node: one remark for each that leaves it by itself,
        and one for each that a finalizer keeps, or of which it could not be read in time.
        """
        spaces: dict[str, list[Pod]] = {}
        for pod in pods:
            spaces.setdefault(pod.namespace, []).append(pod)
        there: dict[str, tuple[str, ...]] = {}
        unread: set[str] = set()
        for namespace in self._in_order(spaces):
            found = self._look(spaces[namespace], node)
            there.update(found or {})
            unread |= {namespace} if found is None else set()
        leaving = [pod for pod in pods if there.get(pod.uid) == ()]
        return [Remark(key_of(pod), f"pod {pod.title} is still on {node}") for pod in leaving], [
            Remark(key_of(pod), self._why_kept(pod, node, there.get(pod.uid, ())))
            for pod in pods
            if there.get(pod.uid) or pod.namespace in unread
        ]

    def _look(self, pods: Sequence[Pod], node: str) -> dict[str, tuple[str, ...]] | None:
        """The finalizers of each pod that is there, by its uid; None if it took too long."""
        namespace = pods[0].namespace
        uids = frozenset(pod.uid for pod in pods)
        there: dict[str, tuple[str, ...]] = {}
        ended = False
        with self._turn(namespace) as seconds:
            pick = timed(seconds, self._clock, lambda item: _finalizers_of(item, uids))
            # The account that fences may list pods, and get none.
            folder = path("v1", "pods", namespace=namespace)
            read = self._cluster.list(folder, pick, fields=f"spec.nodeName={node}")
            there.update(read)
            ended = True
        return there if ended else None

    def _why_kept(self, pod: Pod, node: str, finalizers: Sequence[str]) -> str:
        if not finalizers:
            why = self._why_unread(pod.namespace)
            return f"whether pod {pod.title} is still on {node} is not known: those {why}"
        return (
            f"pod {pod.title} is still on {node}, held by {few(finalizers)}. A finalizer is never "
            "removed here"
        )


@dataclass
class ClaimGets(_Turns):
    """The claims of volumes that are never attached, as they are now. ``_bound``: by volume, those
    that have it.
    """

    _bound: dict[str, Claim] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget what was read."""
        self._bound.clear()

    def read(self, volumes: Sequence[AttachedVolume]) -> tuple[dict[str, Claim], list[Remark]]:
        """By volume, the claim that it names, if there is one; and a remark about each volume whose
        claim could not be read in time.

        One that has its volume is read once, any other in each look.
        """
        asked = [covered for covered in volumes if covered.name not in self._bound]
        spaces, unread = _by_namespace(asked), []
        found: dict[str, Claim] = {}
        # A tenant may have any number of claims in its namespace.
        for namespace in self._in_order(spaces):
            done: set[str] = set()
            with self._turn(namespace) as seconds:
                self._look(spaces[namespace], seconds, found, done)
            unread += [
                Remark(
                    covered.name,
                    f"whether {covered.name} is in use is not known: the claims "
                    f"{self._why_unread(namespace)}",
                )
                for covered in spaces[namespace]
                if covered.name not in done
            ]
        return {**found, **self._bound}, unread

    def _look(
        self,
        volumes: Iterable[AttachedVolume],
        seconds: float,
        found: dict[str, Claim],
        done: set[str],
    ) -> None:
        pick = timed(seconds, self._clock, lambda item: pick_claim(item) if item else None)
        for covered in volumes:
            if covered.volume is None:
                continue
            place = covered.volume.claim
            item = self._cluster.get(path("v1", "persistentvolumeclaims", place[1], place[0]))
            claim = pick(item or {})
            done.add(covered.name)
            if claim is None:
                continue
            found[covered.name] = claim
            if claim.volume == covered.name and is_bound(claim, covered.volume):
                self._bound[covered.name] = claim


def key_of(pod: Pod) -> str:
    """What a pod is told by beside volumes; no PersistentVolume has such a name."""
    return f"pod/{pod.uid}"


def _by_namespace(volumes: Iterable[AttachedVolume]) -> dict[str, list[AttachedVolume]]:
    """Those that have a claim, by its namespace."""
    spaces: dict[str, list[AttachedVolume]] = {}
    for covered in volumes:
        if covered.volume and covered.volume.claim[1]:
            spaces.setdefault(covered.volume.claim[0], []).append(covered)
    return spaces


def _finalizers_of(
    item: dict[str, Any], uids: frozenset[str]
) -> tuple[str, tuple[str, ...]] | None:
    """The uid of a pod and its finalizers; None if it is none of these."""
    # One of the same name may be another.
    meta = item["metadata"]
    return (meta["uid"], tuple(meta.get("finalizers") or ())) if meta["uid"] in uids else None


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
