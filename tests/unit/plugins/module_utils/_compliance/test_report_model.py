# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report says of what the audits returned: nothing passes that was not looked at."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._compliance import (
    assembly,
    history,
    html,
    model,
    overview,
    prometheus,
    reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.controls import (
    CONTROLS,
    NODE_CONTROLS,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.results import (
    NOW,
    build,
    finding,
    host,
    result,
)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "the audit did not run there"),
        ({"skipped": True, "changed": False}, "the audit did not run there"),
        ({"unreachable": True, "msg": "timed out\nby ssh"}, "unreachable: timed out by ssh"),
        ({"failed": True, "msg": "Missing sudo password"}, "Missing sudo password"),
        # As "failed_when: false" leaves it.
        (
            {"failed": False, "msg": "the host did not answer within 300 seconds"},
            "the host did not answer within 300 seconds",
        ),
        ({"msg": "", "findings": "none"}, "it gave no reason"),
        ("text", "the audit did not run there"),
        (
            {
                "failed": True,
                "msg": "MODULE FAILURE",
                "module_stderr": "Traceback:\nsudo: no password\n\n",
            },
            "MODULE FAILURE: sudo: no password",
        ),
        (
            {
                "failed": True,
                "msg": "MODULE FAILURE",
                "module_stderr": "pyenv: python3.13: command not found\n\nThe "
                "command exists in\n  3.12\n",
            },
            "MODULE FAILURE: pyenv: python3.13: command not found; The command exists in; 3.12",
        ),
        # As on_node tells it of a node.
        (
            {"failed": True, "msg": "and said: sudo: no", "module_stderr": "sudo: no\r\n"},
            "and said: sudo: no",
        ),
        (
            result({"control": "STOR-01"}),
            "its result is not the result of an audit: 'object' is missing",
        ),
        (
            result(finding("STOR-99")),
            "its result is not the result of an audit: STOR-99 major repair",
        ),
        (
            result(finding(severity="fatal")),
            "its result is not the result of an audit: STOR-01 fatal repair",
        ),
    ],
)
def test_what_cannot_be_read_is_not_assessed(returned: Any, reason: str) -> None:
    report = build({"n1": returned})
    row = host(report, "n1")
    assert (row["status"], row["reason"]) == ("not_assessed", reason)
    assert set(row["controls"].values()) == {"not_assessed"} and len(row["controls"]) == len(
        NODE_CONTROLS
    )
    assert report["summary"]["controls"]["STOR-01"]["pass"] == 0
    assert overview.failing(report)
    assert (
        overview.sentence(report)
        == "nothing was assessed; 1 not assessed, the cluster not assessed"
    )
    assert not history.trend([], report), "and it was no perfect night"


def test_a_node_tells_nothing_of_another() -> None:
    """Beside a finding stands the command that repairs it: here one that fences the
    node it names.
    """
    lost = {
        **finding("STOR-16", "critical"),
        "object": {"kind": "Node", "name": "victim", "node": "victim"},
    }
    row = reading.read_result("liar", "node", {"findings": [lost]})
    assert (
        row
        and row.findings == []
        and row.reason.startswith("its result is not the result of an audit")
    )
    row = reading.read_result("cluster", "cluster", {"findings": [lost]})
    assert row and len(row.findings) == 1


def test_a_command_leads_to_the_host_that_returned_the_finding() -> None:
    """Whoever is root there names the object: it would be another host, or all of them."""
    for name in ("all", "n2"):
        evil = finding("STOR-01", "critical", kind="Node", name=name, node=name)
        for told in build({"n1": result(evil)})["findings"]:
            assert "target=n1 " in told["command"] or not told["command"]
            assert f"target={name}" not in told["command"]


def test_no_host_fills_the_report() -> None:
    """Those of all others would be behind them."""
    many = result(*[finding()] * (reading.MAX_FINDINGS + 1))
    report = build({"n1": many, "n2": result(finding())})
    row = host(report, "n1")
    assert (row["status"], row["code"]) == ("not_assessed", "result_too_long")
    assert row["reason"] == "it returned 2501 findings, and an audit returns 2500 at most"
    assert [told["host"] for told in report["findings"]] == ["n2"]
    whole = build({"n1": result(*[finding()] * reading.MAX_FINDINGS)})
    assert len(whole["findings"]) == reading.MAX_FINDINGS


