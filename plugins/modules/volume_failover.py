#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: volume_failover
short_description: Detach the volumes of a lost and fenced node, so that pods on other nodes can use
  them
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Called by the role P(storage_ops.runbooks.volume_failover#role); use the playbook
    C(storage_ops.runbooks.fail_over_volumes).
  - Detaches the fenced volumes from a lost node, waits until they are attached to the nodes of the
    waiting pods and these pods run, and proves this.
  - Refuses without a proven fence. Once O(prove) has proven it, if that is given, the ledger of
    M(storage_ops.runbooks.node_fence) must be in the phase C(fenced) or C(detached), its blocklist
    entries must not have expired, and its NetworkFences must still be Fenced. If the node was
    switched off, its BMC must still say so, and be that of the ledger. No other NetworkFence that
    covers a fenced address may be Unfenced, since its controller would remove the fence.
notes:
  - The node and its fence are read again before every step. It must still be the node that was
    fenced, and its C(Ready) must still be C(Unknown). If the Node object was deleted, the ledger
    alone decides.
  - There are two ways to detach. Since Kubernetes 1.28 the taint
    C(node.kubernetes.io/out-of-service=nodeshutdown:NoExecute) makes Kubernetes delete the pods of
    the node and detach its volumes, of every driver. Since Kubernetes deletes pods only every 20
    seconds, the module then force-deletes those that use fenced volumes itself, except those of a
    DaemonSet. Otherwise the module detaches volume by volume. It force-deletes the pods of one, and
    then deletes its VolumeAttachment. Pods and VolumeAttachments are deleted by their uid.
  - Namespaces take turns, and a volume with many pods waits for as many turns, so no tenant keeps
    the volumes of others from their turn. One call makes at most 500 deletions. A volume whose turn
    does not come stays attached, as a finding of its own with the code C(too_many_deletions)
    or C(ceph_reading_unfit). The next call continues with it.
  - Pods are force-deleted without regard to PodDisruptionBudgets, since the kubelet of a lost node
    cannot end them. A pod is deleted only if all its volumes are fenced, or hold nothing that
    another node could write to (C(emptyDir), C(configMap), C(secret), C(projected), C(downwardAPI),
    C(gitRepo), C(image), C(hostPath), and inline volumes of the CSI drivers that deliver secrets
    and certificates). The data in an C(emptyDir) of such a pod are lost.
  - It never removes a finalizer and never writes a status. If the attacher does not detach a
    volume, the run fails with the attacher's message.
  - A volume that does not leave the node in time, or whose new pod does not get it or does not run,
    keeps no other volume from its proof. It becomes a finding of its own, the ledger names the
    others as C(detached) and stays in the phase C(fenced), and the task fails at its end. The next
    run continues with what is left. The fence covers the whole node, so it stays for all of them.
  - A pod that stays on the node, since the fence does not cover its storage, is a finding of its
    own with the code C(storage_unreached), or C(data_on_node) if its data is on that node alone. So
    is a volume that is still attached, and that no pod there uses. The task does not fail for them.
  - Volumes that are never attached, as those of NFS, are part of a fence only if the node is off,
    or if they are of CephFS.
    One has arrived once its new pod on another node is C(Running) and has a container that runs, if
    no VolumeAttachment contradicts that. For this the account needs the permission to get its
    CSIDriver. From a node that is off, pods that have inline volumes are force-deleted too, unless
    a filter is given.
  - The containers on the lost node may keep running. The fence protects the storage from them, but
    not the application. They may still answer requests and read cached data.
  - A ledger only describes the past, and an entry can be removed from Ceph's blocklist at any time.
    So O(ceph) must show the fence right before anything is detached. With O(state=detached) the
    module ends as soon as the volumes have left the node. Then call it with O(state=held) and a new
    reading, which fails if the fence was removed in between, and finally with O(state=attached).
  - If a run was killed, the next one finishes its work. A run right after a successful one changes
    nothing.
options:
  state:
    description:
      - V(detached) detaches the volumes, and ends as soon as they have left the node.
      - V(attached) detaches the remaining volumes, waits until the volumes are attached to the
        nodes of the waiting pods and these pods run, and records this in the ledger. Volumes that
        an earlier run has detached and not recorded are included.
      - V(held) changes nothing and needs no Lease. It fails unless the ledger, the NetworkFences
        and O(ceph) show that the node is still fenced.
    type: str
    choices: [attached, detached, held]
    default: attached
  awaited:
    description:
      - With O(state=attached), the PersistentVolumes that O(state=detached) detached, from its
        RV(left). The module waits for them as well.
    type: list
    elements: str
    default: []
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph). Only its blocklist is
        used.
      - It must not be older than 2 minutes when something is detached. Volumes for which it has
        become too old meanwhile stay attached.
      - Not required in check mode, for a fence that is C(unverified) because Ceph cannot be asked,
        and for the methods V(power), V(external) and V(none). For the first two the newest of
        O(power) must say V(off) instead, and must not be older either.
    type: dict
  prove:
    description:
      - For O(state=detached), prove the fence first and record it in the ledger, as
        M(storage_ops.runbooks.node_fence) does with
        O(storage_ops.runbooks.node_fence#module:state=fenced) and these options. Nothing is
        detached unless that succeeds.
      - Pods wait until the volumes are detached, and one task is quicker than two.
      - The Lease, the deadline and the API server are those of this module. Refused in check mode.
    type: dict
    version_added: 0.1.0
    suboptions:
      method:
        description: As O(storage_ops.runbooks.node_fence#module:method).
        type: str
        choices: [auto, network_fence, ceph, power, external, none]
        default: auto
      ceph:
        description:
          - As O(storage_ops.runbooks.node_fence#module:ceph), and at most 2 minutes older than what
            O(ceph) outside of this option has. Without the latter, it serves for both.
        type: dict
        required: true
      grace_seconds:
        description: As O(storage_ops.runbooks.node_fence#module:grace_seconds).
        type: float
        default: 120
      fence_addresses:
        description: As O(storage_ops.runbooks.node_fence#module:fence_addresses).
        type: list
        elements: str
        default: []
      protected_addresses:
        description: As O(storage_ops.runbooks.node_fence#module:protected_addresses).
        type: list
        elements: str
        default: []
      other_addresses:
        description: As O(storage_ops.runbooks.node_fence#module:other_addresses).
        type: list
        elements: str
        default: []
      node_confirmed_off:
        description: As O(storage_ops.runbooks.node_fence#module:node_confirmed_off).
        type: bool
        default: false
      expiry_seconds:
        description: As O(storage_ops.runbooks.node_fence#module:expiry_seconds).
        type: float
        default: 31536000
      cluster_id:
        description: As O(storage_ops.runbooks.node_fence#module:cluster_id).
        type: str
        default: ''
      volumes:
        description: As O(storage_ops.runbooks.node_fence#module:volumes).
        type: list
        elements: str
      fence_timeout:
        description: As O(storage_ops.runbooks.node_fence#module:fence_timeout).
        type: float
        default: 60
      accept_majority:
        description: As O(storage_ops.runbooks.node_fence#module:accept_majority).
        type: bool
        default: false
      accept_short_observation:
        description: As O(storage_ops.runbooks.node_fence#module:accept_short_observation).
        type: bool
        default: false
      power_seconds:
        description: As O(storage_ops.runbooks.node_fence#module:power_seconds).
        type: float
        default: 5
  namespaces:
    description: Only volumes of claims in these namespaces.
    type: list
    elements: str
    default: []
  claims:
    description: Only volumes of these claims, each as C(namespace/name). A claim without a fenced
      volume is refused.
    type: list
    elements: str
    default: []
  storage_classes:
    description: Only volumes of these StorageClasses.
    type: list
    elements: str
    default: []
  detach:
    description:
      - How the volumes are detached.
      - V(taint) is refused before Kubernetes 1.28, with O(namespaces), O(claims) or
        O(storage_classes), and while the node has volumes that are not fenced. Its volumes are its
        VolumeAttachments, the lists C(status.volumesAttached) and C(status.volumesInUse), the
        claims of its pods, and their inline volumes, such as C(iscsi) or C(nfs). The claims of a
        pod that never ran, and that was created after the node fell silent, do not count if the
        cluster has a VolumeAttachment of the volume's driver.
      - All volumes of a node that was switched off (methods V(power) and V(external)) count as
        fenced.
      - V(volumes) detaches one volume after the other.
      - V(auto) uses the taint unless that is refused.
    type: str
    choices: [auto, taint, volumes]
    default: auto
  accept_unfenced_volumes:
    description:
      - Accept that pods with volumes that the fence does not cover are deleted too, and that the
        taint detaches such volumes. If the node still runs, a new pod is a second writer on them.
      - If volumes are detached one by one, such volumes stay attached, so the new pod may have to
        wait for them.
    type: bool
    default: false
  detach_timeout:
    description: Seconds within which pods and VolumeAttachments must have left the node.
    type: float
    default: 120
  attach_timeout:
    description:
      - Seconds within which the volumes must be attached to the nodes of the waiting pods. A
        workload without a new pod is only reported.
      - At least 90 if volumes are detached one by one, since the controller manager notices only
        once a minute that an attachment is gone, and reports C(Multi-Attach) until then.
    type: float
    default: 120
  ready_timeout:
    description:
      - Seconds within which the scheduled new pods must be Running and Ready, since an attached
        volume can still fail to be mounted. Otherwise the run fails with the message of the pod.
        The volumes stay where they are, and the next run waits again.
      - For a volume that several nodes can use, it waits only for pods that are younger than the
        loss of the node.
      - A new pod that cannot be scheduled is reported as a separate finding, and not waited for.
      - A kubelet tries to mount a volume again after up to 122 seconds.
      - V(0) does not wait, and the proof says so.
    type: float
    default: 180
  release_lease:
    description: Whether the Lease is released when this module ends, also after an error.
    type: bool
    default: true
  deadline:
    description:
      - Seconds after which the module ends even if something hangs. At least 60.
      - Longer than in other modules, since it includes O(lease_timeout), O(detach_timeout),
        O(attach_timeout) and O(ready_timeout).
      - The waits end 45 seconds earlier, so that the volumes that are proven by then are recorded.
    type: float
    default: 900
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._fence.power
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
attributes:
  idempotent:
    description: A second run right after a successful one finds nothing and changes nothing.
    support: full
  platform:
    description: Where the module runs.
    platforms: Linux
    support: full
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.node_release
  - name: Non-graceful node shutdown
    description: What the taint does.
    link: https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
"""

EXAMPLES = r"""
---
- name: Detach the volumes of one namespace from a fenced node, as the role does it
  hosts: localhost
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  module_defaults:
    storage_ops.runbooks.volume_failover:
      node: worker01
      run_id: failover-worker01-1
      namespaces:
        - shop
  tasks:
    - name: Read the fence from Ceph
      storage_ops.runbooks.rbd_watcher_info:
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: before

    - name: Detach the volumes
      storage_ops.runbooks.volume_failover:
        state: detached
        ceph: "{{ before.ceph }}"
      register: detached

    - name: Read the fence from Ceph once more
      storage_ops.runbooks.rbd_watcher_info:
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: after

    - name: Fail if the fence was removed in between
      storage_ops.runbooks.volume_failover:
        state: held
        ceph: "{{ after.ceph }}"

    - name: Wait until the volumes are attached to other nodes, and record it
      storage_ops.runbooks.volume_failover:
        state: attached
        awaited: "{{ detached.left }}"
        ceph: "{{ after.ceph }}"
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
fence:
  description: The ledger of the fence after the run, or in check mode as it would be; see
    M(storage_ops.runbooks.node_fence).
  returned: when there is one, and the task did not end before its last step
  type: dict
  sample: {"node": "worker01", "phase": "detached", "method": "ceph", "tainted": true}
left:
  description: The PersistentVolumes that left the node in this call.
  returned: when there is a ledger, and the task did not end before its last step
  type: list
  elements: str
  sample: [pvc-0b5c]
proven:
  description: The result of the proof of the fence, as M(storage_ops.runbooks.node_fence) returns
    it. If the fence is not proven, that is the result of the task instead.
  returned: with O(prove), when the fence is proven
  type: dict
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
    - One for the node with all volumes that leave it, one for each volume that stays, and one for
      each new pod that cannot be scheduled.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty if the finding belongs to none.
      type: str
      returned: always
      sample: STOR-16
    severity:
      description:
        - V(critical), V(major), V(minor) or V(info).
        - V(critical), or V(major) for a pod.
      type: str
      returned: always
      sample: critical
    object:
      description:
        - The object, by C(kind), C(name) and C(node), and C(namespace) if it has one. C(node) is
          empty for an object that belongs to no node.
        - The node, the PersistentVolume that stays, or the pod.
      type: dict
      returned: always
      sample: {"kind": "Node", "name": "worker01", "node": "worker01"}
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(detach) is the method, C(why_no_taint) the reason why it is not the taint, C(not_fenced)
          lists the other volumes on the node.
        - C(warning) names what the fence does not protect. C(proof) is what was read after the
          repair, with times by the clock of the API server.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - V(report) only for a pod.
      type: str
      returned: always
      sample: repair
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
        - V(taint_node), V(force_delete_pod), V(delete_volumeattachment), V(wait_detached),
          V(wait_attached), V(wait_ready) or V(record_detached). O(state=detached) ends with
          V(wait_detached).
        - V(force_delete_pod) of a pod that is left to Kubernetes ends with C(outcome=skipped).
        - V(record_detached) records in the ledger which volumes were failed over, and the phase
          C(detached) once nothing of the fence is on the node any more.
      type: str
      returned: always
      sample: taint_node
actions_left_out:
  description: How many more actions there were, if the result is too long for all. They are chosen
    in turns of the namespaces or arrays.
  returned: when there are any
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from functools import cache

from ..module_utils._core.engine import Step, report, run
from ..module_utils._core.errors import BadOption, StorageOpsError
from ..module_utils._failover.plan import FailoverOptions
from ..module_utils._failover.runbook import Failover, StillFenced, failover_options
from ..module_utils._fences.ledger import RUN, run_options
from ..module_utils._fences.power import SPEC as POWER_SPEC
from ..module_utils._fences.proof import iso
from ..module_utils._fencing.runbook import PROOF, Fence, fence_options
from ..module_utils._kube.client import Cluster
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal

SCOPE = ArgumentSpec(
    {
        "state": {
            "type": "str",
            "choices": ["attached", "detached", "held"],
            "default": "attached",
        },
        "awaited": {"type": "list", "elements": "str", "default": []},
        "ceph": {"type": "dict"},
        "prove": {"type": "dict", "options": PROOF},
        "namespaces": {"type": "list", "elements": "str", "default": []},
        "claims": {"type": "list", "elements": "str", "default": []},
        "storage_classes": {"type": "list", "elements": "str", "default": []},
        "detach": {"type": "str", "choices": ["auto", "taint", "volumes"], "default": "auto"},
        "accept_unfenced_volumes": {"type": "bool", "default": False},
        "detach_timeout": {"type": "float", "default": 120.0},
        "attach_timeout": {"type": "float", "default": 120.0},
        "ready_timeout": {"type": "float", "default": 180.0},
        "release_lease": {"type": "bool", "default": True},
        # Longer than that of modules which only read and delete.
        "deadline": {"type": "float", "default": 900.0},
    }
)


# So much older (seconds) than the reading in ceph may the one in prove be.
_READ_BEFORE = 120.0


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **AUTH.merge(BOUNDS, RUN, SCOPE, POWER_SPEC).to_kwargs()
    )
    reveal(module)
    params: dict[str, Any] = module.params
    proves = params["prove"] is not None
    if proves and not params["ceph"]:
        # Whoever reads the fence just now has both in one.
        params["ceph"] = params["prove"]["ceph"]

    @cache
    def cluster() -> Cluster:
        # One connection, and one deadline, for both steps.
        return make_cluster(params)

    def options() -> FailoverOptions:
        if proves and (params["state"] != "detached" or module.check_mode):
            raise BadOption(
                "prove is for state=detached in a real run: in check mode give the fence that "
                "node_fence has returned"
            )
        return failover_options(params, module.check_mode)

    def proof() -> Fence:
        # Nothing is proven for a step that could not begin.
        reading = options().reading
        asked = {**params["prove"], "proof": "ceph", "power": []}
        wanted = fence_options(asked, run_options(params, False), False)
        before = wanted.reading
        if reading and before and (reading.read_at - before.read_at).total_seconds() > _READ_BEFORE:
            raise StorageOpsError(
                f"the reading of Ceph in prove is of {iso(before.read_at)}, more than "
                f"{_READ_BEFORE:g} s older than the one in ceph: run again",
                code="ceph_reading_unfit",
            )
        return Fence(
            cluster(), run_options(params, False), wanted, "fenced", asked["fence_timeout"]
        )

    def failover() -> Failover:
        return Failover(
            cluster(),
            run_options(params, module.check_mode),
            options(),
            module.check_mode,
            keeps_lease=not params["release_lease"],
        )

    def still_fenced() -> StillFenced:
        return StillFenced(cluster(), run_options(params, module.check_mode), options())

    if params["state"] == "held":
        report(module, still_fenced, set(), params["deadline"])
    first = Step("proven", proof) if proves else None
    run(module, failover, False, params["deadline"], first)


if __name__ == "__main__":
    main()
