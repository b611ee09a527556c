# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a result with findings looks like on a terminal; tests/adhoc runs Ansible with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.callback.findings import (
    CallbackModule,
    printable,
    render,
    title,
    width,
    wrap,
)

COMMAND = ["multipath", "-f", "mpathb"]


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "control": "STOR-01",
        "severity": "major",
        "object": {"kind": "multipath map", "name": "mpathb", "node": "worker01"},
        "summary": "every path of mpathb is dead",
        "evidence": {"paths": ["sdc", "sdd"], "array": {"sense": "LUN not there"}},
        "verdict": "repair",
        "reason": "nothing uses it",
        "runbook": "storage_ops.runbooks.clean_residual_paths",
        "repair": [action()],
        **changes,
    }


def action(**changes: Any) -> dict[str, Any]:
    return {
        "action": "flush_map",
        "target": "mpathb",
        "command": COMMAND,
        "outcome": "planned",
        "seconds": 0.0,
        **changes,
    }


def result(*findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "msg": f"{len(findings)} findings",
        "findings": list(findings),
        "actions": [],
        "changed": False,
        **changes,
    }


def test_no_result_keeps_all_hosts_waiting_for_its_table() -> None:
    """A host may answer with more than our modules do; the process of all hosts prints it."""
    many = [finding(summary="表" * 4_000) for _each in range(300)]
    steps = [action(target="表" * 4_000) for _each in range(300)]
    lines = render(result(*many, actions=steps), 200, verbose=False)
    assert sum(map(len, lines)) < 1_500_000
    told = [line for line in lines if "-vvv prints all" in line]
    assert len(told) == 2 and "findings" in told[0] and "actions" in told[1]


def test_what_is_not_applicable() -> None:
    """By evidence, with its controls; of what no module returns nothing is made."""
    absent = {"STOR-05": "no FUSE mount", "STOR-06": "no FUSE mount", "STOR-04": "no\x1b[2J"}
    assert render(result(msg="nothing to do", not_applicable=absent), 79, verbose=False) == [
        "nothing to do",
        "",
        "  not applicable  STOR-05, STOR-06: no FUSE mount",
        "  not applicable  STOR-04: no\\x1b[2J",
    ]
    assert render(result(msg="nothing to do", not_applicable=["STOR-05"]), 79, verbose=False) == [
        "nothing to do"
    ]


def test_message_table_reasons_and_actions() -> None:
    """A repair's reason goes without saying; of what is not repaired it is told."""
    refused = finding(
        control="STOR-07",
        severity="critical",
        object={"kind": "pod mount", "namespace": "shop", "name": "web-0", "node": "worker01"},
        verdict="refuse",
        code="mount_unknown",
        reason="the staging mount is missing",
        repair=[],
        summary="the mount of web-0 shows another volume than the one that the pod asks for",
    )
    reported = finding(
        control="", verdict="report", reason="open the firewall", repair=[], summary="slow"
    )
    assert render(result(refused, finding(), reported), 79, verbose=False) == [
        "3 findings",
        "  SEVERITY  CONTROL  OBJECT                VERDICT  SUMMARY",
        "  critical  STOR-07  pod mount shop/web-0  refuse   the mount of web-0 shows",
        "                                                    another volume than the one",
        "                                                    that the pod asks for",
        "  major     STOR-01  multipath map mpathb  repair   every path of mpathb is",
        "                                                    dead",
        "  major     -        multipath map mpathb  report   slow",
        "",
        "  refused   pod mount shop/web-0: the staging mount is missing [mount_unknown]",
        "  reported  multipath map mpathb: open the firewall",
        "",
        "  planned   flush_map mpathb",
    ]


