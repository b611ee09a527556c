# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run on VolumeAttachments is asked for, and everything that its plan is made from.

Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .._kube.objects import Attachment, Lease, age
from .._kube.observation import REQUIRED_METADATA, Observation


@dataclass(frozen=True)
class AttachmentOptions:
    """What the user asked for and allows; see the documentation of volumeattachment_repair for
    units and defaults.
    """

    controls: frozenset[str] = frozenset({"STOR-11", "STOR-12", "STOR-13", "STOR-14", "STOR-15"})
    # The scope; empty parts do not restrict it.
    names: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    # Younger attachments are not judged: the controller manager may be about to use or detach them.
    min_age_seconds: float = 300.0
    observations: int = 2
    observation_seconds: float = 30.0
    # For STOR-15: the controller manager reconciles every 100 ms (DefaultTimerConfig of
    # pkg/controller/volume/attachdetach/attach_detach_controller.go), so a pod that waits this long
    # does not wait for its turn.
    pending_seconds: float = 120.0
    # Keys of status.attachmentMetadata, by driver.
    required_metadata: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: dict(REQUIRED_METADATA)
    )
    # A wrong judgement detaches ten volumes at most, before a person looks at the result.
    max_repairs: int = 10
    accept_majority: bool = False

    def scope(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the user narrowed the run down to."""
        given = [
            ("names", self.names),
            ("drivers", self.drivers),
            ("nodes", self.nodes),
            ("namespaces", self.namespaces),
        ]
        return [(what, wanted) for what, wanted in given if wanted]


@dataclass(frozen=True)
class AttachmentState:
    """Everything the plan is made from. What only suspects need is empty without any."""

    now: datetime
    # The first has everything, later ones only the suspects.
    observations: tuple[Observation, ...]
    # Names of the attachments that were observed again.
    unproven: frozenset[str] = frozenset()
    # Of the API server, which may be a minor release newer than the controller manager (Kubernetes
    # version skew policy).
    version: tuple[int, int, int] = (1, 0, 0)
    version_text: str = ""
    # All CSIDrivers, and those with attachRequired=false; both are read only if they matter.
    drivers: frozenset[str] = frozenset()
    detached_drivers: frozenset[str] = frozenset()
    # By node, the drivers of its CSINode (NodeDrivers.drivers).
    drivers_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # The Lease of the controller manager's leader.
    lease: Lease | None = None
    # The time of the newest event SuccessfulAttachVolume.
    last_attach: datetime | None = None
    # Whether that could not be read in time.
    attach_unread: bool = False

    @property
    def first(self) -> Observation:
        """The oldest observation, of everything."""
        return self.observations[0]

    @property
    def last(self) -> Observation:
        """The newest observation, of the suspects."""
        return self.observations[-1]

    @property
    def observed(self) -> str:
        """How often and how long the suspects were observed, as a text."""
        return (
            f"{len(self.observations)} times over {self.last.at - self.first.at:.1f} s"
            if len(self.observations) > 1
            else "once"
        )

    @property
    def leader(self) -> dict[str, Any]:
        """Who leads the controller managers, as evidence."""
        if self.lease is None:
            return {"leader": "unknown: no lease kube-system/kube-controller-manager"}
        return {
            "leader": self.lease.holder,
            "lease_renewed_seconds_ago": round(age(self.now, self.lease.renewed)),
        }


def in_scope(seen: Observation, attachment: Attachment, options: AttachmentOptions) -> bool:
    """Whether the user asked for this attachment."""
    namespaces = {namespace for namespace, _name in seen.claims_of(attachment)}
    return (
        any_of(options.names, {attachment.name})
        and any_of(options.drivers, {attachment.driver})
        and any_of(options.nodes, {attachment.node})
        and any_of(options.namespaces, namespaces)
    )


def any_of(wanted: tuple[str, ...], there: set[str]) -> bool:
    """One of the wanted is there; without any, all are wanted."""
    return not wanted or bool(there & set(wanted))
