# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The block devices of a btrfs filesystem, which its device number does not tell."""

# A btrfs may have several devices, so the kernel gives its superblock an anonymous number, 0:N
# (fs/btrfs/super.c btrfs_set_super, set_anon_super). The source in mountinfo is the name of one
# device at mount time, and may be another device's by now.

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Mapping

from .._core.bounded import call_each
from . import fdinfo
from .host import Host

# include/uapi/linux/btrfs.h: BTRFS_IOC_FS_INFO is _IOR(0x94, 31, struct btrfs_ioctl_fs_info_args).
# The structure begins with max_id and num_devices, of 8 bytes each; then comes fsid.
_FS_INFO = 0x8400941F
_INFO_BYTES = 1024
_FSID = slice(16, 32)
_SYSFS = "/sys/fs/btrfs"


def read_devices(host: Host, points: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Filesystem (major:minor) -> kernel names of its block devices.

    ``points``: filesystem -> a mount point at which it is asked. One that does not answer, or is no
    btrfs, is left out.
    """
    asked = list(points.items())
    paths = [host.path(point) for _device, point in asked]
    replies = call_each(_ask, paths, host.command_timeout, host.deadline.remaining())
    fsids = {device: reply.value for (device, _point), reply in zip(asked, replies) if reply.value}
    return {device: _members(host, fsid) for device, fsid in fsids.items()}


def _ask(path: str) -> str:
    """The fsid of the filesystem that is mounted there; empty if it is no btrfs. May block."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with fdinfo.opened(path, flags) as descriptor:
            return fsid_of(fcntl.ioctl(descriptor, _FS_INFO, bytes(_INFO_BYTES)))
    except OSError:
        return ""


def fsid_of(info: bytes) -> str:
    """The fsid in a struct btrfs_ioctl_fs_info_args, as sysfs spells it."""
    return str(uuid.UUID(bytes=info[_FSID]))


def _members(host: Host, fsid: str) -> tuple[str, ...]:
    """Kernel names of the devices of a filesystem that still exist."""
    # sysfs has a link to each device (fs/btrfs/sysfs.c btrfs_sysfs_add_device), which dangles once
    # the device is gone.
    folder = f"{_SYSFS}/{fsid}/devices"
    names = host.names(folder)
    return tuple(name for name in names if os.path.exists(host.path(f"{folder}/{name}")))


def counted_errors(host: Host, name: str) -> dict[str, str]:
    """The errors of all devices of the filesystem, by kind; empty if the device is in none."""
    # Since Linux 5.14 (fs/btrfs/sysfs.c btrfs_devinfo_error_stats_show). The counts are kept on
    # disk until "btrfs device stats --reset", so they do not tell when an error was.
    for fsid in host.names(_SYSFS):
        if name in host.names(f"{_SYSFS}/{fsid}/devices"):
            base = f"{_SYSFS}/{fsid}/devinfo"
            texts = [host.read(f"{base}/{number}/error_stats") or "" for number in host.names(base)]
            return _sums(texts)
    return {}


def _sums(texts: list[str]) -> dict[str, str]:
    sums: dict[str, int] = {}
    for line in "\n".join(texts).splitlines():
        kind, _blank, number = line.partition(" ")
        if number.isdigit():
            sums[kind] = sums.get(kind, 0) + int(number)
    return {kind: str(total) for kind, total in sums.items()}
