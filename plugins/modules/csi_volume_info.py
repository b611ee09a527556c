#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: csi_volume_info
short_description: List CSI volumes, the pods that mount them, and the paths on their nodes
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Joins provisioner, claim, volume, pods, nodes, paths, StorageClass and Secret.
    M(storage_ops.runbooks.fuse_remount) and M(storage_ops.runbooks.container_restart) need these
    data to repair the mounts of a volume. It changes nothing and assesses no volume.
  - Volumes, claims, StorageClasses and pods are read completely, from etcd, or the task fails. A
    list without permission to read it is an error, never an empty list.
  - If a node of O(nodes) was created again after one of its pods, the namespace of that pod is left
    out, since another host may have its mounts.
  - It names Secrets, and never reads one. Attributes and parameters that look like credentials are
    hidden.
  - If the result would be too long for AWX, the largest namespaces are left out completely until
    the others fit. RV(left_out) names them, and RV(findings) the reason.
  - Only volumes with a filesystem that are bound to a claim are listed; block volumes and inline
    volumes are not.
requirements:
  - The rights of C(playbooks/files/rbac-audit.yml) in this collection.
options:
  provisioners:
    description:
      - Only volumes of these provisioners or CSI drivers. Names must match in full.
      - A volume matches by its driver, or by its annotation C(pv.kubernetes.io/provisioned-by). The
        annotations of its claim are ignored, since the owner of the claim can write them.
    type: list
    elements: str
    default: []
  nodes:
    description:
      - Only pods on these nodes, by their names in Kubernetes. It is an error if one does not
        exist.
      - Volumes that no pod on these nodes uses are only named, in RV(unused).
    type: list
    elements: str
    default: []
  namespaces:
    description: Only claims in these namespaces.
    type: list
    elements: str
    default: []
  claims:
    description: Only these claims, each as C(namespace/name).
    type: list
    elements: str
    default: []
  kubelet_root:
    description: The folder of the kubelets (their C(--root-dir)), for the returned paths.
    type: str
    default: /var/lib/kubelet
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.fuse_remount
  - module: storage_ops.runbooks.container_restart
"""

EXAMPLES = r"""
---
- name: Which pods on a node have volumes of an S3 driver?
  storage_ops.runbooks.csi_volume_info:
    provisioners:
      - ru.yandex.s3.csi
    nodes:
      - worker01
  register: s3

