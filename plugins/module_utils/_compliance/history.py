# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Earlier runs: what is kept of a run, and what has changed since. Pure: no I/O here."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from .._core.controls import NODE_CONTROLS
from .._core.untrusted import few
from .model import NO_FLEET
from .reading import MAX_FINDINGS

# Raised when the form of kept runs changes; others are left out of the trend.
KEPT_VERSION = 3
# model.TIME, as a pattern.
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def keep(report: Mapping[str, Any], previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """What later runs need of a report: its summary and nodes, and by control and host when each
    finding was first seen, by fingerprint.
    """
    # An earlier finding on a host that could not be assessed this time counts as still there:
    # otherwise it would be new again in the next run.
    unseen = _unseen(report["hosts"])
    nodes = [host["name"] for host in report["hosts"] if host["kind"] == "node"]
    if previous and not nodes:
        # Nobody looked at a node: those of before are still there, with all that was found.
        nodes = previous.get("nodes", [])
        unseen |= {(node, control) for node in nodes for control in ("", *NODE_CONTROLS)}
    findings: dict[str, dict[str, dict[str, str]]] = {}
    room: Counter[str] = Counter()
    for finding in report["findings"]:
        there = findings.setdefault(finding["control"], {}).setdefault(finding["host"], {})
        there[finding["fingerprint"]] = finding["first_seen"]
        room[finding["host"]] += 1
    # A host that always names other findings, and that they were not assessed, would make the file
    # longer with each run. The oldest findings stay.
    for control, host, fingerprint, since in sorted(_findings(previous), key=itemgetter(3)):
        if (host, control) in unseen and room[host] < MAX_FINDINGS:
            there = findings.setdefault(control, {}).setdefault(host, {})
            room[host] += fingerprint not in there
            there.setdefault(fingerprint, since)
    return {
        "kept_version": KEPT_VERSION,
        "run": report["run"],
        "summary": report["summary"],
        "nodes": nodes,
        "findings": findings,
    }


def of_another(kept: tuple[str, Collection[str]], fleet: str, nodes: Collection[str]) -> str:
    """Of which other fleet the report of a folder is; empty if it is of this one.

    ``kept``: the fleet and the nodes of that report; ``nodes``: those of this run, none if that is
    not known.
    """
    name, others = kept
    same = bool(set(nodes) & set(others))
    # One that has got its name since then is known by its nodes.
    if name != fleet and not (name == NO_FLEET and same):
        return "a fleet without a name" if name == NO_FLEET else f"the fleet {name}"
    # Whoever names a fleet says by that which nodes are of it, also if all of them are new ones.
    # Two inventories that are not named have the same name.
    if fleet == NO_FLEET and nodes and others and not same:
        return f"other nodes ({few(others)})"
    return ""


def is_kept(data: Any) -> bool:
    """The file is one of ours, and of this version."""
    if not isinstance(data, dict) or data.get("kept_version") != KEPT_VERSION:
        return False
    run, summary, findings = (data.get(key) for key in ("run", "summary", "findings"))
    return (
        isinstance(run, dict)
        and isinstance(run.get("id"), str)
        and isinstance(run.get("scope"), dict)
        and isinstance(summary, dict)
        and _are_names(data.get("nodes"))
        and _are_findings(findings)
    )


def _are_names(nodes: Any) -> bool:
    return isinstance(nodes, list) and all(isinstance(name, str) for name in nodes)


def _are_findings(findings: Any) -> bool:
    """By control, host and fingerprint, when it was first seen."""
    if not isinstance(findings, dict):
        return False
    by_host = list(findings.values())
    if not all(isinstance(hosts, dict) for hosts in by_host):
        return False
    there = [prints for hosts in by_host for prints in hosts.values()]
    return all(
        isinstance(prints, dict)
        and all(isinstance(since, str) and _TIME.fullmatch(since) for since in prints.values())
        for prints in there
    )


def asked(run: Mapping[str, Any]) -> str:
    """The fleet and scope of a run: only runs that agree in this can be compared."""
    scope = run["scope"]
    # Texts compare whatever types a file has in these places.
    return json.dumps(
        [
            run.get("cluster"),
            run.get("slice"),
            *(scope.get(key) for key in ("controls", "severity", "select")),
        ]
    )


def lighten(kept: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs, oldest first; of those with the same scope only the last keeps its findings."""
    # Only the last is compared with, and a run of a big fleet has thousands of findings.
    last = {asked(run["run"]): run for run in kept}
    return [run if last[asked(run["run"])] is run else {**run, "findings": {}} for run in kept]


def comparable(
    kept: Iterable[Mapping[str, Any]], run: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Earlier runs that asked what this one asks, oldest first."""
    return sorted(
        # Other controls or a narrower selection would make everything look new or resolved.
        (one for one in kept if asked(one["run"]) == asked(run)),
        key=lambda one: str(one["run"]["id"]),
    )


def compare(
    previous: Mapping[str, Any] | None,
    hosts: Sequence[Mapping[str, Any]],
    findings: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, str], int]:
    """When the findings that the previous run had were first seen, by fingerprint, and how many of
    its findings are gone.
    """
    # A finding is gone only if its control was assessed again on its host.
    now = {finding["fingerprint"] for finding in findings}
    # A host that left the inventory is not a host whose findings were resolved.
    seen, unseen = {host["name"] for host in hosts}, _unseen(hosts)
    known, gone = {}, set()
    for control, host, fingerprint, since in _findings(previous):
        if fingerprint in now:
            known[fingerprint] = since
        elif host in seen and (host, control) not in unseen:
            gone.add(fingerprint)
    return known, len(gone)


def trend(
    earlier: Sequence[Mapping[str, Any]], report: Mapping[str, Any], most: int = 60
) -> list[dict[str, Any]]:
    """When, and how many open findings of each severity and hosts that were not assessed, oldest
    first.
    """
    points = []
    # As many as the drawing has room for.
    for run in [*earlier, report][-most:]:
        try:
            # A run that assessed nothing has no findings, and is no success.
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
        # A file in the folder of runs may have been edited.
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            continue
        points.append(point)
    return points


def _findings(kept: Mapping[str, Any] | None) -> Iterable[tuple[str, str, str, str]]:
    """(control, host, fingerprint, first seen) of a run that was kept."""
    for control, hosts in (kept or {}).get("findings", {}).items():
        for host, prints in hosts.items():
            for fingerprint, since in prints.items():
                yield control, host, fingerprint, since


def _unseen(hosts: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """(host, control) that could not be assessed; an empty control where any could not."""
    # The empty one is for findings without control, which may stand for any of them.
    unseen = {(host["name"], "") for host in hosts if host["status"] != "assessed"}
    return unseen | {
        (host["name"], control)
        for host in hosts
        for control, result in host["controls"].items()
        if result == "not_assessed" or control in host["reasons"]
    }
