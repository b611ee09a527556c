#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: network_fence_prepare
short_description: Create an Unfenced NetworkFence for each node, so that a patch can fence a lost
  one
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Creates one C(NetworkFence) of CSI-Addons for each node, with C(fenceState) V(Unfenced), while
    the nodes are healthy. If a node is lost later, M(storage_ops.runbooks.node_fence) only has to
    patch it.
  - It takes the addresses that the driver on the node reports for its C(NetworkFenceClass)
    (C(networkFenceClientStatus) of its C(CSIAddonsNode)), else the node's C(InternalIP). Ceph may
    see other addresses than the C(InternalIP), for example with a separate storage network; then
    give O(addresses). The annotation C(runbooks.storage-ops/addresses-from) of the NetworkFence
    names the source (V(driver), V(option) or V(node)). V(driver) and V(node) are what the node says
    of itself, so M(storage_ops.runbooks.node_fence) accepts them only together with what Ceph
    shows. Only V(option) is enough alone.
  - What a node says of itself counts only together with O(ceph), and for one address of each
    family. It may be the address of another host that is fenced on the same Ceph, which the
    NetworkFence would unfence.
  - A C(CSIAddonsNode) counts only if the driver on that node answered. Its endpoint must be a pod
    of its own namespace, which the API server has on that node, with that port in its specification
    and with a C(hostPath) volume, and the C(CSIAddonsNode) must be C(Connected). A report that came
    from a pod on another node is shown (C(not_used)), and not used. If only other reports are
    unproven, or several proven ones differ, the node is refused.
  - A range of several addresses that a driver reports is shown (C(not_used)), and not used. An
    address that two nodes claim is used for neither of them. O(addresses) outweighs what a node
    says of itself, also in later runs without it.
  - CSI-Addons calls the driver's UnFence for every Unfenced NetworkFence when it is created, and
    again whenever its controller starts. So a node is refused if it is not Ready, if it has a
    ledger, or if one of its addresses is in Ceph's blocklist (O(ceph)) or in a Fenced NetworkFence.
    A node is also refused if another node has the same address, or if it has a NetworkFence with
    other settings.
  - Node, ledger and NetworkFences are read again right before each NetworkFence is created, under
    the Lease by which M(storage_ops.runbooks.node_fence) fences the node. A node that another run
    works at is refused. The Lease is in the namespace O(ledger_namespace), which must exist.
  - After each creation it waits for the message V(unfencing operation successful), which proves
    that the controller and the driver work. If that fails for one node, the others are still
    prepared, and the task fails at its end.
  - An existing NetworkFence is never changed and never deleted. It is accepted under any name but
    that of another node's, if it has the right driver, cluster and addresses.
options:
  driver:
    description: Name of the CSI driver, for example V(rbd.csi.ceph.com) or
      V(rook-ceph.rbd.csi.ceph.com). Not with O(network_fence_class).
    type: str
    default: ''
  cluster_id:
    description: The Ceph cluster as the driver knows it, C(clusterID) in its StorageClasses. Not
      with O(network_fence_class).
    type: str
    default: ''
  secret_name:
    description:
      - Name of the Secret with which the driver may change Ceph's blocklist, usually the
        provisioner's Secret.
      - Not with O(network_fence_class).
    type: str
    default: ''
  secret_namespace:
    description: Namespace of that Secret. Not with O(network_fence_class).
    type: str
    default: ''
  network_fence_class:
    description:
      - Name of a NetworkFenceClass, which has driver, cluster and Secret. Requires CSI-Addons
        0.11.0 or later.
      - Give this, or the four options above.
    type: str
    default: ''
  nodes:
    description: Only these nodes. The task fails if one of them is refused.
    type: list
    elements: str
    default: []
  name_prefix:
    description: Prefix of the name of a NetworkFence; the name of the node follows. Use another
      prefix for each further driver or Ceph cluster.
    type: str
    default: storage-ops-
  addresses:
    description: Lists of addresses or ranges (CIDR) by node, for nodes whose addresses in Ceph
      differ from those found, or that Ceph may not show once the node is lost.
    type: dict
    default: {}
  ceph:
    description:
      - The result RV(storage_ops.runbooks.rbd_watcher_info#module:ceph) of
        M(storage_ops.runbooks.rbd_watcher_info), for its blocklist.
      - Without it the blocklist is unknown, the evidence says so, and only nodes with O(addresses)
        are prepared.
    type: dict
  fence_timeout:
    description:
      - Seconds to wait for the controller for each NetworkFence, 1 to 3600. A failure that lasts
        for 10 seconds ends the wait earlier.
    type: float
    default: 60
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
  - storage_ops.runbooks._repair.limit
  - storage_ops.runbooks._repair.strict
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.rbd_watcher_info
"""

EXAMPLES = r"""
---
- name: Read Ceph's blocklist
  storage_ops.runbooks.rbd_watcher_info:
    images: []
  delegate_to: ceph01
  register: seen

- name: Show which nodes are not prepared, and what would be made for them
  storage_ops.runbooks.network_fence_prepare:
    driver: rbd.csi.ceph.com
    cluster_id: b9127830-b0cc-4e34-aa47-9d1a2e9949a8
    secret_name: csi-rbd-secret
    secret_namespace: ceph-csi
    ceph: "{{ seen.ceph }}"
  check_mode: true
  delegate_to: localhost

- name: Prepare one node, by a class
  storage_ops.runbooks.network_fence_prepare:
    network_fence_class: ceph
    nodes:
      - worker01
    ceph: "{{ seen.ceph }}"
  delegate_to: localhost

- name: Prepare nodes that reach Ceph by a network of its own
  storage_ops.runbooks.network_fence_prepare:
    network_fence_class: ceph
    addresses:
      worker01:
        - 192.168.73.52
      worker02:
        - 192.168.73.53
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
    - Nodes whose NetworkFence is missing or wrong.
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
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(cidrs) are the node's ranges, C(addresses_from) names their source, and C(proof) is the
          answer of the controller.
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
      sample: storage_ops.runbooks.prepare_network_fences
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
        - V(create_networkfence).
      type: str
      returned: always
      sample: create_networkfence
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
from ..module_utils._fences.ledger import PLACE
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal
from ..module_utils._network_fences.plan import make_options
from ..module_utils._network_fences.runbook import FencePreparation

SCOPE = ArgumentSpec(
    {
        "driver": {"type": "str", "default": ""},
        "cluster_id": {"type": "str", "default": ""},
        "secret_name": {"type": "str", "default": "", "no_log": False},
        "secret_namespace": {"type": "str", "default": "", "no_log": False},
        "network_fence_class": {"type": "str", "default": ""},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "name_prefix": {"type": "str", "default": "storage-ops-"},
        "addresses": {"type": "dict", "default": {}},
        "ceph": {"type": "dict"},
        "fence_timeout": {"type": "float", "default": 60.0},
        "max_repairs": {"type": "int", "default": 10},
        "strict": {"type": "bool", "default": False},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(PLACE, AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: FencePreparation(make_cluster(params), make_options(params)),
        params["strict"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
