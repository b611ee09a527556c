# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what the plan of dead FUSE mounts needs besides the node's own mounts and their answers.

No function here touches a FUSE mount: a look at a hung one would never return.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from .._core.bounded import find_program
from .._core.errors import StorageOpsError
from .._core.texts import is_number
from .._node import kubelet
from .._node.control_groups import UNKNOWN, pod_of
from .._node.copies import other_mounts
from .._node.host import Host
from .._node.mounts import CONNECTIONS
from .._node.namespaces import Namespaces
from .._node.processes import Process, ask_each, has_open, read_processes
from . import limits as driver_limits
from . import recipes as fuse_recipes
from . import stacks
from .model import FuseOptions, FuseState, PodFolder, Superblock


def details(
    host: Host,
    options: FuseOptions,
    state: FuseState,
    broken: Collection[str],
    found: dict[str, Superblock],
) -> FuseState:
    """The state with all that the plan needs once something is wrong.

    ``broken``: devices of superblocks. It costs a look at every process and every mount namespace,
    so a healthy node is spared it.
    """
    blocks = [found[device] for device in sorted(broken)]
    noted = [target.point for one in state.unfinished for target in one.targets]
    inside = _kubelet_points(state, blocks, noted)
    others = other_mounts(host, {block.device for block in blocks})
    paths = _note_paths(state.root, inside, found)
    paths += [place.note for place in stacks.loop_mounts(state.table, state.root)]
    notes = dict(zip(paths, kubelet.read_notes(host, paths, state.root)))
    drivers = {note.driver for note in notes.values()} | {one.driver for one in options.volumes}
    kept = [block for block in blocks if stacks.kept_elsewhere(state.table, block)]
    state = replace(
        _for_strategy(host, options, state, blocks, drivers - {""}),
        others=others.mounts,
        spaces=others.namespaces,
        crowded=others.crowded,
        processes=tuple(read_processes(host)),
        notes=notes,
        # What is mounted is there, and each question to one that hangs leaves a child.
        absent=tuple(
            kubelet.absent_points(host, [path for path in noted if not _is_mounted(state, path)])
        ),
        parents=dict(zip(inside, kubelet.parents_problem(host, inside, state.root))),
        waiting={block.device: waiting_requests(host, block.device) for block in blocks},
        programs=_programs(options, blocks),
        # As sd_booted(3) decides it.
        systemd=host.exists("/run/systemd/system"),
    )
    return _with_servers(host, state, kept)


def _for_strategy(
    host: Host,
    options: FuseOptions,
    state: FuseState,
    blocks: Sequence[Superblock],
    drivers: Collection[str],
) -> FuseState:
    """The state with what one of the two strategies needs."""
    if options.strategy == "remount":
        limits = driver_limits.read(host, state.root, drivers)
        return replace(state, limits=limits, spare=spare(host, options), folders=())
    # Only the strategy kubelet unmounts, and has to know what the kubelet is not done with.
    folders = pod_folders(host, state.root) if blocks else ()
    return replace(state, limits={}, spare={}, folders=folders)


def _with_servers(host: Host, state: FuseState, kept: list[Superblock]) -> FuseState:
    """The state with the servers of what is also mounted elsewhere."""
    beside = {one.pid: one for block in kept for one in stacks.beside(state, block.device)}
    servers, unread = fuse_servers(host, list(beside.values()))
    return replace(state, servers=servers, unread=unread)


def _is_mounted(state: FuseState, path: str) -> bool:
    top = state.table.holding(path)
    return bool(top and top.point == path)


def _kubelet_points(state: FuseState, blocks: list[Superblock], noted: list[str]) -> list[str]:
    """The mount points that may be replaced; a damaged note may have named any path."""
    points = {place.point for block in blocks for _mount, place in block.mounts}
    # A path outside of the kubelet's places is never acted on, so nothing is asked about it.
    return [
        point
        for point in sorted(points.union(noted))
        if state.root and kubelet.classify(point, state.root)
    ]


def _note_paths(root: str, inside: list[str], found: dict[str, Superblock]) -> list[str]:
    """The notes of mount points that may be replaced, and of the superblocks that answer.

    Of one that answers, the first names the driver, by which majorities are counted, and those of
    its staging mounts whether these may replace a dead one.
    """
    mine = filter(None, (kubelet.classify(point, root) for point in inside))
    paths = {place.note for place in mine}
    for superblock in found.values():
        places = [place for _mount, place in superblock.mounts if place.note]
        paths |= {one.note for one in places if one.kind == kubelet.STAGING or one is places[0]}
    return sorted(paths - {""})


def _programs(options: FuseOptions, blocks: list[Superblock]) -> dict[str, str]:
    """By name, the paths of the programs that a remount may start; those that are installed."""
    fstypes = {mount.fstype for block in blocks for mount, _place in block.mounts}
    recipes = [fuse_recipes.RECIPES.get(volume.recipe) for volume in options.volumes]
    recipes += [fuse_recipes.for_fstype(fstype) for fstype in fstypes]
    names = {recipe.name for recipe in recipes if recipe}
    names.update(volume.command[0] for volume in options.volumes if volume.command)
    # PATH of an Ansible run may lack the folders of system programs; find_program knows them.
    paths = {name: find_program(name) for name in names}
    return {name: path for name, path in paths.items() if path}


