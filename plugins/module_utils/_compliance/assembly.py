# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report: one piece of data from the rows, from which all outputs are made.

Pure: no I/O here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._core.codes import Reason
from .._core.controls import CONTROLS, check_command
from .._core.engine import SEVERITIES
from .._core.errors import StorageOpsError
from . import affected, clean, history
from .affected import NOT_ASKED, Users
from .model import (
    KINDS,
    LEFT_OUT,
    MAX_REASON,
    RESULTS,
    SCHEMA_VERSION,
    TIME,
    Occasion,
    Scope,
    count,
    fails,
    stands_for,
)
from .reading import Row
from .selection import ExceptionRule, Expression

# How many findings of a host, of one severity, come before those of the next hosts. A page shows
# 100, and root on a host has it find thousands.
BLOCK = 20


def build(
    rows: Sequence[Row],
    scope: Scope,
    exceptions: Sequence[ExceptionRule],
    occasion: Occasion,
    previous: Mapping[str, Any] | None = None,
    users: Users = NOT_ASKED,
) -> dict[str, Any]:
    """The report; ``previous``: the run to compare with, as history keeps it; ``users``: who has
    the volumes that findings name.
    """
    # Of the run, not of this moment: a report that is made again later says the same.
    today = occasion.finished.strftime("%Y-%m-%d")
    # A host of which no control is in scope is not a host of this report.
    rows = [row for row in rows if set(KINDS[row.kind]).intersection(scope.controls)]
    found = _sorted_findings(rows, scope)
    # Before the selection: an exception must not look unused because its findings are hidden.
    rules = _accept(found, exceptions)
    shown, select_error = _select(found, scope)
    for index, finding in enumerate(found):
        finding.update(_judgement(rules.get(index, []), today))
    # From all findings, since a hidden one must not let its control pass.
    hosts = _hosts(rows, scope, found, shown)
    findings = [finding for index, finding in enumerate(found) if index in shown]
    _identify(findings, users)
    # Of those that are shown: runs with another selection are not compared at all.
    known, resolved = history.compare(previous, hosts, findings)
    run = describe_run(occasion, scope)
    for finding in findings:
        # Without a previous run nothing is new.
        finding["new"] = previous is not None and finding["fingerprint"] not in known
        finding["first_seen"] = known.get(finding["fingerprint"], run["started"])
    # None for a first run, which has nothing new and nothing resolved.
    run["compared_with"] = previous["run"]["id"] if previous else None
    if select_error:
        run["scope"]["select_error"] = select_error
    shown_exceptions = [exception.to_result(today) for exception in exceptions]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "controls": [CONTROLS[control].to_result() for control in scope.controls],
        "summary": {
            "hosts": _count_hosts(hosts),
            "findings": {
                **_count_findings(findings),
                "expired_exceptions": sum(one["expired"] for one in shown_exceptions),
                "new": sum(finding["new"] for finding in findings),
                "resolved": resolved,
            },
            "controls": _count_controls(scope, hosts, findings),
            "codes": _count_codes(hosts, findings),
        },
        "hosts": hosts,
        "findings": findings,
        "exceptions": shown_exceptions,
    }


