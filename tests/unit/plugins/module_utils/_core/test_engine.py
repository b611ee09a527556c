# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one runner: check mode, failures, taking back, proof, and what a module returns."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    Finding,
    Missed,
    NotStarted,
    Part,
    PassedOver,
    Plan,
    Prevented,
    Step,
    before_a_change,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Exit, Module


class World:
    """A runbook over a list of things; ``breaks``: verb -> error; ``log`` is what was
    done to them.
    """

    def __init__(
        self,
        findings: list[Finding],
        breaks: dict[str, Exception] | None = None,
        proven: bool = True,
    ) -> None:
        self.findings, self.breaks, self.proven, self.log = findings, breaks or {}, proven, []

    def gather(self) -> list[Finding]:
        return self.findings

    def plan(self, state: list[Finding]) -> Plan:
        return Plan(state)

    def healthy(self, state: list[Finding]) -> str:
        return "two things in order"

    def apply(self, action: Action) -> None:
        if action.verb in self.breaks:
            raise self.breaks[action.verb]
        self.log.append(f"{action.verb} {action.target}")

    def undo(self, action: Action) -> Action | None:
        return (
            Action("restore_queueing", action.target, ["restore"])
            if action.verb == "disable_queueing"
            else None
        )

    def verify(self, finding: Finding) -> list[str]:
        if not self.proven:
            said = f"the repair of {finding.name} is not proven"
            raise StorageOpsError(said, code="repair_unproven")
        return ["it is gone"]


def finding(
    name: str,
    verdict: str = "repair",
    verbs: tuple[str, ...] = ("disable_queueing", "flush_map", "delete_path"),
    **more: Any,
) -> Finding:
    repair = [Action(verb, name, [verb, name]) for verb in verbs] if verdict == "repair" else []
    return Finding(
        control="STOR-01",
        severity="major",
        kind="multipath map",
        name=name,
        node="n1",
        summary=f"{name} is dead",
        verdict=verdict,
        reason="because",
        runbook="x.y.z",
        repair=repair,
        **more,
    )


def run(world: World, module: Module, fail_on_refusal: bool = False) -> dict[str, Any]:
    with pytest.raises(Exit):
        engine.run(module, lambda: world, fail_on_refusal)
    return module.result


def outcomes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["action"], action["outcome"]) for action in result["actions"]]


def test_nothing_found() -> None:
    result = run(World([]), Module())
    assert result == {
        "failed": False,
        "changed": False,
        "findings": [],
        "actions": [],
        "msg": "nothing to do: two things in order",
    }


def test_check_mode_tells_the_truth_and_does_nothing() -> None:
    world = World([finding("a")])
    result = run(world, Module(check_mode=True))
    assert result["changed"] is True
    assert world.log == []
    assert {outcome for _verb, outcome in outcomes(result)} == {"planned"}
    assert result["findings"][0]["repair"] == result["actions"]
    assert result["msg"] == "1 finding, 1 would be repaired"


def test_run_applies_in_order_and_proves() -> None:
    world = World([finding("a"), finding("b", "refuse"), finding("c", verbs=("flush_map",))])
    result = run(world, Module())
    assert world.log == ["disable_queueing a", "flush_map a", "delete_path a", "flush_map c"]
    assert result["findings"][0]["evidence"]["proof"] == ["it is gone"]
    assert "proof" not in result["findings"][1]["evidence"]
    assert (
        result["msg"] == "3 findings, 2 repaired and proven, 1 refused (multipath map b: because)"
    )


def test_failure_takes_back_and_stops_everything_after_it() -> None:
    world = World([finding("a"), finding("b")], {"flush_map": ActionFailed("map in use")})
    result = run(world, Module())
    assert result["failed"]
    assert world.log == ["disable_queueing a", "restore_queueing a"]
    assert outcomes(result) == [
        ("disable_queueing", "done"),
        ("flush_map", "failed"),
        ("delete_path", "skipped"),
        ("restore_queueing", "done"),
        ("disable_queueing", "skipped"),
        ("flush_map", "skipped"),
        ("delete_path", "skipped"),
    ]
    assert result["changed"] is True
    assert (
        result["msg"]
        == "flush_map a failed: map in use. restore_queueing a was done. Nothing after it was done."
    )


class Moved(World):
    """A runbook for whose first object the world has changed."""

    def apply(self, action: Action) -> None:
        if action.target == "a":
            raise NotStarted("it is mounted by now", code="in_use_mounted")
        super().apply(action)


def test_what_was_never_started_is_refused_and_the_rest_goes_on() -> None:
    world = Moved([finding("a"), finding("b", verbs=("flush_map",))])
    result = run(world, Module(diff=True))
    assert not result["failed"]
    assert world.log == ["flush_map b"]
    assert outcomes(result) == [("flush_map", "done")]
    assert [(found["verdict"], found["repair"] == []) for found in result["findings"]] == [
        ("refuse", True),
        ("repair", False),
    ]
    assert [found["code"] for found in result["findings"]] == ["in_use_mounted", ""]
    assert (
        result["findings"][0]["reason"] == "disable_queueing was not started: it is mounted by now"
    )
    assert "proof" not in result["findings"][0]["evidence"]
    assert result["msg"].startswith(
        "2 findings, 1 repaired and proven, 1 refused (multipath map a: "
    )
    assert result["diff"]["after"] == "a is dead\n"


@pytest.mark.parametrize(
    ("named", "fail_on_refusal", "failed"),
    [(True, False, True), (False, True, True), (False, False, False)],
)
def test_what_was_never_started_fails_like_any_refusal(
    named: bool, fail_on_refusal: bool, failed: bool
) -> None:
    result = run(Moved([finding("a", named=named)]), Module(), fail_on_refusal)
    assert (result["failed"], result["changed"]) == (failed, False)
    assert result.get("code") == ("in_use_mounted" if failed else None)


def test_a_later_action_that_does_not_start_fails_the_run_and_is_taken_back() -> None:
    world = World([finding("a"), finding("b")], {"flush_map": NotStarted("it is mounted by now")})
    result = run(world, Module())
    assert (result["failed"], result["code"]) == (True, "world_changed")
    assert world.log == ["disable_queueing a", "restore_queueing a"]
    assert outcomes(result)[1] == ("flush_map", "skipped")


def test_an_action_that_is_passed_over_ends_nothing() -> None:
    world = World([finding("a")], {"flush_map": PassedOver("it comes about without it")})
    result = run(world, Module())
    assert not result["failed"] and world.log == ["disable_queueing a", "delete_path a"]
    assert [outcome for _verb, outcome in outcomes(result)] == ["done", "skipped", "done"]
    assert result["findings"][0]["evidence"]["proof"] == ["it is gone"]


def test_what_is_prevented_changed_nothing_and_ends_the_run() -> None:
    result = run(
        World(
            [finding("a"), finding("b")],
            {"disable_queueing": Prevented("no right to", code="api_forbidden")},
        ),
        Module(),
    )
    assert (result["failed"], result["code"]) == (True, "api_forbidden")
    assert result["changed"] is False
    assert {outcome for _verb, outcome in outcomes(result)} == {"skipped"}


def test_an_action_that_failed_half_way_is_taken_back_too() -> None:
    result = run(
        World([finding("a")], {"disable_queueing": ActionFailed("the client timed out")}), Module()
    )
    assert outcomes(result)[0] == ("disable_queueing", "failed")
    assert outcomes(result)[-1] == ("restore_queueing", "done")


