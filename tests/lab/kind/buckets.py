# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CSI driver with other habits: its volumes are buckets of a real S3 server, which s3fs or
rclone serves in the plugin's container.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ceph.cluster import Ceph
from ..ceph.gateway import Gateway
from ..common import LabError, wait
from ..kubernetes import api as k8s
from ..kubernetes.access import Access
from ..kubernetes.api import Object
from .cluster import Kind
from .csi import IMAGE, START_DEADLINE, Plugged, daemon_set, image

# Under which name the collection knows what it says to s3fs.
NAME = "ru.yandex.s3.csi"
UNSTAGED, WITHIN = "ch.ctrox.csi.s3-driver", "csi-fs"
UNITS = "units.csi.lab.example"
# juicefs-csi-driver's pkg/config/config.go, MountPointPath.
MOUNT_PODS, PRIVATE = "csi.juicefs.com", "/var/lib/juicefs/volume"
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

    def plug_habits(self, called: str, *habits: str, **spec: Any) -> None:
        """Start the DaemonSet of this name; ``spec``: of its pods."""
        # Their programs are the node's own, so the plugin works in the node's root.
        root = {"host": ("/", "/host")}
        arguments = ["--root=/host", *habits]
        self.plug(daemon_set(called, self.name, arguments, root, {}, **spec), False)

    def add_volume(self, name: str, mounter: str = "s3fs", **more: str) -> None:
        """A claim, its volume, and the bucket of the same name, as the provisioner makes them."""
        self.gateway.put(name)
        made, claim = k8s.volume(name, self.name, name, modes=("ReadWriteMany",))
        made["spec"]["csi"] |= {
            "volumeAttributes": {"mounter": mounter, **more},
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

    def add_volume(self, name: str, mounter: str = "s3fs", **more: str) -> None:
        """The same, with the folder."""
        super().add_volume(name, mounter, **more)
        self.gateway.put(f"{name}/{WITHIN}/")


class UnitBucketDriver(BucketDriver):
    """Beside the other one, with its Secret: its servers are units of the node's systemd, and their
    program is in the plugin's folder.
    """

    def __init__(self, other: BucketDriver) -> None:
        super().__init__(other.kind, other.gateway, UNITS)

    def start(self) -> None:
        """Until both workers have it."""
        # Who talks to systemd is looked up in the node's /proc.
        self.plug_habits("csi-s3-units", "--s3fs", "--units", hostPID=True)

    def unit(self, name: str) -> str:
        """The unit that serves a volume."""
        return f"s3fs-{name}.service"


class MountPodDriver(BucketDriver):
    """JuiceFS, beside the other one, with its Secret: each volume is served by a pod of its own on
    each node, and pods get binds of what that has mounted. The lab makes those pods, as the
    driver's plugin does itself.
    """

    def __init__(self, other: BucketDriver) -> None:
        super().__init__(other.kind, other.gateway, MOUNT_PODS)

    def start(self) -> None:
        """Until both workers have it."""
        self.plug_habits("csi-juicefs", f"--private={PRIVATE}")

    def add_volume(self, name: str, mounter: str = "s3fs", **more: str) -> None:
        """The same, with its mount pods."""
        super().add_volume(name, mounter, **more)
        for node in self.nodes:
            self.serve_on(node, name)

    def remove_volume(self, name: str) -> None:
        """Its mount pods, and what they have mounted. No pod may have it."""
        for node in self.nodes:
            self.end_on(node, name)
            self.kind.on(node, "umount", "--lazy", f"{PRIVATE}/{name}")

    def mounts(self, node: str) -> list[str]:
        """Those of pods."""
        return [line for line in super().mounts(node) if f" {PRIVATE}/" not in line]

    def mount_pod(self, node: str, name: str) -> Object | None:
        """The one of a volume on a node."""
        return self.access.api().find("Pod", f"juicefs-{name}-{node}", "kube-system")

    def serve_on(self, node: str, name: str) -> None:
        """A mount pod comes, and serves the volume."""
        env = [
            {"name": key, "valueFrom": {"secretKeyRef": {"name": SECRET["name"], "key": key}}}
            for key in ("accessKeyID", "secretAccessKey", "endpoint")
        ]
        mount = {"name": "host", "mountPath": "/host", "mountPropagation": "Bidirectional"}
        container = {
            "name": "jfs-mount",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": ["--root=/host", f"--private={PRIVATE}", f"--serve={name}"],
            "env": env,
            "securityContext": {"privileged": True},
            "volumeMounts": [mount],
        }
        spec = {
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
            "hostNetwork": True,
            "containers": [container],
        }
        called = f"juicefs-{name}-{node}"
        self.access.api().create(k8s.pod(called, (), node, "kube-system", **spec))
        wait(lambda: self._is_served(node, name), f"{node} serves {name}", START_DEADLINE)

    def end_on(self, node: str, name: str) -> None:
        """The mount pod of a volume goes, with its server, and none comes."""
        api, called = self.access.api(), f"juicefs-{name}-{node}"
        api.delete(k8s.path("Pod", called, "kube-system"), grace=0)
        wait(lambda: not self._server(node, name), f"{called} has ended", START_DEADLINE)

    def _is_served(self, node: str, name: str) -> bool:
        try:
            self.kind.on(node, "ls", f"{PRIVATE}/{name}")
        except LabError:
            return False
        return f" {PRIVATE}/{name} " in self.kind.on(node, "cat", "/proc/mounts")

    def _server(self, node: str, name: str) -> str:
        script = f"pgrep -f '^s3fs -f {name}:' || true"
        return self.kind.on(node, "sh", "-c", script)


def start_with(kind: Kind, bucket: str) -> None:
    """The driver, and an S3 server of the cluster's own that has this bucket."""
    ceph = Ceph(kind.name, tied=kind.tied)
    ceph.start()
    gateway = Gateway(ceph)
    gateway.start()
    BucketDriver(kind, gateway).start()
    gateway.put(bucket)
