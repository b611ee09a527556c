# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the stages of `make test` or `make test-faults`, and tell what each of them took.

``stages.py test``, ``stages.py test-faults``: every stage runs, whatever another one says; the
exit code is 1 when one failed. ``stages.py table``: the records of the last runs as one table.

A stage is a target of the Makefile. The lanes of a plan run side by side: what waits in one of them
leaves a processor to the others. A lane that has nothing to do takes the next stage of another one.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

RECORDS = Path("build/stages")
# More than CI has for all of it: a stage that hangs must not keep a terminal for ever either.
DEADLINE = 5400.0
SLOWEST = 10
# How many characters of a failed test's reason the table shows.
REASON = 1000
# How many lines of a failed stage are shown again at the end, where they are not between those of
# others.
LAST_LINES = 40
# How what a stage failed of begins, as pytest and the scripts of this folder say it; and how many
# of these lines the table repeats.
FAILURES = ("FAILED ", "ERROR ")
FAILURES_SHOWN = 20


@dataclass(frozen=True)
class Stage:
    """A target of the Makefile.

    ``share``: the minutes it may take of CI's 70, on two cores with an empty cache. It is shown,
    and judged by people only: a slow machine is no failure.
    ``after``: stages that have to be over first, whatever they came to.
    """

    name: str
    share: float
    after: tuple[str, ...] = ()


# Lanes, each in order; but what would have to wait lets others go first. Two, since the tests on
# real parts run several at a time by themselves: more lanes keep no processor busier, and leave an
# emulated node so little of one that what waits for it gives up.
PLANS: dict[str, tuple[tuple[Stage, ...], ...]] = {
    "test": (
        (Stage("prepare", 20), Stage("smoke", 20, after=("prepare",))),
        (
            Stage("kind", 11, after=("prepare",)),
            Stage("molecule", 5, after=("prepare",)),
            Stage("sanity", 7),
            # Both go by one copy of the sources, and would wait for each other.
            Stage("units", 10, after=("sanity",)),
            Stage("lint", 4),
            Stage("importer", 1),
            Stage("docs", 1),
            Stage("mutants", 2),
        ),
    ),
    "test-faults": ((Stage("faults", 24),),),
}


@dataclass(frozen=True)
class Record:
    """What a stage came to: its exit code and seconds, and what it said that it failed of."""

    name: str
    rc: int
    seconds: float
    share: float
    failures: tuple[str, ...] = ()

    def save(self) -> None:
        """Keep it for the table."""
        RECORDS.mkdir(parents=True, exist_ok=True)
        (RECORDS / f"{self.name}.json").write_text(json.dumps(self.__dict__))


