# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which devices a map or a disk consists of, and who has them open. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._core.codes import Reason
from .._node import usage
from .._node.block import Disk, DmDevice
from .._node.probes import Device
from .arrays import server_of
from .model import Observation


def opened(openers: usage.Openers, tree: dict[str, str]) -> list[Reason]:
    """Who has a disk open, or may have. udev does not count, since it only probes and closes it
    again.
    """
    found = [
        Reason("in_use_open", f"opened by {opener.describe()}")
        for opener in openers.of(tree.values())
        if not opener.udev
    ]
    # The kernel tells of no SCSI disk how often it is open.
    if openers.doubt:
        found.append(Reason("evidence_unreadable", openers.doubt))
    return found


def device_of(disk: Disk) -> Device:
    """As a question to it names it."""
    return Device(disk.name, disk.dev, server_of(disk))


def tree_of(observation: Observation, device: DmDevice) -> dict[str, str]:
    """Kernel name -> major:minor, of a map and the partition maps on it."""
    parts = [
        observation.dm[name]
        for name in device.holders
        if name in observation.dm and observation.dm[name].is_partition
    ]
    return {member.dm: member.dev for member in (device, *parts)}


def open_members(
    observation: Observation, maps: Sequence[DmDevice], counts: Mapping[str, int]
) -> list[Device]:
    """The devices of maps that something has open. One with holders is claimed by these.

    ``counts``: by major:minor, how often each is open.
    """
    return [
        Device(dm, dev, _servers(observation, device))
        for device in maps
        for dm, dev in tree_of(observation, device).items()
        if counts.get(dev, 0) and not observation.dm[dm].holders
    ]


def _servers(observation: Observation, device: DmDevice) -> tuple[str, ...]:
    """Whose turns a question to a map uses up: the servers of its paths."""
    paths = (observation.disks.get(name) for name in device.slaves)
    return tuple(sorted({server_of(path) for path in paths if path is not None}))
