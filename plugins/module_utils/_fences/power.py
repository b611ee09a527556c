# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's BMC has said about its power, and whether that proves that the node is off. Pure:
no I/O here.

The role node_fence reads the BMC by modules of other collections or by a fence agent, and switches
the node off by them. What they answer reaches the cluster's modules by their option ``power``. So
does what a command says of a node that others have switched off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from .._core.argspec import ArgumentSpec
from .._core.codes import Reason
from .._core.errors import BadOption
from .._core.ip import normal_address
from .._core.untrusted import few, is_name, is_plain, shown
from .agents import AgentCall, call_of, is_agent
from .ceph_reading import SKEW_SECONDS, moment
from .external import command_of
from .ledger import EXTERNAL, OFF_METHODS, Ledger, PowerFence
from .state import HostRecord

# The method of a fence that switches the node off; the other one only reads that others have.
POWER = OFF_METHODS[0]
# With the port where none is named (RFC 9110, section 4.2.2; asf-rmcp of IANA's registry of ports).
_PORTS = {"redfish": 443, "ipmi": 623}
KINDS = tuple(_PORTS)
# How those are asked whose kind is the name of a fence agent.
AGENT = "agent"
_LAST_PORT = 65535
SPEC = ArgumentSpec(
    {
        "power": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "kind": {"type": "str", "default": ""},
                "address": {"type": "str", "default": ""},
                "system": {"type": "str", "default": ""},
                "shared": {"type": "list", "elements": "str", "default": []},
                "read_at": {"type": "str", "required": True},
                "state": {"type": "str", "default": ""},
                "uuid": {"type": "str", "default": ""},
                "status": {"type": "int", "default": 0},
                "problem": {"type": "str", "default": ""},
                "node": {"type": "str", "default": ""},
                "since": {"type": "str", "default": ""},
            },
        }
    }
)
# PowerState of a ComputerSystem (DSP2046), in lower case; IPMI knows only on and off.
_OFF = "off"
# What was read of the BMC longer ago (seconds) proves nothing: a node boots in a minute or two.
_MAX_AGE = 120.0
# Others who only reboot the node have it off for some seconds: a fence agent waits 20 s at most
# until it is off, and then switches it on (power_timeout of lib/fencing.py.py in fence-agents).
_LEAST_APART = {EXTERNAL: 30.0}
# The fence is proven by so many readings; one alone may be between two answers of a BMC that lies.
_LEAST = 2
# Characters of another program's message that are shown.
_MOST = 200
# How pyghmi says that a BMC has refused the user, the password or what the user may do
# (pyghmi/ipmi/private/session.py and pyghmi/ipmi/private/constants.py: the RAKP status codes of
# IPMI 2.0, table 13-15), and a fence agent (fail in lib/fencing.py.py of fence-agents).
_REFUSED = (
    *("password", "unauthorized", "insufficient privilege", "authentication"),
    "have the correct privileges",
)
# env(1), timeout(1): the program was not found, or cannot be executed.
_NOT_THERE = (126, 127)


# HOST or HOST:PORT, an IPv6 address in brackets.
_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::(?P<port>[0-9]{1,5}))?"
)
# So ends what a resolver takes for an IPv4 address, as 192.0.2.011 or 0xc000020b (inet_aton(3)).
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")


class Place(NamedTuple):
    """Where a BMC is, in the one spelling in which it is compared.

    ``port``: 0 for the usual one.
    """

    host: str
    port: int


def place_of(kind: str, address: str) -> Place | None:
    """Where an address of the inventory leads; None if it is not HOST or HOST:PORT, or can be read
    in two ways.

    A name and its IP address are two places here, since nothing is resolved.
    """
    # A host of the inventory, whatever its address.
    if kind == EXTERNAL:
        return Place(address, 0) if is_plain(address) else None
    match = _ADDRESS.fullmatch(address)
    host = _host(match) if match else ""
    port = int(match["port"] or 0) if match else 0
    if not host or port > _LAST_PORT:
        return None
    # With a kind that is none, the usual port of either.
    usual = (_PORTS[kind],) if kind in _PORTS else tuple(_PORTS.values())
    return Place(host, 0 if port in usual else port)


def _host(match: re.Match[str]) -> str:
    """Empty for what is none."""
    # Case means nothing in a name (RFC 4343), and a dot at its end that it is absolute.
    name = (match["ipv6"] or match["name"]).lower().removesuffix(".")
    if not match["ipv6"] and not _NUMBER.fullmatch(name):
        return name if is_name(name) else ""
    try:
        return normal_address(name)
    except ValueError:
        return ""


