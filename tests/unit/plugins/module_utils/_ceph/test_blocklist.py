# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The blocklist's plan, and Ceph's answers as they were recorded.

The OSD map and the metadata server's are of Ceph 16.2.15. What older releases (``blacklist``) and
ceph-mgr say is written after their documentation and source, since neither could be run here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph import blocklist
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.addresses import (
    parse_entry,
    parse_network,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.blocklist import (
    ADD,
    REMOVE,
    BlocklistOptions,
    BlocklistState,
    Runbook,
    parse_dump,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.cli import (
    Ceph,
    Connection,
    Denied,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import (
    ActionFailed,
    Finding,
    Plan,
    Prevented,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
YEAR = 31_536_000
# Seconds, and days, from then on until what stands in ends: 2026-11-29, 03:33:33.
STAND_IN = 660_813
MARKED = STAND_IN / 86400
OSDS = [
    {
        "osd": 0,
        "public_addrs": {"addrvec": [{"type": "v2", "addr": "192.0.2.77:6808", "nonce": 613}]},
        "public_addr": "192.0.2.77:6809/613",
    }
]
MDS = {
    "gid": 4117,
    "addr": "10.0.0.20:6817/2732083159",
    "addrs": {"addrvec": [{"type": "v1", "addr": "10.0.0.20:6817", "nonce": 2732083159}]},
}
FS = {"standbys": [], "filesystems": [{"mdsmap": {"info": {"gid_4117": MDS}}, "id": 1}]}
MGR = {
    "active_name": "x",
    "active_addrs": {"addrvec": [{"type": "v2", "addr": "10.0.0.21:6800", "nonce": 11}]},
    "active_addr": "10.0.0.21:6801/11",
    "active_clients": [{"addrvec": [{"type": "v2", "addr": "10.0.0.21:0", "nonce": 4711}]}],
}


def dump(
    entries: dict[str, float] | None = None, ranges: dict[str, float] | None = None
) -> dict[str, Any]:
    """``osd dump`` with entries that last for so many days from now on."""

    def ends(days: dict[str, float] | None) -> dict[str, str]:
        return {
            text: (NOW + timedelta(days=left)).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
            for text, left in (days or {}).items()
        }

    return {
        "epoch": 12,
        "fsid": "e85137c6",
        "osds": OSDS,
        "blocklist": ends(entries),
        "range_blocklist": ends(ranges),
    }


def octopus(entries: dict[str, str]) -> dict[str, Any]:
    """The same of a release that has the old name, and no ranges."""
    return {"epoch": 12, "fsid": "e85137c6", "osds": OSDS, "blacklist": entries}


def options(
    *entries: str,
    present: bool = True,
    protected: Sequence[str] = (),
    accept_daemons: bool = False,
    renew_below: float = 0.5,
    accept_gap: bool = False,
    ends: dict[str, float] | None = None,
) -> BlocklistOptions:
    return BlocklistOptions(
        tuple(parse_entry(text) for text in entries),
        present,
        YEAR,
        renew_below,
        tuple(parse_network(text) for text in protected),
        accept_daemons,
        accept_gap,
        {parse_entry(text): NOW + timedelta(seconds=left) for text, left in (ends or {}).items()},
    )


class Tool:
    """``ceph`` that answers from a table, and has a blocklist that changes."""

    def __init__(self, first: dict[str, Any], **answers: tuple[int | None, str, str]) -> None:
        self.dump, self.answers, self.asked = first, answers, []
        self.stubborn = False

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        words = [
            word
            for word in argv[argv.index("--connect-timeout") + 2 :]
            if word not in ("--format", "json")
        ]
        self.asked.append(words)
        rc, out, err = self.answers.get("_".join(words[:2]), None) or self._answer(words)
        return CommandResult(
            tuple(argv),
            rc,
            out,
            err,
            0.1,
            "" if rc is not None else "no answer within 13.0 s, abandoned as pid 1",
        )

    @property
    def changes(self) -> list[str]:
        """Commands that change something."""
        probes = set(blocklist._PROBES.values())
        return [
            " ".join(words)
            for words in self.asked
            if ("add" in words or "rm" in words) and not probes & set(words)
        ]

    def _answer(self, words: list[str]) -> tuple[int, str, str]:
        if words == ["osd", "dump"]:
            return 0, json.dumps(self.dump), ""
        if words in (["mgr", "dump"], ["fs", "dump"]):
            return 0, json.dumps(MGR if words[0] == "mgr" else FS), ""
        name = words[1]
        assert name in self.dump, "no valid command found"
        if set(blocklist._PROBES.values()) & set(words):
            return 22, "", "Error EINVAL: unable to parse address"
        is_range, operation, text = (
            "range" in words,
            "add" if "add" in words else "rm",
            words[-2] if "add" in words else words[-1],
        )
        host, _slash, prefix = text.rpartition("/")
        stored = f"cidr:{f'[{host}]' if ':' in host else host}:0/{prefix}" if is_range else text
        entries = self.dump[f"range_{name}" if is_range else name]
        if self.stubborn:
            return 0, "", f"blocklisting {text} until ..."
        if operation == "rm":
            entries.pop(stored, None)
        else:
            until = NOW + timedelta(seconds=int(words[-1]))
            # As Ceph does: what is there stays as it is.
            entries.setdefault(stored, until.strftime("%Y-%m-%dT%H:%M:%S.%f+0000"))
        return 0, "", f"blocklisting {text} until ..."


def runbook(tool: Tool, wanted: BlocklistOptions) -> Runbook:
    return Runbook(Ceph(Connection(user="ops"), Deadline(60), tool), wanted, lambda: NOW)


class Slow(Tool):
    """Each command takes so many seconds, and none is started once the deadline is over."""

    def __init__(self, first: dict[str, Any]) -> None:
        super().__init__(first)
        self.seconds, self.now = 0.0, 0.0

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        if timeout <= 0:
            return CommandResult(tuple(argv), None, "", "", 0, "not started: no time left")
        self.now += self.seconds
        return super().__call__(argv, timeout)

    def runbook(self, deadline: float, wanted: BlocklistOptions) -> Runbook:
        clock = Deadline(deadline, lambda: self.now)
        return Runbook(Ceph(Connection(), clock, self), wanted, lambda: NOW)


def carried_out(work: Runbook, plan: Plan) -> str:
    """What the run says that has carried it out; empty if all went well."""
    try:
        engine._carry_out(work, plan)
    except StorageOpsError as error:
        return f"{error.code}: {error}"
    return ""


def test_no_entry_is_begun_with_too_little_time() -> None:
    tool = Slow(dump())
    work = tool.runbook(4.9, options("10.0.0.5", "10.0.0.6"))
    plan = work.plan(work.gather())
    assert "less than 5 s are left of the deadline" in carried_out(work, plan)
    assert [action.outcome for action in plan.actions] == ["skipped", "skipped"]
    assert tool.changes == []
    work = tool.runbook(5.0, options("10.0.0.5"))
    assert carried_out(work, work.plan(work.gather())) == ""
    assert tool.changes == [f"osd blocklist add 10.0.0.5:0/0 {YEAR}"]


def test_an_entry_that_was_removed_to_be_renewed_is_added_whatever_the_time_is() -> None:
    """Else the deadline, passing between the two, would have ended the fence."""
    tool = Slow(dump({"10.0.0.5:0/123": 1}))
    work = tool.runbook(14.5, options("10.0.0.5:0/123", "10.0.0.6", accept_gap=True))
    plan = work.plan(work.gather())
    tool.seconds = 7.0
    # But nothing else is begun after it.
    assert "less than 5 s are left of the deadline" in carried_out(work, plan)
    assert [action.outcome for action in plan.actions] == ["done", "done", "skipped"]
    assert tool.changes == [
        "osd blocklist rm 10.0.0.5:0/123",
        f"osd blocklist add 10.0.0.5:0/123 {YEAR}",
    ]
    assert list(tool.dump["blocklist"]) == ["10.0.0.5:0/123"]


def judged(tool: Tool, wanted: BlocklistOptions) -> list[Finding]:
    """The findings of a run."""
    work = runbook(tool, wanted)
    return work.plan(work.gather()).findings


def planned(osd_dump: dict[str, Any], wanted: BlocklistOptions, **state: Any) -> Plan:
    """The plan for what was read, nothing else."""
    found = BlocklistState(
        NOW, "client.ops", parse_dump(osd_dump), **{"denied": {}, "daemons": (), **state}
    )
    return blocklist.plan(found, wanted, lambda *arguments: ["ceph", *arguments])


def commands(plan: Plan) -> list[str]:
    return [" ".join(action.command) for action in plan.actions]


def test_a_dump() -> None:
    # Nothing stands in for a single client, whenever its entry ends.
    there = {"10.0.0.5:0/0": 1, "10.0.0.5:6800/3": MARKED, "(unrecognized address family 0)/0": 1}
    read = parse_dump(
        dump(
            there,
            {"cidr:10.0.0.7:0/24": 3, "cidr:10.0.0.5:0/32": MARKED, "cidr:[fd00::5]:0/128": 7},
        )
    )
    assert [tuple(found.to_result(NOW).values()) for found in read.entries] == [
        ("10.0.0.5:0/0", "address", "10.0.0.5", "2026-11-22T12:00:00Z", False, 0),
        ("10.0.0.5:6800/3", "client", "10.0.0.5", "2026-11-29T03:33:33Z", False, 0),
        ("10.0.0.7/24", "range", "10.0.0.0/24", "2026-11-24T12:00:00Z", False, 0),
        ("10.0.0.5/32", "range", "10.0.0.5/32", "2026-11-29T03:33:33Z", True, 0),
        ("fd00::5/128", "range", "fd00::5/128", "2026-11-28T12:00:00Z", False, 0),
    ]
    names = ["entry", "kind", "address", "until", "stand_in", "clients"]
    assert [*read.entries[0].to_result(NOW)] == names
    assert (read.fsid, read.word, read.ranges, read.osds) == (
        "e85137c6",
        "blocklist",
        True,
        ("192.0.2.77",),
    )


def test_of_the_clients_at_an_address_one_is_told() -> None:
    """Ceph adds one for each dead owner of a lock, so a tenant's clients can add thousands, and
    what modules return has an end.
    """
    many = {f"10.0.0.5:0/{number}": number % 4000 for number in range(1, 10_000)}
    others = {"10.0.0.5:0/0": 1, "10.0.0.6:0/9": 2, "[fd00::5]:0/7": 3}
    read = parse_dump(dump({**many, **others}, {"cidr:10.0.0.0:0/24": 4}))
    assert len(read.entries) == 10_003
    told = read.to_result(NOW)
    assert [(found["entry"], found["kind"], found["clients"]) for found in told] == [
        ("10.0.0.5:0/0", "address", 0),
        ("10.0.0.0/24", "range", 0),
        ("10.0.0.5:0/3999", "client", 9999),
        ("10.0.0.6:0/9", "client", 1),
        ("[fd00::5]:0/7", "client", 1),
    ]


def test_a_dump_of_an_old_release() -> None:
    read = parse_dump(
        octopus(
            {
                "10.0.0.5:0/0": "2026-11-22 12:00:00.000001",
                "v1:10.0.0.6:0/9": "2026-11-22T12:00:00.000000+0200",
            }
        )
    )
    assert (read.word, read.ranges) == ("blacklist", False)
    assert [found.until_text for found in read.entries] == [
        "2026-11-22T12:00:00Z",
        "2026-11-22T10:00:00Z",
    ]
    assert commands(planned(octopus({}), options("10.0.0.5"))) == [
        f"ceph osd blacklist add 10.0.0.5:0/0 {YEAR}"
    ]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"fsid": 1},
        {"fsid": "a", "blocklist": {"10.0.0.5:0/0": "soon"}},
        {"fsid": "a", "blocklist": []},
    ],
)
def test_a_dump_that_is_none(answer: Any) -> None:
    with pytest.raises(StorageOpsError, match="osd dump lacks"):
        parse_dump(answer)


def test_only_the_same_kind_is_the_same_entry() -> None:
    there = dump({"10.0.0.5:0/0": 365, "10.0.0.9:0/7": 365}, {"cidr:10.0.0.0:0/24": 365})
    assert planned(there, options("10.0.0.5", "10.0.0.9:0/7", "10.0.0.8/24")).findings == []
    plan = planned(there, options("10.0.0.5:0/7", "10.0.0.9", "10.0.0.5/32"))
    assert commands(plan) == [
        f"ceph osd blocklist add 10.0.0.5:0/7 {YEAR}",
        f"ceph osd blocklist add 10.0.0.9:0/0 {YEAR}",
        f"ceph osd blocklist range add 10.0.0.5/32 {YEAR}",
    ]
    covered = {
        finding.name: [text.split()[0] for text in finding.evidence["covered_by"]]
        for finding in plan.findings
    }
    assert covered == {
        "10.0.0.5:0/7": ["10.0.0.5:0/0", "10.0.0.0/24"],
        "10.0.0.9:0/0": ["10.0.0.0/24"],
        "10.0.0.5/32": ["10.0.0.5:0/0", "10.0.0.0/24"],
    }


def test_only_what_was_named_is_removed() -> None:
    there = dump(
        {"10.0.0.5:0/0": 365, "10.0.0.5:0/7": 365},
        {"cidr:10.0.0.7:0/24": 365, "cidr:10.0.0.0:0/24": 1, "cidr:10.0.0.0:0/25": 1},
    )
    wanted = options("10.0.0.5", "10.0.0.0/24", "10.0.0.77", present=False)
    assert commands(planned(there, wanted)) == [
        "ceph osd blocklist rm 10.0.0.5:0/0",
        "ceph osd blocklist range rm 10.0.0.7/24",
        "ceph osd blocklist range rm 10.0.0.0/24",
    ]


# An entry, and where and how Ceph stores it and what stands in for it.
RENEWALS = [
    ("10.0.0.5", ("entries", "10.0.0.5:0/0"), ("ranges", "cidr:10.0.0.5:0/32")),
    ("fd00::5", ("entries", "[fd00::5]:0/0"), ("ranges", "cidr:[fd00::5]:0/128")),
    ("10.0.0.0/24", ("ranges", "cidr:10.0.0.0:0/24"), ("ranges", "cidr:10.0.0.1:0/24")),
    ("10.0.0.5/32", ("ranges", "cidr:10.0.0.5:0/32"), ("entries", "10.0.0.5:0/0")),
]


@pytest.mark.parametrize(("entry", "stored", "stand_in"), RENEWALS)
def test_a_renewal_leaves_no_moment_without_an_entry(
    entry: str, stored: tuple[str, str], stand_in: tuple[str, str]
) -> None:
    there = dump(**{stored[0]: {stored[1]: 182}})
    kind = "range " if stand_in[0] == "ranges" else ""
    text = (
        stand_in[1].replace("cidr:", "").replace("[", "").replace("]", "").replace(":0/", "/")
        if kind
        else stand_in[1]
    )
    own = ("range " if stored[0] == "ranges" else "") + "{} " + parse_entry(entry).text
    assert commands(planned(there, options(entry))) == [
        f"ceph osd blocklist {kind}add {text} {STAND_IN}",
        f"ceph osd blocklist {own.format('rm')}",
        f"ceph osd blocklist {own.format('add')} {YEAR}",
        f"ceph osd blocklist {kind}rm {text}",
    ]
    assert planned(there, options(entry, renew_below=0.4)).findings == []


def test_a_renewal_with_what_stands_there_already() -> None:
    # Somebody else's, so it stays.
    there = dump({"10.0.0.5:0/0": 1}, {"cidr:10.0.0.5:0/32": 1})
    assert commands(planned(there, options("10.0.0.5"))) == [
        "ceph osd blocklist rm 10.0.0.5:0/0",
        f"ceph osd blocklist add 10.0.0.5:0/0 {YEAR}",
    ]
    ending = dump({"10.0.0.5:0/0": 1}, {"cidr:10.0.0.5:0/32": 0.01})
    assert "about to expire" in planned(ending, options("10.0.0.5")).findings[0].reason
    assert (
        planned(
            dump({"10.0.0.5:0/0": YEAR / 86400}, {"cidr:10.0.0.5:0/32": 1}), options("10.0.0.5")
        ).findings
        == []
    )
    # A range with host bits needs nothing to stand in.
    assert commands(planned(dump(ranges={"cidr:10.0.0.7:0/24": 1}), options("10.0.0.0/24"))) == [
        f"ceph osd blocklist range add 10.0.0.0/24 {YEAR}"
    ]


@pytest.mark.parametrize(("entry", "stored", "stand_in"), RENEWALS)
@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_renewal_that_was_killed_is_finished(
    entry: str, stored: tuple[str, str], stand_in: tuple[str, str], done: int
) -> None:
    """After each of its commands; whoever is asked in between is blocked, and in the end it is as
    if nobody had been killed.
    """
    tool = Tool(dump(**{stored[0]: {stored[1]: 1}}))
    first = runbook(tool, options(entry, accept_daemons=True))
    for action in first.plan(first.gather()).actions[:done]:
        first.apply(action)
    assert (
        stand_in[1] in tool.dump[{"entries": "blocklist", "ranges": "range_blocklist"}[stand_in[0]]]
    )
    again = runbook(tool, options(entry, accept_daemons=True))
    (finding,) = again.plan(again.gather()).findings
    for action in finding.repair:
        again.apply(action)
        assert any(
            other.entry.covers(parse_entry(entry)) for other in parse_dump(tool.dump).entries
        )
    assert again.verify(finding) == [
        f"{parse_entry(entry).text} is in the blocklist until 2027-11-21T12:00:00Z"
    ]
    assert [found.text for found in parse_dump(tool.dump).entries] == [parse_entry(entry).text]
    assert again.plan(again.gather()).findings == []
    if done == 3:
        assert (
            finding.reason == "a run was killed while it renewed the entry"
            and "was left behind" in finding.summary
        )


@pytest.mark.parametrize(
    ("days", "known"),
    [
        (MARKED, True),
        (MARKED - 7, True),
        (MARKED - 8 + 1, True),
        (MARKED + 100 / 86400, True),
        (MARKED - 50 / 86400, True),
    ]
    + [
        (MARKED + 1, False),
        (MARKED + 130 / 86400, False),
        (MARKED - 70 / 86400, False),
        (7, False),
        (3, False),
    ],
)
def test_what_stands_in_is_known_by_its_end(days: float, known: bool) -> None:
    there = dump({"10.0.0.5:0/0": 300}, {"cidr:10.0.0.5:0/32": days})
    assert commands(planned(there, options("10.0.0.5"))) == (
        ["ceph osd blocklist range rm 10.0.0.5/32"] if known else []
    )
    # It goes only with the entry that was asked for, and by its own name.
    assert commands(planned(there, options("10.0.0.5:0/7", "10.0.0.6", present=True)))[2:] == []
    assert commands(planned(there, options("10.0.0.5", present=False))) == [
        "ceph osd blocklist rm 10.0.0.5:0/0"
    ]
    assert commands(planned(there, options("10.0.0.5/32", present=False))) == [
        "ceph osd blocklist range rm 10.0.0.5/32"
    ]


def test_what_stands_in_stays_while_it_lasts_longer_than_the_entry() -> None:
    there = dump({"10.0.0.5:0/0": 2}, {"cidr:10.0.0.5:0/32": MARKED})
    assert planned(there, options("10.0.0.5", renew_below=0)).findings == []
    # Nor does it count as the range that was asked for.
    ranges = dump(ranges={"cidr:10.0.0.0:0/24": 1, "cidr:10.0.0.1:0/24": MARKED})
    assert commands(planned(ranges, options("10.0.0.0/24", renew_below=0.01))) == [
        "ceph osd blocklist range rm 10.0.0.0/24",
        f"ceph osd blocklist range add 10.0.0.0/24 {YEAR}",
        "ceph osd blocklist range rm 10.0.0.1/24",
    ]


def test_an_address_and_the_range_of_one_are_both_wanted() -> None:
    for wanted in (options("10.0.0.5", "10.0.0.5/32"), options("10.0.0.5/32", "10.0.0.5")):
        tool = Tool(dump({"10.0.0.5:0/0": 1}))
        work = runbook(tool, wanted)
        for finding in work.plan(work.gather()).findings:
            for action in finding.repair:
                work.apply(action)
            work.verify(finding)
        assert {found.text for found in parse_dump(tool.dump).entries} == {
            "10.0.0.5:0/0",
            "10.0.0.5/32",
        }
        assert work.plan(work.gather()).findings == []
    left = dump({"10.0.0.5:0/0": 300}, {"cidr:10.0.0.5:0/32": MARKED})
    assert commands(planned(left, options("10.0.0.5/32", "10.0.0.5"))) == [
        "ceph osd blocklist range rm 10.0.0.5/32",
        f"ceph osd blocklist range add 10.0.0.5/32 {YEAR}",
    ]


def test_what_is_left_behind_goes_without_a_look_at_the_daemons() -> None:
    there = Tool(
        dump({"10.0.0.20:0/0": 300}, {"cidr:10.0.0.20:0/32": MARKED}),
        mgr_dump=(13, "", "Error EACCES: access denied"),
    )
    (finding,) = judged(there, options("10.0.0.20", protected=["10.0.0.20"]))
    assert [action.verb for action in finding.repair] == ["remove_blocklist_entry"]
    assert ["mgr", "dump"] not in there.asked


@pytest.mark.parametrize("check", [True, False])
def test_what_became_of_each_entry(check: bool) -> None:
    """By which a ledger tells what is ours: what was not there, and what was there for a shorter
    time.
    """
    tool = Tool(dump({"10.0.0.6:0/0": 1, "10.0.0.7:0/0": 300}, {"cidr:10.0.0.0:0/24": 300}))
    work = runbook(tool, options("10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.0/24"))
    plan = work.plan(work.gather())
    for action in [] if check else plan.actions:
        work.apply(action)
    day, more, year = "2026-11-22T12:00:00Z", "2027-09-17T12:00:00Z", "2027-11-21T12:00:00Z"
    told = work.facts()["entries"]
    assert [tuple(entry.values()) for entry in told] == [
        ("10.0.0.5:0/0", "address", False, "", False, "" if check else year),
        ("10.0.0.6:0/0", "address", True, day, True, day if check else year),
        ("10.0.0.7:0/0", "address", True, more, False, more),
        ("10.0.0.0/24", "range", True, more, False, more),
    ]
    assert [*told[0]] == ["entry", "kind", "was_there", "until_before", "renewed", "until"]


def test_what_is_refused_is_not_renewed() -> None:
    work = runbook(Tool(dump({"10.0.0.6:0/0": 1})), options("10.0.0.6", protected=["10.0.0.6"]))
    work.plan(work.gather())
    (told,) = work.facts()["entries"]
    assert (told["was_there"], told["renewed"]) == (True, False)


@pytest.mark.parametrize(
    ("osd_dump", "entry"),
    [
        (dump({"10.0.0.5:0/7": 1}), "10.0.0.5:0/7"),
        (octopus({"10.0.0.5:0/0": "2026-11-22 12:00:00.1"}), "10.0.0.5"),
    ],
)
def test_a_renewal_that_nothing_could_stand_in_for(osd_dump: dict[str, Any], entry: str) -> None:
    plan = planned(osd_dump, options(entry, "10.0.0.99"))
    assert plan.actions == [] and [finding.verdict for finding in plan.findings] == [
        "refuse",
        "refuse",
    ]
    assert "Ceph cannot prolong it" in plan.findings[0].reason and plan.findings[0].named
    assert (
        plan.findings[1].reason
        == "nothing is changed, since " + parse_entry(entry).text + " is refused"
    )


# Nautilus (Ceph 14): the old name of the commands, no ranges, and times in the monitor's own zone.
@pytest.mark.parametrize("entry", ["10.0.0.5", "10.0.0.5:0/7"])
def test_an_entry_is_removed_and_added_where_that_does_no_harm(entry: str) -> None:
    text = parse_entry(entry).text
    there = octopus({text: "2026-11-21 13:00:00.123456"})
    assert "set accept_gap" in planned(there, options(entry)).findings[0].reason
    renewed = [f"ceph osd blacklist rm {text}", f"ceph osd blacklist add {text} {YEAR}"]
    assert commands(planned(there, options(entry, accept_gap=True))) == renewed
    assert (
        planned(octopus({text: "2027-11-21 12:00:00.1"}), options(entry, accept_gap=True)).findings
        == []
    )
    # Where something can stand in, it does.
    ranges = commands(planned(dump({"10.0.0.5:0/0": 1}), options("10.0.0.5", accept_gap=True)))
    assert ranges[0] == f"ceph osd blocklist range add 10.0.0.5/32 {STAND_IN}"


HOUR = 3600.0
GIVEN_BACK = [
    f"range add 10.0.0.5/32 {STAND_IN}",
    "rm 10.0.0.5:0/0",
    "add 10.0.0.5:0/0 3600",
    "range rm 10.0.0.5/32",
]


@pytest.mark.parametrize(
    ("days", "end", "done"),
    [
        (365, HOUR, GIVEN_BACK),
        # It would have ended by itself by now, or is about to.
        (365, -HOUR, ["rm 10.0.0.5:0/0"]),
        (365, 59, ["rm 10.0.0.5:0/0"]),
        # Given back already; and taken off by whoever had put it there.
        ((HOUR + 119) / 86400, HOUR, []),
        ((HOUR + 121) / 86400, HOUR, GIVEN_BACK),
        ((HOUR - 121) / 86400, HOUR, GIVEN_BACK),
        (None, HOUR, []),
    ],
)
def test_what_was_there_before_is_given_back_as_it_was(
    days: float | None, end: float, done: list[str]
) -> None:
    there = dump({} if days is None else {"10.0.0.5:0/0": days})
    given = options("10.0.0.5", present=False, ends={"10.0.0.5": end})
    assert commands(planned(there, given)) == [f"ceph osd blocklist {step}" for step in done]
    tool = Tool(there, mgr_dump=(13, "", "Error EACCES: access denied"))
    work = runbook(tool, given)
    for finding in work.plan(work.gather()).findings:
        assert finding.verdict == "repair", finding.reason
        for action in finding.repair:
            work.apply(action)
        assert work.verify(finding)
    assert work.plan(work.gather()).findings == []
    if len(done) != 1:
        assert ("10.0.0.5:0/0 is there until" in work.healthy(work.gather())) == (days is not None)


def test_what_is_given_back_is_one_entry_and_nobody_elses_business() -> None:
    """A range that is there with two spellings; and what is protected was not ours to spare before
    either.
    """
    twice = dump(ranges={"cidr:10.0.0.0:0/24": HOUR / 86400, "cidr:10.0.0.9:0/24": HOUR / 86400})
    done = commands(
        planned(twice, options("10.0.0.0/24", present=False, ends={"10.0.0.0/24": HOUR}))
    )
    assert [step.partition("range ")[2] for step in done] == [
        f"add 10.0.0.1/24 {STAND_IN}",
        "rm 10.0.0.0/24",
        "add 10.0.0.0/24 3600",
        "rm 10.0.0.9/24",
        "rm 10.0.0.1/24",
    ]
    given = options("10.0.0.5", present=False, ends={"10.0.0.5": HOUR}, protected=["10.0.0.5"])
    assert len(planned(dump({"10.0.0.5:0/0": 365}), given).actions) == 4


@pytest.mark.parametrize(
    ("entry", "there"),
    [
        ("10.0.0.5", dump({"10.0.0.5:0/0": 300})),
        ("10.0.0.0/24", dump(ranges={"cidr:10.0.0.9:0/24": 300})),
    ],
)
@pytest.mark.parametrize("steps", range(5))
def test_a_run_that_is_killed_while_it_gives_back_loses_no_entry(
    entry: str, there: dict[str, Any], steps: int
) -> None:
    """After whichever step, the client is blocked, and the next run ends with the operator's entry
    and its end, and with nothing else.
    """
    tool = Tool(copy.deepcopy(there))
    given = options(entry, present=False, ends={entry: 20 * 86400})
    work = runbook(tool, given)
    actions = work.plan(work.gather()).actions
    # Nothing goes that nothing else stands in for at that moment.
    assert all(action.subject.needs for action in actions if action.subject.operation == "rm")
    for action in actions[:steps]:
        work.apply(action)
    blocked = parse_dump(tool.dump).entries
    assert any(found.entry.covers(parse_entry(entry)) for found in blocked)
    again = runbook(tool, given)
    for finding in again.plan(again.gather()).findings:
        for action in finding.repair:
            again.apply(action)
        assert again.verify(finding)
    (left,) = parse_dump(tool.dump).entries
    assert left.entry == parse_entry(entry) and left.until == NOW + timedelta(days=20)


def test_what_is_given_back_after_a_kill_is_blocked_until_the_release_has_ended() -> None:
    """The release names what stood in, too, and in whatever order: it goes last."""
    between = dump(ranges={"cidr:10.0.0.5:0/32": MARKED})
    ends = {"10.0.0.5": 20 * 86400.0}
    for entries in (("10.0.0.5", "10.0.0.5/32"), ("10.0.0.5/32", "10.0.0.5")):
        tool = Tool(copy.deepcopy(between))
        work = runbook(tool, options(*entries, present=False, ends=ends))
        for finding in work.plan(work.gather()).findings:
            for action in finding.repair:
                work.apply(action)
            assert work.verify(finding)
        assert tool.changes == [
            "osd blocklist add 10.0.0.5:0/0 1728000",
            "osd blocklist range rm 10.0.0.5/32",
        ]
    # Its end has come meanwhile: all of it goes.
    for left in (between, dump({"10.0.0.5:0/0": 9}, {"cidr:10.0.0.5:0/32": MARKED})):
        tool = Tool(copy.deepcopy(left))
        work = runbook(tool, options("10.0.0.5", present=False, ends={"10.0.0.5": 1}))
        for action in work.plan(work.gather()).actions:
            work.apply(action)
        assert parse_dump(tool.dump).entries == ()


def test_what_is_there_already_stands_in_and_stays_when_an_entry_is_given_back() -> None:
    range_of_one = dump({"10.0.0.5:0/0": 300}, {"cidr:10.0.0.5:0/32": 400})
    given = options("10.0.0.5", present=False, ends={"10.0.0.5": HOUR})
    assert commands(planned(range_of_one, given)) == [
        "ceph osd blocklist rm 10.0.0.5:0/0",
        "ceph osd blocklist add 10.0.0.5:0/0 3600",
    ]
    ending = dump({"10.0.0.5:0/0": 300}, {"cidr:10.0.0.5:0/32": 0.03})
    assert planned(ending, given).findings[0].verdict == "refuse"


def test_what_nothing_can_stand_in_for_is_added_where_it_is_missing() -> None:
    """A single client, or any address of a release without ranges: who was killed has left nothing
    that says so, and rather an operator's entry comes back until its end than is lost.
    """
    client = options("10.0.0.5:0/7", present=False, ends={"10.0.0.5:0/7": HOUR})
    removed = ["ceph osd blocklist rm 10.0.0.5:0/7"]
    added = ["ceph osd blocklist add 10.0.0.5:0/7 3600"]
    assert commands(planned(dump({"10.0.0.5:0/7": 300}), client)) == removed + added
    assert commands(planned(dump(), client)) == added
    over = options("10.0.0.5:0/7", present=False, ends={"10.0.0.5:0/7": 59})
    assert commands(planned(dump(), over)) == []
    old = options("10.0.0.5", present=False, ends={"10.0.0.5": HOUR})
    assert commands(planned(octopus({}), old)) == ["ceph osd blacklist add 10.0.0.5:0/0 3600"]


def test_the_stand_in_must_be_there_when_the_entry_goes() -> None:
    tool = Tool(dump({"10.0.0.5:0/0": 1}))
    work = runbook(tool, options("10.0.0.5", accept_daemons=True))
    first, second, *_rest = work.plan(work.gather()).actions
    work.apply(first)
    tool.dump["range_blocklist"].clear()
    with pytest.raises(ActionFailed, match="another client has removed it"):
        work.apply(second)
    assert "10.0.0.5:0/0" in tool.dump["blocklist"]


def test_what_stands_in_goes_only_when_the_entry_is_there_again() -> None:
    tool = Tool(dump({"10.0.0.5:0/0": 1}))
    work = runbook(tool, options("10.0.0.5", accept_daemons=True))
    *first, last = work.plan(work.gather()).actions
    for action in first:
        work.apply(action)
    tool.dump["blocklist"].clear()
    with pytest.raises(ActionFailed, match="another client has removed it"):
        work.apply(last)
    assert "cidr:10.0.0.5:0/32" in tool.dump["range_blocklist"]


def test_a_whole_run() -> None:
    tool = Tool(dump({"10.0.0.6:0/0": 1, "10.0.0.7:0/1": 9}))
    work = runbook(tool, options("10.0.0.5", "10.0.0.6", "10.0.1.0/24"))
    plan = work.plan(work.gather())
    assert tool.changes == []
    for finding in plan.findings:
        for action in finding.repair:
            work.apply(action)
        assert work.verify(finding) == [
            f"{finding.name} is in the blocklist until 2027-11-21T12:00:00Z"
        ]
    assert [
        " ".join(action.command[-len(words.split()) :])
        for action, words in zip(plan.actions, tool.changes)
    ] == tool.changes
    assert set(tool.dump["blocklist"]) == {"10.0.0.5:0/0", "10.0.0.6:0/0", "10.0.0.7:0/1"} and set(
        tool.dump["range_blocklist"]
    ) == {"cidr:10.0.1.0:0/24"}
    assert work.plan(work.gather()).findings == []
    assert {found["entry"] for found in work.facts()["blocklist"]} == {
        "10.0.0.5:0/0",
        "10.0.0.6:0/0",
        "10.0.0.7:0/1",
        "10.0.1.0/24",
    }


def test_what_ceph_says_is_not_believed() -> None:
    for wanted in (options("10.0.0.5"), options("10.0.0.6", present=False)):
        tool = Tool(dump({"10.0.0.6:0/0": 300}))
        work = runbook(tool, wanted)
        (finding,) = work.plan(work.gather()).findings
        tool.stubborn = True
        with pytest.raises(ActionFailed, match="the list says otherwise"):
            work.apply(finding.repair[0])
        with pytest.raises(StorageOpsError, match="another client has changed it"):
            work.verify(finding)


def test_what_still_blocks_is_said() -> None:
    tool = Tool(dump({"10.0.0.5:0/0": 365}, {"cidr:10.0.0.0:0/24": 365}))
    work = runbook(tool, options("10.0.0.5", present=False))
    (finding,) = work.plan(work.gather()).findings
    work.apply(finding.repair[0])
    assert work.verify(finding) == [
        "10.0.0.5:0/0 is gone from the blocklist",
        "10.0.0.0/24 still blocks it",
    ]
    # Also when there was nothing to be removed.
    assert (
        work.healthy(work.gather())
        == "none of 1 entry there; 10.0.0.0/24 still blocks 10.0.0.5:0/0"
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("10.0.0.20", "it would hit a ceph-mds; set accept_daemons"),
        ("10.0.0.20:0/2732083159", "it would hit a ceph-mds"),
        ("10.0.0.0/24", "it would hit a ceph-mds"),
        ("10.0.0.21", "it would hit the active ceph-mgr"),
        ("10.0.0.21:0/4711", "it would hit the active ceph-mgr"),
        ("10.0.0.21:0/4712", ""),
        ("10.0.0.22", ""),
    ],
)
def test_daemons_that_are_clients(entry: str, said: str) -> None:
    (finding,) = judged(Tool(dump()), options(entry))
    assert (said in finding.reason) if said else finding.verdict == "repair"
    (accepted,) = judged(Tool(dump()), options(entry, accept_daemons=True))
    assert accepted.verdict == "repair"


