# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is below a filesystem that turned read-only: its block device, the paths to it, and what the
kernel has logged about both.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from .._core.bounded import Reply, call_each, owners_of
from .._core.codes import Reason
from .._core.errors import StorageOpsError
from .._node import block, btrfs, fdinfo, multipath, scsi
from .._node.host import Host
from .._node.multipath import Daemon
from .._node.probes import Device, ask_devices

# Bytes. A direct read must be whole blocks of the device (open(2), O_DIRECT); this is, for all
# sizes.
_READ_BYTES = 4096
# Bytes. No record of /dev/kmsg is longer (CONSOLE_EXT_LOG_MAX of include/linux/printk.h; later
# kernels have 2048, PRINTK_MESSAGE_MAX of kernel/printk/internal.h).
_RECORD_BYTES = 8192
_KEPT_LINES = 5
_COUNTS = ("errors_count", "first_error_time", "last_error_time")
# fs/btrfs/messages.c; since Linux 5.18 with the filesystem's state. It names one of its devices.
_BTRFS = r"\(device (?P<name>[^\s():]+)(?:: state \w+)?\)"
_EXT4 = r"EXT4-fs \((?P<name>[^\s()]+)\): "
_XFS = r"XFS \((?P<name>[^\s()]+)\): "

# By the filesystem's type, the kernel's whole messages when it gives one up, from Linux 4.4 to 6.18
# (fs/ext4/super.c ext4_handle_error, fs/ext4/ioctl.c ext4_force_shutdown; fs/jbd2/journal.c
# jbd2_journal_abort; fs/xfs/xfs_fsops.c xfs_do_force_shutdown, fs/xfs/xfs_log.c
# xlog_force_shutdown; fs/btrfs/super.c btrfs_set_sb_rdonly, fs/btrfs/messages.c
# __btrfs_handle_fs_error).
# Whole, since a tenant's text may be at both ends of a message: in front the name of a process, of
# up to 15 characters (arch/x86/mm/fault.c show_signal_msg, mm/oom_kill.c dump_header), or the
# prefix of a firewall's rule, before "IN=" (net/netfilter/nf_log_syslog.c); at the end the name of
# its program (mm/memory.c print_vma_addr).
_ERRORS = {
    "ext": (
        re.compile(
            rf"{_EXT4}(?:Remounting filesystem read-only|shut down requested \(\d+\))", re.ASCII
        ),
        re.compile(r"Aborting journal on device (?P<name>\S+)-8\.", re.ASCII),
    ),
    "xfs": (
        re.compile(
            rf"{_XFS}(?:User initiated shutdown|Corruption of (?:in-memory data|on-disk metadata)"
            r"|(?:Log |Metadata )?I/O Error|Block device removal|All device paths lost)"
            r"(?: \(0x[0-9a-f]{1,16}\))?(?: received| [Dd]etected)?"
            r"(?: at [^()=]{1,200} \([^()=]{1,200}:\d{1,9}\))?\."
            r"(?: {1,2}Shutting down filesystem\.?)?",
            re.ASCII,
        ),
        re.compile(
            rf"{_XFS}Filesystem has been shut down due to log error \(0x[0-9a-f]{{1,16}}\)\.",
            re.ASCII,
        ),
    ),
    "btrfs": (
        re.compile(rf"BTRFS \w+ {_BTRFS}: forced readonly", re.ASCII),
        re.compile(rf"BTRFS:? error {_BTRFS} in \w+:\d+: errno=-[^=]+", re.ASCII),
    ),
}
# The messages of a mount, remount or unmount: what was logged before is not about the current
# mount. A btrfs that gave up cannot be remounted (fs/btrfs/super.c btrfs_remount). What it logs
# when it is mounted depends on the kernel (fs/btrfs/disk-io.c open_ctree).
_MOUNTS = (
    re.compile(
        rf"{_EXT4}(?:mounted filesystem|unmounting filesystem|re-mounted)[^=]*"
        r"(?:Opts: \S*(?: Quota mode: \w+\.)?)?",
        re.ASCII,
    ),
    re.compile(rf"{_XFS}(?:Mounting V\d|Unmounting) [Ff]ilesystem[^=]*", re.ASCII),
    re.compile(
        rf"BTRFS \w+ {_BTRFS}: (?:(?:first mount|last unmount) of filesystem \S+"
        r"|has skinny extents|using \S+ \(\S+\) checksum algorithm)",
        re.ASCII,
    ),
)


