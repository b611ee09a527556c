# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Reads the volumes of CSI drivers and the pods that mount them, whole lists or none.

The join itself is made in csi_volumes_plan.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    MAX_RESULT_CHARACTERS,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.plan import (
    Joined,
    Options,
    State,
    Tenant,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Cluster, path
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import parse_time

# So many lists of the pods of a namespace, or of a node, are quicker than one list of all pods.
_MAX_LISTS = 20


class CsiVolumes:
    """The audit behind csi_volume_info: it judges nothing, it tells."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self._options = options
        self._joined = Joined([], [], {})

    def gather(self) -> State:
        """Everything by a quorum read, since mounts of pods that are no longer there may be taken
        away for it; the pods last.
        """
        cluster, options = self._cluster, self._options
        volumes = cluster.list(path("v1", "persistentvolumes"), pure.pick_csi_volume)
        spaces = set(options.namespaces) | {claim.partition("/")[0] for claim in options.claims}
        scopes = sorted(spaces) if 0 < len(spaces) <= _MAX_LISTS else [""]
        claims = [
            claim
            for namespace in scopes
            for claim in cluster.list(
                path("v1", "persistentvolumeclaims", namespace=namespace), pure.pick_bound_claim
            )
        ]
        found = pure.wanted(volumes, claims, options)
        made = {}
        for name in options.nodes:
            item = cluster.get(path("v1", "nodes", name))
            made[name] = parse_time(item["metadata"].get("creationTimestamp")) if item else None
            # A typing error must not look like a node without volumes.
            if item is None:
                raise StorageOpsError(
                    f"there is no node {name}: is it called otherwise in the inventory? (playbook: "
                    "fuse_recovery_node)",
                    code="not_found",
                )
        classes = []
        if any(volume.storage_class for volume, _claim in found):
            classes = cluster.list(path("storage.k8s.io/v1", "storageclasses"), pure.pick_class)
        pods = self._pods({claim.namespace for _volume, claim in found})
        return State(
            cluster.now(),
            tuple(volume for volume, _claim in found),
            tuple(claim for _volume, claim in found),
            tuple(classes),
            tuple(pods),
            made,
        )

    def _pods(self, namespaces: set[str]) -> list[Tenant]:
        """The pods with claims in these namespaces, and on the nodes that were named."""
        if not namespaces:
            return []
        nodes = self._options.nodes
        fields = (
            [f"spec.nodeName={node}" for node in nodes] if 0 < len(nodes) <= _MAX_LISTS else [""]
        )
        spaces = sorted(namespaces) if len(namespaces) * len(fields) <= _MAX_LISTS else [""]
        return [
            pod
            for namespace in spaces
            for field in fields
            for pod in self._cluster.list(
                path("v1", "pods", namespace=namespace), pure.pick_tenant, fields=field
            )
        ]

    def plan(self, state: State) -> Plan:
        """Nothing is wrong with a list, but for who is not in it."""
        self._joined = pure.join(state, self._options, MAX_RESULT_CHARACTERS)
        node = ", ".join(self._options.nodes)
        return Plan(
            [
                Finding(
                    control="",
                    severity="major",
                    kind="Namespace",
                    name=namespace,
                    node=node,
                    summary=f"volumes of namespace {namespace} were not looked at",
                    verdict="report",
                    reason=why,
                    runbook="",
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

    def healthy(self, state: State) -> str:
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


def volume_options(params: dict[str, Any]) -> Options:
    """Options of CsiVolumes, checked."""
    lists = {
        name: tuple(dict.fromkeys(text.strip() for text in params[name]))
        for name in ("provisioners", "nodes", "namespaces", "claims")
    }
    empty = [name for name, texts in lists.items() if not all(texts)]
    if empty:
        raise BadOption(f"{empty[0]} has an empty name; leave the option out to look at everything")
    odd = [
        claim
        for claim in lists["claims"]
        if claim.count("/") != 1 or claim.startswith("/") or claim.endswith("/")
    ]
    if odd:
        raise BadOption(f"claims are given as namespace/name, not as {odd[0]!r}")
    root = params["kubelet_root"].rstrip("/")
    if not root.startswith("/") or ".." in root.split("/"):
        raise BadOption(
            f"kubelet_root is {params['kubelet_root']!r}; give an absolute path without '..'"
        )
    return Options(kubelet_root=root, **lists)
