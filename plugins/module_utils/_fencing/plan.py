# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Whether a node may be fenced, by what addresses and by what means, and what proves that it is.
Pure: no I/O here.

Whom to fence begins with what Ceph saw, not with what Kubernetes calls the node: the clients that
hold its images for the whole of several observations, the owners of locks, what ceph-csi noted, or
what the user knows. On a healthy node every try to stage a volume opens the image and is a watcher
for a moment, so what comes and goes is no evidence. A client at an address that nothing says is the
node's is an unknown client, however many of its images it holds: rbd-mirror holds all of a pool's.
And since a client that hangs is no watcher after 30 s, every other address of the node is fenced
with the ones that were seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import NamedTuple, Union

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    Finding,
    Plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    Image,
    Reading,
    Watcher,
    moment,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    Entry,
    FenceObject,
    Ledger,
    config_map_path,
    read_note,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    FENCED,
    KNOWN_ADDRESSES,
    NetworkFence,
    command,
    covers,
    may_act_on,
    networks,
    undecidable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.proof import (
    iso,
    missing,
    stale,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    HostRecord,
    NodeState,
    fences_of,
    opposing,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    OWN_NAMESPACE,
    age,
)

Network = Union[IPv4Network, IPv6Network]

RUNBOOK = "storage_ops.runbooks.fail_over_volumes"
# The share of expiry_seconds under which ceph_blocklist renews an entry.
_RENEWED = 0.5
# A fence may only become a stronger one.
_STRENGTH = ("none", "ceph", "network_fence")

_RELEASE = "give it back with the playbook storage_ops.runbooks.release_fenced_node (STOR-17)"
_UNREAD = Reason(
    "ceph_not_read",
    "nothing was read of Ceph (option ceph), and no NetworkFence tells from which address the node "
    "reaches Ceph: give what rbd_watcher_info returned, or name that address in fence_addresses if "
    "a NetworkFence covers it, or prepare NetworkFences (playbook "
    "storage_ops.runbooks.prepare_network_fences) while nodes are Ready",
)
_UNKNOWN = (
    "it is unknown from which address node {} reaches Ceph: no client holds its images, they have "
    "no locks, ceph-csi has noted none, and fence_addresses is empty. A node that lost its power "
    "looks like this: name its address on Ceph's network in fence_addresses, or prove that it is "
    "off and use method none with node_confirmed_off"
)
# What to do where no entry of the blocklist hits the lost node alone.
_POWER = (
    "prove that this one is off, by its power supply or its hypervisor, and use method none "
    "with node_confirmed_off"
)
# A healthy node that retries NodeStageVolume opens the image for a moment at each try, so only a
# client that every look has shown is evidence. Looks, and seconds from the first to the last.
_LEAST_LOOKS, _LEAST_SECONDS = 3, 60.0
_ASIDE = (
    "the containers on the node may go on running, and serve what they have cached: the fence "
    "protects the storage, not the application"
)


@dataclass(frozen=True)
class Options:
    """What the user asked for and allows; see the documentation of node_fence for units and
    defaults.

    ``by``: the host that runs this; ``check``: check mode, in which the steps before have changed
    nothing.
    """

    node: str
    run: str
    by: str
    namespace: str = OWN_NAMESPACE
    method: str = "auto"
    reading: Reading | None = None
    grace_seconds: float = 120.0
    accept_short_observation: bool = False
    fence_addresses: tuple[str, ...] = ()
    protected: tuple[Network, ...] = ()
    node_confirmed_off: bool = False
    other_addresses: tuple[str, ...] = ()
    expiry_seconds: float = 31_536_000.0
    cluster_id: str = ""
    proof: str = "message"
    check: bool = False
    accept_majority: bool = False


class Subject(NamedTuple):
    """What an action is about: the ledger as it is to be, and for fence_network the object to be
    patched.
    """

    ledger: Ledger
    fence: NetworkFence | None = None


class Decision(NamedTuple):
    """What is to be done, and the ledger as it is once that is done; None where there is none."""

    plan: Plan
    ledger: Ledger | None


def intend(state: NodeState, options: Options, busy: str = "") -> Decision:
    """Whether the node may be fenced, and the ledger that says how.

    ``busy``: why another run is in the way, as a sentence.
    """
    case = _Case(state, options)
    known = state.ledger
    reasons = (
        [Reason("lease_held", busy)]
        if busy
        else [*not_lost(state, options), *_majority_lost(state, options), *_unfit(state, options)]
    )
    ledger = None if reasons else case.judge()
    reasons += case.reasons
    finding = _finding(state, options, case.evidence)
    if ledger is None or reasons:
        finding.refuse(*reasons)
        return Decision(Plan([finding]), known)
    if ledger != known or not _is_noted(state, known):
        finding.repair.append(_write(ledger, options, "write_fence_ledger"))
    if state.host and not state.host.node.unschedulable:
        uid = state.host.node.uid
        finding.repair.append(
            Action(
                "cordon_node",
                options.node,
                ["PATCH", ledger.path, f"uid={uid}", "spec.unschedulable=true"],
                Subject(ledger),
            )
        )
    if not finding.repair:
        return Decision(Plan([]), ledger)
    finding.reason = _why(ledger)
    return Decision(Plan([finding]), ledger)


def confirm(state: NodeState, options: Options, busy: str = "") -> Decision:
    """What is left to be done for the fence that the ledger intends, and whether it is proven."""
    known = state.ledger
    reasons = [Reason("lease_held", busy)] if busy else not_standing(state, options)
    finding = _finding(state, options, {"ledger": known.to_dict()} if known else {})
    if known is None or reasons:
        finding.refuse(*reasons)
        return Decision(Plan([finding]), known)
    reasons += _opposed(state, known)
    undone: list[NetworkFence] = []
    if known.method != "none" and not _names_somebody(known):
        reasons.append(
            Reason(
                "fence_missing",
                f"the ledger of node {options.node} names nothing to be fenced: repair it, or "
                "delete it and run again from the start",
            )
        )
    if known.method == "network_fence":
        undone, doubts = _undone(state, known)
        reasons += doubts
    finding.repair = [
        Action("fence_network", fence.name, command(fence, FENCED), Subject(known, fence))
        for fence in undone
    ]
    proven = None
    # What was read before the patch proves nothing about it.
    if not undone or options.proof == "message" or options.check:
        reading = None if undone or options.check else options.reading
        asks = not options.check and (
            known.method == "ceph" or (options.proof == "ceph" and known.method == "none")
        )
        if reading is None and asks:
            reasons.append(
                Reason(
                    "ceph_not_read",
                    "nothing was read of Ceph (option ceph), so the fence is not proven: give what "
                    "rbd_watcher_info returned",
                )
            )
        elif reading is not None or options.check or options.proof == "message":
            reasons += _doubts(known, reading, state, options) if reading else []
            proven = _proven(known, reading, state, options)
    if reasons:
        finding.refuse(*reasons)
        return Decision(Plan([finding]), known)
    if proven and (proven != known or not _is_noted(state, known)):
        finding.repair.append(_write(proven, options, "record_fence"))
    if not finding.repair:
        return Decision(Plan([]), known)
    finding.reason = f"{_why(known)}; " + (
        "the steps before have changed nothing, so nothing is proven"
        if options.check
        else "it is lost still"
    )
    return Decision(Plan([finding]), proven or known)


