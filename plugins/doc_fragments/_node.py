# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options that several node modules share."""

    RESIDUAL = r"""
options:
  maps:
    description:
      - Check only the multipath maps with these names, for example V(mpathb).
      - Names are translated to WWIDs, also with C(/etc/multipath/bindings), so that disks of a
        former map are included.
    type: list
    elements: str
    default: []
  wwids:
    description:
      - Check only maps and disks with these WWIDs, in the form of C(multipath -ll), for example
        V(36001405f487100cf0e74447a08ee985c).
      - WWIDs must match completely.
    type: list
    elements: str
    default: []
  vendor:
    description: Check only maps and disks of this SCSI vendor. The whole name is compared, without
      regard to case.
    type: str
    default: ''
  product:
    description: Check only maps and disks of this SCSI product. The whole name is compared, without
      regard to case.
    type: str
    default: ''
  observations:
    description:
      - How often a suspicious device is probed before it is judged. All others are probed once.
      - A single observation proves nothing, so with V(1) every repair is refused.
      - A map with a path that the kernel reports as down is refused after the first observation,
        since more observations prove nothing.
    type: int
    default: 3
  observation_seconds:
    description:
      - Seconds from the first observation to the last.
      - It must be longer than multipathd's C(max_polling_interval), 20 seconds by default, so that
        multipathd has checked each path meanwhile.
    type: float
    default: 25
  probe_timeout:
    description: Timeout of the kernel for one SCSI command of an inquiry, in seconds. All disks are
      asked in parallel.
    type: float
    default: 5
"""

    BOUNDS = r"""
options:
  command_timeout:
    description:
      - Seconds after which a command without an answer is abandoned.
      - It is also the time to read all processes of the node, of which one gets a third, but at
        least 10 seconds. Give more on a node that is so busy that this takes longer.
    type: float
    default: 30
  deadline:
    description:
      - Seconds after which the module ends even if something hangs. At least 20.
      - The last 10 seconds are reserved for rolling back an unfinished repair.
    type: float
    default: 300
"""

    KUBELET = r"""
options:
  kubelet_root:
    description:
      - The kubelet's folder (its C(--root-dir)). Symbolic links above it are followed, links within
        it never.
      - Only mounts in this folder are changed.
    type: str
    default: /var/lib/kubelet
"""

    NOFILE = r"""
options:
  limit_nofile_max:
    description: >-
      The largest C(LimitNOFILE) of a container runtime that passes. The default is the value that
      runtimes shipped before they used V(infinity).
    type: int
    default: 1048576
"""

    PEERS = r"""
options:
  peer_initiator_names:
    description:
      - Initiator names of all other nodes, as a dictionary of node name to initiator name, to find
        names that two nodes share.
      - The playbook C(storage_ops.runbooks.load_iscsi_modules) fills it in from the hosts of its
        target.
    type: dict
    default: {}
  peer_boot_ids:
    description:
      - C(/proc/sys/kernel/random/boot_id) of these nodes, as a dictionary of node name to boot ID.
        An entry with the boot ID of this node is this node under another name, and not a duplicate.
      - Without it a peer with this node's host name may be this node, or a clone that kept the
        name. This is V(major), and refused.
    type: dict
    default: {}
"""
