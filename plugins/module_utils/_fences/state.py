# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of a node that is to be fenced, or given back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Callable, NamedTuple

from .._ceph.images import root_of
from .._core.ip import host_addresses
from .._kube.client import Cluster, Object, ServerVersion, path
from .._kube.objects import (
    Attachment,
    Node,
    Pod,
    Volume,
    attachment_names,
    drivers_that_attach,
    is_after_silence,
    may_have,
    parse_time,
    pick_attachment,
    pick_node,
    pick_pod,
    pick_volume,
    unique_name,
)
from .._kube.objects import (
    is_too_late as is_pod_too_late,
)
from .inline import inline_storage
from .ledger import FenceObject, Ledger, Ledgers
from .network_fence import UNFENCED, NetworkFence, covered, list_fences, may_act_on
from .record import Records

# v1.TaintNodeOutOfService of k8s.io/api/core/v1; value and effect are those of the Kubernetes
# documentation, "Non-graceful node shutdown" (KEP-2268), of which Kubernetes itself reads the key
# alone.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# The taint that volume_failover sets. One with another value or effect is not ours.
TAINT = (OUT_OF_SERVICE, "nodeshutdown", "NoExecute")

ATTACHMENTS = path("storage.k8s.io/v1", "volumeattachments")
# So many volumes, and pods of so many nodes, are read one by one; of more, all are.
_MAX_GETS = 100
# So many claims of pods are kept. Anyone who may create pods may name a lost node in any number of
# them, and 43,000 claims in each.
_MOST_CLAIMS = 10_000
# And so many inline volumes and pods are named.
_MOST_INLINE = 20
# ceph-csi's own name for RBD, which others put something before, as Rook does; and how the names of
# all its drivers end.
_RBD, _CEPH_CSI = "rbd.csi.ceph.com", ".csi.ceph.com"
_CEPHFS = "cephfs.csi.ceph.com"
# What names the image of a volume (image_of of _ceph/images.py), and what opens it on a node.
_IMAGE_ATTRIBUTES = (
    "imageName",
    "pool",
    "journalPool",
    "radosNamespace",
    "clusterID",
    "staticVolume",
    "mounter",
    "tryOtherMounters",
)
# What names the filesystem of a volume, and its folder in it (root_of of _ceph/images.py).
_FILE_ATTRIBUTES = ("fsName", "subvolumePath", "rootPath")


class HostRecord(NamedTuple):
    """A node, its addresses as its status has them, and its taints as key, value and effect.

    ``created``: when this Node object was made, of which there may have been another one of the
    name before;
    ``machine``: its systemUUID and machineID, which stay over a reboot, and are not both the same
    on another machine; may be empty;
    ``provider_id``: spec.providerID, may be empty; ``heard_at``: not later than its kubelet's last
    report.
    """

    node: Node
    boot_id: str
    addresses: tuple[str, ...]
    taints: tuple[tuple[str, str, str], ...]
    machine: str = ""
    created: datetime | None = None
    unusable: tuple[str, ...] = ()
    provider_id: str = ""
    heard_at: datetime | None = None