def not_standing(state: NodeState, options: Options) -> list[Reason]:
    """Why nothing may be done any more to bring the fence of the ledger about, with the next step;
    nothing if it may.
    """
    ledger = state.ledger
    reasons = [*not_lost(state, options), *_majority_lost(state, options), *_unfit(state, options)]
    if ledger is None:
        reasons.append(
            Reason(
                "fence_missing",
                f"node {options.node} has no ledger, so it is not decided whom to fence: run with "
                "state intended first",
            )
        )
    elif ledger.phase == "releasing":
        reasons.append(
            Reason(
                "fence_unfinished",
                f"the fence of node {options.node} is being released (run {ledger.run}, since "
                f"{ledger.at}): run from the start",
            )
        )
    elif state.host and (state.host.node.uid, state.host.boot_id) != (
        ledger.node_uid,
        ledger.boot_id,
    ):
        reasons.append(
            Reason(
                "node_rebooted",
                f"node {options.node} was booted, or its object recreated, since its fence was "
                f"intended (uid {state.host.node.uid}, bootID "
                f"{state.host.boot_id}): run again from the start",
            )
        )
    return reasons


def not_lost(state: NodeState, options: Options) -> list[Reason]:
    """Why the node does not count as lost, with the next step; nothing if it does."""
    fenced = (
        f". It has a fence (phase {state.ledger.phase}), which stays: {_RELEASE}"
        if state.ledger
        else ""
    )
    if state.host is None:
        # Its kubelet would recreate it, so one that was fenced and whose object was deleted is
        # lost still.
        return (
            []
            if state.ledger
            else [
                Reason(
                    "not_found", f"there is no node {options.node}: give the name of a Node object"
                )
            ]
        )
    node = state.host.node
    if node.ready == "True":
        return [
            Reason(
                "node_not_lost",
                f"node {node.name} is Ready, so it is not lost: drain it to move its pods{fenced}",
            )
        ]
    if node.ready == "False":
        return [
            Reason(
                "node_not_lost",
                f"node {node.name} is not lost: its kubelet is reporting (Ready=False), so its "
                "pods may be at work. Repair it, or power it off and wait until it is "
                f"Unknown{fenced}",
            )
        ]
    if node.ready != "Unknown":
        return [
            Reason(
                "evidence_contradicts",
                f"node {node.name} says Ready={node.ready}, which is unknown{fenced}",
            )
        ]
    seconds = age(state.now, node.ready_since)
    if seconds < options.grace_seconds:
        return [
            Reason(
                "node_not_lost",
                f"node {node.name} has been Unknown for {seconds:.0f} s only, and "
                f"{options.grace_seconds:g} s (grace_seconds) are asked for: it may be back at "
                f"once. Wait, and run again{fenced}",
            )
        ]
    return []


def _majority_lost(state: NodeState, options: Options) -> list[Reason]:
    """When most nodes are lost at once, it is rather the control plane that is."""
    nodes = [*([state.host] if state.host else []), *state.others]
    lost = [host for host in nodes if host.node.ready != "True"]
    if options.accept_majority or 2 * len(lost) <= len(nodes):
        return []
    return [
        Reason(
            "majority_broken",
            f"{len(lost)} of {len(nodes)} nodes are not Ready, so it is rather the control plane "
            "or its network that is cut off, and the nodes may be at work: find out, and set "
            "accept_majority if they really are lost",
        )
    ]


def _unfit(state: NodeState, options: Options) -> list[Reason]:
    """Why the ledger that is there keeps another fence off."""
    ledger = state.ledger
    if ledger is None or not _is_present(state, ledger):
        return []
    if ledger.method == "network_fence" and all(
        fence is None for _noted, fence, _problem in fences_of(state, ledger)
    ):
        return []  # what was to fence it is gone
    if options.method != "auto" and _STRENGTH.index(options.method) < _STRENGTH.index(
        ledger.method
    ):
        return [
            Reason(
                "fence_method_unfit",
                f"the fence of node {options.node} was begun by method {ledger.method}, not by "
                f"{options.method}: go on with {ledger.method} (or auto)",
            )
        ]
    return []


def _is_present(state: NodeState, ledger: Ledger) -> bool:
    """What the ledger says of the node's clients is about the present.

    Once the node has booted they are others, and may have other addresses; and what is being
    released may be gone from Ceph already.
    """
    return ledger.phase != "releasing" and (
        state.host is None or state.host.boot_id == ledger.boot_id
    )


class _Owner(NamedTuple):
    """The node that an address belongs to, and how a message calls it."""

    node: str
    title: str

    def __str__(self) -> str:
        return self.title


def _is_other(watcher: Watcher, options: Options) -> bool:
    """It is known to be no node's client: rbd-mirror, or what the user says is another host."""
    return watcher.mirror or watcher.address in options.other_addresses


def _owners(state: NodeState, images: Iterable[Image], options: Options) -> dict[str, _Owner]:
    """Whose address it is, but for this node's: by the status of the other nodes, by the
    NetworkFences that were prepared for them, by what ceph-csi noted when they staged an image, and
    by who has an image open that is not this node's.

    What this node's own status says takes no address from another one: its kubelet writes that.
    """
    images = tuple(images)
    owners = {
        address: _Owner(other.node.name, f"node {_title(other)}")
        for other in state.others
        for address in other.addresses
    }
    mine = state.host.addresses if state.host else ()
    for other in state.others:
        for fence in _fences_for(state, other.node.name):
            single = [str(it.network_address) for it in networks(fence.cidrs) if _is_single(it)]
            for address in [*single, *(it for it in mine if covers(fence, it))]:
                title = f"node {other.node.name} (by NetworkFence {fence.name})"
                owners.setdefault(address, _Owner(other.node.name, title))
    confirmed = _confirmed(state, images, options)
    there = {other.node.name for other in state.others}
    for image in images:
        for found in image.client_addresses:
            # A note outlives its node, and its node's address.
            if found.node in there and not (found.address in mine and found.address in confirmed):
                owners.setdefault(
                    found.address,
                    _Owner(found.node, f"node {found.node} (noted by ceph-csi on {image.title})"),
                )
    for image in _images_of_others(state, images):
        for watcher in image.watchers:
            if watcher.address not in confirmed and not _is_other(watcher, options):
                title = (
                    f"{watcher.title}, which has {image.title} open, an image that is not node "
                    f"{options.node}'s"
                )
                owners.setdefault(watcher.address, _Owner("", title))
    return owners


