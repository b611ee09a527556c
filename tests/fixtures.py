# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures: a VM node, or a control plane, per worker, fresh for every test; a node's healthy neighbours are looked after."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster import Cluster, fresh
from lab.kubernetes.build import CURRENT, OLD, Unavailable
from lab.kubernetes.controlplane import ControlPlane, sweep
from lab.vm import Vm
from node import Node


def machine(release: str) -> Iterator[Vm]:
    """A VM node of a Debian release, one per worker, stopped at the end."""
    vm = Vm(f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}", release=release)
    vm.up()
    yield vm
    vm.stop()


@pytest.fixture(scope="session")
def vm() -> Iterator[Vm]:
    """A VM node of the release that `make test` uses."""
    yield from machine("bookworm")


@pytest.fixture
def node(vm: Vm) -> Iterator[Node]:
    """The node as its snapshot has it; afterwards no healthy map or path may be missing."""
    vm.reset()
    node = Node(vm)
    yield node
    if node.guarded:
        node.check_neighbours()


def control_plane(version: str) -> Iterator[ControlPlane]:
    """A control plane of a version, one per worker; where the version cannot be had, its tests are reported as not run."""
    sweep()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    plane = ControlPlane(f"test-{worker}-{os.getpid()}", version)
    try:
        plane.start()
    except Unavailable as exc:
        pytest.skip(f"NOT TESTED: Kubernetes {plane.number} cannot be had here: {exc}")
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
