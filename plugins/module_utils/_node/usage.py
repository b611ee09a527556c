# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.

"""Who uses a block device: mounts in any namespace, swap, holders, device nodes bound into containers, and open files."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._engine import StorageOpsError
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import Mount

# stat() of a file there may ask a server that is dead; no block device lives there.
_REMOTE = ("fuse", "nfs", "cifs", "smb", "ceph", "9p", "afs", "lustre", "gpfs", "glusterfs", "virtiofs", "autofs")

_UDEV = ("udevadm", "systemd-udevd")


@dataclass(frozen=True)
class Opener:
    """A process that has a device open.

    ``hung``: one of its threads is in D state. ``udev``: it is udev, which reads the start of a device at each event and
    then lets go of it. ``opens``: how many of its file descriptors are the device.
    """

    pid: int
    command: str
    hung: bool
    udev: bool
    opens: int

    def describe(self) -> str:
        """``dd (pid 4711, hung in D state)``."""
        return f"{self.command} (pid {self.pid}{', hung in D state' if self.hung else ''})"


def mount_uses(host: Host, mounts: list[Mount], swaps: list[str], devices: dict[str, str]) -> list[str]:
    """What the devices (kernel name -> major:minor) are mounted, bound or swapped on as; one sentence each."""
    uses = []
    for mount in mounts:
        where = f"{mount.point} in the mount namespace of pid {mount.pid}"
        # btrfs shows a device number of its own, so the source counts too.
        if mount.device in devices.values() or _names(host, mount.source, devices):
            uses.append(f"mounted at {where}")
        elif mount.fstype in ("devtmpfs", "tmpfs") and mount.root.rpartition("/")[2] in devices:
            uses.append(f"its device node is bound at {where}")
    uses += [f"{swap} is swap" for swap in swaps if _names(host, swap, devices)]
    return list(dict.fromkeys(uses))


def _names(host: Host, source: str, devices: dict[str, str]) -> bool:
    return source.startswith("/dev/") and host.resolve(source).rpartition("/")[2] in devices


def openers(host: Host, devs: set[str]) -> dict[str, list[Opener]]:
    """Processes that have one of the block devices (major:minor) open, by device."""
    reply = host.bounded(lambda: scan_open_files(host.path("/proc"), devs))
    if reply.problem:
        raise StorageOpsError(f"the open files of this node's processes could not be read: {reply.problem}")
    return {dev: [Opener(**opener) for opener in found] for dev, found in reply.value.items()}


def scan_open_files(proc: str, devs: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Read every /proc/PID/fd; returns major:minor -> fields of ``Opener``. May block: call it in a child."""
    found: dict[str, list[dict[str, Any]]] = {dev: [] for dev in devs}
    remote_by_namespace: dict[str, set[str]] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        base = f"{proc}/{pid}"
        try:
            opens = Counter(_block_device(base, fd, remote_by_namespace) for fd in os.listdir(f"{base}/fd"))
            for dev in devs & set(opens):
                udev = os.readlink(f"{base}/exe").rpartition("/")[2] in _UDEV
                opener = {"pid": int(pid), "command": _text(f"{base}/comm"), "hung": _hung(base), "udev": udev, "opens": opens[dev]}
                found[dev].append(opener)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended, and so no longer has anything open
    return found


def _block_device(base: str, fd: str, remote_by_namespace: dict[str, set[str]]) -> str:
    """major:minor of the block device behind a file descriptor; empty for anything else."""
    try:
        target = os.readlink(f"{base}/fd/{fd}")
        if not target.startswith("/") or (not target.startswith("/dev/") and _is_remote(base, fd, remote_by_namespace)):
            return ""
        status = os.stat(f"{base}/fd/{fd}")
    except OSError:
        return ""  # closed meanwhile
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if stat.S_ISBLK(status.st_mode) else ""


def _is_remote(base: str, fd: str, remote_by_namespace: dict[str, set[str]]) -> bool:
    namespace = os.readlink(f"{base}/ns/mnt")
    if namespace not in remote_by_namespace:
        lines = [line.split(" ") for line in _text(f"{base}/mountinfo").split("\n")]
        remote_by_namespace[namespace] = {line[0] for line in lines if line[line.index("-") + 1].startswith(_REMOTE)}
    mount_ids = [line.split()[1] for line in _text(f"{base}/fdinfo/{fd}").splitlines() if line.startswith("mnt_id:")]
    return bool(mount_ids) and mount_ids[0] in remote_by_namespace[namespace]


def _hung(base: str) -> bool:
    """A thread of the process is in D state (proc_pid_stat(5): the state follows the command in brackets)."""
    return any(_text(f"{base}/task/{task}/stat").rpartition(") ")[2].startswith("D") for task in os.listdir(f"{base}/task"))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read().rstrip("\n")


def exclusive_open(host: Host, name: str) -> str:
    """Why a disk cannot be claimed for oneself: another has claimed it, or no answer in time; empty if it can.

    The kernel checks for another exclusive holder before anything else, so any error but EBUSY means that there is none.
    """

    def claiming() -> str:
        try:
            os.close(os.open(host.path(f"/dev/{name}"), os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK))
        except OSError as error:
            return "claimed exclusively by the kernel or a process" if error.errno == errno.EBUSY else ""
        return ""

    reply = host.bounded(claiming)
    return f"whether it is free is unknown: {reply.problem}" if reply.problem else str(reply.value)
