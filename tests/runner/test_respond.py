# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What respond repairs in a real cluster: what triage has named, and nothing else that looks the
same.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from support.cluster import LOCAL, Cluster
from support.node import COLLECTION, environment, of_ansible
from support.rights import FILES

REPAIRER = FILES / "rbac-repair.yml"
# In a test nobody waits for as long as in a cluster.
QUICK = {
    "triage_stuck_seconds": "1",
    "attachment_repair_min_age_seconds": "1",
    "attachment_repair_observation_seconds": "1",
}


def test_only_what_triage_has_named(control_plane_1_20: Cluster) -> None:
    """Of two VolumeAttachments that the 68-character bug has left, the one goes that a pod waits
    for, and only where that is allowed, was
    rehearsed, and is no outage."""
    cluster = control_plane_1_20
    left = faults.collision(cluster.plane, lengths=(68,))[68]
    other = faults.attach(
        cluster.api, "other", left.driver, left.handle.replace("vol-68-", "vol-xx-"), "other"
    )
    cluster.api.delete(path("Pod", other.pod), grace=0)
    cluster.wait(
        lambda: other.unique_name not in cluster.api.volumes_attached("other"),
        "detached, says the controller",
    )
    for node, pod, volume in (("n2", "web", left), ("n3", "web-too", other)):
        cluster.api.add_node(node, left.driver)
        cluster.api.create(k8s.pod(pod, [volume.claim], node))
    cluster.stay_ready(left.node, "other", "n2", "n3")
    for node, volume in (("n2", left), ("n3", other)):
        name = k8s.attachment_name(volume.handle, volume.driver, node)
        cluster.wait(
            lambda name=name: (
                (cluster.api.find("VolumeAttachment", name) or {})
                .get("status", {})
                .get("attachError")
            ),
            "refused",
        )
    time.sleep(1.2)

    def there() -> list[bool]:
        return [
            cluster.api.find("VolumeAttachment", each.attachment) is not None
            for each in (left, other)
        ]

    def respond(rc: int = 0, check: bool = False, **answers: Any) -> str:
        scope = {"triage_namespace": "default", "triage_pod": "web", **QUICK}
        played = cluster.playbook("respond", check=check, user=REPAIRER, **scope, **answers)
        assert played.rc == rc, played.text
        return played.text

    # It is left, and a run that may repair says so.
    assert "attachment_repair_names" in respond(2, respond_repair="STOR-04")
    # Each alert is about one pod: whether it is an outage, the whole cluster tells.
    assert "2 nodes are concerned (n2, n3)" in respond(
        2, respond_repair="STOR-11", respond_max_nodes="1"
    )
    # Of one attachment on a node each is most of them.
    allowed = {
        "respond_repair": "STOR-04\nSTOR-11",
        "attachment_repair_accept_majority": "true",
    }
    rehearsed = respond(check=True, **allowed)
    assert re.search(rf'"respond_rehearsed": \[\s*"{left.attachment}"\s*\]', rehearsed), rehearsed
    assert f"This was not rehearsed: {left.attachment}" in respond(
        2, **allowed, respond_rehearsed=[other.attachment]
    )
    assert there() == [True, True]
    respond(**allowed, respond_rehearsed=[left.attachment])
    assert there() == [False, True]
    nothing = cluster.ansible("pod_volume_info", user=REPAIRER, namespace="kube-public")
    assert not nothing.failed, nothing.msg
    cluster.used(
        "rbac-repair.yml",
        "get csidrivers",
        "get csinodes",
        "list events",
        "get namespaces",
    )


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        # Also where the answers are none: plays of the localhost are passed over.
        ({"respond_repair": "STOR-16", "limit": "worker01"}, "Add localhost to the limit"),
        ({"respond_repair": "STOR-16", "triage_namespace": "shop"}, "but not STOR-16"),
        # The role that repairs it would repair others, too.
        (
            {"respond_repair": "STOR-03,STOR-11", "triage_namespace": "shop"},
            "STOR-03 is repaired together with STOR-01, STOR-02",
        ),
        ({"respond_repair": "STOR-04"}, "To repair, say where"),
    ],
)
def test_refused_before_anything_is_looked_at(answers: dict[str, str], said: str) -> None:
    limit = answers.pop("limit", "all")
    command = [
        "ansible-playbook",
        f"{COLLECTION}.respond",
        *LOCAL,
        "-i",
        "worker01,",
        "--limit",
        limit,
        "-e",
        json.dumps(answers),
    ]
    answer = of_ansible(command, environment())
    assert answer.returncode == 2 and said in answer.stdout + answer.stderr
    assert "findings" not in answer.stdout
