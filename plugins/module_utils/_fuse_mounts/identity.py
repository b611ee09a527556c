# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which volume a mount shows, and what the kubelet, the cluster and the user say about it.

Pure: no I/O here.
"""

from __future__ import annotations

from .._core.codes import Reason
from .._core.engine import Finding
from .._node import kubelet
from .._node.kubelet import Place, VolumeNote
from .._node.mounts import Mount
from .model import FuseOptions, FuseState, FuseVolume


def volumes_of(places: list[Place], notes: list[VolumeNote]) -> tuple[str, ...]:
    """The PersistentVolumes that these places and notes name, sorted."""
    # Only these two kinds of path contain the PersistentVolume. A subPath has the pod's own name
    # for its volume (pkg/volume/util/subpath/subpath_linux.go), which any other pod may use for
    # another.
    named = {place.volume for place in places if place.kind in (kubelet.STAGING, kubelet.PUBLISH)}
    return tuple(sorted((named | {note.volume for note in notes}) - {""}))


def notes_of(
    state: FuseState, mounts: list[tuple[Mount, Place]], finding: Finding
) -> tuple[list[VolumeNote], list[Reason]]:
    """The kubelet's notes about these mounts, and what contradicts in them.

    A note that cannot be read becomes evidence of the finding, not an obstacle: the volume may be
    known from its path or from the user.
    """
    notes: list[VolumeNote] = []
    problems: list[str] = []
    contradictions: list[Reason] = []
    for place in {place.note: place for _mount, place in mounts if place.note}.values():
        note = state.notes.get(place.note, VolumeNote(problem=f"{place.note} was not read"))
        # A damaged note is no reason to leave a pod without its volume if the path names it as
        # well.
        if note.problem:
            problems.append(note.problem)
        else:
            against = kubelet.contradiction(place, note)
            contradictions += [Reason("evidence_contradicts", against)] if against else []
            notes.append(note)
    if problems:
        finding.evidence["notes"] = problems
    # The mounts of one superblock, or of stacked ones, have to show one volume.
    if len({(note.driver, note.handle) for note in notes}) > 1:
        contradictions.append(
            Reason(
                "evidence_contradicts",
                "the kubelet's notes name more than one volume: "
                + ", ".join(sorted({note.handle for note in notes})),
            )
        )
    return notes, contradictions


def entries_for(
    state: FuseState,
    options: FuseOptions,
    volumes: tuple[str, ...],
    handles: tuple[tuple[str, str], ...],
    points: set[str],
) -> list[FuseVolume]:
    """The entries of the option 'volumes' that are about this volume.

    ``handles``: (driver, volume handle) of the notes. ``points``: where it is mounted.
    """
    # A staging path since Kubernetes 1.24 has the SHA-256 of the volume handle, which identifies
    # the volume without a note (pkg/volume/csi/csi_attacher.go makeDeviceMountPath).
    places = [kubelet.classify(point, state.root) for point in points]
    digests = {(place.driver, place.digest) for place in places if place and place.digest}

    def meant(entry: FuseVolume) -> bool:
        # The user's path is explicit; PersistentVolume names are unique in a cluster.
        if points & set(entry.paths) or (entry.volume and entry.volume in volumes):
            return True
        if not entry.handle:
            return False
        # A volume handle is unique only within its driver (CSI specification, volume_id).
        same = [driver for driver, handle in handles if handle == entry.handle]
        digest = kubelet.digest_of(entry.handle)
        same += [driver for driver, staged in digests if staged == digest]
        # A user may leave the driver out; then the handle alone decides.
        return any(entry.driver in ("", driver) for driver in same)

    return [entry for entry in options.volumes if meant(entry)]
