# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reasons against removing a map or disk. Pure: no I/O here."""

from __future__ import annotations

from .._core.codes import Reason
from .._node.block import Disk, DmDevice
from .._node.usage import Opener
from .arrays import find_arrays
from .judging import judge_in
from .model import (
    GONE,
    OTHER,
    SERVING,
    UNIDENTIFIED,
    UNKNOWN,
    WHOLE,
    Judgement,
    Observation,
    ResidualOptions,
    ResidualState,
)


def path_obstacles(state: ResidualState, name: str, judgements: list[Judgement]) -> list[Reason]:
    """Why the answers of a path do not prove that it may be removed."""
    # Each observation has to prove it: one good answer in between means an outage, not a removal.
    odd = [judgement for judgement in judgements if judgement.kind not in (GONE, OTHER)]
    if odd:
        why = odd[-1].reason
        return [why.with_text("still serves the LUN") if odd[-1].kind == SERVING else why]
    if not all(judgement.same_as(judgements[-1]) for judgement in judgements):
        return [Reason("path_unproven", "answered differently while it was observed")]
    return _still_listed(state, name) if judgements[-1].kind == GONE else []


def _still_listed(state: ResidualState, name: str) -> list[Reason]:
    """Whether REPORT LUNS contradicts a path that answers as gone, or is missing where it has to
    decide.
    """
    disk = state.last.disks[name]
    if any(disk.lun in seen.luns.get(disk.target, ()) for seen in state.observations):
        return [Reason("path_unproven", f"its target still lists LUN {disk.lun} in REPORT LUNS")]
    # LUN 0: the target itself answers TEST UNIT READY, so only its list can tell.
    if state.last.answers[name].ready == "good" and disk.target not in state.last.luns:
        return [
            Reason(
                "path_unproven",
                "contradictory answers, and its target does not say by REPORT LUNS what it serves",
            )
        ]
    return []


def empty_map_obstacles(
    state: ResidualState, device: DmDevice, options: ResidualOptions
) -> list[Reason]:
    """Why a map without paths may not be flushed: any disk of its array may be its path, and any of
    the node if no disk tells that it is of that array.
    """
    obstacles = []
    last = state.last
    # A rescan, or a change of the map, may remove its paths for a moment.
    if any(seen.dm[device.dm].slaves for seen in state.observations if device.dm in seen.dm):
        obstacles.append(Reason("device_changing", "it had paths a moment ago"))
    arrays = find_arrays(state.observations)
    asked = arrays.made_by(device.wwid) or set(arrays.makers)
    for disk in last.disks.values():
        if arrays.by_target[disk.target] in asked:
            obstacles += _may_be_path(disk, judge_in(last, disk.name, device.wwid))
    # A map made from a vendor's uid_attribute, or by hand, has a name that no designator matches.
    if device.wwid[:1] not in ("1", "2", "3"):
        obstacles.append(
            Reason("path_unproven", f"no inquiry can be compared with the name {device.wwid}")
        )
    # Through any of these the LUN may come back in a moment. One without disks may be anyone's.
    others = {
        disk.transport.name
        for disk in last.disks.values()
        if disk.transport and arrays.by_target[disk.target] not in asked
    }
    obstacles += [
        Reason("transport_outage", f"transport outage: {transport.describe()}")
        for transport in last.transports.values()
        if not transport.up and transport.name not in others
    ]
    # Nothing can be asked about a map without a path, so the user has to say so.
    if not options.flush_empty_maps:
        obstacles.append(
            Reason("consent_required", "a map without paths is flushed only with flush_empty_maps")
        )
    return obstacles


def _may_be_path(disk: Disk, judgement: Judgement) -> list[Reason]:
    """Why a disk may be a path that a map without paths has lost for a moment."""
    if judgement.kind in WHOLE:
        return [Reason("path_serves_lun", f"{disk.name} serves its LUN")]
    unidentified = judgement.kind == UNIDENTIFIED and disk.transport is not None
    if judgement.kind == UNKNOWN or unidentified:
        return [Reason("path_unproven", f"{disk.name} might be its path: {judgement.why}")]
    return []


def map_obstacles(state: ResidualState, device: DmDevice) -> list[Reason]:
    """Why the state of the map itself, or of multipathd, forbids a repair."""
    obstacles = []
    last = state.last
    if last.daemon.problem:
        obstacles.append(Reason("multipathd_unusable", last.daemon.problem))
    # It was made by another program, or multipathd was restarted and did not take it over.
    elif device.wwid not in last.daemon.paths:
        obstacles.append(Reason("multipathd_unusable", "multipathd does not know this map"))
    ready = _called_ready(last, device)
    if ready:
        obstacles.append(
            Reason("path_serves_lun", f"multipathd still calls {', '.join(ready)} ready")
        )
    if device.is_mangled:
        # multipathd 0.9.4 lists such a map by both names. Its commands accept one of them, or none,
        # and end with status 0 in any case.
        obstacles.append(
            Reason(
                "multipathd_unusable",
                f"multipath's commands do not take the alias {device.name!r}: give the map one of "
                "letters, digits and _ - . in multipath.conf, run 'multipathd "
                "reconfigure', and then this again",
            )
        )
    if device.suspended:
        obstacles.append(
            Reason("device_changing", "the map is suspended, so another process is changing it")
        )
    # Its table or its name was changed, as by a reload with new paths.
    if any(seen.dm.get(device.dm) != device for seen in state.observations):
        obstacles.append(Reason("device_changing", "the map changed while it was observed"))
    return obstacles


