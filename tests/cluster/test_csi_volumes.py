# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CSI volumes and their pods on a real API server, with exactly the rights of the audit manifest,
which may read no Secret.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.cluster import Cluster

DRIVER = "ru.yandex.s3.csi"
RBAC = Path(__file__).parents[2] / "playbooks" / "files" / "rbac-audit.yml"
REPAIRER = RBAC.with_name("rbac-repair.yml")
STAGE = "csi.storage.k8s.io/node-stage-secret-"
SECRET = "0b1fa7e4planted"


def storage_class(name: str, **parameters: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "parameters": parameters,
    }


def s3_volume(
    name: str, provisioner: str = DRIVER, driver: str = DRIVER, **csi: Any
) -> list[dict[str, Any]]:
    """A volume of many, and its claim, as an external provisioner makes them."""
    volume, claim = k8s.volume(name, driver, f"shared/pv-{name}", modes=("ReadWriteMany",))
    volume["spec"]["csi"].update(csi)
    claim["metadata"]["annotations"] = {
        "volume.beta.kubernetes.io/storage-provisioner": provisioner
    }
    return [volume, claim]


@pytest.mark.smoke
@pytest.mark.parametrize("fixture", ["control_plane_1_20", "control_plane_current"])
def test_from_provisioner_to_path(request: pytest.FixtureRequest, fixture: str) -> None:
    cluster: Cluster = request.getfixturevalue(fixture)
    api = cluster.api
    api.create(k8s.csi_driver(DRIVER, attach_required=False))
    api.create(
        storage_class(
            "lab",
            bucket="shared",
            mounter="geesefs",
            **{f"{STAGE}name": "${pvc.name}", f"{STAGE}namespace": "${pvc.namespace}"},
        )
    )
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "web", "namespace": "default"},
        "stringData": {"secretAccessKey": SECRET},
    }
    api.create(secret)
    for node in ("n1", "n2"):
        api.create(k8s.node(node))
    api.create(
        *s3_volume("web", volumeAttributes={"akSecret": SECRET}),
        *s3_volume("idle"),
        *s3_volume("other", "x", "y"),
    )
    for name in ("web", "idle", "other"):
        claim = path("PersistentVolumeClaim", name)
        cluster.wait(
            lambda claim=claim: (api.get(claim) or {}).get("status", {}).get("phase") == "Bound",
            f"{name} is bound",
        )
    for node in ("n1", "n2"):
        pod = k8s.pod(f"web-{node}", ["web"], node)
        pod["spec"]["containers"][0]["livenessProbe"] = {"exec": {"command": ["ls", "/web"]}}
        api.create(pod)
        api.merge(path("Pod", f"web-{node}") + "/status", {"status": {"phase": "Running"}})
    uid = (api.find("Pod", "web-n1") or {})["metadata"]["uid"]

    found = cluster.ansible("csi_volume_info", user=RBAC, provisioners=[DRIVER], nodes=["n1"])
    assert not found.failed and not found.changed, found.msg
    assert found.msg == f"nothing to do: 1 volume of {DRIVER}, mounted by 1 pod on n1"
    (volume,) = found.result["volumes"]
    assert (volume["volume"], volume["sources"]) == ("pv-web", ["shared/pv-web"])
    assert volume["secret"] == {"namespace": "default", "name": "web"}
    (pod,) = volume["pods"]
    assert (pod["name"], pod["uid"], pod["node"]) == ("web-n1", uid, "n1")
    assert (
        pod["paths"]["publish"]
        == f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/pv-web/mount"
    )
    (container,) = found.result["containers"]
    assert (container["container"], container["mount_path"], container["probe"]) == (
        "main",
        "/web",
        True,
    )
    assert [entry["volume"] for entry in found.result["unused"]] == ["pv-idle"]
    assert SECRET not in json.dumps(found.result)

    # Before a repair its account asks, too.
    options = {"claims": ["default/web", "default/other"]}
    everywhere = cluster.ansible("csi_volume_info", user=REPAIRER, check=True, **options)
    assert [(entry["volume"], len(entry["pods"])) for entry in everywhere.result["volumes"]] == [
        ("pv-other", 0),
        ("pv-web", 2),
    ]
    cluster.used("rbac-repair.yml", "list storageclasses")
    # Which host has the mounts of a pod that is older than its node?
    time.sleep(1.1)
    api.delete(path("Node", "n2"))
    api.create(k8s.node("n2"))
    again = cluster.ansible("csi_volume_info", user=RBAC, nodes=["n2"])
    assert not again.failed and again.result["left_out"] == ["default"], again.msg
    (finding,) = again.result["findings"]
    assert "n2 was created again after its pod default/web-n2" in finding["reason"]
    missing = cluster.ansible("csi_volume_info", user=RBAC, nodes=["n3"])
    assert missing.failed and "there is no node n3" in missing.msg
    # Somebody who may not read pods must not be told that there are none.
    role = path("ClusterRole", "storage-ops-audit")
    rules = (api.get(role) or {})["rules"]
    rules = [
        {**rule, "resources": [name for name in rule.get("resources", []) if name != "pods"]}
        for rule in rules
    ]
    api.merge(
        role,
        {"rules": [rule for rule in rules if rule["resources"] or rule.get("nonResourceURLs")]},
    )
    forbidden = cluster.wait(lambda: _failed(cluster), "the right is gone")
    assert "list pods" in forbidden and "rbac-audit.yml" in forbidden


