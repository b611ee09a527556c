# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compliance run as several jobs, each with a part of the inventory as AWX cuts it, and one
report of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from support.node import COLLECTION, environment, of_ansible
from support.selection import HAS_LOWEST, lowest

CONTROLS = "STOR-04"
COMMON = ("ansible_become=false", "ansible_python_interpreter={{ ansible_playbook_python }}")
HERE = "{} ansible_connection=local"
# What the controller does, it does itself, whatever the inventory says of it.
ELSEWHERE = "localhost ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1"
Played = subprocess.CompletedProcess[str]


def play(
    name: str,
    folder: Path,
    hosts: list[str],
    *options: str,
    program: str = "ansible-playbook",
    **variables: Any,
) -> Played:
    """Run a playbook with an inventory of these hosts, all of which are this machine."""
    inventory = folder / "inventory"
    inventory.write_text(
        "\n".join(
            [
                ELSEWHERE,
                "[nodes]",
                *(HERE.format(host) for host in hosts),
                "[all:vars]",
                *COMMON,
                "",
            ]
        )
    )
    answers = {"compliance_read_cluster": "false", "target": "nodes", **variables}
    command = [
        program,
        f"{COLLECTION}.{name}",
        "-i",
        str(inventory),
        "-e",
        json.dumps(answers),
        *options,
    ]
    settings = {**environment(), "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_STRATEGY": "free"}
    return of_ansible(command, settings)


def test_slices_become_one_report(tmp_path: Path) -> None:
    """What each has found is in it; a host of which no slice knows is not assessed; what is old, or
    not of this run, is refused.
    """
    folder = tmp_path / "shared"
    slices = folder / "slices" / "41"
    for job, hosts in (("42", ["w1", "w3"]), ("43", ["w2"])):
        made = play(
            "compliance",
            tmp_path,
            hosts,
            compliance_report_controls=CONTROLS,
            compliance_report_formats=["json"],
            compliance_report_folder=str(slices / job),
        )
        assert made.returncode == 0, made.stdout
    # A run of last night, and one of last month.
    for name, days in (("7", 1), ("3", 30)):
        shutil.copytree(slices, folder / "slices" / name)
        for path in [*(folder / "slices" / name).rglob("*"), folder / "slices" / name]:
            os.utime(path, (time.time() - days * 86400,) * 2)

    whole = ["w1", "w2", "w3", "w4"]
    # What would be done is not done yet.
    rehearsed = play(
        "merge_compliance_reports", tmp_path, whole, "--check", compliance_report_folder=str(folder)
    )
    assert rehearsed.returncode == 0, rehearsed.stdout + rehearsed.stderr
    assert (
        sorted(path.name for path in (folder / "slices").iterdir()) == ["3", "41", "7"]
        and not (slices / "merged").exists()
    )

    program = lowest("ansible-playbook") if HAS_LOWEST else "ansible-playbook"
    merged = play(
        "merge_compliance_reports",
        tmp_path,
        whole,
        program=program,
        compliance_report_folder=str(folder),
    )
    assert merged.returncode == 0, merged.stdout + merged.stderr
    assert "Run 41, 2 reports, written from" in merged.stdout
    report = json.loads((folder / "report.json").read_text())
    status = {host["name"]: host["status"] for host in report["hosts"]}
    assert status == {"w1": "assessed", "w2": "assessed", "w3": "assessed", "w4": "not_assessed"}
    assert "no report" in next(host for host in report["hosts"] if host["name"] == "w4")["reason"]
    assert sorted(path.name for path in (folder / "slices").iterdir()) == ["41", "7"]

    # The next run has not written anything, so that the newest is one that was merged, or one that
    # is old.
    before = (folder / "report.json").read_text()
    again = play("merge_compliance_reports", tmp_path, whole, compliance_report_folder=str(folder))
    assert (
        again.returncode != 0
        and "Run 41 was merged, and none of its slices has written since" in again.stdout
    )
    shutil.move(slices, tmp_path / "away")
    late = play("merge_compliance_reports", tmp_path, whole, compliance_report_folder=str(folder))
    assert late.returncode != 0 and "Run 7 is no run of the last 180 minutes" in late.stdout
    named = play(
        "merge_compliance_reports",
        tmp_path,
        whole,
        compliance_report_folder=str(folder),
        merge_run="41",
    )
    assert named.returncode != 0 and "There is no report of run 41" in named.stdout
    assert (folder / "report.json").read_text() == before

    # A slice that was started again, after the merge.
    shutil.move(tmp_path / "away", slices)
    shutil.copytree(slices / "43", slices / "44")
    os.utime(slices / "44" / "report.json", (time.time() + 1,) * 2)
    twice = play("merge_compliance_reports", tmp_path, whole, compliance_report_folder=str(folder))
    assert twice.returncode == 0, twice.stdout + twice.stderr
    hosts = json.loads((folder / "report.json").read_text())["hosts"]
    assert sorted(host["name"] for host in hosts if host["kind"] == "node") == whole
