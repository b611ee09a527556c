# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What respond repairs in a real cluster: what triage has named, and nothing else that looks the same."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from cluster import LOCAL, Cluster
from lab.kubernetes import api as k8s
from lab.kubernetes import faults
from lab.kubernetes.api import path
from node import ANSIBLE_DEADLINE, COLLECTION, environment

# In a test nobody waits for as long as in a cluster.
QUICK = {"triage_stuck_seconds": "1", "attachment_repair_min_age": "1", "attachment_repair_observation_seconds": "1"}


def test_only_what_triage_has_named(control_plane_1_20: Cluster) -> None:
    """Of two VolumeAttachments that the 68-character bug has left, the one goes that a pod waits for, and only where that is allowed."""
    cluster = control_plane_1_20
    left = faults.collision(cluster.plane, lengths=(68,))[68]
    other = faults.attach(cluster.api, "other", left.driver, left.handle.replace("vol-68-", "vol-xx-"), "other")
    cluster.api.delete(path("Pod", other.pod), grace=0)
    cluster.wait(lambda: other.unique_name not in cluster.api.volumes_attached("other"), "detached, says the controller")
    cluster.api.add_node("n2", left.driver)
    cluster.api.create(k8s.pod("web", [left.claim], "n2"))
    name = k8s.attachment_name(left.handle, left.driver, "n2")
    cluster.wait(lambda: (cluster.api.find("VolumeAttachment", name) or {}).get("status", {}).get("attachError"), "refused by the array")
    time.sleep(1.2)

    def there() -> list[bool]:
        return [cluster.api.find("VolumeAttachment", each.attachment) is not None for each in (left, other)]

    def respond(**answers: Any) -> str:
        played = cluster.playbook("respond", triage_namespace="default", triage_pod="", **QUICK, **answers)
        assert played.rc == 0, played.text
        return played.text

    assert "attachment_repair_names" in respond(respond_repair="")
    respond(respond_repair="STOR-04")
    assert there() == [True, True]
    respond(respond_repair="STOR-04\nSTOR-11")
    assert there() == [False, True]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"respond_repair": "STOR-16", "triage_namespace": "shop"}, "but not STOR-16"),
        # The role that repairs it would repair others, too.
        ({"respond_repair": "STOR-03,STOR-11", "triage_namespace": "shop"}, "STOR-03 is repaired together with STOR-01, STOR-02"),
        ({"respond_repair": "STOR-04"}, "To repair, say where"),
    ],
)
def test_refused_before_anything_is_looked_at(answers: dict[str, str], said: str) -> None:
    command = ["ansible-playbook", f"{COLLECTION}.respond", *LOCAL, "-e", json.dumps(answers)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=ANSIBLE_DEADLINE, env=environment())
    assert answer.returncode == 2 and said in answer.stdout + answer.stderr
    assert "findings" not in answer.stdout
