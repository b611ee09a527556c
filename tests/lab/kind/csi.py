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
KUBELET = "/var/lib/kubelet"
START_DEADLINE = 60.0


class Driver:
    """The driver: volumes are folders that all nodes share, and one node at a time may have one."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.folder = kind.folder / "csi"
        self._processes = [Process(kind.folder, name) for name in ("csi-driver", "csi-attacher")]

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        own, real = driver(), attacher()
        for name in ("root", "attached"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(own["driver"], self.folder / "root/driver")
        image = self.folder / "driver.tar"
        archive.write_one(image, [IMAGE], self.folder / "root", {"Entrypoint": ["/driver"]})
        self.kind.import_image(image)
        socket = self.folder / "csi.sock"
        commands = (
            [own["driver"], f"--name={NAME}", f"--endpoint={socket}"]
            + [f"--attached={self.folder / 'attached'}"],
            [real["csi-attacher"], f"--kubeconfig={self.kind.kubeconfig()}"]
            + [f"--csi-address=unix://{socket}", "--http-endpoint=", "--v=4"],
        )
        for process, command in zip(self._processes, commands, strict=True):
            process.start(command, self.kind.tied)
            process.check()
        self.kind.api().create(k8s.csi_driver(NAME), _plugin())
        wait(self._registered, "both workers have the driver", START_DEADLINE)

    def stop(self) -> None:
        """End what runs beside the cluster."""
        for process in self._processes:
            process.stop(signal.SIGKILL)

    def forget(self) -> None:
        """No volume has anything in it, nor is attached."""
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
        api = self.kind.api()
        nodes = [api.find("CSINode", worker) for worker in self.kind.workers]
        return all(node and NAME in _drivers(node) for node in nodes)


def _drivers(node: Object) -> set[str]:
    return {found["name"] for found in node["spec"].get("drivers") or []}


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
    made = k8s.workload("DaemonSet", "csi-driver", namespace="kube-system", hostNetwork=True)
    pod = made["spec"]["template"]["spec"]
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
