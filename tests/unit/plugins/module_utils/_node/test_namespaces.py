# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mount namespaces of a node, of which a tenant may make any number."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    control_groups,
    copies,
    namespaces,
    usage,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.namespaces import (
    Namespaces,
)

POD = "0a1b2c3d-1111-2222-3333-777777777777"
FIRST = b"1 0 254:0 / / rw - ext4 /dev/vda rw"


class Slow(Host):
    """A node on which each mount takes as long as it says, in seconds."""

    def __init__(self, root: Path, **of_pids: Iterable[tuple[float, bytes]]) -> None:
        self.now = 0.0
        self.of_pids = {name[1:]: lines for name, lines in of_pids.items()}
        super().__init__(Deadline(300, lambda: self.now), 30, str(root))
        for pid in self.of_pids:
            (root / "proc" / pid / "ns").mkdir(parents=True)
            os.symlink(f"mnt:[{pid}]", root / "proc" / pid / "ns/mnt")

    def lines(self, path: str) -> Iterator[bytes]:
        for seconds, line in self.of_pids[path.split("/")[2]]:
            self.now += seconds
            # As in the real one.
            if not self.deadline.remaining():
                raise StorageOpsError(f"the deadline passed while {path} was read")
            yield line


def in_pod(root: Path, *pids: int, pod: str = POD) -> None:
    for pid in pids:
        (root / f"proc/{pid}/cgroup").write_text(f"0::/kubepods/pod{pod}/{'0' * 64}\n")


def one(line: bytes) -> list[tuple[float, bytes]]:
    return [(0.001, line)]


def endless(seconds: float = 0.011) -> Iterator[tuple[float, bytes]]:
    """Of 1 MiB, for which the kernel takes so long."""
    number = 100
    while True:
        number += 1
        yield seconds, b"%d 1 0:99 / /x rw - tmpfs x rw" % number


def disk(number: int) -> bytes:
    return b"%d 1 8:%d / /data rw - ext4 none rw" % (number, number)


def test_a_namespace_is_read_through_its_oldest_process(tmp_path: Path) -> None:
    """What a probe has begun there is gone by the next look."""
    node = Slow(tmp_path, p9=one(FIRST), p10=one(FIRST), p100=one(FIRST))
    for pid in (9, 10, 100):
        os.unlink(tmp_path / f"proc/{pid}/ns/mnt")
        os.symlink("mnt:[9]", tmp_path / f"proc/{pid}/ns/mnt")
        os.symlink("/", tmp_path / f"proc/{pid}/root")
    (found,) = Namespaces(node).found
    assert (found.pid, found.others) == ("9", ("10", "100"))


def test_one_pods_mounts_leave_time_for_the_others(tmp_path: Path) -> None:
    """They used up the deadline, and nothing of the node was repaired."""
    node = Slow(
        tmp_path, p1=one(FIRST), p2=endless(), p20=endless(), p30=one(disk(3)), p9=one(disk(9))
    )
    in_pod(tmp_path, 2, 20)
    in_pod(tmp_path, 30, pod=f"1{POD[1:]}")
    uses = usage.UsesByDevice(node)
    for number in (3, 9):
        assert [use.code for use in uses.of({"sdx": f"8:{number}"})] == ["in_use_mounted"]
    # Of its own it may hold any that the kernel does not deny.
    assert uses.unread == (f"the mount namespace of pid 2 of pod {POD}",)
    assert uses.of({"sdy": "8:77"}) == []
    assert node.now < 12


def test_of_many_pods_with_such_mounts_each_has_its_turn(tmp_path: Path) -> None:
    """Also while all of them together would use up the time."""
    slow = {f"p{pid}": endless() for pid in range(100, 140)}
    node = Slow(tmp_path, p1=one(FIRST), **slow, p500=one(disk(3)))
    for pid in range(100, 140):
        in_pod(tmp_path, pid, pod=f"{POD[:-3]}{pid}")
    in_pod(tmp_path, 500)
    uses = usage.UsesByDevice(node)
    assert len(uses.unread) == 40
    assert [use.code for use in uses.of({"sdx": "8:3"})] == ["in_use_mounted"]
    assert node.now < 31


