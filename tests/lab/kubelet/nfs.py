# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An NFS server on a VM node, for the pods of another one: the kernel's own, and volumes that the
kubelet itself mounts (in-tree).
"""

from __future__ import annotations

from ..kubernetes import api as k8s
from .cluster import Kubelets
from .node import HOST

# The storage network: none of qemu's, of which both nodes have one with the same addresses.
DEVICE, CLIENT, SERVER = "storage0", "192.0.2.11", "192.0.2.12"
# An address that no client has (RFC 5737).
OTHER_CLIENT = "203.0.113.9"
VXLAN_PORT = 4789
VERSIONS = ("3", "4.0", "4.1", "4.2")
EXPORTS = "/srv/nfs"
CONF, TABLES = "/etc/nfs.conf.d/lab.conf", "/etc/exports.d"
SERVICES = "rpcbind.socket rpcbind nfs-server nfs-idmapd nfs-mountd"


class NfsServer:
    """The node ``host`` serves, over a VXLAN through ports of this machine. So a port that is
    closed there refuses, and one that is firewalled does not answer.
    """

    def __init__(self, cluster: Kubelets, host: str) -> None:
        self.cluster, self.vm = cluster, cluster.nodes[host]
        (self.client,) = (vm for node, vm in cluster.nodes.items() if node != host)

    def start(self) -> None:
        """Until it serves, and is reached."""
        ends = ((self.client, CLIENT, self.vm), (self.vm, SERVER, self.client))
        for vm, address, other in ends:
            port = other.lead_in(VXLAN_PORT, "udp")
            vm.run(
                f"ip link add {DEVICE} type vxlan id 9 dstport {VXLAN_PORT} nolearning && "
                f"bridge fdb append 00:00:00:00:00:00 dev {DEVICE} dst {HOST} port {port} && "
                f"ip address add {address}/24 dev {DEVICE} && ip link set {DEVICE} up"
            )
        self.vm.run(["mkdir", "-p", TABLES])
        self.offer()

    def remove(self) -> None:
        """As before the start. Nothing of it may be mounted."""
        self.vm.run(f"systemctl stop {SERVICES}; rm -r {CONF} {TABLES} {EXPORTS}", timeout=120)
        for vm in (self.vm, self.client):
            vm.run(f"ip link delete {DEVICE}")

    def offer(self, without: str = "") -> None:
        """Start it again, with all versions of NFS but this one."""
        # After each start it serves only those who reclaim what they had, else for 90 seconds.
        lines = ["[nfsd]", "grace-time=10", "lease-time=10"]
        # A version that was once disabled stays so in the kernel until it is enabled by name.
        lines += [f"vers{version}={'n' if version == without else 'y'}" for version in VERSIONS]
        self.vm.run(f"cat > {CONF}", stdin="\n".join([*lines, ""]))
        self.vm.run("systemctl start rpcbind && systemctl restart nfs-server", timeout=120)

    def serve(self) -> None:
        """The server runs."""
        self.vm.run("systemctl start rpcbind nfs-server", timeout=120)

    def stop(self) -> None:
        """It does not: its port refuses."""
        self.vm.run("systemctl stop nfs-server", timeout=120)

    def share(self, name: str) -> str:
        """As mount(8) takes it."""
        return f"{SERVER}:{EXPORTS}/{name}"

    def add_volume(self, name: str, client: str = CLIENT, version: str = "4.2") -> str:
        """A folder that is exported to this client, if any, with a volume and a claim; its share.
        The kubelet asks for this version.
        """
        self.vm.run(["mkdir", "-p", f"{EXPORTS}/{name}"])
        if client:
            self.export(name, client)
        made, claim = k8s.volume(name, "", "")
        del made["spec"]["csi"]
        made["spec"]["nfs"] = {"server": SERVER, "path": f"{EXPORTS}/{name}"}
        # mount.nfs tries again for two minutes unless told (nfs(5), retry). With NFS 3 locks need a
        # daemon.
        lock = ["nolock"] if version == "3" else []
        made["spec"]["mountOptions"] = [f"nfsvers={version}", "retry=0", *lock]
        self.cluster.api().create(made, claim)
        return self.share(name)

    def export(self, name: str, client: str = CLIENT) -> None:
        """This client alone may mount it, now and after a start of the server."""
        line = f"{EXPORTS}/{name} {client}(rw,no_root_squash,no_subtree_check)\n"
        self.vm.run(f"cat > {TABLES}/{name}.exports && exportfs -r", stdin=line)

    def write(self, name: str, line: str) -> None:
        """In the volume, as the application would have written it."""
        self.vm.run(f"cat >> {EXPORTS}/{name}/lines", stdin=f"{line}\n")

    def numbers(self, name: str) -> list[int]:
        """What the application has counted in its volume, as the server has it."""
        said = self.vm.run(["cat", f"{EXPORTS}/{name}/lines"]).stdout
        return [int(line.split()[0]) for line in said.splitlines()]
