# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action behind compliance_report: what it takes, what it refuses before anything runs, and
where it reads the results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.action.compliance_report import SPEC, Request
from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import junit
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.modules import compliance_report

ROLE = Path(__file__).resolve().parents[4] / "roles/compliance_report"
ENTRIES = ("main", "check")
SOON = (datetime.now(timezone.utc) + timedelta(days=30)).strftime("%Y-%m-%d")


class HostVars:
    """As Ansible's: what is asked for raw is not templated."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.results = results

    def raw_get(self, host: str) -> Any:
        return {"compliance_node": self.results[host]} if host in self.results else None


def result(*findings: dict[str, Any]) -> dict[str, Any]:
    return {"msg": "said", "findings": list(findings), "actions": [], "changed": False}


def finding(control: str, name: str) -> dict[str, Any]:
    thing = {"kind": "kind", "name": name, "node": "n1"}
    whole = {
        "control": control,
        "severity": "major",
        "object": thing,
        "summary": "bad",
        "evidence": {},
        "verdict": "report",
    }
    return {**whole, "reason": "", "runbook": "", "repair": []}


def request(folder: Path, **params: Any) -> Request:
    return Request(
        {
            **{name: option.get("default") for name, option in SPEC.items()},
            "folder": str(folder),
            **params,
        }
    )


def report(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return loaded


def options(documented: Mapping[str, Any]) -> dict[str, Any]:
    """An argument spec as its documentation has it."""
    told = {}
    for name, option in documented.items():
        told[name] = {
            key: value for key, value in option.items() if key not in ("description", "suboptions")
        }
        if "suboptions" in option:
            told[name]["options"] = options(option["suboptions"])
    return told


def test_the_documentation_the_action_and_the_role_agree() -> None:
    documented = yaml.safe_load(compliance_report.DOCUMENTATION)["options"]
    assert options(documented) == SPEC
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    offered = {
        f"compliance_report_{name}": option.get("default", "")
        for name, option in SPEC.items()
        if name not in ("started", "validate_only", "ask_only")
    }
    assert defaults == {**offered, "compliance_report_strict": False}
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]
    for entry in ENTRIES:
        assert {
            name: option["default"] for name, option in specs[entry]["options"].items()
        } == defaults
    readme = (ROLE / "README.md").read_text()
    assert not [name for name in defaults if f"| `{name}` |" not in readme]


def test_results_of_hosts_and_of_the_cluster(tmp_path: Path) -> None:
    """Read by name where Ansible keeps them; a host without any is not assessed."""
    asked = request(
        tmp_path,
        hosts=["n1", "n2"],
        others=[
            {"name": "kube", "kind": "cluster", "result": "of_cluster"},
            {"name": "ceph", "kind": "ceph", "result": "of_ceph"},
        ],
    )
    rows = asked.rows(
        {
            "hostvars": HostVars({"n1": result(finding("STOR-01", "x"))}),
            "of_cluster": result(),
            "of_ceph": {"skipped": True},
        }
    )
    written = asked.write(rows)
    assert {host["name"]: host["status"] for host in report(tmp_path)["hosts"]} == {
        "n1": "assessed",
        "n2": "not_assessed",
        "kube": "assessed",
    }
    assert (
        written["failing"]
        and written["summary"]["hosts"]["not_assessed"] == 1
        and len(json.dumps(written)) < 10_000
    )
    assert sorted(written["files"]) == sorted(
        str(path) for path in tmp_path.iterdir() if path.is_file()
    )


def test_a_node_forges_no_line_by_a_warning(tmp_path: Path) -> None:
    """The error of an expression quotes the evidence, and Ansible prints warnings as they are."""
    said = finding("STOR-01", "x") | {"evidence": {"paths": "x\n\nPLAY RECAP ***"}}
    select = "[?evidence.paths && sum(evidence.paths) > `3`]"
    rule = {"select": select, "owner": "o", "reason": "r", "expires": SOON}
    asked = request(tmp_path, hosts=["n1"], exceptions=[rule], select=select)
    written = asked.write(asked.rows({"hostvars": HostVars({"n1": result(said)})}))
    assert len(written["warnings"]) == 2
    assert all("PLAY RECAP" in one and "\n" not in one for one in written["warnings"])


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    asked = request(tmp_path, started="2999-01-01T00:00:00Z")
    asked.write(asked.rows({"hostvars": HostVars({})}))
    assert report(tmp_path)["run"]["seconds"] < 60


def test_only_what_is_asked_for_is_written(tmp_path: Path) -> None:
    metrics = tmp_path / "elsewhere.prom"
    asked = request(
        tmp_path / "out",
        formats=["prometheus"],
        prometheus_file=str(metrics),
        controls=["STOR-02", "STOR-01"],
        partial=False,
    )
    asked.write(asked.rows({"hostvars": HostVars({})}))
    assert metrics.exists() and os.listdir(tmp_path / "out") == ["runs"]
    assert asked.scope.controls == ("STOR-01", "STOR-02"), "in their own order"


def test_exceptions_as_text(tmp_path: Path) -> None:
    asked = request(
        tmp_path,
        exceptions=f"- {{select: \"[?host=='n1']\", owner: me, reason: because, expires: {SOON}}}",
    )
    assert asked.exceptions[0].expires == SOON
    assert (
        not request(tmp_path, exceptions="").exceptions
        and not request(tmp_path, exceptions=" \n").exceptions
    )


def test_a_run_of_a_part_leaves_the_fleets_numbers_alone(tmp_path: Path) -> None:
    """No metrics and no run of it; the report stands beside the fleet's where there is one.

    The next whole run finds nothing new.
    """

    def write(**params: Any) -> dict[str, Any]:
        asked = request(tmp_path, hosts=["n1"], **params)
        return asked.write(
            asked.rows(
                {
                    "hostvars": HostVars(
                        {"n1": result(finding("STOR-01", "x"), finding("STOR-03", "y"))}
                    )
                }
            )
        )

    first = write(controls=["STOR-01"])
    assert (
        sorted(os.listdir(tmp_path)) == ["junit.xml", "report.html", "report.json"]
        and "a part of the fleet" in first["msg"]
    )
    write()
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert len(whole) == 4 and not report(tmp_path)["run"]["partial"]
    for part in (
        {"controls": ["STOR-01"]},
        {"severity": "major"},
        {"select": "[?host=='n2']"},
        {"slice": "1/2"},
        {"partial": True},
    ):
        written = write(**part)
        assert {os.path.dirname(path) for path in written["files"]} == {str(tmp_path / "partial")}
        assert report(tmp_path / "partial")["run"]["partial"]
        assert {
            path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()
        } == whole
        assert sorted(os.listdir(tmp_path / "partial")) == [
            "junit.xml",
            "report.html",
            "report.json",
        ]
    assert len(os.listdir(tmp_path / "runs")) == 1
    write()
    again = report(tmp_path)
    assert (
        again["run"]["compared_with"]
        and again["summary"]["findings"]["new"] == again["summary"]["findings"]["resolved"] == 0
    )


def test_each_fleet_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one user without a folder; one that is given is taken as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    default = Path(SPEC["folder"]["default"])
    for fleet, name in (("default", ""), ("east", "_east"), ("../Prod EU/1", "_.._Prod_EU_1")):
        asked = request(default, fleet=fleet)
        assert asked.folder == f"{tmp_path}/storage_compliance{name}"
    assert request(tmp_path / "x", fleet="east").folder == f"{tmp_path}/x"


def test_a_folder_with_the_report_of_another_fleet_is_refused(tmp_path: Path) -> None:
    """Before anything is read, and nothing in it is touched."""

    def write(**params: Any) -> None:
        asked = request(tmp_path, **params)
        asked.write(asked.rows({"hostvars": HostVars({})}))

    def refused(said: str, **params: Any) -> None:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(StorageOpsError, match=said) as error:
            request(tmp_path, validate_only=True, **params)
        assert error.value.code == "file_unusable"
        for option in (str(tmp_path), "compliance_report_folder", "compliance_report_fleet"):
            assert option in str(error.value)
        assert sorted(tmp_path.rglob("*")) == before

    # A report of a part is one as well.
    for partial in (True, False):
        write(fleet="east", hosts=["n1"], partial=partial)
        refused("the fleet east", fleet="west", hosts=["n1"])
        refused("the fleet east", hosts=["n1"])
        refused("the fleet east", hosts=["n1"], partial=True)
        # What was named says by this that it is one fleet, whatever its nodes are.
        request(tmp_path, fleet="east", hosts=["n9"])


def test_a_folder_with_the_report_of_another_inventory_is_refused(tmp_path: Path) -> None:
    """Two that have no name are told apart by their nodes."""
    hosts = {"hostvars": HostVars({})}
    for given in ({"partial": True}, {}):
        asked = request(tmp_path, hosts=["n1", "n2"], **given)
        asked.write(asked.rows(hosts))
        with pytest.raises(StorageOpsError, match=r"the report of other nodes \(n1, n2\)"):
            request(tmp_path, hosts=["n3", "n4"])
        # Some nodes were replaced; a new one alone is looked at; none are known.
        for params in ({"hosts": ["n2", "n3"]}, {"hosts": ["n3"], "partial": True}, {}):
            request(tmp_path, **params)
    # Without an inventory only the cluster is looked at: the nodes are still there afterwards.
    asked = request(tmp_path)
    asked.write(asked.rows(hosts))
    with pytest.raises(StorageOpsError, match="other nodes"):
        request(tmp_path, hosts=["n3"])
    # Of a run that is damaged nothing is known, so the one before counts.
    (tmp_path / "runs/29990101T000000Z.json").write_text("{", encoding="utf-8")
    with pytest.raises(StorageOpsError, match="other nodes"):
        request(tmp_path, hosts=["n3"])
    # A file that is none of ours is no report.
    other = tmp_path / "other"
    other.mkdir()
    (other / "report.json").write_text("[]", encoding="utf-8")
    request(other, hosts=["n3"])


def test_a_fleet_that_gets_a_name_is_known_by_its_nodes(tmp_path: Path) -> None:
    asked = request(tmp_path, hosts=["n1", "n2"])
    asked.write(asked.rows({"hostvars": HostVars({})}))
    request(tmp_path, fleet="east", hosts=["n2"])
    with pytest.raises(StorageOpsError, match="a fleet without a name"):
        request(tmp_path, fleet="east", hosts=["n9"])


def test_a_run_of_the_cluster_alone_tells_nothing_of_nodes(tmp_path: Path) -> None:
    """The one before it does, as far as it is kept."""
    for hosts in (["n1"], []):
        asked = request(tmp_path, hosts=hosts)
        asked.write(asked.rows({"hostvars": HostVars({})}))
    (last,) = sorted((tmp_path / "runs").iterdir())[-1:]
    kept = json.loads(last.read_text(encoding="utf-8"))
    last.write_text(json.dumps({**kept, "nodes": []}), encoding="utf-8")
    with pytest.raises(StorageOpsError, match=r"other nodes \(n1\)"):
        request(tmp_path, hosts=["n3"])


def test_findings_name_whom_to_look_up(tmp_path: Path) -> None:
    """The worst first; the answer is in the report, and a wrong one costs the report nothing."""
    mild = {**finding("STOR-08", "x"), "severity": "minor", "evidence": {"volumes": ["pvc-2"]}}
    grave = {
        **finding("STOR-07", "y"),
        "severity": "critical",
        "evidence": {"volumes": ["pvc-1"], "pod": "uid-1"},
    }
    variables = {"hostvars": HostVars({"n1": result(mild, grave)})}
    asked = request(tmp_path, hosts=["n1"], users="told")
    rows = asked.rows(variables)
    assert asked.question(rows)["question"] == {"volumes": ["pvc-1", "pvc-2"], "pods": ["uid-1"]}
    pod = {"uid": "uid-1", "namespace": "shop", "name": "web-0", "node": "n1", "owner": ""}
    told = {"volumes": [], "pods": [{**pod, "claims": []}]}
    assert "warnings" not in asked.write(rows, told)
    assert report(tmp_path)["findings"][0]["affected"]["pods"]["names"] == ["shop/web-0"]
    warned = asked.write(asked.rows(variables), {"volumes": 1, "pods": [7]})["warnings"]
    assert warned and "who is affected is not known" in warned[0]


def test_a_host_of_the_clusters_name(tmp_path: Path) -> None:
    others = [{"name": name, "kind": name, "result": f"of_{name}"} for name in ("cluster", "ceph")]
    asked = request(tmp_path, hosts=["ceph", "cluster"], others=others)
    read = {
        "hostvars": HostVars({"ceph": result(), "cluster": result()}),
        "of_cluster": result(),
        "of_ceph": result(),
    }
    asked.write(asked.rows(read))
    assert sorted((host["kind"], host["name"]) for host in report(tmp_path)["hosts"]) == [
        ("ceph", "ceph (ceph)"),
        ("cluster", "cluster (cluster)"),
        ("node", "ceph"),
        ("node", "cluster"),
    ]


def test_nothing_is_written_unless_everything_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(tmp_path, hosts=["n1"])
    rows = asked.rows({"hostvars": HostVars({"n1": result()})})

    def fail(report: object) -> str:
        raise RuntimeError(f"{type(report).__name__} cannot be rendered")

    monkeypatch.setattr(junit, "render", fail)
    with pytest.raises(RuntimeError, match="cannot be rendered"):
        asked.write(rows)
    assert os.listdir(tmp_path) == ["runs"]


def test_parts_keep_their_exceptions_and_hosts_of_no_part_are_told(tmp_path: Path) -> None:
    rule = {"select": "[?host=='n1']", "owner": "me", "reason": "because", "expires": SOON}
    for name in ("n1", "n2"):
        part = request(tmp_path / name, hosts=[name], exceptions=[rule], title=name, fleet="shop")
        part.write(part.rows({"hostvars": HostVars({name: result(finding("STOR-01", "x"))})}))
    files = [str(tmp_path / name / "report.json") for name in ("n1", "n2")]
    others = [{"name": "cluster", "kind": "cluster", "result": "of_cluster"}]
    asked = request(tmp_path, inputs=files, hosts=["n1", "n2", "n3"], others=others)
    asked.write(asked.rows({"of_cluster": result()}))
    made = report(tmp_path)
    assert made["run"]["cluster"] == "shop"
    assert [one["status"] for one in made["findings"]] == ["accepted", "open"] and made[
        "exceptions"
    ][0]["matched"] == 1
    statuses = {host["name"]: host["status"] for host in made["hosts"]}
    assert statuses == {
        "n1": "assessed",
        "n2": "assessed",
        "n3": "not_assessed",
        "cluster": "assessed",
    }
    asked = request(tmp_path, inputs=files, exceptions=[{**rule, "select": "[?host=='n2']"}])
    asked.write(asked.rows({}))
    assert [one["status"] for one in report(tmp_path)["findings"]] == ["open", "accepted"], (
        "other exceptions count instead"
    )
    with pytest.raises(
        StorageOpsError, match="severity cannot differ from what the inputs asked for"
    ):
        request(tmp_path, inputs=files, severity="major")
    twice = request(tmp_path, inputs=[*files, files[0]])
    assert twice.write(twice.rows({}))["warnings"] == [
        "in more than one report, of which the newest counts: n1"
    ]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"select": "[?severity=='critical'"}, "select is not JMESPath"),
        ({"exceptions": [{"select": "[]", "owner": "me"}]}, "exception 1 lacks expires, reason"),
        ({"exceptions": "["}, "exceptions are not YAML"),
        ({"exceptions": "words"}, "must be a list"),
        ({"slice": "6/5"}, "slice must be number/count"),
        ({"slice": "one"}, "slice must be number/count"),
        ({"keep": 0}, "keep must be 1 or more"),
        ({"formats": []}, "at least one format"),
        ({"fleet": " "}, "fleet must not be empty"),
        ({"started": "yesterday"}, "started must be a time"),
        ({"prometheus_file": "/tmp/metrics.txt"}, "must end in .prom"),
        ({"prometheus_file": "/nowhere/x.prom"}, "/nowhere/x.prom cannot be written"),
    ],
)
def test_refused_before_anything_runs(tmp_path: Path, params: dict[str, Any], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        request(tmp_path, **params)


def test_a_run_that_cannot_be_read_and_an_expression_that_does_not_fit_are_told(
    tmp_path: Path,
) -> None:
    asked = request(
        tmp_path, hosts=["n1"], select="[?evidence.x && contains(evidence.x, 'y')]", partial=False
    )
    kept = {
        "kept_version": 1,
        "run": {"id": "x", "scope": {}},
        "summary": {},
        "findings": {"STOR-10": ["x"]},
    }
    (tmp_path / "runs/20260101T000000Z.json").write_text(json.dumps(kept))
    written = asked.write(
        asked.rows(
            {
                "hostvars": HostVars(
                    {"n1": result({**finding("STOR-01", "x"), "evidence": {"x": 1}})}
                )
            }
        )
    )
    # What is wrong with this run comes first.
    select, old = written["warnings"]
    assert select.startswith("select ") and old.endswith(": runs/20260101T000000Z.json")
