# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a volume that no VolumeAttachment will ever tell of is with its new pod."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.unattached import (
    Told,
    is_new,
    read_told,
    shown_mounted,
    shown_unattached,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    AttachedVolume,
    without_attachment,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.client import Forbidden
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Claim,
    Node,
    Tenant,
    pick_claim,
    pick_node,
    pick_tenant,
    pick_volume,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster

NFS, RBD = "nfs.csi.k8s.io", "rbd.csi.ceph.com"
SHARE = {"nfs": {"server": "192.0.2.1", "path": "/"}}


def csi(driver: str) -> dict[str, Any]:
    return {"csi": {"driver": driver, "volumeHandle": "h"}}


def item(source: dict[str, Any], **claim: str) -> dict[str, Any]:
    owner = {"namespace": "shop", "name": "files", "uid": "uid-files", **claim}
    return {
        "metadata": {"name": "pv", "uid": "uid-pv"},
        "spec": {**source, "claimRef": owner},
        "status": {"phase": "Bound"},
    }


def covered(source: dict[str, Any]) -> AttachedVolume:
    """A volume of the fence that is not attached to the lost node."""
    return without_attachment("pv", "a", item(source))


def csi_driver(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": spec,
    }


def attachment(volume: str, driver: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"va-{volume}"},
        "spec": {
            "attacher": driver,
            "nodeName": "c",
            "source": {"persistentVolumeName": volume},
        },
        "status": {"attached": False},
    }


def shown(source: dict[str, Any], *objects: dict[str, Any]) -> str | None:
    """What a cluster with these objects shows of a volume."""
    found = covered(source)
    cluster: Any = FakeCluster(*objects)
    return shown_unattached(found, read_told(cluster, [found]))


NEVER, ALWAYS = csi_driver(NFS, attachRequired=False), csi_driver(RBD, attachRequired=True)


def test_what_is_never_attached() -> None:
    assert shown(csi(NFS), NEVER) == "nfs.csi.k8s.io attaches nothing"
    assert shown(csi(NFS), NEVER, attachment("other", RBD)) == "nfs.csi.k8s.io attaches nothing"
    assert shown(SHARE) == "NFS is never attached"


@pytest.mark.parametrize(
    ("source", "objects"),
    [
        # After a detach by force there is no attachment either.
        (csi(RBD), [ALWAYS]),
        (csi(RBD), [NEVER]),
        # attachRequired is true by default, and without a CSIDriver.
        (csi(NFS), [csi_driver(NFS)]),
        (csi(NFS), []),
        ({"local": {"path": "/mnt"}}, []),
        # What there is contradicts what the CSIDriver says.
        (csi(NFS), [NEVER, attachment("other", NFS)]),
        (csi(NFS), [NEVER, attachment("pv", "another.example.com")]),
        (SHARE, [attachment("pv", "another.example.com")]),
    ],
    ids=["rbd", "another driver", "default", "no CSIDriver", "local", "attaching", "csi", "nfs"],
)
def test_what_is_or_may_be_attached(source: dict[str, Any], objects: list[dict[str, Any]]) -> None:
    assert shown(source, *objects) is None


def test_what_was_attached_to_the_lost_node_is_attached_elsewhere_too() -> None:
    found = covered(csi(NFS))
    here = found._replace(attachment=found.attachment._replace(name="va"))
    told = Told(exempt=frozenset({NFS}))
    assert shown_unattached(found, told) and shown_unattached(here, told) is None
    assert shown_unattached(found._replace(volume=None), told) is None
    cluster = FakeCluster(NEVER)
    assert read_told(cluster, [here]) == Told() and cluster.requests == []  # type: ignore[arg-type]


def test_a_driver_that_may_not_be_read_is_none_that_attaches_nothing() -> None:
    def forbid(verb: str, place: str) -> None:
        if "csidrivers" in place:
            raise Forbidden("no", 403)

    cluster = FakeCluster(NEVER)
    cluster.before = forbid
    told = read_told(cluster, [covered(csi(NFS))])  # type: ignore[arg-type]
    assert told == Told(unread=frozenset({NFS}))
    # The list of all attachments is read only where it matters.
    assert not [request for request in cluster.requests if "volumeattachments" in request]


RUNNING = {"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
READY = {"type": "Ready", "status": "True"}
STATUS: dict[str, Any] = {"phase": "Running", "conditions": [READY]}
CLAIM = {
    "metadata": {"namespace": "shop", "name": "files", "uid": "uid-files"},
    "spec": {"volumeName": "pv"},
    "status": {"phase": "Bound"},
}


def tenant(status: dict[str, Any] = STATUS, node: str = "b", uid: str = "new") -> Tenant:
    found = pick_tenant(
        {
            "metadata": {"namespace": "shop", "name": "web-0", "uid": uid},
            "spec": {
                "nodeName": node,
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "files"}}],
            },
            "status": status,
        },
        ("files",),
    )
    assert found
    return found


