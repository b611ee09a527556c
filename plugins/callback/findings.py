# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: findings
type: stdout
short_description: Print findings as a table
version_added: 0.1.0
author:
  - The storage_ops.runbooks contributors (@storage-ops)
description:
  - Prints the results of this collection's modules as a table as wide as the terminal, then the
    reasons for refused and reported findings, the controls that are not applicable, and the actions
    that were or would be done. A module that has none of these has one line.
  - With C(-v), it also prints the evidence and the exact commands. From C(-vvv) on, it prints
    everything as JSON, like C(ansible.builtin.default).
  - Results of other modules are printed as by C(ansible.builtin.default); for the command
    C(ansible) also without C(-v). But the message with which C(ansible.builtin.fail) or
    C(ansible.builtin.assert) ends a run is printed once, as text.
  - The tasks of the role P(storage_ops.runbooks.show_findings#role) print nothing, since they would
    repeat the table.
  - On a terminal, a task that takes long prints its name and how long it has taken, again and
    again. With the command C(ansible), this is the module and the hosts. Files and AWX get none of
    these lines.
options:
  progress_seconds:
    description:
      - Seconds between two such lines; V(0) turns them off.
    type: float
    default: 10
    env:
      - name: STORAGE_OPS_PROGRESS_SECONDS
    ini:
      - section: callback_findings
        key: progress_seconds
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in configuration; the command C(ansible) also needs
    E(ANSIBLE_LOAD_CALLBACK_PLUGINS)
"""

import os
import re
import shlex
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible import context
from ansible.plugins.callback.default import CallbackModule as Default

_INDENT = "  "
_GAP = "  "
# Root on a host may write anything into a finding. The longest severity, control and verdict that
# there are have 8 columns, and our modules cut their texts at about as many characters.
_MAX_SHORT = 12
_MAX_CELL = 4_000
_STDERR = 2
# What our findings have; modules of other collections may return other findings.
_KEYS = {"control", "severity", "object", "verdict", "reason", "summary", "evidence"}
_ROLE = "storage_ops.runbooks.show_findings"
# Objects that one reason names.
_MOST_OBJECTS = 5
# What the kubelet's paths say, of which a column has no room for the whole (_node/kubelet.py). A
# host may answer with any text, so only words of a path's length are compared.
_PLACES = tuple(
    (re.compile(rf".*/{path}([,:;.]?)", re.ASCII), said)
    for path, said in (
        (r"pods/([^/]+)/volumes/[^/]+/([^/]+?)(?:/mount)?", r"\2 of pod \1\3"),
        (r"pods/([^/]+)/volume-subpaths/([^/]+)/([^/]+)/\d+", r"\2 in \3 of pod \1\4"),
        (r"plugins/kubernetes\.io/csi/pv/([^/]+)/globalmount", r"\1, staged\2"),
        (
            r"plugins/kubernetes\.io/csi/([^/]+)/([0-9a-f]{12})[0-9a-f]{52}/globalmount",
            r"\1 \2, staged\3",
        ),
    )
)
_MAX_PATH = 500
# Our modules' messages are shorter.
_MAX_MESSAGE = 10_000
# Characters of the findings, and of the actions, that are printed of one result. Our modules return
# at most as many (MAX_RESULT_CHARACTERS of the engine), and this runs in the process of all hosts.
_MAX_PRINTED = 500_000


def printable(text: str) -> str:
    """Text on one line, with control and invisible characters as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def width(text: str) -> int:
    """Columns that printable text takes on a terminal."""
    # Combining marks take none, wide and full-width characters two (Unicode Standard Annex 11).
    if text.isascii():
        return len(text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me") for character in text)
    return (
        len(text)
        - marks
        + sum(unicodedata.east_asian_width(character) in ("W", "F") for character in text)
    )


def wrap(text: str, columns: int) -> list[str]:
    """Text in lines of at most that many columns, broken between words where there are any."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if width(longer) <= columns:
            line = longer
            continue
        if line:
            lines.append(line)
        # A word that is longer than a line, such as a WWID, is broken anywhere.
        *whole, line = _broken(word, columns)
        lines += whole
    return [*lines, line]


def _broken(word: str, columns: int) -> list[str]:
    """A word in parts of at most that many columns."""
    parts, begin, used = [], 0, 0
    for at, character in enumerate(word):
        more = width(character)
        if at > begin and used + more > columns:
            parts.append(word[begin:at])
            begin, used = at, 0
        used += more
    return [*parts, word[begin:]]


def render(
    result: Mapping[str, Any], columns: int, verbose: bool, audit: bool = False
) -> list[str]:
    """A result with findings in lines: the message, the table, the reasons, the actions and, if
    verbose, the evidence. ``audit``: nothing was asked for that could be refused.
    """
    findings, left = _with_room(result["findings"])
    said, untold = _message(str(result.get("msg", "")), findings)
    lines = [printable(said)]
    if findings:
        lines += _table(findings, columns)
    if left:
        lines.append(f"{_INDENT}(+{left} findings; -vvv prints all)")
    # In check mode a module has not run any action yet, so those that were planned are shown.
    actions = result.get("actions") or [
        action for finding in findings for action in finding.get("repair", [])
    ]
    actions, skipped = _with_room(actions)
    steps = _steps(actions, verbose)
    if skipped:
        steps.append(f"{_INDENT}(+{skipped} actions; -vvv prints all)")
    # Not wrapped, so that the commands among them can be copied.
    for notes in (
        _notes(untold, audit),
        _not_applicable(result.get("not_applicable")),
        [*steps, *_left_out(result)],
    ):
        lines += ["", *notes] if notes else []
    if verbose:
        lines += [line for finding in findings for line in _all_evidence(finding)]
    return lines


def _with_room(items: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """Those that are printed, and how many are not."""
    room, shown = _MAX_PRINTED, []
    for item in items:
        room -= sum(len(str(value)) for value in item.values())
        if room < 0:
            break
        shown.append(item)
    return shown, len(items) - len(shown)


def _message(
    said: str, findings: Sequence[Mapping[str, Any]]
) -> tuple[str, list[Mapping[str, Any]]]:
    """The message without the reasons that follow as notes, and the findings with those."""
    # The first reason stands there, too, for other callbacks.
    told = {_told(finding) for finding in findings} if len(said) <= _MAX_MESSAGE else set()
    for text in told:
        said = said.replace(f" ({text})", "")
    told = {text for text in told if text in said}
    return said, [finding for finding in findings if _told(finding) not in told]


def _all_evidence(finding: Mapping[str, Any]) -> list[str]:
    """The evidence of a finding below its object; nothing where it has none."""
    if not finding["evidence"]:
        return []
    lines = [
        _INDENT * 2 + printable(line)
        for name, value in finding["evidence"].items()
        for line in _evidence(name, value)
    ]
    return ["", f"{_INDENT}{_object(finding)}", *lines]


def _table(findings: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    rows = [["SEVERITY", "CONTROL", "OBJECT", "VERDICT", "SUMMARY"]]
    for finding in findings:
        cells = [
            finding["severity"],
            finding["control"] or "-",
            _placed(_object(finding)),
            finding["verdict"],
            _placed(str(finding["summary"])),
        ]
        rows.append([printable(_cut(str(cell))) for cell in cells])
    # The object and the summary share what the short columns leave.
    widths = [max(width(row[column]) for row in rows) for column in range(5)]
    # Each line of the table is as wide as its columns, so one long text must not make them wide.
    for column in (0, 1, 3):
        widths[column] = min(widths[column], _MAX_SHORT)
    room = columns - len(_INDENT) - len(_GAP) * 4 - widths[0] - widths[1] - widths[3]
    # On a terminal that is too narrow for all columns, lines are longer than it.
    widths[2] = min(widths[2], max(room // 2, 10))
    widths[4] = max(room - widths[2], 10)
    return [line for row in rows for line in _row(row, widths)]


def _cut(text: str) -> str:
    left = len(text) - _MAX_CELL
    return f"{text[:_MAX_CELL]} (+{left} characters)" if left > 0 else text


def _row(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """One row of the table, in as many lines as its longest cell needs."""
    wrapped = [wrap(cell, columns) for cell, columns in zip(cells, widths)]
    for number in range(max(len(lines) for lines in wrapped)):
        parts = [lines[number] if number < len(lines) else "" for lines in wrapped]
        yield (
            _INDENT
            + _GAP.join(
                part + " " * (columns - width(part)) for part, columns in zip(parts, widths)
            )
        ).rstrip()


def _told(finding: Mapping[str, Any]) -> str:
    """A finding as the message of a result has it (_told of the engine)."""
    what = finding["object"]
    return f"{what['kind']} {what['name']}: {finding['reason']}".rstrip(".")


def _placed(text: str) -> str:
    """A text with what paths of the kubelet say, where the whole path would fill its column."""

    def placed(match: re.Match[str]) -> str:
        word = match[0]
        found = (path.fullmatch(word) for path, _said in _PLACES) if len(word) <= _MAX_PATH else ()
        return next((one.expand(said) for one, (_path, said) in zip(found, _PLACES) if one), word)

    return re.sub(r"\S+", placed, text, flags=re.UNICODE)


def _notes(findings: Sequence[Mapping[str, Any]], audit: bool) -> list[str]:
    """Why something is refused, and what to do about what is only reported: each reason once, with
    the objects that it is about.
    """
    words = {"refuse": "needs attention" if audit else "refused"}
    reported = "needs attention" if audit else "reported"
    by_reason: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding["verdict"] != "repair" and finding["reason"]:
            label = f" [{finding['code']}]" if finding.get("code") else ""
            key = words.get(finding["verdict"], reported), f"{finding['reason']}{label}"
            by_reason.setdefault(key, []).append(_object(finding))
    notes = []
    for (headword, why), objects in by_reason.items():
        left = len(objects) - _MOST_OBJECTS
        more = f" (+{left} more)" if left > 0 else ""
        notes.append(_note(headword, f"{', '.join(objects[:_MOST_OBJECTS])}{more}: {why}"))
    return notes


def _not_applicable(told: Any) -> list[str]:
    """The controls that have nothing to look at, those with the same evidence on one line."""
    if not isinstance(told, Mapping):
        return []
    by_reason: dict[str, list[str]] = {}
    for control, why in told.items():
        by_reason.setdefault(str(why), []).append(str(control))
    return [
        _note("not applicable", f"{', '.join(controls)}: {why}")
        for why, controls in by_reason.items()
    ]


def _steps(actions: Sequence[Mapping[str, Any]], verbose: bool) -> list[str]:
    lines = []
    for action in actions:
        seconds = f" ({action['seconds']:.1f} s)" if action["seconds"] else ""
        # Quoted, so that its words can be told apart. The host says that it runs this.
        command = f": {shlex.join(action['command'])}" if verbose else ""
        lines.append(
            _note(action["outcome"], f"{action['action']} {action['target']}{seconds}{command}")
        )
    return lines


def _left_out(result: Mapping[str, Any]) -> list[str]:
    """How many steps the result had no room for."""
    told = [finding.get("repair_left_out") for finding in result["findings"]]
    # Of an audit the steps of the findings are shown.
    told = [result.get("actions_left_out")] if result.get("actions") else told
    # A node may answer with anything.
    left = sum(number for number in told if isinstance(number, int) and 0 < number < 1_000_000)
    return [_note(f"+{left}", "more steps are not shown")] if left else []


def _note(headword: str, text: str) -> str:
    return printable(f"{_INDENT}{headword:<8}{_GAP}{text}")


def _object(finding: Mapping[str, Any]) -> str:
    what = finding["object"]
    namespace = f"{what['namespace']}/" if what.get("namespace") else ""
    return printable(f"{what['kind']} {namespace}{what['name']}")


def _evidence(name: str, value: Any) -> list[str]:
    """One piece of evidence: a long list item by item, anything else on one line to be copied."""
    line = f"{name}: {_plain(value)}"
    return (
        [f"{name}:", *(f"{_INDENT}- {_plain(item)}" for item in value)]
        if isinstance(value, list) and len(line) > 120
        else [line]
    )


def _plain(value: Any) -> str:
    """A value as the role show_findings writes it: JSON without its quotes and braces."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_plain(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_plain(inner) for inner in value) + "]"
    return str(value)


class Progress:
    """Tells in a thread of its own how long the task of the moment has taken.

    ``seconds``: between two lines. ``write`` must take no lock of Python: a worker that is forked
    in that moment would inherit it locked.
    """

    def __init__(
        self,
        seconds: float,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._write = write
        self._clock = clock
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        # One value, so that the thread never sees a name with the begin of another task.
        self._task = ("", 0.0)

    def begin(self, name: str) -> None:
        """A task begins."""
        self._task = (name, self._clock())
        if self._thread is None:
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """There are no more tasks."""
        self._over.set()

    def line(self) -> str:
        """What is told now."""
        name, began = self._task
        return f"{_INDENT}[{self._clock() - began:.0f} s] {printable(name)}"

    def _tell(self) -> None:
        task, told = self._task, 0
        while not self._over.wait(min(self._seconds, 1.0)):
            if task is not self._task:
                task, told = self._task, 0
            passed = int((self._clock() - task[1]) / self._seconds)
            if passed > told:
                told = passed
                self._write(f"{self.line()}\n")


def title(name: str, asked: Mapping[str, Any]) -> str:
    """What is told of a task, by its name and the arguments of the program."""
    # That of the command ansible has no name but its module's.
    return f"{name.strip()} on {asked['args']}" if "module_name" in asked else name.strip()


def _to_terminal(text: str) -> None:
    """Write to standard error at once, and without the lock of Python's file."""
    os.write(_STDERR, text.encode(errors="replace"))


def _only_looks(result: Any) -> bool:
    name = str(result._task.action).rpartition(".")[2]
    return name.endswith("_info") or name == "nfs_mount_check"


class CallbackModule(Default):  # type: ignore[misc]
    """The default callback, except that it prints results with findings as tables."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "storage_ops.runbooks.findings"
    _only_message = False
    # The result that is printed now is that of a module that only looks.
    _audit = False

    _progress: Progress | None = None

    def set_options(self, *arguments: Any, **named: Any) -> None:
        """Read the options, and prepare to tell of tasks that take long."""
        super().set_options(*arguments, **named)
        seconds = self.get_option("progress_seconds")
        if seconds > 0 and os.isatty(_STDERR):
            self._progress = Progress(seconds, _to_terminal)

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        super()._task_start(task, prefix=prefix)
        if self._progress:
            self._progress.begin(title(task.get_name(), context.CLIARGS))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the recap."""
        if self._progress:
            self._progress.end()
        super().v2_playbook_on_stats(stats)

    def _tells(self, result: Mapping[str, Any]) -> bool:
        """The result has findings of this collection, and -vvv did not ask for raw results."""
        findings = result.get("findings")
        ours = isinstance(findings, list) and all(
            isinstance(finding, dict) and _KEYS.issubset(finding) for finding in findings
        )
        return ours and "actions" in result and self._display.verbosity < 3

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Print a failure; of fail and assert only the message, once."""
        self._only_message = (
            result._task.action.rpartition(".")[2] in ("fail", "assert")
            and isinstance(result._result.get("msg"), str)
            and self._display.verbosity < 3
        )
        self._audit = _only_looks(result)
        super().v2_runner_on_failed(result, ignore_errors)
        self._only_message = False

    def _run_is_verbose(self, result: Any, verbosity: int = 0) -> bool:
        # ansible-core 2.16 has only `_result` and `_task`; 2.19 has `result` and `task` as well.
        self._audit = _only_looks(result)
        role = result._task._role
        # The role show_findings prints the same findings for other callbacks.
        if role is not None and role.get_name() == _ROLE and self._display.verbosity < 3:
            return False
        # The command ansible runs one module to see its answer; the default callback hides it, as
        # it is made for playbooks.
        asked = "module_name" in context.CLIARGS
        return (verbosity == 0 and (asked or self._tells(result._result))) or bool(
            super()._run_is_verbose(result, verbosity)
        )

    def _dump_results(self, result: Any, *arguments: Any, **named: Any) -> str:
        if self._tells(result):
            verbose = self._display.verbosity > 0
            return "\n".join(render(result, self._display.columns, verbose, self._audit))
        if self._only_message:
            return printable(result["msg"])
        return str(super()._dump_results(result, *arguments, **named))

    def _handle_exception(self, result: Any, *arguments: Any, **named: Any) -> None:
        """Print nothing here: the message follows, with the findings, and is escaped there."""
        if not self._tells(result) and not self._only_message:
            super()._handle_exception(result, *arguments, **named)

    def v2_on_file_diff(self, result: Any) -> None:
        """Print a diff with the names in it escaped: a host chooses them."""
        diff = result._result.get("diff")
        if isinstance(diff, dict) and self._tells(result._result):
            for side in ("before", "after"):
                diff[side] = "".join(
                    f"{printable(line)}\n" for line in diff.get(side, "").split("\n")[:-1]
                )
        super().v2_on_file_diff(result)