def _called_ready(last: Observation, device: DmDevice) -> list[str]:
    """The paths that multipathd calls ready although they answer as gone."""
    ready = [
        name
        for name, said in last.daemon.paths.get(device.wwid, {}).items()
        if said.endswith(" ready")
    ]
    # multipathd's checker "tur" sends TEST UNIT READY, too (multipath-tools,
    # libmultipath/checkers/tur.c). Where that is answered (LUN 0), it is no second opinion.
    return [
        name
        for name in ready
        if judge_in(last, name, device.wwid).kind == GONE and last.answers[name].ready != "good"
    ]


def openers_of(state: ResidualState, device: DmDevice) -> list[Opener]:
    """The processes that have the map or one of its partition maps open."""
    devs = [device.dev, *(part.dev for part in _partition_maps(state, device))]
    return state.openers.of(devs)


def _partition_maps(state: ResidualState, device: DmDevice) -> list[DmDevice]:
    return [
        state.last.dm[name]
        # kpartx and udev make partition maps of every map, whether they are used or not.
        for name in device.holders
        if name in state.last.dm and state.last.dm[name].is_partition
    ]


def use_obstacles(state: ResidualState, device: DmDevice, options: ResidualOptions) -> list[Reason]:
    """Why the map may be in use. Its partition maps count only if they are in use themselves."""
    parts = _partition_maps(state, device)
    obstacles = [*state.uses.get(device.dm, []), *_holder_obstacles(state, device, parts)]
    opens = _opens_without_holders(state, [device, *parts])
    if opens is None:
        return [*obstacles, Reason("evidence_unreadable", "its open count could not be read")]
    # Any of these opens may be that of a process that could not be read: how many the others have
    # does not tell, since processes that were forked share one.
    if opens > 0 and state.openers.doubt:
        obstacles.append(Reason("evidence_unreadable", state.openers.doubt))
    everyone = openers_of(state, device)
    openers = [opener for opener in everyone if not opener.udev]
    # udev, which may hang on a map that queues, only looked at the device. The flush waits until it
    # has closed it.
    unexplained = opens - sum(opener.opens for opener in everyone if opener.udev)
    # A process that writes, like a virtual machine or a database, loses that when its I/O fails. It
    # may also go on afterwards and keep the map open.
    living = [opener.describe() for opener in openers if opener.writes or not opener.hung]
    if living:
        obstacles.append(Reason("in_use_open", f"opened by {', '.join(living)}"))
    elif unexplained > 0 and not obstacles and not options.fail_hung_readers:
        obstacles.append(_held_open(unexplained, openers))
    return obstacles


def _held_open(times: int, openers: list[Opener]) -> Reason:
    who = ", ".join(opener.describe() for opener in openers) or "a process that /proc does not name"
    return Reason(
        "in_use_open",
        f"open {times} times by {who}: set fail_hung_readers to fail that I/O and free the map",
    )


def _opens_without_holders(state: ResidualState, owners: list[DmDevice]) -> int | None:
    """How often these devices are open, besides by the devices on top of them; None if unknown."""
    total = 0
    for owner in owners:
        count = state.open_counts.get(owner.dev)
        if count is None:
            return None
        # Each device on top has the one below open once (drivers/md/dm.c open_table_device).
        total += count - len(owner.holders)
    return total


def _holder_obstacles(
    state: ResidualState, device: DmDevice, parts: list[DmDevice]
) -> list[Reason]:
    """Devices on top of the map, such as LVM volumes or a RAID, that are no partition maps."""
    obstacles = []
    for owner in (device, *parts):
        for holder in owner.holders:
            above = state.last.dm.get(holder)
            if above is None or above not in parts:
                # The prefix of a device-mapper UUID names its owner: LVM-, CRYPT-, part1-mpath-.
                kind = f" ({above.name}, {above.uuid.partition('-')[0]})" if above else ""
                obstacles.append(Reason("in_use_held", f"held by {holder}{kind}"))
    return obstacles


def plain_disk_obstacles(
    state: ResidualState, disk: Disk, judgements: list[Judgement]
) -> list[Reason]:
    """Why a disk in no map may not be deleted."""
    obstacles = path_obstacles(state, disk.name, judgements)
    # The kernel gives the name of a removed disk to a new one.
    if any(seen.disks.get(disk.name) != disk for seen in state.observations):
        obstacles.append(Reason("device_changing", "the disk changed while it was observed"))
    return [
        *obstacles,
        *(Reason("in_use_held", f"held by {holder}") for holder in disk.holders),
        *state.uses.get(disk.name, []),
    ]