def test_no_host_is_longer_than_all_others() -> None:
    """Each of 5,000 findings had text of which an audit returns a twentieth in all: 116 MB."""
    evil = {**finding(), "evidence": {"a": "\U0001f600" * 1_900}}
    row = reading.read_result("n1", "node", result(evil))
    assert row
    length = len(json.dumps(row.findings[0]))
    most = reading.MAX_CHARACTERS // length
    assert 20 < most < 100
    report = build({"n1": result(*[evil] * (most + 1)), "n2": result(*[evil] * most)})
    row = host(report, "n1")
    assert (row["status"], row["code"]) == ("not_assessed", "result_too_long")
    assert row["reason"] == (
        f"it returned findings of {length * (most + 1)} characters, and 1000000 are read at most"
    )
    assert [told["host"] for told in report["findings"]] == ["n2"] * most


def test_a_host_of_many_findings_comes_in_turns() -> None:
    """A page has 100, and a print 1,000: of one host nothing else was to be seen."""
    evil = result(
        *[finding("STOR-01", "critical", name=f"m{number:03}") for number in range(300)],
        *[finding("STOR-05", "major", name="x")],
    )
    mine = result(finding("STOR-02", "critical"), finding("STOR-05", "major", name="y"))
    told = build({"n1": evil, "n2": mine, "n3": mine})["findings"]
    assert [one["host"] for one in told[: assembly.BLOCK + 3]] == [
        *["n1"] * assembly.BLOCK,
        *["n2", "n3", "n1"],
    ]
    # The worst first all the same, and of a host in the order of before.
    assert [one["severity"] for one in told] == ["critical"] * 302 + ["major"] * 3
    names = [one["object"]["name"] for one in told if one["host"] == "n1"]
    assert names == [*(f"m{number:03}" for number in range(300)), "x"]


def test_what_is_nested_too_deep_costs_no_other_host_its_report() -> None:
    deep: list[Any] = []
    for _level in range(100_000):
        deep = [deep]
    report = build({"n1": result(finding(summary=deep)), "n2": result(finding())})
    assert host(report, "n1")["status"] == "not_assessed"
    assert [told["host"] for told in report["findings"]] == ["n2"]


def test_some_controls_that_could_not_be_read() -> None:
    """What was found counts all the same, and of the control that was cut short only
    what failed.
    """
    returned = result(
        finding(),
        failed=True,
        not_assessed={"STOR-09": "mount.nfs is not installed", "STOR-01": "ended early"},
    )
    row = host(build({"n1": returned}), "n1")
    assert row["status"] == "partly_assessed"
    assert {control: row["controls"][control] for control in ("STOR-01", "STOR-02", "STOR-09")} == {
        "STOR-01": "fail",
        "STOR-02": "pass",
        "STOR-09": "not_assessed",
    }
    assert row["reasons"]["STOR-09"] == "mount.nfs is not installed"


def test_an_audit_that_ended_without_a_word_of_what_it_looked_at() -> None:
    row = host(build({"n1": result(finding(), failed=True)}), "n1")
    assert row["controls"]["STOR-01"] == "fail"
    assert {row["controls"][control] for control in NODE_CONTROLS[1:]} == {"not_assessed"}
    row = host(build({"n1": result(exception="Traceback")}), "n1")
    assert (row["status"], row["reason"]) == ("not_assessed", "said")


ABSENT = {"STOR-01": "there is no multipath map", "STOR-04": "there is no iSCSI session"}


def test_what_has_nothing_to_look_at_neither_passes_nor_fails() -> None:
    report = build({"n1": result(not_applicable=ABSENT)})
    row = host(report, "n1")
    assert (row["status"], row["not_applicable"]) == ("assessed", ABSENT)
    assert [row["controls"][control] for control in ("STOR-01", "STOR-02", "STOR-04")] == [
        "not_applicable",
        "pass",
        "not_applicable",
    ]
    counts = report["summary"]["controls"]["STOR-01"]
    assert (counts["pass"], counts["not_applicable"]) == (0, 1)
    assert not overview.failing(report) and overview.looked_at(report)
    assert overview.sentence(report).startswith("no open findings on 1 of 1 host")
    assert overview.counts(report)["controls"]["STOR-04"] == {"not_applicable": 1}


