# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of a node, and which of its volumes are meant."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import (
    state as fence_state,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    ANNOTATION,
    Ledgers,
    config_map_path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    Filters,
    NodeState,
    gather_node,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    attachment_name,
    unique_name,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    LEDGER,
)


def node(name: str, *addresses: str, **status: Any) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    listed += [
        {"type": "Hostname", "address": name},
        {"type": "InternalIP", "address": "no-address"},
    ]
    status = {"addresses": listed, "nodeInfo": {"bootID": f"boot-{name}"}, **status}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {},
        "status": status,
    }


def volume(name: str, driver: str = "rbd.csi.ceph.com", **spec: Any) -> dict[str, Any]:
    secrets = {"nodeStageSecretRef": {"name": "s", "namespace": "n"}}
    csi = {
        "driver": driver,
        "volumeHandle": f"h-{name}",
        "volumeAttributes": {"clusterID": "c1"},
        **secrets,
    }
    spec = {
        "csi": csi,
        "claimRef": {"namespace": "shop", "name": name, "uid": "u"},
        "storageClassName": "fast",
        **spec,
    }
    status = {"phase": "Bound"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def pod(
    name: str, on: str = "a", phase: str = "Running", ephemeral: str = "", **meta: Any
) -> dict[str, Any]:
    """A pod that uses the claim of its own name, or an ephemeral one."""
    source: dict[str, Any] = (
        {"ephemeral": {"volumeClaimTemplate": {}}}
        if ephemeral
        else {"persistentVolumeClaim": {"claimName": name}}
    )
    spec = {"nodeName": on, "volumes": [{"name": ephemeral or "data", **source}]}
    state = {"running": {}} if phase == "Running" else {"terminated": {}}
    status = {"phase": phase, "containerStatuses": [{"state": state}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", **meta},
        "spec": spec,
        "status": status,
    }


def in_use(*volumes: str, driver: str = "rbd.csi.ceph.com") -> dict[str, Any]:
    return node("a", volumesInUse=[unique_name(driver, f"h-{name}") for name in volumes])


def attachment(name: str, volume: str, on: str, driver: str = "rbd.csi.ceph.com") -> dict[str, Any]:
    source = {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": {}}
    spec = {"attacher": driver, "nodeName": on, "source": source}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"attached": True},
    }


def gather(*objects: dict[str, Any]) -> tuple[NodeState, FakeCluster]:
    cluster = FakeCluster(*objects)
    return gather_node(cluster, "a", Ledgers(cluster, "storage-ops")), cluster  # type: ignore[arg-type]


def test_what_one_other_node_alone_has() -> None:
    """Each VolumeAttachment counts that names a node, whether it is attached yet or not."""
    waits = {**attachment("va6", "waits", "b"), "status": {"attached": False}}
    found, _cluster = gather(
        *(node("a"), node("b"), volume("mine"), attachment("va1", "mine", "a")),
        *(attachment("va2", "theirs", "b"), attachment("va3", "both", "b")),
        *(attachment("va4", "both", "c"), attachment("va5", "mine", "b"), waits),
    )
    assert {name: at.node for name, at in found.single.items()} == {"theirs": "b"}


def test_ledgers_that_may_not_be_read_are_told() -> None:
    def forbidden(verb: str, place: str) -> None:
        if verb == "list" and "/namespaces/storage-ops/configmaps" in place:
            raise Forbidden("no")

    for namespace, before in (("storage", None), ("storage", forbidden), ("storage-ops", None)):
        cluster = FakeCluster(node("a"))
        cluster.before = before or cluster.before
        found = gather_node(cluster, "a", Ledgers(cluster, namespace))  # type: ignore[arg-type]
        assert ("may not read the ledgers" in found.unread) is bool(before)


def test_a_node_and_what_is_attached_to_it() -> None:
    found, cluster = gather(
        node("a", "10.0.0.5", "FD00:0::5"),
        node("b", "10.0.0.6"),
        volume("v"),
        volume("w", "csi.example.com"),
        volume("other"),
        attachment("va1", "v", "a"),
        attachment("va2", "v", "b"),
        attachment("va3", "w", "a", "csi.example.com"),
        attachment("va4", "gone", "a"),
        attachment("va5", "", "a"),
        attachment("va6", "other", "b"),
    )
    assert cluster.requests[0].startswith("list /apis/storage.k8s.io/v1/volumeattachments")
    assert found.host and (found.host.addresses, found.host.boot_id) == (
        ("10.0.0.5", "fd00::5"),
        "boot-a",
    )
    assert [other.node.name for other in found.others] == ["b"]
    assert (found.fences, found.ledger) == (None, None)
    v, w, gone, inline = found.attached
    assert (v.name, v.claim, v.cluster_id, v.storage_class, v.is_rbd) == (
        "v",
        "shop/v",
        "c1",
        "fast",
        True,
    )
    assert [other.node for other in v.elsewhere] == ["b"]
    assert not w.is_rbd and w.elsewhere == ()
    assert (gone.name, gone.volume, gone.pv, gone.claim, gone.is_rbd) == (
        "gone",
        None,
        {},
        "",
        True,
    )
    assert inline.name == "va5"
    # Enough to find the image, and no more.
    assert v.pv == {
        "metadata": {"name": "v"},
        "spec": {
            "csi": {
                "driver": "rbd.csi.ceph.com",
                "volumeHandle": "h-v",
                "volumeAttributes": {"clusterID": "c1"},
            },
        },
    }


def test_what_finds_the_image_of_a_volume_is_handed_on_once() -> None:
    def slim(**attributes: str) -> dict[str, Any]:
        found: dict[str, Any] = volume("v")
        found["spec"]["csi"]["volumeAttributes"] = attributes
        return fence_state.slim_volume(found)["spec"]

    named = {"pool": "p", "imageName": "i"}
    driver = {"driver": "rbd.csi.ceph.com"}
    assert slim(**named, password="x") == {"csi": {**driver, "volumeAttributes": named}}
    for less in ({"pool": "p"}, {**named, "staticVolume": "true"}):
        assert slim(**less)["csi"]["volumeHandle"] == "h-v"
    tree = {"pool": "p", "image": "i", "monitors": ["m"], "secretRef": {"name": "s"}}
    assert fence_state.slim_volume(volume("v", csi=None, rbd=tree))["spec"] == {
        "rbd": {"pool": "p", "image": "i"}
    }


def test_the_copies_of_the_ledger_and_the_ledgers_of_other_nodes() -> None:
    ledger = LEDGER._replace(namespace="storage-ops")
    cluster = FakeCluster(node("a"), node("b"), node("c"))
    ledgers = Ledgers(cluster, "storage-ops")  # type: ignore[arg-type]

    def gathered() -> NodeState:
        return gather_node(cluster, "a", ledgers)  # type: ignore[arg-type]

    assert (gathered().ledger, gathered().ledgers) == (None, ())
    written = {}
    for name in "abc":
        uid = cluster.objects[f"/api/v1/nodes/{name}"]["metadata"]["uid"]
        written[name] = ledgers.write(ledger._replace(node=name, node_uid=uid))
    # A Node object may be deleted; and whoever has a node's kubelet may write what he likes into
    # its annotations.
    del cluster.objects["/api/v1/nodes/c"]
    cluster.objects["/api/v1/nodes/b"]["metadata"]["annotations"] = {ANNOTATION: "{}"}
    found = gathered()
    assert (found.ledger, sorted(other.node for other in found.ledgers)) == (
        written["a"],
        ["b", "c"],
    )
    del cluster.objects[config_map_path("a", "storage-ops")]
    assert gathered().ledger is None


@pytest.mark.parametrize(
    ("info", "machine"),
    [
        ({"systemUUID": "s", "machineID": "m"}, "s/m"),
        ({"machineID": "m"}, "m"),
        ({"systemUUID": ""}, ""),
        (None, ""),
    ],
)
def test_a_machine(info: dict[str, str] | None, machine: str) -> None:
    found, _cluster = gather({**node("a"), "status": {"nodeInfo": info}})
    assert found.host and found.host.machine == machine


def silent(since: str = "2026-01-01T12:00:00Z", *volumes: str) -> dict[str, Any]:
    """Node a, as the node controller has it since it fell silent."""
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    in_use = [unique_name("rbd.csi.ceph.com", f"h-{name}") for name in volumes]
    return node("a", conditions=[ready], volumesInUse=in_use)


class TestAPodThatNeverRan:
    """Any tenant may name a lost node in a pod; so it is no proof that the node has its volume."""

    LATE = "2026-01-01T12:00:01Z"
    # Another volume of the driver, on another node: so its volumes are attached.
    SHOWN = attachment("va", "w", "b")

    def waits(self, created: str = LATE) -> dict[str, Any]:
        return {**pod("v", creationTimestamp=created), "status": {"phase": "Pending"}}

    def used(self, *objects: dict[str, Any]) -> list[str]:
        found, _cluster = gather(volume("v"), *objects)
        return [entry.name for entry in found.used]

    def test_is_no_user_if_it_was_created_after_the_node_fell_silent(self) -> None:
        assert self.used(silent(), self.waits(), self.SHOWN) == []

    @pytest.mark.parametrize(
        "others", [(), (attachment("va", "w", "b", "csi.example.com"),)], ids=["none", "another"]
    )
    def test_is_one_if_nothing_shows_that_the_driver_attaches(
        self, others: tuple[dict[str, Any], ...]
    ) -> None:
        """With attachRequired: false no kubelet lists the volume, nor waits for anything."""
        assert self.used(silent(), self.waits(), *others) == ["v"]

    def test_beside_one_that_ran(self) -> None:
        ran = {**pod("v"), "metadata": {"name": "ran", "namespace": "shop"}}
        assert self.used(silent(), self.waits(), ran, self.SHOWN) == ["v"]

    @pytest.mark.parametrize("created", ["2026-01-01T12:00:00Z", "2026-01-01T11:00:00Z", "x"])
    def test_is_one_if_its_kubelet_may_have_seen_it(self, created: str) -> None:
        assert self.used(silent(), self.waits(created), self.SHOWN) == ["v"]

    @pytest.mark.parametrize("created", ["2026-01-01T11:00:00Z", LATE])
    def test_is_none_if_another_node_has_the_volume(self, created: str) -> None:
        """It waits with a Multi-Attach error, as any tenant can make it, on any node."""
        there = attachment("vb", "v", "b")
        assert self.used(silent(), self.waits(created), there) == []
        ran = {**pod("v"), "metadata": {"name": "ran", "namespace": "shop"}}
        assert self.used(silent(), self.waits(created), ran, there) == ["v"]
        listed = silent("2026-01-01T12:00:00Z", "v")
        assert self.used(listed, self.waits(created), there) == ["v"]

    def test_is_one_if_a_container_ran(self) -> None:
        late = pod("v", creationTimestamp=self.LATE)
        assert self.used(silent(), late, self.SHOWN) == ["v"]

    def test_is_one_if_the_kubelet_called_its_volume_in_use(self) -> None:
        listed = silent("2026-01-01T12:00:00Z", "v")
        assert self.used(listed, self.waits(), self.SHOWN) == ["v"]

    @pytest.mark.parametrize("since", ["", "x"])
    def test_is_one_if_it_is_not_known_since_when_the_node_is_silent(self, since: str) -> None:
        assert self.used(silent(since), self.waits(), self.SHOWN) == ["v"]

    def test_is_one_on_a_node_that_reports(self) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
        assert self.used(node("a", conditions=[ready]), self.waits(), self.SHOWN) == ["v"]


def made_again(created: str) -> dict[str, Any]:
    """The PersistentVolume v, as it is after its claim was deleted and made again."""
    made = volume("v")
    return {**made, "metadata": {**made["metadata"], "creationTimestamp": created}}


@pytest.mark.parametrize(
    ("created", "host", "shown", "used"),
    [
        ("2026-01-01T12:00:01Z", silent(), attachment("va", "w", "b"), []),
        ("2026-01-01T12:00:00Z", silent(), attachment("va", "w", "b"), ["v"]),
        ("x", silent(), attachment("va", "w", "b"), ["v"]),
        # It may be another object for an image that was open before.
        (
            "2026-01-01T12:00:01Z",
            silent("2026-01-01T12:00:00Z", "v"),
            attachment("va", "w", "b"),
            ["v"],
        ),
        # Nothing shows that the driver attaches, and then the kubelet waits for nothing.
        ("2026-01-01T12:00:01Z", silent(), attachment("va", "w", "b", "csi.example.com"), ["v"]),
    ],
    ids=["late", "before", "unknown", "listed", "never attached"],
)
def test_a_volume_that_was_made_too_late_is_not_used(
    created: str, host: dict[str, Any], shown: dict[str, Any], used: list[str]
) -> None:
    """A tenant makes its claim again, under a pod that ran: a claim's name is no identity."""
    found, _cluster = gather(host, made_again(created), pod("v"), shown)
    assert [entry.name for entry in found.used] == used


class TestAVolumeThatWasAttachedTooLate:
    """A pod that names a silent node has its volumes attached there, whoever made it."""

    SINCE, LATE = "2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"

    def attached(self, created: str = LATE, name: str = "va") -> dict[str, Any]:
        made = attachment(name, "v", "a")
        return {**made, "metadata": {"name": name, "creationTimestamp": created}}

    def late(self, *objects: dict[str, Any], item: dict[str, Any] | None = None) -> bool:
        objects = (*objects, item or volume("v")) if item != {} else objects
        found, _cluster = gather(*objects)
        (entry,) = found.attached
        assert found.used == ()
        return entry.too_late

    def waits(self) -> dict[str, Any]:
        return {**pod("v", creationTimestamp=self.LATE), "status": {"phase": "Pending"}}

    def test_cannot_be_open_there(self) -> None:
        assert self.late(silent(), self.attached())
        assert self.late(silent(), self.attached(), self.waits())
        # The pod of another namespace, and of another claim.
        other = pod("v")
        other["metadata"]["namespace"] = "else"
        assert self.late(silent(), self.attached(), other)
        assert self.late(silent(), self.attached(), pod("x"))

    @pytest.mark.parametrize("created", [SINCE, "2026-01-01T11:59:59Z", "x", ""])
    def test_may_be_if_its_kubelet_may_have_seen_it(self, created: str) -> None:
        assert not self.late(silent(), self.attached(created))

    def test_may_be_if_its_kubelet_says_that_it_was_silent_before(self) -> None:
        """Then it would leave the volumes of all tenants there out of every fence."""

        def tainted(since: str) -> dict[str, Any]:
            key = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
            return {**silent(self.SINCE), "spec": {"taints": [{**key, "timeAdded": since}]}}

        assert not self.late(tainted("2026-01-01T12:00:01Z"), self.attached())
        assert not self.late(tainted("2026-01-01T18:00:00Z"), self.attached())
        # As a node that was not ready before it was silent.
        assert self.late(tainted("2026-01-01T11:00:00Z"), self.attached())

    def test_may_be_if_the_kubelet_calls_it_in_use(self) -> None:
        assert not self.late(silent(self.SINCE, "v"), self.attached())
        # Its PersistentVolume was made again, with another image.
        name = attachment_name("rbd.csi.ceph.com", "h-old", "a")
        assert not self.late(silent(self.SINCE, "old"), self.attached(name=name))

    @pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
    def test_may_be_if_a_pod_of_it_ran(self, phase: str) -> None:
        """Also one that was made as late, and one that has ended."""
        ran = pod("v", phase=phase, creationTimestamp=self.LATE)
        assert not self.late(silent(), self.attached(), ran)

    @pytest.mark.parametrize(
        ("created", "late"), [(LATE, True), (SINCE, False), ("x", False), ("", False)]
    )
    def test_cannot_be_if_it_was_made_as_late_whatever_pod_ran(
        self, created: str, late: bool
    ) -> None:
        """A tenant makes its claim again, under a pod that ran: a claim's name is no identity."""
        made = made_again(created)
        assert self.late(silent(), self.attached(), pod("v"), item=made) is late
        # The handle is: it may be another object for an image that was open before.
        assert not self.late(silent(self.SINCE, "v"), self.attached(), pod("v"), item=made)

    @pytest.mark.parametrize("since", ["", "x"])
    def test_may_be_if_it_is_not_known_since_when_the_node_is_silent(self, since: str) -> None:
        assert not self.late(silent(since), self.attached())

    @pytest.mark.parametrize("says", ["True", "False", "Maybe"])
    def test_may_be_on_a_node_that_reports(self, says: str) -> None:
        ready = {"type": "Ready", "status": says, "lastTransitionTime": self.SINCE}
        assert not self.late(node("a", conditions=[ready]), self.attached())
        assert not self.late(node("b"), self.attached())

    def test_what_a_kubelet_lists_is_not_read_again_for_each_of_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Root on the node chooses the length of one list, and tenants that of the other."""
        read: list[int] = []
        names = fence_state.attachment_names

        def counted(listed: tuple[str, ...], host: str) -> set[str]:
            read.append(len(listed))
            return names(listed, host)

        monkeypatch.setattr(fence_state, "attachment_names", counted)
        late = {"creationTimestamp": self.LATE}
        volumes = [f"v{number}" for number in range(20)]
        attached = [
            {**attachment(f"va-{name}", name, "a"), "metadata": {"name": f"va-{name}", **late}}
            for name in volumes
        ]
        host = silent(self.SINCE, "v0", *(f"other{number}" for number in range(30)))
        found, _cluster = gather(host, *attached, *map(volume, volumes))
        assert [entry.name for entry in found.attached if not entry.too_late] == ["v0"]
        assert read.count(31) == 1

    def test_may_be_if_it_is_not_known_which_volume_it_is(self) -> None:
        assert not self.late(silent(), self.attached(), item={})
        in_tree = volume("v", csi=None, rbd={"pool": "p", "image": "i"})
        assert not self.late(silent(), self.attached(), item=in_tree)
        assert not self.late(silent(), self.attached(), item=volume("v", claimRef=None))


def test_of_pods_with_any_number_of_claims_those_are_kept_that_have_a_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any number of pods may name a lost node, with 43,000 claims each."""
    monkeypatch.setattr(fence_state, "_MOST_CLAIMS", 40)
    kept: list[int] = []

    def counted(*given: Any) -> Any:
        pods = reads(*given)
        kept.append(sum(len(pod.claims) for pod in pods or ()))
        return pods

    reads = fence_state._pods
    monkeypatch.setattr(fence_state, "_pods", counted)
    evil = pod("evil", phase="Pending")
    evil["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"none-{number}"}}
        for number in range(50)
    ]
    late = [
        {**evil, "metadata": {"name": f"evil-{number}", "namespace": "evil"}} for number in range(9)
    ]
    there = (volume("v"), volume("w", "csi.example.com"), pod("v"), pod("w"))
    found, cluster = gather(node("a"), *there, *late)
    assert [entry.name for entry in found.used] == ["v", "w"]
    assert kept == [0, 2]
    # As few as anyone has are kept as they are, and what is attached is none of them.
    few, cluster = gather(node("a"), *there, late[0], attachment("va", "v", "a"))
    assert [entry.name for entry in few.used] == ["w"] and kept[2:] == [0, 1]
    monkeypatch.setattr(fence_state, "_MOST_CLAIMS", 60)
    assert [entry.name for entry in gather(node("a"), *there, late[0])[0].used] == ["v", "w"]
    assert kept[4:] == [52]


def test_a_volume_that_was_released_hides_no_other_of_its_claims_name() -> None:
    """Its attachment is there, and the claim of that name has another volume by now."""
    claim_ref = {"namespace": "shop", "name": "v"}
    old = {**volume("old", claimRef=claim_ref), "status": {"phase": "Released"}}
    found, _cluster = gather(node("a"), old, volume("v"), pod("v"), attachment("1", "old", "a"))
    assert [entry.name for entry in found.used] == ["v"]


def test_many_volumes_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_state, "_MAX_GETS", 1)
    found, cluster = gather(
        node("a"),
        volume("v"),
        volume("w"),
        volume("x"),
        attachment("1", "v", "a"),
        attachment("2", "w", "a"),
    )
    assert [(entry.name, entry.claim) for entry in found.attached] == [
        ("v", "shop/v"),
        ("w", "shop/w"),
    ]
    assert not [request for request in cluster.requests if "persistentvolumes/" in request]


