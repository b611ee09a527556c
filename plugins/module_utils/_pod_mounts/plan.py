# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Mounts of pods that are not their volume (STOR-07), and volumes that turned read-only (STOR-08):
what may be done. Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import drivers
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import kubelet, probes
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    Place,
    VolumeNote,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import (
    Process,
    pod_uid_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._pod_mounts.readonly import (
    Backing,
)

RUNBOOK = "storage_ops.runbooks.repair_pod_mounts"

# How ext4 (since Linux 6.14) and others show a filesystem that has given up.
_GIVEN_UP = ("emergency_ro", "shutdown")
_DELETED = "//deleted"


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of csi_mount_repair for units and
    defaults.
    """

    paths: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    kubelet_root: str = kubelet.ROOT
    probe_timeout: float = 5.0
    max_repairs: int = 10
    accept_majority: bool = False
    publish_from: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """Everything the plan is made from; the last three are read only where something looks wrong.

    ``root``: the kubelet's folder, without links. ``notes``: what the kubelet noted of a volume, by
    the path of the note. ``answers``: of filesystems, by device. ``logs``: how the kernel said that
    it gave one up, by device. ``elsewhere``: mounts of all other namespaces.
    ``backings``: the block device below a filesystem, by device. ``loops``: by loop device, the
    filesystem that its file lies on. ``publish_from``: as in Options.
    """

    node: str
    root: str
    table: MountTable
    notes: dict[str, VolumeNote]
    answers: dict[str, Answer] = field(default_factory=dict)
    logs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    elsewhere: tuple[Mount, ...] = ()
    backings: dict[str, Backing] = field(default_factory=dict)
    loops: dict[str, str] = field(default_factory=dict)
    publish_from: Mapping[str, str] = field(default_factory=dict)

    def places(self, *kinds: str) -> list[Place]:
        """The places of these kinds where something is mounted, each once; none where there is no
        kubelet.
        """
        if not self.root:
            return []
        found = [
            kubelet.classify(point, self.root)
            for point in dict.fromkeys(mount.point for mount in self.table.mounts)
        ]
        return [
            place
            for place in found
            if place is not None and place.kind in kinds and self.table.layers(place.point)
        ]


@dataclass(frozen=True)
class LayerSubject:
    """The layer that an action takes off, and the whole stack as it was when the plan was made."""

    mount: Mount
    layers: tuple[Mount, ...]


@dataclass(frozen=True)
class Stack:
    """The mounts at a pod's mount point, beside those where its volume is staged.

    ``staged``: topmost mounts of the staging folder. ``hidden``: those below them. Neither has what
    came there from the pod's mount point: a mount on one of two shared mounts of a filesystem comes
    onto the other, too. ``problem``: why it is unknown where it is staged.
    ``publishes``: what its driver is known to do, see drivers. ``loops``: as in State.
    ``folders``: the staging folders themselves, as (device, folder) of the filesystem they are in.
    """

    place: Place
    note: VolumeNote
    layers: tuple[Mount, ...]
    staged: tuple[Mount, ...]
    hidden: tuple[Mount, ...]
    problem: str
    publishes: str = ""
    loops: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[tuple[str, str], ...] = ()

    def right(self, layer: Mount) -> bool:
        """It is the volume that is staged, or, as some drivers do it, a folder or a
        file of that.
        """
        below = layer.device
        # They are read one after the other, so they may seem to lie on each other.
        for _depth in self.loops:
            below = self.loops.get(below, "")
            # Where in it the file is, the kernel does not say.
            if any((below, "/") == (staged.device, staged.root) for staged in self.staged):
                return True
        return any(
            layer.device == staged.device and _within(layer.root, staged.root)
            for staged in self.staged
        )

    def has(self, device: str) -> bool:
        """The volume is on that device, as far as anything tells."""
        return not self.problem and any(
            layer.device == device and layer not in self.wrong for layer in self.layers
        )

    @property
    def strange(self) -> list[Mount]:
        """Layers that are not what is staged."""
        return [layer for layer in self.layers if self.staged and not self.right(layer)]

    @property
    def wrong(self) -> list[Mount]:
        """Layers that are something else than the volume: its driver publishes what it staged."""
        return self.strange if self.publishes == drivers.STAGING else []

    @property
    def unknown(self) -> list[Mount]:
        """Layers of which nothing tells what they are: its driver may have made them elsewhere."""
        return [] if self.publishes == drivers.STAGING else self.strange

    def verdict(self, layer: Mount) -> str:
        """What a layer is, as a sentence; empty where nothing tells."""
        if not self.staged:
            return ""
        if layer not in self.strange:
            return "the volume"
        return "wrong" if layer in self.wrong else "unknown"

    @property
    def bare(self) -> bool:
        """What the pod has is the staging folder itself, without the mount that should be in it."""
        top = self.layers[-1]
        return any(
            top.device == device and _within(top.root, folder) for device, folder in self.folders
        )

    @property
    def fine(self) -> bool:
        """One layer, and it is the volume, or nothing is known of it that contradicts this."""
        strange = (self.strange or self.bare) and self.publishes != drivers.ELSEWHERE
        return len(self.layers) == 1 and not self.problem and not strange


@dataclass(frozen=True)
class Filesystem:
    """A volume's filesystem, wherever the kubelet has it mounted: ``mounts`` are its layers at
    staging and publish points.
    """

    device: str
    mounts: tuple[Mount, ...]
    places: tuple[Place, ...]

    @property
    def first(self) -> Mount:
        """The mount that the driver has made: in the staging folder if there is one."""
        return self.mounts[0]

    @property
    def read_only(self) -> bool:
        """The filesystem is, for all its mounts."""
        return "ro" in self.first.super_options

    @property
    def wanted(self) -> str:
        """``rw`` or ``ro``: what the driver has asked for.

        The flag of a mount stays what it was when the filesystem turns read-only.
        """
        return "ro" if "ro" in self.first.options else "rw"

    @property
    def given_up(self) -> list[str]:
        """Flags by which the kernel says that it has given the filesystem up."""
        return [
            flag
            for flag in _GIVEN_UP
            if any(word.partition("=")[0] == flag for word in self.first.super_options)
        ]


def stacks(state: State) -> list[Stack]:
    """What lies at every pod's mount point of a CSI volume."""
    staging = [
        (place.point, state.table.layers(place.point)) for place in state.places(kubelet.STAGING)
    ]
    found = []
    for place in state.places(kubelet.PUBLISH):
        note = state.notes.get(place.note, VolumeNote(problem=f"{place.note} was not read"))
        problem = note.problem or kubelet.contradiction(place, note)
        folders = () if problem else kubelet.staging_points(note, state.root)
        layers = tuple(state.table.layers(place.point))
        came = {twin.id for layer in layers[1:] for twin in twins(state, layer)}
        there = [
            [layer for layer in stack if layer.id not in came]
            for point, stack in staging
            if any(point == folder or point.startswith(f"{folder}/") for folder in folders)
        ]
        staged = tuple(stack[-1] for stack in there if stack)
        hidden = tuple(layer for stack in there for layer in stack[:-1])
        publishes = drivers.publishes(note.driver, state.publish_from)
        plain = tuple(_folder(state, folder) for folder in folders)
        found.append(
            Stack(place, note, layers, staged, hidden, problem, publishes, state.loops, plain)
        )
    return found


def _folder(state: State, path: str) -> tuple[str, str]:
    """(device, folder in its filesystem) of a path without what is mounted there."""
    below = state.table.holding(path.rpartition("/")[0])
    if below is None:
        return "", ""
    return below.device, f"{below.root.rstrip('/')}{path[len(below.point.rstrip('/')) :]}"


def twins(state: State, layer: Mount) -> list[Mount]:
    """Mounts that came together with this one, by propagation, and go with it: on the same folder
    of a peer of the mount below.
    """
    by_id = {mount.id: mount for mount in state.table.mounts}

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
    return [mount for mount in alike if group and place(mount) == (group, folder)]


def filesystems(state: State) -> list[Filesystem]:
    """The filesystems on block devices that the kubelet has mounted; what other filesystems do
    after errors is their server's business.
    """
    mounts: dict[str, list[Mount]] = {}
    places: dict[str, list[Place]] = {}
    for place in state.places(kubelet.STAGING, kubelet.PUBLISH):
        for number, layer in enumerate(state.table.layers(place.point)):
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
    """A filesystem whose server is a process."""
    return mount.fstype in ("fuse", "fuseblk") or mount.fstype.startswith("fuse.")


def point_of(state: State, device: str) -> str:
    """A mount point of the kubelet's at which a filesystem answers, since nothing lies on it there;
    empty if there is none.
    """
    places = state.places(kubelet.STAGING, kubelet.PUBLISH)
    return next(
        (place.point for place in places if state.table.layers(place.point)[-1].device == device),
        "",
    )


def suspicious_stacks(state: State) -> list[Stack]:
    """Those that are not as they should be, without what is a matter of dead FUSE servers (STOR-05,
    -06).
    """
    return [
        stack
        for stack in stacks(state)
        if not stack.fine and not any(_is_dead(state, layer) for layer in stack.layers)
    ]


def _is_dead(state: State, layer: Mount) -> bool:
    """A FUSE layer that does not answer, or that cannot be asked."""
    return is_fuse(layer) and (
        layer.device not in state.answers
        or state.answers[layer.device].state in (probes.DEAD, probes.HUNG)
    )


def suspicious_filesystems(state: State) -> list[Filesystem]:
    """Those that are read-only although they should not be, that have given up, or that cannot be
    read.
    """
    found = []
    for filesystem in filesystems(state):
        answer = state.answers.get(filesystem.device, Answer(probes.OK))
        turned = filesystem.read_only and filesystem.wanted == "rw"
        if (
            turned
            or filesystem.given_up
            or filesystem.device in state.logs
            or answer.state != probes.OK
        ):
            found.append(filesystem)
    return found


def plan(state: State, options: Options) -> Plan:
    """Findings for everything in scope that is not as it should be, and the repairs that are proven
    and allowed.
    """
    suspicious = suspicious_stacks(state)
    wrong = [judge_stack(state, stack) for stack in suspicious]
    turned = [
        finding
        for filesystem in suspicious_filesystems(state)
        for finding in [judge_filesystem(state, filesystem)]
        if finding
    ]
    # What nothing is known of says nothing of an outage.
    broken = [finding for finding, stack in zip(wrong, suspicious) if not _is_unknown(stack)]
    outage = [] if options.accept_majority else _outages(state, broken, turned)
    wanted = Plan([finding for finding in [*wrong, *turned] if _in_scope(finding, options)])
    helped = [finding for finding in wanted.findings if finding.repair or finding.workload]
    for finding in helped if outage else helped[options.max_repairs :]:
        finding.refuse(
            *(
                outage
                or [
                    Reason(
                        "too_many_repairs",
                        f"max_repairs is {options.max_repairs}: run again for this one, or raise "
                        "it",
                    )
                ]
            )
        )
        finding.workload = None
    return wanted


def _outages(state: State, wrong: list[Finding], turned: list[Finding]) -> list[Reason]:
    """Why so much looks broken that nothing is to be repaired."""
    return [
        Reason(
            "majority_broken",
            f"{len(broken)} of the node's {total} {what} look broken at once: that may be an "
            "outage. If they all have to be repaired, set accept_majority",
        )
        for broken, total, what in (
            (wrong, len(state.places(kubelet.PUBLISH)), "pod mounts"),
            (turned, len(filesystems(state)), "volume filesystems"),
        )
        if 2 * len(broken) > total
    ]


def _in_scope(finding: Finding, options: Options) -> bool:
    """Whether the user's scope has the finding; whatever it has then was named."""
    points, volumes = set(finding.evidence["points"]), set(finding.evidence["volumes"])
    finding.named = bool(points & set(options.paths) or volumes & set(options.volumes))
    return finding.named or not (options.paths or options.volumes)


# STOR-07


def judge_stack(state: State, stack: Stack) -> Finding:
    """The finding about a mount point that is not as it should be, with its repair if that is
    proven.
    """
    place, layers = stack.place, stack.layers
    finding = Finding(
        control="STOR-07",
        severity="major",
        kind="pod mount",
        name=place.point,
        node=state.node,
        summary="",
        verdict="repair",
        reason="",
        runbook=RUNBOOK,
        evidence={
            "points": [place.point],
            "volumes": [place.volume],
            "pod": place.pod,
            "driver": stack.note.driver,
            "handle": stack.note.handle,
            "note": place.note,
            "layers": [_shown(layer, stack.verdict(layer)) for layer in layers],
            "staging": [{"point": mount.point, **_shown(mount, "")} for mount in stack.staged],
        },
    )
    if stack.bare and stack.publishes == drivers.STAGING:
        _judge_bare(stack, finding)
        return finding
    if _is_unknown(stack):
        _judge_unknown(stack, finding)
        return finding
    if not stack.staged:
        _judge_unstaged(stack, finding)
        return finding
    wrong, lowest = (
        stack.wrong,
        next((number for number, layer in enumerate(layers) if stack.right(layer)), len(layers)),
    )
    kept = layers[: lowest + 1] if lowest < len(layers) else ()
    doomed = layers[lowest + 1 :] if lowest < len(layers) else layers
    top = layers[-1]
    if top in wrong:
        finding.severity = "critical"
        finding.summary = (
            f"the pod's mount is {show(top.source)} ({top.device}), which is not the "
            "volume that is staged for it"
        )
    elif wrong:
        finding.summary = (
            f"below the pod's mount lies another one of {show(wrong[0].source)} ({wrong[0].device})"
        )
    else:
        finding.severity = "minor"
        finding.summary = f"the volume is mounted {len(layers)} times on one another"
    doubts = _doubts(state, stack, kept, doomed)
    users = _users(state, stack, doomed)
    if not kept:
        # The kubelet mounts it again only when it next syncs the pod; until then, and if the image
        # is still being pulled, a container would start on an empty folder of the node's disk.
        users.append(
            Reason(
                "pod_restart_needed",
                "the volume is not below it: a container could start on an empty folder",
            )
        )
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
        finding.workload = _workload(place.volume, stack.note, (place,))
    else:
        finding.reason = "no process is inside, and no container of the pod runs"
        finding.repair = [_unmount(layer, layers) for layer in reversed(doomed)]
    return finding


def _is_unknown(stack: Stack) -> bool:
    return bool(stack.unknown) or (stack.bare and stack.publishes != drivers.STAGING)


def _judge_bare(stack: Stack, finding: Finding) -> None:
    """Its driver mounts the volume in the staging folder, and has published that
    without a mount.
    """
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
    """Its driver may publish another mount than the one that it has staged."""
    layers = stack.unknown or stack.layers[-1:]
    strange = ", ".join(f"{show(layer.source)} ({layer.device})" for layer in layers)
    finding.severity = "minor"
    finding.summary = (
        f"whether the pod's mount is its volume cannot be told: {strange} is not what is staged"
    )
    finding.refuse(
        Reason(
            "driver_unknown",
            f"nothing is known of the driver {show(stack.note.driver)} that says where its mounts "
            "for pods come from: see its documentation, and set publish_from for it",
        )
        if not stack.publishes
        else Reason(
            "evidence_contradicts",
            f"the driver {show(stack.note.driver)} may mount for pods what it has not staged, and "
            f"{len(stack.layers)} mounts lie on one another: if the pod does not get its data, "
            "delete the pod",
        )
    )


def _judge_unstaged(stack: Stack, finding: Finding) -> None:
    """Nothing says what is right."""
    sources = ", ".join(f"{show(layer.source)} ({layer.device})" for layer in stack.layers)
    if stack.problem:
        finding.severity = "minor"
        finding.summary = "whether the pod's mount is its volume cannot be told"
        finding.refuse(
            Reason(
                "evidence_unreadable",
                f"the kubelet's note of the volume cannot be used: {show(stack.problem)}. See "
                "what its log says of the pod",
            )
        )
        return
    finding.summary = f"{len(stack.layers)} mounts lie on one another: {sources}"
    finding.verdict = "report"
    finding.reason = (
        "the volume is not staged, so nothing tells which one is right: if the pod "
        "does not get its data, delete the pod"
    )


def _doubts(
    state: State, stack: Stack, kept: tuple[Mount, ...], doomed: tuple[Mount, ...]
) -> list[Reason]:
    """Why it is not proven that these layers may go."""
    doubts = []
    if pod_uid_of(f"/kubepods/pod{stack.place.pod}") != stack.place.pod:
        doubts.append(
            Reason(
                "value_refused",
                f"its pod cannot be {stack.place.pod}, which is no uid: whether a container of it "
                "runs cannot be told",
            )
        )
    wrong, staged = stack.wrong, {mount.device for mount in (*stack.staged, *stack.hidden)}
    if len(staged) > 1:
        doubts.append(
            Reason(
                "evidence_contradicts",
                f"mounts of different devices ({', '.join(sorted(staged))}) lie in its staging "
                "folder: which is right cannot be told",
            )
        )
    if kept and kept[0] in wrong:
        doubts.append(
            Reason(
                "mount_in_the_way",
                f"the wrong mount {kept[0].id} lies underneath a right one, which would have to go "
                "first: delete the pod",
            )
        )
    others = {
        layers[0].device
        for place in state.places(kubelet.STAGING)
        for layers in [state.table.layers(place.point)]
    } - staged
    for layer in doomed:
        # It is as likely that it was staged, and came from there to the pod.
        if (
            layer in wrong
            and layer.device not in others
            and any(_is_staging(state, twin) for twin in twins(state, layer))
        ):
            doubts.append(
                Reason(
                    "evidence_contradicts",
                    f"mount {layer.id} of {layer.device} lies on the staging mount, too: which "
                    "one is the volume cannot be told",
                )
            )
    rights = {
        (layer.device, layer.root, "ro" in layer.options)
        for layer in stack.layers
        if layer not in wrong
    }
    if len(rights) > 1:
        doubts.append(
            Reason(
                "evidence_contradicts",
                "different folders of the volume, or one read-only and one not, lie on one "
                "another: which is right cannot be told",
            )
        )
    on_top = [mount for layer in doomed for mount in state.table.on(layer) if mount not in doomed]
    doubts += [
        Reason("mount_in_the_way", f"another mount lies on it, at {mount.point!r}")
        for mount in dict.fromkeys(on_top)
    ]
    for place in state.places(kubelet.SUBPATH):
        if (place.pod, place.volume) == (stack.place.pod, stack.place.volume):
            made = {mount.device for mount in state.table.layers(place.point)} & {
                layer.device for layer in wrong
            } - staged
            doubts += (
                [
                    Reason(
                        "pod_restart_needed",
                        f"the subPath mount {place.point} was made from it: delete the pod",
                    )
                ]
                if made
                else []
            )
    return doubts


def _is_staging(state: State, mount: Mount) -> bool:
    place = kubelet.classify(mount.point, state.root)
    return place is not None and place.kind == kubelet.STAGING


def _users(state: State, stack: Stack, doomed: tuple[Mount, ...]) -> list[Reason]:
    """Who is inside of these layers, in any mount namespace, and whatever runs of that pod."""
    below_root = stack.place.point[len(state.root) :]
    layers = {(mount.device, _text(mount.root)) for mount in doomed}
    # A copy of the kubelet's folder has them too. Where else that device is mounted, it may be
    # rightly so, for another pod.
    copies = {
        mount.id
        for mount in state.elsewhere
        if (mount.device, mount.root) in layers and mount.point.endswith(below_root)
    }
    going = [*doomed, *(twin for layer in doomed for twin in twins(state, layer))]
    inside = {mount.id for mount in going} | copies
    pods = {
        place.pod
        for mount in going
        for place in [kubelet.classify(mount.point, state.root)]
        if place and place.pod
    }
    users = []
    for process in state.processes:
        how = ", ".join(how for number, how in process.uses if number in inside)
        if process.pod in pods:
            users.append(
                Reason("in_use_open", f"{process.describe()} of a container of the pod runs")
            )
        elif how:
            users.append(Reason("in_use_open", f"{process.describe()} is inside ({how})"))
    return users


def _unmount(layer: Mount, layers: tuple[Mount, ...]) -> Action:
    name = f"{layer.point} (mount {layer.id}: {show(layer.source)}, {layer.device})"
    return Action(
        "unmount", name, ["umount2", layer.point, "UMOUNT_NOFOLLOW"], LayerSubject(layer, layers)
    )


# STOR-08


def judge_filesystem(state: State, filesystem: Filesystem) -> Finding | None:
    """The finding about a filesystem that looks as if it had turned read-only; None if its device
    is meant to be read-only.
    """
    backing = state.backings[filesystem.device]
    answer = state.answers.get(filesystem.device, Answer(probes.OK))
    proof = [f"the kernel shows it as {flag}" for flag in filesystem.given_up]
    if (filesystem.read_only or filesystem.device in state.logs) and int(
        backing.errors.get("errors_count", "0") or 0
    ):
        proof.append(f"ext4 counts {backing.errors['errors_count']} errors")
    log = state.logs.get(filesystem.device, ())
    proof += [f"the kernel's log: {log[-1]}"] if log else []
    if backing.read_only and not proof and answer.state == probes.OK:
        return None
    volumes = {
        stack.place.volume: stack.note for stack in stacks(state) if stack.has(filesystem.device)
    }
    finding = Finding(
        control="STOR-08",
        severity="critical",
        kind="volume filesystem",
        name=filesystem.places[0].point,
        node=state.node,
        summary=_said(filesystem, answer),
        verdict="report",
        reason="",
        runbook=RUNBOOK,
        evidence={
            "points": [place.point for place in filesystem.places],
            "volumes": sorted(volumes)
            or sorted({place.volume for place in filesystem.places if place.volume}),
            "pods": sorted({place.pod for place in filesystem.places if place.pod}),
            "type": filesystem.first.fstype,
            "source": show(filesystem.first.source),
            "device": f"{filesystem.device} ({backing.name})",
            "asked_for": filesystem.wanted,
            "is": "ro" if filesystem.read_only else "rw",
            "flags": filesystem.given_up,
            "answer": answer.text or answer.state,
            "errors": backing.errors,
            "log": list(log),
            "device_read_only": backing.read_only,
            "paths": list(backing.paths),
            "also_mounted": _also_mounted(state, filesystem),
        },
    )
    obstacles = list(backing.obstacles)
    if backing.read_only:
        obstacles.append(
            Reason(
                "device_read_only",
                f"{backing.name} itself is read-only: make the LUN writable first",
            )
        )
    outside = [
        mount.point
        for mount in state.table.mounts
        if mount.device == filesystem.device and not _inside(state, mount)
    ]
    if outside:
        obstacles.append(
            Reason(
                "in_use_mounted",
                f"the node has it mounted at {show(outside[0])}, too, so it would stay as it is: "
                "unmount it there first",
            )
        )
    if answer.state == probes.HUNG:
        obstacles.append(
            Reason(
                "mount_hung",
                f"it does not answer: {answer.text}. Its paths may be down: see multipath -ll",
            )
        )
    if not proof:
        finding.severity = _unproven_severity(backing, answer)
        obstacles.append(
            Reason(
                "cause_unproven",
                "nothing shows that an error was the reason, so it cannot be told from what "
                "somebody wanted: see the kernel's log",
            )
        )
    if obstacles:
        finding.refuse(*obstacles)
        return finding
    finding.reason = f"{'; '.join(proof)}. Its device can be read again: "
    if len(volumes) == 1:
        ((volume, note),) = volumes.items()
        finding.workload = _workload(volume, note, filesystem.places)
        finding.reason += (
            "move its workload off the node and back (workload_reattach, or set "
            "pod_mounts_reattach)"
        )
    else:
        finding.reason += (
            "no pod here has it any more; the kubelet has to unmount it"
            if not volumes
            else "several volumes claim it"
        )
    return finding


def _unproven_severity(backing: Backing, answer: Answer) -> str:
    """Of one that is read-only without a known error.

    Where all else is well an administrator may have remounted it.
    """
    counted = any(number.strip("0") for number in backing.errors.values())
    odd = backing.obstacles or counted or answer.state != probes.OK
    return "critical" if odd else "minor"


def _said(filesystem: Filesystem, answer: Answer) -> str:
    name = f"{filesystem.first.fstype} on {show(filesystem.first.source)}"
    if filesystem.read_only and filesystem.wanted == "rw":
        return f"{name} is read-only, though it was mounted to be written"
    if answer.state == probes.HUNG:
        return f"{name} does not answer"
    return f"{name} has given up after an error"


def _also_mounted(state: State, filesystem: Filesystem) -> list[str]:
    """Other mounts of it, which keep it as it is although the kubelet unmounts it."""
    mounts = [
        mount
        for mount in (*state.table.mounts, *state.elsewhere)
        if mount.device == filesystem.device and not _inside(state, mount)
    ]
    return list(
        dict.fromkeys(
            f"{show(mount.point)} in the mount namespace of pid {mount.pid}" for mount in mounts
        )
    )


def _inside(state: State, mount: Mount) -> bool:
    """It lies in the kubelet's folder, as the kubelet's own mounts do."""
    return mount.point.startswith(f"{state.root}/")


# both


def _workload(volume: str, note: VolumeNote, places: tuple[Place, ...]) -> dict[str, Any]:
    """What has to be moved, for the playbook."""
    pods = sorted({place.pod for place in places if place.pod})
    return {"volume": volume, "driver": note.driver, "handle": note.handle, "pods": pods}


def _within(root: str, above: str) -> bool:
    """A folder of a filesystem is, or is inside of, another one; whether it has been deleted since
    does not matter.
    """
    inner, outer = (
        path[: -len(_DELETED)] if path.endswith(_DELETED) else path for path in (root, above)
    )
    return inner == outer or inner.startswith(f"{outer.rstrip('/')}/")


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
    """A path as it is read where bytes that are no text are replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def show(text: str) -> str:
    """Text that others have chosen, fit for a result: quoted unless all of it can be printed."""
    return text if text.isprintable() else repr(text)
