# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts nodes become, whatever they say of themselves."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.untrusted import is_name
from ansible_collections.storage_ops.runbooks.plugins.module_utils._inventory.hosts import (
    CSI_NODES,
    MOST,
    MOST_CHARACTERS,
    NODES,
    Built,
    Host,
    build,
    read,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

# As a kubelet 1.36 of kind registered itself, without what is not read.
WORKER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "worker01",
        "uid": "4a6c7b9e-0d0e-4f6e-9a34-0d6ae4d0a7b1",
        "creationTimestamp": "2026-11-20T08:15:30Z",
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        "labels": {
            "kubernetes.io/hostname": "worker01",
            "kubernetes.io/os": "linux",
            "node-role.kubernetes.io/storage": "",
            "kubernetes.io/role": "worker",
            "topology.kubernetes.io/zone": "north",
            "failure-domain.beta.kubernetes.io/zone": "old",
        },
    },
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    },
    "status": {
        "addresses": [
            {"type": "InternalIP", "address": "172.18.0.3"},
            {"type": "InternalIP", "address": "fc00:f853:ccd:e793::3"},
            {"type": "ExternalIP", "address": "192.0.2.3"},
            {"type": "Hostname", "address": "worker01"},
        ],
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {
            "bootID": "5e0c3f38-35b5-4f9b-9c35-3ff3a9c2d7a4",
            "osImage": "Debian GNU/Linux 12 (bookworm)",
            "kubeletVersion": "v1.36.3",
        },
    },
}


def node(name: str, *addresses: tuple[str, Any], **labels: str) -> dict[str, Any]:
    """A node, as the API has it. Each address with its type."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"addresses": [{"type": kind, "address": text} for kind, text in addresses]},
    }


def csi_node(name: str, *drivers: str, **meta: Any) -> dict[str, Any]:
    """A CSINode, as the API has it."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, **meta},
        "spec": {"drivers": [{"name": driver, "nodeID": name} for driver in drivers]},
    }


def built(*objects: dict[str, Any], types: tuple[str, ...] = ("InternalIP",)) -> Built:
    """The inventory of a cluster, by way of a cache in a file."""
    return build(json.loads(json.dumps(read(FakeCluster(*objects)))), types)


def only(made: Built) -> Host:
    (host,) = made.hosts
    return host


def test_a_node_as_it_is() -> None:
    driver = csi_node(
        "worker01",
        "rbd.csi.ceph.com",
        "nfs.csi.k8s.io",
        ownerReferences=[{"kind": "Node", "name": "worker01", "uid": WORKER["metadata"]["uid"]}],
        annotations={"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/cinder"},
    )
    made = built(WORKER, driver)
    assert made.warnings == []
    assert only(made) == Host(
        "worker01",
        "172.18.0.3",
        {
            "name": "worker01",
            "uid": "4a6c7b9e-0d0e-4f6e-9a34-0d6ae4d0a7b1",
            "boot_id": "5e0c3f38-35b5-4f9b-9c35-3ff3a9c2d7a4",
            "labels": WORKER["metadata"]["labels"],
            "roles": ["storage", "worker"],
            "zone": "north",
            "drivers": ["nfs.csi.k8s.io", "rbd.csi.ceph.com"],
            "os_image": "Debian GNU/Linux 12 (bookworm)",
            "kubelet_version": "v1.36.3",
            "ready": True,
            "unschedulable": True,
            "taints": [
                {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
            ],
            "created": "2026-11-20T08:15:30Z",
        },
    )
    assert only(made).groups == [
        "role_storage",
        "role_worker",
        "zone_north",
        "driver_nfs.csi.k8s.io",
        "driver_rbd.csi.ceph.com",
        "os_image_Debian GNU/Linux 12 (bookworm)",
    ]


def test_a_node_that_says_nothing() -> None:
    made = built({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "u"}})
    host = only(made)
    assert (host.address, host.groups, host.known["ready"]) == ("", [], False)
    assert made.warnings == [
        "nodes have no InternalIP, so ansible_host is not set, and Ansible connects to them by "
        "name: a"
    ]


