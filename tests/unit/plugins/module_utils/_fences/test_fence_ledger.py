# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two copies of a ledger, and the Lease by which one run after another works at a node."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    NotStarted,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import ledger as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.lease import RunLease
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    Ledger,
    Ledgers,
    config_map_path,
    parse_ledger,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Forbidden,
    KubeError,
    NotFound,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import LEDGER

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
CONFIG_MAP = "/api/v1/namespaces/storage-ops/configmaps/storage-ops-fence-a"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/storage-ops/leases/storage-ops-fence-a"


def a_node(**annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "uid": "uid-a", "annotations": annotations},
        "spec": {},
    }


def ledgers(cluster: FakeCluster) -> Ledgers:
    return Ledgers(cluster, "storage-ops")  # type: ignore[arg-type]


def read(cluster: FakeCluster) -> Ledger | None:
    return ledgers(cluster).read("a", cluster.objects.get("/api/v1/nodes/a"))


def annotations(cluster: FakeCluster) -> dict[str, str]:
    found: dict[str, str] = cluster.objects["/api/v1/nodes/a"]["metadata"]["annotations"]
    return found


def changes(cluster: FakeCluster) -> list[str]:
    return [
        request.split()[0]
        for request in cluster.requests
        if request.split()[0] not in ("get", "list")
    ]


# the form


def test_what_is_written_can_be_read() -> None:
    assert parse_ledger(LEDGER.text, "here") == LEDGER
    assert parse_ledger(LEDGER.to_dict(), "here") == LEDGER
    assert json.loads(LEDGER.text)["version"] == 1
    assert [LEDGER._replace(phase=phase).reached("fenced") for phase in pure.PHASES] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "its version is 2"),
        ({"phase": "done"}, "phase is 'done'"),
        ({"method": "stonith"}, "method is 'stonith'"),
        ({"node": ""}, "it has no node"),
        ({"at": "today"}, "cannot be read"),
        ({"at": "2026-01-01T12:00:00"}, "no time"),
        ({"entries": [{"entry": "x"}]}, "'kind' is missing"),
        ({"entries": [{"entry": "x", "kind": "all", "ours": True, "until": ""}]}, "kind is 'all'"),
        (
            {"entries": [{"entry": "x", "kind": "client", "ours": "false", "until": ""}]},
            "neither true nor false",
        ),
        ({"addresses": "10.0.0.5"}, "a list of texts is none"),
        ({"cordoned": "no"}, "cordoned is neither true nor false"),
        ({"run": None}, "run is no text"),
        ({"machine": 7}, "machine is no text"),
        ({"revision": float("inf")}, "cannot be read"),
        ({"detached": "pv-db"}, "a list of texts is none"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_place(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(StorageOpsError, match="the ledger in here cannot be read") as error:
        parse_ledger({**LEDGER.to_dict(), **change}, "here")
    assert said in str(error.value)


def test_a_ledger_of_an_older_version() -> None:
    old = {
        name: value
        for name, value in LEDGER._replace(machine="m", namespace="n").to_dict().items()
        if name not in ("machine", "namespace", "detached")
    }
    assert parse_ledger(old, "here") == LEDGER
    assert parse_ledger(LEDGER._replace(machine="m", namespace="n").text, "here").machine == "m"
    moved = LEDGER._replace(detached=("pv-db",))
    assert parse_ledger(moved.text, "here") == moved


@pytest.mark.parametrize(
    ("phase", "revision", "proven"),
    [("intended", 1, False), ("intended", 2, True), ("fenced", 1, True), ("intended", None, True)],
)
def test_what_an_older_version_wrote_more_than_once_may_have_been_proven(
    phase: str, revision: int | None, proven: bool
) -> None:
    data = LEDGER._replace(phase=phase).to_dict()
    del data["proven"], data["revision"]
    more = {} if revision is None else {"revision": revision}
    assert parse_ledger({**data, **more}, "here").proven is proven


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "{}"])
def test_text_that_is_no_ledger(text: str) -> None:
    with pytest.raises(StorageOpsError, match="the ledger in here cannot be read"):
        parse_ledger(text, "here")


