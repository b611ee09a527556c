# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Children that hang, die and shout."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import bounded
from ansible_collections.storage_ops.runbooks.tests.unit.support.clocks import (
    Arrivals,
    Steps,
    comes_true,
)

# For what answers at once, on a machine that is busy.
AMPLE = 60


def test_output_and_status() -> None:
    result = bounded.run_command(
        ["sh", "-c", "echo out; echo err >&2; echo $LC_ALL; exit 3"], AMPLE
    )
    assert (result.rc, result.stdout, result.stderr) == (3, "out\nC\n", "err\n")
    assert not result.ok
    assert "(rc 3): err" in result.describe()


def test_long_output_does_not_block() -> None:
    assert (
        len(bounded.run_command(["sh", "-c", "yes | head -c 3000000"], AMPLE).stdout) == 3_000_000
    )


def test_missing_program_and_no_time() -> None:
    assert bounded.run_command(["no-such-program"], 10).problem == "not installed"
    assert bounded.run_command(["true"], 0).problem == "not started: no time left"


def test_time_out_ends_the_whole_session(tmp_path: Path) -> None:
    pids, ended = tmp_path / "pids", tmp_path / "ended"
    script = (
        f"trap '' TERM; echo begun; (sleep 300; echo > {ended}) & echo $! $$ > {pids}.new; mv "
        f"{pids}.new {pids}; wait; echo > {ended}"
    )
    clock = Steps((pids.exists, 1.0), (lambda: not any(map(_lives, pids.read_text().split())), 1.0))
    result = bounded.run_command(["sh", "-c", script], 0.5, clock)
    assert (result.rc, result.stdout) == (None, "begun\n")
    assert result.timed_out and "no answer within 0.5 s" in result.problem
    # Killed is not yet gone on a busy machine.
    assert comes_true(lambda: not any(map(_lives, pids.read_text().split())))
    assert not ended.exists()


