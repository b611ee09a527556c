# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What findings are selected and which of them are accepted: JMESPath expressions.

Pure: no I/O here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.codes import CODES
from .._core.controls import CONTROLS
from .._core.engine import SEVERITIES
from .._core.errors import BadOption, StorageOpsError

try:
    import jmespath  # type: ignore[import-untyped]
    from jmespath.exceptions import JMESPathError, ParseError  # type: ignore[import-untyped]
except ImportError:
    jmespath = None

# What functions of JMESPath raise as well for values that they cannot handle, as ceil for infinity
# (jmespath/functions.py checks types, not values).
# Else one value of one node would end the whole report.
_DEFEATED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# After a year an exception is reviewed: the reason for it may not hold any more.
MAX_DAYS = 366
_KEYS = {"select", "owner", "reason", "expires"}
# The fields of every finding; evidence and repair can hold anything.
_FIELDS = {
    "control",
    "severity",
    "host",
    "object",
    "summary",
    "evidence",
    "verdict",
    "code",
    "reason",
    "runbook",
    "repair",
}
_OBJECT_FIELDS = {"kind", "namespace", "name", "node"}
# Types of nodes whose first child is what they are applied to (jmespath/ast.py).
_CHAINS = {
    "subexpression",
    "index_expression",
    "projection",
    "value_projection",
    "filter_projection",
    "flatten",
}
_VALUES: dict[str, tuple[str, ...]] = {
    "control": ("", *CONTROLS),
    "severity": SEVERITIES,
    "verdict": ("repair", "refuse", "report"),
    "code": ("", *CODES),
}

Findings = Sequence[Mapping[str, Any]]


class Expression:
    """A JMESPath expression that selects some of a list of findings."""

    def __init__(self, text: str, what: str) -> None:
        """``what``: what to call it in an error."""
        self.text, self.what = text, what
        if jmespath is None:
            raise StorageOpsError(
                f"{what} needs the Python library jmespath on the controller: pip install jmespath",
                code="program_missing",
            )
        try:
            self._compiled = jmespath.compile(text)
        except ParseError as error:
            # jmespath's own text repeats the expression with a marker over several lines. Where the
            # text ends too early, the position is behind its end.
            position = min(max(error.lex_position, 0), len(text))
            said = (
                getattr(error, "message", None)
                or getattr(error, "msg", None)
                or str(error).splitlines()[0]
            )
            raise BadOption(
                f"{what} is not JMESPath: {said} at character {position + 1} of {text}"
            ) from None
        except JMESPathError as error:
            raise BadOption(f"{what} is not JMESPath: {error} ({text})") from None
        # An expression that fails on every finding is better refused before hours of gathering than
        # after. One that can select nothing would make every report green.
        wrong = next(_never(self._compiled.parsed), "")
        if wrong:
            raise BadOption(f"{what} would never select what it should: {wrong} ({text})")
        self.of(SPECIMENS)

    def check_narrow(self) -> None:
        """Refuse an expression that selects every finding, or a place in the list."""
        # Tomorrow another finding is at that place.
        if any(_places(self._compiled.parsed)):
            raise BadOption(
                f"{self.what} must say which findings it means, not the "
                f"places in their list: {self.text}"
            )
        if len(set(self.of(_FAILING_SPECIMENS))) == len(_FAILING_SPECIMENS):
            raise BadOption(
                f"{self.what} would accept every finding that there can be: {self.text}"
            )

    def of(self, findings: Findings) -> list[int]:
        """Indices of the findings that are selected, in order."""
        try:
            selected = self._compiled.search(findings)
        except (JMESPathError, *_DEFEATED) as error:
            raise BadOption(
                f"{self.what} cannot be applied to every finding: {error} ({self.text}). Only "
                "control, host, severity, verdict, code, summary, reason, runbook and object.kind, "
                ".namespace, .name and .node are always there; test for others first, as in "
                "[?evidence.name && contains(evidence.name, 'x')]"
            ) from None
        # A finding is recognized by its identity: JMESPath returns the objects that it was given,
        # and two findings may be equal.
        chosen = selected if isinstance(selected, list) else [selected]
        places = {id(finding): index for index, finding in enumerate(findings)}
        wrong = (
            [one for one in chosen if id(one) not in places]
            if isinstance(selected, list)
            else chosen
        )
        if wrong:
            raise BadOption(
                f"{self.what} must select whole findings, as in [?severity=='critical'], and "
                f"{self.text} gives {str(wrong[0])[:60]!r}"
            )
        return sorted({places[id(one)] for one in chosen})

    def apart(self, findings: Findings) -> tuple[list[int], list[int], str]:
        """Indices of the findings that are selected, of those that it cannot be applied to, and why
        not.
        """
        # A node can return anything in a finding; that must not keep the expression from applying
        # to all others.
        try:
            return self.of(findings), [], ""
        except StorageOpsError as error:
            why = str(error)
        # One by one, to find those that it can be applied to.
        good = [index for index, finding in enumerate(findings) if self._bears(finding)]
        try:
            selected = self.of([findings[index] for index in good])
        except StorageOpsError as error:
            return [], list(range(len(findings))), str(error)
        return (
            [good[place] for place in selected],
            sorted(set(range(len(findings))) - set(good)),
            why,
        )

    def _bears(self, finding: Mapping[str, Any]) -> bool:
        try:
            self.of([finding])
        except StorageOpsError:
            return False
        return True