class AttachedVolume(NamedTuple):
    """A VolumeAttachment and what is behind it. ``volume`` is None for an inline volume, or when
    the PersistentVolume is gone.

    One without a name stands for an attachment that is gone, or that never was.
    ``pv``: what of the PersistentVolume tells its RBD image; ``elsewhere``: the attachments of the
    same volume to other nodes; ``too_late``: the node cannot have opened it, see is_too_late;
    ``used_by_older_pod``: a pod on the node uses it that is older than the Node object.
    """

    attachment: Attachment
    volume: Volume | None
    pv: dict[str, Any]
    cluster_id: str
    storage_class: str
    elsewhere: tuple[Attachment, ...]
    too_late: bool = False
    used_by_older_pod: bool = False

    @property
    def name(self) -> str:
        """The PersistentVolume, or what stands in for it."""
        return self.attachment.volume or self.attachment.name

    @property
    def claim(self) -> str:
        """Namespace and name of its claim, or empty."""
        return (
            f"{self.volume.claim_namespace}/{self.volume.claim_name}"
            if self.volume and self.volume.claim_name
            else ""
        )

    @property
    def is_shared(self) -> bool:
        """Several nodes may have it at once, says its PersistentVolume."""
        # accessModes (CSI: MULTI_NODE_*) decide whether the attach/detach controller attaches to a
        # second node; they keep no node from writing.
        return bool(self.volume and self.volume.access_modes) and not (
            self.volume and self.volume.exclusive
        )

    @property
    def is_rbd(self) -> bool:
        """An RBD image is behind it, which the node itself opens.

        A driver may have any name, so what names an image counts too; but not with ceph-csi's
        drivers for NVMe-oF and others, whose volumes name an image that a gateway opens.
        """
        # ceph-csi names its drivers TYPE.csi.ceph.com, and Rook puts its namespace in front
        # (rook-ceph.rbd.csi.ceph.com).
        driver, spec = self.attachment.driver, self.pv.get("spec") or {}
        attributes = self._attributes
        names_image = bool(
            attributes.get("imageName")
            and (attributes.get("pool") or attributes.get("journalPool"))
        )
        return (
            driver.endswith(_RBD)
            or bool(spec.get("rbd"))
            or (names_image and not driver.endswith(_CEPH_CSI))
        )

    @property
    def is_cephfs(self) -> bool:
        """A folder of a CephFS is behind it, which the node itself mounts."""
        return names_cephfs(self.attachment.driver)

    @property
    def storage(self) -> str:
        """Its driver, or the kind of storage that needs none."""
        share = self.volume.share if self.volume else ""
        return self.attachment.driver or ("nfs" if share else "no driver")

    @property
    def can_be_awaited(self) -> bool:
        """Something will show that another node has it: its attachment, or that a pod runs."""
        # Of what only the kubelet attaches, as an in-tree iSCSI volume, no object of the API tells.
        return bool(self.attachment.driver or (self.volume and self.volume.share))

    @property
    def file_system(self) -> str:
        """The CephFS that it is in; empty where the volume does not tell it."""
        return str(self._attributes.get("fsName") or "")

    @property
    def root(self) -> str:
        """Its folder in the CephFS; empty where the volume does not tell it."""
        return root_of(self.pv)

    @property
    def family(self) -> str:
        """What the names of the drivers of one installation of ceph-csi have in common."""
        driver = self.attachment.driver
        kind = next((kind for kind in (_CEPHFS, _RBD) if driver.endswith(kind)), "")
        return driver[: len(driver) - len(kind)] if kind else driver

    @property
    def may_be_nbd(self) -> bool:
        """Its node may have the image open by rbd-nbd, which is a client of librbd."""
        # ceph-csi maps by krbd unless the StorageClass has these parameters, which it copies into
        # volumeAttributes (attachRBDImage of internal/rbd/rbd_attach.go).
        attributes = self._attributes
        return (
            attributes.get("mounter") == "rbd-nbd"
            or str(attributes.get("tryOtherMounters")).lower() == "true"
        )

    @property
    def _attributes(self) -> dict[str, Any]:
        return ((self.pv.get("spec") or {}).get("csi") or {}).get("volumeAttributes") or {}


def names_cephfs(driver: str) -> bool:
    """It is the name of ceph-csi's driver for CephFS."""
    # Rook puts its namespace in front.
    return driver == _CEPHFS or driver.endswith(f".{_CEPHFS}")


