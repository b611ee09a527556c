# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is the node lost, and may its fence be begun or continued? Pure: no I/O here."""

from __future__ import annotations

from .._core.codes import Reason
from .._core.guards import is_most
from .._fences.ledger import EXTERNAL, OFF_METHODS, Ledger
from .._fences.state import NodeState, fences_of
from .._kube.objects import Node
from .options import FenceOptions

# A fence that was proven may only become a stronger one: a NetworkFence's controller writes the
# blocklist again after others have changed it, "none" protects nothing, and what has no power
# writes nowhere.
_STRENGTH = ("none", "ceph", "network_fence", "external", "power")

_RELEASE = "give it back with the playbook storage_ops.runbooks.release_fenced_node (STOR-17)"


def not_standing(state: NodeState, options: FenceOptions) -> list[Reason]:
    """Why nothing more may be done for the fence of the ledger, with the next step; empty if it
    may.
    """
    ledger = state.ledger
    reasons = [*not_lost(state, options), *majority_lost(state, options), *unfit(state, options)]
    if ledger is None:
        reasons.append(
            Reason(
                "fence_missing",
                f"node {options.node} has no ledger, so it is not decided whom to fence: run with "
                "state intended first",
            )
        )
    elif ledger.phase == "releasing":
        # A release may have removed entries of this very fence already.
        reasons.append(
            Reason(
                "fence_unfinished",
                f"the fence of node {options.node} is being released (run {ledger.run}, since "
                f"{ledger.at}): run from the start",
            )
        )
    # Other clients hold the images after a reboot, perhaps at other addresses. bootID is the
    # kernel's /proc/sys/kernel/random/boot_id, which the kubelet reports
    # (pkg/kubelet/nodestatus/setters.go).
    elif state.host and (state.host.node.uid, state.host.boot_id) != (
        ledger.node_uid,
        ledger.boot_id,
    ):
        reasons.append(
            Reason(
                "node_rebooted",
                f"node {options.node} was booted, or its object recreated, since its fence was "
                f"intended (uid {state.host.node.uid}, bootID "
                f"{state.host.boot_id}): run again from the start",
            )
        )
    return reasons


def not_lost(state: NodeState, options: FenceOptions) -> list[Reason]:
    """Why the node does not count as lost, with the next step; empty if it does."""
    if state.host is not None:
        return _not_silent(state, state.host.node, options)
    # Its kubelet would recreate the Node object (tryRegisterWithAPIServer in
    # pkg/kubelet/kubelet_node_status.go), so a node that was fenced and then deleted is lost still.
    if state.ledger:
        return []
    return [Reason("not_found", f"there is no node {options.node}: give the name of a Node object")]


def _not_silent(state: NodeState, node: Node, options: FenceOptions) -> list[Reason]:
    """Why the kubelet does not count as silent.

    Only Unknown does: the node lifecycle controller sets it when the kubelet has renewed neither
    its Lease nor its status for the node monitor grace period. True and False come from the kubelet
    itself (pkg/controller/nodelifecycle/node_lifecycle_controller.go, tryUpdateNodeHealth).
    """
    fenced = (
        f". It has a fence (phase {state.ledger.phase}), which stays: {_RELEASE}"
        if state.ledger
        else ""
    )
    if node.ready == "True":
        return [
            Reason(
                "node_not_lost",
                f"node {node.name} is Ready, so it is not lost: drain it to move its pods{fenced}",
            )
        ]
    if node.ready == "False":
        # A kubelet that reports runs its pods, whatever its container runtime says.
        return [
            Reason(
                "node_not_lost",
                f"node {node.name} is not lost: its kubelet is reporting (Ready=False), so its "
                "pods may be at work. Repair it, or power it off and wait until it is "
                f"Unknown{fenced}",
            )
        ]
    # A condition has three values (k8s.io/api/core/v1 ConditionStatus); any other, or none at all,
    # proves nothing.
    if node.ready != "Unknown":
        return [
            Reason(
                "evidence_contradicts",
                f"node {node.name} says Ready={node.ready}, which is unknown{fenced}",
            )
        ]
    seconds = node.lost_for(state.now)
    if seconds < options.grace_seconds:
        return [
            Reason(
                "node_not_lost",
                f"node {node.name} has been Unknown for {seconds:.0f} s only, and grace_seconds "
                f"asks for {options.grace_seconds:g} s: it may come back at once. Wait, and run "
                f"again{fenced}",
            )
        ]
    return []


