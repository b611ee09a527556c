# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What roles and playbooks read of the evidence is never cut: one tenant's would decide."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.shortening import DECIDING

ROOT = Path(__file__).parents[3]
# For people alone: show_findings writes all of the evidence.
READERS = re.compile(r"\bevidence\.(?!items\(\))(\w+)|\bevidence\[['\"](\w+)")
FILTERS = re.compile(r"\b(?:named|evidence)(?:\.get\(|\[)['\"](\w+)")


def test_evidence_that_is_decided_by_is_never_cut() -> None:
    files = [*(ROOT / "roles").rglob("*.yml"), *(ROOT / "playbooks").rglob("*.yml")]
    read = {
        first or second: file
        for file in files
        for first, second in READERS.findall(file.read_text(encoding="utf-8"))
    }
    for file in [
        *(ROOT / "plugins/filter").glob("*.py"),
        *(ROOT / "plugins/action").glob("*.py"),
        ROOT / "plugins/module_utils/_core/controls.py",
    ]:
        read |= dict.fromkeys(FILTERS.findall(file.read_text(encoding="utf-8")), file)
    assert {"volumes", "pods", "wwids", "attachment", "uid"} <= set(read)
    assert {name: file for name, file in read.items() if name not in DECIDING} == {}
