# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of a report: its scope and occasion, its results, and what a finding counts for.

Pure: no I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .._core.codes import Reason
from .._core.controls import CEPH_CONTROLS, CLUSTER_CONTROLS, CONTROLS, NODE_CONTROLS
from .._core.engine import SEVERITIES

# Readers of report.json depend on its form; it is raised with every change that breaks them.
SCHEMA_VERSION = 1
KINDS = {"node": NODE_CONTROLS, "cluster": CLUSTER_CONTROLS, "ceph": CEPH_CONTROLS}
RESULTS = ("pass", "fail", "accepted", "not_applicable", "not_assessed", "not_in_scope")
# UTC, so that texts sort by time and runs of several controllers compare (RFC 3339, 5.1).
TIME = "%Y-%m-%dT%H:%M:%SZ"
# The fleet of an inventory that was given no name.
NO_FLEET = "default"
NO_CLUSTER = Reason(
    "no_cluster",
    "no access to a cluster is configured: set KUBECONFIG or K8S_AUTH_KUBECONFIG, or leave the "
    "cluster out (compliance_read_cluster=false)",
)
# Characters of a reason that are kept.
MAX_REASON = 1_000
# The kind of the object of a finding that stands for others.
LEFT_OUT = "findings"
# A finding that is only a note does not make a control fail.
_FAILING = SEVERITIES[:-1]


@dataclass(frozen=True)
class Scope:
    """What the user wants to know."""

    controls: tuple[str, ...] = tuple(CONTROLS)
    # The least severe that counts.
    severity: str = "info"
    # A JMESPath expression over the findings; empty for all.
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
    """When, of what, and by what the report is made."""

    title: str
    cluster: str
    started: datetime
    finished: datetime
    version: str
    # Number and count, where the fleet was divided.
    slice: tuple[int, int] | None = None
    # Only some of the fleet, or some kinds of findings: no numbers of the fleet follow from it.
    partial: bool = False

    @property
    def id(self) -> str:
        """The run's name, which sorts by time."""
        return self.started.strftime("%Y%m%dT%H%M%SZ")


def fails(finding: Mapping[str, Any]) -> bool:
    """It makes its controls fail, unless it is accepted."""
    # A finding without a control stands for findings that were left out: they were not seen, so
    # they may be of any severity.
    return finding["severity"] in _FAILING or not finding["control"]


def stands_for(finding: Mapping[str, Any]) -> list[str]:
    """Controls that a finding is about."""
    if finding["control"]:
        return [finding["control"]]
    # Findings that a result had no room for are counted by control in one finding without control.
    counted = finding["evidence"].get("controls") if finding["object"]["kind"] == LEFT_OUT else None
    return [str(item).partition(":")[0] for item in counted] if isinstance(counted, list) else []


def count(values: Iterable[str], names: Iterable[str]) -> dict[str, int]:
    """How often each name is among the values."""
    counted = Counter(values)
    return {name: counted[name] for name in names}
