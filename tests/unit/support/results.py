# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of audits, and reports of them, for the tests of this folder."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import (
    assembly,
    model,
    reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance.selection import (
    make_exceptions,
)

NOW = datetime(2026, 11, 22, 1, 30, tzinfo=timezone.utc)
# What breaks out of, or fakes, whatever shows it without care.
HOSTILE = (
    "</script><img src=x onerror=alert(1)>\"'&\n\x1b[2J\x00\ud800\u202e\\ ]]> {{ 7 * 7 }} $(reboot)"
)


def finding(
    control: str = "STOR-01", severity: str = "major", name: str = "mpatha", **more: Any
) -> dict[str, Any]:
    """A finding as a module returns it."""
    thing = {
        "kind": more.pop("kind", "multipath map"),
        "name": name,
        "node": more.pop("node", "n1"),
    }
    runbook = "storage_ops.runbooks.clean_residual_paths"
    whole = {
        "control": control,
        "severity": severity,
        "object": thing,
        "summary": f"{name} is dead",
        "evidence": {"wwid": "36"},
    }
    return {
        **whole,
        "verdict": "repair",
        "reason": "proven",
        "runbook": runbook,
        "repair": [],
        **more,
    }


def result(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What an audit returns."""
    return {"changed": False, "msg": "said", "findings": list(findings), "actions": [], **more}


def build(
    nodes: dict[str, Any],
    exceptions: list[dict[str, Any]] | None = None,
    previous: Any = None,
    cluster: Any = None,
    ceph: Any = None,
    begun: datetime = NOW,
    **scope: Any,
) -> dict[str, Any]:
    """The report on nodes' results, a cluster's and Ceph's."""
    rows = [reading.read_result(name, "node", one) for name, one in nodes.items()]
    rows += [
        reading.read_result("cluster", "cluster", cluster),
        reading.read_result("ceph", "ceph", ceph),
    ]
    occasion = model.Occasion("Title", "fleet", begun, begun, "0.1.0")
    return assembly.build(
        [row for row in rows if row],
        model.Scope(**scope),
        make_exceptions(exceptions or [], NOW.date()),
        occasion,
        previous,
    )


def host(report: dict[str, Any], name: str) -> dict[str, Any]:
    """The row of a host."""
    found: dict[str, Any] = next(host for host in report["hosts"] if host["name"] == name)
    return found
