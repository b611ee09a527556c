#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: pod_volume_info
short_description: Find out why pods are stuck, and what repairs them
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds the pods of a namespace, a node or the whole cluster that are stuck, and reports one
    finding for each, with its control, the evidence, and in RV(findings[].reason) the command that
    repairs it. Changes nothing.
  - A pod is stuck if it waits for its node, its volumes or its containers for O(stuck_seconds), if
    it is being deleted and its grace period ended more than a minute ago, or if it runs without
    being ready and an event names a volume as the cause.
  - The state of VolumeAttachments, nodes, claims and volumes takes precedence over messages.
    Messages are looked up in a catalogue; an unknown message is shown as it is.
  - Pods that wait for something other than storage are reported with the severity V(info).
requirements:
  - The rights of C(playbooks/files/rbac-audit.yml) in this collection.
options:
  namespace:
    description: Look only at pods of this namespace.
    type: str
    default: ''
  pod:
    description:
      - Look only at the pod of this name. Needs O(namespace).
      - The task fails if there is no such pod.
    type: str
    default: ''
  node:
    description: Look only at pods on this node.
    type: str
    default: ''
  stuck_seconds:
    description: Seconds that a pod may wait before it counts as stuck.
    type: float
    default: 120
  required_metadata:
    description:
      - Keys that a driver needs in C(status.attachmentMetadata) of its VolumeAttachments, as a
        dictionary of driver name to list of keys.
      - C(csi.huawei.com) with C(publishInfo) is built in. An entry for a driver replaces its
        built-in keys.
    type: dict
    default: {}
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.cluster_storage_info
"""

EXAMPLES = r"""
---
- name: Why do pods of the shop hang?
  storage_ops.runbooks.pod_volume_info:
    namespace: shop
  register: triage

- name: Show the command for each
  ansible.builtin.debug:
    msg: "{{ triage.findings | map(attribute='reason') }}"

- name: Look at one pod
  storage_ops.runbooks.pod_volume_info:
    namespace: shop
    pod: web-0
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 1 finding, 1 needs attention
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - One for each stuck pod.
    - If the result would be too long for AWX, one finding about V(findings) counts the rest.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty if the finding belongs to none.
      type: str
      returned: always
      sample: STOR-13
    severity:
      description:
        - V(critical), V(major), V(minor) or V(info).
        - V(major) for storage, V(minor) if no cause is known, V(info) if the cause is not storage.
      type: str
      returned: always
      sample: major
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "pod", "namespace": "shop", "name": "web-0", "node": "worker01"}
    summary:
      description:
        - What is wrong, in one sentence.
        - It says since when the pod is stuck, and why.
      type: str
      returned: always
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(messages) are events and waiting states, newest first, with count and age. C(claims),
          C(attachments), C(node), C(volumes_attached) and C(volumes_in_use) are as the API server
          returned them.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - Always V(report).
      type: str
      returned: always
      sample: report
    reason:
      description:
        - Why it is repaired, refused or only reported, and the next step.
        - The next step is the command that repairs it, or, if no playbook does, where to look.
      type: str
      returned: always
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.repair_volumeattachments
    workload:
      description: What M(storage_ops.runbooks.workload_reattach) would move, by C(namespace) and
        C(claims).
      type: dict
      returned: when the pod has claims, at most 100
      sample: {"namespace": "shop", "claims": ["data-web-0"]}
not_assessed:
  description: Controls that could not be assessed, or only in part, with the reason. The task fails
    then, and still returns the findings of the other controls.
  returned: when there are any
  type: dict
  sample: {"STOR-15": "cannot list pods"}
not_assessed_codes:
  description: The same controls, with a code for each as in RV(code).
  returned: when there are any
  type: dict
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads. RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import report
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal
from ..module_utils._triage.plan import CONTROLS
from ..module_utils._triage.runbook import Triage, triage_options

SCOPE = ArgumentSpec(
    {
        "namespace": {"type": "str", "default": ""},
        "pod": {"type": "str", "default": ""},
        "node": {"type": "str", "default": ""},
        "stuck_seconds": {"type": "float", "default": 120.0},
        "required_metadata": {"type": "dict", "default": {}},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    report(
        module,
        lambda: Triage(make_cluster(params), triage_options(params)),
        CONTROLS,
        params["deadline"],
    )


if __name__ == "__main__":
    main()
