# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gather -> plan -> apply -> verify: the one runner that every module of the collection shares."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Callable, NamedTuple, Protocol, TypeVar, runtime_checkable

from . import shortening, turns, untrusted
from .bounded import Deadline
from .codes import Reason
from .controls import playbook_of
from .errors import StorageOpsError, code_of

# AWX drops a result of more than 700,000 characters without a word (MAX_EVENT_RES_DATA of
# awx/settings/defaults.py); long before, lists in evidence are cut, with a count, and then the
# evidence of the least severe findings is left out.
MAX_RESULT_CHARACTERS = 500_000
# Of these, what a list of ``facts`` may take that tenants can lengthen, and what the findings have
# at least.
MAX_LIST_CHARACTERS = 100_000
MIN_FINDINGS_CHARACTERS = 100_000
# Of one finding: so many steps of its repair, and so many characters of them. A pod may have any
# number of mounts of a volume, and each is a step.
MAX_STEPS = 50
MAX_STEPS_CHARACTERS = 20_000
MAX_COMMAND_CHARACTERS = 8_000
MAX_MESSAGE_CHARACTERS = 2_000
# Of each side of a difference, which comes in addition to the rest.
MAX_DIFF_CHARACTERS = 20_000
# Recursion makes a traceback as long as the stack is deep.
MAX_TRACEBACK = 20_000

# Seconds after its deadline at which a module that is still busy is ended. What a repair has begun
# is taken back after the deadline, and the controller gives up some time later
# (plugins/action/on_node.py, GRACE).
LATE_SECONDS = 30.0
# Seconds after which it is tried again: what the module is busy with may have caught the error.
AGAIN_SECONDS = 5.0

SEVERITIES = ("critical", "major", "minor", "info")

_LATE = signal.SIGALRM.name

State = TypeVar("State")


class ActionFailed(StorageOpsError):
    """An action that did not do what it promises; everything after it is left undone."""

    code = "repair_failed"


class NotStarted(ActionFailed):
    """The world is no longer as it was planned for, so the action changed nothing; what was planned
    for others still holds.
    """

    code = "world_changed"


class Missed(NotStarted):
    """The same, but what was done before rests on it: so it is a failure, and no refusal."""


class Prevented(ActionFailed):
    """Something that is not the object's fault, as a missing right, kept the action from changing
    anything.
    """

    code = "deadline_passed"


def require_time(deadline: Deadline, seconds: float, more: float = 0.0) -> None:
    """Raise an error, before anything is changed, if too little time is left.

    ``seconds``: what the smallest repair may take: without them it is Prevented, which ends the
    run. ``more``: what this one takes besides; for that alone others must not lose their turn.
    """
    left, needed = deadline.remaining(), seconds + more
    if left < needed:
        why = f"less than {needed:g} s are left of the deadline: run again, or raise it"
        raise Prevented(why) if left < seconds else NotStarted(why, code="deadline_passed")


class Unread(ActionFailed):
    """What must be known before a change could not be read, so the action changed nothing; others
    keep their turn.
    """

    code = "evidence_unreadable"


class Ended(StorageOpsError):
    """A signal, or the time limit of the module, ends the run, whatever it is busy with."""


@contextlib.contextmanager
def before_a_change() -> Iterator[None]:
    """Around what an action reads before it changes anything: a look that fails is no change.

    Raises Unread in place of the error of the look; Prevented in place of one that ends the run.
    """
    try:
        yield
    except (ActionFailed, PassedOver):
        raise
    except StorageOpsError as error:
        kind = Prevented if isinstance(error, Ended) else Unread
        raise kind(str(error), error.code) from error


class PassedOver(StorageOpsError):
    """The action changed nothing, and those after it do not need it: they go on."""