def test_many_pods_of_one_namespace_leave_time_for_the_others(tmp_path: Path) -> None:
    """Each had one mount at a path of 32 MiB. No line can be left half read, so their first turns
    used up the time of all pods, and the volume of another tenant was not repaired.
    """
    many = {f"p{pid}": [(0.001, FIRST), (1.0, disk(3))] for pid in range(100, 140)}
    # Those of the others come last.
    node = Slow(tmp_path, p1=one(FIRST), **many, p800=one(disk(1)), p900=one(disk(2)))
    logs = tmp_path / "var/log/pods"
    for pid in (*range(100, 140), 800, 900):
        pod = f"{pid:08d}{POD[8:]}"
        in_pod(tmp_path, pid, pod=pod)
        # Whose the last one is, the node does not tell.
        if pid < 900:
            (logs / f"{'evil' if pid < 800 else 'good'}_app_{pod}").mkdir(parents=True)
    everywhere = Namespaces(node)
    devices = {mount.device for _namespace, mount in everywhere.mounts()}
    assert devices == {"254:0", "8:1", "8:2", "8:3"}
    assert everywhere.unread
    assert {pod[:8] for pod in everywhere.unread} <= {f"{pid:08d}" for pid in range(100, 140)}


def test_what_was_not_read_may_have_a_copy(tmp_path: Path) -> None:
    node = Slow(tmp_path, p1=one(FIRST), p2=endless())
    in_pod(tmp_path, 2)
    _mounts, crowded, _spaces = copies.other_mounts(node, ["0:50"])
    assert crowded == {
        "0:50": f"perhaps mounts in the mount namespace of pid 2 of pod {POD}, not read in time"
    }


class Owned(Slow):
    """On which user namespaces own the mount namespaces. ``owners``: by process; ``mighty``: which
    of them may mount in one of the node.
    """

    def __init__(
        self, root: Path, owners: dict[str, str | None], **of_pids: Iterable[tuple[float, bytes]]
    ) -> None:
        super().__init__(root, **of_pids)
        self.owners = {"self": "user:[1]", "1": "user:[1]", **owners}
        self.mighty: set[str] = set()

    def owner(self, pid: str) -> str | None:
        return self.owners[pid]

    def may_mount(self, pid: str) -> bool:
        return pid in self.mighty


def held(number: int, device: str) -> tuple[float, bytes]:
    return 0.001, b"%d 1 %s / /data rw - fuse.s3fs s3fs rw" % (number, device.encode())


def owned(root: Path, container: str = "0" * 64, **owners: str | None) -> Owned:
    """A pod's container has 0:51, and a copy of its mounts in a user namespace of its own."""
    given: dict[str, str | None] = {"2": "user:[1]", "3": "user:[2]", **owners}
    node = Owned(root, given, p1=one(FIRST), p2=[(0.001, FIRST), held(2, "0:51")], p3=endless())
    in_pod(root, 2)
    (root / "proc/3/cgroup").write_text(f"0::/kubepods/pod{POD}/{container}\n")
    return node


DEVICES = ["0:50", "0:51"]


def test_a_copy_of_a_containers_mounts_has_none_of_other_pods(tmp_path: Path) -> None:
    """A tenant with thousands of mounts at long paths, in a user namespace of its own, kept all
    mounts of the node from being repaired.
    """
    node = owned(tmp_path)
    _mounts, crowded, _spaces = copies.other_mounts(node, DEVICES)
    assert crowded == {
        "0:51": f"perhaps mounts in the mount namespace of pid 3 of pod {POD}, not read in time"
    }
    assert node.now < 12


