# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes are reached through a pod on each: what is found is the node's, or the module does not run.

test_fuse.py has a repair.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from support.kind import KindCluster, without_python
from support.node_pods import NAME, SPACE, NodePods
from support.reattach import REPAIR

AUDITOR = REPAIR.with_name("rbac-audit.yml")
# Of a pod that is gone, or that never was.
ANOTHER = "00000000-0000-4000-8000-000000000000"


@pytest.mark.smoke
def test_what_is_found_is_the_nodes(
    cluster: KindCluster, node_pods: NodePods, tmp_path: Path
) -> None:
    worker = cluster.kind.workers[0]
    through, node_pods.source = node_pods.source, cluster.inventory(tmp_path, worker)
    direct = node_pods.ansible(worker, "node_storage_info", AUDITOR)
    node_pods.source = through
    with without_python(cluster.kind, worker):
        found = node_pods.ansible(worker, "node_storage_info", AUDITOR)
        said = cluster.kind.on(worker, "cat", "/proc/sys/kernel/random/boot_id", "/etc/hostname")
        # The callback prints what a command says as it is.
        same = node_pods.run(
            worker, "ansible.builtin.command", AUDITOR, cmd="cat /etc/hostname /etc/os-release"
        ).stdout
    assert _told(found.result) == _told(direct.result)
    assert f"\n{said.split()[1]}\n" in same and "bookworm" in same, same
    # There is no multipath on these nodes.
    assert "STOR-01" in json.dumps(found.result["not_applicable"])
    assert cluster.kind.on(worker, "ls", "-A", "/run/storage_ops/pod") == ""


def _told(result: dict[str, Any]) -> dict[str, Any]:
    """What two runs have in common."""
    kept = ("msg", "findings", "actions", "not_applicable", "not_assessed", "failed", "changed")
    return {key: result.get(key) for key in kept}


def test_only_the_pod_that_was_meant(cluster: KindCluster, node_pods: NodePods) -> None:
    worker = cluster.kind.workers[0]
    # Ansible looks for a pod by its name: this is as if another had the name by now.
    path = "/run/storage_ops/interpreters/"
    # Without pipelining: kubectl does not end while nothing reads a long module from its stdin.
    wrong = json.dumps(
        {"ansible_python_interpreter": f"{path}{ANOTHER}", "ansible_pipelining": False}
    )
    answer = node_pods.run(worker, "ansible.builtin.ping", AUDITOR, "-e", wrong)
    assert answer.returncode != 0 and ANOTHER in answer.stdout + answer.stderr, answer.stdout
    assert "pong" not in answer.stdout

    # By a cache that is old.
    kept = str(node_pods.source.parent / "kept")
    node_pods.write(cache=True, cache_plugin="jsonfile", cache_connection=kept)
    assert not node_pods.ansible(worker, "ansible.builtin.ping", AUDITOR).failed
    meta = node_pods.pod(worker)["metadata"]
    cluster.api.delete(k8s.path("Pod", meta["name"], SPACE), grace=0)
    cluster.wait(
        lambda: [one for one in node_pods.pods(worker) if one["metadata"]["uid"] != meta["uid"]],
        "another pod",
        60,
    )
    node_pods.wait()
    answer = node_pods.run(worker, "ansible.builtin.ping", AUDITOR)
    assert answer.returncode != 0 and "NotFound" in answer.stdout, answer.stdout
    assert not node_pods.ansible(worker, "ansible.builtin.ping", AUDITOR, "--flush-cache").failed


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"hostPID": False}, "process 1 is the pod's"),
        ({"hostPID": False, "shareProcessNamespace": True}, "is not the same folder"),
    ],
)
def test_a_pod_that_cannot_see_the_node(
    cluster: KindCluster, node_pods: NodePods, spec: dict[str, Any], said: str
) -> None:
    """Nothing is looked at, so nothing is found healthy."""
    node_pods.change(**spec)
    for module in ("node_storage_info", "ansible.builtin.ping"):
        found = node_pods.ansible(cluster.kind.workers[0], module, AUDITOR)
        assert found.failed and found.result["code"] == "privileges_missing", found.result
        assert said in found.msg or "cannot be entered" in found.msg, found.msg


def test_a_node_without_a_pod(cluster: KindCluster, node_pods: NodePods, tmp_path: Path) -> None:
    """It is lost to the run, and passes nothing. A pod that others put there is not taken."""
    worker, other = cluster.kind.workers
    node_pods.change(nodeSelector={"kubernetes.io/hostname": worker})
    cluster.wait(lambda: len(cluster.api.all("Pod", SPACE)) == 1, "one is left", 60)
    (container,) = node_pods.pod(worker)["spec"]["containers"]
    # The DaemonSet would take one with its labels for its own.
    meta = {"name": f"{NAME}-aaaaa", "namespace": SPACE, "labels": {"app": NAME}}
    spec = {"nodeName": other, "containers": [{**container, "volumeMounts": []}]}
    cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    variables = {"report_folder": str(tmp_path), "report_controls": "STOR-01 STOR-05 STOR-07"}
    played = cluster.playbook(
        "compliance",
        user=AUDITOR,
        inventory=node_pods.source,
        **{f"compliance_{key}": text for key, text in variables.items()},
    )
    report = json.loads((tmp_path / "report.json").read_text())
    hosts = {host["name"]: host for host in report["hosts"]}
    assert "cannot reach them" in " ".join(played.text.split()), played.text
    assert report["summary"]["hosts"]["not_assessed"] == 2, report["summary"]
    assert set(hosts[worker]["controls"].values()) <= {"pass", "not_applicable"}, hosts
    assert "pass" not in hosts[other]["controls"].values(), hosts
    assert hosts[other]["reason"], hosts
