# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves the pods of claims off their node: reads the cluster, carries out what the plan
decides, and proves it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Callable, TypeVar

from .._core.argspec import check_numbers, given_names, given_options
from .._core.bounded import Deadline
from .._core.engine import Action, ActionFailed, Finding, NotStarted, Plan, require_time
from .._core.errors import BadOption, StorageOpsError
from .._core.untrusted import few
from .._kube.changing import LEAST_SECONDS, change_object
from .._kube.client import Cluster, Conflict, KubeError, NotFound, TooMany, path, until_none
from .._kube.objects import CORDON, HOLD, Node, Pod, is_held, node_path, pick_claim, pod_path
from .._kube.own import has_room
from . import actions, records
from . import plan as pure
from .gathering import gather, has_ended, process_of
from .leases import HoldLeases, Kept
from .proof import compare, own_ledgers, still_there
from .records import SCALE, ClaimGroup, MoveLedger, ReattachOptions, ReattachState, Subject

T = TypeVar("T")

# Kept back from the deadline for taking back a cordon or a scaling down (seconds); it may take all
# that is left, though.
UNDO_SECONDS = 20.0
_POLL_SECONDS = 1.0
# A PodDisruptionBudget is asked again after this (seconds).
# The eviction subresource answers 429 while the disruption controller allows no disruption
# (pkg/registry/core/pod/storage/eviction.go).
_BUDGET_SECONDS = 5.0


