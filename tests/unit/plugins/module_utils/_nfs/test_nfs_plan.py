# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of an NFS share, by what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs import plan as nfs_plan
from ansible_collections.storage_ops.runbooks.plugins.module_utils._nfs.plan import (
    DENIED,
    FAILED,
    NO_ANSWER,
    NO_EXPORT,
    NO_HELPER,
    NO_ROUTE,
    NOT_OFFERED,
    NOT_TRIED,
    OK,
    REFUSED,
    Attempt,
    NfsOptions,
    NfsState,
    Port,
    Share,
    Target,
)

SHARE = "nas1:/vol/a"
PORTS = (Port("nfs", "192.0.2.10", 2049, OK, 0.01), Port("portmapper", "192.0.2.10", 111, OK, 0.01))


def attempts(**states: Any) -> tuple[Attempt, ...]:
    """By ``v3``, ``v41`` and so on: the seconds of a mount that was done, or its state."""
    made = []
    for name, state in states.items():
        version = ".".join(name[1:])
        made.append(
            Attempt(version, OK, state)
            if isinstance(state, (int, float))
            else Attempt(version, state, 1.0, f"mount.nfs: {state}")
        )
    return tuple(made)


def findings(share: Share, options: NfsOptions | None = None, **state: Any) -> list[Finding]:
    return nfs_plan.plan(NfsState("n1", (share,), **state), options or NfsOptions()).findings


def share(*ports: Port, used: tuple[str, ...] = (), **states: Any) -> Share:
    return Share(
        Target(SHARE, used),
        ("192.0.2.10",),
        "",
        ("192.0.2.10: dev eth1",),
        ports or PORTS,
        attempts(**states),
    )


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    assert (found[0].control, found[0].name, found[0].node) == ("STOR-09", SHARE, "n1")
    return found[0]


def test_nothing_to_say() -> None:
    assert findings(share(v3=0.1, v40=0.1, v41=0.1, v42=0.2)) == []
    # What mount.nfs gets to by itself is in order, whatever else is not offered or shut.
    assert findings(share(v3=REFUSED, v41=0.1, v42=NOT_OFFERED)) == []
    assert findings(share(v3=0.1, v40=NOT_OFFERED, v41=NOT_OFFERED, v42=NOT_OFFERED)) == []


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ((REFUSED,), "TCP 2049 of 192.0.2.10 refuses connections"),
        ((NO_ROUTE,), "there is no way to TCP 2049 of 192.0.2.10 (why)"),
        ((NO_ANSWER,), "TCP 2049 of 192.0.2.10 does not answer"),
        ((REFUSED, NO_ANSWER), "TCP 2049 of 192.0.2.10, 192.0.2.11 does not answer"),
        ((FAILED,), "TCP 2049 of 192.0.2.10 cannot be connected to (why)"),
    ],
)
def test_no_way_to_the_portal(states: tuple[str, ...], words: str) -> None:
    ports = [
        Port("nfs", f"192.0.2.1{number}", 2049, state, 3.0, "why")
        for number, state in enumerate(states)
    ]
    finding = only(findings(share(*ports)))
    assert finding.summary == f"{SHARE} cannot be mounted: {words}"
    assert (finding.severity, finding.verdict) == ("major", "report")
    assert finding.evidence["ports"][0] == f"nfs at 192.0.2.10 TCP 2049: {states[0]} (3.00 s): why"


def test_one_address_of_two_is_enough() -> None:
    ports = [
        Port("nfs", "192.0.2.10", 2049, NO_ANSWER, 3.0),
        Port("nfs", "192.0.2.11", 2049, OK, 0.1),
    ]
    assert findings(share(*ports, v42=0.1)) == []


def test_what_was_not_looked_at_is_no_outage() -> None:
    """With one that was, all is known; without, nothing is."""
    untried = Port("nfs", "192.0.2.10", 2049, NOT_TRIED, 0.0, "no answer before the deadline")
    closed = Port("nfs", "192.0.2.11", 2049, REFUSED, 0.1)
    for one in (
        Share(Target(SHARE), unmeasured="no answer before the deadline"),
        Share(Target(SHARE), ("192.0.2.10", "192.0.2.11"), ports=(untried, closed)),
    ):
        finding = only(findings(one))
        assert (finding.severity, finding.code) == ("minor", "evidence_unreadable")
        assert "no answer before the deadline" in finding.reason
    assert findings(share(untried, PORTS[0], v42=0.1)) == []


def test_name_without_an_address() -> None:
    finding = only(findings(Share(Target(SHARE), name_problem="Name or service not known")))
    assert (
        "the name nas1 has no address on this node (Name or service not known)" in finding.summary
    )


