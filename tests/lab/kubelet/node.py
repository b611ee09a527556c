# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM node with a real kubelet, which joins a control plane of this machine.

By qemu's user network it reaches this machine's loopback, and no more. All that it opens comes
from a loopback address of its own (`ceph/bind_source.c`, preloaded into qemu), so the API server
and Ceph tell nodes apart, and a fence hits one of them.
"""

from __future__ import annotations

import functools
import json
import shlex
import socket
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ceph.client import bind_source
from ..common import DEFAULT_RELEASE, LabError, patient, step
from ..kind.build import node_programs
from ..kind.csi import image
from ..kubernetes.build import CRICTL, CURRENT, binaries, current
from ..mounts import pods
from ..state import READY, State
from ..vm import Vm

# This machine's loopback, as qemu's user network has it.
HOST = "10.0.2.2"
KUBELET_PORT = 10250
IMPORT_DEADLINE = 60.0
# Ceph's daemons: ms_bind_port_min and ms_bind_port_max.
DAEMON_PORTS = "6800-7568"
PODS = "/usr/local/lib/lab/pods.py"
PAYLOAD = "/usr/local/lib/lab"
BUSYBOX = pods.IMAGE

# As kind's nodes have it (kind/node_image.py).
CONTAINERD = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{BUSYBOX}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
"""
CNI = {
    "cniVersion": "0.3.1",
    "name": "lab",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]},
        }
    ],
}
SOCKET = "unix:///run/containerd/containerd.sock"
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "systemd",
    # The disk is small, and its images are there for good.
    "evictionHard": {
        "memory.available": "30Mi",
        "nodefs.available": "2%",
        "imagefs.available": "2%",
    },
    "imageGCHighThresholdPercent": 99,
    "imageGCLowThresholdPercent": 98,
}
UNIT = """[Unit]
After=containerd.service network.target
Requires=containerd.service
[Service]
EnvironmentFile=/etc/kubernetes/kubelet.env
ExecStart=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.json \
    --kubeconfig=/etc/kubernetes/kubelet.kubeconfig --cloud-provider=external --v=2 $ARGUMENTS \
    $RUNTIME
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""
# The default deadline is 2 s.
CRICTL_CONF = f"runtime-endpoint: {SOCKET}\ntimeout: 60\n".encode()
# Of Debian's nftables.service, so it is there after a reboot too. Ceph's daemons name addresses of
# this machine's loopback.
RULES = """table ip lab {{
  chain output {{
    type nat hook output priority -100
    ip daddr 127.0.0.1 tcp dport {{ {ports} }} dnat to {host}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100
    ip daddr {host} masquerade
  }}
}}
include "/etc/nftables.d/*.conf"
"""
# What a node that is cut off drops.
CUT = "/etc/nftables.d/cut.conf"


@functools.cache
def state(version: str = CURRENT) -> State:
    """All that a node needs to join, and nothing of a cluster yet."""
    tools, runtime = current(CRICTL), ""
    settings: dict[str, object] = dict(KUBELET)
    if version == CURRENT:
        programs = node_programs()
        settings["containerRuntimeEndpoint"] = SOCKET
    else:
        programs = binaries(version)
        # Before 1.27 only options tell it, and before 1.24 there are others.
        runtime = f"--container-runtime=remote --container-runtime-endpoint={SOCKET}"
    return State(
        name="kubelet" if version == CURRENT else f"kubelet-{version}",
        before=READY,
        files={
            "/usr/local/bin/kubelet": Path(programs["kubelet"]).read_bytes(),
            "/usr/local/bin/crictl": Path(tools["crictl"]).read_bytes(),
            f"{PAYLOAD}/csi-driver.tar": image().read_bytes(),
            PODS: Path(pods.__file__).read_bytes(),
            f"{PAYLOAD}/containerd.toml": CONTAINERD.encode(),
            "/etc/cni/net.d/10-lab.conflist": json.dumps(CNI).encode(),
            "/etc/crictl.yaml": CRICTL_CONF,
            "/etc/kubernetes/kubelet.json": json.dumps(settings).encode(),
            "/etc/systemd/system/kubelet.service": UNIT.replace("$RUNTIME", runtime).encode(),
            "/etc/modules-load.d/lab.conf": b"overlay\nrbd\niscsi_tcp\n",
            # krbd's connections begin as ones to 127.0.0.1.
            "/etc/sysctl.d/lab.conf": b"net.ipv4.conf.all.route_localnet = 1\n",
        },
        commands=(
            "modprobe -a overlay rbd && sysctl -q --system",
            f"python3 {PODS} runtime",
            f"ctr -n k8s.io images import {PAYLOAD}/csi-driver.tar && rm {PAYLOAD}/csi-driver.tar",
            f"cp {PAYLOAD}/containerd.toml /etc/containerd/config.toml",
            "mkdir -p /etc/kubernetes/manifests /etc/ceph /var/lib/kubelet/plugins_registry",
            "systemctl daemon-reload && systemctl restart containerd",
            "systemctl enable -q containerd kubelet nftables",
        ),
    )


@dataclass(frozen=True)
class Ways:
    """What a node is told when it joins."""

    api_port: int
    # Of Ceph, as nftables takes them.
    ceph_ports: Sequence[str]
    token: str
    # Path -> content: credentials and the like.
    files: dict[str, str]


class KubeletVm(Vm):
    """The machine: `address` is its own in this machine's loopback."""

    def __init__(self, name: str, node: str, address: str) -> None:
        super().__init__(name, DEFAULT_RELEASE)
        self.node, self.address = node, address

    def _network(self, port: int) -> str:
        forward = f"hostfwd=tcp:127.0.0.1:{port}-:22"
        kubelet = f"hostfwd=tcp:{self.address}:{KUBELET_PORT}-:{KUBELET_PORT}"
        return f"user,id=n0,{forward},{kubelet}"

    def _environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(bind_source()), "LAB_ADDRESS": self.address}

    def join(self, ways: Ways) -> None:
        """Start the kubelet, which makes its Node."""
        self.run(["sh", "-esc", _script(self._files(ways))], timeout=120)

    def import_image(self, archive: Path, name: str) -> None:
        """Have this image, unless it is there."""
        if self.run(f"ctr -n k8s.io images ls -q | grep -F {name}", check=False).stdout:
            return
        with archive.open("rb") as stream, step(f"{self.name}: importing {name}"):
            subprocess.run(
                self.ssh("ctr -n k8s.io images import -"),
                stdin=stream,
                stdout=subprocess.DEVNULL,
                timeout=patient(IMPORT_DEADLINE),
                check=True,
            )

    def lead_in(self, port: int, protocol: str = "tcp") -> int:
        """A port of this machine's loopback that leads to this one of the node, until that is
        stopped.
        """
        kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
        with socket.socket(type=kind) as probe:
            probe.bind(("127.0.0.1", 0))
            own: int = probe.getsockname()[1]
        command = f"hostfwd_add n0 {protocol}:127.0.0.1:{own}-:{port}"
        line: dict[str, Any] = {"command-line": command}
        said = self.qmp.execute("human-monitor-command", **line)
        if said:
            raise LabError(f"{self.name}: {command}: {said}")
        return own

    def freeze(self) -> None:
        """Its processor stops, as when its hypervisor hangs."""
        self._close_connections()
        self.qmp.execute("stop")

    def thaw(self) -> None:
        """It goes on in the middle of whatever it was doing, its clock set by its hypervisor."""
        self.qmp.execute("cont")
        self._set_clock()

    def cut_off(self, *ports: str) -> None:
        """Drop what goes to these ports of the host, or comes from them, until the node is healed:
        no reboot mends a network.
        """
        listed = ", ".join(ports)
        rules = [
            f"add chain inet cut {name} {{ type filter hook {hook} priority 0; }}\n"
            f"add rule inet cut {name} tcp {side} {{ {listed} }} drop\n"
            for name, hook, side in (("to", "output", "dport"), ("from", "input", "sport"))
        ]
        table = "add table inet cut\n" + "".join(rules)
        self.run(f"mkdir -p $(dirname {CUT}) && cat > {CUT} && nft -f {CUT}", stdin=table)

    def heal(self) -> None:
        """Undo it."""
        self.run(f"rm {CUT} && nft delete table inet cut")

    def _files(self, ways: Ways) -> dict[str, str]:
        cluster = {
            "server": f"https://{HOST}:{ways.api_port}",
            "certificate-authority": "/etc/kubernetes/ca.crt",
            # The address of the other end, as the certificate has it.
            "tls-server-name": "127.0.0.1",
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "node", "user": {"token": ways.token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "node"}}],
            "current-context": "lab",
        }
        ports = ", ".join(ways.ceph_ports)
        return {
            "/etc/kubernetes/kubelet.kubeconfig": json.dumps(config),
            "/etc/kubernetes/kubelet.env": f"ARGUMENTS=--hostname-override={self.node}\n",
            "/etc/hostname": f"{self.node}\n",
            "/etc/nftables.conf": RULES.format(ports=ports, host=HOST),
            **ways.files,
        }


def _script(files: dict[str, str]) -> str:
    lines = [f"printf %s {shlex.quote(text)} > {path}" for path, text in files.items()]
    # Nodes that begin in one saved state have one machine id and, until they boot, one boot id.
    lines += [
        "hostname -F /etc/hostname",
        f"echo {uuid.uuid4().hex} > /etc/machine-id",
        f"echo {uuid.uuid4()} > /run/lab-boot-id",
        "mount --bind /run/lab-boot-id /proc/sys/kernel/random/boot_id",
        # A node whose power is cut soon after would boot with empty files.
        "sync -f /",
        "systemctl start nftables",
        "systemctl start kubelet",
    ]
    return "\n".join(lines)
