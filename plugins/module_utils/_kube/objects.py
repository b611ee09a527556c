# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""What the collection keeps of an API object, and what makes it of one.

A big cluster has tens of thousands of them, so each becomes a small tuple as soon as it is parsed,
and text that repeats (nodes, drivers, volumes) is kept once. Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timezone
from hashlib import sha256
from sys import intern
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import in_tree

# Characters of a message that are kept; the kubelet's own have at most 1,024
# (pkg/kubelet/events; client-go's recorder cuts there).
MAX_MESSAGE = 4_096
# Where the ledgers and Leases of this collection are: a namespace that holds nothing else, so that
# the right to write them is a right to nothing else. playbooks/files/namespace.yml makes it; the
# same default stands in the documentation of modules and roles, as a unit test checks.
OWN_NAMESPACE = "storage-ops"
_MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
# The taint, and the label, by which workload_reattach keeps new pods off a node. It is no cordon,
# so that an operator's own can come and go meanwhile: of a node that is cordoned already, "kubectl
# cordon" says so and sends nothing.
HOLD = "runbooks.storage-ops/moving"
# Begins the names of the annotations that say for whom.
CORDON = "runbooks.storage-ops/cordon."
_CSI = "kubernetes.io/csi/"
# By it a kubelet says which in-tree plugins it leaves to drivers, and only then the controller
# manager does (isCSIMigrationSupportedOnNode of pkg/controller/volume/attachdetach/util/util.go).
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
# How gRPC writes an error, and so the external-attacher in an attachment's; since Kubernetes 1.34
# the error has the number of the code as well (storage/v1 VolumeError.errorCode).
_GRPC = re.compile(r"rpc error: code = (\w+) desc = ")
# What ControllerPublishVolume answers where the volume is published to another node, and to nothing
# else (CSI specification, "ControllerPublishVolume Errors").
_ELSEWHERE = "FailedPrecondition"
_ELSEWHERE_NUMBER = 9


class VolumeError(NamedTuple):
    """What the attacher last said went wrong."""

    message: str
    time: datetime | None
    code: str = ""

    def names_other_node(self, node: str) -> bool:
        """It says that the volume is on another node: by its code, or by the name of that node."""
        name = rf"(?<![\w.-]){re.escape(node)}(?![\w-]|\.\w)"
        return self.code == _ELSEWHERE or bool(re.search(name, self.message))


class Attachment(NamedTuple):
    """A VolumeAttachment.

    ``volume``: its PersistentVolume, empty for an inline one; ``metadata``: keys of
    attachmentMetadata.
    """

    name: str
    uid: str
    driver: str
    node: str
    volume: str
    attached: bool
    metadata: tuple[str, ...]
    attach_error: VolumeError | None
    detach_error: VolumeError | None
    created: datetime | None
    deleted: datetime | None
    finalizers: tuple[str, ...]


class Volume(NamedTuple):
    """A PersistentVolume. ``driver`` and ``handle`` are empty for one that is not CSI.

    ``migrated``: driver and handle by which Kubernetes attaches one of a former in-tree plugin.
    """

    name: str
    uid: str
    driver: str
    handle: str
    phase: str
    access_modes: tuple[str, ...]
    claim_namespace: str
    claim_name: str
    claim_uid: str
    deleted: datetime | None
    migrated: in_tree.Disk = in_tree.NO_DISK

    @property
    def disk(self) -> in_tree.Disk:
        """Driver and handle by which it is attached; empty where it is attached by no driver."""
        return (self.driver, self.handle) if self.driver else self.migrated

    def is_attached_by_driver(self, on_node: Collection[str]) -> bool:
        """Kubernetes attaches it so to a node whose CSINode has these (NodeDrivers.drivers)."""
        return bool(self.driver) or in_tree.PLUGINS.get(self.migrated[0]) in on_node

    @property
    def exclusive(self) -> bool:
        """Kubernetes attaches it to one node at a time."""
        return bool(self.access_modes) and not {"ReadWriteMany", "ReadOnlyMany"} & set(
            self.access_modes
        )

    @property
    def claim(self) -> tuple[str, str]:
        """Namespace and name of its claim, empty where it has none."""
        return self.claim_namespace, self.claim_name


