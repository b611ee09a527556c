# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What goes from one host to another by hostvars: ansible-core before 2.16.14, 2.17.7 and 2.18.1
takes a text that comes that way for a template (CVE-2024-11079).
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Variables of the inventory, lists of our own words, and whether something is defined.
ALLOWED = {
    "ansible_connection",
    "ansible_python_interpreter",
    "__replace_host",
    "__respond_blind",
    "__respond_roles",
    "residual_paths_result is defined",
}
# Each text in it has a form that no template has, before it is kept (test_load_iscsi_modules.py).
CHECKED = {("load_iscsi_modules.yml", "'__told'")}
READ = re.compile(
    r"hostvars(?:\[(?:[^\[\]]|\[[^\]]*\])*\]\.(?P<read>\w+(?: is defined)?)"
    r"|, \[(?P<extracted>'\w+'))"
)


def test_no_text_of_others_goes_from_host_to_host() -> None:
    found = set()
    for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/**/*.yml")]:
        text = re.sub(r"^ *#.*$", "", path.read_text("utf-8"), flags=re.M)
        # Whether a host is in the inventory.
        uses = len(re.findall(r"\bhostvars\b", text)) - len(
            re.findall(r"\bin hostvars\b(?!\[)", text)
        )
        matches = list(READ.finditer(text))
        assert len(matches) == uses, f"{path}: an expression that this test does not know"
        found |= {(path.name, match["read"] or match["extracted"]) for match in matches}
    assert {(name, read) for name, read in found if read not in ALLOWED} == CHECKED
