# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks in ansible-runner, which is what AWX runs them in: a private data directory, a survey's
answers, and what comes out of it.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from lab.kubernetes import api as k8s
from support.awx_jobs import Job
from support.cluster import Cluster
from support.node import ANSIBLE_DEADLINE, COLLECTION, environment

DRIVER = "csi.example.com"
# The first task of every playbook with a target.
CHECK = "Refuse variables that do not exist, and a target that is not in the inventory"
# The task of clean_residual_paths that looks at a host.
MODULE = "Find and clean residual multipath maps and SCSI disks"
MODULE += ", and watch what is found for (seconds) 25"
# Nobody is there, and it says so at once.
ABSENT = "ansible_host=127.0.0.1 ansible_port=1"
INVENTORY = (
    f"worker01 ansible_connection=local\nworker02 {ABSENT}\n[all:vars]\nansible_become=false\n"
)
INVENTORY += "ansible_python_interpreter={{ ansible_playbook_python }}\n"
# Quick to find out, and the same on every machine: without systemd STOR-10 is not assessed.
CONTROLS = "STOR-04"


def run(
    folder: Path,
    playbook: str,
    answers: dict[str, str],
    check: bool = False,
    inventory: str = INVENTORY,
    **settings: str,
) -> Job:
    """Run a playbook of the collection as a job template does that has a project of its own."""
    data = folder / f"{playbook}{'-check' if check else ''}-{time.monotonic_ns()}"
    for name in ("env", "inventory", "project"):
        (data / name).mkdir(parents=True)
    (data / "env/extravars").write_text(yaml.safe_dump(answers))
    (data / "env/envvars").write_text(
        json.dumps({"ANSIBLE_HOST_KEY_CHECKING": "false", **settings})
    )
    (data / "env/cmdline").write_text("-vvv" + " --check" * check)
    (data / "inventory/hosts").write_text(inventory)
    project = [
        {"name": "As in the project", "ansible.builtin.import_playbook": f"{COLLECTION}.{playbook}"}
    ]
    (data / "project/play.yml").write_text(yaml.safe_dump(project))
    outside = {
        name: value for name, value in environment().items() if name != "ANSIBLE_STDOUT_CALLBACK"
    }
    command = ["ansible-runner", "run", str(data), "-p", "play.yml", "-i", "job"]
    subprocess.run(command, check=False, capture_output=True, timeout=ANSIBLE_DEADLINE, env=outside)
    made = data / "artifacts/job"
    return Job.of(made)


def test_triage(control_plane_1_20: Cluster, tmp_path: Path) -> None:
    """Findings of a real cluster come as an event, and the token of the credential
    comes nowhere.
    """
    api = control_plane_1_20.api
    api.create(k8s.csi_driver(DRIVER))
    api.add_node("worker01", DRIVER)
    control_plane_1_20.stay_ready("worker01")
    for number in range(30):
        api.add_volume(f"web-{number}", DRIVER, f"vol-{number}")
        api.create(k8s.pod(f"web-{number}", [f"web-{number}"], "worker01"))
    time.sleep(1.2)
    # As AWX's own credential sets it.
    settings = {
        "K8S_AUTH_HOST": f"https://127.0.0.1:{api.port}",
        "K8S_AUTH_API_KEY": api.token,
        "K8S_AUTH_SSL_CA_CERT": str(api.ca),
    }
    answers = {
        "triage_namespace": "",
        "triage_pod": "",
        "triage_node": "worker01",
        "triage_stuck_seconds": "1",
        "triage_required_metadata": "",
    }
    job = run(tmp_path, "triage", answers, **settings)
    assert (job.rc, job.status) == (0, "successful"), job.stdout
    found = job.results("Read the pods and their volumes")[0]["findings"]
    assert {finding["object"]["name"] for finding in found} == {
        f"web-{number}" for number in range(30)
    }
    assert "web-29" in job.stdout
    assert (
        job.artifacts["storage_outcome"]["reported"]
        == len(job.artifacts["storage_outcome"]["left"])
        == 30
    )
    # An answer to an alert is the same with another first word, and here nothing may be repaired.
    answers |= {
        "triage_namespace": "default",
        "triage_pod": "web-7",
        "respond_repair": "",
        "respond_max_nodes": "",
        "respond_hosts": "",
    }
    answer = run(tmp_path, "respond", answers, check=True, **settings)
    assert (answer.rc, answer.status) == (0, "successful"), answer.stdout
    assert [
        finding["object"]["name"]
        for finding in answer.results("Read the pods and their volumes")[0]["findings"]
    ] == ["web-7"]
    assert answer.artifacts["respond_rehearsed"] == []
    (left,) = answer.artifacts["storage_outcome"]["left"]
    assert left.startswith("pod default/web-7: "), left
    # Whoever looks at the colour alone asks for it.
    strict = run(tmp_path, "triage", {**answers, "triage_strict": "true"}, **settings)
    assert (strict.rc, strict.status) == (2, "failed"), strict.stdout
    for each in (job, answer):
        assert api.token not in each.everything


