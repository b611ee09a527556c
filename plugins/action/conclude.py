# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller: the one rule for when a run fails at its end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils._core import turns, untrusted

ROLES = Path(__file__).resolve().parents[2] / "roles"
# A play sets this variable if it concludes for all of its hosts together, after the last of them.
LATER = "__conclude_later"
# What playbooks/tasks/gave_up.yml sets on a host where a role has failed.
GAVE_UP = "__gave_up"
# What playbooks/tasks/reach.yml sets on a host that it leaves out.
NO_TURN = "__no_turn"
# Limits of an AWX artifact and of a message: AWX keeps artifacts with the job, and people read
# both.
MAX_LEFT = 50
MAX_CHARACTERS = 300
COUNTS = ("repaired", "would_be_repaired", "refused", "reported")
SPEC: dict[str, dict[str, Any]] = {
    "findings": {"type": "list", "elements": "dict", "default": []},
    "repaired": {"type": "list", "elements": "str", "default": []},
    "left": {"type": "list", "elements": "str", "default": []},
    "not_assessed": {"type": "list", "elements": "str", "default": []},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "strict": {"type": "bool", "default": False},
    "audit": {"type": "bool", "default": False},
    "fail": {"type": "bool", "default": True},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action of this file."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Report what is left, and fail where that is not a success."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _ok, params = self.validate_argument_spec(argument_spec=SPEC)
        variables = task_vars or {}
        check = bool(self._task.check_mode)
        outcomes = [
            outcome(
                params["findings"],
                check,
                params["strict"],
                params["repaired"],
                params["left"],
                params["not_assessed"],
            )
        ]
        outcomes += [_outcome_of(host, variables) for host in params["hosts"]]
        said = conclude(outcomes, check or params["audit"])
        later = bool(variables.get(LATER, False)) and not params["hosts"]
        if params["fail"]:
            return {**result, **said, "changed": False, "failed": said["failing"] and not later}
        # The form of set_stats, which AWX turns into artifacts.
        stats = {
            "data": {"storage_outcome": said["outcome"]},
            "per_host": False,
            "aggregate": False,
        }
        return {**result, **said, "changed": False, "ansible_stats": stats}


def outcome(
    findings: Iterable[Mapping[str, Any]],
    check: bool,
    strict: bool,
    repaired: Iterable[str] = (),
    refused: Sequence[str] = (),
    not_assessed: Sequence[str] = (),
) -> dict[str, Any]:
    """What became of findings, and in ``left`` what is as broken as before.

    ``repaired``: objects that were repaired by other means. ``refused``, ``not_assessed``: more of
    these, as texts.
    """
    counts = {**dict.fromkeys(COUNTS, 0), "refused": len(refused)}
    left = _shown(refused)
    # Both are as long as root on a host likes.
    others = frozenset(repaired)
    for finding in findings:
        became, text = _became(finding, check, others)
        if became:
            counts[became] += 1
        if text:
            left.append(untrusted.shown(text))
    return {**counts, "left": left, "not_assessed": _shown(not_assessed), "strict": strict}


def _became(finding: Mapping[str, Any], check: bool, repaired: Collection[str]) -> tuple[str, str]:
    """What a finding counts as, and the text of it if it is left; both may be empty."""
    if _named(finding["object"]) in repaired:
        return ("would_be_repaired" if check else "repaired"), ""
    text = _text(finding)
    if finding["verdict"] == "repair":
        undone = _undone(finding)
        if check or not undone:
            return ("would_be_repaired" if check else "repaired"), ""
        return "would_be_repaired", f"{text} ({undone})"[:MAX_CHARACTERS]
    if finding["verdict"] == "refuse":
        return "refused", text[:MAX_CHARACTERS]
    # A note (info) is about nothing that is broken.
    if finding["verdict"] == "report" and finding["severity"] != "info":
        return "reported", text[:MAX_CHARACTERS]
    return "", ""


def conclude(outcomes: Sequence[Mapping[str, Any]], only_looked: bool) -> dict[str, Any]:
    """The outcome of all, and whether it is a failure.

    What could not be assessed is one, and so is what is left after a repair.
    """
    texts = {key: [each[key] for each in outcomes] for key in ("left", "not_assessed")}
    left, not_assessed = ([*chain(*texts[key])] for key in texts)
    strict = any(each["strict"] for each in outcomes)
    counts = {name: sum(int(each[name]) for each in outcomes) for name in COUNTS}
    shown = {key: _first(each) for key, each in texts.items()}
    parts = [f"{len(left)} left: {'; '.join(shown['left'])}"] if left else []
    if not_assessed:
        parts.append(f"{len(not_assessed)} not assessed: {'; '.join(shown['not_assessed'])}")
    own = {**counts, "left": left, "not_assessed": not_assessed, "strict": strict}
    # An audit finds, and does not repair, so what is left fails it only where that was asked for.
    failing = bool(not_assessed or (left and (strict or not only_looked)))
    return {
        "msg": ". ".join(parts) or "nothing is left",
        "outcome": {**counts, **shown},
        "failing": failing,
        "own": own,
    }


def _outcome_of(host: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What the roles of a host registered."""
    # raw_get does not template: what a host returned must not be evaluated (HostVars of
    # ansible/vars/hostvars.py).
    found = variables["hostvars"].raw_get(host)
    found = found if isinstance(found, Mapping) else {}
    registered = [found.get(f"__{role.name}_outcome") for role in ROLES.iterdir()]
    own = [each["own"] for each in registered if isinstance(each, Mapping) and "own" in each]
    not_assessed = _texts_of(host, own, "not_assessed")
    # A host that did not come to its end was not assessed, as far as is known. One of several roles
    # may have: GAVE_UP says that another one did not.
    if found.get(NO_TURN):
        not_assessed.append(f"{host} (it had no turn, see above)")
    elif not own or found.get(GAVE_UP):
        not_assessed.append(f"{host} (it failed or was not reached, see above)")
    return {
        **{name: sum(int(each[name]) for each in own) for name in COUNTS},
        "left": _texts_of(host, own, "left"),
        "not_assessed": not_assessed,
        "strict": any(each["strict"] for each in own),
    }


def _texts_of(host: str, outcomes: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """The texts under a key, each with the host's name."""
    return [f"{host}: {text}" for each in outcomes for text in each[key]]


def _undone(finding: Mapping[str, Any]) -> str:
    """The first step of a repair that was not done, as in check mode."""
    return next(
        (
            f"{step['action']} {step['target']} was {step['outcome']}"
            for step in finding.get("repair") or ()
            if step["outcome"] != "done"
        ),
        "",
    )


def _text(finding: Mapping[str, Any]) -> str:
    thing = finding["object"]
    return f"{thing['kind']} {_named(thing)}: {finding['reason'] or finding['summary']}"


def _named(thing: Mapping[str, Any]) -> str:
    """The name of an object with its namespace: a tenant chooses the names in its own."""
    return f"{thing['namespace']}/{thing['name']}" if thing.get("namespace") else str(thing["name"])


def _shown(texts: Iterable[str]) -> list[str]:
    return [untrusted.shown(text[:MAX_CHARACTERS]) for text in texts]


def _first(texts: Iterable[Sequence[str]]) -> list[str]:
    """The first of each host's texts, in the order given, and how many more there are."""
    every = [(number, text) for number, own in enumerate(texts) for text in own]
    # In turns, since root on a host has it find as much as it likes.
    chosen = turns.in_turns(range(len(every)), lambda place: every[place][0])[:MAX_LEFT]
    left = len(every) - MAX_LEFT
    shown = [every[place][1] for place in sorted(chosen)]
    return [*shown, *([f"and {left} more"] if left > 0 else [])]
