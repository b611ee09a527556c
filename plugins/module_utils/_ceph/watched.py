# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of the blocklist, and who has what open once they are there: in one process what proves a
fence.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from .._core.bounded import Deadline
from .._core.engine import Ended, ended_if_late
from .._core.errors import BadOption, StorageOpsError
from .._core.untrusted import few
from .blocklist import BlocklistOptions, Runbook
from .cli import Ceph
from .watchers import WatcherOptions, Watchers, make_options


class Watched(Runbook):
    """The runbook of ceph_blocklist with a watch. ``seconds``: for the watch alone."""

    def __init__(
        self,
        ceph: Ceph,
        options: BlocklistOptions,
        watch: WatcherOptions,
        seconds: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(ceph, options)
        self._watch, self._seconds, self._sleep = watch, seconds, sleep
        self._seen: dict[str, Any] | None = None

    def watch(self) -> None:
        """With all entries there, and none refused, read what is open since.

        Raises StorageOpsError where that did not come to its end; the entries stay.
        """
        there = self._blocklist and all(map(self._blocklist.find, self._options.entries))
        # What was refused fails the task, whoever has what open.
        if not there or any(finding.verdict == "refuse" for finding in self._findings):
            return
        # Not what the entries have left, which may be nothing. And what they may take must not
        # depend on how long is watched: a Lease is held meanwhile, and nothing renews it.
        self._ceph.deadline = Deadline(self._seconds, self._deadline.clock)
        watchers = Watchers(self._ceph, self._watch, self._sleep, answers=True)
        try:
            # In place of what ends the module if the entries are late.
            with ended_if_late(self._seconds):
                watchers.gather()
        except StorageOpsError as error:
            # Once the time is over, no question is asked, which looks as if Ceph did not answer.
            late = not isinstance(error, Ended) and not self._ceph.deadline.remaining()
            why = f"it was not over within {self._seconds:g} s: raise deadline" if late else error
            entries = few(entry.text for entry in self._options.entries)
            raise StorageOpsError(
                f"in the blocklist: {entries}. Whether their clients still have anything open is "
                f"not proven, since the watch was not finished: {why}",
                code="deadline_passed" if late else error.code,
            ) from error
        self._seen = watchers.facts()["ceph"]

    def facts(self) -> dict[str, Any]:
        """As of the entries, and what the watch has read."""
        found = super().facts()
        if self._seen is None:
            return found
        # The list is in what was read, and a result has room for only one.
        return {"fsid": found["fsid"], "entries": found["entries"], "ceph": self._seen}


def watch_seconds(params: dict[str, Any]) -> float:
    """Seconds for the watch, as many as rbd_watcher_info has."""
    watch = params["watch"]
    seconds: float = params["deadline"] + watch["observation_seconds"] + watch["gone_timeout"]
    return seconds


def watch_of(params: dict[str, Any]) -> WatcherOptions | None:
    """What is to be watched, checked; None without a watch."""
    if params["watch"] is None:
        return None
    if params["state"] != "present":
        raise BadOption("watch is for state present: it waits for clients that are blocked")
    return make_options({**params["watch"], "gone": params["entries"]})
