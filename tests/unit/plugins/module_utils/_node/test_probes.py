# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders that answer, that are dead, and that never answer."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import bounded
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import fdinfo, probes
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
            held = f"/proc/self/fd/{path}" if isinstance(path, int) else str(path)
            is_held = held.startswith("/proc/self/fd/")
            folder, name = os.path.split(os.readlink(held) if is_held else held)
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
    with probes._reached(str(tmp_path)) as found:
        probes.list_held(found)
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


@pytest.mark.parametrize(("owners", "budget"), [(["a"], 72.5), ([], 290)])
def test_who_has_many_hung_mounts_leaves_time_for_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owners: list[str], budget: float
) -> None:
    """Where SIGKILL ends the children, they used up the deadline, eight at a time."""
    given: list[Any] = []

    def call(*arguments: Any) -> list[Reply]:
        given.append(arguments)
        return [Reply()]

    monkeypatch.setattr(probes, "call_each", call)
    host = Host(Deadline(290, lambda: 0.0), 30, str(tmp_path))
    probes.probe_folders(host, ["/a"], 5, owners)
    assert [arguments[3] for arguments in given] == [budget]


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


def number_of(path: Path) -> str:
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def begun(root: Path, pid: int | str, at: int) -> None:
    """When a process began, in ticks. Its program has a name like those of fields."""
    (root / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
    (root / f"proc/{pid}/stat").write_text(f"{pid} (a ) 1 2) D {'1 ' * 18}{at} 2 3\n")


def held(
    root: Path,
    pid: int,
    name: str = "",
    pending: str = "100",
    cgroup: str = "0::/x",
    fd: str = "",
    at: int = 0,
) -> None:
    """A process of that name, with these signals pending, and one file open."""
    name = name or f"sops{number_of(root)}"
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(
        f"Name:\t{name}\nState:\tD (disk sleep)\nSigPnd:\t{pending:0>16}\nShdPnd:\t{0:016}\n"
    )
    (folder / "cgroup").write_text(f"{cgroup}\n")
    (folder / "fd").mkdir()
    (folder / "fd/5").symlink_to(fd or root)
    begun(root, pid, at or pid * 10)
    begun(root, "self", 9000)


def many(root: Path, count: int = probes.MOST_HELD) -> None:
    for pid in range(100, 100 + count):
        held(root, pid, at=5000 + pid * 10)
    # As long after the first of them as before the last, and a bit less.
    begun(root, "self", 5000 + (100 + 2 * count - 2) * 10 - 1)


def test_what_many_children_of_earlier_runs_wait_for_is_not_asked_again(
    tmp_path: Path, hanging: Arrivals
) -> None:
    """Each nightly audit left one more child, with the memory of its run, for each mount that
    hangs.
    """
    many(tmp_path)
    names, devices = ["statvfs-hung", "well", "open-ENOTCONN"], [number_of(tmp_path), "0:1", "0:2"]
    for name in names:
        (tmp_path / name).mkdir()
    host = Host(Deadline(600), 10, str(tmp_path))
    hung, well, dead = probes.probe_folders(host, names, 60, (), devices)
    assert not hanging.count
    assert (hung.state, hung.left, hung.unasked, hung.asked) == ("hung", 100, False, False)
    assert hung.text.startswith(f"{probes.MOST_HELD} processes of earlier runs")
    assert (well.state, well.asked, dead.state, dead.step) == ("ok", True, "dead", "listing")
    # A run that may repair needs an answer of its own.
    (answer,) = probes.probe_folders(
        host, ["well"], 60, (), devices[:1], probes.MOST_HELD_BY_REPAIRS
    )
    assert (answer.state, answer.asked) == ("ok", True)
    # A repair asks once more before it does anything.
    (tmp_path / "proc/100/comm").write_text("sops0:58\n")
    assert {answer.state for answer in probes.probe_folders(host, names[1:], 60)} == {"ok", "dead"}


def test_a_disk_that_many_children_of_earlier_runs_wait_for_is_not_asked_again(
    tmp_path: Path,
) -> None:
    """And a filesystem on it that hangs says nothing about it."""
    for pid in range(100, 100 + probes.MOST_HELD):
        held(tmp_path, pid, "sopd8:16")
        held(tmp_path, pid + 100, "sops8:32")
        held(tmp_path, pid + 200, "sopd")
    # As long after the first of them as before the last, and a bit less.
    begun(tmp_path, "self", 10 * (100 + 2 * probes.MOST_HELD - 2) - 1)
    host = Host(Deadline(600), 10, str(tmp_path))
    devices = [
        probes.Device(name, number, "")
        for name, number in (("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32"), ("sdd", ""))
    ]
    asked = Arrivals()

    def asking(name: str) -> str:
        asked.note()
        return f"{name}: {Path('/proc/self/comm').read_text()}"

    found = probes.ask_devices(host, asking, devices, 60, 60)
    assert found["sdb"].problem.startswith(f"{probes.MOST_HELD} processes of earlier runs")
    assert (found["sdb"].left, found["sdb"].value, asked.count) == (100, None, 3)
    asked.close()
    # The next run finds it by this.
    assert found["sda"].value == "sda: sopd8:0\n"
    assert found["sdc"].value == "sdc: sopd8:32\n"
    assert found["sdd"].value == "sdd: sopd\n"
    begun(tmp_path, "self", 10 * (100 + 2 * probes.MOST_HELD - 2))
    assert probes.ask_devices(host, len, devices, 60, 60)["sdb"].value == 3


def asked(root: Path) -> bool:
    """Whether the file system of this test is asked, though children of earlier runs wait."""
    (root / "well").mkdir(exist_ok=True)
    host = Host(Deadline(600), 10, str(root))
    (answer,) = probes.probe_folders(host, ["well"], 60, (), [number_of(root)])
    assert answer.state == ("ok" if answer.asked else "hung")
    return answer.asked


def test_what_many_wait_for_is_asked_once_in_a_while(tmp_path: Path) -> None:
    """Its server may have lost their requests, and answer all others: it counted as one that hangs
    until the node was booted.
    """
    many(tmp_path)
    assert not asked(tmp_path)
    now = 5000 + (100 + 2 * probes.MOST_HELD - 2) * 10
    begun(tmp_path, "self", now)
    assert asked(tmp_path)
    # That was in vain, so the next time is as much later.
    held(tmp_path, 300, at=now)
    begun(tmp_path, "self", now + 1)
    assert not asked(tmp_path)
    begun(tmp_path, "self", now + (now - 6000))
    assert asked(tmp_path)


def test_where_one_of_them_has_ended_it_is_asked(tmp_path: Path) -> None:
    many(tmp_path)
    (tmp_path / "proc/100/stat").unlink()
    assert asked(tmp_path)


def test_only_who_holds_what_it_is_called_after_waits_for_it(tmp_path: Path) -> None:
    """A child that hung on the way to a mount had that one's name. The number was another tenant's
    by then, whose mount was not asked any more.
    """
    many(tmp_path, probes.MOST_HELD - 1)
    held(tmp_path, 300, fd="/proc", at=5900)
    assert asked(tmp_path)


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
        {"pending": "0"},
        {"pending": "4000"},
        {"name": "sops0:5"},
        {"name": "sops"},
        {"name": "python3"},
        # A tenant gives its processes any name.
        {"cgroup": f"0::/kubepods/pod{'0' * 32}/{'1' * 64}"},
    ],
)
def test_what_is_no_child_of_an_earlier_run(tmp_path: Path, other: dict[str, str]) -> None:
    many(tmp_path, probes.MOST_HELD - 1)
    held(tmp_path, 300, **other, at=5900)
    assert asked(tmp_path)