def address_of(bmcs: Mapping[str, Any], node: str) -> str:
    """The address of a node's BMC as the inventory has it; empty if there is none, or none that
    can be read. ``bmcs``: the variable of the role.
    """
    mine = _Named.of(bmcs.get(node))
    return mine.address if mine.place else ""


def sharing(bmcs: Mapping[str, Any], node: str) -> list[str]:
    """Other nodes that have the BMC of this one in the inventory, or may have it.

    ``bmcs``: the variable of the role. Empty if it names no BMC of the node.
    """
    mine = _Named.of(bmcs.get(node))
    if mine.place is None:
        return []
    others = [(str(name), _Named.of(given)) for name, given in bmcs.items() if name != node]
    unread = " (its address cannot be read, so it may be the same)"
    return [
        name if other.place else f"{name}{unread}"
        for name, other in others
        if other.address and (_is_unread(mine, other) or mine.is_of(other))
    ]


def _is_unread(mine: _Named, other: _Named) -> bool:
    return other.place is None and EXTERNAL not in (mine.kind, other.kind)


def way_of(kind: str) -> str:
    """How a BMC of this kind is asked: one of KINDS, AGENT, EXTERNAL, or empty."""
    return kind if kind in (*KINDS, EXTERNAL) else AGENT if is_agent(kind) else ""


def agent_call(bmcs: Mapping[str, Any], node: str, user: str, password: str) -> AgentCall:
    """How the fence agent or the command of a node is called; empty for a node without one."""
    given = bmcs.get(node) or {}
    mine = _Named.of(given)
    if mine.kind == EXTERNAL:
        return command_of(given)
    match = _ADDRESS.fullmatch(mine.address)
    if match is None or mine.place is None or way_of(mine.kind) != AGENT:
        return AgentCall()
    own = {"ip": match["ipv6"] or match["name"], "ipport": match["port"] or "", "plug": mine.system}
    return call_of(given, {**own, "username": user, "password": password})


class _Named(NamedTuple):
    """A BMC as the inventory names it, whatever was written there."""

    kind: str
    address: str
    system: str

    @classmethod
    def of(cls, given: Any) -> _Named:
        """What was given for a node."""
        # A number is taken for its text, as in a URL.
        fields = given if isinstance(given, Mapping) else {}
        named = cls(*(str(fields.get(name) or "") for name in cls._fields))
        # What a command asks is its own affair, so where it runs stands for that.
        is_command = named.kind == EXTERNAL
        return named._replace(address=str(fields.get("host") or "")) if is_command else named

    @property
    def place(self) -> Place | None:
        """Where it is."""
        return place_of(self.kind, self.address)

    def is_of(self, other: _Named) -> bool:
        """Both are of one machine, as far as is known."""
        # What a command says of which machine it tells is compared with the node.
        if EXTERNAL in (self.kind, other.kind):
            return False
        # A BMC with several machines tells them apart by their systems; IPMI has none. An agent
        # that knows none is refused when it is asked (agents.said_of).
        known = self.kind == other.kind and way_of(self.kind) in ("redfish", AGENT)
        apart = known and self.system and other.system
        return self.place == other.place and not (apart and self.system != other.system)


class PowerReading(NamedTuple):
    """One look at a BMC.

    ``kind``: one of KINDS, the name of a fence agent, EXTERNAL, or empty where the inventory names
    no BMC; ``address``: with its port, if that is not the usual one, or where a command runs;
    ``system``: the system's Id in Redfish, the plug of a fence agent, the providerID; ``shared``:
    other nodes that have this BMC in the inventory; ``uuid``: what the BMC calls its machine,
    normalised, empty if it does not say; ``state``: in lower case, empty if it was not read;
    ``status``: of HTTP, or the exit code of a program, 0 for none; ``problem``: what was said
    instead; ``node``, ``since``: of which node a command tells, and since when it has that state.
    """

    kind: str
    address: str
    system: str
    shared: tuple[str, ...]
    read_at: datetime
    state: str
    uuid: str
    status: int
    problem: str
    node: str = ""
    since: datetime | None = None

    @property
    def title(self) -> str:
        """The BMC, as a message names it."""
        if self.kind == EXTERNAL:
            return f"the external source {self.address} ({self.system or self.uuid or 'no id'})"
        return f"the BMC {self.address} ({self.kind}{' ' if self.system else ''}{self.system})"

    @property
    def fence(self) -> PowerFence:
        """As the ledger notes the BMC; not proven yet."""
        return PowerFence(self.kind, self.address, self.system, self.uuid)


