# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The examples of a module give options that exist, and all that are required."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.tests.unit.support.roles import documented

OURS = "storage_ops.runbooks."
MODULES = sorted(
    path.stem for path in (Path(__file__).resolve().parents[4] / "plugins/modules").glob("*.py")
)


def plugin(module: str) -> Any:
    return importlib.import_module(f"ansible_collections.{OURS}plugins.modules.{module}")


def calls(entry: Any, defaults: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The modules of ours that a play, a block or a task calls, with what it gives them."""
    if isinstance(entry, list):
        for one in entry:
            yield from calls(one, defaults)
    elif isinstance(entry, dict):
        defaults = {**defaults, **entry.get("module_defaults", {})}
        for key, value in entry.items():
            if key.startswith(OURS) and key.removeprefix(OURS) in MODULES:
                yield key.removeprefix(OURS), {**defaults.get(key, {}), **(value or {})}
            elif key in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
                yield from calls(value, defaults)


@pytest.mark.parametrize("module", MODULES)
def test_examples_fit_the_options(module: str) -> None:
    found = list(calls(yaml.safe_load(plugin(module).EXAMPLES), {}))
    assert module in [name for name, _given in found]
    for name, given in found:
        options = documented(name)
        assert set(given) <= set(options), (name, set(given) - set(options))
        required = {option for option, about in options.items() if about.get("required")}
        assert required <= set(given), (name, required - set(given))
        for option, value in given.items():
            choices = options[option].get("choices")
            if choices and "{{" not in str(value):
                some = value if isinstance(value, list) else [value]
                assert set(some) <= set(choices), (name, option, value)


@pytest.mark.parametrize("module", ["node_fence", "node_release", "volume_failover"])
def test_modules_of_a_fence_name_their_role_and_playbook_first(module: str) -> None:
    """Nobody has to call them by hand."""
    told = yaml.safe_load(plugin(module).DOCUMENTATION)["description"]
    playbook = "release_fenced_node" if module == "node_release" else "fail_over_volumes"
    assert len(told) == 3
    assert (
        told[0]
        == f"Called by the role P({OURS}{module}#role); use the playbook C({OURS}{playbook})."
    )
