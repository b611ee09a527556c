# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger, and what Ceph shows of images and of its blocklist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ledger import (
    Entry,
    FenceObject,
    Ledger,
    PowerFence,
)

A = "10.0.0.5"
FAR = "2027-01-01T12:00:00Z"
LEDGER = Ledger(
    "a",
    "uid-a",
    "boot-1",
    "ceph",
    "intended",
    "c1",
    "f1",
    ("10.0.0.5",),
    (Entry("10.0.0.5", "address", True, ""),),
    (FenceObject("nf", "uid-nf", ("10.0.0.5/32",), True),),
    {"10.0.0.5": "watcher"},
    ("v",),
    False,
    True,
    False,
    "host",
    "run-1",
    "2026-01-01T12:00:00Z",
)
MACHINE = "4c4c4544-0034-5210-8051-b7c04f4b4e31"
# One by power, not proven yet.
POWERED = LEDGER._replace(
    method="power",
    addresses=(),
    entries=(),
    network_fences=(),
    source={},
    machine=f"{MACHINE}/machine-id",
    power=PowerFence("redfish", "192.0.2.11", "1", MACHINE),
)


def looks(*answers: str | dict[str, Any]) -> list[dict[str, Any]]:
    """What the BMC of POWERED has said, every five seconds from 12:00:20 on: its state, or more."""
    told = []
    for number, answer in enumerate(answers):
        said = {"state": answer} if isinstance(answer, str) else answer
        told.append(
            {
                **{"kind": "redfish", "address": "192.0.2.11", "system": "1", "shared": []},
                **{"state": "off", "uuid": MACHINE, "status": 200, "problem": ""},
                **{"node": "", "since": ""},
                **{"read_at": f"2026-01-01T12:00:{20 + 5 * number:02}Z"},
                **said,
            }
        )
    return told


def watcher(
    address: str = A,
    number: int = 1,
    seen: int = 3,
    nonce: int = 11,
    mirror: bool = False,
    kernel: bool = True,
) -> dict[str, Any]:
    """The kernel's client, or one of librbd: "rbd status" shows these very numbers."""
    entry = f"[{address}]:0/{nonce}" if ":" in address else f"{address}:0/{nonce}"
    return {
        "address": address,
        "entry": entry,
        "client": f"client.{number}",
        "cookie": str(18446462598732840960 + number if kernel else 93919075689600 + number),
        "seen": seen,
        "persistent": seen == 3,
        "mirror": mirror,
    }


def image(
    name: str = "v",
    watchers: Sequence[Any] = (),
    locks: Sequence[Any] = (),
    notes: Sequence[Any] = (),
    problem: str = "",
) -> dict[str, Any]:
    return {
        "volume": name,
        "pool": "p",
        "namespace": "",
        "image": name,
        "problem": problem,
        "features": ["layering"],
        "watchers": list(watchers),
        "locks": list(locks),
        "client_addresses": [{"node": on, "address": address} for on, address in notes],
    }


def blocked(entry: str, kind: str = "address", until: str = FAR) -> dict[str, Any]:
    address = entry.split(":")[0] if kind == "client" else entry
    return {
        "entry": f"{entry}:0/0" if kind == "address" else entry,
        "kind": kind,
        "address": address,
        "until": until,
    }
