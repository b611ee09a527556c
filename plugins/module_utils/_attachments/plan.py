# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""What the objects of a cluster say about its volumes (STOR-11 to -15), and what may be done about
it. Pure: no I/O here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.turns import in_turns
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import names
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Attachment,
    Lease,
    Node,
    Pod,
    Volume,
    VolumeError,
    age,
    attachment_name,
    made_again,
    parse_time,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.observation import (
    REQUIRED_METADATA,
    Observation,
    blockers,
    may_lack_status,
    metadata_arguments,
    missing_metadata,
    needed_by,
    proofs,
)

RUNBOOK = "storage_ops.runbooks.repair_volumeattachments"

# Of fewer attachments of a node, each is as good as most of them.
_FEW = 4
# A controller manager tries to detach again after at most this (seconds): 2 min 2 s in
# k8s.io/kubernetes/pkg/util/goroutinemap/exponentialbackoff, and some for the try itself.
BACKOFF_SECONDS = 130.0
# Kubernetes issue -> (minor release 1.x that has the fix from its start, patch releases that
# brought it to older ones)
_LOST_STATUS_BUGS = {
    "111000": (26, {25: 1, 24: 5, 23: 11, 22: 14}),
    "120571": (29, {28: 3, 27: 7, 26: 10}),
    "108869": (25, {}),
}


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of volumeattachment_repair for
    units and defaults.
    """

    controls: frozenset[str] = frozenset({"STOR-11", "STOR-12", "STOR-13", "STOR-14", "STOR-15"})
    names: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    min_age_seconds: float = 300.0
    observations: int = 2
    observation_seconds: float = 30.0
    pending_seconds: float = 120.0
    required_metadata: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: dict(REQUIRED_METADATA)
    )
    max_repairs: int = 10
    accept_majority: bool = False

    def scope(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the user narrowed the run down to."""
        given = [
            ("names", self.names),
            ("drivers", self.drivers),
            ("nodes", self.nodes),
            ("namespaces", self.namespaces),
        ]
        return [(what, wanted) for what, wanted in given if wanted]


@dataclass(frozen=True)
class State:
    """Everything the plan is made from. What only suspects need is empty without any.

    ``unproven``: names of the attachments that were observed again. ``drivers``: all CSIDrivers,
    ``detached_drivers``: those with attachRequired=false; neither is read without need.
    ``drivers_on``: by node, the drivers of its CSINode (NodeDrivers.drivers). ``last_attach``: time
    of the newest event SuccessfulAttachVolume.
    """

    now: datetime
    observations: tuple[Observation, ...]
    unproven: frozenset[str] = frozenset()
    version: tuple[int, int, int] = (1, 0, 0)
    version_text: str = ""
    drivers: frozenset[str] = frozenset()
    detached_drivers: frozenset[str] = frozenset()
    drivers_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lease: Lease | None = None
    last_attach: datetime | None = None

    @property
    def first(self) -> Observation:
        """The oldest observation, of everything."""
        return self.observations[0]

    @property
    def last(self) -> Observation:
        """The newest observation, of the suspects."""
        return self.observations[-1]

    @property
    def observed(self) -> str:
        """How often and how long, for the eye."""
        return (
            f"{len(self.observations)} times over {self.last.at - self.first.at:.1f} s"
            if len(self.observations) > 1
            else "once"
        )

    @property
    def leader(self) -> dict[str, Any]:
        """Who leads the controller managers, as evidence."""
        if self.lease is None:
            return {"leader": "unknown: no lease kube-system/kube-controller-manager"}
        return {
            "leader": self.lease.holder,
            "lease_renewed_seconds_ago": round(age(self.now, self.lease.renewed)),
        }


@dataclass(frozen=True)
class Orphan:
    """The attachment an action deletes, as it was when the plan was made."""

    attachment: Attachment
    volume: Volume | None
    siblings: tuple[str, ...]
    node_uid: str = ""
    named: bool = False


@dataclass(frozen=True)
class Wait:
    """A pod whose volume has no attachment."""

    pod: Pod
    volume: Volume

    @property
    def attachment(self) -> str:
        """The name the attachment would have."""
        return attachment_name(*self.volume.disk, self.pod.node)