def parse_power(data: Sequence[Mapping[str, Any]]) -> tuple[PowerReading, ...]:
    """What the option ``power`` has, the oldest first. Raises BadOption for a time that is none."""
    readings = [_reading(item) for item in data]
    return tuple(sorted(readings, key=lambda reading: reading.read_at))


def _reading(item: Mapping[str, Any]) -> PowerReading:
    when = moment(item["read_at"])
    since = moment(item["since"]) if item["since"] else None
    if when is None or (item["since"] and since is None):
        raise BadOption("power has a reading without a time: give what the role node_fence reads")
    return PowerReading(
        item["kind"],
        # A user or a password in it would be in the ledger next.
        item["address"] if place_of(item["kind"], item["address"]) else "",
        shown(item["system"]),
        tuple(map(shown, item["shared"])),
        when,
        # A BMC is another machine, whatever it answers.
        shown(item["state"], _MOST).lower(),
        normal_uuid(item["uuid"]),
        item["status"],
        shown(item["problem"], _MOST),
        shown(item["node"], _MOST),
        since,
    )


def normal_uuid(text: str) -> str:
    """A UUID in its usual form; empty for anything else, and for those that stand for none."""
    # SMBIOS (DSP0134, "System - UUID"): all ones is "not settable", all zeros "not present".
    try:
        found = UUID(text)
    except ValueError:
        return ""
    return "" if not found.int or found.int == 2**128 - 1 else str(found)


def is_same_machine(one: str, other: str) -> bool:
    """Two UUIDs are of one machine, as far as both are known."""
    # Since SMBIOS 2.6 the first three fields are stored with their bytes reversed, and firmware,
    # BMC and dmidecode do not agree about that (DSP0134, "System - UUID"; dmidecode(8)).
    if not one or not other:
        return True
    return UUID(other).bytes in (UUID(one).bytes, UUID(one).bytes_le)


def bmc_doubts(
    readings: Sequence[PowerReading],
    node: str,
    machine: str,
    noted: PowerFence | None = None,
    host: HostRecord | None = None,
) -> list[Reason]:
    """Why these readings are not of the node's BMC, or none at all.

    ``machine``: the node's systemUUID and machineID, as its Node object or its ledger has them;
    ``noted``: the BMC by which the node was switched off; ``host``: the node as it is, None if its
    object is gone.
    """
    if not readings:
        return [
            Reason(
                "power_reading_unfit",
                f"the BMC of node {node} was not asked (option power), so whether it is off is not "
                "known",
            )
        ]
    # The newest counts: what is wrong now has to be mended.
    last = readings[-1]
    doubts = _unmapped(last, node) or _unread(last)
    if doubts:
        return doubts
    known = _system_uuid(machine)
    if not is_same_machine(last.uuid, known):
        return [
            Reason(
                "bmc_other_machine",
                f"{last.title} belongs to machine {last.uuid}, and node {node} is machine {known} "
                "(systemUUID): correct the BMC of this node in the inventory",
            )
        ]
    others = {reading.fence for reading in readings} | ({noted} if noted else set())
    if any(not _is_same_bmc(last.fence, other) for other in others):
        return [
            Reason(
                "bmc_other_machine",
                f"{last.title} is not the one by which node {node} was switched off, or answers "
                "for another machine now: name the same BMC in the inventory, or run "
                "fail_over_volumes again",
            )
        ]
    return _unidentified(readings, node, known, noted, host) if last.kind == EXTERNAL else []


def _unidentified(
    readings: Sequence[PowerReading],
    node: str,
    known: str,
    noted: PowerFence | None,
    host: HostRecord | None,
) -> list[Reason]:
    """Why what a command tells may be of another machine. ``known``: the node's systemUUID."""
    # The inventory says only which command is run, and one may tell of whatever it was given.
    last, named = readings[-1], {reading.node for reading in readings}
    instance = shown(host.provider_id) if host else ""
    # Without its Node object, what was told of the node before stands for it, and is the same.
    was_told = host is None and noted is not None
    if named != {node}:
        why = f"tells of {few(sorted(named - {node}))}, and not of {node} alone"
    elif instance and last.system and last.system != instance:
        why = f"tells of another instance: that of {node} is {instance} (spec.providerID)"
    elif (instance and last.system) or (known and last.uuid) or (was_told and last.fence.is_named):
        return []
    else:
        why = (
            f"does not say by which provider_id or system_uuid it knows {node}, or the Node has "
            "none to compare (spec.providerID, status.nodeInfo.systemUUID)"
        )
    return [
        Reason("bmc_other_machine", f"{last.title} {why}: correct its command in the variable bmcs")
    ]