@pytest.mark.parametrize(
    ("wanted", "offered", "asked", "instead"),
    [
        ("4.2", {"v3": 0.1, "v40": 0.1, "v41": 0.3, "v42": NOT_OFFERED}, "NFS 4.2", "nfsvers=4.1"),
        ("4.1", {"v3": 0.1, "v40": 0.1, "v41": NOT_OFFERED, "v42": 0.1}, "NFS 4.1", "nfsvers=4.2"),
        (
            "4",
            {"v3": 0.1, "v40": NOT_OFFERED, "v41": NOT_OFFERED, "v42": NOT_OFFERED},
            "NFS 4",
            "nfsvers=3",
        ),
        ("3", {"v3": NOT_OFFERED, "v40": 0.1, "v41": 30, "v42": 30}, "NFS 3", "nfsvers=4.0"),
    ],
)
def test_version_that_is_not_offered(
    wanted: str, offered: dict[str, Any], asked: str, instead: str
) -> None:
    finding = only(
        findings(share(**offered), NfsOptions(wanted_version=wanted, mount_options=("sec=krb5",)))
    )
    assert finding.summary == f"{SHARE}: the server does not offer {asked}"
    assert (
        f"enable {asked} on the server, or set mountOptions [{instead}, sec=krb5] in the "
        "StorageClass" in finding.reason
    )
    assert "PersistentVolumes that exist keep their own mountOptions" in finding.reason


def test_a_version_in_use_is_wanted() -> None:
    """A server that lost it will not mount the volume again."""
    assert findings(share(used=("4.2",), v41=0.1, v42=0.1)) == []
    assert (
        "does not offer NFS 4.2"
        in only(findings(share(used=("4.2",), v41=0.1, v42=NOT_OFFERED))).summary
    )
    # What the user says comes first.
    assert (
        findings(share(used=("4.2",), v41=0.1, v42=NOT_OFFERED), NfsOptions(wanted_version="4.1"))
        == []
    )


def test_none_offered() -> None:
    finding = only(findings(share(v3=NOT_OFFERED, v41=NOT_OFFERED)))
    assert finding.summary == f"{SHARE}: the server does not offer any version that was tried"
    assert finding.reason.endswith("no version that was tried can be mounted in time")


@pytest.mark.parametrize(
    ("states", "severity", "summary", "reason"),
    [
        (
            {"v3": 0.1, "v42": 12},
            "minor",
            "mounting it as NFS 4.2 takes 12.0 s",
            "set mountOptions [nfsvers=3]",
        ),
        (
            {"v3": 0.1, "v42": NO_ANSWER},
            "major",
            "mounting it as NFS 4.2 was not done within 1 s",
            "its NFS threads and mountd",
        ),
        (
            {"v3": 0.1, "v42": DENIED},
            "major",
            "the server denies this node access as NFS 4.2",
            "another sec=, or the server exports nothing to this node any more; set mountOptions",
        ),
        (
            {"v3": DENIED},
            "major",
            "the server denies this node access as NFS 3",
            "or there is no such export",
        ),
        (
            {"v3": 0.1, "v42": NO_EXPORT},
            "major",
            "the server has no such export in NFS 4.2",
            "fsid=0), which NFS 3 does not have: correct the path; or the export does not list an "
            "address of this node",
        ),
        (
            {"v42": FAILED},
            "major",
            "it cannot be mounted as NFS 4.2: mount.nfs: failed",
            "no version that was tried",
        ),
    ],
)
def test_cause(states: dict[str, Any], severity: str, summary: str, reason: str) -> None:
    finding = only(findings(share(**states)))
    assert (finding.severity, finding.summary) == (severity, f"{SHARE}: {summary}")
    assert reason in finding.reason


@pytest.mark.parametrize("said", [NOT_OFFERED, NO_ANSWER, FAILED])
def test_nfs_3_that_gets_not_at_the_portmapper(said: str) -> None:
    ports = (PORTS[0], Port("portmapper", "192.0.2.10", 111, NO_ANSWER, 3.0))
    finding = only(findings(share(*ports, v3=said, v42=0.1), NfsOptions(wanted_version="3")))
    assert finding.summary == f"{SHARE}: it cannot be mounted as NFS 3: mount.nfs: {said}"
    assert (
        "NFS 3 also needs the portmapper and mountd: portmapper at 192.0.2.10 TCP 111: no answer"
        in finding.reason
    )
    assert "set mountOptions [nfsvers=4.2]" in finding.reason


def test_limit_of_open_files() -> None:
    """Only where NFS 3 alone is slow and the limit is too large; else it is the server."""
    three = NfsOptions(wanted_version="3")
    finding = only(findings(share(v3=25, v41=0.2), three, limit=1073741816))
    assert (
        finding.summary == f"{SHARE}: NFS 3 takes 25 s where NFS 4.1 takes 0.2 s, "
        "with a limit of 1073741816 open files"
    )
    assert "lower LimitNOFILE of the runtime (STOR-10)" in finding.reason
    assert finding.evidence["limit_nofile"] == 1073741816
    for found in (
        findings(share(v3=25, v41=0.2), three),
        findings(share(v3=25, v41=22), three, limit=1073741816),
        findings(share(v3=0.2, v41=25), limit=1073741816),
    ):
        assert "LimitNOFILE" not in only(found).reason