class Alone(World):
    """A runbook of which a repair that failed may be nobody else's concern.

    ``left``: what it has left.
    """

    left: list[str] | Exception = []

    def apply(self, action: Action) -> None:
        if f"{action.verb} {action.target}" in self.breaks:
            raise self.breaks[f"{action.verb} {action.target}"]
        super().apply(action)

    def half_made(self, finding: Finding) -> list[str]:
        self.log.append(f"look at {finding.name}")
        if isinstance(self.left, Exception):
            raise self.left
        return self.left

    def verify(self, finding: Finding) -> list[str]:
        if f"verify {finding.name}" in self.breaks:
            raise self.breaks[f"verify {finding.name}"]
        return super().verify(finding)


def test_a_repair_that_was_taken_back_whole_does_not_keep_others_from_theirs() -> None:
    world = Alone([finding("a"), finding("b")], {"flush_map a": ActionFailed("map in use")})
    result = run(world, Module())
    assert result["failed"]
    assert world.log == [
        *("disable_queueing a", "restore_queueing a", "look at a"),
        *("disable_queueing b", "flush_map b", "delete_path b"),
    ]
    assert result["undone"] == ["a"]
    assert [found["verdict"] for found in result["findings"]] == ["refuse", "repair"]
    said = "flush_map a failed: map in use. restore_queueing a was done."
    assert result["findings"][0]["reason"] == said
    assert [found["code"] for found in result["findings"]] == ["repair_failed", ""]
    assert result["code"] == "repair_failed"
    assert "proof" not in result["findings"][0]["evidence"]
    assert outcomes(result)[:4] == [
        ("disable_queueing", "done"),
        ("flush_map", "failed"),
        ("delete_path", "skipped"),
        ("restore_queueing", "done"),
    ]
    # What is said of it is said once.
    assert result["msg"] == (f"multipath map a: {said} 2 findings, 1 repaired and proven, 1 failed")


def test_a_proof_that_fails_may_be_nobody_elses_concern() -> None:
    world = Alone([finding("a"), finding("b")], {"verify a": ActionFailed("it does not answer")})
    result = run(world, Module())
    assert (result["failed"], result["undone"]) == (True, ["a"])
    assert "delete_path b" in world.log and "half_made" not in result
    told = "multipath map a: it does not answer. 2 findings, 1 repaired and proven, 1 failed"
    assert result["msg"] == told
    # What no runbook foresaw is everybody's.
    world = Alone([finding("a"), finding("b")], {"verify a": KeyError("x")})
    assert "undone" not in run(world, Module())
    assert "delete_path b" not in world.log


def test_a_proof_that_cannot_be_read_is_no_half_made_repair() -> None:
    """A tenant can keep a node's processes from being read. That ended the turns of all others, and
    on two nodes those of all later nodes.
    """
    unread = StorageOpsError("/proc cannot be read", code="privileges_missing")
    world = Alone([finding("a"), finding("b")], {"verify a": unread})
    result = run(world, Module())
    assert (result["failed"], result["undone"]) == (True, ["a"])
    assert "delete_path b" in world.log and "half_made" not in result
    assert "look at a" in world.log
    first, _second = result["findings"]
    assert (first["verdict"], first["code"]) == ("refuse", "repair_unproven")
    assert first["reason"] == "the repair of a is not proven: /proc cannot be read"
    assert "proof" not in first["evidence"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM])
def test_what_ends_the_run_ends_it_in_a_proof_too(number: signal.Signals) -> None:
    class Interrupted(Alone):
        def verify(self, finding: Finding) -> list[str]:
            os.kill(os.getpid(), number)
            return super().verify(finding)

    world = Interrupted([finding("a")])
    result = run(world, Module())
    assert (result["failed"], result["half_made"]) == (True, True)
    assert "undone" not in result and "look at a" not in world.log


def test_what_ends_the_run_in_a_look_changes_nothing() -> None:
    class Interrupted(Alone):
        def apply(self, action: Action) -> None:
            with before_a_change():
                os.kill(os.getpid(), signal.SIGTERM)
            super().apply(action)

    world = Interrupted([finding("a"), finding("b")])
    result = run(world, Module())
    assert (result["failed"], result["code"], result["changed"]) == (True, "interrupted", False)
    assert "half_made" not in result and world.log == []


@pytest.mark.parametrize("verb", ["disable_queueing", "flush_map"])
def test_a_look_that_fails_before_a_change_is_no_half_made_repair(verb: str) -> None:
    """Nor one between two changes, if the first is taken back."""

    class Looking(Alone):
        def apply(self, action: Action) -> None:
            with before_a_change():
                if f"{action.verb} {action.target}" == f"{verb} a":
                    raise StorageOpsError("/proc cannot be read")
            super().apply(action)

    world = Looking([finding("a"), finding("b")])
    result = run(world, Module())
    assert (result["failed"], result["undone"]) == (True, ["a"])
    assert (result["code"], "half_made" in result) == ("evidence_unreadable", False)
    assert "delete_path b" in world.log
    assert (verb, "skipped") in outcomes(result)[:3]
    assert ("look at a" in world.log) is (verb == "flush_map")
    # What it cannot take back counts.
    world = Looking([finding("a"), finding("b")])
    world.left = ["a is half mounted"]
    assert ("half_made" in run(world, Module())) is (verb == "flush_map")


