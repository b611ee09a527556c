#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_fence
short_description: Decide whether and how to fence a lost node, and prove the fence
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Called by the role P(storage_ops.runbooks.node_fence#role); use the playbook
    C(storage_ops.runbooks.fail_over_volumes).
  - Keeps a lost node, which may still be alive, from writing to its volumes before they move to
    another node. For Ceph RBD volumes it decides, from what Ceph reports, which clients to fence
    and by which method, and proves the fence. A node that was switched off by its BMC is fenced for
    the volumes of every driver. The module detaches no volume, and does not talk to the BMC.
  - Refuses, and changes nothing, if the node is Ready, reports Ready=False, or became Unknown only
    recently; if Ceph was not observed, or not for long enough; if a client at another node's
    address holds an image; if an address belongs to another node too, or is protected; and in any
    other case in which it is not certain which host the fence would hit. A refusal fails the task.
notes:
  - With O(state=intended) it decides, writes the ledger and cordons the node. Nothing is fenced
    yet. With O(state=fenced) it patches the NetworkFences, or checks the entries of
    M(storage_ops.runbooks.ceph_blocklist) with the result of
    M(storage_ops.runbooks.rbd_watcher_info). It then marks the fence as proven in the ledger.
  - The node's volumes are the attached ones and the ones that Kubernetes has detached by force, six
    minutes after the pods were gone. The latter are found through the pods of the node and through
    its last C(status.volumesInUse). If such a volume is attached to another node now, clients at
    the addresses of that node are not fenced, and do not cause a refusal.
  - Volumes that were attached after the node fell silent and that it cannot have opened, volumes
    without a PersistentVolume, and volumes about whose client there is a doubt that concerns no
    other volume are left out of the fence. Each is a finding with the verdict V(report).
  - With O(state=fenced), an attached volume of CephFS joins the fence if the whole node is fenced
    and RV(storage_ops.runbooks.rbd_watcher_info#module:ceph.filesystems) shows no session of the
    node. Otherwise it is such a finding, whose C(code) says why.
  - Where M(storage_ops.runbooks.ceph_client_record) has recorded the node in its present boot, that
    address is fenced too, also if Ceph shows no client of the node any more. Refused if another
    source contradicts the record, or if another node has the address by now.
  - The ledger is a ConfigMap. Its copy is an annotation of the node
    (C(runbooks.storage-ops/fence)), if the node has room for it. Only the ConfigMap counts, since
    the node's kubelet may write the annotation. The ledger has at most 60,000 characters of volume
    names (1,300 volumes of ceph-csi). More are left out of the fence. After a run was killed, the
    next one continues from the ledger. A Lease keeps two runs from working on one node at the same
    time.
  - The fence protects the storage, not the application. Containers on the node may keep running and
    serve cached data.
options:
  state:
    description:
      - V(intended) decides, writes the ledger and cordons the node.
      - V(fenced) patches the NetworkFences, if these are the method, checks the proof of the fence,
        and records it in the ledger.
      - V(held) renews the Lease, reads the node again, and changes nothing else. It refuses if
        another run has the Lease, the node is back, or the fence no longer belongs to this run. Use
        it directly before M(storage_ops.runbooks.ceph_blocklist), which does not check the Lease,
        and before the node is switched off, with what was read of its BMC within the last 2 minutes
        (O(power)).
        O(lease_seconds) must be longer than O(storage_ops.runbooks.ceph_blocklist#module:deadline),
        so that no other run can begin in between. It renews the Lease last. In check mode it takes
        no Lease.
    type: str
    choices: [intended, held, fenced]
    required: true
  method:
    description:
      - V(network_fence) patches the NetworkFences that cover the addresses, and CSI-Addons fences.
        The NetworkFences must exist already; see M(storage_ops.runbooks.network_fence_prepare).
      - V(ceph) writes into Ceph's blocklist, by M(storage_ops.runbooks.ceph_blocklist). Refused if
        a NetworkFence covers an address, since its controller undoes the fence whenever it starts.
      - V(power) is a node that the role switches off by its BMC, and whose BMC has then said so
        twice (O(power)). It fences the volumes of every driver. It is refused if the BMC belongs to
        another machine, by its UUID in Redfish.
      - V(external) is a node that others have switched off. The role only reads that, by its BMC or
        by a command, as for V(power). For O(state=intended) it must be off already.
      - V(none) fences nothing. It is for a node that is proven to be off, and requires
        O(node_confirmed_off).
      - V(auto) is V(network_fence) if a NetworkFence covers an address, else V(ceph). It is never
        V(none), and V(power) or V(external) only if such a fence has begun.
      - A fence that was proven keeps its method or changes to a stronger one. V(power) and
        V(external) may take each other over, for example if the BMC has lost its power as well.
        One that was begun and never proven may change to any other method. V(ceph) changes to
        V(network_fence) automatically if a NetworkFence was created meanwhile. Entries that are in
        the blocklist by then stay in the ledger, and the release removes them.
      - A NetworkFence with another driver and another C(clusterID) than the volumes belongs to
        another storage system, and is ignored.
    type: str
    choices: [auto, network_fence, ceph, power, external, none]
    default: auto
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph), at most 10 minutes ago,
        for all volumes of the node.
      - For O(state=intended) it decides which clients to fence. For O(state=fenced) it proves the
        fence, so it must be read after the fence, and after the ledger was written by the clock of
        the Ceph host. Use at least two observations, since a client that was seen once may already
        be gone.
      - Without it only the methods V(network_fence) and V(none) are possible, and the ledger is
        marked C(unverified).
    type: dict
  proof:
    description:
      - For O(state=fenced), the required proof of the fence with the methods V(network_fence) and
        V(none).
      - With V(message) the message of the controller is enough, or for V(none)
        O(node_confirmed_off). O(ceph), if it is given, is checked as well.
      - With V(ceph) the ledger stays C(intended) until a call has O(ceph). The first call, without
        O(ceph), patches the NetworkFences. The second call, with a reading made after that, proves
        the fence.
      - Method V(ceph) always needs O(ceph).
    type: str
    choices: [message, ceph]
    default: message
  grace_seconds:
    description:
      - Seconds that the node must have been Unknown, by the API server's clock. A shorter time
        could fence a node that only restarts or has lost its network briefly.
    type: float
    default: 120
  fence_addresses:
    description:
      - Addresses of the node in Ceph's network, if Ceph does not show them, for example after a
        power failure, or shows others.
      - They are fenced in any case, so make sure that they are the node's. They outweigh a
        NetworkFence that was prepared for another node with what that node says of itself.
      - Required if a client holds an image from an unknown address. Known addresses are in the
        node's status, in the metadata that ceph-csi wrote, or in a NetworkFence that was prepared
        with addresses from the user. What the driver on the node has reported counts like the
        status. An unknown address counts as the node's only if
        its client has an image of the node open and owns the lock on it, if all clients of the
        node's images are at this address and are the kernel's (or the volume is mapped by rbd-nbd),
        and if the images are attached to no other node. The number of images does not count.
      - Required as well if nothing shows who has a volume open, and Ceph shows the node at an
        address that no other source has. That an address is on Ceph's blocklist names none.
    type: list
    elements: str
    default: []
  protected_addresses:
    description: Addresses, or networks as V(10.0.0.0/24), that are never fenced, for example those
      of gateways and backup hosts.
    type: list
    elements: str
    default: []
  other_addresses:
    description:
      - Addresses of hosts that open images but are not this node, for example backup hosts. They
        are never fenced, and never count as the node's.
      - Leave out rbd-mirror daemons, which M(storage_ops.runbooks.rbd_watcher_info) recognizes
        (C(mirror)).
    type: list
    elements: str
    default: []
  node_confirmed_off:
    description:
      - You have made sure that the node has no power. A client that still holds one of its images
        contradicts this, and the fence is refused.
    type: bool
    default: false
  expiry_seconds:
    description:
      - Seconds after which an entry of Ceph's blocklist expires. Less than 604800 (7 days) is
        refused, since a node that comes back after its entry has expired writes again. Ceph's own
        default is one hour.
      - Use the same value for M(storage_ops.runbooks.ceph_blocklist). An existing entry with less
        than half of this time left is renewed, and belongs to the ledger from then on.
    type: float
    default: 31536000
  cluster_id:
    description:
      - Fence the node only from the Ceph cluster with this C(clusterID), the name that ceph-csi
        gives it.
      - Required if a node has volumes of several Ceph clusters, since O(ceph) is read from one of
        them, and a node has one fence. Fence it from the other Ceph clusters by hand. Several names
        of one Ceph cluster do not matter.
      - Required if the C(clusterID) is a UUID, and not the fsid of the Ceph cluster that was read,
        because ceph-csi maps it to that cluster.
      - With V(method=network_fence) every C(clusterID) needs a NetworkFence that covers the node.
    type: str
    default: ''
  volumes:
    description:
      - The names of C(volumes) of M(storage_ops.runbooks.node_fence_info). What the node has
        besides is no part of the fence, and has a finding. It came later, or had no room there. So
        the fence never has a volume that cannot be proven, and the ledger always has room in a
        result. A volume that the ledger has is part of the fence nevertheless.
      - Without it, every volume of the node may be part of the fence.
      - In any case, a volume that O(ceph) does not have is no part of the fence.
    type: list
    elements: str
  accept_majority:
    description:
      - Accept that more than half of the nodes are not Ready. The likely cause is then an outage of
        the control plane or its network, while the nodes still work. One of two is not more than
        half.
    type: bool
    default: false
  accept_short_observation:
    description:
      - Accept fewer than 3 observations of Ceph, or less than 60 seconds. At least 2 observations
        are always required.
      - 2 observations in 5 seconds are accepted in any case if, of each volume, the only clients
        are where ceph-csi noted this node when it staged the image, the Node object or the record
        of the node's clients has that address, and the volume is attached to no other node.
      - A healthy node opens an image briefly at every try to stage a volume, so only a client that
        is in every observation is evidence.
    type: bool
    default: false
  power_seconds:
    description:
      - Seconds from the first reading of O(power) to the last, all of which must say V(off), for
        O(state=fenced). At least 1.
      - A BMC that lies, and a machine that is switched on by a rule of its own, are on again within
        seconds.
      - With V(method=external) it is 30 at least, since others may be about to reboot the node.
    type: float
    default: 5
  fence_timeout:
    description: Seconds within which the controller of a NetworkFence must report the fence.
    type: float
    default: 60
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._fence.power
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
attributes:
  diff_mode:
    description: Returns the findings before and after the repair when in diff mode.
    support: full
seealso:
  - module: storage_ops.runbooks.node_fence_info
  - module: storage_ops.runbooks.rbd_watcher_info
  - module: storage_ops.runbooks.ceph_blocklist
  - module: storage_ops.runbooks.volume_failover
  - module: storage_ops.runbooks.node_release
"""

EXAMPLES = r"""
---
- name: Fence a lost node with Ceph's blocklist, as the role does it
  hosts: localhost
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
    run_id: failover-worker01-1
  tasks:
    - name: Find out what is attached to worker01
      storage_ops.runbooks.node_fence_info:
        nodes:
          - worker01
      register: audit

    - name: Read which clients hold its images
      storage_ops.runbooks.rbd_watcher_info:
        volumes: "{{ audit.lost[0].volumes | map(attribute='pv') | select }}"
        observations: 3
        observation_seconds: 61
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: reading

    - name: Decide which clients to fence, write the ledger, and cordon the node
      storage_ops.runbooks.node_fence:
        node: worker01
        run_id: "{{ run_id }}"
        state: intended
        method: ceph
        ceph: "{{ reading.ceph }}"
      register: intended

    - name: Make sure that this run may go on
      storage_ops.runbooks.node_fence:
        node: worker01
        run_id: "{{ run_id }}"
        state: held

    - name: Fence it in Ceph's blocklist
      storage_ops.runbooks.ceph_blocklist:
        entries: "{{ intended.entries }}"
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent

    - name: Read the watchers again
      storage_ops.runbooks.rbd_watcher_info:
        volumes: "{{ audit.lost[0].volumes | map(attribute='pv') | select }}"
        gone: "{{ intended.fence.entries | map(attribute='entry') }}"
        observations: 2
        observation_seconds: 5
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: proof

    - name: Prove the fence, and record it
      storage_ops.runbooks.node_fence:
        node: worker01
        run_id: "{{ run_id }}"
        state: fenced
        ceph: "{{ proof.ceph }}"
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
entries:
  description:
    - The entries that M(storage_ops.runbooks.ceph_blocklist) has to add or renew, with method
      V(ceph). Single clients are left out if their whole address is fenced too, since Ceph cannot
      renew the entry of a single client.
  returned: success, or when the fence is refused, with O(state=intended) and O(state=fenced)
  type: list
  elements: str
  sample:
    - 10.0.0.5
fence:
  description:
    - The ledger as it is now, or in check mode as it would be. Empty if there is none.
    - M(storage_ops.runbooks.volume_failover) and M(storage_ops.runbooks.node_release) read it from
      the cluster.
  returned: success, or when the fence is refused
  type: dict
  contains:
    version:
      description: Version of this format.
      type: int
      returned: success
      sample: 1
    revision:
      description: Number of times that it was written.
      type: int
      returned: success
      sample: 2
    node:
      description: The node.
      type: str
      returned: success
      sample: worker01
    node_uid:
      description: Uid of its Node object.
      type: str
      returned: success
    boot_id:
      description:
        - The C(bootID) that its kubelet last reported. Another C(bootID) shows that the node was
          rebooted since. If the node is lost again after a reboot, it is judged again, and earlier
          fences stay in C(entries) and C(network_fences).
      type: str
      returned: success
    machine:
      description: The C(systemUUID) and C(machineID) of the machine that was fenced first,
        separated by a slash. V(unknown) if an attachment is older than the Node object, and an
        address is fenced that the Node does not list. Another machine may have had the name before.
      type: str
      returned: success
    namespace:
      description: Namespace of the ConfigMap.
      type: str
      returned: success
      sample: storage-ops
    method:
      description: V(ceph), V(network_fence), V(power), V(external) or V(none).
      type: str
      returned: success
      sample: ceph
    phase:
      description: V(intended), V(fenced), V(detached) or V(releasing).
      type: str
      returned: success
      sample: intended
    cluster_id:
      description: The C(clusterID) of the volumes; several are separated by commas.
      type: str
      returned: success
    fsid:
      description: The Ceph cluster; empty if Ceph was not asked.
      type: str
      returned: success
    addresses:
      description: The addresses that are fenced.
      type: list
      elements: str
      returned: success
      sample: ["10.0.0.5"]
    entries:
      description:
        - The entries of Ceph's blocklist that the method V(ceph) adds, or has added before the
          method changed. C(ours) is V(false) for an entry that existed before and need not be
          renewed; it is never removed.
      type: list
      elements: dict
      returned: success
      sample:
        - {entry: 10.0.0.5, kind: address, ours: true, until: "2027-01-31T10:00:00Z"}
    network_fences:
      description: The NetworkFences, for method V(network_fence). C(ours) is V(false) for a
        NetworkFence that was Fenced before.
      type: list
      elements: dict
      returned: success
      sample:
        - name: storage-ops-worker01
          uid: 5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11
          cidrs: [10.0.0.5/32]
          ours: true
    source:
      description:
        - The source of each address. V(watcher), V(lock), V(metadata) (written by ceph-csi),
          V(record) (of M(storage_ops.runbooks.ceph_client_record), in this boot of the node),
          V(network_fence), V(fence_addresses) or V(ledger).
      type: dict
      returned: success
      sample: {"10.0.0.5": "watcher"}
    volumes:
      description: The PersistentVolumes that the fence is for.
      type: list
      elements: str
      returned: success
    detached:
      description: Those of C(volumes) that are proven to have left the node, and to be attached
        elsewhere or free. In the phase C(detached) all of them have.
      type: list
      elements: str
      returned: success
    proven:
      description: Whether the fence was proven once. It stays so when more is to be fenced, and the
        phase is V(intended) again.
      type: bool
      returned: success
    declared_off:
      description: Whether volumes moved because the user had declared the node off (V(none)),
        before another method took the fence over.
      type: bool
      returned: success
    power:
      description: For the methods V(power) and V(external), the BMC by which the node is switched
        off, or what tells that it is.
      type: dict
      returned: for the methods V(power) and V(external)
      contains:
        kind:
          description: V(redfish), V(ipmi), the name of a fence agent or V(external).
          type: str
          returned: always
          sample: redfish
        address:
          description: The BMC, with its port if that is not the usual one. For V(external) the host
            that runs the command.
          type: str
          returned: always
          sample: 192.0.2.11
        system:
          description: The C(Id) of the machine in Redfish, the plug of a fence agent, or the
            C(provider_id) that the command has told.
          type: str
          returned: always
          sample: "1"
        uuid:
          description: The UUID of the machine, if the BMC gives one.
          type: str
          returned: always
        off_at:
          description: When the node was first proven to be off; empty before.
          type: str
          returned: always
          sample: "2026-01-01T12:00:00Z"
    unverified:
      description: Whether the fence was not verified with Ceph.
      type: bool
      returned: success
    cordoned:
      description: Whether the node was cordoned for the fence, and not before.
      type: bool
      returned: success
    tainted:
      description: Whether the node has the out-of-service taint for the fence.
      type: bool
      returned: success
    by:
      description: The host that wrote it.
      type: str
      returned: success
    run:
      description: The run that wrote it.
      type: str
      returned: success
    at:
      description: When it was written, by the API server's clock.
      type: str
      returned: success
alone:
  description:
    - Whether all volumes of the fence are attached only to this node, so that no other node can use
      them yet. Then an entry that Ceph cannot prolong may be removed and added again
      (O(storage_ops.runbooks.ceph_blocklist#module:accept_gap)).
    - With O(state=held) it is read again, right before the entries are changed.
  returned: unless the module fails before it has read it
  type: bool
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
    - One for the node, if it is fenced or refused; none if its fence is already in place.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty if the finding belongs to none.
      type: str
      returned: always
      sample: STOR-16
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "Node", "name": "worker01", "node": "worker01"}
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - For example the watchers and the addresses. C(proof) is what was read after the repair.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - This module returns V(repair) or V(refuse).
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
        - V(write_fence_ledger) and V(cordon_node) for V(state=intended), V(fence_network) and
          V(record_fence) for V(state=fenced); V(uncordon_node) and V(remove_fence_ledger) undo an
          incompletely written intent.
      type: str
      returned: always
      sample: write_fence_ledger
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

from ..module_utils._core.engine import run
from ..module_utils._fences.ledger import RUN, run_options
from ..module_utils._fencing.runbook import SCOPE, Fence, fence_options
from ..module_utils._kube.options import AUTH, BOUNDS, make_cluster, reveal


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **AUTH.merge(BOUNDS, RUN, SCOPE).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    check = module.check_mode

    def fence() -> Fence:
        options = run_options(params, check)
        wanted = fence_options(params, options, check)
        cluster = make_cluster(params)
        return Fence(cluster, options, wanted, params["state"], params["fence_timeout"])

    run(module, fence, True, params["deadline"])


if __name__ == "__main__":
    main()
