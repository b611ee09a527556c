# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What shows that a volume which is never attached is with its new pod: no VolumeAttachment will.

That there is none proves nothing, since it is also so after a detach by force. So the volume must
be one that no driver attaches, and its new pod must run: a kubelet starts no container before all
volumes of its pod are mounted (WaitForAttachAndMount in SyncPod of pkg/kubelet/kubelet.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from .._fences.state import ATTACHMENTS, AttachedVolume
from .._kube.client import Cluster, Forbidden, path
from .._kube.objects import (
    Attachment,
    Claim,
    Node,
    Pod,
    Tenant,
    Volume,
    drivers_that_attach,
    is_bound,
    pick_attachment,
    pick_driver,
)


class Told(NamedTuple):
    """What the API tells now.

    ``exempt``: the drivers of which a CSIDriver says attachRequired: false; ``unread``: those that
    this account may not read; ``attaching``: the drivers that have any VolumeAttachment;
    ``attached``: the volumes that have one.
    """

    exempt: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    attaching: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()


def read_told(cluster: Cluster, volumes: Iterable[AttachedVolume]) -> Told:
    """Read it, as far as it matters for volumes that are not attached to the lost node."""
    candidates = [
        covered.volume for covered in volumes if covered.volume and not covered.attachment.name
    ]
    exempt, unread = set(), set()
    for name in sorted({volume.driver for volume in candidates if volume.driver}):
        # Without a CSIDriver a driver attaches (CanAttach of pkg/volume/csi/csi_plugin.go).
        try:
            item = cluster.get(path("storage.k8s.io/v1", "csidrivers", name))
        except Forbidden:
            unread.add(name)
            continue
        if item and not pick_driver(item).attach_required:
            exempt.add(name)
    told = Told(frozenset(exempt), frozenset(unread))
    # The list may be long, and most volumes are attached.
    if not any(volume.share or volume.driver in exempt for volume in candidates):
        return told
    # It is read after the CSIDrivers: what these allow is contradicted by what there is.
    entries = cluster.list(ATTACHMENTS, pick_attachment)
    return told._replace(
        attaching=drivers_that_attach(entries),
        attached=frozenset(entry.volume for entry in entries),
    )


def shown_unattached(covered: AttachedVolume, told: Told) -> str | None:
    """By what the volume is never attached, as a message says it; None if it is, or may be."""
    volume = covered.volume
    if volume is None:
        return None
    if covered.attachment.name:
        return None
    if volume.name in told.attached:
        return None
    if volume.driver in told.attaching:
        return None
    if not volume.share and volume.driver not in told.exempt:
        return None
    return f"{volume.driver} attaches nothing" if volume.driver else "NFS is never attached"


def is_new(pod: Pod, covered: AttachedVolume, told: Told, node: Node | None, now: datetime) -> bool:
    """The pod, which uses the volume elsewhere, may be there since the node was lost; others have
    had the volume before. ``node``: the lost one, None if it is gone.
    """
    never = shown_unattached(covered, told)
    # A PersistentVolume that only one node can have is in use by its new pod alone once it is
    # attached there. Nothing keeps several nodes from what is never attached.
    if not never and covered.volume is not None and covered.volume.exclusive:
        return True
    lost = node.lost_since(now) if node else None
    # The lost kubelet may have set that time into the past, but not the time of the taint. The pod
    # itself is then all that proves anything.
    if never and node and node.tainted_since:
        lost = max(lost or node.tainted_since, node.tainted_since)
    return not lost or not pod.created or pod.created >= lost


def runs_elsewhere(tenant: Tenant, lost: str, fenced: frozenset[str]) -> bool:
    """This pod shows that it has its volumes, as far as no claim is asked for."""
    pod = tenant.pod
    # Other words, as Unknown, or none at all, say nothing of the containers.
    if pod.phase != "Running":
        return False
    if not pod.ready and not tenant.started:
        return False
    if not pod.node or pod.node == lost:
        return False
    return pod.uid not in fenced


def shown_mounted(
    tenant: Tenant, claim: Claim | None, volume: Volume, lost: str, fenced: frozenset[str]
) -> str | None:
    """What shows that this pod has such a volume mounted; None while nothing does.

    ``claim``: as it is now; ``lost``: the node that is fenced; ``fenced``: the uids of its pods.
    """
    if not runs_elsewhere(tenant, lost, fenced):
        return None
    # A claim's name is no identity: one that was made again has another volume.
    if claim is None:
        return None
    if claim.volume != volume.name:
        return None
    if not is_bound(claim, volume):
        return None
    pod = tenant.pod
    how = "is Ready" if pod.ready else "has started"
    return f"pod {pod.title} ({pod.uid}) {how} on {pod.node}"


class Seen(NamedTuple):
    """What one look has shown of where volumes are.

    ``attachments``: by volume and node; ``claims``: those of volumes that are never attached, by
    volume; ``lost``: the node that is fenced; ``fenced``: the uids of its pods.
    """

    attachments: Mapping[tuple[str, str], Attachment]
    told: Told
    claims: Mapping[str, Claim]
    lost: str
    fenced: frozenset[str]

    def may_have(self, tenants: Iterable[Tenant]) -> bool:
        """One of these pods has its volume, which is never attached, if its claim agrees."""
        return any(runs_elsewhere(tenant, self.lost, self.fenced) for tenant in tenants)

    def mounted(self, covered: AttachedVolume, tenant: Tenant) -> str | None:
        """What shows that this pod has such a volume."""
        if covered.volume is None:
            return None
        claim = self.claims.get(covered.name)
        return shown_mounted(tenant, claim, covered.volume, self.lost, self.fenced)
