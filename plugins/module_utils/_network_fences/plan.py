# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which NetworkFences a cluster needs, so that none has to be made when a node is lost.

Pure: no I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any, Generic, NamedTuple, TypeVar

from .._core.argspec import check_numbers, given_names
from .._core.codes import Reason
from .._core.engine import Action, Finding, Plan
from .._core.errors import BadOption
from .._core.guards import limit_repairs
from .._core.ip import Network, host_addresses, is_host, normal_network
from .._core.untrusted import few
from .._fences.ceph_reading import Blocked, Reading, parse_reading
from .._fences.ledger import ANNOTATION, Ledger
from .._fences.network_fence import (
    ADDRESSES_FROM,
    DRIVER,
    FENCED,
    FENCES,
    GROUP,
    INTERNAL,
    OPTION,
    UNFENCED,
    NetworkFence,
    mapped,
    networks,
)
from .._kube.client import path
from .._kube.objects import Node, pick_node
from .._kube.own import LABELS
from .reports import Endpoint

RUNBOOK = "storage_ops.runbooks.prepare_network_fences"
SECRET_KEY = "csiaddons.openshift.io/networkfence-secret-"
NODES = path("v1", "nodes")
# A capability of the CSI-Addons specification (identity/identity.proto,
# NetworkFence.NETWORK_FENCE), as the sidecar lists it in status.capabilities of a CSIAddonsNode.
CAPABLE = "network_fence.NETWORK_FENCE"
# How the addresses of a node are known, as ADDRESSES_FROM has it, as a sentence.
_UNPROVEN = "so node_fence takes it for the node's only where Ceph, or the user, says so too"
_SOURCES = {
    OPTION: "the option addresses",
    DRIVER: f"its CSIAddonsNode; the node itself reports that, {_UNPROVEN}",
    INTERNAL: f"its InternalIP; Ceph may see another one, {_UNPROVEN}",
}
_BLOCKLIST_UNREAD = "not read, so whether something is fenced there is not known from Ceph itself"
# The name of a NetworkFence is a DNS subdomain, at most so long (RFC 1123; Kubernetes
# documentation, "Object Names and IDs").
_NAME = 253
T = TypeVar("T")


class NetworkFenceOptions(NamedTuple):
    """What the user wants.

    ``addresses``: addresses and ranges by node, for nodes whose own ones are not those that Ceph
    sees.
    """

    driver: str
    cluster_id: str
    secret_name: str
    secret_namespace: str
    class_name: str
    nodes: tuple[str, ...]
    name_prefix: str
    addresses: dict[str, tuple[str, ...]]
    ledger_namespace: str
    fence_timeout: float
    max_repairs: int
    ceph: Reading | None


class PreparedNode(NamedTuple):
    """A node, its InternalIPs, and whether it has a ledger's annotation."""

    node: Node
    addresses: tuple[str, ...]
    noted: bool


class NetworkFenceState(NamedTuple):
    """``driver`` and ``cluster_id``: those of the options, or of the class; ``endpoints``: of that
    driver, by node; ``fenced``: by node, the addresses and ranges in its ledger.
    """

    driver: str
    cluster_id: str
    hosts: tuple[PreparedNode, ...]
    fences: tuple[NetworkFence, ...]
    endpoints: Mapping[str, tuple[Endpoint, ...]]
    classes: dict[str, dict[str, Any]]
    fenced: Mapping[str, tuple[str, ...]]


class Subject(NamedTuple):
    """What an action carries: the node and what is reported of it as they were, and the
    NetworkFence to be made for it.
    """

    host: PreparedNode
    body: dict[str, Any]
    endpoints: tuple[Endpoint, ...] = ()


