# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A role offers exactly its module's options, with the module's defaults, and what it does beyond
it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import (
    beginning,
    documented,
)

ROLES = Path(__file__).resolve().parents[3] / "roles"
PAIRS = [
    ("residual_paths", "multipath_residual"),
    ("iscsi_ready", "iscsi_module_check"),
    ("workload_reattach", "workload_reattach"),
    ("attachment_repair", "volumeattachment_repair"),
    ("node_fence", "node_fence"),
    ("volume_failover", "volume_failover"),
    ("node_release", "node_release"),
    ("fuse_recovery", "fuse_remount"),
    ("nfs_check", "nfs_mount_check"),
    ("pod_mounts", "csi_mount_repair"),
]
# How a role finds Ceph.
CEPH = {
    "rados_namespaces": {},
    "ceph_host": "",
    "ceph_conf": "",
    "ceph_keyring": "",
    "ceph_user": "",
    "ceph_cluster": "",
}
# How a role finds the BMC of a node.
BMC = {"bmcs": {}, "bmc_user": "", "bmc_password": "", "accept_unverified_bmc": False}
# What a role does beyond its module.
MORE: dict[str, dict[str, Any]] = {
    "node_fence": {
        **CEPH,
        **BMC,
        "observations": 3,
        "observation_seconds": 61,
        "accept_daemons": False,
        "release_lease": True,
        "prove": True,
    },
    "volume_failover": {
        **{name: value for name, value in CEPH.items() if name != "rados_namespaces"},
        **BMC,
    },
    "node_release": {**CEPH, **BMC, "inventory_host": "", "power_on_timeout": 600},
    "attachment_repair": {
        "lost_status": "report",
        "restart_command": [],
        "leader_process": "^([^ ]*/)?kube-controller-manager( |$)",
        "reattach_missing_metadata": False,
        "provisioner": {},
    },
    "fuse_recovery": {
        **{
            "read_cluster": True,
            "provisioners": [],
            "namespaces": [],
            "claims": [],
            "drivers": {},
            "credential_keys": {},
        },
        **{
            "method": "auto",
            "liveness_timeout": 120,
            "stop_timeout": "",
            "restart_timeout": 120,
            "crictl": "crictl",
        },
        **{"runtime_endpoint": "", "restart_pods": False, "move_timeout": 600},
    },
    "nfs_check": {"write_limit": False, "restart_runtime": False, "strict": False},
    "pod_mounts": {"reattach": False, "node": ""},
}
# Options that the role itself gives, from what another module returned.
GIVEN = {
    "node_fence": {"state", "ceph", "volumes", "proof", "fence", "power"},
    "volume_failover": {"state", "ceph", "awaited", "power", "prove"},
    "node_release": {"state", "ceph", "clients", "fence", "power"},
    # An entry of the role's volumes may have its credentials; it hands them over apart.
    "fuse_recovery": {"credentials"},
}
# The API server is taken from the environment, so that AWX's credential serves all roles alike.
LEFT_OUT = ["storage_ops.runbooks._kubernetes.auth"]


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


@pytest.mark.parametrize(("role", "module"), PAIRS)
def test_role_and_module_agree(role: str, module: str) -> None:
    options = documented(module, LEFT_OUT)
    # No default of its own means empty for the role, which leaves such an option out.
    empty = {"list": [], "dict": {}, "str": ""}
    defaults = {
        name: option.get("default", empty.get(option["type"])) for name, option in options.items()
    }
    rare = set(beginning(role)["storage_ops.runbooks.check_scope"]["rare"])
    given = GIVEN.get(role, set())
    # What the role itself gives is no user's to give, by whatever way.
    assert rare <= set(options) - given
    wanted = {
        f"{role}_{name}": default
        for name, default in {**defaults, **MORE.get(role, {}), "options": {}}.items()
        if name not in given | rare
    }
    assert load(ROLES / role / "defaults/main.yml") == wanted


@pytest.mark.parametrize(("role", "_module"), PAIRS)
def test_readme_has_each_option(role: str, _module: str) -> None:
    readme = (ROLES / role / "README.md").read_text()
    rows = re.findall(rf"(?m)^\| `({role}_\w+)` \|", readme)
    assert sorted(rows) == sorted(load(ROLES / role / "defaults/main.yml"))
    (row,) = re.findall(rf"(?m)^\| `{role}_options` \|.*$", readme)
    rare = beginning(role)["storage_ops.runbooks.check_scope"]["rare"]
    assert [name for name in rare if f"`{name}`" not in row] == []


@pytest.mark.parametrize(("role", "_module"), PAIRS)
def test_argument_specs_document_the_defaults(role: str, _module: str) -> None:
    spec = load(ROLES / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert {name: option["default"] for name, option in spec.items()} == load(
        ROLES / role / "defaults/main.yml"
    )
