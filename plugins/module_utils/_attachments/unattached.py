# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STOR-15: pods that wait for a volume, and no VolumeAttachment is created, or none answered.

Pure: no I/O here.
"""

from __future__ import annotations

from collections import defaultdict

from .._core.engine import Finding
from .._kube.attaching import UNREAD
from .._kube.objects import Attachment, age
from .findings import duration
from .state import AttachmentOptions, AttachmentState
from .suspects import Wait, could_attach, waits


def never_attached(state: AttachmentState, options: AttachmentOptions) -> list[Finding]:
    """Pods that wait for a volume although nothing is in the way: the controller manager or the
    driver's attacher does not attach it.
    """
    # What can be in the way was excluded by suspects.waits and could_attach.
    steady = _steady_waits(state, options)
    # One finding for a pod: its volumes wait for the same cause.
    by_pod: dict[str, list[Wait]] = defaultdict(list)
    for wait in steady:
        by_pod[wait.pod.uid].append(wait)
    # Events are kept for an hour by default (--event-ttl of kube-apiserver), so none may be left.
    oldest = max((age(state.now, wait.pod.scheduled) for wait in steady), default=0.0)
    return [_never_attached_pod(state, waiting, len(by_pod), oldest) for waiting in by_pod.values()]


def _steady_waits(state: AttachmentState, options: AttachmentOptions) -> list[Wait]:
    """Pods and volumes that waited in every observation, and that a driver could attach."""
    found = [
        {
            (wait.pod.uid, wait.volume.name): wait
            for wait in waits(seen, options.pending_seconds, state.now)
        }
        for seen in state.observations
    ]
    return [
        wait
        for key, wait in found[-1].items()
        # One that was attached meanwhile waited only for its turn.
        if all(key in once for once in found)
        and could_attach(wait, state.detached_drivers, state.drivers_on)
    ]


def _never_attached_pod(
    state: AttachmentState, waiting: list[Wait], count: int, oldest: float
) -> Finding:
    pod = waiting[0].pod
    seconds = age(state.now, pod.scheduled)
    attached = age(state.now, state.last_attach) if state.last_attach else None
    last = (
        "no attach event is left"
        if attached is None
        else f"the last attach event was {duration(attached)} ago"
    )
    if state.attach_unread:
        last = f"when it last attached one is {UNREAD}"
    unanswered = [wait.unanswered for wait in waiting if wait.unanswered]
    # If it has attached no volume since the oldest of these pods began to wait, it attaches none at
    # all; otherwise something is wrong with this volume.
    idle = not state.attach_unread and (attached is None or attached > oldest)
    return Finding(
        control="STOR-15",
        severity="major",
        kind="pod",
        name=pod.name,
        node=pod.node,
        summary=f"pod {pod.title} has waited on {pod.node} for {duration(seconds)}, "
        "and nothing attaches its volume",
        reason=_of_the_attacher(unanswered[0])
        if unanswered
        else _of_the_manager(last, idle, state.attach_unread),
        evidence={
            "driver": waiting[0].volume.disk[0],
            "volumes": [wait.volume.name for wait in waiting],
            "claims": ["/".join(wait.volume.claim) for wait in waiting],
            # To be compared with the attachments of the cluster.
            "missing_attachments": [wait.attachment for wait in waiting if not wait.unanswered],
            "unanswered_attachments": [attachment.name for attachment in unanswered],
            "waiting_seconds": round(seconds),
            "pods_waiting": count,
            "last_attach_event_seconds_ago": None if attached is None else round(attached),
            **state.leader,
        },
        namespace=pod.namespace,
    )


def _of_the_attacher(attachment: Attachment) -> str:
    return (
        f"the external-attacher of {attachment.driver} has not answered VolumeAttachment "
        f"{attachment.name}: look at the pods and logs of the driver's controller (container "
        "csi-attacher)"
    )


def _of_the_manager(last: str, idle: bool, unread: bool) -> str:
    if unread:
        return (
            f"the controller manager does not attach it ({last}): look at its leader, which is the "
            "platform's, and in its log for this volume"
        )
    if idle:
        return (
            f"the controller manager does not attach ({last}): look at its leader, which is the "
            "platform's"
        )
    return f"the controller manager attaches other volumes ({last}): look in its log for this one"