@pytest.mark.parametrize(
    "how",
    [
        {"3": "user:[1]"},
        # A pod with hostUsers: false: its container's mounts are those that were not read.
        {"2": "user:[3]"},
        {"2": ""},
        {"3": ""},
        {"3": None},
        {"self": ""},
        # Of another container, whose own mounts are in no namespace that was found.
        {"container": "1" * 64},
        {"container": "none"},
    ],
)
def test_where_copies_may_be_from_elsewhere_they_may_have_all(
    tmp_path: Path, how: dict[str, str | None]
) -> None:
    node = owned(tmp_path, **how)  # type: ignore[arg-type]
    assert set(copies.other_mounts(node, DEVICES).crowded) == set(DEVICES)


@pytest.mark.parametrize("pid", ["2", "3"])
def test_a_pod_that_may_mount_on_the_node_may_have_all(tmp_path: Path, pid: str) -> None:
    node = owned(tmp_path)
    node.mighty.add(pid)
    assert set(copies.other_mounts(node, DEVICES).crowded) == set(DEVICES)


def test_a_container_whose_own_mounts_are_not_read_may_have_all(tmp_path: Path) -> None:
    node = owned(tmp_path)
    node.of_pids["2"] = endless()
    assert set(copies.other_mounts(node, DEVICES).crowded) == set(DEVICES)


def test_a_pod_of_many_processes_may_have_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_MOST_PROCESSES", 1)
    assert set(copies.other_mounts(owned(tmp_path), DEVICES).crowded) == set(DEVICES)


def test_an_unknown_pod_may_have_all(tmp_path: Path) -> None:
    node = owned(tmp_path)
    for pid in "23":
        (tmp_path / f"proc/{pid}/cgroup").unlink()
        (tmp_path / f"proc/{pid}/cgroup").symlink_to("x" * 300)
    assert set(copies.other_mounts(node, DEVICES).crowded) == set(DEVICES)


def test_the_nodes_own_have_to_be_read(tmp_path: Path) -> None:
    node = Slow(tmp_path, p1=one(FIRST), p2=endless(0.1))
    (tmp_path / "proc/2/cgroup").write_text("0::/system.slice/own.service\n")
    with pytest.raises(StorageOpsError, match="the longest took .* of pid 2, 15.*s") as raised:
        usage.UsesByDevice(node)
    assert raised.value.code == "evidence_unreadable"
    # Time is left for what needs no mounts.
    assert node.now < 155


def test_a_tenants_deep_folders_in_the_nodes_own_namespaces_take_time_and_no_more(
    tmp_path: Path,
) -> None:
    """Four subPaths at paths of 64 MiB, of which each service of the node has copies, took over
    30 s: then nothing of the node was repaired (N9).
    """
    deep = [(0.7, b"%d 1 0:99 / /x rw - tmpfs x rw" % number) for number in range(50, 54)]
    services = {f"p{pid}": [(0.0, FIRST), *deep] for pid in range(10, 21)}
    last = [*deep, (0.0, disk(5))]
    node = Slow(tmp_path, p1=one(FIRST), **services, p30=last, p40=one(disk(3)), p50=endless())
    for pid in [*range(10, 21), 30]:
        (tmp_path / f"proc/{pid}/cgroup").write_text(f"0::/system.slice/{pid}.service\n")
    in_pod(tmp_path, 40)
    in_pod(tmp_path, 50, pod=f"1{POD[1:]}")
    uses = usage.UsesByDevice(node)
    for number in (3, 5):
        assert [use.code for use in uses.of({"sdx": f"8:{number}"})] == ["in_use_mounted"]
    # Pods have no more time than before.
    assert uses.unread == (f"the mount namespace of pid 50 of pod 1{POD[1:]}",)
    assert 33 < node.now < 50