def test_daemons_that_are_not_known() -> None:
    tool = Tool(dump(), mgr_dump=(13, "", "Error EACCES: access denied"))
    (finding,) = judged(tool, options("10.0.0.5"))
    assert (
        finding.verdict == "refuse"
        and "Error EACCES: access denied, as client.ops" in finding.reason
        and "accept_daemons" in finding.reason
    )
    # Who lets somebody in hits nobody.
    there = Tool(dump({"10.0.0.5:0/0": 1}), mgr_dump=(13, "", "Error EACCES: access denied"))
    (finding,) = judged(there, options("10.0.0.5", present=False))
    assert finding.verdict == "repair"


def test_this_host_is_not_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocklist, "own_addresses", lambda osds: iter(["10.0.0.3", "fd00::3"]))
    for entry in ("10.0.0.3", "10.0.0.0/24", "fd00::/64"):
        (finding,) = judged(Tool(dump()), options(entry, accept_daemons=True))
        assert finding.reason == "it would hit this very host"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # An IPv4 address that is written as an IPv6 one: so the OSD sees this host, too.
        ("[::ffff:127.0.0.1]:6800/1", ["127.0.0.1"]),
        ("127.0.0.1:6800/1", ["127.0.0.1"]),
        # What has never been up has no address.
        *((text, []) for text in ("0.0.0.0:0/0", "[::]:0/0", ":/0", ":0", "-", "")),
    ],
)
def test_an_odd_address_of_an_osd_stops_nothing(text: str, wanted: list[str]) -> None:
    odd = {"public_addrs": {"addrvec": [{"type": "v2", "addr": text, "nonce": 1}]}}
    osds = blocklist.parse_dump({**dump(), "osds": [odd]}).osds
    found = list(blocklist.own_addresses(osds))
    assert found == wanted
    tool = Tool({**dump(), "osds": [odd]})
    state = runbook(tool, options("10.0.0.5", accept_daemons=True)).gather()
    assert [entry.address for entry, _who in state.daemons] == wanted