class NodeState(NamedTuple):
    """What was read. ``host`` and ``item``: None when there is no such node; ``fences``: None when
    CSI-Addons is not installed.

    ``ledgers``: those of other nodes; ``used``: see find_used; ``attaching``: see
    drivers_that_attach; ``unread``: which ledgers of others were not read, as a sentence;
    ``records``: from where nodes reached Ceph, read for a fence alone; ``single``: by volume, the
    attachment of what another node has, and no other beside it; ``inline``: inline volumes of
    pods on the node, as sentences, of many only some; ``older``: see OnNodes.
    """

    now: datetime
    version: ServerVersion
    host: HostRecord | None
    item: Object | None
    attached: tuple[AttachedVolume, ...]
    others: tuple[HostRecord, ...]
    fences: tuple[NetworkFence, ...] | None
    ledger: Ledger | None
    ledgers: tuple[Ledger, ...] = ()
    used: tuple[AttachedVolume, ...] = ()
    attaching: frozenset[str] = frozenset()
    unread: str = ""
    records: Records = Records()
    single: Mapping[str, Attachment] = {}
    inline: tuple[str, ...] = ()
    older: tuple[str, ...] = ()

    @property
    def held(self) -> tuple[AttachedVolume, ...]:
        """What the node may have open, attached to it or not."""
        return self.attached + self.used

    @property
    def of_earlier_machine(self) -> tuple[AttachedVolume, ...]:
        """Those of them that another machine may have open, which had the node's name before."""
        return tuple(
            found
            for found in self.held
            if found.used_by_older_pod or attached_before_node(found, self.host)
        )


class Filters(NamedTuple):
    """Which volumes are meant: all, or those that fit everything that is given.

    ``claims``: namespace/name.
    """

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
            (
                not self.namespaces
                or bool(volume.claim)
                and volume.claim.split("/")[0] in self.namespaces
            )
            and (not self.claims or volume.claim in self.claims)
            and (not self.storage_classes or volume.storage_class in self.storage_classes)
        )


def pick_host_record(item: Object) -> HostRecord:
    """The record of a node."""
    # The kubelet writes status.addresses itself, or the cloud provider does; Hostname and the DNS
    # names are no addresses that Ceph could see.
    status, spec = item.get("status") or {}, item.get("spec") or {}
    info = status.get("nodeInfo") or {}
    addresses, unusable = host_addresses(
        entry["address"]
        for entry in status.get("addresses") or []
        # NodeAddressType of k8s.io/api/core/v1.
        if entry["type"] in ("InternalIP", "ExternalIP")
    )
    return HostRecord(
        pick_node(item),
        info.get("bootID") or "",
        addresses,
        tuple(
            (taint["key"], taint.get("value") or "", taint.get("effect") or "")
            for taint in spec.get("taints") or []
        ),
        # Boards and virtual machines may have the same systemUUID, and clones the same machineID.
        "/".join(filter(None, (info.get("systemUUID"), info.get("machineID")))),
        parse_time(item["metadata"].get("creationTimestamp")),
        unusable,
        spec.get("providerID") or "",
        _heartbeat(status),
    )


def _heartbeat(status: Object) -> datetime | None:
    """When the kubelet last reported."""
    # The node lifecycle controller, which sets Unknown, leaves lastHeartbeatTime as it is
    # (tryUpdateNodeHealth of pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    conditions = status.get("conditions") or []
    ready: Object = next((entry for entry in conditions if entry["type"] == "Ready"), {})
    return parse_time(ready.get("lastHeartbeatTime"))


def slim_volume(item: Object) -> dict[str, Any]:
    """What of a PersistentVolume rbd_watcher_info needs to find its image; nothing secret."""
    # Results of modules are logged by Ansible and kept by AWX, so secret references and all else
    # stay behind; and names of claims are told once, since a tenant chooses their length and
    # number.
    spec, slim = item["spec"], {}
    if spec.get("rbd"):
        slim["rbd"] = {name: spec["rbd"][name] for name in ("pool", "image") if name in spec["rbd"]}
    if spec.get("csi"):
        # Some drivers have credentials among the others.
        attributes = spec["csi"].get("volumeAttributes") or {}
        # The handle is, or has, the name of the image where that is not among them.
        told = attributes.get("imageName") and "staticVolume" not in attributes
        names = ("driver",) if told else ("driver", "volumeHandle")
        slim["csi"] = {name: spec["csi"][name] for name in names if name in spec["csi"]}
        slim["csi"]["volumeAttributes"] = {
            name: attributes[name]
            for name in (*_IMAGE_ATTRIBUTES, *_FILE_ATTRIBUTES)
            if name in attributes
        }
    return {"metadata": {"name": item["metadata"]["name"]}, "spec": slim}


