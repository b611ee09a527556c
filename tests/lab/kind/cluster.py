# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster that kind makes: a control plane and two workers, with real kubelets that run pods."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import runs
from ..common import LabError, cache_dir, patient, step, wait
from ..kubernetes.access import Access, write_secret
from ..kubernetes.api import Object
from ..kubernetes.controlplane import free_ports
from ..kubernetes.process import Process
from . import runc_lab
from .build import node_programs
from .engine import Engine
from .node_image import NodeImage, node_image

UP_DEADLINE = 300.0
READY_DEADLINE = 120.0
ADMIN = "lab-admin"
# On every node: one folder of the cluster's, for volumes that all nodes can reach.
VOLUMES = "/srv/volumes"
PORT_MAP = {"type": "portmap", "capabilities": {"portMappings": True}}


class Kind(Access):
    """A cluster by name.

    Its folder holds all it has, the engine with its images and nodes too; several run side by side.
    """

    def __init__(self, name: str, *, tied: bool = True) -> None:
        self.name, self.tied = name, tied
        self.folder = cache_dir() / "kind" / name
        self.engine = Engine(self.folder, tied=tied)
        self.volumes = self.folder / "volumes"
        self.config_file = self.folder / "kind.json"

    # life

    def start(self) -> None:
        """From nothing to all nodes Ready, whatever was there before.

        Raises Unavailable when this machine cannot have it.
        """
        self.engine.check_machine()
        programs, image = node_programs(), node_image()
        self.remove()
        runs.claim(self.folder)
        self.folder.mkdir(parents=True, mode=0o700)
        (port,) = free_ports(1)
        with step(f"{self.name}: starting a Docker engine"):
            self.engine.start(port)
        with step(f"{self.name}: loading the image of the nodes"):
            self.engine.docker("load", "--quiet", "--input", str(image.path))
        with step(f"{self.name}: starting a kind cluster"):
            self.volumes.mkdir()
            self.config_file.write_text(json.dumps(_config(port, image, self.volumes), indent=1))
            command = [programs["kind"], "create", "cluster", "--name", self.name, "--retain"]
            command += ["--config", str(self.config_file)]
            self._kind([*command, "--kubeconfig", str(self.folder / "kind.kubeconfig")])
            self._connect_pods()
            self._make_token()
            wait(self._ready, "all nodes Ready", READY_DEADLINE)

    def stop(self) -> None:
        """End everything, hard. The folder stays, for its logs."""
        if self.folder.exists():
            for found in self.folder.glob("*.pid"):
                if found.stem not in ("dockerd", "relay"):
                    Process(self.folder, found.stem).stop(signal.SIGKILL)
            self.engine.stop()

    def remove(self) -> None:
        """End everything, and keep nothing."""
        self.stop()
        runs.remove(self.folder)
        runs.release(self.folder)

    @property
    def running(self) -> bool:
        """Its engine runs, and it has been made."""
        return self.engine.running and (self.folder / "tokens/admin").exists()

    # access

    @property
    def control_plane(self) -> str:
        """The node that runs the control plane."""
        return f"{self.name}-control-plane"

    @property
    def workers(self) -> tuple[str, str]:
        """The nodes that run pods."""
        return f"{self.name}-worker", f"{self.name}-worker2"

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes."""
        return (self.control_plane, *self.workers)

    def on(self, node: str, *command: str, data: bytes | None = None) -> str:
        """What a command on a node says. Raises LabError when it fails."""
        return self.engine.docker("exec", "--interactive", node, *command, data=data)

    def import_image(self, archive: Path, *nodes: str) -> None:
        """Have a container image on these nodes, else on all workers."""
        for node in nodes or self.workers:
            command = ["ctr", "-n", "k8s.io", "images", "import", "--no-unpack", "-"]
            self.on(node, *command, data=archive.read_bytes())

    def kubectl(self, *arguments: str) -> str:
        """What kubectl on the control plane's node says, to an administrator."""
        return self.on(self.control_plane, "kubectl", *arguments)

    def hosts(self, *nodes: str) -> Object:
        """These nodes as hosts of an inventory, by their names: `docker exec` makes one root."""
        common = {
            "ansible_connection": "community.docker.docker",
            "ansible_docker_extra_args": f"--host unix://{self.engine.socket}",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become": False,
        }
        return dict.fromkeys(nodes, common)

    def gateway(self) -> str:
        """Where nodes reach what `Engine.lead_out` leads to."""
        said = self.on(self.control_plane, "ip", "-json", "route", "show", "default")
        return str(json.loads(said)[0]["gateway"])

    def port(self) -> int:
        """The loopback port of the API server, here and in the engine's network."""
        number: int = json.loads(self.config_file.read_text())["networking"]["apiServerPort"]
        return number

    # parts

    def _kind(self, command: list[str]) -> None:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patient(UP_DEADLINE),
            env=self.engine.environment,
            check=False,
        )
        (self.folder / "kind.log").write_text(answer.stdout + answer.stderr)
        if answer.returncode:
            last = "\n".join(answer.stderr.splitlines()[-25:])
            raise LabError(f"kind could not make {self.name} ({self.folder}/kind.log):\n{last}")

    def _connect_pods(self) -> None:
        """Each node gives its pods addresses of its own range, and knows the way to the others'."""
        listed = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        ranges = {found["metadata"]["name"]: found["spec"]["podCIDR"] for found in listed}
        addresses = {found["metadata"]["name"]: _address(found) for found in listed}
        for node, pods in ranges.items():
            for other in ranges.keys() - {node}:
                route = ["ip", "route", "replace", ranges[other], "via", addresses[other]]
                self.on(node, *route)
            config = json.dumps(_pod_network(pods)).encode()
            self.on(node, "tee", "/etc/cni/net.d/10-kindnet.conflist", data=config)

    def _make_token(self) -> None:
        """An account that may do everything: the rest of the lab has tokens, not certificates."""
        space = ["--namespace", "kube-system"]
        self.kubectl("create", "serviceaccount", ADMIN, *space)
        role = ["--clusterrole", "cluster-admin", "--serviceaccount", f"kube-system:{ADMIN}"]
        self.kubectl("create", "clusterrolebinding", ADMIN, *role)
        token = self.kubectl("create", "token", ADMIN, "--duration", "48h", *space).strip()
        write_secret(self.folder / "tokens/admin", token)
        self.ca.parent.mkdir()
        self.ca.write_text(self.on(self.control_plane, "cat", "/etc/kubernetes/pki/ca.crt"))

    def _ready(self) -> bool:
        api = self.api()
        found = api.all("Node")
        names = {node["metadata"]["name"] for node in found}
        if names != set(self.nodes) or any(api.ready(name) != "True" for name in names):
            return False
        # The controller manager takes the taints of a new node off a moment later.
        return not any("not-ready" in key for name in names for key in api.taints(name))