POD = "8d3f6f0e-0b7c-4a86-9d0f-0c1e2b3a4d5e"
PLUGINS = "/var/lib/kubelet/plugins/kubernetes.io/csi"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"/k/pods/{POD}/volumes/kubernetes.io~csi/pvc-1/mount", f"pvc-1 of pod {POD}"),
        (f"/k/pods/{POD}/volumes/kubernetes.io~nfs/nas", f"nas of pod {POD}"),
        (f"/k/pods/{POD}/volume-subpaths/pvc-1/app/0", f"pvc-1 in app of pod {POD}"),
        (f"{PLUGINS}/pv/pvc-1/globalmount", "pvc-1, staged"),
        (f"{PLUGINS}/s3.example.com/{'0a' * 32}/globalmount", f"s3.example.com {'0a' * 6}, staged"),
        ("/mnt/data", "/mnt/data"),
        # No place of the kubelet is that long; a host may answer anything.
        (f"/{'a' * 500}/pods/{POD}/volumes/kubernetes.io~csi/pvc-1/mount", None),
    ],
)
def test_a_path_of_the_kubelet_is_told_by_its_names(path: str, said: str | None) -> None:
    """And whole in the reason, where it can be copied."""
    thing = {"kind": "pod mount", "name": path, "node": "worker01"}
    mount = finding(
        object=thing, summary=f"{path} is dead", verdict="report", reason="look", repair=[]
    )
    said = path if said is None else said
    lines = render(result(mount), 5_000, verbose=False)
    assert f"pod mount {said}  report   {said} is dead" in lines[2]
    assert lines[-1] == f"  reported  pod mount {path}: look"


def test_each_reason_is_told_once() -> None:
    """By the message or below the table, for all objects with it; an audit refuses nothing."""
    refused = [
        finding(
            object={"kind": "map", "name": f"m{number}", "node": "n"},
            verdict="refuse",
            code="transport_outage",
            reason="a session is down.",
            repair=[],
        )
        for number in range(7)
    ]
    told = "(map m0: a session is down)"
    lines = render(result(*refused, msg=f"7 findings, 7 refused {told}"), 79, verbose=False)
    objects = "map m0, map m1, map m2, map m3, map m4 (+2 more)"
    assert lines[0] == "7 findings, 7 refused"
    assert lines[9:] == ["", f"  refused   {objects}: a session is down. [transport_outage]"]
    audit = render(result(*refused), 79, verbose=False, audit=True)
    assert audit[9:] == ["", f"  needs attention  {objects}: a session is down. [transport_outage]"]
    # A failure has its reasons in its message.
    failed = render(
        result(refused[0], msg="refused 1 of 1 findings: map m0: a session is down"),
        79,
        verbose=False,
    )
    assert len(failed) == 3


def test_nothing_found_is_one_line() -> None:
    """As on most hosts of a fleet."""
    assert render(result(msg="nothing to do: 4 maps"), 79, verbose=False) == [
        "nothing to do: 4 maps"
    ]


def test_actions_done_are_those_of_the_run() -> None:
    """Those of the findings are the same, or planned by a module that changes nothing."""
    done = result(
        finding(),
        actions=[
            action(outcome="done", seconds=1.24),
            action(action="delete_path", outcome="failed"),
        ],
    )
    assert render(done, 79, verbose=False)[-2:] == [
        "  done      flush_map mpathb (1.2 s)",
        "  failed    delete_path mpathb",
    ]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({"actions": [action(outcome="done")], "actions_left_out": 7}, "  +7        more steps"),
        ({"actions": [action(outcome="done")]}, ""),
        # An audit has no actions; its findings have theirs, of whatever a node answers.
        ({"actions": []}, "  +12       more steps"),
    ],
)
def test_steps_without_room_are_counted(told: dict[str, Any], line: str) -> None:
    findings = [finding(repair_left_out=left) for left in (5, 7, "x", [], -3, 10**4000)]
    last = render(result(*findings, **told), 79, verbose=False)[-1]
    assert last.startswith(line) if line else "more steps" not in last


def test_verbose_adds_evidence_and_commands() -> None:
    """Evidence is whole, on one line each, so that it can be copied."""
    lines = render(result(finding()), 79, verbose=True)
    assert "  planned   flush_map mpathb: multipath -f mpathb" in lines
    assert lines[-3:] == [
        "  multipath map mpathb",
        "    paths: [sdc, sdd]",
        "    array: sense=LUN not there",
    ]


