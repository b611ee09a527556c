# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What triage is asked for, what it keeps of a pod and of the cluster, and look-ups in that.

Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from .._core import untrusted
from .._kube import observation
from .._kube.events import Message
from .._kube.objects import (
    Attachment,
    Claim,
    Lease,
    Node,
    Pod,
    Volume,
    age,
    attachment_name,
    cut,
    is_bound,
    parse_time,
    pick_pod,
    shifted,
)
from .._kube.observation import Observation

# A deletionTimestamp already includes the grace period (BeforeDelete in
# apiserver/pkg/registry/rest/delete.go); this much later the kubelet is late.
TERMINATING_SECONDS = 60.0

# A static pod has another uid for its kubelet than its mirror has in the API
# (pkg/kubelet/types/pod_update.go: ConfigMirrorAnnotationKey).
_MIRROR = "kubernetes.io/config.mirror"
# A hash of its file in hexadecimal (pkg/kubelet/config/common.go, applyDefaults), or a uid.
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")

# The kubelet's default reasons for a container that has not started (pkg/kubelet/kubelet_pods.go:
# convertToAPIContainerStatuses). They do not say why.
_DEFAULT_WAITING = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True)
class TriageOptions:
    """What the user asked for; see the documentation of pod_volume_info."""

    namespace: str = ""
    pod: str = ""
    node: str = ""
    # Pulling an image and attaching a volume take longer than a minute now and then.
    stuck_seconds: float = 120.0
    required_metadata: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: dict(observation.REQUIRED_METADATA)
    )


class Seen(NamedTuple):
    """A pod, and what only triage needs to know about it.

    ``since``: the time of its last change of state; ``started``: the start of its newest container.
    ``waiting``: why its containers or the scheduler wait.
    ``ending``: when it was deleted, without the grace period.
    ``mirror``: the uid that the kubelet's events give a static pod.
    ``containers``: one sentence for each container that is not ready.
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
class TriageState:
    """Everything the plan is made from.

    ``examined``: number of pods that were read. ``suspects``: those that look stuck.
    ``named``: the pod that the user named.
    ``seen``: the objects that the suspects' claims lead to; its ``pods`` are all that could use
    them. ``messages``: by uid of a suspect or a claim.
    ``detached_drivers``: drivers with attachRequired=false. ``drivers_on``: by node, the drivers of
    its CSINode (NodeDrivers.drivers).
    ``last_attach``: newest event of the cluster that reports an attach, see ATTACHED_FIELDS;
    ``attach_unread``: whether that could not be read in time.
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
    attach_unread: bool = False
    # Objects of which nothing could be made, and why.
    unread: Mapping[str, str] = field(default_factory=dict)
    # Namespaces whose events could not be read in time, and the seconds that they had.
    unread_events: Mapping[str, float] = field(default_factory=dict)

    def claims_of(self, pod: Pod) -> list[tuple[str, Claim | None]]:
        """The names of the pod's claims, and each claim, None where it does not exist."""
        return [(name, self.seen.claims.get((pod.namespace, name))) for name in pod.claims]

    def bound(self, pod: Pod) -> list[Volume]:
        """The PersistentVolumes that the pod's claims are bound to."""
        volumes = [
            self.seen.volumes.get(claim.volume)
            for _name, claim in self.claims_of(pod)
            if claim and self.is_bound(claim)
        ]
        return [volume for volume in volumes if volume]

    def shares(self, pod: Pod) -> list[str]:
        """The NFS shares that the kubelet itself mounts for the pod."""
        return [*pod.shares, *filter(None, (volume.share for volume in self.bound(pod)))]

    def check_of(self, share: str, pod: Pod) -> str:
        """Arguments that have check_nfs mount a share of the pod as the kubelet does; empty if it
        is none for a command.
        """
        asked = [volume.nfs_version for volume in self.bound(pod) if volume.share == share]
        version = next(filter(None, asked), "")
        more = untrusted.command_line(" -e nfs_check_wanted_version={version}", version=version)
        named = untrusted.command_line(" -e nfs_check_shares={share}", share=share)
        return f"{named}{more}" if named else ""

    def is_bound(self, claim: Claim) -> bool:
        """The claim has its volume, which may be gone."""
        return is_bound(claim, self.seen.volumes.get(claim.volume))

    def driver_of(self, volume: Volume, node: str) -> str:
        """The driver by which a node gets the volume; empty where an in-tree plugin does it."""
        return volume.disk[0] if volume.is_attached_by_driver(self.drivers_on.get(node, ())) else ""

    def own_attachment(self, volume: Volume, node: str) -> Attachment | None:
        """The VolumeAttachment that attaches the volume to a node."""
        # Its name is a hash of driver, handle and node (pkg/volume/csi/csi_attacher.go,
        # getAttachmentName), so it may name another PersistentVolume with the same handle.
        named = self.seen.attachments.get(attachment_name(*volume.disk, node))
        return named or next(
            (
                attachment
                for attachment in self.seen.by_volume.get(volume.name, ())
                if attachment.node == node
            ),
            None,
        )

    def wants_attachment(self, volume: Volume, node: str) -> bool:
        """The volume's driver works with VolumeAttachments."""
        # In-tree plugins do not, nor do drivers whose CSIDriver has attachRequired=false
        # (CSIDriverSpec of k8s.io/api/storage/v1).
        driver = self.driver_of(volume, node)
        return bool(driver) and driver not in self.detached_drivers


