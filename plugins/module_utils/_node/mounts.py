# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""mountinfo of every mount namespace, and swap (see proc_pid_mountinfo(5))."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. ``device``: major:minor of the superblock; ``root``: the folder of it that is mounted."""

    device: str
    root: str
    point: str
    fstype: str
    source: str
    pid: str


def parse_mountinfo(text: str, pid: str) -> list[Mount]:
    """The mounts in a mountinfo file; lines that are not of its form are an error, never passed over."""
    mounts = []
    # A mount point may hold any other character that str.splitlines takes for the end of a line.
    for line in filter(None, text.split("\n")):
        fields = line.split(" ")
        # Optional fields end with a dash of its own; what stands before them may be one too.
        dash = fields.index("-", 6) if "-" in fields[6:] else len(fields)
        if len(fields) < dash + 3:
            raise StorageOpsError(f"/proc/{pid}/mountinfo has a line that cannot be read: {line!r}")
        mounts.append(Mount(fields[2], _unescape(fields[3]), _unescape(fields[4]), fields[dash + 1], _unescape(fields[dash + 2]), pid))
    return mounts


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def all_mounts(host: Host) -> list[Mount]:
    """The mounts of every mount namespace that a process lives in, each namespace read once.

    A process in a chroot sees only what is below its root, so a namespace is read once for every root in it.
    A namespace that only an open file keeps alive cannot be read; a device mounted there still shows by its open count.
    """
    mounts: list[Mount] = []
    seen = set()
    for pid in host.names("/proc"):
        view = (host.link(f"/proc/{pid}/ns/mnt"), host.link(f"/proc/{pid}/root")) if pid.isdigit() else ("", "")
        if not view[0] or view in seen:
            continue
        text = host.read(f"/proc/{pid}/mountinfo")
        # A process that ended meanwhile has no mountinfo; another one of its namespace may.
        if text:
            seen.add(view)
            mounts += parse_mountinfo(text, pid)
    if not mounts:
        raise StorageOpsError("no mount namespace can be read in /proc: run as root (become: true)")
    return mounts


def swap_devices(host: Host) -> list[str]:
    """Device paths in use as swap."""
    return [line.split()[0] for line in (host.read("/proc/swaps") or "").splitlines()[1:] if line.strip()]
