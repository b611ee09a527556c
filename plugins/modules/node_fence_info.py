#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_fence_info
short_description: Audit lost nodes and fences that were left behind
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds nodes that are lost and still hold volumes, and fences that nobody took back, and changes
    nothing.
  - STOR-16 a volume of a lost node is still held, by its VolumeAttachment or, with O(ceph), by a
    watcher of its image; or the node may use an RBD volume that Kubernetes has detached from it by
    force, which it does six minutes after the pods are gone; or its fail-over was interrupted.
  - STOR-17 a fence was left behind. A node that is back still has a ledger, the taint
    C(node.kubernetes.io/out-of-service) or a NetworkFence that is Fenced; a fence has expired by
    itself; a ledger has lost its annotation, or the annotation is old; a node has the annotation
    and there is no ledger, or a ledger that it contradicts, which counts for nothing, as its
    kubelet may have written it; with O(ceph), a ledger has no entry in the blocklist any more, or
    the blocklist has an entry for a whole address or a range that no ledger knows. Entries for a
    single client are made by Ceph itself whenever a lock is broken, so they are never reported.
  - Returns what M(storage_ops.runbooks.rbd_watcher_info) and M(storage_ops.runbooks.node_fence)
    need to know of the lost nodes.
  - A healthy cluster is read by four requests, the long ones answered from the memory of its API
    server. VolumeAttachments and PersistentVolumes are read only where a node is lost or named, and
    pods where it is not Ready. For named nodes everything is read as it is now.
options:
  controls:
    description: Controls to run, at least one.
    type: list
    elements: str
    choices:
      - STOR-16
      - STOR-17
    default:
      - STOR-16
      - STOR-17
  nodes:
    description: Look only at these nodes, and return them in RV(lost) whether they are lost or not.
    type: list
    elements: str
    default: []
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph), for example without any
        image, to have the blocklist compared.
      - Ledgers of another Ceph cluster than this reading's are left out of the comparison.
    type: dict
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._fence.lost
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.node_release
  - module: storage_ops.runbooks.rbd_watcher_info
"""

EXAMPLES = r"""
---
- name: Audit a cluster
  storage_ops.runbooks.node_fence_info:
  delegate_to: localhost
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  register: audit

- name: Audit it together with the blocklist of its Ceph
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the blocklist
      storage_ops.runbooks.rbd_watcher_info:
      delegate_to: ceph01
      register: reading

    - name: Compare it with the ledgers
      storage_ops.runbooks.node_fence_info:
        ceph: "{{ reading.ceph }}"
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 1 finding, 1 only reported
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
lost:
  description:
    - The nodes of O(nodes), or else every node that is not Ready.
    - Of nodes that were not named, volumes are left out where the result would become too long for
      AWX.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Its name.
      type: str
      returned: always
      sample: worker01
    ready:
      description: V(True), V(False) or V(Unknown), or empty when there is no such Node object.
      type: str
      returned: always
      sample: Unknown
    not_ready_seconds:
      description: For how long it has not been Ready, by the API server's clock. V(0) when it is.
      type: float
      returned: always
      sample: 312
    boot_id:
      description: The C(bootID) that its kubelet last reported.
      type: str
      returned: always
    addresses:
      description: Its internal and external addresses.
      type: list
      elements: str
      returned: always
      sample: ["10.0.0.5"]
    ledger:
      description: The ledger of its fence. Empty when there is none.
      type: dict
      returned: always
    volumes:
      description: The volumes that have a VolumeAttachment on it, are in its ledger, or may be in
        use there without.
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description: The PersistentVolume.
          type: str
          returned: always
        driver:
          description: Its CSI driver, or V(rbd) for an in-tree volume of Ceph.
          type: str
          returned: always
          sample: rbd.csi.ceph.com
        cluster_id:
          description: The C(clusterID) of ceph-csi.
          type: str
          returned: always
        claim:
          description: Namespace and name of its claim, with a slash between.
          type: str
          returned: always
          sample: shop/data
        storage_class:
          description: Its StorageClass.
          type: str
          returned: always
        attachment:
          description: Its VolumeAttachment on this node. Empty when there is none any more.
          type: str
          returned: always
        used:
          description:
            - It has no VolumeAttachment on this node, which is not Ready, but may be open there. A
              pod on the node uses it, or its kubelet last called it in use. Only RBD volumes, and
              none of a fence that is proven.
          type: bool
          returned: always
        pv:
          description: Of the PersistentVolume, what
            O(storage_ops.runbooks.rbd_watcher_info#module:volumes) needs. Empty when it is gone.
          type: dict
          returned: always
    volumes_left_out:
      description: How many volumes are left out of C(volumes), since the result would become too
        long. Name the node to see them.
      type: int
      returned: always
      sample: 0
    neighbours:
      description:
        - Of nodes that are named in O(nodes) only, PersistentVolumes that other nodes have, two of
          each, as C(pv) of C(volumes). Who has their images open is not this node, which
          M(storage_ops.runbooks.node_fence) takes from what
          M(storage_ops.runbooks.rbd_watcher_info) has read of them.
        - Only those that are attached to one node, by a driver of this node's RBD volumes.
      type: list
      elements: dict
      returned: always
    neighbours_left_out:
      description: How many other nodes have such volumes, too, since there are more than 100.
      type: int
      returned: always
      sample: 0
findings:
  description: What is wrong, most severe first.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty for what belongs to no control.
      type: str
      returned: always
      sample: STOR-17
    severity:
      description: V(critical), V(major), V(minor) or V(info).
      type: str
      returned: always
      sample: major
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) where it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "Node", "name": "worker01", "node": "worker01"}
    summary:
      description: What is wrong, in one sentence.
      type: str
      returned: always
    evidence:
      description: What was read. Lists are cut after 50 items, with a count.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - Always V(report).
      type: str
      returned: always
      sample: report
    code:
      description: Why it is refused or has failed, as a code as in RV(code); empty otherwise.
      type: str
      returned: always
      sample: ""
    reason:
      description: Why it is repaired, refused or only reported, and the next step.
      type: str
      returned: always
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.release_fenced_node
    repair:
      description:
        - The actions that repair it, in order, each as in RV(actions); empty where this module
          repairs nothing.
        - The playbook decides again, from more evidence than this audit reads.
      type: list
      elements: dict
      returned: always
not_assessed:
  description: Controls that could not be assessed, or only in part, with the reason. The task fails
    then, and still returns the findings of the other controls.
  returned: when there are any
  type: dict
  sample: {"STOR-16": "cannot list nodes"}
not_assessed_codes:
  description: The same controls, with a code for each as in RV(code).
  returned: when there are any
  type: dict
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import python

python.require()

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import report
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fence_audit.runbook import (
    make_audit,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import PLACE
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    BOUNDS,
    ArgumentSpec,
    make_cluster,
    reveal,
)

CONTROLS = ["STOR-16", "STOR-17"]
WANTED = ArgumentSpec(
    {
        "controls": {"type": "list", "elements": "str", "choices": CONTROLS, "default": CONTROLS},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "ceph": {"type": "dict"},
        "grace_seconds": {"type": "float", "default": 120.0},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **WANTED.merge(PLACE, AUTH, BOUNDS).to_kwargs()
    )
    reveal(module)
    params: dict[str, Any] = module.params
    report(module, lambda: make_audit(make_cluster(params), params), params["controls"])


if __name__ == "__main__":
    main()