class Reattach:
    """The runbook workload_reattach on one cluster.

    ``connect`` makes a client that lives for so many seconds.
    """

    def __init__(
        self,
        connect: Callable[[float], Cluster],
        seconds: float,
        options: ReattachOptions,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect = connect
        self._deadline = Deadline(seconds)
        self._cluster = connect(seconds - UNDO_SECONDS)
        self._options = options
        self._sleep = sleep
        self._leases = HoldLeases(options.ledger_namespace)
        # Uid of a node -> keys of what this run has written on it.
        self._written: dict[str, set[str]] = {}
        self._plan = Plan([])
        self._evicted = 0
        # Claims, and the node that they leave, that were looked at again, right before their first
        # action; and those found as planned.
        self._rechecked: set[tuple[tuple[str, ...], str]] = set()
        self._begun: set[tuple[tuple[str, ...], str]] = set()

    # gather

    def gather(self) -> ReattachState:
        """Read the claims, their volumes and attachments, then the pods, then what the pods are
        made by and run on.
        """
        return gather(self._cluster, self._options, self._leases)

    # plan

    def plan(self, state: ReattachState) -> Plan:
        """Decide."""
        self._plan = pure.plan(state, self._options)
        return self._plan

    def healthy(self, state: ReattachState) -> str:
        """Why there is nothing to be done."""
        options = self._options
        names = f"{', '.join(options.claims)} in {options.namespace}"
        if options.attachments:
            return (
                f"none of the {len(options.attachments)} attachments of {names} that were named "
                "is there any more"
            )
        if options.required_metadata:
            return f"every attachment of {names} has {', '.join(options.required_metadata)}"
        where = ", ".join(options.nodes) or "a node"
        return f"no pod that runs on {where} uses {names}"

    # apply

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would do it."""
        if action.verb in self._changes:
            self._changes[action.verb](self, action, action.subject, True)

    def apply(self, action: Action) -> None:
        """Carry out one action, the first of a group after a fresh look at all of it."""
        subject: Subject = action.subject
        self._recheck(action, subject.group)
        if action.verb in self._changes:
            self._changes[action.verb](self, action, subject, False)
        else:
            self._wait(subject.group)

    def undo(self, action: Action) -> Action | None:
        """A node that is still cordoned, a workload that is still down, is taken back, for as long
        as there is time at all.
        """
        # With a client of its own, since the deadline of the other one may be over.
        if action.verb not in ("cordon_node", "scale_down"):
            return None
        subject: Subject = action.subject
        self._cluster = self._connect(max(UNDO_SECONDS, self._deadline.remaining()))
        release = actions.release_action(subject)
        if subject.host:
            node = subject.host.node
            kept = self._patiently(lambda: self._leases.of(self._cluster, node))
            return release if self._keys(kept, node, subject.group) else None
        item = self._patiently(lambda: self._cluster.get(release.command[1]))
        return release if item and own_ledgers(item, SCALE, subject.group) else None

    def _patiently(self, act: Callable[[], T]) -> T:
        """What does no harm the second time, tried until the deadline: an API server that restarts
        may be away for a minute.
        """
        # Only for what may be done twice: a patch that is refused when it was done already, or a
        # read.
        while True:
            try:
                return act()
            except KubeError as error:
                if not error.passes or self._cluster.deadline.remaining() < _POLL_SECONDS:
                    raise
            self._sleep(_POLL_SECONDS)

    def _recheck(self, action: Action, group: ClaimGroup) -> None:
        """The world must still be as it was planned for, but for the pods that came from a node
        that was left before.
        """
        # What was planned minutes ago may be wrong by now, and a hold on a wrong node is an outage
        # of its own.
        if (group.claims, group.node) in self._rechecked:
            return
        left = frozenset(node for claims, node in self._begun if claims == group.claims)
        # Taking back is no beginning.
        self._rechecked.add((group.claims, group.node))
        require_time(self._cluster.deadline, LEAST_SECONDS)
        only = (group.later | {group.node}) - left if left else None
        findings = pure.judge(
            self.gather(),
            group.claims,
            self._options,
            self._options.max_repairs - self._evicted,
            only,
        )
        for finding in findings:
            if finding.repair and (
                self._replan(action, finding)
                if left
                else _shape(finding.repair[0].subject.group) == _shape(group)
            ):
                self._begun.add((group.claims, group.node))
                return
        if findings and not findings[0].repair:
            said, code = findings[0].reason, findings[0].code
        else:
            said, code = "pods, nodes or attachments are others now", ""
        raise NotStarted(
            f"the claims {', '.join(group.claims)} have changed since the plan: {said}. Run again",
            code,
        )

    def _replan(self, action: Action, now: Finding) -> bool:
        """Carry out what is to be done now, if it begins as what was planned.

        The pods of a node that was left may be on this one.
        """
        # A pod that left one node may have come to the next one in the plan, so that one has to be
        # planned again, with the same first step.
        if (now.repair[0].verb, now.repair[0].target) != (action.verb, action.target):
            return False
        planned = next(
            finding
            for finding in self._plan.findings
            if any(action is step for step in finding.repair)
        )
        action.subject = now.repair[0].subject
        planned.repair[1:] = now.repair[1:]
        planned.summary, planned.evidence = now.summary, now.evidence
        return True

    def _cordon(self, action: Action, subject: Subject, dry_run: bool) -> None:
        # First the Lease, then the look at others, then the taint: of two runs that begin at once
        # each sees the other's Lease, and at least one gives way.
        planned, group = (subject.host or _no("node")).node, subject.group
        ledger = self._ledger(group, CORDON)
        own = self._leases.name_of(planned, ledger)

        def others() -> list[Kept]:
            kept = self._leases.of(self._cluster, planned)
            self._keep_off(
                [each.ledger for each in kept if each.lease.name != own or not taken], group
            )
            return kept

        def change(item: dict[str, Any]) -> dict[str, Any] | None:
            now = records.pick_host(item)
            if now.node.uid != planned.uid:
                raise NotStarted(
                    f"node {planned.name} is another one now (uid {now.node.uid})",
                    code="identity_changed",
                )
            # Two that begin at once have both their Leases by now, and so see each other.
            others()
            # Without the taint, what an earlier run has written says nothing any more.
            stale = {} if now.held else dict.fromkeys(_annotations(item, CORDON))
            # The Lease counts, so a Node without room for the note is held without.
            room = has_room(item, ledger.key, ledger.value)
            note = {**stale, **({ledger.key: ledger.value} if room else {})}
            meta = {"annotations": note, "labels": {HOLD: "true"}}
            return {
                "metadata": meta,
                "spec": {"taints": [*_other_taints(item), {"key": HOLD, "effect": "NoSchedule"}]},
            }

        taken = False
        self._leases.take(self._cluster, planned, ledger, others(), dry_run)
        taken = True
        try:
            self._patch(action.command[1], change, dry_run)
        except NotStarted:
            for each in [] if dry_run else self._leases.of(self._cluster, planned):
                if each.lease.name == own:
                    self._leases.release(self._cluster, each)
            raise
        if not dry_run:
            self._written.setdefault(planned.uid, set()).add(ledger.key)

    def _uncordon(self, action: Action, subject: Subject, dry_run: bool) -> None:
        # Labels, annotations and taints go in one patch, so no state in between can be seen.
        node, group = (subject.host or _no("node")).node, subject.group

        def change(item: dict[str, Any]) -> dict[str, Any] | None:
            kept = self._leases.of(self._cluster, node)
            keys = self._keys(kept, node, group)
            noted = keys & set(_annotations(item, CORDON))
            if item["metadata"]["uid"] != node.uid or not keys or not (noted or is_held(item)):
                return None
            body: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(noted)}}
            # Another move may hold the node too.
            if {each.ledger.key for each in kept} <= keys:
                body["metadata"]["labels"] = {HOLD: None}
                body["spec"] = {"taints": _other_taints(item) or None}
            return body

        if not dry_run:
            self._patiently(lambda: self._patch(action.command[1], change, dry_run))
            self._patiently(lambda: self._release(node, group))

    def _keys(self, kept: list[Kept], node: Node, group: ClaimGroup) -> set[str]:
        """Of what is held for these claims on a node: as the Leases say, and by ourselves whatever
        became of them.
        """
        return {each.ledger.key for each in kept if group.owns(each.ledger)} | self._written.get(
            node.uid, set()
        )

    def _release(self, node: Node, group: ClaimGroup) -> None:
        """Delete the Leases of these claims: of this node, and what a run has left that was killed
        right before its end.
        """
        # A Lease that stays would keep the next run waiting for nothing.
        for each in self._leases.all(self._cluster):
            here = each.node == (node.name, node.uid)
            if group.owns(each.ledger) and (here or self._is_over(each)):
                self._leases.release(self._cluster, each)
        self._written.pop(node.uid, None)

    def _is_over(self, kept: Kept) -> bool:
        """Its run is, and its node has no taint of ours, or is another one by now."""
        # A Lease without its taint holds nothing, but would be taken for a run at work until its
        # time is over.
        name, uid = kept.node
        ended = frozenset({kept.ledger.process} if has_ended(kept.ledger.process) else ())
        if records.at_work(kept.ledger, self._cluster.now(), ended):
            return False
        item = self._cluster.get(node_path(name))
        return item is None or item["metadata"]["uid"] != uid or not is_held(item)

    def _scale_down(self, action: Action, subject: Subject, dry_run: bool) -> None:
        # The number of before is kept in the same patch that takes it away, so it cannot be lost.
        group, planned = subject.group, subject.workload or _no("workload")
        self._refuse_deletion(group)
        # Scaling down asks no PodDisruptionBudget, so they are asked before.
        for mover in group.movers:
            if mover.pod.uid in group.scaled_away and not mover.pod.deleted:
                self._evict(mover.pod, dry_run=True)

        def change(item: dict[str, Any]) -> dict[str, Any] | None:
            now = records.pick_workload(item, planned.kind)
            if now.uid != planned.uid:
                raise NotStarted(
                    f"{planned.title} is another one now (uid {now.uid})", code="identity_changed"
                )
            if now.deletes_claims:
                raise NotStarted(
                    f"{planned.title} is not scaled down: {records.DELETES_CLAIMS}",
                    code="claim_would_be_lost",
                )
            self._keep_off(now.ledgers, group)
            replicas = max([now.replicas, *(ledger.replicas for ledger in now.ledgers)])
            # Of one that has replicas, what an earlier run has written says nothing any more.
            stale = dict.fromkeys(_annotations(item, SCALE)) if now.replicas else {}
            ledger = self._ledger(group, SCALE, replicas)
            return {
                "metadata": {"annotations": {**stale, ledger.key: ledger.value}},
                "spec": {"replicas": 0},
            }

        self._patch(action.command[1], change, dry_run)

    def _scale_up(self, action: Action, subject: Subject, dry_run: bool) -> None:
        # Only what has the annotation of these claims is scaled, and only from 0.
        planned = subject.workload or _no("workload")

        def change(item: dict[str, Any]) -> dict[str, Any] | None:
            mine = own_ledgers(item, SCALE, subject.group)
            if not mine:
                return None
            body: dict[str, Any] = {
                "metadata": {"annotations": dict.fromkeys(ledger.key for ledger in mine)}
            }
            # Whoever has scaled it meanwhile has decided.
            if records.pick_workload(item, planned.kind).replicas == 0:
                body["spec"] = {"replicas": max(ledger.replicas for ledger in mine)}
            return body

        if not dry_run:
            self._patiently(lambda: self._patch(action.command[1], change, dry_run))

    def _keep_off(self, ledgers: Iterable[MoveLedger], group: ClaimGroup) -> None:
        """Another run may have begun since we looked."""
        # Another run that is known to have ended is no reason to wait.
        for ledger in ledgers:
            ended = frozenset({ledger.process} if has_ended(ledger.process) else ())
            if group.owns(ledger) and records.at_work(ledger, self._cluster.now(), ended):
                raise NotStarted(records.busy(ledger), code="lease_held")

    def _ledger(self, group: ClaimGroup, prefix: str, replicas: int = 0) -> MoveLedger:
        """What says what is going on."""
        # It ends with the deadline of this run, so a run that was killed locks its claims no longer
        # than that.
        now = self._cluster.now()
        left = max(UNDO_SECONDS, self._deadline.remaining())
        return MoveLedger(
            key=group.key(prefix),
            namespace=group.namespace,
            claims=group.claims,
            attachments=tuple(sorted(group.gone)),
            pods=tuple(sorted(group.moved)),
            since=f"{now:%Y-%m-%dT%H:%M:%SZ}",
            until=f"{now + timedelta(seconds=left):%Y-%m-%dT%H:%M:%SZ}",
            by=socket.gethostname(),
            process=process_of(),
            replicas=replicas,
        )

    def _refuse_deletion(self, group: ClaimGroup) -> None:
        """A claim that is being deleted is there only for its pods, and goes with them, and its
        data too.
        """
        # The finalizer kubernetes.io/pvc-protection goes as soon as no pod uses the claim
        # (pkg/controller/volume/pvcprotection/pvc_protection_controller.go).
        for name in group.claims:
            item = self._cluster.get(path("v1", "persistentvolumeclaims", name, group.namespace))
            if item is None or pick_claim(item).deleted:
                raise NotStarted(
                    f"claim {name} is being deleted, and only its pods keep its data",
                    code="claim_would_be_lost",
                )

    def _patch(
        self, where: str, change: Callable[[dict[str, Any]], dict[str, Any] | None], dry_run: bool
    ) -> None:
        """Change an object as ``change`` says; nothing is to be changed of one that is gone."""
        change_object(self._cluster, where, lambda item: change(item) if item else None, dry_run)

    def _evict_pod(self, _action: Action, subject: Subject, dry_run: bool) -> None:
        """Evict a pod.

        A PodDisruptionBudget is asked again until eviction_timeout, since it may only wait for
        another pod.
        """
        pod = (subject.tenant or _no("pod")).pod
        began = time.monotonic()
        while True:
            try:
                if not dry_run:
                    self._refuse_deletion(subject.group)
                self._evict(pod, dry_run)
                self._evicted += not dry_run
                return
            except TooMany as error:
                waited = time.monotonic() - began
                if dry_run:
                    raise
                if waited + _BUDGET_SECONDS > self._options.eviction_timeout:
                    raise ActionFailed(
                        f"refused for {waited:.0f} s (eviction_timeout): {error}", code="pod_stuck"
                    ) from error
            self._sleep(_BUDGET_SECONDS)

    def _evict(self, pod: Pod, dry_run: bool) -> None:
        """Evict exactly that pod; one that is gone already needs no eviction."""
        # policy/v1 has the subresource since Kubernetes 1.22, v1beta1 until 1.24 (deprecation
        # guide). The uid is a precondition, so a pod of a StatefulSet that was made again under the
        # same name stays.
        version = self._cluster.version()
        body = {
            "apiVersion": "policy/v1"
            if (version.major, version.minor) >= (1, 22)
            else "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            self._cluster.create(
                f"{pod_path(pod)}/eviction", body, dry_run=dry_run, repeatable=True
            )
        except NotFound:
            return
        except Conflict:
            item = self._cluster.get(pod_path(pod))
            if item and item["metadata"]["uid"] == pod.uid:
                raise

    _changes: Mapping[str, Callable[[Reattach, Action, Subject, bool], None]] = {
        "cordon_node": _cordon,
        "uncordon_node": _uncordon,
        "scale_down": _scale_down,
        "scale_up": _scale_up,
        "evict_pod": _evict_pod,
    }

    def _wait(self, group: ClaimGroup) -> None:
        """Wait until pods, mounts and, where it matters, attachments are gone.

        A pod that comes back too early ends it.
        """
        # A pod keeps its volume mounted until its grace period is over, so that comes on top.
        seconds = self._options.detach_timeout + max(
            (mover.grace for mover in group.movers), default=0.0
        )
        left = self._until_none(seconds, lambda: still_there(self._cluster, self._options, group))
        if left:
            raise ActionFailed(
                f"not within {seconds:.0f} s (grace period and detach_timeout): {few(left, '; ')}",
                code="not_detached",
            )
        if self._options.wait_for == "unstaged" and not group.leaving:
            # What is not attached is in no volumesInUse, and its kubelet unstages it some moments
            # after its last pod is gone.
            self._sleep(self._cluster.deadline.cap(self._options.unstage_seconds))
            still_there(self._cluster, self._options, group)

    def _until_none(self, seconds: float, look: Callable[[], list[str]]) -> list[str]:
        return until_none(
            look, seconds, self._cluster.deadline, self._sleep, time.monotonic, _POLL_SECONDS
        )

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the pods are back, on attachments that are new, and that nothing of ours
        is left.
        """
        # A pod may be Ready and lose its volume again a moment later; what is looked at is the
        # attachment, too.
        group: ClaimGroup = finding.repair[0].subject.group
        proof: list[str] = []

        def doubts() -> list[str]:
            found, proof[:] = compare(self._cluster, self._options, self._leases, group)
            return found

        left = self._until_none(self._options.ready_timeout, doubts)
        if left:
            raise StorageOpsError(
                f"the move of {', '.join(group.claims)} is not proven within "
                f"{self._options.ready_timeout:g} s (ready_timeout): {few(left, '; ')}",
                code="repair_unproven",
            )
        return proof


def reattach_options(params: Mapping[str, Any]) -> ReattachOptions:
    """Options of Reattach, checked."""
    least = {
        "eviction_timeout": 1,
        "detach_timeout": 1,
        "ready_timeout": 1,
        "unstage_seconds": 0,
        "max_repairs": 0,
        "deadline": 60,
    }
    check_numbers(params, least)
    names = ("claims", "nodes", "attachments", "required_metadata")
    lists = given_names(params, *names, otherwise="name each of them")
    if not params["claims"] or not params["namespace"].strip():
        raise BadOption("name the namespace and at least one claim")
    return ReattachOptions(
        **{
            **given_options(ReattachOptions, params),
            **lists,
            "namespace": params["namespace"].strip(),
        }
    )


def _annotations(item: dict[str, Any], prefix: str) -> list[str]:
    return [key for key in item["metadata"].get("annotations") or {} if key.startswith(prefix)]


def _other_taints(item: dict[str, Any]) -> list[dict[str, Any]]:
    # The list is replaced whole by a merge patch (RFC 7396), so all others go along.
    return [taint for taint in item["spec"].get("taints") or [] if taint["key"] != HOLD]


def _shape(group: ClaimGroup) -> tuple[Any, ...]:
    """What must not change between plan and apply."""
    # By uids: names stay when objects are made again.
    nodes = {(host.node.name, host.node.uid) for host in group.cordoned}
    return (
        group.claims,
        group.node,
        group.moved,
        group.gone,
        nodes,
        {workload.uid for workload in group.scaled},
    )


def _no(what: str) -> Any:
    raise AssertionError(f"an action without its {what}")
