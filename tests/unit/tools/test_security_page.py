# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/security.md leaves out no playbook and no manifest of rights, and SECURITY.md says how to
report.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
# Parts of other playbooks.
PARTS = {"check_limit", "conclude"}


def rows(heading: str) -> set[str]:
    """The names in the first column of the first table below a heading."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n|---")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    return {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def test_what_each_playbook_may_change_is_said() -> None:
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - PARTS
    assert rows("What each playbook may change") == playbooks


def test_what_each_manifest_allows_is_said() -> None:
    manifests = {path.name for path in (ROOT / "playbooks/files").glob("*.yml")}
    assert rows("Rights in the cluster") == manifests


def test_how_to_report_and_what_is_supported_is_said() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    assert "\n## Reporting\n" in policy and "\n## Supported versions\n" in policy
    assert "docs/security.md" in policy and "blob/main/SECURITY.md" in PAGE
