# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real CSI driver on a cluster: its plugin on each node, its controller, the real
external-attacher and the real external-provisioner beside the cluster.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import runs
from ..common import cache_dir, locked, wait
from ..kubernetes import api as k8s
from ..kubernetes.access import Access
from ..kubernetes.api import Object
from ..kubernetes.process import Process
from . import archive
from .build import attacher, driver, provisioner
from .cluster import VOLUMES, Kind

NAME = "csi.lab.example"
# Of a driver whose volumes are not attached.
UNATTACHED = "csi.share.example"
# Whose claims the provisioner makes volumes for.
CLASS = "provisioned"
IMAGE = "storage-ops/csi-driver:1"
PLUGIN = "csi-driver"
KUBELET = "/var/lib/kubelet"
# Of the plugin of a driver whose volumes are folders: on the node, in the container.
SHARED = {"kubelet": (KUBELET, KUBELET), "volumes": (VOLUMES, VOLUMES)}
# A node with this label has no plugin.
WITHOUT = "lab/without-driver"
START_DEADLINE, PACK_DEADLINE = 60.0, 60.0


def image() -> Path:
    """An archive with the image of the plugin. Raises Unavailable when it cannot be had."""
    program = driver()
    # Made once: archives of the same program differ in their times.
    made_by = hashlib.sha256(Path(archive.__file__).read_bytes()).hexdigest()[:12]
    target = cache_dir() / "images" / f"{program.path.name}-{made_by}.tar"
    folder = target.parent
    with (
        locked(folder / "csi-driver.lock", PACK_DEADLINE),
        tempfile.TemporaryDirectory(prefix=".csi-driver-", dir=folder) as work,
    ):
        if not target.exists():
            root, packed = Path(work, "root"), Path(work, target.name)
            root.mkdir()
            shutil.copy(program["driver"], root / "driver")
            archive.write_one(packed, [IMAGE], root, {"Entrypoint": ["/driver"]})
            packed.rename(target)
    return target


class Plugged:
    """A driver by its name, of which only its nodes have a part; they have the image of that."""

    def __init__(self, name: str, access: Access, nodes: Sequence[str]) -> None:
        self.name, self.access, self.nodes = name, access, nodes
        self.plugin = ""

    def plug(self, plugin: Object, attach_required: bool) -> None:
        """Start this DaemonSet, until all nodes have the driver."""
        self.plugin = plugin["metadata"]["name"]
        self.access.api().create(k8s.csi_driver(self.name, attach_required), plugin)
        wait(self._registered, f"{', '.join(self.nodes)} have the driver", START_DEADLINE)

    def unplug(self) -> None:
        """End the plugins, and see them gone."""
        api = self.access.api()
        api.delete(k8s.path("DaemonSet", self.plugin, "kube-system"))
        api.delete(k8s.path("CSIDriver", self.name))
        wait(lambda: not any(map(self.plugins, self.nodes)), "the plugins end", START_DEADLINE)

    def is_on(self, node: str) -> bool:
        """The kubelet of a node knows the driver."""
        found = self.access.api().find("CSINode", node) or {"spec": {}}
        return any(entry["name"] == self.name for entry in found["spec"].get("drivers") or [])

    def plugins(self, node: str) -> list[Object]:
        """Its pods on a node."""
        return [
            pod
            for pod in self.access.api().all("Pod", "kube-system")
            if pod["metadata"].get("labels", {}).get("app") == self.plugin
            and pod["spec"].get("nodeName") == node
        ]

    def _registered(self) -> bool:
        return all(self.is_on(node) for node in self.nodes)


class Served(Plugged):
    """One with a controller and an attacher, too."""

    def __init__(self, name: str, access: Access, nodes: Sequence[str], tied: bool) -> None:
        super().__init__(name, access, nodes)
        self.tied = tied
        # Of its own: a cluster may have two.
        own = name.partition(".")[0]
        self._socket = access.folder / f"{own}.sock"
        self._processes = [
            Process(access.folder, f"{own}-{part}") for part in ("driver", "attacher")
        ]

    def serve(self, controller: Sequence[str], plugin: Object) -> None:
        """Start all of it, until all nodes have it; with these arguments, as this DaemonSet."""
        command = [driver()["driver"], f"--name={self.name}", f"--endpoint={self._socket}"]
        self._processes[0].start([*command, *controller], self.tied)
        self._processes[0].check()
        self.start_attacher()
        self.plug(plugin, attach_required=True)

    def stop(self) -> None:
        """End what runs beside the cluster."""
        for process in self._processes:
            process.stop(signal.SIGKILL)

    def start_attacher(self) -> None:
        """The external-attacher."""
        self._processes[1].start([attacher()["csi-attacher"], *self._sidecar()], self.tied)
        self._processes[1].check()

    def _sidecar(self) -> list[str]:
        """What each of them is told."""
        where = [f"--kubeconfig={self.access.kubeconfig()}", f"--csi-address=unix://{self._socket}"]
        return [*where, "--http-endpoint=", "--v=4"]

    def stop_attacher(self) -> None:
        """As if its Deployment had been scaled to zero."""
        self._processes[1].stop()

    def logs(self) -> str:
        """For an error message."""
        return "\n".join(process.log.read_text()[-3000:] for process in self._processes)

    def _registered(self) -> bool:
        for process in self._processes:
            process.check()
        return super()._registered()


