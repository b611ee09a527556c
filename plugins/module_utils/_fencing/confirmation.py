# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What proves that the fence of the ledger is in force? Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .._core.codes import Reason
from .._core.untrusted import few
from .._fences.ceph_reading import Image, Reading, Watcher
from .._fences.ledger import Ledger
from .._fences.network_fence import NetworkFence, covered
from .._fences.proof import iso, missing
from .._fences.state import NodeState, fences_of, opposing
from .options import FenceOptions
from .proven import Proven, is_other, proven_of

# osd_client_watch_timeout: so long (seconds) an OSD keeps the watch of a client that says nothing
# more (src/common/options, and Watch::register_cb of src/osd/Watch.cc).
_WATCH_SECONDS = 30.0


def names_a_fence(ledger: Ledger) -> bool:
    """The ledger has addresses, and what fences each of them; or it needs none."""
    # A ledger may have been edited by hand, and one that names nothing is proven by nothing.
    if ledger.method == "none" or ledger.is_off:
        return True
    if ledger.method == "ceph":
        return bool(ledger.addresses and ledger.entries)
    left = set(ledger.addresses)
    return bool(left) and not left.difference(
        *(covered(found, left) for found in ledger.network_fences)
    )


def undone_fences(state: NodeState, ledger: Ledger) -> tuple[list[NetworkFence], list[Reason]]:
    """The NetworkFences of the ledger whose controller has not fenced yet, and what is wrong with
    others.
    """
    # in_force needs the controller's message, since the spec is only what was asked for.
    undone, doubts = [], []
    for planned, fence, problem in fences_of(state, ledger):
        if fence is None or problem:
            doubts.append(
                Reason(
                    "network_fence_unfit",
                    f"NetworkFence {planned.name} ({planned.uid}) {problem}, so it is unknown what "
                    "Ceph's blocklist has: look at that, and restore it",
                )
            )
        elif not fence.in_force:
            undone.append(fence)
    return undone, doubts


def opposed(state: NodeState, ledger: Ledger) -> list[Reason]:
    """The NetworkFences that were made since and undo this fence."""
    # An Unfenced one removes entries whenever its controller starts (Reconcile in
    # kubernetes-csi-addons internal/controller/csiaddons/networkfence_controller.go).
    drivers = {found.attachment.driver for found in state.held if found.name in ledger.volumes}
    return [
        Reason(
            "network_fence_opposed",
            f"NetworkFence {fence.name} covers {few(ledger.addresses)} and is Unfenced, so "
            "its controller may take the fence away: run again from the start with method auto, "
            "which fences by it",
        )
        for fence in opposing(state, ledger, drivers)
    ]


def doubts_of(
    ledger: Ledger, reading: Reading, state: NodeState, options: FenceOptions
) -> list[Reason]:
    """What in Ceph contradicts the fence, or does not prove it.

    A node that is switched off is proven to be by its BMC, and Ceph may only contradict that.
    """
    doubts = missing(ledger, reading, state.now)
    if ledger.is_off and reading.seconds <= _WATCH_SECONDS:
        doubts.append(
            Reason(
                "observation_too_short",
                f"Ceph was looked at for {reading.seconds:g} s, and the watch of a client that has "
                f"lost its power lasts {_WATCH_SECONDS:g} s: look for longer (observation_seconds)",
            )
        )
    covered = [image for image in reading.images if image.volume in ledger.volumes]
    doubts += _unread(covered, ledger, state)
    proven = proven_of(state, reading.images, options)
    # What was detached by force, another node may open at once, from an address that is unknown.
    here = {found.name for found in state.attached}
    mine = node_addresses(ledger, state, options, proven)
    for image in covered:
        for watcher in image.watchers:
            if not _may_be_dead(watcher, ledger):
                is_here = image.volume in here
                doubts += _watcher_doubts(image, watcher, options, proven, mine, is_here)
    return doubts


def held_by_other_clients(
    ledger: Ledger, reading: Reading, state: NodeState, options: FenceOptions
) -> dict[str, Reason]:
    """The volumes of a node that is off which only clients have open that cannot be its own mounts,
    each with the reason why it is left out.

    So a tenant whose volume is copied, or has its space given back, holds up no other.
    """
    # A node has an image open by krbd, unless its volume may be mapped by rbd-nbd. So a client of
    # librbd that is at no address of the node is no sign that the node has power, as one of the
    # kernel may be: it is a provisioner, a backup, a virtual machine. Nothing that such a client
    # does depends on what is attached to the node. So an out-of-service taint may detach that
    # volume, too: its writer on the node has no power, and the client was beside that one already.
    # But no source says whose it is, so this fence does not cover that volume.
    if not ledger.is_off:
        return {}
    proven = proven_of(state, reading.images, options)
    mine = node_addresses(ledger, state, options, proven)
    krbd = {found.name for found in state.attached if found.is_rbd and not found.may_be_nbd}
    left: dict[str, Reason] = {}
    for image in reading.images:
        # What is not attached here has left already, so its fence is not given up.
        if image.volume not in ledger.volumes or image.volume not in krbd:
            continue
        alive = [watcher for watcher in image.watchers if not _may_be_dead(watcher, ledger)]
        doubted = [
            (watcher, doubts[0])
            for watcher in alive
            for doubts in [_watcher_doubts(image, watcher, options, proven, mine, True)]
            if doubts
        ]
        if doubted and not any(
            watcher.is_kernel or watcher.address in mine for watcher, _doubt in doubted
        ):
            left[image.volume] = doubted[0][1]
    return left


