#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: check_scope
short_description: End a run whose variables or hosts are not what was meant
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Every role of this collection begins with it, and so does every playbook.
  - Fails if there is a variable that begins with the name of one of the collection's roles and
    C(_), and none of these roles has it, and names the nearest that exists. Most often it is a
    variable that narrows the run down, and without it the run would repair everything. It does not
    matter where it comes from, as from an extra variable, a survey, the inventory, a play or a
    task.
  - Of extra variables, those fail, too, that are nearly one that exists, but do not begin with the
    name of a role.
  - With O(target) it fails if a part of it matches no host, also if that is a part to be left out,
    as V(!worker01).
  - With O(role) it fails if a value is none that the role's option can have, as V(flase) for a
    switch, and returns the options.
  - Runs on the controller, and connects to no host.
options:
  target:
    description:
      - Hosts as a pattern of the inventory; a list, or one string separated by commas, blanks,
        newlines or colons.
      - With it, all variables of these hosts are looked at, as far as the play has them; for this
        the task can run once for all of them.
      - Not given, there is no target; empty, it fails.
    type: raw
  variables:
    description: More variables that exist.
    type: list
    elements: str
    default: []
  prefixes:
    description: What else a variable must not begin with unless it exists, as V(triage_).
    type: list
    elements: str
    default: []
  given:
    description:
      - Instead of all else, names of variables that other runs are to get, such as those that a job
        template holds for its jobs.
      - Fails if one is neither a variable that O(playbooks) know nor one of Ansible's own, which
        begin with V(ansible_).
    type: list
    elements: str
  playbooks:
    description: The playbooks of this collection that O(given) is for.
    type: list
    elements: str
  role:
    description:
      - The role of this collection that begins. Its options are read, and returned.
      - A survey sends strings. What the role documents as a list, a dictionary, a switch or a
        number, becomes one, and an empty string, list or dictionary stands for the default.
    type: str
  own:
    description: Of O(role), the options that its module does not have. They are returned apart.
    type: list
    elements: str
    default: []
  rare:
    description:
      - Of the module of O(role), the options that have no variable of their own. They are given in
        the dictionary ROLE_options, and returned with the others.
      - Any other name in that dictionary is refused.
    type: list
    elements: str
    default: []
  unread:
    description: Of O(role), the options that are not returned, as those with credentials in them.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.action
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Refuse variables that no role has
  storage_ops.runbooks.check_scope:

- name: Refuse a target that is not in the inventory, and variables that do not exist
  storage_ops.runbooks.check_scope:
    target: "{{ target }}"
    prefixes: [my_playbook_]
    variables: [my_playbook_reason]
  run_once: true

- name: Refuse variables that no role has, and read the options of this one
  storage_ops.runbooks.check_scope:
    role: residual_paths
    own: [strict]
    rare: [deadline]
  register: __residual_paths

- name: Refuse variables for a job template that its jobs would not know
  storage_ops.runbooks.check_scope:
    given: "{{ my_template.extra_vars | list }}"
    playbooks: [compliance]
"""

RETURN = r"""
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: bad_option
hosts:
  description: The hosts of the target that the play has.
  returned: with O(target)
  type: list
  elements: str
left_out:
  description: The hosts of the target that the limit takes away.
  returned: with O(target)
  type: list
  elements: str
options:
  description:
    - By its name without that of the role, the value of each option that is neither in O(own) nor
      in O(unread). One that has neither an answer nor a default is left out.
  returned: with O(role)
  type: dict
check:
  description: Whether the role runs in check mode, by C(--check) or by a play, block or task.
  returned: with O(role)
  type: bool
own:
  description: The same of those in O(own).
  returned: with O(role)
  type: dict
"""
