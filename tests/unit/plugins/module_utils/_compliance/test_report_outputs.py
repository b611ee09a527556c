# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTML, JUnit and metrics: all of them say what the report says, and hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import (
    files,
    history,
    html,
    junit,
    prometheus,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import CODES
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.results import (
    HOSTILE,
    build,
    finding,
    result,
)

ASSETS = html.Assets.read(Path(__file__).resolve().parents[5] / "roles/compliance_report/files")
NODES: dict[str, Any] = {
    "n1": result(
        finding(), finding("STOR-03", "minor", "sdb"), finding("STOR-10", "info", "containerd")
    ),
    "n2": {"unreachable": True, "msg": "off"},
    "n3": result(
        failed=True,
        not_assessed={"STOR-09": "mount.nfs is not installed"},
        not_assessed_codes={"STOR-09": "program_missing"},
    ),
}
ABSENT = {"n4": result(not_applicable={"STOR-04": "there is no iSCSI <session>"})}
EXCEPTIONS = [
    {"select": "[?control=='STOR-03']", "owner": "me", "reason": "why", "expires": "2027-01-01"}
]


def hostile(text: str) -> dict[str, Any]:
    """A report in which everything that a host or a user can name is that text."""
    evil = finding(
        name=text,
        node=text,
        kind=text,
        summary=text,
        reason=text,
        runbook=text,
        evidence={text: [text]},
    )
    evil["repair"] = [
        {"action": text, "target": text, "command": [text], "outcome": "planned", "seconds": 0}
    ]
    nodes = {
        "n1": result(evil, failed=True, not_assessed={"STOR-09": text}),
        text: result(evil),
        "n2": {"unreachable": True, "msg": text},
    }
    rule = {
        "select": "[?control=='STOR-05']",
        "owner": f"o{text}",
        "reason": f"r{text}",
        "expires": "2026-01-01",
    }
    report = build(nodes, [rule])
    report["run"].update(
        title=f"t{text}".encode("utf-8", "replace").decode(),
        cluster=f"c{text}".encode("utf-8", "replace").decode(),
    )
    return report


# JUnit


def test_one_case_for_each_control_and_host() -> None:
    document = ElementTree.fromstring(junit.render(build(NODES, EXCEPTIONS)).encode())
    cases = {(case.get("classname"), case.get("name")): case for case in document.iter("testcase")}
    assert len(cases) == 3 * 10 + 7 == int(document.get("tests", ""))
    failed = cases["STOR-01", "n1"]
    failure = failed.find("failure")
    assert (
        failure is not None
        and failure.get("message") == "mpatha is dead"
        and "clean_residual_paths" in (failure.text or "")
    )
    accepted = cases["STOR-03", "n1"]
    assert [part.tag for part in accepted] == [
        "system-out"
    ] and "accepted by me until 2027-01-01: why" in (accepted[0].text or "")
    assert [part.tag for part in cases["STOR-10", "n1"]] == ["system-out"], "an info is a note"
    for where, why in (
        ("n2", "not assessed: unreachable: off"),
        ("n3", "not assessed: mount.nfs is not installed"),
    ):
        assert [(part.tag, part.get("message")) for part in cases["STOR-09", where]] == [
            ("skipped", why)
        ]
    assert not list(cases["STOR-01", "n3"])
    tags = [part.tag for part in document.iter()]
    assert (document.get("failures"), document.get("skipped")) == (
        str(tags.count("failure")),
        str(tags.count("skipped")),
    )


def test_a_refusal_has_its_code() -> None:
    refused = finding(verdict="refuse", reason="opened by dd", code="in_use_open")
    document = junit.render(build({"n1": result(refused)}))
    assert "needs attention (in_use_open): opened by dd" in document
    assert "can be repaired: proven" in junit.render(build({"n1": result(finding())}))


def test_a_note_that_stands_for_findings_left_out() -> None:
    """The control fails, since nobody has seen them, and the case says why."""
    others = finding(
        "",
        "info",
        "3 more",
        kind="findings",
        summary="3 more are left out",
        evidence={"controls": ["STOR-05: 3"]},
    )
    document = ElementTree.fromstring(junit.render(build({"n1": result(others)})).encode())
    assert [failure.get("message") for failure in document.iter("failure")] == [
        "3 more are left out"
    ]


