#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: node_release
short_description: Give a fenced node back, once its old clients are proven gone
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Takes back what M(storage_ops.runbooks.node_fence) and M(storage_ops.runbooks.volume_failover)
    have left on a node and noted in its ledger, and nothing else. Blocklist entries that were there
    before, and those that Ceph makes by itself, stay.
  - Without the fence, a client that has lived through it goes on writing where it stopped. So the
    node must be Ready, and it must have been rebooted since (another C(bootID) of the same
    C(systemUUID) and C(machineID)), or it must itself show that it holds no client of the fenced
    storage any more, as M(storage_ops.runbooks.ceph_client_info) reads it. Otherwise it is refused,
    and the node has to be rebooted.
  - A node that was replaced comes back under its name as another machine, while the old one may
    still run. It is refused without O(old_machine_confirmed_off).
  - It is called step by step. O(state=releasing) judges the node, takes the Lease of the node and
    notes in the ledger that the release has begun. O(state=unfenced) takes back NetworkFences, by
    patching them to Unfenced. O(state=released) wants to see that the fence is gone, and then
    removes the taint, the cordon and the ledger, in this order. For blocklist entries run
    M(storage_ops.runbooks.ceph_blocklist) before the last one, with those entries of the ledger
    that are C(ours), and right before it this module with O(state=held).
  - What also fences another node, says that node's ledger, is not taken back. The release is
    refused, and names that node.
  - A node whose fail-over was stopped before anything of ours fenced it needs neither a reboot nor
    O(clients), only O(ceph) to show it where blocklist entries were to be the fence.
  - A run that was killed is finished by running all of it again. The ledger goes last.
  - Where there is no ledger, there is nothing to do. A node that carries the out-of-service taint
    without one is reported.
  - The role P(storage_ops.runbooks.node_release#role) of the collection calls all of it in the
    right order.
options:
  state:
    description:
      - How far to go; see above.
      - V(held) changes nothing but renews the Lease, and fails unless the run still has it, the
        ledger is V(releasing), the node is Ready, and no other node needs the fence. In check mode
        it does without the Lease.
    type: str
    choices: [releasing, held, unfenced, released]
    required: true
  clients:
    description:
      - What M(storage_ops.runbooks.ceph_client_info) returned as C(clients) on the node itself,
        since it has come back.
      - Needed where the node was not rebooted since it was fenced, as when only its kubelet had
        died.
    type: dict
  ceph:
    description:
      - What M(storage_ops.runbooks.rbd_watcher_info) returned as C(ceph). Its C(blocklist) proves
        that the fence is gone.
      - It must be at most 10 minutes old, and of the Ceph cluster of the fence.
      - For O(state=released) needed where blocklist entries were the fence, and read after they
        were removed. A NetworkFence can do without; then its message is the only proof. What still
        blocks the node and is not ours is told, not removed.
      - For O(state=releasing) optional. A watcher that it still shows from a fenced address
        refuses, whatever the node says of a reboot. What M(storage_ops.runbooks.ceph_blocklist) has
        left of a renewal that was killed (its C(stand_in)) is added to the ledger's entries, so
        that it is removed with them.
    type: dict
  old_machine_confirmed_off:
    description:
      - The machine that was fenced is off for good, or is this one and was rebooted since. Only you
        can know.
      - Counts only where the node is another machine than the one that was fenced, by its
        C(systemUUID) and C(machineID), or where one of these is not known.
    type: bool
    default: false
  release_timeout:
    description: Seconds within which the controller of a NetworkFence must say that its fence is
      gone, V(1) to V(86400).
    type: float
    default: 60
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._attributes.actiongroup_cluster
  - storage_ops.runbooks._fence
  - storage_ops.runbooks._fence.ledger
  - storage_ops.runbooks._kubernetes.auth
  - storage_ops.runbooks._kubernetes.bounds
seealso:
  - module: storage_ops.runbooks.node_fence
  - module: storage_ops.runbooks.node_fence_info
  - module: storage_ops.runbooks.ceph_client_info
"""

EXAMPLES = r"""
---
- name: Release a node by hand, step by step
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
    - The ledger of the node's fence as it is now, or, in check mode, would be. Empty when there is
      none, or none any more.
    - Its C(entries) tell which blocklist entries are C(ours).
  returned: unless the module fails before it has read it
  type: dict
  sample:
    node: worker01
    phase: releasing
    method: ceph
    entries: [{entry: 10.0.0.5, kind: address, ours: true}]
refused:
  description: Names of the objects whose refusal failed the task.
  returned: when the task failed only because of refusals
  type: list
  elements: str
findings:
  description:
    - What is wrong, most severe first.
    - One for the node, with the fence that is taken back or refused.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: Number of the control; empty for what belongs to no control.
      type: str
      returned: always
      sample: STOR-17
    severity:
      description: V(critical), V(major), V(minor) or V(info).
      type: str
      returned: always
      sample: major
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
        - C(proof) is what was read after the repair.
      type: dict
      returned: always
    verdict:
      description: V(repair), V(refuse) or V(report).
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
      sample: storage_ops.runbooks.release_fenced_node
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
        - V(mark_release) for O(state=releasing), V(unfence_network) for O(state=unfenced), and
          V(untaint_node), V(uncordon_node) and V(remove_fence_ledger) for O(state=released).
      type: str
      returned: always
      sample: uncordon_node
    target:
      description: What it changes or waits for.
      type: str
      returned: always
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
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import RUN
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    BOUNDS,
    ArgumentSpec,
    make_cluster,
    reveal,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._release.runbook import (
    make_release,
)

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
        "release_timeout": {"type": "float", "default": 60.0},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **RUN.merge(RELEASE, AUTH, BOUNDS).to_kwargs())
    reveal(module)
    params: dict[str, Any] = module.params
    run(
        module,
        lambda: make_release(make_cluster(params), params, module.check_mode),
        fail_on_refusal=True,
    )


if __name__ == "__main__":
    main()
