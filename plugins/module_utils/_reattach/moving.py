# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which claims are moved together, and which pods, attachments and nodes does that take?
Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import replace

from .._kube.objects import Attachment, Node, Pod, Tenant, Volume, attachment_names, unique_name
from .records import (
    NO_WORKLOAD,
    ClaimGroup,
    HeldNode,
    ReattachOptions,
    ReattachState,
    Workload,
    evades_cordon,
)


def in_use(
    node: Node | None, volumes: tuple[Volume, ...], attachments: tuple[Attachment, ...]
) -> list[str]:
    """Which of the volumes the node's kubelet still uses, by ``volumesInUse``."""
    if node is None:
        return []
    # The kubelet reports a volume there from before it is mounted until its device is unmounted
    # (GetVolumesInUse of pkg/kubelet/volumemanager/volume_manager.go), by unique name. The name of
    # a VolumeAttachment is a hash of driver, handle and node, which a migrated volume has too.
    hashed = attachment_names(node.volumes_in_use, node.name)
    names = {
        attachment.volume
        for attachment in attachments
        if attachment.node == node.name and attachment.name in hashed
    }
    names |= {
        volume.name
        for volume in volumes
        if volume.driver and unique_name(volume.driver, volume.handle) in node.volumes_in_use
    }
    return sorted(names)


def lacking(attachment: Attachment, required: tuple[str, ...]) -> list[str]:
    """The required keys that an attachment does not have."""
    # What ControllerPublishVolume returned as publish_context, which the external-attacher writes
    # to status.attachmentMetadata (CSI specification, "ControllerPublishVolume").
    return [key for key in required if key not in attachment.metadata]


def partition(state: ReattachState, options: ReattachOptions) -> list[tuple[str, ...]]:
    """The claims, put together where one pod, one scaled workload or one unfinished run connects
    them.
    """
    groups = [{claim} for claim in options.claims]
    for link in _links(state, options):
        touched = [group for group in groups if group & link]
        groups = [group for group in groups if not group & link] + (
            [set().union(*touched)] if touched else []
        )
    return sorted(
        (tuple(sorted(group)) for group in groups),
        key=lambda group: min(map(options.claims.index, group)),
    )


def _links(state: ReattachState, options: ReattachOptions) -> list[set[str]]:
    """Sets of claims of which none can be moved without the others."""
    # Ledgers of another namespace are of claims that only have the same names.
    links = [set(tenant.pod.claims) for tenant in state.tenants]
    # Scaling a workload down takes all its pods away, and so moves the claims of all of them.
    scaled: dict[str, set[str]] = {}
    for tenant in state.tenants:
        workload = state.workload(tenant.pod)
        if workload and (evades_cordon(tenant.pod, workload) or workload.ledgers):
            scaled.setdefault(workload.uid, set()).update(tenant.pod.claims)
    links += scaled.values()
    return links + [
        set(ledger.claims) for ledger in state.ledgers if ledger.namespace == options.namespace
    ]


def by_node(group: ClaimGroup) -> list[ClaimGroup]:
    """The parts of a group that leave one node each.

    A volume is attached to each node by itself, so no two nodes need be cordoned at a time.
    """
    # The desired state of the attach/detach controller is kept by node, so each node is left on its
    # own.
    nodes = dict.fromkeys([*(host.node.name for host in group.cordoned), *group.nodes])
    return [
        replace(
            group,
            node=node,
            later=frozenset(group.nodes) - {node},
            leaving=tuple(attachment for attachment in group.leaving if attachment.node == node),
            movers=tuple(mover for mover in group.movers if mover.pod.node == node),
            cordoned=tuple(host for host in group.cordoned if host.node.name == node),
        )
        for node in nodes
    ]


def moving_of(
    state: ReattachState,
    group: ClaimGroup,
    options: ReattachOptions,
    resumed: bool,
    only: frozenset[str] | None,
) -> ClaimGroup:
    """The group with what must go, by what the user asked for or by what an unfinished run has
    noted.

    ``resumed``: an unfinished run has left ledgers; ``only``: the nodes that may be left.
    """
    # What an unfinished run has begun goes on as it was noted: the user's filters may be others
    # now.
    living = _living(state, group)
    tenants = [tenant for tenant in living if only is None or tenant.pod.node in only]
    everybody = not (resumed or options.attachments or options.required_metadata)
    leaving = _leaving(state, group, options, tenants, everybody, only)
    movers = _movers(state, group, tenants, leaving, everybody)
    workloads, scaled = _workloads(state, group, movers)
    scaled_away = [
        mover for mover in movers if (state.workload(mover.pod) or NO_WORKLOAD).uid in scaled
    ]
    # After an unfinished run it is unknown which pods are new.
    others = [] if resumed else [tenant for tenant in living if tenant not in movers]
    return replace(
        group,
        leaving=tuple(leaving),
        movers=tuple(movers),
        cordoned=_cordoned(state, group, movers, scaled_away),
        scaled=tuple(scaled.values()),
        scaled_away=_uids(scaled_away),
        workloads=tuple({**workloads, **scaled}.values()),
        moved=group.moved | _uids(movers),
        gone=group.gone | {attachment.uid for attachment in leaving},
        uids=frozenset((host.node.name, host.node.uid) for host in state.hosts.values()),
        others=_uids(others),
    )