def _confirmed(state: NodeState, images: Iterable[Image], options: Options) -> set[str]:
    """The addresses that are this node's by another word than its kubelet's."""
    ledger = state.ledger
    return {
        *(
            found.address
            for image in images
            for found in image.client_addresses
            if found.node == options.node
        ),
        *options.fence_addresses,
        *(
            str(network.network_address)
            for fence in _fences_for(state, options.node)
            if fence.addresses_from in KNOWN_ADDRESSES
            for network in networks(fence.cidrs)
            if _is_single(network)
        ),
        *(ledger.addresses if ledger and _is_present(state, ledger) else ()),
    }


def _images_of_others(state: NodeState, images: Iterable[Image]) -> list[Image]:
    """Those that this node has no reason to have open."""
    held = {found.name for found in state.held}
    held |= set(state.ledger.volumes if state.ledger else ())
    return [image for image in images if image.volume and image.volume not in held]


def _fences_for(state: NodeState, node: str) -> list[NetworkFence]:
    """Those that were prepared for this node, by their names."""
    names = (node, f"storage-ops-{node}")
    return [fence for fence in state.fences or () if fence.name in names]


def _is_single(network: Network) -> bool:
    return network.num_addresses == 1


class _Holder(NamedTuple):
    """Who has an image open, or a lock on it.

    ``how``: "watcher" or "lock"; ``client``: as client.NUMBER.
    """

    image: Image
    how: str
    address: str
    entry: str
    client: str

    @property
    def title(self) -> str:
        """As a message names it."""
        return f"{self.entry} ({self.client})"

    @property
    def does(self) -> str:
        """What it does to the image, as a message says it."""
        return f"{'holds' if self.how == 'watcher' else 'has a lock on'} {self.image.title}"


