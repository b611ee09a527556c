# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sessions of CephFS, from what metadata servers and a monitor of Ceph 16.2.15 answered."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, Callable

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph import sessions, watchers
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.cli import Ceph, Connection
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

# As "session ls" gave it for a mount by ceph-fuse, without the counters.
FUSE: dict[str, Any] = {
    "id": 4129,
    "entity": {
        "name": {"type": "client", "num": 4129},
        "addr": {"type": "any", "addr": "127.0.0.12:0", "nonce": 1910348383},
    },
    "state": "open",
    "num_leases": 1,
    "num_caps": 3,
    "request_load_avg": 4,
    "uptime": 1.083999958,
    "requests_in_flight": 0,
    "num_completed_requests": 0,
    "num_completed_flushes": 0,
    "reconnecting": False,
    "last_trim_completed_requests_tid": 5,
    "last_trim_completed_flushes_tid": 0,
    "delegated_inos": [],
    "inst": "client.4129 127.0.0.12:0/1910348383",
    "completed_requests": [],
    "prealloc_inos": [],
    "client_metadata": {
        "client_features": {"feature_bits": "0x000000000007ffff"},
        "metric_spec": {"metric_flags": {"feature_bits": "0x000000000000ffff"}},
        "ceph_sha1": "618f440892089921c3e944a991122ddc44e60516",
        "ceph_version": "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific "
        "(stable)",
        "entity_id": "admin",
        "hostname": "worker-2",
        "mount_point": "/mnt",
        "pid": "10270",
        "root": "/",
    },
}
# The kernel's client has other metadata (fs/ceph/mds_client.c, create_session_full_msg).
KERNEL: dict[str, Any] = {
    **FUSE,
    "inst": "client.4305 v1:10.0.0.5:0/422650892",
    "client_metadata": {
        "entity_id": "csi-cephfs-node",
        "hostname": "worker-1",
        "kernel_version": "6.1.0-18-amd64",
        "root": "/volumes/csi/csi-vol-1/5a4b",
    },
}
DAEMON = {"gid": 4121, "name": "files", "rank": 0, "incarnation": 5, "state": "up:active"}
# As "fs dump" gave it, without what is not looked at; then as it was after "fs fail".
MDSMAP: dict[str, Any] = {
    "flags": 18,
    "max_mds": 1,
    "in": [0],
    "up": {"mds_0": 4121},
    "failed": [],
    "damaged": [],
    "stopped": [],
    "info": {"gid_4121": DAEMON},
    "fs_name": "files",
}
FAILED = {**MDSMAP, "in": [0], "up": {}, "failed": [0], "info": {}}
OSDS = {"fsid": "e85137c6", "blocklist": {}, "range_blocklist": {}}
EACCES = "Error EACCES: problem getting command descriptions from mds.4121\n"
# Of Ceph 14.2.21, whose keyring was given and is enough for the monitor.
EPERM = (
    "2026-11-26 11:36:39.983 7f3c4e380700 -1 auth: unable to find a keyring on /etc/ceph/keyring,: "
    "(2) No such file or directory\n"
    "2026-11-26 11:36:44.419 7f3c2affd700  0 client.4135 ms_handle_reset on v2:127.0.0.1:6816/284\n"
    "Error EPERM: problem getting command descriptions from mds.4121\n"
)


class Tools:
    """``ceph``. ``maps`` and ``answers``: what each question about the filesystems and to a
    metadata server shows, the last one for ever.
    """

    def __init__(self, maps: Sequence[Any], answers: Sequence[Any]) -> None:
        self.maps, self.answers = list(maps), list(answers)
        self.asked: list[list[str]] = []
        self.slept: list[float] = []

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        self.asked.append(list(argv))
        if "osd" in argv:
            answer: Any = OSDS
        elif "mon" in argv:
            answer = {"mons": [{"addr": "10.0.0.1:6789/0"}]}
        else:
            queue = self.answers if "tell" in argv else self.maps
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, CommandResult):
            return answer
        return CommandResult(tuple(argv), 0, json.dumps(answer), "", 0.1)

    @property
    def told(self) -> list[list[str]]:
        """What was asked of metadata servers."""
        return [argv[argv.index("tell") + 1 :] for argv in self.asked if "tell" in argv]


def dump(*mdsmaps: dict[str, Any]) -> dict[str, Any]:
    return {"standbys": [], "filesystems": [{"mdsmap": found, "id": 1} for found in mdsmaps]}


