# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limit of a run, and the suspicion of an outage."""

from __future__ import annotations

from collections import Counter

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.guards import (
    is_most,
    limit_repairs,
    majority,
    most_of,
    too_many,
)


@pytest.mark.parametrize(
    ("broken", "total", "most"),
    [(0, 0, False), (0, 1, False), (1, 1, True), (1, 2, False), (2, 3, True), (4, 8, False)],
)
def test_most_is_more_than_half(broken: int, total: int, most: bool) -> None:
    assert is_most(broken, total) is most


def test_groups_of_which_most_is_broken() -> None:
    broken, total = Counter("aab"), Counter("aaabbc")
    assert most_of(broken, total) == ["a"]
    assert most_of(Counter({"x": 0}), Counter({"x": 1})) == []


def test_what_is_said_of_an_outage() -> None:
    reason = majority(2, 3, "maps", "they were all detached")
    assert reason.code == "majority_broken"
    assert reason == (
        "2 of the node's 3 maps look broken at once: that may be an outage. If they were all "
        "detached, set accept_majority"
    )
    assert majority(2, 3, "maps", "so", whose="a's").startswith("2 of a's 3 maps look broken")


def finding(name: str) -> Finding:
    return Finding(
        control="STOR-01",
        severity="major",
        kind="disk",
        name=name,
        node="n1",
        summary="",
        evidence={},
        verdict="repair",
        runbook="",
        repair=[Action("flush_map", name, ["true"])],
    )


def test_repairs_beyond_the_limit_are_refused() -> None:
    found = [finding(name) for name in "abcd"]
    assert limit_repairs(found, 4) == [] and all(one.repair for one in found)
    assert limit_repairs(found, 2) == found[2:]
    assert [one.verdict for one in found] == ["repair", "repair", "refuse", "refuse"]
    assert [one.code for one in found[2:]] == ["too_many_repairs"] * 2
    assert found[3].reason == "max_repairs is 2: run again for this one, or raise it"


def test_a_smaller_one_may_fit_after_one_that_does_not() -> None:
    found = [finding(name) for name in "abc"]
    sizes = {"a": 2, "b": 2, "c": 1}
    assert limit_repairs(found, 3, lambda one: sizes[one.name]) == [found[1]]
    assert found[1].reason == too_many(3, 2)
    assert "max_repairs is 3, and this takes 2: run again" in found[1].reason
