# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks fail_over_volumes and release_fenced_node as an operator runs them, and what they
may leave behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from lab.ceph.release import PYTHON
from lab.common import patient
from lab.kubernetes.api import path
from lab.kubernetes.proxy import Proxy

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    OWN_NAMESPACE,
)
from support.cluster import Played
from support.failover import NODE_A, Scene
from support.node import COLLECTION, environment

RBAC = Path(__file__).resolve().parents[2] / "playbooks/files/rbac-fence.yml"
FAIL_OVER, RELEASE = "fail_over_volumes", "release_fenced_node"
USER = "storage-ops"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
ANNOTATION = "runbooks.storage-ops/fence"
# As from a survey: all strings. What a lost node and a watcher are is learned in seconds here; a
# Lease outlives its run by little.
QUICK = {
    "node_fence_grace_seconds": "1",
    "node_fence_observation_seconds": "2",
    "node_fence_accept_short_observation": "true",
}
# How a run looks at Ceph without them.
DEFAULTS = {
    "node_fence_observation_seconds": "61",
    "node_fence_accept_short_observation": "false",
}
LEASE = {"lease_seconds": "20", "lease_timeout": "60"}
# The longest that one run may take (seconds).
DEADLINE = patient(300)
# The Ceph host is none that has what the cluster's modules need, and is reached as it says itself.
INVENTORY = (
    "localhost ansible_connection=local\nceph-admin ansible_connection=local "
    "ansible_python_interpreter=/usr/bin/python3\n"
)


class Fencing:
    """A lost node, and who runs the playbooks: somebody with the rights of rbac-fence.yml and a
    user of Ceph.
    """

    def __init__(self, scene: Scene, ceph: bool = True) -> None:
        self.scene, self.api, self.ceph = scene, scene.api, ceph
        self.proxy: Proxy | None = None
        # How a run prints its tasks; empty is as the tests read them.
        self.callback = ""
        self.program = "ansible-playbook"
        # The capabilities that the guide ceph_blocklist.md asks for, and no others.
        scene.storage.user(USER, mon=scene.storage.caps, osd="profile rbd-read-only")
        self.user = USER
        self.inventory = scene.storage.ceph.folder / "inventory"
        self.inventory.write_text(INVENTORY.replace(PYTHON, scene.storage.ceph.python))

    def variables(self, role: str) -> dict[str, str]:
        """What the role is told about Ceph and the Lease."""
        connection = self.scene.storage.connection(self.user) if self.ceph else {}
        found = {f"{role}_ceph_{name}": value for name, value in connection.items()}
        return {
            **found,
            **({f"{role}_ceph_host": "ceph-admin"} if self.ceph else {}),
            f"{role}_options": LEASE,
        }

    def command(self, playbook: str, check: bool = False, **given: Any) -> list[str]:
        """The command line of a run."""
        roles = ("node_fence", "volume_failover") if playbook == FAIL_OVER else ("node_release",)
        told: dict[str, Any] = {"target": NODE_A, **(QUICK if playbook == FAIL_OVER else {})}
        told |= self.variables(roles[0])
        told |= {f"{role}_options": LEASE for role in roles}
        extra = json.dumps({**told, **given})
        where = ["-i", str(self.inventory), "-e", extra, *(["--check"] if check else [])]
        return [self.program, f"{COLLECTION}.{playbook}", *where]

    def begin(self, playbook: str, **given: Any) -> subprocess.Popen[str]:
        """Start a run."""
        return subprocess.Popen(
            self.command(playbook, **given),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.settings(),
        )

    def settings(self) -> dict[str, str]:
        """The environment of a run."""
        return {
            **environment(),
            "K8S_AUTH_KUBECONFIG": str(self.scene.cluster.kubeconfig(RBAC, self.proxy)),
            **({"ANSIBLE_STDOUT_CALLBACK": self.callback} if self.callback else {}),
        }

    def run(self, playbook: str, check: bool = False, **given: Any) -> Played:
        """One run to its end."""
        command = self.command(playbook, check, **given)
        answer = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env=self.settings(),
        )
        text = answer.stdout + answer.stderr
        # What a run that is killed has begun may complain about that.
        assert "Traceback" not in text or answer.returncode < 0, text
        return Played(answer.returncode, text)

    def fail_over(self, check: bool = False, **given: Any) -> Played:
        """Run fail_over_volumes for node A."""
        return self.run(FAIL_OVER, check, **given)

    def release(self, check: bool = False, **given: Any) -> Played:
        """Run release_fenced_node for node A."""
        return self.run(RELEASE, check, **given)

    def let_go(self) -> None:
        """Release node A, after which nothing is left of its fence."""
        granted = self.release()
        assert granted.rc == 0, granted.text
        self.nothing_left()
        assert self.scene.storage.ceph.blocklist() == {}

    # what is left

    @property
    def ledger(self) -> dict[str, Any] | None:
        """The ledger; its two copies must say the same."""
        kept = self.api.get(path("ConfigMap", f"storage-ops-fence-{NODE_A}", OWN_NAMESPACE))
        noted = (self.scene.node()["metadata"].get("annotations") or {}).get(ANNOTATION)
        assert (kept["data"]["ledger"] if kept else None) == noted
        return json.loads(noted) if noted else None

    @property
    def ledgers(self) -> list[str]:
        """The ConfigMaps of all ledgers."""
        found = self.api.all("ConfigMap", OWN_NAMESPACE)
        return [
            entry["metadata"]["name"]
            for entry in found
            if entry["metadata"]["name"].startswith("storage-ops-fence-")
        ]

    @property
    def lease(self) -> dict[str, Any] | None:
        """The Lease under which somebody works at node A."""
        return self.api.get(path("Lease", f"storage-ops-fence-{NODE_A}", OWN_NAMESPACE))

    @property
    def cordoned(self) -> bool:
        """Node A is cordoned."""
        return bool(self.scene.node()["spec"].get("unschedulable"))

    def state(self) -> dict[str, Any]:
        """What a run that changes nothing leaves as it is."""
        meta, spec = self.scene.node()["metadata"], self.scene.node()["spec"]
        return {
            "osd map": self.scene.storage.ceph.osd_map(),
            "annotations": sorted(meta.get("annotations") or {}),
            "ledger": self.ledger,
            "ledgers": self.ledgers,
            "lease": self.lease,
            "cordoned": self.cordoned,
            "taints": sorted((taint["key"], taint["effect"]) for taint in spec.get("taints") or []),
            "attachments": self.scene.cluster.attachment_uids(),
            "pods": {pod["metadata"]["uid"] for pod in self.api.all("Pod")},
        }

    def nothing_left(self) -> None:
        """No ledger, no Lease, no taint of ours, no cordon."""
        found = (self.ledger, self.ledgers, self.lease, self.cordoned)
        assert found == (None, [], None, False), found
        assert OUT_OF_SERVICE not in self.scene.taints(NODE_A)


def tree(process: subprocess.Popen[str]) -> dict[int, str]:
    """The command lines of a run and of all that it has started, by their pids; Ansible's workers
    and modules are in sessions of their own.
    """
    command = ["ps", "-ww", "-eo", "pid=,ppid=,args="]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    every: dict[int, tuple[int, str]] = {}
    for line in table.splitlines():
        pid, above, *said = line.split(maxsplit=2)
        every[int(pid)] = (int(above), "".join(said))
    found = [process.pid]
    for one in found:
        found += [child for child, (parent, _said) in every.items() if parent == one]
    return {one: every[one][1] for one in found if one in every}


def kill(process: subprocess.Popen[str]) -> None:
    """A whole run at once."""
    for pid in tree(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
