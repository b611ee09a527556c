# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Residual multipath maps and SCSI disks (STOR-01, -02, -03): what they are, and whether they may
go. Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import scsi
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import (
    Disk,
    DmDevice,
    Transport,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.multipath import Daemon
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.usage import Opener

RUNBOOK = "storage_ops.runbooks.clean_residual_paths"

# What a disk turned out to be.
SERVING = "serving"  # the LUN it was found as
GONE = "gone"  # the target serves no such LUN any more
OTHER = "other"  # the target serves another LUN under this number
TWIN = "twin"  # another LUN that has the same WWID
STANDBY = "standby"  # the LUN it was found as, through a controller that is not the one to use now
UNIDENTIFIED = "unidentified"  # it answers, but names itself in no comparable way
FOREIGN = "foreign"  # not a SCSI disk, so it cannot be asked
UNKNOWN = "unknown"  # no answer that proves anything

# What a path may be on a map that works.
_FINE = {SERVING, STANDBY, UNIDENTIFIED, FOREIGN}
# What a path may be that a disk of the map's own LUN can join: what it is, is proven.
_WHOLE = {SERVING, STANDBY}
# Kinds of names that stay with a volume: T10 vendor identification, EUI-64, NAA.
_LASTING_KINDS = ("1", "2", "3")
# NOT READY, asymmetric access: state transition, standby, unavailable (SPC-5)
_STANDBY_SENSES = ("02/04/0a", "02/04/0b", "02/04/0c")


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of multipath_residual for units and
    defaults.
    """

    maps: tuple[str, ...] = ()
    wwids: tuple[str, ...] = ()
    vendor: str = ""
    product: str = ""
    observations: int = 3
    observation_seconds: float = 25.0
    probe_timeout: float = 5.0
    max_repairs: int = 10
    fail_hung_readers: bool = False
    flush_empty_maps: bool = False
    accept_majority: bool = False
    rescan_targets: bool = False

    def scope(self) -> list[tuple[str, tuple[str, ...] | str]]:
        """What the user narrowed the run down to."""
        return [
            ("maps", self.maps),
            ("WWIDs", self.wwids),
            ("vendor", self.vendor),
            ("product", self.product),
        ]


@dataclass(frozen=True)
class Observation:
    """The node at one moment. ``answers`` and ``luns`` hold what was asked: every disk first,
    suspects only later.

    ``at``: monotonic seconds. ``answers``: by disk name. ``luns``: by target (``6:0:0``), what it
    says it serves.
    """

    at: float
    disks: dict[str, Disk]
    dm: dict[str, DmDevice]
    transports: dict[str, Transport]
    daemon: Daemon
    answers: dict[str, Answer]
    luns: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def maps(self) -> list[DmDevice]:
        """Multipath maps."""
        return [device for device in self.dm.values() if device.is_multipath]

    @property
    def plain_disks(self) -> list[Disk]:
        """Disks that are a path of no map."""
        taken = {slave for device in self.maps for slave in device.slaves}
        return [disk for disk in self.disks.values() if disk.name not in taken]


@dataclass(frozen=True)
class State:
    """Everything the plan is made from.

    ``uses``: by kernel name of a map or disk, why it is in use, in sentences.
    """

    node: str
    observations: tuple[Observation, ...]
    checker_interval: float = 0.0
    queueing: dict[str, bool] = field(default_factory=dict)
    open_counts: dict[str, int] = field(default_factory=dict)
    openers: dict[str, list[Opener]] = field(default_factory=dict)
    uses: dict[str, list[Reason]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> Observation:
        """The newest observation."""
        return self.observations[-1]

    @property
    def span(self) -> float:
        """Seconds from the first observation to the last."""
        return self.last.at - self.observations[0].at


@dataclass(frozen=True)
class Judgement:
    """What a disk turned out to be, and by what sign.

    ``wwids``: the names of the other LUN, for OTHER. ``code``: of it as a reason to refuse.
    """

    kind: str
    why: str
    wwids: tuple[str, ...] = ()
    code: str = "path_unproven"

    @property
    def wwid(self) -> str:
        """The other LUN's name, for the eye."""
        return ", ".join(self.wwids)

    @property
    def reason(self) -> Reason:
        """It, as a reason to refuse."""
        return Reason(self.code, self.why)

    def same_as(self, other: Judgement) -> bool:
        """It says the same of the disk, whatever the words."""
        return (self.kind, self.wwids) == (other.kind, other.wwids)


@dataclass(frozen=True)
class PathSubject:
    """A path that goes, as it was when the plan was made; ``plain``: it was a path of no map."""

    disk: Disk
    expected: str
    judgement: Judgement
    plain: bool


@dataclass(frozen=True)
class PathsSubject:
    """The paths that one action removes: all of them before the first scan for what took their
    numbers.
    """

    paths: tuple[PathSubject, ...]

    @property
    def brings(self) -> set[str]:
        """WWIDs of the LUNs that took the numbers, which the scan brings in."""
        return {wwid for path in self.paths for wwid in path.judgement.wwids}

    @property
    def leaving(self) -> set[str]:
        """Names of the disks."""
        return {path.disk.name for path in self.paths}


@dataclass(frozen=True)
class TargetSubject:
    """The target an action scans; ``known``: SCSI address and WWID of its disks, as it was when the
    plan was made.
    """

    target: str
    known: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class MapSubject:
    """The map an action changes, and what its paths were, as it was when the plan was made."""

    device: DmDevice
    judgements: dict[str, Judgement]

    @property
    def kept(self) -> set[str]:
        """Names of the paths that serve its LUN, and so form the map again."""
        return {name for name, judgement in self.judgements.items() if judgement.kind in _WHOLE}


@dataclass
class Case:
    """A map, or a disk in no map, that does not wholly serve its LUN: what was found, what forbids
    a repair, and what would be one.

    ``wwid``: of the LUN that it was found as. ``obstacles``: why it may not be repaired;
    ``serving``: further ones, which count unless the repair brings its own LUN back. ``release``:
    actions that free the paths. ``paths``: those that go then.
    """

    finding: Finding
    wwid: str
    obstacles: list[Reason]
    serving: list[Reason] = field(default_factory=list)
    release: list[Action] = field(default_factory=list)
    paths: tuple[PathSubject, ...] = ()


def judge(disk: Disk | None, answer: Answer | None, expected: str) -> Judgement:
    """Decide what one answer proves about a disk that was found as the LUN ``expected`` (a WWID as
    multipath spells it).
    """
    if disk is None:
        return Judgement(FOREIGN, "not a SCSI disk, so it cannot be asked")
    if answer is None:
        return Judgement(UNKNOWN, "not asked")
    if disk.transport is not None and not disk.transport.up:
        return Judgement(
            UNKNOWN,
            f"transport outage: {disk.transport.describe()}, device {disk.state}",
            code="transport_outage",
        )
    if disk.state == "offline":
        # Set by the error handler (scsi_eh_offline_sdevs in drivers/scsi/scsi_error.c), and taken
        # back by no one.
        remedy = f"when the array is in order, echo running > /sys/block/{disk.name}/device/state"
        return Judgement(
            UNKNOWN,
            f"the kernel set it offline after errors, and leaves it so: {remedy}",
            code="transport_outage",
        )
    if disk.state != "running":
        said = f"transport outage: device {disk.state}"
        return Judgement(UNKNOWN, said, code="transport_outage")
    if answer.problem:
        return Judgement(UNKNOWN, answer.problem)
    said = answer.describe()
    if "DID_" in answer.ready or "DID_" in answer.inquiry or "DID_" in answer.vpd:
        return Judgement(UNKNOWN, f"transport error: {said}", code="transport_outage")
    unsupported = answer.ready == scsi.LUN_NOT_SUPPORTED
    absent = answer.qualifier in (1, 3)
    if answer.inquiry == scsi.LUN_NOT_SUPPORTED or absent:
        # One odd answer does not decide. LUN 0 is special: the target itself answers TEST UNIT
        # READY there, though no device is.
        agreed = unsupported or (absent and answer.ready == "good")
        return Judgement(
            GONE if agreed else UNKNOWN, said if agreed else f"contradictory answers: {said}"
        )
    if answer.inquiry != "good" or answer.qualifier != 0:
        return Judgement(UNKNOWN, f"no sign that the LUN is gone: {said}")
    if answer.vpd != "good":
        proven = answer.ready == "good"
        return Judgement(
            UNIDENTIFIED if proven else UNKNOWN,
            f"its identity is unproven, VPD 0x83 {answer.vpd}: {said}",
        )
    if unsupported:
        return Judgement(UNKNOWN, f"contradictory answers: {said}")
    if expected not in answer.wwids:
        alike = tuple(
            sorted(wwid for wwid in scsi.world_wide(answer.wwids) if wwid[0] == expected[:1])
        )
        if not alike:
            return Judgement(
                UNIDENTIFIED,
                f"its names cannot be compared with {expected or 'an unknown WWID'}: {said}",
            )
        return Judgement(OTHER, f"answers as another LUN: {said}", alike)
    changed = _other_names(disk.names, answer.wwids)
    if changed:
        return Judgement(
            TWIN,
            f"answers with the same WWID, but as {changed}, which "
            f"is another volume or a copy: {said}",
            code="identity_changed",
        )
    if answer.ready in (
        "good",
        "status 0x18",
    ):  # 0x18: reserved by another host, and very much alive
        return Judgement(SERVING, said, code="path_serves_lun")
    return Judgement(
        STANDBY if answer.ready in _STANDBY_SENSES else UNKNOWN,
        f"no sign that the LUN is gone: {said}",
    )


def _other_names(known: tuple[str, ...], said: tuple[str, ...]) -> str:
    """The names that a disk has in place of those it was found with; empty if of no kind all of
    them have changed.

    Kinds are the designator types of SPC-5. One that only one side has proves nothing, and a vendor
    specific name may be what people call the volume on the array. A T10 name has the vendor and
    mostly the serial number in it.
    """
    for kind in _LASTING_KINDS:
        before, now = ({name for name in names if name[0] == kind} for names in (known, said))
        if before and now and before.isdisjoint(now):
            return f"{', '.join(sorted(now))} and no longer {', '.join(sorted(before))}"
    return ""


def suspects(observation: Observation) -> set[str]:
    """Disks that have to be observed further: every one that does not plainly serve its LUN; all if
    a map has no path left.
    """
    found = set()
    for device in observation.maps:
        if not device.slaves:
            return set(observation.disks)
        kinds = {name: _judge(observation, name, device.wwid).kind for name in device.slaves}
        fine = _FINE if SERVING in kinds.values() else _FINE - {STANDBY}
        found |= {name for name, kind in kinds.items() if kind not in fine}
    for disk in observation.plain_disks:
        if _is_broken(_judge(observation, disk.name, disk.wwid), disk):
            found.add(disk.name)
    return found & set(observation.disks)


def undecided(observation: Observation) -> set[str]:
    """The suspects of which another look may prove something.

    A path that the kernel itself calls down proves nothing in this observation, and so never (see
    _path_obstacles): whatever the others answer later, the whole map is refused.
    """
    groups = [device.slaves for device in observation.maps]
    groups += [(disk.name,) for disk in observation.plain_disks]
    down = {disk.name for disk in observation.disks.values() if not disk.reachable}
    found = suspects(observation)
    return {name for group in groups if down.isdisjoint(group) for name in group if name in found}


def _judge(observation: Observation, name: str, expected: str) -> Judgement:
    return judge(observation.disks.get(name), observation.answers.get(name), expected)


def _is_broken(judgement: Judgement, disk: Disk) -> bool:
    """A disk in no map is our business when the array took it away, or may have: not when a local
    drive has a bad day.
    """
    return judgement.kind in (GONE, OTHER, TWIN) or (
        judgement.kind == UNKNOWN and disk.transport is not None
    )


def plan(state: State, options: Options) -> Plan:
    """Findings for everything in scope that does not serve its LUN, and the repairs that are proven
    and allowed.
    """
    maps = [
        case for device in state.last.maps for case in [judge_map(state, device, options)] if case
    ]
    disks = [
        case for disk in state.last.plain_disks for case in [judge_plain_disk(state, disk)] if case
    ]
    outage = [] if options.accept_majority else _outages(state, maps, disks)
    hurry = _too_hasty(state)
    findings, sizes = _daemon_finding(state), {}
    for group in group_cases([*maps, *disks]):
        left_out = [case.finding.name for case in group if not _in_scope(case, state, options)]
        if len(left_out) == len(group):
            continue
        finding = settle(state, group)
        if finding.repair and (outage or hurry):
            finding.refuse(*outage, *hurry)
        elif finding.repair and left_out:
            finding.refuse(
                Reason(
                    "outside_scope",
                    f"{', '.join(left_out)} would have to be repaired with "
                    "it, and the scope leaves that out",
                )
            )
        findings.append(finding)
        sizes[id(finding)] = len(group)
    wanted = Plan(findings)
    _limit(wanted, sizes, options)
    if options.rescan_targets:
        _add_scans(state, wanted)
    return wanted


def group_cases(cases: list[Case]) -> list[list[Case]]:
    """Cases that can only be repaired together: the scan after the one brings in a disk of the LUN
    that the other does not wholly serve.

    multipathd adds a disk to the map of its WWID without a look at what the other paths read
    (ev_add_path in multipathd/main.c). So the LUN numbers that were exchanged are one group, be it
    two or a longer cycle, and whether the numbers of all paths were or not.
    """
    groups: list[list[Case]] = []
    for case in cases:
        linked = [
            group
            for group in groups
            if any(_depends(case, other) or _depends(other, case) for other in group)
        ]
        groups = [group for group in groups if not any(group is one for one in linked)]
        groups.append([*(member for group in linked for member in group), case])
    return [sorted(group, key=lambda case: case.finding.name) for group in groups]


def _depends(one: Case, another: Case) -> bool:
    """What takes the numbers of the one would join the other.

    A map without any path waits for just that disk.
    """
    return another.wwid in PathsSubject(one.paths).brings and bool(
        another.finding.evidence["paths"]
    )


def settle(state: State, group: list[Case]) -> Finding:
    """The finding about cases that belong together, with its repair if each of them allows it: free
    all, delete all, then scan.
    """
    subject = PathsSubject(tuple(path for case in group for path in case.paths))
    obstacles = []
    for case in group:
        prefix = f"{case.finding.name}: " if len(group) > 1 else ""
        against = [*case.obstacles, *(() if case.wwid in subject.brings else case.serving)]
        obstacles += [obstacle.with_text(f"{prefix}{obstacle}") for obstacle in against]
    finding = group[0].finding if len(group) == 1 else _swap_finding(state, group)
    if finding.verdict != "repair":
        return finding
    obstacles += mixtures(state, subject.brings, subject.leaving)
    if obstacles:
        finding.refuse(*obstacles)
        return finding
    finding.reason = f"proven in {len(state.observations)} observations, unused"
    finding.repair = [action for case in group for action in case.release]
    finding.repair += (
        [_path_action(path) for path in subject.paths]
        if len(group) == 1
        else [_paths_action(subject)]
    )
    return finding


def _swap_finding(state: State, group: list[Case]) -> Finding:
    """One finding for maps and disks whose LUN numbers were exchanged; each path says
    whose it is.
    """
    first = group[0].finding
    single = {"paths", "vendor", "product", "observed"}
    return Finding(
        control="STOR-02",
        severity="critical",
        kind="swapped LUNs",
        name=", ".join(case.finding.name for case in group),
        node=state.node,
        summary=f"LUN numbers were exchanged: {'; '.join(case.finding.summary for case in group)}",
        verdict="repair",
        reason="",
        runbook=RUNBOOK,
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


def mixtures(state: State, wwids: set[str] | None, leaving: set[str]) -> list[Reason]:
    """Why no disk of these WWIDs (None: of any) may be scanned for: it would join a path that is
    not proven to serve its LUN.

    That is a path of the map of that WWID, or a disk in no map which multipathd would put into one
    with it. ``leaving``: names of the disks that are gone by then. Every disk that counts must have
    been asked, in some observation.
    """
    last = state.last
    paths = [(name, device.wwid, device.name) for device in last.maps for name in device.slaves]
    paths += [(disk.name, disk.wwid, "") for disk in last.plain_disks if disk.wwid]
    found = []
    for name, wwid, owner in paths:
        if name in leaving or not (wwids is None or wwid in wwids):
            continue
        judgement = _history(state, name, wwid)[-1]
        disk = last.disks.get(name)
        if judgement.kind not in {*_WHOLE, FOREIGN} and (
            owner or wwids is not None or (disk and _is_broken(judgement, disk))
        ):
            where = f"{name} in {owner}" if owner else name
            found.append(
                Reason(
                    "scan_unsafe",
                    f"a scan could add a disk of {wwid} to {where}, which is not proven to serve "
                    f"it ({judgement.why})",
                )
            )
    return found


def mixed(before: State, now: State) -> list[str]:
    """Maps that read more than one volume by now, or gained a path beside one that does not serve
    them; not what was so ``before``.
    """
    known = {
        (device.wwid, last.disks[name].hctl, last.disks[name].wwid): _history(
            before, name, device.wwid
        )[-1].kind
        for last in [before.last]
        for device in last.maps
        for name in device.slaves
        if name in last.disks
    }
    found = []
    for device in now.last.maps:
        paths = [now.last.disks[name] for name in device.slaves if name in now.last.disks]
        judged = {disk: _history(now, disk.name, device.wwid)[-1] for disk in paths}
        odd = {
            disk: judgement for disk, judgement in judged.items() if judgement.kind not in _WHOLE
        }
        keys = {disk: (device.wwid, disk.hctl, disk.wwid) for disk in paths}
        gained = [disk.name for disk in paths if keys[disk] not in known]
        turned = [
            disk.name
            for disk, judgement in odd.items()
            if judgement.kind == OTHER and known.get(keys[disk]) != OTHER
        ]
        if odd and (gained or turned):
            why = "; ".join(f"{disk.name}: {judgement.why}" for disk, judgement in odd.items())
            found.append(
                f"{device.name} is mixed since, by "
                f"{', '.join(dict.fromkeys([*gained, *turned]))}: {why}"
            )
    return found


def _limit(wanted: Plan, sizes: dict[int, int], options: Options) -> None:
    """Refuse what is beyond ``max_repairs``; each map and each disk in no map counts."""
    left = options.max_repairs
    for finding in [finding for finding in wanted.findings if finding.repair]:
        size = sizes[id(finding)]
        if size > left:
            more = f", and this takes {size}" if size > 1 else ""
            finding.refuse(
                Reason(
                    "too_many_repairs",
                    f"max_repairs is {options.max_repairs}{more}: run again for this one, or "
                    "raise it",
                )
            )
        else:
            left -= size


def _add_scans(state: State, wanted: Plan) -> None:
    """Scan the targets of all that goes, at the very end; refuse all of it where a scan might bring
    in what must not come.
    """
    repaired = [finding for finding in wanted.findings if finding.repair]
    subjects = [action.subject for finding in repaired for action in finding.repair]
    paths = PathsSubject(
        tuple(
            path
            for subject in subjects
            if isinstance(subject, PathsSubject)
            for path in subject.paths
        )
    )
    risks = mixtures(state, None, paths.leaving)
    for finding in repaired if risks else []:
        finding.refuse(Reason("scan_unsafe", "rescan_targets is set"), *risks)
    if repaired and not risks:
        repaired[-1].repair += _scan_actions(state, [path.disk for path in paths.paths])


def _outages(state: State, maps: list[Case], disks: list[Case]) -> list[Reason]:
    """Why so much looks broken that nothing is to be repaired: more than half, however few there
    are.

    What is left of a map that is gone is mostly all that is in no map, so a LUN in no map is
    counted among all that its targets serve: if they answer for most of these, it is no outage.
    LUNs are counted, and not disks, since each has several.
    """
    dead = {
        case.wwid
        for case in maps
        if {path["is"] for path in case.finding.evidence["paths"]} <= {GONE, OTHER, TWIN, UNKNOWN}
    }
    broken = {case.wwid or case.finding.name for case in disks} | dead
    counts = [(len(dead), len(state.last.maps), "maps")]
    for target in sorted({path.disk.target for case in disks for path in case.paths}):
        luns = {
            disk.wwid or disk.name for disk in state.last.disks.values() if disk.target == target
        }
        counts.append((len(broken & luns), len(luns), f"LUNs of target {target}"))
    return [
        Reason(
            "majority_broken",
            f"{number} of the node's {total} {what} look broken at once: that may be an outage. "
            "If they were all detached, set accept_majority",
        )
        for number, total, what in counts
        if 2 * number > total
    ]


def _too_hasty(state: State) -> list[Reason]:
    """Why the time spent observing proves nothing; empty if it does."""
    count = len(state.observations)
    if count < 2:
        return [
            Reason(
                "observation_too_short",
                "observation too short: a single observation proves "
                "nothing; set observations to 2 or more",
            )
        ]
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


def _in_scope(case: Case, state: State, options: Options) -> bool:
    """Whether the user's scope has it; marks its finding as named where the scope says
    so by name.
    """
    finding, evidence = case.finding, case.finding.evidence
    named = set(options.wwids) | {
        state.aliases[name] for name in options.maps if name in state.aliases
    }
    finding.named = case.wwid in named or (
        finding.kind == "multipath map" and finding.name in options.maps
    )
    if (options.maps or options.wwids) and not finding.named:
        return False
    return all(
        not wanted or wanted.strip().lower() == evidence[key].lower()
        for key, wanted in (("vendor", options.vendor), ("product", options.product))
    )


def _daemon_finding(state: State) -> list[Finding]:
    """A node that has maps and no multipathd to look after them cannot be judged, and loses the
    next failing path.
    """
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
        verdict="report",
        reason="",
        runbook=RUNBOOK,
        evidence={"maps": sorted(device.name for device in maps)},
    )
    finding.refuse(
        Reason(
            "multipathd_unusable",
            f"{state.last.daemon.problem}. Without it no map is flushed: "
            "see 'systemctl status multipathd'",
        )
    )
    return [finding]


def judge_map(state: State, device: DmDevice, options: Options) -> Case | None:
    """What is wrong with one map, and what would repair it; None if every path serves the map's
    LUN.
    """
    history = {name: _history(state, name, device.wwid) for name in device.slaves}
    now = {name: judgements[-1] for name, judgements in history.items()}
    kinds = {judgement.kind for judgement in now.values()}
    if SERVING in kinds and kinds <= {SERVING, STANDBY}:
        return None
    disks = [state.last.disks[name] for name in device.slaves if name in state.last.disks]
    queues = state.queueing.get(device.name, False)
    finding = Finding(
        control="STOR-01",
        severity="major",
        kind="multipath map",
        name=device.name,
        node=state.node,
        summary="",
        verdict="repair",
        reason="",
        runbook=RUNBOOK,
        evidence={
            "wwid": device.wwid,
            "dm": device.dm,
            "vendor": disks[0].vendor if disks else "",
            "product": disks[0].model if disks else "",
            "serving": sum(judgement.kind in (SERVING, STANDBY) for judgement in now.values()),
            "paths": [
                _path_evidence(state, name, history[name], device.wwid) for name in device.slaves
            ],
            "queueing": queues,
            "open_count": state.open_counts.get(device.dev),
            "openers": [opener.describe() for opener in _openers(state, device)],
            "observed": f"{len(state.observations)} times over {state.span:.1f} s",
        },
    )
    if kinds == {FOREIGN}:
        finding.severity, finding.verdict = "info", "report"
        finding.summary = f"{device.name} stands on {', '.join(device.slaves)}, no SCSI disks"
        finding.reason = "not assessed: only SCSI disks can be asked what they are"
        return Case(finding, device.wwid, [])
    if UNIDENTIFIED in kinds and kinds <= _FINE:
        finding.control, finding.severity = "STOR-02", "minor"
        finding.summary = f"{device.name}: whether its paths serve {device.wwid} cannot be told"
        return Case(
            finding,
            device.wwid,
            [
                Reason(judgement.code, f"{name}: {judgement.why}")
                for name, judgement in now.items()
                if judgement.kind == UNIDENTIFIED
            ],
        )
    return _judge_broken_map(state, device, options, finding, history)


def _judge_broken_map(
    state: State,
    device: DmDevice,
    options: Options,
    finding: Finding,
    history: dict[str, list[Judgement]],
) -> Case:
    """Fill in summary, obstacles and repair of a map that does not wholly serve its LUN."""
    obstacles: list[Reason] = []
    serving: list[Reason] = []
    now = {name: judgements[-1] for name, judgements in history.items()}
    others = {name: judgement for name, judgement in now.items() if judgement.kind == OTHER}
    gone = [name for name, judgement in now.items() if judgement.kind == GONE]
    twins = [name for name, judgement in now.items() if judgement.kind == TWIN]
    total = len(now)
    if others:
        names = ", ".join(sorted({judgement.wwid for judgement in others.values()}))
        finding.control, finding.severity = "STOR-02", "critical"
        finding.evidence["other_wwids"] = sorted(
            {wwid for judgement in others.values() for wwid in judgement.wwids}
        )
        finding.summary = (
            f"{device.name} was made for {device.wwid}, but {len(others)} of its "
            f"{total} paths read {names}: another volume's data"
        )
    elif twins:
        finding.control, finding.severity = "STOR-02", "critical"
        finding.summary = (
            f"{device.name}: {len(twins)} of its {total} paths have its WWID, and "
            "other names than when they were found"
        )
    elif not total:
        finding.summary = f"{device.name} has no path left"
        obstacles += _empty_map_obstacles(state, device, options)
    elif len(gone) == total:
        finding.summary = (
            f"{device.name}: the array serves the LUN on none of its {total} paths any more"
        )
    else:
        finding.severity = "minor" if finding.evidence["serving"] else "major"
        finding.summary = (
            f"{device.name}: {total - finding.evidence['serving']} of its {total} "
            "paths do not serve it"
        )
    for name, judgements in history.items():
        if {judgement.kind for judgement in judgements} <= _WHOLE:
            said = "still serves the LUN" if now[name].kind == SERVING else now[name].why
            serving.append(Reason("path_serves_lun", f"{name}: {said}"))
        else:
            doubts = _path_obstacles(state, name, judgements)
            obstacles += [doubt.with_text(f"{name}: {doubt}") for doubt in doubts]
    obstacles += _map_obstacles(state, device)
    obstacles += _use_obstacles(state, device, options)
    release = _release(device, MapSubject(device, now), finding.evidence["queueing"])
    paths = [
        PathSubject(state.last.disks[name], device.wwid, judgement, plain=False)
        for name, judgement in now.items()
        if name in {*others, *gone} and name in state.last.disks
    ]
    return Case(finding, device.wwid, obstacles, serving, release, tuple(paths))


def _path_obstacles(state: State, name: str, judgements: list[Judgement]) -> list[Reason]:
    """Why what a path answered does not prove that it may go."""
    odd = [judgement for judgement in judgements if judgement.kind not in (GONE, OTHER)]
    if odd:
        why = odd[-1].reason
        return [why.with_text("still serves the LUN") if odd[-1].kind == SERVING else why]
    if not all(judgement.same_as(judgements[-1]) for judgement in judgements):
        return [Reason("path_unproven", "answered differently while it was observed")]
    return _still_listed(state, name) if judgements[-1].kind == GONE else []


def _release(device: DmDevice, subject: MapSubject, queues: bool) -> list[Action]:
    flush = Action("flush_map", device.name, ["multipath", "-f", device.name], subject)
    if not queues:
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


def _path_action(path: PathSubject) -> Action:
    """Delete a path whose LUN is gone; where the number now belongs to another LUN, let the kernel
    find that one afresh.
    """
    commands = [_deletion(path), *([_scan(path)] if path.judgement.wwids else [])]
    verb = "replace_path" if path.judgement.wwids else "delete_path"
    return Action(
        verb, f"{path.disk.name} ({path.disk.hctl})", _in_turn(commands), PathsSubject((path,))
    )


def _paths_action(subject: PathsSubject) -> Action:
    """Delete all of the paths, and only then have the kernel find what took their numbers."""
    commands = [
        *map(_deletion, subject.paths),
        *(_scan(path) for path in subject.paths if path.judgement.wwids),
    ]
    target = ", ".join(f"{path.disk.name} ({path.disk.hctl})" for path in subject.paths)
    return Action("replace_paths", target, _in_turn(commands), subject)


def _deletion(path: PathSubject) -> list[str]:
    return ["write", f"/sys/class/scsi_device/{path.disk.hctl}/device/delete", "1"]


def _scan(path: PathSubject) -> list[str]:
    host, channel, number, lun = path.disk.hctl.split(":")
    return ["write", f"/sys/class/scsi_host/host{host}/scan", f"{channel} {number} {lun}"]


def _in_turn(commands: list[list[str]]) -> list[str]:
    return [word for command in commands for word in ("then", *command)][1:]


def _scan_actions(state: State, disks: list[Disk]) -> list[Action]:
    """Scan the targets of disks that are gone by then, and no others: what such a disk has hidden
    appears.
    """
    actions = []
    for target in dict.fromkeys(disk.target for disk in disks):
        host, channel, number = target.split(":")
        known = frozenset(
            (disk.hctl, disk.wwid) for disk in state.last.disks.values() if disk.target == target
        )
        scan = ["write", f"/sys/class/scsi_host/host{host}/scan", f"{channel} {number} -"]
        actions.append(Action("scan_target", target, scan, TargetSubject(target, known)))
    return actions


def _history(state: State, name: str, expected: str) -> list[Judgement]:
    """What every observation says of a disk.

    One that was fine at first was not asked again, but it must still be there.
    """
    judgements = []
    for seen in state.observations:
        if name in seen.disks and name not in seen.answers:
            continue
        judgements.append(_judge(seen, name, expected))
    if name not in state.last.disks and name in state.observations[0].disks:
        judgements.append(Judgement(UNKNOWN, "it vanished while it was observed"))
    return judgements


def _path_evidence(
    state: State, name: str, judgements: list[Judgement], wwid: str
) -> dict[str, Any]:
    disk = state.last.disks.get(name)
    luns = state.last.luns.get(disk.target) if disk else None
    return {
        "disk": name,
        "hctl": disk.hctl if disk else "",
        "state": disk.state if disk else "",
        "multipathd": state.last.daemon.paths.get(wwid, {}).get(name, "not listed"),
        "transport": disk.transport.describe() if disk and disk.transport else "",
        "sysfs_wwid": disk.wwid if disk else "",
        "answers": [judgement.why for judgement in judgements],
        "target_lists_luns": None if luns is None else list(luns),
        "is": judgements[-1].kind,
    }


def _still_listed(state: State, name: str) -> list[Reason]:
    """A target that rejects a LUN and lists it all the same is not a proof of anything; nor is one
    that answers there and lists nothing.
    """
    disk = state.last.disks[name]
    if any(disk.lun in seen.luns.get(disk.target, ()) for seen in state.observations):
        return [Reason("path_unproven", f"its target still lists LUN {disk.lun} in REPORT LUNS")]
    if state.last.answers[name].ready == "good" and disk.target not in state.last.luns:
        return [
            Reason(
                "path_unproven",
                "contradictory answers, and its target does not say by REPORT LUNS what it serves",
            )
        ]
    return []


def _empty_map_obstacles(state: State, device: DmDevice, options: Options) -> list[Reason]:
    obstacles = []
    last = state.last
    if any(seen.dm[device.dm].slaves for seen in state.observations if device.dm in seen.dm):
        obstacles.append(Reason("device_changing", "it had paths a moment ago"))
    for disk in last.disks.values():
        judgement = _judge(last, disk.name, device.wwid)
        if judgement.kind in (SERVING, STANDBY):
            obstacles.append(Reason("path_serves_lun", f"{disk.name} serves its LUN"))
        elif judgement.kind == UNKNOWN or (
            judgement.kind == UNIDENTIFIED and disk.transport is not None
        ):
            obstacles.append(
                Reason("path_unproven", f"{disk.name} might be its path: {judgement.why}")
            )
    if device.wwid[:1] not in ("1", "2", "3"):
        obstacles.append(
            Reason("path_unproven", f"no inquiry can be compared with the name {device.wwid}")
        )
    obstacles += [
        Reason("transport_outage", f"transport outage: {transport.describe()}")
        for transport in last.transports.values()
        if not transport.up
    ]
    if not options.flush_empty_maps:
        obstacles.append(
            Reason("consent_required", "a map without paths is flushed only with flush_empty_maps")
        )
    return obstacles


def _map_obstacles(state: State, device: DmDevice) -> list[Reason]:
    obstacles = []
    last = state.last
    if last.daemon.problem:
        obstacles.append(Reason("multipathd_unusable", last.daemon.problem))
    elif device.wwid not in last.daemon.paths:
        obstacles.append(Reason("multipathd_unusable", "multipathd does not know this map"))
    ready = [
        name
        for name, said in last.daemon.paths.get(device.wwid, {}).items()
        if said.endswith(" ready")
    ]
    # Its checker asks TEST UNIT READY, so where that is answered (LUN 0) its word is no second
    # opinion.
    ready = [
        name
        for name in ready
        if _judge(last, name, device.wwid).kind == GONE and last.answers[name].ready != "good"
    ]
    if ready:
        obstacles.append(
            Reason("path_serves_lun", f"multipathd still calls {', '.join(ready)} ready")
        )
    if device.is_mangled:
        # multipathd 0.9.4 has it twice, by both names. Its commands take one of them or the other
        # or none, and end with status 0.
        obstacles.append(
            Reason(
                "multipathd_unusable",
                f"multipath's commands do not take the alias {device.name!r}: give the map one of "
                "letters, digits and _ - . in multipath.conf, run 'multipathd "
                "reconfigure', and then this again",
            )
        )
    if device.suspended:
        obstacles.append(Reason("device_changing", "the map is suspended: somebody is changing it"))
    if any(seen.dm.get(device.dm) != device for seen in state.observations):
        obstacles.append(Reason("device_changing", "the map changed while it was observed"))
    return obstacles


def _openers(state: State, device: DmDevice) -> list[Opener]:
    devs = [device.dev, *(part.dev for part in _partition_maps(state, device))]
    return [opener for dev in devs for opener in state.openers.get(dev, [])]


def _partition_maps(state: State, device: DmDevice) -> list[DmDevice]:
    return [
        state.last.dm[name]
        for name in device.holders
        if name in state.last.dm and state.last.dm[name].is_partition
    ]


def _use_obstacles(state: State, device: DmDevice, options: Options) -> list[Reason]:
    """Why the map may be in use.

    Partition maps that nobody uses go with the map and do not count.
    """
    obstacles = list(state.uses.get(device.dm, []))
    parts = _partition_maps(state, device)
    for owner in (device, *parts):
        for holder in owner.holders:
            above = state.last.dm.get(holder)
            if above is None or above not in parts:
                obstacles.append(
                    Reason(
                        "in_use_held",
                        f"held by {holder}"
                        + (f" ({above.name}, {above.uuid.partition('-')[0]})" if above else ""),
                    )
                )
    counts = [(owner, state.open_counts.get(owner.dev)) for owner in (device, *parts)]
    if any(count is None for _owner, count in counts):
        return [*obstacles, Reason("evidence_unreadable", "its open count could not be read")]
    openers = [opener for opener in _openers(state, device) if not opener.udev]
    # udev, hung as it may be on a map that queues, only looked at the device: the flush waits until
    # it has let go.
    udev = sum(opener.opens for opener in _openers(state, device) if opener.udev)
    unexplained = sum((count or 0) - len(owner.holders) for owner, count in counts) - udev
    # What it writes is lost when it fails, and it may well live on and keep the map open: a virtual
    # machine's disk, a database.
    living = [opener.describe() for opener in openers if opener.writes or not opener.hung]
    if living:
        obstacles.append(Reason("in_use_open", f"opened by {', '.join(living)}"))
    elif unexplained > 0 and not obstacles and not options.fail_hung_readers:
        who = (
            ", ".join(opener.describe() for opener in openers)
            or "somebody that /proc does not name"
        )
        obstacles.append(
            Reason(
                "in_use_open",
                f"open {unexplained} times by {who}: set fail_hung_readers "
                "to fail that I/O and free the map",
            )
        )
    return obstacles


def judge_plain_disk(state: State, disk: Disk) -> Case | None:
    """What is wrong with a disk that is a path of no map; None if it serves its LUN, or is no
    business of an array's.
    """
    judgements = _history(state, disk.name, disk.wwid)
    now = judgements[-1]
    if not _is_broken(now, disk):
        return None
    finding = Finding(
        control="STOR-03",
        severity="minor",
        kind="SCSI disk",
        name=disk.name,
        node=state.node,
        summary=f"{disk.name} ({disk.hctl}) is no longer served by the array",
        verdict="repair",
        reason="",
        runbook=RUNBOOK,
        evidence={
            "wwid": disk.wwid,
            "vendor": disk.vendor,
            "product": disk.model,
            "paths": [_path_evidence(state, disk.name, judgements, disk.wwid)],
            "observed": f"{len(state.observations)} times over {state.span:.1f} s",
        },
    )
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
    path = PathSubject(disk, disk.wwid, now, plain=True)
    return Case(finding, disk.wwid, _plain_disk_obstacles(state, disk, judgements), paths=(path,))


def _plain_disk_obstacles(state: State, disk: Disk, judgements: list[Judgement]) -> list[Reason]:
    obstacles = _path_obstacles(state, disk.name, judgements)
    if any(seen.disks.get(disk.name) != disk for seen in state.observations):
        obstacles.append(Reason("device_changing", "the disk changed while it was observed"))
    return [
        *obstacles,
        *(Reason("in_use_held", f"held by {holder}") for holder in disk.holders),
        *state.uses.get(disk.name, []),
    ]