def _uids(tenants: list[Tenant]) -> frozenset[str]:
    return frozenset(tenant.pod.uid for tenant in tenants)


def _living(state: ReattachState, group: ClaimGroup) -> list[Tenant]:
    """The pods that use one of the claims and have a node; without one there is nothing mounted."""
    # scheduled is spec.nodeName, which the scheduler or the pod's own template sets.
    return [
        tenant
        for tenant in state.tenants
        if tenant.pod.scheduled and set(group.claims) & set(tenant.pod.claims)
    ]


def _workloads(
    state: ReattachState, group: ClaimGroup, movers: list[Tenant]
) -> tuple[dict[str, Workload], dict[str, Workload]]:
    """The workloads of the pods that are moved, and those that are scaled down for it, by uid."""
    # A workload that an unfinished run has scaled down has no pods now, and is among them by its
    # ledger.
    workloads, scaled = {}, {workload.uid: workload for workload in group.scaled}
    for mover in movers:
        workload = state.workload(mover.pod)
        if workload:
            workloads[workload.uid] = workload
            # A cordon keeps off only what the scheduler places and the taint repels.
            if evades_cordon(mover.pod, workload):
                scaled[workload.uid] = workload
    return workloads, scaled


def _leaving(
    state: ReattachState,
    group: ClaimGroup,
    options: ReattachOptions,
    tenants: list[Tenant],
    everybody: bool,
    only: frozenset[str] | None,
) -> list[Attachment]:
    """The attachments that must go: by their names, or else by the metadata that they lack, or else
    by the pods that use them.

    ``everybody``: all pods of the claims are moved.
    """
    # An attachment cannot be updated: publish_context is written once, when it is attached. So one
    # that lacks metadata has to be made again.
    volumes = {volume.name for volume in group.volumes}
    spots = {spot for tenant in tenants for spot in spots_of(state, group.claims, tenant.pod)}

    def leaves(attachment: Attachment) -> bool:
        wanted_gone = attachment.uid in options.attachments or attachment.uid in group.gone
        lacks = not options.attachments and bool(lacking(attachment, options.required_metadata))
        return wanted_gone or lacks or (everybody and (attachment.volume, attachment.node) in spots)

    return [
        entry
        for entry in state.attachments
        if entry.volume in volumes and (only is None or entry.node in only) and leaves(entry)
    ]


def _movers(
    state: ReattachState,
    group: ClaimGroup,
    tenants: list[Tenant],
    leaving: list[Attachment],
    everybody: bool,
) -> list[Tenant]:
    """The pods that must go, so that the attachments can."""
    # The attach/detach controller detaches a volume only once no pod on the node wants it, and its
    # kubelet has taken it out of volumesInUse
    # (pkg/controller/volume/attachdetach/reconciler/reconciler.go).
    places = {(attachment.volume, attachment.node) for attachment in leaving}
    return [
        tenant
        for tenant in tenants
        if everybody
        or tenant.pod.uid in group.moved
        or spots_of(state, group.claims, tenant.pod) & places
    ]


def _cordoned(
    state: ReattachState, group: ClaimGroup, movers: list[Tenant], scaled_away: list[Tenant]
) -> tuple[HeldNode, ...]:
    """The nodes that are kept free of new pods: those of an unfinished run, and those of all pods
    that are evicted.
    """
    cordoned = {host.node.name: host for host in group.cordoned}
    for mover in movers:
        host = state.hosts.get(mover.pod.node)
        # A workload that has no replicas makes no pod, so its nodes need no cordon.
        if mover not in scaled_away and host:
            cordoned[host.node.name] = host
    return tuple(cordoned.values())


def spots_of(state: ReattachState, claims: tuple[str, ...], pod: Pod) -> set[tuple[str, str]]:
    """Which volumes of the claims the pod needs on its node."""
    # A volume and a node: what a VolumeAttachment connects.
    return {(_volume_of(state, claim), pod.node) for claim in pod.claims if claim in claims}


def _volume_of(state: ReattachState, claim: str) -> str:
    return state.claims[claim].claim.volume if claim in state.claims else ""
