#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: fuse_remount
short_description: Find dead and hung FUSE mounts in the kubelet's folder, and replace them
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Finds FUSE mounts in the kubelet's folder whose server has ended (STOR-05, C(Transport endpoint
    is not connected)) or does not answer (STOR-06), for example after the pod of a CSI driver was
    restarted and its C(s3fs) processes ended with it.
  - Each FUSE filesystem is probed once, by C(statvfs) and a listing in a child process that is
    never waited for. C(stat), C(mountpoint) and mountinfo do not show the fault. Each filesystem is
    one finding with all its mounts, since staging, publish and subPath mounts share one server.
  - With O(strategy=remount) the volume is remounted in a private folder, by a separate systemd unit
    that outlives the connection of Ansible. If the new mount can be listed, has the right type and,
    as far as mountinfo shows, the same source as the dead one, it replaces the dead mount at each
    mount point. The dead layers are unmounted lazily, and the new mount is bound there at once.
  - With O(strategy=kubelet) nothing is mounted. The module unmounts the remaining mounts of pods
    without containers, so that the kubelet can unstage the volume and the next pod gets a new
    mount.
  - A dead mount of C(fuse.glusterfs) is only reported, since its client also returns this error
    when its servers are down.
  - Only mounts below O(kubelet_root) with a path that Kubernetes creates are changed. Only the dead
    layers are removed. A filesystem below them stays. If a mount on top of them answers, nothing is
    done.
  - If the CSI driver has already renewed the mount at the staging path, that mount is used, and
    nothing is mounted.
  - Running containers keep the dead mount, unless it reaches them by mount propagation. RV(stale)
    lists them.
  - The new mounts of pods are noted in C(/run/storage_ops/fuse.renewed), so that
    M(storage_ops.runbooks.csi_mount_repair) takes them for right (STOR-07) when the driver stages
    the volume again.
  - An interrupted run leaves a record in C(/run/storage_ops/fuse), and the next run finishes its
    work. Only one run repairs a node at a time. A second one fails at once (C(lease_held)). Check
    mode takes no lock.
  - Right before a mount is unmounted it is probed again, and only one whose server has ended goes.
  - If a repair fails and is rolled back completely, the other repairs continue, and the task fails
    at the end. If the rollback is incomplete, the run stops.
requirements:
  - Root (C(become)), in the mount namespace of the node.
  - With O(strategy=remount) the program that serves the mount, on the node itself, and C(systemd).
