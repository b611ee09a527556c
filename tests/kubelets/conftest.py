# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder share two VM nodes with real kubelets, a control plane and a Ceph."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab.ceph.cluster import Ceph
from lab.kubelet.cluster import Kubelets
from lab.kubelet.csi import RbdDriver
from lab.kubernetes.controlplane import lost_after
from support.failover import NODE_A, NODE_B
from support.fixtures import ceph, start_if_it_can_be_had
from support.kubelets import KubeletScene
from support.storage import Storage

__all__ = ["ceph"]
# On a busy machine an emulated node was silent for 40 s.
LOST_AFTER = lost_after(90)


@pytest.fixture(scope="session")
def kubelets(ceph: Ceph) -> Iterator[Kubelets]:
    """The nodes, with the CSI driver and its real external-attacher."""
    worker = f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}"
    found = Kubelets(
        f"{worker}-{os.getpid()}",
        ceph,
        (NODE_A, NODE_B),
        machines=worker,
        controller_manager_args=LOST_AFTER,
    )
    start_if_it_can_be_had("VM nodes with kubelets", found.start)
    start_if_it_can_be_had("the CSI driver", RbdDriver(found).start)
    yield found
    found.remove()


@pytest.fixture
def scene(kubelets: Kubelets, ceph: Ceph) -> KubeletScene:
    """The nodes for one test: nothing in the cluster that another has made."""
    return KubeletScene(kubelets, Storage(ceph))