def monitor(*texts: str, **fields: Any) -> dict[str, Any]:
    """As ``ceph mon dump`` shows one since Nautilus."""
    vector = [
        {"type": f"v{2 - number}", "addr": text, "nonce": 0} for number, text in enumerate(texts)
    ]
    return {"name": "a", "public_addrs": {"addrvec": vector}, **fields}


@pytest.mark.parametrize(
    ("mons", "wanted"),
    [
        ([monitor("10.0.0.1:3300", "10.0.0.1:6789")], ("IPv4",)),
        ([monitor("[fd00::1]:3300", "[fd00::1]:6789")], ("IPv6",)),
        ([monitor("10.0.0.1:3300", "[fd00::1]:3300")], ("IPv4", "IPv6")),
        ([monitor("10.0.0.1:3300"), monitor("[fd00::2]:3300")], ("IPv4", "IPv6")),
        # One that has not joined yet.
        ([monitor("10.0.0.1:3300"), monitor("[::]:0", addr="[::]:0/0")], ("IPv4",)),
        ([monitor("[fd00::1]:3300"), monitor("0.0.0.0:0", addr="0.0.0.0:0/1")], ("IPv6",)),
        ([monitor("10.0.0.1:3300"), monitor(":0", addr=":/0")], ("IPv4",)),
        ([monitor("10.0.0.1:3300"), monitor(addr="-")], ("IPv4",)),
        # Before Nautilus.
        ([{"name": "a", "addr": "10.0.0.1:6789/0"}], ("IPv4",)),
        ([{"name": "a", "addr": "[fd00::1]:6789/0"}, monitor("10.0.0.1:1")], ("IPv4", "IPv6")),
    ],
)
def test_the_families_of_the_monitors(mons: list[Any], wanted: tuple[str, ...]) -> None:
    assert blocklist.parse_families({"epoch": 1, "mons": mons}) == wanted


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "lacks what is needed"),
        ([], "lacks what is needed"),
        ({"mons": ["a"]}, "lacks what is needed"),
        ({"mons": []}, "shows no monitor with an address"),
        ({"mons": [monitor("0.0.0.0:0", addr="0.0.0.0:0/0")]}, "shows no monitor with an address"),
    ],
)
def test_monitors_that_tell_no_family_are_no_evidence(answer: Any, said: str) -> None:
    with pytest.raises(StorageOpsError, match=said) as caught:
        blocklist.parse_families(answer)
    assert caught.value.code == "evidence_unreadable"


