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
from support.kind import NAME, KindCluster, add_disk, counting, on, running
from support.reattach import Workload

AUDITOR = Path(__file__).parents[2] / "playbooks/files/rbac-audit.yml"
# A driver that no node has, nor any controller.
ABSENT = "csi.absent.example"
# What triage allows a pod to end after its grace period.
ENDING_SECONDS = 60
HELD = "example.com/hold"
# Those that have nothing at first.
RUNNING = ("web", "held", "unmounted", "single")


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
    "refused": Named(
        "AttachVolume.Attach failed",
        "attaching pv-refused to {worker} fails: rpc error: code = FailedPrecondition desc = "
        "volume vol-refused is attached to node elsewhere",
        "look at the log of the driver's controller",
    ),
    "other-type": Named(
        "wrong fs type, bad option, bad superblock",
        "a filesystem of another type than the volume's fsType",
        "compare what blkid finds on the device with the fsType of the PersistentVolume",
    ),
    "unknown-type": Named(
        "unknown filesystem type 'ext5'",
        "the kernel of node {worker} does not know the filesystem type that the volume asks for",
        "compare the fsType of the PersistentVolume with what blkid finds on the device",
    ),
    "no-mkfs": Named(
        "format of disk",
        "there is no mkfs for the filesystem type that it asks for",
        "correct the fsType of the StorageClass and of the PersistentVolume",
    ),
    "exclusive": Named(
        "already in-use by another pod",
        "the claim allows one pod only, and another pod uses it",
        "stop the other pod of the claim",
    ),
    "exclusive-placed": Named(
        "volume uses the ReadWriteOncePod access mode",
        "the claim allows one pod only, and another pod uses it",
        "stop the other pod of the claim",
    ),
    "affinity": Named(
        "didn't match PersistentVolume's node affinity",
        "the volume can be reached from other nodes only than those the pod may run on",
        "compare the PersistentVolume's spec.nodeAffinity with the pod's selectors",
    ),
    "claim-lost": Named(
        "bound to non-existent persistentvolume",
        "the volume that the claim is bound to was deleted",
        "restore the PersistentVolume under the same name",
    ),
    "claim-deleted": Named(
        "is being deleted",
        "a claim that the pod names is being deleted",
        "delete the pods that still use the claim",
    ),
    "not-provisioned": Named(
        'failed to provision volume with StorageClass "odd"',
        "the provisioner could not make a volume for the claim",
        "look at the message, and at the log of the driver's controller",
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
    "unmounted": Named(
        "",
        "is being deleted on {other} for ...: CSINode {other} lacks the driver csi.lab.example",
        "look at the driver's node pod on {other}",
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
        api.add_volume("unmounted", NAME, "vol-unmounted")
        # Without a grace period the API server does not wait for the kubelet.
        self._pod("unmounted", "unmounted", on=self.other, grace=1)
        api.add_volume("single", NAME, "vol-single", modes=("ReadWriteOncePod",))
        self._pod("single", "single")
        cluster.wait(lambda: set(map(self._phase, RUNNING)) == {"Running"}, "they run", 60)
        driver.leave(self.other)
        for name in ("held", "unmounted"):
            api.delete(path("Pod", name))
        self.ends = time.monotonic() + 1 + ENDING_SECONDS
        self._holders: list[str] = []
        self._of_volumes()
        self._of_disks()
        self._of_claims()
        self._of_others()
        for name, named in STUCK.items():
            cluster.wait(partial(self._said, name, named.event), name, 90)

    def close(self) -> None:
        """Let what is held go."""
        api, kind = self.cluster.api, self.cluster.kind
        for where in (path("Pod", "held"), path("PersistentVolumeClaim", "claim-deleted")):
            if api.get(where):
                api.merge(where, {"metadata": {"finalizers": None}})
        api.delete(path("StorageClass", "odd"))
        if self._holders:
            kind.on(self.worker, "kill", *self._holders)
        self.driver.come_back(self.other)
        # It would wait up to two minutes before it tries to unmount once more
        # (pkg/util/goroutinemap/exponentialbackoff of Kubernetes).
        kind.on(self.other, "systemctl", "restart", "kubelet")
        self.cluster.wait(lambda: not self._phase("unmounted"), "the pod has ended", 120)

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
        api.add_volume("refused", NAME, "vol-refused")
        self.driver.give("vol-refused", "elsewhere")
        self._pod("refused", "refused")
        if "iscsi" in STUCK:
            target = {"targetPortal": "127.0.0.1:3260", "iqn": "iqn.2026-01.example:x", "lun": 1}
            self._inline("iscsi", {"iscsi": target})

    def _of_disks(self) -> None:
        """What the kubelet mounts itself, as drivers do: k8s.io/mount-utils."""
        kind = self.cluster.kind
        used, holder = add_disk(kind, self.worker, "used", "mkfs.ext4", "-q")
        self._holders.append(holder)
        empty, holder = add_disk(kind, self.worker, "empty")
        self._holders.append(holder)
        for name, device, asked in (
            ("other-type", used, "xfs"),
            ("unknown-type", used, "ext5"),
            ("no-mkfs", empty, "ext5"),
        ):
            volume, claim = k8s.volume(name, "", "")
            del volume["spec"]["csi"]
            volume["spec"] |= {
                "local": {"path": device, "fsType": asked},
                "nodeAffinity": _only(self.worker),
            }
            self.cluster.api.create(volume, claim)
            self._pod(name, name)

    def _of_claims(self) -> None:
        api = self.cluster.api
        self._pod("exclusive", "single")
        placed = k8s.pod("exclusive-placed", ["single"], node_name=self.worker)
        placed["spec"]["containers"] = running("sleep 1000", claim="single")["containers"]
        api.create(placed)
        volume, claim = k8s.volume("affinity", NAME, "vol-affinity")
        volume["spec"]["nodeAffinity"] = _only(self.other)
        api.create(volume, claim)
        self._pod("affinity", "affinity")
        # What keeps a volume that a claim is bound to is stripped.
        lost = path("PersistentVolume", api.add_volume("claim-lost", NAME, "vol-claim-lost"))
        api.delete(lost)
        api.merge(lost, {"metadata": {"finalizers": None}})
        self._pod("claim-lost", "claim-lost")
        api.add_volume("claim-deleted", NAME, "vol-claim-deleted")
        deleted = path("PersistentVolumeClaim", "claim-deleted")
        api.merge(deleted, {"metadata": {"finalizers": [HELD]}})
        api.delete(deleted)
        self._pod("claim-deleted", "claim-deleted")
        # The driver knows no parameter.
        api.create(k8s.storage_class("odd", NAME, colour="blue"))
        for name, wanted in (("not-provisioned", "odd"), ("unbound", "nothing")):
            api.create(k8s.claim(name, wanted))
            self._pod(name, name)
        self._pod("claim-missing", "nothing")

    def _of_others(self) -> None:
        self._inline("secret-missing", {"secret": {"secretName": "nothing"}})
        self._inline("config-missing", {"configMap": {"name": "nothing"}})
        self._inline("host-path", {"hostPath": {"path": "/nothing", "type": "Directory"}})
        self._pod("environment", envFrom=[{"secretRef": {"name": "nothing"}}])
        # Nothing listens there.
        self._pod("image", image="127.0.0.1:9/nothing:1", imagePullPolicy="Always")
        self._pod("unschedulable", resources={"requests": {"cpu": "1000"}})
        self._pod("crash", command=["/bin/false"])

    def _pod(
        self, name: str, claim: str = "", on: str = "", grace: int = 0, **changes: Any
    ) -> None:
        finalizers = changes.pop("finalizers", None)
        spec = {**running("sleep 1000", claim=claim), "grace": grace}
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
        found = self.cluster.api.find("Pod", name)
        return str(found["status"].get("phase")) if found else ""

    def _said(self, name: str, text: str) -> bool:
        """Of the pod, or of its claim of the same name."""
        found = (self.cluster.api.find(kind, name) for kind in ("Pod", "PersistentVolumeClaim"))
        uids = {each["metadata"]["uid"] for each in found if each}
        return not text or any(
            text in event["message"]
            for event in self.cluster.api.all("Event", "default")
            if event["involvedObject"].get("uid") in uids
        )


def _only(node: str) -> Object:
    """A volume's nodeAffinity."""
    name = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [name]}]}}


@pytest.fixture(scope="module")
def broken(kind: Kind, started_driver: Driver, provisioner: None) -> Iterator[Broken]:
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
