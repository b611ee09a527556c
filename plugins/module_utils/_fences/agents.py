# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fence agent (fence-agents of ClusterLabs): what it reads from its standard input, and what its
answer says of the power. Pure: no I/O here.

How an agent is called, and what its exit codes mean: FenceAgentAPI.md of fence-agents; what its
options are called and what it prints: lib/fencing.py.py there (4.12.1).
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from .._core.errors import BadOption
from .._core.texts import lines
from .._core.untrusted import few, shown

# A name alone, so that the program can only be one of /usr/sbin.
_NAME = re.compile(r"fence_[a-z0-9_]+")
# What these call off is no power: a file; a message on a disk; a lock on a disk.
_NO_POWER = frozenset({"fence_dummy", "fence_sbd", "fence_sanlock"})
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# What the role says itself, by its old names too.
_OWN = frozenset(
    {"action", "option", "ip", "ipaddr", "ipport", "plug", "port", "username", "login"}
    | {"password", "passwd"}
)
# What of that the ledger and messages have.
_SHOWN = ("ip", "ipport", "plug")
# What would have another machine or several switched, have one that is not found called off, or
# have the password written.
_HARMFUL = frozenset(
    {"port_as_ip", "plug_separator", "nodename", "uuid", "missing_as_off"}
    | {"verbose", "verbose_level", "debug", "debug_file", "help", "version"}
)
_ACTION = re.compile(r"<action\s[^<>]*?\bname=\"([a-z-]+)\"", re.ASCII)
_PARAMETER = re.compile(r"<parameter\s[^<>]*?\bname=\"([A-Za-z0-9_-]+)\"", re.ASCII)
# "Fabric fencing must never have a reboot operation" (FenceAgentAPI.md): without it, the node keeps
# its power.
_NEEDED = ("on", "off", "status", "reboot")
_STATUS = re.compile(r"^Status: (\S+)\s*$", re.MULTILINE | re.ASCII)
# Exit code and word of action "status". Python and shells exit with 2 for faults of their own, so
# the code alone does not say off.
_STATES = {(0, "ON"): "on", (2, "OFF"): "off"}
# timeout(1): it has ended the program; with SIGKILL, 128+9.
_ENDED = (124, 137)
# Shorter than this, a value is no secret, and would be found within words.
_LEAST_SECRET = 3


def is_agent(kind: str) -> bool:
    """A BMC of this kind is asked by a fence agent, which is so called."""
    return bool(_NAME.fullmatch(kind))


class AgentCall(NamedTuple):
    """How a fence agent is called.

    ``host``: where it runs, by its name in the inventory; ``input``: its standard input without the
    action, which has the password; ``hidden``: what of that no message may have; ``problem``: why
    it cannot be called, without any value; ``argv``: the program, and its arguments.
    """

    host: str = ""
    input: str = ""
    hidden: tuple[str, ...] = ()
    problem: str = ""
    argv: tuple[str, ...] = ()


def call_of(given: Mapping[str, Any], own: Mapping[str, str]) -> AgentCall:
    """How the agent of a BMC is called.

    ``given``: the BMC in the inventory; ``own``: the options that are not among its ``options``,
    by their names in the agent; empty ones are left out.
    """
    try:
        host = _host(given)
        options = dict(_options(given, own))
    except BadOption as error:
        return AgentCall(problem=str(error))
    text = "".join(f"{name}={value}\n" for name, value in options.items())
    hidden = (text for name, text in options.items() if name not in _SHOWN)
    return AgentCall(host, text, tuple(hidden), argv=(f"/usr/sbin/{given.get('kind')}",))


def _host(given: Mapping[str, Any]) -> str:
    kind, host = str(given.get("kind")), str(given.get("host") or "")
    if kind in _NO_POWER:
        raise BadOption(f"what {kind} calls off is not the power of a machine: use another agent")
    if not host:
        raise BadOption(f"the host where {kind} is installed is missing: give it as host")
    return host


