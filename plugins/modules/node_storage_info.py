#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_storage_info
short_description: Audit the storage of a node
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Runs all node controls in one call and changes nothing. It reads and decides with the same code
    as the modules that repair.
  - STOR-01 residual multipath maps, STOR-02 paths that lead to another LUN, STOR-03 residual SCSI
    disks, STOR-04 iSCSI readiness, STOR-05 dead FUSE mounts, STOR-06 FUSE mounts that do not
    answer, STOR-07 pod mounts with another source or twice, STOR-08 filesystems that turned
    read-only after I/O errors, STOR-09 NFS shares that cannot be mounted, STOR-10 container
    runtimes that allow containers far too many open files.
  - Only the code of the selected controls is loaded, since loading takes most of the time of an
    audit.
  - For STOR-09 a share of each NFS server and namespace is mounted where no other process sees it,
    and unmounted again; see M(storage_ops.runbooks.nfs_mount_check).
  - If something cannot be read, for example because of missing permissions or because O(deadline)
    has passed, RV(not_assessed) names the controls that need it. The other controls are assessed
    all the same, and the task fails. So it does on a host with multipath maps and without
    C(multipathd) to ask, where it is not known whether these maps fail over (STOR-01).
  - A control that has nothing to look at on the node is not applicable (RV(not_applicable)). This
    is decided by what was read, for example that there is no multipath map. STOR-04 is applicable
    if there is an iSCSI session, a target in the database of open-iscsi, an iSCSI volume of the
    kubelet's own driver, or a CSI driver that uses iSCSI; or if a file in C(/etc) loads
    C(iscsi_tcp) at boot, or O(peer_initiator_names) is given.
requirements:
  - Root (C(become)).
options:
  controls:
    description: Controls to run.
    type: list
    elements: str
    choices:
      - STOR-01
      - STOR-02
      - STOR-03
      - STOR-04
      - STOR-05
      - STOR-06
      - STOR-07
      - STOR-08
      - STOR-09
      - STOR-10
    default:
      - STOR-01
      - STOR-02
      - STOR-03
      - STOR-04
      - STOR-05
      - STOR-06
      - STOR-07
      - STOR-08
      - STOR-09
      - STOR-10
  shares:
    description:
      - NFS shares to check for STOR-09, as V(server:/export).
      - By default one share of each server with an NFS mount below O(kubelet_root) for each
        namespace that has mounts of it, and of each other C(port), C(sec) or C(proto) of these
        mounts.
    type: list
    elements: str
    default: []
  publish_from:
    description: How CSI drivers publish, for STOR-07, as in
      M(storage_ops.runbooks.csi_mount_repair).
    type: dict
    default: {}
  uses_iscsi:
    description:
      - Whether the volumes of a CSI driver come by iSCSI, for STOR-04, as a dictionary of the
        driver's name to V(true) or V(false).
      - This is known of some drivers. Without it, STOR-04 is not assessed on a node that is not
        ready for iSCSI and has a driver which can also use other protocols.
    type: dict
    default: {}
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._node.bounds
  - storage_ops.runbooks._node.kubelet
  - storage_ops.runbooks._node.nofile
  - storage_ops.runbooks._node.peers
  - storage_ops.runbooks._node.residual
seealso:
  - module: storage_ops.runbooks.multipath_residual
  - module: storage_ops.runbooks.iscsi_module_check
  - module: storage_ops.runbooks.fuse_remount
  - module: storage_ops.runbooks.container_restart
  - module: storage_ops.runbooks.csi_mount_repair
  - module: storage_ops.runbooks.nfs_mount_check
"""

EXAMPLES = r"""
---
- name: Audit a node
  storage_ops.runbooks.node_storage_info:
  become: true
  register: audit

- name: Look only at mounts
  storage_ops.runbooks.node_storage_info:
    controls:
      - STOR-05
      - STOR-06
      - STOR-07
      - STOR-08
  become: true

- name: Show what would be repaired
  ansible.builtin.debug:
    var: audit.findings
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 1 finding, 1 would be repaired
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
findings:
  description: What is wrong, most severe first. If a limit is shared in turns of namespaces or
    arrays, the most severe finding of each comes first, then the next of each.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty if the finding belongs to none.
      type: str
      returned: always
      sample: STOR-01
    severity:
      description: V(critical), V(major), V(minor) or V(info).
      type: str
      returned: always
      sample: major
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "multipath map", "name": "mpathb", "node": "worker01"}
    summary:
      description: What is wrong, in one sentence.
      type: str
      returned: always
    evidence:
      description: What was read. Lists are cut after 50 items, with a count. If the result is too
        long, only what playbooks decide by is left of it, and C(cut).
      type: dict
      returned: always
    verdict:
      description: V(repair), V(refuse) or V(report).
      type: str
      returned: always
      sample: repair
    code:
      description: Why it is refused, left, or has failed, as a code as in RV(code); empty
        otherwise.
      type: str
      returned: always
      sample: ""
    reason:
      description: Why it is repaired, refused or only reported, and the next step.
      type: str
      returned: always
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.clean_residual_paths
    repair:
      description: The actions that repair it, in order, each as in RV(actions); empty if this
        module repairs nothing. At most 50, those first that were not done.
      type: list
      elements: dict
      returned: always
    repair_left_out:
      description: How many more actions the repair has.
      type: int
      returned: when there are any
not_assessed:
  description: Controls that could not be assessed, or only in part, with the reason. The task fails
    then, and still returns the findings of the other controls.
  returned: when there are any
  type: dict
  sample: {"STOR-08": "the kernel's log cannot be read"}
not_assessed_codes:
  description: The same controls, with a code for each as in RV(code).
  returned: when there are any
  type: dict
not_applicable:
  description: Controls that have nothing to look at, with what shows that.
  returned: when there are any
  type: dict
  sample: {"STOR-01": "there is no multipath map"}
actions:
  description:
    - What was done, or in check mode would be done, in order; empty if the module only reads.
    - What a repair would do is in each finding.
  returned: always
  type: list
  elements: dict
  contains:
    action:
      description:
        - Name of the action.
        - For the names see the modules that repair.
      type: str
      returned: always
      sample: flush_map
    target:
      description: What it changes or waits for.
      type: str
      returned: always
    command:
      description: The command, argument by argument. A request to an API server is shown as its
        method and path, and the values that it sets. C(write FILE TEXT) stands for writing to a
        file, C(wait SECONDS ...) for waiting.
      type: list
      elements: str
      returned: always
    outcome:
      description: V(planned), V(done), V(failed) or V(skipped).
      type: str
      returned: always
      sample: done
    seconds:
      description: Duration in seconds.
      type: float
      returned: always
stale:
  description: Containers that see a dead FUSE mount; see M(storage_ops.runbooks.fuse_remount).
  returned: with STOR-05 or STOR-06
  type: list
  elements: dict
pods:
  description: >-
    Pods with a container that cannot be restarted alone; see
    M(storage_ops.runbooks.container_restart).
  returned: with STOR-05 or STOR-06
  type: list
  elements: dict
shares:
  description: The measurements of each NFS share; see M(storage_ops.runbooks.nfs_mount_check).
  returned: with STOR-09
  type: list
  elements: dict
runtimes:
  description: Container runtimes and their limits; see M(storage_ops.runbooks.nfs_mount_check).
  returned: with STOR-10
  type: list
  elements: dict
"""

from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import Audit, Part, report_parts
from ..module_utils._node.host import Host
from ..module_utils._node.options import (
    BOUNDS,
    ISCSI_USE,
    KUBELET,
    NOFILE,
    PEERS,
    PUBLISH,
    RESIDUAL,
    SHARES,
    ArgumentSpec,
    make_host,
)

CONTROLS = [f"STOR-{number:02d}" for number in range(1, 11)]
SCOPE = ArgumentSpec(
    {"controls": {"type": "list", "elements": "str", "choices": CONTROLS, "default": CONTROLS}}
)

# A node has no compiled copy of what Ansible sends it, so each of these imports compiles what it
# brings, which takes longer than to look. Each is made only where one of its controls is asked for.


def _fuse_mounts(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._fuse_mounts.options import fuse_options
    from ..module_utils._fuse_mounts.runbook import FuseRecovery

    return FuseRecovery(host, fuse_options(params))


def _containers(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._containers.runbook import StaleContainers, container_options

    return StaleContainers(host, container_options(params))


def _pod_mounts(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._pod_mounts.runbook import PodMounts, pod_mount_options

    return PodMounts(host, pod_mount_options(params))


def _residual(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._residual_paths import runbook

    return runbook.ResidualAudit(host, runbook.residual_options(params))


def _iscsi(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._iscsi_ready.runbook import IscsiReady, audit_options

    return IscsiReady(host, audit_options(params))


def _runtime_limits(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._nfs.runtime_limit import RuntimeLimits, limit_options

    return RuntimeLimits(host, limit_options(params))


def _nfs_shares(host: Host, params: dict[str, Any]) -> Audit[Any]:
    from ..module_utils._nfs.runbook import NfsShares, nfs_options
    from ..module_utils._nfs.runtime_limit import limit_options

    limits = limit_options(params)
    return NfsShares(host, nfs_options(params), limits, params["kubelet_root"], measured=True)


# What the mounts themselves answer comes first: everything that hangs is paid from one deadline.
AUDITS: list[tuple[str, Callable[[Host, dict[str, Any]], Audit[Any]]]] = [
    ("STOR-05 STOR-06", _fuse_mounts),
    ("STOR-05 STOR-06", _containers),
    ("STOR-07 STOR-08", _pod_mounts),
    ("STOR-01 STOR-02 STOR-03", _residual),
    ("STOR-04", _iscsi),
    ("STOR-10", _runtime_limits),
    ("STOR-09", _nfs_shares),
]


def main() -> None:
    """Entry point."""
    spec = SCOPE.merge(SHARES, NOFILE, PUBLISH, RESIDUAL, PEERS, ISCSI_USE, KUBELET, BOUNDS)
    module = AnsibleModule(supports_check_mode=True, **spec.to_kwargs())
    params: dict[str, Any] = module.params

    def parts() -> list[Part]:
        host = make_host(params)

        def part(controls: str, make: Callable[[Host, dict[str, Any]], Audit[Any]]) -> Part:
            return Part(frozenset(controls.split()), lambda: make(host, params), host.deadline)

        return [part(controls, make) for controls, make in AUDITS]

    report_parts(module, parts, params["controls"], params["deadline"])


if __name__ == "__main__":
    main()
