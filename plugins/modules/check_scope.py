#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: check_scope
short_description: Fail if a variable or a part of the target does not exist
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Every role and every playbook of this collection begins with this module.
  - Fails if a variable begins with the name of one of the collection's roles and C(_), but no role
    has this variable, and names the nearest one that exists. Such a variable often limits the scope
    of a run, and without it the run would repair everything. The variable may come from the command
    line, a survey, the inventory, a play or a task.
  - Also fails for an extra variable that does not begin with the name of a role, but is very
    similar to a variable that exists.
  - With O(target), fails if a part of the target matches no host. This includes parts that exclude
    hosts, such as V(!worker01).
  - With O(role), fails if the value of an option is not valid, such as V(flase) for a boolean, and
    returns the options.
  - Runs on the controller and connects to no host.
options:
  target:
    description:
      - Hosts as a pattern of the inventory; a list, or one string separated by commas, blanks,
        newlines or colons.
      - With it, the variables of all these hosts in the play are checked, so the task can run once
        for all of them.
      - An empty target fails. Leave the option out if there is no target.
    type: raw
  variables:
    description: More variables that exist.
    type: list
    elements: str
    default: []
  prefixes:
    description: More prefixes, such as V(triage_), that a variable must not begin with unless it
      exists.
    type: list
    elements: str
    default: []
  given:
    description:
      - Check only these names of variables, which other runs will get, for example from a job
        template.
      - Fails if one is not a variable of O(playbooks) and does not begin with V(ansible_).
    type: list
    elements: str
  playbooks:
    description: The playbooks of this collection that O(given) is for.
    type: list
    elements: str
  role:
    description:
      - The role of this collection whose options are read and returned.
      - A survey sends strings. They are converted to the list, dictionary, boolean or number that
        the role documents. An empty string, list or dictionary means the default.
    type: str
  own:
    description: Options of O(role) that its module does not have. They are returned in RV(own).
    type: list
    elements: str
    default: []
  rare:
    description:
      - Options of the role's module that have no variable of their own. They are given in the
        dictionary ROLE_options, and returned with the others.
      - Any other name in that dictionary is refused.
    type: list
    elements: str
    default: []
  unread:
    description: Options of O(role) that are not returned, for example since they contain
      credentials.
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
  description: The hosts of the target in this play.
  returned: with O(target)
  type: list
  elements: str
left_out:
  description: The hosts of the target that the limit excludes.
  returned: with O(target)
  type: list
  elements: str
options:
  description:
    - The value of each option that is not in O(own) or O(unread), by its name without the prefix of
      the role. Options without a value and without a default are left out.
  returned: with O(role)
  type: dict
check:
  description: Whether the role runs in check mode, by C(--check) or by a play, block or task.
  returned: with O(role)
  type: bool
own:
  description: The same for the options in O(own).
  returned: with O(role)
  type: dict
"""
