# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose is an address, if it is not this node's? Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from .._core.ip import Network
from .._fences.ceph_reading import Image, Watcher
from .._fences.network_fence import NetworkFence, covered, networks
from .._fences.state import HostRecord, NodeState
from .lost import is_present
from .options import FenceOptions


class Owner(NamedTuple):
    """The node that an address belongs to, and how a message calls it.

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


def is_other(watcher: Watcher, options: FenceOptions) -> bool:
    """It is known to be no node's client: rbd-mirror, or what the user says is another host."""
    # rbd-mirror opens every image that it replicates (src/tools/rbd_mirror), as a backup host does
    # for a while.
    return watcher.mirror or watcher.address in options.other_addresses


def owners_of(state: NodeState, images: Iterable[Image], options: FenceOptions) -> dict[str, Owner]:
    """The owner of each address that is known to belong to another client than this node.

    Four sources, of which the first that names an address counts: the status of the other nodes,
    the NetworkFences that were prepared for them, what ceph-csi noted when they staged an image,
    and who has an image open that this node has no reason to open.
    """
    images = tuple(images)
    confirmed = _confirmed(state, images, options)
    # A dictionary keeps the first position and takes the last value, so the weakest goes in first.
    named = {
        **_by_notes(state, images, confirmed),
        **_by_fences(state, options),
        **_by_status(state),
    }
    return {**_by_open_images(state, images, options, confirmed, named), **named}


def _by_status(state: NodeState) -> dict[str, Owner]:
    # What this node's own status says takes no address from another node: its kubelet writes it.
    return {
        address: Owner(other.node.name, f"node {_node_title(other)}")
        for other in state.others
        for address in other.addresses
    }


def _by_fences(state: NodeState, options: FenceOptions) -> dict[str, Owner]:
    """By the NetworkFences that are named for another node.

    What that node says of itself takes no address from this one that the user gives to it.
    """
    # The name is the link between a NetworkFence and its node: the object itself has no reference
    # to one.
    owners: dict[str, Owner] = {}
    mine = state.host.addresses if state.host else ()
    given = _given(state, options)
    # Looked through once: each node of a large cluster may have one.
    named: dict[str, list[NetworkFence]] = {}
    for fence in state.fences or ():
        named.setdefault(fence.name, []).append(fence)
    for other in state.others:
        theirs = [named.get(name, ()) for name in _fence_names(other.node.name)]
        for fence in chain(*theirs):
            single = singles([fence])
            # A range says which addresses it hits, but not which of them its node has. That it
            # covers one of this node's is enough to leave that one alone.
            for address in [*single, *covered(fence, mine)]:
                title = f"node {other.node.name} (by NetworkFence {fence.name})"
                if not (fence.by_node and address in given):
                    owners.setdefault(address, Owner(other.node.name, title, fence.by_node))
    return owners


def _by_notes(state: NodeState, images: Iterable[Image], confirmed: set[str]) -> dict[str, Owner]:
    """By the address that ceph-csi noted on an image when a node staged it."""
    owners: dict[str, Owner] = {}
    mine = state.host.addresses if state.host else ()
    there = {other.node.name for other in state.others}
    for image in images:
        for found in image.client_addresses:
            # A note outlives its node, and its node's address.
            if found.node in there and not (found.address in mine and found.address in confirmed):
                owners.setdefault(
                    found.address,
                    Owner(found.node, f"node {found.node} (noted by ceph-csi on {image.title})"),
                )
    return owners


def _by_open_images(
    state: NodeState,
    images: tuple[Image, ...],
    options: FenceOptions,
    confirmed: set[str],
    named: Mapping[str, Owner],
) -> dict[str, Owner]:
    """By the watchers of images that this node has no reason to open; the node is unknown."""
    # Who has an image open that this node has no business with is most likely another node, or a
    # host that is none; a fence would take its storage away.
    owners: dict[str, Owner] = {}
    confirmed = confirmed - _only_noted(state, images, options)
    for image in _images_of_others(state, images):
        known = confirmed | own_beside_others(state, images, named, image.volume)
        for watcher in image.watchers:
            if watcher.address not in known and not is_other(watcher, options):
                title = (
                    f"{watcher.title}, which has {image.title} open, an image that is not attached "
                    f"to node {options.node}"
                )
                owners.setdefault(watcher.address, Owner("", title))
    return owners


