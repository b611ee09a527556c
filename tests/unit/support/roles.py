# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a role makes of what it is given, as Ansible computes it, and what modules document."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.storage_ops.runbooks.plugins.action import check_scope

ROLES = Path(__file__).resolve().parents[3] / "roles"
PLUGINS = "ansible_collections.storage_ops.runbooks.plugins"


def beginning(role: str) -> dict[str, Any]:
    """The first task of a role, also where it is in a file of its own."""
    folder = ROLES / role / "tasks"
    task: dict[str, Any] = yaml.safe_load((folder / "main.yml").read_text())[0]
    while imported := task.get("ansible.builtin.import_tasks"):
        task = yaml.safe_load((folder / imported).read_text())[0]
    return task


def load(file: Path) -> Any:
    """What is in a file of YAML, with its templates, as Ansible itself loads it."""
    loader = DataLoader()
    # Since ansible-core 2.19 only what is trusted is a template.
    trusted = (
        {"trusted_as_template": True}
        if "trusted_as_template" in signature(loader.load_from_file).parameters
        else {}
    )
    return loader.load_from_file(str(file), **trusted)


def rendered(template: Any, variables: dict[str, Any]) -> Any:
    """What the installed ansible-core makes of a template, or of all templates in a value."""
    templar = Templar(loader=DataLoader(), variables=variables)
    # Since ansible-core 2.19 its environment is that of another object.
    environment = getattr(templar, "_engine", templar).environment
    for name, function in own_filters().items():
        environment.filters[f"storage_ops.runbooks.{name}"] = function
    # Before, it compiles a variable wherever another one names it: three quarters of the time.
    environment.compile = partial(_compiled, environment.compile)
    return templar.template(template)


_CODES: dict[tuple[Any, ...], Any] = {}


def _compiled(compile_it: Callable[..., Any], *of: Any, **further: Any) -> Any:
    """What Jinja's compiler makes of a text: the same in each environment of these tests."""
    key = (type(compile_it.__self__), *of, *sorted(further.items()))  # type: ignore[attr-defined]
    if key not in _CODES:
        _CODES[key] = compile_it(*of, **further)
    return _CODES[key]


@cache
def own_filters() -> dict[str, Callable[..., Any]]:
    """The filters of the collection, by their short names. No test installs Ansible's loader."""
    found: dict[str, Callable[..., Any]] = {}
    for file in sorted((ROLES.parent / "plugins/filter").glob("[a-z]*.py")):
        plugin = importlib.import_module(
            f"ansible_collections.storage_ops.runbooks.plugins.filter.{file.stem}"
        )
        found.update(plugin.FilterModule().filters())
    return found


def variable(role: str, name: str, check: bool = False, **given: Any) -> Any:
    """The value of the variable ``__role_name``, with everything at its default that is
    not given.
    """
    variables: dict[str, Any] = {
        "ansible_playbook_python": "/venv/python",
        "inventory_hostname": "worker01",
        "omit": "(left out)",
    }
    for file in ("defaults", "vars"):
        variables.update(load(ROLES / role / file / "main.yml"))
    variables.update(given)
    task = beginning(role)
    asked = task["storage_ops.runbooks.check_scope"]
    assert (asked["role"], task["register"]) == (role, f"__{role}")
    read = check_scope.answered(
        role, variables, *(asked.get(name, []) for name in ("own", "unread", "rare"))
    )
    variables[f"__{role}"] = {**read, "check": check}
    return rendered(variables[f"__{role}_{name}"], variables)


def fragment(name: str) -> dict[str, Any]:
    """storage_ops.runbooks._node.bounds is the variable BOUNDS of the class in
    doc_fragments/_node.py.
    """
    file, _dot, variable = name.removeprefix("storage_ops.runbooks.").partition(".")
    plugin = importlib.import_module(
        f"ansible_collections.storage_ops.runbooks.plugins.doc_fragments.{file}"
    )
    loaded: dict[str, Any] = yaml.safe_load(
        getattr(plugin.ModuleDocFragment, (variable or "documentation").upper())
    )
    return loaded


def documented(module: str, left_out: Collection[str] = ()) -> dict[str, Any]:
    """The options of a module as documented, without those of some fragments."""
    plugin = importlib.import_module(
        f"ansible_collections.storage_ops.runbooks.plugins.modules.{module}"
    )
    documentation = yaml.safe_load(plugin.DOCUMENTATION)
    options: dict[str, Any] = {}
    for name in documentation.get("extends_documentation_fragment", []):
        options.update({} if name in left_out else fragment(name).get("options", {}))
    # As for ansible-doc, the module has the last word.
    options.update(documentation.get("options", {}))
    return options
