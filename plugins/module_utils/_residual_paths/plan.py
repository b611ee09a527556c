# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Residual multipath maps and SCSI disks (STOR-01, -02, -03): which of them may be removed.

cases.py judges each map and disk. Here they are grouped, limited to the scope, and refused where
so much of an array is broken that it may be an outage. Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Callable

from .._core.codes import Reason
from .._core.engine import Finding, Plan
from .._core.guards import is_most, limit_repairs, majority
from .._core.untrusted import few
from .actions import flushed_maps, path_action, paths_action, removed_paths, scan_actions
from .arrays import Arrays, find_arrays, merged
from .cases import judge_map, judge_plain_disk
from .model import (
    GONE,
    OTHER,
    TWIN,
    UNKNOWN,
    PathsSubject,
    PathSubject,
    ResidualCase,
    ResidualOptions,
    ResidualState,
)
from .scans import claims, mixtures


def not_applicable(state: ResidualState) -> dict[str, str]:
    """Controls of a node without maps, and without SCSI disks. The scope does not matter."""
    last, absent = state.last, {}
    if not last.maps:
        absent["STOR-01"] = "there is no multipath map"
    if not last.plain_disks:
        absent["STOR-03"] = "there is no SCSI disk that is in no multipath map"
    # A path of a map is one of the disks, unless it is no SCSI disk.
    if not last.maps and not last.disks:
        absent["STOR-02"] = "there is neither a multipath map nor a SCSI disk"
    return absent


def not_assessed(state: ResidualState) -> dict[str, Reason]:
    """The control of maps, where there is no program to ask multipathd with."""
    maps, daemon = state.last.maps, state.last.daemon
    # The disks are asked without it, so STOR-02 is assessed. What stays open is whether any daemon
    # makes a map fail over. One that is asked and does not answer makes none do so.
    if not maps or not daemon.not_asked:
        return {}
    text = (
        f"{daemon.problem}. So whether the {len(maps)} multipath maps fail over is not known: "
        "see where their multipathd runs. What their disks answer was assessed"
    )
    return {"STOR-01": Reason("evidence_unreadable", text)}


def plan(state: ResidualState, options: ResidualOptions, repairing: bool = True) -> Plan:
    """A finding for everything in scope that does not serve its LUN, with its repair if that is
    proven and allowed.

    ``repairing``: it is a plan to repair. So a daemon that cannot be asked is refused.
    """
    maps = [*filter(None, (judge_map(state, one, options) for one in state.last.maps))]
    disks = [*filter(None, (judge_plain_disk(state, one) for one in state.last.plain_disks))]
    # Both are about whole arrays, so the scope does not matter.
    arrays = find_arrays(state.observations)
    outages = {} if options.accept_majority else _outages(state, arrays, maps, disks)
    hasty = _too_hasty(state)
    # An audit tells it by not_assessed.
    findings = _daemon_finding(state) if repairing or not state.last.daemon.not_asked else []
    # By id() of a finding: as how many repairs it counts (each map, and each disk in no map), and
    # which arrays it is about.
    sizes: dict[int, int] = {}
    owners: dict[int, tuple[str, ...]] = {}
    for group in group_cases([*maps, *disks], arrays):
        # A group is repaired as a whole or not at all.
        left_out = [case.finding.name for case in group if not _in_scope(case, state, options)]
        if len(left_out) == len(group):
            continue
        whose = sorted(set().union(*(_arrays_of(arrays, case) for case in group)))
        against = [reason for array in whose for reason in outages.get(array, [])] + hasty
        finding = _settled(state, arrays, group, against, left_out)
        finding.owner = f"array {few(arrays.of_server(whose))}"
        findings.append(finding)
        sizes[id(finding)], owners[id(finding)] = len(group), tuple(whose)
    wanted = Plan(findings, _turns(owners, arrays))
    # Limited after the scope, so that findings out of scope use up nothing.
    repairs = [finding for finding in wanted.findings if finding.repair]
    limit_repairs(repairs, options.max_repairs, lambda one: sizes[id(one)])
    if options.rescan_targets:
        _add_scans(state, arrays, wanted)
    return wanted


def _turns(
    owners: dict[int, tuple[str, ...]], arrays: Arrays
) -> list[Callable[[Finding], Hashable]]:
    """Whose turn a repair waits for. ``owners``: the arrays, by id()."""

    # A tenant's own array would use up the limit, and the time. So would a server: it may look like
    # any number of arrays.
    def array(finding: Finding) -> Hashable:
        return owners[id(finding)] if finding.repair else id(finding)

    def server(finding: Finding) -> Hashable:
        return arrays.of_server(owners[id(finding)]) if finding.repair else id(finding)

    return [array, server]