@dataclass
class _Case:
    """The evidence about one node, put together step by step; each step leaves its reasons to
    refuse.
    """

    state: NodeState
    options: Options
    reasons: list[Reason] = field(default_factory=list)
    # Address, and how it is known: the first source counts.
    source: dict[str, str] = field(default_factory=dict)
    # Of the addresses of the node, those that are not fenced, and why.
    spared: dict[str, str] = field(default_factory=dict)
    # Who has the images that are meant, as far as the ledger does not have them already.
    holders: list[_Holder] = field(default_factory=list)

    def __post_init__(self) -> None:
        state, options, ledger = self.state, self.options, self.state.ledger
        # What is fenced already; and what was fenced before the node booted, or is being released:
        # that is no evidence, but ours still.
        self.known = ledger if ledger and _is_present(state, ledger) else None
        self.old = None if self.known else ledger
        self.rbd = [found for found in state.held if found.is_rbd]
        self.meant = [found for found in self.rbd if options.cluster_id in ("", found.cluster_id)]
        self.beside = [found for found in self.rbd if found not in self.meant]
        self.cluster_ids = {found.cluster_id for found in self.meant}
        if self.known:
            self.cluster_ids |= set(self.known.cluster_id.split(","))
        images = options.reading.images if options.reading else ()
        names = {found.name for found in self.meant}
        self.images = [image for image in images if image.volume in names]
        # What ceph-csi noted of this node on any image of its.
        self.noted = {
            found.address
            for image in images
            for found in image.client_addresses
            if found.node == options.node
        }
        self.own = state.host.addresses if state.host else ()
        self.owners = _owners(state, images, options)

    @property
    def evidence(self) -> dict[str, object]:
        """What was read, for the finding."""
        state = self.state
        watchers = [
            f"{image.title}: {watcher.title}, {_seen(watcher, self.options)}"
            for image in self.images
            for watcher in image.watchers
        ]
        reading = self.options.reading
        return {
            "ready": state.host.node.ready if state.host else "no such node",
            "unknown_seconds": age(state.now, state.host.node.ready_since)
            if state.host and state.host.node.ready == "Unknown"
            else 0,
            "node_uid": state.host.node.uid if state.host else "",
            "node_created": iso(state.host.created)
            if state.host and state.host.created
            else "unknown",
            "boot_id": state.host.boot_id if state.host else "",
            "volumes": [
                f"{found.name} ({found.claim or 'no claim'})"
                + ("" if found.attachment.name else ", not attached any more")
                for found in self.meant
            ],
            "observations": f"{reading.observations} in {reading.seconds:g} s"
            if reading
            else "none",
            "watchers": watchers,
            "locks": [
                f"{image.title}: {lock.entry} ({lock.locker})"
                for image in self.images
                for lock in image.locks
            ],
            "addresses": dict(self.source),
            **({"not_fenced": dict(self.spared)} if self.spared else {}),
            "cordoned_before": bool(state.host and state.host.node.unschedulable),
            **({"ledger": state.ledger.to_dict()} if state.ledger else {}),
        }

    def judge(self) -> Ledger | None:
        """The ledger of the fence; None when it is refused, with the reasons."""
        for step in (
            self._check_volumes,
            self._check_reading,
            self._find_addresses,
            self._check_addresses,
        ):
            step()
            if self.reasons:
                return None
        method = self._choose_method()
        if method != "none" and self.source:
            self._widen(method)
            self._check_visitors()
        fences = self._covering() if method == "network_fence" else []
        if method == "network_fence":
            self._check_fences(fences)
        self._check_silent(method)
        self._check_ledgers(method)
        return None if self.reasons else self._make_ledger(method, fences)

    # what is to be fenced

    def _check_volumes(self) -> None:
        options, node = self.options, self.options.node
        if self.known:
            return
        drivers = sorted({found.attachment.driver for found in self.state.held})
        if not self.meant:
            meant = f" of cluster_id {options.cluster_id}" if options.cluster_id else ""
            self.reasons.append(
                Reason(
                    "nothing_to_repair",
                    f"no RBD volume{meant} is attached to node {node}, or used there without, so "
                    "there is nothing to fence; the drivers of what is attached are "
                    f"{', '.join(drivers) or 'none'}",
                )
            )

    def _check_reading(self) -> None:
        reading = self.options.reading
        if reading is None:
            return
        before = self.state.ledger
        self.reasons += stale(
            reading,
            self.state.now,
            before.fsid if before and (self.known or before.entries) else "",
        )
        # What is added to a fence needs the same evidence as a new one.
        if not self.known or {found.name for found in self.meant} - set(self.known.volumes):
            self._check_length()
        for found in self.meant:
            image = next((image for image in self.images if image.volume == found.name), None)
            if image is None:
                self.reasons.append(
                    Reason(
                        "ceph_not_read",
                        f"volume {found.name} is not in what was read of Ceph (option ceph), so "
                        "it may be held by anybody: read it too",
                    )
                )
            elif image.problem:
                self.reasons.append(
                    Reason(
                        "ceph_not_read",
                        f"image {image.title} of volume {found.name} could not be read: "
                        f"{image.problem}",
                    )
                )

    # whom to fence

    def _find_addresses(self) -> None:
        """By image: who holds it or has a lock on it, else what ceph-csi noted; and in any case
        what the user says.
        """
        known = self.known
        self.holders = [found for image in self.images for found in self._holders(image)]
        certain = {
            *self.noted,
            *self.options.fence_addresses,
            *self._prepared(),
            *(known.addresses if known else ()),
        }
        mine = certain | set(self.own)
        others = sorted(mine & set(self.options.other_addresses))
        if others:
            self.reasons.append(
                Reason(
                    "bad_option",
                    f"other_addresses has {', '.join(others)}, which is an address of node "
                    f"{self.options.node}: it is for hosts that are not",
                )
            )
        if self.options.node_confirmed_off:
            self._check_off(mine)
        for holder in self.holders:
            self._check_holder(holder, mine)
        counting = self._counting()
        self._check_strangers(counting, mine, bool(certain))
        self._check_claims(counting, certain)
        if known:
            self.source.update(
                {address: known.source.get(address, "ledger") for address in known.addresses}
            )
        for holder in self.holders:
            self.source.setdefault(holder.address, holder.how)
        for image in self.images:
            for found in image.client_addresses if not self._clients(image) else ():
                if found.node == self.options.node:
                    self.source.setdefault(found.address, "metadata")
        for address in self.options.fence_addresses:
            self.source.setdefault(address, "fence_addresses")
        for address in (*self.own, *sorted(self.noted)):
            if self._is_blocked_by_hand(address):
                self.source.setdefault(address, "blocklist")
        if not self.source:
            self.source.update(dict.fromkeys(self._prepared(), "network_fence"))
        if known and (self.holders or set(self.source) - set(known.addresses)):
            self._check_length()

    def _is_blocked_by_hand(self, address: str) -> bool:
        """An operator has put exactly this address on the blocklist.

        What a fence before has left there says nothing about now.
        """
        left = {
            entry.entry
            for entry in (self.state.ledger.entries if self.state.ledger else ())
            if entry.ours
        }
        found = self.options.reading.find(address) if self.options.reading else None
        return (
            found is not None
            and found.spelling not in left
            and address not in left
            and address not in self.owners
        )

    def _widen(self, method: str) -> None:
        """Add every other address of the node, since a client that hangs is seen nowhere. Not what
        is another node's too.

        What this method cannot fence is left out: then it is no fence of the whole node, and
        ``spared`` says why.
        """
        covering = [fence for fence in self.state.fences or () if self._same_ceph(fence)]
        ways = {
            "status": self.own,
            "metadata": sorted(self.noted),
            "network_fence": self._prepared(),
        }
        for how, addresses in ways.items():
            for address in addresses:
                if address in self.source:
                    continue
                by = [fence.name for fence in covering if covers(fence, address)]
                if address in self.owners:
                    self.spared[address] = f"is that of {self.owners[address]} too"
                elif method == "network_fence" and not by:
                    self.spared[address] = "is covered by no NetworkFence"
                elif method == "ceph" and by:
                    self.spared[address] = (
                        f"is covered by NetworkFence {', '.join(by)}, whose controller undoes what "
                        "others write"
                    )
                elif any(ip_address(address) in network for network in self.options.protected):
                    self.spared[address] = "is one of protected_addresses"
                else:
                    self.source[address] = how

    def _check_silent(self, method: str) -> None:
        """What is open nowhere that is known may be open at any address of the node, so all of them
        have to be fenced for it.
        """
        images = {image.volume: image for image in self.images}
        before = set(self.known.volumes) if self.known else set()
        silent = [
            found
            for found in self.meant
            if found.name not in before and not self._is_shown(images.get(found.name))
        ]
        made = self.state.host.created if self.state.host else None
        older = [
            found.name
            for found in silent
            if made and found.attachment.created and found.attachment.created < made
        ]
        if older:
            self.reasons.append(
                Reason(
                    "fence_incomplete",
                    f"{', '.join(older)} was attached before this Node object was made "
                    f"({made:%Y-%m-%dT%H:%M:%SZ}), and nothing shows from where it is held: the "
                    f"machine that was {self.options.node} before may have it, at an unknown "
                    "address. Prove that this one is off and delete the attachment by hand, or "
                    "leave the volume out (claims)",
                )
            )
        # The driver says itself by which addresses the node reaches Ceph.
        prepared = set(self._prepared())
        reported = method == "network_fence" and bool(prepared) and prepared <= set(self.source)
        # Once its Node object is gone, what was left out when the ledger was written is unknown.
        is_whole = bool(self.own) and (not self.spared or reported)
        if silent and method != "none" and self.source and not is_whole:
            names = ", ".join(found.name for found in silent)
            left = "; ".join(f"{address} {why}" for address, why in self.spared.items())
            self.reasons.append(
                Reason(
                    "fence_incomplete",
                    f"nothing shows from where {names} is held (no watcher, no lock, no note of "
                    "ceph-csi), so it needs the fence of the whole node, which is not to be had "
                    f"({left or 'its Node object has no addresses'}): prove that the node is off "
                    "and use method none with node_confirmed_off",
                )
            )

    def _is_shown(self, image: Image | None) -> bool:
        """There is evidence of its own from where the node has it open."""
        if image is None:
            return False
        noted = any(
            found.node == self.options.node and found.address in self.source
            for found in image.client_addresses
        )
        return (
            noted
            or any(holder.image is image for holder in self.holders)
            or any(self._has(found.address) for found in self._clients(image))
        )

    def _clients(self, image: Image) -> list[_Holder]:
        """Those that have the image open all the time, or a lock on it, but for who is known to be
        no node.
        """
        others = self.options.other_addresses
        held = [
            watcher
            for watcher in image.watchers
            if watcher.persistent and not _is_other(watcher, self.options)
        ]
        found = [
            _Holder(image, "watcher", watcher.address, watcher.entry, watcher.client)
            for watcher in held
        ]
        locks = [lock for lock in image.locks if lock.address not in others]
        return found + [
            _Holder(image, "lock", lock.address, lock.entry, lock.locker) for lock in locks
        ]

    def _holders(self, image: Image) -> list[_Holder]:
        """Of these, none that the ledger has already, and none of another node that has the volume
        by right.
        """
        return [
            holder
            for holder in self._clients(image)
            if not self._has(holder.address) and not self._is_elsewhere(image, holder.address)
        ]

    def _has(self, address: str) -> bool:
        """The ledger means this client already."""
        return self.known is not None and address in self.known.addresses

    def _is_elsewhere(self, image: Image, address: str) -> bool:
        """That is of another node which has the volume by right: it is attached there now, or was
        until that was fenced.

        Either it is not attached here any more, or several nodes may have it at once.
        """
        volume = next(found for found in self.meant if found.name == image.volume)
        owner = self.owners.get(address)
        theirs = {found.node for found in volume.elsewhere}
        theirs |= {
            other.node
            for other in self.state.ledgers
            if volume.name in other.volumes and other.reached("fenced")
        }
        is_free = not volume.attachment.name or volume.is_shared
        return is_free and owner is not None and owner.node in theirs

    def _check_off(self, mine: set[str]) -> None:
        alive = [
            f"{holder.title} on {holder.image.title}"
            for holder in self.holders
            if holder.how == "watcher"
        ]
        alive += [
            f"{watcher.title} on {image.title}"
            for image in self.images
            for watcher in image.watchers
            if not watcher.persistent
            and watcher.address in mine
            and not _is_other(watcher, self.options)
        ]
        if alive:
            self.reasons.append(
                Reason(
                    "evidence_contradicts",
                    f"node {self.options.node} is said to be off (node_confirmed_off), but its "
                    f"images are held: {', '.join(alive)}. What is off holds nothing 30 s later, "
                    "so it is not off, or another client holds them: find out who, and fence "
                    "without node_confirmed_off",
                )
            )

    def _check_holder(self, holder: _Holder, mine: set[str]) -> None:
        what = f"{holder.title} {holder.does} of {holder.image.volume}"
        owner = self.owners.get(holder.address)
        volume = next(found for found in self.meant if found.name == holder.image.volume)
        elsewhere = [found.node for found in volume.elsewhere]
        if owner:
            self.reasons.append(
                Reason(
                    "fence_shared",
                    f"{what}, and its address {holder.address} is that of {owner}, which a fence "
                    "would hit: find out what uses the image there",
                )
            )
        elif holder.address not in mine and elsewhere:
            # Whoever was late has fenced the new node before.
            self.reasons.append(
                Reason(
                    "client_unknown",
                    f"{what}, but the volume is attached to {', '.join(elsewhere)} too, and it is "
                    f"unknown whose address {holder.address} is: it may be that node's. If it is "
                    f"{self.options.node}'s, name it in fence_addresses",
                )
            )

    def _counting(self) -> list[_Holder]:
        """The holders for whom something would be fenced."""
        # What is off leaves its locks behind, and with method none nothing is fenced for them.
        method = (
            self.known.method
            if self.known and self.options.method == "auto"
            else self.options.method
        )
        is_none = self.options.node_confirmed_off and method == "none"
        return [found for found in self.holders if not (is_none and found.how == "lock")]

    def _check_claims(self, counting: list[_Holder], certain: set[str]) -> None:
        """Of several addresses that hold its images, the node's kubelet does not say which are the
        node's: one may be that of a host that is none, as for backups.
        """
        claimed = sorted({found.address for found in counting} & set(self.own) - certain)
        if claimed and len({found.address for found in counting}) > 1:
            seen = "; ".join(dict.fromkeys(f"{found.title} {found.does}" for found in counting))
            self.reasons.append(
                Reason(
                    "client_unknown",
                    f"several addresses hold what is attached to node {self.options.node}, and "
                    f"only the status of node {self.options.node} says that {', '.join(claimed)} "
                    f"is its own, which its kubelet writes. Who is where: {seen}. Find out whose "
                    "it is: if it is this node's, name it in fence_addresses; if it is that of a "
                    "host that is no node, as for backups, in other_addresses",
                )
            )

    def _check_strangers(self, counting: list[_Holder], mine: set[str], is_certain: bool) -> None:
        """Whoever is at an address that nothing says is the node's is not taken for it."""
        strange = {
            found.address: found
            for found in counting
            if found.address not in mine and found.address not in self.owners
        }
        if strange and (is_certain or not self._is_agreed(set(strange))):
            who = ", ".join(dict.fromkeys(found.title for found in strange.values()))
            seen = "; ".join(dict.fromkeys(f"{found.title} {found.does}" for found in counting))
            self.reasons.append(
                Reason(
                    "client_unknown",
                    f"{who} holds what is attached to node {self.options.node}, at an address "
                    "that nothing says is this node's (known: "
                    f"{', '.join(sorted(mine)) or 'none'}). Who is where: {seen}. Find out whose "
                    "it is: if it is this node's, name it in fence_addresses; if it is that of a "
                    "host that is no node, as for backups, in other_addresses",
                )
            )

    def _is_agreed(self, addresses: set[str]) -> bool:
        """All that is seen of the node's images is at this one address, where the owner of a lock
        has its image open too.

        Who has the lock is who writes, and no other node may: none of the volumes is attached
        elsewhere.
        """
        watching = {
            (holder.image.title, holder.entry) for holder in self.holders if holder.how == "watcher"
        }
        locked = {
            (holder.image.title, holder.entry) for holder in self.holders if holder.how == "lock"
        }
        return (
            len(addresses) == 1
            and bool(watching & locked)
            and all(holder.address in addresses for holder in self.holders)
            and all(found.attachment.name and not found.elsewhere for found in self.rbd)
        )

    def _prepared(self) -> list[str]:
        """The addresses of the NetworkFences that were made for this node, if they are more than
        what Kubernetes calls the node.
        """
        mine = [
            fence for fence in _fences_for(self.state, self.options.node) if self._same_ceph(fence)
        ]
        found = [
            network
            for fence in mine
            if fence.addresses_from in KNOWN_ADDRESSES
            for network in networks(fence.cidrs)
        ]
        return [str(network.network_address) for network in found if _is_single(network)]

    def _check_length(self) -> None:
        reading, options = self.options.reading, self.options
        least = (2, 0.0) if options.accept_short_observation else (_LEAST_LOOKS, _LEAST_SECONDS)
        if reading and (reading.observations < least[0] or reading.seconds < least[1]):
            self.reasons.append(
                Reason(
                    "observation_too_short",
                    f"Ceph was looked at {reading.observations} times in {reading.seconds:g} s, "
                    f"and {least[0]} times in {least[1]:g} s are needed, since only a client that "
                    "stays is evidence: read it again with observations and observation_seconds of "
                    "rbd_watcher_info",
                )
            )

    def _check_addresses(self) -> None:
        for address, source in self.source.items():
            owner = self.owners.get(address)
            if owner:
                self.reasons.append(
                    Reason(
                        "fence_shared",
                        f"address {address} ({source}) is that of {owner} too, which a fence would "
                        "hit: find out which of them Ceph sees there",
                    )
                )
            if any(ip_address(address) in network for network in self.options.protected):
                self.reasons.append(
                    Reason(
                        "address_protected",
                        f"address {address} ({source}) is one of "
                        "protected_addresses, which are never fenced",
                    )
                )
        for left in self._left():
            owner = self.owners.get(left.entry)
            if owner:
                self.reasons.append(
                    Reason(
                        "ceph_entry_left",
                        f"Ceph's blocklist still has {left.entry}, from a fence before, and that "
                        f"is the address of {owner} now: remove it (ceph_blocklist with state "
                        "absent), and run again",
                    )
                )

    def _check_visitors(self) -> None:
        """Who comes and goes where the fence would hit is rather a healthy node than the lost one.

        And where nothing would be fenced it may be the lost one, whose connection comes and goes.
        """
        added = set(self.source) - set(self.known.addresses if self.known else ())
        staying = {
            watcher.client
            for image in self.images
            for watcher in image.watchers
            if watcher.persistent
        }
        for image in self.images:
            for watcher in image.watchers:
                comes = (
                    not watcher.persistent
                    and not _is_other(watcher, self.options)
                    and watcher.client not in staying
                )
                if comes and watcher.address in added:
                    self.reasons.append(
                        Reason(
                            "fence_shared",
                            f"{watcher.title} comes and goes on {image.title} at an address that "
                            "would be fenced, as a healthy node does that tries to stage the "
                            f"volume: if several nodes reach Ceph from one address (NAT), {_POWER}",
                        )
                    )
                elif comes and self._is_outside(watcher.address) and self._is_only_here(image):
                    self.reasons.append(
                        Reason(
                            "client_unknown",
                            f"{watcher.title} comes and goes on {image.title}, which no other "
                            "node has, at an address that would not be fenced: a node whose "
                            "connection is bad looks like this, too. Find out whose it is: if it "
                            "is this node's, name it in fence_addresses; if it is that of a host "
                            "that is no node, in other_addresses; or run again",
                        )
                    )

    def _is_outside(self, address: str) -> bool:
        """It would not be fenced, and is not known to be another node's."""
        return address not in self.source and address not in self.owners

    def _is_only_here(self, image: Image) -> bool:
        """The volume is attached to no other node, so none tries to stage it."""
        volume = next(found for found in self.meant if found.name == image.volume)
        return not volume.elsewhere and not volume.is_shared

    # by what means

    def _same_ceph(self, fence: NetworkFence) -> bool:
        return may_act_on(
            fence, {found.attachment.driver for found in self.meant}, self.cluster_ids
        )

    def _covering(self) -> list[NetworkFence]:
        """Every NetworkFence that covers an address and is, or may be, of this Ceph.

        All of them have to be Fenced: for one that is Unfenced, its controller takes the fence back
        whenever it starts.
        """
        mine = [fence for fence in self.state.fences or () if self._same_ceph(fence)]
        return [fence for fence in mine if any(covers(fence, address) for address in self.source)]

    def _choose_method(self) -> str:
        options, wanted = self.options, self.options.method
        covering = [fence.name for fence in self._covering()]
        if self.known and wanted == "auto":
            # One that was made afterwards takes what was put into the blocklist away whenever its
            # controller starts.
            wanted = (
                "network_fence" if covering and self.known.method == "ceph" else self.known.method
            )
            if wanted == "network_fence" and not covering:
                wanted = "ceph"
        if wanted == "none":
            if not options.node_confirmed_off:
                self.reasons.append(
                    Reason(
                        "consent_required",
                        "method none fences nothing: it is for a node that is proven to be off. "
                        f"Set node_confirmed_off once {options.node} is, by its power supply or "
                        "its hypervisor",
                    )
                )
            return wanted
        if not self.source:
            before = (
                f". The fence before the node booted had {', '.join(self.old.addresses)}"
                if self.old and self.old.addresses
                else ""
            )
            self.reasons.append(
                _UNREAD
                if options.reading is None
                else Reason("address_unknown", _UNKNOWN.format(options.node) + before)
            )
            return wanted
        if wanted == "network_fence" and self.state.fences is None:
            self.reasons.append(
                Reason(
                    "fence_method_unfit",
                    "this cluster has no NetworkFences, since CSI-Addons "
                    "is not installed: use method ceph",
                )
            )
        elif wanted == "ceph" and covering:
            self.reasons.append(
                Reason(
                    "fence_method_unfit",
                    f"NetworkFence {', '.join(covering)} covers {', '.join(self.source)}, and its "
                    "controller undoes what others write into the blocklist: "
                    "use method network_fence (or auto)",
                )
            )
        elif wanted == "auto":
            wanted = "network_fence" if covering else "ceph"
        if wanted == "ceph" and options.reading is None:
            self.reasons.append(_UNREAD)
        return wanted

    def _check_fences(self, fences: list[NetworkFence]) -> None:
        for cluster_id in sorted(self.cluster_ids):
            mine = [fence for fence in fences if fence.cluster_id == cluster_id or not cluster_id]
            bare = [
                address
                for address in self.source
                if not any(covers(fence, address) for fence in mine)
            ]
            if bare and self.state.fences is not None:
                self.reasons.append(
                    Reason(
                        "network_fence_unfit",
                        f"no NetworkFence of clusterID {cluster_id or 'unknown'} covers "
                        f"{', '.join(bare)}: prepare one (playbook "
                        "storage_ops.runbooks.prepare_network_fences) while "
                        "nodes are Ready, or use method ceph",
                    )
                )
        for fence in fences:
            problem = undecidable(fence)
            if problem:
                self.reasons.append(Reason("network_fence_unfit", problem))
            if fence.deleted or not fence.cluster_id:
                what = (
                    "is being deleted"
                    if fence.deleted
                    else "does not say of which clusterID it is (is its class missing?)"
                )
                self.reasons.append(
                    Reason(
                        "network_fence_unfit",
                        f"NetworkFence {fence.name} {what}: repair it, and run again",
                    )
                )
            hit = {owner.title for address, owner in self.owners.items() if covers(fence, address)}
            hit |= {
                f"node {other.node}, which has a fence"
                for other in self.state.ledgers
                for it in other.addresses
                if covers(fence, it)
            }
            hit |= {
                f"{network} of protected_addresses"
                for network in self.options.protected
                if _overlaps(fence, network)
            }
            if hit:
                self.reasons.append(
                    Reason(
                        "fence_shared",
                        f"NetworkFence {fence.name} ({', '.join(fence.cidrs)}) covers "
                        f"{', '.join(sorted(hit))} too: a fence is for one node",
                    )
                )

    def _check_ledgers(self, method: str) -> None:
        """What two fences share would go with the one that is released first."""
        mine = set(self.source) - set(self.known.addresses if self.known else ())
        for other in self.state.ledgers:
            theirs = set(other.addresses)
            shared = sorted(mine & theirs)
            shared += sorted(
                address
                for address in mine - theirs
                if any(covers(found, address) for found in other.network_fences)
            )
            if shared and method != "none":
                self.reasons.append(
                    Reason(
                        "fence_shared",
                        f"{', '.join(shared)} is in the ledger of node {other.node} too (phase "
                        f"{other.phase}), and would go when that is given back: give {other.node} "
                        f"back first; if both reach Ceph from one address (NAT), {_POWER}",
                    )
                )

    # what is written

    def _make_ledger(self, method: str, fences: list[NetworkFence]) -> Ledger:
        state, options, known, reading, host = (
            self.state,
            self.options,
            self.known,
            self.options.reading,
            self.state.host,
        )
        before = state.ledger
        addresses = tuple(self.source) if method != "none" else ()
        uid = host.node.uid if host else (before.node_uid if before else "")
        same_object = before if before and before.node_uid == uid else None
        cluster_ids = {*(before.cluster_id.split(",") if before else ()), *self.cluster_ids}
        ledger = Ledger(
            node=options.node,
            node_uid=uid,
            boot_id=host.boot_id if host else (before.boot_id if before else ""),
            method=method,
            phase="intended",
            cluster_id=",".join(sorted(filter(None, cluster_ids))),
            fsid=(before.fsid if before and (known or self._left()) else "")
            or (reading.fsid if reading else ""),
            addresses=addresses,
            entries=self._entries(method, addresses),
            network_fences=self._objects(fences),
            source={address: self.source[address] for address in addresses},
            volumes=self._volumes(),
            unverified=known.unverified if known else method != "ceph" and reading is None,
            cordoned=bool(same_object and same_object.cordoned)
            or bool(host and not host.node.unschedulable),
            tainted=bool(same_object and same_object.tainted),
            by=options.by,
            run=options.run,
            at=iso(state.now),
            revision=before.revision if before else 0,
            # The machine that was fenced first, should another one have the node's name by now: its
            # fence must not go with that one's.
            machine=(before.machine if before else "") or (host.machine if host else ""),
            namespace=options.namespace,
        )
        if known is None:
            return ledger
        # What is only about who writes when is no change; and what adds nothing to the fence leaves
        # it proven.
        kept = ledger._replace(by=known.by, run=known.run, at=known.at, phase=known.phase)
        if kept == known:
            return known
        same = (
            kept._replace(cordoned=known.cordoned, machine=known.machine, namespace=known.namespace)
            == known
        )
        return ledger._replace(phase=known.phase) if same else ledger

    def _volumes(self) -> tuple[str, ...]:
        """Those that are meant, and those of the ledger.

        But not what was fenced before the node booted, and is there again: it was not judged since.
        """
        before = set(self.state.ledger.volumes) if self.state.ledger else set()
        if self.old:
            before -= {found.name for found in self.state.held}
        return tuple(sorted(before | {found.name for found in self.meant}))

    def _left(self) -> tuple[Entry, ...]:
        """What a fence before has left in the blocklist: it stays ours, so that it goes with this
        one's release.
        """
        reading = self.options.reading
        before = self.old.entries if self.old else ()
        return tuple(
            entry
            for entry in before
            if entry.ours and (reading is None or reading.blocks(entry.entry))
        )

    def _entries(self, method: str, addresses: tuple[str, ...]) -> tuple[Entry, ...]:
        before = self.known.entries if self.known else self._left()
        known = {entry.entry: entry for entry in before}
        wanted = {entry.entry: entry.kind for entry in before}
        if method == "ceph":
            wanted.update(dict.fromkeys(addresses, "address"))
        # Whose it is may change only where it is written again.
        fixed = {
            entry
            for entry in known
            if known[entry].ours or method != "ceph" or self.options.reading is None
        }
        return tuple(
            known[entry] if entry in fixed else self._entry(entry, kind)
            for entry, kind in wanted.items()
        )

    def _entry(self, entry: str, kind: str) -> Entry:
        """One that was there before is ours once it is renewed; without that it outlasts ours, and
        stays whose it is.
        """
        there = self.options.reading.find(entry) if self.options.reading else None
        until = moment(there.until) if there else None
        if (
            there
            and until
            and (until - self.state.now).total_seconds() >= _RENEWED * self.options.expiry_seconds
        ):
            return Entry(entry, kind, False, there.until)
        end = iso(self.state.now + timedelta(seconds=self.options.expiry_seconds))
        return Entry(entry, kind, True, end, there.until if there else "")

    def _objects(self, fences: list[NetworkFence]) -> tuple[FenceObject, ...]:
        before = self.state.ledger.network_fences if self.state.ledger else ()
        if self.old:
            # What is unfenced for good, or gone, is released.
            held = {
                fence.uid
                for fence in self.state.fences or ()
                if fence.state == FENCED or not fence.settled
            }
            before = tuple(found for found in before if found.uid in held and found.ours)
        known = {found.uid: found for found in before}
        for fence in fences:
            known.setdefault(
                fence.uid, FenceObject(fence.name, fence.uid, fence.cidrs, fence.state != FENCED)
            )
        return tuple(known.values())


