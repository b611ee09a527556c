# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the text of /proc is taken apart.

The kernel escapes line feeds in the names that a tenant chooses, and at most blanks. But
``str.splitlines`` and ``str.split()`` split at ten more characters, such as a form feed or U+2028.
"""

from __future__ import annotations

import ast
from pathlib import Path

UTILS = Path(__file__).resolve().parents[4] / "plugins" / "module_utils"
# By file, the functions that take apart something else: options, what commands print, files of the
# administrator, what the kernel says of this process or of itself.
OTHERS = {
    "_fuse_mounts/runbook.py": {"_journal", "_mount", "_spellings"},
    "_iscsi_ready/runbook.py": {
        *("_initiator_names", "_iscsid", "_kernel_forbids", "_named", "_persisted"),
        *("_whole_lines", "_would_do"),
    },
    "_nfs/runbook.py": {"_mount_each", "_routes", "asking", "mounting"},
    "_nfs/runtime_limit.py": {"_blocks", "_runtime"},
    "_reattach/gathering.py": {"has_ended", "process_of"},
}


def splits(source: str) -> set[str]:
    """The functions that split a text where Unicode has a line break or a blank."""
    return {
        function.name
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and (call.func.attr == "splitlines" or (call.func.attr == "split" and _blanks(call)))
    }


def _blanks(call: ast.Call) -> bool:
    return not call.args or ast.unparse(call.args[0]) == "None"


def test_what_counts_as_a_split() -> None:
    source = "def {0}(text):\n    return {1}\n"
    for name, code, found in (
        ("a", "text.split()", True),
        ("b", "text.split(None, 5)", True),
        ("c", "text.splitlines()", True),
        ("d", "text.split(' ')", False),
    ):
        assert (splits(source.format(name, code)) == {name}) is found


def test_the_text_of_proc_is_split_at_line_feeds_and_blanks_only() -> None:
    wrong = {}
    for path in UTILS.rglob("*.py"):
        source = path.read_text()
        if "/proc" in source:
            wrong[str(path.relative_to(UTILS))] = splits(source)
    assert {name: found for name, found in wrong.items() if found} == OTHERS
