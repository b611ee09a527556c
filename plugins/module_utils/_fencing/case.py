# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The evidence about one node: which volumes are meant, who has them open, what is fenced already.
Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from .._core.codes import Reason
from .._core.ip import family
from .._core.turns import within
from .._fences.ceph_reading import Image, Watcher
from .._fences.ledger import MOST_NAMES, OFF_METHODS, Entry, Ledger, name_size
from .._fences.network_fence import DRIVER, NetworkFence, covered, may_act_on
from .._fences.proof import iso
from .._fences.state import AttachedVolume, HostRecord, NodeState, attached_before_node
from .._kube.objects import is_after_silence
from .claims import Claim, claims_of
from .lost import is_present, was_judged
from .options import FenceOptions
from .own import blocked_addresses, fences_for, noted_addresses, singles
from .proven import Proven, is_other, proven_of
from .recorded import recorded, told

# The code of what is left out because it needs no fence.
NEEDS_NONE = "nothing_to_repair"
# How an address is known that Ceph shows.
SEEN = ("watcher", "lock")


class Holder(NamedTuple):
    """Who has an image open, or a lock on it.

    ``how``: "watcher" or "lock"; ``client``: as client.NUMBER; ``is_node``: it watches as a node
    does that has this volume, see Watcher.is_kernel.
    """

    image: Image
    how: str
    address: str
    entry: str
    client: str
    is_node: bool = False

    @property
    def title(self) -> str:
        """As a message names it."""
        return f"{self.entry} ({self.client})"

    @property
    def does(self) -> str:
        """What it does to the image, as a message says it."""
        return f"{'holds' if self.how == 'watcher' else 'has a lock on'} {self.image.title}"


class Doubt(NamedTuple):
    """It is not known whose client at ``address`` has the image of ``volume`` open."""

    volume: str
    address: str
    reason: Reason


