# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases as locks: of two runs that want one, the API server lets one through."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Conflict
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.lease import Leases
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

NAMESPACE = "storage-ops"
WHERE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/n1"


@pytest.fixture
def late() -> FakeCluster:
    """A Lease of run-1 that is over, and which that run renews when it is to be deleted."""
    cluster = FakeCluster()
    leases = Leases(NAMESPACE)
    leases.take(cluster, "n1", "run-1", 60)  # type: ignore[arg-type]
    cluster.objects[WHERE]["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    own = leases.get(cluster, "n1")  # type: ignore[arg-type]

    def renews(verb: str, _where: str) -> None:
        if verb == "delete":
            cluster.before = lambda verb, path: None
            leases.renew(cluster, own, 60)  # type: ignore[arg-type]

    cluster.before = renews
    return cluster


def test_a_late_owner_that_renews_its_lease_keeps_it(late: FakeCluster) -> None:
    leases = Leases(NAMESPACE)
    over = leases.get(late, "n1")  # type: ignore[arg-type]
    with pytest.raises(Conflict):
        leases.take(late, "n1", "run-2", 60, over)  # type: ignore[arg-type]
    assert late.objects[WHERE]["spec"]["holderIdentity"] == "run-1"


def test_what_another_run_has_left_is_deleted_only_if_it_did_not_renew_it(
    late: FakeCluster,
) -> None:
    leases = Leases(NAMESPACE)
    leases.give_back(late, leases.get(late, "n1"))  # type: ignore[arg-type]
    assert late.objects[WHERE]["spec"]["holderIdentity"] == "run-1"


def test_a_renewal_that_is_tried_again_is_no_older_for_it() -> None:
    cluster = FakeCluster()
    leases = Leases(NAMESPACE)
    leases.take(cluster, "n1", "run-1", 60)  # type: ignore[arg-type]
    lease = leases.get(cluster, "n1")  # type: ignore[arg-type]
    made: list[str] = []
    # As the client does it: what is sent is made for each try.
    patch = cluster.patch

    def twice(path: str, body: Any, *more: Any) -> dict[str, Any]:
        made.append(body()["spec"]["renewTime"])
        cluster.clock = lambda: datetime(2026, 1, 1, 12, 0, 40, tzinfo=timezone.utc)
        return patch(path, body, *more)

    cluster.patch = twice  # type: ignore[method-assign]
    leases.renew(cluster, lease, 60)  # type: ignore[arg-type]
    assert cluster.objects[WHERE]["spec"]["renewTime"] == "2026-01-01T12:00:40.000000Z" != made[0]


def test_what_is_over_is_taken(late: FakeCluster) -> None:
    late.before = lambda verb, path: None
    leases = Leases(NAMESPACE)
    over = leases.get(late, "n1")  # type: ignore[arg-type]
    leases.take(late, "n1", "run-2", 60, over)  # type: ignore[arg-type]
    assert late.objects[WHERE]["spec"]["holderIdentity"] == "run-2"