def _config(port: int, image: NodeImage, volumes: Path) -> Object:
    """What kind is told. Its own list of skipped phases is replaced by that of a patch."""
    kubelet: dict[str, Any] = {"kind": "KubeletConfiguration", "failCgroupV1": False}
    if runc_lab.RESOURCE not in runc_lab.allowed():
        # It cannot change limits and kernel settings, and goes on without.
        kubelet["featureGates"] = {"KubeletInUserNamespace": True}
    skipped = ["preflight", "addon/coredns", "addon/kube-proxy"]
    patches: list[dict[str, Any]] = [
        kubelet,
        {"kind": "InitConfiguration", "skipPhases": skipped},
        {"kind": "JoinConfiguration", "skipPhases": ["preflight"]},
    ]
    mounts = [{"hostPath": str(volumes), "containerPath": VOLUMES}]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {
            "apiServerPort": port,
            "disableDefaultCNI": True,
            "kubeProxyMode": "none",
        },
        "nodes": [
            {"role": "control-plane", "image": image.control_plane, "extraMounts": mounts},
            *2 * [{"role": "worker", "image": image.worker, "extraMounts": mounts}],
        ],
        "kubeadmConfigPatches": [json.dumps(patch) for patch in patches],
    }


def _pod_network(pods: str) -> Object:
    """As kind's own kindnetd writes it, images/kindnetd/cmd/kindnetd/cni.go."""
    routes = [{"dst": "0.0.0.0/0"}]
    addresses = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": routes}
    plugins: list[Object] = [{"type": "ptp", "ipMasq": True, "ipam": addresses}, PORT_MAP]
    return {"cniVersion": "0.3.1", "name": "kindnet", "plugins": plugins}


def _address(node: Object) -> str:
    return next(
        str(found["address"])
        for found in node["status"]["addresses"]
        if found["type"] == "InternalIP"
    )


def existing_kinds() -> Iterator[Kind]:
    """The kind clusters that have a folder."""
    for found in sorted((cache_dir() / "kind").glob("*/kind.json")):
        yield Kind(found.parent.name, tied=False)
