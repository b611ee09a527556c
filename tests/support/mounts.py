# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A folder on the VM node like a kubelet's, with the mounts that a CSI driver makes in it, and FUSE
servers behind them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import uuid
from pathlib import Path
from typing import Any

from lab.ceph.gateway import Gateway
from lab.common import patient
from lab.vm import SSH_OPTIONS

from support.node import COLLECTION, REMOUNT, Node, Outcome, environment, of_ansible

ROOT = "/var/lib/kubelet"
DRIVER = "s3.csi.example.com"
PROGRAMS = Path(__file__).resolve().parents[1] / "lab" / "mounts"


class Volume:
    """A PersistentVolume on the node: its staging path, and the pods that have it."""

    def __init__(self, kubelet: Kubelet, name: str) -> None:
        self.kubelet, self.node, self.name = kubelet, kubelet.node, name
        self.handle = f"handle-of-{name}"
        digest = hashlib.sha256(self.handle.encode()).hexdigest()
        self.stage_folder = f"{kubelet.root}/plugins/kubernetes.io/csi/{DRIVER}/{digest}"
        self.staging = f"{self.stage_folder}/globalmount"
        self.pods: dict[str, str] = {}

    def stage(self) -> str:
        """The staging path, empty, with the kubelet's note."""
        self._noted(self.stage_folder, {})
        self.node.sh(f"mkdir -p {self.staging}")
        return self.staging

    def publish(
        self, options: str = "", uid: str = "", source: str = "", how: str = "--bind"
    ) -> str:
        """Bind the staging mount, or mount another source, into the folder of a new
        pod; its path.
        """
        uid = uid or str(uuid.uuid4())
        folder = f"{self.kubelet.root}/pods/{uid}/volumes/kubernetes.io~csi/{self.name}"
        self._noted(folder, {"specVolID": self.name, "nodeName": "node1"})
        what = f"{how} {options} {source or self.staging}"
        self.node.sh(f"mkdir -p {folder}/mount && mount {what} {folder}/mount")
        self.pods[uid] = f"{folder}/mount"
        return f"{folder}/mount"

    def subpath(self, uid: str, below: str, container: str = "main", index: int = 0) -> str:
        """Bind a folder of the volume for one container; its path."""
        path = f"{self.kubelet.root}/pods/{uid}/volume-subpaths/{self.name}/{container}/{index}"
        self.node.sh(f"mkdir -p {path} && mount --bind {self.pods[uid]}/{below} {path}")
        return path

    def unpublish(self, uid: str) -> None:
        """What the kubelet does with a pod's folder once it is unmounted."""
        folder = f"{self.kubelet.root}/pods/{uid}"
        self.node.sh(
            f"rmdir {folder}/volumes/kubernetes.io~csi/{self.name}/mount && rm -rf {folder}"
        )

    def _noted(self, folder: str, more: dict[str, str]) -> None:
        note = json.dumps({"driverName": DRIVER, "volumeHandle": self.handle, **more})
        self.node.vm.run(f"mkdir -p {folder} && cat > {folder}/vol_data.json", stdin=note)


class Kubelet:
    """The kubelet's folder on a node."""

    def __init__(self, node: Node, root: str = ROOT) -> None:
        self.node, self.root = node, root
        node.sh(f"mkdir -p {root}/pods {root}/plugins/kubernetes.io/csi")

    def volume(self, name: str = "pvc-1") -> Volume:
        """A volume that is not staged yet."""
        return Volume(self, name)


def start(node: Node, command: str) -> int:
    """Run a program in the background, apart from the connection; its pid."""
    return int(node.sh(f"setsid {command} > /tmp/server.log 2>&1 < /dev/null & echo $!"))


def served(node: Node, command: str, point: str) -> int:
    """Start a server that stays in the foreground, and wait for its mount; its pid."""
    before = len(layers(node, point))
    pid = start(node, command)

    def mounted() -> bool:
        assert node.process_state(pid), node.sh("cat /tmp/server.log")
        return len(layers(node, point)) > before

    node.wait(mounted, f"{point} is mounted by {command}")
    return pid


def bindfs(node: Node, point: str, source: str = "/srv/data", options: str = "") -> int:
    """A server that shows a folder of the node; its pid. Its files are there."""
    node.sh(
        f"mkdir -p {source}/sub && echo content > {source}/file && echo inner > {source}/sub/file"
    )
    return served(node, f"bindfs -f {options} {source} {point}", point)


def upload(node: Node, program: str) -> str:
    """Put one of the lab's own servers on the node; the command that runs it."""
    target = f"/usr/local/sbin/{program}.py"
    node.vm.run(f"cat > {target}", stdin=(PROGRAMS / f"{program}.py").read_text())
    return f"/usr/bin/python3 {target}"


def die(node: Node, pid: int) -> None:
    """Kill a server, and see it gone."""
    node.sh(f"kill -9 {pid}")
    node.wait(
        lambda: not node.process_state(pid) or node.process_state(pid) == "Z", "the server is gone"
    )


