#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: rbd_watcher_info
short_description: Read which clients have RBD images open, or a CephFS mounted
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Reads the watchers of RBD images, the owners of their locks, the clients' addresses that
    ceph-csi wrote into the image metadata, and the blocklist. Changes nothing. Images are named
    directly or by their PersistentVolumes.
  - A node that tries to stage a volume opens the image briefly at each try. So watchers are read
    several times, and a watcher is V(persistent) only if the same client with the same cookie was
    there each time.
  - It can wait until blocked clients are gone, which proves a fence.
  - With O(sessions) it also reads which clients have a session at the metadata servers of each
    CephFS. What cannot be read is told as a problem, and never counts as "no session".
  - An image that cannot be read is a finding (STOR-16), and never counts as an image without
    watchers. Neither this nor a remaining watch fails the task.
  - No image is opened for writing, so the module itself is never a watcher. It reads the metadata
    of ceph-csi from the image's header object with C(rados), since C(rbd image-meta) opens the
    image for writing.
options:
  images:
    description: Images to read.
    type: list
    elements: dict
    default: []
    suboptions:
      pool:
        description: Pool of the image.
        type: str
        required: true
      namespace:
        description: RADOS namespace of the image in the pool. Empty means the default namespace.
        type: str
        default: ''
      image:
        description: Name of the image.
        type: str
        required: true
  volumes:
    description:
      - PersistentVolumes whose images to read, as M(kubernetes.core.k8s_info) returns them, or
        M(storage_ops.runbooks.node_fence_info) in
        RV(storage_ops.runbooks.node_fence_info#module:lost).
      - Volumes of ceph-csi (including static ones) and of the in-tree plugin C(rbd) are supported.
        Others are listed in RV(ignored).
      - The folders of CephFS volumes of ceph-csi are told apart in the result of O(sessions).
    type: list
    elements: dict
    default: []
  rados_namespaces:
    description:
      - RADOS namespace by C(clusterID), as the configuration of ceph-csi has it
        (C(rbd.radosNamespace), or C(radosNamespace)), for those of O(volumes) that do not name
        theirs. Newer releases of ceph-csi write it into the volumes that they create; static
        volumes lack it.
      - If the namespace is unknown, the image of the volume is not found, which is a finding.
    type: dict
    default: {}
  observations:
    description: How often the watchers are read, V(1) to V(1000). After one observation no watcher
      is V(persistent).
    type: int
    default: 1
  observation_seconds:
    description: Seconds from the first observation to the last, up to V(3600). Required with more
      than one observation.
    type: float
    default: 0
  gone:
    description:
      - Addresses, clients and ranges, written as in
        O(storage_ops.runbooks.ceph_blocklist#module:entries), that must have no image open any
        more, and with O(sessions) no session.
      - If one has, the module waits for the end of the watch. The returned observations are made
        after that.
    type: list
    elements: str
    default: []
  gone_timeout:
    description:
      - Seconds to wait for the clients in O(gone), up to V(3600). A watch that remains after that
        is a finding.
      - The watch of a blocked client ends at once, the watch of a dead client after 30 seconds.
    type: float
    default: 60
  sessions:
    description:
      - Also read the sessions at the active metadata servers of every CephFS, into
        RV(ceph.filesystems).
      - This takes the capability C(mds 'allow *'), since Ceph answers no C(ceph tell mds) with
        less, and C(mon 'allow r').
    type: bool
    default: false
    version_added: 0.1.0
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._ceph
  - storage_ops.runbooks._ceph.actiongroup
seealso:
  - module: storage_ops.runbooks.ceph_blocklist
"""

EXAMPLES = r"""
---
- name: Show who has an image open all the time
  storage_ops.runbooks.rbd_watcher_info:
    images:
      - pool: rbd
        image: csi-vol-5a4b2e4c-0242-11ec-a251-0242ac110002
    observations: 3
    observation_seconds: 61

- name: Read the PersistentVolumes
  kubernetes.core.k8s_info:
    kind: PersistentVolume
  delegate_to: localhost
  register: persistent_volumes

- name: Show who has their images open
  storage_ops.runbooks.rbd_watcher_info:
    volumes: "{{ persistent_volumes.resources }}"
    rados_namespaces:
      rook-ceph: tenant-a

- name: Wait until a blocked node has no image open, and no session of CephFS
  storage_ops.runbooks.rbd_watcher_info:
    images:
      - pool: rbd
        image: csi-vol-5a4b2e4c-0242-11ec-a251-0242ac110002
    gone:
      - 10.0.0.5
    sessions: true
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: >-
    nothing to do: 1 images with 1 watchers, 0 entries in the blocklist of
    e85137c6-a788-4727-9328-d29102331453
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
ceph:
  description: The data from Ceph. Pass it unchanged to other modules of this collection.
  returned: when Ceph could be read
  type: dict
  contains:
    fsid:
      description: Id of the cluster.
      type: str
      returned: always
      sample: e85137c6-a788-4727-9328-d29102331453
    read_at:
      description: When it was read, by the clock of this host, in UTC.
      type: str
      returned: always
      sample: "2026-11-21T11:57:57Z"
    observations:
      description: Number of observations. V(1) if it waited for a client in O(gone).
      type: int
      returned: always
      sample: 3
    seconds:
      description: Seconds from the first of them to the last.
      type: float
      returned: always
      sample: 61.0
    families:
      description: Families of the monitors' addresses, V(IPv4), V(IPv6) or both. A client has one
        address, of one of them.
      type: list
      elements: str
      returned: always
      sample: ["IPv4"]
    blocklist:
      description: The blocklist, as in RV(storage_ops.runbooks.ceph_blocklist#module:blocklist),
        read after the last observation.
      type: list
      elements: dict
      returned: always
    images:
      description: The images; O(images) come first.
      type: list
      elements: dict
      returned: always
      contains:
        volume:
          description: PersistentVolume of the image; empty for O(images).
          type: str
          returned: always
          sample: pvc-8d0f0ec6-2d0c-4b5b-8f9e-0d0e0f0e0d0c
        pool:
          description: Pool of the image.
          type: str
          returned: always
          sample: rbd
        namespace:
          description: RADOS namespace; empty for the default one.
          type: str
          returned: always
        image:
          description: Name of the image.
          type: str
          returned: always
          sample: csi-vol-5a4b2e4c-0242-11ec-a251-0242ac110002
        problem:
          description: Why the image could not be read, for example because it does not exist. The
            lists below are empty then, which proves nothing.
          type: str
          returned: always
        features:
          description: Features of the image.
          type: list
          elements: str
          returned: always
          sample: ["layering"]
        watchers:
          description: Clients that had the image open in one of the observations.
          type: list
          elements: dict
          returned: always
          contains:
            address:
              description: Address that Ceph sees.
              type: str
              returned: always
              sample: 10.0.0.5
            entry:
              description: The client, as the blocklist names it.
              type: str
              returned: always
              sample: 10.0.0.5:0/319745466
            client:
              description: Its id.
              type: str
              returned: always
              sample: client.4123
            cookie:
              description: Which of its watches.
              type: str
              returned: always
              sample: "18446462598732840961"
            mirror:
              description: Whether it is an rbd-mirror daemon, of this site or another. Known for
                mirrored images only.
              type: bool
              returned: always
            seen:
              description: Number of observations that showed it.
              type: int
              returned: always
              sample: 3
            persistent:
              description: Whether all observations, at least two, showed it.
              type: bool
              returned: always
        more_watchers:
          description: Number of further watchers. Of those with the same address that differ in
            nothing else that decides, the first five are listed.
          type: int
          returned: always
          sample: 0
        more_locks:
          description: Number of further locks. Of those with the same address, the first five are
            listed.
          type: int
          returned: always
          sample: 0
        locks:
          description: Owners of locks on the image, which may be dead.
          type: list
          elements: dict
          returned: always
          contains:
            locker:
              description: Id of the client.
              type: str
              returned: always
              sample: client.4123
            address:
              description: Its address.
              type: str
              returned: always
              sample: 10.0.0.5
            entry:
              description: The client, as the blocklist names it.
              type: str
              returned: always
              sample: 10.0.0.5:0/319745466
        client_addresses:
          description: >-
            Addresses from which nodes staged the image, as newer releases of ceph-csi record them.
          type: list
          elements: dict
          returned: always
          contains:
            node:
              description: Name of the node.
              type: str
              returned: always
              sample: worker01
            address:
              description: Its address.
              type: str
              returned: always
              sample: 10.0.0.5
    filesystems:
      description: Every CephFS of the cluster, with the sessions at its metadata servers.
      type: list
      elements: dict
      returned: with O(sessions)
      contains:
        name:
          description: Its name. Empty if it could not be read which filesystems there are.
          type: str
          returned: always
          sample: files
        problem:
          description: Why the sessions are not known, for example because a metadata server does
            not answer, or is not active. The list is empty then, which proves nothing.
          type: str
          returned: always
        sessions:
          description: The clients. Of those that have the same address, hostname and volume in
            O(volumes) the first is listed.
          type: list
          elements: dict
          returned: always
          contains:
            address:
              description: Address that Ceph sees.
              type: str
              returned: always
              sample: 10.0.0.5
            entry:
              description: The client, as the blocklist names it.
              type: str
              returned: always
              sample: 10.0.0.5:0/1910348383
            client:
              description: Its id.
              type: str
              returned: always
              sample: client.4129
            hostname:
              description: What the client says is the name of its host.
              type: str
              returned: always
              sample: worker01
            program:
              description: V(kernel), V(ceph-fuse), or empty for another, as it says itself.
              type: str
              returned: always
              sample: kernel
            root:
              description: The folder of the filesystem that it has mounted, as it says itself.
              type: str
              returned: always
              sample: /volumes/csi/csi-vol-5a4b2e4c-0242-11ec-a251-0242ac110002
            more:
              description: Number of further clients that are the same in all that decides.
              type: int
              returned: always
              sample: 0
ignored:
  description: Names of the PersistentVolumes in O(volumes) that are not RBD.
  returned: when Ceph could be read
  type: list
  elements: str
findings:
  description:
    - What is wrong, most severe first. If a limit is shared in turns of namespaces or arrays, the
      most severe finding of each comes first, then the next of each.
      RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
    - Images and filesystems that could not be read, and clients of O(gone) that still watch an
      image or have a session.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample:
        kind: RBD image
        name: rbd/csi-vol-5a4b2e4c-0242-11ec-a251-0242ac110002
        node: ""
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - V(report), or with O(gone) V(refuse).
      type: str
      returned: always
      sample: report
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.fail_over_volumes
not_assessed:
  description: Controls that could not be assessed, or only in part, with the reason. The task fails
    then, and still returns the findings of the other controls.
  returned: when there are any
  type: dict
  sample: {"STOR-16": "ceph does not answer"}
not_assessed_codes:
  description: The same controls, with a code for each as in RV(code).
  returned: when there are any
  type: dict
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

from ..module_utils._ceph.options import CONNECTION, ArgumentSpec, make_ceph
from ..module_utils._ceph.watchers import CONTROL, WATCH, Watchers, make_options
from ..module_utils._core.engine import report

SCOPE = ArgumentSpec({**WATCH, "gone": {"type": "list", "elements": "str", "default": []}})


def main() -> None:
    """Entry point."""
    module = AnsibleModule(supports_check_mode=True, **SCOPE.merge(CONNECTION).to_kwargs())
    params: dict[str, Any] = module.params

    more_seconds = params["observation_seconds"] + params["gone_timeout"]

    def make_audit() -> Watchers:
        options = make_options(params)
        return Watchers(make_ceph(params, more_seconds), options)

    report(module, make_audit, {CONTROL}, params["deadline"] + more_seconds)


if __name__ == "__main__":
    main()
