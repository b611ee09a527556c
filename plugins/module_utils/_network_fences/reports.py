# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a driver reports of the node that it runs on, and whether it runs there. Pure: no I/O here.

Whoever may write a CSIAddonsNode, as any node, chooses the node in it (nodeID) and where the
controller asks (endpoint). The answer is that node's own word only if a sidecar of its driver gave
it: a pod that the API server has on that node. No kubelet writes the node or the containers of a
pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

# BuildEndpointURL of kubernetes-csi-addons sidecar/internal/util/util.go: POD.NAMESPACE:PORT.
_ENDPOINT = re.compile(r"pod://([^/:]+)\.([^./:]+):([0-9]+)")
# CSIAddonsNodeStateConnected of api/csiaddons/v1alpha1/csiaddonsnode_types.go. In any other state
# networkFenceClientStatus is what was answered before.
_CONNECTED = "Connected"
_PORT = re.compile(r"--?controller-port=([0-9]+)")


class Sidecar(NamedTuple):
    """A pod at which a report may come from: its node, the ports in its specification, and whether
    it has a folder of its node.
    """

    node: str
    ports: frozenset[str]
    on_host: bool


class Endpoint(NamedTuple):
    """A CSIAddonsNode: of which driver, on which node, and the ranges that it reports for each
    NetworkFenceClass.

    ``name``: with its namespace; ``at``: where the controller asks; ``doubt``: why the report is
    not that node's word, empty if it is; ``generation``: the API server counts how often the
    endpoint, or other parts of the spec, were written.
    """

    driver: str
    node: str
    state: str
    capabilities: tuple[str, ...]
    clients: dict[str, tuple[str, ...]]
    name: str
    at: str
    doubt: str = ""
    generation: int = 0

    @property
    def namespace(self) -> str:
        """That of the CSIAddonsNode."""
        return self.name.partition("/")[0]


def pick_endpoint(item: dict[str, Any]) -> Endpoint:
    """The record of a CSIAddonsNode."""
    # spec.driver.nodeID is the ID by which the driver knows the node, which for ceph-csi is the
    # Node's name (--nodeid of its DaemonSet).
    meta, driver, status = item["metadata"], item["spec"]["driver"], item.get("status") or {}
    clients: dict[str, tuple[str, ...]] = {}
    for report in status.get("networkFenceClientStatus") or []:
        # The field begins with a capital letter, unlike all others.
        cidrs = [
            cidr
            for client in report.get("ClientDetails") or []
            for cidr in client.get("cidrs") or []
        ]
        clients[report["networkFenceClassName"]] = tuple(cidrs)
    return Endpoint(
        driver["name"],
        driver.get("nodeID") or "",
        status.get("state") or "",
        tuple(status.get("capabilities") or ()),
        clients,
        f"{meta.get('namespace') or ''}/{meta['name']}",
        driver.get("endpoint") or "",
        # The status is a subresource, and counts nothing (Kubernetes documentation,
        # CustomResourceDefinition, "Status subresource").
        generation=meta.get("generation") or 0,
    )


def pick_sidecar(item: dict[str, Any]) -> tuple[str, Sidecar]:
    """Name and record of a pod."""
    spec = item["spec"]
    ports: set[str] = set()
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        ports |= {str(port["containerPort"]) for port in container.get("ports") or []}
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        ports |= {found[1] for found in map(_PORT.fullmatch, words) if found}
    on_host = any("hostPath" in volume for volume in spec.get("volumes") or [])
    return item["metadata"]["name"], Sidecar(spec.get("nodeName") or "", frozenset(ports), on_host)


def judged(endpoint: Endpoint, sidecars: Mapping[tuple[str, str], Sidecar]) -> Endpoint:
    """With whose word the report is. ``sidecars``: by namespace and name of the pod."""
    found = _ENDPOINT.fullmatch(endpoint.at)
    pod, namespace, port = found.groups() if found else ("", "", "")
    # The sidecar writes its CSIAddonsNode into the namespace of its pod.
    sidecar = sidecars.get((namespace, pod)) if namespace == endpoint.namespace else None
    if sidecar is None:
        return endpoint._replace(doubt="no pod of its namespace is at its endpoint")
    if sidecar.node != endpoint.node:
        where = f"node {sidecar.node}" if sidecar.node else "no node"
        return endpoint._replace(doubt=f"its pod is on {where}")
    # Another port of the node may lead anywhere, as that of a Service (NodePort). And a driver has
    # its socket in a folder of the node, which the Pod Security Standards give to no tenant's pod.
    if port not in sidecar.ports or not sidecar.on_host:
        return endpoint._replace(doubt="its pod is no driver's, or does not have that port")
    if endpoint.state != _CONNECTED:
        return endpoint._replace(doubt=f"it is {endpoint.state or 'not connected'}")
    return endpoint
