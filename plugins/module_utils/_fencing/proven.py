# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose client is at an address for certain, if it is not this node's? Pure: no I/O here.

Only this lets a client pass. So it takes nothing that a node says of itself or of another one: not
its status, nor what its driver reports, nor a note of ceph-csi, which each node's key can write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from .._fences.ceph_reading import Image, Watcher
from .._fences.state import NodeState
from .options import FenceOptions
from .own import confirmed_addresses, fences_of_others, given_addresses, held_volumes, singles
from .recorded import seen_at


class Proven(NamedTuple):
    """The node that an address belongs to, as it is proven. Not to be mixed with a Claim."""

    node: str


def is_other(watcher: Watcher, options: FenceOptions) -> bool:
    """It is known to be no node's client: rbd-mirror, or what the user says is another host."""
    # rbd-mirror opens every image that it replicates (src/tools/rbd_mirror), as a backup host does
    # for a while.
    return watcher.mirror or watcher.address in options.other_addresses


def proven_of(
    state: NodeState, images: Iterable[Image], options: FenceOptions
) -> dict[str, Proven]:
    """By address, the other node that it belongs to.

    By a NetworkFence with the addresses that the user gave for that node; by the record of its
    present boot; or because Ceph shows a client there that has an image open which is attached to
    that node alone.
    """
    images = tuple(images)
    fsid = options.reading.fsid if options.reading else ""
    seen: dict[str, set[str]] = defaultdict(set)
    for node, address in [*seen_at(state, fsid), *_by_attachment(state, images, options)]:
        seen[address].add(node)
    doubted = _seen_alone(state, images) | confirmed_addresses(state, images, options)
    found = {address: only_node(address, nodes, doubted) for address, nodes in seen.items()}
    return {
        **{address: proven for address, proven in found.items() if proven},
        **_by_user(state, options),
    }


def only_node(address: str, nodes: set[str], doubted: set[str]) -> Proven | None:
    """The node that has the address, by all that was seen. ``doubted``: what speaks for the lost
    node.
    """
    # Behind NAT all nodes have one address, and so may the lost one.
    if len(nodes) != 1 or address in doubted:
        return None
    return Proven(min(nodes))


def _by_user(state: NodeState, options: FenceOptions) -> dict[str, Proven]:
    mine = given_addresses(state, options)
    return {
        address: Proven(node)
        for node, fence in fences_of_others(state)
        if fence.by_user
        for address in singles([fence])
        if address not in mine
    }


def _by_attachment(
    state: NodeState, images: tuple[Image, ...], options: FenceOptions
) -> list[tuple[str, str]]:
    """Each other node at the one address at which Ceph shows all that is attached to it alone."""
    found: dict[str, set[str]] = defaultdict(set)
    before = held_volumes(state).union(*(ledger.volumes for ledger in state.ledgers))
    for image in images:
        node = alone_on(image.volume, state, before)
        if node:
            found[node] |= shown_at(image, options) or set()
    return [(node, min(several)) for node, several in found.items() if len(several) == 1]


def alone_on(volume: str, state: NodeState, before: set[str]) -> str | None:
    """The other node that alone has the volume, and had it while the lost one was not silent yet.

    ``before``: what the lost node had, or another one that was fenced.
    """
    # Kubernetes detaches a silent node's volumes by force, and then its client may have them open
    # still, at its own address.
    at, since = state.single.get(volume), state.host.node.silent_since if state.host else None
    if at is None or volume in before:
        return None
    if at.created is None or since is None or at.created >= since:
        return None
    return at.node


def shown_at(image: Image, options: FenceOptions) -> set[str] | None:
    """The addresses of who has the image open, or a lock; None where that may be no node."""
    watchers = [found for found in image.watchers if not is_other(found, options)]
    if image.problem or not watchers:
        return None
    # A node has it open with one cookie as long as a pod uses it. Who comes and goes, or does not
    # use the kernel's client, may be a tool.
    if not all(found.persistent and found.is_kernel for found in watchers):
        return None
    locks = {lock.address for lock in image.locks} - {*options.other_addresses}
    return {found.address for found in watchers} | locks


def _seen_alone(state: NodeState, images: tuple[Image, ...]) -> set[str]:
    """Where Ceph shows any client of what is attached to this node alone."""
    # No other node can have that, so it is this node, perhaps with a bad connection, or a tool.
    alone = {found.name for found in state.attached if not found.elsewhere}
    mine = [image for image in images if image.volume in alone]
    return {
        *(watcher.address for image in mine for watcher in image.watchers),
        *(lock.address for image in mine for lock in image.locks),
    }
