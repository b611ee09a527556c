# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pods through which Ansible reaches nodes without ssh: which one is ours on which node.

What runs there is root on the node. So a pod counts by whose it is, never by its name alone. Only
``read_pods`` asks the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._core.errors import StorageOpsError
from .._core.untrusted import few, is_name, shown
from .._kube.client import Cluster, path
from .._kube.objects import parse_time
from .hosts import Host

# As playbooks/files/node_pods/node-pods.yml has them.
CONTAINER, SHARED = "node", "/run/storage_ops/pod"
# There the pod makes one whose name is the pod's uid (enter.py).
INTERPRETERS = "/run/storage_ops/interpreters"
# In the place of a pod's name and uid. No pod can be called so (DNS1123SubdomainFmt of
# k8s.io/apimachinery/pkg/util/validation), so the connection to this node fails.
NO_POD = "NO-POD-ON-THIS-NODE"
# What the API server makes (k8s.io/apimachinery/pkg/util/uuid). It becomes part of a command.
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Place(NamedTuple):
    """The DaemonSet whose pods these are."""

    namespace: str
    daemon_set: str

    def __str__(self) -> str:
        return f"DaemonSet {self.namespace}/{self.daemon_set}"


class Chosen(NamedTuple):
    """Name and uid of the pod of each node that has one, and what the operator has to know."""

    pods: dict[str, tuple[str, str]]
    warnings: list[str]


def read_pods(cluster: Cluster, place: Place) -> list[dict[str, Any]]:
    """The pods of the DaemonSet, as plain data that can be cached.

    Raises KubeError, and StorageOpsError if there is no such DaemonSet.
    """
    found = cluster.get(path("apps/v1", "daemonsets", place.daemon_set, place.namespace))
    if found is None:
        raise StorageOpsError(
            f"there is no {place}: apply playbooks/files/node_pods/node-pods.yml of this "
            "collection, or correct pod_namespace and pod_daemon_set",
            code="not_found",
        )
    uid = found["metadata"]["uid"]
    # Not from the watch cache: a pod may have been replaced since.
    return cluster.list(
        path("v1", "pods", namespace=place.namespace), lambda item: pick_pod(item, uid)
    )


def pick_pod(item: dict[str, Any], daemon_set: str) -> dict[str, Any] | None:
    """What is kept of a pod; None if the DaemonSet with this uid does not control it.

    ``problem``: why it cannot be used; empty if it can.
    """
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    owners = [owner for owner in meta.get("ownerReferences") or [] if owner.get("controller")]
    if [(owner["kind"], owner["uid"]) for owner in owners] != [("DaemonSet", daemon_set)]:
        return None
    return {
        "name": meta["name"],
        "uid": meta["uid"],
        "node": spec.get("nodeName") or "",
        "created": meta.get("creationTimestamp") or "",
        "problem": _problem(meta, status),
    }


def _problem(meta: dict[str, Any], status: dict[str, Any]) -> str:
    if not (is_name(meta["name"]) and _UID.fullmatch(meta["uid"])):
        return "its name or uid cannot be part of a command"
    if meta.get("deletionTimestamp"):
        return "it is being deleted"
    containers = status.get("containerStatuses") or []
    if any(one["name"] == CONTAINER and one.get("ready") for one in containers):
        return ""
    return f"it is not ready ({shown(status.get('phase') or 'no phase')})"


def choose(pods: Iterable[Mapping[str, Any]], hosts: Sequence[Host], place: Place) -> Chosen:
    """The one pod of each node."""
    of_node: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        of_node.setdefault(pod["node"], []).append(pod)
    chosen: dict[str, tuple[str, str]] = {}
    without: list[str] = []
    for host in hosts:
        here = of_node.get(host.name, [])
        problems = [pod["problem"] or _stranger(pod, host) for pod in here]
        usable = [pod for pod, problem in zip(here, problems) if not problem]
        if len(usable) == 1:
            chosen[host.name] = usable[0]["name"], usable[0]["uid"]
        else:
            why = "several" if usable else "; ".join(problems) or "none"
            without.append(f"{host.name} ({why})")
    warnings = [
        f"these nodes have no pod of {place} that can be used, so Ansible cannot reach them: "
        f"{few(without)}"
    ]
    return Chosen(chosen, [shown(text) for text in warnings if without])


def _stranger(pod: Mapping[str, Any], host: Host) -> str:
    """Why a pod may be of a former node of this name; empty if it is not."""
    # Pods name their node only by its name.
    pod_since, node_since = parse_time(pod["created"]), parse_time(host.known["created"])
    if pod_since and node_since and pod_since >= node_since:
        return ""
    return "it is older than the node"


def connection(place: Place, pod: tuple[str, str] | None) -> dict[str, Any]:
    """The variables by which Ansible reaches a node through this pod, and runs modules there."""
    name, uid = pod or (NO_POD, NO_POD)
    return {
        "ansible_connection": "kubernetes.core.kubectl",
        "ansible_kubectl_namespace": place.namespace,
        "ansible_kubectl_pod": name,
        "ansible_kubectl_container": CONTAINER,
        "ansible_python_interpreter": f"{INTERPRETERS}/{uid}",
        "ansible_remote_tmp": SHARED,
        # The options of a module, such as credentials, are then in no file.
        "ansible_pipelining": True,
        # It is root already.
        "ansible_become": False,
    }
