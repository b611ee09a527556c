# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unmount exactly these layers of a mount point of the kubelet, or bind a mount to it.

No link is followed on the way. The system calls are used: umount(8) and mount(8) resolve paths
themselves, for which they may ask a dead server.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple

from .._core.bounded import call_each
from .._core.engine import ActionFailed, NotStarted
from .._core.errors import StorageOpsError
from . import fdinfo
from .host import Host
from .kubelet import opened_parent
from .mounts import Mount, read_mount
from .probes import DEAD, probe_opened

# include/linux/fs.h MNT_DETACH, UMOUNT_NOFOLLOW; include/uapi/linux/mount.h MS_BIND.
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_MS_BIND = 4096

_ANOTHER = "another mount is there now, or none"

# What the errors of umount2 and mount mean here (umount(2), mount(2)).
_WORDS = {
    errno.EBUSY: "a process is inside, or another mount is on it",
    errno.EPERM: "the kernel does not allow it to this process",
    # Locked: it came with a mount namespace of another user namespace (mount_namespaces(7)).
    errno.EINVAL: "it is no longer a mount point, or is locked",
}


def unmount(host: Host, mount: Mount, root: str, lazy: bool = False) -> None:
    """Unmount a mount, if it is still the topmost at its mount point.

    ``root``: the kubelet's folder, without links. ``lazy``: also if a process uses it, which keeps
    its open files. Raises NotStarted if another mount, or none, is there by now; ActionFailed if
    the kernel refuses or does not answer.
    """

    def taking() -> str:
        with opened_parent(host.path(mount.point), host.path(root)) as (folder, name):
            if not _is_top(host, mount, folder, name):
                return _ANOTHER
            # The parent folder is open, so the kernel only looks up the last name; it follows no
            # link there (umount(2), UMOUNT_NOFOLLOW).
            call_libc("umount2", _at(folder, name), _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0))
        return ""

    _do(host, f"unmount {mount.point!r}", taking)


def unmount_dead(
    host: Host, layers: Sequence[Mount], point: str, root: str, timeout: float
) -> None:
    """Unmount layers of ``point`` lazily, the topmost first, if their servers have ended.

    Those that are gone are passed over. ``root``: as for ``unmount``. ``timeout``: seconds for the
    answer of each. Raises NotStarted if nothing was done, as where one answers or hangs, or another
    mount is on it; ActionFailed if the kernel refuses or does not answer, or if only some are gone.
    """

    def taking() -> str:
        taken = 0
        with opened_parent(host.path(point), host.path(root)) as (folder, name):
            try:
                for mount in layers:
                    taken += _take_dead(host, mount, folder, name, timeout)
            except (OSError, StorageOpsError) as error:
                if not taken:
                    raise
                told = f"{taken} of {len(layers)} dead mounts were unmounted: {_why(error)}"
                raise _HalfDone(told) from error
        return ""

    _do(host, f"unmount {point!r}", taking, timeout * len(layers))


class Source(NamedTuple):
    """What is bound: a folder or file below ``trusted``, a folder without links.

    It may be inside a volume, where its users can make links. ``device``: of its filesystem, which
    was proven; another may be there by now.
    """

    path: str
    trusted: str
    device: str


def bind(host: Host, source: Source, point: str, root: str) -> None:
    """Bind a folder or file to a mount point. Neither may be a link, or have one on its way.

    ``point``: below ``root``, the kubelet's folder, without links. Raises NotStarted if one of them
    is missing or is a link, if one is a folder and the other a file, or if the source is of another
    filesystem; ActionFailed if the kernel refuses or does not answer.
    """

    def binding() -> str:
        with (
            _opened_itself(host, source.path, source.trusted) as what,
            _opened_itself(host, point, root) as where,
        ):
            _proven(host, what, source)
            _require_fit(what, where, source.path)
            _bind(what, where)
        return ""

    _do(host, f"bind {source.path!r} at {point!r}", binding)


def replace(
    host: Host,
    layers: Sequence[Mount],
    source: Source,
    point: str,
    root: str,
    timeout: float,
) -> None:
    """Unmount dead layers of ``point`` as ``unmount_dead``, and bind ``source`` there.

    ``root``: as for ``bind``. Raises NotStarted if nothing was done, as where a layer is gone, or
    where one of them is a folder and the other a file; ActionFailed if the kernel refuses or does
    not answer, or if layers are gone and nothing is in their place.
    """
    # In one child, so that the mount point is empty as shortly as possible, and with both paths
    # opened before anything is unmounted.

    def replacing() -> str:
        taken = 0
        with (
            _opened_itself(host, source.path, source.trusted) as what,
            opened_parent(host.path(point), host.path(root)) as (folder, name),
        ):
            # Device and path tell what is shown at a mount point; the mount's ID is another for
            # each bind.
            wanted = _proven(host, what, source)
            # While it is open it stays what it is, whatever its server calls it later.
            with _there(folder, name) as where:
                _require_fit(what, where, source.path)
            try:
                for mount in layers:
                    if not _take_dead(host, mount, folder, name, timeout):
                        raise StorageOpsError(_ANOTHER)
                    taken += 1
                with _topmost(folder, name, point) as where:
                    # Where mount points are peers, it may have come by propagation.
                    if _shown(host, where) != wanted:
                        _bind(what, where)
            except (OSError, StorageOpsError) as error:
                # Nothing is gone yet, so it is the ordinary error of an action not started.
                if not taken:
                    raise
                raise _HalfDone(
                    f"{taken} of {len(layers)} dead mounts were unmounted, but nothing was "
                    f"mounted in their place: {_why(error)}"
                ) from error
        return ""

    what = f"replace the mount at {point!r} by {source.path!r}"
    _do(host, what, replacing, timeout * len(layers))