def attached_volume(
    attachment: Attachment, item: Object | None, elsewhere: Iterable[Attachment] = ()
) -> AttachedVolume:
    """An attachment together with its PersistentVolume, as the API has that."""
    spec = (item or {}).get("spec") or {}
    attributes = (spec.get("csi") or {}).get("volumeAttributes") or {}
    return AttachedVolume(
        attachment,
        pick_volume(item) if item else None,
        slim_volume(item) if item else {},
        attributes.get("clusterID") or "",
        spec.get("storageClassName") or "",
        tuple(elsewhere),
    )


def without_attachment(
    volume: str, node: str, item: Object | None, elsewhere: Iterable[Attachment] = ()
) -> AttachedVolume:
    """A volume that is not attached to the node, with its PersistentVolume."""
    # It has the form of an attachment, so that what decides needs no second case.
    others = tuple(elsewhere)
    # A migrated volume does not tell its driver.
    driver = (pick_volume(item).driver if item else "") or next(
        (other.driver for other in others), ""
    )
    return attached_volume(
        Attachment("", "", driver, node, volume, False, (), None, None, None, None, ()),
        item,
        others,
    )


def is_older(pod: Pod, host: HostRecord | None) -> bool:
    """The pod was made before the Node object.

    A pod names its node by name only, as a VolumeAttachment does.
    """
    return bool(host and host.created and pod.created and pod.created < host.created)


def attached_before_node(found: AttachedVolume, host: HostRecord | None) -> bool:
    """The volume was attached before the Node object was made."""
    # A VolumeAttachment names its node by name only (spec.nodeName of storage.k8s.io/v1), so it
    # survives that another machine registers under the name.
    created = found.attachment.created
    return bool(host and host.created and created and created < host.created)


class OnNodes(NamedTuple):
    """What the pods on nodes show besides the volumes that they use.

    ``ran``: the claims of volumes attached there of which a pod there has ever run a container;
    ``inline``: see NodeState; those of pods that a node cannot have started are left out;
    ``older``: pods that were there before their Node object, and have storage that is not attached,
    of many only some; ``kept``: the claims of volumes attached there that such a pod uses.
    """

    ran: set[tuple[str, str]]
    inline: dict[str, None]
    older: dict[str, None]
    kept: set[tuple[str, str]]

    @classmethod
    def nothing(cls) -> OnNodes:
        """Before any pod was read."""
        return cls(set(), {}, {}, set())

    def note(
        self, item: Object, pod: Pod, host: HostRecord | None, attached: Collection[Any]
    ) -> None:
        """A pod. ``attached``: the claims of the volumes that are attached to its node."""
        if pod.ran:
            claims_here = ((pod.namespace, claim) for claim in pod.claims)
            self.ran.update(claim for claim in claims_here if claim in attached)
        # The scheduler takes no node that is lost, so whoever made such a pod has named the node.
        if pod.terminal or is_pod_too_late(pod, host.node if host else None):
            return
        here = [f"{text} of pod {pod.title}" for text in inline_storage(item["spec"])]
        # Those of older pods leave room for others: whether there are any decides more.
        most = _MOST_INLINE // 2 if is_older(pod, host) else _MOST_INLINE
        self.inline.update(dict.fromkeys(here[: max(0, most - len(self.inline))]))
        if not is_older(pod, host):
            return
        claims = {(pod.namespace, claim) for claim in pod.claims}
        self.kept.update(claim for claim in claims if claim in attached)
        # Of one that never ran, a claim that no volume is bound to has never been anything. Anyone
        # may name one, and keep the pod by a finalizer.
        if here or (pod.ran and not claims <= set(attached)):
            self.add_older(pod)

    def add_older(self, pod: Pod) -> None:
        """A pod of another machine, which had the node's name before."""
        if len(self.older) < _MOST_INLINE:
            self.older[f"pod {pod.title}"] = None


