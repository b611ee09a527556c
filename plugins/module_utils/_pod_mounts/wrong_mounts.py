# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pod mounts that are not their volume (STOR-07): which layers may be unmounted.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .._core import drivers
from .._core.codes import Reason
from .._core.engine import Action, Finding
from .._node import kubelet
from .._node.control_groups import UNKNOWN, pod_uid_of
from .._node.mounts import Mount
from .._node.processes import Process
from .model import LayerSubject, PodMountState, Stack, show, workload_of
from .stacks import is_unasked, twins


def judge_stack(state: PodMountState, stack: Stack) -> Finding:
    """The finding about a mount point that is not fine, with its repair if that is proven."""
    finding = _stack_finding(state, stack)
    # The worst case first: the pod's data is on the node's disk, and not in the volume.
    if stack.bare and stack.publishes == drivers.STAGING:
        _judge_bare(stack, finding)
    elif is_unknown(stack):
        _judge_unknown(stack, finding)
    elif not stack.staged:
        _judge_unstaged(stack, finding)
    else:
        _judge_layers(state, stack, finding)
    return finding


def _stack_finding(state: PodMountState, stack: Stack) -> Finding:
    """The finding with its evidence, before it is judged."""
    place = stack.place
    return Finding(
        control="STOR-07",
        severity="major",
        kind="pod mount",
        name=place.point,
        node=state.node,
        summary="",
        verdict="repair",
        evidence={
            "points": [place.point],
            "volumes": state.volumes_at([place]),
            "pod": place.pod,
            "driver": stack.note.driver,
            "handle": stack.note.handle,
            "note": place.note,
            "layers": [_shown(layer, stack.verdict(layer)) for layer in stack.layers],
            "staging": [{"point": mount.point, **_shown(mount, "")} for mount in stack.staged],
        },
    )


def _judge_layers(state: PodMountState, stack: Stack, finding: Finding) -> None:
    """Keep the lowest layer that is the volume and those below it, unmount those above."""
    layers = stack.layers
    # The lowest right layer is the one that the driver published first; later ones hide it.
    lowest = next(
        (number for number, layer in enumerate(layers) if stack.right(layer)), len(layers)
    )
    kept = layers[: lowest + 1] if lowest < len(layers) else ()
    doomed = layers[len(kept) :]
    _summarize(stack, finding)
    doubts = _doubts(state, stack, kept, doomed)
    users = _users(state, stack, doomed)
    if not kept:
        # The kubelet mounts it again only when it next syncs the pod. Until then, and also while an
        # image is still being pulled, a container would start on an empty folder of the node's
        # disk.
        users.append(
            Reason(
                "pod_restart_needed",
                "the volume is not below it: a container could start on an empty folder",
            )
        )
    # Below what covers it, no path leads to it. The pod is moved, or keeps what it has.
    users += [
        Reason("evidence_unreadable", f"whether the mount {layer.id} below it answers is not known")
        for layer in kept[-1:]
        if is_unasked(state, layer)
    ]
    if doubts:
        finding.refuse(*doubts, *users)
    elif users:
        finding.refuse(
            *users,
            Reason(
                "pod_restart_needed",
                "the workload must be moved off the node and back: see workload_reattach, or set "
                "pod_mounts_reattach",
            ),
        )
        finding.workload = workload_of(stack.note, (stack.place,))
    else:
        finding.reason = "no process is inside, and no container of the pod runs"
        # From the top, since umount2 acts on the topmost layer.
        finding.repair = [_unmount(layer, layers) for layer in reversed(doomed)]


def _summarize(stack: Stack, finding: Finding) -> None:
    """Say what is wrong. The topmost layer is the one that the pod reads and writes."""
    wrong, top = stack.wrong, stack.layers[-1]
    if top in wrong:
        finding.severity = "critical"
        finding.summary = (
            f"the pod's mount is {show(top.source)} ({top.device}), which is not the "
            "volume that is staged for it"
        )
    # The pod has its volume, but would lose it when the kubelet unmounts once.
    elif wrong:
        finding.summary = (
            f"below the pod's mount is another one, of {show(wrong[0].source)} ({wrong[0].device})"
        )
    else:
        finding.severity = "minor"
        # As after a kubelet that published twice; the kubelet unmounts only one layer when the pod
        # ends.
        finding.summary = f"the volume is mounted {len(stack.layers)} times on top of itself"


