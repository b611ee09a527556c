#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: on_node
short_description: Run a module on a host that may set nothing on the controller
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Whatever answers on a host in place of a module can set variables (C(ansible_facts)), which
    count more than the defaults of roles and the inventory, and artifacts of the job
    (C(ansible_stats)), which are extra variables of the next step of a workflow in AWX. With
    C(delegate_to) the variables are those of the host of the play.
  - This runs a module, and takes neither from its result. What it gathered is the value RV(facts),
    and no variable.
  - The modules of this collection that run on nodes and on Ceph's hosts need no such task, since
    all of them go through it.
options:
  module:
    description: The module, by its full name.
    type: str
    required: true
  arguments:
    description: Its options.
    type: dict
    default: {}
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.action
attributes:
  check_mode:
    details: As the module that is run.
  diff_mode:
    support: full
    details: As the module that is run.
"""

EXAMPLES = r"""
- name: Read the initiator name
  storage_ops.runbooks.on_node:
    module: ansible.builtin.setup
    arguments:
      gather_subset: ["!all", "!min", iscsi]
  register: gathered

- name: Show it
  ansible.builtin.debug:
    msg: "{{ gathered.facts.ansible_iscsi_iqn }}"
"""

RETURN = r"""
facts:
  description: What the module returned as C(ansible_facts), by the names that it gives there, as
    C(ansible_hostname). All else is as the module returns it.
  returned: if it returned some
  type: dict
"""
