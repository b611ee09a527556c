# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node on which the operator may log in, and not become root: nothing is assessed, and the output
says why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Played
from support.node import COLLECTION, Node, remote_environment
from support.selection import lowest

USER = "ops"
# The node has no sudo. This is how its shell says so.
SAID = "sudo: not found"


@pytest.fixture
def node(node: Node) -> Node:
    """With an ordinary user, who has the keys of root."""
    node.sh(
        f"useradd --create-home --password '*' --shell /bin/sh {USER} && "
        f"cp -r /root/.ssh /home/{USER}/ && chown -R {USER}: /home/{USER}/.ssh"
    )
    return node


def play(program: str, name: str, node: Node, **extra: Any) -> Played:
    """A playbook as that user."""
    given = {"ansible_user": USER, "target": "node1", **extra}
    command = [program, f"{COLLECTION}.{name}", "-i", str(node.vm.inventory())]
    return Played.of([*command, "-e", json.dumps(given)], remote_environment())


@pytest.mark.variation
@pytest.mark.parametrize("core", ["current", "lowest"])
def test_a_repair_says_it(node: Node, core: str) -> None:
    program = "ansible-playbook" if core == "current" else lowest("ansible-playbook")
    node.unmap(2)
    shape = node.shape()
    played = play(program, "clean_residual_paths", node)
    assert played.rc != 0, played.text
    assert SAID in played.text, played.text
    assert "1 not assessed: node1" in played.text, played.text
    assert node.shape() == shape


@pytest.mark.variation
def test_compliance_says_it(node: Node, tmp_path: Path) -> None:
    asked = {"report_folder": str(tmp_path), "report_controls": "STOR-01 STOR-04"}
    given = {f"compliance_{key}": text for key, text in asked.items()}
    played = play("ansible-playbook", "compliance", node, **given)
    assert played.rc != 0, played.text
    report = json.loads((tmp_path / "report.json").read_text())
    (host,) = (host for host in report["hosts"] if host["name"] == "node1")
    assert set(host["controls"].values()) == {"not_assessed"}, host
    assert SAID in host["reason"], host