@pytest.mark.parametrize(
    ("types", "address"),
    [
        (("InternalIP",), "172.18.0.3"),
        (("ExternalIP", "InternalIP"), "192.0.2.3"),
        (("InternalIP", "ExternalIP"), "172.18.0.3"),
        ((), ""),
    ],
)
def test_types_of_addresses_in_order(types: tuple[str, ...], address: str) -> None:
    made = built(WORKER, types=types)
    assert only(made).address == address and made.warnings == []


@pytest.mark.parametrize(
    "wrong",
    [
        "worker01.example.com",
        "",
        "-oProxyCommand=id",
        "10.0.0.1 -v",
        "10.0.0.0/8",
        "fe80::1%{{ 7 * 7 }}",
        "fd00::1%eth0",
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "fe80::1",
        "224.0.0.1",
        "ff02::1",
    ],
)
def test_what_is_no_address_of_another_host(wrong: str) -> None:
    made = built(node("a", ("InternalIP", wrong), ("InternalIP", "10.0.0.1")))
    assert only(made).address == "10.0.0.1"
    assert [text for text in made.warnings if "leads to no other host" in text]
    made = built(node("a", ("InternalIP", wrong)))
    assert only(made).address == "" and len(made.warnings) == 2


def test_an_address_of_a_type_that_does_not_count() -> None:
    made = built(node("a", ("InternalIP", "10.0.0.1"), ("Hostname", "a"), ("ExternalIP", "none")))
    assert only(made).address == "10.0.0.1" and made.warnings == []


def test_an_address_that_several_claim_is_none_of_theirs() -> None:
    made = built(
        node("a", ("InternalIP", "10.0.0.1")),
        node("b", ("InternalIP", "::ffff:10.0.0.1")),
        node("c", ("InternalIP", "10.0.0.3"), ("ExternalIP", "10.0.0.1")),
    )
    assert {host.name: host.address for host in made.hosts} == {"a": "", "b": "", "c": "10.0.0.3"}
    assert len(made.warnings) == 1 and "10.0.0.1 (a, b)" in made.warnings[0]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "all", "ungrouped", "a_b", "A", "a b"])
def test_names_that_mean_something_else_to_ansible(name: str) -> None:
    made = built(node(name, ("InternalIP", "10.0.0.1")), node("b", ("InternalIP", "10.0.0.2")))
    assert only(made).name == "b"
    assert made.warnings == [
        f"nodes are left out, since their names cannot be names of hosts: {name}"
    ]