def test_who_may_be_of_any_pod_is_no_child(tmp_path: Path) -> None:
    many(tmp_path)
    for own in (False, True):
        for pid in range(100, 100 + probes.MOST_HELD):
            (tmp_path / f"proc/{pid}/cgroup").unlink()
            (tmp_path / f"proc/{pid}/cgroup").symlink_to("x" * 300)
        assert probes.held_children(Host(Deadline(600), 10, str(tmp_path))) == {}, own
        # Nor where the same is not known of this module.
        (tmp_path / "proc/self").mkdir(exist_ok=True)
        if not own:
            (tmp_path / "proc/self/cgroup").symlink_to("x" * 300)


@pytest.mark.parametrize(("first", "bound"), [("1", True), ("2", False)])
def test_by_a_pod_on_the_node_there_are_no_more_children(
    tmp_path: Path, first: str, bound: bool
) -> None:
    """Modules that come by one stay in its control group, and so do their children. None was
    counted there, so each run left another one at each mount that hangs.
    """
    many(tmp_path)
    for pid in range(100, 100 + probes.MOST_HELD):
        group = tmp_path / f"proc/{pid}/cgroup"
        group.write_text(f"0::/kubepods/pod{first * 32}/{'1' * 64}\n")
    (tmp_path / "proc/self/cgroup").write_text(f"0::/kubepods/pod{'1' * 32}/{'2' * 64}\n")
    found = probes.held_children(Host(Deadline(600), 10, str(tmp_path)))
    assert bool(found) is bound


def test_a_child_is_called_after_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the longest numbers. Not after what it has yet to find."""
    for device in ("0:57", "0:1048575", "259:1048575"):
        kept = fdinfo.Kept(0, "", device)
        monkeypatch.setattr(fdinfo, "kept", lambda _held, kept=kept: kept)

        def named() -> str:
            probes.call_self(7)
            return Path("/proc/self/comm").read_text()

        assert bounded.call(named, 60).value == f"sops{device}\n"
    monkeypatch.undo()
    before = Path("/proc/self/comm").read_text()

    def names(at: Path) -> list[str]:
        found = []
        real = os.open

        def opening(name: Any, *words: Any, **more: Any) -> int:
            if not str(name).startswith("/proc/self/"):
                found.append(Path("/proc/self/comm").read_text().strip())
            return real(name, *words, **more)

        monkeypatch.setattr(os, "open", opening)
        with probes.walked("/", str(at)):
            return found[1:] + [Path("/proc/self/comm").read_text().strip()]

    way = bounded.call(lambda: names(Path(f"proc/self/root{tmp_path}")), 60)
    # A link on the way is not followed.
    assert "Not a directory" in way.problem
    root, proc = (f"sops{number_of(Path(one))}" for one in ("/", "/proc"))
    # One for each look-up, and the last for what is asked in the end.
    assert bounded.call(lambda: names(Path("proc/sys/fs")), 60).value == [root, proc, proc, proc]
    assert Path("/proc/self/comm").read_text() == before


def test_what_the_kernel_keeps_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        for one in (descriptor, str(tmp_path), f"/proc/self/fd/{descriptor}"):
            found = fdinfo.kept(one)
            assert (stat.S_ISDIR(found.mode), found.device) == (True, number_of(tmp_path))
    finally:
        os.close(descriptor)
    found = fdinfo.kept("/dev/null")
    assert (stat.S_ISCHR(found.mode), found.number) == (True, "1:3")
    with pytest.raises(FileNotFoundError):
        fdinfo.kept(str(tmp_path / "none"))
    # A child that cannot know it has no name, and is only not counted.
    monkeypatch.setattr(fdinfo, "_library", object)
    with pytest.raises(OSError, match="has no statx"):
        fdinfo.kept("/dev/null")
    before = Path("/proc/self/comm").read_text()
    probes.call_self(0)
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