def claim(**more: Any) -> Claim:
    return pick_claim({**CLAIM, **more})


def mounted(found: Tenant, its: Claim | None, **owner: str) -> str | None:
    volume = pick_volume(item(SHARE, **owner))
    return shown_mounted(found, its, volume, "a", frozenset({"old"}))


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (STATUS, "is Ready"),
        ({"phase": "Running", "containerStatuses": [RUNNING]}, "has started"),
        ({"phase": "Running", "initContainerStatuses": [RUNNING]}, "has started"),
    ],
)
def test_a_pod_that_runs_has_its_volumes_mounted(status: dict[str, Any], how: str) -> None:
    assert mounted(tenant(status), claim()) == f"pod shop/web-0 (new) {how} on b"


@pytest.mark.parametrize(
    "status",
    [
        {**STATUS, "phase": "Unknown"},
        {**STATUS, "phase": ""},
        {"conditions": [READY]},
        {**STATUS, "phase": "Pending"},
        # Its kubelet has refused it, or has not said yet what became of it.
        {"phase": "Running"},
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "Unknown"}]},
        {"phase": "Running", "containerStatuses": [{"name": "c", "state": {}}]},
        {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"waiting": {}}}]},
        {
            "phase": "Running",
            "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}],
        },
    ],
)
def test_any_other_pod_may_not_have_it(status: dict[str, Any]) -> None:
    assert mounted(tenant(status), claim()) is None


def test_a_pod_of_the_lost_node_is_no_new_one() -> None:
    assert mounted(tenant(node="a"), claim()) is None
    assert mounted(tenant(uid="old"), claim()) is None


def test_a_claim_that_was_made_again_has_another_volume() -> None:
    other = {"metadata": {**CLAIM["metadata"], "uid": "uid-2"}}
    assert mounted(tenant(), None) is None
    assert mounted(tenant(), claim(spec={"volumeName": "pv-2"})) is None
    assert mounted(tenant(), claim(**other)) is None
    assert mounted(tenant(), claim(status={"phase": "Lost"})) is None
    assert mounted(tenant(), claim(), uid="uid-2") is None


LOST = datetime(2026, 1, 2, tzinfo=timezone.utc)
OWNED = {"accessModes": ["ReadWriteOnce"]}


def lost_node(ready: datetime | None, tainted: datetime | None) -> Node:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    at = {"timeAdded": f"{tainted:%Y-%m-%dT%H:%M:%SZ}"} if tainted else {}
    since = {"lastTransitionTime": f"{ready:%Y-%m-%dT%H:%M:%SZ}"} if ready else {}
    return pick_node(
        {
            "metadata": {"name": "a", "uid": "uid-a"},
            "spec": {"taints": [{**taint, **at}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown", **since}]},
        }
    )


@pytest.mark.parametrize("days", [-400, 0, 400])
def test_which_pods_of_what_is_never_attached_are_new(days: int) -> None:
    """The lost kubelet may write any time that it was Ready, but no taint."""
    node = lost_node(LOST + timedelta(days=days), LOST)
    never, told = covered({**SHARE, **OWNED}), Told()
    now = LOST + timedelta(days=1)
    for hours, new in ((-1, False), (0, True), (1, True)):
        made = tenant().pod._replace(created=LOST + timedelta(hours=hours))
        assert is_new(made, never, told, node, now) is new
    # What is attached, one node alone has; else the time of its condition tells.
    old = tenant().pod._replace(created=LOST - timedelta(hours=1))
    assert is_new(old, covered({**csi(RBD), **OWNED}), told, node, now)
    shared = covered({**csi(RBD), "accessModes": ["ReadWriteMany"]})
    assert is_new(old, shared, told, node, now) is (days < 0)


def test_without_a_time_any_pod_may_be_new() -> None:
    never, made = covered(SHARE), tenant().pod._replace(created=LOST)
    late = LOST + timedelta(days=1)
    assert is_new(made, never, Told(), None, late)
    assert is_new(made, never, Told(), lost_node(None, None), late)
    assert is_new(made._replace(created=None), never, Told(), lost_node(late, late), late)
    # One of the two does.
    assert not is_new(made, never, Told(), lost_node(late, None), late)
    assert not is_new(made, never, Told(), lost_node(None, late), late)