def test_a_tenant_with_thousands_of_mounts_hides_no_other(control_plane_current: Cluster) -> None:
    """His pod need not even start: it names its node."""
    cluster, api = control_plane_current, control_plane_current.api
    api.create(k8s.namespace("evil"), k8s.node("n1"), *s3_volume("web"))
    theirs, claim = s3_volume("huge")
    claim["metadata"]["namespace"] = theirs["spec"]["claimRef"]["namespace"] = "evil"
    api.create(theirs, claim)
    for name, namespace in (("web", "default"), ("huge", "evil")):
        where = path("PersistentVolumeClaim", name, namespace)
        cluster.wait(
            lambda where=where: (api.get(where) or {}).get("status", {}).get("phase") == "Bound",
            f"{name} is bound",
        )
    pod = k8s.pod("huge", ["huge"], "n1", "evil")
    pod["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "huge", "mountPath": f"/{number}"} for number in range(2000)
    ]
    api.create(pod, k8s.pod("web", ["web"], "n1"))
    found = cluster.ansible("csi_volume_info", user=RBAC, provisioners=[DRIVER], nodes=["n1"])
    assert not found.failed, found.msg
    assert [volume["volume"] for volume in found.result["volumes"]] == ["pv-web"]
    assert found.result["left_out"] == ["evil"] and "1 finding" in found.msg
    alone = cluster.ansible("csi_volume_info", user=RBAC, namespaces=["evil"], nodes=["n1"])
    assert (
        alone.result["left_out"] == ["evil"] and "too long" in alone.result["findings"][0]["reason"]
    )


def test_secrets_of_a_tenant_take_no_memory_of_the_controller(
    control_plane_current: Cluster,
) -> None:
    """The API server counts the values of a Secret alone, so this one is a megabyte of keys."""
    api = control_plane_current.api
    keys = {f"k{number:05}": "" for number in range(50_000)}
    meta = {"name": "keys", "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    named = {"accessKeyID": "me", "secretAccessKey": SECRET}
    api.create(
        {**secret, "stringData": {"accessKeyID": "me"}, "data": keys},
        {
            **secret,
            "metadata": {**meta, "name": "long"},
            "stringData": {"accessKeyID": "x" * 20_000},
        },
        {**secret, "metadata": {**meta, "name": "web"}, "stringData": {**named, "other": SECRET}},
    )
    names = ("keys", "long", "web", "none")
    volumes = [
        {"namespace": "default", "secret": {"namespace": "default", "name": name}} for name in names
    ]
    found = control_plane_current.ansible("csi_secret_info", volumes=volumes, keys=list(named))
    assert not found.failed and not found.changed, found.msg
    data = {one["metadata"]["name"]: set(one["data"]) for one in found.result["secrets"]}
    assert data == {"keys": {"accessKeyID"}, "web": set(named), "none": set()}
    (unread,) = found.result["unread"]
    assert unread["secret"]["name"] == "long" and "16,000 characters" in unread["reason"]
    assert len(json.dumps(found.result)) < 20_000
    # No manifest has this right.
    refused = control_plane_current.ansible(
        "csi_secret_info", user=RBAC, volumes=volumes, keys=list(named)
    )
    assert not refused.failed and refused.result["secrets"] == []
    assert len(refused.result["unread"]) == len(names)


def _failed(cluster: Cluster) -> str:
    answer = cluster.ansible("csi_volume_info", user=RBAC)
    return answer.msg if answer.failed else ""
