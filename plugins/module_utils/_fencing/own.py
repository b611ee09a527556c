# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of the lost node's own volumes and addresses besides what it says itself, and
whose a NetworkFence is. Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._core.ip import Network
from .._fences.ceph_reading import Image
from .._fences.network_fence import NetworkFence, networks
from .._fences.state import NodeState
from .lost import is_present
from .options import FenceOptions


def held_volumes(state: NodeState) -> set[str]:
    """The volumes that this node has, or had when it was fenced."""
    return {found.name for found in state.held} | set(state.ledger.volumes if state.ledger else ())


def noted_addresses(state: NodeState, images: Iterable[Image], node: str) -> set[str]:
    """What ceph-csi noted of this node, on the images of volumes that it has, or had when it was
    fenced.
    """
    # ceph-csi writes the note when it stages the image (.rbd.csi.ceph.com/clientAddress/NODE, in
    # its design proposal "Non graceful node shutdown"), so the note outlasts the watch of a client
    # that hangs; and the node's address, where another node has the image since.
    held = held_volumes(state)
    return {
        found.address
        for image in images
        if image.volume in held
        for found in image.client_addresses
        if found.node == node
    }


def confirmed_addresses(
    state: NodeState, images: Iterable[Image], options: FenceOptions
) -> set[str]:
    """The addresses that are this node's by another source than the node itself.

    A kubelet that was taken over can write any address into its own node's status, and so have
    another node fenced; NodeRestriction does not check addresses
    (plugin/pkg/admission/noderestriction/admission.go).
    """
    ledger = state.ledger
    return {
        *noted_addresses(state, images, options.node),
        *given_addresses(state, options),
        *(ledger.addresses if ledger and is_present(state, ledger) else ()),
    }


def blocked_addresses(state: NodeState, options: FenceOptions) -> set[str]:
    """The addresses of the current fence that Ceph blocks already. To block them again hits no
    other client.
    """
    # A run that did not end may have blocked nothing, and what was blocked may have been removed.
    # Then the address may be another host's by now.
    ledger, reading = state.ledger, options.reading
    if ledger is None or reading is None or not is_present(state, ledger):
        return set()
    return {address for address in ledger.addresses if reading.covering(address)}


def given_addresses(state: NodeState, options: FenceOptions) -> set[str]:
    """The addresses that the user calls this node's."""
    mine = fences_for(state, options.node)
    return {*options.fence_addresses, *singles(fence for fence in mine if fence.by_user)}


def fences_for(state: NodeState, node: str) -> list[NetworkFence]:
    """The NetworkFences that were prepared for a node, by their names."""
    names = _fence_names(node)
    return [fence for fence in state.fences or () if fence.name in names]


def fences_of_others(state: NodeState) -> list[tuple[str, NetworkFence]]:
    """The NetworkFences that were prepared for other nodes, each with its node."""
    # The name is the link between a NetworkFence and its node: the object itself has no reference
    # to one. Looked through once: each node of a large cluster may have one.
    named: dict[str, list[NetworkFence]] = {}
    for fence in state.fences or ():
        named.setdefault(fence.name, []).append(fence)
    return [
        (other.node.name, fence)
        for other in state.others
        for name in _fence_names(other.node.name)
        for fence in named.get(name, ())
    ]


def _fence_names(node: str) -> tuple[str, str]:
    """What a NetworkFence may be called that was prepared for a node."""
    # Early releases of Rook name a NetworkFence after its node; later ones put driver and namespace
    # behind (fenceResourceName of pkg/operator/ceph/cluster/watcher.go, which 1.20 removed). Ours
    # have a prefix, so that the two never write the same object.
    return node, f"storage-ops-{node}"


def singles(fences: Iterable[NetworkFence]) -> list[str]:
    """The addresses of NetworkFences, without their ranges of several."""
    return [
        str(network.network_address)
        for fence in fences
        for network in networks(fence.cidrs)
        if is_single(network)
    ]


def is_single(network: Network) -> bool:
    """A network of one address."""
    return network.num_addresses == 1