def _never(node: Mapping[str, Any]) -> Iterator[str]:
    """What an expression asks that holds for no finding, such as a control that does not exist."""
    path = _path(node)
    if path:
        yield from _unknown_fields(path)
        # What is selected from a part of a finding is not checked.
        return
    children = [child for child in node["children"] if isinstance(child, dict)]
    if node["type"] == "comparator":
        yield from _unknown_values(children, part=False)
    elif node["type"] == "function_expression" and node["value"] == "contains":
        yield from _unknown_values(children, part=True)
    for child in children:
        yield from _never(child)


def _unknown_fields(path: Sequence[str]) -> Iterator[str]:
    if path[0] not in _FIELDS:
        yield f"findings have no {path[0]!r} (a text stands between single quotes)"
    if path[0] == "object" and path[1:] and path[1] not in _OBJECT_FIELDS:
        yield f"the object of a finding has no {path[1]!r}"


def _unknown_values(children: Sequence[Mapping[str, Any]], part: bool) -> Iterator[str]:
    """Values that a field is compared with and never has.

    ``part``: the comparison is contains(), which may ask for a part of the value.
    """
    values = [value for child in children for value in _literals(child)]
    fields = [path[0] for path in map(_path, children) if len(path) == 1 and path[0] in _VALUES]
    for name in fields:
        # In contains(['STOR-01'], control) the field is the second argument: only whole values fit.
        inside = part and _path(children[0]) == [name]
        for value in values:
            if not any(value in known if inside else value == known for known in _VALUES[name]):
                yield f"the {name} of a finding is never {value!r}"


def _path(node: Mapping[str, Any]) -> list[str]:
    """The field of a finding that a node reads, and fields of that; empty for what
    reads no field.
    """
    if node["type"] == "field":
        return [str(node["value"])]
    if node["type"] not in _CHAINS:
        return []
    first, *others = node["children"]
    path = _path(first)
    # "@" is the current node, so "@.host" is "host".
    if path or first["type"] == "current":
        path = path + _path(others[0]) if node["type"] == "subexpression" else path
    return path


def _literals(node: Any) -> Iterator[str]:
    """The texts that a comparison names, one or a list of them."""
    values = [node.get("value")] if node["type"] == "literal" else []
    values = values[0] if values and isinstance(values[0], list) else values
    yield from (value for value in values if isinstance(value, str))
    if node["type"] == "multi_select_list":
        for child in node["children"]:
            yield from _literals(child)


