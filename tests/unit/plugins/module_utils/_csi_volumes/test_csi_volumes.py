# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The join of CSI volumes over an API server in memory: what is read, what belongs together, and
what is never told.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.runbook import (
    OPTIONS_SPEC,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes import (
    runbook as csi_volumes,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.plan import (
    sources,
    without_secrets,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.runbook import (
    CsiVolumes,
    volume_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.secrets import (
    masked,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    VolumeNote,
    classify,
    staging_points,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

DRIVER = "ru.yandex.s3.csi"
PODS = "/var/lib/kubelet/pods"
STAGE = "csi.storage.k8s.io/node-stage-secret-"
PUBLISH = "csi.storage.k8s.io/node-publish-secret-"
REFERENCE = {"nodeStageSecretRef": {"namespace": "kube-system", "name": "s3"}}


def volume(
    name: str = "pv-1",
    claim: str = "data",
    driver: str = DRIVER,
    namespace: str = "shop",
    **csi: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "s3",
            "mountOptions": ["ro"],
            "claimRef": {"namespace": namespace, "name": claim, "uid": f"uid-{claim}"},
            "csi": {"driver": driver, "volumeHandle": f"bucket/{name}", **csi},
        },
    }


def claim(
    name: str = "data", volume_name: str = "pv-1", namespace: str = "shop", **annotations: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": annotations,
        },
        "spec": {"volumeName": volume_name},
        "status": {"phase": "Bound"},
    }


def reserved() -> dict[str, Any]:
    found = volume()
    del found["spec"]["claimRef"]["uid"]
    return found


def storage_class(**parameters: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "s3"},
        "parameters": parameters,
    }


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def pod(
    name: str = "web-0",
    on: str = "worker-1",
    claim_name: str = "data",
    namespace: str = "shop",
    **spec: Any,
) -> dict[str, Any]:
    container = {
        "name": "main",
        "volumeMounts": [
            {"name": "etc", "mountPath": "/etc/x"},
            {"name": "files", "mountPath": "/data"},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "ownerReferences": [
                {"controller": True, "kind": "ReplicaSet", "name": "web", "uid": "u"}
            ],
        },
        "spec": {
            "nodeName": on,
            "containers": [container],
            "volumes": [
                {"name": "etc", "configMap": {}},
                {"name": "files", "persistentVolumeClaim": {"claimName": claim_name}},
            ],
            **spec,
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "containerID": "containerd://abc"}],
        },
    }


def listed(*objects: dict[str, Any], **options: Any) -> dict[str, Any]:
    """What csi_volume_info returns."""
    return looked_at(FakeCluster(*objects), **options).facts()


def looked_at(cluster: FakeCluster, **options: Any) -> CsiVolumes:
    audit, plan = judged(cluster, **options)
    assert plan.findings == []
    return audit


def judged(cluster: FakeCluster, **options: Any) -> tuple[CsiVolumes, Plan]:
    """What csi_volume_info tells, and what it says of who was left out."""
    params: dict[str, Any] = {
        "provisioners": [],
        "nodes": [],
        "namespaces": [],
        "claims": [],
        "kubelet_root": "/var/lib/kubelet",
    }
    audit = CsiVolumes(cluster, volume_options({**params, **options}))  # type: ignore[arg-type]
    state = audit.gather()
    plan = audit.plan(state)
    assert audit.healthy(state)
    return audit, plan


def only(*objects: dict[str, Any], **options: Any) -> dict[str, Any]:
    (found,) = listed(*objects, **options)["volumes"]
    return dict(found)


def names(facts: dict[str, Any]) -> list[str]:
    return [entry["volume"] for entry in facts["volumes"]]