def _sorted_findings(rows: Iterable[Row], scope: Scope) -> list[dict[str, Any]]:
    """The findings of the controls in scope, the worst first.

    Of one severity, what a host has more than a block comes behind those of all others.
    """
    found = [
        finding
        for row in rows
        for finding in row.findings
        if finding["control"] in ("", *scope.controls)
    ]
    # "~" sorts behind all names of controls.
    found.sort(
        key=lambda one: (
            SEVERITIES.index(one["severity"]),
            one["control"] or "~",
            one["host"],
            one["object"]["name"],
        )
    )
    before: Counter[tuple[str, str]] = Counter()
    blocks = []
    for finding in found:
        whose = finding["severity"], finding["host"]
        blocks.append((SEVERITIES.index(finding["severity"]), before[whose] // BLOCK))
        before[whose] += 1
    # Stable, so each block keeps its order.
    return [found[place] for place in sorted(range(len(found)), key=lambda place: blocks[place])]


def _identify(findings: Sequence[dict[str, Any]], users: Users) -> None:
    """Give each finding its fingerprint, whom it affects, and the command that repairs or checks
    it.
    """
    for finding, fingerprint in zip(findings, _fingerprints(findings)):
        finding["fingerprint"] = fingerprint
        finding["affected"] = affected.affected_by(finding, users)
        # Only for a finding that a playbook can do something about: a command in a report is copied
        # and run.
        finding["command"] = check_command(finding, finding["host"]) if finding["runbook"] else ""


def _accept(
    found: Sequence[Mapping[str, Any]], exceptions: Iterable[ExceptionRule]
) -> dict[int, list[ExceptionRule]]:
    """By index of a finding, the exceptions that select it."""
    rules: dict[int, list[ExceptionRule]] = {}
    # A finding that stands for others cannot be accepted: those were not seen.
    known = [
        index
        for index, finding in enumerate(found)
        if finding["control"] or finding["object"]["kind"] != LEFT_OUT
    ]
    acceptable = [found[index] for index in known]
    for exception in exceptions:
        # A finding to which an exception cannot be applied stays open, which is the safe side.
        selected, _defeated, exception.error = exception.expression.apart(acceptable)
        indices = [known[place] for place in selected]
        exception.matched = len(indices)
        for index in indices:
            rules.setdefault(index, []).append(exception)
    return rules


def _select(found: Sequence[Mapping[str, Any]], scope: Scope) -> tuple[set[int], str]:
    """Indices of the findings that are shown, and why the selection cannot be applied to some.

    Those are shown as well, if they are severe enough.
    """
    severe = [
        index for index, finding in enumerate(found) if finding["severity"] in scope.severities
    ]
    # A finding that stands for others cannot be selected by what it is about.
    always = {index for index, finding in enumerate(found) if not finding["control"]}
    if not scope.select:
        return always.union(severe), ""
    try:
        expression = Expression(scope.select, "select")
    except StorageOpsError as error:
        # A selection that cannot be read hides nothing: rather too much is shown than too little.
        return always.union(severe), str(error)
    chosen, defeated, why = expression.apart([found[index] for index in severe])
    return always.union(severe[place] for place in (*chosen, *defeated)), why


def _judgement(rules: Sequence[ExceptionRule], today: str) -> dict[str, Any]:
    """Whether a finding is accepted: by the first exception that has not expired."""
    # An expired exception is shown with its finding, so that its owner renews it or repairs.
    valid = next((rule for rule in rules if not rule.expired(today)), None)
    expired = next((rule for rule in rules if rule.expired(today)), None)
    return {
        "status": "accepted" if valid else "open",
        "exception": valid.note() if valid else None,
        # With a valid one beside it the expired one is of no more interest.
        "expired_exception": expired.note() if expired and not valid else None,
    }


# What became of each control


def _hosts(
    rows: Sequence[Row], scope: Scope, found: Sequence[Mapping[str, Any]], shown: Collection[int]
) -> list[dict[str, Any]]:
    """All hosts; findings that are not shown count there as well."""
    # Collected once: to look through all findings for each host would take hosts times findings.
    by_host: dict[str, list[tuple[Mapping[str, Any], bool]]] = {row.name: [] for row in rows}
    for index, finding in enumerate(found):
        by_host[finding["host"]].append((finding, index in shown))
    return [_host(row, scope, by_host[row.name]) for row in rows]


def _host(
    row: Row, scope: Scope, found: Sequence[tuple[Mapping[str, Any], bool]]
) -> dict[str, Any]:
    """A host of the report; ``found``: its findings, each with whether it is shown."""
    results = _results(row, scope, _seen_by_control(found))
    reasons = {control: why for control, why in row.reasons.items() if control in scope.controls}
    status, reason = _status(row, results, reasons)
    absent = {
        control: clean.line(row.not_applicable[control], MAX_REASON)
        for control, result in results.items()
        if result == "not_applicable"
    }
    return {
        "name": row.name,
        "kind": row.kind,
        "status": status,
        "code": reason.code if reason else "",
        "reason": str(reason or ""),
        "controls": results,
        "codes": {control: why.code for control, why in reasons.items()},
        "reasons": {control: str(why) for control, why in reasons.items()},
        "not_applicable": absent,
    }


def _seen_by_control(
    found: Iterable[tuple[Mapping[str, Any], bool]],
) -> dict[str, set[str]]:
    """By control, the states of its findings: open, accepted, unselected if they can make it fail,
    else note.
    """
    seen: dict[str, set[str]] = {}
    for finding, shown in found:
        status = finding["status"] if shown else "unselected"
        for control in stands_for(finding):
            seen.setdefault(control, set()).add(status if fails(finding) else "note")
    return seen


def _results(row: Row, scope: Scope, seen: Mapping[str, set[str]]) -> dict[str, str]:
    """What became of each control in scope."""
    results = {
        control: _result(control, row, seen.get(control, set()))
        for control in KINDS[row.kind]
        if control in scope.controls
    }
    # Ceph is read for the controls of the cluster, so nothing passes there by itself; what fails
    # there has failed.
    if row.kind == "ceph":
        return {
            control: result
            for control, result in results.items()
            if result not in ("pass", "not_applicable")
        }
    return results


def _result(control: str, row: Row, seen: Collection[str]) -> str:
    """The worst that is known: something open outweighs that not all could be assessed."""
    if row.reason:
        return "not_assessed"
    # Even if the rest of the control could not be assessed, this finding is real.
    if "open" in seen:
        return "fail"
    if control in row.reasons:
        return "not_assessed"
    # A finding that the selection hides must not let its control pass.
    if "unselected" in seen or control in row.unselected:
        return "not_in_scope"
    if "accepted" in seen:
        return "accepted"
    # Of what there is a finding, there is something to look at, whatever the host says.
    return "not_applicable" if control in row.not_applicable and not seen else "pass"


def _status(
    row: Row, results: Mapping[str, str], reasons: Mapping[str, Reason]
) -> tuple[str, Reason | None]:
    """How far a host was assessed, and why nothing was, if that is so."""
    if row.reason:
        return "not_assessed", row.reason
    if not reasons:
        return "assessed", None
    if not results or set(results.values()) != {"not_assessed"}:
        return "partly_assessed", None
    # Each control has a reason, so together they are the reason of the host.
    said = "; ".join(dict.fromkeys(reasons.values()))[:MAX_REASON]
    return "not_assessed", Reason(next(iter(reasons.values())).code, said)


def _fingerprints(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A name for each finding that is the same in the next run."""
    times: Counter[tuple[str, ...]] = Counter()
    for finding in findings:
        # Only what the finding is about: its texts may hold numbers that change.
        about = (
            finding["control"],
            finding["host"],
            *(finding["object"][key] for key in ("kind", "namespace", "name", "node")),
        )
        times[about] += 1
        # 64 bits: among a million findings two are alike with a chance of one in 37 million.
        yield hashlib.sha256("\n".join((*about, str(times[about]))).encode()).hexdigest()[:16]


def describe_run(occasion: Occasion, scope: Scope) -> dict[str, Any]:
    """The run as the report has it."""
    return {
        "id": occasion.id,
        "title": clean.line(occasion.title, 200),
        "cluster": clean.line(occasion.cluster, 200),
        "started": occasion.started.strftime(TIME),
        "finished": occasion.finished.strftime(TIME),
        "seconds": round((occasion.finished - occasion.started).total_seconds(), 1),
        "collection_version": occasion.version,
        # The play that gathers forces check mode.
        "check_mode": True,
        "scope": scope.to_result(),
        "slice": {"number": occasion.slice[0], "count": occasion.slice[1]}
        if occasion.slice
        else None,
        "partial": occasion.partial,
        "compared_with": None,
    }


# Numbers


def _count_hosts(hosts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    # Zeros are counted as well, so that every report has the same keys.
    statuses = ("assessed", "partly_assessed", "not_assessed")
    return {"total": len(hosts), **count((host["status"] for host in hosts), statuses)}


def _count_findings(findings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    opened = (finding["severity"] for finding in findings if finding["status"] == "open")
    return {
        "open": count(opened, SEVERITIES),
        "accepted": sum(finding["status"] == "accepted" for finding in findings),
    }


def _count_controls(
    scope: Scope, hosts: Iterable[Mapping[str, Any]], findings: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, int]]:
    results = Counter(item for host in hosts for item in host["controls"].items())
    of_control = Counter(finding["control"] for finding in findings)
    return {
        control: {
            **{result: results[control, result] for result in RESULTS},
            "findings": of_control[control],
        }
        for control in scope.controls
    }


def _count_codes(
    hosts: Iterable[Mapping[str, Any]], findings: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, int]]:
    """By code that occurs, how many open findings were refused with it, and on how many hosts
    something was not assessed with it.
    """
    # An accepted finding waits for no repair, so its refusal does not count.
    refused = Counter(
        finding["code"] for finding in findings if finding["status"] == "open" and finding["code"]
    )
    missed = Counter(
        code for host in hosts for code in {host["code"], *host["codes"].values()} - {""}
    )
    return {
        code: {"refused": refused[code], "not_assessed": missed[code]}
        for code in sorted({*refused, *missed})
    }
