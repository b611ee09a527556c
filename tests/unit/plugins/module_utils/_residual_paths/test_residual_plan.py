# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is repaired, what is refused and why: the plan of the residual runbook, a pure function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import (
    Disk,
    DmDevice,
    Transport,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.multipath import Daemon
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.usage import (
    Opener,
    Openers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths import (
    judging,
    model,
    scans,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths import (
    plan as pure,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.model import (
    Observation,
    ResidualOptions,
    ResidualState,
)

WWID = "36001405e4563a9b6215b4e49ba37cfd9"
OTHER = "36001405f487100cf0e74447a08ee985c"
GONE = Answer("05/25/00", "05/25/00")
UP = [
    Transport("iSCSI", "session1", "127.0.0.1", "LOGGED_IN"),
    Transport("iSCSI", "session2", "127.0.0.2", "LOGGED_IN"),
]
DD = Opener(7, "dd", True, False, 1)


def opened(*openers: Opener, unread: tuple[str, ...] = ()) -> Openers:
    """The map is open by these."""
    return Openers({"253:1": list(openers)}, unread)


def serving(wwid: str = WWID) -> Answer:
    return Answer("good", "good", "good", 0, (wwid, "1LIO-ORG_x"))


def make_disk(name: str, host: int, lun: int, **changes: Any) -> Disk:
    return replace(
        Disk(
            name,
            f"8:{ord(name[2])}",
            f"{host}:0:0:{lun}",
            "running",
            WWID,
            "LIO-ORG",
            "lun1",
            ("dm-1",),
            UP[host - 6],
        ),
        **changes,
    )


def make_map(
    name: str = "mpathb",
    dm: str = "dm-1",
    wwid: str = WWID,
    slaves: tuple[str, ...] = ("sda", "sdb"),
    **changes: Any,
) -> DmDevice:
    return replace(
        DmDevice(dm, f"253:{dm[3:]}", name, f"mpath-{wwid}", False, slaves, ()), **changes
    )


def make_state(answers: dict[str, Answer] | None = None, **changes: Any) -> ResidualState:
    """A node with one map of two paths, both gone, observed three times over 30 s; ``changes`` are
    applied to what fits them.
    """
    answers = answers if answers is not None else {"sda": GONE, "sdb": GONE}
    disks = {"sda": make_disk("sda", 6, 2), "sdb": make_disk("sdb", 7, 2)}
    device = make_map()
    daemon = Daemon({WWID: {"sda": "failed faulty", "sdb": "failed faulty"}})
    seen = Observation(
        0.0,
        disks,
        {"dm-1": device},
        {transport.name: transport for transport in UP},
        daemon,
        answers,
        {"6:0:0": (1, 3), "7:0:0": (1, 3)},
    )
    seen = replace(
        seen,
        **{key: value for key, value in changes.items() if key in Observation.__dataclass_fields__},
    )
    observations = (seen, replace(seen, at=15.0), replace(seen, at=30.0))
    state = ResidualState("node1", observations, 20.0, {"mpathb": False}, {"253:1": 0})
    return replace(
        state,
        **{
            key: value
            for key, value in changes.items()
            if key in ResidualState.__dataclass_fields__
        },
    )


def only(state: ResidualState, **options: Any) -> Finding:
    (finding,) = pure.plan(state, ResidualOptions(**{"accept_majority": True, **options})).findings
    return finding


def verbs(finding: Finding) -> list[str]:
    return [action.verb for action in finding.repair]


def test_healthy_node() -> None:
    assert (
        pure.plan(make_state({"sda": serving(), "sdb": serving()}), ResidualOptions()).findings
        == []
    )


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({}, {"STOR-03"}),
        # A path of no map is looked at by itself.
        ({"dm": {}}, {"STOR-01"}),
        # Paths that are no SCSI disks, as those of NVMe.
        ({"disks": {}}, {"STOR-03"}),
        ({"disks": {}, "dm": {}}, {"STOR-01", "STOR-02", "STOR-03"}),
        # A map of another kind is no multipath map.
        ({"dm": {"dm-1": replace(make_map(), uuid="LVM-x")}}, {"STOR-01"}),
    ],
)
def test_controls_of_what_the_node_does_not_have(changes: dict[str, Any], absent: set[str]) -> None:
    assert pure.not_applicable(make_state({}, **changes)).keys() == absent


def test_dead_map_is_repaired_in_order() -> None:
    finding = only(make_state())
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-01", "major", "repair")
    assert verbs(finding) == ["flush_map", "delete_path", "delete_path"]
    assert finding.repair[0].command == ["multipath", "-f", "mpathb"]
    assert [action.command for action in finding.repair[1:]] == [
        ["write", "/sys/class/scsi_device/6:0:0:2/device/delete", "1"],
        ["write", "/sys/class/scsi_device/7:0:0:2/device/delete", "1"],
    ]


def test_targets_are_scanned_last_and_only_when_that_is_asked_for() -> None:
    finding = only(make_state(), rescan_targets=True)
    assert verbs(finding) == [
        "flush_map",
        "delete_path",
        "delete_path",
        "scan_target",
        "scan_target",
    ]
    assert [action.command for action in finding.repair[-2:]] == [
        ["write", "/sys/class/scsi_host/host6/scan", "0 0 -"],
        ["write", "/sys/class/scsi_host/host7/scan", "0 0 -"],
    ]
    assert [action.subject.known for action in finding.repair[-2:]] == [
        {("6:0:0:2", WWID)},
        {("7:0:0:2", WWID)},
    ]
    # Two paths through one target are one scan; what is refused is none.
    same = make_state(
        disks={"sda": make_disk("sda", 6, 2), "sdb": make_disk("sdb", 6, 3)}, luns={"6:0:0": (1,)}
    )
    assert verbs(only(same, rescan_targets=True)).count("scan_target") == 1
    assert verbs(only(make_state(luns=STILL_LISTED), rescan_targets=True)) == []
    assert (
        pure.plan(
            make_state({"sda": serving(), "sdb": serving()}), ResidualOptions(rescan_targets=True)
        ).findings
        == []
    )


def test_queueing_is_disabled_first() -> None:
    assert verbs(only(make_state(queueing={"mpathb": True})))[:2] == [
        "disable_queueing",
        "flush_map",
    ]


STILL_LISTED = {"6:0:0": (1, 2, 3)}
MOVED = make_map(slaves=("sda",))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (make_state({"sda": GONE, "sdb": serving()}), "sdb: still serves the LUN"),
        (
            make_state(
                {"sda": GONE, "sdb": Answer(problem="no answer within 6.0 s, abandoned as pid 9")}
            ),
            "no answer within",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("02/04/0c", "good", "good", 0, (WWID,))}),
            "no sign that the LUN is gone",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("DID_NO_CONNECT", "DID_NO_CONNECT")}),
            "transport error",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("05/25/00", "good", "missing", 0)}),
            "VPD 0x83 missing",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("02/04/01", "good", "malformed", 0)}),
            "VPD 0x83 malformed",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("05/25/00", "good", "good", 0, (WWID,))}),
            "contradictory answers",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("02/04/01", "good", qualifier=3)}),
            "contradictory answers",
        ),
        (make_state({"sda": GONE, "sdb": Answer("good", "05/25/00")}), "contradictory answers"),
        (
            make_state(
                {"sda": GONE, "sdb": Answer("good", "good", qualifier=1)}, luns={"6:0:0": ()}
            ),
            "does not say by REPORT LUNS",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("05/24/00", "05/24/00")}),
            "no sign that the LUN is gone",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("06/3f/0e", "06/3f/0e")}),
            "no sign that the LUN is gone",
        ),
        # Each of the three questions may be the one that the transport loses.
        *(
            (make_state({"sda": GONE, "sdb": Answer(*said, 0, (WWID,))}), "transport error")
            for said in (
                ("DID_RESET", "good", "good"),
                ("good", "DID_RESET", "good"),
                ("good", "good", "DID_RESET"),
            )
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("02/04/01", "06/29/00")}),
            "no sign that the LUN is gone",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("good", "good", "good", None, (OTHER,))}),
            "no sign that the LUN is gone",
        ),
        (
            make_state({"sda": GONE, "sdb": Answer("good", "06/29/00", "good", 0, (OTHER,))}),
            "no sign that the LUN is gone",
        ),
        # What it has said does not count where it was lost on the way.
        (
            make_state({"sda": GONE, "sdb": replace(serving(OTHER), problem="no answer")}),
            "sdb: no answer",
        ),
        (make_state(luns=STILL_LISTED), "still lists LUN 2"),
        (
            make_state(daemon=Daemon(problem="multipathd does not answer: timeout")),
            "multipathd does not answer",
        ),
        (make_state(daemon=Daemon({})), "multipathd does not know this map"),
        (
            make_state(daemon=Daemon({WWID: {"sda": "active ready", "sdb": "failed faulty"}})),
            "multipathd still calls sda ready",
        ),
        (make_state(dm={"dm-1": make_map(suspended=True)}), "suspended"),
        (
            make_state(dm={"dm-1": make_map("my disk")}, queueing={"my disk": False}),
            "do not take the alias 'my disk'",
        ),
        (
            make_state(dm={"dm-1": make_map("d\u00e4ta")}, queueing={"d\u00e4ta": False}),
            "do not take the alias 'd\u00e4ta'",
        ),
        (
            make_state(
                uses={
                    "dm-1": [
                        Reason("in_use_mounted", "mounted at /mnt/a in the namespace of pid 1")
                    ]
                }
            ),
            "mounted at /mnt/a",
        ),
        (
            make_state(open_counts={"253:1": 1}),
            "a process that /proc does not name: set fail_hung_readers",
        ),
        (
            make_state(open_counts={"253:1": 1}, openers=opened(DD)),
            "dd (pid 7, hung in D state): set fail_hung_readers",
        ),
        (
            make_state(open_counts={"253:1": 1}, openers=opened(replace(DD, hung=False))),
            "opened by dd (pid 7)",
        ),
        (make_state(open_counts={}), "open count could not be read"),
        (
            make_state(checker_interval=30.0),
            "observation too short: 30.0 s, while multipathd checks a path every 30 s",
        ),
        (make_state(observations=make_state().observations[:1]), "a single observation"),
    ],
)
def test_dead_looking_map_is_refused(state: ResidualState, reason: str) -> None:
    finding = next(
        finding
        for finding in pure.plan(state, ResidualOptions()).findings
        if finding.kind == "multipath map"
    )
    assert finding.verdict == "refuse"
    assert reason in finding.reason
    assert finding.repair == []


