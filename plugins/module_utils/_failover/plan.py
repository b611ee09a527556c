# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides how the volumes of a lost and fenced node leave it, and which of them stay. Pure: no I/O
here.

The out-of-service taint makes Kubernetes itself end the pods and detach the volumes, but of every
driver. Where that would go too far, volumes are detached one after the other: the pods of one, then
its VolumeAttachment, then the next. Namespaces take turns, so that no tenant keeps others waiting.

Whom to fence is decided in _fencing/plan.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from .._core.codes import Reason
from .._core.controls import FAIL_OVER, RELEASE
from .._core.engine import Action, Finding, Plan
from .._core.turns import in_turns
from .._core.untrusted import few
from .._fences.ceph_reading import Reading
from .._fences.inline import inline_storage
from .._fences.ledger import Entry, Ledger, is_noted, read_note
from .._fences.power import PowerReading, proof_doubts
from .._fences.proof import missing
from .._fences.state import (
    OUT_OF_SERVICE,
    TAINT,
    AttachedVolume,
    Filters,
    HostRecord,
    NodeState,
    fences_of,
    is_older,
    names_cephfs,
    opposing,
)
from .._kube.objects import (
    Attachment,
    Claim,
    Pod,
    Tenant,
    Volume,
    attachment_name,
    attachment_names,
    attachment_path,
    is_bound,
    is_too_late,
    may_have,
    node_path,
    parse_time,
    pick_pod,
    pod_path,
    tolerates,
)

# The fence was read back from Ceph so long ago at most (seconds), whenever anything is detached.
# The time between the proof of the fence and a detach, in which an entry may be removed: the
# shorter, the better.
_MAX_AGE = 120.0
# Since when the feature is generally available: KEP-2268 (Non graceful node shutdown). Before, it
# hung on the gate NodeOutOfServiceVolumeDetach.
_TAINT_RELEASE = (1, 28)
# Where the controller manager has to find out by itself that an attachment is gone, it looks once a
# minute (seconds): --attach-detach-reconcile-sync-period, reconcilerSyncDuration of
# pkg/controller/volume/attachdetach/attach_detach_controller.go.
_NOTICE_SECONDS = 90.0
# What a pod that no volume of the fence takes off the node is counted by; no PersistentVolume has
# such a name.
BARE = "pods with inline volumes"
# At most so many claims of one namespace are read. A kubelet runs 110 pods (--max-pods), each of
# which has a few.
MOST_CLAIMS = 1000
_UNREAD = (
    "was not read: pods on this node name more claims than a run reads (of a namespace at most "
    f"{MOST_CLAIMS})"
)
_UNREAD_ONES = _UNREAD.replace("was not read", "were not read")
# At most so many pods and attachments are deleted in one run: a busy API server takes 75 s for
# them, what was read of Ceph is too old after 120 s (_MAX_AGE), and each is told twice in a result.
MOST_DELETIONS = 500
# And of those that Kubernetes would delete as well, only later, so many: as many as a kubelet runs.
# Any number may be on the node without running.
MOST_HASTENED = 110
# And of so many pods that stay a finding tells: any number may be on the node.
MOST_TOLD = 110
WARNING = (
    "the containers of this node may still run: storage is protected from them by the fence, the "
    "application is not. They may answer requests, and read what they have cached"
)


@dataclass(frozen=True)
class FailoverOptions:
    """What the user asked for and allows; see the documentation of volume_failover for units and
    defaults.

    ``state``: ``detached`` ends when the volumes have left the node; ``attached`` when they are
    where pods wait for them too. ``awaited``: PersistentVolumes that an earlier step took off the
    node, and that are to be awaited as well. ``check``: check mode, in which the steps before have
    fenced nothing.
    """

    node: str
    filters: Filters
    reading: Reading | None = None
    check: bool = False
    detach: str = "auto"
    accept_unfenced_volumes: bool = False
    detach_timeout: float = 120.0
    attach_timeout: float = 120.0
    # A kubelet that has tried for long waits up to 122 s before it tries again (kubernetes
    # pkg/util/goroutinemap/exponentialbackoff maxDurationBeforeRetry).
    ready_timeout: float = 180.0
    state: str = "attached"
    awaited: tuple[str, ...] = ()
    power: tuple[PowerReading, ...] = ()

    @property
    def waits(self) -> bool:
        """What was detached is awaited elsewhere."""
        return self.state != "detached"


class LostPod(NamedTuple):
    """A pod that the API has on the lost node, and that needs its volumes.

    ``volumes``: the PersistentVolumes of its claims, each with the driver that attaches it, empty
    where none is known; ``unclear``: the claims of which it is not known what volume they had, each
    with the reason; ``unread``: those of them that were not read, so that they may be of the next;
    ``doomed``: claims that are being deleted;
    ``more``: how many claims it names beyond those that are kept of it;
    ``tolerates``: the taint does not end it; ``inline``: its volumes that have no claim, and that
    no fence covers;
    ``kinds``: what each of the PersistentVolumes is, for a message; ``local``: those whose data is
    on the node alone.
    """

    pod: Pod
    volumes: Mapping[str, str]
    unclear: tuple[str, ...] = ()
    doomed: tuple[str, ...] = ()
    tolerates: bool = False
    inline: tuple[str, ...] = ()
    more: int = 0
    unread: tuple[str, ...] = ()
    kinds: Mapping[str, str] = {}
    local: frozenset[str] = frozenset()


class FailoverState(NamedTuple):
    """What was read. ``covered``: the volumes of the fence, attached or not (then without the name
    of an attachment).

    ``busy``: who else works at the node, as a sentence; known in check mode only, which does not
    wait for them.
    """

    node: NodeState
    covered: tuple[AttachedVolume, ...] = ()
    pods: tuple[LostPod, ...] = ()
    busy: str = ""


class Deletion(NamedTuple):
    """What is deleted so that a volume leaves: one of its pods, or its attachment.

    ``volumes``: the names of those that it keeps on the node, since a pod may use several, or BARE;
    ``needed``: without it they stay. Others Kubernetes deletes, too, only later.
    """

    volumes: tuple[str, ...]
    pod: Pod | None = None
    attachment: Attachment | None = None
    needed: bool = True

    @property
    def is_bare(self) -> bool:
        """It is a pod that has inline volumes, and no volume of the fence."""
        return self.volumes == (BARE,)


class Subject(NamedTuple):
    """What the actions of a finding are about.

    ``volumes``: those that leave; ``awaited``: those that are awaited elsewhere; ``done``: then
    nothing of the fence is left on the node; ``deletion``: what of one volume is deleted; ``bare``:
    the pods that leave and have inline volumes, and no volume of the fence.
    """

    volumes: tuple[AttachedVolume, ...]
    awaited: tuple[AttachedVolume, ...]
    attach_timeout: float
    done: bool = False
    deletion: Deletion | None = None
    bare: tuple[Pod, ...] = ()


