# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role pod_mounts makes of a result, as Ansible computes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import (
    ROLES,
    load,
    rendered,
    variable,
)

WORKLOAD = {"volume": "pv-a", "driver": "x", "handle": "y"}


def role(name: str, **given: Any) -> Any:
    """The role's variable of that name."""
    return variable("pod_mounts", name, **given)


def result(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What the module returned."""
    return {"failed": True, "msg": "refused 1 of 1 findings: a", "findings": list(findings), **more}


USED = {"verdict": "refuse", "code": "in_use_open", "workload": WORKLOAD}
DOUBTFUL = {"verdict": "refuse", "code": "evidence_contradicts"}


@pytest.mark.parametrize(
    ("found", "reattach", "wanted"),
    [
        (result(USED, refused=["a"]), True, True),
        (result(USED, refused=["a"], msg="said in another way"), True, True),
        (result(USED, refused=["a"]), False, False),
        # A repair that failed, or an error, is no refusal, whatever the message says.
        (result(USED), True, False),
        (result(USED, undone=["b"]), True, False),
        (result(USED, DOUBTFUL, refused=["a", "b"]), True, False),
        (result(DOUBTFUL, refused=["b"]), True, False),
    ],
)
def test_only_what_is_about_to_be_moved_is_forgiven(
    found: dict[str, Any], reattach: bool, wanted: bool
) -> None:
    moves = role("moves", pod_mounts_result=found, pod_mounts_reattach=reattach)
    assert moves is wanted


@pytest.mark.parametrize(
    ("found", "fails"),
    [
        (result(USED, undone=["b"]), False),
        (result(USED, refused=["a"]), False),
        (result(DOUBTFUL, refused=["b"]), True),
        (result(USED, half_made=True), True),
        (result(USED), True),
        ({"findings": [USED]}, False),
    ],
)
def test_a_repair_that_was_taken_back_keeps_no_other_workload_from_its_move(
    found: dict[str, Any], fails: bool, tmp_path: Path
) -> None:
    """A tenant deletes its pod while its mount is repaired."""
    *_rest, repair, _end = load(ROLES / "pod_mounts/tasks/main.yml")
    first = repair["block"][0]
    assert "storage_ops.runbooks.csi_mount_repair" in first
    moves = role("moves", pod_mounts_result=found, pod_mounts_reattach=True)
    given = {"pod_mounts_result": found, "__pod_mounts_moves": moves}
    (tmp_path / "fails.yml").write_text(json.dumps({"fails": f"{{{{ {first['failed_when']} }}}}"}))
    assert rendered(load(tmp_path / "fails.yml")["fails"], given) is fails


@pytest.mark.parametrize(
    ("scope", "wanted"),
    [
        ({}, ["pv-a", "pv-b"]),
        ({"pod_mounts_max_repairs": 1}, ["pv-a"]),
        ({"pod_mounts_volumes": ["pv-b"]}, ["pv-b"]),
        ({"pod_mounts_volumes": ["pv-c"]}, []),
        ({"pod_mounts_paths": ["/k/pods/u/volumes/kubernetes.io~csi/pv-a/mount"]}, ["pv-a"]),
    ],
)
def test_a_node_has_nothing_moved_outside_of_the_scope(
    scope: dict[str, Any], wanted: list[str]
) -> None:
    found = result(USED, {**USED, "workload": {**WORKLOAD, "volume": "pv-b"}}, refused=["a", "b"])
    moved = role("workloads", pod_mounts_result=found, pod_mounts_reattach=True, **scope)
    assert [one["volume"] for one in moved] == wanted


@pytest.mark.parametrize(
    "volume",
    [
        "../namespaces/kube-system/secrets/x",
        "pv-a/../../nodes/n2/proxy/stats",
        "pv-a?watch=true",
        "pv-a#x",
        "pv-a%2f",
        "pv-a\n",
        "",
        "..",
        ["pv-a"],
        None,
    ],
)
def test_a_node_chooses_no_url_of_the_api_server(volume: Any) -> None:
    """The name of a volume is a part of one, and the run reads it with its own rights."""
    evil = {**USED, "workload": {**WORKLOAD, "volume": volume}}
    found = result(evil, USED, {**USED, "workload": {}}, refused=["a", "b"])
    moved = role("workloads", pod_mounts_result=found, pod_mounts_reattach=True)
    assert [one["volume"] for one in moved] == ["pv-a"]