@pytest.mark.parametrize(
    ("returned", "control"),
    [
        (result(finding(), not_applicable=ABSENT), "fail"),
        (result(finding(severity="info"), not_applicable=ABSENT), "pass"),
        (
            result(failed=True, not_assessed={"STOR-01": "no"}, not_applicable=ABSENT),
            "not_assessed",
        ),
        # A module that ended without saying how far it came.
        (result(failed=True, not_applicable=ABSENT), "not_assessed"),
        (result(not_applicable=["STOR-01"]), "not_assessed"),
        ({"unreachable": True, "msg": "off", "not_applicable": ABSENT}, "not_assessed"),
        (result(not_applicable={"STOR-11": "not a node's"}), "pass"),
    ],
)
def test_what_is_there_or_unread_is_applicable(returned: Any, control: str) -> None:
    row = host(build({"n1": returned}), "n1")
    assert (row["controls"]["STOR-01"], row["not_applicable"].get("STOR-01")) == (control, None)
    assert "STOR-11" not in row["controls"]


def test_accepted_and_hidden_findings_are_there_as_well() -> None:
    returned = {"n1": result(finding(), not_applicable=ABSENT)}
    rule = {
        "select": "[?control=='STOR-01']",
        "owner": "me",
        "reason": "why",
        "expires": "2027-01-01",
    }
    assert host(build(returned, [rule]), "n1")["controls"]["STOR-01"] == "accepted"
    hidden = build(returned, severity="critical")
    assert host(hidden, "n1")["controls"]["STOR-01"] == "not_in_scope"


def test_where_nothing_is_applicable_the_run_has_looked() -> None:
    """It does not fail; that nothing was applicable is said, and is no green page."""
    every = dict.fromkeys(NODE_CONTROLS, "there is none")
    report = build({"n1": result(not_applicable=every)}, controls=NODE_CONTROLS)
    assert host(report, "n1")["status"] == "assessed"
    assert not overview.failing(report) and not overview.looked_at(report)
    assert overview.sentence(report) == "nothing in scope is applicable"


def test_what_is_gone_with_the_last_object_is_resolved() -> None:
    """The map was removed, and now there is none; a host that could not be read tells nothing."""
    kept = history.keep(build({"n1": result(finding())}), None)
    counts = kept["summary"]["controls"]["STOR-01"]
    assert counts["not_applicable"] == 0
    gone = build({"n1": result(not_applicable=ABSENT)}, previous=kept)
    assert gone["summary"]["findings"]["resolved"] == 1
    assert history.keep(gone, kept)["summary"]["controls"]["STOR-01"]["not_applicable"] == 1
    unread = build({"n1": {"unreachable": True, "msg": "off"}}, previous=kept)
    assert unread["summary"]["findings"]["resolved"] == 0


def test_an_earlier_report_keeps_what_was_not_applicable() -> None:
    report = build({"n1": result(not_applicable=ABSENT)})
    part = reading.read_report(json.loads(json.dumps(report)), "report.json")
    again = next(row for row in part.rows if row.name == "n1")
    assert again.not_applicable == ABSENT


REFUSED = {"verdict": "refuse", "reason": "it is mounted", "code": "in_use_mounted"}


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        (None, "audit_missing"),
        ({"unreachable": True, "msg": "no route"}, "host_unreachable"),
        (
            {"failed": True, "msg": "run it as root", "code": "privileges_missing"},
            "privileges_missing",
        ),
        ({"failed": True, "msg": "MODULE FAILURE"}, "unexpected_error"),
        ({"failed": True, "msg": "no", "code": "made_up"}, "unexpected_error"),
        ({"failed": True, "msg": "no", "code": ["lease_held"]}, "unexpected_error"),
        (result(finding("STOR-99")), "unexpected_error"),
        (result({**finding(), "code": "made_up"}), "unexpected_error"),
        (result(finding(**REFUSED)), ""),
    ],
)
def test_why_nothing_was_assessed_has_a_code(returned: Any, code: str) -> None:
    assert host(build({"n1": returned}), "n1")["code"] == code