def repaired_arrays(state: ResidualState, finding: Finding) -> set[str]:
    """The arrays that a repair is about: those of its paths. None of a map without paths, since its
    name does not tell it for certain.
    """
    arrays = find_arrays(state.observations)
    whose = arrays.of(_targets_of(finding))
    maps = [subject.device for subject in flushed_maps(finding) if subject.device.slaves]
    return whose.union(*(arrays.of_map(state.last, device) for device in maps)) or {""}


def _settled(
    state: ResidualState,
    arrays: Arrays,
    group: list[ResidualCase],
    against: list[Reason],
    left_out: list[str],
) -> Finding:
    """The finding about a group. ``left_out``: what of it is out of scope."""
    finding = settle(state, arrays, group)
    if finding.repair and (against or left_out):
        finding.refuse(*(against or [_halved(left_out)]))
    return finding


def _halved(left_out: list[str]) -> Reason:
    return Reason(
        "outside_scope",
        f"{', '.join(left_out)} would have to be repaired with it, and the scope leaves that out",
    )


def group_cases(cases: list[ResidualCase], arrays: Arrays) -> list[list[ResidualCase]]:
    """Cases that can only be repaired together, each group sorted by name.

    The scan after one repair adds a disk of a LUN whose map still has wrong paths. So all LUN
    numbers that were swapped are one group: two of them or a longer cycle, of all paths or some.
    All of a group are of one array.
    """
    # multipathd adds a disk to the map of its WWID without a look at what the other paths read
    # (multipath-tools, multipathd/main.c ev_add_path).
    groups: list[list[ResidualCase]] = []
    for case in cases:
        linked = [group for group in groups if any(_tied(arrays, case, other) for other in group)]
        # Groups that this case ties become one.
        groups = [group for group in groups if not any(group is one for one in linked)]
        groups.append([*(member for group in linked for member in group), case])
    return [sorted(group, key=lambda case: case.finding.name) for group in groups]


def _tied(arrays: Arrays, one: ResidualCase, another: ResidualCase) -> bool:
    """Whether the scan after the repair of one adds a disk that would join the other."""
    # The paths of that one would be mixed: some that serve the LUN, some that do not. One without
    # any path is not mixed by it: it waits for just that disk.
    return _is_brought(arrays, another, one.paths) or _is_brought(arrays, one, another.paths)


def _is_brought(arrays: Arrays, case: ResidualCase, paths: Iterable[PathSubject]) -> bool:
    """Whether the scan after the removal of ``paths`` brings the LUN of a case, from its array.

    What a LUN of another array says of itself ties nothing to it (scans.claims).
    """
    found = {path.disk.target for path in paths if case.wwid in path.judgement.wwids}
    return bool(found) and not arrays.of(_targets_in(case)).isdisjoint(arrays.of(found))


def settle(state: ResidualState, arrays: Arrays, group: list[ResidualCase]) -> Finding:
    """The finding about cases that belong together, with its repair if each of them allows it.

    The repair frees all paths, deletes all, and only then scans. ``arrays``: of ``state``, at
    least.
    """
    subject = PathsSubject(tuple(path for case in group for path in case.paths))
    obstacles = _obstacles(arrays, group, subject)
    finding = group[0].finding if len(group) == 1 else _swap_finding(state, group)
    # A report, as about a device that is no SCSI disk.
    if finding.verdict != "repair":
        return finding
    # Also other maps than those of the group must not be mixed by its scans.
    obstacles += mixtures(state, subject.brings, subject.leaving)
    obstacles += claims(state.last, arrays, subject)
    if obstacles:
        finding.refuse(*obstacles)
        return finding
    finding.reason = f"proven in {len(state.observations)} observations, unused"
    # All maps are flushed before a path goes: a path in use would keep its number.
    finding.repair = [action for case in group for action in case.release]
    finding.repair += (
        [path_action(path) for path in subject.paths]
        if len(group) == 1
        else [paths_action(subject)]
    )
    return finding


def _obstacles(arrays: Arrays, group: list[ResidualCase], subject: PathsSubject) -> list[Reason]:
    """Those of all cases; in a group, each with the name of its map or disk in front."""
    obstacles = []
    for case in group:
        # Of a single case the finding's own name says it.
        prefix = f"{case.finding.name}: " if len(group) > 1 else ""
        # Paths that serve the LUN do not matter if its map is made again from them.
        brought = _is_brought(arrays, case, subject.paths)
        against = [*case.obstacles, *(() if brought else case.serving)]
        obstacles += [obstacle.with_text(f"{prefix}{obstacle}") for obstacle in against]
    return obstacles


