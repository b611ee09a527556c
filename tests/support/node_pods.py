# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pods through which nodes without ssh are reached, made and used as their guide says."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from lab.kind.build import node_programs
from lab.kind.python_image import IMAGE

from support.cluster import Reached, User
from support.node import ANSIBLE_DEADLINE, COLLECTION, Outcome, environment, of_ansible
from support.rights import FILES

MANIFEST = FILES / "node_pods/node-pods.yml"
SPACE, NAME = "storage-ops-nodes", "storage-ops-node"
ROLLOUT_SECONDS = 300


class NodePods:
    """The DaemonSet of the manifest on a cluster whose nodes have the image."""

    def __init__(self, cluster: Reached, folder: Path) -> None:
        self.cluster = cluster
        self.source = folder / "nodes.storage_ops.yml"
        self.write()
        # Ansible's connection looks for it.
        self._kubectl = Path(node_programs()["kubectl"])
        self.path = f"{self._kubectl.parent}:{os.environ['PATH']}"

    def write(self, **options: Any) -> None:
        """The source of the inventory."""
        given = {"plugin": f"{COLLECTION}.nodes", "connection": "pod", **options}
        self.source.write_text(yaml.safe_dump(given))

    def start(self, *users: User, **spec: Any) -> None:
        """Apply the manifest, with this in the spec of pods, until all are ready; bind its Role to
        these accounts.
        """
        made = yaml.safe_load(MANIFEST.read_text().replace("image: IMAGE", f"image: {IMAGE}"))
        (daemon_set,) = (item for item in made["items"] if item["kind"] == "DaemonSet")
        daemon_set["spec"]["template"]["spec"] |= spec
        self.kubectl("apply", "-f", "-", data=json.dumps(made))
        accounts = [self._account(user) for user in users]
        subjects = [f"--serviceaccount={account}" for account in accounts]
        self.kubectl("create", "rolebinding", NAME, f"--role={NAME}", *subjects)
        self.wait()

    def wait(self) -> None:
        """All pods are as the DaemonSet has them now."""
        timeout = f"--timeout={ROLLOUT_SECONDS}s"
        self.kubectl("rollout", "status", f"daemonset/{NAME}", timeout)

    def change(self, **spec: Any) -> None:
        """Other pods, with this in their spec."""
        patch = {"spec": {"template": {"spec": spec}}}
        self.kubectl("patch", "daemonset", NAME, "--patch", json.dumps(patch))
        self.wait()

    def remove(self) -> None:
        """As when the work is done."""
        self.kubectl("delete", "namespace", SPACE, "--ignore-not-found")

    def pods(self, node: str) -> list[dict[str, Any]]:
        """None on a node while one follows another."""
        return [
            pod
            for pod in self.cluster.api.all("Pod", SPACE)
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
        ]

    def pod(self, node: str) -> dict[str, Any]:
        """The pod on a node."""
        (found,) = self.pods(node)
        return found

    def kubectl(self, *arguments: str, data: str = "") -> str:
        """What kubectl says to an administrator."""
        answer = subprocess.run(
            [str(self._kubectl), "--namespace", SPACE, *arguments],
            check=False,
            input=data,
            capture_output=True,
            text=True,
            timeout=ANSIBLE_DEADLINE + ROLLOUT_SECONDS,
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig())},
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def run(
        self, host: str, module: str, user: User, *more: str, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """The command ansible with the inventory of the pods; a module of ours has no dot."""
        name = module if "." in module else f"{COLLECTION}.{module}"
        given = ["-a", json.dumps(options)] if options else []
        return of_ansible(
            ["ansible", host, "-i", str(self.source), "-b", "-m", name, *given, *more],
            {
                **environment(),
                "PATH": self.path,
                "K8S_AUTH_KUBECONFIG": str(self.cluster.kubeconfig(user)),
                "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
            },
        )

    def ansible(self, host: str, module: str, user: User, *more: str, **options: Any) -> Outcome:
        """What a module returns."""
        answer = self.run(host, module, user, *more, **options)
        text = answer.stdout
        assert "=>" in text and "Traceback" not in text, text + answer.stderr
        head, _arrow, rest = text.partition("=>")
        result, _end = json.JSONDecoder().raw_decode(rest.lstrip())
        return Outcome(result, "FAILED" in head)

    def _account(self, user: User) -> str:
        """Namespace and name of an account of a manifest."""
        manifests: Sequence[Path] = user if isinstance(user, tuple) else (Path(user),)
        items = yaml.safe_load(manifests[0].read_text())["items"]
        (meta,) = (item["metadata"] for item in items if item["kind"] == "ServiceAccount")
        return f"{meta['namespace']}:{meta['name']}"
