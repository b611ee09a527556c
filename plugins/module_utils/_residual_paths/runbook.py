# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Residual multipath maps and SCSI disks: reads the node, carries out the plan, and proves the
result.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from .._core.argspec import check_numbers, given_names, given_options, missing
from .._core.bounded import Deadline, call
from .._core.codes import Reason
from .._core.engine import (
    Action,
    ActionFailed,
    Finding,
    Missed,
    NotStarted,
    Plan,
    before_a_change,
    require_time,
)
from .._core.errors import StorageOpsError
from .._node import block, multipath, processes, usage
from .._node.block import Disk, DmDevice
from .._node.host import UNDO_SECONDS, Host
from .._node.scsi import Answer
from . import judging, scans
from . import plan as pure
from .actions import flushed_maps, most_removed, removed_paths, scanned_targets
from .arrays import Arrays, find_arrays, server_of
from .cases import judge_map, judge_plain_disk
from .model import (
    MapSubject,
    Observation,
    PathsSubject,
    PathSubject,
    ResidualOptions,
    ResidualState,
    TargetSubject,
)
from .users import device_of, open_members, opened, tree_of

# Seconds that the kernel, udev and multipathd get to follow a change before it counts as failed.
_SETTLE = 15.0
# Seconds. A reader that disabling queueing has freed ends within one; one that is still there after
# this will not end.
_READERS_END = 10.0
# The repair of a map is not begun with less time left: disabling queueing, flushing and proving
# have to fit.
_MAP_SECONDS = 2 * _SETTLE + _READERS_END
# The same for a path: deleting it, and the scan that may have to follow.
_PATH_SECONDS = 2 * _SETTLE
# What each further map or path of the same repair adds.
_MORE_SECONDS = 2.0


def residual_options(params: dict[str, Any]) -> ResidualOptions:
    """The options of ResidualPaths, checked. Raises BadOption.

    Modules that only report lack the accepted risks, which then are off.
    """
    check_numbers(
        params,
        {"observations": 1, "observation_seconds": 0, "probe_timeout": 0.1, "max_repairs": 0},
    )
    names = given_names(params, "maps", "wwids")
    names["wwids"] = tuple(_spelled(wwid) for wwid in names["wwids"])
    return ResidualOptions(**{**given_options(ResidualOptions, params), **names})


def _spelled(wwid: str) -> str:
    """A WWID as multipath spells it: those that are a number (NAA, EUI-64) in lower case."""
    return wwid.lower() if wwid[:1] in ("2", "3") else wwid