def test_the_whole_chain() -> None:
    found = only(
        volume(**REFERENCE, volumeAttributes={"mounter": "geesefs"}),
        claim(),
        storage_class(bucket="bucket"),
        pod(),
    )
    digest = hashlib.sha256(b"bucket/pv-1").hexdigest()
    assert found == {
        "volume": "pv-1",
        "driver": DRIVER,
        "handle": "bucket/pv-1",
        "claim": "data",
        "namespace": "shop",
        "storage_class": "s3",
        "access_modes": ["ReadWriteMany"],
        "read_only": False,
        "mount_options": ["ro"],
        "attributes": {"mounter": "geesefs"},
        "parameters": {"bucket": "bucket"},
        "sources": ["bucket/pv-1"],
        "secret": {"namespace": "kube-system", "name": "s3"},
        "problems": [],
        "staging": [
            f"/var/lib/kubelet/plugins/kubernetes.io/csi/{DRIVER}/{digest}/globalmount",
            "/var/lib/kubelet/plugins/kubernetes.io/csi/pv/pv-1/globalmount",
        ],
        "pods": [
            {
                "name": "web-0",
                "namespace": "shop",
                "uid": "uid-web-0",
                "node": "worker-1",
                "phase": "Running",
                "terminating": False,
                "overdue": 0,
                "owner": {"kind": "ReplicaSet", "name": "web"},
                "containers": [
                    {
                        "name": "main",
                        "id": "abc",
                        "mount_path": "/data",
                        "sub_path": "",
                        "read_only": False,
                        "propagation": "None",
                        "probe": False,
                        "restart_policy": "Always",
                        "host_path": f"{PODS}/uid-web-0/volumes/kubernetes.io~csi/pv-1/mount",
                    }
                ],
                "paths": {
                    "publish": f"{PODS}/uid-web-0/volumes/kubernetes.io~csi/pv-1/mount",
                    "subpaths": [],
                },
            }
        ],
    }


def test_containers_as_the_node_is_told_them() -> None:
    leaving, over = pod("web-1"), pod("web-2")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    over["status"]["phase"] = "Succeeded"
    facts = listed(volume(), claim(), storage_class(), pod(), leaving, over)
    assert facts["containers"] == [
        {
            "pod": "uid-web-0",
            "namespace": "shop",
            "pod_name": "web-0",
            "container": "main",
            "volume": "pv-1",
            "claim": "data",
            "id": "abc",
            "mount_path": "/data",
            "host_path": f"{PODS}/uid-web-0/volumes/kubernetes.io~csi/pv-1/mount",
            "probe": False,
            "restart_policy": "Always",
        }
    ]
    assert set(facts["containers"][0]) == set(OPTIONS_SPEC.options["containers"]["options"])


def test_the_paths_are_those_that_the_node_knows() -> None:
    mounts = [
        {"name": "files", "mountPath": "/all"},
        {"name": "files", "mountPath": "/part", "subPath": "a/b"},
    ]
    found = only(
        volume(),
        claim(),
        storage_class(),
        pod(containers=[{"name": "main", "volumeMounts": mounts}]),
        kubelet_root="/data/kubelet/",
    )
    note = VolumeNote(DRIVER, "bucket/pv-1", "pv-1")
    older = f"{found['staging'][1].rpartition('/')[0]}/vol_data.json"
    told = staging_points(note, {older: VolumeNote(DRIVER, "bucket/pv-1")}, "/data/kubelet")
    assert found["staging"] == list(told)
    paths = found["pods"][0]["paths"]
    publish = classify(paths["publish"], "/data/kubelet")
    assert publish and (publish.kind, publish.pod, publish.volume) == (
        "publish",
        "uid-web-0",
        "pv-1",
    )
    (path,) = paths["subpaths"]
    subpath = classify(path, "/data/kubelet")
    assert subpath and (subpath.kind, subpath.volume, subpath.container, subpath.index) == (
        "subpath",
        "pv-1",
        "main",
        "1",
    )
    containers = found["pods"][0]["containers"]
    assert [(entry["mount_path"], entry["sub_path"]) for entry in containers] == [
        ("/all", ""),
        ("/part", "a/b"),
    ]
    assert [entry["host_path"] for entry in containers] == [paths["publish"], path]


def test_a_volume_is_of_its_driver_or_of_who_made_it() -> None:
    """And never of whom its claim names: who owns that writes its annotations, and would choose the
    Secrets that are read.
    """
    theirs = {f"volume{beta}.kubernetes.io/storage-provisioner": DRIVER for beta in ("", ".beta")}
    made = volume("pv-2", "b", driver="other")
    made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": DRIVER}
    objects = [
        volume("pv-1", "a"),
        claim("a", "pv-1"),
        made,
        claim("b", "pv-2"),
        volume("pv-3", "c", driver="rook-ceph.rbd.csi.ceph.com", **REFERENCE),
        claim("c", "pv-3", **theirs),
    ]
    assert names(listed(*objects, provisioners=[DRIVER])) == ["pv-1", "pv-2"]
    assert names(listed(*objects)) == ["pv-1", "pv-2", "pv-3"]


