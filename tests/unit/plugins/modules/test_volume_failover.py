# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fence that is proven and volumes that are detached by one task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import BadOption
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.runbook import Failover
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.runbook import (
    PROOF,
    Fence,
)
from ansible_collections.storage_ops.runbooks.plugins.modules import volume_failover
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster


def given(spec: dict[str, Any]) -> dict[str, Any]:
    """Each option at its default."""
    return {name: option.get("default") for name, option in spec.items()}


READ = {"fsid": "f1", "read_at": "2026-01-01T12:00:00Z", "observations": 2, "seconds": 1.0}
PROVE = {**given(PROOF), "ceph": {**READ, "families": ["IPv4"], "blocklist": [], "images": []}}


def runbooks(
    patch: pytest.MonkeyPatch, check: bool = False, **params: Any
) -> tuple[Any, Any, list[Any]]:
    """What makes the step before (None if there is none) and the runbook, and the clusters made."""
    caught: list[Any] = []
    made: list[Any] = []

    def run(_module: Any, make: Any, _fails: bool, _deadline: float, first: Any) -> None:
        caught.extend((first.make if first else None, make))

    def module(argument_spec: dict[str, Any], **_more: Any) -> SimpleNamespace:
        options = {**given(argument_spec), "node": "worker01", "run_id": "run-1", **params}
        return SimpleNamespace(params=options, no_log_values=set(), check_mode=check)

    def cluster(_params: Any) -> FakeCluster:
        made.append(FakeCluster())
        return made[-1]

    def report(_module: Any, make: Any, *_more: Any) -> None:
        caught.extend((None, make))

    patch.setattr(volume_failover, "run", run)
    patch.setattr(volume_failover, "report", report)
    patch.setattr(volume_failover, "AnsibleModule", module)
    patch.setattr(volume_failover, "make_cluster", cluster)
    volume_failover.main()
    return (*caught[:2], made)


def test_both_steps_share_a_connection_and_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    first, make, made = runbooks(monkeypatch, state="detached", prove=PROVE)
    assert isinstance(first(), Fence) and isinstance(make(), Failover)
    assert len(made) == 1


def test_nothing_is_proven_that_was_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _make, _made = runbooks(monkeypatch, state="detached")
    assert first is None


@pytest.mark.parametrize(
    ("state", "check"), [("attached", False), ("held", False), ("detached", True)]
)
def test_a_proof_is_for_the_step_that_detaches(
    monkeypatch: pytest.MonkeyPatch, state: str, check: bool
) -> None:
    *first, _made = runbooks(monkeypatch, check, state=state, prove=PROVE)
    for make in filter(None, first):
        with pytest.raises(BadOption, match="prove is for state=detached in a real run"):
            make()


def test_the_options_of_the_proof_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    prove = {**PROVE, "fence_addresses": ["ten"]}
    first, _make, _made = runbooks(monkeypatch, state="detached", prove=prove)
    with pytest.raises(BadOption, match="fence_addresses has 'ten'"):
        first()
