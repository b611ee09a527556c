# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Moves the pods of claims off their node: reads the cluster, carries out what reattach_plan
decides, and proves it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, TypeVar

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    Plan,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Cluster,
    Conflict,
    KubeError,
    NotFound,
    TooMany,
    path,
    until_none,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    HOLD,
    Attachment,
    Node,
    Owner,
    Pod,
    Tenant,
    Volume,
    attachment_name,
    attachment_path,
    is_held,
    node_path,
    pick_attachment,
    pick_claim,
    pick_tenant,
    pick_volume,
    pod_path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach import (
    actions,
    moving,
    records,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach import plan as pure
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach.leases import (
    HoldLeases,
    Kept,
    believed,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach.records import (
    CORDON,
    SCALE,
    Group,
    Ledger,
    Options,
    State,
    Subject,
    Workload,
)

ATTACHMENTS = path("storage.k8s.io/v1", "volumeattachments")
T = TypeVar("T")

# Kept back from the deadline for taking back a cordon or a scaling down (seconds); it may take all
# that is left, though.
UNDO_SECONDS = 20.0
# A move is not begun with less time left (seconds).
_LEAST_SECONDS = 30.0
_POLL_SECONDS = 1.0
# A PodDisruptionBudget is asked again after this (seconds).
_BUDGET_SECONDS = 5.0
# Nodes change all the time, so a patch that insists on what was read may have to be made again.
_PATCH_TRIES = 10


class Reattach:
    """The runbook workload_reattach on one cluster.

    ``connect`` makes a client that lives for so many seconds.
    """

    def __init__(
        self,
        connect: Callable[[float], Cluster],
        seconds: float,
        options: Options,
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

    def gather(self) -> State:
        """Read the claims, their volumes and attachments, then the pods, then what the pods are
        made by and run on.
        """
        options, cluster = self._options, self._cluster
        wanted = set(options.claims)
        claims = cluster.list(
            path("v1", "persistentvolumeclaims", namespace=options.namespace),
            lambda item: (
                records.pick_claim_state(item) if item["metadata"]["name"] in wanted else None
            ),
        )
        bound = sorted({found.claim.volume for found in claims if found.claim.volume})
        volumes = {
            name: pick_volume(item)
            for name in bound
            for item in [cluster.get(path("v1", "persistentvolumes", name))]
            if item
        }
        attachments = cluster.list(
            ATTACHMENTS, lambda item: _if_concerned(pick_attachment(item), volumes, options)
        )
        tenants = self._tenants()
        workloads = {
            workload.uid: workload
            for kind in records.RESOURCES
            for workload in self._workloads(kind)
        }
        # Whoever was killed has left the taint, so only such nodes can have a ledger that counts.
        held = cluster.list(path("v1", "nodes"), records.pick_host, labels=f"{HOLD}=true")
        nodes = {host.node.name: host for host in held}
        for name in {tenant.pod.node for tenant in tenants if tenant.pod.node} - set(nodes):
            item = cluster.get(path("v1", "nodes", name))
            nodes.update({name: records.pick_host(item)} if item else {})
        # After the nodes: who writes on a node has its Lease before that.
        kept = self._leases.all(cluster)
        used = {tenant.pod.node for tenant in tenants}
        hosts = {name: believed(host, kept) for name, host in nodes.items()}
        hosts = {
            name: host for name, host in hosts.items() if name in used or host.ledgers or host.lone
        }
        owned, makers = self._owners({tenant.pod.owner for tenant in tenants if tenant.pod.owner})
        state = State(
            cluster.now(),
            {found.claim.name: found for found in claims},
            volumes,
            tuple(attachments),
            tuple(tenants),
            hosts,
            workloads,
            owned,
            self._autoscaled() if options.scale_down else frozenset(),
            makers=makers,
        )
        return replace(
            state,
            ended=frozenset(
                ledger.process for ledger in state.ledgers if _has_ended(ledger.process)
            ),
        )

    def _tenants(self, node: str = "") -> list[Tenant]:
        """The pods of the claims, on one node or everywhere."""
        fields = f"spec.nodeName={node}" if node else ""
        pods = path("v1", "pods", namespace=self._options.namespace)
        return self._cluster.list(
            pods, lambda item: pick_tenant(item, self._options.claims), fields=fields
        )

    def _workloads(self, kind: str) -> list[Workload]:
        folder = path("apps/v1", records.RESOURCES[kind], namespace=self._options.namespace)
        return self._cluster.list(folder, lambda item: records.pick_workload(item, kind))

    def _owners(self, owners: Collection[Owner]) -> tuple[dict[str, str], frozenset[str]]:
        """ReplicaSets and the Deployments that they belong to; and those that make pods again.

        All by uid.
        """
        owned, makers = {}, set()
        for owner in owners:
            resource = records.MAKERS.get((owner.group, owner.kind))
            version = f"{owner.group}/v1".lstrip("/")
            item = (
                self._cluster.get(path(version, resource, owner.name, self._options.namespace))
                if resource
                else None
            )
            meta = item["metadata"] if item else {}
            if meta.get("uid") != owner.uid:
                continue
            if not meta.get("deletionTimestamp"):
                makers.add(owner.uid)
            for reference in meta.get("ownerReferences") or []:
                if reference.get("controller"):
                    owned[owner.uid] = reference["uid"]
        return owned, frozenset(makers)

    def _autoscaled(self) -> frozenset[tuple[str, str]]:
        def target(item: dict[str, Any]) -> tuple[str, str]:
            reference = item["spec"]["scaleTargetRef"]
            return reference["kind"], reference["name"]

        folder = path(
            "autoscaling/v1", "horizontalpodautoscalers", namespace=self._options.namespace
        )
        return frozenset(self._cluster.list(folder, target))

    # plan

    def plan(self, state: State) -> Plan:
        """Decide."""
        self._plan = pure.plan(state, self._options)
        return self._plan

    def healthy(self, state: State) -> str:
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
        return release if item and _own(item, SCALE, subject.group) else None

    def _patiently(self, act: Callable[[], T]) -> T:
        """What does no harm the second time, tried until the deadline: an API server that restarts
        may be away for a minute.
        """
        while True:
            try:
                return act()
            except KubeError as error:
                if not error.passes or self._cluster.deadline.remaining() < _POLL_SECONDS:
                    raise
            self._sleep(_POLL_SECONDS)

    def _recheck(self, action: Action, group: Group) -> None:
        """The world must still be as it was planned for, but for the pods that came from a node
        that was left before.
        """
        if (group.claims, group.node) in self._rechecked:
            return
        left = frozenset(node for claims, node in self._begun if claims == group.claims)
        # Taking back is no beginning.
        self._rechecked.add((group.claims, group.node))
        if self._cluster.deadline.remaining() < _LEAST_SECONDS:
            raise Prevented(
                f"less than {_LEAST_SECONDS:g} s are left of the deadline; run again, or raise it"
            )
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
            f"the claims {', '.join(group.claims)} are no longer as "
            f"they were planned for: {said}. Run again",
            code,
        )

    def _replan(self, action: Action, now: Finding) -> bool:
        """Carry out what is to be done now, if it begins as what was planned.

        The pods of a node that was left may be on this one.
        """
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
        planned, group = (subject.host or _no("node")).node, subject.group
        ledger = self._ledger(group, CORDON)
        own = self._leases.name_of(planned, ledger)

        def others() -> list[Kept]:
            kept = self._leases.of(self._cluster, planned)
            self._keep_off([each.ledger for each in kept if each.name != own or not taken], group)
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
            meta = {"annotations": {**stale, ledger.key: ledger.value}, "labels": {HOLD: "true"}}
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
                if each.name == own:
                    self._leases.release(self._cluster, each)
            raise
        if not dry_run:
            self._written.setdefault(planned.uid, set()).add(ledger.key)

    def _uncordon(self, action: Action, subject: Subject, dry_run: bool) -> None:
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

    def _keys(self, kept: list[Kept], node: Node, group: Group) -> set[str]:
        """Of what is held for these claims on a node: as the Leases say, and by ourselves whatever
        became of them.
        """
        return {each.ledger.key for each in kept if group.owns(each.ledger)} | self._written.get(
            node.uid, set()
        )

    def _release(self, node: Node, group: Group) -> None:
        """Delete the Leases of these claims: of this node, and what a run has left that was killed
        right before its end.
        """
        for each in self._leases.all(self._cluster):
            here = each.node == (node.name, node.uid)
            if group.owns(each.ledger) and (here or self._is_over(each)):
                self._leases.release(self._cluster, each)
        self._written.pop(node.uid, None)

    def _is_over(self, kept: Kept) -> bool:
        """Its run is, and its node has no taint of ours, or is another one by now."""
        name, uid = kept.node
        ended = frozenset({kept.ledger.process} if _has_ended(kept.ledger.process) else ())
        if records.at_work(kept.ledger, self._cluster.now(), ended):
            return False
        item = self._cluster.get(node_path(name))
        return item is None or item["metadata"]["uid"] != uid or not is_held(item)

    def _scale_down(self, action: Action, subject: Subject, dry_run: bool) -> None:
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
        planned = subject.workload or _no("workload")

        def change(item: dict[str, Any]) -> dict[str, Any] | None:
            mine = _own(item, SCALE, subject.group)
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

    def _keep_off(self, ledgers: Iterable[Ledger], group: Group) -> None:
        """Another run may have begun since we looked."""
        for ledger in ledgers:
            ended = frozenset({ledger.process} if _has_ended(ledger.process) else ())
            if group.owns(ledger) and records.at_work(ledger, self._cluster.now(), ended):
                raise NotStarted(records.busy(ledger), code="lease_held")

    def _ledger(self, group: Group, prefix: str, replicas: int = 0) -> Ledger:
        """What says what is going on."""
        now = self._cluster.now()
        left = max(UNDO_SECONDS, self._deadline.remaining())
        return Ledger(
            key=group.key(prefix),
            namespace=group.namespace,
            claims=group.claims,
            attachments=tuple(sorted(group.gone)),
            pods=tuple(sorted(group.moved)),
            since=f"{now:%Y-%m-%dT%H:%M:%SZ}",
            until=f"{now + timedelta(seconds=left):%Y-%m-%dT%H:%M:%SZ}",
            by=socket.gethostname(),
            process=_process(),
            replicas=replicas,
        )

    def _refuse_deletion(self, group: Group) -> None:
        """A claim that is being deleted is there only for its pods, and goes with them, and its
        data too.
        """
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
        """Change an object as ``change`` says, provided that it is still the one that was read."""
        for left in reversed(range(_PATCH_TRIES)):
            item = self._cluster.get(where)
            body = change(item) if item else None
            if body is None:
                return
            body["metadata"]["resourceVersion"] = (
                item["metadata"]["resourceVersion"] if item else ""
            )
            try:
                self._cluster.patch(where, body, dry_run=dry_run)
                return
            except Conflict:
                if not left:
                    raise

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

    def _wait(self, group: Group) -> None:
        """Wait until pods, mounts and, where it matters, attachments are gone.

        A pod that comes back too early ends it.
        """
        seconds = self._options.detach_timeout + max(
            (mover.grace for mover in group.movers), default=0.0
        )
        left = self._until_none(seconds, lambda: self._left(group))
        if left:
            raise ActionFailed(
                f"not within {seconds:.0f} s (grace period and detach_timeout): {'; '.join(left)}",
                code="not_detached",
            )
        if self._options.wait_for == "unstaged" and not group.leaving:
            # What is not attached is in no volumesInUse, and its kubelet unstages it some moments
            # after its last pod is gone.
            self._sleep(self._cluster.deadline.cap(self._options.unstage_seconds))
            self._left(group)

    def _left(self, group: Group) -> list[str]:
        """What of the old place is still to be seen."""
        left = []
        for node in group.nodes:
            leaving = [attachment for attachment in group.leaving if attachment.node == node]
            names = {attachment.volume for attachment in leaving}
            volumes = tuple(
                volume for volume in group.volumes if volume.name in names or not group.leaving
            )
            for tenant in self._tenants(node):
                pod = tenant.pod
                if pod.uid in group.moved:
                    since = f", Terminating since {pod.deleted:%H:%M:%S}Z" if pod.deleted else ""
                    left.append(f"pod {pod.title} is still on {node}{since}")
                elif {volume.claim_name for volume in volumes} & set(
                    pod.claims
                ) and not pod.deleted:
                    raise ActionFailed(
                        f"pod {pod.title} ({pod.uid}) came to {node} before the volume had left "
                        "it; run again",
                        code="not_detached",
                    )
            item = self._cluster.get(node_path(node))
            if not item or (node, item["metadata"]["uid"]) not in group.uids:
                # Its status says nothing of what the host that had the name has mounted.
                raise ActionFailed(
                    f"node {node} is gone, or another one by now: whether its host has let go of "
                    "the volume is not known",
                    code="identity_changed",
                )
            used = moving.in_use(records.pick_host(item).node, volumes, tuple(leaving))
            left += [
                f"{node} still uses {name} (volumesInUse): its kubelet has not unmounted it"
                for name in used
            ]
            if self._options.wait_for == "detached":
                # What is in use is not detached, so that alone is worth saying.
                left += [
                    doubt
                    for entry in leaving
                    if entry.volume not in used
                    for doubt in self._attached_still(entry)
                ]
        return left

    def _attached_still(self, planned: Attachment) -> list[str]:
        item = self._cluster.get(attachment_path(planned))
        now = pick_attachment(item) if item else None
        if now is None or now.uid != planned.uid:
            return []
        if now.deleted is None:
            return [
                f"{now.name} ({now.driver} on {now.node}) is not being deleted: the controller "
                "manager does not detach it"
            ]
        said = f"; the attacher says: {now.detach_error.message}" if now.detach_error else ""
        return [
            f"{now.name} ({now.driver} on {now.node}) is being deleted since "
            f"{now.deleted:%H:%M:%S}Z, held by "
            f"{', '.join(now.finalizers) or 'no finalizer'}{said}. "
            "A finalizer is never removed here"
        ]

    def _until_none(self, seconds: float, look: Callable[[], list[str]]) -> list[str]:
        return until_none(
            look, seconds, self._cluster.deadline, self._sleep, time.monotonic, _POLL_SECONDS
        )

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the pods are back, on attachments that are new, and that nothing of ours
        is left.
        """
        group: Group = finding.repair[0].subject.group
        proof: list[str] = []

        def doubts() -> list[str]:
            found, proof[:] = self._compare(group)
            return found

        left = self._until_none(self._options.ready_timeout, doubts)
        if left:
            raise StorageOpsError(
                f"the move of {', '.join(group.claims)} is not proven within "
                f"{self._options.ready_timeout:g} s (ready_timeout): {'; '.join(left)}",
                code="repair_unproven",
            )
        return proof

    def _compare(self, group: Group) -> tuple[list[str], list[str]]:
        doubts, proof = self._holds(group)
        if not group.moved:
            return doubts, proof
        here = [
            tenant
            for tenant in self._tenants()
            if set(tenant.pod.claims) & set(group.claims) and not tenant.pod.deleted
        ]
        new = [tenant for tenant in here if tenant.pod.uid not in group.moved | group.others]
        # Where their turn is yet to come, they are moved once more.
        again = [tenant for tenant in new if tenant.pod.node in group.later]
        new = [tenant for tenant in new if tenant not in again]
        ready = [tenant for tenant in new if tenant.pod.ready]
        wanted = self._wanted(group, here) - len(again)
        if len(ready) < wanted:
            doubts.append(f"{len(ready)} of {wanted} new pods are Ready")
            doubts += [
                f"pod {tenant.pod.title} on {tenant.pod.node or 'no node'} is {tenant.pod.phase}: "
                f"{tenant.trouble or 'no reason given'}"
                for tenant in new
                if not tenant.pod.ready
            ]
        proof += [
            f"pod {tenant.pod.title} ({tenant.pod.uid}) came to "
            f"{tenant.pod.node}, which is left after this"
            for tenant in again
        ]
        for tenant in ready:
            proof.append(f"pod {tenant.pod.title} ({tenant.pod.uid}) is Ready on {tenant.pod.node}")
            for volume in group.volumes:
                if volume.claim_name in tenant.pod.claims:
                    self._compare_attachment(group, volume, tenant.pod.node, doubts, proof)
        return doubts, proof

    def _compare_attachment(
        self, group: Group, volume: Volume, node: str, doubts: list[str], proof: list[str]
    ) -> None:
        required = self._options.required_metadata
        found = self._find_attachment(volume, node)
        if found is None:
            if required or volume.name in {attachment.volume for attachment in group.leaving}:
                doubts.append(f"{volume.name} has no VolumeAttachment on {node}")
            return
        lacking = moving.lacking(found, required)
        if not found.attached:
            doubts.append(
                f"{found.name} is not attached"
                + (f": {found.attach_error.message}" if found.attach_error else "")
            )
        elif self._options.wait_for == "detached" and found.uid in group.gone:
            doubts.append(f"{found.name} on {node} is still the old one ({found.uid})")
        elif lacking:
            doubts.append(
                f"{found.name} on {node} has no {', '.join(lacking)} although it is new: the "
                "driver does not publish it"
            )
        else:
            keys = f" with {', '.join(found.metadata)}" if found.metadata else ""
            proof.append(f"{found.name} ({found.uid}) is attached to {node}{keys}")

    def _find_attachment(self, volume: Volume, node: str) -> Attachment | None:
        if volume.driver:
            item = self._cluster.get(
                f"{ATTACHMENTS}/{attachment_name(volume.driver, volume.handle, node)}"
            )
            return pick_attachment(item) if item else None
        # A migrated volume does not tell by what handle its attachment is named.
        found = self._cluster.list(
            ATTACHMENTS,
            lambda item: _if_concerned(pick_attachment(item), {volume.name: volume}, self._options),
        )
        return next(
            (
                attachment
                for attachment in found
                if attachment.node == node and attachment.volume == volume.name
            ),
            None,
        )

    def _holds(self, group: Group) -> tuple[list[str], list[str]]:
        """Nothing that we held may still be held."""
        doubts, proof = [], []
        for host in group.cordoned:
            name = host.node.name
            item = self._cluster.get(node_path(name))
            kept = self._leases.of(self._cluster, host.node)
            now = believed(records.pick_host(item), kept) if item else None
            if any(group.owns(each.ledger) for each in kept):
                doubts.append(f"{name} still has our Lease")
            elif now and now.held and not now.ledgers:
                doubts.append(f"{name} still has the taint {HOLD}")
            else:
                proof.append(_cordon_left(now, name) if now else f"{name} is gone")
        for workload in group.scaled:
            item = self._cluster.get(workload.path)
            name = workload.name
            if item and _own(item, SCALE, group):
                doubts.append(f"{name} still has our annotation")
            else:
                proof.append(
                    f"{name} is scaled to {item['spec'].get('replicas') if item else 0} again"
                )
        return doubts, proof

    def _wanted(self, group: Group, here: list[Tenant]) -> int:
        """How many new pods must be there: as many as were moved, unless their workload wants fewer
        by now.
        """
        wanted = len(group.moved)
        if group.workloads:
            items = [(workload, self._cluster.get(workload.path)) for workload in group.workloads]
            replicas = sum(
                records.pick_workload(item, workload.kind).replicas
                for workload, item in items
                if item
            )
            owners = {mover.pod.owner for mover in group.movers}
            stay = [
                tenant
                for tenant in here
                if tenant.pod.uid in group.others and tenant.pod.owner in owners
            ]
            wanted = min(wanted, replicas - len(stay))
        return wanted - sum(tenant.pod.uid in group.moved for tenant in here)


def reattach_options(params: Mapping[str, Any]) -> Options:
    """Options of Reattach, checked."""
    least_of = {
        "eviction_timeout": 1,
        "detach_timeout": 1,
        "ready_timeout": 1,
        "unstage_seconds": 0,
        "max_repairs": 0,
        "deadline": 60,
    }
    for name, least in least_of.items():
        if not params[name] >= least:  # not a number is neither
            raise BadOption(f"{name} is {params[name]:g}; give at least {least:g}")
    names = ("claims", "nodes", "attachments", "required_metadata")
    for name in names:
        if any(not item.strip() for item in params[name]):
            raise BadOption(f"{name} has an empty name")
    if not params["claims"] or not params["namespace"].strip():
        raise BadOption("name the namespace and at least one claim")
    given: dict[str, Any] = {name: params[name] for name in Options.__dataclass_fields__}
    lists = {name: tuple(dict.fromkeys(item.strip() for item in params[name])) for name in names}
    return Options(**{**given, **lists, "namespace": params["namespace"].strip()})


def _if_concerned(
    attachment: Attachment, volumes: Mapping[str, Volume], options: Options
) -> Attachment | None:
    return (
        attachment
        if attachment.volume in volumes or attachment.uid in options.attachments
        else None
    )


def _annotations(item: dict[str, Any], prefix: str) -> list[str]:
    return [key for key in item["metadata"].get("annotations") or {} if key.startswith(prefix)]


def _other_taints(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [taint for taint in item["spec"].get("taints") or [] if taint["key"] != HOLD]


def _own(item: dict[str, Any], prefix: str, group: Group) -> list[Ledger]:
    return [ledger for ledger in records.ledgers(item, prefix) if group.owns(ledger)]


def _cordon_left(host: records.Host, name: str) -> str:
    if host.ledgers:
        return f"{name} is held for another move, and not for this one"
    return (
        f"{name} is cordoned, and not by us"
        if host.node.unschedulable
        else f"{name} takes new pods"
    )


def _process(pid: str = "self") -> str:
    """What a process is called as long as its host is up: boot, namespace, number, start.

    Empty: there is none, or nobody knows.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        number, _space, fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").partition(" ")
        )
        state, *values = fields.rpartition(")")[2].split()
        return (
            ""
            if state in "XZ"
            else f"{boot} {os.readlink('/proc/self/ns/pid')} {number} {values[18]}"
        )
    return ""


def _has_ended(process: str) -> bool:
    """It is known that a process is no more: only of one of this host, where every process is seen.

    We are no other run.
    """
    own, parts = _process().split(), process.split()
    if len(own) != 4 or parts[:2] != own[:2] or len(parts) != 4:
        return False
    try:
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return parts == own or _process(parts[2]) != process


def _shape(group: Group) -> tuple[Any, ...]:
    """What must not change between plan and apply."""
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