def switch_doubts(
    readings: Sequence[PowerReading],
    node: str,
    machine: str,
    now: datetime,
    noted: PowerFence | None,
) -> list[Reason]:
    """Why no machine may be switched by what these readings show: ``bmc_doubts``, or they are too
    old.

    A run may have waited for others since, and a BMC that has another machine by now would switch
    that one.
    """
    return bmc_doubts(readings, node, machine, noted) or _old(readings[-1], node, now)


def _old(last: PowerReading, node: str, now: datetime) -> list[Reason]:
    """Why the newest reading shows nothing of this moment."""
    # The clocks of the controller and of the API server are compared here.
    if abs((now - last.read_at).total_seconds()) <= _MAX_AGE:
        return []
    return [
        Reason(
            "power_reading_unfit",
            f"the BMC of node {node} was read at {last.read_at:%H:%M:%S}Z, and it is "
            f"{now:%H:%M:%S}Z by the API server's clock: read it again, or set the clocks",
        )
    ]


def _system_uuid(machine: str) -> str:
    # A machineID is a UUID without dashes (man 5 machine-id), and alone where there is no
    # systemUUID.
    first = machine.partition("/")[0]
    return normal_uuid(first) if "-" in first else ""


def _is_same_bmc(one: PowerFence, other: PowerFence) -> bool:
    places = [(bmc.kind, place_of(bmc.kind, bmc.address), bmc.system) for bmc in (one, other)]
    return places[0] == places[1] and is_same_machine(one.uuid, other.uuid)


def _unmapped(reading: PowerReading, node: str) -> list[Reason]:
    """Why the inventory does not tell which BMC the node has."""
    if not way_of(reading.kind) or not reading.address:
        return [
            Reason(
                "bmc_unknown",
                f"the inventory names no BMC of node {node}: give its kind ({', '.join(KINDS)} or "
                "the name of a fence agent) and its address (HOST or HOST:PORT, without user or "
                "password), or kind external, its host and its command, in the variable bmcs of "
                "the role",
            )
        ]
    # Nothing was asked, or the agent has said of itself that it does not fit.
    is_program = way_of(reading.kind) in (AGENT, EXTERNAL)
    if is_program and reading.problem and not (reading.status or reading.state):
        return [
            Reason(
                "bmc_unknown",
                f"{reading.title} cannot be asked as the inventory has it: {reading.problem}. "
                "Correct the variable bmcs",
            )
        ]
    # A variable that was set for all hosts gives every node one BMC.
    if reading.shared:
        return [
            Reason(
                "bmc_unknown",
                f"{reading.title} is that of {few(reading.shared)} too, says the inventory, and it "
                f"can be of one node only: correct the variable bmcs before {node} is switched off",
            )
        ]
    return []


def _missing(reading: PowerReading) -> list[Reason]:
    """What has to be installed before the BMC can be asked."""
    # missing_required_lib of ansible.module_utils.basic.
    if "required Python library" in reading.problem:
        return [Reason("program_missing", f"{reading.problem}: install it on the controller")]
    if way_of(reading.kind) in (AGENT, EXTERNAL) and reading.status in _NOT_THERE:
        is_agents = is_agent(reading.kind)
        return [
            Reason(
                "program_missing",
                f"{reading.kind if is_agents else 'its command'} cannot be run on the host that "
                f"the variable bmcs names ({reading.problem}): install "
                f"{'fence-agents' if is_agents else 'it'} there",
            )
        ]
    return []


def _unread(reading: PowerReading) -> list[Reason]:
    """Why the BMC has not told whether the node is off."""
    said = reading.problem or "it gives no reason"
    is_refused = reading.kind not in ("redfish", EXTERNAL) and any(
        word in reading.problem.lower() for word in _REFUSED
    )
    missing = _missing(reading)
    if missing:
        return missing
    # RFC 9110, 15.5.2 and 15.5.4; no program has such an exit code (POSIX).
    if reading.status in (401, 403) or is_refused:
        return [
            Reason(
                "bmc_login_refused",
                f"{reading.title} refuses the user or the password ({said}): correct bmc_user and "
                "bmc_password",
            )
        ]
    if not reading.state:
        # Of a password that is refused, most agents only say that they cannot connect.
        login = "check its user and password, and " if is_agent(reading.kind) else ""
        return [
            Reason(
                "bmc_unreachable",
                f"{reading.title} did not tell whether the node is on ({said}): {login}make it "
                "answer, or have something else tell that the node is off (method external), or, "
                "if no fence of it was proven yet, prove that it is off and use method none with "
                "node_confirmed_off",
            )
        ]
    return []


