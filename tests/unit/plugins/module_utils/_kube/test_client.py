# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every behaviour here is on the wire, so a real HTTP server misbehaves for it."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.turns import TurnOver
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    FIRST_PATIENCE,
    PATIENCE,
    Cluster,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    ServerVersion,
    TooMany,
    _Request,
    _unreachable,
    path,
    within,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.endpoint import (
    Endpoint,
    without_login,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    CLIENT_RECORD,
    OWN_NAMESPACE,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.server import (
    Server,
    cut,
    drips,
    is_silent,
    lists,
    refuses,
    resets,
    says,
    serve,
)

PODS = path("v1", "pods")
POD = path("v1", "pods", "web-0", "shop")
WEB: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "web-0"}}
EVICTION = path("v1", "pods", "web-0", "shop", "eviction")
ATTACHMENT = path("storage.k8s.io/v1", "volumeattachments", "csi-1")
ATTACHMENTS = path("storage.k8s.io/v1", "volumeattachments")
# Every right that the repairs ask for: API group, version, resource, verbs.
REQUESTS = [
    ("storage.k8s.io", "v1", "volumeattachments", "get list watch delete"),
    ("storage.k8s.io", "v1", "csidrivers", "get list"),
    ("storage.k8s.io", "v1", "csinodes", "get list"),
    ("storage.k8s.io", "v1", "storageclasses", "list"),
    ("", "v1", "persistentvolumes", "get list watch"),
    ("", "v1", "persistentvolumeclaims", "get list watch"),
    ("", "v1", "nodes", "get list watch patch"),
    ("", "v1", "pods", "get list watch"),
    ("", "v1", "pods/eviction", "create"),
    ("", "v1", "events", "list"),
    ("", "v1", "namespaces", "get"),
    ("apps", "v1", "deployments", "get list"),
    ("apps", "v1", "statefulsets", "get list"),
    ("apps", "v1", "replicasets", "get"),
    ("", "v1", "replicationcontrollers", "get"),
]
# The controller managers' Lease.
LEADER = [("coordination.k8s.io", "v1", "leases", "get")]
# For workload_reattach_scale_down alone.
SCALE_DOWN = [
    ("apps", "v1", "deployments", "patch"),
    ("apps", "v1", "statefulsets", "patch"),
    ("autoscaling", "v1", "horizontalpodautoscalers", "list"),
]
# The same for fences; of these, audits only list the first two.
FENCES = [
    ("csiaddons.openshift.io", "v1alpha1", "networkfenceclasses", "list"),
    ("csiaddons.openshift.io", "v1alpha1", "networkfences", "get list patch"),
    ("storage.k8s.io", "v1", "volumeattachments", "get list delete"),
    ("storage.k8s.io", "v1", "csidrivers", "get"),
    ("", "v1", "persistentvolumes", "get list"),
    ("", "v1", "persistentvolumeclaims", "get"),
    ("", "v1", "nodes", "get list patch"),
    ("", "v1", "pods", "list delete"),
    ("", "v1", "events", "list"),
]
# For prepare_network_fences alone.
PREPARE = [
    ("csiaddons.openshift.io", "v1alpha1", "networkfences", "create"),
    ("csiaddons.openshift.io", "v1alpha1", "csiaddonsnodes", "list"),
]
# In the namespace of the ledgers.
HOLDS = [("coordination.k8s.io", "v1", "leases", "list create delete")]
# One ConfigMap there, by its name.
RECORDS = [("", "v1", "configmaps", "get patch")]
LEDGERS = [
    ("", "v1", "configmaps", "get list create patch delete"),
    ("coordination.k8s.io", "v1", "leases", "get create patch delete"),
]


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


class Sleeps(list):  # type: ignore[type-arg]
    """Notes how long was to be slept, and only puts the clock on: by a busy machine's, a test would
    see fewer tries.
    """

    def __call__(self, seconds: float) -> None:
        self.append(seconds)

    def clock(self) -> float:
        return 1000.0 + sum(self)


def at(url: str, seconds: float = 600, timeout: float = 5, sleep: Any = None) -> Cluster:
    """A client of the server there."""
    sleeps = Sleeps() if sleep is None else sleep
    clock = getattr(sleeps, "clock", time.monotonic)
    endpoint = Endpoint(
        url, "the token of K8S_AUTH_API_KEY", lambda: [("Authorization", "Bearer t")]
    )
    return Cluster(endpoint, Deadline(seconds, clock), timeout, sleeps, clock)


def cluster(
    server: Any, *answers: Any, seconds: float = 600, timeout: float = 5, sleep: Any = None
) -> Cluster:
    """A client of that server, which gives these answers."""
    server.answers = list(answers)
    return at(server.url, seconds, timeout, sleep)


def over_tls(url: str, proxy: str = "") -> Cluster:
    """A client of an API server with TLS."""
    sleeps = Sleeps()
    endpoint = Endpoint(url, "x", tls=ssl.create_default_context(), proxy=proxy)
    return Cluster(endpoint, Deadline(600, sleeps.clock), 5, sleeps, sleeps.clock)


FILES = Path(__file__).parents[5] / "playbooks" / "files"
# From the one with the fewest rights on.
MANIFESTS = (
    "rbac-audit.yml",
    "rbac-repair.yml",
    "rbac-fence.yml",
    "rbac-repair-scale-down.yml",
    "rbac-fence-prepare.yml",
)


def items_of(manifest: str) -> list[dict[str, Any]]:
    """The objects of a shipped manifest."""
    text = (FILES / manifest).read_text(encoding="utf-8")
    documents = yaml.safe_load_all(text)
    return [item for document in documents for item in document.get("items", [document])]


def rights(manifest: str, *spaces: str) -> set[tuple[str, str, str]]:
    """API group, resource and verb of all that a manifest allows in the whole cluster, or there."""
    roles = [item for item in items_of(manifest) if item["kind"] in ("ClusterRole", "Role")]
    return {
        (group, resource, verb)
        for role in roles
        if role["metadata"].get("namespace", "") in (spaces or ("",))
        for rule in role["rules"]
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(requests: list[tuple[str, str, str, str]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for group, _version, resource, verbs in requests
        for verb in verbs.split()
    }


def name(item: dict[str, Any]) -> str:
    return item["metadata"]["name"]


def changes(client: Cluster, of: str, version: str = "7") -> Iterator[Any]:
    """What a watch tells."""
    with client.watch(of, version) as told:
        yield from told


def test_paths() -> None:
    assert (
        path("v1", "pods", "web-0", "shop", "eviction")
        == "/api/v1/namespaces/shop/pods/web-0/eviction"
    )
    assert (
        path("storage.k8s.io/v1", "volumeattachments")
        == "/apis/storage.k8s.io/v1/volumeattachments"
    )
    assert path("rbac.authorization.k8s.io/v1", "clusterroles", "system:node/x") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node%2Fx"
    )


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"gitVersion": "v1.20.2"}, (1, 20, 2)),
        ({"gitVersion": "v1.31.4+k3s1"}, (1, 31, 4)),
        ({"gitVersion": "v1.27.3-gke.100"}, (1, 27, 3)),
        ({"gitVersion": "v1.28.0-rc.1"}, (1, 28, 0)),
        ({"gitVersion": "v0.0.0-master+$Format:%H$"}, (0, 0, 0)),
        ({"gitVersion": "", "major": "1", "minor": "27+"}, (1, 27, 0)),
        ({"major": "1", "minor": "9"}, (1, 9, 0)),
    ],
)
def test_versions(info: dict[str, str], expected: tuple[int, int, int]) -> None:
    version = ServerVersion.parse(info)
    assert (version.major, version.minor, version.patch) == expected
    assert version.text == (info.get("gitVersion") or f"{version.major}.{version.minor}")