class Remark(str):
    """A sentence that says why one volume is not where it is to be. ``volume``: its name."""

    volume: str

    def __new__(cls, volume: str, text: str) -> Remark:
        """Like Reason, a str, so that it is joined and shown as one."""
        remark = super().__new__(cls, text)
        remark.volume = volume
        return remark


def pick_lost_pod(item: dict[str, Any]) -> LostPod | None:
    """The record of a pod, None if it has ended; its claims are not known yet."""
    pod, spec = pick_pod(item), item["spec"]
    if pod.terminal:
        return None
    # Of what its tenant may write in any number, only what is shown or read is kept.
    claims = pod.claims[: MOST_CLAIMS + 1]
    return LostPod(
        pod._replace(claims=claims),
        volumes={},
        # Also for a while: pods that end too late are deleted by force here.
        tolerates=any(tolerates(one, *TAINT) for one in spec.get("tolerations") or []),
        inline=tuple(islice(inline_storage(spec), MOST_CLAIMS)),
        more=len(pod.claims) - len(claims),
    )


def with_claims(
    lost: LostPod,
    claims: Mapping[tuple[str, str], Claim | None],
    volumes: Mapping[str, Volume],
) -> LostPod:
    """The same with what its claims are bound to.

    A claim that is not bound has never held a volume, whatever it names.
    """
    pod = lost.pod
    found = {name: claims.get((pod.namespace, name)) for name in pod.claims}
    bound = _bound(found, volumes)
    unclear: dict[str, list[str]] = {}
    for name, claim in found.items():
        known = (pod.namespace, name) in claims
        if name not in bound:
            unclear.setdefault(_why_unclear(claim) if known else _UNREAD, []).append(name)
    unread = {why: names for why, names in unclear.items() if why == _UNREAD}
    its = {claim.volume: volumes.get(claim.volume) for claim in bound.values()}
    return lost._replace(
        pod=pod._replace(claims=tuple(bound)),
        volumes={name: _disk_of(volume) for name, volume in its.items()},
        kinds={name: _kind_of(volume) for name, volume in its.items()},
        local=frozenset(name for name, one in its.items() if one and one.is_only_on(pod.node)),
        unclear=tuple(_told_unclear(unclear, lost.more)),
        unread=tuple(_told_unclear(unread, lost.more)),
        doomed=tuple(name for name, claim in bound.items() if claim.deleted),
    )


def _told_unclear(claims: Mapping[str, list[str]], more: int) -> Iterator[str]:
    """One text for each reason. ``claims``: by reason; ``more``: so many were not read besides."""
    for why, names in claims.items():
        others = len(names) - 1 + (more if why == _UNREAD else 0)
        if why:
            yield f"claim {names[0]}{f' (and {others} more)' if others else ''}, which {why}"
    if more and _UNREAD not in claims:
        yield f"{more} claims, which {_UNREAD_ONES}"


def _bound(claims: Mapping[str, Claim | None], volumes: Mapping[str, Volume]) -> dict[str, Claim]:
    """Those whose volume says so, too."""
    return {
        name: claim
        for name, claim in claims.items()
        if claim and is_bound(claim, volumes.get(claim.volume))
    }


def _disk_of(volume: Volume | None) -> str:
    return volume.disk[0] if volume else ""


def _kind_of(volume: Volume | None) -> str:
    return volume.driver or volume.kind or "no driver" if volume else "its PersistentVolume is gone"


def _why_unclear(claim: Claim | None) -> str:
    """Why a claim that is not bound may have been; empty: it was not."""
    if claim is None:
        return "does not exist"
    # Only a claim that was bound gets to these phases; but of one that says so by itself, the
    # controller manager writes Lost, too (syncBoundClaim of
    # pkg/controller/volume/persistentvolume/pv_controller.go).
    return f"is {claim.phase}, and no volume says so" if claim.phase in ("Bound", "Lost") else ""


def is_out_of_service(host: HostRecord) -> bool:
    """The node has the taint that ends its pods, whoever has set it."""
    # Kubernetes asks for the key alone when it detaches, but only NoExecute also ends the pods.
    return any(key == OUT_OF_SERVICE and effect == TAINT[2] for key, _value, effect in host.taints)


def obstacles(name: str, host: HostRecord | None, ledger: Ledger) -> list[Reason]:
    """Why this is not, or no longer, the lost node that was fenced.

    A node whose object was deleted is judged by its ledger alone.
    """
    if host is None:
        return []
    node = host.node
    # A Node object of the same name may be another machine, while the fenced one still runs.
    if node.uid != ledger.node_uid:
        return [
            Reason(
                "identity_changed",
                f"node {name} is another one (uid {node.uid}) than the one that was fenced (uid "
                f"{ledger.node_uid}): {_release(name)}",
            )
        ]
    # Only the node lifecycle controller writes Unknown, after the kubelet has fallen silent; a
    # kubelet that reports may run pods that use the volumes.
    if node.ready != "Unknown":
        said = "is back" if node.ready == "True" else "has a kubelet that reports"
        return [
            Reason(
                "node_not_lost",
                f"node {name} {said} (Ready={node.ready}): nothing is detached from it. Its fence "
                f"stays; {_release(name)}",
            )
        ]
    if host.boot_id != ledger.boot_id:
        return [
            Reason(
                "node_rebooted",
                f"node {name} was rebooted since it was fenced (bootID {host.boot_id}, then "
                f"{ledger.boot_id}): it has other clients, and may have another address. Run "
                f"{FAIL_OVER} again, which fences these",
            )
        ]
    return []


def plan(state: FailoverState, options: FailoverOptions) -> Plan:
    """Decide on every volume of the fence that is still on the lost node."""
    finding = _describe(state, options)
    ledger = state.node.ledger
    # Check mode takes no Lease, so it has to say who holds it.
    if state.busy:
        return _refused(finding, [Reason("lease_held", state.busy)])
    if ledger is None:
        return _refused(
            finding,
            [
                Reason(
                    "fence_missing",
                    f"nothing proves that node {options.node} is fenced: it has no ledger. Run "
                    f"{FAIL_OVER}, which fences it first",
                )
            ],
        )
    unfit = (
        fence_obstacles(state, ledger)
        + unproven(state, ledger, options)
        + _filter_obstacles(state, options)
    )
    if unfit:
        return _refused(finding, unfit)
    return _judge(state, ledger, options, finding)


