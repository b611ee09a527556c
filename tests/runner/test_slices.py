# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compliance run as several jobs, each with a part of the inventory as AWX cuts it, and one report of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from node import ANSIBLE_DEADLINE, COLLECTION, environment

CONTROLS = "STOR-04"
COMMON = ("ansible_become=false", "ansible_python_interpreter={{ ansible_playbook_python }}")
HERE = "{} ansible_connection=local"


def play(name: str, folder: Path, hosts: list[str], **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run a playbook with an inventory of these hosts, all of which are this machine."""
    inventory = folder / "inventory"
    inventory.write_text("\n".join([*(HERE.format(host) for host in hosts), "[all:vars]", *COMMON, ""]))
    answers = {"compliance_cluster": "false", **variables}
    command = ["ansible-playbook", f"{COLLECTION}.{name}", "-i", str(inventory), "-e", json.dumps(answers)]
    settings = {**environment(), "ANSIBLE_STDOUT_CALLBACK": "default"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=ANSIBLE_DEADLINE, env=settings)


def test_slices_become_one_report(tmp_path: Path) -> None:
    """What each has found is in it; a host of which no slice knows is not assessed; reports that overlap or are old are refused."""
    folder = tmp_path / "shared"
    slices = folder / "slices" / "41"
    for job, hosts in (("42", ["w1", "w3"]), ("43", ["w2"])):
        made = play("compliance", tmp_path, hosts, compliance_report_controls=CONTROLS, compliance_report_formats=["json"],
                    compliance_report_folder=str(slices / job))  # fmt: skip
        assert made.returncode == 0, made.stdout
    # A run of last night, and one of last month.
    for name, days in (("7", 1), ("3", 30)):
        shutil.copytree(slices, folder / "slices" / name)
        for path in [*(folder / "slices" / name).rglob("*"), folder / "slices" / name]:
            os.utime(path, (time.time() - days * 86400,) * 2)

    merged = play("merge_compliance_reports", tmp_path, ["w1", "w2", "w3", "w4"], compliance_report_folder=str(folder))
    assert merged.returncode == 0, merged.stdout + merged.stderr
    report = json.loads((folder / "report.json").read_text())
    status = {host["name"]: host["status"] for host in report["hosts"]}
    assert status == {"w1": "assessed", "w2": "assessed", "w3": "assessed", "w4": "not_assessed"}
    assert "no report" in next(host for host in report["hosts"] if host["name"] == "w4")["reason"]
    assert sorted(path.name for path in (folder / "slices").iterdir()) == ["41", "7"]

    # The run of this night has not written anything, so that the newest is that of the last.
    shutil.move(slices, tmp_path / "away")
    before = (folder / "report.json").read_text()
    late = play("merge_compliance_reports", tmp_path, ["w1", "w2"], compliance_report_folder=str(folder))
    assert late.returncode != 0 and "Run 7 is no run of the last 180 minutes" in late.stdout
    named = play("merge_compliance_reports", tmp_path, ["w1", "w2"], compliance_report_folder=str(folder), merge_run="41")
    assert named.returncode != 0 and "There is no report of run 41" in named.stdout
    # A slice that was started twice.
    shutil.move(tmp_path / "away", slices)
    shutil.copytree(slices / "43", slices / "44")
    twice = play("merge_compliance_reports", tmp_path, ["w1", "w2"], compliance_report_folder=str(folder))
    assert twice.returncode != 0 and "overlap" in twice.stdout
    assert (folder / "report.json").read_text() == before
