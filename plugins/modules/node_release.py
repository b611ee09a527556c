#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_release
short_description: Release a fenced node once its old clients are proven gone
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Called by the role P(storage_ops.runbooks.node_release#role); use the playbook
    C(storage_ops.runbooks.release_fenced_node).
  - Removes what M(storage_ops.runbooks.node_fence) and M(storage_ops.runbooks.volume_failover) have
    set on a node and recorded in its ledger, and nothing else. Blocklist entries that existed
    before, and those that Ceph itself adds, stay.
  - Refuses unless the node is Ready and was rebooted since (another C(bootID) with the same
    C(systemUUID) and C(machineID)), or M(storage_ops.runbooks.ceph_client_info) shows on the node
    that it has no client of the fenced storage any more. A client that survived the fence would
    continue to write once the fence is gone.
notes:
  - A node that was replaced has the same name on another machine, while the old machine may still
    run. It is refused without O(old_machine_confirmed_off).
  - Call it step by step. O(state=releasing) checks the node, takes the Lease and records in the
    ledger that the release has begun. O(state=unfenced) patches the NetworkFences to Unfenced.
    O(state=released) requires the proof that the fence is gone, and then removes the taint, the
    cordon and the ledger, in this order. If there are blocklist entries, run
    M(storage_ops.runbooks.ceph_blocklist) before O(state=released), with the entries of the ledger
    that are C(ours), and right before it this module with O(state=held).
  - If the ledger of another node has the same fence, the release is refused, and names that node.
  - A node that was fenced as one that is off (methods V(power), V(external) and V(none)) must have
    another C(bootID). If it is Ready in the same boot, it was never off, and the release is
    refused, whatever O(clients) has.
  - If a fail-over stopped before it fenced anything, neither a reboot nor O(clients) is needed.
    Only O(ceph) is required then, to prove that, if the method was V(ceph).
  - If a run was killed, run all steps again. The ledger is removed last.
  - Without a ledger there is nothing to do. A node with the out-of-service taint but without a
    ledger is reported.
options:
  state:
    description:
      - The step; see the notes.
      - V(held) only renews the Lease. It fails unless the run still has the Lease, the phase of the
        ledger is V(releasing), the node is Ready, and no other node needs the fence. In check mode
        it does not use the Lease.
    type: str
    choices: [releasing, held, unfenced, released]
    required: true
  clients:
    description:
      - What M(storage_ops.runbooks.ceph_client_info) returned as C(clients) on the node itself,
        after it has come back.
      - Required if the node was not rebooted since it was fenced, for example if only its kubelet
        had failed.
    type: dict
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph). Its C(blocklist) proves
        that the fence is gone.
      - It must be at most 10 minutes old, and from the Ceph cluster of the fence.
      - For O(state=released) it is required if blocklist entries were the fence, and must be read
        after they were removed. For a NetworkFence it is optional; without it, the message of the
        controller is the only proof. Entries that still block the node and are not ours are
        reported, not removed.
      - For O(state=releasing) it is optional. If it shows a watcher from a fenced address, the
        release is refused, even if the node reports a reboot. If a killed run of
        M(storage_ops.runbooks.ceph_blocklist) left a C(stand_in), it is added to the entries of the
        ledger, so that it is removed with them.
    type: dict
  old_machine_confirmed_off:
    description:
      - The machine that was fenced is off for good, or it is this machine and was rebooted since.
        Only you can know this.
      - Used only if C(systemUUID) and C(machineID) show that the node is another machine than the
        fenced one, or if one of these is unknown. It is also unknown if a volume was attached
        before the Node object was made, and an address was fenced that the Node does not list.
    type: bool
    default: false
  power_on:
    description:
      - The node is switched on next. With O(state=releasing) the release of a fence by V(power)
        then begins while the node is V(Unknown), so that no run detaches anything from it once it
        is on.
      - Switch it on after that, and wait until it is Ready. Then call O(state=releasing) again.
      - Ignored for other methods and states.
    type: bool
    default: false
  release_timeout:
    description: >-
      Seconds within which the controller of a NetworkFence must report that its fence is gone, V(1)
      to V(86400).
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
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.node_fence_info
  - module: storage_ops.runbooks.ceph_client_info
"""

EXAMPLES = r"""
---
- name: Release a rebooted node, as the role does it
  hosts: localhost
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
    run_id: release-worker01-1
  tasks:
    - name: See whether worker01 may be released, and note that it is
      storage_ops.runbooks.node_release:
        node: worker01
        run_id: "{{ run_id }}"
        state: releasing
      register: begun

    - name: Take back the NetworkFences
      storage_ops.runbooks.node_release:
        node: worker01
        run_id: "{{ run_id }}"
        state: unfenced

    - name: Make sure that this is still our turn
      storage_ops.runbooks.node_release:
        node: worker01
        run_id: "{{ run_id }}"
        state: held

    - name: Take back exactly our blocklist entries
      storage_ops.runbooks.ceph_blocklist:
        entries: "{{ begun.fence.entries | selectattr('ours') | map(attribute='entry') }}"
        ends: >-
          {{ begun.fence.entries | selectattr('before')
             | items2dict(key_name='entry', value_name='before') }}
        state: absent
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent

    - name: Read the blocklist
      storage_ops.runbooks.rbd_watcher_info:
      delegate_to: ceph01
      vars:
        ansible_python_interpreter: auto_silent
      register: reading

    - name: Remove taint, cordon and ledger
      storage_ops.runbooks.node_release:
        node: worker01
        run_id: "{{ run_id }}"
        state: released
        ceph: "{{ reading.ceph }}"
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
  description:
    - The ledger of the node's fence as it is now, or in check mode as it would be. Empty if there
      is none.
    - Its C(entries) show which blocklist entries are C(ours).
  returned: unless the module fails before it has read it
  type: dict
  sample:
    node: worker01
    phase: releasing
    method: ceph
    entries: [{entry: 10.0.0.5, kind: address, ours: true}]
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
    - One for the node, with the fence that is released or refused.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty if the finding belongs to none.
      type: str
      returned: always
      sample: STOR-17
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
        - C(proof) is what was read after the repair.
      type: dict
      returned: always
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
        - V(mark_release) for O(state=releasing), V(unfence_network) for O(state=unfenced), and
          V(untaint_node), V(uncordon_node) and V(remove_fence_ledger) for O(state=released).
      type: str
      returned: always
      sample: uncordon_node
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
from ..module_utils._fences.ledger import RUN
from ..module_utils._fences.power import SPEC as POWER_SPEC
from ..module_utils._kube.options import AUTH, BOUNDS, ArgumentSpec, make_cluster, reveal
from ..module_utils._release.runbook import make_release

RELEASE = ArgumentSpec(
    {
        "state": {
            "type": "str",
            "choices": ["releasing", "held", "unfenced", "released"],
            "required": True,
        },
        "clients": {"type": "dict"},
        "ceph": {"type": "dict"},
        "old_machine_confirmed_off": {"type": "bool", "default": False},
        "power_on": {"type": "bool", "default": False},
        "release_timeout": {"type": "float", "default": 60.0},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **RUN.merge(RELEASE, AUTH, BOUNDS, POWER_SPEC).to_kwargs()
    )
    reveal(module)
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: make_release(make_cluster(params), params, module.check_mode),
        True,
        params["deadline"],
    )


if __name__ == "__main__":
    main()
