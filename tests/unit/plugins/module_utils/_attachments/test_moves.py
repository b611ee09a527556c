# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose failed move keeps whose workload from being moved."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments.moves import (
    withheld,
)


def workload(namespace: str, *drivers: str) -> dict[str, Any]:
    return {"namespace": namespace, "drivers": list(drivers)}


SHOP = workload("shop", "a")
ITS_OWN = "a move in its namespace failed with the driver a"
ALL = "moves in the namespaces bank and evil failed with the driver a"


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([], ""),
        # One tenant keeps no other from it, however many of his fail.
        ([workload("evil", "a")], ""),
        ([workload("evil", "a"), workload("evil", "a")], ""),
        ([workload("shop", "a")], ITS_OWN),
        ([workload("shop", "b")], ""),
        ([workload("evil", "a"), workload("bank", "a")], ALL),
        ([workload("evil", "a"), workload("bank", "b")], ""),
        ([workload("evil", "a", "b"), workload("bank", "a")], ALL),
        ([workload("evil", "a"), workload("bank", "a"), workload("shop", "a")], ALL),
    ],
)
def test_one_failed_namespace_is_its_own(failed: list[dict[str, Any]], why: str) -> None:
    assert withheld(SHOP, failed) == why


def test_a_workload_of_two_drivers_is_withheld_for_either() -> None:
    assert withheld(workload("shop", "b", "a"), [workload("shop", "a")]) == ITS_OWN
    assert withheld(workload("shop", "b"), [workload("evil", "a", "b"), workload("bank", "b")])


def test_a_run_that_was_interrupted_moves_nothing_more() -> None:
    failed = [{**workload("evil", "b"), "code": "interrupted"}]
    assert withheld(SHOP, failed) == "the run was interrupted"


@given(
    st.lists(st.tuples(st.sampled_from("mnop"), st.sampled_from("xyz")), max_size=40),
)
def test_a_run_breaks_at_most_two_namespaces_of_a_driver(moves: list[tuple[str, str]]) -> None:
    """If every move fails: one workload of each of two namespaces for each driver."""
    failed: list[dict[str, Any]] = []
    for namespace, driver in moves:
        one = workload(namespace, driver)
        if not withheld(one, failed):
            failed.append(one)
    for driver in "xyz":
        namespaces = [each["namespace"] for each in failed if driver in each["drivers"]]
        told = {namespace for namespace, named in moves if named == driver}
        assert len(namespaces) == len(set(namespaces)) == min(2, len(told))
