# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No option that holds a secret is one that Ansible writes to a log."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins import module_utils
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.argspec import ArgumentSpec


def specs() -> dict[str, ArgumentSpec]:
    """Every ArgumentSpec of the collection, by module and name."""
    found = {}
    for info in pkgutil.walk_packages(module_utils.__path__, f"{module_utils.__name__}."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if isinstance(value, ArgumentSpec):
                found[f"{info.name[len(module_utils.__name__) + 1 :]}.{name}"] = value
    return found


def within(options: dict[str, Any]) -> list[str]:
    """Secret options within others that are logged."""
    found = []
    for name, option in options.items():
        inner = option.get("options") or {}
        if not option.get("no_log"):
            found += [f"{name}.{each}" for each, sub in inner.items() if sub.get("no_log")]
            found += [f"{name}.{each}" for each in within(inner)]
    return found


def test_secrets_are_options_of_their_own() -> None:
    """Ansible logs a list or a dictionary by its repr(), where a quote or a line break hides a
    secret from its masking.
    """
    known = specs()
    assert {"_fuse_mounts.options.OPTIONS_SPEC", "_kube.options.AUTH"} <= set(known)
    assert {
        name: within(spec.options) for name, spec in known.items() if within(spec.options)
    } == {}
