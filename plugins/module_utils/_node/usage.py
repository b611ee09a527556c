# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Who uses a block device: mounts in any namespace, swap, holders, device nodes bound into
containers, and open files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import call_each
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    all_mounts,
    each_mount,
    swap_devices,
)

# stat() of a file there may ask a server that is dead; no block device lives there.
_REMOTE = (
    "fuse",
    "nfs",
    "cifs",
    "smb",
    "ceph",
    "9p",
    "afs",
    "lustre",
    "gpfs",
    "glusterfs",
    "virtiofs",
    "autofs",
)

# What any user can mount in a user namespace (FS_USERNS_MOUNT in the kernel's sources), with any
# words for its source; none of it is on a disk.
_ANYBODYS = (
    *("binfmt_misc", "bpf", "cgroup", "cgroup2", "devpts", "fuse", "mqueue", "overlay"),
    *("proc", "ramfs", "sysfs", "tmpfs"),
)
# Where the kubelet binds folders of volumes, which their users name.
_SUBPATHS = "/volume-subpaths/"

# linux/loop.h: struct loop_info64 begins with the device that the backing file is on, its inode,
# and the device that it is.
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO = struct.Struct("=QQQ208x")
# Seconds
_LOOP_ASKING = 5.0

_UDEV = ("udevadm", "systemd-udevd")
_UDEV_UNIT = "systemd-udevd.service"


@dataclass(frozen=True)
class Opener:
    """A process that has a device open.

    ``hung``: one of its threads is in D state. ``udev``: it is udev or was started by a rule of
    udev's (kpartx, blkid), which read the start of a device at each event and then let go of it.
    ``opens``: how many of its file descriptors are the device.
    ``writes``: one of these was opened for writing.
    """

    pid: int
    command: str
    hung: bool
    udev: bool
    opens: int
    writes: bool = False

    def describe(self) -> str:
        """``dd (pid 4711, may write, hung in D state)``."""
        words = [
            f"pid {self.pid}",
            *(["may write"] if self.writes else []),
            *(["hung in D state"] if self.hung else []),
        ]
        return f"{self.command} ({', '.join(words)})"


class UsesByDevice:
    """Mounts, swap and loop devices of the node, indexed once, so that each device is looked up and
    not searched for.
    """

    def __init__(self, host: Host) -> None:
        self._by_dev: dict[str, list[Reason]] = {}
        self._by_name: dict[str, list[Reason]] = {}
        kernel_names: dict[str, str] = {}

        def name_of(source: str) -> str:
            """Kernel name behind a device path; empty for anything else."""
            if source.startswith("/dev/") and source not in kernel_names:
                kernel_names[source] = host.resolve(source).rpartition("/")[2]
            return kernel_names.get(source, "")

        with_nodes = _filesystems_with_nodes(host)
        for mount in all_mounts(host):
            where = f"{mount.point} in the mount namespace of pid {mount.pid}"
            # No block device has the major number 0, and a tenant may have any number of such
            # mounts.
            if not mount.device.startswith("0:"):
                self._by_dev.setdefault(mount.device, []).append(
                    Reason("in_use_mounted", f"mounted at {where}")
                )
            # btrfs shows a device number of its own, so the source counts too.
            if mount.fstype.partition(".")[0] not in _ANYBODYS and name_of(mount.source):
                self._by_name.setdefault(name_of(mount.source), []).append(
                    Reason("in_use_mounted", f"mounted at {where}")
                )
            if mount.root != "/" and (mount.fstype == "devtmpfs" or mount.device in with_nodes):
                self._by_name.setdefault(mount.root.rpartition("/")[2], []).append(
                    Reason("in_use_mounted", f"its device node is bound at {where}")
                )
        for swap in swap_devices(host):
            self._by_name.setdefault(name_of(swap), []).append(
                Reason("in_use_held", f"{swap} is swap")
            )
        # A path says little: it may be one of another mount namespace, or be unmounted by now.
        self._unknown: list[Reason] = []
        for loop, (devs, problem) in loop_backings(host).items():
            for dev in devs:
                self._by_dev.setdefault(dev, []).append(Reason("in_use_held", f"behind {loop}"))
            self._unknown += (
                [
                    Reason(
                        "evidence_unreadable", f"whether {loop} stands on it is unknown: {problem}"
                    )
                ]
                if problem
                else []
            )

    def of(self, devices: dict[str, str]) -> list[Reason]:
        """What the devices (kernel name -> major:minor) are used for; one sentence each."""
        found = [
            use
            for name, dev in devices.items()
            for use in (*self._by_dev.get(dev, ()), *self._by_name.get(name, ()))
        ]
        return list(dict.fromkeys([*found, *self._unknown]))


def _filesystems_with_nodes(host: Host) -> set[str]:
    """major:minor of each tmpfs that is the node's /dev, or from which it has bound something by
    itself.

    A driver binds devices from the /dev of its container. A tenant's tmpfs, as an emptyDir in
    memory, may have folders of any name.
    """
    found = each_mount(host.read("/proc/1/mountinfo") or "", "1")
    return {
        mount.device
        for mount in found
        if mount.fstype == "tmpfs"
        and (mount.point == "/dev" or (mount.root != "/" and _SUBPATHS not in mount.point))
    }


def loop_backings(host: Host) -> dict[str, tuple[tuple[str, ...], str]]:
    """Loop device in use -> (major:minor of the device that it stands on, or that its file is on;
    why that is not known).
    """
    loops = [
        loop
        for loop in host.names("/sys/block")
        if host.exists(f"/sys/block/{loop}/loop/backing_file")
    ]
    # The kernel asks the file system of the backing file, which may be dead.
    replies = call_each(
        lambda loop: loop_devices(host.path(f"/dev/{loop}")), loops, host.deadline.cap(_LOOP_ASKING)
    )
    return {loop: (tuple(reply.value or ()), reply.problem) for loop, reply in zip(loops, replies)}


