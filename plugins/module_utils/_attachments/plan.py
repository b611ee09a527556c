# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the objects of a cluster say about its volumes (STOR-11 to -15), and what may be done about
it. Pure: no I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.guards import is_most, limit_repairs, majority
from .._kube.objects import Attachment
from .._kube.observation import Observation
from .collision import collisions, growing
from .findings import join_workloads
from .left_over import held, orphan
from .lost_status import lost_status
from .metadata import without_metadata
from .state import AttachmentOptions, AttachmentState, any_of, in_scope
from .unattached import never_attached
from .unfinished import unfinished_moves

# With fewer attachments on a node, one of them may already be most of what it has.
_FEW = 4


def not_applicable(state: AttachmentState) -> dict[str, str]:
    """Controls of a cluster without VolumeAttachments or PersistentVolumes; the scope does not
    matter.
    """
    first, absent = state.first, {}
    if not first.attachments:
        absent = dict.fromkeys(("STOR-11", "STOR-14"), "there is no VolumeAttachment")
    if not first.attachments and not first.volumes:
        nothing = "there is neither a VolumeAttachment nor a PersistentVolume"
        absent["STOR-12"] = nothing
        # A volume of an in-tree plugin that was never migrated has neither, and is attached or
        # awaited all the same.
        used = any(one.volumes_attached or one.volumes_in_use for one in first.nodes.values())
        if not used and not first.pending:
            absent.update(dict.fromkeys(("STOR-13", "STOR-15"), nothing))
    return absent


def plan(state: AttachmentState, options: AttachmentOptions) -> Plan:
    """Findings for everything in scope, and the repairs that are proven and allowed."""
    found = _judge(state, options)
    # Before the scope is applied: a narrow scope must not hide that most of a node looks broken.
    if not options.accept_majority:
        _refuse_outages(state, found)
    # After the outages: what is left of a move says nothing about the node's storage.
    found += unfinished_moves(state)
    mine = [finding for finding in found if _is_wanted(state, finding, options)]
    wanted = Plan(mine, (_owner,))
    join_workloads(found, wanted.findings)
    _mark_named(wanted.findings, options)
    # Last, so that only repairs of this scope that nothing else refuses use up the limit.
    limit_repairs([one for one in wanted.findings if one.repair], options.max_repairs)
    return wanted


def _judge(state: AttachmentState, options: AttachmentOptions) -> list[Finding]:
    """What each of the wanted controls finds, in scope or not."""
    found = judge_attachments(state, options)
    if "STOR-12" in options.controls:
        found += [*collisions(state), *growing(state)]
    if "STOR-14" in options.controls:
        found += without_metadata(state, options)
    if "STOR-15" in options.controls:
        found += never_attached(state, options)
    return found


def _mark_named(findings: Iterable[Finding], options: AttachmentOptions) -> None:
    """A named attachment that cannot be repaired is refused, so that the task fails."""
    for finding in findings:
        finding.named = finding.kind == "VolumeAttachment" and finding.name in options.names
        if finding.named and finding.control == "STOR-11" and finding.verdict == "report":
            # Only of STOR-11: of the other controls this module repairs nothing, named or not.
            finding.refuse(Reason("cause_unproven", finding.reason))


# The scope


def _namespace(finding: Finding) -> str:
    """The namespace of the pod or the claim; empty for what belongs to none."""
    return finding.namespace or str(finding.evidence.get("claim", "")).partition("/")[0]


def _owner(finding: Finding) -> str:
    """Who could have made many such findings: a tenant, or a node by its annotations."""
    return _namespace(finding) or f"node {finding.node}"


def _namespaces(finding: Finding) -> set[str]:
    """The same, and those of the claims that a node tells about."""
    claims = finding.evidence.get("claims", ()) if finding.kind == "node" else ()
    return {_namespace(finding), *(claim.partition("/")[0] for claim in claims)}


def _is_wanted(state: AttachmentState, finding: Finding, options: AttachmentOptions) -> bool:
    """The finding is in the user's scope."""
    if finding.kind == "VolumeAttachment":
        return in_scope(state.first, state.first.attachments[finding.name], options)
    evidence = finding.evidence
    return (
        not options.names
        and any_of(options.drivers, {evidence.get("driver", "")})
        # A volume that collides has no node of its own, but those that it is attached to.
        and any_of(options.nodes, {finding.node, *evidence.get("attached_to", ())})
        and any_of(options.namespaces, _namespaces(finding))
    )


