#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: workload_reattach
short_description: Move the pods of claims, so that their volumes are detached and reattached
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Moves the pods that use the named claims off their node, waits until the volume has left that
    node, and proves that the pods are back on a new attachment.
  - If a pod is only deleted, the new pod usually starts on the same node before the volume is
    unmounted and detached, and gets the old, faulty attachment. So a taint
    (C(runbooks.storage-ops/moving:NoSchedule)) keeps new pods off the node until the volume has
    left it. A pod that can run on no other node starts there again after that.
  - Pods are evicted, so a PodDisruptionBudget can refuse. They are evicted by uid, so no other pod
    is affected.
  - Claims that share no pod, and the nodes of a shared volume, are moved one after the other, and
    each move is proven before the next one. A pod that is scheduled to a node whose turn comes
    later is moved once more.
  - Together with the taint it sets an annotation on the node that names the claims. A Lease in
    O(ledger_namespace) holds the same data, and only the Lease counts, since the kubelet may write
    the annotation. An annotation alone is only reported. All of it is removed again, also after a
    failure, and after SIGTERM, SIGINT or SIGHUP. C(spec.unschedulable) belongs to the operators and
    is never changed, so a node that is cordoned before or meanwhile stays cordoned.
  - If a run was killed, the next run for the same claims finishes its work and removes its taint.
    Another run for the same claims is refused until the O(deadline) of the first one is over, since
    the first one may still be active. On the same host a killed run is recognized at once.
  - Refuses pods without a controller, pods whose controller is gone or not known to create them
    again, DaemonSets, Jobs, static pods, pods on a node that is not Ready or was created again
    after the attachment, pods that have been Terminating for too long, pods with a generic
    ephemeral volume, and claims that are missing, not bound, being deleted or belong to a pod. The
    data in an C(emptyDir) of a pod are lost, as with every eviction; the evidence names these
    volumes. A refusal fails the task, since the claims were named.
options:
  namespace:
    description: Namespace of the claims.
    type: str
    required: true
  claims:
    description: Names of the PersistentVolumeClaims whose pods are moved.
    type: list
    elements: str
    required: true
  nodes:
    description:
      - Move only the pods on these nodes, for example if a volume is used on many nodes and broken
        on one.
      - By default the pods on all nodes are moved.
    type: list
    elements: str
    default: []
  attachments:
    description:
      - Uids of the VolumeAttachments to replace. Only the pods that use them are moved.
      - If none of them exists any more, there is nothing to do, so a second run does nothing.
    type: list
    elements: str
    default: []
  required_metadata:
    description:
      - Keys that C(status.attachmentMetadata) of the new VolumeAttachments must have, for example
        V(publishInfo).
      - Without O(attachments), only pods whose VolumeAttachment lacks one of these keys are moved.
        If none lacks any, there is nothing to do.
    type: list
    elements: str
    default: []
  wait_for:
    description:
      - The state that the volume must reach before pods may return to its node.
      - V(detached) means that its VolumeAttachment is gone.
      - V(unstaged) means that the node's C(volumesInUse) no longer lists it. It may still be
        attached.
    type: str
    choices: [detached, unstaged]
    default: detached
  unstage_seconds:
    description:
      - With O(wait_for=unstaged), seconds for which new pods are kept off a node after the last pod
        is gone, if the volume has no VolumeAttachment.
      - Such a volume is not listed in C(volumesInUse). The kubelet unmounts it shortly after its
        last pod is gone.
    type: float
    default: 10
  eviction_timeout:
    description: Seconds during which an eviction is tried again if a PodDisruptionBudget refuses
      it.
    type: float
    default: 120
  detach_timeout:
    description: Seconds, beyond the grace period of the pods, within which the volume must have
      left the node.
    type: float
    default: 120
  ready_timeout:
    description: Seconds within which the new pods must be Ready.
    type: float
    default: 300
  max_repairs:
    description: Evict at most this many pods in one run; claims and nodes that need more are
      refused.
    type: int
    default: 10
  scale_down:
    description:
      - Accept that a Deployment or StatefulSet is scaled to zero and back if a taint would not keep
        its pods away, since they tolerate it or name their node. All its pods are down meanwhile.
      - The number of replicas is kept in an annotation, so that a later run can restore it.
        PodDisruptionBudgets are checked first. A workload with a HorizontalPodAutoscaler is
        refused, and so is a StatefulSet that would delete its claims
        (C(persistentVolumeClaimRetentionPolicy.whenScaled)).
    type: bool
    default: false
  accept_unknown_owners:
    description:
      - Accept that pods are evicted although their kind of controller is not known to recreate
        them. If it does not, they are lost.
      - Known are C(ReplicaSet) and C(StatefulSet) of the API group C(apps), and
        C(ReplicationController).
    type: bool
    default: false
  deadline:
    description:
      - Seconds after which the module ends even if something hangs. At least 60.
      - The last 20 seconds are reserved for removing the taint. After a failure, all the remaining
        time may be used for that.
    type: float
    default: 900
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
attributes:
  idempotent:
    description: A second run right after a successful one finds nothing and changes nothing.
    support: partial
    details: With O(attachments) or O(required_metadata). Without both, the pods are moved each
      time.
  platform:
    description: Where the module runs.
    platforms: Linux
    support: full
