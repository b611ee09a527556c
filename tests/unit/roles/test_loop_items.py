# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A loop's items are in the results of its tasks, which AWX keeps; a label hides them from the
screen only. So none holds a dictionary of options, in which a token may be.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = re.compile(r"given: \"\{\{ (?P<value>[^\"]*(?:_options|__given)\b[^\"]*) \}\}\"")


def test_no_label_shows_a_message() -> None:
    """Ansible prints labels as they are, and a message may quote what a tenant wrote."""
    labels = [
        match[0]
        for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/**/*.yml")]
        for match in re.finditer(r"label: .*", path.read_text("utf-8"))
    ]
    assert labels and not [label for label in labels if ".msg" in label]


def test_no_item_holds_the_value_of_options() -> None:
    """Of what was given in their place, the type or the names are told."""
    found = [
        match["value"].rpartition(" | ")[2]
        for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/**/*.yml")]
        for match in OPTIONS.finditer(path.read_text("utf-8"))
    ]
    assert found and set(found) <= {"type_debug", "list"}
