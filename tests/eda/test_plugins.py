# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter and the event source by themselves: nothing but names gets through, whatever comes in;
a watch is resumed, and bounded.
"""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lab.common import patient
from lab.kubernetes import api as k8s
from support.cluster import Cluster

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "extensions" / "eda" / "plugins"
MANIFESTS = ROOT / "playbooks" / "files"
# As ansible-rulebook loads them.
FILTER = runpy.run_path(str(PLUGINS / "event_filter" / "alerts.py"))
SHARES = FILTER["main"].__globals__["_SHARES"]
SOURCE = runpy.run_path(str(PLUGINS / "event_source" / "kubernetes_events.py"))
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?|")

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
WORDS = st.text() | st.sampled_from(
    [
        "shop",
        "web-0",
        "{{ 1 }}",
        "{% raw %}",
        "$(id)",
        "a\nb",
        "1e5",
        "2024",
        "0x10",
        "'",
        "-x",
        "x" * 300,
    ]
)
LABELS = st.dictionaries(
    st.sampled_from(["alertname", "namespace", "exported_namespace", "pod", "node", "other"]), WORDS
)


@given(JSON)
def test_filter_takes_anything(payload: Any) -> None:
    assert all(set(event) == {"alert"} for event in FILTER["main"]({"payload": payload}))
    assert FILTER["main"]({"payload": {"alerts": [payload]}}) == []


@given(st.lists(LABELS, max_size=5), st.booleans())
def test_filter_lets_only_names_through(alerts: list[dict[str, str]], exported: bool) -> None:
    payload = {
        "alerts": [
            {"status": "firing", "labels": labels, "annotations": {"summary": "{{ 1 }}"}}
            for labels in alerts
        ]
    }
    webhook = {"payload": payload, "meta": {"hosts": "everywhere"}}
    for event in FILTER["main"](webhook, exported_labels=exported):
        assert set(event) == {"alert"} and set(event["alert"]) == {
            "name",
            "namespace",
            "pod",
            "node",
        }
        assert all(
            NAME.fullmatch(event["alert"][label]) and len(event["alert"][label]) < 254
            for label in ("namespace", "pod", "node")
        )
        assert event["alert"]["namespace"] or not event["alert"]["pod"]


def firing(**labels: Any) -> dict[str, Any]:
    return {"status": "firing", "labels": {"alertname": "KubePodNotReady", **labels}}


def test_filter() -> None:
    """One event for each pod, by the name that kube-state-metrics means; a number that is a name
    stays as it is.
    """
    alerts = [
        firing(namespace="monitoring", exported_namespace="shop", pod="ksm", exported_pod="web-0")
    ]
    alerts += [firing(namespace="shop", pod="web-0"), firing()]
    alerts += [
        {**firing(namespace="old"), "status": "resolved"},
        firing(namespace="2024"),
        "no alert",
        firing(pod=["x"]),
    ]
    # What is not exported is of kube-state-metrics' own pod.
    alerts += [
        firing(namespace="monitoring", pod="ksm", node="infra1", exported_namespace="mail"),
        firing(pod="ksm", namespace="monitoring", exported_node="n1"),
    ]
    webhook = {"payload": {"alerts": alerts}}
    # What may be the word of a tenant is dropped, unless the user says what it means.
    kept = [event["alert"] for event in FILTER["main"](webhook)]
    assert [alert["namespace"] for alert in kept] == ["shop", "", "2024"]
    for word in (False, "False", "", None):
        assert [event["alert"] for event in FILTER["main"](webhook, exported_labels=word)] == kept
    assert FILTER["main"](webhook, exported_labels="True") == FILTER["main"](
        webhook, exported_labels=True
    )
    kept = [event["alert"] for event in FILTER["main"](webhook, exported_labels=True)]
    assert [(alert["namespace"], alert["pod"]) for alert in kept] == [
        ("shop", "web-0"),
        ("", ""),
        ("2024", ""),
        ("mail", ""),
        ("", ""),
    ]
    assert [alert["node"] for alert in kept] == ["", "", "", "", "n1"]
    # As an event stream of EDA controller hands it on, in place of the webhook.
    stream = {**webhook, "meta": {"eda_event_stream_name": "x", "headers": {"pod": "x"}}}
    assert FILTER["main"](stream, exported_labels=True) == [{"alert": alert} for alert in kept]
    flood = {"payload": {"alerts": [firing(namespace=f"n{number}") for number in range(500)]}}
    assert len(FILTER["main"](flood)) == 100 and len(FILTER["main"](flood, max_alerts=7)) == 7


def test_filter_gives_each_namespace_its_turn() -> None:
    """A tenant with many broken pods, or many alerts that are none, keeps no other out of a
    webhook.
    """
    evil = [firing(namespace="evil", pod=f"p{number}") for number in range(500)]
    evil += [firing(namespace="{{ 1 }}", pod=f"p{number}") for number in range(500)]
    alerts = [*evil, firing(namespace="shop", pod="web-0"), firing(namespace="bank", pod="db-0")]
    SHARES.clear()
    found = FILTER["main"]({"payload": {"alerts": alerts}}, max_alerts=4)
    told = [(event["alert"]["namespace"], event["alert"]["pod"]) for event in found]
    assert told == [("evil", "p0"), ("shop", "web-0"), ("bank", "db-0"), ("evil", "p1")]


def test_filter_gives_each_namespace_its_share(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant can have new pods fail all the time, and each was a run that all others wait for."""
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setitem(FILTER["main"].__globals__, "time", clock)
    SHARES.clear()

    def told(namespace: str, *pods: str) -> list[str]:
        alerts = [firing(namespace=namespace, pod=pod) for pod in pods]
        found = FILTER["main"]({"payload": {"alerts": alerts}}, pods_per_namespace=3)
        return [event["alert"]["pod"] for event in found]

    assert told("evil", "a", "b") == ["a", "b"] and told("evil", "c", "d", "e") == ["c"]
    # The same pod again is for the rulebook, which looks at it once in half an hour.
    assert told("evil", "a", "f") == ["a"] and told("shop", "web-0") == ["web-0"]
    assert caplog.records[0].getMessage() == (
        "2 alerts of namespace evil were dropped: it has had those of 3 pods in half an hour"
    )
    # What no namespace is named for is no tenant's.
    nodes = [firing(node=f"n{number}") for number in range(9)]
    assert len(FILTER["main"]({"payload": {"alerts": nodes}}, pods_per_namespace=3)) == 9
    now[0] += 1800
    assert told("evil", "f") == ["f"] and set(SHARES) == {"evil"}


