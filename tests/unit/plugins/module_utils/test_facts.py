# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module hands on besides its findings, with hostile and endless text in it: bounded,
escaped, and never cut in the middle.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph import (
    addresses,
    blocklist,
    images,
    watchers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.watched import Watched
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph_clients.runbook import (
    CephClients,
    Client,
    NodeClients,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph_record import (
    plan as record_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph_record.runbook import (
    ClientRecord,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.runbook import (
    StaleContainers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes import (
    plan as csi_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.credentials import (
    Credentials,
    CsiSecrets,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._csi_volumes.runbook import (
    CsiVolumes,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._failover.runbook import (
    Failover,
    StillFenced,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fence_audit import (
    plan as audit_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fence_audit.runbook import (
    FenceAudit,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences import record
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import Entry
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.state import (
    HostRecord,
    attached_volume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fencing.runbook import Fence
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.runbook import (
    FuseRecovery,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Attachment,
    Node,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.users import (
    User,
    Users,
    VolumeUsers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs import plan as nfs_plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs import runtime_limit
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs.runbook import NfsShares
from ansible_collections.storage_ops.runbooks.plugins.module_utils._release.runbook import Release
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import LEDGER

UTILS = Path(__file__).resolve().parents[4] / "plugins/module_utils"
NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
# A DEL takes one character in JSON, and four once it is escaped.
HOSTILE = st.sampled_from(
    ["\x1b[2J", "\x7f" * 600, "\u202e", "\u2028", "\x00", "'; id #", "{{ 1 }}", "x" * 600]
) | st.text(max_size=8)
NO_ACTIONS = SimpleNamespace(actions=[])


def ledger(text: str, count: int) -> Any:
    return LEDGER._replace(
        boot_id=text,
        machine=text,
        volumes=(text,) * count,
        source={text: text},
        entries=(Entry(text, text, True, text),) * count,
    )


def release(text: str, count: int) -> dict[str, Any]:
    state = SimpleNamespace(ledger=ledger(text, count))
    return {"_state": state, "_plan": NO_ACTIONS, "_options": None}


def fence(text: str, count: int) -> dict[str, Any]:
    return {"_decision": SimpleNamespace(ledger=ledger(text, count)), "_state": None}


def failover(text: str, count: int) -> dict[str, Any]:
    left = {f"{text}{number}" for number in range(count)}
    return {"_ledger": ledger(text, 1), "_plan": NO_ACTIONS, "_detached": left}


def still_fenced(text: str, count: int) -> dict[str, Any]:
    return {"_ledger": ledger(text, count)}


def ceph_clients(text: str, count: int) -> dict[str, Any]:
    client = Client("krbd", text, text, text, text, text, in_use=(text, text))
    return {"_found": NodeClients(text, (client,) * count, text)}


def blocked(text: str, count: int) -> blocklist.Blocklist:
    entry = addresses.Entry("address", ip_network("10.0.0.5/32"))
    return blocklist.Blocklist(
        text, "blocklist", True, (blocklist.Blocked(entry, text, NOW),) * count
    )


def watched(text: str, count: int) -> dict[str, Any]:
    target = images.Target(text, text, text, text, text)
    seen = watchers.Observed(target, details=watchers.Details((text,)), problem=text)
    state = watchers.WatcherState(blocked(text, count), NOW, (seen,) * count, 1, 1.0, 0.0)
    return {"_state": state, "_options": SimpleNamespace(ignored=(text,), roots=frozenset())}


def blocklisted(text: str, count: int) -> dict[str, Any]:
    there = blocked(text, count)
    return {
        "_blocklist": there,
        "_first": there,
        "_findings": [],
        "_now": lambda: NOW,
        "_options": SimpleNamespace(entries=[there.entries[0].entry] if count else []),
    }


def blocked_and_watched(text: str, count: int) -> dict[str, Any]:
    seen = object.__new__(watchers.Watchers)
    vars(seen).update(watched(text, count))
    return {**blocklisted(text, count), "_seen": seen.facts()["ceph"]}


def shares(text: str, count: int) -> dict[str, Any]:
    found = tuple(
        nfs_plan.Share(
            nfs_plan.Target(f"nfs{number}:/x", (text,), (text,), 1),
            (text,),
            text,
            (text,),
            attempts=(nfs_plan.Attempt(text, text, 1.0, text),),
        )
        for number in range(count)
    )
    return {"_state": SimpleNamespace(shares=found)}


def runtimes(text: str, count: int) -> dict[str, Any]:
    one = runtime_limit.Runtime(text, text, 1, 1, 1, text, (text,), False, True)
    state = runtime_limit.LimitState("n1", 1, 1, (one,) * count, ())
    return {"_state": state, "_options": runtime_limit.LimitOptions()}


def pods(text: str, count: int) -> dict[str, Any]:
    one = {"uid": text, "namespace": "evil", "name": text, "claims": [text], "reasons": [text]}
    return {"_pods": [one] * count + [{**one, "uid": "u", "namespace": "shop", "name": "web"}]}


def stale(text: str, count: int) -> dict[str, Any]:
    one = {"pod": "evil", "pid": 1, "point": text, "container": text}
    return {"_stale": [one] * count + [{**one, "pod": "shop", "point": "/data", "container": ""}]}


def secrets(text: str, count: int) -> dict[str, Any]:
    found = {(text, str(number)): {"k": text} for number in range(count)}
    return {"_read": Credentials(found, {(text, f"u{number}"): text for number in range(count)})}


def csi_volumes(text: str, count: int) -> dict[str, Any]:
    """As the plan bounds them, with a mount path that a pod's owner chooses."""
    container = {
        "name": text,
        **dict.fromkeys(("id", "mount_path", "host_path", "restart_policy"), text),
        "probe": False,
    }
    pod = {"uid": "u", "namespace": "evil", "name": "p", "phase": "Running", "terminating": False}
    entry = {
        "volume": "pv-1",
        "claim": "data",
        "pods": [{**pod, "containers": [container] * count}],
    }
    plain = {"volume": "pv-2", "claim": "data", "pods": []}
    used = [("evil", entry), ("shop", plain)]
    left_out = csi_plan._too_long(used, [], engine.MAX_RESULT_CHARACTERS)
    kept = [one for namespace, one in used if namespace not in left_out]
    return {"_joined": csi_plan.Joined(kept, [], left_out)}


def lost(text: str, count: int) -> dict[str, Any]:
    """The first one's kubelet writes what it likes into its own status."""
    nodes = []
    for number in range(20):
        told = text if number == 0 else "x"
        host = HostRecord(
            Node(f"n{number}", "u", "Unknown", NOW, False, False, (), ()),
            told,
            (told,) * (count if not number else 1),
            (),
        )
        nodes.append(audit_plan.LostNode(f"n{number}", host, None, ()))
    state = audit_plan.FenceAuditState(NOW, {}, {}, lost=tuple(nodes))
    return {"_state": state, "_options": audit_plan.FenceAuditOptions()}


def users(text: str, count: int) -> dict[str, Any]:
    """Names are the API server's. What a tenant chooses is how many there are."""
    mine = User("u", "evil", text, text, text, ("evil/data",))
    asked = [mine._replace(uid=f"u{number}") for number in range(count)]
    other = mine._replace(uid="shop", namespace="shop", name="web", owner="", claims=())
    read = Users((), (*asked, other))
    return {"_read": read, "_pods": {pod.uid for pod in read.pods}}


def to_record(text: str, count: int) -> dict[str, Any]:
    """Each node has volumes whose image has a name of a tenant's choice."""
    attributes = {"pool": "rbd", "imageName": text}
    csi = {"driver": "rbd.csi.ceph.com", "volumeHandle": "h", "volumeAttributes": attributes}
    hosts, attached = [], []
    for number in range(count + 1):
        node = Node(f"n{number}", f"u{number}", "True", NOW, False, False, (), ())
        hosts.append(HostRecord(node, "b", (), ()))
        told = csi if number else {**csi, "volumeAttributes": {**attributes, "imageName": "x"}}
        item = {"metadata": {"name": f"v{number}", "uid": "u"}, "spec": {"csi": told}}
        found = Attachment(
            *(f"va{number}", "u", "rbd.csi.ceph.com", f"n{number}", f"v{number}", True),
            *((), None, None, NOW, None, ()),
        )
        attached.append(attached_volume(found, item))
    state = record_plan.RecordState(
        NOW, tuple(hosts), tuple(attached), frozenset(), record.Records()
    )
    return {"_state": state, "_options": record_plan.RecordOptions((), "", (), None, {})}


Make = Callable[[str, int], dict[str, Any]]
# Who can make what it hands on long has others' part of it left alone.
TENANTS: dict[type, Make] = {
    StaleContainers: pods,
    FuseRecovery: stale,
    CsiVolumes: csi_volumes,
    NfsShares: shares,
    FenceAudit: lost,
    VolumeUsers: users,
    ClientRecord: to_record,
}
# Nothing of these may be missing for the module that decides by it, so what is too long is an
# error.
WHOLE: dict[type, Make] = {
    Release: release,
    Fence: fence,
    Failover: failover,
    StillFenced: still_fenced,
    CephClients: ceph_clients,
    CsiSecrets: secrets,
    watchers.Watchers: watched,
    blocklist.Runbook: blocklisted,
    Watched: blocked_and_watched,
    runtime_limit.RuntimeLimits: runtimes,
}
QUICK = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def told_by(kind: type, make: Make, text: str, count: int) -> tuple[dict[str, Any], list[Any]]:
    """What the engine hands on of such an audit, and what it says is left out."""
    audit = object.__new__(kind)
    vars(audit).update(make(text, count))
    return engine._facts(audit)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def harmless(told: dict[str, Any]) -> None:
    assert len(json.dumps(told)) <= engine.MAX_RESULT_CHARACTERS
    assert all(text.replace("\n", "").replace("\t", "").isprintable() for text in texts(told))


def test_every_module_that_hands_something_on_is_here() -> None:
    found = {
        (path.relative_to(UTILS).as_posix(), node.name)
        for path in UTILS.rglob("*.py")
        if "def facts(" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and "Protocol" not in {getattr(base, "id", "") for base in node.bases}
        and any(isinstance(part, ast.FunctionDef) and part.name == "facts" for part in node.body)
    }
    tried = {
        (f"{kind.__module__.partition('.module_utils.')[2].replace('.', '/')}.py", kind.__name__)
        for kind in (*TENANTS, *WHOLE)
    }
    assert found == tried


@pytest.mark.parametrize("kind", TENANTS, ids=lambda kind: kind.__name__)
@QUICK
@given(text=HOSTILE, count=st.sampled_from([0, 1, 300]))
def test_what_others_can_lengthen_is_bounded_and_ends_nothing(
    kind: type, text: str, count: int
) -> None:
    told, _left_out = told_by(kind, TENANTS[kind], text, count)
    harmless(told)


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
@QUICK
@given(text=HOSTILE, count=st.sampled_from([0, 1, 300]))
def test_what_must_be_whole_is_whole_or_an_error(kind: type, text: str, count: int) -> None:
    try:
        told, left_out = told_by(kind, WHOLE[kind], text, count)
    except StorageOpsError as error:
        # Nothing short is refused.
        if error.code != "result_too_long" or len(text) * count < 50_000:
            raise
    else:
        harmless(told)
        assert left_out == []


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_what_is_too_long_is_told(kind: type) -> None:
    with pytest.raises(StorageOpsError, match="characters"):
        told_by(kind, WHOLE[kind], "\x7f" * 600, 300)


def test_one_tenants_long_texts_leave_the_others_in() -> None:
    long = "\x7f" * 600
    told = {kind: told_by(kind, make, long, 300) for kind, make in TENANTS.items()}
    assert told[StaleContainers][0]["pods"][-1]["namespace"] == "shop"
    assert told[FuseRecovery][0]["stale"][-1]["pod"] == "shop"
    assert [one["volume"] for one in told[CsiVolumes][0]["volumes"]] == ["pv-2"]
    assert told[CsiVolumes][0]["left_out"] == ["evil"]
    assert told[VolumeUsers][0]["pods"][-1]["namespace"] == "shop"
    nodes = told[FenceAudit][0]["lost"]
    assert [one["node"] for one in nodes] == [f"n{number}" for number in range(20)]
    assert nodes[0]["addresses"] == [] and nodes[1]["addresses"] == ["x"]
    assert told[ClientRecord][0]["attachments"]["v0"] == "u"
