#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: container_restart
short_description: Restart containers that still have a dead FUSE mount
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds containers that still see a dead FUSE mount (STOR-05) although the node's mount of the
    same volume answers again, for example after M(storage_ops.runbooks.fuse_remount). Restarts only
    these, in the least disruptive way.
  - A container has a copy of each mount in its own mount namespace. Only mounts within a folder
    with C(HostToContainer) propagation are renewed automatically. So the module lists every FUSE
    mount of every container as the container sees it. A mount that answers is never touched.
  - If a liveness probe covers the mount, it waits for the kubelet to restart the container.
    Otherwise it stops the container with C(crictl), and the kubelet starts it again. The pod stays.
  - The proof is a new container of the same name in the same pod that can list the folder, on the
    same file system as the node. If the runtime cannot list names, it is a container that did not
    run before.
  - Refuses if the node's mount does not answer either, if the volume of a mount is unknown, if it
    is not a CSI volume of the container's own pod (a CSI driver sees the volumes of all pods), if
    the container mounts volumes for others, or if the kubelet would not start it again. RV(pods)
    lists pods that must be restarted as a whole.
requirements:
  - Root (C(become)), in the mount namespace of the node.
  - C(crictl), unless liveness probes cover all dead mounts.
options:
  containers:
    description:
      - What the cluster knows about mounts in containers, from
        M(storage_ops.runbooks.csi_volume_info). With it, only these containers are checked.
      - Without it, all containers are checked but none is restarted, since the restart policy is
        unknown.
    type: list
    elements: dict
    default: []
    suboptions:
      pod:
        description: Uid of the pod.
        type: str
        required: true
      mount_path:
        description: Mount path of the volume in the container.
        type: str
        required: true
      container:
        description: Name of the container.
        type: str
        default: ''
      id:
        description: Id of the container in the runtime. Needed where there is no C(crictl) and
          containers of a pod have the same path.
        type: str
        default: ''
      namespace:
        description: Namespace of the pod.
        type: str
        default: ''
      pod_name:
        description: Name of the pod.
        type: str
        default: ''
      volume:
        description: Name of the PersistentVolume.
        type: str
        default: ''
      claim:
        description: Name of the claim.
        type: str
        default: ''
      host_path:
        description: Path on the node that is mounted there. If the runtime can be asked, its answer
          takes precedence.
        type: str
        default: ''
      probe:
        description: Whether the container's liveness probe would notice that the mount is dead.
        type: bool
        default: false
      restart_policy:
        description:
          - V(Always), V(OnFailure) or V(Never).
          - Only with V(Always) is it certain that the container is started again.
          - If entries of the same container differ, it counts as unknown.
        type: str
        default: ''
  method:
    description:
      - How a container is restarted.
      - V(probe) only waits for the kubelet, and refuses if no liveness probe covers the mount.
      - V(cri) stops it with the runtime at once.
      - V(auto) waits if a probe covers the mount. It stops the container with the runtime if there
        is no probe, or if the kubelet did not restart it.
    type: str
    choices: [auto, probe, cri]
    default: auto
  probe_timeout:
    description: Seconds that listing a folder may take. All folders are listed in parallel.
    type: float
    default: 5
  liveness_timeout:
    description:
      - Seconds to wait for the kubelet to restart a container after its liveness probe failed. V(0)
        does not wait.
      - All containers with a probe share this time.
      - By default a probe fails three times, ten seconds apart, and the container then has thirty
        seconds to end.
    type: float
    default: 120
  stop_timeout:
    description:
      - Seconds from SIGTERM to SIGKILL when the runtime stops a container.
      - By default the C(terminationGracePeriodSeconds) of its pod, as the kubelet recorded it on
        the container, but at least 2, as for the kubelet; 30 if it is not recorded.
    type: int
  restart_timeout:
    description:
      - Seconds within which the new container must list the folder.
      - If a container has ended often, the kubelet waits some minutes before it starts it again.
    type: float
    default: 120
  crictl:
    description: The program C(crictl), by name or absolute path.
    type: str
    default: crictl
  runtime_endpoint:
    description:
      - Socket of the container runtime, for example V(unix:///run/containerd/containerd.sock).
      - By default the one in C(/etc/crictl.yaml), or else the only known socket that exists.
    type: str
    default: ''
  planned_paths:
    description:
      - In check mode, mount points of the node that M(storage_ops.runbooks.fuse_remount) would have
        repaired before (the targets of its C(replace_mount)). Their containers are treated as if
        these mounts were repaired.
      - Ignored outside check mode.
    type: list
    elements: str
    default: []
  max_repairs:
    description:
      - Restart at most this many containers in one run; the others are refused.
      - The pods in RV(pods) count too. First one container or pod of each namespace is restarted,
        then a second one of each; in each turn, the containers come first.
    type: int
    default: 10
  accept_majority:
    description:
      - Accept restarts although more than half of the containers with FUSE mounts have a dead one.
      - This is the case when a driver has failed for all volumes at once. The rule also applies to
        a single container.
    type: bool
    default: false
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._node.kubelet
  - storage_ops.runbooks._node.bounds
  - storage_ops.runbooks._repair.strict
seealso:
  - module: storage_ops.runbooks.fuse_remount
  - module: storage_ops.runbooks.csi_volume_info
"""

EXAMPLES = r"""
---
- name: Which containers still have a dead mount?
  storage_ops.runbooks.container_restart:
  check_mode: true
  become: true

- name: Restart a container that has one
  storage_ops.runbooks.container_restart:
    containers:
      - pod: 5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11
        container: main
        mount_path: /data
        restart_policy: Always
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
pods:
  description:
    - Pods that must be restarted as a whole, since one of their containers with a dead mount cannot
      be restarted alone.
    - Empty if more than half of the containers have a dead mount, unless O(accept_majority) is set.
  returned: success, and when a refusal fails the task
  type: list
  elements: dict
  contains:
    uid:
      description: Uid.
      type: str
      returned: always
    namespace:
      description: Namespace; empty if it is not known.
      type: str
      returned: always
    name:
      description: Name; empty if it is not known.
      type: str
      returned: always
    claims:
      description: Claims of its dead mounts, as far as O(containers) names them.
      type: list
      elements: str
      returned: always
    reasons:
      description: Why.
      type: list
      elements: str
      returned: always
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
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - Containers with a dead or hung FUSE mount.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description:
        - The object, by C(kind), C(name) and C(node), and C(namespace) if it has one. C(node) is
          empty for an object that belongs to no node.
        - C(name) is the pod and the container.
      type: dict
      returned: always
      sample: {"kind": "container", "namespace": "shop", "name": "web-0/main", "node": "worker01"}
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(proof) is what the new container sees.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - This module returns V(repair) or V(refuse).
      type: str
      returned: always
      sample: repair
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.recover_fuse_mounts
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
        - V(await_liveness_probe) or V(stop_container).
      type: str
      returned: always
      sample: stop_container
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

from ..module_utils._containers.runbook import OPTIONS_SPEC, StaleContainers, container_options
from ..module_utils._core.engine import run
from ..module_utils._node.options import BOUNDS, KUBELET, REFUSAL, make_host


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **OPTIONS_SPEC.merge(KUBELET, BOUNDS, REFUSAL).to_kwargs()
    )
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: StaleContainers(make_host(params), container_options(params, module.check_mode)),
        params["strict"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
