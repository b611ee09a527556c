# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""Block devices as sysfs shows them: SCSI disks with their transport, device-mapper devices, and
the tree of holders.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import scsi
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

_MULTIPATH = "mpath-"
_PARTITION = re.compile(r"part\d+-mpath-")


@dataclass(frozen=True)
class Disk:
    """A SCSI disk.

    ``wwid``: what sysfs remembers, spelled as multipath spells it. ``names``: all names it had when
    it was found, as those of ``scsi.Answer.wwids``; empty where the kernel does not tell.
    ``transport``: session or remote port.
    """

    name: str
    dev: str
    hctl: str
    state: str
    wwid: str
    vendor: str
    model: str
    holders: tuple[str, ...]
    transport: Transport | None
    names: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """Host, channel and target: ``6:0:0``."""
        return self.hctl.rpartition(":")[0]

    @property
    def reachable(self) -> bool:
        """Commands get to it, by the kernel's own word."""
        return self.state == "running" and (self.transport is None or self.transport.up)

    @property
    def lun(self) -> int:
        """LUN, as the kernel numbers it."""
        return int(self.hctl.rpartition(":")[2])


@dataclass(frozen=True)
class Transport:
    """What a disk is reached through. ``up``: it works, by the kernel's own word."""

    kind: str
    name: str
    peer: str
    state: str

    @property
    def up(self) -> bool:
        """Logged in, or online."""
        return self.state in ("LOGGED_IN", "Online")

    def describe(self) -> str:
        """``iSCSI session1 to 127.0.0.1: LOGGED_IN``."""
        return f"{self.kind} {self.name} to {self.peer}: {self.state}"


@dataclass(frozen=True)
class DmDevice:
    """A device-mapper device. ``slaves`` are what it is made of, ``holders`` what is made of it
    (kernel names).

    ``name``: as its owner gave it, and as dmsetup shows it (``unmangled``).
    """

    dm: str
    dev: str
    name: str
    uuid: str
    suspended: bool
    slaves: tuple[str, ...]
    holders: tuple[str, ...]

    @property
    def is_multipath(self) -> bool:
        """It is a multipath map."""
        return self.uuid.startswith(_MULTIPATH)

    @property
    def is_mangled(self) -> bool:
        """The kernel knows it by another name, since libdevmapper wants only these characters in
        /dev (DM_STRING_MANGLING_AUTO).
        """
        return re.fullmatch(r"[A-Za-z0-9#+\-.:=@_]*", self.name) is None

    @property
    def is_partition(self) -> bool:
        """It is a partition of a multipath map."""
        return _PARTITION.match(self.uuid) is not None

    @property
    def wwid(self) -> str:
        """WWID of a multipath map."""
        return self.uuid[len(_MULTIPATH) :]


def transports(host: Host) -> dict[str, Transport]:
    """iSCSI sessions and Fibre Channel target ports by their kernel name."""
    found = {}
    for session in host.names("/sys/class/iscsi_session"):
        peer = (
            host.read(f"/sys/class/iscsi_connection/connection{session[7:]}:0/persistent_address")
            or "unknown portal"
        )
        found[session] = Transport(
            "iSCSI",
            session,
            peer,
            host.read(f"/sys/class/iscsi_session/{session}/state") or "unknown",
        )
    for port in host.names("/sys/class/fc_remote_ports"):
        base = f"/sys/class/fc_remote_ports/{port}"
        if "FCP Target" in (host.read(f"{base}/roles") or ""):
            found[port] = Transport(
                "FC",
                port,
                host.read(f"{base}/port_name") or "",
                host.read(f"{base}/port_state") or "unknown",
            )
    return found


def disks(host: Host, reached: dict[str, Transport]) -> dict[str, Disk]:
    """Every SCSI disk that is not removable, by its kernel name."""
    found = {}
    for hctl in host.names("/sys/class/scsi_disk"):
        device = f"/sys/class/scsi_disk/{hctl}/device"
        for name in host.names(f"{device}/block"):
            block = f"{device}/block/{name}"
            if host.read(f"{block}/removable") == "1":
                continue
            found[name] = Disk(
                name,
                host.read(f"{block}/dev") or "",
                hctl,
                host.read(f"{device}/state") or "unknown",
                scsi.wwid_from_sysfs(host.read(f"{device}/wwid") or ""),
                (host.read(f"{device}/vendor") or "").strip(),
                (host.read(f"{device}/model") or "").strip(),
                tuple(host.names(f"{block}/holders")),
                next(
                    (reached[part] for part in host.resolve(device).split("/") if part in reached),
                    None,
                ),
                _names(host, device),
            )
    return found


def _names(host: Host, device: str) -> tuple[str, ...]:
    """The VPD page 0x83 that the kernel keeps from when it found the disk, or was told to look
    again.
    """
    page = host.read_bytes(f"{device}/vpd_pg83")
    try:
        return scsi.parse_device_identification(page) if page else ()
    except ValueError:
        return ()


def dm_devices(host: Host) -> dict[str, DmDevice]:
    """Every device-mapper device, by its kernel name."""
    found = {}
    for dm in host.names("/sys/block"):
        base = f"/sys/block/{dm}"
        if dm.startswith("dm-"):
            found[dm] = DmDevice(
                dm,
                host.read(f"{base}/dev") or "",
                unmangled(host.read(f"{base}/dm/name") or ""),
                host.read(f"{base}/dm/uuid") or "",
                host.read(f"{base}/dm/suspended") != "0",
                tuple(host.names(f"{base}/slaves")),
                tuple(host.names(f"{base}/holders")),
            )
    return found


def unmangled(name: str) -> str:
    """The name behind one that libdevmapper has mangled: what it does not want in /dev it writes as
    ``\\x20``, byte by byte.

    (dm_mangle_string in libdm-common.c; dmsetup(8), --manglename.)
    """
    raw = re.sub(
        rb"\\x([0-9a-fA-F]{2})", lambda found: bytes.fromhex(found[1].decode()), name.encode()
    )
    return raw.decode("utf-8", "replace")


def partitions(host: Host, name: str) -> dict[str, str]:
    """Kernel partitions of a disk: name -> major:minor."""
    base = f"/sys/class/block/{name}"
    return {
        part: host.read(f"{base}/{part}/dev") or ""
        for part in host.names(base)
        if host.exists(f"{base}/{part}/partition")
    }


def disk_devices(host: Host, disk: Disk) -> dict[str, str]:
    """Everything a disk can be opened as: itself, its partitions, and (with a ``c``) the generic
    device; name -> major:minor.
    """
    generic = f"/sys/class/scsi_device/{disk.hctl}/device/scsi_generic"
    characters = {name: f"c{host.read(f'{generic}/{name}/dev')}" for name in host.names(generic)}
    return {disk.name: disk.dev, **partitions(host, disk.name), **characters}
