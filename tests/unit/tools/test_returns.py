# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all modules say alike in RETURN has one source, and each module has it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted((ROOT / "plugins/modules").glob("*.py"))


def load() -> ModuleType:
    """The program, which is no part of a package."""
    path = ROOT / "tests/tools/returns.py"
    spec = importlib.util.spec_from_file_location("returns_under_test", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


returns = load()
TEMPLATE = {
    "msg": {"description": "Summary.", "returned": "always", "type": "str"},
    "findings": {
        "description": "What is wrong: all of it.",
        "returned": "always",
        "type": "list",
        "elements": "dict",
        "contains": {
            "control": {"description": "Number.", "type": "str", "returned": "always"},
        },
    },
}
MODULE = '''
RETURN = r"""
msg:
  description: An old sentence.
  returned: sometimes
  type: str
  sample: "1 finding: a map"
other:
  description: The module's own.
  returned: always
  type: str
findings:
  description:
    - An old sentence.
    - The module's own item.
  returned: always
  type: list
  elements: dict
  contains:
    control:
      description: An old sentence.
      type: str
      returned: always
      sample: STOR-01
    volume:
      description: The module's own.
      type: str
      returned: always
"""
'''


def section(module: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(returns.SECTION.search(module)[0])
    return loaded


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.stem))
def test_each_module_has_what_is_shared(file: Path) -> None:
    text, template = file.read_text(encoding="utf-8"), returns.read_template()
    if file.stem != returns.WHOLE:
        template = {key: returns.referring(key, value) for key, value in template.items()}
    assert returns.with_shared(text, template) == text, "run make format"


def test_one_module_says_all_that_findings_and_actions_contain() -> None:
    there = section((ROOT / f"plugins/modules/{returns.WHOLE}.py").read_text(encoding="utf-8"))
    for key in ("findings", "actions"):
        assert list(there[key]["contains"]) == list(returns.read_template()[key]["contains"])


def test_the_others_refer_to_it() -> None:
    assert returns.referring("msg", TEMPLATE["msg"]) == TEMPLATE["msg"]
    found = returns.referring("findings", TEMPLATE["findings"])
    assert found["description"] == (
        "What is wrong: all of it. "
        "RV(storage_ops.runbooks.node_storage_info#module:findings) lists all keys."
    )


def test_what_is_shared_is_replaced_and_what_is_the_module_s_own_stays() -> None:
    written = section(returns.with_shared(MODULE, TEMPLATE))
    shared = TEMPLATE["findings"]["contains"]
    assert written == {
        "msg": {**TEMPLATE["msg"], "sample": "1 finding: a map"},
        "other": {"description": "The module's own.", "returned": "always", "type": "str"},
        "findings": {
            "description": ["What is wrong: all of it.", "The module's own item."],
            "returned": "always",
            "type": "list",
            "elements": "dict",
            "contains": {
                "control": {**shared["control"], "sample": "STOR-01"},
                "volume": {"description": "The module's own.", "type": "str", "returned": "always"},
            },
        },
    }


def test_a_second_time_changes_nothing() -> None:
    once = returns.with_shared(MODULE, TEMPLATE)
    assert returns.with_shared(once, TEMPLATE) == once != MODULE


def test_long_sentences_are_wrapped_and_mean_the_same() -> None:
    text = " ".join(["a long sentence with a colon: and more"] * 9)
    written = returns.with_shared(MODULE, {"msg": {**TEMPLATE["msg"], "description": text}})
    assert section(written)["msg"]["description"] == text
    assert max(map(len, written.splitlines())) <= returns.WIDTH


def test_a_module_without_return_values_is_left_alone() -> None:
    assert returns.with_shared("DOCUMENTATION = ''\n", TEMPLATE) == "DOCUMENTATION = ''\n"
