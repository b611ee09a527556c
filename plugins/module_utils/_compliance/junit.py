# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The report as JUnit, one test case for each control and host. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from . import clean
from .model import RESULTS, fails, stands_for

# Findings that one test case lists; viewers show the text as it is.
_MAX_FINDINGS = 20
# JUnit has no other result for a test that did not run.
_SKIPPED = ("not_applicable", "not_assessed", "not_in_scope")


def render(report: Mapping[str, Any]) -> str:
    """The document."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for finding in report["findings"]:
        for control in stands_for(finding):
            found.setdefault((control, finding["host"]), []).append(finding)
    counts = report["summary"]["controls"]
    run = report["run"]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(
        "<testsuites "
        f"{_attributes(name=run['title'], **_totals(counts.values()), time=run['seconds'])}>"
    )
    for control in report["controls"]:
        name = f"{control['id']} {control['title']}"
        totals = _totals([counts[control["id"]]])
        lines.append(
            f"<testsuite {_attributes(name=name, **totals, timestamp=run['started'].rstrip('Z'))}>"
        )
        # A host without the control (a node for one of the cluster) has no case: it would be
        # skipped for ever, like one that could not be assessed.
        for host in report["hosts"]:
            if control["id"] in host["controls"]:
                lines.append(
                    _case(control["id"], host, found.get((control["id"], host["name"]), []))
                )
        lines.append("</testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _case(control: str, host: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> str:
    """One control on one host."""
    result = host["controls"][control]
    # Accepted ones and notes do not fail the case, so they are not its failure's text.
    failing = [finding for finding in findings if finding["status"] == "open" and fails(finding)]
    inner, other = "", findings
    if result == "fail":
        attributes = _attributes(message=_short(failing), type=control)
        inner = f"<failure {attributes}>{_escape(_lines(failing))}</failure>"
        other = [finding for finding in findings if finding not in failing]
    elif result in _SKIPPED:
        inner = f"<skipped {_attributes(message=_why_skipped(control, host))}/>"
    # A skipped or passed case may have findings too: notes, and accepted ones.
    if other:
        inner += f"<system-out>{_escape(_lines(other))}</system-out>"
    begin = f"<testcase {_attributes(classname=control, name=host['name'])}"
    return f"{begin}>{inner}</testcase>" if inner else f"{begin}/>"


def _why_skipped(control: str, host: Mapping[str, Any]) -> str:
    result = host["controls"][control].replace("_", " ")
    known = {**host["reasons"], **host["not_applicable"]}
    why = known.get(control) or host["reason"]
    return f"{result}: {why or 'the selection leaves its findings out'}"


def _short(findings: Sequence[Mapping[str, Any]]) -> str:
    first = findings[0]["summary"]
    return f"{first} (+{len(findings) - 1} more)" if len(findings) > 1 else first


def _lines(findings: Sequence[Mapping[str, Any]]) -> str:
    lines = [_line(finding) for finding in findings[:_MAX_FINDINGS]]
    left = len(findings) - len(lines)
    return "\n".join([*lines, f"(+{left} more)"] if left else lines)


def _line(finding: Mapping[str, Any]) -> str:
    thing, accepted = finding["object"], finding["exception"]
    name = f"{thing['namespace']}/{thing['name']}" if thing["namespace"] else thing["name"]
    parts = [f"{finding['severity']}: {thing['kind']} {name}: {finding['summary']}"]
    parts += (
        [f"accepted by {accepted['owner']} until {accepted['expires']}: {accepted['reason']}"]
        if accepted
        else []
    )
    why = f" ({finding['code']})" if finding["code"] else ""
    parts += [f"{finding['verdict']}{why}: {finding['reason']}"] if finding["reason"] else []
    parts += (
        [f"{'repair' if finding['verdict'] == 'repair' else 'look closer'}: {finding['command']}"]
        if finding["command"]
        else []
    )
    return "\n  ".join(parts)


def _totals(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    every = list(counts)
    # "errors" are for tests that crashed; what could not be assessed is skipped instead.
    return {
        "tests": sum(count[result] for count in every for result in RESULTS),
        "failures": sum(count["fail"] for count in every),
        "errors": 0,
        "skipped": sum(count[result] for count in every for result in _SKIPPED),
    }


def _attributes(**values: Any) -> str:
    return " ".join(f"{name}={quoteattr(clean.text(value))}" for name, value in values.items())


def _escape(value: str) -> str:
    # clean.text also removes what XML 1.0 forbids (2.2), which escape() leaves. Many readers of
    # JUnit hold a document in memory, so each text has a limit.
    return escape(clean.text(value, 100_000))
