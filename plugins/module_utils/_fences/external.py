# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a command of the operator's says of a node that others have switched off, as a cloud's
instance that is stopped. Pure: no I/O here.

It prints one JSON object, as docs/guides/fail_over_volumes.md describes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._core.errors import BadOption
from .._core.untrusted import from_json, is_plain
from .agents import AgentCall, why_not
from .ceph_reading import moment

# More than this is no answer about one node.
_MOST = 10_000
# What may be in the answer. Each is a text; anything else in it is ignored.
_FIELDS = ("node", "state", "provider_id", "system_uuid", "since")


class Told(NamedTuple):
    """What the command has told, as PowerReading has it.

    ``status``: its exit code if it failed, -1 if there is none or its answer cannot be read, else
    0.
    """

    node: str = ""
    state: str = ""
    system: str = ""
    uuid: str = ""
    since: str = ""
    status: int = 0
    problem: str = ""


def command_of(given: Mapping[str, Any]) -> AgentCall:
    """How the command of a node is called. ``given``: what the inventory has of the node."""
    try:
        return AgentCall(_host(given), argv=_argv(given.get("command")))
    except BadOption as error:
        return AgentCall(problem=str(error))


def _host(given: Mapping[str, Any]) -> str:
    host = str(given.get("host") or "")
    if not is_plain(host):
        raise BadOption("the host where its command is run is missing: give it as host")
    return host


def _argv(command: Any) -> tuple[str, ...]:
    # Nothing is run by a shell, so a text would have to be split as one does it.
    words = [str(word) for word in command] if isinstance(command, (list, tuple)) else []
    if not words or not words[0].startswith("/") or not all(word.isprintable() for word in words):
        raise BadOption(
            "its command must be a list: the absolute path of a program, and then its arguments"
        )
    return tuple(words)


def told_of(answers: Sequence[Mapping[str, Any]]) -> Told:
    """What the newest answer comes to. ``answers``: what ansible.builtin.command returned."""
    if not answers:
        return Told()
    answer = answers[-1]
    # Without a command it is the one of Ansible's module, as on a host without Python.
    code = answer.get("rc") if "cmd" in answer else None
    if code != 0:
        status = code if isinstance(code, int) else -1
        return Told(status=status, problem=why_not(answer, "the command", ()))
    try:
        node, state, system, uuid, since = _fields(str(answer.get("stdout", "")))
    except ValueError as error:
        return Told(status=-1, problem=f"its answer is not what is expected: {error}")
    return Told(node, state, system, uuid, since)


def _fields(text: str) -> list[str]:
    """The texts of _FIELDS. Raises ValueError for what is no such answer."""
    if len(text) > _MOST:
        raise ValueError(f"it has more than {_MOST} characters")
    found = from_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    values = [found.get(name) for name in _FIELDS]
    for name, value in zip(_FIELDS, values):
        # Compared as a text, a number or a list would be one that the command has not printed.
        if value is not None and not isinstance(value, str):
            raise ValueError(f"its {name} is no text")
    if not found.get("node") or not found.get("state"):
        raise ValueError("it has no node, or no state")
    if found.get("since") and moment(found["since"]) is None:
        raise ValueError("its since is no time, as 2026-01-01T12:00:00Z is one")
    return [value or "" for value in values]
