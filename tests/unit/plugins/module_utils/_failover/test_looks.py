# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one look at pods and attachments costs, and that no tenant takes the time of the others."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.looks import (
    BarePods,
    ClaimGets,
    PodLists,
    key_of,
    read_attachments,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    AttachedVolume,
    attached_volume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Forbidden,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    pick_attachment,
    pick_pod,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

_LONGEST = 60.0


def volume(name: str, namespace: str = "shop", driver: str = "rbd.csi.ceph.com") -> AttachedVolume:
    source = {"csi": {"driver": driver, "volumeHandle": f"h-{name}"}} if driver else {}
    claim = {"namespace": namespace, "name": name, "uid": f"uid-{name}"}
    meta = {"name": f"pv-{name}", "uid": f"uid-pv-{name}"}
    item = {"metadata": meta, "spec": {**source, "claimRef": claim}}
    return attached_volume(pick_attachment(attachment(name, "a", f"att-{name}")), item)


def attachment(name: str, node: str, title: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": title, "uid": f"uid-{title}"},
        "spec": {
            "attacher": "rbd.csi.ceph.com",
            "nodeName": node,
            "source": {"persistentVolumeName": f"pv-{name}"},
        },
        "status": {"attached": True},
    }


def pod(name: str, namespace: str, claim: str, node: str = "b") -> dict[str, Any]:
    source = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "volumes": [source]},
        "status": {"phase": "Pending"},
    }


def _namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]


