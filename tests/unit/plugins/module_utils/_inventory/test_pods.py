# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pod leads to a node, whatever others put into its namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._inventory import pods
from ansible_collections.storage_ops.runbooks.plugins.module_utils._inventory.hosts import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._inventory.pods import (
    NO_POD,
    Chosen,
    Place,
    choose,
    connection,
    read_pods,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

FOLDER = Path(__file__).parents[5] / "playbooks/files/node_pods"
PLACE = Place("storage-ops-nodes", "storage-ops-node")
OURS = "0b3a6d1c-7d1f-4b52-9a43-111111111111"
UID = "5d0c7e0a-1f5b-4c53-8d0e-222222222222"
OTHER = "5d0c7e0a-1f5b-4c53-8d0e-333333333333"
EARLY, LATE = "2026-11-20T08:00:00Z", "2026-11-21T08:00:00Z"
DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": PLACE.daemon_set, "namespace": PLACE.namespace, "uid": OURS},
}


def pod(name: str = "storage-ops-node-x7k2p", uid: str = UID, **meta: Any) -> dict[str, Any]:
    """A pod of ours that runs on the node a."""
    owner = {"kind": "DaemonSet", "name": PLACE.daemon_set, "uid": OURS, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": PLACE.namespace,
            "uid": uid,
            "creationTimestamp": LATE,
            "ownerReferences": [owner],
            **meta,
        },
        "spec": {"nodeName": "a"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "node", "ready": True}]},
    }


def chosen(*objects: dict[str, Any], since: str = EARLY) -> Chosen:
    """What becomes of pods, by way of a cache in a file."""
    found = json.loads(json.dumps(read_pods(FakeCluster(DAEMON_SET, *objects), PLACE)))
    return choose(found, [Host("a", "", {"created": since})], PLACE)


def test_the_pod_of_the_daemon_set() -> None:
    assert chosen(pod()) == Chosen({"a": ("storage-ops-node-x7k2p", UID)}, [])
    # One that goes, and one that has come.
    gone = pod("old", OTHER, deletionTimestamp=LATE)
    assert chosen(gone, pod()).pods == {"a": ("storage-ops-node-x7k2p", UID)}
    # As old as its node: times have whole seconds.
    assert chosen(pod(), since=LATE).pods


OWNER = {"kind": "DaemonSet", "name": PLACE.daemon_set, "uid": OURS, "controller": True}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (None, "a (none)"),
        (pod(ownerReferences=None), "a (none)"),
        (pod(ownerReferences=[{**OWNER, "uid": OTHER}]), "a (none)"),
        (pod(ownerReferences=[{**OWNER, "controller": False}]), "a (none)"),
        (pod(ownerReferences=[{**OWNER, "kind": "ReplicaSet"}]), "a (none)"),
        ({**pod(), "spec": {"nodeName": "b"}}, "a (none)"),
        ({**pod(), "spec": {}}, "a (none)"),
        (pod(deletionTimestamp=LATE), "a (it is being deleted)"),
        ({**pod(), "status": {"phase": "Pending"}}, "a (it is not ready (Pending))"),
        ({**pod(), "status": {}}, "a (it is not ready (no phase))"),
        (pod(creationTimestamp="2026-11-20T07:59:59Z"), "a (it is older than the node)"),
        (pod(creationTimestamp="0000-00-00T00:00:00Z"), "a (it is older than the node)"),
        (pod(uid="$(reboot)"), "a (its name or uid cannot be part of a command)"),
        (pod(name="x;reboot"), "a (its name or uid cannot be part of a command)"),
    ],
)
def test_what_is_not_taken_for_it(made: dict[str, Any] | None, why: str) -> None:
    found = chosen(*([made] if made else []))
    assert found.pods == {}
    (warning,) = found.warnings
    assert f"cannot reach them: {why}" in warning


def test_a_container_of_another_name_is_ready() -> None:
    other = {**pod(), "status": {"containerStatuses": [{"name": "sidecar", "ready": True}]}}
    assert chosen(other).pods == {}


def test_of_two_none_is_meant() -> None:
    found = chosen(pod(), pod("second", OTHER))
    assert found.pods == {} and "a (several)" in found.warnings[0]


def test_without_the_daemon_set() -> None:
    with pytest.raises(StorageOpsError, match="there is no DaemonSet storage-ops-nodes/") as caught:
        read_pods(FakeCluster(pod()), PLACE)
    assert caught.value.code == "not_found" and "node-pods.yml" in str(caught.value)


