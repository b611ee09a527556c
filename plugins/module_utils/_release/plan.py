# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a fenced node may be given back, and what then has to be taken back. Pure: no I/O here.

Without its fence, a client that has lived through it goes on writing where it stopped: the
kernel's, and every one without exclusive-lock. So a fence is only taken back once nothing can be
left of the old clients: another boot, or what the node itself shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from .._core import untrusted
from .._core.codes import Reason
from .._core.controls import FAIL_OVER
from .._core.engine import Action, Finding, Plan
from .._core.errors import BadOption, words
from .._core.untrusted import few
from .._fences.ceph_reading import SKEW_SECONDS, Reading, moment
from .._fences.ledger import ANNOTATION, Entry, FenceObject, Ledger, config_map_path
from .._fences.network_fence import UNFENCED, NetworkFence, command, networks
from .._fences.power import POWER, PowerReading, switch_doubts
from .._fences.returned import LONE, is_old, machine_doubt, plain, rebooted
from .._fences.state import OUT_OF_SERVICE, TAINT, HostRecord
from .._kube.client import path
from .._kube.objects import OWN_NAMESPACE, Pod

# An entry that is given back ends so much later at most than it did before (seconds), since Ceph
# counts from when it is told.
# ceph_blocklist rounds up to whole seconds, and its commands wait for the monitors.
_GIVEN_LATE = 180.0
# What was read of Ceph longer ago (seconds) is no evidence any more.
# As for a fence: the reading may wait for another run's Lease.
_MAX_AGE = 600.0

# How the names of ceph-csi's drivers end, Rook's among them.
# Only ceph-csi's UnfenceClusterNetwork is known to remove what FenceClusterNetwork has added, by
# the same ranges (internal/csi-addons/networkfence/fencing.go, RemoveNetworkFence).
_CEPH_CSI = "csi.ceph.com"

_REBOOT = (
    "Reboot the node. If only its kubelet had died, you can instead stop everything there that "
    "uses the volumes, and prove that no client is left: run ceph_client_info on the node, and "
    "pass on what it returns (option clients)"
)

_NEVER_FENCED = Reason(
    "ceph_not_read",
    "If it was never fenced, its fail-over having been stopped before, that can be seen: give what "
    "rbd_watcher_info reads of the blocklist now (option ceph)",
)


class Client(NamedTuple):
    """A client of Ceph that a node shows.

    ``entry``: its address and nonce as the blocklist has it, empty where it cannot be told.
    ``place``: a process that serves it, or a place where it is mounted, as a text; may be empty.
    """

    kind: str
    device: str
    image: str
    entry: str
    fsid: str
    place: str

    @property
    def title(self) -> str:
        """For the eye."""
        said = " ".join(filter(None, (self.kind, self.device, self.image, self.entry)))
        return said + (f", {self.place}" if self.place else "")


class Clients(NamedTuple):
    """What a node itself shows, in the boot of that id.

    ``problem``: why it may not be all of it.
    """

    boot_id: str
    clients: tuple[Client, ...]
    problem: str


class ReleaseOptions(NamedTuple):
    """What the user gave. ``check``: in check mode, so what the steps before this one do has not
    been done.

    ``switches_on``: the node is switched on next, if its fence has switched it off, by the BMC of
    ``power``;
    ``old_machine_off``: where the node is another machine than the one that was fenced, that one is
    off; ``stand_ins``: the entries of ``ceph`` that ceph_blocklist has put in while it renewed
    another one.
    """

    node: str
    state: str
    clients: Clients | None = None
    ceph: Reading | None = None
    check: bool = False
    namespace: str = OWN_NAMESPACE
    old_machine_off: bool = False
    stand_ins: frozenset[str] = frozenset()
    switches_on: bool = False
    power: tuple[PowerReading, ...] = ()


class ReleaseState(NamedTuple):
    """What was read. ``fences``: None where there is no such resource; ``pods``: those on the node
    that use a volume of the fence.

    ``busy``: who else works at the node; only in check mode, since otherwise the Lease tells;
    ``others``: the ledgers of other nodes;
    ``unread``: which of these were not read, as a sentence;
    ``note``: what stands on the Node as its ledger; ``volumes``: the PersistentVolumes of the fence
    that have an RBD image, where the boot does not prove that its clients are gone.
    """

    now: datetime
    host: HostRecord | None
    ledger: Ledger | None
    fences: tuple[NetworkFence, ...] | None = None
    pods: tuple[Pod, ...] = ()
    busy: str = ""
    others: tuple[Ledger, ...] = ()
    note: str = ""
    unread: str = ""
    volumes: tuple[str, ...] = ()


