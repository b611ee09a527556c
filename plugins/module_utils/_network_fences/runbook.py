# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One Unfenced NetworkFence for each node, made while all is well, so that a lost node is fenced by
a patch.

The controller calls UnFence for every Unfenced NetworkFence when it is created, so none may be made
where something is fenced.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from secrets import token_hex
from typing import Any, Callable

from .._core.engine import Action, ActionFailed, Finding, NotStarted, Plan, require_time
from .._core.errors import BadOption, StorageOpsError
from .._fences import network_fence
from .._fences.lease import RunLease
from .._fences.ledger import Ledgers
from .._fences.network_fence import FENCED, FENCES, GROUP, UNFENCED
from .._fences.proof import stale
from .._kube.changing import LEAST_SECONDS
from .._kube.client import Cluster, Conflict, path
from .plan import (
    CAPABLE,
    NODES,
    SECRET_KEY,
    NetworkFenceOptions,
    NetworkFenceState,
    Subject,
    fenced_by,
    fenced_for_others,
    overlap,
    pick_host,
    plan,
)
from .reports import Endpoint, judged, pick_endpoint, pick_sidecar

# So long (seconds) the spec of a CSIAddonsNode must stay as it is before its report is used: the
# controller asks as soon as that changes (csiaddonsnode_controller.go), so the report is then the
# answer of the pod that its endpoint names.
_UNCHANGED = 15.0
# So long (seconds) the Lease of a node lasts in which its NetworkFence is made.
_LEASE_SECONDS = 180.0


