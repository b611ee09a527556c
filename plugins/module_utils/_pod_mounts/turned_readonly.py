# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volume filesystems that turned read-only (STOR-08): what may be done. Pure: no I/O here."""

from __future__ import annotations

from .._core.codes import Reason
from .._core.engine import Finding
from .._node import probes
from .._node.kubelet import VolumeNote
from .._node.mounts import Mount
from .._node.probes import Answer
from .backing import Backing
from .model import Filesystem, PodMountState, show, workload_of
from .stacks import has_turned, pod_stacks


def judge_filesystem(state: PodMountState, filesystem: Filesystem) -> Finding | None:
    """The finding about a filesystem that looks as if it had turned read-only; None if its device
    is meant to be read-only.
    """
    backing = state.backings[filesystem.device]
    answer = state.answers.get(filesystem.device, Answer(probes.OK))
    proof = _proof(state, filesystem)
    # As for a snapshot, or a LUN that the array exports read-only.
    if backing.read_only and not proof and answer.state == probes.OK:
        return None
    # By the pods' mounts, since one filesystem may be staged for several names.
    notes = [stack.note for stack in pod_stacks(state) if stack.has(filesystem.device)]
    volumes = sorted({note.volume for note in notes} - {""})
    finding = _filesystem_finding(state, filesystem, volumes)
    if is_unasked(state, filesystem):
        # A doubt, and no proof of harm.
        finding.severity = "minor"
        finding.refuse(Reason("evidence_unreadable", f"it was not asked: {answer.text}"))
        return finding
    obstacles = _obstacles(state, filesystem)
    if not proof:
        # Whether it was an error decides how urgent it is.
        finding.severity = _unproven_severity(backing, answer)
        obstacles.append(
            Reason(
                "cause_unproven",
                "nothing shows that an error was the reason, and it may have been remounted "
                "read-only on purpose: see the kernel's log",
            )
        )
    if obstacles:
        finding.refuse(*obstacles)
        return finding
    # Only the kubelet can mount it again, once no pod of the node uses it any more. Its driver
    # checks the filesystem before that (NodeStageVolume).
    said = _way_out(notes, len(volumes))
    finding.reason = f"{'; '.join(proof)}. Its device can be read again: {said}"
    if len(volumes) == 1 and not any(note.inline for note in notes):
        finding.workload = workload_of(notes[0], filesystem.places)
    return finding


def _way_out(notes: list[VolumeNote], volumes: int) -> str:
    """What has to be done. ``notes``: of the pods' mounts, which are of so many ``volumes``."""
    if not notes:
        return "no pod here has it any more; the kubelet has to unmount it"
    if any(note.inline for note in notes):
        return "it is an inline volume of a pod, with which it ends: delete the pod"
    if volumes > 1:
        return "several volumes claim it"
    return "move its workload off the node and back (workload_reattach, or set pod_mounts_reattach)"


def is_unasked(state: PodMountState, filesystem: Filesystem) -> bool:
    """Whether nothing is known to be wrong, but that it could not be asked."""
    answer = state.answers.get(filesystem.device, Answer(probes.OK))
    return answer.unasked and not (has_turned(filesystem) or _proof(state, filesystem))


def _proof(state: PodMountState, filesystem: Filesystem) -> list[str]:
    """What shows that an error made it read-only, and not an administrator."""
    proof = [f"the kernel shows it as {flag}" for flag in filesystem.given_up]
    # ext4 keeps its count on the disk until e2fsck resets it (fs/ext4/sysfs.c errors_count), so
    # alone it is no proof of a new error.
    errors = state.backings[filesystem.device].errors.get("errors_count", "0") or "0"
    log = state.logs.get(filesystem.device, ())
    if (filesystem.read_only or filesystem.device in state.logs) and int(errors):
        proof.append(f"ext4 counts {errors} errors")
    return proof + ([f"the kernel's log: {log[-1]}"] if log else [])