def test_guide_routes_the_alerts_of_the_report() -> None:
    """What the guide tells Alertmanager to send has the alerts that this collection ships."""
    root = PLUGINS.parents[2]
    rules = yaml.safe_load(
        (root / "roles/compliance_report/files/prometheus-rules.yml").read_text()
    )
    names = [
        rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    ]
    guide = (root / "docs/guides/event_driven.md").read_text()
    # All alerts of one group are one webhook, of which the receiver takes a mebibyte.
    assert "      group_by: [namespace]\n" in guide
    routed = re.search(r'alertname =~ "(.*)"', guide)
    assert routed and names and all(re.fullmatch(routed[1], name) for name in names)


# The event source


def event(**more: Any) -> dict[str, Any]:
    """As the API server has it, of a kubelet."""
    return {
        "metadata": {"resourceVersion": "7", "namespace": "shop"},
        "type": "Warning",
        "reason": "FailedMount",
        "message": "{{ lookup('pipe', 'id') }}",
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0"},
        "source": {"component": "kubelet", "host": "worker01"},
        "firstTimestamp": "2026-11-21T20:00:00Z",
        "lastTimestamp": "2026-11-21T20:05:00Z",
        **more,
    }


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, True),
        ({"lastTimestamp": "2026-11-21T20:00:30Z"}, False),
        # Of the newer kind of events.
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "eventTime": "2026-11-21T20:00:00.000001Z",
            },
            False,
        ),
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "eventTime": "2026-11-21T20:00:00.000001Z",
            }
            | {"series": {"count": 3, "lastObservedTime": "2026-11-21T20:05:00.000001Z"}},
            True,
        ),
        ({"firstTimestamp": None, "lastTimestamp": None}, False),
        ({"type": "Normal"}, False),
        ({"reason": "BackOff"}, False),
        ({"involvedObject": {"kind": "Node", "name": "worker01"}}, False),
        ({"involvedObject": {"kind": "Pod", "namespace": "shop", "name": "{{ 1 }}"}}, False),
        ({"metadata": {"resourceVersion": "7", "namespace": "evil"}}, False),
        ({"metadata": {"resourceVersion": "7"}}, False),
    ],
)
def test_picked(more: dict[str, Any], kept: bool) -> None:
    found = SOURCE["pick"](event(**more), SOURCE["Wanted"]())
    assert found == (
        {"reason": "FailedMount", "namespace": "shop", "pod": "web-0", "node": "worker01"}
        if kept
        else None
    )


