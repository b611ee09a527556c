# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rule for what colour a run ends in."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.action.conclude import (
    MAX_LEFT,
    _outcome_of,
    conclude,
    outcome,
)


def finding(verdict: str, severity: str = "major", name: str = "mpathb") -> dict[str, Any]:
    thing = {"kind": "map", "name": name, "node": "n1"}
    return {
        "verdict": verdict,
        "severity": severity,
        "object": thing,
        "summary": "dead",
        "reason": "in use",
    }


REFUSED, REPORTED, REPAIRED = finding("refuse"), finding("report"), finding("repair")
HINT = finding("report", "info")


@pytest.mark.parametrize(
    ("findings", "only_looked", "strict", "failing"),
    [
        ([], False, True, False),
        ([REPAIRED], False, True, False),
        ([HINT], False, True, False),
        ([finding("refuse", "info")], False, False, True),
        ([REPAIRED, REFUSED], False, False, True),
        ([REPORTED], False, False, True),
        # Check mode and audits: only who asks for it.
        ([REFUSED], True, False, False),
        ([REFUSED], True, True, True),
        ([REPORTED], True, True, True),
        ([REPAIRED], True, True, False),
    ],
)
def test_what_is_left_fails_a_repair(
    findings: list[dict[str, Any]], only_looked: bool, strict: bool, failing: bool
) -> None:
    assert conclude([outcome(findings, only_looked, strict)], only_looked)["failing"] is failing


def test_what_could_not_be_looked_at_fails_in_any_case() -> None:
    said = conclude([{**outcome([], True, False), "not_assessed": ["n2"]}], only_looked=True)
    assert said["failing"] and said["msg"] == "1 not assessed: n2"


@pytest.mark.parametrize("only_looked", [True, False])
def test_what_a_role_was_not_told_of_was_not_looked_at(only_looked: bool) -> None:
    own = outcome([REPAIRED], only_looked, False, not_assessed=["namespace evil: too\x1b long"])
    said = conclude([own], only_looked)
    assert said["failing"] and said["outcome"]["not_assessed"] == ["namespace evil: too\\x1b long"]
    hosts = HostVars({"a": {"__fuse_recovery_outcome": {"own": said["own"]}}})
    summed = conclude([_outcome_of("a", {"hostvars": hosts})], only_looked)
    assert summed["failing"]
    assert summed["outcome"]["not_assessed"] == ["a: namespace evil: too\\x1b long"]


@pytest.mark.parametrize(("check", "strict"), [(True, True), (True, False), (False, False)])
def test_what_else_is_left_counts_as_refused(check: bool, strict: bool) -> None:
    own = outcome([REPAIRED], check, strict, refused=["namespace evil: its pods\x1b stay"])
    said = conclude([own], check)
    assert said["failing"] is (strict or not check)
    assert said["outcome"]["left"] == ["namespace evil: its pods\\x1b stay"]
    assert said["outcome"]["refused"] == 1


@pytest.mark.parametrize(("check", "name"), [(True, "would_be_repaired"), (False, "repaired")])
def test_counts(check: bool, name: str) -> None:
    told = conclude([outcome([REPAIRED, REFUSED, REPORTED, HINT], check, False)], check)["outcome"]
    assert (told[name], told["refused"], told["reported"]) == (1, 1, 1)
    assert told["left"] == ["map mpathb: in use"] * 2


def test_what_is_repaired_in_one_namespace_is_not_so_in_another() -> None:
    """A tenant may give his pod the name of another's."""
    theirs = {
        **REFUSED,
        "object": {"kind": "container", "namespace": "evil", "name": "web-0/main", "node": "n1"},
    }
    mine = {**theirs, "object": {**theirs["object"], "namespace": "shop"}}
    said = conclude([outcome([theirs, mine], False, False, ["evil/web-0/main"])], False)
    assert said["failing"] and said["outcome"]["left"] == ["container shop/web-0/main: in use"]
    assert conclude([outcome([mine], False, False, ["web-0/main"])], False)["failing"]


def test_what_was_only_planned_is_left_by_a_run_that_repairs() -> None:
    """The task that found it was in check mode, and the one that concludes is not."""
    step = {"action": "flush_map", "target": "mpathb"}
    planned = {**REPAIRED, "repair": [{**step, "outcome": "done"}, {**step, "outcome": "planned"}]}
    found = outcome([planned], False, False)
    assert (found["repaired"], found["would_be_repaired"]) == (0, 1)
    assert found["left"] == ["map mpathb: in use (flush_map mpathb was planned)"]
    assert (
        outcome([planned], True, False)["left"]
        == outcome([planned], False, False, ["mpathb"])["left"]
        == []
    )
    done = {**REPAIRED, "repair": [{**step, "outcome": "done"}]}
    assert (outcome([done], False, False)["repaired"], outcome([done], False, False)["left"]) == (
        1,
        [],
    )


