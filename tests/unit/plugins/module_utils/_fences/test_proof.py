# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a reading of Ceph proves a fence, and what does not."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    SKEW_SECONDS,
    Reading,
    parse_reading,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.proof import (
    LEAST_EXPIRY,
    MAX_AGE,
    missing,
    stale,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.fences import (
    FAR,
    LEDGER,
    A,
    blocked,
)

# The ledger was written now.
NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def reading(until: str = FAR, at: datetime = NOW, **fields: Any) -> Reading:
    data = {
        "fsid": "f1",
        "read_at": iso(at),
        "observations": 1,
        "seconds": 0.0,
        "families": ["IPv4"],
        "blocklist": [blocked(A, until=until)],
        "images": [],
    }
    return parse_reading({**data, **fields})


def test_a_fence_that_is_there_is_proven() -> None:
    assert missing(LEDGER, reading(), NOW) == []
    fence = LEDGER._replace(method="network_fence")
    assert missing(fence, reading(), NOW) == []


def test_what_was_read_before_the_ledger_was_written_proves_nothing() -> None:
    skew = timedelta(seconds=SKEW_SECONDS)
    assert missing(LEDGER, reading(at=NOW - skew), NOW) == []
    (reason,) = missing(LEDGER, reading(at=NOW - skew - SECOND), NOW)
    assert reason.code == "ceph_reading_unfit" and "before the ledger was written" in reason


@pytest.mark.parametrize("method", ["ceph", "network_fence"])
def test_an_entry_that_is_missing_or_ends_soon_proves_nothing(method: str) -> None:
    ledger = LEDGER._replace(method=method)
    least = timedelta(seconds=LEAST_EXPIRY / 2 - 600)
    assert missing(ledger, reading(iso(NOW + least)), NOW) == []
    for until in (iso(NOW + least - SECOND), iso(NOW - SECOND), "", "soon"):
        (reason,) = missing(ledger, reading(until), NOW)
        assert reason.code == "ceph_entry_missing" and "expires too soon" in reason
        assert (until or "unknown") in reason
    (reason,) = missing(ledger, reading(blocklist=[]), NOW)
    assert reason.code == "ceph_entry_missing" and f"no entry for {A}" in reason


def test_another_ceph_proves_nothing() -> None:
    (reason,) = stale(reading(fsid="f2"), NOW, "f1")
    assert reason.code == "ceph_reading_unfit" and "Ceph cluster f2" in reason and "f1" in reason
    (reason,) = stale(reading(fsid=""), NOW, "f1")
    assert reason.code == "ceph_reading_unfit" and "fsid" in reason
    assert stale(reading(fsid="f2"), NOW, "") == stale(reading(), NOW, "f1") == []


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_reading_that_is_old_or_from_the_future_proves_nothing(sign: int) -> None:
    limit = sign * timedelta(seconds=MAX_AGE)
    assert stale(reading(at=NOW + limit), NOW, "f1") == []
    (reason,) = stale(reading(at=NOW + limit + sign * SECOND), NOW, "f1")
    assert reason.code == "ceph_reading_unfit" and "read it again" in reason