LISTED = "list /api/v1/persistentvolumes"


def test_what_was_detached_by_force_is_the_nodes_still() -> None:
    """By pods that have not ended, those that are being deleted among them, and by what the kubelet
    last called in use.
    """
    objects = [volume(name) for name in ("gone", "ending", "done", "away", "db-scratch", "unknown")]
    found, cluster = gather(
        in_use("gone"),
        *objects,
        volume("files", "cephfs.csi.ceph.com"),
        {
            **volume("old", claimRef={"namespace": "shop", "name": "ending"}),
            "status": {"phase": "Released"},
        },
        pod("ending", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("db", ephemeral="scratch"),
        pod("files"),
        pod("done", phase="Succeeded"),
        pod("away", on="b"),
        attachment("va1", "gone", "b"),
    )
    assert [
        (entry.name, entry.claim, entry.attachment.name, entry.attachment.node)
        for entry in found.used
    ] == [
        ("db-scratch", "shop/db-scratch", "", "a"),
        ("ending", "shop/ending", "", "a"),
        ("files", "shop/files", "", "a"),
        ("gone", "shop/gone", "", "a"),
    ]
    assert [[other.node for other in entry.elsewhere] for entry in found.used] == [
        *([], [], []),
        ["b"],
    ]
    assert found.attached == () and found.held == found.used
    assert cluster.requests.count(LISTED) == 1 and not [
        request for request in cluster.requests if "claims" in request
    ]


def test_what_is_attached_explains_pods_and_volumes_in_use() -> None:
    name = attachment_name("rbd.csi.ceph.com", "h-v", "a")
    found, cluster = gather(in_use("v"), volume("v"), pod("v"), attachment(name, "v", "a"))
    assert found.used == () and LISTED not in cluster.requests
    # Whatever the attachment is called.
    assert gather(in_use("v"), volume("v"), pod("v"), attachment("va", "v", "a"))[0].used == ()


NFS = {"server": "192.0.2.1", "path": "/"}


def test_what_is_never_attached_is_the_nodes_too() -> None:
    """NFS by a driver or by the kubelet itself; but what another node can never have is not."""
    local = {"csi": None, "local": {"path": "/mnt"}}
    found, _cluster = gather(
        node("a"),
        volume("csi", "nfs.csi.k8s.io"),
        volume("plain", csi=None, nfs=NFS),
        volume("disk", **local),
        volume("idle", csi=None, nfs=NFS),
        *(pod("csi"), pod("plain"), pod("disk"), pod("idle", on="b")),
    )
    assert [(entry.name, entry.storage, entry.is_rbd) for entry in found.used] == [
        ("csi", "nfs.csi.k8s.io", False),
        ("plain", "nfs", False),
    ]
    assert found.inline == ()


def test_which_pods_are_older_than_their_node() -> None:
    """Of those that have storage which no VolumeAttachment tells of."""
    made = node("a")
    made["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    name = attachment_name("rbd.csi.ceph.com", "h-rbd", "a")
    pods = [pod("csi"), pod("rbd"), pod("new"), in_line("line")]
    for one, day in zip(pods, (1, 1, 3, 1)):
        one["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    found, _cluster = gather(
        *(made, *pods, attachment(name, "rbd", "a"), volume("rbd")),
        *(volume("csi", "nfs.csi.k8s.io"), volume("new", "nfs.csi.k8s.io")),
    )
    assert found.older == tuple(
        f"pod {one['metadata']['namespace']}/{one['metadata']['name']}"
        for one in (pods[0], pods[3])
    )


def test_an_older_pod_leaves_room_for_what_others_have_in_line() -> None:
    """The whole fence is refused where nothing else would be fenced."""
    made = node("a")
    made["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    old, new = in_line("line"), in_line("web")
    share, *_rest = old["spec"]["volumes"]
    old["spec"]["volumes"] = [{**share, "name": f"n{number}"} for number in range(40)]
    for one, day in ((old, 1), (new, 3)):
        one["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    found, _cluster = gather(made, old, new)
    assert any(text.endswith("/web") for text in found.inline) and len(found.inline) <= 20


def test_which_volumes_are_of_pods_that_are_older_than_their_node() -> None:
    """Attached or not, and whether a container ever ran: it is mounted before that. But a claim
    that has no volume never was anything, so a pod that a finalizer keeps delays no other tenant.
    """
    made = node("a")
    made["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    name = attachment_name("rbd.csi.ceph.com", "h-rbd", "a")
    pods = [pod(one) for one in ("rbd", "ran", "waits", "nothing", "gone", "new")]
    for one in pods:
        one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    pods[5]["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z"
    for one in pods[2:4]:
        one["status"] = {"phase": "Pending"}
    volumes = [volume(one, "nfs.csi.k8s.io") for one in ("ran", "waits", "new")]
    found, _cluster = gather(made, *pods, attachment(name, "rbd", "a"), volume("rbd"), *volumes)
    assert {one.name: one.used_by_older_pod for one in found.held} == {
        **{"rbd": True, "ran": True, "waits": True},
        "new": False,
    }
    assert sorted(found.older) == ["pod shop/gone", "pod shop/ran", "pod shop/waits"]
    assert {one.name for one in found.of_earlier_machine} == {"rbd", "ran", "waits"}


def in_line(name: str, **more: Any) -> dict[str, Any]:
    """A pod that has NFS inline, and keys."""
    item = pod(name, **more)
    secrets = {"name": "keys", "csi": {"driver": "secrets-store.csi.k8s.io"}}
    item["spec"]["volumes"] = [
        {"name": "files", "nfs": NFS},
        secrets,
        {"name": "t", "emptyDir": {}},
    ]
    return item


def test_storage_that_pods_have_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    late = {"creationTimestamp": "2026-01-01T12:00:01Z"}
    found, _cluster = gather(
        silent(),
        in_line("one"),
        in_line("ran", **late),
        {**in_line("late", **late), "status": {"phase": "Pending"}},
        in_line("done", phase="Succeeded"),
        in_line("away", on="b"),
    )
    texts = [f"the inline nfs volume files of pod shop/{name}" for name in ("one", "ran")]
    assert sorted(found.inline) == texts and found.used == ()
    # Anyone may have any number of them.
    monkeypatch.setattr(fence_state, "_MOST_INLINE", 1)
    found, _cluster = gather(node("a"), in_line("one"), in_line("two"))
    assert found.inline == (texts[0],)


def test_a_migrated_volume_that_was_detached_by_force() -> None:
    item = volume("v", csi=None, rbd={"pool": "p", "image": "i"})
    found, _cluster = gather(node("a"), item, pod("v"), attachment("va", "v", "b"))
    assert [(entry.name, entry.attachment.driver) for entry in found.used] == [
        ("v", "rbd.csi.ceph.com")
    ]
    # One that is not migrated is never attached to any node.
    assert gather(node("a"), item, pod("v"))[0].used == ()


@pytest.mark.parametrize(
    ("phase", "boot", "used"),
    [
        ("detached", "boot-a", 0),
        ("fenced", "boot-a", 0),
        ("intended", "boot-a", 1),
        ("detached", "x", 1),
    ],
)
def test_what_is_fenced_already_needs_no_fence(phase: str, boot: str, used: int) -> None:
    cluster = FakeCluster({**in_use("v"), "metadata": {"name": "a", "uid": "uid-a"}}, volume("v"))
    ledgers = Ledgers(cluster, "storage-ops")  # type: ignore[arg-type]
    ledgers.write(
        LEDGER._replace(node="a", node_uid="uid-a", boot_id=boot, phase=phase, volumes=("v",))
    )
    assert len(gather_node(cluster, "a", ledgers).used) == used  # type: ignore[arg-type]


def test_no_such_node() -> None:
    found, _cluster = gather(node("b"))
    assert found.host is None and found.item is None


@pytest.mark.parametrize(
    ("driver", "spec", "is_rbd"),
    [
        ("rook-ceph.rbd.csi.ceph.com", {}, True),
        ("rbd.csi.ceph.com", {"csi": None, "rbd": {"pool": "p", "image": "i"}}, True),
        ("kubernetes.io/rbd", {"csi": None, "rbd": {"pool": "p", "image": "i"}}, True),
        ("cephfs.csi.ceph.com", {}, False),
        # A driver may have any name, so an image that is named counts too, but for those that a
        # gateway opens.
        (
            "block.example.com",
            {"csi": {"driver": "d", "volumeAttributes": {"imageName": "i", "pool": "p"}}},
            True,
        ),
        (
            "block.example.com",
            {"csi": {"driver": "d", "volumeAttributes": {"imageName": "i", "journalPool": "p"}}},
            True,
        ),
        (
            "block.example.com",
            {"csi": {"driver": "d", "volumeAttributes": {"imageName": "i"}}},
            False,
        ),
        (
            "nvmeof.csi.ceph.com",
            {"csi": {"driver": "d", "volumeAttributes": {"imageName": "i", "pool": "p"}}},
            False,
        ),
    ],
)
def test_what_an_rbd_volume_is(driver: str, spec: dict[str, Any], is_rbd: bool) -> None:
    found, _cluster = gather(
        node("a"), volume("v", driver, **spec), attachment("1", "v", "a", driver)
    )
    assert found.attached[0].is_rbd == is_rbd


@pytest.mark.parametrize(
    ("filters", "selected"),
    [
        (Filters(), True),
        (Filters(namespaces=("shop", "x")), True),
        (Filters(namespaces=("x",)), False),
        (Filters(claims=("shop/v",)), True),
        (Filters(claims=("x/v",)), False),
        (Filters(storage_classes=("fast",)), True),
        (Filters(("shop",), ("shop/v",), ("slow",)), False),
    ],
)
def test_filters(filters: Filters, selected: bool) -> None:
    found, _cluster = gather(
        node("a"), volume("v"), attachment("1", "v", "a"), attachment("2", "gone", "a")
    )
    assert filters.selects(found.attached[0]) == selected
    # Of a volume that is gone nobody knows the claim.
    assert filters.selects(found.attached[1]) == (not filters.active)