def test_what_was_not_found_out_is_refused() -> None:
    helper = only(findings(share(v42=NO_HELPER)))
    assert (helper.verdict, helper.reason) == (
        "refuse",
        "mount.nfs is not installed, so no mount could be timed: install nfs-common (nfs-utils)",
    )
    late = only(findings(share(v42=NOT_TRIED)))
    assert (late.verdict, late.reason) == (
        "refuse",
        "NFS 4.2 could not be tried: mount.nfs: not tried",
    )


def test_a_control_of_which_nothing_was_measured_is_not_assessed() -> None:
    """What was measured of another share counts all the same."""
    unmeasured = findings(share(v42=NO_HELPER))
    with pytest.raises(StorageOpsError, match=f"{SHARE}: .*mount.nfs is not installed") as raised:
        nfs_plan.require_measured(unmeasured)
    assert raised.value.code == "program_missing"
    nfs_plan.require_measured([*unmeasured, *findings(share(v42=DENIED))])
    nfs_plan.require_measured([])


def test_what_may_have_held_it_up_is_said() -> None:
    beside = replace(share(), attempts=(Attempt("4.2", OK, 12.0, alone=False),))
    finding = only(findings(beside, hanging=("pid 7 (/sbin/mount.nfs nas2:/b /mnt)",)))
    assert "no time was left to try this one alone" in finding.reason
    assert "1 other mounts hang on this node" in finding.reason
    assert finding.evidence["hanging_mounts"] == ["pid 7 (/sbin/mount.nfs nas2:/b /mnt)"]


def test_what_is_left_is_named() -> None:
    state = NfsState(
        "n1", (), left=("pid 8 (mount.nfs)", "pid 9 (mount)"), left_mounts=("nas1:/a of pid 8",)
    )
    (finding,) = nfs_plan.plan(state, NfsOptions()).findings
    assert (finding.kind, finding.name) == ("process", "pid 8, pid 9")
    assert finding.summary == "the kernel still holds 2 processes and 1 mounts of this check"
    assert finding.evidence == {"processes": list(state.left), "mounts": list(state.left_mounts)}


def test_shares_are_shown_on_one_line() -> None:
    odd = Share(Target("nas1:/a\nb\udcff"), name_problem="x")
    (finding,) = findings(odd)
    assert finding.name == "nas1:/a\\nb\\udcff"
    assert "\n" not in finding.summary
    assert nfs_plan.describe(odd)["share"] == "nas1:/a\\nb\\udcff"


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("nas1:/a", "nas1"),
        ("nas1.example.com:/", "nas1.example.com"),
        ("192.0.2.1:/a:b", "192.0.2.1"),
        ("[fd00::1]:/a", "fd00::1"),
    ],
)
def test_share(text: str, server: str) -> None:
    assert nfs_plan.split_share(text)[0] == server
    assert Target(text).server == server


@pytest.mark.parametrize(
    "text", ["", "nas1", "nas1:a", ":/a", "fd00::1:/a", "-o:/a", "/a", "nas 1:/a", "nas1:/a\0"]
)
def test_no_share(text: str) -> None:
    with pytest.raises(StorageOpsError, match="not an NFS share"):
        nfs_plan.split_share(text)


@pytest.mark.parametrize(
    ("rc", "text", "state"),
    [
        (0, "", OK),
        (-9, "", NO_ANSWER),
        (137, "", NO_ANSWER),
        (32, "mount.nfs: Protocol not supported", NOT_OFFERED),
        (
            32,
            "mount.nfs: requested NFS version or transport protocol is not supported",
            NOT_OFFERED,
        ),
        (32, "mount.nfs: access denied by server while mounting 192.0.2.10:/x", DENIED),
        (
            32,
            "mount.nfs: mounting 192.0.2.10:/x failed, reason given "
            "by server: No such file or directory",
            NO_EXPORT,
        ),
        (32, "mount.nfs: Connection timed out", NO_ANSWER),
        (
            32,
            "mount: /x: bad option; for several filesystems (e.g. nfs, cifs) you might need a "
            "/sbin/mount.<type> helper program.",
            NO_HELPER,
        ),
        (32, "mount.nfs: an incorrect mount option was specified", FAILED),
        (None, "not installed", NO_HELPER),
    ],
)
def test_what_mount_says(rc: int | None, text: str, state: str) -> None:
    assert nfs_plan.classify(rc, text) == state


def test_port() -> None:
    assert nfs_plan.port_of(["sec=sys"]) == 2049
    assert nfs_plan.port_of(["port=2050", "port=20490"]) == 20490
    # Python reads no number of more than 4,300 digits.
    assert nfs_plan.port_of([f"port={'1' * 5000}"]) == 2049
    assert nfs_plan.port_of(["port=x"]) == nfs_plan.port_of(["port=70000"]) == 2049