@pytest.mark.parametrize(
    ("changes", "state_name"),
    [
        ({"state": "transport-offline"}, "device transport-offline"),
        (
            {"state": "blocked", "transport": replace(UP[1], state="FAILED")},
            "session2 to 127.0.0.2: FAILED, device blocked",
        ),
        ({"transport": replace(UP[1], state="FREE")}, "session2 to 127.0.0.2: FREE"),
        (
            {"transport": Transport("FC", "rport-1:0-0", "0x5006", "Blocked")},
            "rport-1:0-0 to 0x5006: Blocked",
        ),
    ],
)
def test_transport_outage_is_refused_whatever_the_disk_said(
    changes: dict[str, Any], state_name: str
) -> None:
    disks = {"sda": make_disk("sda", 6, 2), "sdb": make_disk("sdb", 7, 2, **changes)}
    finding = only(make_state(disks=disks))
    assert finding.verdict == "refuse"
    assert "transport outage: " in finding.reason
    assert state_name in finding.reason


def test_a_disk_that_the_kernel_set_offline() -> None:
    """It stays so, however long the transport has worked again: the reason says what helps."""
    disks = {"sda": make_disk("sda", 6, 2), "sdb": make_disk("sdb", 7, 2, state="offline")}
    finding = only(make_state(disks=disks))
    assert finding.verdict == "refuse"
    assert "echo running > /sys/block/sdb/device/state" in finding.reason
    assert "transport outage" not in finding.reason


