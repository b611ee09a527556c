# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""One Unfenced NetworkFence for each node, made while all is well, so that a lost node is fenced by a patch.

The controller calls UnFence for every Unfenced NetworkFence when it is created, so none may be made where something is fenced.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Callable, Generic, NamedTuple, TypeVar

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import (
    Action,
    ActionFailed,
    Finding,
    NotStarted,
    Plan,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import network_fence
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.ceph_reading import Reading, parse_reading
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Cluster, Conflict, path
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.fence_ledger import ANNOTATION, LABELS, Ledgers
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.network_fence import (
    ADDRESSES_FROM,
    FENCED,
    FENCES,
    GROUP,
    UNFENCED,
    Network,
    NetworkFence,
    networks,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import Node, pick_node

RUNBOOK = "storage_ops.runbooks.prepare_network_fences"
SECRET_KEY = "csiaddons.openshift.io/networkfence-secret-"
_NODES = path("v1", "nodes")
_CAPABLE = "network_fence.NETWORK_FENCE"
# How the addresses of a node are known, as ADDRESSES_FROM has it, in words.
_SOURCES = {
    "option": "the option addresses",
    "driver": "its CSIAddonsNode",
    "node": "its InternalIP; Ceph may see another one, so node_fence takes it for the node's only where Ceph, or the user, says so too",
}
# Names of cluster-scoped objects may be no longer.
_NAME = 253

T = TypeVar("T")


class Options(NamedTuple):
    """What the user wants. ``addresses``: addresses and ranges by node, for nodes whose own ones are not those that Ceph sees."""

    driver: str
    cluster_id: str
    secret_name: str
    secret_namespace: str
    class_name: str
    nodes: tuple[str, ...]
    name_prefix: str
    addresses: dict[str, tuple[str, ...]]
    ledger_namespace: str
    timeout: float
    max_repairs: int
    ceph: Reading | None


class Host(NamedTuple):
    """A node, its InternalIPs, and whether it has a ledger's annotation."""

    node: Node
    addresses: tuple[str, ...]
    noted: bool


class Endpoint(NamedTuple):
    """A CSIAddonsNode: of which driver, on which node, and the ranges that it reports for each NetworkFenceClass."""

    driver: str
    node: str
    state: str
    capabilities: tuple[str, ...]
    clients: dict[str, tuple[str, ...]]


class State(NamedTuple):
    """``driver`` and ``cluster_id``: those of the options, or of the class; ``fenced``: nodes of which a ledger is kept."""

    driver: str
    cluster_id: str
    hosts: tuple[Host, ...]
    fences: tuple[NetworkFence, ...]
    endpoints: tuple[Endpoint, ...]
    classes: dict[str, dict[str, Any]]
    fenced: frozenset[str]


class Subject(NamedTuple):
    """What an action carries: the node as it was, and the NetworkFence to be made for it."""

    host: Host
    body: dict[str, Any]


def make_options(params: Mapping[str, Any]) -> Options:
    """The module's options, checked. Raises StorageOpsError."""
    name, namespace = params["secret_name"], params["secret_namespace"]
    if params["network_fence_class"] and (params["driver"] or params["cluster_id"] or name or namespace):
        raise StorageOpsError(
            "network_fence_class names the driver, the clusterID and the secret, so leave driver, cluster_id and secret_* out"
        )
    if not params["network_fence_class"] and not (params["driver"] and params["cluster_id"] and name and namespace):
        raise StorageOpsError("give driver, cluster_id, secret_name and secret_namespace, or network_fence_class which has all of them")
    if not 1 <= params["timeout"] <= 3600:  # not a number is neither
        raise StorageOpsError(f"timeout is {params['timeout']:g}; give 1 to 3600 seconds")
    nodes = tuple(dict.fromkeys(text.strip() for text in params["nodes"]))
    if not all(nodes):
        raise StorageOpsError("nodes has an empty name; leave the option out for all nodes")
    addresses = {}
    for node, texts in params["addresses"].items():
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise StorageOpsError(f"addresses must give a list of addresses for {node}, not {texts!r}")
        addresses[node] = _ranges(tuple(texts), f"addresses of {node}")
    return Options(
        params["driver"],
        params["cluster_id"],
        name,
        namespace,
        params["network_fence_class"],
        nodes,
        params["name_prefix"],
        addresses,
        params["ledger_namespace"],
        params["timeout"],
        params["max_repairs"],
        parse_reading(params["ceph"]) if params["ceph"] else None,
    )


# plan


def plan(state: State, options: Options) -> Plan:
    """One finding for each node that has no NetworkFence as it should be."""
    wanted = {host.node.name: _wanted(state, options, host) for host in state.hosts}
    nodes: _Owners[str] = _Owners()
    fences: _Owners[NetworkFence] = _Owners()
    for name, cidrs in wanted.items():
        nodes.add(cidrs, name)
    for fence in state.fences:
        fences.add(fence.cidrs, fence)
    findings = []
    left = options.max_repairs
    for host in state.hosts:
        if options.nodes and host.node.name not in options.nodes:
            continue
        finding = _judge(state, options, host, wanted[host.node.name], nodes, fences)
        if finding and finding.repair:
            if left <= 0:
                finding.refuse(f"max_repairs is {options.max_repairs}: run again for the other nodes")
            left -= 1
        findings += [finding] if finding else []
    return Plan(findings)


def _judge(
    state: State, options: Options, host: Host, cidrs: tuple[str, ...], nodes: _Owners[str], fences: _Owners[NetworkFence]
) -> Finding | None:
    name = options.name_prefix + host.node.name
    ours = next((fence for fence in state.fences if fence.name == name), None)
    touching = [fence for fence in fences.touching(cidrs) if fence.name != name]
    as_wanted = [fence for fence in [ours, *touching] if fence and _fits(fence, state, options, cidrs)]
    if any(fence.settled for fence in as_wanted) and not any(fence.state == FENCED for fence in touching):
        return None
    source = _source(state, options, host)
    evidence: dict[str, Any] = {
        "cidrs": list(cidrs),
        "addresses_from": _SOURCES[source],
        "driver": state.driver,
        "clusterID": state.cluster_id,
        "network_fences": [f"{fence.name}: {fence.state}, {fence.status}" for fence in [ours, *touching] if fence],
        "blocklist": "read" if options.ceph else "not read, so whether something is fenced there is not known from Ceph itself",
    }
    summary = f"node {host.node.name} is not prepared to be fenced by a NetworkFence"
    body = _body(name, cidrs, source, options)
    reason = "so that it can be fenced at once when it is lost"
    finding = Finding("", "minor", "Node", host.node.name, host.node.name, summary, "repair", reason, RUNBOOK, evidence)
    finding.named = host.node.name in options.nodes
    finding.repair = [Action("create_networkfence", name, _command(body), Subject(host, body))]
    reasons = _against(state, options, host, cidrs, nodes, ours, touching)
    if reasons:
        finding.refuse(*reasons)
    return finding


def _against(
    state: State,
    options: Options,
    host: Host,
    cidrs: tuple[str, ...],
    nodes: _Owners[str],
    ours: NetworkFence | None,
    touching: list[NetworkFence],
) -> list[str]:
    """Why no NetworkFence is made for this node."""
    name = host.node.name
    reasons = []
    if not cidrs:
        reasons.append("it has no InternalIP, and no CSIAddonsNode reports an address: give its address by the option addresses")
    if host.node.ready != "True":
        reasons.append(
            f"its Ready is {host.node.ready}, and the controller unfences what it is given as Unfenced: make it when the node is well, "
            "or run fail_over_volumes if it is lost"
        )
    if host.noted or name in state.fenced:
        reasons.append("a ledger says that it is fenced, and a new Unfenced NetworkFence would let it write again: run release_fenced_node")
    for cidr in cidrs:
        others = [other for other in nodes.touching((cidr,)) if other != name]
        if others:
            reasons.append(f"{cidr} is an address of {', '.join(others[:5])} too, which it would fence as well: give the option addresses")
    for blocked in options.ceph.blocklist if options.ceph else ():
        if _overlap((_as_range(blocked.address),), cidrs):
            reasons.append(
                f"Ceph's blocklist has {blocked.entry} until {blocked.until}, which an unfencing may take away: find out whose it is"
            )
    if ours and not (ours.settled and _fits(ours, state, options, cidrs)):
        reasons.append(_misfit(ours, state, options, cidrs))
    for fence in touching:
        if fence.state == FENCED:
            reasons.append(
                f"NetworkFence {fence.name} fences {', '.join(fence.cidrs)}, and an unfencing could take that away: release it first"
            )
        elif (fence.driver, fence.cluster_id) == (state.driver, state.cluster_id):
            reasons.append(f"{_misfit(fence, state, options, cidrs)}; two for one address would undo each other's work")
    return reasons


def _misfit(fence: NetworkFence, state: State, options: Options, cidrs: tuple[str, ...]) -> str:
    """What keeps a NetworkFence that is there from being the node's."""
    there = f"NetworkFence {fence.name} is there already"
    if fence.deleted:
        return f"{there}, but it is being deleted: wait until it is gone"
    if (fence.driver, fence.cluster_id, fence.class_name) != (state.driver, state.cluster_id, options.class_name):
        which = f"class {fence.class_name}" if fence.class_name else f"driver {fence.driver}, clusterID {fence.cluster_id}"
        return f"{there}, for {which}: take another name_prefix, or the same settings"
    if fence.state == FENCED:
        return f"{there}, and it is Fenced: run release_fenced_node if the node is back"
    if not _same(fence.cidrs, cidrs):
        return (
            f"{there}, with {', '.join(fence.cidrs)} instead of {', '.join(cidrs)}: correct spec.cidrs, or give what it has by the option "
            "addresses, or delete it while it is Unfenced"
        )
    return f"{there}, but its status says {fence.status}: see that the CSI-Addons controller and the driver work, then run again"


def _fits(fence: NetworkFence, state: State, options: Options, cidrs: tuple[str, ...]) -> bool:
    """It is what would be made, but perhaps for its name."""
    settings = (fence.driver, fence.cluster_id, fence.class_name) == (state.driver, state.cluster_id, options.class_name)
    return settings and fence.state == UNFENCED and not fence.deleted and _same(fence.cidrs, cidrs)


def _wanted(state: State, options: Options, host: Host) -> tuple[str, ...]:
    name = host.node.name
    return options.addresses.get(name) or _reported(state, options, name) or _ranges(host.addresses, f"InternalIP of {name}")


def _source(state: State, options: Options, host: Host) -> str:
    if host.node.name in options.addresses:
        return "option"
    return "driver" if _reported(state, options, host.node.name) else "node"


def _reported(state: State, options: Options, node: str) -> tuple[str, ...]:
    """The ranges that the driver on that node reports for the class, or else for any class of the same driver and cluster."""
    found: list[str] = []
    for endpoint in state.endpoints:
        if (endpoint.driver, endpoint.node) == (state.driver, node):
            for class_name, cidrs in endpoint.clients.items():
                parameters = state.classes.get(class_name, {}).get("parameters") or {}
                if class_name == options.class_name or (not options.class_name and parameters.get("clusterID") == state.cluster_id):
                    found += cidrs
    return _ranges(tuple(found), f"CSIAddonsNode of {node}")


def _ranges(texts: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Addresses and ranges as CIDRs without host bits, each once."""
    try:
        return tuple(dict.fromkeys(_as_range(text) for text in texts))
    except ValueError as error:
        raise StorageOpsError(f"{where}: {error}") from error


def _as_range(text: str) -> str:
    if "/" in text:
        return str(ip_network(text.strip(), strict=False))
    # Of an IPv6 address, what stands behind % names an interface of the node's.
    return str(ip_network(ip_address(text.strip().partition("%")[0])))


def _same(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return set(networks(some)) == set(networks(others)) and len(networks(some)) == len(some)


def _overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(_meet(one, other) for one in networks(some) for other in networks(others))


class _Owners(Generic[T]):
    """Who has which range. Most are single addresses, of which a big cluster has thousands, so only the others are compared one by one."""

    def __init__(self) -> None:
        self._single: dict[Network, list[T]] = {}
        self._wide: list[tuple[Network, T]] = []

    def add(self, cidrs: tuple[str, ...], owner: T) -> None:
        for network in networks(cidrs):
            if network.num_addresses == 1:
                self._single.setdefault(network, []).append(owner)
            else:
                self._wide.append((network, owner))

    def touching(self, cidrs: tuple[str, ...]) -> list[T]:
        """Who has a range that overlaps one of these, each once."""
        found: list[T] = []
        for network in networks(cidrs):
            if network.num_addresses == 1:
                found += self._single.get(network, [])
            else:
                found += [owner for other, owners in self._single.items() if _meet(other, network) for owner in owners]
            found += [owner for other, owner in self._wide if _meet(other, network)]
        return list(dict.fromkeys(found))


def _meet(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _body(name: str, cidrs: tuple[str, ...], source: str, options: Options) -> dict[str, Any]:
    # Without fenceState it would be Fenced: that is the resource's default.
    spec: dict[str, Any] = {"cidrs": list(cidrs), "fenceState": UNFENCED}
    if options.class_name:
        spec["networkFenceClassName"] = options.class_name
    else:
        secret = {"name": options.secret_name, "namespace": options.secret_namespace}
        spec.update(driver=options.driver, secret=secret, parameters={"clusterID": options.cluster_id})
    meta = {"name": name, "labels": LABELS, "annotations": {ADDRESSES_FROM: source}}
    return {"apiVersion": GROUP, "kind": "NetworkFence", "metadata": meta, "spec": spec}


def _command(body: dict[str, Any]) -> list[str]:
    return ["POST", FENCES, f"name={body['metadata']['name']}", "spec.fenceState=Unfenced", f"spec.cidrs={','.join(body['spec']['cidrs'])}"]


# gather, apply, verify


def pick_host(item: dict[str, Any]) -> Host:
    """The record of a Node."""
    listed = (item.get("status") or {}).get("addresses") or []
    addresses = tuple(entry["address"] for entry in listed if entry.get("type") == "InternalIP")
    return Host(pick_node(item), addresses, ANNOTATION in (item["metadata"].get("annotations") or {}))


def pick_endpoint(item: dict[str, Any]) -> Endpoint:
    """The record of a CSIAddonsNode."""
    driver, status = item["spec"]["driver"], item.get("status") or {}
    clients: dict[str, tuple[str, ...]] = {}
    for report in status.get("networkFenceClientStatus") or []:
        # The field begins with a capital letter, unlike all others.
        cidrs = [cidr for client in report.get("ClientDetails") or [] for cidr in client.get("cidrs") or []]
        clients[report["networkFenceClassName"]] = tuple(cidrs)
    return Endpoint(driver["name"], driver.get("nodeID") or "", status.get("state") or "", tuple(status.get("capabilities") or ()), clients)


class FencePreparation:
    """The runbook prepare_network_fences on one cluster."""

    def __init__(self, cluster: Cluster, options: Options, sleep: Callable[[float], None] = time.sleep) -> None:
        self._cluster, self._options, self._sleep = cluster, options, sleep
        self._ledgers = Ledgers(cluster, options.ledger_namespace)

    def gather(self) -> State:
        """NetworkFences and ledgers before the nodes: what is fenced meanwhile is seen."""
        cluster, options = self._cluster, self._options
        fences = network_fence.list_fences(cluster)
        if fences is None:
            raise StorageOpsError(
                "this cluster has no NetworkFences: install CSI-Addons with its resource definitions, or fence with method ceph"
            )
        fenced = frozenset(ledger.node for ledger in self._ledgers.all())
        endpoints = tuple(cluster.list(path(GROUP, "csiaddonsnodes"), pick_endpoint))
        reports = options.class_name or any(endpoint.clients for endpoint in endpoints)
        classes = network_fence.read_classes(cluster) if reports else {}
        driver, cluster_id = options.driver, options.cluster_id
        if options.class_name:
            driver, cluster_id = _from_class(options.class_name, classes)
        problem = _unserved(driver, endpoints)
        if problem:
            raise StorageOpsError(problem)
        hosts = tuple(sorted(cluster.list(_NODES, pick_host)))
        unknown = sorted({*options.nodes, *options.addresses} - {host.node.name for host in hosts})
        if unknown:
            raise StorageOpsError(f"there is no node {', '.join(unknown)}: is it a typing error?")
        return State(driver, cluster_id, hosts, fences, endpoints, classes, fenced)

    def plan(self, state: State) -> Plan:
        """Decide."""
        return plan(state, self._options)

    def healthy(self, state: State) -> str:
        """What was looked at."""
        count = len(self._options.nodes or state.hosts)
        return f"{count} node{'s' * (count != 1)}, each with a NetworkFence of driver {state.driver} that is Unfenced and proven"

    def rehearse(self, action: Action) -> None:
        """Have the API server say whether it would take it."""
        self._create(action.subject.body, dry_run=True)

    def apply(self, action: Action) -> None:
        """Make it, after a fresh look at node and ledger, and wait until the controller has said that it is unfenced."""
        subject: Subject = action.subject
        self._recheck(subject)
        fence = network_fence.pick_fence(self._create(subject.body), {})
        network_fence.await_message(self._cluster, fence, self._options.timeout, self._sleep)

    def undo(self, action: Action) -> Action | None:
        """Nothing: an Unfenced NetworkFence does no harm, and its deletion is nobody's but the administrator's."""
        return None

    def verify(self, finding: Finding) -> list[str]:
        """It is there, Unfenced, and its message says so."""
        (action,) = finding.repair
        found = next((fence for fence in network_fence.list_fences(self._cluster) or () if fence.name == action.target), None)
        if found is None or not found.settled or found.state != UNFENCED:
            raise ActionFailed(f"NetworkFence {action.target} is not Unfenced and settled: {found.status if found else 'it is gone'}")
        unread = "; Ceph itself was not read, so that is unverified" if self._options.ceph is None else ""
        return [f"NetworkFence {found.name} is {found.state} and says {found.message!r}{unread}"]

    def _create(self, body: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        try:
            return self._cluster.create(FENCES, body, dry_run)
        except Conflict as error:
            raise NotStarted(f"NetworkFence {body['metadata']['name']} was made by somebody else meanwhile: {error}") from error

    def _recheck(self, subject: Subject) -> None:
        item = self._cluster.get(path("v1", "nodes", subject.host.node.name))
        now = pick_host(item) if item else None
        if now is None or now.node.uid != subject.host.node.uid:
            raise NotStarted("the node is gone, or another one has its name")
        if now.node.ready != "True" or now.noted or now.addresses != subject.host.addresses or self._ledgers.read(now.node.name, item):
            raise NotStarted("the node is no longer Ready, is being fenced, or has other addresses: run again")
        for fence in network_fence.list_fences(self._cluster) or ():
            if fence.state == FENCED and _overlap(fence.cidrs, tuple(subject.body["spec"]["cidrs"])):
                raise NotStarted(f"NetworkFence {fence.name} is Fenced now")


def _from_class(name: str, classes: Mapping[str, dict[str, Any]]) -> tuple[str, str]:
    """Driver and clusterID of a class."""
    if name not in classes:
        raise StorageOpsError(f"there is no NetworkFenceClass {name}; there are {', '.join(sorted(classes)) or 'none'}")
    parameters = classes[name].get("parameters") or {}
    missing = [key for key in ("clusterID", f"{SECRET_KEY}name", f"{SECRET_KEY}namespace") if not parameters.get(key)]
    if missing:
        raise StorageOpsError(f"NetworkFenceClass {name} lacks the parameters {', '.join(missing)}, without which its driver cannot fence")
    return classes[name].get("provisioner") or "", parameters["clusterID"]


def _unserved(driver: str, endpoints: tuple[Endpoint, ...]) -> str:
    """Why no controller would act on a NetworkFence of this driver; empty if one would. Old versions list no capabilities."""
    mine = [endpoint for endpoint in endpoints if endpoint.driver == driver]
    if not mine:
        drivers = sorted({endpoint.driver for endpoint in endpoints})
        return f"no CSIAddonsNode has driver {driver}, so nobody would act on its NetworkFences; there are {', '.join(drivers) or 'none'}"
    if all(endpoint.capabilities for endpoint in mine) and not any(_CAPABLE in endpoint.capabilities for endpoint in mine):
        return f"no CSIAddonsNode of driver {driver} has the capability {_CAPABLE}: enable CSI-Addons in the driver's provisioner"
    return ""