options:
  paths:
    description: Look only at the FUSE mounts with these mount points. The task fails if one of them
      answers or is not a FUSE mount.
    type: list
    elements: str
    default: []
  strategy:
    description:
      - V(remount) remounts the volume; running pods stay. It requires O(volumes).
      - V(kubelet) unmounts the remaining mounts of deleted pods, and the kubelet does the rest. It
        requires O(volumes[].pods).
    type: str
    choices:
      - remount
      - kubelet
    default: remount
  volumes:
    description:
      - What to mount for each volume. The playbook C(storage_ops.runbooks.recover_fuse_mounts)
        fills it in from the cluster.
      - O(volumes[].volume), O(volumes[].handle) or O(volumes[].paths) assigns an entry to its
        mount. One of them is required.
      - A mount of a volume that is not a CSI volume shows only the name that the pod gave it. It is
        found only by O(volumes[].paths). So is an inline CSI volume.
    type: list
    elements: dict
    default: []
    suboptions:
      volume:
        description:
          - Name of the PersistentVolume. It counts if the kubelet has noted it in its
            C(vol_data.json). If that cannot be read, a mount is of this volume only if its pod is
            one of O(volumes[].pods).
          - An entry with another O(volumes[].handle) than the kubelet has noted is not meant.
        type: str
        default: ''
      driver:
        description: CSI driver, since two drivers may use the same volume handle.
        type: str
        default: ''
      handle:
        description: Volume handle, as the kubelet's C(vol_data.json) has it.
        type: str
        default: ''
      paths:
        description: Mount points, for mounts without the kubelet's C(vol_data.json).
        type: list
        elements: str
        default: []
      recipe:
        description:
          - V(s3fs) or V(rclone), for a bucket of an S3 server. Any other is refused. By default it
            follows from the file system type of the dead mount.
          - V(rclone) with another kind of server, and all other programs, need a
            O(volumes[].command).
        type: str
        default: ''
      sources:
        description: >-
          The source of the mount, for example a bucket. Different candidates are refused, since
          only one can be right.
        type: list
        elements: str
        default: []
      options:
        description:
          - Mount options. An option that begins with a dash is passed to the program unchanged, any
            other with C(-o).
          - C(allow_other) and C(default_permissions) are added if the dead mount had them, and the
            new mount must have them too.
          - A password in them is refused, also in O(volumes[].sources) and O(volumes[].endpoint).
        type: list
        elements: str
        default: []
      unreadable:
        description: Why the mount options that the cluster has are not known. The volume is refused
          then. The filter P(storage_ops.runbooks.fuse_volumes#filter) says it, unless it is given
          other options.
        type: str
        default: ''
      endpoint:
        description: Address of the server, for example V(https://s3.example.com).
        type: str
        default: ''
      secret_namespace:
        description:
          - Namespace of the Secret that the volume is mounted with, if there is one. Users who may
            write that Secret can set any O(volumes[].endpoint).
          - Broken mounts of a driver at an endpoint are counted separately for each such namespace
            (O(accept_majority)).
        type: str
        default: ''
      region:
        description:
          - Region of the server. The recipe V(rclone) uses it; others take it as one of
            O(volumes[].options).
          - Letters, digits, dots, dashes and underscores. Anything else is refused. So is an
            invalid address, bucket or key.
        type: str
        default: ''
      credentials_key:
        description:
          - Which of O(credentials) are of this volume, and of no volume that does not say so.
          - By default those with the name of O(volumes[].volume). If there are none, those with its
            O(volumes[].handle) or one of its O(volumes[].paths), if that is neither the name of
            another volume nor of several entries.
        type: str
        default: ''
      command:
        description:
          - Command line to use instead of a recipe. C({source}), C({target}), C({endpoint}),
            C({region}) and C({credentials_file}) are filled in, and C({options}) becomes the mount
            options. There are examples in L(the guide,
            https://github.com/storage-ops/runbooks/blob/main/docs/guides/fuse_mounts.md).
          - The credentials file contains the credential C(file) unchanged, or else a line
            C(KEY=VALUE) for each credential. The content of C(file) may make root run any command
            that the program's configuration allows, so do not take it from a Secret that tenants
            may write.
          - On a node without systemd the command is run directly, and must go into the background
            itself.
        type: list
        elements: str
        default: []
      foreground:
        description: Whether O(volumes[].command) stays in the foreground. If not, systemd waits
          until it has gone into the background.
        type: bool
        default: true
      memory_max:
        description:
          - Mebibytes of memory that the program may have; at least V(64).
          - By default the limit of the driver's container on this node, or of its pod if that is
            lower; V(1024) without a limit, or if the container is not found. The driver's container
            is the one that has the folder of the driver's socket and mounts for pods.
          - The kernel kills a program that needs more, for example for an endless listing, and its
            mount is dead again.
        type: int
      tasks_max:
        description: Threads and processes that the program may have; at least V(16). The default is
          found in the same way, or is V(512).
        type: int
      pods:
        description:
          - The pods of the volume on this node. An empty list means that the cluster has none;
            without the option this is unknown.
        type: list
        elements: dict
        suboptions:
          uid:
            description: Uid of the pod.
            type: str
            required: true
          namespace:
            description: Namespace of the pod.
            type: str
            default: ''
          name:
            description: Name of the pod.
            type: str
            default: ''
          terminating:
            description: Whether the pod is being deleted.
            type: bool
            default: false
  credentials:
    description:
      - For each volume, by its name, handle or path as in its entry of O(volumes), or by its
        O(volumes[].credentials_key), a dictionary of C(access_key), C(secret_key) and, for
        O(volumes[].recipe=rclone), C(session_token). A O(volumes[].command) may have any keys.
      - They are written to a file that only root can read. It is removed as soon as the mount is up
        or has failed, by the systemd unit too in case this module is killed.
      - They are not part of O(volumes), since Ansible writes that option to the node's log in a
        form in which it does not recognize every secret.
    type: dict
    default: {}
  probe_timeout:
    description: Seconds after which a mount that does not answer counts as hung. All mounts are
      probed in parallel.
    type: float
    default: 5
  node:
    description:
      - Name of the node in Kubernetes for which O(volumes) was made.
      - If the kubelet's own files have another name, nothing is repaired.
    type: str
    default: ''
  remount_timeout:
    description: Seconds that a new mount may take to come up.
    type: float
    default: 30
  containers_timeout:
    description:
      - With O(strategy=kubelet), seconds to wait for the containers of the volume's pods to end.
        They count from the first wait on, for all volumes together. The wait ends with the
        deadline.
      - With V(0) the repair is refused at once while a container runs. A pod that is not being
        deleted (O(volumes[].pods[].terminating)) is refused in any case.
    type: float
    default: 0
  unstage_timeout:
    description:
      - With O(strategy=kubelet), seconds to wait for the kubelet to unstage the volume. If a
        staging mount is left after that and no pod has a folder of it any more, it is unmounted.
      - Nothing is unmounted if the deadline leaves less time than that, and what all mount points
        of the volume need.
    type: float
    default: 60
  abort_hung_connections:
    description:
      - Accept that the connection to a hung server is aborted, after another probe. Data that it
        has not written yet are lost, and processes that wait for it get an error.
      - Without it a hung mount is refused, since it may only be slow.
    type: bool
    default: false
  accept_majority:
    description:
      - Accept repairs although more than half of the FUSE filesystems look broken, for example
        after a restart of their driver.
      - Without it this counts as an outage, and repairs are refused. Mounts are counted for each
        driver, O(volumes[].endpoint) and O(volumes[].secret_namespace). All mounts of a driver with
        an unknown endpoint count together. More than half of the namespaces must have lost more
        than half of theirs, and only these are refused.
      - The rule also applies to a single one.
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
"""

EXAMPLES = r"""
---
- name: Show dead FUSE mounts and what would be done about them
  storage_ops.runbooks.fuse_remount:
  check_mode: true
  become: true

- name: Remount a bucket
  storage_ops.runbooks.fuse_remount:
    volumes:
      - volume: pvc-7f3f2f0e-0000-1111-2222-333344445555
        recipe: s3fs
        sources:
          - bucket-a
        endpoint: https://s3.example.com
        options:
          - use_path_request_style
    credentials:
      pvc-7f3f2f0e-0000-1111-2222-333344445555:
        access_key: "{{ lookup('ansible.builtin.env', 'ACCESS_KEY') }}"
        secret_key: "{{ lookup('ansible.builtin.env', 'SECRET_KEY') }}"
  become: true

- name: Mount with a program that has no recipe
  storage_ops.runbooks.fuse_remount:
    volumes:
      - paths:
          - /var/lib/kubelet/pods/0a1b2c3d-1111-2222-3333-4444/volumes/kubernetes.io~csi/pv-7/mount
        sources:
          - /srv/data
        command:
          - bindfs
          - -f
          - "{options}"
          - "{source}"
          - "{target}"
  become: true

- name: Unmount what is left of a pod that is gone
  storage_ops.runbooks.fuse_remount:
    strategy: kubelet
    volumes:
      - volume: pvc-7f3f2f0e-0000-1111-2222-333344445555
        pods: []
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
        - C(name) is the staging path, or else the first mount point.
      type: dict
      returned: always
      sample:
        kind: FUSE mount
        name: /var/lib/kubelet/plugins/kubernetes.io/csi/pv/pvc-1/globalmount
        node: worker01
    given:
      description: Which of O(paths) the finding is about; never cut.
      type: list
      elements: str
      returned: with O(paths)
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
        - V(mount), V(adopt_mount), V(abort_connection), V(replace_mount), V(clean_up),
          V(wait_for_containers), V(unmount) or V(wait_unstaged); to undo something, V(bind_mount)
          or V(stop_service).
      type: str
      returned: always
      sample: replace_mount
    command:
      description:
        - The command, argument by argument. A request to an API server is shown as its method and
          path, and the values that it sets. C(write FILE TEXT) stands for writing to a file, C(wait
          SECONDS ...) for waiting.
        - System calls are shown as the command line that does the same. C(use MOUNT) stands for an
          existing mount.
        - To abort a connection, C(fusectl) is mounted first if it is not mounted, and stays
          mounted.
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
stale:
  description:
    - Mounts in other mount namespaces, for example of running containers, that stay dead even if
      the node's mounts are repaired.
    - The state after the repair; in check mode the current state.
  returned: always, once the node could be read
  type: list
  elements: dict
  contains:
    pod:
      description: Uid of the pod, from the control group of the process; empty if it belongs to no
        pod.
      type: str
      returned: always
    container:
      description: Id of the container, or empty.
      type: str
      returned: always
    pid:
      description: A process of that mount namespace.
      type: int
      returned: always
    point:
      description: Mount point in that namespace.
      type: str
      returned: always
      sample: /data
    device:
      description: Device number of the dead filesystem.
      type: str
      returned: always
      sample: '0:52'
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import run
from ..module_utils._fuse_mounts.options import OPTIONS_SPEC, fuse_options, options_of
from ..module_utils._fuse_mounts.runbook import FuseRecovery
from ..module_utils._node.options import BOUNDS, KUBELET, REFUSAL, make_host


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **OPTIONS_SPEC.merge(KUBELET, BOUNDS, REFUSAL).to_kwargs()
    )
    params: dict[str, Any] = options_of(module)
    run(
        module,
        lambda: FuseRecovery(make_host(params), fuse_options(params)),
        params["strict"],
        params["deadline"],
    )


if __name__ == "__main__":
    main()
