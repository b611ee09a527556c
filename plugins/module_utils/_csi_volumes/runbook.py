# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the volumes of CSI drivers and the pods that mount them, as whole lists.

The plan joins them.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from .._core.argspec import given_names
from .._core.engine import MAX_RESULT_CHARACTERS, Finding, Plan
from .._core.errors import BadOption, StorageOpsError
from .._kube.client import Cluster, path
from .._kube.objects import parse_time
from . import plan as pure
from .plan import CsiVolumeOptions, CsiVolumeState, Joined
from .records import (
    BoundClaim,
    StorageClass,
    Tenant,
    pick_bound_claim,
    pick_class,
    pick_csi_volume,
    pick_tenant,
)

# Up to this many lists of a namespace's or a node's pods are quicker than one list of all pods.
_MAX_LISTS = 20


class CsiVolumes:
    """The audit behind csi_volume_info: it reports and does not judge."""

    def __init__(self, cluster: Cluster, options: CsiVolumeOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._joined = Joined([], [], {})

    def gather(self) -> CsiVolumeState:
        """Read everything from etcd, the pods last."""
        # No cached reads: on this result mounts of pods that do not exist any more may be removed.
        cluster, options = self._cluster, self._options
        volumes = cluster.list(path("v1", "persistentvolumes"), pick_csi_volume)
        found = pure.wanted(volumes, self._claims(), options)
        # A Node that was made again under its name is another host, and its pods are not the old
        # one's.
        made = {name: self._created(name) for name in options.nodes}
        classes: list[StorageClass] = []
        # Volumes made by hand need not have a class, and the right to list classes is then not
        # needed.
        if any(volume.storage_class for volume, _claim in found):
            classes = cluster.list(path("storage.k8s.io/v1", "storageclasses"), pick_class)
        # Last, so that a pod which came meanwhile is seen: it may use a mount that would be taken
        # for unused.
        pods = self._pods({claim.namespace for _volume, claim in found})
        return CsiVolumeState(
            cluster.now(),
            tuple(volume for volume, _claim in found),
            tuple(claim for _volume, claim in found),
            tuple(classes),
            tuple(pods),
            made,
        )

    def _claims(self) -> list[BoundClaim]:
        options = self._options
        spaces = set(options.namespaces) | {claim.partition("/")[0] for claim in options.claims}
        # [""] is the list of all namespaces.
        scopes = sorted(spaces) if 0 < len(spaces) <= _MAX_LISTS else [""]
        return [
            claim
            for namespace in scopes
            for claim in self._cluster.list(
                path("v1", "persistentvolumeclaims", namespace=namespace), pick_bound_claim
            )
        ]

    def _created(self, node: str) -> datetime | None:
        """When the Node object was created; a node that does not exist is an error."""
        item = self._cluster.get(path("v1", "nodes", node))
        # A typing error must not look like a node without volumes.
        if item is None:
            raise StorageOpsError(
                f"there is no node {node}: does the inventory call it by another name? (playbook: "
                "fuse_recovery_node)",
                code="not_found",
            )
        return parse_time(item["metadata"].get("creationTimestamp"))

    def _pods(self, namespaces: set[str]) -> list[Tenant]:
        """The pods with claims in these namespaces, and on the nodes that were named."""
        # Without volumes no pod matters, and a list of all pods is long.
        if not namespaces:
            return []
        nodes = self._options.nodes
        fields = (
            [f"spec.nodeName={node}" for node in nodes] if 0 < len(nodes) <= _MAX_LISTS else [""]
        )
        # Each node times each namespace is a request of its own.
        spaces = sorted(namespaces) if len(namespaces) * len(fields) <= _MAX_LISTS else [""]
        return [
            pod
            for namespace in spaces
            for field in fields
            for pod in self._cluster.list(
                path("v1", "pods", namespace=namespace), pick_tenant, fields=field
            )
        ]

    def plan(self, state: CsiVolumeState) -> Plan:
        """One finding for each namespace that had to be left out; a list as such has none."""
        self._joined = pure.join(state, self._options, MAX_RESULT_CHARACTERS)
        node = ", ".join(self._options.nodes)
        return Plan(
            [
                Finding(
                    control="",
                    # An incomplete list is told, since mounts that it lacks would look like
                    # left-overs.
                    severity="major",
                    kind="Namespace",
                    name=namespace,
                    node=node,
                    summary=f"volumes of namespace {namespace} were not looked at",
                    reason=why,
                    evidence={},
                )
                for namespace, why in self._joined.left_out.items()
            ]
        )

    def facts(self) -> dict[str, Any]:
        """The volumes, and the mounts of containers."""
        return {
            "volumes": self._joined.volumes,
            "unused": self._joined.unused,
            "containers": pure.containers(self._joined.volumes),
            "left_out": list(self._joined.left_out),
        }

    def healthy(self, state: CsiVolumeState) -> str:
        """How many there are."""
        pods = {pod["uid"] for volume in self._joined.volumes for pod in volume["pods"]}
        where = f" on {', '.join(self._options.nodes)}" if self._options.nodes else ""
        drivers = (
            ", ".join(sorted({volume["driver"] for volume in self._joined.volumes}))
            or "any driver that was asked for"
        )
        return (
            f"{_count(len(self._joined.volumes), 'volume')} of {drivers}, mounted by "
            f"{_count(len(pods), 'pod')}{where}"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


# Whether such names exist, the API server answers.
_CLAIM = re.compile(r"[^/]+/[^/]+", re.DOTALL)


def volume_options(params: dict[str, Any]) -> CsiVolumeOptions:
    """Options of CsiVolumes, checked."""
    lists = given_names(params, "provisioners", "nodes", "namespaces", "claims")
    odd = [claim for claim in lists["claims"] if not _CLAIM.fullmatch(claim)]
    if odd:
        raise BadOption(f"claims are given as namespace/name, not as {odd[0]!r}")
    # Paths below it are unmounted by others on this result (--root-dir of the kubelet).
    root = params["kubelet_root"].rstrip("/")
    if not root.startswith("/") or ".." in root.split("/"):
        raise BadOption(
            f"kubelet_root is {params['kubelet_root']!r}; give an absolute path without '..'"
        )
    return CsiVolumeOptions(kubelet_root=root, **lists)
