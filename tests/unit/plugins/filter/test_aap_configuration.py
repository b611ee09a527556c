# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects as another collection's variables, from the results of tasks."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.filter.aap_configuration import FilterModule

write = FilterModule().filters()["aap_configuration"]


class Loader(yaml.SafeLoader):
    """Shows what is marked."""


Loader.add_constructor("!unsafe", lambda loader, node: {"unsafe": loader.construct_scalar(node)})


def made(kind: str, secrets: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """The result of a task."""
    given = {"kind": kind, "arguments": arguments, "secrets": secrets or {}}
    return {"changed": False, "object": given}


def read(*results: dict[str, Any]) -> Any:
    return yaml.load(write(results), Loader)


def test_each_kind_has_its_variable_in_the_order_in_which_they_are_made() -> None:
    found = read(
        made("schedule", name="s"),
        {"skipped": True},
        {"results": [made("job_template", name="a", forks=0), {"skipped": True}]},
        {"results": [made("job_template", name="b", become_enabled=False)]},
        made("project", name="p"),
    )
    assert list(found) == ["controller_projects", "controller_templates", "controller_schedules"]
    assert found["controller_templates"] == [
        {"name": "a", "forks": 0},
        {"name": "b", "become_enabled": False},
    ]


@pytest.mark.parametrize("text", ["{{ kubeconfig }}", "a {% if b %}", "{# c", "two\n{{ lines }}\n"])
def test_what_looks_like_a_template_is_none_for_ansible(text: str) -> None:
    (found,) = read(made("project", name=text))["controller_projects"]
    assert found == {"name": {"unsafe": text}}


@pytest.mark.parametrize("text", ["true", "1", "", "a: b", "- x", "ä", "[global]"])
def test_a_text_stays_one(text: str) -> None:
    (found,) = read(made("project", name=text))["controller_projects"]
    assert found == {"name": text}


def test_a_secret_is_a_variable() -> None:
    """Whatever else the credential has."""
    (found,) = read(
        made("credential", {"keyring": "the_keyring"}, name="c", inputs={"conf": "{{ x }}"})
    )["controller_credentials"]
    inputs = {"conf": {"unsafe": "{{ x }}"}, "keyring": "{{ the_keyring }}"}
    assert found == {"name": "c", "inputs": inputs}
    (found,) = read(made("credential", {"a": "b"}, name="c"))["controller_credentials"]
    assert found["inputs"] == {"a": "{{ b }}"}


def test_steps_belong_to_their_workflow() -> None:
    """One that is made in two parts, for the modules' sake, is one."""

    def step(workflow: str, **more: Any) -> dict[str, Any]:
        where = {"workflow_job_template": workflow, "organization": "Default"}
        return made("workflow_job_template_node", **where, **more)

    found = read(
        made("workflow_job_template", name="one"),
        made("workflow_job_template", name="two"),
        {
            "results": [
                step("two", identifier="x", approval_node={"timeout": 1}),
                step("two", identifier="y"),
                step("two", identifier="x", success_nodes=["y"]),
            ]
        },
    )["controller_workflows"]
    assert found == [
        {"name": "one"},
        {
            "name": "two",
            "simplified_workflow_nodes": [
                {"identifier": "x", "approval_node": {"timeout": 1}, "success_nodes": ["y"]},
                {"identifier": "y"},
            ],
        },
    ]


def test_what_is_used_twice_is_written_twice() -> None:
    """Without anchors, which people do not read easily."""
    same = {"a": ["b"]}
    text = write([made("project", name="p", one=same, two=same)])
    assert "&" not in text and "*" not in text


def test_what_ansible_has_added_to_values() -> None:
    """They have classes of their own, which YAML does not know."""

    class Text(str):
        def __str__(self) -> str:
            return self

    class Number(int):
        pass

    class Found(dict[Any, Any]):
        pass

    result = made("credential", {Text("a"): Text("b")}, name=Text("{{ c }}"), n=Number(7), f=1.5)
    result["object"]["arguments"]["d"] = Found({Text("e"): (Text("f"), None, True)})
    (found,) = read(result)["controller_credentials"]
    assert found == {
        **{"name": {"unsafe": "{{ c }}"}, "n": 7, "f": 1.5, "d": {"e": ["f", None, True]}},
        "inputs": {"a": "{{ b }}"},
    }
