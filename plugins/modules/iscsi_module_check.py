#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: iscsi_module_check
short_description: Find and load missing iSCSI kernel modules
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Checks that a node is ready for iSCSI volumes (STOR-04). The kernel modules must be loaded or
    built in, installed for the running kernel, and loaded at the next boot. iscsid must be active.
    The initiator name must exist, be well formed, and belong to no other node.
  - Loads and persists modules. Reports a module that is installed for another kernel than the
    running one, for example after a kernel upgrade without a reboot.
  - Never generates an initiator name, since it is the node's identity on the array.
requirements:
  - Root (C(become)).
  - C(modprobe) to load modules, C(systemctl) to check iscsid.
options:
  modules:
    description: Kernel modules that must be ready.
    type: list
    elements: str
    default:
      - iscsi_tcp
  persist:
    description: Whether C(modules-load.d) must also load a module at boot. Without it iSCSI volumes
      do not come back after a reboot.
    type: bool
    default: true
  load_blacklisted:
    description: Accept that a module is loaded although C(modprobe.d) forbids it. This lasts until
      the next reboot; the line in C(modprobe.d) stays.
    type: bool
    default: false
  start_iscsid:
    description: Accept that iscsid is started.
    type: bool
    default: false
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._node.peers
  - storage_ops.runbooks._node.bounds
  - storage_ops.runbooks._repair.strict
seealso:
  - module: storage_ops.runbooks.node_storage_info
"""

EXAMPLES = r"""
---
- name: Show whether the node is ready for iSCSI
  storage_ops.runbooks.iscsi_module_check:
  check_mode: true
  become: true

- name: Load and persist iscsi_tcp, start iscsid
  storage_ops.runbooks.iscsi_module_check:
    start_iscsid: true
  become: true

- name: The same for iSER over InfiniBand
  storage_ops.runbooks.iscsi_module_check:
    modules:
      - iscsi_tcp
      - ib_iser
  become: true
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 1 finding, 1 repaired and proven
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
half_made:
  description: Whether the repair that failed has left something half made, or this is not known.
    Then find out why before you continue with other hosts.
  returned: if it has
  type: bool
refused:
  description: Names of the objects whose refusal failed the task.
  returned: when the task failed only because of refusals
  type: list
  elements: str
findings:
  description: What is wrong, most severe first. If a limit is shared in turns of namespaces or
    arrays, the most severe finding of each comes first, then the next of each.
    RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "kernel module", "name": "iscsi_tcp", "node": "worker01"}
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.load_iscsi_modules
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads. RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
  returned: always
  type: list
  elements: dict
  contains:
    action:
      description:
        - Name of the action.
        - V(load_module), V(persist_module) or V(start_service).
      type: str
      returned: always
      sample: load_module
actions_left_out:
  description: How many more actions there were, if the result is too long for all. They are chosen
    in turns of the namespaces or arrays.
  returned: when there are any
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import run
from ..module_utils._iscsi_ready.plan import IscsiOptions
from ..module_utils._iscsi_ready.runbook import IscsiReady
from ..module_utils._node.options import BOUNDS, PEERS, REFUSAL, ArgumentSpec, make_host

READINESS = ArgumentSpec(
    {
        "modules": {"type": "list", "elements": "str", "default": ["iscsi_tcp"]},
        "persist": {"type": "bool", "default": True},
        "load_blacklisted": {"type": "bool", "default": False},
        "start_iscsid": {"type": "bool", "default": False},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **READINESS.merge(PEERS, BOUNDS, REFUSAL).to_kwargs()
    )
    params: dict[str, Any] = module.params
    options = {name: params[name] for name in (*READINESS.options, *PEERS.options)}
    run(
        module,
        lambda: IscsiReady(
            make_host(params), IscsiOptions(**{**options, "modules": tuple(options["modules"])})
        ),
        params["strict"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
