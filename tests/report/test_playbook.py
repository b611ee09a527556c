# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compliance playbook where the inventory, the settings and the operator do not think of the
controller.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import sample
from lab.common import patient
from support.node import COLLECTION, environment
from support.selection import lowest

# ssh for all, the controller included, to where nobody listens; and the names that the report
# itself uses.
NOWHERE = {
    "ansible_connection": "ssh",
    "ansible_host": "127.0.0.1",
    "ansible_port": 1,
    "ansible_ssh_common_args": "-F /dev/null",
}
INVENTORY = {
    "all": {"hosts": {name: {} for name in ("localhost", "w1", "cluster", "ceph")}, "vars": NOWHERE}
}
# The day without quotes, which YAML makes a date of.
EXCEPTIONS = f"""
compliance_report_exceptions:
  - select: "[?control=='STOR-10']"
    owner: "B\u00fcro \U0001f680"
    reason: it's "because"
    expires: {sample.NEXT_YEAR:%Y-%m-%d}
"""

NOTHING = "Fail if a control fails and strict is set, or if nothing could be assessed"


class Site:
    """An inventory, and a folder for its report."""

    def __init__(self, folder: Path) -> None:
        self.out, self.inventory, self.exceptions = (
            folder / "out",
            folder / "inventory.json",
            folder / "exceptions.yml",
        )
        self.inventory.write_text(json.dumps(INVENTORY))
        self.exceptions.write_text(EXCEPTIONS)

    def run(self, *arguments: str, program: str = "ansible-playbook", **variables: Any) -> str:
        """What the playbook says, after its return code."""
        given = json.dumps(
            {
                "compliance_read_cluster": "true",
                "compliance_report_folder": str(self.out),
                **variables,
            }
        )
        command = [
            program,
            f"{COLLECTION}.compliance",
            "-i",
            str(self.inventory),
            "-e",
            given,
            "-e",
            f"@{self.exceptions}",
            *arguments,
        ]
        settings = {
            **environment(),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_STRATEGY": "free",
        }
        settings["K8S_AUTH_KUBECONFIG"] = str(self.inventory.with_name("no-kubeconfig"))
        done = subprocess.run(
            command,
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patient(180),
            check=False,
        )
        return f"{done.returncode} {done.stdout}{done.stderr}"

    def files(self) -> dict[str, bytes]:
        """The fleet's report."""
        return {path.name: path.read_bytes() for path in self.out.iterdir() if path.is_file()}


def check(site: Site, program: str) -> None:
    """One report, written once, of all hosts and nothing else."""
    said = site.run(program=program)
    # Nothing could be looked at: that is red, and told.
    assert said.startswith("2 ") and NOTHING in said, said
    report = json.loads((site.out / "report.json").read_text())
    assert {(host["kind"], host["name"], host["status"]) for host in report["hosts"]} == {
        *(("node", name, "not_assessed") for name in ("localhost", "w1", "cluster", "ceph")),
        ("cluster", "cluster (cluster)", "not_assessed"),
    }
    cluster = next(host for host in report["hosts"] if host["kind"] == "cluster")
    assert "no-kubeconfig" in cluster["reason"], "the module ran on the controller, not by ssh"
    assert [(one["owner"], one["expires"]) for one in report["exceptions"]] == [
        ("B\u00fcro \U0001f680", f"{sample.NEXT_YEAR:%Y-%m-%d}")
    ]
    assert len(os.listdir(site.out / "runs")) == 1 and not report["run"]["partial"]


def test_a_site_that_does_not_think_of_the_controller(tmp_path: Path) -> None:
    """All ssh, another strategy, hosts named as what is not a host; and runs of a part, which leave
    the fleet's report alone.
    """
    site = Site(tmp_path)
    check(site, "ansible-playbook")
    whole = site.files()
    said = site.run("--limit", "w1")
    assert said.startswith("2 ") and NOTHING in said and "a part of the fleet" in said
    part = json.loads((site.out / "partial/report.json").read_text())
    assert [host["name"] for host in part["hosts"]] == ["w1", "cluster"]
    assert site.files() == whole and len(os.listdir(site.out / "runs")) == 1
    said = site.run(target="w1,wroker2\n!ceph")
    assert said.startswith("2 ") and "No host of the inventory matches wroker2" in said
    assert site.files() == whole and "Run the node controls" not in said


def test_the_lowest_ansible_core(tmp_path: Path) -> None:
    check(Site(tmp_path), lowest("ansible-playbook"))
