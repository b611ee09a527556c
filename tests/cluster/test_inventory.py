# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of real control planes as an inventory, by the commands of a user."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.kubernetes import api as k8s
from support.cluster import Cluster, User
from support.node import environment, of_ansible
from support.rights import FILES

AUDIT, EVENTS = FILES / "rbac-audit.yml", FILES / "rbac-events.yml"
NAME = "storage_ops.runbooks.nodes"
DRIVER = "rbd.csi.example.com"
# A program that a template would run on the controller.
HOSTILE = "{{ lookup('ansible.builtin.pipe', 'echo own' ~ 'ed') }}"
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(params=["control_plane_1_20", "control_plane_current"])
def lab(request: pytest.FixtureRequest) -> Cluster:
    """A control plane of each version, with three nodes; the last has no driver."""
    cluster: Cluster = request.getfixturevalue(request.param)
    for number in (1, 2, 3):
        name = f"n{number}"
        cluster.api.create(
            k8s.node(name, **{ZONE: "north", "example.com/pool": f"pool-{number}"}),
            k8s.csi_node(name, *([DRIVER] if number < 3 else [])),
        )
        cluster.api.heartbeat(name)
        claims(cluster, name, f"10.0.0.{number}")
    cluster.stay_ready("n1", "n2", "n3")
    return cluster


def claims(cluster: Cluster, name: str, *addresses: str, **info: str) -> None:
    """A kubelet writes what it says of its node."""
    entries = [{"type": "InternalIP", "address": address} for address in addresses]
    known = dict.fromkeys(("machineID", "systemUUID", "kernelVersion", "osImage"), "x")
    known |= dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion"), "x")
    known |= dict.fromkeys(("operatingSystem", "architecture"), "x")
    known |= {"bootID": f"boot-{name}", "kubeletVersion": cluster.plane.number, **info}
    cluster.api.merge(
        f"{k8s.path('Node', name)}/status", {"status": {"addresses": entries, "nodeInfo": known}}
    )


def run(
    cluster: Cluster, program: str, file: Path, *arguments: str, user: User = AUDIT, **settings: str
) -> subprocess.CompletedProcess[str]:
    """A command of Ansible with the source as its inventory, and stricter than by default."""
    return of_ansible(
        [program, "-i", str(file), *arguments],
        {
            **environment(),
            "K8S_AUTH_KUBECONFIG": str(cluster.kubeconfig(user)),
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
            **settings,
        },
    )


def source(folder: Path, name: str = "nodes.storage_ops.yml", **options: Any) -> Path:
    """Write a source's file."""
    file = folder / name
    file.write_text(yaml.safe_dump({"plugin": NAME, **options}))
    return file


def listed(cluster: Cluster, file: Path, *arguments: str, **settings: str) -> dict[str, Any]:
    """What "ansible-inventory --list" prints."""
    answer = run(cluster, "ansible-inventory", file, "--list", *arguments, **settings)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return hosts_in(answer.stdout)


def hosts_in(text: str) -> dict[str, Any]:
    """What it printed, as a playbook sees it: texts that are no templates are marked there."""

    def plain(found: dict[str, Any]) -> Any:
        return found.get("__ansible_unsafe", found)

    found: dict[str, Any] = json.loads(text, object_hook=plain)
    return found


@pytest.mark.smoke
def test_all_nodes_with_a_driver(lab: Cluster, tmp_path: Path) -> None:
    file = source(
        tmp_path,
        strict=True,
        compose={"ansible_user": "'ops'"},
        groups={"usable": "kubernetes_node.ready and not kubernetes_node.unschedulable"},
        keyed_groups=[{"prefix": "pool", "key": "kubernetes_node.labels['example.com/pool']"}],
    )
    found = listed(lab, file)
    assert found["driver_rbd_csi_example_com"]["hosts"] == ["n1", "n2"]
    assert found["zone_north"]["hosts"] == found["usable"]["hosts"] == ["n1", "n2", "n3"]
    assert found["pool_pool_2"]["hosts"] == ["n2"]
    first = found["_meta"]["hostvars"]["n1"]
    item = lab.api.find("Node", "n1") or {}
    # Controllers add labels and taints.
    labels, taints = (first["kubernetes_node"][key] for key in ("labels", "taints"))
    assert labels.items() >= {ZONE: "north", "example.com/pool": "pool-1"}.items()
    assert (first["ansible_host"], first["ansible_user"]) == ("10.0.0.1", "ops")
    assert first["kubernetes_node"] == {
        "name": "n1",
        "uid": item["metadata"]["uid"],
        "boot_id": "boot-n1",
        "labels": labels,
        "roles": [],
        "zone": "north",
        "drivers": [DRIVER],
        "os_image": "x",
        "kubelet_version": lab.plane.number,
        "ready": True,
        "unschedulable": False,
        "taints": taints,
        "created": item["metadata"]["creationTimestamp"],
    }
    answer = run(lab, "ansible", file, "driver_rbd_csi_example_com", "--list-hosts")
    assert answer.returncode == 0 and answer.stdout.split() == ["hosts", "(2):", "n1", "n2"]
    lab.used("rbac-audit.yml", "list nodes", "list csinodes")


