# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Triage of a cluster in which many pods are stuck at once, each by a cause of its own: what the
events say, real kubelets, a real attacher and a real driver have said.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab.kind.cluster import Kind
from lab.kind.csi import Driver
from lab.kubernetes import api as k8s
from lab.kubernetes.api import Object, path
from support.kind import NAME, KindCluster, counting, on, running
from support.reattach import Workload

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"
# A driver that no node has, nor any controller.
ABSENT = "csi.absent.example"
# What triage allows a pod to end after its grace period.
ENDING_SECONDS = 60
HELD = "example.com/hold"


@dataclass(frozen=True)
class Named:
    """What triage is to say of a pod, and what it waits for: a part of an event's message."""

    event: str
    summary: str
    reason: str
    control: str = ""
    severity: str = "major"


STUCK = {
    "second": Named(
        "Multi-Attach error for volume",
        "pv-db is attached to {worker}, where pod default/db-0 needs it",
        "stop or move that pod",
    ),
    "unregistered": Named(
        "AttachVolume.Attach failed",
        "attaching pv-unregistered to {other} fails: CSINode {other} does not contain driver",
        "look at the driver's node pod on {other}",
    ),
    "absent": Named(
        "",
        "CSINode {worker} lacks the driver csi.absent.example",
        "look at the driver's node pod on {worker}",
    ),
    "driver-secret": Named(
        "fetching NodeStageSecretRef default/nothing failed",
        "the Secret that the PersistentVolume names for its driver does not exist",
        "create it again with the driver's credentials",
    ),
    "no-folder": Named(
        "MountVolume.MountDevice failed",
        "mkdir /srv/volumes/vol-no-folder: not a directory",
        "look at the log of the CSI driver's node pod on {worker}",
    ),
    "unbound": Named(
        "unbound immediate PersistentVolumeClaims",
        "the claim names no StorageClass that exists",
        "set a default StorageClass or create one of that name",
    ),
    "claim-missing": Named(
        'persistentvolumeclaim "nothing" not found',
        "a claim that the pod names does not exist",
        "create the claim",
    ),
    "secret-missing": Named(
        'secret "nothing" not found',
        "a ConfigMap or Secret that the pod names does not exist",
        "not storage: create it",
        severity="info",
    ),
    "config-missing": Named(
        'configmap "nothing" not found',
        "a ConfigMap or Secret that the pod names does not exist",
        "not storage: create it",
        severity="info",
    ),
    "environment": Named(
        'secret "nothing" not found',
        "a ConfigMap or Secret that the pod names does not exist",
        "not storage: create it",
        severity="info",
    ),
    "host-path": Named(
        "hostPath type check failed",
        "a hostPath of the pod is not there",
        "not storage: create it on the node",
        severity="info",
    ),
    "image": Named(
        "Back-off pulling image",
        "the container image cannot be pulled",
        "not storage: ",
        "",
        "info",
    ),
    "unschedulable": Named(
        "Insufficient cpu", "no node takes the pod", "not storage: ", severity="info"
    ),
    "held": Named(
        "",
        f"is being deleted on {{worker}} for ... by finalizers: {HELD}",
        "not storage",
        "",
        "info",
    ),
    "iscsi": Named(
        "find module by name='iscsi_tcp'",
        "node {worker} is not ready for iSCSI",
        "ansible-playbook storage_ops.runbooks.load_iscsi_modules -i inventory -e target={worker} "
        "(with --check first)",
        control="STOR-04",
    ),
}
# Only a kernel without it says that; one that has it waits for a server.
if Path("/sys/class/iscsi_transport").exists():
    del STUCK["iscsi"]