NAMED = {"names": (WWID, "1LIO-ORG_x")}


def test_another_lun_with_the_same_wwid() -> None:
    """The T10 name was another one when the disk was found: a copy, or an array that hands a WWID
    out twice.
    """
    disks = {name: make_disk(name, host, 2, **NAMED) for name, host in (("sda", 6), ("sdb", 7))}
    same = Answer("good", "good", "good", 0, (WWID, "1LIO-ORG_x"))
    copy = Answer("good", "good", "good", 0, (WWID, "1LIO-ORG_y"))
    assert (
        pure.plan(make_state({"sda": same, "sdb": same}, disks=disks), ResidualOptions()).findings
        == []
    )
    finding = only(make_state({"sda": same, "sdb": copy}, disks=disks))
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-02", "critical", "refuse")
    assert (
        "sdb: answers with the same WWID, but as 1LIO-ORG_y and no longer 1LIO-ORG_x"
        in finding.reason
    )
    plain_disk = only(plain(copy, **NAMED))
    assert (plain_disk.control, plain_disk.severity, plain_disk.verdict) == (
        "STOR-02",
        "critical",
        "refuse",
    )


@pytest.mark.parametrize(
    "names",
    [(), (WWID,), (WWID, "0the name that people see"), (WWID, "1LIO-ORG_x", "1LIO-ORG_old")],
)
def test_names_that_do_not_show_another_lun(names: tuple[str, ...]) -> None:
    assert judging.judge(make_disk("sda", 6, 2, names=names), serving(), WWID).kind == model.SERVING


def test_every_observation_counts() -> None:
    first, second, third = make_state().observations
    early = replace(second, answers={"sda": GONE, "sdb": serving()})
    assert (
        "sdb: still serves the LUN" in only(make_state(observations=(first, early, third))).reason
    )
    moved = replace(second, dm={"dm-1": MOVED})
    assert (
        "changed while it was observed"
        in only(make_state(observations=(first, moved, third))).reason
    )


def test_answers_that_differ_prove_nothing() -> None:
    """Each of them alone would do: another LUN first, and then none."""
    first, second, third = make_state().observations
    early = replace(first, answers={"sda": serving(OTHER), "sdb": GONE})
    assert (
        "sda: answered differently" in only(make_state(observations=(early, second, third))).reason
    )
    alone = plain().observations
    early = replace(alone[0], answers={"sda": serving(OTHER)})
    assert "answered differently" in only(make_state(observations=(early, *alone[1:]))).reason


def test_a_lun_that_was_listed_early_proves_nothing() -> None:
    first, second, third = make_state().observations
    early = replace(first, luns=STILL_LISTED)
    finding = only(make_state(observations=(early, second, third)))
    assert "sda: its target still lists LUN 2" in finding.reason


def test_names_of_another_kind_are_no_other_volume() -> None:
    """An EUI-64 beside an NAA name of the same volume: nothing says whose disk that is."""
    other = Answer("good", "good", "good", 0, ("2600a0b8000000000",))
    assert judging.judge(make_disk("sda", 6, 2), other, WWID).kind == model.UNIDENTIFIED


@pytest.mark.parametrize("kind", [model.OTHER, model.TWIN])
def test_maps_that_read_something_else_count_for_an_outage(kind: str) -> None:
    """As after an array was restored from a copy: three of four maps are another volume's."""
    state = many(1, 4)
    names = () if kind == model.OTHER else ("1LIO-ORG_x",)
    disks = {name: replace(disk, names=names) for name, disk in state.last.disks.items()}
    answers = dict(state.last.answers)
    for name in ("sdb", "sdc"):
        wwid = disks[name].wwid if kind == model.TWIN else f"3600x{name}"
        answers[name] = Answer("good", "good", "good", 0, (wwid, "1LIO-ORG_y"))
    answers["sdd"] = Answer("good", "good", "good", 0, (disks["sdd"].wwid, "1LIO-ORG_x"))
    seen = tuple(replace(one, disks=disks, answers=answers) for one in state.observations)
    findings = pure.plan(replace(state, observations=seen), ResidualOptions()).findings
    (dead,) = [finding for finding in findings if finding.name == "mpath0"]
    assert dead.verdict == "refuse"
    assert "3 of the node's 4 maps look broken" in dead.reason