def _options(given: Mapping[str, Any], own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and text of each. Raises BadOption that names one, and never its value."""
    options = given.get("options") or {}
    if not isinstance(options, Mapping):
        raise BadOption("its options are no dictionary")
    told: set[str] = set()
    for name in map(str, options):
        if not _OPTION.fullmatch(name):
            raise BadOption(f"{shown(name)} is no name of an option of a fence agent")
        # An agent takes a dash for an underscore, and of two values the last.
        plain = name.lower().replace("-", "_")
        if plain in _OWN | _HARMFUL:
            raise BadOption(
                f"the option {name} is not allowed: the address, the machine (system) and the "
                "login have places of their own, and only what is off may be called off"
            )
        if plain in told:
            raise BadOption(f"the option {name} is given twice")
        told.add(plain)
    for name, value in {**{name: text for name, text in own.items() if text}, **options}.items():
        yield str(name), _text(str(name), value)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    text = str(value) if isinstance(value, (str, int, float)) else "\n"
    # A line break begins the next option. Blanks and quotation marks around it are removed.
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    if not text.isprintable() or text != text.strip() or is_quoted:
        raise BadOption(
            f"a fence agent cannot be given this {name}: it must be one line, without blanks or "
            "quotation marks around it"
        )
    # Several machines, of which one that is off would stand for the others.
    if name == "plug" and "," in text:
        raise BadOption("its system is several machines for a fence agent: it has a comma")
    return text


class Said(NamedTuple):
    """What a fence agent has said of the power, as PowerReading has it.

    ``status``: its exit code if it failed, -1 if there is none or its word contradicts it, else 0.
    """

    state: str
    status: int
    problem: str


def said_of(answers: Sequence[Mapping[str, Any]], hidden: Sequence[str], plug: bool) -> Said:
    """What the answers of one look come to.

    ``answers``: what ansible.builtin.command returned for the actions metadata and status, or for
    another one, each with its action (``item``); ``plug``: the agent was told which of several
    machines is meant.
    """
    by_action = {str(answer.get("item")): answer for answer in answers}
    metadata, status = by_action.get("metadata", {}), by_action.get("status")
    # Whether an agent is the right one is said first: a wrong one fails at the status, too.
    is_asked = status is not None and not (metadata and _returned(metadata))
    problem = _unfit(str(metadata.get("stdout", "")), plug) if is_asked else ""
    if problem:
        return Said("", 0, problem)
    for action, answer in by_action.items():
        if not (_state(answer) if action == "status" else _returned(answer) == 0):
            return Said("", _returned(answer) or -1, why_not(answer, "the fence agent", hidden))
    return Said(_state(status) if status is not None else "", 0, "")


def _returned(answer: Mapping[str, Any]) -> int:
    """Its exit code; -1 if there is none."""
    # Without a command it is the one of Ansible's module, as on a host without Python.
    code = answer.get("rc") if "cmd" in answer else None
    return code if isinstance(code, int) else -1


def _state(answer: Mapping[str, Any]) -> str:
    words = _STATUS.findall(str(answer.get("stdout", "")))
    return _STATES.get((_returned(answer), words[0].upper()), "") if len(words) == 1 else ""


def why_not(answer: Mapping[str, Any], what: str, hidden: Sequence[str]) -> str:
    """Why a program has not said whether the machine is off.

    ``what``: how a message calls it; ``hidden``: what no message may have.
    """
    # Why, is not in a result whose task shows nothing.
    if answer.get("unreachable"):
        return f"Ansible cannot reach the host of {what}"
    if _returned(answer) in _ENDED:
        return f"{what} did not answer in time, and was ended"
    # fencing.py repeats an option that it does not know, with its value, and has a hint at the end.
    said = [
        line.strip()
        for line in lines(str(answer.get("stderr") or answer.get("msg") or ""))
        if line.strip() and not re.search("Parse error|for usage", line)
    ]
    text = said[-1] if said else "it ended without a power state that its exit code agrees with"
    return re.sub(secrets_in(hidden), "***", text, flags=re.IGNORECASE | re.ASCII)


def secrets_in(hidden: Iterable[str], beside: Iterable[str] = ()) -> str:
    """The pattern of what no message may have, as programs, URLs and headers spell it.

    ``beside``: what may be shown, but not together with these.
    """
    # RFC 7617: a header has user and password in base64, with a colon between them.
    values = [value for value in dict.fromkeys(hidden) if value]
    ways = (str, _base64, quote, _quoted, quote_plus, shlex.quote, _in_json, _in_python)
    spelled = {way(value) for value in values for way in ways}
    spelled |= {_base64(":".join(pair)) for pair in permutations([*values, *beside], 2)}
    # Some programs leave out what fills base64 up. The longest first: one may begin with another.
    spelled |= {one.rstrip("=") for one in spelled}
    found = sorted((one for one in spelled if len(one) >= _LEAST_SECRET), key=len, reverse=True)
    # Without any, a pattern that nothing fits.
    return "|".join(map(re.escape, found)) or "(?!)"


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _in_python(text: str) -> str:
    return ascii(text)[1:-1]


def _unfit(metadata: str, plug: bool) -> str:
    """Why an agent that so describes itself does not tell whether the node is off; empty for one
    that does.
    """
    missing = [action for action in _NEEDED if action not in _ACTION.findall(metadata)]
    if missing:
        return f"it does not switch the power of a machine: it has no action {few(missing)}"
    # With port_as_ip, the address alone says which machine it is (fencing.py,
    # _add_dependency_options), and a plug would be ignored.
    parameters = _PARAMETER.findall(metadata)
    if plug and ("plug" not in parameters or "port_as_ip" in parameters):
        return "it knows one machine at an address, and is given a system: leave that out"
    return ""
