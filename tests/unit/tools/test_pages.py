# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages: tables stay tables, and CONTRIBUTING.md names the file that decides each control."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.controls import CONTROLS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("page", "bad"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", False),
        ("1. In a list:\n\n   | a | b |\n   |---|---|\n   | 1 | 2 |\n", False),
        ("1. In a list:\n\n   | a | b | |---|---| | 1 | 2 |\n", True),
        ("| a | b | |---|---|\n| 1 | 2 |\n", True),
    ],
)
def test_a_table_that_became_a_paragraph_is_named(tmp_path: Path, page: str, bad: bool) -> None:
    file = tmp_path / "page.md"
    file.write_text(page)
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests/tools/tables.py"), str(file)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert bool(run.returncode) is bad and (f"{file}:" in run.stderr) is bad


def test_the_file_that_decides_each_control_is_named_and_exists() -> None:
    rows = dict(
        re.findall(r"^\| (STOR-\d\d) \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    )
    assert list(rows) == list(CONTROLS)
    for control, cell in rows.items():
        files = re.findall(r"`(_\w+/\w+\.py)`", cell)
        assert files, control
        for file in files:
            assert (ROOT / "plugins/module_utils" / file).is_file(), (control, file)