def layers(node: Node, point: str) -> list[tuple[str, str, str]]:
    """(device, file system type, id) of each mount at a point of the node's own namespace, the
    lowest first. Asks no server.
    """
    found = []
    for line in node.sh("cat /proc/1/mountinfo").splitlines():
        words = line.split(" ")
        if words[4] == point:
            found.append((words[2], words[words.index("-") + 1], words[0]))
    return found


def mounts(node: Node) -> str:
    """All mounts of the node, for a comparison of before and after."""
    return node.sh("cat /proc/1/mountinfo")


def lists(node: Node, point: str) -> list[str]:
    """The names in a folder; fails if it does not answer."""
    return node.sh(f"timeout 20 ls {shlex.quote(point)}").split()


def remount(node: Node, check: bool = False, **options: Any) -> Outcome:
    """Run fuse_remount; credentials may stand within ``volumes``.

    Mostly all of the node's FUSE mounts are broken in a test, and that is what is meant.
    """
    return node.ansible("fuse_remount", check, **{"accept_majority": True, **apart(options)})


def apart(options: dict[str, Any]) -> dict[str, Any]:
    """Options of fuse_remount, in which the credentials of volumes are an option of their own."""
    if "volumes" not in options:
        return options
    volumes = [
        {key: value for key, value in entry.items() if key != "credentials"}
        for entry in options["volumes"]
    ]
    credentials = {
        entry["volume"]: entry["credentials"]
        for entry in options["volumes"]
        if entry.get("credentials")
    }
    return {**options, "volumes": volumes, "credentials": credentials}


def verbose(node: Node, **options: Any) -> str:
    """Run fuse_remount as somebody who debugs it; all that Ansible says."""
    command = [
        "ansible",
        "all",
        "-vvv",
        "-i",
        str(node.vm.inventory()),
        "-m",
        f"{COLLECTION}.fuse_remount",
        "-a",
        json.dumps({**REMOUNT, "accept_majority": True, **apart(options)}),
    ]
    # As Ansible does by default: a file on the node has the module and its options, secrets and
    # all.
    settings = environment()
    answer = of_ansible(command, settings)
    return answer.stdout + answer.stderr


class Bucket:
    """A bucket of a real S3 server, in reach of the node as on its own loopback."""

    def __init__(self, node: Node, gateway: Gateway, name: str = "bucket-a") -> None:
        self.node, self.gateway, self.name = node, gateway, name
        self.endpoint = f"http://{gateway.address}"
        for path, content in (
            ("", ""),
            ("/file", "content"),
            ("/sub/", ""),
            ("/sub/file", "inner"),
        ):
            gateway.put(f"{name}{path}", content)
        ssh = ["ssh", *SSH_OPTIONS, "-i", str(node.vm.image.ssh_key), "-p", str(node.vm.port), "-N"]
        # So that it ends with a guest that has been reset.
        ssh += [
            "-o",
            "ExitOnForwardFailure=yes",
            "-o",
            "ServerAliveInterval=15",
            "-R",
            f"{gateway.address}:{gateway.address}",
        ]
        self.tunnel = subprocess.Popen([*ssh, "root@127.0.0.1"], stdin=subprocess.DEVNULL)
        node.wait(
            lambda: bool(node.sh(f"ss -Hltn src {gateway.address}")), "the server is in reach"
        )

    def close(self) -> None:
        """End the connection."""
        self.tunnel.terminate()
        self.tunnel.wait(patient(10))

    @property
    def secrets(self) -> tuple[str, str]:
        """What nobody may see."""
        return self.gateway.access_key, self.gateway.secret_key

    def s3fs(self, point: str, folder: str = "") -> int:
        """Mount it, or a folder in it, as a driver does; the server's pid.

        The password file is gone as soon as it is mounted.
        """
        self.node.vm.run("umask 077; cat > /root/passwd", stdin=":".join(self.secrets) + "\n")
        options = f"passwd_file=/root/passwd,url={self.endpoint},use_path_request_style,allow_other"
        source = f"{self.name}:/{folder}" if folder else self.name
        pid = served(self.node, f"s3fs {source} {point} -f -o {options}", point)
        self.node.sh("rm /root/passwd")
        return pid

    def rclone(self, point: str) -> int:
        """Mount it by another program; the server's pid."""
        keys = (
            f"access_key_id = {self.secrets[0]}\nsecret_access_key = "
            f"{self.secrets[1]}\nendpoint = {self.endpoint}\n"
        )
        self.node.vm.run(
            "umask 077; cat > /root/rclone.conf", stdin=f"[lab]\ntype = s3\nprovider = Ceph\n{keys}"
        )
        pid = served(
            self.node,
            f"rclone mount --config /root/rclone.conf --allow-other lab:{self.name} {point}",
            point,
        )
        self.node.sh("rm /root/rclone.conf")
        return pid

    def told(self, volume: Volume, **more: Any) -> dict[str, Any]:
        """What the cluster would tell of a volume that is this bucket."""
        keys = {"access_key": self.gateway.access_key, "secret_key": self.gateway.secret_key}
        entry = {
            "volume": volume.name,
            "handle": volume.handle,
            "sources": [self.name],
            "endpoint": self.endpoint,
            "credentials": keys,
        }
        return {**entry, **more}
