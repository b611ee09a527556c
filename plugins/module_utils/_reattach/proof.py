# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what is left of the old place of claims, and what proves that their pods are back."""

from __future__ import annotations

from typing import Any

from .._core.engine import ActionFailed
from .._kube.client import Cluster
from .._kube.objects import (
    HOLD,
    Attachment,
    Tenant,
    Volume,
    attachment_name,
    attachment_path,
    node_path,
    pick_attachment,
)
from . import moving, records
from .gathering import ATTACHMENTS, if_concerned, tenants_of
from .leases import HoldLeases, believed
from .records import SCALE, ClaimGroup, HeldNode, MoveLedger, ReattachOptions


def still_there(cluster: Cluster, options: ReattachOptions, group: ClaimGroup) -> list[str]:
    """What of the old place is still to be seen: pods, mounts and attachments.

    Raises ActionFailed where a pod came back too early, or a node was replaced.
    """
    return [text for node in group.nodes for text in _still_on(cluster, options, group, node)]


def _still_on(
    cluster: Cluster, options: ReattachOptions, group: ClaimGroup, node: str
) -> list[str]:
    # volumesInUse is the kubelet's record of what it has mounted, and keeps the controller from
    # detaching (pkg/controller/volume/attachdetach/reconciler/reconciler.go).
    leaving = [attachment for attachment in group.leaving if attachment.node == node]
    names = {attachment.volume for attachment in leaving}
    volumes = tuple(volume for volume in group.volumes if volume.name in names or not group.leaving)
    left = _pods_on(cluster, options, group, node, volumes)
    item = cluster.get(node_path(node))
    if not item or (node, item["metadata"]["uid"]) not in group.uids:
        # Its status says nothing of what the host that had the name has mounted.
        raise ActionFailed(
            f"node {node} is gone, or another one now: it is not known whether its host has "
            "released the volume",
            code="identity_changed",
        )
    used = moving.in_use(records.pick_host(item).node, volumes, tuple(leaving))
    left += [
        f"{node} still uses {name} (volumesInUse): its kubelet has not unmounted it"
        for name in used
    ]
    if options.wait_for == "detached":
        # What is in use is not detached, so that alone is worth saying.
        left += [
            doubt
            for entry in leaving
            if entry.volume not in used
            for doubt in _attached_still(cluster, entry)
        ]
    return left


def _pods_on(
    cluster: Cluster,
    options: ReattachOptions,
    group: ClaimGroup,
    node: str,
    volumes: tuple[Volume, ...],
) -> list[str]:
    """The pods that were to leave the node and are still there."""
    # A new pod on the node makes the volume wanted there again, so it would never be detached.
    left = []
    claims = {volume.claim_name for volume in volumes}
    for tenant in tenants_of(cluster, options, node):
        pod = tenant.pod
        if pod.uid in group.moved:
            since = f", Terminating since {pod.deleted:%H:%M:%S}Z" if pod.deleted else ""
            left.append(f"pod {pod.title} is still on {node}{since}")
        elif claims & set(pod.claims) and not pod.deleted:
            raise ActionFailed(
                f"pod {pod.title} ({pod.uid}) came to {node} before the volume had left "
                "it; run again",
                code="not_detached",
            )
    return left


def _attached_still(cluster: Cluster, planned: Attachment) -> list[str]:
    # The uid tells the old attachment from a new one: its name is a hash that both have.
    item = cluster.get(attachment_path(planned))
    now = pick_attachment(item) if item else None
    if now is None or now.uid != planned.uid:
        return []
    # The controller manager deletes it once it has seen the pods go; else it still counts on them.
    if now.deleted is None:
        return [
            f"{now.name} ({now.driver} on {now.node}) is not being deleted: the controller "
            "manager does not detach it"
        ]
    said = f"; the attacher says: {now.detach_error.message}" if now.detach_error else ""
    return [
        f"{now.name} ({now.driver} on {now.node}) is being deleted since "
        f"{now.deleted:%H:%M:%S}Z, held by "
        f"{', '.join(now.finalizers) or 'no finalizer'}{said}. "
        "A finalizer is never removed here"
    ]


def compare(
    cluster: Cluster, options: ReattachOptions, leases: HoldLeases, group: ClaimGroup
) -> tuple[list[str], list[str]]:
    """What is not yet as it should be after a move, and what proves the rest."""
    # A pod that is Ready on an old attachment proves nothing of the new one, so both are asked for.
    doubts, proof = _holds(cluster, leases, group)
    if not group.moved:
        return doubts, proof
    here = [
        tenant
        for tenant in tenants_of(cluster, options)
        if set(tenant.pod.claims) & set(group.claims) and not tenant.pod.deleted
    ]
    new, again = _new_pods(group, here)
    ready = [tenant for tenant in new if tenant.pod.ready]
    wanted = _wanted(cluster, group, here) - len(again)
    # At least as many: a workload may have been scaled up meanwhile.
    if len(ready) < wanted:
        doubts += _not_ready(new, len(ready), wanted)
    proof += [
        f"pod {tenant.pod.title} ({tenant.pod.uid}) came to "
        f"{tenant.pod.node}, which is left after this"
        for tenant in again
    ]
    for tenant in ready:
        proof.append(f"pod {tenant.pod.title} ({tenant.pod.uid}) is Ready on {tenant.pod.node}")
        for volume in group.volumes:
            if volume.claim_name in tenant.pod.claims:
                _compare_attachment(cluster, options, group, volume, tenant.pod.node, doubts, proof)
    return doubts, proof


