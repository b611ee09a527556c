# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ceph has to show of a fence. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from .._core.codes import Reason
from .ceph_reading import SKEW_SECONDS, Blocked, Image, Reading, moment
from .ledger import Ledger

# A returning node writes again once its entry has expired.
# Ceph removes an entry when its time is over, without a word to anybody (OSDMonitor::tick of
# src/mon/OSDMonitor.cc; an hour where no time is given, mon_osd_blocklist_default_expire). ceph-csi
# takes five years for a fence (blocklistTime of internal/csi-addons/networkfence/fencing.go).
LEAST_EXPIRY = 604_800.0
# An entry is good enough with so much of the least expiry left (seconds); ceph_blocklist renews it
# at half of what it was given.
_LEAST_LEFT = LEAST_EXPIRY / 2 - 600

# What was read of Ceph longer ago (seconds) is no evidence any more. It allows for the wait for
# another run's Lease.
MAX_AGE = 600.0


def missing(
    ledger: Ledger, reading: Reading, now: datetime, max_age: float = MAX_AGE
) -> list[Reason]:
    """What Ceph does not have of the fence, or why the reading does not tell."""
    # The monitors have the entry in the OSD map before they answer, and a reading of after that has
    # it too. OSDs learn the map with the next request at the latest, since clients and OSDs tell
    # each other their epochs.
    doubts = stale(reading, now, ledger.fsid, max_age)
    written = moment(ledger.at)
    if written and (written - reading.read_at).total_seconds() > SKEW_SECONDS:
        doubts.append(
            Reason(
                "ceph_reading_unfit",
                f"what was read of Ceph is of {iso(reading.read_at)}, before the ledger was "
                f"written ({ledger.at}), so it proves nothing about the fence: read it again, or "
                "set the clocks",
            )
        )
    if ledger.method == "ceph":
        for entry in ledger.entries:
            doubts += _entry_doubts(entry.entry, reading.find(entry.entry), reading)
    elif ledger.method == "network_fence":
        for address in ledger.addresses:
            doubts += _entry_doubts(address, reading.covering(address), reading)
    return doubts + mapped_clients(reading.images, ledger.addresses)


def mapped_clients(images: Iterable[Image], addresses: Collection[str]) -> list[Reason]:
    """The clients at these addresses that no entry for them blocks."""
    # Ceph compares the family too: OSDMap::is_blocklisted looks up an entity_addr_t with it, and
    # range_bits::matches asks for it (src/osd/OSDMap.cc).
    seen: dict[str, str] = {}
    for image in images:
        seen |= {found.entry: found.address for found in image.watchers}
        seen |= {found.entry: found.address for found in image.locks}
    return [
        Reason(
            "fence_method_unfit",
            f"Ceph sees {entry}, an IPv4 address written as an IPv6 one, and an entry for the "
            "IPv4 address does not hit it: prove that the node is off, and use method none with "
            "node_confirmed_off",
        )
        for entry, address in seen.items()
        if address in addresses and entry.startswith("[::ffff:")
    ]


def _entry_doubts(wanted: str, found: Blocked | None, reading: Reading) -> list[Reason]:
    # The end counts from the reading, not from now: how old that may be is judged elsewhere.
    if found is None:
        return [
            Reason(
                "ceph_entry_missing",
                f"Ceph's blocklist has no entry for {wanted}: add it with ceph_blocklist (or run "
                "the playbook again)",
            )
        ]
    until = moment(found.until)
    if until is None or (until - reading.read_at).total_seconds() < _LEAST_LEFT:
        return [
            Reason(
                "ceph_entry_missing",
                f"the entry {found.entry} in Ceph's blocklist expires too soon (until "
                f"{found.until or 'unknown'}): renew it with ceph_blocklist",
            )
        ]
    return []


def stale(reading: Reading, now: datetime, fsid: str, max_age: float = MAX_AGE) -> list[Reason]:
    # The fsid is made with the cluster and never changes ("ceph fsid"), while names and addresses
    # of monitors do.
    reasons = []
    if not reading.fsid:
        reasons.append(
            Reason(
                "ceph_reading_unfit",
                "what was read of Ceph (option ceph) does not say which cluster it is (fsid)",
            )
        )
    elif fsid and fsid != reading.fsid:
        reasons.append(
            Reason(
                "ceph_reading_unfit",
                f"what was read is of Ceph cluster {reading.fsid}, and the ledger is about "
                f"{fsid}: ask the Ceph that has the volumes",
            )
        )
    # The reading has the time of the host that asked Ceph; the API server's clock is the one that
    # all runs of this collection share.
    if abs((now - reading.read_at).total_seconds()) > max_age:
        reasons.append(
            Reason(
                "ceph_reading_unfit",
                f"what was read of Ceph is of {iso(reading.read_at)}, and the API server's clock "
                f"says {iso(now)}: read it again, or set the clocks",
            )
        )
    return reasons


def iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