def changed(make: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    mdsmap = copy.deepcopy(MDSMAP)
    make(mdsmap)
    return mdsmap


def read(tools: Tools) -> tuple[sessions.FileSystem, ...]:
    return sessions.read_file_systems(Ceph(Connection(), Deadline(60), tools))


def test_who_has_a_session() -> None:
    tools = Tools([dump(MDSMAP)], [[FUSE, KERNEL]])
    (found,) = read(tools)
    assert (found.name, found.problem) == ("files", "")
    fuse, kernel = found.sessions
    assert (fuse.entry.text, fuse.client) == ("127.0.0.12:0/1910348383", "client.4129")
    assert (fuse.hostname, fuse.program, fuse.root) == ("worker-2", "ceph-fuse", "/")
    assert (kernel.entry.address, kernel.program) == ("10.0.0.5", "kernel")
    assert kernel.root == "/volumes/csi/csi-vol-1/5a4b"
    # By its global id; of a rank that is down "ceph tell" aborts.
    assert tools.told == [["mds.4121", "session", "ls", "--format", "json"]]


def test_every_rank_of_every_filesystem_is_asked() -> None:
    def grow(mdsmap: dict[str, Any]) -> None:
        mdsmap["in"], mdsmap["up"] = [0, 1], {"mds_0": 4121, "mds_1": 4122}
        mdsmap["info"]["gid_4122"] = {**DAEMON, "gid": 4122, "rank": 1}

    other = {**MDSMAP, "fs_name": "other", "up": {"mds_0": 5}, "info": {"5": {**DAEMON, "gid": 5}}}
    tools = Tools([dump(changed(grow), other)], [[FUSE], [KERNEL], []])
    files, second = read(tools)
    assert [found.client for found in files.sessions] == ["client.4129", "client.4305"]
    assert second == sessions.FileSystem("other")
    assert [argv[0] for argv in tools.told] == ["mds.4121", "mds.4122", "mds.5"]


def test_no_filesystem_at_all() -> None:
    assert read(Tools([dump()], [[]])) == ()


@pytest.mark.parametrize(
    ("mdsmap", "why"),
    [
        (FAILED, "no metadata server for rank 0"),
        ({**MDSMAP, "in": [], "up": {}, "info": {}}, "no active metadata server"),
        ({**MDSMAP, "damaged": [0]}, "no metadata server for rank 0"),
        ({**MDSMAP, "in": [0, 1]}, "no metadata server for rank 1"),
        *(
            ({**MDSMAP, "info": {"a": {**DAEMON, "state": state}}}, f"rank 0 is {state}")
            for state in ("up:replay", "up:reconnect", "up:rejoin", "up:stopping")
        ),
        ({**MDSMAP, "info": {"a": {**DAEMON, "laggy_since": "2026"}}}, "rank 0 is laggy"),
    ],
)
def test_a_degraded_filesystem_is_not_one_without_sessions(
    mdsmap: dict[str, Any], why: str
) -> None:
    tools = Tools([dump(mdsmap)], [[]])
    (found,) = read(tools)
    assert why in found.problem and found.sessions == () and tools.told == []


def failing(rc: int | None, err: str, **fields: Any) -> CommandResult:
    return CommandResult(("ceph", "tell"), rc, "", err, 0.1, **fields)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (failing(13, EACCES), "Grant mds 'allow *'"),
        (failing(1, EPERM), "Grant mds 'allow *'"),
        (failing(None, "", problem="no answer within 13 s", timed_out=True), "does not answer"),
        ({"sessions": []}, "session ls lacks"),
        (None, "session ls lacks"),
        ([{**FUSE, "inst": "client.4129 :/0"}], "is no client with an address"),
        ([{**FUSE, "inst": "mds.0 127.0.0.1:0/1"}], "is no client with an address"),
        ([{**FUSE, "client_metadata": None}], "session ls lacks"),
    ],
)
def test_a_metadata_server_that_does_not_tell(answer: Any, why: str) -> None:
    (found,) = read(Tools([dump(MDSMAP)], [answer]))
    assert why in found.problem and found.sessions == () and found.name == "files"


def test_the_filesystems_cannot_be_read() -> None:
    for answer in (failing(13, "Error EACCES: access denied\n"), {"filesystems": [{}]}, []):
        (found,) = read(Tools([answer], [[]]))
        assert found.name == "" and "the filesystems could not be read" in found.problem


