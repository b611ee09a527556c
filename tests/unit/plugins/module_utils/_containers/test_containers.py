# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How containers are found and looked into, and how the runtime is asked.

What needs real ones is in tests/vm and tests/faults.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers import (
    mounters,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers import (
    runbook as containers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.plan import (
    Container,
    ContainerOptions,
    Copy,
    HostMount,
    Known,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.runbook import (
    OPTIONS_SPEC,
    Runtime,
    StaleContainers,
    container_options,
    find_runtime,
    fuse_points,
    inspect,
    look_into,
    table_device,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    Action,
    ActionFailed,
    NotStarted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import probes
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
    Answer,
    list_held,
    walked,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

UID = "5b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"
PATH = f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pv-1/mount"
DEFAULTS = {name: option.get("default") for name, option in OPTIONS_SPEC.options.items()}


def host(root: str = "/") -> Host:
    return Host(Deadline(30), 10, root)


def options(**given: Any) -> ContainerOptions:
    return container_options({**DEFAULTS, "kubelet_root": "/var/lib/kubelet", **given})


def script(tmp_path: Path, text: str) -> str:
    program = tmp_path / "crictl"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_folders_are_seen_as_a_process_sees_them(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.symlink("/etc", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    # To open a pipe would wait for whoever writes to it, also where it stands for a folder.
    names = ["folder", "file", "link", "link/ssl", "pipe", "nothing", "pipe/inside"]
    answers = look_into(host(), [(os.getpid(), f"{tmp_path}/{name}") for name in names], 5)
    assert [answer.state for answer, _device in answers] == [OK, OK, *[ERROR] * 5]
    device = os.stat(tmp_path).st_dev
    assert answers[0][1] == answers[1][1] == f"{os.major(device)}:{os.minor(device)}"
    assert answers[5][0].error == "ENOENT"


@pytest.mark.parametrize(("wanted", "reached"), [("", 1), ("here", 1), ("0:999", 0)])
def test_only_the_mount_that_was_asked_speaks_for_other_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, reached: int
) -> None:
    """Whoever made the way to it can have mounted another one there by then, which hangs: the dead
    mounts of others, who have the first one, were taken for hung.
    """
    status = os.stat(tmp_path)
    here = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    calls: list[int] = []
    given = here if wanted == "here" else wanted
    assert containers._list("/", str(tmp_path), "x", lambda: calls.append(1), given) == here
    assert len(calls) == reached
    # Where the kernel does not tell, it speaks for none.
    monkeypatch.setattr(containers.fdinfo, "kept", lambda _file: os.stat("/nowhere"))
    containers._list("/", str(tmp_path), "x", lambda: calls.append(1), here)
    assert len(calls) == reached


def test_only_what_had_all_its_time_is_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that could not be started, or died, says nothing of the mount."""
    replies = [Reply(problem="no answer", timed_out=True, left=7), Reply(problem="the probe died")]
    monkeypatch.setattr(containers, "call_each", lambda *_arguments, **_how: replies)
    answers = [answer for answer, _device in look_into(host(), [(1, "/a"), (1, "/b")], 5)]
    assert [(answer.state, answer.left) for answer in answers] == [(HUNG, 7), (ERROR, 0)]
    assert [answer.text for answer in answers] == ["no answer", "the probe died"]


def test_a_process_that_is_gone_is_an_error() -> None:
    ((answer, device),) = look_into(host(), [(2**22 + 1, "/")], 5)
    assert (answer.state, answer.error, device) == (ERROR, "ENOENT", "")


def of_pod(tmp_path: Path, name: str, mountinfo: str) -> None:
    """A process of a container in its own mount namespace."""
    process = tmp_path / "proc" / name
    (process / "ns").mkdir(parents=True)
    (process / "comm").write_text(f"of{name}\n")
    (process / "cgroup").write_text(f"0::/kubepods/pod{UID}/{int(name):064x}\n")
    os.symlink(f"mnt:[{name}]", process / "ns/mnt")
    (process / "mountinfo").write_text(mountinfo)
    (tmp_path / "proc/self").mkdir(exist_ok=True)
    node = ROOT + f"2 1 0:52 / {PATH} rw - fuse.s3fs x rw\n3 1 0:53 / /srv rw - fuse.sshfs x rw\n"
    (tmp_path / "proc/self/mountinfo").write_text(node)


def test_who_has_many_hung_mounts_leaves_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container in a user namespace may have thousands, each with a server that does not answer:
    they used up the deadline, and had all workers.
    """
    bounds: list[Any] = []

    def call(_function: Any, items: Any, *seconds: float, owners: Any, **few: Any) -> list[Reply]:
        bounds.append((seconds, owners, few))
        return [Reply(problem="no answer")] * len(items)

    monkeypatch.setattr(containers, "call_each", call)
    for name in ("7", "8"):
        of_pod(tmp_path, name, "")
    other = f"1{UID[1:]}"
    (tmp_path / "proc/8/cgroup").write_text(f"0::/kubepods/pod{other}/x\n")
    node = Host(Deadline(600), 30, str(tmp_path))
    look_into(node, [(7, "/a"), (7, "/b"), (8, "/a")], 5)
    assert bounds == [((5, 35), [UID, UID, other], {})]
    # One namespace may have any number of pods.
    for pod in (UID, other):
        (tmp_path / f"var/log/pods/team-a_app-{pod[0]}_{pod}").mkdir(parents=True)
    look_into(node, [(7, "/a"), (7, "/b"), (8, "/a")], 5)
    assert bounds[1][1] == ["team-a"] * 3


ROOT = "1 0 0:1 / / rw - overlay overlay rw\n"


def test_who_has_deep_paths_leaves_others_time_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may mount at a path of any length. The kernel keeps the whole line for each
    reader: 32 of them took 64 times the length, and all of them the whole deadline.
    """
    bounds: list[Any] = []

    def call(_function: Any, items: Any, *seconds: float, **how: Any) -> list[Reply]:
        bounds.append((seconds, how))
        return [Reply(problem="no answer before the deadline")] * len(items)

    monkeypatch.setattr(containers, "call_each", call)
    other, third = f"1{UID[1:]}", f"2{UID[1:]}"
    for pod in (UID, other):
        (tmp_path / f"var/log/pods/team-a_app-{pod[0]}_{pod}").mkdir(parents=True)
    of_pod(tmp_path, "7", ROOT)
    audit = StaleContainers(Host(Deadline(290, lambda: 0.0), 30, str(tmp_path)), options())
    found = audit._containers([("7" * 64, UID, 7), ("8" * 64, other, 8), ("9" * 64, third, 9)])
    assert [one.problem for one in found] == ["no answer before the deadline"] * 3
    # One of each namespace at a time, and for all together a share of the deadline. None of them
    # takes so long that it has the time of the others.
    assert bounds == [((10, 72.5), {"owners": ["team-a", "team-a", "?"], "of_owner": 1})]


def test_each_file_system_of_a_container_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By 100,000 binds of a mount that hangs a tenant used up the time of all, and none was found
    dead.
    """
    crowd = "".join(
        f"{number} 1 0:50 / /m/{number} rw - fuse.s3fs x rw\n" for number in range(2, 2000)
    )
    of_pod(tmp_path, "7", ROOT + crowd + "5000 1 0:51 / /other rw - fuse.s3fs x rw\n")
    of_pod(tmp_path, "8", ROOT + "2 1 0:50 / /data rw - fuse.s3fs x rw\n")
    asked: list[tuple[int, str]] = []

    def asking(
        _host: Host, questions: Sequence[tuple[int, str]], _timeout: float, devices: list[str]
    ) -> list[tuple[Answer, str]]:
        asked.extend(questions)
        return [(Answer(OK), "0:50")] * len(questions)

    monkeypatch.setattr(containers, "look_into", asking)
    audit = StaleContainers(host(str(tmp_path)), options())
    found = audit._ask(audit._containers([("7" * 64, "7", 7), ("8" * 64, "8", 8)]))
    assert asked == [(7, "/other"), (7, "/m/2"), (8, "/data")]
    assert {copy.answer.state for container in found for copy in container.copies} == {OK}


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        (Answer(HUNG, "listing"), 1),
        # On the way to it.
        (Answer(HUNG), 2),
        (Answer(DEAD, "listing", "x"), 2),
        (Answer(OK), 2),
    ],
)
def test_one_that_hangs_is_asked_in_one_container_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, times: int
) -> None:
    """A volume of a tenant with 32 pods used up all looks, each of which left a child."""
    for pid in ("7", "8"):
        of_pod(tmp_path, pid, ROOT + "2 1 0:50 / /data rw - fuse.s3fs x rw\n")
    asked: list[tuple[int, str]] = []

    def asking(
        _host: Host, questions: Sequence[tuple[int, str]], _timeout: float, devices: list[str]
    ) -> list[tuple[Answer, str]]:
        asked.extend(questions)
        assert devices == ["0:50"] * len(questions)
        return [(answer, "")] * len(questions)

    monkeypatch.setattr(containers, "look_into", asking)
    audit = StaleContainers(host(str(tmp_path)), options())
    found = audit._ask(audit._containers([("7" * 64, "7", 7), ("8" * 64, "8", 8)]))
    assert asked == [(7, "/data"), (8, "/data")][:times]
    assert [copy.answer for one in found for copy in one.copies] == [answer] * 2


def test_a_container_that_runs_is_told_by_its_own_process(tmp_path: Path) -> None:
    """All processes were read at each look, and a tenant may have 500,000: 8 s each time."""
    looks: list[str] = []

    class Crowded(Host):
        def names(self, path: str) -> list[str]:
            looks.append(path)
            return super().names(path)

    for name in ("7", "8"):
        of_pod(tmp_path, name, "")
    audit = StaleContainers(Crowded(Deadline(30), 10, str(tmp_path)), options())
    old = Container(f"{7:064x}", UID, 7, "of7", ())
    assert audit._is_there(old) and audit._compare(old)[0] == "the old one has not ended"
    assert looks == []
    # Another process of it may live on, and this one's ID may be another container's.
    (tmp_path / "proc/7").rename(tmp_path / "proc/9")
    assert audit._is_there(old) and looks == ["/proc"]
    (tmp_path / "proc/8").rename(tmp_path / "proc/7")
    assert audit._is_there(old) and audit._compare(old)[0] == "the old one has not ended"
    shutil.rmtree(tmp_path / "proc/9")
    assert not audit._is_there(old)


def test_what_children_of_earlier_runs_wait_for_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no container, and it is neither well nor broken; the others are asked."""
    device = tmp_path.stat().st_dev
    held = f"{os.major(device)}:{os.minor(device)}"
    for pid in ("7", "8"):
        mounts = f"2 1 {held} / /data rw - fuse.s3fs x rw\n3 1 0:51 / /log rw - fuse.s3fs x rw\n"
        of_pod(tmp_path, pid, ROOT + mounts)
    for pid in range(100, 100 + probes.MOST_HELD):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir()
        (folder / "comm").write_text(f"sops{held}\n")
        (folder / "stat").write_text(f"{pid} (sops) D {'1 ' * 18}{pid}\n")
        (folder / "fd").mkdir()
        (folder / "fd/5").symlink_to(tmp_path)
        (folder / "status").write_text("ShdPnd:\t0000000000000100\n")
        (folder / "cgroup").write_text("0::/user.slice\n")
        (folder / "ns").mkdir()
        (folder / "ns/mnt").symlink_to("mnt:[1]")
    asked: list[tuple[int, str]] = []

    def asking(
        _host: Host, questions: Sequence[tuple[int, str]], _timeout: float, devices: list[str]
    ) -> list[tuple[Answer, str]]:
        asked.extend(questions)
        return [(Answer(OK), "0:51")] * len(questions)

    monkeypatch.setattr(containers, "look_into", asking)
    audit = StaleContainers(host(str(tmp_path)), options())
    found = audit._ask(audit._containers([("7" * 64, "7", 7), ("8" * 64, "8", 8)]))
    assert asked == [(7, "/log"), (8, "/log")]
    answers = {(copy.device, copy.answer.unasked) for one in found for copy in one.copies}
    assert answers == {(held, True), ("0:51", False)}
    assert all("of earlier runs" in one.unasked for one in found)


class Owned(Host):
    """A node on which these processes have made their mount namespaces themselves."""

    alone = ("7",)

    def owner(self, pid: str) -> str | None:
        return f"user:[{pid in self.alone:d}]"


def test_what_a_container_can_mount_by_itself_is_no_volume(tmp_path: Path) -> None:
    """Each of a tenant's servers that hang held up a process of the node, in each run."""
    mounts = "".join(
        f"{number} 1 0:{number} / /m/{number} rw - fuse.s3fs x rw\n" for number in range(50, 55)
    )
    for pid in ("7", "8"):
        of_pod(tmp_path, pid, ROOT + mounts)
    audit = StaleContainers(Owned(Deadline(30), 10, str(tmp_path)), options())
    alone, usual = audit._containers([("7" * 64, "7", 7), ("8" * 64, "8", 8)])
    # Of the node's, too, only what is at a place of the kubelet.
    assert [copy.device for copy in alone.copies] == ["0:52"]
    assert len(usual.copies) == 5
    # Who mounted them is not known there, so it is not well either.
    assert "the kernel does not tell who mounted it" in alone.unasked and not usual.unasked


@pytest.mark.parametrize(
    ("users", "volume", "asked", "said"),
    [
        # What the container's users cannot have mounted is the node's.
        ("0 65536 65536", 0, ["0:50", "0:51", "0:52"], "more than 2 that the node has no more"),
        ("0 65536 65536\n65536 0 1\n", 0, ["0:50"], "has the user who mounts volumes"),
        ("0 0 1", 0, ["0:50"], "has the user who mounts volumes"),
        ("0 1000 1", 0, ["0:50", "0:51", "0:52"], "more than 2"),
        # Of a user who mounts nothing on the node, it is the container's own.
        ("0 7 1", 0, ["0:50"], ""),
        ("0 7 1", 7, ["0:50"], "has the user who mounts volumes"),
        ("0 7 1", None, ["0:50"], ""),
        (None, 0, ["0:50"], "does not tell"),
    ],
)
def test_a_filesystem_is_the_nodes_if_no_user_of_the_container_has_mounted_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    users: str | None,
    volume: int | None,
    asked: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(mounters, "MOST_GONE", 2)
    mounter = 7 if users == "0 7 1" else 0
    monkeypatch.setattr(mounters, "mounter_of", lambda _host, _device: mounter)
    (tmp_path / "proc/9").mkdir(parents=True)
    if users:
        (tmp_path / "proc/9/uid_map").write_text(users)
    points = [(f"/m/{number}", f"0:{number}") for number in range(50, 54)]
    seen, doubt = mounters.of_the_node(host(str(tmp_path)), "9", points, {"0:50": volume})
    assert [device for _point, device in seen] == asked
    assert said in doubt and bool(said) == bool(doubt)


def test_of_a_container_with_too_many_mounts_the_first_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is never taken for well. Another one is looked at all the same."""
    monkeypatch.setattr(containers, "MOST_POINTS", 3)
    for pid, number, name in (("7", 5, "m"), ("8", 2, "m"), ("9", 2, "m" * 5000)):
        lines = (f"{n} 1 0:50 / /{name}/{n} rw - fuse.s3fs x rw\n" for n in range(2, 2 + number))
        of_pod(tmp_path, pid, ROOT + "".join(lines))
    of_pod(tmp_path, "10", ROOT + f"2 1 0:50 / /{'m' * 2**22} rw - fuse.s3fs x rw\n")
    audit = StaleContainers(host(str(tmp_path)), options())
    found = audit._containers([(pid * 64, pid, int(pid)) for pid in ("7", "8", "9", "10")])
    assert [len(one.copies) for one in found] == [3, 2, 0, 0]
    assert [bool(one.problem) for one in found] == [True, False, True, True]
    assert "2 of its 5 FUSE mounts were not looked at" in found[0].problem
    assert "has a longer line than are read" in found[3].problem


def test_without_time_no_container_is_well(tmp_path: Path) -> None:
    of_pod(tmp_path, "7", ROOT + "2 1 0:50 / /data rw - fuse.s3fs x rw\n")
    late = Host(Deadline(0), 5, str(tmp_path))
    (one,) = StaleContainers(late, options())._containers([("7" * 64, "7", 7)])
    assert one.copies == () and one.unasked


def test_a_container_that_hides_its_mounts_keeps_no_other_from_its_repair(tmp_path: Path) -> None:
    """By a mount or two that come and go, in a user namespace of its own."""
    of_pod(
        tmp_path, "7", "1 0 0:1 / / rw - overlay overlay rw\n9 8 0:1 / /x rw - overlay overlay rw\n"
    )
    of_pod(tmp_path, "8", ROOT + "2 1 0:50 / /data rw - fuse.s3fs x rw\n")
    audit = StaleContainers(host(str(tmp_path)), options())
    first, second = audit._containers([("7" * 64, "7", 7), ("8" * 64, "8", 8)])
    assert "do not form one tree" in first.problem and "do not form one tree" in first.unasked
    assert second.copies and not second.problem


def test_what_was_looked_at_is_what_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have a watchdog's device in the container: a mere open and close resets the
    node.
    """
    (tmp_path / "file").write_text("x")
    (tmp_path / "device").symlink_to("/dev/null")
    real, opened = os.fstat, []

    def exchanging(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.rename(tmp_path / "device", tmp_path / "file")
        return found

    monkeypatch.setattr(os, "fstat", exchanging)
    with walked("/", str(tmp_path / "file")) as found:
        monkeypatch.setattr(os, "fstatvfs", lambda one: opened.append(os.read(one, 9)))
        list_held(found)
    assert opened == [b"x"] and os.path.islink(tmp_path / "file")


def test_only_the_fuse_file_system_that_a_process_gets_counts() -> None:
    lines = [
        "1 0 0:1 / / rw - overlay overlay rw",
        "2 1 0:50 / /data rw - fuse.s3fs s3fs rw",
        "3 1 0:51 / /hidden rw - fuse bindfs rw",
        "4 3 0:52 / /hidden rw - tmpfs tmpfs rw",
        "5 1 0:53 / /sys/fs/fuse/connections rw - fusectl fusectl rw",
        "6 1 8:1 / /disk rw - fuseblk /dev/sda1 rw",
        "7 1 0:54 / /twice rw - fuse.x x rw",
        "8 7 0:55 / /twice rw - fuse.x x rw",
    ]
    table = MountTable(parse_mountinfo("\n".join(lines), "1"))
    assert [point for point, _device in fuse_points(table)[0]] == ["/data", "/twice"]
    assert table_device(table, "/twice") == "0:55"
    assert [table_device(table, point) for point in ("/hidden", "/disk", "/data/sub", "/")] == [
        ""
    ] * 4
    # Of a process in a chroot, the mount that its root is in is not listed.
    inside = MountTable(parse_mountinfo(lines[1], "1"))
    assert [table_device(inside, point) for point in ("/data", "/other")] == ["0:50", ""]


def test_the_runtime_is_the_one_that_was_given_or_the_only_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crictl = script(tmp_path, "true")
    root = tmp_path / "root"
    (root / "run/containerd").mkdir(parents=True)
    given = options(crictl=crictl)
    assert "no socket of a container runtime" in find_runtime(host(str(root)), given).problem
    (root / "run/containerd/containerd.sock").touch()
    found = find_runtime(host(str(root)), given)
    assert found.command == (
        crictl,
        "--timeout",
        "10s",
        "--runtime-endpoint",
        "unix:///run/containerd/containerd.sock",
    )
    (root / "run/crio").mkdir()
    (root / "run/crio/crio.sock").touch()
    assert "say which by runtime_endpoint" in find_runtime(host(str(root)), given).problem
    named = find_runtime(host(str(root)), options(crictl=crictl, runtime_endpoint="unix:///x"))
    assert named.command[-2:] == ("--runtime-endpoint", "unix:///x")
    (root / "etc").mkdir()
    (root / "etc/crictl.yaml").touch()
    assert find_runtime(host(str(root)), given).command == (crictl, "--timeout", "10s")
    monkeypatch.setenv("PATH", f"/no/such/folder:{tmp_path}")
    assert find_runtime(host(str(root)), options(crictl="crictl")).command[0] == crictl
    assert "is not on this node" in find_runtime(host(), options(crictl="/no/such/crictl")).problem
    assert "is not on this node" in find_runtime(host(), options(crictl="no-such-crictl")).problem


def test_what_the_runtime_says_without_the_environment(tmp_path: Path) -> None:
    status = {
        "metadata": {"name": "main"},
        "labels": {"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "web-0"},
        "mounts": [
            {
                "containerPath": "/data/",
                "hostPath": PATH,
                "propagation": "PROPAGATION_BIDIRECTIONAL",
            }
        ],
    }
    answer = tmp_path / "answer"
    answer.write_text(
        json.dumps({"status": status, "info": {"config": {"envs": [{"value": "planted"}]}}})
    )
    said = inspect(host(), Runtime((script(tmp_path, f"cat {answer}"),)), "x")
    assert said and (said.name, said.namespace, said.pod_name) == ("main", "shop", "web-0")
    assert said.mounts == {"/data": (PATH, "PROPAGATION_BIDIRECTIONAL")}
    assert "planted" not in repr(said)
    assert said.grace_period == 30


@pytest.mark.parametrize(
    ("noted", "seconds"),
    [("0", 0), ("1", 1), ("3600", 3600), ("", 30), ("-1", 30), ("1s", 30), ("9" * 40, 30)],
)
def test_the_grace_period_of_the_pod(tmp_path: Path, noted: str, seconds: int) -> None:
    """As a kubelet notes it; a pod's author may have put in anything."""
    annotations = {"io.kubernetes.pod.terminationGracePeriod": noted}
    answer = tmp_path / "answer"
    status = {"metadata": {"name": "main"}, "annotations": annotations}
    answer.write_text(json.dumps({"status": status}))
    said = inspect(host(), Runtime((script(tmp_path, f"cat {answer}"),)), "x")
    assert said and said.grace_period == seconds


@pytest.mark.parametrize(
    "says",
    ["exit 1", "echo no JSON", "echo '{}'", "echo '[]'", 'echo \'{"status": {"metadata": {}}}\''],
)
def test_a_runtime_that_says_nothing_useful(tmp_path: Path, says: str) -> None:
    assert inspect(host(), Runtime((script(tmp_path, says),)), "x") is None


class TestNaming:
    """Who a container is, and what of the node its mounts are."""

    def named(
        self,
        tmp_path: Path,
        known: list[dict[str, Any]],
        mounts: list[dict[str, Any]] | None = None,
        name: str = "main",
        points: tuple[str, ...] = ("/data",),
        root: str = "/var/lib/kubelet",
    ) -> Container:
        entries = [{"pod": UID, "mount_path": "/data", **entry} for entry in known]
        given = options(containers=entries)
        runbook = StaleContainers(host(), given)
        if mounts is not None:
            answer = tmp_path / "answer"
            answer.write_text(
                json.dumps({"status": {"metadata": {"name": name}, "mounts": mounts}})
            )
            runbook._runtime = Runtime((script(tmp_path, f"cat {answer}"),))
        runbook._root = root
        copies = tuple(Copy(point, "0:50", Answer(DEAD)) for point in points)
        container = Container("c" * 64, UID, 1, "web", copies, known=given.containers)
        return runbook._named(container)

    def test_by_the_runtime(self, tmp_path: Path) -> None:
        known = [
            {"container": "side", "restart_policy": "Never"},
            {"container": "main", "id": "old", "restart_policy": "Always", "volume": "pv-9"},
        ]
        found = self.named(tmp_path, known, [{"containerPath": "/data", "hostPath": PATH}])
        assert (found.name, found.restart_policy) == ("main", "Always")
        assert (
            found.copies[0].host.path,
            found.copies[0].host.volume,
            found.copies[0].host.problem,
        ) == (PATH, "pv-9", "")
        # The name in the path may be what the pod's owner calls an inline volume.
        alone = self.named(tmp_path, [], [{"containerPath": "/data", "hostPath": PATH}])
        assert (alone.copies[0].host.path, alone.copies[0].host.volume) == (PATH, "")

    def test_by_the_id_without_it(self, tmp_path: Path) -> None:
        known = [
            {"container": "side", "id": "d" * 64, "restart_policy": "Never"},
            {"container": "main", "id": "c" * 64, "host_path": PATH},
        ]
        found = self.named(tmp_path, known)
        assert (found.name, found.restart_policy, found.copies[0].host.path) == ("main", "", PATH)
        # One that is about another id is not about this one, also where it is the only one.
        other = self.named(tmp_path, [{"container": "main", "id": "d" * 64, "host_path": PATH}])
        assert (other.known, other.copies[0].host.path) == ((), "")

    def test_by_its_path_where_no_other_container_has_the_same(self, tmp_path: Path) -> None:
        assert self.named(tmp_path, [{"container": "main", "host_path": PATH}]).name == "main"
        assert self.named(tmp_path, [{"container": "main"}, {"container": "side"}]).known == ()
        elsewhere = {"container": "side", "mount_path": "/other"}
        assert self.named(tmp_path, [{"container": "main"}, elsewhere]).name == "main"
        assert (
            "neither the cluster nor the runtime"
            in self.named(tmp_path, [{"container": "main"}]).copies[0].host.problem
        )

    @pytest.mark.parametrize(
        "path",
        [
            "/var/lib/kubelet/pods",
            PATH.replace(UID, "0b9ba8a1-4f1b-4c7e-9d2b-1f2f5d0f3c11"),
            f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/x",
            "/mnt/s3",
        ],
    )
    def test_what_is_no_csi_volume_of_its_own_pod(self, tmp_path: Path, path: str) -> None:
        found = self.named(tmp_path, [{}], [{"containerPath": "/data", "hostPath": path}])
        assert "no CSI volume of its own pod" in found.copies[0].host.problem

    def test_each_mount_by_its_own_path(self, tmp_path: Path) -> None:
        """Else one would be compared with the node's mount of another volume."""
        second = PATH.replace("pv-1", "pv-2")
        entries = [{"mount_path": "/more", "host_path": second}, {"host_path": PATH}]
        found = self.named(tmp_path, entries, points=("/data", "/more"))
        assert [copy.host.path for copy in found.copies] == [PATH, second]

    def test_by_a_link_to_the_kubelets_folder(self, tmp_path: Path) -> None:
        """The runtime has the path that the kubelet was given, and mountinfo where that leads."""
        mounts = [{"containerPath": "/data", "hostPath": PATH}]
        real = PATH.replace("/var/lib/kubelet", "/data/kubelet")
        found = self.named(tmp_path, [{}], mounts, root="/data/kubelet")
        assert (found.copies[0].host.path, found.copies[0].host.problem) == (real, "")
        mounts = [{"containerPath": "/data", "hostPath": real}]
        found = self.named(tmp_path, [{}], mounts, root="/data/kubelet")
        assert (found.copies[0].host.path, found.copies[0].host.problem) == (real, "")

    def test_by_a_path_that_is_written_otherwise(self, tmp_path: Path) -> None:
        found = self.named(
            tmp_path,
            [{"mount_path": "//data/./"}],
            [{"containerPath": "/data//", "hostPath": PATH}],
        )
        assert (len(found.known), found.elsewhere, found.copies[0].host.path) == (1, (), PATH)

    def test_one_that_was_given_with_other_paths_only_is_kept(self, tmp_path: Path) -> None:
        linked = {"mount_path": "/var/run/data", "container": "main"}
        found = self.named(
            tmp_path, [linked], [{"containerPath": "/var/run/data", "hostPath": PATH}]
        )
        assert (found.known, found.elsewhere) == ((), ("/var/run/data",))
        # That of another container says nothing of this one.
        assert self.named(tmp_path, [linked], [], name="side").elsewhere == ()
        assert self.named(tmp_path, [{**linked, "id": "d" * 64}]).elsewhere == ()
        assert self.named(tmp_path, [linked]).elsewhere == ("/var/run/data",)

    def test_what_the_runtime_does_not_know_as_a_volume(self, tmp_path: Path) -> None:
        found = self.named(
            tmp_path, [{"host_path": PATH}], [{"containerPath": "/var/lib", "hostPath": "/var/lib"}]
        )
        assert "none of the container's volumes" in found.copies[0].host.problem

    def test_who_mounts_for_others(self, tmp_path: Path) -> None:
        mounts = [
            {"containerPath": "/pods", "hostPath": "/x", "propagation": "PROPAGATION_BIDIRECTIONAL"}
        ]
        assert self.named(tmp_path, [{}], mounts).serves
        plain = {"containerPath": "/data", "hostPath": PATH}
        assert self.named(tmp_path, [{}], [plain, *mounts]).serves
        assert not self.named(
            tmp_path,
            [{}],
            [{"containerPath": "/data", "hostPath": PATH, "propagation": "PROPAGATION_PRIVATE"}],
        ).serves


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"probe_timeout": 0}, "probe_timeout is 0"),
        ({"restart_timeout": float("nan")}, "restart_timeout is nan"),
        ({"max_repairs": -1}, "-1"),
    ],
)
def test_options_that_are_none(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(StorageOpsError, match=problem):
        options(**given)


def test_a_module_that_only_reports_lacks_most_options() -> None:
    given = container_options({"probe_timeout": 2.0, "kubelet_root": "/data/kubelet/"})
    assert given == ContainerOptions(
        probe_timeout=2.0, kubelet_root="/data/kubelet", max_repairs=1_000_000
    )


def test_a_node_without_a_kubelet_has_no_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "require_root", lambda self: None)
    monkeypatch.setattr(containers, "require_host_namespace", lambda host: None)
    monkeypatch.setattr(containers, "find_root", lambda host, root: "")
    monkeypatch.setattr(containers, "_container_processes", lambda host: pytest.fail("was asked"))
    runbook = StaleContainers(host(), options())
    state = runbook.gather()
    assert (state.containers, runbook.plan(state).findings) == ((), [])
    assert runbook.healthy(state) == "no container has a FUSE mount"