def _only_noted(state: NodeState, images: tuple[Image, ...], options: FenceOptions) -> set[str]:
    """The addresses that a note of ceph-csi alone calls this node's, and where Ceph shows no client
    of an image that this node has.

    The note is as old as the last time that the node staged the image, and the address may be
    another host's by now.
    """
    held = _held(state)
    mine = [image for image in images if image.volume in held]
    seen = {watcher.address for image in mine for watcher in image.watchers}
    seen |= {lock.address for image in mine for lock in image.locks}
    ledger = state.ledger
    fenced = ledger.addresses if ledger and is_present(state, ledger) else ()
    noted = noted_addresses(state, images, options.node)
    return noted - seen - _given(state, options) - set(fenced)


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
    state: NodeState, images: tuple[Image, ...], named: Mapping[str, Owner], volume: str
) -> set[str]:
    """The addresses at which a client of a volume that is attached to other nodes is this node's,
    not theirs. Empty for a volume that is attached to no other.

    An address is this node's where it has an image open, or its lock, whose volume is attached to
    this node and to no other: no kubelet writes a VolumeAttachment. Where Ceph sees each of the
    other nodes at an address that is known to be theirs, this node's own addresses count too.
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
    seen = {named[address].node for address in at_ceph if address in named}
    if state.host and nodes <= seen:
        own |= set(state.host.addresses)
    return own


def noted_addresses(state: NodeState, images: Iterable[Image], node: str) -> set[str]:
    """What ceph-csi noted of this node, on the images of volumes that it has, or had when it was
    fenced.
    """
    # ceph-csi writes the note when it stages the image (.rbd.csi.ceph.com/clientAddress/NODE, in
    # its design proposal "Non graceful node shutdown"), so the note outlasts the watch of a client
    # that hangs; and the node's address, where another node has the image since.
    held = _held(state)
    return {
        found.address
        for image in images
        if image.volume in held
        for found in image.client_addresses
        if found.node == node
    }


def _held(state: NodeState) -> set[str]:
    """The volumes that this node has, or had when it was fenced."""
    return {found.name for found in state.held} | set(state.ledger.volumes if state.ledger else ())


def _own_clients(state: NodeState, images: tuple[Image, ...]) -> set[str]:
    """The addresses that hold an image, or its lock, whose volume is attached here alone."""
    here = {found.name for found in state.attached if found.attachment.name and not found.elsewhere}
    mine = [image for image in images if image.volume in here]
    return {
        *(watcher.address for image in mine for watcher in image.watchers if watcher.persistent),
        *(lock.address for image in mine for lock in image.locks),
    }


def _confirmed(state: NodeState, images: Iterable[Image], options: FenceOptions) -> set[str]:
    """The addresses that are this node's by another source than the node itself.

    A kubelet that was taken over can write any address into its own node's status, and so have
    another node fenced; NodeRestriction does not check addresses
    (plugin/pkg/admission/noderestriction/admission.go).
    """
    ledger = state.ledger
    return {
        *noted_addresses(state, images, options.node),
        *_given(state, options),
        *(ledger.addresses if ledger and is_present(state, ledger) else ()),
    }


def _given(state: NodeState, options: FenceOptions) -> set[str]:
    """The addresses that the user calls this node's."""
    mine = fences_for(state, options.node)
    return {*options.fence_addresses, *singles(fence for fence in mine if fence.by_user)}


def _images_of_others(state: NodeState, images: Iterable[Image]) -> list[Image]:
    """The images of volumes that this node neither has nor had when it was fenced, and of those
    that have moved.
    """
    held = {found.name for found in state.held} - _moved_volumes(state)
    held |= set(state.ledger.volumes if state.ledger else ())
    return [image for image in images if image.volume and image.volume not in held]


def fences_for(state: NodeState, node: str) -> list[NetworkFence]:
    """The NetworkFences that were prepared for a node, by their names."""
    names = _fence_names(node)
    return [fence for fence in state.fences or () if fence.name in names]


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


def _node_title(host: HostRecord) -> str:
    return f"{host.node.name} ({'Ready' if host.node.ready == 'True' else 'not Ready'})"