def majority_lost(state: NodeState, options: FenceOptions) -> list[Reason]:
    """Why the control plane is the suspect: most nodes are lost at once.

    Kubernetes itself stops evicting then (ComputeZoneState and --unhealthy-zone-threshold in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    """
    # A partition leaves both sides healthy, and each of them calls the other lost.
    nodes = [*([state.host] if state.host else []), *state.others]
    lost = [host for host in nodes if host.node.ready != "True"]
    if options.accept_majority or not is_most(len(lost), len(nodes)):
        return []
    return [
        Reason(
            "majority_broken",
            f"{len(lost)} of {len(nodes)} nodes are not Ready, so more likely the control plane "
            "or its network is cut off, and the nodes may still be running: find out, and set "
            "accept_majority if they really are lost",
        )
    ]


def unfit(state: NodeState, options: FenceOptions) -> list[Reason]:
    """Why the fence that the ledger has begun forbids the method that was asked for."""
    # Another method would leave the entries of the first one without an owner.
    ledger = state.ledger
    if ledger is None or not is_present(state, ledger):
        return []
    # Once every NetworkFence of it is gone, the fence has to be made by other means.
    if ledger.method == "network_fence" and all(
        fence is None for _noted, fence, _problem in fences_of(state, ledger)
    ):
        return []
    if options.method != "auto" and _is_weaker(options.method, ledger):
        other = "power" if ledger.method == EXTERNAL else EXTERNAL
        others = f" or {other}" if ledger.is_off else ""
        return [
            Reason(
                "fence_method_unfit",
                f"the fence of node {options.node} is one by method {ledger.method}, and was "
                f"proven: {options.method} is weaker. Go on with {ledger.method}{others} (or auto)",
            )
        ]
    return []


def _is_weaker(method: str, ledger: Ledger) -> bool:
    """This method would take less for fenced than was proven by the one of the ledger."""
    # One that was never proven has moved nothing, and what can prove it may be gone for good, as a
    # BMC with the power of its machine. What it has set stays in the ledger.
    if ledger.is_off and ledger.power and ledger.power.off_at:
        return method not in OFF_METHODS
    if ledger.is_off:
        return ledger.was_proven and method == "none"
    return ledger.was_proven and _STRENGTH.index(method) < _STRENGTH.index(ledger.method)


def was_judged(ledger: Ledger, options: FenceOptions) -> bool:
    """For the fence of the ledger it was judged who has its volumes open in Ceph, by no less than
    there is now.
    """
    # Ceph was not asked where a NetworkFence was intended without a reading. With one there are the
    # record of the node, the notes of ceph-csi, and the families of the monitors.
    unseen = ledger.method == "network_fence" and ledger.unverified and options.reading
    return is_of_clients(ledger, options) and not unseen


def is_of_clients(ledger: Ledger, options: FenceOptions) -> bool:
    """The fence of the ledger is about the clients of the node, or this one is not either."""
    # Nobody asks for the clients of a node that is off, or is said to be. So where it is fenced in
    # Ceph after all, its volumes are new to the fence.
    same = options.method in ("auto", ledger.method)
    return same or ledger.method not in ("none", *OFF_METHODS)


def is_present(state: NodeState, ledger: Ledger) -> bool:
    """What the ledger says of the node's clients is about the present.

    After a reboot they are other clients, perhaps at other addresses; and what is being released
    may be gone from Ceph already.
    """
    # A ledger without a Node object is about the present: nothing has registered under the name
    # since.
    return ledger.phase != "releasing" and (
        state.host is None or state.host.boot_id == ledger.boot_id
    )
