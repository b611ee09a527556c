# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kind cluster as the tests use it, and what its pods are made of."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.common import LabError, wait
from lab.kind.cluster import Kind
from lab.kind.csi import NAME
from lab.kind.node_image import BUSYBOX
from lab.kubernetes import api as k8s
from lab.kubernetes.access import Access
from lab.kubernetes.api import KINDS, ApiError, Object, path_of

from support.cluster import Reached

RESET_DEADLINE = 60.0
# In the order in which they are deleted: what makes others comes first.
MADE_BY_TESTS = (
    *("PodDisruptionBudget", "StatefulSet", "Deployment", "DaemonSet", "ReplicaSet", "Pod"),
    *("PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment"),
)
SYSTEM = ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")

# As impatient as compliance can be: whatever is only on its way would be found.
IMPATIENT: dict[str, Any] = {
    "min_age_seconds": 0,
    "observation_seconds": 1,
    "pending_seconds": 1,
    "grace_seconds": 1,
}


class Running(Reached):
    """A cluster with real kubelets as fresh as after its start; its driver stays, if a test has
    started it.
    """

    def __init__(self, access: Access, workers: Sequence[str]) -> None:
        self.workers = tuple(workers)
        super().__init__(access)
        self.reset()

    def reset(self) -> None:
        """Delete what tests have made, and see it gone."""
        for worker in self.workers:
            change = {"spec": {"unschedulable": None, "taints": None}}
            self.api.merge(k8s.path("Node", worker), change)
        for found in self.left():
            self.api.delete(path_of(found), grace=0)
        try:
            wait(lambda: not self.left(), "what a test has made is gone", RESET_DEADLINE)
        except LabError as exc:
            names = [(found["kind"], found["metadata"]["name"]) for found in self.left()]
            raise LabError(f"{exc}: {names}") from exc

    def left(self) -> list[Object]:
        """What there is besides the system's own."""
        found = []
        for kind in MADE_BY_TESTS:
            for each in self._all(kind):
                if each["metadata"].get("namespace") not in SYSTEM:
                    # A list names the kind only once.
                    found.append({**each, "kind": kind, "apiVersion": KINDS[kind][0]})
        return found

    def _all(self, kind: str) -> list[Object]:
        try:
            return self.api.all(kind)
        except ApiError as exc:
            # Kubernetes 1.20 has no PodDisruptionBudgets of this version.
            if exc.status != 404:
                raise
            return []


class KindCluster(Running):
    """A kind cluster."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        super().__init__(kind, kind.workers)

    def inventory(self, folder: Path, *nodes: str) -> Path:
        """Of these nodes as hosts."""
        made = folder / "inventory.yml"
        made.write_text(json.dumps({"all": {"hosts": self.kind.hosts(*nodes)}}))
        return made

    @contextlib.contextmanager
    def without_controller_manager(self) -> Iterator[None]:
        """The kubelet of the control plane ends it, and starts it again afterwards."""
        node, name = self.kind.control_plane, "kube-controller-manager"
        manifest, aside = f"/etc/kubernetes/manifests/{name}.yaml", f"/root/{name}.yaml"

        def runs() -> bool:
            return bool(self.kind.on(node, "crictl", "ps", "--quiet", "--name", name).strip())

        self.kind.on(node, "mv", manifest, aside)
        try:
            wait(lambda: not runs(), f"{name} has ended", RESET_DEADLINE)
            yield
        finally:
            self.kind.on(node, "mv", aside, manifest)
            wait(runs, f"{name} runs again", RESET_DEADLINE)

    def logs(self, pod: str) -> str:
        """What a pod's container has said."""
        return self.kind.kubectl("logs", pod)


def running(*script: str, claim: str = "") -> dict[str, Any]:
    """Of a pod's spec: a container of the lab's own image that runs these lines of a shell."""
    container: Object = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "\n".join(script)],
    }
    if claim:
        container["volumeMounts"] = [{"name": claim, "mountPath": f"/{claim}"}]
    return {"containers": [container]}


def counting(claim: str) -> dict[str, Any]:
    """An application that goes on counting in its volume from where it was, five times a second."""
    return running(
        f"n=$(cat /{claim}/count 2>/dev/null || echo 0)",
        f"while :; do n=$((n + 1)); echo $n > /{claim}/new && mv /{claim}/new /{claim}/count",
        "    sleep 0.2",
        "done",
        claim=claim,
    )


