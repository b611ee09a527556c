# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CSI driver on VM nodes: its volumes are images that the node's kernel maps."""

from __future__ import annotations

from ..kind.csi import Served, daemon_set
from .cluster import CEPH_USER, Kubelets

# Under which name the collection knows images of Ceph's.
NAME = "rbd.csi.ceph.com"


class RbdDriver(Served):
    """It works in its node's own root, where rbd, mkfs and mount are."""

    def __init__(self, cluster: Kubelets) -> None:
        super().__init__(NAME, cluster, tuple(cluster.nodes), cluster.tied)
        self.cluster = cluster

    def start(self) -> None:
        """Until all nodes have it."""
        plugin = daemon_set(
            "csi-rbdplugin",
            NAME,
            ["--root=/host", "--ceph=/etc/ceph/ceph.conf"],
            {"host": ("/", "/host")},
            {"CEPH_ARGS": f"--id {CEPH_USER}"},
            hostPID=True,
            # It stays on a node that is fenced, as those of real drivers do.
            tolerations=[{"operator": "Exists"}],
        )
        self.serve([f"--ceph={self.cluster.ceph.conf}"], plugin)
