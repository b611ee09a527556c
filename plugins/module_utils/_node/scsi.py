# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a SCSI disk itself: INQUIRY, VPD page 0x83, TEST UNIT READY and REPORT LUNS, by SG_IO.

sysfs, udev and multipathd remember what a disk said when it was found. After its LUN was unmapped,
or the number given to another volume, only the disk itself tells.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from . import fdinfo

# include/scsi/sg.h: the ioctl, and struct sg_io_hdr with its directions of data. "@": with the
# alignment of this machine's C compiler.
SG_IO = 0x2285
_HEADER = struct.Struct("@iiBBHIPPPIIiPBBBBHHiII")
_FROM_DEVICE, _NO_DATA = -3, -1
# driver_status: there is sense data (include/scsi/sg.h DRIVER_SENSE).
_DRIVER_SENSE = 0x08

TEST_UNIT_READY = bytes(6)
# MODE SENSE(6) of all pages, of which only the header is read, as the kernel does when it finds a
# disk (drivers/scsi/sd.c sd_read_write_protect_flag).
MODE_SENSE = bytes((0x1A, 0, 0x3F, 0, 4, 0))
# ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED (SPC-4, ASC and ASCQ assignments).
LUN_NOT_SUPPORTED = "05/25/00"
_GOOD = "good"
_TIMED_OUT = "DID_TIME_OUT"
# Beginnings of names, the best first: NAA registered extended, NAA registered, other NAA, EUI-64,
# T10.
_BEST_KINDS = ("36", "35", "3", "2", "1")
# A unit attention is reported once, instead of the command's result (SAM-5, Unit attention
# conditions). An array may have several of them, so a command is sent a few times.
_ATTEMPTS = 5

# The host byte: the command was not completed by the device (include/scsi/scsi_status.h).
_HOST_STATUS = {
    1: "DID_NO_CONNECT",
    2: "DID_BUS_BUSY",
    3: _TIMED_OUT,
    4: "DID_BAD_TARGET",
    5: "DID_ABORT",
    7: "DID_ERROR",
    8: "DID_RESET",
    11: "DID_SOFT_ERROR",
    12: "DID_IMM_RETRY",
    13: "DID_REQUEUE",
    14: "DID_TRANSPORT_DISRUPTED",
    15: "DID_TRANSPORT_FAILFAST",
}


class CommandSender(Protocol):
    """Sends a command descriptor block, and returns how it ended and the received data."""

    def __call__(self, cdb: bytes, length: int) -> tuple[str, bytes]:
        """``length``: bytes to receive, 0 for none. The first item is as in ``Answer.ready``."""


@dataclass(frozen=True)
class Answer:
    """What one disk answered.

    ``ready``, ``inquiry``, ``vpd``: how each command ended: ``good``; sense data as ``KK/AA/QQ`` in
    hex; ``status 0xNN``; a transport error by its kernel name (``DID_NO_CONNECT``); ``missing`` or
    ``malformed`` for a VPD page; ``not asked``. ``qualifier``: PERIPHERAL QUALIFIER. ``wwids``: the
    logical unit's names as multipath writes them (``3600...`` for NAA, ``2...`` for EUI-64,
    ``1...`` for T10). ``luns``: the LUN numbers that the target reported; None if it was not asked
    or did not answer. ``problem``: why there is no answer at all; ``denied``: since a right is
    missing.
    """

    ready: str = "not asked"
    inquiry: str = "not asked"
    vpd: str = "not asked"
    qualifier: int | None = None
    wwids: tuple[str, ...] = ()
    luns: tuple[int, ...] | None = None
    problem: str = ""
    denied: bool = False

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Answer:
        """The answer of a child, from its JSON."""
        luns = value.get("luns")
        return cls(
            **{
                **value,
                "wwids": tuple(value.get("wwids", ())),
                "luns": None if luns is None else tuple(luns),
            }
        )

    def describe(self) -> str:
        """The answer in one line, for the evidence."""
        if self.problem:
            return self.problem
        qualifier = "" if self.qualifier is None else f" (qualifier {self.qualifier})"
        return (
            f"TEST UNIT READY {self.ready}; INQUIRY {self.inquiry}{qualifier}; VPD 0x83 "
            f"{', '.join(self.wwids) or self.vpd}"
        )


def ask(device: str, timeout: float, report_luns: bool) -> dict[str, Any]:
    """Ask a disk, and return the fields of ``Answer``.

    ``device``: path of its device node. ``timeout``: seconds that the kernel gives each command.
    Call it in a child, since it may block as long as the transport does.
    """
    # O_NONBLOCK: no wait for a medium, and no error without one (drivers/scsi/sd.c sd_open).
    with fdinfo.opened(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) as fd:
        return converse(lambda cdb, length: _sg_io(fd, cdb, length, timeout), report_luns)


