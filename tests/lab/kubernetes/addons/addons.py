# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CSI-Addons at work: controller, sidecars and drivers as processes, and the objects that stand for
their pods.
"""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ... import runs
from ...ceph.cluster import Ceph
from ...common import LabError, step, wait
from ...qemu import tail
from .. import api as objects
from ..api import Object
from ..build import ADDONS, Binaries, current
from ..controlplane import ControlPlane, free_ports
from ..process import Process

GROUP = "csiaddons.openshift.io/v1alpha1"
FENCES = f"/apis/{GROUP}/networkfences"
START_DEADLINE = 60.0
# The node on which the controller's endpoint runs; there need be no such node.
CONTROLLER = "provisioner"


class Addons:
    """CSI-Addons for one driver, on a control plane that has been started.

    ``clients``: ranges of addresses by node; each of these nodes gets an endpoint that reports them
    to a NetworkFenceClass.
    """

    def __init__(
        self,
        plane: ControlPlane,
        ceph: Ceph,
        driver: str = "rbd.csi.ceph.com",
        namespace: str = "ceph-csi",
        clients: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.plane, self.ceph, self.driver, self.namespace = plane, ceph, driver, namespace
        self.clients = dict(clients or {})
        self.secret = {"name": "csi-rbd-secret", "namespace": namespace}
        # A path in the control plane's folder could be too long for a socket.
        self._sockets = Path(tempfile.gettempdir()) / f"lab-addons-{uuid.uuid4().hex[:12]}"
        self._fault = self._sockets / "fault"
        self.manager = Process(plane.folder, "csi-addons-manager")
        self._endpoints = [CONTROLLER, *self.clients]
        self._processes = {
            (kind, node): Process(plane.folder, f"csi-addons-{kind}-{node}")
            for kind in ("driver", "sidecar")
            for node in self._endpoints
        }

    # life

    def start(self) -> None:
        """All of it, until the controller is connected to every endpoint.

        Raises Unavailable where it cannot be built.
        """
        programs = current(ADDONS)
        with step(f"{self.plane.name}: starting CSI-Addons {programs.version}"):
            runs.claim(self._sockets)
            self._sockets.mkdir(mode=0o700)
            self._apply_definitions(programs)
            self._make_objects()
            for node in self._endpoints:
                self._start_endpoint(programs, node)
            self.start_manager()
            wait(self._connected, "CSI-Addons connected to its endpoints", START_DEADLINE)

    def stop(self) -> None:
        """End every process of it; the objects stay."""
        self.manager.stop(signal.SIGKILL)
        for process in self._processes.values():
            process.stop(signal.SIGKILL)
        runs.remove(self._sockets)
        runs.release(self._sockets)

    def remove(self) -> None:
        """As before the start, for whoever uses the cluster next. Nothing of it may run."""
        api = self.plane.api()
        nodes = objects.path("CSIAddonsNode", "", self.namespace, GROUP)
        for where in (FENCES, nodes):
            for found in api.call("GET", where)["items"]:
                # The controller that would take it off has ended.
                change = {"metadata": {"finalizers": None}}
                api.merge(f"{where}/{found['metadata']['name']}", change)
        # First the namespace, which has objects of these definitions.
        gone = [objects.path("Namespace", self.namespace)]
        gone += [objects.path_of(definition) for definition in _definitions(current(ADDONS))]
        for where in gone:
            api.delete(where)
            wait(lambda where=where: api.get(where) is None, f"{where} is gone", 60)  # type: ignore[misc]

    def start_manager(self) -> None:
        """Start the controller; it looks at every object again, and calls the driver for each,
        whatever has been done before.
        """
        command = [
            current(ADDONS)["manager"],
            *(f"--kubeconfig={self.plane.kubeconfig()}", f"--namespace={self.namespace}"),
            *("--enable-auth=false", "--health-probe-bind-address=0"),
        ]
        self.manager.start(command, self.plane.tied)

    def stop_manager(self) -> None:
        """End the controller: nobody acts on NetworkFences any more."""
        self.manager.stop(signal.SIGKILL)

    def __enter__(self) -> Addons:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()

    # faults

    def pause(self) -> None:
        """The driver answers no more."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It answers again, and what it was asked meanwhile is done then."""
        self._signal(signal.SIGCONT)

    def fail(self, message: str) -> None:
        """The driver answers every fencing and unfencing with this error, until ``heal``."""
        self._fault.write_text(message)

    def heal(self) -> None:
        """It works again."""
        self._fault.unlink(missing_ok=True)

    # NetworkFences

    def body(self, name: str, *cidrs: str, state: str = "Unfenced", class_name: str = "") -> Object:
        """A NetworkFence of this driver, as an administrator writes it."""
        spec: Object = {"cidrs": list(cidrs), "fenceState": state}
        if class_name:
            spec["networkFenceClassName"] = class_name
        else:
            spec |= {
                "driver": self.driver,
                "secret": self.secret,
                "parameters": {"clusterID": self.ceph.fsid},
            }
        return {
            "apiVersion": GROUP,
            "kind": "NetworkFence",
            "metadata": {"name": name},
            "spec": spec,
        }

    def create(
        self, name: str, *cidrs: str, state: str = "Unfenced", class_name: str = ""
    ) -> Object:
        """Create one, and wait until the controller has acted on it."""
        self.plane.api().call(
            "POST", FENCES, self.body(name, *cidrs, state=state, class_name=class_name)
        )
        wait(
            lambda: self.get(name).get("status", {}).get("result"),
            f"NetworkFence {name} with a result",
            30,
        )
        return self.get(name)

    def get(self, name: str) -> Object:
        """A NetworkFence as it is."""
        found = self.plane.api().get(f"{FENCES}/{name}")
        if found is None:
            raise LabError(f"there is no NetworkFence {name}")
        return found

    def make_class(self, name: str) -> None:
        """A NetworkFenceClass of this driver; with ``clients``, wait until the controller has asked
        them for their addresses.
        """
        keys = {
            f"csiaddons.openshift.io/networkfence-secret-{key}": value
            for key, value in self.secret.items()
        }
        spec = {"provisioner": self.driver, "parameters": {"clusterID": self.ceph.fsid, **keys}}
        api = self.plane.api()
        body = {
            "apiVersion": GROUP,
            "kind": "NetworkFenceClass",
            "metadata": {"name": name},
            "spec": spec,
        }
        api.call("POST", f"/apis/{GROUP}/networkfenceclasses", body)
        if self.clients:
            wait(
                lambda: len(self._reported(name)) == len(self.clients),
                "the nodes' addresses for that class",
                30,
            )

    # parts

    def _nodes(self) -> list[Object]:
        found: list[Object] = self.plane.api().call(
            "GET", objects.path("CSIAddonsNode", "", self.namespace, GROUP)
        )["items"]
        return found

    def _reported(self, class_name: str) -> list[Any]:
        reports = [
            entry
            for node in self._nodes()
            for entry in node.get("status", {}).get("networkFenceClientStatus") or []
        ]
        return [entry for entry in reports if entry["networkFenceClassName"] == class_name]

    def _connected(self) -> bool:
        self.manager.check()
        for node in self._endpoints:
            self._processes["sidecar", node].check()
        states = [node.get("status", {}).get("state") for node in self._nodes()]
        return states == ["Connected"] * len(self._endpoints)

    def _apply_definitions(self, programs: Binaries) -> None:
        """The controller wants all of them, also those it is not asked for here."""
        api, definitions = self.plane.api(), _definitions(programs)
        for definition in definitions:
            if api.find(definition["kind"], definition["metadata"]["name"]) is None:
                api.create(definition)
        for definition in definitions:
            spec = definition["spec"]
            where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            wait(lambda where=where: api.request("GET", where)[0] == 200, f"{where} served", 30)  # type: ignore[misc]

    def _make_objects(self) -> None:
        """What the sidecars look for: the driver's secret, and their pods with an owner and an
        address. Nothing runs in these pods.
        """
        api = self.plane.api()
        if api.find("Namespace", self.namespace) is None:
            api.create(objects.namespace(self.namespace))
        # Our driver has a keyring of its own.
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self.secret,
            "stringData": {"userID": "admin", "userKey": ""},
        }
        if api.find("Secret", self.secret["name"], self.namespace) is None:
            api.create(secret)
        uid = (api.find("Secret", self.secret["name"], self.namespace) or {})["metadata"]["uid"]
        for node in self._endpoints:
            pod = objects.pod(self._pod(node), namespace=self.namespace, schedulerName="nobody")
            self._place(pod["spec"], node)
            pod["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Secret", "name": self.secret["name"], "uid": uid}
            ]
            if api.find("Pod", self._pod(node), self.namespace) is None:
                api.create(
                    {**pod, "status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
                )

    def _place(self, spec: Object, node: str) -> None:
        """As the pod of a driver's DaemonSet: on its node, with the port of the sidecar and a
        folder of the node.
        """
        # A pod on a node that is not there is soon deleted (pkg/controller/podgc).
        if node in self.clients:
            spec |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
        (port,) = free_ports(1)
        spec["containers"][0]["args"] = [f"--controller-port={port}"]
        folder = f"/var/lib/kubelet/plugins/{self.driver}"
        spec["volumes"] = [{"name": "socket-dir", "hostPath": {"path": folder}}]

    def _start_endpoint(self, programs: Binaries, node: str) -> None:
        """A driver, and the sidecar in front of it."""
        driver, sidecar = self._processes["driver", node], self._processes["sidecar", node]
        socket = self._sockets / f"{node}.sock"
        socket.unlink(missing_ok=True)
        command = [
            programs["driver"],
            f"-socket={socket}",
            f"-name={self.driver}",
            f"-fault={self._fault}",
        ]
        command += [
            f"-conf={self.ceph.conf}",
            f"-keyring={self.ceph.keyring}",
            f"-clients={','.join(self.clients.get(node, ()))}",
        ]
        driver.start(command, self.plane.tied)
        self._wait(socket.exists, driver)
        found = self.plane.api().find("Pod", self._pod(node), self.namespace) or {}
        pod, (port,) = found["metadata"], found["spec"]["containers"][0]["args"]
        command = [
            programs["sidecar"],
            f"--kubeconfig={self.plane.kubeconfig()}",
            f"--csi-addons-address=unix://{socket}",
        ]
        command += [
            f"--node-id={node}",
            f"--pod={pod['name']}",
            f"--namespace={self.namespace}",
            f"--pod-uid={pod['uid']}",
        ]
        command += [
            port,
            f"--leader-election-namespace={self.namespace}",
            "--enable-auth=false",
        ]
        sidecar.start(command, self.plane.tied)

    def _pod(self, node: str) -> str:
        return f"csi-{node}"

    def _signal(self, number: int) -> None:
        pid = self._processes["driver", CONTROLLER].pid
        if pid is None:
            raise LabError("the driver does not run")
        os.kill(pid, number)

    def _wait(self, ready: Any, process: Process) -> None:
        try:
            wait(ready, f"{process.name} ready", START_DEADLINE)
        except LabError as exc:
            raise LabError(f"{exc}\n{tail(process.log)}") from exc


def _definitions(programs: Binaries) -> list[Object]:
    """The resources that it brings."""
    import yaml  # type: ignore[import-untyped]  # comes with Ansible; the rest of the lab does without

    files = sorted((programs.path / "crd").glob("*.yaml"))
    return [yaml.safe_load(found.read_text()) for found in files]
