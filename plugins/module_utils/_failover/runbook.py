# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes the volumes of a lost and fenced node off it: reads the cluster, carries out what
the plan decides, and proves it.

Every step may be the last one of a run that is killed: the next run finds by the cluster and the
ledger what is left to be done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Callable

from .._core.argspec import check_numbers, given_names, given_options
from .._core.codes import Reason
from .._core.engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    PassedOver,
    Plan,
    require_time,
)
from .._core.errors import BadOption, StorageOpsError
from .._core.turns import TurnOver, in_turns, timed
from .._core.untrusted import few
from .._fences.ceph_reading import parse_reading
from .._fences.lease import RunLease
from .._fences.ledger import Ledger, Ledgers, RunOptions
from .._fences.network_fence import FENCED, MESSAGES, SUCCEEDED, list_fences
from .._fences.power import parse_power
from .._fences.state import (
    TAINT,
    AttachedVolume,
    Filters,
    NodeState,
    attached_volume,
    gather_node,
    pick_host_record,
)
from .._kube.changing import LEAST_SECONDS, change_object, delete_exactly, not_done
from .._kube.client import Cluster, KubeError, Object, path, until_none, within
from .._kube.events import Message, pick_message
from .._kube.objects import (
    Attachment,
    Claim,
    Pod,
    Tenant,
    Volume,
    attachment_path,
    is_too_late,
    node_path,
    pick_claim,
    pick_volume,
    pod_path,
)
from . import plan as pure
from .looks import BarePods, ClaimGets, PodLists, key_of, read_attachments
from .plan import Deletion, FailoverOptions, FailoverState, LostPod, Remark, Subject
from .unattached import Seen, Told, is_new, read_told, shown_unattached

# A wait ends with so much left of the deadline (seconds), so that what was proven is noted.
_KEPT_SECONDS = LEAST_SECONDS + 15.0
_POLL_SECONDS = 0.5
# A controller that recreates a pod does so within this time (seconds), and the scheduler has
# placed it.
# A controller makes the new pod once the old one's object is gone, and the scheduler then places
# it.
_REPLACEMENT_SECONDS = 15.0
# So long a pod that a finalizer keeps, or whose namespace takes too long to read, may keep volumes
# from their proof (seconds): the controller of a Job takes its own away within seconds.
_KEPT_POD_SECONDS = 30.0
# What was read of Ceph, or of the node's BMC, may become too old in a long run.
_TOO_OLD = ("ceph_reading_unfit", "power_reading_unfit")
# So much of an event is told (characters).
_EVENT_LENGTH = 300
# And of so many pods of a volume, since each is a request.
_MOST_TOLD = 3
# So long the claims of all pods may take (seconds): a reading of Ceph is no proof after 120 s.
_CLAIMS_SECONDS = 45.0
# So long the LIST of a pod's events may take (seconds), and all of them together.
_EVENTS_SECONDS = 2.0
_ALL_EVENTS_SECONDS = 20.0