def test_a_version_that_is_none_is_an_error() -> None:
    with pytest.raises(KubeError, match="which version"):
        ServerVersion.parse({"gitVersion": "latest"})


def test_an_object_that_is_nested_deep_is_read(server: Server) -> None:
    deep = f'{{"kind":"Pod","metadata":{{"name":"web-0","x":{"[" * 5_000}1{"]" * 5_000}}}}}'
    found = cluster(server, says(deep.encode())).get(POD)
    assert found is not None
    assert found["metadata"]["name"] == "web-0"


def test_the_version_is_asked_once(server: Server) -> None:
    client = cluster(server, says({"gitVersion": "v1.20.2"}))
    assert client.version() == client.version() == ServerVersion(1, 20, 2, "v1.20.2")
    assert server.requests == ["GET /version"]


class TestClock:
    @pytest.mark.parametrize("ahead", [0, 600, -600])
    def test_it_is_the_clock_of_the_server(self, server: Server, ahead: float) -> None:
        server.ahead = ahead
        client = cluster(server, says({"gitVersion": "v1.31.4"}))
        assert abs(client.now() - datetime.now(timezone.utc)) < timedelta(minutes=4)
        client.version()
        off = client.now() - datetime.now(timezone.utc) - timedelta(seconds=ahead)
        assert abs(off) < timedelta(minutes=4)
        assert client.now().utcoffset() == timedelta()

    def test_the_latest_answer_counts_and_a_refusal_is_one(self, server: Server) -> None:
        client = cluster(server, says(WEB), refuses(404))
        client.get(POD)
        server.ahead = 3600
        client.get(POD)
        assert client.now() - datetime.now(timezone.utc) > timedelta(minutes=59)

    def test_a_date_that_is_none_changes_nothing(self, server: Server) -> None:
        def undated(handler: Any) -> None:
            handler.date_time_string = lambda: "yesterday"
            says(WEB)(handler)

        client = cluster(server, undated)
        client.get(POD)
        assert abs(client.now() - datetime.now(timezone.utc)) < timedelta(minutes=4)


class TestRequests:
    @pytest.mark.parametrize(
        "name", ["a%b", "a/b", "a/status", ".", "..", "../../../version", "%2e%2e", "a" * 254]
    )
    def test_a_name_that_nothing_can_have(self, server: Server, name: str) -> None:
        """A tenant writes one into a claim, and no look at the cluster may end of that."""
        refused = {
            "kind": "Status",
            "reason": "BadRequest",
            "message": f'Name parameter invalid: "{name}"',
            "code": 400,
        }
        client = cluster(server, says(refused, 400), says(refused, 400))
        assert client.get(path("v1", "persistentvolumes", name)) is None
        assert server.requests == []

    @pytest.mark.parametrize("name", ["a" * 253, "system:node", "a..b"])
    def test_a_name_that_something_may_have(self, server: Server, name: str) -> None:
        client = cluster(server, says({"kind": "X", "metadata": {"name": name}}))
        assert client.get(path("v1", "persistentvolumes", name))

    def test_get(self, server: Server) -> None:
        client = cluster(server, says(WEB), refuses(404))
        assert client.get(POD, {"resourceVersion": "0"}) == WEB
        assert client.get(POD) is None
        assert server.requests == [f"GET {POD}?resourceVersion=0", f"GET {POD}"]
        assert ("Authorization", "Bearer t") in server.headers[0]

    def test_one_connection_does_for_all(self, server: Server) -> None:
        client = cluster(server, says(WEB), lists("a"), refuses(404), refuses(500), says(WEB))
        client.get(POD)
        client.list(PODS, name)
        client.get(POD)
        client.get(POD)
        assert len(server.requests) == 5
        assert server.connections == 1

    def test_a_connection_that_the_server_has_closed_is_not_used_again(
        self, server: Server
    ) -> None:
        def last(handler: Any) -> None:
            says(WEB)(handler)
            handler.close_connection = True

        client = cluster(server, last, says(WEB))
        client.get(POD)
        assert server.closed.wait(60)
        client.create(PODS, {})
        assert server.requests == [f"GET {POD}", f"POST {PODS}"]

    def test_delete_names_the_uid(self, server: Server) -> None:
        client = cluster(server, says(WEB))
        client.delete(ATTACHMENT, "u-1")
        client.delete(ATTACHMENT, "u-1", dry_run=True)
        client.delete(ATTACHMENT, "u-1", version="7")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u-1"}}
        unchanged = {"uid": "u-1", "resourceVersion": "7"}
        assert server.bodies == [
            options,
            {**options, "dryRun": ["All"]},
            {**options, "preconditions": unchanged},
        ]
        assert server.requests == [f"DELETE {ATTACHMENT}"] * 3

    def test_delete_gives_a_pod_no_time_only_when_asked(self, server: Server) -> None:
        cluster(server, says(WEB)).delete(POD, "u-1", grace=0)
        assert server.bodies == [
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": {"uid": "u-1"},
                "gracePeriodSeconds": 0,
            }
        ]

    @pytest.mark.parametrize("kind", ["merge", "strategic", "json"])
    def test_patch(self, server: Server, kind: str) -> None:
        client = cluster(server, says({"patched": 1}))
        assert client.patch(POD, {"a": 1}, kind=kind, dry_run=True) == {"patched": 1}
        assert server.requests == [f"PATCH {POD}?dryRun=All"]
        assert server.bodies == [{"a": 1}]
        assert [value for key, value in server.headers[0] if key == "Content-Type"][0].startswith(
            "application/"
        ) and kind in str(server.headers[0])

    def test_create(self, server: Server) -> None:
        client = cluster(server, says({"made": 1}, status=201))
        assert client.create(PODS, {"a": 1}, dry_run=True) == {"made": 1}
        assert server.requests == [f"POST {PODS}?dryRun=All"]


