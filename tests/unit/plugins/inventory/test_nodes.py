# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory source, with an API server on the wire; tests/cluster runs ansible-inventory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.doc_fragments import constructed, inventory_cache
from ansible.plugins.loader import inventory_loader
from ansible.template import Templar
from ansible.utils.display import Display

from ansible_collections.storage_ops.runbooks.plugins.doc_fragments import _kubernetes
from ansible_collections.storage_ops.runbooks.plugins.inventory import nodes
from ansible_collections.storage_ops.runbooks.tests.unit.support.server import (
    Answer,
    Server,
    cut,
    refuses,
    says,
    serve,
)

NAME = "storage_ops.runbooks.nodes"
DRIVER = "rbd.csi.example.com"
# A program that a template would run on the controller.
HOSTILE = "{{ lookup('ansible.builtin.pipe', 'echo own' ~ 'ed') }}"
Objects = "list[dict[str, Any]]"


def node(name: str, address: str = "", **status: Any) -> dict[str, Any]:
    """A node, as the API has it."""
    status.setdefault("nodeInfo", {"osImage": "Debian GNU/Linux 12 (bookworm)"})
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    labels = {
        "topology.kubernetes.io/zone": "north",
        "node-role.kubernetes.io/worker": "",
        "example.com/pool": "fast",
    }
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "creationTimestamp": "2026-11-20T08:00:00Z",
        },
        "status": {"addresses": addresses, **status},
    }


def csi_node(name: str, *drivers: str) -> dict[str, Any]:
    """The drivers of a node, as the API has them."""
    return {
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": driver} for driver in drivers]},
    }


def lists(items: Objects) -> Answer:
    """A whole list."""
    return says(
        {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}
    )


DAEMON_SET = {
    "kind": "DaemonSet",
    "metadata": {"name": "storage-ops-node", "uid": "0b3a6d1c-7d1f-4b52-9a43-111111111111"},
}
POD_UID = "5d0c7e0a-1f5b-4c53-8d0e-222222222222"


def node_pod(node: str, uid: str = POD_UID) -> dict[str, Any]:
    """The pod of that DaemonSet on a node."""
    owner = {"kind": "DaemonSet", "uid": DAEMON_SET["metadata"]["uid"], "controller": True}
    meta = {"name": f"storage-ops-node-{node}", "uid": uid, "ownerReferences": [owner]}
    return {
        "metadata": {**meta, "creationTimestamp": "2026-11-21T08:00:00Z"},
        "spec": {"nodeName": node},
        "status": {"containerStatuses": [{"name": "node", "ready": True}]},
    }


class Api:
    """An API server that answers by what is asked for, and a source that names it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.nodes = lists([node("a", "10.0.0.1"), node("b", "10.0.0.2")])
        self.drivers = lists([csi_node("a", DRIVER), csi_node("b")])
        self.pods = lists([node_pod("a")])
        self.daemon_set = says(DAEMON_SET)
        server.answers = [self._answer]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        answers = {"/csinodes": self.drivers, "/pods": self.pods, "/daemonsets/": self.daemon_set}
        for part, answer in answers.items():
            if part in handler.path:
                answer(handler)
                return
        self.nodes(handler)

    def source(self, **options: Any) -> Path:
        """Write the source's file."""
        file = self.folder / "nodes.storage_ops.yml"
        given = {"plugin": NAME, "host": self.server.url, "api_key": "t", **options}
        file.write_text(yaml.safe_dump(given))
        return file

    def parse(self, flush: bool = False, **options: Any) -> InventoryData:
        """The inventory of the source."""
        return parse(self.source(**options), flush)


def loaded() -> nodes.InventoryModule:
    """The plugin, as Ansible's loader makes it: that of this process may know no collections."""
    documented = [
        nodes.DOCUMENTATION,
        _kubernetes.ModuleDocFragment.AUTH,
        _kubernetes.ModuleDocFragment.BOUNDS,
        constructed.ModuleDocFragment.DOCUMENTATION,
        inventory_cache.ModuleDocFragment.DOCUMENTATION,
    ]
    options: dict[str, Any] = {}
    for text in documented:
        for name, option in yaml.safe_load(text)["options"].items():
            options[name] = {**option, **options.get(name, {})}
    constants.config.initialize_plugin_configuration_definitions("inventory", NAME, options)
    plugin = nodes.InventoryModule()
    inventory_loader._update_object(
        obj=plugin, name=NAME, path=nodes.__file__, redirected_names=[NAME]
    )
    return plugin