@dataclass
class FenceCase:
    """The evidence about one node, put together step by step; each step leaves its reasons to
    refuse.
    """

    state: NodeState
    options: FenceOptions
    reasons: list[Reason] = field(default_factory=list)
    # Address, and how it is known: the first source counts.
    source: dict[str, str] = field(default_factory=dict)
    # Of the addresses of the node, those that are not fenced, and why.
    spared: dict[str, str] = field(default_factory=dict)
    # Who has the images that are meant, as far as the ledger does not have them already.
    holders: list[Holder] = field(default_factory=list)
    # What is not known of single volumes; see settle_doubts.
    doubts: list[Doubt] = field(default_factory=list)
    # The volumes that are no part of the fence, and why.
    left_out: dict[str, Reason] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state, options, ledger = self.state, self.options, self.state.ledger
        # ``known``: the fence that stands. ``old``: one from before the node booted, or that is
        # being released; it is no evidence, but its entries are ours still.
        self.known = ledger if ledger and is_present(state, ledger) else None
        self.old = None if self.known else ledger
        # A fence by power that stands is not undone by "auto". ``off_method``: one of OFF_METHODS,
        # or empty.
        wanted = self.known.method if options.method == "auto" and self.known else options.method
        self.off_method = wanted if wanted in OFF_METHODS else ""
        self.by_power = bool(self.off_method)
        self.back = self._back()
        # Every RBD volume that the node may have open, and those volumes that the user means.
        self.rbd = [found for found in state.held if found.is_rbd and not self._is_too_late(found)]
        self.meant = self._pick_meant()
        self.own = state.host.addresses if state.host else ()
        self.blocked = frozenset(blocked_addresses(state, options))
        self.families = self._families()
        self._read(options.reading.images if options.reading else ())

    @property
    def cluster_ids(self) -> set[str]:
        """The names of its Ceph, by the volumes that are meant and the fence that stands."""
        known = self.known.cluster_id.split(",") if self.known else ()
        return {found.cluster_id for found in self.meant if found.is_rbd} | set(known)

    def _families(self) -> frozenset[str]:
        """Those of the addresses from which a node may reach this Ceph; empty where that is not
        known.
        """
        # All connections of a client have one address, and it may be of any family that the
        # monitors have (parse_families of _ceph/blocklist.py).
        reading = self.options.reading
        if reading:
            # After a change of the monitors, clients that run keep the address that they have.
            seen = (found.address for image in reading.images for found in image.watchers)
            return reading.families.union(map(family, seen))
        # Unread, it may have those of a node of both. One of a single family may have another
        # network for Ceph, which nothing tells.
        own = frozenset(map(family, self.own))
        return own if len(own) > 1 else frozenset()

    def can_see(self, address: str) -> bool:
        """Ceph may see a client at this address."""
        return not self.families or family(address) in self.families

    def may_hit(self) -> bool:
        """Ceph shows the node, or may see it, at one of the addresses of the fence."""
        return any(how in SEEN or self.can_see(found) for found, how in self.source.items())

    def bare_families(self) -> list[str]:
        """The families at which Ceph may see the node, and nothing is fenced."""
        if self.known_by_record() is not None:
            return []
        return sorted(self.families.difference(map(family, self.source)))

    def known_by_record(self) -> tuple[str, ...] | None:
        """The fenced address where Ceph saw the node in this boot, which tells the family by which
        it reaches Ceph; None where nothing tells that.
        """
        address = self.recorded.address
        if not address or not set(address) <= set(self.source):
            return None
        return address

    def _read(self, images: tuple[Image, ...]) -> None:
        names = {found.name for found in self.meant}
        # Those of other nodes among them, which show from where these reach Ceph.
        self.all_images = images
        self.images = [image for image in images if image.volume in names]
        self.noted = noted_addresses(self.state, images, self.options.node)
        self.proven = proven_of(self.state, images, self.options)
        self.claims = claims_of(self.state, images, self.options, self.proven)
        self.recorded = recorded(self.state, self.options)

    def _pick_meant(self) -> list[AttachedVolume]:
        # What has no power writes to no storage, whatever its driver. A volume without a
        # PersistentVolume has no name by which a ledger could know it.
        if self.by_power:
            wanted = [found for found in self.state.held if found.attachment.volume]
        else:
            wanted = [
                found
                for found in self.state.held
                if found.is_rbd and self.options.cluster_id in ("", found.cluster_id)
            ]
        why = {found.name: self._why_left_out(found) for found in wanted}
        self.left_out = {
            name: reason for name, reason in why.items() if reason and not self.is_fenced(name)
        }
        return self._with_room([found for found in wanted if not why[found.name]])

    def _with_room(self, chosen: list[AttachedVolume]) -> list[AttachedVolume]:
        """Those that the ledger has, and of the others as many as it has room for."""
        before = {*self.state.ledger.volumes} if self.state.ledger else set()
        # In turns of the namespaces: a tenant may have any number of claims attached to a node.
        more, _owners = within(
            [found for found in chosen if found.name not in before],
            lambda found: found.claim.partition("/")[0],
            lambda found: name_size(found.name),
            MOST_NAMES - sum(map(name_size, before)),
        )
        kept = before | {found.name for found in more}
        reason = Reason(
            "volume_not_fenced",
            f"the ledger has no room for it, since it has the names of {len(kept)} others: run "
            "again after this fence was released",
        )
        self.left_out.update({found.name: reason for found in chosen if found.name not in kept})
        return [found for found in chosen if found.name in kept]

    def _back(self) -> frozenset[str]:
        """Volumes that this fence, or one before it, has detached from the node, and that are
        attached there again: the node came back without a release, and may have them open again.
        """
        known, host = self.known, self.state.host
        if known is None or host is None:
            return frozenset()
        left = {*(known.volumes if known.phase == "detached" else known.detached)}
        return frozenset(
            found.name
            for found in self.state.attached
            # It opens nothing that is attached while it is silent, as by any tenant's pod.
            if found.name in left and not is_after_silence(found.attachment.created, host.node)
        )

    def is_fenced(self, volume: str) -> bool:
        """The fence that stands has this volume."""
        return self.known is not None and volume in self.known.volumes

    def judged_by(self) -> Ledger | None:
        """The fence that stands, if it was judged for it who has its volumes open in Ceph."""
        return self.known if self.known and was_judged(self.known, self.options) else None

    @property
    def judged(self) -> frozenset[str]:
        """The volumes of which that was judged."""
        ledger = self.judged_by()
        return frozenset(ledger.volumes if ledger else ()) - self.back

    def leave_out(self, reasons: Mapping[str, Reason]) -> None:
        """These volumes are no part of the fence.

        It is safe to leave one out: nothing is detached that is not fenced. And what its image
        would show is no better than if its tenant had never had it.
        """
        for name, reason in reasons.items():
            self.left_out.setdefault(name, reason)
        self.meant = [found for found in self.meant if found.name not in reasons]

    def _is_too_late(self, found: AttachedVolume) -> bool:
        # What a fence that stands has, the node may have opened before.
        return found.too_late and not self.is_fenced(found.name)

    def _why_left_out(self, found: AttachedVolume) -> Reason | None:
        """Why this volume is no part of the fence; None if it is one."""
        if self._is_too_late(found):
            return Reason(
                NEEDS_NONE,
                "it was attached after the node fell silent, it was not mounted there before, and "
                "the node does not call it in use: so the node cannot have it open",
            )
        # Its image cannot be found, and no other node can get it.
        if found.volume is None and not self.by_power:
            return Reason(NEEDS_NONE, "its PersistentVolume is gone, so no other node can get it")
        return self.not_begun_with(found)

    def not_begun_with(self, found: AttachedVolume) -> Reason | None:
        """Why this volume is none of those that the run has begun with; None if it is one."""
        begun_with = self.options.volumes
        if begun_with is None or found.name in begun_with or self.is_fenced(found.name):
            return None
        # What is proven after the fence was planned before it. So what a tenant has attached in
        # between, or more than a result has room for, is not waited for.
        return Reason(
            "volume_not_fenced",
            "it is none of the volumes that this run has begun with, since it came after that, or "
            "had no room there: run again once others have left the node",
        )

    @property
    def evidence(self) -> dict[str, object]:
        """What was read, for the finding."""
        # The finding has all that the decision was made from, so that a person can judge it again.
        reading, ledger, host = self.options.reading, self.state.ledger, self.state.host
        return {
            **(_of_host(host, self.state.now) if host else _NO_HOST),
            "volumes": [
                f"{found.name} ({found.claim or 'no claim'})"
                + ("" if found.attachment.name else f", not attached{' any more' * found.is_rbd}")
                for found in self.meant
            ],
            "observations": f"{reading.observations} in {reading.seconds:g} s"
            if reading
            else "none",
            **({"families": sorted(self.families)} if len(self.families) > 1 else {}),
            **self._of_images(),
            **self._of_record(),
            "addresses": dict(self.source),
            **self._of_power(),
            **({"not_fenced": dict(self.spared)} if self.spared else {}),
            **({"left_out": self.stays} if self.left_out else {}),
            "cordoned_before": bool(host and host.node.unschedulable),
            **({"ledger": ledger.to_dict()} if ledger else {}),
        }

    @property
    def stays(self) -> list[str]:
        """The volumes that are left out, each with the reason, as a message says it."""
        return [f"{name}: {why}" for name, why in self.left_out.items()]

    def _of_power(self) -> dict[str, object]:
        """What its BMC has said, for the evidence."""
        if not self.by_power:
            return {}
        return {
            "power": [
                f"{found.title}: {found.state or found.problem or 'no answer'}, machine "
                f"{found.uuid or 'unknown'}, at {iso(found.read_at)}"
                for found in self.options.power
            ]
        }

    def _of_record(self) -> dict[str, object]:
        """What is recorded of the node, and what each source says of its addresses beside it."""
        record, doubt = self.recorded.record, self.recorded.doubt
        if record is None:
            return {"record": doubt} if doubt else {}
        says = {
            "record": self.recorded.address,
            "watchers": {found.address for found in self.holders if found.how == "watcher"},
            "locks": {found.address for found in self.holders if found.how == "lock"},
            "ceph-csi": self.noted,
            "fence_addresses": self.options.fence_addresses,
            "NetworkFence of the user": self.prepared(),
            "NetworkFence of the driver": self.reported(),
            "status": self.own,
        }
        return {
            "record": told(record, self.state.now),
            "says": [
                f"{who}: {', '.join(sorted(said)) or 'nothing'}" for who, said in says.items()
            ],
        }

    def by_record(self) -> tuple[str, ...]:
        """The address of the record, where that is evidence for a new fence."""
        # Who names the addresses himself has seen what is recorded. A fence that stands was judged,
        # and with method none no address matters.
        options = self.options
        is_decided = self.judged_by() or options.fence_addresses or options.method == "none"
        return () if is_decided else self.recorded.address

    def _of_images(self) -> dict[str, object]:
        """Who has each image open or a lock on it, for the evidence."""
        return {
            "watchers": [
                f"{image.title}: {watcher.title}, {_seen(watcher, self.options)}"
                for image in self.images
                for watcher in image.watchers
            ],
            "locks": [
                f"{image.title}: {lock.entry} ({lock.locker})"
                for image in self.images
                for lock in image.locks
            ],
        }

    def older(self, volumes: Iterable[AttachedVolume]) -> list[str]:
        """Those that were attached before this Node object was made.

        A machine that had the name before may have them open.
        """
        return [found.name for found in volumes if attached_before_node(found, self.state.host)]

    def volume_of(self, image: Image) -> AttachedVolume:
        """The volume that is meant and has this image."""
        return next(found for found in self.meant if found.name == image.volume)

    def clients(self, image: Image) -> list[Holder]:
        """Who has the image open all the time, or a lock on it, without those known to be no node.

        A watch that comes and goes is left out.
        """
        # A healthy node that waits for the volume asks again and again whether it is in use, and
        # "because we opened the image, there is at least one watcher" (ceph-csi isInUse of
        # internal/rbd/rbd_util.go, called by waitForrbdImage of internal/rbd/rbd_attach.go).
        others = self.options.other_addresses
        held = [
            watcher
            for watcher in image.watchers
            if watcher.persistent and not is_other(watcher, self.options)
        ]
        by_librbd = self.volume_of(image).may_be_nbd
        found = [
            Holder(
                image,
                "watcher",
                watcher.address,
                watcher.entry,
                watcher.client,
                watcher.is_kernel or by_librbd,
            )
            for watcher in held
        ]
        # The exclusive lock is kept in the image's header, so it outlives its owner's watch
        # (src/cls/lock, "rbd_lock"; RBD_LOCK_NAME of drivers/block/rbd_types.h).
        locks = [lock for lock in image.locks if lock.address not in others]
        return found + [
            Holder(image, "lock", lock.address, lock.entry, lock.locker) for lock in locks
        ]

    def has(self, address: str) -> bool:
        """The ledger means this client already."""
        # The addresses of a fence that stands were judged when it was intended.
        return self.known is not None and address in self.known.addresses

    @property
    def proven_at(self) -> frozenset[str]:
        """Where no other node is hit: what is blocked, or was, when the watches of this node had
        ended for it.
        """
        known = self.known
        return self.blocked.union(known.addresses if known and known.reached("fenced") else ())

    def is_elsewhere(self, image: Image, owner: Proven | Claim | None) -> bool:
        """The owner of an address is another node that has the volume by right: it is attached
        there now, or was until that node was fenced. Only a proven one lets a client pass.

        Either it is not attached here any more, or several nodes may have it at once.
        """
        # After a forced detach Kubernetes attaches the volume to another node while this one may
        # still write: then both are clients of the image, and only this one must be fenced.
        volume = self.volume_of(image)
        theirs = {found.node for found in volume.elsewhere}
        # In a release a node's entries may be gone already, and a client of before writes again.
        theirs |= {
            other.node
            for other in self.state.ledgers
            if volume.name in other.volumes and other.phase in ("fenced", "detached")
        }
        is_free = not volume.attachment.name or volume.is_shared
        return is_free and owner is not None and owner.node in theirs

    def prepared(self) -> list[str]:
        """The addresses of the NetworkFences that were prepared for this node, if the user gave
        them.
        """
        return singles(fence for fence in self._own_fences() if fence.by_user)

    def reported(self) -> list[str]:
        """The addresses of those that were prepared with what the driver on the node reports.

        It is the node's own word, as its status is: evidence only beside what Ceph shows.
        """
        # Those made from InternalIP say no more than the status of the node does.
        return singles(fence for fence in self._own_fences() if fence.addresses_from == DRIVER)

    def _own_fences(self) -> list[NetworkFence]:
        return [
            fence for fence in fences_for(self.state, self.options.node) if self.same_ceph(fence)
        ]

    def same_ceph(self, fence: NetworkFence) -> bool:
        """It may act on the Ceph that has the volumes that are meant."""
        # What is not known of a NetworkFence may be the same Ceph, and counts so.
        return may_act_on(
            fence, {found.attachment.driver for found in self.meant}, self.cluster_ids
        )

    def covering(self) -> list[NetworkFence]:
        """Every NetworkFence that covers an address and is, or may be, of this Ceph.

        All of them have to be Fenced.
        """
        # The controller reconciles every object when it starts, and for an Unfenced one it calls
        # UnFenceClusterNetwork again (kubernetes-csi-addons
        # internal/controller/csiaddons/networkfence_controller.go): that removes our entries.
        mine = [fence for fence in self.state.fences or () if self.same_ceph(fence)]
        return [fence for fence in mine if covered(fence, self.source)]

    def left(self) -> tuple[Entry, ...]:
        """The entries that an earlier fence has left in the blocklist.

        They stay ours, so that they are removed with the release of this fence.
        """
        # Without a reading they are taken to be there still.
        reading = self.options.reading
        before = self.old.entries if self.old else ()
        return tuple(
            entry
            for entry in before
            if entry.ours and (reading is None or reading.blocks(entry.entry))
        )


_NO_HOST = {
    "ready": "no such node",
    "unknown_seconds": 0,
    "node_uid": "",
    "node_created": "unknown",
    "boot_id": "",
}


def _of_host(host: HostRecord, now: datetime) -> dict[str, object]:
    """What the Node object says, for the evidence."""
    silent = host.node.ready == "Unknown"
    return {
        "ready": host.node.ready,
        "unknown_seconds": host.node.lost_for(now) if silent else 0,
        # It fences nothing, and no entry of the blocklist could.
        **({"unusable_addresses": list(host.unusable)} if host.unusable else {}),
        "node_uid": host.node.uid,
        "node_created": iso(host.created) if host.created else "unknown",
        "boot_id": host.boot_id,
    }


def _seen(watcher: Watcher, options: FenceOptions) -> str:
    who = (
        ", rbd-mirror"
        if watcher.mirror
        else ", one of other_addresses"
        if is_other(watcher, options)
        else ""
    )
    return f"{'all the time' if watcher.persistent else f'seen {watcher.seen} times'}{who}"
