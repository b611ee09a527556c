# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks as AWX and an operator call them, on a real node."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient
from support.node import COLLECTION, Node
from support.selection import variation

CLEAN = f"{COLLECTION}.clean_residual_paths"
LOAD = f"{COLLECTION}.load_iscsi_modules"
# A Python whose machine has another boot ID.
CLONE = """#!/bin/sh
exec unshare -m sh -c '
    mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
    exec python3 "$@"
' sh "$@"
"""
# What an AWX survey sends: everything is a string, and an unanswered question is an empty one.
SURVEY = {
    "target": "node1\n",
    "batch": "1",
    "residual_paths_maps": "",
    "residual_paths_wwids": "",
    "residual_paths_vendor": "",
    "residual_paths_product": "",
    "residual_paths_observations": "2",
    "residual_paths_observation_seconds": "3",
    "residual_paths_options": "",
    "residual_paths_max_repairs": "10",
    "residual_paths_fail_hung_readers": "false",
    "residual_paths_flush_empty_maps": "false",
    "residual_paths_accept_majority": "",
    "residual_paths_strict": "false",
}


def ansible(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as at a shell, with output that can be searched."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )


def play(
    playbook: str, inventory: Path, variables: dict[str, Any], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a playbook with extra variables, which is how AWX passes a survey's answers."""
    return ansible(
        "ansible-playbook", playbook, "-i", str(inventory), "-e", json.dumps(variables), *arguments
    )


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        ({}, (), "target is required"),
        ({"target": ""}, (), "target is required"),
        ({"target": " \n"}, (), "target is required"),
        ({}, ("--limit", "node1"), "target is required"),
        ({"target": "node7"}, (), "No host of the inventory matches node7"),
        ({"target": "node1"}, ("--limit", "node2"), "excludes all hosts of the target node1"),
        # A part that matches nothing makes the run another one than was asked for; one to exclude
        # even widens it.
        ({"target": "node1,nodeY"}, (), "matches nodeY"),
        ({"target": "node1\nnodeY"}, (), "matches nodeY"),
        ({"target": "node1:nodeY"}, (), "matches nodeY"),
        ({"target": "all,!nodeY"}, (), "matches !nodeY"),
        ({"target": "all,&nodeY"}, (), "matches &nodeY"),
        # With a comma in it, Ansible takes these for names of hosts, which it ignores: node1 would
        # be in the run, or not looked at.
        ({"target": "node2,node1:nodeY"}, (), "matches node1:nodeY"),
        ({"target": "all,!node1:node2"}, (), "matches !node1:node2"),
        ({"target": "all, ! node1"}, (), "matches !"),
        ({"target": "all,!!node1"}, (), "matches !!node1"),
        ({"target": "node1,&empty"}, (), "matches &empty"),
        ({"target": "empty"}, (), "matches empty"),
        # What is passed over was not looked at.
        ({"target": "node1"}, ("--tags", "nothing"), "failed=1"),
        ({"target": "node1", "batch": "0"}, (), "batch must be a positive number"),
    ],
)
@pytest.mark.parametrize("playbook", [CLEAN, LOAD])
def test_refused_before_anything_is_touched(
    tmp_path: Path,
    playbook: str,
    variables: dict[str, str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    # Nobody listens there: had a host been contacted, it would be unreachable.
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "all: {hosts: {node1: {}, node2: {}}, children: {empty: {hosts: {}}}, vars: {ansible_host: "
        "127.0.0.1, ansible_port: 1}}\n"
    )
    result = play(playbook, inventory, variables, *arguments)
    assert result.returncode != 0
    assert message in result.stdout + result.stderr
    assert "UNREACHABLE" not in result.stdout


@pytest.mark.parametrize(
    ("playbook", "variable", "message"),
    [
        (
            "recover_fuse_mounts",
            "fuse_recovery_path",
            "fuse_recovery_path (did you mean fuse_recovery_paths?)",
        ),
        (
            "clean_residual_paths",
            "residual_paths_map",
            "residual_paths_map (did you mean residual_paths_maps?)",
        ),
        # The prefix can be misspelt as well.
        variation(
            "clean_residual_paths",
            "residual_path_maps",
            "residual_path_maps (did you mean residual_paths_maps?)",
        ),
        variation("check_nfs", "nfs_check_share", "did you mean nfs_check_shares?"),
        variation("load_iscsi_modules", "iscsi_ready_persits", "did you mean iscsi_ready_persist?"),
        variation(
            "repair_pod_mounts",
            "workload_reattach_scaledown",
            "did you mean workload_reattach_scale_down?",
        ),
        variation(
            "compliance", "compliance_node_time_out", "did you mean compliance_node_timeout?"
        ),
        variation("merge_compliance_reports", "merge_runs", "did you mean merge_run?"),
        variation("triage", "triage_namespaces", "did you mean triage_namespace?"),
        variation("respond", "respond_repairs", "did you mean respond_repair?"),
        variation("replace_residual_volume", "replace_host", "did you mean replace_hosts?"),
        variation(
            "repair_volumeattachments",
            "attachment_repair_name",
            "did you mean attachment_repair_names?",
        ),
        ("fail_over_volumes", "volume_failover_claim", "did you mean volume_failover_claims?"),
        ("release_fenced_node", "node_release_ceph_hosts", "did you mean node_release_ceph_host?"),
        variation(
            "prepare_network_fences", "network_fence_clas", "did you mean network_fence_class?"
        ),
        variation(
            "record_ceph_clients",
            "client_record_ceph_hosts",
            "did you mean client_record_ceph_host?",
        ),
        variation("configure_awx", "configure_awx_images", "did you mean configure_awx_image?"),
    ],
)
def test_unknown_variable_ends_every_playbook(
    tmp_path: Path, playbook: str, variable: str, message: str
) -> None:
    """Whatever else is right or missing: it is the first task, and no host is contacted."""
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "all: {hosts: {node1: {}, node2: {}}, vars: {ansible_host: 127.0.0.1, ansible_port: 1}}\n"
    )
    variables = {"target": "node1", variable: "x"}
    result = play(f"{COLLECTION}.{playbook}", inventory, variables)
    assert result.returncode != 0
    assert message in result.stdout + result.stderr
    limits = result.stdout.count("\nTASK [Refuse a limit without the localhost]")
    assert result.stdout.count("\nTASK [") - limits == 1, result.stdout
    assert "UNREACHABLE" not in result.stdout