@dataclass
class Action:
    """One change: a ``verb`` from the documented list, what it changes, and exactly how."""

    verb: str
    target: str
    command: list[str]
    # What the runbook needs to carry it out; never part of a result.
    subject: Any = None
    outcome: str = "planned"
    seconds: float = 0.0

    def to_result(self) -> dict[str, Any]:
        """The action as modules return it. What a terminal would obey is written as escapes."""
        return {
            "action": self.verb,
            "target": untrusted.shown(self.target),
            # A stack of mounts makes it as long as it is high.
            "command": shortening.fitting(self.command, MAX_COMMAND_CHARACTERS, len(self.command)),
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Finding:
    """One thing that is wrong, why we think so, and what becomes of it."""

    control: str
    severity: str
    kind: str
    name: str
    node: str
    summary: str
    verdict: str = "report"
    reason: str = ""
    # Playbook that handles it, if that is not the one of its control.
    runbook: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    # The user asked for this very object, so a refusal is an answer of its own and fails the task.
    named: bool = False
    repair: list[Action] = field(default_factory=list)
    namespace: str = ""
    # What a playbook hands on to another module, so it is never cut.
    workload: dict[str, Any] | None = None
    # Of what the user has given, what this is about. As long as the user made it, so never cut.
    given: Sequence[str] = ()
    # Who could have made many such findings, where neither its namespace nor its claim tells.
    owner: str = ""
    # Its repair failed, and left nothing half made.
    failed: bool = False
    # Why it is refused, left or has failed: one of codes.CODES. Set by these methods alone.
    code: str = ""

    def to_result(self) -> dict[str, Any]:
        """The finding as modules return it.

        Names, messages and processes that others have made are in it: see untrusted.shown.
        """
        namespace = {"namespace": self.namespace} if self.namespace else {}
        workload = {"workload": self.workload} if self.workload else {}
        given = {"given": [untrusted.shown(text) for text in self.given]} if self.given else {}
        repair, left = _steps(self.repair)
        return {
            "control": self.control,
            "severity": self.severity,
            "object": {
                name: untrusted.shown(text)
                for name, text in {
                    "kind": self.kind,
                    **namespace,
                    "name": self.name,
                    "node": self.node,
                }.items()
            },
            "summary": untrusted.shown(self.summary),
            "evidence": untrusted.clean(shortening.clip(self.evidence)),
            "verdict": self.verdict,
            "code": self.code,
            "reason": untrusted.shown(self.reason),
            "runbook": playbook_of(self.control) if self.runbook is None else self.runbook,
            "repair": repair,
            **({"repair_left_out": left} if left else {}),
            **workload,
            **given,
        }

    def refuse(self, *reasons: Reason) -> None:
        """Turn a repair down: the finding stays, its actions go.

        Of many reasons the first are told, and all are in the evidence. The code is that of the
        first.
        """
        distinct = list(dict.fromkeys(reasons))
        # One cause may speak for each path or pod, as an outage does.
        if len(distinct) > untrusted.MAX_FEW:
            self.evidence["reasons"] = distinct
        # What stays in repair is carried out with the actions of all others (Plan.actions).
        self.verdict, self.repair = "refuse", []
        self.code = distinct[0].code if distinct else ""
        self.reason = untrusted.few(distinct, "; ")

    def leave(self, reason: Reason) -> None:
        """It stays as it is, and the task does not fail for it."""
        self.verdict, self.repair = "report", []
        self.reason, self.code = reason, reason.code

    def fail(self, reason: Reason) -> None:
        """Its repair failed without harm to others. What was done stays in the result."""
        self.verdict, self.reason, self.failed = "refuse", reason, True
        self.code = reason.code


@dataclass
class Plan:
    """What was found, most severe first, and through the findings what is to be done, in order.

    ``owners``: whose turn it is. Then the most severe of each owner come first, and so on, since a
    tenant may have any number of critical ones. The last of several matters most.
    """

    findings: list[Finding]
    owners: Sequence[Callable[[Finding], Hashable]] = ()

    def __post_init__(self) -> None:
        # Actions are carried out in this order, so what max_repairs, the deadline or a failure
        # leaves is the least severe of each. Within a severity the order of the runbook stays,
        # since sorted is stable.
        self.findings = sorted(
            self.findings, key=lambda finding: SEVERITIES.index(finding.severity)
        )
        for owner in self.owners:
            self.findings = turns.in_turns(self.findings, owner)

    @property
    def actions(self) -> list[Action]:
        """Every action of every finding that will be repaired, in the order they are
        carried out.
        """
        return [action for finding in self.findings for action in finding.repair]

    @property
    def refusals(self) -> list[Finding]:
        """Findings that need a repair and will not get it."""
        return [finding for finding in self.findings if finding.verdict == "refuse"]


class Audit(Protocol[State]):
    """What a runbook that only reports brings to the runner."""

    def gather(self) -> State:
        """Read the world."""

    def plan(self, state: State) -> Plan:
        """Decide; a pure function of the state and the options."""

    def healthy(self, state: State) -> str:
        """What was looked at, in a few words, for the message of a run that finds nothing."""


class Runbook(Audit[State], Protocol[State]):
    """What a runbook that repairs brings besides."""

    def apply(self, action: Action) -> None:
        """Carry one action out and see it done, or raise ActionFailed."""

    def undo(self, action: Action) -> Action | None:
        """The action that takes back ``action`` after a later one of the same finding failed; None
        if nothing is to be taken back.
        """

    def verify(self, finding: Finding) -> list[str]:
        """What proves the repair, in sentences, or raise ActionFailed with what contradicts it."""


@runtime_checkable
class Rehearsed(Protocol):
    """A runbook whose actions can be tried without doing them, as by a server-side dry run."""

    def rehearse(self, action: Action) -> None:
        """Try one action; raise what would stop it."""


@runtime_checkable
class Contained(Protocol):
    """A runbook whose repairs stand alone: one that fails and leaves nothing half made ends none.

    Else whoever owns one object that cannot be repaired could keep all others from their repair.
    """

    def half_made(self, finding: Finding) -> list[str]:
        """What a repair that failed has left, read after it was taken back; empty for nothing."""


@runtime_checkable
class Prepared(Protocol):
    """A runbook that holds something while it works, as the Lease that keeps other runs away.

    In check mode neither is called, since check mode holds nothing.
    """

    def prepare(self) -> None:
        """Take it, before anything is read. Raises StorageOpsError if it cannot be had."""

    def close(self, failed: bool) -> None:
        """Give it back, or keep it for the next step of the same run: the last thing called,
        however the run ended.
        """


@runtime_checkable
class Watching(Protocol):
    """A runbook that looks, for as long as it takes, at what has come of its repairs."""

    def watch(self) -> None:
        """Look, once all repairs are done; never in check mode. What it raises fails the task, and
        what was done is told all the same.
        """


@runtime_checkable
class Telling(Protocol):
    """An audit or runbook that hands something on to another module, besides its findings."""

    def facts(self) -> dict[str, Any]:
        """More keys of the result, once all is done; empty before anything was read."""


@runtime_checkable
class Owned(Protocol):
    """A Telling of which others can lengthen some lists."""

    def owners(self) -> dict[str, tuple[str, Callable[[Any], str]]]:
        """By key of ``facts``, for each such list: its control, and whose an entry is."""


@runtime_checkable
class Judging(Protocol):
    """An audit that can tell that a control has nothing to look at, as without any NFS mount."""

    def not_applicable(self, state: Any) -> dict[str, str]:
        """Control -> the evidence, in a few words. What could not be read is no evidence."""


@runtime_checkable
class PartlyAssessed(Protocol):
    """An audit that can assess some of its controls only in part."""

    def not_assessed(self, state: Any) -> dict[str, Reason]:
        """Control -> what of it could not be looked at, and why. Its findings count as well."""


@runtime_checkable
class Scoped(Protocol):
    """A runbook that can be limited to objects by their names."""

    def unmatched(self, state: Any) -> str:
        """The end of the message: what was named and is not there. Empty if all of it is."""


class Step(NamedTuple):
    """A runbook that has to succeed before another one begins, in the same task.

    ``key``: under which the result of the task has its own. ``make``: as ``make_runbook`` of
    ``run``. A refusal of it fails the task.
    """

    key: str
    make: Callable[[], Runbook[Any]]


class _Outcome(NamedTuple):
    """What a runbook came to. ``failure``: as of ``_failure``."""

    failure: dict[str, Any]
    message: str
    result: dict[str, Any]


def run(
    module: Any,
    make_runbook: Callable[[], Runbook[State]],
    fail_on_refusal: bool,
    deadline: float = math.inf,
    first: Step | None = None,
) -> None:
    """Run a runbook for an AnsibleModule and leave through exit_json or fail_json, once.

    A refusal fails the task when ``fail_on_refusal`` is set or the user named the object; a repair
    that failed always does. The ``code`` of a failed task is that of what its message names first.

    ``deadline``: seconds after which the module is late, whatever it is busy with. ``first``: what
    comes before. If that fails, the task fails as if it were alone.
    """
    told: dict[str, Any] = {}
    if first:
        until = Deadline(deadline)
        done = _outcome(module, first.make, True, deadline, told)
        if done.failure:
            module.fail_json(**done.failure, **done.result)
        told = {first.key: {"msg": done.message, **done.result}}
        deadline = max(1.0, until.remaining())
    outcome = _outcome(module, make_runbook, fail_on_refusal, deadline, told)
    if outcome.failure:
        module.fail_json(**outcome.failure, **outcome.result)
    module.exit_json(msg=outcome.message, **outcome.result)


def _outcome(
    module: Any,
    make_runbook: Callable[[], Runbook[State]],
    fail_on_refusal: bool,
    deadline: float,
    told: Mapping[str, dict[str, Any]],
) -> _Outcome:
    """Run it; an error leaves through fail_json. ``told``: results of steps before, by their keys,
    which are in its own.
    """
    # A list, since make_runbook itself may raise, and then there is nothing to close.
    made: list[Runbook[State]] = []
    plan = Plan([])
    before: list[str] = []
    taken = len(json.dumps(told)) if told else 0
    try:
        with ended_if_late(deadline):
            runbook = make_runbook()
            made.append(runbook)
            # Before gather: what is read without the Lease, another run may be changing.
            if isinstance(runbook, Prepared) and not module.check_mode:
                runbook.prepare()
            state = runbook.gather()
            plan = runbook.plan(state)
            # For --diff, so before anything is carried out.
            before = [finding.summary for finding in plan.findings]
            unseen: dict[str, Any] = {}
            if not module.check_mode:
                unseen = _carry_out(runbook, plan)
            elif isinstance(runbook, Rehearsed):
                _rehearse(runbook, plan)
        # Within the try, too: what fails here must not hide what was done.
        facts, left_out = _facts(runbook, taken)
        plan.findings += left_out
        result = _together(told, {**facts, **_result(plan, taken + len(json.dumps(facts)))})
        failure = _failure(plan, fail_on_refusal) or unseen
        message = _message(plan, runbook.healthy(state), module.check_mode)
        if isinstance(runbook, Scoped):
            message += untrusted.shown(runbook.unmatched(state))
    except Exception as error:  # whatever it was, what has been done must be told
        # Before fail_json, which leaves by SystemExit.
        _close(module, made, failed=True)
        module.fail_json(
            msg=_error(error),
            code=code_of(error),
            **_half_made(plan),
            **_traceback(error),
            **_together(told, _result(plan, taken)),
        )
    if module._diff:
        left = [finding.summary for finding in plan.findings if finding.verdict != "repair"]
        result["diff"] = {"before": _lines(before), "after": _lines(left)}
    _close(module, made, failed=bool(failure))
    return _Outcome(failure, message, result)


def _together(told: Mapping[str, dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
    """A result with those of the steps before, of which one may have changed something."""
    changed = result["changed"] or any(one["changed"] for one in told.values())
    return {**told, **result, "changed": changed}


def _half_made(plan: Plan) -> dict[str, bool]:
    """The one word by which a playbook knows that a repair was begun, and is neither proven nor
    taken back as a whole.
    """
    begun = any(
        action.outcome in ("done", "failed")
        for finding in plan.findings
        if "proof" not in finding.evidence and not finding.failed
        for action in finding.repair
    )
    return {"half_made": True} if begun else {}


def _failure(plan: Plan, fail_on_refusal: bool) -> dict[str, Any]:
    """Why the task fails: ``msg``, ``code``, and the names of what was refused, or undone. Empty
    if it does not.
    """
    failed = [finding for finding in plan.findings if finding.failed]
    refused = [finding for finding in plan.refusals if not finding.failed]
    fatal = [finding for finding in refused if fail_on_refusal or finding.named]
    # What was begun outweighs what was left alone.
    if failed:
        # With a refusal of what the user named there is more to it than what was undone.
        named = any(finding.named for finding in fatal)
        said = f"{_told(failed, '. ')}. {_message(plan, '', False)}"
        return _failed_task(said, failed, "" if named else "undone")
    if fatal:
        said = f"refused {len(fatal)} of {len(plan.findings)} findings: {_told(fatal, '; ')}"
        return _failed_task(said, fatal, "refused")
    return {}


def _failed_task(said: str, findings: Sequence[Finding], key: str) -> dict[str, Any]:
    shown = shortening.clip([untrusted.shown(finding.name) for finding in findings])
    names = {key: shown} if key else {}
    msg = untrusted.shown(said[:MAX_MESSAGE_CHARACTERS])
    return {"msg": msg, "code": findings[0].code, **names}


def _told(findings: Sequence[Finding], between: str) -> str:
    # A reason may end in a full stop, which is not followed by what is between them.
    return between.join(
        f"{found.kind} {found.name}: {found.reason}".rstrip(".") for found in findings[:5]
    )


def _close(module: Any, made: Sequence[Any], failed: bool) -> None:
    # What was done must be told, whatever becomes of this; and a Lease runs out by itself.
    with contextlib.suppress(Exception):
        for runbook in made:
            if isinstance(runbook, Prepared) and not module.check_mode:
                runbook.close(failed)


class Part(NamedTuple):
    """One of several audits of a report, and the controls that it looks at.

    ``deadline``: what all of them are paid from. ``alone``: makes the audit of one of the controls,
    where they do not need the same: of one that cannot be read the others are still looked at.
    ``tells``: what it would hand on to other modules belongs in the result.
    """

    controls: frozenset[str]
    make: Callable[[], Audit[Any]]
    deadline: Deadline | None = None
    alone: Callable[[str], Audit[Any]] | None = None
    tells: bool = True


def report(
    module: Any,
    make_audit: Callable[[], Audit[Any]],
    controls: Collection[str],
    deadline: float = math.inf,
) -> None:
    """Gather and plan only, for ``*_info`` modules: never changes anything, and every finding
    carries its planned repair. ``deadline``: as of ``run``.
    """
    report_parts(module, lambda: [Part(frozenset(controls), make_audit)], controls, deadline)


def report_parts(
    module: Any,
    make_parts: Callable[[], Sequence[Part]],
    controls: Collection[str],
    deadline: float = math.inf,
) -> None:
    """The same with several audits: what one of them cannot read is not assessed, and the others go
    on. The task fails at its end.
    """
    looks = _Looks(frozenset(controls))
    try:
        with ended_if_late(deadline):
            looks.over(make_parts)
    # Between two of them.
    except StorageOpsError as error:
        looks.missed.append((looks.wanted, error))
    plan = Plan(looks.findings)
    taken = len(json.dumps(looks.facts))
    result = {
        **looks.facts,
        # An audit plans repairs for its reader alone, and planned ones would count as changed.
        "actions": [],
        "changed": False,
        "findings": _findings(plan, _room(taken)),
        **looks.not_assessed(),
        **looks.not_applicable(),
    }
    # An audit that could not look is never green, even if all that it saw is healthy.
    if looks.missed:
        module.fail_json(
            msg=_missed_message(looks.missed, looks.wanted, plan),
            code=code_of(looks.missed[0][1]),
            **_first_traceback(looks.missed),
            **result,
        )
    module.exit_json(msg=_audit_message(plan, "; ".join(looks.healthy)), **result)


class _Looks:
    """What the parts of a report have found, and what could not be looked at, with its error."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted
        self.findings: list[Finding] = []
        self.facts: dict[str, Any] = {}
        self.healthy: list[str] = []
        self.missed: list[tuple[frozenset[str], Exception]] = []
        # Of each part that was read whole: its controls, and those without anything to look at.
        self.absent: list[tuple[frozenset[str], dict[str, str]]] = []

    def over(self, make_parts: Callable[[], Sequence[Part]]) -> None:
        """Look at all of them; of one that cannot be read, at each of its controls alone."""
        parts: list[Part] = []
        try:
            # A part without any control is never left out: it only tells.
            parts += [
                part for part in make_parts() if not part.controls or part.controls & self.wanted
            ]
        except Exception as error:
            self.missed.append((self.wanted, error))
        while parts:
            part = parts.pop(0)
            try:
                self._at(part)
            except Exception as error:  # whatever it was, the other controls are looked at
                left = sorted(part.controls & self.wanted)
                # Of one control alone the next try would read just the same.
                if part.alone is None or len(left) < 2:
                    self.missed.append((part.controls & self.wanted, error))
                else:
                    # Next, not last: the deadline is shared, and the parts behind were asked for
                    # later.
                    parts[:0] = [_alone(part, part.alone, control) for control in left]

    def _at(self, part: Part) -> None:
        _require_time(part, "before it was read")
        audit = part.make()
        state = audit.gather()
        found = audit.plan(state).findings
        # A finding without a control belongs to no choice of controls, so it is always kept.
        kept = [
            finding
            for finding in found
            if finding.control in self.wanted
            or (not finding.control and finding not in self.findings)
        ]
        self.findings += kept
        left = len(found) - len(kept)
        self.healthy.append(
            f"{left} findings of controls that were not asked for" if left else audit.healthy(state)
        )
        taken = len(json.dumps(self.facts)) if self.facts else 0
        facts, left_out = _facts(audit, taken) if part.tells else ({}, [])
        self.facts.update(facts)
        self.findings += left_out
        _require_time(part, "while it was read, so part of it may be missing")
        lacking = audit.not_assessed(state) if isinstance(audit, PartlyAssessed) else {}
        for control in sorted(self.wanted & lacking.keys()):
            why = lacking[control]
            self.missed.append((frozenset({control}), StorageOpsError(why, code=why.code)))
        absent = audit.not_applicable(state) if isinstance(audit, Judging) else {}
        self.absent.append((part.controls, absent))

    def not_applicable(self) -> dict[str, dict[str, str]]:
        """``not_applicable`` of the result: controls of which no part has anything to look at."""
        # What was found was there, and what could not be read may be.
        seen = {finding.control for finding in self.findings}
        seen |= {control for controls, _error in self.missed for control in controls}
        reasons: dict[str, str] = {}
        for control in sorted(self.wanted - seen):
            told = [
                absent.get(control, "") for controls, absent in self.absent if control in controls
            ]
            if told and all(told):
                reasons[control] = untrusted.shown("; ".join(dict.fromkeys(told)))
        return {"not_applicable": reasons} if reasons else {}

    def not_assessed(self) -> dict[str, Any]:
        """``not_assessed`` and ``not_assessed_codes`` of the result; empty if all was read."""
        if not self.missed:
            return {}
        reasons, codes = _not_assessed(self.missed)
        return {"not_assessed": reasons, "not_assessed_codes": codes} if reasons else {}


def _alone(part: Part, make: Callable[[str], Audit[Any]], control: str) -> Part:
    return part._replace(controls=frozenset({control}), make=lambda: make(control), alone=None)


def _require_time(part: Part, when: str) -> None:
    """What is read after the deadline looks like nothing, and nothing would look healthy."""
    if part.deadline is not None and not part.deadline.remaining():
        raise StorageOpsError(
            f"the deadline passed {when}: raise deadline, or ask for fewer controls",
            code="deadline_passed",
        )


def _not_assessed(
    missed: Sequence[tuple[frozenset[str], Exception]],
) -> tuple[dict[str, str], dict[str, str]]:
    """Control -> why it could not be looked at, or not wholly; and the code of the first why."""
    reasons: dict[str, list[Reason]] = {}
    for controls, error in missed:
        for control in controls:
            reasons.setdefault(control, []).append(Reason(code_of(error), _error(error)))
    known = sorted(filter(None, reasons))
    return {
        control: "; ".join(dict.fromkeys(reasons[control]))[:MAX_MESSAGE_CHARACTERS]
        for control in known
    }, {control: reasons[control][0].code for control in known}


def _missed_message(
    missed: Sequence[tuple[frozenset[str], Exception]], wanted: frozenset[str], plan: Plan
) -> str:
    """Reasons with their controls; where there is only one reason for all of them, that alone."""
    controls_by_reason: dict[str, set[str]] = {}
    for controls, error in missed:
        controls_by_reason.setdefault(_error(error), set()).update(controls)
    if len(controls_by_reason) == 1 and wanted in controls_by_reason.values():
        return next(iter(controls_by_reason))
    parts = [
        f"{', '.join(sorted(controls))} not assessed: {reason}"
        for reason, controls in controls_by_reason.items()
    ]
    return (
        f"{'; '.join(parts)}. {len(plan.findings)} "
        f"finding{'s' * (len(plan.findings) != 1)} of the others"
    )[:MAX_MESSAGE_CHARACTERS]


def _first_traceback(missed: Sequence[tuple[frozenset[str], Exception]]) -> dict[str, str]:
    return next((told for _controls, error in missed for told in [_traceback(error)] if told), {})


def _carry_out(runbook: Runbook[State], plan: Plan) -> dict[str, Any]:
    """Apply and prove finding by finding; the first failure ends the run, after what it left half
    done is taken back.

    A finding whose repair was not even begun, since the world has changed, is refused, and the run
    goes on. So it does after a repair that failed and has left nothing half made (see Contained).

    Returns why it was not seen what has come of it (see Watching); empty if it was.
    """
    try:
        with _signals_as_errors() as signals:
            for finding in plan.findings:
                if finding.repair:
                    # One whose error was caught by the action before ends the run here.
                    signals.listen()
                    _repair(runbook, finding, signals)
                # One that was refused meanwhile has no action left, and so nothing to prove.
                if finding.repair and not finding.failed:
                    _prove(runbook, finding)
            # Within the signals: one that comes now must not hide what was done.
            return _watch(runbook, signals) if isinstance(runbook, Watching) else {}
    finally:
        # Only what a failure left behind is still planned here.
        for action in plan.actions:
            action.outcome = "skipped" if action.outcome == "planned" else action.outcome


def _watch(runbook: Watching, signals: _Signals) -> dict[str, Any]:
    """Why the task fails if the look did not come to its end; empty if it did."""
    try:
        signals.listen()
        runbook.watch()
        # One whose error was caught by the look.
        signals.listen()
    except Exception as error:  # whatever it was, what has been done must be told
        signals.deafen()
        return {"msg": _error(error), "code": code_of(error), **_traceback(error)}
    return {}


def _late() -> Ended:
    return Ended(
        "the deadline passed long ago, and the module was still busy: raise deadline, or narrow "
        "the scope",
        code="deadline_passed",
    )


@contextlib.contextmanager
def ended_if_late(deadline: float) -> Iterator[None]:
    """Raise StorageOpsError well after a deadline, wherever the module is by then.

    All that may hang runs in children, each with a time limit. This is for what is only long, and
    for the rest. It ends no wait in the kernel that only SIGKILL ends.
    """

    def late(_number: int, _frame: Any) -> None:
        raise _late()

    # Only the main thread may; a number that is none is refused later, as an option.
    main = threading.current_thread() is threading.main_thread()
    if not main or not 0 < deadline < math.inf:
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    try:
        # The most that a timer of all systems can hold.
        first = min(deadline + LATE_SECONDS, 100_000_000.0)
        signal.setitimer(signal.ITIMER_REAL, first, AGAIN_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Signals:
    """Signals that end the module: the first is an error, kept while something is taken back."""

    def __init__(self) -> None:
        self._deaf = False
        self._came = ""
        self._again = -math.inf

    def interrupt(self, number: int, _frame: Any) -> None:
        """Handle one."""
        # What others send says more than that the module is late.
        if self._came in ("", _LATE):
            self._came = signal.Signals(number).name
        # Not while the error of the one before is still on its way: it would leave out what notes
        # which action has failed. After that, the action must have caught it.
        if not self._deaf and time.monotonic() >= self._again:
            self.listen()

    def deafen(self) -> None:
        """Until ``listen``, none is an error."""
        self._deaf = True

    def listen(self) -> None:
        """Raise the one that came, if one did."""
        self._deaf = False
        self._again = time.monotonic() + AGAIN_SECONDS if self._came else self._again
        if self._came == _LATE:
            raise _late()
        if self._came:
            raise Ended(f"interrupted by {self._came}", code="interrupted")


@contextlib.contextmanager
def _signals_as_errors() -> Iterator[_Signals]:
    """A signal that ends the module becomes an error, so that what was begun is taken back."""
    signals = _Signals()
    before = {}
    try:
        # A job that is cancelled ends the module by SIGTERM, a lost connection by SIGHUP, a person
        # at a shell by SIGINT (signal(7)).
        # Only the main thread may; and what is ignored (nohup) stays so.
        if threading.current_thread() is threading.main_thread():
            # An alarm: see ended_if_late.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, signals.interrupt)
        yield signals
    finally:
        signals.deafen()
        for number, handler in before.items():
            signal.signal(number, handler)


def _rehearse(runbook: Rehearsed, plan: Plan) -> None:
    """What a real run would not get through is no repair, and check mode says so."""
    for finding in plan.findings:
        for action in finding.repair:
            try:
                runbook.rehearse(action)
            except PassedOver:
                continue
            except StorageOpsError as error:
                said = f"{action.verb} {action.target} would fail: {error}"
                finding.refuse(Reason(error.code, said))
                break


def _repair(runbook: Runbook[State], finding: Finding, signals: _Signals) -> None:
    action = finding.repair[0]
    try:
        # Not a copy: the first action may find more to be done than was planned.
        for action in finding.repair:
            _timed(runbook, action)
    except Exception as error:
        # An action that failed may have done half of its work.
        begun = [step for step in finding.repair if step.outcome in ("done", "failed")]
        if isinstance(error, NotStarted) and not isinstance(error, Missed) and not begun:
            finding.refuse(Reason(error.code, f"{action.verb} was not started: {error}"))
            return
        # A second signal must not interrupt what takes the first half back.
        signals.deafen()
        taken_back, clean = _take_back(runbook, finding, begun)
        said = f"{action.verb} {action.target} failed: {_error(error)}. {taken_back}"
        left = _left_half_made(runbook, finding, error) if clean else None
        if left == []:
            finding.fail(Reason(code_of(error), said.rstrip()))
        if left != [] or isinstance(error, Prevented):
            said += f"{'; '.join(left)}. " if left else ""
            raise ActionFailed(f"{said}Nothing after it was done.", code=code_of(error)) from error
        # A signal that came meanwhile ends the run here, before the next finding.
        signals.listen()


def _prove(runbook: Runbook[State], finding: Finding) -> None:
    try:
        finding.evidence["proof"] = runbook.verify(finding)
    except StorageOpsError as error:
        left = _left_half_made(runbook, finding, error)
        if left == []:
            finding.fail(_unproven(finding, error))
        if left != [] or isinstance(error, Prevented):
            raise


def _unproven(finding: Finding, error: StorageOpsError) -> Reason:
    """Why a repair is not proven. One whose proof could not be read is no more proven than one that
    the proof contradicts.
    """
    if isinstance(error, ActionFailed):
        return Reason(error.code, _error(error))
    return Reason("repair_unproven", f"the repair of {finding.name} is not proven: {_error(error)}")


def _left_half_made(
    runbook: Runbook[State], finding: Finding, error: Exception
) -> list[str] | None:
    """What a repair that failed has left half made, after it was taken back; None if that is not
    known.

    Only if that is nothing, other findings may have their turn. Even then a Prevented ends the run:
    a missing right or the deadline meets the next one, too.
    """
    # A look that failed says nothing of what was changed; that is read here.
    if not isinstance(error, StorageOpsError) or isinstance(error, Ended):
        return None
    if not isinstance(runbook, Contained):
        return None
    if not any(step.outcome in ("done", "failed") for step in finding.repair):
        return []
    try:
        return runbook.half_made(finding)
    except Exception as unread:
        return [f"what is left of it is not known ({_error(unread)})"]


def _timed(runbook: Runbook[State], action: Action) -> None:
    started = time.monotonic()
    try:
        runbook.apply(action)
        action.outcome = "done"
    except PassedOver:
        action.outcome = "skipped"
    except Exception as error:
        # These promise that nothing was changed; any other error may have come half-way.
        nothing = isinstance(error, (NotStarted, Prevented, Unread))
        action.outcome = "skipped" if nothing else "failed"
        raise
    finally:
        action.seconds = time.monotonic() - started


def _take_back(runbook: Runbook[State], finding: Finding, begun: list[Action]) -> tuple[str, bool]:
    """Undo what can be undone of the actions begun, newest first: how that went, and
    whether well.
    """
    said, clean = "", True
    # Each action stands on those before it.
    for action in reversed(begun):
        try:
            undo = runbook.undo(action)
            if undo is None:
                continue
            # It changes something, too, so it is in the result with the others.
            finding.repair.append(undo)
            _timed(runbook, undo)
            said += f"{undo.verb} {undo.target} was done. "
        except Exception as error:
            # The others are taken back all the same: less is left to do by hand.
            said += f"{action.verb} {action.target} could not be undone: {_error(error)}. "
            clean = False
    return said, clean


def _facts(audit: Any, taken: int = 0) -> tuple[dict[str, Any], list[Finding]]:
    """What an audit hands on, and a finding for each list that has whole entries left out.

    ``taken``: characters that others hand on. Raises StorageOpsError for what is too long as a
    whole, since another module decides by it.
    """
    facts = audit.facts() if isinstance(audit, Telling) else {}
    owners = audit.owners() if isinstance(audit, Owned) else {}
    told, left_out = {}, []
    for key, value in facts.items():
        # Nothing is cut within what another module needs.
        told[key] = untrusted.clean(value, MAX_RESULT_CHARACTERS)
        if key in owners:
            control, owner = owners[key]
            told[key], left = turns.within(
                told[key],
                owner,
                # Its comma and blank with it.
                lambda entry: len(json.dumps(entry)) + 2,
                MAX_LIST_CHARACTERS,
            )
            left_out += [_left_out(control, key, left)] if left else []
    # Measured as it is returned: a character that is escaped becomes up to ten.
    length = len(json.dumps(told)) if told else 0
    if taken + length > MAX_RESULT_CHARACTERS:
        raise StorageOpsError(
            f"{', '.join(told)} would take {length} characters, and a result has at most "
            f"{MAX_RESULT_CHARACTERS}: nothing of it may be missing, so narrow the run down",
            code="result_too_long",
        )
    return told, left_out


def _left_out(control: str, key: str, left: Counter[Any]) -> Finding:
    number = sum(left.values())
    return Finding(
        control=control,
        severity="minor",
        kind="result",
        name=key,
        node="",
        summary=f"{number} entries of the result's {key} are left out, since it is too long",
        reason="whose they are is in the evidence: look at these alone",
        runbook="",
        evidence={"left_out": [f"{owner or 'unknown'}: {n}" for owner, n in left.most_common()]},
    )


def _error(error: Exception) -> str:
    """Our own errors speak for themselves; of others the kind matters too.

    Both may quote what others wrote.
    """
    # In one line: Ansible 2.19 prints the message of a failed task as it is, so a line feed in it
    # would forge a line of the job's output.
    told = str(error) if isinstance(error, StorageOpsError) else f"{type(error).__name__}: {error}"
    return untrusted.shown(told)


def _traceback(error: Exception) -> dict[str, str]:
    """For an error that was not foreseen, where it happened. It may quote what others wrote."""
    if isinstance(error, StorageOpsError):
        return {}
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {"exception": untrusted.shown("".join(lines), MAX_TRACEBACK, lines=True)}


def _result(plan: Plan, taken: int = 0) -> dict[str, Any]:
    """``taken``: characters of the rest of the result."""
    room = _room(taken)
    every = [
        (_owner(finding), action.to_result())
        for finding in plan.findings
        for action in finding.repair
    ]
    # The actions have a quarter, if they need it, and what the findings leave.
    needed = min(shortening.length([action for _whose, action in every]), room // 4)
    findings = _findings(plan, room - needed)
    actions, left = turns.within(
        every, itemgetter(0), _length_of_action, room - shortening.length(findings)
    )
    # A failed action may have changed something, and a planned one would (check mode).
    changed = any(action.outcome in ("done", "failed", "planned") for action in plan.actions)
    return {
        "changed": changed,
        "findings": findings,
        "actions": [action for _whose, action in actions],
        **({"actions_left_out": sum(left.values())} if left else {}),
    }


def _room(taken: int) -> int:
    # The message is part of the result as well.
    return max(MAX_RESULT_CHARACTERS - MAX_MESSAGE_CHARACTERS - taken, MIN_FINDINGS_CHARACTERS)


def _steps(repair: Sequence[Action]) -> tuple[list[dict[str, Any]], int]:
    """The steps that a finding tells, in order, and how many it does not."""
    # What was not done tells most, and conclude has to see that there is such a step.
    ranks = {"failed": 0, "done": 2}
    order = sorted(range(len(repair)), key=lambda step: ranks.get(repair[step].outcome, 1))
    told: dict[int, dict[str, Any]] = {}
    room = MAX_STEPS_CHARACTERS
    for step in order[:MAX_STEPS]:
        told[step] = repair[step].to_result()
        room -= len(json.dumps(told[step]))
        if room <= 0:
            break
    return [told[step] for step in sorted(told)], len(repair) - len(told)


def _length_of_action(told: tuple[str, dict[str, Any]]) -> int:
    # Its comma and blank with it.
    return shortening.length(told[1]) + 2


def _findings(plan: Plan, room: int) -> list[dict[str, Any]]:
    """The findings in so many characters."""
    told = [
        _Told(_owner(finding), finding.to_result(), finding.evidence) for finding in plan.findings
    ]
    excess = sum(map(_Told.size, told)) - room
    # Each alone first: one that is long must not cost another its evidence.
    for one in told if excess > 0 else ():
        excess -= one.size()
        one.finding["evidence"] = shortening.shortened(one.evidence, one.finding["evidence"])
        excess += one.size()
    # The least severe, and who has most, first. Only what explains goes; object, verdict, code and
    # what is DECIDING stay, since playbooks and the report decide on them.
    for one in reversed(turns.in_turns(told, _Told.whose, _Told.weight, _Told.size)):
        if excess <= 0:
            break
        excess -= one.size()
        one.finding["evidence"] = {
            **shortening.deciding(one.evidence),
            "cut": "left out, since the result is too long for AWX; run "
            "with this object alone to see it",
        }
        one.finding["reason"] = one.finding["reason"][:300]
        excess += one.size()
    return _shorten(told, room) if excess > 0 else [one.finding for one in told]


class _Told(NamedTuple):
    """A finding as it is told, whose it is, and its whole evidence."""

    owner: str
    finding: dict[str, Any]
    evidence: dict[str, Any]

    def whose(self) -> str:
        """For turns."""
        return self.owner

    def weight(self) -> int:
        """Critical findings of an owner come before another's first one while they are not more
        than 8 times as long.
        """
        return int(2 ** SEVERITIES.index(self.finding["severity"]))

    def size(self) -> int:
        """Its characters in the result."""
        return len(json.dumps(self.finding)) + 2


def _owner(finding: Finding) -> str:
    """Who could have made many such findings: a tenant, in its namespace; or a node."""
    namespace = finding.namespace or str(finding.evidence.get("claim", "")).rpartition("/")[0]
    if namespace:
        return f"namespace {namespace}"
    return finding.owner or (f"node {finding.node}" if finding.node else "no owner")


def _shorten(told: Sequence[_Told], characters: int) -> list[dict[str, Any]]:
    """As many of the findings as there is room for, in turns of their owners, and one that counts
    the others.

    Of an owner the most severe ones; of equal ones those go last that a playbook needs.
    """
    told = sorted(
        told,
        key=lambda one: (SEVERITIES.index(one.finding["severity"]), "workload" not in one.finding),
    )
    # The one that counts them has to fit as well.
    room = characters - shortening.MAX_EVIDENCE
    kept, owners = turns.within(told, _Told.whose, _Told.size, room, _Told.weight)
    there = {id(one.finding) for one in kept}
    left = [one.finding for one in told if id(one.finding) not in there]
    controls = Counter(finding["control"] or "no control" for finding in left)
    nodes = Counter(finding["object"]["node"] or "no node" for finding in left)
    others = Finding(
        control="",
        severity=left[0]["severity"],
        kind="findings",
        name=f"{len(left)} more",
        node="",
        summary=f"{len(left)} more findings are left out, since the result is too long for AWX",
        reason="narrow the run down to see them",
        evidence={
            what: [f"{name}: {count}" for name, count in counts.most_common()]
            for what, counts in (("controls", controls), ("nodes", nodes), ("owners", owners))
        },
    )
    counted = others.to_result()
    counted["evidence"] = shortening.shortened(others.evidence, counted["evidence"])
    return [*(one.finding for one in kept), counted]


def _message(plan: Plan, healthy: str, check_mode: bool) -> str:
    if not plan.findings:
        return f"nothing to do: {healthy}"
    # What was taken back has actions as well, and is no repair.
    to_repair = [finding for finding in plan.findings if finding.repair and not finding.failed]
    parts = [f"{len(plan.findings)} finding{'s' * (len(plan.findings) != 1)}"]
    if to_repair:
        parts.append(
            f"{len(to_repair)} {'would be repaired' if check_mode else 'repaired and proven'}"
        )
    # Why these have failed stands before this message.
    failed = sum(finding.failed for finding in plan.findings)
    if failed:
        parts.append(f"{failed} failed")
    refused = [finding for finding in plan.refusals if not finding.failed]
    if refused:
        parts.append(f"{len(refused)} refused ({_told(refused[:1], '; ')})")
    reported = len(plan.findings) - len(to_repair) - len(plan.refusals)
    if reported:
        parts.append(f"{reported} only reported")
    return untrusted.shown(", ".join(parts)[:MAX_MESSAGE_CHARACTERS])


def _audit_message(plan: Plan, healthy: str) -> str:
    """The same for who only looks: nothing was asked for that could be refused."""
    if not plan.findings:
        return f"nothing to do: {healthy}"
    to_repair = sum(bool(finding.repair) for finding in plan.findings)
    left = len(plan.findings) - to_repair
    parts = [f"{len(plan.findings)} finding{'s' * (len(plan.findings) != 1)}"]
    if to_repair:
        parts.append(f"{to_repair} would be repaired")
    if left:
        why = f" ({_told(plan.refusals[:1], '; ')})" if plan.refusals else ""
        parts.append(f"{left} need{'s' * (left == 1)} attention{why}")
    return untrusted.shown(", ".join(parts)[:MAX_MESSAGE_CHARACTERS])


def _lines(lines: list[str]) -> str:
    """One side of a difference."""
    told = shortening.fitting(lines, MAX_DIFF_CHARACTERS, len(lines))
    return "".join(f"{line}\n" for line in told)
