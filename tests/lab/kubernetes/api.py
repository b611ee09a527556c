# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The API over plain HTTPS, independent of what is tested, and the objects that storage scenarios
are made of.
"""

from __future__ import annotations

import datetime
import hashlib
import http.client
import json
import ssl
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common import LabError, patient, wait

Object = dict[str, Any]
STORAGE = "storage.k8s.io/v1"
MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
# kind -> (API version, plural, is it in a namespace?)
KINDS: Mapping[str, tuple[str, str, bool]] = {
    "Node": ("v1", "nodes", False),
    "Namespace": ("v1", "namespaces", False),
    "Pod": ("v1", "pods", True),
    "PersistentVolume": ("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims", True),
    "Service": ("v1", "services", True),
    "Event": ("v1", "events", True),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "ConfigMap": ("v1", "configmaps", True),
    "Secret": ("v1", "secrets", True),
    "StorageClass": (STORAGE, "storageclasses", False),
    "VolumeAttachment": (STORAGE, "volumeattachments", False),
    "CSIDriver": (STORAGE, "csidrivers", False),
    "CSINode": (STORAGE, "csinodes", False),
    "Deployment": ("apps/v1", "deployments", True),
    "ReplicaSet": ("apps/v1", "replicasets", True),
    "ReplicationController": ("v1", "replicationcontrollers", True),
    "StatefulSet": ("apps/v1", "statefulsets", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets", True),
    "Lease": ("coordination.k8s.io/v1", "leases", True),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
}


class ApiError(LabError):
    """The API server refused."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def path(kind: str, name: str = "", namespace: str = "default", api_version: str = "") -> str:
    """Where an object lives. ``namespace=""`` is all of them."""
    version, plural, namespaced = KINDS.get(kind, ("", f"{kind.lower()}s", bool(namespace)))
    version = api_version or version
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{namespace}" if namespaced and namespace else ""
    return f"{root}{inside}/{plural}" + (f"/{name}" if name else "")


def path_of(found: Object) -> str:
    """Where this object lives."""
    meta = found["metadata"]
    return path(found["kind"], meta["name"], meta.get("namespace", "default"), found["apiVersion"])


