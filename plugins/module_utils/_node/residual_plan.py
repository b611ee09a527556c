# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""Residual multipath maps and SCSI disks (STOR-01, -02, -03): what they are, and whether they may go. Pure: no I/O here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import Action, Finding, Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import scsi
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import Disk, DmDevice, Transport
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.multipath import Daemon
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.usage import Opener

RUNBOOK = "storage_ops.runbooks.clean_residual_paths"
# Below this many maps (or disks) "more than half" says nothing.
_MAJORITY_FLOOR = 4

# What a disk turned out to be.
SERVING = "serving"  # the LUN it was found as
GONE = "gone"  # the target serves no such LUN any more
OTHER = "other"  # the target serves another LUN under this number
STANDBY = "standby"  # the LUN it was found as, through a controller that is not the one to use now
UNIDENTIFIED = "unidentified"  # it answers, but names itself in no comparable way
FOREIGN = "foreign"  # not a SCSI disk, so it cannot be asked
UNKNOWN = "unknown"  # no answer that proves anything

# What a path may be on a map that works.
_FINE = {SERVING, STANDBY, UNIDENTIFIED, FOREIGN}
# NOT READY, asymmetric access: state transition, standby, unavailable (SPC-5)
_STANDBY_SENSES = ("02/04/0a", "02/04/0b", "02/04/0c")


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of multipath_residual for units and defaults."""

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
    accept_majority_dead: bool = False
    rescan_targets: bool = False

    def scope(self) -> list[tuple[str, tuple[str, ...] | str]]:
        """What the user narrowed the run down to."""
        return [("maps", self.maps), ("WWIDs", self.wwids), ("vendor", self.vendor), ("product", self.product)]


@dataclass(frozen=True)
class Observation:
    """The node at one moment. ``answers`` and ``luns`` hold what was asked: every disk first, suspects only later.

    ``at``: monotonic seconds. ``answers``: by disk name. ``luns``: by target (``6:0:0``), what it says it serves.
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
    """Everything the plan is made from. ``uses``: by kernel name of a map or disk, why it is in use, in sentences."""

    node: str
    observations: tuple[Observation, ...]
    checker_interval: float = 0.0
    queueing: dict[str, bool] = field(default_factory=dict)
    open_counts: dict[str, int] = field(default_factory=dict)
    openers: dict[str, list[Opener]] = field(default_factory=dict)
    uses: dict[str, list[str]] = field(default_factory=dict)
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
    """What a disk turned out to be, and by what sign. ``wwids``: the names of the other LUN, for OTHER."""

    kind: str
    why: str
    wwids: tuple[str, ...] = ()

    @property
    def wwid(self) -> str:
        """The other LUN's name, for the eye."""
        return ", ".join(self.wwids)

    def same_as(self, other: Judgement) -> bool:
        """It says the same of the disk, whatever the words."""
        return (self.kind, self.wwids) == (other.kind, other.wwids)


@dataclass(frozen=True)
class PathSubject:
    """The path an action removes, as it was when the plan was made; ``plain``: it was a path of no map."""

    disk: Disk
    expected: str
    judgement: Judgement
    plain: bool


@dataclass(frozen=True)
class TargetSubject:
    """The target an action scans; ``known``: SCSI address and WWID of its disks, as it was when the plan was made."""

    target: str
    known: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class MapSubject:
    """The map an action changes, and what its paths were, as it was when the plan was made."""

    device: DmDevice
    control: str
    judgements: dict[str, Judgement]


