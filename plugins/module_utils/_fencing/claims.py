# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom else might a fence of an address hit? Pure: no I/O here.

What is known here is what others say of themselves, or what is likely: each node can say of any
address that it is its own. So it refuses a fence, or spares an address. That a client is not the
lost node's, only ``proven.py`` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .._fences.ceph_reading import Image
from .._fences.network_fence import covered
from .._fences.state import HostRecord, NodeState
from .options import FenceOptions
from .own import (
    blocked_addresses,
    fences_of_others,
    given_addresses,
    held_volumes,
    noted_addresses,
    singles,
)
from .proven import Proven, is_other


class Claim(NamedTuple):
    """The node that an address may belong to, and how a message calls it. It proves nothing.

    ``only_says``: the node says so itself, and the user may say otherwise.
    """

    node: str
    title: str
    only_says: bool = False

    @property
    def advice(self) -> str:
        """What to do where the address is not the owner's; empty where the user's word is none."""
        if not self.only_says:
            return ""
        return (
            f". Only node {self.node} itself says so: if the address is not its own, name it in "
            "fence_addresses, which outweighs what a node says of itself"
        )

    def __str__(self) -> str:
        return self.title


def claims_of(
    state: NodeState,
    images: Iterable[Image],
    options: FenceOptions,
    proven: Mapping[str, Proven],
) -> dict[str, Claim]:
    """By address, what speaks for another client there than this node.

    Four sources, of which the first that names an address counts: the status of the other nodes,
    the NetworkFences that were prepared for them, what ceph-csi noted when they staged an image,
    and who has an image open that this node has no reason to open.
    """
    images = tuple(images)
    known = given_addresses(state, options) | blocked_addresses(state, options)
    confirmed = known | noted_addresses(state, images, options.node)
    # A dictionary keeps the first position and takes the last value, so the weakest goes in first.
    named = {
        **_by_notes(state, images, confirmed),
        **_by_fences(state, options),
        **_by_status(state),
    }
    return {**_by_open_images(state, images, options, confirmed, proven), **named}


def _by_status(state: NodeState) -> dict[str, Claim]:
    # What this node's own status says takes no address from another node: its kubelet writes it.
    return {
        address: Claim(other.node.name, f"node {_node_title(other)}")
        for other in state.others
        for address in other.addresses
    }


def _by_fences(state: NodeState, options: FenceOptions) -> dict[str, Claim]:
    """By the NetworkFences that are named for another node.

    What that node says of itself takes no address from this one that the user gives to it.
    """
    claims: dict[str, Claim] = {}
    mine = state.host.addresses if state.host else ()
    given = given_addresses(state, options)
    for node, fence in fences_of_others(state):
        title = f"node {node} (by NetworkFence {fence.name})"
        # A range says which addresses it hits, but not which of them its node has. That it covers
        # one of this node's is enough to leave that one alone.
        for address in [*singles([fence]), *covered(fence, mine)]:
            if not (fence.by_node and address in given):
                claims.setdefault(address, Claim(node, title, fence.by_node))
    return claims


def _by_notes(state: NodeState, images: Iterable[Image], confirmed: set[str]) -> dict[str, Claim]:
    """By the address that ceph-csi noted on an image when a node staged it."""
    claims: dict[str, Claim] = {}
    mine = state.host.addresses if state.host else ()
    there = {other.node.name for other in state.others}
    for image in images:
        for found in image.client_addresses:
            # A note outlives its node, and its node's address.
            if found.node in there and not (found.address in mine and found.address in confirmed):
                claims.setdefault(
                    found.address,
                    Claim(found.node, f"node {found.node} (noted by ceph-csi on {image.title})"),
                )
    return claims


