#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: run_lease
short_description: Release the Lease of a run on a node
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - A Lease keeps two runs from fencing, failing over or releasing the same node at the same time.
    M(storage_ops.runbooks.node_fence), M(storage_ops.runbooks.volume_failover) and
    M(storage_ops.runbooks.node_release) take and renew it.
  - This module deletes the Lease if it belongs to O(run_id) or has expired. Otherwise the next run
    waits until the Lease expires. The roles call it when they end.
  - The Lease belongs to the run, not to the node, so the module reports no change.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  run_id:
    description: The run whose Lease is released, the same name as for its other modules.
    type: str
    required: true
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
attributes:
  diff_mode:
    description: There is nothing to compare.
    support: none
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.volume_failover
  - module: storage_ops.runbooks.node_release
"""

EXAMPLES = r"""
---
- name: Release the Lease of worker01
  storage_ops.runbooks.run_lease:
    node: worker01
    run_id: failover-worker01-1
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: run failover-worker01-1 has no Lease of node worker01
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core import untrusted
from ..module_utils._core.engine import ended_if_late
from ..module_utils._core.errors import StorageOpsError
from ..module_utils._fences.lease import RunLease
from ..module_utils._fences.ledger import WHOSE, check_run
from ..module_utils._kube.options import AUTH, BOUNDS, make_cluster, reveal


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **AUTH.merge(BOUNDS, WHOSE).to_kwargs())
    reveal(module)
    node, run = module.params["node"], module.params["run_id"]
    try:
        with ended_if_late(module.params["deadline"]):
            check_run(module.params)
            cluster = make_cluster(module.params)
            # For 0 seconds, since nothing is taken here.
            lease = RunLease(cluster, module.params["ledger_namespace"], node, run, 0)
            lease.release(module.check_mode)
    except StorageOpsError as error:
        module.fail_json(msg=untrusted.shown(str(error)), code=error.code)
    module.exit_json(changed=False, msg=f"run {run} has no Lease of node {node}")


if __name__ == "__main__":
    main()
