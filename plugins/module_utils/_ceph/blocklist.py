# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ceph's blocklist: read it, add, renew and remove entries, and read it back."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, NamedTuple

from .._core.argspec import check_numbers
from .._core.bounded import Deadline
from .._core.codes import Reason
from .._core.engine import Action, ActionFailed, Finding, Plan, Prevented, require_time
from .._core.errors import BadOption, StorageOpsError, words
from .._core.ip import Network, exact_network, family, normal_address
from .addresses import (
    ADDRESS,
    CLIENT,
    RANGE,
    Entry,
    parse_entry,
    parse_network,
    parse_stored,
)
from .cli import Ceph, Denied

# Seven days: a node that comes back after its entry has expired writes again. Ten years: Ceph
# counts time in 32 bits, until 2106.
SHORTEST_EXPIRY_SECONDS, LONGEST_EXPIRY_SECONDS = 604_800, 315_360_000
# The verbs of "ceph osd blocklist", as the monitor's command table has them
# (src/mon/MonCommands.h).
ADD, REMOVE = "add", "rm"
_VERBS = {ADD: "add_blocklist_entry", REMOVE: "remove_blocklist_entry"}
# What stands in for an entry while it is renewed goes again within a second. If we are killed
# meanwhile, the data stay protected for a week at least, until this time of the day, by which the
# next run tells it from an operator's entry. Ceph counts from when it is told, which is a
# moment later.
_STAND_IN_ENDS = timedelta(hours=3, minutes=33, seconds=33)
_STAND_IN_EARLY, _STAND_IN_LATE = timedelta(minutes=1), timedelta(minutes=2)
_DAY = timedelta(days=1)
_STAND_IN_LEFT = timedelta(hours=1)
# Ceph's tool lets them pass and the monitor does not, but only after it has looked at the
# capabilities: rc 22 says that the user may, rc 13 that it may not, and the OSD map stays as it is.
# Should a monitor ever understand them: they are given to no host (RFC 5737).
_PROBES = {
    ADDRESS: "[::ffff:192.0.2.1]:0/0",
    CLIENT: "[::ffff:192.0.2.1]:0/1",
    RANGE: "192.0.2.0/999",
}
# The exit code of the tool is the errno of the monitor's answer (src/ceph.in): EINVAL here, EACCES
# where the capabilities do not allow the command.
_EINVAL = 22
# What is given back ends when it would have ended, but for this, since Ceph counts from when it is
# told; and what is about to end is not.
_GIVEN_LATE, _LEAST_GIVEN = timedelta(minutes=2), timedelta(minutes=1)
_THIS_HOST = "this very host"
# No entry is begun with less of the deadline left (seconds). A healthy cluster answers a command in
# 0.2 s, and an entry takes twelve at most.
_LEAST_SECONDS = 5.0
# So much at least has each further step of an entry that was begun, also beyond the deadline: it
# can wait for one command that hangs.
_STEP_SECONDS = 20.0


class Blocked(NamedTuple):
    """An entry that is there.

    ``text``: as Ceph spells and takes it, a range as CIDR, with the host bits it may have.
    """

    entry: Entry
    text: str
    until: datetime

    def to_result(self, now: datetime, clients: int = 0) -> dict[str, Any]:
        """As modules return it. ``clients``: at its address, if it is for one of them."""
        entry = {
            "entry": self.text,
            "kind": self.entry.kind,
            "address": self.entry.address,
            "until": self.until_text,
        }
        return {**entry, "stand_in": self.is_stand_in(now), "clients": clients}

    def is_stand_in(self, now: datetime) -> bool:
        """It ends as only those do that we put in while another entry is renewed; there is none for
        a single client.
        """
        longest = timedelta(seconds=SHORTEST_EXPIRY_SECONDS) + _DAY + _STAND_IN_LATE
        late = (self.until - _midnight(self.until) - _STAND_IN_ENDS + _STAND_IN_EARLY) % _DAY
        return (
            self.entry.kind != CLIENT
            and self.until - now <= longest
            and late <= _STAND_IN_EARLY + _STAND_IN_LATE
        )

    @property
    def until_text(self) -> str:
        """The end, as the API server of Kubernetes would write it."""
        return self.until.strftime("%Y-%m-%dT%H:%M:%SZ")


