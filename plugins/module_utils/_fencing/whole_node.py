# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which other addresses of the node are fenced, and is that the whole node? Pure: no I/O here.

A client that hangs is no watcher any more after 30 s and still may write later, so every other
address of the node is fenced together with those that were seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from .._core.codes import Reason
from .._core.ip import family
from .._core.untrusted import few
from .._fences.ceph_reading import Image, Watcher
from .._fences.network_fence import coverage
from .._fences.state import AttachedVolume, HostRecord
from .case import SEEN, Doubt, FenceCase, Holder
from .method import POWER
from .proven import is_other

# More addresses than that are not believed. A cloud provider lists all those of the interfaces.
# Each is in the ledger's annotation, and an object has at most 256 KiB of them
# (TotalAnnotationSizeLimitB of k8s.io/apimachinery pkg/api/validation/objectmeta.go).
_MOST = 64
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_BY_HAND = (
    "Prove that the earlier machine is off and delete the pod by hand, with any finalizer that "
    "keeps it"
)


def widen(case: FenceCase, method: str) -> None:
    """Add every other address of the node that this method can fence and no other node has.

    ``spared`` gets the others, each with the reason: with any, the fence is not one of the whole
    node.
    """
    # Nodes often have one interface for Kubernetes and one for storage, and Ceph sees only the
    # latter.
    ways = {
        "status": case.own,
        "metadata": sorted(case.noted),
        "network_fence": case.prepared(),
    }
    fences = {
        fence.name: coverage(fence) for fence in case.state.fences or () if case.same_ceph(fence)
    }
    for how, addresses in ways.items():
        # Root on a node chooses how many it has. Those that Ceph shows are in ``source`` already.
        if len(addresses) > _MOST:
            case.spared[f"{how} with {len(addresses)} addresses"] = (
                f"is not believed, since at most {_MOST} are"
            )
            continue
        for address in addresses:
            if address in case.source:
                continue
            by = [name for name, is_covered in fences.items() if is_covered(address)]
            why = _why_spared(case, method, address, by)
            # Also of a family that no monitor has: a client may be older than they are.
            if why:
                case.spared[address] = why
            else:
                case.source[address] = how
    # The driver on the node knows its address on Ceph's network, and only it can have told (see
    # _network_fences/reports.py). It may lie, so no host is fenced for its word. But it may be
    # right, and what hangs there writes later.
    rest = "name it in fence_addresses, or in other_addresses if it belongs to a host that is not "
    rest += "a node"
    for address in sorted({*case.reported()} - {*case.source, *case.options.other_addresses}):
        case.spared.setdefault(
            address, f"is what the driver on the node reports, and nothing confirms that: {rest}"
        )
    # The user has named others than what is recorded. If it is proven to be another node's by now,
    # all is well.
    theirs = {*case.source, *case.options.other_addresses, *case.proven}
    for address in {*case.recorded.address} - theirs:
        case.spared.setdefault(address, f"is where Ceph saw it in an earlier night: {rest}")


def _why_spared(case: FenceCase, method: str, address: str, by: list[str]) -> str:
    """Why this address is not fenced with the others; empty if it is. ``by``: the NetworkFences
    that cover it.
    """
    # A NetworkFence and an entry of ours for one address would undo each other.
    owner = case.claims.get(address) or case.recorded.others.get(address)
    if owner:
        return f"belongs to {owner} too"
    if method == "network_fence" and not by:
        return "is covered by no NetworkFence"
    if method == "ceph" and by:
        return f"is covered by NetworkFence {few(by)}, whose controller undoes what others write"
    if any(ip_address(address) in network for network in case.options.protected):
        return "is one of protected_addresses"
    return ""


