# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The report: from what the audits returned to one piece of data that everything else is made from.

Pure: no I/O here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import clean, history
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance.selection import (
    ExceptionRule,
    Expression,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import CODES, Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.controls import (
    CEPH_CONTROLS,
    CLUSTER_CONTROLS,
    CONTROLS,
    NODE_CONTROLS,
    check_command,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import SEVERITIES
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)

SCHEMA_VERSION = 1
KINDS = {"node": NODE_CONTROLS, "cluster": CLUSTER_CONTROLS, "ceph": CEPH_CONTROLS}
RESULTS = ("pass", "fail", "accepted", "not_assessed", "not_in_scope")
TIME = "%Y-%m-%dT%H:%M:%SZ"
NO_CLUSTER = Reason("no_cluster", "no access to a cluster is configured")
_NOT_RUN = Reason("audit_missing", "the audit did not run there")
# Only the report itself gives these, for what it has no answer of.
_NOT_ASKED = (NO_CLUSTER.code, _NOT_RUN.code, "host_unreachable")

_MAX_REASON = 1_000
_VERDICTS = ("repair", "refuse", "report")
# The kind of the object of a finding that stands for others.
LEFT_OUT = "findings"
# A finding that is only a note does not make a control fail.
_FAILING = SEVERITIES[:-1]


@dataclass(frozen=True)
class Scope:
    """What the user wants to know."""

    controls: tuple[str, ...] = tuple(CONTROLS)
    severity: str = "info"
    select: str = ""

    @property
    def severities(self) -> tuple[str, ...]:
        """Those that count."""
        return SEVERITIES[: SEVERITIES.index(self.severity) + 1]

    def to_result(self) -> dict[str, Any]:
        """The scope as the report has it."""
        return {"controls": list(self.controls), "severity": self.severity, "select": self.select}


@dataclass(frozen=True)
class Occasion:
    """When, of what, and by what the report is made.

    ``slice``: number and count, where the fleet was divided.
    """

    title: str
    cluster: str
    started: datetime
    finished: datetime
    version: str
    slice: tuple[int, int] | None = None
    # Of some of the fleet, or some of what there is to find: no numbers of the fleet come of it.
    partial: bool = False

    @property
    def id(self) -> str:
        """The run's name, which sorts by time."""
        return self.started.strftime("%Y%m%dT%H%M%SZ")


@dataclass
class Row:
    """A host, the cluster or Ceph, and what its audit returned.

    ``reason``: why nothing of it was assessed. ``reasons``: by control, why that one was not.
    ``unselected``: controls of which a selection left findings out.
    """

    name: str
    kind: str
    reason: Reason | None = None
    reasons: dict[str, Reason] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    unselected: set[str] = field(default_factory=set)


# From results to rows


def read_result(
    name: str, kind: str, result: Any, controls: Sequence[str] = tuple(CONTROLS)
) -> Row | None:
    """What an audit returned. None for Ceph that was not asked."""
    row = Row(clean.line(name, 300), kind)
    if not isinstance(result, Mapping) or result.get("skipped"):
        if kind == "ceph":
            return None
        row.reason = NO_CLUSTER if kind == "cluster" else _NOT_RUN
        return row
    said = clean.line(result.get("msg") or "it gave no reason", _MAX_REASON)
    if result.get("unreachable"):
        row.reason = Reason("host_unreachable", f"unreachable: {said}")
        return row
    findings, left_out = result.get("findings"), result.get("not_assessed") or {}
    code = _code_of_audit(result.get("code"))
    # Ceph is asked one thing, under whatever control it is asked elsewhere.
    if not isinstance(findings, (list, tuple)) or (kind == "ceph" and left_out):
        row.reason = Reason(code, said + _last_words(result.get("module_stderr")))
        return row
    try:
        row.findings = [_read_finding(finding, row) for finding in findings]
        codes = result.get("not_assessed_codes") or {}
        row.reasons = {
            str(control): Reason(_code_of_audit(codes.get(control)), clean.line(why, _MAX_REASON))
            for control, why in left_out.items()
            if control in controls
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        row.findings, row.reason = (
            [],
            Reason(
                "unexpected_error",
                f"what it returned is not what an audit returns: {type(error).__name__} "
                f"{clean.line(error, 100)}",
            ),
        )
        return row
    if (result.get("failed") or "exception" in result) and not left_out:
        # It ended on its way, and does not say how far it came.
        left = set(controls).intersection(KINDS[kind])
        row.reasons = dict.fromkeys(left, Reason(code, said))
    return row


def _code(code: Any) -> str:
    """Of what was not assessed. Modules that could not even begin have none."""
    return code if isinstance(code, str) and code in CODES else "unexpected_error"


def _code_of_audit(code: Any) -> str:
    """The same of a result, which root on that host writes: that nothing was asked there, or that
    there was no answer, it does not say of itself.
    """
    return _code("" if code in _NOT_ASKED else code)


def _last_words(stderr: Any) -> str:
    """Of a module that could not even begin, where the message alone says nothing: how it begins,
    but of a traceback the end.
    """
    lines = [line for line in str(stderr or "").splitlines() if line.strip()]
    return (
        f": {clean.line(lines[-1 if lines[0].startswith('Traceback') else 0], _MAX_REASON)}"
        if lines
        else ""
    )


def _read_finding(raw: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """A node tells nothing of the cluster: it would have another one fenced, by the command that
    goes with it.
    """
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
    known = finding["control"] in ("", *KINDS[row.kind]) and finding["code"] in ("", *CODES)
    if finding["severity"] not in SEVERITIES or finding["verdict"] not in _VERDICTS or not known:
        raise ValueError(f"{finding['control']} {finding['severity']} {finding['verdict']}")
    return finding


def _read_action(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "action": clean.line(raw["action"], 100),
        "target": clean.line(raw["target"]),
        "command": [clean.text(word) for word in raw["command"][: clean.MAX_ITEMS]],
    }


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
        if report["schema_version"] != SCHEMA_VERSION:
            raise StorageOpsError(
                f"{file} has schema version {clean.line(report['schema_version'], 20)}, and this "
                f"is {SCHEMA_VERSION}",
                code="file_unusable",
            )
        run = report["run"]
        rows = {host["name"]: _read_host(host) for host in report["hosts"]}
        for finding in report["findings"]:
            rows[finding["host"]].findings.append(_read_finding(finding, rows[finding["host"]]))
        scope = run["scope"]
        controls = tuple(control for control in CONTROLS if control in scope["controls"])
        return Part(
            file=file,
            cluster=str(run["cluster"]),
            scope=Scope(
                controls, SEVERITIES[SEVERITIES.index(scope["severity"])], str(scope["select"])
            ),
            started=datetime.strptime(run["started"], TIME).replace(tzinfo=timezone.utc),
            slice=(int(run["slice"]["number"]), int(run["slice"]["count"]))
            if run["slice"]
            else None,
            rows=list(rows.values()),
            exceptions=[
                {key: str(one[key]) for key in ("select", "owner", "reason", "expires")}
                for one in report["exceptions"]
            ],
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StorageOpsError(
            f"{file} is no report of this collection: {type(error).__name__} "
            f"{clean.line(error, 100)}",
            code="file_unusable",
        ) from error


def _read_host(host: Mapping[str, Any]) -> Row:
    row = Row(
        clean.line(host["name"], 300),
        host["kind"],
        Reason(_code(host["code"]), clean.line(host["reason"], _MAX_REASON))
        if host["status"] == "not_assessed"
        else None,
    )
    row.reasons = {
        control: Reason(_code(host["codes"][control]), clean.line(why, _MAX_REASON))
        for control, why in host["reasons"].items()
        if control in KINDS[row.kind]
    }
    row.unselected = {
        control for control, result in host["controls"].items() if result == "not_in_scope"
    }
    return row


def join(parts: Sequence[Part], others: Iterable[Row], hosts: Sequence[str]) -> list[Row]:
    """The rows of several reports, and of what was read besides. What is in two reports counts as
    the newer one has it: a job ran again.

    Each of ``hosts`` that is in no report is a row, too; where they are not known, each slice of
    the fleet that has no report.
    """
    first = parts[0]
    for part in parts[1:]:
        if (part.cluster, part.scope) != (first.cluster, first.scope):
            raise BadOption(
                f"{first.file} and {part.file} are not of the same fleet, or did not ask the same"
            )
    joined: dict[tuple[str, str], Row] = {}
    for row in [
        *(row for part in sorted(parts, key=lambda part: part.started) for row in part.rows),
        *others,
    ]:
        # Of the cluster the newest counts, but not of who had no access.
        if not _has_no_cluster(row) or not any(kind == row.kind for kind, _name in joined):
            joined[row.kind, row.name] = row
    clusters = [key for key in joined if key[0] == "cluster"]
    for key in clusters:
        if _has_no_cluster(joined[key]) and len(clusters) > 1:
            del joined[key]
    names = {clean.line(name, 300): None for name in hosts}
    absent = [
        Row(
            name,
            "node",
            Reason("audit_missing", "no report of a part of the fleet has this host"),
        )
        for name in names
        if ("node", name) not in joined
    ]
    return name_apart([*joined.values(), *(absent if hosts else _missing_slices(parts))])


def _has_no_cluster(row: Row) -> bool:
    return row.kind == "cluster" and row.reason is not None and row.reason.code == NO_CLUSTER.code


def repeated(parts: Sequence[Part]) -> list[str]:
    """Nodes that are in more than one report."""
    times = Counter(row.name for part in parts for row in part.rows if row.kind == "node")
    return sorted(name for name, number in times.items() if number > 1)


def name_apart(rows: list[Row]) -> list[Row]:
    """The rows; the cluster and Ceph with other names where a host has theirs."""
    taken = {row.name for row in rows if row.kind == "node"}
    for row in rows:
        if row.kind != "node":
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


# From rows to the report


def build(
    rows: Sequence[Row],
    scope: Scope,
    exceptions: Sequence[ExceptionRule],
    occasion: Occasion,
    previous: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The report; ``previous``: the run to compare with, as history keeps it."""
    today = occasion.finished.strftime("%Y-%m-%d")
    rows = [row for row in rows if set(KINDS[row.kind]).intersection(scope.controls)]
    found = [
        finding
        for row in rows
        for finding in row.findings
        if finding["control"] in ("", *scope.controls)
    ]
    found.sort(
        key=lambda one: (
            SEVERITIES.index(one["severity"]),
            one["control"] or "~",
            one["host"],
            one["object"]["name"],
        )
    )
    rules = _accept(found, exceptions)
    shown, select_error = _select(found, scope)
    by_host: dict[str, list[tuple[dict[str, Any], bool]]] = {row.name: [] for row in rows}
    for index, finding in enumerate(found):
        finding.update(_judgement(rules.get(index, []), today))
        by_host[finding["host"]].append((finding, index in shown))
    hosts = [_host(row, scope, by_host[row.name]) for row in rows]
    findings = [finding for index, finding in enumerate(found) if index in shown]
    for finding, fingerprint in zip(findings, _fingerprints(findings)):
        finding["fingerprint"] = fingerprint
        finding["command"] = (
            check_command(finding["control"], finding["host"], finding["object"])
            if finding["runbook"]
            else ""
        )
    new, resolved = history.compare(previous, hosts, findings)
    for finding in findings:
        finding["new"] = finding["fingerprint"] in new
    run, told = (
        describe_run(occasion, scope),
        [exception.to_result(today) for exception in exceptions],
    )
    run["compared_with"] = previous["run"]["id"] if previous else None
    if select_error:
        run["scope"]["select_error"] = select_error
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "controls": [CONTROLS[control].to_result() for control in scope.controls],
        "summary": {
            "hosts": {
                "total": len(hosts),
                **_count(
                    (host["status"] for host in hosts),
                    ("assessed", "partly_assessed", "not_assessed"),
                ),
            },
            "findings": {
                "open": _count(
                    (finding["severity"] for finding in findings if finding["status"] == "open"),
                    SEVERITIES,
                ),
                "accepted": sum(finding["status"] == "accepted" for finding in findings),
                "expired_exceptions": sum(one["expired"] for one in told),
                "new": len(new),
                "resolved": resolved,
            },
            "controls": _count_controls(scope, hosts, findings),
            "codes": _count_codes(hosts, findings),
        },
        "hosts": hosts,
        "findings": findings,
        "exceptions": told,
    }


def _accept(
    found: Sequence[Mapping[str, Any]], exceptions: Iterable[ExceptionRule]
) -> dict[int, list[ExceptionRule]]:
    """By index of a finding, the exceptions that select it; none selects what stands for findings
    that nobody has seen.
    """
    rules: dict[int, list[ExceptionRule]] = {}
    known = [
        index
        for index, finding in enumerate(found)
        if finding["control"] or finding["object"]["kind"] != LEFT_OUT
    ]
    acceptable = [found[index] for index in known]
    for exception in exceptions:
        # What it cannot be applied to it does not accept, which is the safe side.
        selected, _defeated, exception.error = exception.expression.apart(acceptable)
        indices = [known[place] for place in selected]
        exception.matched = len(indices)
        for index in indices:
            rules.setdefault(index, []).append(exception)
    return rules


def _select(found: Sequence[Mapping[str, Any]], scope: Scope) -> tuple[set[int], str]:
    """Indices of the findings that are shown, also of those that are grave enough and the selection
    cannot be applied to, and why.
    """
    grave = [
        index for index, finding in enumerate(found) if finding["severity"] in scope.severities
    ]
    # What stands for findings that were left out of a result is no finding that could be selected.
    always = {index for index, finding in enumerate(found) if not finding["control"]}
    if not scope.select:
        return always.union(grave), ""
    try:
        expression = Expression(scope.select, "select")
    except StorageOpsError as error:
        return always.union(grave), str(error)
    chosen, defeated, why = expression.apart([found[index] for index in grave])
    return always.union(grave[place] for place in (*chosen, *defeated)), why


def _judgement(rules: Sequence[ExceptionRule], today: str) -> dict[str, Any]:
    """Whether a finding is accepted: by the first exception that has not expired."""
    valid = next((rule for rule in rules if not rule.expired(today)), None)
    expired = next((rule for rule in rules if rule.expired(today)), None)
    return {
        "status": "accepted" if valid else "open",
        "exception": valid.note() if valid else None,
        "expired_exception": expired.note() if expired and not valid else None,
    }


def _host(
    row: Row, scope: Scope, found: Sequence[tuple[Mapping[str, Any], bool]]
) -> dict[str, Any]:
    """What became of each control on a host; ``found`` says of each finding whether it is shown."""
    worst: dict[str, set[str]] = {}
    for finding, shown in found:
        for control in stands_for(finding):
            if fails(finding):
                worst.setdefault(control, set()).add(finding["status"] if shown else "unselected")
    results = {}
    for control in KINDS[row.kind]:
        if control not in scope.controls:
            continue
        seen = worst.get(control, set())
        if row.reason:
            results[control] = "not_assessed"
        elif "open" in seen:
            results[control] = "fail"
        elif control in row.reasons:
            results[control] = "not_assessed"
        elif "unselected" in seen or control in row.unselected:
            results[control] = "not_in_scope"
        elif "accepted" in seen:
            results[control] = "accepted"
        elif row.kind != "ceph":
            # What is read of Ceph serves the cluster's controls; nothing of it passes by itself.
            results[control] = "pass"
    reasons = {control: why for control, why in row.reasons.items() if control in scope.controls}
    status = "not_assessed" if row.reason else "partly_assessed" if reasons else "assessed"
    reason = row.reason
    if status == "partly_assessed" and results and set(results.values()) == {"not_assessed"}:
        # In so many words for each control.
        said = "; ".join(dict.fromkeys(reasons.values()))[:_MAX_REASON]
        status, reason = "not_assessed", Reason(next(iter(reasons.values())).code, said)
    return {
        "name": row.name,
        "kind": row.kind,
        "status": status,
        "code": reason.code if reason else "",
        "reason": str(reason or ""),
        "controls": results,
        "codes": {control: why.code for control, why in reasons.items()},
        "reasons": {control: str(why) for control, why in reasons.items()},
    }


def fails(finding: Mapping[str, Any]) -> bool:
    """It makes its controls fail, unless it is accepted; so does what nobody has seen, however
    harmless it is said to be.
    """
    return finding["severity"] in _FAILING or not finding["control"]


def stands_for(finding: Mapping[str, Any]) -> list[str]:
    """Controls that a finding is about: those that a result had no room for are counted in one
    finding of no control.
    """
    if finding["control"]:
        return [finding["control"]]
    counted = finding["evidence"].get("controls") if finding["object"]["kind"] == LEFT_OUT else None
    return [str(item).partition(":")[0] for item in counted] if isinstance(counted, list) else []


def _fingerprints(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A name for each finding that is the same in the next run: of what it is about, and not of
    what it says, which may hold numbers.
    """
    times: Counter[tuple[str, ...]] = Counter()
    for finding in findings:
        about = (
            finding["control"],
            finding["host"],
            *(finding["object"][key] for key in ("kind", "namespace", "name", "node")),
        )
        times[about] += 1
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
        "check_mode": True,
        "scope": scope.to_result(),
        "slice": {"number": occasion.slice[0], "count": occasion.slice[1]}
        if occasion.slice
        else None,
        "partial": occasion.partial,
        "compared_with": None,
    }


def _count(values: Iterable[str], names: Iterable[str]) -> dict[str, int]:
    """How often each name is among the values."""
    counted = Counter(values)
    return {name: counted[name] for name in names}


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
    """By code, how many open findings are refused by it, and on how many hosts something was not
    assessed for it. Only codes that occur.
    """
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


# What is said of it in short


def sentence(report: Mapping[str, Any]) -> str:
    """The state of the fleet in one sentence."""
    opened = report["summary"]["findings"]["open"]
    total = sum(opened.values())
    scope = report["run"]["scope"]
    asked = (
        [f"of severity {scope['severity']}{' or worse' * (scope['severity'] != SEVERITIES[0])}"]
        if scope["severity"] != SEVERITIES[-1]
        else []
    )
    asked += ["of the selected"] if scope["select"] and "select_error" not in scope else []
    of_selected = "".join(f" {one}" for one in asked)
    counted = ", ".join(
        f"{opened[severity]} {severity}" for severity in SEVERITIES if opened[severity]
    )
    nodes = [host for host in report["hosts"] if host["kind"] == "node"]
    ill = {finding["host"] for finding in report["findings"] if finding["status"] == "open"}
    ill_nodes = sum(node["name"] in ill for node in nodes)
    hosts = f"{len(nodes)} host{'s' * (len(nodes) != 1)}"
    statuses = _count((node["status"] for node in nodes), ("not_assessed", "partly_assessed"))
    where = [f"on {ill_nodes} of {hosts}"] if nodes else []
    where += (
        ["in the cluster"]
        if any(host["name"] in ill for host in report["hosts"] if host["kind"] != "node")
        else []
    )
    if total:
        said = (
            f"{total} open finding{'s' * (total != 1)}{of_selected} ({counted}) "
            f"{' and '.join(where)}"
        )
    else:
        # Not of what nobody looked at.
        said = (
            f"no open findings{of_selected} on {len(nodes) - statuses['not_assessed']} of {hosts}"
            if nodes
            else f"no open findings{of_selected}"
        )
    if not total and all(host["status"] == "not_assessed" for host in report["hosts"]):
        said = "nothing was assessed"
    lacking = [
        f"{number} {text}"
        for number, text in zip(statuses.values(), ("not assessed", "only partly assessed"))
        if number
    ]
    lacking += [f"the cluster {text}" for text in _unseen_clusters(report["hosts"])]
    return f"{said}{'; ' * bool(lacking)}{', '.join(lacking)}"


def _unseen_clusters(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    words = {"not_assessed": "not assessed", "partly_assessed": "only partly assessed"}
    return [
        words[host["status"]]
        for host in hosts
        if host["kind"] == "cluster" and host["status"] in words
    ]


def counts(report: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of it, without a name of a host or an object: what may go anywhere."""
    run, summary = report["run"], report["summary"]
    return {
        "run": run["id"],
        "cluster": run["cluster"],
        "hosts": summary["hosts"],
        "findings": summary["findings"],
        "controls": {
            control: {what: number for what, number in every.items() if number}
            for control, every in summary["controls"].items()
        },
    }


def unwanted(host: Mapping[str, Any], report: Mapping[str, Any]) -> bool:
    """It is a cluster that nobody asked for, neither by access to one nor by naming controls."""
    return (
        host["kind"] == "cluster"
        and host["code"] == NO_CLUSTER.code
        and len(report["run"]["scope"]["controls"]) == len(CONTROLS)
    )


def unassessed(report: Mapping[str, Any], most: int = 5) -> list[str]:
    """Why what was not assessed: a line for each reason, those of the most hosts first."""
    by_reason: dict[str, list[str]] = {}
    for host in report["hosts"]:
        for why in dict.fromkeys([host["reason"]] if host["reason"] else host["reasons"].values()):
            by_reason.setdefault(why, []).append(host["name"])
    lines = []
    for why, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(
            f"not assessed, or not all of it: {', '.join(names[:3])}{more}: {clean.line(why, 300)}"
        )
    left = len(lines) - most
    return [*lines[:most], f"and {left} more reasons: see the report"] if left > 0 else lines


def failing(report: Mapping[str, Any]) -> bool:
    """Not all is well: something failed, or could not be assessed although it was to be."""
    return any(
        result == "fail" or (result == "not_assessed" and not unwanted(host, report))
        for host in report["hosts"]
        for result in host["controls"].values()
    )
