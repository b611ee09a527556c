# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is cut off from the API server, and writes on to an image and to a CephFS, both by
its kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.ceph.cluster import Ceph
from lab.ceph.files import Metadata
from lab.kubelet.cluster import Kubelets
from lab.kubelet.csi import FilesDriver
from support.cluster import Played
from support.failover import CEPHFS, NODE_B
from support.fencing import DEFAULTS, USER, Fencing
from support.fixtures import start_if_it_can_be_had
from support.kubelets import POD_DEADLINE, KubeletScene, counting


@pytest.fixture
def metadata(scene: KubeletScene, kubelets: Kubelets, ceph: Ceph) -> Iterator[Metadata]:
    """A CephFS with the folder of a volume, and its CSI driver, for one test."""
    driver = FilesDriver(kubelets)
    with Metadata(ceph) as found:
        start_if_it_can_be_had("the CSI driver of CephFS", driver.start)
        driver.make(f"/volumes/csi/{scene.image('files')}")
        yield found
        # Its plugins unmount what the test has left.
        scene.cluster.reset()
        scene.look(lambda: not found.sessions(), "nobody has it mounted")
        driver.remove()
    driver.stop()


@pytest.mark.variation
def test_the_kernels_client_of_cephfs(scene: KubeletScene, metadata: Metadata) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()
    caps = {"mon": scene.storage.caps, "osd": "profile rbd-read-only", "mds": "allow *"}
    scene.storage.user(USER, **caps)
    scene.count()
    scene.volume("files", CEPHFS)
    scene.deploy("files", ["files"], **counting("files"))
    scene.wait_written(2, name="files")
    (session,) = metadata.sessions()
    assert f"{vm.address}:0/" in session["inst"], session

    def fence() -> Played:
        scene.wait_waiting("files")
        scene.writes_on(name="files")
        return fencing.fail_over(**DEFAULTS)

    written = {"db": scene.fail_over(fence)}
    assert fencing.ledger and fencing.ledger["volumes"] == ["pv-db", "pv-files"]
    assert set(ceph.blocklist()) == {f"{vm.address}:0/0"}
    scene.wait_running(NODE_B, "files", POD_DEADLINE)
    scene.wait_written(0, NODE_B, "files")
    last, first = written["files"] = scene.acknowledged(name="files"), scene.moved_once("files")
    assert 0 < last < first

    # The kubelet that is back unmounts both.
    scene.heal()
    scene.wait_back(seconds=180)
    scene.wait_unmapped()
    scene.look(lambda: not vm.run("ls /sys/kernel/debug/ceph").stdout, "no client is left")
    scene.inventory(fencing.inventory)
    fencing.let_go()
    for name in written:
        assert (scene.acknowledged(name=name), scene.moved_once(name)) == written[name]