def test_a_container_is_that_of_a_process_with_a_view_of_its_own(tmp_path: Path) -> None:
    def process(pid: str, namespace: str, container: str) -> None:
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(f"0::/kubepods/pod{UID}/{container}\n")
        os.symlink(f"mnt:[{namespace}]", tmp_path / f"proc/{pid}/ns/mnt")

    process("self", "1", "")
    # What watches it from the node, and what is about to end and has no view any more.
    process("20", "1", "c" * 64)
    process("21", "2", "c" * 64)
    process("22", "2", "c" * 64)
    process("30", "1", "d" * 64)
    # Of a service with a view of its own, and one that ends meanwhile.
    process("40", "4", "")
    process("41", "5", "")
    (tmp_path / "proc/41/cgroup").unlink()
    node = host(str(tmp_path))
    assert list(containers._container_processes(node)) == [("c" * 64, UID, 21)]
    # One that has moved to a control group whose path is too long for the kernel is not gone.
    look = StaleContainers(node, options())
    gone, hidden = replace(STALE, id="e" * 64, pid=99), replace(STALE, id="e" * 64, pid=41)
    (tmp_path / "proc/41/cgroup").symlink_to("x" * 300)
    assert [look._is_there(one) for one in (STALE, gone, hidden)] == [True, False, True]