@given(
    st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)),
    st.lists(st.integers(1, 40)),
)
def test_lines_whatever_the_chunks(wanted: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(line + b"\n" for line in wanted)
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(whole[at : at + cut])
        at += cut
    assert list(SOURCE["lines"]([*chunks, whole[at:]])) == wanted


def test_a_line_without_end() -> None:
    """Passed over as it comes, and what follows it is read."""
    endless = (b"x" * 100_000 for _chunk in range(100))
    assert list(SOURCE["lines"](endless)) == []
    assert list(
        SOURCE["lines"]([*(b"x" * 100_000 for _chunk in range(100)), b"x\nnext\nla", b"st\n"])
    ) == [b"next", b"last"]


@pytest.mark.parametrize(
    "evil",
    [
        {"firstTimestamp": "0000-01-01T00:00:00Z"},
        {"lastTimestamp": "9999-12-31T23:59:59Z", "firstTimestamp": "0000-01-01T00:00:00Z"},
        {"firstTimestamp": "2026-11-21T20:00:00"},
        {"firstTimestamp": 5},
        {"message": "x" * 1_400_000},
        {"series": "x", "involvedObject": [1]},
        {"source": "x", "involvedObject": {"kind": "Pod", "namespace": "shop", "name": [1]}},
    ],
)
def test_no_event_hides_those_that_follow(
    evil: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A tenant's one ended the watch at the same version for ever."""
    changes = [
        {
            "type": "ADDED",
            "object": event(metadata={"resourceVersion": str(at), "namespace": "shop"}),
        }
        for at in (1, 2, 3)
    ]
    changes[1]["object"].update(evil)
    chunks = [json.dumps(change).encode() + b"\n" for change in changes]
    kept = [found for _version, found in SOURCE["follow"](chunks, SOURCE["Wanted"]()) if found]
    assert [found["pod"] for found in kept] == ["web-0", "web-0"]
    assert "passed over" in caplog.text


@given(JSON)
def test_changes_whatever_they_are(payload: Any) -> None:
    good = {"type": "ADDED", "object": event()}
    chunks = [
        json.dumps(change).encode() + b"\n"
        for change in (payload, {"type": "ADDED", "object": payload}, good)
    ]
    assert list(SOURCE["follow"](chunks, SOURCE["Wanted"]()))[-1][1]


def test_one_namespace_does_not_keep_the_others_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """A tenant may write events about any number of pods that need not be there, and each was a run
    of a playbook.
    """
    now = [1000.0]
    watcher = SOURCE["Watcher"]({"pods_per_namespace": 3}, print)
    watcher._shares = SOURCE["Shares"](3, lambda: now[0])

    def said(namespace: str, pod: str, reason: str = "FailedMount") -> bool:
        return bool(
            watcher._is_wanted({"namespace": namespace, "pod": pod, "reason": reason, "node": ""})
        )

    assert [said("evil", f"p-{number}") for number in range(10)] == [True] * 3 + [False] * 7
    assert said("shop", "web-0") and said("evil", "p-0", "FailedAttachVolume")
    assert [record.getMessage() for record in caplog.records] == [
        "events of more than 3 pods of namespace evil were dropped"
    ]
    now[0] += 1800
    assert said("evil", "p-9")


def test_said_once() -> None:
    now = [0.0]
    recent = SOURCE["Recent"](60, lambda: now[0])
    assert recent.is_new(("a",)) and not recent.is_new(("a",)) and recent.is_new(("b",))
    now[0] = 61
    assert recent.is_new(("a",))
    for number in range(20_000):
        recent.is_new((str(number),))
    assert len(recent._said) == 10_000


@pytest.fixture
def server() -> Iterator[tuple[str, list[str], list[Any]]]:
    """An API server that says what it is told to: (its URL, the versions that were asked for, its
    answers to watches, in order).
    """
    asked: list[str] = []
    answers: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if "watch" not in query:
                status, body = (
                    200,
                    json.dumps(
                        {"kind": "EventList", "metadata": {"resourceVersion": "100"}, "items": []}
                    ),
                )
            else:
                asked.append(query["resourceVersion"][0])
                status, body = answers.pop(0) if answers else (200, "")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked, answers
    server.shutdown()
    server.server_close()


def test_a_watch_is_resumed(
    server: tuple[str, list[str], list[Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it was, after its end, after an error, and from now on when its place is no longer
    known. The token is told to nobody.
    """
    url, asked, answers = server
    kubeconfig = tmp_path / "kubeconfig"
    user = {"name": "u", "user": {"token": "c3ecre7"}}
    context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
    whole = {
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [user],
        "contexts": [context],
        "current-context": "c",
    }
    kubeconfig.write_text(yaml.safe_dump(whole))

    def change(version: str, name: str, kind: str = "ADDED") -> str:
        found = event(
            metadata={"resourceVersion": version, "namespace": "shop"},
            involvedObject={"kind": "Pod", "namespace": "shop", "name": name},
        )
        return json.dumps({"type": kind, "object": found}) + "\n"

    bookmark = (
        json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "103"}}}) + "\n"
    )
    gone = json.dumps({"type": "ERROR", "object": {"code": 410}}) + "\n"
    answers += [
        (200, change("101", "a") + change("102", "a") + bookmark),
        (500, "c3ecre7"),
        (200, change("104", "b")),
        (200, gone),
    ]
    answers += [(200, change("105", "gone", "DELETED") + change("106", "d"))]

    async def watch() -> list[dict[str, Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(
            SOURCE["main"](queue, {"kubeconfig": str(kubeconfig), "reasons": "FailedMount, Other"})
        )
        found = [await asyncio.wait_for(queue.get(), patient(20)) for _event in range(3)]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return found

    found = asyncio.run(watch())
    assert [each["kubernetes_event"]["pod"] for each in found] == ["a", "b", "d"]
    assert asked[:5] == ["100", "103", "103", "104", "100"]
    assert "c3ecre7" not in caplog.text and "500" in caplog.text


def test_no_event_keeps_the_watch_from_its_beginning(
    control_plane_current: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is nested deeper than Python reads, in the namespace that is listed first."""
    cluster, api = control_plane_current, control_plane_current.api
    caplog.set_level("INFO")
    api.create(k8s.namespace("aaa"), k8s.pod("web-0"))
    about = {"kind": "Pod", "namespace": "aaa", "name": "x"}
    attack = json.dumps(
        {
            "metadata": {
                "name": "0",
                "managedFields": [
                    {"manager": "x", "operation": "Update", "apiVersion": "v1"}
                    | {"fieldsType": "FieldsV1", "fieldsV1": "DEEP"}
                ],
            },
            "involvedObject": about,
            "type": "Warning",
            "reason": "FailedMount",
        }
    ).replace('"DEEP"', '{"f:a":' * 3000 + "{}" + "}" * 3000)
    # The answer has it, too.
    with pytest.raises(RecursionError):
        api.request("POST", "/api/v1/namespaces/aaa/events", attack)
    with pytest.raises(RecursionError):
        api.request("GET", "/api/v1/events?limit=1&fieldSelector=type%3DWarning")
    said: list[dict[str, str]] = []
    kubeconfig = str(cluster.kubeconfig(MANIFESTS / "rbac-events.yml"))
    watcher = SOURCE["Watcher"]({"kubeconfig": kubeconfig}, said.append)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        cluster.wait(lambda: "watching the warnings" in caplog.text, "it watches", 20)
        pod = api.find("Pod", "web-0")
        assert pod
        told = {**k8s.event(pod, "FailedMount", "x"), "firstTimestamp": "2026-01-01T00:00:00Z"}
        api.create({**told, "count": 2})
        cluster.wait(lambda: [one["pod"] for one in said] == ["web-0"], "it is told", 20)
    finally:
        watcher.stop()
        thread.join(patient(30))
    assert not thread.is_alive()


def test_no_server_to_watch(tmp_path: Path) -> None:
    """A kubeconfig that cannot be used ends the rulebook, and its content is not shown."""
    (tmp_path / "kubeconfig").write_text("users: [{user: {token: c3ecre7}}]")
    with pytest.raises(RuntimeError, match="no API server to watch: .*kubectl config") as caught:
        asyncio.run(SOURCE["main"](asyncio.Queue(), {"kubeconfig": str(tmp_path / "kubeconfig")}))
    assert "c3ecre7" not in str(caught.value)
    for path, why in ((tmp_path / "nowhere", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(RuntimeError, match=f"the kubeconfig {path} cannot be read: {why}"):
            asyncio.run(SOURCE["main"](asyncio.Queue(), {"kubeconfig": str(path)}))