seealso:
  - module: storage_ops.runbooks.volumeattachment_repair
  - module: storage_ops.runbooks.cluster_storage_info
"""

EXAMPLES = r"""
---
- name: Show which pods would be moved, and whether a PodDisruptionBudget allows it
  storage_ops.runbooks.workload_reattach:
    namespace: shop
    claims:
      - data
  check_mode: true
  delegate_to: localhost

- name: Have a volume reattached
  storage_ops.runbooks.workload_reattach:
    namespace: shop
    claims:
      - data
    attachments:
      - 5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11
  delegate_to: localhost

- name: Move only what was attached without publish information
  storage_ops.runbooks.workload_reattach:
    namespace: shop
    claims:
      - data-db-0
      - data-db-1
    required_metadata:
      - publishInfo
  delegate_to: localhost
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
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - What was moved or refused, and what earlier runs left behind. Claims that are moved together
      share one finding for each node.
  returned: always
  type: list
  elements: dict
  contains:
    severity:
      description:
        - V(critical), V(major), V(minor) or V(info).
        - V(info), or V(major) for what was refused or left behind.
      type: str
      returned: always
      sample: info
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "Deployment", "namespace": "shop", "name": "web", "node": "worker01"}
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(proof) is what was read after the repair.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - This module returns V(repair) or V(refuse).
      type: str
      returned: always
      sample: repair
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
        - V(cordon_node), V(scale_down), V(evict_pod), V(wait_detached), V(wait_unstaged),
          V(uncordon_node) or V(scale_up).
      type: str
      returned: always
      sample: evict_pod
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

from ..module_utils._core.engine import run
from ..module_utils._kube.objects import OWN_NAMESPACE
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal
from ..module_utils._reattach.runbook import Reattach, reattach_options

SCOPE = ArgumentSpec(
    {
        "namespace": {"type": "str", "required": True},
        "claims": {"type": "list", "elements": "str", "required": True},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "attachments": {"type": "list", "elements": "str", "default": []},
        "required_metadata": {"type": "list", "elements": "str", "default": []},
        "wait_for": {"type": "str", "choices": ["detached", "unstaged"], "default": "detached"},
        "unstage_seconds": {"type": "float", "default": 10.0},
        "eviction_timeout": {"type": "float", "default": 120.0},
        "detach_timeout": {"type": "float", "default": 120.0},
        "ready_timeout": {"type": "float", "default": 300.0},
        "max_repairs": {"type": "int", "default": 10},
        "scale_down": {"type": "bool", "default": False},
        "accept_unknown_owners": {"type": "bool", "default": False},
        "ledger_namespace": {"type": "str", "default": OWN_NAMESPACE},
        # Longer than that of modules which only read and delete.
        "deadline": {"type": "float", "default": 900.0},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **AUTH.merge(BOUNDS, SCOPE).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params

    def reattach() -> Reattach:
        options = reattach_options(params)
        return Reattach(
            lambda seconds: make_cluster({**params, "deadline": seconds}),
            params["deadline"],
            options,
        )

    run(module, reattach, False, params["deadline"])


if __name__ == "__main__":
    main()
