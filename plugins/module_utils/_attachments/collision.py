# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STOR-12: volumes whose names old controller managers take for names of VolumeAttachments.

Pure: no I/O here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .._core.engine import Finding
from .._core.untrusted import few
from .._kube import names
from .._kube.objects import Attachment, Volume
from .._kube.observation import Observation
from .findings import RUNBOOK
from .state import AttachmentState


def may_collide(seen: Observation, version: tuple[int, int, int]) -> bool:
    """Some volume's name collides or will, if its driver's volumes are attached at all."""
    # Whether they are, CSIDrivers say; these are read only if it matters.
    if names.affected(version) == "no":
        return False
    return any(
        names.collides(volume.driver, volume.handle)
        or names.grows_into(volume.driver, volume.handle)
        for volume in seen.volumes.values()
    )


def collisions(state: AttachmentState) -> list[Finding]:
    """Volumes that this controller manager will not detach, or has not detached."""
    # See _kube/names.py for the bug (Kubernetes issue 97230, fixed by PR 107025).
    affected = names.affected(state.version)
    if affected == "no":
        return []
    return [
        _collision(state, volume, affected)
        for volume in _detachable(state)
        if names.collides(volume.driver, volume.handle)
    ]


def _detachable(state: AttachmentState) -> list[Volume]:
    """Volumes whose driver attaches and detaches."""
    return [
        volume
        for volume in state.first.volumes.values()
        if volume.driver not in state.detached_drivers
    ]


def _collision(state: AttachmentState, volume: Volume, affected: str) -> Finding:
    surely = affected == "yes"
    sure = (
        f"{state.version_text} is affected"
        if surely
        else "it is unknown whether the controller manager has the fix, since it may be older "
        f"than the API server ({state.version_text})"
    )
    attached = [
        attachment
        for attachment in state.first.by_volume.get(volume.name, ())
        if attachment.attached
    ]
    return Finding(
        control="STOR-12",
        # The volume stays attached to the old node, and its next pod waits for it without end.
        severity="critical" if surely else "major",
        kind="PersistentVolume",
        name=volume.name,
        node="",
        summary=f"{volume.name} {'is' if surely else 'may be'} mistaken for a VolumeAttachment "
        "when it is detached, and stays attached",
        reason=f"{sure}; {_detaches(state, attached, surely)}. The volume keeps its name: upgrade "
        f"to 1.24 or newer, or run {RUNBOOK} after each detach. For new volumes a longer "
        "--volume-name-prefix prevents it (filter storage_ops.runbooks.safe_volume_name_prefix)",
        evidence={
            "driver": volume.driver,
            "handle": volume.handle,
            "claim": "/".join(volume.claim) if volume.claim_name else "",
            "phase": volume.phase,
            "bytes": names.COLLISION,
            "attached_to": sorted(attachment.node for attachment in attached),
            "version": state.version_text,
            "affected": affected,
        },
    )


def _detaches(state: AttachmentState, attached: Iterable[Attachment], surely: bool) -> str:
    """What the next detach will do, and what the last one has left."""
    used: set[str] = set()
    idle: set[str] = set()
    for attachment in attached:
        # Where the node's status is not known, or old, the volume counts as used.
        known = state.first.ready(attachment.node)
        is_idle = known and attachment.name not in state.first.in_use
        (idle if is_idle else used).add(attachment.node)
    will = "will leave" if surely else "may leave"
    texts = []
    # A node may be in both by two attachments; then what is known to be idle counts.
    if used - idle:
        nodes = few(sorted(used - idle))
        texts.append(f"it is attached to {nodes} now: deleting its pod {will} that behind")
    if idle:
        texts.append(
            f"it is still attached to {few(sorted(idle))}, where the kubelet does not use "
            "it: see STOR-11"
        )
    return "; ".join(texts) or f"its next detach {will} it behind"


def growing(state: AttachmentState) -> list[Finding]:
    """Drivers whose next volumes may collide: the number at the end of their handles grows."""
    # As sv_9 becomes sv_10 with the LUN id at the end of csi-unity.dellemc.com's handles.
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
            # Nothing is wrong yet; there is time to give new volumes other names.
            severity="info",
            kind="CSIDriver",
            name=driver,
            node="",
            summary=f"{driver} has volumes ({len(volumes)}) whose names grow into the collision by "
            "the number at their end",
            reason="a longer --volume-name-prefix of its provisioner prevents it (filter "
            "storage_ops.runbooks.safe_volume_name_prefix); volumes that exist keep their names",
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