def test_no_number_of_namespaces_outlasts_the_deadline(tmp_path: Path) -> None:
    """A container may make as many as it likes, and none of those that were not read is empty."""
    node = Slow(tmp_path, p1=one(FIRST), p2=[(0.0, FIRST)], p3=one(disk(3)))
    in_pod(tmp_path, 2, 3)
    reading = Namespaces(node).mounts()
    next(reading)
    node.now = 300.0
    with pytest.raises(StorageOpsError, match="not all mount namespaces") as raised:
        list(reading)
    assert raised.value.code == "deadline_passed"


def failing(number: int) -> Iterator[tuple[float, bytes]]:
    yield 0.0, FIRST
    raise OSError(number, os.strerror(number))


def test_a_path_for_which_the_kernel_has_no_room_hides_no_mount(tmp_path: Path) -> None:
    """The reading ended there, as if nothing came behind it."""
    node = Slow(tmp_path, p1=one(FIRST), p2=failing(errno.ENOMEM), p3=one(disk(3)))
    in_pod(tmp_path, 2)
    uses = usage.UsesByDevice(node)
    assert uses.unread == (f"the mount namespace of pid 2 of pod {POD}",)
    assert len(uses.of({"sdx": "8:3"})) == 1


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.ERANGE])
def test_what_may_be_of_any_pod_is_not_the_nodes_own(tmp_path: Path, number: int) -> None:
    """A process in a control group whose path is too long for the kernel, and with one bound.

    It was read with the node's own, which all have to be read.
    """
    node = Slow(tmp_path, p1=one(FIRST), p2=failing(number), p3=one(disk(3)))
    (tmp_path / "proc/2/cgroup").symlink_to("x" * 300)
    everywhere = Namespaces(node)
    assert [(one.pid, one.pod) for one in everywhere.found] == [
        ("1", ""),
        ("3", ""),
        ("2", control_groups.UNKNOWN),
    ]
    assert [mount.pid for _one, mount in everywhere.mounts()] == ["1", "3", "2"]
    assert len(everywhere.unread) == 1
    unread = "".join(everywhere.unread.values())
    assert unread.startswith("the mount namespace of pid 2 of an unknown pod")


def test_a_process_whose_threads_follow_each_other_may_have_any_mount(tmp_path: Path) -> None:
    """It looked as if it had ended."""

    def ended() -> Iterator[tuple[float, bytes]]:
        yield from ()
        raise OSError(errno.EINVAL, "")

    node = Slow(tmp_path, p1=one(FIRST))
    in_pod(tmp_path, 1)
    for pid in (2, 3):
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(f"0::/kubepods/pod{POD}/{'0' * 64}\n")
        (tmp_path / f"proc/{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/task/99").mkdir()
    # 2 has never a thread that can be read, and 3 none that has its mounts.
    os.symlink("mnt:[3]", tmp_path / "proc/3/ns/mnt")
    node.lines = lambda path: (  # type: ignore[method-assign]
        line for _s, line in (one(FIRST) if "/1/" in path else ended())
    )
    everywhere = Namespaces(node)
    assert sorted(one.pid for one in everywhere.found) == ["1", "2", "3"]
    assert [mount.pid for _one, mount in everywhere.mounts()] == ["1"]
    assert everywhere.unread