def _judge(
    state: FailoverState, ledger: Ledger, options: FailoverOptions, finding: Finding
) -> Plan:
    """Decide on each volume of a fence that stands; ``finding``: about the node as a whole."""
    selected, bare, is_all = _chosen(state, options)
    reasons = taint_obstacles(state, options)
    # Asked for by name, so nothing else is done in its place.
    if (selected or bare) and options.detach == "taint" and reasons:
        return _refused(finding, reasons)
    # The taint where it may be used: Kubernetes then does all of it in its own order.
    tainting = options.detach != "volumes" and not reasons
    fit, findings = _sort(state, selected, tainting, options)
    leaving, staying = _sort_bare(state, bare, tainting, options)
    if tainting and not (fit or leaving or _is_tainted(state)):
        # It is set only for what leaves, so it takes no other pod off the node either.
        leaving, staying = _sort_bare(state, bare, False, options)
    deletions, left = _first(_deletions(state, fit, leaving, tainting))
    ends = tainting and bool(fit or leaving or _is_tainted(state))
    findings += [*staying, *_unreached(state, ledger, options, ends)]
    findings += _next_time(options, fit, left)
    going = [covered for covered in fit if not left[covered.name]]
    all_go = is_all and len(going) == len(selected) and not (left[BARE] or staying)
    done = _is_done(state, ledger, options, all_go)
    about = Subject(
        tuple(going),
        _awaited(state, ledger, options, going, done),
        _patience(options, tainting),
        done,
        bare=_ended(leaving, deletions, tainting),
    )
    finding.evidence.update(_evidence(state, about, tainting, options, reasons))
    finding.repair = _actions(state, options, about, tainting, deletions)
    return Plan(findings + _about_node(options, finding, about, deletions))


def _chosen(
    state: FailoverState, options: FailoverOptions
) -> tuple[list[AttachedVolume], list[LostPod], bool]:
    """The volumes and the pods without one that are meant, and whether these are all there are."""
    held, bare = _held(state), _bare(state)
    selected = [covered for covered in held if options.filters.selects(covered)]
    # Filters choose among volumes, and these pods have none.
    if options.filters.active:
        return selected, [], len(selected) == len(held) and not bare
    return selected, bare, len(selected) == len(held)


def _about_node(
    options: FailoverOptions, finding: Finding, about: Subject, deletions: Sequence[Deletion]
) -> list[Finding]:
    """The finding about the node, if anything is to be done or awaited."""
    # Also with nothing left to detach: a run that was killed has still to be seen through.
    if not (about.volumes or about.done or about.awaited or deletions):
        return []
    if not about.volumes and not deletions:
        finding.summary = f"what has left the lost node {options.node} is awaited elsewhere"
    return [finding]


def _ended(
    leaving: Iterable[LostPod], deletions: Iterable[Deletion], tainting: bool
) -> tuple[Pod, ...]:
    """The pods without a volume of the fence that end by this run."""
    deleted = {one.pod.uid for one in deletions if one.is_bare and one.pod}
    # Those that have no turn now are ended by Kubernetes, if there is the taint.
    return tuple(
        lost.pod for lost in leaving if lost.pod.uid in deleted or (tainting and not lost.tolerates)
    )


def _sort(
    state: FailoverState, selected: list[AttachedVolume], tainting: bool, options: FailoverOptions
) -> tuple[list[AttachedVolume], list[Finding]]:
    """The volumes that leave the node, and the findings about those that stay."""
    going, findings = [], []
    for covered in selected:
        why = _volume_obstacles(state, covered, tainting, options)
        if why:
            findings.append(_left_there(options, covered, why))
        else:
            going.append(covered)
    return going, findings


def _sort_bare(
    state: FailoverState, bare: Iterable[LostPod], tainting: bool, options: FailoverOptions
) -> tuple[list[LostPod], list[Finding]]:
    """Of the pods with inline volumes, those that are deleted, and the findings about others."""
    going, staying = [], []
    for lost in bare:
        why = _bare_obstacles(state, lost, tainting)
        if not why:
            going.append(lost)
        # With the taint, Kubernetes ends all others by itself.
        elif lost.tolerates or not tainting:
            staying.append((lost, why))
    findings = _some_pods(options, [lost for lost, _why in staying])
    reasons = {lost.pod.uid: why for lost, why in staying}
    for finding in findings:
        finding.refuse(*reasons[finding.evidence["uid"]])
    return going, findings


def _some_pods(options: FailoverOptions, pods: Iterable[LostPod]) -> list[Finding]:
    """A finding about each of them, of many only of some, in turns of their namespaces."""
    turns = in_turns(pods, lambda lost: lost.pod.namespace)
    findings = [_about_pod(options, lost.pod) for lost in turns[:MOST_TOLD]]
    if len(turns) > MOST_TOLD:
        findings[-1].evidence["more"] = f"{len(turns) - MOST_TOLD} more pods stay on the node"
    return findings


def _unreached(
    state: FailoverState, ledger: Ledger, options: FailoverOptions, ends: bool
) -> list[Finding]:
    """The findings about pods, and volumes that no pod there uses, which stay on the node since the
    fence does not cover their storage. The run is not refused for them, and fails at its end.

    ``ends``: Kubernetes ends all pods but those that tolerate the taint.
    """
    # Filters choose among the volumes of the fence.
    if options.filters.active:
        return []
    why = {
        lost.pod.uid: reason
        for lost in state.pods
        if lost.tolerates or not ends
        for reason in [_why_unreached(state, ledger, options, lost)]
        if reason
    }
    findings = _some_pods(options, [lost for lost in state.pods if lost.pod.uid in why])
    for finding in findings:
        finding.leave(why[finding.evidence["uid"]])
    left = [] if ends else _attached_alone(state, ledger, options)
    for covered in in_turns(left, _namespace)[:MOST_TOLD]:
        finding = _about_volume(options, covered, f"stays attached to the lost node {options.node}")
        finding.leave(_why_attached(ledger, covered))
        findings.append(finding)
    # What a fence leaves out is no harm by this run, unlike what it could not move.
    for finding in findings:
        finding.severity = "major"
    return findings


def _why_unreached(
    state: FailoverState, ledger: Ledger, options: FailoverOptions, lost: LostPod
) -> Reason | None:
    """Why this pod stays on the node, by its storage; None if it is told otherwise, or has none
    that the node can have mounted.
    """
    host, pod = state.node.host, lost.pod
    # What belongs to the node would be made again there, and of a late pod it has mounted nothing.
    if pod.owner and pod.owner.kind in ("DaemonSet", "Node"):
        return None
    if is_too_late(pod, host.node if host else None):
        return None
    fenced = {found.name for found in state.covered}
    # With a volume of the fence it is told with that, or as a pod with inline volumes.
    if fenced & set(lost.volumes) or (_is_off(state) and lost.inline):
        return None
    late = {found.name for found in state.node.attached if found.too_late}
    kinds = {
        name: kind
        for name, kind in lost.kinds.items()
        if name not in late and not _may_join(options, ledger, lost.volumes[name])
    }
    others = [*lost.inline, *(f"the volume of {text}" for text in lost.unclear)]
    here = lost.local & set(kinds)
    if here and here == set(kinds) and not others:
        return Reason(
            "data_on_node",
            f"pod {pod.title} uses {few(sorted(here))}, whose data is on node {ledger.node} alone, "
            "so no other node can have it: repair the node, or restore the data from a backup",
        )
    if not kinds and not others:
        return None
    # Who deletes it by hand would lose what these are about.
    first = [*_doomed(state, [lost], tainting=False), *_pod_of_earlier_machine(state, lost)]
    return first[0] if first else _out_of_reach(ledger, f"pod {pod.title} uses", kinds, others)


