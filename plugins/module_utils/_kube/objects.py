# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records that the collection keeps of API objects, and how they are made.

A big cluster has tens of thousands of objects, so each becomes a small tuple as soon as it is
parsed, and text that repeats (nodes, drivers, volumes) is kept once. Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from sys import intern
from typing import Any, NamedTuple, Protocol, TypeVar

from .._core.errors import words
from . import in_tree

# Characters of a message that are kept. Those of events have at most 1,024 (NoteLengthLimit of
# k8s.io/kubernetes/pkg/apis/core/validation/events.go); an attacher's error may be longer.
MAX_MESSAGE = 4_096
# The namespace of this collection's ledgers and Leases. It holds nothing else, so the right to
# write them is a right to nothing else. playbooks/files/namespace.yml creates it; the documentation
# of modules and roles has the same default, as a unit test checks.
OWN_NAMESPACE = "storage-ops"
# The ConfigMap of _fences/record.py. Its name is fixed, so that a Role can allow just this one.
CLIENT_RECORD = "storage-ops-ceph-clients"
# ControllerManagedAttachAnnotation of pkg/volume/util/util.go.
_MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
# The taints of a node that is silent, or not ready (k8s.io/api/core/v1/well_known_taints.go).
_SILENT = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
# Of these effects the controller manager sets and removes them. With another, a kubelet may have
# brought one with its new Node, where it stays.
_EFFECTS = ("NoSchedule", "NoExecute")
# The taint, and the label, by which workload_reattach keeps new pods off a node. It is not a
# cordon, so that an operator can cordon and uncordon meanwhile: on a node that is cordoned already,
# "kubectl cordon" changes nothing.
HOLD = "runbooks.storage-ops/moving"
# Begins the names of the annotations that say for whom.
CORDON = "runbooks.storage-ops/cordon."
# CSIPluginName of pkg/volume/csi/csi_plugin.go, and the separator behind it.
_CSI = "kubernetes.io/csi/"
# With this annotation a kubelet lists the in-tree plugins that it leaves to drivers; only then does
# the controller manager (isCSIMigrationSupportedOnNode of
# pkg/controller/volume/attachdetach/util/util.go).
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
# What a PersistentVolume may be but CSI: fields of PersistentVolumeSource in k8s.io/api/core/v1
# types.go, also those that were removed.
_IN_TREE = frozenset(
    (
        *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume"),
        *("flocker", "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs"),
        *("photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos"),
        "vsphereVolume",
    )
)
# The text of a gRPC error (grpc-go, internal/status, Error), as the external-attacher writes it to
# an attachment; since Kubernetes 1.35, and 1.33 with the gate MutableCSINodeAllocatableCount
# (KEP-4876), the error has the number of the code as well (storage/v1 VolumeError.errorCode).
_GRPC = re.compile(r"rpc error: code = (\w+) desc = ", re.ASCII)
# ControllerPublishVolume answers this only where the volume is published to another node (CSI
# specification, "ControllerPublishVolume Errors").
_ELSEWHERE = "FailedPrecondition"
_ELSEWHERE_NUMBER = 9
# The options nfsvers and vers of nfs(5), and how mount.nfs takes them in short (nfs-utils,
# utils/mount/network.c, nfs_version_opttbl).
_VERSION = re.compile(r"(?:nfsvers=|vers=|v)(3|4(?:\.[0-2])?)", re.ASCII)


T = TypeVar("T")


class VolumeError(NamedTuple):
    """The last error of the attacher."""

    message: str
    time: datetime | None
    code: str = ""

    def names_other_node(self, node: str) -> bool:
        """It says that the volume is on another node, by its code or by the name of that node."""
        # Names of nodes are DNS subdomains, so "a" must not match in "a.b" or "a-1".
        name = rf"(?<![\w.-]){re.escape(node)}(?![\w-]|\.\w)"
        return self.code == _ELSEWHERE or bool(re.search(name, self.message))


class Attachment(NamedTuple):
    """A VolumeAttachment."""

    name: str
    uid: str
    driver: str
    node: str
    # Its PersistentVolume; empty for an inline volume of a former in-tree plugin.
    volume: str
    attached: bool
    # The keys of status.attachmentMetadata; the values may be secret.
    metadata: tuple[str, ...]
    attach_error: VolumeError | None
    detach_error: VolumeError | None
    created: datetime | None
    deleted: datetime | None
    finalizers: tuple[str, ...]


