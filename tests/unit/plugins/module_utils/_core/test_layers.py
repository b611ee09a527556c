# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports go one way: modules -> problem -> fences -> access -> core.

No problem imports another one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

UTILS = Path(__file__).parents[5] / "plugins" / "module_utils"
PLUGINS = UTILS.parent
# Folders that others build on. Those of one layer do not import each other.
LAYERS = {"_core": 0, "_node": 1, "_kube": 1, "_ceph": 1, "_fences": 2}
PROBLEM = 3
# What has no place in a plan: it would read the world, or wait.
READS = {"os", "socket", "subprocess", "time", "threading", "pathlib", "io", "shutil"}


def imports(text: str) -> Iterator[str]:
    """The other folders of module_utils that a file of one of them imports from."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 2:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (name.partition(".")[0] for name in names)


def wrong(folder: str, text: str) -> list[str]:
    """The folders that a file of a folder must not import from."""
    layer = LAYERS.get(folder, PROBLEM)
    return sorted(
        {
            other
            for other in imports(text)
            if other != folder and LAYERS.get(other, PROBLEM) >= layer
        }
    )


@pytest.mark.parametrize(
    "folder", sorted(path.name for path in UTILS.iterdir() if path.is_dir() and path.name[1] != "_")
)
def test_imports_go_one_way(folder: str) -> None:
    files = sorted((UTILS / folder).rglob("*.py"))
    assert files
    found = {file.name: wrong(folder, file.read_text("utf-8")) for file in files}
    assert {name: others for name, others in found.items() if others} == {}


def test_nothing_lies_beside_the_folders() -> None:
    assert [path.name for path in UTILS.glob("*.py")] == []


def is_pure(file: Path) -> bool:
    """A plan, or a part of one: its docstring says that it is pure."""
    said = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return file.name == "plan.py" or "Pure:" in said


def test_plans_and_their_parts_read_nothing() -> None:
    pure = sorted(file for file in UTILS.rglob("*.py") if is_pure(file))
    assert len(pure) > len(list(UTILS.rglob("plan.py")))
    for file in pure:
        names = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not names & READS, f"{file.parent.name}/{file.name} imports {names & READS}"


def test_a_wrong_import_is_seen() -> None:
    line = "from .._triage.plan import plan\n"
    assert wrong("_failover", line) == ["_triage"]
    assert wrong("_node", "from .. import _kube\n") == ["_kube"]
    assert wrong("_triage", "from .plan import plan\n") == []
    assert wrong("_release", "from .._fences import ledger\n") == []


def test_own_parts_are_imported_by_where_they_are() -> None:
    # The other way, by their full names, would pass the tests above unseen.
    whole = [
        file.name
        for file in sorted(PLUGINS.rglob("*.py"))
        if re.search(
            r"^\s*(from|import) ansible_collections\.storage_ops", file.read_text("utf-8"), re.M
        )
    ]
    assert whole == []
