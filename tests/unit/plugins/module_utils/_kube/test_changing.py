# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes that are made again, and deletions of exactly one object."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import changing
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Conflict,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

NODE = "/api/v1/nodes/a"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {}})


def change(item: dict[str, Any] | None) -> dict[str, Any] | None:
    """One more taint."""
    return {"spec": {"taints": [*(item["spec"].get("taints") or []), "ours"]}} if item else None


def others_write(cluster: FakeCluster, times: int) -> None:
    """Another client adds a taint between the look and the patch, so many times."""
    left = [times]

    def meanwhile(verb: str, where: str) -> None:
        if verb == "patch" and left[0]:
            left[0] -= 1
            item = cluster.objects[where]
            item["spec"].setdefault("taints", []).append("theirs")
            item["metadata"]["resourceVersion"] += "0"

    cluster.before = meanwhile


def test_what_others_write_meanwhile_is_kept(cluster: FakeCluster) -> None:
    others_write(cluster, changing.TRIES - 1)
    changing.change_object(cluster, NODE, change)  # type: ignore[arg-type]
    taints = cluster.objects[NODE]["spec"]["taints"]
    assert taints == ["theirs"] * (changing.TRIES - 1) + ["ours"]


def test_it_ends(cluster: FakeCluster) -> None:
    others_write(cluster, changing.TRIES)
    with pytest.raises(Conflict):
        changing.change_object(cluster, NODE, change)  # type: ignore[arg-type]
    assert "ours" not in cluster.objects[NODE]["spec"]["taints"]


def test_what_is_gone_meanwhile_is_judged_again(cluster: FakeCluster) -> None:
    def meanwhile(verb: str, where: str) -> None:
        if verb == "patch":
            cluster.objects.pop(where, None)

    cluster.before = meanwhile
    changing.change_object(cluster, NODE, change)  # type: ignore[arg-type]
    assert cluster.requests == [f"get {NODE}", f"patch {NODE}", f"get {NODE}"]


def test_exactly_that_object_is_deleted(cluster: FakeCluster) -> None:
    uid = cluster.objects[NODE]["metadata"]["uid"]
    for given, there in (("another", True), (uid, False), (uid, False)):
        changing.delete_exactly(cluster, NODE, given)  # type: ignore[arg-type]
        assert (NODE in cluster.objects) is there


@pytest.mark.parametrize(
    ("status", "kind"), [(403, Prevented), (499, Prevented), (500, ActionFailed), (0, ActionFailed)]
)
def test_only_a_refusal_says_that_nothing_was_done(status: int, kind: type) -> None:
    error = KubeError("it failed", status)
    assert changing.not_done(error).__class__ is kind
    assert changing.not_done(error).code == error.code