def find_used(
    cluster: Cluster,
    hosts: Mapping[str, HostRecord | None],
    ledgers: Mapping[str, Ledger],
    attachments: Sequence[Attachment],
    volumes: Mapping[str, Object],
    cached: bool = False,
    seen: OnNodes | None = None,
) -> dict[str, tuple[AttachedVolume, ...]]:
    """By node, the volumes that it may have open although they are not attached to it, but for
    those of a fence that is proven.

    Some are never attached, as those of NFS. Others were: six minutes after the pods of a lost node
    are gone, Kubernetes detaches by force, and its clients stay. They are known by its pods, if it
    has any, and by what its kubelet called in use: that stays, since only the kubelet writes it,
    and keeps any other volume attached.
    ``attachments``: all of the cluster; ``volumes``: the PersistentVolumes of those to these
    nodes, by name; ``seen``: gets what the pods there show besides.
    """
    # After maxWaitForUnmountDuration, six minutes, the controller detaches by force
    # (ReconcilerMaxWaitForUnmountDuration in DefaultTimerConfig of
    # pkg/controller/volume/attachdetach/attach_detach_controller.go), unless
    # --disable-force-detach-on-timeout is set. That deletes the VolumeAttachment and ends no
    # client.
    by_volume = _grouped(attachments, "volume")
    by_node = _grouped(attachments, "node")
    here = {name: {found.volume for found in by_node.get(name, ())} for name in hosts}
    attached = {name: _keys_of(volumes, theirs) for name, theirs in here.items()}
    # Most lost nodes use nothing unattached, and then the list of all volumes is not read.
    pods = _pods(cluster, hosts, cached, attached, seen)
    if pods is None:
        only = _claims_of_volumes(cluster, cached)
        pods = _pods(cluster, hosts, cached, attached, seen, only)
    users = _users(pods or (), hosts)
    unlisted = {
        name: _unlisted(host, name, {found.name for found in by_node.get(name, ())})
        for name, host in hosts.items()
    }
    everything = set().union(*users.values(), *unlisted.values())
    if not everything:
        return {}
    items = cluster.list(
        path("v1", "persistentvolumes"),
        lambda item: item if _keys(item) & everything else None,
        cached=cached,
    )
    attaching = drivers_that_attach(attachments)
    if seen is not None:
        _note_older(seen, pods or (), hosts, items)
    used = {}
    for name, host in hosts.items():
        left = {
            item["metadata"]["name"]: item
            for item in items
            if _keys(item) & unlisted[name]
            or _is_used(item, users[name], host, attaching, by_volume)
        }
        entries = [
            without_attachment(volume, name, left[volume], by_volume.get(volume, ()))._replace(
                used_by_older_pod=_is_used_by_older_pod(left[volume], users[name], host)
            )
            for volume in sorted(set(left) - here[name])
        ]
        # What a proven fence covers is no open question any more.
        used[name] = _not_fenced(entries, _proven(ledgers.get(name), host))
    return used


def _note_older(
    seen: OnNodes,
    pods: Iterable[Pod],
    hosts: Mapping[str, HostRecord | None],
    items: Iterable[Object],
) -> None:
    """The pods of before that have a volume, whether they ever ran or not."""
    # A kubelet mounts the volumes of a pod before it starts a container.
    bound = set().union(*map(_keys, items))
    for pod in pods:
        if is_older(pod, hosts[pod.node]) and any(
            (pod.namespace, claim) in bound for claim in pod.claims
        ):
            seen.add_older(pod)


def _is_used_by_older_pod(
    item: Object, users: Mapping[Any, list[Pod]], host: HostRecord | None
) -> bool:
    """A pod uses this PersistentVolume that is older than the Node object."""
    return any(is_older(pod, host) for key in _keys(item) & set(users) for pod in users[key])


def _grouped(attachments: Iterable[Attachment], by: str) -> dict[str, list[Attachment]]:
    """The attachments of each volume, or of each node."""
    found: dict[str, list[Attachment]] = {}
    for attachment in attachments:
        found.setdefault(getattr(attachment, by), []).append(attachment)
    return found


