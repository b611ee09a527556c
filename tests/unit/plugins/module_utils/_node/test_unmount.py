# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before the kernel is asked; what the kernel does is tested on a node."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    NotStarted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    unmount as unmount_module,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    read_table,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    DEAD,
    ERROR,
    HUNG,
    OK,
    Answer,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import (
    Source,
    bind,
    call_libc,
    held,
    misfits,
    mount_id,
    replace,
    same,
    unmount,
    unmount_dead,
)


@pytest.fixture
def host() -> Host:
    return Host(Deadline(30), 5)


def mount_at(point: str, number: int = 0) -> Mount:
    return Mount(
        number, 1, "0:99", "/", point, ("rw",), 0, 0, False, "fuse.test", "test", ("rw",), "self"
    )


def source_at(host: Host, path: Path, trusted: Path) -> Source:
    """What was proven to be on the filesystem that it is on."""
    there = read_table(host, "self").holding(str(trusted.resolve()))
    assert there is not None
    return Source(str(path), str(trusted), there.device)


def test_no_mount_there(host: Host, tmp_path: Path) -> None:
    (tmp_path / "pods/mount").mkdir(parents=True)
    with pytest.raises(NotStarted, match="another mount is there now, or none"):
        unmount(host, mount_at(f"{tmp_path}/pods/mount"), str(tmp_path))


def test_number_of_another_mount(host: Host, tmp_path: Path) -> None:
    """The kernel gives the number of a mount that is gone to the next one."""
    (tmp_path / "mount").mkdir()
    there = read_table(host, "self").holding(str(tmp_path.resolve() / "mount"))
    assert there is not None
    with pytest.raises(NotStarted, match="another mount"):
        unmount(host, mount_at(f"{tmp_path}/mount", there.id), str(tmp_path))


def test_only_this_very_mount_is_the_topmost(host: Host, tmp_path: Path) -> None:
    """Of two that are alike, the number tells; of two with one number, what they are of."""
    there = read_table(host, "self").holding(str(tmp_path.resolve()))
    assert there is not None
    changes: list[dict[str, Any]] = [
        {"id": there.id + 1},
        {"point": f"{there.point}/x"},
        {"device": "0:9999"},
        {"root": "/other"},
        {"fstype": "fuse.other"},
        {"source": "other"},
    ]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("")
    folder = os.open(tmp_path.parent, os.O_PATH)
    try:
        assert unmount_module._is_top(host, there, folder, tmp_path.name)
        for change in changes:
            another = dataclasses.replace(there, **change)
            assert not unmount_module._is_top(host, another, folder, tmp_path.name)
        # One among others is found by its number; nor is one that the kernel lists no more.
        lines = [f"{number} 0 0:{number} / / rw - tmpfs x rw" for number in (7, 8)]
        (tmp_path / "proc/self/mountinfo").write_text("\n".join(lines))
        listing = Host(Deadline(30), 5, str(tmp_path))
        found = [unmount_module.read_mount(listing, number) for number in (7, 8, 9)]
        assert [one.id if one else 0 for one in found] == [7, 8, 0]
        (tmp_path / "proc/self/mountinfo").write_text("")
        listless = Host(Deadline(30), 5, str(tmp_path))
        assert not unmount_module._is_top(listless, there, folder, tmp_path.name)
    finally:
        os.close(folder)