class Runner:
    """Runs lanes side by side, and prints their lines, each with the name of its stage in front."""

    def __init__(self, lanes: Sequence[Sequence[Stage]]) -> None:
        self.records: list[Record] = []
        self._names = {stage.name for lane in lanes for stage in lane}
        # What has not begun, and what is over.
        self._left = [list(lane) for lane in lanes]
        self._over: set[str] = set()
        self._changed = threading.Condition()
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._last: dict[str, collections.deque[str]] = {}
        self._lock = threading.Lock()
        self._ended = False

    def run(self) -> int:
        """All stages; 1 when one of them failed."""
        before = {
            number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGHUP)
        }
        threads = [
            threading.Thread(target=self._lane, args=(number,)) for number in range(len(self._left))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._end(signal.SIGINT, None)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._tell_failures()
        # A stage without a record never ran to its end.
        passed = {record.name for record in self.records if record.rc == 0}
        return int(passed != self._names)

    def _lane(self, number: int) -> None:
        while stage := self._next(number):
            try:
                if not self._ended:
                    self._stage(stage)
            except OSError as exc:
                self._print(stage.name, f"could not be run: {exc}")
            finally:
                with self._changed:
                    self._over.add(stage.name)
                    self._changed.notify_all()

    def _next(self, number: int) -> Stage | None:
        """The next stage of a lane, else of another one; None: all have begun. What it waits for
        runs in another lane, and has a deadline.
        """
        with self._changed:
            lanes = [self._left[number], *self._left]
            while any(lanes):
                for lane in lanes:
                    for stage in lane:
                        if self._over.issuperset(stage.after):
                            lane.remove(stage)
                            return stage
                self._changed.wait()
        return None

    def _stage(self, stage: Stage) -> None:
        self._print(stage.name, "begins")
        start = time.monotonic()
        # If this process is killed, make is too; and what tests start is tied to them in turn.
        command = ["setpriv", "--pdeathsig", "TERM", "make", "--no-print-directory", stage.name]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child:
            self._children[stage.name] = child
            alarm = threading.Timer(DEADLINE, child.terminate)
            alarm.start()
            assert child.stdout is not None
            last = self._last[stage.name] = collections.deque(maxlen=LAST_LINES)
            failures: list[str] = []
            for line in map(str.rstrip, child.stdout):
                last.append(line)
                if line.startswith(FAILURES) and len(failures) < FAILURES_SHOWN:
                    failures.append(line[:REASON])
                self._print(stage.name, line)
            child.wait()
            alarm.cancel()
        seconds = time.monotonic() - start
        record = Record(stage.name, child.returncode, seconds, stage.share, tuple(failures))
        record.save()
        self.records.append(record)
        state = "passed" if record.rc == 0 else f"FAILED with {record.rc}"
        self._print(stage.name, f"{state} after {record.seconds:.0f} s")

    def _tell_failures(self) -> None:
        """The end of what each failed stage said, and last of all which they are."""
        failed = [record for record in self.records if record.rc]
        for record in failed:
            self._print(record.name, f"failed; its last {LAST_LINES} lines:")
            for line in self._last[record.name]:
                self._print(record.name, line)
        for record in failed:
            self._print(record.name, f"FAILED with {record.rc}")

    def _print(self, name: str, line: str) -> None:
        with self._lock:
            print(f"{name:8} | {line}", flush=True)

    def _end(self, number: int, _frame: object) -> None:
        self._ended = True
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        sys.exit(128 + number)


@dataclass(frozen=True)
class Case:
    """A test of a suite, with the seconds of its set-up and its end."""

    suite: str
    name: str
    seconds: float
    outcome: str
    reason: str = ""


def cases() -> Iterator[Case]:
    """The tests that pytest reported, from its JUnit files."""
    for path in sorted(RECORDS.glob("*.xml")):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = (
                "failed"
                if kinds & {"failure", "error"}
                else "skipped"
                if "skipped" in kinds
                else "passed"
            )
            name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
            reasons = [child.get("message", "") for child in case if child.tag != "properties"]
            reason = " / ".join(reasons)[:REASON] if outcome == "failed" else ""
            yield Case(path.stem, name, float(case.get("time", 0)), outcome, reason)


def table() -> int:
    """Minutes of every stage, the slowest tests, what failed with the beginning of its reason, and
    how many passed; 1 when a stage failed, or CI skipped a test.
    """
    order = [stage.name for lanes in PLANS.values() for lane in lanes for stage in lane]
    records = [Record(**json.loads(path.read_text())) for path in RECORDS.glob("*.json")]
    records.sort(key=lambda record: order.index(record.name))
    print(f"\n{'stage':10}{'minutes':>9}{'share':>7}")
    for record in records:
        minutes = record.seconds / 60
        remarks = [f"FAILED with {record.rc}"] if record.rc else []
        remarks += ["over its share"] if minutes > record.share else []
        print(f"{record.name:10}{minutes:9.1f}{record.share:7.0f}  {', '.join(remarks)}".rstrip())
    found = list(cases())
    seconds: dict[str, float] = {}
    for case in found:
        key = f"{case.suite} {case.name.partition('.')[0].partition('::')[0]}"
        seconds[key] = seconds.get(key, 0) + case.seconds
    print("\nminutes of all workers together, by suite")
    for key in sorted(seconds):
        print(f"{seconds[key] / 60:8.1f}  {key}")
    print(f"\nthe {SLOWEST} slowest tests (seconds)")
    for case in sorted(found, key=lambda case: -case.seconds)[:SLOWEST]:
        print(f"{case.seconds:8.0f}  {case.suite} {case.name}")
    # What could not be had on a developer's machine can be had on that of CI.
    left_out = "CI_RECORDS" in os.environ and any(case.outcome == "skipped" for case in found)
    if left_out:
        print("\nFAILED: CI skips no test")
    # Last: who sees only the end of a long run sees these.
    failed = [case for case in found if case.outcome == "failed"]
    for record in records:
        if record.rc and record.name not in {case.suite for case in failed}:
            print("\n".join([f"\nFAILED: {record.name}", *record.failures]))
    for case in failed:
        print(f"\nFAILED: {case.suite} {case.name}\n{case.reason}")
    counts = [
        f"{sum(case.outcome == kind for case in found)} {kind}"
        for kind in ("passed", "failed", "skipped")
    ]
    print(f"\n{', '.join(counts)}", flush=True)
    return int(left_out or any(record.rc for record in records))


def main(arguments: Sequence[str]) -> int:
    """What the command line asks for."""
    if arguments == ["table"]:
        return table()
    if len(arguments) != 1 or arguments[0] not in PLANS:
        print(f"usage: stages.py {'|'.join([*PLANS, 'table'])}", file=sys.stderr)
        return 2
    if "CI_RECORDS" not in os.environ:
        shutil.rmtree(RECORDS, ignore_errors=True)
    status = Runner(PLANS[arguments[0]]).run()
    if "CI_RECORDS" not in os.environ:
        table()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
