# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An older Python gets a message from every module, and no SyntaxError."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import python as _python

OURS = "ansible_collections.storage_ops.runbooks.plugins.module_utils"
MODULES = sorted(Path(_python.__file__).parents[1].joinpath("modules").glob("*.py"))


@pytest.mark.parametrize("version", [(3, 6, 8), (3, 8, 99)])
def test_an_older_python_is_told(
    version: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys, "executable", "/usr/libexec/platform-python")
    with pytest.raises(SystemExit, match="1"):
        _python.require()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] is True
    assert "requires Python 3.9" in result["msg"]
    assert f"/usr/libexec/platform-python is Python {version[0]}.{version[1]}" in result["msg"]


def test_the_oldest_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    _python.require()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", [Path(_python.__file__), *MODULES], ids=lambda path: path.stem)
def test_it_can_be_read(path: Path) -> None:
    """Until it has said so: all of a module is read before its first line is run."""
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    names = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in names
    lines = [ast.unparse(node) for node in tree.body if not isinstance(node, ast.FunctionDef)]
    ours = [number for number, line in enumerate(lines) if line.startswith(f"from {OURS}")]
    if ours:
        assert lines[ours[0] : ours[0] + 2] == [f"from {OURS} import _python", "_python.require()"]
