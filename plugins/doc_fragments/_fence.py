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
      - Seconds for which the Lease is valid after its last renewal. It must be longer than any step
        of a run, since each step renews it, and longer than
        O(storage_ops.runbooks.ceph_blocklist#module:deadline).
      - From 2 to 3600. Use less than 30 only for tests, since a run that stalls for a moment would
        lose the Lease.
    type: float
    default: 180
  lease_timeout:
    description:
      - Seconds to wait for another run that works on the same node. A killed run leaves its Lease
        behind, so the default is long enough for it to expire.
      - With V(0) the module fails at once. At most 86400.
    type: float
    default: 200
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
        that it has asked. Only for a fence by V(power).
      - Neither the user nor the password of the BMC belongs here.
    type: list
    elements: dict
    default: []
    suboptions:
      kind:
        description: >-
          V(redfish), V(ipmi) or the name of a fence agent. Empty if the inventory names no BMC of
          the node.
        type: str
        default: ''
      address:
        description: The BMC as the inventory names it, with its port if that is not the usual one.
        type: str
        default: ''
      system:
        description: The C(Id) of the machine in Redfish, or the plug of a fence agent.
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
          The status of its answer by HTTP, or the exit code of a fence agent that failed. Else
          V(0).
        type: int
        default: 0
      problem:
        description: What was said instead of the state.
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