class FencePreparation:
    """The runbook prepare_network_fences on one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        options: NetworkFenceOptions,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._options, self._sleep = cluster, options, sleep
        self._ledgers = Ledgers(cluster, options.ledger_namespace)
        self._run = f"network-fences-{token_hex(8)}"
        # When the CSIAddonsNodes were read.
        self._looked = time.monotonic()

    def gather(self) -> NetworkFenceState:
        """NetworkFences and ledgers before the nodes: what is fenced meanwhile is seen."""
        # Ledgers are read after the NetworkFences: a fence that is begun meanwhile is noted before
        # it is set.
        cluster, options = self._cluster, self._options
        fences = network_fence.list_fences(cluster)
        # What was blocked since is not in it, and would be unfenced.
        for reason in stale(options.ceph, cluster.now(), "") if options.ceph else ():
            raise StorageOpsError(reason, reason.code)
        if fences is None:
            raise StorageOpsError(
                "this cluster has no NetworkFences: install CSI-Addons with its resource "
                "definitions, or fence with method ceph",
                code="fence_method_unfit",
            )
        fenced = self._fenced()
        endpoints = self._endpoints()
        self._looked = time.monotonic()
        reports = options.class_name or any(endpoint.clients for endpoint in endpoints)
        classes = network_fence.read_classes(cluster) if reports else {}
        driver, cluster_id = options.driver, options.cluster_id
        if options.class_name:
            driver, cluster_id = _from_class(options.class_name, classes)
        problem = _unserved(driver, endpoints)
        if problem:
            raise StorageOpsError(problem, code="network_fence_unfit")
        hosts = tuple(sorted(cluster.list(NODES, pick_host)))
        unknown = sorted({*options.nodes, *options.addresses} - {host.node.name for host in hosts})
        if unknown:
            raise StorageOpsError(
                f"there is no node {', '.join(unknown)}: is it misspelt?", code="not_found"
            )
        reported = self._by_node(driver, endpoints)
        return NetworkFenceState(driver, cluster_id, hosts, fences, reported, classes, fenced)

    def plan(self, state: NetworkFenceState) -> Plan:
        """Decide."""
        return plan(state, self._options)

    def healthy(self, state: NetworkFenceState) -> str:
        """What was looked at."""
        count = len(self._options.nodes or state.hosts)
        return (
            f"{count} node{'s' * (count != 1)}, each with a NetworkFence of driver "
            f"{state.driver} that is Unfenced and proven"
        )

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would take it."""
        # Admission may refuse the object, as for a name that is taken; a dry run shows that.
        self._create(action.subject.body, dry_run=True)

    def apply(self, action: Action) -> None:
        """Make it, after a fresh look at node and ledger, and wait until the controller has said
        that it is unfenced.
        """
        # The message of the first unfencing shows that controller, driver and secret work, long
        # before a fence is needed.
        subject: Subject = action.subject
        require_time(self._cluster.deadline, LEAST_SECONDS)
        self._recheck_report(subject)
        with self._held(subject.host.node.name):
            self._recheck(subject)
            fence = network_fence.pick_fence(self._create(subject.body), {})
        network_fence.await_message(self._cluster, fence, self._options.fence_timeout, self._sleep)

    def undo(self, action: Action) -> Action | None:
        """Nothing: an Unfenced NetworkFence does no harm, and only the administrator deletes
        it.
        """
        return None

    def half_made(self, finding: Finding) -> list[str]:
        """Nothing: whatever became of the NetworkFence, it is Unfenced and for this node alone."""
        # So a node whose addresses the driver cannot unfence keeps no other from being prepared.
        # The next run finds what is there, and refuses this node until its controller has proven
        # it.
        return []

    def verify(self, finding: Finding) -> list[str]:
        """It is there, Unfenced, and its message says so."""
        # The object as it is now, by its uid: one that was recreated meanwhile has another
        # controller's history.
        (action,) = finding.repair
        found = next(
            (
                fence
                for fence in network_fence.list_fences(self._cluster) or ()
                if fence.name == action.target
            ),
            None,
        )
        if found is None or not found.settled or found.state != UNFENCED:
            raise ActionFailed(
                f"NetworkFence {action.target} is not Unfenced and settled: "
                f"{found.status if found else 'it is gone'}",
                code="network_fence_unfit",
            )
        unread = (
            "; Ceph itself was not read, so that is unverified"
            if self._options.ceph is None
            else ""
        )
        return [f"NetworkFence {found.name} is {found.state} and says {found.message!r}{unread}"]

    def _endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(self._cluster.list(path(GROUP, "csiaddonsnodes"), pick_endpoint))

    def _by_node(
        self, driver: str, endpoints: Iterable[Endpoint]
    ) -> dict[str, tuple[Endpoint, ...]]:
        """Those of a driver that report something, by node, with whose word that is."""
        mine = [found for found in endpoints if found.driver == driver and found.clients]
        # A driver has one namespace, and each of its nodes a pod there.
        sidecars = {
            (namespace, name): sidecar
            for namespace in sorted({found.namespace for found in mine})
            for name, sidecar in self._cluster.list(
                path("v1", "pods", namespace=namespace), pick_sidecar
            )
        }
        by_node: dict[str, tuple[Endpoint, ...]] = {}
        for found in mine:
            told = by_node.get(found.node, ())
            by_node[found.node] = (*told, judged(found, sidecars))
        return by_node

    def _fenced(self) -> dict[str, tuple[str, ...]]:
        # Those of another namespace have their note on the Node (PreparedNode.noted).
        found: dict[str, tuple[str, ...]] = {}
        for ledger in self._ledgers.all():
            found[ledger.node] = (*found.get(ledger.node, ()), *fenced_by(ledger))
        return found

    def _create(self, body: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        # No update of an object that is there: it may be the one that fences the node.
        try:
            return self._cluster.create(FENCES, body, dry_run)
        except Conflict as error:
            raise NotStarted(
                f"NetworkFence {body['metadata']['name']} was made "
                f"by another client meanwhile: {error}"
            ) from error

    @contextlib.contextmanager
    def _held(self, node: str) -> Iterator[None]:
        """Under the Lease by which a run fences the node."""
        # Else one may begin while ours is on its way, which would take its entries away.
        lease = RunLease(
            self._cluster,
            self._options.ledger_namespace,
            node,
            self._run,
            _LEASE_SECONDS,
            self._sleep,
        )
        busy = lease.holder()
        if busy:
            raise NotStarted(f"{busy}. Run again once that run has ended", code="lease_held")
        try:
            lease.take(0.0)
        except StorageOpsError as error:
            raise NotStarted(str(error), error.code) from error
        try:
            with lease.held():
                yield
        finally:
            # If it cannot be given back, it runs out.
            with contextlib.suppress(StorageOpsError):
                lease.release()

    def _recheck(self, subject: Subject) -> None:
        # Between plan and creation the node may be lost and fenced by another run, and the new
        # object would unfence it.
        item = self._cluster.get(path("v1", "nodes", subject.host.node.name))
        now = pick_host(item) if item else None
        if now is None or now.node.uid != subject.host.node.uid:
            raise NotStarted(
                "the node is gone, or another one has its name", code="identity_changed"
            )
        if (
            now.node.ready != "True"
            or now.noted
            or now.addresses != subject.host.addresses
            or self._ledgers.read(now.node.name, item)
        ):
            raise NotStarted(
                "the node is no longer Ready, is being fenced, or has other addresses: run again",
                code="node_not_ready",
            )
        cidrs = tuple(subject.body["spec"]["cidrs"])
        theirs = fenced_for_others(self._fenced(), now.node.name, cidrs)
        if theirs:
            raise NotStarted(theirs[0], code=theirs[0].code)
        for fence in network_fence.list_fences(self._cluster) or ():
            if fence.state == FENCED and overlap(fence.cidrs, cidrs):
                raise NotStarted(
                    f"NetworkFence {fence.name} is Fenced now", code="network_fence_opposed"
                )

    def _recheck_report(self, subject: Subject) -> None:
        """What its driver reports is the answer of its own pod, and the same as before."""
        # Any node may have had its own pod asked, and have named this one's after that.
        if not subject.endpoints:
            return
        self._sleep(max(0.0, self._looked + _UNCHANGED - time.monotonic()))
        now_told = self._by_node(subject.endpoints[0].driver, self._endpoints())
        if now_told.get(subject.host.node.name) != subject.endpoints:
            raise NotStarted("its driver reports something else now: run again")


def _from_class(name: str, classes: Mapping[str, dict[str, Any]]) -> tuple[str, str]:
    """Driver and clusterID of a class."""
    # The keys are those of ceph-csi's secrets in a class (prefixedNetworkFenceSecretNameKey of
    # internal/controller/csiaddons/networkfence_controller.go).
    if name not in classes:
        raise StorageOpsError(
            f"there is no NetworkFenceClass {name}; there are "
            f"{', '.join(sorted(classes)) or 'none'}",
            code="not_found",
        )
    parameters = classes[name].get("parameters") or {}
    missing = [
        key
        for key in ("clusterID", f"{SECRET_KEY}name", f"{SECRET_KEY}namespace")
        if not parameters.get(key)
    ]
    if missing:
        raise BadOption(
            f"NetworkFenceClass {name} lacks the parameters {', '.join(missing)}, without which "
            "its driver cannot fence"
        )
    return classes[name].get("provisioner") or "", parameters["clusterID"]


def _unserved(driver: str, endpoints: tuple[Endpoint, ...]) -> str:
    """Why no controller would act on a NetworkFence of this driver; empty if one would.

    Old versions list no capabilities.
    """
    # The controller calls the leader among a driver's CSI-Addons sidecars, which must have the
    # capability (getNetworkFenceClient of
    # internal/controller/csiaddons/networkfence_controller.go).
    mine = [endpoint for endpoint in endpoints if endpoint.driver == driver]
    if not mine:
        drivers = sorted({endpoint.driver for endpoint in endpoints})
        return (
            f"no CSIAddonsNode has driver {driver}, so nothing would act on its NetworkFences; "
            f"there are {', '.join(drivers) or 'none'}"
        )
    if all(endpoint.capabilities for endpoint in mine) and not any(
        CAPABLE in endpoint.capabilities for endpoint in mine
    ):
        return (
            f"no CSIAddonsNode of driver {driver} has the capability {CAPABLE}: enable "
            "CSI-Addons in the driver's provisioner"
        )
    return ""