class Failover:
    """The runbook fail_over_volumes on one cluster, from the fence on.

    ``check_mode``: the Lease is not taken, and the ledger may be the one that the steps before
    would have written. ``keeps_lease``: another step of the same run follows.
    """

    def __init__(
        self,
        cluster: Cluster,
        run: RunOptions,
        options: FailoverOptions,
        check_mode: bool,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        keeps_lease: bool = False,
    ) -> None:
        self._keeps_lease = keeps_lease
        self._cluster, self._run, self._options, self._check_mode = (
            cluster,
            run,
            options,
            check_mode,
        )
        self._ledgers = Ledgers(cluster, run.namespace)
        self._lease = RunLease(cluster, run.namespace, run.node, run.run, run.lease_seconds)
        self._sleep, self._clock = sleep, clock
        self._renewed = clock()
        # A third of the Lease's time leaves two more tries to renew it.
        self._renewal = run.lease_seconds / 3
        turns = (cluster, self._renew, self._renewal, self._spare, clock)
        self._pods, self._bare_pods = PodLists(*turns), BarePods(*turns)
        self._claim_gets = ClaimGets(*turns)
        # What was read in this wait of volumes that are never attached, and whether the last look
        # has judged by what was read before it.
        self._told: Told | None = None
        self._stale = False
        # The seconds that the last wait had.
        self._waited = 0.0
        # The last event of each pod that was asked for, by its uid; the seconds that took, and the
        # namespaces where it took too long.
        self._events: dict[str, str] = {}
        self._listing = 0.0
        self._slow: dict[str, bool] = {}
        self._state: FailoverState | None = None
        self._ledger: Ledger | None = None
        self._plan = Plan([])
        # When a volume was first seen off the node, and on another one; by the API server's clock.
        self._detached: dict[str, datetime] = {}
        self._attached: dict[tuple[str, str], datetime] = {}
        self._proof: list[Remark] = []
        # New pods that no node takes, by their uid.
        self._homeless: dict[str, Finding] = {}
        # Volumes that were waited for in vain. A tenant may keep its own volume where it is, as by
        # a finalizer of its pod, and must not keep others from their proof.
        self._late: set[str] = set()
        # Something was deleted; and why nothing more is, once what was read is too old.
        self._begun = False
        self._too_old: NotStarted | None = None

    def prepare(self) -> None:
        """Take the Lease."""
        self._lease.take(self._run.lease_timeout)
        self._renewed = self._clock()

    def close(self, failed: bool) -> None:
        """Give the Lease back, unless another step of this run is to have it."""
        del failed  # the role decides what follows, also on a failure
        if not self._keeps_lease:
            self._lease.release()

    # gather

    def gather(self) -> FailoverState:
        """Read the node with its attachments, then its pods and what their claims are bound to,
        then the other volumes of the fence.
        """
        # The order matters: a pod that comes to the node after its volumes were read is seen, one
        # that came before and is gone needs nothing.
        busy = self._lease.holder() if self._check_mode else ""
        node = gather_node(self._cluster, self._options.node, self._ledgers)
        if self._check_mode and self._run.fence:
            node = _as_planned(node, self._run.fence)
        self._ledger = node.ledger
        self._state = FailoverState(node, busy=busy)
        if node.ledger:
            attached = {
                entry.attachment.volume: entry for entry in node.attached if entry.attachment.volume
            }
            covered = [
                attached.get(name) or self._without_attachment(name) for name in node.ledger.volumes
            ]
            self._state = FailoverState(node, tuple(covered), tuple(self._lost_pods()), busy)
        return self._state

    def _without_attachment(self, name: str) -> AttachedVolume:
        # After a forced detach the VolumeAttachment is gone, and the volume is part of the fence
        # still.
        item = self._cluster.get(path("v1", "persistentvolumes", name))
        driver = pick_volume(item).driver if item else ""
        nothing = Attachment(
            "", "", driver, self._options.node, name, False, (), None, None, None, None, ()
        )
        return attached_volume(nothing, item)

    def _lost_pods(self) -> list[LostPod]:
        """The pods that the API has on the node, and that have not ended, with their claims and
        volumes as etcd has them now.
        """

        # The API server has the pods of a silent node for as long as nothing deletes them;
        # taint-based eviction only sets their deletionTimestamp
        # (pkg/controller/tainteviction/taint_eviction.go), since the kubelet has to confirm it.
        found = self._cluster.list(
            path("v1", "pods"), pure.pick_lost_pod, fields=f"spec.nodeName={self._options.node}"
        )
        claims, volumes = self._claims([lost.pod for lost in found])
        return [pure.with_claims(lost, claims, volumes) for lost in found]

    def _claims(
        self, pods: Sequence[Pod]
    ) -> tuple[dict[tuple[str, str], Claim | None], dict[str, Volume]]:
        """The claims that pods name, None for one that does not exist, and the PersistentVolumes
        that these name; as many as there is time for.
        """
        claims: dict[tuple[str, str], Claim | None] = {}
        volumes: dict[str, Volume | None] = {}
        until = self._clock() + _CLAIMS_SECONDS
        for place in self._claims_in_turns(pods):
            if self._clock() >= until:
                break
            item = self._cluster.get(path("v1", "persistentvolumeclaims", place[1], place[0]))
            claim = claims[place] = pick_claim(item) if item else None
            if claim and claim.volume and claim.volume not in volumes:
                found = self._cluster.get(path("v1", "persistentvolumes", claim.volume))
                volumes[claim.volume] = pick_volume(found) if found else None
        return claims, {name: volume for name, volume in volumes.items() if volume}

    def _claims_in_turns(self, pods: Sequence[Pod]) -> list[tuple[str, str]]:
        """Namespace and name of the claims, of each namespace the oldest pods' first. Those that
        only pods name that are too late are the last: what is unknown of them matters to no other.
        """
        # Anyone who may create pods may name this node, and any number of claims in each.
        host = self._state.node.host if self._state else None
        node = host.node if host else None
        named: dict[str, dict[tuple[str, str], bool]] = {}
        ages = [(is_too_late(pod, node), pod.created or self._cluster.now(), pod) for pod in pods]
        for late, _created, pod in sorted(ages, key=lambda one: (*one[:2], one[2].uid)):
            theirs = named.setdefault(pod.namespace, {})
            new = [name for name in pod.claims if (pod.namespace, name) not in theirs]
            for name in new[: pure.MOST_CLAIMS - len(theirs)]:
                theirs[pod.namespace, name] = late
        every = [
            (late, place)
            for _space, places in sorted(named.items())
            for place, late in places.items()
        ]
        turns = in_turns(every, lambda one: one[1][0])
        return [place for _late, place in sorted(turns, key=lambda one: one[0])]

    # plan

    def plan(self, state: FailoverState) -> Plan:
        """Decide."""
        self._plan = pure.plan(state, self._options)
        return self._plan

    def healthy(self, state: FailoverState) -> str:
        """Why there is nothing to be done."""
        chosen = " that the filters choose" if self._options.filters.active else ""
        return (
            f"none of the {len(state.covered)} volumes of the fence{chosen} is attached to "
            f"{self._options.node} any more"
        )

    def facts(self) -> dict[str, Any]:
        """The ledger as it is now; in check mode as it would be."""
        if self._ledger is None:
            return {}
        planned = {action.verb for action in self._plan.actions if action.outcome == "planned"}
        changes: dict[str, Any] = {"tainted": True} if "taint_node" in planned else {}
        for action in self._plan.actions:
            if action.verb == "record_detached" and action.outcome == "planned":
                changes.update(self._proven(action.subject, self._ledger))
        return {"fence": self._ledger._replace(**changes).to_dict(), "left": sorted(self._detached)}

    # apply

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would do it."""
        if action.verb in self._changes:
            self._changes[action.verb](self, action.subject, True)

    def apply(self, action: Action) -> None:
        """Carry out one action, after a fresh look at the node, at its fence, and at whose turn it
        is.
        """
        if self._too_old:
            self._pass_over(action.subject, self._too_old)
        require_time(self._cluster.deadline, LEAST_SECONDS)
        # Between plan and action minutes may pass in the wait for the Lease or for another volume,
        # in which the node may come back or a fence may end.
        with self._lease.held():
            self._renewed = self._clock()
            try:
                self._recheck(action.verb in self._changes)
            except NotStarted as error:
                if error.code in _TOO_OLD:
                    self._pass_over(action.subject, error)
                raise
            if action.verb not in self._waits:
                self._change(action)
        # Meanwhile the Lease is renewed.
        if action.verb in self._waits:
            self._waits[action.verb](self, action.subject)

    def undo(self, action: Action) -> Action | None:
        # The opposite would have to attach volumes to a node that nothing is known of.
        """Nothing is taken back: what was detached is safe, since the node is fenced, and its
        ledger says how far we came.
        """

    def _recheck(self, detaches: bool) -> None:
        """The node must still be lost and fenced, and no other run at work on it.

        ``detaches``: what was read of Ceph must be new enough still, which it need not be to wait.
        """
        name = self._options.node
        item = self._cluster.get(node_path(name))
        ledger = self._ledgers.read(name, item)
        if ledger is None or self._state is None:
            raise NotStarted(
                f"the fence of node {name} is not proven any more: it has no ledger",
                code="fence_missing",
            )
        host = pick_host_record(item) if item else None
        fences = list_fences(self._cluster)
        # Last: what was read of Ceph is older after each of these reads.
        node = self._state.node._replace(now=self._cluster.now(), host=host, fences=fences)
        state = self._state._replace(node=node)
        doubts = pure.fence_obstacles(state, ledger)
        doubts += pure.unproven(state, ledger, self._options) if detaches else []
        if doubts:
            raise NotStarted("; ".join(doubts), doubts[0].code)
        self._ledger = ledger

    def _change(self, action: Action) -> None:
        if action.verb in self._changes:
            self._changes[action.verb](self, action.subject, False)
        elif self._ledger:
            self._write(**self._proven(action.subject, self._ledger))

    def _taint(self, _subject: Subject, dry_run: bool) -> None:
        """Add the taint, noting first that it is ours."""
        name = self._options.node

        def change(item: Object | None) -> Object | None:
            if item is None:
                raise ActionFailed(
                    f"there is no node {name} any more that could get the taint; run again to "
                    "detach its volumes one by one",
                    code="not_found",
                )
            host = pick_host_record(item)
            if pure.is_out_of_service(host):
                return None
            doubts = pure.obstacles(name, host, self._ledger) if self._ledger else []
            if doubts:
                raise ActionFailed("; ".join(doubts), doubts[0].code)
            taint = dict(zip(("key", "value", "effect"), TAINT))
            return {"spec": {"taints": [*(item["spec"].get("taints") or []), taint]}}

        where = node_path(name)
        if not dry_run and self._ledger and not self._ledger.tainted:
            if change(self._cluster.get(where)) is None:
                return
            self._write(tainted=True)
        change_object(self._cluster, where, change, dry_run)
        self._begun = self._begun or not dry_run

    def _pass_over(self, subject: Subject, why: NotStarted) -> None:
        """Too old a reading of Ceph ends the deletions: what Kubernetes deletes as well is left to
        it, and a volume or pod whose turn has not come stays, which keeps no other from its proof.
        """
        self._too_old, deletion = why, subject.deletion
        if deletion is None:
            return
        ours = {covered.name for covered in self._timely([*subject.volumes, *subject.awaited])}
        ours |= {key_of(pod) for pod in self._bare(subject)}
        # Of its other volumes, findings say already that they stay.
        names = [name for name in _keys(deletion) if name in ours]
        if deletion.needed:
            # With nothing else the run has come to nothing.
            if not self._begun or ours <= {*names}:
                return
            told = [Remark(name, str(why)) for name in names]
            self._give_up(subject, why.code, "its turn did not come", told)
        raise PassedOver(str(why), why.code)

    def _force_delete(self, subject: Subject, dry_run: bool) -> None:
        # With a grace period of 0 the API server removes the object at once (Kubernetes
        # documentation, "Forced Pod termination"); a StatefulSet makes its next pod only after
        # that.
        if subject.deletion is None or subject.deletion.pod is None:
            return
        pod = subject.deletion.pod
        try:
            self._delete(pod_path(pod), pod.uid, dry_run, grace=0)
        except ActionFailed as error:
            if subject.deletion.needed:
                raise
            raise PassedOver(str(error), error.code) from error

    def _delete_attachment(self, subject: Subject, dry_run: bool) -> None:
        # The external-attacher's finalizer keeps the object until ControllerUnpublishVolume has
        # succeeded (kubernetes-csi/external-attacher pkg/controller/csi_handler.go); it is never
        # removed here. For ceph-csi that call does nothing, which is why the fence has to be there
        # before.
        if subject.deletion and subject.deletion.attachment:
            entry = subject.deletion.attachment
            self._delete(attachment_path(entry), entry.uid, dry_run)

    def _delete(self, where: str, uid: str, dry_run: bool, grace: int | None = None) -> None:
        """Delete exactly that object; one that is gone already, or replaced by another one, needs
        no deletion.
        """
        try:
            delete_exactly(self._cluster, where, uid, dry_run, grace)
            self._begun = True
        except KubeError as error:
            raise not_done(error) from error

    _changes: Mapping[str, Callable[[Failover, Subject, bool], None]] = {
        "taint_node": _taint,
        "force_delete_pod": _force_delete,
        "delete_volumeattachment": _delete_attachment,
    }

    def _write(self, **changes: Any) -> None:
        if self._ledger:
            self._ledger = self._ledgers.write(self._ledger._replace(**changes))

    def _proven(self, subject: Subject, ledger: Ledger) -> dict[str, Any]:
        """What of the ledger changes: the volumes that have been failed over, and the phase once
        none is left.
        """
        names = {covered.name for covered in self._timely(subject.awaited)}
        phase = {"phase": "detached"} if subject.done and not self._late else {}
        return {"detached": tuple(sorted(names.union(ledger.detached))), **phase}

    def _timely(self, volumes: Sequence[AttachedVolume]) -> list[AttachedVolume]:
        return [covered for covered in volumes if covered.name not in self._late]

    def _bare(self, subject: Subject) -> list[Pod]:
        return [pod for pod in subject.bare if key_of(pod) not in self._late]

    def _wait_detached(self, subject: Subject) -> None:
        seconds, began = self._options.detach_timeout, self._clock()
        kept: list[Remark] = []

        def look() -> list[str]:
            left, (leaving, kept[:]) = self._left(subject), self._left_bare(subject)
            # Its tenant may keep a pod for ever, as by a finalizer.
            over = self._clock() - began + _POLL_SECONDS > _KEPT_POD_SECONDS
            return [*left, *leaving, *([] if over else kept)]

        left = [text for text in self._until_none(seconds, look) if text not in kept]
        most = min(self._waited, _KEPT_POD_SECONDS)
        self._give_up(subject, "not_detached", f"not within {most:g} s", kept)
        what = self._not_within(seconds, "detach_timeout")
        self._give_up(subject, "not_detached", what, left)

    def _wait_attached(self, subject: Subject) -> None:
        # A volume counts as failed over when a pod elsewhere has it attached, or when it is free
        # and no pod wants it.
        began = self._clock()
        seconds = subject.attach_timeout

        def look() -> list[str]:
            return self._waiting(subject, self._clock() - began < _REPLACEMENT_SECONDS)

        def proven() -> list[str]:
            left = look()
            return left or self._once_more(look)

        left = self._until_none(seconds, proven)
        if left and self._stale:
            # Of the others, too, it is noted that they have been failed over.
            left = until_none(
                lambda: self._once_more(look),
                0.0,
                self._cluster.deadline,
                self._sleep,
                self._clock,
            )
        self._give_up(
            subject,
            code="not_attached",
            what=self._not_within(seconds, "attach_timeout"),
            told=left,
        )

    def _wait_ready(self, subject: Subject) -> None:
        seconds = self._options.ready_timeout
        late = self._until_none(
            seconds,
            lambda: self._not_ready(subject),
        )
        # Only now it matters what they say.
        self._give_up(
            subject,
            code="not_attached",
            what=self._not_within(seconds, "ready_timeout", "not Running and Ready"),
            told=self._not_running(subject) if late else [],
            then=". The volume is attached. Once the pod runs, or with ready_timeout 0, another "
            "run records that it was failed over",
        )

    def _give_up(
        self, subject: Subject, code: str, what: str, told: Sequence[str], then: str = ""
    ) -> None:
        """Each volume that something is told of becomes a failure of its own; with no other volume
        left, the action has failed.
        """
        volumes = {covered.name: covered for covered in (*subject.volumes, *subject.awaited)}
        pods = {key_of(pod): pod for pod in subject.bare}
        by_volume: dict[str, list[str]] = {}
        for text in told:
            by_volume.setdefault(text.volume if isinstance(text, Remark) else "", []).append(text)
        others = {covered.name for covered in self._timely([*volumes.values()])} | {*pods}
        others -= {*by_volume, *self._late}
        # What is told of no volume, as that the API server did not answer, is true of all.
        if told and ("" in by_volume or not others):
            raise ActionFailed(f"{what}: {few(told, '; ')}{then}", code=code)
        for name, texts in by_volume.items():
            reason = Reason(code, f"{what}: {few(texts, '; ')}{then}")
            self._plan.findings.append(
                pure.stuck(self._options, pods[name], reason)
                if name in pods
                else pure.late(self._options, volumes[name], reason)
            )
            self._late.add(name)

    _waits: Mapping[str, Callable[[Failover, Subject], None]] = {
        "wait_detached": _wait_detached,
        "wait_attached": _wait_attached,
        "wait_ready": _wait_ready,
    }

    def _not_ready(self, subject: Subject) -> list[str]:
        new, unread = self._new(subject)
        return [tenant.pod.title for tenant in new if not _runs(tenant)] + [*unread]

    def _new(self, subject: Subject) -> tuple[list[Tenant], list[Remark]]:
        """The pods that have taken over: those that have a node and use an awaited volume, which
        only one node can have; and remarks about the volumes whose pods could not be read.

        Of a volume that several nodes can have, as of any that is never attached, those that were
        made since the node was lost; others may have had trouble before.
        """
        awaited = self._timely(subject.awaited)
        tenants, unread = self._pods.read(awaited)
        found = [tenant for tenant in tenants if tenant.pod.node and not tenant.pod.deleted]
        users = _users_of(found, awaited)
        told = self._tell(awaited)
        new = {
            tenant.pod.uid: tenant
            for covered in awaited
            for tenant in users[covered.name]
            if self._is_new(tenant, covered, told)
        }
        return [*new.values()], unread

    def _is_new(self, tenant: Tenant, covered: AttachedVolume, told: Told) -> bool:
        seen = self._state.node if self._state else None
        node = seen.host.node if seen and seen.host else None
        return is_new(tenant.pod, covered, told, node, seen.now if seen else self._cluster.now())

    def _not_running(self, subject: Subject) -> list[str]:
        """What the pods say that do not run, for each volume that they use."""
        new, unread = self._new(subject)
        late = [tenant for tenant in new if not _runs(tenant)]
        remarks: list[str] = [*unread]
        users_of = _users_of(late, self._timely(subject.awaited))
        for covered in self._timely(subject.awaited):
            users = users_of[covered.name]
            said = [self._said(tenant) for tenant in users[:_MOST_TOLD]]
            more = len(users) - len(said)
            said += [f"{more} more pods of {covered.name} are not Ready"] if more else []
            remarks += [Remark(covered.name, text) for text in said]
        return remarks

    def _last_event(self, pod: Pod) -> str:
        """The last event of a pod, as words."""
        # A tenant may write any number of events, as big as an object may be: one namespace takes
        # its time once, and all of them together not much more than one.
        late = self._listing > _ALL_EVENTS_SECONDS
        if late or self._slow.get(pod.namespace):
            return "its events were not read, since those of other pods took too long"
        began = self._clock()
        pick = timed(_EVENTS_SECONDS, self._clock, pick_message)
        events = path("v1", "events", namespace=pod.namespace)
        try:
            with within(self._cluster, _EVENTS_SECONDS):
                found = self._cluster.list(events, pick, fields=f"involvedObject.uid={pod.uid}")
            last = max((message for _uid, message in found), key=_moment, default=None)
        except TurnOver:
            return f"its events could not be read within {_EVENTS_SECONDS:g} s"
        except KubeError as error:
            return f"its events cannot be read: {error}"
        finally:
            took = self._clock() - began
            self._listing += took
            self._slow[pod.namespace] = took > _EVENTS_SECONDS
        return (
            f"last event: {last.reason}: {last.text[:_EVENT_LENGTH]}"
            if last
            else "it has no events"
        )

    def _said(self, tenant: Tenant) -> str:
        """What a pod that does not run says of it, and its last event."""
        # Events expire after an hour (--event-ttl of kube-apiserver), and rights to read them may
        # be missing: they explain, and prove nothing.
        pod = tenant.pod
        if pod.uid not in self._events:
            self._events[pod.uid] = self._last_event(pod)
        event = self._events[pod.uid]
        how = "not Ready" if pod.phase == "Running" else pod.phase
        return (
            f"pod {pod.title} on {pod.node} is {how} "
            f"({tenant.trouble or 'no container gives a reason'}); {event}"
        )

    def _left(self, subject: Subject) -> list[str]:
        """What of the volumes is still to be seen on the lost node: pods, attachments."""
        # The pods first: while a pod is there, its volume is wanted on the node and is not
        # detached.
        node = self._options.node
        volumes = self._timely(subject.volumes)
        pods, unread = self._pods.read(volumes, node)
        left: list[str] = [*unread]
        attachments = read_attachments(self._cluster, [(covered, node) for covered in volumes])
        users_of = _users_of(pods, volumes)
        for covered in _known(volumes, unread):
            here = [tenant.pod for tenant in users_of[covered.name]]
            found = [f"pod {pod.title} of {covered.name} is still on {node}" for pod in here]
            attachment = attachments.get((covered.name, node))
            # What a pod holds is not detached, so that alone is worth saying.
            found = found or ([_still_there(attachment, node)] if attachment else [])
            if not found:
                self._detached.setdefault(covered.name, self._cluster.now())
            left += [Remark(covered.name, text) for text in found]
        return left

    def _left_bare(self, subject: Subject) -> tuple[list[Remark], list[Remark]]:
        """About those pods without a volume of the fence that are still on the lost node: those
        that leave it by themselves, and those that are kept there.
        """
        return self._bare_pods.read(self._bare(subject), self._options.node)

    def _tell(self, volumes: Sequence[AttachedVolume]) -> Told:
        """What the API tells of volumes that are never attached, read once in a wait."""
        # The list of all attachments may be long.
        if self._told is None:
            self._renew()
            self._told = read_told(self._cluster, volumes)
        return self._told

    def _forget_told(self) -> None:
        self._told = None
        self._claim_gets.begin()

    def _once_more(self, look: Callable[[], list[str]]) -> list[str]:
        """Look again, if what the last look has shown was in part read before."""
        if not self._stale:
            return []
        self._forget_told()
        return look()

    def _waiting(self, subject: Subject, early: bool) -> list[str]:
        """Which pods elsewhere still wait for their volume; what has been reached goes to the
        proof. ``early``: pods may yet be made.
        """
        # It is asked again and again, so what was proven before is collected again each time.
        proof: list[Remark] = []
        awaited = self._timely(subject.awaited)
        tenants, unread = self._pods.read(awaited)
        waiting: list[str] = [*unread]
        known = _known(awaited, unread)
        living = [tenant for tenant in tenants if not tenant.pod.deleted]
        users_of = _users_of(living, known)
        self._note_homeless(users_of, known)
        seen, never = self._look(awaited, known, users_of)
        asked = [covered for covered in never if seen.may_have(users_of[covered.name])]
        claims, unread = self._claim_gets.read(asked)
        seen, waiting = seen._replace(claims=claims), [*waiting, *unread]
        for covered in _known(known, unread):
            waits, proven = self._reached(covered, users_of[covered.name], seen, early)
            waiting += [Remark(covered.name, text) for text in waits]
            proof += [Remark(covered.name, text) for text in proven]
        self._proof = proof
        return waiting

    def _look(
        self,
        awaited: Sequence[AttachedVolume],
        known: Sequence[AttachedVolume],
        users_of: dict[str, list[Tenant]],
    ) -> tuple[Seen, list[AttachedVolume]]:
        """What there is of volumes elsewhere but for claims, and those that are never attached, of
        which ``users_of`` keeps only new pods. ``known``: those whose pods were read.
        """
        before, told = self._told, self._tell(awaited)
        never = {covered.name: covered for covered in known if shown_unattached(covered, told)}
        self._stale = before is not None and bool(never)
        for name, covered in never.items():
            # No attachment keeps pods from having had it before, whatever trouble these have.
            users_of[name] = [
                tenant for tenant in users_of[name] if self._is_new(tenant, covered, told)
            ]
        # What is never attached has none: that was read right before, or is again at the end.
        places = [
            (covered, tenant.pod.node)
            for covered in known
            if covered.name not in never
            for tenant in users_of[covered.name]
            if tenant.pod.node
        ]
        attachments = read_attachments(self._cluster, places)
        seen = Seen(attachments, told, {}, self._options.node, self._fenced())
        return seen, [*never.values()]

    def _note_homeless(
        self, users_of: Mapping[str, list[Tenant]], awaited: Sequence[AttachedVolume]
    ) -> None:
        """Note a finding for each of these pods that has no node."""
        homeless: dict[str, tuple[Tenant, list[AttachedVolume]]] = {}
        for covered in awaited:
            for tenant in users_of[covered.name]:
                if not tenant.pod.node:
                    homeless.setdefault(tenant.pod.uid, (tenant, []))[1].append(covered)
        self._homeless = {uid: pure.homeless(*found) for uid, found in homeless.items()}

    def _reached(
        self,
        covered: AttachedVolume,
        users: list[Tenant],
        seen: Seen,
        early: bool,
    ) -> tuple[list[str], list[str]]:
        """Why a volume has not reached all of its pods elsewhere yet, and what proves that it has
        reached pods, or is free for them.
        """
        placed = [tenant for tenant in users if tenant.pod.node]
        if not placed and early:
            return [f"no new pod elsewhere uses {covered.name} yet"], []
        if not placed:
            return [], [_free(covered, users)]
        waits: list[str] = []
        proven: list[str] = []
        for tenant in placed:
            waiting, arrived = self._arrived(covered, tenant, seen)
            waits += waiting
            proven += arrived
        return waits, proven

    def _arrived(
        self, covered: AttachedVolume, tenant: Tenant, seen: Seen
    ) -> tuple[list[str], list[str]]:
        """Why a pod that has a node still waits for the volume, or else what proves that it has
        it.
        """
        # status.attached is set by the external-attacher after ControllerPublishVolume
        # (VolumeAttachmentStatus of k8s.io/api/storage/v1), before the kubelet stages the volume.
        name, node, pod = covered.name, self._options.node, tenant.pod
        attachment = seen.attachments.get((name, pod.node))
        if pod.node == node:
            return [
                f"pod {pod.title} came to the lost node {node} again: it tolerates its "
                "taints, or names the node itself"
            ], []
        if attachment and attachment.attached:
            since = self._attached.setdefault((name, pod.node), self._cluster.now())
            return [], [
                f"{name} is attached to {pod.node} for pod {pod.title} ({attachment.name}, "
                f"seen at {since:%H:%M:%S}Z)"
            ]
        never = None if attachment else shown_unattached(covered, seen.told)
        has_it = seen.mounted(covered, tenant) if never else None
        if has_it:
            return [], [f"{name} is in use: {has_it}, and {never}"]
        why = f"{never}, and the pod does not run with it yet" if never else _why_not(attachment)
        if covered.attachment.driver in seen.told.unread:
            why += f"; this account may not read CSIDriver {covered.attachment.driver}"
        return [f"pod {pod.title} on {pod.node} waits for {name}: {why}"], []

    def _fenced(self) -> frozenset[str]:
        """The uids of the pods that were on the lost node."""
        return frozenset(lost.pod.uid for lost in self._state.pods) if self._state else frozenset()

    def _until_none(self, seconds: float, look: Callable[[], list[str]]) -> list[str]:
        """As everywhere, but under the Lease, which is renewed meanwhile."""

        def held() -> list[str]:
            left = look()
            self._renew()
            return left

        self._waited = self._pods.begin(seconds)
        self._forget_told()
        return until_none(
            held, self._waited, self._cluster.deadline, self._sleep, self._clock, _POLL_SECONDS
        )

    def _not_within(self, seconds: float, option: str, what: str = "not") -> str:
        if self._waited < seconds:
            return f"{what} within the {self._waited:.0f} s that the deadline left for {option}"
        return f"{what} within {seconds:g} s ({option})"

    def _renew(self) -> None:
        """Renew the Lease if it is time to."""
        if self._clock() - self._renewed > self._renewal:
            self._lease.check()
            self._renewed = self._clock()

    def _spare(self) -> float:
        """So many seconds are left for waiting."""
        return self._cluster.deadline.remaining() - _KEPT_SECONDS

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that the volumes have left the node, and are where pods wait for them."""
        subject: Subject = finding.repair[0].subject
        self._pods.begin()
        self._forget_told()
        leaving, kept = self._left_bare(subject)
        self._doubt(subject, [*self._left(subject), *leaving, *kept])
        self._doubt(subject, self._waiting(subject, early=False))
        if self._options.ready_timeout:
            self._doubt(subject, self._not_running(subject))
        item = self._cluster.get(node_path(self._options.node))
        ledger = self._ledgers.read(self._options.node, item)
        if finding.repair[-1].verb == "record_detached" and not self._is_noted(subject, ledger):
            raise ActionFailed(
                f"the fail-over of {self._options.node} is not proven: the ledger does not say "
                f"what is detached ({ledger.phase if ledger else 'it is gone'})",
                code="repair_unproven",
            )
        gone = [
            f"{covered.name} has no VolumeAttachment and no pod on {self._options.node} (seen at "
            f"{self._detached[covered.name]:%H:%M:%S}Z)"
            for covered in self._timely(subject.volumes)
        ]
        gone += [
            f"pod {pod.title} ({pod.uid}) is not on {self._options.node} any more"
            for pod in subject.bare
            if key_of(pod) not in self._late
        ]
        self._plan.findings += self._homeless.values()
        ready = [
            f"pod {tenant.pod.title} is Running and Ready on {tenant.pod.node}"
            for tenant in self._new(subject)[0]
            if _runs(tenant)
        ]
        unproven = (
            []
            if self._options.ready_timeout
            else ["whether the new pods run is not proven (ready_timeout is 0)"]
        )
        return (
            gone
            + [text for text in self._proof if text.volume not in self._late]
            + ready
            + unproven
        )

    def _doubt(self, subject: Subject, told: Sequence[str]) -> None:
        what = f"the fail-over of {self._options.node} is not proven"
        self._give_up(subject, code="repair_unproven", what=what, told=told)

    def _is_noted(self, subject: Subject, ledger: Ledger | None) -> bool:
        return ledger is not None and ledger._replace(**self._proven(subject, ledger)) == ledger