def parse(file: Path, flush: bool) -> InventoryData:
    """What Ansible makes of a source. ``flush``: with --flush-cache."""
    plugin, inventory = loaded(), InventoryData()
    assert plugin.verify_file(str(file))
    plugin.parse(inventory, DataLoader(), str(file), cache=not flush)
    # As InventoryManager does: without a cache there is none.
    with contextlib.suppress(AttributeError):
        plugin.update_cache_if_changed()
    inventory.reconcile_inventory()
    return inventory


def group(inventory: InventoryData, name: str) -> list[str]:
    """The hosts of a group."""
    return [host.name for host in inventory.groups[name].get_hosts()]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.delenv("K8S_AUTH_KUBECONFIG", raising=False)
    with serve() as server:
        yield Api(server, tmp_path)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the operator is warned of."""
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text, *_, **__: said.append(text))
    return said


def test_hosts_with_groups_and_variables(api: Api, warnings: list[str]) -> None:
    inventory = api.parse()
    assert group(inventory, "all") == ["a", "b"]
    assert group(inventory, "driver_rbd_csi_example_com") == ["a"]
    assert group(inventory, "role_worker") == group(inventory, "zone_north") == ["a", "b"]
    assert group(inventory, "os_image_Debian_GNU_Linux_12__bookworm_") == ["a", "b"]
    found = inventory.hosts["a"].vars
    assert found["ansible_host"] == "10.0.0.1"
    assert found["kubernetes_node"]["uid"] == "uid-a"
    assert found["kubernetes_node"]["drivers"] == [DRIVER]
    assert set(found) == {"ansible_host", "kubernetes_node", "inventory_file", "inventory_dir"}
    assert warnings == []
    assert api.server.requests == [
        "GET /api/v1/nodes?resourceVersion=0",
        "GET /apis/storage.k8s.io/v1/csinodes?resourceVersion=0",
    ]


def test_what_the_options_make_of_it(api: Api) -> None:
    inventory = api.parse(
        strict=True,
        compose={"ansible_host": "inventory_hostname ~ '.example.com'", "old": "ansible_host"},
        groups={"named": "old == '10.0.0.1'"},
        keyed_groups=[{"prefix": "pool", "key": "kubernetes_node.labels['example.com/pool']"}],
    )
    assert inventory.hosts["a"].vars["ansible_host"] == "a.example.com"
    assert group(inventory, "named") == ["a"]
    assert group(inventory, "pool_fast") == ["a", "b"]


def test_what_strict_means(api: Api) -> None:
    wrong = {"compose": {"x": "kubernetes_node.nothing.at.all"}}
    assert "x" not in api.parse(**wrong).hosts["a"].vars
    with pytest.raises(Exception, match="Could not set x for host a"):
        api.parse(strict=True, **wrong)


def test_no_text_of_a_node_is_a_template(api: Api) -> None:
    hostile = node("a", "10.0.0.1", nodeInfo={"osImage": HOSTILE, "kubeletVersion": HOSTILE})
    hostile["metadata"]["labels"] = {HOSTILE: HOSTILE, "topology.kubernetes.io/zone": HOSTILE}
    hostile["spec"] = {"taints": [{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}]}
    hostile["status"]["nodeInfo"]["bootID"] = HOSTILE
    api.nodes, api.drivers = lists([hostile]), lists([csi_node("a", HOSTILE)])
    inventory = api.parse(
        compose={
            "image": "kubernetes_node.os_image",
            "joined": "kubernetes_node.zone ~ '-' ~ kubernetes_node.drivers[0]",
            "every": "kubernetes_node.labels",
        },
        keyed_groups=[{"key": "kubernetes_node.labels", "prefix": "label"}],
    )
    variables = dict(inventory.hosts["a"].vars)
    templar = Templar(loader=DataLoader(), variables=variables)
    for name in ("kubernetes_node", "image", "joined", "every"):
        shown = str(templar.template(variables[name]))
        assert "owned" not in shown and "lookup" in shown
        assert "owned" not in str(templar.template("{{ " + name + " }}"))
    # Not even a name of a group has what begins a template.
    assert not [name for name in inventory.groups if "{" in name or "owned" in name]


def test_a_node_that_claims_anothers_address(api: Api, warnings: list[str]) -> None:
    api.nodes = lists([node("a", "10.0.0.1"), node("b", "10.0.0.1"), node("c", "10.0.0.3")])
    inventory = api.parse()
    reached = {name: host.vars.get("ansible_host") for name, host in inventory.hosts.items()}
    assert reached == {"a": None, "b": None, "c": "10.0.0.3"}
    assert any("10.0.0.1 (a, b)" in text for text in warnings)


def test_5000_nodes_in_pages_where_the_whole_list_is_lost(api: Api) -> None:
    items = [node(f"n{number}") for number in range(5_000)]

    def page(handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        if "limit" not in query:
            cut(["n0"], chunked=False)(handler)
            return
        begin, end = (int(query.get(key, ["0"])[0]) for key in ("continue", "limit"))
        end += begin
        token = str(end) if end < len(items) else ""
        meta = {"resourceVersion": "7", "continue": token}
        says({"kind": "NodeList", "metadata": meta, "items": items[begin:end]})(handler)

    api.nodes = page
    assert len(api.parse(address_types=[]).hosts) == 5_000
    asked = [request for request in api.server.requests if request.startswith("GET /api/v1/nodes")]
    # One answer that was lost, and ten pages of 500.
    assert len(asked) == 11 and len(api.server.requests) == 12


def test_the_operator_says_who_has_the_address(api: Api) -> None:
    # As docs/guides/inventory.md says.
    api.nodes = lists([node("a", "10.0.0.1"), node("b", "10.0.0.1"), node("c", "10.0.0.3")])
    known = "{'a': '10.0.0.1'}.get(inventory_hostname) or ansible_host"
    inventory = api.parse(compose={"ansible_host": known})
    reached = {name: host.vars.get("ansible_host") for name, host in inventory.hosts.items()}
    assert reached == {"a": "10.0.0.1", "b": None, "c": "10.0.0.3"}


@pytest.mark.parametrize("what", ["nodes", "drivers"])
def test_without_the_rights_nothing_is_added(api: Api, what: str) -> None:
    setattr(api, what, refuses(403, "no rights"))
    resource = {"nodes": "nodes", "drivers": "csinodes.storage.k8s.io"}[what]
    inventory = InventoryData()
    plugin = loaded()
    with pytest.raises(AnsibleParserError) as caught:
        plugin.parse(inventory, DataLoader(), str(api.source()))
    for part in (
        f"cannot list {resource}",
        "no rights",
        "playbooks/files/rbac-audit.yml",
        "[api_forbidden]",
    ):
        assert part in str(caught.value)
    assert not inventory.hosts


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lists([]), "listed 0 nodes"),
        (lists([node("localhost", "10.0.0.1")]), "none can be a host"),
        (refuses(404), "answered 404"),
        (cut(["a"], chunked=False), "cannot list nodes"),
        (says(b"<html>login", kind="text/html"), "instead of JSON"),
        # Whoever answers in the place of the API server gives the terminal no orders.
        (refuses(403, "no\x1b[2J"), r"no\\x1b\[2J"),
    ],
)
def test_an_unread_list_is_no_empty_inventory(api: Api, answer: Answer, said: str) -> None:
    api.nodes = answer
    with pytest.raises(AnsibleParserError, match=said):
        api.parse(deadline=0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adress_types": ["ExternalIP"]}, "there is no option adress_types"),
        ({"address_types": ["InternalDNS"]}, "InternalDNS|address_types"),
        ({"deadline": 0}, "deadline is 0"),
    ],
)
def test_options_that_cannot_be_used(api: Api, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        api.parse(**options)
    assert api.server.requests == []


def test_a_kubeconfig_as_text(api: Api) -> None:
    pytest.importorskip("kubernetes")
    with pytest.raises(Exception, match="not the path of a file"):
        api.parse(kubeconfig="apiVersion: v1\n", host="")
    assert api.server.requests == []


def test_the_other_names_of_options(api: Api) -> None:
    assert group(api.parse(verify_ssl=False), "all") == ["a", "b"]


def test_what_is_cached_is_not_read_again(api: Api, tmp_path: Path) -> None:
    kept = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "kept")}
    hostile = node("a", "10.0.0.1", nodeInfo={"osImage": HOSTILE})
    api.nodes = lists([hostile])
    first = api.parse(**kept)
    asked = len(api.server.requests)
    second = api.parse(**kept)
    assert len(api.server.requests) == asked
    assert first.hosts["a"].vars == second.hosts["a"].vars
    found = second.hosts["a"].vars["kubernetes_node"]
    templar = Templar(loader=DataLoader(), variables={"found": found})
    assert "owned" not in str(templar.template("{{ found }}"))
    api.nodes = lists([node("c", "10.0.0.3")])
    assert list(api.parse(flush=True, **kept).hosts) == ["c"]
    assert list(api.parse(**kept).hosts) == ["c"]
    # Another cluster by the same file, as after "kubectl config use-context".
    with serve() as other:
        elsewhere = Api(other, tmp_path)
        elsewhere.nodes = lists([node("d", "10.0.0.4")])
        assert list(elsewhere.parse(**kept).hosts) == ["d"]


@pytest.fixture
def by_environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As AWX names the cluster: kubectl reads the same variables."""
    monkeypatch.setenv("K8S_AUTH_HOST", api.server.url)
    monkeypatch.setenv("K8S_AUTH_API_KEY", "t")


