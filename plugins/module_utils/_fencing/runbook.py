# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fences a lost node: reads the cluster, carries out what the plan decides, and proves it.

Ceph's part is another module's.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from .._core.argspec import ArgumentSpec, check_numbers
from .._core.codes import Reason
from .._core.engine import Action, Finding, NotStarted, Plan, require_time
from .._core.errors import BadOption, StorageOpsError
from .._core.ip import normal_address, normal_network
from .._fences import network_fence
from .._fences.ceph_reading import parse_reading
from .._fences.lease import RunLease
from .._fences.ledger import Ledger, Ledgers, RunOptions
from .._fences.power import SPEC as POWER_SPEC
from .._fences.power import parse_power
from .._fences.proof import LEAST_EXPIRY
from .._fences.record import read_records
from .._fences.state import NodeState, gather_node, pick_host_record
from .._kube.changing import LEAST_SECONDS
from .._kube.client import Cluster, Conflict, NotFound, path
from . import plan as pure
from .lost import is_of_clients, not_lost
from .options import Decision, FenceOptions, Subject

# What undoes an intent.
_TAKEN_BACK = ("remove_fence_ledger", "uncordon_node")

SCOPE = ArgumentSpec(
    {
        "state": {
            "type": "str",
            "choices": ["intended", "held", "fenced"],
            "required": True,
        },
        "method": {
            "type": "str",
            "choices": ["auto", "network_fence", "ceph", "power", "external", "none"],
            "default": "auto",
        },
        "ceph": {"type": "dict"},
        "grace_seconds": {"type": "float", "default": 120.0},
        "fence_addresses": {"type": "list", "elements": "str", "default": []},
        "protected_addresses": {"type": "list", "elements": "str", "default": []},
        "other_addresses": {"type": "list", "elements": "str", "default": []},
        "node_confirmed_off": {"type": "bool", "default": False},
        # A year: longer than any repair. Before its end the fence is released, or its entries are
        # renewed.
        "expiry_seconds": {"type": "float", "default": 31_536_000.0},
        "cluster_id": {"type": "str", "default": ""},
        "volumes": {"type": "list", "elements": "str"},
        "fence_timeout": {"type": "float", "default": 60.0},
        "proof": {"type": "str", "choices": ["message", "ceph"], "default": "message"},
        "accept_majority": {"type": "bool", "default": False},
        "accept_short_observation": {"type": "bool", "default": False},
        # A BMC that lies says on again within seconds, and a pod waits for all of them.
        "power_seconds": {"type": "float", "default": 5.0},
    }
).merge(POWER_SPEC)
# Of these, what the proof of a fence by Ceph goes by, for another module.
PROOF: dict[str, Any] = {
    **{
        name: spec
        for name, spec in SCOPE.options.items()
        if name not in ("state", "proof", *POWER_SPEC.options)
    },
    "ceph": {"type": "dict", "required": True},
}


def fence_options(params: Mapping[str, Any], run: RunOptions, check_mode: bool) -> FenceOptions:
    """The options of node_fence, checked. Raises StorageOpsError for what does not fit."""
    # Options come from surveys and inventories, so each is checked before anything is read or
    # changed.
    # A node that comes back after its entry has expired writes again.
    least = {"grace_seconds": 0, "fence_timeout": 1, "expiry_seconds": LEAST_EXPIRY}
    check_numbers(params, {**least, "power_seconds": 1})
    return FenceOptions(
        node=run.node,
        run=run.run,
        # For the ledger: who reads it months later has to know where that run was.
        by=socket.gethostname(),
        namespace=run.namespace,
        method=params["method"],
        reading=parse_reading(params["ceph"]) if params["ceph"] else None,
        grace_seconds=params["grace_seconds"],
        accept_short_observation=params["accept_short_observation"],
        fence_addresses=tuple(
            dict.fromkeys(
                _parse("fence_addresses", normal_address, text)
                for text in params["fence_addresses"]
            )
        ),
        protected=tuple(
            # Host bits are dropped: 10.0.0.7/24 means its network.
            _parse("protected_addresses", normal_network, text)
            for text in params["protected_addresses"]
        ),
        node_confirmed_off=params["node_confirmed_off"],
        other_addresses=tuple(
            dict.fromkeys(
                _parse("other_addresses", normal_address, text)
                for text in params["other_addresses"]
            )
        ),
        expiry_seconds=params["expiry_seconds"],
        cluster_id=params["cluster_id"],
        volumes=None if params["volumes"] is None else frozenset(params["volumes"]),
        proof=params["proof"],
        check=check_mode,
        accept_majority=params["accept_majority"],
        power=parse_power(params["power"]),
        power_seconds=params["power_seconds"],
    )