# suspects: what is worth more requests, and a second observation


def suspects(seen: Observation, options: Options, now: datetime) -> list[Attachment]:
    """Attachments whose pods have to be read, on every node that has one in scope."""
    found = [
        attachment
        for attachment in seen.attachments.values()
        if attachment.volume and _is_suspect(seen, attachment, options, now)
    ]
    if not options.scope():
        return found
    touched = {attachment.node for attachment in found if in_scope(seen, attachment, options)}
    return [attachment for attachment in found if attachment.node in touched]


def _is_suspect(seen: Observation, attachment: Attachment, options: Options, now: datetime) -> bool:
    wanted = options.controls
    return (
        ("STOR-11" in wanted and may_be_orphan(seen, attachment, options.min_age_seconds, now))
        or ("STOR-13" in wanted and may_lack_status(seen, attachment))
        or ("STOR-14" in wanted and bool(missing_metadata(attachment, options.required_metadata)))
    )


def may_be_orphan(
    seen: Observation, attachment: Attachment, min_age_seconds: float, now: datetime
) -> bool:
    """By its node's status alone: old enough, not being deleted, and no kubelet that reports has it
    in use.
    """
    in_use = attachment.name in seen.in_use and seen.ready(attachment.node)
    return not attachment.deleted and not in_use and age(now, attachment.created) >= min_age_seconds


def unproven(
    seen: Observation, suspected: Iterable[Attachment], options: Options, now: datetime
) -> set[str]:
    """Names of the suspects that a second observation has to prove, now that their pods
    are known.
    """
    found = set()
    for attachment in suspected:
        needed = bool(seen.users(attachment))
        orphan = (
            "STOR-11" in options.controls
            and not needed
            and may_be_orphan(seen, attachment, options.min_age_seconds, now)
        )
        lost = "STOR-13" in options.controls and needed and may_lack_status(seen, attachment)
        if orphan or lost:
            found.add(attachment.name)
    return found


def waits(seen: Observation, seconds: float, now: datetime) -> list[Wait]:
    """Pods that have had their node for so long and a bound volume that nothing attaches there, or
    tries to elsewhere.
    """
    by_claim = {
        volume.claim: volume
        for volume in seen.volumes.values()
        if volume.phase == "Bound" and volume.disk[0]
    }
    found = []
    for pod in seen.pending:
        node = seen.nodes.get(pod.node)
        if node is None or not node.managed or pod.deleted or age(now, pod.scheduled) < seconds:
            continue
        for claim in pod.claims:
            volume = by_claim.get((pod.namespace, claim))
            if volume and not _attaches(seen, volume, pod.node):
                found.append(Wait(pod, volume))
    return found


def could_attach(
    wait: Wait, detached_drivers: Collection[str], drivers_on: dict[str, tuple[str, ...]]
) -> bool:
    """The driver's volumes are attached at all, and the driver is registered on the pod's node.

    One of a former in-tree plugin is attached by a driver only where the node says so.
    """
    driver, on_node = wait.volume.disk[0], drivers_on.get(wait.pod.node, ())
    registered = driver in on_node and wait.volume.is_attached_by_driver(on_node)
    return registered and driver not in detached_drivers


def _attaches(seen: Observation, volume: Volume, node: str) -> bool:
    """Somebody attaches it to the node, or may not since it is attached elsewhere
    (Multi-Attach).
    """
    made = [
        attachment for same in seen.same(volume) for attachment in seen.by_volume.get(same.name, ())
    ]
    named = attachment_name(*volume.disk, node) in seen.attachments
    return named or any(attachment.node == node or volume.exclusive for attachment in made)


# the plan


