# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose object comes next, where a run may not repair all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Callable, TypeVar

from .errors import StorageOpsError

T = TypeVar("T")


def in_turns(
    items: Iterable[T],
    owner: Callable[[T], Hashable],
    weight: Callable[[T], int] = lambda _item: 1,
    size: Callable[[T], int] = lambda _item: 1,
) -> list[T]:
    """The first of each owner, then the second, each in the order given.

    So an owner of many does not use up max_repairs and the deadline of the others. ``weight``: how
    many turns it has to wait at each; one of weight 4 comes with the fourth of another owner's of
    weight 1. ``size``: of how many turns it takes the place; one of size 4 comes with the fourth of
    another owner's of size 1.
    """
    before: Counter[Hashable] = Counter()
    turns = []
    for item in items:
        whose = owner(item)
        before[whose] += size(item)
        turns.append((before[whose] * weight(item), item))
    # Stable, so each turn keeps the order given.
    return [item for _turn, item in sorted(turns, key=lambda turn: turn[0])]


def within(
    items: Sequence[T],
    owner: Callable[[T], Hashable],
    size: Callable[[T], int],
    room: int,
    weight: Callable[[T], int] = lambda _item: 1,
) -> tuple[list[T], Counter[Hashable]]:
    """Those that have room, in the order given and chosen in turns, and how many of each owner
    have none.

    Turns go by size, since one item may be as long as a thousand of others.
    """
    kept: set[int] = set()
    left: Counter[Hashable] = Counter()
    sizes = [size(item) for item in items]
    for number in in_turns(
        range(len(items)),
        lambda number: owner(items[number]),
        lambda number: weight(items[number]),
        lambda number: sizes[number],
    ):
        # One that is too big does not end it: a smaller one of the next owner may still fit.
        if sizes[number] <= room:
            room -= sizes[number]
            kept.add(number)
        else:
            left[owner(items[number])] += 1
    return [item for number, item in enumerate(items) if number in kept], left


class TurnOver(StorageOpsError):
    """An owner has used up the time of its turn."""


def timed(
    seconds: float, clock: Callable[[], float], pick: Callable[[dict[str, Any]], T]
) -> Callable[[dict[str, Any]], T]:
    """``pick`` for a LIST of one owner's objects that begins now: it raises TurnOver after so many
    seconds, since the owner may have any number of them.
    """
    began = clock()

    def picked(item: dict[str, Any]) -> T:
        # Between two pages, or two items of a page, is the only moment to end a LIST.
        if clock() - began > seconds:
            raise TurnOver("")
        return pick(item)

    return picked
