# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NetworkFences through the real CSI-Addons, which fences on a real Ceph: made ahead, flipped,
awaited, and what can go wrong.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes.addons.addons import FENCES, GROUP, Addons
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.node import Outcome

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    NotStarted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import network_fence
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    FENCED,
    MESSAGES,
    UNFENCED,
    NetworkFence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Cluster
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    make_cluster,
)

RBAC = Path(__file__).parents[2] / "playbooks/files/rbac-fence.yml"
AUDITOR = RBAC.with_name("rbac-audit.yml")
# What prepare_network_fences takes, too.
PREPARING = (RBAC, RBAC.with_name("rbac-fence-prepare.yml"))
ADDRESS = ADDRESSES[NODE_A]
RANGE = f"{ADDRESS}/32"
# As Ceph spells a range of one address.
ENTRY = f"cidr:{ADDRESS}:0/32"


@pytest.fixture
def api(failover_current: Failover) -> Cluster:
    """The API server, as the collection's modules talk to it."""
    kubeconfig = str(failover_current.cluster.kubeconfig(RBAC))
    return make_cluster(
        {
            **dict.fromkeys(AUTH.options),
            "kubeconfig": kubeconfig,
            "request_timeout": 10,
            "deadline": 120,
        }
    )


def find(api: Cluster, name: str) -> NetworkFence:
    """A NetworkFence as the collection sees it."""
    found = network_fence.list_fences(api)
    assert found is not None
    return next(fence for fence in found if fence.name == name)


def test_a_cluster_without_csi_addons_has_none(failover_current: Failover, api: Cluster) -> None:
    assert network_fence.list_fences(api) is None
    options = {"user": PREPARING, "network_fence_class": "ceph"}
    answer = failover_current.cluster.ansible("network_fence_prepare", **options)
    assert answer.failed and "install CSI-Addons" in answer.msg, answer


def test_a_cluster_with_other_csi_addons(failover_current: Failover, api: Cluster) -> None:
    """The API server has no list of NetworkFences, and says so where it says what it has."""
    cluster = failover_current.cluster
    group, version = GROUP.split("/")
    names = {"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [served]}
    cluster.api.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"others.{group}"},
            "spec": spec,
        }
    )
    cluster.wait(lambda: cluster.api.get(f"/apis/{GROUP}"), "the group is served")
    assert network_fence.list_fences(api) is None
    seen = cluster.ansible("cluster_storage_info", user=AUDITOR, controls=["STOR-16"])
    assert not seen.failed and "not_assessed" not in seen.result, seen.msg
    cluster.used("rbac-fence.yml", "get /apis/csiaddons.openshift.io/v1alpha1")
    cluster.used("rbac-audit.yml", "get /apis/csiaddons.openshift.io/v1alpha1")


@pytest.mark.smoke
def test_a_fence_stops_the_writer_and_its_release_leaves_nothing(
    failover_current: Failover, addons: Addons, api: Cluster
) -> None:
    writer, storage = failover_current.writer, failover_current.storage
    addons.create("a", RANGE)
    prepared = find(api, "a")
    assert prepared.settled and prepared.state == UNFENCED
    assert network_fence.covered(prepared, [ADDRESS, ADDRESSES[NODE_B]]) == [ADDRESS]
    assert failover_current.watches() and not writer.error

    fenced = network_fence.fence(api, prepared, 30)
    assert fenced.settled and fenced.state == FENCED and fenced.message == MESSAGES[FENCED]
    assert storage.entries() == {ENTRY}
    failover_current.cluster.wait(lambda: writer.error, "the writer has an error", 10)
    assert not failover_current.watches()
    last = failover_current.content()
    assert network_fence.fence(api, fenced, 30) == fenced

    # What a controller does that comes back: the fence holds.
    addons.stop_manager()
    addons.start_manager()
    time.sleep(3)
    assert storage.entries() == {ENTRY}
    assert failover_current.content() == last

    unfenced = network_fence.unfence(api, fenced, 30)
    assert (
        unfenced.settled and unfenced.state == UNFENCED and unfenced.message == MESSAGES[UNFENCED]
    )
    assert not storage.entries()
    # Why a fence is not released before the old client is gone: it has no exclusive lock, and goes
    # on.
    failover_current.cluster.wait(
        lambda: failover_current.content() > last, "the writer writes again", 20
    )


