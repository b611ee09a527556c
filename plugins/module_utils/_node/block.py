# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices as sysfs shows them: SCSI disks with their transport, and device-mapper devices.

Only sysfs is read here, which never waits for a device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import scsi
from .host import Host

# UUIDs of device-mapper devices name their owner: multipath-tools, libmultipath/devmapper.c
# UUID_PREFIX; kpartx puts partN- in front (kpartx/devmapper.c).
_MULTIPATH = "mpath-"
_PARTITION = re.compile(r"part\d+-mpath-")


@dataclass(frozen=True)
class Disk:
    """A SCSI disk.

    ``hctl``: its address HOST:CHANNEL:TARGET:LUN. ``names``: all names it had when it was found,
    spelled like ``scsi.Answer.wwids``; empty if the kernel does not show them. ``wwid``: the one of
    these by which multipath knows it, or the kernel's choice if there are none. ``transport``: its
    session or remote port, if any.
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
        """Whether commands reach it, according to the kernel."""
        # Both, since the kernel sets the one after the other while a session or port is being lost.
        return self.state == "running" and (self.transport is None or self.transport.up)

    @property
    def lun(self) -> int:
        """The LUN number, as the kernel writes it."""
        return int(self.hctl.rpartition(":")[2])


@dataclass(frozen=True)
class Transport:
    """The iSCSI session or Fibre Channel port through which a disk is reached.

    ``peer``: the portal or port that was asked for. ``address``: of an iSCSI session that is
    connected, the IP address at the other end.
    """

    kind: str
    name: str
    peer: str
    state: str
    # It may be another one after a redirection, and the disk is the same.
    address: str = field(default="", compare=False)

    @property
    def up(self) -> bool:
        """Whether it works, according to the kernel."""
        # drivers/scsi/scsi_transport_iscsi.c iscsi_session_state_names;
        # drivers/scsi/scsi_transport_fc.c fc_port_state_names.
        return self.state in ("LOGGED_IN", "Online")

    def describe(self) -> str:
        """``iSCSI session1 to 127.0.0.1:3260: LOGGED_IN``."""
        return f"{self.kind} {self.name} to {self.peer}: {self.state}"


@dataclass(frozen=True)
class DmDevice:
    """A device-mapper device.

    ``dm``: its kernel name (``dm-0``). ``name``: as its owner gave it (see ``unmangled``).
    ``slaves``: kernel names of the devices that it is made of; ``holders``: of those on top of it.
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
        """Whether it is a multipath map."""
        return self.uuid.startswith(_MULTIPATH)

    @property
    def is_mangled(self) -> bool:
        """Whether the kernel has it under another name, since this one has characters that
        libdevmapper does not allow in /dev.
        """
        # The whitelist of DM_STRING_MANGLING_AUTO (LVM2, libdm/libdm-common.c
        # _is_whitelisted_char).
        return re.fullmatch(r"[A-Za-z0-9#+\-.:=@_]*", self.name) is None

    @property
    def is_partition(self) -> bool:
        """Whether it is a partition of a multipath map."""
        return _PARTITION.match(self.uuid) is not None

    @property
    def wwid(self) -> str:
        """The WWID of a multipath map."""
        return self.uuid[len(_MULTIPATH) :]


def transports(host: Host) -> dict[str, Transport]:
    """iSCSI sessions and Fibre Channel target ports by their kernel name."""
    found = {}
    for session in host.names("/sys/class/iscsi_session"):
        # The portal that was logged in to; after a redirection "address" is another one. With its
        # port: a tenant may have a server at the array's address, as by a Service's externalIPs.
        connection = f"/sys/class/iscsi_connection/connection{session[7:]}:0"
        address = host.read(f"{connection}/persistent_address")
        address = f"[{address}]" if address and ":" in address else address
        port = host.read(f"{connection}/persistent_port")
        # Sessions whose portal is not known are not one array.
        peer = f"{address}:{port}" if address and port else address or f"unknown of {session}"
        found[session] = Transport(
            "iSCSI",
            session,
            peer,
            host.read(f"/sys/class/iscsi_session/{session}/state") or "unknown",
            host.read(f"{connection}/address") or "",
        )
    for port in host.names("/sys/class/fc_remote_ports"):
        base = f"/sys/class/fc_remote_ports/{port}"
        # Initiators and switches of the fabric have remote ports, too.
        if "FCP Target" in (host.read(f"{base}/roles") or ""):
            found[port] = Transport(
                "FC",
                port,
                host.read(f"{base}/port_name") or "",
                host.read(f"{base}/port_state") or "unknown",
            )
    return found


def disks(host: Host, reached: dict[str, Transport]) -> dict[str, Disk]:
    """Every SCSI disk that is not removable, or is reached through a session or a remote port, by
    its kernel name.
    """
    found = {}
    for hctl in host.names("/sys/class/scsi_disk"):
        device = f"/sys/class/scsi_disk/{hctl}/device"
        for name in host.names(f"{device}/block"):
            block = f"{device}/block/{name}"
            # The device's real path goes through its session or remote port.
            parts = host.resolve(device).split("/")
            transport = next((reached[part] for part in parts if part in reached), None)
            # Card readers and virtual media of a BMC are SCSI disks, too, and no array's. What a
            # target says of its LUN is for whoever runs it to decide (RMB of SPC-4, standard
            # INQUIRY data).
            if transport is None and host.read(f"{block}/removable") == "1":
                continue
            names = _names(host, device)
            found[name] = Disk(
                name,
                host.read(f"{block}/dev") or "",
                hctl,
                host.read(f"{device}/state") or "unknown",
                scsi.wwid_of(names) or scsi.wwid_from_sysfs(host.read(f"{device}/wwid") or ""),
                # INQUIRY fields are padded with blanks (SPC-4, standard INQUIRY data).
                (host.read(f"{device}/vendor") or "").strip(),
                (host.read(f"{device}/model") or "").strip(),
                tuple(host.names(f"{block}/holders")),
                transport,
                names,
            )
    return found


def _names(host: Host, device: str) -> tuple[str, ...]:
    """The names in the VPD page 0x83 that the kernel read when it found or rescanned the disk."""
    # drivers/scsi/scsi_sysfs.c vpd_pg83. It is binary, and not there if the disk has no such page.
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
                # Unreadable counts as suspended: such a map must not be touched.
                host.read(f"{base}/dm/suspended") != "0",
                tuple(host.names(f"{base}/slaves")),
                tuple(host.names(f"{base}/holders")),
            )
    return found


def unmangled(name: str) -> str:
    """The original of a name that libdevmapper has mangled, with characters as ``\\x20``."""
    # mangle_string writes byte by byte (LVM2, libdm/libdm-common.c; dmsetup(8), --manglename).
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
        # Only partitions have this file; queue, holders and slaves are folders there as well.
        if host.exists(f"{base}/{part}/partition")
    }


def disk_devices(host: Host, disk: Disk) -> dict[str, str]:
    """Name -> major:minor of all that a disk can be opened as: itself, its partitions, and its
    generic device, which has a ``c`` in front of the number.
    """
    generic = f"/sys/class/scsi_device/{disk.hctl}/device/scsi_generic"
    # A program can send SCSI commands, writes included, through /dev/sgN (sg(4)).
    characters = {name: f"c{host.read(f'{generic}/{name}/dev')}" for name in host.names(generic)}
    return {disk.name: disk.dev, **partitions(host, disk.name), **characters}
