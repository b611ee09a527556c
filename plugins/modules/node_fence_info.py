#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_fence_info
short_description: Audit lost nodes and forgotten fences
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds lost nodes that still hold volumes, and forgotten fences. Changes nothing.
  - STOR-16 covers three cases. A volume of a lost node is still held, by its VolumeAttachment or,
    with O(ceph), by a watcher of its image. Or the node may still use an RBD volume that Kubernetes
    has detached by force, six minutes after the pods were gone. Or the fail-over of the node was
    interrupted. Volumes that are never attached, as those of NFS, are no finding.
  - STOR-17 finds a fence that was forgotten, or that does not match its ledger. A node that is back
    still has a ledger, the taint C(node.kubernetes.io/out-of-service) or a Fenced NetworkFence. A
    fence has expired. The annotation of a ledger is missing or old, or there is no ledger for it.
    An annotation that contradicts the ledger is ignored, since the node's kubelet may have written
    it. With O(ceph), the entries of a ledger are missing in the blocklist, or the blocklist has an
    entry for an address or a range that is in no ledger. Entries of single clients are never
    reported, since Ceph itself adds one whenever it breaks a lock.
  - Returns the data about lost nodes that M(storage_ops.runbooks.rbd_watcher_info) and
    M(storage_ops.runbooks.node_fence) need.
  - A healthy cluster needs four requests; the API server answers the long ones from memory.
    VolumeAttachments and PersistentVolumes are read only if a node is lost or named, and pods only
    of nodes that are not Ready. For named nodes everything is read from etcd.
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
    description: Only these nodes. They are returned in RV(lost) even if they are not lost.
    type: list
    elements: str
    default: []
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph), to compare the blocklist
        with the ledgers. It may be read without any image.
      - Ledgers of other Ceph clusters are not compared.
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
  sample: 1 finding, 1 needs attention
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
lost:
  description:
    - The nodes of O(nodes), or else every node that is not Ready.
    - Volumes are left out if the result would be too long for AWX. Of a node of O(nodes) never
      those that are in its ledger, and each namespace in its turn.
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
      description: V(True), V(False) or V(Unknown), or empty if there is no such Node object.
      type: str
      returned: always
      sample: Unknown
    not_ready_seconds:
      description: Seconds that it has not been Ready, by the API server's clock; V(0) if it is.
      type: float
      returned: always
      sample: 312
    boot_id:
      description: The C(bootID) that its kubelet last reported.
      type: str
      returned: always
    addresses:
      description:
        - Its internal and external addresses.
        - Empty, as C(boot_id), where volumes of a node that was not named are left out, or where
          its kubelet says too much of itself. Name the node to see them.
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
            - Whether it has no VolumeAttachment on this node, which is not Ready, but may be open
              there, since a pod on the node uses it or its kubelet last reported it as in use. Only
              for volumes that no proven fence covers.
          type: bool
          returned: always
        pv:
          description: The parts of the PersistentVolume that
            O(storage_ops.runbooks.rbd_watcher_info#module:volumes) needs. Empty if it is gone, or
            no volume of RBD or CephFS.
          type: dict
          returned: always
    volumes_left_out:
      description: >-
        How many volumes are left out of C(volumes), because the result would become too long. Name
        the node to see them.
      type: int
      returned: always
      sample: 0
    neighbours:
      description:
        - Only for O(nodes), two PersistentVolumes of each other node, in the form of C(pv) of
          C(volumes). M(storage_ops.runbooks.rbd_watcher_info) reads the clients of their images, so
          that M(storage_ops.runbooks.node_fence) knows addresses that are not this node's.
        - Only volumes that are attached to one node, by a driver of this node's RBD volumes.
      type: list
      elements: dict
      returned: always
    neighbours_left_out:
      description: How many more nodes have such volumes, if there are more than 100.
      type: int
      returned: always
      sample: 0
findings:
  description: What is wrong, most severe first. If a limit is shared in turns of namespaces or
    arrays, the most severe finding of each comes first, then the next of each.
    RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "Node", "name": "worker01", "node": "worker01"}
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - Always V(report).
      type: str
      returned: always
      sample: report
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.release_fenced_node
    repair:
      description:
        - The actions that repair it, in order, each as in RV(actions); empty if this module repairs
          nothing. At most 50, those first that were not done.
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
from ..module_utils._fence_audit.runbook import make_audit
from ..module_utils._fences.ledger import PLACE
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal

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
    report(
        module,
        lambda: make_audit(make_cluster(params), params),
        params["controls"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
