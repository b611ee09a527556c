# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role as playbooks and AWX call it: what it refuses before anything runs, and what
it writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import sample
from jsonschema import Draft202012Validator
from lab.common import patient
from support.node import environment
from support.selection import lowest

FILES = Path(__file__).parents[2] / "roles/compliance_report/files"
SCHEMA = Draft202012Validator(json.loads((FILES / "report.schema.json").read_text()))
ROLE = "storage_ops.runbooks.compliance_report"
PLAY = [
    {
        "hosts": "localhost,all",
        "gather_facts": False,
        "check_mode": True,
        "tasks": [
            {"import_role": {"name": ROLE, "tasks_from": "check.yml"}, "run_once": True},
            {
                "import_role": {"name": ROLE},
                "run_once": True,
                "vars": {
                    "compliance_report_hosts": "{{ groups['all'] }}",
                    "compliance_report_others": [
                        {"name": "cluster", "kind": "cluster", "result": "cluster_result"},
                        {"name": "ceph", "kind": "ceph", "result": "never_defined"},
                    ],
                },
            },
        ],
    }
]
# As an AWX survey sends it.
SURVEY = {
    "compliance_report_controls": "",
    "compliance_report_severity": "minor",
    "compliance_report_select": "",
    "compliance_report_exceptions": "- {select: \"[?control=='STOR-10']\", owner: me, reason: "
    "because, expires: " + f"{sample.NEXT_YEAR:%Y-%m-%d}}}",
    "compliance_report_keep": "2",
    "compliance_report_formats": "json, junit\nhtml prometheus",
    "compliance_report_prometheus_file": "",
    "compliance_report_title": "",
    "compliance_report_fleet": "shop",
    "compliance_report_slice": "",
    "compliance_report_inputs": "",
    "compliance_report_partial": "false",
    "compliance_report_strict": "false",
}


class Fleet:
    """Hosts whose results are there, and a folder for their report."""

    def __init__(self, folder: Path, results: sample.Results) -> None:
        self.folder, self.out = folder, folder / "out"
        self.play, self.inventory, self.variables = (
            folder / name for name in ("play.json", "inventory.json", "vars.json")
        )
        self.play.write_text(json.dumps(PLAY))
        self.inventory.write_text(
            json.dumps(
                {
                    "all": {
                        "hosts": {
                            name: {"compliance_node": one} for name, one in results.nodes.items()
                        }
                    }
                }
            )
        )
        self.cluster = results.cluster

    def run(
        self, program: str = "ansible-playbook", **variables: Any
    ) -> subprocess.CompletedProcess[str]:
        """Report on it."""
        told = {
            "cluster_result": self.cluster,
            "compliance_report_folder": str(self.out),
            **variables,
        }
        self.variables.write_text(json.dumps(told))
        command = [
            program,
            "-i",
            str(self.inventory),
            "-e",
            f"@{self.variables}",
            "-vvv",
            str(self.play),
        ]
        settings = {
            **environment(),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_SHOW_CUSTOM_STATS": "1",
        }
        return subprocess.run(
            command,
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patient(120),
            check=False,
        )

    def report(self) -> dict[str, Any]:
        """What was written."""
        report: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        SCHEMA.validate(report)
        return report


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, sample.make_results(8, 14))


@pytest.mark.smoke
def test_survey_strings_and_a_second_run(fleet: Fleet) -> None:
    ran = fleet.run(**SURVEY)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "changed=0" in ran.stdout
    first = fleet.report()
    assert (
        first["run"]["scope"]["severity"] == "minor"
        and first["run"]["cluster"] == "shop"
        and first["run"]["title"] == "Storage compliance"
    )
    accepted = [finding for finding in first["findings"] if finding["status"] == "accepted"]
    assert accepted and {finding["control"] for finding in accepted} == {"STOR-10"}
    assert {host["name"] for host in first["hosts"] if host["status"] == "not_assessed"} == {
        "worker-4"
    }
    assert len(first["hosts"]) == 9, "Ceph was not asked"
    assert sorted(os.listdir(fleet.out)) == [
        "junit.xml",
        "report.html",
        "report.json",
        "runs",
        "storage_ops.prom",
    ]
    modes = {path.name: path.stat().st_mode & 0o777 for path in fleet.out.iterdir()}
    assert (modes.pop("storage_ops.prom"), modes.pop("runs")) == (0o644, 0o750) and set(
        modes.values()
    ) == {0o640}
    cases = list(ElementTree.parse(fleet.out / "junit.xml").iter("testcase"))
    assert len(cases) == sum(len(host["controls"]) for host in first["hosts"])
    # The artifact: numbers only, and nothing of the findings is in the output, however loud.
    assert '"storage_compliance": {' in ran.stdout and len(ran.stdout) < 60_000
    assert (
        first["findings"][0]["fingerprint"] not in ran.stdout
        and json.dumps(first["findings"][0]["evidence"])[2:40] not in ran.stdout
    )
    # One host is repaired, one cannot be reached any more, two are kept.
    inventory = json.loads(fleet.inventory.read_text())
    ill = [
        host["name"]
        for host in first["hosts"]
        if "fail" in host["controls"].values() and host["kind"] == "node"
    ]
    inventory["all"]["hosts"][ill[0]]["compliance_node"]["findings"] = []
    inventory["all"]["hosts"][ill[1]]["compliance_node"] = {"unreachable": True, "msg": "off"}
    fleet.inventory.write_text(json.dumps(inventory))
    assert fleet.run(**SURVEY).returncode == 0
    second = fleet.report()
    gone = sum(finding["host"] == ill[0] for finding in first["findings"])
    assert second["run"]["compared_with"] == first["run"]["id"]
    assert (second["summary"]["findings"]["new"], second["summary"]["findings"]["resolved"]) == (
        0,
        gone,
    )
    assert fleet.run(**SURVEY).returncode == 0
    assert len(os.listdir(fleet.out / "runs")) == 2