def _out_of_reach(
    ledger: Ledger, what: str, kinds: Mapping[str, str], others: Iterable[str] = ()
) -> Reason:
    """``kinds``: the volumes, each with its driver or kind; ``others``: what has no name."""
    used = few([*(f"{name} ({kind})" for name, kind in kinds.items()), *others])
    if ledger.is_off or ledger.method == "none":
        said = "its node is off" if ledger.is_off else "you have said that its node is off"
        return Reason(
            "storage_unreached",
            f"{what} {used}, which is no part of the fence. Run {FAIL_OVER} again, which fences "
            f"what it can, or delete the pod by hand: {said}",
        )
    # ceph-csi calls its drivers so, and node_fence tells why it leaves a volume of them out.
    ceph = any(kind.endswith(".csi.ceph.com") for kind in kinds.values())
    told = ". Of what is in the Ceph that was read, a finding of its own says why" if ceph else ""
    return Reason(
        "storage_unreached",
        f"{what} {used}, which the fence of node {ledger.node} (method {ledger.method}) does not "
        f"cover, so that a new pod may be a second writer there{told}. Switch the node off, and "
        f"run again with method power, or external if others have done it",
    )


def _why_attached(ledger: Ledger, found: AttachedVolume) -> Reason:
    """Why a volume that no pod there uses stays attached to the node."""
    if found.volume and found.volume.is_only_on(ledger.node):
        return Reason(
            "data_on_node",
            f"its data is on node {ledger.node} alone, so no other node can have it: repair the "
            "node, or restore the data from a backup",
        )
    return _out_of_reach(ledger, "it is", {found.name: found.storage})


def _attached_alone(
    state: FailoverState, ledger: Ledger, options: FailoverOptions
) -> list[AttachedVolume]:
    """What is attached to the node, is in no fence, and no pod there uses any more."""
    used = {name for lost in state.pods for name in lost.volumes}
    known = used | {found.name for found in state.covered}
    # If the node is off, node_fence reports what its fence leaves out. Nobody needs an attachment
    # without a PersistentVolume, and a volume that came too late was never mounted there.
    return [
        found
        for found in state.node.attached
        if found.volume is not None
        and not (ledger.is_off or found.too_late or found.name in known)
        and not _may_join(options, ledger, found.attachment.driver)
    ]


def _may_join(options: FailoverOptions, ledger: Ledger, driver: str) -> bool:
    """It is not known yet whether the fence covers it: only once the node is fenced."""
    in_ceph = ledger.method in ("ceph", "network_fence")
    return options.check and in_ceph and names_cephfs(driver)


def _held(state: FailoverState) -> list[AttachedVolume]:
    """The volumes of the fence that are attached to the node, or that a pod on it uses."""
    # A pod may use a volume of the fence although its attachment is gone, after a forced detach.
    return [
        covered for covered in state.covered if covered.attachment.name or _users(state, covered)
    ]


def _is_done(state: FailoverState, ledger: Ledger, options: FailoverOptions, all_go: bool) -> bool:
    """The fail-over ends with this run, and the ledger does not say so yet.

    ``all_go``: nothing of the fence is left on the node.
    """
    # A run may have been killed while it wrote that down: in the ConfigMap, and not on the node.
    noted = ledger.phase == "detached" and _is_noted(state.node, ledger)
    return options.waits and all_go and not noted


def _awaited(
    state: FailoverState,
    ledger: Ledger,
    options: FailoverOptions,
    going: list[AttachedVolume],
    done: bool,
) -> tuple[AttachedVolume, ...]:
    """The volumes that are to be seen elsewhere, or free: those that leave, those that an earlier
    step took off the node, and those that a run which was killed has left unproven.
    """
    if not options.waits:
        return ()
    known = {covered.name for covered in going} | {*options.awaited}
    if ledger.phase != "detached":
        # What stays on the node, whatever that is, keeps no other volume from its proof.
        proven = {covered.name for covered in _held(state)} | {*ledger.detached}
        known |= {
            covered.name
            for covered in state.covered
            if covered.name not in proven and options.filters.selects(covered)
        }
    return tuple(found for found in state.covered if done or found.name in known)


def not_held(state: FailoverState, options: FailoverOptions) -> list[Reason]:
    """Why the node is not, or may not be, fenced still, once something was detached from it;
    nothing if it is.
    """
    # The volumes are with other nodes by now, so a fence that is gone means two writers: this is
    # said as loudly as possible.
    ledger = state.node.ledger
    if ledger is None:
        reasons = [Reason("fence_missing", f"node {options.node} has no ledger any more")]
    else:
        reasons = (
            _ledger_obstacles(state.node, ledger)
            + _undoing(state, ledger)
            + unproven(state, ledger, options)
        )
        # Nothing is detached before the first proof, which the task that detaches may have to give
        # and may not have come to.
        if ledger.phase == "intended" and not ledger.was_proven:
            return reasons
    danger = Reason(
        "fence_missing",
        f"node {options.node} may write to what was detached from it: switch it off at once, "
        f"or fence it again ({FAIL_OVER})",
    )
    return [*reasons, danger] if reasons else []


def unproven(state: FailoverState, ledger: Ledger, options: FailoverOptions) -> list[Reason]:
    """What Ceph itself, or the node's BMC, does not show of the fence now.

    A ledger tells of the past. Any client with the capability can remove an entry, and anyone with
    a hand at the machine can switch it on.
    """
    # A NetworkFence's message or a ledger says what was true when it was written; Ceph's blocklist
    # is what OSDs enforce, and a node that was off may be on again.
    # In check mode nothing was fenced, and with method none nothing is.
    if options.check or ledger.method == "none":
        return []
    if ledger.is_off:
        return proof_doubts(options.power, ledger, state.node.host, state.node.now, least=1)
    if options.reading:
        return missing(ledger, options.reading, state.node.now, _MAX_AGE)
    if ledger.unverified:
        return []  # Ceph could not be asked before either, and the user has accepted that.
    return [
        Reason(
            "ceph_not_read",
            f"nothing was read of Ceph (option ceph), so whether node {ledger.node} is fenced now "
            "is not known: give what rbd_watcher_info returned",
        )
    ]