def test_scope() -> None:
    objects = [
        volume("pv-1", "a"),
        claim("a", "pv-1"),
        volume("pv-2", "b", namespace="bank"),
        claim("b", "pv-2", "bank"),
    ]
    assert names(listed(*objects, namespaces=["bank"])) == ["pv-2"]
    assert names(listed(*objects, claims=["shop/a"])) == ["pv-1"]
    assert names(listed(*objects, claims=["bank/a"])) == []


def test_only_pods_on_the_nodes_and_other_volumes_are_only_named() -> None:
    objects = [
        volume("pv-1", "a"),
        claim("a", "pv-1"),
        volume("pv-2", "b"),
        claim("b", "pv-2"),
        node("worker-1"),
        node("worker-2"),
    ]
    objects += [
        pod("one", "worker-1", "a"),
        pod("two", "worker-2", "a"),
        pod("three", "worker-2", "b"),
        pod("four", "", "b"),
    ]
    facts = listed(*objects, nodes=["worker-1"])
    assert [entry["name"] for entry in facts["volumes"][0]["pods"]] == ["one"]
    assert facts["unused"] == [{"volume": "pv-2", "driver": DRIVER, "handle": "bucket/pv-2"}]
    everywhere = listed(*objects)
    assert [[entry["name"] for entry in found["pods"]] for found in everywhere["volumes"]] == [
        ["one", "two"],
        ["three"],
    ]
    with pytest.raises(StorageOpsError, match="there is no node worker-3"):
        listed(*objects, nodes=["worker-3"])


@pytest.mark.parametrize(
    "objects",
    [
        [volume(claim="other"), claim()],
        [volume(), {**claim(), "metadata": {**claim()["metadata"], "uid": "another"}}],
        # Reserved for a claim of that name, and not bound yet.
        [reserved(), claim()],
        [volume(), {**claim(), "status": {"phase": "Pending"}}],
        [volume(), {**claim(), "status": {"phase": "Lost"}}],
        [volume(), claim(volume_name="")],
        [claim()],
        [volume()],
        [{**volume(), "spec": {**volume()["spec"], "volumeMode": "Block"}}, claim()],
        [{**volume(), "spec": {**volume()["spec"], "csi": None}}, claim()],
    ],
)
def test_what_is_not_bound_to_each_other_or_has_no_filesystem_is_left_out(
    objects: list[dict[str, Any]],
) -> None:
    assert listed(*objects)["volumes"] == []


def test_pods_are_read_last_and_only_where_such_claims_are() -> None:
    cluster = FakeCluster(
        volume(), claim(), storage_class(), pod(), pod("other", namespace="bank"), node("worker-1")
    )
    looked_at(cluster, nodes=["worker-1"])
    assert cluster.requests[-1] == "list /api/v1/namespaces/shop/pods"
    assert not any("secrets" in request for request in cluster.requests)
    nothing = FakeCluster()
    looked_at(nothing)
    assert not any("pods" in request for request in nothing.requests)