def make_options(params: Mapping[str, Any]) -> NetworkFenceOptions:
    """The module's options, checked. Raises StorageOpsError."""
    # Settings of one kind only, so that it is never a guess which clusterID an object is for.
    _check_settings(params)
    check_numbers(params, {"fence_timeout": (1, 3600)})
    nodes = given_names(params, "nodes", otherwise="leave the option out for all nodes")["nodes"]
    return NetworkFenceOptions(
        params["driver"],
        params["cluster_id"],
        params["secret_name"],
        params["secret_namespace"],
        params["network_fence_class"],
        nodes,
        params["name_prefix"],
        {node: _listed(node, texts) for node, texts in params["addresses"].items()},
        params["ledger_namespace"],
        params["fence_timeout"],
        params["max_repairs"],
        parse_reading(params["ceph"]) if params["ceph"] else None,
    )


def _check_settings(params: Mapping[str, Any]) -> None:
    """The class has all settings, or the options have: never both."""
    # Driver, secret and clusterID of a class win over those of the object (processFencingRequest of
    # internal/controller/csiaddons/networkfence_controller.go).
    given = [
        bool(params[name]) for name in ("driver", "cluster_id", "secret_name", "secret_namespace")
    ]
    if params["network_fence_class"] and any(given):
        raise BadOption(
            "network_fence_class names the driver, the clusterID and the secret, so leave driver, "
            "cluster_id and secret_* out"
        )
    if not params["network_fence_class"] and not all(given):
        raise BadOption(
            "give driver, cluster_id, secret_name and secret_namespace, or network_fence_class "
            "which has all of them"
        )


def _listed(node: str, texts: Any) -> tuple[str, ...]:
    """The ranges that the option addresses gives for a node."""
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadOption(f"addresses must give a list of addresses for {node}, not {texts!r}")
    return _ranges(tuple(texts), f"addresses of {node}")


class _Claims(NamedTuple):
    """Which node has which address, by the user's word (``given``), by that or else by the node's
    own (``claimed``), and by both (``everything``).
    """

    given: _Owners[str]
    claimed: _Owners[str]
    everything: _Owners[str]


def plan(state: NetworkFenceState, options: NetworkFenceOptions) -> Plan:
    """One finding for each node that has no NetworkFence as it should be."""
    # An Unfenced NetworkFence is prepared while a node is well, since its controller unfences what
    # it is given: made for a node that is fenced, it would let that write again.
    options = options._replace(addresses={**_kept(state, options), **options.addresses})
    wanted = {host.node.name: _wanted(state, options, host) for host in state.hosts}
    claims = _claims(state, options, wanted)
    fences: _Owners[NetworkFence] = _Owners()
    for fence in state.fences:
        fences.add(fence.cidrs, fence)
    # Root on a node chooses how many addresses it has, so each is looked up.
    entries: _Owners[Blocked] = _Owners()
    for blocked in options.ceph.blocklist if options.ceph else ():
        entries.add((blocked.address,), blocked)
    findings = []
    for host in state.hosts:
        if options.nodes and host.node.name not in options.nodes:
            continue
        cidrs = wanted[host.node.name]
        known = claims.claimed
        if host.node.name in options.addresses:
            exact = all(network.num_addresses == 1 for network in networks(cidrs))
            known = claims.given if exact else claims.everything
        finding = _judge(state, options, host, cidrs, known, fences, entries)
        findings += [finding] if finding else []
    limit_repairs([one for one in findings if one.repair], options.max_repairs)
    return Plan(findings)


def _claims(
    state: NetworkFenceState, options: NetworkFenceOptions, wanted: dict[str, tuple[str, ...]]
) -> _Claims:
    # What a node says of itself, by its kubelet or its driver, must not be claimed by another node.
    # Against an address that the user gives, a node's word counts for nothing: it could claim those
    # of all nodes, and none would be prepared. So the user's word about a node takes the place of
    # all that this node says: one word about a node that lies prepares all others. A range is
    # compared with what every node says, since it may hold others by mistake.
    claims = _Claims(_Owners(), _Owners(), _Owners())
    # A NetworkFence is another node's by its name, even where that node says something else by now.
    made = {
        fence.name: fence.cidrs for fence in state.fences if _has_settings(fence, state, options)
    }
    for host in state.hosts:
        name, cidrs = host.node.name, wanted[host.node.name]
        for owners in claims:
            owners.add(made.get(options.name_prefix + name, ()), name)
        if name in options.addresses:
            claims.given.add(cidrs, name)
            claims.claimed.add(cidrs, name)
        else:
            claims.claimed.add((*cidrs, *_internal(host)), name)
        claims.everything.add((*cidrs, *_internal(host)), name)
    return claims


