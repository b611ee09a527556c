# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder share one kind cluster and one CSI driver on it; each begins with nothing
that another has made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.ceph.cluster import Ceph
from lab.ceph.gateway import Gateway
from lab.kind.buckets import (
    SECRET,
    BucketDriver,
    MountPodDriver,
    UnitBucketDriver,
    UnstagedBucketDriver,
)
from lab.kind.cluster import Kind
from lab.kind.csi import Driver, UnattachedDriver
from lab.kind.python_image import python_image
from support.fixtures import ceph, start_if_it_can_be_had
from support.kind import KindCluster
from support.node_pods import NodePods
from support.reattach import REPAIR

__all__ = ["ceph"]


@pytest.fixture(scope="session")
def kind() -> Iterator[Kind]:
    """The cluster."""
    # Nodes are named after it, and no name of a node may be longer than 63.
    found = Kind(f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}-{os.getpid()}")
    start_if_it_can_be_had("a kind cluster", found.start)
    yield found
    found.remove()


@pytest.fixture(scope="session")
def started_driver(kind: Kind) -> Iterator[Driver]:
    """The CSI driver, on both workers."""
    found = Driver(kind)
    start_if_it_can_be_had("the CSI driver", found.start)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def provisioner(started_driver: Driver) -> None:
    """The external-provisioner of that driver."""
    start_if_it_can_be_had("the external-provisioner", started_driver.start_provisioner)


@pytest.fixture(scope="session")
def unattached_driver(kind: Kind) -> UnattachedDriver:
    """A CSI driver whose volumes are not attached, on both workers."""
    found = UnattachedDriver(kind)
    start_if_it_can_be_had("the CSI driver", found.start)
    return found


@pytest.fixture(scope="session")
def bucket_driver(kind: Kind, ceph: Ceph) -> Iterator[BucketDriver]:
    """A CSI driver whose volumes are buckets, on both workers."""
    gateway = Gateway(ceph)
    gateway.start()
    found = BucketDriver(kind, gateway)
    start_if_it_can_be_had("the CSI driver", found.start)
    KindCluster(kind).let_read(SECRET["name"], SECRET["namespace"])
    yield found
    found.stop()
    gateway.close()


@pytest.fixture(scope="session")
def unstaged_bucket_driver(bucket_driver: BucketDriver) -> UnstagedBucketDriver:
    """Another one, which stages nothing."""
    found = UnstagedBucketDriver(bucket_driver)
    found.start()
    return found


@pytest.fixture(scope="session")
def unit_bucket_driver(bucket_driver: BucketDriver) -> UnitBucketDriver:
    """Another one, whose servers are units of the node's systemd."""
    found = UnitBucketDriver(bucket_driver)
    found.start()
    return found


@pytest.fixture(scope="session")
def mount_pod_driver(bucket_driver: BucketDriver) -> MountPodDriver:
    """Another one, whose volumes are served by pods of their own."""
    found = MountPodDriver(bucket_driver)
    found.start()
    return found


@pytest.fixture
def cluster(kind: Kind) -> KindCluster:
    """The cluster for one test."""
    return KindCluster(kind)


@pytest.fixture
def driver(cluster: KindCluster, started_driver: Driver) -> Driver:
    """The CSI driver for one test: no volume has anything in it."""
    started_driver.forget()
    return started_driver


@pytest.fixture
def node_pods(
    cluster: KindCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodePods]:
    """A pod on each node, through which the accounts for audits and repairs may reach it."""
    kind = cluster.kind
    start_if_it_can_be_had(
        "an image with Python", lambda: kind.import_image(python_image(), *kind.nodes)
    )
    found = NodePods(cluster, tmp_path)
    monkeypatch.setenv("PATH", found.path)
    try:
        found.start(REPAIR.with_name("rbac-audit.yml"), REPAIR)
        yield found
    finally:
        found.remove()
