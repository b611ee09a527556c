# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures: a VM node per worker, fresh for every test, whose healthy neighbours are looked after."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
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
