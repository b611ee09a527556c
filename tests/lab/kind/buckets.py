# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CSI driver on a kind cluster with another habit: its volumes are buckets of a real S3 server,
which s3fs serves in the plugin's container.
"""

from __future__ import annotations

from ..ceph.gateway import Gateway
from ..common import wait
from ..kubernetes import api as k8s
from .cluster import Kind
from .csi import START_DEADLINE, Plugged, daemon_set, image

# Under which name the collection knows what it says to s3fs.
NAME = "ru.yandex.s3.csi"
SECRET = {"namespace": "kube-system", "name": "csi-s3-secret"}


class BucketDriver(Plugged):
    """k8s-csi-s3: nothing is attached, and a Secret has the keys and the address of the server."""

    def __init__(self, kind: Kind, gateway: Gateway) -> None:
        super().__init__(NAME, kind, kind.workers)
        self.kind, self.gateway = kind, gateway

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        self.kind.import_image(image())
        self._relay = self.kind.engine.lead_out(self.gateway.port)
        told = {
            "accessKeyID": self.gateway.access_key,
            "secretAccessKey": self.gateway.secret_key,
            "endpoint": f"http://{self.kind.gateway()}:{self.gateway.port}",
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": SECRET, "stringData": told}
        self.kind.api().create(secret)
        # s3fs is the node's own, so the plugin works in the node's root.
        host = {"host": ("/", "/host")}
        self.plug(daemon_set("csi-s3", NAME, ["--root=/host", "--s3fs"], host, {}), False)

    def stop(self) -> None:
        """End what runs beside the cluster."""
        self._relay.stop()

    def add_volume(self, name: str) -> None:
        """A claim, its volume, and the bucket of the same name, as the provisioner makes them."""
        self.gateway.put(name)
        made, claim = k8s.volume(name, NAME, name, modes=("ReadWriteMany",))
        made["spec"]["csi"] |= {
            "volumeAttributes": {"mounter": "s3fs"},
            "nodeStageSecretRef": SECRET,
            "nodePublishSecretRef": SECRET,
        }
        self.kind.api().create(made, claim)

    def mounts(self, node: str) -> list[str]:
        """Of s3fs on a node."""
        lines = self.kind.on(node, "cat", "/proc/mounts").splitlines()
        return [line for line in lines if "fuse.s3fs" in line]

    def kill(self, node: str) -> None:
        """The plugin's pod of a node is deleted, as by an update of its DaemonSet: its servers die.
        Another one comes.
        """
        (old,) = self.plugins(node)
        meta = old["metadata"]
        self.kind.api().delete(k8s.path("Pod", meta["name"], meta["namespace"]), grace=0)
        wait(lambda: self._another(node, meta["uid"]), "another plugin", START_DEADLINE)

    def _another(self, node: str, old: str) -> bool:
        return any(
            found["metadata"]["uid"] != old and found["status"].get("phase") == "Running"
            for found in self.plugins(node)
        )