class Server(FakeCluster):
    """One where each request takes so many seconds in a namespace (``slow``)."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__(*objects)
        self.slow: dict[str, float] = {}
        self.seconds = 0.0
        self.left = 1000.0
        self.renewed: list[float] = []
        self.before = self._take_time
        turns: Any = (
            self,
            lambda: self.renewed.append(self.seconds),
            _LONGEST,
            lambda: self.left - self.seconds,
            lambda: self.seconds,
        )
        self.lists, self.bare, self.claims = PodLists(*turns), BarePods(*turns), ClaimGets(*turns)

    def _take_time(self, _verb: str, path: str) -> None:
        self.seconds += self.slow.get(_namespace(path), 0.0)

    def look(self, *volumes: AttachedVolume, node: str = "") -> tuple[list[str], list[str]]:
        """The pods that were read, and the volumes of which none were."""
        found, unread = self.lists.read(volumes, node)
        return [tenant.pod.title for tenant in found], [remark.volume for remark in unread]

    def asked(self) -> list[str]:
        """In which namespaces something was read since the last call."""
        asked = [_namespace(request) for request in self.requests]
        self.requests.clear()
        return asked


def server(**slow: float) -> Server:
    made = Server(pod("db-1", "shop", "db"), pod("ev-1", "evil", "ev"), pod("ev-2", "evil", "x"))
    made.slow = slow
    return made


DB, EV = volume("db"), volume("ev", "evil")
BOTH = ["shop/db-1"], ["pv-ev"]


def test_pods_that_use_one_of_the_claims() -> None:
    world = server()
    assert world.look(DB, EV) == (["evil/ev-1", "shop/db-1"], [])
    assert world.look(DB, EV, node="b") == (["evil/ev-1", "shop/db-1"], [])
    assert world.look(DB, EV, node="a") == ([], [])
    # One that has no claim has no pods.
    nothing = DB._replace(volume=None)
    assert world.look(nothing) == ([], [])


def test_a_namespace_that_takes_too_long_costs_itself_alone() -> None:
    world = server(evil=10.5)
    world.lists.begin(120)
    _found, (remark,) = world.lists.read([DB, EV])
    assert "pv-ev is not known: those of namespace evil could not be read within 10 s" in remark
    assert world.renewed == [0.0, 10.5] and world.asked() == ["evil", "shop"]
    # It comes last from now on, and has twice the time.
    assert world.look(DB, EV) == (["shop/db-1", "evil/ev-1"], [])
    assert world.asked() == ["shop", "evil"]


def test_a_server_that_sends_nothing_for_long_costs_that_namespace_alone() -> None:
    """Of many pods none of which fit, it sends none until it has looked at all of them."""
    world = server()
    world.deadline = Deadline(1000, lambda: world.seconds)

    def before(_verb: str, path: str) -> None:
        if "/evil/" in path:
            world.seconds += world.deadline.remaining()
            raise KubeError("no answer in time")

    world.before = before
    world.lists.begin(120)
    found, (remark,) = world.lists.read([DB, EV])
    assert [tenant.pod.title for tenant in found] == ["shop/db-1"]
    assert "namespace evil could not be read within 10 s (no answer in time)" in remark
    assert world.seconds == 10 and world.deadline.remaining() == 990


def test_a_missing_right_does_not_pass_by_itself() -> None:
    world = server()

    def before(_verb: str, _path: str) -> None:
        raise Forbidden("pods is forbidden", 403)

    world.before = before
    with pytest.raises(Forbidden):
        world.look(DB, EV)


def test_as_much_time_as_the_lease_allows() -> None:
    world = server(evil=60.5)
    world.lists.begin(1000)
    for _number in range(5):
        assert world.look(DB, EV) == BOTH
    world.slow = {"evil": 59.5}
    assert world.look(DB, EV)[1] == []


def test_what_was_read_before_does_once_the_time_is_over() -> None:
    world = server()
    world.lists.begin(10)
    assert world.look(DB, EV)[1] == []
    world.asked()
    world.slow = {"shop": 5.0, "evil": 20.0}
    # Too slow this time, and known from before.
    assert world.look(DB, EV) == (["evil/ev-1", "shop/db-1"], [])
    assert world.asked() == ["evil"]
    assert world.look(DB, EV)[1] == [] and world.asked() == []
    # What is known of one node says nothing of the others.
    assert world.look(DB, node="a") == ([], []) and world.asked() == ["shop"]
    # The next wait forgets it.
    world.lists.begin(10)
    assert world.look(DB, EV)[1] == [] and world.asked() == ["shop", "evil"]


def test_each_is_read_once_even_without_any_time() -> None:
    world = server(shop=0.9, evil=0.9)
    world.left = -5.0
    assert world.lists.begin(10) == 0
    assert world.look(DB, EV) == (["evil/ev-1", "shop/db-1"], [])
    assert world.look(DB, EV)[1] == [] and world.asked() == ["evil", "shop"]
    world.slow = {"evil": 1.5}
    world.lists.begin(10)
    assert world.look(DB, EV) == BOTH


def test_no_wait_is_longer_than_what_is_left() -> None:
    world = server()
    world.left = 30.0
    assert (world.lists.begin(20), world.lists.begin(40), world.lists.begin()) == (20, 30, 0)
    # Nor a turn.
    world.left = 5.0
    world.slow = {"evil": 6.0}
    assert world.look(DB, EV) == BOTH


@pytest.mark.parametrize(("number", "gets", "lists"), [(20, 20, 0), (21, 0, 1), (400, 0, 1)])
def test_attachments_on_many_nodes(number: int, gets: int, lists: int) -> None:
    world = FakeCluster()
    places = [(DB, f"n{count}") for count in range(number)]
    # The same place once more costs nothing.
    assert read_attachments(world, [*places, places[0]]) == {}  # type: ignore[arg-type]
    assert (world.count("get"), world.count("list")) == (gets, lists)


@pytest.mark.parametrize("number", [0, 30])
def test_an_attachment_is_known_by_its_name(number: int) -> None:
    """One of another name may be of another PersistentVolume that had the name before."""
    world = FakeCluster(attachment("db", "a", "att-db"), attachment("db", "b", "old"))
    places = [(DB, "a"), (DB, "b"), *[(EV, f"n{count}") for count in range(number)]]
    found = read_attachments(world, places)  # type: ignore[arg-type]
    assert {place: entry.name for place, entry in found.items()} == {("pv-db", "a"): "att-db"}


def test_attachments_of_volumes_whose_handle_is_not_known() -> None:
    """By volume and node, with one LIST for all of them."""
    old = volume("old", driver="")
    world = FakeCluster(
        attachment("old", "b", "csi-1"), attachment("old", "c", "csi-2"), attachment("x", "d", "y")
    )
    found = read_attachments(world, [(old, node) for node in "bcd"])  # type: ignore[arg-type]
    assert {place: entry.name for place, entry in found.items()} == {
        ("pv-old", "b"): "csi-1",
        ("pv-old", "c"): "csi-2",
    }
    assert world.requests == ["list /apis/storage.k8s.io/v1/volumeattachments"]


# pods with inline volumes


def line(number: int, namespace: str = "shop", *finalizers: str) -> dict[str, Any]:
    item = pod(f"line-{number}", namespace, "none", node="a")
    item["metadata"].update(uid=f"uid-{namespace}-{number}", finalizers=[*finalizers])
    return item


def bare(world: Server, *items: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The keys of those that are there: that leave, and that are kept."""
    leaving, kept = world.bare.read([pick_pod(item) for item in items], "a")
    return [remark.volume for remark in leaving], [remark.volume for remark in kept]


