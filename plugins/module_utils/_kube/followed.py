# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A long list that is read once, and then kept up to date by a watch.

Listing 50,000 pods takes an API server seconds each time; sending the changes since then takes
almost nothing. And a watch also reports what came and went in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable, Generic, TypeVar, Union

from .client import Change, Cluster, KubeError, Object

# A list of at most this many objects is read again sooner than a watch reports that nothing has
# changed.
SHORT = 500

# A name, or namespace and name.
Key = Union[str, "tuple[str, str]"]
T = TypeVar("T")


class Followed(Generic[T]):
    """What ``pick`` makes of the objects of one collection, by their key; it leaves out None.

    At first it has the state of the API server's watch cache. After ``begin`` and ``finish`` it has
    the state of etcd when ``begin`` was called, or a newer one.
    """

    # That is so since a watch has reported everything up to the version that etcd had then, or else
    # the whole list was read again from etcd.

    def __init__(self, cluster: Cluster, where: str, pick: Callable[[Object], T | None]) -> None:
        self._cluster, self._where, self._pick = cluster, where, pick
        self._watch: Iterator[Change] | None = None
        self._ends = contextlib.ExitStack()
        # The version to reach and the one reached, as numbers; 0 for none.
        self._target = self._version = 0
        # A watch that did not get that far is not tried again: there is no right to watch, or this
        # API server's watch cache does not learn that nothing has changed, as in old versions
        # (before etcd progress notifications, --experimental-watch-progress-notify-interval).
        self._can_tell = True
        self.items: dict[Any, T] = {}
        self._read(cached=True)

    def begin(self) -> None:
        """Open the watch. Call it for all of several lists before the first ``finish``."""
        self._target = 0
        if len(self.items) <= SHORT or not self._can_tell:
            return
        self._target = _number(self._cluster.newest(self._where))
        if self._is_caught_up() or not (self._version and self._target):
            return
        self._can_tell = False
        with contextlib.suppress(KubeError):
            watch = self._cluster.watch(self._where, str(self._version))
            self._watch = self._ends.enter_context(watch)

    def finish(self) -> list[T]:
        """Bring it up to date; all states of objects that the watch reported, the latest included.

        Raises KubeError where the watch is not enough and the list cannot be read.
        """
        passed: list[T] = []
        watch, self._watch = self._watch, None
        # Too old (410), cut or broken: what was reported by then is true, but it is not all.
        with self._ends, contextlib.suppress(KubeError):
            for change in watch or ():
                self._apply(change, passed)
                if self._is_caught_up():
                    self._can_tell = True
                    break
        if not self._is_caught_up():
            self._read(cached=False)
        return passed

    def _is_caught_up(self) -> bool:
        """Nothing older than the version that etcd had is missing."""
        return 0 < self._target <= self._version

    def _apply(self, change: Change, passed: list[T]) -> None:
        if change.kind != "BOOKMARK":
            found = self._pick(change.item)
            if found is not None:
                passed.append(found)
            if found is None or change.kind == "DELETED":
                self.items.pop(key_of(change.item), None)
            else:
                self.items[key_of(change.item)] = found
        self._version = _number(change.version)

    def _read(self, cached: bool) -> None:
        def pick(item: Object) -> tuple[Key, T] | None:
            found = self._pick(item)
            return None if found is None else (key_of(item), found)

        listing = self._cluster.read(self._where, pick, cached=cached)
        self.items, self._version = dict(listing.items), _number(listing.version)


def key_of(item: Object) -> Key:
    """Namespace and name of an object, or only its name where it has no namespace."""
    meta = item["metadata"]
    return (meta["namespace"], meta["name"]) if "namespace" in meta else meta["name"]


def _number(version: str) -> int:
    """A resourceVersion as a number to compare; 0 where it is not one."""
    # It is etcd's revision, and since Kubernetes 1.35 (KEP 5504) clients may compare it as a
    # number.
    return int(version) if version.isascii() and version.isdecimal() else 0
