# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An audit compiles on the node what it imports, so it imports only what its controls need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ansible_collections
import pytest

from ansible_collections.storage_ops.runbooks.plugins.modules import node_storage_info

# Runs the module, and prints its result, then the names of what that imported.
PROGRAM = """
import json, sys
from ansible.module_utils import basic
from ansible_collections.storage_ops.runbooks.plugins.modules import node_storage_info
basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": json.loads(sys.argv[1])}).encode()
basic._ANSIBLE_PROFILE = "legacy"
try:
    node_storage_info.main()
except SystemExit:
    pass
utils = "ansible_collections.storage_ops.runbooks.plugins.module_utils."
print()
print(json.dumps([name[len(utils):] for name in sys.modules if name.startswith(utils)]))
"""
# Whatever is asked for.
ALWAYS = {"_node.host", "_node.kubelet", "_node.options", "_node.scsi"}
# What looks at one thing only, and who is asked for it.
OWNERS = {
    "_fuse_mounts.runbook": {"STOR-05", "STOR-06"},
    "_fuse_mounts.plan": {"STOR-05", "STOR-06"},
    "_fuse_mounts.recipes": {"STOR-05", "STOR-06"},
    "_containers.runbook": {"STOR-05", "STOR-06"},
    "_containers.plan": {"STOR-05", "STOR-06"},
    "_pod_mounts.runbook": {"STOR-07", "STOR-08"},
    "_pod_mounts.plan": {"STOR-07", "STOR-08"},
    "_pod_mounts.backing": {"STOR-07", "STOR-08"},
    "_residual_paths.runbook": {"STOR-01", "STOR-02", "STOR-03"},
    "_residual_paths.plan": {"STOR-01", "STOR-02", "STOR-03"},
    "_node.usage": {"STOR-01", "STOR-02", "STOR-03"},
    "_iscsi_ready.runbook": {"STOR-04"},
    "_nfs.runbook": {"STOR-09"},
    "_nfs.plan": {"STOR-09"},
    "_nfs.runtime_limit": {"STOR-09", "STOR-10"},
}


def imported(tmp_path: Path, *controls: str) -> set[str]:
    """The parts of an audit of nothing but these controls."""
    # There is no such kubelet, and an observation takes no time.
    given = {"controls": controls, "kubelet_root": str(tmp_path / "none"), "observations": 1}
    root = os.path.dirname(next(iter(ansible_collections.__path__)))
    search = os.pathsep.join([root, *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": search},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("control", node_storage_info.CONTROLS)
def test_only_what_the_control_needs(tmp_path: Path, control: str) -> None:
    found = imported(tmp_path, control)
    assert found >= ALWAYS
    wanted = {name for name, controls in OWNERS.items() if control in controls}
    assert found & set(OWNERS) == wanted


def test_every_control_has_its_part(tmp_path: Path) -> None:
    assert imported(tmp_path, *node_storage_info.CONTROLS) >= set(OWNERS)
