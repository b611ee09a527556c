#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: ceph_client_info
short_description: List the Ceph clients of a node
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Lists the RBD images that a node has mapped, through the kernel (krbd) or C(rbd-nbd), and the
    CephFS that it has mounted, in any mount namespace, through the kernel or C(ceph-fuse). It only
    lists them, and changes nothing.
  - It runs on the node itself and does not contact Ceph. M(storage_ops.runbooks.node_release)
    requires its result if a fenced node was not rebooted, because a client that survived the fence
    writes again once the fence is gone. The kernel's RBD client does so without a watch on its
    image, so the cluster no longer shows it.
  - Anyone can give a process a name. So C(rbd-nbd) and C(ceph-fuse) are listed if they have, or may
    get, C(CAP_SYS_ADMIN) in the first user namespace, which privileged containers have, and other
    containers have not. A mount of C(ceph-fuse) is listed if it is in a mount namespace that the
    first user namespace owns. If this cannot be told, they are listed.
  - It does not see other programs that use librbd or libcephfs themselves, for example QEMU,
    tcmu-runner or NFS-Ganesha, nor C(ceph-fuse) in a user namespace of its own.
requirements:
  - Root (C(become)), in the first PID namespace of the node. In a container some processes are
    hidden, and RV(clients.problem) says so.
  - C(debugfs), mounted at C(/sys/kernel/debug) as systemd does, for the addresses of CephFS clients
    and for those whose mount is gone.
options: {}
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._node.bounds
seealso:
  - module: storage_ops.runbooks.node_release
"""

EXAMPLES = r"""
---
- name: Which images does the node have mapped?
  storage_ops.runbooks.ceph_client_info:
  become: true
  register: node

- name: Show them
  ansible.builtin.debug:
    var: node.clients
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: "nothing to do: 1 Ceph client on worker01: krbd /dev/rbd0 rbd/csi-vol-1"
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
clients:
  description: The clients of the node, and how complete the list is.
  returned: success
  type: dict
  contains:
    boot_id:
      description: >-
        The kernel's identifier of this boot. In the cluster it is C(status.nodeInfo.bootID) of the
        node.
      type: str
      returned: always
      sample: 1f3b1c5e-7a02-4a5e-8a6d-0f3d0c1f2b3a
    problem:
      description: >-
        Why there may be more clients than were found. An empty list of clients is a proof only if
        this is empty.
      type: str
      returned: always
    clients:
      description: The clients. Values that the node does not show are empty.
      type: list
      elements: dict
      returned: always
      contains:
        kind:
          description: One of V(krbd), V(rbd-nbd), V(cephfs) or V(ceph-fuse).
          type: str
          returned: always
          sample: krbd
        device:
          description: The block device, or the source of a mounted filesystem.
          type: str
          returned: always
          sample: /dev/rbd0
        pool:
          description: Pool of the image.
          type: str
          returned: always
          sample: rbd
        namespace:
          description: RBD namespace of the image.
          type: str
          returned: always
        image:
          description: The image.
          type: str
          returned: always
          sample: csi-vol-1
        snapshot:
          description: The snapshot that is mapped instead of the image.
          type: str
          returned: always
        client:
          description: Ceph's number for the client. Images that the kernel maps may share one.
          type: str
          returned: always
          sample: client.4124
        address:
          description: The address that Ceph sees. C(rbd-nbd) and C(ceph-fuse) do not show it.
          type: str
          returned: always
          sample: 10.0.0.5
        entry:
          description: The same with port and nonce, as the blocklist has it.
          type: str
          returned: always
          sample: 10.0.0.5:0/490583966
        fsid:
          description: The Ceph cluster.
          type: str
          returned: always
        in_use:
          description: Which process serves it, with the uid of its pod, where it is mounted, and
            what is built on it.
          type: list
          elements: str
          returned: always
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - Always empty.
  returned: always
  type: list
  elements: dict
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads. RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._ceph_clients.runbook import CephClients
from ..module_utils._core.engine import report
from ..module_utils._node.options import BOUNDS, make_host


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **BOUNDS.to_kwargs())
    report(module, lambda: CephClients(make_host(module.params)), {""}, module.params["deadline"])


if __name__ == "__main__":
    main()
