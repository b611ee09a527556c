# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is lost that has volumes of five kinds: what a fence in Ceph reaches moves, the rest is
named. Once the node is switched off, all of it leaves.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.bmc.bmc import USER as BMC_USER
from lab.bmc.bmc import Redfish, machine_uuid
from lab.ceph.files import Metadata, Mount
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.failover import ADDRESSES, CEPHFS, NODE_A, NODE_B, RBD, Failover
from support.fencing import OUT_OF_SERVICE, USER, Fencing

# An array's driver, played by the lab's attacher.
ARRAY = "csi.example.com"
HERE = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_A]}]
MOVED = ("db", "files", "lun")


def make_workloads(scene: Failover) -> None:
    """A Deployment on A for each kind beside RBD."""
    scene.api.create(k8s.csi_driver(CEPHFS))
    for name in (NODE_A, NODE_B):
        drivers = k8s.csi_node(name, RBD, CEPHFS, ARRAY)["spec"]["drivers"]
        scene.api.merge(path("CSINode", name), {"spec": {"drivers": drivers}})
    scene.volume("files", CEPHFS, modes=("ReadWriteMany",))
    scene.volume("lun", ARRAY)
    in_tree(scene, "share", nfs={"server": "192.0.2.9", "path": "/"})
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": HERE}]}}
    in_tree(scene, "disk", local={"path": "/mnt/disk"}, nodeAffinity=affinity)
    for name in ("files", "lun", "share", "disk"):
        scene.deploy(name, [name])


def in_tree(scene: Failover, name: str, **source: object) -> None:
    """A volume that no driver has, and its claim."""
    volume, claim = k8s.volume(name, "", "")
    del volume["spec"]["csi"]
    volume["spec"].update(source)
    scene.api.create(volume, claim)


@pytest.mark.variation
def test_it_moves_as_far_as_its_fence_reaches(failover_current: Failover, tmp_path: Path) -> None:
    scene, fencing = failover_current, Fencing(failover_current)
    caps = {"mon": scene.storage.caps, "osd": "profile rbd-read-only", "mds": "allow *"}
    scene.storage.user(USER, **caps)
    make_workloads(scene)
    with (
        Metadata(scene.storage.ceph) as metadata,
        Mount(metadata, ADDRESSES[NODE_A]) as mount,
        Redfish(tmp_path / "bmc", machine_uuid(NODE_A)) as bmc,
    ):
        (mount.path / "file").write_text("a")
        scene.lose()
        scene.wait_waiting("db")
        scene.wait_waiting("lun")

        run = fencing.fail_over()
        assert run.rc == 2 and scene.writer.error, run.text
        ledger = fencing.ledger
        assert ledger and (ledger["method"], ledger["phase"]) == ("ceph", "detached"), run.text
        assert ledger["volumes"] == ["pv-db", "pv-files"]
        assert scene.attached(NODE_B, "db") and scene.attached(NODE_B, "files")
        assert not scene.attachment(NODE_A, "db") and not scene.attachment(NODE_A, "files")
        assert scene.attached(NODE_A, "lun") and OUT_OF_SERVICE not in scene.taints(NODE_A)
        for name, code in (
            ("lun", f"pv-lun ({ARRAY}), which the fence"),
            ("share", "pv-share (nfs), which the fence"),
            ("disk", "pv-disk, whose data is on node node-a alone"),
        ):
            (pod,) = scene.pods(NODE_A, name)
            assert f"pod default/{pod['metadata']['name']} uses {code}" in run.text, run.text
        for code in ("storage_unreached", "data_on_node"):
            assert f'"code": "{code}"' in run.text, run.text

        bmcs = {NODE_A: bmc.mapped, NODE_B: {"kind": "ipmi", "address": "b.test"}}
        told = {"bmcs": json.dumps(bmcs), "bmc_user": BMC_USER, "bmc_password": bmc.password}
        given = {f"node_fence_{name}": value for name, value in told.items()}
        powered = Fencing(scene, ceph=False)
        run = powered.fail_over(node_fence_method="power", node_fence_power_seconds="2", **given)
        assert run.rc == 0 and not bmc.machine.is_on, run.text
        ledger = powered.ledger
        assert ledger and (ledger["method"], ledger["phase"]) == ("power", "detached")
        assert set(ledger["volumes"]) == {"pv-db", "pv-files", "pv-lun", "pv-share"}
        assert OUT_OF_SERVICE in scene.taints(NODE_A)
        for name in MOVED:
            assert scene.attached(NODE_B, name) and not scene.attachment(NODE_A, name), name
        for name in (*MOVED, "share"):
            assert scene.pods(NODE_B, name) and not scene.pods(NODE_A, name), name
        # No other node can have it, so its new pod has no node.
        scene.cluster.wait(lambda: not scene.pods(NODE_A, "disk"), "its pod has left A", 60)
        assert [pod["spec"].get("nodeName") for pod in scene.pods(name="disk")] == [None]

        before = powered.state()
        again = powered.fail_over(node_fence_method="power", **given)
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
        assert powered.state() == before