- name: Show where they are mounted
  ansible.builtin.debug:
    msg: "{{ s3.volumes | map(attribute='pods') | flatten | map(attribute='paths.publish') }}"
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: "nothing to do: 2 volumes of ru.yandex.s3.csi, mounted by 3 pods on worker01"
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
volumes:
  description: The volumes, by name.
  returned: success
  type: list
  elements: dict
  contains:
    volume:
      description: Name of the PersistentVolume.
      type: str
      returned: always
      sample: pvc-4a4c2d8e-5b1f-4c7e-9d2b-1f2f5d0f3c11
    driver:
      description: CSI driver.
      type: str
      returned: always
      sample: ru.yandex.s3.csi
    handle:
      description: Volume handle.
      type: str
      returned: always
    claim:
      description: Name of its claim.
      type: str
      returned: always
    namespace:
      description: Namespace of its claim.
      type: str
      returned: always
    storage_class:
      description: Its StorageClass; empty if it has none.
      type: str
      returned: always
    access_modes:
      description: Its access modes.
      type: list
      elements: str
      returned: always
    read_only:
      description: Whether the volume itself is mounted read-only everywhere (C(spec.csi.readOnly)).
      type: bool
      returned: always
    mount_options:
      description: Its mount options, without credentials.
      type: list
      elements: str
      returned: always
    attributes:
      description: Its C(volumeAttributes). Values that look like credentials are replaced by
        the word hidden in brackets.
      type: dict
      returned: always
    parameters:
      description: The parameters of its StorageClass, in the same way; empty if there is none.
      type: dict
      returned: always
    sources:
      description:
        - Its name in the storage, such as bucket or bucket/folder, from the attributes, parameters
          and handle that common drivers use.
        - With more than one entry, the right one is unknown.
      type: list
      elements: str
      returned: always
      sample: ["shared/pvc-4a4c2d8e-5b1f-4c7e-9d2b-1f2f5d0f3c11"]
    secret:
      description:
        - C(namespace) and C(name) of the Secret that the node needs, from the volume, or else from
          the templates of its StorageClass.
        - Empty if none is named.
      type: dict
      returned: always
      sample: {"namespace": "kube-system", "name": "csi-s3-secret"}
    problems:
      description: Why some of these values are unknown.
      type: list
      elements: str
      returned: always
    staging:
      description: Where the kubelet stages it, since Kubernetes 1.24 and in earlier versions.
      type: list
      elements: str
      returned: always
    pods:
      description: The pods that mount it.
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description: Name.
          type: str
          returned: always
        namespace:
          description: Namespace.
          type: str
          returned: always
        uid:
          description: Uid, by which its node knows it.
          type: str
          returned: always
        node:
          description: Its node.
          type: str
          returned: always
        phase:
          description: Its phase.
          type: str
          returned: always
          sample: Running
        terminating:
          description: Whether it is being deleted.
          type: bool
          returned: always
        overdue:
          description: Seconds since its grace period was over; V(0) for one that is not being
            deleted.
          type: int
          returned: always
        owner:
          description: C(kind) and C(name) of its controller; empty if it has none.
          type: dict
          returned: always
          sample: {"kind": "ReplicaSet", "name": "web-5d89c7"}
        containers:
          description: One entry for each mount in a container.
          type: list
          elements: dict
          returned: always
          contains:
            name:
              description: Name of the container.
              type: str
              returned: always
            id:
              description: Its id in the container runtime; empty if it was never started.
              type: str
              returned: always
            mount_path:
              description: Where the volume is in the container.
              type: str
              returned: always
            sub_path:
              description: Folder of the volume that is mounted, as in the pod; empty for the whole
                volume.
              type: str
              returned: always
            read_only:
              description: Whether it is mounted read-only.
              type: bool
              returned: always
            propagation:
              description: Whether mounts made later are seen, V(None), V(HostToContainer) or
                V(Bidirectional).
              type: str
              returned: always
            probe:
              description:
                - Whether the container's liveness probe would notice that the mount is dead.
                - Only a command that contains the mount path, or a path in it, would notice it.
              type: bool
              returned: always
            restart_policy:
              description: V(Always), V(OnFailure) or V(Never).
              type: str
              returned: always
            host_path:
              description: Path on the node that is mounted there, one of
                RV(volumes[].pods[].paths).
              type: str
              returned: always
        paths:
          description: Where the kubelet mounts it for the pod, C(publish), and a list of
            C(subpaths).
          type: dict
          returned: always
unused:
  description: >-
    The volumes that no pod on O(nodes) uses, by C(volume), C(driver) and C(handle). Empty without
    O(nodes).
  returned: success
  type: list
  elements: dict
containers:
  description:
    - The same mounts of containers, in the form of
      O(storage_ops.runbooks.container_restart#module:containers).
    - Only for pods that run and are not being deleted.
  returned: success
  type: list
  elements: dict
left_out:
  description: The namespaces that are left out of RV(volumes), RV(unused) and RV(containers).
  returned: success
  type: list
  elements: str
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - One for each of RV(left_out), with the reason; C(verdict) is V(report).
  returned: always
  type: list
  elements: dict
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads. RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import report
from ..module_utils._csi_volumes.runbook import CsiVolumes, volume_options
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal

SCOPE = ArgumentSpec(
    {
        "provisioners": {"type": "list", "elements": "str", "default": []},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "namespaces": {"type": "list", "elements": "str", "default": []},
        "claims": {"type": "list", "elements": "str", "default": []},
        "kubelet_root": {"type": "str", "default": "/var/lib/kubelet"},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    report(
        module,
        lambda: CsiVolumes(make_cluster(params), volume_options(params)),
        set(),
        params["deadline"],
    )


if __name__ == "__main__":
    main()