@contextlib.contextmanager
def without_python(kind: Kind, node: str) -> Iterator[None]:
    """A node has no Python for a while."""
    aside = "/root/python"
    kind.on(node, "mkdir", "-p", f"{aside}/bin", f"{aside}/lib")
    for folder in ("bin", "lib"):
        kind.on(node, "sh", "-c", f"mv /usr/{folder}/python3* {aside}/{folder}")
    try:
        yield
    finally:
        for folder in ("bin", "lib"):
            kind.on(node, "sh", "-c", f"mv {aside}/{folder}/* /usr/{folder}")
        kind.on(node, "rm", "-r", aside)


def left_over(cluster: Running, name: str, node: str, driver: str = NAME) -> str:
    """An attachment that the real attacher has made, of a volume that is released; its name."""
    api = cluster.api
    volume = api.add_volume(name, driver, f"vol-{name}")
    api.delete(k8s.path("PersistentVolumeClaim", name))
    where = k8s.path("PersistentVolume", volume)
    cluster.wait(lambda: (api.get(where) or {})["status"]["phase"] == "Released", "released")
    return attach(cluster, volume, f"vol-{name}", node, driver)


def attach(cluster: Running, volume: str, handle: str, node: str, driver: str = NAME) -> str:
    """Have the real attacher attach a volume that no pod needs; the attachment's name."""
    api, made = cluster.api, k8s.attachment_name(handle, driver, node)
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
    body = {"apiVersion": k8s.STORAGE, "kind": "VolumeAttachment", "spec": spec}
    api.create({**body, "metadata": {"name": made}})

    def attached() -> bool:
        found = api.find("VolumeAttachment", made) or {}
        return bool(found.get("status", {}).get("attached"))

    cluster.wait(attached, f"{volume} is attached", 60)
    return made


def add_disk(kind: Kind, node: str, name: str, *make: str) -> tuple[str, str]:
    """A block device of a node, of a file on which this program has made something: its path, and
    the process of the node that holds it. The kernel frees it with that process.
    """
    image = f"/root/{name}.img"
    kind.on(node, "truncate", "--size=16M", image)
    if make:
        kind.on(node, *make, image)
    script = """
for n in $(seq 0 63); do [ -b /dev/loop$n ] || mknod /dev/loop$n b 7 $n; done
device=$(losetup --find --show "$0") || exit
exec 3<"$device"
losetup --detach "$device"
rm "$0"
sleep infinity >/dev/null 2>&1 </dev/null &
echo "$device" $!
"""
    device, process = kind.on(node, "sh", "-c", script, image).split()
    return device, process


def lose_status(cluster: Running, handle: str, node: str, driver: str = NAME) -> None:
    """A volume that is attached goes from its node's status, as by the bugs of old controller
    managers. Today's writes the list again at the next change.
    """
    lost = k8s.unique_name(driver, handle)
    cluster.wait(lambda: lost in cluster.api.volumes_attached(node), "attached", 60)
    found = cluster.api.find("Node", node) or {}
    left = [entry for entry in found["status"]["volumesAttached"] if entry["name"] != lost]
    change = {"status": {"volumesAttached": left}}
    cluster.api.merge(k8s.path("Node", node) + "/status", change)


def projecting(spec: dict[str, Any], claim: str) -> dict[str, Any]:
    """Of a pod's spec: the same with what the kubelet itself projects, as into nearly every pod: a
    token of its account, the API server's certificate, a field. One file of it also by a subPath.
    """
    named = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"configMap": {"name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": [named]}},
    ]
    mounts: list[Object] = [
        {"name": "projected", "mountPath": "/projected", "readOnly": True},
        {"name": "projected", "mountPath": "/ca.crt", "subPath": "ca.crt"},
    ]
    container = {**spec["containers"][0]}
    container["volumeMounts"] = [*container["volumeMounts"], *mounts]
    volumes = spec.get("volumes") or k8s.pod_spec([claim])["volumes"]
    return {
        **spec,
        "containers": [container],
        "volumes": [*volumes, {"name": "projected", "projected": {"sources": sources}}],
        # By name, for control planes of this lab without the admission plugin that says so.
        "serviceAccountName": "default",
        "automountServiceAccountToken": True,
    }


def on(node: str) -> dict[str, Any]:
    """Of a pod's spec: only on this node, by way of the scheduler."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


__all__ = [
    "IMPATIENT",
    "NAME",
    "KindCluster",
    "add_disk",
    "attach",
    "counting",
    "left_over",
    "lose_status",
    "on",
    "projecting",
    "running",
    "without_python",
]
