# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether what is there now is what was fenced. Pure: no I/O here."""

from __future__ import annotations

from ipaddress import ip_network

from .ceph_reading import Watcher
from .ledger import UNKNOWN_MACHINE, Ledger
from .state import HostRecord

# Of a Node that has the annotation of a ledger without the ledger.
LONE = (
    "anyone who controls its kubelet may have written it, so it is ignored: the ConfigMap is the "
    "ledger. If that was deleted, compare the annotation with Ceph's blocklist and the "
    "NetworkFences, and remove the rest of the fence by hand; then remove the annotation"
)


def rebooted(host: HostRecord, ledger: Ledger) -> bool:
    """The machine that was fenced is in another boot.

    Another Node object says nothing: a kubelet can register again without a reboot.
    """
    # The kernel makes a boot ID at each boot (Documentation/admin-guide/sysctl/kernel.rst,
    # random/boot_id). With the boot ended the processes, mounts and RBD clients of before it,
    # whatever the node has now.
    known = bool(host.boot_id and ledger.boot_id and ledger.machine)
    return (
        known and host.boot_id.lower() != ledger.boot_id.lower() and not machine_doubt(host, ledger)
    )


def machine_doubt(host: HostRecord, ledger: Ledger) -> str:
    """Why this may not be the machine that was fenced, which may still run then; empty if it is.

    A node that is repaired by replacing its machine comes back with the same name, and a bootID of
    its own.
    """
    # systemUUID is the SMBIOS UUID of the board or virtual machine (man 8 dmidecode), machineID is
    # /etc/machine-id (man 5 machine-id); the kubelet reports both (MachineInfo of
    # pkg/kubelet/nodestatus/setters.go).
    node = host.node.name
    if ledger.machine == UNKNOWN_MACHINE:
        return (
            f"it cannot be told whether {node} is the machine that was fenced (a volume was "
            "attached before its Node object was made)"
        )
    if host.machine and ledger.machine:
        same = host.machine.lower() == ledger.machine.lower()
        return (
            ""
            if same
            else f"{node} is another machine now (its systemUUID/machineID was {ledger.machine} "
            f"and is {host.machine})"
        )
    if host.boot_id and host.boot_id.lower() == ledger.boot_id.lower():
        return ""
    return (
        f"it cannot be told whether {node} is the machine that was fenced "
        f"({'the node reports' if ledger.machine else 'its ledger has'} no systemUUID)"
    )


def is_old(watcher: Watcher, ledger: Ledger) -> bool:
    """The watcher has an address that the ledger fences."""
    # A client keeps its address for as long as it lives, so a watcher at an address that was fenced
    # is one of before, or one that came to the address since.
    return watcher.address in {*ledger.addresses, *(entry.entry for entry in ledger.entries)}


def plain(text: str) -> str:
    """An address, a range without host bits, and a range of one address as that address; anything
    else as it is.
    """
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return text
    return str(network if network.num_addresses > 1 else network.network_address)
