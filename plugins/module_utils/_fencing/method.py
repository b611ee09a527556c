# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is the node fenced by Ceph's blocklist, a NetworkFence, or not at all? Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.codes import Reason
from .._core.ip import Network, family
from .._core.untrusted import few
from .._fences.network_fence import (
    NetworkFence,
    coverage,
    covered,
    mapped,
    networks,
    undecidable,
)
from .case import FenceCase
from .own import is_single

UNREAD = Reason(
    "ceph_not_read",
    "nothing was read of Ceph (option ceph), and by no NetworkFence does the user tell from which "
    "address the node reaches Ceph: give what rbd_watcher_info returned, or name that address in "
    "fence_addresses if a NetworkFence covers it, or prepare NetworkFences with the option "
    "addresses (playbook storage_ops.runbooks.prepare_network_fences) while nodes are Ready",
)
_UNKNOWN = (
    "it is unknown from which address node {} reaches Ceph: no client holds its images, they have "
    "no locks, ceph-csi has noted none, none is recorded, and fence_addresses is empty. A node "
    "that lost its power looks like this: name its address on Ceph's network in fence_addresses, "
    "or prove that it is off and use method none with node_confirmed_off"
)
# What to do about a NetworkFence that would hit others.
_MEND = "correct its spec.cidrs, or delete it while it is Unfenced"
# What to do where no entry of the blocklist hits the lost node alone.
POWER = (
    "prove that this one is off, by its power supply or its hypervisor, and use method none "
    "with node_confirmed_off"
)


def choose_method(case: FenceCase) -> str:
    """The method of the fence: "ceph", "network_fence" or "none"; refused where it does not fit.

    "auto" is left only where the addresses are unknown, which is a refusal.
    """
    # A NetworkFence is preferred where one covers the node: its controller keeps writing the
    # blocklist to what the object says, so entries of others would not last.
    options = case.options
    covering = [fence.name for fence in case.covering()]
    wanted = _continued(case, bool(covering))
    if wanted == "none":
        if not options.node_confirmed_off:
            case.reasons.append(
                Reason(
                    "consent_required",
                    "method none fences nothing: it is for a node that is proven to be off. "
                    f"Set node_confirmed_off once {options.node} is, by its power supply or "
                    "its hypervisor",
                )
            )
        return wanted
    if not case.source:
        case.reasons.append(_no_address(case))
        return wanted
    if not case.may_hit():
        case.reasons.append(Reason("address_unknown", _never_seen(case)))
        return wanted
    if wanted == "network_fence" and case.state.fences is None:
        case.reasons.append(
            Reason(
                "fence_method_unfit",
                "this cluster has no NetworkFences, since CSI-Addons "
                "is not installed: use method ceph",
            )
        )
    elif wanted == "ceph" and covering:
        case.reasons.append(
            Reason(
                "fence_method_unfit",
                f"NetworkFence {few(covering)} covers {few(case.source)}, and its "
                "controller undoes what others write into the blocklist: "
                "use method network_fence (or auto)",
            )
        )
    elif wanted == "auto":
        wanted = "network_fence" if covering else "ceph"
    if wanted == "ceph" and options.reading is None:
        case.reasons.append(UNREAD)
    return wanted


def _continued(case: FenceCase, is_covered: bool) -> str:
    """The method that was asked for; with "auto" that of the fence which stands, if it still fits.

    ``is_covered``: a NetworkFence covers an address of the fence.
    """
    wanted, known = case.options.method, case.known
    if known is None or wanted != "auto":
        return wanted
    # A NetworkFence that was made after the entries removes them when its controller starts, so it
    # has to take the fence over.
    if is_covered and known.method == "ceph":
        return "network_fence"
    # Its NetworkFences are gone, so the entries have to be written without them.
    if known.method == "network_fence" and not is_covered:
        return "ceph"
    return known.method


def _no_address(case: FenceCase) -> Reason:
    """Why it is unknown whom to fence."""
    said = case.reported()
    word = (
        f". The driver on the node has reported {few(said)}, which is the node's own word, "
        "and nothing else confirms it: if it is right, name it in fence_addresses"
        if said
        else ""
    )
    if case.options.reading is None:
        return Reason("ceph_not_read", f"{UNREAD}{word}")
    before = (
        f". The fence before the node booted had {few(case.old.addresses)}"
        if case.old and case.old.addresses
        else ""
    )
    doubt = f". {case.recorded.doubt}" if case.recorded.doubt else ""
    return Reason("address_unknown", _UNKNOWN.format(case.options.node) + before + word + doubt)


def _never_seen(case: FenceCase) -> str:
    """Why Ceph sees no client at any address of the fence."""
    told = few(f"{address} ({how})" for address, how in case.source.items())
    others = few(sorted({family(address) for address in case.source}))
    return (
        f"no monitor of this Ceph has an {others} address, so it sees no client at {told}, and a "
        f"fence there would hit nothing: name the {few(sorted(case.families))} address by which "
        f"node {case.options.node} reaches Ceph in fence_addresses"
    )


