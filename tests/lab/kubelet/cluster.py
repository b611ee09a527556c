# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control plane of this machine with kubelets on VM nodes, and a Ceph cluster for them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ..ceph.cluster import Ceph
from ..common import step, wait
from ..kubernetes.api import path
from ..kubernetes.build import CURRENT
from ..kubernetes.controlplane import ControlPlane
from .node import DAEMON_PORTS, KubeletVm, Ways, state

READY_DEADLINE = 120.0
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
CEPH_USER = "csi-rbd-node"


class Kubelets(ControlPlane):
    """The control plane with its nodes; ``machines``: how their names begin. Ceph outlives it."""

    def __init__(
        self,
        name: str,
        ceph: Ceph,
        nodes: Sequence[str],
        *,
        machines: str = "",
        version: str = CURRENT,
        controller_manager_args: Sequence[str] = (),
    ) -> None:
        super().__init__(
            name, version, kubelets=nodes, controller_manager_args=controller_manager_args
        )
        self.ceph = ceph
        number = os.getpid()
        net = f"127.{64 + number // 256 % 64}.{number % 256}"
        self.nodes = {
            node: KubeletVm(f"{machines or name}-{node}", node, f"{net}.{11 + index}")
            for index, node in enumerate(nodes)
        }

    # life

    def start(self) -> None:
        """From nothing to all nodes Ready."""
        # What cannot be had here is said before anything runs.
        state(self.version)
        super().start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.join, self.nodes.values()))

    def stop(self) -> None:
        """End everything, hard."""
        for vm in self.nodes.values():
            vm.stop()
        super().stop()

    def join(self, vm: KubeletVm) -> None:
        """Start a node as new, and wait until it is Ready."""
        vm.up(state(self.version))
        with step(f"{vm.name}: joining"):
            vm.join(self._ways(vm.node))
            api = self.api()
            wait(lambda: api.find("Node", vm.node), f"{vm.node} has registered", READY_DEADLINE)
            self._initialize(vm)
            wait(lambda: self._is_ready(vm.node), f"{vm.node} is Ready", READY_DEADLINE)

    def ceph_ports(self) -> list[str]:
        """Of its monitors and of all other daemons, as nftables takes them."""
        return [*re.findall(r"127\.0\.0\.1:([0-9]+)", self.ceph.addresses), DAEMON_PORTS]

    # parts

    def _initialize(self, vm: KubeletVm) -> None:
        """What a cloud's controller manager does: a kubelet refuses to report an address of
        loopback (validateNodeIP), but leaves alone those that are there (pkg/kubelet/nodestatus,
        NodeAddress).
        """
        listed = [
            {"type": "InternalIP", "address": vm.address},
            {"type": "Hostname", "address": vm.node},
        ]
        api, where = self.api(), path("Node", vm.node)
        api.merge(f"{where}/status", {"status": {"addresses": listed}})
        taints = (api.get(where) or {})["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != UNINITIALIZED]
        api.merge(where, {"spec": {"taints": kept}})

    def _is_ready(self, node: str) -> bool:
        api = self.api()
        return api.ready(node) == "True" and not any("not-ready" in key for key in api.taints(node))

    def _ways(self, node: str) -> Ways:
        keyring = self.ceph.user(CEPH_USER, mon="profile rbd", osd="profile rbd")
        conf = f"[global]\nfsid = {self.ceph.fsid}\nmon_host = {self.ceph.addresses}\n"
        return Ways(
            api_port=self.port(),
            ceph_ports=self.ceph_ports(),
            token=self.token(node),
            files={
                "/etc/kubernetes/ca.crt": self.ca.read_text(),
                "/etc/ceph/ceph.conf": conf,
                f"/etc/ceph/ceph.client.{CEPH_USER}.keyring": keyring.read_text(),
            },
        )
