# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what audits returned, or earlier reports, to one row for each host.

Pure: no I/O here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .._core.codes import CODES, Reason
from .._core.controls import CONTROLS
from .._core.engine import MAX_RESULT_CHARACTERS, SEVERITIES
from .._core.errors import BadOption, StorageOpsError, words
from .._core.texts import telling
from . import clean
from .model import KINDS, MAX_REASON, NO_CLUSTER, SCHEMA_VERSION, TIME, Scope

_NOT_RUN = Reason("audit_missing", "the audit did not run there")
# Only the report itself gives these codes, for hosts that gave no answer.
_NOT_ASKED = (NO_CLUSTER.code, _NOT_RUN.code, "host_unreachable")
# A word that is none of these would be shown, and decided on, as if it were ours.
_VERDICTS = ("repair", "refuse", "report")
# Our modules return some two thousand at most (engine.MAX_RESULT_CHARACTERS). Those of a host that
# returns more would hide those of all others on the page.
MAX_FINDINGS = 2_500
# Characters of them in the report, where each also has its host. More of one host would make the
# report of all others too long to be written, or opened.
MAX_CHARACTERS = 2 * MAX_RESULT_CHARACTERS


@dataclass
class Row:
    """A host, the cluster or Ceph, and what its audit returned."""

    name: str
    kind: str
    # Why nothing was assessed there.
    reason: Reason | None = None
    # By control, why that one was not assessed.
    reasons: dict[str, Reason] = field(default_factory=dict)
    # By control, the evidence that there is nothing to look at.
    not_applicable: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    # Controls of which a selection left findings out.
    unselected: set[str] = field(default_factory=set)


# From a result


def read_result(
    name: str, kind: str, result: Any, controls: Sequence[str] = tuple(CONTROLS)
) -> Row | None:
    """What an audit returned. None for Ceph that was not asked."""
    # Names of hosts come from an inventory, which may be a file that a tool has written.
    row = Row(clean.line(name, 300), kind)
    if not isinstance(result, Mapping) or result.get("skipped"):
        if kind == "ceph":
            return None
        row.reason = NO_CLUSTER if kind == "cluster" else _NOT_RUN
        return row
    # Everything below is what a host returned, and may be anything.
    said = clean.line(result.get("msg") or "it gave no reason", MAX_REASON)
    row.reason = _why_no_audit(result, kind, said)
    if not row.reason:
        _read_audit(row, result, controls)
    if not row.reason and not result.get("not_assessed") and _ended_early(result):
        # It does not say how far it came.
        left = set(controls).intersection(KINDS[kind])
        row.reasons = dict.fromkeys(left, Reason(_code_of_audit(result.get("code")), said))
    return row


def _why_no_audit(result: Mapping[str, Any], kind: str, said: str) -> Reason | None:
    """Why a result is not that of an audit. ``said``: its message."""
    # Of Ansible, for a host that it could not reach; there is nothing else in the result then.
    if result.get("unreachable"):
        return Reason("host_unreachable", f"unreachable: {said}")
    findings = result.get("findings")
    # Ceph is asked one question, which counts for whatever control asks it elsewhere.
    if not isinstance(findings, (list, tuple)) or (kind == "ceph" and result.get("not_assessed")):
        # Of a node the message tells it (plugins/action/on_node.py).
        told = clean.line("; ".join(telling(str(result.get("module_stderr") or ""))), MAX_REASON)
        said += f": {told}" if told and told not in said else ""
        return Reason(_code_of_audit(result.get("code")), said)
    if len(findings) > MAX_FINDINGS:
        said = f"it returned {len(findings)} findings, and an audit returns {MAX_FINDINGS} at most"
        return Reason("result_too_long", said)
    return None


def _read_audit(row: Row, result: Mapping[str, Any], controls: Sequence[str]) -> None:
    """Put what an audit found into its row, or why that cannot be read."""
    try:
        row.findings = [_read_finding(finding, row) for finding in result["findings"]]
        row.reasons = _read_reasons(result, controls)
        row.not_applicable = _read_not_applicable(result.get("not_applicable"), row.kind)
    # One host that answers nonsense must not cost the report of all others.
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        row.findings = []
        row.reason = Reason(
            "unexpected_error",
            f"its result is not the result of an audit: {clean.line(words(error), 100)}",
        )
        return
    length = sum(len(json.dumps(finding)) for finding in row.findings)
    if length > MAX_CHARACTERS:
        said = f"it returned findings of {length} characters, and {MAX_CHARACTERS} are read at most"
        row.findings, row.reasons, row.not_applicable = [], {}, {}
        row.reason = Reason("result_too_long", said)


