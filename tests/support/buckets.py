# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An application on a kind cluster whose volume is a bucket, until what serves that ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lab.common import LabError
from lab.kind.buckets import BucketDriver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import Object

from support.cluster import Played
from support.kind import IMPATIENT, KindCluster, counting, running
from support.reattach import REPAIR, no_trace

AUDITOR = REPAIR.with_name("rbac-audit.yml")
DEAD = "Transport endpoint is not connected"
# Where each container has the bucket, or a folder of it.
SEEN = {"main": "/web", "shares": "/web", "sidecar": "/web", "inner": "/inner"}


class BucketApp:
    """A pod, made by a Deployment, of which each container has the bucket `web` in another way.

    Of a volume that is ``looped``, it has one container.
    """

    def __init__(
        self,
        cluster: KindCluster,
        driver: BucketDriver,
        folder: Path,
        mounter: str = "s3fs",
        looped: bool = False,
    ) -> None:
        self.cluster, self.driver, self.folder = cluster, driver, folder
        # Of another way to the nodes.
        self.inventory: Path | None = None
        # Those of an earlier test's pods go a moment after the pods.
        cluster.wait(lambda: not any(map(driver.mounts, driver.nodes)), "no mount is left", 90)
        driver.add_volume("web", mounter, **({"looped": "true"} if looped else {}))
        spec = counting("web") if looped else _spec()
        cluster.api.create(k8s.workload("Deployment", "web", ["web"], **spec))
        cluster.wait(lambda: self.pods() and self.count() >= 5, "it counts", 90)
        # Where it begins.
        self.worker = str(self.pod["spec"]["nodeName"])
        (self.other,) = set(cluster.kind.workers) - {self.worker}

    @property
    def pod(self) -> Object:
        """Its only one that is not being deleted."""
        (found,) = (
            pod
            for pod in self.cluster.api.all("Pod", "default")
            if pod["metadata"].get("labels", {}).get("app") == "web"
            and "deletionTimestamp" not in pod["metadata"]
        )
        return found

    def says(self, container: str, *command: str) -> str:
        """What a command in a container says, and why it fails."""
        name = self.pod["metadata"]["name"]
        try:
            return self.cluster.kind.kubectl("exec", name, "-c", container, "--", *command)
        except LabError as exc:
            return str(exc)

    def count(self) -> int:
        """How far it has come, by its own data; 0: it has none."""
        said = self.says("main", "cat", "/web/count").strip()
        return int(said) if said.isdigit() else 0

    def restarts(self) -> dict[str, int]:
        """Container -> how often it was started again."""
        status = self.pod["status"]
        every = [*status["containerStatuses"], *status.get("initContainerStatuses", [])]
        return {entry["name"]: entry["restartCount"] for entry in every}

    def dies(self, kill: Callable[[], object] | None = None) -> None:
        """What serves it is killed: the plugin's pod, or this; nothing that has the bucket can use
        it.
        """
        if kill:
            kill()
        else:
            self.driver.kill(self.worker)
        for container, folder in SEEN.items():
            # The old one may end a moment after the new one has begun.
            self.cluster.wait(partial(self._is_dead, container, folder), "dead")

    def _is_dead(self, container: str, folder: str) -> bool:
        return DEAD in self.says(container, "ls", folder)

    def play(self, name: str, check: bool = False, **variables: Any) -> Played:
        """A playbook for both workers."""
        played = self.cluster.playbook(
            name,
            check=check,
            user=AUDITOR if name == "compliance" else REPAIR,
            inventory=self.inventory
            or self.cluster.inventory(self.folder, self.worker, self.other),
            **variables,
        )
        assert self.driver.gateway.secret_key not in played.text
        return played

    def repair(self, check: bool = False, **variables: Any) -> Played:
        """As an operator does who knows that the driver was restarted."""
        given = {"target": self.worker, "fuse_recovery_accept_majority": True, **variables}
        return self.play("recover_fuse_mounts", check, **given)

    def comes_anew(self) -> None:
        """The kubelet and the driver are at ease: the volume is unpublished and unstaged when the
        pod goes, and another one has it, and its data.
        """
        reached, cluster = self.count(), self.cluster
        where = k8s.path("Deployment", "web")
        cluster.api.merge(where, {"spec": {"replicas": 0}})
        cluster.wait(lambda: not self.mounts(), "unstaged", 90)
        cluster.api.merge(where, {"spec": {"replicas": 1}})
        cluster.wait(lambda: self.pods() and self.count() > reached, "it goes on", 90)

    def findings(self) -> list[dict[str, Any]]:
        """Of a compliance run over all of it."""
        inventory = self.inventory or self.cluster.inventory(self.folder, self.worker, self.other)
        played, report = self.cluster.compliance(self.folder, AUDITOR, IMPATIENT, inventory)
        assert self.driver.gateway.secret_key not in played.text
        return list(report["findings"])

    def pods(self) -> list[Object]:
        """All there are."""
        return self.cluster.api.all("Pod", "default")

    def mounts(self) -> list[str]:
        """Of s3fs, on its node."""
        return self.driver.mounts(self.worker)


