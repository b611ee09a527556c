# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for AWX answers as AWX 24.6.1 did when it was asked the same."""

from __future__ import annotations

from typing import Any

import pytest
from support.awx_stand_in import OBJECTS, RECORDED, StandIn, UnknownRequest, serve


def ask(awx: StandIn, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
    """What it answers."""
    return awx.answer(method, path, query, body)


@pytest.fixture
def awx() -> StandIn:
    """With the objects that the recorded requests name."""
    stand_in = StandIn(["playbooks/clean_residual_paths.yml", "playbooks/compliance.yml"])
    home = stand_in.add("organizations", {"name": "Default"})["id"]
    where = {"scm_type": "git", "scm_url": "https://git.example.com/x.git"}
    project = stand_in.add("projects", {"name": "runbooks", "organization": home, **where})["id"]
    basics = {"project": project, "survey_enabled": True}
    basics |= {f"ask_{what}_on_launch": True for what in ("limit", "variables")}
    for name in ("clean residual paths", "compliance slices"):
        body = {
            "name": f"Storage: {name}",
            "playbook": f"playbooks/{name.split()[0]}.yml",
            **basics,
        }
        body["playbook"] = {"clean": "playbooks/clean_residual_paths.yml"}.get(
            name.split()[0], body["playbook"]
        )
        stand_in.add("job_templates", body)
    for name in ("triage, approve, repair", "compliance in slices"):
        made = {"name": f"Storage: {name}", "organization": home, "survey_enabled": True}
        stand_in.add("workflow_job_templates", made)
    for name, survey in RECORDED["surveys"].items():
        plural = "job_templates" if name.endswith("paths") else "workflow_job_templates"
        path = stand_in.named(plural, name)["related"]["survey_spec"]
        assert not survey or ask(stand_in, "POST", path, survey) == (200, None)
    flow = stand_in.named("workflow_job_templates", "Storage: triage, approve, repair")["id"]
    node = stand_in.add(
        "workflow_job_template_nodes", {"identifier": "approve", "workflow_job_template": flow}
    )
    approval = {"name": "Storage: repair what triage has found", "timeout": 3600}
    assert ask(stand_in, "POST", node["related"]["create_approval_template"], approval)[0] == 201
    return stand_in


def test_answers_as_recorded(awx: StandIn) -> None:
    """What AWX refuses, ignores and takes, with the same words."""
    seen = set()
    for exchange in RECORDED["exchanges"]:
        plural, *rest = exchange["where"]
        below = [str(awx.named(plural, rest[0])["id"]), rest[1]] if rest else []
        path = "/".join(("/api/v2", plural, *below, ""))
        body = exchange["request"]
        if exchange["case"] == "playbook":
            project = awx.named("projects", "runbooks")["id"]
            inventory = awx.add("inventories", {"name": "nodes", "organization": 1})["id"]
            body = {**body, "project": project, "inventory": inventory}
        status, answer = ask(awx, exchange["method"], path, body)
        assert status == exchange["status"], (exchange, answer)
        if status == 201:
            answer = {name: answer[name] for name in exchange["answer"]}
        assert answer == exchange["answer"], exchange
        seen.add(exchange["case"])
    assert seen == {"launch", "schedule", "playbook", "survey", "approval"}


@pytest.mark.parametrize(
    ("plural", "body", "wrong"),
    [
        ("job_templates", {}, {"name": ["This field is required."]}),
        (
            "job_templates",
            {"name": "x", "job_type": "rehearse"},
            {"job_type": ['"rehearse" is not a valid choice.']},
        ),
        ("job_templates", {"name": "x", "forks": "many"}, {"forks": ["Not a valid integer."]}),
        (
            "job_templates",
            {"name": "x", "survey_enabled": "perhaps"},
            {"survey_enabled": ["Not a valid boolean."]},
        ),
        (
            "job_templates",
            {"name": "x" * 513},
            {"name": ["Ensure this field has no more than 512 characters."]},
        ),
        (
            "inventories",
            {"name": "x", "organization": 99},
            {"organization": ['Invalid pk "99" - object does not exist.']},
        ),
        (
            "organizations",
            {"name": "Default"},
            {"__all__": ["organizations with this (name) combination already exists."]},
        ),
    ],
)
def test_refuses_what_is_wrong(
    awx: StandIn, plural: str, body: dict[str, Any], wrong: dict[str, Any]
) -> None:
    """Required, type, choice, length and what is referred to."""
    assert ask(awx, "POST", f"/api/v2/{plural}/", body) == (400, wrong)


def test_sync_that_fails(awx: StandIn) -> None:
    """Without a checkout there is no playbook; only another update finds it."""
    awx.syncs = "failed"
    where = {"scm_type": "git", "scm_url": "https://git.example.com/y.git"}
    project = awx.add("projects", {"name": "other", "organization": 1, **where})
    template = {"name": "x", "project": project["id"], "playbook": "playbooks/compliance.yml"}
    assert ask(awx, "POST", "/api/v2/job_templates/", template)[1] == {
        "playbook": ["Playbook not found for project."]
    }
    awx.syncs = "pending"
    status, update = ask(awx, "POST", project["related"]["update"], {})
    assert (status, update["status"], update["finished"]) == (202, "pending", None)
    awx.syncs = "successful"
    assert ask(awx, "POST", project["related"]["update"], {})[1]["failed"] is False
    assert ask(awx, "POST", "/api/v2/job_templates/", template)[0] == 201


def test_fails_on_what_it_does_not_know(awx: StandIn) -> None:
    """An endpoint, a field and a filter: none of them is answered with a success."""
    for method, path, query, body in (
        ("GET", "/api/v2/hosts/", {}, None),
        ("POST", "/api/v2/job_templates/", {}, {"name": "x", "speed": 7}),
        ("GET", "/api/v2/job_templates/", {"speed": "7"}, None),
        ("PUT", "/api/v2/projects/1/", {}, {}),
        ("GET", "/api/v2/workflow_approval_templates/", {}, None),
    ):
        with pytest.raises(UnknownRequest):
            ask(awx, method, path, body, **query)
    assert ask(awx, "GET", "/api/controller/v2/job_templates/")[0] == 404
    with pytest.raises(AssertionError, match="no field speed"), serve(awx):
        awx.unknown.append("job_templates has no field speed")


def test_lists_have_pages(awx: StandIn) -> None:
    """Whoever does not follow them misses what comes after the first 25."""
    for number in range(30):
        awx.add("inventories", {"name": f"i{number}", "organization": 1})
    _status, page = ask(awx, "GET", "/api/v2/inventories/", name__startswith="i")
    assert (page["count"], len(page["results"])) == (30, 25) and "page=2" in page["next"]


def test_knows_what_each_object_has() -> None:
    """A recording without the relations would make every request below an object a 404."""
    assert (
        "launch" in OBJECTS["job_templates"]["related"]
        and "update" in OBJECTS["projects"]["related"]
    )
