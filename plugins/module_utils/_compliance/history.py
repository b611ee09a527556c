# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Earlier runs: what is kept of a run, and what has changed since. Pure: no I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

KEPT_VERSION = 1


def keep(report: Mapping[str, Any], previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """What later runs need of a report: its summary, and which findings there were, by control and
    host.

    What was found earlier where nobody could look this time counts as still there.
    """
    unseen = _unseen(report["hosts"])
    findings: dict[str, dict[str, list[str]]] = {}
    for finding in report["findings"]:
        findings.setdefault(finding["control"], {}).setdefault(finding["host"], []).append(
            finding["fingerprint"]
        )
    for control, host, fingerprint in _findings(previous):
        if (host, control) in unseen:
            there = findings.setdefault(control, {}).setdefault(host, [])
            if fingerprint not in there:
                there.append(fingerprint)
    return {
        "kept_version": KEPT_VERSION,
        "run": report["run"],
        "summary": report["summary"],
        "findings": findings,
    }


def is_kept(data: Any) -> bool:
    """The file is one of ours, and of this version."""
    return (
        isinstance(data, dict)
        and data.get("kept_version") == KEPT_VERSION
        and all(isinstance(data.get(key), dict) for key in ("run", "summary", "findings"))
        and isinstance(data["run"].get("id"), str)
        and isinstance(data["run"].get("scope"), dict)
        and all(isinstance(hosts, dict) for hosts in data["findings"].values())
        and all(
            isinstance(prints, list)
            for hosts in data["findings"].values()
            for prints in hosts.values()
        )
        and all(
            isinstance(one, str)
            for hosts in data["findings"].values()
            for prints in hosts.values()
            for one in prints
        )
    )


def asked(run: Mapping[str, Any]) -> str:
    """Of what, and what, a run asked: only runs that agree in this can be compared."""
    scope = run["scope"]
    return json.dumps(
        [
            run.get("cluster"),
            run.get("slice"),
            *(scope.get(key) for key in ("controls", "severity", "select")),
        ]
    )


def lighten(kept: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs, oldest first; of those that asked the same only the last with its findings, since
    no other is compared with.
    """
    last = {asked(run["run"]): run for run in kept}
    return [run if last[asked(run["run"])] is run else {**run, "findings": {}} for run in kept]


def comparable(
    kept: Iterable[Mapping[str, Any]], run: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Earlier runs that asked what this one asks, oldest first."""
    return sorted(
        (one for one in kept if asked(one["run"]) == asked(run)),
        key=lambda one: str(one["run"]["id"]),
    )


def compare(
    previous: Mapping[str, Any] | None,
    hosts: Sequence[Mapping[str, Any]],
    findings: Iterable[Mapping[str, Any]],
) -> tuple[set[str], int]:
    """Fingerprints of the findings that the previous run had not, and how many of its findings are
    gone.

    Gone is only what was looked for where it had been; without a previous run nothing is new.
    """
    if previous is None:
        return set(), 0
    now = {finding["fingerprint"] for finding in findings}
    before = list(_findings(previous))
    seen, unseen = {host["name"] for host in hosts}, _unseen(hosts)
    gone = {
        print_
        for control, host, print_ in before
        if print_ not in now and host in seen and (host, control) not in unseen
    }
    return now - {print_ for _control, _host, print_ in before}, len(gone)


def trend(
    earlier: Sequence[Mapping[str, Any]], report: Mapping[str, Any], most: int = 60
) -> list[dict[str, Any]]:
    """When, and how many open findings of each severity and hosts that were not assessed, oldest
    first.
    """
    points = []
    for run in [*earlier, report][-most:]:
        try:
            # A night on which nobody could look was no perfect one.
            if (
                run["summary"]["hosts"]["assessed"]
                == run["summary"]["hosts"]["partly_assessed"]
                == 0
            ):
                continue
            point = {
                "started": str(run["run"]["started"]),
                **{
                    severity: abs(int(number))
                    for severity, number in run["summary"]["findings"]["open"].items()
                },
                "not_assessed": abs(int(run["summary"]["hosts"]["not_assessed"])),
            }
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            continue
        points.append(point)
    return points


def _findings(kept: Mapping[str, Any] | None) -> Iterable[tuple[str, str, str]]:
    """(control, host, fingerprint) of a run that was kept."""
    for control, hosts in (kept or {}).get("findings", {}).items():
        for host, fingerprints in hosts.items():
            for fingerprint in fingerprints:
                yield control, host, fingerprint


def _unseen(hosts: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """(host, control) that could not be assessed; of no control where not all could."""
    unseen = {(host["name"], "") for host in hosts if host["status"] != "assessed"}
    return unseen | {
        (host["name"], control)
        for host in hosts
        for control, result in host["controls"].items()
        if result == "not_assessed" or control in host["reasons"]
    }
