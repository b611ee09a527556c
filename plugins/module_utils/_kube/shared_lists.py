# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The long lists of a cluster, read once for several audits that run one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Callable, TypeVar

from .client import Change, Cluster, KubeError, Listing, Object, ServerVersion, path

VOLUME_ATTACHMENTS = path("storage.k8s.io/v1", "volumeattachments")
# The lists that two audits read as a whole. Neither needs the newest state: suspects are read
# again, one by one.
_SHARED = {VOLUME_ATTACHMENTS, path("v1", "persistentvolumes"), path("v1", "nodes")}

T = TypeVar("T")


class SharedLists(Cluster):
    """A cluster that reads each list once, for audits: it only reads."""

    def __init__(self, cluster: Cluster) -> None:
        self.deadline = cluster.deadline
        self._cluster = cluster
        self._kept: dict[str, Listing[Object] | KubeError] = {}
        # One answer, even a refusal, shows that the server is there; what fails later may be one
        # list.
        self._reached = False
        # An API server that never answered is not asked again: each audit would wait for it again.
        self._away: KubeError | None = None

    def now(self) -> datetime:
        """The time by the API server's clock."""
        return self._cluster.now()

    def version(self) -> ServerVersion:
        """The server's version."""
        return self._asked(self._cluster.version)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """An object as etcd has it now; None when there is none."""
        return self._asked(lambda: self._cluster.get(path, query))

    def read(
        self,
        path: str,
        pick: Callable[[Object], T | None],
        *,
        cached: bool = False,
        fields: str = "",
        labels: str = "",
        limit: int = 500,
    ) -> Listing[T]:
        """What ``pick`` makes of every item; a shared list has the state of its first reading."""
        if path not in _SHARED or not cached or fields or labels:
            return self._asked(
                lambda: self._cluster.read(
                    path,
                    pick,
                    cached=cached,
                    fields=fields,
                    labels=labels,
                    limit=limit,
                )
            )
        kept = self._keep(path)
        picked = (pick(item) for item in kept.items)
        return Listing([found for found in picked if found is not None], kept.version)

    def _keep(self, path: str) -> Listing[Object]:
        """A shared list, read by the first who asks."""
        if path not in self._kept:
            try:
                self._kept[path] = self._asked(lambda: self._cluster.read(path, _slim, cached=True))
            except KubeError as error:
                # All audits that need the list get the same error.
                self._kept[path] = error
        kept = self._kept[path]
        if isinstance(kept, KubeError):
            raise kept
        return kept

    def newest(self, path: str) -> str:
        """The version that etcd has now."""
        return self._asked(lambda: self._cluster.newest(path))

    @contextlib.contextmanager
    def watch(self, path: str, version: str) -> Iterator[Iterator[Change]]:
        """The changes to the objects there since that version, see Cluster.watch."""
        # Never shared: each watch begins at a version of its own.
        with self._cluster.watch(path, version) as changes:
            yield changes

    def _asked(self, ask: Callable[[], T]) -> T:
        if self._away:
            raise self._away
        try:
            answer = ask()
        except KubeError as error:
            self._reached = self._reached or error.status != 0
            self._away = None if self._reached else error
            raise
        self._reached = True
        return answer


def _slim(item: Object) -> Object:
    """An object without what no audit reads."""
    # managedFields and a node's list of images (up to 50, --node-status-max-images of the kubelet)
    # are most of the object.
    meta: dict[str, Any] = {
        key: value for key, value in item["metadata"].items() if key != "managedFields"
    }
    slim = {**item, "metadata": meta}
    if "images" in (item.get("status") or {}):
        slim["status"] = {key: value for key, value in item["status"].items() if key != "images"}
    return slim