def _keys_of(volumes: Mapping[str, Object], names: set[str]) -> set[str]:
    """The keys of those of these PersistentVolumes that exist."""
    return {key for name in names & volumes.keys() for key in _keys(volumes[name])}


def _unlisted(host: HostRecord | None, name: str, known: set[str]) -> set[str]:
    """What the kubelet of a node calls in use, and no attachment of those known is about."""
    if host is None:
        return set()
    return {entry for entry in host.node.volumes_in_use if attachment_names((entry,), name) - known}


def _users(pods: Iterable[Pod], hosts: Iterable[str]) -> dict[str, dict[Any, list[Pod]]]:
    """By node, the pods of each claim."""
    users: dict[str, dict[Any, list[Pod]]] = {name: {} for name in hosts}
    for pod in pods:
        for claim in pod.claims:
            users[pod.node].setdefault((pod.namespace, claim), []).append(pod)
    return users


def _claims_of_volumes(cluster: Cluster, cached: bool) -> set[tuple[str, str]]:
    """The claims that are bound to a volume."""

    def pick(item: Object) -> tuple[str, str] | None:
        volume = pick_volume(item)
        return volume.claim if volume.phase == "Bound" else None

    return set(cluster.list(path("v1", "persistentvolumes"), pick, cached=cached))


def _is_used(
    item: Object,
    users: Mapping[Any, list[Pod]],
    host: HostRecord | None,
    attaching: frozenset[str],
    attachments: Mapping[str, list[Attachment]],
) -> bool:
    """A pod on the node may have the PersistentVolume mounted. ``attachments``: by volume."""
    volume, node = pick_volume(item), host.node if host else None
    driver = volume.disk[0]
    # A tenant may make its claim again, under a pod that ran. What is mounted for it, the kubelet
    # has listed, too.
    if volume.driver in attaching and is_after_silence(volume.created, node):
        return False
    pods = [pod for key in _keys(item) & set(users) for pod in users[key]]
    # A pod that waits for what another node has (Multi-Attach) may be any tenant's, on any node.
    # What the kubelet mounted for it, it has listed in volumesInUse before (see may_have).
    if item["metadata"]["name"] in attachments:
        pods = [pod for pod in pods if pod.ran]
    return any(may_have(pod, node, driver, attaching) for pod in pods)


def _not_fenced(
    entries: Iterable[AttachedVolume], fenced: tuple[str, ...]
) -> tuple[AttachedVolume, ...]:
    return tuple(entry for entry in entries if entry.can_be_awaited and entry.name not in fenced)


def _pods(
    cluster: Cluster,
    hosts: Mapping[str, HostRecord | None],
    cached: bool,
    attached: Mapping[str, set[Any]],
    seen: OnNodes | None,
    only: set[tuple[str, str]] | None = None,
) -> list[Pod] | None:
    """The pods on these nodes that have not ended, each with those of its claims that are not
    attached to its node, of ``only`` these. None if that is more than can be kept.

    ``seen``: see find_used.
    """
    kept = 0

    def pick(item: Object) -> Pod | None:
        nonlocal kept
        if item["spec"].get("nodeName") not in hosts or (only is None and kept > _MOST_CLAIMS):
            return None
        pod = pick_pod(item)
        if seen is not None:
            seen.note(item, pod, hosts[pod.node], attached[pod.node])
        claims = tuple(
            claim
            for claim in pod.claims
            if (pod.namespace, claim) not in attached[pod.node]
            and (only is None or (pod.namespace, claim) in only)
        )
        if not claims or pod.terminal:
            return None
        kept += len(claims)
        return pod._replace(claims=claims)

    folder = path("v1", "pods")
    if len(hosts) > _MAX_GETS:
        pods = cluster.list(folder, pick, cached=cached)
    else:
        pods = [
            pod
            for name in hosts
            for pod in cluster.list(folder, pick, fields=f"spec.nodeName={name}", cached=cached)
        ]
    return None if only is None and kept > _MOST_CLAIMS else pods


