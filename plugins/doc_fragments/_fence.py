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

    LOST = r"""
options:
  grace_seconds:
    description: Seconds that a node must have been Unknown before it counts as lost (STOR-16).
    type: float
    default: 120
"""