def _judge(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    host: PreparedNode,
    cidrs: tuple[str, ...],
    nodes: _Owners[str],
    fences: _Owners[NetworkFence],
    entries: _Owners[Blocked],
) -> Finding | None:
    # One that is Fenced for an address of this node may be the fence of another node, whatever its
    # name.
    name = options.name_prefix + host.node.name
    ours = next((fence for fence in state.fences if fence.name == name), None)
    touching = [fence for fence in fences.touching(cidrs) if fence.name != name]
    shared = _claimed_too(state, options, host, cidrs, nodes)
    shared += _doubts(state, options, host, cidrs)
    if not shared and _is_prepared(state, options, cidrs, ours, touching):
        return None
    source = _source(state, options, host)
    body = _body(name, cidrs, source, options)
    finding = Finding(
        control="",
        severity="minor",
        kind="Node",
        name=host.node.name,
        node=host.node.name,
        summary=f"node {host.node.name} is not prepared to be fenced by a NetworkFence",
        verdict="repair",
        reason="so that it can be fenced at once when it is lost",
        runbook=RUNBOOK,
        evidence={
            **_evidence(state, options, cidrs, source, [ours, *touching]),
            **_unused(state, options, host),
        },
    )
    finding.named = host.node.name in options.nodes
    finding.repair = [
        Action("create_networkfence", name, _command(body), _subject(state, host, body))
    ]
    reasons = [
        *_against(state, options, host, cidrs, shared),
        *map(_entry_left, entries.touching(cidrs)),
    ]
    if ours and not (ours.settled and _fits(ours, state, options, cidrs)):
        reasons.append(Reason("network_fence_unfit", _misfit(ours, state, options, cidrs)))
    reasons += _opposed(state, options, cidrs, touching)
    if reasons:
        finding.refuse(*reasons)
    return finding


def _subject(state: NetworkFenceState, host: PreparedNode, body: dict[str, Any]) -> Subject:
    source = body["metadata"]["annotations"][ADDRESSES_FROM]
    endpoints = state.endpoints.get(host.node.name, ()) if source == DRIVER else ()
    return Subject(host, body, endpoints)


def _is_prepared(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    cidrs: tuple[str, ...],
    ours: NetworkFence | None,
    touching: list[NetworkFence],
) -> bool:
    """A NetworkFence as it would be made is there, whatever its name, and none fences the node."""
    # settled: a controller that has never answered may be missing, or unable to fence.
    as_wanted = [
        fence for fence in [ours, *touching] if fence and _fits(fence, state, options, cidrs)
    ]
    return any(fence.settled for fence in as_wanted) and not any(
        fence.state == FENCED for fence in touching
    )


def _evidence(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    cidrs: tuple[str, ...],
    source: str,
    fences: list[NetworkFence | None],
) -> dict[str, Any]:
    # Without a reading of Ceph an operator's entry for the address would stay unseen, and the first
    # unfencing would remove it.
    return {
        "cidrs": list(cidrs),
        "addresses_from": _SOURCES[source],
        "driver": state.driver,
        "clusterID": state.cluster_id,
        "network_fences": [
            f"{fence.name}: {fence.state}, {fence.status}" for fence in fences if fence
        ],
        "blocklist": "read" if options.ceph else _BLOCKLIST_UNREAD,
    }


