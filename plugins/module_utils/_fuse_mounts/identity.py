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
from .model import FuseOptions, FuseState, FuseVolume, Recovery


def volumes_of(places: list[Place], notes: list[VolumeNote]) -> tuple[str, ...]:
    """The PersistentVolumes that these places and notes name, sorted."""
    # In the folder of a pod, a path has the name that the pod's owner chose for an inline volume,
    # and that may be the name of another tenant's PersistentVolume. Only the note tells.
    named = {place.volume for place in places if place.kind == kubelet.STAGING}
    return tuple(sorted((named | {note.volume for note in notes}) - {""}))


def handles_of(notes: list[VolumeNote]) -> tuple[tuple[str, str], ...]:
    """(driver, volume handle) of these notes, sorted."""
    return tuple(sorted({(note.driver, note.handle) for note in notes}))


def notes_of(
    state: FuseState, places: list[Place], finding: Finding
) -> tuple[list[VolumeNote], list[Reason]]:
    """The kubelet's notes about these places, and what contradicts in them.

    A note that cannot be read becomes evidence of the finding, not an obstacle: the volume may be
    known from the cluster or from the user.
    """
    notes: list[VolumeNote] = []
    problems: list[str] = []
    contradictions: list[Reason] = []
    for place in {place.note: place for place in places if place.note}.values():
        note = state.notes.get(place.note, VolumeNote(problem=f"{place.note} was not read"))
        # A damaged note is no reason to leave a pod without its volume if the cluster knows it.
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
    places = [place for place in (kubelet.classify(one, state.root) for one in points) if place]
    digests = {(place.driver, place.digest) for place in places if place.digest}
    pods = {place.pod for place in places} - {""}
    inside = {place.volume for place in places if place.kind == kubelet.PUBLISH}

    def meant(entry: FuseVolume) -> bool:
        # The user's path is explicit.
        if points & set(entry.paths):
            return True
        # What is known to have another handle is another volume, whatever it is called.
        if entry.handle and (handles or digests):
            # A volume handle is unique only within its driver (CSI specification, volume_id).
            same = [driver for driver, handle in handles if handle == entry.handle]
            digest = kubelet.digest_of(entry.handle)
            same += [driver for driver, staged in digests if staged == digest]
            # A user may leave the driver out; then the handle alone decides.
            return any(entry.driver in ("", driver) for driver in same)
        # PersistentVolume names are unique in a cluster.
        return bool(entry.volume) and (entry.volume in volumes or _has_pods(entry, inside, pods))

    return [entry for entry in options.volumes if meant(entry)]


def _has_pods(entry: FuseVolume, named: set[str], pods: set[str]) -> bool:
    """Whether the paths name an entry's volume, and their pods are known to have it.

    The paths alone do not tell: another pod may have an inline volume of that name.
    """
    known = {pod.uid for pod in entry.pods or ()}
    return named == {entry.volume} and pods <= known


def namesakes(options: FuseOptions, recovery: Recovery) -> list[Reason]:
    """Entries of 'volumes' with the name of this volume and another handle."""
    found = []
    for entry in options.volumes:
        if entry.handle and recovery.handles and entry.volume in recovery.volumes:
            noted = [one for driver, one in recovery.handles if entry.driver in ("", driver)]
            # The note is about this very mount; the entry may be about another of that name.
            said = (
                f"'volumes' has the volume handle {entry.handle}, the kubelet's note "
                f"{', '.join(noted) or 'another driver'}"
            )
            found.append(Reason("evidence_contradicts", said))
    return found
