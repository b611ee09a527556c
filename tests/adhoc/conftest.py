# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests of Ansible itself need: both ansible-cores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.selection import lowest


@pytest.fixture(params=["current", "lowest"])
def programs(request: pytest.FixtureRequest) -> Path:
    """Where the programs of an ansible-core are."""
    if request.param == "current":
        return Path(sys.executable).parent
    return Path(lowest("ansible")).parent
