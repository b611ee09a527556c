# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What rclone has kept on the node's disk, of volumes that no server of ours serves any more.

Only what has arrived in the bucket is removed. What has not is uploaded when the volume is mounted
again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from functools import partial

from .._core.errors import StorageOpsError
from .._core.texts import words
from .._node import fdinfo
from .._node.host import Host
from .model import CACHES, SLICE, UNIT

# With control groups of version 2 and 1, the slice of system services, in which servers of earlier
# releases are, and that of ours, which is there as long as it has a server (systemd.special(7);
# cgroups(7); systemd.slice(5): one is below that whose name is the part before the dash).
_TREES = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd")
_OURS = f"{SLICE.partition('-')[0]}.slice/{SLICE}"
_VARIABLE = "RCLONE_CACHE_DIR="
# Bytes of what rclone notes of a file. It lists the parts that it has.
_MOST_BYTES = 2**20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tidy(host: Host) -> None:
    """Remove what is no longer needed. Call it while no other run can start a server.

    It may hang or fail as the disk does, and then leaves the rest: it is only kept longer.
    """
    with contextlib.suppress(StorageOpsError):
        used = _in_use(host)
        for key in host.names(CACHES):
            folder = f"{CACHES}/{key}"
            if folder not in used:
                host.bounded(partial(_clean, host.path(folder)))


def _in_use(host: Host) -> set[str]:
    """The folders of the servers that run. Raises StorageOpsError if that is not known."""
    trees = [tree for tree in _TREES if host.exists(f"{tree}/system.slice")]
    if not trees:
        raise StorageOpsError("the services of this node are not known")
    pids = [
        pid
        for tree in trees
        for folder in (f"{tree}/system.slice", f"{tree}/{_OURS}")
        for unit in host.names(folder)
        if unit.startswith(UNIT)
        for pid in words(host.read(f"{folder}/{unit}/cgroup.procs") or "")
    ]
    return {folder for pid in pids for folder in _folders_of(host, pid)}


def _folders_of(host: Host, pid: str) -> list[str]:
    """The folder of a server. Raises StorageOpsError if it is there and does not tell."""
    environment = host.read(f"/proc/{pid}/environ")
    if environment is None and host.exists(f"/proc/{pid}"):
        raise StorageOpsError(f"the environment of pid {pid} cannot be read")
    variables = (environment or "").split("\0")
    return [one[len(_VARIABLE) :] for one in variables if one.startswith(_VARIABLE)]


def _clean(folder: str) -> None:
    """Remove the files that have arrived, and the folders that are empty then."""
    # rclone keeps a file at vfs/REMOTE/PATH, and notes what it knows of it at vfsMeta/REMOTE/PATH
    # (vfs/vfscache/cache.go New, item.go _save).
    for note in _files(f"{folder}/vfsMeta"):
        if _has_arrived(note):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/vfs{note[len(f'{folder}/vfsMeta') :]}")
            # Last: a file without it counts as one that has not arrived.
            os.unlink(note)
    for base, _folders, _names in os.walk(folder, topdown=False):
        # One with a file in it stays.
        with contextlib.suppress(OSError):
            os.rmdir(base)


def _files(folder: str) -> Iterator[str]:
    for base, _folders, names in os.walk(folder):
        for name in names:
            yield f"{base}/{name}"


def _has_arrived(note: str) -> bool:
    """Whether the file of a note is in the bucket, as rclone has noted it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        with fdinfo.opened(note, _FLAGS) as opened:
            found = json.loads(os.read(opened, _MOST_BYTES))
        # Dirty is set by the first change, and taken back when the file was uploaded; Fingerprint
        # is of the object in the bucket (item.go Info).
        return found.get("Dirty") is False and bool(found.get("Fingerprint"))
    return False
