# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fill a control plane with a big cluster, straight into etcd: the API server alone would take a
quarter of an hour for it.

Only for a control plane whose controllers do not run (`ControlPlane(..., controller_manager=False,
scheduler=False)`): they would begin to put in order what has no kubelets.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..common import step, wait
from .api import MANAGED, Object, attachment_name, csi_driver, csi_node, namespace, unique_name
from .controlplane import ControlPlane

PLAIN_DRIVER = "csi.bulk.example.com"
PUBLISHING_DRIVER = "csi.huawei.com"
NAMESPACES = 100
# etcd takes at most 128 operations and 1.5 MB at once.
BATCH = 100
AGO = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).strftime(
    "%Y-%m-%dT%H:%M:%SZ"
)


@dataclass(frozen=True)
class Load:
    """How big the cluster is, and how many objects of each kind are broken.

    Volume by volume: the first `broken` are orphaned (STOR-11: released, and still attached), the
    next are missing from their node's volumesAttached (STOR-13), the next lack publishInfo
    (STOR-14), and for the next there is no VolumeAttachment (STOR-15).
    """

    nodes: int = 5_000
    volumes: int = 20_000
    pods: int = 50_000
    broken: int = 0

    def orphaned(self, number: int) -> bool:
        """The volume's claim and pod are gone."""
        return number < self.broken

    def lost(self, number: int) -> bool:
        """The volume is missing from volumesAttached."""
        return self.broken <= number < 2 * self.broken

    def unpublished(self, number: int) -> bool:
        """The volume's attachment lacks publishInfo."""
        return 2 * self.broken <= number < 3 * self.broken

    def unattached(self, number: int) -> bool:
        """No attachment the volume."""
        return 3 * self.broken <= number < 4 * self.broken

    def driver(self, number: int) -> str:
        """Every second volume is of the driver that publishes."""
        return PUBLISHING_DRIVER if number % 2 or self.unpublished(number) else PLAIN_DRIVER

    def node(self, number: int) -> str:
        """The node of a volume and of its pod."""
        return f"node-{number % self.nodes:05d}"

    def unique_name(self, number: int) -> str:
        """The volume as its node's status has it."""
        return unique_name(self.driver(number), _handle(number))


def fill(plane: ControlPlane, load: Load) -> None:
    """Put it all there, and wait until the API server has seen it."""
    if 4 * load.broken > load.volumes or load.volumes > load.pods:
        raise ValueError(
            "a load needs a pod for every volume, and four volumes for every broken one"
        )
    api = plane.api()
    api.create(
        csi_driver(PLAIN_DRIVER),
        csi_driver(PUBLISHING_DRIVER),
        *(namespace(_namespace(number)) for number in range(NAMESPACES)),
    )
    with step(f"{plane.name}: filling etcd with {load}"), ThreadPoolExecutor(4) as pool:
        batches = _batches(load)
        # A pool would take everything at once, and hold it.
        while group := list(itertools.islice(batches, 16)):
            list(pool.map(lambda batch: plane.etcd("txn", {"success": batch}), group))
    last = load.pods - 1
    where = f"/api/v1/namespaces/{_namespace(last)}/pods/{_pod_name(last)}?resourceVersion=0"
    wait(lambda: api.get(where), "the API server to have seen the last pod", 120)


def _batches(load: Load) -> Iterator[list[Object]]:
    batch: list[Object] = []
    for key, made in _objects(load):
        made["metadata"] |= {"uid": _uid(key), "creationTimestamp": AGO}
        batch.append(
            {
                "requestPut": {
                    "key": _encoded(f"/registry/{key}"),
                    "value": _encoded(json.dumps(made, separators=(",", ":"))),
                }
            }
        )
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _objects(load: Load) -> Iterator[tuple[str, Object]]:
    """(key in etcd, object), the pods last."""
    for number in range(load.nodes):
        yield f"minions/{load.node(number)}", _node(load, number)
        yield (
            f"csinodes/{load.node(number)}",
            csi_node(load.node(number), PLAIN_DRIVER, PUBLISHING_DRIVER),
        )
    for number in range(load.volumes):
        name, space = _volume_name(number), _namespace(number)
        yield f"persistentvolumes/{name}", _volume(load, number)
        if not load.orphaned(number):
            yield f"persistentvolumeclaims/{space}/{_claim_name(number)}", _claim(number)
        if not load.unattached(number):
            attachment = _attachment(load, number)
            yield f"volumeattachments/{attachment['metadata']['name']}", attachment
    for number in range(load.pods):
        if not load.orphaned(number):
            yield f"pods/{_namespace(number)}/{_pod_name(number)}", _pod(load, number)
    # An orphan's pod has gone; another one in its place keeps the number of pods.
    for number in range(load.broken):
        yield f"pods/{_namespace(number)}/{_pod_name(number)}", _pod(load, number, volume=False)


def _namespace(number: int) -> str:
    return f"bulk-{number % NAMESPACES:02d}"


def _handle(number: int) -> str:
    return f"vol-{number:08d}-aaaa-bbbb-cccc"


def _volume_name(number: int) -> str:
    return f"pv-{number:06d}"


def _claim_name(number: int) -> str:
    return f"data-app-{number:06d}"


def _pod_name(number: int) -> str:
    return f"app-{number:06d}"