@pytest.mark.parametrize("objects", [(), (node("localhost"),), (node("a", ("InternalIP", 1)),)])
def test_no_host_at_all_is_an_error(objects: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(StorageOpsError, match=f"listed {len(objects)} nodes, and none") as caught:
        built(*objects)
    assert caught.value.code == "not_found"


def test_hosts_are_in_the_order_of_their_names() -> None:
    nodes = [node(name, ("InternalIP", f"10.0.0.{name[1:]}")) for name in ("n3", "n1", "n2")]
    assert [host.name for host in built(*nodes).hosts] == ["n1", "n2", "n3"]


def test_a_csi_node_of_a_former_node_of_that_name() -> None:
    former = csi_node("worker01", "old", ownerReferences=[{"kind": "Node", "uid": "former"}])
    assert only(built(WORKER, former)).known["drivers"] == []
    bare = csi_node("worker01", "old", ownerReferences=[{"kind": "Other", "uid": "former"}])
    assert only(built(WORKER, bare)).known["drivers"] == ["old"]
    assert only(built(WORKER, csi_node("another", "old"))).known["drivers"] == []


def test_what_cannot_be_read_is_named() -> None:
    broken = {**csi_node("worker01"), "spec": {"drivers": [{"nodeID": "x"}]}}
    made = built(WORKER, broken, node("b", ("InternalIP", 1)))
    assert only(made).known["drivers"] == []
    assert [text.partition(":")[0] for text in made.warnings] == [
        "nodes that cannot be read are left out",
        "nodes of these CSINodes, which cannot be read, are hosts without drivers",
    ]
    assert "b (" in made.warnings[0] and "worker01 ('name' is missing)" in made.warnings[1]


@pytest.mark.parametrize("where", [NODES, CSI_NODES])
def test_a_list_that_cannot_be_read_is_an_error(where: str) -> None:
    cluster = FakeCluster(WORKER, csi_node("worker01"))

    def refuse(_verb: str, path: str) -> None:
        if path == where:
            raise Forbidden("no", 403)

    cluster.before = refuse
    with pytest.raises(Forbidden):
        read(cluster)


def test_the_flood_of_one_node_ends() -> None:
    labels = {f"example.com/{number}": "x" for number in range(5_000)}
    flood = node("a", *[("InternalIP", "none")] * 5_000, **labels)
    flood["spec"] = {"taints": [{"key": f"t{number}"} for number in range(5_000)]}
    drivers = csi_node("a", *(f"d{number}.example.com" for number in range(5_000)))
    made = built(flood, drivers, node("b", ("InternalIP", "10.0.0.2")))
    first, second = made.hosts
    for many in ("labels", "taints", "drivers"):
        assert len(first.known[many]) == MOST
    assert len(first.groups) == MOST and second.address == "10.0.0.2"
    assert [text for text in made.warnings if f"only {MOST} are taken: a" in text]


def test_a_warning_about_many_nodes_can_be_read() -> None:
    many = [node(f"n{number}", ("InternalIP", "{{ x }}")) for number in range(5_000)]
    made = built(*many)
    assert len(made.hosts) == 5_000
    assert len(made.warnings) == 2 and all("+4995 more" in text for text in made.warnings)


def test_a_cluster_of_5000_is_read_by_two_lists() -> None:
    items = [node(f"n{number}") for number in range(5_000)]
    cluster = FakeCluster(*items, *(csi_node(f"n{number}", "d") for number in range(5_000)))
    made = build(read(cluster), ())
    assert cluster.requests == [f"list {NODES}", f"list {CSI_NODES}"]
    assert len(made.hosts) == 5_000
    assert all(host.groups == ["driver_d"] for host in made.hosts)


OTHER = "198.18.0.1"
# Longer than what is kept.
LONG = st.text("x\x1b", min_size=MOST_CHARACTERS, max_size=MOST_CHARACTERS + 20)
TEXT = (
    st.text(max_size=40)
    | LONG
    | st.sampled_from(["{{ x }}", "{% raw %}", "\x1b[2J", "\u202e", "all"])
)


@given(
    labels=st.dictionaries(
        TEXT | st.sampled_from(["topology.kubernetes.io/zone", "node-role.kubernetes.io/{{ x }}"]),
        TEXT,
        max_size=5,
    ),
    texts=st.lists(TEXT, min_size=4, max_size=4),
    addresses=st.lists(TEXT | st.ip_addresses().map(str).filter(OTHER.__ne__), max_size=4),
    drivers=st.lists(TEXT, max_size=3),
)
def test_whatever_a_node_says(
    labels: dict[str, str], texts: list[str], addresses: list[str], drivers: list[str]
) -> None:
    hostile = node("a", *(("InternalIP", text) for text in addresses), **labels)
    boot, image, version, taint = texts
    hostile["status"]["nodeInfo"] = {"bootID": boot, "osImage": image, "kubeletVersion": version}
    hostile["spec"] = {"taints": [{"key": taint, "value": taint, "effect": taint}]}
    good = node("b", ("InternalIP", OTHER))
    made = built(hostile, csi_node("a", *drivers), good)
    first, second = made.hosts
    assert (first.name, second.name) == ("a", "b")
    if first.address:
        found = ip_address(first.address)
        assert not (found.is_loopback or found.is_link_local or found.is_multicast)
    for text in strings(list(first)):
        # What is cut ends with a count; escaped, a character is up to ten.
        assert len(text) <= 11 * MOST_CHARACTERS
    for text in [*strings(list(first)), *made.warnings]:
        assert all(char.isprintable() or char in "\n\t" for char in text)
    # No group can be taken for a host, or for one that exists everywhere.
    assert not [name for name in first.groups if is_name(name)]
    assert second.address == OTHER


def strings(value: Any) -> list[str]:
    """All texts in a value, keys as well."""
    if isinstance(value, dict):
        return strings([*value, *value.values()])
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []
