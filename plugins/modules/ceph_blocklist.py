#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: ceph_blocklist
short_description: Add, renew and remove entries of Ceph's blocklist
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Blocks clients of a Ceph cluster by address, by single client or by range, and removes exactly
    these entries again.
  - Reads the list from the OSD map, changes it entry by entry, and reads it back. Entries that are
    not named are never changed, except for those that a killed run of this module left behind. The
    list is never cleared.
  - No entry is begun with less than 5 seconds of O(deadline) left. One that was removed to be
    renewed is added again in any case.
  - The kind of an entry counts. A blocked address does not make the entry of a single client
    present, and removing it does not remove the entry of a client. If another entry still blocks
    the same clients, the result says so.
  - Before any change, and also in check mode, it checks whether the user has the capability. It
    sends a command that the monitor rejects only after it has checked the capabilities, so the OSD
    map stays as it is.
  - Ceph accepts almost any text as an address, and misreads some. This module refuses an entry
    unless Ceph stores exactly what it means. IPv6 addresses are written in their short form,
    C(v1:), C(v2:) and C(any:) are dropped, host bits of a range are dropped (Ceph would keep them),
    and a range is always sent as such (Ceph would take V(10.0.0.0/24) for the client with nonce
    24). Refused are names, leading zeros, zones, IPv4 addresses inside of IPv6 ones, ports, nonces
    of more than 32 bits, C(0.0.0.0), C(::), multicast addresses, and ranges wider than /16 (IPv6
    /48).
  - A range is identified by its network, so an existing range with host bits is the same range.
  - An entry that would hit the host on which the module runs is refused. This cannot be detected if
    the network translates the host's address.
  - Before Ceph 16 the list is called C(blacklist). The module uses the name that the OSD map shows.
    A renewal with O(accept_gap) is tested there with transcripts only.
