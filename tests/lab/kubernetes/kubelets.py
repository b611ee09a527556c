# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubelets: kubemark's hollow one (a real volume manager over a fake runtime), and a stand-in for
many nodes at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from .. import runs
from ..common import LabError, wait
from .api import Api, ApiError, Object, now, path, unique_name
from .build import OLD, locate
from .controlplane import ControlPlane, free_ports
from .process import Process

PERIOD = 0.1
HEARTBEAT = 5.0
# The same where the controller manager soon takes a silent node for lost.
SOON = 1.0
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


class HollowKubelet:
    """A real kubelet of 1.20.2 in all that concerns volumes' attachment.

    It has no CSI driver, so it never gets further than to the mount.
    """

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane, self.name = plane, name
        self.process = Process(plane.folder, f"hollow-{name}")

    def start(self) -> None:
        """Start it, and wait until its node is ready."""
        kubelet, read_only = free_ports(2)
        command = [
            *(locate(OLD)["kubemark"], "--morph=kubelet", f"--name={self.name}", "--v=4"),
            *(
                f"--kubeconfig={self.plane.kubeconfig('admin')}",
                f"--kubelet-port={kubelet}",
                f"--kubelet-read-only-port={read_only}",
            ),
        ]
        self.process.start(command, self.plane.tied)
        api = self.plane.api()

        def ready() -> bool:
            self.process.check()
            found = api.find("Node", self.name) or {"status": {}}
            return any(
                entry["type"] == "Ready" and entry["status"] == "True"
                for entry in found["status"].get("conditions", [])
            )

        wait(ready, f"hollow kubelet {self.name} ready", 60)

    def stop(self) -> None:
        """End it; its node stays behind."""
        self.process.stop()
        for found in self.folders():
            runs.remove(found)

    def folders(self) -> list[Path]:
        """What it has made in /tmp, and never removes by itself."""
        return runs.made_by_kubelet(self.log)

    @property
    def log(self) -> str:
        """What it has logged."""
        return self.process.log.read_text(errors="replace")


