# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why claims and pods are not moved. Pure: no I/O here."""

from __future__ import annotations

from .._core.codes import Reason
from .._kube.objects import Pod, Tenant, age, made_again
from .moving import spots_of
from .records import (
    DELETES_CLAIMS,
    MAKERS,
    ClaimGroup,
    ReattachOptions,
    ReattachState,
    Workload,
    evades_cordon,
)

# A pod that is still there this long (seconds) after its grace period is held up by something that
# an eviction does not move.
# The kubelet kills what outlives its grace period, so a pod that is there after that hangs in an
# unmount or in a finalizer.
_STUCK_SECONDS = 60.0


# DaemonSet pods tolerate node.kubernetes.io/unschedulable and are placed by node affinity
# (pkg/controller/daemon/util/daemonset_util.go). Mirror pods of static pods are owned by their
# Node.
IMMOVABLE = {
    "Node": Reason("pod_not_recreated", "it is a static pod, which only its node starts and stops"),
    "DaemonSet": Reason(
        "daemonset_pod",
        "a DaemonSet's pod comes back to its node at once, cordoned or not: keep the "
        "DaemonSet off that node by its node selector",
    ),
    "Job": Reason(
        "pod_not_recreated",
        "evicting a Job's pod counts as a failure of the Job: let it end, or delete it",
    ),
}


def claim_obstacles(state: ReattachState, claims: tuple[str, ...]) -> list[Reason]:
    # A claim that is being deleted lives only for the pods that use it
    # (kubernetes.io/pvc-protection).
    obstacles = []
    for name in claims:
        found = state.claims.get(name)
        if found is None:
            obstacles.append(Reason("not_found", f"there is no claim {name}"))
        elif found.ephemeral:
            obstacles.append(
                Reason(
                    "claim_would_be_lost",
                    f"claim {name} is a generic ephemeral volume: it goes "
                    "with its pod, so delete the pod",
                )
            )
        elif found.claim.phase != "Bound" or found.claim.volume not in state.volumes:
            bound = "Bound, but its volume is gone, or names another claim"
            why = bound if found.claim.phase == "Bound" else found.claim.phase or "unknown"
            obstacles.append(
                Reason("claim_unbound", f"claim {name} is not bound to a volume (phase {why})")
            )
        elif found.claim.deleted or state.volumes[found.claim.volume].deleted:
            what = (
                f"claim {name}"
                if found.claim.deleted
                else f"volume {found.claim.volume} of claim {name}"
            )
            obstacles.append(
                Reason(
                    "claim_would_be_lost",
                    f"{what} is being deleted, and only its pods keep the data: they are not "
                    "moved, since it would be lost",
                )
            )
    return obstacles


def obstacles_of(
    state: ReattachState, group: ClaimGroup, options: ReattachOptions, resumed: bool, budget: int
) -> list[Reason]:
    """Why this group is not moved.

    ``resumed``: an unfinished run has left ledgers; ``budget``: so many pods may still be evicted.
    """
    # All that stands in the way is told at once, since each run costs the user a look.
    obstacles = [
        obstacle for mover in group.movers for obstacle in _mover_obstacles(state, mover, options)
    ]
    obstacles += [
        Reason("claim_would_be_lost", f"{workload.title} is not scaled down: {DELETES_CLAIMS}")
        for workload in group.scaled
        if workload.deletes_claims
    ]
    for mover in group.movers:
        workload = state.workload(mover.pod)
        if evades_cordon(mover.pod, workload):
            obstacles += _scale_obstacles(state, mover.pod, workload, options)
    obstacles += unconsented(group, options)
    obstacles += [
        Reason("identity_changed", made_again(node)) for node in _made_again(state, group)
    ]
    if not resumed:
        obstacles += _podless_obstacles(state, group)
    pods = sum(not mover.pod.deleted for mover in group.movers)
    if pods > budget:
        left = f", of which {max(0, budget)} are left" if budget < options.max_repairs else ""
        obstacles.append(
            Reason(
                "too_many_repairs",
                f"{pods} pods would be moved, and max_repairs is {options.max_repairs} pods a "
                f"run{left}",
            )
        )
    return obstacles


def unconsented(group: ClaimGroup, options: ReattachOptions) -> list[Reason]:
    """The workloads that say that an unfinished run scaled them down, where nothing may be scaled.

    Their tenants may have written that.
    """
    return [
        Reason(
            "consent_required",
            f"{workload.title} says that a run which was not finished scaled it down: set "
            "scale_down to scale it up again (playbook: workload_reattach_scale_down), or scale it "
            "up by hand",
        )
        for workload in group.scaled
        if workload.ledgers and not options.scale_down
    ]


def _made_again(state: ReattachState, group: ClaimGroup) -> list[str]:
    """The nodes that are younger than an attachment to them.

    It may be one to another host that had the name before, and still writes.
    """
    # A VolumeAttachment names its node by name alone (spec.nodeName of k8s.io/api/storage/v1).
    younger = {
        entry.node
        for entry in group.leaving
        for host in [state.hosts.get(entry.node)]
        if host and host.node.is_younger(entry)
    }
    return sorted(younger)


