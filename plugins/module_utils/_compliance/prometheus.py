# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as metrics for node_exporter's text file collector. Pure: no I/O here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from .._core.codes import CODES
from .._core.engine import SEVERITIES
from .model import RESULTS, TIME
from .overview import unwanted

# Rules and dashboards depend on the names below, as on report.json: they stay.
PREFIX = "storage_ops_compliance"
STATUSES = ("assessed", "partly_assessed", "not_assessed")

Sample = tuple[dict[str, str], float]


def render(report: Mapping[str, Any]) -> str:
    """The metrics."""
    # Zeros are written as well: a series that vanishes goes stale, and an alert on it would end
    # without a sign that the problem was solved (Prometheus, Best practices, Instrumentation: avoid
    # missing metrics).
    run, summary = report["run"], report["summary"]
    finished = datetime.strptime(run["finished"], TIME).replace(tzinfo=timezone.utc)
    # At a site without a cluster, an alert on "not assessed" would never end.
    no_cluster = sum(unwanted(host, report) for host in report["hosts"])
    families: list[tuple[str, str, Iterable[Sample]]] = [
        ("findings", "Findings of the last compliance run.", _findings(report)),
        (
            "hosts",
            "Hosts and clusters of the last compliance run, by how far they were assessed.",
            [
                (
                    {"status": status},
                    summary["hosts"][status] - (no_cluster if status == "not_assessed" else 0),
                )
                for status in STATUSES
            ],
        ),
        (
            "control_hosts",
            "Hosts and clusters by what became of a control there.",
            [
                ({"control": control, "result": result}, counts[result])
                for control, counts in summary["controls"].items()
                for result in RESULTS
            ],
        ),
        (
            "codes",
            "Open findings that are refused, and hosts where something was not assessed, by code.",
            [
                ({"code": code, "what": what}, summary["codes"].get(code, {}).get(what, 0))
                # All codes that there are, for the same reason as the zeros above.
                for code in CODES
                for what in ("refused", "not_assessed")
            ],
        ),
        (
            "exceptions",
            "Accepted findings' exceptions, by state.",
            _exceptions(report["exceptions"]),
        ),
        (
            "last_run_timestamp_seconds",
            "When the last compliance run ended.",
            [({}, finished.timestamp())],
        ),
        ("run_duration_seconds", "How long the last compliance run took.", [({}, run["seconds"])]),
    ]
    lines: list[str] = []
    for name, text, samples in families:
        lines += [f"# HELP {PREFIX}_{name} {text}", f"# TYPE {PREFIX}_{name} gauge"]
        lines += [
            # 16 digits keep a time of today to the microsecond.
            f"{PREFIX}_{name}{{{_labels({'cluster': run['cluster'], **labels})}}} {value:.16g}"
            for labels, value in samples
        ]
    return "\n".join(lines) + "\n"


def _findings(report: Mapping[str, Any]) -> list[Sample]:
    counted = Counter(
        (finding["control"], finding["severity"], finding["status"])
        for finding in report["findings"]
    )
    controls = [control["id"] for control in report["controls"]]
    # A finding that stands for those that a result had no room for has no control.
    controls += [""] if any(not control for control, _severity, _status in counted) else []
    return [
        (
            {"control": control or "none", "severity": severity, "status": status},
            counted[control, severity, status],
        )
        for control in controls
        for severity in SEVERITIES
        for status in ("open", "accepted")
    ]


def _exceptions(exceptions: Iterable[Mapping[str, Any]]) -> list[Sample]:
    counted = Counter(
        "expired" if one["expired"] else "valid" if one["matched"] else "unmatched"
        for one in exceptions
    )
    return [({"state": state}, counted[state]) for state in ("valid", "expired", "unmatched")]


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    # Prometheus, Text-based format: label values escape backslash, quote and line feed. The
    # backslash goes first, or it would escape those of the other two again.
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