def test_the_codes_of_what_was_not_assessed_and_of_refusals_are_counted() -> None:
    left = {
        "not_assessed": {"STOR-09": "no mount.nfs", "STOR-10": "odd"},
        "not_assessed_codes": {"STOR-09": "program_missing"},
        "failed": True,
        "code": "program_missing",
    }
    accepted = [
        {
            "select": "[?object.name=='known' && code=='in_use_mounted']",
            "owner": "me",
            "reason": "why",
            "expires": "2027-01-01",
        }
    ]
    report = build(
        {
            "n1": result(finding(**REFUSED), finding(name="b", **REFUSED), **left),
            "n2": result(finding(name="known", **REFUSED), finding(name="c"), **left),
        },
        accepted,
    )
    row = host(report, "n1")
    assert (row["status"], row["code"]) == ("partly_assessed", "")
    assert row["codes"] == {"STOR-09": "program_missing", "STOR-10": "unexpected_error"}
    assert {found["object"]["name"]: found["code"] for found in report["findings"]} == {
        **dict.fromkeys(("mpatha", "b", "known"), "in_use_mounted"),
        "c": "",
    }
    # What is accepted is no news.
    assert report["summary"]["codes"] == {
        "in_use_mounted": {"refused": 2, "not_assessed": 0},
        "no_cluster": {"refused": 0, "not_assessed": 1},
        "program_missing": {"refused": 0, "not_assessed": 2},
        "unexpected_error": {"refused": 0, "not_assessed": 2},
    }


def test_a_cluster_that_nobody_has_is_known_by_its_code() -> None:
    report = build({"n1": result()})
    row = host(report, "cluster")
    assert row["code"] == "no_cluster"
    assert overview.unwanted({**row, "reason": "said in another way"}, report)
    assert not overview.unwanted({**row, "code": "api_unreachable"}, report)


@pytest.mark.parametrize("code", ["no_cluster", "audit_missing", "host_unreachable"])
@pytest.mark.parametrize("kind", ["node", "cluster", "ceph"])
def test_what_was_asked_does_not_say_that_it_was_not(kind: str, code: str) -> None:
    """Root on a host writes the code of its answer; by that of a site without a cluster it would be
    left out of what fails a run, of the metrics and of merged reports.
    """
    every = dict.fromkeys(CONTROLS, "not today")
    codes = dict.fromkeys(CONTROLS, code)
    for returned in (
        {"failed": True, "msg": "not today", "code": code},
        result(failed=True, code=code),
        result(failed=True, not_assessed=every, not_assessed_codes=codes),
    ):
        nodes = {"n1": result(), **({"n2": returned} if kind == "node" else {})}
        others = {kind: returned} if kind != "node" else {}
        report = build(nodes, **others)
        name = "n2" if kind == "node" else kind
        row = host(report, name)
        if not row["controls"]:
            continue  # nothing of Ceph is a control that could be missing
        assert (row["status"], row["code"]) == ("not_assessed", "unexpected_error")
        assert not overview.unwanted(row, report) and overview.failing(report)
        assert 'hosts{cluster="fleet",status="not_assessed"} 0' not in prometheus.render(report)
        rows = reading.join([part(nodes, 1, **others), part({"n3": result()}, 2)], [], [])
        assert name in {row.name for row in rows}


def test_only_a_cluster_is_one_that_nobody_has() -> None:
    """Also by a report that was written before."""
    report = build({"n1": result()})
    row = host(report, "cluster")
    assert overview.unwanted(row, report)
    assert not overview.unwanted({**row, "kind": "node"}, report)
    odd = reading.Row("n1", "node", model.NO_CLUSTER)
    assert odd in reading.join([part({"n2": result()}, 1), part({"n3": result()}, 2)], [odd], [])


def test_without_a_cluster_its_controls_are_not_assessed_and_without_ceph_there_is_none() -> None:
    report = build({"n1": result()})
    assert host(report, "cluster")["reason"] == model.NO_CLUSTER and len(report["hosts"]) == 2
    assert not overview.failing(report), "nobody asked for the cluster"
    named = build({"n1": result()}, controls=("STOR-01", "STOR-11"))
    assert overview.failing(named), "its controls were named"
    assert 'status="not_assessed"} 1' in prometheus.render(
        named
    ) and 'hosts{cluster="fleet",status="not_assessed"} 0' in prometheus.render(report)
    assert overview.unassessed(named) == [
        f"not assessed, or not all of it: cluster: {model.NO_CLUSTER}"
    ]
    assert overview.sentence(report) == "no open findings on 1 of 1 host; the cluster not assessed"
    report = build(
        {"n1": result()}, cluster={"failed": True, "msg": "refused"}, ceph=result(blocklist=[])
    )
    assert overview.failing(report)
    assert host(report, "ceph")["controls"] == {}, (
        "what is read of Ceph serves the cluster's controls"
    )
    for unread in ({"failed": True, "msg": "no"}, result(not_assessed={"STOR-16": "no"})):
        row = host(build({}, ceph=unread), "ceph")
        assert (row["status"], row["controls"]) == ("not_assessed", {"STOR-17": "not_assessed"})