class Broken:
    """The cluster with all of them, and with pods that have nothing."""

    def __init__(self, cluster: KindCluster, driver: Driver) -> None:
        self.cluster, self.driver = cluster, driver
        self.worker, self.other = cluster.kind.workers
        api = cluster.api
        Workload(cluster, "db", "StatefulSet", driver=NAME, **counting("db"), **on(self.worker))
        self._pod("web")
        self._pod("held", finalizers=[HELD])
        cluster.wait(lambda: self._phase("held") == self._phase("web") == "Running", "they run", 60)
        api.delete(path("Pod", "held"))
        self.ends = time.monotonic() + ENDING_SECONDS
        driver.leave(self.other)
        self._of_volumes()
        self._of_others()
        for name, named in STUCK.items():
            cluster.wait(partial(self._said, name, named.event), name, 90)

    def close(self) -> None:
        """Let what is held go."""
        if self.cluster.api.find("Pod", "held"):
            change = {"metadata": {"finalizers": None}}
            self.cluster.api.merge(path("Pod", "held"), change)
        self.driver.come_back(self.other)

    def words(self, text: str) -> list[str]:
        """The parts of an expected text, in order, with the names of this cluster."""
        return text.format(worker=self.worker, other=self.other).split("...")

    def _of_volumes(self) -> None:
        api = self.cluster.api
        self._pod("second", "db", on=self.other)
        api.add_volume("unregistered", NAME, "vol-unregistered")
        self._pod("unregistered", "unregistered", on=self.other)
        api.add_volume("absent", ABSENT, "vol-absent")
        self._pod("absent", "absent")
        volume, claim = k8s.volume("driver-secret", NAME, "vol-driver-secret")
        volume["spec"]["csi"]["nodeStageSecretRef"] = {"name": "nothing", "namespace": "default"}
        api.create(volume, claim)
        self._pod("driver-secret", "driver-secret")
        (self.cluster.kind.volumes / "vol-no-folder").write_text("a file")
        api.add_volume("no-folder", NAME, "vol-no-folder")
        self._pod("no-folder", "no-folder")
        _volume, claim = k8s.volume("unbound", NAME, "")
        del claim["spec"]["volumeName"]
        claim["spec"]["storageClassName"] = "nothing"
        api.create(claim)
        self._pod("unbound", "unbound")
        self._pod("claim-missing", "nothing")
        if "iscsi" in STUCK:
            target = {"targetPortal": "127.0.0.1:3260", "iqn": "iqn.2026-01.example:x", "lun": 1}
            self._inline("iscsi", {"iscsi": target})

    def _of_others(self) -> None:
        self._inline("secret-missing", {"secret": {"secretName": "nothing"}})
        self._inline("config-missing", {"configMap": {"name": "nothing"}})
        self._inline("host-path", {"hostPath": {"path": "/nothing", "type": "Directory"}})
        self._pod("environment", envFrom=[{"secretRef": {"name": "nothing"}}])
        # Nothing listens there.
        self._pod("image", image="127.0.0.1:9/nothing:1", imagePullPolicy="Always")
        self._pod("unschedulable", resources={"requests": {"cpu": "1000"}})
        self._pod("crash", command=["/bin/false"])

    def _pod(self, name: str, claim: str = "", on: str = "", **changes: Any) -> None:
        finalizers = changes.pop("finalizers", None)
        spec = running("sleep 1000", claim=claim)
        spec["containers"][0].update(changes)
        self._create(name, [claim] if claim else [], spec, on, finalizers)

    def _inline(self, name: str, source: Object) -> None:
        """A pod with a volume that needs no claim."""
        spec = running("sleep 1000", claim="inline")
        self._create(name, [], {**spec, "volumes": [{"name": "inline", **source}]})

    def _create(
        self, name: str, claims: list[str], spec: Object, node: str = "", finalizers: Any = None
    ) -> None:
        found = k8s.pod(name, claims, **spec, **on(node or self.worker))
        found["metadata"]["finalizers"] = finalizers or []
        self.cluster.api.create(found)

    def _phase(self, name: str) -> str:
        return str((self.cluster.api.find("Pod", name) or {"status": {}})["status"].get("phase"))

    def _said(self, name: str, text: str) -> bool:
        about = path("Pod", name)
        uid = (self.cluster.api.get(about) or {})["metadata"]["uid"]
        return not text or any(
            text in event["message"]
            for event in self.cluster.api.all("Event", "default")
            if event["involvedObject"].get("uid") == uid
        )


@pytest.fixture(scope="module")
def broken(kind: Kind, started_driver: Driver) -> Iterator[Broken]:
    """All of it, for all tests here."""
    cluster = KindCluster(kind)
    started_driver.forget()
    made = Broken(cluster, started_driver)
    time.sleep(max(0.0, made.ends + 1 - time.monotonic()))
    yield made
    made.close()


def test_each_is_named_by_its_cause_and_no_other(broken: Broken) -> None:
    before = broken.cluster.attachment_uids()
    outcome = broken.cluster.ansible("pod_volume_info", user=AUDITOR, stuck_seconds=5)
    assert not outcome.failed and not outcome.changed, outcome.msg
    found = {finding["object"]["name"]: finding for finding in outcome.findings}
    wrong = {
        name: (found.get(name), named)
        for name, named in STUCK.items()
        if name not in found or not _is_named(found[name], named, broken)
    }
    assert wrong == {}
    # Not the pods that run, nor one that crashes for a reason of its own.
    assert found.keys() == STUCK.keys()
    assert broken.cluster.attachment_uids() == before


def test_the_playbook_says_the_same(broken: Broken) -> None:
    played = broken.cluster.playbook(
        "triage", user=AUDITOR, triage_stuck_seconds=5, triage_strict=True
    )
    assert played.rc != 0, played.text
    for name, named in STUCK.items():
        head = f"{named.control} {named.severity}: pod default/{name}".strip()
        assert f'"{head}"' in played.text, (head, played.text)


def _is_named(finding: dict[str, Any], named: Named, broken: Broken) -> bool:
    rest = finding["summary"]
    for part in broken.words(named.summary):
        _before, there, rest = rest.partition(part)
        if not there:
            return False
    (reason,) = broken.words(named.reason)
    same = (finding["control"], finding["severity"]) == (named.control, named.severity)
    return same and reason in finding["reason"]
