# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The residual scenarios on every Debian release that LAB_RELEASES names, each on a node of its
own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab.vm import Vm
from support.fixtures import machine, node

__all__ = ["node"]

RELEASES = os.environ.get("LAB_RELEASES", "bullseye,bookworm,trixie").split(",")


@pytest.fixture(scope="session", params=RELEASES)
def vm(request: pytest.FixtureRequest) -> Iterator[Vm]:
    """A VM node of the release."""
    yield from machine(request.param)
