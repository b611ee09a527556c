# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions that remove residual maps and paths, in their order. Pure: no I/O here."""

from __future__ import annotations

from .._core.engine import Action, Finding
from .._node.block import Disk, DmDevice
from .model import MapSubject, PathsSubject, PathSubject, ResidualState, TargetSubject


def removed_paths(finding: Finding) -> PathsSubject:
    """All paths that the repair of a finding removes."""
    subjects = [
        action.subject for action in finding.repair if isinstance(action.subject, PathsSubject)
    ]
    return PathsSubject(tuple(path for subject in subjects for path in subject.paths))


def most_removed(finding: Finding) -> int:
    """How many paths one action of the repair removes at most."""
    subjects = (action.subject for action in finding.repair)
    return max((len(one.paths) for one in subjects if isinstance(one, PathsSubject)), default=0)


def flushed_maps(finding: Finding) -> list[MapSubject]:
    """The maps that the repair of a finding flushes."""
    return [action.subject for action in finding.repair if action.verb == "flush_map"]


def scanned_targets(finding: Finding) -> list[TargetSubject]:
    """The targets that a repair scans as a whole."""
    return [
        action.subject for action in finding.repair if isinstance(action.subject, TargetSubject)
    ]


def release_actions(device: DmDevice, subject: MapSubject, queues: bool) -> list[Action]:
    """Flush a map. ``queues``: the kernel queues I/O while no path works."""
    # Queued I/O keeps its process waiting and the map open, so it has to fail first
    # (drivers/md/dm-mpath.c MPATHF_QUEUE_IF_NO_PATH; multipathd(8), disablequeueing). multipath -f
    # removes the map and its partition maps, unless one is in use (multipath(8); dm_remove_partmaps
    # of libmultipath/devmapper.c).
    flush = Action("flush_map", device.name, ["multipath", "-f", device.name], subject)
    if not queues:
        # The daemon is told, not dmsetup, since it would switch queueing on again by itself
        # (multipath-tools, libmultipath/structs_vec.c set_no_path_retry).
        return [flush]
    return [
        Action(
            "disable_queueing",
            device.name,
            ["multipathd", "disablequeueing", "map", device.name],
            subject,
        ),
        flush,
    ]


def path_action(path: PathSubject) -> Action:
    """Delete a path whose LUN is gone. If another LUN has taken the number, scan for that."""
    # The kernel keeps a disk's identity from its discovery, so a disk that reads another LUN is
    # deleted and discovered again.
    commands = [_deletion(path), *([_scan(path)] if path.judgement.wwids else [])]
    # Two verbs, so that the result tells whether a disk came in its place.
    verb = "replace_path" if path.judgement.wwids else "delete_path"
    return Action(
        verb, f"{path.disk.name} ({path.disk.hctl})", _in_turn(commands), PathsSubject((path,))
    )


def paths_action(subject: PathsSubject) -> Action:
    """Delete all the paths, and only then scan for the LUNs that took their numbers."""
    commands = [
        *map(_deletion, subject.paths),
        *(_scan(path) for path in subject.paths if path.judgement.wwids),
    ]
    target = ", ".join(f"{path.disk.name} ({path.disk.hctl})" for path in subject.paths)
    return Action("replace_paths", target, _in_turn(commands), subject)


def _deletion(path: PathSubject) -> list[str]:
    # By the SCSI address, not the disk's name (drivers/scsi/scsi_sysfs.c sdev_store_delete).
    return ["write", f"/sys/class/scsi_device/{path.disk.hctl}/device/delete", "1"]


def _scan(path: PathSubject) -> list[str]:
    # "CHANNEL TARGET LUN"; "-" means all (drivers/scsi/scsi_sysfs.c scsi_scan).
    host, channel, number, lun = path.disk.hctl.split(":")
    return ["write", f"/sys/class/scsi_host/host{host}/scan", f"{channel} {number} {lun}"]


def _in_turn(commands: list[list[str]]) -> list[str]:
    return [word for command in commands for word in ("then", *command)][1:]


def scan_actions(state: ResidualState, disks: list[Disk]) -> list[Action]:
    """Scan the targets of removed disks, and no others.

    A residual disk keeps its LUN number taken; a LUN that now has the number appears.
    """
    actions = []
    # Each target once, though several of its disks may go.
    for target in dict.fromkeys(disk.target for disk in disks):
        host, channel, number = target.split(":")
        # To tell afterwards which disks the scan has added.
        known = frozenset(
            (disk.hctl, disk.wwid) for disk in state.last.disks.values() if disk.target == target
        )
        scan = ["write", f"/sys/class/scsi_host/host{host}/scan", f"{channel} {number} -"]
        actions.append(Action("scan_target", target, scan, TargetSubject(target, known)))
    return actions
