# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a map, or with a disk in no map (STOR-01 to STOR-03). Pure: no I/O here."""

from __future__ import annotations

from typing import Any

from .._core.codes import Reason
from .._core.engine import Finding
from .._node.block import Disk, DmDevice
from .actions import release_actions
from .doubts import (
    empty_map_obstacles,
    map_obstacles,
    openers_of,
    path_obstacles,
    plain_disk_obstacles,
    use_obstacles,
)
from .judging import history_of, is_broken
from .model import (
    FINE,
    FOREIGN,
    GONE,
    OTHER,
    SERVING,
    STANDBY,
    TWIN,
    UNIDENTIFIED,
    UNKNOWN,
    WHOLE,
    Judgement,
    MapSubject,
    PathSubject,
    ResidualCase,
    ResidualOptions,
    ResidualState,
)


def judge_map(
    state: ResidualState, device: DmDevice, options: ResidualOptions
) -> ResidualCase | None:
    """What is wrong with a map, and what would repair it; None if every path serves its LUN."""
    history = {name: history_of(state, name, device.wwid) for name in device.slaves}
    now = {name: judgements[-1] for name, judgements in history.items()}
    kinds = {judgement.kind for judgement in now.values()}
    # At least one active path: passive ones alone cannot read.
    if SERVING in kinds and kinds <= {SERVING, STANDBY}:
        return None
    finding = _map_finding(state, device, history)
    if kinds == {FOREIGN}:
        # NVMe multipath and the like have no SCSI INQUIRY.
        finding.severity, finding.verdict = "info", "report"
        finding.summary = f"{device.name} stands on {', '.join(device.slaves)}, no SCSI disks"
        finding.reason = "not assessed: only SCSI disks can be asked what they are"
        return ResidualCase(finding, device.wwid, [])
    # They answer and can be used, so the map works; only which volume it is stays open.
    if UNIDENTIFIED in kinds and kinds <= FINE:
        finding.control, finding.severity = "STOR-02", "minor"
        finding.summary = f"{device.name}: whether its paths serve {device.wwid} cannot be told"
        return ResidualCase(
            finding,
            device.wwid,
            [
                Reason(judgement.code, f"{name}: {judgement.why}")
                for name, judgement in now.items()
                if judgement.kind == UNIDENTIFIED
            ],
        )
    return _judge_broken_map(state, device, options, finding, history)


def _map_finding(
    state: ResidualState, device: DmDevice, history: dict[str, list[Judgement]]
) -> Finding:
    """The finding of a map with its evidence, before it is judged."""
    disks = [state.last.disks[name] for name in device.slaves if name in state.last.disks]
    kinds = [judgements[-1].kind for judgements in history.values()]
    return Finding(
        control="STOR-01",
        # Queued I/O hangs its processes for good, and a new LUN of that number may be taken for it.
        severity="major",
        kind="multipath map",
        name=device.name,
        node=state.node,
        summary="",
        verdict="repair",
        evidence={
            "wwid": device.wwid,
            "dm": device.dm,
            "vendor": disks[0].vendor if disks else "",
            "product": disks[0].model if disks else "",
            "serving": sum(kind in WHOLE for kind in kinds),
            "paths": [
                _path_evidence(state, name, history[name], device.wwid) for name in device.slaves
            ],
            "queueing": state.queueing.get(device.name, False),
            "open_count": state.open_counts.get(device.dev),
            "openers": [opener.describe() for opener in openers_of(state, device)],
            "observed": f"{len(state.observations)} times over {state.span:.1f} s",
        },
    )


def _judge_broken_map(
    state: ResidualState,
    device: DmDevice,
    options: ResidualOptions,
    finding: Finding,
    history: dict[str, list[Judgement]],
) -> ResidualCase:
    """Fill in summary, obstacles and repair of a map whose paths do not all serve its LUN."""
    now = {name: judgements[-1] for name, judgements in history.items()}
    _summarize(finding, device, now)
    # No path tells about the LUN, so the whole node has to.
    obstacles = [] if now else empty_map_obstacles(state, device, options)
    serving, doubts = _judge_paths(state, history)
    obstacles += doubts
    obstacles += map_obstacles(state, device)
    obstacles += use_obstacles(state, device, options)
    release = release_actions(device, MapSubject(device, now), finding.evidence["queueing"])
    # Paths that serve the LUN stay; multipathd makes the map again from them if needed.
    paths = [
        PathSubject(state.last.disks[name], device.wwid, judgement, plain=False)
        for name, judgement in now.items()
        if judgement.kind in (OTHER, GONE) and name in state.last.disks
    ]
    return ResidualCase(finding, device.wwid, obstacles, serving, release, tuple(paths))