def test_what_was_looked_at_too_shortly_is_refused_whatever_is_accepted() -> None:
    once = make_state(observations=make_state().observations[:1])
    for short in (make_state(checker_interval=30.0), once):
        finding = only(short)
        assert finding.verdict == "refuse"
        assert "observation too short" in finding.reason


def test_a_map_that_lost_its_paths_just_now() -> None:
    first, second, third = empty().observations
    disks = {**first.disks, **make_state().last.disks}
    early = replace(first, dm={"dm-1": make_map()}, disks=disks)
    finding = only(replace(empty(), observations=(early, second, third)), flush_empty_maps=True)
    assert "it had paths a moment ago" in finding.reason


def test_a_map_without_paths_whose_name_no_disk_could_have() -> None:
    wwid = "0QEMU_disk"
    found = empty(dm={"dm-1": make_map(wwid=wwid, slaves=())}, daemon=Daemon({wwid: {}}))
    finding = next(one for one in pure.plan(found, ResidualOptions(flush_empty_maps=True)).findings)
    assert f"no inquiry can be compared with the name {wwid}" in finding.reason


def test_a_plain_disk_that_changes_while_observed() -> None:
    first, second, third = plain().observations
    moved = replace(second, disks={"sda": replace(second.disks["sda"], dev="8:99")})
    assert (
        "the disk changed while it was observed"
        in only(make_state(observations=(first, moved, third))).reason
    )


def test_what_does_not_answer_counts_as_broken() -> None:
    """Two maps are gone and two more do not answer: an outage, of which the first two may be a
    part.
    """
    state = many(2, 6)
    silent = {
        **state.last.answers,
        "sdc": Answer(problem="no answer"),
        "sdd": Answer(problem="no answer"),
    }
    seen = tuple(replace(one, answers=silent) for one in state.observations)
    findings = pure.plan(replace(state, observations=seen), ResidualOptions()).findings
    assert {finding.verdict for finding in findings} == {"refuse"}
    assert all(
        "4 of the node's 6 maps look broken" in finding.reason
        for finding in findings
        if finding.name in ("mpath0", "mpath1")
    )


def test_peripheral_qualifier_1_must_stay() -> None:
    absent = Answer("05/25/00", "good", qualifier=1)
    assert only(make_state({"sda": absent, "sdb": absent})).verdict == "repair"


def test_lun_0_answers_for_the_target() -> None:
    """No device is there (qualifier 1), but TEST UNIT READY succeeds, so multipathd calls the path
    ready: REPORT LUNS decides.
    """
    absent = Answer("good", "good", qualifier=1)
    ready = Daemon({WWID: {"sda": "active ready", "sdb": "active ready"}})
    assert only(make_state({"sda": absent, "sdb": absent}, daemon=ready)).verdict == "repair"
    listed = only(
        make_state(
            {"sda": absent, "sdb": absent}, daemon=ready, luns={"6:0:0": (2,), "7:0:0": (2,)}
        )
    )
    assert "still lists LUN 2" in listed.reason


def test_hung_readers_are_freed_when_that_is_accepted() -> None:
    hung = {"open_counts": {"253:1": 1}, "openers": opened(DD)}
    assert only(make_state(**hung), fail_hung_readers=True).verdict == "repair"
    alive = {
        "open_counts": {"253:1": 2},
        "openers": opened(DD, replace(DD, pid=8, hung=False)),
    }
    assert "opened by dd (pid 8)" in only(make_state(**alive), fail_hung_readers=True).reason
    mounted = {**hung, "uses": {"dm-1": [Reason("in_use_mounted", "mounted at /mnt/a")]}}
    writer = {**hung, "openers": opened(replace(DD, command="qemu", writes=True))}
    for accepted in (False, True):
        reason = only(make_state(**writer), fail_hung_readers=accepted).reason
        assert reason == "opened by qemu (pid 7, may write, hung in D state)"
    assert only(make_state(**mounted), fail_hung_readers=True).verdict == "refuse"


def test_udev_hung_on_the_map_is_no_user() -> None:
    udev = Opener(9, "(udev-worker)", True, True, 1)
    assert only(make_state(open_counts={"253:1": 1}, openers=opened(udev))).verdict == "repair"
    assert only(make_state(open_counts={"253:1": 2}, openers=opened(udev))).verdict == "refuse"
    awake = replace(udev, hung=False)
    looked = make_state(open_counts={"253:1": 1}, openers=opened(awake))
    assert only(looked).verdict == "repair"


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(("opens", "verdict"), [(0, "repair"), (1, "refuse")])
def test_a_process_whose_open_files_are_not_known(opens: int, verdict: str, accepted: bool) -> None:
    """It may be a writer of what is open, also where all opens seem to be of others: those of
    forked processes are one. What nothing has open does not concern it.
    """
    for others in ((), (DD,), (replace(DD, udev=True, opens=2),)):
        openers = opened(*(others if opens else ()), unread=("web (pid 9) (no answer)",))
        state = make_state(open_counts={"253:1": opens}, openers=openers)
        finding = only(state, fail_hung_readers=accepted)
        assert finding.verdict == verdict
        if opens:
            assert finding.code == "evidence_unreadable"
            said = "whether web (pid 9) (no answer) has it open is not known"
            assert finding.reason == said


