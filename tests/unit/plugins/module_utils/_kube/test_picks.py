# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever tenants and kubelets write: one object ends no list."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes import records
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.plan import (
    pick_lost_pod,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.network_fence import (
    pick_fence,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    pick_host_record,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._inventory import hosts
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import objects
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.events import pick_message
from ansible_collections.storage_ops.runbooks.plugins.module_utils._network_fences import (
    plan as prepared,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._network_fences import reports
from ansible_collections.storage_ops.runbooks.plugins.module_utils._reattach import (
    records as workloads,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.state import pick_seen

TIME = "2026-01-31T12:00:00Z"
META = {
    "namespace": "shop",
    "name": "a",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": TIME,
    "deletionTimestamp": TIME,
    "deletionGracePeriodSeconds": 30,
    "finalizers": ["x/y"],
    "annotations": {"kubernetes.io/config.mirror": "0a", objects.CORDON + "x": "{}"},
    "labels": {"app": "a"},
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "o", "controller": True}
    ],
}
RUNS = {"running": {"startedAt": TIME}}
ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no", "finishedAt": TIME}}
WAITS = {"waiting": {"reason": "CrashLoopBackOff", "message": "no"}}
STATUS = {"name": "c", "ready": False, "restartCount": 1, "containerID": "cri://1"}
POD = {
    "metadata": META,
    "spec": {
        "nodeName": "w1",
        "terminationGracePeriodSeconds": 30,
        "restartPolicy": "Always",
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "i", "csi": {"driver": "d"}},
            {"name": "t", "emptyDir": {"medium": ""}},
        ],
        "containers": [
            {
                "name": "c",
                "volumeMounts": [{"name": "v", "mountPath": "/data", "subPath": "x"}],
                "livenessProbe": {"exec": {"command": ["ls", "/data"]}},
            }
        ],
        "initContainers": [{"name": "s", "restartPolicy": "Always", "volumeMounts": []}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "", "tolerationSeconds": 3}],
    },
    "status": {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "no", "lastTransitionTime": TIME}
        ],
        "containerStatuses": [
            {**STATUS, "state": RUNS, "lastState": ENDED},
            {**STATUS, "state": WAITS, "lastState": {}},
        ],
        "initContainerStatuses": [{**STATUS, "state": ENDED, "lastState": ENDED}],
    },
}
CLAIM = {
    "metadata": META,
    "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"], "storageClassName": "s"},
    "status": {"phase": "Bound"},
}
VOLUME = {
    "metadata": META,
    "spec": {
        "csi": {
            "driver": "d",
            "volumeHandle": "h",
            "volumeAttributes": {"a": "b"},
            "nodeStageSecretRef": {"name": "s", "namespace": "shop"},
        },
        "claimRef": {"namespace": "shop", "name": "data", "uid": "c"},
        "accessModes": ["ReadWriteOnce"],
        "mountOptions": ["ro"],
    },
    "status": {"phase": "Bound"},
}
ATTACHMENT = {
    "metadata": META,
    "spec": {"attacher": "d", "nodeName": "w1", "source": {"persistentVolumeName": "pv"}},
    "status": {
        "attached": True,
        "attachmentMetadata": {"a": "b"},
        "attachError": {"message": "rpc error: code = Internal desc = x", "time": TIME},
        "detachError": {"message": "no", "time": TIME, "errorCode": 9},
    },
}
NODE = {
    "metadata": META,
    "spec": {
        "unschedulable": True,
        "taints": [{"key": objects.HOLD, "value": "v", "effect": "NoSchedule"}],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
        "volumesAttached": [{"name": "kubernetes.io/csi/d^h", "devicePath": ""}],
        "volumesInUse": ["kubernetes.io/csi/d^h"],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"bootID": "b", "machineID": "m", "systemUUID": "s", "osImage": "o"},
    },
}
EVENT = {
    "metadata": META,
    "type": "Warning",
    "reason": "FailedMount",
    "message": "no",
    "count": 3,
    "lastTimestamp": TIME,
    "eventTime": TIME,
    "series": {"count": 3, "lastObservedTime": TIME},
    "involvedObject": {"uid": "u", "namespace": "shop"},
}
WORKLOAD = {"metadata": META, "spec": {"replicas": 1, "template": {"spec": {"nodeName": "w1"}}}}
FENCE = {
    "metadata": META,
    "spec": {
        "driver": "d",
        "cidrs": ["10.0.0.1/32"],
        "fenceState": "Fenced",
        "parameters": {"clusterID": "c"},
    },
    "status": {"result": "Succeeded", "message": "done"},
}
ENDPOINT = {
    "metadata": META,
    "spec": {"driver": {"name": "d", "nodeID": "w1", "endpoint": "e"}},
    "status": {
        "state": "Connected",
        "networkFenceClientStatus": [
            {"networkFenceClassName": "n", "ClientDetails": [{"id": "1", "cidrs": ["10.0.0.1/32"]}]}
        ],
    },
}
CSINODE = {"metadata": META, "spec": {"drivers": [{"name": "d", "nodeID": "w1"}]}}
LEASE = {"metadata": META, "spec": {"holderIdentity": "x", "renewTime": TIME}}

