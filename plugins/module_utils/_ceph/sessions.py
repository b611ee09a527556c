# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which clients have a session at the metadata servers of each CephFS.

A blocklisted client cannot write to the OSDs. Until its session has ended, the metadata server
still takes its requests, for example to remove a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._core.errors import StorageOpsError, words
from .addresses import Entry, parse_stored
from .cli import Ceph, Denied

# A client chooses what it says of itself (src/client/Client.cc, populate_metadata), so no more of
# each text is kept.
_MOST_CHARACTERS = 300
# So many different clients of one filesystem are told. A result has room for no more.
MOST_ROWS = 2000


class Session(NamedTuple):
    """A client of a metadata server.

    ``hostname``, ``program`` ("kernel", "ceph-fuse", or empty for others) and ``root``, the folder
    of the filesystem that it has mounted, are its own words.
    """

    entry: Entry
    client: str
    hostname: str
    program: str
    root: str


class FileSystem(NamedTuple):
    """A CephFS and the sessions at all of its active metadata servers.

    ``name``: empty if it is not known which there are; ``problem``: why the sessions are not known.
    """

    name: str
    sessions: tuple[Session, ...] = ()
    problem: str = ""


class Served(NamedTuple):
    """A CephFS as the monitors know it. ``daemons``: the global id of each rank's active daemon.

    ``problem``: why its metadata servers cannot tell of every client.
    """

    name: str
    daemons: tuple[int, ...]
    problem: str = ""


def read_file_systems(ceph: Ceph) -> tuple[FileSystem, ...]:
    """Every CephFS of the cluster. What cannot be read has a problem, and is never left out."""
    try:
        before = parse_map(ceph.json("ceph", "fs", "dump"))
        found = [_read(ceph, served) for served in before]
        after = {served.name: served for served in parse_map(ceph.json("ceph", "fs", "dump"))}
    except StorageOpsError as error:
        return (FileSystem("", problem=f"the filesystems could not be read: {error}"),)
    # A session is missing while another daemon takes its rank over, and its client has not come
    # back yet.
    changed = "its metadata servers changed while they were read: read them again"
    return tuple(
        read
        if read.problem or after.get(read.name) == served
        else FileSystem(read.name, (), changed)
        for served, read in zip(before, found)
    )


def _read(ceph: Ceph, served: Served) -> FileSystem:
    """The sessions of one filesystem."""
    if served.problem:
        return FileSystem(served.name, problem=served.problem)
    sessions: list[Session] = []
    try:
        for daemon in served.daemons:
            # By its global id, which is this daemon's alone: of a rank that is down, "ceph tell" of
            # 16.2 ends by SIGABRT.
            answer = ceph.json("ceph", "tell", f"mds.{daemon}", "session", "ls")
            sessions += parse_sessions(answer)
    except Denied as error:
        # Any command by "tell" takes all of it (MDSDaemon::handle_command of src/mds/MDSDaemon.cc,
        # "received command from client without `tell` capability").
        problem = f"its sessions could not be read: {error}. Grant mds 'allow *'"
        return FileSystem(served.name, problem=problem)
    except StorageOpsError as error:
        return FileSystem(served.name, problem=f"its sessions could not be read: {error}")
    return FileSystem(served.name, tuple(sessions))


def parse_map(dump: Any) -> list[Served]:
    """``ceph fs dump --format json``. Raises StorageOpsError for what is not understood."""
    try:
        return [_served(found["mdsmap"]) for found in dump["filesystems"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StorageOpsError(f"ceph fs dump lacks what is needed: {words(error)}") from None


def _served(mdsmap: Mapping[str, Any]) -> Served:
    # Fields of MDSMap::dump and MDSMap::mds_info_t::dump (src/mds/MDSMap.cc). Clients have their
    # sessions at the ranks that are in; a standby has none.
    name, ranks = str(mdsmap["fs_name"]), [int(rank) for rank in mdsmap["in"]]
    up = {int(key.rpartition("_")[2]): int(daemon) for key, daemon in mdsmap["up"].items()}
    infos = {int(info["gid"]): info for info in mdsmap["info"].values()}
    away = sorted({*mdsmap["failed"], *mdsmap["damaged"], *(set(ranks) - set(up))})
    if not ranks:
        return Served(name, (), "it has no active metadata server")
    if away:
        return Served(name, (), f"it has no metadata server for rank {', '.join(map(str, away))}")
    for rank, daemon in sorted(up.items()):
        info = infos[daemon]
        # One that takes a rank over does not know the sessions before it is active.
        if info["state"] != "up:active":
            return Served(name, (), f"its metadata server of rank {rank} is {info['state']}")
        # It has not sent a beacon to the monitors for mds_beacon_grace, 15 s.
        if "laggy_since" in info:
            return Served(name, (), f"its metadata server of rank {rank} is laggy")
    return Served(name, tuple(up[rank] for rank in sorted(up)))


def parse_sessions(answer: Any) -> list[Session]:
    """``session ls`` of one metadata server.

    Raises StorageOpsError for what is not understood: it is never "no session".
    """
    try:
        return [_session(found) for found in answer]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageOpsError(f"session ls lacks what is needed: {words(error)}") from None


def _session(found: Mapping[str, Any]) -> Session:
    # "inst" is there in every release: client.4129 v1:10.0.0.5:0/1910348383.
    client, _space, address = found["inst"].partition(" ")
    entry = parse_stored(address)
    if entry is None or not client.startswith("client."):
        raise ValueError(f"{found['inst']!r} is no client with an address")
    said = found["client_metadata"]
    # Each of the two says its own version: fs/ceph/mds_client.c, create_session_open_msg; and
    # src/client/Client.cc, populate_metadata.
    program = (
        "kernel" if "kernel_version" in said else "ceph-fuse" if "ceph_version" in said else ""
    )
    hostname, root = (str(said.get(key, ""))[:_MOST_CHARACTERS] for key in ("hostname", "root"))
    return Session(entry, client, hostname, program, root)


def sessions_of(files: Sequence[FileSystem], gone: Sequence[Entry]) -> list[Session]:
    """Sessions that one of the entries blocks, or would."""
    return [
        session
        for found in files
        for session in found.sessions
        if any(entry.covers(session.entry) for entry in gone)
    ]


def to_result(found: FileSystem, roots: frozenset[str]) -> dict[str, Any]:
    """What was read, as plain data: one row for the clients that differ in nothing that decides.

    ``roots``: the folders of the volumes that are asked about. Of others the first client's is
    told.
    """
    # A client of the kernel has a session for each volume, so a cluster may have ten thousands.
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for session in found.sessions:
        key = (
            session.entry.address,
            session.hostname,
            session.root if session.root in roots else "",
        )
        if key in rows:
            rows[key]["more"] += 1
            continue
        rows[key] = {
            "address": session.entry.address,
            "entry": session.entry.text,
            "client": session.client,
            "hostname": session.hostname,
            "program": session.program,
            "root": session.root,
            "more": 0,
        }
    too_many = f"more than {MOST_ROWS} different clients have a session"
    if len(rows) > MOST_ROWS:
        return {"name": found.name, "problem": too_many, "sessions": []}
    return {"name": found.name, "problem": found.problem, "sessions": list(rows.values())}
