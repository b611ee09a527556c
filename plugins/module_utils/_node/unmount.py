# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""Take exactly one layer off a mount point of the kubelet's, or put one on it: no link on the way is followed, and nothing else is hit.

umount(8) and mount(8) look paths up by themselves, and may ask a dead server for it. The system calls do neither.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from typing import Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import ActionFailed, NotStarted, StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.kubelet import opened_parent
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import Mount, parse_mountinfo

# linux/fs.h, linux/mount.h
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_MS_BIND = 4096

_WORDS = {
    errno.EBUSY: "a process is inside, or another mount lies on it",
    errno.EPERM: "the kernel does not allow it to this process",
    errno.EINVAL: "it is no mount point any more, or is locked",
}


def unmount(host: Host, mount: Mount, root: str, lazy: bool = False) -> None:
    """Take this mount off its point, if it still is the topmost there.

    ``root``: the kubelet's folder, without links. ``lazy``: also where a process is inside, which keeps what it has open.
    NotStarted if another mount, or none, lies there by now; ActionFailed if the kernel refuses or does not answer.
    """

    def taking() -> str:
        with opened_parent(host.path(mount.point), host.path(root)) as (folder, name):
            top = mount_id(name, folder)
            # Its number is given to the next mount that is made.
            now = [
                other for other in parse_mountinfo(host.read("/proc/self/mountinfo", "surrogateescape") or "", "self") if other.id == top
            ]
            if top != mount.id or not now or _identity(now[0]) != _identity(mount):
                return "another mount lies there now, or none"
            _call("umount2", _at(folder, name), _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0))
        return ""

    _do(host, f"unmount {mount.point!r}", taking)


def bind(host: Host, source: str, trusted: str, point: str, root: str) -> None:
    """Mount the folder or file ``source`` at ``point``, too; neither may be a link, or have one on its way.

    ``source``: below ``trusted``, a folder without links. Below that it may be what a volume holds, and so whatever its users made of it.
    ``point``: below ``root``, the kubelet's folder, without links.
    NotStarted if one of them is not there, or is a link; ActionFailed if the kernel refuses or does not answer.
    """

    def binding() -> str:
        with _opened_itself(host, source, trusted) as what, _opened_itself(host, point, root) as where:
            _call("mount", f"/proc/self/fd/{what}".encode(), f"/proc/self/fd/{where}".encode(), None, _MS_BIND, None)
        return ""

    _do(host, f"bind {source!r} at {point!r}", binding)


def _identity(mount: Mount) -> tuple[str, ...]:
    return mount.point, mount.device, mount.root, mount.fstype, mount.source


def mount_id(name: str, folder: int | None = None) -> int:
    """Number of the topmost mount at a path, as in mountinfo. Asks no server for that itself, but a folder on the way may be on one."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    try:
        return mount_id_of(descriptor)
    finally:
        os.close(descriptor)


def mount_id_of(descriptor: int) -> int:
    """Number of the mount that an open file or folder is in."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("mnt_id:"))


@contextlib.contextmanager
def _opened_itself(host: Host, path: str, root: str) -> Iterator[int]:
    """What is topmost at a path, opened as a path only."""
    with opened_parent(host.path(path), host.path(root)) as (folder, name):
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise StorageOpsError(f"{path!r} is a link")
        yield descriptor
    finally:
        os.close(descriptor)


def _at(folder: int, name: str) -> bytes:
    return f"/proc/self/fd/{folder}/".encode() + os.fsencode(name)


def _call(function: str, *arguments: bytes | int | None) -> None:
    """A function of the C library that returns 0 or sets errno."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*(ctypes.c_ulong(word) if isinstance(word, int) else word for word in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _do(host: Host, what: str, function: Callable[[], str]) -> None:
    """Do it in a child, since a folder on the way may be a mount that never answers."""

    def trying() -> dict[str, str]:
        try:
            moved = function()
            return {"moved": moved} if moved else {}
        except FileNotFoundError as error:
            return {"moved": str(error.strerror)}
        except StorageOpsError as error:
            return {"moved": str(error)}
        except OSError as error:
            return {"failed": _WORDS.get(error.errno or 0, "") or str(error.strerror)}

    reply = host.bounded(trying)
    if reply.problem:
        raise ActionFailed(f"{what}: {reply.problem}")
    said: dict[str, str] = reply.value
    if "moved" in said:
        raise NotStarted(f"{what}: {said['moved']}")
    if "failed" in said:
        raise ActionFailed(f"{what}: {said['failed']}")
