# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the records say of the lost node's address on Ceph's network, and of other nodes'.
Pure: no I/O here.

A record is of the last night, and not of now: it may name the address to fence where nothing
contradicts it, and proves of no client that it is this node's.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from .._core.untrusted import few
from .._fences.proof import iso
from .._fences.record import Record, key_of
from .._fences.state import HostRecord, NodeState
from .options import FenceOptions


class Recorded(NamedTuple):
    """``record``: that of this node, of its present boot; None where there is none. ``doubt``: why
    what is there is of no use, as a sentence. ``others``: by address, which other node has it.
    """

    record: Record | None
    doubt: str
    others: dict[str, str]

    @property
    def address(self) -> tuple[str, ...]:
        """The address, or nothing."""
        return (self.record.address,) if self.record else ()


def recorded(state: NodeState, options: FenceOptions) -> Recorded:
    """What is recorded of this Ceph, as far as it is about the present."""
    # Another Ceph may see the node at another address, on a network of its own.
    fsid = options.reading.fsid if options.reading else ""
    host = state.host
    mine = state.records.of(host.node.uid, fsid) if host and fsid else None
    return Recorded(
        mine if mine and host and _is_present(mine, host) else None,
        _doubt(state, mine, fsid),
        _others(state, mine, fsid),
    )


def _is_present(record: Record, host: HostRecord) -> bool:
    return record.is_of_boot(host.boot_id, host.machine)


def _doubt(state: NodeState, mine: Record | None, fsid: str) -> str:
    """Why the record of this node tells nothing; empty where it does, or there is none."""
    host = state.host
    if host is None:
        return ""
    unreadable = state.records.unreadable.get(key_of(host.node.uid, fsid))
    if unreadable:
        return f"the record of its clients cannot be read: {unreadable}"
    if mine is None or _is_present(mine, host):
        return ""
    return (
        f"Ceph saw it at {mine.address} at {iso(mine.at)}, but the node was booted since, or is "
        "another machine, and may have another address: if it is still that one, name it in "
        "fence_addresses"
    )


def _others(state: NodeState, mine: Record | None, fsid: str) -> dict[str, str]:
    """The addresses at which Ceph saw other nodes, each with what a message calls it."""
    found = {}
    for other in state.others:
        theirs = state.records.of(other.node.uid, fsid)
        # What was seen of another one before it was booted may be the lost node's since; but not if
        # that is newer than what was seen of this one.
        if theirs and (_is_present(theirs, other) or (mine and theirs.at > mine.at)):
            found[theirs.address] = f"node {other.node.name} (seen by Ceph at {iso(theirs.at)})"
    return found


def age_of(record: Record, now: datetime) -> str:
    """How old it is, as a person reads it."""
    hours = (now - record.at).total_seconds() / 3600
    return f"{hours:.0f} hours ago" if hours < 72 else f"{hours / 24:.0f} days ago"


def told(record: Record, now: datetime) -> str:
    """The record in one line, for the evidence."""
    return (
        f"{record.address} ({few(record.clients)}), by {record.images} images, at "
        f"{iso(record.at)}, {age_of(record, now)}, in this boot"
    )