def misfits(
    host: Host, sources: Sequence[tuple[str, str]], trusted: str, root: str, timeout: float
) -> list[str]:
    """Why sources cannot be bound, of those of these (source, mount point) that cannot.

    ``trusted``: as of Source, for all of them. ``root``: as for ``bind``. ``timeout``: seconds for
    each. Changes nothing.
    """

    def looking(asked: tuple[str, str]) -> str:
        path, point = asked
        with contextlib.ExitStack() as opened:
            try:
                what = opened.enter_context(_opened_itself(host, path, trusted))
            except (OSError, StorageOpsError) as error:
                return f"{path!r} is not in the new mount: {_why(error)}"
            try:
                parent = opened_parent(host.path(point), host.path(root))
                where = opened.enter_context(_there(*opened.enter_context(parent)))
                _require_fit(what, where, path)
            except (OSError, StorageOpsError) as error:
                return _why(error)
        return ""

    replies = call_each(looking, sources, timeout, host.deadline.remaining())
    told = (reply.problem or str(reply.value) for reply in replies)
    return list(dict.fromkeys(filter(None, told)))


class _HalfDone(Exception):
    """A part was done, but not all."""


def _take_dead(host: Host, mount: Mount, folder: int, name: str, timeout: float) -> bool:
    """Unmount a layer lazily if it is the topmost and its server has ended; False if it is gone.

    Raises StorageOpsError if it answers, or is not the topmost.
    """
    # Not even all of its numbers tell: a driver that mounts again at the point gets the lowest free
    # ones (fs/namespace.c mnt_alloc_id, fs/super.c get_anon_bdev), which are those of the dead one.
    # So it is held, and asked.
    with _there(folder, name) as descriptor:
        if not _is_held(host, mount, descriptor):
            # Where mount points are peers, it may have gone with that of another.
            there = read_mount(host, mount.id)
            if there is None or not same(there, mount):
                return False
            raise StorageOpsError(_ANOTHER)
        answer = probe_opened(host, descriptor, timeout)
        # What has ended never answers again (fs/fuse/inode.c, fuse_abort_conn), so nothing can
        # happen between this and the unmount but a mount on it.
        if answer.state != DEAD:
            raise StorageOpsError(f"it answers now, or may: {answer.text or answer.state}")
        if mount_id(name, folder) != mount.id:
            raise StorageOpsError(_ANOTHER)
        call_libc("umount2", _at(folder, name), _UMOUNT_NOFOLLOW | _MNT_DETACH)
    return True


@contextlib.contextmanager
def held(host: Host, mount: Mount, root: str, number: bool = True) -> Iterator[int]:
    """An O_PATH descriptor of a mount that is the topmost at its point.

    While it is open, neither the number of the mount nor that of its device can become another's.
    ``number``: it must have the same number, which it has not in a copy of the mount namespace.
    Call it in a child. Raises StorageOpsError if another mount, or none, is there.
    """
    with contextlib.ExitStack() as opened:
        folder, name = opened.enter_context(opened_parent(host.path(mount.point), host.path(root)))
        try:
            # Nothing is asked of what is there, since its server may hang.
            flags = os.O_PATH | os.O_NOFOLLOW
            descriptor = opened.enter_context(fdinfo.opened(name, flags, folder))
        except OSError as error:
            raise StorageOpsError(f"{mount.point!r} cannot be opened: {error.strerror}") from error
        if not _is_held(host, mount, descriptor, number):
            raise StorageOpsError(_ANOTHER)
        yield descriptor


def _is_held(host: Host, mount: Mount, descriptor: int, number: bool = True) -> bool:
    """Whether an open folder or file is the root of this very mount."""
    now = read_mount(host, mount_id_of(descriptor))
    if now is None:
        return False
    return same(now, mount) if number else _identity(now) == _identity(mount)


def _is_top(host: Host, mount: Mount, folder: int, name: str) -> bool:
    """Whether this very mount is the topmost there."""
    now = read_mount(host, mount_id(name, folder))
    return now is not None and same(now, mount)


def same(one: Mount, other: Mount) -> bool:
    """Whether two readings are of one mount, as far as mountinfo tells."""
    # The ID alone does not tell: the next new mount may get it (proc_pid_mountinfo(5)).
    return one.id == other.id and _identity(one) == _identity(other)


