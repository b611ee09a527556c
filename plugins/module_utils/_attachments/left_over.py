# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STOR-11: attachments that no pod needs any more, and those whose deletion does not end.

Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._core.codes import Reason
from .._core.engine import Action, Finding
from .._kube.objects import Attachment, Volume, age
from .._kube.observation import blockers, needed_by, proofs
from .findings import TOO_FEW_OBSERVATIONS, attachment_finding, duration, title
from .state import AttachmentOptions, AttachmentState

# A controller manager tries to detach again after at most this (seconds): 2 min 2 s in
# k8s.io/kubernetes/pkg/util/goroutinemap/exponentialbackoff, and some for the try itself.
BACKOFF_SECONDS = 130.0


@dataclass(frozen=True)
class Orphan:
    """The attachment an action deletes, as it was when the plan was made."""

    attachment: Attachment
    volume: Volume | None
    # Other attachments of the volume: an error there may be the proof.
    siblings: tuple[str, ...]
    # A node of the same name with another uid may be another host.
    node_uid: str = ""
    # By its name, which is the proof if there is no other.
    named: bool = False


def held(
    state: AttachmentState, attachment: Attachment, options: AttachmentOptions
) -> Finding | None:
    """An attachment that was deleted long ago, and whose attacher does not detach the volume."""
    since = age(state.now, attachment.deleted)
    # Without a finalizer nothing holds it: it goes by itself.
    if since < options.min_age_seconds or not attachment.finalizers:
        return None
    finding = attachment_finding(state, attachment, "STOR-11", "major")
    finding.summary = f"{attachment.name} was deleted {duration(since)} ago and is still there"
    finding.refuse(
        Reason(
            "attacher_stuck",
            f"its finalizer {', '.join(attachment.finalizers)} is held. "
            f"{attacher_says(attachment)}",
        )
    )
    return finding


def attacher_says(attachment: Attachment) -> str:
    """Why an attachment whose deletion was requested is still there."""
    # external-attacher removes its finalizer once ControllerUnpublishVolume has succeeded, and
    # writes every failure to status.detachError (csiDetach and saveDetachError of its
    # pkg/controller/csi_handler.go).
    error = attachment.detach_error
    said = f"says: {error.message}." if error else "says nothing: is it running?"
    return (
        f"The attacher of {attachment.driver} {said} Its finalizer is never removed here, since "
        f"the storage would go on serving the volume to {attachment.node}"
    )


def orphan(
    state: AttachmentState, seen: list[Attachment], options: AttachmentOptions
) -> Finding | None:
    """An attachment that no pod needs, by its record in each observation.

    None when a pod needs it, or did a moment ago, and for attachments that are not judged.
    """
    attachment = seen[-1]
    if not _may_be_judged(state, seen, options):
        return None
    finding = attachment_finding(state, attachment, "STOR-11", "major")
    finding.summary = (
        f"{attachment.name} keeps {title(state, attachment)} on {attachment.node}, "
        "where no pod needs it"
    )
    # A controller manager that works would have tried to detach it in that time, and a failure
    # would show as detachError. That a user names it makes up for the missing sign that it is left
    # over.
    named = attachment.name in options.names and _span(state) >= BACKOFF_SECONDS
    because = proofs(state.last, attachment, state.version, state.version_text)
    if named and not because:
        because = [
            f"it was named, and in {_span(state):.0f} s no controller manager "
            "has tried to detach it"
        ]
    finding.evidence["because"] = because
    # Nothing but time speaks for it, so it is told and not urgent.
    if not because:
        finding.severity = "minor"
    # Obstacles first: with them it is not deleted, whatever proves that it is left over.
    obstacles = _obstacles(state, attachment)
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
        finding.refuse(TOO_FEW_OBSERVATIONS)
    else:
        finding.verdict = "repair"
        finding.reason = (
            f"no pod on {attachment.node} needs it, observed {state.observed}; {'; '.join(because)}"
        )
        finding.repair = [_deletion(state, attachment, named)]
    return finding


def _may_be_judged(
    state: AttachmentState, seen: list[Attachment], options: AttachmentOptions
) -> bool:
    """It belongs to a PersistentVolume and a driver that attaches, was not needed in any
    observation, and is old enough.
    """
    attachment = seen[-1]
    # An attachment without PersistentVolume is that of an inline volume, whose pods are not known
    # by any claim (VolumeAttachmentSource.inlineVolumeSpec of k8s.io/api/storage/v1).
    if not attachment.volume or attachment.driver in state.detached_drivers:
        return False
    if any(needed_by(observation, once) for observation, once in zip(state.observations, seen)):
        return False
    return not any(
        once.deleted or age(state.now, once.created) < options.min_age_seconds for once in seen
    )


def _span(state: AttachmentState) -> float:
    """Seconds between the first and the last observation."""
    return state.last.at - state.first.at


def _obstacles(state: AttachmentState, attachment: Attachment) -> list[Reason]:
    """What forbids the deletion, in any of the observations."""
    found = [
        reason for observation in state.observations for reason in blockers(observation, attachment)
    ]
    # A Node that was deleted and created again may be another host.
    uids = {
        once.nodes[attachment.node].uid
        for once in state.observations
        if attachment.node in once.nodes
    }
    if len(uids) > 1:
        found.append(
            Reason("identity_changed", f"{attachment.node} is another node with that name now")
        )
    return found


def _deletion(state: AttachmentState, attachment: Attachment, named: bool) -> Action:
    url = f"/apis/storage.k8s.io/v1/volumeattachments/{attachment.name}"
    # The precondition makes the API server refuse to delete another object of that name
    # (metav1.Preconditions.UID).
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
