# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client against real API servers, with the rights and the credentials that a user has."""

from __future__ import annotations

import base64
import json
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lab.common import patient
from lab.kubernetes import api as k8s
from support.cluster import Cluster as Lab

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Cluster,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    TooMany,
    path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    make_cluster,
)

MAPS = path("v1", "configmaps", namespace="default")


@pytest.fixture(params=["control_plane_1_20", "control_plane_current"])
def lab(request: pytest.FixtureRequest) -> Lab:
    """A control plane of each version."""
    found: Lab = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(lab: Lab) -> Cluster:
    """The client, as admin."""
    return connect(kubeconfig=str(lab.kubeconfig()))


def connect(**options: Any) -> Cluster:
    """The client that a module with these options would have."""
    return make_cluster(
        {
            **dict.fromkeys(AUTH.options),
            "request_timeout": patient(10),
            "deadline": patient(60),
            **options,
        }
    )


def name(item: dict[str, Any]) -> str:
    """What is kept of an object here."""
    found: str = item["metadata"]["name"]
    return found


def config_map(of: str, **data: str) -> dict[str, Any]:
    """A small object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": of, "labels": {"app": of[0]}},
        "data": data,
    }


def test_version(lab: Lab, client: Cluster) -> None:
    assert client.version().text == f"v{lab.plane.number}"
    assert [client.version().major, client.version().minor] == [
        int(part) for part in lab.plane.number.split(".")[:2]
    ]


def test_the_clock_is_the_servers(client: Cluster) -> None:
    before = datetime.now(UTC)
    client.version()
    # It tells whole seconds, at some moment while we wait for its answer.
    unsure = datetime.now(UTC) - before + timedelta(seconds=1)
    assert abs(client.now() - datetime.now(UTC)) <= unsure + timedelta(seconds=1)


def test_what_is_not_served_is_not_merely_absent(client: Cluster) -> None:
    assert client.get(path("storage.k8s.io/v1", "volumeattachments", "none")) is None
    for where in (
        path("none.example.com/v1", "things", "a"),
        path("storage.k8s.io/v9", "volumeattachments", "a"),
        "/apis/apps/v1/things/a",
    ):
        with pytest.raises(
            KubeError, match="answered 404: .*does not serve the resource"
        ) as caught:
            client.get(where)
        assert not isinstance(caught.value, NotFound)


def test_objects(client: Cluster) -> None:
    where = f"{MAPS}/a"
    assert client.get(where) is None
    client.create(MAPS, config_map("a"), dry_run=True)
    assert client.get(where) is None
    made = client.create(MAPS, config_map("a"))
    with pytest.raises(Conflict, match="already exists"):
        client.create(MAPS, config_map("a"))
    assert client.patch(where, {"data": {"x": "1"}}, dry_run=True)["data"] == {"x": "1"}
    assert client.get(where) == made
    for kind, body in (
        ("merge", {"data": {"x": "1"}}),
        ("strategic", {"data": {"y": "2"}}),
        ("json", [{"op": "add", "path": "/data/z", "value": "3"}]),
    ):
        client.patch(where, body, kind=kind)
    assert (client.get(where) or {})["data"] == {"x": "1", "y": "2", "z": "3"}


@pytest.mark.smoke
def test_only_the_object_that_was_meant_is_deleted(client: Cluster) -> None:
    where = f"{MAPS}/a"
    first = client.create(MAPS, config_map("a"))["metadata"]["uid"]
    client.delete(where, first, dry_run=True)
    client.delete(where, first)
    with pytest.raises(NotFound):
        client.delete(where, first)
    second = client.create(MAPS, config_map("a"))["metadata"]["uid"]
    with pytest.raises(Conflict, match=first):
        client.delete(where, first)
    assert (client.get(where) or {})["metadata"]["uid"] == second


@pytest.mark.smoke
@pytest.mark.parametrize("cached", [True, False])
def test_lists(lab: Lab, client: Cluster, cached: bool) -> None:
    names = [f"{'ab'[number % 2]}{number:02d}" for number in range(25)]
    lab.api.create(
        *[
            {
                **config_map(each, text='ü"\\n'),
                "metadata": {**config_map(each)["metadata"], "namespace": "default"},
            }
            for each in names
        ]
    )
    # The cache may be a moment behind.
    lab.wait(
        lambda: set(names) <= set(client.list(MAPS, name, cached=cached, limit=7)), "all listed", 10
    )
    assert sorted(client.list(MAPS, name, cached=cached, limit=7, labels="app=b")) == [
        each for each in names if each[0] == "b"
    ]
    assert client.list(MAPS, name, cached=cached, limit=7, fields="metadata.name=a00") == ["a00"]
    assert client.list(path("storage.k8s.io/v1", "volumeattachments"), name, cached=cached) == []


def test_a_list_whose_pages_expire_is_whole_all_the_same(lab: Lab, client: Cluster) -> None:
    names = [f"m{number:02d}" for number in range(20)]
    lab.api.create(
        *[
            {**config_map(each), "metadata": {"name": each, "namespace": "default"}}
            for each in names
        ]
    )
    compacted: list[str] = []

    def pick(item: dict[str, Any]) -> str | None:
        # After the first page etcd forgets its state.
        if not compacted:
            made = lab.api.call("POST", MAPS, config_map("zz-later"))
            revision = made["metadata"]["resourceVersion"]
            lab.plane.etcd("compaction", {"revision": revision, "physical": True})
            compacted.append(revision)
        return name(item) if name(item) in names else None

    assert client.list(MAPS, pick, limit=8) == names
    assert compacted


class TestCredentials:
    def test_token_as_awx_gives_it(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable, value in (
            ("HOST", f"https://127.0.0.1:{lab.plane.port()}"),
            ("API_KEY", lab.plane.token("admin")),
        ):
            monkeypatch.setenv(f"K8S_AUTH_{variable}", value)
        with pytest.raises(
            KubeError, match="no connection to https://127.0.0.1:.*not trusted.*ca_cert"
        ):
            connect().version()
        monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "False")
        assert connect().list(path("v1", "nodes"), name) == []
        monkeypatch.delenv("K8S_AUTH_VERIFY_SSL")
        monkeypatch.setenv("K8S_AUTH_SSL_CA_CERT", str(lab.plane.ca))
        assert connect().list(path("v1", "nodes"), name) == []

    def test_kubeconfig_as_a_dictionary_with_its_certificates_inside(self, lab: Lab) -> None:
        config = json.loads(lab.kubeconfig().read_text())
        cluster = config["clusters"][0]["cluster"]
        cluster["certificate-authority-data"] = base64.b64encode(
            Path(cluster.pop("certificate-authority")).read_bytes()
        ).decode()
        assert connect(kubeconfig=config).list(path("v1", "nodes"), name) == []

    def test_a_wrong_token(self, lab: Lab) -> None:
        config = json.loads(lab.kubeconfig().read_text())
        config["users"][0]["user"]["token"] = "wrong"
        with pytest.raises(
            Forbidden,
            match="401: Unauthorized.*the credentials of the kubeconfig given as a dictionary",
        ) as caught:
            connect(kubeconfig=config).get(path("v1", "nodes", "n"))
        assert "wrong" not in str(caught.value) and caught.value.status == 401

    def test_nobody(self, lab: Lab) -> None:
        client = connect(kubeconfig=str(lab.kubeconfig("nobody")))
        rule = '{apiGroups: ["storage.k8s.io"], resources: ["volumeattachments"], verbs: ["list"]}'
        with pytest.raises(Forbidden, match=re.escape(rule)) as caught:
            client.list(path("storage.k8s.io/v1", "volumeattachments"), name)
        assert (
            'User "nobody" cannot list resource "volumeattachments"' in str(caught.value)
            and caught.value.status == 403
        )

    def test_impersonation(self, lab: Lab) -> None:
        client = connect(
            kubeconfig=str(lab.kubeconfig()), impersonate_user="jane", impersonate_groups=["a", "b"]
        )
        with pytest.raises(Forbidden, match='User "jane" cannot get resource "nodes"'):
            client.get(path("v1", "nodes", "n"))
        assert (
            connect(
                kubeconfig=str(lab.kubeconfig()),
                impersonate_user="jane",
                impersonate_groups=["a", "system:masters"],
            ).list(path("v1", "nodes"), name)
            == []
        )


def test_an_eviction_against_a_budget(lab: Lab, client: Cluster) -> None:
    version = "policy/v1beta1" if client.version().minor < 21 else "policy/v1"
    lab.kubelets("n1")
    lab.api.create(k8s.workload("Deployment", "web"), k8s.budget("web", "web", 1, version=version))
    pods = path("v1", "pods", namespace="default")
    running = lab.wait(
        lambda: client.list(
            pods,
            lambda pod: name(pod) if pod["status"].get("phase") == "Running" else None,
            labels="app=web",
        ),
        "a pod that runs",
    )
    budgets = path(version, "poddisruptionbudgets", "web", "default")
    lab.wait(
        lambda: (client.get(budgets) or {}).get("status", {}).get("currentHealthy") == 1,
        "the budget counts it",
    )
    eviction = {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": {"name": running[0], "namespace": "default"},
    }
    proxy = lab.proxy()
    impatient = connect(kubeconfig=str(proxy.kubeconfig("admin")))
    with pytest.raises(
        TooMany,
        match=f"cannot create pods/eviction {running[0]} in namespace default: .*The disruption "
        "budget web needs 1",
    ):
        impatient.create(path("v1", "pods", running[0], "default", "eviction"), eviction)
    assert [request.method for request in proxy.requests] == ["POST"]


def test_an_api_server_that_is_restarted_is_waited_for(lab: Lab, client: Cluster) -> None:
    made = client.create(MAPS, config_map("a"))
    lab.plane.stop_apiserver()
    start = threading.Thread(target=lab.plane.start_apiserver)
    start.start()
    try:
        assert client.get(f"{MAPS}/a") == made
        assert client.list(MAPS, lambda item: name(item) if name(item) == "a" else None) == ["a"]
    finally:
        start.join()


def test_an_api_server_that_stays_away_is_an_error(lab: Lab) -> None:
    client = connect(kubeconfig=str(lab.kubeconfig()), deadline=5.0)
    lab.plane.stop_apiserver()
    try:
        with pytest.raises(
            KubeError,
            match="cannot list configmaps in namespace default: no "
            "connection to .*: Connection refused",
        ) as caught:
            client.list(MAPS, name)
        assert caught.value.status == 0
    finally:
        lab.plane.start_apiserver()