def is_unknown(stack: Stack) -> bool:
    """Whether only the driver's documentation can tell if the pod's mount is its volume."""
    # Neither is repaired: to call the right mount wrong would take the pod's data away.
    return bool(stack.unknown) or (stack.bare and stack.publishes != drivers.STAGING)


def _judge_bare(stack: Stack, finding: Finding) -> None:
    """The driver published its staging folder without the volume mounted on it."""
    finding.severity = "critical"
    finding.summary = (
        "the pod writes to the node's own disk: it has the staging folder "
        f"{show(stack.layers[-1].root)}, in which the volume is not mounted"
    )
    finding.refuse(
        Reason(
            "data_misplaced",
            "what the pod has written is in that folder, and not in the volume: copy it, see the "
            "driver's log why it did not mount the volume "
            f"{show(stack.note.handle)}, then delete the pod",
        )
    )


def _judge_unknown(stack: Stack, finding: Finding) -> None:
    """The driver may publish another mount than the one that it staged, or it is not known whether
    it has.
    """
    layers = stack.unknown or stack.layers[-1:]
    strange = ", ".join(f"{show(layer.source)} ({layer.device})" for layer in layers)
    finding.severity = "minor"
    finding.summary = (
        f"whether the pod's mount is its volume cannot be told: {strange} is not what is staged"
    )
    if stack.publishes == drivers.STAGING:
        finding.refuse(
            Reason(
                "evidence_unreadable",
                "the kernel did not say on which file system the file behind that loop device is: "
                "run this again",
            )
        )
        return
    finding.refuse(
        Reason(
            "driver_unknown",
            f"where the driver {show(stack.note.driver)} takes its mounts for pods from is not "
            "known: see its documentation, and set publish_from for it",
        )
        if not stack.publishes
        else Reason(
            "evidence_contradicts",
            f"the driver {show(stack.note.driver)} may mount for pods what it has not staged, and "
            f"{len(stack.layers)} mounts are on top of each other: if the pod does not get its "
            "data, delete the pod",
        )
    )


def _judge_unstaged(stack: Stack, finding: Finding) -> None:
    """Without a staging mount nothing says which layer is right."""
    sources = ", ".join(f"{show(layer.source)} ({layer.device})" for layer in stack.layers)
    if stack.problem:
        finding.severity = "minor"
        finding.summary = "whether the pod's mount is its volume cannot be told"
        finding.refuse(
            Reason(
                "evidence_unreadable",
                f"the kubelet's note of the volume cannot be used: {show(stack.problem)}. See "
                "its log about the pod",
            )
        )
        return
    finding.summary = f"{len(stack.layers)} mounts are on top of each other: {sources}"
    # Without STAGE_UNSTAGE_VOLUME the driver mounts directly for the pod (CSI specification,
    # NodePublishVolume).
    finding.verdict = "report"
    finding.reason = (
        "the volume is not staged, so nothing tells which one is right: if the pod "
        "does not get its data, delete the pod"
    )


def _doubts(
    state: PodMountState, stack: Stack, kept: tuple[Mount, ...], doomed: tuple[Mount, ...]
) -> list[Reason]:
    """Why it is not proven that the doomed layers may be unmounted."""
    return [
        *_pod_doubts(stack),
        *_staging_doubts(stack, kept),
        *_origin_doubts(state, stack, doomed),
        *_right_doubts(stack),
        *_covering_doubts(state, doomed),
        *_subpath_doubts(state, stack),
    ]


def _staged_devices(stack: Stack) -> set[str]:
    return {mount.device for mount in (*stack.staged, *stack.hidden)}


def _pod_doubts(stack: Stack) -> list[Reason]:
    # Processes are matched to pods by the UID in their control group, so it has to be one.
    if pod_uid_of(f"/kubepods/pod{stack.place.pod}") != stack.place.pod:
        return [
            Reason(
                "value_refused",
                f"its pod cannot be {stack.place.pod}, which is no uid: whether a container of it "
                "runs cannot be told",
            )
        ]
    return []


