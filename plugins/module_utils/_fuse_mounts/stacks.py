# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which FUSE filesystems are mounted where, and which mounts cover others. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Callable

from .._node import kubelet
from .._node.control_groups import UNKNOWN
from .._node.kubelet import Place
from .._node.loops import is_loop
from .._node.mounts import Mount, MountTable, is_fuse
from .._node.probes import DEAD, HUNG, OK, Answer
from .._node.processes import Process
from .model import FuseState, Superblock, Target, Unfinished, printable

# Options of one mount (fs/proc_namespace.c show_mnt_opts) that its replacement must have, too: they
# limit what a pod can do. The others (noatime and the like) only change how fast it is.
_FLAGS = ("ro", "nosuid", "nodev", "noexec")
# What a mount point is after a repair that failed; each completes "PATH is ...".
AS_BEFORE = "as it was"
TAKEN_OFF = "without some of its dead mounts"
NEW = "the new mount"
OTHER = "neither as it was nor the new mount"
# The staging mount first: a driver that publishes the volume for another pod meanwhile binds from
# it (CSI specification, NodePublishVolume, staging_target_path), and gets the new one.
ORDER = (kubelet.STAGING, kubelet.PUBLISH, kubelet.IN_TREE, kubelet.SUBPATH)


@dataclass
class MountGroup:
    """Broken superblocks that can only be replaced together.

    ``targets``: where they are on top; ``covered``: mounts of theirs below one that answers.
    """

    devices: list[str]
    targets: list[Target]
    covered: list[Mount]
    name: str = ""


def superblocks(table: MountTable, root: str) -> dict[str, Superblock]:
    """The FUSE filesystems that are mounted at places of the kubelet, by device.

    ``root``: the kubelet's folder; empty means that there is none.
    """
    found: dict[str, Superblock] = {}
    for mount in table.mounts if root else ():
        # fuseblk has a disk of the node's own below it, and no server to replace.
        if not is_fuse(mount):
            continue
        # All mounts of a superblock have one server, and so one answer.
        before = found.get(mount.device, Superblock(mount.device, (), ()))
        # A mount that another one on a parent folder hides cannot be reached, so it is not a layer.
        place = kubelet.classify(mount.point, root)
        if place and place.kind in ORDER and mount in table.layers(mount.point):
            found[mount.device] = Superblock(
                mount.device, (*before.mounts, (mount, place)), before.outside
            )
        else:
            found[mount.device] = Superblock(mount.device, before.mounts, (*before.outside, mount))
    return {device: superblock for device, superblock in found.items() if superblock.mounts}


def kept_elsewhere(table: MountTable, superblock: Superblock) -> list[Mount]:
    """The driver's own mounts from which it binds those of pods, if it stages none."""
    # JuiceFS and Mountpoint for S3 do so: a pod of the driver serves a mount in a folder of its own
    # (juicedata/juicefs-csi-driver pkg/config/config.go MountPointPath,
    # awslabs/mountpoint-s3-csi-driver pkg/driver/node/mounter SourceMountDir).
    if any(place.kind == kubelet.STAGING for _mount, place in superblock.mounts):
        return []
    return [
        mount
        # A bind of a folder is a copy of something; only a mount of the root can be the original.
        for mount in superblock.outside
        if mount.root == "/" and table.layers(mount.point)[-1:] == [mount]
    ]


def looped(
    state: FuseState,
    places: Collection[Place],
    handles: Collection[tuple[str, str]],
    volumes: Collection[str],
) -> list[Place]:
    """Where pods have a loop device as this volume: on a file of its FUSE filesystem, as a driver
    may make it (ctrox/csi-s3 pkg/mounter/s3backer.go Mount).

    Such a device keeps the file that it has open, whatever is mounted in the place of that
    filesystem (loop(4)). ``places``, ``handles``, ``volumes``: what is known of the volume.
    """
    # Not by asking the device: the kernel asks the file's server then (drivers/block/loop.c
    # loop_get_status), which is gone.
    digests = {(place.driver, place.digest) for place in places if place.digest}

    def is_it(place: Place) -> bool:
        note = state.notes.get(place.note)
        if not note or note.problem:
            # It may be the volume that its folder is named after.
            return place.volume in volumes
        if handles:
            return (note.driver, note.handle) in handles
        # No record of the dead mounts can be read.
        return (note.driver, kubelet.digest_of(note.handle)) in digests or note.volume in volumes

    return [place for place in loop_mounts(state.table, state.root) if is_it(place)]


