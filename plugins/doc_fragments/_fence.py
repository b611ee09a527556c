# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that fence a node and release it."""

    DOCUMENTATION = r"""
options:
  node:
    description: Name of the node.
    type: str
    required: true
  run_id:
    description:
      - A name that no other run has. All modules of a run get the same name, so that they share one
        Lease.
      - The roles generate one for each run.
    type: str
    required: true
  lease_seconds:
    description:
      - Seconds for which the Lease is valid after its last renewal. Each change in the cluster
        renews it first, and has eleven twelfths of this time, with what is read right before it. No
        request is sent after that, also if O(deadline) is longer. What could not begin by then has
        the code C(lease_lost).
      - Commands of Ceph and requests to a BMC do not check the Lease. So it must be longer than
        O(storage_ops.runbooks.ceph_blocklist#module:deadline), the start of that module on the Ceph
        host and 5 seconds together. In the role node_fence, up to 5 seconds pass between the
        last renewal and that module.
      - From 10 to 3600. Use less than 60 only for tests, since a slow API server would then stop
        the run.
    type: float
    default: 240
  lease_timeout:
    description:
      - Seconds to wait for another run that works on the same node. A killed run leaves its Lease
        behind, so the default is long enough for it to expire.
      - With V(0) the module fails at once. At most 86400.
    type: float
    default: 260
  fence:
    description:
      - In check mode, the ledger that the previous step returned. It is used instead of the ledger
        in the cluster.
      - Ignored outside check mode, since only the ledger in the cluster counts.
    type: dict
"""

    LEDGER = r"""
options:
  ledger_namespace:
    description:
      - Namespace of the ConfigMaps that keep the ledgers of fences, and of the Leases.
      - All runs must have the same namespace, or they would not keep each other out. No kubelet may
        write there.
    type: str
    default: storage-ops
"""

    POWER = r"""
options:
  power:
    description:
      - What the role P(storage_ops.runbooks.node_fence#role) has read of the node's BMC, each time
        that it has asked. Only for a fence by V(power) or V(external).
      - Neither the user nor the password of the BMC belongs here.
    type: list
    elements: dict
    default: []
    suboptions:
      kind:
        description: >-
          V(redfish), V(ipmi), the name of a fence agent, or V(external) for a command. Empty if the
          inventory names no BMC of the node.
        type: str
        default: ''
      address:
        description: The BMC as the inventory names it, with its port if that is not the usual one.
          For V(external) the host that runs the command.
        type: str
        default: ''
      system:
        description: The C(Id) of the machine in Redfish, the plug of a fence agent, or the
          C(provider_id) that the command has told.
        type: str
        default: ''
      shared:
        description: Other nodes that have this BMC in the inventory, or may have it.
        type: list
        elements: str
        default: []
      read_at:
        description: When it was asked, as V(2026-01-01T12:00:00Z).
        type: str
        required: true
      state:
        description: What it said, V(on), V(off) or another state. Empty if it did not say.
        type: str
        default: ''
      uuid:
        description: The C(UUID) of the machine, if the BMC gives one.
        type: str
        default: ''
      status:
        description: >-
          The status of its answer by HTTP, or the exit code of a program that failed. Else V(0).
        type: int
        default: 0
      problem:
        description: What was said instead of the state.
        type: str
        default: ''
      node:
        description: Of which node a command has told. For V(external).
        type: str
        default: ''
      since:
        description: Since when the node has that state, as V(2026-01-01T12:00:00Z). For
          V(external).
        type: str
        default: ''
"""

    LOST = r"""
options:
  grace_seconds:
    description: Seconds that a node must have been Unknown before it counts as lost (STOR-16).
    type: float
    default: 120
"""