class Volume(NamedTuple):
    """A PersistentVolume."""

    name: str
    uid: str
    # Both are empty for a volume that is not CSI.
    driver: str
    handle: str
    phase: str
    access_modes: tuple[str, ...]
    claim_namespace: str
    claim_name: str
    claim_uid: str
    deleted: datetime | None
    # Driver and handle by which Kubernetes attaches a volume of a former in-tree plugin.
    migrated: in_tree.Disk = in_tree.NO_DISK
    created: datetime | None = None
    # Of an NFS volume that the kubelet itself mounts: server:/path; empty for any other.
    share: str = ""
    # Of one that is not CSI: the field of its spec that says what it is, as iscsi or local.
    kind: str = ""
    # What its node must have, each a single value: mostly the name of a node, or of a zone.
    places: tuple[str, ...] = ()
    # Of one with a share: the version that its mountOptions ask for, as 3 or 4.1; empty for none.
    nfs_version: str = ""

    def is_only_on(self, node: str) -> bool:
        """Its data is on this node alone, to which it was attached."""
        # A driver chooses the label, as topology.topolvm.io/node, and its value is the node's name.
        return node in self.places or self.kind in ("local", "hostPath")

    @property
    def disk(self) -> in_tree.Disk:
        """Driver and handle by which it is attached; empty where no driver attaches it."""
        return (self.driver, self.handle) if self.driver else self.migrated

    def is_attached_by_driver(self, on_node: Collection[str]) -> bool:
        """A driver attaches it to a node whose CSINode has these (NodeDrivers.drivers)."""
        return bool(self.driver) or in_tree.PLUGINS.get(self.migrated[0]) in on_node

    @property
    def exclusive(self) -> bool:
        """Kubernetes attaches it to one node at a time."""
        # IsMultiAttachAllowed of pkg/volume/util/util.go: without access modes it is allowed, and
        # one of these is enough.
        return bool(self.access_modes) and not {"ReadWriteMany", "ReadOnlyMany"} & set(
            self.access_modes
        )

    @property
    def claim(self) -> tuple[str, str]:
        """Namespace and name of its claim, empty where it has none."""
        return self.claim_namespace, self.claim_name