def loop_mounts(table: MountTable, root: str) -> list[Place]:
    """Where pods have loop devices as their volumes."""
    places = (
        kubelet.classify(mount.point, root)
        for mount in table.mounts
        # btrfs shows a number of its own (_node/btrfs.py). A FUSE program may give any source.
        if is_loop(mount.device)
        or (mount.fstype == "btrfs" and mount.source.startswith("/dev/loop"))
    )
    return [place for place in places if place and place.kind == kubelet.PUBLISH]


def servers_of(state: FuseState, device: str) -> list[Process]:
    """Processes that may serve a FUSE filesystem: they have /dev/fuse open, and it is mounted in
    their mount namespace.
    """
    # Which connection an open /dev/fuse belongs to is only in fdinfo, and only since Linux 6.16
    # (fs/fuse/dev.c fuse_dev_show_fdinfo), so several processes may be named.
    return [process for process in beside(state, device) if process.pid in state.servers]


def beside(state: FuseState, device: str) -> list[Process]:
    """The processes in a mount namespace in which a FUSE filesystem is mounted."""
    mounts = (*state.table.mounts, *state.others)
    whose = seen_through(state)
    # Each once, since a tenant may have any number of mounts.
    pids = {mount.pid for mount in mounts if mount.device == device}
    spaces = {process.namespace for pid in pids for process in whose(pid)} - {""}
    return [process for process in state.processes if process.namespace in spaces]


def seen_through(state: FuseState) -> Callable[[str], list[Process]]:
    """By the pid of a mount, the process through which its mount namespace was read; if that has
    ended since, all that are, or may be, in that namespace.
    """
    by_pid = {str(process.pid): process for process in state.processes}
    by_space: dict[str, list[Process]] = {}
    for process in state.processes:
        by_space.setdefault(process.namespace, []).append(process)

    def found(pid: str) -> list[Process]:
        process, space = by_pid.get(pid), state.spaces.get(pid, "")
        # The number may be another process's by now.
        if process and (not space or process.namespace in ("", space)):
            return [process]
        mine = by_space.get(space, []) if space else []
        return [*mine, *by_space.get("", [])] if mine else []

    return found


def to_ask(table: MountTable, superblock: Superblock) -> str:
    """The mount point through which a superblock can be probed; empty if other mounts cover all."""
    tops = [
        (ORDER.index(place.kind), mount.point)
        for mount, place in superblock.mounts
        if table.layers(mount.point)[-1] is mount
    ]
    return min(tops)[1] if tops else ""


def buried(
    table: MountTable, found: Mapping[str, Superblock], answers: Mapping[str, Answer]
) -> list[Mount]:
    """One layer of each superblock that was not probed yet and that only broken mounts cover."""
    layers: dict[str, Mount] = {}
    for superblock in found.values():
        for mount, _place in superblock.mounts:
            stack = table.layers(mount.point)
            above = stack[stack.index(mount) + 1 :]
            covered = bool(above) and all(is_broken(answers.get(one.device)) for one in above)
            if mount.device not in answers and covered:
                # One of its mounts is enough, as all have the same server.
                layers.setdefault(mount.device, mount)
    return list(layers.values())


def is_broken(answer: Answer | None) -> bool:
    """Whether a superblock was probed and is dead or hangs."""
    return answer is not None and answer.state in (DEAD, HUNG)


def answers_at(state: FuseState, point: str, dead: tuple[str, ...]) -> bool:
    """Whether the topmost mount of a point is a FUSE mount that answers, and none of the dead."""
    layers = state.table.layers(point)
    # The dead mount itself may still be there, or the plain folder below it.
    if not layers or not is_fuse(layers[-1]) or layers[-1].device in dead:
        return False
    answer = state.answers.get(layers[-1].device)
    return answer is not None and answer.state == OK


# groups


