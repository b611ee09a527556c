# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists that are too long to be read twice, or at once: followed by watches, read in pages; on a
filled etcd without controllers.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab.common import patient
from lab.kubernetes import api as k8s
from lab.kubernetes import load
from lab.kubernetes.build import CURRENT, OLD
from lab.kubernetes.controlplane import ControlPlane
from lab.kubernetes.proxy import Proxy
from support.cluster import Cluster as Lab
from support.fixtures import start_if_it_can_be_had
from support.node import Outcome
from support.rights import FILES
from support.selection import variation

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import (
    client as client_module,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import (
    followed as followed_module,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import (
    Cluster,
    KubeError,
    path,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.followed import Followed
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.options import (
    AUTH,
    make_cluster,
)

AUDITOR, REPAIRER = FILES / "rbac-audit.yml", FILES / "rbac-repair.yml"
# Suspects on more nodes than are asked for their pods one by one, and of each kind more than are
# read one by one. The pods are more than the buffers between two programs take.
LOAD = load.Load(nodes=800, volumes=800, pods=4_000, broken=200)
FOUND = 4 * LOAD.broken
# Seconds after which this API server cuts off who reads slowly.
CUT_OFF = 20
PODS = path("v1", "pods")
MAPS = path("v1", "configmaps", namespace="default")


@pytest.fixture(scope="module", params=[variation(OLD), CURRENT])
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A filled control plane of each version, that nobody puts in order."""
    made = ControlPlane(
        f"big-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}-{os.getpid()}",
        request.param,
        controller_manager=False,
        scheduler=False,
        apiserver_args=[f"--request-timeout={CUT_OFF}s"],
    )
    start_if_it_can_be_had(f"Kubernetes {made.number}", made.start)
    try:
        load.fill(made, LOAD)
        yield made
    finally:
        made.remove()


@pytest.fixture
def lab(plane: ControlPlane) -> Iterator[Lab]:
    """The cluster, which a test leaves as it was."""
    cluster = Lab(plane)
    # Everything is attached, and it would read all attachments all the time.
    cluster.attacher.stop()
    yield cluster
    cluster.close()


def connect(proxy: Proxy | Lab) -> Cluster:
    """The client that a module would have."""
    given = {
        "request_timeout": patient(60),
        "deadline": patient(240),
        "kubeconfig": str(proxy.kubeconfig()),
    }
    return make_cluster({**dict.fromkeys(AUTH.options), **given})


def name(item: dict[str, Any]) -> str:
    """What is kept of an object here."""
    found: str = item["metadata"]["name"]
    return found


@contextlib.contextmanager
def traffic(lab: Lab, what: str) -> Iterator[None]:
    """Changes now and then to an object, as there always are in a cluster that is in use.

    An old API server, and one without requests for the newest state, knows how far it is by changes
    alone.
    """
    enough = threading.Event()

    def touch() -> None:
        number = 0
        while not enough.wait(0.05):
            number += 1
            lab.api.merge(what, {"metadata": {"annotations": {"touched": str(number)}}})

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def config_map(of: str, **data: str) -> dict[str, Any]:
    """A small object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": of, "namespace": "default"},
        "data": data,
    }


def data(item: dict[str, Any]) -> str | None:
    """What is kept of it."""
    return f"{name(item)}={item['data']['is']}" if "is" in item.get("data", {}) else None


@pytest.fixture
def maps(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Some objects, which are taken away in the end."""
    lab.api.create(
        *(config_map(of, **{"is": "old"}) for of in ("changed", "gone", "same")),
        config_map("touched"),
    )
    # They are few, and followed all the same.
    monkeypatch.setattr(followed_module, "SHORT", -1)
    yield lab
    for of in ("changed", "gone", "same", "new", "touched"):
        lab.api.delete(path("v1", "configmaps", of, "default"))


def change(lab: Lab) -> None:
    """One is new, one is another, one is gone, and one came and went."""
    lab.api.create(config_map("new", **{"is": "new"}), config_map("passing", **{"is": "there"}))
    lab.api.merge(path("v1", "configmaps", "changed", "default"), {"data": {"is": "new"}})
    lab.api.delete(path("v1", "configmaps", "gone", "default"))
    lab.api.delete(path("v1", "configmaps", "passing", "default"))


NOW = ["changed=new", "new=new", "same=old"]
PASSED = ["new=new", "passing=there", "changed=new", "gone=old", "passing=there"]


def known(lab: Lab, proxy: Proxy) -> Followed[str]:
    """A list that has what the API server's memory may get to know only a moment later."""
    there = {"changed=old", "gone=old", "same=old"}

    def read() -> Followed[str] | None:
        found = Followed(connect(proxy), MAPS, data)
        return found if there <= set(found.items.values()) else None

    return lab.wait(read, "the list")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traffic comes in time on a busy machine, too."""
    monkeypatch.setattr(client_module, "WATCH_SECONDS", 60)


@pytest.mark.smoke
@pytest.mark.usefixtures("patience")
def test_what_has_changed_is_told_by_a_watch(maps: Lab) -> None:
    proxy = maps.proxy()
    followed = known(maps, proxy)
    change(maps)
    proxy.clear()
    with traffic(maps, path("v1", "configmaps", "touched", "default")):
        followed.begin()
        passed = followed.finish()
    assert passed == PASSED
    assert sorted(followed.items.values()) == NOW
    assert [request.path.partition("?")[2].partition("&")[0] for request in proxy.requests] == [
        "limit=1",
        "watch=1",
    ]


def test_nothing_has_changed_and_nothing_does(maps: Lab) -> None:
    """An old API server's memory does not get to know that: what it has not told is read again."""
    proxy = maps.proxy()

    def is_told() -> bool:
        followed = known(maps, proxy)
        # So that etcd has a newer version than any of these objects.
        maps.api.merge(
            path("v1", "namespaces", "default"), {"metadata": {"labels": {"touched": None}}}
        )
        maps.api.merge(
            path("v1", "namespaces", "default"), {"metadata": {"labels": {"touched": "yes"}}}
        )
        proxy.clear()
        followed.begin()
        assert followed.finish() == []
        assert sorted(followed.items.values()) == ["changed=old", "gone=old", "same=old"]
        return not any("limit=500" in request.path for request in proxy.requests)

    if maps.plane.version == OLD:
        assert not is_told()
    else:
        # On a busy machine the watch may be over before its bookmark comes.
        maps.wait(is_told, "a bookmark in time", 60)


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_watch_that_is_cut(maps: Lab, share: float) -> None:
    proxy = maps.proxy()
    followed = known(maps, proxy)
    change(maps)
    rule = proxy.on("GET", "watch=1", cut=share)
    followed.begin()
    followed.finish()
    assert rule.matched == 1
    assert sorted(followed.items.values()) == NOW
    assert "limit=500" in proxy.requests[-1].path


def test_a_version_that_the_api_server_has_forgotten(maps: Lab) -> None:
    """It was restarted, and knows nothing of what was before."""
    proxy = maps.proxy()
    followed = known(maps, proxy)
    client = connect(proxy)
    version = client.read(MAPS, data).version
    change(maps)
    maps.plane.restart_apiserver()
    with (
        pytest.raises(KubeError, match="too old resource version|expired") as caught,
        client.watch(MAPS, version) as told,
    ):
        list(told)
    assert caught.value.status == 410
    followed.begin()
    followed.finish()
    assert sorted(followed.items.values()) == NOW
    assert "limit=500" in proxy.requests[-1].path


def test_a_list_that_a_slow_client_cannot_read_at_once(lab: Lab) -> None:
    """The API server cuts it off each time.

    Pages are short enough, and they are asked for from then on.
    """
    proxy = lab.proxy()
    # The API server writes what it has made of a list, and looks at the clock between two writes:
    # one of 1.20 makes it whole first.
    slow = proxy.on("GET", r"/pods\?resourceVersion=0", stall=CUT_OFF + 10)
    client = connect(proxy)
    pods = client.list(PODS, name, cached=True)
    assert (
        sorted(pods) == sorted({name(pod) for pod in lab.api.all("Pod")}) and len(pods) == LOAD.pods
    )
    assert slow.matched == 1
    if lab.plane.version == OLD:
        return
    assert [request.path.partition("&")[0] for request in proxy.requests] == [
        f"{PODS}?resourceVersion=0",
        *[f"{PODS}?limit=500"] * (LOAD.pods // 500),
    ]
    proxy.requests.clear()
    assert len(client.list(PODS, name, cached=True)) == LOAD.pods
    assert {request.path.partition("&")[0] for request in proxy.requests} == {f"{PODS}?limit=500"}


QUICK: dict[str, Any] = {
    "min_age_seconds": 0,
    "observation_seconds": 1,
    "deadline": patient(240),
    "request_timeout": patient(60),
}


def audit(lab: Lab, proxy: Proxy) -> Outcome:
    """Both observations of everything that looks wrong, with exactly the rights that
    are shipped.
    """
    controls = [f"STOR-{number}" for number in range(11, 16)]
    return lab.ansible(
        "cluster_storage_info", user=AUDITOR, proxy=proxy, controls=controls, **QUICK
    )


def whole_lists(proxy: Proxy, resource: str) -> list[str]:
    """How a collection was read as a whole, page by page."""
    asked = [
        request.path.partition("?")[2]
        for request in proxy.requests
        if request.path.split("?")[0].endswith(f"/{resource}")
    ]
    return [
        query for query in asked if query == "resourceVersion=0" or query.startswith("limit=500")
    ]


def orphan(number: int) -> str:
    """The attachment of a volume that is left over."""
    handle = LOAD.unique_name(number).partition("^")[2]
    return k8s.attachment_name(handle, LOAD.driver(number), LOAD.node(number))


def orphans(outcome: Outcome) -> set[str]:
    """What is left over. So many findings are cut, but these come first."""
    assert not outcome.failed, outcome.msg
    found = [finding["object"] for finding in outcome.findings if finding["control"] == "STOR-11"]
    return {entry["name"] for entry in found}


# By their names, as they are told.
FIRST, SECOND, *_OTHERS = sorted(range(LOAD.broken), key=orphan)
CLAIM, SPACE = f"data-app-{FIRST:06d}", f"bulk-{FIRST % 100:02d}"


def only_the_first_is_missing(outcome: Outcome) -> None:
    """Among everything that is broken."""
    assert outcome.msg.startswith(f"{FOUND - 1} findings"), outcome.msg
    found = orphans(outcome)
    assert orphan(FIRST) not in found and orphan(SECOND) in found


def at_the_second_look(proxy: Proxy, do: Callable[[], Any]) -> None:
    """Before the audit asks for the version that is to be known of pods."""
    proxy.on("GET", r"^/api/v1/pods\?limit=1$", times=1, before=do)


def test_pods_are_read_once_and_what_comes_and_goes_is_seen(lab: Lab) -> None:
    """No second list can tell of a pod that needed an attachment for a moment."""
    proxy = lab.proxy()
    passing = k8s.pod("passing", [CLAIM], LOAD.node(FIRST), SPACE)

    def come_and_go() -> None:
        lab.api.create(passing)
        lab.api.delete(k8s.path_of(passing), grace=0)

    at_the_second_look(proxy, come_and_go)
    with traffic(lab, k8s.path("Pod", "app-003999", "bulk-99")):
        # So many are an outage, and none is repaired.
        options = {"user": REPAIRER, "check": True, **QUICK}
        found = lab.ansible("volumeattachment_repair", proxy=proxy, **options)
    only_the_first_is_missing(found)
    assert not found.outcomes
    assert whole_lists(proxy, "pods") == ["resourceVersion=0"]
    lab.used(
        "rbac-repair.yml",
        "watch volumeattachments",
        "watch persistentvolumes",
        "watch persistentvolumeclaims",
        "watch nodes",
        "watch pods",
        "list csinodes",
    )


@pytest.mark.parametrize("action", [{"cut": 0.0}, {"status": 403}, {"reset": True}], ids=str)
def test_without_a_watch_it_finds_the_same(lab: Lab, action: dict[str, Any]) -> None:
    proxy = lab.proxy()
    proxy.on("GET", "watch=1", **action)
    # It comes and stays, and the second list has it.
    stays = k8s.pod("stays", [CLAIM], LOAD.node(FIRST), SPACE)
    at_the_second_look(proxy, lambda: lab.api.create(stays))
    try:
        found = audit(lab, proxy)
    finally:
        lab.api.delete(k8s.path_of(stays), grace=0)
    only_the_first_is_missing(found)
    if "cut" in action:
        # It comes to the API server, and its answer does not come back.
        lab.used(
            "rbac-audit.yml",
            "watch volumeattachments",
            "watch persistentvolumes",
            "watch persistentvolumeclaims",
            "watch nodes",
            "watch pods",
            "list csinodes",
        )
    pages = [query.partition("&")[0] for query in whole_lists(proxy, "pods")]
    assert pages == ["resourceVersion=0", *["limit=500"] * (LOAD.pods // 500 + 1)]