PICKS: dict[str, tuple[Callable[[dict[str, Any]], Any], dict[str, Any]]] = {
    "pod": (objects.pick_pod, POD),
    "user": (objects.pick_user, POD),
    "seen": (pick_seen, POD),
    "tenant": (lambda item: objects.pick_tenant(item, ("data",)), POD),
    "tenant of a volume": (records.pick_tenant, POD),
    "lost pod": (pick_lost_pod, POD),
    "claim": (objects.pick_claim, CLAIM),
    "bound claim": (records.pick_bound_claim, CLAIM),
    "claim state": (workloads.pick_claim_state, CLAIM),
    "volume": (objects.pick_volume, VOLUME),
    "csi volume": (records.pick_csi_volume, VOLUME),
    "attachment": (objects.pick_attachment, ATTACHMENT),
    "node": (objects.pick_node, NODE),
    "host": (pick_host_record, NODE),
    "held host": (workloads.pick_host, NODE),
    "fenced host": (prepared.pick_host, NODE),
    "event": (pick_message, EVENT),
    "workload": (lambda item: workloads.pick_workload(item, "Deployment"), WORKLOAD),
    "fence": (lambda item: pick_fence(item, {}), FENCE),
    "endpoint": (reports.pick_endpoint, ENDPOINT),
    "sidecar": (reports.pick_sidecar, POD),
    "node drivers": (objects.pick_node_drivers, CSINODE),
    "host of an inventory": (hosts.pick_host, NODE),
    "registered drivers": (hosts.pick_registered, CSINODE),
    "lease": (objects.pick_lease, LEASE),
}

# What an API server always writes, since it requires it or has no "omitempty" for it.
REQUIRED = {
    *("metadata", "namespace", "name", "uid", "spec", "type", "status", "kind", "driver", "key"),
    *("claimName", "attacher", "nodeName", "address", "template", "mountPath", "volumeHandle"),
    *("networkFenceClassName", "resourceVersion"),
}
TEXTS = ["", "a" * 5_000, "\u202e\x1b[2J", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]
TEXTS += ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59", "True", "{[", "10.0.0.0/0"]
NUMBERS = [0, -1, 2**31 - 1, 2**63 - 1, -(2**63), 10**11]
ANYTHING = [None, True, 2**63, float("inf"), float("nan"), "", "x", [], {}, [1], {"a": [1]}]
GONE = object()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys and indices of everything in an object."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        yield (*place, key)
        if isinstance(item, (dict, list)):
            yield from places(item, (*place, key))


def taken(item: Any, key: Any) -> list[Any]:
    """What the API server takes in the place of this."""
    if key in REQUIRED:
        return [item]
    if isinstance(item, bool):
        return [True, False, GONE]
    if isinstance(item, (dict, list)):
        return [GONE]
    return [GONE, *(NUMBERS if isinstance(item, int) else TEXTS)]


@st.composite
def changed(draw: Any, item: dict[str, Any], choices: Callable[[Any, Any], list[Any]]) -> Any:
    """The object with some of its parts changed to one of the choices."""
    item = copy.deepcopy(item)
    for place in draw(st.lists(st.sampled_from(list(places(item))), max_size=4)):
        *above, key = place
        inner: Any = item
        with contextlib.suppress(KeyError, IndexError, TypeError):  # it was changed above
            for step in above:
                inner = inner[step]
            choice = draw(st.sampled_from(choices(inner[key], key)))
            if choice is GONE:
                del inner[key]
            else:
                inner[key] = choice
    return item


@pytest.mark.parametrize("name", PICKS)
@settings(max_examples=40)
@given(data=st.data())
def test_every_object_that_the_api_server_takes_becomes_a_record(name: str, data: Any) -> None:
    pick, item = PICKS[name]
    pick(data.draw(changed(item, taken)))


@pytest.mark.parametrize("name", PICKS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_no_such_object_is_left_out_and_noted(name: str, data: Any) -> None:
    pick, item = PICKS[name]
    unread: dict[str, str] = {}
    objects.leniently(pick, unread)(data.draw(changed(item, lambda _item, _key: ANYTHING)))
    assert all(place and why for place, why in unread.items())


END = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("grace", "ending"),
    [
        (0, END),
        (30, END - timedelta(seconds=30)),
        (10**11, datetime.min.replace(tzinfo=timezone.utc)),
        (2**63 - 1, datetime.min.replace(tzinfo=timezone.utc)),
        (-(2**63), datetime.max.replace(tzinfo=timezone.utc)),
    ],
)
def test_a_grace_period_is_as_long_as_its_owner_wants(grace: int, ending: datetime) -> None:
    meta = {**META, "deletionGracePeriodSeconds": grace}
    assert pick_seen({**POD, "metadata": meta}).ending == ending


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"metadata": {"namespace": "evil", "name": "p"}}, "evil/p"),
        ({"metadata": {"name": "w1"}}, "w1"),
        ({"metadata": None}, "an object without a name"),
        (7, "an object without a name"),
    ],
)
def test_what_is_left_out_is_named(item: Any, place: str) -> None:
    unread: dict[str, str] = {}
    assert objects.leniently(objects.pick_pod, unread)(item) is None
    assert list(unread) == [place]