def _against(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    host: PreparedNode,
    cidrs: tuple[str, ...],
    shared: list[Reason],
) -> list[Reason]:
    """Why no NetworkFence is made for this node, by the node itself and by whether Ceph was read.

    ``shared``: why its addresses may be others'.
    """
    # Every reason is told at once, so that one correction is enough.
    name = host.node.name
    reasons = []
    if not cidrs:
        reasons.append(
            Reason(
                "address_unknown",
                "it has no InternalIP, and no CSIAddonsNode reports an address: give its address "
                "by the option addresses",
            )
        )
    # The only time to make it: of a lost node an Unfenced object would let it write.
    if host.node.ready != "True":
        reasons.append(
            Reason(
                "node_not_ready",
                f"its Ready is {host.node.ready}, and the controller unfences what it is given as "
                "Unfenced: make it when the node is well, or run fail_over_volumes if it is lost",
            )
        )
    if host.noted or name in state.fenced:
        reasons.append(
            Reason(
                "fence_unfinished",
                "a ledger says that it is fenced, and a new Unfenced NetworkFence would let it "
                "write again: run release_fenced_node",
            )
        )
    reasons += [*shared, *fenced_for_others(state.fenced, name, cidrs)]
    # A node may name the address of a host outside this cluster, which is fenced on the same Ceph.
    # No Node, ledger or NetworkFence knows that host, so Ceph's blocklist alone can tell.
    if cidrs and options.ceph is None and name not in options.addresses:
        reasons.append(
            Reason(
                "ceph_not_read",
                f"only the node itself says that it has {few(cidrs)}, and an unfencing takes away "
                "whatever entry Ceph's blocklist has for it: have Ceph's blocklist read "
                "(option ceph, network_fence_ceph_host of the playbook), or give the option "
                "addresses",
            )
        )
    return reasons


def _entry_left(blocked: Blocked) -> Reason:
    return Reason(
        "ceph_entry_left",
        f"Ceph's blocklist has {blocked.entry} until {blocked.until}, which an unfencing may take "
        "away: find out whose it is",
    )


def _doubts(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    host: PreparedNode,
    cidrs: tuple[str, ...],
) -> list[Reason]:
    """Why what the node says of itself may be about another host."""
    name = host.node.name
    if name in options.addresses:
        return []
    reasons = []
    told = _reports(state, options, name)
    # A driver that is being restarted looks like this. Its node's InternalIP may not be what Ceph
    # sees, so it does not stand in. Beside a proven one the others hold up nothing; alone, what is
    # seen to be another node's word may be the node's own report, of which any node can change the
    # endpoint.
    unproven = [
        f"{endpoint.name} ({endpoint.doubt})"
        for endpoint, ranges in _told(state, options, name)
        if ranges and endpoint.doubt
    ]
    if unproven and not told:
        reasons.append(
            Reason(
                "address_unknown",
                f"CSIAddonsNode {few(unproven)} reports the address of node {name}, and nothing "
                "shows that the driver on that node does: see that it runs and is connected, and "
                "run again, or delete it if it is another node's work, or give the option "
                "addresses",
            )
        )
    if len({frozenset(ranges) for ranges in told}) > 1:
        reasons.append(
            Reason(
                "address_unknown",
                f"several CSIAddonsNodes of driver {state.driver} report different addresses for "
                f"node {name}: find out from which address it reaches Ceph, and "
                "give the option addresses",
            )
        )
    # A node reaches Ceph from one address, or from one of each family: what it says beyond may be
    # a stranger's, which an unfencing would let write again.
    found = networks(cidrs)
    if len(found) > len({network.version for network in found}):
        reasons.append(
            Reason(
                "address_unknown",
                f"the node says of itself that it has {few(cidrs)}, and its word counts for one "
                "address of each family: find out from which address it reaches Ceph, and give "
                "the option addresses",
            )
        )
    return reasons


def _claimed_too(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    host: PreparedNode,
    cidrs: tuple[str, ...],
    nodes: _Owners[str],
) -> list[Reason]:
    """Which of these ranges other nodes have too."""
    # A fence is for one node alone, and an address that two have would stop both. Which of them
    # lies is not to be seen: root on a node chooses what its kubelet and its driver say.
    name = host.node.name
    reasons = []
    for cidr in cidrs:
        others = [other for other in nodes.touching((cidr,)) if other != name]
        if others:
            who = few(others)
            advice = (
                f"correct the option addresses, or the NetworkFence of {who}"
                if name in options.addresses
                else f"what a node says of itself proves nothing, so neither {name} nor {who} is "
                "believed: find out whose it is, and give the option addresses for the one that "
                "is wrong, or for both; it outweighs what a node says"
            )
            reasons.append(
                Reason(
                    "fence_shared",
                    f"{cidr} is an address of {who} too, which it would fence as well: {advice}",
                )
            )
    return reasons


