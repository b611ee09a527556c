# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options that the modules which fence a node and give it back share."""

    DOCUMENTATION = r"""
options:
  node:
    description: Name of the node.
    type: str
    required: true
  run_id:
    description:
      - A word that no other run has. The modules of one run share it, so that they work under one
        Lease.
      - The roles make one for each run.
    type: str
    required: true
  lease_seconds:
    description:
      - Seconds for which the Lease holds after it was last renewed. It must be longer than any step
        of a run, since each step renews it, and longer than
        O(storage_ops.runbooks.ceph_blocklist#module:deadline).
      - From 2 to 3600. Under 30 is for tests only, as a run that stalls for a moment would lose it.
    type: float
    default: 180
  lease_timeout:
    description:
      - Seconds to wait for another run that works at the same node. A run that was killed leaves
        its Lease, so the default waits for that to run out.
      - With V(0) the module fails at once. At most 86400.
    type: float
    default: 200
  fence:
    description:
      - In check mode, the ledger that the step before would have written, as it returned it. It is
        then taken instead of what the cluster has.
      - Outside check mode it is ignored, since only the ledger in the cluster counts.
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
