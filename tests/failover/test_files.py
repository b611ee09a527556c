# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is lost that has an RBD image open and a CephFS mounted, which other nodes use too."""

from __future__ import annotations

import pytest
from lab.ceph.files import Metadata, Mount
from lab.kubernetes import api as k8s
from lab.kubernetes.api import path
from support.failover import ADDRESSES, CEPHFS, NODE_A, NODE_B, RBD, Failover
from support.fencing import OUT_OF_SERVICE, USER, Fencing


def with_cephfs(scene: Failover, attached: bool = True) -> None:
    """Its driver on both nodes, and a workload whose volume several nodes may have.

    ``attached``: the driver has its volumes attached, as Rook's has.
    """
    scene.api.create(k8s.csi_driver(CEPHFS, attach_required=attached))
    for name in (NODE_A, NODE_B):
        drivers = k8s.csi_node(name, RBD, CEPHFS)["spec"]["drivers"]
        scene.api.merge(path("CSINode", name), {"spec": {"drivers": drivers}})
    scene.volume("files", CEPHFS, modes=("ReadWriteMany",))
    scene.deploy("files", ["files"])


def test_the_lost_nodes_part_of_a_shared_filesystem(failover_current: Failover) -> None:
    scene, fencing = failover_current, Fencing(failover_current)
    ceph = scene.storage.ceph
    with_cephfs(scene)
    with (
        Metadata(ceph) as metadata,
        Mount(metadata, ADDRESSES[NODE_A]) as a,
        Mount(metadata, ADDRESSES[NODE_B]) as b,
    ):
        (a.path / "file").write_text("a")
        scene.lose()
        scene.wait_waiting()
        scene.wait_running(NODE_B, "files")

        # Without the right to ask the metadata server, the other volume is moved, and nothing else.
        # The run fails at its end, since it leaves one on a lost node.
        run = fencing.fail_over()
        assert run.rc == 2 and "ceph_not_read" in run.text, run.text
        assert "pv-files is left out of the fence of node node-a" in run.text, run.text
        assert scene.attachment(NODE_A) is None and scene.attached(NODE_A, "files")
        assert fencing.ledger and fencing.ledger["volumes"] == ["pv-db"]
        assert OUT_OF_SERVICE not in scene.taints(NODE_A)

        caps = {"mon": scene.storage.caps, "osd": "profile rbd-read-only", "mds": "allow *"}
        scene.storage.user(USER, **caps)
        run = fencing.fail_over()
        assert run.rc == 0, run.text
        ledger = fencing.ledger
        assert ledger and (ledger["phase"], ledger["volumes"]) == (
            "detached",
            ["pv-db", "pv-files"],
        )
        assert scene.attachment(NODE_A, "files") is None and scene.attached(NODE_B, "files")
        assert scene.pods(NODE_A, "files") == [] and scene.pods(NODE_B, "files")
        with pytest.raises(OSError, match="endpoint shutdown"):
            (a.path / "file").write_text("again")
        (b.path / "file").write_text("b")
        before = fencing.state()
        again = fencing.fail_over()
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
        assert fencing.state() == before


@pytest.mark.variation
def test_what_its_driver_never_attaches(failover_current: Failover) -> None:
    """As ceph-csi's own manifests have it; so nothing but the pod tells that the node uses it."""
    scene, fencing = failover_current, Fencing(failover_current)
    ceph = scene.storage.ceph
    caps = {"mon": scene.storage.caps, "osd": "profile rbd-read-only", "mds": "allow *"}
    scene.storage.user(USER, **caps)
    with_cephfs(scene, attached=False)
    with Metadata(ceph) as metadata, Mount(metadata, ADDRESSES[NODE_A]) as a:
        (a.path / "file").write_text("a")
        scene.lose()
        scene.wait_waiting()
        scene.wait_running(NODE_B, "files")
        assert scene.attachment(NODE_A, "files") is None and scene.pods(NODE_A, "files")
        run = fencing.fail_over()
        assert run.rc == 0, run.text
        ledger = fencing.ledger
        assert ledger and (ledger["phase"], ledger["volumes"]) == (
            "detached",
            ["pv-db", "pv-files"],
        )
        assert OUT_OF_SERVICE in scene.taints(NODE_A)
        assert scene.pods(NODE_A, "files") == [] and scene.pods(NODE_B, "files")
        with pytest.raises(OSError, match="endpoint shutdown"):
            (a.path / "file").write_text("again")
        before = fencing.state()
        again = fencing.fail_over()
        assert again.rc == 0 and "| CHANGED" not in again.text, again.text
        assert fencing.state() == before
