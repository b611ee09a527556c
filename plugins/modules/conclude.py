#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: conclude
short_description: Fail where something is left that needs a repair
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - The one rule for the colour of a run. Every role of this collection that repairs ends with it,
    and so does every playbook.
  - What is left are findings that were refused, and those that were only reported, unless their
    severity is V(info), which is a hint.
  - A run that repairs fails if anything is left. Check mode, and an O(audit), fail only with
    O(strict).
  - Any run fails for a host of O(hosts) that did not come to the end of a role, since what is left
    there is unknown.
  - Runs on the controller, and connects to no host.
options:
  findings:
    description: Findings of modules of this collection, as they were at the end.
    type: list
    elements: dict
    default: []
  repaired:
    description:
      - Names of objects of O(findings) that were, or in check mode would be, repaired by other
        means than by the module. Of what is in a namespace they are C(namespace/name).
    type: list
    elements: str
    default: []
  left:
    description: What else is as broken as before, and why, as a refused finding.
    type: list
    elements: str
    default: []
  not_assessed:
    description: What the role could not look at, and why. Any run fails for it.
    type: list
    elements: str
    default: []
  hosts:
    description: Hosts for which roles have concluded already, to sum up. Their findings are added
      to O(findings).
    type: list
    elements: str
    default: []
  strict:
    description: Fail in check mode and after an O(audit), too, if anything is left.
    type: bool
    default: false
  audit:
    description: Nothing was to be repaired.
    type: bool
    default: false
  fail:
    description:
      - Whether this task fails. If not, the next one has to, by RV(failing), and the numbers are
        told as the statistics C(storage_outcome), which are an artifact of a job in AWX.
    type: bool
    default: true
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.action
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look for residual maps and disks
  storage_ops.runbooks.multipath_residual:
  register: audit

- name: Fail if there is anything that would not be repaired
  storage_ops.runbooks.conclude:
    findings: "{{ audit.findings }}"
    strict: true
"""

RETURN = r"""
failing:
  description: Whether the run fails, by the rule above.
  returned: always
  type: bool
outcome:
  description: What became of the findings.
  returned: always
  type: dict
  contains:
    repaired:
      description: How many were repaired and proven.
      type: int
      returned: always
    would_be_repaired:
      description: How many a real run would repair.
      type: int
      returned: always
    refused:
      description: How many were refused.
      type: int
      returned: always
    reported:
      description: How many were only reported.
      type: int
      returned: always
    left:
      description: What is left, the first 50, with why.
      type: list
      elements: str
      returned: always
    not_assessed:
      description: The hosts that were not, and what else roles could not look at, the first 50.
      type: list
      elements: str
      returned: always
own:
  description: The same for another call that sums up.
  returned: always
  type: dict
"""
