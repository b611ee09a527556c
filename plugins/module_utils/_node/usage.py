# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a block device: mounts in any namespace, swap, loop devices, device nodes bound into
containers, and open files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import stat
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Callable

from .._core import untrusted
from .._core.bounded import Deadline, call_each
from .._core.codes import Reason
from .._core.errors import StorageOpsError
from . import fdinfo, processes
from .control_groups import pod_uid_of, text_of
from .host import Host, lines_of, of_living, target_of
from .mounts import Mount, each_mount, is_shortened, swap_devices
from .namespaces import ENDED, Namespaces

# Types of filesystems with a server, which may be dead when stat(2) asks it. No block device is
# there.
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

# Filesystems that any user can mount in a user namespace (FS_USERNS_MOUNT in the kernel), with any
# text as their source. None of them is on a disk.
_ANYBODYS = (
    *("binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "devpts", "fuse", "mqueue", "overlay"),
    # The latter of Ubuntu's kernels only.
    *("proc", "ramfs", "sysfs", "tmpfs", "shiftfs"),
)
# Where the kubelet binds folders of volumes, whose names the volume's users choose.
_SUBPATHS = "/volume-subpaths/"

# include/uapi/linux/loop.h: struct loop_info64 begins with lo_device (the device that the backing
# file is on), lo_inode and lo_rdevice (the device that it is).
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO = struct.Struct("=QQQ208x")
# How many mounts of one block device are read. One is enough to say that it is in use, and a tenant
# may have 100,000 in each of any number of mount namespaces (fs.mount-max).
_MOST_MOUNTS = 20
# Characters of the path of a mount; the kubelet's own are shorter.
_SHOWN = 500
# How many processes a message names whose open files could not be read, of any number.
_MOST_NAMED = 3
# Seconds for all loop devices together, and for all that is bound from a tmpfs.
_ASKING = 5.0

_UDEV = ("udevadm", "systemd-udevd")
_UDEV_UNIT = "systemd-udevd.service"


@dataclass(frozen=True)
class Opener:
    """A process that has a device open.

    ``hung``: one of its threads is in D state. ``udev``: it is udev, or one of its rules started it
    (kpartx, blkid): these read the start of a device at each event, and close it. ``opens``: how
    many of its file descriptors are the device. ``writes``: one of these was opened for writing.
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
    """The node's mounts, swap and loop devices, indexed by block device.

    ``unread``: mount namespaces of pods in which there may be more.
    """

    def __init__(self, host: Host) -> None:
        self._by_dev: dict[str, list[Reason]] = {}
        self._more: Counter[str] = Counter()
        self._by_name: dict[str, list[Reason]] = {}
        self._unknown: list[Reason] = []
        self._host = host
        self._kernel_names: dict[str, str] = {}
        everywhere = Namespaces(host)
        with_nodes = _filesystems_with_nodes(host, everywhere)
        too_long = partial(self._add_mount, with_nodes, long=True)
        for _namespace, mount in everywhere.mounts(self._is_needed, too_long):
            self._add_mount(with_nodes, mount)
        self.unread = tuple(everywhere.unread.values())
        for swap in swap_devices(host):
            self._by_name.setdefault(self._name_of(swap), []).append(
                Reason("in_use_held", f"{swap} is swap")
            )
        # By device number: the path of a backing file may be one of another mount namespace, or
        # unmounted by now.
        for loop, (devs, problem) in loop_backings(host).items():
            for dev in devs:
                self._by_dev.setdefault(dev, []).append(Reason("in_use_held", f"behind {loop}"))
            if problem:
                said = f"whether {loop} is on it is unknown: {problem}"
                self._unknown.append(Reason("evidence_unreadable", said))

    def _is_needed(self, _number: str, device: str) -> bool:
        # What has no device of its own is known by its source or its root, which all have to be
        # read. Those of a block device all say the same.
        if device.startswith("0:") or len(self._by_dev.get(device, ())) < _MOST_MOUNTS:
            return True
        self._more[device] += 1
        return False

    def _name_of(self, source: str) -> str:
        """The kernel name of the device at a path; empty for a text that is no path in /dev."""
        if source.startswith("/dev/") and source not in self._kernel_names:
            self._kernel_names[source] = self._host.resolve(source).rpartition("/")[2]
        return self._kernel_names.get(source, "")

    def _add_mount(self, with_nodes: set[str], mount: Mount, long: bool = False) -> None:
        """Index a mount. ``with_nodes``: devices of the filesystems that have device nodes.

        ``long``: its line in mountinfo is too long to read the whole path.
        """
        # The kernel cuts nothing, so behind a path of any length its type and its source are whole.
        path = "a path that is too long to read," if long else untrusted.shown(mount.point, _SHOWN)
        where = f"{path} in the mount namespace of pid {mount.pid}"
        # No block device has the major number 0, and a tenant may have any number of such mounts.
        if not mount.device.startswith("0:"):
            self._note(self._by_dev, mount.device, f"mounted at {where}")
        # btrfs has an anonymous device number (see btrfs.py), so the source counts, too.
        if mount.fstype.partition(".")[0] not in _ANYBODYS and self._name_of(mount.source):
            self._note(self._by_name, self._name_of(mount.source), f"mounted at {where}")
        # A container gets a device as a bind mount of its node in the host's /dev.
        if mount.fstype == "devtmpfs" or mount.device in with_nodes:
            # The name of the node is at the end of its root.
            if long and is_shortened(mount.root):
                said = f"whether its device node is bound at {where} is unknown"
                self._unknown.append(Reason("evidence_unreadable", said))
            elif mount.root != "/":
                name = mount.root.rpartition("/")[2]
                self._note(self._by_name, name, f"its device node is bound at {where}")

    def _note(self, index: dict[str, list[Reason]], key: str, text: str) -> None:
        found = index.setdefault(key, [])
        if len(found) < _MOST_MOUNTS:
            found.append(Reason("in_use_mounted", text))
        else:
            self._more[key] += 1

    def of(self, devices: dict[str, str]) -> list[Reason]:
        """Why devices (kernel name -> major:minor) are in use, each reason once."""
        found = [
            use
            for name, dev in devices.items()
            for use in (*self._by_dev.get(dev, ()), *self._by_name.get(name, ()))
        ]
        more = sum(self._more[key] for key in (*devices, *devices.values()))
        if more:
            found.append(Reason("in_use_mounted", f"mounted at {more} more places"))
        return list(dict.fromkeys([*found, *self._unknown]))


def _filesystems_with_nodes(host: Host, everywhere: Namespaces) -> set[str]:
    """major:minor of each tmpfs that may have device nodes: the node's /dev, and those from which
    such a node is bound on the node.
    """
    # A CSI driver binds devices from the /dev of its container. A tenant's tmpfs, such as an
    # emptyDir in memory, may have folders with the names of devices, but only the kubelet binds
    # them. So may the node's /run: CRI-O makes a folder of each container there.
    found: set[str] = set()
    bound: list[Mount] = []

    def note(mount: Mount, long: bool = False) -> None:
        if mount.fstype != "tmpfs":
            return
        if mount.point == "/dev":
            found.add(mount.device)
        elif mount.root != "/" and _SUBPATHS not in mount.point:
            # What is at a path that is too long to read may be anything.
            found.update([mount.device] if long else [])
            bound.append(mount)

    first = [one for one in everywhere.found if one.pid == "1"]
    for _namespace, mount in everywhere.mounts(too_long=partial(note, long=True), among=first):
        note(mount)
    asked = [mount for mount in bound if mount.device not in found]
    replies = call_each(
        lambda mount: may_be_node(os.lstat(host.path(mount.point)), mount.device),
        asked,
        _ASKING,
        host.deadline.cap(_ASKING),
    )
    found |= {one.device for one, said in zip(asked, replies) if said.problem or said.value}
    return found


def may_be_node(found: os.stat_result, device: str) -> bool:
    """Whether what is at the point of a mount of ``device`` may be the node of a disk."""
    # Of another filesystem, it covers that mount.
    covered = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}" != device
    return covered or stat.S_ISBLK(found.st_mode)


def loop_backings(host: Host) -> dict[str, tuple[tuple[str, ...], str]]:
    """Loop device in use -> (major:minor of the devices below it, why these are not known)."""
    loops = [
        loop
        for loop in host.names("/sys/block")
        if host.exists(f"/sys/block/{loop}/loop/backing_file")
    ]
    # LOOP_GET_STATUS64 calls vfs_getattr on the backing file (drivers/block/loop.c), whose
    # filesystem may have a dead server.
    replies = call_each(
        lambda loop: loop_devices(host.path(f"/dev/{loop}")), loops, host.deadline.cap(_ASKING)
    )
    return {loop: (tuple(reply.value or ()), reply.problem) for loop, reply in zip(loops, replies)}


def loop_devices(loop: str) -> list[str]:
    """major:minor of the devices behind the loop device at this path; none if it is free.

    May block: call it in a child.
    """
    with fdinfo.opened(loop, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) as fd:
        try:
            info = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(_LOOP_INFO.size))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return []
            raise
    return parse_loop_info(info)


def parse_loop_info(info: bytes) -> list[str]:
    """major:minor of the device that the backing file is, and of the one that it is on, if any."""
    file_is_on, _inode, file_is = _LOOP_INFO.unpack(info)
    return [f"{os.major(dev)}:{os.minor(dev)}" for dev in (file_is, file_is_on) if dev]


@dataclass(frozen=True)
class Openers:
    """``by_dev``: by device, the processes that have it open. ``unread``: of which other processes
    and mount namespaces this is not known, and why.
    """

    by_dev: dict[str, list[Opener]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    def of(self, devs: Iterable[str]) -> list[Opener]:
        """Who has these devices open."""
        return [opener for dev in devs for opener in self.by_dev.get(dev, ())]

    @property
    def doubt(self) -> str:
        """A sentence about those that may have any device open; empty if there are none."""
        more = len(self.unread) - _MOST_NAMED
        others = f" and {more} more" if more > 0 else ""
        named = ", ".join(self.unread[:_MOST_NAMED])
        return f"whether {named}{others} has it open is not known" if self.unread else ""


def read_openers(host: Host, devs: set[str], unread: tuple[str, ...] = ()) -> Openers:
    """Who has these devices open. Raises StorageOpsError.

    ``devs``: major:minor, with a ``c`` in front for character devices. ``unread``: what else may
    have them.
    """
    proc = host.path("/proc")
    asked = processes.identify(host)
    # Each child keeps its own.
    remote_by_root: dict[tuple[str, int, str], set[int]] = {}
    replies = processes.ask_each(
        host, lambda one: open_devices(f"{proc}/{one.pid}", devs, remote_by_root), asked
    )
    by_dev: dict[str, list[Opener]] = {dev: [] for dev in devs}
    for process, reply in zip(asked, replies):
        if reply.problem:
            unread += (f"{process.describe()} ({reply.problem})",)
        for dev, opener in (reply.value or {}).items():
            by_dev[dev].append(Opener(process.pid, process.command, **opener))
    return Openers(by_dev, unread)


def open_devices(
    base: str, devs: set[str], remote_by_root: dict[tuple[str, int, str], set[int]]
) -> dict[str, dict[str, Any]]:
    """By device that a process has open, how. Call it in a child, as it may block.

    ``base``: its folder in /proc. ``remote_by_root``: what was found out about mounts.
    """

    def looking(thread: str) -> dict[str, dict[str, Any]]:
        found: dict[str, list[str]] = {}
        remote = cache(partial(_remote_mounts, thread, remote_by_root))
        # One by one, since a list of a million names would be long.
        with os.scandir(f"{thread}/fd") as entries:
            for fd in entries:
                dev = _device(thread, fd.name, remote)
                if dev in devs:
                    found.setdefault(dev, []).append(fd.name)
        return {
            dev: {
                "hung": _hung(thread),
                "udev": _udev(thread),
                "opens": len(opened),
                "writes": any(_writes(thread, fd) for fd in opened),
            }
            for dev, opened in found.items()
        }

    # One that has ended has nothing open.
    return of_living(base, looking, files=True) or {}


def _device(base: str, fd: str, remote: Callable[[], set[int]]) -> str:
    """major:minor of the device that a file descriptor is, with a ``c`` in front for a character
    device; empty for anything else.

    ``remote``: the mounts that may have a server.
    """
    try:
        target = target_of(f"{base}/fd/{fd}")
        # By the mount that the file is in, without stat(2).
        if not target.startswith("/") or fdinfo.read(f"{base}/fdinfo/{fd}").mount in remote():
            return ""
    except OSError as error:
        # Only one that was closed meanwhile is none: what cannot be read may be any.
        if error.errno in ENDED:
            return ""
        raise
    try:
        status = os.stat(f"{base}/fd/{fd}")
    except PermissionError:
        raise
    except OSError:
        # Closed meanwhile, or a file of a filesystem that was shut down.
        return ""
    kind = "" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else None
    return "" if kind is None else f"{kind}{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _writes(base: str, fd: str) -> bool:
    """Whether a file descriptor was opened for writing (proc_pid_fdinfo(5): flags are octal)."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # closed meanwhile
        return fdinfo.read(f"{base}/fdinfo/{fd}").flags & os.O_ACCMODE != os.O_RDONLY
    return False


def _remote_mounts(base: str, remote_by_root: dict[tuple[str, int, str], set[int]]) -> set[int]:
    """IDs of the mounts that a process sees whose filesystems have a server."""
    # mountinfo also depends on the process's root: what is below its mount is listed
    # (fs/proc_namespace.c show_mountinfo).
    root = f"{base}/root"
    view = (os.readlink(f"{base}/ns/mnt"), fdinfo.mount_at(root), target_of(root))
    if view not in remote_by_root:
        # Without a deadline, since this runs in a child that has one.
        lines = lines_of(f"{base}/mountinfo", Deadline(math.inf))
        remote: set[int] = set()

        # Of a path that is too long to read, the type is known, too.
        def note(mount: Mount) -> None:
            if mount.fstype.startswith(_REMOTE):
                remote.add(mount.id)

        try:
            for mount in each_mount(lines, base.rpartition("/")[2], too_long=note):
                note(mount)
        except OSError as error:
            # What has ended has nothing open; of any other the files are not known.
            if error.errno in ENDED:
                raise
            raise StorageOpsError(f"its mounts cannot be read: {error.strerror}") from error
        remote_by_root[view] = remote
    return remote_by_root[view]


def _udev(base: str) -> bool:
    """Whether a process is udev, or was started by it, as its control group shows."""
    cgroup = text_of(base)
    # A tenant's program may have any name, and a container may name control groups below its own.
    if pod_uid_of(cgroup):
        return False
    if os.readlink(f"{base}/exe").rpartition("/")[2] in _UDEV:
        return True
    return any(_UDEV_UNIT in line.split("/") for line in cgroup.split("\n"))


def _hung(base: str) -> bool:
    """Whether a thread of the process is in D state."""
    # The state follows the command in brackets (proc_pid_stat(5)); threads come and go meanwhile.
    for task in os.listdir(f"{base}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if _text(f"{base}/task/{task}/stat").rpartition(") ")[2].startswith("D"):
                return True
    return False


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read().rstrip("\n")


def exclusive_open(host: Host, name: str) -> list[Reason]:
    """Why a device cannot be claimed exclusively; empty if it can."""
    # O_EXCL on a block device without O_CREAT claims it (open(2)). The kernel checks for another
    # holder first (block/bdev.c bd_prepare_to_claim), so any error but EBUSY means that there is
    # none.

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
