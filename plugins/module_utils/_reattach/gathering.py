# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the claims that are moved, their pods and nodes, and what earlier runs have noted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._kube.client import Cluster, path
from .._kube.objects import (
    HOLD,
    Attachment,
    Owner,
    Tenant,
    Volume,
    is_bound,
    pick_attachment,
    pick_tenant,
    pick_volume,
)
from . import records
from .leases import HoldLeases, believed
from .records import ClaimState, HeldNode, ReattachOptions, ReattachState, Workload

ATTACHMENTS = path("storage.k8s.io/v1", "volumeattachments")


def gather(cluster: Cluster, options: ReattachOptions, leases: HoldLeases) -> ReattachState:
    """Read the claims, their volumes and attachments, then the pods, then what the pods are
    made by and run on.
    """
    # Claims before pods: a pod that begins to use a claim meanwhile is seen. Each object is read
    # from etcd, not from the API server's cache.
    named = _claims(cluster, options)
    volumes = _volumes(cluster, named)
    claims = [_as_bound(found, volumes) for found in named]
    attachments = cluster.list(
        ATTACHMENTS, lambda item: if_concerned(pick_attachment(item), volumes, options)
    )
    tenants = tenants_of(cluster, options)
    workloads = [
        workload for kind in records.RESOURCES for workload in _workloads(cluster, options, kind)
    ]
    hosts = _hosts(cluster, leases, tenants)
    owned, makers = _owners(
        cluster, options, {tenant.pod.owner for tenant in tenants if tenant.pod.owner}
    )
    state = ReattachState(
        cluster.now(),
        {found.claim.name: found for found in claims},
        volumes,
        tuple(attachments),
        tuple(tenants),
        hosts,
        {workload.uid: workload for workload in workloads},
        owned,
        _autoscaled(cluster, options) if options.scale_down else frozenset(),
        makers=makers,
    )
    return replace(
        state,
        ended=frozenset(ledger.process for ledger in state.ledgers if has_ended(ledger.process)),
    )


def _claims(cluster: Cluster, options: ReattachOptions) -> list[ClaimState]:
    # One list is one snapshot, and costs less than a request for each claim.
    wanted = set(options.claims)
    return cluster.list(
        path("v1", "persistentvolumeclaims", namespace=options.namespace),
        lambda item: records.pick_claim_state(item) if item["metadata"]["name"] in wanted else None,
    )


def _volumes(cluster: Cluster, claims: Collection[ClaimState]) -> dict[str, Volume]:
    """The volumes that the claims name, by name."""
    named = sorted({found.claim.volume for found in claims if found.claim.volume})
    items = [(name, cluster.get(path("v1", "persistentvolumes", name))) for name in named]
    return {name: pick_volume(item) for name, item in items if item}


def _as_bound(found: ClaimState, volumes: Mapping[str, Volume]) -> ClaimState:
    """The claim without the volume that only it itself names."""
    claim = found.claim
    if is_bound(claim, volumes.get(claim.volume)):
        return found
    return found._replace(claim=claim._replace(volume=""))


def _hosts(
    cluster: Cluster, leases: HoldLeases, tenants: Collection[Tenant]
) -> dict[str, HeldNode]:
    """The nodes that pods of the claims are on, and those that a run keeps free of new pods."""
    # The same key is a taint, which keeps pods off, and a label, by which the nodes can be listed:
    # the API server selects by labels, not by taints.
    # A run that was killed has left the taint, and the label, so only such nodes can have a ledger
    # that counts.
    held = cluster.list(path("v1", "nodes"), records.pick_host, labels=f"{HOLD}=true")
    nodes = {host.node.name: host for host in held}
    used = {tenant.pod.node for tenant in tenants}
    for name in {name for name in used if name} - set(nodes):
        item = cluster.get(path("v1", "nodes", name))
        nodes.update({name: records.pick_host(item)} if item else {})
    # After the nodes: a run that writes on a node has its Lease before that.
    kept = leases.all(cluster)
    hosts = {name: believed(host, kept) for name, host in nodes.items()}
    return {name: host for name, host in hosts.items() if name in used or host.ledgers or host.lone}