@given(st.text() | st.just(HOSTILE))
def test_junit_is_xml_whatever_it_holds(text: str) -> None:
    ElementTree.fromstring(junit.render(hostile(text)).encode())


# Prometheus

SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} [-+.e\d]+')


@given(st.text() | st.just(HOSTILE))
def test_every_line_is_a_metric_whatever_it_holds(text: str) -> None:
    for line in prometheus.render(hostile(text)).split("\n")[:-1]:
        assert line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.fullmatch(line), line


@given(st.text() | st.just(HOSTILE))
def test_the_client_of_prometheus_reads_the_metrics_whatever_they_hold(text: str) -> None:
    """By their reference parser: each of our lines is a sample, of a family with a help text."""
    report = hostile(text)
    written = prometheus.render(report)
    families = list(text_string_to_metric_families(written))
    assert all(one.type == "gauge" and one.documentation for one in families)
    assert len({one.name for one in families}) == len(families) == written.count("# TYPE ")
    samples = [sample for one in families for sample in one.samples]
    assert {sample.labels["cluster"] for sample in samples} == {report["run"]["cluster"]}
    labels = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
    # A series that is there twice makes node_exporter refuse the whole file.
    assert len(set(labels)) == len(labels)
    lines = written.split("\n")[:-1]
    assert len(samples) == len(lines) - 2 * len(families)


def test_metrics() -> None:
    others = finding("", "minor", "2 more", kind="findings")
    used = finding(name="mpathb", verdict="refuse", code="in_use_open")
    nodes = {**NODES, "n4": result(others), "n5": result(used)}
    lines = prometheus.render(build(nodes, EXCEPTIONS)).splitlines()
    for line in (
        'findings{cluster="fleet",control="STOR-01",severity="major",status="open"} 2',
        'findings{cluster="fleet",control="STOR-01",severity="critical",status="open"} 0',
        'findings{cluster="fleet",control="STOR-03",severity="minor",status="accepted"} 1',
        'findings{cluster="fleet",control="none",severity="minor",status="open"} 1',
        'hosts{cluster="fleet",status="not_assessed"} 1',
        'control_hosts{cluster="fleet",control="STOR-09",result="not_assessed"} 2',
        'codes{cluster="fleet",code="in_use_open",what="refused"} 1',
        'codes{cluster="fleet",code="in_use_open",what="not_assessed"} 0',
        'codes{cluster="fleet",code="program_missing",what="not_assessed"} 1',
        'codes{cluster="fleet",code="host_unreachable",what="not_assessed"} 1',
        'codes{cluster="fleet",code="lease_held",what="refused"} 0',
        'exceptions{cluster="fleet",state="expired"} 0',
        'last_run_timestamp_seconds{cluster="fleet"} 1795311000',
        'run_duration_seconds{cluster="fleet"} 0',
    ):
        assert f"storage_ops_compliance_{line}" in lines


# HTML


