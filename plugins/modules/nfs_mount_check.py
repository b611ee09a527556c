#!/usr/bin/python

# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: nfs_mount_check
short_description: Find out why NFS shares cannot be mounted
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Checks whether a node can mount NFS shares fast enough and in the requested version (STOR-09).
    Checks the server's name, its routes and its TCP ports, then mounts each share in each version,
    with a deadline, and measures the time.
  - Distinguishes a name without an address, a missing route, a connection that is refused or not
    answered, a version that the server does not offer, an export that it denies or does not have,
    and a slow mount. Returns the C(mountOptions) for the StorageClass that worked.
  - Finds container runtimes that allow containers far too many open files (STOR-10), in their
    systemd unit and in the running process. A program of NFSv3 that closes every possible file
    descriptor then takes minutes.
  - Changes nothing. The shares are mounted read-only in separate mount namespaces, which end with
    the mount, so no other process sees them. The kernel may load its NFS modules for this.
  - Linux starts no NFS mount while a mount of another server waits for an answer. So other NFS
    mounts of the node wait while a server does not answer, for at most O(mount_timeout) at a time.
    Any mount of that server has the same effect.
requirements:
  - Root (C(become)).
  - C(mount.nfs) (nfs-common or nfs-utils), C(unshare), C(prlimit) and C(timeout) for the mounts,
    C(ip) for the routes, C(systemctl) for the limits.
options:
  shares:
    description:
      - The shares to check, as V(server:/export), with an IPv6 address in square brackets.
      - By default one share of each server with an NFS mount below O(kubelet_root) for each
        namespace that has mounts of it, and of each other C(port), C(sec) or C(proto) of these
        mounts. If there is none, only STOR-10 is checked.
    type: list
    elements: str
    default: []
  versions:
    description: The versions of NFS that are tried. NFSv3 is mounted with C(nolock), so that
      C(rpc.statd) is not started for it.
    type: list
    elements: str
    choices: ['3', '4.0', '4.1', '4.2']
    default: ['3', '4.0', '4.1', '4.2']
  wanted_version:
    description:
      - The version that the StorageClass requests with C(nfsvers). It is tried even if it is not in
        O(versions).
      - If empty, the version of the share's mounts on this node. If there are none, the version
        that C(mount.nfs) negotiates, which is the highest that the server offers. V(4) means the
        highest of NFSv4.
    type: str
    choices: ['', '3', '4', '4.0', '4.1', '4.2']
    default: ''
  mount_options:
    description: More options for the mounts, such as V(sec=krb5), as in C(mountOptions) of the
      StorageClass, but without the version.
    type: list
    elements: str
    default: []
  mount_timeout:
    description: Seconds that a mount may take. CSI drivers give up after about 30.
    type: float
    default: 30
  slow_seconds:
    description: Seconds after which a mount counts as slow. A healthy mount takes less than a
      second.
    type: float
    default: 10
  connect_timeout:
    description: Seconds to wait for a TCP connection. Without an answer by then, packets count as
      dropped.
    type: float
    default: 3
  runtimes:
    description: The container runtimes whose limits are checked. If empty, all that systemd knows
      on the node.
    type: list
    elements: str
    choices: [containerd, crio, docker]
    default: []
attributes:
  check_mode:
    details: This module never changes anything. It mounts the shares in check mode too, where no
      other process sees them.
extends_documentation_fragment:
  - storage_ops.runbooks._attributes.actiongroup_node
  - storage_ops.runbooks._attributes.info_module
  - storage_ops.runbooks._node.bounds
  - storage_ops.runbooks._node.kubelet
  - storage_ops.runbooks._node.nofile
seealso:
  - module: storage_ops.runbooks.node_storage_info
"""

EXAMPLES = r"""
---
- name: Show whether the NFS servers of this node's volumes answer, and the runtime's limits
  storage_ops.runbooks.nfs_mount_check:
  become: true

- name: Find out why pods of a StorageClass with nfsvers=4.1 wait for their volumes
  storage_ops.runbooks.nfs_mount_check:
    shares:
      - nas.example.com:/vol/pvc-1
    wanted_version: '4.1'
  become: true

- name: The same by IPv6, with Kerberos, and with two versions only
  storage_ops.runbooks.nfs_mount_check:
    shares:
      - '[2001:db8::10]:/vol/pvc-1'
    versions:
      - '3'
      - '4.1'
    mount_options:
      - sec=krb5
  become: true
"""

RETURN = r"""
msg:
  description: Summary in one line.
  returned: always
  type: str
  sample: 1 finding, 1 needs attention