def test_deleting_a_fence_takes_nothing_away_but_making_one_does(
    failover_current: Failover, addons: Addons
) -> None:
    """Why none is ever deleted to unfence, and none is made where something is fenced."""
    storage = failover_current.storage
    body = addons.body("a", RANGE)
    del body["spec"]["fenceState"]
    failover_current.api.call("POST", FENCES, body)
    failover_current.cluster.wait(
        lambda: storage.entries() == {ENTRY}, "who does not say Unfenced fences", 20
    )
    failover_current.api.delete(f"{FENCES}/a")
    failover_current.cluster.wait(
        lambda: failover_current.api.get(f"{FENCES}/a") is None, "the fence is deleted", 20
    )
    assert storage.entries() == {ENTRY}

    addons.create("b", RANGE)
    assert not storage.entries()
    # And so does a controller that starts.
    addons.stop_manager()
    storage.ceph.run("osd", "blocklist", "range", "add", RANGE, "3600")
    assert storage.entries() == {ENTRY}
    addons.start_manager()
    failover_current.cluster.wait(lambda: not storage.entries(), "the controller has unfenced", 20)


def test_a_driver_that_fails_or_says_nothing_proves_nothing(
    failover_current: Failover, addons: Addons, api: Cluster
) -> None:
    storage = failover_current.storage
    addons.create("a", RANGE)
    addons.fail("rados: permission denied")
    with pytest.raises(
        ActionFailed, match=r"Failed: .*rados: permission denied.*goes on trying"
    ) as caught:
        network_fence.fence(api, find(api, "a"), 40)
    assert not isinstance(caught.value, NotStarted)
    assert not storage.entries() and not failover_current.writer.error
    addons.heal()
    # The failure that stands there is not taken for an answer to the next question.
    assert network_fence.fence(api, find(api, "a"), 40).settled
    assert storage.entries() == {ENTRY}
    assert network_fence.unfence(api, find(api, "a"), 40).settled

    addons.pause()
    with pytest.raises(
        ActionFailed,
        match="'fencing operation successful'. It says Succeeded: unfencing operation successful",
    ):
        network_fence.fence(api, find(api, "a"), 3)
    assert not storage.entries()
    addons.resume()
    assert network_fence.fence(api, find(api, "a"), 40).settled


def test_a_fence_that_is_replaced_or_deleted_meanwhile(
    failover_current: Failover, addons: Addons, api: Cluster
) -> None:
    addons.create("a", RANGE)
    old = find(api, "a")
    failover_current.api.delete(f"{FENCES}/a")
    failover_current.cluster.wait(
        lambda: failover_current.api.get(f"{FENCES}/a") is None, "the fence is deleted", 20
    )
    with pytest.raises(NotStarted, match="is gone"):
        network_fence.fence(api, old, 10)
    addons.create("a", RANGE)
    with pytest.raises(NotStarted, match="was replaced by another one"):
        network_fence.fence(api, old, 10)
    assert not failover_current.storage.entries()

    # Deleted while its fencing is awaited: the finalizer keeps it for as long as the controller is
    # away.
    addons.stop_manager()
    new = find(api, "a")

    def delete(_seconds: float) -> None:
        failover_current.api.delete(f"{FENCES}/a")

    with pytest.raises(ActionFailed, match="is being deleted"):
        network_fence.fence(api, new, 10, sleep=delete)


def test_a_message_that_proves_nothing(
    failover_current: Failover, addons: Addons, api: Cluster
) -> None:
    """CSI-Addons 0.5 wrote the message of a fencing for both operations; this controller's status
    is patched to look like that.
    """
    addons.create("a", RANGE)
    addons.stop_manager()
    failover_current.api.merge(f"{FENCES}/a/status", {"status": {"message": MESSAGES[FENCED]}})
    found = find(api, "a")
    assert not found.settled
    with pytest.raises(NotStarted, match="one message for both"):
        network_fence.fence(api, found, 10)
    assert find(api, "a").state == UNFENCED

    failover_current.api.merge(f"{FENCES}/a", {"spec": {"fenceState": FENCED}})
    assert find(api, "a").settled, "only its message says so, and it is the old one"
    with pytest.raises(ActionFailed, match="one message for both"):
        network_fence.unfence(api, find(api, "a"), 2)