@pytest.mark.parametrize(
    ("made", "refused"), [("2026-01-01T00:00:00Z", False), ("2026-01-01T00:00:01Z", True)]
)
def test_a_node_that_was_made_again_after_its_pods(made: str, refused: bool) -> None:
    again = node("worker-1")
    again["metadata"]["creationTimestamp"] = made
    older, younger = pod(), pod("bank-0", namespace="bank", claim_name="money")
    younger["metadata"]["creationTimestamp"] = "2026-01-01T00:00:02Z"
    # It may be kept by a finalizer, for as long as its owner likes.
    older["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    theirs = volume("pv-2", "money", namespace="bank"), claim("money", "pv-2", "bank"), younger
    cluster = FakeCluster(volume(), claim(), storage_class(), older, *theirs, again)
    audit, plan = judged(cluster, nodes=["worker-1"])
    facts = audit.facts()
    assert names(facts) == (["pv-2"] if refused else ["pv-1", "pv-2"])
    assert facts["left_out"] == (["shop"] if refused else [])
    told = "worker-1 was created again after its pod shop/web-0"
    assert [told in found.reason for found in plan.findings] == [True] * refused


def test_what_may_not_be_read_is_an_error() -> None:
    for part in ("persistentvolumes", "persistentvolumeclaims", "storageclasses", "pods"):
        cluster = FakeCluster(volume(), claim(), storage_class(), pod())

        def deny(verb: str, path: str, part: str = part) -> None:
            if path.endswith(part):
                raise Forbidden(f"may not {verb}", 403)

        cluster.before = deny
        with pytest.raises(Forbidden):
            looked_at(cluster)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["ls", "/data"], True),
        (["cat", "/data/alive"], True),
        (["sh", "-c", "test -e '/data/alive' || exit 1"], True),
        (["sh", "-c", 'D="/data";ls $D'], True),
        (["ls", "/data/cache/x"], False),
        (["ls", "/database"], False),
        (["ls", "/"], False),
        (["pgrep", "main"], False),
        ([], False),
    ],
)
def test_a_probe_that_would_notice(command: list[str], expected: bool) -> None:
    mounts = [{"name": "files", "mountPath": "/data"}, {"name": "etc", "mountPath": "/data/cache"}]
    container = {
        "name": "main",
        "volumeMounts": mounts,
        "livenessProbe": {"exec": {"command": command}},
    }
    found = only(volume(), claim(), storage_class(), pod(containers=[container]))
    assert [entry["probe"] for entry in found["pods"][0]["containers"]] == [expected]


def test_a_probe_of_many_words_is_not_compared_with_each_of_many_mounts() -> None:
    """A pod of a megabyte, 10,000 mounts and 350,000 words, took six minutes, and a tenant may have
    many.
    """
    looked = 0

    class Path(str):
        def rstrip(self, characters: str | None = None, /) -> str:
            nonlocal looked
            looked += 1
            return str.rstrip(self, characters)

    mounts = [{"name": "files", "mountPath": Path(f"/data/{number}")} for number in range(100)]
    words = " ".join(f"/data/{number}/x" for number in range(50, 150))
    container = {
        "name": "main",
        "volumeMounts": mounts,
        "livenessProbe": {"exec": {"command": [words]}},
    }
    found = only(volume(), claim(), storage_class(), pod(containers=[container]))
    probed = [entry["probe"] for entry in found["pods"][0]["containers"]]
    assert probed == [False] * 50 + [True] * 50
    assert looked <= 2 * len(mounts)


@pytest.mark.parametrize(
    ("before", "wanted"), [("test -e", True), ("/" * 8_000, True), ("/" * 8_200, False)]
)
def test_a_probe_is_looked_at_as_far_as_an_honest_one_goes(before: str, wanted: bool) -> None:
    """A pod may have a megabyte of slashes there, and each word was cut at each of them."""
    container = {
        "name": "main",
        "volumeMounts": [{"name": "files", "mountPath": "/data"}],
        "livenessProbe": {"exec": {"command": [before, "/data/x"]}},
    }
    found = only(volume(), claim(), storage_class(), pod(containers=[container]))
    assert [entry["probe"] for entry in found["pods"][0]["containers"]] == [wanted]


def test_the_mounts_of_a_pod_are_not_compared_with_each_of_its_volumes() -> None:
    """Nor with claims that do not exist, of which a pod may name 50,000."""
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

        __hash__ = str.__hash__

    numbers = range(100)
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": Name(f"c{number}")}}
        for number in range(200)
    ]
    mounts = [{"name": f"v{number}", "mountPath": f"/data/{number}"} for number in numbers]
    container = {"name": "main", "volumeMounts": mounts}
    bound = [volume(f"pv-{number}", f"c{number}") for number in numbers]
    bound += [claim(f"c{number}", f"pv-{number}") for number in numbers]
    found = listed(*bound, storage_class(), pod(volumes=volumes, containers=[container]))
    told = {one["claim"]: one["pods"][0]["containers"] for one in found["volumes"]}
    assert {name: [each["mount_path"] for each in those] for name, those in told.items()} == {
        f"c{number}": [f"/data/{number}"] for number in numbers
    }
    assert compared <= 5 * len(volumes)


def test_a_probe_by_http_does_not_notice() -> None:
    container = {
        "name": "main",
        "volumeMounts": [{"name": "files", "mountPath": "/"}],
        "livenessProbe": {"httpGet": {"path": "/data"}},
    }
    found = only(volume(), claim(), storage_class(), pod(containers=[container]))
    assert [entry["probe"] for entry in found["pods"][0]["containers"]] == [False]


