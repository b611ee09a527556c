# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is lost while it has an RBD image open: a control plane and a Ceph cluster, and what
connects them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from lab.ceph.client import Client, Visitor, Writer
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from lab.kubernetes.controlplane import lost_after

from support.cluster import Cluster, Reached
from support.storage import Storage

C = TypeVar("C", bound=Client)
RBD, CEPHFS = "rbd.csi.ceph.com", "cephfs.csi.ceph.com"
NODE_A, NODE_B = "node-a", "node-b"
ADDRESSES = {NODE_A: "127.0.0.11", NODE_B: "127.0.0.12"}
SOON_LOST = lost_after(8)
HEARTBEAT = 1.0
# A pod is evicted as soon as its node is lost, instead of 300 s later.
IMPATIENT = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 0,
    }
    for key in ("not-ready", "unreachable")
]


class Scene:
    """Nodes A and B, and workloads whose volumes are real images: what there is whoever plays the
    kubelets.
    """

    def __init__(self, cluster: Reached, storage: Storage) -> None:
        self.cluster, self.storage, self.api = cluster, storage, cluster.api

    # nodes

    def node(self, name: str = NODE_A) -> dict[str, Any]:
        """The Node."""
        return self.api.call("GET", path("Node", name))

    def ready(self, name: str = NODE_A) -> str:
        """The status of its condition Ready."""
        return self.api.ready(name)

    def taints(self, name: str = NODE_A) -> set[str]:
        """The keys of its taints."""
        return self.api.taints(name)

    def wait_lost(self, name: str = NODE_A, seconds: float = 40) -> None:
        """A silent node is called so."""
        self.cluster.wait(lambda: self.ready(name) == "Unknown", f"{name} is lost", seconds)
        self.cluster.wait(
            lambda: "node.kubernetes.io/unreachable" in self.taints(name), f"{name} is tainted", 20
        )

    def wait_back(self, name: str = NODE_A, seconds: float = 20) -> None:
        """A node whose kubelet is back is called so."""
        self.cluster.wait(lambda: self.ready(name) == "True", f"{name} is ready", seconds)
        # A Node that was made again is born with the taint not-ready, which outlives the condition
        # for a moment. Those of a fence stay.
        silent = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
        self.cluster.wait(lambda: not silent & self.taints(name), f"{name} is not tainted", 20)

    # workloads

    def volume(
        self,
        name: str,
        driver: str = RBD,
        storage_class: str = "",
        cluster_id: str = "",
        modes: Sequence[str] = ("ReadWriteOnce",),
        mounter: str = "",
    ) -> str:
        """A volume with its claim, and if it is RBD an image; the volume's name.

        ``mounter``: by what its node has the image open, if that is not the kernel.
        """
        cluster_id = cluster_id or self.storage.ceph.fsid
        image = self.image(name)
        handle = (
            f"0001-{len(cluster_id):04x}-{cluster_id}-{1:016x}-{image.removeprefix('csi-vol-')}"
        )
        volume, claim = k8s.volume(name, driver, handle, modes=modes)
        if driver == RBD:
            attributes = {
                "clusterID": cluster_id,
                "pool": "rbd",
                "imageName": image,
                "imageFeatures": "layering",
                "journalPool": "rbd",
                **({"mounter": mounter} if mounter else {}),
            }
            volume["spec"]["csi"]["volumeAttributes"] = attributes
            self.storage.ceph.create_image(image)
        elif driver == CEPHFS:
            volume["spec"]["csi"]["volumeAttributes"] = {
                "clusterID": cluster_id,
                "fsName": "files",
                "subvolumePath": f"/volumes/csi/{image}",
            }
        if storage_class:
            volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"] = storage_class
        self.api.create(volume, claim)
        where = path("PersistentVolumeClaim", name)
        self.cluster.wait(
            lambda: (self.api.get(where) or {}).get("status", {}).get("phase") == "Bound",
            f"claim {name} is bound",
        )
        return str(volume["metadata"]["name"])

    def image(self, name: str = "db") -> str:
        """The image behind the volume of that name."""
        return f"csi-vol-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}"

    def deploy(self, name: str, claims: Sequence[str] = (), driver: str = RBD, **spec: Any) -> None:
        """A Deployment that runs on A, and with A lost on B, with these claims; without any, with a
        new one of its own name.
        """
        if not claims:
            self.volume(name, driver)
        self.create(name, claims or [name], **spec)
        self.wait_running(NODE_A, name)

    def create(self, name: str, claims: Sequence[str], **spec: Any) -> None:
        """The same, without waiting for it."""
        prefer = {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_A]}
            ]
        }
        affinity = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": prefer}
                ]
            }
        }
        # With a grace period, which no silent kubelet ends, so that the force of the deletion
        # counts.
        spec = {"affinity": affinity, "tolerations": IMPATIENT, "grace": 30, **spec}
        self.api.create(k8s.workload("Deployment", name, claims, **spec))

    def pods(self, node: str = "", name: str = "db") -> list[dict[str, Any]]:
        """A Deployment's pods, those that are being deleted among them; with a node,
        those there.
        """
        mine = [
            found
            for found in self.api.all("Pod", "default")
            if found["metadata"].get("labels", {}).get("app") == name
        ]
        return [found for found in mine if not node or found["spec"].get("nodeName") == node]

    def wait_running(self, node: str = NODE_B, name: str = "db", seconds: float = 60) -> None:
        """A pod runs on this node, its volumes attached."""

        def running() -> bool:
            return any(found["status"].get("phase") == "Running" for found in self.pods(node, name))

        self.cluster.wait(running, f"{name} runs on {node}", seconds)

    def wait_waiting(self, name: str = "db") -> None:
        """The new pod on B waits for volumes that Kubernetes still has attached to A, and has said
        so.
        """

        def refused() -> list[dict[str, Any]]:
            told = [
                found["involvedObject"]["uid"]
                for found in self.api.all("Event", "default")
                if found["reason"] == "FailedAttachVolume"
            ]
            return [found for found in self.pods(NODE_B, name) if found["metadata"]["uid"] in told]

        (pod,) = self.cluster.wait(refused, f"the new pod of {name} waits for its volume", 60)
        volumes = [found.get("persistentVolumeClaim") for found in pod["spec"]["volumes"]]
        for claim in [found["claimName"] for found in volumes if found]:
            assert self.attached(NODE_A, claim) and not self.attached(NODE_B, claim), claim

    def attachment(self, node: str = NODE_A, name: str = "db") -> dict[str, Any] | None:
        """The VolumeAttachment of a volume to a node."""
        for found in self.api.all("VolumeAttachment"):
            if (
                found["spec"]["nodeName"] == node
                and found["spec"]["source"].get("persistentVolumeName") == f"pv-{name}"
            ):
                return found
        return None

    def attached(self, node: str = NODE_A, name: str = "db") -> bool:
        """This volume is attached to this node, says Kubernetes."""
        return bool(((self.attachment(node, name) or {}).get("status") or {}).get("attached"))