def _staging_doubts(stack: Stack, kept: tuple[Mount, ...]) -> list[Reason]:
    """What in the staging folder, or at the bottom of the stack, contradicts."""
    doubts = []
    # Hidden layers count, too: which of them the pod's mount was made from is not known.
    staged = _staged_devices(stack)
    if len(staged) > 1:
        doubts.append(
            Reason(
                "evidence_contradicts",
                f"mounts of different devices ({', '.join(sorted(staged))}) are in its staging "
                "folder: which is right cannot be told",
            )
        )
    # Layers can only be taken from the top, and the right one is above it.
    if kept and kept[0] in stack.wrong:
        doubts.append(
            Reason(
                "mount_in_the_way",
                f"the wrong mount {kept[0].id} is below a right one, which would have to go "
                "first: delete the pod",
            )
        )
    return doubts


def _origin_doubts(state: PodMountState, stack: Stack, doomed: tuple[Mount, ...]) -> list[Reason]:
    """Wrong layers that may be what was staged, of which a twin is on a staging mount."""
    # A device that is staged for another volume is known not to be this one.
    others = {
        state.table.layers(place.point)[0].device for place in state.places(kubelet.STAGING)
    } - _staged_devices(stack)
    return [
        # Such a mount may have been made at either end, and come to the other by propagation.
        Reason(
            "evidence_contradicts",
            f"mount {layer.id} of {layer.device} is on the staging mount, too: which "
            "one is the volume cannot be told",
        )
        for layer in doomed
        if layer in stack.wrong
        and layer.device not in others
        and any(_is_staging(state, twin) for twin in twins(state, layer))
    ]


def _right_doubts(stack: Stack) -> list[Reason]:
    """Whether the layers of the volume itself differ."""
    rights = {
        # The option of the mount, not of the filesystem: it is what the pod asked for (readOnly).
        (layer.device, layer.root, "ro" in layer.options)
        for layer in stack.layers
        if layer not in stack.wrong
    }
    if len(rights) > 1:
        return [
            Reason(
                "evidence_contradicts",
                "different folders of the volume, or one read-only and one not, are on top of each "
                "other: which is right cannot be told",
            )
        ]
    return []


def _covering_doubts(state: PodMountState, doomed: tuple[Mount, ...]) -> list[Reason]:
    """Mounts on the doomed layers that are none of them; umount fails while one is there."""
    on_top = [mount for layer in doomed for mount in state.table.on(layer) if mount not in doomed]
    return [
        Reason("mount_in_the_way", f"another mount is on it, at {mount.point!r}")
        for mount in dict.fromkeys(on_top)
    ]


def _subpath_doubts(state: PodMountState, stack: Stack) -> list[Reason]:
    """subPath mounts of the pod that were bound from a wrong layer."""
    # A subPath is a bind of its own, which stays when the layer below it goes.
    wrong = {layer.device for layer in stack.wrong} - _staged_devices(stack)
    return [
        Reason(
            "pod_restart_needed",
            f"the subPath mount {place.point} was made from it: delete the pod",
        )
        for place in state.places(kubelet.SUBPATH)
        if (place.pod, place.volume) == (stack.place.pod, stack.place.volume)
        and wrong & {mount.device for mount in state.table.layers(place.point)}
    ]


def _is_staging(state: PodMountState, mount: Mount) -> bool:
    place = kubelet.classify(mount.point, state.root)
    # By its path alone, whichever volume is staged there.
    return place is not None and place.kind == kubelet.STAGING


def _users(state: PodMountState, stack: Stack, doomed: tuple[Mount, ...]) -> list[Reason]:
    """The processes that use these layers, in any mount namespace, or belong to their pods."""
    going = _going(state, doomed)
    inside = _inside(state, stack, doomed)
    places = (kubelet.classify(mount.point, state.root) for mount in going)
    pods = {place.pod for place in places if place and place.pod}
    unknown = [
        Reason("evidence_unreadable", f"who uses it is not known: it has {state.crowded[device]}")
        for device in dict.fromkeys(layer.device for layer in doomed)
        if device in state.crowded
    ]
    spaces = _namespaces(state, inside)
    found = (_use(process, inside, pods, spaces) for process in state.processes)
    return unknown + [use for use in found if use]