def judge(disk: Disk | None, answer: Answer | None, expected: str) -> Judgement:
    """Decide what one answer proves about a disk that was found as the LUN ``expected`` (a WWID as multipath spells it)."""
    if disk is None:
        return Judgement(FOREIGN, "not a SCSI disk, so it cannot be asked")
    if answer is None:
        return Judgement(UNKNOWN, "not asked")
    if disk.transport is not None and not disk.transport.up:
        return Judgement(UNKNOWN, f"transport outage: {disk.transport.describe()}, device {disk.state}")
    if disk.state != "running":
        return Judgement(UNKNOWN, f"transport outage: device {disk.state}")
    if answer.problem:
        return Judgement(UNKNOWN, answer.problem)
    said = answer.describe()
    if "DID_" in answer.ready or "DID_" in answer.inquiry or "DID_" in answer.vpd:
        return Judgement(UNKNOWN, f"transport error: {said}")
    unsupported = answer.ready == scsi.LUN_NOT_SUPPORTED
    absent = answer.qualifier in (1, 3)
    if answer.inquiry == scsi.LUN_NOT_SUPPORTED or absent:
        # One odd answer does not decide. LUN 0 is special: the target itself answers TEST UNIT READY there, though no device is.
        agreed = unsupported or (absent and answer.ready == "good")
        return Judgement(GONE if agreed else UNKNOWN, said if agreed else f"contradictory answers: {said}")
    if answer.inquiry != "good" or answer.qualifier != 0:
        return Judgement(UNKNOWN, f"no sign that the LUN is gone: {said}")
    if answer.vpd != "good":
        proven = answer.ready == "good"
        return Judgement(UNIDENTIFIED if proven else UNKNOWN, f"its identity is unproven, VPD 0x83 {answer.vpd}: {said}")
    if unsupported:
        return Judgement(UNKNOWN, f"contradictory answers: {said}")
    if expected not in answer.wwids:
        alike = tuple(sorted(wwid for wwid in scsi.world_wide(answer.wwids) if wwid[0] == expected[:1]))
        if not alike:
            return Judgement(UNIDENTIFIED, f"its names cannot be compared with {expected or 'an unknown WWID'}: {said}")
        return Judgement(OTHER, f"answers as another LUN: {said}", alike)
    if answer.ready in ("good", "status 0x18"):  # 0x18: reserved by another host, and very much alive
        return Judgement(SERVING, said)
    return Judgement(STANDBY if answer.ready in _STANDBY_SENSES else UNKNOWN, f"no sign that the LUN is gone: {said}")


def suspects(observation: Observation) -> set[str]:
    """Disks that have to be observed further: every one that does not plainly serve its LUN; all if a map has no path left."""
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


def _judge(observation: Observation, name: str, expected: str) -> Judgement:
    return judge(observation.disks.get(name), observation.answers.get(name), expected)


def _is_broken(judgement: Judgement, disk: Disk) -> bool:
    """A disk in no map is our business when the array took it away, or may have: not when a local drive has a bad day."""
    return judgement.kind in (GONE, OTHER) or (judgement.kind == UNKNOWN and disk.transport is not None)


def plan(state: State, options: Options) -> Plan:
    """Findings for everything in scope that does not serve its LUN, and the repairs that are proven and allowed."""
    maps = [finding for device in state.last.maps for finding in [judge_map(state, device, options)] if finding]
    disks = [finding for disk in state.last.plain_disks for finding in [judge_plain_disk(state, disk, options)] if finding]
    findings = [*_daemon_finding(state), *maps, *disks]
    outage = [] if options.accept_majority_dead else _outages(state, maps, disks)
    wanted = Plan([finding for finding in findings if _in_scope(finding, state, options)])
    hurry = _too_hasty(state)
    for finding in wanted.findings:
        if finding.repair and (outage or hurry):
            finding.refuse(*outage, *hurry)
    for finding in [finding for finding in wanted.findings if finding.repair][options.max_repairs :]:
        finding.refuse(f"max_repairs is {options.max_repairs}: run again for this one, or raise it")
    return wanted


def _outages(state: State, maps: list[Finding], disks: list[Finding]) -> list[str]:
    """Why so much looks broken that nothing is to be repaired. Plain disks are counted by LUN, since each has several."""
    dead = {finding.name for finding in maps if {path["is"] for path in finding.evidence["paths"]} <= {GONE, OTHER, UNKNOWN}}
    luns = {disk.wwid or disk.name for disk in state.last.plain_disks}
    dead_luns = {finding.evidence["wwid"] or finding.name for finding in disks}
    return [
        f"{len(broken)} of the node's {total} {what} look broken at once: that may be an outage. "
        "If they were all detached, set accept_majority_dead"
        for broken, total, what in ((dead, len(state.last.maps), "maps"), (dead_luns, len(luns), "LUNs in no map"))
        if total >= _MAJORITY_FLOOR and 2 * len(broken) > total
    ]


def _too_hasty(state: State) -> list[str]:
    """Why the time spent observing proves nothing; empty if it does."""
    count = len(state.observations)
    if count < 2:
        return ["observation too short: a single observation proves nothing; set observations to 2 or more"]
    if state.span <= state.checker_interval:
        return [
            f"observation too short: {state.span:.1f} s, while multipathd checks a path every {state.checker_interval:g} s; "
            f"set observation_seconds above {state.checker_interval:g}"
        ]
    return []