def test_init_containers_count_only_if_they_go_on_running() -> None:
    mount = [
        {
            "name": "files",
            "mountPath": "/data",
            "mountPropagation": "HostToContainer",
            "readOnly": True,
        }
    ]
    found = only(
        volume(),
        claim(),
        storage_class(),
        pod(
            restartPolicy="OnFailure",
            initContainers=[
                {"name": "setup", "volumeMounts": mount},
                {"name": "log", "volumeMounts": mount, "restartPolicy": "Always"},
            ],
            containers=[{"name": "main", "volumeMounts": mount}],
            ephemeralContainers=[{"name": "debug", "volumeMounts": mount}],
        ),
    )
    containers = found["pods"][0]["containers"]
    assert [(entry["name"], entry["restart_policy"]) for entry in containers] == [
        ("log", "Always"),
        ("main", "OnFailure"),
        ("debug", "Never"),
    ]
    assert {(entry["propagation"], entry["read_only"]) for entry in containers} == {
        ("HostToContainer", True)
    }


def test_a_pod_that_is_being_deleted_and_a_generic_ephemeral_volume() -> None:
    leaving = pod(volumes=[{"name": "files", "ephemeral": {"volumeClaimTemplate": {}}}])
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = only(volume(claim="web-0-files"), claim("web-0-files"), storage_class(), leaving)
    (entry,) = found["pods"]
    assert entry["terminating"] is True
    assert entry["overdue"] > 3600


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {f"{STAGE}name": "s3", f"{STAGE}namespace": "kube-system"},
            {"namespace": "kube-system", "name": "s3"},
        ),
        (
            {f"{STAGE}name": "${pvc.name}", f"{STAGE}namespace": "${pvc.namespace}"},
            {"namespace": "shop", "name": "data"},
        ),
        (
            {f"{STAGE}name": "s3-${pv.name}", f"{STAGE}namespace": "x"},
            {"namespace": "x", "name": "s3-pv-1"},
        ),
        ({f"{PUBLISH}name": "s3", f"{PUBLISH}namespace": "y"}, {"namespace": "y", "name": "s3"}),
        (
            {
                f"{STAGE}name": "a",
                f"{STAGE}namespace": "b",
                f"{PUBLISH}name": "c",
                f"{PUBLISH}namespace": "d",
            },
            {"namespace": "b", "name": "a"},
        ),
        ({}, {}),
    ],
)
def test_secrets_by_the_templates_of_the_class(
    parameters: dict[str, str], expected: dict[str, str]
) -> None:
    found = only(volume(), claim(**{"team/secret": "mine"}), storage_class(**parameters))
    assert (found["secret"], found["problems"]) == (expected, [])


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        # Its owner may have changed it since, to have the credentials of another tenant used.
        (
            {f"{STAGE}name": "${pvc.annotations['team/secret']}", f"{STAGE}namespace": "x"},
            "has a variable that only the provisioner may use",
        ),
        (
            {f"{STAGE}name": "${pvc.name}/../x", f"{STAGE}namespace": "x"},
            "which is not a valid name for this claim",
        ),
        # A namespace that the claim's owner could choose is no template of Kubernetes'.
        (
            {f"{STAGE}name": "s3", f"{STAGE}namespace": "${pvc.annotations['team/secret']}"},
            "has a variable that only the provisioner may use",
        ),
        ({f"{STAGE}name": "s3"}, "has only one of"),
    ],
)
def test_secrets_that_are_not_known(parameters: dict[str, str], problem: str) -> None:
    found = only(
        volume(),
        claim(**{"team/secret": "theirs"}),
        storage_class(**parameters),
    )
    assert found["secret"] == {}
    assert problem in found["problems"][0]


def test_a_class_that_is_gone_is_told_and_the_volume_names_its_secret_itself() -> None:
    found = only(volume(nodePublishSecretRef={"namespace": "a", "name": "b"}), claim())
    assert found["secret"] == {"namespace": "a", "name": "b"}
    assert found["problems"] == [
        "StorageClass s3 does not exist any more, so its parameters are unknown"
    ]


