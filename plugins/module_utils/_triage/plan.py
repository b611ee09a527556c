# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Pods that are stuck: which control it is, and the one command that repairs it (R15). Pure: no I/O
here.

What the objects prove counts more than what a message says; a message that is unknown is shown as
it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Callable, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import controls, untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding, Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import observation
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.events import (
    VOLUME_REASONS,
    WAITS_FOR_SCHEDULER,
    Message,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Attachment,
    Claim,
    Lease,
    Node,
    Pod,
    Volume,
    age,
    attachment_name,
    cut,
    parse_time,
    pick_pod,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.observation import (
    Observation,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage import catalogue
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.catalogue import Entry

# What a finding of triage may be about; "" is none of the controls.
CONTROLS = {"", *controls.REPAIRABLE, "STOR-15"}

# A deletionTimestamp holds the end of the grace period already; this much later the kubelet is
# late.
TERMINATING_SECONDS = 60.0
# An event this much older than the newest one of its reason speaks of something that is over: the
# kubelet repeats itself every 2 minutes.
OUTDATED_SECONDS = 600.0
# What made a running pod not ready was said this long before it at most: the probe failed a few
# times first.
BEFORE_NOT_READY_SECONDS = 300.0
MAX_MESSAGES = 10
# The driver for whose volumes there is a fail-over; Rook puts its namespace in front.
RBD_DRIVER = "rbd.csi.ceph.com"
_LOST = (
    "the playbook fences Ceph RBD volumes; for others prove that {node} is off or fenced "
    "before they go elsewhere"
)

# A static pod is another object for its kubelet (pkg/kubelet/types/pod_update.go:
# ConfigMirrorAnnotationKey).
_MIRROR = "kubernetes.io/config.mirror"
# A hash of its file in hexadecimal (pkg/kubelet/config/common.go, applyDefaults), or a uid.
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")

# How node.status begins the names of CSI volumes.
_CSI = "kubernetes.io/csi/"

# Waiting states that say nothing.
_SILENT = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True)
class Options:
    """What the user asked for; see the documentation of pod_volume_info."""

    namespace: str = ""
    pod: str = ""
    node: str = ""
    stuck_seconds: float = 120.0
    required_metadata: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: dict(observation.REQUIRED_METADATA)
    )


class Seen(NamedTuple):
    """A pod, and what only triage wants of it.

    ``since``: how long it has been as it is; ``started``: when its newest container was.
    ``ending``: when it was deleted.
    ``mirror``: the uid that the kubelet's events give a static pod. ``containers``: those that are
    not ready, for the eye.
    """

    pod: Pod
    since: datetime | None
    started: datetime | None
    finalizers: tuple[str, ...]
    waiting: tuple[Message, ...]
    ending: datetime | None = None
    mirror: str = ""
    containers: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """Everything the plan is made from.

    ``examined``: number of pods that were looked at. ``suspects``: those that look stuck.
    ``named``: the pod that the user named.
    ``seen``: what the suspects' claims lead to; its ``pods`` are all that could use them.
    ``messages``: by uid of a suspect or a claim.
    ``detached_drivers``: drivers with attachRequired=false. ``drivers_on``: by node, the drivers of
    its CSINode (NodeDrivers.drivers).
    ``last_attach``: newest event of the cluster that claims an attach, see ATTACHED_FIELDS.
    """

    now: datetime
    examined: int
    suspects: tuple[Seen, ...]
    named: Seen | None = None
    seen: Observation = field(default_factory=lambda: Observation(0.0, {}))
    messages: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    version: tuple[int, int, int] = (1, 0, 0)
    version_text: str = ""
    detached_drivers: frozenset[str] = frozenset()
    drivers_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lease: Lease | None = None
    last_attach: datetime | None = None

    def bound(self, pod: Pod) -> list[Volume]:
        """The PersistentVolumes that the pod's claims are bound to."""
        claims = [self.seen.claims.get((pod.namespace, name)) for name in pod.claims]
        volumes = [
            self.seen.volumes.get(claim.volume)
            for claim in claims
            if claim and claim.phase == "Bound"
        ]
        return [volume for volume in volumes if volume]

    def driver_of(self, volume: Volume, node: str) -> str:
        """The driver by which a node has the volume; empty where an in-tree plugin does
        it itself.
        """
        return volume.disk[0] if volume.is_attached_by_driver(self.drivers_on.get(node, ())) else ""