def _swap_finding(state: ResidualState, group: list[ResidualCase]) -> Finding:
    """One finding for maps and disks whose LUN numbers were swapped.

    Each path of the evidence names its map or disk in ``of``.
    """
    first = group[0].finding
    # What is the same for all, or is shown for all together below.
    single = {"paths", "vendor", "product", "observed"}
    return Finding(
        control="STOR-02",
        # Each map reads and writes the other's volume.
        severity="critical",
        kind="swapped LUNs",
        name=", ".join(case.finding.name for case in group),
        node=state.node,
        summary=f"LUN numbers were swapped: {'; '.join(case.finding.summary for case in group)}",
        verdict="repair",
        evidence={
            "wwids": [case.wwid for case in group],
            "vendor": first.evidence["vendor"],
            "product": first.evidence["product"],
            "volumes": [
                {
                    "name": case.finding.name,
                    **{
                        key: value
                        for key, value in case.finding.evidence.items()
                        if key not in single
                    },
                }
                for case in group
            ],
            "paths": [
                {"of": case.finding.name, **path}
                for case in group
                for path in case.finding.evidence["paths"]
            ],
            "observed": first.evidence["observed"],
        },
        named=any(case.finding.named for case in group),
    )


def _add_scans(state: ResidualState, arrays: Arrays, wanted: Plan) -> None:
    """Scan the targets of all removed paths after the last repair of their array; refuse the
    repairs whose scan could mix a map.
    """
    risky = True
    while risky:
        repaired = [finding for finding in wanted.findings if finding.repair]
        paths = [path for one in repaired for path in removed_paths(one).paths]
        leaving = PathsSubject(tuple(paths)).leaving
        risky = False
        for finding in repaired:
            # A scan of a whole target may find any LUN.
            risks = mixtures(state, None, leaving, _targets_of(finding))
            if risks:
                finding.refuse(Reason("scan_unsafe", "rescan_targets is set"), *risks)
                # The paths of this one stay, with which another scan may mix a map.
                risky = True
    # Arrays that may have a volume in common are scanned together. Others have no part in it: their
    # repairs may fail.
    near = {id(finding): arrays.near(_targets_of(finding)) for finding in repaired}
    for group in merged(near.values()):
        members = [finding for finding in repaired if near[id(finding)] & group]
        removed = [path.disk for one in members for path in removed_paths(one).paths]
        members[-1].repair += scan_actions(state, removed)


def _targets_of(finding: Finding) -> set[str]:
    """The targets of the paths that the repair of a finding removes."""
    return {path.disk.target for path in removed_paths(finding).paths}


def _arrays_of(arrays: Arrays, case: ResidualCase) -> set[str]:
    """The arrays that a case is about; the whole node (an empty name) if nothing tells them."""
    paths = case.finding.evidence["paths"]
    return (arrays.of(_targets_in(case)) if paths else arrays.made_by(case.wwid)) or {""}


def _targets_in(case: ResidualCase) -> set[str]:
    """The targets of all paths of a case, also of those that are not removed."""
    return {path["hctl"].rpartition(":")[0] for path in case.finding.evidence["paths"]}


def _outages(
    state: ResidualState, arrays: Arrays, maps: list[ResidualCase], disks: list[ResidualCase]
) -> dict[str, list[Reason]]:
    """By array, why nothing of it is repaired: more than half of its maps, or of a target's LUNs,
    are broken.

    It holds for small numbers, too: one of one is a majority. By an empty name, the same of the
    whole node, for maps without paths of which nothing tells the array.
    """
    # Most disks in no map are what is left of a removed map, so among themselves they would nearly
    # always be a majority. They are counted among all LUNs of their target: if that serves most of
    # them, it is no outage. LUNs are counted and not disks, since each LUN has several.
    dead = [
        case
        for case in maps
        if {path["is"] for path in case.finding.evidence["paths"]} <= {GONE, OTHER, TWIN, UNKNOWN}
    ]
    counts = [
        *_counts_by_array(state, arrays, {case.wwid for case in dead}),
        *_counts_by_target(state, arrays, disks, dead),
    ]
    found: dict[str, list[Reason]] = {}
    for array, number, total, what in counts:
        if is_most(number, total):
            reason = majority(number, total, what, "they were all detached")
            found.setdefault(array, []).append(reason)
    return found


def _counts_by_array(
    state: ResidualState, arrays: Arrays, dead: set[str]
) -> list[tuple[str, int, int, str]]:
    """(array, dead maps, all maps, what they are) of each array, and of the whole node."""
    owners = [(device, arrays.of_map(state.last, device)) for device in state.last.maps]
    counts = [("", len(dead), len(owners), "maps")]
    several = len(set().union(*(whose for _device, whose in owners))) > 1
    for array in arrays.makers:
        ours = {
            device.wwid
            for device, whose in owners
            # Maps of NVMe and the like are of no tenant's server, and count with each array.
            if array in whose or (device.slaves and not whose)
        }
        targets = arrays.targets(array)
        more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
        what = f"maps of {', '.join(targets[:3])}{more}" if several else "maps"
        counts.append((array, len(dead & ours), len(ours), what))
    return counts