class TestLists:
    def test_from_the_cache_in_one_answer(self, server: Server) -> None:
        client = cluster(server, lists("a", "b"))
        assert client.list(PODS, name, cached=True, fields="spec.nodeName=n", labels="app=web") == [
            "a",
            "b",
        ]
        assert server.requests == [
            f"GET {PODS}?fieldSelector=spec.nodeName%3Dn&labelSelector=app%3Dweb&resourceVersion=0"
        ]

    def test_in_pages(self, server: Server) -> None:
        client = cluster(
            server, lists("a", "b", token="t1"), lists("c", "d", token="t2"), lists("e")
        )
        assert client.list(PODS, name, limit=2, labels="x=y") == list("abcde")
        assert server.requests == [
            f"GET {PODS}?labelSelector=x%3Dy&limit=2",
            f"GET {PODS}?labelSelector=x%3Dy&limit=2&continue=t1",
            f"GET {PODS}?labelSelector=x%3Dy&limit=2&continue=t2",
        ]

    def test_an_expired_continue_token_starts_the_list_again_and_no_item_comes_twice(
        self, server: Server
    ) -> None:
        client = cluster(
            server, lists("a", token="t1"), refuses(410), lists("b", token="t2"), lists("c")
        )
        assert client.list(PODS, name) == ["b", "c"]

    def test_a_token_that_always_expires_is_an_error(self, server: Server) -> None:
        client = cluster(server, *[lists("a", token="t"), refuses(410, "too old")] * 4, lists("z"))
        with pytest.raises(KubeError, match="cannot list pods: .* 410: too old") as caught:
            client.list(PODS, name)
        assert caught.value.status == 410
        assert len(server.requests) == 8

    @pytest.mark.parametrize("failure", [cut(["a"] * 9, True), resets, refuses(504)])
    def test_what_is_lost_in_one_answer_is_asked_for_in_pages(
        self, server: Server, failure: Any
    ) -> None:
        """A slow reader is cut off by the API server, and would be each time."""
        client = cluster(server, failure, lists("a", token="t1"), lists("b"))
        assert client.list(PODS, name, cached=True, labels="x=y", limit=1) == ["a", "b"]
        assert server.requests == [
            f"GET {PODS}?labelSelector=x%3Dy&resourceVersion=0",
            f"GET {PODS}?labelSelector=x%3Dy&limit=1",
            f"GET {PODS}?labelSelector=x%3Dy&limit=1&continue=t1",
        ]

    def test_what_was_refused_is_asked_for_again_as_it_was(self, server: Server) -> None:
        client = cluster(server, refuses(503), lists("a"))
        assert client.list(PODS, name, cached=True) == ["a"]
        assert server.requests == [f"GET {PODS}?resourceVersion=0"] * 2

    def test_a_list_that_was_once_lost_is_asked_for_in_pages_from_then_on(
        self, server: Server
    ) -> None:
        """Also where the pages have expired, since they were read slowly."""
        expired = refuses(410)
        client = cluster(
            server, cut(["a"] * 9, True), lists("a", token="t"), expired, lists("a"), lists("b")
        )
        assert client.list(PODS, name, cached=True) == ["a"]
        assert client.list(PODS, name, cached=True) == ["b"]
        assert server.requests == [
            f"GET {PODS}?resourceVersion=0",
            f"GET {PODS}?limit=500",
            f"GET {PODS}?limit=500&continue=t",
            f"GET {PODS}?limit=500",
            f"GET {PODS}?limit=500",
        ]
        server.answers = [lists("n")]
        assert client.list(ATTACHMENTS, name, cached=True) == ["n"]
        assert server.requests[-1] == f"GET {ATTACHMENTS}?resourceVersion=0"

    def test_pages_get_a_patience_of_their_own(self, server: Server) -> None:
        """However long the API server took to cut the whole list off."""
        sleeps = Sleeps()

        def cut_late(handler: Any) -> None:
            sleeps.append(PATIENCE + 1)
            cut(["a"] * 9, True)(handler)

        client = cluster(server, cut_late, resets, lists("a"), sleep=sleeps)
        assert client.list(PODS, name, cached=True) == ["a"]

    def test_the_version_of_a_list_is_that_of_its_first_page(self, server: Server) -> None:
        later = says({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": []})
        assert cluster(server, lists("a", token="t"), later).read(PODS, name).version == "7"

    @pytest.mark.parametrize("chunked", [True, False])
    def test_a_page_that_is_cut_is_asked_for_again(self, server: Server, chunked: bool) -> None:
        client = cluster(server, lists("a", token="t"), cut(["b", "c"], chunked), lists("b", "c"))
        assert client.list(PODS, name) == ["a", "b", "c"]

    @pytest.mark.parametrize("chunked", [True, False])
    def test_a_list_that_is_always_cut_is_an_error(self, server: Server, chunked: bool) -> None:
        client = cluster(server, cut(["a"] * 100, chunked))
        with pytest.raises(
            KubeError,
            match=r"cannot list pods: the answer of .* was lost: it ended early.* [(]6 tries in "
            r"1\d\.\d s[)]",
        ) as caught:
            client.list(PODS, name, cached=True)
        assert caught.value.status == 0

    @pytest.mark.parametrize(
        "body",
        [
            {"kind": "Pod"},
            {},
            {"kind": "Status", "status": "Failure"},
            {"kind": "PodList", "items": {}},
            [1],
        ],
    )
    def test_what_is_no_list_is_an_error(self, server: Server, body: Any) -> None:
        with pytest.raises(KubeError, match="cannot list pods"):
            cluster(server, says(body)).list(PODS, name)

    def test_a_failure_of_the_caller_is_no_failure_of_the_server(self, server: Server) -> None:
        client = cluster(server, lists("a"))
        with pytest.raises(StorageOpsError, match=r"cannot read a of /api/v1/pods: .* is missing"):
            client.list(PODS, lambda item: item["missing"])
        assert len(server.requests) == 1


class TestRetries:
    @pytest.mark.parametrize(
        "failure", [refuses(429), refuses(500), refuses(502), refuses(503), refuses(504), resets]
    )
    def test_what_passes_is_tried_again(self, server: Server, failure: Any) -> None:
        sleeps = Sleeps()
        assert cluster(server, *[failure] * 5, says({**WEB, "a": 1}), sleep=sleeps).get(POD) == {
            **WEB,
            "a": 1,
        }
        assert sleeps == [0.5, 1, 2, 4, 5]

    def test_the_server_says_when(self, server: Server) -> None:
        sleeps = Sleeps()
        cluster(
            server,
            refuses(429, Retry_After="7"),
            refuses(503, Retry_After="0"),
            refuses(503),
            says(WEB),
            sleep=sleeps,
        ).get(POD)
        assert sleeps == [7, 1, 2]

    def test_a_storm_ends(self, server: Server) -> None:
        sleeps = Sleeps()
        with pytest.raises(
            TooMany,
            match=r"cannot get pods web-0 in namespace shop: .* answered 429: slow down \(1\d\d "
            r"tries in 1\d\d\.\d s\)",
        ) as caught:
            cluster(server, refuses(429, "slow down", Retry_After="1"), sleep=sleeps).get(POD)
        assert caught.value.status == 429
        assert PATIENCE - 5 < sum(sleeps) <= PATIENCE and set(sleeps) == {1}

    @pytest.mark.parametrize(
        "failure", [refuses(503), resets, says(b"<html>no backend</html>", 503, "text/html")]
    )
    def test_a_server_that_has_answered_is_waited_for_longer_than_one_that_has_not(
        self, server: Server, failure: Any
    ) -> None:
        sleeps = Sleeps()
        client = cluster(server, says(WEB), failure, sleep=sleeps)
        client.get(POD)
        with pytest.raises(KubeError, match=r"\(\d+ tries in 1[12]\d\.\d s\)"):
            client.get(POD)
        assert PATIENCE - 10 < sum(sleeps) <= PATIENCE and max(sleeps) == 5

    @pytest.mark.parametrize(
        "failure", [resets, says(b"<html>no backend</html>", 503, "text/html")]
    )
    def test_what_may_be_the_wrong_server_is_soon_told(self, server: Server, failure: Any) -> None:
        sleeps = Sleeps()
        with pytest.raises(KubeError, match=r"\(6 tries in 1\d\.\d s\)"):
            cluster(server, failure, sleep=sleeps).get(POD)
        assert sum(sleeps) <= FIRST_PATIENCE

    def test_the_deadline_ends_it_all_the_same(self, server: Server) -> None:
        sleeps = Sleeps()
        client = cluster(server, says(WEB), refuses(503), seconds=20, sleep=sleeps)
        client.get(POD)
        with pytest.raises(KubeError, match="the deadline leaves no time for another"):
            client.get(POD)
        assert 10 < sum(sleeps) < 20

    @pytest.mark.parametrize(
        "refusal", [refuses(403), refuses(401), says(b"404 page not found", 404, "text/plain")]
    )
    def test_a_refusal_right_after_an_outage_is_not_believed(
        self, server: Server, refusal: Any
    ) -> None:
        client = cluster(server, refuses(503), refusal, refusal, says({**WEB, "a": 1}))
        assert client.get(POD) == {**WEB, "a": 1}
        server.requests.clear()
        # A change that is refused was not made.
        client = cluster(server, refuses(503), says(WEB), refusal, says({**WEB, "a": 2}))
        client.get(POD)
        assert client.create(PODS, {}) == {**WEB, "a": 2}

    def test_a_refusal_that_stays_is_believed(self, server: Server) -> None:
        sleeps = Sleeps()
        client = cluster(server, refuses(503), refuses(403, "no such role"), sleep=sleeps)
        with pytest.raises(Forbidden, match=r"no such role\. A role .* \(\d+ tries in"):
            client.get(POD)
        assert 25 < sum(sleeps) < 40
        server.requests.clear()
        with pytest.raises(Forbidden):
            client.get(POD)
        assert len(server.requests) == 1

    def test_what_is_not_there_right_after_an_outage_is_not_there(self, server: Server) -> None:
        assert cluster(server, refuses(503), refuses(404)).get(POD) is None
        assert len(server.requests) == 2

    def test_a_pause_that_the_deadline_does_not_leave_is_not_begun(self, server: Server) -> None:
        sleeps = Sleeps()
        with pytest.raises(TooMany, match="the deadline leaves no time"):
            cluster(server, refuses(429, Retry_After="60"), seconds=30, sleep=sleeps).get(POD)
        assert sleeps == [] and len(server.requests) == 1

    @pytest.mark.parametrize("status", [400, 405, 409, 422, 501])
    def test_what_does_not_pass_is_not_tried_again(self, server: Server, status: int) -> None:
        with pytest.raises(KubeError, match=f"answered {status}: no$") as caught:
            cluster(server, refuses(status)).get(POD)
        assert caught.value.status == status and len(server.requests) == 1

    def test_a_server_that_comes_up_is_waited_for(self, server: Server) -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            port = reserved.getsockname()[1]
        sleeps = Sleeps()
        with pytest.raises(
            KubeError,
            match=f"no connection to http://127.0.0.1:{port}: Connection refused. Does an API "
            "server listen there, .* .6 tries",
        ):
            at(f"http://127.0.0.1:{port}", sleep=sleeps).create(PODS, {})
        assert sleeps == [0.5, 1, 2, 4, 5]

    def test_no_such_host(self) -> None:
        client = at("http://no-such-host.invalid:6443")
        with pytest.raises(
            KubeError,
            match="cannot get /version: no connection to http://no-such-host.invalid:6443: .*",
        ) as caught:
            client.version()
        assert caught.value.status == 0


class TestChanges:
    def test_what_may_have_changed_something_is_counted(self, server: Server) -> None:
        client = cluster(server, says(WEB))
        client.get(POD)
        for dry_run in (True, False):
            client.patch(POD, {}, dry_run)
            client.create(PODS, {}, dry_run)
            client.delete(POD, "u", dry_run)
            assert client.sent == (0 if dry_run else 3)
        server.answers = [resets, says(WEB)]
        client.patch(POD, {})
        assert client.sent == 5
        client.deadline = client._connection._deadline = Deadline(0)
        with pytest.raises(KubeError):
            client.patch(POD, {})
        assert client.sent == 5

    def test_what_is_made_for_each_try_is_made_for_each_try(self, server: Server) -> None:
        made: list[int] = []

        def body() -> dict[str, Any]:
            made.append(len(made))
            return {"spec": {"try": made[-1]}}

        cluster(server, resets, says(WEB)).patch(POD, body)
        assert server.bodies == [{"spec": {"try": 0}}, {"spec": {"try": 1}}]

    def test_a_deletion_whose_answer_was_lost_is_done_when_the_object_is_gone(
        self, server: Server
    ) -> None:
        cluster(server, resets, refuses(404)).delete(ATTACHMENT, "u")
        assert len(server.requests) == 2

    @pytest.mark.parametrize(
        "now", [refuses(404), says({"metadata": {"name": "csi-1", "uid": "u-2"}})]
    )
    def test_a_deletion_whose_answer_was_lost_is_done_when_another_object_has_the_name(
        self, server: Server, now: Any
    ) -> None:
        cluster(server, refuses(504), refuses(409), now).delete(ATTACHMENT, "u-1")
        assert server.requests == [f"DELETE {ATTACHMENT}"] * 2 + [f"GET {ATTACHMENT}"]

    def test_a_deletion_that_is_refused_for_something_else_was_not_done(
        self, server: Server
    ) -> None:
        with pytest.raises(Conflict, match="409: it is locked") as caught:
            cluster(
                server,
                refuses(504),
                refuses(409, "it is locked"),
                says({"metadata": {"name": "csi-1", "uid": "u-1"}}),
            ).delete(ATTACHMENT, "u-1")
        assert caught.value.repeated

    @pytest.mark.parametrize("first", [[], [refuses(429)]])
    def test_a_deletion_of_what_is_gone_says_so(self, server: Server, first: list[Any]) -> None:
        with pytest.raises(
            NotFound, match="cannot delete volumeattachments.storage.k8s.io csi-1"
        ) as caught:
            cluster(server, *first, refuses(404)).delete(ATTACHMENT, "u")
        assert caught.value.status == 404

    def test_another_uid(self, server: Server) -> None:
        with pytest.raises(Conflict, match="Precondition failed"):
            cluster(server, refuses(409, "Precondition failed: UID in precondition")).delete(
                ATTACHMENT, "u"
            )
        assert len(server.requests) == 1

    @pytest.mark.parametrize("failure", [resets, refuses(500), refuses(503), cut([], True)])
    def test_a_creation_that_may_have_been_done_is_not_repeated(
        self, server: Server, failure: Any
    ) -> None:
        with pytest.raises(KubeError):
            cluster(server, failure).create(PODS, {})
        assert len(server.requests) == 1

    def test_a_lost_creation_says_so(self, server: Server) -> None:
        with pytest.raises(
            KubeError, match="cannot create pods: .* may have been done all the same"
        ):
            cluster(server, resets).create(PODS, {})

    @pytest.mark.parametrize("failure", [resets, refuses(500), refuses(503), cut([], True)])
    def test_a_creation_that_may_be_done_twice_is_repeated(
        self, server: Server, failure: Any
    ) -> None:
        assert cluster(server, failure, says({**WEB, "a": 1})).create(
            EVICTION, {}, repeatable=True
        ) == {**WEB, "a": 1}
        assert server.requests == [f"POST {EVICTION}"] * 2

    @pytest.mark.parametrize("answer", [refuses(404), refuses(409)])
    def test_what_became_of_a_repeated_creation_is_for_the_caller_to_say(
        self, server: Server, answer: Any
    ) -> None:
        with pytest.raises((NotFound, Conflict)) as caught:
            cluster(server, resets, answer).create(EVICTION, {}, repeatable=True)
        assert caught.value.repeated

    def test_a_creation_that_was_turned_away_is_repeated(self, server: Server) -> None:
        assert cluster(server, refuses(429), says({**WEB, "a": 1})).create(EVICTION, {}) == {
            **WEB,
            "a": 1,
        }

    def test_an_eviction_against_a_budget_is_not_repeated(self, server: Server) -> None:
        causes = [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
            }
        ]
        refusal = refuses(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            causes,
            Retry_After="10",
        )
        with pytest.raises(
            TooMany,
            match="cannot create pods/eviction web-0 in namespace shop: .* 429: Cannot evict .* "
            "has 2 currently$",
        ):
            cluster(server, refusal).create(EVICTION, {}, repeatable=True)
        assert len(server.requests) == 1

    def test_an_eviction_against_two_budgets_is_not_repeated(self, server: Server) -> None:
        refusal = refuses(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
        with pytest.raises(KubeError, match="more than one PodDisruptionBudget"):
            cluster(server, refusal).create(EVICTION, {}, repeatable=True)
        assert len(server.requests) == 1

    @pytest.mark.parametrize(("kind", "tries"), [("merge", 2), ("strategic", 2), ("json", 1)])
    def test_only_a_patch_that_is_the_same_twice_is_repeated(
        self, server: Server, kind: str, tries: int
    ) -> None:
        client = cluster(server, resets, says(WEB))
        if tries == 1:
            with pytest.raises(KubeError, match="may have been done"):
                client.patch(POD, {}, kind=kind)
        else:
            client.patch(POD, {}, kind=kind)
        assert len(server.requests) == tries


class TestDeadlines:
    @pytest.mark.parametrize("answer", [is_silent, drips])
    @pytest.mark.parametrize("what", ["get", "list", "create"])
    def test_no_server_holds_up_the_end(self, server: Server, answer: Any, what: str) -> None:
        client = cluster(server, answer, seconds=0.5, timeout=30, sleep=time.sleep)
        with pytest.raises(KubeError, match="deadline") as caught:
            {
                "get": lambda: client.get(POD),
                "list": lambda: client.list(PODS, name),
                "create": lambda: client.create(PODS, {}),
            }[what]()
        assert caught.value.status == 0
        assert not server.outlasted

    @pytest.mark.parametrize("answer", [is_silent, drips])
    def test_what_one_owner_makes_long_ends_by_its_own_time(
        self, server: Server, answer: Any
    ) -> None:
        """A LIST in which nothing fits took the request's time-out, and then all its tries."""
        client = cluster(server, answer, seconds=600, timeout=30, sleep=time.sleep)
        with pytest.raises(TurnOver), within(client, 0.5):
            client.list(PODS, name, cached=True)
        assert not server.outlasted
        assert client.deadline.remaining() > 60
        # What is in doubt is asked again, with pauses.
        client = cluster(server, refuses(403, "Forbidden"))
        with pytest.raises(Forbidden), within(client, 60):
            client.list(PODS, name)
        client = cluster(server, refuses(504, "Timeout"))
        with pytest.raises(TurnOver), within(client, 0.4):
            client.list(PODS, name)

    def test_a_silent_server_is_left_after_the_request_timeout(self, server: Server) -> None:
        client = cluster(server, is_silent, says({**WEB, "a": 1}), timeout=0.2)
        assert client.get(POD) == {**WEB, "a": 1}
        assert len(server.requests) > 1 and not server.outlasted

    def test_after_the_deadline_nothing_is_sent(self, server: Server) -> None:
        client = cluster(server, says(WEB), seconds=0)
        with pytest.raises(
            KubeError,
            match="cannot delete volumeattachments.storage.k8s.io csi-1: no connection to .*: the "
            "deadline has passed$",
        ):
            client.delete(ATTACHMENT, "u")
        assert server.requests == []

    def test_what_was_sent_and_not_answered_is_taken_back(self) -> None:
        """The kernel sent it for minutes after that, so a change could come when the Lease of its
        run was over.
        """
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = at(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2)
            client.deadline = client._connection._deadline = Deadline(0.2)
            with pytest.raises(KubeError):
                client.patch(POD, {})
            with listener.accept()[0] as peer, pytest.raises(ConnectionResetError):
                list(iter(lambda: peer.recv(1 << 16), b""))
        assert client.sent == 1


class TestErrors:
    def test_401_names_the_source_and_not_the_secret(self, server: Server) -> None:
        with pytest.raises(
            Forbidden, match="401: Unauthorized. .* credentials of the token of K8S_AUTH_API_KEY"
        ) as caught:
            cluster(server, refuses(401, "Unauthorized")).get(POD)
        assert "Bearer" not in str(caught.value) and len(server.requests) == 1

    @pytest.mark.parametrize(
        ("call", "rule", "manifest"),
        [
            (
                lambda c: c.list(ATTACHMENTS, name),
                '{apiGroups: ["storage.k8s.io"], resources: '
                '["volumeattachments"], verbs: ["list"]}',
                "audit",
            ),
            (
                lambda c: c.get(POD),
                '{apiGroups: [""], resources: ["pods"], verbs: ["get"]}',
                "repair",
            ),
            (
                lambda c: c.list("/api/v1/namespaces/a/pods", name),
                '{apiGroups: [""], resources: ["pods"], verbs: ["list"]}',
                "audit",
            ),
            (
                lambda c: c.get("/api/v1/namespaces/a"),
                '{apiGroups: [""], resources: ["namespaces"], verbs: ["get"]}',
                "audit",
            ),
            (
                lambda c: c.create(EVICTION, {}),
                '{apiGroups: [""], resources: ["pods/eviction"], verbs: ["create"]}',
                "repair",
            ),
            (
                lambda c: c.delete(ATTACHMENT, "u"),
                'resources: ["volumeattachments"], verbs: ["delete"]}',
                "repair",
            ),
            (
                lambda c: c.patch(path("apps/v1", "deployments", "d", "n", "scale"), {}),
                '{apiGroups: ["apps"], resources: ["deployments/scale"], verbs: ["patch"]}',
                "repair",
            ),
        ],
    )
    def test_403_says_what_is_missing(
        self, server: Server, call: Any, rule: str, manifest: str
    ) -> None:
        with pytest.raises(Forbidden) as caught:
            call(cluster(server, refuses(403, 'x is forbidden: User "audit" cannot do it')))
        text = str(caught.value)
        assert (
            'User "audit" cannot do it' in text
            and rule in text
            and f"playbooks/files/rbac-{manifest}.yml" in text
        )
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("group", "version", "resource", "verbs"),
        [*REQUESTS, *SCALE_DOWN, *FENCES, *PREPARE, *LEDGERS, *HOLDS],
    )
    def test_403_names_a_manifest_that_has_the_rule(
        self, server: Server, group: str, version: str, resource: str, verbs: str
    ) -> None:
        kind, _slash, subresource = resource.partition("/")
        folder = path(f"{group}/{version}".strip("/"), kind)
        item = path(f"{group}/{version}".strip("/"), kind, "x", "", subresource)
        calls = {
            "get": lambda c: c.get(item),
            "list": lambda c: c.list(folder, name),
            "watch": lambda c: list(changes(c, folder)),
            "create": lambda c: c.create(item, {}),
            "patch": lambda c: c.patch(item, {}),
            "delete": lambda c: c.delete(item, "u"),
        }
        for verb in verbs.split():
            with pytest.raises(Forbidden) as caught:
                calls[verb](cluster(server, refuses(403)))
            # The one with the fewest rights, of those that have it.
            allowed = {one: rights(one, "", OWN_NAMESPACE, "kube-system") for one in MANIFESTS}
            enough = next(one for one, found in allowed.items() if (group, resource, verb) in found)
            assert f"playbooks/files/{enough} " in str(caught.value)

    def test_403_of_the_record_names_its_manifest(self, server: Server) -> None:
        """Who may write this one may write no ledger."""
        where = path("v1", "configmaps", CLIENT_RECORD, OWN_NAMESPACE)
        for call in (lambda c: c.get(where), lambda c: c.patch(where, {})):
            with pytest.raises(Forbidden, match=r"playbooks/files/rbac-audit-record\.yml "):
                call(cluster(server, refuses(403)))
        (role,) = [item for item in items_of("rbac-audit-record.yml") if item["kind"] == "Role"]
        (made,) = [
            item for item in items_of("rbac-audit-record.yml") if item["kind"] == "ConfigMap"
        ]
        assert [rule["resourceNames"] for rule in role["rules"]] == [[CLIENT_RECORD]]
        assert (made["metadata"]["name"], made.get("data")) == (CLIENT_RECORD, None)

    def test_403_of_a_secret_names_no_manifest(self, server: Server) -> None:
        """No manifest has that right."""
        with pytest.raises(Forbidden, match=r'verbs: \["get"\]}') as caught:
            cluster(server, refuses(403)).get(path("v1", "secrets", "s3", "shop"))
        assert ".yml" not in str(caught.value)

    def test_403_in_a_namespace_names_it(self, server: Server) -> None:
        ledgers = path("v1", "configmaps", namespace=OWN_NAMESPACE)
        with pytest.raises(
            Forbidden, match=f"A role of this user in namespace {OWN_NAMESPACE} needs the"
        ):
            cluster(server, refuses(403)).list(ledgers, name)

    def test_the_manifests_have_what_is_asked_for_and_no_more(self) -> None:
        assert rights("rbac-repair.yml") == asked(REQUESTS)
        assert rights("rbac-repair-scale-down.yml") == asked(SCALE_DOWN)
        assert rights("rbac-fence.yml") == asked(FENCES)
        assert rights("rbac-fence-prepare.yml") == asked(PREPARE)
        assert rights("rbac-fence.yml", OWN_NAMESPACE) == asked(LEDGERS)
        assert rights("rbac-repair.yml", OWN_NAMESPACE) == asked(HOLDS)
        assert rights("rbac-audit-record.yml", "", OWN_NAMESPACE) == asked(RECORDS)
        for manifest in ("rbac-audit.yml", "rbac-repair.yml"):
            assert rights(manifest, "kube-system") == asked(LEADER)
        audits = rights("rbac-audit.yml")
        assert audits < asked(REQUESTS + FENCES)
        here = rights("rbac-audit.yml", OWN_NAMESPACE)
        assert {verb for _group, _resource, verb in audits | here} == {"get", "list", "watch"}

    @pytest.mark.parametrize("manifest", sorted(found.name for found in FILES.glob("rbac-*.yml")))
    def test_no_right_on_what_others_keep_in_kube_system(self, manifest: str) -> None:
        """Neither aws-auth nor the scheduler's Lease nor a Deployment; our own things are
        elsewhere.
        """
        bound = {
            item["roleRef"]["name"]
            for item in items_of(manifest)
            if item["kind"] == "ClusterRoleBinding"
        }
        for item in items_of(manifest):
            space = item["metadata"].get("namespace", "")
            if item["kind"] not in ("ClusterRole", "Role") or space not in ("", "kube-system"):
                continue
            if item["kind"] == "ClusterRole" and item["metadata"]["name"] not in bound:
                continue
            for rule in item["rules"]:
                resources, verbs = set(rule.get("resources", ())), set(rule["verbs"])
                if rule.get("resourceNames") == ["kube-controller-manager"]:
                    assert (resources, verbs) == ({"leases"}, {"get"})
                    continue
                assert not resources & {"configmaps", "leases", "secrets"}, rule
                assert not verbs - {"get", "list", "watch"} or not resources & {
                    "deployments",
                    "statefulsets",
                }, rule

    def test_no_account_reads_secrets_or_takes_all_there_is(self) -> None:
        """Nor does one write a status, remove a finalizer, or give rights."""
        roles = [
            item
            for one in FILES.glob("*.yml")
            for item in items_of(one.name)
            if item["kind"] in ("ClusterRole", "Role")
        ]
        assert len(roles) > 8
        for rule in (rule for role in roles for rule in role["rules"]):
            resources = set(rule.get("resources", ()))
            assert not resources & {"*", "secrets"} and "*" not in rule.get("apiGroups", ()), rule
            assert not {name for name in resources if name.endswith(("/status", "/finalizers"))}, (
                rule
            )
            assert not set(rule["verbs"]) - {"get", "list", "watch", "create", "patch", "delete"}, (
                rule
            )
            assert "rbac.authorization.k8s.io" not in rule.get("apiGroups", ()), rule

    def test_what_deletes_a_manifest_of_rights_deletes_no_ledger(self) -> None:
        found = {
            one.name: item["metadata"]["name"]
            for one in FILES.glob("*.yml")
            for item in items_of(one.name)
            if item["kind"] == "Namespace"
        }
        assert found == {"namespace.yml": OWN_NAMESPACE}

    def test_accounts_are_in_the_namespace_that_is_made(self) -> None:
        items = [item for one in FILES.glob("rbac-*.yml") for item in items_of(one.name)]
        accounts = {
            item["metadata"]["namespace"] for item in items if item["kind"] == "ServiceAccount"
        }
        bound = {subject["namespace"] for item in items for subject in item.get("subjects", ())}
        assert accounts == bound == {OWN_NAMESPACE}

    @pytest.mark.parametrize(
        ("code", "advice"),
        [(19, r"option ca_cert \(environment: K8S_AUTH_SSL_CA_CERT\)"), (62, "names")],
    )
    def test_a_certificate_that_is_not_trusted(self, code: int, advice: str) -> None:
        problem = ssl.SSLCertVerificationError(1, "certificate verify failed")
        problem.verify_code, problem.verify_message = code, "words of OpenSSL."
        with pytest.raises(
            KubeError, match=f"its certificate is not trusted: words of OpenSSL. .*{advice}$"
        ):
            raise _unreachable(_Request("GET", "/version"), "https://api", problem, "")

    def test_403_of_a_path(self, server: Server) -> None:
        with pytest.raises(
            Forbidden, match=r'\{nonResourceURLs: \["/version"\], verbs: \["get"\]\}'
        ):
            cluster(server, refuses(403)).version()

    @pytest.mark.parametrize("root", ["/apis", "/api"])
    def test_a_path_that_is_no_object_has_no_name(self, server: Server, root: str) -> None:
        groups = {"kind": "APIGroupList", "groups": []}
        client = cluster(server, says(groups), refuses(403))
        assert client.get(root) == groups
        with pytest.raises(Forbidden, match=rf'nonResourceURLs: \["{root}"\]'):
            client.get(root)

    def test_nobody_is_forbidden_everything(self, server: Server) -> None:
        with pytest.raises(Forbidden, match="the token of K8S_AUTH_API_KEY gave no credentials"):
            cluster(server, refuses(403, 'User "system:anonymous" cannot list')).list(PODS, name)

    @pytest.mark.parametrize("status", [200, 401, 403, 418, 503])
    @pytest.mark.parametrize(
        ("page", "title"),
        [
            (b"<html><title>Log in</title>" + b"x" * 5000, 'the page "Log in"'),
            (
                b"\n<!DOCTYPE HTML><head><style>a{}</style><title lang=en>\n Sign in &amp; go"
                b"\n</title>",
                'the page "Sign in & go"',
            ),
            (b"<html><body><h1>502</h1>Bad <b>Gateway</b></body>", "502 Bad Gateway"),
            (b"<html><title></title>nothing more", "nothing more"),
        ],
    )
    def test_a_page_of_a_proxy_is_shown(
        self, server: Server, status: int, page: bytes, title: str
    ) -> None:
        """With the URL, what was asked for, and what to do; and without its markup."""
        with pytest.raises(
            KubeError,
            match=f"cannot list pods: {server.url} answered {status}.*: {title}. So it is not an "
            "API server that answers, but .* check the option host",
        ) as caught:
            cluster(server, says(page, status, "text/html; charset=utf-8")).list(PODS, name)
        assert len(str(caught.value)) < 700 and "<" not in str(caught.value)
        assert "needs the rule" not in str(caught.value)

    def test_what_is_neither_json_nor_a_page(self, server: Server) -> None:
        with pytest.raises(
            KubeError, match=f"{server.url} answered 200 with text/plain instead of JSON: ok. So it"
        ):
            cluster(server, says(b"ok\n", 200, "text/plain")).get(POD)

    def test_a_port_without_tls_is_told_at_once(self, server: Server) -> None:
        url = server.url.replace("http:", "https:")
        with pytest.raises(
            KubeError,
            match=f"no connection to {url}: TLS failed: .*does not speak TLS.*http://.*proxy$",
        ):
            over_tls(url).version()
        assert server.connections == 1 and server.requests == []

    def test_a_server_that_has_answered_is_not_taken_for_another(self, server: Server) -> None:
        """A load balancer may answer in its place for a while."""
        made = over_tls(server.url.replace("http:", "https:"))
        made._answered = True
        with pytest.raises(KubeError, match=r"does not speak TLS.* \(\d\d tries in 1[12]\d"):
            made.version()

    def test_a_port_with_tls_is_told(self, server: Server) -> None:
        # What net/http of Go answers.
        said = says(b"Client sent an HTTP request to an HTTPS server.\n", 400, "text/plain")
        with pytest.raises(KubeError, match="HTTPS server. Begin the option host with https://$"):
            cluster(server, said).version()

    @pytest.mark.parametrize(
        ("status", "tries", "advice"),
        [
            (407, 1, "Give user and password of the proxy by proxy_headers.proxy_basic_auth"),
            (403, 1, "Does the proxy allow connections"),
            (501, 1, "except the host by no_proxy"),
            (503, 6, "Does the proxy allow connections"),
        ],
    )
    def test_a_proxy_that_refuses_is_named(
        self, server: Server, status: int, tries: int, advice: str
    ) -> None:
        server.answers = [refuses(status)]
        with pytest.raises(
            KubeError,
            match=f"no connection to https://api.example.com:6443 through the proxy {server.url}: "
            f"Tunnel connection failed: {status} .*{advice}",
        ):
            over_tls("https://api.example.com:6443", server.url).version()
        assert server.requests == ["CONNECT api.example.com:6443"] * tries

    def test_a_proxy_that_is_not_there_is_named(self) -> None:
        with pytest.raises(
            KubeError, match="through the proxy http://127.0.0.1:1: .*refused. Does a proxy listen"
        ):
            over_tls("https://api", "http://127.0.0.1:1").version()

    @pytest.mark.parametrize(
        ("reason", "said"),
        [
            ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "client_cert"),
            ("WRONG_VERSION_NUMBER", "does not speak TLS"),
        ],
    )
    def test_what_tls_refuses_is_not_tried_again(self, reason: str, said: str) -> None:
        problem = ssl.SSLError(1, "words of OpenSSL")
        problem.reason = reason
        made = _unreachable(_Request("GET", "/version"), "https://api", problem, "")
        assert said in str(made) and made.again is None

    @pytest.mark.parametrize(
        "kind", [ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError, ssl.SSLError]
    )
    def test_a_connection_that_ends_is_tried_again(self, kind: type[OSError]) -> None:
        problem = kind(8, "EOF")
        if kind is ssl.SSLError:
            problem.reason = "TLSV1_ALERT_INTERNAL_ERROR"
        made = _unreachable(_Request("GET", "/version"), "https://api", problem, "")
        assert made.again == 0 and made.args[0].endswith("may this host connect to it?")

    @pytest.mark.parametrize(
        "answer",
        [
            says(b"404 page not found\n", 404, "text/plain"),
            says(b"default backend - 404", 404, "text/html"),
            says(
                {
                    "type": "error",
                    "status": "404",
                    "message": "cluster not found",
                    "reason": "NotFound",
                },
                404,
            ),
            says({"kind": "Status", "message": "no route"}, 404),
            # What a real one says of a resource or a version that it does not have.
            says(
                {
                    "kind": "Status",
                    "message": "requested resource not found",
                    "reason": "NotFound",
                    "details": {},
                },
                404,
            ),
        ],
    )
    def test_only_the_api_server_can_say_that_an_object_does_not_exist(
        self, server: Server, answer: Any
    ) -> None:
        client = cluster(server, answer)
        calls = (
            lambda: client.get(POD),
            lambda: client.delete(POD, "u"),
            lambda: client.list(PODS, name),
        )
        for call in calls:
            with pytest.raises(
                KubeError, match="answered 404: .*(not found|404|no route).*or a proxy answered"
            ) as caught:
                call()
            assert not isinstance(caught.value, NotFound) and caught.value.status == 404
        assert len(server.requests) == 3

    def test_a_redirection_is_not_followed(self, server: Server) -> None:
        with pytest.raises(KubeError, match="302: .*https://login.example.com/"):
            cluster(server, says(b"", 302, Location="https://login.example.com/")).get(POD)
        assert len(server.requests) == 1

    def test_a_broken_object_is_an_error(self, server: Server) -> None:
        with pytest.raises(KubeError, match="was lost"):
            cluster(server, says(b'{"kind":')).get(POD)
        assert len(server.requests) == 6