def test_what_is_protected() -> None:
    wanted = options(
        "10.0.0.5",
        "10.0.0.5:0/1",
        "10.0.0.0/30",
        "10.0.1.0/24",
        "fd00::1",
        protected=["10.0.0.0/29", "fd00::/64"],
    )
    assert {
        finding.name
        for finding in planned(dump(), wanted).findings
        if "protected_addresses" in finding.reason
    } == {
        "10.0.0.5:0/0",
        "10.0.0.5:0/1",
        "10.0.0.0/30",
        "[fd00::1]:0/0",
    }


def test_ranges_of_a_release_that_has_none() -> None:
    (finding,) = planned(octopus({}), options("10.0.0.0/24")).findings
    assert finding.verdict == "refuse" and "knows no ranges" in finding.reason


def test_a_missing_capability() -> None:
    denied = {(ADD, "range"): "Error EACCES: access denied, as client.ops"}
    plan = planned(dump({"10.0.0.5:0/0": 1}), options("10.0.0.5"), denied=denied)
    # It is needed for what stands in.
    assert "client.ops lacks the mon capability to add a range" in plan.findings[0].reason
    assert (
        "ceph auth caps client.ops mon 'allow r, allow command \"osd blocklist\"'"
        in plan.findings[0].reason
    )
    gone = planned(
        dump({"10.0.0.5:0/0": 1}),
        options("10.0.0.5", present=False),
        denied={(REMOVE, "address"): "no"},
    )
    assert "to remove a whole address (no)" in gone.findings[0].reason