def check_coverage(case: FenceCase, fences: list[NetworkFence]) -> None:
    """The NetworkFences cover every address, on every Ceph."""
    for cluster_id in sorted(case.cluster_ids):
        # Each clusterID may stand for another Ceph, and a NetworkFence writes the blocklist of the
        # one that its clusterID names (GetMonsAndClusterID in ceph-csi
        # internal/csi-addons/networkfence/fencing.go).
        mine = [fence for fence in fences if fence.cluster_id == cluster_id or not cluster_id]
        held = set().union(*(covered(fence, case.source) for fence in mine))
        bare = [address for address in case.source if address not in held]
        if bare and case.state.fences is not None:
            case.reasons.append(
                Reason(
                    "network_fence_unfit",
                    f"no NetworkFence of clusterID {cluster_id or 'unknown'} covers "
                    f"{few(bare)}: prepare one (playbook "
                    "storage_ops.runbooks.prepare_network_fences) while "
                    "nodes are Ready, or use method ceph",
                )
            )


def check_fences(case: FenceCase, fences: list[NetworkFence]) -> None:
    """Each NetworkFence can be proven, and hits no other node."""
    # A range may be wider than one node, and whoever else is in it is fenced as well.
    for fence in fences:
        problem = undecidable(fence)
        if problem:
            case.reasons.append(Reason("network_fence_unfit", problem))
        if mapped(fence.cidrs):
            case.reasons.append(
                Reason(
                    "network_fence_unfit",
                    f"NetworkFence {fence.name} has {few(mapped(fence.cidrs))}, which is IPv4 to "
                    f"ceph-csi and IPv6 to Ceph, so it proves nothing: {_MEND}",
                )
            )
        # The controller only removes its finalizer from one that is being deleted, and fences
        # nothing any more.
        if fence.deleted or not fence.cluster_id:
            what = (
                "is being deleted"
                if fence.deleted
                else "does not say of which clusterID it is (is its class missing?)"
            )
            case.reasons.append(
                Reason(
                    "network_fence_unfit",
                    f"NetworkFence {fence.name} {what}: repair it, and run again",
                )
            )
        hit = set(_also_hit(case, fence))
        if hit:
            case.reasons.append(
                Reason(
                    "fence_shared",
                    f"NetworkFence {fence.name} ({few(fence.cidrs)}) covers "
                    f"{few(sorted(hit))} too: a fence is for one node; {_MEND}",
                )
            )
        bare = _only_said(case, fence)
        if bare:
            case.reasons.append(
                Reason(
                    "network_fence_unfit",
                    f"NetworkFence {fence.name} covers {few(bare)} too, which only the node "
                    "itself says (its kubelet, or the driver on it) and nothing that Ceph shows "
                    f"confirms: if that is node {case.options.node}'s, name it in "
                    f"fence_addresses; else {_MEND}",
                )
            )


def _only_said(case: FenceCase, fence: NetworkFence) -> list[str]:
    """What this NetworkFence would fence by a node's own word alone."""
    # One that is already in force fences no further host, and the run continues with it.
    if not fence.by_node or fence.in_force:
        return []
    return [
        str(network)
        for network in networks(fence.cidrs)
        if not (is_single(network) and str(network.network_address) in case.source)
    ]


def _also_hit(case: FenceCase, fence: NetworkFence) -> Iterator[str]:
    """Who else would be fenced by this NetworkFence, as a message names it."""
    is_covered = coverage(fence)
    for address, owner in case.claims.items():
        if is_covered(address):
            yield owner.title
    for other in case.state.ledgers:
        if any(is_covered(address) for address in other.addresses):
            yield f"node {other.node}, which has a fence"
    for network in case.options.protected:
        if _overlaps(fence, network):
            yield f"{network} of protected_addresses"


def check_ledgers(case: FenceCase, method: str) -> None:
    """No address is in the fence of another node too.

    What two fences share would go with the one that is released first.
    """
    # Ceph counts nothing: an entry that two fences need is gone with the first removal.
    mine = set(case.source) - set(case.known.addresses if case.known else ())
    for other in case.state.ledgers:
        theirs = set(other.addresses)
        shared = sorted(mine & theirs)
        shared += sorted(
            set().union(*(covered(found, mine - theirs) for found in other.network_fences))
        )
        if shared and method != "none":
            case.reasons.append(
                Reason(
                    "fence_shared",
                    f"{few(shared)} is in the ledger of node {other.node} too (phase "
                    f"{other.phase}), and would go when that is given back: give {other.node} "
                    f"back first; if both reach Ceph from one address (NAT), {POWER}",
                )
            )


def _overlaps(fence: NetworkFence, network: Network) -> bool:
    """A range of the NetworkFence and the network have an address in common."""
    # Of two ranges that overlap one contains the other, since their sizes are powers of two.
    return any(
        other.version == network.version
        and (other.network_address in network or network.network_address in other)
        for other in networks(fence.cidrs)
    )