class ResidualPaths:
    """The runbook clean_residual_paths on one node."""

    def __init__(self, host: Host, options: ResidualOptions) -> None:
        self._host = host
        self._options = options
        # What was planned, and which findings were checked again right before their first action.
        self._planned_from = ResidualState(host.name, ())
        self._findings: list[Finding] = []
        self._rechecked: set[int] = set()
        # Targets of which a path was removed, and that is proven; arrays of which a repair failed.
        self._removed: set[str] = set()
        self._failed: set[str] = set()
        # Addresses of disks that were deleted, and that the kernel has not let go of.
        self._stuck: set[str] = set()
        self._deadline = host.deadline

    def gather(self) -> ResidualState:
        """Ask every disk once; where something is wrong, observe it further and find its users.

        Further observations are made only if they may decide something.
        """
        self._host.require_root()
        processes.require_host_namespace(self._host)
        # As in a container without sysfs, where all would look healthy.
        if not self._host.exists("/sys/block"):
            raise StorageOpsError(
                "there is no /sys here, so no disk would be seen: connect to the node itself (by "
                "ssh, not in a container)",
                code="privileges_missing",
            )
        observations = [self._observe(None)]
        # As in a container whose device cgroup allows no disk: open(2) returns EPERM.
        denied = [name for name, answer in observations[0].answers.items() if answer.denied]
        if denied:
            raise StorageOpsError(
                f"{', '.join(denied[:3])} could not be asked: run as root, with all of its "
                "capabilities",
                code="privileges_missing",
            )
        wanted = judging.suspects(observations[0])
        # Observing takes a minute, so a healthy node is spared it.
        if judging.undecided(observations[0]) or _empty_maps(observations[0]):
            pause = self._options.observation_seconds / max(1, self._options.observations - 1)
            for _number in range(1, self._options.observations):
                self._host.sleep(pause)
                observations.append(self._observe(wanted))
        return self._state(observations, wanted)

    def plan(self, state: ResidualState) -> Plan:
        """Decide, from what was gathered."""
        plan = pure.plan(state, self._options)
        self._planned_from, self._findings = state, plan.findings
        return plan

    def not_applicable(self, state: ResidualState) -> dict[str, str]:
        """Controls of what the node does not have."""
        return pure.not_applicable(state)

    def healthy(self, state: ResidualState) -> str:
        """What a run says that finds nothing; with the scope, outside which nothing was judged."""
        last, options = state.last, self._options
        scope = [
            f"{name} {', '.join(value) if isinstance(value, tuple) else value}"
            for name, value in options.scope()
            if value
        ]
        within = f" within the scope ({'; '.join(scope)})" if scope else ""
        return (
            f"{len(last.maps)} multipath maps and {len(last.disks)} SCSI disks, no residual "
            f"among them{within}"
        )

    def unmatched(self, state: ResidualState) -> str:
        """What of the scope the node does not have."""
        return missing(pure.unmatched(state, self._options))

    def _observe(self, wanted: set[str] | None, wwids: Collection[str] = ()) -> Observation:
        """One observation, with what multipathd and the targets of the suspects say.

        The arguments are those of ``_look``.
        """
        seen = self._look(wanted, wwids)
        # A node without maps need not have multipathd.
        daemon = multipath.ask_daemon(self._host, seen.dm) if seen.maps else multipath.Daemon()
        luns = self._report_luns(seen, judging.suspects(seen) if wanted is None else wanted)
        return replace(seen, daemon=daemon, luns=luns)

    def _look(self, wanted: set[str] | None, wwids: Collection[str] = ()) -> Observation:
        """The node's disks and maps, and what the disks answer.

        ``wanted``: names of the disks to ask, None for all. ``wwids``: also ask the paths of such
        maps, and disks that were found as such a LUN.
        """
        host = self._host
        transports = block.transports(host)
        # sysfs is read again each time: disks come and go between observations.
        disks = block.disks(host, transports)
        dm = block.dm_devices(host)
        slaves = {
            name
            for device in dm.values()
            if device.is_multipath and device.wwid in wwids
            for name in device.slaves
        }
        asked = [
            disk
            for disk in disks.values()
            if wanted is None or disk.name in {*wanted, *slaves} or disk.wwid in wwids
        ]
        return Observation(
            time.monotonic(), disks, dm, transports, multipath.Daemon(), self._ask(asked)
        )

    def _ask(self, disks: list[Disk], report_luns: bool = False) -> dict[str, Answer]:
        """Ask the disks whose transport works; a command to the others would only hang."""
        reachable = [disk for disk in disks if disk.reachable]
        # A server with any number of LUNs that do not answer uses up its own turns.
        answers = self._host.ask(
            [(disk.name, report_luns) for disk in reachable],
            self._options.probe_timeout,
            [server_of(disk) for disk in reachable],
        )
        # A state other than running makes SG_IO wait or fail without a word from the array.
        found = {disk.name: Answer(problem=f"not asked: device {disk.state}") for disk in disks}
        found.update({disk.name: answer for disk, answer in zip(reachable, answers)})
        return found

    def _report_luns(self, seen: Observation, suspects: set[str]) -> dict[str, tuple[int, ...]]:
        """By target of the suspects, the LUN numbers that it reports.

        Each is asked through a disk that is no suspect, if it has one. REPORT LUNS is about the
        whole target, whichever LUN receives it (SPC-4, REPORT LUNS command).
        """
        through: dict[str, Disk] = {}
        for disk in seen.disks.values():
            # Better than nothing where a target has no other disk.
            if disk.name in suspects:
                through.setdefault(disk.target, disk)
        for disk in seen.disks.values():
            # A suspect may not answer at all, while the target does.
            if disk.target in through and disk.name not in suspects:
                through[disk.target] = disk
        answers = self._ask(list(through.values()), report_luns=True) if through else {}
        luns = {target: answers[disk.name].luns for target, disk in through.items()}
        return {target: numbers for target, numbers in luns.items() if numbers is not None}

    def _state(self, observations: list[Observation], wanted: set[str]) -> ResidualState:
        """Add who uses the suspects, and how the kernel treats the maps among them.

        Nothing more is read if there are no suspects.
        """
        host, last = self._host, observations[-1]
        aliases = multipath.aliases(host) if self._options.maps else {}
        maps = [device for device in last.maps if not device.slaves or wanted & set(device.slaves)]
        disks = [disk for disk in last.plain_disks if disk.name in wanted]
        # Reading all processes is the most expensive part.
        if not maps and not disks:
            return ResidualState(host.name, tuple(observations), aliases=aliases)
        uses, openers, counts = self._uses(last, maps, disks)
        return ResidualState(
            host.name,
            tuple(observations),
            multipath.checker_interval(host),
            multipath.queueing(host) if maps else {},
            counts,
            openers,
            uses,
            aliases,
        )

    def _uses(
        self, last: Observation, maps: list[DmDevice], disks: list[Disk]
    ) -> tuple[dict[str, list[Reason]], usage.Openers, dict[str, int]]:
        """(by kernel name why it is in use, who has what open, and by major:minor how often)."""
        host = self._host
        known_uses = usage.UsesByDevice(host)
        map_devices = {device.dm: tree_of(last, device) for device in maps}
        disk_devices = {disk.name: block.disk_devices(host, disk) for disk in disks}
        devices = {**map_devices, **disk_devices}
        uses = {name: known_uses.of(tree) for name, tree in devices.items()}
        numbers = {dev for tree in devices.values() for dev in tree.values()}
        openers = usage.read_openers(host, numbers, known_uses.unread)
        # Counted last: who opens a map while /proc is read shows at least in its open count.
        counts = multipath.open_counts(host) if maps else {}
        # The kernel, or a program that writes, claims a device for itself (O_EXCL). That is not a
        # reader that may be failed.
        members = open_members(last, maps, counts)
        claimed = usage.claimed(host, [*(device_of(disk) for disk in disks), *members])
        for name, tree in disk_devices.items():
            uses[name] += opened(openers, tree)
        for name, tree in devices.items():
            uses[name] += [use for member in tree for use in claimed.get(member, ())]
        return uses, openers, counts

    # apply

    def apply(self, action: Action) -> None:
        """Carry out one action, after one more look at what it changes."""
        planned = self._planned(action)
        try:
            # An array that does not do what it answered may do so again.
            if action is planned.repair[0] and self._failed & self._arrays(planned):
                raise NotStarted("a repair of the same array has failed: see there, and run again")
            self._apply(action)
        except ActionFailed as error:
            # The scans are the last actions of the last repair of an array, so a failure before
            # them leaves earlier repairs without.
            if self._removed.isdisjoint(one.target for one in scanned_targets(planned)):
                raise
            kind = Missed if isinstance(error, NotStarted) else type(error)
            raise kind(
                f"{error}; the targets of what was removed before were not scanned", error.code
            ) from error

    def _planned(self, action: Action) -> Finding:
        return next(
            finding for finding in self._findings if any(step is action for step in finding.repair)
        )

    def _arrays(self, finding: Finding) -> set[str]:
        return pure.repaired_arrays(self._planned_from, finding)

    def _arrays_with(self, seen: Observation) -> Arrays:
        """The arrays of the plan and of a later look."""
        # A repair flushes maps, and these may be all that tells which portals are of one array.
        return find_arrays((*self._planned_from.observations, seen))

    def _apply(self, action: Action) -> None:
        subject = action.subject
        if isinstance(subject, MapSubject):
            steps = {
                "disable_queueing": self._disable_queueing,
                "flush_map": self._flush,
                "restore_queueing": self._restore_queueing,
            }
            steps[action.verb](action, subject)
        elif isinstance(subject, TargetSubject):
            self._scan(action)
        else:
            self._remove(action, subject)

    def undo(self, action: Action) -> Action | None:
        """Switch queueing on again, on a map that could not be flushed."""
        if action.verb != "disable_queueing":
            return None
        # The deadline may have passed, which may be why the action failed.
        self._host.deadline = Deadline(UNDO_SECONDS)
        # It was flushed after all, or queues again already.
        if self._find_map(action.subject.device.wwid) is None or multipath.queueing(self._host).get(
            action.target, False
        ):
            return None
        name = action.target
        return Action(
            "restore_queueing", name, ["multipathd", "restorequeueing", "map", name], action.subject
        )

    def half_made(self, finding: Finding) -> list[str]:
        """What a repair that failed has left that is neither as before nor gone, by the kernel.

        Each step removes what was proven dead right before it, so the next run goes on from there.
        What the target answers by now decides nothing, nor does what the kubelet removes for a pod
        that goes: whoever owns them could else keep all others from their repair.
        """
        host = self._host
        # Nothing more of its array is touched.
        self._failed |= self._arrays(finding)
        # As for undo(), which may have set it already.
        if host.deadline is self._deadline:
            host.deadline = Deadline(max(UNDO_SECONDS, host.deadline.remaining()))
        try:
            begun = [step for step in finding.repair if step.outcome in ("done", "failed")]
            # What is only not proven has to look as repaired.
            if all(step.outcome == "done" for step in finding.repair):
                left = self._left_behind(finding)
            else:
                left = self._maps_changed(finding) + self._paths_left(begun)
            return left + self._unfound(begun) + self._joined(finding, begun)
        finally:
            host.deadline = self._deadline

    def _maps_changed(self, finding: Finding) -> list[str]:
        """Which maps have gained a path, or are gone though paths serve their LUN."""
        maps = {device.wwid: device for device in block.dm_devices(self._host).values()}
        left = []
        for subject in flushed_maps(finding):
            wwid, now = subject.device.wwid, maps.get(subject.device.wwid)
            if now is None:
                left += [f"the map of {wwid} has not come back"] if subject.kept else []
            # With fewer it is on its way: the kernel and the kubelet remove paths, too.
            elif not set(now.slaves) <= set(subject.device.slaves):
                left.append(f"the map {now.name} has other paths than before")
        return left

    def _paths_left(self, begun: list[Action]) -> list[str]:
        """What steps that were begun have neither removed nor left alone."""
        disks = block.disks(self._host, {})
        left = []
        for step in begun:
            if isinstance(step.subject, PathsSubject):
                left += _undeleted(step.subject, disks, self._stuck)
            elif isinstance(step.subject, TargetSubject) and step.outcome == "failed":
                left.append(f"{step.target} may still be scanned")
        return left

    def _unfound(self, begun: list[Action]) -> list[str]:
        """The LUNs that scans of these steps did not find, on arrays that no tenant can run.

        Whoever runs a server may have it withhold the LUN after it was asked. Then the wrong path
        is deleted all the same, its number is free, and nothing else depends on it.
        """
        arrays = find_arrays(self._planned_from.observations)
        return [
            told
            for step in begun
            if isinstance(step.subject, PathsSubject)
            for path in step.subject.paths
            if arrays.of([path.disk.target]).isdisjoint(arrays.of_pods)
            for told in self._absent([path])
        ]

    def _joined(self, finding: Finding, begun: list[Action]) -> list[str]:
        """The maps that a scan of the repair has mixed."""
        scans_made = any(
            isinstance(step.subject, TargetSubject)
            or (isinstance(step.subject, PathsSubject) and step.subject.brings)
            for step in begun
        )
        if not scans_made:
            return []
        # Its scans may be of other arrays, too, of the same maker by what they say.
        targets = {path.disk.target for path in removed_paths(finding).paths}
        return scans.mixed(self._planned_from, self._node_now(), targets, gained_only=True)

    def _recheck(self, action: Action) -> None:
        """All that is repaired together must still be what the plan says, by a fresh look at
        everything; only the time between observations is not repeated.
        """
        planned = self._planned(action)
        # Once for all actions of a finding: in between, its own actions change what is looked at.
        if id(planned) in self._rechecked:
            return
        maps = [subject.device for subject in flushed_maps(planned)]
        paths = removed_paths(planned)
        # Before the first change: a map that no longer queues and is not flushed yet is the worst
        # place to stop at.
        # With its paths, which take as long as they are many, once the maps are gone.
        more = max(0, len(maps) - 1) + max(0, most_removed(planned) - 1)
        require_time(self._host.deadline, _MAP_SECONDS, _MORE_SECONDS * more)
        wanted = {slave for device in maps for slave in device.slaves} | paths.leaving
        with before_a_change():
            # None asks every disk, as for a map without paths.
            seen = self._observe(wanted or None, paths.brings)
            changed = _changed(maps, paths, seen)
            if changed:
                raise NotStarted(f"{', '.join(changed)} has changed since the plan")
            self._require_residual(planned, maps, paths, self._state([seen], wanted))
        self._rechecked.add(id(planned))

    def _require_residual(
        self, planned: Finding, maps: list[DmDevice], paths: PathsSubject, state: ResidualState
    ) -> None:
        """Judged again, it must be the same finding, and still have a repair."""
        cases = [judge_map(state, device, self._options) for device in maps]
        cases += [judge_plain_disk(state, path.disk) for path in paths.paths if path.plain]
        broken = [case for case in cases if case is not None]
        if len(broken) < len(cases):
            raise NotStarted(
                f"{planned.name} is no longer residual: its paths serve the LUN",
                code="path_serves_lun",
            )
        finding = pure.settle(state, self._arrays_with(state.last), broken)
        if not finding.repair:
            raise NotStarted(
                f"{planned.name} is no longer residual: {finding.reason}", finding.code
            )
        # A path that reads nothing by now and one that reads another volume need other repairs.
        if finding.control != planned.control:
            raise NotStarted(
                f"{planned.name} is now another finding, {finding.control}: {finding.summary}"
            )

    def _find_map(self, wwid: str) -> DmDevice | None:
        return next(
            (
                device
                for device in block.dm_devices(self._host).values()
                if device.is_multipath and device.wwid == wwid
            ),
            None,
        )

    def _disable_queueing(self, action: Action, subject: MapSubject) -> None:
        self._recheck(action)
        self._command(action)
        if not self._host.wait_for(
            lambda: not multipath.queueing(self._host).get(subject.device.name, False), _SETTLE
        ):
            raise ActionFailed("the kernel still queues on it")

    def _restore_queueing(self, action: Action, subject: MapSubject) -> None:
        self._command(action)
        if not self._host.wait_for(
            lambda: multipath.queueing(self._host).get(subject.device.name, False), _SETTLE
        ):
            raise ActionFailed(
                "the kernel does not queue on it again, since its "
                "no_path_retry is not 'queue' or has run out"
            )

    def _flush(self, action: Action, subject: MapSubject) -> None:
        self._recheck(action)
        with before_a_change():
            self._require_dead(subject)
        self._command(action)
        # Its exit status is no proof, since it leaves the removal to the daemon (multipath(8), -f).
        if not self._host.wait_for(lambda: self._find_map(subject.device.wwid) is None, _SETTLE):
            raise ActionFailed("the map is still there")

    def _require_dead(self, subject: MapSubject) -> None:
        """A map must be unused, and its paths answer as they did. Raises ActionFailed."""
        device = subject.device
        parts = [
            part.dev for part in block.dm_devices(self._host).values() if part.dm in device.holders
        ]

        def unused() -> bool:
            counts = multipath.open_counts(self._host)
            # Each partition map has the map open once.
            return counts.get(device.dev, 0) <= len(parts) and not any(
                counts.get(part, 0) for part in parts
            )

        # Readers that waited for a path get their errors now, and close the map by themselves.
        if not self._host.wait_for(unused, _READERS_END):
            devs = {device.dev, *parts}
            openers = usage.read_openers(self._host, devs)
            who = [opener.describe() for opener in openers.of(devs)] or list(openers.unread)
            raise ActionFailed(
                f"the map is open by {', '.join(who) or 'a process that /proc does not name'}",
                code="in_use_open",
            )
        # While that was waited for, the LUN may have been mapped to this node again.
        disks = block.disks(self._host, block.transports(self._host))
        answers = self._ask([disk for name, disk in disks.items() if name in subject.judgements])
        for name, planned in subject.judgements.items():
            now = judging.judge(disks.get(name), answers.get(name), device.wwid)
            if not now.same_as(planned):
                raise ActionFailed(f"{name} now is {now.kind}: {now.why}")

    def _command(self, action: Action) -> None:
        result = self._host.run(action.command)
        # Some releases of multipathd answer "fail" and exit with status 0.
        if not result.ok or result.stdout.strip() in ("fail", "timeout"):
            raise ActionFailed(result.describe(), code="program_failed")

    def _remove(self, action: Action, subject: PathsSubject) -> None:
        """Delete paths that are still as planned, unused and in no map, unless the LUNs that took
        their numbers would join a wrong map.
        """
        host = self._host
        more = _MORE_SECONDS * (len(subject.paths) - 1)
        require_time(host.deadline, _PATH_SECONDS, more)
        with before_a_change():
            seen = self._look(subject.leaving, subject.brings)
            # The kernel may have removed one by itself; then only the scan is left to do.
            there = [
                path
                for path in subject.paths
                if host.exists(f"/sys/class/scsi_device/{path.disk.hctl}")
            ]
            for path in there:
                _require_unchanged(path, seen)
            self._require_unused(there, seen)
        risks = scans.mixtures(ResidualState(host.name, (seen,)), subject.brings, subject.leaving)
        risks += scans.claims(seen, self._arrays_with(seen), subject)
        # A LUN that took a number joins the map of its WWID at once, whatever the others read.
        if risks:
            raise NotStarted("; ".join(risks), risks[0].code)
        self._delete(subject, _PATH_SECONDS + more)

    def _require_unused(self, paths: Collection[PathSubject], seen: Observation) -> None:
        """Nothing uses these paths. Raises NotStarted."""
        host = self._host
        disks = [seen.disks[path.disk.name] for path in paths]
        claimed = usage.claimed(host, [device_of(disk) for disk in disks])
        used = {
            disk.name: [Reason("in_use_held", f"still held by {holder}") for holder in disk.holders]
            + claimed[disk.name]
            for disk in disks
        }
        # A path of a map that was just flushed can have had no user but the map.
        trees = {
            path.disk.name: block.disk_devices(host, seen.disks[path.disk.name])
            for path in paths
            if path.plain
        }
        if trees:
            known = usage.UsesByDevice(host)
            numbers = {number for tree in trees.values() for number in tree.values()}
            openers = usage.read_openers(host, numbers, known.unread)
            for name, tree in trees.items():
                used[name] += known.of(tree) + opened(openers, tree)
        for name, reasons in used.items():
            if reasons:
                raise NotStarted(f"{name}: {'; '.join(reasons)}", reasons[0].code)

    def _delete(self, subject: PathsSubject, seconds: float) -> None:
        """Delete the paths; where another LUN has taken a number, scan for that.

        Both happen in one child, so that a kill in between loses no path. A LUN that an undeleted
        path was found as is not scanned for: the new disk would join that path.
        """
        host = self._host

        def left() -> list[PathSubject]:
            return [
                path
                for path in subject.paths
                if host.exists(f"/sys/class/scsi_device/{path.disk.hctl}")
            ]

        def deleting() -> list[str]:
            there: list[PathSubject] = []
            try:
                for path in left():
                    # By the address: sdX may be another disk by now.
                    _write(host.path(f"/sys/class/scsi_device/{path.disk.hctl}/device/delete"), "1")
                host.wait_for(lambda: not left(), _SETTLE)
            finally:
                # Also after an error: what was deleted by then still needs its scan.
                there += left()
                wrong = {path.expected for path in there}
                for path in subject.paths:
                    if (
                        path not in there
                        and path.judgement.wwids
                        and wrong.isdisjoint(path.judgement.wwids)
                    ):
                        number, channel, target, lun = path.disk.hctl.split(":")
                        _write(
                            host.path(f"/sys/class/scsi_host/host{number}/scan"),
                            f"{channel} {target} {lun}",
                        )
            return [path.disk.hctl for path in there]

        # Without command_timeout, which could end the child between deletion and scan.
        reply = call(deleting, seconds)
        self._stuck |= {path.disk.hctl for path in left()} if reply.problem else set(reply.value)
        if reply.problem or reply.value:
            raise ActionFailed(
                reply.problem
                or f"{', '.join(reply.value)} still there {_SETTLE:g} s after it was deleted"
            )
        if not host.wait_for(lambda: not self._absent(subject.paths), _SETTLE):
            raise ActionFailed(f"after the scan {', '.join(self._absent(subject.paths))}")

    def _absent(self, paths: Iterable[PathSubject]) -> list[str]:
        """The LUNs that took the numbers and were not found by the scan, as sentences."""
        replaced = [path for path in paths if path.judgement.wwids]
        there = (
            {(disk.hctl, disk.wwid) for disk in block.disks(self._host, {}).values()}
            if replaced
            else set()
        )
        return [
            f"{path.disk.hctl} is not there as {' or '.join(path.judgement.wwids)}"
            for path in replaced
            if there.isdisjoint((path.disk.hctl, wwid) for wwid in path.judgement.wwids)
        ]

    def _scan(self, action: Action) -> None:
        """Have the kernel scan a target. It adds disks it does not know and changes no others
        (drivers/scsi/scsi_scan.c scsi_scan_target).
        """
        with before_a_change():
            now = self._node_now()
        risks = scans.mixtures(now, None, set(), [action.subject.target])
        if risks:
            raise NotStarted("; ".join(risks), risks[0].code)
        _write_word, file, text = action.command
        reply = self._host.bounded(lambda: _write(self._host.path(file), text), _PATH_SECONDS)
        if reply.problem:
            raise ActionFailed(reply.problem)

    def _node_now(self) -> ResidualState:
        """All disks and maps, asked once."""
        return ResidualState(self._host.name, (self._look(None),))

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the map and its paths are gone from the kernel, from multipathd and from
        /dev/disk/by-id, and that no map is mixed.
        """
        doubts: list[str] = []

        def clean() -> bool:
            left = [
                *self._absent(removed_paths(finding).paths),
                *self._left_behind(finding),
                *self._links_left(finding),
            ]
            doubts[:] = left or self._mixed(finding)
            return not doubts

        # udev removes links in its own time, after the kernel's event (udev(7)).
        if not self._host.wait_for(clean, 2 * _SETTLE):
            raise ActionFailed(
                f"the repair of {finding.name} is not proven: {'; '.join(doubts)}",
                code="repair_unproven",
            )
        self._removed |= {path.disk.target for path in removed_paths(finding).paths}
        return [
            *self._proof_of_removal(finding),
            "every path of its array's maps was asked once more, and none joined a map of another "
            "volume",
            *(self._appeared(subject) for subject in scanned_targets(finding)),
        ]

    def _proof_of_removal(self, finding: Finding) -> list[str]:
        paths = removed_paths(finding).paths
        known = "" if multipath.known_paths(self._host) is None else ", from multipathd"
        there = {
            device.wwid for device in block.dm_devices(self._host).values() if device.is_multipath
        }
        gone = f"is gone from sysfs{known} and from /dev/disk/by-id"
        return [
            *(
                f"{name} ({wwid}) {'is there again, by other paths' if wwid in there else gone}"
                for name, wwid in _subjects(finding)
            ),
            *(f"{path.disk.hctl} was deleted" for path in paths if not path.judgement.wwids),
            *(
                f"{path.disk.hctl} now is {path.judgement.wwid}"
                for path in paths
                if path.judgement.wwids
            ),
        ]

    def _appeared(self, subject: TargetSubject) -> str:
        """The disks that a scan has added; none is not an error, since the LUN may be known
        already, or not mapped yet.
        """
        found = block.disks(self._host, {}).values()
        new = [
            disk
            for disk in found
            if disk.target == subject.target and (disk.hctl, disk.wwid) not in subject.known
        ]
        names = ", ".join(f"{disk.name} ({disk.hctl}, {disk.wwid})" for disk in new)
        return f"{subject.target} was scanned, which brought {names or 'nothing new'}"

    def _left_behind(self, finding: Finding) -> list[str]:
        """What of a repaired finding is still there, or the maps that have not come back."""
        # Read again: verify() polls until the kernel, udev and multipathd have followed.
        host, paths, disks = self._host, removed_paths(finding), block.disks(self._host, {})
        dm = block.dm_devices(host)
        known = multipath.known_paths(host)
        # The kernel gives the name of a deleted disk to the next one, whoever's that is.
        gone = paths.leaving - disks.keys() - set(host.names("/sys/block"))
        doubts = _undeleted(paths, disks, self._stuck)
        if any(action.verb == "flush_map" for action in finding.repair):
            daemon = multipath.ask_daemon(host, dm)
            doubts += [daemon.problem] if daemon.problem else []
            doubts += ["multipathd does not tell its paths"] if known is None else []
            doubts += _maps_left(finding, dm, daemon)
        return doubts + [
            f"multipathd still lists {name}" for name in sorted(gone & (known or set()))
        ]

    def _links_left(self, finding: Finding) -> list[str]:
        """The links to what was removed that udev has left.

        A link leads nowhere, or to what took the place of a removed map or path. udev makes them by
        what a LUN says of itself: one that leads elsewhere may be of any LUN, and says nothing.
        """
        host, paths = self._host, removed_paths(finding)
        # Read before the devices: a link that is there is then judged by all that it can lead to.
        links = {
            link: host.link(f"/dev/disk/by-id/{link}").rpartition("/")[2]
            for link in host.names("/dev/disk/by-id")
        }
        disks, dm = block.disks(host, {}), block.dm_devices(host)
        addresses = {path.disk.hctl for path in paths.paths}
        flushed = {subject.device.dm for subject in flushed_maps(finding)}
        # What is in the place of a removed device by now -> its WWID.
        instead = {
            **{name: disk.wwid for name, disk in disks.items() if disk.hctl in addresses},
            **{name: device.wwid for name, device in dm.items() if name in flushed},
        }
        there = disks.keys() | dm.keys() | set(host.names("/sys/block"))

        def is_left(link: str, target: str) -> bool:
            named = {wwid for _name, wwid in _subjects(finding) if _speaks_of(link, wwid)}
            if target not in there:
                return bool(named) or target in paths.leaving
            return target in instead and bool(named - {instead[target]})

        return [
            f"/dev/disk/by-id/{link} is left"
            for link, target in links.items()
            if is_left(link, target)
        ]

    def _mixed(self, finding: Finding) -> list[str]:
        """Whether a map of the node has become mixed, or still may by the disks that were added."""
        now, paths = self._node_now(), removed_paths(finding)
        brought = paths.brings
        # A scan of a whole target may find the removed LUNs again, under other numbers.
        if scanned_targets(finding):
            brought |= {wwid for _name, wwid in _subjects(finding)}
        return [
            *scans.mixed(self._planned_from, now, _touched_targets(finding)),
            *scans.mixtures(now, brought, set()),
        ]


class ResidualAudit(ResidualPaths):
    """The same for a report, where what cannot be known is not assessed and no reason to refuse."""

    def plan(self, state: ResidualState) -> Plan:
        """Decide, from what was gathered."""
        return pure.plan(state, self._options, repairing=False)

    def not_assessed(self, state: ResidualState) -> dict[str, Reason]:
        """The control of which only a part was looked at."""
        return pure.not_assessed(state)


def _require_unchanged(path: PathSubject, seen: Observation) -> None:
    """A path must be the planned one, and answer as it did. Raises NotStarted."""
    planned, disk = path.disk, seen.disks.get(path.disk.name)
    # The kernel gives the name of a disk that went to the next one that comes.
    if disk is None or (disk.hctl, disk.dev) != (planned.hctl, planned.dev):
        raise NotStarted(f"{planned.hctl} is no longer {planned.name}")
    now = judging.judge(disk, seen.answers.get(disk.name), path.expected)
    if not now.same_as(path.judgement):
        raise NotStarted(f"{disk.name} now is {now.kind}: {now.why}")


def _speaks_of(link: str, wwid: str) -> bool:
    """Whether a link of /dev/disk/by-id is named by this WWID."""
    # The names that udev gives (systemd, rules.d/60-persistent-storage.rules; multipath-tools,
    # 11-dm-mpath.rules).
    names = (f"dm-uuid-mpath-{wwid}", f"scsi-{wwid}", f"wwn-0x{wwid[1:]}")
    return bool(wwid) and link in names


def _touched_targets(finding: Finding) -> set[str]:
    """The targets of which a repair removes paths, or that it scans."""
    removed = {path.disk.target for path in removed_paths(finding).paths}
    return removed | {subject.target for subject in scanned_targets(finding)}


def _subjects(finding: Finding) -> list[tuple[str, str]]:
    """(name, WWID) of every map and disk that a repair is about."""
    maps = [subject.device for subject in flushed_maps(finding)]
    plain = [path for path in removed_paths(finding).paths if path.plain]
    return [
        *((device.name, device.wwid) for device in maps),
        *((path.disk.name, path.expected) for path in plain),
    ]


def _maps_left(finding: Finding, dm: dict[str, DmDevice], daemon: multipath.Daemon) -> list[str]:
    """Which flushed maps are still there; or are not, though their LUN has paths again."""
    doubts = []
    maps = {device.wwid: device for device in dm.values() if device.is_multipath}
    brings, scanned = removed_paths(finding).brings, scanned_targets(finding)
    for subject in flushed_maps(finding):
        wwid, name = subject.device.wwid, subject.device.name
        # The scan may have brought new paths of its LUN, from which multipathd makes it again.
        if wwid not in brings and not scanned:
            doubts += [f"the map {name} is back"] if wwid in maps else []
            # Its name there, since another map may have it in the kernel by now.
            stale = subject.device.dm in daemon.known and subject.device.dm not in dm
            doubts += [f"multipathd still lists the map {name}"] if stale else []
        elif subject.kept and not (wwid in maps and subject.kept <= set(maps[wwid].slaves)):
            doubts.append(f"the map of {wwid} has not come back")
    return doubts


def _changed(maps: list[DmDevice], paths: PathsSubject, seen: Observation) -> list[str]:
    """Names of the maps and paths that are no longer what was planned for."""
    now = {device.wwid: device for device in seen.maps}
    changed = [device.name for device in maps if now.get(device.wwid) != device]
    return changed + [
        path.disk.name for path in paths.paths if seen.disks.get(path.disk.name) != path.disk
    ]


def _undeleted(paths: PathsSubject, disks: dict[str, Disk], stuck: Collection[str]) -> list[str]:
    """The paths that were deleted and are still there, with the same identity.

    Where a LUN took the number, it may be there as that by now. ``stuck``: addresses of disks that
    the kernel has not let go of, which are told from that.
    """
    return [
        f"{disk.hctl}: {disk.name} is still there"
        for path in paths.paths
        if not path.judgement.wwids or path.disk.hctl in stuck
        for disk in disks.values()
        if (disk.hctl, disk.wwid) == (path.disk.hctl, path.disk.wwid)
    ]


def _empty_maps(observation: Observation) -> bool:
    return any(not device.slaves for device in observation.maps)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
