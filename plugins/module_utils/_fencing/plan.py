# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides whether a node may be fenced, by what addresses and by what means, and whether that is
proven. Pure: no I/O here.

Each question has a file of its own:

* lost: is the node lost, and may its fence be begun or continued?
* evidence: is there something to fence, and was enough of it observed?
* claims, proven, addresses, whole_node: whom to fence, and whom not.
* method: by what means?
* intent: the ledger of the fence.
* confirmation: what proves the fence?
* files: does it cover the volumes of CephFS?

A node that is switched off needs none of the questions about addresses (_fences/power.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from .._core.codes import Reason
from .._core.engine import Action, Finding, Plan
from .._core.turns import in_turns
from .._core.untrusted import few
from .._fences.ceph_reading import Reading
from .._fences.ledger import (
    EXTERNAL,
    OFF_METHODS,
    UNKNOWN_MACHINE,
    Ledger,
    config_map_path,
    is_noted,
)
from .._fences.network_fence import FENCED, command
from .._fences.power import POWER, bmc_doubts, off_doubts, proof_doubts, switch_doubts
from .._fences.proof import iso, mapped_clients
from .._fences.state import NodeState
from .addresses import check_addresses, find_addresses
from .case import NEEDS_NONE, FenceCase
from .confirmation import (
    doubts_of,
    held_by_other_clients,
    names_a_fence,
    opposed,
    proven_ledger,
    undone_fences,
)
from .evidence import check_reading, check_volumes
from .files import Files, judge_files
from .intent import make_ledger
from .lost import majority_lost, not_lost, not_standing, unfit
from .method import check_coverage, check_fences, check_ledgers, choose_method
from .options import Decision, FenceOptions, Subject
from .whole_node import (
    check_silent,
    check_visitors,
    leave_out_earlier_machine,
    older_pods,
    settle_doubts,
    widen,
)

# Ceph refuses the requests of a blocklisted client (EBLOCKLISTED); nothing tells the container,
# which may answer from its page cache for hours.
_ASIDE = (
    "the containers on the node may go on running, and serve what they have cached: the fence "
    "protects the storage, not the application"
)
# So many volumes that are left out are a finding each.
_MOST_LEFT_OUT = 20


def intend(state: NodeState, options: FenceOptions, busy: str = "") -> Decision:
    """Whether the node may be fenced, and the ledger that says how.

    ``busy``: why another run is in the way, as a sentence.
    """
    # A refusal by who or what the node is needs no evidence of Ceph, so it comes before that is
    # judged.
    case = FenceCase(state, options)
    known = state.ledger
    reasons = (
        [Reason("lease_held", busy)]
        if busy
        else [*not_lost(state, options), *majority_lost(state, options), *unfit(state, options)]
    )
    ledger = None if reasons else _judge(case)
    # What is left in doubt is told first: it may be why the rest could not be judged.
    if not ledger:
        reasons += [doubt.reason for doubt in case.doubts]
    reasons += case.reasons
    finding = _finding(state, options, case.evidence)
    if ledger is None or reasons:
        finding.refuse(*reasons)
        return Decision(Plan([finding]), known)
    if ledger != known or not _is_noted(state, known):
        finding.repair.append(_write(ledger, options, "write_fence_ledger"))
    # No pod is scheduled to a node that is about to lose its storage.
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
    left = [*_told(case, case.left_out), *_pods_of_earlier_machine(case)]
    # All of it stands already, as in a second run.
    if not finding.repair:
        return Decision(Plan(left), ledger)
    finding.reason = "; ".join(filter(None, (_why(ledger), state.unread)))
    return Decision(Plan([finding, *left]), ledger)


def _told(case: FenceCase, left: Mapping[str, Reason]) -> list[Finding]:
    """The findings about volumes that are no part of the fence, as many as are told.

    A tenant may have any number of these volumes; the node's finding has their number.
    """
    owners = {found.name: found.claim.partition("/")[0] for found in case.state.held}
    turns = in_turns(left, lambda volume: owners.get(volume, ""))
    # What the run fails for comes first: no tenant's hints take the place of another's volume.
    some = sorted(turns, key=lambda volume: _is_hint(left[volume]))[:_MOST_LEFT_OUT]
    return [_left_out(case, volume, left[volume]) for volume in some]


def _is_hint(reason: Reason) -> bool:
    """What needs no fence is a hint. Of all else the run fails at its end."""
    return reason.code == NEEDS_NONE


def _left_out(case: FenceCase, volume: str, reason: Reason) -> Finding:
    """The finding about a volume that is no part of the fence."""
    node = case.options.node
    attached = any(found.name == volume for found in case.state.attached)
    # volume_failover sets no taint where something is not fenced, unless the node is off: that
    # writes to no storage at all. But another machine of its name may.
    is_tainted = case.by_power and not (case.state.of_earlier_machine or case.state.older)
    rest = (
        f"node {node} may have it open, although it is not attached there"
        if not attached
        else "an out-of-service taint would detach it with the others"
        if is_tainted
        else "stays attached"
    )
    finding = Finding(
        control="STOR-16",
        severity="info" if _is_hint(reason) else "major",
        kind="PersistentVolume",
        name=volume,
        node=node,
        summary=f"{volume} is left out of the fence of node {node}, and {rest}",
        verdict="report",
    )
    finding.leave(reason)
    return finding


def _pods_of_earlier_machine(case: FenceCase) -> list[Finding]:
    """The findings about pods of another machine that had the node's name before."""
    findings = []
    for title, reason in older_pods(case).items():
        namespace, _separator, name = title.partition("/")
        finding = Finding(
            control="STOR-16",
            severity="major",
            kind="Pod",
            namespace=namespace,
            name=name,
            node=case.options.node,
            summary=f"pod {title} is left where it is by the fence of node {case.options.node}",
            verdict="report",
        )
        finding.leave(reason)
        findings.append(finding)
    return findings


def _judge(case: FenceCase) -> Ledger | None:
    """The ledger of the fence; None when it is refused, with the reasons in the case."""
    if case.by_power:
        return _judge_power(case)
    # The method decides which other addresses can be fenced, so the whole node is judged after it.
    # Each step needs what those before it have found, so the first that refuses is the last.
    for step in (check_volumes, check_reading, find_addresses, check_addresses):
        step(case)
        if case.reasons:
            return None
    method = choose_method(case)
    if method != "none" and case.source:
        widen(case, method)
        case.reasons += mapped_clients(case.all_images, case.source)
        check_visitors(case)
    fences = case.covering() if method == "network_fence" else []
    if method == "network_fence":
        check_coverage(case, fences)
        check_fences(case, fences)
    # What shows no client at all is judged last, by what the method does about it.
    check_silent(case, method)
    check_ledgers(case, method)
    if case.reasons or not settle_doubts(case):
        return None
    return make_ledger(case, method, fences)


def _judge_power(case: FenceCase) -> Ledger | None:
    """The ledger of a fence that switches the node off, or that others have switched off. No
    address matters to it.
    """
    # Which machine is switched off is judged before anything is: nothing undoes it.
    check_volumes(case)
    # The BMC that the Node object leads to is this machine's. One that had the name before runs on.
    leave_out_earlier_machine(case)
    _check_machine_known(case)
    case.reasons += _off_doubts(case)
    return None if case.reasons else make_ledger(case, case.off_method, [])


def _off_doubts(case: FenceCase) -> list[Reason]:
    """Why its BMC cannot switch the node off; or where others do that, why it may not be off."""
    read, node, host = case.options.power, case.options.node, case.state.host
    holder = host or case.known
    is_external = case.off_method == EXTERNAL
    noted = case.known.power if case.known and is_external and not host else None
    doubts = bmc_doubts(read, node, holder.machine if holder else "", noted, host)
    if doubts or is_external:
        return doubts or off_doubts(read, node, host, case.known.power if case.known else None)
    if read[-1].kind == EXTERNAL:
        return [
            Reason(
                "bmc_unknown",
                f"{read[-1].title} only says whether node {node} is off, and cannot switch it "
                "off: have that done, and use method external; or give its BMC in the variable "
                "bmcs",
            )
        ]
    return []


def _check_machine_known(case: FenceCase) -> None:
    """Without its Node object, only the ledger tells which machine has the volumes."""
    known = case.known
    if case.state.host or not known:
        return
    new = [found.name for found in case.meant if found.name not in known.volumes]
    if new or known.machine in ("", UNKNOWN_MACHINE):
        case.reasons.append(
            Reason(
                "fence_incomplete",
                f"the Node object of {known.node} is gone, so it is not known which machine has "
                f"{few(new or known.volumes)}: one that had the name before may run. Prove that "
                "each of them is off, and use method none with node_confirmed_off",
            )
        )


def confirm(state: NodeState, options: FenceOptions, busy: str = "") -> Decision:
    """What is left to be done for the fence that the ledger intends, and whether it is proven."""
    # The node is judged again: between the intent and this step it may have come back.
    known = state.ledger
    reasons = [Reason("lease_held", busy)] if busy else not_standing(state, options)
    finding = _finding(state, options, {"ledger": known.to_dict()} if known else {})
    if known is None or reasons:
        finding.refuse(*reasons)
        return Decision(Plan([finding]), known)
    files = judge_files(state, known, options, options.reading)
    tools = _left_to_tools(state, known, options)
    proven, reasons = _complete(state, known, options, finding, files, tools)
    reasons += files.opposed
    if reasons:
        finding.refuse(*reasons)
        return Decision(Plan([finding]), known)
    if proven and (proven != known or not _is_noted(state, known)):
        finding.repair.append(_write(proven, options, "record_fence"))
    # Before the fence is proven, none of them could be.
    left = _told(FenceCase(state, options), {**files.left, **tools} if proven else {})
    if not finding.repair:
        return Decision(Plan(left), known)
    finding.reason = f"{_why(known)}; " + (
        "the steps before have changed nothing, so nothing is proven"
        if options.check
        else "it is lost still"
    )
    return Decision(Plan([finding, *left]), proven or known)


def hold(state: NodeState, options: FenceOptions, _busy: str = "") -> Decision:
    """Whether the fence that the ledger intends may still be brought about.

    It is asked right before Ceph is changed, or the node is switched off: neither Ceph nor a BMC
    knows Leases.
    """
    known = state.ledger
    # Check mode has written nothing that could stand.
    reasons = [] if options.check else not_standing(state, options)
    if known and known.method == POWER and not options.check:
        machine = (state.host or known).machine
        reasons += switch_doubts(options.power, options.node, machine, state.now, known.power)
    if not reasons:
        return Decision(Plan([]), known)
    finding = _finding(state, options, {"ledger": known.to_dict()} if known else {})
    finding.refuse(*reasons)
    return Decision(Plan([finding]), known)


def _complete(
    state: NodeState,
    known: Ledger,
    options: FenceOptions,
    finding: Finding,
    files: Files,
    tools: Mapping[str, Reason],
) -> tuple[Ledger | None, list[Reason]]:
    """Put what is left to be fenced into the finding. ``tools``: see held_by_other_clients.

    Returns the ledger once the fence is proven (None: not yet), and what contradicts the fence.
    """
    # What is wrong and what is left to be done are told at once.
    reasons = opposed(state, known)
    if not names_a_fence(known):
        reasons.append(
            Reason(
                "fence_missing",
                f"the ledger of node {options.node} names nothing to be fenced: repair it, or "
                "delete it and run again from the start",
            )
        )
    undone, doubts = undone_fences(state, known) if known.method == "network_fence" else ([], [])
    reasons += doubts
    finding.repair = [
        Action("fence_network", fence.name, command(fence, FENCED), Subject(known, fence))
        for fence in undone
    ]
    if known.is_off:
        proven, doubts = _prove_off(state, known, options, tools)
    else:
        proven, doubts = _prove(state, known, options, bool(undone), files)
    return proven, reasons + doubts


def _left_to_tools(state: NodeState, known: Ledger, options: FenceOptions) -> dict[str, Reason]:
    """The volumes that the proof leaves out, see held_by_other_clients; none where nothing would be
    left of the fence, since Ceph then only contradicts it.
    """
    reading = None if options.check else options.reading
    left = held_by_other_clients(known, reading, state, options) if reading else {}
    return left if set(known.volumes) - set(left) else {}


def _prove_off(
    state: NodeState, known: Ledger, options: FenceOptions, left: Mapping[str, Reason]
) -> tuple[Ledger | None, list[Reason]]:
    """The same for a node that is switched off. What its BMC says is the proof; Ceph may
    contradict it. ``left``: see held_by_other_clients.
    """
    # In check mode nothing was switched off.
    if options.check:
        return proven_ledger(known, None, state, options), []
    doubts = proof_doubts(options.power, known, state.host, state.now, apart=options.power_seconds)
    if options.reading:
        rest = tuple(name for name in known.volumes if name not in left)
        doubts += doubts_of(known._replace(volumes=rest), options.reading, state, options)
    if doubts:
        return None, doubts
    return proven_ledger(known, options.reading, state, options, left=left), []


def _prove(
    state: NodeState,
    known: Ledger,
    options: FenceOptions,
    changes_fences: bool,
    files: Files,
) -> tuple[Ledger | None, list[Reason]]:
    """The ledger once the fence is proven (None: not yet), and what contradicts the fence.

    ``changes_fences``: a NetworkFence is patched in this very run.
    """
    if changes_fences and options.proof != "message" and not options.check:
        return None, []  # Ceph is read after the patch, by the next run
    reading = _usable_reading(options, changes_fences)
    if reading:
        return (
            proven_ledger(known, reading, state, options, files.covered),
            doubts_of(known, reading, state, options),
        )
    # Method none needs it as well, where the user wants Ceph to show that no client is left.
    needs_reading = not options.check and (
        known.method == "ceph" or (options.proof == "ceph" and known.method == "none")
    )
    if needs_reading:
        return None, [
            Reason(
                "ceph_not_read",
                "nothing was read of Ceph (option ceph), so the fence is not proven: give what "
                "rbd_watcher_info returned",
            )
        ]
    # A controller's message proves a NetworkFence by itself, and in check mode nothing is asked.
    if options.check or options.proof == "message":
        return proven_ledger(known, None, state, options), []
    return None, []


def _usable_reading(options: FenceOptions, changes_fences: bool) -> Reading | None:
    # What was read before the patch proves nothing about it, and in check mode nothing was done.
    return None if changes_fences or options.check else options.reading


def is_alone(state: NodeState, ledger: Ledger) -> bool:
    """No other node can have a volume of the fence yet: all of them are attached here, and nowhere
    else.
    """
    # Then an entry may be replaced with a gap: for a moment the lost node could write, but no other
    # node does.
    # What is not in Ceph is no matter of an entry.
    here = {found.name for found in state.attached if not found.elsewhere}
    open_there = [found for found in state.used if found.is_rbd or found.is_cephfs]
    return not open_there and set(ledger.volumes) <= here


def _finding(state: NodeState, options: FenceOptions, evidence: dict[str, object]) -> Finding:
    # What is fenced is decided from the RBD volumes alone.
    rbd = sum(found.is_rbd for found in state.held)
    # Nothing runs on a node without power.
    is_off = options.method in OFF_METHODS or (state.ledger is not None and state.ledger.is_off)
    return Finding(
        control="STOR-16",
        severity="critical",
        kind="Node",
        name=options.node,
        node=options.node,
        summary=f"node {options.node} is {_readiness(state)} and has {rbd} RBD volumes"
        + (f" and {len(state.held) - rbd} others" if len(state.held) > rbd else ""),
        verdict="repair",
        evidence=evidence if is_off else {**evidence, "aside": _ASIDE},
        named=True,
    )


def _readiness(state: NodeState) -> str:
    if state.host is None:
        return "gone"
    node = state.host.node
    says = {"True": "Ready", "False": "not Ready"}.get(node.ready, node.ready)
    return f"{says} since {iso(node.ready_since)}" if node.ready_since else says


def _is_noted(state: NodeState, ledger: Ledger) -> bool:
    """The note on the node is there, if it has room, and the newest.

    It is not after a run that was killed before it wrote the note, or when the note was deleted.
    """
    # A Node that was recreated is not the one that the ledger is about, so nothing is noted on it.
    if state.item is None or state.item["metadata"]["uid"] != ledger.node_uid:
        return True
    return is_noted(state.item, ledger)


def _write(ledger: Ledger, options: FenceOptions, verb: str) -> Action:
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
    if ledger.power:
        how = "is switched off by" if ledger.method == POWER else "was switched off, says"
        return f"it {how} {ledger.power.title} ({ledger.power.kind})"
    how = "by its NetworkFence" if ledger.method == "network_fence" else "in Ceph's blocklist"
    known = few(
        f"{address} ({ledger.source.get(address, 'ledger')})" for address in ledger.addresses
    )
    return f"{known} is fenced {how}"