def proof_doubts(
    readings: Sequence[PowerReading],
    ledger: Ledger,
    host: HostRecord | None,
    now: datetime,
    least: int = _LEAST,
    apart: float = 0.0,
) -> list[Reason]:
    """Why these readings do not prove that the node of the ledger is off now.

    ``host``: the node as it is, None if its object is gone; ``least``: so many readings are needed;
    ``apart``: seconds between the first and the last; longer where others switch the node.
    """
    machine = host.machine if host else ledger.machine
    if least > 1:
        apart = max(apart, _LEAST_APART.get(ledger.method, 0.0))
    return (
        bmc_doubts(readings, ledger.node, machine, ledger.power, host)
        or off_doubts(readings, ledger.node, host, ledger.power)
        or _unfit(readings, ledger, now, least, apart)
    )


def off_doubts(
    readings: Sequence[PowerReading],
    node: str,
    host: HostRecord | None,
    noted: PowerFence | None = None,
) -> list[Reason]:
    """Why the node may be on, or may have been since it was off.

    ``host``: the node as it is, None if its object is gone; ``noted``: as the ledger has it.
    """
    return _on(readings, node) or _on_since(readings, node, host, noted)


def _on_since(
    readings: Sequence[PowerReading],
    node: str,
    host: HostRecord | None,
    noted: PowerFence | None,
) -> list[Reason]:
    """What speaks against the time since when the node is said to be off."""
    last = readings[-1]
    since, before = last.since, moment(noted.off_at) if noted else None
    told = {reading.since for reading in readings}
    if len(told) > 1 or (since and before and _is_later(since, before)):
        return [
            Reason(
                "power_not_off",
                f"{last.title} says that node {node} is off since {_at(since)}, and it was off "
                f"before ({', '.join(map(_at, told - {since})) or _at(before)}): so it was on in "
                "between. Find out who switches it, and run again",
            )
        ]
    heard = host.heard_at if host else None
    if since and heard and _is_later(heard, since):
        return [
            Reason(
                "evidence_contradicts",
                f"{last.title} says that node {node} is off since {_at(since)}, and its kubelet "
                f"reported at {_at(heard)}: this answer is of another machine, or old",
            )
        ]
    return []


def _is_later(one: datetime, other: datetime) -> bool:
    """For clocks that may differ."""
    return (one - other).total_seconds() > SKEW_SECONDS


def _at(when: datetime | None) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when else "unknown"


def _on(readings: Sequence[PowerReading], node: str) -> list[Reason]:
    """Why the node may be on."""
    on = [reading for reading in readings if reading.state != _OFF]
    if not on:
        return []
    last = on[-1]
    before = any(one.state == _OFF for one in readings if one.read_at <= last.read_at)
    return [
        Reason(
            "power_not_off",
            f"{last.title} says {last.state or 'nothing'} of node {node} (at "
            f"{last.read_at:%H:%M:%S}Z){', and said off before' if before else ''}: the node is "
            "not off, or its BMC cannot be believed. Find out which, and run again",
        )
    ]


def _unfit(
    readings: Sequence[PowerReading], ledger: Ledger, now: datetime, least: int, apart: float
) -> list[Reason]:
    """Why readings that all say off prove nothing."""
    # The clocks of the controller and of the API server are compared here.
    first, last, written = readings[0].read_at, readings[-1].read_at, moment(ledger.at)
    is_early = bool(written and (written - first).total_seconds() > SKEW_SECONDS)
    seconds = (last - first).total_seconds()
    if is_early or len(readings) < least or seconds < apart:
        return [
            Reason(
                "power_reading_unfit",
                f"the BMC of node {ledger.node} was read {len(readings)} times in {seconds:g} s"
                f"{', and before the ledger was written' if is_early else ''}: at least {least} "
                f"readings over {apart:g} s are needed, all after {ledger.at}",
            )
        ]
    return _old(readings[-1], ledger.node, now)
