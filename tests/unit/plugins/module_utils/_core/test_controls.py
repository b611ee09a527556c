# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The registry of controls, and the commands that repair a finding."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import controls
from ansible_collections.storage_ops.runbooks.tests.unit.support.results import HOSTILE

FACTS = {
    "node": "worker-1",
    "namespace": "shop",
    "pod": "web-0",
    "claim": "data",
    "attachment": "csi-0f1e",
    "lost_node": "worker-2",
}
FACTS["in_tree_node"] = "worker-1"


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


def test_commands_only_of_plain_names() -> None:
    thing = {"kind": "multipath map", "namespace": "", "name": "mpatha", "node": "k8s-node"}
    line = (
        "ansible-playbook storage_ops.runbooks.clean_residual_paths -i inventory -e "
        "target=worker01 --check"
    )
    assert controls.check_command("STOR-01", "worker01", thing) == line, (
        "the inventory's name, not Kubernetes'"
    )
    assert not controls.check_command(
        "STOR-01", "worker01 -e x=1", thing
    ) and not controls.check_command("STOR-01", HOSTILE, thing)
    attachment = {"kind": "VolumeAttachment", "namespace": "", "name": "csi-0a", "node": "n1"}
    assert "attachment_repair_names=csi-0a" in controls.check_command(
        "STOR-11", "cluster", attachment
    )
    assert not controls.check_command(
        "STOR-11", "cluster", {**attachment, "name": "{{ lookup('pipe', 'id') }}"}
    )
    assert "-e target=n1" in controls.check_command(
        "STOR-16", "cluster", {**attachment, "kind": "PersistentVolume"}
    )
    assert "-e target=n9" in controls.check_command(
        "STOR-17", "cluster", {**attachment, "kind": "Node", "name": "n9", "node": ""}
    )
    assert "triage_namespace=shop" in controls.check_command(
        "STOR-15", "cluster", {**attachment, "kind": "pod", "namespace": "shop"}
    )
    assert not controls.check_command("", "n1", thing)