def part(**changes: Any) -> DmDevice:
    return replace(
        DmDevice("dm-2", "253:2", "mpathb-part1", f"part1-mpath-{WWID}", False, ("dm-1",), ()),
        **changes,
    )


@pytest.mark.parametrize(
    ("above", "changes", "reason"),
    [
        (part(), {}, ""),
        (part(), {"open_counts": {"253:1": 1, "253:2": 1}}, "open 1 times"),
        (part(holders=("dm-3",)), {}, "held by dm-3"),
        (part(name="vg-lv", uuid="LVM-abc"), {}, "held by dm-2 (vg-lv, LVM)"),
        (part(name="luks", uuid="CRYPT-LUKS2-abc"), {}, "held by dm-2 (luks, CRYPT)"),
        # A name that only begins like a partition's is no partition's.
        (part(uuid=f"part1-other-{WWID}"), {}, "held by dm-2"),
    ],
)
def test_what_stands_on_a_map(above: DmDevice, changes: dict[str, Any], reason: str) -> None:
    dm = {"dm-1": make_map(holders=("dm-2",)), "dm-2": above}
    finding = only(make_state(**{"dm": dm, "open_counts": {"253:1": 1, "253:2": 0}, **changes}))
    assert finding.verdict == ("refuse" if reason else "repair")
    assert reason in finding.reason


def test_reused_lun_number() -> None:
    """Healthy everywhere but in a fresh inquiry."""
    daemon = Daemon({WWID: {"sda": "active ready", "sdb": "active ready"}})
    finding = only(
        make_state(
            {"sda": serving(OTHER), "sdb": serving(OTHER)}, daemon=daemon, luns={"6:0:0": (1, 2)}
        )
    )
    assert (finding.control, finding.severity, finding.verdict) == ("STOR-02", "critical", "repair")
    assert finding.evidence["wwid"] == WWID
    assert finding.evidence["other_wwids"] == [OTHER]
    assert verbs(finding) == ["flush_map", "replace_path", "replace_path"]
    assert finding.repair[1].command[-3:] == ["write", "/sys/class/scsi_host/host6/scan", "0 0 2"]


def test_reused_lun_number_in_use_or_on_some_paths() -> None:
    reused = {"sda": serving(OTHER), "sdb": serving(OTHER)}
    mounted = {"dm-1": [Reason("in_use_mounted", "mounted at /mnt/a")]}
    used = only(make_state(reused, uses=mounted))
    assert ("mounted" in used.reason, used.code) == (True, "in_use_mounted")
    half = only(make_state({"sda": serving(OTHER), "sdb": serving()}))
    assert (half.control, half.verdict) == ("STOR-02", "refuse")
    assert "sdb: still serves the LUN" in half.reason
    mixed = only(make_state({"sda": serving(OTHER), "sdb": GONE}))
    assert verbs(mixed) == ["flush_map", "replace_path", "delete_path"]


def test_a_path_that_does_not_name_itself_must_not_be_joined_by_whatever_is_found() -> None:
    unnamed = make_state({"sda": serving(), "sdb": Answer("good", "good", "missing", 0)})
    (risk,) = scans.mixtures(unnamed, None, set(), ["6:0:0"])
    assert "to sdb in mpathb, which is not proven to serve it" in risk


def test_a_disk_that_does_not_name_itself_must_not_be_joined() -> None:
    """It was found as the LUN that has the number now, and would be put into one map with it."""
    reused = {"sda": serving(OTHER), "sdb": serving(OTHER)}
    disks = {**make_state().last.disks, "sdc": make_disk("sdc", 6, 3, wwid=OTHER, holders=())}
    assert only(make_state({**reused, "sdc": serving(OTHER)}, disks=disks)).verdict == "repair"
    finding = only(make_state({**reused, "sdc": Answer("good", "good", "missing", 0)}, disks=disks))
    assert finding.verdict == "refuse"
    assert (
        f"a scan could add a disk of {OTHER} to sdc, which is not proven to serve it"
        in finding.reason
    )


def test_wwids_are_compared_whole() -> None:
    longer = f"{WWID}0"
    finding = only(make_state({"sda": serving(longer), "sdb": serving(longer)}))
    assert finding.control == "STOR-02"


def test_names_that_cannot_be_compared_prove_nothing() -> None:
    vague = Answer("good", "good", "good", 0, ("1LIO-ORG_x",))
    finding = only(make_state({"sda": vague, "sdb": serving()}))
    assert (finding.control, finding.severity, finding.verdict, finding.repair) == (
        "STOR-02",
        "minor",
        "refuse",
        [],
    )


STANDBY = Answer("02/04/0b", "good", "good", 0, (WWID,))


def test_active_and_standby_paths_are_a_healthy_map() -> None:
    assert (
        pure.plan(make_state({"sda": serving(), "sdb": STANDBY}), ResidualOptions()).findings == []
    )
    assert judging.suspects(make_state({"sda": serving(), "sdb": STANDBY}).observations[0]) == set()
    finding = only(make_state({"sda": STANDBY, "sdb": STANDBY}))
    assert finding.verdict == "refuse"
    assert "no sign that the LUN is gone: TEST UNIT READY 02/04/0b" in finding.reason