class Watching(StaleContainers):
    """Containers as they are the second time."""

    def __init__(self, now: list[Container], **given: Any) -> None:
        # Each look at the clock is a quarter of a second after the one before.
        readings = itertools.count()
        patient = Host(Deadline(30, lambda: next(readings) / 4), 10, "/")
        super().__init__(patient, options(**given))
        self.now = now
        self.looks = 0

    def _containers(self, processes: Iterable[tuple[str, str, int]]) -> list[Container]:
        return self.now

    def _ask(self, containers: Sequence[Container]) -> list[Container]:
        return list(containers)

    def _described(self, containers: Sequence[Container]) -> list[Container]:
        return list(containers)

    def _is_there(self, container: Container) -> bool:
        self.looks += 1
        return True


KNOWN = Known(UID, "/data", "main", probe=True, restart_policy="Always")
NODE_HAS = HostMount(PATH, "pv-1", "0:60", Answer(OK))
STALE = Container(
    "c" * 64, UID, 1, "web", (Copy("/data", "0:50", Answer(DEAD), NODE_HAS),), known=(KNOWN,)
)


def test_a_restart_policy_that_is_another_one_by_now_is_looked_at_again() -> None:
    """Its name may have been told by the runtime meanwhile, and so which entry is about it."""
    once = replace(STALE, known=(replace(KNOWN, restart_policy="Never"),))
    runbook = Watching([once], method="cri")
    with pytest.raises(NotStarted, match="meanwhile its restart policy is Never"):
        runbook.apply(Action("stop_container", STALE.title, ["false"], STALE))


