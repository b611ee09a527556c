# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each role has a Molecule scenario of its name, which runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
SCENARIOS = ROOT / "extensions/molecule"


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_a_scenario(role: str) -> None:
    folder = SCENARIOS / role
    assert (folder / "molecule.yml").exists(), f"extensions/molecule/{role} is missing"
    # What a scenario shares with others is one folder away.
    plays = (folder / "converge.yml").read_text()
    shared = "".join(path.read_text() for path in (SCENARIOS / "cluster").rglob("*.yml"))
    assert f"name: storage_ops.runbooks.{role}\n" in plays + shared
