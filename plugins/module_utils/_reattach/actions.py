# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions of a move, and those that take back what it holds. Pure: no I/O here."""

from __future__ import annotations

from .._core.engine import Action
from .._kube.objects import HOLD, attachment_path, node_path, pod_path
from .records import NO_WORKLOAD, ClaimGroup, ReattachOptions, Subject


def actions_of(group: ClaimGroup, options: ReattachOptions) -> list[Action]:
    # Holds first, then evictions, then the wait, then the release of the holds: a pod that is
    # evicted earlier may come back to its node before the volume has left that.
    actions = [
        Action(
            "cordon_node",
            host.node.name,
            ["PATCH", node_path(host.node.name), f"spec.taints+={HOLD}:NoSchedule"],
            Subject(group, host=host),
        )
        for host in group.cordoned
    ]
    actions += [
        Action(
            "scale_down",
            workload.title,
            ["PATCH", workload.path, "spec.replicas=0"],
            Subject(group, workload=workload),
        )
        for workload in group.scaled
    ]
    actions += [
        Action(
            "evict_pod",
            mover.pod.title,
            ["POST", f"{pod_path(mover.pod)}/eviction"],
            Subject(group, tenant=mover),
        )
        for mover in group.movers
        # Those go by themselves: the one is being deleted, the other ends with its workload.
        if not mover.pod.deleted and mover.pod.uid not in group.scaled_away
    ]
    actions.append(
        Action(
            f"wait_{options.wait_for}",
            ", ".join(group.claims),
            ["GET", *_awaited(group, options)],
            Subject(group),
        )
    )
    return actions + release_actions(group)


def _awaited(group: ClaimGroup, options: ReattachOptions) -> list[str]:
    # In the order in which Kubernetes lets go: the pod, then the mount, then the attachment.
    pods = [pod_path(mover.pod) for mover in group.movers]
    nodes = [f"{node_path(node)} (volumesInUse)" for node in group.nodes]
    attachments = (
        [attachment_path(attachment) for attachment in group.leaving]
        if options.wait_for == "detached"
        else []
    )
    return pods + nodes + attachments


def release_actions(group: ClaimGroup) -> list[Action]:
    return [release_action(Subject(group, host=host)) for host in group.cordoned] + [
        release_action(Subject(group, workload=workload)) for workload in group.scaled
    ]


def release_action(subject: Subject) -> Action:
    """What takes back a cordon or a scaling down."""
    # The same action takes a hold back after success, after a failure, and for a run that was
    # killed.
    if subject.host:
        name = subject.host.node.name
        return Action(
            "uncordon_node",
            name,
            ["PATCH", node_path(name), f"spec.taints-={HOLD}"],
            Subject(subject.group, host=subject.host),
        )
    workload = subject.workload or NO_WORKLOAD
    return Action(
        "scale_up",
        workload.title,
        ["PATCH", workload.path, "spec.replicas as before"],
        Subject(subject.group, workload=workload),
    )