class Blocklist(NamedTuple):
    """The blocklist of a cluster.

    ``word``: how this release calls it; ``ranges``: it knows ranges; ``osds``: where its OSDs
    listen.
    """

    fsid: str
    word: str
    ranges: bool
    entries: tuple[Blocked, ...]
    osds: tuple[str, ...] = ()

    def to_result(self, now: datetime) -> list[dict[str, Any]]:
        """As modules return it: of the clients at an address, only the one that stays longest."""
        # Ceph itself adds an entry for each dead owner of a lock (src/librbd/managed_lock/
        # BreakRequest.cc), so tenants can cause any number. Whoever decides by this asks at most
        # whether there is one at an address.
        clients: dict[str, list[Blocked]] = {}
        for found in self.entries:
            if found.entry.kind == CLIENT:
                clients.setdefault(found.entry.address, []).append(found)
        told = [found.to_result(now) for found in self.entries if found.entry.kind != CLIENT]
        return told + [
            max(found, key=lambda one: one.until).to_result(now, len(found))
            for found in clients.values()
        ]

    def find(self, entry: Entry) -> list[Blocked]:
        """What is there of exactly this kind, the one that lasts longest first; a range may be
        there with other host bits too.
        """
        return sorted(
            (found for found in self.entries if found.entry == entry),
            key=lambda found: found.until,
            reverse=True,
        )

    def covering(self, entry: Entry) -> list[str]:
        """What else blocks all that the entry would."""
        # While a wider entry is there, the removal of this one lets no client in.
        return [
            found.text
            for found in self.entries
            if found.entry != entry and found.entry.covers(entry)
        ]


class Step(NamedTuple):
    """One command. ``operation``: add or rm; ``text``: the entry as Ceph takes it; ``seconds``:
    until it ends; ``needs``: what must be in the list, since it blocks the same when this entry
    goes.
    """

    operation: str
    kind: str
    text: str
    seconds: int = 0
    needs: str = ""

    def arguments(self, word: str) -> list[str]:
        """``osd blocklist ...``; without ``range`` Ceph would take the prefix for a nonce, and
        without an end it takes an hour.
        """
        expire = [str(self.seconds)] if self.operation == ADD else []
        return [
            "osd",
            word,
            *(["range"] if self.kind == RANGE else []),
            self.operation,
            self.text,
            *expire,
        ]


class Change(NamedTuple):
    """An entry that is not as wanted: what is there of it, and what is to be done, or why nothing
    can be.
    """

    entry: Entry
    found: list[Blocked]
    steps: list[Step]
    problem: str = ""


class BlocklistOptions(NamedTuple):
    """What the user asked for; see the documentation of ceph_blocklist."""

    entries: tuple[Entry, ...]
    present: bool
    expiry_seconds: int
    renew_below: float
    protected: tuple[Network, ...]
    accept_daemons: bool
    accept_gap: bool = False
    # Of entries that are to be absent: their ends before a fence prolonged them.
    ends: Mapping[Entry, datetime] = {}

    @property
    def shortest_left(self) -> timedelta:
        """Less than this, and an entry is renewed."""
        return timedelta(seconds=self.expiry_seconds * self.renew_below)


class BlocklistState(NamedTuple):
    """What was read. ``client``: who we are; ``denied``: (add or rm, kind) -> what Ceph said;
    ``daemons``: whom an entry must not hit,
    and who that is; ``problem``: why that is not known."""

    now: datetime
    client: str
    blocklist: Blocklist
    denied: dict[tuple[str, str], str]
    daemons: tuple[tuple[Entry, str], ...]
    problem: str = ""


def read_blocklist(ceph: Ceph) -> Blocklist:
    """Read the OSD map, which is the one place where all kinds of entries are told apart."""
    # "ceph osd blocklist ls" prints ranges and addresses as one list; the dump has "blocklist" and
    # "range_blocklist" apart (OSDMap::dump of src/osd/OSDMap.cc).
    return parse_dump(ceph.json("ceph", "osd", "dump"))


