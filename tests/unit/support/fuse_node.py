# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with FUSE mounts and containers for unit tests: a tree of files, and as much of the
kernel, of systemd and of a container runtime as a repair meets.

What the real ones do is tested in tests/faults.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers import (
    runbook as containers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import NotStarted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    gathering,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    runbook as fuse,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    PRIVATE,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import (
    MOST_BYTES,
    Host,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import ROOT
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    CONNECTIONS,
    Mount,
    MountTable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    OK,
    Answer,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import (
    Source,
    same,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

_MNT_DETACH = 2


class FuseNode(Host):
    """Mounts of the node's own namespace in memory, so that a child has a copy; the rest in files.

    ``mounts``: the node's. ``answers``: device -> what it answers in place of ok. ``commands``: all
    that were run; ``calls``: what was asked of the kernel. ``steps``: called with each command,
    each call, each file and each wait before it is done. ``said``: what a command says in place of
    what it does. ``made``: what a service mounts, at the folder that it is given; None for nothing.
    ``folders``: in what it mounts. ``deaf``: devices whose connection cannot be aborted.
    ``units``: services that run. ``asked_for``: functions of the C library, by a child.
    ``waits``: whether what was waited for came at once. ``inspected``: container -> what the
    runtime says of it. ``restarts``: what follows when one is stopped.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, seconds: float = 600) -> None:
        super().__init__(Deadline(seconds), 60, str(root))
        self.root = root
        self.mounts = [mount(1, "/", "8:1", parent=0, fstype="ext4", source="/dev/sda1")]
        self.answers: dict[str, Answer] = {}
        self.commands: list[str] = []
        self.calls: list[str] = []
        self.steps: list[Callable[[str], object]] = []
        self.said: dict[str, CommandResult] = {}
        self.made: dict[str, Any] | None = {"device": "0:60"}
        self.folders: tuple[str, ...] = ("sub",)
        self.deaf: set[str] = set()
        self.asked_for: list[str] = []
        self.units: set[str] = set()
        self.waits: list[bool] = []
        self.inspected: dict[str, dict[str, Any]] = {}
        self.restarts: Callable[[str], object] = lambda _container: None
        self.process(1, "init")
        (root / "proc/self").symlink_to("1")
        (root / ROOT[1:]).mkdir(parents=True)
        (root / "run/systemd/system").mkdir(parents=True)
        self.put("etc/crictl.yaml", "")
        for module in (fuse, containers):
            monkeypatch.setattr(
                module, "probe_folders", lambda _host, paths, *_how: self.probe(paths)
            )
        monkeypatch.setattr(containers, "look_into", lambda _host, asked, *_how: self.look(asked))
        monkeypatch.setattr(gathering, "find_program", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(fuse, "call_libc", self.call_libc)
        monkeypatch.setattr(
            fuse,
            "unmount",
            lambda _host, *words, **more: self.unmount(*words, **more),
        )
        monkeypatch.setattr(fuse, "held", lambda _host, *words, **more: self.held(*words, **more))
        monkeypatch.setattr(fuse, "probe_opened", lambda _host, one, _s: self.probe_opened(one))
        monkeypatch.setattr(fuse, "unmount_dead", lambda _host, *words: self.unmount_dead(*words))
        monkeypatch.setattr(fuse, "bind", lambda _host, *words: self.bind(*words))
        monkeypatch.setattr(fuse, "replace_mount", lambda _host, *words: self.replace(*words))

    # what tests do and see

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def process(self, pid: int, command: str, cgroup: str = "", namespace: str = "1") -> None:
        for name, text in {"comm": f"{command}\n", "cgroup": f"0::/{cgroup}\n"}.items():
            self.put(f"proc/{pid}/{name}", text)
        (self.root / f"proc/{pid}/ns").mkdir(exist_ok=True)
        (self.root / f"proc/{pid}/fd").mkdir(exist_ok=True)
        for link, target in (("ns/mnt", f"mnt:[{namespace}]"), ("root", "/")):
            (self.root / f"proc/{pid}/{link}").symlink_to(target)

    def container(self, pid: int, identity: str, pod: str, *mounts: Mount) -> None:
        """A container's one process, with a mount namespace of its own."""
        self.process(pid, "web", f"kubepods/pod{pod}/{identity}", str(pid))
        top = mount(1, "/", "0:30", parent=0, fstype="overlay")
        self.put(f"proc/{pid}/mountinfo", "\n".join(_line(one) for one in (top, *mounts)))

    def end(self, pid: int) -> None:
        """A process ends."""
        for name in ("comm", "cgroup", "mountinfo", "ns/mnt"):
            (self.root / f"proc/{pid}/{name}").unlink(missing_ok=True)
        (self.root / f"proc/{pid}").rename(self.root / f"ended-{pid}")

    def add(self, one: Mount) -> None:
        """Mount on top of what is there."""
        layers = self.layers(one.point)
        parent = layers[-1].id if layers else 1
        self.mounts.append(replace(one, parent=parent))
        (self.root / one.point[1:]).mkdir(parents=True, exist_ok=True)

    def layers(self, point: str) -> list[Mount]:
        return MountTable(self.mounts).layers(point)

    def at(self, begins: str, do: Callable[[], object]) -> None:
        """Do something once, right before a command or a call that begins like this."""
        left = [do]
        self.steps.append(lambda line: left.pop()() if left and line.startswith(begins) else None)

    def devices(self, *points: str) -> list[list[str]]:
        """Of the mounts stacked at each point."""
        return [[layer.device for layer in self.layers(point)] for point in points]

    # the host

    def require_root(self) -> None:
        pass

    def read(self, path: str, errors: str = "replace", most: int = MOST_BYTES) -> str | None:
        self._before(f"read {path}")
        if path in ("/proc/1/mountinfo", "/proc/self/mountinfo"):
            return "\n".join(_line(one) for one in self.mounts)
        return super().read(path, errors, most)

    def lines(self, path: str) -> Iterator[bytes]:
        text = self.read(path)
        if text is None:
            raise FileNotFoundError(path)
        return iter(text.encode().split(b"\n"))

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        self._before(f"wait {seconds:g}")
        self.waits.append(condition())
        return self.waits[-1]

    def run(self, argv: Sequence[str], timeout: float | None = None) -> CommandResult:
        line = " ".join(argv)
        self.commands.append(line)
        self._before(line)
        for begins, result in self.said.items():
            if line.startswith(begins):
                return result
        rc, out = self._command(list(argv))
        return CommandResult(tuple(argv), rc, out, "", 0.0)

    def _command(self, argv: list[str]) -> tuple[int, str]:
        if argv[0] == "systemd-run":
            unit = next(word for word in argv if word.startswith("--unit=")).partition("=")[2]
            self.units.add(unit)
            if self.made is not None:
                ours = [word for word in argv if word.startswith(PRIVATE)]
                folder = next(word for word in ours if word.endswith("/mount"))
                self.add(mount(100 + len(self.commands), folder, **self.made))
                for name in self.folders:
                    (self.root / folder[1:] / name).mkdir(parents=True)
        elif argv[:2] == ["systemctl", "stop"]:
            self.units.discard(argv[2])
        elif argv[:2] == ["systemctl", "show"]:
            return 0, "active" if argv[-1] in self.units else "inactive"
        elif argv[:3] == ["mount", "--bind", "-o"]:
            if not os.path.isdir(self.path(argv[5])):
                return 32, f"mount point {argv[5]} does not exist"
            top = self.layers(argv[4])[-1]
            flags = (*argv[3].split(","), *(word for word in top.options if word != "rw"))
            self.add(replace(top, id=200 + len(self.commands), point=argv[5], options=flags))
        elif "inspect" in argv:
            said = self.inspected.get(argv[-1])
            return (1, "") if said is None else (0, json.dumps({"status": said}))
        elif "stop" in argv:
            self.restarts(argv[-1])
        return 0, ""

    # the kernel

    def _before(self, line: str) -> None:
        for step in self.steps:
            step(line)

    def _call(self, line: str) -> None:
        self.calls.append(line)
        self._before(line)

    def probe(self, paths: Sequence[str]) -> list[Answer]:
        return [self._probe(path) for path in paths]

    def _probe(self, path: str) -> Answer:
        top = MountTable(self.mounts).holding(path)
        answer = self._answer(top.device if top else "")
        if answer.state == OK and not os.path.lexists(self.path(path)):
            return Answer(ERROR, "statvfs", "ENOENT", os.strerror(errno.ENOENT))
        return answer

    def _answer(self, device: str) -> Answer:
        connection = f"{CONNECTIONS}/{device.partition(':')[2]}"
        if device not in self.deaf and self.read(f"{connection}/abort") == "1":
            return Answer(DEAD, "statvfs", "ENOTCONN", "not connected")
        return self.answers.get(device, Answer(OK))

    def look(self, questions: Sequence[tuple[int, str]]) -> list[tuple[Answer, str]]:
        """Folders as processes see them."""
        found = []
        for pid, point in questions:
            table = MountTable(parse_mountinfo(self.read(f"/proc/{pid}/mountinfo") or "", str(pid)))
            top = table.holding(point)
            device = top.device if top else ""
            answer = self.answers.get(device, Answer(OK))
            found.append((answer, device if answer.state == OK else ""))
        return found

    def call_libc(self, function: str, *arguments: bytes | int | None) -> None:
        """As a child asks for that has a copy of this node; else all would lose the mount."""
        self.asked_for.append(function)
        if function != "umount2":
            return
        assert self.asked_for[:2] == ["unshare", "mount"], "the mounts are still those of all"
        assert isinstance(arguments[0], bytes) and isinstance(arguments[1], int)
        point = os.path.realpath(arguments[0].decode())[len(os.path.realpath(self.root)) :]
        assert arguments[1] & _MNT_DETACH, "it would be refused while a process is inside"
        self.mounts.remove(self.layers(point)[-1])

    def unmount(self, one: Mount, root: str, lazy: bool = False) -> None:
        self._call(f"umount {one.point} {'lazy' if lazy else 'busy is refused'}")
        assert one.point.startswith(f"{root}/")
        if self.layers(one.point)[-1:] != [one]:
            raise NotStarted(f"unmount {one.point!r}: another mount is there now, or none")
        self.mounts.remove(one)
        if one.point.startswith(f"{PRIVATE}/") and not self.layers(one.point):
            # What was in the folder was in the filesystem.
            shutil.rmtree(self.root / one.point[1:])
            (self.root / one.point[1:]).mkdir()

    def unmount_dead(self, layers: Sequence[Mount], point: str, root: str, _timeout: float) -> None:
        assert {one.point for one in layers} == {point}
        for one in layers:
            if any(same(one, there) for there in self.mounts):
                self._require_dead(one)
                self.unmount(one, root, lazy=True)

    def _require_dead(self, one: Mount) -> None:
        answer = self._answer(one.device)
        if answer.state != DEAD:
            raise NotStarted(f"it answers now, or may: {answer.text or answer.state}")

    @contextlib.contextmanager
    def held(self, one: Mount, _root: str, number: bool = True) -> Iterator[int]:
        top = self.layers(one.point)[-1]
        if not same(top if number else replace(top, id=one.id), one):
            raise StorageOpsError("another mount is there now, or none")
        yield self.mounts.index(top)

    def probe_opened(self, descriptor: int) -> Answer:
        return self._answer(self.mounts[descriptor].device)

    def bind(self, source: Source, point: str, root: str) -> None:
        self._call(f"bind {source.path} {point}")
        assert source.path.startswith(f"{source.trusted}/") and point.startswith(f"{root}/")
        if not os.path.exists(self.path(point)):
            raise NotStarted(f"bind {source.path!r} at {point!r}: it cannot be entered")
        top = MountTable(self.mounts).holding(source.path)
        assert top is not None and top.device == source.device
        inside = source.path[len(top.point) :] or "/"
        number = 300 + len(self.calls)
        self.add(replace(top, id=number, point=point, root=inside))

    def replace(
        self, layers: Sequence[Mount], source: Source, point: str, root: str, _timeout: float
    ) -> None:
        for one in layers:
            self._require_dead(one)
            self.unmount(one, root, lazy=True)
        # Where mount points are peers it may have come by itself.
        wanted, there = MountTable(self.mounts).holding(source.path), self.layers(point)[-1:]
        inside = source.path[len(wanted.point) :] or "/" if wanted else ""
        if not wanted or [(one.device, one.root) for one in there] != [(wanted.device, inside)]:
            self.bind(source, point, root)


def mount(number: int, point: str, device: str = "0:50", **more: Any) -> Mount:
    """Of a FUSE filesystem, if nothing else is said."""
    options = ("rw", "nosuid")
    plain = Mount(
        *(number, 1, device, "/", point, options, 0, 0, False),
        *("fuse.s3fs", "s3fs", ("rw", "allow_other"), "1"),
    )
    return replace(plain, **more)


def _line(one: Mount) -> str:
    fields = [one.id, one.parent, one.device, one.root, one.point, ",".join(one.options)]
    fields += [f"shared:{one.shared}"] if one.shared else []
    fields += ["-", one.fstype, one.source, ",".join(one.super_options)]
    return " ".join(map(str, fields))
