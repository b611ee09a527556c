# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs in the VM node and stands in for a kubelet towards containerd: real pods in real containers,
started again when they end.

    pods.py runtime          start containerd, with an image made of busybox
    pods.py serve FOLDER     run the pods that have a file NAME.json there, for as long as they have
    it

A pod is {"uid", "namespace", "name", "containers"}, a container {"name", "mounts":
[{"container_path", "host_path", "propagation"}]}, and "probe": the folder that its liveness probe
lists, if it has one.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGE = "docker.io/lab/busybox:1"
# terminationGracePeriodSeconds of every pod.
GRACE_SECONDS = 7
SOCKET = "unix:///run/containerd/containerd.sock"
CONFIG = f'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "{IMAGE}"\n'
SERVER = "trap 'exit 0' TERM; sleep 1000000 & wait"
# Ends by SIGTERM at once, as the first process of a container does not by itself.
COMMAND = ["/bin/busybox", "sh", "-c", SERVER]


def runtime() -> None:
    """Start containerd, and give it the one image that everything here is made from."""
    Path("/etc/containerd").mkdir(exist_ok=True)
    Path("/etc/containerd/config.toml").write_text(CONFIG)
    subprocess.run(["systemctl", "restart", "containerd"], check=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add("/bin/busybox", "bin/busybox")
        for name in ("sh", "ls", "sleep", "cat"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    digest = (
        subprocess.run(["sha256sum"], input=layer.getvalue(), capture_output=True, check=True)
        .stdout.decode()
        .split()[0]
    )
    config = {"architecture": "amd64", "os": "linux", "config": {"Entrypoint": COMMAND}}
    config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    files = {
        "layer.tar": layer.getvalue(),
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
        ).encode(),
    }
    with tarfile.open("/tmp/busybox.tar", "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    subprocess.run(["ctr", "-n", "k8s.io", "images", "import", "/tmp/busybox.tar"], check=True)


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """Run crictl."""
    command = [
        "crictl",
        "--timeout",
        "60s",
        "--runtime-endpoint",
        SOCKET,
        "--image-endpoint",
        SOCKET,
        *words,
    ]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def crictl(*words: str) -> str:
    """crictl's answer."""
    answer = ask(*words)
    if answer.returncode:
        raise SystemExit(answer.stderr)
    return answer.stdout.strip()


def written(name: str, value: dict[str, Any]) -> str:
    """A file with this as JSON."""
    path = Path(f"/run/lab-{name}.json")
    path.write_text(json.dumps(value))
    return str(path)


class Pod:
    """A pod and its containers."""

    def __init__(self, path: Path) -> None:
        spec: dict[str, Any] = json.loads(path.read_text())
        self.containers: list[dict[str, Any]] = spec["containers"]
        self.uid: str = spec["uid"]
        metadata = {
            "name": spec["name"],
            "namespace": spec["namespace"],
            "uid": self.uid,
            "attempt": 1,
        }
        self.labels = {
            f"io.kubernetes.pod.{key}": spec[key] for key in ("uid", "name", "namespace")
        }
        linux = {
            "cgroup_parent": f"/kubepods/besteffort/pod{self.uid}",
            "security_context": {"namespace_options": {"network": 2}},
        }
        config = {
            "metadata": metadata,
            "labels": self.labels,
            "linux": linux,
            "log_directory": "/tmp",
        }
        self.config = written(f"sandbox-{self.uid}", config)
        # In its cgroup, as a kubelet does.
        Path(f"/sys/fs/cgroup/kubepods/besteffort/pod{self.uid}").mkdir(parents=True, exist_ok=True)
        self.sandbox = crictl("runp", self.config)
        self.attempts = 0
        # Name -> (id, pid), for the test.
        self.running: dict[str, tuple[str, int]] = {}
        self.state = Path(f"/run/lab-pod-{self.uid}.state")

    def sync(self) -> None:
        """Start what does not run, and stop what its liveness probe does not like."""
        for container in self.containers:
            found, pid = self.running.get(container["name"], ("", 0))
            if not pid or not Path(f"/proc/{pid}/root").exists():
                self.start(container)
            elif container.get("probe"):
                # As cheap as it can be: to run a program in a container takes seconds here.
                try:
                    os.listdir(f"/proc/{pid}/root{container['probe']}")
                except OSError:
                    ask("stop", "--timeout", "2", found)
        new = self.state.with_suffix(".new")
        new.write_text(json.dumps(self.running))
        new.rename(self.state)

    def start(self, container: dict[str, Any]) -> None:
        """Make a container and start it. A dead mount cannot be mounted: then it is tried again."""
        name = container["name"]
        self.running.pop(name, None)
        self.attempts += 1
        config = {
            "metadata": {"name": name, "attempt": self.attempts},
            "image": {"image": IMAGE},
            "command": COMMAND,
            "labels": {**self.labels, "io.kubernetes.container.name": name},
            # kubernetes pkg/kubelet/kuberuntime/labels.go, newContainerAnnotations.
            "annotations": {"io.kubernetes.pod.terminationGracePeriod": str(GRACE_SECONDS)},
            "mounts": container["mounts"],
            "linux": {},
            "log_path": f"{self.uid}-{name}.log",
        }
        made = crictl(
            "create", "--no-pull", self.sandbox, written(f"{self.uid}-{name}", config), self.config
        )
        if ask("start", made).returncode == 0:
            self.running[name] = (
                made,
                int(
                    Path(
                        f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{made}/init.pid"
                    ).read_text()
                ),
            )


def serve(folder: str) -> None:
    """Run the pods of a folder, look every second how their containers are, and start those again
    that have ended.
    """
    pods: dict[Path, Pod] = {}
    while True:
        for path in sorted(Path(folder).glob("*.json")):
            if path not in pods:
                pods[path] = Pod(path)
        for path in list(pods):
            if path.exists():
                pods[path].sync()
            else:
                # The test has taken the pod away.
                ended = pods.pop(path)
                ask("rmp", "--force", ended.sandbox)
                ended.state.unlink()
        time.sleep(1)


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {"runtime": runtime, "serve": serve}
    verbs[sys.argv[1]](*sys.argv[2:])
