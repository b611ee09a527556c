# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The strategy remount: start a new server, and replace the dead mounts by its mount.

Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from .._core.codes import Reason
from .._core.engine import Action, Finding
from .._node.control_groups import UNKNOWN
from .._node.kubelet import Place
from .._node.mounts import Mount, is_shortened
from .model import FuseState, FuseVolume, Recovery, Step, Superblock, Target, printable
from .service import BY_DRIVER, mount_command, service_for
from .stacks import MountGroup, beside, kept_elsewhere, servers_of


def user_obstacles(mount: Mount, entries: list[FuseVolume]) -> list[Reason]:
    """Whether the dead server ran as another user than root, which a recipe cannot repeat."""
    # Only the user who mounted it can use a FUSE mount without allow_other, not even root
    # (user_id in fuse(4); fs/fuse/dir.c fuse_allow_current_process).
    users = [
        option
        for option in mount.super_options
        if re.fullmatch(r"user_id=[1-9]\d*", option, re.ASCII)
    ]
    if not users or any(entry.command for entry in entries):
        return []
    return [
        Reason(
            "mount_unknown",
            f"its server ran as another user than root ({users[0]}), and a recipe's runs as root: "
            "give a command that runs as that user, or use the strategy kubelet",
        )
    ]


def elsewhere_obstacles(
    state: FuseState, found: Mapping[str, Superblock], group: MountGroup, finding: Finding
) -> list[Reason]:
    """Dead mounts of the driver's own, which it would bind again for the next pod."""
    obstacles = []
    for device in group.devices:
        for mount in kept_elsewhere(state.table, found[device]):
            # Deleting the pod that serves it makes the driver mount it again by itself.
            processes = servers_of(state, device)
            pods = sorted({process.pod for process in processes} - {"", UNKNOWN})
            unread = [one for one in beside(state, device) if one.pid in state.unread]
            finding.evidence["servers"] = [
                f"{process.describe()} of pod {process.pod or '(none)'}" for process in processes
            ] + [
                f"not known of {one.describe()} of pod {one.pod or '(none)'}: "
                f"{state.unread[one.pid]}"
                for one in unread
            ]
            unknown = ", or not known, since open files could not be read" if unread else ""
            if not unread and UNKNOWN in [process.pod for process in processes]:
                unknown = ", or not known, since its control group cannot be read"
            whose = (
                f"its server may be that of the pod {' or '.join(pods)}: delete that pod"
                if pods
                else f"its server is gone, or of no pod{unknown}: find the pod of the driver "
                "that serves it (JuiceFS, Mountpoint for S3 and others have one for each volume), "
                "and delete it"
            )
            obstacles.append(
                Reason(
                    "driver_mount_broken",
                    f"the driver's own mount at {printable(mount.point)}, from which it binds "
                    f"those of pods, is dead as well, and the next pod would get it; {whose}, "
                    "then run this again",
                )
            )
    return obstacles


def loop_obstacles(held: list[Place]) -> list[Reason]:
    """Pods whose volume is a loop device on a file of the dead filesystem."""
    return [
        Reason(
            "in_use_held",
            f"a loop device at {printable(place.point)} is on a file of it, and keeps that file "
            "whatever is mounted here: only a new pod gets another one. Use the strategy kubelet",
        )
        for place in held
    ]


def point_obstacles(state: FuseState, targets: tuple[Target, ...]) -> list[Reason]:
    """What keeps the mounts at these points from being replaced."""
    obstacles = [
        Reason("mount_in_the_way", state.parents[target.point])
        for target in targets
        if state.parents.get(target.point)
    ]
    for target in targets:
        # A lazy unmount would take along what is mounted inside (umount(2), MNT_DETACH).
        own = {mount.id for mount in target.take}
        obstacles += [
            Reason("mount_in_the_way", f"another mount is inside it, at {printable(mount.point)}")
            # Asked of the lowest layer: what is on the others is on it, too.
            for mount in (state.table.on(target.take[-1]) if target.take else [])
            if mount.id not in own
        ]
        if is_shortened(target.root):
            obstacles.append(
                Reason(
                    "mount_in_the_way",
                    f"the path of the folder that was mounted at {printable(target.point)} is too "
                    "long to be mounted again",
                )
            )
        # So mountinfo marks a root that was removed (fs/d_path.c dentry_path); the new filesystem
        # has no such folder to show.
        if target.root.endswith("//deleted"):
            obstacles.append(
                Reason(
                    "mount_in_the_way", f"the folder that was mounted at {target.point} was deleted"
                )
            )
    return obstacles


def to_be_mounted(
    state: FuseState, recovery: Recovery, entries: list[FuseVolume], obstacles: list[Reason]
) -> tuple[Recovery, list[Reason]]:
    """The repair with the service that makes a new mount, and all obstacles."""
    # Of two entries for one volume, none is more right than the other.
    if len(entries) != 1:
        why = "nothing says" if not entries else f"{len(entries)} entries of 'volumes' say"
        remedy = f"give it by 'volumes', run the playbook with the cluster, or {BY_DRIVER}"
        said = Reason("mount_unknown", f"{why} what is to be mounted: {remedy}")
        return recovery, [*obstacles, said]
    # All problems are told at once, so that the user does not meet them one by one.
    service, problems = service_for(state, entries[0], recovery)
    return replace(recovery, service=service), obstacles + problems


def remount_actions(recovery: Recovery) -> list[Action]:
    """Make or adopt the new mount, replace each dead one by a bind of it, and tidy up."""
    actions = []
    step = Step(recovery)
    if recovery.service:
        actions.append(
            Action("mount", recovery.name, mount_command(recovery, recovery.service), step)
        )
    else:
        # Nothing is made, but the mount is looked at once more before a pod gets it.
        actions.append(Action("adopt_mount", recovery.name, ["use", recovery.ready], step))
    for target in recovery.targets:
        source = f"{recovery.source}{target.root}".rstrip("/")
        # A bind keeps the options of what is bound, so it takes its own flags (mount(8), --bind).
        bind = [
            "mount",
            "--bind",
            *(["-o", ",".join(target.flags)] if target.flags else []),
            source,
            target.point,
        ]
        # As many times as there are dead layers at the point.
        take = [
            word for _mount in target.take for word in ("umount", "--lazy", target.point, "then")
        ]
        actions.append(
            Action("replace_mount", target.point, [*take, *bind], Step(recovery, target))
        )
    return [*actions, clean_up(recovery)]


def clean_up(recovery: Recovery, stop: bool = False) -> Action:
    """Remove the folder of a repair. ``stop``: its unit serves only the mount that is removed."""
    # Stopped after its mount is gone: a server that ends first leaves another dead mount.
    first = ["systemctl", "stop", recovery.unit, "then"] if stop else []
    command = [
        "umount",
        "--lazy",
        f"{recovery.folder}/mount",
        "then",
        *first,
        "rm",
        "-r",
        recovery.folder,
    ]
    return Action("clean_up", recovery.folder, command, Step(recovery))