def _lives(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_that_has_no_session_yet_is_ended() -> None:
    """One whose time was over just as it was forked was left to whatever it asks."""
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    bounded._kill(pid)
    # Else this test has left nothing either.
    os.kill(pid, signal.SIGTERM)
    _pid, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_a_child_holds_none_of_our_files() -> None:
    """The caller's stdout may be the ssh channel; whoever waits for its end must not wait for an
    abandoned child.
    """
    reader, writer = os.pipe()
    os.set_inheritable(writer, False)
    bounded.run_command(["sleep", "30"], 0.1)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arrivals]:
    """The children that hang."""
    arrivals = Arrivals()
    monkeypatch.setattr(f"{__name__}._hanging", arrivals)
    yield arrivals
    arrivals.close()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The children that were given up, or are not needed any more, in order."""
    pids: list[int] = []
    kill = bounded._kill
    monkeypatch.setattr(bounded, "_kill", lambda pid: (pids.append(pid), kill(pid)))
    return pids


_hanging: Any = None


def answer(item: Any) -> Any:
    if item == "hang":
        if _hanging:
            _hanging.note()
        time.sleep(600)
    if item == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "raise":
        raise OSError(5, "Input/output error")
    return [item, os.getpid()]


def test_replies_in_order() -> None:
    replies = bounded.call_each(answer, [1, "raise", "die", 4], AMPLE)
    assert replies[0].value[0] == 1
    assert replies[1].problem == "Input/output error"
    assert replies[2].problem == "the probe died"
    assert replies[3].value[0] == 4
    assert bounded.call_each(answer, [], 10) == []


def test_healthy_items_share_workers() -> None:
    replies = bounded.call_each(answer, list(range(bounded.ITEMS_PER_WORKER * 2)), AMPLE)
    assert len({reply.value[1] for reply in replies}) == 2


def test_many_hung_items_cost_about_one_time_out(hanging: Arrivals, killed: list[int]) -> None:
    """No time-out passes before all of them have been asked."""
    items = [index if index % 2 else "hang" for index in range(100)]
    clock = Steps(
        # The first of each worker's items hangs, so the others get workers of their own.
        (lambda: hanging.count == 4, bounded.STALL_SECONDS * 1.1),
        (lambda: hanging.count == 50 and len(killed) == 50, 2.1),
    )
    replies = bounded.call_each(answer, items, 2, clock=clock, workers=bounded.MAX_WORKERS)
    assert len(killed) == 100
    for item, reply in zip(items, replies):
        assert (
            "no answer within 2.0 s" in reply.problem if item == "hang" else reply.value[0] == item
        )


def test_a_short_time_out_drops_none_of_a_stuck_workers_items(hanging: Arrivals) -> None:
    clock = Steps((lambda: hanging.count == 1, 0.21))
    hung, healthy = bounded.call_each(answer, ["hang", 2], 0.2, clock=clock)
    assert hung.timed_out and healthy.value[0] == 2


def test_who_has_many_hung_items_leaves_others_their_turn(
    hanging: Arrivals, killed: list[int]
) -> None:
    """With two workers only; the time is over once the three of the others have answered."""
    items = ["hang"] * 80 + list(range(80))
    owners = [item == "hang" for item in items]
    clock = Steps((lambda: len(killed) == 3, 1000.0))
    replies = bounded.call_each(answer, items, 100, 500, clock, owners, workers=2)
    assert [reply.problem for reply in replies[80:]] == [""] * 80
    assert all(reply.problem for reply in replies[:80])
    assert hanging.count <= 2


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The children that were given up: nothing ends them until the test is over."""
    pids: list[int] = []
    monkeypatch.setattr(bounded, "_kill", pids.append)
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_who_hangs_leaves_no_more_children_than_allowed(
    hanging: Arrivals, unkillable: list[int]
) -> None:
    """Each mount that a tenant's server holds up left a process that nothing ends, in each run."""
    items = ["hang"] * 40 + [7]
    owners = [item == "hang" for item in items]
    clock = Steps(
        (lambda: hanging.count == 2 and len(unkillable) == 1, bounded.STALL_SECONDS * 1.1),
        # One owner has a quarter of the workers at a time.
        (lambda: hanging.count == 3, 100.0),
        (lambda: hanging.count == 6, 100.0),
        (lambda: hanging.count == 9, 100.0),
        (lambda: hanging.count == 12, 100.0),
        (lambda: len(unkillable) == 13, 100.0),
        # None of them has ended in the moment that is waited at the end.
        (lambda: True, 1.0),
    )
    replies = bounded.call_each(answer, items, 50, clock=clock, owners=owners, workers=12)
    assert hanging.count == 12
    assert replies[40].value[0] == 7
    problems = [reply.problem for reply in replies[:40]]
    assert sum("no answer within" in problem for problem in problems) == 12
    assert sum("not asked" in problem for problem in problems) == 28


def test_no_look_leaves_any_number_of_children(hanging: Arrivals, unkillable: list[int]) -> None:
    """Whoever calls it: only what something else bounds says how many there may be."""
    most = bounded.MOST_CHILDREN
    clock = Steps(
        (lambda: hanging.count >= 2, bounded.STALL_SECONDS * 1.1),
        (lambda: hanging.count == most, 100.0),
        (lambda: len(unkillable) == most, 100.0),
        (lambda: True, 1.0),
    )
    replies = bounded.call_each(answer, ["hang"] * 2 * most, 50, clock=clock)
    assert hanging.count == len(unkillable) == most
    assert sum("not asked" in reply.problem for reply in replies) == most


def test_who_ends_by_a_signal_takes_no_others_place(hanging: Arrivals, killed: list[int]) -> None:
    """As a name server that does not answer: any number of names may wait for it."""
    items = ["hang"] * 6
    clock = Steps(
        (lambda: hanging.count == 1, bounded.STALL_SECONDS * 1.1),
        *((lambda count=count: hanging.count == count, 100.0) for count in (2, 4, 6)),
    )
    replies = bounded.call_each(answer, items, 50, clock=clock, workers=2)
    assert all(reply.timed_out for reply in replies)
    assert len(killed) == 6