class StillFenced:
    """Whether the fence is there still once volumes were detached, asked of the cluster and of what
    was read of Ceph.
    """

    def __init__(self, cluster: Cluster, run: RunOptions, options: FailoverOptions) -> None:
        self._cluster, self._run, self._options = cluster, run, options
        self._ledger: Ledger | None = None

    def gather(self) -> None:
        """Read the node and its ledger, for which no Lease is needed.

        Raises StorageOpsError that says what is wrong with the fence.
        """
        if self._options.check:
            return
        node = gather_node(
            self._cluster, self._options.node, Ledgers(self._cluster, self._run.namespace)
        )
        self._ledger = node.ledger
        reasons = pure.not_held(FailoverState(node), self._options)
        if reasons:
            raise StorageOpsError("; ".join(reasons), reasons[0].code)

    def plan(self, _state: None) -> Plan:
        """Nothing is left to be decided."""
        return Plan([])

    def healthy(self, _state: None) -> str:
        """What was found."""
        return (
            "check mode, in which nothing was fenced"
            if self._options.check
            else f"node {self._options.node} is fenced still"
        )

    def facts(self) -> dict[str, Any]:
        """The ledger as it is."""
        return {"fence": self._ledger.to_dict() if self._ledger else {}}


def failover_options(params: Mapping[str, Any], check_mode: bool) -> FailoverOptions:
    """Options of Failover, checked."""
    # 0 for ready_timeout means not to wait for pods at all.
    check_numbers(
        params, {"detach_timeout": 1, "attach_timeout": 1, "ready_timeout": 0, "deadline": 60}
    )
    otherwise = "leave the option out to choose everything"
    chosen = given_names(params, *Filters._fields, otherwise=otherwise)
    wrong = [claim for claim in chosen["claims"] if claim.count("/") != 1]
    if wrong:
        raise BadOption(f"claims has {wrong[0]}; give each as namespace/name")
    reading = parse_reading(params["ceph"]) if params["ceph"] else None
    made: dict[str, Any] = {
        "filters": Filters(**chosen),
        "reading": reading,
        "check": check_mode,
        "awaited": tuple(params["awaited"]),
        "power": parse_power(params["power"]),
    }
    return FailoverOptions(**{**given_options(FailoverOptions, params), **made})