def _counts_by_target(
    state: ResidualState, arrays: Arrays, disks: list[ResidualCase], dead: list[ResidualCase]
) -> list[tuple[str, int, int, str]]:
    """(array, broken LUNs, all LUNs, what they are) of each target that has a broken disk in no
    map.
    """
    # By disk: another target may have a broken LUN of the same name.
    broken = {path["disk"] for case in [*disks, *dead] for path in case.finding.evidence["paths"]}
    counts: list[tuple[str, int, int, str]] = []
    # Only targets with a broken disk can be in an outage.
    for target in sorted({path.disk.target for case in disks for path in case.paths}):
        here = [disk for disk in state.last.disks.values() if disk.target == target]
        luns = {disk.wwid or disk.name for disk in here}
        lost = {disk.wwid or disk.name for disk in here if disk.name in broken}
        what = f"LUNs of target {target}"
        counts += [(array, len(lost), len(luns), what) for array in (*arrays.of([target]), "")]
    return counts


def _too_hasty(state: ResidualState) -> list[Reason]:
    """Why the observations were too few or too short to prove anything; empty if they do."""
    count = len(state.observations)
    # A transport may have failed for just that moment.
    if count < 2:
        return [
            Reason(
                "observation_too_short",
                "observation too short: a single observation proves "
                "nothing; set observations to 2 or more",
            )
        ]
    # One check of every path by multipathd lies in between, so that a short failure has shown.
    if state.span <= state.checker_interval:
        return [
            Reason(
                "observation_too_short",
                f"observation too short: {state.span:.1f} s, while multipathd checks a path every "
                f"{state.checker_interval:g} s; set observation_seconds above "
                f"{state.checker_interval:g}",
            )
        ]
    return []


def _in_scope(case: ResidualCase, state: ResidualState, options: ResidualOptions) -> bool:
    """Whether a case is in the user's scope. Marks its finding as named if the scope names it."""
    finding, evidence = case.finding, case.finding.evidence
    # Aliases are resolved by the bindings file, too, which has maps that are gone.
    named = set(options.wwids) | {
        state.aliases[name] for name in options.maps if name in state.aliases
    }
    finding.named = case.wwid in named or (
        finding.kind == "multipath map" and finding.name in options.maps
    )
    if (options.maps or options.wwids) and not finding.named:
        return False
    return all(
        # multipath.conf compares with patterns; here a name that is only nearly the same is another
        # array's.
        not wanted or wanted.strip().lower() == evidence[key].lower()
        for key, wanted in (("vendor", options.vendor), ("product", options.product))
    )


def unmatched(state: ResidualState, options: ResidualOptions) -> list[str]:
    """The parts of the scope that nothing on the node has, as after a typing error."""
    last = state.last
    disks = last.disks.values()
    wwids = {device.wwid for device in last.maps} | {disk.wwid for disk in disks}
    wwids |= {wwid for answer in last.answers.values() for wwid in answer.wwids}
    maps = {device.name for device in last.maps}
    maps |= {name for name, wwid in state.aliases.items() if wwid in wwids}
    vendors = {disk.vendor.strip().lower() for disk in disks}
    products = {disk.model.strip().lower() for disk in disks}
    asked = [
        *(("multipath map", name, name in maps) for name in options.maps),
        *(("map or disk with the WWID", wwid, wwid in wwids) for wwid in options.wwids),
        ("disk of vendor", options.vendor, options.vendor.strip().lower() in vendors),
        ("disk of product", options.product, options.product.strip().lower() in products),
    ]
    return [f"there is no {what} {wanted}" for what, wanted, known in asked if wanted and not known]


def _daemon_finding(state: ResidualState) -> list[Finding]:
    """A finding about the node, if it has maps and multipathd does not answer.

    Then no path fails over any more, and none can be judged.
    """
    # Without maps, multipathd need not run at all.
    maps = state.last.maps
    if not maps or not state.last.daemon.problem:
        return []
    finding = Finding(
        control="STOR-01",
        severity="major",
        kind="node",
        name=state.node,
        node=state.node,
        summary=f"{len(maps)} multipath maps and no answer from multipathd",
        evidence={"maps": sorted(device.name for device in maps)},
    )
    finding.refuse(
        Reason(
            "multipathd_unusable",
            f"{state.last.daemon.problem}. Without it no map is flushed: see "
            + ("where it runs" if state.last.daemon.not_asked else "'systemctl status multipathd'"),
        )
    )
    return [finding]