def _filesystem_finding(
    state: PodMountState, filesystem: Filesystem, volumes: list[str]
) -> Finding:
    """The finding with its evidence, before it is judged."""
    backing = state.backings[filesystem.device]
    answer = state.answers.get(filesystem.device, Answer(probes.OK))
    return Finding(
        control="STOR-08",
        # Writes fail now, and most programs take that for a lost disk.
        severity="critical",
        kind="volume filesystem",
        name=filesystem.places[0].point,
        node=state.node,
        summary=_said(filesystem, answer)
        if not is_unasked(state, filesystem)
        else f"whether {_named(filesystem)} answers is not known",
        evidence={
            "points": [place.point for place in filesystem.places],
            "volumes": volumes or state.volumes_at(filesystem.places),
            "pods": sorted({place.pod for place in filesystem.places if place.pod}),
            "type": filesystem.first.fstype,
            "source": show(filesystem.first.source),
            "device": f"{filesystem.device} ({backing.name})",
            "asked_for": filesystem.wanted,
            "is": "ro" if filesystem.read_only else "rw",
            "flags": filesystem.given_up,
            "answer": answer.text or answer.state,
            "errors": backing.errors,
            "log": list(state.logs.get(filesystem.device, ())),
            "device_read_only": backing.read_only,
            "paths": list(backing.paths),
            "also_mounted": _also_mounted(state, filesystem),
        },
    )


def _obstacles(state: PodMountState, filesystem: Filesystem) -> list[Reason]:
    """Why mounting it again would not help, or cannot work."""
    backing = state.backings[filesystem.device]
    answer = state.answers.get(filesystem.device, Answer(probes.OK))
    obstacles = list(backing.obstacles)
    if backing.read_only:
        obstacles.append(
            Reason(
                "device_read_only",
                f"{backing.name} itself is read-only: make the LUN writable first",
            )
        )
    # A superblock lives until its last mount goes, and keeps its read-only flag till then.
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
    # Its unmount would hang as well, and with it the kubelet's.
    if answer.state == probes.HUNG:
        obstacles.append(
            Reason(
                "mount_hung",
                f"it does not answer: {answer.text}. Its paths may be down: see multipath -ll",
            )
        )
    return obstacles


def _unproven_severity(backing: Backing, answer: Answer) -> str:
    """The severity of a filesystem that is read-only without a known error.

    If all else is well, an administrator may have remounted it.
    """
    # btrfs counts every kind of error by itself; all zero means none.
    counted = any(number.strip("0") for number in backing.errors.values())
    odd = backing.obstacles or counted or answer.state != probes.OK
    return "critical" if odd else "minor"


def _named(filesystem: Filesystem) -> str:
    return f"{filesystem.first.fstype} on {show(filesystem.first.source)}"


def _said(filesystem: Filesystem, answer: Answer) -> str:
    name = _named(filesystem)
    # The usual case: ext4 with errors=remount-ro (ext4(5)).
    if has_turned(filesystem):
        return f"{name} is read-only, though it was mounted read-write"
    if answer.state == probes.HUNG:
        return f"{name} does not answer"
    return f"{name} has given up after an error"


def _also_mounted(state: PodMountState, filesystem: Filesystem) -> list[str]:
    """Its mounts that are not the kubelet's, which keep the superblock as it is."""
    mounts = [
        mount
        # In containers, too: each mount keeps the superblock, and with it the read-only state.
        for mount in (*state.table.mounts, *state.elsewhere)
        if mount.device == filesystem.device and not _inside(state, mount)
    ]
    found = [f"{show(mount.point)} in the mount namespace of pid {mount.pid}" for mount in mounts]
    more = state.crowded.get(filesystem.device)
    return list(dict.fromkeys([*found, *([f"more: {more}"] if more else [])]))


def _inside(state: PodMountState, mount: Mount) -> bool:
    """Whether a mount is in the kubelet's folder, as the kubelet's own mounts are."""
    return mount.point.startswith(f"{state.root}/")
