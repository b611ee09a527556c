# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller: the one rule for what colour a run ends in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted

ROLES = Path(__file__).resolve().parents[2] / "roles"
# What a play sets that concludes for all of its hosts, once all of them had their turn.
LATER = "__conclude_later"
# As far as an artifact of AWX, and a message, should go.
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
        """Say what is left, and fail where that is no success."""
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
    repaired: Sequence[str] = (),
    refused: Sequence[str] = (),
    not_assessed: Sequence[str] = (),
) -> dict[str, Any]:
    """What became of findings, and in ``left`` what is as broken as before.

    A hint (``info``) is nothing that is broken.
    ``refused``, ``not_assessed``: what else is, or was not looked at, as texts.
    """
    counts = {**dict.fromkeys(COUNTS, 0), "refused": len(refused)}
    left = _shown(refused)
    for finding in findings:
        others = _named(finding["object"]) in repaired
        verdict, undone = ("repair", "") if others else (finding["verdict"], _undone(finding))
        if verdict == "repair":
            counts["would_be_repaired" if check or undone else "repaired"] += 1
        if verdict == "repair" and undone and not check:
            left.append(untrusted.shown(f"{_text(finding)} ({undone})"[:MAX_CHARACTERS]))
        elif verdict == "refuse" or (verdict == "report" and finding["severity"] != "info"):
            counts["refused" if verdict == "refuse" else "reported"] += 1
            left.append(untrusted.shown(_text(finding)[:MAX_CHARACTERS]))
    return {**counts, "left": left, "not_assessed": _shown(not_assessed), "strict": strict}


def conclude(outcomes: Sequence[Mapping[str, Any]], only_looked: bool) -> dict[str, Any]:
    """The outcome of all, and whether it is a failure: what could not be looked at is one, what is
    left where it was to be repaired.
    """
    left = [text for each in outcomes for text in each["left"]]
    not_assessed = [text for each in outcomes for text in each["not_assessed"]]
    strict = any(each["strict"] for each in outcomes)
    counts = {name: sum(int(each[name]) for each in outcomes) for name in COUNTS}
    told = {**counts, "left": _first(left), "not_assessed": _first(not_assessed)}
    parts = [f"{len(left)} left: {'; '.join(_first(left))}"] if left else []
    parts += (
        [f"{len(not_assessed)} not assessed: {'; '.join(_first(not_assessed))}"]
        if not_assessed
        else []
    )
    own = {**counts, "left": left, "not_assessed": not_assessed, "strict": strict}
    failing = bool(not_assessed or (left and (strict or not only_looked)))
    return {
        "msg": ". ".join(parts) or "nothing is left",
        "outcome": told,
        "failing": failing,
        "own": own,
    }


def _outcome_of(host: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What the roles of a host registered.

    One that did not come to its end looked at nothing, as far as we know.
    """
    found = variables["hostvars"].raw_get(host)
    found = found if isinstance(found, Mapping) else {}
    registered = [found.get(f"__{role.name}_outcome") for role in ROLES.iterdir()]
    own = [each["own"] for each in registered if isinstance(each, Mapping) and "own" in each]
    if not own:
        return {
            **outcome([], False, False),
            "not_assessed": [f"{host} (it failed or was not reached, see above)"],
        }
    summed = {name: sum(int(each[name]) for each in own) for name in COUNTS}
    left = [f"{host}: {text}" for each in own for text in each["left"]]
    return {
        **summed,
        "left": left,
        "not_assessed": [f"{host}: {text}" for each in own for text in each["not_assessed"]],
        "strict": any(each["strict"] for each in own),
    }


def _undone(finding: Mapping[str, Any]) -> str:
    """What of a repair was only planned, as by a task in check mode."""
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
    """Namespaces may have objects of the same name, and a tenant chooses the names in one."""
    return f"{thing['namespace']}/{thing['name']}" if thing.get("namespace") else str(thing["name"])


def _shown(texts: Iterable[str]) -> list[str]:
    return [untrusted.shown(text[:MAX_CHARACTERS]) for text in texts]


def _first(texts: Sequence[str]) -> list[str]:
    left = len(texts) - MAX_LEFT
    return [*texts[:MAX_LEFT], *([f"and {left} more"] if left > 0 else [])]
