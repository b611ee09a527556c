# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An API server in memory, with the methods of ``Cluster``: for the unit tests of whatever uses
one.
"""

from __future__ import annotations

import contextlib
import copy
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Change,
    Conflict,
    KubeError,
    Listing,
    NotFound,
    ServerVersion,
    path,
)


class FakeCluster:
    """Objects by their path, and every request that was made, as ``"list /api/v1/pods"``.

    ``before`` is called with verb and path ahead of each request: it may change objects, which
    makes a race, or raise a KubeError. It is also the time that a request is on its way: one that
    comes after the deadline is lost.
    """

    def __init__(
        self, *objects: dict[str, Any], version: str = "v1.31.4", seconds: float = 300.0
    ) -> None:
        self.deadline = Deadline(seconds)
        self.url = "https://127.0.0.1:6443"
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.sent = 0
        self.before: Callable[[str, str], None] = lambda verb, path: None
        # The server's clock.
        self.clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
        # Its memory gets to know also that nothing has changed, which it tells by a bookmark.
        self.tells_progress = True
        self._version = version
        self._revision = 0
        self._changes: list[tuple[int, str, dict[str, Any]]] = []
        for item in objects:
            self.add(item)

    def add(self, item: dict[str, Any]) -> dict[str, Any]:
        """Put an object there, as the server would keep it: with a uid and a resourceVersion."""
        item = copy.deepcopy(item)
        meta = item["metadata"]
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self._touch(item)
        self.objects[path_of(item)] = item
        return item

    def remove(self, item: dict[str, Any]) -> None:
        """Take an object away."""
        gone = self.objects.pop(path_of(item))
        self._touch(gone, "DELETED")

    def count(self, verb: str) -> int:
        """How many requests of this verb were made."""
        return len([request for request in self.requests if request.split()[0] == verb])

    def now(self) -> datetime:
        return self.clock()

    def version(self) -> ServerVersion:
        self._request("get", "/version")
        return ServerVersion.parse({"gitVersion": self._version})

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
        self._request("get", path)
        if path == "/apis":
            served = sorted({item["apiVersion"] for item in self.objects.values()})
            return {
                "kind": "APIGroupList",
                "groups": [{"versions": [{"groupVersion": version}]} for version in served],
            }
        return copy.deepcopy(self.objects.get(path))

    def list(
        self,
        path: str,
        pick: Callable[[dict[str, Any]], Any],
        *,
        cached: bool = False,
        fields: str = "",
        labels: str = "",
        limit: int = 500,
    ) -> list[Any]:
        return self.read(path, pick, cached=cached, fields=fields, labels=labels, limit=limit).items

    def read(
        self,
        path: str,
        pick: Callable[[dict[str, Any]], Any],
        *,
        cached: bool = False,
        fields: str = "",
        labels: str = "",
        limit: int = 500,
    ) -> Listing[Any]:
        self._request("list", path)
        found = [item for place, item in self.objects.items() if _within(path, place)]
        found = [
            item
            for item in found
            if _selected(fields, item, ".")
            and _selected(labels, item["metadata"].get("labels", {}), None)
        ]
        # Items of a list have neither kind nor apiVersion.
        bare = [
            {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}
            for item in found
        ]
        picked = [pick(copy.deepcopy(item)) for item in bare]
        return Listing([item for item in picked if item is not None], str(self._revision))

    def newest(self, path: str) -> str:
        self._request("newest", path)
        return str(self._revision)

    @contextlib.contextmanager
    def watch(self, path: str, version: str) -> Iterator[Iterator[Change]]:
        self._request("watch", path)
        yield self.changes(path, int(version))

    def changes(self, path: str, version: int) -> Iterator[Change]:
        """What a watch of that path tells."""
        for revision, kind, item in list(self._changes):
            if revision > version and _within(path, path_of(item)):
                yield Change(kind, copy.deepcopy(item))
        if self.tells_progress:
            yield Change("BOOKMARK", {"metadata": {"resourceVersion": str(self._revision)}})

    def create(
        self, path: str, body: dict[str, Any], dry_run: bool = False, repeatable: bool = False
    ) -> dict[str, Any]:
        self._request("create", path, dry_run)
        if path.endswith("/eviction"):
            pod = self._existing(path[: -len("/eviction")])
            wanted = (
                body.get("deleteOptions", {})
                .get("preconditions", {})
                .get("uid", pod["metadata"]["uid"])
            )
            self._same(pod, wanted)
            if not dry_run:
                self._delete(pod)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        _check_size(body)
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            raise Conflict(f"cannot create {place}: it exists already", 409)
        made = self.add(body)
        if dry_run:
            self.remove(made)
        return copy.deepcopy(made)

    def patch(
        self, path: str, body: Any, dry_run: bool = False, kind: str = "merge"
    ) -> dict[str, Any]:
        # What is made for each try is made before it is on its way.
        body = body() if callable(body) else body
        self._request("patch", path, dry_run)
        if kind == "json":
            raise NotImplementedError("JSON patches are not in here")
        main = path.rsplit("/", 1)[0] if path.endswith(("/status", "/scale")) else path
        item = self._existing(main)
        meta = body.get("metadata", {})
        self._same(item, meta.get("uid", item["metadata"]["uid"]))
        if (
            meta.get("resourceVersion", item["metadata"]["resourceVersion"])
            != item["metadata"]["resourceVersion"]
        ):
            raise Conflict(f"cannot patch {path}: the object has been modified", 409)
        patched = _merged(item, body)
        _check_size(patched)
        if not dry_run:
            self._touch(patched)
            self.objects[main] = patched
        return copy.deepcopy(patched)

    def delete(
        self,
        path: str,
        uid: str,
        dry_run: bool = False,
        grace: int | None = None,
        version: str = "",
    ) -> None:
        self._request("delete", path if grace is None else f"{path} (grace {grace})", dry_run)
        item = self._existing(path)
        self._same(item, uid)
        if version and version != item["metadata"]["resourceVersion"]:
            raise Conflict(f"cannot delete {path}: the object has been modified", 409)
        if not dry_run:
            self._delete(item)

    def _delete(self, item: dict[str, Any]) -> None:
        if item["metadata"].get("finalizers"):
            item["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            self._touch(item)
        else:
            self.remove(item)

    def _request(self, verb: str, path: str, dry_run: bool = False) -> None:
        self.requests.append(f"{verb} {path}{' (dry run)' if dry_run else ''}")
        self._check_deadline(verb, path)
        self.sent += verb in ("create", "patch", "delete") and not dry_run
        self.before(verb, path)
        self._check_deadline(verb, path)

    def _check_deadline(self, verb: str, path: str) -> None:
        if not self.deadline.remaining():
            raise KubeError(f"cannot {verb} {path}: the deadline has passed")

    def _existing(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise NotFound(f"{path} not found", 404)
        return self.objects[path]

    def _same(self, item: dict[str, Any], uid: str) -> None:
        if item["metadata"]["uid"] != uid:
            raise Conflict(
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                f"{item['metadata']['uid']}",
                409,
            )

    def _touch(self, item: dict[str, Any], kind: str = "") -> None:
        self._revision += 1
        item["metadata"]["resourceVersion"] = str(self._revision)
        kind = kind or ("MODIFIED" if path_of(item) in self.objects else "ADDED")
        self._changes.append((self._revision, kind, copy.deepcopy(item)))


def _check_size(item: dict[str, Any]) -> None:
    """As the server does: TotalAnnotationSizeLimitB of k8s.io/apimachinery
    pkg/api/validation/objectmeta.go, and MaxSecretSize of pkg/apis/core/validation/validation.go.
    """
    parts = {
        "metadata.annotations": (item["metadata"].get("annotations"), 256 * 1024, True),
        "data": (item.get("data") if item.get("kind") == "ConfigMap" else None, 1024**2, False),
    }
    for name, (part, most, keys) in parts.items():
        size = sum(len(value) + len(key) * keys for key, value in (part or {}).items() if value)
        if size > most:
            raise KubeError(f"{name}: Too long: may not be more than {most} bytes", 422)


class Slow:
    """Clocks of a server and of a module that go on only while these requests are on their way.

    Once a Lease was renewed for the ``nth`` time, the first request of each of ``places`` (verb and
    part of its path) takes 110 s, one after the other: less than for what a request is tried again
    (PATIENCE of the client). ``meanwhile`` is done while the last of them waits.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        *places: tuple[str, str],
        nth: int = 1,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self.passed = 0.0
        # What each of them takes.
        self.seconds = 110.0
        # The renewal itself, where it is what is slow.
        self._cluster, self._left, self._meanwhile = cluster, list(places), meanwhile
        self._renewals = nth
        begun = cluster.now()
        cluster.clock = lambda: begun + timedelta(seconds=self.passed)
        cluster.deadline = Deadline(900.0, lambda: self.passed)
        cluster.before = self._before

    def _before(self, verb: str, path: str) -> None:
        if verb == "patch" and "/leases/" in path:
            self._renewals -= 1
        slow_verb, place = self._left[0]
        if self._renewals > 0 or verb != slow_verb or place not in path:
            return
        self._left.pop(0)
        self.passed += self.seconds
        if not self._left:
            # Other clients have deadlines of their own, and what they send is theirs.
            ours = self._cluster.deadline, self._cluster.sent
            self._cluster.deadline = Deadline(900.0)
            self._cluster.before = lambda verb, path: None
            self._meanwhile()
            self._cluster.deadline, self._cluster.sent = ours


