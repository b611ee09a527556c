# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of our own, in a namespace of their own: ledgers and Leases."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from .._core.errors import StorageOpsError
from .client import Cluster, NotFound, Object
from .objects import OWN_NAMESPACE

LABELS = {"app.kubernetes.io/managed-by": "storage-ops-runbooks"}
# Bytes of all annotations of an object (TotalAnnotationSizeLimitB of k8s.io/apimachinery
# pkg/api/validation/objectmeta.go).
_ANNOTATIONS = 256 * 1024
# How long a name may be.
# A DNS subdomain name (RFC 1123; Kubernetes documentation, "Object Names and IDs").
_NAME = 253


def has_room(item: Object, key: str, value: str) -> bool:
    """Whether a Node has room for this annotation beside its others.

    Its kubelet may fill them (NodeRestriction lets it write those of its own Node), so what we note
    there is for the eye, and must not be needed.
    """
    # As the API server counts them: bytes, with the keys.
    noted = {**(item["metadata"].get("annotations") or {}), key: value}
    size = sum(len(name.encode()) + len(text.encode()) for name, text in noted.items())
    return size <= _ANNOTATIONS


def object_name(node: str, what: str = "fence") -> str:
    """The name of the ConfigMap and of the Lease of a node."""
    # A node's name is a DNS subdomain of up to 253 characters as well, so with a prefix it may be
    # too long.
    name = f"storage-ops-{what}-{node}"
    return (
        name
        if len(name) <= _NAME
        else f"{name[: _NAME - 17]}-{sha256(node.encode()).hexdigest()[:16]}"
    )


def selector(labels: Mapping[str, str] | None = None) -> str:
    """What has the API server list only the objects with these labels (ours by default)."""
    return ",".join(f"{key}={value}" for key, value in (labels or LABELS).items())


def create_own(cluster: Cluster, folder: str, body: Object, dry_run: bool = False) -> None:
    """Create one. Raises StorageOpsError where its namespace does not exist."""
    # Nothing else answers a creation with 404, and trying again would not help.
    try:
        cluster.create(folder, body, dry_run=dry_run)
    except NotFound as error:
        where = body["metadata"]["namespace"]
        made = "make it"
        if where == OWN_NAMESPACE:
            made = "playbooks/files/namespace.yml of this collection makes it"
        raise StorageOpsError(
            f"there is no namespace {where} (ledger_namespace): {made}. {error}", code="not_found"
        ) from None  # its text says what the API server has answered