@dataclass
class Cause:
    """Why a pod is stuck.

    ``facts``: what the command needs beside the pod, its node and its volume.
    """

    control: str
    why: str
    look: str
    severity: str = "major"
    facts: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)


def pick_seen(item: dict[str, Any]) -> Seen:
    """A pod as triage needs it."""
    pod = pick_pod(item)
    status = item.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    scheduled, ready = conditions.get("PodScheduled") or {}, conditions.get("Ready") or {}
    entries = [
        entry
        for kind in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(kind) or []
    ]
    states = [entry.get("state") or {} for entry in entries]
    waiting = [pair for entry in entries for pair in _why_it_waits(entry)]
    if not pod.node and scheduled.get("status") == "False":
        waiting.append((cut(scheduled.get("reason")), cut(scheduled.get("message"))))
    started = [
        time
        for time in (parse_time((state.get("running") or {}).get("startedAt")) for state in states)
        if time
    ]
    since = (
        scheduled
        if pod.phase == "Pending" and pod.node
        else ready
        if pod.phase == "Running"
        else {}
    )
    return Seen(
        pod,
        parse_time(since.get("lastTransitionTime")) or pod.created,
        max(started, default=None),
        tuple(item["metadata"].get("finalizers") or ()),
        tuple(
            Message(reason, text, 1, None)
            for reason, text in dict.fromkeys(waiting)
            if reason not in _SILENT
        ),
        # A deletionTimestamp holds the end of the grace period.
        pod.deleted - timedelta(seconds=item["metadata"].get("deletionGracePeriodSeconds") or 0)
        if pod.deleted
        else None,
        _mirror(item),
        tuple(
            _container(entry)
            for entry in status.get("containerStatuses") or []
            if not entry.get("ready")
        ),
    )


def _mirror(item: dict[str, Any]) -> str:
    """Any pod may be made with that annotation, and the text becomes a part of a selector."""
    text = (item["metadata"].get("annotations") or {}).get(_MIRROR) or ""
    return text if _UID.fullmatch(text) else ""