class Api:
    """One user at one API server. May be shared by threads."""

    def __init__(self, port: int, ca: Path, token: str) -> None:
        self.port, self.ca, self.token = port, ca, token
        self._context = ssl.create_default_context(cafile=str(ca))
        self._local = threading.local()

    def request(
        self,
        method: str,
        where: str,
        body: Any = None,
        content: str = "application/json",
        timeout: float = 30,
    ) -> tuple[int, dict[str, Any]]:
        """(status, answer), whatever the status. ``body``: a text is sent as it is."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": content,
            "User-Agent": "lab",
        }
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        for again in (True, False):
            connection: http.client.HTTPSConnection | None = getattr(
                self._local, "connection", None
            )
            fresh = connection is None
            if connection is None:
                connection = http.client.HTTPSConnection(
                    "127.0.0.1", self.port, context=self._context, timeout=patient(timeout)
                )
                self._local.connection = connection
            try:
                connection.request(method, where, data, headers)
                answer = connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError) as exc:
                connection.close()
                self._local.connection = None
                # A kept connection may have been closed by a server that was restarted since.
                if fresh or not again:
                    raise LabError(f"{method} {where}: {type(exc).__name__}: {exc}") from exc
        try:
            return answer.status, json.loads(text or b"{}")
        except ValueError:
            return answer.status, {"message": text.decode(errors="replace")}

    def call(
        self, method: str, where: str, body: Any = None, content: str = "application/json"
    ) -> dict[str, Any]:
        """The answer; ApiError if it is none of 2xx."""
        status, answer = self.request(method, where, body, content)
        if status >= 300:
            raise ApiError(status, f"{method} {where}: {status} {answer.get('message')}")
        return answer

    def get(self, where: str) -> dict[str, Any] | None:
        """An object, or None when there is none."""
        status, answer = self.request("GET", where)
        if status == 404:
            return None
        if status >= 300:
            raise ApiError(status, f"GET {where}: {status} {answer.get('message')}")
        return answer

    def find(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """An object by its kind."""
        return self.get(path(kind, name, namespace))

    def all(self, kind: str, namespace: str = "") -> list[Object]:
        """All objects of a kind."""
        items: list[Object] = self.call("GET", path(kind, namespace=namespace))["items"]
        return items

    def create(self, *bodies: Object) -> dict[str, Any]:
        """Create objects, each with its status if it has one; the last as the server has it."""
        for body in bodies:
            where = path_of(body)
            made = self.call("POST", where.rsplit("/", 1)[0], body)
            # A POST drops the status of kinds that have it as a subresource.
            if "status" in body:
                made = self.call(
                    "PATCH",
                    f"{where}/status",
                    {"status": body["status"]},
                    "application/merge-patch+json",
                )
        return made

    def merge(self, where: str, change: Object) -> dict[str, Any]:
        """Patch an object (or its status, by that path)."""
        return self.call("PATCH", where, change, "application/merge-patch+json")

    def delete(self, where: str, grace: int | None = None) -> None:
        """Delete an object; that it is gone already is as good."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        status, answer = self.request("DELETE", where, options)
        if status >= 300 and status != 404:
            raise ApiError(status, f"DELETE {where}: {status} {answer.get('message')}")

    def heartbeat(self, name: str, ready: str = "True") -> None:
        """What a kubelet says of itself now and then: its conditions, and its lease."""
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": "KubeletReady" if ready == "True" else "KubeletNotReady",
        }
        condition |= {
            "message": "said by the lab",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": now(),
        }
        room = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        status = {"conditions": [condition], "capacity": room, "allocatable": room}
        self.call(
            "PATCH",
            path("Node", name) + "/status",
            {"status": status},
            "application/strategic-merge-patch+json",
        )
        self.renew(name)

    def renew(self, name: str) -> None:
        """Renew a node's lease."""
        where = path("Lease", name, "kube-node-lease")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}
        status, _answer = self.request(
            "PATCH", where, {"spec": spec}, "application/merge-patch+json"
        )
        if status == 404:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
            }
            self.create({**body, "spec": spec})

    def boot(self, name: str) -> None:
        """A boot of this node: nothing but another bootID in its status."""
        info = {
            "bootID": str(uuid.uuid4()),
            "systemUUID": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        }
        self.merge(path("Node", name) + "/status", {"status": {"nodeInfo": info}})

    def ready(self, name: str) -> str:
        """The status of a node's condition Ready."""
        return next(
            str(found["status"])
            for found in self.call("GET", path("Node", name))["status"]["conditions"]
            if found["type"] == "Ready"
        )

    def taints(self, name: str) -> set[str]:
        """The keys of a node's taints."""
        found = self.call("GET", path("Node", name))
        return {taint["key"] for taint in found["spec"].get("taints") or []}

    def add_node(self, name: str, *drivers: str) -> None:
        """A node that is ready, with these CSI drivers.

        It stays so for 40 s, or for as long as something sends its heartbeats.
        """
        self.create(node(name), csi_node(name, *drivers))
        self.heartbeat(name)
        # The controller manager takes the taint off that every new node is given.
        wait(
            lambda: not (self.find("Node", name) or {}).get("spec", {}).get("taints"),
            f"node {name} without taints",
            20,
        )

    def add_volume(
        self, name: str, driver: str, handle: str, namespace: str = "default", **options: Any
    ) -> str:
        """A volume with its claim, bound to each other; the volume's name."""
        self.create(*volume(name, driver, handle, namespace, **options))
        where = path("PersistentVolumeClaim", name, namespace)
        wait(
            lambda: ((self.get(where) or {}).get("status") or {}).get("phase") == "Bound",
            f"claim {name} bound",
            30,
        )
        return f"pv-{name}"

    def volumes_attached(self, name: str) -> list[str]:
        """The volumes that a node's status calls attached."""
        found = self.find("Node", name) or {"status": {}}
        return [entry["name"] for entry in found["status"].get("volumesAttached") or []]