def _spec() -> Object:
    """Without and with propagation, a folder of the bucket, a container that ends and a sidecar."""
    (main,) = counting("web")["containers"]
    idle = running("sleep 100000", claim="web")["containers"][0]
    (mount,) = idle["volumeMounts"]
    shared = {**mount, "mountPropagation": "HostToContainer"}
    begins = ("mkdir -p /web/folder", "date >> /web/folder/begun")
    first = running(*begins, claim="web")["containers"][0]
    return {
        "containers": [
            main,
            {**idle, "name": "shares", "volumeMounts": [shared]},
            {
                **idle,
                "name": "inner",
                "volumeMounts": [{**mount, "mountPath": "/inner", "subPath": "folder"}],
            },
        ],
        "initContainers": [
            {**first, "name": "first"},
            {**idle, "name": "sidecar", "restartPolicy": "Always"},
        ],
    }


def is_remounted(app: BucketApp, kept: str, **given: Any) -> None:
    """All have the volume again, with what the pod has written as its first."""
    uid, dead = app.pod["metadata"]["uid"], app.mounts()
    check = app.repair(check=True, **given)
    assert check.rc == 0 and "planned: replace_mount" in check.text, check.text
    assert app.mounts() == dead
    run = app.repair(**given)
    assert run.rc == 0, run.text
    assert app.restarts() == {"main": 1, "shares": 1, "inner": 1, "sidecar": 1, "first": 0}
    assert app.pod["metadata"]["uid"] == uid
    for container, path in (("main", "/web/folder/begun"), ("inner", "/inner/begun")):
        assert app.says(container, "cat", path) == kept
    reached = app.count()
    app.cluster.wait(lambda: app.count() > reached, "it goes on", 60)
    again = app.repair(**given)
    assert again.rc == 0 and '"changed": true' not in again.text, again.text
    app.comes_anew()


def is_moved(app: BucketApp, reached: int = 0) -> None:
    """Another pod has the volume, and goes on with what is in it.

    ``reached``: the count that it has to exceed.
    """
    uid, dead = app.pod["metadata"]["uid"], app.mounts()
    given = {"fuse_recovery_strategy": "kubelet"}
    # No object tells when a volume without a VolumeAttachment is unstaged, so the move waits.
    given["fuse_recovery_options"] = json.dumps({"unstage_timeout": 10})
    check = app.repair(check=True, **given)
    assert check.rc == 0 and "planned: evict_pod default/web-" in check.text, check.text
    assert app.mounts() == dead and app.pod["metadata"]["uid"] == uid
    run = app.repair(**given)
    assert run.rc == 0 and "done: evict_pod default/web-" in run.text, run.text
    cluster = app.cluster
    cluster.wait(lambda: app.pods() and app.count() > reached, "it has its data", 90)
    further = app.count()
    cluster.wait(lambda: app.count() > further, "it goes on", 60)
    assert app.pod["metadata"]["uid"] != uid
    again = app.repair(**given)
    assert again.rc == 0 and '"changed": true' not in again.text, again.text
    no_trace(cluster)