def converse(send: CommandSender, report_luns: bool) -> dict[str, Any]:
    """Send the commands to one disk, and return the fields of ``Answer``."""
    # TEST UNIT READY first: it collects the unit attentions, also of a LUN that was exchanged.
    answer: dict[str, Any] = {"ready": _repeat(send, TEST_UNIT_READY, 0)[0]}
    # Each further command would take as long again, and prove nothing by then.
    if answer["ready"] == _TIMED_OUT:
        return answer
    answer["inquiry"], data = _repeat(send, bytes((0x12, 0, 0, 0, 96, 0)), 96)
    if answer["inquiry"] == _GOOD:
        answer["qualifier"] = data[0] >> 5 if data else None
    if answer.get("qualifier") == 0:
        answer.update(_identification(send))
    if report_luns:
        status, data = _repeat(send, bytes((0xA0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0)), 8192)
        answer["luns"] = parse_report_luns(data) if status == _GOOD else None
    return answer


def _identification(send: CommandSender) -> dict[str, Any]:
    """What the Device Identification page says, as the fields ``vpd`` and ``wwids``."""
    status, data = _repeat(send, bytes((0x12, 1, 0x83, 0x10, 0, 0)), 4096)
    if status != _GOOD:
        return {"vpd": "missing" if status.startswith("05/") else status}
    try:
        wwids = parse_device_identification(data)
    except ValueError:
        return {"vpd": "malformed"}
    return {"vpd": _GOOD if wwids else "missing", "wwids": wwids}


def write_protected(device: str, timeout: float) -> bool | None:
    """Whether the LUN below a device node is write-protected; None if it does not tell.

    ``timeout``, and where to call it: as for ``ask``.
    """
    # The kernel does not notice when an array sets or lifts the protection: "ro" in sysfs is from
    # the discovery of the disk. A multipath device passes SG_IO on to a path (drivers/md/dm-mpath.c
    # multipath_prepare_ioctl).
    with fdinfo.opened(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) as fd:
        try:
            return says_write_protected(lambda cdb, length: _sg_io(fd, cdb, length, timeout))
        except OSError:
            # No SCSI disk: the ioctl is not supported.
            return None


def says_write_protected(send: CommandSender) -> bool | None:
    """Whether the mode parameter header says so; None if there is none."""
    # The bit WP in the DEVICE-SPECIFIC PARAMETER (SBC-4).
    status, data = _repeat(send, MODE_SENSE, 4)
    return bool(data[2] & 0x80) if status == _GOOD and len(data) > 2 else None


def _repeat(send: CommandSender, cdb: bytes, length: int) -> tuple[str, bytes]:
    """Send a command, and again while the answer is a unit attention (sense key 6)."""
    status, data = "not asked", b""
    for _attempt in range(_ATTEMPTS):
        status, data = send(cdb, length)
        if not status.startswith("06/"):
            break
    return status, data


def _sg_io(fd: int, cdb: bytes, length: int, timeout: float) -> tuple[str, bytes]:
    command = ctypes.create_string_buffer(cdb, len(cdb))
    data = ctypes.create_string_buffer(max(length, 1))
    sense = ctypes.create_string_buffer(96)
    header = _HEADER.pack(
        ord("S"),
        _FROM_DEVICE if length else _NO_DATA,
        len(cdb),
        len(sense),
        0,
        length,
        ctypes.addressof(data),
        ctypes.addressof(command),
        ctypes.addressof(sense),
        int(timeout * 1000),
        *(0,) * 12,
    )
    buffer = bytearray(header)
    fcntl.ioctl(fd, SG_IO, buffer)
    fields = _HEADER.unpack(buffer)
    status, sense_length, host, driver, residual = (
        fields[13],
        fields[16],
        fields[17],
        fields[18],
        fields[19],
    )
    received = data.raw[: max(0, length - max(0, residual))]
    return classify(status, host, driver, sense.raw[:sense_length]), received


def classify(status: int, host: int, driver: int, sense: bytes) -> str:
    """How a command ended, as in ``Answer.ready``, from the fields of a sg_io_hdr."""
    if host:
        return _HOST_STATUS.get(host, f"DID_0x{host:02x}")
    if status == 0x02 or driver & _DRIVER_SENSE:
        return parse_sense(sense)
    if status:
        return f"status 0x{status:02x}"
    return _GOOD


def parse_sense(sense: bytes) -> str:
    """``KK/AA/QQ``: sense key, ASC and ASCQ in hex; ``sense unreadable`` if it is cut short."""
    # RESPONSE CODE 70h and 71h: fixed format; 72h and 73h: descriptor format (SPC-4, Sense data).
    code = sense[0] & 0x7F if sense else 0
    if code in (0x70, 0x71) and len(sense) >= 14:
        key, asc, ascq = sense[2] & 0x0F, sense[12], sense[13]
    elif code in (0x72, 0x73) and len(sense) >= 4:
        key, asc, ascq = sense[1] & 0x0F, sense[2], sense[3]
    else:
        return "sense unreadable"
    return f"{key:02x}/{asc:02x}/{ascq:02x}"