def tells(*told: Any, end: bytes = b"") -> Any:
    """An answer with these changes, each on its line."""
    return says(b"".join(json.dumps(change).encode() + b"\n" for change in told) + end)


def change(kind: str, version: str = "8") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": "a", "resourceVersion": version}}}


class TestWatches:
    def test_what_has_changed(self, server: Server) -> None:
        told = [change("ADDED"), change("DELETED", "9"), change("BOOKMARK", "12")]
        found = list(changes(cluster(server, tells(*told)), PODS))
        assert [(each.kind, each.version) for each in found] == [
            ("ADDED", "8"),
            ("DELETED", "9"),
            ("BOOKMARK", "12"),
        ]
        assert server.requests == [
            f"GET {PODS}?watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=3"
        ]

    def test_they_have_connections_of_their_own(self, server: Server) -> None:
        client = cluster(server, tells(change("ADDED")), tells(change("DELETED")), says(WEB))
        with client.watch(PODS, "7") as one, client.watch(ATTACHMENTS, "7") as other:
            assert client.get(POD) == WEB
            assert [next(each).kind for each in (other, one)] == ["DELETED", "ADDED"]
        assert server.connections == 3

    @pytest.mark.parametrize("status", [403, 410, 429, 500, 504])
    def test_a_refusal_is_not_repeated(self, server: Server, status: int) -> None:
        with pytest.raises(KubeError) as caught:
            list(changes(cluster(server, refuses(status)), PODS))
        assert caught.value.status == status and len(server.requests) == 1

    @pytest.mark.parametrize(
        "answer",
        [
            resets,
            tells(change("ADDED"), end=b'{"type": "DELETED", "obj'),
            tells(
                change("ADDED"),
                end=b'{"type": "DELETED", "object": {"metadata": {"resourceVersion": "9"}}}',
            ),
            tells({"type": "GONE", "object": change("ADDED")["object"]}),
            tells({"type": "ADDED", "object": {"metadata": {}}}),
            tells({"type": "ADDED", "object": {"metadata": {"resourceVersion": "x"}}}),
            tells({"type": "ADDED"}),
            tells([]),
            tells(end=b"\n"),
            tells(
                {
                    "type": "ERROR",
                    "object": {
                        "kind": "Status",
                        "code": 410,
                        "message": "too old resource version",
                    },
                }
            ),
            tells({"type": "ERROR", "object": {"kind": "Status"}}),
        ],
    )
    def test_what_is_no_whole_change_is_an_error(self, server: Server, answer: Any) -> None:
        with pytest.raises(KubeError, match="cannot watch pods"):
            list(changes(cluster(server, answer), PODS))
        assert len(server.requests) == 1

    def test_the_newest_version_is_etcds(self, server: Server) -> None:
        assert cluster(server, lists("a", token="t")).newest(PODS) == "7"
        assert server.requests == [f"GET {PODS}?limit=1"]


