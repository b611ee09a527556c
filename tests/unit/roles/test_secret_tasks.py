# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task that has a secret in its arguments or its result shows neither, at -vvvv either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
# Options of modules that are not ours: those of ours have no_log themselves (test_secrets.py).
SECRET_OPTIONS = {
    *("inputs", "password", "url_password", "token", "oauthtoken", "api_key", "kubeconfig"),
    # A password is never in argv.
    "stdin",
}
READER = "storage_ops.runbooks.csi_secret_info"
# It runs another module.
ON_NODE = "storage_ops.runbooks.on_node"
AWX_OBJECT = "storage_ops.runbooks.awx_object"


class Loader(yaml.SafeLoader):
    """YAML with Ansible's own tags, whose values do not matter here."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def tasks_of(part: Any) -> Iterator[dict[str, Any]]:
    """Every task of a file, those in blocks and plays too."""
    if isinstance(part, list):
        for found in part:
            yield from tasks_of(found)
    elif isinstance(part, dict):
        yield part
        for name in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from tasks_of(part.get(name) or [])


def shipped() -> list[tuple[str, dict[str, Any]]]:
    files = [
        *ROOT.glob("roles/*/tasks/*.yml"),
        *ROOT.glob("roles/*/handlers/*.yml"),
        *ROOT.glob("playbooks/*.yml"),
    ]
    return [
        (file.name, task)
        for file in sorted(files)
        for task in tasks_of(yaml.load(file.read_text(encoding="utf-8"), Loader))
    ]


def reads_secrets(name: str, given: dict[str, Any]) -> bool:
    """A module of ours that returns them, or one of kubernetes.core that may."""
    others = name.startswith("kubernetes.core.") and given.get("kind", "Secret") == "Secret"
    return name == READER or others


def test_no_secret_of_a_tenant_is_read_as_a_whole() -> None:
    """A Secret may have a megabyte, and a tenant hundreds of them: k8s_info kept all of it in the
    memory of the process that serves all hosts.
    """
    others = [
        (file, task.get("name"))
        for file, task in shipped()
        for name, given in task.items()
        if name != READER and isinstance(given, dict) and reads_secrets(name, given)
    ]
    assert others == []
    assert [file for file, task in shipped() if READER in task] == ["cluster.yml"]


def holds_a_secret(task: dict[str, Any]) -> bool:
    """It reads a Secret, or gives another collection's module one."""
    if AWX_OBJECT in task:
        # The only way in which it is given any.
        return "secrets" in task[AWX_OBJECT]
    through = task.get(ON_NODE)
    task = {through["module"]: through.get("arguments")} if through else task
    for name, given in task.items():
        if (
            not isinstance(given, dict)
            or (name.startswith("storage_ops.") and name != READER)
            or name in ("vars", "environment")
        ):
            continue
        if reads_secrets(name, given):
            return True
        if SECRET_OPTIONS & set(given):
            return True
    return False


def test_what_holds_a_secret_is_not_logged() -> None:
    found = [(file, task) for file, task in shipped() if holds_a_secret(task)]
    power = {"power_off.yml", "power_read.yml", "power_switch.yml"}
    power |= {"power_read_ipmi.yml", "power_switch_ipmi.yml", "power_agent.yml"}
    assert {file for file, _task in found} == {"cluster.yml", "configure_awx.yml", *power}
    assert len(found) == 3 + 7
    for file, task in found:
        assert task.get("no_log") is True, (file, task["name"])
