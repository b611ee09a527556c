# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a repair of FUSE mounts keeps below /run: for the run after an interrupted one,
and for STOR-07, which compares the mounts of pods with the staging mount.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any

from .._core.errors import StorageOpsError
from .._node.host import Host
from .._node.mounts import MountTable
from .._node.renewed import NOTES, Renewed, identity, read_renewed
from .model import PRIVATE, Target, Unfinished

# Beside the folders of repairs, each of which is named by a key.
LOCK = f"{PRIVATE}.lock"


def lock(host: Host) -> int:
    """The descriptor of the lock that only one run on this node has. Raises StorageOpsError.

    The kernel gives it back when the descriptor is closed, or this process ends.
    """
    descriptor = -1
    try:
        os.makedirs(os.path.dirname(host.path(LOCK)), exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(host.path(LOCK), flags, 0o600)
        # Not flock(2), whose locks a child shares: one in D state, at a mount that hangs, would
        # keep it for as long as its server does not answer. These are the process's own (fcntl(2),
        # F_SETLK).
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        # Which of the two says that another has it is left to the system (fcntl(2), ERRORS).
        if descriptor >= 0 and isinstance(error, (BlockingIOError, PermissionError)):
            raise StorageOpsError(
                "another run repairs FUSE mounts on this node: run again when it has ended",
                code="lease_held",
            ) from error
        raise StorageOpsError(
            f"{LOCK} cannot be locked: {error.strerror}", code="repair_failed"
        ) from error
    return descriptor


def note_of(host: Host, key: str) -> dict[str, Any]:
    """What a run noted about its repair; empty if that is no JSON, or not there."""
    # A run may have been killed while it wrote; then the note is empty or missing.
    noted: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        noted = json.loads(host.read(f"{PRIVATE}/{key}/plan.json") or "{}")
    return noted


def read_unfinished(host: Host) -> tuple[Unfinished, ...]:
    """What earlier runs did not tidy up. A note that cannot be read names no mount points."""
    found = []
    # Each repair has a folder of its own there, named by its key.
    for key in host.names(PRIVATE):
        noted = note_of(host, key)
        targets = tuple(
            Target(
                entry["point"],
                entry["kind"],
                (),
                entry["root"],
                tuple(entry["flags"]),
                entry["beneath"],
            )
            for entry in noted.get("targets", ())
        )
        # Notes of older versions lack these.
        more = {name: noted[name] for name in ("fstype", "origin") if name in noted}
        found.append(
            Unfinished(
                key,
                noted.get("name", f"{PRIVATE}/{key}"),
                tuple(noted.get("devices", ())),
                targets,
                kept=tuple(noted.get("kept", ())),
                # Without a readable note its server may serve mounts in use, so it is not stopped.
                begun=noted.get("begun", True),
                credentials=host.exists(f"{PRIVATE}/{key}/credentials"),
                handles=tuple((driver, handle) for driver, handle in noted.get("handles", ())),
                **more,
            )
        )
    return tuple(found)


def note_renewed(host: Host, made: Renewed, table: MountTable) -> None:
    """Note a pod's mount that is about to be made, and no longer those that are gone. OSError if
    that fails.
    """
    there = {identity(mount) for mount in table.mounts}
    kept = [one for one in read_renewed(host) & there if one.point != made.point]
    path = host.path(NOTES)
    write_private(f"{path}.new", json.dumps([*kept, made]))
    # Half of it would be none, and mounts that were renewed before would be called wrong.
    os.rename(f"{path}.new", path)


def make_folder(path: str) -> None:
    """Make a folder unless it exists, without a look at what may be mounted on it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def write_private(path: str, text: str) -> None:
    """Write a new file that only root can read.

    An old one is removed first, so that O_EXCL shows whether another process has put one there.
    """
    remove(path)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600),
        "w",
        encoding="utf-8",
    ) as file:
        file.write(text)


def remove(path: str) -> None:
    """Remove a file or an empty folder; one in use stays."""
    with contextlib.suppress(OSError):
        try:
            os.unlink(path)
        except IsADirectoryError:
            os.rmdir(path)