def _uid(key: str) -> str:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _node(load: Load, number: int) -> Object:
    name = load.node(number)
    here = range(number, load.volumes, load.nodes)
    attached = [
        load.unique_name(volume)
        for volume in here
        if not load.lost(volume) and not load.unattached(volume)
    ]
    used = [load.unique_name(volume) for volume in here if not load.orphaned(volume)]
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    kinds = (
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
        ("Ready", "True"),
    )
    times = {"lastHeartbeatTime": AGO, "lastTransitionTime": AGO}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {MANAGED: "true"}},
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": f"lab://{number}"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": "Kubelet",
                    "message": f"kubelet says so of {kind}",
                    **times,
                }
                for kind, status in kinds
            ],
            "addresses": [
                {"type": "InternalIP", "address": f"10.2.{number // 250}.{number % 250}"}
            ],
            "images": [
                {
                    "names": [f"registry.example.com/image{image}@sha256:{image:064d}"],
                    "sizeBytes": 1000000,
                }
                for image in range(20)
            ],
            "volumesAttached": [{"name": volume, "devicePath": ""} for volume in attached],
            "volumesInUse": used,
        },
    }


def _volume(load: Load, number: int) -> Object:
    driver, space, claim = load.driver(number), _namespace(number), _claim_name(number)
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": space,
        "name": claim,
    }
    attributes = {"storage.kubernetes.io/csiProvisionerIdentity": f"1600000000000-8081-{driver}"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": _volume_name(number),
            "annotations": {"pv.kubernetes.io/provisioned-by": driver},
            "finalizers": ["kubernetes.io/pv-protection"],
        },
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "bulk",
            "volumeMode": "Filesystem",
            "csi": {
                "driver": driver,
                "volumeHandle": _handle(number),
                "fsType": "ext4",
                "volumeAttributes": attributes,
            },
            "claimRef": {**reference, "uid": _uid(f"persistentvolumeclaims/{space}/{claim}")},
        },
        "status": {"phase": "Released" if load.orphaned(number) else "Bound"},
    }


def _claim(number: int) -> Object:
    marks = {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    meta = {
        "name": _claim_name(number),
        "namespace": _namespace(number),
        "annotations": marks,
        "finalizers": ["kubernetes.io/pvc-protection"],
    }
    modes = {"accessModes": ["ReadWriteOnce"]}
    request = {
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "bulk",
        "volumeMode": "Filesystem",
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {**modes, **request, "volumeName": _volume_name(number)},
        "status": {**modes, "phase": "Bound", "capacity": {"storage": "10Gi"}},
    }


def _attachment(load: Load, number: int) -> Object:
    driver, node = load.driver(number), load.node(number)
    metadata = {"devicePath": f"/dev/xvd{number % 26}"}
    if driver == PUBLISHING_DRIVER:
        metadata = (
            {}
            if load.unpublished(number)
            else {
                "publishInfo": json.dumps(
                    {"tgtLunWWN": f"{number:032x}", "tgtPortals": ["192.0.2.1:3260"]}
                )
            }
        )
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {
            "name": attachment_name(_handle(number), driver, node),
            "annotations": {"csi.alpha.kubernetes.io/node-id": node},
            "finalizers": [f"external-attacher/{driver.replace('.', '-')}"],
        },
        "spec": {
            "attacher": driver,
            "nodeName": node,
            "source": {"persistentVolumeName": _volume_name(number)},
        },
        "status": {"attached": True, **({"attachmentMetadata": metadata} if metadata else {})},
    }


def _pod(load: Load, number: int, volume: bool = True) -> Object:
    """The pod of that number; those of volumes that are not where they belong are still waiting for
    them.
    """
    waiting = load.lost(number) or load.unattached(number)
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    if volume and number < load.volumes:
        volumes.append(
            {"name": "data", "persistentVolumeClaim": {"claimName": _claim_name(number)}}
        )
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": f"app-{number // 50}",
        "uid": _uid(f"app-{number // 50}"),
    }
    container = {
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "env": [
            {"name": f"VARIABLE_{variable}", "value": f"some-value-{variable}"}
            for variable in range(10)
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [
            {"name": entry["name"], "mountPath": f"/{entry['name']}"} for entry in volumes
        ],
    }
    tolerations = [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for taint in ("not-ready", "unreachable")
    ]
    state = (
        {"waiting": {"reason": "ContainerCreating"}} if waiting else {"running": {"startedAt": AGO}}
    )
    ready = {
        "ready": not waiting,
        "started": not waiting,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
    digests = {
        "imageID": f"registry.example.com/app@sha256:{1:064d}",
        "containerID": f"containerd://{1:064d}",
    }
    names = ("main", "sidecar")
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    late = ("Ready", "ContainersReady") if waiting else ()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _pod_name(number),
            "namespace": _namespace(number),
            "labels": {
                "app": f"app-{number // 50}",
                "statefulset.kubernetes.io/pod-name": _pod_name(number),
            },
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "nodeName": load.node(number),
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": True,
            "containers": [
                {"name": name, "image": f"registry.example.com/app/{name}:1.2.3", **container}
                for name in names
            ],
            "volumes": volumes,
            "tolerations": tolerations,
        },
        "status": {
            "phase": "Pending" if waiting else "Running",
            "conditions": [
                {
                    "type": kind,
                    "status": str(kind not in late),
                    "lastProbeTime": None,
                    "lastTransitionTime": AGO,
                }
                for kind in conditions
            ],
            "startTime": AGO,
            "qosClass": "Burstable",
            **({} if waiting else {"podIP": "10.3.0.1"}),
            "containerStatuses": [
                {
                    "name": name,
                    "image": f"registry.example.com/app/{name}:1.2.3",
                    **ready,
                    **({} if waiting else digests),
                }
                for name in names
            ],
        },
    }