def tenants_of(cluster: Cluster, options: ReattachOptions, node: str = "") -> list[Tenant]:
    """The pods of the claims, on one node or everywhere."""
    fields = f"spec.nodeName={node}" if node else ""
    pods = path("v1", "pods", namespace=options.namespace)
    return cluster.list(pods, lambda item: pick_tenant(item, options.claims), fields=fields)


def _workloads(cluster: Cluster, options: ReattachOptions, kind: str) -> list[Workload]:
    folder = path("apps/v1", records.RESOURCES[kind], namespace=options.namespace)
    return cluster.list(folder, lambda item: records.pick_workload(item, kind))


def _owners(
    cluster: Cluster, options: ReattachOptions, owners: Collection[Owner]
) -> tuple[dict[str, str], frozenset[str]]:
    """ReplicaSets and the Deployments that they belong to; and those that make pods again.

    All by uid.
    """
    # ownerReferences name an object by uid, so one that was made again under the name owns nothing
    # of before (metav1.OwnerReference).
    owned, makers = {}, set()
    for owner in owners:
        resource = records.MAKERS.get((owner.group, owner.kind))
        version = f"{owner.group}/v1".lstrip("/")
        item = (
            cluster.get(path(version, resource, owner.name, options.namespace))
            if resource
            else None
        )
        meta = item["metadata"] if item else {}
        if meta.get("uid") != owner.uid:
            continue
        if not meta.get("deletionTimestamp"):
            makers.add(owner.uid)
        for reference in meta.get("ownerReferences") or []:
            if reference.get("controller"):
                owned[owner.uid] = reference["uid"]
    return owned, frozenset(makers)


def _autoscaled(cluster: Cluster, options: ReattachOptions) -> frozenset[tuple[str, str]]:
    # scaleTargetRef names kind and name in its own namespace.
    def target(item: dict[str, Any]) -> tuple[str, str]:
        reference = item["spec"]["scaleTargetRef"]
        return reference["kind"], reference["name"]

    folder = path("autoscaling/v1", "horizontalpodautoscalers", namespace=options.namespace)
    return frozenset(cluster.list(folder, target))


def if_concerned(
    attachment: Attachment, volumes: Mapping[str, Volume], options: ReattachOptions
) -> Attachment | None:
    return (
        attachment
        if attachment.volume in volumes or attachment.uid in options.attachments
        else None
    )


def process_of(pid: str = "self") -> str:
    """The name of a process as long as its host is up: boot, namespace, number, start.

    Empty: there is none, or that cannot be read.
    """
    # Of /proc/PID/stat, field 3 is the state (X dead, Z zombie) and field 22 the start in clock
    # ticks after boot (man 5 proc_pid_stat). A number alone is given out again; the name in
    # parentheses may have spaces.
    with contextlib.suppress(OSError, ValueError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        number, _space, fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").partition(" ")
        )
        state, *values = fields.rpartition(")")[2].split()
        return (
            ""
            if state in "XZ"
            else f"{boot} {os.readlink('/proc/self/ns/pid')} {number} {values[18]}"
        )
    return ""


def has_ended(process: str) -> bool:
    """It is known that a process is no more.

    That is so only for one of this boot and PID namespace (man 7 pid_namespaces), where this run
    sees every process; and a ledger of this very process is of an earlier run in it.
    """
    own, parts = process_of().split(), process.split()
    if len(own) != 4 or parts[:2] != own[:2] or len(parts) != 4:
        return False
    try:
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    # Overflow: a number that no process has.
    except (OSError, OverflowError, ValueError):
        return False
    return parts == own or process_of(parts[2]) != process
