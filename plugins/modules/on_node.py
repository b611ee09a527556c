#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: on_node
short_description: Run a module on a host without letting it set variables on the controller
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - A compromised host can answer instead of a module. Its answer can set variables
    (C(ansible_facts)), which take precedence over the defaults of roles and over the inventory, and
    artifacts of the job (C(ansible_stats)), which are extra variables of the next step of a
    workflow in AWX. With C(delegate_to) it sets variables of the host of the play.
  - This module runs another module and drops both from its result. Gathered facts are returned as
    RV(facts), and set no variables.
  - Before ansible-core 2.19 the text of a failed connection is a template, and whoever answers at
    the host's address writes it. With this module it is data.
  - The modules of this collection that run on nodes and on Ceph hosts always run this way, and need
    no such task.
  - A host that does not answer within 120 seconds counts as one that cannot be reached; the keyword
    C(timeout) of the task, or the setting C(task_timeout) of Ansible, sets another time. For the
    modules of this collection the time is their own deadline and 120 seconds more. What was started
    on the host may continue there.
  - The keyword C(async) is refused, also for the modules of this collection that run on nodes and
    on Ceph hosts. Ansible would read the later answer itself, and take variables from it.
  - With ansible-core 2.23 and later, which was not tested with hosts that answer to harm the
    controller, nothing is run on the host.
  - If a host sends more than the controller takes, the task fails, with C(code=result_too_long).
  - On a host without Python, M(ansible.builtin.raw) runs this way, with its command as the argument
    C(_raw_params).
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
    details: Depends on the module that is run.
  diff_mode:
    support: full
    details: Depends on the module that is run.
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
  description: The C(ansible_facts) of the module, with their names there, such as
    C(ansible_hostname). All other values are as the module returns them.
  returned: if it returned some
  type: dict
"""
