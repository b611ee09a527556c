# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one thread of a process has for itself, on this kernel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    host,
    namespaces,
    processes,
    threads,
    usage,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import (
    Fleeting,
    Host,
    count,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import mount_id
from ansible_collections.storage_ops.runbooks.tests.unit.support.clocks import comes_true

# A thread has open what its process has not; and is in a folder, and in a mount namespace, where
# that is not. Others have nothing of their own.
APART = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
if "tenant" in sys.argv:
    assert not libc.prctl(24, 21, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
    os.setresuid(65534, 65534, 65534)
def apart(number):
    assert not libc.unshare(0x400 | 0x200)  # CLONE_FILES, CLONE_FS
    os.open("/dev/full", os.O_RDWR)
    os.chdir(sys.argv[1])
    if "mounts" in sys.argv:
        assert not libc.unshare(0x20000)  # CLONE_NEWNS
        assert not libc.mount(b"apart", sys.argv[1].encode(), b"tmpfs", 0, None)
        os.chdir(sys.argv[1])
    print(os.getpid(), threading.get_native_id(), flush=True)
    time.sleep(600)
for _number in range(3):
    threading.Thread(target=time.sleep, args=(600,)).start()
for number in range(int(sys.argv[2])):
    threading.Thread(target=apart, args=(number,)).start()
    time.sleep(0.1)
time.sleep(600)
"""
# /dev/full.
DEVICE = "c1:7"

# CI has what it takes, so there a missing part is a failure.
needs_root = pytest.mark.skipif(
    not os.environ.get("CI") and os.geteuid() != 0, reason="only root makes mount namespaces"
)


@contextlib.contextmanager
def running(folder: Path, *words: str, apart: int = 1) -> Iterator[tuple[str, str]]:
    """IDs of such a process and of its last thread.

    ``words``: "mounts", if that mounts; "tenant", if it has no rights.
    """
    code = [sys.executable, "-c", APART, str(folder), str(apart), *words]
    if "mounts" in words:
        code = ["unshare", "-m", *code]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout
            for _thread in range(apart):
                pid, task = one.stdout.readline().split()
            yield pid, task
        finally:
            one.kill()


class Only(Host):
    """A node that has this process alone."""

    def __init__(self, root: Path, pid: str) -> None:
        (root / "proc").mkdir()
        (root / "proc" / pid).symlink_to(f"/proc/{pid}")
        super().__init__(Deadline(600), 60, str(root))


@pytest.fixture(params=["compared", "not compared"])
def compared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without kcmp(2)."""
    if request.param == "not compared":
        monkeypatch.setattr(threads, "_can_compare", lambda: False)


@pytest.mark.usefixtures("compared")
def test_what_a_thread_alone_has_open_is_seen() -> None:
    """A disk that it had open was not in use, and was deleted."""
    with running(Path("/proc")) as (pid, _task):
        base = f"/proc/{pid}"
        opened = usage.open_devices(base, {DEVICE}, {})
        assert processes.has_open(base, "/dev/full")
        assert not processes.has_open(base, "/dev/fuller")
        uses = set(processes._uses(base))
    assert (opened[DEVICE]["opens"], opened[DEVICE]["writes"]) == (1, True)
    assert {
        (mount_id("/dev/full"), "open file"),
        (mount_id("/proc"), "working directory"),
    } <= uses


def test_each_table_is_read_once(tmp_path: Path) -> None:
    """A program may have thousands of threads."""
    with running(tmp_path, apart=2) as (pid, task):
        for kind in (threads.FILES, threads.FOLDERS):
            found = threads.each_apart(f"/proc/{pid}", kind, os.path.basename)
            assert found[0] == pid and found[-1] == task and len(found) == 3
        # Of another thread of it, too; the first is then one of the others.
        assert pid in threads.each_apart(f"/proc/{task}", threads.FILES, os.path.basename)


def test_a_thread_with_a_table_of_its_own_that_ends_is_looked_for_again(tmp_path: Path) -> None:
    """Another one may have the same by now."""

    def gone(thread: str) -> None:
        if os.path.basename(thread) != pid:
            raise FileNotFoundError

    with running(tmp_path) as (pid, _task), pytest.raises(ProcessLookupError):
        threads.each_apart(f"/proc/{pid}", threads.FILES, gone)


def test_threads_that_end_while_they_are_read_are_no_evidence(tmp_path: Path) -> None:
    """Those that they have made meanwhile are looked at, as long as none of them ends."""
    (tmp_path / "task/1").mkdir(parents=True)
    seen: list[str] = []

    def relay(thread: str) -> None:
        number = len(seen) + 2
        seen.append(thread)
        if number < 2 + most:
            (tmp_path / f"task/{number}").mkdir()
            raise FileNotFoundError

    most = 5
    threads.of_others(str(tmp_path), relay)
    assert seen == [f"{tmp_path}/task/{number}" for number in range(1, 7)]
    most = 1000
    with pytest.raises(Fleeting):
        threads.of_others(str(tmp_path), relay)


@needs_root
def test_the_mounts_that_a_thread_alone_has_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    with running(tmp_path / "data", "mounts") as (pid, task):
        node = Only(tmp_path, pid)
        link = os.readlink(f"/proc/{task}/ns/mnt")
        everywhere = namespaces.Namespaces(node)
        assert everywhere._threads == {task}
        # Its folder is in no listing.
        (tmp_path / "proc" / task).symlink_to(f"/proc/{task}")
        monkeypatch.setattr(processes, "_pids", lambda _proc: [int(pid)])
        found = [mount for one, mount in everywhere.mounts() if one.link == link]
        _process, thread = processes.identify(node)
        _process, read = processes.read_processes(node, {link})
        openers = usage.read_openers(node, {DEVICE}).of([DEVICE])
    assert thread.namespace == read.namespace == link
    assert ("apart", task) in {(mount.source, mount.pid) for mount in found}
    assert (thread.pid, thread.unknown, read.unknown) == (int(task), processes.NOT_READ, "")
    (here,) = [mount.id for mount in found if mount.source == "apart"]
    assert (here, "working directory") in read.uses
    assert {int(pid), int(task)} <= {one.pid for one in openers}


def test_a_process_with_too_many_threads_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in any mount namespace; of a pod, in one that has the volumes of its process."""
    monkeypatch.setattr(threads, "MOST_THREADS", 3)
    with running(tmp_path) as (pid, _task):
        node = Only(tmp_path, pid)
        for found in (processes.identify(node), processes.read_processes(node, {"mnt:[1]"})):
            unseen, process = found
            assert (process.pid, process.unknown) == (int(pid), processes.NOT_READ)
            assert (unseen.pid, unseen.unknown) == (int(pid), processes.THREADS)
            assert unseen.may_be_in({"mnt:[1]"})
        assert f"(pid {pid})" in usage.read_openers(node, {DEVICE}).doubt
        # What is of no pod ends the run; of a pod, only what may be that pod's is not known.
        with pytest.raises(StorageOpsError, match=f"the threads of pid {pid}: it has more than 3"):
            namespaces.Namespaces(node)
        monkeypatch.setattr(namespaces, "pod_of", lambda _host, _pid: "pod-1")
        assert list(namespaces.Namespaces(node).unread) == ["pod-1"]
        monkeypatch.setattr(processes, "pod_uid_of", lambda _cgroup: "pod-1")
        unseen, process = processes.identify(node)
        assert (unseen.unknown, unseen.namespace) == (processes.THREADS, process.namespace)


@needs_root
def test_threads_that_can_have_no_namespace_hold_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any tenant may have as many as it likes, and they may end as fast as it likes."""
    monkeypatch.setattr(threads, "MOST_THREADS", 3)
    with running(Path("/proc"), "tenant") as (pid, _task):
        node = Only(tmp_path, pid)
        assert [one.unknown for one in processes.identify(node)] == [processes.NOT_READ]
        assert namespaces.Namespaces(node).unread == {}
        # What they have open is not known all the same.
        assert f"(pid {pid})" in usage.read_openers(node, {DEVICE}).doubt


def test_a_process_with_too_many_tables_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MOST_APART", 1)
    with running(tmp_path, apart=2) as (pid, _task):
        node = Only(tmp_path, pid)
        found = usage.read_openers(node, {DEVICE})
    assert found.of([DEVICE]) == []
    assert "more than 1 of its threads have open files of their own" in found.doubt


@needs_root
def test_each_namespace_of_a_process_is_seen(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with running(tmp_path / "data", "mounts", apart=2) as (pid, _task):
        node = Only(tmp_path, pid)
        links = {one.namespace for one in processes.identify(node)}
        assert len(links) == 3
        assert {one.link for one in namespaces.Namespaces(node).found} == links


# Its first thread ends.
HEADLESS = """
import ctypes, os, threading, time
opened = os.open("/dev/full", os.O_RDWR)
def go_on():
    while " Z " not in open(f"/proc/{os.getpid()}/stat").read():
        time.sleep(0.01)
    print(os.getpid(), flush=True)
    time.sleep(600)
threading.Thread(target=time.sleep, args=(600,)).start()
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_thread_that_has_ended_has_nothing_for_itself() -> None:
    """The first one stays for as long as its process, without its files."""
    code = [sys.executable, "-c", HEADLESS]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout and int(one.stdout.readline()) == one.pid
            base = f"/proc/{one.pid}"
            assert count(base) == 3
            assert usage.open_devices(base, {DEVICE}, {})[DEVICE]["opens"] == 1
            (identity,) = [
                found for found in [processes._identity("/proc", one.pid, Deadline(60))] if found
            ]
            assert processes._threads("/proc", [identity], Deadline(60), {}) == ([], [])
        finally:
            one.kill()


def test_the_thread_that_was_chosen_may_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others were listed by it, so all of them were read again, 100 times: 40 pods with 1,000
    threads each used up the time of the node's own services.
    """
    with running(tmp_path) as (pid, _task):
        node = Only(tmp_path, pid)
        (identity,) = [one for one in [processes._identity("/proc", int(pid), Deadline(60))] if one]
        # The kernel has ended it by now.
        monkeypatch.setattr(host, "living", lambda _base, _look=0: "/proc/0")
        assert processes._threads("/proc", [identity], Deadline(60), {}) == ([], [])
        link = identity["namespace"]
        monkeypatch.setattr(namespaces, "_view_of", lambda _host, _pid: (link, "/"))
        assert namespaces.Namespaces(node).unread == {}


# Its first thread ends; it has more of them than one look lists.
MANY = """
import _thread, ctypes, time
_thread.stack_size(65536)
for _number in range(200):
    _thread.start_new_thread(time.sleep, (600,))
print("begun", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_one_look_does_not_list_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000, the newest has ended before all are listed. Then all 100 looks were made, two
    lists each, and nothing was known of any process of the node.
    """
    listed: list[int] = []
    scandir = os.scandir

    def noted(entry: os.DirEntry[str]) -> os.DirEntry[str]:
        listed.append(1)
        return entry

    @contextlib.contextmanager
    def counted(folder: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            yield map(noted, entries)

    def whole(_folder: str) -> list[str]:
        raise AssertionError("all are listed")

    with subprocess.Popen([sys.executable, "-c", MANY], stdout=subprocess.PIPE) as one:
        try:
            assert one.stdout and one.stdout.readline()
            base = f"/proc/{one.pid}"
            assert comes_true(lambda: " Z " in Path(f"{base}/stat").read_text())
            tasks = sorted(map(int, os.listdir(f"{base}/task")))
            monkeypatch.setattr(host.os, "listdir", whole)
            monkeypatch.setattr(host.os, "scandir", counted)
            looks = []
            for look in range(9):
                looks.append(int(os.path.basename(host.living(base, look))))
                assert len(listed) <= 2 * 64
                listed.clear()
            assert host._has_threads(base)
            monkeypatch.undo()
        finally:
            one.kill()
    # The newest and the oldest in turns, and others, as any of the two may always have ended.
    assert set(looks[::3]) == {tasks[-1]} and set(looks[1::3]) == {tasks[1]}
    assert len(set(looks[2::3])) == 3 and set(looks[2::3]) <= set(tasks[1:])


def test_a_thread_that_may_not_be_read_is_no_empty_one(tmp_path: Path) -> None:
    """What has ended says the same."""

    def denied(thread: str) -> None:
        asked.append(thread)
        raise PermissionError

    asked: list[str] = []
    with running(tmp_path) as (pid, _task), pytest.raises(PermissionError):
        threads.of_others(f"/proc/{pid}", denied)
    (tmp_path / "task/1").mkdir(parents=True)
    assert threads.of_others(str(tmp_path), denied) == []
    assert len(asked) == 2


def test_a_thread_is_not_read_in_place_of_another(tmp_path: Path) -> None:
    """That one is in another mount namespace."""
    for name in ("7/ns", "8/task/7"):
        (tmp_path / "proc" / name).mkdir(parents=True)
    (tmp_path / "proc/7/ns/mnt").symlink_to("mnt:[7]")
    (tmp_path / "proc/7/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    everywhere = namespaces.Namespaces(Host(Deadline(600), 60, str(tmp_path)))
    assert list(everywhere._lines("8"))
    everywhere._threads.add("8")
    assert list(everywhere._lines("8")) == []


def test_where_no_time_is_left_for_threads_the_process_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as (pid, _task):
        (identity,) = [one for one in [processes._identity("/proc", int(pid), Deadline(60))] if one]
        assert processes._threads("/proc", [identity], Deadline(60), {}) == ([], [])
        assert processes._threads("/proc", [identity], Deadline(0), {}) == (
            [],
            [{**identity, "namespace": ""}],
        )
        assert count(f"/proc/{pid}") == 5
        node = Only(tmp_path, pid)
        monkeypatch.setattr(processes, "_threads", lambda _proc, known, *_bounds: ([], known))
        doubt = usage.read_openers(node, {DEVICE}).doubt
        node.command_timeout = 0
        monkeypatch.setattr(namespaces, "pod_of", lambda _host, _pid: "pod-1")
        assert list(namespaces.Namespaces(node).unread) == ["pod-1"]
    assert f"(pid {pid}) ({processes.THREADS})" in doubt
    monkeypatch.undo()
    # What has ended has none.
    assert count(f"/proc/{pid}") == 0
    assert processes._threads("/proc", [identity], Deadline(0), {}) == ([], [])
