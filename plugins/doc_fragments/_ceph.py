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
      - Path of the cluster's configuration on the host. If empty, C(/etc/ceph/CLUSTER.conf).
      - If not given, the value of E(CEPH_CONF) on the host is used.
    type: path
    default: ''
  keyring:
    description:
      - Path of the keyring of O(user) on the host. If empty, the path in the configuration is used.
      - If not given, the value of E(CEPH_KEYRING) on the host is used.
    type: path
    default: ''
  user:
    description: Name of the user, with or without C(client.). If not given, the value of
      E(CEPH_USER) on the host is used.
    type: str
    default: admin
  cluster:
    description: Name of the Ceph cluster, which is only used in the default paths.
    type: str
    default: ceph
  connect_timeout:
    description:
      - Seconds to wait for a cluster that cannot be reached, 1 to 60. Ceph's own tools wait for
        300.
      - A command that has reached the cluster may take 8 seconds more.
    type: float
    default: 5
  deadline:
    description: >-
      Seconds after which the module ends even if something hangs, in addition to requested waits.
      10 to 3600.
    type: float
    default: 60
requirements:
  - Ceph's command line tools (C(ceph), C(rbd), C(rados)) on the host. No Python packages are
    needed.
notes:
  - >-
    The task runs on a host with Ceph's tools: an admin host of the cluster, or the toolbox pod of
    Rook through the connection plugin C(kubernetes.core.kubectl).
  - The environment variable E(CEPH_ARGS) is ignored, since it would override the options.
"""

    ACTIONGROUP = r"""
options: {}
attributes:
  action_group:
    description: >-
      Use C(group/storage_ops.runbooks.ceph) in C(module_defaults) to set defaults for all modules
      that use Ceph.
    support: full
    membership:
      - storage_ops.runbooks.ceph
"""