def _keys(item: Object) -> set[Any]:
    """By what a PersistentVolume is known: its claim, while it is bound to that, and its name in
    the status of a node.
    """
    # status.volumesInUse has unique names, kubernetes.io/csi/DRIVER^HANDLE
    # (GetUniqueVolumeNameFromSpec of pkg/volume/util/util.go).
    volume = pick_volume(item)
    return {
        *([volume.claim] if volume.phase == "Bound" else []),
        *([unique_name(volume.driver, volume.handle)] if volume.driver else []),
    }


def _proven(ledger: Ledger | None, host: HostRecord | None) -> tuple[str, ...]:
    """The volumes of a fence that is there, and is about what the node has open now."""
    # What is in a fence that is proven cannot be written to by the node any more, wherever it is
    # attached.
    if (
        ledger is None
        or ledger.phase not in ("fenced", "detached")
        or (host and host.boot_id != ledger.boot_id)
    ):
        return ()
    return ledger.volumes


def gather_node(
    cluster: Cluster,
    node: str,
    ledgers: Ledgers,
    covers: Callable[[Ledger], bool] = lambda _ledger: True,
) -> NodeState:
    """Read the attachments first, then the node and all that matters for it, as etcd has it now.

    ``covers``: what is in this fence, once that is proven, is not ``used`` any more.
    """
    # The order matters: what is attached while the rest is read is missing here, and what was
    # detached is only judged once more.
    attachments = cluster.list(ATTACHMENTS, pick_attachment)
    here = [found for found in attachments if found.node == node]
    names = {found.volume for found in here if found.volume}
    # An inline volume in an attachment has no name.
    theirs = [found for found in attachments if found.node != node and found.volume]
    elsewhere = _grouped(theirs, "volume")
    volumes = _volumes(cluster, names)
    item = cluster.get(path("v1", "nodes", node))
    host = pick_host_record(item) if item else None
    hosts = cluster.list(path("v1", "nodes"), pick_host_record)
    others = [other for other in hosts if other.node.name != node]
    fences, ledger = list_fences(cluster), ledgers.read(node, item)
    seen = OnNodes.nothing()
    by_node = {node: ledger} if ledger and covers(ledger) else {}
    used = find_used(cluster, {node: host}, by_node, attachments, volumes, seen=seen)
    others_fenced = tuple(found for found in ledgers.all() if found.node != node)
    return NodeState(
        cluster.now(),
        cluster.version(),
        host,
        item,
        tuple(_attached(found, volumes, elsewhere, host, seen) for found in here),
        tuple(others),
        fences,
        ledger,
        others_fenced,
        used.get(node, ()),
        drivers_that_attach(attachments),
        ledgers.unread,
        single=_single(elsewhere, names),
        inline=tuple(seen.inline),
        older=tuple(seen.older),
    )


def _single(
    elsewhere: Mapping[str, Sequence[Attachment]], here: Collection[str]
) -> dict[str, Attachment]:
    """By volume, the attachment of what one other node alone has."""
    return {
        volume: found[0]
        for volume, found in elsewhere.items()
        if len(found) == 1 and found[0].attached and volume not in here
    }


def _attached(
    found: Attachment,
    volumes: Mapping[str, Object],
    elsewhere: Mapping[str, Sequence[Attachment]],
    host: HostRecord | None,
    seen: OnNodes,
) -> AttachedVolume:
    """What is attached to the node. ``elsewhere``: by volume, its attachments to other nodes."""
    entry = attached_volume(found, volumes.get(found.volume), elsewhere.get(found.volume, ()))
    return entry._replace(
        too_late=is_too_late(entry, host, seen.ran),
        used_by_older_pod=entry.volume is not None and entry.volume.claim in seen.kept,
    )