def plan(state: State, options: Options) -> Plan:
    """Findings for everything in scope, and the repairs that are proven and allowed."""
    found = judge_attachments(state, options)
    if "STOR-12" in options.controls:
        found += [*_collisions(state), *_growing(state)]
    if "STOR-14" in options.controls:
        found += _without_metadata(state, options)
    if "STOR-15" in options.controls:
        found += _never_attached(state, options)
    if not options.accept_majority:
        _refuse_outages(state, found)
    found += _unfinished_moves(state)
    mine = [finding for finding in found if _wants(state, finding, options)]
    wanted = Plan(in_turns(mine, _namespace))
    _join_workloads(found, wanted.findings)
    for finding in wanted.findings:
        finding.named = finding.kind == "VolumeAttachment" and finding.name in options.names
        if finding.named and finding.control == "STOR-11" and finding.verdict == "report":
            finding.refuse(Reason("cause_unproven", finding.reason))
    for finding in [finding for finding in wanted.findings if finding.repair][
        options.max_repairs :
    ]:
        finding.refuse(
            Reason(
                "too_many_repairs",
                f"max_repairs is {options.max_repairs}: run again for this one, or raise it",
            )
        )
    return wanted


def in_scope(seen: Observation, attachment: Attachment, options: Options) -> bool:
    """Whether the user asked for this attachment."""
    namespaces = {namespace for namespace, _name in seen.claims_of(attachment)}
    return (
        _any_of(options.names, {attachment.name})
        and _any_of(options.drivers, {attachment.driver})
        and _any_of(options.nodes, {attachment.node})
        and _any_of(options.namespaces, namespaces)
    )


def _namespace(finding: Finding) -> str:
    """That of the pod or the claim; empty for what belongs to none."""
    return finding.namespace or str(finding.evidence.get("claim", "")).partition("/")[0]


def _wants(state: State, finding: Finding, options: Options) -> bool:
    """Whether the user's scope has the finding."""
    if finding.kind == "VolumeAttachment":
        return in_scope(state.first, state.first.attachments[finding.name], options)
    evidence = finding.evidence
    return (
        not options.names
        and _any_of(options.drivers, {evidence.get("driver", "")})
        and _any_of(options.nodes, {finding.node, *evidence.get("attached_to", ())})
        and _any_of(
            options.namespaces,
            {_namespace(finding)},
        )
    )


def _any_of(wanted: tuple[str, ...], there: set[str]) -> bool:
    return not wanted or bool(there & set(wanted))


def unmatched(state: State, options: Options, known_elsewhere: bool = False) -> list[str]:
    """Parts of the scope that no attachment is in, as by a typing error; the names of attachments
    are told one by one.

    ``known_elsewhere``: only those that no other object of the cluster knows either.
    """
    if not options.scope():
        return []
    seen = state.first
    attachments = seen.attachments.values()
    there = {
        "nodes": {attachment.node for attachment in attachments},
        "drivers": {attachment.driver for attachment in attachments},
        "namespaces": {
            namespace
            for attachment in attachments
            for namespace, _name in seen.claims_of(attachment)
        },
    }
    if known_elsewhere:
        there["nodes"] |= set(seen.nodes)
        there["drivers"] |= {volume.driver for volume in seen.volumes.values()} | state.drivers
        there["namespaces"] |= {volume.claim_namespace for volume in seen.volumes.values()} | {
            pod.namespace for pod in seen.pending
        }
    return [
        f"no VolumeAttachment in the cluster is of {what[:-1]} {' or '.join(wanted)}"
        for what, wanted in options.scope()
        if what in there and not _any_of(wanted, there[what])
    ]


def _refuse_outages(state: State, found: list[Finding]) -> None:
    """Where most of a node's attachments look orphaned at once, something else is wrong: an outage,
    or an incomplete picture.
    """
    total = Counter(attachment.node for attachment in state.first.attachments.values())
    broken = Counter(finding.node for finding in found if finding.control == "STOR-11")
    for finding in found:
        node = finding.node
        if finding.repair and (total[node] < _FEW or 2 * broken[node] > total[node]):
            finding.refuse(
                Reason(
                    "majority_broken",
                    f"{broken[node]} of the {total[node]} attachments of {node} look orphaned at "
                    "once: that may be an outage. If they are all left over, set "
                    "accept_majority",
                )
            )


# STOR-11 and STOR-13: what was observed more than once