def is_alone(state: NodeState, ledger: Ledger) -> bool:
    """No other node can have a volume of the fence yet: all of them are attached here, and nowhere
    else.
    """
    here = {found.name for found in state.attached if not found.elsewhere}
    return not state.used and set(ledger.volumes) <= here


# what proves it


def _names_somebody(ledger: Ledger) -> bool:
    if ledger.method == "ceph":
        return bool(ledger.addresses and ledger.entries)
    return bool(ledger.addresses) and all(
        any(covers(found, address) for found in ledger.network_fences)
        for address in ledger.addresses
    )


def _undone(state: NodeState, ledger: Ledger) -> tuple[list[NetworkFence], list[Reason]]:
    """The NetworkFences of the ledger whose controller has not fenced yet, and what is wrong with
    them.
    """
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


def _opposed(state: NodeState, ledger: Ledger) -> list[Reason]:
    """NetworkFences that were made since, and take the fence back whenever their
    controller starts.
    """
    drivers = {found.attachment.driver for found in state.held if found.name in ledger.volumes}
    return [
        Reason(
            "network_fence_opposed",
            f"NetworkFence {fence.name} covers {', '.join(ledger.addresses)} and is Unfenced, so "
            "its controller may take the fence away: run again from the start with method auto, "
            "which fences by it",
        )
        for fence in opposing(state, ledger, drivers)
    ]


