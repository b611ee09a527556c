# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is mounted at the kubelet's mount points, and what looks wrong there. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Mapping

from .._core import drivers
from .._node import kubelet, probes
from .._node.kubelet import Place, VolumeNote
from .._node.mounts import Mount
from .._node.probes import Answer
from .._node.renewed import identity
from .model import Filesystem, PodMountState, Stack


def pod_stacks(state: PodMountState) -> list[Stack]:
    """The mounts at every pod's mount point of a CSI volume."""
    staging = {
        place.point: state.table.layers(place.point) for place in state.places(kubelet.STAGING)
    }
    return [_stack(state, place, staging) for place in state.places(kubelet.PUBLISH)]


def _stack(state: PodMountState, place: Place, staging: Mapping[str, list[Mount]]) -> Stack:
    """The mounts at one pod's mount point. ``staging``: by staging point, its mounts."""
    note = state.notes.get(place.note, VolumeNote(problem=f"{place.note} was not read"))
    problem = note.problem or kubelet.contradiction(place, note)
    folders = () if problem else kubelet.staging_points(note, state.notes, state.root)
    layers = tuple(state.table.layers(place.point))
    there = _staged_at(state, layers, folders, staging)
    return Stack(
        place,
        note,
        layers,
        staged=tuple(stack[-1] for stack in there if stack),
        hidden=tuple(layer for stack in there for layer in stack[:-1]),
        problem=problem,
        publishes=drivers.publishes(note.driver, state.publish_from),
        loops=state.loops,
        folders=tuple(_folder(state, folder) for folder in folders),
        renewed=_renewed(state, layers, folders, staging),
    )


def _renewed(
    state: PodMountState,
    layers: tuple[Mount, ...],
    folders: tuple[str, ...],
    staging: Mapping[str, list[Mount]],
) -> tuple[Mount, ...]:
    """The layers that fuse_remount has made for this pod and volume."""
    noted = [layer for layer in layers if identity(layer) in state.renewed]
    # The number of a device is given to another filesystem when its own is gone.
    others = {
        layer.device
        for point, stack in (staging if noted else {}).items()
        if not _is_in(point, folders)
        for layer in stack
    }
    return tuple(layer for layer in noted if layer.device not in others)


def _is_in(point: str, folders: tuple[str, ...]) -> bool:
    # Some drivers stage in a folder of their own within the given one.
    return any(point == folder or point.startswith(f"{folder}/") for folder in folders)


def _staged_at(
    state: PodMountState,
    layers: tuple[Mount, ...],
    folders: tuple[str, ...],
    staging: Mapping[str, list[Mount]],
) -> list[list[Mount]]:
    """The stacks at the volume's staging points, without what came there from the pod's."""
    # A mount on one of two shared mounts of a filesystem comes onto the other, too. So a second
    # mount at the pod's point may also be seen at the staging point, where it was not made.
    came = {twin.id for layer in layers[1:] for twin in twins(state, layer)}
    return [
        [layer for layer in stack if layer.id not in came]
        for point, stack in staging.items()
        if _is_in(point, folders)
    ]


def _folder(state: PodMountState, path: str) -> tuple[str, str]:
    """(device, folder in its filesystem) of a path, without what is mounted on it."""
    below = state.table.holding(path.rpartition("/")[0])
    # The folder is outside of what this process sees.
    if below is None:
        return "", ""
    return below.device, f"{below.root.rstrip('/')}{path[len(below.point.rstrip('/')) :]}"


def twins(state: PodMountState, layer: Mount) -> list[Mount]:
    """The mounts that came with this one by propagation, and are unmounted with it.

    Such a twin is on the same folder of a peer of the mount below (mount_namespaces(7);
    Documentation/filesystems/sharedsubtree.rst).
    """
    by_id = {mount.id: mount for mount in state.table.mounts}

    # (Peer group, path in the filesystem) of the place that a mount is on.
    def place(mount: Mount) -> tuple[int, str]:
        below = by_id.get(mount.parent)
        return (
            (below.shared, f"{below.root.rstrip('/')}{mount.point[len(below.point.rstrip('/')) :]}")
            if below
            else (0, "")
        )

    group, folder = place(layer)
    alike = [
        mount
        for mount in state.table.mounts
        if mount.shared and mount.shared == layer.shared and mount.parent != layer.parent
    ]
    # Without a peer group nothing propagates.
    return [mount for mount in alike if group and place(mount) == (group, folder)]


def filesystems(state: PodMountState) -> list[Filesystem]:
    """The filesystems on block devices that the kubelet has mounted.

    Others, such as NFS, do not turn read-only by themselves after an error.
    """
    mounts: dict[str, list[Mount]] = {}
    places: dict[str, list[Place]] = {}
    for place in state.places(kubelet.STAGING, kubelet.PUBLISH):
        # The lowest layer of a stack is the original, the others were mounted over it.
        for number, layer in enumerate(state.table.layers(place.point)):
            # Only these can be told from a network filesystem: their source is a device.
            if layer.source.startswith("/dev/") and not is_fuse(layer):
                # Staging first: the others are made from it, and may be read-only for one pod.
                at = (
                    0
                    if place.kind == kubelet.STAGING and not number
                    else len(mounts.get(layer.device, ()))
                )
                mounts.setdefault(layer.device, []).insert(at, layer)
                places.setdefault(layer.device, []).insert(at, place)
    return [
        Filesystem(device, tuple(found), tuple(dict.fromkeys(places[device])))
        for device, found in mounts.items()
    ]


def is_fuse(mount: Mount) -> bool:
    """Whether a process serves the filesystem; a fuseblk one (NTFS) has a block device as well."""
    return mount.fstype in ("fuse", "fuseblk") or mount.fstype.startswith("fuse.")


def point_of(state: PodMountState, device: str) -> str:
    """A mount point of the kubelet at which a filesystem is on top; empty if there is none."""
    places = state.places(kubelet.STAGING, kubelet.PUBLISH)
    return next(
        (place.point for place in places if state.table.layers(place.point)[-1].device == device),
        "",
    )


def suspicious_stacks(state: PodMountState) -> list[Stack]:
    """The stacks that are not fine, without those of dead FUSE servers (STOR-05, STOR-06)."""
    return [stack for stack in pod_stacks(state) if not stack.fine and not _is_dead(state, stack)]


def _is_dead(state: PodMountState, stack: Stack) -> bool:
    """Whether a layer is a FUSE mount that does not answer, or the pod has one that was not asked.

    They are STOR-05 and STOR-06, which have repairs of their own.
    """
    answers = (state.answers.get(layer.device) for layer in stack.layers if is_fuse(layer))
    silent = any(answer and answer.state in (probes.DEAD, probes.HUNG) for answer in answers)
    return silent or is_unasked(state, stack.layers[-1])


def is_unasked(state: PodMountState, layer: Mount) -> bool:
    """Whether a layer is a FUSE mount that was not asked: others may cover it everywhere."""
    return is_fuse(layer) and layer.device not in state.answers


def has_turned(filesystem: Filesystem) -> bool:
    """Whether it is read-only, and was not mounted so."""
    # A volume that was mounted read-only is as it should be.
    return filesystem.read_only and filesystem.wanted == "rw"


def suspicious_filesystems(state: PodMountState) -> list[Filesystem]:
    """The filesystems that turned read-only, have given up, or cannot be read."""
    found = []
    for filesystem in filesystems(state):
        answer = state.answers.get(filesystem.device, Answer(probes.OK))
        if (
            has_turned(filesystem)
            or filesystem.given_up
            or filesystem.device in state.logs
            or answer.state != probes.OK
        ):
            found.append(filesystem)
    return found