def test_scope() -> None:
    returned = result(
        finding(), finding("STOR-10", "info", "containerd"), finding("STOR-03", "minor", "sdb")
    )
    report = build({"n1": returned}, controls=("STOR-01", "STOR-10"))
    assert [one["control"] for one in report["findings"]] == ["STOR-01", "STOR-10"]
    assert host(report, "n1")["controls"] == {"STOR-01": "fail", "STOR-10": "pass"}, (
        "an info is a note"
    )
    assert [one["name"] for one in report["hosts"]] == ["n1"], (
        "no control of the cluster is in scope"
    )
    report = build({"n1": returned}, severity="major")
    assert [one["control"] for one in report["findings"]] == ["STOR-01"]
    assert host(report, "n1")["controls"]["STOR-03"] == "not_in_scope", (
        "not grave enough to be shown, but no pass"
    )
    assert host(report, "n1")["controls"]["STOR-10"] == "pass"
    assert overview.sentence(report).startswith(
        "1 open finding of severity major or worse (1 major) on 1 of 1 host"
    )
    report = build({"n1": returned}, severity="major", select="[?severity=='minor']")
    assert not report["findings"] and overview.sentence(report).startswith(
        "no open findings of severity major or worse of the selected on 1"
    )
    report = build({"n1": returned}, select="[?control=='STOR-03']")
    assert [one["control"] for one in report["findings"]] == ["STOR-03"]
    assert host(report, "n1")["controls"]["STOR-01"] == "not_in_scope", "left out is not passed"


def test_findings_that_a_result_had_no_room_for() -> None:
    """One of no control counts them; none of their controls passes, whatever is selected."""
    others = finding(
        "",
        "minor",
        "240 more",
        kind="findings",
        evidence={"controls": ["STOR-05: 200", "no control: 40"]},
    )
    report = build({"n1": result(finding(), others)}, select="[?control=='STOR-01']")
    assert host(report, "n1")["controls"]["STOR-05"] == "fail"
    assert (
        len(report["findings"]) == 2 and report["summary"]["controls"]["STOR-05"]["findings"] == 0
    )
    report = build(
        {"n1": result(finding(), others)}, [exception("[?host=='n1']")], severity="critical"
    )
    assert host(report, "n1")["controls"]["STOR-05"] == "fail", (
        "nobody accepts what nobody has seen, and nothing hides it"
    )
    assert report["exceptions"][0]["matched"] == 1
    node = finding("", "minor", "n9", kind="Node")
    assert (
        build({}, [exception("[?object.name=='n9']")], cluster=result(node))["findings"][0][
            "status"
        ]
        == "accepted"
    )


def exception(select: str = "[?control=='STOR-01']", expires: str = "2026-11-22") -> dict[str, str]:
    return {"select": select, "owner": "somebody", "reason": "for a while", "expires": expires}


def test_exceptions() -> None:
    """One holds until the end of its day; then what it accepted counts again, and both are told, as
    is one that matches nothing.
    """
    nodes = {"n1": result(finding(), finding("STOR-03", "minor", "sdb"))}
    report = build(
        nodes,
        [exception(), exception("[?control=='STOR-03']", "2026-11-21"), exception("[?host=='n2']")],
    )
    first, second = report["findings"]
    assert (
        first["status"] == "accepted"
        and first["exception"]["owner"] == "somebody"
        and first["expired_exception"] is None
    )
    assert (
        second["status"] == "open"
        and second["exception"] is None
        and second["expired_exception"]["expires"] == "2026-11-21"
    )
    assert [(one["matched"], one["expired"]) for one in report["exceptions"]] == [
        (1, False),
        (1, True),
        (0, False),
    ]
    row = host(report, "n1")["controls"]
    assert (row["STOR-01"], row["STOR-03"]) == ("accepted", "fail")
    summary = report["summary"]["findings"]
    assert summary["open"] == {"critical": 0, "major": 0, "minor": 1, "info": 0}
    assert (summary["accepted"], summary["expired_exceptions"]) == (1, 1)
    # One that is still valid makes up for one that is not.
    report = build(nodes, [exception(expires="2020-01-01"), exception()])
    assert (
        report["findings"][0]["status"] == "accepted"
        and report["findings"][0]["expired_exception"] is None
    )


