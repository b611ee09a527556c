# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""rbd_watcher_info and a real metadata server: who has a CephFS mounted, and what a fence does to
the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lab.ceph.files import Metadata, Mount
from support.node import Outcome
from support.storage import Storage

A, B = "127.0.0.11", "127.0.0.12"
OSD = "profile rbd-read-only"


@pytest.fixture
def metadata(storage: Storage) -> Iterator[Metadata]:
    """A CephFS with one metadata server."""
    with Metadata(storage.ceph) as found:
        yield found


def read(storage: Storage, user: str = "admin", **options: Any) -> tuple[Outcome, dict[str, Any]]:
    """One run; and what it says of the filesystem."""
    done = storage.ansible("rbd_watcher_info", user=user, sessions=True, **options)
    assert not done.failed and not done.changed, done.msg
    (files,) = done.result["ceph"]["filesystems"]
    return done, files


def test_the_session_of_a_fenced_client_ends(storage: Storage, metadata: Metadata) -> None:
    storage.user("storage-ops", mon=storage.caps, osd=OSD, mds="allow *")
    with Mount(metadata, A, host="node-a") as a, Mount(metadata, B) as b:
        (a.path / "file").write_text("a")
        assert (b.path / "file").read_text() == "a"
        _done, files = read(storage, "storage-ops")
        found = {one["address"]: one for one in files["sessions"]}
        assert (files["name"], files["problem"], set(found)) == ("files", "", {A, B})
        assert found[A]["hostname"] == "node-a" != found[B]["hostname"]
        assert (found[A]["program"], found[A]["root"]) == ("ceph-fuse", "/")

        left, _files = read(storage, gone=[A], gone_timeout=1)
        assert [(one["verdict"], one["code"]) for one in left.findings] == [
            ("refuse", "ceph_session_left")
        ]
        storage.ceph.change_blocklist("add", A, "3600")
        if not storage.ceph.ranges:
            # Before Ceph 16 a metadata server ends only sessions of clients that an entry names.
            left, _files = read(storage, "storage-ops", gone=[A], gone_timeout=5)
            assert [one["code"] for one in left.findings] == ["ceph_session_left"]
            storage.ceph.change_blocklist("add", found[A]["entry"], "3600")
        proof, files = read(storage, "storage-ops", gone=[A])
        assert proof.findings == [] and [one["address"] for one in files["sessions"]] == [B]
        with pytest.raises(OSError, match="endpoint shutdown"):
            (a.path / "file").write_text("again")
        (b.path / "file").write_text("b")


def test_what_does_not_answer_has_no_sessions_that_are_known(
    storage: Storage, metadata: Metadata
) -> None:
    """A user without the right, a server that hangs, and a filesystem without one."""
    storage.user("storage-ops", mon=storage.caps, osd=OSD, mds="allow rw")
    with Mount(metadata, A):
        done, files = read(storage, "storage-ops")
        assert files["sessions"] == [] and "Grant mds 'allow *'" in files["problem"]
        assert [(one["verdict"], one["code"]) for one in done.findings] == [
            ("report", "ceph_not_read")
        ]
        metadata.pause()
        try:
            _done, files = read(storage, gone=[A])
            assert files["sessions"] == [] and files["problem"], files
        finally:
            metadata.resume()
        storage.ceph.run("fs", "fail", metadata.name)
        _done, files = read(storage, gone=[A])
        assert files["sessions"] == [] and "no metadata server for rank 0" in files["problem"]