def test_long_lists_have_a_line_for_each_item() -> None:
    """One line of all paths of a map is not readable; as the role show_findings does it."""
    answers = [f"TEST UNIT READY 05/25/00 of path {number}" for number in range(4)]
    lines = render(result(finding(evidence={"answers": answers})), 79, verbose=True)
    assert lines[-5:] == ["    answers:", *(f"      - {answer}" for answer in answers)]


def test_hostile_text_is_shown_and_not_obeyed() -> None:
    """Wherever it stands: names of mounts and volumes are anybody's."""
    evil = "a\x1b[31m\nb\x9b2J\u202e\u2028\ud800\r"
    hostile = finding(
        object={"kind": evil, "namespace": evil, "name": evil, "node": evil},
        summary=evil,
        reason=evil,
        verdict="refuse",
        evidence={evil: {evil: [evil]}},
        repair=[action(action=evil, target=evil, outcome=evil, command=[evil])],
    )
    text = "\n".join(render(result(hostile, msg=evil), 60, verbose=True))
    assert all(character.isprintable() for line in text.split("\n") for character in line)
    assert text.startswith("a\\x1b[31m\\nb\\x9b2J\\u202e\\u2028\\ud800\\r\n")


def test_wide_characters_keep_the_columns() -> None:
    """Chinese takes two columns each, an accent of its own none."""
    lines = render(
        result(finding(object={"kind": "Größe", "name": "e\u0301磁盘", "node": ""})),
        79,
        verbose=False,
    )
    assert {
        width(line[: line.index(word)]) for line, word in zip(lines[1:3], ("VERDICT", "repair"))
    } == {34}


@pytest.mark.parametrize("field", ["severity", "control", "verdict", "summary"])
def test_one_long_text_makes_no_table_that_fills_the_memory(field: str) -> None:
    """Root on a host writes it, and the process that prints it is that of all hosts."""
    findings = [finding(**{field: "x" * 50_000}), *[finding()] * 100]
    lines = render(result(*findings), 79, verbose=False)
    assert sum(map(len, lines)) < 60_000
    assert any("mpathb" in line and "repair" in line for line in lines)
    assert any("(+46000" in line for line in lines)


@given(st.text(), st.integers(min_value=2, max_value=40))
def test_wrapping_loses_nothing_and_keeps_within_the_columns(text: str, columns: int) -> None:
    """For any text."""
    shown = printable(text)
    lines = wrap(shown, columns)
    assert all(width(line) <= columns for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(shown.split())


@given(st.lists(st.text(), min_size=5, max_size=5), st.integers(min_value=0, max_value=200))
def test_any_finding_can_be_rendered_at_any_width(texts: list[str], columns: int) -> None:
    """A callback that raises shows nothing."""
    severity, control, name, verdict, summary = texts
    hostile = finding(
        severity=severity,
        control=control,
        verdict=verdict,
        summary=summary,
        object={"kind": name, "name": name},
    )
    lines = render(result(hostile), columns, verbose=True)
    assert all(character.isprintable() for line in lines for character in line)


@pytest.mark.parametrize(
    "foreign",
    [
        {"msg": "done"},
        {"findings": "none", "actions": []},
        {"findings": [{"id": 7}], "actions": []},
        {"findings": [7], "actions": []},
        {"findings": [], "msg": "another scanner"},
    ],
)
def test_results_of_other_modules_are_left_to_the_default(foreign: dict[str, Any]) -> None:
    """Also of those that call something findings."""
    assert not CallbackModule()._tells(foreign)


def test_the_one_task_of_the_command_ansible_is_named_by_its_hosts() -> None:
    """It has no name but its module's."""
    module = "storage_ops.runbooks.node_storage_info"
    assert (
        title(f" {module} ", {"module_name": module, "args": "worker*"}) == f"{module} on worker*"
    )
    assert title(" Look at the nodes\n", {"args": ["play.yml"]}) == "Look at the nodes"