def judge_attachments(state: State, options: Options) -> list[Finding]:
    """Findings about the attachments that were observed to the end, and about those whose deletion
    has been pending for long.
    """
    found: list[Finding | None] = []
    if "STOR-11" in options.controls:
        found += [
            _held(state, attachment, options)
            for attachment in state.first.attachments.values()
            if attachment.deleted
        ]
    for name in sorted(state.unproven):
        seen = _history(state, name)
        if seen and "STOR-11" in options.controls:
            found.append(_orphan(state, seen, options))
        if seen and "STOR-13" in options.controls:
            found.append(_lost_status(state, seen, options))
    return [finding for finding in found if finding]


def _history(state: State, name: str) -> list[Attachment]:
    """The attachment in each observation; nothing if it was not the same one in all of them."""
    seen = [observation.attachments.get(name) for observation in state.observations]
    present = [attachment for attachment in seen if attachment]
    same = len({attachment.uid for attachment in present}) == 1 and len(present) == len(seen)
    return present if same else []


def _held(state: State, attachment: Attachment, options: Options) -> Finding | None:
    """Somebody has been deleting it, and its attacher does not let go."""
    since = age(state.now, attachment.deleted)
    if since < options.min_age_seconds or not attachment.finalizers:
        return None
    finding = _finding(state, attachment, "STOR-11", "major")
    finding.summary = f"{attachment.name} was deleted {_duration(since)} ago and is still there"
    finding.refuse(
        Reason(
            "attacher_stuck",
            f"its finalizer {', '.join(attachment.finalizers)} is held. "
            f"{attacher_says(attachment)}",
        )
    )
    return finding


def attacher_says(attachment: Attachment) -> str:
    """Why an attachment whose deletion was asked for is still there."""
    error = attachment.detach_error
    said = f"says: {error.message}." if error else "says nothing: is it running?"
    return (
        f"The attacher of {attachment.driver} {said} Its finalizer is never removed here, since "
        f"the storage would go on serving the volume to {attachment.node}"
    )


def _orphan(state: State, seen: list[Attachment], options: Options) -> Finding | None:
    """An attachment that no pod needs; None when one does, or did a moment ago, or it is none of
    our business.
    """
    attachment = seen[-1]
    if not attachment.volume or attachment.driver in state.detached_drivers:
        return None
    if any(needed_by(observation, once) for observation, once in zip(state.observations, seen)):
        return None
    if any(once.deleted or age(state.now, once.created) < options.min_age_seconds for once in seen):
        return None
    finding = _finding(state, attachment, "STOR-11", "major")
    finding.summary = (
        f"{attachment.name} keeps {_title(state, attachment)} on {attachment.node}, "
        "where no pod needs it"
    )
    because = proofs(state.last, attachment, state.version, state.version_text)
    named = attachment.name in options.names and state.last.at - state.first.at >= BACKOFF_SECONDS
    if named and not because:
        because = [
            f"it was named, and in {state.last.at - state.first.at:.0f} s no controller manager "
            "has tried to detach it"
        ]
    obstacles = [
        text for observation in state.observations for text in blockers(observation, attachment)
    ]
    if (
        len(
            {
                once.nodes[attachment.node].uid
                for once in state.observations
                if attachment.node in once.nodes
            }
        )
        > 1
    ):
        obstacles.append(
            Reason("identity_changed", f"{attachment.node} is another node of that name by now")
        )
    finding.evidence["because"] = because
    if not because:
        finding.severity = "minor"
    if obstacles:
        finding.refuse(*obstacles)
    elif not because:
        finding.reason = (
            "nothing proves that it is left over: its PersistentVolume is "
            f"{finding.evidence['phase']}, and no pod waits for it elsewhere. If it stays so, name "
            "it (names) and have it observed for longer than a controller manager waits between "
            f"two tries to detach (observation_seconds: {BACKOFF_SECONDS:.0f})"
        )
    elif len(seen) < 2:
        finding.refuse(_HASTY)
    else:
        finding.verdict = "repair"
        finding.reason = (
            f"no pod on {attachment.node} needs it, observed {state.observed}; {'; '.join(because)}"
        )
        finding.repair = [_deletion(state, attachment, named)]
    return finding


_HASTY = Reason(
    "observation_too_short", "a single observation proves nothing: set observations to 2 or more"
)