@dataclass
class Cause:
    """Why a pod is stuck.

    ``facts``: what the command needs in addition to the pod, its node and its volume.
    """

    control: str
    why: str
    look: str
    severity: str = "major"
    facts: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)


# A pod as triage needs it


def pick_seen(item: dict[str, Any]) -> Seen:
    """The record of a pod, from its object in the API."""
    pod = pick_pod(item)
    # Ephemeral containers are for debugging, and do not hold up the pod.
    meta, status = item["metadata"], item.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    main = status.get("containerStatuses") or []
    entries = [*(status.get("initContainerStatuses") or []), *main]
    return Seen(
        pod,
        _last_change(pod, conditions),
        _newest_start(entries),
        finalizers=tuple(meta.get("finalizers") or ()),
        waiting=_waiting(pod, entries, conditions.get("PodScheduled") or {}),
        ending=_deleted_at(pod, meta),
        mirror=_mirror(meta),
        containers=tuple(_container(entry) for entry in main if not entry.get("ready")),
    )


def _last_change(pod: Pod, conditions: Mapping[str, Mapping[str, Any]]) -> datetime | None:
    """Since when the pod waits on its node or is not ready; else since when it exists."""
    # A pod may have waited for a node for days; only the time on its node counts.
    condition: Mapping[str, Any] = {}
    if pod.phase == "Pending" and pod.node:
        condition = conditions.get("PodScheduled") or {}
    elif pod.phase == "Running":
        condition = conditions.get("Ready") or {}
    return parse_time(condition.get("lastTransitionTime")) or pod.created


def _newest_start(entries: Iterable[Mapping[str, Any]]) -> datetime | None:
    running = ((entry.get("state") or {}).get("running") or {} for entry in entries)
    times = (parse_time(state.get("startedAt")) for state in running)
    return max((time for time in times if time), default=None)


def _waiting(
    pod: Pod, entries: Iterable[Mapping[str, Any]], scheduled: Mapping[str, Any]
) -> tuple[Message, ...]:
    """Why containers wait, and why the scheduler finds no node; each reason once."""
    # Pods of many containers repeat the same reason in each status.
    reasons = [pair for entry in entries for pair in _why_it_waits(entry)]
    if not pod.node and scheduled.get("status") == "False":
        reasons.append((cut(scheduled.get("reason")), cut(scheduled.get("message"))))
    return tuple(
        Message(reason, text, 1, None)
        for reason, text in dict.fromkeys(reasons)
        if reason not in _DEFAULT_WAITING
    )


def _why_it_waits(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Reasons and messages of a container that waits."""
    waiting = (entry.get("state") or {}).get("waiting")
    if not waiting:
        return []
    # While it waits in CrashLoopBackOff, the termination message of the last run says why
    # (terminationMessagePath of k8s.io/api/core/v1 Container).
    ended = (entry.get("lastState") or {}).get("terminated") or {}
    said = cut(ended.get("message"))
    last_words = [(cut(ended.get("reason")) or "Error", said)] if said else []
    return [(cut(waiting.get("reason")), cut(waiting.get("message"))), *last_words]


def _deleted_at(pod: Pod, meta: Mapping[str, Any]) -> datetime | None:
    """The time of the deletion: a deletionTimestamp is the end of the grace period."""
    if not pod.deleted:
        return None
    return shifted(pod.deleted, -(meta.get("deletionGracePeriodSeconds") or 0))


def _mirror(meta: Mapping[str, Any]) -> str:
    """The kubelet's uid of a static pod."""
    # Checked, since it becomes part of a field selector: whoever may create a pod can set it.
    text = (meta.get("annotations") or {}).get(_MIRROR) or ""
    return text if _UID.fullmatch(text) else ""


def _container(entry: Mapping[str, Any]) -> str:
    """The state of a container that is not ready, and how it ended before."""
    kind, state = next(iter((entry.get("state") or {}).items()), ("", None))
    words = [f"container {entry.get('name')} is {kind or 'in an unknown state'}"]
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
    """The pod has been waiting, ending or not ready for too long."""
    pod = seen.pod
    if pod.deleted:
        return age(now, pod.deleted) > TERMINATING_SECONDS
    # An ended pod waits for its garbage collector, not for a volume.
    if pod.phase in ("Succeeded", "Failed") or (pod.phase == "Running" and pod.ready):
        return False
    return age(now, seen.since) >= stuck_seconds


def unattached(state: TriageState) -> list[tuple[Pod, Volume]]:
    """Pods that have a node, with each volume whose driver needs a VolumeAttachment there and has
    none.
    """
    return [
        (suspect.pod, volume)
        for suspect in state.suspects
        for volume in state.bound(suspect.pod)
        if suspect.pod.node
        and not suspect.pod.deleted
        and state.wants_attachment(volume, suspect.pod.node)
        if state.own_attachment(volume, suspect.pod.node) is None
    ]


def node_state(node: Node | None) -> str:
    """The state of a node, as the end of a sentence about it."""
    if node is None:
        return "does not exist"
    # Unknown is set by the node controller once the kubelet has not renewed its Lease and status
    # for node-monitor-grace-period (pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    return {"True": "is Ready", "False": "is not Ready"}.get(
        node.ready, "does not report (Ready is Unknown)"
    )


def elapsed(now: datetime, since: datetime | None) -> str:
    """The seconds since a time, for a text."""
    return f"{age(now, since):.0f} s" if since else "an unknown time"