class Failover(Scene):
    """The Deployment ``db`` on A, whose volume is a real image. What A's kernel would have open, a
    Writer has.

    Ready, eviction, VolumeAttachments and their absence are the real controllers' work; kubelets
    and the attacher are stand-ins. ``six``: the addresses of nodes of IPv6 beside their others.
    """

    cluster: Cluster

    def __init__(
        self, cluster: Cluster, storage: Storage, six: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(cluster, storage)
        self._six = {**(six or {})}
        self._ends = contextlib.ExitStack()
        self.api.create(k8s.csi_driver(RBD))
        self.kubelets = cluster.kubelets(*ADDRESSES, drivers=(RBD,), heartbeat=HEARTBEAT)
        for name, address in ADDRESSES.items():
            self.set_addresses(name, address, *filter(None, [self._six.get(name)]))
            self.api.boot(name)
        self.deploy("db")
        self.writer = self.node_a_opens("db")

    def close(self) -> None:
        """End the clients."""
        self._ends.close()

    # nodes

    def lose(self, name: str = NODE_A) -> None:
        """A node falls silent, until its Ready is Unknown; its client goes on writing."""
        self.kubelets.stop_node(name)
        self.wait_lost(name)

    def recover(self, name: str = NODE_A, rebooted: bool = False) -> None:
        """Its kubelet is back; the client is the caller's business.

        A reboot is nothing but another bootID in the node's status.
        """
        if rebooted:
            self.api.boot(name)
        self.kubelets.start_node(name)
        self.wait_back(name)

    def set_addresses(self, name: str, *addresses: str) -> None:
        """The InternalIPs that its kubelet reports."""
        listed = [{"type": "InternalIP", "address": address} for address in addresses]
        self._patch_status(name, {"addresses": [*listed, {"type": "Hostname", "address": name}]})

    # clients of Ceph

    def node_a_opens(self, name: str = "db") -> Writer:
        """What a mount on A comes to: a client that writes."""
        return self.client_opens(name, ADDRESSES[NODE_A], self._six.get(NODE_A, ""))

    def node_b_opens(self, name: str = "db") -> Writer:
        """The same on B."""
        return self.client_opens(name, ADDRESSES[NODE_B], self._six.get(NODE_B, ""))

    def client_opens(self, name: str, address: str, six: str = "") -> Writer:
        """The same at any address."""
        return self._open(Writer(self.storage.ceph, self.image(name), address, six=six))

    def node_b_visits(self, name: str = "db") -> Visitor:
        """NodeStage on B, tried again and again."""
        return self._open(Visitor(self.storage.ceph, self.image(name), ADDRESSES[NODE_B]))

    def content(self) -> int:
        """Number of the newest block of A's that the image of ``db`` holds."""
        return self.writer.content()

    def watches(self) -> bool:
        """A's client is a watcher of the image of ``db``."""
        return self.storage.watches(self.writer)

    # parts

    def _open(self, client: C) -> C:
        self._ends.enter_context(client)
        return client

    def _patch_status(self, name: str, status: dict[str, Any]) -> None:
        self.api.merge(path("Node", name) + "/status", {"status": status})