class Node(NamedTuple):
    """A node."""

    name: str
    uid: str
    # The condition Ready: "True", "False" or "Unknown".
    ready: str
    ready_since: datetime | None
    unschedulable: bool
    # The controller manager attaches volumes to it, not its kubelet.
    managed: bool
    volumes_attached: tuple[str, ...]
    volumes_in_use: tuple[str, ...]
    # What workload_reattach noted when it began to hold the node, as long as it does.
    cordons: tuple[str, ...] = ()
    created: datetime | None = None
    # Since when the controller manager keeps pods off it, as its kubelet is silent or not ready.
    tainted_since: datetime | None = None

    @property
    def silent_since(self) -> datetime | None:
        """Since when it is silent, or from before that; None if only the kubelet tells, or none."""
        # A kubelet may write its conditions, with any time, but no taint of its own Node
        # (plugin/pkg/admission/noderestriction/admission.go, admitNode).
        if self.ready_since is None or self.tainted_since is None:
            return None
        return min(self.ready_since, self.tainted_since)

    def lost_since(self, now: datetime) -> datetime | None:
        """Since when it is not Ready: what its condition says, unless that is still to come."""
        # The controller manager leaves the time of a condition that its kubelet has made Unknown
        # (tryUpdateNodeHealth of pkg/controller/nodelifecycle/node_lifecycle_controller.go).
        if self.ready_since and self.ready_since > now:
            return self.tainted_since
        return self.ready_since

    def lost_for(self, now: datetime) -> float:
        """Seconds since then."""
        return age(now, self.lost_since(now))

    def is_younger(self, attachment: Attachment) -> bool:
        """The node was created after the attachment, or that is unknown."""
        # Then the attachment may be to another host, which had the name before.
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
    """A pod."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created: datetime | None
    deleted: datetime | None
    # Those of generic ephemeral volumes as well.
    claims: tuple[str, ...]
    # The drivers of its inline CSI volumes.
    inline_drivers: tuple[str, ...]
    owner: Owner | None
    # A container runs, or is not known to have ended.
    alive: bool
    # Why containers wait.
    waiting: tuple[str, ...]
    # Since when it has its node.
    scheduled: datetime | None
    ready: bool
    tolerates_hold: bool
    # A container runs or ran, or that is not known.
    ran: bool = True
    # Of its inline NFS volumes, as Volume.share.
    shares: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Namespace and name, as kubectl users write them."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """It does not need its volumes any more."""
        # A pod that is being deleted does, until its containers are dead and its phase says so. Old
        # kubelets that evict a pod set its phase before the containers have ended (evictPod of
        # pkg/kubelet/eviction/eviction_manager.go); current ones hold it back until then
        # (mergePodStatus of pkg/kubelet/status/status_manager.go).
        return self.phase in ("Succeeded", "Failed") and not self.alive


def may_have(pod: Pod, node: Node | None, driver: str, attaching: Collection[str]) -> bool:
    """The pod's node may have a volume of this driver mounted for it. Empty: of an unknown one.

    A tenant may name any node in a pod, so one that is_too_late does not say what the node has
    open. A volume that its kubelet mounted all the same is in volumesInUse: the kubelet reports it
    there before it mounts (GenerateVerifyControllerAttachedVolumeFunc of
    pkg/volume/util/operationexecutor/operation_generator.go). But what is never attached, it mounts
    at once, and never reports (GetVolumesInUse of pkg/kubelet/volumemanager/volume_manager.go).
    ``attaching``: see drivers_that_attach.
    """
    return driver not in attaching or not is_too_late(pod, node)


def drivers_that_attach(attachments: Iterable[Attachment]) -> frozenset[str]:
    """The drivers whose volumes are attached, by all attachments of the cluster."""
    # The controller manager makes none for a driver with attachRequired: false (CanAttach of
    # pkg/volume/csi/csi_plugin.go). No tenant and no kubelet can make one.
    return frozenset(found.driver for found in attachments)


def is_too_late(pod: Pod, node: Node | None) -> bool:
    """The pod was created after its node fell silent, and none of its containers ever ran."""
    return is_after_silence(pod.created, node) and not pod.ran


def is_after_silence(created: datetime | None, node: Node | None) -> bool:
    """What was created then was created after the node's kubelet fell silent.

    The API server and the controller manager set the two times, and their clocks may differ by
    seconds. So this alone does not tell what a node has open; see may_have.
    """
    if not (node and node.ready == "Unknown" and node.ready_since and created):
        return False
    # Its kubelet may have written the time of the condition, from before it opened a volume; but
    # not that of the taint.
    return created > max(node.ready_since, node.tainted_since or node.ready_since)


class Claim(NamedTuple):
    """A PersistentVolumeClaim. ``volume``: the PersistentVolume that it names, see is_bound."""

    namespace: str
    name: str
    uid: str
    phase: str
    volume: str
    access_modes: tuple[str, ...]
    storage_class: str
    deleted: datetime | None
    created: datetime | None = None


class _NamesVolume(Protocol):
    """A record of a PersistentVolumeClaim."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def phase(self) -> str: ...


class _NamesClaim(Protocol):
    """A record of a PersistentVolume."""

    @property
    def claim(self) -> tuple[str, str]: ...
    @property
    def claim_uid(self) -> str: ...


def is_bound(claim: _NamesVolume, volume: _NamesClaim | None) -> bool:
    """The claim has the volume that it names. None: one that is gone, and that it had.

    Whoever makes a claim may name any volume in it. So a kubelet mounts the volume only if the
    claim's phase, which no tenant writes, is Bound (getPVCExtractPV of
    pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go), and if the volume
    names the claim, with its uid (getPVSpec there). A volume that is only reserved has no uid.
    """
    agrees = volume is None or (
        volume.claim == (claim.namespace, claim.name) and volume.claim_uid == claim.uid
    )
    return claim.phase == "Bound" and agrees


class Driver(NamedTuple):
    """A CSIDriver."""

    name: str
    attach_required: bool


class NodeDrivers(NamedTuple):
    """A CSINode: the drivers registered on that node, and the in-tree plugins left to drivers."""

    name: str
    drivers: tuple[str, ...]


class Lease(NamedTuple):
    """A Lease: one of ours (see lease.py), or that of the controller manager's leader."""

    holder: str
    renewed: datetime | None
    seconds: int = 0
    name: str = ""
    uid: str = ""
    version: str = ""

    @property
    def until(self) -> datetime | None:
        """When it runs out unless it is renewed; None for one that was never renewed."""
        return shifted(self.renewed, self.seconds) if self.renewed else None