def _ended_early(result: Mapping[str, Any]) -> bool:
    return bool(result.get("failed")) or "exception" in result


def _read_reasons(result: Mapping[str, Any], controls: Sequence[str]) -> dict[str, Reason]:
    """By control, why it was not assessed."""
    codes = result.get("not_assessed_codes") or {}
    return {
        str(control): Reason(_code_of_audit(codes.get(control)), clean.line(why, MAX_REASON))
        for control, why in (result.get("not_assessed") or {}).items()
        if control in controls
    }


def _read_not_applicable(told: Any, kind: str) -> dict[str, str]:
    """By control of such a row, why it is not applicable there. Raises AttributeError."""
    return {
        control: clean.line(why, MAX_REASON)
        for control, why in (told or {}).items()
        if control in KINDS[kind]
    }


def _code(code: Any) -> str:
    """The code of what was not assessed. Modules that crashed on import have none."""
    return code if isinstance(code, str) and code in CODES else "unexpected_error"


def _code_of_audit(code: Any) -> str:
    """The code in a result, which root on that host writes."""
    # A host that answers cannot claim that it was not asked: such codes raise no alarm.
    return _code("" if code in _NOT_ASKED else code)


def _read_finding(raw: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """A finding, checked; raises ValueError and others for one that no audit returns."""
    thing, repair = raw["object"], raw.get("repair") or []
    finding = {
        "control": clean.line(raw["control"], 50),
        "severity": clean.line(raw["severity"], 50),
        "host": row.name,
        "object": {
            key: clean.line(thing.get(key) or "", 500)
            for key in ("kind", "namespace", "name", "node")
        },
        "summary": clean.line(raw["summary"]),
        "evidence": clean.plain(dict(raw.get("evidence") or {})),
        "verdict": clean.line(raw["verdict"], 50),
        "code": clean.line(raw.get("code") or "", 50),
        "reason": clean.line(raw.get("reason") or ""),
        "runbook": clean.line(raw.get("runbook") or "", 200),
        "repair": [_read_action(action) for action in repair[: clean.MAX_ITEMS]],
    }
    # A node must not report findings of the cluster: the command that goes with one could fence
    # another node.
    known = finding["control"] in ("", *KINDS[row.kind]) and finding["code"] in ("", *CODES)
    if finding["severity"] not in SEVERITIES or finding["verdict"] not in _VERDICTS or not known:
        # The whole host counts as not assessed: who writes one false finding may leave others out.
        raise ValueError(f"{finding['control']} {finding['severity']} {finding['verdict']}")
    return finding


def _read_action(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "action": clean.line(raw["action"], 100),
        "target": clean.line(raw["target"]),
        "command": [clean.text(word) for word in raw["command"][: clean.MAX_ITEMS]],
    }


# From earlier reports


@dataclass(frozen=True)
class Part:
    """An earlier report that becomes a part of this one."""

    file: str
    cluster: str
    scope: Scope
    started: datetime
    slice: tuple[int, int] | None
    rows: list[Row]
    exceptions: list[dict[str, str]]


def read_report(report: Any, file: str) -> Part:
    """What an earlier report was made from."""
    try:
        return _read_part(report, file)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StorageOpsError(
            f"{file} is not a report of this collection: {clean.line(words(error), 100)}",
            code="file_unusable",
        ) from error


def _read_part(report: Any, file: str) -> Part:
    if report["schema_version"] != SCHEMA_VERSION:
        raise StorageOpsError(
            f"{file} has schema version {clean.line(report['schema_version'], 20)}, and this "
            f"collection reads {SCHEMA_VERSION}",
            code="file_unusable",
        )
    run = report["run"]
    rows = {host["name"]: _read_host(host) for host in report["hosts"]}
    for finding in report["findings"]:
        rows[finding["host"]].findings.append(_read_finding(finding, rows[finding["host"]]))
    scope, part = run["scope"], run["slice"]
    controls = tuple(control for control in CONTROLS if control in scope["controls"])
    # The index raises for a severity that does not exist.
    severity = SEVERITIES[SEVERITIES.index(scope["severity"])]
    return Part(
        file=file,
        cluster=str(run["cluster"]),
        scope=Scope(controls, severity, str(scope["select"])),
        started=datetime.strptime(run["started"], TIME).replace(tzinfo=timezone.utc),
        slice=(int(part["number"]), int(part["count"])) if part else None,
        rows=list(rows.values()),
        exceptions=[
            {key: str(one[key]) for key in ("select", "owner", "reason", "expires")}
            for one in report["exceptions"]
        ],
    )


def _read_host(host: Mapping[str, Any]) -> Row:
    row = Row(
        clean.line(host["name"], 300),
        host["kind"],
        Reason(_code(host["code"]), clean.line(host["reason"], MAX_REASON))
        if host["status"] == "not_assessed"
        else None,
    )
    row.reasons = {
        control: Reason(_code(host["codes"][control]), clean.line(why, MAX_REASON))
        for control, why in host["reasons"].items()
        if control in KINDS[row.kind]
    }
    row.not_applicable = _read_not_applicable(host["not_applicable"], row.kind)
    # Findings that were left out then cannot be known now.
    row.unselected = {
        control for control, result in host["controls"].items() if result == "not_in_scope"
    }
    return row


def join(parts: Sequence[Part], others: Iterable[Row], hosts: Sequence[str]) -> list[Row]:
    """The rows of several reports, and of what was read in addition.

    Each of ``hosts`` that is in no report is a row as well; where hosts are unknown, each slice of
    the fleet that has no report.
    """
    first = parts[0]
    # Numbers of different scopes cannot be added up.
    for part in parts[1:]:
        if (part.cluster, part.scope) != (first.cluster, first.scope):
            raise BadOption(
                f"{first.file} and {part.file} are of different fleets, or had different scopes"
            )
    joined = _newest(parts, others)
    # A host without a report would otherwise be missing without a trace.
    if hosts:
        names = dict.fromkeys(clean.line(name, 300) for name in hosts)
        absent = [_absent(name) for name in names if ("node", name) not in joined]
    else:
        absent = _missing_slices(parts)
    return name_apart([*joined.values(), *absent])


def _newest(parts: Sequence[Part], others: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """By kind and name, the row that counts: the newest, since a job may have run again."""
    # Stable: of two that began in the same second the one named last counts.
    by_time = sorted(parts, key=lambda part: part.started)
    joined: dict[tuple[str, str], Row] = {}
    for row in [*(row for part in by_time for row in part.rows), *others]:
        # A run without access to the cluster says nothing about it, however new it is.
        if not _has_no_cluster(row) or not any(kind == row.kind for kind, _name in joined):
            joined[row.kind, row.name] = row
    clusters = [key for key in joined if key[0] == "cluster"]
    for key in clusters:
        if _has_no_cluster(joined[key]) and len(clusters) > 1:
            del joined[key]
    return joined


def _absent(name: str) -> Row:
    return Row(name, "node", Reason("audit_missing", "no report of a part of the fleet has it"))


def _has_no_cluster(row: Row) -> bool:
    return row.kind == "cluster" and row.reason is not None and row.reason.code == NO_CLUSTER.code


def repeated(parts: Sequence[Part]) -> list[str]:
    """Nodes that are in more than one report."""
    # That is right after a job ran again, and wrong where slices overlap: the user is told.
    times = Counter(row.name for part in parts for row in part.rows if row.kind == "node")
    return sorted(name for name, number in times.items() if number > 1)


def name_apart(rows: list[Row]) -> list[Row]:
    """The rows; the cluster and Ceph get other names where a host has theirs."""
    # Findings refer to their host by its name alone.
    taken = {row.name for row in rows if row.kind == "node"}
    for row in rows:
        if row.kind == "node":
            continue
        # A host of an inventory may be called cluster or ceph.
        while row.name in taken:
            row.name = f"{row.name} ({row.kind})"
        taken.add(row.name)
        for finding in row.findings:
            finding["host"] = row.name
    return rows


def _missing_slices(parts: Sequence[Part]) -> list[Row]:
    slices = [part.slice for part in parts if part.slice]
    counts = sorted({count for _number, count in slices})
    if not slices:
        return []
    if len(counts) != 1 or len(slices) != len(parts):
        raise BadOption(
            "the reports are of fleets that were divided differently: into "
            f"{', '.join(map(str, counts))} slices, or not at all"
        )
    # The count is from a file, and must not make a row for each of a billion slices.
    absent = sorted(
        set(range(1, min(counts[0], 1_000) + 1)) - {number for number, _count in slices}
    )
    return [
        Row(
            f"slice {number} of {counts[0]}",
            "node",
            Reason("audit_missing", "there is no report of this slice"),
        )
        for number in absent
    ]