def test_a_probe_that_is_taken_for_an_address() -> None:
    """It says nothing about the capability, and worse about how addresses are understood."""
    tool = Tool(dump(), osd_blocklist=(0, "", "blocklisting 192.0.2.1:0/0 until ..."))
    with pytest.raises(
        StorageOpsError, match="takes .*192.0.2.1.* for an address.*blocklisting 192.0.2.1:0/0"
    ):
        runbook(tool, options("10.0.0.5", accept_daemons=True)).gather()
    assert tool.changes == []


def test_a_capability_that_is_lost_meanwhile() -> None:
    tool = Tool(dump())
    work = runbook(tool, options("10.0.0.5"))
    (finding,) = work.plan(work.gather()).findings
    tool.answers["osd_blocklist"] = (13, "", "Error EACCES: access denied")
    with pytest.raises(Prevented, match="EACCES"):
        work.apply(finding.repair[0])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((1, "", "timed out\n"), "does not answer"),
        ((None, "", ""), "does not answer"),
        ((110, "", "rbd: couldn't connect to the cluster!"), "does not answer"),
        (
            (
                1,
                "",
                "Error initializing cluster client: ObjectNotFound('RADOS object not found (error "
                "calling conf_read_file)')",
            ),
            "give its path as conf",
        ),
        (
            (1, "", "[errno 13] RADOS permission denied (error connecting to the cluster)"),
            "does not let client.ops in",
        ),
        (
            (
                1,
                "",
                "auth: unable to find a keyring on /none: (2) No such file or directory\n[errno 2] "
                "error connecting to the cluster",
            ),
            "[errno 2]",
        ),
        ((5, "", "a\nError EIO: odd"), "Error EIO: odd (rc 5 of ceph"),
        ((0, "listed 3 entries", ""), "instead of JSON"),
    ],
)
def test_what_goes_wrong_is_said(answer: tuple[int | None, str, str], said: str) -> None:
    with pytest.raises(StorageOpsError) as caught:
        runbook(Tool(dump(), osd_dump=answer), options("10.0.0.5")).gather()
    assert said in str(caught.value) and not isinstance(caught.value, Denied)


