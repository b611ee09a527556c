# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the controller manager has last attached a volume, by its events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .._core.turns import TurnOver
from .client import Cluster, path, within
from .events import ATTACHED_FIELDS, pick_event
from .objects import leniently

# As the place of the time, where that is not known.
UNREAD = "not known, since the events could not be read in time"


def read_last_attach(cluster: Cluster) -> tuple[datetime | None, bool]:
    """The time of the newest event, None if none is left; and whether that could not be read.

    It explains, and decides nothing. So it has half of the time that is left, and its failure ends
    nothing: tenants may write any number of such events, as big as an object may be. Raises
    KubeError only for what does not pass, such as a missing right.
    """
    newest: list[datetime] = []

    def keep(item: dict[str, Any]) -> None:
        last = pick_event(item)[1].last
        if last:
            newest[:] = [max([last, *newest])]

    try:
        with within(cluster, cluster.deadline.remaining() / 2):
            cluster.list(
                path("v1", "events"), leniently(keep, {}), cached=True, fields=ATTACHED_FIELDS
            )
    except TurnOver:
        return None, True
    return (newest[0] if newest else None), False
