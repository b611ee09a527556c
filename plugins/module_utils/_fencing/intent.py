# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger of a fence that is to be set. Pure: no I/O here.

It is written before anything is fenced, so that a run which is killed leaves no fence that is not
noted (a write-ahead log).
"""

from __future__ import annotations

from datetime import timedelta

from .._fences.ceph_reading import moment
from .._fences.ledger import (
    OFF_METHODS,
    UNKNOWN_MACHINE,
    Entry,
    FenceObject,
    Ledger,
    PowerFence,
)
from .._fences.network_fence import FENCED, NetworkFence
from .._fences.proof import iso
from .case import FenceCase

# The share of expiry_seconds under which ceph_blocklist renews an entry (its renew_below).
_RENEWED = 0.5


def make_ledger(case: FenceCase, method: str, fences: list[NetworkFence]) -> Ledger:
    """The ledger that intends this fence; the one that is there where it says the same."""
    known = case.known
    ledger = _new_ledger(case, method, fences)
    if known is None:
        return ledger
    # Who writes it and when is no change of the fence.
    kept = ledger._replace(by=known.by, run=known.run, at=known.at, phase=known.phase)
    if kept == known and not case.back:
        return known
    # What adds nothing to the fence leaves it proven; anything else is proven from the start.
    indifferent = ("cordoned", "machine", "namespace", "detached")
    same = kept._replace(**{name: getattr(known, name) for name in indifferent}) == known
    return ledger._replace(phase=known.phase) if same and not case.back else ledger


def _new_ledger(case: FenceCase, method: str, fences: list[NetworkFence]) -> Ledger:
    # Only what is fenced gets an entry: with method none, and for a node that is off, the addresses
    # may be known, but nothing is blocked.
    options, before = case.options, case.state.ledger
    host, reading = case.state.host, case.options.reading
    addresses = tuple(case.source) if method not in ("none", *OFF_METHODS) else ()
    ledger = Ledger(
        node=options.node,
        node_uid=host.node.uid if host else "",
        boot_id=host.boot_id if host else "",
        method=method,
        phase="intended",
        cluster_id=_joined(case.cluster_ids),
        fsid=reading.fsid if reading else "",
        addresses=addresses,
        entries=_entries(case, method, addresses),
        network_fences=_objects(case, fences),
        source={address: case.source[address] for address in addresses},
        volumes=_volumes(case, method),
        unverified=_is_unverified(case, method),
        cordoned=bool(host and not host.node.unschedulable),
        tainted=False,
        by=options.by,
        run=options.run,
        at=iso(case.state.now),
        revision=0,
        machine=_machine(case, addresses),
        namespace=options.namespace,
        power=_power(case) if method in OFF_METHODS else None,
    )
    return _continue(case, ledger, before) if before else ledger


def _continue(case: FenceCase, ledger: Ledger, before: Ledger) -> Ledger:
    """The ledger with what the one before it must not lose."""
    host = case.state.host
    uid = host.node.uid if host else before.node_uid
    # A cordon and a taint are on the Node object, so they go with it.
    same_object = before.node_uid == uid
    keeps_fsid = bool(case.known or case.left())
    return ledger._replace(
        node_uid=uid,
        boot_id=host.boot_id if host else before.boot_id,
        cluster_id=_joined({*before.cluster_id.split(","), *case.cluster_ids}),
        fsid=(before.fsid if keeps_fsid else "") or ledger.fsid,
        cordoned=(same_object and before.cordoned) or ledger.cordoned,
        tainted=same_object and before.tainted,
        revision=before.revision,
        # The machine that was fenced first, should another one have the node's name by now: its
        # fence must not be released because that other one is healthy.
        machine=ledger.machine
        if ledger.machine == UNKNOWN_MACHINE
        else before.machine or ledger.machine,
        proven=before.proven,
        # The method says it as long as it is none.
        declared_off=ledger.method != "none"
        and before.was_declared_off
        and ledger.boot_id == before.boot_id,
        # What the node has again has not left it, whatever was proven before.
        detached=tuple(
            name
            for name in before.detached
            if name in ledger.volumes and name not in {found.name for found in case.state.held}
        ),
    )


def _machine(case: FenceCase, addresses: tuple[str, ...]) -> str:
    """The machine that is fenced, whose reboot releases it."""
    # What was attached before the Node object was made, or is of an older pod, may be open on the
    # machine that had the name before. At an address that this Node lists it is this machine; any
    # other may be that one's, by ceph-csi's note too, which knows a node by its name. So it may be
    # where no address is fenced.
    before = case.judged
    new = [found for found in case.meant if found.name not in before]
    older = case.older(new) or any(found.used_by_older_pod for found in new)
    if older and not (addresses and set(addresses) <= set(case.own)):
        return UNKNOWN_MACHINE
    return case.state.host.machine if case.state.host else ""


def _is_unverified(case: FenceCase, method: str) -> bool:
    """Ceph was not asked where it alone could prove the fence."""
    # What proves a node to be off is its BMC. Of all else it is judged by what was read now.
    if method in OFF_METHODS or case.options.reading:
        return False
    known = case.known if case.known and not case.known.is_off else None
    new = {found.name for found in case.meant} - case.judged
    return bool(known.unverified or new) if known else method != "ceph"


def _power(case: FenceCase) -> PowerFence:
    """The BMC by which the node is switched off; that of the ledger if it is still the same."""
    fence = case.options.power[-1].fence
    # So does a release that has begun, as long as the node is in the same boot.
    before, host = case.state.ledger, case.state.host
    same = before and (case.known or (host and host.boot_id == before.boot_id))
    known = before.power if before and same else None
    # When the node was proven to be off is not forgotten: other nodes may have had its volumes
    # since, so its release takes another boot.
    return fence._replace(off_at=known.off_at) if known else fence


def _joined(cluster_ids: set[str]) -> str:
    return ",".join(sorted(filter(None, cluster_ids)))


def _volumes(case: FenceCase, method: str) -> tuple[str, ...]:
    """The volumes that are meant, and those of the ledger.

    Without those that were fenced before the node booted, or without a look at Ceph, and that it
    has: they were not judged since. Nor was what had left, and is back. And without all of a node
    that was off, if this fence is not that it is.
    """
    # The volumes of an earlier boot that are not attached any more were failed over, and stay part
    # of the fence until its release.
    before = set(case.state.ledger.volumes if case.state.ledger else ()) - case.back
    if case.judged_by() is None:
        before -= {found.name for found in case.state.held}
    last = case.state.ledger
    if last and last.is_off and method not in OFF_METHODS:
        before &= _covered_too(case, last)
    return tuple(sorted(before | {found.name for found in case.meant}))


def _covered_too(case: FenceCase, last: Ledger) -> set[str]:
    """The volumes of a node that was off, or was to be, which a fence in Ceph covers as well."""
    # Among them may be those of any driver, which such a fence would call fenced: a node that has
    # power again, and a pod that names it, could write to them.
    if case.old or not last.was_proven:
        return set()
    # It was never proven to be off (_is_weaker of lost.py), so what has moved had another fence.
    # One of another driver that no pod shows any more stays in: nothing tells its driver.
    others = {found.name for found in case.state.held if not found.is_rbd}
    return {*last.volumes} - others


def _entries(case: FenceCase, method: str, addresses: tuple[str, ...]) -> tuple[Entry, ...]:
    """The entries of the blocklist: those of before, and one for each address with method ceph."""
    before = case.known.entries if case.known else case.left()
    known = {entry.entry: entry for entry in before}
    wanted = {entry.entry: entry.kind for entry in before}
    if method == "ceph":
        wanted.update(dict.fromkeys(addresses, "address"))
    # An entry may become ours only where it is written again.
    fixed = {
        entry
        for entry in known
        if known[entry].ours or method != "ceph" or case.options.reading is None
    }
    return tuple(
        known[entry] if entry in fixed else _entry(case, entry, kind)
        for entry, kind in wanted.items()
    )


def _entry(case: FenceCase, entry: str, kind: str) -> Entry:
    """An entry for the blocklist, and whether it is ours, so that a release removes it.

    One that was there before becomes ours when it is renewed. One that lasts long enough is not
    renewed, and stays an operator's.
    """
    there = case.options.reading.find(entry) if case.options.reading else None
    until = moment(there.until) if there else None
    if (
        there
        and until
        and (until - case.state.now).total_seconds() >= _RENEWED * case.options.expiry_seconds
    ):
        return Entry(entry, kind, False, there.until)
    end = iso(case.state.now + timedelta(seconds=case.options.expiry_seconds))
    return Entry(entry, kind, True, end, there.until if there else "")


def _objects(case: FenceCase, fences: list[NetworkFence]) -> tuple[FenceObject, ...]:
    """The NetworkFences of the ledger: those of before, and those of this fence.

    Ours are those that were not Fenced before.
    """
    # Ours are set back to Unfenced by the release; one that an operator had Fenced stays.
    before = case.state.ledger.network_fences if case.state.ledger else ()
    if case.old:
        # One that is Unfenced, and says so, or that is gone needs no release any more.
        held = {
            fence.uid
            for fence in case.state.fences or ()
            if fence.state == FENCED or not fence.settled
        }
        before = tuple(found for found in before if found.uid in held and found.ours)
    known = {found.uid: found for found in before}
    for fence in fences:
        known.setdefault(
            fence.uid, FenceObject(fence.name, fence.uid, fence.cidrs, fence.state != FENCED)
        )
    return tuple(known.values())