def test_a_tool_that_is_not_there() -> None:
    ceph = Ceph(
        Connection(),
        Deadline(60),
        lambda argv, _timeout: CommandResult(
            tuple(argv), None, "", "", 0, "not installed", missing=True
        ),
    )
    with pytest.raises(StorageOpsError, match="ceph is not installed on .*toolbox") as caught:
        ceph.json("ceph", "osd", "dump")
    assert caught.value.code == "program_missing"


def test_options() -> None:
    params: dict[str, Any] = {
        **{
            "entries": ["10.0.0.5", "10.0.0.5:0/0"],
            "state": "present",
            "expiry_seconds": YEAR,
            "renew_below": 0.5,
        },
        **{"protected_addresses": [], "accept_daemons": False, "accept_gap": False, "ends": {}},
    }
    ends = {"10.0.0.5:0/0": "2026-11-21T13:00:00Z"}
    given = blocklist.make_options({**params, "state": "absent", "ends": ends})
    assert given.ends == {parse_entry("10.0.0.5"): NOW + timedelta(hours=1)}
    assert len(blocklist.make_options(params).entries) == 1
    assert blocklist.make_options({**params, "entries": [], "state": "absent"}).entries == ()
    for wrong, said in (
        ({"entries": []}, "entries is empty"),
        (
            {"entries": ["10.0.0.5", "worker01", "10.0.0.0/8"]},
            "'worker01' cannot .*; '10.0.0.0/8' cannot .* /16 to /32",
        ),
        ({"expiry_seconds": 3600}, "at least 604800"),
        ({"expiry_seconds": 10**12}, "at most 315360000"),
        ({"renew_below": float("inf")}, "give 0 to 0.9"),
        ({"renew_below": 1.0}, "give 0 to 0.9"),
        ({"renew_below": float("nan")}, "give 0 to 0.9"),
        ({"protected_addresses": ["10.0.0"]}, "'10.0.0'"),
        ({"ends": ends}, "ends is for state absent"),
        (
            {"ends": {"10.0.0.5": "soon"}, "state": "absent"},
            "ends has 'soon' for 10.0.0.5: give a time with its zone",
        ),
        (
            {"ends": {"10.0.0.5": "2026-11-21T13:00:00"}, "state": "absent"},
            "give a time with its zone",
        ),
    ):
        with pytest.raises(StorageOpsError, match=said):
            blocklist.make_options({**params, **wrong})
