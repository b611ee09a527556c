#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: ceph_client_record
short_description: Record from which address each healthy node reaches Ceph
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - A node that has lost its power, or its network for 30 seconds, is no client of Ceph any more. If
    its address on Ceph's network was recorded before, M(storage_ops.runbooks.node_fence) can fence
    it without O(storage_ops.runbooks.node_fence#module:fence_addresses).
  - Needs two calls. The first, without O(ceph), returns the volumes whose images show where the
    nodes are, and changes nothing. M(storage_ops.runbooks.rbd_watcher_info) then reads these images
    at least twice, over more than 30 seconds. The second call gets that as O(ceph), and writes.
  - A node is recorded only by what Ceph shows. Its image must belong to a volume that is attached
    to this node, and to no other, by the same VolumeAttachment before and after Ceph was read. Each
    client of the image must be there in each observation, must be a client of the kernel (or the
    volume is one of rbd-nbd), and all of them, and the owners of locks, must have one address.
  - A node is not recorded if it is not Ready, or has a ledger. It is not recorded, and a finding
    says so, if Ceph shows its images open at several addresses, or if another node has the address
    in its status, by its images, or by a record of its present boot.
  - The record is the ConfigMap C(storage-ops-ceph-clients), with a key for each Node object (its
    uid) and each Ceph (its fsid). It says which address and clients were seen, by how many images,
    when, and in which boot of which machine. C(playbooks/files/rbac-audit-record.yml) makes it; the
    module never does. Records of Node objects that are gone are removed, and those that Ceph
    disproves (several addresses of a node, or several nodes at an address).
  - If nothing has changed, a record is written again only after an hour.
  - One run reads two images of each node, of at most 250 nodes, those first whose record is the
    oldest.
options:
  nodes:
    description: Only these nodes. All by default.
    type: list
    elements: str
    default: []
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as
        RV(storage_ops.runbooks.rbd_watcher_info#module:ceph) for RV(volumes), with at least 2
        observations over at least 31 seconds.
      - Without it the module only tells which volumes to read.
    type: dict
  attachments:
    description: With O(ceph), what the call before had returned as RV(attachments).
    type: dict
    default: {}
  other_addresses:
    description: Addresses of hosts that are no nodes, and open images too, such as a backup host.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.rbd_watcher_info
"""

EXAMPLES = r"""
---
- name: Record from where the nodes reach Ceph
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Find images that show it
      storage_ops.runbooks.ceph_client_record:
      register: asked

    - name: Read who has them open
      storage_ops.runbooks.rbd_watcher_info:
        volumes: "{{ asked.volumes }}"
        observations: 2
        observation_seconds: 35
      delegate_to: ceph01
      register: seen

    - name: Record it
      storage_ops.runbooks.ceph_client_record:
        ceph: "{{ seen.ceph }}"
        attachments: "{{ asked.attachments }}"
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
volumes:
  description: PersistentVolumes, in the form that
    O(storage_ops.runbooks.rbd_watcher_info#module:volumes) takes. Empty with O(ceph).
  returned: success
  type: list
  elements: dict
attachments:
  description: By the name of each of these volumes, the uid of its VolumeAttachment.
  returned: success
  type: dict
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - One about the ConfigMap, if it is to be written, and one for each node of which Ceph shows
      what contradicts itself, at most 50.
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
        - V(refuse) if another run was quicker, or the nodes have changed meanwhile.
      type: str
      returned: always
      sample: repair
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.record_ceph_clients
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
        - V(write_client_record).
      type: str
      returned: always
      sample: write_client_record
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._ceph_record.plan import make_options
from ..module_utils._ceph_record.runbook import ClientRecord
from ..module_utils._core.engine import run
from ..module_utils._fences.ledger import PLACE
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal

SCOPE = ArgumentSpec(
    {
        "nodes": {"type": "list", "elements": "str", "default": []},
        "ceph": {"type": "dict"},
        "attachments": {"type": "dict", "default": {}},
        "other_addresses": {"type": "list", "elements": "str", "default": []},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(PLACE, AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: ClientRecord(make_cluster(params), make_options(params)),
        False,
        params["deadline"],
    )


if __name__ == "__main__":
    main()
