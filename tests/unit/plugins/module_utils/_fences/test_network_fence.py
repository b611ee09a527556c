# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is made of a NetworkFence, which message counts as proof, and how long one waits for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    NotStarted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import (
    network_fence as nf,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    FENCED,
    MESSAGES,
    UNFENCED,
    NetworkFence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Forbidden,
    KubeError,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster, path_of

# As CSI-Addons writes them (read from its source, 0.8.0 to 0.14.0).
FENCING, UNFENCING = "fencing operation successful", "unfencing operation successful"


def item(
    name: str = "a",
    state: str = UNFENCED,
    result: str = "Succeeded",
    message: str = "",
    **spec: Any,
) -> dict[str, Any]:
    """A NetworkFence on which the controller has acted, unless said otherwise."""
    message = message or (MESSAGES[state] if result == "Succeeded" else "")
    spec = {
        "driver": "rbd.csi.ceph.com",
        "parameters": {"clusterID": "c1"},
        "cidrs": ["10.0.0.1/32"],
        "fenceState": state,
        **spec,
    }
    status = {"result": result, "message": message} if result else {}
    return {
        "apiVersion": nf.GROUP,
        "kind": "NetworkFence",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def class_item(name: str = "ceph", **parameters: str) -> dict[str, Any]:
    spec = {
        "provisioner": "class.csi.ceph.com",
        "parameters": {"clusterID": "of-class", **parameters},
    }
    return {
        "apiVersion": nf.GROUP,
        "kind": "NetworkFenceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def only(cluster: FakeCluster) -> NetworkFence:
    found = nf.list_fences(cluster)  # type: ignore[arg-type]
    assert found is not None
    (fence,) = found
    return fence


class Controller:
    """CSI-Addons at work on one NetworkFence: says these statuses, one at each look; ``hook`` may
    do something else at that moment.
    """

    def __init__(self, cluster: FakeCluster, *statuses: tuple[str, str]) -> None:
        self.cluster, self.statuses, self.slept = cluster, list(statuses), 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.statuses:
            (found,) = [
                one for one in self.cluster.objects.values() if one["kind"] == "NetworkFence"
            ]
            result, message = self.statuses.pop(0)
            found["status"] = {"result": result, "message": message}


def test_without_the_resource_there_is_none_and_an_unreadable_api_is_no_answer() -> None:
    cluster = FakeCluster()
    assert nf.list_fences(cluster) is None  # type: ignore[arg-type]

    cluster.add(class_item())
    assert nf.list_fences(cluster) == ()  # type: ignore[arg-type]

    def forbid(verb: str, _path: str) -> None:
        if verb == "list":
            raise Forbidden("no right", 403)

    cluster.before = forbid
    with pytest.raises(Forbidden):
        nf.list_fences(cluster)  # type: ignore[arg-type]

    def missing(verb: str, _path: str) -> None:
        if verb == "list":
            raise KubeError("404 page not found", 404)

    # The group is there, of an old version that has no NetworkFences; or the answer was a proxy's.
    cluster.before = missing
    assert nf.list_fences(cluster) is None  # type: ignore[arg-type]
    cluster.objects[f"/apis/{nf.GROUP}"] = {
        "apiVersion": "v1",
        "resources": [{"name": "networkfences"}],
    }
    with pytest.raises(KubeError, match="page not found"):
        nf.list_fences(cluster)  # type: ignore[arg-type]


def test_an_api_that_lists_no_groups_is_no_answer() -> None:
    class Mute(FakeCluster):
        def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
            return None if path == "/apis" else super().get(path, query)

    with pytest.raises(StorageOpsError, match="cannot be ruled out"):
        nf.list_fences(Mute(item()))  # type: ignore[arg-type]


def test_records() -> None:
    fence = only(FakeCluster(item(cidrs=["10.0.0.1/32", "fd00::/64"])))
    assert (fence.driver, fence.cluster_id, fence.state, fence.class_name) == (
        "rbd.csi.ceph.com",
        "c1",
        UNFENCED,
        "",
    )
    assert fence.cidrs == ("10.0.0.1/32", "fd00::/64") and fence.settled
    assert not fence._replace(state=FENCED).settled
    assert not fence._replace(result="Failed").settled
    assert not fence._replace(deleted=fence.created).settled
    # Not set, which the API server would have filled in.
    assert only(FakeCluster(item(fenceState=None, result=""))).state == FENCED


def test_a_class_takes_precedence_and_a_missing_one_leaves_nothing() -> None:
    of_class = item(networkFenceClassName="ceph", driver="ignored")
    fence = only(FakeCluster(of_class, class_item()))
    assert (fence.driver, fence.cluster_id, fence.class_name) == (
        "class.csi.ceph.com",
        "of-class",
        "ceph",
    )
    lost = only(FakeCluster(of_class, class_item("another")))
    assert (lost.driver, lost.cluster_id, lost.class_name) == ("", "", "ceph")


@pytest.mark.parametrize(
    ("cidrs", "address", "is_covered"),
    [
        (["10.0.0.1/32"], "10.0.0.1", True),
        (["10.0.0.1/32"], "10.0.0.11", False),
        (["10.0.0.77/24"], "10.0.0.1", True),
        (["10.0.0.1"], "10.0.0.1", True),
        (["fd00::/64"], "fd00::5", True),
        (["fd00::/64"], "10.0.0.1", False),
        # As ceph-csi reads them (getIPRange).
        (["::ffff:0:0/96"], "10.0.0.1", True),
        (["::ffff:a00:1/128"], "10.0.0.1", True),
        (["::ffff:a00:1/128"], "10.0.0.2", False),
        (["::ffff:10.0.0.0/120"], "10.0.0.9", True),
        (["10.0.0.1/32"], "::ffff:10.0.0.1", True),
        (["::/0"], "10.0.0.1", False),
        (["64:ff9b::/96"], "10.0.0.1", False),
        (["fe80::1%eth0/128"], "fe80::1", False),
        (["nonsense", "10.0.0.0/30"], "10.0.0.2", True),
        (["10.0.0.1:0/32"], "10.0.0.1", True),
        (["10.0.0.1:0/32"], "10.0.0.2", False),
        ([], "10.0.0.1", False),
    ],
)
def test_covered(cidrs: list[str], address: str, is_covered: bool) -> None:
    found = nf.covered(only(FakeCluster(item(cidrs=cidrs))), [address])
    assert found == ([address] if is_covered else [])


def test_the_messages_are_those_of_csi_addons_and_one_contains_the_other() -> None:
    assert MESSAGES == {FENCED: FENCING, UNFENCED: UNFENCING}
    assert FENCING in UNFENCING
    # Succeeded, with the other operation's message.
    assert not only(FakeCluster(item(state=FENCED, message=UNFENCING))).settled


def test_fence_patches_by_uid_and_awaits_the_message() -> None:
    cluster = FakeCluster(item())
    before = only(cluster)
    controller = Controller(cluster, ("Succeeded", UNFENCING), ("Succeeded", FENCING))
    after = nf.fence(cluster, before, 30, controller.sleep)  # type: ignore[arg-type]
    assert after.settled and after.state == FENCED and after.driver == before.driver
    assert cluster.count("patch") == 1 and controller.slept == 1.0
    # Done already: nothing is patched, and nothing waited for.
    assert nf.fence(cluster, after, 30, controller.sleep) == after  # type: ignore[arg-type]
    assert cluster.count("patch") == 1 and controller.slept == 1.0

    controller.statuses = [("Succeeded", FENCING), ("Succeeded", UNFENCING)]
    assert nf.unfence(cluster, after, 30, controller.sleep).state == UNFENCED  # type: ignore[arg-type]
    assert cluster.count("patch") == 2


def test_a_dry_run_changes_nothing() -> None:
    cluster = FakeCluster(item())
    nf.rehearse(cluster, only(cluster), FENCED)  # type: ignore[arg-type]
    nf.rehearse(cluster, only(cluster), UNFENCED)  # type: ignore[arg-type]
    assert [request for request in cluster.requests if "patch" in request] == [
        f"patch {nf.FENCES}/a (dry run)"
    ]
    assert only(cluster).state == UNFENCED
    assert nf.command(only(cluster), FENCED)[:2] == ["PATCH", f"{nf.FENCES}/a"]


def test_another_object_is_never_patched() -> None:
    cluster = FakeCluster(item())
    before = only(cluster)
    with pytest.raises(NotStarted, match="was replaced"):
        nf.fence(cluster, before._replace(uid="other"), 30)  # type: ignore[arg-type]
    with pytest.raises(NotStarted, match="other ranges now"):
        nf.fence(cluster, before._replace(cidrs=("10.0.0.2/32",)), 30)  # type: ignore[arg-type]
    cluster.remove(cluster.objects[path_of(item())])
    with pytest.raises(NotStarted, match="is gone"):
        nf.fence(cluster, before, 30)  # type: ignore[arg-type]
    assert cluster.count("patch") == 0


def test_one_that_is_replaced_between_look_and_patch_is_not_patched() -> None:
    cluster = FakeCluster(item())
    before = only(cluster)

    def replace(verb: str, _path: str) -> None:
        if verb == "patch":
            cluster.add(item())

    cluster.before = replace
    with pytest.raises(NotStarted, match="was replaced by another one"):
        nf.fence(cluster, before, 30)  # type: ignore[arg-type]
    assert only(cluster).state == UNFENCED


def test_one_that_is_changed_between_look_and_patch_is_judged_again() -> None:
    """Its controller writes its status all the time; another client its ranges."""
    cluster = FakeCluster(item())
    controller = Controller(cluster, ("Succeeded", FENCING))
    place = path_of(item())
    writes = [{"status": {"result": "Succeeded", "message": UNFENCING, "conditions": []}}]

    def write(verb: str, _path: str) -> None:
        if verb == "patch" and writes:
            cluster.before = lambda verb, path: None
            cluster.patch(place, writes.pop())
            cluster.before = write

    cluster.before = write
    assert nf.fence(cluster, only(cluster), 30, controller.sleep).settled  # type: ignore[arg-type]
    writes = [{"spec": {"cidrs": ["10.0.0.0/8"]}}]
    with pytest.raises(NotStarted, match="other ranges now"):
        nf.unfence(cluster, only(cluster), 30)  # type: ignore[arg-type]
    assert only(cluster).state == FENCED


def test_what_holds_is_there_for_the_patch_and_not_for_the_wait() -> None:
    cluster = FakeCluster(item())
    controller = Controller(cluster, ("Succeeded", FENCING))
    held: list[str] = []

    @contextlib.contextmanager
    def hold() -> Iterator[None]:
        cluster.requests.clear()
        yield
        held.extend(request.split()[0] for request in cluster.requests)

    nf.fence(cluster, only(cluster), 30, controller.sleep, hold)  # type: ignore[arg-type]
    assert held == ["get", "patch"] and cluster.requests[2:]


def test_unfenced_with_the_message_of_a_fencing_proves_nothing() -> None:
    cluster = FakeCluster(item(message=FENCING))
    assert "one message for both" in nf.undecidable(only(cluster))
    with pytest.raises(
        NotStarted, match="delete this NetworkFence while it is Unfenced and use method ceph"
    ):
        nf.fence(cluster, only(cluster), 30)  # type: ignore[arg-type]
    assert cluster.count("patch") == 0
    for fine in (item(), item(state=FENCED), item(state=FENCED, result="Failed", message="denied")):
        assert nf.undecidable(only(FakeCluster(fine))) == ""


@pytest.mark.parametrize("status", [("", ""), ("Failed", "denied"), ("Succeeded", "done")])
def test_an_unfencing_that_has_not_ended_may_land_after_a_fencing(status: tuple[str, str]) -> None:
    cluster = FakeCluster(item(result=status[0], message=status[1]))
    assert (
        "may land after a fencing. Wait until it says 'unfencing operation successful'"
        in nf.undecidable(only(cluster))
    )
    with pytest.raises(NotStarted, match="its unfencing is still to come or under way"):
        nf.fence(cluster, only(cluster), 30)  # type: ignore[arg-type]
    assert cluster.count("patch") == 0


def test_a_fencing_that_was_not_answered_is_not_taken_back() -> None:
    """The message is still that of the unfencing before, and would be taken for the
    proof of ours.
    """
    cluster = FakeCluster(item(state=FENCED, message=UNFENCING))
    with pytest.raises(NotStarted, match="still says 'unfencing operation successful'"):
        nf.unfence(cluster, only(cluster), 30)  # type: ignore[arg-type]
    assert cluster.count("patch") == 0
    # A run that was killed after its patch goes on waiting.
    controller = Controller(cluster, ("Succeeded", FENCING))
    assert nf.fence(cluster, only(cluster), 30, controller.sleep).settled  # type: ignore[arg-type]
    assert cluster.count("patch") == 0
    # One that failed is over, so it can be taken back.
    cluster = FakeCluster(item(state=FENCED, result="Failed", message="denied"))
    assert nf.unfence(
        cluster, only(cluster), 30, Controller(cluster, ("Succeeded", UNFENCING)).sleep
    ).settled  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (("Succeeded", UNFENCING), "It says Succeeded: unfencing operation successful"),
        (("", ""), "It says nothing yet. Its controller does not answer"),
        (("Succeeded", "done"), "It says Succeeded: done"),
    ],
)
def test_a_silent_controller_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, status: tuple[str, str], said: str
) -> None:
    # A run before may have patched it.
    state = UNFENCED if status[1] == UNFENCING else FENCED
    cluster = FakeCluster(item(state=state, result=status[0], message=status[1]))
    now = [0.0]
    monkeypatch.setattr(nf.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(
        ActionFailed, match="within [0-9]+ s its status did not say 'fencing operation successful'"
    ) as caught:
        nf.fence(cluster, only(cluster), 30, sleep)  # type: ignore[arg-type]
    assert said in str(caught.value) and not isinstance(caught.value, NotStarted)
    assert 29 <= now[0] <= 30
    assert only(cluster).state == FENCED, "what was begun stays, since the controller goes on"


def test_a_failure_is_told_soon_and_a_stale_one_is_not_taken_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(nf.time, "monotonic", lambda: now[0])

    def tick(controller: Controller) -> Any:
        def sleep(seconds: float) -> None:
            now[0] += seconds
            controller.sleep(seconds)

        return sleep

    cluster = FakeCluster(item())
    with pytest.raises(ActionFailed, match="It says Failed: denied. The controller goes on trying"):
        nf.fence(cluster, only(cluster), 60, tick(Controller(cluster, ("Failed", "denied"))))  # type: ignore[arg-type]
    assert 10 <= now[0] <= 12

    # The controller tries again, and that goes well.
    cluster, now[0] = FakeCluster(item()), 0.0
    tries = [("Failed", "denied")] * 10 + [("Succeeded", FENCING)]
    assert nf.fence(cluster, only(cluster), 60, tick(Controller(cluster, *tries))).settled  # type: ignore[arg-type]

    # The failure that a run before has left stands there for 20 s before the slow driver has
    # fenced.
    cluster, now[0] = FakeCluster(item(state=FENCED, result="Failed", message="denied")), 0.0
    tries = [("Failed", "denied")] * 40 + [("Succeeded", FENCING)]
    assert nf.fence(cluster, only(cluster), 60, tick(Controller(cluster, *tries))).settled  # type: ignore[arg-type]
    assert now[0] > 20


def test_somebody_else_meanwhile() -> None:
    def meanwhile(change: Any) -> str:
        cluster = FakeCluster(item())
        found = cluster.objects[path_of(item())]

        def sleep(_seconds: float) -> None:
            change(cluster, cluster.objects[path_of(found)])

        with pytest.raises(ActionFailed) as caught:
            nf.fence(cluster, only(cluster), 30, sleep)  # type: ignore[arg-type]
        assert not isinstance(caught.value, NotStarted)
        return str(caught.value)

    assert "it was set to Unfenced meanwhile" in meanwhile(
        lambda cluster, found: found["spec"].update(fenceState=UNFENCED)
    )
    assert "is gone" in meanwhile(lambda cluster, found: cluster.remove(found))
    assert "was replaced by another one" in meanwhile(
        lambda cluster, found: cluster.add(item(state=FENCED))
    )
    deleting = meanwhile(
        lambda cluster, found: found["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z")
    )
    assert "is being deleted" in deleting and "leaves its entries" in deleting
    assert "other ranges now" in meanwhile(
        lambda cluster, found: found["spec"].update(cidrs=["10.0.0.2/32"])
    )


def test_the_modules_deadline_ends_the_wait() -> None:
    cluster = FakeCluster(item(), seconds=0.2)
    with pytest.raises(ActionFailed, match="did not say"):
        nf.fence(cluster, only(cluster), 600, lambda _seconds: None)  # type: ignore[arg-type]