def test_another_daemon_has_taken_over_meanwhile() -> None:
    later = changed(
        lambda mdsmap: mdsmap.update(up={"mds_0": 7}, info={"gid_7": {**DAEMON, "gid": 7}})
    )
    for after in (dump(later), dump(FAILED), dump()):
        (found,) = read(Tools([dump(MDSMAP), after], [[]]))
        assert "changed while they were read" in found.problem


def test_a_map_that_is_not_understood() -> None:
    for broken in (None, {}, dump({**MDSMAP, "up": {"mds_0": 9}}), dump({**MDSMAP, "in": None})):
        with pytest.raises(StorageOpsError, match="fs dump lacks"):
            sessions.parse_map(broken)


# as the module returns it


def result(tools: Tools, **given: Any) -> tuple[dict[str, Any], list[Any]]:
    options = watchers.make_options(
        {
            **{"images": [], "volumes": [], "observations": 1, "observation_seconds": 0},
            **{"gone": [], "gone_timeout": 60, "rados_namespaces": {}, "sessions": True},
            **given,
        }
    )
    audit = watchers.Watchers(Ceph(Connection(), Deadline(60), tools), options, tools.slept.append)
    state = audit.gather()
    assert "CephFS" in audit.healthy(state) or not options.sessions
    return audit.facts()["ceph"], audit.plan(state).findings


def test_what_was_not_asked_for_is_missing_and_not_empty() -> None:
    ceph, findings = result(Tools([dump(MDSMAP)], [[FUSE]]), sessions=False)
    assert "filesystems" not in ceph and findings == []


def test_clients_that_differ_in_nothing_are_told_once() -> None:
    """A client of the kernel has one session for each volume."""
    root = KERNEL["client_metadata"]["root"]

    def mount(number: int, where: str) -> dict[str, Any]:
        metadata = {**KERNEL["client_metadata"], "root": where}
        inst = f"client.{number} v1:10.0.0.5:0/{number}"
        return {**KERNEL, "inst": inst, "client_metadata": metadata}

    many = [mount(number, f"/volumes/{number}") for number in range(5000)]
    volume = {
        "metadata": {"name": "files"},
        "spec": {
            "csi": {
                "driver": "cephfs.csi.ceph.com",
                "volumeAttributes": {"fsName": "files", "subvolumePath": root},
            }
        },
    }
    tools = Tools([dump(MDSMAP)], [[FUSE, *many, KERNEL]])
    ceph, findings = result(tools, volumes=[volume])
    (found,) = ceph["filesystems"]
    assert findings == [] and len(found["sessions"]) == 3
    assert [one["more"] for one in found["sessions"]] == [0, 4999, 0]
    assert found["sessions"][2]["root"] == root


def test_more_than_can_be_told_is_not_known() -> None:
    many = [
        {**FUSE, "inst": f"client.{number} 10.1.{number // 250}.{number % 250}:0/1"}
        for number in range(sessions.MOST_ROWS + 1)
    ]
    ceph, _findings = result(Tools([dump(MDSMAP)], [many]))
    (found,) = ceph["filesystems"]
    assert found["sessions"] == [] and "different clients have a session" in found["problem"]


def test_sessions_that_are_to_end_are_waited_for() -> None:
    tools = Tools([dump(MDSMAP)], [[FUSE, KERNEL], [FUSE, KERNEL], [FUSE]])
    ceph, findings = result(tools, gone=["10.0.0.5"])
    assert [one["client"] for one in ceph["filesystems"][0]["sessions"]] == ["client.4129"]
    assert findings == [] and tools.slept == [1.0, 1.0]


def test_a_session_that_does_not_end() -> None:
    ceph, (finding,) = result(Tools([dump(MDSMAP)], [[KERNEL]]), gone=["10.0.0.5"], gone_timeout=0)
    assert (finding.verdict, finding.code) == ("refuse", "ceph_session_left")
    assert "10.0.0.5:0/422650892 (client.4305) still has a session at files" in finding.summary
    assert ceph["filesystems"][0]["sessions"]


def test_what_is_not_known_is_a_finding_and_not_waited_for() -> None:
    tools = Tools([dump(FAILED)], [[]])
    _ceph, (finding,) = result(tools, gone=["10.0.0.5"])
    assert (finding.verdict, finding.code, tools.slept) == ("report", "ceph_not_read", [])
