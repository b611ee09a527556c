# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import bounded
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    control_groups,
    fdinfo,
    host,
    processes,
    threads,
    unmount,
    usage,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import (
    Fleeting,
    Host,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import mount_id
from ansible_collections.storage_ops.runbooks.tests.unit.support.clocks import Arrivals, Steps

POD = "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"
UNDER = POD.replace("-", "_")
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable"
ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "line",
    [
        f"0::{BURSTABLE}-pod{UNDER}.slice/cri-containerd-{ID}.scope",
        f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope/container",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/"
        f"cri-containerd-{ID}.scope",
        f"12:memory:/kubepods/besteffort/pod{POD}/{ID}\n0::/",
        f"0::/../../kubepods/pod{POD}/{ID}",
        f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice"
        f":cri-containerd:{ID}",
    ],
)
def test_pod_and_container_of_a_control_group(line: str) -> None:
    assert control_groups.pod_uid_of(line) == POD
    assert control_groups.container_id_of(line) == ID


def test_watcher_of_a_container_is_of_its_pod_and_no_container() -> None:
    line = f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{ID}.scope"
    assert (control_groups.pod_uid_of(line), control_groups.container_id_of(line)) == (POD, "")


def test_static_pods_have_a_hash_for_a_uid() -> None:
    uid = "0123456789abcdef" * 2
    assert (
        control_groups.pod_uid_of(f"0::{BURSTABLE}-pod{uid}.slice/cri-containerd-{ID}.scope") == uid
    )


@pytest.mark.parametrize(
    "line",
    [
        "0::/system.slice/ssh.service",
        f"0::/system.slice/docker-{ID}.scope",
        "0::/kubepods.slice/kubepods-burstable.slice",
        f"0::/user.slice/kubepods-pod{POD}x.slice/{ID}",
        "",
    ],
)
def test_what_is_no_pod(line: str) -> None:
    assert control_groups.pod_uid_of(line) == ""
    assert control_groups.container_id_of(line) == ""


def test_uses_of_a_process(tmp_path: Path) -> None:
    """Of a process of our own: the mounts of its folder, its root, its program, and of what it has
    open and mapped.
    """
    with (
        (tmp_path / "file").open("w") as file,
        subprocess.Popen(["sleep", "60"], cwd=tmp_path, stdout=file) as sleeper,
    ):
        here = mount_id(str(tmp_path))
        wanted = {(here, "working directory"), (here, "open file"), (mount_id("/"), "root")}
        uses: set[tuple[int, str]] = set()
        try:
            # A process that has just begun maps its files one after the other.
            until = time.monotonic() + 20
            while (
                not (wanted <= uses and {"program", "mapped file"} <= {how for number, how in uses})
                and time.monotonic() < until
            ):
                with contextlib.suppress(FileNotFoundError):
                    uses = set(processes._uses(f"/proc/{sleeper.pid}"))
        finally:
            sleeper.kill()
    assert wanted <= uses
    assert {"program", "mapped file"} <= {how for number, how in uses}