def test_refused_before_anything_runs(fleet: Fleet) -> None:
    """In check.yml, and nothing is written; the unit tests have all that is refused."""
    for variables, said in (
        ({"compliance_report_select": "[?severity=='critical'"}, "select is not JMESPath"),
        ({"compliance_report_controls": "STOR-01,STOR-18"}, "STOR-18"),
        ({"compliance_report_strict": "flase"}, "compliance_report_strict must be true or false"),
        ({"compliance_report_partial": "nope"}, "not a valid boolean"),
    ):
        ran = fleet.run(**variables)
        assert ran.returncode == 2 and said in ran.stdout + ran.stderr, ran.stdout
        assert "Write the report" not in ran.stdout and "Traceback" not in ran.stdout + ran.stderr
        assert not (fleet.out / "report.json").exists()


def test_red_after_everything_was_written_and_parts_made_one(fleet: Fleet) -> None:
    """Slices of a fleet and the cluster become one report, that has what the whole fleet's report
    has.
    """
    ran = fleet.run(
        compliance_report_strict="yes", compliance_report_controls=["STOR-01", "STOR-03", "STOR-11"]
    )
    assert ran.returncode == 2 and "open findings" in ran.stdout
    whole = fleet.report()
    names = [host["name"] for host in whole["hosts"] if host["kind"] == "node"]
    files = []
    for number, some in enumerate((names[:3], names[3:6]), 1):
        one = fleet.run(
            compliance_report_hosts=some,
            compliance_report_others=[],
            compliance_report_slice=f"{number}/3",
            compliance_report_formats=["json"],
            compliance_report_controls="STOR-01 STOR-03 STOR-11",
            compliance_report_folder=str(fleet.folder / f"slice{number}"),
        )
        assert one.returncode == 0, one.stdout
        files.append(str(fleet.folder / f"slice{number}" / "report.json"))
    ran = fleet.run(
        compliance_report_inputs="\n".join(files),
        compliance_report_hosts=names,
        compliance_report_folder=str(fleet.out),
    )
    assert ran.returncode == 0, ran.stdout
    joined = fleet.report()
    assert (
        joined["run"]["scope"]["controls"] == ["STOR-01", "STOR-03", "STOR-11"]
        and joined["run"]["slice"] is None
    )
    by_name = {host["name"]: host for host in joined["hosts"]}
    for host in whole["hosts"]:
        if host["name"] in names[6:]:
            assert by_name[host["name"]]["status"] == "not_assessed"
        else:
            assert by_name[host["name"]] == host
    there = {
        finding["fingerprint"] for finding in whole["findings"] if finding["host"] not in names[6:]
    }
    assert {finding["fingerprint"] for finding in joined["findings"]} == there and there


def test_the_lowest_ansible_core(fleet: Fleet) -> None:
    ran = fleet.run(lowest("ansible-playbook"), **SURVEY)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert fleet.report()["summary"]["findings"]["accepted"]


def test_reports_of_any_fleet_fit_the_schema(tmp_path: Path) -> None:
    for seed, (hosts, findings) in enumerate([(1, 0), (3, 40), (60, 200)]):
        sample.write(
            tmp_path / str(seed),
            hosts,
            findings,
            seed,
            runs=2,
            slice="1/2" if seed else "",
            severity="minor" if seed == 1 else "info",
        )
        SCHEMA.validate(json.loads((tmp_path / str(seed) / "report.json").read_text()))


def test_the_sample_as_a_program(tmp_path: Path) -> None:
    program = Path(__file__).parent / "sample.py"
    command = [
        sys.executable,
        "-P",
        str(program),
        "--hosts",
        "5",
        "--findings",
        "5",
        "--runs",
        "1",
        str(tmp_path),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "open findings" in said and (tmp_path / "report.html").stat().st_size > 20_000