def _why_it_waits(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Reasons and messages of a container that waits.

    One that ends again and again says why in its last words.
    """
    waiting = (entry.get("state") or {}).get("waiting")
    if not waiting:
        return []
    ended = (entry.get("lastState") or {}).get("terminated") or {}
    said = cut(ended.get("message"))
    last_words = [(cut(ended.get("reason")) or "Error", said)] if said else []
    return [(cut(waiting.get("reason")), cut(waiting.get("message"))), *last_words]


def _container(entry: Mapping[str, Any]) -> str:
    """What a container does that is not ready, and how it ended before."""
    kind, state = next(iter((entry.get("state") or {}).items()), ("", None))
    words = [f"container {entry.get('name')} is {kind or 'in no known state'}"]
    if state and state.get("reason"):
        words.append(cut(state["reason"]))
    ended = (entry.get("lastState") or {}).get("terminated")
    if ended:
        words.append(
            f"ended before with {cut(ended.get('reason')) or 'no reason'} (exit code "
            f"{ended.get('exitCode')})"
        )
    if entry.get("restartCount"):
        words.append(f"restarted {entry['restartCount']} times")
    return ", ".join(words)


def suspect(seen: Seen, now: datetime, stuck_seconds: float) -> bool:
    """It has been waiting, ending or not ready for so long that somebody should ask why."""
    pod = seen.pod
    if pod.deleted:
        return age(now, pod.deleted) > TERMINATING_SECONDS
    if pod.phase in ("Succeeded", "Failed") or (pod.phase == "Running" and pod.ready):
        return False
    return age(now, seen.since) >= stuck_seconds


def unattached(state: State) -> list[tuple[Pod, Volume]]:
    """Pods that have a node, with each volume that has no VolumeAttachment for it although the
    driver wants one.
    """
    return [
        (suspect.pod, volume)
        for suspect in state.suspects
        for volume in state.bound(suspect.pod)
        if suspect.pod.node
        and not suspect.pod.deleted
        and _wants_attachment(volume, suspect.pod.node, state)
        if _own(volume, suspect.pod.node, state) is None
    ]


def plan(state: State, options: Options, go_on: Callable[[], None] = lambda: None) -> Plan:
    """One finding for every pod that is stuck.

    ``go_on`` is asked before each, and raises what ends it.
    """
    findings = []
    for seen in state.suspects:
        go_on()
        findings.append((seen, _cause(seen, state, options)))
    return Plan([_finding(seen, cause, state) for seen, cause in findings if cause])


def _cause(seen: Seen, state: State, options: Options) -> Cause | None:
    """Why a pod is stuck; None when it is not, after all."""
    messages = _current(seen, state)
    if seen.pod.deleted:
        return _ending(seen, state) or _told(messages, seen, state) or _silent(seen, state)
    lost = _unheard(seen, state)
    if lost:
        return lost
    if seen.pod.phase == "Running":
        return _told(
            [
                message
                for message in messages
                if _since_it_runs(message, seen) and _about_storage(message)
            ],
            seen,
            state,
        )
    return _waiting(seen, state, options) or _told(messages, seen, state) or _silent(seen, state)


def _since_it_runs(message: Message, seen: Seen) -> bool:
    """Not ready, but running: ours only when a message of that time says so.

    All others are about the start, or over.
    """
    if not seen.started or not message.last:
        return True
    return (
        message.last > seen.started
        and age(seen.since or message.last, message.last) <= BEFORE_NOT_READY_SECONDS
    )


def _unheard(seen: Seen, state: State) -> Cause | None:
    """A node that is not heard of is why its pods are as they are, whatever was said before."""
    pod, node = seen.pod, state.seen.nodes.get(seen.pod.node)
    if not pod.node or (node is not None and node.ready != "Unknown"):
        return None
    why, volumes = f"its node {pod.node} {_node_state(node)}", state.bound(pod)
    if not volumes:
        return Cause(
            "",
            why,
            "repair or remove the node, or delete the pod so that another node takes it",
            "info",
        )
    return Cause("STOR-16", why, _LOST.format(node=pod.node), facts=_lost(pod.node, *volumes))


# What the objects prove


def _waiting(seen: Seen, state: State, options: Options) -> Cause | None:
    """What keeps a pod that has a node from starting."""
    pod = seen.pod
    if not pod.node:
        return None
    node = state.seen.nodes.get(pod.node)
    if node is None or node.ready != "True":
        return Cause(
            "",
            f"its node {pod.node} {_node_state(node)}",
            "repair the node, or delete the pod so that another node takes it",
        )
    for name in pod.claims:
        claim = state.seen.claims.get((pod.namespace, name))
        if (
            claim
            and _unbound(claim)
            and any(
                said.reason == WAITS_FOR_SCHEDULER for said in state.messages.get(claim.uid, ())
            )
        ):
            return Cause(
                "",
                f"claim {name} gets its volume where the scheduler puts the pod, which was put on "
                f"{pod.node} without it (spec.nodeName)",
                "make the pod without spec.nodeName, with a nodeSelector or affinity in its place; "
                "or annotate the claim with volume.kubernetes.io/selected-node={node}",
            )
    for volume in state.bound(pod):
        cause = _volume_cause(volume, node, state, options)
        if cause:
            return cause
    return None


def _volume_cause(volume: Volume, node: Node, state: State, options: Options) -> Cause | None:
    """What keeps one volume from a node, as far as the objects prove it."""
    own = _own(volume, node.name, state)
    if own is None or own.attach_error:
        held = _held(volume, node, state)
        if held:
            return held
    if own is None and _wants_attachment(volume, node.name, state):
        return _no_attachment(volume, node, state)
    if own is None:
        return _unregistered([state.driver_of(volume, node.name)], node, state)
    if own.deleted:
        return _detaching(own, state)
    if own.attach_error:
        # The driver's own words say more than we can; the catalogue may know them.
        known = catalogue.match(
            "FailedAttachVolume",
            f"AttachVolume.Attach failed for volume : {own.attach_error.message}",
        )
        return Cause(
            known.control if known else "",
            f"attaching {volume.name} to {node.name} fails: {own.attach_error.message}",
            known.look if known else "",
        )
    if not own.attached:
        return Cause(
            "",
            f"the external-attacher of {own.driver} has not answered VolumeAttachment {own.name} "
            f"for {_seconds(state.now, own.created)}",
            "look at the pods and logs of the driver's controller (container csi-attacher)",
        )
    missing = observation.missing_metadata(own, options.required_metadata)
    if missing:
        return Cause(
            "STOR-14",
            f"VolumeAttachment {own.name} lacks {', '.join(missing)}, without which {own.driver} "
            "cannot mount",
            "the workload leaves the node, and comes back when that VolumeAttachment is gone",
            facts={
                "attachment": own.name,
                "more": observation.metadata_arguments(own.driver, options.required_metadata),
            },
        )
    if observation.may_lack_status(state.seen, own):
        return Cause(
            "STOR-13",
            f"VolumeAttachment {own.name} is attached, but status.volumesAttached of {node.name} "
            "lacks the volume",
            "seen once here; the playbook looks several times before it does anything",
            facts={"attachment": own.name},
        )
    return _unregistered([state.driver_of(volume, node.name)], node, state)


def _unregistered(drivers: Iterable[str], node: Node, state: State) -> Cause | None:
    """A driver that its node does not have, as far as the CSINode is known."""
    there = state.drivers_on.get(node.name)
    absent = [driver for driver in drivers if driver and there is not None and driver not in there]
    if not absent:
        return None
    why = (
        f"CSINode {node.name} lacks the driver {absent[0]}, so the kubelet can neither mount nor "
        "unmount its volumes"
    )
    return Cause(
        "",
        why,
        f"look at the driver's node pod on {node.name}: was it removed, or does it not start?",
    )


def _own(volume: Volume, node: str, state: State) -> Attachment | None:
    """The volume's VolumeAttachment for a node."""
    # Another PersistentVolume of the same handle may stand in it.
    named = state.seen.attachments.get(attachment_name(*volume.disk, node))
    return named or next(
        (
            attachment
            for attachment in state.seen.by_volume.get(volume.name, ())
            if attachment.node == node
        ),
        None,
    )


def _wants_attachment(volume: Volume, node: str, state: State) -> bool:
    """Its driver works with VolumeAttachments; an in-tree plugin that attaches by itself makes
    none.
    """
    driver = state.driver_of(volume, node)
    return bool(driver) and driver not in state.detached_drivers


def _no_attachment(volume: Volume, node: Node, state: State) -> Cause:
    """R8: no VolumeAttachment is created. First what explains it, then the controller manager."""
    if not node.managed:
        return Cause(
            "",
            f"{node.name} lacks the annotation "
            "volumes.kubernetes.io/controller-managed-attach-detach, "
            "so no volume is attached to it",
            "restart its kubelet with enableControllerAttachDetach: true",
        )
    driver = volume.disk[0]
    if driver not in state.drivers_on.get(node.name, ()):
        return Cause(
            "",
            f"CSINode {node.name} lacks the driver {driver}",
            f"look at the driver's node pod on {node.name}",
        )
    lease = state.lease
    leader = (
        f"{lease.holder or 'nobody'}, lease renewed {_seconds(state.now, lease.renewed)} ago"
        if lease
        else "no lease"
    )
    last = (
        f"{_seconds(state.now, state.last_attach)} ago"
        if state.last_attach
        else "none that is still known"
    )
    return Cause(
        "STOR-15",
        f"no VolumeAttachment is created for {volume.name} on {node.name}",
        "the controller manager does not attach it (last attach of any volume, by its events: "
        f"{last}); its owner looks at the leader: {leader}",
        evidence={"leader": leader, "last_attach": last},
    )


def _lost(node: str, *volumes: Volume) -> dict[str, str]:
    """The fact that the command of a fail-over needs; only where it can do something."""
    return (
        {"lost_node": node} if any(volume.driver.endswith(RBD_DRIVER) for volume in volumes) else {}
    )


def _held(volume: Volume, node: Node, state: State) -> Cause | None:
    """Another node that has a volume which only one node can have."""
    others = [
        attachment
        for attachment in state.seen.by_volume.get(volume.name, ())
        if attachment.node != node.name
    ]
    if not others or not volume.exclusive:
        return None
    other = others[0]
    there, what = state.seen.nodes.get(other.node), f"{volume.name} is attached to {other.node}"
    if there is None or there.ready != "True":
        return Cause(
            "STOR-16",
            f"{what}, which {_node_state(there)}",
            _LOST.format(node=other.node),
            facts={"node": other.node, **_lost(other.node, volume)},
        )
    if other.deleted:
        return _detaching(other, state)
    users = [
        f"{pod.title}{' (being deleted)' if pod.deleted else ''}" for pod in state.seen.users(other)
    ]
    if users:
        return Cause(
            "",
            f"{what}, where pod {', '.join(users)} needs it",
            "stop or move that pod; only one node can have the volume",
        )
    needed = observation.needed_by(state.seen, other)
    if needed:
        return Cause(
            "",
            f"{what}, where {needed} has it in use",
            f"look at the kubelet's log on {other.node} for what keeps it from unmounting; audit "
            "the node with node_storage_info",
        )
    because = observation.proofs(state.seen, other, state.version, state.version_text)
    why = f"{what}, where no pod needs it"
    if observation.blockers(state.seen, other) or not because:
        # The repair would not delete it either.
        look = (
            "nothing proves that it is left over; a controller manager that runs detaches it by "
            "itself. Audit it with cluster_storage_info"
        )
        return Cause("STOR-11", why, look)
    look = "the playbook looks twice before it deletes anything"
    return Cause(
        "STOR-11",
        why,
        look,
        facts={"attachment": other.name},
        # By its name a playbook repairs it.
        evidence={"because": because, "attachment": other.name},
    )


def _detaching(attachment: Attachment, state: State) -> Cause:
    """Somebody deletes it, and the driver does not let go."""
    since = _seconds(state.now, attachment.deleted)
    error = f": {attachment.detach_error.message}" if attachment.detach_error else ""
    held = f", held by {', '.join(attachment.finalizers)}" if attachment.finalizers else ""
    return Cause(
        "STOR-11",
        f"VolumeAttachment {attachment.name} for {attachment.node} was deleted {since} ago and is "
        f"still there{held}{error}",
        "the driver must let go of the volume: look at its controller (container csi-attacher) and "
        "the storage; never strip the finalizer",
    )


def _ending(seen: Seen, state: State) -> Cause | None:
    """What keeps a pod from ending."""
    pod = seen.pod
    node = state.seen.nodes.get(pod.node)
    volumes = bool(pod.claims or pod.inline_drivers)
    if seen.finalizers:
        return Cause(
            "",
            f"it is held by finalizers: {', '.join(seen.finalizers)}",
            "look at what set them; this is not storage",
            "info",
        )
    if node is None or node.ready != "True":
        control = "STOR-16" if pod.claims else ""
        look = _LOST.format(node=pod.node) if pod.claims else "repair or remove the node"
        facts = _lost(pod.node, *state.bound(pod))
        return Cause(
            control,
            f"its node {pod.node} {_node_state(node)}",
            look,
            "major" if volumes else "info",
            facts=facts,
        )
    drivers = [state.driver_of(volume, node.name) for volume in state.bound(pod)]
    return _unregistered([*drivers, *pod.inline_drivers], node, state)


def _silent(seen: Seen, state: State) -> Cause:
    """Nobody says anything."""
    pod = seen.pod
    if pod.deleted:
        look = f"look at the log of the kubelet on {pod.node} for this pod"
        if not (pod.claims or pod.inline_drivers):
            return Cause(
                "", "the kubelet has not ended it, and it has no persistent volume", look, "info"
            )
        return Cause(
            "",
            "the kubelet has not ended it or not unmounted its volumes",
            f"{look}; audit the node with node_storage_info",
        )
    if pod.alive:
        look = untrusted.shown_command(
            "kubectl -n {namespace} logs {pod} --all-containers",
            namespace=pod.namespace,
            pod=pod.name,
        )
        return Cause("", "its volumes are mounted and an init container is running", look, "info")
    for name in pod.claims:
        claim = state.seen.claims.get((pod.namespace, name))
        if claim is None or _unbound(claim):
            why = "is not bound to a volume" if claim else "does not exist"
            look = untrusted.shown_command(
                "kubectl -n {namespace} describe pvc {claim}", namespace=pod.namespace, claim=name
            )
            return Cause("", f"claim {name} {why}", look)
    where = f"the log of the kubelet on {pod.node}" if pod.node else "the scheduler"
    alone = sorted({volume.driver for volume in state.bound(pod)} & state.detached_drivers)
    if pod.node and alone:
        where += f", and of the node pod of {alone[0]} there, which mounts without an attachment"
    return Cause(
        "",
        "no event and no object says why (events are kept for an hour)",
        f"look at {where}",
        "minor",
    )


# What messages say


def _current(seen: Seen, state: State) -> list[Message]:
    """What is said of a pod and of its claims that are not bound, without what is over, newest
    first.
    """
    pod = seen.pod
    claims = [state.seen.claims.get((pod.namespace, name)) for name in pod.claims]
    said = [*seen.waiting, *state.messages.get(pod.uid, ())]
    for claim in claims:
        if claim and _unbound(claim):
            said += state.messages.get(claim.uid, ())
    if pod.node:
        said = [message for message in said if message.reason != "FailedScheduling"]
    newest: dict[str, datetime] = {}
    for message in said:
        last = message.last or state.now
        newest[message.reason] = max(newest.get(message.reason, last), last)
    current = [
        message
        for message in said
        if age(newest[message.reason], message.last or state.now) <= OUTDATED_SECONDS
        and not _is_over(message, said, seen, state)
    ]
    return sorted(current, key=lambda message: message.last or state.now, reverse=True)


def _is_over(message: Message, said: Iterable[Message], seen: Seen, state: State) -> bool:
    """Something else shows that the message is not true any more."""
    if message.reason == WAITS_FOR_SCHEDULER:
        return True  # how it should be, until there is a node; then it is told as what it is
    entry = catalogue.match(message.reason, message.text)
    claims = [state.seen.claims.get((seen.pod.namespace, name)) for name in seen.pod.claims]
    if entry and entry.of_claims and all(claim and not _unbound(claim) for claim in claims):
        return True
    if not message.last:
        return False
    if seen.ending and message.last < seen.ending and not (entry and entry.lasts):
        return True
    # After a reboot a kubelet says so for some seconds; a driver that answers is registered.
    return bool(
        entry
        and entry.id == "driver-not-registered"
        and any(
            other.last and other.last > message.last and catalogue.answered(other.text)
            for other in said
        )
    )


def _told(messages: Iterable[Message], seen: Seen, state: State) -> Cause | None:
    """What the messages say of the cause, by the one that says most of it; one that is unknown is
    told as it is.
    """
    known = [(message, catalogue.match(message.reason, message.text)) for message in messages]
    if not known:
        return None
    message, entry = min(known, key=lambda pair: _rank(*pair))
    if entry is None:
        volume = message.reason in VOLUME_REASONS
        return Cause(
            "",
            f"a message that triage does not know: {message.reason}: {message.text}",
            "judge it by its own words"
            + (", and look at the log of the CSI driver's node pod on {node}" if volume else ""),
            "major" if volume else "minor",
        )
    return Cause(
        entry.control,
        entry.cause,
        entry.look,
        "major" if entry.storage else "info",
        facts=_where(entry, message, seen, state),
    )


def _where(entry: Entry, message: Message, seen: Seen, state: State) -> dict[str, str]:
    """What the command for a message needs beside the pod, its node and its volume: the object that
    it is about, if that is clear.
    """
    pod, node = seen.pod, state.seen.nodes.get(seen.pod.node)
    volumes = state.bound(pod)
    named = [volume for volume in volumes if f'"{volume.name}"' in message.text] or volumes
    if entry.metadata:
        # Of a driver that we do not know by this name, the playbook must be told what its
        # attachments need.
        made = [
            own
            for volume in named
            for own in [_own(volume, pod.node, state)]
            if own and entry.metadata not in own.metadata
        ]
        if len(made) != 1:
            return {}
        needs = observation.metadata_arguments(made[0].driver, {made[0].driver: (entry.metadata,)})
        return {"attachment": made[0].name, "more": needs}
    if (
        entry.control == "STOR-13"
        and node
        and not any(volume.driver for volume in named)
        and _lacks_in_tree(node)
    ):
        return {"in_tree_node": node.name}
    return {}


def _lacks_in_tree(node: Node) -> bool:
    """An in-tree plugin makes no VolumeAttachment; the node's own lists tell that the kubelet waits
    for one of its volumes.
    """
    return any(
        not name.startswith(_CSI) and name not in node.volumes_attached
        for name in node.volumes_in_use
    )


def _about_storage(message: Message) -> bool:
    entry = catalogue.match(message.reason, message.text)
    return entry.storage if entry else message.reason in VOLUME_REASONS


def _rank(message: Message, entry: Entry | None) -> tuple[int, int]:
    """Known causes, then unknown words about a volume, then what is not storage, then "it timed
    out", then all else that is unknown.
    """
    if entry is None:
        return (1 if message.reason in VOLUME_REASONS else 4), 0
    return (3 if entry.vague else 0 if entry.storage else 2), catalogue.ENTRIES.index(entry)


# Findings


def _finding(seen: Seen, cause: Cause, state: State) -> Finding:
    pod = seen.pod
    facts = {
        "node": pod.node,
        "namespace": pod.namespace,
        "pod": pod.name,
        "claim": pod.claims[0] if pod.claims else "",
        **cause.facts,
    }
    what = (
        "is being deleted"
        if pod.deleted
        else "is not ready"
        if pod.phase == "Running"
        else "has been waiting"
    )
    where = f" on {pod.node}" if pod.node else ""
    return Finding(
        control=cause.control,
        severity=cause.severity,
        kind="pod",
        name=pod.name,
        node=pod.node,
        namespace=pod.namespace,
        summary=f"{what}{where} for {_seconds(state.now, pod.deleted or seen.since)}: "
        f"{_fill(cause.why, facts)}",
        verdict="report",
        reason=_reason(cause, facts),
        runbook=controls.runbook(cause.control),
        evidence={**_evidence(seen, state), **cause.evidence},
        workload={"namespace": pod.namespace, "claims": list(pod.claims)} if pod.claims else None,
    )


def _reason(cause: Cause, facts: Mapping[str, str]) -> str:
    """The one command that repairs it, or where to look."""
    command = controls.command(cause.control, facts)
    look = _fill(cause.look, facts)
    if command:
        return f"{command} (with --check first); {look}"
    if cause.severity == "info":
        return f"not storage: {look}"
    return look


def _fill(text: str, facts: Mapping[str, str]) -> str:
    """Put the facts into a text of ours; one from a driver may hold braces of its own."""
    for name, value in facts.items():
        text = text.replace(
            f"{{{name}}}", value if untrusted.is_plain(value) else f"({name} unknown)"
        )
    return text


def _evidence(seen: Seen, state: State) -> dict[str, Any]:
    """What was read about a pod, verbatim."""
    pod = seen.pod
    messages = sorted(
        [*seen.waiting, *state.messages.get(pod.uid, ())],
        key=lambda message: message.last or state.now,
        reverse=True,
    )
    evidence: dict[str, Any] = {"phase": "Terminating" if pod.deleted else pod.phase}
    if messages:
        evidence["messages"] = [
            _describe(message, state.now) for message in messages[:MAX_MESSAGES]
        ]
    for name in pod.claims:
        claim = state.seen.claims.get((pod.namespace, name))
        evidence.setdefault("claims", []).append(f"{name}: {_claim_state(claim, state)}")
        said = state.messages.get(claim.uid, ()) if claim else ()
        if said:
            evidence.setdefault("claim_messages", []).extend(
                _describe(message, state.now) for message in said[:MAX_MESSAGES]
            )
    made = [
        attachment
        for volume in state.bound(pod)
        for attachment in state.seen.by_volume.get(volume.name, ())
    ]
    if made:
        evidence["attachments"] = [_attachment_state(attachment, state.now) for attachment in made]
    node = state.seen.nodes.get(pod.node)
    if pod.node:
        evidence["node"] = f"{pod.node} {_node_state(node)}"
    names = [
        unique_name(*volume.disk)
        for volume in state.bound(pod)
        if state.driver_of(volume, pod.node)
    ]
    if node and names:
        evidence["volumes_attached"] = [name for name in names if name in node.volumes_attached]
        evidence["volumes_in_use"] = [name for name in names if name in node.volumes_in_use]
    return evidence


def _describe(message: Message, now: datetime) -> str:
    times = f" x{message.times}" if message.times > 1 else ""
    when = f" {_seconds(now, message.last)} ago" if message.last else ""
    return f"{message.reason}{times}{when}: {message.text}"


def _claim_state(claim: Claim | None, state: State) -> str:
    if claim is None:
        return "does not exist"
    if _unbound(claim):
        wanted = f", to be bound to {claim.volume}" if claim.volume else ""
        return f"{claim.phase or 'not bound'}{wanted}"
    volume = state.seen.volumes.get(claim.volume)
    if volume is None:
        return f"bound to {claim.volume}, which does not exist"
    return f"bound to {claim.volume}" + (
        f" ({volume.driver}, {volume.handle})" if volume.driver else ""
    )


def _attachment_state(attachment: Attachment, now: datetime) -> str:
    words = [
        f"{attachment.name} on {attachment.node}: "
        f"{'attached' if attachment.attached else 'not attached'}"
    ]
    if attachment.metadata:
        words.append(f"metadata {', '.join(attachment.metadata)}")
    if attachment.deleted:
        words.append(f"deleted {_seconds(now, attachment.deleted)} ago")
    for what, error in (
        ("attachError", attachment.attach_error),
        ("detachError", attachment.detach_error),
    ):
        if error:
            words.append(f"{what}: {error.message}")
    return ", ".join(words)


def _node_state(node: Node | None) -> str:
    if node is None:
        return "does not exist"
    return {"True": "is Ready", "False": "is not Ready"}.get(
        node.ready, "is not heard of (Ready is Unknown)"
    )


def _unbound(claim: Claim) -> bool:
    return claim.phase != "Bound"


def _seconds(now: datetime, since: datetime | None) -> str:
    return f"{age(now, since):.0f} s" if since else "an unknown time"