def _lost_status(state: State, seen: list[Attachment], options: Options) -> Finding | None:
    """A pod needs the volume, it is attached, and the node's status does not say so; None if that
    was not so all the time.
    """
    attachment = seen[-1]
    if attachment.driver in state.detached_drivers:
        return None
    if not all(
        may_lack_status(observation, once) for observation, once in zip(state.observations, seen)
    ):
        return None
    if any(attachment.name in observation.was_listed for observation in state.observations):
        return None
    users = [
        {pod.uid: pod for pod in observation.users(once)}
        for observation, once in zip(state.observations, seen)
    ]
    steady = [pod for uid, pod in users[-1].items() if all(uid in once for once in users)]
    if not steady:
        return None
    finding = _finding(state, attachment, "STOR-13", "major")
    finding.summary = (
        f"{_title(state, attachment)} is attached to {attachment.node}, and the "
        "node's volumesAttached does not list it"
    )
    finding.evidence.update(
        pods=_pod_evidence(steady, state.now),
        workload_title=_workload_title(steady),
        volumes_in_use=attachment.name in state.last.in_use,
        version=state.version_text,
        bugs=_bugs(state.version),
        **state.leader,
    )
    if attachment.detach_error:
        finding.refuse(
            Reason(
                "attacher_stuck",
                "the storage side is the cause, its last detach failed: "
                f"{attachment.detach_error.message}",
            )
        )
    elif state.last.nodes[attachment.node].is_younger(attachment):
        finding.refuse(Reason("identity_changed", f"its node {made_again(attachment.node)}"))
    elif len(seen) < 2:
        finding.refuse(_HASTY)
    else:
        finding.reason = (
            f"observed {state.observed}. A pod that is to start there waits for the entry for "
            "ever; one that runs goes on. Move the pod away and back: "
            + untrusted.shown_command(
                f"ansible-playbook {RUNBOOK} -e attachment_repair_names={{name}} -e "
                "attachment_repair_lost_status=reattach",
                name=attachment.name,
            )
        )
        finding.workload = _workload(state.last, steady, attachment)
    return finding


def _bugs(version: tuple[int, int, int]) -> list[str]:
    """Bugs of Kubernetes that lose the entry and that this version may have."""
    _major, minor, patch = version
    return [
        f"kubernetes #{issue}"
        for issue, (first, patches) in _LOST_STATUS_BUGS.items()
        if minor < first and patch < patches.get(minor, patch + 1)
    ]


def _finding(state: State, attachment: Attachment, control: str, severity: str) -> Finding:
    """A finding about an attachment, with what every one of them shows."""
    volume = state.last.volumes.get(attachment.volume)
    node = state.last.nodes.get(attachment.node)
    evidence = {
        "uid": attachment.uid,
        "driver": attachment.driver,
        "volume": attachment.volume,
        "handle": volume.handle if volume else "",
        "claim": "/".join(volume.claim) if volume and volume.claim_name else "",
        "phase": volume.phase if volume else "gone",
        "access_modes": list(volume.access_modes) if volume else [],
        "attached": attachment.attached,
        "age_seconds": round(age(state.now, attachment.created)),
        "node_ready": node.ready if node else "gone",
        "attach_error": _error_evidence(attachment.attach_error, state.now),
        "detach_error": _error_evidence(attachment.detach_error, state.now),
        "finalizers": list(attachment.finalizers),
        "observed": state.observed,
    }
    if attachment.deleted:
        evidence["deleted_seconds_ago"] = round(age(state.now, attachment.deleted))
    return Finding(
        control=control,
        severity=severity,
        kind="VolumeAttachment",
        name=attachment.name,
        node=attachment.node,
        summary="",
        verdict="report",
        reason="",
        runbook=RUNBOOK,
        evidence=evidence,
    )


def _deletion(state: State, attachment: Attachment, named: bool) -> Action:
    url = f"/apis/storage.k8s.io/v1/volumeattachments/{attachment.name}"
    siblings = tuple(
        other.name
        for other in state.last.by_volume.get(attachment.volume, ())
        if other.name != attachment.name
    )
    node = state.last.nodes[attachment.node].uid
    subject = Orphan(attachment, state.last.volumes.get(attachment.volume), siblings, node, named)
    return Action(
        "delete_volumeattachment",
        attachment.name,
        ["DELETE", url, f"preconditions.uid={attachment.uid}"],
        subject,
    )


