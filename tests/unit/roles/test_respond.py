# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook respond sums up, as Ansible computes it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import (
    ROLES,
    load,
    rendered,
)

PLAYS = load(ROLES.parent / "playbooks/respond.yml")
ROLE_OF = {"STOR-01": "residual_paths", "STOR-05": "fuse_recovery", "STOR-07": "pod_mounts"}
# Pods on two nodes; a control that may not be repaired, and one that triage could not place.
FOUND = [
    {"control": "STOR-01", "object": {"node": "node1"}},
    {"control": "STOR-05", "object": {"node": "node1"}},
    {"control": "STOR-05", "object": {"node": "node2"}},
    {"control": "STOR-07", "object": {"node": "node1"}},
    {"control": "STOR-05", "object": {"node": ""}},
]
PLACES = {"node1": "host1", "node2": "host2"}


@pytest.fixture(params=[False, True], autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting jinja2_native, by which ansible-core before 2.19 makes numbers of texts."""
    monkeypatch.setattr("ansible.constants.DEFAULT_JINJA2_NATIVE", request.param, raising=False)


def left(blind: dict[str, list[str]], places: dict[str, str] | None = None) -> tuple[Any, Any]:
    """The numbers of the findings that the last play calls unseen, and those that it sums up.

    ``blind``: by host the roles that found nothing. ``places``: None if nothing was to be repaired.
    """
    (play,) = [play for play in PLAYS if "__unseen" in play.get("vars", {})]
    (task,) = [task for task in play["tasks"] if "storage_ops.runbooks.conclude" in task]
    placed = {} if places is None else {"__respond_places": places, "__respond_repairs": ROLE_OF}
    given = {
        **play["vars"],
        **placed,
        "respond_repair": "STOR-01,STOR-05",
        "hostvars": {
            host: {"__respond_blind": blind[host]} if host in blind else {}
            for host in PLACES.values()
        },
        "__triage": {"findings": FOUND},
    }
    findings = task["storage_ops.runbooks.conclude"]["findings"]
    unseen, summed_up = rendered(given["__unseen"], given), rendered(findings, given)
    return [FOUND.index(one) for one in unseen], [FOUND.index(one) for one in summed_up]


@pytest.mark.parametrize(
    ("blind", "numbers"),
    [
        ({}, []),
        ({"host1": ["residual_paths"]}, [0]),
        ({"host1": ["fuse_recovery"]}, [1]),
        ({"host2": ["fuse_recovery"]}, [2]),
        ({"host1": ["residual_paths", "fuse_recovery"], "host2": ["fuse_recovery"]}, [0, 1, 2]),
        # It may not repair anything.
        ({"host1": ["pod_mounts"]}, []),
    ],
)
def test_what_triage_found_and_the_node_did_not_is_left(
    blind: dict[str, list[str]], numbers: list[int]
) -> None:
    """So are what may not be repaired, and what has no place."""
    assert left(blind, PLACES) == (numbers, [3, 4, *numbers])


def test_where_nothing_was_repaired_nothing_is_unseen() -> None:
    assert left({"host1": ["residual_paths"]}) == ([], [3, 4])