class Subject(NamedTuple):
    """What an action works on."""

    ledger: Ledger
    fence: NetworkFence | None = None


def read_clients(data: Mapping[str, Any]) -> Clients:
    """What ceph_client_info returned, checked: with a part missing, it must not be concluded that
    there is no client.
    """
    # It passes through a playbook. An empty list that stands for "not read" would release a node
    # that still has clients.
    try:
        return Clients(
            _text(data["boot_id"]).strip().lower(),
            tuple(
                Client(
                    _text(item["kind"]),
                    _text(item.get("device") or ""),
                    "/".join(
                        filter(
                            None, (_text(item.get("pool") or ""), _text(item.get("image") or ""))
                        )
                    ),
                    _text(item.get("entry") or ""),
                    _text(item.get("fsid") or ""),
                    _text((item.get("in_use") or [""])[0]),
                )
                for item in data["clients"]
            ),
            _text(data["problem"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadOption(
            f"clients is not what ceph_client_info returns as clients ({words(error)}); "
            f"give all of it: boot_id, clients and problem"
        ) from None


def plan(state: ReleaseState, options: ReleaseOptions) -> Plan:
    """Decide. No ledger: nothing to take back."""
    # In this order: where the ledger is, who works at the node, whether the node is well, then the
    # step itself.
    if state.ledger is None:
        found = [_stray_taint(state.host)] if state.host and has_taint(state.host) else []
        return Plan([*found, *([_lone_note(options, state.note)] if state.note else [])])
    ledger, host = state.ledger, state.host
    finding = Finding(
        control="STOR-17",
        severity="major",
        kind="Node",
        name=options.node,
        node=options.node,
        summary=f"{options.node} is fenced (method {ledger.method}, phase "
        f"{ledger.phase}) since {ledger.at}",
        verdict="repair",
        evidence=_evidence(state, ledger),
        named=True,
    )
    # Its Lease is there, too, so a Lease taken here would keep no other run away.
    if ledger.namespace not in ("", options.namespace):
        finding.refuse(
            Reason(
                "ledger_unreadable",
                f"its ledger and its Lease are in namespace {ledger.namespace}, not in "
                f"{options.namespace}: run again with ledger_namespace {ledger.namespace}",
            )
        )
    elif state.busy:
        finding.refuse(Reason("lease_held", f"{state.busy}. Wait for it, and run again"))
    elif _is_switched_on(state, options):
        _plan_switch(finding, state, options, ledger)
    elif host is None or host.node.ready != "True":
        finding.refuse(_not_ready(state, options.node))
    else:
        {
            "releasing": _plan_releasing,
            "held": _plan_held,
            "unfenced": _plan_unfenced,
            "released": _plan_released,
        }[options.state](finding, state, options, ledger, host)
    return Plan([finding] if finding.verdict != "repair" or finding.repair else [])


def has_taint(host: HostRecord) -> bool:
    """It carries exactly the taint that we set."""
    return TAINT in host.taints


def ours(ledger: Ledger) -> tuple[FenceObject, ...]:
    """The NetworkFences that we have fenced.

    One that was Fenced before is for its owner to take back.
    """
    # An operator, or Rook before 1.20 on an out-of-service taint, may have fenced the node before
    # us (its pkg/operator/ceph/cluster/watcher.go), and takes that back itself.
    return tuple(fence for fence in ledger.network_fences if fence.ours)


def _not_ready(state: ReleaseState, node: str) -> Reason:
    # A kubelet that reports Ready has started in the boot whose bootID it tells; a silent one tells
    # nothing.
    host = state.host
    if host is None:
        return Reason(
            "node_not_ready",
            f"there is no node {node}: its host may still run, so the fence stays. Bring the node "
            "back; if it never comes back, switch its host off for good, and remove the fence by "
            "hand before its address is given to another one",
        )
    silent = (
        f"{node} is not Ready (Ready={host.node.ready} for {host.node.lost_for(state.now):.0f} s)"
    )
    if state.ledger and state.ledger.phase == "releasing":
        return Reason(
            "node_not_ready",
            f"{silent}, and part of its fence may be gone already, so its host may write. Bring "
            "the node back and run again; if it is lost and has volumes, fence it again: "
            + untrusted.shown_command(
                f"ansible-playbook {FAIL_OVER} -e target={{node}}", node=node
            ),
        )
    return Reason(
        "node_not_ready",
        f"{silent}: its host may still run, and only the fence keeps it from writing. Bring the "
        "node back first",
    )


def _is_switched_on(state: ReleaseState, options: ReleaseOptions) -> bool:
    """The release begins by switching the node on, which its fence has switched off."""
    asked = options.switches_on and options.state == "releasing"
    is_by_power = state.ledger is not None and state.ledger.method == POWER
    return asked and is_by_power and state.host is not None and state.host.node.ready == "Unknown"


def _plan_switch(
    finding: Finding, state: ReleaseState, options: ReleaseOptions, ledger: Ledger
) -> None:
    """Note that the release has begun, so that nothing is detached from a node that is on."""
    # Switched on by mistake, another node would have volumes that were moved off it.
    doubts = switch_doubts(options.power, options.node, ledger.machine, state.now, ledger.power)
    if doubts:
        finding.refuse(*doubts)
        return
    finding.reason = f"{options.node} is switched on, and released once it is Ready"
    finding.repair = [_mark(options, ledger)]


def _mark(options: ReleaseOptions, ledger: Ledger) -> Action:
    """Note in the ledger that the release has begun."""
    where = config_map_path(ledger.node, options.namespace)
    return Action("mark_release", ledger.node, ["PATCH", where, "phase=releasing"], Subject(ledger))


# releasing


def _plan_releasing(
    finding: Finding, state: ReleaseState, options: ReleaseOptions, ledger: Ledger, host: HostRecord
) -> None:
    # Old clients are the danger: what was blocked keeps its dirty pages and open requests, and
    # writes them once it is let in. The kernel fails such requests with EBLOCKLISTED for as long as
    # the entry lasts (include/linux/ceph/rados.h).
    unfit = _unfit(options.ceph, state, ledger) if options.ceph else None
    if unfit:
        finding.refuse(unfit)
        return
    doubts: list[Reason] = []
    if _is_nothing_in_force(state, options, ledger):
        # Whoever is left of its clients is held back by nothing that we could take away.
        proof = "nothing of ours fences it"
    else:
        doubts, proof = _judge_clients(state, options, ledger, host)
        # A fail-over that stopped early has fenced nothing, and a reading of Ceph shows that at
        # once.
        if doubts and ledger.phase == "intended" and options.ceph is None:
            doubts.append(_NEVER_FENCED)
        doubts += _needed_elsewhere(state, ledger)
    finding.evidence["old_clients"] = doubts or [proof]
    if doubts:
        finding.refuse(*doubts)
        return
    finding.reason = "; ".join(
        filter(None, (f"{host.node.name} is Ready, and {proof}", state.unread))
    )
    # A run that was killed after this one may have left the phase, but the Lease is to be ours, and
    # both copies of the ledger current.
    finding.repair = [_mark(options, ledger)]


def releasing(options: ReleaseOptions, ledger: Ledger) -> Ledger:
    """The ledger once the release has begun.

    What a killed renewal has left of ours goes with the rest.
    """
    return ledger._replace(
        phase="releasing", entries=(*ledger.entries, *_stand_ins(options, ledger))
    )


def _is_nothing_in_force(state: ReleaseState, options: ReleaseOptions, ledger: Ledger) -> bool:
    """It was never fenced by us, or a run before this one that had judged it has taken all back."""
    # What was proven to be off was handed to other nodes, and only another boot shows that it was.
    if (ledger.power and ledger.power.off_at) or ledger.declared_off:
        return False
    # A ledger is written before its fence, so a fail-over that stopped early has noted what it
    # never did.
    # Once it was proven, its volumes may have moved before more was to be fenced.
    if not (ledger.phase == "releasing" or (ledger.phase == "intended" and not ledger.proven)):
        return False
    return not _still_blocked(state, options, ledger) and not _still_fenced(state, options, ledger)


def _needed_elsewhere(state: ReleaseState, ledger: Ledger) -> list[Reason]:
    """Fences of other nodes that would go with what is taken back, as where several nodes share an
    address towards Ceph.
    """
    # Nodes behind one address (NAT), or one that took over the address of another, share an entry.
    doubts = []
    for other in state.others:
        theirs = {
            plain(text)
            for text in [*(entry.entry for entry in other.entries), *_ranges(other.network_fences)]
        }
        addresses = () if other.method == "none" else other.addresses
        shared = [
            text for text in _mine(ledger) if plain(text) in theirs or _contains(text, addresses)
        ]
        if shared:
            doubts.append(
                Reason(
                    "fence_shared",
                    f"{few(shared)} fences node {other.node} too, according to its ledger "
                    "(phase "
                    f"{other.phase}), and would go with this release: release {other.node} first, "
                    "or, if it is gone for good, delete its ledger",
                )
            )
    return doubts


def _mine(ledger: Ledger) -> list[str]:
    """The entries and ranges that are ours to take back."""
    return [entry.entry for entry in ledger.entries if entry.ours] + _ranges(ours(ledger))


def _ranges(fences: tuple[FenceObject, ...]) -> list[str]:
    # In one spelling, so that equal ranges compare equal.
    return [str(network) for fence in fences for network in networks(fence.cidrs)]


def _contains(text: str, addresses: tuple[str, ...]) -> bool:
    try:
        network = ip_network(text)
    except ValueError:
        return False  # a single client
    return any(ip_address(address) in network for address in addresses)


def _stand_ins(options: ReleaseOptions, ledger: Ledger) -> list[Entry]:
    """What stood in for an entry of ours while that was renewed, its address spelled as a range,
    and was left by a run that was killed.
    """
    # ceph_blocklist renews an entry behind another one that hits the same clients; a run that was
    # killed in between leaves that one in place.
    noted = {entry.entry: entry.ours for entry in ledger.entries}
    left = [
        found
        for found in (options.ceph.blocklist if options.ceph else ())
        if found.entry in options.stand_ins
    ]
    return [
        Entry(found.spelling, found.kind, True, found.until)
        for found in left
        if found.spelling not in noted and noted.get(plain(found.address))
    ]


def _judge_clients(
    state: ReleaseState, options: ReleaseOptions, ledger: Ledger, host: HostRecord
) -> tuple[list[Reason], str]:
    """Why clients from before the fence may be left, or else what proves that there are none."""
    # Another bootID is the proof: no process and no mount outlives its kernel. Without it the node
    # itself has to show that the clients of before are gone, and Ceph must not contradict.
    watchers = ", ".join(_survivors(options.ceph, ledger)[:3])
    if rebooted(host, ledger):
        return _judge_rebooted(options, ledger, host, watchers)
    # Two unknown boot IDs are equal, and would prove that the node was never rebooted.
    if not host.boot_id:
        return [
            Reason(
                "old_clients_left",
                f"{host.node.name} reports no bootID, so its current boot is unknown. Is its "
                "kubelet healthy?",
            )
        ], ""
    stranger = machine_doubt(host, ledger)
    if stranger:
        return _judge_stranger(options, stranger, watchers)
    return _judge_same_boot(state, options, ledger, host, watchers)


def _judge_rebooted(
    options: ReleaseOptions, ledger: Ledger, host: HostRecord, watchers: str
) -> tuple[list[Reason], str]:
    """``watchers``: those that Ceph still sees at a fenced address, as a text."""
    proof = f"it was rebooted since: its bootID was {ledger.boot_id} and is {host.boot_id}"
    # That its kubelet says so proves nothing against whoever has the kubelet.
    seen = (
        f"{host.node.name} says that {proof}, but Ceph still sees {watchers}. "
        "Find out whose it is, and end it"
    )
    left = [Reason("ceph_watcher_left", seen)] if watchers else []
    # In a release that has begun the node's own new clients may be seen, since its entries are
    # gone. That of a node that was switched on has begun before anything was judged.
    begins = options.state == "releasing" and not options.clients
    judged = ledger.phase == "releasing" and not (ledger.method == POWER and begins)
    return [] if judged else left, proof


def _judge_stranger(
    options: ReleaseOptions, stranger: str, watchers: str
) -> tuple[list[Reason], str]:
    """``stranger``: what tells that the node is another machine than the one that was fenced."""
    # A board that was replaced, or a clone, reports another machine; only a person knows where the
    # old one is.
    if not options.old_machine_off:
        return [
            Reason(
                "old_clients_left",
                f"{stranger}, so the one that was fenced may still run, and only the fence keeps "
                "it from writing. Make sure that it is off for good, or that it is this one and "
                "was rebooted since; then run again with old_machine_confirmed_off",
            )
        ], ""
    seen = (
        f"{stranger}, and the old one is said to be off, but Ceph still sees {watchers}. "
        "Find out whose it is, and end it"
    )
    return (
        [Reason("ceph_watcher_left", seen)] if watchers else [],
        f"{stranger}, and the old one was confirmed to be off (old_machine_confirmed_off)",
    )


def _judge_same_boot(
    state: ReleaseState, options: ReleaseOptions, ledger: Ledger, host: HostRecord, watchers: str
) -> tuple[list[Reason], str]:
    """As far as it is known, it is in the boot in which it was fenced."""
    same = (
        f"{host.node.name} was not rebooted since it was fenced (bootID {host.boot_id})"
        if ledger.boot_id
        else f"the bootID that {host.node.name} was fenced in is unknown"
    )
    if ledger.power and ledger.power.off_at:
        return [
            Reason(
                "power_contradicted",
                f"{same}, but {ledger.power.title} said at {ledger.power.off_at} that it "
                "was off: it lied, or is another machine's, and this node may have written to "
                "volumes that other nodes have since. Check these volumes, correct the BMC in the "
                "inventory, and reboot the node",
            )
        ], ""
    # What was only intended has moved nothing.
    if ledger.was_declared_off and ledger.boot_id:
        return [
            Reason(
                "power_contradicted",
                f"{same}, but it was fenced as one that is off (node_confirmed_off): it was not, "
                "and may have written to volumes that other nodes have since. Check these volumes, "
                "and reboot the node",
            )
        ], ""
    # In the same boot nothing but the node itself can tell which clients it has.
    if options.clients is None:
        return [
            Reason(
                "old_clients_left",
                f"{same}, and the node was not looked at for clients of before, which would go on "
                f"writing. {_REBOOT}",
            )
        ], ""
    doubts = _client_doubts(options.clients, ledger, host, same)
    unread = _unread_images(options.ceph, state.volumes) if options.ceph else {}
    if unread:
        doubts.append(
            Reason(
                "ceph_not_read",
                f"{same}, and the image of {few(unread)} was not read in Ceph "
                f"({few(unread.values(), '; ')}), so a client of before may still have it open: "
                "read it too, or reboot the node",
            )
        )
    if watchers:
        doubts.append(
            Reason(
                "ceph_watcher_left",
                f"{same}, and Ceph still sees {watchers}, so not all of its clients are gone. "
                f"{_REBOOT}",
            )
        )
    return doubts, f"{same}, but itself shows no client of the fenced storage"


def _client_doubts(clients: Clients, ledger: Ledger, host: HostRecord, same: str) -> list[Reason]:
    """Why what the node shows does not prove that its old clients are gone.

    ``same``: the sentence that says that it is in the boot in which it was fenced.
    """
    # The node itself has read them, so it is believed only together with Ceph: no watcher may be
    # left at a fenced address.
    doubts = []
    if clients.problem:
        doubts.append(
            Reason(
                "old_clients_left",
                f"{same}, and the node could not be read: {clients.problem}. {_REBOOT}",
            )
        )
    if clients.boot_id != host.boot_id.lower():
        doubts.append(
            Reason(
                "old_clients_left",
                f"{same}, and clients was read in another boot ({clients.boot_id or 'of no id'}): "
                "was it read on another host, or before a reboot? Read it again on this node",
            )
        )
    held = [client.title for client in clients.clients if _is_fenced(client, ledger)]
    if held:
        doubts.append(
            Reason(
                "old_clients_left",
                f"{same}, and it still shows {len(held)} clients that were fenced "
                f"({'; '.join(held[:3])}), which would go on writing. {_REBOOT}. If a process of "
                "theirs is in a pod, it ends when you delete that pod",
            )
        )
    return doubts


def _is_fenced(client: Client, ledger: Ledger) -> bool:
    """The fence is for this client, as far as anybody can tell."""
    # A client of another Ceph cluster was never hit by the entries.
    return not (client.fsid and ledger.fsid and client.fsid != ledger.fsid)


def _survivors(ceph: Reading | None, ledger: Ledger) -> list[str]:
    """Watchers from what is fenced."""
    # A watcher at a fenced address is a client of before, or Ceph has not dropped it yet.
    images = ceph.images if ceph else ()
    return [
        f"a watcher {watcher.entry} of {image.title}"
        for image in images
        for watcher in image.watchers
        if is_old(watcher, ledger)
    ]


def _unread_images(ceph: Reading, volumes: tuple[str, ...]) -> dict[str, str]:
    """By volume, why it is not known who watches its image."""
    # No answer is not an answer of "no watchers".
    problems = {image.volume: image.problem for image in ceph.images}
    told = {name: problems.get(name, "it was not asked for") for name in volumes}
    return {name: problem for name, problem in told.items() if problem}


# held and unfenced


def _plan_held(
    finding: Finding,
    state: ReleaseState,
    _options: ReleaseOptions,
    ledger: Ledger,
    _host: HostRecord,
) -> None:
    """Nothing is done: whoever takes entries off Ceph's blocklist, which knows no Lease, asks first
    whether that is still right.
    """
    # Ceph's blocklist has no condition on a Lease, so this question right before is what stands in
    # for one.
    if _begun(finding, ledger):
        doubts = _needed_elsewhere(state, ledger)
        if doubts:
            finding.refuse(*doubts)


def _plan_unfenced(
    finding: Finding, state: ReleaseState, options: ReleaseOptions, ledger: Ledger, host: HostRecord
) -> None:
    """Patch ours to Unfenced; deleting one would leave its fence."""
    if not _begun(finding, ledger):
        return
    doubts = _needed_elsewhere(state, ledger)
    if doubts:
        finding.refuse(*doubts)
        return
    # Those that were Fenced before us stay so: their owner has a reason of its own.
    for planned in ours(ledger):
        fence = _current(state, planned, ledger)
        if fence is None and not _proven_gone(state, options, ledger, planned):
            finding.refuse(_lost_fence(planned))
            return
        if fence and not _is_unfenced(fence):
            finding.repair.append(
                Action(
                    "unfence_network", fence.name, command(fence, UNFENCED), Subject(ledger, fence)
                )
            )
    finding.reason = f"{host.node.name} is Ready, and its release has begun"


def _current(state: ReleaseState, planned: FenceObject, ledger: Ledger) -> NetworkFence | None:
    """The NetworkFence that we have fenced, with the ranges it had then.

    Or one recreated that is Unfenced, of the same ranges and the same Ceph: its controller takes
    the fence back too.
    """
    # A deleted NetworkFence leaves its entries (the controller only removes its finalizer), so one
    # is recreated to have them removed.
    for fence in state.fences or ():
        if fence.name == planned.name and set(networks(fence.cidrs)) == set(
            networks(planned.cidrs)
        ):
            same_ceph = fence.cluster_id in ledger.cluster_id.split(",") and fence.driver.endswith(
                _CEPH_CSI
            )
            if fence.uid == planned.uid or (fence.state == UNFENCED and same_ceph):
                return fence
    return None


def _is_unfenced(fence: NetworkFence) -> bool:
    return fence.state == UNFENCED and fence.settled


def _lost_fence(planned: FenceObject) -> Reason:
    return Reason(
        "network_fence_unfit",
        f"NetworkFence {planned.name} (uid {planned.uid}), which was Fenced, is gone or has other "
        "ranges now, and changing or deleting it does not unfence. Recreate it for the same "
        f"driver and clusterID with {', '.join(planned.cidrs)} and fenceState Unfenced, or remove "
        "the ranges from Ceph's blocklist and give the reading (option ceph)",
    )


def _proven_gone(
    state: ReleaseState, options: ReleaseOptions, ledger: Ledger, planned: FenceObject
) -> bool:
    """Ceph itself shows that the ranges of a NetworkFence are in its blocklist no more."""
    # find() compares exactly: an entry for a wider range that covers these addresses is not the one
    # that the controller had added.
    ceph = options.ceph
    if ceph is None or _unfit(ceph, state, ledger):
        return False
    # A single address of its ranges may be an entry of ours too, which is removed after this, and
    # looked for in the end.
    own = {entry.entry for entry in ledger.entries if entry.ours}
    # An IPv4-mapped range is in the blocklist as it is, and Rook's spelling never.
    ranges = {*planned.cidrs, *_ranges((planned,))}
    return all(found is None or found.spelling in own for found in map(ceph.find, ranges))


# released


def _plan_released(
    finding: Finding, state: ReleaseState, options: ReleaseOptions, ledger: Ledger, host: HostRecord
) -> None:
    if not _begun(finding, ledger):
        return
    doubts = (
        []
        if options.check
        else [*_still_blocked(state, options, ledger), *_still_fenced(state, options, ledger)]
    )
    if doubts:
        finding.refuse(*doubts)
        return
    # Before the ledger goes, which alone says what of it was ours.
    finding.repair += _restore_node(ledger, host)
    finding.repair.append(
        Action(
            "remove_fence_ledger",
            host.node.name,
            ["DELETE", config_map_path(ledger.node, options.namespace)],
            Subject(ledger),
        )
    )
    finding.reason = _what_is_left(options, ledger, host)


def _restore_node(ledger: Ledger, host: HostRecord) -> list[Action]:
    """Take off the taint and the cordon that we have set."""
    # The taint of KEP-2268 has to be removed by whoever has set it, once the node is back.
    node = host.node
    where = path("v1", "nodes", node.name)
    actions = []
    # What another Node object carries was not set by us.
    same = node.uid == ledger.node_uid
    if ledger.tainted and same and has_taint(host):
        gone = f"-{TAINT[0]}={TAINT[1]}:{TAINT[2]}"
        actions.append(
            Action(
                "untaint_node",
                node.name,
                ["PATCH", where, f"uid={node.uid}", f"spec.taints={gone}"],
                Subject(ledger),
            )
        )
    # The taint first: a node that takes pods while it is out of service loses them at once.
    if ledger.cordoned and same and node.unschedulable:
        command_ = ["PATCH", where, f"uid={node.uid}", "spec.unschedulable=null"]
        actions.append(Action("uncordon_node", node.name, command_, Subject(ledger)))
    return actions


def _what_is_left(options: ReleaseOptions, ledger: Ledger, host: HostRecord) -> str:
    """Why the release may end, and what keeps on fencing the node."""
    said = "the fence is gone" if not options.check else "the steps before take the fence back"
    left = _foreign(ledger)
    if left:
        said += (
            f"; {', '.join(left)} were there before it, so they stay, and the node "
            "is fenced by them as long as they are there"
        )
    blocked = still_blocking(options.ceph, ledger, host)
    if blocked:
        said += f"; but {'; '.join(blocked)}. Find out who has set that, and have it removed"
    return said


def _begun(finding: Finding, ledger: Ledger) -> bool:
    if ledger.phase != "releasing":
        finding.refuse(
            Reason(
                "fence_unfinished",
                f"the release has not begun (the ledger says {ledger.phase}): call it with state "
                "releasing first",
            )
        )
    return ledger.phase == "releasing"


def _still_blocked(state: ReleaseState, options: ReleaseOptions, ledger: Ledger) -> list[Reason]:
    """Why entries of ours may still be in the blocklist."""
    ceph = options.ceph
    if ceph is None:
        return _unread(ledger)
    unfit = _unfit(ceph, state, ledger)
    if unfit:
        return [unfit]
    given = _given_back(ceph, ledger)
    left = [text for text in _mine(ledger) if ceph.blocks(text) and text not in given]
    stand_ins = [entry.entry for entry in _stand_ins(options, ledger)]
    doubts = []
    if left:
        doubts.append(
            Reason(
                "ceph_entry_left",
                f"{few(left)} is still in Ceph's blocklist: remove it (ceph_blocklist, state "
                "absent), and read it again",
            )
        )
    if stand_ins:
        doubts.append(
            Reason(
                "ceph_entry_left",
                f"{few(stand_ins)} is still in Ceph's blocklist, where it stood in for an "
                "entry of ours while that was renewed: begin again with state releasing and this "
                "reading (option ceph), so that it goes with the rest",
            )
        )
    return doubts


def _unread(ledger: Ledger) -> list[Reason]:
    """What has to be read of Ceph before the fence counts as gone."""
    needed = [entry.entry for entry in ledger.entries if entry.ours]
    # Of a NetworkFence the controller itself says when it is taken back (_still_fenced).
    if needed:
        return [
            Reason(
                "ceph_not_read",
                f"it is not proven that {few(needed)} left Ceph's blocklist: read it "
                "with rbd_watcher_info (option ceph)",
            )
        ]
    return []


def _given_back(ceph: Reading, ledger: Ledger) -> set[str]:
    """The entries that were there before the fence, and are again until the time until which they
    were.
    """
    # What an operator had blocked before the fence is not ours to unblock; its end may be a little
    # later, since Ceph counts from when it is told.
    given = set()
    for entry in ledger.entries:
        found, before = ceph.find(entry.entry), moment(entry.before)
        until = moment(found.until) if found else None
        if before and until and (until - before).total_seconds() <= _GIVEN_LATE:
            given.add(entry.entry)
    return given


def still_blocking(ceph: Reading | None, ledger: Ledger, host: HostRecord | None) -> list[str]:
    """What else blocks the node's addresses, those of before among them, as a sentence."""
    # Whoever blocks the node besides us keeps its volumes failing after the release, so the user
    # has to know.
    if ceph is None:
        return []
    given = _given_back(ceph, ledger)
    mine = [ceph.find(text) for text in _mine(ledger) if text not in given]
    addresses = dict.fromkeys([*ledger.addresses, *(host.addresses if host else ())])
    found = []
    for entry in ceph.blocklist:
        hit = [address for address in addresses if entry.covers(address)]
        if hit and entry not in mine:
            found.append(
                f"Ceph's blocklist has {entry.spelling} until {entry.until or 'unknown'}, which "
                f"blocks {', '.join(hit[:3])} and is not ours"
            )
    return found


def _still_fenced(state: ReleaseState, options: ReleaseOptions, ledger: Ledger) -> list[Reason]:
    """Why NetworkFences of ours may still be in force."""
    # Asked of the object right before the ledger goes, since nothing would name the NetworkFence
    # after that.
    doubts = []
    for planned in ours(ledger):
        fence = _current(state, planned, ledger)
        if fence is None and not _proven_gone(state, options, ledger, planned):
            doubts.append(_lost_fence(planned))
        elif fence and not _is_unfenced(fence):
            doubts.append(
                Reason(
                    "fence_unfinished",
                    f"NetworkFence {fence.name} is {fence.state} ({fence.status}): call it with "
                    "state unfenced first",
                )
            )
    return doubts


def _unfit(ceph: Reading, state: ReleaseState, ledger: Ledger) -> Reason | None:
    """Why a reading says nothing about this fence now."""
    # The same tests as for the proof of a fence, as one reason: right cluster, fresh, and read
    # after the last write of the ledger.
    if ledger.fsid and ceph.fsid != ledger.fsid:
        return Reason(
            "ceph_reading_unfit",
            f"the reading is of Ceph cluster {ceph.fsid}, and the fence is in {ledger.fsid}: "
            "read it from the right one",
        )
    # Two clocks are compared here, so a reading from the future is as suspect as an old one.
    seconds = (state.now - ceph.read_at).total_seconds()
    if abs(seconds) > _MAX_AGE:
        when = (
            f"{seconds:.0f} s ago"
            if seconds > 0
            else f"{-seconds:.0f} s from now, so a clock is wrong"
        )
        return Reason(
            "ceph_reading_unfit",
            f"Ceph was read {when} (at {ceph.read_at:%H:%M:%S}Z): read it again",
        )
    noted = moment(ledger.at)
    if noted and (noted - ceph.read_at).total_seconds() > SKEW_SECONDS:
        return Reason(
            "ceph_reading_unfit",
            f"Ceph was read at {ceph.read_at:%H:%M:%S}Z, and the fence was noted after that (at "
            f"{ledger.at}): read it again",
        )
    return None


# evidence


def _foreign(ledger: Ledger) -> list[str]:
    """What fenced the node before us."""
    # They are told, since a user who releases a node expects it to work.
    return [entry.entry for entry in ledger.entries if not entry.ours] + [
        f"NetworkFence {fence.name}" for fence in ledger.network_fences if not fence.ours
    ]


def _evidence(state: ReleaseState, ledger: Ledger) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        **_of_host(state.host),
        "boot_id_when_fenced": ledger.boot_id,
        "machine_when_fenced": ledger.machine,
        "method": ledger.method,
        "phase": ledger.phase,
        "entries": [
            f"{entry.entry}{'' if entry.ours else ' (was there before)'}"
            for entry in ledger.entries
        ],
        "volumes": list(ledger.volumes),
        "fenced_by": ledger.by,
    }
    if ledger.network_fences:
        evidence["network_fences"] = [
            f"{fence.name}{'' if fence.ours else ' (was Fenced before)'}"
            for fence in ledger.network_fences
        ]
    if state.pods:
        evidence["pods"] = [f"{pod.title} ({pod.phase})" for pod in state.pods]
    return evidence


def _of_host(host: HostRecord | None) -> dict[str, str]:
    if host is None:
        return {"ready": "no such node", "boot_id": "", "machine": ""}
    return {"ready": host.node.ready, "boot_id": host.boot_id, "machine": host.machine}


def _lone_note(options: ReleaseOptions, note: str) -> Finding:
    # A kubelet may annotate its own Node, so a note alone must not have anything released.
    return Finding(
        control="STOR-17",
        severity="major",
        kind="Node",
        name=options.node,
        node=options.node,
        summary=f"{options.node} has no ledger in namespace {options.namespace}, and the "
        "annotation "
        f"{ANNOTATION}",
        reason=LONE,
        evidence={"annotation": note},
    )


def _stray_taint(host: HostRecord) -> Finding:
    name = host.node.name
    return Finding(
        control="STOR-17",
        severity="major",
        kind="Node",
        name=name,
        node=name,
        summary=f"{name} is not fenced by this collection, but carries the taint {OUT_OF_SERVICE}",
        reason="whoever set it has to remove it, once the node was rebooted: "
        + untrusted.shown_command(f"kubectl taint node {{node}} {OUT_OF_SERVICE}-", node=name),
        evidence={
            "taints": [f"{key}={value}:{effect}" for key, value, effect in host.taints],
            "ready": host.node.ready,
            "boot_id": host.boot_id,
        },
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
