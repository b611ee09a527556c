# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From which addresses does the node reach Ceph, and may they be fenced? Pure: no I/O here.

It begins with what Ceph saw, not with what Kubernetes calls the node: the clients that hold its
images for the whole of several observations, the owners of locks, what ceph-csi noted, or what the
user knows. A client at an address that no source calls the node's is an unknown client, however
many of its images it holds: rbd-mirror holds all of a pool's.
"""

from __future__ import annotations

from ipaddress import ip_address

from .._core.codes import Reason
from .._core.untrusted import few
from .._fences.ceph_reading import Image
from .case import Doubt, FenceCase, Holder
from .claims import Claim, own_beside_others
from .evidence import check_length
from .proven import is_other

# What to do about a client whose owner is unknown.
_FIND_OUT = (
    "Find out whose it is: if it is this node's, name it in fence_addresses; if it belongs to a "
    "host that is not a node, such as a backup host, in other_addresses"
)


def find_addresses(case: FenceCase) -> None:
    """Find the addresses that are fenced for certain, and refuse what contradicts them.

    By image: who holds it or has a lock on it, else what ceph-csi noted; and in any case what the
    user says.
    """
    # Whoever is fenced by mistake loses its storage at once, and whoever is missed goes on writing.
    # So a contradiction is refused, and never resolved by a guess.
    known = case.known
    case.holders = [found for image in case.images for found in _holders(case, image)]
    # The sources besides the node itself; ``mine`` has what its kubelet says as well, and ``said``
    # what its driver has reported.
    told = {*case.noted, *case.options.fence_addresses, *case.prepared()}
    certain = told.union(known.addresses if known else ())
    # A record tells where the node was, and so does a fence that was only intended. So they keep
    # strangers out, but do not tell this node from another one that has the volume too.
    recorded = set(case.by_record())
    mine = certain | recorded | set(case.own)
    said = mine | set(case.reported())
    others = sorted(mine & set(case.options.other_addresses))
    if others:
        case.reasons.append(
            Reason(
                "bad_option",
                f"other_addresses has {', '.join(others)}, which is an address of node "
                f"{case.options.node}: it is for hosts that are not",
            )
        )
    if case.options.node_confirmed_off:
        _check_off(case, said | set(case.recorded.address))
    for holder in case.holders:
        if _is_of_volume(case, holder, said):
            _doubt_tool(case, holder)
        else:
            _check_holder(case, holder, told)
    counting = _counting(case)
    # What the status or a driver says beside what Ceph shows contradicts nothing: the status is
    # about Kubernetes' network, and any node can write what a driver reports.
    _check_strangers(case, counting, said, bool(certain | recorded))
    _check_claims(case, _without_tools(case, counting, said), certain)
    _check_record(case, counting, said)
    _collect_sources(case)
    # An address that is added to a fence needs the same evidence as a new fence.
    if known and (case.holders or set(case.source) - set(known.addresses)):
        check_length(case)


def _collect_sources(case: FenceCase) -> None:
    """Fill ``source``, the strongest evidence first: an address keeps the first source.

    That an address is on the blocklist is none. An entry says that it is blocked, not that Ceph
    sees the node there: it may be left from long ago, or be about another network than Ceph's.
    """
    known = case.known
    if known:
        case.source.update(
            {address: known.source.get(address, "ledger") for address in known.addresses}
        )
    for holder in case.holders:
        if not _is_doubted(case, holder):
            case.source.setdefault(holder.address, holder.how)
    for address in _only_noted(case):
        case.source.setdefault(address, "metadata")
    for address in case.options.fence_addresses:
        case.source.setdefault(address, "fence_addresses")
    for address in case.by_record():
        case.source.setdefault(address, "record")
    if not case.source:
        case.source.update(dict.fromkeys(case.prepared(), "network_fence"))


def _only_noted(case: FenceCase) -> list[str]:
    """What ceph-csi noted of this node on images of which Ceph shows no client.

    Of the others the note may be an older one.
    """
    # What hangs has no watch any more, and then the note is all there is.
    return [
        found.address
        for image in case.images
        if not case.clients(image)
        for found in image.client_addresses
        if found.node == case.options.node
    ]


def _holders(case: FenceCase, image: Image) -> list[Holder]:
    """The clients of an image, without those that the ledger has already, and without another node
    that has the volume by right.
    """
    # Where the volume is attached to another node, too, the ledger tells whose client it is only if
    # that cannot be the other one's, which would be blocked.
    elsewhere = bool(case.volume_of(image).elsewhere)
    return [
        holder
        for holder in case.clients(image)
        if not (holder.address in case.proven_at if elsewhere else case.has(holder.address))
        and not case.is_elsewhere(image, case.proven.get(holder.address))
    ]


def _check_off(case: FenceCase, mine: set[str]) -> None:
    """Nothing that is seen contradicts that the node is off."""
    alive = [
        f"{holder.title} on {holder.image.title}"
        for holder in case.holders
        if holder.how == "watcher"
    ]
    # At an address of the node, one look is enough to doubt that it is off.
    alive += [
        f"{watcher.title} on {image.title}"
        for image in case.images
        for watcher in image.watchers
        if not watcher.persistent
        and watcher.address in mine
        and not is_other(watcher, case.options)
    ]
    if alive:
        # 30 s is osd_client_watch_timeout (src/common/options/mds-client.yaml.in).
        case.reasons.append(
            Reason(
                "evidence_contradicts",
                f"node {case.options.node} is said to be off (node_confirmed_off), but its "
                f"images are held: {few(alive)}. A node that is off has no image open "
                "after 30 s, so it is not off, or another client holds them: find out who, and "
                "fence "
                "without node_confirmed_off",
            )
        )


def _is_of_volume(case: FenceCase, holder: Holder, mine: set[str]) -> bool:
    """It has open what only this node has, as no node does: so it says nothing of other volumes."""
    # Who copies a volume, or gives back its space, does so by librbd for as long as that takes, and
    # any tenant may ask for it. At one of the node's addresses it would be fenced.
    volume = case.volume_of(holder.image)
    theirs = [
        found
        for found in case.holders
        if found.how == "watcher"
        and (found.image.title, found.entry) == (holder.image.title, holder.entry)
    ]
    return (
        bool(theirs)
        and not any(found.is_node for found in theirs)
        and holder.address not in mine
        and bool(volume.attachment.name)
        and not volume.elsewhere
    )


def _doubt_tool(case: FenceCase, holder: Holder) -> None:
    owner = case.claims.get(holder.address)
    reason = (
        _shared(holder, owner)
        if owner
        else Reason(
            "client_unknown",
            f"{holder.title} {holder.does} of {holder.image.volume} by librbd, as no node has it, "
            f"at an address that no source lists as this node's. {_FIND_OUT}; or run again once it "
            "has ended",
        )
    )
    case.doubts.append(Doubt(holder.image.volume, holder.address, reason))


def _check_holder(case: FenceCase, holder: Holder, certain: set[str]) -> None:
    """Who holds an image is not another node, and cannot be one."""
    what = f"{holder.title} {holder.does} of {holder.image.volume}"
    owner = case.claims.get(holder.address)
    elsewhere = [found.node for found in case.volume_of(holder.image).elsewhere]
    own = own_beside_others(case.state, case.all_images, case.proven, holder.image.volume)
    # It may have the volume by right, but only says itself that this is its address.
    may_have = case.is_elsewhere(holder.image, owner)
    if owner and owner.node and not may_have:
        case.reasons.append(_shared(holder, owner))
    elif elsewhere and holder.address not in certain | own:
        # A run that is late would otherwise fence the node to which the volume has moved. So would
        # a kubelet that says that its node uses what another one has, or has an address of it.
        claimed = f" (that it is {owner}'s is not proven)" if may_have else ""
        reason = Reason(
            "client_unknown",
            f"{what}, but the volume is attached to {few(elsewhere)} too, and it is "
            f"unknown whose address {holder.address} is{claimed}. If it is {case.options.node}'s, "
            "name it in fence_addresses; if it is that other node's, in other_addresses. For the "
            "next time, record the nodes while they are healthy "
            "(storage_ops.runbooks.record_ceph_clients)",
        )
        case.doubts.append(Doubt(holder.image.volume, holder.address, reason))
    elif owner:
        case.reasons.append(_shared(holder, owner))


def _shared(holder: Holder, owner: Claim) -> Reason:
    return Reason(
        "fence_shared",
        f"{holder.title} {holder.does} of {holder.image.volume}, and its address {holder.address} "
        f"belongs to {owner}, which a fence would hit: find out what uses the image there"
        f"{owner.advice}",
    )


def _counting(case: FenceCase) -> list[Holder]:
    """The holders for whom something would be fenced."""
    # A node that is off leaves its locks behind; with method none nothing is fenced for them.
    method = (
        case.known.method if case.known and case.options.method == "auto" else case.options.method
    )
    is_none = case.options.node_confirmed_off and method == "none"
    return [found for found in case.holders if not (is_none and found.how == "lock")]


def _without_tools(case: FenceCase, counting: list[Holder], said: set[str]) -> list[Holder]:
    return [found for found in counting if not _is_of_volume(case, found, said)]


def _check_claims(case: FenceCase, counting: list[Holder], certain: set[str]) -> None:
    """No address of several is the node's by its own word alone.

    Where several addresses hold its images, one may belong to a host that is no node, as for
    backups. The status of the node is written by its kubelet, and its driver runs on it.
    """
    # NodeRestriction lets a kubelet write any address into the status of its own Node.
    words = {*case.own, *case.reported()} - certain
    claimed = sorted({found.address for found in counting} & words)
    if claimed and len({found.address for found in counting}) > 1:
        case.reasons.append(
            Reason(
                "client_unknown",
                f"several addresses hold what is attached to node {case.options.node}, and "
                f"only node {case.options.node} itself (its kubelet, or the driver on it) says "
                f"that {few(claimed)} is its own. Who is where: {_seen(counting)}. "
                f"{_FIND_OUT}",
            )
        )


def _check_strangers(
    case: FenceCase, counting: list[Holder], mine: set[str], is_certain: bool
) -> None:
    """No client is taken for the node at an address that no source calls the node's."""
    # If other evidence names the node's addresses, a client at yet another one is rather a
    # stranger.
    strange = {
        found.address: found
        for found in counting
        if found.address not in mine
        # What is claimed by another is refused already, by _check_holder.
        and found.address not in case.claims
        and not _is_doubted(case, found)
    }
    if strange and (is_certain or not _is_agreed(case, set(strange))):
        who = few(found.title for found in strange.values())
        case.reasons.append(
            Reason(
                "client_unknown",
                f"{who} holds what is attached to node {case.options.node}, at an address that "
                "no source lists as this node's (known: "
                f"{few(sorted(mine)) or 'none'}). Who is where: {_seen(counting)}. "
                f"{_FIND_OUT}",
            )
        )


