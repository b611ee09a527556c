# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Residual multipath maps and SCSI disks: reads the node, carries out what residual_plan decides,
and proves it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    call,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    Plan,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    block,
    multipath,
    processes,
    usage,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import Disk, DmDevice
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import (
    UNDO_SECONDS,
    Host,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths import (
    plan as pure,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.plan import (
    MapSubject,
    Observation,
    Options,
    PathsSubject,
    PathSubject,
    State,
    TargetSubject,
)

# How long (seconds) the kernel, udev and multipathd get to follow a change before it counts as
# failed.
_SETTLE = 15.0
# A reader freed by disabling queueing ends within a second; one that is still there after this
# (seconds) is not going to.
_READERS_END = 10.0
# A map is not begun with less time left: disabling queueing, flushing and proving must fit.
_MAP_SECONDS = 2 * _SETTLE + _READERS_END
# The same for a path: deleting, and the scan that may have to follow.
_PATH_SECONDS = 2 * _SETTLE
# And for each further map or path that goes with the first one.
_MORE_SECONDS = 2.0


def residual_options(params: dict[str, Any]) -> Options:
    """Options of ResidualPaths, checked.

    Modules that only report lack the risks, and get their defaults.
    """
    for name, least in (
        ("observations", 1),
        ("observation_seconds", 0),
        ("probe_timeout", 0.1),
        ("max_repairs", 0),
    ):
        if not params.get(name, least) >= least:  # not a number is neither
            raise BadOption(f"{name} is {params[name]:g}; give at least {least:g}")
    empty = [name for name in ("maps", "wwids") if any(not item.strip() for item in params[name])]
    if empty:
        raise BadOption(f"{empty[0]} has an empty name; leave the option out to look at everything")
    # An audit repairs nothing, so it has no limit to stay under.
    given = {
        "max_repairs": 1_000_000,
        **{name: params[name] for name in Options.__dataclass_fields__ if name in params},
    }
    wwids = tuple(_spelled(wwid.strip()) for wwid in params["wwids"])
    return Options(
        **{**given, "maps": tuple(name.strip() for name in params["maps"]), "wwids": wwids}
    )


def _spelled(wwid: str) -> str:
    """A WWID as multipath spells it: those that are a number (NAA, EUI-64) in small letters."""
    return wwid.lower() if wwid[:1] in ("2", "3") else wwid


class ResidualPaths:
    """The runbook clean_residual_paths on one node."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options
        # What was planned, and what of it was looked at again, right before its first action.
        self._planned_from = State(host.name, ())
        self._findings: list[Finding] = []
        self._rechecked: set[int] = set()
        self._proven = 0

    def gather(self) -> State:
        """Ask every disk once; where something is wrong, find out who uses it.

        It is observed further only where that may decide something.
        """
        self._host.require_root()
        processes.require_host_namespace(self._host)
        if not self._host.exists("/sys/block"):
            raise StorageOpsError(
                "there is no /sys here, so no disk would be seen: connect to the node itself (ssh, "
                "no container)",
                code="privileges_missing",
            )
        observations = [self._observe(None)]
        denied = [name for name, answer in observations[0].answers.items() if answer.denied]
        if denied:
            raise StorageOpsError(
                f"{', '.join(denied[:3])} may not be asked: run as root, with all of its "
                "capabilities",
                code="privileges_missing",
            )
        wanted = pure.suspects(observations[0])
        if pure.undecided(observations[0]) or _empty_maps(observations[0]):
            pause = self._options.observation_seconds / max(1, self._options.observations - 1)
            for _number in range(1, self._options.observations):
                self._host.sleep(pause)
                observations.append(self._observe(wanted))
        return self._state(observations, wanted)

    def plan(self, state: State) -> Plan:
        """Decide."""
        plan = pure.plan(state, self._options)
        self._planned_from, self._findings = state, plan.findings
        return plan

    def healthy(self, state: State) -> str:
        """Counts of what was asked, and the scope if there was one: what is out of it was not
        judged.
        """
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

    def _observe(self, wanted: set[str] | None, wwids: Collection[str] = ()) -> Observation:
        """One observation, with what multipathd and the targets of the suspects say; arguments as
        of ``_look``.
        """
        seen = self._look(wanted, wwids)
        daemon = multipath.ask_daemon(self._host) if seen.maps else multipath.Daemon()
        luns = self._report_luns(seen, pure.suspects(seen) if wanted is None else wanted)
        return replace(seen, daemon=daemon, luns=luns)

    def _look(self, wanted: set[str] | None, wwids: Collection[str] = ()) -> Observation:
        """What there is, and what the disks answer.

        ``wanted``: names of the disks to ask, None for all. ``wwids``: ask those too that are paths
        of such a map, or were found as such a LUN.
        """
        host = self._host
        transports = block.transports(host)
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
        """Ask the disks whose transport works; the question to the others would only hang."""
        reachable = [disk for disk in disks if disk.reachable]
        answers = self._host.ask(
            [(disk.name, report_luns) for disk in reachable], self._options.probe_timeout
        )
        found = {disk.name: Answer(problem=f"not asked: device {disk.state}") for disk in disks}
        found.update({disk.name: answer for disk, answer in zip(reachable, answers)})
        return found

    def _report_luns(self, seen: Observation, suspects: set[str]) -> dict[str, tuple[int, ...]]:
        """What the targets of the suspects say they serve, each asked through a disk that does
        answer if it has one.
        """
        through: dict[str, Disk] = {}
        for disk in seen.disks.values():
            if disk.name in suspects:
                through.setdefault(disk.target, disk)
        for disk in seen.disks.values():
            if disk.target in through and disk.name not in suspects:
                through[disk.target] = disk
        answers = self._ask(list(through.values()), report_luns=True) if through else {}
        luns = {target: answers[disk.name].luns for target, disk in through.items()}
        return {target: numbers for target, numbers in luns.items() if numbers is not None}

    def _state(self, observations: list[Observation], wanted: set[str]) -> State:
        """Add who uses the suspects, and how the kernel treats the maps among them; nothing more is
        read when there are none.
        """
        host, last = self._host, observations[-1]
        aliases = multipath.aliases(host) if self._options.maps else {}
        suspect_maps = [
            device for device in last.maps if not device.slaves or wanted & set(device.slaves)
        ]
        suspect_disks = [disk for disk in last.plain_disks if disk.name in wanted]
        if not suspect_maps and not suspect_disks:
            return State(host.name, tuple(observations), aliases=aliases)
        known_uses = usage.UsesByDevice(host)
        map_devices = {device.dm: _tree(last, device) for device in suspect_maps}
        disk_devices = {disk.name: block.disk_devices(host, disk) for disk in suspect_disks}
        devices = {**map_devices, **disk_devices}
        uses = {name: known_uses.of(tree) for name, tree in devices.items()}
        openers = usage.openers(host, {dev for tree in devices.values() for dev in tree.values()})
        counts = multipath.open_counts(host) if suspect_maps else {}
        for name, tree in disk_devices.items():
            uses[name] += _opened(openers, tree)
            uses[name] += usage.exclusive_open(host, name)
        for name, tree in map_devices.items():
            # Whoever has claimed the map for itself is the kernel or a program that writes: no
            # reader that may be failed.
            for dm in [dm for dm in tree if counts.get(tree[dm], 0) and not last.dm[dm].holders]:
                uses[name] += usage.exclusive_open(host, dm)
        return State(
            host.name,
            tuple(observations),
            multipath.checker_interval(host),
            multipath.queueing(host) if suspect_maps else {},
            counts,
            openers,
            uses,
            aliases,
        )

    # apply

    def apply(self, action: Action) -> None:
        """Carry out one action, after looking once more at what it changes."""
        try:
            self._apply(action)
        except NotStarted as error:
            # The scan comes at the end of the run, so what ends it takes the scan from those before
            # it.
            if self._options.rescan_targets and self._proven:
                raise ActionFailed(
                    f"{error}; the targets of what was removed before were not scanned",
                    error.code,
                ) from error
            raise

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
        """Queueing is switched on again on a map that could not be flushed."""
        if action.verb != "disable_queueing":
            return None
        # The deadline may be what failed the action; taking it back has time of its own.
        self._host.deadline = Deadline(UNDO_SECONDS)
        if self._find_map(action.subject.device.wwid) is None or multipath.queueing(self._host).get(
            action.target, False
        ):
            return None
        name = action.target
        return Action(
            "restore_queueing", name, ["multipathd", "restorequeueing", "map", name], action.subject
        )

    def _recheck(self, action: Action) -> None:
        """All that is repaired together must still be what the plan says, by a fresh look at
        everything but time.
        """
        planned = next(
            finding for finding in self._findings if any(step is action for step in finding.repair)
        )
        if id(planned) in self._rechecked:
            return
        maps = [step.subject.device for step in planned.repair if step.verb == "flush_map"]
        paths = _paths(planned)
        needed = _MAP_SECONDS + _MORE_SECONDS * (len(maps) - 1)
        if self._host.deadline.remaining() < needed:
            raise Prevented(
                f"less than {needed:g} s are left of the deadline; run again, or raise it"
            )
        wanted = {slave for device in maps for slave in device.slaves} | paths.leaving
        seen = self._observe(wanted or None, paths.brings)
        now = {device.wwid: device for device in seen.maps}
        changed = [device.name for device in maps if now.get(device.wwid) != device]
        changed += [
            path.disk.name for path in paths.paths if seen.disks.get(path.disk.name) != path.disk
        ]
        if changed:
            raise NotStarted(f"{', '.join(changed)} is no longer as it was planned for")
        state = self._state([seen], wanted)
        cases = [pure.judge_map(state, device, self._options) for device in maps]
        cases += [pure.judge_plain_disk(state, path.disk) for path in paths.paths if path.plain]
        broken = [case for case in cases if case is not None]
        if len(broken) < len(cases):
            raise NotStarted(
                f"{planned.name} is no longer residual: its paths serve the LUN",
                code="path_serves_lun",
            )
        finding = pure.settle(state, broken)
        if not finding.repair:
            raise NotStarted(
                f"{planned.name} is no longer residual: {finding.reason}", finding.code
            )
        if finding.control != planned.control:
            raise NotStarted(
                f"{planned.name} is another finding by now, {finding.control}: {finding.summary}"
            )
        self._rechecked.add(id(planned))

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
        device = subject.device
        parts = [
            part.dev for part in block.dm_devices(self._host).values() if part.dm in device.holders
        ]

        def unused() -> bool:
            counts = multipath.open_counts(self._host)
            return counts.get(device.dev, 0) <= len(parts) and not any(
                counts.get(part, 0) for part in parts
            )

        if not self._host.wait_for(unused, _READERS_END):
            who = [
                opener.describe()
                for found in usage.openers(self._host, {device.dev, *parts}).values()
                for opener in found
            ]
            raise ActionFailed(
                f"the map is open by {', '.join(who) or 'somebody that /proc does not name'}",
                code="in_use_open",
            )
        # Waiting took a while, in which somebody may have mapped the LUN again.
        disks = block.disks(self._host, block.transports(self._host))
        answers = self._ask([disk for name, disk in disks.items() if name in subject.judgements])
        for name, planned in subject.judgements.items():
            now = pure.judge(disks.get(name), answers.get(name), device.wwid)
            if not now.same_as(planned):
                raise ActionFailed(f"{name} now is {now.kind}: {now.why}")
        self._command(action)
        if not self._host.wait_for(lambda: self._find_map(device.wwid) is None, _SETTLE):
            raise ActionFailed("the map is still there")

    def _command(self, action: Action) -> None:
        result = self._host.run(action.command)
        # multipathd says "fail" with exit status 0 in some releases.
        if not result.ok or result.stdout.strip() in ("fail", "timeout"):
            raise ActionFailed(result.describe(), code="program_failed")

    def _remove(self, action: Action, subject: PathsSubject) -> None:
        """Delete paths that are still as planned for, unused and in no map, if what takes their
        numbers joins nothing wrong.
        """
        host = self._host
        needed = _PATH_SECONDS + _MORE_SECONDS * (len(subject.paths) - 1)
        if host.deadline.remaining() < needed:
            raise Prevented(
                f"less than {needed:g} s are left of the deadline; run again, or raise it"
            )
        seen = self._look(subject.leaving, subject.brings)
        for path in subject.paths:
            # Where the kernel was quicker, there is only the scan left to do.
            if host.exists(f"/sys/class/scsi_device/{path.disk.hctl}"):
                self._require_unchanged(path, seen)
        risks = pure.mixtures(State(host.name, (seen,)), subject.brings, subject.leaving)
        if risks:
            raise NotStarted("; ".join(risks), risks[0].code)
        self._delete(subject, needed)

    def _require_unchanged(self, path: PathSubject, seen: Observation) -> None:
        """A path must be the one that was planned for, answer as it did, and have no user."""
        planned, disk = path.disk, seen.disks.get(path.disk.name)
        if disk is None or (disk.hctl, disk.dev) != (planned.hctl, planned.dev):
            raise NotStarted(f"{planned.hctl} is no longer {planned.name}")
        now = pure.judge(disk, seen.answers.get(disk.name), path.expected)
        if not now.same_as(path.judgement):
            raise NotStarted(f"{disk.name} now is {now.kind}: {now.why}")
        used = self._used(disk, path.plain)
        if used:
            raise NotStarted(f"{disk.name}: {'; '.join(used)}", used[0].code)

    def _used(self, disk: Disk, plain: bool) -> list[Reason]:
        """Why a disk may not be deleted.

        The paths of a map that has just been flushed had no user but the map.
        """
        used = [
            Reason("in_use_held", f"still held by {holder}") for holder in disk.holders
        ] + usage.exclusive_open(self._host, disk.name)
        if plain:
            tree = block.disk_devices(self._host, disk)
            used += usage.UsesByDevice(self._host).of(tree) + _opened(
                usage.openers(self._host, set(tree.values())), tree
            )
        return used

    def _delete(self, subject: PathsSubject, seconds: float) -> None:
        """Delete; where another LUN took a number, scan for it in the same child, so that a kill in
        between loses no path.

        Nothing is scanned for that a path which is still there was found as: it would be taken for
        a path of the same LUN.
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
                    _write(host.path(f"/sys/class/scsi_device/{path.disk.hctl}/device/delete"), "1")
                host.wait_for(lambda: not left(), _SETTLE)
            finally:
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

        # Not cut short by command_timeout: what was deleted must be scanned for.
        reply = call(deleting, seconds)
        if reply.problem or reply.value:
            raise ActionFailed(
                reply.problem
                or f"{', '.join(reply.value)} still there {_SETTLE:g} s after it was deleted"
            )
        if not host.wait_for(lambda: not self._absent(subject), _SETTLE):
            raise ActionFailed(f"after the scan {', '.join(self._absent(subject))}")

    def _absent(self, subject: PathsSubject) -> list[str]:
        """Which of the LUNs that took the numbers are not there."""
        replaced = [path for path in subject.paths if path.judgement.wwids]
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
        """Have the kernel ask the target what it serves; it adds what it does not know yet, and
        leaves all else alone.
        """
        risks = pure.mixtures(self._node_now(), None, set())
        if risks:
            raise Prevented("; ".join(risks), risks[0].code)
        _write_word, file, text = action.command
        reply = self._host.bounded(lambda: _write(self._host.path(file), text), _PATH_SECONDS)
        if reply.problem:
            raise ActionFailed(reply.problem)

    def _node_now(self) -> State:
        """All disks and maps, looked at once."""
        return State(self._host.name, (self._look(None),))

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the map and its paths are gone from the kernel, multipathd and
        /dev/disk/by-id, and that no map is mixed.
        """
        doubts: list[str] = []

        def clean() -> bool:
            doubts[:] = self._left_behind(finding) or self._mixed(finding)
            return not doubts

        if not self._host.wait_for(clean, 2 * _SETTLE):
            raise StorageOpsError(
                f"the repair of {finding.name} is not proven: {'; '.join(doubts)}",
                code="repair_unproven",
            )
        self._proven += 1
        paths = _paths(finding)
        known = "" if multipath.known_paths(self._host) is None else ", from multipathd"
        there = {
            device.wwid for device in block.dm_devices(self._host).values() if device.is_multipath
        }
        gone = f"is gone from sysfs{known} and from /dev/disk/by-id"
        proof = [
            f"{name} ({wwid}) {'is there again, by other paths' if wwid in there else gone}"
            for name, wwid in _subjects(finding)
        ]
        proof += [
            f"{path.disk.hctl} was deleted" for path in paths.paths if not path.judgement.wwids
        ]
        proof += [
            f"{path.disk.hctl} now is {path.judgement.wwid}"
            for path in paths.paths
            if path.judgement.wwids
        ]
        proof.append(
            "every path of the node's maps was asked once more, and "
            "none joined a map of another volume"
        )
        scanned = [
            action.subject for action in finding.repair if isinstance(action.subject, TargetSubject)
        ]
        return proof + [self._appeared(subject) for subject in scanned]

    def _appeared(self, subject: TargetSubject) -> str:
        """What a scan has brought.

        Nothing is no fault: the LUN may be known already, or not be mapped yet.
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
        """What of a repaired finding is still to be seen, or has not come back."""
        host, paths, disks = self._host, _paths(finding), block.disks(self._host, {})
        dm = block.dm_devices(host)
        maps = {device.wwid: device for device in dm.values() if device.is_multipath}
        names = {name for name in paths.leaving if name not in disks}
        doubts = self._absent(paths)
        for path in paths.paths:
            there = [
                disk
                for disk in disks.values()
                if (disk.hctl, disk.wwid) == (path.disk.hctl, path.disk.wwid)
            ]
            doubts += [
                f"{disk.hctl}: {disk.name} is still there"
                for disk in there
                if not path.judgement.wwids
            ]
        known = multipath.known_paths(host)
        scanned = any(isinstance(action.subject, TargetSubject) for action in finding.repair)
        flushed = [action.subject for action in finding.repair if action.verb == "flush_map"]
        if flushed:
            daemon = multipath.ask_daemon(host)
            doubts += [daemon.problem] if daemon.problem else []
            doubts += ["multipathd does not tell its paths"] if known is None else []
        for subject in flushed:
            wwid, name = subject.device.wwid, subject.device.name
            if wwid not in paths.brings and not scanned:
                doubts += [f"the map {name} is back"] if wwid in maps else []
                doubts += [f"multipathd still lists the map {name}"] if wwid in daemon.paths else []
            elif subject.kept and not (wwid in maps and subject.kept <= set(maps[wwid].slaves)):
                doubts.append(f"the map of {wwid} has not come back")
        doubts += [f"multipathd still lists {name}" for name in sorted(names & (known or set()))]
        wwids = {wwid for _name, wwid in _subjects(finding)}
        links = host.names("/dev/disk/by-id")
        return doubts + [
            f"/dev/disk/by-id/{link} is left"
            for link in links
            for wwid in wwids
            if self._lies(link, wwid, names, disks, dm)
        ]

    def _mixed(self, finding: Finding) -> list[str]:
        """Whether any map of the node has become mixed, or still may by what was brought in."""
        now, brought = self._node_now(), _paths(finding).brings
        # A scan of a whole target may have brought back what was removed, by another number.
        if any(isinstance(action.subject, TargetSubject) for action in finding.repair):
            brought |= {wwid for _name, wwid in _subjects(finding)}
        return [*pure.mixed(self._planned_from, now), *pure.mixtures(now, brought, set())]

    def _lies(
        self, link: str, wwid: str, gone: set[str], disks: dict[str, Disk], dm: dict[str, DmDevice]
    ) -> bool:
        """A link that still speaks of the LUN, or leads to a deleted disk, and no device stands
        behind it.
        """
        target = self._host.link(f"/dev/disk/by-id/{link}").rpartition("/")[2]
        speaks_of_it = bool(wwid) and link in (
            f"dm-uuid-mpath-{wwid}",
            f"scsi-{wwid}",
            f"wwn-0x{wwid[1:]}",
        )
        if target not in gone and not speaks_of_it:
            return False
        return wwid not in (
            [disks[target].wwid] if target in disks else [dm[target].wwid] if target in dm else []
        )


def _paths(finding: Finding) -> PathsSubject:
    """All paths that a repair removes."""
    subjects = [
        action.subject for action in finding.repair if isinstance(action.subject, PathsSubject)
    ]
    return PathsSubject(tuple(path for subject in subjects for path in subject.paths))


def _subjects(finding: Finding) -> list[tuple[str, str]]:
    """Name and WWID of every map and disk that a repair is about."""
    maps = [action.subject.device for action in finding.repair if action.verb == "flush_map"]
    plain = [path for path in _paths(finding).paths if path.plain]
    return [
        *((device.name, device.wwid) for device in maps),
        *((path.disk.name, path.expected) for path in plain),
    ]


def _opened(openers: dict[str, list[usage.Opener]], tree: dict[str, str]) -> list[Reason]:
    """Who has a disk open; udev does not count, since it only looks and lets go."""
    return [
        Reason("in_use_open", f"opened by {opener.describe()}")
        for dev in tree.values()
        for opener in openers.get(dev, [])
        if not opener.udev
    ]


def _empty_maps(observation: Observation) -> bool:
    return any(not device.slaves for device in observation.maps)


def _tree(observation: Observation, device: DmDevice) -> dict[str, str]:
    """A map and the partition maps on it: kernel name -> major:minor."""
    parts = [
        observation.dm[name]
        for name in device.holders
        if name in observation.dm and observation.dm[name].is_partition
    ]
    return {member.dm: member.dev for member in (device, *parts)}


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
