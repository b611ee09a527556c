# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of a cluster as hosts of an inventory: what is kept of each, and where it is reached.

Root on a node writes most of this about itself. So every text is one to show, and never a template;
an address is one that leads to another host; and no group has a name that only a node chooses.
Only ``read`` asks the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from itertools import islice
from typing import Any, NamedTuple

from .._core.errors import StorageOpsError
from .._core.ip import normal_address
from .._core.untrusted import clean, few, is_name, shown
from .._fences.state import pick_host_record
from .._kube.client import Cluster, path
from .._kube.objects import leniently

NODES, CSI_NODES = path("v1", "nodes"), path("storage.k8s.io/v1", "csinodes")
# Changes with the form of what read() returns, which is cached.
FORM = 1
# Of each kind that a node has many of (labels, drivers), so many are kept, and of a text so many
# characters: the key of a label has up to 317 (k8s.io/apimachinery/pkg/util/validation,
# IsQualifiedName).
MOST, MOST_CHARACTERS = 256, 400
# What Ansible takes for the controller (LOCALHOST of ansible/constants.py), and groups that exist
# everywhere. "::1" is no name of a node.
_TAKEN = {"localhost", "127.0.0.1", "all", "ungrouped"}
# Kubernetes' "Well-Known Labels, Annotations and Taints": the second is that of former releases.
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
# Both, as "kubectl get nodes" has it (findNodeRoles of k8s.io/kubernetes/pkg/printers/
# internalversion/printers.go).
_ROLE, _OLD_ROLE = "node-role.kubernetes.io/", "kubernetes.io/role"


class Host(NamedTuple):
    """A host. ``known``: its variables; ``address``: empty where Ansible is to use the name."""

    name: str
    address: str
    known: dict[str, Any]

    @property
    def groups(self) -> list[str]:
        """Each begins with a word and an underscore, so none is the name of a host, or "all"."""
        named = {
            "role": self.known["roles"],
            "zone": [self.known["zone"]],
            "driver": self.known["drivers"],
            "os_image": [self.known["os_image"]],
        }
        return [f"{kind}_{value}" for kind, values in named.items() for value in values if value]


class Built(NamedTuple):
    """The hosts, and what the operator has to know about them."""

    hosts: list[Host]
    warnings: list[str]


class Registered(NamedTuple):
    """A CSINode: the drivers on a node. ``owners``: the uid of that node; ``cut``: it has more."""

    name: str
    owners: tuple[str, ...]
    drivers: list[str]
    cut: bool


def read(cluster: Cluster) -> dict[str, Any]:
    """All nodes and their drivers, as plain data that can be cached.

    Raises KubeError: a part of a cluster would look like the whole of it.
    """
    unread: dict[str, str] = {}
    hosts = cluster.list(NODES, leniently(pick_host, unread), cached=True)
    driverless: dict[str, str] = {}
    registered: dict[str, Registered] = {
        found.name: found
        for found in cluster.list(CSI_NODES, leniently(pick_registered, driverless), cached=True)
    }
    for host in hosts:
        found = registered.get(_name(host))
        # One of a former node of this name says nothing about this one.
        if found and (not found.owners or host["known"]["uid"] in found.owners):
            host["known"]["drivers"] = found.drivers
            host["cut"] = host["cut"] or found.cut
    return {"hosts": hosts, "unread": unread, "driverless": driverless}


