# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an account may do, by its manifests, and what it did, by the API server's audit log."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FILES = Path(__file__).resolve().parents[2] / "playbooks/files"


class Right(NamedTuple):
    """A verb on a resource; ``name``: of one object only, ``space``: in one namespace only.

    Of a path that is no object (nonResourceURLs) the resource is the path, and nothing else is set.
    """

    verb: str
    group: str
    resource: str
    space: str = ""
    name: str = ""

    def allows(self, event: dict[str, Any]) -> bool:
        """It is by this right that such a request passes."""
        asked = event.get("objectRef") or {"resource": event["requestURI"].partition("?")[0]}
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        return (
            (self.verb, self.group, self.resource)
            == (event["verb"], asked.get("apiGroup", ""), resource)
            and self.space in ("", asked.get("namespace", ""))
            and self.name in ("", asked.get("name", ""))
        )

    def __str__(self) -> str:
        where = "/".join(filter(None, (self.space, self.name)))
        return " ".join(filter(None, (self.verb, self.resource, where)))


def granted(manifest: str) -> dict[str, Right]:
    """All that a manifest allows, by what a test calls it."""
    items = yaml.safe_load((FILES / manifest).read_text())["items"]
    found = [
        Right(verb, group, resource, role["metadata"].get("namespace", ""), name)
        for role in items
        if role["kind"] in ("ClusterRole", "Role")
        for rule in role["rules"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources") or rule["nonResourceURLs"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or [""]
    ]
    return {str(right): right for right in found}


def account(manifest: str) -> str:
    """Whose rights these are: what only an option needs has no account of its own."""
    return f"storage-ops-{manifest.removesuffix('.yml').split('-')[1]}"


def unused(rights: Collection[Right], events: list[dict[str, Any]]) -> list[str]:
    """Which of these rights no such request took."""
    return [str(right) for right in rights if not any(right.allows(event) for event in events)]


def refusals(events: list[dict[str, Any]]) -> list[str]:
    """What was asked for without a right."""
    found = [event for event in events if event.get("responseStatus", {}).get("code") == 403]
    return [f"{event['verb']} {event['requestURI']}" for event in found]