def test_maps_of_other_disks_are_not_judged() -> None:
    """NVMe cannot be asked by SCSI inquiry: reported, and never counted as dead."""
    finding = only(make_state({}, disks={}))
    assert (finding.severity, finding.verdict) == ("info", "report")
    six = many(4, 6)
    devices = {
        name: replace(device, slaves=("nvme0n1",)) if int(name[3:]) >= 1 else device
        for name, device in six.last.dm.items()
    }
    seen = tuple(
        replace(one, dm=devices, disks={"sda": one.disks["sda"]}) for one in six.observations
    )
    verdicts = {
        found.name: found.verdict
        for found in pure.plan(replace(six, observations=seen), ResidualOptions()).findings
    }
    assert verdicts["mpath0"] == "repair"


def test_a_disk_that_vanishes_while_observed() -> None:
    first, second, third = make_state().observations
    finding = only(
        make_state(
            observations=(
                first,
                second,
                replace(third, disks={"sda": third.disks["sda"]}, answers={"sda": GONE}),
            )
        )
    )
    assert finding.verdict == "refuse"
    assert "sdb: it vanished while it was observed" in finding.reason


def test_every_name_of_the_other_lun_counts() -> None:
    names = Answer("good", "good", "good", 0, ("3600aaaa", "3500bbbb", "1LIO-ORG_x"))
    assert judging.judge(make_disk("sda", 6, 2), names, WWID).wwids == ("3500bbbb", "3600aaaa")


def test_one_path_failed() -> None:
    finding = only(make_state({"sda": Answer(problem="no answer"), "sdb": serving()}))
    assert (finding.severity, finding.verdict) == ("minor", "refuse")


def empty(answer: Answer | None = None, **changes: Any) -> ResidualState:
    dm = {"dm-1": make_map(slaves=())}
    disks = {"sdc": make_disk("sdc", 6, 3, wwid=OTHER, holders=())}
    return make_state(
        {"sdc": answer or serving(OTHER)},
        **{"dm": dm, "disks": disks, "daemon": Daemon({WWID: {}}), **changes},
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (empty(), ""),
        (empty(serving()), "sdc serves its LUN"),
        (empty(Answer("02/04/0b", "good", "good", 0, (WWID,))), "sdc serves its LUN"),
        (empty(Answer(problem="no answer")), "sdc might be its path"),
        (empty(Answer("good", "good", "missing", 0)), "sdc might be its path"),
        (
            empty(transports={"session2": replace(UP[1], state="FAILED")}),
            "transport outage: iSCSI session2",
        ),
        (empty(open_counts={"253:1": 1}), "open 1 times"),
    ],
)
def test_map_without_paths(state: ResidualState, reason: str) -> None:
    def finding(**options: Any) -> Finding:
        wanted = ResidualOptions(accept_majority=True, **options)
        return next(found for found in pure.plan(state, wanted).findings if found.name == "mpathb")

    assert "flush_empty_maps" in finding().reason
    allowed = finding(flush_empty_maps=True)
    assert allowed.verdict == ("refuse" if reason else "repair"), allowed.reason
    assert reason in allowed.reason
    assert verbs(allowed) == ([] if reason else ["flush_map"])


def plain(answer: Answer = GONE, uses: list[Reason] | None = None, **changes: Any) -> ResidualState:
    disks = {"sda": make_disk("sda", 6, 2, **{"holders": (), **changes})}
    return make_state({"sda": answer}, dm={}, disks=disks, uses={"sda": uses or []})


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (plain(), "", ""),
        (plain(uses=[Reason("in_use_held", "is claimed")]), "is claimed", "in_use_held"),
        (plain(uses=[Reason("in_use_open", "opened by cat")]), "opened by cat", "in_use_open"),
        (plain(holders=("dm-9",)), "held by dm-9", "in_use_held"),
        (
            plain(Answer("02/04/01", "good", "good", 0, (WWID,))),
            "no sign that the LUN is gone",
            "path_unproven",
        ),
    ],
)
def test_disk_in_no_map(state: ResidualState, reason: str, code: str) -> None:
    finding = only(state)
    assert finding.control == "STOR-03"
    assert finding.verdict == ("refuse" if reason else "repair"), finding.reason
    assert (reason in finding.reason, finding.code) == (True, code)


def test_disk_in_no_map_that_reads_another_lun() -> None:
    finding = only(plain(serving(OTHER)))
    assert (finding.control, finding.severity, verbs(finding)) == (
        "STOR-02",
        "critical",
        ["replace_path"],
    )
    assert verbs(only(plain(serving(OTHER)), rescan_targets=True)) == [
        "replace_path",
        "scan_target",
    ]


def test_local_disk_with_a_bad_day_is_not_our_business() -> None:
    assert (
        pure.plan(
            plain(Answer("02/3a/00", "good", "missing", 0), transport=None), ResidualOptions()
        ).findings
        == []
    )


def many(dead: int, total: int) -> ResidualState:
    disks, dm, answers, paths = {}, {}, {}, {}
    for index in range(total):
        wwid, disk = f"3600{index:04d}", f"sd{chr(97 + index)}"
        disks[disk] = make_disk(disk, 6, index + 10, wwid=wwid)
        dm[f"dm-{index}"] = make_map(f"mpath{index}", f"dm-{index}", wwid, (disk,))
        answers[disk] = GONE if index < dead else serving(wwid)
        paths[wwid] = {disk: "failed faulty" if index < dead else "active ready"}
    counts = {f"253:{index}": 0 for index in range(total)}
    return make_state(answers, disks=disks, dm=dm, daemon=Daemon(paths), open_counts=counts)