def _parse(name: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise BadOption(f"{name} has {text!r}, which is not an IP address") from None


class Fence:
    """The runbook fail_over_volumes on one cluster, up to the fence. ``state``: "intended", "held"
    or "fenced".

    In a real run the Lease is taken before anything is read, and kept for the steps that follow.
    """

    def __init__(
        self,
        cluster: Cluster,
        run: RunOptions,
        options: FenceOptions,
        state: str,
        fence_timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._run, self._options = cluster, run, options
        decide = {"intended": pure.intend, "held": pure.hold, "fenced": pure.confirm}
        self._decide, self._holds = decide[state], state == "held"
        self._fence_timeout, self._sleep = fence_timeout, sleep
        self._ledgers = Ledgers(cluster, run.namespace)
        self._lease = RunLease(cluster, run.namespace, run.node, run.run, run.lease_seconds, sleep)
        self._busy = ""
        self._state: NodeState | None = None
        self._decision = Decision(Plan([]), None)

    def prepare(self) -> None:
        """Take the Lease. State "held" only renews it: a run that lost it must not begin again."""
        if not self._holds:
            self._lease.take(self._run.lease_timeout)

    def close(self, failed: bool) -> None:
        """Give the Lease back if the run ends here."""
        # Else it goes on to the next step of the same run, which renews it.
        if failed:
            self._lease.release()

    def facts(self) -> dict[str, Any]:
        """The ledger, as it is now, or in check mode as it would be, and what of it ceph_blocklist
        is to see to.
        """
        ledger = self._decision.ledger
        entries = (
            [entry.entry for entry in ledger.entries] if ledger and ledger.method == "ceph" else []
        )
        alone = bool(ledger and self._state and pure.is_alone(self._state, ledger))
        return {"fence": ledger.to_dict() if ledger else {}, "entries": entries, "alone": alone}

    # gather

    def gather(self) -> NodeState:
        """Read the node, what is attached to it, and what fences it."""
        if self._options.check:
            self._busy = self._lease.holder()
        state = gather_node(
            self._cluster,
            self._run.node,
            self._ledgers,
            # What was proven by another fence, this one has to be judged for.
            covers=lambda ledger: is_of_clients(ledger, self._options),
        )._replace(records=read_records(self._cluster, self._run.namespace))
        if self._options.check and self._run.fence:
            state = state._replace(ledger=self._run.fence)
        elif self._holds and not self._options.check:
            # After all that was read: what follows in Ceph, or at the BMC, has the whole of its
            # time. No other run had it meanwhile, since one that was lost is not taken again.
            self._lease.check()
        self._state = state
        return state

    # plan

    def plan(self, state: NodeState) -> Plan:
        """Decide."""
        self._decision = self._decide(state, self._options, self._busy)
        return self._decision.plan

    def healthy(self, state: NodeState) -> str:
        """Why there is nothing to be done."""
        ledger = self._decision.ledger
        if self._holds:
            return (
                "check mode, which takes no Lease"
                if self._options.check
                else f"node {self._run.node} is lost still, and run {self._run.run} has its Lease "
                f"for {self._run.lease_seconds:g} s more"
            )
        return (
            f"the fence of node {self._run.node} is {ledger.phase} already (method {ledger.method})"
            if ledger
            else "there is no fence"
        )

    # apply

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would do it."""
        subject: Subject = action.subject
        if subject.fence:
            network_fence.rehearse(self._cluster, subject.fence, network_fence.FENCED)
        elif action.verb == "cordon_node":
            self._set_unschedulable(subject.ledger, True, dry_run=True)
        else:
            self._ledgers.write(subject.ledger, dry_run=True)

    def apply(self, action: Action) -> None:
        """Carry out one action; none but one that takes back what was begun unless the node is lost
        still.
        """
        subject: Subject = action.subject
        if action.verb in _TAKEN_BACK:
            with self._lease.held():
                self._change(action)
            return
        # A fence that is begun is followed until its message says that it is there.
        require_time(self._cluster.deadline, LEAST_SECONDS)

        @contextlib.contextmanager
        def hold() -> Iterator[None]:
            # Before each change: a run that was stopped for long may have lost the node.
            with self._lease.held():
                self._recheck(subject.ledger)
                yield

        if subject.fence:
            network_fence.fence(
                self._cluster, subject.fence, self._fence_timeout, self._sleep, hold
            )
            return
        with hold():
            self._change(action)

    def _change(self, action: Action) -> None:
        subject: Subject = action.subject
        if action.verb == "remove_fence_ledger":
            self._ledgers.remove(subject.ledger)
        elif action.verb in ("cordon_node", "uncordon_node"):
            cordons = action.verb == "cordon_node"
            self._set_unschedulable(subject.ledger, True if cordons else None)
        else:
            self._decision = self._decision._replace(ledger=self._ledgers.write(subject.ledger))

    def undo(self, action: Action) -> Action | None:
        """A new intent that could not be written whole is taken back, since nothing
        came of it yet.
        """
        # A cordon that an operator has set, or that an earlier run has noted, is not taken back.
        subject: Subject = action.subject
        if (
            self._state is None
            or self._state.ledger
            or action.verb not in ("write_fence_ledger", "cordon_node")
        ):
            return None
        verb, what = (
            ("uncordon_node", "spec.unschedulable=null")
            if action.verb == "cordon_node"
            else ("remove_fence_ledger", "")
        )
        return Action(verb, action.target, [*action.command[:2], *filter(None, [what])], subject)

    def _recheck(self, ledger: Ledger) -> None:
        """The node must still be lost, right before anything is changed."""
        # The fence must hit the machine that was judged: the same Node object, in the same boot,
        # and still silent.
        item = self._cluster.get(ledger.path)
        host = pick_host_record(item) if item else None
        reasons: list[Reason] = []
        if self._state:
            # By the same rules as the plan, with the time and the node of this moment.
            reasons = not_lost(
                self._state._replace(now=self._cluster.now(), host=host, item=item), self._options
            )
        if host and (host.node.uid, host.boot_id) != (ledger.node_uid, ledger.boot_id):
            reasons.append(
                Reason(
                    "identity_changed",
                    f"node {ledger.node} is another one now, or was booted meanwhile (uid "
                    f"{host.node.uid}, bootID {host.boot_id})",
                )
            )
        if reasons:
            raise NotStarted("; ".join(reasons), reasons[0].code)

    def _set_unschedulable(self, ledger: Ledger, value: bool | None, dry_run: bool = False) -> None:
        # metadata.uid in a patch has the API server refuse it with 409 Conflict for another object
        # of the name.
        body = {"metadata": {"uid": ledger.node_uid}, "spec": {"unschedulable": value}}
        try:
            self._cluster.patch(ledger.path, body, dry_run=dry_run)
        except (Conflict, NotFound) as error:
            raise NotStarted(
                f"node {ledger.node} is another one now, or gone: {error}. Run again",
                code="identity_changed",
            ) from error

    # verify

    def verify(self, finding: Finding) -> list[str]:
        """What proves that everything is written as it was meant."""
        # What is read back is compared with what was written, so that another writer in between is
        # seen.
        item = self._cluster.get(path("v1", "nodes", self._run.node))
        ledger = self._ledgers.read(self._run.node, item)
        if ledger is None or ledger != self._decision.ledger:
            raise StorageOpsError(
                f"the ledger of node {self._run.node} is not as it was written: another client "
                "changes it. Run again",
                code="repair_unproven",
            )
        if item and not pick_host_record(item).node.unschedulable:
            raise StorageOpsError(
                f"node {self._run.node} was uncordoned meanwhile: find out who, and run again",
                code="repair_unproven",
            )
        proof = [
            f"the ledger of node {ledger.node} is kept, phase {ledger.phase}, revision "
            f"{ledger.revision}"
        ]
        proof += [
            f"NetworkFence {action.target} says that it has fenced"
            for action in finding.repair
            if action.verb == "fence_network"
        ]
        return proof + (["the node is cordoned"] if item else ["its Node object is gone"])