# STOR-12: names that collide


def may_collide(seen: Observation, version: tuple[int, int, int]) -> bool:
    """Some volume's name does or will, if its driver's volumes are attached at all."""
    if names.affected(version) == "no":
        return False
    return any(
        names.collides(volume.driver, volume.handle)
        or names.grows_into(volume.driver, volume.handle)
        for volume in seen.volumes.values()
    )


def _collisions(state: State) -> list[Finding]:
    """Volumes that this controller manager will not detach, or has not detached."""
    affected = names.affected(state.version)
    if affected == "no":
        return []
    return [
        _collision(state, volume, affected)
        for volume in _detachable(state)
        if names.collides(volume.driver, volume.handle)
    ]


def _detachable(state: State) -> list[Volume]:
    """Volumes that the controller manager will detach one day."""
    return [
        volume
        for volume in state.first.volumes.values()
        if volume.driver not in state.detached_drivers
    ]


def _collision(state: State, volume: Volume, affected: str) -> Finding:
    seen = state.first
    attached = [
        attachment for attachment in seen.by_volume.get(volume.name, ()) if attachment.attached
    ]
    on = sorted(attachment.node for attachment in attached)
    # Where the node's status is not known, or old, it counts as used.
    idle = sorted(
        attachment.node
        for attachment in attached
        if seen.ready(attachment.node) and attachment.name not in seen.in_use
    )
    used = [node for node in on if node not in idle]
    will = "will leave" if affected == "yes" else "may leave"
    words = (
        [f"it is attached to {', '.join(used)} now: deleting its pod {will} that behind"]
        if used
        else []
    )
    words += (
        [
            f"it is still attached to {', '.join(idle)}, where the "
            "kubelet does not use it: see STOR-11"
        ]
        if idle
        else []
    )
    now = "; ".join(words) or f"its next detach {will} it behind"
    sure = (
        f"{state.version_text} is affected"
        if affected == "yes"
        else "whether the controller manager has the fix cannot be told, since it may be older "
        f"than the API server ({state.version_text})"
    )
    return Finding(
        control="STOR-12",
        severity="critical" if affected == "yes" else "major",
        kind="PersistentVolume",
        name=volume.name,
        node="",
        summary=f"{volume.name} {'is' if affected == 'yes' else 'may be'} mistaken for a "
        "VolumeAttachment "
        "when it is detached, and stays attached",
        verdict="report",
        reason=f"{sure}; {now}. The volume keeps its name for good: upgrade to 1.24 or newer, or "
        "run "
        f"{RUNBOOK} each time after it was detached. For new volumes a longer --volume-name-prefix "
        "prevents it (filter storage_ops.runbooks.safe_volume_name_prefix)",
        runbook=RUNBOOK,
        evidence={
            "driver": volume.driver,
            "handle": volume.handle,
            "claim": "/".join(volume.claim) if volume.claim_name else "",
            "phase": volume.phase,
            "bytes": names.COLLISION,
            "attached_to": on,
            "version": state.version_text,
            "affected": affected,
        },
    )


def _growing(state: State) -> list[Finding]:
    """Drivers whose next volumes may collide, since the number at the end of their
    handles grows.
    """
    affected = names.affected(state.version)
    if affected == "no":
        return []
    close: dict[str, list[Volume]] = defaultdict(list)
    for volume in _detachable(state):
        if names.grows_into(volume.driver, volume.handle):
            close[volume.driver].append(volume)
    return [
        Finding(
            control="STOR-12",
            severity="info",
            kind="CSIDriver",
            name=driver,
            node="",
            summary=f"{driver} has volumes ({len(volumes)}) whose names grow into the collision by "
            "the "
            "number at their end",
            verdict="report",
            reason="a longer --volume-name-prefix of its provisioner prevents it (filter "
            "storage_ops.runbooks.safe_volume_name_prefix); volumes that exist keep their names",
            runbook=RUNBOOK,
            evidence={
                "driver": driver,
                "version": state.version_text,
                "affected": affected,
                "volumes": [
                    f"{driver}^{volume.handle} ({names.length(driver, volume.handle)} bytes)"
                    for volume in volumes
                ],
            },
        )
        for driver, volumes in sorted(close.items())
    ]