def _doubts(ledger: Ledger, reading: Reading, state: NodeState, options: Options) -> list[Reason]:
    """What contradicts the fence, or does not prove it."""
    doubts = missing(ledger, reading, state.now)
    owners = _owners(state, reading.images, options)
    # What was detached by force, another node may open at once, from an address that is unknown.
    here = {found.name for found in state.attached}
    covered = [image for image in reading.images if image.volume in ledger.volumes]
    read = {image.volume for image in covered}
    doubts += [
        Reason(
            "ceph_not_read",
            f"volume {found.name} is not in what was read of Ceph, so whether it is still held is "
            "not known: read it too",
        )
        for found in state.held
        if found.name in ledger.volumes and found.name not in read
    ]
    for image in covered:
        if image.problem:
            doubts.append(
                Reason(
                    "ceph_not_read",
                    f"image {image.title} of volume {image.volume} could not be read: "
                    f"{image.problem}",
                )
            )
        for watcher in image.watchers:
            if _should_be_gone(watcher, ledger, state, options):
                doubts.append(
                    Reason(
                        "ceph_watcher_left",
                        f"{watcher.title} still holds {image.title} of volume {image.volume}: its "
                        "watch must be gone before anything is detached",
                    )
                )
            elif _is_unknown(watcher, owners, options) and image.volume in here:
                # Once is enough. No other node can stage it, so a client that comes and goes may be
                # the lost node with a bad connection; the decision refuses such a one too.
                doubts.append(
                    Reason(
                        "client_unknown",
                        f"{watcher.title} holds {image.title} of volume {image.volume}, and nobody "
                        f"knows whose it is, so it may be node {options.node}: find out; if it is, "
                        "name its address in fence_addresses and run again from the start",
                    )
                )
    return doubts