@pytest.mark.parametrize(
    ("attributes", "parameters", "handle", "expected"),
    [
        # The driver was told for this volume.
        ({"bucket": "mine"}, {"bucket": "shared"}, "vol-1", ["mine"]),
        ({"bucketName": "mine", "path": "/a/b/"}, {}, "vol-1", ["mine/a/b"]),
        # Of csi-rclone, the remote is no bucket.
        ({"remote": "s3", "remotePath": "mine/a"}, {}, "vol-1", ["mine/a"]),
        # A folder in a bucket that many share, as the handle has it.
        ({"bucket": "shared"}, {}, "shared/pvc-1", ["shared/pvc-1"]),
        ({}, {"bucket": "shared"}, "shared/pvc-1", ["shared/pvc-1"]),
        # Which folder of the shared bucket, nobody says.
        ({}, {"bucket": "shared"}, "pvc-1", ["shared", "pvc-1"]),
        # Another bucket whose name only begins the same.
        ({}, {"bucket": "share"}, "shared/pvc-1", ["share", "shared/pvc-1"]),
        ({"bucket": "a", "bucketName": "b"}, {}, "vol-1", ["a", "b"]),
        ({"bucket": "a", "path": "x", "prefix": "y"}, {}, "vol-1", ["a/x", "a/y"]),
        ({"bucket": "a", "bucketName": "a"}, {}, "vol-1", ["a"]),
        ({"mounter": "s3fs"}, {"mounter": "s3fs"}, "pvc-1", ["pvc-1"]),
        ({"bucket": "", "path": "/"}, {}, "pvc-1", ["pvc-1"]),
    ],
)
def test_what_a_volume_may_be(
    attributes: dict[str, str], parameters: dict[str, str], handle: str, expected: list[str]
) -> None:
    assert sources(attributes, parameters, handle) == expected


def test_a_driver_that_may_have_a_folder_in_each_volume() -> None:
    found = only(volume(driver="ch.ctrox.csi.s3-driver"), claim(), storage_class(bucket="bucket"))
    assert found["sources"] == ["bucket/pv-1", "bucket/pv-1/csi-fs"]


def shares() -> list[dict[str, Any]]:
    """A node with a volume of shop's, and of evil's a pod with 40 mounts and 40 volumes that no pod
    has.
    """
    mounts = [{"name": "files", "mountPath": f"/{number}"} for number in range(40)]
    objects = [node("worker-1"), storage_class()]
    objects += [volume(), claim(), pod()]
    objects += [volume("pv-2", "huge", namespace="evil"), claim("huge", "pv-2", "evil")]
    objects += [
        pod(
            "huge",
            claim_name="huge",
            namespace="evil",
            containers=[{"name": "main", "volumeMounts": mounts}],
        )
    ]
    for number in range(40):
        objects += [
            volume(f"pv-u{number}", f"u{number}", namespace="unused"),
            claim(f"u{number}", f"pv-u{number}", "unused"),
        ]
    return objects


@pytest.mark.parametrize(
    ("room", "left_out"),
    [
        (50_000, []),
        (8_000, ["evil"]),
        (2_500, ["evil", "unused"]),
        (100, ["evil", "shop", "unused"]),
    ],
)
def test_of_a_list_that_is_too_long_the_largest_namespaces_are_left_out(
    monkeypatch: pytest.MonkeyPatch, room: int, left_out: list[str]
) -> None:
    monkeypatch.setattr(csi_volumes, "MAX_RESULT_CHARACTERS", room)
    audit, plan = judged(FakeCluster(*shares()), nodes=["worker-1"])
    facts = audit.facts()
    assert len(json.dumps({**facts, "left_out": []})) <= max(room, 100)
    assert facts["left_out"] == left_out
    assert ("pv-1" in names(facts)) is ("shop" not in left_out)
    assert ("pv-2" in names(facts)) is ("evil" not in left_out)
    assert {entry["pod_name"] for entry in facts["containers"]} == {
        *({"web-0"} - ({"web-0"} if "shop" in left_out else set())),
        *(set() if "evil" in left_out else {"huge"}),
    }
    assert bool(facts["unused"]) is ("unused" not in left_out)
    # Whoever is left out is named, and was not looked at.
    told = [(found.kind, found.name, found.verdict, found.node) for found in plan.findings]
    assert told == [("Namespace", name, "report", "worker-1") for name in left_out]
    assert all("too long for AWX" in found.reason for found in plan.findings)


