# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller: has another collection's module make an object of AWX, or returns what
it would be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

SPEC: dict[str, dict[str, Any]] = {
    "collection": {"type": "str", "default": ""},
    "kind": {"type": "str", "required": True},
    "arguments": {"type": "dict", "required": True},
    "secrets": {"type": "dict", "default": {}, "no_log": False},
}
# Before ansible-core 2.19 a template in a dictionary is always a text.
NUMBERS = ("forks", "job_slice_count", "timeout")


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action of this file."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module; without a collection, return the object."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _ok, params = self.validate_argument_spec(argument_spec=SPEC)
        variables = task_vars or {}
        kind, arguments, secrets = params["kind"], numbered(params["arguments"]), params["secrets"]
        if not params["collection"]:
            made = {"kind": kind, "arguments": arguments, "secrets": dict(secrets)}
            return {**result, "changed": False, "object": made}
        if secrets:
            values = {
                name: self._templar.template(variables[variable])
                for name, variable in secrets.items()
            }
            arguments["inputs"] = {**arguments.get("inputs", {}), **values}
        answer: dict[str, Any] = self._execute_module(
            module_name=f"{params['collection']}.{kind}",
            module_args=arguments,
            task_vars=task_vars,
        )
        # Ansible adds its own, and the module's may have a secret in it.
        answer.pop("invocation", None)
        return {**result, **answer}


def numbered(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with numbers that are numbers."""
    return {name: int(value) if name in NUMBERS else value for name, value in arguments.items()}
