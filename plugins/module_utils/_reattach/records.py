# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of claims, nodes and workloads that are to be moved, and what a run notes on them.
Pure: no I/O here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from .._core import untrusted
from .._kube.objects import (
    CORDON,
    OWN_NAMESPACE,
    Attachment,
    Claim,
    Node,
    Pod,
    Tenant,
    Volume,
    is_held,
    is_over,
    parse_time,
    pick_claim,
    pick_node,
)

# An annotation; what follows names the claims.
SCALE = "runbooks.storage-ops/scale."
# Characters of a hash, of 4 bits each, by which the claims of a move are known.
_KEY = 32
# A tenant may write the annotation too, and so many pods are not made at once for it.
MAX_REPLICAS = 10_000


# Workloads that can be scaled to nothing and back, and the name of their resource.
# Both make a pod again under the same template when their replicas come back; a DaemonSet has no
# replicas, and a Job counts what was evicted as a failure (backoffLimit).
RESOURCES = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


# KEP-1847, StatefulSet PVC auto deletion (spec.persistentVolumeClaimRetentionPolicy of
# k8s.io/api/apps/v1).
DELETES_CLAIMS = (
    "its persistentVolumeClaimRetentionPolicy (whenScaled: Delete) would delete its "
    "claims with their data"
)


# Owners of pods that make them again, by API group and kind. A custom resource may, or may not.
# The controllers of kube-controller-manager that replace a pod as soon as it has a
# deletionTimestamp, or once it is gone (pkg/controller/replicaset/replica_set.go,
# pkg/controller/statefulset/stateful_set_control.go).
MAKERS = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("", "ReplicationController"): "replicationcontrollers",
}


@dataclass(frozen=True)
class ReattachOptions:
    """What the user asked for and allows; see the documentation of workload_reattach for units and
    defaults.
    """

    namespace: str
    claims: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    required_metadata: tuple[str, ...] = ()
    wait_for: str = "detached"
    # The kubelet unmounts in a loop of 100 ms (reconcilerLoopSleepPeriod of
    # pkg/kubelet/volumemanager/volume_manager.go), so what is still mounted after this hangs.
    unstage_seconds: float = 10.0
    eviction_timeout: float = 120.0
    detach_timeout: float = 120.0
    ready_timeout: float = 300.0
    max_repairs: int = 10
    scale_down: bool = False
    accept_unknown_owners: bool = False
    ledger_namespace: str = OWN_NAMESPACE


class MoveLedger(NamedTuple):
    """What a run has written on a node it cordoned, or on a workload it scaled down from
    ``replicas``.

    ``attachments`` and ``pods``: uids of what was to go. ``until``: when that run is over at the
    latest. ``process``: who it is on its host.
    """

    key: str
    namespace: str
    claims: tuple[str, ...]
    attachments: tuple[str, ...]
    pods: tuple[str, ...]
    since: str
    until: str
    by: str
    process: str
    replicas: int = 0

    @property
    def value(self) -> str:
        """As the annotation has it."""
        return json.dumps({name: field for name, field in self._asdict().items() if name != "key"})


class HeldNode(NamedTuple):
    """A node, and which runs of this module keep new pods off it.

    ``ledgers``: as their Leases say. ``noted``: as the node says. ``held``: it has our taint.
    """

    node: Node
    ledgers: tuple[MoveLedger, ...] = ()
    noted: tuple[MoveLedger, ...] = ()
    held: bool = False

    @property
    def lone(self) -> tuple[MoveLedger, ...]:
        """What the node alone says."""
        # A kubelet may write annotations on its own Node (NodeRestriction), but no Lease outside of
        # kube-node-lease.
        return tuple(ledger for ledger in self.noted if ledger not in self.ledgers)


