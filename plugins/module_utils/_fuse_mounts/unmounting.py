# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The strategy kubelet: unmount what the kubelet left behind; the driver mounts it for new pods.

Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import replace

from .._core.codes import Reason
from .._core.engine import Action, Finding
from .._node import kubelet
from .._node.kubelet import Place
from .._node.probes import HUNG
from .._node.processes import Process
from .model import FuseOptions, FuseState, FuseVolume, PodFolder, Recovery, Step, Target, printable
from .stacks import seen_through, staying


def for_kubelet(
    state: FuseState,
    options: FuseOptions,
    recovery: Recovery,
    entries: list[FuseVolume],
    held: list[Place],
    obstacles: list[Reason],
    finding: Finding,
) -> tuple[Recovery, list[Reason]]:
    """The repair with its pods, and all reasons against unmounting.

    ``held``: where pods have a loop device on a file of it. Only mounts that no process can still
    be using are unmounted. Puts the pods that have to be evicted into the evidence, if nothing else
    is in the way.
    """
    # Only paths below a pod's folder name a pod; a staging mount has none.
    places = [kubelet.classify(target.point, state.root) for target in recovery.targets]
    # Those of loop devices have no dead mount of their own, and keep it from being unstaged.
    pods = tuple(sorted({place.pod for place in [*places, *held] if place and place.pod}))
    # The playbook moves these pods, and no other that has a volume of the same name.
    finding.evidence["pods"] = list(pods)
    obstacles = [
        *obstacles,
        *_unknown_pods(pods, entries),
        *_running_pods(state, options, pods),
        *_mounted_elsewhere(state, recovery, pods),
        *_unfinished_kubelet(state, recovery, pods),
        *(
            Reason("evidence_unreadable", f"it has {state.crowded[device]}")
            for device in recovery.devices
            if device in state.crowded
        ),
    ]
    wanted = _staying(pods, entries)
    if wanted:
        hung = any(state.answers[device].state == HUNG for device in recovery.devices)
        # The caller refuses a hung mount, too, unless it may be aborted. Evicting pods for a repair
        # that is refused anyway would only do harm.
        if not obstacles and (options.abort_hung_connections or not hung):
            finding.evidence["evict"] = wanted
        obstacles.append(
            Reason(
                "pods_wanted",
                f"{', '.join(wanted)} {'is' if len(wanted) == 1 else 'are'} not being deleted: "
                "evict the pods first (workload_reattach), or use the strategy remount",
            )
        )
    return replace(recovery, pods=pods), obstacles


def _staying(pods: tuple[str, ...], entries: list[FuseVolume]) -> list[str]:
    """The pods that are not being deleted, as NAMESPACE/NAME, or by their uid where the user gave
    no more.

    No process may be running between two restarts of a container. So a pod that stays counts as
    using the volume, whatever processes there are.
    """
    known = {pod.uid: pod for entry in entries for pod in entry.pods or ()}
    return [
        f"{known[uid].namespace}/{known[uid].name}" if known[uid].name else f"pod {uid}"
        for uid in pods
        if uid in known and not known[uid].terminating
    ]


def _unknown_pods(pods: tuple[str, ...], entries: list[FuseVolume]) -> list[Reason]:
    # Two entries may name different pods, and a wrong one would count a wanted pod as gone.
    if pods and (len(entries) != 1 or entries[0].pods is None):
        return [
            Reason(
                "pods_wanted",
                f"whether the pods {', '.join(pods)} are still wanted is not known: give them in "
                "'volumes', or use the strategy remount",
            )
        ]
    return []


def _running_pods(state: FuseState, options: FuseOptions, pods: tuple[str, ...]) -> list[Reason]:
    running = [process for process in state.processes if process.pod in pods]
    # With a timeout it is waited for, once the pods are being deleted.
    if running and not options.containers_timeout:
        names = ", ".join(process.describe() for process in running[:5])
        return [
            Reason(
                "pods_running",
                f"containers of its pods run: {names}. Evict the pods and set containers_timeout, "
                "or use the strategy remount",
            )
        ]
    return []


