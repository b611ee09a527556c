# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as JUnit, one test case for each control and host. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

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
    root = Element(
        "testsuites",
        _attributes(name=run["title"], **_totals(counts.values()), time=run["seconds"]),
    )
    for control in report["controls"]:
        name = f"{control['id']} {control['title']}"
        totals = _totals([counts[control["id"]]])
        started = run["started"].rstrip("Z")
        suite = SubElement(root, "testsuite", _attributes(name=name, **totals, timestamp=started))
        # A host without the control (a node for one of the cluster) has no case: it would be
        # skipped for ever, like one that could not be assessed.
        for host in report["hosts"]:
            if control["id"] in host["controls"]:
                _add_case(suite, control["id"], host, found.get((control["id"], host["name"]), []))
    # Each case on its line. The texts within it stay as they are.
    ElementTree.indent(root, "")
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document.decode() + "\n"


def _add_case(
    suite: Element, control: str, host: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]
) -> None:
    """One control on one host."""
    case = SubElement(suite, "testcase", _attributes(classname=control, name=host["name"]))
    result = host["controls"][control]
    # Accepted ones and notes do not fail the case, so they are not its failure's text.
    failing = [finding for finding in findings if finding["status"] == "open" and fails(finding)]
    other = findings
    if result == "fail":
        failure = SubElement(case, "failure", _attributes(message=_short(failing), type=control))
        failure.text = _text(failing)
        other = [finding for finding in findings if finding not in failing]
    elif result in _SKIPPED:
        SubElement(case, "skipped", _attributes(message=_why_skipped(control, host)))
    # A skipped or passed case may have findings too: notes, and accepted ones.
    if other:
        SubElement(case, "system-out").text = _text(other)


def _why_skipped(control: str, host: Mapping[str, Any]) -> str:
    result = host["controls"][control].replace("_", " ")
    known = {**host["reasons"], **host["not_applicable"]}
    why = known.get(control) or host["reason"]
    return f"{result}: {why or 'the selection leaves its findings out'}"


def _short(findings: Sequence[Mapping[str, Any]]) -> str:
    first = findings[0]["summary"]
    return f"{first} (+{len(findings) - 1} more)" if len(findings) > 1 else first


def _text(findings: Sequence[Mapping[str, Any]]) -> str:
    lines = [_line(finding) for finding in findings[:_MAX_FINDINGS]]
    left = len(findings) - len(lines)
    # clean.text also removes what XML 1.0 forbids (2.2), which the writer leaves. Many readers of
    # JUnit hold a document in memory, so each text has a limit.
    return clean.text("\n".join([*lines, f"(+{left} more)"] if left else lines), 100_000)


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
    verdict = "can be repaired" if finding["verdict"] == "repair" else "needs attention"
    parts += [f"{verdict}{why}: {finding['reason']}"] if finding["reason"] else []
    parts += [
        f"{kind}: {', '.join(one['names'])}{_more(one)}"
        for kind, one in finding["affected"].items()
        if isinstance(one, dict)
    ]
    parts += (
        [f"{'repair' if finding['verdict'] == 'repair' else 'look closer'}: {finding['command']}"]
        if finding["command"]
        else []
    )
    return "\n  ".join(parts)


def _more(named: Mapping[str, Any]) -> str:
    left = named["count"] - len(named["names"])
    return f" (+{left} more)" if left > 0 else ""


def _totals(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    every = list(counts)
    # "errors" are for tests that crashed; what could not be assessed is skipped instead.
    return {
        "tests": sum(count[result] for count in every for result in RESULTS),
        "failures": sum(count["fail"] for count in every),
        "errors": 0,
        "skipped": sum(count[result] for count in every for result in _SKIPPED),
    }


def _attributes(**values: Any) -> dict[str, str]:
    return {name: clean.text(value) for name, value in values.items()}