def _by_open_images(
    state: NodeState,
    images: tuple[Image, ...],
    options: FenceOptions,
    confirmed: set[str],
    proven: Mapping[str, Proven],
) -> dict[str, Claim]:
    """By the watchers of images that this node has no reason to open; the node is unknown."""
    # Who has an image open that this node has no business with is most likely another node, or a
    # host that is none; a fence would take its storage away.
    claims: dict[str, Claim] = {}
    confirmed = confirmed - _only_noted(state, images, options)
    for image in _images_of_others(state, images):
        known = confirmed | own_beside_others(state, images, proven, image.volume)
        for watcher in image.watchers:
            if watcher.address not in known and not is_other(watcher, options):
                title = (
                    f"{watcher.title}, which has {image.title} open, an image that is not attached "
                    f"to node {options.node}"
                )
                claims.setdefault(watcher.address, Claim("", title))
    return claims


def _only_noted(state: NodeState, images: tuple[Image, ...], options: FenceOptions) -> set[str]:
    """The addresses that a note of ceph-csi alone calls this node's, and where Ceph shows no client
    of an image that this node has.

    The note is as old as the last time that the node staged the image, and the address may be
    another host's by now.
    """
    held = held_volumes(state)
    mine = [image for image in images if image.volume in held]
    seen = {watcher.address for image in mine for watcher in image.watchers}
    seen |= {lock.address for image in mine for lock in image.locks}
    known = given_addresses(state, options) | blocked_addresses(state, options)
    return noted_addresses(state, images, options.node) - seen - known


def _moved_volumes(state: NodeState) -> set[str]:
    """The volumes that only this node's pods or its kubelet say are used here, and that are
    attached to another node.

    Kubernetes detaches a lost node's volumes by force, so this node's client may still have them
    open. But a kubelet writes what it uses (status.volumesInUse) as it likes, so whoever has one of
    them open may as well be the node that it is attached to.
    """
    # A volume that is attached here, by a VolumeAttachment, is no such case: the attach/detach
    # controller makes those, and a kubelet may only read them (NodeAuthorizer,
    # plugin/pkg/auth/authorizer/node).
    return {found.name for found in state.used if not found.attachment.name and found.elsewhere}


def own_beside_others(
    state: NodeState, images: tuple[Image, ...], proven: Mapping[str, Proven], volume: str
) -> set[str]:
    """The addresses at which a client of a volume that is attached to other nodes is this node's,
    not theirs. Empty for a volume that is attached to no other.

    An address is this node's where it has an image open, or its lock, whose volume is attached to
    this node and to no other: no kubelet writes a VolumeAttachment. Where Ceph sees each of the
    other nodes at an address that is proven to be theirs, this node's own addresses count too.
    """
    # volumesInUse and the addresses are claims of the kubelet alone (NodeStatus in
    # k8s.io/api/core/v1 types.go); attachments and Ceph's watchers are not.
    nodes = {
        attachment.node
        for found in state.held
        if found.name == volume
        for attachment in found.elsewhere
    }
    if not nodes:
        return set()
    own = _own_clients(state, images)
    at_ceph = {watcher.address for image in images for watcher in image.watchers}
    seen = {proven[address].node for address in at_ceph if address in proven}
    if state.host and nodes <= seen:
        own |= set(state.host.addresses)
    return own


def _own_clients(state: NodeState, images: tuple[Image, ...]) -> set[str]:
    """The addresses that hold an image, or its lock, whose volume is attached here alone."""
    here = {found.name for found in state.attached if found.attachment.name and not found.elsewhere}
    mine = [image for image in images if image.volume in here]
    return {
        *(watcher.address for image in mine for watcher in image.watchers if watcher.persistent),
        *(lock.address for image in mine for lock in image.locks),
    }


def _images_of_others(state: NodeState, images: Iterable[Image]) -> list[Image]:
    """The images of volumes that this node neither has nor had when it was fenced, and of those
    that have moved.
    """
    held = {found.name for found in state.held} - _moved_volumes(state)
    held |= set(state.ledger.volumes if state.ledger else ())
    return [image for image in images if image.volume and image.volume not in held]


def _node_title(host: HostRecord) -> str:
    return f"{host.node.name} ({'Ready' if host.node.ready == 'True' else 'not Ready'})"
