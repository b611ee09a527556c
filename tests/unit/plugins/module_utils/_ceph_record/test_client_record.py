# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of which nodes it is recorded where Ceph sees them, on an API server in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph_record import (
    plan as pure,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph_record.runbook import (
    ClientRecord,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import run
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.record import (
    Record,
    parse_records,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    LEDGER,
    image,
    watcher,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Exit, Module

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
RBD = "rbd.csi.ceph.com"
# On Ceph's network, which Kubernetes knows nothing of.
A, B = "192.168.7.5", "192.168.7.6"
# When a node was made, and its volumes were attached.
MADE = "2025-12-31T00:00:00Z"
MAP = "/api/v1/namespaces/storage-ops/configmaps/storage-ops-ceph-clients"


def node(name: str, address: str, ready: str = "True", boot: str = "boot-1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": MADE},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [{"type": "InternalIP", "address": address}],
            "nodeInfo": {"bootID": boot, "systemUUID": f"machine-{name}"},
        },
    }


def volume(name: str, driver: str = RBD, **attributes: str) -> dict[str, Any]:
    csi = {"driver": driver, "volumeHandle": name, "volumeAttributes": attributes}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"csi": csi},
    }


def attachment(name: str, on: str, driver: str = RBD, attached: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {
            "name": f"va-{name}-{on}",
            "uid": f"uid-va-{name}-{on}",
            "creationTimestamp": MADE,
        },
        "spec": {
            "attacher": driver,
            "nodeName": on,
            "source": {"persistentVolumeName": name},
        },
        "status": {"attached": attached},
    }


def config_map(*records: Record, **more: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "storage-ops-ceph-clients", "namespace": "storage-ops"},
        "data": {**{found.key: found.text for found in records}, **more},
    }


@pytest.fixture
def cluster() -> FakeCluster:
    """Nodes a and b, each with a volume of its own."""
    found = FakeCluster(
        node("a", "10.0.0.5"),
        node("b", "10.0.0.6"),
        volume("v"),
        volume("w"),
        attachment("v", "a"),
        attachment("w", "b"),
        config_map(),
    )
    found.clock = lambda: NOW
    return found


V = image("v", watchers=[watcher(A, 1, seen=2)])
W = image("w", watchers=[watcher(B, 2, seen=2)])
UIDS = {"v": "uid-va-v-a", "w": "uid-va-w-b"}