def check_silent(case: FenceCase, method: str) -> None:
    """A volume that is nowhere seen open may be open at any address of the node, so it needs the
    fence of the whole node.
    """
    _check_attached_here(case, _silent(case))
    if method == "none" or not case.may_hit():
        return
    # Without those that were left out just now.
    silent, bare = _silent(case), case.bare_families()
    blind = _silent(case, begun_too=True)
    if blind and bare:
        names = few(found.name for found in blind)
        case.reasons.append(
            Reason(
                "fence_incomplete",
                f"no {few(bare)} address of node {case.options.node} is fenced, and nothing that "
                f"Ceph shows now tells from where this is held: {names}. "
                f"{_has_families(case)}, so the node may reach it by one of those too (a lock, or "
                f"what ceph-csi noted, may be of an earlier mount): name its {few(bare)} address "
                "on Ceph's network in fence_addresses, where a NetworkFence has it too if that is "
                f"the method; if it has none, {POWER}",
            )
        )
    if silent and not _is_listed(case):
        names = few(found.name for found in silent)
        why = dict.fromkeys(
            _only_seen(case),
            "is where Ceph shows it, and nothing else calls that its own, so it may have others: "
            "name all by which it reaches Ceph in fence_addresses",
        )
        left = few((f"{address} {text}" for address, text in {**why, **case.spared}.items()), "; ")
        case.reasons.append(
            Reason(
                "fence_incomplete",
                f"nothing shows from where {names} is held (no watcher, no lock, no note of "
                "ceph-csi), so it needs the fence of the whole node, which cannot be made "
                f"({left or 'its Node object has no addresses'}): prove that the node is off "
                "and use method none with node_confirmed_off",
            )
        )


def _has_families(case: FenceCase) -> str:
    what = " and ".join(sorted(case.families))
    if case.options.reading is None:
        return f"Ceph was not read, and the node has {what} addresses"
    return f"This Ceph has monitors with {what} addresses"


def _check_attached_here(case: FenceCase, silent: list[AttachedVolume]) -> None:
    """Nothing was attached to another machine that had the node's name before, or used there."""
    host, older = case.state.host, case.older(silent)
    if host is None:
        return
    if older:
        case.reasons.append(_attached_before(case, host, few(older)))
    used = [found.name for found in silent if found.used_by_older_pod and found.name not in older]
    # That machine may be at any address. One tenant's pod, which a finalizer may keep, holds up no
    # other tenant.
    if used and len(used) == len(case.meant):
        case.reasons.append(_used_before(case, host, few(used)))
    else:
        case.leave_out({name: _used_before(case, host, name) for name in used})


def leave_out_earlier_machine(case: FenceCase) -> None:
    """Leave out what another machine may have open, which had the node's name before: the BMC that
    the Node object leads to is that of the present one.

    volume_failover sets no taint then, and ends no such pod: Kubernetes would have others write to
    its volumes. So one tenant's pod, which a finalizer may keep, holds up no other tenant.
    """
    before = case.state.of_earlier_machine
    attached = case.older(before)
    used = [found.name for found in before if found.name not in attached]
    _leave(case, attached, used, case.state.older)


def _leave(
    case: FenceCase, attached: Sequence[str], used: Sequence[str], pods: Sequence[str]
) -> None:
    """Leave out these volumes; refuse where then nothing would be left, or where the fence has one
    of them.
    """
    host, left = case.state.host, {*attached, *used}
    if host is None or not (left or pods):
        return
    rest = any(found.name not in left for found in case.meant)
    theirs = tuple(f" of {pod}" for pod in pods)
    inline = any(not text.endswith(theirs) for text in case.state.inline)
    if any(case.is_fenced(name) for name in left) or not (rest or inline or case.known):
        case.reasons += [_attached_before(case, host, few(attached))] if attached else []
        case.reasons += [_used_before(case, host, few(used))] if used else []
        case.reasons += [_pod_before(case, host, few(pods))] if pods else []
        return
    case.leave_out(
        {
            **{name: _attached_before(case, host, name) for name in attached},
            **{name: _used_before(case, host, name) for name in used},
        }
    )


def older_pods(case: FenceCase) -> dict[str, Reason]:
    """By namespace and name, the pods of such a machine that have storage which is never attached,
    each with the reason why it is left where it is.
    """
    host = case.state.host
    if host is None or not case.by_power:
        return {}
    return {pod.partition(" ")[2]: _pod_before(case, host, pod) for pod in case.state.older}