def _is_noted(node: NodeState, ledger: Ledger) -> bool:
    """The node's annotation says what the ConfigMap does, or there is no such node any more."""
    # The note is what a person sees on the node, so a run is not done without it.
    if node.item is None:
        return True
    note = read_note(node.item).ledger
    return is_noted(node.item, ledger) or (note is not None and note.phase == ledger.phase)


def taint_obstacles(state: FailoverState, options: FailoverOptions) -> list[Reason]:
    """Why the taint would go too far, or not far enough."""
    # With the taint, Kubernetes detaches every volume of the node, of every driver and namespace,
    # fenced or not (KEP-2268: the user guarantees that the node is shut down).
    reasons = []
    version = state.node.version
    if (version.major, version.minor) < _TAINT_RELEASE:
        reasons.append(
            Reason(
                "version_unsupported",
                f"Kubernetes {version.text} is too old for the taint {OUT_OF_SERVICE}, which takes "
                f"{_text(_TAINT_RELEASE)}",
            )
        )
    if state.node.host is None:
        reasons.append(
            Reason(
                "not_found", f"there is no node {options.node} any more that could get the taint"
            )
        )
    # The taint is on the node, so it knows no namespaces and no claims.
    if options.filters.active:
        reasons.append(
            Reason(
                "outside_scope",
                "the taint detaches all volumes of the node, and a filter was given",
            )
        )
    unfenced = _unfenced(state)
    if unfenced and not options.accept_unfenced_volumes:
        reasons.append(
            Reason(
                "volume_not_fenced",
                f"the taint would detach volumes that are not fenced: {few(unfenced)}. "
                "Detach one by one, or set accept_unfenced_volumes",
            )
        )
    return [
        *reasons,
        *_earlier_machine_obstacles(state),
        *_doomed(state, state.pods, tainting=True),
    ]


def _earlier_machine_obstacles(state: FailoverState) -> list[Reason]:
    """Why the taint would let others write to what another machine may have open, which had the
    node's name before: that one was not switched off.
    """
    left = _of_earlier_machine(state)
    before = [_title(found) for found in state.node.of_earlier_machine if found.name in left]
    before += state.node.older
    if not before or not _is_off(state):
        return []
    return [
        Reason(
            "volume_not_fenced",
            f"the taint would take {few(before)} off the node, and the machine that had its name "
            "before may write there. Detach one by one",
        )
    ]


def _of_earlier_machine(state: FailoverState) -> set[str]:
    """The volumes that the fence of a node that is off leaves out for that reason."""
    # Once its Node object is gone, Kubernetes itself ends all pods of the name within a minute
    # (gcOrphaned of pkg/controller/podgc/gc_controller.go), and detaches.
    covered = {found.name for found in state.covered}
    return (
        {found.name for found in state.node.of_earlier_machine} - covered
        if _is_off(state)
        else set()
    )


def _pod_of_earlier_machine(state: FailoverState, lost: LostPod) -> list[Reason]:
    """Why a pod stays on a node that is off: another machine of the node's name may run it, or
    have open what it uses.
    """
    if not _is_off(state):
        return []
    pod, used = lost.pod.title, sorted(_of_earlier_machine(state) & set(lost.volumes))
    by_hand = "Prove that the earlier machine is off, and delete the pod by hand"
    if is_older(lost.pod, state.node.host):
        return [
            Reason(
                "volume_not_fenced",
                f"pod {pod} is older than this Node object, so the machine that had the node's "
                f"name before may run it. {by_hand}",
            )
        ]
    if not used:
        return []
    return [
        Reason(
            "volume_not_fenced",
            f"pod {pod} uses {few(used)}, which the machine that had the node's name before may "
            f"have open. {by_hand}",
        )
    ]


def fence_obstacles(state: FailoverState, ledger: Ledger) -> list[Reason]:
    """Why the node is not, or no longer, lost and fenced: by its own object, its ledger and the
    NetworkFences.
    """
    node = state.node
    return (
        obstacles(ledger.node, node.host, ledger)
        + _ledger_obstacles(node, ledger)
        + _undoing(state, ledger)
    )


def _ledger_obstacles(node: NodeState, ledger: Ledger) -> list[Reason]:
    # Only "fenced" and "detached" say that the fence was proven; "intended" may have stopped
    # anywhere before that.
    if ledger.phase == "releasing":
        return [
            Reason(
                "fence_unfinished",
                f"the fence of node {ledger.node} is being released: let {RELEASE} end",
            )
        ]
    if ledger.phase not in ("fenced", "detached"):
        return [
            Reason(
                "fence_unfinished",
                f"the fence of node {ledger.node} was begun and is not proven (phase "
                f"{ledger.phase}): run {FAIL_OVER} again",
            )
        ]
    over = [
        entry
        for entry in _current(ledger)
        if entry.until and (parse_time(entry.until) or node.now) <= node.now
    ]
    # The monitor itself drops an entry whose time is over (OSDMonitor::tick of
    # src/mon/OSDMonitor.cc), and its client writes again.
    reasons = [
        Reason(
            "ceph_entry_missing",
            f"the fence of {entry.entry} ended by itself at {entry.until}: run {FAIL_OVER} again",
        )
        for entry in over
    ]
    return reasons + (_network_obstacles(node, ledger) if ledger.method == "network_fence" else [])


def _network_obstacles(node: NodeState, ledger: Ledger) -> list[Reason]:
    """The NetworkFences of the ledger that are not in force."""
    reasons = []
    for noted, fence, problem in fences_of(node, ledger):
        if fence is None or problem or not fence.in_force:
            now = problem or (
                f"is {fence.state}, and its status says {fence.status}" if fence else "is gone"
            )
            reasons.append(
                Reason(
                    "network_fence_unfit",
                    f"NetworkFence {noted.name}, which is to fence node {ledger.node}, {now}. Run "
                    f"{FAIL_OVER} again",
                )
            )
    return reasons


def _current(ledger: Ledger) -> list[Entry]:
    """The entries that fence the node. Others are left from before it booted."""
    # An entry of an earlier boot blocks an address that the node may not have any more.
    return [
        entry
        for entry in ledger.entries
        if ledger.method == "ceph" and entry.entry in ledger.addresses
    ]


def _undoing(state: FailoverState, ledger: Ledger) -> list[Reason]:
    """NetworkFences whose controller would undo the fence whenever it starts.

    One whose driver or clusterID is unknown may be such a one.
    """
    # Reconcile calls UnFenceClusterNetwork for each Unfenced object at each start of the controller
    # (kubernetes-csi-addons internal/controller/csiaddons/networkfence_controller.go).
    drivers = {covered.attachment.driver for covered in state.covered}
    return [
        Reason(
            "network_fence_opposed",
            f"NetworkFence {fence.name} is Unfenced and covers {few(ledger.addresses)}: its "
            f"controller may take the fence of node {ledger.node} back at any time. Run "
            f"{FAIL_OVER} again, which sets it to Fenced",
        )
        for fence in opposing(state.node, ledger, drivers)
    ]