# STOR-14: what the driver needs in an attachment


def _without_metadata(state: State, options: Options) -> list[Finding]:
    """Attachments that lack what their driver's node plugin needs."""
    seen = state.first
    found = []
    for attachment in seen.attachments.values():
        missing = missing_metadata(attachment, options.required_metadata)
        if not missing:
            continue
        keys, pods = ", ".join(missing), seen.users(attachment)
        finding = _finding(state, attachment, "STOR-14", "major")
        finding.evidence.update(
            missing=keys, metadata=list(attachment.metadata), pods=_pod_evidence(pods, state.now)
        )
        finding.summary = (
            f"the attachment of {_title(state, attachment)} to {attachment.node} lacks {keys}"
        )
        finding.reason = (
            f"no pod needs it, so there is no pod to move; a pod that comes to {attachment.node} "
            "would get it as it is, so delete it if it is left over (STOR-11)"
        )
        if pods:
            finding.evidence["workload_title"] = _workload_title(pods)
            finding.workload = {**_workload(seen, pods, attachment), "missing": missing}
            finding.reason = (
                f"{attachment.driver} gives it only to a fresh attachment: its pods have to leave "
                "the node and come back. "
                + untrusted.shown_command(
                    f"ansible-playbook {RUNBOOK} -e attachment_repair_names={{name}} -e "
                    "attachment_repair_reattach_missing_metadata=true",
                    name=attachment.name,
                )
                + metadata_arguments(attachment.driver, options.required_metadata)
            )
        found.append(finding)
    return found


# Workloads of STOR-13 and STOR-14: who has to be moved


def _workload_key(pods: Iterable[Pod]) -> tuple[str, str, str]:
    """Namespace, kind and name of what moves together: the pods of one controller."""
    return min(
        (pod.namespace, pod.owner.kind, pod.owner.name)
        if pod.owner
        else (pod.namespace, "Pod", pod.name)
        for pod in pods
    )


def _workload_title(pods: Collection[Pod]) -> str:
    namespace, kind, name = _workload_key(pods)
    return f"{kind} {namespace}/{name}"


def _workload(seen: Observation, pods: Collection[Pod], attachment: Attachment) -> dict[str, Any]:
    """Who has to be moved for this attachment to be recreated, and off which claims."""
    namespace, kind, name = _workload_key(pods)
    used = {(pod.namespace, claim) for pod in pods for claim in pod.claims}
    claims = sorted(
        claim
        for space, claim in seen.claims_of(attachment)
        if space == namespace and (space, claim) in used
    )
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "claims": claims,
        "attachments": [attachment.uid],
    }


def _join_workloads(found: Iterable[Finding], wanted: Iterable[Finding]) -> None:
    """Let the first finding of each workload that is in scope name all of its claims and
    attachments, and the others none.

    A workload moves as a whole, so its attachments that are out of scope are recreated too.
    """
    joined: dict[tuple[str, str], dict[str, Any]] = {}
    for finding in found:
        if finding.workload:
            workload = joined.setdefault(
                (finding.control, finding.evidence["workload_title"]), dict(finding.workload)
            )
            for what in {"claims", "attachments", "missing"} & set(workload):
                workload[what] = sorted({*workload[what], *finding.workload[what]})
    for finding in wanted:
        if finding.workload:
            finding.workload = joined.pop(
                (finding.control, finding.evidence["workload_title"]), None
            )


# STOR-15: no VolumeAttachment


def _never_attached(state: State, options: Options) -> list[Finding]:
    """Pods that wait for a volume although nothing is in the way: the controller manager does not
    do its work.
    """
    found = [
        {
            (wait.pod.uid, wait.volume.name): wait
            for wait in waits(seen, options.pending_seconds, state.now)
        }
        for seen in state.observations
    ]
    steady = [wait for key, wait in found[-1].items() if all(key in once for once in found)]
    steady = [
        wait for wait in steady if could_attach(wait, state.detached_drivers, state.drivers_on)
    ]
    volumes: dict[str, list[Wait]] = defaultdict(list)
    for wait in steady:
        volumes[wait.pod.uid].append(wait)
    oldest = max((age(state.now, wait.pod.scheduled) for wait in steady), default=0.0)
    return [
        _never_attached_pod(state, waiting, len(volumes), oldest) for waiting in volumes.values()
    ]


