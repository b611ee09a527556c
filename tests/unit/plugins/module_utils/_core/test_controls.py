# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The registry of controls, and the commands that repair a finding."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import controls
from ansible_collections.storage_ops.runbooks.tests.unit.support.results import HOSTILE

ROOT = Path(__file__).parents[5]
FACTS = {
    "node": "worker-1",
    "namespace": "shop",
    "pod": "web-0",
    "claim": "data",
    "attachment": "csi-0f1e",
    "lost_node": "worker-2",
}
FACTS["in_tree_node"] = "worker-1"


# How a sentence begins or goes on that holds where nothing was found.
_HOLDS = re.compile(r"(No|Every|The|A) |.+ (are|answer) ")


def test_a_title_reads_right_where_the_control_passes() -> None:
    """The report and JUnit show it beside "pass", too; a group of findings has the fault."""
    schema = json.loads((ROOT / "roles/compliance_report/files/report.schema.json").read_text())
    known = schema["properties"]["controls"]["items"]["properties"]
    for control in controls.CONTROLS.values():
        assert _HOLDS.match(control.title) and control.title != control.fault, control.id
        assert not _HOLDS.match(control.fault), control.id
        assert control.to_result().keys() == known.keys()


def test_commands_can_be_run() -> None:
    folder = Path(__file__).parents[5] / "playbooks"
    for control in controls.REPAIRABLE:
        playbook = controls.CONTROLS[control].playbook
        assert (folder / f"{playbook}.yml").is_file()
        command = controls.command(control, FACTS)
        assert command.startswith(f"ansible-playbook storage_ops.runbooks.{playbook} -")
        assert controls.runbook(control) == f"storage_ops.runbooks.{playbook}"
        assert "{" not in command


def test_no_command_without_what_it_needs() -> None:
    assert controls.command("STOR-03", {**FACTS, "node": ""}) == ""
    assert controls.command("STOR-13", {"node": "worker-1", "namespace": "shop"}) == ""
    by_name = controls.command("STOR-13", {"attachment": "csi-0f1e"})
    assert by_name.endswith(
        "-e attachment_repair_names=csi-0f1e -e attachment_repair_lost_status=reattach"
    )
    by_node = controls.command("STOR-13", {"in_tree_node": "worker-1", "namespace": "shop"})
    assert "-e target=worker-1 -e attachment_repair_namespaces=shop -e" in by_node
    assert controls.command("STOR-13", {"in_tree_node": "worker-1;id", "namespace": "shop"}) == ""
    # The pod's own node is well.
    assert controls.command("STOR-16", {"node": "worker-1"}) == ""
    assert (
        controls.command("STOR-14", {**FACTS, "more": " -e '{}'"})
        == controls.command("STOR-14", FACTS) + " -e '{}'"
    )
    assert controls.command("STOR-14", {"more": " -e x=y"}) == ""
    assert controls.command("", FACTS) == controls.command("STOR-15", FACTS) == ""


POINT = "/var/lib/kubelet/pods/8d3f-1/volumes/kubernetes.io~csi/pvc-1/mount"
# A finding of each kind that a playbook can do something about: control, kind, name, evidence, and
# what limits the playbook to it.
SCOPED: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("STOR-01", "multipath map", "mpatha", {"wwid": "36a"}, "-e residual_paths_wwids=36a"),
    (
        "STOR-02",
        "swapped LUNs",
        "a, b",
        {"wwids": ["36a", "36b"]},
        "-e residual_paths_wwids=36a,36b",
    ),
    ("STOR-02", "SCSI disk", "sdb", {"wwid": "36a"}, "-e residual_paths_wwids=36a"),
    ("STOR-03", "SCSI disk", "sdb", {"wwid": "36a"}, "-e residual_paths_wwids=36a"),
    ("STOR-04", "kernel module", "iscsi_tcp", {}, "-e iscsi_ready_modules=iscsi_tcp"),
    ("STOR-05", "FUSE mount", POINT, {}, f"-e fuse_recovery_paths='{POINT}'"),
    ("STOR-05", "container", "web-0/app", {}, "-e fuse_recovery_namespaces=shop"),
    ("STOR-06", "FUSE mount", POINT, {}, f"-e fuse_recovery_paths='{POINT}'"),
    ("STOR-07", "pod mount", POINT, {}, f"-e pod_mounts_paths='{POINT}'"),
    ("STOR-08", "volume filesystem", POINT, {}, f"-e pod_mounts_paths='{POINT}'"),
    ("STOR-09", "NFS share", "nas:/vol/a", {}, "-e nfs_check_shares=nas:/vol/a"),
    ("STOR-09", "NFS share", "[fd00::1]:/a", {}, "-e nfs_check_shares='[fd00::1]:/a'"),
    ("STOR-10", "container runtime", "containerd", {}, "-e nfs_check_runtimes=containerd"),
    ("STOR-11", "VolumeAttachment", "csi-0a", {}, "-e attachment_repair_names=csi-0a"),
    ("STOR-13", "VolumeAttachment", "csi-0a", {}, "-e attachment_repair_names=csi-0a"),
    ("STOR-14", "VolumeAttachment", "csi-0a", {}, "-e attachment_repair_names=csi-0a"),
    ("STOR-15", "pod", "web-0", {}, "-e triage_namespace=shop -e triage_pod=web-0"),
    ("STOR-16", "Node", "n9", {}, "-e target=n9"),
    ("STOR-17", "Node", "n9", {}, "-e target=n9"),
]


