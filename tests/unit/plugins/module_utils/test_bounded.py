# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Children that hang, die and shout."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils import _bounded


def test_output_and_status() -> None:
    result = _bounded.run_command(["sh", "-c", "echo out; echo err >&2; echo $LC_ALL; exit 3"], 10)
    assert (result.rc, result.stdout, result.stderr) == (3, "out\nC\n", "err\n")
    assert not result.ok
    assert "(rc 3): err" in result.describe()


def test_long_output_does_not_block() -> None:
    assert len(_bounded.run_command(["sh", "-c", "yes | head -c 3000000"], 20).stdout) == 3_000_000


def test_missing_program_and_no_time() -> None:
    assert _bounded.run_command(["no-such-program"], 10).problem == "not installed"
    assert _bounded.run_command(["true"], 0).problem == "not started: no time left"


def test_time_out_ends_the_whole_session(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 300 & echo $! > {pids}; echo $$ >> {pids}; echo begun; wait"
    begun = time.monotonic()
    result = _bounded.run_command(["sh", "-c", script], 0.5)
    assert time.monotonic() - begun < 3
    assert (result.rc, result.stdout) == (None, "begun\n")
    assert "no answer within 0.5 s" in result.problem
    time.sleep(0.2)
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            _not_a_zombie(int(pid))


def _not_a_zombie(pid: int) -> None:
    os.kill(pid, 0)
    if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
        raise ProcessLookupError


def test_a_child_holds_none_of_our_files() -> None:
    """The caller's stdout may be the ssh channel; whoever waits for its end must not wait for an abandoned child."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, False)
    _bounded.run_command(["sleep", "30"], 0.1)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


def answer(item: Any) -> Any:
    if item == "hang":
        time.sleep(600)
    if item == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "raise":
        raise OSError(5, "Input/output error")
    return [item, os.getpid()]


def test_replies_in_order() -> None:
    replies = _bounded.call_each(answer, [1, "raise", "die", 4], 10)
    assert replies[0].value[0] == 1
    assert replies[1].problem == "OSError: [Errno 5] Input/output error"
    assert replies[2].problem == "the probe died"
    assert replies[3].value[0] == 4
    assert _bounded.call_each(answer, [], 10) == []


def test_healthy_items_share_workers() -> None:
    replies = _bounded.call_each(answer, list(range(_bounded.ITEMS_PER_WORKER * 2)), 10)
    assert len({reply.value[1] for reply in replies}) == 2


def test_many_hung_items_cost_about_one_time_out() -> None:
    items = ["hang" if index % 2 else index for index in range(100)]
    begun = time.monotonic()
    replies = _bounded.call_each(answer, items, 2)
    assert time.monotonic() - begun < 2 * 2 + 3
    for item, reply in zip(items, replies):
        assert "no answer within 2.0 s" in reply.problem if item == "hang" else reply.value[0] == item


def test_a_short_time_out_drops_none_of_a_stuck_workers_items() -> None:
    hung, healthy = _bounded.call_each(answer, ["hang", 2], 0.2)
    assert hung.timed_out and healthy.value[0] == 2


def test_call() -> None:
    assert _bounded.call(lambda: {"a": 1}, 5).value == {"a": 1}
    assert "no answer" in _bounded.call(lambda: time.sleep(60), 0.2).problem


def test_deadline() -> None:
    now = [100.0]
    deadline = _bounded.Deadline(10, clock=lambda: now[0])
    assert deadline.cap(3) == 3
    now[0] = 108.0
    assert deadline.cap(3) == 2
    now[0] = 200.0
    assert deadline.remaining() == 0


def test_the_budget_ends_everything() -> None:
    begun = time.monotonic()
    replies = _bounded.call_each(answer, ["hang"] * 20, 60, budget=1)
    assert time.monotonic() - begun < 4
    assert {reply.problem for reply in replies} == {"no answer before the deadline"}
    assert not any(reply.timed_out for reply in replies)


@pytest.mark.parametrize(("timeout", "budget"), [(0.3, 60), (60, 0.3)])
def test_a_child_that_the_kernel_holds_is_named(monkeypatch: pytest.MonkeyPatch, timeout: float, budget: float) -> None:
    # One that SIGKILL does not end cannot be made without a lost disk.
    held: list[int] = []
    monkeypatch.setattr(_bounded, "_kill", held.append)
    try:
        healthy, hung, never = _bounded.call_each(answer, [1, "hang", 3], timeout, budget)
    finally:
        for pid in held:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert (healthy.timed_out, healthy.left) == (False, 0)
    assert hung.timed_out is (timeout < budget)
    assert hung.left in held and not never.left
    assert os.waitpid(hung.left, 0)[0] == hung.left


def test_a_child_that_is_gone_is_not_named() -> None:
    assert _bounded.call_each(answer, ["hang"], 0.2)[0].left == 0
