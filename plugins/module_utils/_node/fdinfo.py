# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An open file, and what /proc says of one (proc_pid_fdinfo(5))."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from .._core.errors import StorageOpsError

# The kernel writes these lines first, whatever the file is (fs/proc/fd.c seq_show). What follows is
# the file's own: io_uring's has the names of its registered files, which a tenant chooses, with any
# character but a few blanks.
_HEAD = re.compile(rb"pos:\t-?[0-9]+\nflags:\t(?P<flags>[0-7]+)\nmnt_id:\t(?P<mount>[0-9]+)\n")
_MOST_BYTES = 256


class FdInfo(NamedTuple):
    """``flags``: those of open(2). ``mount``: ID of the mount that the file is in."""

    flags: int
    mount: int


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