class Node(NamedTuple):
    """A node. ``ready``: "True", "False" or "Unknown"; ``managed``: the controller manager
    attaches, not the kubelet.

    ``cordons``: what workload_reattach noted when it began to hold the node, while it does.
    """

    name: str
    uid: str
    ready: str
    ready_since: datetime | None
    unschedulable: bool
    managed: bool
    volumes_attached: tuple[str, ...]
    volumes_in_use: tuple[str, ...]
    cordons: tuple[str, ...] = ()
    created: datetime | None = None

    def is_younger(self, attachment: Attachment) -> bool:
        """It was made again under its name after the attachment, or that is not known.

        So the attachment may be one to the host that had the name before.
        """
        return not (self.created and attachment.created and self.created <= attachment.created)


class Owner(NamedTuple):
    """The controller of a pod. ``group``: of its API, empty for the core one."""

    kind: str
    name: str
    uid: str
    group: str = ""

    @property
    def title(self) -> str:
        """Kind with its API group, and name."""
        return f"{self.kind}{'.' if self.group else ''}{self.group} {self.name}"


class Pod(NamedTuple):
    """A pod. ``claims`` has those of generic ephemeral volumes too; ``inline_drivers``: of its
    inline CSI volumes.

    ``alive``: a container runs, or nobody says that it does not. ``waiting``: why containers wait.
    ``scheduled``: since when it has its node. ``ran``: a container runs or ran, or that is not
    known.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created: datetime | None
    deleted: datetime | None
    claims: tuple[str, ...]
    inline_drivers: tuple[str, ...]
    owner: Owner | None
    alive: bool
    waiting: tuple[str, ...]
    scheduled: datetime | None
    ready: bool
    tolerates_hold: bool
    ran: bool = True

    @property
    def title(self) -> str:
        """Namespace and name, as kubectl users write them."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """It needs its volumes no more.

        One that is being deleted does, until its containers are dead and its phase says so.
        """
        return self.phase in ("Succeeded", "Failed") and not self.alive


class Claim(NamedTuple):
    """A PersistentVolumeClaim. ``volume``: the PersistentVolume it is bound to, or is to be."""

    namespace: str
    name: str
    uid: str
    phase: str
    volume: str
    access_modes: tuple[str, ...]
    storage_class: str
    deleted: datetime | None
    created: datetime | None = None


class Driver(NamedTuple):
    """A CSIDriver."""

    name: str
    attach_required: bool


class NodeDrivers(NamedTuple):
    """A CSINode: the drivers that are registered on the node of that name, and the in-tree plugins
    that it leaves to drivers.
    """

    name: str
    drivers: tuple[str, ...]


class Lease(NamedTuple):
    """A Lease, for example the one of the controller manager's leader."""

    holder: str
    renewed: datetime | None


def unique_name(driver: str, handle: str) -> str:
    """How node.status names a CSI volume."""
    return f"{_CSI}{driver}^{handle}"


def attachment_name(driver: str, handle: str, node: str) -> str:
    """How the controller manager names the VolumeAttachment of a volume on a node."""
    return "csi-" + sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def attachment_names(unique_names: tuple[str, ...], node: str) -> set[str]:
    """The VolumeAttachments that entries of a node's status stand for; works without the
    PersistentVolume, and for migrated ones.
    """
    pairs = [
        entry[len(_CSI) :].split("^", 1)
        for entry in unique_names
        if entry.startswith(_CSI) and "^" in entry
    ]
    return {attachment_name(driver, handle, node) for driver, handle in pairs}


def made_again(node: str) -> str:
    """Why an attachment to a node that is younger than it is left alone."""
    return (
        f"{node} was made again after the attachment: whether the host that had the name before "
        "still writes to the volume is unknown. Make sure that it is off, or fenced as "
        "fail_over_volumes does, and then delete the attachment by hand"
    )


def parse_time(text: str | None) -> datetime | None:
    """A time of the API (``2026-01-31T10:00:00Z``, with or without microseconds) in UTC; None for
    none.

    None as well for what Python does not know: the API stores the year 0 in an event of a tenant.
    """
    if not text:
        return None
    try:
        # Until Python 3.11 fromisoformat does not know "Z".
        found = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        # What has no zone cannot be compared; at the ends of time neither.
        return found.astimezone(timezone.utc) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def cut(text: str | None) -> str:
    """The beginning of a message, which may have as many characters as an object can hold."""
    return (text or "")[:MAX_MESSAGE]


def age(now: datetime, since: datetime | None) -> float:
    """Seconds since a time; 0 when it is not known, so that nothing is old without proof."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def pick_attachment(item: dict[str, Any]) -> Attachment:
    """The record of a VolumeAttachment."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    return Attachment(
        meta["name"],
        meta["uid"],
        intern(spec["attacher"]),
        intern(spec["nodeName"]),
        intern((spec.get("source") or {}).get("persistentVolumeName") or ""),
        bool(status.get("attached")),
        _texts(status.get("attachmentMetadata")),
        _error(status.get("attachError")),
        _error(status.get("detachError")),
        parse_time(meta.get("creationTimestamp")),
        parse_time(meta.get("deletionTimestamp")),
        _texts(meta.get("finalizers")),
    )


