# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Kubernetes reports about an object in its events. Pure: no I/O here."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from .objects import cut, parse_time

# Events of these reasons are about volumes, whatever they say.
VOLUME_REASONS = (
    "FailedAttachVolume",
    "FailedMount",
    "FailedMapVolume",
    "FailedUnmount",
    "FailedBinding",
    "ProvisioningFailed",
    "VolumeResizeFailed",
    "FileSystemResizeFailed",
)
# The event for a claim whose StorageClass has that binding mode, until the scheduler has chosen a
# node (emitEventForUnboundDelayBindingClaim of
# pkg/controller/volume/persistentvolume/pv_controller.go).
WAITS_FOR_SCHEDULER = "WaitForFirstConsumer"

# A field selector for the controller manager's events about attached volumes
# (GenerateAttachVolumeFunc of pkg/volume/util/operationexecutor/operation_generator.go). It is no
# proof: whoever may create events in a namespace can set any source.
ATTACHED_FIELDS = "reason=SuccessfulAttachVolume,source=attachdetach-controller"


class Message(NamedTuple):
    """An event, or what a container or the scheduler gives as the reason for waiting."""

    reason: str
    text: str
    # How often it was reported, and when last; None for now.
    times: int
    last: datetime | None


def pick_event(item: dict[str, Any]) -> tuple[str, Message]:
    """The uid that a core/v1 event is about, and what it says."""
    series = item.get("series") or {}
    # Events made through events.k8s.io have a series and an eventTime where others have count and
    # lastTimestamp.
    times = (
        series.get("lastObservedTime"),
        item.get("lastTimestamp"),
        item.get("eventTime"),
        item["metadata"].get("creationTimestamp"),
    )
    last = next((time for time in map(parse_time, times) if time), None)
    count = series.get("count") or item.get("count") or 1
    return (item.get("involvedObject") or {}).get("uid") or "", Message(
        cut(item.get("reason")), cut(item.get("message")), count, last
    )


def pick_message(item: dict[str, Any]) -> tuple[str, Message] | None:
    """As pick_event; None for events about what went well."""
    ours = item.get("reason") in (*VOLUME_REASONS, WAITS_FOR_SCHEDULER)
    return pick_event(item) if item.get("type") == "Warning" or ours else None
