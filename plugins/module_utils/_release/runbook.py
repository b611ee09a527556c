# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gives a fenced node back: reads the cluster, carries out what the plan decides, and proves
it.

The ledger goes last, so a run that was killed anywhere is finished by another one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from .._core.argspec import check_numbers
from .._core.engine import Action, ActionFailed, Finding, NotStarted, Plan, require_time
from .._core.errors import StorageOpsError
from .._fences import network_fence
from .._fences.ceph_reading import parse_reading
from .._fences.lease import RunLease
from .._fences.ledger import Ledger, Ledgers, RunOptions, read_note, run_options
from .._fences.power import parse_power
from .._fences.returned import rebooted
from .._fences.state import (
    OUT_OF_SERVICE,
    TAINT,
    HostRecord,
    pick_host_record,
    without_attachment,
)
from .._kube.changing import LEAST_SECONDS, change_object
from .._kube.client import Cluster, Object, path
from .._kube.objects import Pod, pick_pod, pick_volume
from . import plan as pure
from .plan import ReleaseOptions, ReleaseState, Subject

# So that a run ends; no release takes a day.
_MAX_TIMEOUT = 86_400.0

# Of the spec of a node that is there.
SpecChange = Callable[[Object], "Object | None"]


class Release:
    """The runbook release_fenced_node on one cluster.

    ``timeout``: seconds that a NetworkFence gets to be unfenced.
    """

    def __init__(
        self,
        cluster: Cluster,
        run: RunOptions,
        options: ReleaseOptions,
        timeout: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._run = run
        self._options = options
        self._timeout = timeout
        self._sleep = sleep
        self._ledgers = Ledgers(cluster, run.namespace)
        self._lease = RunLease(cluster, run.namespace, run.node, run.run, run.lease_seconds, sleep)
        self._node_path = path("v1", "nodes", options.node)
        self._state: ReleaseState | None = None
        self._plan = Plan([])
        # Why the Lease is no longer this run's.
        self._lost: NotStarted | None = None

    def prepare(self) -> None:
        """Renew the Lease that the first step takes, before the rest is read: what is read without
        it may be another run's work.
        """
        if self._options.state == "releasing":
            return  # taken once it is known that there is something to release: see _mark
        try:
            self._lease.check()
        except NotStarted as error:
            self._lost = error

    def close(self, failed: bool) -> None:
        """Give the Lease back if the run ends here: the next run need not wait for this one."""
        if failed:
            self._lease.release()

    # gather

    def gather(self) -> ReleaseState:
        """Read the ledger, the node, and what the fence consists of.

        Raises NotStarted where another run has it in its hands by now.
        """
        # A release takes protection away, so what was read before the Lease was ours decides
        # nothing.
        options, holds = self._options, self._options.state == "held"
        state = self._state = self._read()
        # Without a ledger nothing is left to be done under the Lease.
        if self._lost and (holds or state.ledger):
            raise self._lost
        if holds and not state.ledger and not options.check:
            raise NotStarted(
                f"{options.node} has no ledger any more, so another run has released it: there "
                "is nothing left to undo",
                code="fence_missing",
            )
        if holds and not options.check:
            # Once more: what follows in Ceph has the whole of its time, however long this took.
            self._lease.check()
        return state

    def _read(self) -> ReleaseState:
        # In check mode the steps before have changed nothing, so the ledger that they would have
        # left is passed on.
        options, cluster = self._options, self._cluster
        item = cluster.get(self._node_path)
        host = pick_host_record(item) if item else None
        note, ledger = read_note(item), self._ledgers.read(options.node, item)
        if ledger:
            self._ledgers.refuse_doubt(ledger, item)
        if ledger and options.check and self._run.fence:
            ledger = self._run.fence
        fences: tuple[network_fence.NetworkFence, ...] | None = None
        others: tuple[Ledger, ...] = ()
        items: dict[str, Object] = {}
        if ledger:
            fences = network_fence.list_fences(cluster) if ledger.network_fences else None
            others = tuple(other for other in self._ledgers.all() if other.node != options.node)
            # A reboot has ended all its pods of before.
            if host and not rebooted(host, ledger) and options.state == "releasing":
                items = self._volumes(ledger)
        pods = self._pods(items) if items else ()
        busy = self._lease.holder() if options.check else ""
        unread, images = self._ledgers.unread, self._images(items)
        return ReleaseState(
            cluster.now(), host, ledger, fences, pods, busy, others, note.text, unread, images
        )

    def _images(self, volumes: Mapping[str, Object]) -> tuple[str, ...]:
        """The names of those PersistentVolumes that are images of Ceph."""
        node = self._options.node
        return tuple(
            name for name, item in volumes.items() if without_attachment(name, node, item).is_rbd
        )

    def _volumes(self, ledger: Ledger) -> dict[str, Object]:
        """The PersistentVolumes of the fence that exist, by name."""
        found = {
            name: self._cluster.get(path("v1", "persistentvolumes", name))
            for name in ledger.volumes
        }
        return {name: item for name, item in found.items() if item}

    def _pods(self, volumes: Mapping[str, Object]) -> tuple[Pod, ...]:
        """The pods on the node that use one of these volumes."""
        # They explain who may still use the volumes of the fence on a node that was not rebooted.
        claims = {pick_volume(item).claim for item in volumes.values()}

        def pick(item: dict[str, Any]) -> Pod | None:
            pod = pick_pod(item)
            return pod if any((pod.namespace, claim) in claims for claim in pod.claims) else None

        return tuple(
            self._cluster.list(
                path("v1", "pods"), pick, fields=f"spec.nodeName={self._options.node}"
            )
        )

    # plan

    def plan(self, state: ReleaseState) -> Plan:
        """Decide."""
        self._plan = pure.plan(state, self._options)
        return self._plan

    def healthy(self, state: ReleaseState) -> str:
        """Why there is nothing to be done."""
        if state.ledger is None:
            return (
                f"{self._options.node} is not fenced: it has no ledger, neither as an "
                f"annotation nor in namespace {self._options.namespace}"
            )
        if self._options.state == "held":
            return f"the release of {self._options.node} is under way, and it is Ready"
        return (
            f"none of the NetworkFences that were set to Fenced for {self._options.node} is "
            "Fenced any more"
        )

    def facts(self) -> dict[str, Any]:
        """The ledger as it is now, or would be."""
        if self._state is None:
            return {}
        ledger = self._state.ledger
        verbs = {action.verb for action in self._plan.actions}
        if ledger is None or "remove_fence_ledger" in verbs:
            return {"fence": {}}
        return {
            "fence": (
                pure.releasing(self._options, ledger) if "mark_release" in verbs else ledger
            ).to_dict()
        }

    # apply

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would do it."""
        subject: Subject = action.subject
        if action.verb == "mark_release":
            self._ledgers.write(subject.ledger._replace(phase="releasing"), dry_run=True)
        elif action.verb == "remove_fence_ledger":
            self._ledgers.remove(subject.ledger, dry_run=True)
        elif action.verb == "unfence_network" and subject.fence:
            network_fence.rehearse(self._cluster, subject.fence, network_fence.UNFENCED)
        elif action.verb in self._changes:
            self._patch(self._changes[action.verb], dry_run=True)

    def apply(self, action: Action) -> None:
        """Carry out one action, under the Lease and as long as the node is Ready."""
        # Each action is checked against the Node right before it, since a node may be lost again at
        # any time.
        subject: Subject = action.subject
        require_time(self._cluster.deadline, LEAST_SECONDS)
        if action.verb == "mark_release":
            self._mark(subject.ledger)
            return
        if action.verb == "unfence_network":
            if subject.fence is None:
                raise AssertionError("an action without its NetworkFence")
            network_fence.unfence(
                self._cluster, subject.fence, self._timeout, self._sleep, self._held
            )
            return
        with self._held():
            if action.verb == "remove_fence_ledger":
                self._ledgers.remove(subject.ledger)
                self._lease.release()
            else:
                self._patch(self._changes[action.verb])

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """For a change: under the Lease, and as long as the node is Ready, and that one still."""
        with self._lease.held():
            self._refuse_other(self._cluster.get(self._node_path))
            yield

    def _refuse_other(self, item: Object | None) -> Object:
        """The node, which has to be Ready, and the one that was judged."""
        found = _refuse_unready(item, self._options.node)
        # One that was made again may be another machine. Then nothing shows that the fenced one has
        # no client any more, and the taints and the cordon are those of others.
        host, uid = self._state.host if self._state else None, found["metadata"]["uid"]
        if host is None or host.node.uid != uid:
            raise NotStarted(
                f"{self._options.node} is another one now (uid {uid}) than the one that was "
                "judged, so the release stops here; run again",
                code="identity_changed",
            )
        return found

    def undo(self, _action: Action) -> Action | None:
        """Nothing is taken back: what is left of a fence is finished by another run."""
        # What was taken back is gone; the ledger has the phase, so the next run goes on.
        return None

    def _mark(self, planned: Ledger) -> None:
        """Take the Lease, and see under it that all is still as it was planned for."""
        # The phase is written before anything is removed, so that a run which is killed leaves a
        # ledger that nothing takes for a fence any more.
        try:
            busy = self._lease.holder()
            self._lease.take(self._run.lease_timeout)
        except StorageOpsError as error:
            raise NotStarted(str(error), error.code) from error
        try:
            # The wait for the Lease may have taken it.
            require_time(self._cluster.deadline, LEAST_SECONDS)
            with self._lease.held():
                marked = self._marked(planned, busy)
                if marked:
                    self._ledgers.write(marked)
        except Exception:
            # If it cannot be given back, it runs out.
            with contextlib.suppress(StorageOpsError):
                self._lease.release()
            raise

    def _marked(self, planned: Ledger, busy: str) -> Ledger | None:
        """The ledger as it is to be written, by what is there now; None where it is written.

        ``busy``: which other run had the Lease, as a sentence.
        """
        state = self._read()
        refusals = pure.plan(state, self._options).refusals
        if refusals:
            said = "; ".join(finding.reason for finding in refusals)
            raise NotStarted(said, refusals[0].code)
        if state.ledger is None:
            raise NotStarted(
                f"another run has released {planned.node} meanwhile: its ledger is gone",
                code="fence_missing",
            )
        if busy and state.ledger.phase == "intended":
            # That run may have fenced since Ceph was read.
            raise NotStarted(f"{busy}, which has ended meanwhile: run again", code="lease_held")
        if (state.ledger.entries, state.ledger.network_fences) != (
            planned.entries,
            planned.network_fences,
        ):
            raise NotStarted(
                f"the fence of {planned.node} is another one now; run again",
                code="identity_changed",
            )
        begun = pure.releasing(self._options, state.ledger)
        # Both copies, also where a run was killed between the two; but not where one was killed
        # that had begun to take them away.
        noted = read_note(self._cluster.get(self._node_path)).text
        return begun if begun != state.ledger or noted else None

    def _untaint(self, item: dict[str, Any]) -> dict[str, Any] | None:
        # Only key, value and effect that are ours: an operator may have set another taint with the
        # same key.
        taints = item["spec"].get("taints") or []
        left = [
            taint
            for taint in taints
            if (taint["key"], taint.get("value", ""), taint["effect"]) != TAINT
        ]
        return {"taints": left} if left != taints else None

    def _uncordon(self, item: dict[str, Any]) -> dict[str, Any] | None:
        # null removes a field in a merge patch (RFC 7396).
        return {"unschedulable": None} if item["spec"].get("unschedulable") else None

    @property
    def _changes(self) -> Mapping[str, SpecChange]:
        """What changes the spec of the node."""
        return {"untaint_node": self._untaint, "uncordon_node": self._uncordon}

    def _patch(self, change: SpecChange, dry_run: bool = False) -> None:
        """Change the node, provided that it is still the one that was judged, and Ready."""

        def patch(item: Object | None) -> Object | None:
            spec = change(self._refuse_other(item))
            return {"spec": spec} if spec else None

        change_object(self._cluster, self._node_path, patch, dry_run)

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves the step, by a new look at the cluster."""
        item = self._cluster.get(self._node_path)
        host = pick_host_record(item) if item else None
        ledger = self._ledgers.read(self._options.node, item)
        prove = {
            "releasing": self._prove_begun,
            "unfenced": self._prove_unfenced,
            "released": self._prove_released,
        }[self._options.state]
        return prove(finding, host, ledger)

    def _prove_begun(
        self, finding: Finding, _host: HostRecord | None, ledger: Ledger | None
    ) -> list[str]:
        # Both copies must say releasing: a run that finds only one of them would go on from another
        # phase.
        if ledger is None or ledger.phase != "releasing":
            raise ActionFailed(
                f"the ledger of {self._options.node} does not say that "
                "its release has begun; run again",
                code="repair_unproven",
            )
        return [finding.reason, f"the ledger says {ledger.phase}"]

    def _prove_unfenced(
        self, finding: Finding, _host: HostRecord | None, _ledger: Ledger | None
    ) -> list[str]:
        # The controller's own message is the proof, as for a fencing; that Ceph has the entries no
        # more is asked before the ledger goes.
        names = {action.target for action in finding.repair}
        fences = [
            fence for fence in network_fence.list_fences(self._cluster) or () if fence.name in names
        ]
        wrong = [
            f"{fence.name} is {fence.state} ({fence.status})"
            for fence in fences
            if fence.state != network_fence.UNFENCED
        ]
        if wrong or len(fences) < len(names):
            raise ActionFailed(
                f"not every NetworkFence is Unfenced: {'; '.join(wrong) or 'one is gone'}",
                code="repair_unproven",
            )
        return [
            f"NetworkFence {fence.name} is {fence.state}, and its controller says: {fence.message}"
            for fence in fences
        ]

    def _prove_released(
        self, finding: Finding, host: HostRecord | None, ledger: Ledger | None
    ) -> list[str]:
        # What was read after the change, not what the API server answered to it.
        node, verbs = self._options.node, {action.verb for action in finding.repair}
        doubts = [f"its ledger is there again ({ledger.phase})"] if ledger else []
        if host and "untaint_node" in verbs and pure.has_taint(host):
            doubts.append("it has its taint again")
        if host and "uncordon_node" in verbs and host.node.unschedulable:
            doubts.append("it is cordoned again")
        if doubts:
            raise ActionFailed(
                f"the release of {node} is not proven: {'; '.join(doubts)}", code="repair_unproven"
            )
        proof = [f"{node} has no ledger any more"]
        proof += (
            [f"{node} does not carry the taint {OUT_OF_SERVICE}"]
            if host and not pure.has_taint(host)
            else []
        )
        proof += (
            [
                f"{node} is "
                f"{'still cordoned, and not by us' if host.node.unschedulable else 'not cordoned'}"
            ]
            if host
            else []
        )
        return proof + self._proof_of_fence()

    def _proof_of_fence(self) -> list[str]:
        """By what it is known that the fence is gone."""
        # Ceph alone can show that nothing of the fence is left; a NetworkFence's message speaks for
        # its controller.
        ceph, ledger = self._options.ceph, self._state.ledger if self._state else None
        if ceph is None:
            return (
                [
                    "unverified in Ceph: only the message of the "
                    "NetworkFence says that it is unfenced"
                ]
                if ledger and pure.ours(ledger)
                else []
            )
        automatic = [entry.entry for entry in ceph.blocklist if entry.kind == "client"]
        proof = [f"Ceph's blocklist, read at {ceph.read_at}, has none of our entries"]
        proof += (
            pure.still_blocking(ceph, ledger, self._state.host) if ledger and self._state else []
        )
        return proof + (
            [f"entries that are not ours were left alone, among them {', '.join(automatic[:3])}"]
            if automatic
            else []
        )


def make_release(cluster: Cluster, params: Mapping[str, Any], check_mode: bool) -> Release:
    """The runbook with its options, checked."""
    check_numbers(params, {"release_timeout": (1, _MAX_TIMEOUT)})
    run = run_options(params, check_mode)
    options = ReleaseOptions(
        run.node,
        params["state"],
        pure.read_clients(params["clients"]) if params["clients"] else None,
        parse_reading(params["ceph"]) if params["ceph"] else None,
        check_mode,
        run.namespace,
        params["old_machine_confirmed_off"],
        frozenset(
            entry["entry"]
            for entry in (params["ceph"] or {}).get("blocklist", ())
            if entry.get("stand_in")
        ),
        params["power_on"],
        parse_power(params["power"]),
    )
    return Release(cluster, run, options, params["release_timeout"])


def _refuse_unready(item: dict[str, Any] | None, node: str) -> dict[str, Any]:
    """The node, which has to be Ready."""
    # A node that is lost again may still have its old clients, and then only the fence keeps them
    # off.
    host = pick_host_record(item) if item else None
    if item is None or host is None or host.node.ready != "True":
        what = f"Ready={host.node.ready}" if host else "gone"
        raise NotStarted(
            f"{node} is not Ready any more ({what}), so the release stops here; run again once "
            "it is back",
            code="node_not_ready",
        )
    return item