@pytest.mark.smoke
def test_compliance_and_its_twin(tmp_path: Path) -> None:
    """The same as a run and in check mode: the report is written, its numbers are the job's
    artifact, and a dead host is not assessed.
    """
    answers = {
        "target": "worker01\nworker02\n",
        "compliance_read_cluster": "false",
        "compliance_report_controls": CONTROLS,
    }
    answers |= {
        "compliance_node_timeout": "60",
        "compliance_report_strict": "false",
        "compliance_report_severity": "info",
    }
    answers |= {
        "compliance_report_select": "",
        "compliance_report_exceptions": "",
        "compliance_ceph_host": "",
    }
    reports = []
    for check in (False, True):
        folder = tmp_path / f"report-{check}"
        job = run(
            tmp_path,
            "compliance",
            {**answers, "compliance_report_folder": str(folder)},
            check=check,
        )
        assert (job.rc, job.status) == (0, "successful"), job.stdout
        report = json.loads((folder / "report.json").read_text())
        assert {host["name"]: host["status"] for host in report["hosts"]} == {
            "worker01": "assessed",
            "worker02": "not_assessed",
        }
        numbers = job.artifacts["storage_compliance"]
        assert numbers["hosts"]["not_assessed"] == 1 and len(json.dumps(job.artifacts)) < 10_000
        reports.append(report["summary"]["hosts"])
    assert reports[0] == reports[1]


def test_no_target(tmp_path: Path) -> None:
    """Whoever forgets to say where does nothing, and is told."""
    job = run(
        tmp_path,
        "clean_residual_paths",
        {"target": "", "batch": "", "residual_paths_fail_hung_readers": "false"},
    )
    assert (job.rc, job.status) == (2, "failed")
    assert "target is required and must not be empty" in job.stdout
    assert not job.results(MODULE) and len(job.results(CHECK, "runner_on_failed")) == 1
    # There is such a host, and it is asked, but it cannot be reached: the survey's words are
    # understood.
    twin = run(
        tmp_path,
        "clean_residual_paths",
        {"target": "worker02", "batch": "50%", "residual_paths_flush_empty_maps": "true"},
        check=True,
    )
    assert (twin.rc, twin.status) == (2, "failed"), twin.stdout
    assert twin.artifacts["storage_outcome"]["not_assessed"] == [
        "worker02 (it failed or was not reached, see above)"
    ]


def test_what_is_left_is_seen_by_the_colour(tmp_path: Path) -> None:
    """A kernel module that is nowhere cannot be loaded: a run fails once all hosts had their turn,
    a rehearsal only if it is strict.
    """
    answers = {
        "target": "worker01",
        "iscsi_ready_modules": "no_such_module",
        "iscsi_ready_persist": "false",
    }
    for check, strict, status in ((True, "false", 0), (True, "true", 2), (False, "false", 2)):
        job = run(
            tmp_path, "load_iscsi_modules", {**answers, "iscsi_ready_strict": strict}, check=check
        )
        assert job.rc == status, job.stdout
        told = job.artifacts["storage_outcome"]
        assert told["reported"] + told["refused"] == len(told["left"]) > 0 and told["left"][
            0
        ].startswith("worker01: "), told
    # The one that cannot be reached is told, too, and does not hide what the other has left.
    both = run(
        tmp_path, "load_iscsi_modules", {**answers, "target": "worker02,worker01", "batch": "100%"}
    )
    assert both.rc != 0 and both.artifacts["storage_outcome"]["not_assessed"] == [
        "worker02 (it failed or was not reached, see above)"
    ]
    assert " left: worker01: " in both.stdout


def test_a_host_that_fails_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    """One host after the other: the first cannot be reached, the second answers with what is no
    module's, and the third has its turn. After a wrong option no host has one.
    """
    broken = "worker03 ansible_connection=local ansible_python_interpreter=/bin/false\n"
    inventory = INVENTORY.replace("[all:vars]", f"{broken}[all:vars]")
    target = {"target": "worker02,worker03,worker01", "batch": "1"}
    job = run(tmp_path, "clean_residual_paths", target, True, inventory)
    assert job.rc == 2, job.stdout
    told = job.artifacts["storage_outcome"]["not_assessed"]
    assert {text.split()[0] for text in told} >= {"worker02", "worker03"}, told
    started = [event for event in job.events if event["event"] == "runner_on_start"]
    asked = [event["event_data"] for event in started]
    assert [data["host"] for data in asked if data["task"] == MODULE] == ["worker03", "worker01"]
    wrong = {"target": "worker01,worker03", "residual_paths_max_repairs": "many", "batch": "1"}
    ended = run(tmp_path, "clean_residual_paths", wrong, True, inventory)
    assert ended.rc == 2 and "worker03 is not touched, since an option is wrong" in ended.stdout
    assert ended.artifacts["storage_outcome"]["not_assessed"] == [
        "worker01 (it failed or was not reached, see above)",
        "worker03 (it had no turn, see above)",
    ]


def test_nothing_assessed_is_no_success(tmp_path: Path) -> None:
    """A compliance run that could look at nothing at all reports nothing, and fails although it was
    not asked to.
    """
    answers = {
        "target": "worker02",
        "compliance_read_cluster": "false",
        "compliance_report_controls": CONTROLS,
    }
    job = run(
        tmp_path, "compliance", {**answers, "compliance_report_folder": str(tmp_path / "report")}
    )
    assert job.rc == 2 and job.artifacts["storage_compliance"]["hosts"] == {
        **{"total": 1, "assessed": 0},
        **{"partly_assessed": 0, "not_assessed": 1},
    }


def test_nothing_applicable_is_no_failure(tmp_path: Path) -> None:
    """A machine without iSCSI was looked at: even a strict run does not fail, and says it."""
    answers = {
        "target": "worker01",
        "compliance_read_cluster": "false",
        "compliance_report_controls": CONTROLS,
        "compliance_report_strict": "true",
        "compliance_report_folder": str(tmp_path / "report"),
    }
    job = run(tmp_path, "compliance", answers)
    assert job.rc == 0, job.stdout
    assert "nothing in scope is applicable" in job.stdout
    told = job.artifacts["storage_compliance"]
    assert told["controls"] == {"STOR-04": {"not_applicable": 1}} and told["hosts"]["assessed"] == 1