def _filter_obstacles(state: FailoverState, options: FailoverOptions) -> list[Reason]:
    """Filters choose among what is fenced, and nothing else."""
    # A misspelled claim must not look like one that was failed over.
    if not options.filters.active:
        return []
    fenced = {covered.claim for covered in state.covered}
    reasons = [
        Reason("volume_not_fenced", f"claim {name} has no volume that is fenced")
        for name in options.filters.claims
        if name not in fenced
    ]
    if not any(options.filters.selects(covered) for covered in state.covered):
        reasons.append(
            Reason(
                "volume_not_fenced",
                "the filters choose none of the volumes that are fenced: "
                f"{few(_title(covered) for covered in state.covered)}",
            )
        )
    return reasons


def _is_off(state: FailoverState) -> bool:
    """The fence is that the node has no power, so that it writes to no storage at all."""
    return state.node.ledger is not None and state.node.ledger.is_off


def _unfenced(state: FailoverState) -> list[str]:
    """Volumes on the node that the fence does not cover: those that are attached, and those that
    pods use without.
    """
    if _is_off(state):
        return []
    # Plugins that are not CSI have no VolumeAttachments, so the node's own status is asked too.
    covered = {found.name for found in state.covered}
    attached = [
        _title(entry)
        for entry in state.node.attached
        # An attachment that names no PersistentVolume holds an inline volume, which nothing fences.
        if not entry.attachment.volume or entry.attachment.volume not in covered
    ]
    known = covered | {entry.attachment.volume for entry in state.node.attached}
    used = [text for lost in state.pods for text in _used_unfenced(state.node, lost, known)]
    return [*dict.fromkeys([*attached, *used]), *_only_in_status(state)]


def _used_unfenced(state: NodeState, lost: LostPod, known: set[str]) -> list[str]:
    """What a pod uses besides the volumes that are known."""
    pod, node = lost.pod.title, state.host.node if state.host else None
    used = [
        name
        for name, driver in lost.volumes.items()
        if name not in known and may_have(lost.pod, node, driver, state.attaching)
    ]
    # A pod that comes after a late one has no claim to get the volume by.
    unclear = () if is_too_late(lost.pod, node) else lost.unclear
    return [
        *(f"{name} (of pod {pod})" for name in used),
        *(f"{text} (of pod {pod})" for text in unclear),
        # These are never attached by a driver, so of a late pod they count, too.
        *(f"{name} of pod {pod}" for name in lost.inline),
    ]


def _only_in_status(state: FailoverState) -> list[str]:
    """What the node's status calls attached or in use, without a VolumeAttachment of the node or a
    volume of the fence.
    """
    # volumesAttached is written by the attach/detach controller, volumesInUse by the kubelet
    # (NodeStatus in k8s.io/api/core/v1 types.go).
    if state.node.host is None:
        return []
    node = state.node.host.node
    volumes = [
        covered.volume for covered in state.covered if covered.volume and covered.volume.driver
    ]
    known = {attachment_name(volume.driver, volume.handle, node.name) for volume in volumes}
    known |= {entry.attachment.name for entry in state.node.attached}
    names = dict.fromkeys([*node.volumes_attached, *node.volumes_in_use])
    return [
        f"{name} (by the node's status)"
        for name in names
        # By the names that attachments would have: the status knows volumes by driver and handle.
        if not attachment_names((name,), node.name) & known
    ]


def _doomed(state: FailoverState, pods: Sequence[LostPod], tainting: bool) -> list[Reason]:
    """Why these pods must stay: they are, or may be, the last users of a claim that is being
    deleted.
    """
    # The finalizer kubernetes.io/pvc-protection goes with the last pod
    # (pkg/controller/volume/pvcprotection/pvc_protection_controller.go), then the claim, then the
    # data where the volume's reclaim policy is Delete.
    host = state.node.host
    return [
        Reason(
            "claim_would_be_lost",
            f"claim {name} is being deleted, and only pod {lost.pod.title} keeps it, and so the "
            "data: let the claim go, or save the data first",
        )
        for lost in pods
        for name in lost.doomed
    ] + [
        Reason(
            "claim_would_be_lost",
            f"pod {lost.pod.title} names {text}: one that is being deleted would be lost with the "
            "pod, and so would its data. Look at its claims, and delete the pod by hand if none is",
        )
        for lost in pods
        # Any tenant may name the node in a late pod with any number of claims, which is not to keep
        # the taint from all others.
        if not (tainting and is_too_late(lost.pod, host.node if host else None))
        for text in lost.unread
    ]


def _volume_obstacles(
    state: FailoverState, covered: AttachedVolume, tainting: bool, options: FailoverOptions
) -> list[Reason]:
    """Why this volume stays where it is."""
    # All pods of a volume leave, or none: one that stays keeps it attached.
    users = _users(state, covered)
    reasons = _doomed(state, users, tainting)
    for lost in users:
        reasons += _pod_obstacles(state, lost, tainting, options)
        reasons += _pod_of_earlier_machine(state, lost)
    return reasons


def _pod_obstacles(
    state: FailoverState, lost: LostPod, tainting: bool, options: FailoverOptions
) -> list[Reason]:
    """Why this pod keeps its volumes on the node."""
    reasons, pod = [], lost.pod
    fenced = {found.name for found in state.covered}
    others = [name for name in lost.volumes if name not in fenced] + [*lost.inline]
    # Its volume may have had any storage, and the pod has it mounted all the same.
    others += [f"the volume of {text}" for text in lost.unclear]
    if others and not _is_off(state) and not options.accept_unfenced_volumes:
        reasons.append(
            Reason(
                "volume_not_fenced",
                f"pod {pod.title} uses it together with {few(others)}, which is not "
                "fenced: a new pod would be a second writer there. Fence that too, or set "
                "accept_unfenced_volumes",
            )
        )
    # Its controller places a pod on every node that its selector fits, Ready or not: it tolerates
    # not-ready and unreachable (AddOrUpdateDaemonPodTolerations of
    # pkg/controller/daemon/util/daemonset_util.go).
    if _is_daemon(pod) and (lost.tolerates or not tainting):
        reasons.append(
            Reason(
                "daemonset_pod",
                f"pod {pod.title} belongs to a DaemonSet, which would recreate it on this node: "
                "keep the DaemonSet off it first",
            )
        )
    return reasons


