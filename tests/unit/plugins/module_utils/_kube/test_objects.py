# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of an API object, and what is told from it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import objects

META: dict[str, Any] = {
    "name": "web-0",
    "namespace": "shop",
    "uid": "u1",
    "creationTimestamp": "2026-01-31T10:00:00Z",
}
TEN = datetime(2026, 1, 31, 10, tzinfo=timezone.utc)


def pod(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any
) -> objects.Pod:
    return objects.pick_pod(
        {"metadata": {**META, **meta}, "spec": spec or {}, "status": status or {}}
    )


def test_times() -> None:
    assert objects.parse_time("2026-01-31T10:00:00Z") == TEN
    assert objects.parse_time("2026-01-31T10:00:00.500000Z") == TEN + timedelta(seconds=0.5)
    assert objects.parse_time(None) is None


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "2026-01-31T10:00:00",
        "x",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_what_is_no_time(text: str) -> None:
    """The API stores the year 0; of a tenant's event it must not end a whole triage."""
    assert objects.parse_time(text) is None


def test_messages_are_cut_as_they_are_read() -> None:
    assert (objects.cut(None), objects.cut("x"), len(objects.cut("x" * 1_400_000))) == (
        "",
        "x",
        objects.MAX_MESSAGE,
    )
    assert objects.age(TEN + timedelta(minutes=1), TEN) == 60
    assert objects.age(TEN, None) == 0
    assert objects.age(TEN, TEN + timedelta(minutes=1)) == 0


def test_names_are_those_of_kubernetes() -> None:
    # From a VolumeAttachment that the controller manager of 1.20.2 made.
    name = objects.attachment_name("csi.example.com", "vol-1", "node-a")
    assert name.startswith("csi-") and len(name) == 68
    assert (
        objects.unique_name("csi.example.com", "vol-1") == "kubernetes.io/csi/csi.example.com^vol-1"
    )
    entries = (
        "kubernetes.io/csi/csi.example.com^vol-1",
        "kubernetes.io/aws-ebs/vol-2",
        "kubernetes.io/csi/broken",
    )
    assert objects.attachment_names(entries, "node-a") == {name}


def test_a_handle_may_contain_the_separator() -> None:
    entries = (objects.unique_name("csi.example.com", "a^b"),)
    assert objects.attachment_names(entries, "n") == {
        objects.attachment_name("csi.example.com", "a^b", "n")
    }