@pytest.mark.variation
@pytest.mark.usefixtures("lowest_client")
def test_the_lowest_client(lab: Cluster, tmp_path: Path) -> None:
    found = listed(lab, source(tmp_path, strict=True))
    assert found["driver_rbd_csi_example_com"]["hosts"] == ["n1", "n2"]
    assert found["_meta"]["hostvars"]["n1"]["ansible_host"] == "10.0.0.1"


def test_without_the_rights_the_source_fails(lab: Cluster, tmp_path: Path) -> None:
    file = source(tmp_path)
    answer = run(lab, "ansible-inventory", file, "--list", user=EVENTS)
    said = " ".join((answer.stdout + answer.stderr).split())
    assert answer.returncode != 0 and "Traceback" not in said
    assert "Completely failed to parse inventory source" in said
    for part in ("cannot list nodes", "forbidden", "rbac-audit.yml", "[api_forbidden]"):
        assert part in said, said
    # By Ansible's default it warns, and goes on.
    lenient = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "false"}
    answer = run(lab, "ansible-inventory", file, "--list", user=EVENTS, **lenient)
    assert answer.returncode == 0 and "cannot list nodes" in " ".join(answer.stderr.split())
    # As AWX has it set.
    answer = run(
        lab,
        "ansible-inventory",
        file,
        "--list",
        user=EVENTS,
        **lenient,
        ANSIBLE_INVENTORY_UNPARSED_FAILED="true",
    )
    assert answer.returncode != 0


def test_what_a_node_says_of_itself(lab: Cluster, tmp_path: Path) -> None:
    claims(lab, "n1", "10.0.0.2", osImage=HOSTILE)
    claims(lab, "n3", "fe80::1%" + HOSTILE, "127.0.0.1", "10.0.0.3")
    file = source(tmp_path, compose={"image": "kubernetes_node.os_image"})
    answer = run(lab, "ansible-inventory", file, "--list")
    assert answer.returncode == 0, answer.stderr
    found = hosts_in(answer.stdout)["_meta"]["hostvars"]
    assert {name: found[name].get("ansible_host") for name in found} == {
        "n1": None,
        "n2": None,
        "n3": "10.0.0.3",
    }
    said = " ".join(answer.stderr.split())
    assert "10.0.0.2 (n1, n2)" in said and "leads to no other host; it is left out: n3" in said
    # AWX keeps what it printed, and gives it to jobs as a script that prints it again. It takes
    # only plain texts for names of hosts (awx/main/utils/mem_inventory.py, get_host).
    raw = json.loads(answer.stdout)
    hosts = [host for name in set(raw) - {"_meta"} for host in raw[name].get("hosts", [])]
    assert set(hosts) == {"n1", "n2", "n3"}
    script = tmp_path / "hosts"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{answer.stdout}\nEND\n")
    script.chmod(0o755)
    for inventory in (file, script):
        shown = debug(lab, inventory, "n1", "{{ image }}-{{ kubernetes_node.os_image }}")
        assert "owned" not in shown and shown.count("lookup(") == 2


def debug(cluster: Cluster, inventory: Path, host: str, message: str) -> str:
    """What a task of this host's shows."""
    task = ["-m", "ansible.builtin.debug", "-a", f"msg={message}"]
    answer = run(cluster, "ansible", inventory, host, *task)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_a_cache(lab: Cluster, tmp_path: Path) -> None:
    file = source(
        tmp_path, cache=True, cache_plugin="jsonfile", cache_connection=str(tmp_path / "kept")
    )
    before = listed(lab, file)
    for kind in ("Node", "CSINode"):
        lab.api.delete(k8s.path(kind, "n3"))
    assert listed(lab, file) == before
    found = listed(lab, file, "--flush-cache")
    assert sorted(found["_meta"]["hostvars"]) == ["n1", "n2"]


def test_the_name_of_the_file(lab: Cluster, tmp_path: Path) -> None:
    assert listed(lab, source(tmp_path, "east.nodes.storage_ops.yaml"))["_meta"]["hostvars"]
    answer = run(lab, "ansible-inventory", source(tmp_path, "nodes.yml"), "--list")
    said = " ".join((answer.stdout + answer.stderr).split())
    assert answer.returncode != 0 and "could not be verified by inventory plugin" in said
