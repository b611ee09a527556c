# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before the kernel is asked; what the kernel does is tested on a node."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    NotStarted,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    unmount as unmount_module,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    read_table,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.unmount import (
    bind,
    replace,
    unmount,
)


@pytest.fixture
def host() -> Host:
    return Host(Deadline(30), 5)


def mount_at(point: str, number: int = 0) -> Mount:
    return Mount(
        number, 1, "0:99", "/", point, ("rw",), 0, 0, False, "fuse.test", "test", ("rw",), "self"
    )


def test_no_mount_there(host: Host, tmp_path: Path) -> None:
    (tmp_path / "pods/mount").mkdir(parents=True)
    with pytest.raises(NotStarted, match="another mount lies there now, or none"):
        unmount(host, mount_at(f"{tmp_path}/pods/mount"), str(tmp_path))


def test_number_of_another_mount(host: Host, tmp_path: Path) -> None:
    """The kernel gives the number of a mount that is gone to the next one."""
    (tmp_path / "mount").mkdir()
    there = read_table(host, "self").holding(str(tmp_path.resolve() / "mount"))
    assert there is not None
    with pytest.raises(NotStarted, match="another mount"):
        unmount(host, mount_at(f"{tmp_path}/mount", there.id), str(tmp_path))


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
            str(tmp_path / "elsewhere/mount"),
            str(tmp_path),
            f"{tmp_path}/root/{point}",
            f"{tmp_path}/root",
        )


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
    places = (
        f"{tmp_path}/source/{source}",
        f"{tmp_path}/source",
        f"{tmp_path}/root/{point}",
        f"{tmp_path}/root",
    )
    with pytest.raises(NotStarted):
        bind(host, *places)
    with pytest.raises(NotStarted):
        replace(host, [], *places)


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
    places = (
        f"{tmp_path}/source/folder",
        f"{tmp_path}/source",
        f"{tmp_path}/root/point",
        f"{tmp_path}/root",
    )
    bind(host, *places)
    assert (tmp_path / "found").read_text(encoding="ascii") == f"mount {wanted}"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The system calls are only written down; a mount is refused where a file says so."""

    def noting(function: str, *arguments: Any) -> None:
        with open(tmp_path / "calls", "a", encoding="ascii") as file:
            file.write(f"{function}\n")
        if function == "mount" and (tmp_path / "refuse").exists():
            raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(unmount_module, "call_libc", noting)
    monkeypatch.setattr(
        unmount_module, "_is_top", lambda _host, mount, _folder, _name: mount.id < 100
    )
    for folder in ("root/point", "source/folder"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("numbers", "refuse", "error", "made"),
    [
        ([7, 8], False, None, ["umount2", "umount2", "mount"]),
        ([100, 7], False, "another mount lies there now, or none", []),
        (
            [7, 100],
            False,
            "1 of 2 dead mounts were taken off, and nothing was put in their place: another mount",
            ["umount2"],
        ),
        (
            [7],
            True,
            "1 of 1 dead mounts were taken off, and nothing was put in their place: no memory",
            ["umount2", "mount"],
        ),
    ],
)
def test_layers_go_and_another_mount_comes(
    host: Host, calls: Path, numbers: list[int], refuse: bool, error: str | None, made: list[str]
) -> None:
    """In one go; when it breaks off half way, that is told."""
    if refuse:
        (calls / "refuse").touch()
    places = f"{calls}/source/folder", f"{calls}/source", f"{calls}/root/point", f"{calls}/root"
    layers = [mount_at(places[2], number) for number in numbers]
    if error is None:
        replace(host, layers, *places)
    else:
        with pytest.raises(ActionFailed if made else NotStarted, match=error):
            replace(host, layers, *places)
    assert ((calls / "calls").read_text().split() if (calls / "calls").exists() else []) == made