def unique_name(driver: str, handle: str) -> str:
    """The name of a CSI volume in node.status."""
    # GetUniqueVolumeNameFromSpec of pkg/volume/util/util.go: the plugin, and what its GetVolumeName
    # makes of driver and handle (pkg/volume/csi/csi_plugin.go).
    return f"{_CSI}{driver}^{handle}"


def attachment_name(driver: str, handle: str, node: str) -> str:
    """The name that the controller manager gives the VolumeAttachment of a volume on a node."""
    # getAttachmentName of pkg/volume/csi/csi_attacher.go.
    return "csi-" + sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def attachment_names(unique_names: tuple[str, ...], node: str) -> set[str]:
    """The names of the VolumeAttachments that entries of a node's status stand for."""
    # By this, not by PersistentVolumes: these may be gone, or be those of in-tree plugins.
    pairs = [
        entry[len(_CSI) :].split("^", 1)
        for entry in unique_names
        if entry.startswith(_CSI) and "^" in entry
    ]
    return {attachment_name(driver, handle, node) for driver, handle in pairs}


def made_again(node: str) -> str:
    """Why an attachment that is older than its node is left alone."""
    return (
        f"{node} was created again after the attachment: whether the host that had the name before "
        "still writes to the volume is unknown. Make sure that it is off, or fenced as "
        "fail_over_volumes does, and then delete the attachment by hand"
    )


def parse_time(text: str | None) -> datetime | None:
    """A time of the API (``2026-01-31T10:00:00Z``, also with microseconds) in UTC, or None."""
    if not text:
        return None
    # None as well for what Python does not know: the API stores the year 0 in a tenant's event.
    try:
        # Before Python 3.11 fromisoformat does not know "Z".
        found = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        # A time without a zone cannot be compared; near the years 1 and 9999 astimezone overflows.
        return found.astimezone(timezone.utc) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def is_over(until: datetime | None, now: datetime) -> bool:
    """A lock that lasted until then lasts no longer. ``now`` is the API server's time."""
    return until is None or now > until


def shifted(time: datetime, seconds: float) -> datetime:
    """A time (UTC) so many seconds later; as far as Python knows times."""
    # A tenant's terminationGracePeriodSeconds may be 2^63 - 1.
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        end = datetime.max if seconds > 0 else datetime.min
        return end.replace(tzinfo=timezone.utc)


def place_of(item: Any) -> str:
    """Namespace and name of an object, as far as it has them."""
    meta = item.get("metadata") if isinstance(item, dict) else None
    names = [meta.get("namespace"), meta.get("name")] if isinstance(meta, dict) else []
    return "/".join(str(name) for name in names if name) or "an object without a name"


def leniently(
    pick: Callable[[dict[str, Any]], T | None], unread: dict[str, str]
) -> Callable[[dict[str, Any]], T | None]:
    """``pick``, which leaves out an object of which nothing can be made, and notes why.

    For what only reports: an object that is left out looks as if it were not there.
    """

    def picked(item: dict[str, Any]) -> T | None:
        try:
            return pick(item)
        except Exception as error:
            unread[place_of(item)] = words(error)
            return None

    return picked


def cut(text: str | None) -> str:
    """The beginning of a message, which may be as long as an object (about 1.5 MB in etcd)."""
    return (text or "")[:MAX_MESSAGE]


def age(now: datetime, since: datetime | None) -> float:
    """Seconds since a time; 0 when it is unknown, so that nothing is old without proof."""
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
        parse_time(meta.get("creationTimestamp")),
        _share(spec.get("nfs")),
        intern(next((key for key in spec if key in _IN_TREE), "")),
        _places(spec),
        intern(_nfs_version(spec) if spec.get("nfs") else ""),
    )


def _places(spec: dict[str, Any]) -> tuple[str, ...]:
    """By the nodeAffinity of a PersistentVolume, see Volume.places."""
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    # Any of the terms is enough, of which all expressions must be true.
    terms = [
        {
            one["values"][0]
            for part in ("matchExpressions", "matchFields")
            for one in term.get(part) or []
            if one["operator"] == "In" and len(one.get("values") or []) == 1
        }
        for term in required.get("nodeSelectorTerms") or []
    ]
    return _texts(sorted(set.intersection(*terms))) if terms else ()


def _share(nfs: dict[str, Any] | None) -> str:
    """Of an NFSVolumeSource (k8s.io/api/core/v1), what the kubelet has mount.nfs mount."""
    if not nfs:
        return ""
    server = str(nfs["server"])
    # As getServerFromSource of pkg/volume/nfs/nfs.go does it.
    return f"{f'[{server}]' if ':' in server and server[0] != '[' else server}:{nfs['path']}"