def _never_attached_pod(state: State, waiting: list[Wait], count: int, oldest: float) -> Finding:
    pod = waiting[0].pod
    seconds = age(state.now, pod.scheduled)
    attached = age(state.now, state.last_attach) if state.last_attach else None
    last = (
        "no attach event is left"
        if attached is None
        else f"the last attach event was {_duration(attached)} ago"
    )
    idle = attached is None or attached > oldest
    return Finding(
        control="STOR-15",
        severity="major",
        kind="pod",
        name=pod.name,
        node=pod.node,
        summary=f"pod {pod.title} has waited on {pod.node} for {_duration(seconds)}, "
        "and nothing attaches its volume",
        verdict="report",
        reason=f"the controller manager does not attach ({last}): look "
        "at its leader, which is the platform's"
        if idle
        else "the controller manager attaches other volumes "
        f"({last}): look in its log for this one",
        runbook="storage_ops.runbooks.triage",
        evidence={
            "driver": waiting[0].volume.disk[0],
            "volumes": [wait.volume.name for wait in waiting],
            "claims": ["/".join(wait.volume.claim) for wait in waiting],
            "missing_attachments": [wait.attachment for wait in waiting],
            "waiting_seconds": round(seconds),
            "pods_waiting": count,
            "last_attach_event_seconds_ago": None if attached is None else round(attached),
            **state.leader,
        },
        namespace=pod.namespace,
    )


# moves that were not finished


def _unfinished_moves(state: State) -> list[Finding]:
    """Nodes that workload_reattach still keeps new pods off: it runs, or it was killed.

    The annotation is on the Node, whose kubelet may have written it.
    """
    found = []
    for node in state.first.nodes.values():
        for text in node.cordons:
            try:
                cordon = untrusted.from_json(text)
                namespace, by, since = (
                    str(cordon["namespace"]),
                    str(cordon["by"]),
                    parse_time(str(cordon["since"])),
                )
                claims = [str(claim) for claim in cordon["claims"]]
            except (ValueError, KeyError, TypeError):
                continue
            found.append(
                _unfinished_move(
                    node,
                    namespace,
                    claims,
                    f"{untrusted.shown(by, 100)} {_duration(age(state.now, since))} ago",
                )
            )
    return found


def _unfinished_move(node: Node, namespace: str, claims: list[str], who: str) -> Finding:
    # No command to be copied: a kubelet would choose whose pods the operator moves.
    return Finding(
        control="",
        severity="major",
        kind="node",
        name=node.name,
        node=node.name,
        summary=f"node {node.name} takes no new pods since {who}, to move those of "
        f"{untrusted.shown(namespace, 100)}/{untrusted.shown(', '.join(claims), 500)}",
        verdict="report",
        reason="an annotation of the node says so, which its kubelet may have written too: see "
        "whether "
        "there was such a run. If there was, and it is over, the module workload_reattach finishes "
        "it and frees the node, for these claims",
        runbook="",
        evidence={
            "claims": [f"{namespace}/{claim}" for claim in claims],
            "claim": f"{namespace}/{claims[0]}" if claims else "",
        },
    )


# words


def _title(state: State, attachment: Attachment) -> str:
    volume = state.last.volumes.get(attachment.volume) or state.first.volumes.get(attachment.volume)
    return (
        f"{attachment.volume} ({'/'.join(volume.claim)})"
        if volume and volume.claim_name
        else attachment.volume
    )


def _pod_evidence(pods: Iterable[Pod], now: datetime) -> list[str]:
    return [f"{pod.title} {pod.phase}, {_duration(age(now, pod.created))} old" for pod in pods]


def _error_evidence(error: VolumeError | None, now: datetime) -> str:
    if error is None:
        return ""
    return (
        f"{error.message} ({_duration(age(now, error.time))} ago)" if error.time else error.message
    )


def _duration(seconds: float) -> str:
    """Seconds in the largest unit that still tells something."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