def is_too_late(
    entry: AttachedVolume, host: HostRecord | None, ran: Collection[tuple[str, str]]
) -> bool:
    """The volume was attached after its node fell silent, and the node has not opened it since.

    The attach/detach controller attaches to a silent node as well, for any pod that names it, and
    any tenant may make one. ``ran``: the claims of pods on the node of which a container ever ran.
    A claim's name is no identity: a tenant may make it again, under such a pod, and gets another
    volume.
    """
    # A kubelet mounts nothing of it that it has not listed in volumesInUse before (see may_have of
    # _kube/objects.py).
    found, volume, node = entry.attachment, entry.volume, host.node if host else None
    if not (volume and volume.driver and volume.claim_name and node):
        return False
    return (
        is_after_silence(found.created, node)
        and not {found.name, unique_name(volume.driver, volume.handle)}
        & _in_use(node.volumes_in_use, node.name)
        and (volume.claim not in ran or is_after_silence(volume.created, node))
    )


@lru_cache(maxsize=8)
def _in_use(unique_names: tuple[str, ...], node: str) -> frozenset[str]:
    """What a node says that it uses: the entries of its status, and the VolumeAttachments of these.

    Made once for a node: root there chooses how many entries it has, and tenants how many
    attachments are looked for in them.
    """
    return frozenset({*unique_names, *attachment_names(unique_names, node)})


def _volumes(cluster: Cluster, names: set[str]) -> dict[str, Object]:
    """The PersistentVolumes of these names, by name."""
    # A PersistentVolume that is gone leaves its attachment behind, so a name may have no object.
    folder = path("v1", "persistentvolumes")
    if len(names) > _MAX_GETS:
        found = cluster.list(
            folder, lambda item: item if item["metadata"]["name"] in names else None
        )
    else:
        found = [
            item
            for name in sorted(names)
            for item in [cluster.get(path("v1", "persistentvolumes", name))]
            if item
        ]
    return {item["metadata"]["name"]: item for item in found}


def fences_of(
    state: NodeState, ledger: Ledger
) -> list[tuple[FenceObject, NetworkFence | None, str]]:
    """The NetworkFences that the ledger means to fence the node by, as they were noted and as they
    are, and what is wrong with each.

    Not those that are left from before the node booted, nor one that is gone while another of its
    name, recreated and noted too, is there: a uid cannot be restored.
    """
    # A uid names one object for ever; a recreated NetworkFence has its name, another uid, and
    # perhaps another state.
    there = {fence.uid: fence for fence in state.fences or () if not fence.deleted}
    deleted = {fence.uid for fence in state.fences or () if fence.deleted}
    noted = _that_fence(ledger)
    others = [fence for found in noted for fence in [there.get(found.uid)] if fence]
    told: list[tuple[FenceObject, NetworkFence | None, str]] = []
    for found in noted:
        fence = there.get(found.uid)
        if fence:
            told.append(
                (found, fence, "" if fence.cidrs == found.cidrs else "has other ranges now")
            )
        elif found.uid in deleted:
            told.append((found, None, "is being deleted"))
        elif not _is_recreated(found, others, ledger):
            told.append((found, None, "is gone or was replaced"))
    return told


def _that_fence(ledger: Ledger) -> list[FenceObject]:
    """The noted NetworkFences that cover an address of the fence."""
    return [found for found in ledger.network_fences if covered(found, ledger.addresses)]


def _is_recreated(found: FenceObject, others: list[NetworkFence], ledger: Ledger) -> bool:
    """NetworkFences of its name, noted too, cover every address that it covered."""
    namesakes = [other for other in others if other.name == found.name]
    left = set(covered(found, ledger.addresses))
    return not left.difference(*(covered(other, left) for other in namesakes))


def opposing(state: NodeState, ledger: Ledger, drivers: set[str]) -> list[NetworkFence]:
    """NetworkFences that were made since, and take the fence back whenever their controller starts.

    ``drivers``: of the fenced volumes.
    """
    # Unfenced is an order as well: the controller removes the entries of its ranges, whoever has
    # made them.
    noted = {found.uid for found in ledger.network_fences}
    return [
        fence
        for fence in state.fences or ()
        if fence.uid not in noted
        and fence.state == UNFENCED
        and may_act_on(fence, drivers, set(ledger.cluster_id.split(",")))
        and covered(fence, ledger.addresses)
    ]