def _mounted_elsewhere(state: FuseState, recovery: Recovery, pods: tuple[str, ...]) -> list[Reason]:
    """Copies in other mount namespaces that would outlive the node's own mount."""
    whose = seen_through(state)
    left = staying(state, recovery.devices)
    by_pid = {pid: _strange(pid, whose(pid), pods) for pid in {mount.pid for mount in left}}
    obstacles = []
    for mount in left:
        who = by_pid[mount.pid]
        if who:
            obstacles.append(
                Reason(
                    "in_use_mounted",
                    f"it is also mounted in the mount namespace of {who}, at "
                    f"{printable(mount.point)}",
                )
            )
    return obstacles


def _strange(pid: str, owners: list[Process], pods: tuple[str, ...]) -> str:
    """A process outside these pods that is, or may be, in a mount namespace; empty if none is."""
    # Those of the volume's own pods end with their containers.
    strange = [owner for owner in owners if owner.pod not in pods]
    if strange or not owners:
        return strange[0].describe() if strange else f"pid {pid}"
    return ""


def _unfinished_kubelet(
    state: FuseState, recovery: Recovery, pods: tuple[str, ...]
) -> list[Reason]:
    """Pods that the kubelet still has to publish to, or to unpublish from, where only the staging
    mount is dead.
    """
    still = still_wanted(state.folders, recovery)
    # With pods known, the same is decided by whether these are being deleted.
    if not pods and still:
        return [
            Reason(
                "pods_wanted",
                f"the kubelet still has folders of this volume for the pods {', '.join(still)}: "
                "it is not done with it",
            )
        ]
    return []


def still_wanted(folders: tuple[PodFolder, ...], recovery: Recovery) -> list[str]:
    """UIDs of the pods that have a folder of the volume, sorted."""
    return sorted(
        {
            folder.pod
            for folder in folders
            # The folder has the name of the PersistentVolume; for other volumes its note tells the
            # handle.
            if folder.volume in recovery.volumes
            or (folder.driver, folder.handle) in recovery.handles
        }
    )


def kubelet_actions(recovery: Recovery, options: FuseOptions) -> list[Action]:
    """Unmount the pods' mounts, then let the kubelet unstage the volume."""
    step = Step(recovery)
    actions = []
    if recovery.pods and options.containers_timeout:
        actions.append(
            Action(
                "wait_for_containers",
                recovery.name,
                ["wait", f"{options.containers_timeout:g}", *recovery.pods],
                step,
            )
        )
    for target in in_order(recovery):
        # Once its pods are gone the kubelet unstages the volume by itself (NodeUnstageVolume,
        # kubernetes pkg/kubelet/volumemanager/reconciler), and so keeps its records right.
        if recovery.pods and target.kind == kubelet.STAGING:
            actions.append(
                Action(
                    "wait_unstaged",
                    target.point,
                    ["wait", f"{options.unstage_timeout:g}", target.point],
                    Step(recovery, target),
                )
            )
        # Without a pod it has forgotten the volume, as after a restart.
        else:
            actions.append(_unmount_action(recovery, target))
    return actions


def in_order(recovery: Recovery) -> list[Target]:
    """The mount points in the order in which they are unmounted."""
    # The kubelet unstages a volume only after all its publish mounts are gone (CSI specification,
    # NodeUnstageVolume).
    return sorted(recovery.targets, key=lambda target: target.kind == kubelet.STAGING)


def _unmount_action(recovery: Recovery, target: Target) -> Action:
    # A normal umount fails with EBUSY while a process has a file open in the dead filesystem;
    # --lazy takes it out of the way all the same (umount(2), MNT_DETACH).
    command = [
        word for _mount in target.take for word in ("umount", "--lazy", target.point, "then")
    ]
    return Action("unmount", target.point, command[:-1], Step(recovery, target))