def _as_planned(node: NodeState, fence: Ledger) -> NodeState:
    """The node as the steps before would have left it, with its NetworkFences Fenced."""
    # In check mode the fence was not written, so what it would be stands in for it.
    names = {noted.name for noted in fence.network_fences}
    fences = [
        found._replace(state=FENCED, result=SUCCEEDED, message=MESSAGES[FENCED])
        if found.name in names
        else found
        for found in node.fences or ()
    ]
    return node._replace(ledger=fence, fences=tuple(fences))


def _users_of(
    tenants: Iterable[Tenant], volumes: Iterable[AttachedVolume]
) -> dict[str, list[Tenant]]:
    """By volume, the pods that use it."""
    # Of thousands of pods of a tenant each would be compared with each of its volumes.
    users: dict[tuple[str, str], list[Tenant]] = {}
    for tenant in tenants:
        for claim in dict.fromkeys(tenant.pod.claims):
            # A claim belongs to a namespace, so its name alone would find another tenant's.
            users.setdefault((tenant.pod.namespace, claim), []).append(tenant)
    return {
        covered.name: users.get(covered.volume.claim if covered.volume else ("", ""), [])
        for covered in volumes
    }


def _known(volumes: Iterable[AttachedVolume], unread: Iterable[Remark]) -> list[AttachedVolume]:
    """Those whose pods were read."""
    names = {remark.volume for remark in unread}
    return [covered for covered in volumes if covered.name not in names]