def groups_of(state: FuseState, found: Mapping[str, Superblock]) -> list[MountGroup]:
    """The broken superblocks; those that have to be replaced together are in one group."""
    groups = [MountGroup(devices, [], []) for devices in _tied(state, found)]
    for group in groups:
        _add_targets(state.table, group, found)
        group.name = (group.targets[0] if group.targets else group.covered[0]).point
    return groups


def _tied(state: FuseState, found: Mapping[str, Superblock]) -> list[list[str]]:
    """Devices of broken superblocks, tied where they share a mount point, or a repair.

    Stacked mounts share a point, and the upper one has to go before the lower one can. Points that
    an interrupted run was about to replace belong together, too: their new mount is one.
    """
    ties: list[list[str]] = []
    points = _broken_points(state, found)
    for device, mine in points.items():
        # This device may tie groups that had nothing in common so far.
        near = [tie for tie in ties if any(mine & points[other] for other in tie)]
        ties = [tie for tie in ties if tie not in near]
        ties.append([*(other for tie in near for other in tie), device])
    return ties


def _broken_points(state: FuseState, found: Mapping[str, Superblock]) -> dict[str, set[str]]:
    """By device of each broken superblock, its points and those noted together with one of them."""
    noted = [{target.point for target in one.targets} for one in state.unfinished]
    points = {}
    for device, superblock in found.items():
        if is_broken(state.answers.get(device)):
            own = {mount.point for mount, _place in superblock.mounts}
            points[device] = own.union(*(others for others in noted if others & own))
    return points


def _add_targets(table: MountTable, group: MountGroup, found: Mapping[str, Superblock]) -> None:
    """The mount points at which a group is on top, and its mounts that others cover."""
    places = {
        mount.point: place for device in group.devices for mount, place in found[device].mounts
    }
    for point, place in sorted(
        places.items(), key=lambda item: (ORDER.index(item[1].kind), item[0])
    ):
        layers = table.layers(point)
        take: list[Mount] = []
        # Dead mounts of one group may alternate at a point; all those on top go together.
        while layers and layers[-1].device in group.devices:
            take.append(layers.pop())
        # What is left of the group has a mount that answers above it, which is not touched.
        group.covered += [layer for layer in layers if layer.device in group.devices]
        if take:
            group.targets.append(
                Target(
                    point, place.kind, tuple(take), take[0].root, _flags(take[0]), top_id(layers)
                )
            )


def _flags(mount: Mount) -> tuple[str, ...]:
    # Read-only may also be said of the whole superblock, which a new one would not inherit.
    return tuple(
        flag
        for flag in _FLAGS
        if flag in mount.options or (flag == "ro" and flag in mount.super_options)
    )


def still_noted(state: FuseState) -> tuple[Unfinished, ...]:
    """The interrupted runs, without the points that are another volume's by now."""
    return tuple(
        replace(
            one,
            targets=tuple(
                target for target in one.targets if _is_of(state, one, target) is not False
            ),
        )
        for one in state.unfinished
    )


def usable(state: FuseState, one: Unfinished, dead: tuple[str, ...]) -> bool:
    """Whether the new mount of an interrupted run answers, was proven, and is known to be of the
    volume of each of its points.
    """
    known = all(_is_of(state, one, target) for target in one.targets)
    return one.begun and known and answers_at(state, one.folder, dead)


def _is_of(state: FuseState, one: Unfinished, target: Target) -> bool | None:
    """Whether a point is still of the volume of an interrupted run; None if that is not known."""
    place = kubelet.classify(target.point, state.root) if state.root else None
    # All others have the UID of a pod, or the digest of the volume handle, in their paths.
    if place is None or place.kind != kubelet.STAGING or place.digest:
        return True
    # Kubernetes before 1.24 stages by the name of the PersistentVolume alone
    # (pkg/volume/csi/csi_attacher.go makeDeviceMountPath), and a new one may have that name.
    note = state.notes.get(place.note)
    if note is None or note.problem or not one.handles:
        return None
    return (note.driver, note.handle) in one.handles


def meets(unfinished: Unfinished, group: MountGroup) -> bool:
    """Whether an interrupted run was about a mount point of this group."""
    # Notes name points and not devices, which are given to other filesystems after an unmount.
    points = {target.point for target in group.targets} | {mount.point for mount in group.covered}
    return bool(points & {target.point for target in unfinished.targets})


