# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fail-over as a job of AWX: by its survey's answers, with credentials for the cluster and for
Ceph, in ansible-runner.
"""

from __future__ import annotations

import json
from pathlib import Path

from support.awx_jobs import Job, Launched
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import LEASE, QUICK, RBAC, USER, Fencing

# What no survey asks for belongs into the inventory.
TIMES = {f"{role}_options": LEASE for role in ("node_fence", "volume_failover")}
LOCALHOST = {
    **{
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    },
    **QUICK,
    **TIMES,
}


def job(scene: Failover, folder: Path) -> Job:
    """The answers as a person types them; ceph runs in the job."""
    asked = {
        **{
            "target": NODE_A,
            "node_fence_ceph_host": "localhost",
            "node_fence_expiry_seconds": "1209600",
        },
        # A text area ends with a newline.
        "volume_failover_claims": "default/db\n",
    }
    made = Launched(folder, "fail over volumes", {"localhost": LOCALHOST}, asked)
    made.credential("Storage: kubeconfig", kubeconfig=scene.cluster.kubeconfig(RBAC).read_text())
    ceph = scene.storage.ceph
    keyring = scene.storage.connection(USER)["keyring"]
    given = {"conf": ceph.conf.read_text(), "keyring": Path(keyring).read_text(), "user": USER}
    return made.credential("Storage: Ceph client", **given).start().end()


def test_fail_over_by_its_survey(failover_current: Failover, tmp_path: Path) -> None:
    """The job fences the lost node as the answers say, proves it, and moves its volume; no secret
    is told.
    """
    scene, fencing = failover_current, Fencing(failover_current)
    scene.lose()
    scene.wait_waiting()
    done = job(scene, tmp_path)
    assert (done.rc, done.status) == (0, "successful"), done.stdout
    assert scene.writer.error and not scene.watches(), "A may still write"
    assert set(scene.storage.ceph.blocklist()) == {f"{ADDRESSES[NODE_A]}:0/0"}
    scene.wait_running(NODE_B)
    assert scene.attached(NODE_B) and not scene.attached(NODE_A)
    assert fencing.lease is None and fencing.cordoned
    assert len(json.dumps(done.artifacts)) < 10_000
    secret = (
        Path(scene.storage.connection(USER)["keyring"]).read_text().split("key = ")[1].split()[0]
    )
    assert secret not in done.everything
