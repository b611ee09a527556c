# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is cut off from the API server and writes on is fenced by the NetworkFence that was
prepared for it, by the real CSI-Addons: its kernel knows nothing of a range that Ceph blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lab.ceph.cluster import Ceph
from lab.kubelet.cluster import Kubelets
from lab.kubernetes.addons.addons import Addons
from support.cluster import Played
from support.failover import NODE_A, RBD
from support.fencing import RBAC, Fencing
from support.fixtures import start_if_it_can_be_had
from support.kubelets import KubeletScene

PREPARING = (RBAC, RBAC.with_name("rbac-fence-prepare.yml"))


@pytest.fixture
def addons(scene: KubeletScene, kubelets: Kubelets, ceph: Ceph) -> Iterator[Addons]:
    """CSI-Addons for one test, beside the nodes of the scene."""
    found = Addons(kubelets, ceph, RBD)
    try:
        start_if_it_can_be_had("CSI-Addons", found.start)
        yield found
    finally:
        found.stop()
    found.remove()


@pytest.mark.variation
def test_a_range_stops_the_kernels_client(scene: KubeletScene, addons: Addons) -> None:
    fencing, ceph, vm = Fencing(scene), scene.storage.ceph, scene.vm()
    name = f"storage-ops-{NODE_A}"

    def fence() -> str:
        said: str = addons.get(name)["spec"]["fenceState"]
        return said

    scene.count()
    prepared = prepare(scene, addons)
    assert prepared.rc == 0, prepared.text
    assert fence() == "Unfenced"
    last, first = scene.fail_over(fencing.fail_over)
    assert set(ceph.blocklist()) == {f"cidr:{vm.address}:0/32"} and fence() == "Fenced"
    assert fencing.ledger and fencing.ledger["method"] == "network_fence"

    # The kubelet that is back gives the image up, but without ssh no run sees that.
    scene.heal()
    scene.wait_back(seconds=180)
    scene.wait_unmapped()
    state = fencing.state()
    refused = fencing.release()
    assert refused.rc != 0 and "the node was not looked at" in refused.text, refused.text
    assert fencing.state() == state and fence() == "Fenced"
    scene.inventory(fencing.inventory)
    fencing.let_go()
    assert fence() == "Unfenced"
    assert scene.acknowledged() == last and scene.moved_once() == first
    scene.move_back()


def prepare(scene: KubeletScene, addons: Addons) -> Played:
    """Have a NetworkFence made for each node, as while all is well."""
    about = {
        "driver": addons.driver,
        "cluster_id": addons.ceph.fsid,
        **{f"secret_{key}": value for key, value in addons.secret.items()},
        **{f"ceph_{key}": value for key, value in scene.storage.connection().items()},
        "ceph_host": "localhost",
    }
    asked: dict[str, Any] = {f"network_fence_{key}": value for key, value in about.items()}
    return scene.cluster.playbook("prepare_network_fences", user=PREPARING, target="all", **asked)
