# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which attachments and pods deserve more requests, and a second observation.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from .._kube.objects import Attachment, Pod, Volume, age, attachment_name
from .._kube.observation import Observation, may_lack_status, missing_metadata
from .state import AttachmentOptions, in_scope


@dataclass(frozen=True)
class Wait:
    """A pod whose volume has no attachment, or one that no attacher answers."""

    pod: Pod
    volume: Volume
    unanswered: Attachment | None = None

    @property
    def attachment(self) -> str:
        """The name the attachment would have."""
        return attachment_name(*self.volume.disk, self.pod.node)


def suspects(seen: Observation, options: AttachmentOptions, now: datetime) -> list[Attachment]:
    """Attachments whose pods have to be read, on every node that has one in scope."""
    # Not only those in scope: whether most attachments of a node look left over is judged by node.
    found = [
        attachment
        for attachment in seen.attachments.values()
        if attachment.volume and _is_suspect(seen, attachment, options, now)
    ]
    if not options.scope():
        return found
    touched = {attachment.node for attachment in found if in_scope(seen, attachment, options)}
    return [attachment for attachment in found if attachment.node in touched]


def _is_suspect(
    seen: Observation, attachment: Attachment, options: AttachmentOptions, now: datetime
) -> bool:
    wanted = options.controls
    return (
        ("STOR-11" in wanted and may_be_orphan(seen, attachment, options.min_age_seconds, now))
        or ("STOR-13" in wanted and may_lack_status(seen, attachment))
        or ("STOR-14" in wanted and bool(missing_metadata(attachment, options.required_metadata)))
    )


def may_be_orphan(
    seen: Observation, attachment: Attachment, min_age_seconds: float, now: datetime
) -> bool:
    """Old enough, not being deleted, and not in use by a kubelet that reports."""
    # The kubelet adds a volume to volumesInUse before it mounts it, and removes it only after the
    # volume is unmounted on the node (VolumesInUse of pkg/kubelet/nodestatus/setters.go;
    # GetVolumesInUse of pkg/kubelet/volumemanager/volume_manager.go). The list of a silent kubelet
    # is frozen.
    in_use = attachment.name in seen.in_use and seen.ready(attachment.node)
    return not attachment.deleted and not in_use and age(now, attachment.created) >= min_age_seconds


def unproven(
    seen: Observation, suspected: Iterable[Attachment], options: AttachmentOptions, now: datetime
) -> set[str]:
    """Names of the suspects that a second observation has to prove, by their pods."""
    # STOR-14 is a fact of the object itself, so one observation is enough for it.
    found = set()
    for attachment in suspected:
        # Pods decide which of the two it can be: without any it may be left over, with some its
        # entry may be lost.
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
    """Pods that have had a node for this long, with a bound volume that is not attached there
    although it could be.
    """
    # The scheduler binds claims before it places the pod, so only bound volumes can be attached.
    by_claim = {
        volume.claim: volume
        for volume in seen.volumes.values()
        if volume.phase == "Bound" and volume.disk[0]
    }
    found = [
        Wait(pod, volume, _unanswered(seen, volume, pod.node, seconds, now))
        for pod in seen.pending
        if _has_waited(seen, pod, seconds, now)
        for volume in (by_claim.get((pod.namespace, claim)) for claim in pod.claims)
        if volume
    ]
    return [
        wait
        for wait in found
        if wait.unanswered or not _is_attaching(seen, wait.volume, wait.pod.node)
    ]


def _unanswered(
    seen: Observation, volume: Volume, node: str, seconds: float, now: datetime
) -> Attachment | None:
    """The attachment for the node, if the driver's attacher has said nothing about it for so long.

    It writes an error as soon as its driver gives one, and when an attempt takes longer than its
    --timeout (saveAttachError of external-attacher's pkg/controller/csi_handler.go).
    """
    own = seen.attachments.get(attachment_name(*volume.disk, node))
    if own is None or own.attached or own.attach_error or own.deleted:
        return None
    return own if age(now, own.created) >= seconds else None


def _has_waited(seen: Observation, pod: Pod, seconds: float, now: datetime) -> bool:
    """The controller manager has had this long to attach the pod's volumes."""
    node = seen.nodes.get(pod.node)
    # Without the annotation the kubelet attaches by itself, and no VolumeAttachment is to be
    # expected.
    managed = node is not None and node.managed
    return managed and not pod.deleted and age(now, pod.scheduled) >= seconds


def could_attach(
    wait: Wait, detached_drivers: Collection[str], drivers_on: dict[str, tuple[str, ...]]
) -> bool:
    """The driver's volumes are attached at all, and the driver is registered on the pod's node."""
    # Volumes of a former in-tree plugin are attached by a driver only where the CSINode lists the
    # plugin as migrated (isCSIMigrationSupportedOnNode of
    # pkg/controller/volume/attachdetach/util/util.go).
    driver, on_node = wait.volume.disk[0], drivers_on.get(wait.pod.node, ())
    registered = driver in on_node and wait.volume.is_attached_by_driver(on_node)
    return registered and driver not in detached_drivers


def _is_attaching(seen: Observation, volume: Volume, node: str) -> bool:
    """There is an attachment for the node, or one elsewhere that forbids it (Multi-Attach)."""
    # The controller manager attaches a volume to a second node only if its access modes allow it
    # (IsMultiAttachAllowed of pkg/volume/util/util.go).
    made = [
        attachment for same in seen.same(volume) for attachment in seen.by_volume.get(same.name, ())
    ]
    named = attachment_name(*volume.disk, node) in seen.attachments
    return named or any(attachment.node == node or volume.exclusive for attachment in made)
