# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Moving the pods of a claim off their node, so that their volume is detached: who is moved, how,
and who is not. Pure: no I/O here.

A pod that is made again on the same node at once neither detaches nor unmounts its volume, since
node and controller find it wanted again. So a taint keeps new pods off the node until the volume
has left it (cordon), or the workload is scaled down where that does not help. The node's own field
for a cordon stays an operator's.

Who has tainted a node or scaled a workload down is written on it, in the same request, as a ledger:
a run that was killed is finished by the next one. While its run may still be at work, a ledger
keeps any other run for the same claims away. A kubelet may write on its own node, so of a node the
ledger in a Lease counts (see reattach_leases); what the node itself says is only told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    HOLD,
    OWN_NAMESPACE,
    Attachment,
    Claim,
    Node,
    Pod,
    Tenant,
    Volume,
    age,
    attachment_names,
    attachment_path,
    is_held,
    made_again,
    node_path,
    parse_time,
    pick_claim,
    pick_node,
    pod_path,
    unique_name,
)

RUNBOOK = "storage_ops.runbooks.repair_volumeattachments"
# Annotations; what follows names the claims.
CORDON = "runbooks.storage-ops/cordon."
SCALE = "runbooks.storage-ops/scale."
# A pod that is still there this long (seconds) after its grace period is held up by something that
# an eviction does not move.
_STUCK_SECONDS = 60.0

# Workloads that can be scaled to nothing and back, and the name of their resource.
RESOURCES = {"Deployment": "deployments", "StatefulSet": "statefulsets"}
DELETES_CLAIMS = (
    "its persistentVolumeClaimRetentionPolicy (whenScaled: Delete) would delete its "
    "claims with their data"
)
# Owners of pods that make them again, by API group and kind. A custom resource may, or may not.
MAKERS = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("", "ReplicationController"): "replicationcontrollers",
}
_IMMOVABLE = {
    "Node": Reason("pod_not_recreated", "it is a static pod, which only its node starts and stops"),
    "DaemonSet": Reason(
        "daemonset_pod",
        "a DaemonSet's pod comes back to its node at once, cordoned or not: keep the "
        "DaemonSet off that node by its node selector",
    ),
    "Job": Reason(
        "pod_not_recreated",
        "evicting a Job's pod counts as a failure of the Job: let it end, or delete it",
    ),
}


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of workload_reattach for units and
    defaults.
    """

    namespace: str
    claims: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    required_metadata: tuple[str, ...] = ()
    wait_for: str = "detached"
    unstage_seconds: float = 10.0
    eviction_timeout: float = 120.0
    detach_timeout: float = 120.0
    ready_timeout: float = 300.0
    max_repairs: int = 10
    scale_down: bool = False
    accept_unknown_owners: bool = False
    ledger_namespace: str = OWN_NAMESPACE


class Ledger(NamedTuple):
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


class Host(NamedTuple):
    """A node, and which runs of this module keep new pods off it.

    ``ledgers``: as their Leases say. ``noted``: as the node says. ``held``: it has our taint.
    """

    node: Node
    ledgers: tuple[Ledger, ...] = ()
    noted: tuple[Ledger, ...] = ()
    held: bool = False

    @property
    def lone(self) -> tuple[Ledger, ...]:
        """What the node alone says."""
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
    ledgers: tuple[Ledger, ...] = ()
    deletes_claims: bool = False

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/{RESOURCES[self.kind]}/{self.name}"


_NOTHING = Workload("", "", "", "", 0)


class ClaimState(NamedTuple):
    """A claim, and whether it belongs to one pod (generic ephemeral volume)."""

    claim: Claim
    ephemeral: bool = False


@dataclass(frozen=True)
class State:
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
    hosts: dict[str, Host]
    workloads: dict[str, Workload]
    owners: dict[str, str]
    autoscaled: frozenset[tuple[str, str]] = frozenset()
    ended: frozenset[str] = frozenset()
    makers: frozenset[str] = frozenset()

    @property
    def ledgers(self) -> list[Ledger]:
        """All that were found."""
        return _ledgers_of(self.hosts.values(), self.workloads.values())

    def workload(self, pod: Pod) -> Workload | None:
        """The workload that makes the pod again, if it is one that can be scaled."""
        if pod.owner is None:
            return None
        return self.workloads.get(self.owners.get(pod.owner.uid, pod.owner.uid))


@dataclass(frozen=True)
class Group:
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
    cordoned: tuple[Host, ...] = ()
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
        return prefix + sha256("\n".join([self.namespace, *self.claims]).encode()).hexdigest()[:8]

    def owns(self, ledger: Ledger) -> bool:
        """It was written for one of these claims."""
        return ledger.namespace == self.namespace and bool(set(ledger.claims) & set(self.claims))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are to be left."""
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

    group: Group
    host: Host | None = None
    tenant: Tenant | None = None
    workload: Workload | None = None