@pytest.mark.parametrize(
    "playbook",
    [
        *("fail_over_volumes", "triage"),
        *map(
            variation,
            (
                "prepare_network_fences",
                "record_ceph_clients",
                "release_fenced_node",
                "repair_volumeattachments",
                "replace_residual_volume",
                "respond",
            ),
        ),
    ],
)
def test_limit_without_the_localhost(tmp_path: Path, playbook: str) -> None:
    """Its plays would be passed over, and the run be green."""
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "all: {hosts: {node1: {}, node2: {}}, vars: {ansible_host: 127.0.0.1, ansible_port: 1}}\n"
    )
    variables = {"target": "node1"}
    result = play(f"{COLLECTION}.{playbook}", inventory, variables, "--limit", "node1")
    assert result.returncode == 2 and "Add localhost to the limit" in result.stdout, result.stdout


def test_variables_of_other_hosts_are_none_of_this_run(tmp_path: Path) -> None:
    """What the inventory says of a host counts where that host is in the run, and not elsewhere."""
    hosts = {"node1": {}, "node2": {"residual_paths_map": "mpathb"}}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        json.dumps(
            {"all": {"hosts": hosts, "vars": {"ansible_host": "127.0.0.1", "ansible_port": 1}}}
        )
    )
    elsewhere = play(CLEAN, inventory, {"target": "node1"})
    assert "UNREACHABLE" in elsewhere.stdout, elsewhere.stdout
    here = play(CLEAN, inventory, {"target": "node1,node2"})
    assert "residual_paths_map of node2 (did you mean residual_paths_maps?)" in here.stdout
    assert "UNREACHABLE" not in here.stdout


@pytest.mark.parametrize("how", ["import_role", "include_role", "roles"])
def test_unknown_variable_ends_a_role(tmp_path: Path, how: str) -> None:
    """In a play of one's own, also where the task gives the variable, and in check mode."""
    role = {"name": f"{COLLECTION}.residual_paths"}
    vars_ = {"residual_paths_map": "mpathb"}
    tasks = [{"name": "Clean", f"ansible.builtin.{how}": role, "vars": vars_}]
    roles = (
        {"roles": [{"role": role["name"], "vars": vars_}]} if how == "roles" else {"tasks": tasks}
    )
    playbook = tmp_path / "own.yml"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, **roles}]))
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "all: {hosts: {node1: {}}, vars: {ansible_host: 127.0.0.1, ansible_port: 1}}\n"
    )
    result = play(str(playbook), inventory, {}, "--check")
    assert "residual_paths_map (did you mean residual_paths_maps?)" in result.stdout
    assert "UNREACHABLE" not in result.stdout


def test_misspelt_variable_repairs_nothing(node: Node) -> None:
    """Of two residual maps one was meant: both were repaired."""
    node.unmap(2, 3)
    before = node.shape()
    name, _wwid = node.map_of(2)
    result = play(
        CLEAN,
        node.vm.inventory(),
        {"target": "node1", "residual_paths_map": name, "residual_paths_observation_seconds": 3},
    )
    assert node.shape() == before, result.stdout
    assert result.returncode != 0