def path_of(item: dict[str, Any]) -> str:
    """Where an object is."""
    resource = item["kind"].lower()
    plural = resource + "es" if resource.endswith("s") else resource + "s"
    return path(
        item["apiVersion"], plural, item["metadata"]["name"], item["metadata"].get("namespace", "")
    )


def _within(collection: str, place: str) -> bool:
    """Whether the object at ``place`` is listed by ``collection``, which may be that of all
    namespaces.
    """
    folder = place.rsplit("/", 1)[0]
    parts = folder.split("/")
    everywhere = "/".join(parts[:-3] + parts[-1:]) if "namespaces" in parts[:-1] else folder
    return collection in (folder, everywhere)


def _selected(selector: str, item: dict[str, Any], separator: str | None) -> bool:
    """Whether an item has what a selector of ``=`` and ``!=`` wants."""
    for term in filter(None, selector.split(",")):
        name, wanted = term.replace("==", "=").split("=", 1)
        value: Any = item
        for key in name.rstrip("!").split(separator):
            value = (value or {}).get(key)
        if separator and name == "source":
            # Of events (ToSelectableFields of pkg/registry/core/event/strategy.go)
            value = (value or {}).get("component") or item.get("reportingComponent")
        text = (
            str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        )
        if (text == wanted) == name.endswith("!"):
            return False
    return True


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386, also for strategic patches, so lists are replaced."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