def _check_record(case: FenceCase, counting: list[Holder], said: set[str]) -> None:
    """What Ceph showed in an earlier night, and what there is now, name one address."""
    # Either the node has several addresses, of which each source knows one, or one of them is
    # another host's by now. Both are for a person to find out.
    recorded = set(case.by_record())
    if not recorded:
        return
    # At any other address a client is a stranger, which is refused anyway.
    seen = {
        found.address
        for found in counting
        if found.address in said and not _is_doubted(case, found)
    }
    told = {
        "Ceph shows its client at": seen - recorded,
        "ceph-csi noted": case.noted - recorded,
        "its NetworkFence has, from the user,": {
            # With the recorded one among them the user knows of it.
            address
            for address in case.prepared()
            if not recorded & set(case.prepared())
        },
    }
    differing = [f"{who} {few(sorted(them))}" for who, them in told.items() if them]
    if differing:
        case.reasons.append(
            Reason(
                "evidence_contradicts",
                f"it is recorded that node {case.options.node} reaches Ceph from "
                f"{few(recorded)}, but {', and '.join(differing)}: find out which of them are its "
                "own, and name all of these in fence_addresses",
            )
        )


def _is_doubted(case: FenceCase, holder: Holder) -> bool:
    """Whose client this one is, is a question about its volume alone."""
    return any(
        (found.volume, found.address) == (holder.image.volume, holder.address)
        for found in case.doubts
    )


