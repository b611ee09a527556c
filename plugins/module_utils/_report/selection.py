# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""What findings are selected and which of them are accepted: JMESPath expressions. Pure: no I/O here."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._report.controls import CONTROLS, SEVERITIES

try:
    import jmespath  # type: ignore[import-untyped]
    from jmespath.exceptions import JMESPathError, ParseError  # type: ignore[import-untyped]
except ImportError:
    jmespath = None

_KEYS = {"select", "owner", "reason", "expires"}

Findings = Sequence[Mapping[str, Any]]


class Expression:
    """A JMESPath expression that selects some of a list of findings."""

    def __init__(self, text: str, what: str) -> None:
        """``what``: what to call it in an error."""
        self.text, self.what = text, what
        if jmespath is None:
            raise StorageOpsError(f"{what} needs the Python library jmespath on the controller: pip install jmespath")
        try:
            self._compiled = jmespath.compile(text)
        except ParseError as error:
            position = min(max(error.lex_position, 0), len(text))
            said = getattr(error, "message", None) or getattr(error, "msg", None) or str(error).splitlines()[0]
            raise StorageOpsError(f"{what} is not JMESPath: {said} at character {position + 1} of {text}") from None
        except JMESPathError as error:
            raise StorageOpsError(f"{what} is not JMESPath: {error} ({text})") from None
        # What is wrong with every finding should be told before hours of gathering, not after.
        self.of(SPECIMENS)

    def of(self, findings: Findings) -> list[int]:
        """Indices of the findings that are selected, in order."""
        try:
            selected = self._compiled.search(findings)
        except JMESPathError as error:
            raise StorageOpsError(
                f"{self.what} cannot be applied to every finding: {error} ({self.text}). Only control, host, severity, verdict, summary, "
                "reason, runbook and object.kind, .namespace, .name and .node are always there; test for others first, as in "
                "[?evidence.name && contains(evidence.name, 'x')]"
            ) from None
        chosen = [] if selected is None else selected if isinstance(selected, list) else [selected]
        places = {id(finding): index for index, finding in enumerate(findings)}
        wrong = [one for one in chosen if id(one) not in places]
        if wrong:
            raise StorageOpsError(
                f"{self.what} must select whole findings, as in [?severity=='critical'], and {self.text} gives {str(wrong[0])[:60]!r}"
            )
        return sorted({places[id(one)] for one in chosen})


def _specimen(control: str, severity: str, where: str) -> dict[str, Any]:
    return {
        "control": control,
        "severity": severity,
        "host": "worker01",
        "object": {"kind": "kind", "namespace": "", "name": "name", "node": "worker01" if where == "node" else ""},
        "summary": "summary",
        "evidence": {},
        "verdict": "report",
        "reason": "",
        "runbook": "",
        "repair": [],
    }


# A finding of each control and severity, with nothing in it that not every finding has.
SPECIMENS = [_specimen(control.id, severity, control.where) for control in CONTROLS.values() for severity in SEVERITIES]


@dataclass
class ExceptionRule:
    """Findings that somebody accepts, until when, and why; what came of it."""

    select: str
    owner: str
    reason: str
    expires: str
    expression: Expression
    matched: int = 0
    # Why it could not be applied; it accepts nothing then.
    error: str = ""
    indices: list[int] = field(default_factory=list)

    def expired(self, today: str) -> bool:
        """It held until the end of that day, UTC."""
        return self.expires < today

    def to_result(self, today: str) -> dict[str, Any]:
        """The exception as the report has it."""
        whole = {"select": self.select, **self.note(), "matched": self.matched, "expired": self.expired(today)}
        return {**whole, "error": self.error} if self.error else whole

    def note(self) -> dict[str, str]:
        """What a finding says of it."""
        return {"owner": self.owner, "reason": self.reason, "expires": self.expires}


def make_exceptions(given: Any) -> list[ExceptionRule]:
    """The exceptions as the user gave them, checked."""
    if not isinstance(given, (list, tuple)):
        raise StorageOpsError("exceptions must be a list of dictionaries with select, owner, reason and expires")
    return [_make_exception(number, one) for number, one in enumerate(given, 1)]


def _make_exception(number: int, given: Any) -> ExceptionRule:
    what = f"exception {number}"
    if not isinstance(given, Mapping):
        raise StorageOpsError(f"{what} is no dictionary with select, owner, reason and expires: {str(given)[:100]!r}")
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise StorageOpsError(f"{what} has keys that are not known: {', '.join(unknown)}")
    # YAML turns 2026-12-31 without quotes into a date.
    texts = {key: str("" if given.get(key) is None else given[key]).strip() for key in _KEYS}
    missing = sorted(key for key in _KEYS if not texts[key])
    if missing:
        raise StorageOpsError(f"{what} lacks {', '.join(missing)}: who accepts these findings, why, and until when?")
    try:
        expires = datetime.datetime.strptime(texts["expires"], "%Y-%m-%d").date()
    except ValueError:
        raise StorageOpsError(f"{what}: expires must be a day as YYYY-MM-DD, and is {texts['expires']!r}") from None
    return ExceptionRule(
        select=texts["select"],
        owner=texts["owner"],
        reason=texts["reason"],
        expires=expires.isoformat(),
        expression=Expression(texts["select"], f"select of {what}"),
    )
