# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists that are kept up to date by watches, and read again where a watch cannot tell
everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import (
    followed as followed_module,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Change,
    Forbidden,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.followed import Followed
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

PODS = "/api/v1/pods"
FOLLOWED = [f"list {PODS} cached", f"newest {PODS}", f"watch {PODS}"]
READ_AGAIN = [*FOLLOWED, f"list {PODS}"]

Object = dict[str, Any]


def pod(name: str, app: str = "a") -> Object:
    meta = {"name": name, "namespace": "shop", "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def app(item: Object) -> str | None:
    """What is kept of a pod: pods of the app "none" are of no interest."""
    found: str = item["metadata"]["labels"]["app"]
    return None if found == "none" else f"{item['metadata']['name']}={found}"


class Server(FakeCluster):
    """It notes where lists come from, and its watches tell what ``alter`` makes of the truth."""

    alter: Callable[[list[Change]], Any] = staticmethod(lambda changes: changes)

    def read(self, path: str, pick: Callable[[Object], Any], **options: Any) -> Any:
        found = super().read(path, pick, **options)
        self.requests[-1] += " cached" if options.get("cached") else ""
        return found

    def changes(self, path: str, version: int) -> Iterator[Change]:
        yield from self.alter(list(super().changes(path, version)))


@pytest.fixture(autouse=True)
def every_list_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short."""
    monkeypatch.setattr(followed_module, "SHORT", -1)


def shop() -> tuple[Server, Followed[str]]:
    """A cluster with two pods, of which a list was read."""
    server = Server(pod("a-0"), pod("a-1"))
    return server, Followed(server, PODS, app)


def items(followed: Followed[str]) -> list[str]:
    return sorted(followed.items.values())


def changed(server: Server) -> None:
    """One is new, one is another, one is gone, one came and went."""
    server.add(pod("b-0", "b"))
    server.add(pod("a-0", "c"))
    server.remove(pod("a-1"))
    server.remove(server.add(pod("d-0", "d")))


PASSED = ["b-0=b", "a-0=c", "a-1=a", "d-0=d", "d-0=d"]
NOW = ["a-0=c", "b-0=b"]


def update(followed: Followed[str]) -> list[str]:
    followed.begin()
    return followed.finish()


def test_what_has_changed_is_told_without_another_list() -> None:
    server, followed = shop()
    assert items(followed) == ["a-0=a", "a-1=a"]
    changed(server)
    assert update(followed) == PASSED
    assert items(followed) == NOW
    assert server.requests == FOLLOWED
    server.remove(pod("b-0", "b"))
    assert update(followed) == ["b-0=b"]
    assert items(followed) == ["a-0=c"]
    assert server.requests == [*FOLLOWED, *FOLLOWED[1:]]


def test_what_is_of_interest_no_more_is_dropped() -> None:
    server, followed = shop()
    server.add(pod("a-0", "none"))
    assert update(followed) == []
    assert items(followed) == ["a-1=a"]


def test_where_nothing_was_written_nobody_is_asked() -> None:
    server, followed = shop()
    assert update(followed) == []
    assert server.requests == FOLLOWED[:2]


def test_a_change_that_is_new_enough_needs_no_bookmark() -> None:
    """As the API server's memory has it that only gets to know of changes."""
    server, followed = shop()
    server.tells_progress = False
    changed(server)
    assert update(followed) == PASSED
    assert server.requests == FOLLOWED


def test_all_are_asked_before_the_first_has_to_answer() -> None:
    """What happens between the questions is told by the watch that was asked already, if it goes so
    far.
    """
    server, followed = shop()
    server.add(pod("b-0", "b"))
    followed.begin()
    server.add(pod("late"))
    assert followed.finish()[0] == "b-0=b"
    assert "b-0=b" in items(followed)


def test_a_short_list_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is quicker than waiting for a bookmark."""
    server, followed = shop()
    changed(server)
    monkeypatch.setattr(followed_module, "SHORT", 2)
    assert update(followed) == []
    assert items(followed) == NOW
    assert server.requests == [FOLLOWED[0], READ_AGAIN[-1]]


def fails(error: KubeError) -> Callable[[list[Change]], Iterator[Change]]:
    """A watch that tells something, and then that."""

    def alter(changes: list[Change]) -> Iterator[Change]:
        yield changes[0]
        raise error

    return alter


INCOMPLETE: dict[str, Callable[[list[Change]], Any]] = {
    "it ends at once": lambda changes: [],
    "it ends early": lambda changes: changes[:2],
    "its last word is older": lambda changes: [
        *changes[:2],
        Change("BOOKMARK", {"metadata": {"resourceVersion": "3"}}),
    ],
    "it is cut": fails(KubeError("the answer was lost")),
    "too old": fails(KubeError("too old resource version", 410)),
}


@pytest.mark.parametrize("alter", INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_watch_that_does_not_tell_everything_makes_it_read_again(
    alter: Callable[[list[Change]], Any],
) -> None:
    """From etcd, and this server's watches are not asked any more."""
    server, followed = shop()
    changed(server)
    server.alter = alter
    passed = update(followed)
    assert passed == PASSED[: len(passed)]
    assert items(followed) == NOW
    assert server.requests == READ_AGAIN
    server.add(pod("e-0", "e"))
    update(followed)
    assert items(followed) == [*NOW, "e-0=e"]
    assert server.requests == [*READ_AGAIN, f"list {PODS}"]


def test_without_the_right_to_watch_it_is_read_again() -> None:
    server, followed = shop()

    def forbid(verb: str, _path: str) -> None:
        if verb == "watch":
            raise Forbidden("cannot watch pods", 403)

    server.before = forbid
    changed(server)
    assert update(followed) == []
    assert items(followed) == NOW
    assert server.requests == READ_AGAIN


@pytest.mark.parametrize("version", ["", "x", "-1", "\u0661", "1.5"])
@pytest.mark.parametrize("whose", ["list", "newest"])
def test_versions_that_cannot_be_compared(version: str, whose: str) -> None:
    class Opaque(Server):
        def newest(self, path: str) -> str:
            return version if whose == "newest" and super().newest(path) else super().newest(path)

        def read(self, path: str, pick: Callable[[Object], Any], **options: Any) -> Any:
            found = super().read(path, pick, **options)
            return type(found)(found.items, version) if whose == "list" else found

    server = Opaque(pod("a-0"), pod("a-1"))
    followed = Followed(server, PODS, app)
    changed(server)
    assert update(followed) == []
    assert items(followed) == NOW
    assert f"watch {PODS}" not in server.requests and server.requests[-1] == f"list {PODS}"


@pytest.mark.parametrize("verb", ["newest", "list"])
def test_what_can_neither_be_told_nor_read_is_an_error(verb: str) -> None:
    server, followed = shop()
    changed(server)
    server.alter = INCOMPLETE["it is cut"]

    def fail(asked: str, _path: str) -> None:
        if asked == verb:
            raise KubeError("away", 0)

    server.before = fail
    with pytest.raises(KubeError, match="away"):
        update(followed)