def test_turns_are_by_time_and_by_the_workers_that_each_has() -> None:
    queue = bounded._Queue(74, [*("a" * 70), "b", "c", "c", "c"], 2)
    a, b, c = queue.take(), queue.take(), queue.take()
    assert (a, b, c) == (("a", list(range(32))), ("b", [70]), ("c", [71, 72, 73]))
    queue.add("c", [72])
    queue.add("c", [73])
    queue.give_back("a", 5.0)
    queue.give_back("c", 1.0)
    # Neither has a worker by now.
    assert queue.take() == ("c", [72])
    # This one has none.
    assert queue.take() == ("a", list(range(32, 64)))
    queue.give_back("c", 9.0)
    # That one has, and this has had more.
    assert [queue.take(), queue.take()] == [("c", [73]), ("a", list(range(64, 70)))]
    assert not queue and not queue.ready


def test_whose_an_item_is() -> None:
    """Of several that have it, it is of each."""
    pairs = [("a", "x"), ("b", "x"), ("a", "y"), ("a", "x"), ("c", bounded.AnyOf(("x", "z")))]
    found = bounded.owners_of(pairs)
    assert found == {"a": ("x", "y"), "b": "x", "c": ("x", "z")}
    assert isinstance(found["a"], bounded.AnyOf)
    assert bounded.owners_of([("d", one) for one in found.values()]) == {"d": ("x", "y", "z")}


def test_what_several_have_is_asked_in_the_turn_that_comes_first(
    hanging: Arrivals, killed: list[int]
) -> None:
    """One of them has any number of slow ones before it."""
    both = bounded.AnyOf(("evil", "victim"))
    items = ["hang"] * 80 + [7, 8]
    owners = ["evil"] * 80 + [both, both]
    clock = Steps((lambda: bool(killed), 1000.0))
    replies = bounded.call_each(answer, items, 100, 500, clock, owners, workers=4)
    assert [reply.value and reply.value[0] for reply in replies[79:]] == [None, 7, 8]


def test_what_several_have_is_asked_once(hanging: Arrivals, killed: list[int]) -> None:
    """Also if it hangs: of those that wait for it, none gets a worker for it as well."""
    every = bounded.AnyOf(range(12))
    clock = Steps((lambda: hanging.count == 1 and len(killed) == 12, 100.0))
    hung, *others = bounded.call_each(
        answer, ["hang", *range(12)], 50, clock=clock, owners=[every, *range(12)], workers=12
    )
    assert hung.timed_out and not any(reply.problem for reply in others)
    assert hanging.count == 1
    # Each that they have is answered.
    many = bounded.call_each(answer, list(range(5)), AMPLE, owners=[every] * 5)
    assert [reply.value[0] for reply in many] == list(range(5))


def test_what_several_have_takes_one_worker_however_many_have_it(
    hanging: Arrivals, killed: list[int]
) -> None:
    """One file system that hung, and that each of many namespaces had, took every worker."""
    every = bounded.AnyOf(range(40))
    items = [*range(40), "hang", *range(40, 80)]
    owners = [*range(40), every, *range(40)]
    clock = Steps((lambda: hanging.count > 1 or (hanging.count == 1 and len(killed) == 40), 100.0))
    replies = bounded.call_each(answer, items, 60, 50, clock, owners)
    assert hanging.count == 1
    assert replies.pop(40).problem
    assert [reply.value[0] for reply in replies] == list(range(80))


def test_no_owner_has_more_than_some_of_the_workers(hanging: Arrivals, killed: list[int]) -> None:
    """The slow items of one pod had all 16, and so 16 parts in 17 of the processors."""
    clock = Steps((lambda: hanging.count >= 4, 1000.0))
    items = ["hang"] * 16 * bounded.ITEMS_PER_WORKER
    replies = bounded.call_each(answer, items, 100, 500, clock, ["pod"] * len(items), workers=16)
    assert all(reply.problem for reply in replies)
    assert hanging.count == len(killed) == 4


def test_an_owner_may_have_one_worker_at_a_time(hanging: Arrivals, killed: list[int]) -> None:
    """What each takes besides time, as the memory of the kernel, they must not take at once."""
    clock = Steps((lambda: hanging.count >= 2, 1000.0))
    items = ["hang"] * 2 * bounded.ITEMS_PER_WORKER
    owners = [number % 2 for number in range(len(items))]
    replies = bounded.call_each(answer, items, 100, 500, clock, owners, of_owner=1)
    assert all(reply.problem for reply in replies)
    assert hanging.count == len(killed) == 2