@pytest.mark.parametrize(
    ("dead", "total", "refused"),
    [
        (4, 6, True),
        (3, 6, False),
        (3, 4, True),
        (2, 4, False),
        (1, 1, True),
        (1, 2, False),
        (2, 2, True),
        (1, 3, False),
        (2, 3, True),
    ],
)
def test_more_than_half_looks_dead(dead: int, total: int, refused: bool) -> None:
    findings = pure.plan(many(dead, total), ResidualOptions()).findings
    assert len(findings) == dead
    assert {finding.verdict for finding in findings} == {"refuse" if refused else "repair"}
    assert {
        finding.verdict
        for finding in pure.plan(many(dead, total), ResidualOptions(accept_majority=True)).findings
    } == {"repair"}


@pytest.mark.parametrize(
    ("paths", "mapped", "elsewhere", "refused"),
    [
        (1, 0, 0, True),
        (4, 0, 0, True),
        (1, 1, 0, False),
        (4, 1, 0, False),
        (1, 0, 9, True),
        (1, 9, 1, False),
    ],
)
def test_a_lun_in_no_map_is_one_of_those_of_its_target(
    paths: int, mapped: int, elsewhere: int, refused: bool
) -> None:
    """Its paths are one thing that broke, not four.

    What its own target answers for tells that this is no outage; another's does not.
    """
    disks = {
        f"sd{chr(97 + path)}": make_disk(
            f"sd{chr(97 + path)}", 6, path, wwid="3600gone", holders=()
        )
        for path in range(paths)
    }
    answers, dm = dict.fromkeys(disks, GONE), {}
    for index in range(mapped + elsewhere):
        name, wwid = f"sd{chr(110 + index)}", f"3600{index:04d}"
        disks[name] = make_disk(name, 6 if index < mapped else 7, index + 20, wwid=wwid)
        answers[name] = serving(wwid)
        dm[f"dm-{index}"] = make_map(f"mpath{index}", f"dm-{index}", wwid, (name,))
    daemon = Daemon(
        {device.wwid: dict.fromkeys(device.slaves, "active ready") for device in dm.values()}
    )
    state = make_state(answers, dm=dm, disks=disks, luns={}, daemon=daemon)
    findings = pure.plan(state, ResidualOptions()).findings
    assert len(findings) == paths
    assert {finding.verdict for finding in findings} == {"refuse" if refused else "repair"}
    if refused:
        assert "1 of the node's 1 LUNs of target 6:0:0 look broken at once" in findings[0].reason


def test_dead_maps_of_its_target_count_with_a_lun_in_no_map() -> None:
    state = many(1, 2)
    disks = {**state.last.disks, "sdz": make_disk("sdz", 6, 99, wwid="3600z", holders=())}
    seen = [
        replace(one, disks=disks, answers={**one.answers, "sdz": GONE})
        for one in state.observations
    ]
    findings = pure.plan(replace(state, observations=tuple(seen)), ResidualOptions()).findings
    assert {finding.verdict for finding in findings} == {"refuse"}
    assert "2 of the node's 3 LUNs of target 6:0:0" in findings[0].reason


def test_an_outage_of_the_maps_stops_plain_disks_too() -> None:
    state = many(4, 6)
    disks = {**state.last.disks, "sdz": make_disk("sdz", 6, 99, wwid="3600z", holders=())}
    seen = [
        replace(one, disks=disks, answers={**one.answers, "sdz": GONE})
        for one in state.observations
    ]
    findings = pure.plan(replace(state, observations=tuple(seen)), ResidualOptions()).findings
    assert {finding.verdict for finding in findings} == {"refuse"}
    assert "sdz" in [finding.name for finding in findings]


def test_the_scope_does_not_hide_an_outage() -> None:
    finding = only(many(4, 6), maps=("mpath0",), accept_majority=False)
    assert finding.verdict == "refuse"
    assert "4 of the node's 6 maps" in finding.reason


def test_max_repairs() -> None:
    findings = pure.plan(many(3, 6), ResidualOptions(max_repairs=2)).findings
    assert [finding.verdict for finding in findings] == ["repair", "repair", "refuse"]


@pytest.mark.parametrize(
    ("options", "count", "named"),
    [
        ({"maps": ("mpathb",)}, 1, True),
        ({"maps": ("mpathx",)}, 0, False),
        ({"wwids": (WWID,)}, 1, True),
        ({"wwids": (WWID[:-1],)}, 0, False),
        ({"wwids": (WWID[1:],)}, 0, False),
        ({"vendor": "lio-org "}, 1, False),
        ({"vendor": "LIO"}, 0, False),
        ({"product": "lun1", "vendor": "LIO-ORG"}, 1, False),
        ({"product": "lun"}, 0, False),
    ],
)
def test_scope(options: dict[str, Any], count: int, named: bool) -> None:
    findings = pure.plan(make_state(), ResidualOptions(**options)).findings
    assert len(findings) == count
    assert [finding.named for finding in findings] == [named] * count


def test_a_name_also_covers_the_disks_its_map_left_behind() -> None:
    state = replace(plain(), aliases={"mpathb": WWID})
    assert only(state, maps=("mpathb",)).named


def test_no_daemon_is_a_finding_of_its_own() -> None:
    state = make_state(
        {"sda": serving(), "sdb": serving()},
        daemon=Daemon(problem="multipathd does not answer: Connection refused"),
    )
    finding = only(state)
    assert (finding.kind, finding.verdict) == ("node", "refuse")
    assert "Connection refused" in finding.reason
    assert pure.not_assessed(state) == {}


