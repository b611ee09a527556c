# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moving the pods of a claim off their node, so that their volume is detached: who is moved, how,
and who is not. Pure: no I/O here.

A pod that is made again on the same node at once neither detaches nor unmounts its volume, since
node and controller find it wanted again. So a taint keeps new pods off the node until the volume
has left it (cordon), or the workload is scaled down where that does not help. The node's own field
for a cordon stays an operator's.

Who has tainted a node or scaled a workload down is written on it, in the same request, as a ledger:
a run that was killed is finished by the next one. While its run may still be at work, a ledger
keeps any other run for the same claims away. A kubelet may write on its own node, so of a node the
ledger in a Lease counts (see leases.py); what the node itself says is only told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.errors import BadOption
from .._kube.objects import HOLD, Attachment, Volume
from .actions import actions_of, release_actions
from .moving import by_node, in_use, moving_of, partition
from .obstacles import claim_obstacles, obstacles_of, unconsented
from .records import (
    ClaimGroup,
    HeldNode,
    MoveLedger,
    ReattachOptions,
    ReattachState,
    Workload,
    at_work,
    busy,
    ledgers_of,
)

RUNBOOK = "storage_ops.runbooks.repair_volumeattachments"


def plan(state: ReattachState, options: ReattachOptions) -> Plan:
    """Findings for each set of claims that is moved together, by node; none for claims with nothing
    to be done.
    """
    # max_repairs bounds a whole run, so what one group takes is missing for the next.
    known = {volume.name for volume in state.volumes.values()}
    strangers = [
        attachment.name for attachment in state.attachments if attachment.volume not in known
    ]
    if strangers:
        # A typing error would otherwise move the pods of claims whose attachments are in order.
        raise BadOption(
            f"{strangers[0]} is an attachment of another volume, none of the claims "
            f"{', '.join(options.claims)}"
        )
    findings: list[Finding] = []
    budget = options.max_repairs
    for claims in partition(state, options):
        found = judge(state, claims, options, budget)
        budget -= _evictions(found)
        findings += found
    findings += _lone(state, options)
    unknown = set(options.attachments) - {attachment.uid for attachment in state.attachments}
    for finding in findings:
        if unknown:
            finding.evidence["attachments_already_gone"] = sorted(unknown)
    return Plan(findings)


def _lone(state: ReattachState, options: ReattachOptions) -> list[Finding]:
    """Nodes that alone say that these claims are moved off them.

    Their kubelets may have written that.
    """
    # It is told, since such a node gets no new pods.
    return [
        Finding(
            control="",
            # New pods stay off the node until it is seen to.
            severity="major",
            kind="node",
            name=host.node.name,
            node=host.node.name,
            summary=f"node {host.node.name} says that {', '.join(ledger.claims)} in "
            f"{ledger.namespace} are moved off it, "
            "and no Lease of ours does",
            reason="its kubelet may have written that, so it is ignored. Find out who set the "
            f"taint {HOLD}, and remove it",
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


def judge(
    state: ReattachState,
    claims: tuple[str, ...],
    options: ReattachOptions,
    budget: int,
    only: frozenset[str] | None = None,
) -> list[Finding]:
    """What becomes of claims that are moved together, and may evict so many pods; ``only``: on
    these nodes.
    """
    # A ledger of a run that may still be at work keeps everything off its claims, whatever else
    # there is to say.
    if options.nodes:
        only = frozenset(options.nodes) if only is None else only & frozenset(options.nodes)
    resumed = _resumed(state, claims, options)
    ledgers = [ledger for ledger in state.ledgers if resumed.owns(ledger)]
    moving = moving_of(state, resumed, options, bool(ledgers), only)
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
        claim_obstacles(state, claims) if moving.movers or moving.leaving or not ledgers else []
    )
    findings = []
    # A workload that is scaled down leaves all its nodes at once, so such a group is one part.
    for part in [moving] if moving.scaled or obstacles else by_node(moving) or [moving]:
        found = _judge_part(state, part, options, obstacles, budget)
        budget -= _evictions(found)
        findings += found
    return findings


def _resumed(state: ReattachState, claims: tuple[str, ...], options: ReattachOptions) -> ClaimGroup:
    """The group with what an unfinished run has left of it: nodes, workloads, pods, attachments."""
    # What a killed run holds is found by its ledgers, on nodes and workloads that the user's
    # filters may not name any more.
    group = ClaimGroup(options.namespace, claims, _volumes(state, claims))
    ledgers = [ledger for ledger in state.ledgers if group.owns(ledger)]
    return replace(
        group,
        cordoned=tuple(host for host in state.hosts.values() if _holds(group, host)),
        scaled=tuple(workload for workload in state.workloads.values() if _holds(group, workload)),
        moved=frozenset(uid for ledger in ledgers for uid in ledger.pods),
        gone=frozenset(uid for ledger in ledgers for uid in ledger.attachments),
    )


def _volumes(state: ReattachState, claims: tuple[str, ...]) -> tuple[Volume, ...]:
    """The volumes that the claims are bound to, as far as they exist."""
    bound = [state.claims[name].claim.volume for name in claims if name in state.claims]
    return tuple(state.volumes[name] for name in bound if name in state.volumes)


def _holds(group: ClaimGroup, held: HeldNode | Workload) -> bool:
    """A ledger on the node or the workload is of this group."""
    return any(group.owns(ledger) for ledger in held.ledgers)


def _judge_part(
    state: ReattachState,
    group: ClaimGroup,
    options: ReattachOptions,
    obstacles: list[Reason],
    budget: int,
) -> list[Finding]:
    # What an unfinished run holds is given back even where the move itself is refused: a node
    # without new pods is a harm of its own.
    held = replace(
        group,
        cordoned=tuple(host for host in group.cordoned if _holds(group, host)),
        scaled=tuple(workload for workload in group.scaled if _holds(group, workload)),
    )
    ledgers = [ledger for ledger in ledgers_of(held.cordoned, held.scaled) if group.owns(ledger)]
    kept_down = unconsented(held, options)
    # Scaling up again is a change as well, which needs the consent that scaling down did.
    if kept_down:
        held = replace(held, scaled=())
    if not group.movers and not group.leaving and not obstacles:
        found = _describe(state, group, options, ledgers)
        refused = [_refused(found, kept_down)] if kept_down else []
        return refused + _releases(held, ledgers, "")
    finding = _describe(state, group, options, ledgers)
    obstacles = obstacles + obstacles_of(state, group, options, bool(ledgers), budget)
    # What this run may not move it may still set free.
    if obstacles:
        alone = replace(held, moved=frozenset(), movers=(), leaving=())
        return [
            _refused(finding, obstacles),
            *_releases(alone, ledgers, obstacles[0]),
        ]
    finding.repair = actions_of(group, options)
    return [finding]


def _refused(finding: Finding, reasons: list[Reason]) -> Finding:
    finding.severity = "major"
    finding.refuse(*reasons)
    return finding


def _evictions(findings: list[Finding]) -> int:
    # A pod that is scaled away is no eviction, and is bounded by the user's consent to scale_down.
    return sum(action.verb == "evict_pod" for finding in findings for action in finding.repair)


def _describe(
    state: ReattachState, group: ClaimGroup, options: ReattachOptions, ledgers: list[MoveLedger]
) -> Finding:
    kind, name = _owner_of(group)
    nodes, pods = group.nodes, len(group.movers)
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
        reason=_why(options, ledgers),
        runbook=RUNBOOK,
        named=True,
        evidence=_evidence(state, group, options),
    )


