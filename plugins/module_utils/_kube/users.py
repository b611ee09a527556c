# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses volumes: their claims, the pods, and the workloads of these.

For people who read a report. Nothing is decided on it, so it is read from the API server's cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .._core.engine import Plan
from .._core.errors import BadOption
from .client import Cluster, path
from .objects import Owner, Pod, Volume, leniently, pick_pod, pick_user, pick_volume

# How many volumes and pods may be asked for. A result has room for the names of about 400 pods.
MAX_VOLUMES = 300
MAX_PODS = 500
# Of a volume with more pods the first are told, and their number.
MAX_PODS_OF_VOLUME = 20
# The label by which a Deployment's pods name their ReplicaSet (DefaultDeploymentUniqueLabelKey of
# k8s.io/api/apps/v1). The ReplicaSet has the Deployment's name, a dash and its value
# (getNewReplicaSet of pkg/controller/deployment/sync.go).
_TEMPLATE = "pod-template-hash"


class User(NamedTuple):
    """A pod. ``claims``: those of the volumes that were asked for. ``owner``: as the reader knows
    it, as in ``Deployment web``; empty for a pod without a controller.
    """

    uid: str
    namespace: str
    name: str
    node: str
    owner: str
    claims: tuple[str, ...]


class Users(NamedTuple):
    """What was read. ``unread``: objects of which nothing could be made."""

    volumes: tuple[Volume, ...] = ()
    pods: tuple[User, ...] = ()
    unread: tuple[str, ...] = ()


class VolumeUsers:
    """The audit behind volume_user_info: it reports and does not judge."""

    def __init__(self, cluster: Cluster, volumes: Sequence[str], pods: Sequence[str]) -> None:
        for what, given, most in (("volumes", volumes, MAX_VOLUMES), ("pods", pods, MAX_PODS)):
            if len(given) > most:
                raise BadOption(f"{what} has {len(given)} names, and at most {most} are looked up")
        self._cluster = cluster
        self._volumes = frozenset(volumes)
        self._pods = frozenset(pods)
        self._read = Users()

    def gather(self) -> Users:
        """Two lists, and none where nothing is asked for."""
        unread: dict[str, str] = {}
        volumes: list[Volume] = []
        if self._volumes:
            pick = leniently(self._volume, unread)
            volumes = self._cluster.list(path("v1", "persistentvolumes"), pick, cached=True)
        claims = {volume.claim for volume in volumes if volume.claim_name}
        pods: list[User] = []
        if claims or self._pods:
            user = leniently(_picker(claims, self._pods), unread)
            pods = self._cluster.list(path("v1", "pods"), user, cached=True)
        self._read = Users(tuple(volumes), tuple(pods), tuple(unread))
        return self._read

    def _volume(self, item: dict[str, Any]) -> Volume | None:
        return pick_volume(item) if item["metadata"]["name"] in self._volumes else None

    def plan(self, _state: Users) -> Plan:
        """Nothing is wrong with being used."""
        return Plan([])

    def facts(self) -> dict[str, Any]:
        """The volumes that there are, and the pods."""
        by_claim: dict[str, list[User]] = defaultdict(list)
        for pod in self._read.pods:
            for claim in pod.claims:
                by_claim[claim].append(pod)
        first = {pod.uid for pods in by_claim.values() for pod in pods[:MAX_PODS_OF_VOLUME]}
        return {
            "volumes": [
                {"name": volume.name, "claim": claim, "pods": len(by_claim.get(claim, ()))}
                for volume in self._read.volumes
                for claim in ["/".join(volume.claim) if volume.claim_name else ""]
            ],
            "pods": [
                {**pod._asdict(), "claims": list(pod.claims)}
                for pod in self._read.pods
                if pod.uid in self._pods or pod.uid in first
            ],
            "unread": len(self._read.unread),
        }

    def owners(self) -> dict[str, tuple[str, Callable[[Any], str]]]:
        """No namespace's pods keep those of another out of the result."""
        return {"pods": ("", lambda pod: str(pod["namespace"]))}

    def healthy(self, state: Users) -> str:
        """How many there are."""
        return f"{len(state.volumes)} volumes, {len(state.pods)} pods that use them"


def _picker(
    claims: set[tuple[str, str]], uids: frozenset[str]
) -> Callable[[Mapping[str, Any]], User | None]:
    def pick(item: Mapping[str, Any]) -> User | None:
        asked = item["metadata"]["uid"] in uids
        pod = pick_pod(dict(item)) if asked else pick_user(dict(item))
        # One that has ended may still have a mount: then its node asks for it.
        if pod is None or (pod.terminal and not asked):
            return None
        used = [name for name in dict.fromkeys(pod.claims) if (pod.namespace, name) in claims]
        if not used and not asked:
            return None
        labels = item["metadata"].get("labels") or {}
        return User(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.node,
            _workload(pod, str(labels.get(_TEMPLATE) or "")),
            tuple(f"{pod.namespace}/{name}" for name in used),
        )

    return pick


def _workload(pod: Pod, template: str) -> str:
    owner: Owner | None = pod.owner
    if owner is None:
        return ""
    name, dash, digest = owner.name.rpartition("-")
    # The Deployment says more than its ReplicaSet, whose name has a hash.
    if owner.kind == "ReplicaSet" and dash and template and digest == template:
        return f"Deployment {name}"
    return f"{owner.kind} {owner.name}"