def _may_be_dead(watcher: Watcher, ledger: Ledger) -> bool:
    """Its node may have no power any more."""
    # The watch of a client without power lasts for osd_client_watch_timeout, so only one that was
    # seen in several looks over a longer time is alive.
    return ledger.is_off and not watcher.persistent


def _unread(covered: list[Image], ledger: Ledger, state: NodeState) -> list[Reason]:
    """The volumes of the fence of which it is not known who has them open."""
    # What has no power has nothing open, of whatever driver; an image that cannot be read does not
    # contradict that.
    is_off = ledger.is_off
    read = {image.volume for image in covered}
    # One whose PersistentVolume is gone cannot be read, and no other node can get it.
    missed = [
        found.name
        for found in state.held
        if found.volume
        # One of CephFS has no image; see files.py.
        and (found.is_rbd or not (is_off or found.is_cephfs))
        and found.name in ledger.volumes
        and found.name not in read
    ]
    return [
        Reason(
            "ceph_not_read",
            f"volume {name} is not in what was read of Ceph, so whether it is still held is not "
            "known: read it too",
        )
        for name in missed
    ] + [
        Reason(
            "ceph_not_read",
            f"image {image.title} of volume {image.volume} could not be read: {image.problem}",
        )
        for image in covered
        if image.problem and not is_off
    ]


def _watcher_doubts(
    image: Image,
    watcher: Watcher,
    options: FenceOptions,
    proven: Mapping[str, Proven],
    mine: Collection[str],
    is_here: bool,
) -> list[Reason]:
    """Why this watcher may be the node, which then still has the image open. ``mine``: the node's
    addresses; ``is_here``: the volume is attached to it.
    """
    # An OSD drops the watches of a client as soon as it has the OSD map that blocks it
    # (check_blocklisted_watchers of src/osd/PrimaryLogPG.cc), so a watch that is left shows a
    # client that is not fenced, or an OSD that does not know of the fence yet.
    if watcher.address in mine:
        return [
            Reason(
                "ceph_watcher_left",
                f"{watcher.title} still holds {image.title} of volume {image.volume}: its "
                "watch must be gone before anything is detached",
            )
        ]
    # Once is enough. No other node can stage it, so a client that comes and goes may be the lost
    # node with a bad connection; the decision to fence refuses such a client too.
    if is_here and _is_unknown(watcher, proven, options):
        return [
            Reason(
                "client_unknown",
                f"{watcher.title} holds {image.title} of volume {image.volume}, and it is unknown "
                f"whose it is, so it may be node {options.node}: find out; if it is, name its "
                "address in fence_addresses and run again from the start; if it is another "
                "node's, name it in other_addresses",
            )
        ]
    return []


def node_addresses(
    ledger: Ledger, state: NodeState, options: FenceOptions, proven: Mapping[str, Proven]
) -> set[str]:
    """The addresses at which a client is the node's."""
    # At one of the node's own addresses, a client counts as the node's unless the address is proven
    # to be another's.
    own = {*(state.host.addresses if state.host else ()), *options.fence_addresses}
    return {*(own - set(proven)), *ledger.addresses}


def _is_unknown(watcher: Watcher, proven: Mapping[str, Proven], options: FenceOptions) -> bool:
    """It is proven to be no other node's, and known to be no host's that is no node."""
    return watcher.address not in proven and not is_other(watcher, options)


def proven_ledger(
    ledger: Ledger,
    reading: Reading | None,
    state: NodeState,
    options: FenceOptions,
    joined: Sequence[str] = (),
    left: Collection[str] = (),
) -> Ledger:
    """The ledger once the fence is proven; the same one where that changes nothing.

    ``joined``: volumes that it is proven for as well; ``left``: those that it is not proven for.
    """
    entries = []
    for entry in ledger.entries:
        found = reading.find(entry.entry) if reading else None
        # The end that Ceph has counts, since a release compares it.
        entries.append(entry._replace(until=found.until) if found else entry)
    # What joins has not left the node yet.
    phase = ledger.phase if ledger.reached("fenced") and not joined else "fenced"
    unverified = ledger.unverified if options.check or ledger.power else reading is None
    power = ledger.power
    if power and not power.off_at and not options.check:
        power = power._replace(off_at=iso(options.power[0].read_at))
    proven = ledger._replace(
        phase=phase,
        entries=tuple(entries),
        unverified=unverified,
        power=power,
        proven=True,
        volumes=tuple(sorted({*ledger.volumes, *joined} - {*left})),
        detached=tuple(name for name in ledger.detached if name not in left),
        fsid=ledger.fsid or (reading.fsid if reading else ""),
    )
    return (
        ledger
        if proven == ledger
        else proven._replace(by=options.by, run=options.run, at=iso(state.now))
    )