def _owner_of(group: ClaimGroup) -> tuple[str, str]:
    """Kind and name of the one workload or owner of the pods; of several, of the claims."""
    owners = {
        (mover.pod.owner.kind, mover.pod.owner.name) for mover in group.movers if mover.pod.owner
    }
    # The workload says more than its ReplicaSet, whose name has a hash.
    owners = {(workload.kind, workload.name) for workload in group.workloads} or owners
    return (
        owners.pop() if len(owners) == 1 else ("persistent volume claim", ", ".join(group.claims))
    )


def _why(options: ReattachOptions, ledgers: list[MoveLedger]) -> str:
    """Why there is something to be moved."""
    # First, since what was begun explains best why a node is held.
    if ledgers:
        return f"begun and not finished by {ledgers[0].by} at {ledgers[0].since}"
    if options.attachments:
        return "the attachments that were named are still there"
    if options.required_metadata:
        return f"attached without {', '.join(options.required_metadata)}"
    return "it was asked for"


def _evidence(state: ReattachState, group: ClaimGroup, options: ReattachOptions) -> dict[str, Any]:
    # An emptyDir is deleted with its pod (Kubernetes documentation, "Volumes", emptyDir), so it is
    # told before.
    return {
        "claims": list(group.claims),
        "volumes": [volume.name for volume in group.volumes],
        "pods": [
            f"{mover.pod.title} on {mover.pod.node} ({mover.pod.uid})" for mover in group.movers
        ],
        # Their content is lost with the pod, which the user should know before.
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
            for node in group.nodes
        },
        "workloads": [
            f"{workload.title} ({workload.replicas} replicas)" for workload in group.workloads
        ],
        "wait_for": options.wait_for,
    }


def _attachment_evidence(attachment: Attachment) -> dict[str, Any]:
    return {
        "name": attachment.name,
        "uid": attachment.uid,
        "node": attachment.node,
        "attached": attachment.attached,
        "metadata": list(attachment.metadata),
        "detach_error": attachment.detach_error.message if attachment.detach_error else "",
    }


def _releases(group: ClaimGroup, ledgers: list[MoveLedger], refused: str) -> list[Finding]:
    return [_release(group, ledgers, refused)] if group.cordoned or group.scaled else []


def _release(group: ClaimGroup, ledgers: list[MoveLedger], refused: str) -> Finding:
    """The finding about what an unfinished run has left: to be taken back even where the rest is
    refused.
    """
    # Who reads the finding must be able to see whose hold it was.
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
        repair=release_actions(group),
    )