def bare_targets(state: FuseState, left: list[Unfinished]) -> tuple[Target, ...]:
    """Mount points from which an interrupted run took the dead mounts, and that it left empty."""
    bare = {}
    for target in (target for one in left for target in one.targets):
        # The kubelet may have removed the pod since.
        if target.point in state.absent:
            continue
        # The note is a file that could be damaged: its paths are checked like all others.
        place = kubelet.classify(target.point, state.root) if state.root else None
        layers = state.table.layers(target.point)
        if place and place.kind in ORDER and top_id(layers) == target.beneath:
            bare[target.point] = Target(
                target.point, place.kind, (), target.root, target.flags, target.beneath
            )
    return tuple(bare.values())


def point_is(target: Target, table: MountTable, devices: tuple[str, ...]) -> str:
    """What became of a mount point: AS_BEFORE, TAKEN_OFF, NEW or OTHER.

    ``devices``: the dead superblocks.
    """
    layers = table.layers(target.point)
    # The plan lists the layers from the top, the table from the bottom.
    planned = [mount.id for mount in reversed(target.take)]
    # Layers are taken from the top, so what is left of them is a beginning of the planned ones.
    for count in range(len(planned), -1, -1):
        below = layers[: len(layers) - count]
        above = [layer.id for layer in layers[len(below) :]]
        if above == planned[:count] and top_id(below) == target.beneath:
            # With all layers gone and nothing in their place it is TAKEN_OFF, which the next run
            # finishes.
            return AS_BEFORE if count == len(planned) else TAKEN_OFF
    return NEW if _has_new(target, layers, devices) else OTHER


def _has_new(target: Target, layers: list[Mount], devices: tuple[str, ...]) -> bool:
    """Whether a FUSE mount that is none of the dead ones is on top, where they were."""
    if not layers or not is_fuse(layers[-1]) or layers[-1].device in devices:
        return False
    return top_id(layers[:-1]) == target.beneath


def top_id(layers: list[Mount]) -> int:
    """The ID of the topmost mount; 0 if there is none, which no mount has."""
    return layers[-1].id if layers else 0


# other mount namespaces


def staying(state: FuseState, devices: Collection[str]) -> list[Mount]:
    """The copies of these superblocks in other namespaces that stay when the node's own mounts are
    unmounted.

    One goes if what both are mounted on is in one peer group, or the copy's is a slave of it:
    mounts and unmounts propagate there, as for CSI drivers (mount_namespaces(7), SHARED SUBTREES).
    """
    hosts = {mount.id: mount for mount in state.table.mounts}
    groups: dict[str, set[int]] = {}
    for own in state.table.mounts:
        if is_fuse(own) and own.parent in hosts:
            groups.setdefault(own.device, set()).add(hosts[own.parent].shared)
    # A tenant may have thousands: each is looked up, and never searched for.
    seen = {(mount.pid, mount.id): mount for mount in state.others}

    def follows(mount: Mount) -> bool:
        parent = seen.get((mount.pid, mount.parent))
        mine = {parent.shared, parent.master} - {0} if parent else set()
        return bool(mine & groups.get(mount.device, set()))

    return [mount for mount in state.others if mount.device in devices and not follows(mount)]


def stale(state: FuseState, devices: set[str]) -> list[dict[str, object]]:
    """Containers, or other namespaces, that keep one of these superblocks mounted whatever happens
    to the node's own mounts.

    Each is a dict of ``pod`` (UID), ``container`` (ID), ``pid``, ``point`` and ``device``.
    """
    whose = seen_through(state)
    # The mountinfo was read through any process of the namespace. One that belongs to a container
    # says what has to be restarted.
    speakers = {one.namespace: one for one in reversed(state.processes) if one.container}
    found = []
    for mount in staying(state, devices):
        process = next(iter(whose(mount.pid)), None)
        owner = speakers.get(process.namespace, process) if process else None
        found.append(
            {
                "pod": owner.pod if owner and owner.pod != UNKNOWN else "",
                "container": owner.container if owner else "",
                # All of the namespace may have ended since its mountinfo was read.
                "pid": owner.pid if owner else int(mount.pid),
                "point": printable(mount.point),
                "device": mount.device,
            }
        )
    return found