def _podless_obstacles(state: ReattachState, group: ClaimGroup) -> list[Reason]:
    """The attachments that must go and that no pod of the claims uses."""
    # Nothing that is moved would make Kubernetes detach these: the controller does that by itself,
    # or is stuck.
    obstacles = []
    places = {spot for mover in group.movers for spot in spots_of(state, group.claims, mover.pod)}
    for attachment in group.leaving:
        if (attachment.volume, attachment.node) in places:
            continue
        # The external-attacher removes its finalizer once ControllerUnpublishVolume has succeeded
        # (kubernetes-csi/external-attacher pkg/controller/csi_handler.go), so the object waits.
        if attachment.deleted:
            said = (
                f"; the attacher says: {attachment.detach_error.message}"
                if attachment.detach_error
                else ""
            )
            held = ", ".join(attachment.finalizers) or "no finalizer"
            obstacles.append(
                Reason(
                    "attacher_stuck",
                    f"{attachment.name} is being deleted already, held by {held}{said}: wait for "
                    f"the attacher of {attachment.driver}",
                )
            )
        else:
            obstacles.append(
                Reason(
                    "no_pod_to_move",
                    f"{attachment.name} is on {attachment.node}, where no pod of the claims runs: "
                    "there is no pod to move (see STOR-11)",
                )
            )
    return obstacles


def _owner_obstacles(state: ReattachState, pod: Pod, options: ReattachOptions) -> list[Reason]:
    """Why a pod that is evicted may be gone for good."""
    # An eviction deletes the pod. Only its controller makes another one, and a custom resource may
    # not.
    owner = pod.owner
    if owner is None:
        return [
            Reason("pod_not_recreated", f"pod {pod.title} has no controller that would recreate it")
        ]
    if owner.kind in IMMOVABLE:
        why = IMMOVABLE[owner.kind]
        return [why.with_text(f"pod {pod.title}: {why}")]
    if (owner.group, owner.kind) in MAKERS:
        gone = f"its {owner.title} is gone, or being deleted: nothing would recreate it"
        return (
            []
            if owner.uid in state.makers
            else [Reason("pod_not_recreated", f"pod {pod.title}: {gone}")]
        )
    if options.accept_unknown_owners:
        return []
    return [
        Reason(
            "pod_not_recreated",
            f"pod {pod.title} belongs to {owner.title}, a kind that is not known to recreate its "
            "pods: the pod may be lost. If you know that it does, set accept_unknown_owners "
            "(playbook: workload_reattach_accept_unknown_owners)",
        )
    ]


def _mover_obstacles(state: ReattachState, mover: Tenant, options: ReattachOptions) -> list[Reason]:
    # Only a kubelet unmounts, so a volume cannot leave a silent node by a move.
    pod = mover.pod
    obstacles = []
    if mover.ephemeral:
        names = ", ".join(mover.ephemeral)
        obstacles.append(
            Reason(
                "claim_would_be_lost",
                f"pod {pod.title} has generic ephemeral volumes ({names}), whose data is deleted "
                "with it: move it by hand",
            )
        )
    obstacles += _owner_obstacles(state, pod, options)
    host = state.hosts.get(pod.node)
    ready = host.node.ready if host else "no such node"
    if ready != "True":
        obstacles.append(
            Reason(
                "node_lost",
                f"node {pod.node} of pod {pod.title} is not Ready ({ready}): nothing there "
                "unmounts the volume, so a fail-over is needed (runbook fail_over_volumes), not a "
                "move",
            )
        )
    elif pod.deleted and age(state.now, pod.deleted) > _STUCK_SECONDS:
        # deletionTimestamp has the grace period in it.
        late = age(state.now, pod.deleted)
        obstacles.append(
            Reason(
                "pod_stuck",
                f"pod {pod.title} should have been gone {late:.0f} s ago: see why the kubelet of "
                f"{pod.node} does not end it",
            )
        )
    return obstacles


def _scale_obstacles(
    state: ReattachState, pod: Pod, workload: Workload | None, options: ReattachOptions
) -> list[Reason]:
    # A HorizontalPodAutoscaler leaves a workload with 0 replicas alone, and would not bring it back
    # from there either (Kubernetes documentation, "Horizontal Pod Autoscaling", implicit
    # maintenance mode).
    why = "tolerates every taint" if pod.tolerates_hold else "names its node in its template"
    if pod.owner is None or pod.owner.kind in IMMOVABLE:
        return []
    if workload is None:
        return [
            Reason(
                "workload_unscalable",
                f"pod {pod.title} {why}, and its owner ({pod.owner.kind} {pod.owner.name}) is none "
                "that can be scaled here",
            )
        ]
    if (workload.kind, workload.name) in state.autoscaled:
        return [
            Reason(
                "workload_unscalable",
                f"pod {pod.title} {why}, and {workload.kind} {workload.name} has a "
                "HorizontalPodAutoscaler: scale it down by that",
            )
        ]
    if not options.scale_down and not workload.deletes_claims:
        return [
            Reason(
                "consent_required",
                f"pod {pod.title} {why}: set scale_down to scale {workload.kind} {workload.name} "
                "down and up again instead (playbook: workload_reattach_scale_down)",
            )
        ]
    return []