def pick_volume(item: dict[str, Any]) -> Volume:
    """The record of a PersistentVolume."""
    meta, spec = item["metadata"], item["spec"]
    csi, claim = spec.get("csi") or {}, spec.get("claimRef") or {}
    return Volume(
        intern(meta["name"]),
        meta["uid"],
        intern(csi.get("driver") or ""),
        csi.get("volumeHandle") or "",
        intern((item.get("status") or {}).get("phase") or ""),
        _texts(spec.get("accessModes")),
        intern(claim.get("namespace") or ""),
        claim.get("name") or "",
        claim.get("uid") or "",
        parse_time(meta.get("deletionTimestamp")),
        in_tree.translate(spec, meta),
    )


def pick_node(item: dict[str, Any]) -> Node:
    """The record of a node."""
    meta, status = item["metadata"], item.get("status") or {}
    ready: dict[str, Any] = next(
        (entry for entry in status.get("conditions") or [] if entry["type"] == "Ready"), {}
    )
    annotations: dict[str, str] = meta.get("annotations") or {}
    return Node(
        intern(meta["name"]),
        meta["uid"],
        intern(ready.get("status") or "Unknown"),
        parse_time(ready.get("lastTransitionTime")),
        bool((item.get("spec") or {}).get("unschedulable")),
        annotations.get(_MANAGED) == "true",
        tuple(intern(entry["name"]) for entry in status.get("volumesAttached") or []),
        tuple(intern(entry) for entry in status.get("volumesInUse") or []),
        tuple(value for key, value in annotations.items() if key.startswith(CORDON))
        if is_held(item)
        else (),
        parse_time(meta.get("creationTimestamp")),
    )