def _places(node: Any) -> Iterator[bool]:
    """Whether findings are taken by their place in the list; within a finding that is allowed."""
    if isinstance(node, dict):
        if node["type"] == "index_expression" and node["children"][0]["type"] not in (
            "field",
            "subexpression",
            "index_expression",
        ):
            yield True
        for child in node["children"]:
            yield from _places(child)


def _specimen(control: str, severity: str, verdict: str, where: str) -> dict[str, Any]:
    return {
        "control": control,
        "severity": severity,
        "host": f"host of {control}",
        "object": {
            "kind": "kind",
            "namespace": "namespace" if severity == SEVERITIES[0] else "",
            "name": "name",
            "node": "node" if where == "node" else "",
        },
        "summary": "summary",
        "evidence": {},
        "verdict": verdict,
        "code": "",
        "reason": "",
        "runbook": "",
        "repair": [],
    }


# A finding of each control, severity and verdict, with only the fields that all findings have.
SPECIMENS = [
    _specimen(control.id, severity, verdict, control.where)
    for control in CONTROLS.values()
    for severity in SEVERITIES
    for verdict in _VALUES["verdict"]
]
# Notes (info) do not make a control fail, so an exception need not exclude them.
_FAILING_SPECIMENS = [specimen for specimen in SPECIMENS if specimen["severity"] != SEVERITIES[-1]]


@dataclass
class ExceptionRule:
    """Findings that their owner accepts, until when and why, and what it matched."""

    select: str
    owner: str
    reason: str
    expires: str
    expression: Expression
    matched: int = 0
    # Why it could not be applied to some findings; it accepts none of these.
    error: str = ""

    def expired(self, today: str) -> bool:
        """It held until the end of that day, UTC."""
        # Dates in ISO 8601 sort as texts.
        return self.expires < today

    def to_result(self, today: str) -> dict[str, Any]:
        """The exception as the report has it."""
        whole = {
            "select": self.select,
            **self.note(),
            "matched": self.matched,
            "expired": self.expired(today),
        }
        return {**whole, "error": self.error} if self.error else whole

    def note(self) -> dict[str, str]:
        """What a finding shows of it."""
        return {"owner": self.owner, "reason": self.reason, "expires": self.expires}


def make_exceptions(given: Any, today: datetime.date) -> list[ExceptionRule]:
    """The exceptions as the user gave them, checked."""
    if not isinstance(given, (list, tuple)):
        raise BadOption(
            "exceptions must be a list of dictionaries with select, owner, reason and expires"
        )
    return [_make_exception(number, one, today) for number, one in enumerate(given, 1)]


def _make_exception(number: int, given: Any, today: datetime.date) -> ExceptionRule:
    what = f"exception {number}"
    if not isinstance(given, Mapping):
        raise BadOption(
            f"{what} is not a dictionary with select, owner, reason and expires: "
            f"{str(given)[:100]!r}"
        )
    # A misspelt "expires" must not make an exception without end.
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise BadOption(f"{what} has unknown keys: {', '.join(unknown)}")
    # YAML turns 2026-12-31 without quotes into a date.
    texts = {key: str("" if given.get(key) is None else given[key]).strip() for key in _KEYS}
    missing = sorted(key for key in _KEYS if not texts[key])
    if missing:
        raise BadOption(
            f"{what} lacks {', '.join(missing)}: who accepts these findings, why, and until when?"
        )
    expires = _expires(what, texts["expires"], today)
    expression = Expression(texts["select"], f"select of {what}")
    # An exception for everything would hide whatever breaks next.
    expression.check_narrow()
    return ExceptionRule(
        select=texts["select"],
        owner=texts["owner"],
        reason=texts["reason"],
        expires=expires.isoformat(),
        expression=expression,
    )


def _expires(what: str, text: str, today: datetime.date) -> datetime.date:
    """The last day of an exception."""
    try:
        expires = datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise BadOption(f"{what}: expires must be a day as YYYY-MM-DD, and is {text!r}") from None
    if (expires - today).days > MAX_DAYS:
        raise BadOption(
            f"{what}: expires must be within {MAX_DAYS} days, and is {text}: let its owner renew "
            "it by then"
        )
    return expires
