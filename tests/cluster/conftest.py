# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests in this folder run on a control plane."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.fixtures import control_plane_1_20, control_plane_current, plane_1_20, plane_current
from support.selection import lowest

__all__ = ["control_plane_1_20", "control_plane_current", "plane_1_20", "plane_current"]

CLAIMS = Path(__file__).parents[2] / "meta/ee-requirements.txt"


@pytest.fixture
def lowest_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible runs with the lowest kubernetes that is claimed, and the lowest ansible-core."""
    programs = Path(lowest("ansible")).parent
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    asked = [str(programs / "python"), "-c", "import kubernetes; print(kubernetes.__version__)"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert f"kubernetes>={said}" in CLAIMS.read_text().splitlines(keepends=True)