def _seen(holders: list[Holder]) -> str:
    return few((f"{found.title} {found.does}" for found in holders), "; ")


def _is_agreed(case: FenceCase, addresses: set[str]) -> bool:
    """All that is seen of the node's images is at this one address, where the owner of a lock
    has its image open too, and each client watches as a node does.

    Who has the lock is who writes, and no other node may: none of the volumes is attached
    elsewhere.
    """
    # Who provisions volumes, resizes them or gives back their space opens images by librbd, takes
    # their lock as well, and stays for as long as that takes; its address is that of a pod.
    # With the feature exclusive-lock, librbd (src/librbd/ExclusiveLock.h) and the kernel
    # (rbd_img_exclusive_lock of drivers/block/rbd.c) take the lock before they write.
    watchers = [holder for holder in case.holders if holder.how == "watcher"]
    watching = {(holder.image.title, holder.entry) for holder in watchers}
    locked = {(holder.image.title, holder.entry) for holder in case.holders if holder.how == "lock"}
    return (
        len(addresses) == 1
        and bool(watching & locked)
        and all(holder.is_node for holder in watchers)
        and all(holder.address in addresses for holder in case.holders)
        and all(found.attachment.name and not found.elsewhere for found in case.rbd)
    )


def check_addresses(case: FenceCase) -> None:
    """No address is another client's, or protected, or left from a fence of another node."""
    # protected_addresses is the user's list of what must keep its storage, as monitors or gateways.
    for address, source in case.source.items():
        owner = case.claims.get(address)
        recorded = case.recorded.others.get(address)
        if recorded and address not in case.blocked:
            case.reasons.append(
                Reason(
                    "fence_shared",
                    f"address {address} ({source}) is recorded of {recorded} too, which a fence "
                    "would hit: find out which of them has it, and record again "
                    "(storage_ops.runbooks.record_ceph_clients) if it is not that one's any more",
                )
            )
        if owner:
            case.reasons.append(
                Reason(
                    "fence_shared",
                    f"address {address} ({source}) belongs to {owner} too, which a fence would "
                    f"hit: find out which of them Ceph sees there{owner.advice}",
                )
            )
        if any(ip_address(address) in network for network in case.options.protected):
            case.reasons.append(
                Reason(
                    "address_protected",
                    f"address {address} ({source}) is one of "
                    "protected_addresses, which are never fenced",
                )
            )
    # Addresses are given out again: what was the lost node's may be a healthy one's now.
    for left in case.left():
        owner = case.claims.get(left.entry)
        if owner:
            case.reasons.append(
                Reason(
                    "ceph_entry_left",
                    f"Ceph's blocklist still has {left.entry}, from a fence before, and that "
                    f"is the address of {owner} now: remove it (ceph_blocklist with state "
                    "absent), and run again",
                )
            )