def test_expressions_that_some_finding_defeats_accept_nothing_and_hide_nothing() -> None:
    select = "[?evidence.size && contains(evidence.size, 'x')]"
    nodes = {"n1": result(finding(evidence={"size": 7}))}
    report = build(nodes, [exception(select)], select=select)
    assert report["findings"][0]["status"] == "open"
    assert (
        "cannot be applied" in report["exceptions"][0]["error"]
        and "cannot be applied" in report["run"]["scope"]["select_error"]
    )


@pytest.mark.parametrize(
    ("select", "odd"),
    [
        ("[?evidence.size && contains(evidence.size, 'x')]", {"a": 1}),
        ("[?evidence.size && ceil(evidence.size) == `1`]", float("inf")),
    ],
)
def test_what_one_node_returns_takes_no_exception_from_the_others(select: str, odd: Any) -> None:
    """It is told, and accepts nothing of that node."""
    size: Any = "x" if "contains" in select else 1
    nodes = {
        "evil": result(finding(name="odd", evidence={"size": odd})),
        "n1": result(finding(evidence={"size": size})),
    }
    report = build(nodes, [exception(select)], select=select)
    status = {one["host"]: one["status"] for one in report["findings"]}
    assert status == {"evil": "open", "n1": "accepted"}
    assert "cannot be applied" in report["exceptions"][0]["error"]
    assert "cannot be applied" in report["run"]["scope"]["select_error"]


def test_new_and_resolved() -> None:
    """What could not be looked at is neither, and is not new when it is seen again."""
    both = result(finding(), finding("STOR-03", "minor", "sdb"))
    kept: Any = None
    nights = []
    for returned in (
        both,
        result(finding(summary="other words")),
        {"unreachable": True, "msg": "off"},
        both,
        result(),
    ):
        report = build({"n1": returned}, previous=kept)
        kept = json.loads(json.dumps(history.keep(report, kept)))
        assert history.is_kept(kept)
        nights.append(
            (report["summary"]["findings"]["new"], report["summary"]["findings"]["resolved"])
        )
    assert nights == [(0, 0), (0, 1), (0, 0), (1, 0), (0, 2)]
    assert [point["major"] for point in history.trend([kept], report)] == [0, 0]


def test_when_a_finding_was_first_seen() -> None:
    """It keeps the begin of the first run that found it, also while its host cannot be looked at;
    one that was gone begins again.
    """
    there, gone = result(finding()), result()
    kept: Any = None
    seen = []
    nights = (there, there, {"unreachable": True, "msg": "off"}, there, gone, there)
    for number, returned in enumerate(nights):
        begun = NOW + timedelta(days=number)
        report = build({"n1": returned}, previous=kept, begun=begun)
        kept = json.loads(json.dumps(history.keep(report, kept)))
        seen.append([one["first_seen"] for one in report["findings"]])
    first, last = (f"{NOW + timedelta(days=day):{model.TIME}}" for day in (0, 5))
    assert seen == [[first], [first], [], [first], [], [last]]


def test_a_run_that_looked_at_no_node_forgets_none() -> None:
    """Without an inventory only the cluster is looked at."""
    kept: Any = None
    seen = []
    nodes: dict[str, Any] = {"n1": result(finding()), "n2": result()}
    for night, asked in enumerate((nodes, {}, nodes)):
        report = build(asked, previous=kept, begun=NOW + timedelta(days=night))
        kept = json.loads(json.dumps(history.keep(report, kept)))
        assert history.is_kept(kept) and kept["nodes"] == ["n1", "n2"]
        summary = report["summary"]["findings"]
        seen.append((summary["new"], summary["resolved"]))
    assert seen == [(0, 0), (0, 0), (0, 0)]
    assert [one["first_seen"] for one in report["findings"]] == [f"{NOW:{model.TIME}}"]
    # Nodes that are no longer in the inventory are.
    assert history.keep(build({"n2": result()}), kept)["nodes"] == ["n2"]