def _in_scope(finding: Finding, state: State, options: Options) -> bool:
    """Whether the user's scope has the finding; marks it as named where the scope says so by name."""
    evidence = finding.evidence
    if finding.kind == "node":
        return True
    named = set(options.wwids) | {state.aliases[name] for name in options.maps if name in state.aliases}
    finding.named = evidence["wwid"] in named or (finding.kind == "multipath map" and finding.name in options.maps)
    if (options.maps or options.wwids) and not finding.named:
        return False
    return all(
        not wanted or wanted.strip().lower() == evidence[key].lower()
        for key, wanted in (("vendor", options.vendor), ("product", options.product))
    )


def _daemon_finding(state: State) -> list[Finding]:
    """A node that has maps and no multipathd to look after them cannot be judged, and loses the next failing path."""
    maps = state.last.maps
    if not maps or not state.last.daemon.problem:
        return []
    return [
        Finding(
            "STOR-01",
            "major",
            "node",
            state.node,
            state.node,
            f"{len(maps)} multipath maps and no answer from multipathd",
            "refuse",
            f"{state.last.daemon.problem}. Without it no map is flushed: see 'systemctl status multipathd'",
            RUNBOOK,
            {"maps": sorted(device.name for device in maps)},
        )
    ]


def judge_map(state: State, device: DmDevice, options: Options) -> Finding | None:
    """The finding about one map, with its repair if that is proven and allowed; None if every path serves the map's LUN."""
    history = {name: _history(state, name, device.wwid) for name in device.slaves}
    now = {name: judgements[-1] for name, judgements in history.items()}
    kinds = {judgement.kind for judgement in now.values()}
    if SERVING in kinds and kinds <= {SERVING, STANDBY}:
        return None
    disks = [state.last.disks[name] for name in device.slaves if name in state.last.disks]
    queues = state.queueing.get(device.name, False)
    finding = Finding(
        "STOR-01",
        "major",
        "multipath map",
        device.name,
        state.node,
        "",
        "repair",
        "",
        RUNBOOK,
        {
            "wwid": device.wwid,
            "dm": device.dm,
            "vendor": disks[0].vendor if disks else "",
            "product": disks[0].model if disks else "",
            "serving": sum(judgement.kind in (SERVING, STANDBY) for judgement in now.values()),
            "paths": [_path_evidence(state, name, history[name], device.wwid) for name in device.slaves],
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
        return finding
    if UNIDENTIFIED in kinds and kinds <= _FINE:
        finding.control, finding.severity = "STOR-02", "minor"
        finding.summary = f"{device.name}: whether its paths serve {device.wwid} cannot be told"
        finding.refuse(*(f"{name}: {judgement.why}" for name, judgement in now.items() if judgement.kind == UNIDENTIFIED))
        return finding
    return _judge_broken_map(state, device, options, finding, history)


def _judge_broken_map(state: State, device: DmDevice, options: Options, finding: Finding, history: dict[str, list[Judgement]]) -> Finding:
    """Fill in summary, obstacles and repair of a map that does not wholly serve its LUN."""
    obstacles = []
    now = {name: judgements[-1] for name, judgements in history.items()}
    others = {name: judgement for name, judgement in now.items() if judgement.kind == OTHER}
    gone = [name for name, judgement in now.items() if judgement.kind == GONE]
    total = len(now)
    if others:
        names = ", ".join(sorted({judgement.wwid for judgement in others.values()}))
        finding.control, finding.severity = "STOR-02", "critical"
        finding.evidence["other_wwids"] = sorted({wwid for judgement in others.values() for wwid in judgement.wwids})
        finding.summary = (
            f"{device.name} was made for {device.wwid}, but {len(others)} of its {total} paths read {names}: another volume's data"
        )
    elif not total:
        finding.summary = f"{device.name} has no path left"
        obstacles += _empty_map_obstacles(state, device, options)
    elif len(gone) == total:
        finding.summary = f"{device.name}: the array serves the LUN on none of its {total} paths any more"
    else:
        finding.severity = "minor" if finding.evidence["serving"] else "major"
        finding.summary = f"{device.name}: {total - finding.evidence['serving']} of its {total} paths do not serve it"
    for name, judgements in history.items():
        odd = [judgement for judgement in judgements if judgement.kind not in (GONE, OTHER)]
        if odd:
            obstacles.append(f"{name}: {'still serves the LUN' if odd[-1].kind == SERVING else odd[-1].why}")
        elif not all(judgement.same_as(judgements[-1]) for judgement in judgements):
            obstacles.append(f"{name} answered differently while it was observed")
        elif judgements[-1].kind == GONE:
            obstacles += _still_listed(state, name)
    obstacles += _map_obstacles(state, device)
    obstacles += _use_obstacles(state, device, options)
    if obstacles:
        finding.refuse(*obstacles)
        return finding
    finding.reason = f"proven in {len(state.observations)} observations, unused"
    finding.repair = _map_actions(state, device, finding, now) + _scan_actions(state, tuple(now), options)
    return finding


def _map_actions(state: State, device: DmDevice, finding: Finding, now: dict[str, Judgement]) -> list[Action]:
    subject = MapSubject(device, finding.control, now)
    actions = []
    if finding.evidence["queueing"]:
        actions.append(Action("disable_queueing", device.name, ["multipathd", "disablequeueing", "map", device.name], subject))
    actions.append(Action("flush_map", device.name, ["multipath", "-f", device.name], subject))
    return actions + [
        _path_action(PathSubject(state.last.disks[name], device.wwid, judgement, plain=False)) for name, judgement in now.items()
    ]


def _path_action(subject: PathSubject) -> Action:
    """Delete a path whose LUN is gone; where the number now belongs to another LUN, let the kernel find that one afresh."""
    disk = subject.disk
    delete = ["write", f"/sys/class/scsi_device/{disk.hctl}/device/delete", "1"]
    target = f"{disk.name} ({disk.hctl})"
    if subject.judgement.kind == GONE:
        return Action("delete_path", target, delete, subject)
    host, channel, number, lun = disk.hctl.split(":")
    scan = ["write", f"/sys/class/scsi_host/host{host}/scan", f"{channel} {number} {lun}"]
    return Action("replace_path", target, [*delete, "then", *scan], subject)


def _scan_actions(state: State, names: tuple[str, ...], options: Options) -> list[Action]:
    """Scan the targets of disks that are gone by then, and no others: what such a disk has hidden appears."""
    targets = dict.fromkeys(state.last.disks[name].target for name in names) if options.rescan_targets else {}
    actions = []
    for target in targets:
        host, channel, number = target.split(":")
        known = frozenset((disk.hctl, disk.wwid) for disk in state.last.disks.values() if disk.target == target)
        scan = ["write", f"/sys/class/scsi_host/host{host}/scan", f"{channel} {number} -"]
        actions.append(Action("scan_target", target, scan, TargetSubject(target, known)))
    return actions


def _history(state: State, name: str, expected: str) -> list[Judgement]:
    """What every observation says of a disk. One that was fine at first was not asked again, but it must still be there."""
    judgements = []
    for seen in state.observations:
        if name in seen.disks and name not in seen.answers:
            continue
        judgements.append(_judge(seen, name, expected))
    if name not in state.last.disks and name in state.observations[0].disks:
        judgements.append(Judgement(UNKNOWN, "it vanished while it was observed"))
    return judgements


def _path_evidence(state: State, name: str, judgements: list[Judgement], wwid: str) -> dict[str, Any]:
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


def _still_listed(state: State, name: str) -> list[str]:
    """A target that rejects a LUN and lists it all the same is not a proof of anything; nor is one that answers there and lists nothing."""
    disk = state.last.disks[name]
    if any(disk.lun in seen.luns.get(disk.target, ()) for seen in state.observations):
        return [f"{name}: its target still lists LUN {disk.lun} in REPORT LUNS"]
    if state.last.answers[name].ready == "good" and disk.target not in state.last.luns:
        return [f"{name}: contradictory answers, and its target does not say by REPORT LUNS what it serves"]
    return []


def _empty_map_obstacles(state: State, device: DmDevice, options: Options) -> list[str]:
    obstacles = []
    last = state.last
    if any(seen.dm[device.dm].slaves for seen in state.observations if device.dm in seen.dm):
        obstacles.append("it had paths a moment ago")
    for disk in last.disks.values():
        judgement = _judge(last, disk.name, device.wwid)
        if judgement.kind in (SERVING, STANDBY):
            obstacles.append(f"{disk.name} serves its LUN")
        elif judgement.kind == UNKNOWN or (judgement.kind == UNIDENTIFIED and disk.transport is not None):
            obstacles.append(f"{disk.name} might be its path: {judgement.why}")
    if device.wwid[:1] not in ("1", "2", "3"):
        obstacles.append(f"no inquiry can be compared with the name {device.wwid}")
    obstacles += [f"transport outage: {transport.describe()}" for transport in last.transports.values() if not transport.up]
    if not options.flush_empty_maps:
        obstacles.append("a map without paths is flushed only with flush_empty_maps")
    return obstacles


def _map_obstacles(state: State, device: DmDevice) -> list[str]:
    obstacles = []
    last = state.last
    if last.daemon.problem:
        obstacles.append(last.daemon.problem)
    elif device.wwid not in last.daemon.paths:
        obstacles.append("multipathd does not know this map")
    ready = [name for name, said in last.daemon.paths.get(device.wwid, {}).items() if said.endswith(" ready")]
    # Its checker asks TEST UNIT READY, so where that is answered (LUN 0) its word is no second opinion.
    ready = [name for name in ready if _judge(last, name, device.wwid).kind == GONE and last.answers[name].ready != "good"]
    if ready:
        obstacles.append(f"multipathd still calls {', '.join(ready)} ready")
    if device.suspended:
        obstacles.append("the map is suspended: somebody is changing it")
    if any(seen.dm.get(device.dm) != device for seen in state.observations):
        obstacles.append("the map changed while it was observed")
    return obstacles


def _openers(state: State, device: DmDevice) -> list[Opener]:
    devs = [device.dev, *(part.dev for part in _partition_maps(state, device))]
    return [opener for dev in devs for opener in state.openers.get(dev, [])]


def _partition_maps(state: State, device: DmDevice) -> list[DmDevice]:
    return [state.last.dm[name] for name in device.holders if name in state.last.dm and state.last.dm[name].is_partition]


def _use_obstacles(state: State, device: DmDevice, options: Options) -> list[str]:
    """Why the map may be in use. Partition maps that nobody uses go with the map and do not count."""
    obstacles = list(state.uses.get(device.dm, []))
    parts = _partition_maps(state, device)
    for owner in (device, *parts):
        for holder in owner.holders:
            above = state.last.dm.get(holder)
            if above is None or above not in parts:
                obstacles.append(f"held by {holder}" + (f" ({above.name}, {above.uuid.partition('-')[0]})" if above else ""))
    counts = [(owner, state.open_counts.get(owner.dev)) for owner in (device, *parts)]
    if any(count is None for _owner, count in counts):
        return [*obstacles, "its open count could not be read"]
    openers = [opener for opener in _openers(state, device) if not opener.udev]
    # udev, hung as it may be on a map that queues, only looked at the device: the flush waits until it has let go.
    udev = sum(opener.opens for opener in _openers(state, device) if opener.udev)
    unexplained = sum((count or 0) - len(owner.holders) for owner, count in counts) - udev
    living = [opener.describe() for opener in openers if not opener.hung]
    if living:
        obstacles.append(f"opened by {', '.join(living)}")
    elif unexplained > 0 and not obstacles and not options.fail_hung_readers:
        who = ", ".join(opener.describe() for opener in openers) or "somebody that /proc does not name"
        obstacles.append(f"open {unexplained} times by {who}: set fail_hung_readers to fail that I/O and free the map")
    return obstacles


def judge_plain_disk(state: State, disk: Disk, options: Options) -> Finding | None:
    """The finding about a disk that is a path of no map; None if it serves its LUN, or is no business of an array's."""
    judgements = _history(state, disk.name, disk.wwid)
    now = judgements[-1]
    if not _is_broken(now, disk):
        return None
    finding = Finding(
        "STOR-03",
        "minor",
        "SCSI disk",
        disk.name,
        state.node,
        f"{disk.name} ({disk.hctl}) is no longer served by the array",
        "repair",
        f"proven in {len(state.observations)} observations, unused",
        RUNBOOK,
        {
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
        finding.summary = f"{disk.name} ({disk.hctl}) was found as {disk.wwid}, but reads {now.wwid}: another volume's data"
    elif now.kind == UNKNOWN:
        finding.summary = f"{disk.name} ({disk.hctl}) does not answer"
    obstacles = _plain_disk_obstacles(state, disk, judgements)
    if obstacles:
        finding.refuse(*obstacles)
    else:
        finding.repair = [_path_action(PathSubject(disk, disk.wwid, now, plain=True)), *_scan_actions(state, (disk.name,), options)]
    return finding


def _plain_disk_obstacles(state: State, disk: Disk, judgements: list[Judgement]) -> list[str]:
    obstacles = []
    odd = [judgement for judgement in judgements if judgement.kind not in (GONE, OTHER)]
    if odd:
        obstacles.append("it serves its LUN again" if odd[-1].kind == SERVING else odd[-1].why)
    elif not all(judgement.same_as(judgements[-1]) for judgement in judgements):
        obstacles.append("it answered differently while it was observed")
    elif judgements[-1].kind == GONE:
        obstacles += _still_listed(state, disk.name)
    if any(seen.disks.get(disk.name) != disk for seen in state.observations):
        obstacles.append("the disk changed while it was observed")
    return [*obstacles, *(f"held by {holder}" for holder in disk.holders), *state.uses.get(disk.name, [])]