def pick_host(item: dict[str, Any]) -> Host:
    """The record of a node, with what is noted on it while it has our taint; no ledger
    counts yet.
    """
    held = is_held(item)
    return Host(pick_node(item), noted=ledgers(item, CORDON) if held else (), held=held)


def pick_workload(item: dict[str, Any], kind: str) -> Workload:
    """The record of a Deployment or StatefulSet."""
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
    return ClaimState(
        pick_claim(item),
        any(owner["kind"] == "Pod" for owner in item["metadata"].get("ownerReferences") or []),
    )


def ledgers(item: dict[str, Any], prefix: str) -> tuple[Ledger, ...]:
    """Our annotations. One that nobody can read any more is nobody's."""
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
                found.append(
                    Ledger(
                        key,
                        namespace,
                        claims,
                        attachments,
                        pods,
                        since,
                        until,
                        by,
                        process,
                        int(fields["replicas"]),
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


def at_work(ledger: Ledger, now: datetime, ended: frozenset[str]) -> bool:
    """The run that wrote it may still be going on."""
    return ledger.process not in ended and now < _moment(ledger.until)


def busy(ledger: Ledger) -> str:
    """Why a run keeps off what another one may be working at."""
    return (
        f"another run is at work on these claims, begun by {ledger.by} at {ledger.since}: wait for "
        f"its end, {ledger.until} at the latest, and run again"
    )


def in_use(
    node: Node | None, volumes: tuple[Volume, ...], attachments: tuple[Attachment, ...]
) -> list[str]:
    """Which of the volumes the node's kubelet still uses, by ``volumesInUse``."""
    if node is None:
        return []
    hashed = attachment_names(node.volumes_in_use, node.name)
    names = {
        attachment.volume
        for attachment in attachments
        if attachment.node == node.name and attachment.name in hashed
    }
    names |= {
        volume.name
        for volume in volumes
        if volume.driver and unique_name(volume.driver, volume.handle) in node.volumes_in_use
    }
    return sorted(names)


def lacking(attachment: Attachment, required: tuple[str, ...]) -> list[str]:
    """The required keys that an attachment does not have."""
    return [key for key in required if key not in attachment.metadata]


def plan(state: State, options: Options) -> Plan:
    """Findings for each set of claims that is moved together, by node; none for claims with nothing
    to be done.
    """
    known = {volume.name for volume in state.volumes.values()}
    strangers = [
        attachment.name for attachment in state.attachments if attachment.volume not in known
    ]
    if strangers:
        raise BadOption(
            f"{strangers[0]} is an attachment of another volume, none of the claims "
            f"{', '.join(options.claims)}"
        )
    findings: list[Finding] = []
    budget = options.max_repairs
    for claims in _partition(state, options):
        found = judge(state, claims, options, budget)
        budget -= _evictions(found)
        findings += found
    findings += _lone(state, options)
    unknown = set(options.attachments) - {attachment.uid for attachment in state.attachments}
    for finding in findings:
        if unknown:
            finding.evidence["attachments_already_gone"] = sorted(unknown)
    return Plan(findings)


def _lone(state: State, options: Options) -> list[Finding]:
    """Nodes that alone say that these claims are moved off them.

    Their kubelets may have written that.
    """
    return [
        Finding(
            control="",
            severity="major",
            kind="node",
            name=host.node.name,
            node=host.node.name,
            summary=f"node {host.node.name} says that {', '.join(ledger.claims)} in "
            f"{ledger.namespace} are moved off it, "
            "and no Lease of ours does",
            verdict="report",
            reason="its kubelet may have written that, so it counts for nothing. See who has set "
            f"the taint {HOLD}, and take it off",
            runbook=RUNBOOK,
            evidence={
                "annotation": ledger.key,
                "by": ledger.by,
                "since": ledger.since,
                "until": ledger.until,
            },
        )
        for host in state.hosts.values()
        for ledger in host.lone
        if ledger.namespace == options.namespace and set(ledger.claims) & set(options.claims)
    ]


def _partition(state: State, options: Options) -> list[tuple[str, ...]]:
    """The claims, put together where one pod, one scaled workload or one unfinished run connects
    them.
    """
    links = [set(tenant.pod.claims) for tenant in state.tenants]
    scaled: dict[str, set[str]] = {}
    for tenant in state.tenants:
        workload = state.workload(tenant.pod)
        if workload and (_evades_cordon(tenant.pod, workload) or workload.ledgers):
            scaled.setdefault(workload.uid, set()).update(tenant.pod.claims)
    links += scaled.values()
    links += [
        set(ledger.claims) for ledger in state.ledgers if ledger.namespace == options.namespace
    ]
    groups = [{claim} for claim in options.claims]
    for link in links:
        touched = [group for group in groups if group & link]
        groups = [group for group in groups if not group & link] + (
            [set().union(*touched)] if touched else []
        )
    order = {claim: number for number, claim in enumerate(options.claims)}
    return sorted(
        (tuple(sorted(group)) for group in groups),
        key=lambda group: min(order[claim] for claim in group),
    )


def _ledgers_of(hosts: Iterable[Host], workloads: Iterable[Workload]) -> list[Ledger]:
    return [ledger for host in hosts for ledger in host.ledgers] + [
        ledger for workload in workloads for ledger in workload.ledgers
    ]


def _evades_cordon(pod: Pod, workload: Workload | None) -> bool:
    return pod.tolerates_hold or bool(workload and workload.pinned)


def judge(
    state: State,
    claims: tuple[str, ...],
    options: Options,
    budget: int,
    only: frozenset[str] | None = None,
) -> list[Finding]:
    """What becomes of claims that are moved together, and may evict so many pods; ``only``: on
    these nodes.
    """
    if options.nodes:
        only = frozenset(options.nodes) if only is None else only & frozenset(options.nodes)
    bound = [state.claims[name].claim.volume for name in claims if name in state.claims]
    volumes = tuple(state.volumes[name] for name in bound if name in state.volumes)
    group = Group(options.namespace, claims, volumes)
    hosts = tuple(
        host for host in state.hosts.values() if any(group.owns(ledger) for ledger in host.ledgers)
    )
    scaled = tuple(
        workload
        for workload in state.workloads.values()
        if any(group.owns(ledger) for ledger in workload.ledgers)
    )
    ledgers = [ledger for ledger in state.ledgers if group.owns(ledger)]
    group = replace(
        group,
        cordoned=hosts,
        scaled=scaled,
        moved=frozenset(uid for ledger in ledgers for uid in ledger.pods),
        gone=frozenset(uid for ledger in ledgers for uid in ledger.attachments),
    )
    moving = _moving(state, group, options, bool(ledgers), only)
    active = [ledger for ledger in ledgers if at_work(ledger, state.now, state.ended)]
    if active:
        return [
            _refused(
                _describe(state, moving, options, ledgers), [Reason("lease_held", busy(active[0]))]
            )
        ]
    # With no pod to move, whether the claims are in order is no question for what is only to be
    # taken back.
    obstacles = (
        _claim_obstacles(state, claims) if moving.movers or moving.leaving or not ledgers else []
    )
    findings = []
    for part in [moving] if moving.scaled or obstacles else _by_node(moving) or [moving]:
        found = _judge_part(state, part, options, obstacles, budget)
        budget -= _evictions(found)
        findings += found
    return findings


def _by_node(group: Group) -> list[Group]:
    """A volume is attached to each node by itself, so no two nodes need be cordoned at a time."""
    nodes = dict.fromkeys([*(host.node.name for host in group.cordoned), *group.nodes])
    return [
        replace(
            group,
            node=node,
            later=frozenset(group.nodes) - {node},
            leaving=tuple(attachment for attachment in group.leaving if attachment.node == node),
            movers=tuple(mover for mover in group.movers if mover.pod.node == node),
            cordoned=tuple(host for host in group.cordoned if host.node.name == node),
        )
        for node in nodes
    ]


def _judge_part(
    state: State, group: Group, options: Options, obstacles: list[Reason], budget: int
) -> list[Finding]:
    held = replace(
        group,
        cordoned=tuple(
            host for host in group.cordoned if any(group.owns(ledger) for ledger in host.ledgers)
        ),
        scaled=tuple(
            workload
            for workload in group.scaled
            if any(group.owns(ledger) for ledger in workload.ledgers)
        ),
    )
    ledgers = [ledger for ledger in _ledgers_of(held.cordoned, held.scaled) if group.owns(ledger)]
    if not group.movers and not group.leaving and not obstacles:
        return [_release(held, ledgers, "")] if ledgers else []
    finding = _describe(state, group, options, ledgers)
    obstacles = obstacles + _obstacles(state, group, options, bool(ledgers), budget)
    if obstacles:
        alone = replace(held, moved=frozenset(), movers=(), leaving=())
        return [
            _refused(finding, obstacles),
            *([_release(alone, ledgers, obstacles[0])] if ledgers else []),
        ]
    finding.repair = _actions(group, options)
    return [finding]


def _refused(finding: Finding, reasons: list[Reason]) -> Finding:
    finding.severity = "major"
    finding.refuse(*reasons)
    return finding


def _evictions(findings: list[Finding]) -> int:
    return sum(action.verb == "evict_pod" for finding in findings for action in finding.repair)


def _moving(
    state: State, group: Group, options: Options, resumed: bool, only: frozenset[str] | None
) -> Group:
    """The group with what must go, by what the user asked for or by what an unfinished run has
    noted.
    """
    volumes = {volume.name for volume in group.volumes}
    living = [
        tenant
        for tenant in state.tenants
        if tenant.pod.scheduled and set(group.claims) & set(tenant.pod.claims)
    ]
    tenants = [tenant for tenant in living if only is None or tenant.pod.node in only]
    attachments = [
        entry
        for entry in state.attachments
        if entry.volume in volumes and (only is None or entry.node in only)
    ]
    everybody = not (resumed or options.attachments or options.required_metadata)
    spots = {spot for tenant in tenants for spot in _spots(state, group.claims, tenant.pod)}

    def leaves(attachment: Attachment) -> bool:
        wanted_gone = attachment.uid in options.attachments or attachment.uid in group.gone
        # Which attachments must go is told by their names, or else by what they lack, or else by
        # who uses them.
        lacks = not options.attachments and bool(lacking(attachment, options.required_metadata))
        return wanted_gone or lacks or (everybody and (attachment.volume, attachment.node) in spots)

    leaving = [attachment for attachment in attachments if leaves(attachment)]
    places = {(attachment.volume, attachment.node) for attachment in leaving}
    movers = [
        tenant
        for tenant in tenants
        if everybody
        or tenant.pod.uid in group.moved
        or _spots(state, group.claims, tenant.pod) & places
    ]
    scaled = {workload.uid: workload for workload in group.scaled}
    workloads = {}
    for mover in movers:
        workload = state.workload(mover.pod)
        if workload:
            workloads[workload.uid] = workload
            if _evades_cordon(mover.pod, workload):
                scaled[workload.uid] = workload
    scaled_away = [
        mover for mover in movers if (state.workload(mover.pod) or _NOTHING).uid in scaled
    ]
    cordoned = {host.node.name: host for host in group.cordoned}
    for mover in movers:
        host = state.hosts.get(mover.pod.node)
        if mover not in scaled_away and host:
            cordoned[host.node.name] = host
    return replace(
        group,
        leaving=tuple(leaving),
        movers=tuple(movers),
        cordoned=tuple(cordoned.values()),
        scaled=tuple(scaled.values()),
        scaled_away=frozenset(mover.pod.uid for mover in scaled_away),
        workloads=tuple({**workloads, **scaled}.values()),
        moved=group.moved | {mover.pod.uid for mover in movers},
        gone=group.gone | {attachment.uid for attachment in leaving},
        uids=frozenset((host.node.name, host.node.uid) for host in state.hosts.values()),
        # Of an unfinished run nobody knows which pods are new.
        others=frozenset()
        if resumed
        else frozenset(tenant.pod.uid for tenant in living if tenant not in movers),
    )


def _spots(state: State, claims: tuple[str, ...], pod: Pod) -> set[tuple[str, str]]:
    """Which volumes of the claims the pod needs on its node."""
    return {(_volume_of(state, claim), pod.node) for claim in pod.claims if claim in claims}


def _volume_of(state: State, claim: str) -> str:
    return state.claims[claim].claim.volume if claim in state.claims else ""


def _describe(state: State, group: Group, options: Options, ledgers: list[Ledger]) -> Finding:
    owners = {
        (mover.pod.owner.kind, mover.pod.owner.name) for mover in group.movers if mover.pod.owner
    }
    owners = {(workload.kind, workload.name) for workload in group.workloads} or owners
    kind, name = (
        owners.pop() if len(owners) == 1 else ("persistent volume claim", ", ".join(group.claims))
    )
    nodes = group.nodes
    reason = (
        "the attachments that were named are still there"
        if options.attachments
        else "it was asked for"
    )
    if options.required_metadata and not options.attachments:
        reason = f"attached without {', '.join(options.required_metadata)}"
    if ledgers:
        reason = f"begun and not finished by {ledgers[0].by} at {ledgers[0].since}"
    pods = len(group.movers)
    return Finding(
        control="",
        severity="info",
        kind=kind,
        name=name,
        namespace=group.namespace,
        node=nodes[0] if len(nodes) == 1 else "",
        summary=f"{pods} pod{'s' * (pods != 1)} of {', '.join(group.claims)} to be moved off "
        f"{', '.join(nodes) or 'no node'}",
        verdict="repair",
        reason=reason,
        runbook=RUNBOOK,
        named=True,
        evidence={
            "claims": list(group.claims),
            "volumes": [volume.name for volume in group.volumes],
            "pods": [
                f"{mover.pod.title} on {mover.pod.node} ({mover.pod.uid})" for mover in group.movers
            ],
            "empty_dirs": [
                f"{mover.pod.title}: {', '.join(mover.empty_dirs)}"
                for mover in group.movers
                if mover.empty_dirs
            ],
            "attachments": [_attachment_evidence(attachment) for attachment in group.leaving],
            "volumes_in_use": {
                node: in_use(
                    state.hosts[node].node if node in state.hosts else None,
                    group.volumes,
                    group.leaving,
                )
                for node in nodes
            },
            "workloads": [
                f"{workload.title} ({workload.replicas} replicas)" for workload in group.workloads
            ],
            "wait_for": options.wait_for,
        },
    )


def _attachment_evidence(attachment: Attachment) -> dict[str, Any]:
    return {
        "name": attachment.name,
        "uid": attachment.uid,
        "node": attachment.node,
        "attached": attachment.attached,
        "metadata": list(attachment.metadata),
        "detach_error": attachment.detach_error.message if attachment.detach_error else "",
    }


def _claim_obstacles(state: State, claims: tuple[str, ...]) -> list[Reason]:
    obstacles = []
    for name in claims:
        found = state.claims.get(name)
        if found is None:
            obstacles.append(Reason("not_found", f"there is no claim {name}"))
        elif found.ephemeral:
            obstacles.append(
                Reason(
                    "claim_would_be_lost",
                    f"claim {name} is a generic ephemeral volume: it goes "
                    "with its pod, so delete the pod",
                )
            )
        elif found.claim.phase != "Bound" or found.claim.volume not in state.volumes:
            obstacles.append(
                Reason(
                    "claim_unbound",
                    f"claim {name} is not bound to a volume (phase "
                    f"{found.claim.phase or 'unknown'})",
                )
            )
        elif found.claim.deleted or state.volumes[found.claim.volume].deleted:
            what = (
                f"claim {name}"
                if found.claim.deleted
                else f"volume {found.claim.volume} of claim {name}"
            )
            obstacles.append(
                Reason(
                    "claim_would_be_lost",
                    f"{what} is being deleted, and only its pods keep the data: they are not "
                    "moved, since it would be lost",
                )
            )
    return obstacles


def _obstacles(
    state: State, group: Group, options: Options, resumed: bool, budget: int
) -> list[Reason]:
    obstacles = [
        obstacle for mover in group.movers for obstacle in _mover_obstacles(state, mover, options)
    ]
    obstacles += [
        Reason("claim_would_be_lost", f"{workload.title} is not scaled down: {DELETES_CLAIMS}")
        for workload in group.scaled
        if workload.deletes_claims
    ]
    for mover in group.movers:
        workload = state.workload(mover.pod)
        if _evades_cordon(mover.pod, workload):
            obstacles += _scale_obstacles(state, mover.pod, workload, options)
    hosts = {attachment.name: state.hosts.get(attachment.node) for attachment in group.leaving}
    younger = {
        entry.node
        for entry in group.leaving
        for host in [hosts[entry.name]]
        if host and host.node.is_younger(entry)
    }
    obstacles += [Reason("identity_changed", made_again(node)) for node in sorted(younger)]
    places = {spot for mover in group.movers for spot in _spots(state, group.claims, mover.pod)}
    for attachment in group.leaving:
        if (attachment.volume, attachment.node) in places or resumed:
            continue
        if attachment.deleted:
            said = (
                f"; the attacher says: {attachment.detach_error.message}"
                if attachment.detach_error
                else ""
            )
            held = ", ".join(attachment.finalizers) or "no finalizer"
            obstacles.append(
                Reason(
                    "attacher_stuck",
                    f"{attachment.name} is being deleted already, held by {held}{said}: wait for "
                    f"the attacher of {attachment.driver}",
                )
            )
        else:
            obstacles.append(
                Reason(
                    "no_pod_to_move",
                    f"{attachment.name} is on {attachment.node}, where no pod of the claims runs: "
                    "there is no pod to move (see STOR-11)",
                )
            )
    pods = sum(not mover.pod.deleted for mover in group.movers)
    if pods > budget:
        left = f", of which {max(0, budget)} are left" if budget < options.max_repairs else ""
        obstacles.append(
            Reason(
                "too_many_repairs",
                f"{pods} pods would be moved, and max_repairs is {options.max_repairs} pods a "
                f"run{left}",
            )
        )
    return obstacles


def _owner_obstacles(state: State, pod: Pod, options: Options) -> list[Reason]:
    """Why a pod that is evicted may be gone for good."""
    owner = pod.owner
    if owner is None:
        return [
            Reason(
                "pod_not_recreated", f"pod {pod.title} has no controller that would make it again"
            )
        ]
    if owner.kind in _IMMOVABLE:
        why = _IMMOVABLE[owner.kind]
        return [why.with_text(f"pod {pod.title}: {why}")]
    if (owner.group, owner.kind) in MAKERS:
        gone = f"its {owner.title} is gone, or being deleted: nothing would make it again"
        return (
            []
            if owner.uid in state.makers
            else [Reason("pod_not_recreated", f"pod {pod.title}: {gone}")]
        )
    if options.accept_unknown_owners:
        return []
    return [
        Reason(
            "pod_not_recreated",
            f"pod {pod.title} belongs to {owner.title}, a kind that is not known to make its pods "
            "again: it may be gone for good. If you know that it does, set accept_unknown_owners "
            "(playbook: workload_reattach_accept_unknown_owners)",
        )
    ]


def _mover_obstacles(state: State, mover: Tenant, options: Options) -> list[Reason]:
    pod = mover.pod
    obstacles = []
    if mover.ephemeral:
        names = ", ".join(mover.ephemeral)
        obstacles.append(
            Reason(
                "claim_would_be_lost",
                f"pod {pod.title} has generic ephemeral volumes ({names}), whose data is deleted "
                "with it: move it by hand",
            )
        )
    obstacles += _owner_obstacles(state, pod, options)
    host = state.hosts.get(pod.node)
    ready = host.node.ready if host else "no such node"
    if ready != "True":
        obstacles.append(
            Reason(
                "node_lost",
                f"node {pod.node} of pod {pod.title} is not Ready ({ready}): nothing there "
                "unmounts the volume, so a fail-over is needed (runbook fail_over_volumes), not a "
                "move",
            )
        )
    elif pod.deleted and age(state.now, pod.deleted) > _STUCK_SECONDS:
        # deletionTimestamp has the grace period in it.
        late = age(state.now, pod.deleted)
        obstacles.append(
            Reason(
                "pod_stuck",
                f"pod {pod.title} should have been gone {late:.0f} s ago: see why the kubelet of "
                f"{pod.node} does not end it",
            )
        )
    return obstacles


def _scale_obstacles(
    state: State, pod: Pod, workload: Workload | None, options: Options
) -> list[Reason]:
    why = "tolerates every taint" if pod.tolerates_hold else "names its node in its template"
    if pod.owner is None or pod.owner.kind in _IMMOVABLE:
        return []
    if workload is None:
        return [
            Reason(
                "workload_unscalable",
                f"pod {pod.title} {why}, and its owner ({pod.owner.kind} {pod.owner.name}) is none "
                "that can be scaled here",
            )
        ]
    if (workload.kind, workload.name) in state.autoscaled:
        return [
            Reason(
                "workload_unscalable",
                f"pod {pod.title} {why}, and {workload.kind} {workload.name} has a "
                "HorizontalPodAutoscaler: scale it down by that",
            )
        ]
    if not options.scale_down and not workload.deletes_claims:
        return [
            Reason(
                "consent_required",
                f"pod {pod.title} {why}: set scale_down to scale {workload.kind} {workload.name} "
                "down and up again instead (playbook: workload_reattach_scale_down)",
            )
        ]
    return []


def _release(group: Group, ledgers: list[Ledger], refused: str) -> Finding:
    """The finding about what an unfinished run has left: to be taken back even where the rest is
    refused.
    """
    held = [f"node {host.node.name} without new pods" for host in group.cordoned]
    held += [f"{workload.kind} {workload.name} scaled down" for workload in group.scaled]
    single = group.cordoned[0].node.name if group.cordoned else group.scaled[0].name
    return Finding(
        control="",
        severity="major",
        kind="node" if group.cordoned else group.scaled[0].kind,
        name=single,
        namespace="" if group.cordoned else group.namespace,
        node=single if group.cordoned else "",
        summary=f"left behind by a move of {', '.join(group.claims)} in {group.namespace} that was "
        f"not finished: {', '.join(held)}",
        verdict="repair",
        reason=f"begun by {ledgers[0].by} at {ledgers[0].since}"
        + (f"; it is not taken up again: {refused}" if refused else ""),
        runbook=RUNBOOK,
        named=True,
        evidence={"ledgers": [ledger.value for ledger in ledgers]},
        repair=_release_actions(group),
    )


def _actions(group: Group, options: Options) -> list[Action]:
    actions = [
        Action(
            "cordon_node",
            host.node.name,
            ["PATCH", node_path(host.node.name), f"spec.taints+={HOLD}:NoSchedule"],
            Subject(group, host=host),
        )
        for host in group.cordoned
    ]
    actions += [
        Action(
            "scale_down",
            workload.title,
            ["PATCH", workload.path, "spec.replicas=0"],
            Subject(group, workload=workload),
        )
        for workload in group.scaled
    ]
    actions += [
        Action(
            "evict_pod",
            mover.pod.title,
            ["POST", f"{pod_path(mover.pod)}/eviction"],
            Subject(group, tenant=mover),
        )
        for mover in group.movers
        if not mover.pod.deleted and mover.pod.uid not in group.scaled_away
    ]
    actions.append(
        Action(
            f"wait_{options.wait_for}",
            ", ".join(group.claims),
            ["GET", *_awaited(group, options)],
            Subject(group),
        )
    )
    return actions + _release_actions(group)


def _awaited(group: Group, options: Options) -> list[str]:
    pods = [pod_path(mover.pod) for mover in group.movers]
    nodes = [f"{node_path(node)} (volumesInUse)" for node in group.nodes]
    attachments = (
        [attachment_path(attachment) for attachment in group.leaving]
        if options.wait_for == "detached"
        else []
    )
    return pods + nodes + attachments


def _release_actions(group: Group) -> list[Action]:
    return [release_action(Subject(group, host=host)) for host in group.cordoned] + [
        release_action(Subject(group, workload=workload)) for workload in group.scaled
    ]


def release_action(subject: Subject) -> Action:
    """What takes back a cordon or a scaling down."""
    if subject.host:
        name = subject.host.node.name
        return Action(
            "uncordon_node",
            name,
            ["PATCH", node_path(name), f"spec.taints-={HOLD}"],
            Subject(subject.group, host=subject.host),
        )
    workload = subject.workload or _NOTHING
    return Action(
        "scale_up",
        workload.title,
        ["PATCH", workload.path, "spec.replicas as before"],
        Subject(subject.group, workload=workload),
    )
