# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose object comes next."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.turns import (
    in_turns,
    within,
)


def test_who_has_many_keeps_no_other_out() -> None:
    items = ["evil-1", "evil-2", "evil-3", "shop-1", "shop-2", "bank-1"]
    turns = in_turns(items, lambda item: item.partition("-")[0])
    assert turns == ["evil-1", "shop-1", "bank-1", "evil-2", "shop-2", "evil-3"]


@given(strategies.lists(strategies.tuples(strategies.sampled_from("abc"), strategies.integers())))
def test_nothing_is_lost_and_each_keeps_his_order(items: list[tuple[str, int]]) -> None:
    turns = in_turns(items, lambda item: item[0])
    assert Counter(turns) == Counter(items)
    for owner in "abc":
        assert [item for item in turns if item[0] == owner] == [
            item for item in items if item[0] == owner
        ]


def test_who_has_much_leaves_room_for_the_others() -> None:
    items = [*(f"evil-{number}" for number in range(50)), "shop-1", "bank-1"]
    kept, left = within(items, lambda item: item.partition("-")[0], len, 30)
    assert kept == ["evil-0", "evil-1", "evil-2", "shop-1", "bank-1"]
    assert sum(map(len, kept)) <= 30
    assert left == {"evil": 47}


def test_who_has_a_big_one_leaves_room_for_the_others() -> None:
    """Counted by number, its first came before the first of any other."""
    items = ["evil" + "-" * 22, *(f"{name}-1" for name in ("shop", "bank", "farm"))]
    kept, left = within(items, lambda item: item.partition("-")[0], len, 30)
    assert kept == ["shop-1", "bank-1", "farm-1"]
    assert left == {"evil": 1}


def test_what_weighs_more_comes_later_and_comes() -> None:
    items = [*(f"evil-{number}" for number in range(20)), "shop-minor"]
    turns = in_turns(
        items, lambda item: item.partition("-")[0], lambda item: 4 if "minor" in item else 1
    )
    assert turns.index("shop-minor") == 4