def _attached_before(case: FenceCase, host: HostRecord, names: str) -> Reason:
    return Reason(
        "fence_incomplete",
        f"{names} was attached before this Node object was made ({host.created:{_TIME}}), and "
        f"nothing shows from where it is held: the machine that was {case.options.node} before may "
        "have it, at an unknown address. Prove that the earlier machine is off and delete the "
        "attachment by hand",
    )


def _used_before(case: FenceCase, host: HostRecord, names: str) -> Reason:
    return Reason(
        "fence_incomplete",
        f"{names} is of a pod that is older than this Node object ({host.created:{_TIME}}), so "
        f"the machine that was {case.options.node} before may have it open. {_BY_HAND}",
    )


def _pod_before(case: FenceCase, host: HostRecord, names: str) -> Reason:
    return Reason(
        "fence_incomplete",
        f"{names} is older than this Node object ({host.created:{_TIME}}), and has storage "
        f"without a VolumeAttachment: the machine that was {case.options.node} before may have it "
        f"mounted. {_BY_HAND}",
    )


def _silent(case: FenceCase, begun_too: bool = False) -> list[AttachedVolume]:
    """The volumes that are new to the fence, and of which nothing shows who has them open.

    ``begun_too``: also those of a fence that is intended, and not proven since.
    """
    images = {image.volume: image for image in case.images}
    before = judged_before(case, begun_too) or ()
    return [
        found
        for found in case.meant
        if found.name not in before and not _is_shown(case, images.get(found.name))
    ]


def judged_before(case: FenceCase, begun_too: bool) -> tuple[str, ...] | None:
    """The volumes of a fence that stands; ``begun_too``: only of one that is proven."""
    # They were judged when it was intended, and their watches have ended since.
    known = case.judged_by()
    if known is None:
        return None
    # Until it is proven, nothing was detached by it. So what has changed since may still refuse it,
    # as a Ceph that has a second family by now. One that was proven before, and to which more was
    # added, is intended again: what was added may have another client since.
    if begun_too and not known.reached("fenced"):
        return None
    return tuple(case.judged)


def is_whole(case: FenceCase) -> bool:
    """Every address of the node is fenced, as far as they can be known."""
    return _is_listed(case) and not case.bare_families()


def _is_listed(case: FenceCase) -> bool:
    """Every address that a source names is."""
    # The user has said by which addresses the node reaches Ceph, so no other address matters then.
    given = named_by_user(case) is not None
    # Once its Node object is gone, what was left out when the ledger was written is unknown.
    return bool(case.own) and not _only_seen(case) and (not case.spared or given)


def named_by_user(case: FenceCase) -> set[str] | None:
    """The addresses by which the node reaches Ceph, as the user has said by its NetworkFence; None
    where he has not said it of all.
    """
    # What the driver reports (CSIAddonsNode status.networkFenceClientStatus) is no such word: root
    # on the node chooses it.
    prepared = set(case.prepared())
    if not prepared or not prepared <= set(case.source):
        return None
    # Of a family that he has not named he has said nothing.
    if not case.families <= set(map(family, prepared)):
        return None
    return prepared


def _only_seen(case: FenceCase) -> list[str]:
    """The addresses at which Ceph shows the node, and that nothing else calls the node's.

    Where there is one, its status does not list what Ceph sees, so that it may have others, too.
    """
    if not case.own:
        return []
    known = {
        *case.own,
        *case.reported(),
        *case.noted,
        *case.options.fence_addresses,
        *case.prepared(),
        *case.recorded.address,
    }
    return [address for address, how in case.source.items() if how in SEEN and address not in known]


def _is_shown(case: FenceCase, image: Image | None) -> bool:
    """There is evidence of its own for the address at which the node has this image open."""
    if image is None:
        return False
    shown = [holder for holder in case.holders if holder.image is image]
    shown += [holder for holder in case.clients(image) if case.has(holder.address)]
    return bool(noted_here(case, image)) or any(tells_family(case, found) for found in shown)