def seen(*images: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What Ceph showed. Those that were there both times did not come and go."""
    for found in images:
        for one in found["watchers"]:
            one["persistent"] = one["seen"] == 2
    data = {"fsid": "f1", "read_at": "2026-01-01T12:00:00Z", "observations": 2, "seconds": 35.0}
    data |= {"families": ["IPv4"]}
    return {**data, "blocklist": [], "images": list(images), **fields}


def options(ceph: dict[str, Any] | None = None, **given: Any) -> pure.RecordOptions:
    params = {
        "nodes": [],
        "ceph": ceph,
        "attachments": UIDS if ceph else {},
        "other_addresses": [],
        "ledger_namespace": "storage-ops",
    }
    return pure.make_options({**params, **given})


def ran(
    cluster: FakeCluster, *images: dict[str, Any], check: bool = False, **given: Any
) -> dict[str, Any]:
    module = Module(check)
    with pytest.raises(Exit):
        run(module, lambda: ClientRecord(cluster, options(seen(*images), **given)), False)  # type: ignore[arg-type]
    return module.result


def kept(cluster: FakeCluster) -> dict[str, str]:
    """By node, the address that is recorded."""
    return {
        found.node: found.address for found in parse_records(cluster.objects[MAP]).found.values()
    }


def reasons(result: dict[str, Any]) -> dict[str, str]:
    """By node, the code of why it was not recorded."""
    return {
        found["object"]["name"]: found["code"]
        for found in result["findings"]
        if found["verdict"] == "report"
    }


def writes(cluster: FakeCluster) -> list[str]:
    return [asked for asked in cluster.requests if asked.split()[0] not in ("get", "list")]


# which images are asked about


def asked(cluster: FakeCluster, **given: Any) -> dict[str, Any]:
    module = Module()
    with pytest.raises(Exit):
        run(module, lambda: ClientRecord(cluster, options(**given)), False)  # type: ignore[arg-type]
    assert not module.result["failed"], module.result["msg"]
    return module.result


def names(result: dict[str, Any]) -> list[str]:
    return [found["metadata"]["name"] for found in result["volumes"]]


def test_images_that_one_healthy_node_alone_has_are_asked_about(cluster: FakeCluster) -> None:
    result = asked(cluster)
    assert names(result) == ["v", "w"] and result["attachments"] == UIDS
    assert not result["changed"] and writes(cluster) == []
    assert names(asked(cluster, nodes=["b"])) == ["w"]
    going = attachment("u", "a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    for more in (
        attachment("v", "b"),
        volume("x", "ebs.csi.aws.com"),
        attachment("x", "a", "ebs.csi.aws.com"),
        volume("y"),
        attachment("y", "a", attached=False),
        volume("u"),
        going,
        node("c", "10.0.0.7", "Unknown"),
        volume("z"),
        attachment("z", "c"),
    ):
        cluster.add(more)
    assert names(asked(cluster)) == ["w"]
    ledger = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "storage-ops-fence-b",
            "namespace": "storage-ops",
            "labels": {"app.kubernetes.io/managed-by": "storage-ops-runbooks"},
        },
        "data": {"ledger": LEDGER._replace(node="b").text},
    }
    cluster.add(ledger)
    assert names(asked(cluster)) == []


@pytest.mark.parametrize("made", ["2025-12-31T00:00:01Z", ""])
def test_a_machine_that_had_the_nodes_name_before_is_not_the_node(
    cluster: FakeCluster, made: str
) -> None:
    """It has the volume open still, and its VolumeAttachment has the name alone. Another machine
    registered under the name: it was recorded where the first one is, and would not be fenced.
    """
    again = node("a", "10.0.0.5")
    again["metadata"]["creationTimestamp"] = made
    cluster.add(again)
    assert names(asked(cluster)) == ["w"]
    ran(cluster, V, W)
    assert kept(cluster) == {"b": B}


def of_tenant(name: str, namespace: str) -> dict[str, Any]:
    """A volume whose claim is in that namespace."""
    found = volume(name)
    found["spec"]["claimRef"] = {"namespace": namespace, "name": name}
    return found


def nights(cluster: FakeCluster, number: int) -> list[list[str]]:
    """What is asked about in each of so many nights."""
    told = []
    for night in range(number):
        cluster.clock = lambda night=night: NOW + timedelta(days=night)
        told.append(names(asked(cluster, nodes=["a"])))
    return told


def test_two_images_of_each_node_and_the_oldest_records_first(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster.add(volume(f"v{number}"))
        cluster.add(attachment(f"v{number}", "a"))
    first = names(asked(cluster))
    assert len(first) == 3 and first[2] == "w"
    assert ran(cluster, V, W)["changed"]
    cluster.objects[MAP]["data"] = {
        key: text for key, text in cluster.objects[MAP]["data"].items() if "uid-a" in key
    }
    assert names(asked(cluster)) == ["w", *first[:2]]


def test_a_tenant_does_not_have_all_that_is_read_of_a_node(cluster: FakeCluster) -> None:
    """Its two volumes were attached first, and show nothing: the node was never recorded."""
    for number in range(9):
        cluster.add(of_tenant(f"t{number}", "evil"))
        cluster.add(attachment(f"t{number}", "a"))
    cluster.add(of_tenant("v", "shop"))
    # Of two namespaces one image each, in each night.
    assert all(len(told) == 2 and "v" in told for told in nights(cluster, 5))
    for number in range(9):
        cluster.add(of_tenant(f"o{number}", f"n{number}"))
        cluster.add(attachment(f"o{number}", "a"))
    # Of more it is another one each night; and so it is of the volumes of one.
    told = nights(cluster, 60)
    assert all(len({name[0] for name in names} - {"t"}) >= 1 for names in told)
    assert any("v" in names for names in told)
    assert len({name for names in told for name in names if name[0] == "t"}) > 4


def test_nodes_that_show_nothing_do_not_take_all_turns(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theirs are the oldest records for ever: none."""
    monkeypatch.setattr(pure, "MOST_NODES", 4)
    for name in "cdefgh":
        cluster.add(node(name, "10.0.1.5"))
        cluster.add(volume(name))
        cluster.add(attachment(name, name))
    ran(cluster, V)
    told = []
    for night in range(40):
        cluster.clock = lambda night=night: NOW + timedelta(days=night)
        told.append(names(asked(cluster)))
    assert all(len(names) == 4 for names in told) and any("v" in names for names in told)


def test_a_node_that_is_not_recorded_is_told(cluster: FakeCluster) -> None:
    """With a green run its fence would have been refused, with no word before."""
    result = ran(cluster, image("v"))
    assert reasons(result) == dict.fromkeys("ab", "address_unknown")
    (told,) = [found for found in result["findings"] if found["object"]["name"] == "a"]
    assert "Ceph shows no client of it, in v:" in told["reason"]
    # Also of a boot before, or of another machine; and not of one that has no such volume.
    ran(cluster, V, W)
    assert reasons(ran(cluster, image("v"), image("w"))) == {}
    cluster.add(node("a", "10.0.0.5", boot="boot-2"))
    cluster.add(node("c", "10.0.0.7"))
    assert reasons(ran(cluster, image("v"), image("w"))) == {"a": "address_unknown"}
    no_turn = ran(cluster, W, attachments={"w": UIDS["w"]})
    assert [found["reason"] for found in no_turn["findings"]] == [
        "it had no turn in this run. Another night reads other volumes"
    ]


def test_of_many_nodes_a_part_is_asked_about(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pure, "MOST_NODES", 1)
    assert names(asked(cluster)) == ["v"]
    ran(cluster, V)
    assert names(asked(cluster)) == ["w"]


def test_what_has_no_room_is_asked_about_in_another_night(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(volume("v", imageName="x" * 3_000, pool="rbd"))
    assert names(asked(cluster)) == ["w"]
    monkeypatch.setattr(pure, "_MOST_TOLD", 10)
    assert names(asked(cluster)) == []


# what is recorded


def test_where_ceph_sees_each_node(cluster: FakeCluster) -> None:
    result = ran(cluster, V, W)
    assert result["changed"] and kept(cluster) == {"a": A, "b": B}
    record = parse_records(cluster.objects[MAP]).of("uid-a", "f1")
    assert record == Record(
        "a", "uid-a", "machine-a", "boot-1", "f1", A, ("client.1",), 1, 2, 35.0, NOW
    )
    (finding,) = result["findings"]
    assert finding["evidence"]["nodes"] == [f"a: {A} (client.1)", f"b: {B} (client.2)"]
    assert finding["evidence"]["proof"]


def test_check_mode_writes_nothing(cluster: FakeCluster) -> None:
    result = ran(cluster, V, W, check=True)
    assert result["changed"] and kept(cluster) == {}
    assert writes(cluster) == [f"patch {MAP} (dry run)"]


def test_a_second_run_changes_nothing_until_an_hour_has_passed(cluster: FakeCluster) -> None:
    ran(cluster, V, W)
    cluster.requests.clear()
    assert not ran(cluster, V, W)["changed"] and writes(cluster) == []
    later = NOW + timedelta(hours=1)
    cluster.clock = lambda: later
    module = Module()
    given = options(seen(V, W, read_at=f"{later:%Y-%m-%dT%H:%M:%SZ}"))
    with pytest.raises(Exit):
        run(module, lambda: ClientRecord(cluster, given), False)  # type: ignore[arg-type]
    assert module.result["changed"]
    assert {found.at for found in parse_records(cluster.objects[MAP]).found.values()} == {later}


def test_what_has_changed_is_written_at_once(cluster: FakeCluster) -> None:
    ran(cluster, V, W)
    cluster.add(node("a", "10.0.0.5", boot="boot-2"))
    moved = image("v", watchers=[watcher("192.168.7.50", 9, seen=2)])
    assert ran(cluster, moved, W)["changed"]
    assert kept(cluster) == {"a": "192.168.7.50", "b": B}


def test_records_of_another_ceph_stay_and_those_of_no_node_go(cluster: FakeCluster) -> None:
    ran(cluster, V, W)
    cluster.objects[MAP]["data"] |= {"uid-gone.f1": "{", "uid-a.f2": "{"}
    first = dict(cluster.objects[MAP]["data"])
    result = ran(cluster, V, W)
    assert result["findings"][0]["evidence"] == {
        "nodes": [],
        "removed": ["uid-gone.f1"],
        "proof": result["findings"][0]["evidence"]["proof"],
    }
    del first["uid-gone.f1"]
    left = {key: text for key, text in cluster.objects[MAP]["data"].items() if text is not None}
    assert left == first


@pytest.mark.parametrize(
    "shows_nothing",
    [
        [],
        [image("v")],
        [image("v", problem="it could not be read", watchers=[watcher(A, seen=2)])],
        # Comes and goes.
        [image("v", watchers=[watcher(A, seen=1)])],
        [image("v", watchers=[watcher(A, seen=2), watcher(A, 3, seen=1)])],
        # A tool, and not the node; and one beside the node.
        [image("v", watchers=[watcher(A, seen=2, kernel=False)])],
        [image("v", watchers=[watcher(A, seen=2), watcher(A, 3, seen=2, kernel=False)])],
        # Two hosts, one of which may be any node.
        [image("v", watchers=[watcher(A, seen=2), watcher("192.168.7.9", 3, seen=2)])],
        # Who writes is somewhere else.
        [
            image(
                "v",
                watchers=[watcher(A, seen=2)],
                locks=[{"locker": "client.9", "address": "192.168.7.9", "entry": "x"}],
            )
        ],
        [image("v", watchers=[watcher(A, seen=2, mirror=True)])],
        # Its owner may be dead.
        [image("v", locks=[{"locker": "client.9", "address": A, "entry": "x"}])],
        # No entry hits it, whatever its address is called.
        [image("v", watchers=[{**watcher(A, seen=2), "entry": f"[::ffff:{A}]:0/1"}])],
        [image("v", watchers=[watcher("127.0.0.1", seen=2)])],
    ],
    ids=range(13),
)
def test_what_does_not_show_the_node_records_nothing(
    cluster: FakeCluster, shows_nothing: list[dict[str, Any]]
) -> None:
    result = ran(cluster, *shows_nothing, W)
    assert kept(cluster) == {"b": B} and reasons(result) == {"a": "address_unknown"}
    assert list(cluster.objects[MAP]["data"]) == ["uid-b.f1"]


def test_a_client_of_rbd_nbd_is_the_node_where_the_volume_says_so(cluster: FakeCluster) -> None:
    librbd = image("v", watchers=[watcher(A, seen=2, kernel=False)])
    cluster.add(volume("v", mounter="rbd-nbd"))
    ran(cluster, librbd, W)
    assert kept(cluster) == {"a": A, "b": B}


def test_what_the_user_calls_another_host_is_not_the_node(cluster: FakeCluster) -> None:
    backup = image("v", watchers=[watcher(A, seen=2), watcher("192.168.7.9", 3, seen=2)])
    ran(cluster, backup, W, other_addresses=["192.168.7.9"])
    assert kept(cluster) == {"a": A, "b": B}
    with pytest.raises(StorageOpsError, match="other_addresses has"):
        options(other_addresses=["backup1"])


@pytest.mark.parametrize(
    "changed",
    [
        # It was made again while Ceph was read.
        {"metadata": {"name": "va-v-a", "uid": "uid-another"}},
        {"status": {"attached": False}},
        {"spec": {**attachment("v", "b")["spec"]}},
    ],
    ids=["another", "detached", "moved"],
)
def test_a_volume_that_did_not_stay_attached_shows_nothing(
    cluster: FakeCluster, changed: dict[str, Any]
) -> None:
    """While Ceph was read, another node may have had it."""
    cluster.add({**attachment("v", "a"), **changed})
    result = ran(cluster, V, W)
    assert "a" not in kept(cluster), result


def test_a_volume_that_another_node_has_too_shows_nothing(cluster: FakeCluster) -> None:
    cluster.add(attachment("v", "b"))
    ran(cluster, V, W)
    assert kept(cluster) == {"b": B}


@pytest.mark.parametrize("ready", ["Unknown", "False"])
def test_a_node_that_is_not_ready_is_not_recorded(cluster: FakeCluster, ready: str) -> None:
    cluster.add(node("a", "10.0.0.5", ready))
    ran(cluster, V, W)
    assert kept(cluster) == {"b": B}


def two(*addresses: str) -> list[dict[str, Any]]:
    """Two images of node a."""
    return [
        image(name, watchers=[watcher(address, number, seen=2)])
        for number, (name, address) in enumerate(zip(("v", "v2"), addresses), 1)
    ]


@pytest.mark.parametrize(
    ("images", "code"),
    [
        (two(A, "192.168.7.9"), "evidence_contradicts"),
        # The status of node b has it.
        (two("10.0.0.6", "10.0.0.6"), "fence_shared"),
        # NAT, or an image of another node.
        (two(B, B), "fence_shared"),
        ([*two(A, A), image("x", watchers=[watcher(A, 9, seen=1)])], "fence_shared"),
    ],
    ids=["two addresses", "status", "NAT", "image of others"],
)
def test_what_contradicts_itself_is_told_and_not_recorded(
    cluster: FakeCluster, images: list[dict[str, Any]], code: str
) -> None:
    cluster.add(volume("v2"))
    cluster.add(attachment("v2", "a"))
    uids = {**UIDS, "v2": "uid-va-v2-a"}
    result = ran(cluster, *images, W, attachments=uids)
    assert reasons(result)["a"] == code and "a" not in kept(cluster)
    assert not result["failed"]


RECORD = Record("b", "uid-b", "machine-b", "boot-1", "f1", A, ("client.3",), 1, 2, 35.0, NOW)


def test_an_address_that_is_recorded_of_another_node_is_neithers(cluster: FakeCluster) -> None:
    """Unless that was booted since, is gone, or is of another Ceph."""
    cluster.add(config_map(RECORD))
    result = ran(cluster, V)
    assert reasons(result) == {"a": "evidence_contradicts"} and kept(cluster) == {}
    assert result["findings"][-1]["evidence"]["removed"] == ["uid-b.f1"]
    # By the next night that is known.
    assert reasons(ran(cluster, V)) == {"b": "address_unknown"} and kept(cluster) == {"a": A}
    for other in (
        RECORD._replace(boot_id="boot-0"),
        RECORD._replace(fsid="f2"),
        RECORD._replace(node_uid="uid-gone"),
    ):
        cluster.add(config_map(other))
        assert "a" not in reasons(ran(cluster, V)) and kept(cluster)["a"] == A


OF_A = RECORD._replace(node="a", node_uid="uid-a", machine="machine-a")


@pytest.mark.parametrize(
    ("images", "left"),
    [
        # It has yet another address, so the recorded one is not all of it.
        (two(A, "192.168.7.9"), {"b": B}),
        (two(B, B), {}),
        # Only the status of node b says so; and Ceph shows it elsewhere by now.
        (two("10.0.0.6", "10.0.0.6"), {"b": B}),
    ],
    ids=["two addresses", "NAT", "elsewhere"],
)
def test_what_ceph_disproves_is_no_record_any_more(
    cluster: FakeCluster, images: list[dict[str, Any]], left: dict[str, str]
) -> None:
    """A fence by it would be half a one, or another host's."""
    cluster.add(volume("v2"))
    cluster.add(attachment("v2", "a"))
    cluster.add(config_map(OF_A, RECORD._replace(address=B)))
    ran(cluster, *images, W, attachments={**UIDS, "v2": "uid-va-v2-a"})
    assert kept(cluster) == left


def test_the_word_of_another_node_makes_no_record_go(cluster: FakeCluster) -> None:
    cluster.add(config_map(OF_A))
    cluster.add(node("b", A))
    assert reasons(ran(cluster, V, W)) == {"a": "fence_shared"}
    assert kept(cluster) == {"a": A, "b": B}
    # And what is shown by nothing stays.
    ran(cluster, image("v"), W)
    assert kept(cluster) == {"a": A, "b": B}


def test_a_config_map_that_is_full_takes_no_more_nodes(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(cluster, V)
    size = sum(len(key) + len(text) for key, text in cluster.objects[MAP]["data"].items())
    monkeypatch.setattr(pure, "MOST", size + 100)
    result = ran(cluster, V, W)
    assert reasons(result) == {"b": "result_too_long"} and kept(cluster) == {"a": A}
    # What is there already may be renewed.
    again = image("v", watchers=[watcher(A, 4, seen=2)])
    assert ran(cluster, again)["changed"]


# guards


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"observations": 1}, "observation_too_short"),
        ({"seconds": 30.0}, "observation_too_short"),
        ({"fsid": ""}, "ceph_reading_unfit"),
        ({"read_at": "2026-01-01T10:00:00Z"}, "ceph_reading_unfit"),
    ],
    ids=str,
)
def test_a_reading_that_proves_nothing_is_refused(
    cluster: FakeCluster, fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(StorageOpsError) as caught:
        ClientRecord(cluster, options(seen(V, W, **fields))).gather()  # type: ignore[arg-type]
    assert caught.value.code == code and cluster.requests == []


def test_without_what_was_attached_before_nothing_is_believed() -> None:
    with pytest.raises(StorageOpsError, match="attachments is empty"):
        options(seen(V), attachments={})


@pytest.mark.parametrize("given", [{}, {"nodes": ["c"]}], ids=str)
def test_what_is_not_there(cluster: FakeCluster, given: dict[str, Sequence[str]]) -> None:
    """The account may write the ConfigMap, and make none."""
    if not given:
        cluster.remove(cluster.objects[MAP])
    with pytest.raises(StorageOpsError, match="rbac-audit-record.yml|there is no node c") as caught:
        ClientRecord(cluster, options(**given)).gather()  # type: ignore[arg-type]
    assert caught.value.code == "not_found"


@pytest.mark.parametrize(
    "meanwhile",
    [
        node("a", "10.0.0.5", "Unknown"),
        node("a", "10.0.0.5", boot="boot-2"),
        {**node("a", "10.0.0.5"), "metadata": {"name": "a", "uid": "uid-another"}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "storage-ops-fence-a",
                "namespace": "storage-ops",
                "labels": {"app.kubernetes.io/managed-by": "storage-ops-runbooks"},
            },
            "data": {"ledger": LEDGER.text},
        },
    ],
    ids=["lost", "booted", "another", "fenced"],
)
def test_a_node_that_has_changed_meanwhile_is_left_out(
    cluster: FakeCluster, meanwhile: dict[str, Any]
) -> None:
    runbook = ClientRecord(cluster, options(seen(V, W)))  # type: ignore[arg-type]
    (action,) = runbook.plan(runbook.gather()).actions
    cluster.add(meanwhile)
    runbook.apply(action)
    assert kept(cluster) == {"b": B}


