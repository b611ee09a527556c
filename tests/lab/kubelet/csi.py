# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CSI drivers on VM nodes: images that the node's kernel maps, folders of a CephFS that it
mounts, LUNs of an array, and buckets of a server on this machine.
"""

from __future__ import annotations

import json
import shlex

from ..ceph.gateway import Gateway
from ..common import GUEST, wait
from ..guest import array
from ..kind import buckets
from ..kind.csi import KUBELET, START_DEADLINE, Plugged, Served, daemon_set
from ..kubernetes import api as k8s
from .cluster import CEPH_USER, Kubelets
from .node import HOST, PAYLOAD

# Under which names the collection knows images of Ceph's, and CephFS.
NAME, FILES_NAME = "rbd.csi.ceph.com", "cephfs.csi.ceph.com"
FILES_USER = "csi-cephfs-node"
LUN_NAME = "iscsi.csi.lab.example"
LUN_MB = 64
ARRAY = f"{PAYLOAD}/array.py"
MANAGE = f"python3 -IS {ARRAY}"


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


class FilesDriver(Served):
    """For one test. Volumes are folders that are there already, mounted by the kernel."""

    def __init__(self, cluster: Kubelets) -> None:
        super().__init__(FILES_NAME, cluster, tuple(cluster.nodes), cluster.tied)
        self.cluster = cluster

    def start(self) -> None:
        """Until all nodes have it."""
        ceph = self.cluster.ceph
        key = ceph.user(FILES_USER, mon="allow r", mds="allow rw", osd="allow rw tag cephfs *=*")
        for vm in self.cluster.nodes.values():
            vm.run(f"cat > /etc/ceph/{key.name}", stdin=key.read_text())
        plugin = daemon_set(
            "csi-cephfsplugin",
            FILES_NAME,
            ["--root=/host", f"--cephfs={FILES_USER}"],
            {"host": ("/", "/host")},
            {},
            hostPID=True,
            tolerations=[{"operator": "Exists"}],
        )
        self.serve([f"--ceph={ceph.conf}"], plugin)

    def make(self, folder: str) -> None:
        """A folder of the filesystem."""
        vm = next(iter(self.cluster.nodes.values()))
        mount = f"mount -t ceph :/ /mnt -o name={FILES_USER}"
        vm.run(f"{mount} && mkdir -p /mnt{folder} && umount /mnt")

    def remove(self) -> None:
        """As before the start. No volume may be staged."""
        self.unplug()
        _forget(self, self.cluster)


class LunDriver(Served):
    """Volumes are LUNs over two portals. The array (``guest/array.py``) is on the node ``host``,
    and outlives the power of the others. Nodes reach its portals by ports of this machine.
    """

    def __init__(self, cluster: Kubelets, host: str) -> None:
        super().__init__(LUN_NAME, cluster, tuple(cluster.nodes), cluster.tied)
        self.cluster, self.array = cluster, cluster.nodes[host]
        self._program = cluster.folder / "array"

    def start(self) -> None:
        """Until all nodes have it."""
        self.array.run(f"cat > {ARRAY}", stdin=(GUEST / "array.py").read_text())
        portals = ",".join(f"{HOST}:{self.array.lead_in(port)}" for port in array.PORTS)
        self._manage("start", portals, *self.nodes)
        # What the controller calls the array by.
        self._program.write_text(f'#!/bin/sh\nexec {shlex.join(self.array.ssh(MANAGE))}" $*"\n')
        self._program.chmod(0o700)
        plugin = daemon_set(
            "csi-iscsi-node",
            LUN_NAME,
            ["--root=/host", "--luns"],
            {"host": ("/", "/host")},
            {},
            # multipath waits for udev by a semaphore of the node's.
            hostIPC=True,
            hostPID=True,
            tolerations=[{"operator": "Exists"}],
        )
        self.serve([f"--array={self._program}"], plugin)

    def remove(self) -> None:
        """As before the start. No volume may be staged."""
        self.unplug()
        for node, vm in self.cluster.nodes.items():
            # Nothing to log out from is as good.
            for verb in ("--logout", "--op=delete"):
                vm.run(["iscsiadm", "-m", "node", "-T", f"{array.IQN}{node}", verb], check=False)
        _forget(self, self.cluster)
        self._manage("stop")

    def add_volume(self, name: str) -> str:
        """A volume of the array, and a claim; its WWID."""
        wwid = self.array.labctl("lun", "new", f"vol-{name}", str(LUN_MB))
        made, claim = k8s.volume(name, LUN_NAME, f"vol-{name}")
        made["spec"]["csi"]["volumeAttributes"] = {"wwid": wwid}
        self.cluster.api().create(made, claim)
        return wwid

    def numbers(self, node: str) -> dict[str, int]:
        """Volume -> its number, of those that the array serves to a node."""
        found: dict[str, str] = json.loads(self._manage("served", node))
        return {backing.removeprefix("vol-"): int(number) for number, backing in found.items()}

    def _manage(self, *arguments: str) -> str:
        return self.array.run(f"{MANAGE} {shlex.join(arguments)}").stdout


class BucketDriver(buckets.Buckets):
    """For one test. The image of the nodes has the plugin, and s3fs."""

    def __init__(self, cluster: Kubelets, gateway: Gateway) -> None:
        super().__init__(cluster, tuple(cluster.nodes), gateway)
        self.cluster = cluster

    def start(self) -> None:
        """Until all nodes have it."""
        self.serve(HOST)

    def remove(self) -> None:
        """As before the start. No volume may be staged."""
        self.unplug()
        self.cluster.api().delete(k8s.path("Secret", **buckets.SECRET))
        _forget(self, self.cluster)


def _forget(driver: Plugged, cluster: Kubelets) -> None:
    """The nodes' kubelets know a driver that is unplugged no more."""
    for vm in cluster.nodes.values():
        vm.run(["rm", "-f", f"{KUBELET}/plugins_registry/{driver.name}-reg.sock"])
    wait(lambda: not any(map(driver.is_on, driver.nodes)), "no node has it", START_DEADLINE)