@pytest.mark.parametrize("owners", [(), ("a", "a", "a")])
def test_a_turn_ends_though_nothing_stalls(owners: tuple[str, ...]) -> None:
    """The items behind it have another worker, after those of the other owners."""
    begun, allowed = Arrivals(), os.memfd_create("allowed")

    def slow(item: int) -> int:
        begun.note()
        while os.fstat(allowed).st_size < item:
            time.sleep(0.005)
        return os.getpid()

    def after(item: int, count: int) -> bool:
        os.ftruncate(allowed, max(item, os.fstat(allowed).st_size))
        return begun.count == count

    clock = Steps(
        (lambda: after(0, 1), bounded.TURN_SECONDS * 0.7),
        (lambda: after(1, 2), bounded.TURN_SECONDS * 0.7),
        (lambda: after(3, 0), 0.0),
    )
    replies = bounded.call_each(slow, [1, 2, 3], 60, clock=clock, owners=owners, workers=1)
    first, second, third = (reply.value for reply in replies)
    assert first == second
    assert (third == first) is (not owners)


def test_call() -> None:
    assert bounded.call(lambda: {"a": 1}, AMPLE).value == {"a": 1}
    assert "no answer" in bounded.call(lambda: time.sleep(60), 0.2).problem


def test_deadline() -> None:
    now = [100.0]
    deadline = bounded.Deadline(10, clock=lambda: now[0])
    assert deadline.cap(3) == 3
    now[0] = 108.0
    assert deadline.cap(3) == 2
    with deadline.shortened(1):
        assert deadline.cap(3) == 1
        with deadline.shortened(30):
            assert deadline.cap(3) == 1
        now[0] = 109.5
        assert deadline.remaining() == 0
    assert deadline.remaining() == 0.5
    now[0] = 200.0
    assert deadline.remaining() == 0


def test_a_look_has_a_share_of_the_deadline() -> None:
    now = [0.0]
    deadline = bounded.Deadline(290, clock=lambda: now[0])
    assert deadline.share(30) == 72.5
    # Where little is left, at least what it needs, and never more than there is.
    now[0] = 250.0
    assert deadline.share(30) == 30
    now[0] = 280.0
    assert deadline.share(30) == 10


def test_the_budget_ends_everything(hanging: Arrivals, killed: list[int]) -> None:
    clock = Steps((lambda: hanging.count == 1, 1.1), (lambda: len(killed) == 1, 1.0))
    replies = bounded.call_each(answer, ["hang"] * 20, 60, budget=1, clock=clock)
    assert hanging.count == len(killed) == 1
    assert {reply.problem for reply in replies} == {"no answer before the deadline"}
    assert not any(reply.timed_out for reply in replies)


@pytest.mark.parametrize(("timeout", "budget", "retired"), [(0.3, 60, 2), (60, 0.3, 1)])
def test_a_child_that_the_kernel_holds_is_named(
    monkeypatch: pytest.MonkeyPatch, hanging: Arrivals, timeout: float, budget: float, retired: int
) -> None:
    # One that SIGKILL does not end cannot be made without a lost disk.
    held: list[int] = []
    monkeypatch.setattr(bounded, "_kill", held.append)
    clock = Steps((lambda: hanging.count == 1, 0.31), (lambda: len(held) == retired, 1.0))
    try:
        healthy, hung, never = bounded.call_each(
            answer, [1, "hang", 3], timeout, budget, clock=clock
        )
    finally:
        for pid in held:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert (healthy.timed_out, healthy.left) == (False, 0)
    assert hung.timed_out is (timeout < budget)
    assert hung.left in held and not never.left
    assert os.waitpid(hung.left, 0)[0] == hung.left


def test_a_child_that_is_gone_is_not_named(hanging: Arrivals) -> None:
    clock = Steps((lambda: hanging.count == 1, 0.3))
    assert bounded.call_each(answer, ["hang"], 0.2, clock=clock)[0].left == 0


def test_the_end_of_a_long_error_is_told() -> None:
    result = bounded.CommandResult(("crictl",), 1, "", f"warning {'x' * 500} the cause", 0.0)
    assert result.describe().startswith("crictl (rc 1): warning xxx")
    assert result.describe().endswith("xxx the cause")
    assert len(result.describe()) < 330
