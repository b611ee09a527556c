#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_storage_info
short_description: Audit the storage of a node
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Runs all node controls in one call and changes nothing. It reads and decides with the same code as the modules that repair.
  - STOR-01 residual multipath maps, STOR-02 paths that read another LUN, STOR-03 residual SCSI disks, STOR-04 iSCSI readiness.
requirements:
  - Root's rights (C(become)).
options:
  controls:
    description: Controls to run.
    type: list
    elements: str
    choices:
      - STOR-01
      - STOR-02
      - STOR-03
      - STOR-04
    default:
      - STOR-01
      - STOR-02
      - STOR-03
      - STOR-04
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._node.residual
  - storage_ops.runbooks._node.peers
  - storage_ops.runbooks._node.bounds
seealso:
  - module: storage_ops.runbooks.multipath_residual
  - module: storage_ops.runbooks.iscsi_module_check
"""

EXAMPLES = r"""
---
- name: Audit a node
  storage_ops.runbooks.node_storage_info:
  become: true
  register: audit

- name: Show what would be repaired
  ansible.builtin.debug:
    var: audit.findings
"""

RETURN = r"""
msg:
  description: What came of it, in one line.
  returned: always
  type: str
  sample: 1 finding, 1 would be repaired
findings:
  description: What is wrong, most severe first.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Control that found it.
      type: str
      returned: always
      sample: STOR-01
    severity:
      description: One of V(critical), V(major), V(minor) or V(info).
      type: str
      returned: always
      sample: major
    object:
      description: What it is about, by C(kind), C(name) and C(node).
      type: dict
      returned: always
      sample: {"kind": "multipath map", "name": "mpathb", "node": "worker01"}
    summary:
      description: One sentence.
      type: str
      returned: always
    evidence:
      description: What was read; lists are cut after 50 items, with a count.
      type: dict
      returned: always
    verdict:
      description: V(repair), V(refuse) or V(report).
      type: str
      returned: always
      sample: repair
    reason:
      description: Why it is repaired, refused or only reported, with the next step.
      type: str
      returned: always
    runbook:
      description: Playbook that repairs it.
      type: str
      returned: always
      sample: storage_ops.runbooks.clean_residual_paths
    repair:
      description: The actions that repair it, in order; each as in RV(actions).
      type: list
      elements: dict
      returned: always
actions:
  description: Always empty; what a repair would do is in each finding.
  returned: always
  type: list
  elements: dict
  contains:
    action:
      description: See the modules that repair.
      type: str
      returned: always
      sample: flush_map
    target:
      description: What it changes.
      type: str
      returned: always
    command:
      description: Exactly what is run; C(write FILE TEXT) stands for a write to a file.
      type: list
      elements: str
      returned: always
    outcome:
      description: V(planned), V(done), V(failed) or V(skipped).
      type: str
      returned: always
      sample: done
    seconds:
      description: How long it took.
      type: float
      returned: always
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import Runbook, report
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kmod import IscsiReady
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kmod import Options as ReadyOptions
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.options import (
    BOUNDS,
    PEERS,
    RESIDUAL,
    ArgumentSpec,
    make_host,
    residual_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.residual import ResidualPaths

CONTROLS = ["STOR-01", "STOR-02", "STOR-03", "STOR-04"]
SCOPE = ArgumentSpec({"controls": {"type": "list", "elements": "str", "choices": CONTROLS, "default": CONTROLS}})


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(RESIDUAL, PEERS, BOUNDS).to_kwargs())
    params: dict[str, Any] = module.params
    wanted = set(params["controls"])

    def runbooks() -> list[Runbook[Any]]:
        host = make_host(params)
        residual = [ResidualPaths(host, residual_options(params))] if wanted & {"STOR-01", "STOR-02", "STOR-03"} else []
        ready = [IscsiReady(host, ReadyOptions(peer_initiator_names=params["peer_initiator_names"]))] if "STOR-04" in wanted else []
        return [*residual, *ready]

    report(module, runbooks, wanted)


if __name__ == "__main__":
    main()
