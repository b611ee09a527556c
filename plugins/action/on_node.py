# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller, between Ansible and what a host says that is less trusted than it.

Ansible takes variables of a result (``ansible_facts``, which count more than a role's defaults and
the inventory) and artifacts (``ansible_stats``, which AWX makes extra variables of the next job of
a workflow) from whatever answers in place of the module, and so from root on that host. With
``delegate_to`` the variables are those of the host of the play, as localhost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.plugins.action.normal import ActionModule as Normal

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted

OWN_NAMES = ("on_node", "storage_ops.runbooks.on_node")
# What ansible-core acts on in a result, besides what it drops itself (C.INTERNAL_RESULT_KEYS,
# _ansible_*).
ORDERS = ("ansible_facts", "ansible_stats", "add_host", "add_group")
# What Ansible prints of a result as it is, where a terminal would obey it; all else it prints as
# JSON.
PRINTED = ("msg", "warnings", "deprecations", "diff", "exception")
MOST = 500_000
# What the controller takes in of a module's answer (characters). Our own modules return a tenth of
# it; beyond it, parsing and showing would cost the controller more than any node is worth.
MOST_TAKEN = 10_000_000
SPEC: dict[str, dict[str, Any]] = {
    "module": {"type": "str", "required": True},
    "arguments": {"type": "dict", "default": {}},
}


class ActionModule(Normal):  # type: ignore[misc]
    """The action of this file, and of all modules that do not run on the controller
    (meta/runtime.yml).
    """

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module, and keep what it says of itself."""
        if self._task.action not in OWN_NAMES:
            escape(self)
            result: dict[str, Any] = answered(lambda: super(ActionModule, self).run(tmp, task_vars))
            return as_run(without_orders(result, _interpreter(self)))
        _ok, params = self.validate_argument_spec(argument_spec=SPEC)
        task = self._task.copy()
        task.action, task.args = params["module"], params["arguments"]
        loader = self._shared_loader_obj.action_loader
        name = task.action if loader.has_plugin(task.action) else "ansible.builtin.normal"
        action = loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        escape(action)
        result = answered(lambda: action.run(task_vars=task_vars))
        return without_orders(result, _interpreter(action))


def answered(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What an action returns, also where the host cannot be reached.

    Before ansible-core 2.19 the text of a failed connection is a template, if an action raises it
    (TaskExecutor._execute takes only what is returned for unsafe). Whoever answers at the host's
    address writes it, even before ssh has seen the key: "Bad remote protocol version
    identification: ...".
    """
    try:
        return run()
    except AnsibleConnectionFailure as error:
        return {"unreachable": True, "msg": str(error)}


def escape(action: Any) -> None:
    """Have Ansible warn of nothing that a terminal would obey.

    It warns of what a host says before, beside and after a module's JSON as it is, and of values
    that no module may return (ActionBase._parse_returned_data, remove_internal_keys).
    """
    execute, parse = action._low_level_execute_command, action._parse_returned_data

    def executed(*args: Any, **kwargs: Any) -> dict[str, Any]:
        said: dict[str, Any] = _within_bounds(execute(*args, **kwargs))
        texts = {stream: _as_json(said.get(stream) or "") for stream in ("stdout", "stderr")}
        lines = {f"{stream}_lines": text.splitlines() for stream, text in texts.items()}
        return {**said, **texts, **lines}

    def parsed(*args: Any, **kwargs: Any) -> dict[str, Any]:
        data: dict[str, Any] = parse(*args, **kwargs)
        for key in [key for key in data if key.startswith("_ansible_") or key in ORDERS[2:]]:
            data[untrusted.shown(key)] = untrusted.clean(data.pop(key))
        return data

    action._low_level_execute_command, action._parse_returned_data = executed, parsed


def _within_bounds(said: dict[str, Any]) -> dict[str, Any]:
    """The answer of a host, or in its place a failure that says that it is too long."""
    size = sum(len(said.get(stream) or "") for stream in ("stdout", "stderr"))
    if size <= MOST_TAKEN:
        return said
    why = (
        f"the host answered with {size} characters, and {MOST_TAKEN} are taken from a module: "
        "whoever is root there may send anything"
    )
    # As a module says that it failed. The temporary folder is removed by the same way, and its
    # answer is not looked at.
    answer = json.dumps({"failed": True, "msg": why}) + "\n"
    lines = {"stdout_lines": answer.splitlines(), "stderr_lines": []}
    return {**said, "rc": 1, "stdout": answer, "stderr": "", **lines}


def _as_json(text: str) -> str:
    """The same to who reads it as JSON, which may hold such characters in its strings only."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\r\t" else json.dumps(char)[1:-1] for char in text
    )


def without_orders(result: dict[str, Any], interpreter: dict[str, Any]) -> dict[str, Any]:
    """A result that sets nothing but the Python that the controller itself has found on the host.

    What it says of the host is the value ``facts``, and no variable.
    """
    kept = {key: value for key, value in result.items() if key not in ORDERS}
    for key in set(PRINTED) & set(kept):
        kept[key] = untrusted.clean(kept[key], MOST)
    if not isinstance(kept.get("exception", ""), str):
        # An object since ansible-core 2.19, with the module's own traceback in it.
        event = getattr(kept["exception"], "event", None)
        kept["exception"] = untrusted.clean(
            str(getattr(event, "formatted_traceback", "") or "no traceback"), MOST
        )
    said = result.get("ansible_facts")
    facts = (
        {key: value for key, value in said.items() if key not in interpreter}
        if isinstance(said, dict)
        else {}
    )
    kept |= {"facts": facts} if facts else {}
    return {**kept, "ansible_facts": interpreter} if interpreter else kept


def as_run(result: dict[str, Any]) -> dict[str, Any]:
    """The same of a module of this collection: each of them supports check mode, so what has run
    was not skipped. A playbook takes what was skipped for what was not wanted.

    All of its texts are shown by someone, in a label or a message of a role, so none has anything
    that a terminal would obey. Our modules return nothing of the kind; whoever is root on the host
    may.
    """
    cleaned: dict[str, Any] = {
        key: value if key == "ansible_facts" else untrusted.clean(value, MOST)
        for key, value in result.items()
        if key != "skipped"
    }
    return {untrusted.shown(key): value for key, value in cleaned.items()}


def _interpreter(action: ActionBase) -> dict[str, Any]:
    """What ActionBase._execute_module adds to a result, so that no later task looks for
    it again.
    """
    key, found = action._discovered_interpreter_key, action._discovered_interpreter
    return {key: found} if key and found else {}