def test_whether_a_process_has_a_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is closed meanwhile hides none of the others; one that has ended has none."""
    with (tmp_path / "file").open("w") as file:
        assert processes.has_open("/proc/self", file.name)
        assert not processes.has_open("/proc/self", f"{file.name}2")
        names = processes._names
        monkeypatch.setattr(processes, "_names", lambda base: ["99999", *names(base)])
        assert processes.has_open("/proc/self", file.name)
        monkeypatch.setattr(processes, "_names", names)
        monkeypatch.setattr(processes, "MOST_FILES", 0)
        with pytest.raises(StorageOpsError, match="more than 0"):
            processes.has_open("/proc/self", file.name)
    assert not processes.has_open("/proc/0", file.name)


# Its first thread ends; another one keeps the file open.
_HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@contextlib.contextmanager
def headless(program: str, file: Path) -> Iterator[int]:
    """A process with the file and /dev/null open, once its first thread has ended."""
    with (
        file.open("w") as opened,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=opened, stdout=subprocess.DEVNULL
        ) as other,
    ):
        try:
            while " Z " not in Path(f"/proc/{other.pid}/stat").read_text():
                assert other.poll() is None
                time.sleep(0.01)
            yield other.pid
        finally:
            other.kill()


def test_a_process_whose_first_thread_has_ended_is_seen(tmp_path: Path) -> None:
    """It looked as if it had ended: the kernel has nothing of its first thread any more."""
    file = tmp_path / "file"
    with headless(_HEADLESS, file) as pid:
        base = f"/proc/{pid}"
        with pytest.raises(FileNotFoundError):
            os.readlink(f"{base}/ns/mnt")
        identity, uses = processes._process("/proc", pid) or ({}, [])
        assert identity["pid"] == pid
        assert identity["namespace"] == os.readlink("/proc/self/ns/mnt")
        assert {(mount_id(str(tmp_path)), "open file")} <= set(uses)
        assert {"program", "mapped file"} <= {how for _number, how in uses}
        assert processes.has_open(base, str(file))
        # Its standard output is /dev/null.
        assert usage.open_devices(base, {"c1:3"}, {})["c1:3"]["opens"] == 1


def test_a_process_that_may_not_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "proc/1/ns").mkdir(parents=True)
    (tmp_path / "proc/1/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "proc/1/cgroup").touch()
    (tmp_path / "proc/1/comm").mkdir()
    with pytest.raises(StorageOpsError, match="processes of this node could not be read"):
        processes.read_processes(Host(Deadline(10), 5, str(tmp_path)))


def test_processes_that_have_ended_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "proc/4711").mkdir(parents=True)
    assert processes.read_processes(Host(Deadline(10), 5, str(tmp_path))) == []


def test_a_mapped_file_may_have_any_name() -> None:
    """/proc/PID/maps escapes only line feeds: with a form feed in the name of a memfd, the line was
    split there, and no process of the node could be read.
    """
    descriptor = os.memfd_create("x\x0cZZ-ZZ r--p 0 0:0 0 /y\x85\u2028")
    os.truncate(descriptor, 4096)
    with mmap.mmap(descriptor, 4096):
        mount = unmount.mount_id_of(descriptor)
        uses = set(processes._uses("/proc/self"))
    os.close(descriptor)
    assert {(mount, "open file"), (mount, "mapped file")} <= uses


@pytest.mark.parametrize("name", ["a\x0cmnt_id:", "a\x0cmnt_id:\u00a04711", "a\nmnt_id:\t4711"])
def test_the_names_of_registered_files_are_no_mounts(tmp_path: Path, name: str) -> None:
    """io_uring's fdinfo has the names of its registered files (io_uring/fdinfo.c), with all but a
    few blanks as they are: such a name forged the use of another pod's mount.
    """
    text = f"pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1057\nUserFiles:\t1\n    0: {name}\n"
    (tmp_path / "3").write_bytes(text.encode())
    assert fdinfo.read(str(tmp_path / "3")) == (0o2000002, 15)


def test_open_files_in_another_form_are_not_guessed() -> None:
    for text in (b"", b"pos:\t0\nflags:\t0\nino:\t1\nmnt_id:\t7\n", b"mnt_id:\t7\n"):
        with pytest.raises(StorageOpsError, match="another form"):
            fdinfo.parse(text)


def tree(root: Path, pid: int, pod: str = "") -> Path:
    """A process whose open files can be read; its folder."""
    folder = root / f"proc/{pid}"
    for name in ("ns", "fd", "fdinfo", "map_files"):
        (folder / name).mkdir(parents=True)
    (folder / "comm").write_text("web\n")
    (folder / "cgroup").write_text(f"0::/kubepods/pod{pod}/{ID}\n" if pod else "0::/\n")
    (folder / "ns/mnt").symlink_to(f"mnt:[{pid}]")
    for name, number in (("3", 30), ("4", 40)):
        (folder / "fd" / name).write_text("")
        (folder / "fdinfo" / name).write_text(f"pos:\t0\nflags:\t00\nmnt_id:\t{number}\n")
    return folder


def test_a_process_that_cannot_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uses alone are not known; they were an error of the whole node."""
    tree(tmp_path, 7)
    (tree(tmp_path, 8, POD) / "fdinfo/3").write_text("nonsense")
    (tree(tmp_path, 9, POD) / "fd/5").write_text("")
    monkeypatch.setattr(processes, "MOST_FILES", 2)
    node = Host(Deadline(60), 30, str(tmp_path))
    spaces = {f"mnt:[{pid}]" for pid in (7, 8, 9)}
    seven, eight, nine = processes.read_processes(node, spaces)
    assert (seven.uses, seven.unknown) == (((30, "open file"), (40, "open file")), "")
    assert (eight.pod, eight.namespace, eight.uses) == (POD, "mnt:[8]", ())
    assert "another form" in eight.unknown
    assert (nine.uses, "more than 2 in" in nine.unknown) == ((), True)
    # What was not asked for is not known, and no empty one.
    for asked in (set(), {"mnt:[9]"}):
        seven, eight, nine = processes.read_processes(node, asked)
        assert (
            (seven.uses, seven.unknown) == ((), processes.NOT_READ) == (eight.uses, eight.unknown)
        )
        assert ("more than 2 in" in nine.unknown) is bool(asked)