def test_a_host_that_names_other_findings_each_night_makes_no_file_longer_for_ever() -> None:
    """And says that the control was not assessed, so that they all count as still there."""
    most = reading.MAX_FINDINGS
    kept: Any = None
    for night in range(3):
        named = [finding(name=f"m{night}-{number}") for number in range(most // 2)]
        report = build({"n1": result(*named, not_assessed={"STOR-01": "x"})}, previous=kept)
        kept = history.keep(report, kept)
    there = [since for prints in kept["findings"]["STOR-01"].values() for since in prints]
    assert len(there) == most
    now = {one["fingerprint"] for one in report["findings"]}
    assert now <= set(there)


def test_a_kept_time_that_is_none() -> None:
    """It goes into pages and files."""
    kept = history.keep(build({"n1": result(finding())}), None)
    assert history.is_kept(kept)
    for wrong in ("<b>", "", None, 1, "2026-11-24T01:00:00Z\n"):
        damaged = json.loads(json.dumps(kept))
        [prints] = damaged["findings"]["STOR-01"].values()
        prints.update(dict.fromkeys(prints, wrong))
        assert not history.is_kept(damaged), wrong


def test_only_runs_that_asked_the_same_are_compared() -> None:
    """And of those that did, only the last keeps what was found."""
    nights = [
        build({"n1": result(finding(severity="minor"))}, severity=severity)
        for severity in ("info", "major", "info")
    ]
    kept = history.lighten([history.keep(night, None) for night in nights])
    assert [bool(one["findings"]) for one in kept] == [False, False, True], (
        "major left out what was found"
    )
    run = {"cluster": "fleet", "scope": model.Scope().to_result(), "slice": None}
    assert history.comparable(kept, run) == [kept[0], kept[2]]
    assert not history.comparable(kept, {**run, "cluster": "other"})
    assert not history.comparable(kept, {**run, "slice": {"number": 1, "count": 2}})
    assert history.comparable(
        kept, {**run, "scope": model.Scope(severity="major").to_result()}
    ) == [kept[1]]


def test_things_of_one_name_have_fingerprints_of_their_own() -> None:
    findings = build({"n1": result(finding(), finding(summary="again")), "n2": result(finding())})[
        "findings"
    ]
    assert len({one["fingerprint"] for one in findings}) == 3


def part(nodes: dict[str, Any], number: int = 0, **more: Any) -> reading.Part:
    report = build(nodes, **more)
    if number:
        report["run"]["slice"] = {"number": number, "count": 3}
    return reading.read_report(json.loads(json.dumps(report)), f"slice{number}.json")


def test_parts_of_a_fleet_become_one_report() -> None:
    """Every result is as it was, who could not read the cluster loses, and what no part has is not
    assessed.
    """
    ill = result(finding(), failed=True, not_assessed={"STOR-09": "no"})
    first, second = (
        part({"n1": ill}, 1, cluster=result(finding("STOR-11", kind="VolumeAttachment"))),
        part({"n2": None}, 3),
    )
    rows = reading.join([first, second], [], [])
    occasion = model.Occasion("Title", "fleet", NOW, NOW, "0.1.0")
    report = assembly.build(rows, first.scope, [], occasion)
    alone = build({"n1": ill}, cluster=result(finding("STOR-11", kind="VolumeAttachment")))
    for name in ("n1", "cluster"):
        assert host(report, name) == host(alone, name)
    assert [one["fingerprint"] for one in report["findings"]] == [
        one["fingerprint"] for one in alone["findings"]
    ]
    assert host(report, "slice 2 of 3")["status"] == "not_assessed"
    rows = reading.join([first, second], [], ["n1", "n2", "n3"])
    assert {row.name: bool(row.reason) for row in rows} == {
        "n1": False,
        "cluster": False,
        "n2": True,
        "n3": True,
    }
    selected = part({"n1": ill}, select="[?severity=='critical']")
    again = assembly.build(reading.join([selected], [], []), selected.scope, [], occasion)
    assert host(again, "n1")["controls"]["STOR-01"] == "not_in_scope", (
        "what a part left out did not pass"
    )
    read = reading.Row("cluster", "cluster", reasons={"STOR-17": "no Ceph"})
    assert reading.join([second], [read], [])[1] is read


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([part({"n1": None}, 1), part({"n2": None})], "divided differently"),
        ([part({"n1": None}, 1), part({"n2": None}, 2, severity="major")], "had different scopes"),
    ],
)
def test_parts_that_do_not_fit(parts: list[reading.Part], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        reading.join(parts, [], [])


def test_a_part_that_ran_again_counts_once_as_the_newer_has_it() -> None:
    older, newer = part({"n1": result(finding()), "n2": result()}, 1), part({"n1": result()}, 1)
    newer = dataclasses.replace(newer, started=NOW + timedelta(minutes=5))
    for parts in ([older, newer], [newer, older]):
        rows = {row.name: row for row in reading.join(parts, [], ["n1", "n2"])}
        assert not rows["n1"].findings and set(rows) == {"n1", "n2", "cluster"}
        assert reading.repeated(parts) == ["n1"]


def test_hosts_of_the_names_of_the_others() -> None:
    """The host keeps its name, and what was found in the cluster stays the cluster's."""
    found = result(finding("STOR-11", kind="VolumeAttachment"))
    rows = [
        reading.read_result("cluster", "node", result()),
        reading.read_result("cluster (cluster)", "node", result()),
    ]
    rows += [
        reading.read_result("cluster", "cluster", found),
        reading.read_result("ceph", "ceph", result()),
    ]
    named = reading.name_apart([row for row in rows if row])
    assert [row.name for row in named] == [
        "cluster",
        "cluster (cluster)",
        "cluster (cluster) (cluster)",
        "ceph",
    ]
    report = assembly.build(
        named, model.Scope(), [], model.Occasion("Title", "fleet", NOW, NOW, "0.1.0")
    )
    assert (
        report["findings"][0]["host"] == "cluster (cluster) (cluster)"
        and host(report, "cluster")["controls"]["STOR-01"] == "pass"
    )
    joined = reading.join(
        [part({"cluster": result()}, cluster=found), part({"n1": result()}, 1)],
        [],
        ["cluster", "n1"],
    )
    assert sorted((row.kind, row.name) for row in joined) == [
        ("cluster", "cluster (cluster)"),
        ("node", "cluster"),
        ("node", "n1"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {"schema_version": 2},
        {"schema_version": 1, "hosts": [{"name": "x", "kind": "pet"}]},
        None,
        7,
    ],
)
def test_files_that_are_no_reports(wrong: Any) -> None:
    with pytest.raises(StorageOpsError, match="x.json"):
        reading.read_report(wrong, "x.json")


def test_every_control_names_a_playbook_that_is_there() -> None:
    playbooks = Path(__file__).resolve().parents[5] / "playbooks"
    for control in CONTROLS.values():
        assert (playbooks / f"{control.runbook.rpartition('.')[2]}.yml").exists()


def test_the_numbers_name_nobody() -> None:
    report = build({"secret-host": result(finding(name="secret-thing")), "n2": None})
    numbers = json.dumps(overview.counts(report))
    assert "secret" not in numbers and len(numbers) < 3_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
shapes = st.fixed_dictionaries(
    {},
    optional={
        "msg": json_values,
        "failed": st.booleans(),
        "unreachable": st.booleans(),
        "skipped": st.booleans(),
        "not_assessed": json_values | st.dictionaries(st.sampled_from(sorted(CONTROLS)), st.text()),
        "findings": json_values
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "control": st.sampled_from([*CONTROLS, "", "STOR-18"]),
                    "severity": st.sampled_from(["critical", "info", "other"]),
                    "object": json_values
                    | st.dictionaries(st.sampled_from(["kind", "name", "node"]), st.text()),
                    "verdict": st.sampled_from(["repair", "other"]),
                    "summary": json_values,
                    "evidence": json_values,
                    "repair": json_values,
                    "reason": json_values,
                    "runbook": json_values,
                },
            ),
            max_size=3,
        ),
    },
)