def _opposed(
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    cidrs: tuple[str, ...],
    touching: list[NetworkFence],
) -> list[Reason]:
    """Why no NetworkFence is made beside others that have an address in common with it."""
    # Two objects for one address are reconciled in any order at each start of the controller, so
    # the last one wins.
    reasons = []
    for fence in touching:
        if fence.state == FENCED:
            reasons.append(
                Reason(
                    "network_fence_opposed",
                    f"NetworkFence {fence.name} fences {few(fence.cidrs)}, and an unfencing "
                    "could take that away: release it first",
                )
            )
        elif (fence.driver, fence.cluster_id) == (state.driver, state.cluster_id):
            reasons.append(
                Reason(
                    "network_fence_unfit",
                    f"{_misfit(fence, state, options, cidrs)}; two for one address would undo each "
                    "other's work",
                )
            )
    return reasons


def fenced_for_others(
    fenced: Mapping[str, tuple[str, ...]], name: str, cidrs: tuple[str, ...]
) -> list[Reason]:
    """What of these ranges is in the fence of another node, whatever this node's kubelet says."""
    # The ledger counts, not the Node: a kubelet that claims the address of a fenced node must not
    # have that one unfenced.
    return [
        Reason(
            "fence_shared",
            f"{cidr} is fenced for node {node}, says its ledger, and an unfencing would let that "
            "write again: release it first, or give the option addresses",
        )
        for node, theirs in fenced.items()
        if node != name
        for cidr in cidrs
        if overlap((cidr,), theirs)
    ]


def fenced_by(ledger: Ledger) -> tuple[str, ...]:
    """The addresses and ranges in a ledger."""
    # All spellings of a fence: what was found, what was blocked, and what objects cover.
    return (
        *ledger.addresses,
        *(entry.entry for entry in ledger.entries),
        *(cidr for fence in ledger.network_fences for cidr in fence.cidrs),
    )


def _misfit(
    fence: NetworkFence,
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    cidrs: tuple[str, ...],
) -> str:
    """What keeps a NetworkFence that is there from being the node's."""
    # spec.cidrs may be changed later, but driver, class and parameters are immutable (XValidation
    # rules of api/csiaddons/v1alpha1/networkfence_types.go).
    there = f"NetworkFence {fence.name} is there already"
    if fence.deleted:
        return f"{there}, but it is being deleted: wait until it is gone"
    if not _has_settings(fence, state, options):
        which = (
            f"class {fence.class_name}"
            if fence.class_name
            else f"driver {fence.driver}, clusterID {fence.cluster_id}"
        )
        return f"{there}, for {which}: take another name_prefix, or the same settings"
    if fence.state == FENCED:
        return f"{there}, and it is Fenced: run release_fenced_node if the node is back"
    if not _same(fence.cidrs, cidrs):
        return (
            f"{there}, with {few(fence.cidrs)} instead of {few(cidrs)}: correct "
            "spec.cidrs, or give what it has by the option addresses, "
            "or delete it while it is Unfenced"
        )
    return (
        f"{there}, but its status says {fence.status}: see that the CSI-Addons controller and "
        "the driver work, then run again"
    )


def _fits(
    fence: NetworkFence,
    state: NetworkFenceState,
    options: NetworkFenceOptions,
    cidrs: tuple[str, ...],
) -> bool:
    """It is what would be made, but perhaps for its name."""
    # A NetworkFence by another name does the same, so it is not made twice.
    settings = _has_settings(fence, state, options)
    return settings and fence.state == UNFENCED and not fence.deleted and _same(fence.cidrs, cidrs)