def pick_pod(item: dict[str, Any]) -> Pod:
    """The record of a pod."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    volumes = spec.get("volumes") or []
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if volume.get("persistentVolumeClaim")
    ]
    claims += [f"{meta['name']}-{volume['name']}" for volume in volumes if volume.get("ephemeral")]
    owner: dict[str, Any] | None = next(
        (entry for entry in meta.get("ownerReferences") or [] if entry.get("controller")), None
    )
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    containers = [entry for kind in kinds for entry in status.get(kind) or []]
    states = [entry.get("state") or {} for entry in containers]
    conditions: dict[str, dict[str, Any]] = {
        entry["type"]: entry for entry in status.get("conditions") or []
    }
    # A pod that was made for its node never went through the scheduler.
    placed = conditions.get("PodScheduled", {}).get("lastTransitionTime") or meta.get(
        "creationTimestamp"
    )
    return Pod(
        intern(meta["namespace"]),
        meta["name"],
        meta["uid"],
        intern(spec.get("nodeName") or ""),
        intern(status.get("phase") or ""),
        parse_time(meta.get("creationTimestamp")),
        parse_time(meta.get("deletionTimestamp")),
        tuple(claims),
        tuple(intern(volume["csi"]["driver"]) for volume in volumes if volume.get("csi")),
        pick_owner(owner) if owner else None,
        any("terminated" not in state and "waiting" not in state for state in states),
        _texts(
            dict.fromkeys(
                state["waiting"].get("reason") or "" for state in states if state.get("waiting")
            )
        ),
        parse_time(placed) if spec.get("nodeName") else None,
        conditions.get("Ready", {}).get("status") == "True",
        any(_tolerates_hold(toleration) for toleration in spec.get("tolerations") or []),
        # A pod whose init containers run is Pending, too.
        status.get("phase") != "Pending" or any(_ran(entry) for entry in containers),
    )


def _ran(container: dict[str, Any]) -> bool:
    """By the status of a container: it runs, or did once."""
    return bool(
        container.get("containerID")
        or container.get("restartCount")
        or container.get("lastState")
        or "waiting" not in (container.get("state") or {})
    )


def pick_user(item: dict[str, Any]) -> Pod | None:
    """The record of a pod that has its node, and claims."""
    spec = item["spec"]
    # Most pods have none, and are not worth more.
    if not spec.get("nodeName") or not any(
        volume.get("persistentVolumeClaim") or volume.get("ephemeral")
        for volume in spec.get("volumes") or []
    ):
        return None
    return pick_pod(item)


def pick_owner(reference: dict[str, Any]) -> Owner:
    """The record of a reference to an owner."""
    group = reference.get("apiVersion", "").rpartition("/")[0]
    return Owner(reference["kind"], reference["name"], reference["uid"], group)


def is_held(item: dict[str, Any]) -> bool:
    """A node, as the API has it, that workload_reattach keeps new pods off."""
    return any(taint["key"] == HOLD for taint in (item.get("spec") or {}).get("taints") or [])


def pick_claim(item: dict[str, Any]) -> Claim:
    """The record of a PersistentVolumeClaim."""
    meta, spec = item["metadata"], item.get("spec") or {}
    return Claim(
        intern(meta["namespace"]),
        meta["name"],
        meta["uid"],
        intern((item.get("status") or {}).get("phase") or ""),
        spec.get("volumeName") or "",
        _texts(spec.get("accessModes")),
        spec.get("storageClassName") or "",
        parse_time(meta.get("deletionTimestamp")),
        parse_time(meta.get("creationTimestamp")),
    )


def pick_driver(item: dict[str, Any]) -> Driver:
    """The record of a CSIDriver; attaching is required unless it says otherwise."""
    return Driver(
        item["metadata"]["name"], (item.get("spec") or {}).get("attachRequired") is not False
    )


def pick_node_drivers(item: dict[str, Any]) -> NodeDrivers:
    """The record of a CSINode."""
    migrated = ((item["metadata"].get("annotations") or {}).get(_MIGRATED) or "").split(",")
    registered = [entry["name"] for entry in (item.get("spec") or {}).get("drivers") or []]
    return NodeDrivers(item["metadata"]["name"], _texts([*registered, *filter(None, migrated)]))


def pick_lease(item: dict[str, Any]) -> Lease:
    """The record of a Lease."""
    spec = item.get("spec") or {}
    return Lease(spec.get("holderIdentity") or "", parse_time(spec.get("renewTime")))


def _texts(texts: Any) -> tuple[str, ...]:
    return tuple(intern(text) for text in texts or ())


def _error(error: dict[str, Any] | None) -> VolumeError | None:
    if not error:
        return None
    message = cut(error.get("message"))
    told = _GRPC.match(message)
    code = _ELSEWHERE if error.get("errorCode") == _ELSEWHERE_NUMBER else told[1] if told else ""
    return VolumeError(message, parse_time(error.get("time")), code)


def _tolerates_hold(toleration: dict[str, Any]) -> bool:
    """Our taint has the effect NoSchedule, and a value that is of no account to ``Exists``."""
    fits = toleration.get("key", "") in ("", HOLD) and toleration.get("operator") == "Exists"
    return fits and toleration.get("effect", "") in ("", "NoSchedule")


# What Kubernetes gives a pod that asks for no grace period of its own (seconds).
_DEFAULT_GRACE = 30.0


class Tenant(NamedTuple):
    """A pod that uses one of the claims. ``grace``: seconds it may take to end; ``trouble``: why it
    does not run.

    ``ephemeral`` and ``empty_dirs``: names of its volumes that are deleted with it; the latter
    without those in memory.
    """

    pod: Pod
    grace: float = _DEFAULT_GRACE
    trouble: str = ""
    ephemeral: tuple[str, ...] = ()
    empty_dirs: tuple[str, ...] = ()


def pick_tenant(item: dict[str, Any], claims: tuple[str, ...]) -> Tenant | None:
    """The record of a pod that uses one of the claims and has not ended; None for any other."""
    pod = pick_pod(item)
    if pod.terminal or not set(pod.claims) & set(claims):
        return None
    grace = item["spec"].get("terminationGracePeriodSeconds")
    conditions = (item.get("status") or {}).get("conditions") or []
    unscheduled = [
        entry.get("message", "")
        for entry in conditions
        if entry["type"] == "PodScheduled" and entry["status"] == "False"
    ]
    volumes = item["spec"].get("volumes") or []
    return Tenant(
        pod,
        _DEFAULT_GRACE if grace is None else float(grace),
        "; ".join([*unscheduled, *pod.waiting]),
        tuple(volume["name"] for volume in volumes if "ephemeral" in volume),
        tuple(
            volume["name"]
            for volume in volumes
            if "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"
        ),
    )


def node_path(name: str) -> str:
    """Where the API has a node."""
    return f"/api/v1/nodes/{name}"


def pod_path(pod: Pod) -> str:
    """Where the API has a pod."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def attachment_path(attachment: Attachment) -> str:
    """Where the API has a VolumeAttachment."""
    return f"/apis/storage.k8s.io/v1/volumeattachments/{attachment.name}"