def test_survey_strings(node: Node) -> None:
    """The word false means false: a map with a hung reader is refused. With true it is repaired."""
    name, _wwid = node.map_of(2)
    node.queue()
    node.unmap(2)
    reader = node.hung_reader(f"/dev/mapper/{name}")
    before = node.shape()
    refused = play(CLEAN, node.vm.inventory(), SURVEY)
    # Whoever sees only the colour is told that the map is left; a rehearsal says so only when it is
    # asked to.
    assert refused.returncode == 2 and f"1 left: node1: multipath map {name}: " in refused.stdout, (
        refused.stdout
    )
    for strict, status in (("false", 0), ("true", 2)):
        rehearsed = play(
            CLEAN, node.vm.inventory(), SURVEY | {"residual_paths_strict": strict}, "--check"
        )
        assert rehearsed.returncode == status, rehearsed.stdout
    assert "verdict: refuse" in refused.stdout
    assert "set fail_hung_readers" in refused.stdout
    assert node.shape() == before

    repaired = play(
        CLEAN, node.vm.inventory(), SURVEY | {"residual_paths_fail_hung_readers": "true"}
    )
    assert repaired.returncode == 0, repaired.stdout
    assert f"done: flush_map {name}" in repaired.stdout
    node.gone(2)
    assert node.process_state(reader) == ""


def test_named_and_refused_fails_and_shows_why(node: Node) -> None:
    """A list in one string; the refusal of a named map ends red, with its findings shown all the
    same.
    """
    name, _wwid = node.map_of(2)
    node.unmap(2)
    node.labctl(f"hold /dev/mapper/{name}")
    before = node.shape()
    result = play(
        CLEAN, node.vm.inventory(), SURVEY | {"residual_paths_maps": f"mpatha, {name}\nmpathc\n"}
    )
    assert result.returncode != 0
    assert "opened by" in result.stdout and "verdict: refuse" in result.stdout
    assert node.shape() == before


@pytest.mark.smoke
def test_misspelt_switch_is_refused(node: Node) -> None:
    node.unmap(2)
    before = node.shape()
    result = play(CLEAN, node.vm.inventory(), SURVEY | {"residual_paths_fail_hung_readers": "ture"})
    assert result.returncode != 0
    assert "must be true or false, not 'ture'" in result.stdout + result.stderr
    assert node.shape() == before


def test_ad_hoc(node: Node) -> None:
    """As the documentation says: ansible -i … all -m storage_ops.runbooks.multipath_residual
    --check, here with a shorter look.
    """
    node.unmap(3)
    before = node.shape()
    module = ["-m", "storage_ops.runbooks.multipath_residual", "-a", "observation_seconds=5"]
    result = ansible("ansible", "-i", str(node.vm.inventory()), "all", *module, "--check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "node1 | CHANGED" in result.stdout
    assert '"STOR-01"' in result.stdout
    assert node.shape() == before


@pytest.mark.variation
def test_load_iscsi_modules(node: Node) -> None:
    node.guarded = False
    node.labctl("logout")
    node.sh("modprobe -r iscsi_tcp")
    survey = {
        "target": "node1",
        "batch": "100%",
        "iscsi_ready_modules": "",
        "iscsi_ready_persist": "false",
        "iscsi_ready_load_blacklisted": "false",
        "iscsi_ready_options": "",
    }
    planned = play(LOAD, node.vm.inventory(), survey, "--check")
    assert planned.returncode == 0, planned.stdout
    assert "planned: load_module iscsi_tcp" in planned.stdout
    assert "persist_module" not in planned.stdout
    assert "iscsi_tcp" not in node.sh("lsmod")

    done = play(LOAD, node.vm.inventory(), survey)
    assert done.returncode == 0, done.stdout
    assert "done: load_module iscsi_tcp" in done.stdout
    assert "iscsi_tcp" in node.sh("lsmod")


def test_duplicate_initiator_names_are_found_host_by_host(node: Node, tmp_path: Path) -> None:
    """With a batch of 1 each host is compared with those whose turn is not yet.

    The node is in the inventory twice, and so no duplicate of itself. As worker02 it has the boot
    ID that a clone would have.
    """
    node.sh("echo 1e5a7f10-0000-4000-8000-000000000002 > /run/boot_id")
    node.vm.run("cat > /usr/local/bin/clone && chmod +x /usr/local/bin/clone", stdin=CLONE)
    inventory = node.vm.inventory()
    text = inventory.read_text()
    again, twin = tmp_path / "again.yml", tmp_path / "twin.yml"
    again.write_text(text.replace("node1:", "node1-again:"))
    other = text.replace("/usr/bin/python3", "/usr/local/bin/clone")
    twin.write_text(other.replace("node1:", "worker02:"))
    sources = [word for path in (inventory, again, twin) for word in ("-i", str(path))]
    one = ("-e", "batch=1")
    result = ansible("ansible-playbook", LOAD, *sources, "-e", "target=all", *one, "--check")
    said = re.findall(r"is also that of ([^:]*):", result.stdout)
    # Once for each host: by the summary alone.
    assert sorted(said) == ["node1, node1-again", "worker02", "worker02"], result.stdout