options:
  entries:
    description:
      - The entries. V(10.0.0.5) or V(fd00::5) is every client at an address, V(10.0.0.5:0/123) or
        V([fd00::5]:0/123) is one client by its nonce, and V(10.0.0.0/24) or V(fd00::/64) is a
        range.
      - May be empty only with O(state=absent).
    type: list
    elements: str
    required: true
  state:
    description: Whether the entries must be in the blocklist.
    type: str
    choices:
      - present
      - absent
    default: present
  expiry_seconds:
    description:
      - Seconds after which an entry expires. Always sent, since Ceph's own default is one hour.
      - 604800 (7 days) to 315360000 (10 years). A node that comes back after its entry has expired
        writes again.
    type: int
    default: 31536000
  renew_below:
    description:
      - Share of O(expiry_seconds) that an existing entry must still last. One with less time left
        is renewed, whoever added it. One with more is left as it is. At most 0.9.
      - Ceph cannot prolong an entry. It accepts the command, answers with the new expiry time, and
        keeps the old one. So the entry is removed and added again, while a stand-in blocks the same
        clients. For an address it is a range of one, for a range the same range with a host bit.
      - The stand-in expires after 7 to 8 days, at 03:33:33 UTC. If this run is killed, the next run
        with V(present) recognizes the stand-in by that time (RV(blocklist[].stand_in)), finishes
        the renewal, and removes it. V(absent) removes it only if it is named, as V(10.0.0.5/32).
      - There is no stand-in for the entry of a single client, nor for an address before Ceph 16,
        which has no ranges. Their renewal is refused without O(accept_gap).
    type: float
    default: 0.5
  protected_addresses:
    description: Addresses and ranges that must not be blocked, not even in part, for example the
      addresses of nodes that are alive.
    type: list
    elements: str
    default: []
  accept_daemons:
    description:
      - Accept that an entry hits the active C(ceph-mgr) or a C(ceph-mds). They are clients of the
        OSDs, and fail over when they are blocked. The blocklist does not affect monitors and OSDs.
      - Needed for a lost node that runs one of Ceph's daemons. Ceph forgets a dead C(ceph-mgr)
        after 30 seconds.
      - Without it such an entry is refused. So is every new entry if the user may not read where
        the daemons run.
    type: bool
    default: false
  accept_gap:
    description:
      - Accept that a client is not blocked for a moment while its entry is removed and added again,
        if no other entry can stand in for it.
      - This does no harm as long as its volumes are attached only to the lost node.
    type: bool
    default: false
  ends:
    description:
      - When each of O(entries) would have expired before a fence prolonged it, as a dictionary of
        entry and time. With V(state=absent) such an entry is not removed but gets its former expiry
        time, unless that has passed. Meanwhile another entry blocks the same clients, as in a
        renewal.
      - A missing entry is added only where a run was killed between its removal and its addition,
        which the other entry shows. A single client, and any address before Ceph 16, has no other
        entry, so its missing entry is always added.
    type: dict
    default: {}
  watch:
    description:
      - Once the entries are in the blocklist, wait until their clients have no image open any more,
        and read who has, into RV(ceph), as M(storage_ops.runbooks.rbd_watcher_info) does with these
        options.
      - Nothing is watched in check mode, after a refusal, or if an entry is not in the blocklist.
      - The watch has a time of its own, O(deadline) and what it is told to wait. So the time for
        the entries is O(deadline) alone. If the watch cannot be finished, as after SIGTERM, the
        task fails, and RV(entries) and RV(actions) still tell what is in the blocklist.
      - A client that still has an image open, or an image that could not be read, does not fail the
        task, and is no finding. See RV(ceph).
      - For O(state=present) only.
    type: dict
    version_added: 0.1.0
    suboptions:
      images:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:images).
        type: list
        elements: dict
        default: []
        suboptions:
          pool:
            description: Pool of the image.
            type: str
            required: true
          namespace:
            description: RADOS namespace of the image in the pool. Empty means the default
              namespace.
            type: str
            default: ''
          image:
            description: Name of the image.
            type: str
            required: true
      volumes:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:volumes).
        type: list
        elements: dict
        default: []
      rados_namespaces:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:rados_namespaces).
        type: dict
        default: {}
      observations:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:observations).
        type: int
        default: 1
      observation_seconds:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:observation_seconds).
        type: float
        default: 0
      gone_timeout:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:gone_timeout).
        type: float
        default: 60
      sessions:
        description: As O(storage_ops.runbooks.rbd_watcher_info#module:sessions).
        type: bool
        default: false
extends_documentation_fragment:
  - storage_ops.runbooks._attributes
  - storage_ops.runbooks._ceph
  - storage_ops.runbooks._ceph.actiongroup
seealso:
  - module: storage_ops.runbooks.rbd_watcher_info
"""

EXAMPLES = r"""
---
- name: Show what would be done to block a lost node
  storage_ops.runbooks.ceph_blocklist:
    entries:
      - 10.0.0.5
  check_mode: true

- name: Block a lost node for a year, but never one of those that are alive
  storage_ops.runbooks.ceph_blocklist:
    entries:
      - 10.0.0.5
    protected_addresses:
      - 10.0.0.6
      - 10.0.0.7

- name: Block one client, and a range
  storage_ops.runbooks.ceph_blocklist:
    entries:
      - 10.0.0.5:0/319745466
      - 10.0.1.0/28

- name: Block a lost node, and wait until it no longer has the image open
  storage_ops.runbooks.ceph_blocklist:
    entries:
      - 10.0.0.5
    watch:
      images:
        - pool: rbd
          image: csi-vol-5a4b2e4c-0242-11ec-a251-0242ac110002

- name: Let the node in again, as a user with no more rights than that needs
  storage_ops.runbooks.ceph_blocklist:
    entries:
      - 10.0.0.5
    state: absent
    user: storage-ops
    keyring: /etc/ceph/ceph.client.storage-ops.keyring
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
fsid:
  description: Id of the cluster.
  returned: when the blocklist could be read, unless a change failed
  type: str
  sample: e85137c6-a788-4727-9328-d29102331453
blocklist:
  description: The entries, as they were last read. Of those for single clients at one address, only
    the one that expires last is listed. Entries that Ceph itself cannot write as an address are
    left out.
  returned: as RV(fsid), without RV(ceph)
  type: list
  elements: dict
  contains:
    entry:
      description: The entry as Ceph spells it; a range as CIDR, with the host bits that it may
        have.
      type: str
      returned: always
      sample: 10.0.0.5:0/0
    kind:
      description: V(address), V(client) or V(range).
      type: str
      returned: always
      sample: address
    address:
      description: The plain address, or the range as CIDR without host bits.
      type: str
      returned: always
      sample: 10.0.0.5
    until:
      description: When it expires, in UTC.
      type: str
      returned: always
      sample: "2027-11-21T11:57:57Z"
    stand_in:
      description: >-
        Whether it is a stand-in for an entry that was being renewed, as its expiry time shows. Only
        a killed run leaves one behind.
      type: bool
      returned: always
    clients:
      description: Number of entries for single clients at this address, if it is one of them; V(0)
        for an address or a range.
      type: int
      returned: always
      sample: 0
entries:
  description: >-
    The state of each of O(entries) after the run; in check mode, and after a refusal, the current
    state.
  returned: when the blocklist could be read, unless a change failed
  type: list
  elements: dict
  contains:
    entry:
      description: The entry as Ceph spells it; a range as CIDR.
      type: str
      returned: always
      sample: 10.0.0.5:0/0
    kind:
      description: V(address), V(client) or V(range).
      type: str
      returned: always
      sample: address
    was_there:
      description: Whether the entry was there before, in exactly this kind.
      type: bool
      returned: always
    until_before:
      description: When it would have expired, in UTC; empty if it was not there.
      type: str
      returned: always
      sample: "2026-11-21T12:57:57Z"
    renewed:
      description: Whether it was renewed, or in check mode would be, because it expired too soon.
      type: bool
      returned: always
    until:
      description: When it expires now, in UTC; empty if it is not there.
      type: str
      returned: always
      sample: "2027-11-21T11:57:57Z"
ceph:
  description: The data from Ceph, as in RV(storage_ops.runbooks.rbd_watcher_info#module:ceph), read
    after the entries were in the blocklist. Pass it unchanged to other modules of this collection.
  returned: with O(watch), when it was finished
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
    - Entries that have to change.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "blocklist entry", "name": "10.0.0.5:0/0", "node": ""}
    evidence:
      description:
        - What was read. Lists are cut after 50 items, with a count. If the result is too long, only
          what playbooks decide by is left of it, and C(cut).
        - C(covered_by) lists other entries that block the same clients.
      type: dict
      returned: always
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - This module returns V(repair) or V(refuse). A refusal fails the task.
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
        - V(add_blocklist_entry) or V(remove_blocklist_entry).
      type: str
      returned: always
      sample: add_blocklist_entry
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

from ..module_utils._ceph.blocklist import Runbook, make_options
from ..module_utils._ceph.options import CONNECTION, ArgumentSpec, make_ceph
from ..module_utils._ceph.watched import Watched, watch_of, watch_seconds
from ..module_utils._ceph.watchers import WATCH
from ..module_utils._core.engine import run

WANTED = ArgumentSpec(
    {
        "entries": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "expiry_seconds": {"type": "int", "default": 31_536_000},
        "renew_below": {"type": "float", "default": 0.5},
        "protected_addresses": {"type": "list", "elements": "str", "default": []},
        "accept_daemons": {"type": "bool", "default": False},
        "accept_gap": {"type": "bool", "default": False},
        "ends": {"type": "dict", "default": {}},
        "watch": {"type": "dict", "options": WATCH},
    }
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **WANTED.merge(CONNECTION).to_kwargs())
    params: dict[str, Any] = module.params

    def make_runbook() -> Runbook:
        options, watch = make_options(params), watch_of(params)
        ceph = make_ceph(params)
        if watch is None:
            return Runbook(ceph, options)
        return Watched(ceph, options, watch, watch_seconds(params))

    run(module, make_runbook, True, params["deadline"])


if __name__ == "__main__":
    main()
