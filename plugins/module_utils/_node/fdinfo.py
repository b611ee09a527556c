# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An open file, and what /proc says of one (proc_pid_fdinfo(5))."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from .._core.errors import StorageOpsError

# The kernel writes these lines first, whatever the file is (fs/proc/fd.c seq_show). What follows is
# the file's own: io_uring's has the names of its registered files, which a tenant chooses, with any
# character but a few blanks.
_HEAD = re.compile(rb"pos:\t-?[0-9]+\nflags:\t(?P<flags>[0-7]+)\nmnt_id:\t(?P<mount>[0-9]+)\n")
_MOST_BYTES = 256
# include/uapi/linux/fcntl.h and include/uapi/linux/stat.h; see statx(2).
_AT_FDCWD, _AT_STATX_DONT_SYNC, _AT_EMPTY_PATH, _STATX_TYPE = -100, 0x4000, 0x1000, 1
# Of struct statx: stx_mask; stx_mode; stx_rdev_major, stx_rdev_minor, stx_dev_major, stx_dev_minor.
_STATX = struct.Struct("=I24xH98x4I112x")


class FdInfo(NamedTuple):
    """``flags``: those of open(2). ``mount``: ID of the mount that the file is in."""

    flags: int
    mount: int


class Kept(NamedTuple):
    """What the kernel keeps of a file. ``mode``: its type, as st_mode. ``number``: major:minor, if
    it is a device. ``device``: that of its file system.
    """

    mode: int
    number: str
    device: str


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def kept(file: int | str) -> Kept:
    """Of a descriptor, or of a path such as /proc/PID/fd/N. No server is asked. Raises OSError.

    At a path a server may be asked all the same (see mount_at).
    """
    # With this flag, FUSE and NFS answer from what they have, however old (fs/fuse/dir.c
    # fuse_update_get_attr; fs/nfs/inode.c nfs_getattr). The type of a file never changes.
    found = ctypes.create_string_buffer(_STATX.size)
    folder, path = (file, b"") if isinstance(file, int) else (_AT_FDCWD, os.fsencode(file))
    function = getattr(_library(), "statx", None)
    if function is None:
        raise OSError(errno.ENOSYS, "the C library has no statx")
    flags = ctypes.c_int(_AT_STATX_DONT_SYNC | _AT_EMPTY_PATH)
    if function(ctypes.c_int(folder), path, flags, ctypes.c_uint(_STATX_TYPE), found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    mask, mode, *numbers = _STATX.unpack(found.raw)
    if not mask & _STATX_TYPE:
        raise OSError(errno.ENODATA, "its type is not known")
    return Kept(mode, f"{numbers[0]}:{numbers[1]}", f"{numbers[2]}:{numbers[3]}")


@contextlib.contextmanager
def opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """The descriptor of a file, which is closed in the end. Raises OSError; open(2) may block."""
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(path: str) -> FdInfo:
    """Of an open file, by the path of its fdinfo. Raises OSError, StorageOpsError."""
    with opened(path, os.O_RDONLY | os.O_CLOEXEC) as descriptor:
        return parse(os.read(descriptor, _MOST_BYTES))


def parse(text: bytes) -> FdInfo:
    """The first lines of a fdinfo. Raises StorageOpsError for those of another form."""
    found = _HEAD.match(text)
    if found is None:
        raise StorageOpsError(f"this kernel tells of open files in another form: {text!r}")
    return FdInfo(int(found["flags"], 8), int(found["mount"]))


def mount_at(path: str) -> int:
    """ID of the mount that the file at a path is in. Raises OSError, StorageOpsError.

    May block, as the root of a process on NFS (fs/nfs/dir.c nfs_weak_revalidate).
    """
    # Links as /proc/PID/root lead straight to the open file, without a lookup by name
    # (proc_pid_fd(5)).
    with opened(path, os.O_PATH | os.O_CLOEXEC) as descriptor:
        return read(f"/proc/self/fdinfo/{descriptor}").mount
