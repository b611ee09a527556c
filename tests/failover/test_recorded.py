# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node loses its power, and Ceph shows no client of it: it is fenced by what was recorded while
it was healthy, and never by an address that is another node's since.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.common import LabError
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.cluster import Played
from support.failover import ADDRESSES, NODE_A, NODE_B, Failover
from support.fencing import USER, Fencing
from support.rights import FILES

from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    CLIENT_RECORD,
    OWN_NAMESPACE,
)

RECORDER = (FILES / "rbac-audit.yml", FILES / "rbac-audit-record.yml")
# Kubernetes' network, of which Ceph sees nothing.
INTERNAL = {NODE_A: "203.0.113.11", NODE_B: "203.0.113.12"}
RECORDED = ADDRESSES[NODE_A]


def records(scene: Failover) -> dict[str, dict[str, Any]]:
    """What is recorded, by the name of the node; each under the uid of its Node object."""
    data = scene.api.call("GET", path("ConfigMap", CLIENT_RECORD, OWN_NAMESPACE)).get("data") or {}
    found = {said["node"]: said for said in map(json.loads, data.values())}
    fsid = scene.storage.ceph.fsid
    assert set(data) == {f"{scene.node(name)['metadata']['uid']}.{fsid}" for name in found}
    return found


def on_b(scene: Failover, name: str) -> None:
    """A volume that only B has."""
    scene.volume(name, mounter="rbd-nbd")
    where = {"nodeSelector": {"kubernetes.io/hostname": NODE_B}}
    scene.api.create(k8s.workload("Deployment", name, [name], **where))
    scene.wait_running(NODE_B, name)


def compliance(scene: Failover, fencing: Fencing, folder: Path) -> Played:
    """The run of the night, of which nothing but the record is wanted here."""
    connection = scene.storage.connection(fencing.user)
    return scene.cluster.playbook(
        "compliance",
        user=RECORDER,
        compliance_report_folder=str(folder),
        compliance_report_controls="STOR-16",
        compliance_record_ceph_clients="true",
        compliance_ceph_host="localhost",
        **{f"compliance_ceph_{name}": value for name, value in connection.items()},
    )


def test_power_lost_with_nothing_but_a_record(failover_current: Failover, tmp_path: Path) -> None:
    scene, fencing, ceph = (
        failover_current,
        Fencing(failover_current),
        failover_current.storage.ceph,
    )
    fencing.user = USER
    for name, address in INTERNAL.items():
        scene.set_addresses(name, address)
    scene.volume("web", mounter="rbd-nbd")
    scene.deploy("web", ["web"])
    web = scene.node_a_opens("web")
    on_b(scene, "other")
    other = scene.node_b_opens("other")

    def recorder(check: bool = False) -> Played:
        connection = scene.storage.connection(fencing.user)
        given = {f"client_record_ceph_{name}": value for name, value in connection.items()}
        return scene.cluster.playbook(
            "record_ceph_clients",
            check,
            user=RECORDER,
            client_record_ceph_host="localhost",
            **given,
        )

    # While all is well. Check mode writes nothing.
    check = recorder(check=True)
    assert check.rc == 0 and "planned: write_client_record" in check.text, check.text
    assert records(scene) == {}
    night = compliance(scene, fencing, tmp_path)
    assert night.rc == 0 and "done: write_client_record" in night.text, night.text
    found = records(scene)
    assert {name: said["address"] for name, said in found.items()} == ADDRESSES
    assert all(said["looks"] == 2 and said["at"] and said["clients"] for said in found.values())
    scene.cluster.used(
        "rbac-audit-record.yml",
        "get configmaps storage-ops/storage-ops-ceph-clients",
        "patch configmaps storage-ops/storage-ops-ceph-clients",
    )

    # The power goes: both clients end, and Ceph drops their watches.
    web.kill()
    scene.writer.kill()
    scene.lose()
    for name in ("web", "db"):
        scene.wait_waiting(name)
        spec = f"rbd/{scene.image(name)}"
        scene.cluster.wait(lambda spec=spec: not ceph.watchers(spec), f"{spec} is free", 60)

    # By now B is at that address.
    other.close()
    there = scene.client_opens("other", RECORDED)
    before = fencing.state()
    refused = fencing.fail_over()
    assert refused.rc != 0 and f"address {RECORDED} (record) belongs to" in refused.text, (
        refused.text
    )
    assert fencing.state() == before and not there.error and ceph.blocklist() == {}

    # Now no other node has it open, so the record alone names the address.
    there.close()
    run = fencing.fail_over()
    assert run.rc == 0, run.text
    assert f"{RECORDED} (record), {INTERNAL[NODE_A]} (status) is fenced" in run.text, run.text
    assert set(ceph.blocklist()) == {f"{RECORDED}:0/0", f"{INTERNAL[NODE_A]}:0/0"}
    ledger = fencing.ledger
    assert ledger and ledger["phase"] == "detached"
    assert ledger["source"] == {RECORDED: "record", INTERNAL[NODE_A]: "status"}
    for name in ("web", "db"):
        assert scene.attached(NODE_B, name) and not scene.attached(NODE_A, name)
        scene.wait_running(NODE_B, name)
    # The power is back: whoever is at the address is refused.
    with pytest.raises(LabError):
        scene.client_opens("web", RECORDED)