def spare(host: Host, options: FuseOptions) -> dict[str, int]:
    """By folder in which the program of a recipe may keep files, a tenth of its file system in MiB;
    without those that do not answer.
    """
    folders = {
        fuse_recipes.folder_of(recipe, volume.options)
        for volume in options.volumes
        for recipe in fuse_recipes.RECIPES.values()
        if recipe.spares
    }
    found = {folder: host.bounded(partial(_tenth, host.path(folder))) for folder in folders}
    return {folder: reply.value for folder, reply in found.items() if not reply.problem}


def _tenth(folder: str) -> int:
    """Of the file system that a folder is on, or will be on."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    return max(1, status.f_blocks * status.f_frsize // 10 // 2**20)


def fuse_servers(host: Host, asked: Sequence[Process]) -> tuple[tuple[int, ...], dict[int, str]]:
    """Which of these processes have /dev/fuse open, by ID; and of which that is not known, and why.

    It is only evidence, so it raises nothing: any tenant may have a process that cannot be read.
    """
    proc = host.path("/proc")
    replies = ask_each(host, lambda one: has_open(f"{proc}/{one.pid}", "/dev/fuse"), asked)
    found = [one.pid for one, reply in zip(asked, replies) if reply.value]
    return tuple(found), {
        one.pid: reply.problem for one, reply in zip(asked, replies) if reply.problem
    }


def waiting_requests(host: Host, device: str) -> str:
    """How many requests wait for the server of a superblock, as a text for the evidence.

    Known only where fusectl is mounted (Documentation/filesystems/fuse.rst, "waiting").
    """
    number = device.partition(":")[2]
    waiting = host.read(f"{CONNECTIONS}/{number}/waiting")
    return f"connection {number}: " + (
        "fusectl is not mounted" if waiting is None else f"{waiting} requests wait"
    )


def running_processes(
    host: Host, pods: Collection[str], devices: Collection[str] = ()
) -> list[str]:
    """The processes in the control groups of these pods, as "NAME (pid ID)", and the mount
    namespaces with these devices whose processes may be.
    """
    # By control group, which a container's process cannot leave (cgroups(7)).
    pids = filter(is_number, host.names("/proc") if pods else ())
    pod_by_pid = {pid: pod_of(host, pid) for pid in pids}
    found = [
        Process(int(pid), host.read(f"/proc/{pid}/comm") or "", "", "", "", ()).describe()
        for pid, pod in pod_by_pid.items()
        if pod in pods
    ]
    return found + (_unknown_with(host, devices) if UNKNOWN in pod_by_pid.values() else [])


def _unknown_with(host: Host, devices: Collection[str]) -> list[str]:
    """The mount namespaces of unknown pods that have, or may have, one of these devices."""
    # Another one holds up nothing: no tenant can mount the volume of another.
    everywhere = Namespaces(host)
    among = [one for one in everywhere.found if one.pod == UNKNOWN]
    long: list[str] = []
    found = [
        namespace.describe()
        for namespace, _mount in everywhere.mounts(
            lambda _number, device: device in devices,
            lambda mount: long.append(f"the mount namespace of pid {mount.pid}"),
            among,
        )
    ]
    unread = everywhere.unread.get(UNKNOWN, "")
    return list(dict.fromkeys([*found, *long, *filter(None, [unread])]))


def pod_folders(host: Host, root: str) -> tuple[PodFolder, ...]:
    """Every folder of a volume in a pod's folder; StorageOpsError if they cannot be listed."""

    def listing() -> list[list[str]]:
        found = []
        for pod in kubelet.folders(host.path(f"{root}/pods")):
            for plugin in kubelet.folders(host.path(f"{root}/pods/{pod}/volumes")):
                path = host.path(f"{root}/pods/{pod}/volumes/{plugin}")
                found += [[pod, plugin, volume] for volume in kubelet.folders(path)]
        return found

    reply = host.bounded(listing)
    if reply.problem:
        raise StorageOpsError(
            f"the pods' folders below {root} could not be listed: {reply.problem}"
        )
    # The layout is pods/UID/volumes/PLUGIN/VOLUME (kubernetes pkg/kubelet/kubelet_getters.go).
    # Folders with names that Kubernetes does not give are not its own. Those of other plugins are
    # of other volumes, and have any name: the pod's owner chooses it.
    at = {
        f"{root}/pods/{pod}/volumes/{plugin}/{volume}": (pod, volume)
        for pod, plugin, volume in reply.value
        if plugin == "kubernetes.io~csi"
        and kubelet.classify(f"{root}/pods/{pod}/volumes/{plugin}/{volume}/mount", root)
    }
    notes = kubelet.read_notes(host, [f"{path}/vol_data.json" for path in at], root)
    # Without a readable note it may be the volume that its name is of.
    return tuple(
        PodFolder(pod, volume if note.problem else note.volume, note.driver, note.handle)
        for (pod, volume), note in zip(at.values(), notes)
    )