# Filesystem (major:minor) -> the kernel's names of its block devices.
Names = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class Backing:
    """The block device of a filesystem; a btrfs may have several.

    ``name``: the kernel's names, empty if the device is gone. ``read_only``: the device itself is.
    ``errors``: counters of ext4 or btrfs, by name. ``paths``: each with its state. ``obstacles``:
    why the device cannot be used now.
    """

    name: str
    read_only: bool = False
    errors: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    obstacles: tuple[Reason, ...] = ()


def read_names(host: Host, points: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Filesystem (major:minor) -> the kernel's names of its block devices.

    Empty if they are gone, or if it cannot be told which they are.
    ``points``: filesystem -> a mount point at which it can be asked; empty if there is none.
    """
    askable = {device: point for device, point in points.items() if point and _is_anonymous(device)}
    told = btrfs.read_devices(host, askable)
    named = {device: _named(host, device) for device in points if not _is_anonymous(device)}
    return {device: told.get(device, named.get(device, ())) for device in points}


def _is_anonymous(device: str) -> bool:
    """Whether a filesystem has no device number, since it is on several block devices or on none
    (fs/super.c get_anon_bdev).
    """
    return device.startswith("0:")


def _named(host: Host, device: str) -> tuple[str, ...]:
    # A removed device leaves its number in mountinfo, but not here.
    path = f"/sys/dev/block/{device}"
    return (host.resolve(path).rpartition("/")[2],) if host.exists(path) else ()


def read_logs(
    host: Host,
    names: Names,
    types: Mapping[str, str],
    points: Mapping[str, str],
    shown: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """Filesystem -> the lines in which the kernel gave it up, newest last; those that it gave up.

    ``names``: filesystem -> the kernel's names of its block devices. ``types``: what mountinfo
    calls it. ``points``: as of read_names. ``shown``: those that show an error, or are read-only.
    """
    log = _kernel_log(host) if names else []
    said = {device: tuple(since_mounted(log, types[device], *names[device])) for device in names}
    # The log only explains: by itself it proves nothing.
    silent = [device for device, lines in said.items() if lines and device not in shown]
    proven = {*shown, *_given_up(host, silent, names, points)}
    return {device: lines for device, lines in said.items() if lines and device in proven}


def _given_up(
    host: Host, devices: Iterable[str], names: Names, points: Mapping[str, str]
) -> list[str]:
    """Of filesystems that are not read-only and can be listed, those that were given up all the
    same.
    """
    # From "ext4: don't set SB_RDONLY after filesystem errors" (6.12, and Debian 12's 6.1) to 6.15,
    # an abort shows only in ext4's count of errors.
    counted = [
        device
        for device in devices
        if any(
            _counted_errors(host, name).get("errors_count", "0") != "0" for name in names[device]
        )
    ]
    # One that was shut down refuses this at once (fs/ext4/xattr.c ext4_xattr_get).
    asked = [device for device in devices if points[device]]
    paths = [host.path(points[device]) for device in asked]
    replies = call_each(_fails, paths, host.command_timeout, host.deadline.remaining())
    return counted + [device for device, reply in zip(asked, replies) if reply.value]


def _fails(path: str) -> bool:
    """Whether a folder's extended attributes cannot be read for an I/O error. May block."""
    try:
        os.getxattr(path, "trusted.storage_ops", follow_symlinks=False)
    except OSError as error:
        return error.errno == errno.EIO
    return False


def read_backings(
    host: Host, names: Names, timeout: float, owners: Mapping[str, Hashable]
) -> dict[str, Backing]:
    """Filesystem -> its block devices, and whether they can be read and written.

    ``names``: as of read_logs. ``timeout``: seconds for a direct read of each. ``owners``: whose
    each filesystem is, in turns of whom they are read.
    """
    if not names:
        return {}
    reached = block.transports(host)
    # Read once for all filesystems, since many of them share the same paths.
    disks, dm = block.disks(host, reached), block.dm_devices(host)
    daemon = (
        multipath.ask_daemon(host, dm)
        if any(device.is_multipath for device in dm.values())
        else Daemon()
    )

    def look(name: str) -> Backing:
        # From the filesystem's device down to the disks, through LVM, dm-crypt and the like.
        paths, obstacles = paths_below(host, name, disks, dm, daemon)
        return Backing(
            name,
            # Set by the kernel, or by blockdev --setro; the array's own protection shows only in
            # MODE SENSE.
            host.read(f"/sys/class/block/{name}/ro") == "1",
            _counted_errors(host, name),
            tuple(paths),
            tuple(obstacles),
        )

    found = {device: [look(name) for name in below] for device, below in names.items()}
    # A read from a device that is known not to answer would only hang.
    whose = owners_of(
        (one.name, owners.get(device, device))
        for device, backings in found.items()
        for one in backings
        if not one.obstacles
    )
    asked = [
        Device(name, host.read(f"/sys/class/block/{name}/dev") or "", owner)
        for name, owner in whose.items()
    ]
    bad = unusable(host, asked, timeout)
    return {
        device: joined(
            device, [replace(one, obstacles=one.obstacles or bad[one.name]) for one in backings]
        )
        for device, backings in found.items()
    }


def joined(device: str, found: list[Backing]) -> Backing:
    """The block devices of one filesystem together: each of them must be usable."""
    if not found:
        gone = Reason("device_unusable", f"its device {device} is gone from the kernel")
        unknown = Reason(
            "device_unusable",
            f"which block devices it is on cannot be told: {device} is no number of a device",
        )
        # Nothing to read from, so it can neither be proven nor repaired.
        return Backing("", obstacles=(unknown if _is_anonymous(device) else gone,))
    return Backing(
        " ".join(backing.name for backing in found),
        any(backing.read_only for backing in found),
        # btrfs counts for all its devices together.
        found[0].errors,
        tuple(path for backing in found for path in backing.paths),
        tuple(obstacle for backing in found for obstacle in backing.obstacles),
    )


def _counted_errors(host: Host, name: str) -> dict[str, str]:
    read = {key: host.read(f"/sys/fs/ext4/{name}/{key}") for key in _COUNTS}
    # The folder exists only for ext4 filesystems that are mounted.
    counted = {key: value for key, value in read.items() if value is not None}
    return counted or btrfs.counted_errors(host, name)


def paths_below(
    host: Host,
    name: str,
    disks: dict[str, block.Disk],
    dm: dict[str, block.DmDevice],
    daemon: Daemon,
) -> tuple[list[str], list[Reason]]:
    """(every path from a block device down to its disks, with its state; why it cannot be relied
    on).
    """
    paths: list[str] = []
    bad: list[Reason] = []
    waiting, seen = [name], set()
    while waiting:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        # A partition has no "slaves"; its disk is the folder above it in sysfs.
        if host.exists(f"/sys/class/block/{current}/partition"):
            waiting.append(host.resolve(f"/sys/class/block/{current}").split("/")[-2])
        # A node of the tree is a device-mapper device, a disk, a partition, or none of these (md,
        # loop).
        device, disk = dm.get(current), disks.get(current)
        if device is not None and device.is_multipath:
            _look_at_map(device, daemon, paths, bad)
        if device is not None and device.suspended:
            changing = f"{device.name} is suspended, so another process is changing it"
            bad.append(Reason("device_changing", changing))
        if disk is not None:
            _look_at_disk(disk, paths, bad)
        waiting += host.names(f"/sys/class/block/{current}/slaves")
    return paths, bad


def _look_at_map(
    device: block.DmDevice, daemon: Daemon, paths: list[str], bad: list[Reason]
) -> None:
    """Add the paths of a multipath map, and what is wrong with it."""
    said = daemon.paths.get(device.wwid, {})
    for path in device.slaves:
        known = said.get(path, "not known to multipathd")
        paths.append(f"{device.name}: {path} {known}")
        # "ghost" is a passive path that is up (multipath-tools, libmultipath/checkers.h
        # PATH_GHOST).
        if not known.endswith(("active ready", "active ghost")):
            bad.append(Reason("transport_outage", f"a path is down: {paths[-1]}"))
    if not device.slaves:
        bad.append(Reason("transport_outage", f"{device.name} has no path left"))
    if daemon.problem:
        bad.append(Reason("multipathd_unusable", daemon.problem))


def _look_at_disk(disk: block.Disk, paths: list[str], bad: list[Reason]) -> None:
    """Add a disk with its state, and whether it can be reached."""
    state = f"{disk.name}: {disk.state}" + (
        f", {disk.transport.describe()}" if disk.transport else ""
    )
    paths.append(state)
    if disk.state != "running" or (disk.transport is not None and not disk.transport.up):
        bad.append(Reason("transport_outage", f"a path is down: {state}"))


def unusable(
    host: Host, devices: Collection[Device], timeout: float
) -> dict[str, tuple[Reason, ...]]:
    """By name of a device, why it cannot be read or written; empty if nothing says so."""

    def reading(name: str) -> str:
        flags = os.O_RDONLY | os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC
        with fdinfo.opened(host.path(f"/dev/{name}"), flags) as descriptor:
            try:
                # A mapping is aligned to a page, as the buffer of a direct read has to be.
                with mmap.mmap(-1, _READ_BYTES) as page:
                    # An earlier failed write may be reported to the first reader, so only the
                    # second read counts.
                    with contextlib.suppress(OSError):
                        os.preadv(descriptor, [page], 0)
                    read = os.preadv(descriptor, [page], 0)
            except OSError as error:
                return str(error.strerror)
            return "" if read == _READ_BYTES else "it ends too early"

    def protected(name: str) -> bool | None:
        return scsi.write_protected(host.path(f"/dev/{name}"), timeout)

    read = ask_devices(host, reading, list(devices), timeout, host.command_timeout)
    readable = [one for one in devices if not (read[one.name].problem or read[one.name].value)]
    written = ask_devices(host, protected, readable, timeout + 1, host.command_timeout)
    return {name: _why_unusable(name, said, written.get(name)) for name, said in read.items()}


def _why_unusable(name: str, read: Reply, written: Reply | None) -> tuple[Reason, ...]:
    if written is None:
        said = f"{name} cannot be read: {read.problem or read.value}"
        return (Reason("device_unusable", said),)
    if written.value:
        # The kernel's own flag is not enough, see write_protected() in _node/scsi.py.
        said = f"{name} cannot be written: the array has it write-protected. Lift that first"
        return (Reason("device_read_only", said),)
    unread = f"{name} cannot be written: {written.problem}"
    return (Reason("device_unusable", unread),) if written.problem else ()


def _kernel_log(host: Host) -> list[str]:
    """The kernel's messages that are still in its buffer, oldest first, each with the seconds since
    boot.
    """

    def reading() -> list[str]:
        lines: list[str] = []
        # Each reader of /dev/kmsg gets all records that are still in the buffer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        with fdinfo.opened(host.path("/dev/kmsg"), flags) as log:
            while True:
                try:
                    record = os.read(log, _RECORD_BYTES).decode("utf-8", "replace")
                except BrokenPipeError:
                    # EPIPE: the next record was overwritten meanwhile
                    # (Documentation/ABI/testing/dev-kmsg).
                    continue
                except BlockingIOError:
                    return lines
                lines += kernel_line(record)

    reply = host.bounded(reading)
    if reply.problem:
        raise StorageOpsError(f"the kernel's log cannot be read: {reply.problem}")
    said: list[str] = reply.value
    return said


def kernel_line(record: str) -> list[str]:
    """The line of a record of /dev/kmsg with the seconds since boot; none if a process wrote it."""
    # "priority,number,microseconds,flags;message", then lines of keys that begin with a blank
    # (Documentation/ABI/testing/dev-kmsg). The facility is above the three lowest bits of the
    # priority, and 0 for the kernel; a process that claims 0 gets 1 (kernel/printk/printk.c
    # devkmsg_write).
    head, _semicolon, message = record.partition("\n")[0].partition(";")
    with contextlib.suppress(IndexError, ValueError):
        priority, _number, microseconds, flags = head.split(",")[:4]
        # A fragment ("c", once also "+") may begin with what was inserted there, as the name of a
        # control group (kernel/cgroup/cpuset.c cpuset_print_current_mems_allowed).
        if int(priority) >> 3 == 0 and flags == "-":
            return [f"[{int(microseconds) / 1e6:.1f}] {message}"]
    return []


def since_mounted(log: Iterable[str], fstype: str, *names: str) -> list[str]:
    """The last lines in which the kernel gave up a filesystem of this type on these devices, since
    it was mounted.
    """
    # The driver of ext4 serves ext2 and ext3, too.
    errors = _ERRORS.get(fstype.rstrip("234"), ())
    found: list[str] = []
    for line in log:
        # The device names of removed disks are given to new ones, so older lines may be about
        # others.
        if _is_of(_MOUNTS, line, names):
            found = []
        elif _is_of(errors, line, names):
            found.append(line)
    return found[-_KEPT_LINES:]


def _is_of(forms: Iterable[re.Pattern[str]], line: str, names: Iterable[str]) -> bool:
    message = line.partition("] ")[2]
    matches = (form.fullmatch(message) for form in forms)
    return any(match["name"] in names for match in matches if match)
