# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs of our templates as AWX hands them to ansible-runner, and what AWX knows of them afterwards.

What AWX writes for ansible-runner is made by awx/main/tasks/jobs.py (class RunJob) and
awx/main/utils/safe_yaml.py, which this follows. Instead of a container, the runner has namespaces
of its own: it sees its folder elsewhere, and all that it has started ends with it, as there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from lab.common import patient, wait

from support.node import ANSIBLE_DEADLINE, environment

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "playbooks" / "files" / "awx"
# ansible-runner empties the result of an event that is longer, and nobody is told.
MAX_RESULT = 700_000
# Where the job sees its folder, as AWX's jobs see theirs at /runner: a path that is short enough
# for sockets.
INSIDE = Path("/mnt")
# What AWX itself adds to the variables of every job (awx/main/models/unified_jobs.py,
# awx_meta_vars), for a user who has started it and a workflow that it is a step of.
META = {
    **{"awx_job_id": 7, "awx_job_launch_type": "manual", "awx_job_template_id": 3},
    **{"awx_inventory_id": 2, "awx_inventory_name": "Storage nodes", "awx_execution_node": "awx-1"},
    **{"awx_project_revision": "0f1e", "awx_project_scm_branch": "", "awx_user_id": 1},
    **{"awx_user_name": "operator", "awx_user_email": "", "awx_user_first_name": ""},
    **{"awx_workflow_job_id": 41, "awx_workflow_job_name": "Storage: compliance in slices"},
    **{"awx_schedule_id": 5, "awx_schedule_name": "Storage: compliance every night"},
}
META |= {name.replace("awx_", "tower_", 1): value for name, value in META.items()}


class Loader(yaml.SafeLoader):
    """Knows Ansible's !unsafe."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


class Unsafe(yaml.SafeDumper):
    """Marks every text as one that is no template, as AWX's SafeStringDumper does."""

    def represent_data(self, data: Any) -> yaml.Node:
        """Also the names."""
        if isinstance(data, str):
            return self.represent_scalar("!unsafe", data)
        return super().represent_data(data)


def load(path: Path) -> Any:
    """A YAML file of the collection."""
    return yaml.load(path.read_text(), Loader)


TEMPLATES: list[dict[str, Any]] = load(DATA / "templates.yml")["__awx_templates"]
SLICING: list[dict[str, Any]] = load(DATA / "templates.yml")["__awx_slicing"]
BY_NAME = {template["name"]: template for template in TEMPLATES}