@pytest.mark.parametrize(
    "error", [NotStarted("it has changed"), Prevented("no right to"), PassedOver("it is gone")]
)
def test_a_look_that_has_an_answer_keeps_it(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, before_a_change():
        raise error
    assert raised.value is error


def test_beside_a_failure_the_first_refusal_is_told() -> None:
    refused = finding("c", "refuse")
    world = Alone([finding("a"), finding("b"), refused], {"verify a": ActionFailed("no answer")})
    assert run(world, Module())["msg"] == (
        "multipath map a: no answer. 3 findings, 1 repaired and proven, 1 failed, "
        "1 refused (multipath map c: because)"
    )


@pytest.mark.parametrize(
    ("left", "breaks"),
    [
        (["a is half mounted"], {"flush_map a": ActionFailed("in use")}),
        (KeyError("x"), {"flush_map a": ActionFailed("in use")}),
        (
            [],
            {"flush_map a": ActionFailed("in use"), "restore_queueing": ActionFailed("no answer")},
        ),
        (["a is half mounted"], {"flush_map a": Prevented("no time is left")}),
        (["a is half mounted"], {"flush_map a": StorageOpsError("/proc cannot be read")}),
        (KeyError("x"), {"verify a": StorageOpsError("/proc cannot be read")}),
        (["a is half mounted"], {"verify a": StorageOpsError("/proc cannot be read")}),
        ([], {"flush_map a": KeyError("x")}),
        (["a is half mounted"], {"verify a": ActionFailed("it does not answer")}),
    ],
)
def test_what_is_not_known_to_be_whole_ends_the_run(
    left: Any, breaks: dict[str, Exception]
) -> None:
    world = Alone([finding("a"), finding("b")], breaks)
    world.left = left
    result = run(world, Module())
    assert result["failed"] and result["half_made"] is True
    assert not {"undone", "refused"} & set(result)
    assert "disable_queueing b" not in world.log
    if left == ["a is half mounted"] and "flush_map a" in breaks:
        assert "a is half mounted. Nothing after it was done." in result["msg"]


def test_what_is_prevented_and_taken_back_whole_ends_the_run_and_is_not_half_made() -> None:
    """It meets the next object, too, and is no reason to keep other hosts from their turn."""
    prevented = Prevented("no time is left")
    world = Alone([finding("a"), finding("b")], {"flush_map a": prevented})
    result = run(world, Module())
    assert (result["failed"], result["code"]) == (True, "deadline_passed")
    assert world.log == ["disable_queueing a", "restore_queueing a", "look at a"]
    assert not {"half_made", "undone"} & set(result)
    assert [found["verdict"] for found in result["findings"]] == ["refuse", "repair"]
    world = Alone([finding("a"), finding("b")], {"verify a": prevented})
    assert "half_made" not in run(world, Module())
    assert "disable_queueing b" not in world.log


def test_what_others_rest_on_fails_though_it_was_not_begun() -> None:
    missed = {"disable_queueing a": Missed("it is mounted by now", code="in_use_mounted")}
    world = Alone([finding("a"), finding("b")], missed)
    result = run(world, Module())
    assert (result["failed"], result["undone"], result["code"]) == (True, ["a"], "in_use_mounted")
    assert "delete_path b" in world.log and "half_made" not in result
    assert {outcome for verb, outcome in outcomes(result)[:3]} == {"skipped"}
    assert "look at a" not in world.log
    # Where repairs do not stand alone, it ends the run.
    missed = {"disable_queueing": Missed("it is mounted by now")}
    world = World([finding("a"), finding("b")], missed)
    result = run(world, Module())
    assert result["failed"] and "undone" not in result and not result["changed"]
    assert world.log == []


def test_what_was_proven_before_is_not_half_made() -> None:
    """Nor what was not begun, or is refused."""
    prevented = {"disable_queueing b": Prevented("no time is left")}
    result = run(Alone([finding("a"), finding("b")], prevented), Module())
    assert result["failed"] and "half_made" not in result
    assert ("delete_path", "done") in outcomes(result)
    refused = finding("b", "refuse", named=True)
    result = run(World([finding("a"), refused]), Module())
    assert result["failed"] and "half_made" not in result


def test_a_repair_that_nothing_takes_back_is_half_made() -> None:
    world = World([finding("a")], {"delete_path": ActionFailed("in use")})
    assert run(world, Module())["half_made"] is True


def test_what_the_user_named_and_was_refused_fails_at_once() -> None:
    """A playbook goes on by ``undone``."""
    named = finding("b", "refuse", named=True)
    assert "undone" not in run(
        Alone([finding("a"), named], {"flush_map a": ActionFailed("in use")}), Module()
    )


def test_a_signal_while_something_is_taken_back_ends_the_run_after_that() -> None:
    class Interrupted(Alone):
        def undo(self, action: Action) -> Action | None:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().undo(action)

    world = Interrupted([finding("a"), finding("b")], {"flush_map a": ActionFailed("in use")})
    result = run(world, Module())
    assert (result["msg"], result["code"]) == ("interrupted by SIGTERM", "interrupted")
    assert world.log == ["disable_queueing a", "restore_queueing a", "look at a"]


@pytest.mark.parametrize("verb", ["flush_map", "delete_path"])
def test_an_error_nobody_foresaw_is_told_with_what_was_done(verb: str) -> None:
    world = World([finding("a")], {verb: KeyError("sdb")})
    result = run(world, Module())
    assert result["failed"]
    assert "KeyError: 'sdb'" in result["msg"]
    assert result["code"] == "unexpected_error"
    assert "restore_queueing a" in world.log
    assert result["changed"]


def test_many_reasons_are_counted() -> None:
    found = finding("a")
    codes = ["lease_held"] + ["mount_hung"] * 69
    reasons = [Reason(code, f"reason {number}") for number, code in enumerate(codes)]
    found.refuse(*reasons, Reason("mount_hung", "reason 0"))
    assert found.code == found.to_result()["code"] == "lease_held"
    assert {type(text) for text in found.to_result()["evidence"]["reasons"]} == {str}
    assert found.reason == "reason 0; reason 1; reason 2; reason 3; reason 4 (+65 more)"
    assert found.to_result()["evidence"]["reasons"][-1] == "(+20 more)"


def test_a_failed_undo_is_told() -> None:
    breaks = {
        "flush_map": ActionFailed("map in use"),
        "restore_queueing": ActionFailed("no answer"),
    }
    result = run(World([finding("a")], breaks), Module())
    assert "disable_queueing a could not be undone: no answer" in result["msg"]


def test_a_repair_that_is_not_proven_is_a_failure() -> None:
    result = run(World([finding("a"), finding("b")], proven=False), Module())
    assert result["failed"]
    assert "not proven" in result["msg"]
    assert result["code"] == "repair_unproven"
    assert [outcome for _verb, outcome in outcomes(result)] == ["done"] * 3 + ["skipped"] * 3


@pytest.mark.parametrize(
    ("found", "fail_on_refusal", "failed"),
    [
        (finding("a", "refuse"), False, False),
        (finding("a", "refuse"), True, True),
        (finding("a", "refuse", named=True), False, True),
        (finding("a", "report", named=True), True, False),
        (finding("a", named=True), True, False),
    ],
)
def test_when_a_refusal_fails_the_task(found: Finding, fail_on_refusal: bool, failed: bool) -> None:
    result = run(World([found]), Module(), fail_on_refusal)
    assert result["failed"] is failed
    assert result.get("refused") == (["a"] if failed else None)
    assert len(result["findings"]) == 1


def test_error_while_gathering() -> None:
    class Broken(World):
        def gather(self) -> list[Finding]:
            raise StorageOpsError("run it as root", code="privileges_missing")

    result = run(Broken([]), Module())
    assert result == {
        "failed": True,
        "msg": "run it as root",
        "code": "privileges_missing",
        "changed": False,
        "findings": [],
        "actions": [],
    }


def test_diff() -> None:
    both = [finding("a"), finding("b", "refuse")]
    assert run(World(both), Module(check_mode=True, diff=True))["diff"] == {
        "before": "a is dead\nb is dead\n",
        "after": "b is dead\n",
    }


def test_info_modules_change_nothing_and_carry_the_plan() -> None:
    world, module = World([finding("a")]), Module()
    with pytest.raises(Exit):
        engine.report(module, lambda: world, {"STOR-01"})
    assert (module.result["changed"], module.result["actions"], world.log) == (False, [], [])
    assert [action["outcome"] for action in module.result["findings"][0]["repair"]] == [
        "planned"
    ] * 3
    other = Module()
    with pytest.raises(Exit):
        engine.report(other, lambda: world, {"STOR-04"})
    assert other.result["findings"] == []


def test_an_audit_refuses_nothing() -> None:
    """Nobody asked for a repair, so what it only reports needs attention."""
    told = [finding("a"), finding("b", "refuse"), finding("c", "report")]
    for found, said in (
        (told, "3 findings, 1 would be repaired, 2 need attention (multipath map b: because)"),
        (told[2:], "1 finding, 1 needs attention"),
        (told[:1], "1 finding, 1 would be repaired"),
    ):
        module = Module()
        with pytest.raises(Exit):
            engine.report(module, lambda found=found: World(found), {"STOR-01"})
        assert module.result["msg"] == said


class Telling(World):
    """A runbook that hands on what it was given and what became of it."""

    def facts(self) -> dict[str, Any]:
        return {"ledger": list(self.log)}


def test_facts_are_handed_on_as_they_are_after_the_run() -> None:
    assert run(Telling([finding("a", verbs=("flush_map",))]), Module())["ledger"] == ["flush_map a"]
    assert (
        run(Telling([finding("a", verbs=("flush_map",))]), Module(check_mode=True))["ledger"] == []
    )
    assert run(Telling([finding("a", "refuse", named=True)]), Module())["failed"]
    module = Module()
    with pytest.raises(Exit):
        engine.report(module, lambda: Telling([]), {"STOR-01"})
    assert (module.result["ledger"], module.result["changed"]) == ([], False)


def in_two_steps(before: World, world: World, module: Module) -> dict[str, Any]:
    with pytest.raises(Exit):
        engine.run(module, lambda: world, False, first=Step("before", lambda: before))
    return module.result


def test_a_step_before_is_told_beside_what_follows() -> None:
    before, world = Telling([finding("a", verbs=("flush_map",))]), World([])
    result = in_two_steps(before, world, Module())
    assert before.log == ["flush_map a"]
    assert (result["failed"], result["changed"]) == (False, True)
    assert result["findings"] == [] and result["msg"].startswith("nothing to do")
    assert result["before"]["msg"] == "1 finding, 1 repaired and proven"
    assert outcomes(result["before"]) == [("flush_map", "done")]


@pytest.mark.parametrize(
    "before",
    [
        World([finding("a", "refuse")]),
        World([finding("a")], {"flush_map": ActionFailed("busy")}),
        World([finding("a")], proven=False),
        World([finding("a")], {"flush_map": RuntimeError("unforeseen")}),
    ],
)
def test_nothing_follows_a_step_that_fails(before: World) -> None:
    """A refusal is a failure, too, and the task fails as if the step were alone."""
    world = World([finding("b")])
    result = in_two_steps(before, world, Module())
    assert result["failed"] and world.log == []
    assert [found["object"]["name"] for found in result["findings"]] == ["a"]
    assert "before" not in result


def test_what_follows_hides_nothing_of_a_step_before() -> None:
    for breaks in ({"flush_map": ActionFailed("busy")}, {"flush_map": RuntimeError("unforeseen")}):
        before = World([finding("a", verbs=("flush_map",))])
        result = in_two_steps(before, World([finding("b")], breaks), Module())
        assert (result["failed"], result["changed"]) == (True, True)
        assert outcomes(result["before"]) == [("flush_map", "done")]
        assert [found["object"]["name"] for found in result["findings"]] == ["b"]


def test_a_step_that_cannot_begin_hides_nothing_of_the_one_before() -> None:
    def fails() -> World:
        raise StorageOpsError("no answer")

    before, module = World([finding("a", verbs=("flush_map",))]), Module()
    with pytest.raises(Exit):
        engine.run(module, fails, False, first=Step("before", lambda: before))
    assert (module.result["failed"], module.result["changed"]) == (True, True)
    assert outcomes(module.result["before"]) == [("flush_map", "done")]


class Watching(Telling):
    """It looks at what has come of its repairs, and then does ``looking``."""

    def __init__(self, looking: Callable[[], None], *findings: Finding) -> None:
        super().__init__([*findings] or [finding("a", verbs=("flush_map",))])
        self.looking = looking

    def watch(self) -> None:
        self.log.append("watch")
        self.looking()


def told(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def caught(number: signal.Signals) -> None:
    """As by a part that says what it could not read, whatever the error."""
    with contextlib.suppress(StorageOpsError):
        told(number)


def unforeseen() -> None:
    raise KeyError("sdb")


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    ("looking", "code"),
    [
        (partial(told, signal.SIGTERM), "interrupted"),
        (partial(told, signal.SIGALRM), "deadline_passed"),
        (partial(caught, signal.SIGTERM), "interrupted"),
        (unforeseen, "unexpected_error"),
    ],
)
def test_a_watch_that_does_not_end_fails_the_task_and_hides_nothing(
    looking: Callable[[], None], code: str
) -> None:
    before = handlers()
    result = run(Watching(looking), Module())
    assert (result["failed"], result["code"], result["changed"]) == (True, code, True)
    assert ("exception" in result) == (code == "unexpected_error")
    # What was done is done, and proven.
    assert result["ledger"] == ["flush_map a", "watch"] and "half_made" not in result
    assert outcomes(result) == [("flush_map", "done")]
    assert result["findings"][0]["evidence"]["proof"] == ["it is gone"]
    assert handlers() == before


def test_only_what_was_done_is_watched() -> None:
    def nothing() -> None:
        pass

    assert run(Watching(nothing), Module())["ledger"] == ["flush_map a", "watch"]
    assert run(Watching(nothing), Module(check_mode=True))["ledger"] == []
    failing = Watching(nothing)
    failing.breaks = {"flush_map": ActionFailed("it is busy")}
    assert run(failing, Module())["failed"] and failing.log == []
    # A refusal comes first.
    refused = finding("b", "refuse", named=True)
    result = run(Watching(unforeseen, refused), Module())
    assert (result["refused"], result["code"]) == (["b"], "")


def test_what_no_control_stands_for_is_always_reported() -> None:
    module = Module()
    with pytest.raises(Exit):
        engine.report(
            module, lambda: World([replace(finding("a", "report"), control="")]), {"STOR-04"}
        )
    assert [found["object"]["name"] for found in module.result["findings"]] == ["a"]


def report_parts(*parts: Part, wanted: str = "STOR-01 STOR-02 STOR-03") -> dict[str, Any]:
    module = Module()
    with pytest.raises(Exit):
        engine.report_parts(module, lambda: parts, wanted.split())
    return module.result


def part(controls: str, audit: Any, deadline: Deadline | None = None) -> Part:
    return Part(frozenset(controls.split()), lambda: audit, deadline)


class Unreadable(World):
    """An audit that cannot read what it needs."""

    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error

    def gather(self) -> list[Finding]:
        raise self.error


def test_what_one_audit_cannot_read_is_not_assessed_and_the_others_go_on() -> None:
    result = report_parts(
        part("STOR-02 STOR-03", Unreadable(StorageOpsError("no log", code="privileges_missing"))),
        part("STOR-03", Unreadable(ValueError("odd"))),
        part("STOR-01", Telling([finding("a")])),
    )
    assert (result["failed"], result["changed"], result["actions"], result["ledger"]) == (
        True,
        False,
        [],
        [],
    )
    assert [found["object"]["name"] for found in result["findings"]] == ["a"]
    assert result["not_assessed"] == {
        "STOR-02": "no log",
        "STOR-03": "no log; ValueError: odd",
    }
    assert result["not_assessed_codes"] == {
        "STOR-02": "privileges_missing",
        "STOR-03": "privileges_missing",
    }
    assert result["code"] == "privileges_missing"
    assert (
        result["msg"]
        == "STOR-02, STOR-03 not assessed: no log; STOR-03 not assessed: ValueError: odd. 1 "
        "finding of the others"
    )
    assert "ValueError: odd" in result["exception"]


def test_where_an_error_happened_is_told_without_what_a_terminal_obeys() -> None:
    """The error may quote what a tenant wrote."""
    result = report_parts(part("STOR-03", Unreadable(ValueError("odd \x1b]0;evil\x07 \u202e"))))
    assert "odd \\x1b]0;evil\\x07 \\u202e" in result["exception"]
    assert "\n  File " in result["exception"] and "\x1b" not in result["exception"]


@pytest.mark.parametrize("error", [StorageOpsError, ValueError])
def test_a_message_is_one_line_whatever_it_quotes(error: type[Exception]) -> None:
    """Ansible 2.19 prints it as it is, and a tenant's event may be in it."""
    forged = "x\n\nPLAY RECAP ***\nlocalhost : ok=40"

    class Broken(World):
        def gather(self) -> list[Finding]:
            raise error(forged)

    audited = report_parts(part("STOR-03", Unreadable(error(forged))))
    for result in (run(Broken([]), Module()), audited):
        assert len(result["msg"].splitlines()) == 1, result["msg"]
    assert all("\n" not in reason for reason in audited["not_assessed"].values())


def test_a_reason_that_all_share_is_the_whole_message() -> None:
    root = Unreadable(StorageOpsError("run it as root"))
    result = report_parts(
        part("STOR-01", root), part("STOR-02 STOR-03", root), part("STOR-09", World([]))
    )
    assert result["msg"] == "run it as root"
    assert sorted(result["not_assessed"]) == ["STOR-01", "STOR-02", "STOR-03"]

    def broken() -> list[Part]:
        raise StorageOpsError("deadline is 1 s")

    module = Module()
    with pytest.raises(Exit):
        engine.report_parts(module, broken, ["STOR-01"])
    assert (module.result["msg"], module.result["not_assessed"]) == (
        "deadline is 1 s",
        {"STOR-01": "deadline is 1 s"},
    )


def test_nobody_asks_for_the_controls_of_a_part_that_is_left_out() -> None:
    result = report_parts(
        part("STOR-02", Unreadable(StorageOpsError("no"))),
        part("STOR-01", World([finding("a")])),
        wanted="STOR-01",
    )
    assert (result["failed"], len(result["findings"])) == (False, 1)
    assert not {"not_assessed", "not_assessed_codes", "code"} & set(result)
    result = report_parts(
        part("STOR-01 STOR-02", Unreadable(StorageOpsError("no"))), wanted="STOR-01"
    )
    assert result["not_assessed"] == {"STOR-01": "no"}


def test_what_is_read_after_the_deadline_is_not_assessed() -> None:
    now = [0.0]
    deadline = Deadline(10, lambda: now[0])

    class Slow(World):
        def gather(self) -> list[Finding]:
            now[0] += 11
            return super().gather()

    result = report_parts(
        part("STOR-01", World([finding("a")]), deadline),
        part("STOR-02", Slow([replace(finding("b"), control="STOR-02")]), deadline),
        part("STOR-03", World([]), deadline),
    )
    assert [found["object"]["name"] for found in result["findings"]] == ["a", "b"]
    assert {control: "while" in why for control, why in result["not_assessed"].items()} == {
        "STOR-02": True,
        "STOR-03": False,
    }
    assert result["code"] == "deadline_passed"


class Absent(World):
    """An audit that has nothing to look at for these controls."""

    def __init__(self, absent: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(list(findings))
        self.absent = absent.split()

    def not_applicable(self, _state: Any) -> dict[str, str]:
        return {control: f"there is no {control}" for control in self.absent}


def test_a_control_without_anything_to_look_at_is_not_applicable() -> None:
    result = report_parts(part("STOR-01 STOR-02", Absent("STOR-01")), part("STOR-03", World([])))
    assert (result["failed"], result["not_applicable"]) == (
        False,
        {"STOR-01": "there is no STOR-01"},
    )
    assert "not_assessed" not in result
    assert "not_applicable" not in report_parts(part("STOR-03", World([])))
    asked = report_parts(part("STOR-01 STOR-02", Absent("STOR-01 STOR-02")), wanted="STOR-02")
    assert list(asked["not_applicable"]) == ["STOR-02"]


@pytest.mark.parametrize(
    "other",
    [
        World([]),
        Unreadable(StorageOpsError("no")),
        Absent("STOR-01", [finding("a", "report")]),
        Absent("STOR-01", [replace(finding("a", "report"), severity="info")]),
    ],
)
def test_what_another_part_sees_or_cannot_read_is_applicable(other: Any) -> None:
    parts = [part("STOR-01", Absent("STOR-01")), part("STOR-01", other)]
    assert "not_applicable" not in report_parts(*parts)
    assert "not_applicable" not in report_parts(*reversed(parts))


def test_all_parts_have_to_be_without_anything_to_look_at() -> None:
    both = [part("STOR-01", Absent("STOR-01")), part("STOR-01 STOR-02", Absent("STOR-01 STOR-02"))]
    assert report_parts(*both)["not_applicable"] == {
        "STOR-01": "there is no STOR-01",
        "STOR-02": "there is no STOR-02",
    }


def test_what_is_not_there_after_the_deadline_may_be() -> None:
    now = [0.0]

    class Slow(Absent):
        def gather(self) -> list[Finding]:
            now[0] += 11
            return super().gather()

    result = report_parts(part("STOR-01", Slow("STOR-01"), Deadline(10, lambda: now[0])))
    assert "not_applicable" not in result and list(result["not_assessed"]) == ["STOR-01"]


class Partial(World):
    """An audit that lacks what one of its controls is about, and sees the rest."""

    def not_assessed(self, _state: Any) -> dict[str, Reason]:
        return {"STOR-01": Reason("evidence_unreadable", "no multipathd to ask")}


def test_what_an_audit_lacks_is_not_assessed_and_what_it_found_is_kept() -> None:
    result = report_parts(part("STOR-01 STOR-02", Partial([finding("a")])))
    assert result["failed"] and [one["object"]["name"] for one in result["findings"]] == ["a"]
    assert result["not_assessed"] == {"STOR-01": "no multipathd to ask"}
    assert result["not_assessed_codes"] == {"STOR-01": "evidence_unreadable"}
    assert result["code"] == "evidence_unreadable"
    # Also where another part of the same control has nothing to look at.
    both = report_parts(part("STOR-01", Partial([])), part("STOR-01", Absent("STOR-01")))
    assert "not_applicable" not in both and list(both["not_assessed"]) == ["STOR-01"]
    other = report_parts(part("STOR-01 STOR-02", Partial([])), wanted="STOR-02")
    assert not other["failed"] and "not_assessed" not in other


def test_a_workload_is_never_cut() -> None:
    workload = {"claims": [f"claim-{number}" for number in range(60)]}
    found = finding("a", "report", workload=workload)
    assert found.to_result()["workload"] == workload
    assert "workload" not in finding("b", "report").to_result()
    many = [
        finding(f"mpath{number}", "report", evidence={"path": "x" * 500}) for number in range(5000)
    ]
    assert run(World([*many, found]), Module())["findings"][0]["workload"] == workload


@pytest.mark.parametrize(
    ("control", "own", "shown"),
    [
        ("STOR-09", None, "storage_ops.runbooks.check_nfs"),
        # Nothing repairs it, and this explains it.
        ("STOR-15", None, "storage_ops.runbooks.triage"),
        ("", None, ""),
        ("STOR-09", "", ""),
        ("", "x.y.z", "x.y.z"),
    ],
)
def test_a_finding_names_the_playbook_of_its_control_unless_it_has_its_own(
    control: str, own: str | None, shown: str
) -> None:
    told = finding("a")
    told.control, told.runbook = control, own
    assert told.to_result()["runbook"] == shown


def test_what_the_user_has_given_is_never_cut() -> None:
    paths = [f"/mnt/{number}" for number in range(60)]
    assert finding("a", given=paths).to_result()["given"] == paths
    assert "given" not in finding("b").to_result()


def test_long_evidence_is_cut_with_a_count() -> None:
    found = finding("a", "report", evidence={"paths": [{"answers": list(range(60))}] * 51})
    paths = found.to_result()["evidence"]["paths"]
    assert paths[-1] == "(+1 more)"
    assert paths[0]["answers"][-1] == "(+10 more)"


def test_a_result_stays_small_enough_for_awx() -> None:
    evidence = {"paths": [{"answers": ["x" * 100] * 10}] * 4}
    result = run(
        World([finding(f"mpath{number}", evidence=dict(evidence)) for number in range(256)]),
        Module(check_mode=True),
    )
    assert len(result["findings"]) == 256
    assert len(str(result)) < 700_000
    assert result["findings"][0]["evidence"] == evidence
    assert "run with this object alone" in result["findings"][-1]["evidence"]["cut"]


def test_findings_beyond_that_are_counted() -> None:
    many = [
        finding(f"mpath{number}", verbs=(), evidence={"path": "x" * 500}) for number in range(5000)
    ]
    result = run(World(many), Module(check_mode=True))
    assert len(str(result["findings"])) < 700_000
    *shown, last = result["findings"]
    assert last["object"]["name"] == f"{5000 - len(shown)} more"
    assert last["severity"] == shown[-1]["severity"]
    assert last["evidence"]["controls"] == [f"{shown[0]['control']}: {5000 - len(shown)}"]
    assert result["msg"].startswith("5000 findings")


class Rehearsing(World):
    """A runbook that can try its actions; what ``breaks`` would break."""

    def rehearse(self, action: Action) -> None:
        self.log.append(f"try {action.verb} {action.target}")
        if action.verb in self.breaks:
            raise self.breaks[action.verb]


def test_check_mode_tries_what_can_be_tried_and_refuses_what_would_fail() -> None:
    world = Rehearsing(
        [finding("a"), finding("b", verbs=("delete_path",))],
        {"flush_map": StorageOpsError("no right to delete", code="api_forbidden")},
    )
    result = run(world, Module(check_mode=True, diff=True))
    assert world.log == ["try disable_queueing a", "try flush_map a", "try delete_path b"]
    assert [found["verdict"] for found in result["findings"]] == ["refuse", "repair"]
    assert result["findings"][0]["reason"] == "flush_map a would fail: no right to delete"
    assert [found["code"] for found in result["findings"]] == ["api_forbidden", ""]
    assert outcomes(result) == [("delete_path", "planned")]
    assert result["diff"]["after"] == "a is dead\n"


def test_a_refusal_of_the_rehearsal_fails_like_any_other() -> None:
    result = run(
        Rehearsing([finding("a", named=True)], {"flush_map": StorageOpsError("no")}),
        Module(check_mode=True),
    )
    assert result["failed"]
    assert result["changed"] is False


def test_a_real_run_rehearses_nothing() -> None:
    world = Rehearsing([finding("a", verbs=("flush_map",))])
    run(world, Module())
    assert world.log == ["flush_map a"]


def test_an_error_that_nobody_foresaw_ends_the_rehearsal() -> None:
    result = run(
        Rehearsing([finding("a")], {"flush_map": KeyError("sdb")}), Module(check_mode=True)
    )
    assert result["failed"]
    assert "KeyError" in result["msg"]


def test_namespace_is_told_where_there_is_one() -> None:
    result = run(
        World([finding("a", "report", namespace="shop"), finding("b", "report")]), Module()
    )
    assert result["findings"][0]["object"] == {
        "kind": "multipath map",
        "namespace": "shop",
        "name": "a",
        "node": "n1",
    }
    assert result["findings"][1]["object"] == {"kind": "multipath map", "name": "b", "node": "n1"}


class Signalled(World):
    """Signals come while something is done; ``during``: verb -> signals."""

    def __init__(self, during: dict[str, tuple[signal.Signals, ...]]) -> None:
        super().__init__([finding("a"), finding("b")])
        self.during = during

    def apply(self, action: Action) -> None:
        for number in self.during.get(action.verb, ()):
            os.kill(os.getpid(), number)
        super().apply(action)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_failure_that_takes_back(number: signal.Signals) -> None:
    """A second one, as impatient people send it, does not end the taking back."""
    before = handlers()
    world = Signalled({"flush_map": (number,), "restore_queueing": (signal.SIGTERM, signal.SIGINT)})
    module = Module()
    with pytest.raises(Exit):
        engine.run(module, lambda: world, True)
    assert module.result["failed"]
    assert (
        f"flush_map a failed: interrupted by {number.name}. restore_queueing a was done."
        in module.result["msg"]
    )
    assert world.log == ["disable_queueing a", "restore_queueing a"]
    assert handlers() == before


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        world = Signalled({"flush_map": (signal.SIGHUP,)})
        module = Module()
        with pytest.raises(Exit):
            engine.run(module, lambda: world, True)
        assert not module.result["failed"], module.result
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_the_first_action_finds_is_done_too() -> None:
    world = World([finding("a", verbs=("disable_queueing",))])
    more = Action("flush_map", "late", ["flush"])
    apply = world.apply

    def find(action: Action) -> None:
        apply(action)
        if action is not more:
            world.findings[0].repair.append(more)

    world.apply = find  # type: ignore[method-assign]
    module = Module()
    with pytest.raises(Exit):
        engine.run(module, lambda: world, True)
    assert world.log == ["disable_queueing a", "flush_map late"] and more.outcome == "done"


class Locked(World):
    """A runbook that holds something while it works, and cannot give it back."""

    def prepare(self) -> None:
        self.log.append("prepare")
        if "prepare" in self.breaks:
            raise self.breaks["prepare"]

    def gather(self) -> list[Finding]:
        self.log.append("gather")
        return super().gather()

    def close(self, failed: bool) -> None:
        self.log.append(f"close, failed: {failed}")
        raise OSError("the API server is gone")


def test_what_a_run_holds_is_taken_first_and_given_back_last() -> None:
    world = Locked([finding("a", verbs=("flush_map",))])
    assert not run(world, Module())["failed"]
    assert world.log == ["prepare", "gather", "flush_map a", "close, failed: False"]
    world = Locked([finding("a")], {"flush_map": ActionFailed("in use")})
    assert "in use" in run(world, Module())["msg"]
    assert world.log[-1] == "close, failed: True"
    world = Locked([finding("a", "refuse")])
    assert run(world, Module(), fail_on_refusal=True)["failed"]
    assert world.log == ["prepare", "gather", "close, failed: True"]


def test_what_cannot_be_held_ends_the_run_before_anything_is_read() -> None:
    world = Locked([], {"prepare": StorageOpsError("another run has it", code="lease_held")})
    result = run(world, Module())
    assert result["failed"] and result["code"] == "lease_held"
    assert world.log == ["prepare", "close, failed: True"]


def test_check_mode_holds_nothing() -> None:
    world = Locked([finding("a")])
    assert not run(world, Module(check_mode=True))["failed"]
    assert world.log == ["gather"]


def of_pod(namespace: str, number: int, severity: str) -> Finding:
    return Finding(
        "STOR-15", severity, "pod", f"web-{number}", "w1", "x" * 250, "", reason="y" * 200,
        evidence={"messages": ["m" * 300]}, namespace=namespace,
    )  # fmt: skip


@pytest.mark.parametrize("severity", engine.SEVERITIES)
def test_one_tenants_findings_push_no_other_out(severity: str) -> None:
    """612 of 901 had room, all of them of the same tenant."""
    many = [of_pod("evil", number, severity) for number in range(900)]
    claims = finding("csi-1", "report", verbs=(), evidence={"claim": "bank/data"})
    result = engine._result(Plan([*many, of_pod("victim", 0, "info"), claims]))
    assert len(json.dumps(result)) < 700_000
    *shown, last = result["findings"]
    assert [one for one in shown if one["object"].get("namespace") == "victim"]
    assert [one for one in shown if one["object"]["name"] == "csi-1"]
    evil = len(shown) - 2
    assert last["evidence"]["owners"] == [f"namespace evil: {900 - evil}"]
    order = [engine.SEVERITIES.index(one["severity"]) for one in shown]
    assert order == sorted(order)


def test_one_long_finding_pushes_no_other_out() -> None:
    """A pod may have 48,000 claims, and what a playbook needs of a finding is never cut."""
    long = of_pod("evil", 0, "major")
    long.workload = {"namespace": "evil", "claims": [f"c{n:05}" for n in range(48_000)]}
    others = [of_pod(f"shop-{number}", 0, "major") for number in range(200)]
    result = engine._result(Plan([long, *others]))
    assert len(json.dumps(result)) < 700_000
    told = [one["object"].get("namespace") for one in result["findings"]]
    assert [one for one in told if one and one != "evil"] == [one.namespace for one in others]
    # Or respond would take it for an outage.
    assert "evil" not in told
    assert result["findings"][-1]["evidence"]["owners"] == ["namespace evil: 1"]


def test_evidence_is_left_out_of_who_has_the_longest() -> None:
    """Of each character that is escaped ten are told."""
    long = of_pod("evil", 0, "major")
    long.evidence["messages"] = ["\U000e0001" * 4_000] * 12
    others = [of_pod(f"shop-{number}", 0, "major") for number in range(200)]
    evil, *shops = engine._result(Plan([long, *others]))["findings"]
    assert evil["evidence"] == {"messages": ["(+12 more)"]}
    assert all(one["evidence"] == {"messages": ["m" * 300]} for one in shops)


def on_node(name: str, **more: Any) -> Finding:
    """What a node has found; its evidence is longer than a result can be."""
    return Finding(
        "STOR-05", "major", "FUSE mount", name, "n1", "it is gone", "refuse", "wait",
        evidence={"volumes": ["pv-1"], "pods": ["1"], "mounts": ["x" * 3_000] * 50}, **more,
    )  # fmt: skip


def test_each_finding_is_shortened_before_another_loses_its_evidence() -> None:
    """Three volumes with long paths cost the map of an array its WWID, and so its command."""
    long = [on_node(f"/{number}") for number in range(9)]
    short = finding("mpatha", evidence={"wwid": "3600", "paths": [{"disk": "sda"}]})
    *shown, told = engine._result(Plan([*long, short]))["findings"]
    assert told["evidence"] == short.to_result()["evidence"]
    assert {one["evidence"]["mounts"][-1] for one in shown} == {"(+43 more)"}
    assert len(long) * 150_000 > engine.MAX_RESULT_CHARACTERS


def test_what_others_decide_by_stays_where_evidence_has_no_room() -> None:
    many = [on_node(f"/{number}") for number in range(200)]
    result = engine._result(Plan(many))
    assert len(json.dumps(result)) <= engine.MAX_RESULT_CHARACTERS
    told = [one["evidence"] for one in result["findings"]]
    assert [set(one) - {"cut", "mounts"} for one in told] == [{"volumes", "pods"}] * 200
    assert "cut" in told[-1]


def test_who_lengthens_what_is_decided_by_takes_the_room_of_no_other() -> None:
    claims = [f"shop/{'x' * 250}{number}" for number in range(50)]
    many = [finding(f"m{number}", "report", evidence={"claims": claims}) for number in range(80)]
    for one in many:
        one.evidence["version"] = "v" * 4_000
    told = [one["evidence"] for one in engine._result(Plan(many))["findings"]]
    assert told[-1] == {"claims": [*claims[:15], "(+35 more)"], "cut": told[-1]["cut"]}


@pytest.mark.parametrize("outcome", ["skipped", "failed"])
def test_a_finding_tells_few_of_many_steps_and_what_was_not_done_first(outcome: str) -> None:
    """A pod may have thousands of mounts of a volume, each of which is a step."""
    found = finding("a", verbs=("unmount",) * 900)
    for step, action in enumerate(found.repair):
        action.outcome, action.target = "done", f"/{step}"
    found.repair[850].outcome = outcome
    told = found.to_result()
    assert [one["target"] for one in told["repair"]] == [*(f"/{n}" for n in range(49)), "/850"]
    assert told["repair_left_out"] == 850
    assert "repair_left_out" not in finding("a").to_result()


def test_long_steps_and_commands_are_cut_with_a_count() -> None:
    """A stack of 100,000 mounts makes a command of as many words."""
    found = finding("a", verbs=("unmount",) * 9)
    found.repair[0].command = ["umount", "--lazy", "/p"] * 100_000
    told = found.to_result()
    assert len(json.dumps(told["repair"][0])) < 9_000
    kept = len(told["repair"][0]["command"]) - 1
    assert told["repair"][0]["command"][-1] == f"(+{300_000 - kept} more)"
    for action in found.repair:
        action.command = ["x" * 4_000]
    assert len(found.to_result()["repair"]) == 5


def test_actions_are_told_in_turns_of_their_owners() -> None:
    evil = finding("evil", verbs=("replace_mount",) * 5_000, owner="namespace evil")
    shop = finding("shop", verbs=("replace_mount",), owner="namespace shop")
    for action in evil.repair:
        action.command = ["x" * 300]
    result = engine._result(Plan([evil, shop]))
    assert len(json.dumps(result)) <= engine.MAX_RESULT_CHARACTERS
    assert [one["target"] for one in result["actions"]].count("shop") == 1
    left = result["actions_left_out"]
    assert left > 3_000 and len(result["actions"]) == 5_001 - left
    assert result["changed"]
    assert "actions_left_out" not in engine._result(Plan([shop]))


def test_findings_leave_a_quarter_for_actions() -> None:
    many = [finding(f"m{n}", "report", workload={"claims": ["c" * 20_000]}) for n in range(60)]
    done = finding("shop", verbs=("unmount",) * 300)
    for action in done.repair:
        action.command = ["x" * 200]
    result = engine._result(Plan([*many, done]))
    assert len(json.dumps(result)) <= engine.MAX_RESULT_CHARACTERS
    assert len(result["actions"]) == 300


def test_a_difference_has_a_limit() -> None:
    many = [finding(f"m{number}" + "x" * 2_000, "report") for number in range(500)]
    told = run(World(many), Module(check_mode=True, diff=True))["diff"]
    assert max(map(len, told.values())) < 21_000
    assert told["after"].endswith("more)\n") and told["after"].startswith("m0x")


def test_an_audit_has_all_its_room_for_findings() -> None:
    many = [finding(f"m{number}", verbs=("flush_map",) * 40) for number in range(100)]
    result = report_parts(part("STOR-01", World(many)))
    assert (len(result["findings"]), result["actions"]) == (100, [])
    assert "actions_left_out" not in result


def test_severe_findings_of_an_owner_do_not_come_before_all_of_others() -> None:
    """Or what max_repairs and the deadline leave is always what others have."""
    many = [of_pod("evil", number, "critical") for number in range(3)]
    few = [of_pod("bank", 7, "minor"), of_pod("shop", 8, "info"), of_pod("shop", 9, "major")]
    numbers = [one.name for one in Plan([*few, *many], (lambda one: one.namespace,)).findings]
    assert numbers == ["web-0", "web-9", "web-7", "web-1", "web-8", "web-2"]
    assert [one.name for one in Plan([*few, *many]).findings][:4] == [
        *("web-0", "web-1", "web-2", "web-9")
    ]


def test_evidence_is_left_out_of_who_has_most() -> None:
    many = [of_pod("evil", number, "major") for number in range(600)]
    result = engine._result(Plan([*many, of_pod("victim", 0, "info")]))
    *evil, victim = result["findings"]
    assert (len(evil), victim["object"]["namespace"]) == (600, "victim")
    assert victim["evidence"] == {"messages": ["m" * 300]}
    assert "cut" in evil[-1]["evidence"]


def test_severe_findings_of_an_owner_come_before_its_others() -> None:
    many = [of_pod("evil", number, "info") for number in range(1200)]
    severe = [of_pod("evil", number, "critical") for number in range(300)]
    *shown, _last = engine._result(Plan([*many, *severe]))["findings"]
    assert len([one for one in shown if one["severity"] == "critical"]) == 300


class Crowded(World):
    """What a node with one tenant's thousands of mounts hands on."""

    def facts(self) -> dict[str, Any]:
        long = [{"pod": "evil", "point": f"/{number}" * 800} for number in range(3000)]
        return {"stale": [*long, {"pod": "shop", "point": "/a\x1b"}]}

    def owners(self) -> dict[str, Any]:
        return {"stale": ("STOR-05", lambda entry: entry["pod"])}


def test_what_a_tenant_lengthens_leaves_room_for_the_others() -> None:
    """Beyond its bound the action on_node throws the whole answer away."""
    result = run(Crowded([]), Module())
    assert len(json.dumps(result)) < engine.MAX_RESULT_CHARACTERS
    assert result["stale"][-1] == {"pod": "shop", "point": "/a\\x1b"}
    (told,) = result["findings"]
    assert (told["control"], told["verdict"]) == ("STOR-05", "report")
    left = 3001 - len(result["stale"])
    assert told["evidence"]["left_out"] == [f"evil: {left}"]
    assert report_parts(part("STOR-05", Crowded([])), wanted="STOR-05")["findings"] == [told]


def test_the_names_of_what_was_refused_are_cut_with_a_count() -> None:
    """A tenant with thousands of mounts made the result too long by them alone."""
    many = [finding(f"n{number}" + "x" * 1000, "refuse") for number in range(600)]
    result = run(World(many), Module(), fail_on_refusal=True)
    assert len(result["refused"]) == 51 and result["refused"][-1] == "(+550 more)"
    assert len(json.dumps(result)) < 600_000


def test_several_parts_of_a_report_share_what_they_hand_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Telling, "facts", lambda self: {str(id(self)): "y" * 300_000})
    result = report_parts(part("STOR-01", Telling([])), part("STOR-02", Telling([])))
    assert list(result["not_assessed"]) == ["STOR-02"]
    assert result["not_assessed_codes"] == {"STOR-02": "result_too_long"}
    assert len(json.dumps(result)) < 600_000


def test_facts_and_findings_have_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [finding(f"n{number}" + "x" * 1000, "refuse") for number in range(400)]
    monkeypatch.setattr(Telling, "facts", lambda _self: {"ledger": "y" * 450_000})
    assert len(json.dumps(run(Telling(many), Module(check_mode=True)))) < 600_000


# A module that is late.


class Late(World):
    """Busy until an alarm comes, where ``when`` says; or until one was raised by hand."""

    def __init__(self, when: str, by_hand: bool = True) -> None:
        super().__init__([finding("mpatha"), finding("mpathb")])
        self.when, self.by_hand = when, by_hand

    def _late(self, when: str) -> None:
        if when == self.when:
            if self.by_hand:
                signal.raise_signal(signal.SIGALRM)
            while not self.by_hand:
                pass

    def gather(self) -> list[Finding]:
        self._late("gather")
        return super().gather()

    def apply(self, action: Action) -> None:
        super().apply(action)
        self._late(action.verb)

    def undo(self, action: Action) -> Action | None:
        self._late("undo")
        return super().undo(action)


def ended(world: World, deadline: float) -> dict[str, Any]:
    module = Module()
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(Exit):
        engine.run(module, lambda: world, False, deadline)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    return module.result


def test_a_module_that_is_late_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a real timer."""
    monkeypatch.setattr(engine, "LATE_SECONDS", 0.05)
    result = ended(Late("gather", by_hand=False), 0.05)
    assert (result["failed"], result["code"]) == (True, "deadline_passed")
    assert "half_made" not in result
    assert "the deadline passed long ago" in result["msg"]


class Catching(World):
    """Its first action catches the errors that signals raise, and is done."""

    def __init__(self, *signals: Sequence[signal.Signals]) -> None:
        super().__init__([finding(name, verbs=("flush_map",)) for name in ("mpatha", "mpathb")])
        self.signals = signals

    def apply(self, action: Action) -> None:
        for numbers in self.signals if action.target == "mpatha" else ():
            with contextlib.suppress(StorageOpsError):
                for number in numbers:
                    signal.raise_signal(number)
                    self.log.append(f"after {number.name}")
        super().apply(action)


def test_a_late_module_that_catches_the_error_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a real timer, which had but one alarm."""
    monkeypatch.setattr(engine, "LATE_SECONDS", 0.05)
    monkeypatch.setattr(engine, "AGAIN_SECONDS", 0.05)

    class Stubborn(Late):
        def _late(self, when: str) -> None:
            with contextlib.suppress(StorageOpsError):
                super()._late(when)
            super()._late(when)

    for when in ("gather", "flush_map"):
        result = ended(Stubborn(when, by_hand=False), 0.05)
        assert (result["failed"], result["code"]) == (True, "deadline_passed")


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    ("again", "signals", "log", "code"),
    [
        # One that was caught ends the run before the next finding.
        (1000.0, [(signal.SIGTERM,)], [], "interrupted"),
        (1000.0, [(signal.SIGALRM,)], [], "deadline_passed"),
        # Another that comes at once must not interrupt what notes the first; it is told all the
        # same.
        (1000.0, [(signal.SIGALRM,), (signal.SIGTERM,)], ["after SIGTERM"], "interrupted"),
        # One that comes later interrupts.
        (0.0, [(signal.SIGALRM,), (signal.SIGTERM,)], [], "interrupted"),
        (0.0, [(signal.SIGALRM,), (signal.SIGALRM,)], [], "deadline_passed"),
        (0.0, [(signal.SIGTERM,), (signal.SIGALRM,)], [], "interrupted"),
    ],
)
def test_a_signal_that_an_action_catches_is_not_gone(
    monkeypatch: pytest.MonkeyPatch,
    again: float,
    signals: list[Sequence[signal.Signals]],
    log: list[str],
    code: str,
) -> None:
    monkeypatch.setattr(engine, "AGAIN_SECONDS", again)
    world = Catching(*signals)
    result = ended(world, 3600)
    assert (result["failed"], result["code"]) == (True, code)
    assert [line for line in world.log if "after" in line] == log
    # The finding before it was repaired, and nothing of the next was begun.
    assert "proof" in result["findings"][0]["evidence"]
    assert not any("mpathb" in line for line in world.log)


