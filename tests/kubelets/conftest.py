# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder share two VM nodes with real kubelets, a control plane and a Ceph. All of it
ends with the folder: idle nodes would take a processor from the suites that come after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab.ceph.cluster import Ceph
from lab.ceph.gateway import Gateway
from lab.kind.buckets import SECRET
from lab.kubelet.cluster import Kubelets
from lab.kubelet.csi import BucketDriver, LunDriver, RbdDriver
from lab.kubernetes.controlplane import lost_after
from support.failover import NODE_A, NODE_B
from support.fixtures import own_name, start_if_it_can_be_had
from support.kubelets import KubeletScene, served
from support.storage import Storage

# On a busy machine an emulated node was silent for 40 s, and took more than the six minutes to boot
# after which a volume is detached although its node may have it mounted.
LOST_AFTER = (*lost_after(90), "--disable-force-detach-on-timeout=true")
OWN = "kubelets"
# How many tests had failed when the nodes were started.
FAILED = pytest.StashKey[int]()


@pytest.fixture(scope="package")
def ceph() -> Iterator[Ceph]:
    """A Ceph of their own: other suites of this worker remove the users and images of theirs."""
    ceph = Ceph(own_name(OWN))
    ceph.start()
    yield ceph
    ceph.remove()


@pytest.fixture(scope="package")
def kubelets(request: pytest.FixtureRequest, ceph: Ceph) -> Iterator[Kubelets]:
    """The nodes, with the CSI driver and its real external-attacher."""
    found = Kubelets(
        own_name(OWN),
        ceph,
        (NODE_A, NODE_B),
        machines=f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}",
        controller_manager_args=LOST_AFTER,
    )
    start(request.session, found)
    yield found
    found.remove()


def start(session: pytest.Session, kubelets: Kubelets) -> None:
    """From nothing, or from whatever there was."""
    start_if_it_can_be_had("VM nodes with kubelets", kubelets.start)
    start_if_it_can_be_had("the CSI driver", RbdDriver(kubelets).start)
    session.stash[FAILED] = session.testsfailed


@pytest.fixture
def scene(request: pytest.FixtureRequest, kubelets: Kubelets, ceph: Ceph) -> KubeletScene:
    """The nodes for one test: nothing in the cluster that another has made. What a failed test has
    left may be cut off, fenced or without power: then all begins again.
    """
    if request.session.testsfailed > request.session.stash[FAILED]:
        kubelets.stop()
        ceph.reset()
        start(request.session, kubelets)
    return KubeletScene(kubelets, Storage(ceph))


@pytest.fixture
def luns(
    request: pytest.FixtureRequest, scene: KubeletScene, kubelets: Kubelets
) -> Iterator[LunDriver]:
    """A second CSI driver, for one test; others do not pay for it. Its array is on B."""
    session, found = request.session, LunDriver(kubelets, NODE_B)
    start_if_it_can_be_had("the CSI driver of LUNs", found.start)
    yield found
    # After a failure the next test begins with other nodes.
    if session.testsfailed == session.stash[FAILED]:
        # Its plugins unmount what the test has left.
        scene.cluster.reset()
        scene.cluster.wait(lambda: not scene.api.all("VolumeAttachment"), "all is detached", 60)
        found.remove()
    found.stop()


@pytest.fixture
def buckets(scene: KubeletScene, kubelets: Kubelets, ceph: Ceph) -> Iterator[BucketDriver]:
    """A CSI driver whose volumes are buckets, for one test."""
    gateway = Gateway(ceph)
    gateway.start()
    found = BucketDriver(kubelets, gateway)
    start_if_it_can_be_had("the CSI driver of buckets", found.start)
    scene.cluster.let_read(SECRET["name"], SECRET["namespace"])
    yield found
    scene.cluster.reset()
    scene.look(lambda: not served(scene), "nothing of it is mounted")
    found.remove()
    gateway.close()