class TestEndpoints:
    @pytest.mark.parametrize(
        "url", ["10.0.0.1:6443", "", "https://", "ftp://x", "https://x:y", "https://x:0"]
    )
    def test_a_host_is_a_url(self, url: str) -> None:
        with pytest.raises(StorageOpsError, match="host is"):
            Endpoint(url, "x")

    @pytest.mark.parametrize("proxy", ["socks5://p:1", "https://p:1", "p", "http://[::1"])
    def test_only_http_proxies(self, proxy: str) -> None:
        with pytest.raises(StorageOpsError, match="proxy.*(give|by) "):
            Endpoint("https://x", "x", proxy=proxy)

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("https://u:p@h:1/x", "https://h:1/x"),
            ("https://token@h", "https://h"),
            ("http://u:p/a@s@h:3128", "http://h:3128"),
            ("u:p@h:1", "h:1"),
            ("https://h:1/x", "https://h:1/x"),
            ("", ""),
        ],
    )
    def test_a_url_is_shown_without_its_password(self, url: str, shown: str) -> None:
        assert without_login(url) == shown

    def test_a_server_below_a_path(self, server: Server) -> None:
        server.answers = [says(WEB)]
        Cluster(Endpoint(f"{server.url}/k8s/clusters/c-1", "x"), Deadline(9), 5).get(POD)
        assert server.requests == [f"GET /k8s/clusters/c-1{POD}"]
