# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom a finding affects, from what its evidence names and what the cluster says of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance.affected import (
    MAX_NAMED,
    Users,
    affected_by,
    named_by,
    question,
    read_users,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.users import (
    MAX_PODS,
    MAX_VOLUMES,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.results import HOSTILE

UID = "8d3f6f0e-0b7c-4a86-9d0f-0c1e2b3a4d5e"
OTHER = "11111111-0b7c-4a86-9d0f-0c1e2b3a4d5e"
KUBELET = "/var/lib/kubelet"
PUBLISHED = f"{KUBELET}/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount"


def finding(control: str = "STOR-05", reason: str = "", **evidence: Any) -> dict[str, Any]:
    thing = {"kind": "FUSE mount", "namespace": "", "name": "a mount", "node": "n1"}
    return {
        "control": control,
        "host": "worker01",
        "object": thing,
        "evidence": evidence,
        "reason": reason,
    }


def answer(pods: list[dict[str, Any]], number: int | None = None) -> Users:
    """The answer about pvc-1 of shop/data."""
    count = len(pods) if number is None else number
    volumes = [{"name": "pvc-1", "claim": "shop/data", "pods": count}]
    return read_users({"volumes": volumes, "pods": pods})


def pod(uid: str, name: str, node: str = "n1", owner: str = "Deployment web") -> dict[str, Any]:
    return {
        "uid": uid,
        "namespace": "shop",
        "name": name,
        "node": node,
        "owner": owner,
        "claims": ["shop/data"],
    }


@pytest.mark.parametrize(
    ("evidence", "volumes", "pods"),
    [
        ({"mounts": [f"{PUBLISHED} (publish)"]}, ("pvc-1",), (UID,)),
        ({"mounts": [{"mount_path": "/data", "host_path": PUBLISHED}]}, ("pvc-1",), (UID,)),
        ({"points": [f"{KUBELET}/pods/{UID}/volume-subpaths/pvc-1/app/0"]}, ("pvc-1",), (UID,)),
        ({"points": ["/k/plugins/kubernetes.io/csi/pv/pvc-1/globalmount"]}, ("pvc-1",), ()),
        ({"points": [f"/k/pods/{UID}/volumeDevices/kubernetes.io~csi/pvc-1"]}, ("pvc-1",), (UID,)),
        (
            {"mounts_on_this_node": [f"/k/pods/{UID}/volumes/kubernetes.io~nfs/nas"]},
            ("nas",),
            (UID,),
        ),
        ({"volumes": ["pvc-1"], "pods": [UID]}, ("pvc-1",), (UID,)),
        ({"volumes": ["pvc-1 (shop/data, rbd.csi.ceph.com)"]}, ("pvc-1",), ()),
        # Of an attachment, pods are told by name and age.
        ({"volume": "pvc-1", "pods": ["shop/web-0 Running, 3 d old"]}, ("pvc-1",), ()),
        # Maps whose LUNs were swapped.
        ({"volumes": [{"name": "mpatha", "wwid": "36001"}]}, (), ()),
        # Others' mounts, to compare with.
        ({"hanging_mounts": [PUBLISHED], "layers": [{"source": PUBLISHED}]}, (), ()),
        ({"mounts": None, "volumes": 7, "pod": ["", {"a": [HOSTILE]}]}, (), ()),
    ],
)
def test_evidence_names_volumes_and_pods(
    evidence: dict[str, Any], volumes: tuple[str, ...], pods: tuple[str, ...]
) -> None:
    named = named_by(finding(**evidence))
    asked = question([finding(**evidence)])
    assert (tuple(asked["volumes"]), tuple(asked["pods"])) == (volumes, pods)
    # In the folder of a pod, a name may be the pod's own.
    assert named.volumes == (() if pods and "volumes" not in evidence else volumes)


def test_a_map_in_use_names_pods_in_its_reason() -> None:
    told = finding("STOR-02", reason=f"mounted at {PUBLISHED} in the mount namespace of pid 1")
    assert named_by(told).pods == (UID,)


def test_pods_of_the_node_itself_count() -> None:
    users = answer([pod(UID, "web-0"), pod(OTHER, "web-1", node="n2")])
    told = affected_by(finding(mounts=[PUBLISHED]), users)
    assert told == {
        "pods": {"count": 1, "names": ["shop/web-0"]},
        "claims": {"count": 1, "names": ["shop/data"]},
        "namespaces": {"count": 1, "names": ["shop"]},
        "owners": {"count": 1, "names": ["Deployment shop/web"]},
        "complete": True,
    }
    # A node's staging mount is no other node's.
    staged = finding(volumes=["pvc-1"])
    assert affected_by(staged, users)["pods"]["names"] == ["shop/web-0"]
    # An attachment is its volume's, wherever the pods are.
    attachment = finding("STOR-14", volume="pvc-1", claim="shop/data")
    assert affected_by(attachment, users)["pods"]["names"] == ["shop/web-0", "shop/web-1"]


@pytest.mark.parametrize(
    "path",
    [
        PUBLISHED,
        PUBLISHED.replace("~csi", "~empty-dir").rpartition("/")[0],
        f"{KUBELET}/pods/{UID}/volume-subpaths/pvc-1/app/0",
    ],
)
def test_a_pods_own_volume_affects_no_other_of_its_name(path: str) -> None:
    """A tenant may name one like a PersistentVolume, whose claim was told as affected."""
    users = answer([pod(OTHER, "web-1"), {**pod(UID, "evil"), "namespace": "evil", "claims": []}])
    told = affected_by(finding(mounts=[path]), users)
    assert told["pods"]["names"] == ["evil/evil"]
    assert told["namespaces"]["names"] == ["evil"] and "claims" not in told
    mine = affected_by(finding(mounts=[path.replace(UID, OTHER)]), users)
    assert mine["claims"]["names"] == ["shop/data"]


def test_many_pods_are_counted() -> None:
    users = answer([pod(f"{UID}{n}", f"web-{n}") for n in range(20)], 10_000)
    told = affected_by(finding("STOR-14", volume="pvc-1"), users)
    assert told["pods"]["count"] == 10_000 and len(told["pods"]["names"]) == MAX_NAMED
    assert told["owners"] == {"count": 1, "names": ["Deployment shop/web"]}
    assert not told["complete"]


@pytest.mark.parametrize(
    "told",
    [
        finding(mounts=[PUBLISHED, "(+7 more)"]),
        finding(volumes=["pvc-1"], cut="left out, since the result is too long"),
        finding(volumes=["pvc-1", "pvc-2"]),
        finding(pods=[UID, OTHER]),
        # It names neither a volume nor a pod, but workloads may be affected all the same.
        finding("STOR-04"),
    ],
)
def test_what_is_not_all_says_so(told: dict[str, Any]) -> None:
    users = answer([pod(UID, "web-0")])
    assert affected_by(told, users)["complete"] is False


def test_without_the_cluster_the_evidence_alone_counts() -> None:
    told = affected_by(finding(mounts=[PUBLISHED], claim="shop/data"), Users())
    assert told["pods"] == {"count": 1, "names": []} and not told["complete"]
    assert told["claims"]["names"] == ["shop/data"] and told["namespaces"]["names"] == ["shop"]
    assert "owners" not in told


def test_the_question_has_a_limit() -> None:
    volumes = [f"pvc-{number}" for number in range(MAX_VOLUMES + 5)]
    pods = [f"{UID}-{number}" for number in range(MAX_PODS + 5)]
    asked = question([finding(volumes=volumes, pods=pods), finding(volumes=volumes)])
    assert asked == {"volumes": volumes[:MAX_VOLUMES], "pods": pods[:MAX_PODS]}


def test_one_host_leaves_room_for_the_names_of_others() -> None:
    """A node writes the evidence of its findings, and may have any number of them."""
    theirs = [
        {
            **finding(
                volumes=[f"pvc-{number}-{one}" for one in range(50)],
                pods=[f"{UID}-{number}-{one}" for one in range(50)],
            ),
            "host": "evil",
        }
        for number in range(MAX_PODS)
    ]
    asked = question([*theirs, finding(volumes=["pvc-1"], pods=[UID]), finding(volumes=["pvc-2"])])
    assert asked["volumes"][:4] == ["pvc-0-0", "pvc-1", "pvc-0-1", "pvc-2"]
    assert asked["pods"][:3] == [f"{UID}-0-0", UID, f"{UID}-0-1"]
    assert (len(asked["volumes"]), len(asked["pods"])) == (MAX_VOLUMES, MAX_PODS)
    # It gains nothing by naming the same again.
    asked = question([*theirs, *theirs, finding(volumes=["pvc-1", "pvc-2", "pvc-3"])])
    assert asked["volumes"][1:7:2] == ["pvc-1", "pvc-2", "pvc-3"]


def test_one_namespace_leaves_room_for_the_names_of_others_on_a_host() -> None:
    def of(namespace: str, name: str, **evidence: Any) -> dict[str, Any]:
        told = finding(volumes=[name], **evidence)
        return {**told, "object": {**told["object"], "namespace": namespace}}

    theirs = [of("evil", f"pvc-e{number}") for number in range(MAX_VOLUMES)]
    more = [of("", "pvc-1", claim="shop/data"), of("shop", "pvc-2")]
    assert question([*theirs, *more])["volumes"][:4] == ["pvc-e0", "pvc-1", "pvc-e1", "pvc-2"]


@pytest.mark.parametrize("told", [None, {}, {"pods": "all"}, {"skipped": True}, {"msg": "no"}])
def test_no_answer_is_no_knowledge(told: Any) -> None:
    assert read_users(told) == Users()


@pytest.mark.parametrize(
    "told",
    [
        {"pods": [1], "volumes": []},
        {"pods": [], "volumes": None},
        {"pods": [], "volumes": [{"name": "pvc-1", "claim": "a/b", "pods": "many"}]},
    ],
)
def test_a_wrong_answer_is_told(told: Any) -> None:
    with pytest.raises(ValueError, match="is not one of volume_user_info"):
        read_users(told)


def test_names_of_tenants_are_text() -> None:
    users = answer([pod(UID, "web\u202e-0\x1b[31m", owner="Deployment \x07web")])
    told = affected_by(finding(mounts=[PUBLISHED]), users)
    assert told["pods"]["names"] == ["shop/web\\u202e-0\\x1b[31m"]
    assert told["owners"]["names"] == ["Deployment shop/\\x07web"]