def unmatched(
    state: AttachmentState, options: AttachmentOptions, known_elsewhere: bool = False
) -> list[str]:
    """Parts of the scope that match no attachment, as after a typing error. Names of attachments
    are reported one by one elsewhere.

    ``known_elsewhere``: only those that no other object of the cluster has either.
    """
    if not options.scope():
        return []
    there = _known_to_attachments(state.first)
    if known_elsewhere:
        for what, known in _known_to_others(state).items():
            there[what] |= known
    return [
        f"no VolumeAttachment in the cluster is of {what[:-1]} {' or '.join(wanted)}"
        for what, wanted in options.scope()
        if what in there and not any_of(wanted, there[what])
    ]


def _known_to_attachments(seen: Observation) -> dict[str, set[str]]:
    attachments = seen.attachments.values()
    return {
        "nodes": {attachment.node for attachment in attachments},
        "drivers": {attachment.driver for attachment in attachments},
        "namespaces": {
            namespace
            for attachment in attachments
            for namespace, _name in seen.claims_of(attachment)
        },
    }


def _known_to_others(state: AttachmentState) -> dict[str, set[str]]:
    """The same, by Nodes, PersistentVolumes, CSIDrivers and waiting pods."""
    volumes, pods = state.first.volumes.values(), state.first.pending
    return {
        "nodes": set(state.first.nodes),
        "drivers": {volume.driver for volume in volumes} | state.drivers,
        "namespaces": {volume.claim_namespace for volume in volumes}
        | {pod.namespace for pod in pods},
    }


def _refuse_outages(state: AttachmentState, found: list[Finding]) -> None:
    """Refuse the repairs on nodes where most attachments of most namespaces look left over at
    once.
    """
    # Then something else is more likely: an outage, or a picture that is incomplete. Each namespace
    # counts once: with many of its own none makes an outage of others' trouble.
    attachments = state.first.attachments
    total = Counter(_home(state, attachment) for attachment in attachments.values())
    broken = Counter(
        _home(state, attachments[finding.name]) for finding in found if finding.control == "STOR-11"
    )
    outages = {node: _outage(node, broken, total) for node in {finding.node for finding in found}}
    for finding in found:
        why = outages[finding.node]
        if finding.repair and why:
            finding.refuse(why)


def _home(state: AttachmentState, attachment: Attachment) -> tuple[str, str]:
    """Node and namespace; the latter is empty where no PersistentVolume names it."""
    volume = state.first.volumes.get(attachment.volume)
    return attachment.node, volume.claim_namespace if volume else ""


def _outage(
    node: str, broken: Counter[tuple[str, str]], total: Counter[tuple[str, str]]
) -> Reason | None:
    """Why what looks left over on a node is rather an outage. By node and namespace."""
    there = [home for home in total if home[0] == node]
    failing = [home for home in there if is_most(broken[home], total[home])]
    bad, every = sum(broken[home] for home in there), sum(total[home] for home in there)
    # What has no namespace counts by itself, too: a list of PersistentVolumes that is not whole
    # shows many of these.
    unowned = broken[node, ""]
    spaces = f" (most of those of {len(failing)} of {len(there)} namespaces)"
    what = "attachments" + (spaces if len(there) > 1 else "")
    if every < _FEW or is_most(len(failing), len(there)) or is_most(unowned, every):
        return majority(bad, every, what, "they are all left over", whose=f"{node}'s")
    return None


# STOR-11 and STOR-13: what was observed more than once


def judge_attachments(state: AttachmentState, options: AttachmentOptions) -> list[Finding]:
    """Findings about the attachments that were observed to the end, and about those whose deletion
    does not end.
    """
    found: list[Finding | None] = []
    if "STOR-11" in options.controls:
        found += [
            held(state, attachment, options)
            for attachment in state.first.attachments.values()
            if attachment.deleted
        ]
    # Sorted, so that runs and their reports can be compared.
    for name in sorted(state.unproven):
        seen = _history(state, name)
        if seen and "STOR-11" in options.controls:
            found.append(orphan(state, seen, options))
        if seen and "STOR-13" in options.controls:
            found.append(lost_status(state, seen, options))
    return [finding for finding in found if finding]


def _history(state: AttachmentState, name: str) -> list[Attachment]:
    """The attachment in each observation; nothing if it was not the same one in all of them."""
    # Names of attachments are hashes, so a new one for the same volume and node has the same name.
    seen = [observation.attachments.get(name) for observation in state.observations]
    present = [attachment for attachment in seen if attachment]
    same = len({attachment.uid for attachment in present}) == 1 and len(present) == len(seen)
    return present if same else []
