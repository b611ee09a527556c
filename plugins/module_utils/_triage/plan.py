# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that are stuck: which control it is, and the one command that repairs it (R15).

What the objects prove counts more than what a message says; a message that is unknown is shown as
it is. Pure: no I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Callable

from .._core import controls, untrusted
from .._core.engine import Finding, Plan
from .._core.turns import in_turns
from .._kube.objects import Pod
from .evidence import evidence_of
from .messages import current, of_a_running_pod, told
from .proven import ending, silent, unreported_node, waiting
from .state import Cause, Seen, TriageOptions, TriageState, elapsed

# Claims of a pod that are handed on to be moved. A node attaches a few hundred volumes at most
# (CSINode, spec.drivers[].allocatable.count), and what is handed on is never cut.
MAX_CLAIMS = 100
# What a finding of triage may be about; "" is none of the controls.
CONTROLS = {"", *controls.REPAIRABLE, "STOR-15"}


def plan(
    state: TriageState, options: TriageOptions, go_on: Callable[[], bool] = lambda: True
) -> Plan:
    """One finding for every pod that is stuck, and what was not judged.

    ``go_on`` is asked before each pod whether there is time for it.
    """
    # In turns, so that the pods of one namespace do not use up the time of others'.
    turns = in_turns(state.suspects, lambda seen: seen.pod.namespace)
    findings, judged = [], 0
    for seen in turns:
        if not go_on():
            break
        judged += 1
        cause = _cause(seen, state, options)
        findings += [_finding(seen, cause, state)] if cause else []
    return Plan([*findings, *_not_judged(turns[judged:]), *_unread(state), *_unread_events(state)])


def _not_judged(left: Sequence[Seen]) -> list[Finding]:
    """The finding about pods for which there was no time."""
    if not left:
        return []
    counts = Counter(seen.pod.namespace for seen in left)
    return [
        _not_assessed(
            # As what has no room in a result: respond takes so many for an outage.
            "findings",
            f"{len(left)} more",
            f"{len(left)} pods that look stuck were not judged: the deadline passed",
            "raise deadline, or ask for fewer (namespace, node)",
            [f"{namespace}: {number}" for namespace, number in counts.most_common()],
        )
    ]


def _unread(state: TriageState) -> list[Finding]:
    """The finding about objects of which nothing could be made."""
    # A named pod's own objects can be read.
    if not state.unread or state.named:
        return []
    number = len(state.unread)
    return [
        _not_assessed(
            "objects",
            f"{number} unreadable",
            f"{number} objects are not as Kubernetes makes them, and were left out",
            "look at these alone; whoever owns them, or their controller, has to mend them",
            [f"{place}: {why}" for place, why in sorted(state.unread.items())],
        )
    ]


def _unread_events(state: TriageState) -> list[Finding]:
    """The finding about namespaces in which messages may be missing."""
    if not state.unread_events:
        return []
    number = len(state.unread_events)
    of_them = f"of {number} namespace{'s' * (number != 1)}"
    return [
        _not_assessed(
            "events",
            of_them,
            f"the events {of_them} could not be read in time, so messages about pods there may be "
            "missing",
            "delete events there that are too many or too big, or raise deadline",
            [f"{name}: {time:.0f} s" for name, time in sorted(state.unread_events.items())],
        )
    ]


def _not_assessed(kind: str, name: str, summary: str, reason: str, whose: list[str]) -> Finding:
    return Finding(
        control="",
        severity="minor",
        kind=kind,
        name=name,
        node="",
        summary=summary,
        reason=reason,
        evidence={"not_assessed": whose},
    )


def _cause(seen: Seen, state: TriageState, options: TriageOptions) -> Cause | None:
    """Why a pod is stuck; None when it is not, after all."""
    messages = current(seen, state)
    # For a pod that is being deleted, what kept it from starting does not matter any more.
    if seen.pod.deleted:
        return ending(seen, state) or told(messages, seen, state) or silent(seen, state)
    # The states that a silent kubelet has reported are old, and so are its events.
    lost = unreported_node(seen, state)
    if lost:
        return lost
    if seen.pod.phase == "Running":
        return told(of_a_running_pod(messages, seen), seen, state)
    return waiting(seen, state, options) or told(messages, seen, state) or silent(seen, state)


def _finding(seen: Seen, cause: Cause, state: TriageState) -> Finding:
    pod = seen.pod
    facts = {
        "node": pod.node,
        "namespace": pod.namespace,
        "pod": pod.name,
        "claim": pod.claims[0] if pod.claims else "",
        **cause.facts,
    }
    where = f" on {pod.node}" if pod.node else ""
    return Finding(
        control=cause.control,
        severity=cause.severity,
        kind="pod",
        name=pod.name,
        node=pod.node,
        namespace=pod.namespace,
        summary=f"{_what_it_does(pod)}{where} for "
        f"{elapsed(state.now, pod.deleted or seen.since)}: {_fill(cause.why, facts)}",
        reason=_reason(cause, facts),
        runbook=controls.runbook(cause.control),
        evidence={**evidence_of(seen, state), **cause.evidence},
        workload=_workload(pod),
    )


def _workload(pod: Pod) -> dict[str, object] | None:
    """What workload_reattach would move."""
    if not 0 < len(pod.claims) <= MAX_CLAIMS:
        return None
    return {"namespace": pod.namespace, "claims": list(pod.claims)}


def _what_it_does(pod: Pod) -> str:
    if pod.deleted:
        return "is being deleted"
    return "is not ready" if pod.phase == "Running" else "has been waiting"


def _reason(cause: Cause, facts: Mapping[str, str]) -> str:
    """The one command that repairs it, or where to look."""
    command = controls.command(cause.control, facts)
    look = _fill(cause.look, facts)
    # Without all facts there is no command: a reader would run it with a placeholder.
    if command:
        return f"{command} (with --check first); {look}"
    if cause.severity == "info":
        return f"not storage: {look}"
    return look


def _fill(text: str, facts: Mapping[str, str]) -> str:
    """Put the facts into one of our texts.

    Not str.format(): a driver's message in the text may hold braces. A fact that is no plain name
    is left out, since a reader may copy the command.
    """
    for name, value in facts.items():
        text = text.replace(
            f"{{{name}}}", value if untrusted.is_plain(value) else f"({name} unknown)"
        )
    return text
