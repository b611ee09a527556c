# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real containers on the VM node, in pods that a stand-in for the kubelet runs and restarts."""

from __future__ import annotations

import functools
import json
import uuid
from pathlib import Path
from typing import Any

from lab.kubernetes.build import CRICTL, current
from lab.state import READY, State

from support.mounts import PROGRAMS
from support.node import Node

# Of the stand-in for the kubelet.
UNIT = "lab-pods"
FOLDER = "/run/lab-pods"


@functools.cache
def runtime() -> State:
    """containerd runs, with crictl, and the stand-in for its kubelet."""
    program = "/usr/local/sbin/pods.py"
    return State(
        name="runtime",
        files={
            program: (PROGRAMS / "pods.py").read_bytes(),
            "/usr/local/bin/crictl": Path(current(CRICTL)["crictl"]).read_bytes(),
        },
        commands=(
            f"python3 {program} runtime && mkdir -p {FOLDER}",
            f"systemd-run --quiet --unit {UNIT} /usr/bin/python3 {program} serve {FOLDER}",
        ),
        before=READY,
    )


class Runtime:
    """The containerd of a node that began in the state ``runtime``."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def run(
        self, uid: str, name: str, *containers: dict[str, Any], namespace: str = "default"
    ) -> Pod:
        """A pod; it is there when it has containers."""
        spec = {"uid": uid, "namespace": namespace, "name": name, "containers": containers}
        self.node.vm.run(
            f"cat > {FOLDER}/{uid}.new && mv {FOLDER}/{uid}.new {FOLDER}/{uid}.json",
            stdin=json.dumps(spec),
        )
        return Pod(self.node, uid, name)


class Pod:
    """A pod on the node."""

    def __init__(self, node: Node, uid: str, name: str) -> None:
        self.node, self.uid, self.name = node, uid, name

    def containers(self) -> dict[str, tuple[str, int]]:
        """Name -> (id, pid of its first process), of those that run."""
        found: dict[str, tuple[str, int]] = json.loads(
            self.node.sh(f"cat /run/lab-pod-{self.uid}.state 2>/dev/null || echo {{}}")
        )
        return {name: (found[name][0], found[name][1]) for name in found}

    def started(self) -> Pod:
        """Once it has containers."""
        self.node.wait(lambda: bool(self.containers()), f"pod {self.name} runs", 120)
        return self

    def end(self) -> None:
        """Its kubelet ends it."""
        self.node.sh(f"rm {FOLDER}/{self.uid}.json")
        self.node.wait(lambda: not self.containers(), f"pod {self.name} has ended")


def mount(path: str, source: str, propagation: int = 0) -> dict[str, Any]:
    """A mount of a container, as the CRI has it; ``propagation``: 1 is HostToContainer."""
    return {"container_path": path, "host_path": source, "propagation": propagation}


def new_uid() -> str:
    """A pod's uid."""
    return str(uuid.uuid4())