def _bare_obstacles(state: FailoverState, lost: LostPod, tainting: bool) -> list[Reason]:
    """Why a pod without a volume of the fence stays on a node that is off."""
    reasons = _doomed(state, [lost], tainting) + _pod_of_earlier_machine(state, lost)
    others = [*lost.volumes]
    others += [f"the volume of {text}" for text in lost.unclear if text not in lost.unread]
    # Nothing but the ledger shows that a volume was moved, and is where pods wait for it.
    if others:
        reasons.append(
            Reason(
                "volume_not_fenced",
                f"pod {lost.pod.title} uses {few(others)}, which is no part of the fence. Run "
                f"{FAIL_OVER} again, which fences what it can, or delete the pod by hand: its node "
                "is off",
            )
        )
    return reasons


def _users(state: FailoverState, covered: AttachedVolume) -> list[LostPod]:
    # By PersistentVolume, since claims of two namespaces may have one name.
    return [lost for lost in state.pods if covered.name in lost.volumes]


def _actions(
    state: FailoverState,
    options: FailoverOptions,
    about: Subject,
    tainting: bool,
    deletions: Iterable[Deletion],
) -> list[Action]:
    leave = [
        *_taint_action(state, options, about, tainting),
        *(_delete_action(deletion, about) for deletion in deletions),
    ]
    if about.volumes or about.bare:
        places = [
            attachment_path(covered.attachment)
            for covered in about.volumes
            if covered.attachment.name
        ]
        # Deleted is not detached: the attacher's finalizer keeps the object until the driver has
        # answered.
        leave.append(Action("wait_detached", options.node, ["GET", *places], about))
    arrives = options.waits and (about.awaited or about.done)
    return leave + (_arrivals(options, about) if arrives else [])


def _taint_action(
    state: FailoverState, options: FailoverOptions, about: Subject, tainting: bool
) -> list[Action]:
    """With the taint, the pod garbage collector deletes the pods by force (gcTerminating of
    pkg/controller/podgc/gc_controller.go), and the attach/detach controller detaches without
    waiting for the kubelet (hasOutOfServiceTaint of
    pkg/controller/volume/attachdetach/reconciler/reconciler.go).
    """
    host = state.node.host
    leaves = about.volumes or about.bare
    if not (tainting and leaves and host) or is_out_of_service(host):
        return []
    taint = f"spec.taints += {TAINT[0]}={TAINT[1]}:{TAINT[2]}"
    return [Action("taint_node", options.node, ["PATCH", node_path(options.node), taint], about)]


def _deletions(
    state: FailoverState,
    volumes: Iterable[AttachedVolume],
    bare: Iterable[LostPod],
    tainting: bool,
) -> list[Deletion]:
    """Volume by volume, the pods of one, then its attachment, and the bare pods; all of these in
    turns of their namespaces.

    With the taint it is pods alone: those that tolerate it, and those that Kubernetes ends as well,
    but up to 20 seconds later (gcCheckPeriod of pkg/controller/podgc/gc_controller.go).
    """
    found: list[Deletion] = []
    seen: set[str] = set()
    for covered, users in _in_turns(state, volumes, bare):
        pods = {lost.pod.uid: lost for lost in users if lost.pod.uid not in seen}
        seen |= set(pods)
        # A DaemonSet's controller may not have seen the taint yet, and would make the pod again on
        # this node.
        found += [
            Deletion(
                tuple(lost.volumes) if covered else (BARE,),
                lost.pod,
                needed=lost.tolerates or not tainting,
            )
            for lost in pods.values()
            if not (tainting and _is_daemon(lost.pod))
        ]
        # Pods first: while one is there, the controller manager attaches the volume again.
        entry = covered.attachment if covered and not tainting else None
        if covered and entry and entry.name and not entry.deleted:
            found.append(Deletion((covered.name,), attachment=entry))
    return found


def _in_turns(
    state: FailoverState, volumes: Iterable[AttachedVolume], bare: Iterable[LostPod]
) -> list[tuple[AttachedVolume | None, list[LostPod]]]:
    """Each volume with its pods, and each pod that has no volume of the fence, in turns."""
    # A volume of many pods waits for as many turns of the others, so the many pods of a tenant give
    # it no more than its many claims. A run has room for so many deletions of both kinds, so both
    # take turns together.
    leaving: list[tuple[AttachedVolume | None, list[LostPod]]] = [
        (covered, _users(state, covered)) for covered in volumes
    ]
    return in_turns(
        [*leaving, *((None, [lost]) for lost in bare)],
        lambda one: _namespace(one[0]) if one[0] else one[1][0].pod.namespace,
        lambda one: 1 + len(one[1]) if one[0] else 1,
    )


def _is_tainted(state: FailoverState) -> bool:
    return state.node.host is not None and is_out_of_service(state.node.host)


def _bare(state: FailoverState) -> list[LostPod]:
    """The pods that have inline volumes, and that no volume of the fence takes off the node."""
    # No other fence covers inline volumes.
    if not _is_off(state):
        return []
    host = state.node.host
    fenced = {covered.name for covered in state.covered}
    return [
        lost
        for lost in state.pods
        if lost.inline
        # What takes, or keeps, a volume of the fence does so with its pods.
        and not fenced & set(lost.volumes)
        and not is_too_late(lost.pod, host.node if host else None)
        # It would be made again on this node.
        and not _is_daemon(lost.pod)
    ]


def _namespace(covered: AttachedVolume) -> str:
    return covered.claim.rpartition("/")[0]


