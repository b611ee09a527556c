# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which maps a scan for new disks could mix, and which were mixed. Pure: no I/O here.

A map is mixed if its paths lead to different volumes: then writes go to either of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .._core.codes import Reason
from .._node.block import Disk, DmDevice
from .arrays import Arrays, find_arrays
from .judging import history_of, is_broken
from .model import FOREIGN, OTHER, WHOLE, Judgement, Observation, PathsSubject, ResidualState


def mixtures(
    state: ResidualState, wwids: set[str] | None, leaving: set[str], targets: Collection[str] = ()
) -> list[Reason]:
    """Why disks of these WWIDs (None: of any that ``targets`` may have) must not be scanned for:
    one would join a path that is not proven to serve its LUN.

    ``leaving``: names of the disks that are gone by then. Every disk that counts must have been
    asked in some observation.
    """
    last = state.last
    found = []
    far = set() if wwids is not None else _far(state, targets)
    for name, wwid, owner in _joinable(last, wwids, {*leaving, *far}):
        judgement = history_of(state, name, wwid)[-1]
        # A scan for any LUN concerns a disk in no map only if the array may have taken it away.
        disk = last.disks.get(name)
        # Without WWIDs, a healthy local disk would otherwise forbid every scan.
        matters = owner or wwids is not None or (disk and is_broken(judgement, disk))
        if matters and judgement.kind not in {*WHOLE, FOREIGN}:
            where = f"{name} in {owner}" if owner else name
            found.append(
                Reason(
                    "scan_unsafe",
                    f"a scan could add a disk of {wwid} to {where}, which is not proven to serve "
                    f"it ({judgement.why})",
                )
            )
    return found


def _far(state: ResidualState, targets: Collection[str]) -> set[str]:
    """Names of the disks of other arrays, none of which has a volume that these targets have."""
    arrays = find_arrays(state.observations)
    near = arrays.near(targets)
    return {
        disk.name for disk in state.last.disks.values() if arrays.by_target[disk.target] not in near
    }


def claims(last: Observation, arrays: Arrays, subject: PathsSubject) -> list[Reason]:
    """Why the LUNs that took the numbers of these paths must not be scanned for: one would join the
    map of another array's volume, by nothing but what it says of itself.

    ``arrays``: of this observation, at least.
    """
    # Whoever runs an iSCSI server gives its LUNs any name. What the other paths of that map answer
    # does not matter: they serve the volume, and this LUN does not.
    found = []
    for path in subject.paths:
        for wwid in path.judgement.wwids:
            whose = _whose(last, arrays, wwid)
            if whose is None:
                continue
            if not whose and not arrays.only_one(path.disk.target):
                found.append(
                    Reason(
                        "scan_unsafe",
                        f"{path.disk.name} answers as {wwid}, and no path of that map is left that "
                        "tells whether it is of the same array",
                    )
                )
            elif whose and not arrays.may_share(whose, arrays.of([path.disk.target])):
                found.append(
                    Reason(
                        "scan_unsafe",
                        f"{path.disk.name} answers as {wwid}, which is a volume of another array",
                    )
                )
    return found


def _whose(last: Observation, arrays: Arrays, wwid: str) -> set[str] | None:
    """The arrays of a volume, by the paths of its map or the disks that were found as it.

    None: the node does not know it. Empty: it has a map, and nothing tells whose.
    """
    maps = [device for device in last.maps if device.wwid == wwid]
    paths = [last.disks[name] for one in maps for name in one.slaves if name in last.disks]
    # A disk in no map that was found as this volume did not become a path of its map, or there is
    # none.
    paths = paths or [disk for disk in last.plain_disks if disk.wwid == wwid]
    return arrays.of(disk.target for disk in paths) if maps or paths else None


def _joinable(
    last: Observation, wwids: set[str] | None, leaving: set[str]
) -> list[tuple[str, str, str]]:
    """(name, WWID, its map): what a new disk of one of the WWIDs would be in one map with."""
    paths = [(name, device.wwid, device.name) for device in last.maps for name in device.slaves]
    # A second disk of the same WWID makes a map of a disk that is in none (multipath-tools,
    # multipathd/main.c ev_add_path; find_multipaths in multipath.conf(5)).
    paths += [(disk.name, disk.wwid, "") for disk in last.plain_disks if disk.wwid]
    return [
        (name, wwid, owner)
        for name, wwid, owner in paths
        if name not in leaving and (wwids is None or wwid in wwids)
    ]


def mixed(
    before: ResidualState, now: ResidualState, targets: Collection[str], gained_only: bool = False
) -> list[str]:
    """The maps that a repair may have mixed, as sentences.

    Such a map reads another volume, or has gained a path beside one that does not serve its LUN.
    What was so ``before`` does not count. ``targets``: those that were scanned, or of which a path
    was removed. ``gained_only``: what only answers otherwise by now does not count either.
    """
    known = _known_kinds(before)
    found = []
    # A map that a scan has mixed has a path on one of its targets by now, and so is of its array.
    arrays = find_arrays((*before.observations, *now.observations))
    ours = arrays.of(targets)
    for device in now.last.maps:
        paths = [now.last.disks[name] for name in device.slaves if name in now.last.disks]
        # A map of another array may become anything meanwhile, as its owner likes.
        if ours.isdisjoint(arrays.of(disk.target for disk in paths)):
            continue
        # A path that was never asked counts as odd, too: it is not proven.
        odd = _odd_paths(now, device, paths)
        gained = [disk.name for disk in paths if _key(device, disk) not in known]
        turned = [] if gained_only else _turned(device, odd, known)
        # A map that was mixed before is a finding of its own, not the result of this repair.
        if odd and (gained or turned):
            why = "; ".join(f"{disk.name}: {judgement.why}" for disk, judgement in odd.items())
            found.append(
                f"{device.name} is mixed since, by "
                f"{', '.join(dict.fromkeys([*gained, *turned]))}: {why}"
            )
    return found


def _turned(
    device: DmDevice, odd: Mapping[Disk, Judgement], known: Mapping[tuple[str, str, str], str]
) -> list[str]:
    """The paths that serve another volume, and did not before."""
    return [
        disk.name
        for disk, judgement in odd.items()
        if judgement.kind == OTHER and known.get(_key(device, disk)) != OTHER
    ]


def _odd_paths(now: ResidualState, device: DmDevice, paths: list[Disk]) -> dict[Disk, Judgement]:
    """The paths that are not proven to serve the map's LUN."""
    judged = {disk: history_of(now, disk.name, device.wwid)[-1] for disk in paths}
    return {disk: judgement for disk, judgement in judged.items() if judgement.kind not in WHOLE}


def _known_kinds(before: ResidualState) -> dict[tuple[str, str, str], str]:
    """What each path of a map was, by what identifies it."""
    last = before.last
    return {
        _key(device, last.disks[name]): history_of(before, name, device.wwid)[-1].kind
        for device in last.maps
        for name in device.slaves
        if name in last.disks
    }


def _key(device: DmDevice, disk: Disk) -> tuple[str, str, str]:
    # Neither the map's nor the disk's name: the kernel gives names of removed devices to new ones.
    return device.wwid, disk.hctl, disk.wwid