@pytest.mark.parametrize("number", [20, 21])
def test_pods_with_storage_in_line_are_not_looked_for_among_all_of_the_node(number: int) -> None:
    asked = [line(count) for count in range(number)]
    world = Server(asked[0], line(1, "shop", "example.com/mine"), line(99))
    assert bare(world, *asked) == (["pod/uid-shop-0"], ["pod/uid-shop-1"])
    # Whoever may only list pods can fence.
    assert (world.count("get"), world.count("list")) == (0, 1)
    assert {_namespace(request) for request in world.requests} == {"shop"}
    (_leaving, (kept,)) = world.bare.read([pick_pod(item) for item in asked], "a")
    assert (
        kept == "pod shop/line-1 is still on a, held by example.com/mine. A finalizer is "
        "never removed here"
    )
    # What has no pods costs nothing.
    world.requests.clear()
    assert bare(world) == ([], []) and world.requests == []


@pytest.mark.parametrize("more", [0, 30])
def test_a_pod_that_was_made_again_under_the_name_is_another(more: int) -> None:
    new = line(0)
    new["metadata"]["uid"] = "new"
    others = [line(1 + count) for count in range(more)]
    assert bare(Server(new), line(0), *others) == ([], [])


@pytest.mark.parametrize("more", [0, 30])
def test_a_namespace_of_such_pods_that_takes_too_long_costs_itself_alone(more: int) -> None:
    mine, theirs = line(0), line(0, "evil")
    world = Server(mine, theirs)
    world.slow = {"evil": 10.5}
    asked = [theirs, mine, *[line(1 + count) for count in range(more)]]
    leaving, (kept,) = world.bare.read([pick_pod(item) for item in asked], "a")
    assert [remark.volume for remark in leaving] == [key_of(pick_pod(mine))]
    assert kept.volume == key_of(pick_pod(theirs))
    assert "is not known: those of namespace evil could not be read within 10 s" in kept
    assert world.asked()[0] == "evil" and world.renewed == [0.0, 10.5]
    # It comes last from now on, and has twice the time.
    assert bare(world, *asked) == ([key_of(pick_pod(one)) for one in asked[:2]], [])
    assert world.asked()[-1] == "evil"


# claims


def claim(name: str, namespace: str = "shop", **status: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "spec": {"volumeName": f"pv-{name}"},
        "status": {"phase": "Bound", **status},
    }


def claims(world: Server, *volumes: AttachedVolume) -> tuple[list[str], list[str]]:
    """The volumes whose claims were read, and those whose were not."""
    found, unread = world.claims.read(volumes)
    return sorted(found), [remark.volume for remark in unread]


def test_a_claim_is_read_once_until_it_is_to_be_proven() -> None:
    world = Server(claim("db"), claim("ev", "evil"))
    world.claims.begin()
    gone = volume("gone")
    for _number in range(3):
        assert claims(world, DB, EV) == (["pv-db", "pv-ev"], [])
    assert world.asked() == ["evil", "shop"]
    # One that there is not, or that is not bound, may be there in the next look.
    for _number in range(2):
        assert "pv-gone" not in claims(world, gone)[0] and world.asked() == ["shop"]
    for other in (claim("db", phase="Lost"), {**claim("db"), "spec": {"volumeName": "pv-2"}}):
        world.add(other)
        world.claims.begin()
        for _number in range(2):
            assert claims(world, DB) == (["pv-db"], []) and world.asked() == ["shop"]
    assert claims(world, DB._replace(volume=None)) == ([], [])


def test_a_namespace_of_many_claims_costs_itself_alone() -> None:
    many = [volume(f"ev-{count}", "evil") for count in range(30)]
    world = Server(claim("db"), *[claim(f"ev-{count}", "evil") for count in range(30)])
    world.slow = {"evil": 0.7}
    found, unread = world.claims.read([*many, DB])
    assert "pv-db" in found and 10 <= len(found) - 1 < 20 and len(found) + len(unread) == 31
    assert "claims of namespace evil could not be read within 1" in unread[0]
    assert world.seconds < 12 and len(world.renewed) == 2
    # The next look goes on where this one ended.
    assert claims(world, *many, DB)[1] == [] and world.asked().count("shop") == 1