class Page(HTMLParser):
    """The elements of a page, and the text of those that hold code or data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.held: dict[str, str] = {}
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id", tag) if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.held[self.inside] = self.held.get(self.inside, "") + data


def page(report: dict[str, Any]) -> Page:
    return Page(html.render(report, json.dumps(report), history.trend([report], report), ASSETS))


def test_the_page_asks_for_nothing_and_allows_only_its_own_code() -> None:
    made = page(build(NODES, EXCEPTIONS))
    policy = next(
        attributes["content"] for tag, attributes in made.elements if attributes.get("http-equiv")
    )
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for what in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(made.held[what].encode()).digest()).decode()
        assert f"{what}-src 'sha256-{digest}'" in policy
    for tag, attributes in made.elements:
        assert tag not in ("img", "link", "iframe", "base") and not [
            name for name in attributes if name in ("src", "style") or name[:2] == "on"
        ]
        assert attributes.get("href", "#").startswith("#")
    assert json.loads(made.held["data"])["findings"][0]["object"]["name"] == "mpatha"


@given(st.text() | st.just(HOSTILE))
def test_the_page_has_the_same_elements_whatever_it_holds(text: str) -> None:
    plain, made = page(hostile("x")), page(hostile(text))
    assert [tag for tag, _attributes in made.elements] == [
        tag for tag, _attributes in plain.elements
    ]
    assert not re.search("[<>&]", made.held["data"])
    assert made.held["script"] == ASSETS.script and json.loads(made.held["data"])["findings"]


def test_the_summary_is_there_without_a_script() -> None:
    report = build(
        NODES, [*EXCEPTIONS, {**EXCEPTIONS[0], "expires": "2020-01-01"}], severity="info"
    )
    text = html.render(report, json.dumps(report), history.trend([], report), ASSETS)
    for said in (
        "2 open findings (1 major, 1 info) on 1 of 3 hosts; 1 not assessed, 1 only partly "
        "assessed, the cluster not assessed",
        '<b>n2</b> <span class="soft">unreachable: off</span>',
        '<b>n3</b> STOR-09 <span class="soft">mount.nfs is not installed</span>',
        "expired 2020-01-01",
        "<b>host_unreachable</b> 0 need attention, 1 not assessed",
        CODES["host_unreachable"].next_step,
        "There is no earlier run to compare with.",
        "No multipath map has only dead paths",
    ):
        assert said in text


@given(st.integers(min_value=0, max_value=10**6))
def test_the_top_of_the_chart_is_round_and_near(number: int) -> None:
    top = html._ceiling(number)
    assert number <= top <= max(2, 2 * number) and top % 2 == 0


# Files


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    files.write(str(path), "old")
    with pytest.raises(UnicodeEncodeError):
        files.write(str(path), "new \ud800")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o640
    files.prepare(str(tmp_path / "new"), "runs")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "new/runs")] == [
        0o750,
        0o750,
    ]


def test_the_newest_runs_are_kept(tmp_path: Path) -> None:
    files.prepare(str(tmp_path), "runs")
    assert not files.has_runs(str(tmp_path))
    (tmp_path / "runs/notes.txt").write_text("mine")
    (tmp_path / "runs/20260101T000000Z.json").write_text("no JSON")
    kept = history.keep(build(NODES), None)
    for name in ("20260102T000000Z", "20260103T000000Z", "20260103T000000Z"):
        files.keep_run(str(tmp_path), name, kept, 3)
    assert sorted(os.listdir(tmp_path / "runs")) == [
        "20260102T000000Z.json",
        "20260103T000000Z.json",
        "20260103T000000Z_2.json",
        "notes.txt",
    ]
    (tmp_path / "runs/20260104T000000Z.json").write_text("{}")
    runs, unread = files.read_runs(str(tmp_path))
    assert len(runs) == 3 and unread == ["20260104T000000Z.json"]
    assert files.has_runs(str(tmp_path))


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageOpsError, match="cannot be made"):
        files.prepare(str(tmp_path / "file"))
    with pytest.raises(StorageOpsError, match="cannot be written"):
        files.check(str(tmp_path / "none/x.prom"))
    with pytest.raises(StorageOpsError, match="it is a folder"):
        files.check(str(tmp_path))


def test_what_is_not_applicable_is_shown_apart() -> None:
    report = build({**NODES, **ABSENT})
    metrics = prometheus.render(report)
    found = dict(
        re.findall(r'control_hosts{cluster="fleet",control="STOR-04",result="(\w+)"} (\d)', metrics)
    )
    assert (found["not_applicable"], found["pass"], found["not_assessed"]) == ("1", "2", "1")
    tree = ElementTree.fromstring(junit.render(report))
    (case,) = tree.findall(".//testcase[@classname='STOR-04'][@name='n4']")
    skipped = case.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not applicable: there is no iSCSI <session>"
    page = html.render(report, json.dumps(report), [], ASSETS)
    assert 'data-what="not applicable">1<' in page and "Not applicable</th>" in page
    # An empty column takes room on a phone.
    without = build(NODES)
    assert "not applicable" not in html.render(without, "{}", [], ASSETS).partition("<script")[0]


def test_a_page_without_anything_applicable_is_not_green() -> None:
    absent = {"n1": result(not_applicable={"STOR-04": "there is no iSCSI session"})}
    report = build(absent, controls=("STOR-04",))
    page = html.render(report, json.dumps(report), [], ASSETS)
    assert 'class="sentence warn"' in page and "Nothing in scope is applicable" in page