def test_only_its_namespace_is_read() -> None:
    cluster = FakeCluster(DAEMON_SET, pod(), pod("elsewhere", OTHER, namespace="shop"))
    assert [found["name"] for found in read_pods(cluster, PLACE)] == ["storage-ops-node-x7k2p"]
    assert cluster.requests == [
        "get /apis/apps/v1/namespaces/storage-ops-nodes/daemonsets/storage-ops-node",
        "list /api/v1/namespaces/storage-ops-nodes/pods",
    ]


def test_a_node_without_a_pod_is_not_reached_in_another_way() -> None:
    some, none = connection(PLACE, ("p", UID)), connection(PLACE, None)
    assert some["ansible_python_interpreter"] == f"/run/storage_ops/interpreters/{UID}"
    assert some["ansible_kubectl_pod"] == "p" and none["ansible_kubectl_pod"] == NO_POD
    assert none["ansible_python_interpreter"].endswith(f"/{NO_POD}")
    assert none["ansible_connection"] == some["ansible_connection"] == "kubernetes.core.kubectl"


# The manifest, and the program in it.


def objects() -> dict[str, dict[str, Any]]:
    """Those of the manifest by kind, with the image that an operator names."""
    text = (FOLDER / "node-pods.yml").read_text().replace("image: IMAGE", "image: python")
    return {item["kind"]: item for item in yaml.safe_load(text)["items"]}


def test_the_manifest_has_the_program() -> None:
    program = objects()["ConfigMap"]["data"]["enter.py"]
    assert program == (FOLDER / "enter.py").read_text()
    # The kubelet's limit, and room for it.
    assert len(program) < 2**19


def test_the_manifest_is_what_the_plugin_expects() -> None:
    found = objects()
    for item in found.values():
        if item["kind"] != "Namespace":
            assert item["metadata"]["namespace"] == PLACE.namespace
    spec = found["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    assert found["DaemonSet"]["metadata"]["name"] == PLACE.daemon_set
    assert (container["name"], container["image"]) == (pods.CONTAINER, "python")
    assert container["command"][-1] == f"{mounts['program']}/enter.py"
    # Of the node nothing else is mounted: a copy of its mounts would hold its devices.
    assert mounts["shared"] == paths["shared"] == pods.SHARED
    assert [path for path in paths.values() if path] == [pods.SHARED]
    program = found["ConfigMap"]["data"]["enter.py"]
    assert f'SHARED = "{pods.SHARED}"' in program
    assert f'INTERPRETERS = "{pods.INTERPRETERS}"' in program
    assert mounts["interpreters"] == pods.INTERPRETERS
    assert container["startupProbe"]["exec"]["command"][-1].startswith(
        f'test -x "{pods.INTERPRETERS}/$POD_UID"'
    )
    assert spec["hostPID"] and spec["hostNetwork"] and container["securityContext"]["privileged"]
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_the_account_of_the_pods_has_no_rights() -> None:
    found = objects()
    spec = found["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert spec["automountServiceAccountToken"] is False
    assert not {kind for kind in found if kind.endswith("Binding") or kind == "ClusterRole"}


def test_outside_of_a_pod_no_module_runs(tmp_path: Path) -> None:
    """Process 1 has this very folder, as that of a pod without hostPID has its own."""
    file = tmp_path / "enter.py"
    file.write_text((FOLDER / "enter.py").read_text().replace(pods.SHARED, str(tmp_path)))
    answer = subprocess.run(
        [sys.executable, "-IS", str(file), "run"],
        check=False,
        input="print('the module ran')",
        capture_output=True,
        text=True,
        timeout=60,
    )
    result = json.loads(answer.stdout)
    assert answer.returncode == 1 and result["failed"] is True
    assert result["code"] == "privileges_missing", result


def test_the_interpreter_has_the_name_of_the_pod(tmp_path: Path) -> None:
    program = (FOLDER / "enter.py").read_text()
    assert program.count(f'"{pods.INTERPRETERS}"') == 1
    file = tmp_path / "enter.py"
    file.write_text(program.replace(pods.INTERPRETERS, str(tmp_path)))
    with subprocess.Popen(
        [sys.executable, "-IS", str(file)], env={**os.environ, "POD_UID": UID}
    ) as pod:
        try:
            made = tmp_path / UID
            while not made.exists():
                assert pod.poll() is None
                time.sleep(0.01)
            # It runs the program, which refuses here, as above.
            answer = subprocess.run(
                [str(made)], check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
            )
            assert json.loads(answer.stdout)["failed"] is True
            assert sorted(found.name for found in tmp_path.iterdir()) == sorted([UID, "enter.py"])
        finally:
            pod.terminate()
