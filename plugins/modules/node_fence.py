#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_fence
short_description: Decide whether and how a lost node is fenced, and see it proven
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Keeps a node that is lost, but may be alive, from writing to its Ceph RBD volumes, before they
    are moved to another node.
  - With O(state=intended) it decides from what Ceph saw whom to fence and by what means, writes
    that down in a ledger, and cordons the node. Nothing is fenced yet. With O(state=fenced) it has
    NetworkFences patched, or takes the word of M(storage_ops.runbooks.rbd_watcher_info) for what
    M(storage_ops.runbooks.ceph_blocklist) has done, and notes the fence as proven.
  - The node's volumes are those that are attached to it, and those that Kubernetes has detached
    from it by force, which it does six minutes after the pods are gone. They are known by pods of
    the node, and by what its kubelet last called in use (C(status.volumesInUse)). Where such a
    volume is attached to another node now, what holds it at an address of that node is not fenced,
    and not in the way.
  - The role P(storage_ops.runbooks.node_fence#role) calls all of them in order. No volume is
    detached here, which is what M(storage_ops.runbooks.volume_failover) does.
  - The ledger is kept in a ConfigMap, and then noted as an annotation of the node
    (C(runbooks.storage-ops/fence)). Only the ConfigMap counts, since whoever has the node's kubelet
    may write its annotations. A run that was killed is finished by the next one, which goes on from
    the ledger. A Lease keeps two runs from working at one node at once.
  - Refuses a node that is Ready, or reports Ready=False, or became Unknown only now; what Ceph
    shows too briefly or not at all; images that a client holds whose address is that of another
    node; addresses that another node has too, or that are protected; and whatever else leaves open
    who would be hit. A refusal fails the task, since the node was named, and nothing was changed.
  - The fence protects the storage, not the application. Containers on the node may go on running,
    and serve what they have cached.
options:
  state:
    description:
      - V(intended) decides, writes the ledger and cordons the node.
      - V(fenced) brings the fence of the ledger about where that is the cluster's part, judges what
        proves it, and notes it.
      - V(held) renews the Lease and reads the node again, and changes nothing else. It refuses if
        another run has the Lease, the node is back, or its fence is no more this run's to bring
        about. Use it directly before M(storage_ops.runbooks.ceph_blocklist), which knows nothing of
        the Lease. O(lease_seconds) must be longer than that module's
        O(storage_ops.runbooks.ceph_blocklist#module:deadline), so that no other run can
        begin meanwhile. In check mode it takes no Lease.
    type: str
    choices: [intended, held, fenced]
    required: true
  method:
    description:
      - V(network_fence) has CSI-Addons fence, by patching the NetworkFences that cover the
        addresses. They must have been prepared.
      - V(ceph) writes into Ceph's blocklist, by M(storage_ops.runbooks.ceph_blocklist). Refused
        where a NetworkFence covers an address, since its controller undoes that whenever it starts.
      - V(none) fences nothing, for a node that is proven to be off; needs O(node_confirmed_off).
      - V(auto) is V(network_fence) where a NetworkFence covers an address, else V(ceph), and never
        V(none).
      - A fence that was begun keeps its method, or becomes a stronger one; from V(ceph) it goes
        over to V(network_fence) by itself where a NetworkFence was made meanwhile. What is in the
        blocklist by then stays in the ledger, and goes with the release.
      - A NetworkFence of another driver and another C(clusterID) than the volumes have is that of
        another storage, and counts for nothing.
    type: str
    choices: [auto, network_fence, ceph, none]
    default: auto
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph), at most 10 minutes ago,
        for all volumes of the node.
      - For O(state=intended) whom to fence is read from it. For O(state=fenced) it proves the
        fence, so it must be read after the ledger was written, by the clock of the Ceph host, and
        after the fence. Have it look twice or more, since of a client that was seen once nobody
        knows whether it stays.
      - Without it only V(network_fence) and V(none) are possible, and the ledger says
        V(unverified).
    type: dict
  proof:
    description:
      - What proves the fence of a NetworkFence, or of method V(none), for O(state=fenced).
      - With V(message) what the controller says is enough, or the word of the user. O(ceph), if it
        is given, is judged as well.
      - With V(ceph) the ledger stays C(intended) until a call that is given O(ceph). So the first
        call, without O(ceph), patches, and the second one, with what was read after it, proves.
      - Method V(ceph) always needs O(ceph).
    type: str
    choices: [message, ceph]
    default: message
  grace_seconds:
    description:
      - Seconds that the node must have been Unknown, by the API server's clock. Shorter, and a node
        that only restarts, or that a network has cut off for a moment, would be fenced.
    type: float
    default: 120
  fence_addresses:
    description:
      - Addresses of the node on Ceph's network, where Ceph does not tell them, as after a power
        failure, or tells others.
      - They are fenced in any case, so be sure.
      - Needed where a client holds an image at an address that is unknown. Known are the
        addresses of the node's status, those that ceph-csi noted for it, and those of a
        NetworkFence that was prepared with what the driver reported or the user gave. An unknown
        one is taken for the node's only if it has both an image of the node open and the lock on
        it, all that is seen of the node's images is at this address, and they are attached nowhere
        else. How many images it holds does not count.
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
      - Addresses of hosts that open images and are no nodes, as for backups. They are never fenced,
        and never taken for the node's.
      - An rbd-mirror daemon is known without, by what M(storage_ops.runbooks.rbd_watcher_info)
        returned as C(mirror).
    type: list
    elements: str
    default: []
  node_confirmed_off:
    description:
      - Accept the user's word that the node has no power. A client that holds one of its images
        contradicts it, and is refused.
    type: bool
    default: false
  expiry_seconds:
    description:
      - Seconds after which Ceph forgets an entry of its blocklist. Under 604800 (7 days) is
        refused, since a node that comes back later writes again; Ceph's own default is one hour.
      - Give M(storage_ops.runbooks.ceph_blocklist) the same. An entry that is there already with
        less than half of this left is renewed, and counts as ours from then on.
    type: float
    default: 31536000
  cluster_id:
    description:
      - Fence the node only from the Ceph cluster with this C(clusterID), the name that ceph-csi
        gives it.
      - Needed where a node has volumes of several Ceph clusters, since O(ceph) is read from one of
        them, and a node has one fence. Fence it from the other Ceph clusters by hand. Several names
        of one Ceph cluster do not matter.
      - With V(method=network_fence) every C(clusterID) needs a NetworkFence that covers the node.
    type: str
    default: ''
  accept_majority:
    description:
      - Fence although more than half of the nodes are not Ready. Then it is rather the control
        plane or its network that is cut off, and the nodes are at work. One of two is not more than
        half.
    type: bool
    default: false
  accept_short_observation:
    description:
      - Accept that Ceph was looked at fewer than 3 times, or for less than 60 seconds. At least 2
        looks are always needed.
      - A healthy node opens an image for a moment at every try to stage a volume, so only a client
        that is there at every look is evidence.
    type: bool
    default: false
  fence_timeout:
    description: Seconds within which the controller of a NetworkFence must say that it has fenced.
    type: float
    default: 60
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence
  - storage_ops.runbooks._fence.ledger
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
- name: Fence a lost node by hand, step by step
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

    - name: Find out who holds its images
      storage_ops.runbooks.rbd_watcher_info:
        volumes: "{{ audit.lost[0].volumes | map(attribute='pv') | select }}"
        observations: 3
        observation_seconds: 61
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: reading

    - name: Decide whom to fence, write it down, and cordon the node
      storage_ops.runbooks.node_fence:
        node: worker01
        run_id: "{{ run_id }}"
        state: intended
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

    - name: Look again
      storage_ops.runbooks.rbd_watcher_info:
        volumes: "{{ audit.lost[0].volumes | map(attribute='pv') | select }}"
        gone: "{{ intended.fence.addresses }}"
        observations: 2
        observation_seconds: 5
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: proof

    - name: See the fence proven
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
    - What M(storage_ops.runbooks.ceph_blocklist) has to add or renew, with method V(ceph). Not
      single clients whose whole address is fenced too, since Ceph's entry for one cannot be
      renewed.
  returned: success, or when the fence is refused, with O(state=intended) and O(state=fenced)
  type: list
  elements: str
  sample:
    - 10.0.0.5
fence:
  description:
    - The ledger, as it is now; in check mode as it would be. Empty when there is none.
    - M(storage_ops.runbooks.volume_failover) and M(storage_ops.runbooks.node_release) read it from
      the cluster.
  returned: success, or when the fence is refused
  type: dict
  contains:
    version:
      description: Version of this form.
      type: int
      returned: success
      sample: 1
    revision:
      description: How often it was written.
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
        - The C(bootID) that its kubelet last reported, by which it is known whether the node was
          rebooted since. A node that was, and is lost again, is judged again, and what was fenced
          before stays in C(entries) and C(network_fences).
      type: str
      returned: success
    machine:
      description: The C(systemUUID) and C(machineID), with a slash between them, of the machine
        that was fenced first.
      type: str
      returned: success
    namespace:
      description: Namespace of the ConfigMap.
      type: str
      returned: success
      sample: storage-ops
    method:
      description: V(ceph), V(network_fence) or V(none).
      type: str
      returned: success
      sample: ceph
    phase:
      description: V(intended), V(fenced), V(detached) or V(releasing).
      type: str
      returned: success
      sample: intended
    cluster_id:
      description: The C(clusterID) of the volumes; of several, all, with commas between.
      type: str
      returned: success
    fsid:
      description: The Ceph cluster, empty where Ceph was not asked.
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
        - The entries of Ceph's blocklist that method V(ceph) makes, or has made before the method
          was another. C(ours) is V(false) for one that was there before and lasts so long that it
          is not renewed; it is never removed.
      type: list
      elements: dict
      returned: success
      sample:
        - {entry: 10.0.0.5, kind: address, ours: true, until: "2027-01-31T10:00:00Z"}
    network_fences:
      description: The NetworkFences, for method V(network_fence). C(ours) is V(false) for one that
        was Fenced before.
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
        - How each address is known. V(watcher), V(lock), V(metadata) (ceph-csi noted it),
          V(network_fence), V(fence_addresses) or V(ledger).
      type: dict
      returned: success
      sample: {"10.0.0.5": "watcher"}
    volumes:
      description: The PersistentVolumes that the fence is for.
      type: list
      elements: str
      returned: success
    unverified:
      description: Ceph was not asked whether the fence is there.
      type: bool
      returned: success
    cordoned:
      description: The node was cordoned for the fence, and was not before.
      type: bool
      returned: success
    tainted:
      description: The node has the out-of-service taint for the fence.
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
      description: When, by the API server's clock.
      type: str
      returned: success
alone:
  description:
    - No other node can have a volume of the fence yet, since all of them are attached to this one
      and nowhere else. Then an entry that Ceph cannot prolong may be removed and added,
      O(storage_ops.runbooks.ceph_blocklist#module:accept_gap).
    - With O(state=held) it is read again, right before the entries are changed.
  returned: unless the module fails before it has read it
  type: bool
refused:
  description: Names of the objects whose refusal failed the task.
  returned: when the task failed only because of refusals
  type: list
  elements: str
findings:
  description:
    - What is wrong, most severe first.
    - One for the node, if it is fenced or refused; none if its fence is as it should be.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty for what belongs to no control.
      type: str
      returned: always
      sample: STOR-16
    severity:
      description: V(critical), V(major), V(minor) or V(info).
      type: str
      returned: always
      sample: critical
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) where it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "Node", "name": "worker01", "node": "worker01"}
    summary:
      description: What is wrong, in one sentence.
      type: str
      returned: always
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count.
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
    code:
      description: Why it is refused or has failed, as a code as in RV(code); empty otherwise.
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
      sample: storage_ops.runbooks.fail_over_volumes
    repair:
      description: The actions that repair it, in order, each as in RV(actions); empty where this
        module repairs nothing.
      type: list
      elements: dict
      returned: always
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads.
  returned: always
  type: list
  elements: dict
  contains:
    action:
      description:
        - Name of the action.
        - V(write_fence_ledger) and V(cordon_node) for V(state=intended), V(fence_network) and
          V(record_fence) for V(state=fenced); V(uncordon_node) and V(remove_fence_ledger) take back
          an intent that could not be written whole.
      type: str
      returned: always
      sample: write_fence_ledger
    target:
      description: What it changes or waits for.
      type: str
      returned: always
      sample: worker01
    command:
      description: What is run, argument by argument. A request to an API server is shown as its
        method and path, and what it sets. C(write FILE TEXT) stands for writing to a file, C(wait
        SECONDS ...) for waiting.
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
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import python

python.require()

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import run
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    RUN,
    run_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.runbook import (
    SCOPE,
    Fence,
    fence_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    BOUNDS,
    make_cluster,
    reveal,
)


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

    run(module, fence, fail_on_refusal=True)


if __name__ == "__main__":
    main()