BARE = {"host": "", "api_key": ""}


@pytest.mark.usefixtures("by_environment")
def test_through_pods(api: Api, warnings: list[str]) -> None:
    inventory = api.parse(connection="pod", **BARE)
    a, b = (inventory.hosts[name].vars for name in "ab")
    assert "ansible_host" not in {**a, **b}
    assert {key: text for key, text in a.items() if key.startswith("ansible_")} == {
        "ansible_connection": "kubernetes.core.kubectl",
        "ansible_kubectl_namespace": "storage-ops-nodes",
        "ansible_kubectl_pod": "storage-ops-node-a",
        "ansible_kubectl_container": "node",
        "ansible_python_interpreter": f"/run/storage_ops/interpreters/{POD_UID}",
        "ansible_remote_tmp": "/run/storage_ops/pod",
        "ansible_pipelining": True,
        "ansible_become": False,
    }
    # Nothing else leads to the other one either.
    assert b.keys() == a.keys() and b["ansible_kubectl_pod"] == "NO-POD-ON-THIS-NODE"
    assert len(warnings) == 1 and "Ansible cannot reach them: b (none)" in warnings[0]
    assert api.server.requests[2:] == [
        "GET /apis/apps/v1/namespaces/storage-ops-nodes/daemonsets/storage-ops-node",
        "GET /api/v1/namespaces/storage-ops-nodes/pods?limit=500",
    ]