def tells_family(case: FenceCase, holder: Holder) -> str | None:
    """The address of who has the image open; None where another client of the node may have it
    open at an address of another family.
    """
    # A lock outlives its owner, and the next client takes it only when it first writes.
    if len(case.families) > 1 and holder.how != "watcher":
        return None
    return holder.address


def noted_here(case: FenceCase, image: Image) -> set[str] | None:
    """The fenced addresses that ceph-csi noted of this node on the image; None where that does not
    tell from where it has the image open.
    """
    # It is of when the volume was staged. The client of a later mount may have another family.
    if len(case.families) > 1:
        return None
    mine = {found.address for found in image.client_addresses if found.node == case.options.node}
    return mine & set(case.source)


def check_visitors(case: FenceCase) -> None:
    """No client comes and goes where the fence would hit, nor at an unknown address.

    The first is rather a healthy node than the lost one. The second may be the lost one, whose
    connection is bad, and it would not be fenced.
    """
    # Entries block addresses, not nodes: behind NAT all nodes have one.
    added = set(case.source) - case.proven_at
    for image, watcher in _visitors(case):
        if watcher.address in added:
            case.reasons.append(
                Reason(
                    "fence_shared",
                    f"{watcher.title} comes and goes on {image.title} at an address that "
                    "would be fenced, as a healthy node does that tries to stage the "
                    f"volume: if several nodes reach Ceph from one address (NAT), {POWER}",
                )
            )
        elif _is_outside(case, watcher.address) and _is_only_here(case, image):
            reason = Reason(
                "client_unknown",
                f"{watcher.title} comes and goes on {image.title}, which no other "
                "node has, at an address that would not be fenced: a node with a bad "
                "connection looks like this too. Find out whose it is: if it "
                "is this node's, name it in fence_addresses; if it belongs to a host that is "
                "not a node, in other_addresses; or run again",
            )
            case.doubts.append(Doubt(image.volume, watcher.address, reason))


def settle_doubts(case: FenceCase) -> bool:
    """Leave out the volumes of which it is not known who has them open.

    False where something else hangs on the answer: the fence is refused then. So a tenant whose
    volume is cloned all the time holds up no other.
    """
    # One client of a node has one address, as long as it lives. So a volume of which Ceph shows the
    # client is fenced by that address, whoever else is somewhere; but what is seen nowhere, another
    # client of the node may have, at the address in question.
    if not case.doubts:
        return True
    doubtful = {doubt.volume for doubt in case.doubts}
    rest = [found for found in case.meant if found.name not in doubtful]
    known = case.known
    # Of a fence that was begun, it is not noted what was seen of each volume.
    begun = known is not None and (not known.reached("fenced") or doubtful & set(known.volumes))
    # What speaks for the node at an address holds its own client there to be possible, also where
    # another node claims the address.
    hit = {doubt.address for doubt in case.doubts} & {*case.source, *case.spared}
    # A fence that stands is brought to its end, though nothing joins it.
    if not (rest or known) or _silent(case) or begun or hit:
        return False
    first: dict[str, Reason] = {}
    for doubt in case.doubts:
        first.setdefault(doubt.volume, doubt.reason)
    case.leave_out(first)
    return True


def _visitors(case: FenceCase) -> list[tuple[Image, Watcher]]:
    """The watchers that were not seen in every observation of any image."""
    # One client has one connection, and so one name, for all its images (client.NUMBER is the
    # global ID that the monitor gives to a session, src/mon/MonClient.cc).
    staying = {
        watcher.client for image in case.images for watcher in image.watchers if watcher.persistent
    }
    return [
        (image, watcher)
        for image in case.images
        for watcher in image.watchers
        if not watcher.persistent
        and not is_other(watcher, case.options)
        and watcher.client not in staying
    ]


def _is_outside(case: FenceCase, address: str) -> bool:
    """It would not be fenced, and is not proven to be another node's."""
    return address not in case.source and address not in case.proven


def _is_only_here(case: FenceCase, image: Image) -> bool:
    """The volume is attached to no other node, so none tries to stage it."""
    # If the volume may be staged elsewhere, a client that comes and goes is most likely that node,
    # trying.
    volume = case.volume_of(image)
    return not volume.elsewhere and not volume.is_shared