@pytest.mark.parametrize(
    ("command_timeout", "left", "of_one", "of_all"),
    [(30, 300, 10, 30), (120, 300, 40, 120), (5, 300, 5, 5), (30, 8, 8, 8), (120, 60, 20, 60)],
)
def test_a_patient_caller_gives_more_time_to_each_process(
    command_timeout: float, left: float, of_one: float, of_all: float, tmp_path: Path
) -> None:
    """An emulated node that shared two processors with four others had 10 s for each process,
    whatever its caller said. systemd took longer, and who uses a mount was not known.
    """
    node = Host(Deadline(left, lambda: 0.0), command_timeout, str(tmp_path))
    assert node.for_one_of_many() == (of_one, of_all)


def test_only_processes_of_these_namespaces_are_read(tmp_path: Path) -> None:
    """Two real ones: this one, and one in a mount namespace of its own."""
    if os.geteuid():
        pytest.skip("only root makes mount namespaces")
    with (
        (tmp_path / "file").open("w") as file,
        subprocess.Popen(
            ["unshare", "-m", "sh", "-c", "echo; exec sleep 60"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=file,
        ) as other,
    ):
        try:
            assert other.stdout is not None and other.stdout.readline() == b"\n"
            (tmp_path / "proc").mkdir()
            for pid in (os.getpid(), other.pid):
                (tmp_path / "proc" / str(pid)).symlink_to(f"/proc/{pid}")
            node = Host(Deadline(600), 300, str(tmp_path))
            theirs = os.readlink(f"/proc/{other.pid}/ns/mnt")
            found = {one.pid: one for one in processes.read_processes(node, {theirs})}
        finally:
            other.kill()
    assert found[os.getpid()].unknown == processes.NOT_READ and not found[os.getpid()].uses
    assert found[other.pid].unknown == ""
    # The mount of its folder has another number there. A file that it got from here has the same;
    # so the kernel does not let that mount go.
    uses = found[other.pid].uses
    assert (mount_id(str(tmp_path)), "open file") in uses
    assert (mount_id(str(tmp_path)), "working directory") not in uses
    assert "working directory" in {how for _number, how in uses}


def test_pods_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,600 processes of one pod, each with as many open files as it may have, left those of a CSI
    driver unread. Here the time is over as soon as the others have been read.
    """
    other = "0" + POD[1:]
    # A FIFO hangs for whoever opens it.
    for pid in range(100, 180):
        folder = tree(tmp_path, pid, POD)
        (folder / "fdinfo/3").unlink()
        os.mkfifo(folder / "fdinfo/3")
    for pid in (*range(300, 340), *range(400, 403)):
        tree(tmp_path, pid, other if pid < 400 else "")
    (tmp_path / "proc/402/cgroup").write_text("0::/system.slice/kubelet.service\n")
    limits = []
    read = processes.call_each

    ended: list[int] = []
    kill = bounded._kill

    def call(function: Any, items: Any, *bounds: float, **how: Any) -> list[Reply]:
        limits.append(how["workers"])
        # A worker is killed when it has answered: two of the other pod, one of each control group.
        monkeypatch.setattr(bounded, "_kill", lambda pid: (ended.append(pid), kill(pid)))
        clock = Steps((lambda: len(ended) == 4, 1000.0))
        return read(function, items, *bounds, clock=clock, **how)

    monkeypatch.setattr(processes, "call_each", call)
    node = Host(Deadline(600), 300, str(tmp_path))
    every = {f"mnt:[{pid}]" for pid in range(100, 403)}
    found = processes.read_processes(node, every)
    assert limits == [16]
    assert [one.pid for one in found if not one.unknown] == [*range(300, 340), 400, 401, 402]
    owners = {one.pid: one.owner for one in found}
    assert (owners[100], owners[300]) == (POD, other)
    # What is in no pod has its turns by its control group.
    assert owners[400] == owners[401] == "0::/"
    assert owners[402] == "0::/system.slice/kubelet.service"


def test_the_identities_are_read_in_turns_of_their_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500,000 processes of one pod used up the time of all: "the processes of this node could not
    be read". Here there is time for 40, and of one thread that has ended the group says nothing.
    """
    other = "0" + POD[1:]
    for pid in (*range(100, 180), *range(300, 310), *range(400, 403)):
        tree(tmp_path, pid, POD if pid < 200 else other if pid < 400 else "")
    (tmp_path / "proc/402/cgroup").write_text("0::/system.slice/kubelet.service\n")
    reached = Arrivals()
    identity = processes._identity

    def slow(proc: str, pid: int, until: Deadline) -> Any:
        reached.note()
        # The old one went on until it was killed.
        if reached.count > 45:
            time.sleep(1000)
        return identity(proc, pid, until)

    monkeypatch.setattr(processes, "_identity", slow)
    node = Host(Deadline(6000, lambda: 1000.0 * (reached.count >= 40)), 30, str(tmp_path))
    try:
        found = {one.pid: one for one in processes.identify(node)}
    finally:
        reached.close()
    # None is absent.
    assert len(found) == 93
    left = {pid for pid, one in found.items() if one.unknown == processes._NO_TURN}
    assert len(left) == 93 - 40 and left < set(range(100, 180))
    # It may be in any namespace, but of no other pod, and a message says whose it is.
    one = found[max(left)]
    assert (one.namespace, one.pod, one.owner, one.container) == ("", POD, POD, "")
    assert one.may_be_in({"mnt:[1]"})
    assert one.describe() == f"a process of pod {POD} (pid {one.pid})"
    assert found[301].describe() == "web (pid 301)" and found[402].owner.endswith("kubelet.service")


def test_what_had_no_turn_has_another_chance_and_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked with the others, or is not known to use anything."""
    for pid in (7, 8, 9):
        tree(tmp_path, pid, POD if pid < 9 else "")
    looked = Arrivals()
    identity = processes._identity
    monkeypatch.setattr(
        processes, "_identity", lambda *of_what: (looked.note(), identity(*of_what))[1]
    )
    node = Host(Deadline(6000, lambda: 1000.0 * (looked.count >= 2)), 30, str(tmp_path))
    try:
        asked = processes.read_processes(node, {"mnt:[8]"})
        assert [one.unknown for one in asked] == [processes.NOT_READ, "", processes.NOT_READ]
        assert asked[1].uses == ((30, "open file"), (40, "open file"))
        # With so little time that not even all owners are known: what may be of any pod is never
        # the node's own.
        ticks = itertools.count()
        node = Host(Deadline(10**6, ticks.__next__), 6, str(tmp_path))
        unknown = control_groups.UNKNOWN
        assert [(one.pod, one.unknown) for one in processes.read_processes(node)] == [
            (POD, processes.NOT_READ),
            (unknown, processes._NO_TURN),
            (unknown, processes._NO_TURN),
        ]
    finally:
        looked.close()


def test_the_owner_of_a_process_whose_first_thread_has_ended(tmp_path: Path) -> None:
    """With control groups of version 1 the thread is in none, and must not look like the node's."""
    folder = tree(tmp_path, 7)
    (folder / "ns/mnt").unlink()
    (folder / "task/8").mkdir(parents=True)
    tree(tmp_path, 8, POD)
    assert processes._owner(str(folder)) == (POD, POD)
    assert processes._owner(str(tmp_path / "proc/6")) == (control_groups.UNKNOWN,) * 2
    (tmp_path / "proc/9").mkdir()
    assert processes._owner(str(tmp_path / "proc/9")) == (control_groups.UNKNOWN,) * 2
    deep(folder)
    (tmp_path / "proc/8/cgroup").unlink()
    (tmp_path / "proc/8/cgroup").symlink_to("x" * 300)
    assert processes._owner(str(folder)) == (control_groups.UNKNOWN,) * 2


def deep(folder: Path) -> None:
    """Let the control group of a process be too long, as the kernel says before Linux 6.8."""
    (folder / "cgroup").unlink()
    (folder / "cgroup").symlink_to("x" * 300)
    with pytest.raises(OSError, match="too long"):
        (folder / "cgroup").read_text()


def test_a_control_group_that_is_too_deep_hides_no_process(tmp_path: Path) -> None:
    """One such process of a tenant stopped everything that reads the processes of a node, and was
    no pod's any more.
    """
    for pid in (7, 8, 9):
        tree(tmp_path, pid, POD if pid == 9 else "")
    deep(tmp_path / "proc/7")
    node = Host(Deadline(60), 30, str(tmp_path))
    seven, eight, nine = processes.read_processes(node, {f"mnt:[{pid}]" for pid in (7, 8, 9)})
    assert (seven.pod, seven.owner, seven.container) == (control_groups.UNKNOWN,) * 2 + ("",)
    assert not seven.unknown and seven.uses == eight.uses == nine.uses
    assert (eight.pod, nine.pod) == ("", POD)
    assert [control_groups.pod_of(node, pid) for pid in "78"] == [control_groups.UNKNOWN, ""]
    # Gone is something else.
    assert control_groups.pod_of(node, "6") == ""
    # It is never taken for udev, either.
    (tmp_path / "proc/7/exe").symlink_to("/usr/bin/udevadm")
    assert not usage._udev(str(tmp_path / "proc/7"))


def test_what_may_be_of_any_pod_is_read_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (7, 8, 9):
        tree(tmp_path, pid, POD if pid == 9 else "")
    deep(tmp_path / "proc/7")
    order: list[int] = []

    def call(function: Any, items: Any, *_bounds: float, **_how: Any) -> list[Reply]:
        order.extend(items)
        return [Reply(value=None) for _one in items]

    monkeypatch.setattr(processes, "call_each", call)
    node = Host(Deadline(60), 30, str(tmp_path))
    processes.ask_each(node, lambda one: one.pid, processes.identify(node))
    assert order == [1, 2, 0]


# Its first thread ends; of the others, one begins the next and ends.
_CHAIN = """
import _thread, ctypes
def follow():
    _thread.start_new_thread(follow, ())
follow()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_threads_follow_each_other_has_not_ended(tmp_path: Path) -> None:
    """Its open device was missed in most looks."""
    file = tmp_path / "file"
    with headless(_CHAIN, file) as pid:
        base = f"/proc/{pid}"
        seen = []
        for _look in range(100):
            # That it is not known is an answer, too.
            try:
                seen.append(bool(usage.open_devices(base, {"c1:3"}, {})))
                seen.append(processes.has_open(base, str(file)))
                seen.append(processes._process("/proc", pid) is not None)
            except Fleeting:
                seen.append(True)
            assert processes._identity("/proc", pid, Deadline(60))
        assert all(seen)


def fleeting(tmp_path: Path, *, pod: str = POD) -> Host:
    """Process 7, of which each thread ends when one file of it was read. Its first one has ended,
    and goes on showing what it shows with control groups of version 2.
    """
    first, other = tmp_path / "proc/7", tmp_path / "proc/8"
    for thread in (7, 8):
        (first / f"task/{thread}").mkdir(parents=True)
    (first / "ns").mkdir()
    (first / "ns/user").symlink_to("user:[4026531837]")
    (first / "stat").write_text(f"7 (a) Z 1 1 1 0 -1 4194308{' 0' * 10} 2 0\n")
    (first / "cgroup").write_text(f"0::/kubepods/pod{pod}/{ID}\n" if pod else "0::/\n")
    # All that was let go of before: its capabilities may be those that others still have.
    (first / "status").write_text("CapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\n")
    (other / "ns").mkdir(parents=True)
    (other / "ns/mnt").symlink_to("mnt:[7]")
    return Host(Deadline(60), 5, str(tmp_path))


def test_what_is_known_of_a_process_whose_threads_follow_each_other(tmp_path: Path) -> None:
    """One of any tenant was of any pod, and in any mount namespace: no pod mount of the node was
    unmounted while it ran.
    """
    node = fleeting(tmp_path)
    # Without the right to it, none of its threads has mounts for itself.
    (tmp_path / "proc/8/status").write_text("CapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\n")
    (one,) = processes.identify(node)
    assert (one.pid, one.pod, one.owner, one.container) == (7, POD, POD, ID)
    assert (one.namespace, one.unknown) == ("mnt:[7]", processes.NOT_READ)
    assert one.describe() == f"a process of pod {POD} (pid 7)"
    assert control_groups.pod_of(node, "7") == POD
    # It is known by its mount namespace that it is not inside; where it may be, its files count.
    assert processes.read_processes(node, {"mnt:[1]"}) == [one]
    (asked,) = processes.read_processes(node, {"mnt:[7]"})
    assert (asked.pod, asked.namespace) == (POD, "mnt:[7]") and "threads end" in asked.unknown


def test_what_is_not_known_of_a_process_whose_threads_follow_each_other(tmp_path: Path) -> None:
    """The first thread, which has ended, speaks neither for the mount namespace nor for the
    capabilities of the others. And it is never the node's own.
    """
    node = fleeting(tmp_path)
    (tmp_path / "proc/8/ns/mnt").unlink()
    found = processes.identify(node)
    assert {(one.pod, one.namespace) for one in found} == {(POD, "")}
    assert all(one.may_be_in({"mnt:[1]"}) for one in found)
    assert node.may_mount("7") and threads.may_have_namespaces(f"{tmp_path}/proc/7")
    (tmp_path / "proc/7/cgroup").write_text("0::/\n")
    unknown = (control_groups.UNKNOWN,) * 2
    assert {(one.pod, one.owner) for one in processes.identify(node)} == {unknown}
    assert control_groups.pod_of(node, "7") == control_groups.UNKNOWN


@pytest.mark.parametrize(
    ("bounds", "user", "may"),
    [
        ("0", "user:[4026531837]", False),
        ("0000000000200000", "user:[4026531837]", True),
        ("0000000000200000", "user:[4026532000]", False),
    ],
)
def test_what_threads_that_follow_each_other_may_do(
    tmp_path: Path, bounds: str, user: str, may: bool
) -> None:
    """Each thread shows its capabilities, and the next one its user namespace, which they share."""
    node = fleeting(tmp_path)
    for thread, other in (("8", "9"), ("9", "8")):
        (tmp_path / f"proc/7/task/{other}").mkdir(exist_ok=True)
        (tmp_path / f"proc/{thread}/ns").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/8/status").write_text(f"CapPrm:\t0\nCapEff:\t0\nCapBnd:\t{bounds}\n")
    (tmp_path / "proc/9/ns/user").symlink_to(user)
    (tmp_path / "proc/9/ns/mnt").symlink_to("mnt:[7]")
    assert node.may_mount("7") is may


def test_looks_at_threads_that_follow_each_other_have_a_limit(tmp_path: Path) -> None:
    """With 100,000 threads, 100 looks take 10 to 20 s."""
    node = fleeting(tmp_path)
    now = [0.0]
    node.deadline = Deadline(60, lambda: now[0])

    def looking(_thread: str) -> None:
        now[0] += seconds
        raise FileNotFoundError

    seconds = 0.2
    with pytest.raises(Fleeting):
        node.of_living("7", looking)
    # Some are made however slow the node is, and with no time left.
    assert now[0] == pytest.approx(seconds * host.LEAST_LOOKS)
    now[0], seconds = 60.0, 0.001
    with pytest.raises(Fleeting):
        node.of_living("7", looking)
    assert now[0] == pytest.approx(60 + seconds * host.LEAST_LOOKS)
    now[0] = 0.0
    with pytest.raises(Fleeting):
        node.of_living("7", looking)
    assert now[0] == pytest.approx(seconds * host.LOOKS)


def test_one_process_does_not_use_up_the_time_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with 50,000 threads that follow each other took three times 100 looks, and the child that
    reads all processes was ended: "the processes of this node could not be read".
    """
    fleeting(tmp_path)
    # Its newest thread is in no list of processes.
    monkeypatch.setattr(processes, "_pids", lambda _proc: [7, 20, 21])
    tree(tmp_path, 20, "0" + POD[1:])
    tree(tmp_path, 21)
    looks = Arrivals()

    def slow(base: str) -> str:
        looks.note()
        raise FileNotFoundError(base)

    monkeypatch.setattr(processes, "text_of", slow_of_seven(slow, control_groups.text_of))
    node = Host(Deadline(6000, lambda: 0.2 * looks.count), 30, str(tmp_path))
    try:
        found = processes.identify(node)
        count = looks.count
    finally:
        looks.close()
    assert count <= 2 * host.LEAST_LOOKS
    # It is known to be one that cannot be read, and whose it is; and so are the others.
    assert [(one.pid, one.unknown) for one in found] == [
        (7, processes.NOT_READ),
        (20, processes.NOT_READ),
        (21, processes.NOT_READ),
    ]
    assert found[0].describe() == f"a process of pod {POD} (pid 7)"


def slow_of_seven(slow: Any, usual: Any) -> Any:
    """For the threads of process 7, which are 7 and 8."""
    return lambda base: (slow if base[-2:] in ("/7", "/8") else usual)(base)


# One without rights in a control group of its own: a tenant's, but for its parent.
_TENANT = f"""
import ctypes, os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as group:
    group.write(str(os.getpid()))
assert not ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
os.setresuid(65534, 65534, 65534)
{_CHAIN}"""


@contextlib.contextmanager
def group_of_a_pod() -> Iterator[str]:
    """A control group of version 2 as that of a container; its folder."""
    mounted = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    tops = [Path(words[1]) for words in mounted if words[2] == "cgroup2"]
    if os.geteuid() or not tops or not os.access(tops[0], os.W_OK):
        pytest.skip("only root makes control groups, and where version 2 of them is writable")
    folder = tops[0] / f"kubepods-storage_ops-{os.getpid()}/pod{POD}/{ID}"
    folder.mkdir(parents=True)
    try:
        yield str(folder)
    finally:
        # The process that was killed leaves it first.
        for _try in range(3000):
            if "populated 0" in (folder / "cgroup.events").read_text():
                break
            time.sleep(0.01)
        for one in (folder, *list(folder.parents)[:2]):
            one.rmdir()


def test_a_tenants_process_whose_threads_follow_each_other_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On this kernel: whose it is, its mount namespace, and that it may not mount."""
    command = [sys.executable, "-c", _TENANT]
    with group_of_a_pod() as group, subprocess.Popen([*command, group]) as other:
        try:
            while " Z " not in Path(f"/proc/{other.pid}/stat").read_text():
                assert other.poll() is None
                time.sleep(0.01)
            node = Host(Deadline(600), 300)
            monkeypatch.setattr(processes, "_pids", lambda _proc: [other.pid])
            here = os.readlink("/proc/self/ns/mnt")
            looks = [
                (
                    control_groups.pod_of(node, str(other.pid)),
                    node.may_mount(str(other.pid)),
                    [(one.pod, one.container, one.namespace) for one in processes.identify(node)],
                )
                for _look in range(20)
            ]
        finally:
            other.kill()
    # On a busy machine a look may meet no thread that lives long enough. Then it is not known whose
    # the process is, which is never taken for another pod's or for none's.
    assert looks.count((POD, False, [(POD, ID, here)])) > len(looks) / 2
    assert {pod for pod, _may_mount, _found in looks} <= {POD, control_groups.UNKNOWN}


@pytest.mark.parametrize("ended", [True, False])
def test_a_thread_that_ends_is_looked_at_again(tmp_path: Path, ended: bool) -> None:
    """The first thread has ended, and each other one does in the middle of the look."""
    folder = tmp_path / "7"
    (folder / "task/7").mkdir(parents=True)
    threads = 1 if ended else 2
    (folder / "stat").write_text(f"7 (a) b) Z 1 1 1 0 -1 4194308{' 0' * 10} {threads} 0\n")
    if not ended:
        (folder / "task/8").mkdir()
    looks = []

    def looking(thread: str) -> bool:
        looks.append(thread)
        raise FileNotFoundError

    if ended:
        assert host.of_living(str(folder), looking) is None
        assert looks == [str(folder)]
    else:
        with pytest.raises(Fleeting, match="threads end"):
            host.of_living(str(folder), looking)
        assert set(looks) == {str(tmp_path / "8")} and len(looks) > 1


@pytest.mark.parametrize("ended", [True, False])
def test_a_denied_link_of_a_thread_that_has_ended(tmp_path: Path, ended: bool) -> None:
    """The kernel denies the links in ns/ of a thread that is no more, to root as well."""
    folder = tmp_path / "7"
    (folder / "ns").mkdir(parents=True)
    os.symlink("mnt:[1]", folder / "ns/mnt")
    (folder / "task/7").mkdir(parents=True)
    (folder / "stat").write_text("7 (a) S 1 1 1 0 -1 0 0\n")

    def looking(_thread: str) -> str:
        if ended:
            shutil.rmtree(folder)
        raise PermissionError

    if ended:
        assert host.of_living(str(folder), looking) is None
    else:
        with pytest.raises(PermissionError):
            host.of_living(str(folder), looking)


def test_a_thread_that_has_dropped_its_files_is_no_answer(tmp_path: Path) -> None:
    """It is still there for a moment, and its folder is empty."""
    for pid, flags in (("7", 4), ("8", 4), ("9", 0)):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(f"{pid} (a) S 1 1 1 0 -1 {flags} 0\n")
        (tmp_path / "7/task" / pid).mkdir(parents=True)

    def looking(thread: str) -> str:
        # The next one begins.
        (tmp_path / "7/task/8").rmdir()
        return thread

    base = str(tmp_path / "7")
    (tmp_path / "7/task/9").rmdir()
    assert host.of_living(base, lambda thread: thread) == str(tmp_path / "8")
    with pytest.raises(Fleeting):
        host.of_living(base, lambda thread: thread, files=True)
    # The last one: what it still shows counts.
    assert host.of_living(base, looking, files=True) == str(tmp_path / "8")
    (tmp_path / "7/task/9").mkdir()
    assert host.of_living(base, lambda thread: thread, files=True) == str(tmp_path / "9")


def passing_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gone: int) -> list[int]:
    """Process 7, whose threads follow each other: of so many looks the thread has just ended.

    Its last one is without capabilities, in the first user namespace. Returns the looks.
    """
    for pid in ("7", "8"):
        folder = tmp_path / f"proc/{pid}"
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/mnt").symlink_to("mnt:[7]")
        (folder / "ns/user").symlink_to("user:[4026531837]")
        for thread in ("7", "8"):
            (folder / "task" / thread).mkdir(parents=True)
        (folder / "status").write_text("CapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\n")
    looks: list[int] = []

    def living(base: str, _look: int) -> str:
        looks.append(len(looks))
        return str(tmp_path / "proc" / ("8" if len(looks) > gone else "9"))

    monkeypatch.setattr(host, "living", living)
    return looks


def test_a_thread_that_has_just_ended_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's threads follow each other, so it was taken for one that may mount, in 2 % of the
    looks.
    """
    passing_on(tmp_path, monkeypatch, gone=3)
    node = Host(Deadline(60), 5, str(tmp_path))
    assert node.may_mount("7") is False
    passing_on(tmp_path / "other", monkeypatch, gone=3)
    node = Host(Deadline(60), 5, str(tmp_path / "other"))
    assert node.namespace("7") == "mnt:[7]"
    # The kernel does not tell the owner of a link that is none.
    assert node.owner("7") == ""
    shutil.rmtree(tmp_path / "other/proc/7/task")
    shutil.rmtree(tmp_path / "other/proc/8")
    assert (node.namespace("7"), node.owner("7"), node.may_mount("7")) == ("", None, False)


@pytest.mark.parametrize("allowed", [1, host.LOOKS + 1])
def test_a_link_that_may_not_be_read_is_one_of_a_thread_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """A link in ns/ of a thread that has just ended says EACCES: that ended the runs of others."""
    looks = passing_on(tmp_path, monkeypatch, gone=0)

    def refused(link: str) -> str:
        if len(looks) > allowed:
            return "mnt:[7]"
        raise PermissionError(13, "Permission denied", link)

    monkeypatch.setattr(host.os, "readlink", refused)
    node = Host(Deadline(60), 5, str(tmp_path))
    if allowed == 1:
        assert node.namespace("7") == "mnt:[7]"
    else:
        with pytest.raises(StorageOpsError, match="run as root") as raised:
            node.namespace("7")
        assert raised.value.code == "privileges_missing"


def test_a_thread_that_ends_is_in_no_control_group(tmp_path: Path) -> None:
    """Of version 1. That made a tenant's process one of the node."""
    fields = ["S", *map(str, range(4, 9)), "4194308", *map(str, range(10, 40))]
    (tmp_path / "stat").write_text(f"7 (x) {' '.join(fields)}\n")
    for groups in ("9:pids:/\n8:memory:/\n", "9:pids:/\n0::/system.slice/containerd.service\n"):
        (tmp_path / "cgroup").write_text(groups)
        with pytest.raises(ProcessLookupError):
            control_groups.text_of(str(tmp_path))
    fields[6] = "4194304"
    (tmp_path / "stat").write_text(f"7 (x) {' '.join(fields)}\n")
    assert control_groups.pod_uid_of(control_groups.text_of(str(tmp_path))) == ""
