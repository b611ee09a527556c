# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""What is read of a node that is to be fenced, or given back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from ipaddress import ip_address
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.ceph_reading import normal_address
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Cluster, Object, ServerVersion, path
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.fence_ledger import Ledger, Ledgers, noted_ledger
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.network_fence import NetworkFence, list_fences
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Attachment,
    Node,
    Volume,
    pick_attachment,
    pick_node,
    pick_volume,
)

ATTACHMENTS = path("storage.k8s.io/v1", "volumeattachments")
# So many volumes are read one by one; of more, all are.
_MAX_GETS = 100
# ceph-csi's own name for RBD, which others put something before, as Rook does; and how the names of all its drivers end.
_RBD, _CEPH_CSI = "rbd.csi.ceph.com", ".csi.ceph.com"


class HostRecord(NamedTuple):
    """A node, its addresses as its status has them, and its taints as key, value and effect.

    ``machine``: its systemUUID, or else its machineID, which stays over a reboot and is another one on another machine; may be empty.
    """

    node: Node
    boot_id: str
    addresses: tuple[str, ...]
    taints: tuple[tuple[str, str, str], ...]
    machine: str = ""


class AttachedVolume(NamedTuple):
    """A VolumeAttachment and what is behind it. ``volume`` is None for an inline volume, or when the PersistentVolume is gone.

    ``pv``: what of the PersistentVolume tells its RBD image; ``elsewhere``: the attachments of the same volume to other nodes.
    """

    attachment: Attachment
    volume: Volume | None
    pv: dict[str, Any]
    cluster_id: str
    storage_class: str
    elsewhere: tuple[Attachment, ...]

    @property
    def name(self) -> str:
        """The PersistentVolume, or what stands in for it."""
        return self.attachment.volume or self.attachment.name

    @property
    def claim(self) -> str:
        """Namespace and name of its claim, or empty."""
        return f"{self.volume.claim_namespace}/{self.volume.claim_name}" if self.volume and self.volume.claim_name else ""

    @property
    def is_rbd(self) -> bool:
        """An RBD image is behind it, which the node itself opens.

        A driver may have any name, so what names an image counts too; but not with ceph-csi's drivers for NVMe-oF and others, whose
        volumes name an image that a gateway opens.
        """
        driver, spec = self.attachment.driver, self.pv.get("spec") or {}
        attributes = (spec.get("csi") or {}).get("volumeAttributes") or {}
        names_image = bool(attributes.get("imageName") and (attributes.get("pool") or attributes.get("journalPool")))
        return driver.endswith(_RBD) or bool(spec.get("rbd")) or (names_image and not driver.endswith(_CEPH_CSI))


class NodeState(NamedTuple):
    """What was read. ``host`` and ``item``: None when there is no such node; ``fences``: None when CSI-Addons is not installed.

    ``is_kept``: the ConfigMap has the ledger, and not the node's annotation alone; ``ledgers``: those of other nodes.
    """

    now: datetime
    version: ServerVersion
    host: HostRecord | None
    item: Object | None
    attached: tuple[AttachedVolume, ...]
    others: tuple[HostRecord, ...]
    fences: tuple[NetworkFence, ...] | None
    ledger: Ledger | None
    is_kept: bool = True
    ledgers: tuple[Ledger, ...] = ()


class Filters(NamedTuple):
    """Which volumes are meant: all, or those that fit everything that is given. ``claims``: namespace/name."""

    namespaces: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    storage_classes: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """Not everything is meant."""
        return any(self)

    def selects(self, volume: AttachedVolume) -> bool:
        """This volume is meant."""
        return (
            (not self.namespaces or bool(volume.claim) and volume.claim.split("/")[0] in self.namespaces)
            and (not self.claims or volume.claim in self.claims)
            and (not self.storage_classes or volume.storage_class in self.storage_classes)
        )


