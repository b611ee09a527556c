# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every field that tenants and nodes can write, with what would break out of it: through plan,
result, callback and report.

docs/security.md has the list of who may write what.
"""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.callback.findings import render
from ansible_collections.storage_ops.runbooks.plugins.module_utils._attachments import (
    plan as attachments,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import (
    junit,
    prometheus,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Finding,
    Plan,
    _result,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    plan as fuse_plan,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseOptions,
    FusePod,
    FuseState,
    FuseVolume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.volumes import (
    fuse_volumes,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube import objects
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import (
    ROOT,
    VolumeNote,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.processes import Process
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.runbook import Triage
from ansible_collections.storage_ops.runbooks.plugins.module_utils._triage.state import (
    TriageOptions,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.cluster import FakeCluster
from ansible_collections.storage_ops.runbooks.tests.unit.support.results import build

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
BREAKS = [
    *(
        "\n",
        "\r\n",
        "\t",
        " ",
        "'",
        '"',
        "`",
        "$(id)",
        ";",
        "&",
        "|",
        ",",
        "=",
        "-",
        "--",
        "..",
        "/../",
        "{",
        "}",
        "{node}",
        "{{ 1 }}",
    ),
    *(
        "%(secret_key)s",
        "%s",
        "\\",
        "\\054",
        "\x00",
        "\x1b[2J",
        "\x07",
        "\x7f",
        "\x85",
        "\u2028",
        "\u202e",
        "\ud800",
        "]]>",
        "</script>",
    ),
    *(
        "x\ntype = webdav\nbearer_token_command = id",
        "x,logfile=/etc/cron.d/x",
        "0000-01-01T00:00:00Z",
        "://" * 1000,
        "-o",
        "",
        "x",
    ),
]
HOSTILE = st.lists(st.sampled_from(BREAKS) | st.text(max_size=8), max_size=4).map(
    "".join
) | st.sampled_from(["x" * 100_000, "MountVolume " * 10_000, "/" * 100_000])
QUICK = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def shown_everywhere(findings: list[Finding], node: str = "n1") -> dict[str, Any]:
    """The result, which a terminal, a page and two formats show as what it is."""
    result = {"msg": "x", **_result(Plan(findings))}
    for finding in result["findings"]:
        assert finding["summary"].isprintable() and finding["reason"].isprintable()
        assert all(text.isprintable() for text in finding["object"].values())
    assert all(line.isprintable() for line in render(result, 100, verbose=True))
    assert len(json.dumps(result)) < 700_000
    report = build({node: result})
    for text in (junit.render(report), prometheus.render(report), json.dumps(report)):
        assert "\x1b" not in text and "\u202e" not in text
    return result


# a tenant's Secret and volume, a node's processes and mounts

STAGE = f"{ROOT}/plugins/kubernetes.io/csi/s3.csi.example.com/{sha256(b'h').hexdigest()}"
UID = "0a1b2c3d-1111-2222-3333-444455556666"
POINTS = (f"{STAGE}/globalmount", f"{ROOT}/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount")
KEYS = {"access_key": "AKID", "secret_key": "s3cr3t-key"}
PLAIN = FuseVolume(
    "pvc-1", "s3.csi.example.com", "h", (), "", ("bucket",), (), "https://s3", "eu", KEYS
)
COMMAND = (
    "s3fs",
    "-f",
    "{source}",
    "{target}",
    "-o",
    "endpoint={region},url={endpoint}",
    "{options}",
)


def world(recipe: str, source: str = "s3fs", comm: str = "x", handle: str = "h") -> FuseState:
    mounts = [Mount(1, 0, "8:1", "/", "/", ("rw",), 1, 0, False, "ext4", "/dev/sda", ("rw",), "1")]
    for number, point in enumerate(POINTS, 10):
        mounts.append(
            Mount(
                number,
                1,
                "0:50",
                "/",
                point,
                ("rw",),
                0,
                0,
                False,
                f"fuse.{recipe}",
                source,
                ("rw",),
                "1",
            )
        )
    notes = {f"{STAGE}/vol_data.json": VolumeNote("s3.csi.example.com", handle, "pvc-1")}
    programs = {name: f"/usr/bin/{name}" for name in ("s3fs", "rclone")}
    others = (replace(mounts[1], id=99, pid="7", point=f"/data{source}"),)
    processes = (Process(7, comm, "mnt", UID, "c1", ()),)
    dead = {"0:50": Answer("dead", "statvfs", "ENOTCONN", "gone")}
    return FuseState(
        "n1",
        ROOT,
        MountTable(mounts),
        dead,
        others,
        processes,
        notes,
        programs=programs,
        spare={"/tmp": 512},
    )


def lines_of(text: str) -> list[str]:
    return [line.partition("=")[0] for line in text.splitlines()]


@pytest.mark.parametrize("recipe", ["s3fs", "rclone", "command"])
@QUICK
@given(
    field=st.sampled_from(
        [
            "sources",
            "endpoint",
            "region",
            "recipe",
            "access_key",
            "secret_key",
            "session_token",
            "handle",
        ]
    ),
    text=HOSTILE,
)
def test_what_a_secret_or_a_volume_says(recipe: str, field: str, text: str) -> None:
    """Refused, or exactly the words and lines that a harmless value makes."""
    base = (
        replace(PLAIN, command=COMMAND, credentials={})
        if recipe == "command"
        else replace(PLAIN, recipe=recipe)
    )
    state = world("s3fs" if recipe == "command" else recipe)
    evil = {
        "sources": lambda: replace(base, sources=(text,)),
        "handle": lambda: replace(base, handle=text),
        "endpoint": lambda: replace(base, endpoint=text),
        "region": lambda: replace(base, region=text),
        "recipe": lambda: replace(base, recipe=text),
    }.get(field, lambda: replace(base, credentials={**base.credentials, field: text}))()
    (harmless,) = fuse_plan.plan(state, FuseOptions(volumes=(base,), accept_majority=True)).findings
    assert harmless.verdict == "repair", harmless.reason
    (finding,) = fuse_plan.plan(state, FuseOptions(volumes=(evil,), accept_majority=True)).findings
    result = shown_everywhere([finding])
    if finding.repair:
        service, plain = (
            finding.repair[0].subject.recovery.service,
            harmless.repair[0].subject.recovery.service,
        )
        extra = {"endpoint": 2, "region": 1, "session_token": 1}.get(field, 0)
        assert abs(len(service.argv) - len(plain.argv)) <= extra
        assert all(word.isprintable() for word in finding.repair[0].command)
        assert shlex.split(shlex.join(service.argv)) == list(service.argv)
        for before, after in zip(plain.argv, service.argv):
            assert before.count(",") == after.count(",") or len(service.argv) != len(plain.argv)
        if recipe == "rclone":
            assert set(lines_of(service.secret)) <= {*lines_of(plain.secret), "session_token "}
        assert len(service.secret.splitlines()) <= len(plain.secret.splitlines()) + 1
    if len(text) > 8 and field in KEYS:
        assert text not in json.dumps(result)


@QUICK
@given(source=HOSTILE, comm=HOSTILE, handle=HOSTILE, name=HOSTILE)
def test_what_a_node_shows(source: str, comm: str, handle: str, name: str) -> None:
    pods = (FusePod(UID, name, name),)
    for strategy in ("remount", "kubelet"):
        options = FuseOptions(strategy=strategy, volumes=(replace(PLAIN, pods=pods),))
        shown_everywhere(fuse_plan.plan(world("s3fs", source, comm, handle), options).findings)


@QUICK
@given(key=st.sampled_from(["access_key", "secret_key", "endpoint", "region"]), text=HOSTILE)
def test_a_secret_as_the_controller_takes_it_apart(key: str, text: str) -> None:
    """Only the credentials have what is secret, and a Secret names no program, no source and no
    option.
    """
    volume = {
        "volume": "pv",
        "driver": "d",
        "handle": "h",
        "parameters": {},
        "attributes": {},
        "mount_options": [],
        "sources": ["b"],
    }
    reference = {"namespace": "a", "name": "s"}
    data = {key: b64encode(text.encode("utf-8", "replace")).decode()}
    told = fuse_volumes(
        [{**volume, "secret": reference, "pods": []}],
        [],
        [{"metadata": reference, "data": data}],
        {key: [key]},
        {},
        [],
    )
    (entry,) = told["volumes"]
    assert (entry["sources"], entry["options"], entry["recipe"]) == (["b"], [], "")
    assert set(told["credentials"].get("pv", {})) <= {"access_key", "secret_key"}


# a tenant's events and pods, a node's annotations and status


def told(reason: str, message: str, when: str) -> list[dict[str, Any]]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": "u1",
            "creationTimestamp": "2026-01-31T11:00:00Z",
        },
        "spec": {
            "nodeName": "n1",
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": "2026-01-31T11:00:00Z",
                }
            ],
            "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}],
        },
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "shop"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        **dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime"), when),
        "series": {"count": 2, "lastObservedTime": when},
        "involvedObject": {"kind": "Pod", "uid": "u1"},
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": when}]},
    }
    return [pod, event, node]


@QUICK
@given(
    reason=HOSTILE | st.just("FailedMount"),
    message=HOSTILE,
    when=HOSTILE | st.just("2026-01-31T11:59:00Z"),
)
def test_what_events_and_pods_say(reason: str, message: str, when: str) -> None:
    cluster = FakeCluster(*told(reason, message, when))
    cluster.clock = lambda: NOW
    runbook = Triage(cluster, TriageOptions())
    findings = runbook.plan(runbook.gather()).findings
    assert len(findings) == 1
    shown_everywhere(findings)


@QUICK
@given(
    namespace=HOSTILE | st.just("shop"),
    claim=HOSTILE,
    by=HOSTILE,
    since=HOSTILE | st.just("2026-01-31T11:30:00Z"),
)
def test_what_a_kubelet_notes_on_its_node(namespace: str, claim: str, by: str, since: str) -> None:
    """Of the command that is printed a shell makes the words that it shows."""
    text = json.dumps({"namespace": namespace, "by": by, "since": since, "claims": [claim]})
    item = {
        "metadata": {"name": "n1", "uid": "u", "annotations": {f"{objects.CORDON}x": text}},
        "spec": {"taints": [{"key": objects.HOLD, "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
        },
    }
    node = objects.pick_node(item)
    state = attachments.AttachmentState(NOW, (attachments.Observation(0.0, {}, {}, {"n1": node}),))
    findings = attachments.plan(state, attachments.AttachmentOptions()).findings
    result = shown_everywhere(findings)
    for finding in result["findings"]:
        command = finding["reason"].partition("ansible localhost")[2]
        if command:
            assert shlex.split(command) == [
                "-m",
                "storage_ops.runbooks.workload_reattach",
                "-a",
                f"namespace={namespace} claims={claim}",
            ]
            assert not set(namespace + claim) & set("'\"`$;&|<>(){}\\ \n")