def _nfs_version(spec: dict[str, Any]) -> str:
    """The last one counts, as for mount.nfs."""
    options = ",".join(spec.get("mountOptions") or ()).split(",")
    return next((found[1] for found in map(_VERSION.fullmatch, reversed(options)) if found), "")


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
        _cordons(annotations) if is_held(item) else (),
        parse_time(meta.get("creationTimestamp")),
        _tainted_since(item),
    )


def _tainted_since(item: dict[str, Any]) -> datetime | None:
    # With the time at which they came (SwapNodeControllerTaint of
    # pkg/controller/util/node/controller_utils.go).
    taints = (item.get("spec") or {}).get("taints") or []
    times = [
        parse_time(one.get("timeAdded"))
        for one in taints
        if one.get("key") in _SILENT and one.get("effect") in _EFFECTS
    ]
    return min((time for time in times if time), default=None)


def _cordons(annotations: dict[str, str]) -> tuple[str, ...]:
    return tuple(value for key, value in annotations.items() if key.startswith(CORDON))


def _conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The conditions of a pod, by their types."""
    return {entry["type"]: entry for entry in status.get("conditions") or []}


def pick_pod(item: dict[str, Any]) -> Pod:
    """The record of a pod."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    volumes = spec.get("volumes") or []
    containers = _container_statuses(status)
    states = [entry.get("state") or {} for entry in containers]
    inline = [volume["csi"]["driver"] for volume in volumes if volume.get("csi")]
    conditions = _conditions(status)
    return Pod(
        intern(meta["namespace"]),
        meta["name"],
        meta["uid"],
        intern(spec.get("nodeName") or ""),
        intern(status.get("phase") or ""),
        parse_time(meta.get("creationTimestamp")),
        parse_time(meta.get("deletionTimestamp")),
        _claims(meta["name"], volumes),
        tuple(map(intern, inline)),
        _controller(meta),
        # Without a known state the container may run, so it counts as running.
        any("terminated" not in state and "waiting" not in state for state in states),
        _why_they_wait(states),
        _placed(item, conditions.get("PodScheduled", {})),
        conditions.get("Ready", {}).get("status") == "True",
        # Our taint has no value.
        any(tolerates(one, HOLD, "", "NoSchedule") for one in spec.get("tolerations") or []),
        _has_run(status, containers),
        tuple(_share(volume["nfs"]) for volume in volumes if volume.get("nfs")),
    )


def _has_run(status: dict[str, Any], containers: Iterable[dict[str, Any]]) -> bool:
    # A pod whose init containers run is Pending, too.
    return status.get("phase") != "Pending" or any(_ran(entry) for entry in containers)


def _ran(container: dict[str, Any]) -> bool:
    """By the status of a container: it runs, or did once."""
    return bool(
        container.get("containerID")
        or container.get("restartCount")
        or container.get("lastState")
        or "waiting" not in (container.get("state") or {})
    )


def _controller(meta: dict[str, Any]) -> Owner | None:
    """The one owner that recreates the object (metav1.GetControllerOf)."""
    owners = meta.get("ownerReferences") or []
    return next((pick_owner(entry) for entry in owners if entry.get("controller")), None)


def _placed(item: dict[str, Any], scheduled: dict[str, Any]) -> datetime | None:
    """Since when a pod has its node; None while it has none."""
    if not item["spec"].get("nodeName"):
        return None
    # A pod that was created with its node never went through the scheduler.
    created = item["metadata"].get("creationTimestamp")
    return parse_time(scheduled.get("lastTransitionTime") or created)


def _claims(pod: str, volumes: Collection[dict[str, Any]]) -> tuple[str, ...]:
    """The claims of a pod, each once; of a generic ephemeral volume the one that is made for it."""
    named = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if volume.get("persistentVolumeClaim")
    ]
    # VolumeClaimName of k8s.io/component-helpers/storage/ephemeral.
    made = [f"{pod}-{volume['name']}" for volume in volumes if volume.get("ephemeral")]
    # A tenant may have 50,000 volumes of one claim in a pod.
    return tuple(dict.fromkeys([*named, *made]))


