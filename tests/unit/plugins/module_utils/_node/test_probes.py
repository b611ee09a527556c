# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders that answer, that are dead, and that never answer."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import bounded
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import probes
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.tests.unit.support.clocks import (
    Arrivals,
    Steps,
)


@pytest.fixture
def hanging() -> Iterator[Arrivals]:
    """The children that hang."""
    arrivals = Arrivals()
    yield arrivals
    arrivals.close()


@pytest.fixture(autouse=True)
def _sick_folders(tmp_path: Path, hanging: Arrivals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this test named STEP-ERRNO fails so at that step; STEP-hung never answers. Real
    ones take a server that died.

    pytest makes and removes folders with the same calls, those of other tests too, so only what
    lies in this test's own one is sick.
    """

    def sick(real: Any, step: str) -> Any:
        def asking(path: Any, *args: Any, **named: Any) -> Any:
            folder, name = os.path.split(str(path))
            at, _dash, how = name.partition("-") if folder == str(tmp_path) else ("", "", "")
            if at == step and how.rstrip("0123456789") == "hung":
                hanging.note()
                time.sleep(600)
            elif at == step:
                raise OSError(getattr(errno, how), os.strerror(getattr(errno, how)))
            return real(path, *args, **named)

        return asking

    monkeypatch.setattr(os, "statvfs", sick(os.statvfs, "statvfs"))
    monkeypatch.setattr(os, "open", sick(os.open, "open"))


def probe(
    root: Path, *names: str, timeout: float = 60, seconds: float = 600, clock: Any = time.monotonic
) -> list[probes.Answer]:
    for name in names:
        (root / name).mkdir(exist_ok=True)
    return probes.probe_folders(Host(Deadline(seconds, clock), 10, str(root)), names, timeout)


def test_dead_and_other_errors(tmp_path: Path) -> None:
    answers = probe(
        tmp_path,
        "well",
        "statvfs-ENOTCONN",
        "open-ENOTCONN",
        "open-ESTALE",
        "statvfs-EIO",
        "open-ECONNABORTED",
        "open-EACCES",
    )
    assert [(answer.state, answer.step, answer.error) for answer in answers] == [
        ("ok", "", ""),
        ("dead", "statvfs", "ENOTCONN"),
        ("dead", "listing", "ENOTCONN"),
        ("error", "listing", "ESTALE"),
        ("error", "statvfs", "EIO"),
        ("dead", "listing", "ECONNABORTED"),
        ("error", "listing", "EACCES"),
    ]
    assert (answers[0].text, answers[3].text) == ("", os.strerror(errno.ESTALE))
    assert {answer.left for answer in answers} == {0}


def test_no_descriptor_is_kept(tmp_path: Path) -> None:
    """One that a hung neighbour's process kept would hold a healthy mount."""
    before = os.listdir("/proc/self/fd")
    probes._list(str(tmp_path))
    assert os.listdir("/proc/self/fd") == before


def test_which_step_hangs(tmp_path: Path, hanging: Arrivals) -> None:
    clock = Steps((lambda: hanging.count == 1, 0.6), (lambda: hanging.count == 2, 0.6))
    hung, stuck = probe(tmp_path, "statvfs-hung", "open-hung", timeout=0.5, clock=clock)
    assert (hung.state, hung.step, stuck.state, stuck.step) == (
        "hung",
        "statvfs",
        "hung",
        "listing",
    )
    assert "no answer within 0.5 s" in hung.text


def test_many_of_which_thirty_hang(
    tmp_path: Path, hanging: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All thirty are waited for at the same time, whatever the others take."""
    killed: list[int] = []
    kill = bounded._kill
    monkeypatch.setattr(bounded, "_kill", lambda pid: (killed.append(pid), kill(pid)))
    clock = Steps(
        # The first of each worker's folders hangs, so the others get workers of their own.
        (lambda: hanging.count == 4, bounded.STALL_SECONDS * 1.1),
        (lambda: hanging.count == 30 and len(killed) == 90, 3.1),
    )
    names = [f"open-hung{index}" if index % 4 == 0 else f"well{index}" for index in range(120)]
    answers = probe(tmp_path, *names, timeout=3, clock=clock)
    assert [answer.state for answer in answers] == [
        "ok" if name.startswith("well") else "hung" for name in names
    ]


def test_what_had_not_all_its_time_is_not_called_hung(tmp_path: Path, hanging: Arrivals) -> None:
    """The deadline of the whole may pass a moment after a folder was asked."""
    clock = Steps((lambda: hanging.count == 1, 0.6))
    hung, never = probe(tmp_path, "open-hung", "well", timeout=30, seconds=0.5, clock=clock)
    assert (hung.state, hung.step, hung.text) == (
        "error",
        "listing",
        "no answer before the deadline",
    )
    assert (never.state, never.step) == ("error", "")


def test_a_child_that_the_kernel_holds_is_named(
    tmp_path: Path, hanging: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(bounded, "_kill", held.append)
    clock = Steps((lambda: hanging.count == 1, 0.4), (lambda: bool(held), 1.0))
    try:
        (answer,) = probe(tmp_path, "open-hung", timeout=0.3, clock=clock)
    finally:
        for pid in held:
            os.kill(pid, signal.SIGKILL)
    assert [answer.left] == held
    assert os.waitpid(answer.left, 0)[0] == answer.left


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a subPath of one file")
    (tmp_path / "link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    host = Host(Deadline(60), 10, str(tmp_path))
    answers = probes.probe_folders(host, ["file", "link", "pipe", "gone", "nul\0"], 60)
    assert [(answer.state, answer.error) for answer in answers] == [
        ("ok", ""),
        ("error", "ENOTDIR"),
        ("error", "ENOTDIR"),
        ("error", "ENOENT"),
        ("error", ""),
    ]
    assert "null byte" in answers[4].text
    assert probes.probe_folders(host, [], 5) == []


def held(root: Path, pid: int, name: str, pending: str = "100", cgroup: str = "0::/x") -> None:
    """A process of that name, with these signals pending."""
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(
        f"Name:\t{name}\nState:\tD (disk sleep)\nSigPnd:\t{pending:0>16}\nShdPnd:\t{0:016}\n"
    )
    (folder / "cgroup").write_text(f"{cgroup}\n")


def test_what_many_children_of_earlier_runs_wait_for_is_not_asked_again(
    tmp_path: Path, hanging: Arrivals
) -> None:
    """Each nightly audit left one more child, with the memory of its run, for each mount that
    hangs.
    """
    for pid in range(100, 100 + probes.MOST_HELD):
        held(tmp_path, pid, "sops0:57")
    names, devices = ["statvfs-hung", "well", "open-ENOTCONN"], ["0:57", "0:58", "0:59"]
    for name in names:
        (tmp_path / name).mkdir()
    host = Host(Deadline(600), 10, str(tmp_path))
    hung, well, dead = probes.probe_folders(host, names, 60, (), devices)
    assert not hanging.count
    assert (hung.state, hung.left, hung.unasked) == ("hung", 100, False)
    assert hung.text.startswith(f"{probes.MOST_HELD} processes of earlier runs")
    assert (well.state, dead.state, dead.step) == ("ok", "dead", "listing")
    # A repair asks once more before it does anything.
    (tmp_path / "proc/100/comm").write_text("sops0:58\n")
    assert {answer.state for answer in probes.probe_folders(host, names[1:], 60)} == {"ok", "dead"}


# Its first thread ends, and the other one waits.
_ZOMBIE = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
open("/proc/self/comm", "w").write("sops0:57")
print(flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def test_what_has_ended_waits_for_nothing() -> None:
    """SIGKILL stays pending for a first thread that ended before the others; and with control
    groups of version 1, what has ended is in no pod. Eight such made any mount one that hangs.
    """
    with subprocess.Popen([sys.executable, "-c", _ZOMBIE], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status")
        try:
            wait_until(lambda: "State:\tZ" in status.read_text())
        finally:
            process.kill()
        wait_until(lambda: os.listdir(f"/proc/{process.pid}/task") == [str(process.pid)])
        assert re.search(r"SigPnd:\s*0*100$", status.read_text(), re.MULTILINE)
        assert Path(f"/proc/{process.pid}/comm").read_text() == "sops0:57\n"
        assert "0:57" not in probes.held_children(Host(Deadline(600), 10))


@pytest.mark.parametrize(
    "other",
    [
        # Another run is asking just now.
        {"name": "sops0:57", "pending": "0"},
        {"name": "sops0:57", "pending": "4000"},
        {"name": "sops0:5"},
        {"name": "sops"},
        {"name": "python3"},
        # A tenant gives its processes any name.
        {"name": "sops0:57", "cgroup": f"0::/kubepods/pod{'0' * 32}/{'1' * 64}"},
    ],
)
def test_what_is_no_child_of_an_earlier_run(tmp_path: Path, other: dict[str, str]) -> None:
    for pid in range(100, 99 + probes.MOST_HELD):
        held(tmp_path, pid, "sops0:57")
    held(tmp_path, 300, **other)
    (tmp_path / "well").mkdir()
    host = Host(Deadline(600), 10, str(tmp_path))
    (answer,) = probes.probe_folders(host, ["well"], 60, (), ["0:57"])
    assert answer.state == "ok"


def test_who_may_be_of_any_pod_is_no_child(tmp_path: Path) -> None:
    for pid in range(100, 100 + probes.MOST_HELD):
        held(tmp_path, pid, "sops0:57")
        (tmp_path / f"proc/{pid}/cgroup").unlink()
        (tmp_path / f"proc/{pid}/cgroup").symlink_to("x" * 300)
    assert probes.held_children(Host(Deadline(600), 10, str(tmp_path))) == {}


def test_a_child_is_called_after_what_it_asks(tmp_path: Path) -> None:
    """Of the longest numbers, too."""
    for device in ("0:57", "0:1048575", "259:1048575"):

        def named(device: str = device) -> str:
            probes.call_self(device)
            return Path("/proc/self/comm").read_text()

        assert bounded.call(named, 60).value == f"sops{device}\n"
    before = Path("/proc/self/comm").read_text()
    (tmp_path / "well").mkdir()
    probes.probe_folders(Host(Deadline(600), 10, str(tmp_path)), ["well"], 60, (), ["0:57"])
    assert Path("/proc/self/comm").read_text() == before


def test_what_is_held_answers_whatever_is_at_its_path_by_now(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    found = [os.open(tmp_path / name, os.O_PATH) for name in ("file", "folder", "pipe")]
    for name in ("file", "folder"):
        (tmp_path / name).rename(tmp_path / f"{name}.away")
        os.mkfifo(tmp_path / name)
    try:
        host = Host(Deadline(60), 10, str(tmp_path))
        answers = [probes.probe_opened(host, descriptor, 60) for descriptor in found]
        assert [(answer.state, answer.step, answer.error) for answer in answers] == [
            ("ok", "", ""),
            ("ok", "", ""),
            ("error", "listing", "ENOTDIR"),
        ]
    finally:
        for descriptor in found:
            os.close(descriptor)