def _is_daemon(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == "DaemonSet"


def _first(deletions: Iterable[Deletion]) -> tuple[list[Deletion], Counter[str]]:
    """What is deleted in this run, and how many that are needed are left, by volume."""
    room = {True: MOST_DELETIONS, False: MOST_HASTENED}
    first: list[Deletion] = []
    left: Counter[str] = Counter()
    for deletion in deletions:
        if room[deletion.needed]:
            room[deletion.needed] -= 1
            first.append(deletion)
        elif deletion.needed:
            left.update(deletion.volumes)
    return first, left


def _next_time(
    options: FailoverOptions, volumes: Iterable[AttachedVolume], left: Mapping[str, int]
) -> list[Finding]:
    """The findings about volumes that are detached by a further run only."""
    found = [
        _left_there(
            options, covered, [_too_many(left[covered.name], "of its pods and attachments")]
        )
        for covered in volumes
        if left[covered.name]
    ]
    if left[BARE]:
        finding = Finding(
            control="STOR-16",
            severity="critical",
            kind="Node",
            name=options.node,
            node=options.node,
            summary=f"{left[BARE]} {BARE} stay on the lost node {options.node}",
            verdict="repair",
            named=True,
        )
        finding.refuse(_too_many(left[BARE], BARE))
        found.append(finding)
    return found


def _too_many(number: int, what: str) -> Reason:
    return Reason(
        "too_many_deletions",
        f"{number} {what} are left, since a run deletes at most {MOST_DELETIONS}, in turns of "
        "namespaces: run again",
    )


def _delete_action(deletion: Deletion, about: Subject) -> Action:
    pod, entry = deletion.pod, deletion.attachment
    about = about._replace(deletion=deletion)
    if pod:
        # A grace period of 0 removes the object without the kubelet, which does not answer; the
        # fence is what makes that safe (Kubernetes documentation, "Forced Pod termination").
        command = ["DELETE", pod_path(pod), "gracePeriodSeconds=0"]
        return Action("force_delete_pod", pod.title, command, about)
    where = attachment_path(entry) if entry else ""
    return Action("delete_volumeattachment", entry.name if entry else "", ["DELETE", where], about)


def _arrivals(options: FailoverOptions, about: Subject) -> list[Action]:
    """Await the volumes where pods wait for them, and note which have been failed over."""
    # The ledger says "detached" only once the volumes are in use elsewhere or free, so a run that
    # was killed before is ended by the next.
    names = ", ".join(covered.name for covered in about.awaited)
    actions = []
    if about.awaited:
        actions.append(Action("wait_attached", names, ["GET", "pods, volumeattachments"], about))
    # Attached, and still not in use: its filesystem may need a check, or NodeStage may be refused.
    if about.awaited and options.ready_timeout:
        actions.append(Action("wait_ready", names, ["GET", "pods"], about))
    noted = "phase detached" if about.done else f"detached {names}"
    where = ["PATCH", node_path(options.node), f"the ledger: {noted}"]
    return [*actions, Action("record_detached", options.node, where, about)]


def _describe(state: FailoverState, options: FailoverOptions) -> Finding:
    ledger, host = state.node.ledger, state.node.host
    volumes = [covered for covered in state.covered if covered.attachment.name]
    used = len(_held(state)) - len(volumes)
    evidence: dict[str, Any] = {
        "ready": f"{host.node.ready} since {host.node.ready_since:%Y-%m-%dT%H:%M:%SZ}"
        if host and host.node.ready_since
        else "no such node",
        "attached": [_title(covered) for covered in volumes],
    }
    if ledger:
        evidence["fence"] = {
            "phase": ledger.phase,
            "method": ledger.method,
            "since": ledger.at,
            "by": ledger.by,
            "entries": [entry.entry for entry in ledger.entries] or list(ledger.addresses),
            "unverified": ledger.unverified,
            **({"bmc": ledger.power.address} if ledger.power else {}),
        }
    return Finding(
        control="STOR-16",
        severity="critical",
        kind="Node",
        name=options.node,
        node=options.node,
        summary=f"{len(volumes)} volume{'s' * (len(volumes) != 1)} of the fence still attached to "
        f"the lost node {options.node}" + (f", and {used} used there without" if used else ""),
        verdict="repair",
        reason=("the node is off" if ledger.power else "the node is fenced") if ledger else "",
        named=True,
        evidence=evidence,
    )


def _patience(options: FailoverOptions, tainting: bool) -> float:
    timeout = options.attach_timeout
    return timeout if tainting else max(timeout, _NOTICE_SECONDS)


def _evidence(
    state: FailoverState,
    about: Subject,
    tainting: bool,
    options: FailoverOptions,
    reasons: list[Reason],
) -> dict[str, Any]:
    pods = [lost.pod for covered in about.volumes for lost in _users(state, covered)]
    return {
        "detach": "taint" if tainting else "volumes",
        # Whoever chose the way needs no reason for it.
        "why_no_taint": reasons if options.detach == "auto" else [],
        "volumes": [_title(covered) for covered in about.volumes],
        "pods": list(dict.fromkeys(f"{pod.title} ({pod.uid})" for pod in [*pods, *about.bare])),
        # Told in any case: with the user's consent these are detached, too.
        "not_fenced": _unfenced(state),
        **({} if _is_off(state) else {"warning": WARNING}),
    }


def _left_there(
    options: FailoverOptions, covered: AttachedVolume, reasons: list[Reason]
) -> Finding:
    """The finding about a volume that stays on the lost node."""
    # Each volume that stays is a finding of its own, since each has its own next step.
    finding = _about_volume(options, covered, f"stays on the lost node {options.node}")
    finding.refuse(*reasons)
    return finding


def late(options: FailoverOptions, covered: AttachedVolume, reason: Reason) -> Finding:
    """The finding about a volume whose fail-over failed, and that of the others did not."""
    finding = _about_volume(options, covered, f"is not failed over from {options.node}")
    finding.fail(reason)
    return finding


def stuck(options: FailoverOptions, pod: Pod, reason: Reason) -> Finding:
    """The finding about a pod without a volume of the fence that was deleted and is there still."""
    finding = _about_pod(options, pod)
    finding.fail(reason)
    return finding


def _about_pod(options: FailoverOptions, pod: Pod) -> Finding:
    return Finding(
        control="STOR-16",
        severity="critical",
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        node=options.node,
        summary=f"pod {pod.title} stays on the lost node {options.node}",
        verdict="repair",
        named=True,
        evidence={"uid": pod.uid},
    )


def _about_volume(options: FailoverOptions, covered: AttachedVolume, what: str) -> Finding:
    attachment = covered.attachment
    return Finding(
        control="STOR-16",
        severity="critical",
        kind="PersistentVolume",
        name=covered.name,
        node=options.node,
        summary=f"{_title(covered)} {what}",
        verdict="repair",
        named=True,
        evidence={
            "claim": covered.claim,
            "attachment": attachment.name,
            "attachment_uid": attachment.uid,
        },
    )


def homeless(tenant: Tenant, volumes: Iterable[AttachedVolume]) -> Finding:
    """The finding about a new pod that no node takes."""
    # It is no failure of the fail-over: the data is free, and only the scheduler finds no node.
    pod, names = tenant.pod, ", ".join(_title(covered) for covered in volumes)
    return Finding(
        control="STOR-16",
        severity="major",
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        node="",
        summary=f"pod {pod.title} has no node, so what needs {names} does not run",
        reason=f"{tenant.trouble or 'the scheduler gives no reason'}. Its volumes are free; it "
        "starts as soon as a node takes it",
        evidence={"volumes": names, "uid": pod.uid},
    )


def _refused(finding: Finding, reasons: list[Reason]) -> Plan:
    finding.refuse(*reasons)
    return Plan([finding])


def _title(covered: AttachedVolume) -> str:
    known = [f"claim {covered.claim}" if covered.claim else "", covered.attachment.driver]
    return f"{covered.name} ({', '.join(filter(None, known)) or 'nothing is known of it'})"


def _release(name: str) -> str:
    return f"release it with {RELEASE} (node: {name})"


def _text(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]} or later"