# the store


def test_the_config_map_comes_first_and_goes_last() -> None:
    cluster = FakeCluster(a_node(other="x"))
    written = ledgers(cluster).write(LEDGER)
    assert written == LEDGER._replace(revision=1) == read(cluster)
    assert changes(cluster) == ["create", "patch"]
    assert annotations(cluster) == {"other": "x", ANNOTATION: written.text}
    assert ledgers(cluster).all() == [written]
    cluster.requests.clear()
    ledgers(cluster).remove(written)
    assert changes(cluster) == ["patch", "delete"]
    assert (
        read(cluster) is None
        and annotations(cluster) == {"other": "x"}
        and ledgers(cluster).all() == []
    )
    ledgers(cluster).remove(written)


def test_a_node_that_has_no_room_for_the_note_is_fenced_without() -> None:
    """Its kubelet may fill the annotations of its own Node, and kept its fence off so. The note is
    for the eye.
    """
    full = 256 * 1024 - len("x")
    cluster = FakeCluster(a_node(x="y" * full))
    written = ledgers(cluster).write(LEDGER)
    assert written == read(cluster) and list(annotations(cluster)) == ["x"]
    node = cluster.objects["/api/v1/nodes/a"]
    assert pure.is_noted(node, written)
    # An older one would be read as the newest.
    annotations(cluster)["x"] = "y"
    assert not pure.is_noted(node, written)
    written = ledgers(cluster).write(written._replace(phase="fenced"))
    assert annotations(cluster)[ANNOTATION] == written.text
    size = len(ANNOTATION) + len(written.text)
    annotations(cluster)["x"] = "y" * (full - size)
    assert pure.is_noted(cluster.objects["/api/v1/nodes/a"], written)
    longer = ledgers(cluster).write(written._replace(run="run-22"))
    assert list(annotations(cluster)) == ["x"] and read(cluster) == longer
    cluster.requests.clear()
    assert ledgers(cluster).write(longer) == longer and changes(cluster) == []
    # In bytes, as the server counts them.
    annotations(cluster)["x"] = "\u20ac" * ((full - size) // 3)
    ledgers(cluster).remove(ledgers(cluster).write(longer._replace(run="run-3")))
    assert list(annotations(cluster)) == ["x"] and CONFIG_MAP not in cluster.objects


def test_writing_the_same_again_changes_nothing_but_what_is_missing() -> None:
    cluster = FakeCluster(a_node())
    written = ledgers(cluster).write(LEDGER)
    cluster.requests.clear()
    assert ledgers(cluster).write(LEDGER) == written == ledgers(cluster).write(written)
    assert changes(cluster) == []
    del annotations(cluster)[ANNOTATION]
    assert ledgers(cluster).write(LEDGER) == written
    assert changes(cluster) == ["patch"] and annotations(cluster)[ANNOTATION] == written.text


def test_a_run_that_was_killed_between_the_two_copies() -> None:
    cluster = FakeCluster(a_node())
    before = ledgers(cluster).write(LEDGER)

    def die(verb: str, where: str) -> None:
        if (verb, where) == ("patch", "/api/v1/nodes/a"):
            raise KubeError("killed")

    cluster.before = die
    with pytest.raises(KubeError):
        ledgers(cluster).write(before._replace(phase="fenced"))
    # The newer one counts, also where it goes back to an earlier phase.
    assert (read(cluster) or LEDGER).phase == "fenced"
    with pytest.raises(KubeError):
        ledgers(cluster).write((read(cluster) or before)._replace(phase="intended", run="run-2"))
    assert (read(cluster) or LEDGER).run == "run-2"
    with pytest.raises(KubeError):
        ledgers(cluster).remove(read(cluster) or before)
    cluster.before = lambda verb, where: None
    ledgers(cluster).write(read(cluster) or LEDGER)
    assert (read(cluster) or LEDGER).revision == 3 and annotations(cluster)[ANNOTATION] == (
        read(cluster) or LEDGER
    ).text


def test_what_another_run_has_written_since_is_not_written_over() -> None:
    """One that was stopped for longer than its Lease lasts comes back between its last look and its
    write; meanwhile the node may have been released.
    """
    cluster = FakeCluster(a_node())
    mine = ledgers(cluster).write(LEDGER)
    theirs = ledgers(cluster).write(mine._replace(phase="releasing", run="run-2"))
    for _dry_run in (True, False):
        with pytest.raises(StorageOpsError, match="run-2") as error:
            ledgers(cluster).write(mine._replace(phase="fenced"), _dry_run)
        assert error.value.code == "world_changed"
    assert read(cluster) == theirs
    ledgers(cluster).remove(theirs)
    with pytest.raises(StorageOpsError, match="is gone"):
        ledgers(cluster).write(mine._replace(phase="fenced"))
    assert read(cluster) is None
    # Also if it comes between the look and the write of one call.
    mine = ledgers(cluster).write(LEDGER)

    def overtake(verb: str, where: str) -> None:
        if verb == "patch" and where == config_map_path("a", "storage-ops"):
            cluster.before = lambda verb, where: None
            ledgers(cluster).write(mine._replace(phase="releasing", run="run-2"))

    cluster.before = overtake
    with pytest.raises(StorageOpsError, match="run-2"):
        ledgers(cluster).write(mine._replace(phase="fenced"))
    assert (read(cluster) or LEDGER).phase == "releasing"


def test_what_another_run_has_written_since_is_not_removed() -> None:
    """A release that was late deleted the ledger of the next fence of its node."""
    cluster = FakeCluster(a_node())
    mine = ledgers(cluster).write(LEDGER._replace(phase="releasing"))
    theirs = ledgers(cluster).write(mine._replace(phase="intended", run="run-2"))
    with pytest.raises(StorageOpsError, match="run-2") as error:
        ledgers(cluster).remove(mine)
    assert error.value.code == "world_changed"
    assert read(cluster) == theirs and annotations(cluster)[ANNOTATION] == theirs.text
    # Its revision alone tells nothing: the ledger may be a restored one.
    with pytest.raises(StorageOpsError, match="run-2"):
        ledgers(cluster).remove(mine._replace(revision=theirs.revision))
    ledgers(cluster).remove(theirs)
    assert read(cluster) is None and ANNOTATION not in annotations(cluster)


@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_what_another_run_writes_while_a_ledger_is_removed_stays(verb: str) -> None:
    cluster = FakeCluster(a_node())
    mine = ledgers(cluster).write(LEDGER._replace(phase="releasing"))

    def overtake(asked: str, _where: str) -> None:
        if asked == verb:
            cluster.before = lambda verb, where: None
            ledgers(cluster).write(mine._replace(phase="intended", run="run-2"))

    cluster.before = overtake
    with pytest.raises(StorageOpsError, match="run-2"):
        ledgers(cluster).remove(mine)
    assert (read(cluster) or LEDGER).run == "run-2"
    assert annotations(cluster)[ANNOTATION] == (read(cluster) or LEDGER).text


def test_the_config_map_alone_counts() -> None:
    cluster = FakeCluster(a_node())
    written = ledgers(cluster).write(LEDGER)
    del cluster.objects["/api/v1/nodes/a"]
    assert read(cluster) == written
    ledgers(cluster).write(written._replace(phase="fenced"))


@pytest.mark.parametrize(
    "text",
    [LEDGER.text, LEDGER._replace(node="b").text, "x", "{}", "[" * 100_000, '{"version": 1}'],
)
def test_what_a_kubelet_notes_on_its_node_is_no_ledger(text: str) -> None:
    """It named other clients' entries as ours to take off, and an "x" in it kept the node from
    being fenced.
    """
    cluster = FakeCluster(a_node(**{ANNOTATION: text}))
    assert read(cluster) is None
    written = ledgers(cluster).write(LEDGER._replace(run="ours"))
    assert read(cluster) == written and annotations(cluster)[ANNOTATION] == written.text
    annotations(cluster)[ANNOTATION] = text
    assert read(cluster) == written
    ledgers(cluster).remove(written)
    assert ANNOTATION not in annotations(cluster) and CONFIG_MAP not in cluster.objects


def test_a_note_of_another_namespace_is_looked_into() -> None:
    """Only a ConfigMap there keeps others off, and only a name of the API becomes a path."""
    for where in ("storage", "../../../version", "x/y", "X"):
        cluster = FakeCluster(a_node(**{ANNOTATION: LEDGER._replace(namespace=where).text}))
        assert read(cluster) is None
        assert all(".." not in place and "x/y" not in place for place in cluster.requests)

    def forbidden(verb: str, place: str) -> None:
        if "/namespaces/storage/" in place:
            raise Forbidden("no")

    cluster = FakeCluster(a_node(**{ANNOTATION: LEDGER._replace(namespace="storage").text}))
    cluster.before = forbidden
    assert read(cluster) is None


def test_a_ledger_in_another_namespace() -> None:
    """Its runs have another Lease, so nothing keeps them off."""
    cluster = FakeCluster(a_node())
    elsewhere = Ledgers(cluster, "storage")  # type: ignore[arg-type]
    written = elsewhere.write(LEDGER._replace(namespace="storage"))
    with pytest.raises(
        StorageOpsError,
        match="is in namespace storage, .*not in storage-ops.*Only if .*ledger_namespace storage",
    ):
        read(cluster)
    assert elsewhere.read("a", cluster.objects["/api/v1/nodes/a"]) == written
    # Both began before either had noted anything.
    with pytest.raises(StorageOpsError, match="give ledger_namespace storage"):
        ledgers(cluster).write(LEDGER._replace(namespace="storage-ops"))
    ledgers(cluster).remove(LEDGER._replace(namespace="storage-ops"))
    assert annotations(cluster)[ANNOTATION] == written.text and CONFIG_MAP not in cluster.objects


def test_two_that_note_their_ledgers_at_once() -> None:
    cluster = FakeCluster(a_node())

    def meanwhile(verb: str, where: str) -> None:
        if (verb, where) == ("patch", "/api/v1/nodes/a"):
            cluster.before = lambda verb, where: None
            Ledgers(cluster, "storage").write(LEDGER._replace(namespace="storage"))  # type: ignore[arg-type]

    cluster.before = meanwhile
    with pytest.raises(StorageOpsError, match="give ledger_namespace storage"):
        ledgers(cluster).write(LEDGER._replace(namespace="storage-ops"))


@pytest.mark.parametrize(
    "change", [{"run": "run-2"}, {"entries": ()}, {"phase": "fenced", "revision": 2}]
)
def test_copies_that_contradict_each_other(change: dict[str, Any]) -> None:
    cluster = FakeCluster(a_node())
    written = ledgers(cluster).write(LEDGER)
    annotations(cluster)[ANNOTATION] = written._replace(**change).text
    assert read(cluster) == written
    with pytest.raises(StorageOpsError, match="contradict each other.*compare both"):
        ledgers(cluster).refuse_doubt(written, cluster.objects["/api/v1/nodes/a"])


def test_an_older_note_is_no_contradiction() -> None:
    cluster = FakeCluster(a_node())
    before = ledgers(cluster).write(LEDGER)
    written = ledgers(cluster).write(before._replace(phase="fenced"))
    for text in (written.text, before.text, "x"):
        annotations(cluster)[ANNOTATION] = text
        ledgers(cluster).refuse_doubt(written, cluster.objects["/api/v1/nodes/a"])


def test_the_ledger_of_another_node() -> None:
    cluster = FakeCluster(a_node())
    ledgers(cluster).write(LEDGER)
    cluster.objects[CONFIG_MAP]["data"]["ledger"] = LEDGER._replace(node="b").text
    with pytest.raises(StorageOpsError, match="is the ledger of node b"):
        read(cluster)


def test_a_node_that_was_made_anew_is_left_alone() -> None:
    cluster = FakeCluster(a_node())
    ledgers(cluster).write(LEDGER._replace(node_uid="uid-old"))
    assert annotations(cluster) == {}


def test_trying_changes_nothing() -> None:
    cluster = FakeCluster(a_node())
    ledgers(cluster).write(LEDGER, dry_run=True)
    assert read(cluster) is None and annotations(cluster) == {}


class Homeless(FakeCluster):
    """What an API server answers where the namespace of an object is not there."""

    def create(self, where: str, body: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        raise NotFound('namespaces "storage-ops" not found', 404)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_namespace_that_is_not_there_is_said(dry_run: bool) -> None:
    cluster = Homeless(a_node())
    with pytest.raises(StorageOpsError, match=r"no namespace storage-ops .*files/namespace.yml"):
        ledgers(cluster).write(LEDGER, dry_run=dry_run)
    other = Ledgers(cluster, "vault")  # type: ignore[arg-type]
    with pytest.raises(StorageOpsError, match=r"no namespace vault \(ledger_namespace\): make it"):
        other.write(LEDGER, dry_run=dry_run)
    assert annotations(cluster) == {}


# the Lease


class Clock:
    """The API server's clock, which sleeping moves; ``hook`` is what else happens meanwhile."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.now = NOW
        self.hook = lambda: None
        cluster.clock = lambda: self.now

    def monotonic(self) -> float:
        return self.now.timestamp()

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.hook()


def lease(cluster: FakeCluster, clock: Clock, run: str, seconds: float = 30) -> RunLease:
    return RunLease(cluster, "storage-ops", "a", run, seconds, clock.sleep)  # type: ignore[arg-type]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def clock(cluster: FakeCluster) -> Clock:
    return Clock(cluster)


def test_a_namespace_that_is_not_there_is_not_waited_for() -> None:
    cluster = Homeless()
    clock = Clock(cluster)
    sleeps: list[float] = []

    def count() -> None:
        sleeps.append(0.0)
        assert len(sleeps) < 100, "it waits for ever"

    clock.hook = count
    with pytest.raises(StorageOpsError, match="no namespace storage-ops"):
        lease(cluster, clock, "one").take(10)
    assert not sleeps


def test_a_lease_that_ends_after_the_last_day_of_the_calendar_is_held(
    cluster: FakeCluster, clock: Clock
) -> None:
    lease(cluster, clock, "one").take(0)
    spec = cluster.objects[LEASE]["spec"]
    spec.update(renewTime="9999-12-31T00:00:00Z", leaseDurationSeconds=2**31 - 1)
    with pytest.raises(StorageOpsError, match="another run"):
        lease(cluster, clock, "two").take(0)


def test_the_modules_of_a_run_share_it(cluster: FakeCluster, clock: Clock) -> None:
    lease(cluster, clock, "one").take(0)
    clock.sleep(20)
    again = lease(cluster, clock, "one")
    again.take(0)
    again.check()
    assert cluster.objects[LEASE]["spec"]["renewTime"] == "2026-01-01T12:00:20.000000Z"
    assert again.holder() == ""
    again.release()
    again.release()
    assert LEASE not in cluster.objects


def test_another_run_is_refused_or_waits(
    cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease(cluster, clock, "one").take(0)
    two = lease(cluster, clock, "two")
    assert "another run (one) is working on node a" in two.holder() and "12:00:30Z" in two.holder()
    with pytest.raises(
        StorageOpsError, match=r"another run \(one\) is working on node a.*Nothing was changed"
    ):
        two.take(0)
    # It waits until that one runs out, by the API server's clock.
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    two.take(100)
    assert NOW + timedelta(seconds=30) < clock.now < NOW + timedelta(seconds=33)
    assert two.holder() == "" and "another run (two)" in lease(cluster, clock, "one").holder()


def test_what_is_given_back_is_free_at_once(
    cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    one = lease(cluster, clock, "one")
    one.take(0)
    clock.hook = one.release
    lease(cluster, clock, "two").take(100)
    assert clock.now < NOW + timedelta(seconds=5)


def test_what_a_killed_run_left_goes_once_it_is_over(cluster: FakeCluster, clock: Clock) -> None:
    one, two = lease(cluster, clock, "one"), lease(cluster, clock, "two")
    one.take(0)
    two.release()
    one.check()
    clock.sleep(31)
    two.release()
    with pytest.raises(NotStarted, match="it was deleted"):
        one.check()


@pytest.mark.parametrize("when", ["0000-01-01T00:00:00.000000Z", "x"])
def test_a_lease_whose_end_cannot_be_read_is_not_over(
    cluster: FakeCluster, clock: Clock, when: str
) -> None:
    lease(cluster, clock, "one").take(0)
    cluster.objects[LEASE]["spec"]["renewTime"] = when
    two = lease(cluster, clock, "two")
    for act in (lambda: two.take(0), two.holder, two.release, two.check):
        with pytest.raises(
            StorageOpsError, match="a renewTime that is no time, so a run may be at work: "
        ):
            act()
    assert cluster.objects[LEASE]["spec"]["holderIdentity"] == "one"


def test_who_comes_back_late_has_lost_it(cluster: FakeCluster, clock: Clock) -> None:
    one, two = lease(cluster, clock, "one"), lease(cluster, clock, "two")
    one.take(0)
    clock.sleep(31)
    one.check()
    clock.sleep(31)
    two.take(0)
    with pytest.raises(NotStarted, match="run two has it now"):
        one.check()
    one.release()
    two.check()
    two.release()
    with pytest.raises(NotStarted, match="it was deleted"):
        two.check()


def test_what_is_renewed_is_what_was_read(cluster: FakeCluster, clock: Clock) -> None:
    """Somebody writes another holder into it, between the look and the renewal: it has the same uid
    still.
    """
    one = lease(cluster, clock, "one")
    one.take(0)

    def meanwhile(verb: str, where: str) -> None:
        if verb == "patch":
            cluster.objects[LEASE]["spec"]["holderIdentity"] = "two"
            cluster.objects[LEASE]["metadata"]["resourceVersion"] = "99"

    cluster.before = meanwhile
    with pytest.raises(NotStarted, match="has lost the Lease"):
        one.check()


def late(cluster: FakeCluster, seconds: float = 0.0) -> list[float]:
    """A module's clock, with the server's; and its time."""
    passed = [seconds]
    cluster.clock = lambda: NOW + timedelta(seconds=passed[0])
    cluster.deadline = Deadline(900.0, lambda: passed[0])
    return passed


def test_what_is_done_under_a_lease_ends_before_it(cluster: FakeCluster, clock: Clock) -> None:
    """A run went on to delete for minutes after its Lease was over."""
    passed = late(cluster)
    one = lease(cluster, clock, "one", 180)
    one.take(0)
    passed[0] = 100.0
    with one.held():
        # From its renewal on, without what is kept, and without the second that the server's time
        # leaves in doubt.
        assert cluster.deadline.remaining() == pytest.approx(180 - 15 - 1)
        passed[0] += 164.0
        with pytest.raises(KubeError, match="the deadline has passed"):
            cluster.patch("/api/v1/nodes/a", {})
    assert cluster.deadline.remaining() == pytest.approx(900 - 264)
    # Without anything else, the module's own deadline counts.
    cluster.deadline = Deadline(40.0, lambda: passed[0])
    with one.held():
        assert cluster.deadline.remaining() == pytest.approx(40)


def test_what_fails_before_the_change_has_changed_nothing(
    cluster: FakeCluster, clock: Clock
) -> None:
    passed = late(cluster)
    one = lease(cluster, clock, "one", 180)
    one.take(0)

    def patch(dry_run: bool, spent: float = 0.0) -> None:
        with one.held():
            passed[0] += spent
            cluster.patch("/api/v1/nodes/a", {}, dry_run)

    # A rehearsal changes nothing, and this node is not there.
    with pytest.raises(NotStarted, match="was over, or nearly so") as over:
        patch(True, 160.0)
    assert over.value.code == "lease_lost"
    with pytest.raises(Prevented, match="no rights") as forbidden, one.held():
        raise Forbidden("no rights", 403)
    assert forbidden.value.code == "api_forbidden"

    def away(verb: str, where: str) -> None:
        raise KubeError("away")

    cluster.before = away
    with pytest.raises(Prevented, match="away"), one.held():
        raise AssertionError("it was not renewed")
    cluster.before = lambda verb, where: None
    # What fails in the change may have been done.
    with pytest.raises(NotFound):
        patch(False, 160.0)


def test_a_renewal_counts_from_when_it_was_sent(cluster: FakeCluster, clock: Clock) -> None:
    """It was on its way for 20 s, and the Lease lasts from before that."""
    passed = late(cluster)
    one = lease(cluster, clock, "one", 180)
    one.take(0)

    def slowly(verb: str, where: str) -> None:
        passed[0] += 20.0 if verb == "patch" else 0.0

    cluster.before = slowly
    with one.held():
        # Twice: the server's time of the answer may be that of its end, too.
        assert cluster.deadline.remaining() == pytest.approx(180 - 15 - 1 - 2 * 20)


def test_a_time_that_was_behind_the_servers_does_not_make_a_lease_longer(
    cluster: FakeCluster, clock: Clock
) -> None:
    """The answer before was on its way for 100 s, so the renewal had a time that was as old."""
    passed = late(cluster)
    one = lease(cluster, clock, "one", 180)
    one.take(0)
    behind = [100.0]
    cluster.clock = lambda: NOW + timedelta(seconds=passed[0] + 100 - behind[0])

    def answers(verb: str, where: str) -> None:
        behind[0] = 0.0 if verb == "patch" else behind[0]

    cluster.before = answers
    with one.held():
        assert cluster.deadline.remaining() == pytest.approx(180 - 100 - 15 - 1)


def test_a_renewal_whose_answer_was_lost_is_made_again(cluster: FakeCluster, clock: Clock) -> None:
    late(cluster)
    one = lease(cluster, clock, "one", 180)
    one.take(0)

    def lost(verb: str, where: str) -> None:
        # The first try had reached the server, so the second meets a newer version.
        if verb == "patch":
            cluster.before = lambda verb, where: None
            cluster.patch(where, {"spec": {"renewTime": "2026-01-01T12:00:00.000000Z"}})

    cluster.before = lost
    one.check()


def test_two_at_once_and_one_gets_it(cluster: FakeCluster, clock: Clock) -> None:
    """Between the look and the deletion of a Lease that ran out, somebody else has taken it."""
    lease(cluster, clock, "dead").take(0)
    clock.sleep(31)
    one, two = lease(cluster, clock, "one"), lease(cluster, clock, "two")

    def meanwhile(verb: str, where: str) -> None:
        if verb == "delete":
            cluster.before = lambda verb, where: None
            one.take(0)

    cluster.before = meanwhile
    with pytest.raises(StorageOpsError, match=r"another run \(one\)"):
        two.take(0)
    one.check()


# the options


PARAMS = {
    "node": "a",
    "run_id": "r1",
    "ledger_namespace": "storage-ops",
    "lease_seconds": 180.0,
    "lease_timeout": 200.0,
    "fence": None,
}


def test_options() -> None:
    assert pure.run_options(PARAMS, check_mode=False) == pure.RunOptions(
        "a", "r1", "storage-ops", 180.0, 200.0, None
    )
    handed = {**PARAMS, "fence": LEDGER.to_dict()}
    assert pure.run_options(handed, check_mode=True).fence == LEDGER
    # Only the cluster's counts for real.
    assert pure.run_options({**PARAMS, "fence": {"version": 9}}, check_mode=False).fence is None
    assert pure.run_options({**PARAMS, "fence": {}}, check_mode=True).fence is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": ""}, "node is ''"),
        ({"run_id": "two words"}, "run_id is 'two words'"),
        ({"lease_seconds": 9.0}, "lease_seconds is 9; give 10 to 3600"),
        ({"lease_seconds": 86400.0}, "lease_seconds is 86400; give 10 to 3600"),
        ({"lease_seconds": float("inf")}, "lease_seconds is inf"),
        ({"lease_timeout": float("nan")}, "lease_timeout is nan"),
        ({"lease_timeout": float("inf")}, "lease_timeout is inf"),
        ({"fence": LEDGER._replace(node="b").to_dict()}, "the ledger of node b, not of a"),
    ],
)
def test_options_that_do_not_fit(change: dict[str, Any], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        pure.run_options({**PARAMS, **change}, check_mode=True)
