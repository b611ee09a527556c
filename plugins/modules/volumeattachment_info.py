#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: volumeattachment_info
short_description: Audit the VolumeAttachments of a cluster
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Runs the cluster controls in one call and changes nothing. It reads and decides with the same
    code as the module that repairs.
  - STOR-11 VolumeAttachments that no pod needs any more, STOR-12 volumes that hit the 68-character
    name collision, STOR-13 volumes that are attached and missing from their node's
    C(volumesAttached), STOR-14 VolumeAttachments without what their driver needs, STOR-15 pods that
    wait for a volume that nobody attaches.
  - A node that M(storage_ops.runbooks.workload_reattach) still keeps new pods off, as after it was
    killed, is reported with the command that finishes it, by every control that reads nodes (all
    but STOR-12 and STOR-14).
  - A healthy cluster is read by five requests that its API server answers from memory. Pods are
    read only where something is suspicious, and where they are pending. Where much is suspicious, a
    watch tells what has changed in the long lists since they were read; without the right to watch
    they are read again.
options:
  controls:
    description: Controls to run, at least one. What the others need is not read.
    type: list
    elements: str
    choices:
      - STOR-11
      - STOR-12
      - STOR-13
      - STOR-14
      - STOR-15
    default:
      - STOR-11
      - STOR-12
      - STOR-13
      - STOR-14
      - STOR-15
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._attachments
  - storage_ops.runbooks._attachments.judging
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.volumeattachment_repair
  - module: storage_ops.runbooks.pod_volume_info
  - plugin: storage_ops.runbooks.safe_volume_name_prefix
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Audit a cluster
  storage_ops.runbooks.volumeattachment_info:
  delegate_to: localhost
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  register: audit

- name: Find attachments that an old version of a driver made
  storage_ops.runbooks.volumeattachment_info:
    controls:
      - STOR-14
    required_metadata:
      csi.example.com:
        - publishInfo
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
      description: Control that found it; empty for a node that an unfinished move keeps new pods
        off.
      type: str
      returned: always
      sample: STOR-11
    severity:
      description: One of V(critical), V(major), V(minor) or V(info).
      type: str
      returned: always
      sample: major
    object:
      description:
        - What it is about, by C(kind), C(name) and C(node), and C(namespace) where it has one.
        - C(node) is empty for what belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "VolumeAttachment", "name": "csi-90a1...", "node": "worker01"}
    summary:
      description: One sentence.
      type: str
      returned: always
    evidence:
      description:
        - What was read; lists are cut after 50 items, with a count.
        - C(workload_title) (STOR-13, STOR-14) names the pods' controller.
      type: dict
      returned: always
    workload:
      description:
        - What has to be moved, on the first finding of each workload and control, and there for all
          of them; never cut.
        - It has C(kind), C(namespace) and C(name) of the pods' controller, the C(claims) to move it
          off, the uids of the C(attachments) that must go, and for STOR-14 the keys that are
          C(missing).
      type: dict
      returned: for STOR-13 and STOR-14 that a move repairs
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
      sample: storage_ops.runbooks.repair_volumeattachments
    repair:
      description: The actions that repair it, in order; each as in RV(actions).
      type: list
      elements: dict
      returned: always
not_assessed:
  description: Controls that could not be looked at, or not wholly, and why. The task fails then,
    with the findings of the others.
  returned: when there are any
  type: dict
  sample: {"STOR-11": "cannot list volumeattachments"}
actions:
  description: Always empty; what a repair would do is in each finding.
  returned: always
  type: list
  elements: dict
  contains:
    action:
      description: V(delete_volumeattachment).
      type: str
      returned: always
      sample: delete_volumeattachment
    target:
      description: Name of the VolumeAttachment.
      type: str
      returned: always
    command:
      description: HTTP method, path, and the precondition that goes with it.
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

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import python

python.require()

from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments.runbook import (
    SCOPE,
    VolumeAttachments,
    make_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import report
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    BOUNDS,
    ArgumentSpec,
    make_cluster,
    reveal,
)

CONTROLS = ["STOR-11", "STOR-12", "STOR-13", "STOR-14", "STOR-15"]
WANTED = ArgumentSpec(
    {"controls": {"type": "list", "elements": "str", "choices": CONTROLS, "default": CONTROLS}}
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **WANTED.merge(SCOPE, AUTH, BOUNDS).to_kwargs()
    )
    reveal(module)
    params: dict[str, Any] = module.params
    report(
        module,
        lambda: VolumeAttachments(make_cluster(params), make_options(params)),
        params["controls"],
    )


if __name__ == "__main__":
    main()