class KubeletStandIn:
    """Keeps nodes alive and runs their pods, as far as the API can tell: volumesInUse first,
    Running once all volumes are attached.
    """

    def __init__(
        self,
        api: Api,
        nodes: Iterable[str],
        unmount_seconds: float = 0.0,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self.api = api
        self.nodes = list(nodes)
        self.heartbeat = heartbeat
        # From a pod's deletion to the end of its mounts.
        self.unmount_seconds = unmount_seconds
        # Pods ("namespace/name") that never end, as with a process that cannot be killed.
        self.stuck: set[str] = set()
        self.problem = ""
        self._down: set[str] = set()
        self._mounted: dict[str, dict[str, set[str]]] = {name: {} for name in self.nodes}
        self._ended: dict[str, float] = {}
        self._claims: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; nodes that do not exist yet have to be made by the test."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._serve, name="kubelets", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """All nodes fall silent."""
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def stop_node(self, name: str) -> None:
        """One node falls silent; after 40 s (50 s in current versions) it is not ready."""
        self._down.add(name)

    def start_node(self, name: str) -> None:
        """It is back."""
        self.wake(name)
        self.api.heartbeat(name)

    def wake(self, name: str) -> None:
        """It is served again; its conditions are the caller's business."""
        self._down.discard(name)

    def __enter__(self) -> KubeletStandIn:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        beat = time.monotonic() + self.heartbeat
        while not self._stop.wait(PERIOD):
            try:
                alive = [name for name in self.nodes if name not in self._down]
                if time.monotonic() >= beat:
                    beat = time.monotonic() + self.heartbeat
                    for name in alive:
                        self.api.renew(name)
                pods = self.api.all("Pod")
                for name in alive:
                    self._sync(name, [pod for pod in pods if pod["spec"].get("nodeName") == name])
            except LabError as exc:
                # The API server may be away for a while; that is part of some tests.
                self.problem = str(exc)

    def _sync(self, name: str, pods: list[Object]) -> None:
        mounted = self._mounted[name]
        here = {pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            meta = pod["metadata"]
            if (
                meta["uid"] not in mounted
                and pod["status"].get("phase") == "Pending"
                and "deletionTimestamp" not in meta
            ):
                volumes = self._volumes(pod)
                if volumes is not None:
                    mounted[meta["uid"]] = volumes
            elif meta["uid"] not in mounted and pod["status"].get("phase") == "Running":
                # The stand-in was started after the pod.
                mounted[meta["uid"]] = self._volumes(pod) or set()
        ended = [
            pod
            for pod in pods
            if "deletionTimestamp" in pod["metadata"] and _key(pod) not in self.stuck
        ]
        gone = {uid for uid in mounted if uid not in here}
        for uid in [pod["metadata"]["uid"] for pod in ended] + sorted(gone):
            if (
                time.monotonic() - self._ended.setdefault(uid, time.monotonic())
                >= self.unmount_seconds
            ):
                mounted.pop(uid, None)
        self._report(name, {volume for volumes in mounted.values() for volume in volumes})
        for pod in ended:
            if pod["metadata"]["uid"] not in mounted:
                self._remove(pod)
        waiting = [
            pod
            for pod in pods
            if pod["metadata"]["uid"] in mounted
            and pod["status"].get("phase") == "Pending"
            and pod not in ended
        ]
        if waiting:
            attached = set(self.api.volumes_attached(name))
            for pod in waiting:
                if mounted[pod["metadata"]["uid"]] <= attached:
                    self._run(pod)

    def _volumes(self, pod: Object) -> set[str] | None:
        """The volumes of a pod that somebody has to attach; None while a claim is not bound."""
        space, found = pod["metadata"]["namespace"], set()
        for volume in pod["spec"].get("volumes", []):
            if "ephemeral" in volume:
                claim = f"{pod['metadata']['name']}-{volume['name']}"
            elif "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
            else:
                continue
            bound = (self.api.find("PersistentVolumeClaim", claim, space) or {"spec": {}})[
                "spec"
            ].get("volumeName")
            volume_found = self.api.find("PersistentVolume", bound) if bound else None
            if volume_found is None:
                return None
            source = volume_found["spec"].get("csi")
            if source and self._attached_by_controller(source["driver"]):
                found.add(unique_name(source["driver"], source["volumeHandle"]))
        return found

    def _attached_by_controller(self, driver: str) -> bool:
        found = self.api.find("CSIDriver", driver)
        return found is None or bool(found["spec"].get("attachRequired", True))

    def _report(self, name: str, volumes: set[str]) -> None:
        """volumesInUse, when it has changed."""
        found = self.api.find("Node", name)
        if found is not None and set(found["status"].get("volumesInUse") or []) != volumes:
            self.api.merge(
                path("Node", name) + "/status", {"status": {"volumesInUse": sorted(volumes)}}
            )

    def _run(self, pod: Object) -> None:
        moment = now()
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": moment}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
        containers = [
            {
                **{
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "lab",
                    "containerID": f"lab://{pod['metadata']['uid']}",
                },
                **{
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": moment}},
                },
            }
            for container in pod["spec"]["containers"]
        ]
        status = {
            "phase": "Running",
            "startTime": moment,
            # One that the pod has already is of a program that a test runs for it.
            "podIP": pod.get("status", {}).get("podIP") or "10.9.9.9",
            "conditions": conditions,
            "containerStatuses": containers,
        }
        self._tolerant(
            "PATCH",
            _where(pod) + "/status",
            {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status},
        )

    def _remove(self, pod: Object) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod["metadata"]["uid"]},
        }
        self._tolerant("DELETE", _where(pod), options)

    def _tolerant(self, method: str, where: str, body: Object) -> None:
        """A pod that has gone meanwhile is nobody's fault."""
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = self.api.request(method, where, body, content)
        if status >= 300 and status not in (404, 409):
            raise ApiError(status, f"{method} {where}: {status} {answer.get('message')}")


def serve(plane: ControlPlane, nodes: Iterable[str]) -> None:
    """Stand in for these nodes' kubelets for good; ``lose`` and ``reboot``, called by another
    process, say which of them are silent.
    """
    kubelets = KubeletStandIn(plane.api(), nodes, heartbeat=SOON)
    with kubelets:
        while True:
            for name in kubelets.nodes:
                (kubelets.stop_node if _mark(plane, name).exists() else kubelets.wake)(name)
            time.sleep(PERIOD)


def lose(plane: ControlPlane, name: str) -> None:
    """A node's kubelet falls silent; returns when its Ready is Unknown and it has the taint."""
    api, mark = plane.api(), _mark(plane, name)
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    wait(
        lambda: api.ready(name) == "Unknown" and UNREACHABLE in api.taints(name),
        f"{name} is lost",
        90,
    )


def reboot(plane: ControlPlane, name: str) -> None:
    """A node is back with another bootID; returns when it is Ready, without the taints of a lost
    node.
    """
    api = plane.api()
    api.boot(name)
    _mark(plane, name).unlink(missing_ok=True)
    api.heartbeat(name)
    wait(
        lambda: api.ready(name) == "True" and not {NOT_READY, UNREACHABLE} & api.taints(name),
        f"{name} is back",
        60,
    )


def _mark(plane: ControlPlane, name: str) -> Path:
    """The file that exists while a node is silent."""
    return plane.folder / "silent" / name


def _where(pod: Object) -> str:
    return path("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