class Workload(NamedTuple):
    """A Deployment or StatefulSet. ``pinned``: its pods name their node themselves, so no scheduler
    is asked.

    ``deletes_claims``: scaling it down deletes the claims of its pods.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int
    pinned: bool = False
    ledgers: tuple[MoveLedger, ...] = ()
    deletes_claims: bool = False

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/{RESOURCES[self.kind]}/{self.name}"


NO_WORKLOAD = Workload("", "", "", "", 0)


class ClaimState(NamedTuple):
    """A claim, and whether it belongs to one pod (generic ephemeral volume)."""

    claim: Claim
    ephemeral: bool = False


@dataclass(frozen=True)
class ReattachState:
    """What was read.

    ``owners``: uid of a ReplicaSet -> uid of its Deployment; ``autoscaled``: kind and name of what
    a HorizontalPodAutoscaler scales;
    ``ended``: the processes of ledgers that are known to have ended; ``makers``: uids of the owners
    of pods that were found, and that make pods again.
    """

    now: datetime
    claims: dict[str, ClaimState]
    volumes: dict[str, Volume]
    attachments: tuple[Attachment, ...]
    tenants: tuple[Tenant, ...]
    hosts: dict[str, HeldNode]
    workloads: dict[str, Workload]
    owners: dict[str, str]
    autoscaled: frozenset[tuple[str, str]] = frozenset()
    ended: frozenset[str] = frozenset()
    makers: frozenset[str] = frozenset()

    @property
    def ledgers(self) -> list[MoveLedger]:
        """All that were found."""
        return ledgers_of(self.hosts.values(), self.workloads.values())

    def workload(self, pod: Pod) -> Workload | None:
        """The workload that makes the pod again, if it is one that can be scaled."""
        # A Deployment owns its pods by way of a ReplicaSet; a StatefulSet owns them itself.
        if pod.owner is None:
            return None
        return self.workloads.get(self.owners.get(pod.owner.uid, pod.owner.uid))


@dataclass(frozen=True)
class ClaimGroup:
    """Claims that are moved together since pods use several of them, with all that this takes.

    ``leaving``: the attachments that must go; ``movers``: the pods that stand in their way;
    ``cordoned`` and ``scaled``: what is held while it lasts; ``scaled_away``: uids of the pods of
    the latter; ``moved`` and ``gone``: uids of the pods and attachments of this and of an
    unfinished earlier run, on all nodes; ``others``: uids of the pods that stay.

    Nodes are left one after the other, unless something is scaled: ``node`` is the one that is,
    ``later`` are those to come;
    ``uids``: name and uid of those that are there.
    """

    namespace: str
    claims: tuple[str, ...]
    volumes: tuple[Volume, ...] = ()
    leaving: tuple[Attachment, ...] = ()
    movers: tuple[Tenant, ...] = ()
    cordoned: tuple[HeldNode, ...] = ()
    scaled: tuple[Workload, ...] = ()
    scaled_away: frozenset[str] = frozenset()
    workloads: tuple[Workload, ...] = ()
    moved: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    node: str = ""
    later: frozenset[str] = frozenset()
    uids: frozenset[tuple[str, str]] = frozenset()

    def key(self, prefix: str) -> str:
        """The annotation of these claims."""
        # Two moves at once have two keys, so neither takes the other's hold for its own. A tenant
        # chooses the names of claims, and finds some in minutes whose hash begins with 32 bits
        # that it wants. A name of an annotation has at most 63 characters after its prefix
        # (Kubernetes documentation, "Annotations").
        name = "\n".join([self.namespace, *self.claims])
        return prefix + sha256(name.encode()).hexdigest()[:_KEY]

    def owns(self, ledger: MoveLedger) -> bool:
        """It was written for one of these claims."""
        # Runs may name claims in other groups, so one claim in common is enough.
        return ledger.namespace == self.namespace and bool(set(ledger.claims) & set(self.claims))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are to be left."""
        # Pods may run where their volume is not attached yet, and attachments be left where no pod
        # runs any more.
        return tuple(
            dict.fromkeys(
                [
                    *(mover.pod.node for mover in self.movers),
                    *(attachment.node for attachment in self.leaving),
                ]
            )
        )


class Subject(NamedTuple):
    """What an action is about."""

    group: ClaimGroup
    host: HeldNode | None = None
    tenant: Tenant | None = None
    workload: Workload | None = None


