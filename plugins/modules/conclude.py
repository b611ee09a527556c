#!/usr/bin/python
# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the action plugin of the same name does it all, on the controller.

DOCUMENTATION = r"""
module: conclude
short_description: Fail a run that leaves something broken
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - The one rule that decides whether a run is green or red. Every role that repairs, and every
    playbook of this collection, ends with it.
  - Something is left if a finding was refused, or was only reported. Findings with the severity
    V(info) are hints, and do not count.
  - A run that repairs fails if anything is left. Check mode, and an O(audit), fail only with
    O(strict).
  - Any run fails if a host of O(hosts) did not reach the end of a role, since it is unknown what is
    left there.
  - Runs on the controller, and connects to no host.
options:
  findings:
    description: Findings of modules of this collection at the end of the run.
    type: list
    elements: dict
    default: []
  repaired:
    description:
      - Names of objects of O(findings) that were repaired by other means than the module, or in
        check mode would be. For objects in a namespace the name is C(namespace/name).
    type: list
    elements: str
    default: []
  left:
    description: What else is still broken, and why. It counts like a refused finding.
    type: list
    elements: str
    default: []
  not_assessed:
    description: What the role could not assess, and why. Any run with such an entry fails.
    type: list
    elements: str
    default: []
  hosts:
    description: Hosts whose roles have called this module already, to sum up. Their findings are
      added to O(findings).
    type: list
    elements: str
    default: []
  strict:
    description: Also fail in check mode, and after an O(audit), if anything is left.
    type: bool
    default: false
  audit:
    description: Whether this run was an audit, so that nothing was to be repaired.
    type: bool
    default: false
  fail:
    description:
      - Whether this task fails. If not, a later task must fail if RV(failing) is true. The numbers
        are set as the statistics C(storage_outcome), an artifact of the job in AWX.
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
  description: Numbers of findings by their outcome.
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
      description: The first 50 objects that are left, with the reason.
      type: list
      elements: str
      returned: always
    not_assessed:
      description: The first 50 hosts and objects that could not be assessed.
      type: list
      elements: str
      returned: always
own:
  description: The numbers of this call, for a later call that sums up.
  returned: always
  type: dict
"""