def parse_device_identification(page: bytes) -> tuple[str, ...]:
    """The logical unit's names in VPD page 0x83, spelled as multipath spells WWIDs.

    Raises ValueError if the page is malformed.
    """
    # A header of four bytes, then designation descriptors: CODE SET, ASSOCIATION and DESIGNATOR
    # TYPE, a reserved byte, the length, the designator (SPC-4, Device Identification VPD page).
    if len(page) < 4 or page[1] != 0x83:
        raise ValueError("not a device identification page")
    end = 4 + int.from_bytes(page[2:4], "big")
    if end > len(page):
        raise ValueError("page is cut short")
    names = []
    offset = 4
    while offset < end:
        if offset + 4 > end or offset + 4 + page[offset + 3] > end:
            raise ValueError("designator reaches past the page")
        association, kind = (page[offset + 1] >> 4) & 3, page[offset + 1] & 0x0F
        designator = page[offset + 4 : offset + 4 + page[offset + 3]]
        offset += 4 + page[offset + 3]
        # Other associations name the target port or the target device, not the logical unit.
        if association != 0 or not designator:
            continue
        # The first character of a WWID is the designator type, as in udev's scsi_id and
        # multipath-tools (libmultipath/discovery.c parse_vpd_pg83).
        if kind in (2, 3):
            names.append(f"{kind}{designator.hex()}")
        elif kind in (0, 1):
            names.append(f"{kind}{udev_text(designator.decode('latin-1'))}")
        elif kind == 8:
            names.append(f"8{designator.decode('utf-8', 'replace').rstrip(chr(0))}")
    return tuple(dict.fromkeys(names))


def parse_report_luns(data: bytes) -> tuple[int, ...] | None:
    """The LUN numbers in REPORT LUNS data, as the kernel writes them; None if it is cut short."""
    # LUN LIST LENGTH in bytes, four reserved bytes, then 8 bytes for each LUN (SPC-4, REPORT LUNS).
    if len(data) < 8:
        return None
    length = int.from_bytes(data[:4], "big")
    if 8 + length > len(data):
        return None
    return tuple(kernel_lun(data[offset : offset + 8]) for offset in range(8, 8 + length - 7, 8))


def kernel_lun(lun: bytes) -> int:
    """The kernel's integer for an 8-byte LUN, as the L of H:C:T:L."""
    # Four big-endian words, the first is the lowest (drivers/scsi/scsi_common.c scsilun_to_int).
    return sum(
        int.from_bytes(lun[index : index + 2], "big") << (index * 8) for index in (0, 2, 4, 6)
    )


def udev_text(text: str) -> str:
    """A vendor's text as udev's scsi_id writes it into a WWID."""
    # Blanks become one underscore, and so does each character that is not allowed in /dev (systemd,
    # src/shared/udev-util.c udev_replace_whitespace, src/shared/device-nodes.c).
    return re.sub(r"[^0-9A-Za-z#+\-.:=@_]", "_", re.sub(r"\s+", "_", text.strip(" \0")))


def wwid_from_sysfs(wwid: str) -> str:
    """The WWID in multipath's spelling for a sysfs attribute wwid (``naa.6001..`` -> ``36001..``).

    Empty if it has another form.
    """
    # drivers/scsi/scsi_lib.c scsi_vpd_lun_id writes naa., eui. or t10. in front.
    prefix, _dot, rest = wwid.strip().partition(".")
    if prefix == "naa":
        return f"3{rest.lower()}"
    if prefix == "eui":
        return f"2{rest.lower()}"
    return f"1{udev_text(rest)}" if prefix == "t10" else ""


def wwid_of(names: Iterable[str]) -> str:
    """The name by which udev, and so multipath, knows a disk with these names; empty if none of
    them can be it.

    ``names``: as of ``parse_device_identification``, in the order of the page.
    """
    # The first of the best kind (systemd, src/udev/scsi_id/scsi_serial.c id_search_list). The
    # kernel's own choice in sysfs is another one: it prefers a SCSI name string, type 8
    # (drivers/scsi/scsi_lib.c designator_prio).
    given = tuple(names)
    return next((name for kind in _BEST_KINDS for name in given if name.startswith(kind)), "")


def world_wide(wwids: Iterable[str]) -> set[str]:
    """The names that prove a difference: NAA and EUI-64 are unique in the world, and have only one
    spelling.
    """
    return {wwid for wwid in wwids if wwid[:1] in ("2", "3")}