def test_the_number_of_a_mount_is_read_without_opening_what_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To open may ask a dead server; and a link may lead into another mount."""
    (tmp_path / "link").symlink_to("/proc")
    # The address of a socket is a short one.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        # No process can open a socket by its path.
        server.bind("socket")
        numbers = [mount_id(name) for name in ("socket", "link")]
    assert numbers == [mount_id(str(tmp_path))] * 2 != [mount_id("/proc")] * 2


@pytest.mark.parametrize("point", ["../outside", "link/mount", "gone/mount", "gone"])
def test_way_that_leads_elsewhere(host: Host, tmp_path: Path, point: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere/mount").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotStarted):
        unmount(host, mount_at(f"{tmp_path}/root/{point}"), f"{tmp_path}/root")
    with pytest.raises(NotStarted):
        replace(
            host,
            [],
            source_at(host, tmp_path / "elsewhere/mount", tmp_path),
            f"{tmp_path}/root/{point}",
            f"{tmp_path}/root",
            5,
        )
    with pytest.raises(NotStarted):
        unmount_dead(host, [], f"{tmp_path}/root/{point}/x", f"{tmp_path}/root", 5)


@pytest.mark.parametrize(
    ("source", "point"),
    [
        ("link", "point"),
        ("link/inside", "point"),
        ("folder", "link"),
        ("folder", "gone"),
        ("gone", "point"),
    ],
)
def test_bind_follows_no_link(host: Host, tmp_path: Path, source: str, point: str) -> None:
    """A volume may hold links that its users made."""
    for folder in ("source/folder", "root/point", "elsewhere/inside"):
        (tmp_path / folder).mkdir(parents=True)
    for place in ("source", "root"):
        (tmp_path / place / "link").symlink_to(tmp_path / "elsewhere")
    what = source_at(host, tmp_path / "source" / source, tmp_path / "source")
    where = f"{tmp_path}/root/{point}", f"{tmp_path}/root"
    with pytest.raises(NotStarted):
        bind(host, what, *where)
    with pytest.raises(NotStarted):
        replace(host, [], what, *where, 5)


def test_bind_holds_what_it_has_looked_at(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A tenant that swaps folders for links, right before the system call, swaps names
    and no more.
    """
    for folder in ("source/folder", "root/point", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    wanted = [(tmp_path / place).stat().st_ino for place in ("source/folder", "root/point")]

    def swapped(function: str, *arguments: Any) -> None:
        for place in ("source/folder", "root/point"):
            (tmp_path / place).rename(tmp_path / f"{place}.away")
            (tmp_path / place).symlink_to(tmp_path / "elsewhere")
        # As the kernel follows them.
        found = [os.stat(argument).st_ino for argument in arguments[:2]]
        (tmp_path / "found").write_text(f"{function} {found}", encoding="ascii")

    monkeypatch.setattr(unmount_module, "call_libc", swapped)
    what = source_at(host, tmp_path / "source/folder", tmp_path / "source")
    bind(host, what, f"{tmp_path}/root/point", f"{tmp_path}/root")
    assert (tmp_path / "found").read_text(encoding="ascii") == f"mount {wanted}"


def test_a_bind_needs_to_know_what_it_would_show(host: Host, tmp_path: Path) -> None:
    """A source whose mount the kernel does not list may already be there, or be another."""
    for folder in ("source/folder", "root/point", "proc/self"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("")
    listless = Host(Deadline(30), 5, str(tmp_path))
    with pytest.raises(NotStarted, match="which mount it is in cannot be told"):
        replace(listless, [], Source("/source/folder", "/source", ""), "/root/point", "/root", 5)


def test_only_what_was_proven_is_bound(host: Host, calls: Path) -> None:
    """Another filesystem is at the path by now, or none but the node's own."""
    what = source_at(host, calls / "source/folder", calls / "source")._replace(device="0:9999")
    where = f"{calls}/root/point", f"{calls}/root"
    with pytest.raises(NotStarted, match="not on the new mount"):
        bind(host, what, *where)
    with pytest.raises(NotStarted, match="not on the new mount"):
        replace(host, [mount_at(where[0], 7)], what, *where, 5)
    assert made(calls) == []


@pytest.mark.parametrize(
    ("source", "point", "said"),
    [
        ("file", "point", "is a file in the new mount, but a folder was mounted"),
        ("folder", "old", "is a folder in the new mount, but a file was mounted"),
        ("file", "old", ""),
        ("folder", "point", ""),
    ],
)
def test_a_folder_comes_only_where_one_was(
    host: Host, calls: Path, source: str, point: str, said: str
) -> None:
    """A tenant makes one of the other, and then the kernel mounts nothing where the dead mount was.
    So that is looked at before it is taken off.
    """
    (calls / "source/file").touch()
    (calls / "root/old").touch()
    what = source_at(host, calls / "source" / source, calls / "source")
    where = f"{calls}/root/{point}", f"{calls}/root"
    told = misfits(host, [(what.path, where[0])], what.trusted, where[1], 5)
    assert [one.partition("' ")[2] for one in told] == [said][: len(told)]
    assert bool(told) is bool(said)
    if said:
        with pytest.raises(NotStarted, match=said):
            bind(host, what, *where)
        with pytest.raises(NotStarted, match=said):
            replace(host, [mount_at(where[0], 7)], what, *where, 5)
        assert made(calls) == []
    else:
        bind(host, what, *where)
        replace(host, [], what, *where, 5)
        assert made(calls) == ["mount", "mount"]


def test_what_cannot_be_bound_is_told_once(host: Host, tmp_path: Path) -> None:
    for folder in ("source/folder", "root/point"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "source/link").symlink_to("folder")
    pairs = [
        (f"{tmp_path}/source/{source}", f"{tmp_path}/root/{point}")
        for source, point in [
            ("gone", "point"),
            ("gone", "other"),
            ("link", "point"),
            ("link/inside", "point"),
            ("folder", "gone/point"),
            ("folder", "point"),
        ]
    ]
    assert misfits(host, pairs, f"{tmp_path}/source", f"{tmp_path}/root", 5) == [
        f"'{tmp_path}/source/gone' is not in the new mount: No such file or directory",
        f"'{tmp_path}/source/link' is not in the new mount: '{tmp_path}/source/link' is a link",
        f"'{tmp_path}/source/link/inside' is not in the new mount: '{tmp_path}/source/link' "
        "cannot be entered: it is a link, or no folder",
        f"'{tmp_path}/root/gone' cannot be entered: No such file or directory",
    ]
    late = Host(Deadline(0), 5)
    assert misfits(late, pairs[-1:], f"{tmp_path}/source", f"{tmp_path}/root", 5) != []


def test_what_the_c_library_refuses_is_an_error() -> None:
    """It returns -1 and sets errno: who does not look takes a refusal for a success."""
    call_libc("access", b"/", os.F_OK)
    with pytest.raises(FileNotFoundError):
        call_libc("access", b"/no/such/file", os.F_OK)


class AnyNumber(int):
    """Of the mount that it is compared with."""

    def __ne__(self, other: object) -> bool:
        return False


def answers(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """What a mount that is held answers. All else is well."""

    def asking(_host: Host, descriptor: int, _timeout: float) -> Answer:
        held_one = os.readlink(f"/proc/self/fd/{descriptor}").endswith("/root/point")
        return answer if held_one else Answer(OK)

    monkeypatch.setattr(unmount_module, "probe_opened", asking)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The system calls are only written down; a mount is refused where a file says so."""

    def noting(function: str, *arguments: Any) -> None:
        with open(tmp_path / "calls", "a", encoding="ascii") as file:
            if function == "umount2":
                point, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[1]
                file.write(f"umount2 {os.path.relpath(point, tmp_path.resolve())} {flags}\n")
            else:
                file.write(f"{function}\n")
        if function == "mount" and (tmp_path / "refuse").exists():
            raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(unmount_module, "call_libc", noting)
    monkeypatch.setattr(
        unmount_module, "_is_top", lambda _host, mount, _folder, _name: mount.id < 100
    )
    monkeypatch.setattr(
        unmount_module, "_is_held", lambda _host, mount, _descriptor: mount.id < 100
    )
    # The number of what is on top, whatever layer it is now.
    monkeypatch.setattr(unmount_module, "mount_id", lambda _name, _folder: AnyNumber())
    answers(monkeypatch, Answer(DEAD, "statvfs", "ENOTCONN"))
    for folder in ("root/point", "source/folder"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def made(calls: Path) -> list[str]:
    """The system calls, one a line."""
    noted = calls / "calls"
    return noted.read_text(encoding="ascii").splitlines() if noted.exists() else []


# linux/fs.h, linux/mount.h: UMOUNT_NOFOLLOW, and that with MNT_DETACH.
TAKEN, TAKEN_LAZILY = "umount2 root/point 8", "umount2 root/point 10"


@pytest.mark.parametrize(("lazy", "call"), [({}, TAKEN), ({"lazy": True}, TAKEN_LAZILY)])
def test_a_mount_in_use_is_taken_off_only_where_that_is_asked_for(
    host: Host,
    calls: Path,
    lazy: dict[str, bool],
    call: str,
) -> None:
    """Else the kernel refuses it; and in either case it follows no link."""
    unmount(host, mount_at(f"{calls}/root/point", 7), f"{calls}/root", **lazy)
    assert made(calls) == [call]


def test_a_refusal_of_the_kernel_is_told(
    host: Host,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def busy(_function: str, *_arguments: Any) -> None:
        raise OSError(errno.EBUSY, "busy")

    mount = mount_at(f"{calls}/root/point", 7)
    monkeypatch.setattr(unmount_module, "call_libc", busy)
    with pytest.raises(ActionFailed, match="a process is inside, or another mount is on it"):
        unmount(host, mount, f"{calls}/root")


def test_a_child_that_does_not_come_back_has_proven_nothing(
    host: Host,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the mount went is not known, so it is no success and no "not started"."""
    monkeypatch.setattr(unmount_module, "call_libc", lambda *_arguments: os._exit(1))
    with pytest.raises(ActionFailed, match="the probe died"):
        unmount(host, mount_at(f"{calls}/root/point", 7), f"{calls}/root")


@pytest.mark.parametrize(
    ("numbers", "refuse", "error", "expected"),
    [
        ([7, 8], False, None, [TAKEN_LAZILY, TAKEN_LAZILY, "mount"]),
        ([100, 7], False, "another mount is there now, or none", []),
        (
            [7, 100],
            False,
            "1 of 2 dead mounts were unmounted, but nothing was mounted in their place: another "
            "mount",
            [TAKEN_LAZILY],
        ),
        (
            [7],
            True,
            "1 of 1 dead mounts were unmounted, but nothing was mounted in their place: no memory",
            [TAKEN_LAZILY, "mount"],
        ),
    ],
)
def test_layers_go_and_another_mount_comes(
    host: Host,
    calls: Path,
    numbers: list[int],
    refuse: bool,
    error: str | None,
    expected: list[str],
) -> None:
    """In one go; when it breaks off half way, that is told."""
    if refuse:
        (calls / "refuse").touch()
    what = source_at(host, calls / "source/folder", calls / "source")
    where = f"{calls}/root/point", f"{calls}/root"
    layers = [mount_at(where[0], number) for number in numbers]
    if error is None:
        replace(host, layers, what, *where, 5)
    else:
        with pytest.raises(ActionFailed if expected else NotStarted, match=error):
            replace(host, layers, what, *where, 5)
    assert made(calls) == expected


# dead ones alone


@pytest.mark.parametrize(
    "answer",
    [
        Answer(OK),
        Answer(HUNG, "listing", text="no answer within 5.0 s"),
        Answer(ERROR, "statvfs", "EIO", "Input/output error"),
        Answer(ERROR, text="no answer before the deadline"),
    ],
)
def test_what_does_not_answer_as_dead_stays(
    host: Host, calls: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    """A driver has mounted again, and its mount has all the numbers of the dead one."""
    answers(monkeypatch, answer)
    what = source_at(host, calls / "source/folder", calls / "source")
    where = f"{calls}/root/point", f"{calls}/root"
    said = f"it answers now, or may: {answer.text or answer.state}"
    with pytest.raises(NotStarted, match=said):
        unmount_dead(host, [mount_at(where[0], 7)], *where, 5)
    with pytest.raises(NotStarted, match=said):
        replace(host, [mount_at(where[0], 7)], what, *where, 5)
    assert made(calls) == []


def test_what_came_on_it_while_it_was_asked_stays(
    host: Host, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmount_module, "mount_id", lambda _name, _folder: 8)
    with pytest.raises(NotStarted, match="another mount"):
        unmount_dead(
            host, [mount_at(f"{calls}/root/point", 7)], f"{calls}/root/point", f"{calls}/root", 5
        )
    assert made(calls) == []


@pytest.mark.parametrize(
    ("there", "numbers", "error", "expected"),
    [
        (False, [7, 8], "", [TAKEN_LAZILY, TAKEN_LAZILY]),
        # It went with a peer's.
        (False, [100, 8], "", [TAKEN_LAZILY]),
        # It is still there, below another.
        (True, [100, 8], "another mount is there now", []),
        (True, [7, 100], "1 of 2 dead mounts were unmounted: another mount", [TAKEN_LAZILY]),
    ],
)
def test_dead_layers_that_are_gone_are_passed_over(
    host: Host,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
    numbers: list[int],
    error: str,
    expected: list[str],
) -> None:
    where = f"{calls}/root/point", f"{calls}/root"
    layers = [mount_at(where[0], number) for number in numbers]
    found = {layer.id: layer for layer in layers if there}
    monkeypatch.setattr(unmount_module, "read_mount", lambda _host, number: found.get(number))
    if error:
        with pytest.raises(ActionFailed if expected else NotStarted, match=error):
            unmount_dead(host, layers, *where, 5)
    else:
        unmount_dead(host, layers, *where, 5)
    assert made(calls) == expected


def test_a_mount_is_held_only_if_it_is_this_one(host: Host, tmp_path: Path) -> None:
    """In a copy of the mount namespace it has another number, and all else tells."""
    there = read_table(host, "self").holding(str(tmp_path.resolve()))
    assert there is not None
    # The root of all mounts that a folder of the node's own can be reached in.
    point = there.point if there.point != "/" else "/proc"
    (*_below, there) = read_table(host, "self").layers(point)
    root = os.path.dirname(point)
    changed = dataclasses.replace(there, id=there.id + 1)
    other = dataclasses.replace(there, device="0:9999")
    monkey = {"number": False}
    with contextlib.ExitStack() as opened:
        opened.enter_context(pytest.MonkeyPatch.context()).setattr(
            unmount_module, "opened_parent", lambda _path, _root: parent_of(point)
        )
        with held(host, there, root) as found, held(host, changed, root, **monkey):
            assert unmount_module.mount_id_of(found) == there.id
        for one, how in ((changed, {}), (other, {}), (other, monkey)):
            with (
                pytest.raises(StorageOpsError, match="another mount"),
                held(host, one, root, **how),
            ):
                pass
    assert same(there, there) and not same(there, changed) and not same(there, other)


@contextlib.contextmanager
def parent_of(point: str) -> Iterator[tuple[int, str]]:
    folder = os.open(os.path.dirname(point), os.O_PATH)
    try:
        yield folder, os.path.basename(point)
    finally:
        os.close(folder)


def test_what_cannot_be_opened_is_not_held(host: Host, tmp_path: Path) -> None:
    with (
        pytest.raises(StorageOpsError, match="cannot be opened: No such file"),
        held(host, mount_at(f"{tmp_path}/gone"), str(tmp_path)),
    ):
        pass
