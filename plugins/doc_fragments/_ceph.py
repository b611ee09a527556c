# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this doc fragment is **PRIVATE** to the collection. It can have breaking changes at any
# time.

from __future__ import annotations


class ModuleDocFragment:
    """Options that several Ceph modules share."""

    DOCUMENTATION = r"""
options:
  conf:
    description:
      - Path of the cluster's configuration on the host. If it is empty, it is
        C(/etc/ceph/CLUSTER.conf).
      - Not given, it is what E(CEPH_CONF) says there.
    type: path
    default: ''
  keyring:
    description:
      - Path of the keyring of O(user) on the host. If it is empty, it is where the configuration
        says.
      - Not given, it is what E(CEPH_KEYRING) says there.
    type: path
    default: ''
  user:
    description: Name of the user, with or without C(client.). Not given, it is what E(CEPH_USER)
      says on the host.
    type: str
    default: admin
  cluster:
    description: Name of the cluster, which is only part of the default paths.
    type: str
    default: ceph
  connect_timeout:
    description:
      - Seconds after which a cluster that cannot be reached is given up, 1 to 60. Ceph's tools
        would wait for 300.
      - A command that has reached the cluster is given 8 seconds more to answer.
    type: float
    default: 5
  deadline:
    description: Seconds after which the module asks nothing more, whatever hangs, besides what it
      was told to wait. 10 to 3600.
    type: float
    default: 60
requirements:
  - Ceph's command line tools (C(ceph), C(rbd), C(rados)) on the host. Python needs nothing but its
    standard library.
notes:
  - The task runs where Ceph's tools are, on an admin host of the cluster, or in the toolbox pod of
    Rook through the connection plugin C(kubernetes.core.kubectl).
  - The environment variable E(CEPH_ARGS) is ignored, since it would overrule the options.
"""

    ACTIONGROUP = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/storage_ops.runbooks.ceph) in C(module_defaults) to set defaults for
      all modules that ask Ceph.
    support: full
    membership:
      - storage_ops.runbooks.ceph
"""