def _container_statuses(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The statuses of all containers of a pod."""
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return [entry for kind in kinds for entry in status.get(kind) or []]


def _why_they_wait(states: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """The reasons why containers wait, each once."""
    waiting = (state["waiting"] for state in states if state.get("waiting"))
    return _texts(dict.fromkeys(state.get("reason") or "" for state in waiting))


def pick_user(item: dict[str, Any]) -> Pod | None:
    """The record of a pod that has its node, and claims."""
    spec = item["spec"]
    # Most pods have no claims: this spares parsing the rest of them.
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
    """workload_reattach keeps new pods off this node (an object of the API)."""
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
    """The record of a CSIDriver."""
    # attachRequired is true by default (CSIDriverSpec of k8s.io/api/storage/v1).
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
    meta, spec = item["metadata"], item.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or "",
        renewed=parse_time(spec.get("renewTime")),
        seconds=spec.get("leaseDurationSeconds") or 0,
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
    )


def _texts(texts: Any) -> tuple[str, ...]:
    return tuple(intern(text) for text in texts or ())


def _error(error: dict[str, Any] | None) -> VolumeError | None:
    if not error:
        return None
    message = cut(error.get("message"))
    written = _GRPC.match(message)
    code = written[1] if written else ""
    if error.get("errorCode") == _ELSEWHERE_NUMBER:
        code = _ELSEWHERE
    return VolumeError(message, parse_time(error.get("time")), code)


def tolerates(toleration: dict[str, Any], key: str, value: str, effect: str) -> bool:
    """The toleration fits the taint, for ever or for a while (tolerationSeconds)."""
    # As ToleratesTaint of k8s.io/api/core/v1/toleration.go: without an operator it is "Equal", an
    # empty key with Exists fits any key and value, and an empty effect any effect.
    exists = toleration.get("operator") == "Exists"
    equals = toleration.get("operator") in (None, "", "Equal")
    fits = toleration.get("key", "") == key or (not toleration.get("key") and exists)
    same = exists or (equals and toleration.get("value", "") == value)
    return fits and same and toleration.get("effect", "") in ("", effect)


# Seconds; DefaultTerminationGracePeriodSeconds of k8s.io/api/core/v1.
_DEFAULT_GRACE = 30.0


class Tenant(NamedTuple):
    """A pod that uses one of the claims."""

    pod: Pod
    # Seconds it may take to end.
    grace: float = _DEFAULT_GRACE
    # Why it does not run.
    trouble: str = ""
    # Its kubelet says that a container runs.
    started: bool = False
    # Names of its volumes that are deleted with it; the latter without those in memory.
    ephemeral: tuple[str, ...] = ()
    empty_dirs: tuple[str, ...] = ()


def pick_tenant(item: dict[str, Any], claims: Collection[str]) -> Tenant | None:
    """The record of a pod that uses one of the claims and has not ended; None for any other."""
    pod = pick_pod(item)
    if pod.terminal or frozenset(claims).isdisjoint(pod.claims):
        return None
    grace = item["spec"].get("terminationGracePeriodSeconds")
    volumes = item["spec"].get("volumes") or []
    return Tenant(
        pod,
        _DEFAULT_GRACE if grace is None else float(grace),
        "; ".join([*_unscheduled(item), *pod.waiting]),
        any(_is_running(entry) for entry in _container_statuses(item.get("status") or {})),
        _names(volumes, lambda volume: "ephemeral" in volume),
        _names(volumes, _is_empty_dir_on_disk),
    )


def _names(
    volumes: Iterable[dict[str, Any]], is_meant: Callable[[dict[str, Any]], bool]
) -> tuple[str, ...]:
    """Those of a pod's volumes that are meant."""
    return tuple(volume["name"] for volume in volumes if is_meant(volume))


def _is_running(container: dict[str, Any]) -> bool:
    """Its state says so, which that of a container without a known state does not."""
    return (container.get("state") or {}).get("running") is not None


def _unscheduled(item: dict[str, Any]) -> list[str]:
    """Why the scheduler finds no node."""
    return [
        entry.get("message", "")
        for entry in (item.get("status") or {}).get("conditions") or []
        if entry["type"] == "PodScheduled" and entry["status"] == "False"
    ]


def _is_empty_dir_on_disk(volume: dict[str, Any]) -> bool:
    return "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"


def node_path(name: str) -> str:
    """Where the API has a node."""
    return f"/api/v1/nodes/{name}"


def pod_path(pod: Pod) -> str:
    """Where the API has a pod."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def attachment_path(attachment: Attachment) -> str:
    """Where the API has a VolumeAttachment."""
    return f"/apis/storage.k8s.io/v1/volumeattachments/{attachment.name}"