def _should_be_gone(watcher: Watcher, ledger: Ledger, state: NodeState, options: Options) -> bool:
    """It is a client of the node."""
    mine = {*(state.host.addresses if state.host else ()), *options.fence_addresses} - set(
        _owners(state, (), options)
    )
    return watcher.address in mine | set(ledger.addresses)


def _is_unknown(watcher: Watcher, owners: Mapping[str, _Owner], options: Options) -> bool:
    """It may be anybody."""
    return watcher.address not in owners and not _is_other(watcher, options)


def _proven(ledger: Ledger, reading: Reading | None, state: NodeState, options: Options) -> Ledger:
    """The ledger once the fence is there."""
    entries = []
    for entry in ledger.entries:
        found = reading.find(entry.entry) if reading else None
        entries.append(entry._replace(until=found.until) if found else entry)
    phase = ledger.phase if ledger.reached("fenced") else "fenced"
    unverified = ledger.unverified if options.check else reading is None
    proven = ledger._replace(
        phase=phase,
        entries=tuple(entries),
        unverified=unverified,
        fsid=ledger.fsid or (reading.fsid if reading else ""),
    )
    return (
        ledger
        if proven == ledger
        else proven._replace(by=options.by, run=options.run, at=iso(state.now))
    )


# small things


def _finding(state: NodeState, options: Options, evidence: dict[str, object]) -> Finding:
    held = [found.name for found in state.held if found.is_rbd]
    ready = state.host.node.ready if state.host else "gone"
    since = state.host.node.ready_since if state.host else None
    is_ready = "Ready" if ready == "True" else "not Ready" if ready == "False" else ready
    summary = (
        f"node {options.node} is {is_ready}{f' since {iso(since)}' if since else ''} and has "
        f"{len(held)} RBD volumes"
    )
    return Finding(
        control="STOR-16",
        severity="critical",
        kind="Node",
        name=options.node,
        node=options.node,
        summary=summary,
        verdict="repair",
        reason="",
        runbook=RUNBOOK,
        evidence={**evidence, "aside": _ASIDE},
        named=True,
    )