class Driver(Served):
    """On a kind cluster: volumes are folders that all nodes share, and one node at a time may have
    one.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__(NAME, kind, kind.workers, kind.tied)
        self.kind = kind
        self._attached = kind.folder / "attached"
        self._provisioner = Process(kind.folder, "csi-provisioner")

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        self._attached.mkdir(exist_ok=True)
        self.kind.import_image(image())
        place = {"affinity": _only_nodes_without(WITHOUT)}
        plugin = daemon_set(PLUGIN, NAME, [f"--volumes={VOLUMES}"], SHARED, {}, **place)
        self.serve([f"--attached={self._attached}", f"--volumes={self.kind.volumes}"], plugin)

    def stop(self) -> None:
        """End what runs beside the cluster."""
        self._provisioner.stop(signal.SIGKILL)
        super().stop()

    def start_provisioner(self) -> None:
        """The external-provisioner, and its class. Raises Unavailable when it cannot be had."""
        # The driver has no topology, and a test cannot wait for minutes between two attempts.
        habits = ["--feature-gates=Topology=false", "--retry-interval-max=4s"]
        command = [provisioner()["csi-provisioner"], *self._sidecar(), *habits]
        self._provisioner.start(command, self.tied)
        self.kind.api().create(k8s.storage_class(CLASS, NAME))
        self._provisioner.check()

    def leave(self, node: str) -> None:
        """The plugin of a node goes, and its registration with it."""
        self._label(node, "")
        # node-driver-registrar removes its socket when it ends, and the kubelet then forgets the
        # driver.
        wait(lambda: not self.plugins(node), f"the plugin of {node} has ended", START_DEADLINE)
        self.kind.on(node, "rm", "-f", f"{KUBELET}/plugins_registry/{NAME}-reg.sock")
        wait(lambda: not self.is_on(node), f"{node} has no driver", START_DEADLINE)

    def come_back(self, node: str) -> None:
        """The plugin of a node is there again."""
        self._label(node, None)
        wait(lambda: self.is_on(node), f"{node} has the driver again", START_DEADLINE)

    def forget(self) -> None:
        """No volume has anything in it, nor is attached. Those of pods that are gone may still be
        unmounted.
        """
        wait(lambda: not any(map(self._staged, self.kind.workers)), "no worker has a volume", 60)
        for folder in (self.kind.volumes, self._attached):
            for found in folder.iterdir():
                runs.remove(found)

    def attached(self) -> dict[str, str]:
        """Volume -> node, as the array has it."""
        return {found.name: found.read_text() for found in self._attached.iterdir()}

    def give(self, volume: str, node: str) -> None:
        """The array has attached a volume to this node, whatever Kubernetes knows."""
        (self._attached / volume).write_text(node)

    def written(self, volume: str, name: str) -> str:
        """What an application has in a file of its volume; empty: there is none."""
        found = self.kind.volumes / volume / name
        return found.read_text() if found.exists() else ""

    def _staged(self, node: str) -> bool:
        # csi_attacher.go, makeDeviceMountPath.
        mounts = self.kind.on(node, "cat", "/proc/mounts")
        return any(
            f"{KUBELET}/plugins/kubernetes.io/csi/{name}/" in mounts for name in (NAME, UNATTACHED)
        )

    def _label(self, node: str, value: str | None) -> None:
        change = {"metadata": {"labels": {WITHOUT: value}}}
        self.kind.api().merge(k8s.path("Node", node), change)


class UnattachedDriver(Plugged):
    """Another one on a kind cluster, whose volumes are not attached to the nodes that use them."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(UNATTACHED, kind, kind.workers)
        self.kind = kind

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        self.kind.import_image(image())
        arguments = [f"--volumes={VOLUMES}", "--unattached"]
        plugin = daemon_set("csi-share", UNATTACHED, arguments, SHARED, {})
        self.plug(plugin, attach_required=False)


def daemon_set(
    called: str,
    name: str,
    arguments: Sequence[str],
    folders: Mapping[str, tuple[str, str]],
    variables: Mapping[str, str],
    **spec: Any,
) -> Object:
    """The node plugin of the driver of that name, with folders: volume -> (on the node, in the
    container).
    """
    mounts: list[Object] = [
        {"name": volume, "mountPath": inside, "mountPropagation": "Bidirectional"}
        for volume, (_node, inside) in folders.items()
    ]
    own = [
        *(f"--name={name}", "--node=$(NODE)"),
        f"--endpoint={KUBELET}/plugins/{name}/csi.sock",
        f"--registry={KUBELET}/plugins_registry",
    ]
    env: list[Object] = [{"name": key, "value": value} for key, value in variables.items()]
    env.append({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    made = k8s.workload("DaemonSet", called, namespace="kube-system", hostNetwork=True, **spec)
    pod = made["spec"]["template"]["spec"]
    pod["volumes"] = [
        {"name": volume, "hostPath": {"path": there}} for volume, (there, _in) in folders.items()
    ]
    pod["containers"] = [
        {
            "name": "driver",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": [*own, *arguments],
            "env": env,
            "securityContext": {"privileged": True},
            "volumeMounts": mounts,
        }
    ]
    return made


def _only_nodes_without(label: str) -> Object:
    missing = {"key": label, "operator": "DoesNotExist"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [missing]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
