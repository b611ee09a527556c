# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_fence on an API server in memory: what it writes and in which order, and what a run that was
killed leaves to the next one.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    run,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import network_fence
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.lease import RunLease
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    Ledger,
    Ledgers,
    parse_ledger,
    run_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.runbook import (
    PROOF as PROVE,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.runbook import (
    SCOPE,
    Fence,
    fence_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import KubeError
from ansible_collections.storage_ops.runbooks.plugins.modules import volume_failover
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster, Slow
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    blocked,
    image,
    watcher,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import (
    Module as Returned,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
NODE = "/api/v1/nodes/a"
CONFIG_MAP = "/api/v1/namespaces/storage-ops/configmaps/storage-ops-fence-a"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/storage-ops/leases/storage-ops-fence-a"
FENCE = f"{network_fence.FENCES}/storage-ops-a"


class Killed(BaseException):
    """kill -9: nothing of ours runs after it."""


class Module(Returned):
    """With what the tests ask of a result."""

    @property
    def failed(self) -> bool:
        return bool(self.result["failed"])

    @property
    def done(self) -> list[str]:
        return [f"{action['action']} {action['outcome']}" for action in self.result["actions"]]


@pytest.fixture
def cluster() -> FakeCluster:
    """Node a is lost, and has the volume v; node b is healthy."""

    def node(name: str, address: str, ready: str) -> dict[str, Any]:
        since = f"{NOW - timedelta(seconds=300):%Y-%m-%dT%H:%M:%SZ}"
        status = {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
            "addresses": [{"type": "InternalIP", "address": address}],
            "nodeInfo": {"bootID": "boot-1"},
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {},
            "status": status,
        }

    csi = {
        "driver": "rbd.csi.ceph.com",
        "volumeHandle": "h",
        "volumeAttributes": {"clusterID": "c1"},
    }
    cluster = FakeCluster(
        node("a", "10.0.0.5", "Unknown"),
        node("b", "10.0.0.6", "True"),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {"csi": csi},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": "va"},
            "spec": {
                "attacher": "rbd.csi.ceph.com",
                "nodeName": "a",
                "source": {"persistentVolumeName": "v"},
            },
            "status": {"attached": True},
        },
    )
    cluster.clock = lambda: NOW
    return cluster


def ceph(*images: dict[str, Any], blocklist: Any = ()) -> dict[str, Any]:
    found = {
        "fsid": "f1",
        "read_at": "2026-01-01T12:00:00Z",
        "observations": 3,
        "seconds": 61.0,
        "families": ["IPv4"],
        "blocklist": list(blocklist),
    }
    return {**found, "images": list(images)}


HELD = ceph(image(watchers=[watcher()]))
PROOF = ceph(image(), blocklist=[blocked("10.0.0.5")])


def params(**given: Any) -> dict[str, Any]:
    defaults = {name: spec.get("default") for name, spec in SCOPE.options.items()}
    shared = {
        "node": "a",
        "run_id": "r1",
        "ledger_namespace": "storage-ops",
        "lease_seconds": 180.0,
        "lease_timeout": 0.0,
        "fence": None,
    }
    return {**defaults, **shared, "state": "intended", "ceph": HELD, **given}


def fence(
    cluster: FakeCluster,
    check: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    **given: Any,
) -> Module:
    """As the module's main() does it."""
    options, module = params(**given), Module(check)
    shared = run_options(options, check)
    made = Fence(
        cluster,
        shared,
        fence_options(options, shared, check),
        options["state"],
        options["fence_timeout"],
        sleep,
    )  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        run(module, lambda: made, fail_on_refusal=True)
    return module


def traces(cluster: FakeCluster) -> list[str]:
    """What of us is to be seen."""
    node = cluster.objects[NODE]
    found = ["cordon"] if node["spec"].get("unschedulable") else []
    found += ["annotation"] if ANNOTATION in (node["metadata"].get("annotations") or {}) else []
    return found + [
        name
        for name, where in (("ledger", CONFIG_MAP), ("lease", LEASE))
        if where in cluster.objects
    ]


ALL = ["cordon", "annotation", "ledger", "lease"]


def ledger_of(cluster: FakeCluster) -> Ledger:
    return parse_ledger(cluster.objects[CONFIG_MAP]["data"]["ledger"], "")


def changes(cluster: FakeCluster) -> list[str]:
    return [
        request
        for request in cluster.requests
        if request.split()[0] not in ("get", "list") and "leases" not in request
    ]


def test_the_ledger_is_written_first_and_the_fence_noted_once_it_is_proven(
    cluster: FakeCluster,
) -> None:
    begun = fence(cluster)
    assert begun.done == ["write_fence_ledger done", "cordon_node done"] and not begun.failed
    assert changes(cluster) == [
        f"create {CONFIG_MAP.rsplit('/', 1)[0]}",
        f"patch {NODE}",
        f"patch {NODE}",
    ]
    assert traces(cluster) == ALL
    assert (
        begun.result["fence"]["entries"][0]["entry"] == "10.0.0.5"
        and begun.result["fence"]["cordoned"]
    )
    assert "the node is cordoned" in begun.result["findings"][0]["evidence"]["proof"]
    again = fence(cluster)
    assert not again.result["changed"] and again.result["fence"] == begun.result["fence"]
    assert (
        again.result["msg"]
        == "nothing to do: the fence of node a is intended already (method ceph)"
    )
    proven = fence(cluster, state="fenced", ceph=PROOF)
    assert proven.done == ["record_fence done"] and proven.result["fence"]["phase"] == "fenced"
    cluster.requests.clear()
    assert (
        not fence(cluster, state="fenced", ceph=PROOF).result["changed"]
        and not fence(cluster).result["changed"]
    )
    assert changes(cluster) == []


def prove_and_detach(
    cluster: FakeCluster, patch: pytest.MonkeyPatch, read: dict[str, Any], **given: Any
) -> Module:
    """By the one task of volume_failover."""
    module = Module()

    def made(argument_spec: dict[str, Any], **_more: Any) -> Module:
        options = {name: spec.get("default") for name, spec in argument_spec.items()}
        prove = {name: spec.get("default") for name, spec in PROVE.items()}
        shared = {**params(), "state": "detached", "ceph": None, "release_lease": False, **given}
        shared = {name: value for name, value in shared.items() if name in options}
        module.params = {**options, **shared, "prove": {**prove, "ceph": read}}
        module.no_log_values = set()
        return module

    patch.setattr(volume_failover, "AnsibleModule", made)
    patch.setattr(volume_failover, "make_cluster", lambda _params: cluster)
    with pytest.raises(SystemExit):
        volume_failover.main()
    return module


def test_nothing_is_detached_if_the_proof_is_refused(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = fence(cluster)
    cluster.requests.clear()
    held = ceph(image(watchers=[watcher()]), blocklist=[blocked("10.0.0.5")])
    refused = prove_and_detach(cluster, monkeypatch, held)
    assert (refused.failed, refused.result["code"]) == (True, "ceph_watcher_left")
    assert changes(cluster) == [] and ledger_of(cluster).to_dict() == begun.result["fence"]
    # Nobody has to wait for the Lease.
    assert traces(cluster) == ["cordon", "annotation", "ledger"]
    assert "proven" not in refused.result


def test_what_was_proven_is_told_whatever_becomes_of_the_volumes(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, there is no controller that detaches."""
    fence(cluster)
    late = prove_and_detach(cluster, monkeypatch, PROOF, detach_timeout=1.0)
    assert (late.failed, late.result["code"]) == (True, "not_detached")
    proven = late.result["proven"]
    assert [action["action"] for action in proven["actions"]] == ["record_fence"]
    assert proven["findings"][0]["verdict"] == "repair" and proven["fence"]["phase"] == "fenced"
    assert ledger_of(cluster).phase == "fenced" and traces(cluster) == ALL


def test_what_could_not_be_detached_is_not_proven(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence(cluster)
    cluster.requests.clear()
    wrong = prove_and_detach(cluster, monkeypatch, PROOF, detach_timeout=0.0)
    assert wrong.failed and "detach_timeout is 0" in wrong.result["msg"]
    # What proves the fence is older than what says that it holds.
    now = {**PROOF, "read_at": "2026-01-01T12:02:01Z"}
    old = prove_and_detach(cluster, monkeypatch, PROOF, ceph=now)
    assert (old.failed, old.result["code"]) == (True, "ceph_reading_unfit")
    assert changes(cluster) == [] and ledger_of(cluster).phase == "intended"


def test_check_mode_tries_it_and_hands_on_what_would_be(cluster: FakeCluster) -> None:
    begun = fence(cluster, check=True)
    assert (
        begun.done == ["write_fence_ledger planned", "cordon_node planned"]
        and begun.result["changed"]
    )
    assert (
        all(request.endswith("(dry run)") for request in changes(cluster))
        and len(changes(cluster)) == 3
    )
    proven = fence(cluster, check=True, state="fenced", fence=begun.result["fence"])
    assert proven.done == ["record_fence planned"] and proven.result["fence"]["phase"] == "fenced"
    assert traces(cluster) == []


def leave(cluster: FakeCluster, seconds: float) -> None:
    """Of the time there was, so many seconds are left."""
    cluster.deadline = Deadline(seconds, lambda: 0.0)


def test_with_too_little_time_nothing_is_begun(cluster: FakeCluster) -> None:
    leave(cluster, 29)
    module = fence(cluster)
    assert (module.failed, module.result["code"]) == (True, "deadline_passed")
    assert "less than 30 s are left of the deadline" in module.result["msg"]
    assert module.done == ["write_fence_ledger skipped", "cordon_node skipped"]
    assert changes(cluster) == [] and traces(cluster) == []
    leave(cluster, 30)
    assert not fence(cluster).failed
    leave(cluster, 29)
    assert fence(cluster, state="fenced", ceph=PROOF).done == ["record_fence skipped"]
    assert ledger_of(cluster).phase == "intended"


def test_an_intent_whose_time_is_over_half_way_is_taken_back(cluster: FakeCluster) -> None:
    def before(verb: str, path: str) -> None:
        if (verb, path) == ("patch", NODE):
            leave(cluster, 29)

    cluster.before = before
    module = fence(cluster)
    assert (module.failed, module.result["code"]) == (True, "deadline_passed")
    assert module.done == [
        "write_fence_ledger done",
        "cordon_node skipped",
        "remove_fence_ledger done",
    ]
    assert traces(cluster) == []


def test_a_refusal_leaves_nothing(cluster: FakeCluster) -> None:
    for check in (True, False):
        module = fence(cluster, check, ceph=ceph(image()))
        assert (
            module.failed
            and not module.result["changed"]
            and module.done == []
            and module.result["fence"] == {}
        )
        assert "it is unknown from which address" in module.result["msg"]
        assert traces(cluster) == []


def test_a_node_that_is_back_at_the_last_moment(cluster: FakeCluster) -> None:
    def back(verb: str, where: str) -> None:
        # Right before the ledger is written.
        if verb == "patch" and where == LEASE:
            cluster.objects[NODE]["status"]["conditions"][0]["status"] = "True"

    fence(cluster)
    intent = cluster.objects[CONFIG_MAP]["data"]
    cluster.before = back
    module = fence(cluster, state="fenced", ceph=PROOF)
    assert module.failed and module.done == []
    assert (
        "is Ready" in module.result["msg"] and "which stays: give it back" in module.result["msg"]
    )
    assert cluster.objects[CONFIG_MAP]["data"] == intent and traces(cluster) == [
        "cordon",
        "annotation",
        "ledger",
    ]


def test_a_node_that_is_back_between_ledger_and_cordon(cluster: FakeCluster) -> None:
    def back(verb: str, where: str) -> None:
        if (verb, where) == ("patch", NODE):
            cluster.objects[NODE]["status"]["conditions"][0]["status"] = "True"

    cluster.before = back
    module = fence(cluster)
    assert module.failed and "is Ready" in module.result["msg"]
    assert module.done == [
        "write_fence_ledger done",
        "cordon_node skipped",
        "remove_fence_ledger done",
    ]
    assert traces(cluster) == []


@pytest.mark.parametrize("change", ["uid", "bootID"])
def test_a_node_that_is_another_one_between_ledger_and_cordon(
    cluster: FakeCluster, change: str
) -> None:
    """Created again under its name, or booted: what was judged is not what would be fenced."""

    def another(verb: str, where: str) -> None:
        if (verb, where) == ("get", NODE) and CONFIG_MAP in cluster.objects:
            item = cluster.objects[NODE]
            part = item["metadata"] if change == "uid" else item["status"]["nodeInfo"]
            part[change] = "another"

    cluster.before = another
    module = fence(cluster)
    assert module.failed and module.result["code"] == "identity_changed", module.result["msg"]
    assert "cordon_node skipped" in module.done
    assert "cordon" not in traces(cluster)


def test_what_fails_half_way_is_taken_back(cluster: FakeCluster) -> None:
    def fail(verb: str, where: str) -> None:
        if (verb, where) == ("patch", NODE) and ANNOTATION in cluster.objects[NODE]["metadata"].get(
            "annotations", {}
        ):
            cluster.before = lambda verb, where: None
            # Done all the same, but nobody knows.
            cluster.objects[NODE]["spec"]["unschedulable"] = True
            raise KubeError("the answer was lost")

    cluster.before = fail
    module = fence(cluster)
    assert module.failed and "the answer was lost" in module.result["msg"]
    assert module.done == [
        "write_fence_ledger done",
        "cordon_node failed",
        "uncordon_node done",
        "remove_fence_ledger done",
    ]
    assert traces(cluster) == []


@pytest.mark.parametrize("state", ["intended", "fenced", "again"])
def test_killed_before_any_request(cluster: FakeCluster, state: str) -> None:
    """The next run, once the Lease of this one has run out, comes to the same ledger, and to one
    cordon that is noted as ours.
    """

    number = 0
    while True:
        number += 1
        fresh = FakeCluster(
            *[item for where, item in cluster.objects.items() if where not in (CONFIG_MAP, LEASE)]
        )
        fresh.clock = cluster.clock
        if state != "intended":
            assert not fence(fresh, run_id="killed").failed
        if state == "again":
            # It was given back by half, and has booted.
            Ledgers(fresh, "storage-ops").write(ledger_of(fresh)._replace(phase="releasing"))  # type: ignore[arg-type]
            fresh.objects[NODE]["status"]["nodeInfo"]["bootID"] = "boot-2"
            fresh.objects[NODE]["spec"].pop("unschedulable")
        left = number

        def kill(verb: str, where: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        fresh.before = kill
        try:
            step = "fenced" if state == "fenced" else "intended"
            fence(fresh, state=step, ceph=PROOF if state == "fenced" else HELD, run_id="killed")
        except Killed:
            pass
        else:
            break
        fresh.before = lambda verb, where: None
        if LEASE in fresh.objects:
            assert fence(fresh, run_id="next").failed
            fresh.objects[LEASE]["spec"]["renewTime"] = "2026-01-01T11:00:00.000000Z"
        for step, read in (("intended", HELD), ("fenced", PROOF)):
            module = fence(fresh, state=step, ceph=read, run_id="next")
            assert not module.failed, (number, module.result["msg"])
        assert traces(fresh) == ALL
        ledger = ledger_of(fresh)
        assert (ledger.phase, ledger.cordoned, [entry.ours for entry in ledger.entries]) == (
            "fenced",
            True,
            [True],
        )
        assert ledger.boot_id == ("boot-2" if state == "again" else "boot-1")
        assert fresh.objects[NODE]["metadata"]["annotations"][ANNOTATION] == ledger.text
    # At least the Lease, what was read, and the writes.
    assert number > 10


def test_a_note_that_was_deleted_is_written_again(cluster: FakeCluster) -> None:
    fence(cluster)
    del cluster.objects[NODE]["metadata"]["annotations"][ANNOTATION]
    module = fence(cluster)
    assert module.done == ["write_fence_ledger done"] and not module.failed, module.result["msg"]
    assert traces(cluster) == ALL
    assert cluster.objects[NODE]["metadata"]["annotations"][ANNOTATION] == ledger_of(cluster).text


def test_a_run_that_was_away_does_nothing_to_ceph(cluster: FakeCluster) -> None:
    def hold(run_id: str = "r1") -> Module:
        return fence(cluster, state="held", run_id=run_id)

    fence(cluster)
    cluster.requests.clear()
    held = hold()
    assert not held.failed and held.result["findings"] == [] and not held.result["changed"]
    assert f"patch {LEASE}" in cluster.requests and changes(cluster) == []
    assert held.result["fence"] == ledger_of(cluster).to_dict() and held.result["alone"]
    assert "run r1 has its Lease for 180 s more" in held.result["msg"]
    late = hold("late")
    assert late.result["code"] == "lease_lost" and "run r1 has it now" in late.result["msg"]
    assert traces(cluster) == ALL
    status = cluster.objects[NODE]["status"]
    status["nodeInfo"]["bootID"] = "boot-2"
    booted = hold()
    assert booted.result["code"] == "node_rebooted" and "was booted" in booted.result["msg"]
    # What failed ends its run, so no other run waits for its Lease; and it cannot go on.
    assert traces(cluster) == [name for name in ALL if name != "lease"]
    gone = hold()
    assert gone.result["code"] == "lease_lost" and "it was deleted" in gone.result["msg"]
    lease = RunLease(cluster, "storage-ops", "a", "r1", 180)  # type: ignore[arg-type]
    lease.take(0)
    status["conditions"][0]["status"] = "True"
    assert "is Ready" in hold().result["msg"]


def test_check_mode_holds_nothing(cluster: FakeCluster) -> None:
    planned = fence(cluster, check=True).result["fence"]
    cluster.requests.clear()
    held = fence(cluster, check=True, state="held", fence=planned)
    assert not held.failed and held.result["fence"] == planned and changes(cluster) == []
    assert "check mode" in held.result["msg"] and "lease" not in traces(cluster)


def test_two_runs(cluster: FakeCluster) -> None:
    fence(cluster, run_id="one")
    for check in (True, False):
        other = fence(cluster, check, run_id="two")
        assert other.failed and "another run (one) is working on node a" in other.result["msg"]
        # The role waits for that, in the rehearsal and for real.
        assert other.result["code"] == "lease_held"
    assert cluster.objects[LEASE]["spec"]["holderIdentity"] == "one"
    lease = RunLease(cluster, "storage-ops", "a", "one", 180)  # type: ignore[arg-type]
    lease.release(dry_run=True)
    assert LEASE in cluster.objects
    lease.release()
    assert not fence(cluster, run_id="two").failed


def test_a_lease_that_is_lost_meanwhile(cluster: FakeCluster) -> None:
    def steal(verb: str, where: str) -> None:
        # Renewed before anything is written.
        if verb == "get" and where == LEASE and LEASE in cluster.objects:
            cluster.objects[LEASE]["spec"]["holderIdentity"] = "two"

    cluster.before = steal
    module = fence(cluster)
    assert module.failed and module.done == [] and "run two has it now" in module.result["msg"]
    assert module.result["code"] == "lease_lost"
    assert traces(cluster) == ["lease"]


def taken_over(cluster: FakeCluster) -> Callable[[], None]:
    """Another run has the Lease once that of this one is over."""
    return RunLease(cluster, "storage-ops", "a", "two", 180.0).take  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_late_run_changes_nothing(cluster: FakeCluster, nth: int) -> None:
    """Its reads were tried again for longer than its Lease lasts. Another run had released the node
    meanwhile, and it was cordoned again.
    """
    slow = Slow(cluster, ("get", NODE), nth=nth, meanwhile=lambda: taken_over(cluster)(0.0))  # type: ignore[call-arg]
    # The look at the node alone takes longer than the Lease is used.
    slow.seconds = 200.0
    module = fence(cluster)
    assert (module.failed, module.result["code"]) == (True, "lease_lost"), module.result["msg"]
    # What was written under the Lease cannot be taken back any more.
    assert traces(cluster) == (["lease"] if nth == 1 else ["annotation", "ledger", "lease"])
    assert cluster.objects[LEASE]["spec"]["holderIdentity"] == "two"


def test_a_late_run_sets_no_network_fence_to_fenced(cluster: FakeCluster) -> None:
    with_network_fence(cluster)
    fence(cluster, ceph=None)
    slow = Slow(cluster, ("get", NODE), nth=2, meanwhile=lambda: taken_over(cluster)(0.0))  # type: ignore[call-arg]
    slow.seconds = 200.0
    module = fence(cluster, state="fenced", ceph=None)
    assert (module.failed, module.result["code"]) == (True, "lease_lost"), module.result["msg"]
    assert cluster.objects[FENCE]["spec"]["fenceState"] == "Unfenced"


def test_held_has_the_whole_lease_once_all_is_read(cluster: FakeCluster) -> None:
    """What follows in Ceph knows no Lease, so its time begins after the last look."""
    fence(cluster)
    slow = Slow(cluster, ("get", NODE), nth=0)
    assert not fence(cluster, state="held").failed
    renewed = cluster.objects[LEASE]["spec"]["renewTime"]
    assert slow.passed == 110.0 and renewed.startswith("2026-01-01T12:01:50")


def test_a_ledger_that_cannot_be_read(cluster: FakeCluster) -> None:
    fence(cluster)
    cluster.objects[CONFIG_MAP]["data"]["ledger"] = "{}"
    module = fence(cluster)
    assert module.failed and "cannot be read" in module.result["msg"] and module.done == []
    assert module.result["code"] == "ledger_unreadable"


@pytest.mark.parametrize("text", ["x", "{}", "\x00", "9" * 200_000])
def test_no_kubelet_keeps_its_node_from_being_fenced(cluster: FakeCluster, text: str) -> None:
    cluster.objects[NODE]["metadata"]["annotations"] = {ANNOTATION: text}
    module = fence(cluster)
    assert not module.failed and traces(cluster) == ALL, module.result["msg"]
    assert cluster.objects[NODE]["metadata"]["annotations"][ANNOTATION] == ledger_of(cluster).text


# NetworkFences


def with_network_fence(cluster: FakeCluster) -> Callable[[float], None]:
    """A NetworkFence for node a, and CSI-Addons, which is at work while we sleep."""
    made = {
        "apiVersion": network_fence.GROUP,
        "kind": "NetworkFence",
        "metadata": {
            "name": "storage-ops-a",
            "annotations": {network_fence.ADDRESSES_FROM: network_fence.OPTION},
        },
        "spec": {
            "driver": "rbd.csi.ceph.com",
            "parameters": {"clusterID": "c1"},
            "cidrs": ["10.0.0.5/32"],
            "fenceState": "Unfenced",
        },
        "status": {"result": "Succeeded", "message": "unfencing operation successful"},
    }
    cluster.add(made)

    def work(_seconds: float) -> None:
        found = cluster.objects[FENCE]
        found["status"] = {
            "result": "Succeeded",
            "message": network_fence.MESSAGES[found["spec"]["fenceState"]],
        }

    return work


def test_a_network_fence_is_patched_and_awaited(cluster: FakeCluster) -> None:
    work = with_network_fence(cluster)
    begun = fence(cluster, ceph=None)
    assert begun.result["fence"]["method"] == "network_fence"
    first = fence(cluster, state="fenced", ceph=None, proof="ceph", sleep=work)
    assert first.done == ["fence_network done"] and first.result["fence"]["phase"] == "intended"
    second = fence(cluster, state="fenced", ceph=PROOF, proof="ceph")
    assert second.done == ["record_fence done"] and not second.result["fence"]["unverified"]
    assert not fence(cluster, state="fenced", ceph=PROOF, proof="ceph").result["changed"]


def test_a_network_fence_that_stays_silent(cluster: FakeCluster) -> None:
    with_network_fence(cluster)
    fence(cluster, ceph=None)
    module = fence(cluster, state="fenced", ceph=None, fence_timeout=1.0)
    assert module.failed and module.done == ["fence_network failed", "record_fence skipped"]
    assert cluster.objects[FENCE]["spec"]["fenceState"] == "Fenced"
    assert parse_ledger(cluster.objects[CONFIG_MAP]["data"]["ledger"], "").phase == "intended"
    assert traces(cluster) == ["cordon", "annotation", "ledger"]


# options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"expiry_seconds": 604_799.0},
            "expiry_seconds is 604799; give at least 604800",
        ),
        ({"grace_seconds": float("nan")}, "grace_seconds is nan"),
        ({"fence_timeout": float("inf")}, "fence_timeout is inf"),
        ({"expiry_seconds": float("inf")}, "expiry_seconds is inf"),
        (
            {"fence_addresses": ["node-a"]},
            "fence_addresses has 'node-a', which is not an IP address",
        ),
        ({"fence_addresses": ["10.0.0.0/24"]}, "which is not an IP address"),
        ({"protected_addresses": ["10.0.0.0/240"]}, "protected_addresses has '10.0.0.0/240'"),
        ({"ceph": {"fsid": "f1"}}, "ceph.read_at is missing"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    options = params(**given)
    with pytest.raises(StorageOpsError) as error:
        fence_options(options, run_options(options, False), False)
    assert said in str(error.value)


def test_addresses_are_normalised() -> None:
    options = params(fence_addresses=["FD00:0::5", "::ffff:10.0.0.5", "10.0.0.5"])
    assert fence_options(options, run_options(options, False), False).fence_addresses == (
        "fd00::5",
        "10.0.0.5",
    )
    options = params(protected_addresses=["10.0.0.7/24", "::ffff:10.1.0.0/112"])
    protected = fence_options(options, run_options(options, False), False).protected
    assert [str(network) for network in protected] == ["10.0.0.0/24", "10.1.0.0/16"]


def test_an_error_is_no_network_fence(cluster: FakeCluster) -> None:
    """A right that is missing ends the run before anything is written, and gives the Lease back."""

    def forbid(verb: str, where: str) -> None:
        if where == "/apis":
            raise ActionFailed("no right")

    cluster.before = forbid
    assert fence(cluster).failed and traces(cluster) == []


def test_what_was_called_off_hides_nothing_that_is_open_from_a_fence_in_ceph(
    cluster: FakeCluster,
) -> None:
    """Kubernetes has detached w by force, and the node calls it in use still."""
    csi = {"driver": "rbd.csi.ceph.com", "volumeHandle": "hw", "volumeAttributes": {}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "w"}}
    cluster.add({**volume, "spec": {"csi": csi}})
    cluster.objects[NODE]["status"]["volumesInUse"] = ["kubernetes.io/csi/rbd.csi.ceph.com^hw"]
    word = {"method": "none", "node_confirmed_off": True, "ceph": None}
    for step in ("intended", "fenced", "intended"):
        assert not fence(cluster, state=step, **word).failed
    ledger = ledger_of(cluster)
    assert (ledger.phase, ledger.volumes) == ("fenced", ("v", "w"))
    # What is read of Ceph is what node_fence_info shows, which takes w for fenced.
    result = fence(cluster, method="ceph", volumes=["v"]).result
    left = [(found["object"]["name"], found["code"]) for found in result["findings"][1:]]
    assert left == [("w", "ceph_not_read")] and "w is left out of the fence" in str(result)
    assert (ledger_of(cluster).method, ledger_of(cluster).volumes) == ("ceph", ("v",))
    # From then on it is shown, and judged as what is new.
    short = {**ceph(image(), image("w")), "observations": 2, "seconds": 5.0}
    again = fence(cluster, method="ceph", volumes=["v", "w"], ceph=short)
    assert again.failed and again.result["code"] == "observation_too_short"
    assert not fence(cluster, method="ceph", volumes=["v"], ceph=short).failed
