# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixture: the real controller and sidecar of CSI-Addons beside the scenario of a lost node, with a
driver that fences on its Ceph.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.kubernetes.addons.addons import Addons

from support.failover import RBD, Failover
from support.fixtures import start_if_it_can_be_had


@pytest.fixture
def addons(failover_current: Failover) -> Iterator[Addons]:
    """CSI-Addons; where it cannot be built, its tests are reported as not run.

    Its resource definitions are none for Kubernetes 1.20, which refuses one of them.
    """
    found = Addons(failover_current.cluster.plane, failover_current.storage.ceph, RBD)
    try:
        start_if_it_can_be_had("CSI-Addons", found.start)
        yield found
    finally:
        found.stop()