def _is_noted(state: NodeState, ledger: Ledger) -> bool:
    """The note on the node is there and the newest, which it is not after a run that was killed
    before, or when it was deleted.
    """
    if state.item is None or state.item["metadata"]["uid"] != ledger.node_uid:
        return True
    return read_note(state.item).text == ledger.text


def _write(ledger: Ledger, options: Options, verb: str) -> Action:
    where = config_map_path(options.node, options.namespace)
    return Action(
        verb,
        options.node,
        ["PATCH", where, f"phase={ledger.phase}", f"method={ledger.method}"],
        Subject(ledger),
    )


def _why(ledger: Ledger) -> str:
    if ledger.method == "none":
        return "it is said to be off, so nothing is fenced (method none)"
    how = "by its NetworkFence" if ledger.method == "network_fence" else "in Ceph's blocklist"
    known = ", ".join(
        f"{address} ({ledger.source.get(address, 'ledger')})" for address in ledger.addresses
    )
    return f"{known} is fenced {how}"


def _seen(watcher: Watcher, options: Options) -> str:
    who = (
        ", rbd-mirror"
        if watcher.mirror
        else ", one of other_addresses"
        if _is_other(watcher, options)
        else ""
    )
    return f"{'all the time' if watcher.persistent else f'seen {watcher.seen} times'}{who}"


def _title(host: HostRecord) -> str:
    return f"{host.node.name} ({'Ready' if host.node.ready == 'True' else 'not Ready'})"


def _overlaps(fence: NetworkFence, network: Network) -> bool:
    return any(
        other.version == network.version and _crosses(other, network)
        for other in networks(fence.cidrs)
    )


def _crosses(one: Network, other: Network) -> bool:
    return one.network_address in other or other.network_address in one