def test_the_threads_of_pods_leave_time_for_those_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All services of the node were one owner, and each pod one: 40 pods with 1,000 threads each
    used up the time before the last service, and no mount of the node could be read.
    """
    own = [str(pid) for pid in range(1, 111)]
    evil = [str(pid) for pid in range(200, 240)]
    good = ["800", "900"]
    node = Slow(tmp_path, **{f"p{pid}": one(FIRST) for pid in (*own, *evil, *good)})
    for pid in (*evil, *good):
        pod = f"{int(pid):08d}{POD[8:]}"
        in_pod(tmp_path, int(pid), pod=pod)
        # Whose the last one is, the node does not tell.
        if pid != "900":
            space = "evil" if pid in evil else "good"
            (tmp_path / f"var/log/pods/{space}_app_{pod}").mkdir(parents=True)
    looked = []

    def reading(base: str, _link: str, until: Deadline) -> list[str]:
        pid = os.path.basename(base)
        looked.append(pid)
        if not until.remaining():
            raise StorageOpsError("there was no time to look at all of its threads")
        node.now += 1.0 if pid in evil else 0.01
        return []

    monkeypatch.setattr(namespaces.threads, "namespaces", reading)
    monkeypatch.setattr(namespaces.threads, "may_have_namespaces", lambda _base: True)
    monkeypatch.setattr(
        namespaces,
        "count",
        lambda base: 12 if os.path.basename(base) in own else 5000 if base[-3:] in good else 1000,
    )
    unread = Namespaces(node).unread
    assert sorted(looked[: len(own)]) == sorted(own)
    # Of the time that the node's own leave, one namespace has a quarter.
    assert sorted(looked[len(own) :]) == [*evil, *good]
    assert len(unread) == 40 - 8 and not any("pod 00000[89]" in one for one in unread.values())
    assert {one[:8] for one in unread} <= {f"{int(pid):08d}" for pid in evil}
    assert node.now < 10


def test_another_process_of_the_namespace_is_asked(tmp_path: Path) -> None:
    node = Slow(tmp_path, p1=one(FIRST), p2=[], p3=one(disk(3)))
    (tmp_path / "proc/2/ns/mnt").unlink()
    os.symlink("mnt:[3]", tmp_path / "proc/2/ns/mnt")
    for pid in (2, 3):
        os.symlink("/", tmp_path / f"proc/{pid}/root")
    assert [mount.pid for _one, mount in Namespaces(node).mounts()] == ["1", "3"]


def test_the_pod_of_a_process_whose_first_thread_has_ended(tmp_path: Path) -> None:
    """With control groups of version 1 that is in the first of them (proc_cgroup_show)."""
    node = Slow(tmp_path, p7=[], p8=[])
    in_pod(tmp_path, 8)
    (tmp_path / "proc/7/ns/mnt").unlink()
    (tmp_path / "proc/7/cgroup").write_text("1:name=systemd:/\n")
    (tmp_path / "proc/8/cmdline").write_text("server\0")
    for thread in (7, 8):
        (tmp_path / f"proc/7/task/{thread}").mkdir(parents=True)
    assert control_groups.pod_of(node, "7") == POD
    assert node.command_line("7")[0] == "server"


class Real(Host):
    """This machine with some of its processes."""

    def __init__(self, *pids: int) -> None:
        super().__init__(Deadline(600), 300)
        self.pids = [str(pid) for pid in pids]

    def names(self, path: str) -> list[str]:
        return self.pids if path == "/proc" else super().names(path)


@contextmanager
def running(code: str, *words: str) -> Iterator[list[int]]:
    """A process that prints process IDs, and those."""
    command = ["unshare", "-m", sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield [int(word) for word in process.stdout.readline().split()]
        finally:
            process.kill()


# CI has what it takes, so there a missing part is a failure.
needs_root = pytest.mark.skipif(
    not os.environ.get("CI") and os.geteuid() != 0, reason="only root makes mount namespaces"
)

# Its first thread ends.
HEADLESS = """
import ctypes, os, sys, threading, time
assert not ctypes.CDLL(None).mount(b"headless", sys.argv[1].encode(), b"tmpfs", 0, None)
leader = os.getpid()
def go_on():
    while " Z " not in open(f"/proc/{leader}/stat").read():
        time.sleep(0.01)
    print(leader, flush=True)
    time.sleep(600)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@needs_root
def test_the_namespace_of_a_process_whose_first_thread_has_ended(tmp_path: Path) -> None:
    """It has none of its own any more, so the namespace was passed over."""
    with running(HEADLESS, str(tmp_path)) as (pid,):
        with pytest.raises(FileNotFoundError):
            os.readlink(f"/proc/{pid}/ns/mnt")
        found = [mount for _one, mount in Namespaces(Real(pid)).mounts()]
    mine = [mount for mount in found if mount.point == str(tmp_path)]
    assert [(mount.source, mount.pid) for mount in mine] == [("headless", str(pid))]