def _proven(host: Host, what: int, source: Source) -> tuple[str, str]:
    """The same as ``_shown``; StorageOpsError if it is not of the filesystem that was proven."""
    shown = _shown(host, what)
    if shown[0] != source.device:
        raise StorageOpsError(f"{source.path!r} is on {shown[0]}, not on the new mount")
    return shown


def _shown(host: Host, descriptor: int) -> tuple[str, str]:
    """(device, path within its filesystem) of an open folder or file."""
    mount = read_mount(host, mount_id_of(descriptor))
    if mount is None:
        raise StorageOpsError("which mount it is in cannot be told")
    inside = os.readlink(f"/proc/self/fd/{descriptor}")[len(mount.point.rstrip("/")) :]
    return mount.device, (mount.root.rstrip("/") + inside) or "/"


def _require_fit(what: int, where: int, path: str) -> None:
    """A folder can be mounted only on a folder, and a file only on a file (mount(2), ENOTDIR)."""
    new, old = _kind(what), _kind(where)
    if new != old:
        raise StorageOpsError(f"{path!r} is {new} in the new mount, but {old} was mounted")


def _kind(descriptor: int) -> str:
    # Unlike stat(2), this asks no server: it may have ended, or hang (fs/namei.c path_lookupat).
    try:
        with fdinfo.opened(f"/proc/self/fd/{descriptor}", os.O_PATH | os.O_DIRECTORY):
            return "a folder"
    except NotADirectoryError:
        return "a file"


def _there(folder: int, name: str) -> contextlib.AbstractContextManager[int]:
    """An O_PATH descriptor of what is topmost there, of which nothing is asked."""
    return fdinfo.opened(name, os.O_PATH | os.O_NOFOLLOW, folder)


def _bind(what: int, where: int) -> None:
    call_libc(
        "mount",
        # Paths through /proc/self/fd lead to the opened files, whatever is at their paths by now.
        f"/proc/self/fd/{what}".encode(),
        f"/proc/self/fd/{where}".encode(),
        None,
        _MS_BIND,
        None,
    )


def _identity(mount: Mount) -> tuple[str, ...]:
    return mount.point, mount.device, mount.root, mount.fstype, mount.source


def mount_id(name: str, folder: int | None = None) -> int:
    """The ID of the topmost mount at a path. It asks no server, unless a folder on the way does."""
    with fdinfo.opened(name, os.O_PATH | os.O_NOFOLLOW, folder) as descriptor:
        return mount_id_of(descriptor)


def mount_id_of(descriptor: int) -> int:
    """The ID of the mount that an open file or folder is in (proc_pid_fdinfo(5), mnt_id)."""
    # name_to_handle_at(2) gives it, too, but not on every filesystem.
    return fdinfo.read(f"/proc/self/fdinfo/{descriptor}").mount


@contextlib.contextmanager
def _opened_itself(host: Host, path: str, root: str) -> Iterator[int]:
    """An O_PATH descriptor of what is topmost at a path."""
    with contextlib.ExitStack() as opened:
        folder, name = opened.enter_context(opened_parent(host.path(path), host.path(root)))
        yield opened.enter_context(_topmost(folder, name, path))


@contextlib.contextmanager
def _topmost(folder: int, name: str, path: str) -> Iterator[int]:
    """The same, in a folder that is open."""
    with _there(folder, name) as descriptor:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise StorageOpsError(f"{path!r} is a link")
        yield descriptor


def _at(folder: int, name: str) -> bytes:
    return f"/proc/self/fd/{folder}/".encode() + os.fsencode(name)


def call_libc(function: str, *arguments: bytes | int | None) -> None:
    """Call a function of the C library that returns 0 or sets errno. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if (
        getattr(library, function)(
            *(ctypes.c_ulong(word) if isinstance(word, int) else word for word in arguments)
        )
        != 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _why(error: OSError | StorageOpsError) -> str:
    return _words(error) if isinstance(error, OSError) else str(error)


def _words(error: OSError) -> str:
    return _WORDS.get(error.errno or 0, "") or str(error.strerror)


def _do(host: Host, what: str, function: Callable[[], str], more: float = 0.0) -> None:
    """Run it in a child, since a folder on the way may be a mount that never answers.

    ``more``: seconds that it may take besides those of any command. Turns what it raises into
    NotStarted or ActionFailed, with ``what`` in front.
    """

    def trying() -> dict[str, str]:
        try:
            moved = function()
            return {"moved": moved} if moved else {}
        except FileNotFoundError as error:
            return {"moved": str(error.strerror)}
        except StorageOpsError as error:
            return {"moved": str(error)}
        except _HalfDone as error:
            return {"failed": str(error)}
        except OSError as error:
            return {"failed": _words(error)}

    reply = host.bounded(trying, host.command_timeout + more)
    if reply.problem:
        raise ActionFailed(f"{what}: {reply.problem}")
    said: dict[str, str] = reply.value
    if "moved" in said:
        raise NotStarted(f"{what}: {said['moved']}")
    if "failed" in said:
        raise ActionFailed(f"{what}: {said['failed']}")
