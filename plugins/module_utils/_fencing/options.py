# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the user asks of a fence, and the form of the answer. Pure: no I/O here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .._core.engine import Plan
from .._core.ip import Network
from .._fences.ceph_reading import Reading
from .._fences.ledger import Ledger
from .._fences.network_fence import NetworkFence
from .._fences.power import PowerReading
from .._kube.objects import OWN_NAMESPACE


@dataclass(frozen=True)
class FenceOptions:
    """What the user asked for and allows; see the documentation of node_fence for units and
    defaults.

    ``by``: the host that runs this; ``check``: check mode, in which the steps before have changed
    nothing.
    """

    node: str
    run: str
    by: str
    namespace: str = OWN_NAMESPACE
    # "auto" takes a NetworkFence that is there, else Ceph's blocklist; never one of OFF_METHODS nor
    # "none".
    method: str = "auto"
    # What rbd_watcher_info returned; None before the first reading of a run.
    reading: Reading | None = None
    # On top of the controller manager's --node-monitor-grace-period, after which Ready becomes
    # Unknown (pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    grace_seconds: float = 120.0
    accept_short_observation: bool = False
    # Addresses that the user knows to be this node's on Ceph's network.
    fence_addresses: tuple[str, ...] = ()
    protected: tuple[Network, ...] = ()
    node_confirmed_off: bool = False
    # Addresses of clients that are no node, as of a backup host.
    other_addresses: tuple[str, ...] = ()
    # A year: Ceph takes no entry without an end, and the repair of a node may take months.
    expiry_seconds: float = 31_536_000.0
    cluster_id: str = ""
    # The volumes that the run began with; None: any.
    volumes: frozenset[str] | None = None
    # What proves a NetworkFence: its controller's message, or Ceph's blocklist as well.
    proof: str = "message"
    check: bool = False
    accept_majority: bool = False
    # What the BMC has said, the oldest first; and the seconds over which it must say off.
    power: tuple[PowerReading, ...] = ()
    power_seconds: float = 5.0


class Subject(NamedTuple):
    """What an action is about: the ledger as it is to be, and for fence_network the object to be
    patched.
    """

    ledger: Ledger
    fence: NetworkFence | None = None


class Decision(NamedTuple):
    """What is to be done, and the ledger as it is once that is done; None where there is none."""

    plan: Plan
    ledger: Ledger | None
