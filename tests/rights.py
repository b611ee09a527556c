# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an account may do, by its manifests, and what it did, by the API server's audit log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import yaml
from cluster import Cluster
from lab.kubernetes.api import Object

FILES = Path(__file__).resolve().parents[1] / "playbooks/files"
AUDIT = FILES / "rbac-audit.yml"
# Where the accounts are.
HOME = "storage-ops"


class Right(NamedTuple):
    """A verb on a resource; ``name``: of one object only, ``space``: in one namespace only."""

    verb: str
    group: str
    resource: str
    space: str = ""
    name: str = ""

    def allows(self, event: Object) -> bool:
        """It is by this right that such a request passes."""
        asked = event.get("objectRef") or {}
        resource = "/".join(filter(None, (asked.get("resource"), asked.get("subresource"))))
        return (
            (self.verb, self.group, self.resource)
            == (event["verb"], asked.get("apiGroup", ""), resource)
            and self.space in ("", asked.get("namespace", ""))
            and self.name in ("", asked.get("name", ""))
        )

    def __str__(self) -> str:
        where = "/".join(filter(None, (self.space, self.name)))
        return " ".join(filter(None, (self.verb, self.resource, where)))


def granted(*manifests: Path) -> set[Right]:
    """All that manifests allow; paths such as /version aside."""
    roles = [
        item
        for manifest in manifests
        for item in yaml.safe_load(manifest.read_text())["items"]
        if item["kind"] in ("ClusterRole", "Role")
    ]
    return {
        Right(verb, group, resource, role["metadata"].get("namespace", ""), name)
        for role in roles
        for rule in role["rules"]
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or [""]
    }


def unused(cluster: Cluster, account: str, rights: Iterable[Right]) -> set[str]:
    """What the account could do, and did not. Nothing that it asked for may have been refused."""
    events = cluster.plane.asked(account)
    refused = [
        (event["verb"], event["requestURI"])
        for event in events
        if event.get("responseStatus", {}).get("code") == 403
    ]
    assert events and not refused, refused
    return {str(right) for right in rights if not any(right.allows(event) for event in events)}