code:
  description: Why the task failed, as one of L(the codes,
    https://github.com/storage-ops/runbooks/blob/main/docs/guides/codes.md).
  returned: failure
  type: str
  sample: evidence_unreadable
findings:
  description: What is wrong, most severe first. If a limit is shared in turns of namespaces or
    arrays, the most severe finding of each comes first, then the next of each.
    RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys.
  returned: always
  type: list
  elements: dict
  contains:
    object:
      description: The object, by C(kind), C(name) and C(node), and C(namespace) if it has one.
        C(node) is empty for an object that belongs to no node.
      type: dict
      returned: always
      sample: {"kind": "NFS share", "name": "192.0.2.10:/vol/pvc-1", "node": "worker01"}
    verdict:
      description:
        - V(repair), V(refuse) or V(report).
        - V(report), or V(refuse) if something could not be read.
      type: str
      returned: always
      sample: report
    reason:
      description:
        - Why it is repaired, refused or only reported, and the next step.
        - The next step shows the exact C(mountOptions) or drop-in.
      type: str
      returned: always
    runbook:
      description: Playbook that handles it; empty if there is none.
      type: str
      returned: always
      sample: storage_ops.runbooks.check_nfs
not_assessed:
  description: Controls that could not be assessed, or only in part, with the reason. The task fails
    then, and still returns the findings of the other controls.
  returned: when there are any
  type: dict
  sample: {"STOR-09": "/run/storage_ops-nfs-4711 cannot be made"}
not_assessed_codes:
  description: The same controls, with a code for each as in RV(code).
  returned: when there are any
  type: dict
not_applicable:
  description: Controls that have nothing to look at, with what shows that.
  returned: when there are any
  type: dict
actions:
  description: What was done, or in check mode would be done, in order; empty if the module only
    reads. RV(storage_ops.runbooks.node_storage_info#module:actions) lists all keys.
  returned: always
  type: list
  elements: dict
shares:
  description: The measurements of each share.
  returned: success
  type: list
  elements: dict
  contains:
    share:
      description: As it was given, or as it is mounted on the node.
      type: str
      returned: always
      sample: 192.0.2.10:/vol/pvc-1
    server:
      description: Name or address of its server.
      type: str
      returned: always
    addresses:
      description: Addresses of the server, at most eight.
      type: list
      elements: str
      returned: always
    name_problem:
      description: Why the server's name has no address; else empty.
      type: str
      returned: always
    routes:
      description: The output of C(ip route get) for each address.
      type: list
      elements: str
      returned: always
    ports:
      description: >-
        The result of each TCP connection. C(service) is V(nfs), V(portmapper) or V(mountd);
        C(state) is V(ok), V(refused), V(no answer), V(no route) or V(failed); then C(address),
        C(port), C(seconds) and C(text).
      type: list
      elements: dict
      returned: always
      sample:
        - {service: nfs, address: 192.0.2.10, port: 2049, state: ok, seconds: 0.001, text: ""}
    versions:
      description: >-
        The result of the mount in each version, empty if the server could not be reached. C(ok);
        C(state) is V(ok), V(not offered), V(denied), V(no such export), V(no answer), V(refused),
        V(no route), V(no mount.nfs), V(failed) or V(not tried); C(seconds); C(error), the message
        of C(mount.nfs); C(alone), V(false) if other mounts may have delayed it.
      type: dict
      returned: always
      sample: {"4.1": {"ok": true, "state": "ok", "seconds": 0.042, "error": "", "alone": true}}
    versions_in_use:
      description: Versions of the server's mounts on the node, if the share was found there.
      type: list
      elements: str
      returned: always
    mounts:
      description: How many NFS mounts of that server the node has, if the share was found there.
      type: int
      returned: always
runtimes:
  description: The container runtimes and their limits.
  returned: success
  type: list
  elements: dict
  contains:
    runtime:
      description: V(containerd), V(crio) or V(docker).
      type: str
      returned: always
      sample: containerd
    unit:
      description: Its systemd unit.
      type: str
      returned: always
      sample: containerd.service
    unit_limit:
      description: C(LimitNOFILE) of the unit.
      type: str
      returned: always
      sample: infinity
    process_limit:
      description: The running process's hard limit, V(0) if it does not run.
      type: int
      returned: always
      sample: 1073741816
    limit_after_restart:
      description: >-
        The limit after a restart. For V(infinity) it is systemd's own limit, usually C(fs.nr_open).
      type: int
      returned: always
    pid:
      description: The main process, V(0) if it does not run.
      type: int
      returned: always
    drop_in:
      description: C(path) and C(lines) of the drop-in that sets the limit.
      type: dict
      returned: always
    drop_in_needed:
      description: Whether the limit after a restart would be too large.
      type: bool
      returned: always
    restart_needed:
      description: Whether the running process's limit is too large.
      type: bool
      returned: always
    keeps_containers:
      description: >-
        Whether containers outlive a restart of the runtime; V(false) if the unit's C(KillMode) is
        not C(process), and for a docker without C(live-restore).
      type: bool
      returned: always
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import python

python.require()

from ..module_utils._core.engine import Part, report_parts
from ..module_utils._nfs.runbook import NFS_SPEC, NfsShares, nfs_options
from ..module_utils._nfs.runtime_limit import LIMIT_SPEC, RuntimeLimits, limit_options
from ..module_utils._node.options import BOUNDS, KUBELET, make_host


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        supports_check_mode=True, **NFS_SPEC.merge(LIMIT_SPEC, KUBELET, BOUNDS).to_kwargs()
    )
    params: dict[str, Any] = module.params

    def parts() -> list[Part]:
        host, limits = make_host(params), limit_options(params)
        return [
            Part(
                frozenset({"STOR-09"}),
                lambda: NfsShares(host, nfs_options(params), limits, params["kubelet_root"]),
                host.deadline,
            ),
            Part(frozenset({"STOR-10"}), lambda: RuntimeLimits(host, limits), host.deadline),
        ]

    report_parts(module, parts, {"STOR-09", "STOR-10"}, params["deadline"])


if __name__ == "__main__":
    main()