def loop_devices(loop: str) -> list[str]:
    """major:minor of the devices behind the loop device at this path; none if it is free.

    May block: call it in a child.
    """
    fd = os.open(loop, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(_LOOP_INFO.size))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return []
        raise
    finally:
        os.close(fd)
    return parse_loop_info(info)


def parse_loop_info(info: bytes) -> list[str]:
    """major:minor of the device that the backing file is, and of the one that it is on, from a
    struct loop_info64.
    """
    file_is_on, _inode, file_is = _LOOP_INFO.unpack(info)
    return [f"{os.major(dev)}:{os.minor(dev)}" for dev in (file_is, file_is_on) if dev]


def openers(host: Host, devs: set[str]) -> dict[str, list[Opener]]:
    """Processes that have one of the devices (major:minor, with a ``c`` before it for character
    devices) open, by device.
    """
    reply = host.bounded(lambda: scan_open_files(host.path("/proc"), devs))
    if reply.problem:
        raise StorageOpsError(
            f"the open files of this node's processes could not be read: {reply.problem}"
        )
    return {dev: [Opener(**opener) for opener in found] for dev, found in reply.value.items()}


def scan_open_files(proc: str, devs: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Read every /proc/PID/fd; returns major:minor -> fields of ``Opener``.

    May block: call it in a child.
    """
    found: dict[str, list[dict[str, Any]]] = {dev: [] for dev in devs}
    remote_by_root: dict[tuple[str, str], set[str]] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        base = f"{proc}/{pid}"
        try:
            opened: dict[str, list[str]] = {}
            for fd in os.listdir(f"{base}/fd"):
                opened.setdefault(_device(base, fd, remote_by_root), []).append(fd)
            for dev in devs & set(opened):
                opener = {
                    "pid": int(pid),
                    "command": _text(f"{base}/comm"),
                    "hung": _hung(base),
                    "udev": _udev(base),
                }
                writes = any(_writes(base, fd) for fd in opened[dev])
                found[dev].append({**opener, "opens": len(opened[dev]), "writes": writes})
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended, and so no longer has anything open
    return found


def _device(base: str, fd: str, remote_by_root: dict[tuple[str, str], set[str]]) -> str:
    """major:minor of the device behind a file descriptor, with a ``c`` before it for a character
    device; empty for anything else.
    """
    try:
        target = os.readlink(f"{base}/fd/{fd}")
        if not target.startswith("/") or (
            not target.startswith("/dev/") and _is_remote(base, fd, remote_by_root)
        ):
            return ""
        status = os.stat(f"{base}/fd/{fd}")
    except PermissionError:
        raise
    except OSError:
        return ""  # closed meanwhile
    kind = "" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else None
    return "" if kind is None else f"{kind}{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _writes(base: str, fd: str) -> bool:
    """Whether a file descriptor was opened for writing (proc_pid_fdinfo(5): flags are octal)."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # closed meanwhile
        lines = [line.split() for line in _text(f"{base}/fdinfo/{fd}").splitlines()]
        flags = [line[1] for line in lines if line[:1] == ["flags:"]]
        return any(int(flag, 8) & os.O_ACCMODE != os.O_RDONLY for flag in flags)
    return False


def _is_remote(base: str, fd: str, remote_by_root: dict[tuple[str, str], set[str]]) -> bool:
    # What mountinfo shows depends on the root of the process, too.
    view = (os.readlink(f"{base}/ns/mnt"), os.readlink(f"{base}/root"))
    if view not in remote_by_root:
        lines = [line.split(" ") for line in _text(f"{base}/mountinfo").split("\n")]
        # proc_pid_mountinfo(5): the type follows the dash that ends the optional fields.
        types = {line[0]: line[line.index("-", 6) + 1] for line in lines if "-" in line[6:]}
        remote_by_root[view] = {
            mount for mount, fstype in types.items() if fstype.startswith(_REMOTE)
        }
    mount_ids = [
        line.split()[1]
        for line in _text(f"{base}/fdinfo/{fd}").splitlines()
        if line.startswith("mnt_id:")
    ]
    return bool(mount_ids) and mount_ids[0] in remote_by_root[view]


def _udev(base: str) -> bool:
    """udev itself, or, by its control group, what udev has started."""
    if os.readlink(f"{base}/exe").rpartition("/")[2] in _UDEV:
        return True
    return any(_UDEV_UNIT in line.split("/") for line in _text(f"{base}/cgroup").splitlines())


def _hung(base: str) -> bool:
    """A thread of the process is in D state (proc_pid_stat(5): the state follows the command in
    brackets).
    """
    for task in os.listdir(f"{base}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
            if _text(f"{base}/task/{task}/stat").rpartition(") ")[2].startswith("D"):
                return True
    return False


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read().rstrip("\n")


def exclusive_open(host: Host, name: str) -> list[Reason]:
    """Why a device cannot be claimed for oneself: another has claimed it, or no answer in time;
    empty if it can.

    The kernel checks for another exclusive holder before anything else, so any error but EBUSY
    means that there is none.
    """

    def claiming() -> bool:
        try:
            os.close(os.open(host.path(f"/dev/{name}"), os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK))
        except OSError as error:
            return error.errno == errno.EBUSY
        return False

    reply = host.bounded(claiming)
    if reply.problem:
        said = f"whether {name} is free is unknown: {reply.problem}"
        return [Reason("evidence_unreadable", said)]
    said = f"{name} is claimed exclusively by the kernel or a process"
    return [Reason("in_use_held", said)] if reply.value else []