def prepare(failover: Failover, addons: Addons, check: bool = False, **options: Any) -> Outcome:
    """Run the module with the rights that are shipped for it."""
    if "network_fence_class" not in options:
        secret = {f"secret_{key}": value for key, value in addons.secret.items()}
        options = {
            "driver": addons.driver,
            "cluster_id": failover.storage.ceph.fsid,
            **secret,
            **options,
        }
    return failover.cluster.ansible("network_fence_prepare", check=check, user=PREPARING, **options)


def test_prepare_nodes(failover_current: Failover, addons: Addons) -> None:
    names = [f"storage-ops-{name}" for name in ADDRESSES]
    reading = failover_current.storage.ansible("rbd_watcher_info", images=[]).result["ceph"]
    planned = prepare(failover_current, addons, check=True, ceph=reading)
    assert planned.changed and [action["outcome"] for action in planned.result["actions"]] == [
        "planned",
        "planned",
    ], planned
    assert not failover_current.api.call("GET", FENCES)["items"]

    made = prepare(failover_current, addons, ceph=reading)
    assert made.changed and not made.failed, made
    assert [action["target"] for action in made.result["actions"]] == names
    for finding, address in zip(made.findings, ADDRESSES.values(), strict=True):
        assert finding["evidence"]["proof"][0].endswith(
            "is Unfenced and says 'unfencing operation successful'"
        ), finding
        assert finding["evidence"]["cidrs"] == [f"{address}/32"]
    spec = addons.get(names[0])["spec"]
    assert (spec["fenceState"], spec["cidrs"], spec["driver"]) == (UNFENCED, [RANGE], addons.driver)
    assert not failover_current.storage.entries()

    for check in (True, False):
        again = prepare(failover_current, addons, check=check)
        assert (
            not again.changed
            and not again.findings
            and "2 nodes, each with a NetworkFence" in again.msg
        ), again


@pytest.mark.variation
def test_prepare_by_a_class_with_the_addresses_that_the_driver_reports(
    failover_current: Failover, addons: Addons
) -> None:
    addons.stop()
    other = Addons(
        failover_current.cluster.plane,
        failover_current.storage.ceph,
        clients={NODE_A: ("127.0.1.11/32",)},
    )
    with other:
        other.make_class("ceph")
        unread = prepare(failover_current, other, network_fence_class="ceph", nodes=[NODE_A])
        assert unread.failed and unread.result["code"] == "ceph_not_read", unread
        reading = failover_current.storage.ansible("rbd_watcher_info", images=[]).result["ceph"]
        made = prepare(
            failover_current, other, network_fence_class="ceph", nodes=[NODE_A], ceph=reading
        )
        (finding,) = made.findings
        assert finding["evidence"]["cidrs"] == ["127.0.1.11/32"] and finding["evidence"][
            "addresses_from"
        ].startswith("its CSIAddonsNode; the node itself"), made
        assert "Ceph itself was not read" not in finding["evidence"]["proof"][0]
        spec = other.get(f"storage-ops-{NODE_A}")["spec"]
        assert (spec["networkFenceClassName"], spec["fenceState"]) == ("ceph", UNFENCED)
        assert not prepare(
            failover_current, other, network_fence_class="ceph", nodes=[NODE_A]
        ).changed
        unknown = prepare(failover_current, other, network_fence_class="no")
        assert unknown.failed and "no NetworkFenceClass no; there are ceph" in unknown.msg