def test_attachment() -> None:
    found = objects.pick_attachment(
        {
            "metadata": {
                "name": "csi-1",
                "uid": "u",
                "creationTimestamp": "2026-01-31T10:00:00Z",
                "finalizers": ["external-attacher/x"],
            },
            "spec": {"attacher": "x", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            "status": {
                "attached": True,
                "attachmentMetadata": {"publishInfo": "secret", "b": ""},
                "detachError": {"message": "busy", "time": "2026-01-31T10:00:00Z"},
            },
        }
    )
    assert found.metadata == ("publishInfo", "b")
    assert "secret" not in str(found)
    assert found.attach_error is None
    assert found.detach_error == objects.VolumeError("busy", TEN)
    assert (found.volume, found.attached, found.created, found.deleted) == ("pv", True, TEN, None)


def test_attachment_of_an_inline_volume_without_status() -> None:
    meta = {"name": "csi-1", "uid": "u"}
    found = objects.pick_attachment(
        {
            "metadata": meta,
            "spec": {"attacher": "x", "nodeName": "n", "source": {"inlineVolumeSpec": {}}},
        }
    )
    assert (found.volume, found.attached, found.metadata) == ("", False, ())


@pytest.mark.parametrize(
    ("modes", "exclusive"),
    [
        (["ReadWriteOnce"], True),
        (["ReadWriteOncePod"], True),
        (["ReadWriteMany"], False),
        (["ReadWriteOnce", "ReadOnlyMany"], False),
        ([], False),
    ],
)
def test_volume(modes: list[str], exclusive: bool) -> None:
    spec = {
        "accessModes": modes,
        "csi": {"driver": "x", "volumeHandle": "h"},
        "claimRef": {"namespace": "shop", "name": "data", "uid": "c"},
    }
    found = objects.pick_volume(
        {"metadata": {"name": "pv", "uid": "u"}, "spec": spec, "status": {"phase": "Bound"}}
    )
    assert found.exclusive is exclusive
    assert found.claim == ("shop", "data")
    assert (found.driver, found.handle, found.phase) == ("x", "h", "Bound")


def test_volume_that_is_not_csi_and_has_no_claim() -> None:
    found = objects.pick_volume(
        {
            "metadata": {"name": "pv", "uid": "u"},
            "spec": {"awsElasticBlockStore": {"volumeID": "v"}},
        }
    )
    assert (found.driver, found.handle, found.claim, found.phase) == ("", "", ("", ""), "")


def test_node() -> None:
    found = objects.pick_node(
        {
            "metadata": {
                "name": "n",
                "uid": "u",
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [
                    {"type": "DiskPressure", "status": "True"},
                    {
                        "type": "Ready",
                        "status": "False",
                        "lastTransitionTime": META["creationTimestamp"],
                    },
                ],
                "volumesAttached": [{"name": "a", "devicePath": ""}],
                "volumesInUse": ["a", "b"],
            },
        }
    )
    assert found == objects.Node("n", "u", "False", TEN, True, True, ("a",), ("a", "b"))


def test_node_that_we_cordoned() -> None:
    annotations = {
        "runbooks.storage-ops/cordon.1a2b": '{"by": "awx"}',
        "runbooks.storage-ops/other": "x",
    }
    item: dict[str, Any] = {"metadata": {"name": "n", "uid": "u", "annotations": annotations}}
    assert objects.pick_node(item).cordons == (), "the taint is gone"
    item["spec"] = {"taints": [{"key": objects.HOLD, "effect": "NoSchedule"}]}
    assert objects.pick_node(item).cordons == ('{"by": "awx"}',)


def test_node_that_never_reported() -> None:
    found = objects.pick_node({"metadata": {"name": "n", "uid": "u"}})
    assert (found.ready, found.managed, found.volumes_attached) == ("Unknown", False, ())


@pytest.mark.parametrize(
    ("since", "taints", "expected"),
    [
        (-60, [-50], -60),
        (-60, [], -60),
        (3600, [-50, -40], -50),
        (3600, [], None),
        # A kubelet writes what it likes with its new Node.
        (3600, ["PreferNoSchedule"], None),
        (None, [-50], None),
    ],
)
def test_since_when_a_node_is_lost(
    since: int | None, taints: list[Any], expected: int | None
) -> None:
    """Its kubelet may write any time into its condition, and none into the taint."""

    def at(seconds: int) -> str:
        return f"{TEN + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"

    ready = {"type": "Ready", "status": "Unknown"}
    added = [
        {
            "key": "node.kubernetes.io/unreachable",
            "effect": "NoExecute" if isinstance(one, int) else one,
            "timeAdded": at(one if isinstance(one, int) else -999),
        }
        for one in taints
    ]
    conditions = [ready if since is None else {**ready, "lastTransitionTime": at(since)}]
    item = {
        "metadata": {"name": "n", "uid": "u"},
        "spec": {"taints": added},
        "status": {"conditions": conditions},
    }
    found = objects.pick_node(item)
    assert found.lost_since(TEN) == (
        None if expected is None else TEN + timedelta(seconds=expected)
    )
    assert found.lost_for(TEN) == -(expected or 0)


def test_claims_of_a_pod() -> None:
    found = pod(
        {
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "secrets", "csi": {"driver": "secrets.example.com"}},
                {"name": "conf", "configMap": {"name": "conf"}},
            ]
        },
        ownerReferences=[
            {"kind": "Node", "name": "n", "uid": "u"},
            {"kind": "StatefulSet", "name": "web", "uid": "u", "controller": True},
        ],
    )
    assert found.claims == ("data-web-0", "web-0-scratch")
    assert found.inline_drivers == ("secrets.example.com",)
    assert found.owner == objects.Owner("StatefulSet", "web", "u")
    assert found.title == "shop/web-0"


@pytest.mark.parametrize(
    ("phase", "states", "terminal"),
    [
        ("Running", [{"running": {}}], False),
        ("Pending", [], False),
        ("Succeeded", [{"terminated": {}}], True),
        ("Failed", [{"terminated": {}}, {"waiting": {"reason": "ContainerCreating"}}], True),
        ("Failed", [], True),
        # The node controller may say Failed while the containers still run.
        ("Failed", [{"terminated": {}}, {"running": {}}], False),
        ("Failed", [{}], False),
        ("Running", [{"terminated": {}}], False),
    ],
)
@pytest.mark.parametrize("deleted", [None, "2026-01-31T10:00:00Z"])
def test_when_a_pod_needs_its_volumes_no_more(
    phase: str, states: list[dict[str, Any]], terminal: bool, deleted: str | None
) -> None:
    found = pod(
        status={"phase": phase, "containerStatuses": [{"state": state} for state in states]},
        deletionTimestamp=deleted,
    )
    assert found.terminal is terminal


def test_containers_of_every_sort_count() -> None:
    for kind in ("initContainerStatuses", "ephemeralContainerStatuses"):
        assert pod(status={"phase": "Failed", kind: [{"state": {"running": {}}}]}).alive


def test_why_containers_wait() -> None:
    states = [{"state": {"waiting": {"reason": "ContainerCreating"}}}, {"state": {"running": {}}}]
    assert pod(status={"containerStatuses": states}).waiting == ("ContainerCreating",)


