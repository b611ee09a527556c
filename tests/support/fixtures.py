# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures: a VM node, a control plane or a Ceph cluster per worker, fresh for every test; a node's
healthy neighbours are looked after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from lab.ceph.cluster import Ceph
from lab.kubernetes.build import CURRENT, OLD, Unavailable
from lab.kubernetes.controlplane import ControlPlane
from lab.state import READY, State
from lab.vm import Vm

from support.cluster import Cluster, fresh
from support.failover import SOON_LOST, Failover
from support.node import Node
from support.storage import Storage, fresh_storage


def machine(release: str) -> Iterator[Vm]:
    """A VM node of a Debian release, one per worker, stopped at the end."""
    vm = Vm(f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}", release=release)
    yield vm
    vm.stop()


@pytest.fixture(scope="session")
def vm() -> Iterator[Vm]:
    """A VM node of the release that `make test` uses."""
    yield from machine("bookworm")


@pytest.fixture
def node(vm: Vm) -> Iterator[Node]:
    """The node with its array and its maps, and no more."""
    yield from fresh_node(vm, READY)


def fresh_node(vm: Vm, state: State) -> Iterator[Node]:
    """The node in this state, for one test; afterwards no healthy map or path may be missing."""
    vm.reset(state)
    node = Node(vm)
    yield node
    if node.guarded:
        node.check_neighbours()


def own_name(suffix: str = "") -> str:
    """Of what belongs to this process, and to no other that tests at the same time. Two fixtures
    of one process need two suffixes: the second would start in the folder of the first.
    """
    return "-".join(
        filter(
            None, ("test", os.environ.get("PYTEST_XDIST_WORKER", "gw0"), str(os.getpid()), suffix)
        )
    )


def start_if_it_can_be_had(what: str, start: Callable[[], None]) -> None:
    """Where it cannot be built, the tests that need it are reported as not run; in CI they fail."""
    try:
        start()
    except Unavailable as exc:
        not_tested(f"{what} cannot be had here: {exc}")


def not_tested(why: str) -> NoReturn:
    """Report a test as not run. What a developer's machine cannot have, that of CI can."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"NOT TESTED: {why}", pytrace=False)
    pytest.skip(f"NOT TESTED: {why}")


def control_plane(version: str, *arguments: str) -> Iterator[ControlPlane]:
    """A control plane of a version, one per worker; where the version cannot be had, its tests are
    reported as not run.
    """
    name = own_name("fast" if arguments else "")
    plane = ControlPlane(name, version, controller_manager_args=arguments)
    start_if_it_can_be_had(f"Kubernetes {plane.number}", plane.start)
    yield plane
    plane.remove()


@pytest.fixture(scope="session")
def plane_1_20() -> Iterator[ControlPlane]:
    """Kubernetes 1.20.2, which has the bugs."""
    yield from control_plane(OLD)


@pytest.fixture(scope="session")
def plane_current() -> Iterator[ControlPlane]:
    """A current Kubernetes."""
    yield from control_plane(CURRENT)


@pytest.fixture
def control_plane_1_20(plane_1_20: ControlPlane) -> Iterator[Cluster]:
    """A cluster of Kubernetes 1.20.2, empty."""
    yield from fresh(plane_1_20)


@pytest.fixture
def control_plane_current(plane_current: ControlPlane) -> Iterator[Cluster]:
    """A cluster of a current Kubernetes, empty."""
    yield from fresh(plane_current)


@pytest.fixture(scope="session")
def ceph() -> Iterator[Ceph]:
    """A Ceph cluster, one per worker."""
    ceph = Ceph(own_name())
    ceph.start()
    yield ceph
    ceph.remove()


@pytest.fixture
def storage(ceph: Ceph) -> Iterator[Storage]:
    """A Ceph cluster without images, users and blocklist entries."""
    yield from fresh_storage(ceph)


@pytest.fixture(scope="session")
def plane_failover_1_20() -> Iterator[ControlPlane]:
    """Kubernetes 1.20.2 that gives a silent node up after seconds."""
    yield from control_plane(OLD, *SOON_LOST)


@pytest.fixture(scope="session")
def plane_failover_current() -> Iterator[ControlPlane]:
    """The same, of a current Kubernetes."""
    yield from control_plane(CURRENT, *SOON_LOST)


@pytest.fixture
def failover_1_20(plane_failover_1_20: ControlPlane, storage: Storage) -> Iterator[Failover]:
    """Two nodes, and a pod with an RBD volume on the first, on Kubernetes 1.20.2."""
    yield from failover(plane_failover_1_20, storage)


@pytest.fixture
def failover_current(plane_failover_current: ControlPlane, storage: Storage) -> Iterator[Failover]:
    """The same on a current Kubernetes."""
    yield from failover(plane_failover_current, storage)


def failover(plane: ControlPlane, storage: Storage) -> Iterator[Failover]:
    """The scenario for one test, ended afterwards."""
    for cluster in fresh(plane):
        scenario = Failover(cluster, storage)
        yield scenario
        scenario.close()