def finding(control: str, kind: str, name: str, **evidence: Any) -> dict[str, Any]:
    thing = {"kind": kind, "namespace": "shop", "name": name, "node": "n1"}
    return {"control": control, "object": thing, "evidence": evidence}


@pytest.mark.parametrize(("control", "kind", "name", "evidence", "scope"), SCOPED)
def test_a_command_is_limited_to_its_finding(
    control: str, kind: str, name: str, evidence: dict[str, Any], scope: str
) -> None:
    known = controls.CONTROLS[control]
    line = controls.check_command(finding(control, kind, name, **evidence), "worker01")
    assert line.startswith(f"ansible-playbook {known.runbook} ") and line.endswith(" --check")
    assert scope in line
    # The inventory's name of the node, not Kubernetes'.
    assert ("-e target=worker01" in line) == (known.where == "node")
    # What a shell and Ansible make of it: each variable is one of the playbook or of its roles.
    words = shlex.split(line)
    given = [word for before, word in zip(words, words[1:]) if before == "-e"]
    names = {word.partition("=")[0] for word in given}
    assert names <= variables(known.playbook), names - variables(known.playbook)
    assert POINT not in scope or any(word.endswith(f"={POINT}") for word in given)


def variables(playbook: str) -> set[str]:
    """The variables of a playbook, and of the roles that it runs."""
    text = (ROOT / f"playbooks/{playbook}.yml").read_text("utf-8")
    roles = set(re.findall(r"(?:name|role): storage_ops\.runbooks\.(\w+)\n", text))
    specs = [ROOT / "roles" / role / "meta/argument_specs.yml" for role in roles]
    options = [
        yaml.safe_load(spec.read_text("utf-8"))["argument_specs"]["main"]["options"]
        for spec in specs
        if spec.is_file()
    ]
    # "# target   the hosts", as the head of each playbook explains its own.
    own = re.findall(r"(?m)^# (\w+) {2,}\S", text)
    return {*own, *(name for every in options for name in every)}


def test_each_scope_is_tested() -> None:
    every = {(one.id, kind) for one in controls.CONTROLS.values() for kind in one.scopes}
    # The other residual kinds have the same arguments.
    same = {
        (control, kind) for control, kind in every if control in ("STOR-01", "STOR-02", "STOR-03")
    }
    same.add(("STOR-06", "container"))
    assert every - same <= {(one[0], one[1]) for one in SCOPED}


@pytest.mark.parametrize(
    "text", ["a;id", "worker01 -e x=1", "{{ 7 }}", "a,b", "a\nb", "-x", "", HOSTILE]
)
def test_no_command_of_words_that_are_none(text: str) -> None:
    for control, kind, _name, _evidence, scope in SCOPED:
        told = finding(control, kind, text, wwid=text)
        told["object"].update(namespace=text, node=text)
        for host in {text, "worker01"} if "=" in scope and control != "STOR-17" else {text}:
            assert controls.check_command(told, host) == "", (control, kind, host)


@pytest.mark.parametrize(
    "path",
    [
        "/k/../etc",
        "k/pods",
        "/k/.ssh",
        "/k/a b",
        "/k/$(id)",
        "/k/a,/etc",
        "/k/'",
        "/k//a",
        "/k/\u0430",
    ],
)
def test_no_command_of_paths_that_are_none(path: str) -> None:
    for control, kind in (("STOR-05", "FUSE mount"), ("STOR-07", "pod mount")):
        assert controls.check_command(finding(control, kind, path), "worker01") == ""
    assert controls.check_command(finding("STOR-09", "NFS share", f"nas:{path}"), "worker01") == ""


def test_no_command_for_what_no_playbook_repairs() -> None:
    assert controls.check_command(finding("", "node", "n1"), "worker01") == ""
    assert controls.check_command(finding("STOR-12", "PersistentVolume", "pvc-1"), "cluster") == ""
    assert controls.check_command(finding("STOR-10", "process", "4711"), "worker01") == ""
    # What the playbook would do is not about the object.
    for kind in ("service", "initiator name"):
        assert controls.check_command(finding("STOR-04", kind, "a"), "worker01") == ""
    for kind in ("NetworkFence", "BlocklistEntry"):
        assert controls.check_command(finding("STOR-17", kind, "a"), "worker01") == ""
    assert controls.check_command(finding("STOR-01", "node", "worker01"), "worker01") == ""
    # Its evidence was left out, so it cannot be told from others.
    assert controls.check_command(finding("STOR-01", "multipath map", "a", cut="x"), "n1") == ""