def test_since_when_a_pod_has_its_node() -> None:
    later = "2026-01-31T10:05:00Z"
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": later}]
    assert pod({"nodeName": "n"}, {"conditions": conditions}).scheduled == TEN + timedelta(
        minutes=5
    )
    assert pod({"nodeName": "n"}).scheduled == TEN
    assert (
        pod(
            status={
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "lastTransitionTime": later}
                ]
            }
        ).scheduled
        is None
    )


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": objects.HOLD, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, False),
        # Without an operator it is Equal, and without a value that of our taint, which has none.
        ({"key": objects.HOLD, "effect": "NoSchedule"}, True),
        ({"key": objects.HOLD, "operator": "Equal", "value": ""}, True),
        ({"key": objects.HOLD, "operator": "Equal", "value": "yes"}, False),
        ({"key": objects.HOLD, "operator": "Lt", "value": ""}, False),
        ({"operator": "Equal", "effect": "NoSchedule"}, False),
    ],
)
def test_our_taint_does_not_stop_every_pod(toleration: dict[str, str], tolerates: bool) -> None:
    assert pod({"tolerations": [toleration]}).tolerates_hold is tolerates


def test_the_owner_of_a_pod_has_an_api_group() -> None:
    reference = {"kind": "Cluster", "name": "pg", "uid": "u", "controller": True}
    for version, group in (("postgresql.cnpg.io/v1", "postgresql.cnpg.io"), ("v1", "")):
        found = pod(ownerReferences=[{**reference, "apiVersion": version}]).owner
        assert found == objects.Owner("Cluster", "pg", "u", group)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "rpc error: code = FailedPrecondition desc = x"}, "FailedPrecondition"),
        ({"message": "x", "errorCode": 9}, "FailedPrecondition"),
        (
            {
                "message": "rpc error: code = Internal desc = rpc error: "
                "code = FailedPrecondition desc = x"
            },
            "Internal",
        ),
        ({"message": "x", "errorCode": 13}, ""),
    ],
)
def test_the_code_of_an_error(error: dict[str, Any], code: str) -> None:
    item = {
        "metadata": META,
        "spec": {"attacher": "x", "nodeName": "n"},
        "status": {"attachError": error},
    }
    found = objects.pick_attachment(item).attach_error
    assert found is not None and found.code == code


@pytest.mark.parametrize(
    ("phase", "named", "is_bound"),
    [
        ("Bound", ("shop", "data", "c"), True),
        ("Bound", None, True),
        ("Bound", ("shop", "data", "old"), False),
        ("Bound", ("shop", "data", ""), False),
        ("Bound", ("shop", "other", "c"), False),
        ("Bound", ("bank", "data", "c"), False),
        ("Bound", ("", "", ""), False),
        ("Pending", ("shop", "data", "c"), False),
        ("Lost", ("shop", "data", "c"), False),
        ("Lost", None, False),
        ("", None, False),
    ],
)
def test_a_claim_is_bound_if_both_sides_say_so(
    phase: str, named: tuple[str, str, str] | None, is_bound: bool
) -> None:
    """``named``: the claim in the volume; None if that is gone."""
    meta = {"namespace": "shop", "name": "data", "uid": "c"}
    spec = {"volumeName": "pv"}
    claim = objects.pick_claim({"metadata": meta, "spec": spec, "status": {"phase": phase}})
    namespace, name, uid = named or ("", "", "")
    reference = {"namespace": namespace, "name": name, "uid": uid} if named else {}
    volume = objects.pick_volume(
        {"metadata": {"name": "pv", "uid": "u"}, "spec": {"claimRef": reference}}
    )
    assert objects.is_bound(claim, volume if named else None) is is_bound


def test_the_rest() -> None:
    claim = objects.pick_claim(
        {
            "metadata": META,
            "spec": {"volumeName": "pv", "storageClassName": "gold"},
            "status": {"phase": "Bound"},
        }
    )
    assert (claim.namespace, claim.name, claim.volume, claim.storage_class, claim.phase) == (
        "shop",
        "web-0",
        "pv",
        "gold",
        "Bound",
    )
    assert objects.pick_driver({"metadata": {"name": "x"}}).attach_required
    assert objects.pick_driver(
        {"metadata": {"name": "x"}, "spec": {"attachRequired": True}}
    ).attach_required
    assert not objects.pick_driver(
        {"metadata": {"name": "x"}, "spec": {"attachRequired": False}}
    ).attach_required
    assert objects.pick_node_drivers(
        {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "x"}]}}
    ).drivers == ("x",)
    assert (
        objects.pick_node_drivers({"metadata": {"name": "n"}, "spec": {"drivers": None}}).drivers
        == ()
    )
    lease = objects.pick_lease(
        {
            "metadata": {"name": "m", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "holderIdentity": "cp1_x",
                "renewTime": "2026-01-31T10:00:00.000000Z",
                "leaseDurationSeconds": 15,
            },
        }
    )
    assert lease == objects.Lease("cp1_x", TEN, 15, "m", "u", "7")
    assert lease.until == TEN + timedelta(seconds=15) and objects.Lease("", None).until is None
    for until, over in ((None, True), (TEN, False), (TEN - timedelta(microseconds=1), True)):
        assert objects.is_over(until, TEN) is over