def _keys(deletion: Deletion) -> list[str]:
    """What the volumes or the pod are told by that it takes off the node."""
    return [key_of(deletion.pod)] if deletion.is_bare and deletion.pod else [*deletion.volumes]


def _runs(tenant: Tenant) -> bool:
    return tenant.pod.phase == "Running" and tenant.pod.ready


def _moment(message: Message) -> float:
    return message.last.timestamp() if message.last else 0.0


def _still_there(attachment: Attachment, node: str) -> str:
    if attachment.deleted is None:
        return (
            f"{attachment.name} ({attachment.driver}) is not being deleted: the controller "
            f"manager does not detach it from {node}"
        )
    said = (
        f"; the attacher says: {attachment.detach_error.message}"
        if attachment.detach_error
        else "; the attacher says nothing"
    )
    return (
        f"{attachment.name} ({attachment.driver}) is being deleted since "
        f"{attachment.deleted:%H:%M:%S}Z, held by "
        f"{', '.join(attachment.finalizers) or 'no finalizer'}{said}. "
        "A finalizer is never removed here"
    )


def _free(covered: AttachedVolume, users: list[Tenant]) -> str:
    """The proof about a volume that no pod with a node uses."""
    trouble = [
        f"pod {tenant.pod.title} has no node: {tenant.trouble or 'no reason given'}"
        for tenant in users
    ]
    return (
        f"{covered.name} is free, and waits for a pod: "
        f"{few(trouble, '; ') or 'there is none that uses it'}"
    )


def _why_not(attachment: Attachment | None) -> str:
    # The attacher's own error, as a driver that refuses a second node, says more than that time
    # went by.
    if attachment is None:
        return (
            "there is no VolumeAttachment; does the controller manager run, and what do the "
            "events of the pod say?"
        )
    if attachment.attach_error:
        return f"{attachment.name} is not attached: {attachment.attach_error.message}"
    return f"{attachment.name} is not attached, and the attacher says nothing"
