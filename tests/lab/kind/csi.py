# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real CSI driver on a cluster: its plugin on each node, its controller and the real
external-attacher beside the cluster.
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
from .build import attacher, driver
from .cluster import VOLUMES, Kind

NAME = "csi.lab.example"
IMAGE = "storage-ops/csi-driver:1"
KUBELET = "/var/lib/kubelet"
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


class Served:
    """A driver by its name; the nodes have the image of its plugin."""

    def __init__(self, name: str, access: Access, nodes: Sequence[str], tied: bool) -> None:
        self.name, self.access, self.nodes, self.tied = name, access, nodes, tied
        self._processes = [Process(access.folder, part) for part in ("csi-driver", "csi-attacher")]

    def serve(self, controller: Sequence[str], plugin: Object) -> None:
        """Start all of it, until all nodes have it; with these arguments, as this DaemonSet."""
        own, real = driver(), attacher()
        socket = self.access.folder / "csi.sock"
        commands = (
            [own["driver"], f"--name={self.name}", f"--endpoint={socket}", *controller],
            [real["csi-attacher"], f"--kubeconfig={self.access.kubeconfig()}"]
            + [f"--csi-address=unix://{socket}", "--http-endpoint=", "--v=4"],
        )
        for process, command in zip(self._processes, commands, strict=True):
            process.start(command, self.tied)
            process.check()
        self.access.api().create(k8s.csi_driver(self.name), plugin)
        wait(self._registered, f"{', '.join(self.nodes)} have the driver", START_DEADLINE)

    def stop(self) -> None:
        """End what runs beside the cluster."""
        for process in self._processes:
            process.stop(signal.SIGKILL)

    def logs(self) -> str:
        """For an error message."""
        return "\n".join(process.log.read_text()[-3000:] for process in self._processes)

    def _registered(self) -> bool:
        for process in self._processes:
            process.check()
        api = self.access.api()
        nodes = [api.find("CSINode", node) for node in self.nodes]
        return all(node and self.name in _drivers(node) for node in nodes)


class Driver(Served):
    """On a kind cluster: volumes are folders that all nodes share, and one node at a time may have
    one.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__(NAME, kind, kind.workers, kind.tied)
        self.kind = kind
        self._attached = kind.folder / "attached"

    def start(self) -> None:
        """Until both workers have it. Raises Unavailable when it cannot be had here."""
        self._attached.mkdir(exist_ok=True)
        self.kind.import_image(image())
        shared = {"kubelet": (KUBELET, KUBELET), "volumes": (VOLUMES, VOLUMES)}
        plugin = daemon_set("csi-driver", NAME, [f"--volumes={VOLUMES}"], shared, {})
        self.serve([f"--attached={self._attached}"], plugin)

    def forget(self) -> None:
        """No volume has anything in it, nor is attached."""
        for folder in (self.kind.volumes, self._attached):
            for found in folder.iterdir():
                runs.remove(found)

    def attached(self) -> dict[str, str]:
        """Volume -> node, as the array has it."""
        return {found.name: found.read_text() for found in self._attached.iterdir()}

    def written(self, volume: str, name: str) -> str:
        """What an application has in a file of its volume; empty: there is none."""
        found = self.kind.volumes / volume / name
        return found.read_text() if found.exists() else ""


def _drivers(node: Object) -> set[str]:
    return {found["name"] for found in node["spec"].get("drivers") or []}


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
