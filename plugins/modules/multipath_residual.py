#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: multipath_residual
short_description: Find and remove residual multipath maps and SCSI disks
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds multipath maps whose LUN the array no longer serves (STOR-01), paths that lead to another
    volume because the LUN number was reused, or to another volume with the same WWID (STOR-02), and
    disks in no map that the array no longer serves (STOR-03).
  - Sends a new SCSI inquiry to every disk, since sysfs, udev and multipathd only remember its first
    answer. Suspicious disks are probed several times.
  - Removes maps and disks that are proven dead and unused, in the only safe order. It disables
    queueing for the map, flushes it, proves that it is gone, checks each path again, deletes it,
    and proves that it is gone from the kernel, multipathd and C(/dev/disk/by-id).
  - Refuses everything else, with the reason. It never touches a path that is down with its
    transport, a map that is mounted in any mount namespace, held, used as swap or open, a LUN that
    the target still lists, or a disk whose sense code does not say that the LUN is gone.
  - No path is deleted while a map uses it. If a flush fails, queueing is restored.
  - After a repair that failed, nothing more of the same array is repaired in this run. Other arrays
    are, unless something is left half made.
  - No scan brings in a disk that would join a map with a path that is not proven to serve it.
    Volumes that swapped their LUN numbers are one finding. Before the first scan either all of
    their maps are flushed and all of their wrong paths deleted, or none.
  - As the proof, every path of every map of the node is probed once more.
requirements:
  - Root (C(become)).
  - C(multipath), C(multipathd) and C(dmsetup), only where the node has multipath maps.
options:
  max_repairs:
    description:
      - Repair at most this many maps and disks in one run; the others are refused until the next
        run.
      - Each map and disk counts, also of volumes that swapped their LUN numbers.
    type: int
    default: 10
  fail_hung_readers:
    description:
      - Accept that the I/O of processes that hang in D state on a residual map fails, so that they
        release it. This includes a process that C(/proc) does not show. A map is still refused if a
        process that does not hang has it open, or if it is open for writing.
      - Without it an open map is refused.
    type: bool
    default: false
  flush_empty_maps:
    description: Accept that a map without paths is flushed, if no disk answers as its LUN and every
      session is up.
    type: bool
    default: false
  accept_majority:
    description:
      - Accept repairs although more than half of the node's maps of an array look broken, for
        example after all pods of a node have moved away. For disks in no map, accept that more
        than half of the LUNs of one of their targets are broken.
      - Without it this counts as an outage, and everything of that array is refused. The rule also
        applies to a single one.
    type: bool
    default: false
  rescan_targets:
    description:
      - After all paths of a map, or a disk in no map, are gone, scan only their targets, so that
        the node finds a LUN that the old disk had hidden. It works for iSCSI and Fibre Channel.
      - Off by default, since a scan also finds a LUN that a driver is just detaching. If the array
        has reused the same LUN number for another LUN, that LUN is scanned in any case.
      - Other targets are not scanned.
      - The scans run at the end. Everything is refused if a map stays that a new disk must not
        join.
    type: bool
    default: false
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._node.residual
  - storage_ops.runbooks._node.bounds
  - storage_ops.runbooks._repair.strict
seealso:
  - module: storage_ops.runbooks.node_storage_info
"""

EXAMPLES = r"""
---
- name: Show residual disks and what would be done about them
  storage_ops.runbooks.multipath_residual:
  check_mode: true
  become: true

- name: Remove residual disks
  storage_ops.runbooks.multipath_residual:
  become: true

- name: Remove one map, although a reader hangs on it
  storage_ops.runbooks.multipath_residual:
    wwids:
      - 36001405f487100cf0e74447a08ee985c
    fail_hung_readers: true
  become: true
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
      sample: {"kind": "multipath map", "name": "mpathb", "node": "worker01"}
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.clean_residual_paths
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
        - V(disable_queueing), V(flush_map), V(delete_path), V(replace_path), V(replace_paths),
          V(scan_target) or V(restore_queueing).
      type: str
      returned: always
      sample: flush_map
actions_left_out:
  description: How many more actions there were, if the result is too long for all. They are chosen
    in turns of the namespaces or arrays.
  returned: when there are any
  type: int
undone:
  description:
    - Names of the findings whose repair failed and left nothing half made. Their verdict is
      V(refuse), and their C(reason) says why.
    - The task has failed then. A playbook may continue with other hosts, and end with
      M(storage_ops.runbooks.conclude).
  returned: if that, and nothing else, failed the task
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import run
from ..module_utils._node.options import BOUNDS, REFUSAL, RESIDUAL, ArgumentSpec, make_host
from ..module_utils._residual_paths.runbook import ResidualPaths, residual_options

RISKS = ArgumentSpec(
    {
        "max_repairs": {"type": "int", "default": 10},
        "fail_hung_readers": {"type": "bool", "default": False},
        "flush_empty_maps": {"type": "bool", "default": False},
        "accept_majority": {"type": "bool", "default": False},
        "rescan_targets": {"type": "bool", "default": False},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **RISKS.merge(RESIDUAL, BOUNDS, REFUSAL).to_kwargs()
    )
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: ResidualPaths(make_host(params), residual_options(params)),
        params["strict"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