@pytest.mark.usefixtures("by_environment")
def test_no_text_of_a_pod_is_a_template(api: Api) -> None:
    api.pods = lists([node_pod("a", HOSTILE)])
    assert "lookup" not in str(api.parse(connection="pod", **BARE).hosts["a"].vars)


@pytest.mark.usefixtures("by_environment")
def test_a_cache_is_of_one_daemon_set(api: Api, tmp_path: Path) -> None:
    kept = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "kept")}
    options = {"connection": "pod", **BARE, **kept}
    first = api.parse(**options)
    asked = len(api.server.requests)
    assert api.parse(**options).hosts["a"].vars == first.hosts["a"].vars
    assert len(api.server.requests) == asked
    api.parse(pod_namespace="other", **options)
    assert "GET /api/v1/namespaces/other/pods?limit=500" in api.server.requests[asked:]
    # Nor does it serve the other connection.
    assert "ansible_connection" not in api.parse(**BARE, **kept).hosts["a"].vars


@pytest.mark.usefixtures("by_environment")
@pytest.mark.parametrize(
    ("what", "answer", "said"),
    [
        ("daemon_set", refuses(404), "there is no DaemonSet"),
        ("daemon_set", refuses(403, "no rights"), "node_pods/node-pods.yml"),
        ("pods", refuses(403, "no rights"), "cannot list pods"),
    ],
)
def test_without_the_pods_nothing_is_added(api: Api, what: str, answer: Answer, said: str) -> None:
    setattr(api, what, answer)
    with pytest.raises(AnsibleParserError, match=said):
        api.parse(connection="pod", **BARE)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "api_key, host cannot be given to kubectl"),
        ({**BARE, "kubeconfig": "/a:/b"}, "kubeconfig cannot be given"),
        ({**BARE, "kubeconfig": {"users": []}}, "kubeconfig cannot be given"),
        ({**BARE, "impersonate_groups": ["x"]}, "impersonate_groups cannot be given"),
    ],
)
def test_kubectl_has_to_reach_the_same_cluster(
    api: Api, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(AnsibleParserError, match=said):
        api.parse(connection="pod", **options)
    assert api.server.requests == []


def test_the_kubeconfig_is_given_to_kubectl(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kubernetes")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": api.server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "u"}}],
    }
    (api.folder / "config").write_text(json.dumps(config))
    monkeypatch.setenv("HOME", str(api.folder))
    given = {"kubeconfig": "~/config", "context": "lab", "connection": "pod", **BARE}
    found = api.parse(**given).hosts["a"].vars
    assert found["ansible_kubectl_kubeconfig"] == str(api.folder / "config")
    assert found["ansible_kubectl_context"] == "lab"


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("nodes.storage_ops.yml", True),
        ("nodes.storage_ops.yaml", True),
        ("production.nodes.storage_ops.yml", True),
        ("nodes.yml", False),
        ("nodes.storage_ops.yml.bak", False),
        ("nodes.storage_ops.json", False),
    ],
)
def test_names_of_files(tmp_path: Path, name: str, fits: bool) -> None:
    (tmp_path / name).write_text(f"plugin: {NAME}\n")
    assert loaded().verify_file(str(tmp_path / name)) is fits


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert not loaded().verify_file(str(tmp_path / "nodes.storage_ops.yml"))
