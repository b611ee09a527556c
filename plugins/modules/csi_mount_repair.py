#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: csi_mount_repair
short_description: Find pod mounts with a wrong source, and volumes that turned read-only
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds mount points of pods where something else than the staged CSI volume is mounted, or the
    volume twice (STOR-07), and unmounts exactly the wrong topmost layers.
  - Finds volumes whose filesystem turned read-only or shut down after I/O errors (STOR-08). A
    remount never repairs that. The workload has to be moved off the node and back, as
    M(storage_ops.runbooks.workload_reattach) does; RV(findings[].workload) names the volume.
  - Each mount is compared with the staging mount of its volume by device and folder, a loop device
    by the filesystem of the file behind it. The kubelet's C(vol_data.json) names the volume.
    Volumes of drivers that do not stage are only reported, and only if several mounts are stacked.
  - A mount that differs from the staging mount is wrong only if its driver is known to publish the
    staged volume; see O(publish_from). It is unmounted only if the volume remains below it.
  - If the pod's mount is the staging folder itself, without the volume that the driver should have
    mounted there, the pod writes to the node's own disk. This is critical, and refused.
  - A filesystem counts as turned read-only if its superblock is read-only although the mount is
    writable, or if it returns C(EIO), and the kernel shows an error as the cause (the flags
    C(emergency_ro) or C(shutdown), the error counter of ext4, or kernel messages about ext4, xfs or
    btrfs since it was mounted). A volume that is mounted read-only on purpose does not count.
  - If nothing shows an error, the finding is refused. It is V(minor) if the device works and no
    error was counted, for example after an administrator's C(remount,ro).
  - Some kernels, such as 6.1 of Debian 12, only log that ext4 no longer accepts writes. There it is
    found as long as the log's buffer has that line.
  - Refuses if a process uses the mount in any mount namespace, if a container of the pod runs, if
    the wrong layer is not on top, if the driver is unknown, and, for STOR-08, while a path to the
    volume is down.
  - Block volumes (C(volumeDevices)), in-tree volumes and dead FUSE mounts are not checked.
requirements:
  - Root (C(become)), in the mount namespace of the node.
options:
  paths:
    description: Look only at these mount points, for example
      V(/var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/PV/mount).
    type: list
    elements: str
    default: []
  volumes:
    description: Look only at these PersistentVolumes.
    type: list
    elements: str
    default: []
  probe_timeout:
    description: >-
      Seconds within which a filesystem, or the device below it, must answer. All filesystems are
      probed in parallel.
    type: float
    default: 5
  publish_from:
    description:
      - How CSI drivers publish, by driver name. V(staging) if the mount of a pod is always a bind
        mount of a mount in the staging folder, V(elsewhere) if the driver may mount something for a
        pod that it has not staged.
      - For a driver that is neither here nor known, a pod mount that differs from the staging mount
        is refused.
      - Known are C(rbd.csi.ceph.com), C(cephfs.csi.ceph.com), C(csi.huawei.com), C(ebs.csi.aws.com)
        and C(ru.yandex.s3.csi) (V(staging)), and C(ch.ctrox.csi.s3-driver) (V(elsewhere)).
    type: dict
    default: {}
  accept_majority:
    description:
      - Accept repairs although more than half of the node's pod mounts, or of its volumes'
        filesystems, look broken.
      - Without it this counts as an outage, and nothing is repaired. The rule also applies to a
        single mount.
    type: bool
    default: false
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._node.bounds
  - storage_ops.runbooks._node.kubelet
  - storage_ops.runbooks._repair.limit
  - storage_ops.runbooks._repair.strict
seealso:
  - module: storage_ops.runbooks.node_storage_info
  - module: storage_ops.runbooks.workload_reattach
"""

EXAMPLES = r"""
---
- name: Show pod mounts that are not their volume, and volumes that turned read-only
  storage_ops.runbooks.csi_mount_repair:
  check_mode: true
  become: true

- name: Take wrong mounts away
  storage_ops.runbooks.csi_mount_repair:
  become: true

- name: Look at one volume only, and fail if it cannot be repaired
  storage_ops.runbooks.csi_mount_repair:
    volumes:
      - pvc-7f3f2f0e-0000-1111-2222-333344445555
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
      description:
        - The object, by C(kind), C(name) and C(node), and C(namespace) if it has one. C(node) is
          empty for an object that belongs to no node.
        - C(name) is a mount point.
      type: dict
      returned: always
      sample:
        kind: pod mount
        name: /var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/PV/mount
        node: worker01
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - Layers of a mount point are listed from the bottom up.
      type: dict
      returned: always
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.repair_pod_mounts
    workload:
      description: >-
        The workload to move off the node and back, as PersistentVolume, CSI driver, volume handle
        and uids of the pods here.
      type: dict
      returned: when moving the workload is what repairs it
      sample:
        volume: pvc-1
        driver: csi.example.com
        handle: vol-1
        pods: ["0a1b2c3d-1111-2222-3333-444455556666"]
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
        - V(unmount).
      type: str
      returned: always
      sample: unmount
    command:
      description:
        - The command, argument by argument. A request to an API server is shown as its method and
          path, and the values that it sets. C(write FILE TEXT) stands for writing to a file, C(wait
          SECONDS ...) for waiting.
        - Here it is the system call and its arguments. Right before it, the mount is checked to be
          the topmost one.
      type: list
      elements: str
      returned: always
actions_left_out:
  description: How many more actions there were, if the result is too long for all. They are chosen
    in turns of the namespaces or arrays.
  returned: when there are any
  type: int
undone:
  description:
    - Names of the findings whose repair failed and left nothing half made. Their verdict is
      V(refuse), and their C(reason) says why.
    - The task has failed then. A playbook may continue with the other repairs, and end with
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
from ..module_utils._node.options import BOUNDS, KUBELET, REFUSAL, ArgumentSpec, make_host
from ..module_utils._pod_mounts.runbook import OPTIONS_SPEC, PodMounts, pod_mount_options

RISKS = ArgumentSpec(
    {
        "max_repairs": {"type": "int", "default": 10},
        "accept_majority": {"type": "bool", "default": False},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **RISKS.merge(OPTIONS_SPEC, KUBELET, BOUNDS, REFUSAL).to_kwargs()
    )
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: PodMounts(make_host(params), pod_mount_options(params)),
        params["strict"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