@pytest.mark.parametrize(
    ("copy", "problem"),
    [
        (None, "ended meanwhile"),
        (Copy("/data", "0:60", Answer(OK), NODE_HAS), "its mounts answer now"),
        (Copy("/data", "0:60", Answer(DEAD), NODE_HAS), "the node has the same file system 0:60"),
        (
            Copy("/data", "0:50", Answer(DEAD), replace(NODE_HAS, device="")),
            "no FUSE file system is mounted",
        ),
        (
            Copy("/data", "0:50", Answer(DEAD), replace(NODE_HAS, answer=Answer(DEAD))),
            "does not answer either",
        ),
    ],
)
def test_nothing_is_stopped_that_has_changed_since(copy: Copy | None, problem: str) -> None:
    runbook = Watching([replace(STALE, copies=(copy,))] if copy else [], method="cri")
    with pytest.raises(NotStarted, match=problem):
        runbook.apply(Action("stop_container", STALE.title, ["false"], STALE))
    with pytest.raises(ActionFailed):
        Watching([STALE], method="cri").apply(
            Action("stop_container", STALE.title, ["false"], STALE)
        )


def test_all_wait_for_the_kubelet_at_the_same_time() -> None:
    runbook = Watching([STALE], method="probe", liveness_timeout=1)
    looks = []
    for _turn in range(3):
        runbook.looks = 0
        with pytest.raises(ActionFailed, match="has not restarted it within 1 s"):
            runbook.apply(Action("await_liveness_probe", STALE.title, ["wait"], STALE))
        looks.append(runbook.looks)
    assert looks[0] > 1 and looks[1:] == [1, 1]


def test_plans_count_in_check_mode_only() -> None:
    given = {**DEFAULTS, "kubelet_root": "/var/lib/kubelet", "planned_paths": [PATH]}
    assert container_options(given, check_mode=True).planned_paths == (PATH,)
    assert container_options(given, check_mode=False).planned_paths == ()
    assert container_options(given).planned_paths == ()


def test_what_the_module_leaves_out_is_what_the_plan_takes_for_granted() -> None:
    """No guard is off, and no probe there, unless that is said."""
    assert options() == ContainerOptions()
    fields = OPTIONS_SPEC.options["containers"]["options"]
    defaults = {name: option["default"] for name, option in fields.items() if "default" in option}
    assert Known("", "", **defaults) == Known("", "")


def test_what_is_left_out_of_a_container_is_empty() -> None:
    entry = {"pod": UID, "mount_path": "/data", "id": None, "probe": None}
    assert options(containers=[entry]).containers == (Known(UID, "/data"),)