def pick_host_record(item: Object) -> HostRecord:
    """The record of a node."""
    status, spec = item.get("status") or {}, item.get("spec") or {}
    info = status.get("nodeInfo") or {}
    found = [entry["address"] for entry in status.get("addresses") or [] if entry["type"] in ("InternalIP", "ExternalIP")]
    return HostRecord(
        pick_node(item),
        info.get("bootID") or "",
        tuple(dict.fromkeys(normal_address(address) for address in found if _is_address(address))),
        tuple((taint["key"], taint.get("value") or "", taint.get("effect") or "") for taint in spec.get("taints") or []),
        info.get("systemUUID") or info.get("machineID") or "",
    )


def slim_volume(item: Object) -> dict[str, Any]:
    """What of a PersistentVolume rbd_watcher_info needs to find its image, and the user to know it; nothing secret."""
    spec = item["spec"]
    slim = {name: spec[name] for name in ("storageClassName", "rbd") if spec.get(name)}
    if spec.get("csi"):
        slim["csi"] = {name: spec["csi"][name] for name in ("driver", "volumeHandle", "volumeAttributes") if name in spec["csi"]}
    if spec.get("claimRef"):
        slim["claimRef"] = {name: spec["claimRef"].get(name, "") for name in ("namespace", "name")}
    return {"metadata": {"name": item["metadata"]["name"]}, "spec": slim}


def attached_volume(attachment: Attachment, item: Object | None, elsewhere: Iterable[Attachment] = ()) -> AttachedVolume:
    """An attachment together with its PersistentVolume, as the API has that."""
    csi = ((item or {}).get("spec") or {}).get("csi") or {}
    return AttachedVolume(
        attachment,
        pick_volume(item) if item else None,
        slim_volume(item) if item else {},
        (csi.get("volumeAttributes") or {}).get("clusterID") or "",
        ((item or {}).get("spec") or {}).get("storageClassName") or "",
        tuple(elsewhere),
    )


def gather_node(cluster: Cluster, node: str, ledgers: Ledgers) -> NodeState:
    """Read the attachments first, then the node and all that matters for it, as etcd has it now."""
    attachments = cluster.list(ATTACHMENTS, pick_attachment)
    here = [found for found in attachments if found.node == node]
    names = {found.volume for found in here if found.volume}
    elsewhere: dict[str, list[Attachment]] = {}
    for found in attachments:
        if found.node != node and found.volume in names:
            elsewhere.setdefault(found.volume, []).append(found)
    volumes = _volumes(cluster, names)
    item = cluster.get(path("v1", "nodes", node))
    others = cluster.list(
        path("v1", "nodes"),
        lambda other: (pick_host_record(other), noted_ledger(other)) if other["metadata"]["name"] != node else None,
    )
    fences, copies = list_fences(cluster), ledgers.copies(node, item)
    # A ConfigMap is written before the annotation, but may be deleted.
    foreign = {found.node: found for _host, found in others if found}
    foreign.update({found.node: found for found in ledgers.all() if found.node != node})
    return NodeState(
        cluster.now(),
        cluster.version(),
        pick_host_record(item) if item else None,
        item,
        tuple(attached_volume(found, volumes.get(found.volume), elsewhere.get(found.volume, ())) for found in here),
        tuple(host for host, _ledger in others),
        fences,
        copies.ledger,
        bool(copies.kept or not copies.noted),
        tuple(foreign.values()),
    )


def _volumes(cluster: Cluster, names: set[str]) -> dict[str, Object]:
    """The PersistentVolumes of these names, by name."""
    folder = path("v1", "persistentvolumes")
    if len(names) > _MAX_GETS:
        found = cluster.list(folder, lambda item: item if item["metadata"]["name"] in names else None)
    else:
        found = [item for name in sorted(names) for item in [cluster.get(path("v1", "persistentvolumes", name))] if item]
    return {item["metadata"]["name"]: item for item in found}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