UNASKED = Daemon(problem="multipathd cannot be asked: not installed", not_asked=True)


def test_a_daemon_that_nobody_can_ask_is_not_assessed_and_refuses_a_repair() -> None:
    """As on a node that is reached through a pod, and has its multipathd in another one."""
    well = make_state({"sda": serving(), "sdb": serving()}, daemon=UNASKED)
    (reason,) = pure.not_assessed(well).values()
    assert reason.code == "evidence_unreadable" and "not installed" in reason, reason
    assert pure.plan(well, ResidualOptions(), repairing=False).findings == []
    finding = only(well)
    assert (finding.control, finding.verdict, finding.code) == (
        "STOR-01",
        "refuse",
        "multipathd_unusable",
    )


def test_what_the_disks_say_is_found_whoever_may_be_asked_about_their_map() -> None:
    dead = make_state(daemon=UNASKED)
    for repairing in (True, False):
        found = pure.plan(dead, ResidualOptions(accept_majority=True), repairing).findings
        assert [one.kind for one in found] == ["node"] * repairing + ["multipath map"]
        assert {(one.verdict, one.code) for one in found} == {("refuse", "multipathd_unusable")}
    assert pure.not_assessed(dead).keys() == {"STOR-01"}


def test_without_a_map_nobody_need_be_asked() -> None:
    """And a daemon that answers, or fails to, is assessed."""
    assert pure.not_assessed(make_state(dm={}, daemon=UNASKED)) == {}
    assert pure.not_assessed(make_state()) == {}


def test_suspects() -> None:
    seen = make_state({"sda": GONE, "sdb": serving()}).observations[0]
    assert judging.suspects(seen) == {"sda"}
    assert (
        judging.suspects(make_state({"sda": serving(), "sdb": serving()}).observations[0]) == set()
    )
    assert judging.suspects(empty().observations[0]) == {"sdc"}


DOWN = replace(UP[0], state="FAILED")


@pytest.mark.parametrize(
    ("answers", "first", "expected"),
    [
        ({"sda": GONE, "sdb": GONE}, {}, {"sda", "sdb"}),
        ({"sda": GONE, "sdb": serving()}, {}, {"sda"}),
        ({"sda": serving(), "sdb": serving()}, {}, set()),
        # What the kernel calls down decides it: the map is refused, whatever the other path says.
        ({"sda": GONE, "sdb": GONE}, {"transport": DOWN}, set()),
        ({"sda": GONE, "sdb": GONE}, {"state": "blocked"}, set()),
        ({"sda": GONE, "sdb": serving()}, {"state": "offline"}, set()),
        # An answer that says nothing may be another one next time.
        ({"sda": Answer("06/29/00", "good"), "sdb": GONE}, {}, {"sda", "sdb"}),
    ],
)
def test_what_another_look_may_decide(
    answers: dict[str, Answer], first: dict[str, Any], expected: set[str]
) -> None:
    disks = {"sda": make_disk("sda", 6, 2, **first), "sdb": make_disk("sdb", 7, 2)}
    state = make_state(answers, disks=disks)
    assert judging.undecided(state.observations[0]) == expected
    if not expected:
        assert all(
            finding.verdict == "refuse" for finding in pure.plan(state, ResidualOptions()).findings
        )


def test_a_map_in_an_outage_leaves_the_others_to_be_observed() -> None:
    lost, other = "3600140512345678901234567890abcde", make_map("mpatha", "dm-2", OTHER, ("sdc",))
    disks = {
        "sda": make_disk("sda", 6, 2, transport=DOWN),
        "sdb": make_disk("sdb", 7, 2),
        "sdc": make_disk("sdc", 7, 3, wwid=OTHER),
        "sdd": make_disk("sdd", 7, 4, wwid=lost, holders=()),
        "sde": make_disk("sde", 6, 4, wwid=lost, holders=(), transport=DOWN),
    }
    answers = dict.fromkeys(disks, GONE)
    seen = make_state(answers, disks=disks, dm={"dm-1": make_map(), "dm-2": other}).observations[0]
    assert judging.undecided(seen) == {"sdc", "sdd"}


ANSWERS = st.builds(
    Answer,
    st.sampled_from(
        [
            "good",
            "05/25/00",
            "02/04/0c",
            "06/29/00",
            "DID_NO_CONNECT",
            "status 0x18",
            "status 0x08",
            "not asked",
        ]
    ),
    st.sampled_from(["good", "05/25/00", "05/24/00", "DID_TIME_OUT"]),
    st.sampled_from(["good", "missing", "malformed", "not asked"]),
    st.sampled_from([0, 1, 3, None]),
    st.sampled_from([(), (WWID,), (OTHER,), ("1T10",)]),
)


@given(ANSWERS)
def test_no_answer_that_names_the_lun_is_ever_taken_for_gone(answer: Answer) -> None:
    judgement = judging.judge(make_disk("sda", 6, 2), answer, WWID)
    if judgement.kind == model.GONE:
        assert answer.ready == "05/25/00" or (answer.ready == "good" and answer.qualifier in (1, 3))
        assert answer.inquiry == "05/25/00" or answer.qualifier in (1, 3)
    if judgement.kind == model.OTHER:
        assert WWID not in answer.wwids
        assert judgement.wwids == (OTHER,)