def test_a_record_of_a_node_that_is_back_stays(cluster: FakeCluster) -> None:
    cluster.add(config_map(**{"uid-c.f1": "{"}))
    runbook = ClientRecord(cluster, options(seen()))  # type: ignore[arg-type]
    (action,) = runbook.plan(runbook.gather()).actions
    cluster.add(node("c", "10.0.0.7"))
    with pytest.raises(StorageOpsError, match="run again"):
        runbook.apply(action)


def test_of_two_runs_at_once_one_is_refused(cluster: FakeCluster) -> None:
    def other_run(verb: str, path: str) -> None:
        if verb == "patch":
            cluster.before = lambda verb, path: None
            cluster.patch(MAP, {"data": {"uid-b.f2": "{}"}})

    cluster.before = other_run
    result = ran(cluster, V, W)
    (finding,) = result["findings"]
    assert (finding["verdict"], finding["code"]) == ("refuse", "world_changed")
    assert "another run has written it" in finding["reason"] and kept(cluster) == {}


def test_what_is_not_as_it_was_written_is_no_success(cluster: FakeCluster) -> None:
    runbook = ClientRecord(cluster, options(seen(V, W)))  # type: ignore[arg-type]
    plan = runbook.plan(runbook.gather())
    runbook.apply(plan.actions[0])
    assert runbook.verify(plan.findings[0]) == [
        "ConfigMap storage-ops-ceph-clients has 2 records as they were written"
    ]
    cluster.patch(MAP, {"data": {RECORD.key: json.dumps({})}})
    with pytest.raises(StorageOpsError) as caught:
        runbook.verify(plan.findings[0])
    assert caught.value.code == "repair_unproven"