def _has_settings(
    fence: NetworkFence, state: NetworkFenceState, options: NetworkFenceOptions
) -> bool:
    """It is of the same driver, cluster and class."""
    return (fence.driver, fence.cluster_id, fence.class_name) == (
        state.driver,
        state.cluster_id,
        options.class_name,
    )


def _wanted(
    state: NetworkFenceState, options: NetworkFenceOptions, host: PreparedNode
) -> tuple[str, ...]:
    # What the user says, else what the driver reports, else InternalIP: Ceph sees the address of
    # the interface that routes to it, which only the first two know.
    name = host.node.name
    return options.addresses.get(name) or _reported(state, options, name) or _internal(host)


def _kept(state: NetworkFenceState, options: NetworkFenceOptions) -> dict[str, tuple[str, ...]]:
    """The ranges that the user gave for nodes when their NetworkFences were made."""
    # A later run without the option must not take the node's word against the user's.
    kept = {
        fence.name: tuple(str(network) for network in networks(fence.cidrs))
        for fence in state.fences
        if fence.by_user and networks(fence.cidrs) and _has_settings(fence, state, options)
    }
    names = {host.node.name: options.name_prefix + host.node.name for host in state.hosts}
    return {node: kept[name] for node, name in names.items() if name in kept}


def _internal(host: PreparedNode) -> tuple[str, ...]:
    # All of them: a node with two families has an InternalIP of each (Kubernetes documentation,
    # "IPv4/IPv6 dual-stack").
    return _ranges(host.addresses, f"InternalIP of {host.node.name}")


def _source(state: NetworkFenceState, options: NetworkFenceOptions, host: PreparedNode) -> str:
    # It is noted on the object (ADDRESSES_FROM), since a later fence trusts the user alone.
    if host.node.name in options.addresses:
        return OPTION
    return DRIVER if _reported(state, options, host.node.name) else INTERNAL


def _unused(
    state: NetworkFenceState, options: NetworkFenceOptions, host: PreparedNode
) -> dict[str, Any]:
    """The ranges that the driver reports and that are not used, for the evidence."""
    reports = _reports(state, options, host.node.name)
    wide = [cidr for cidr in _union(reports) if not _is_single(cidr)]
    unused = [f"{cidr} (a range, reported by the driver)" for cidr in wide]
    unused += [
        f"{few(ranges)} (reported by CSIAddonsNode {endpoint.name}: {endpoint.doubt})"
        for endpoint, ranges in _told(state, options, host.node.name)
        if ranges and endpoint.doubt
    ]
    return {"not_used": unused} if unused else {}


def _reported(state: NetworkFenceState, options: NetworkFenceOptions, node: str) -> tuple[str, ...]:
    """The single addresses among what the driver on that node reports, as ranges."""
    # ceph-csi reports the one address of its client (GetFenceClients of
    # internal/csi-addons/rbd/network_fence.go), and 0.0.0.0/0 would fence all nodes.
    return tuple(cidr for cidr in _union(_reports(state, options, node)) if _is_single(cidr))


def _union(reports: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cidr for ranges in reports for cidr in ranges))


def _is_single(cidr: str) -> bool:
    return ip_network(cidr).num_addresses == 1


def _reports(
    state: NetworkFenceState, options: NetworkFenceOptions, node: str
) -> list[tuple[str, ...]]:
    """The ranges that the drivers on a node report: those of each CSIAddonsNode that has any."""
    return [
        ranges for endpoint, ranges in _told(state, options, node) if ranges and not endpoint.doubt
    ]