@given(json_values | shapes)
def test_whatever_a_node_answers_there_is_a_report_and_every_control_has_a_result(
    answer: Any,
) -> None:
    report = build({"n1": answer})
    row = host(report, "n1")
    assert set(row["controls"]) == set(NODE_CONTROLS)
    if not isinstance(answer, dict) or not isinstance(answer.get("findings"), list):
        assert set(row["controls"].values()) == {"not_assessed"}
    json.dumps(report, allow_nan=False).encode()


@given(st.data())
def test_a_file_of_a_run_that_is_damaged_is_none(data: Any) -> None:
    """Or its damage does no harm."""
    report = build({"n1": result(finding())})
    kept = json.loads(json.dumps(history.keep(report, None)))
    places: list[tuple[Any, str]] = []
    inner: list[Any] = [kept]
    while inner:
        there = inner.pop()
        if isinstance(there, dict):
            places += [(there, key) for key in there]
            inner += there.values()
    there, key = data.draw(st.sampled_from(places))
    there[key] = data.draw(json_values)
    if history.is_kept(kept):
        earlier = history.comparable(history.lighten([kept]), report["run"])
        again = build({"n1": result(finding())}, previous=kept)
        history.keep(again, kept)
        html._trend(history.trend([*earlier, kept], again), again["summary"])