@pytest.mark.variation
def test_prepare_refuses_where_something_may_be_fenced(
    failover_current: Failover, addons: Addons
) -> None:
    def refused(reason: str, **options: Any) -> None:
        answer = prepare(failover_current, addons, nodes=[NODE_A], **options)
        assert answer.failed and not answer.changed and reason in answer.msg, answer
        assert [
            fence["metadata"]["name"] for fence in failover_current.api.call("GET", FENCES)["items"]
        ] == there

    there: list[str] = []
    storage, api = failover_current.storage, failover_current.api
    storage.ceph.run("osd", "blocklist", "add", ADDRESS, "3600")
    reading = storage.ansible("rbd_watcher_info", images=[]).result["ceph"]
    refused(f"Ceph's blocklist has {ADDRESS}:0/0", ceph=reading)
    storage.ceph.run("osd", "blocklist", "rm", ADDRESS)
    refused("have Ceph's blocklist read")
    reading = storage.ansible("rbd_watcher_info", images=[]).result["ceph"]

    failover_current.set_addresses(NODE_B, ADDRESSES[NODE_B], ADDRESS)
    refused(f"{RANGE} is an address of {NODE_B} too")
    failover_current.set_addresses(NODE_B, ADDRESSES[NODE_B])

    api.merge(
        f"/api/v1/nodes/{NODE_A}",
        {"metadata": {"annotations": {"runbooks.storage-ops/fence": "{}"}}},
    )
    refused("a ledger says that it is fenced")
    api.merge(
        f"/api/v1/nodes/{NODE_A}",
        {"metadata": {"annotations": {"runbooks.storage-ops/fence": None}}},
    )

    addons.create("theirs", f"{ADDRESS}/24")
    there.append("theirs")
    refused("NetworkFence theirs is there already, with")
    addons.create("fenced", RANGE, state=FENCED)
    there.insert(0, "fenced")
    refused("NetworkFence fenced fences")
    for name in there:
        api.delete(f"{FENCES}/{name}")
    there.clear()

    failover_current.lose(NODE_A)
    refused("its Ready is Unknown")
    # Without being named it fails nothing, and the other node is prepared.
    answer = prepare(failover_current, addons, ceph=reading)
    assert not answer.failed and [action["target"] for action in answer.result["actions"]] == [
        f"storage-ops-{NODE_B}"
    ], answer
    # Nobody acts on it: it is made, and that it is Unfenced is not proven.
    addons.stop_manager()
    answer = prepare(
        failover_current,
        addons,
        nodes=[NODE_B],
        name_prefix="more-",
        addresses={NODE_B: ["127.0.2.12"]},
        fence_timeout=2,
    )
    assert answer.failed and answer.changed and "Its controller does not answer" in answer.msg, (
        answer
    )


def test_the_playbook(failover_current: Failover, addons: Addons) -> None:
    secret = {f"network_fence_secret_{key}": value for key, value in addons.secret.items()}
    fsid = failover_current.storage.ceph.fsid
    answers = {
        "network_fence_driver": addons.driver,
        "network_fence_cluster_id": fsid,
        **secret,
        "network_fence_fence_timeout": "",
    }
    ceph = {
        f"network_fence_ceph_{key}": value
        for key, value in failover_current.storage.connection().items()
    }
    answers |= {**ceph, "network_fence_ceph_host": "localhost", "network_fence_strict": "true"}
    play = failover_current.cluster.playbook
    assert play("prepare_network_fences", user=PREPARING, **answers).rc != 0, "no target"
    dry = play("prepare_network_fences", check=True, user=PREPARING, **answers, target="all")
    assert dry.rc == 0 and "planned" in dry.text, dry.text
    assert not failover_current.api.call("GET", FENCES)["items"]
    done = play("prepare_network_fences", user=PREPARING, **answers, target="all")
    assert done.rc == 0 and "Ceph itself was not read" not in done.text, done.text
    assert len(failover_current.api.call("GET", FENCES)["items"]) == 2
    again = play("prepare_network_fences", user=PREPARING, **answers, target=NODE_A)
    assert again.rc == 0 and "nothing to do: 1 node" in again.text, again.text
    cluster = failover_current.cluster
    cluster.used("rbac-fence-prepare.yml", "create networkfences", "list csiaddonsnodes")