def _told(
    state: NetworkFenceState, options: NetworkFenceOptions, node: str
) -> list[tuple[Endpoint, tuple[str, ...]]]:
    """The ranges that each CSIAddonsNode reports as that node's for the class, or else for any
    class of the same cluster.
    """
    # status.networkFenceClientStatus: the controller asks the driver (GetFenceClients) for each
    # NetworkFenceClass (internal/controller/csiaddons/csiaddonsnode_controller.go).
    reports = []
    for endpoint in state.endpoints.get(node, ()):
        found: list[str] = []
        for class_name, cidrs in endpoint.clients.items():
            parameters = state.classes.get(class_name, {}).get("parameters") or {}
            if class_name == options.class_name or (
                not options.class_name and parameters.get("clusterID") == state.cluster_id
            ):
                # One node's nonsense is no reason to prepare no node.
                found += [text for text in cidrs if _is_range(text)]
        # The sidecar of a provisioner that runs there has a CSIAddonsNode of the same node, and
        # reports nothing.
        reports.append((endpoint, _ranges(tuple(found), f"CSIAddonsNode of {node}")))
    return reports


def _ranges(texts: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Addresses and ranges as CIDRs without host bits, each once."""
    # An address becomes a range of one (/32, /128): CSI-Addons takes ranges alone (cidrs).
    try:
        return tuple(dict.fromkeys(str(normal_network(text)) for text in texts))
    except ValueError as error:
        raise BadOption(f"{where}: {error}") from error


def _is_range(text: str) -> bool:
    try:
        found = normal_network(text)
    except ValueError:
        return False
    return found.num_addresses > 1 or is_host(str(found.network_address))


def _same(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    # A text that is no range is left out by networks(), so equal sets do not yet mean equal lists.
    if len(networks(some)) != len(some) or mapped(some):
        return False
    return set(networks(some)) == set(networks(others))


def overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    # A range that contains another one, or is contained in it, fences addresses of both.
    return any(_meet(one, other) for one in networks(some) for other in networks(others))


class _Owners(Generic[T]):
    """Who has which range.

    Most are single addresses, of which a big cluster has thousands, so only the others are compared
    one by one.
    """

    def __init__(self) -> None:
        self._single: dict[Network, list[T]] = {}
        self._wide: list[tuple[Network, T]] = []

    def add(self, cidrs: tuple[str, ...], owner: T) -> None:
        # One address may be in several NetworkFences, so each has a list of owners.
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
                found += [
                    owner
                    for other, owners in self._single.items()
                    if _meet(other, network)
                    for owner in owners
                ]
            found += [owner for other, owner in self._wide if _meet(other, network)]
        return list(dict.fromkeys(found))


def _meet(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _body(
    name: str, cidrs: tuple[str, ...], source: str, options: NetworkFenceOptions
) -> dict[str, Any]:
    # A secret in the parameters would be readable with the object, so only its name is there.
    # Without fenceState it would be Fenced: that is the resource's default.
    spec: dict[str, Any] = {"cidrs": list(cidrs), "fenceState": UNFENCED}
    if options.class_name:
        spec["networkFenceClassName"] = options.class_name
    else:
        secret = {"name": options.secret_name, "namespace": options.secret_namespace}
        spec.update(
            driver=options.driver, secret=secret, parameters={"clusterID": options.cluster_id}
        )
    meta = {"name": name, "labels": LABELS, "annotations": {ADDRESSES_FROM: source}}
    return {"apiVersion": GROUP, "kind": "NetworkFence", "metadata": meta, "spec": spec}


def _command(body: dict[str, Any]) -> list[str]:
    # As curl or kubectl would need it: what an operator can repeat by hand.
    return [
        "POST",
        FENCES,
        f"name={body['metadata']['name']}",
        "spec.fenceState=Unfenced",
        f"spec.cidrs={','.join(body['spec']['cidrs'])}",
    ]


def pick_host(item: dict[str, Any]) -> PreparedNode:
    """The record of a Node."""
    # status.addresses is a list of free text to the API server.
    listed = (item.get("status") or {}).get("addresses") or []
    # Anything may stand there, and one kubelet's nonsense is no reason to prepare no node. A range
    # is none of a node's addresses: 0.0.0.0/0 would claim those of all others.
    addresses, _unusable = host_addresses(
        entry["address"] for entry in listed if entry.get("type") == "InternalIP"
    )
    return PreparedNode(
        pick_node(item), addresses, ANNOTATION in (item["metadata"].get("annotations") or {})
    )
