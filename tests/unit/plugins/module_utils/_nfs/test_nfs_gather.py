# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS shares: which are looked at, how they are mounted, and what a portmapper says."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import bounded
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    Deadline,
    Reply,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs import runbook as nfs
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs.plan import (
    NO_ANSWER,
    NOT_TRIED,
    OK,
    REFUSED,
    Attempt,
    NfsOptions,
    NfsState,
    Share,
    Target,
    not_applicable,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs.runtime_limit import (
    LimitOptions,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.tests.unit.support.clocks import Steps
from ansible_collections.storage_ops.runbooks.tests.unit.support.mountinfo import (
    parse_mountinfo,
)

ROOT = "/var/lib/kubelet"


def test_silent_servers_leave_time_for_the_mounts_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of one tenant, by as many names or addresses, used up the deadline before anything was
    mounted: what others have was never measured.
    """
    budgets: list[float] = []

    def call(
        _function: Any, items: Any, _timeout: float, budget: float, **_how: Any
    ) -> list[Reply]:
        budgets.append(budget)
        return [Reply(value=["192.0.2.1"])] * len(items)

    monkeypatch.setattr(nfs, "call_each", call)
    # It stands still, as if each look took no time at all.
    host = Host(Deadline(290, lambda: 0.0), 30.0)
    names = nfs._resolve(host, {f"n{number}.example.com": "evil" for number in range(300)})
    assert len(names) == 300
    monkeypatch.setattr(nfs, "call_each", lambda *_given, **_how: budgets.append(_given[3]) or [])
    nfs._connect(host, {("192.0.2.1", 2049, True): "evil"}, options())
    assert budgets == [72.5, 72.5]


SHARED = (
    Target("10.0.0.0:/evil", owner="evil"),
    Target("192.0.2.1:/evil", owner="evil"),
    Target("192.0.2.1:/victim", owner="victim"),
    Target("192.0.2.2:/victim", owner="victim"),
    *(Target(f"10.0.{number}.1:/evil", owner="evil") for number in range(300)),
)


@pytest.fixture
def until_the_victim_was_heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One look, with a budget that is over once the first worker has gone through its items."""
    ended: list[int] = []
    kill = bounded._kill
    monkeypatch.setattr(bounded, "_kill", lambda pid: (ended.append(pid), kill(pid)))
    clock = Steps((lambda: bool(ended), 10_000.0))
    monkeypatch.setattr(
        nfs,
        "call_each",
        lambda *given, **how: bounded.call_each(*given, **{**how, "clock": clock}),
    )
    yield
    assert ended


def test_a_name_that_several_tenants_have_is_asked_in_the_turn_of_each(
    monkeypatch: pytest.MonkeyPatch, until_the_victim_was_heard: None
) -> None:
    """Whoever had it mounted first had it asked last, behind any number of names of its own that no
    name server answers.
    """

    def look_up(server: str, *_given: Any, **_how: Any) -> list[Any]:
        if server.startswith("10."):
            time.sleep(600)
        return [(0, 0, 0, "", (server, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(nfs, "_routes", lambda _host, addresses: dict.fromkeys(addresses, ""))
    monkeypatch.setattr(nfs, "_connect", lambda _host, places, _options: dict.fromkeys(places, ()))
    shares = nfs._reached(Host(Deadline(9000), 5000), SHARED, options())
    assert [share.addresses for share in shares[:4]] == [
        (),
        ("192.0.2.1",),
        ("192.0.2.1",),
        ("192.0.2.2",),
    ]
    assert not any(share.addresses for share in shares[4:])


def test_an_address_that_several_tenants_have_is_asked_in_the_turn_of_each(
    monkeypatch: pytest.MonkeyPatch, until_the_victim_was_heard: None
) -> None:
    """As for names; whose route is only evidence is asked in the same way."""
    routes: list[Mapping[str, Hashable]] = []

    def connect(service: str, address: str, port: int, *_given: Any) -> tuple[nfs.Port, bytes]:
        if address.startswith("10."):
            time.sleep(600)
        return nfs.Port(service, address, port, OK, 0.0), b""

    monkeypatch.setattr(
        nfs, "_resolve", lambda _host, servers: {one: ((one,), "", "") for one in servers}
    )
    monkeypatch.setattr(
        nfs,
        "_routes",
        lambda _host, found: (routes.append(found), dict.fromkeys(found, ""))[1],
    )
    monkeypatch.setattr(nfs, "_connection", connect)
    shares = nfs._reached(Host(Deadline(9000), 5000), SHARED, options(connect_timeout=1000.0))
    states = [{port.state for port in share.ports} for share in shares]
    assert states[1:4] == [{OK}] * 3
    assert not any(OK in found for found in states[4:])
    assert routes[0]["192.0.2.1"] == ("evil", "victim")
    assert routes[0]["192.0.2.2"] == "victim"


def options(**params: Any) -> NfsOptions:
    return nfs.nfs_options(
        {**{name: spec["default"] for name, spec in nfs.NFS_SPEC.options.items()}, **params}
    )


def test_defaults_are_the_same_in_both_places() -> None:
    assert options() == nfs.nfs_options({}) == NfsOptions()


def test_options() -> None:
    given = options(
        shares=[" nas:/a ", "nas:/a"],
        wanted_version="4.1",
        versions=["3"],
        mount_options=["sec=krb5, hard", "port=1"],
    )
    assert given.shares == ("nas:/a",)
    assert given.versions == ("3", "4.1")
    assert [option.strip() for option in given.mount_options] == ["sec=krb5", "hard", "port=1"]
    assert options(wanted_version="4", versions=["3"]).versions == ("3", "4.0", "4.1", "4.2")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"shares": ["nas"]}, "not an NFS share"),
        ({"shares": [""]}, "not an NFS share"),
        ({"mount_options": ["ro,vers=3"]}, "'vers=3' may not be"),
        ({"mount_options": ["nfsvers=4"]}, "may not be"),
        ({"mount_options": ["v4.1"]}, "may not be"),
        ({"mount_options": ["bg"]}, "may not be"),
        ({"mount_timeout": 0.5}, "mount_timeout is 0.5; give at least 1"),
        ({"connect_timeout": float("nan")}, "connect_timeout is nan"),
        ({"slow_seconds": 31.0}, "slow_seconds is 31"),
        ({"slow_seconds": 0.0}, "slow_seconds is 0"),
    ],
)
def test_options_that_cannot_be(params: dict[str, Any], words: str) -> None:
    with pytest.raises(StorageOpsError, match=words):
        options(**params)


MOUNTINFO = rf"""1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:50 / {ROOT}/pods/a/volumes/kubernetes.io~nfs/x rw - nfs4 nas1:/a rw,vers=4.1,hard,proto=tcp,sec=krb5,port=2050,addr=192.0.2.1
3 1 0:51 / {ROOT}/pods/b/volumes/kubernetes.io~csi/y/mount rw - nfs nas1:/b\040c rw,vers=3,hard,proto=tcp,sec=sys
4 1 0:52 / {ROOT}/pods/c/volumes/kubernetes.io~csi/z/mount rw - nfs4 [fd00::1]:/z rw,vers=4,minorversion=2
5 1 0:53 / /mnt/mine rw - nfs4 nas2:/m rw,vers=4.2
6 1 0:54 / {ROOT}/pods/d/volumes/kubernetes.io~csi/f/mount rw - nfs4 odd rw,vers=4.2
7 1 0:55 / {ROOT}/pods/e/volumes/kubernetes.io~csi/f/mount rw - fuse.s3fs nas3:/x rw
"""


def test_one_share_for_each_server_and_tenant() -> None:
    assert nfs.targets_of(parse_mountinfo(MOUNTINFO, "1"), ROOT) == [
        Target("nas1:/a", ("4.1",), ("proto=tcp", "sec=krb5", "port=2050"), 1, "a"),
        Target("nas1:/b c", ("3",), ("proto=tcp", "sec=sys"), 1, "b"),
        Target("[fd00::1]:/z", ("4.2",), (), 1, "c"),
    ]
    # The namespaces of the pods, of which one may have any number, with any names for a server.
    found = nfs.targets_of(parse_mountinfo(MOUNTINFO, "1"), ROOT, {"a": "team", "b": "team"})
    assert [target.turn for target in found] == ["team", "team", "?"]
    # Each of them has its own share tried all the same.
    assert [target.owner for target in found] == ["team", "team", "c"]
    assert Target("nas1:/a").turn == "nas1"


OTHER_WAYS = ("proto=tcp,sec=sys,port=32049", "proto=tcp,sec=krb5", "proto=rdma,sec=sys")


@pytest.mark.parametrize("other", OTHER_WAYS)
def test_several_servers_at_one_address_are_looked_at_each(other: str) -> None:
    """As behind a load balancer: that of the first mount was green while the others were down."""
    ways = ["proto=tcp,sec=sys", other, "proto=tcp,sec=sys"]
    lines = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(
        f"{number} 1 0:{number} / {ROOT}/pods/{number}/volumes/kubernetes.io~csi/x/mount rw - nfs4 "
        f"10.0.0.5:/e{number} rw,vers=4.1,hard,{way}\n"
        for number, way in enumerate(ways, 2)
    )
    assert nfs.targets_of(parse_mountinfo(lines, "1"), ROOT) == [
        Target("10.0.0.5:/e2", ("4.1",), ("proto=tcp", "sec=sys"), 1, "2"),
        Target("10.0.0.5:/e3", ("4.1",), tuple(other.split(",")), 1, "3"),
        Target("10.0.0.5:/e4", ("4.1",), ("proto=tcp", "sec=sys"), 1, "4"),
    ]
    # Of one namespace they are of one server.
    found = nfs.targets_of(parse_mountinfo(lines, "1"), ROOT, dict.fromkeys("234", "team"))
    assert [(one.share, one.mounts, one.owner) for one in found] == [
        ("10.0.0.5:/e2", 2, "team"),
        ("10.0.0.5:/e3", 1, "team"),
    ]


def test_each_tenants_own_share_is_tried() -> None:
    """The first that was mounted was, of all tenants: one that a tenant had removed on the server
    told of every other's as well, and what was wrong with those was not found.
    """
    staged = f"{ROOT}/plugins/kubernetes.io/csi/nfs.example.com/{'0' * 64}/globalmount"
    pods = {"a": "tenant-a", "b": "tenant-b", "c": "tenant-b"}
    rows = [
        (f"{ROOT}/pods/a/volumes/kubernetes.io~nfs/data", "nas:/export/a/removed"),
        # Staged by a driver, and so of whom its pods are.
        (staged, "nas:/export/b"),
        (f"{ROOT}/pods/b/volumes/kubernetes.io~csi/x/mount", "nas:/export/b"),
        (f"{ROOT}/pods/c/volumes/kubernetes.io~csi/y/mount", "nas:/export/b2"),
        # Two tenants share it.
        (f"{ROOT}/pods/a/volumes/kubernetes.io~nfs/more", "nas:/export/all"),
        (f"{ROOT}/pods/b/volumes/kubernetes.io~nfs/more", "nas:/export/all"),
    ]
    lines = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(
        f"{number} 1 0:{number} / {point} rw - nfs4 {source} rw,vers=4.2\n"
        for number, (point, source) in enumerate(rows, 2)
    )
    found = nfs.targets_of(parse_mountinfo(lines, "1"), ROOT, pods)
    assert [(one.share, one.mounts, one.owner) for one in found] == [
        ("nas:/export/a/removed", 1, "tenant-a"),
        ("nas:/export/b", 3, "tenant-b"),
        ("nas:/export/all", 2, "tenant-a, tenant-b"),
    ]


def test_what_no_time_was_left_for_is_no_server_that_fails(tmp_path: Path) -> None:
    """A tenant's servers that drop packets used up the deadline, and others were called broken."""
    late = Host(Deadline(0), 10, str(tmp_path))
    assert nfs._resolve(late, {"localhost": "x"}) == {
        "localhost": ((), "", "no answer before the deadline")
    }
    place = ("127.0.0.1", 2049, True)
    ports = nfs._connect(late, {place: "x"}, NfsOptions())[place]
    assert [(port.service, port.state) for port in ports] == [
        ("nfs", NOT_TRIED),
        ("portmapper", NOT_TRIED),
    ]


class Node(Host):
    """A node with these mounts."""

    def __init__(self, root: Path, mounts: str, kubelet: bool = True) -> None:
        super().__init__(Deadline(60), 10, str(root))
        (root / "proc/1").mkdir(parents=True)
        (root / "proc/1/mountinfo").write_text(mounts)
        (root / ROOT[1:]).mkdir(parents=True) if kubelet else None

    def require_root(self) -> None:
        """Files of a folder need no root."""


def shares_of(node: Node) -> nfs.NfsShares:
    return nfs.NfsShares(node, NfsOptions(), LimitOptions(), ROOT)


@pytest.mark.parametrize("kubelet", [True, False])
def test_a_node_without_nfs(tmp_path: Path, kubelet: bool) -> None:
    lines = MOUNTINFO.splitlines()
    audit = shares_of(Node(tmp_path, f"{lines[0]}\n{lines[4]}\n{lines[6]}\n", kubelet))
    assert list(audit.not_applicable(audit.gather())) == ["STOR-09"]


def test_a_mount_that_is_no_share_is_not_assessed(tmp_path: Path) -> None:
    lines = MOUNTINFO.splitlines()
    with pytest.raises(StorageOpsError, match="is no NFS share") as raised:
        shares_of(Node(tmp_path, f"{lines[0]}\n{lines[5]}\n")).gather()
    assert raised.value.code == "evidence_unreadable"


@pytest.mark.parametrize("measured", [True, False])
def test_only_an_audit_does_not_judge_what_was_not_measured(tmp_path: Path, measured: bool) -> None:
    """The module that measures tells it as a finding, beside what it has measured."""
    node = Node(tmp_path, MOUNTINFO)
    audit = nfs.NfsShares(node, NfsOptions(), LimitOptions(), ROOT, measured)
    state = NfsState("n1", (Share(Target("nas1:/a"), attempts=(Attempt("4.2", NOT_TRIED),)),))
    if measured:
        with pytest.raises(StorageOpsError, match="could not be tried"):
            audit.plan(state)
    else:
        assert [finding.verdict for finding in audit.plan(state).findings] == ["refuse"]


def test_a_share_is_applicable() -> None:
    state = NfsState("n1", (Share(Target("nas1:/a")),))
    assert not_applicable(state) == {}


def test_mount_command() -> None:
    share = Share(Target("nas1:/a", options=("sec=sys",)))
    command = nfs.mount_command(
        share, "3", NfsOptions(mount_options=("hard", "rsize=4096")), 1048577, "/run/x"
    )
    assert command == [
        *("unshare", "--mount", "--propagation", "slave", "timeout", "-s", "KILL", "30"),
        *("prlimit", "--nofile=1048577:1048577", "mount", "-n", "-t", "nfs", "-o"),
        "vers=3,sec=sys,hard,rsize=4096,ro,soft,retry=0,nosharecache,nolock",
        *("nas1:/a", "/run/x"),
    ]
    assert nfs.mount_command(share, "4.1", NfsOptions(), 0, "/run/x")[6:] == [
        *(
            "KILL",
            "30",
            "mount",
            "-n",
            "-t",
            "nfs",
            "-o",
            "vers=4.1,sec=sys,ro,soft,retry=0,nosharecache",
            "nas1:/a",
            "/run/x",
        )
    ]


class Clock:
    """A deadline of our own."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def remaining(self) -> float:
        return self.seconds


class Mounts:
    """Stands for the mounts: what each came to, by the share, the version and how many were tried
    at once.
    """

    def __init__(
        self, together: dict[str, Attempt], alone: dict[str, Attempt], seconds: float = 300
    ) -> None:
        self.deadline, self.together, self.alone = Clock(seconds), together, alone
        self.tried: list[list[str]] = []

    def each(self, _host: Any, jobs: Any, *_rest: Any) -> list[Attempt]:
        names = [f"{share.target.share} {version}" for share, version in jobs]
        self.tried.append(names)
        found = [(self.alone if len(self.tried) > 1 else self.together)[name] for name in names]
        self.deadline.seconds -= max(attempt.seconds for attempt in found)
        return found


def mount_all(
    mounts: Mounts,
    monkeypatch: pytest.MonkeyPatch,
    versions: tuple[str, ...] = ("4.1", "4.2"),
    names: tuple[str, ...] = ("good:/a", "hung:/a"),
    owner: Callable[[str], str] = lambda _name: "",
) -> dict[int, list[Attempt]]:
    monkeypatch.setattr(nfs, "_mount_each", mounts.each)
    shares = [Share(Target(name, owner=owner(name)), ("192.0.2.1",)) for name in names]
    return nfs._mount_all(mounts, shares, NfsOptions(versions=versions), 0, "/run/x")  # type: ignore[arg-type]


QUICK = {
    f"{name}:/a {version}": Attempt(version, OK, 0.1)
    for name in ("good", "hung")
    for version in ("3", "4.1", "4.2")
}
SILENT = {
    f"{name}:/a {version}": Attempt(version, NO_ANSWER, 30.0)
    for name in ("good", "hung")
    for version in ("3", "4.1", "4.2")
}


def test_quick_ones_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = Mounts(QUICK, {})
    assert mount_all(mounts, monkeypatch)[0] == [QUICK["good:/a 4.1"], QUICK["good:/a 4.2"]]
    assert len(mounts.tried) == 1


def test_slow_ones_are_measured_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was held up by the other is quick then, and the one that hangs is asked once for
    NFS 4.
    """
    mounts = Mounts(
        {**SILENT, "good:/a 4.1": Attempt("4.1", OK, 29.0)},
        {**SILENT, **{k: v for k, v in QUICK.items() if "good" in k}},
    )
    found = mount_all(mounts, monkeypatch)
    assert [attempt.state for attempt in found[0]] == [OK, OK]
    assert [(attempt.state, attempt.alone) for attempt in found[1]] == [
        (NO_ANSWER, True),
        (NO_ANSWER, True),
    ]
    assert mounts.tried[1:] == [["good:/a 4.1"], ["good:/a 4.2"], ["hung:/a 4.1"]]


def took(seconds: dict[str, float], names: tuple[str, ...]) -> dict[str, Attempt]:
    """Attempts of the shares, by the seconds of each server; what takes 30 has no answer."""
    return {
        f"{name} {version}": Attempt(
            version, NO_ANSWER if seconds[name[:4]] >= 30 else OK, seconds[name[:4]]
        )
        for name in names
        for version in NfsOptions.versions
    }


@pytest.mark.parametrize("seconds", [29.0, 9.9])
def test_a_slow_server_uses_up_its_own_turns_alone(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A tenant's one with many mounts, which makes that of another look silent in company."""
    names = (*(f"evil:/{number}" for number in range(8)), "good:/a", "good:/b", "good:/c")
    mounts = Mounts(
        took({"evil": 29.0, "good": 30.0}, names), took({"evil": seconds, "good": 2.0}, names)
    )
    found = mount_all(mounts, monkeypatch, NfsOptions.versions, names)
    good = [attempt for number in (8, 9, 10) for attempt in found[number]]
    assert {(attempt.state, attempt.alone) for attempt in good} == {(OK, True)}
    evil = [attempt.alone for number in range(8) for attempt in found[number]]
    assert True in evil and False in evil


def test_a_namespace_with_many_names_for_servers_has_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten that accept connections and answer nothing left no time for the server of another, which
    was then told not to answer (N7).
    """
    names = (*(f"ev{number:02}:/a" for number in range(10)), "good:/a")
    seconds = {name[:4]: 33.0 for name in names}
    mounts = Mounts(took(seconds, names), took({**seconds, "good": 0.5}, names), 283)
    owner = {"good:/a": "shop"}
    found = mount_all(
        mounts, monkeypatch, NfsOptions.versions, names, lambda name: owner.get(name, "mallory")
    )
    assert {(attempt.state, attempt.alone) for attempt in found[10]} == {(OK, True)}
    # The first turn is by the order of the mounts, and takes one attempt of the other namespace.
    assert [tried[0][:4] for tried in mounts.tried[1:6]] == ["ev00", *["good"] * 4]
    # Within a namespace, each server has its turn.
    assert len({tried[0][:4] for tried in mounts.tried[6:]}) == len(mounts.tried[6:]) > 3


def test_a_quick_server_is_not_kept_waiting_by_a_silent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of its mounts come first, as long as they are quick."""
    names = ("hung:/a", "good:/a", "good:/b")
    mounts = Mounts(
        took({"hung": 30.0, "good": 20.0}, names), took({"hung": 30.0, "good": 0.5}, names)
    )
    mount_all(mounts, monkeypatch, NfsOptions.versions, names)
    assert [tried[0][:4] for tried in mounts.tried[1:]] == ["good"] * 8 + ["hung"] * 2


def test_without_time_it_is_said_that_they_were_not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mount_all(Mounts(SILENT, {}, seconds=31), monkeypatch)
    assert [attempt.alone for attempt in (*found[0], *found[1])] == [False] * 4


def test_no_mount_is_begun_that_would_not_have_its_time() -> None:
    share = Share(Target("nas1:/a"), ("192.0.2.1",))
    (attempt,) = nfs._mount_each(
        Mounts({}, {}, seconds=31), [(share, "3")], NfsOptions(), 0, "/run/x"
    )  # type: ignore[arg-type]
    assert attempt.state == NOT_TRIED
    assert attempt.error.startswith("31 s of the deadline were left")


@pytest.mark.parametrize(
    ("value", "problem", "timed_out", "state"),
    [
        ([0, "", 0.1], "", False, OK),
        ([-9, "", 30.0], "", False, NO_ANSWER),
        (None, "no answer within 36.0 s, abandoned as pid 7", True, NO_ANSWER),
        (None, "no answer before the deadline", False, NOT_TRIED),
        ([1, "unshare: unshare failed: Operation not permitted", 0.1], "", False, NOT_TRIED),
        (
            [127, "unshare: failed to execute timeout: No such file or directory", 0.1],
            "",
            False,
            NOT_TRIED,
        ),
    ],
)
def test_what_became_of_a_mount(value: Any, problem: str, timed_out: bool, state: str) -> None:
    """What kept it from being tried at all is never laid at the server's door."""
    assert nfs._attempt("4.1", value, problem, timed_out).state == state


@pytest.fixture
def server() -> Any:
    """A listener on loopback that gives one answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    yield listener
    listener.close()


def test_connections(server: socket.socket) -> None:
    port = server.getsockname()[1]
    assert nfs._connection("nfs", "127.0.0.1", port, 5)[0].state == OK
    server.close()
    refused, _answer = nfs._connection("nfs", "127.0.0.1", port, 5)
    assert (refused.state, refused.text) == (REFUSED, "Connection refused")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (struct.pack(">8I", 0x8000001C, 1, 1, 0, 0, 0, 0, 20048), 20048),
        (struct.pack(">8I", 0x8000001C, 1, 1, 0, 0, 0, 0, 0), 0),
        (struct.pack(">7I", 0x80000018, 1, 1, 0, 0, 0, 1), 0),
        (b"garbage", 0),
        (b"", 0),
    ],
)
def test_portmapper(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, answer: bytes, expected: int
) -> None:
    asked: list[bytes] = []

    def answering() -> None:
        connection, _peer = server.accept()
        asked.append(connection.recv(4096))
        connection.sendall(answer)
        connection.close()

    thread = threading.Thread(target=answering)
    thread.start()
    connect = nfs._connection
    port = server.getsockname()[1]
    there = {111: port, 20048: port}
    monkeypatch.setattr(
        nfs,
        "_connection",
        lambda service, address, number, *rest: connect(service, address, there[number], *rest),
    )
    found = nfs._ask_portmapper("127.0.0.1", 5)
    thread.join()
    # RFC 1833: program 100005 (mountd), version 3, protocol 6 (TCP).
    assert struct.unpack(">4I", asked[0][-16:]) == (100005, 3, 6, 0)
    assert struct.unpack(">I", asked[0][:4])[0] == 0x80000000 + len(asked[0]) - 4
    assert [one.service for one in found] == (
        ["portmapper", "mountd"] if expected else ["portmapper"]
    )
    assert found[0].text == ("" if expected else "names no mountd for version 3")


def may_mount(folder: Path, sets: str = "000001ffffffffff") -> None:
    """A process of the node, with its capabilities."""
    (folder / "status").write_text("".join(f"Cap{name}:\t{sets}\n" for name in ("Prm", "Bnd")))
    (folder / "ns").mkdir(exist_ok=True)
    for name, number in (("mnt", 1), ("user", 4026531837)):
        if not (folder / "ns" / name).is_symlink():
            (folder / "ns" / name).symlink_to(f"{name}:[{number}]")


def test_a_mount_that_hangs_is_told_from_another_one_of_its_pid(tmp_path: Path) -> None:
    """The name in /proc/PID/stat may look like the fields after it."""

    def process(pid: int, started: int) -> None:
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text("mount.nfs4\n")
        (folder / "cmdline").write_text("/sbin/mount.nfs4\0nas:/a\0/mnt\0")
        may_mount(folder)
        fields = " ".join(str(number) for number in range(3, 22))
        (folder / "stat").write_text(f"{pid} (mount) S 1 2 3) {fields} {started} 23\n")

    host = Host(Deadline(60), 10, str(tmp_path))
    process(7, 100)
    process(8, 200)
    before = nfs._mounting(host)
    assert before == {
        ("7", "100"): "pid 7 (/sbin/mount.nfs4 nas:/a /mnt)",
        ("8", "200"): "pid 8 (/sbin/mount.nfs4 nas:/a /mnt)",
    }
    process(8, 201)
    assert set(before) & set(nfs._mounting(host)) == {("7", "100")}
    # What cannot mount NFS has only given itself that name.
    may_mount(tmp_path / "proc/7", "00000000a80425fb")
    assert set(nfs._mounting(host)) == {("8", "201")}


def test_no_pods_process_is_a_mount_of_this_check(tmp_path: Path) -> None:
    """A tenant may make the reading of a command line hang: it was an error of all of STOR-09."""

    class Hanging(Host):
        def command_line(self, pid: str) -> list[str]:
            if pid == "78":
                raise StorageOpsError("no answer")
            return super().command_line(pid)

    for pid, group in (("77", "system.slice/ssh.service"), ("78", f"kubepods/pod{'0' * 32}/x")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(f"0::/{group}\n")
        (tmp_path / f"proc/{pid}/cmdline").write_text("/sbin/mount.nfs\0nas:/a\0/run/x\0")
    node = Hanging(Deadline(60), 10, str(tmp_path))
    assert nfs._ours(node, "/run/x") == ("pid 77 (mount.nfs)",)
    # This module may have come by a pod on the node, and so had its mount.
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/cgroup").write_text(f"0::/kubepods/pod{'1' * 32}/x\n")
    (tmp_path / "proc/77/cgroup").write_text(f"0::/kubepods/pod{'1' * 32}/y\n")
    assert nfs._ours(node, "/run/x") == ("pid 77 (mount.nfs)",)
    (tmp_path / "proc/78/cgroup").write_text("0::/system.slice/x.service\n")
    with pytest.raises(StorageOpsError, match="pid 78: no answer"):
        nfs._ours(node, "/run/x")


@pytest.mark.parametrize(("own", "told"), [("1", ("nas:/a of pid 77",)), ("2", ())])
def test_mounts_of_a_check_that_came_by_a_pod(
    tmp_path: Path, own: str, told: tuple[str, ...]
) -> None:
    """Its processes are in the control group of that pod. What another pod mounts is its own."""
    for pid in ("1", "77", "self"):
        folder = tmp_path / f"proc/{pid}"
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/mnt").symlink_to(f"mnt:[{pid}]")
        (folder / "root").symlink_to("/")
        (folder / "mountinfo").write_text("9 1 0:9 / /run/x rw - nfs4 nas:/a rw\n" * (pid == "77"))
    (tmp_path / "proc/1/cgroup").write_text("0::/init.scope\n")
    (tmp_path / "proc/77/cgroup").write_text(f"0::/kubepods/pod{'1' * 32}/x\n")
    (tmp_path / "proc/self/cgroup").write_text(f"0::/kubepods/pod{own * 32}/y\n")
    assert nfs._left_mounts(Host(Deadline(60), 10, str(tmp_path)), "/run/x") == told


def test_of_a_long_command_line_the_first_words_are_read(tmp_path: Path) -> None:
    """It may be as long as the memory of its process (prctl(2), PR_SET_MM_MAP)."""
    (tmp_path / "proc/7").mkdir(parents=True)
    with (tmp_path / "proc/7/cmdline").open("wb") as file:
        file.write(b"/bin/web\0--all\0")
        file.truncate(2**40)
    words = Host(Deadline(60), 10, str(tmp_path)).command_line("7")
    assert words[:2] == ["/bin/web", "--all"]
    assert len(words) < 70_000
