# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loop devices: on which filesystem the backing file of each one is (loop(4))."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Hashable, Mapping

from .._core.bounded import call_each, owners_of
from . import fdinfo
from .host import Host

# LOOP_MAJOR (include/uapi/linux/major.h). Partitions of loop devices have another major number.
MAJOR = 7
# include/uapi/linux/loop.h: struct loop_info64 begins with lo_device, the device number of the
# backing file's filesystem.
_LOOP_GET_STATUS64 = 0x4C05
_INFO_BYTES = 232
# How many loop devices on each other's files are followed. The kernel refuses circles only
# (drivers/block/loop.c loop_validate_file).
_DEPTH = 8


def is_loop(device: str) -> bool:
    """Whether a device, as major:minor, is a loop device."""
    return device.startswith(f"{MAJOR}:")


def read_backing(host: Host, devices: Mapping[str, Hashable]) -> dict[str, str]:
    """Loop device -> filesystem of its backing file, both as major:minor, at any depth.

    ``devices``: with whose turns each uses up. What cannot be told is left out.
    """
    # The kernel is asked about the open file: the path in sysfs may be another file's by now. That
    # may block, if the filesystem has a server that does not answer.
    found: dict[str, str] = {}
    asked: set[str] = set()
    wanted = dict(devices)
    for _depth in range(_DEPTH):
        wanted = {
            device: owner
            for device, owner in wanted.items()
            if is_loop(device) and device not in asked
        }
        if not wanted:
            break
        asked.update(wanted)
        order = sorted(wanted)
        paths = [host.path(_node_of(host, device)) for device in order]
        questions = list(zip(order, paths))
        # In turns, since a tenant may have any number of loop devices on files of such a server.
        replies = call_each(
            _ask,
            questions,
            host.command_timeout,
            host.deadline.share(2 * host.command_timeout),
            owners=[wanted[device] for device in order],
        )
        answers = {
            device: reply.value for device, reply in zip(order, replies) if not reply.problem
        }
        found.update({device: below for device, below in answers.items() if below})
        wanted = owners_of((below, wanted[device]) for device, below in answers.items())
    return found


def _node_of(host: Host, device: str) -> str:
    """The device file of a block device."""
    return f"/dev/{host.resolve(f'/sys/dev/block/{device}').rpartition('/')[2]}"


def _ask(question: tuple[str, str]) -> str:
    """The filesystem below; empty if this is now another device, or has no file. May block."""
    device, path = question
    try:
        with fdinfo.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW) as descriptor:
            status = os.fstat(descriptor)
            number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
            if not stat.S_ISBLK(status.st_mode) or number != device:
                return ""
            return filesystem_of(fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_INFO_BYTES)))
    except OSError:
        return ""


def filesystem_of(info: bytes) -> str:
    """major:minor of the filesystem in a struct loop_info64."""
    (number,) = struct.unpack_from("=Q", info)
    return f"{os.major(number)}:{os.minor(number)}"