def _summarize(finding: Finding, device: DmDevice, now: dict[str, Judgement]) -> None:
    """Say the worst that is wrong with a map: reading another volume, before reading nothing."""
    others = [judgement for judgement in now.values() if judgement.kind == OTHER]
    gone = [name for name, judgement in now.items() if judgement.kind == GONE]
    twins = [name for name, judgement in now.items() if judgement.kind == TWIN]
    total = len(now)
    # The most dangerous comes first, since a finding has one control: what reads another volume
    # also writes to it.
    if others:
        names = ", ".join(sorted({judgement.wwid for judgement in others}))
        finding.control, finding.severity = "STOR-02", "critical"
        finding.evidence["other_wwids"] = sorted(
            {wwid for judgement in others for wwid in judgement.wwids}
        )
        finding.summary = (
            f"{device.name} was made for {device.wwid}, but {len(others)} of its "
            f"{total} paths read {names}: another volume's data"
        )
    # An array that clones a volume may give the copy the same WWID, and then only the other names
    # tell them apart.
    elif twins:
        finding.control, finding.severity = "STOR-02", "critical"
        finding.summary = (
            f"{device.name}: {len(twins)} of its {total} paths have its WWID, and "
            "other names than when they were found"
        )
    elif not total:
        finding.summary = f"{device.name} has no path left"
    elif len(gone) == total:
        finding.summary = (
            f"{device.name}: the array serves the LUN on none of its {total} paths any more"
        )
    else:
        # With a path left the volume works, only its redundancy is lost.
        finding.severity = "minor" if finding.evidence["serving"] else "major"
        finding.summary = (
            f"{device.name}: {total - finding.evidence['serving']} of its {total} "
            "paths do not serve it"
        )


def _judge_paths(
    state: ResidualState, history: dict[str, list[Judgement]]
) -> tuple[list[Reason], list[Reason]]:
    """(paths that serve the LUN, doubts about the others), each as refusals."""
    serving: list[Reason] = []
    doubts: list[Reason] = []
    for name, judgements in history.items():
        # Only if every observation says so; one doubt makes it an obstacle of its own.
        if {judgement.kind for judgement in judgements} <= WHOLE:
            now = judgements[-1]
            said = "still serves the LUN" if now.kind == SERVING else now.why
            serving.append(Reason("path_serves_lun", f"{name}: {said}"))
        else:
            against = path_obstacles(state, name, judgements)
            doubts += [doubt.with_text(f"{name}: {doubt}") for doubt in against]
    return serving, doubts


def _path_evidence(
    state: ResidualState, name: str, judgements: list[Judgement], wwid: str
) -> dict[str, Any]:
    """One entry of the evidence "paths"."""
    disk = state.last.disks.get(name)
    # A second witness beside the path's own answer: the target's list of LUNs.
    luns = state.last.luns.get(disk.target) if disk else None
    return {
        "disk": name,
        "hctl": disk.hctl if disk else "",
        "state": disk.state if disk else "",
        # Its own view, for comparison; it does not decide alone.
        "multipathd": state.last.daemon.paths.get(wwid, {}).get(name, "not listed"),
        "transport": disk.transport.describe() if disk and disk.transport else "",
        "sysfs_wwid": disk.wwid if disk else "",
        "answers": [judgement.why for judgement in judgements],
        "target_lists_luns": None if luns is None else list(luns),
        "is": judgements[-1].kind,
    }


def judge_plain_disk(state: ResidualState, disk: Disk) -> ResidualCase | None:
    """What is wrong with a disk in no map; None if it serves its LUN, or is no array's disk."""
    judgements = history_of(state, disk.name, disk.wwid)
    now = judgements[-1]
    if not is_broken(now, disk):
        return None
    finding = Finding(
        control="STOR-03",
        severity="minor",
        kind="SCSI disk",
        name=disk.name,
        node=state.node,
        summary=f"{disk.name} ({disk.hctl}) is no longer served by the array",
        verdict="repair",
        evidence={
            "wwid": disk.wwid,
            "vendor": disk.vendor,
            "product": disk.model,
            "paths": [_path_evidence(state, disk.name, judgements, disk.wwid)],
            "observed": f"{len(state.observations)} times over {state.span:.1f} s",
        },
    )
    # The disk reads and writes another volume's data.
    if now.kind == OTHER:
        finding.control, finding.severity = "STOR-02", "critical"
        finding.evidence["other_wwids"] = list(now.wwids)
        finding.summary = (
            f"{disk.name} ({disk.hctl}) was found as {disk.wwid}, but reads "
            f"{now.wwid}: another volume's data"
        )
    elif now.kind == TWIN:
        finding.control, finding.severity = "STOR-02", "critical"
        finding.summary = (
            f"{disk.name} ({disk.hctl}) has its WWID, and other names than when it was found"
        )
    elif now.kind == UNKNOWN:
        finding.summary = f"{disk.name} ({disk.hctl}) does not answer"
    # plain: no map protects it, so its users are looked for again before it is deleted.
    path = PathSubject(disk, disk.wwid, now, plain=True)
    return ResidualCase(
        finding, disk.wwid, plain_disk_obstacles(state, disk, judgements), paths=(path,)
    )