def parse_dump(dump: Any) -> Blocklist:
    """``ceph osd dump --format json``. Raises StorageOpsError if it is something else."""
    # Octopus and before
    word = "blocklist" if not isinstance(dump, dict) or "blocklist" in dump else "blacklist"
    try:
        ranges = dump.get(f"range_{word}")
        entries = [_blocked(text, until, False) for text, until in dump[word].items()]
        entries += [_blocked(text, until, True) for text, until in (ranges or {}).items()]
        osds = [
            address
            for osd in dump.get("osds", [])
            for address in _addresses(osd.get("public_addrs"))
        ]
        # What Ceph cannot spell as an address blocks no client.
        known = tuple(found for found in entries if found)
        return Blocklist(
            str(dump["fsid"]),
            word,
            ranges is not None,
            known,
            tuple(sorted({entry.address for entry in osds})),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StorageOpsError(
            f"ceph osd dump lacks what is needed: {words(error)}",
            code="evidence_unreadable",
        ) from None


def _blocked(text: str, until: str, is_range: bool) -> Blocked | None:
    entry = parse_stored(text, is_range)
    if entry is None:
        return None
    if is_range:
        # cidr:10.0.0.7:0/24, which Ceph itself would not take back
        host, _port, prefix = text.replace("cidr:", "").rpartition(":0/")
        text = f"{host.strip('[]')}/{prefix}"
    return Blocked(entry, text if is_range else entry.text, parse_until(until))


def parse_until(text: str) -> datetime:
    """The end of an entry, in UTC.

    Before Octopus Ceph wrote it in the monitor's own time; UTC is near enough for what is here for
    days.
    """
    # utime_t prints local time with its offset since Octopus, as 2026-01-01T12:00:00.000000+0000,
    # and before without it and with a blank.
    text = text.replace(" ", "T")
    if text[-5:-4] not in ("+", "-"):
        text += "+0000"
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").astimezone(timezone.utc)


def _addresses(data: Any) -> Iterator[Entry]:
    """Every address with a nonce anywhere in what Ceph says about its daemons."""
    # A daemon has a vector of addresses, one for each version of the messenger: "addrvec" of
    # objects with "type", "addr" and "nonce" (entity_addrvec_t::dump of src/msg/msg_types.cc).
    # Depth and names differ between daemons and releases.
    if isinstance(data, Mapping):
        if isinstance(data.get("addr"), str) and "nonce" in data:
            address = str(data["addr"])
            found = parse_stored(address if "/" in address else f"{address}/{data['nonce']}")
            # What has never joined has no address yet: 0.0.0.0 or [::].
            if found and not found.network.network_address.is_unspecified:
                yield found
        else:
            for value in data.values():
                yield from _addresses(value)
    elif isinstance(data, list):
        for value in data:
            yield from _addresses(value)


def read_families(ceph: Ceph) -> tuple[str, ...]:
    """The families of the monitors' addresses: from those a client may reach Ceph."""
    return parse_families(ceph.json("ceph", "mon", "dump"))


def parse_families(dump: Any) -> tuple[str, ...]:
    """``ceph mon dump --format json``. Raises StorageOpsError if it is something else."""
    # All connections of a client have one address. It is of the family of the monitor that it
    # reaches first, and so of any that a monitor has (measured on a Ceph 16 of both).
    try:
        found = {family(entry.address) for mon in dump["mons"] for entry in _of_monitor(mon)}
    except (KeyError, TypeError, AttributeError) as error:
        raise StorageOpsError(
            f"ceph mon dump lacks what is needed: {words(error)}", code="evidence_unreadable"
        ) from None
    if not found:
        raise StorageOpsError(
            "ceph mon dump shows no monitor with an address", code="evidence_unreadable"
        )
    return tuple(sorted(found))


def _of_monitor(mon: Mapping[str, Any]) -> list[Entry]:
    # MonMap::dump of src/mon/MonMap.cc has "public_addrs" since Nautilus, and one address as a text
    # before.
    every = list(_addresses(mon.get("public_addrs")))
    one = parse_stored(str(mon.get("addr", "")))
    if every or one is None or one.network.network_address.is_unspecified:
        return every
    return [one]


def read_daemons(ceph: Ceph) -> tuple[tuple[Entry, str], ...]:
    """Ceph's daemons that are clients of its OSDs, and so can be hit: the active manager with its
    modules, and the metadata servers.
    """
    # An entry that hits the active manager has its modules (volumes, rbd_support) fail until
    # another manager takes over, and one that hits an MDS ends its rank's session with the OSDs.
    asked = {"mgr": "the active ceph-mgr", "fs": "a ceph-mds"}
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = pool.map(lambda whose: ceph.json("ceph", whose, "dump"), asked)
        return tuple(
            (entry, who)
            for who, answer in zip(asked.values(), answers)
            for entry in _addresses(answer)
        )


def own_addresses(osds: tuple[str, ...]) -> Iterator[str]:
    """Our own addresses as the OSDs see them, short of a network that translates them.

    Nothing is sent.
    """
    # Where an OSD has an IPv4 address that is written as an IPv6 one, so would ours be; an entry
    # for it as IPv4 is what can be written.
    # connect() of a datagram socket only chooses the route and with it the source address (man 7
    # udp); the port is the lowest that an OSD binds (ms_bind_port_min).
    for osd in osds:
        try:
            with socket.socket(
                socket.AF_INET6 if ":" in osd else socket.AF_INET, socket.SOCK_DGRAM
            ) as probe:
                probe.connect((osd, 6800))
                yield normal_address(probe.getsockname()[0].partition("%")[0])
        except (OSError, ValueError):
            continue


class Runbook:
    """The runbook of ceph_blocklist."""

    def __init__(
        self,
        ceph: Ceph,
        options: BlocklistOptions,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._ceph, self._deadline = ceph, ceph.deadline
        self._options = options
        self._now = now
        self._blocklist: Blocklist | None = None
        self._first: Blocklist | None = None
        self._findings: list[Finding] = []

    def gather(self) -> BlocklistState:
        """Read the blocklist, and for what is not as wanted the right to change it and whom it
        would hit.
        """
        blocklist = self._first = self._read()
        options = self._options
        needed = {
            (step.operation, step.kind)
            for change in changes(blocklist, options, self._now())
            for step in change.steps
        }
        # Only a new or renewed entry can hit a daemon; nothing is asked for a list that is as
        # wanted.
        adds = options.present and any(operation == ADD for operation, _kind in needed)
        # One beside the other: a node writes until its entry is there, and "ceph" takes 0.3 s to
        # start.
        with ThreadPoolExecutor() as pool:
            said = {need: pool.submit(self._denied, blocklist, *need) for need in sorted(needed)}
            others = (
                pool.submit(read_daemons, self._ceph)
                if adds and not options.accept_daemons
                else None
            )
        denied = {need: told.result() for need, told in said.items() if told.result()}
        daemons: list[tuple[Entry, str]] = []
        problem = ""
        if adds:
            daemons = [
                # Any address, also one for which no entry can be written.
                (Entry(ADDRESS, exact_network(address)), _THIS_HOST)
                for address in sorted(set(own_addresses(blocklist.osds)))
            ]
        if others:
            try:
                daemons += others.result()
            except Denied as error:
                # Told only if something is added: the right to read the daemons is needed for
                # nothing else.
                problem = str(error)
        return BlocklistState(
            self._now(), self._ceph.connection.name, blocklist, denied, tuple(daemons), problem
        )

    def plan(self, state: BlocklistState) -> Plan:
        """Decide."""
        decided = plan(state, self._options, self._argv)
        self._findings = decided.findings
        return decided

    def healthy(self, state: BlocklistState) -> str:
        """What the list says."""
        entries = self._options.entries
        wanted = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
        if self._options.present:
            return f"{wanted} in the blocklist of {state.blocklist.fsid} for long enough"
        back = [
            f"{there.text} is there until {there.until_text}, as before"
            for entry in entries
            for there in state.blocklist.find(entry)
        ]
        still = [
            f"{other} still blocks {entry.text}"
            for entry in entries
            for other in state.blocklist.covering(entry)
        ]
        return "; ".join([*(back[:5] or [f"none of {wanted} there"]), *still[:5]])

    def facts(self) -> dict[str, Any]:
        """The blocklist as it was last read, and what became of the entries."""
        if self._blocklist is None or self._first is None:
            return {}
        return {
            "fsid": self._blocklist.fsid,
            "blocklist": self._blocklist.to_result(self._now()),
            "entries": [
                self._told(entry, self._first.find(entry), self._blocklist.find(entry))
                for entry in self._options.entries
            ],
        }

    def _told(self, entry: Entry, before: list[Blocked], after: list[Blocked]) -> dict[str, Any]:
        """What became of an entry, by what was there of it; so a ledger can tell what is ours from
        what an operator wanted to end.
        """
        added = {
            action.subject.text
            for finding in self._findings
            for action in finding.repair
            if action.subject.operation == ADD
        }
        return {
            "entry": entry.text,
            "kind": entry.kind,
            "was_there": bool(before),
            "until_before": before[0].until_text if before else "",
            "renewed": bool(before) and entry.text in added,
            "until": after[0].until_text if after else "",
        }

    def apply(self, action: Action) -> None:
        """Run one command, and read the list, since Ceph says success also for what it
        did not do.
        """
        step: Step = action.subject
        self._make_time(action)
        # Between planning and this step another client may have removed what protects the data.
        if step.needs and not self._has(step.needs):
            raise ActionFailed(
                f"{step.needs}, which blocks the same, is no longer in the blocklist: "
                "another client has removed it",
                code="world_changed",
            )
        result = self._ceph.execute(action.command)
        if not result.ok:
            error = self._ceph.error(result)
            kind = Prevented if isinstance(error, Denied) else ActionFailed
            raise kind(str(error), error.code)
        # "rm" of an entry that is spelled in another way succeeds, and removes nothing.
        if self._has(step.text) != (step.operation == ADD):
            raise ActionFailed(
                "Ceph said that it did, but the list says otherwise: another client changes "
                f"{step.text} too",
                code="repair_unproven",
            )

    def _make_time(self, action: Action) -> None:
        """Begin with an entry only if there is some time left, and end one that was begun."""
        if any(found.repair and found.repair[0] is action for found in self._findings):
            self._ceph.deadline = self._deadline
            require_time(self._deadline, _LEAST_SECONDS)
        # One that was removed to be added again protects nothing until it is.
        elif self._ceph.deadline.remaining() < _STEP_SECONDS:
            self._ceph.deadline = Deadline(_STEP_SECONDS, self._deadline.clock)

    def undo(self, action: Action) -> Action | None:
        """An entry that was added protects data, and one that was removed was to go: nothing is
        taken back.
        """
        return None

    def verify(self, finding: Finding) -> list[str]:
        """The list itself must say so."""
        # Ceph says "blocklisting ... until ..." also for an entry whose end stays as it was, so
        # only the list proves it.
        blocklist = self._read()
        [entry] = [entry for entry in self._options.entries if entry.text == finding.name]
        found = blocklist.find(entry)
        if any(change.entry == entry for change in changes(blocklist, self._options, self._now())):
            until = f"there until {found[0].until_text}" if found else "not there"
            raise StorageOpsError(
                f"{entry.text} is {until}: another client has changed it meanwhile, or the clocks "
                "of this host and of the monitors differ",
                code="repair_unproven",
            )
        if found:
            return [f"{found[0].text} is in the blocklist until {found[0].until_text}"]
        return [
            f"{entry.text} is gone from the blocklist",
            *(f"{other} still blocks it" for other in blocklist.covering(entry)),
        ]

    def _read(self) -> Blocklist:
        self._blocklist = read_blocklist(self._ceph)
        return self._blocklist

    def _has(self, text: str) -> bool:
        return any(found.text == text for found in self._read().entries)

    def _denied(self, blocklist: Blocklist, operation: str, kind: str) -> str:
        """What Ceph says if we may not do this; empty if we may, or if this cluster has no such
        thing.
        """
        # The monitor checks the capabilities before it parses the address (Monitor::handle_command
        # of src/mon/Monitor.cc; only then OSDMonitor gets it), so a command that cannot succeed
        # tells whether it would be allowed. "profile rbd", which ceph-csi has, includes the right
        # to blocklist other clients (doc/rados/operations/user-management.rst).
        if kind == RANGE and not blocklist.ranges:
            return ""
        result = self._ceph.run(
            "ceph", *Step(operation, kind, _PROBES[kind], 1).arguments(blocklist.word)
        )
        # The capabilities let it pass, and only the address was refused.
        if result.rc == _EINVAL:
            return ""
        if result.ok:
            raise StorageOpsError(
                f"this release of Ceph takes {_PROBES[kind]} for an address, by which it was to be "
                f"asked for the capability to {operation} entries (it answered "
                f"{result.describe()!r}), so what it stores for other addresses is not known "
                "either. Nothing else was changed: use the blocklist "
                "by hand, and report this release",
                code="version_unsupported",
            )
        error = self._ceph.error(result)
        if isinstance(error, Denied):
            return str(error)
        raise error

    def _argv(self, *arguments: str) -> list[str]:
        return self._ceph.argv("ceph", *arguments)


def changes(blocklist: Blocklist, options: BlocklistOptions, now: datetime) -> list[Change]:
    """Entries that are not as wanted; a pure function."""
    # What stands in may be named, too, and goes when what it stands in for is there again.
    entries = sorted(options.entries, key=lambda entry: entry not in options.ends)
    every = [_change(blocklist, entry, options, now) for entry in entries]
    return [change for change in every if change.steps or change.problem]


class _StandIn(NamedTuple):
    """What protects the client of an entry while that is recreated.

    ``step``: what adds it; ``there``: it is in the list already; ``wanted``: the user wants it too,
    as an address and the range of one.
    """

    step: Step
    there: Blocked | None
    wanted: bool

    def left(self, now: datetime) -> Blocked | None:
        """What a killed run has left of it."""
        return (
            self.there if self.there and self.there.is_stand_in(now) and not self.wanted else None
        )

    def is_ending(self, now: datetime) -> bool:
        """It is there, but not for long enough."""
        return self.there is not None and self.there.until - now < _STAND_IN_LEFT

    @property
    def ending(self) -> str:
        """Why nothing is done then."""
        return (
            f"{self.step.text}, which could stand in while it is recreated, is about to "
            "expire: wait for that"
        )


def _change(blocklist: Blocklist, entry: Entry, options: BlocklistOptions, now: datetime) -> Change:
    # Ends are compared with the clock of this host, so an entry counts as there only with a good
    # part of its time left.
    found = blocklist.find(entry)
    if not options.present:
        return _give_up(blocklist, entry, options, now)
    stand_in = _find_stand_in(blocklist, entry, options, now)
    left = stand_in.left(now) if stand_in else None
    own = [there for there in found if there is not left]
    # needs: the stand-in goes only while the entry itself protects.
    clean_up = [_removal(left, entry.text)] if left else []
    if own and own[0].until - now >= options.shortest_left:
        return Change(entry, found, clean_up if left and _outlasts(own[0], entry, left) else [])
    add = Step(ADD, entry.kind, entry.text, options.expiry_seconds)
    if all(there.text != entry.text for there in own):
        return Change(entry, found, [add, *clean_up])
    # Ceph answers "blocklisting ... until ..." to a second add, and keeps the end of the first,
    # since OSDMap::apply_incremental (src/osd/OSDMap.cc) only inserts into a map. So the entry must
    # go first; and that its client is not let in for a moment, another entry that hits just the
    # same stands in.
    if stand_in is None:
        return _renew_with_gap(entry, found, options, add)
    if stand_in.is_ending(now):
        return Change(entry, found, [], stand_in.ending)
    return Change(entry, found, _renew_behind(stand_in, entry, options, add, clean_up))


def _find_stand_in(
    blocklist: Blocklist, entry: Entry, options: BlocklistOptions, now: datetime
) -> _StandIn | None:
    step = _stand_in(entry, blocklist.ranges, now)
    if step is None:
        return None
    there = next((other for other in blocklist.entries if other.text == step.text), None)
    return _StandIn(step, there, parse_entry(step.text) in {*options.entries} - {entry})


def _renew_behind(
    stand_in: _StandIn, entry: Entry, options: BlocklistOptions, add: Step, clean_up: list[Step]
) -> list[Step]:
    """Recreate an entry while another one stands in for it."""
    step = stand_in.step
    renew = [Step(REMOVE, entry.kind, entry.text, needs=step.text), add]
    if stand_in.there:
        return [*renew, *clean_up]
    # One that the user wants stays, for as long as any other.
    if stand_in.wanted:
        return [step._replace(seconds=options.expiry_seconds), *renew]
    return [step, *renew, Step(REMOVE, step.kind, step.text, needs=entry.text)]


def _outlasts(own: Blocked, entry: Entry, left: Blocked) -> bool:
    """The entry itself protects for as long as the stand-in, which so may go."""
    return own.text == entry.text and own.until >= left.until


def _renew_with_gap(
    entry: Entry, found: list[Blocked], options: BlocklistOptions, add: Step
) -> Change:
    """Renew an entry for which no other can stand in, if its client may be let in for a moment."""
    if options.accept_gap:
        return Change(entry, found, [Step(REMOVE, entry.kind, entry.text), add])
    return Change(
        entry,
        found,
        [],
        "Ceph cannot prolong it, and no other entry that blocks the same clients could stand in "
        "while it is recreated",
    )


def _give_up(
    blocklist: Blocklist, entry: Entry, options: BlocklistOptions, now: datetime
) -> Change:
    """The entry goes; or, if it was there before and would be still, it ends when that would have
    ended.
    """
    found, end = blocklist.find(entry), options.ends.get(entry)
    stand_in = _find_stand_in(blocklist, entry, options, now) if end else None
    left = _left_of(stand_in, now)
    own = [there for there in found if there not in left]
    if end is None or end - now < _LEAST_GIVEN:
        return Change(entry, found, [_removal(there) for there in [*own, *left]])
    clean_up = _clean_up(left, entry, options)
    if len(own) == 1 and abs(own[0].until - end) <= _GIVEN_LATE:
        return Change(entry, found, [step._replace(needs=own[0].text) for step in clean_up])
    add = Step(ADD, entry.kind, entry.text, math.ceil((end - now).total_seconds()))
    if not own:
        # A run that was killed on the way has left what stood in, if anything can. Otherwise
        # whoever had put the entry there has taken it away.
        return Change(entry, found, [add, *clean_up] if left or not stand_in else [])
    if stand_in and stand_in.is_ending(now):
        return Change(entry, found, [], stand_in.ending)
    return Change(entry, found, [*_give_back(entry, own, stand_in, add), *clean_up])


def _removal(there: Blocked, needs: str = "") -> Step:
    return Step(REMOVE, there.entry.kind, there.text, needs=needs)


def _clean_up(left: Sequence[Blocked], entry: Entry, options: BlocklistOptions) -> list[Step]:
    """Remove what is left of a stand-in, while the entry itself protects."""
    # What is named itself goes by itself.
    named = [other for other in options.entries if other != entry]
    return [_removal(there, entry.text) for there in left if there.entry not in named]


def _left_of(stand_in: _StandIn | None, now: datetime) -> list[Blocked]:
    """What a killed run has left of a stand-in, named by the user or not."""
    there = stand_in.there if stand_in else None
    return [there] if there and there.is_stand_in(now) else []


def _give_back(
    entry: Entry, own: list[Blocked], stand_in: _StandIn | None, add: Step
) -> list[Step]:
    """Shorten an entry. ``own``: what is there of it."""
    # An entry that was there before the fence was prolonged by it. Ceph keeps the end of an entry
    # that is there, so it is removed and added with what was left of its time, while another one
    # stands in.
    others = [_removal(there, entry.text) for there in own if there.text != entry.text]
    if len(others) == len(own):
        return [add, *others]
    remove = Step(REMOVE, entry.kind, entry.text)
    if stand_in is None:
        return [remove, add, *others]
    step = stand_in.step
    last = [Step(REMOVE, step.kind, step.text, needs=entry.text)]
    behind = [remove._replace(needs=step.text), add, *others]
    return behind if stand_in.there else [step, *behind, *last]


def _stand_in(entry: Entry, ranges: bool, now: datetime) -> Step | None:
    """Another entry that hits the same clients: an address as a range of one, that as an address, a
    range with a host bit; for a single client there is none.
    """
    # OSDMap keeps addresses and ranges in two maps, and a range with its host bits as its key, so
    # each of these is another entry to Ceph that hits the same clients.
    network = entry.network
    single = network.prefixlen == network.max_prefixlen
    least = now + timedelta(seconds=SHORTEST_EXPIRY_SECONDS)
    end = _midnight(least) + _STAND_IN_ENDS
    seconds = math.ceil(((end if end >= least else end + _DAY) - now).total_seconds())
    # A range of one address and that address block the same clients, under two keys.
    if entry.kind == RANGE and single:
        return Step(ADD, ADDRESS, Entry(ADDRESS, network).text, seconds)
    if entry.kind == RANGE:
        return Step(ADD, RANGE, f"{network.network_address + 1}/{network.prefixlen}", seconds)
    if entry.kind == ADDRESS and ranges:
        return Step(ADD, RANGE, str(network), seconds)
    return None


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def plan(state: BlocklistState, options: BlocklistOptions, argv: Callable[..., list[str]]) -> Plan:
    """A finding for each entry that is not as wanted; a pure function."""
    findings = [
        _judge(state, options, change, argv)
        for change in changes(state.blocklist, options, state.now)
    ]
    refused = [finding.name for finding in findings if finding.verdict == "refuse"]
    for finding in findings:
        if refused and finding.verdict != "refuse":
            # The address that is left out may be the one by which the node writes.
            # Half a fence looks like a whole one.
            finding.refuse(
                Reason("all_or_nothing", f"nothing is changed, since {refused[0]} is refused")
            )
    return Plan(findings)


def _judge(
    state: BlocklistState, options: BlocklistOptions, change: Change, argv: Callable[..., list[str]]
) -> Finding:
    entry = change.entry
    leftover = options.present and _only_removes(change)
    finding = Finding(
        control="",
        severity="info",
        kind="blocklist entry",
        name=entry.text,
        node="",
        summary=_summary(change, options, state.now),
        verdict="repair",
        reason="a run was killed while it renewed the entry" if leftover else "it was asked for",
        named=True,
        evidence={
            "kind": entry.kind,
            "there": [f"{there.text} until {there.until_text}" for there in change.found],
            "covered_by": [
                f"{other.text} until {other.until_text}"
                for other in state.blocklist.entries
                if other.entry != entry and other.entry.covers(entry)
            ],
        },
        repair=[
            Action(
                _VERBS[step.operation],
                step.text,
                argv(*step.arguments(state.blocklist.word)),
                subject=step,
            )
            for step in change.steps
        ],
    )
    reasons = _refusals(state, options, change)
    if reasons:
        finding.refuse(*reasons)
    return finding


def _only_removes(change: Change) -> bool:
    return bool(change.steps) and all(step.operation == REMOVE for step in change.steps)


def _summary(change: Change, options: BlocklistOptions, now: datetime) -> str:
    name, found = change.entry.text, change.found
    if not found:
        return f"{name} is not in the blocklist"
    if not options.present:
        return f"{name} is in the blocklist until {found[0].until_text}"
    if _only_removes(change):
        return (
            f"{change.steps[0].text} stood in for {name} while that "
            "was renewed, and was left behind"
        )
    days = (found[0].until - now).total_seconds() / 86400
    return f"{name} is in the blocklist for only {days:.1f} more days, until {found[0].until_text}"


def _refusals(state: BlocklistState, options: BlocklistOptions, change: Change) -> list[Reason]:
    entry, reasons = change.entry, []
    if change.problem:
        reasons.append(
            Reason(
                "consent_required",
                f"{change.problem}. If its client is surely dead, or may write since no other has "
                "its volumes, set accept_gap"
                + (
                    "; if no other client has its address, block that"
                    if entry.kind == CLIENT
                    else ""
                ),
            )
        )
    if entry.kind == RANGE and not state.blocklist.ranges:
        reasons.append(
            Reason(
                "version_unsupported",
                "this release of Ceph knows no ranges: give the addresses one by one",
            )
        )
    for need in dict.fromkeys((step.operation, step.kind) for step in change.steps):
        if need in state.denied:
            reasons.append(_grant(state.client, state.blocklist.word, *need, state.denied[need]))
    # An entry that is only removed hits no client that was not hit before.
    if change.problem or (options.present and any(step.operation == ADD for step in change.steps)):
        reasons += _would_hit(state, options, entry)
    return reasons


def _would_hit(state: BlocklistState, options: BlocklistOptions, entry: Entry) -> list[Reason]:
    """Why an entry is not added: it would hit what is protected, this host or a daemon of Ceph."""
    reasons = [
        Reason("address_protected", f"it would hit {network}, which is in protected_addresses")
        for network in options.protected
        if entry.overlaps(network)
    ]
    for who in sorted({who for daemon, who in state.daemons if _hits(entry, daemon)}):
        may_be = (
            "; set accept_daemons if the lost node runs it: it fails over. If only the lost node "
            "itself says that this is its address, name it in protected_addresses of node_fence, "
            "which then leaves it out"
        )
        reasons.append(
            Reason("address_protected", f"it would hit {who}{'' if who == _THIS_HOST else may_be}")
        )
    if state.problem:
        reasons.append(
            Reason(
                "ceph_forbidden",
                f"whether it hits a daemon of Ceph is not known: {state.problem}. Grant mon "
                "'allow r', or set accept_daemons",
            )
        )
    return reasons


def _hits(entry: Entry, daemon: Entry) -> bool:
    """Daemons listen on ports, and are clients under the same nonce and others."""
    # A manager's modules are RADOS clients of their own, whose nonces "mgr dump" lists as
    # active_clients.
    if entry.kind == CLIENT:
        return (entry.network, entry.nonce) == (daemon.network, daemon.nonce)
    return entry.overlaps(daemon.network)


def _grant(client: str, word: str, operation: str, kind: str, said: str) -> Reason:
    # A command in a capability is compared whole (MonCapGrant::get_allowed of src/mon/MonCap.cc).
    # "osd blocklist" has add, rm and range as its arguments; "ls" and "clear" are commands of their
    # own (src/mon/MonCommands.h), of which "allow r" gives the first.
    what = {ADDRESS: "a whole address", CLIENT: "a single client", RANGE: "a range"}[kind]
    right = f'allow r, allow command "osd {word}"'
    return Reason(
        "ceph_forbidden",
        f"{client} lacks the mon capability to {'add' if operation == ADD else 'remove'} {what} "
        f"({said}): an administrator grants it by ceph auth caps {client} mon '{right}' together "
        f"with all else that 'ceph auth get {client}' shows, since it replaces all of them",
    )


def make_options(params: dict[str, Any]) -> BlocklistOptions:
    """Options of the runbook, checked; all that is wrong with the entries is told at once."""
    if not SHORTEST_EXPIRY_SECONDS <= params["expiry_seconds"] <= LONGEST_EXPIRY_SECONDS:
        raise BadOption(
            f"expiry_seconds is {params['expiry_seconds']}; give at least "
            f"{SHORTEST_EXPIRY_SECONDS} (7 days), since a node that comes back after its entry has "
            f"expired writes again, and at most {LONGEST_EXPIRY_SECONDS} (10 years), since Ceph "
            "cannot count far"
        )
    check_numbers(params, {"renew_below": (0, 0.9)})
    entries, errors = [], []
    for text in params["entries"]:
        try:
            entries.append(parse_entry(text))
        except StorageOpsError as error:
            errors.append(str(error))
    ends = {}
    for text, end in params["ends"].items():
        try:
            moment = datetime.fromisoformat(str(end).replace("Z", "+00:00"))
        except ValueError:
            moment = datetime.min
        if moment.tzinfo is None:
            raise BadOption(
                f"ends has {end!r} for {text}: give a time with its zone, as 2026-11-21T12:00:00Z"
            )
        ends[parse_entry(str(text))] = moment
    if ends and params["state"] == "present":
        raise BadOption("ends is for state absent: it says until when an entry was there before")
    # A release without entries of its own has nothing to remove, but a fence without entries
    # protects nothing.
    if errors or (not entries and params["state"] == "present"):
        raise BadOption("; ".join(errors[:5]) or "entries is empty: name what is to be blocked")
    return BlocklistOptions(
        tuple(dict.fromkeys(entries)),
        params["state"] == "present",
        params["expiry_seconds"],
        params["renew_below"],
        tuple(parse_network(text) for text in params["protected_addresses"]),
        params["accept_daemons"],
        params["accept_gap"],
        ends,
    )
