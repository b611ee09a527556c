#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: awx_object
short_description: Create an object of AWX, or return it as data
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Called by the playbook C(configure_awx); use that.
  - Runs a module of C(awx.awx) or C(ansible.controller), so that one list of objects serves both
    for AWX itself, and as data of the collection C(infra.aap_configuration).
options:
  collection:
    description: The collection of the module. Without it nothing is run, and the object is returned
      as RV(object).
    type: str
    default: ""
  kind:
    description: The module, which has the name of the kind of object, such as V(project).
    type: str
    required: true
  arguments:
    description: The options of the module.
    type: dict
    required: true
  secrets:
    description: Names of variables that hold more C(inputs) of a credential, by input. Their values
      are not in RV(object).
    type: dict
    default: {}
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.action
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Create a project
  storage_ops.runbooks.awx_object:
    collection: awx.awx
    kind: project
    arguments:
      name: "Storage: runbooks"
      organization: Default
      scm_type: git
      scm_url: https://github.com/storage-ops/runbooks
"""

RETURN = r"""
object:
  description: The object, and the names of its secrets' variables.
  returned: without O(collection)
  type: dict
  sample:
    kind: project
    arguments: {name: "Storage: runbooks", scm_type: git}
    secrets: {}
"""