def test_nothing_is_left_out_that_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what has none is, to the character, whatever a pod has the most of."""
    length = len(json.dumps(listed(*shares(), nodes=["worker-1"])))
    for room, left_out in ((length + 200, []), (length - 100, ["evil"])):
        monkeypatch.setattr(csi_volumes, "MAX_RESULT_CHARACTERS", room)
        audit, _plan = judged(FakeCluster(*shares()), nodes=["worker-1"])
        assert audit.facts()["left_out"] == left_out


def test_credentials_in_attributes_are_hidden() -> None:
    told = {
        "akId": "planted",
        "akSecret": "planted",
        "secretAccessKey": "planted",
        "access_key": "planted",
        "SessionToken": "planted",
        "sseCustomerKey": "planted",
        "metaurl": "redis://:pl/anted@planted@10.0.0.1/1",
        "options": "--secret-key planted -o passwd=planted,umask=022 --token='planted planted'",
    }
    plain = {
        "bucket": "b",
        "endpoint": "https://s3.example.com",
        f"{STAGE}name": "s3",
        "secretName": "s3",
        "everest.io/region": "eu",
        "otherOpts": "-o umask=022",
    }
    hidden = without_secrets({**told, **plain})
    assert "planted" not in json.dumps(hidden)
    assert {key: hidden[key] for key in plain} == plain
    assert hidden["metaurl"] == "redis://(hidden)@10.0.0.1/1"
    assert (
        hidden["options"] == "--secret-key (hidden) -o passwd=(hidden),umask=022 --token=(hidden)"
    )
    mounted = volume(volumeAttributes=told)
    mounted["spec"]["mountOptions"] = ["allow_other", "secret_key=planted"]
    found = only(mounted, claim(), storage_class(**told))
    assert found["mount_options"] == ["allow_other", "secret_key=(hidden)"]
    assert "planted" not in json.dumps(found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("foo=passwd=planted,b=secret", "foo=passwd=(hidden),b=secret"),
        ("-o token='planted x',a -secret  planted", "-o token=(hidden),a -secret  (hidden)"),
        ("--secret -o a x-token y", "--secret -o a x-token y"),
        ("passwd=,a passwd= b", "passwd=,a passwd= (hidden)"),
        # INI, YAML and JSON.
        (
            "[s3]\ntype = s3\nsecret_access_key = planted\nregion = eu",
            "[s3]\ntype = s3\nsecret_access_key = (hidden)\nregion = eu",
        ),
        ("user: a\npassword:  planted\nurl: b", "user: a\npassword:  (hidden)\nurl: b"),
        ('{"secretKey": "planted x", "a": 1}', '{"secretKey": (hidden), "a": 1}'),
        ("user=a,pass=planted", "user=a,pass=(hidden)"),
        ("accountkey=planted", "accountkey=(hidden)"),
        ("--sftp-pass planted", "--sftp-pass (hidden)"),
        ("token='planted", "token=(hidden)"),
        (
            "--s3-sse-customer-key=planted --s3-sse-customer-key-base64 planted",
            "--s3-sse-customer-key=(hidden) --s3-sse-customer-key-base64 (hidden)",
        ),
        ("-o ro,ssl_client_cert=/c:PEM:/k:PEM:planted", "-o ro,ssl_client_cert=(hidden)"),
        (
            "ssl_client_cert=/c:PEM:/k:PEM,--sse-c=planted",
            "ssl_client_cert=/c:PEM:/k:PEM,--sse-c=(hidden)",
        ),
        ("password=token=planted secret", "password=(hidden) secret"),
        ("a://b c://d:planted@e,f://planted@g", "a://b c://(hidden)@g"),
        ("akid" * 2000, "(hidden, 8000 characters)"),
        ("akid" * 1000, "akid" * 1000),
        (f"{'akid' * 1000}=planted", f"{'akid' * 1000}=(hidden)"),
    ],
)
def test_credentials_in_a_text(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nodes": [" "]}, "nodes has an empty name"),
        ({"claims": ["data"]}, "as namespace/name, not as 'data'"),
        ({"claims": ["shop/"]}, "as namespace/name, not as 'shop/'"),
        ({"kubelet_root": "kubelet"}, "absolute path"),
        ({"kubelet_root": "/var/../kubelet"}, "absolute path"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(StorageOpsError, match=problem):
        listed(**options)