def _going(state: PodMountState, doomed: tuple[Mount, ...]) -> list[Mount]:
    """What is unmounted with these layers, besides copies in other mount namespaces."""
    return [*doomed, *(twin for layer in doomed for twin in twins(state, layer))]


def _inside(state: PodMountState, stack: Stack, doomed: tuple[Mount, ...]) -> set[int]:
    """IDs of all that is unmounted with these layers."""
    return {mount.id for mount in _going(state, doomed)} | _copies(state, stack, doomed)


def seen_in(state: PodMountState, wrong: Collection[Stack]) -> set[str]:
    """The mount namespaces in which a layer of these stacks is, as ``judge_stack`` needs them."""
    return {
        space
        for stack in wrong
        for space in _namespaces(state, _inside(state, stack, stack.layers))
    }


def _use(process: Process, inside: set[int], pods: set[str], spaces: set[str]) -> Reason | None:
    """What a process has to do with mounts ``inside``, or with the ``pods`` that have them.

    ``spaces``: the mount namespaces in which they are; empty if that is not known.
    """
    # Even if it is not inside now: its next access would be to another filesystem.
    if process.pod == UNKNOWN and pods and (not spaces or process.may_be_in(spaces)):
        said = f"whether {process.describe()} is of a container of the pod is not known"
        return Reason("evidence_unreadable", f"{said}: its control group cannot be read")
    if process.pod in pods:
        return Reason("in_use_open", f"{process.describe()} of a container of the pod runs")
    # Working directory, root, program, open or mapped file (_node/processes.py).
    how = ", ".join(how for number, how in process.uses if number in inside)
    if how:
        return Reason("in_use_open", f"{process.describe()} is inside ({how})")
    if process.unknown and (not spaces or process.may_be_in(spaces)):
        said = f"whether {process.describe()} is inside is not known: {process.unknown}"
        return Reason("evidence_unreadable", said)
    return None


def _namespaces(state: PodMountState, inside: Collection[int]) -> set[str]:
    """The mount namespaces in which these mounts are; empty if one of them is not known."""
    # A process can open only what its own namespace has. It may be handed a file of another one
    # (unix(7), SCM_RIGHTS), but then the kernel refuses to unmount the mount of that file
    # (umount2(2), EBUSY).
    pids = {"1", *(mount.pid for mount in state.elsewhere if mount.id in inside)}
    found = {state.spaces.get(pid, "") for pid in pids}
    return set() if "" in found else found


def _copies(state: PodMountState, stack: Stack, doomed: tuple[Mount, ...]) -> set[int]:
    """IDs of the doomed layers' copies in other mount namespaces.

    A copy of the kubelet's folder, as in a CSI driver's container, has them at the same path below
    it. Elsewhere the device may be mounted rightly, for another pod.
    """
    below_root = stack.place.point[len(state.root) :]
    layers = {(mount.device, _text(mount.root)) for mount in doomed}
    return {
        mount.id
        for mount in state.elsewhere
        if (mount.device, mount.root) in layers and mount.point.endswith(below_root)
    }


def _unmount(layer: Mount, layers: tuple[Mount, ...]) -> Action:
    name = f"{layer.point} (mount {layer.id}: {show(layer.source)}, {layer.device})"
    return Action(
        # The command of the report; the system call is made directly (_node/unmount.py).
        "unmount",
        name,
        ["umount2", layer.point, "UMOUNT_NOFOLLOW"],
        LayerSubject(layer, layers),
    )


def _shown(mount: Mount, verdict: str) -> dict[str, Any]:
    return {
        "mount": mount.id,
        "device": mount.device,
        "root": show(mount.root),
        "source": show(mount.source),
        "type": mount.fstype,
        "options": ",".join(mount.options),
        **({"is": verdict} if verdict else {}),
    }


def _text(path: str) -> str:
    """A path with bytes that are no UTF-8 replaced, as in the mountinfo of other namespaces."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
