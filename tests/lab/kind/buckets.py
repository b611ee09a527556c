# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CSI driver with other habits: its volumes are buckets of a real S3 server, which s3fs or
rclone serves in the plugin's container.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ceph.cluster import Ceph
from ..ceph.gateway import Gateway
from ..common import wait
from ..kubernetes import api as k8s
from ..kubernetes.access import Access
from .cluster import Kind
from .csi import START_DEADLINE, Plugged, daemon_set, image

# Under which name the collection knows what it says to s3fs.
NAME = "ru.yandex.s3.csi"
UNSTAGED, WITHIN = "ch.ctrox.csi.s3-driver", "csi-fs"
SECRET = {"namespace": "kube-system", "name": "csi-s3-secret"}


class Buckets(Plugged):
    """k8s-csi-s3: nothing is attached, and a Secret has the keys and the address of the server."""

    def __init__(
        self, access: Access, nodes: Sequence[str], gateway: Gateway, name: str = NAME
    ) -> None:
        super().__init__(name, access, nodes)
        self.gateway = gateway

    def serve(self, host: str) -> None:
        """Until all nodes have it. They reach the server at this host."""
        told = {
            "accessKeyID": self.gateway.access_key,
            "secretAccessKey": self.gateway.secret_key,
            "endpoint": f"http://{host}:{self.gateway.port}",
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": SECRET, "stringData": told}
        self.access.api().create(secret)
        self.plug_habits("csi-s3", "--s3fs")

    def plug_habits(self, called: str, *habits: str) -> None:
        """Start the DaemonSet of this name."""
        # Their programs are the node's own, so the plugin works in the node's root.
        root = {"host": ("/", "/host")}
        self.plug(daemon_set(called, self.name, ["--root=/host", *habits], root, {}), False)

    def add_volume(self, name: str, mounter: str = "s3fs") -> None:
        """A claim, its volume, and the bucket of the same name, as the provisioner makes them."""
        self.gateway.put(name)
        made, claim = k8s.volume(name, self.name, name, modes=("ReadWriteMany",))
        made["spec"]["csi"] |= {
            "volumeAttributes": {"mounter": mounter},
            "nodeStageSecretRef": SECRET,
            "nodePublishSecretRef": SECRET,
        }
        self.access.api().create(made, claim)

    def kill(self, node: str) -> None:
        """The plugin's pod of a node is deleted, as by an update of its DaemonSet: its servers die.
        Another one comes.
        """
        (old,) = self.plugins(node)
        meta = old["metadata"]
        self.access.api().delete(k8s.path("Pod", meta["name"], meta["namespace"]), grace=0)
        wait(lambda: self._another(node, meta["uid"]), "another plugin", START_DEADLINE)

    def _another(self, node: str, old: str) -> bool:
        return any(
            found["metadata"]["uid"] != old and found["status"].get("phase") == "Running"
            for found in self.plugins(node)
        )


class BucketDriver(Buckets):
    """On a kind cluster."""

    def __init__(self, kind: Kind, gateway: Gateway, name: str = NAME) -> None:
        super().__init__(kind, kind.workers, gateway, name)
        self.kind = kind

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        self.kind.import_image(image())
        self._relay = self.kind.engine.lead_out(self.gateway.port)
        self.serve(self.kind.gateway())

    def stop(self) -> None:
        """End what runs beside the cluster."""
        self._relay.stop()

    def mounts(self, node: str) -> list[str]:
        """Of s3fs or rclone on a node."""
        lines = self.kind.on(node, "cat", "/proc/mounts").splitlines()
        return [line for line in lines if " fuse.s3fs " in line or " fuse.rclone " in line]


class UnstagedBucketDriver(BucketDriver):
    """csi-s3, beside the other one, with its Secret: it stages nothing, and each pod has a mount of
    its own, of a folder in the bucket.
    """

    def __init__(self, other: BucketDriver) -> None:
        super().__init__(other.kind, other.gateway, UNSTAGED)

    def start(self) -> None:
        """Until both workers have it."""
        self.plug_habits("csi-s3-unstaged", "--s3fs", "--unstaged")

    def add_volume(self, name: str, mounter: str = "s3fs") -> None:
        """The same, with the folder."""
        super().add_volume(name, mounter)
        self.gateway.put(f"{name}/{WITHIN}/")


def start_with(kind: Kind, bucket: str) -> None:
    """The driver, and an S3 server of the cluster's own that has this bucket."""
    ceph = Ceph(kind.name, tied=kind.tied)
    ceph.start()
    gateway = Gateway(ceph)
    gateway.start()
    BucketDriver(kind, gateway).start()
    gateway.put(bucket)