def pick_host(item: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a node. Its drivers are not known yet."""
    record = pick_host_record(item)
    meta, status = item["metadata"], item.get("status") or {}
    labels: dict[str, str] = meta.get("labels") or {}
    info: dict[str, str] = status.get("nodeInfo") or {}
    known = {
        "name": record.node.name,
        "uid": record.node.uid,
        "boot_id": record.boot_id,
        "labels": dict(islice(sorted(labels.items()), MOST)),
        "roles": _texts(_roles(labels)),
        "zone": next(filter(None, map(labels.get, _ZONES)), ""),
        "drivers": [],
        "os_image": info.get("osImage", ""),
        "kubelet_version": info.get("kubeletVersion", ""),
        "ready": record.node.ready == "True",
        "unschedulable": record.node.unschedulable,
        "taints": [
            {"key": key, "value": value, "effect": effect}
            for key, value, effect in record.taints[:MOST]
        ],
        "created": meta.get("creationTimestamp", ""),
    }
    addresses = [[entry["type"], entry["address"]] for entry in status.get("addresses") or []]
    return {
        "known": clean(known, MOST_CHARACTERS),
        "addresses": addresses[:MOST],
        "cut": any(len(many) > MOST for many in (labels, record.taints, addresses)),
    }


def build(found: Mapping[str, Any], types: Sequence[str]) -> Built:
    """The hosts of what was read. ``types``: of the addresses that count, in order.

    Raises StorageOpsError where none is left: an empty inventory would look like success.
    """
    # The memory of old API servers gives its objects in another order each time.
    hosts = sorted(found["hosts"], key=_name)
    kept = {_name(host): host for host in hosts if _may_be_host(_name(host))}
    if not kept:
        raise StorageOpsError(
            f"the API server listed {len(hosts) + len(found['unread'])} nodes, and none can be a "
            "host. Is it the cluster that you mean? 'kubectl get nodes' shows its nodes",
            code="not_found",
        )
    first = {name: _first(_of_types(host, types)) for name, host in kept.items()}
    shared = _shared(first)
    made = [
        Host(name, "" if address in shared else address, kept[name]["known"])
        for name, address in first.items()
    ]
    warnings = [
        *_say(
            "nodes are left out, since their names cannot be names of hosts",
            [name for name in map(_name, hosts) if name not in kept],
        ),
        *_about_what_was_read(found, kept),
        *_about_addresses(kept, first, types),
        *_say(
            "several nodes claim the same address, so ansible_host is set for none of them, and "
            "Ansible connects to them by name. Correct the node that is wrong, or set ansible_host "
            "by compose",
            [f"{address} ({few(names)})" for address, names in shared.items()],
        ),
    ]
    return Built(made, warnings)


def _shared(first: Mapping[str, str]) -> dict[str, list[str]]:
    """The addresses that several nodes claim, and these nodes."""
    claims: dict[str, list[str]] = {}
    for name, address in first.items():
        claims.setdefault(address, []).append(name)
    return {address: names for address, names in claims.items() if address and len(names) > 1}


def _about_what_was_read(found: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    return [
        *_say("nodes that cannot be read are left out", _places(found["unread"])),
        *_say(
            "nodes of these CSINodes, which cannot be read, are hosts without drivers",
            _places(found["driverless"]),
        ),
        *_say(
            f"of the labels, taints, drivers and addresses of these nodes, only {MOST} are taken",
            [name for name, host in kept.items() if host["cut"]],
        ),
    ]


def _about_addresses(
    kept: Mapping[str, Any], first: Mapping[str, str], types: Sequence[str]
) -> list[str]:
    return [
        *_say(
            "nodes have an address that is none, or leads to no other host; it is left out",
            [name for name, host in kept.items() if not all(map(_usable, _of_types(host, types)))],
        ),
        *_say(
            f"nodes have no {' and no '.join(types)}, so ansible_host is not set, and Ansible "
            "connects to them by name",
            [name for name, address in first.items() if types and not address],
        ),
    ]


def _say(what: str, names: Sequence[str]) -> list[str]:
    """A warning, if it is about any node."""
    return [shown(f"{what}: {few(names)}")] if names else []


def _places(unread: Mapping[str, str]) -> list[str]:
    return [f"{place} ({why})" for place, why in unread.items()]


def pick_registered(item: dict[str, Any]) -> Registered:
    """The record of a CSINode."""
    meta, spec = item["metadata"], item.get("spec") or {}
    # The kubelet makes its Node the owner (CreateCSINode of
    # pkg/volume/csi/nodeinfomanager/nodeinfomanager.go). The annotation with the migrated in-tree
    # plugins is left out: what a kubelet leaves to drivers need not be registered there.
    owners, drivers = meta.get("ownerReferences") or [], spec.get("drivers") or []
    return Registered(
        meta["name"],
        tuple(owner["uid"] for owner in owners if owner.get("kind") == "Node"),
        _texts(entry["name"] for entry in drivers),
        len(drivers) > MOST,
    )


def _roles(labels: Mapping[str, str]) -> set[str]:
    named = {key[len(_ROLE) :] for key in labels if key.startswith(_ROLE)}
    return {*named, labels.get(_OLD_ROLE, "")} - {""}


def _name(host: Mapping[str, Any]) -> str:
    return str(host["known"]["name"])


def _may_be_host(name: str) -> bool:
    return is_name(name) and name not in _TAKEN


def _texts(texts: Iterable[str]) -> list[str]:
    return [shown(text, MOST_CHARACTERS) for text in islice(sorted(texts), MOST)]


def _of_types(host: Mapping[str, Any], types: Sequence[str]) -> list[str]:
    """The addresses of these types, in the order of the types."""
    return [text for kind in types for known, text in host["addresses"] if known == kind]


def _first(addresses: Iterable[str]) -> str:
    """The first that can be used; empty without one."""
    return next(filter(None, map(_usable, addresses)), "")


def _usable(text: str) -> str:
    """The address of another host, in its one spelling; empty for anything else."""
    try:
        address = ip_address(normal_address(text))
    except ValueError:
        return ""
    # These lead back to the controller, to no single host, or to whatever is next to the controller
    # (RFC 6890; RFC 4291, sections 2.5 and 2.7).
    elsewhere = not (
        address.is_loopback
        or address.is_unspecified
        or address.is_multicast
        or address.is_link_local
    )
    return str(address) if elsewhere else ""
