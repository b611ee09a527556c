# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real CSI driver on a kind cluster: its plugin on each worker, its controller and the real
external-attacher beside the cluster.
"""

from __future__ import annotations

import shutil
import signal

from .. import runs
from ..common import wait
from ..kubernetes import api as k8s
from ..kubernetes.api import Object
from ..kubernetes.process import Process
from . import archive
from .build import attacher, driver
from .cluster import VOLUMES, Kind

NAME = "csi.lab.example"
IMAGE = "storage-ops/csi-driver:1"
PLUGIN = "csi-driver"
KUBELET = "/var/lib/kubelet"
# A node with this label has no plugin.
WITHOUT = "lab/without-driver"
START_DEADLINE = 60.0


class Driver:
    """The driver: volumes are folders that all nodes share, and one node at a time may have one."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.folder = kind.folder / "csi"
        self._socket = self.folder / "csi.sock"
        self._processes = [Process(kind.folder, name) for name in ("csi-driver", "csi-attacher")]

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        own = driver()
        for name in ("root", "attached"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(own["driver"], self.folder / "root/driver")
        image = self.folder / "driver.tar"
        archive.write_one(image, [IMAGE], self.folder / "root", {"Entrypoint": ["/driver"]})
        self.kind.import_image(image)
        command = [own["driver"], f"--name={NAME}", f"--endpoint={self._socket}"]
        command += [f"--attached={self.folder / 'attached'}"]
        self._processes[0].start(command, self.kind.tied)
        self._processes[0].check()
        self.start_attacher()
        self.kind.api().create(k8s.csi_driver(NAME), _plugin())
        wait(self._registered, "both workers have the driver", START_DEADLINE)

    def stop(self) -> None:
        """End what runs beside the cluster."""
        for process in self._processes:
            process.stop(signal.SIGKILL)

    def start_attacher(self) -> None:
        """The external-attacher."""
        command = [attacher()["csi-attacher"], f"--kubeconfig={self.kind.kubeconfig()}"]
        command += [f"--csi-address=unix://{self._socket}", "--http-endpoint=", "--v=4"]
        self._processes[1].start(command, self.kind.tied)
        self._processes[1].check()

    def stop_attacher(self) -> None:
        """As if its Deployment had been scaled to zero."""
        self._processes[1].stop()

    def leave(self, node: str) -> None:
        """The plugin of a node goes, and its registration with it."""
        self._label(node, "")
        # node-driver-registrar removes its socket when it ends, and the kubelet then forgets the
        # driver.
        wait(lambda: not self._plugins(node), f"the plugin of {node} has ended", START_DEADLINE)
        self.kind.on(node, "rm", "-f", f"{KUBELET}/plugins_registry/{NAME}-reg.sock")
        wait(lambda: not self._is_on(node), f"{node} has no driver", START_DEADLINE)

    def come_back(self, node: str) -> None:
        """The plugin of a node is there again."""
        self._label(node, None)
        wait(lambda: self._is_on(node), f"{node} has the driver again", START_DEADLINE)

    def forget(self) -> None:
        """No volume has anything in it, nor is attached. Those of pods that are gone may still be
        unmounted.
        """
        for worker in self.kind.workers:
            wait(lambda node=worker: not self._staged(node), f"{worker} has no volume", 60)  # type: ignore[misc]
        for folder in (self.kind.volumes, self.folder / "attached"):
            for found in folder.iterdir():
                runs.remove(found)

    def attached(self) -> dict[str, str]:
        """Volume -> node, as the array has it."""
        notes = (self.folder / "attached").iterdir()
        return {found.name: found.read_text() for found in notes}

    def written(self, volume: str, name: str) -> str:
        """What an application has in a file of its volume; empty: there is none."""
        found = self.kind.volumes / volume / name
        return found.read_text() if found.exists() else ""

    def logs(self) -> str:
        """For an error message."""
        return "\n".join(process.log.read_text()[-3000:] for process in self._processes)

    def _registered(self) -> bool:
        for process in self._processes:
            process.check()
        return all(self._is_on(worker) for worker in self.kind.workers)

    def _is_on(self, node: str) -> bool:
        found = self.kind.api().find("CSINode", node) or {"spec": {}}
        return any(entry["name"] == NAME for entry in found["spec"].get("drivers") or [])

    def _staged(self, node: str) -> bool:
        # csi_attacher.go, makeDeviceMountPath.
        return f"{KUBELET}/plugins/kubernetes.io/csi/{NAME}/" in self.kind.on(
            node, "cat", "/proc/mounts"
        )

    def _label(self, node: str, value: str | None) -> None:
        change = {"metadata": {"labels": {WITHOUT: value}}}
        self.kind.api().merge(k8s.path("Node", node), change)

    def _plugins(self, node: str) -> list[Object]:
        return [
            pod
            for pod in self.kind.api().all("Pod", "kube-system")
            if pod["metadata"].get("labels", {}).get("app") == PLUGIN
            and pod["spec"].get("nodeName") == node
        ]


def _plugin() -> Object:
    """The DaemonSet of the node plugin."""
    folders = {"kubelet": KUBELET, "volumes": VOLUMES}
    mounts: list[Object] = [
        {"name": name, "mountPath": where, "mountPropagation": "Bidirectional"}
        for name, where in folders.items()
    ]
    arguments = [
        *(f"--name={NAME}", "--node=$(NODE)", f"--volumes={VOLUMES}"),
        *(
            f"--endpoint={KUBELET}/plugins/{NAME}/csi.sock",
            f"--registry={KUBELET}/plugins_registry",
        ),
    ]
    made = k8s.workload("DaemonSet", PLUGIN, namespace="kube-system", hostNetwork=True)
    pod = made["spec"]["template"]["spec"]
    pod["affinity"] = _only_nodes_without(WITHOUT)
    pod["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    pod["containers"] = [
        {
            "name": "driver",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": arguments,
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "securityContext": {"privileged": True},
            "volumeMounts": mounts,
        }
    ]
    return made


def _only_nodes_without(label: str) -> Object:
    missing = {"key": label, "operator": "DoesNotExist"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [missing]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