def survey(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions, as the playbook hands them to AWX."""
    return [
        {name: value for part in question for name, value in part.items()}
        for question in template["survey"]
    ]


def answered(template: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, str]:
    """What AWX makes of a survey's answers: the defaults of what was not answered, and nothing that
    was not asked.
    """
    asked = {question["variable"]: question for question in survey(template)}
    assert set(answers) <= set(asked), f"AWX drops {sorted(set(answers) - set(asked))}"
    assert all(isinstance(answer, str) for answer in answers.values()), (
        "AWX refuses what is no text"
    )
    assert {name for name, question in asked.items() if question["required"]} <= set(answers)
    for name in set(answers):
        assert answers[name] in asked[name].get("choices", [answers[name]]), name
    return {
        **{
            name: str(question["default"])
            for name, question in asked.items()
            if "default" in question
        },
        **answers,
    }


@dataclass(frozen=True)
class Job:
    """What AWX knows of a job afterwards."""

    rc: int
    status: str
    stdout: str
    events: list[dict[str, Any]]
    everything: str

    @classmethod
    def of(cls, made: Path) -> Job:
        """From what ansible-runner has written."""
        events = [
            json.loads(path.read_text()) for path in (made / "job_events").glob("[0-9]*-*.json")
        ]
        # Lines of -vvv are events without data.
        events = sorted(
            (event for event in events if event.get("event_data")),
            key=lambda event: int(event["counter"]),
        )
        # The file "command" holds the environment that the job was given; AWX does not take it
        # over.
        told = [
            path.read_text(errors="replace")
            for path in made.rglob("*")
            if path.is_file() and path.name != "command"
        ]
        for event in events:
            result = event["event_data"].get("res")
            # An event that was too long is an empty one.
            assert result is None or 2 < len(str(result)) < MAX_RESULT, event["event_data"].get(
                "task"
            )
        status, stdout = (made / "status").read_text(), (made / "stdout").read_text()
        return cls(int((made / "rc").read_text()), status, stdout, events, "\n".join(told))

    def results(self, task: str, event: str = "runner_on_ok") -> list[dict[str, Any]]:
        """The results of a task."""
        return [
            each["event_data"]["res"]
            for each in self.events
            if each["event"] == event and each["event_data"].get("task") == task
        ]

    @property
    def artifacts(self) -> dict[str, Any]:
        """What the job hands on."""
        found: dict[str, Any] = self.events[-1]["event_data"].get("artifact_data", {})
        return found


class Launched:
    """A job of one of our templates, from its launch on."""

    def __init__(
        self,
        folder: Path,
        name: str,
        hosts: Mapping[str, Mapping[str, Any]],
        answers: Mapping[str, str],
        **how: Any,
    ) -> None:
        template = next(each for each in [*TEMPLATES, *SLICING] if each["name"] == name)
        self.data = folder / f"awx_7_{time.monotonic_ns()}"
        for part in ("env", "inventory", "cp"):
            (self.data / part).mkdir(parents=True, mode=0o700)
        self._env: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self.playbook = f"playbooks/{template['playbook']}.yml"
        shutil.copytree(ROOT / "playbooks", self.data / "project" / "playbooks")
        self._write_inventory(hosts)
        self._write_arguments(answered(template, answers), **how)

    def _write_inventory(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Hosts and variables as a script, which is what AWX makes of an inventory."""
        script = {"all": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}}
        path = self.data / "inventory/hosts"
        path.write_text(
            f"#! /usr/bin/env python3\n# -*- coding: utf-8 -*-\nprint({json.dumps(script)!r})\n"
        )
        path.chmod(0o700)

    def _write_arguments(
        self,
        answers: Mapping[str, str],
        check: bool = False,
        limit: str = "",
        variables: Mapping[str, Any] | None = None,
        artifacts: Mapping[str, Any] | None = None,
        ssh_key: str = "",
        number: int = 7,
    ) -> None:
        """The template's own variables are templates; answers, what a step before has handed on,
        and AWX's own are not.
        """
        given = {
            **answers,
            **(artifacts or {}),
            **META,
            "awx_job_id": number,
            "tower_job_id": number,
        }
        text = yaml.safe_dump(dict(variables)) if variables else ""
        (self.data / "env/extravars").write_text(
            text + yaml.dump(given, Dumper=Unsafe, default_flow_style=False)
        )
        # A check twin shows differences, and nobody but root logs in unless a credential says who.
        command = (
            ["--check"] * check
            + ["-u", "root"]
            + ["--diff"] * check
            + (["-l", limit] if limit else [])
        )
        (self.data / "env/cmdline").write_text(shlex.join(command))
        self._env |= {
            "JOB_ID": "7",
            "INVENTORY_ID": "2",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "MAX_EVENT_RES": str(MAX_RESULT),
        }
        self._env |= {
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(INSIDE / "cp"),
            "AWX_PRIVATE_DATA_DIR": str(INSIDE),
        }
        if ssh_key:
            (self.data / "env/ssh_key").write_text(ssh_key)
            (self.data / "env/ssh_key").chmod(0o600)

    def credential(self, kind: str, **inputs: str) -> Launched:
        """What a credential of one of our types gives it (awx.main.models.credential,
        inject_credential).
        """
        types = load(DATA / "credential_types.yml")["__awx_credential_types"]
        injectors = next(each["injectors"] for each in types if each["name"] == kind)
        jinja = ImmutableSandboxedEnvironment()
        names = {}
        for label, template in injectors["file"].items():
            path = self.data / "env" / f"tmp_{label.replace('.', '_')}"
            path.write_text(jinja.from_string(template).render(**inputs))
            path.chmod(0o600)
            names[label.removeprefix("template.")] = str(INSIDE / "env" / path.name)
        for name, template in injectors["env"].items():
            self._env[name] = jinja.from_string(template).render(
                **inputs, tower={"filename": names}
            )
        return self

    def start(self) -> Launched:
        """In the background."""
        (self.data / "env/envvars").write_text(
            json.dumps({**self._env, "ANSIBLE_HOST_KEY_CHECKING": "False"})
        )
        outside = {
            name: value
            for name, value in environment().items()
            if name != "ANSIBLE_STDOUT_CALLBACK"
        }
        runner = ["ansible-runner", "run", str(INSIDE), "-p", self.playbook, "-i", "7"]
        script = f"mount --bind {shlex.quote(str(self.data))} {INSIDE} && exec {shlex.join(runner)}"
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script]
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, env=outside
        )
        return self

    def end(self) -> Job:
        """Wait for it."""
        assert self._process is not None
        try:
            self._process.wait(ANSIBLE_DEADLINE)
        finally:
            self._process.kill()
            self._process.wait(patient(10))
        return Job.of(self.data / "artifacts/7")

    def cancel(self) -> None:
        """As AWX does, by a signal to the runner; returns when nothing of the job runs any more."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        (runner,) = wait(lambda: children.read_text().split(), "the runner is there")
        os.kill(int(runner), signal.SIGTERM)
        self._process.wait(ANSIBLE_DEADLINE)