def test_a_late_module_tells_what_it_has_done() -> None:
    world = Late("flush_map")
    result = ended(world, 3600)
    assert (result["code"], result["half_made"]) == ("deadline_passed", True)
    outcomes = [(step["action"], step["outcome"]) for step in result["findings"][0]["repair"]]
    assert outcomes == [
        ("disable_queueing", "done"),
        ("flush_map", "failed"),
        ("delete_path", "skipped"),
        ("restore_queueing", "done"),
    ]
    assert world.log[-1] == "restore_queueing mpatha"


def test_no_alarm_interrupts_what_takes_back() -> None:
    world = Late("undo")
    world.breaks = {"flush_map": ActionFailed("it is busy")}
    result = ended(world, 3600)
    assert world.log == ["disable_queueing mpatha", "restore_queueing mpatha"]
    assert result["failed"]


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan"), float("inf")])
def test_no_alarm_without_a_deadline(deadline: float) -> None:
    world = World([])
    assert not ended(world, deadline)["failed"]


def test_a_late_report_has_what_it_has_read() -> None:
    module = Module()

    def slow() -> Late:
        return Late("gather")

    parts = [
        Part(frozenset({"STOR-01"}), lambda: World([finding("mpatha")])),
        Part(frozenset({"STOR-02"}), slow),
    ]
    with pytest.raises(Exit):
        engine.report_parts(module, lambda: parts, ["STOR-01", "STOR-02"], 3600)
    assert [one["control"] for one in module.result["findings"]] == ["STOR-01"]
    assert module.result["not_assessed_codes"] == {"STOR-02": "deadline_passed"}
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
