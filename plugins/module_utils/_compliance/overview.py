# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A report in short: one sentence, its numbers, and what could not be assessed.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._core.controls import CONTROLS
from .._core.engine import SEVERITIES
from . import clean
from .model import NO_CLUSTER, count

_HOW_FAR = {"not_assessed": "not assessed", "partly_assessed": "only partly assessed"}


def sentence(report: Mapping[str, Any]) -> str:
    """The state of the fleet in one sentence."""
    hosts = report["hosts"]
    nodes = [host for host in hosts if host["kind"] == "node"]
    statuses = count((node["status"] for node in nodes), _HOW_FAR)
    if any(report["summary"]["findings"]["open"].values()):
        said = _open_findings(report, nodes)
    elif all(host["status"] == "not_assessed" for host in hosts):
        said = "nothing was assessed"
    elif not looked_at(report):
        said = "nothing in scope is applicable"
    else:
        said = f"no open findings{_selected(report['run']['scope'])}"
        # Hosts that were not assessed have no findings, and are not without any.
        assessed = len(nodes) - statuses["not_assessed"]
        said += f" on {assessed} of {_plural(len(nodes), 'host')}" if nodes else ""
    return "; ".join([said, *_lacking(hosts, statuses)])


def looked_at(report: Mapping[str, Any]) -> bool:
    """A control was applicable somewhere. Where none was, the wrong hosts may have been asked."""
    return any(
        result not in ("not_applicable", "not_assessed")
        for host in report["hosts"]
        for result in host["controls"].values()
    )


def _lacking(hosts: Iterable[Mapping[str, Any]], statuses: Mapping[str, int]) -> list[str]:
    """What was not assessed, in one text; nothing where all was."""
    texts = [f"{number} {_HOW_FAR[status]}" for status, number in statuses.items() if number]
    texts += [
        f"the cluster {_HOW_FAR[host['status']]}"
        for host in hosts
        if host["kind"] == "cluster" and host["status"] in _HOW_FAR
    ]
    return [", ".join(texts)] if texts else []


def _open_findings(report: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """How many open findings there are, and on how many hosts."""
    opened = report["summary"]["findings"]["open"]
    counted = ", ".join(
        f"{opened[severity]} {severity}" for severity in SEVERITIES if opened[severity]
    )
    # By host: ten findings on one node are another problem than one on each of ten.
    ill = {finding["host"] for finding in report["findings"] if finding["status"] == "open"}
    ill_nodes = sum(node["name"] in ill for node in nodes)
    where = [f"on {ill_nodes} of {_plural(len(nodes), 'host')}"] if nodes else []
    if any(host["name"] in ill for host in report["hosts"] if host["kind"] != "node"):
        where.append("in the cluster")
    number = _plural(sum(opened.values()), "open finding")
    return f"{number}{_selected(report['run']['scope'])} ({counted}) {' and '.join(where)}"


def _selected(scope: Mapping[str, Any]) -> str:
    """Which findings count, where not all do."""
    said = ""
    if scope["severity"] != SEVERITIES[-1]:
        worse = " or worse" if scope["severity"] != SEVERITIES[0] else ""
        said += f" of severity {scope['severity']}{worse}"
    if scope["select"] and "select_error" not in scope:
        said += " of the selected"
    return said


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def counts(report: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a report, which name no host and no object, so that they may go anywhere."""
    # AWX artifacts are visible to more people than the report.
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
    """A cluster that the user did not ask for, neither by credentials nor by naming controls."""
    # Sites without Kubernetes run the same play; naming fewer controls than all is asking for them.
    return (
        host["kind"] == "cluster"
        and host["code"] == NO_CLUSTER.code
        and len(report["run"]["scope"]["controls"]) == len(CONTROLS)
    )


def unassessed(report: Mapping[str, Any], most: int = 5) -> list[str]:
    """Why something was not assessed: a line for each reason, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for host in report["hosts"]:
        # Once for each host, however many of its controls have that reason.
        for why in dict.fromkeys([host["reason"]] if host["reason"] else host["reasons"].values()):
            by_reason.setdefault(why, []).append(host["name"])
    # One outage gives the same reason on many hosts: one line is enough for it.
    lines = []
    for why, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(
            f"not assessed, or not all of it: {', '.join(names[:3])}{more}: {clean.line(why, 300)}"
        )
    left = len(lines) - most
    return [*lines[:most], f"and {left} more reasons: see the report"] if left > 0 else lines


def failing(report: Mapping[str, Any]) -> bool:
    """Something failed, or could not be assessed although it was asked for."""
    return any(
        # A job that could not look must not end green: silence would look like health.
        result == "fail" or (result == "not_assessed" and not unwanted(host, report))
        for host in report["hosts"]
        for result in host["controls"].values()
    )