def now(micro: bool = False) -> str:
    """This moment, as the API writes it."""
    moment = datetime.datetime.now(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def attachment_name(handle: str, driver: str, node_name: str) -> str:
    """The name that Kubernetes gives a CSI volume's VolumeAttachment."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node_name}".encode()).hexdigest()


def unique_name(driver: str, handle: str) -> str:
    """The volume's name in a node's volumesAttached and volumesInUse."""
    return f"kubernetes.io/csi/{driver}^{handle}"


def _object(kind: str, name: str, namespace: str = "", **parts: Any) -> Object:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": meta, **parts}


def namespace(name: str) -> Object:
    """A namespace."""
    return _object("Namespace", name)


def node(name: str, **labels: str) -> Object:
    """A node whose volumes the controller manager attaches, as kubelets register themselves."""
    made = _object("Node", name)
    made["metadata"] |= {
        "labels": {"kubernetes.io/hostname": name, **labels},
        "annotations": {MANAGED: "true"},
    }
    return made


def csi_driver(name: str, attach_required: bool = True) -> Object:
    """A CSI driver."""
    return _object(
        "CSIDriver", name, spec={"attachRequired": attach_required, "podInfoOnMount": False}
    )


def storage_class(name: str, driver: str, **parameters: str) -> Object:
    """A class whose volumes the driver's provisioner makes, and deletes with their claims."""
    return _object("StorageClass", name, provisioner=driver, parameters=parameters)


def claim(name: str, storage_class: str, namespace: str = "default", **spec: Any) -> Object:
    """A claim without a volume."""
    room = {"requests": {"storage": "1Gi"}}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    wanted = {**common, "resources": room, **spec}
    return _object("PersistentVolumeClaim", name, namespace, spec=wanted)


def csi_node(name: str, *drivers: str) -> Object:
    """Which drivers run on a node."""
    return _object(
        "CSINode",
        name,
        spec={
            "drivers": [{"name": driver, "nodeID": name, "topologyKeys": []} for driver in drivers]
        },
    )


def volume(
    name: str,
    driver: str,
    handle: str,
    namespace: str = "default",
    modes: Sequence[str] = ("ReadWriteOnce",),
    reclaim: str = "Retain",
) -> tuple[Object, Object]:
    """A volume and its claim; the controller manager binds them."""
    source = {"driver": driver, "volumeHandle": handle}
    common = {"accessModes": list(modes), "storageClassName": "lab"}
    spec = {
        **common,
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": reclaim,
        "csi": source,
    }
    claim = {**common, "volumeName": f"pv-{name}", "resources": {"requests": {"storage": "1Gi"}}}
    return (
        _object(
            "PersistentVolume",
            f"pv-{name}",
            spec={**spec, "claimRef": {"namespace": namespace, "name": name}},
        ),
        _object("PersistentVolumeClaim", name, namespace, spec=claim),
    )


def pod_spec(
    claims: Iterable[str] = (), node_name: str = "", grace: int = 0, **more: Any
) -> Object:
    """A pod's spec with these claims mounted."""
    claims = list(claims)
    mounts = [{"name": claim, "mountPath": f"/{claim}"} for claim in claims]
    spec: Object = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "main", "image": "lab", "volumeMounts": mounts}],
        "volumes": [
            {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
        ],
        **more,
    }
    return {**spec, **({"nodeName": node_name} if node_name else {})}


def pod(
    name: str,
    claims: Iterable[str] = (),
    node_name: str = "",
    namespace: str = "default",
    **more: Any,
) -> Object:
    """A pod; with a node's name nobody schedules it."""
    return _object("Pod", name, namespace, spec=pod_spec(claims, node_name, **more))


def workload(
    kind: str,
    name: str,
    claims: Iterable[str] = (),
    replicas: int = 1,
    namespace: str = "default",
    **more: Any,
) -> Object:
    """A Deployment, StatefulSet, DaemonSet or ReplicationController with pods for these claims."""
    labels = {"app": name}
    selector: Object = labels if kind == "ReplicationController" else {"matchLabels": labels}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(claims, **more)}
    spec: Object = {"selector": selector, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "Deployment":
        # The only sensible one for a volume that one node can have at a time.
        spec["strategy"] = {"type": "Recreate"}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return _object(kind, name, namespace, spec=spec)


def budget(
    name: str, app: str, available: int, namespace: str = "default", version: str = "policy/v1"
) -> Object:
    """A PodDisruptionBudget for a workload. Kubernetes 1.20 has it as ``policy/v1beta1``."""
    spec = {"minAvailable": available, "selector": {"matchLabels": {"app": app}}}
    return {
        "apiVersion": version,
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def event(
    about: Object,
    reason: str,
    message: str,
    component: str = "kubelet",
    count: int = 1,
    kind: str = "Warning",
) -> Object:
    """An event about an object that exists."""
    meta = about["metadata"]
    space = meta.get("namespace", "default")
    involved = {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "name": meta["name"],
        "namespace": space,
        "uid": meta["uid"],
    }
    body = {
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": kind,
        "count": count,
    }
    body |= {"firstTimestamp": now(), "lastTimestamp": now(), "source": {"component": component}}
    return _object("Event", f"{meta['name']}.{uuid.uuid4().hex[:12]}", space, **body)