def _new_pods(group: ClaimGroup, here: list[Tenant]) -> tuple[list[Tenant], list[Tenant]]:
    """The pods that are new where they stay, and those on a node whose turn is yet to come."""
    # By uid, since a pod of a StatefulSet that was made again has the name of the one before.
    new = [tenant for tenant in here if tenant.pod.uid not in group.moved | group.others]
    again = [tenant for tenant in new if tenant.pod.node in group.later]
    return [tenant for tenant in new if tenant not in again], again


def _not_ready(new: list[Tenant], ready: int, wanted: int) -> list[str]:
    return [
        f"{ready} of {wanted} new pods are Ready",
        *(
            f"pod {tenant.pod.title} on {tenant.pod.node or 'no node'} is {tenant.pod.phase}: "
            f"{tenant.trouble or 'no reason given'}"
            for tenant in new
            if not tenant.pod.ready
        ),
    ]


def _compare_attachment(
    cluster: Cluster,
    options: ReattachOptions,
    group: ClaimGroup,
    volume: Volume,
    node: str,
    doubts: list[str],
    proof: list[str],
) -> None:
    # The external-attacher writes attached and attachmentMetadata in one update of the status.
    required = options.required_metadata
    found = _find_attachment(cluster, options, volume, node)
    if found is None:
        # A driver that attaches nothing has no VolumeAttachment, and needs none.
        if required or volume.name in {attachment.volume for attachment in group.leaving}:
            doubts.append(f"{volume.name} has no VolumeAttachment on {node}")
        return
    lacking = moving.lacking(found, required)
    if not found.attached:
        doubts.append(
            f"{found.name} is not attached"
            + (f": {found.attach_error.message}" if found.attach_error else "")
        )
    # The same name again is no proof, since the old and the new one share it.
    elif options.wait_for == "detached" and found.uid in group.gone:
        doubts.append(f"{found.name} on {node} is still the old one ({found.uid})")
    elif lacking:
        doubts.append(
            f"{found.name} on {node} has no {', '.join(lacking)} although it is new: the "
            "driver does not publish it"
        )
    else:
        keys = f" with {', '.join(found.metadata)}" if found.metadata else ""
        proof.append(f"{found.name} ({found.uid}) is attached to {node}{keys}")


def _find_attachment(
    cluster: Cluster, options: ReattachOptions, volume: Volume, node: str
) -> Attachment | None:
    # csi-translation-lib makes driver and handle of an in-tree volume, by rules of each plugin.
    if volume.driver:
        item = cluster.get(f"{ATTACHMENTS}/{attachment_name(volume.driver, volume.handle, node)}")
        return pick_attachment(item) if item else None
    # A migrated volume does not tell by what handle its attachment is named.
    found = cluster.list(
        ATTACHMENTS,
        lambda item: if_concerned(pick_attachment(item), {volume.name: volume}, options),
    )
    return next(
        (
            attachment
            for attachment in found
            if attachment.node == node and attachment.volume == volume.name
        ),
        None,
    )


def _holds(cluster: Cluster, leases: HoldLeases, group: ClaimGroup) -> tuple[list[str], list[str]]:
    """What we still hold of nodes and workloads, and what proves that the rest is given back."""
    doubts, proof = [], []
    for host in group.cordoned:
        doubt, said = _host_held(cluster, leases, group, host)
        doubts += doubt
        proof += said
    for workload in group.scaled:
        item = cluster.get(workload.path)
        name = workload.name
        if item and own_ledgers(item, SCALE, group):
            doubts.append(f"{name} still has our annotation")
        else:
            proof.append(f"{name} is scaled to {item['spec'].get('replicas') if item else 0} again")
    return doubts, proof


def _host_held(
    cluster: Cluster, leases: HoldLeases, group: ClaimGroup, host: HeldNode
) -> tuple[list[str], list[str]]:
    # The Lease goes last, so as long as it is there the hold is not given back.
    name = host.node.name
    item = cluster.get(node_path(name))
    kept = leases.of(cluster, host.node)
    now = believed(records.pick_host(item), kept) if item else None
    if any(group.owns(each.ledger) for each in kept):
        return [f"{name} still has our Lease"], []
    if now and now.held and not now.ledgers:
        return [f"{name} still has the taint {HOLD}"], []
    return [], [_cordon_left(now, name) if now else f"{name} is gone"]


def _wanted(cluster: Cluster, group: ClaimGroup, here: list[Tenant]) -> int:
    """How many new pods must be there: as many as were moved, unless their workload wants fewer
    by now.
    """
    # A workload may have been scaled by its owner while its pods moved.
    wanted = len(group.moved)
    if group.workloads:
        items = [(workload, cluster.get(workload.path)) for workload in group.workloads]
        replicas = sum(
            records.pick_workload(item, workload.kind).replicas for workload, item in items if item
        )
        owners = {mover.pod.owner for mover in group.movers}
        # Pods of the workload on other nodes are counted by its replicas as well.
        stay = [
            tenant
            for tenant in here
            if tenant.pod.uid in group.others and tenant.pod.owner in owners
        ]
        wanted = min(wanted, replicas - len(stay))
    return wanted - sum(tenant.pod.uid in group.moved for tenant in here)


def own_ledgers(item: dict[str, Any], prefix: str, group: ClaimGroup) -> list[MoveLedger]:
    # A ledger counts for this group by its claims, whichever run has written it.
    return [ledger for ledger in records.ledgers(item, prefix) if group.owns(ledger)]


def _cordon_left(host: HeldNode, name: str) -> str:
    # An operator's cordon (spec.unschedulable) is another thing than our taint, and stays.
    if host.ledgers:
        return f"{name} is held for another move, and not for this one"
    return (
        f"{name} is cordoned, and not by us"
        if host.node.unschedulable
        else f"{name} takes new pods"
    )
