# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of AWX as variables of another collection's roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable

from ansible.module_utils.common.yaml import SafeDumper, yaml_dump

DOCUMENTATION = r"""
name: aap_configuration
short_description: Write objects of AWX as variables for infra.aap_configuration
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Text that is a template for AWX, and none for Ansible, is marked as C(!unsafe).
  - A secret is not written. The text names the variable that holds it.
options:
  _input:
    description: The registered results of M(storage_ops.runbooks.awx_object), also of loops and of
      skipped tasks.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Show the data
  ansible.builtin.debug:
    msg: "{{ [made_project, made_templates] | storage_ops.runbooks.aap_configuration }}"
"""

RETURN = r"""
_value:
  description: The variables, as YAML.
  type: str
"""

# The variable of each kind of object, as roles/dispatch/defaults/main.yml of
# infra.aap_configuration 3 has them, in its order.
VARIABLES = {
    "credential_type": "controller_credential_types",
    "credential": "controller_credentials",
    "execution_environment": "controller_execution_environments",
    "project": "controller_projects",
    "inventory": "controller_inventories",
    "inventory_source": "controller_inventory_sources",
    "job_template": "controller_templates",
    "workflow_job_template": "controller_workflows",
    "schedule": "controller_schedules",
}
# Belongs to its workflow there.
STEP = "workflow_job_template_node"
STEPS = "simplified_workflow_nodes"
# Of the workflow, which names them once.
OF_WORKFLOW = ("workflow_job_template", "organization")
SIGNS = ("{{", "{%", "{#")


class Reference(str):
    """A template that Ansible fills in."""


class Writer(SafeDumper):  # type: ignore[misc]
    """Marks what looks like a template and is none."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whoever reads it need not look elsewhere."""
        return True


def _text(writer: Writer, text: str) -> Any:
    if any(sign in text for sign in SIGNS):
        return writer.represent_scalar("!unsafe", text, style="'")
    return writer.represent_scalar("tag:yaml.org,2002:str", text)


Writer.add_representer(str, _text)
Writer.add_representer(
    Reference, lambda writer, text: writer.represent_scalar("tag:yaml.org,2002:str", str(text))
)


def aap_configuration(results: Iterable[Mapping[str, Any]]) -> str:
    """The variables as YAML."""
    text: str = yaml_dump(
        variables(objects(results)),
        Dumper=Writer,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return text


def objects(results: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """What the tasks have made, in their order."""
    for result in results:
        for one in result.get("results", [result]):
            if "object" in one:
                yield one["object"]


def variables(made: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The objects, by variable."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIABLES.values()}
    for each in made:
        arguments = plain(each["arguments"])
        if each["kind"] == STEP:
            flows = found[VARIABLES["workflow_job_template"]]
            name = arguments["workflow_job_template"]
            _add_step(next(flow for flow in flows if flow["name"] == name), arguments)
            continue
        for field, variable in plain(each["secrets"]).items():
            arguments.setdefault("inputs", {})[field] = Reference(f"{{{{ {variable} }}}}")
        found[VARIABLES[each["kind"]]].append(arguments)
    return {name: items for name, items in found.items() if items}


def _add_step(flow: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    """A step that comes twice, with its approval and with its links, is one."""
    step = {name: value for name, value in arguments.items() if name not in OF_WORKFLOW}
    steps: list[dict[str, Any]] = flow.setdefault(STEPS, [])
    same = [each for each in steps if each["identifier"] == step["identifier"]]
    if same:
        same[0].update(step)
    else:
        steps.append(step)


def plain(value: Any) -> Any:
    """Without what Ansible adds to values, which YAML cannot write."""
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"aap_configuration": aap_configuration}