def pick_host(item: dict[str, Any]) -> HeldNode:
    """The record of a node, with what is noted on it while it has our taint; no ledger
    counts yet.
    """
    # The taint is what keeps pods off; an annotation without it is left from a run that an operator
    # has ended by hand.
    held = is_held(item)
    return HeldNode(pick_node(item), noted=ledgers(item, CORDON) if held else (), held=held)


def pick_workload(item: dict[str, Any], kind: str) -> Workload:
    """The record of a Deployment or StatefulSet."""
    # replicas is 1 where it is not set (defaults of k8s.io/api/apps/v1).
    meta, spec = item["metadata"], item["spec"]
    replicas = 1 if spec.get("replicas") is None else spec["replicas"]
    pinned = bool(spec["template"]["spec"].get("nodeName"))
    # Whoever has scaled it up again has taken it over.
    held = () if replicas else ledgers(item, SCALE)
    deletes_claims = (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get(
        "whenScaled"
    ) == "Delete"
    return Workload(
        kind, meta["namespace"], meta["name"], meta["uid"], replicas, pinned, held, deletes_claims
    )


def pick_claim_state(item: dict[str, Any]) -> ClaimState:
    """The record of a claim."""
    # The claim of a generic ephemeral volume is owned by its pod and deleted with it (KEP-1698).
    return ClaimState(
        pick_claim(item),
        any(owner["kind"] == "Pod" for owner in item["metadata"].get("ownerReferences") or []),
    )


def ledgers(item: dict[str, Any], prefix: str) -> tuple[MoveLedger, ...]:
    """Our annotations. One that cannot be read is left out."""
    # Annotations are text that anybody with the right to patch may write, so nothing of it is
    # trusted before it is parsed.
    found = []
    for key, value in (item["metadata"].get("annotations") or {}).items():
        if key.startswith(prefix):
            try:
                fields = untrusted.from_json(value)
                claims, attachments, pods = (
                    tuple(map(str, fields[name])) for name in ("claims", "attachments", "pods")
                )
                namespace, since, until, by, process = (
                    str(fields[name]) for name in ("namespace", "since", "until", "by", "process")
                )
                _moment(since)
                _moment(until)
                replicas = int(fields["replicas"])
                if prefix == SCALE and not 1 <= replicas <= MAX_REPLICAS:
                    raise ValueError(f"no number of replicas: {replicas}")
                found.append(
                    MoveLedger(
                        key,
                        namespace,
                        claims,
                        attachments,
                        pods,
                        since,
                        until,
                        by,
                        process,
                        replicas,
                    )
                )
            except (ValueError, OverflowError, KeyError, TypeError):
                continue
    return tuple(found)


def _moment(text: str) -> datetime:
    found = parse_time(text)
    if found is None or found.tzinfo is None:
        raise ValueError(f"no time: {text}")
    return found


def at_work(ledger: MoveLedger, now: datetime, ended: frozenset[str]) -> bool:
    """The run that wrote it may still be going on."""
    # A process that is known to have ended cannot go on; of one on another host only the end of its
    # time tells.
    return ledger.process not in ended and not is_over(_moment(ledger.until), now)


def busy(ledger: MoveLedger) -> str:
    """Why a run keeps off what another one may be working at."""
    return (
        f"another run is at work on these claims, begun by {ledger.by} at {ledger.since}: wait for "
        f"its end, {ledger.until} at the latest, and run again"
    )


def ledgers_of(hosts: Iterable[HeldNode], workloads: Iterable[Workload]) -> list[MoveLedger]:
    return [ledger for host in hosts for ledger in host.ledgers] + [
        ledger for workload in workloads for ledger in workload.ledgers
    ]


def evades_cordon(pod: Pod, workload: Workload | None) -> bool:
    # A pod that names its node passes by the scheduler, and with it by NoSchedule (Kubernetes
    # documentation, "Assigning Pods to Nodes", nodeName); one that tolerates every taint is placed
    # in spite of it.
    return pod.tolerates_hold or bool(workload and workload.pinned)
