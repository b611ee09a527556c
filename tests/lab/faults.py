# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults by name, for pytest (`inject`) and for playbooks (`python -m lab fault NAME FAULT
[ARG...]`).

Each is one labctl command line; its arguments are the fault's own, in order. `labctl --help` in the
guest tells the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .common import LabError
from .vm import Vm

FAULTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "unmap": ("lun unmap", "N or N-M: the array no longer serves these LUNs"),
        "map": ("lun map", "N [BACKING]: the array serves a backing as LUN N"),
        "new": ("lun new", "BACKING SIZE_MB [CONTENT]: a new disk on the array, not yet mapped"),
        "many": ("lun many", "COUNT: that many more LUNs from 11 on, with their maps"),
        "portal-down": ("portal down", "IP: drop a portal's traffic silently"),
        "portal-up": ("portal up", "IP: let it pass again"),
        "alua": ("alua", "N STATE: active_optimized, active_nonoptimized, standby or unavailable"),
        "multipath-config": ("multipath-config", "KEY=VALUE...: for instance no_path_retry=queue"),
        "multipathd": ("multipathd", "stop, start, freeze or thaw"),
        "rescan": ("rescan", "rescan the iSCSI sessions"),
        "logout": ("logout", "close the iSCSI sessions"),
        "login": ("login", "open them again"),
        "hold": ("hold", "DEVICE [--excl]: keep it open; prints the pid"),
        "read": ("read", "DEVICE: one direct read in the background; prints the pid"),
        "scsi-debug": (
            "scsi-debug",
            "load [LUNS] | unload | inject DISK COMMAND KEY/ASC/ASCQ [COUNT] | clear DISK",
        ),
    }
)


def inject(vm: Vm, fault: str, *arguments: str | int) -> str:
    """Do it, and return what labctl printed: a WWID, a pid, or nothing."""
    if fault == "reuse-lun":
        return reuse_lun(vm, *map(int, arguments))
    if fault not in FAULTS:
        raise LabError(
            f"unknown fault {fault!r}: there are {', '.join(sorted([*FAULTS, 'reuse-lun']))}"
        )
    return vm.labctl(*FAULTS[fault][0].split(), *map(str, arguments), timeout=600)


def reuse_lun(vm: Vm, number: int) -> str:
    """The array gives LUN N's number to another volume, and the node is not told.

    Returns the new volume's WWID.
    """
    backing = f"reused{number}"
    vm.labctl("lun", "new", backing, "64", f"content of {backing}\n")
    vm.labctl("lun", "unmap", str(number))
    return vm.labctl("lun", "map", str(number), backing)