def test_what_a_role_repaired_by_other_means_is_not_left() -> None:
    assert outcome([REPORTED], False, False, ["mpathb"])["left"] == []
    assert outcome([REPORTED], False, False, ["mpathc"])["left"] != []


def test_one_host_of_many_findings_hides_no_other() -> None:
    """The message, the failure and AWX's artifact named 50 objects of the first host."""
    hosts = [outcome([], False, False) for _number in range(9)]
    for number, own in enumerate(hosts):
        own["left"] = [f"n{number}: {text}" for text in range(60_000 if number == 0 else number)]
        own["not_assessed"] = [f"n{number}: {text}" for text in range(60 if number == 0 else 1)]
    said = conclude(hosts, False)
    left, not_assessed = (said["outcome"][key] for key in ("left", "not_assessed"))
    assert len(left) == len(not_assessed) == MAX_LEFT + 1
    # All of the others', and the first of that one, in the order of the hosts.
    assert left[:14] == [f"n0: {number}" for number in range(14)]
    assert left[14:-1] == [text for own in hosts[1:] for text in own["left"]]
    assert left[-1] == "and 59986 more" and "60036 left: n0: 0" in said["msg"]
    assert not_assessed[-9:-1] == [f"n{number}: 0" for number in range(1, 9)]
    assert not_assessed[-1] == "and 18 more" and "n8: 0" in said["msg"]


def test_each_finding_is_looked_up_once() -> None:
    """Both lists are a host's own, so thousands of comparisons for each would be minutes."""
    compared = 0

    class Name(str):
        """The name of a repaired object."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [f"mpath{number}" for number in range(300)]
    found = [finding("report", name=name) for name in names]
    own = outcome(found, True, False, [Name(name) for name in names])
    assert own["would_be_repaired"] == 300 and compared <= 2 * 300


class HostVars:
    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables

    def raw_get(self, host: str) -> Any:
        return self.variables.get(host)


def test_a_host_without_outcome_was_not_assessed() -> None:
    """It failed, was unreachable, or its turn never came; a task that was skipped says nothing
    either.
    """
    own = outcome([REFUSED], False, True)
    hosts = HostVars(
        {
            "n1": {"__residual_paths_outcome": {"own": own}},
            "n2": {},
            "n3": {"__residual_paths_outcome": {"skipped": True}},
        }
    )
    assert _outcome_of("n1", {"hostvars": hosts})["left"] == ["n1: map mpathb: in use"]
    for host in ("n2", "n3", "n4"):
        assert len(_outcome_of(host, {"hostvars": hosts})["not_assessed"]) == 1
    both = {
        "__residual_paths_outcome": {"own": own},
        "__pod_mounts_outcome": {"own": outcome([REPAIRED], False, False)},
    }
    summed = _outcome_of("n1", {"hostvars": HostVars({"n1": both})})
    assert (summed["refused"], summed["repaired"], summed["strict"]) == (1, 1, True)


def test_a_host_on_which_one_of_two_roles_failed_was_not_assessed() -> None:
    own = outcome([REPAIRED], False, False)
    found = {"__residual_paths_outcome": {"own": own}, "__gave_up": True}
    summed = _outcome_of("n1", {"hostvars": HostVars({"n1": found})})
    assert summed["repaired"] == 1 and conclude([summed], False)["failing"]
    assert conclude([summed], False)["outcome"]["not_assessed"] == [
        "n1 (it failed or was not reached, see above)"
    ]


def test_a_host_that_had_no_turn_was_not_assessed() -> None:
    summed = _outcome_of("n1", {"hostvars": HostVars({"n1": {"__no_turn": True}})})
    assert summed["not_assessed"] == ["n1 (it had no turn, see above)"]


def test_what_a_node_wrote_is_shown_as_what_it_is() -> None:
    """Whoever is root on a node writes the results of its modules."""
    told = conclude([outcome([finding("refuse", name="\x1b[2Jmap\n")], False, False)], False)
    assert told["outcome"]["left"] == ["map \\x1b[2Jmap\\n: in use"] and told["msg"].isprintable()
    step = {"action": "flush_map", "target": "\u202e", "outcome": "planned"}
    assert outcome([{**REPAIRED, "repair": [step]}], False, False)["left"][0].isprintable()


def test_lists_are_cut() -> None:
    left = conclude([outcome([REFUSED] * (MAX_LEFT + 3), False, False)], False)["outcome"]["left"]
    assert len(left) == MAX_LEFT + 1 and left[-1] == "and 3 more"
