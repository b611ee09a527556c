#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: volumeattachment_repair
short_description: Find and delete VolumeAttachments that no pod needs any more
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Runs the controls STOR-11 to STOR-15 of M(storage_ops.runbooks.cluster_storage_info), and
    repairs the findings of STOR-11. The other findings are only reported, with the command that
    repairs them.
  - Deletes a VolumeAttachment only if, in two observations, no pod on its node, nor the kubelet,
    nor the controller manager (C(volumesAttached)) needs the volume, and if there is a sign that it
    is left over. These are the signs. Its PersistentVolume is released, failed, available or gone.
    This attachment keeps a pod on another node from a volume that only one node may use. This
    version of Kubernetes mistakes the volume's name for another one (68 characters). It was named
    by O(names) and observed for longer than a controller manager waits between two attempts to
    detach (O(observation_seconds) of 130 or more).
  - Right before the deletion, everything is read again from etcd. The object is deleted by its uid,
    and the result is proven. In check mode the API server makes a dry run.
  - Refuses everything else, with the reason. A node that is not Ready or is gone may still write to
    the volume. So may the former host of a node that was created again after the attachment. It
    never removes a finalizer and never writes a status.
  - If several PersistentVolumes have the same driver and handle, their VolumeAttachment is refused.
    Volumes of former in-tree plugins count by the driver and handle that Kubernetes translates them
    to.
  - If its PersistentVolume is gone, any pod on its node whose claim does not exist, or is younger
    than the pod, may use the volume.
  - A VolumeAttachment that is gone, replaced or needed when it is read again is refused, and the
    run continues with the next one. The run ends if the API server does not answer, or refuses the
    deletion.
  - Fails if O(nodes), O(drivers) or O(namespaces) name something that is not in the cluster.
  - A short time remains between the last reading and the deletion, in which a pod can begin to need
    the VolumeAttachment. The pods are read once more after the deletion. If there is such a pod,
    the run fails and names it; the pod then has to be moved.
options:
  accept_majority:
    description:
      - Accept repairs although more than half of a node's VolumeAttachments look left over, for
        example after all pods of a node have moved away. With up to three VolumeAttachments, each
        one counts as the majority.
      - Without it this counts as an outage, and everything of that node is refused.
    type: bool
    default: false
  detach_timeout:
    description: Seconds within which a deleted VolumeAttachment must be gone, and the node's status
      updated.
    type: float
    default: 60
extends_documentation_fragment:
  - storage_ops.runbooks._attachments
  - storage_ops.runbooks._attachments.judging
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
  - storage_ops.runbooks._repair.limit
  - storage_ops.runbooks._repair.strict
seealso:
  - module: storage_ops.runbooks.cluster_storage_info
  - module: storage_ops.runbooks.workload_reattach
"""

EXAMPLES = r"""
---
- name: Show VolumeAttachments that are left over and what would be done about them
  storage_ops.runbooks.volumeattachment_repair:
  check_mode: true
  delegate_to: localhost
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"

- name: Delete those of one driver
  storage_ops.runbooks.volumeattachment_repair:
    drivers:
      - csi-unity.dellemc.com
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
    control:
      description:
        - Number of the control; empty if the finding belongs to none.
        - Empty for a node that an unfinished move still keeps new pods off.
      type: str
      returned: always
      sample: STOR-11
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "VolumeAttachment", "name": "csi-90a1...", "node": "worker01"}
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(workload_title) (STOR-13, STOR-14) names the pods' controller.
      type: dict
      returned: always
    workload:
      description:
        - What has to be moved, on the first finding of each workload and control, and there for all
          of them; never cut.
        - It has C(kind), C(namespace) and C(name) of the pods' controller, the C(claims) to move it
          off, the uids of the C(attachments) that must go and their C(drivers), and for STOR-14
          the keys that are C(missing).
      type: dict
      returned: for STOR-13 and STOR-14 that a move repairs
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.repair_volumeattachments
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
        - V(delete_volumeattachment).
      type: str
      returned: always
      sample: delete_volumeattachment
    command:
      description:
        - The command, argument by argument. A request to an API server is shown as its method and
          path, and the values that it sets. C(write FILE TEXT) stands for writing to a file, C(wait
          SECONDS ...) for waiting.
        - The precondition of a deletion is shown with it.
      type: list
      elements: str
      returned: always
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

from ..module_utils._attachments.runbook import SCOPE, VolumeAttachments, make_options
from ..module_utils._core.engine import run
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal

RISKS = ArgumentSpec(
    {
        "max_repairs": {"type": "int", "default": 10},
        "accept_majority": {"type": "bool", "default": False},
        "detach_timeout": {"type": "float", "default": 60.0},
        "strict": {"type": "bool", "default": False},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **RISKS.merge(SCOPE, AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params

    def runbook() -> VolumeAttachments:
        return VolumeAttachments(
            make_cluster(params), make_options(params), params["detach_timeout"], strict=True
        )

    run(module, runbook, params["strict"], params["deadline"])


if __name__ == "__main__":
    main()