# Two processes with their roots in the same mount namespace: at paths of more than a page, or one
# on the other.
ROOTS = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
def child(name):
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        libc.prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
        os.mkdir("inside")
        assert not libc.mount(name.encode(), b"inside", b"tmpfs", 0, None)
        os.chroot(".")
        os.write(told, b"x")
        time.sleep(600)
    os.read(ready, 1)
    return pid
def go(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
os.chdir(sys.argv[1])
for _level in range(20 if sys.argv[2] == "long" else 0):
    go("x" * 250)
pids = []
for name in ("first", "second"):
    go("root" if sys.argv[2] == "same" else name)
    if sys.argv[2] == "same":
        assert not libc.mount(name.encode(), sys.argv[1].encode() + b"/root", b"tmpfs", 0, None)
        os.chdir(sys.argv[1] + "/root")
    pids.append(child(name))
    os.chdir("..")
print(*pids, flush=True)
time.sleep(600)
"""


@needs_root
@pytest.mark.parametrize("kind", ["long", "same"])
def test_each_root_in_a_namespace_is_read(tmp_path: Path, kind: str) -> None:
    """Where two looked alike, only the mounts below the first were read."""
    with running(ROOTS, str(tmp_path), kind) as pids:
        # The second is on the first, whose mounts it does not see.
        host = Real(*reversed(pids))
        found = {mount.source for _one, mount in Namespaces(host).mounts()}
    assert {"first", "second"} <= found


# A container with a volume, whose process makes a copy of its mounts in a user namespace of its
# own. First it loses the rights that a runtime gives none (CAP_SYS_ADMIN, PR_CAPBSET_DROP).
CONTAINER = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert not libc.mount(b"data", sys.argv[1].encode(), b"tmpfs", 0, None)
if sys.argv[2] == "drop":
    assert not libc.prctl(24, 21, 0, 0, 0)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ready, told = os.pipe()
child = os.fork()
if not child:
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    done = libc.unshare(0x10000000 | 0x00020000) == 0
    os.write(told, b"1" if done else b"0")
    time.sleep(600)
print(os.getpid(), child if os.read(ready, 1) == b"1" else 0, flush=True)
time.sleep(600)
"""


@needs_root
@pytest.mark.parametrize("rights", ["drop", "keep"])
def test_what_a_container_can_copy_on_a_real_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights: str
) -> None:
    group = f"0::/kubepods/pod{POD}/{'0' * 64}"
    with running(CONTAINER, str(tmp_path), rights) as (container, copy):
        if not copy:
            assert not os.environ.get("CI")
            pytest.skip("this kernel lets no user make a user namespace")

        class Unread(Real):
            """Of the copy nothing can be read. Process 1 may be of more rights than this one."""

            def link(self, path: str) -> str:
                return super().link(path.replace("/proc/1/", "/proc/self/"))

            def lines(self, path: str) -> Iterator[bytes]:
                if path == f"/proc/{copy}/mountinfo":
                    raise OSError(errno.ENOMEM, "Cannot allocate memory")
                return super().lines(path)

        def in_the_pod(_host: Host, _pid: str) -> str:
            return group

        monkeypatch.setattr(control_groups, "read", in_the_pod)
        monkeypatch.setattr(copies, "read", in_the_pod)
        text = Path(f"/proc/{copy}/mountinfo").read_text()
        (mine,) = [line.split(" ")[2] for line in text.split("\n") if f" {tmp_path} " in line]
        node = Unread(container, copy)
        found = copies.other_mounts(node, [mine, "0:999999"])
    assert [mount.pid for mount in found.mounts if mount.point == str(tmp_path)] == [str(container)]
    assert set(found.crowded) == ({mine} if rights == "drop" else {mine, "0:999999"})
