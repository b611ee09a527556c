# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workloads with a volume, as the tests of workload_reattach and of the playbooks that use it move
them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from lab.kubernetes import api as k8s
from lab.kubernetes.api import path

from support.cluster import Reached

DRIVER = "csi.example.com"
# What keeps new pods off a node that is left.
HOLD = "runbooks.storage-ops/moving"
# Of a pod that it does not keep away.
TOLERANT = {"tolerations": [{"key": HOLD, "operator": "Exists"}]}
REPAIR = Path(__file__).resolve().parents[2] / "playbooks/files/rbac-repair.yml"
# With what only workload_reattach_scale_down needs.
SCALING = (REPAIR, REPAIR.with_name("rbac-repair-scale-down.yml"))


class Workload:
    """A workload with one claim of its name, once all its pods run."""

    def __init__(
        self,
        cluster: Reached,
        name: str,
        kind: str = "Deployment",
        replicas: int = 1,
        driver: str = DRIVER,
        namespace: str = "default",
        **spec: Any,
    ) -> None:
        self.cluster, self.name, self.kind, self.replicas = cluster, name, kind, replicas
        self.namespace = namespace
        modes = ("ReadWriteMany",) if replicas > 1 or kind == "DaemonSet" else ("ReadWriteOnce",)
        cluster.api.add_volume(name, driver, f"vol-{name}", namespace, modes=modes)
        cluster.api.create(k8s.workload(kind, name, [name], replicas, namespace, **spec))
        self.wait_ready()

    def wait_ready(self) -> None:
        """All pods run and are ready."""
        self.cluster.wait(
            lambda: len(self._ready()) >= self.replicas, f"{self.kind} {self.name} is ready", 60
        )

    def _ready(self) -> list[dict[str, Any]]:
        def ready(found: dict[str, Any]) -> bool:
            return any(
                entry["type"] == "Ready" and entry["status"] == "True"
                for entry in found["status"].get("conditions", [])
            )

        return [found for found in self.living() if ready(found)]

    def living(self) -> list[dict[str, Any]]:
        """Its pods that are not being deleted."""
        pods = self.cluster.api.all("Pod", self.namespace)
        mine = [
            found for found in pods if found["metadata"].get("labels", {}).get("app") == self.name
        ]
        return [found for found in mine if "deletionTimestamp" not in found["metadata"]]

    def pods(self) -> set[str]:
        """Uids of its pods."""
        return {found["metadata"]["uid"] for found in self.living()}

    def node(self) -> str:
        """Where its pod runs."""
        (found,) = self.living()
        return str(found["spec"]["nodeName"])

    def attachments(self) -> list[dict[str, Any]]:
        """The attachments of its volume."""
        found = self.cluster.api.all("VolumeAttachment")
        return [
            entry
            for entry in found
            if entry["spec"]["source"]["persistentVolumeName"] == f"pv-{self.name}"
        ]

    def attachment(self) -> dict[str, Any]:
        """The only attachment of its volume."""
        (found,) = self.attachments()
        return found

    def lose_metadata(self) -> None:
        """Its attachments become as an old version of the driver has made them."""
        for found in self.attachments():
            self.cluster.api.merge(
                path("VolumeAttachment", found["metadata"]["name"]) + "/status",
                {"status": {"attachmentMetadata": None}},
            )


def no_trace(cluster: Reached) -> None:
    """No node is held or cordoned, and nothing of ours is written anywhere."""
    for kind in ("Node", "Deployment", "StatefulSet"):
        for found in cluster.api.all(kind):
            assert not found["spec"].get("unschedulable"), found["metadata"]["name"]
            meta = found["metadata"]
            keys = [*(meta.get("annotations") or {}), *(meta.get("labels") or {})]
            keys += [taint["key"] for taint in found["spec"].get("taints") or []]
            ours = [key for key in keys if key.startswith("runbooks.storage-ops/")]
            assert not ours, (meta["name"], ours)
    assert leases(cluster) == []


def leases(cluster: Reached) -> list[dict[str, Any]]:
    """Those by which a node counts as held by us."""
    found = cluster.api.all("Lease", "storage-ops")
    return [each for each in found if HOLD in (each["metadata"].get("labels") or {})]


def is_held(found: dict[str, Any]) -> bool:
    """A node that takes no new pods because of us."""
    return any(taint["key"] == HOLD for taint in found["spec"].get("taints") or [])


def kill_module(number: int = signal.SIGKILL, module: str = "workload_reattach") -> None:
    """A signal to the module that one of our own children runs; not to Ansible, which
    has to tell.
    """
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
    mine = {os.getpid()}
    while True:
        found = {pid for pid, parent in parents.items() if parent in mine} - mine
        if not found:
            break
        mine |= found
    for pid in mine - {os.getpid()}:
        with contextlib.suppress(OSError):
            if f"AnsiballZ_{module}.py" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, number)
