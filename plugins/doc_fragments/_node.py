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
      - Look only at the multipath maps of these names, for example V(mpathb).
      - Names are translated to WWIDs, also through C(/etc/multipath/bindings), so that disks which
        a map left behind count too.
    type: list
    elements: str
    default: []
  wwids:
    description:
      - Look only at maps and disks with these WWIDs, written as C(multipath -ll) writes them, for
        example V(36001405f487100cf0e74447a08ee985c).
      - WWIDs are compared whole, never by a part.
    type: list
    elements: str
    default: []
  vendor:
    description: Look only at maps and disks of this SCSI vendor, compared whole and without regard
      to case.
    type: str
    default: ''
  product:
    description: Look only at maps and disks of this SCSI product, compared whole and without regard
      to case.
    type: str
    default: ''
  observations:
    description:
      - How often something suspicious is looked at before it is judged. Everything else is asked
        once.
      - A single observation proves nothing, so with V(1) every repair is refused.
      - A map with a path that the kernel itself calls down is refused after the first one, since no
        other can prove anything.
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
    description: Seconds that the kernel gives one SCSI command of an inquiry. All disks are asked
      in parallel.
    type: float
    default: 5
"""

    BOUNDS = r"""
options:
  command_timeout:
    description: Seconds after which a command that does not answer is abandoned.
    type: float
    default: 30
  deadline:
    description:
      - Seconds after which the module ends, whatever hangs. At least 20.
      - The last 10 seconds are kept for taking back a repair that was begun.
    type: float
    default: 300
"""

    KUBELET = r"""
options:
  kubelet_root:
    description:
      - The kubelet's folder (its C(--root-dir)). Links above it are followed, links within it never
        are.
      - Only mounts in it are acted on.
    type: str
    default: /var/lib/kubelet
"""

    NOFILE = r"""
options:
  limit_nofile_max:
    description: The largest C(LimitNOFILE) of a container runtime that passes. The default is what
      runtimes were shipped with before they used V(infinity).
    type: int
    default: 1048576
"""

    PEERS = r"""
options:
  peer_initiator_names:
    description:
      - Initiator names of the other nodes, without this one, as a dictionary of node name to
        initiator name, to find a name that two nodes share.
      - The playbook C(storage_ops.runbooks.load_iscsi_modules) fills it in from the hosts of its
        target.
    type: dict
    default: {}
  peer_boot_ids:
    description:
      - What C(/proc/sys/kernel/random/boot_id) of these nodes has, as a dictionary of node name to
        boot ID. An entry with the boot ID of this node is this node, and no duplicate, under
        whatever name.
      - Without it a peer of this node's own host name may be this node, or a clone that kept the
        name. That is V(major), and refused.
    type: dict
    default: {}
"""
