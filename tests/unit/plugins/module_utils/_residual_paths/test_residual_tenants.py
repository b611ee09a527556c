# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tenant's own iSCSI server, to which the kubelet logs in for one of his pods, beside an array.

He chooses LUNs, names and sense codes. None of it decides about the array's maps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.codes import Reason
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Finding
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.block import (
    Disk,
    DmDevice,
    Transport,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.multipath import Daemon
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.scsi import Answer
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths import (
    plan as pure,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths import (
    scans,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.arrays import (
    find_arrays,
    maker_of,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._residual_paths.model import (
    Observation,
    ResidualOptions,
    ResidualState,
)

GONE = Answer("05/25/00", "05/25/00")
BUSY = Answer("status 0x08", "status 0x08")
NAMELESS = Answer("good", "good", "05/24/00", 0)
# The array has two portals, each of which is a target of its own.
HOSTS = {
    6: Transport("iSCSI", "session1", "10.0.0.1", "LOGGED_IN"),
    7: Transport("iSCSI", "session2", "10.0.0.2", "LOGGED_IN"),
    9: Transport("iSCSI", "session3", "192.0.2.66", "LOGGED_IN"),
    # Of Fibre Channel are two arrays.
    20: Transport("FC", "rport-20:0-0", "0x5006", "Online"),
    21: Transport("FC", "rport-21:0-0", "0x5007", "Online"),
}
ARRAY, EVIL = "360000aa", "36000666"


@dataclass
class Node:
    """Disks and maps, added one by one."""

    disks: dict[str, Disk]
    maps: dict[str, DmDevice]
    answers: dict[str, Answer]
    transports: dict[int, Transport]

    def disk(self, wwid: str, host: int, answer: Answer, holders: tuple[str, ...] = ()) -> str:
        number = len(self.disks)
        name = f"sd{number}"
        self.disks[name] = Disk(
            name,
            f"8:{number}",
            f"{host}:0:0:{number}",
            "running",
            wwid,
            "LIO-ORG",
            "lun1",
            holders,
            self.transports[host],
        )
        self.answers[name] = answer
        return name

    def map(self, wwid: str, hosts: tuple[int, ...], answer: Answer | None = None) -> None:
        dm = f"dm-{len(self.maps)}"
        said = answer or Answer("good", "good", "good", 0, (wwid,))
        paths = tuple(self.disk(wwid, host, said, (dm,)) for host in hosts)
        self.maps[dm] = DmDevice(
            dm, f"253:{dm[3:]}", f"map-{wwid}", f"mpath-{wwid}", False, paths, ()
        )

    def maps_of(self, maker: str, hosts: tuple[int, ...], dead: int, well: int) -> None:
        for number in range(dead + well):
            wwid = f"{maker}{hosts[0]}{number:04d}"
            self.map(wwid, hosts, GONE if number < dead else None)

    def state(self) -> ResidualState:
        paths = {
            device.wwid: {
                name: "failed faulty" if self.answers[name] == GONE else "active ready"
                for name in device.slaves
            }
            for device in self.maps.values()
        }
        seen = Observation(
            0.0,
            dict(self.disks),
            dict(self.maps),
            {transport.name: transport for transport in self.transports.values()},
            Daemon(paths),
            dict(self.answers),
            {disk.target: () for disk in self.disks.values()},
        )
        return ResidualState(
            "node-1",
            (seen, replace(seen, at=15.0), replace(seen, at=30.0)),
            20.0,
            {},
            {device.dev: 0 for device in self.maps.values()},
        )


def node(dead: int = 0, well: int = 0) -> Node:
    """A node with maps of the array."""
    made = Node({}, {}, {}, dict(HOSTS))
    made.maps_of(ARRAY, (6, 7), dead, well)
    return made


def of_array(made: Node, **options: Any) -> list[Finding]:
    """The findings about the array's maps."""
    findings = pure.plan(made.state(), ResidualOptions(**options)).findings
    return [finding for finding in findings if ARRAY in finding.evidence["wwid"]]


def verdicts(findings: list[Finding]) -> dict[str, int]:
    return dict(Counter(finding.verdict for finding in findings))


@pytest.mark.parametrize(("dead", "well"), [(0, 0), (0, 20), (4, 0), (20, 0), (1, 3)])
@pytest.mark.parametrize(
    "plain", [None, BUSY, NAMELESS, GONE], ids=["-", "busy", "nameless", "gone"]
)
def test_a_tenants_luns_neither_lift_nor_set_up_the_guard(
    dead: int, well: int, plain: Answer | None
) -> None:
    for broken, total, verdict in ((3, 6, "repair"), (4, 6, "refuse"), (6, 6, "refuse")):
        for options in ({}, {"rescan_targets": True}):
            made = node(broken, total - broken)
            made.maps_of(EVIL, (9,), dead, well)
            if plain:
                made.disk(f"{EVIL}x", 9, plain)
            found = of_array(made, max_repairs=6, **options)
            assert verdicts(found) == {verdict: broken}, found[0].reason


def test_a_tenant_has_his_own_majority() -> None:
    made = node(3, 3)
    made.maps_of(EVIL, (9,), 3, 1)
    findings = pure.plan(made.state(), ResidualOptions()).findings
    theirs = [finding for finding in findings if EVIL in finding.evidence["wwid"]]
    assert verdicts(theirs) == {"refuse": 3}
    assert "3 of the node's 4 maps of 9:0:0 look broken at once" in theirs[0].reason


def test_an_outage_of_all_arrays_is_refused() -> None:
    made = node(6, 0)
    made.maps_of(EVIL, (9,), 2, 0)
    made.maps_of("360000bb", (20,), 2, 0)
    assert verdicts(pure.plan(made.state(), ResidualOptions()).findings) == {"refuse": 10}


def test_portals_of_one_array_are_counted_together() -> None:
    """Half of its maps are left on one portal each; one that has both ties them."""
    for tied in (True, False):
        made = Node({}, {}, {}, dict(HOSTS))
        made.maps_of(ARRAY, (6,), 2, 3)
        made.maps_of("360000ab", (7,), 4, 0)
        if tied:
            made.map("360000aabothportals", (6, 7), GONE)
        count = len(find_arrays(made.state().observations).makers)
        assert count == (1 if tied else 2)
        first = of_array(made)
        assert verdicts(first) == ({"refuse": 3} if tied else {"repair": 2})


def test_sessions_to_one_portal_are_one_array() -> None:
    """As where each volume is a target of its own."""
    made = Node({}, {}, {}, {host: replace(HOSTS[6], name=f"s{host}") for host in range(6)})
    for host in range(6):
        made.map(f"{ARRAY}{host}", (host,), GONE if host < 3 else None)
    assert verdicts(of_array(made)) == {"repair": 3}
    made.map(f"{ARRAY}6", (0,), GONE)
    assert verdicts(of_array(made)) == {"refuse": 4}


def test_what_is_not_reached_by_iscsi_is_counted_together() -> None:
    """No pod can add to that, and arrays of one fabric have one outage."""
    made = Node({}, {}, {}, dict(HOSTS))
    made.maps_of(ARRAY, (20,), 3, 0)
    made.maps_of("360000bb", (21,), 0, 4)
    assert verdicts(of_array(made)) == {"repair": 3}


def test_an_empty_map_is_asked_of_its_array_alone() -> None:
    made = node(0, 6)
    made.map(f"{ARRAY}lost", ())
    made.disk(f"{EVIL}x", 9, NAMELESS)
    made.disk("", 9, Answer(problem="no answer"))
    made.transports[9] = replace(HOSTS[9], state="FAILED")
    made.disks = {
        name: replace(disk, transport=made.transports[9]) if disk.target == "9:0:0" else disk
        for name, disk in made.disks.items()
    }
    (finding,) = of_array(made, flush_empty_maps=True)
    assert finding.verdict == "repair", finding.reason
    # A disk of its own array that does not tell its name still forbids it.
    made.disk("", 7, NAMELESS)
    found = [one for one in of_array(made, flush_empty_maps=True) if "lost" in one.name]
    assert "might be its path" in found[0].reason


def test_an_empty_map_of_an_array_that_is_not_there_is_asked_of_all() -> None:
    made = node(0, 6)
    made.map("360000bblost", ())
    made.disk(f"{EVIL}x", 9, NAMELESS)
    findings = pure.plan(made.state(), ResidualOptions(flush_empty_maps=True)).findings
    (finding,) = [one for one in findings if "lost" in one.name]
    assert "might be its path" in finding.reason


def test_arrays_take_turns() -> None:
    made = Node({}, {}, {}, dict(HOSTS))
    made.maps_of(EVIL, (9,), 6, 6)
    made.maps_of(ARRAY, (6, 7), 2, 2)
    assert verdicts(of_array(made, max_repairs=4)) == {"repair": 2}


def test_severe_findings_of_a_tenant_wait_for_their_turn() -> None:
    """Its maps read other LUNs, as its server likes: that is critical, and a dead map is not."""
    made = Node({}, {}, {}, dict(HOSTS))
    for number in range(6):
        other = Answer("good", "good", "good", 0, (f"{EVIL}other{number}",))
        made.map(f"{EVIL}x{number}", (9,), other)
    made.maps_of(EVIL, (9,), 0, 8)
    made.maps_of(ARRAY, (6, 7), 2, 2)
    state = made.state()
    state.last.luns["9:0:0"] = tuple(range(30))
    found = pure.plan(state, ResidualOptions(max_repairs=4)).findings
    order = [(one.severity, one.verdict) for one in found]
    turn = [("critical", "repair"), ("major", "repair")]
    assert order == turn * 2 + [("critical", "refuse")] * 4
    assert {one.code for one in found[4:]} == {"too_many_repairs"}


def with_ports(**changes: str) -> Node:
    """A tenant's server on ten ports, and an array, with two dead maps of each port and portal."""
    made = Node({}, {}, {}, dict(HOSTS))
    for number in range(30, 40):
        peer = f"192.0.2.66:{3260 + number}" if "peer" not in changes else changes["peer"]
        made.transports[number] = Transport(
            "iSCSI",
            f"session{number}",
            peer.format(number),
            "LOGGED_IN",
            changes.get("address", ""),
        )
        made.maps_of(EVIL, (number,), 2, 2)
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"peer": "[2001:db8::66]:{0}"},
        # By ten names, of one address.
        {"peer": "name{0}.example.com:3260", "address": "192.0.2.66"},
    ],
)
def test_the_ports_of_one_server_share_its_turns(changes: dict[str, str]) -> None:
    """It had ten, and so used up max_repairs."""
    made = with_ports(**changes)
    made.maps_of(ARRAY, (6, 7), 2, 2)
    assert len(find_arrays(made.state().observations).makers) == 11
    assert verdicts(of_array(made, max_repairs=4)) == {"repair": 2}


def test_a_server_at_an_arrays_address_does_not_take_its_turns() -> None:
    """As by a Service with externalIPs: its ports have turns among those of the array."""
    made = with_ports(peer="10.0.0.1:{0}")
    made.transports[6] = replace(HOSTS[6], peer="10.0.0.1:3260")
    made.maps_of(ARRAY, (6, 7), 2, 2)
    for most, verdict in ((11, {"repair": 1, "refuse": 1}), (22, {"repair": 2})):
        assert verdicts(of_array(made, max_repairs=most)) == verdict
    # Nor does it decide about the array.
    made.maps_of(ARRAY + "b", (6, 7), 3, 0)
    assert verdicts(of_array(made, max_repairs=100)) == {"refuse": 5}


def test_an_address_that_is_not_known_is_no_server_in_common() -> None:
    made = with_ports(peer="unknown of session{0}")
    arrays = find_arrays(made.state().observations)
    assert len(set(arrays.servers.values())) == 10
    assert arrays.of_server(["", "0:0:0"]) == ("", "0:0:0")


def test_a_scan_of_a_mirrored_array_counts_the_other_half() -> None:
    """Both halves have a volume by the same name, and so by the same maker."""
    made = node(2, 4)
    made.disk(f"{ARRAY}mirror", 9, BUSY)
    for finding in of_array(made, rescan_targets=True, accept_majority=True):
        if finding.kind == "multipath map":
            assert "a scan could add a disk of" in finding.reason


def test_a_tenants_map_that_turns_is_not_the_result_of_a_repair() -> None:
    before, after = node(0, 2), node(0, 2)
    before.maps_of(EVIL, (9,), 0, 1)
    after.maps_of(EVIL, (9,), 0, 1)
    name = list(after.answers)[-1]
    after.answers[name] = Answer("good", "good", "good", 0, ("36000777other",))
    assert scans.mixed(before.state(), after.state(), ["6:0:0"]) == []
    assert scans.mixed(before.state(), after.state(), ["9:0:0"]) != []
    first = next(iter(after.answers))
    after.answers[first] = Answer("good", "good", "good", 0, (f"{ARRAY}other",))
    assert scans.mixed(before.state(), after.state(), ["7:0:0"]) != []


# What a LUN says of itself that is of another array.


def serves(*wwids: str) -> Answer:
    return Answer("good", "good", "good", 0, wwids)


def found(made: Node, **options: Any) -> dict[str, Finding]:
    """All findings, by name."""
    return {one.name: one for one in pure.plan(made.state(), ResidualOptions(**options)).findings}


def half_dead(made: Node) -> str:
    """A map of the array that one path still serves; the name of its other path."""
    made.map(f"{ARRAY}half", (6, 7))
    name = list(made.disks)[-1]
    made.answers[name] = GONE
    return name


@pytest.mark.parametrize("claimed", [(f"{ARRAY}half",), ("36000666y", f"{ARRAY}half")])
def test_a_claim_does_not_take_a_working_map_away(claimed: tuple[str, ...]) -> None:
    """It was flushed, since the claim said that its LUN came back, and the server's LUN scanned
    into it.
    """
    made = node(0, 4)
    half_dead(made)
    names = [made.disk(f"{EVIL}{number}", 9, serves(f"{EVIL}{number}")) for number in range(3)]
    made.answers[names[0]] = serves(*claimed)
    findings = found(made)
    assert list(findings) == [names[0], f"map-{ARRAY}half"]
    assert findings[f"map-{ARRAY}half"].code == "path_serves_lun"
    assert "still serves the LUN" in findings[f"map-{ARRAY}half"].reason
    said = findings[names[0]]
    assert (said.verdict, said.code) == ("refuse", "scan_unsafe")
    assert f"answers as {ARRAY}half, which is a volume of another array" in said.reason


def test_names_of_all_volumes_tie_none_of_them_to_the_claimant() -> None:
    """It is in use, and so refused the repair of every map of the node."""
    made = node(1, 3)
    claims = [device.wwid for device in made.maps.values()]
    name = made.disk(f"{EVIL}x", 9, serves(*claims))
    state = made.state()
    state.uses[name] = [Reason("in_use_mounted", "mounted at /x")]
    findings = {one.name: one for one in pure.plan(state, ResidualOptions()).findings}
    dead = findings.pop(f"map-{claims[0]}")
    assert (dead.verdict, [step.verb for step in dead.repair]) == (
        "repair",
        ["flush_map", "delete_path", "delete_path"],
    )
    (own,) = findings.values()
    assert (own.name, own.verdict, own.code) == (name, "refuse", "in_use_mounted")


@pytest.mark.parametrize("count", [0, 4])
def test_luns_of_another_target_do_not_count_by_their_names(count: int) -> None:
    """Four of a tenant's, that were found as the array's healthy ones: no majority of its target
    is broken.
    """
    made = Node({}, {}, {}, dict(HOSTS))
    made.maps_of(ARRAY, (6,), 1, 6)
    plain = made.disk(f"{ARRAY}plain", 6, GONE)
    healthy = [device.wwid for device in made.maps.values()][1:]
    for wwid in healthy[:count]:
        made.disk(wwid, 9, serves(f"{EVIL}{wwid}"))
    findings = found(made)
    assert findings[plain].verdict == "repair", findings[plain].reason
    assert findings[f"map-{ARRAY}60000"].verdict == "repair"


def test_a_map_of_the_same_maker_that_turns_is_not_the_result_of_a_repair() -> None:
    """Its server chose the company ID of the array, and then another name of that maker."""
    states = []
    for turned in (False, True):
        made = node(1, 1)
        made.map(f"{ARRAY}theirs", (9,), serves(f"{ARRAY}{'other' if turned else 'theirs'}"))
        states.append(made.state())
    for gained in (True, False):
        assert scans.mixed(*states, ["6:0:0"], gained) == []
    assert scans.mixed(*states, ["9:0:0"]) != []


def test_a_disk_that_has_the_name_of_a_gone_one_is_not_taken_for_it() -> None:
    """A disk of the tenant was called as a path of the array's map is by now."""
    before, after = (Node({}, {}, {}, dict(HOSTS)) for _time in range(2))
    before.disk(f"{EVIL}x", 9, GONE)
    before.map(f"{ARRAY}x", (6,))
    after.map(f"{ARRAY}x", (6,), serves(f"{ARRAY}other"))
    assert before.disks.keys() >= after.disks.keys()
    assert scans.mixed(before.state(), after.state(), ["6:0:0"]) != []


def test_a_failed_repair_of_an_empty_map_is_about_no_array() -> None:
    """Its name has a maker that anyone may choose."""
    made = node(0, 2)
    made.map(f"{ARRAY}lost", ())
    state = made.state()
    (finding,) = pure.plan(state, ResidualOptions(flush_empty_maps=True)).findings
    assert finding.verdict == "repair", finding.reason
    assert pure.repaired_arrays(state, finding) == {""}


# And what is one array all the same.


def moved(made: Node, first: str, second: str) -> None:
    """The LUN numbers of two maps were swapped."""
    for device in made.maps.values():
        other = {first: second, second: first}.get(device.wwid)
        for name in device.slaves if other else ():
            made.answers[name] = serves(str(other))


@pytest.mark.parametrize(
    "hosts",
    [
        # Two portals, each a target of its own (an IQN); by the maps that have both.
        (6, 7),
        # Fibre Channel, which has no portals.
        (20, 21),
        # Of one portal alone.
        (6,),
        # Both, as an array may be reached.
        (6, 20),
    ],
)
def test_a_swap_within_an_array_is_one_repair(hosts: tuple[int, ...]) -> None:
    made = Node({}, {}, {}, dict(HOSTS))
    made.maps_of(ARRAY, hosts, 0, 4)
    # The tenant has a map of the same maker beside it.
    made.map(f"{ARRAY}theirs", (9,))
    first, second = [device.wwid for device in made.maps.values()][:2]
    moved(made, first, second)
    (finding,) = found(made).values()
    assert finding.verdict == "repair", finding.reason
    assert [step.verb for step in finding.repair] == ["flush_map", "flush_map", "replace_paths"]


def test_a_swap_among_targets_that_each_have_one_volume() -> None:
    """An IQN for each volume, at one portal; as many sessions."""
    made = Node({}, {}, {}, {host: replace(HOSTS[6], name=f"s{host}") for host in range(4)})
    for host in range(4):
        made.map(f"{ARRAY}{host}", (host,))
    moved(made, f"{ARRAY}0", f"{ARRAY}1")
    (finding,) = found(made).values()
    assert finding.verdict == "repair", finding.reason


def test_a_lun_that_moved_to_a_portal_that_its_map_does_not_have() -> None:
    """Another map has both portals, so they are of one array. Without one, nothing tells."""
    for tied in (True, False):
        made = Node({}, {}, {}, dict(HOSTS))
        made.maps_of(ARRAY, (6,), 0, 3)
        made.maps_of(ARRAY, (7,), 0, 3)
        if tied:
            made.map(f"{ARRAY}tie", (6, 7))
        (name,) = made.maps["dm-3"].slaves
        made.answers[name] = serves(f"{ARRAY}60000")
        (finding,) = found(made).values()
        assert finding.verdict == ("repair" if tied else "refuse"), finding.reason


@pytest.mark.parametrize(
    ("hosts", "claimant", "verdict"),
    [((6, 7), 6, "repair"), ((6, 7), 9, "refuse"), ((20,), 20, "repair"), ((20,), 9, "refuse")],
)
def test_a_lun_of_a_map_that_has_no_path_left(
    hosts: tuple[int, ...], claimant: int, verdict: str
) -> None:
    """It waits for its LUN, and may have writes in its queue. Where a server of a pod is beside
    the array, only what none can reach brings that LUN.
    """
    made = Node({}, {}, {}, dict(HOSTS))
    made.maps_of(ARRAY, hosts, 0, 3)
    made.map(f"{ARRAY}lost", ())
    if claimant == 9:
        made.maps_of(EVIL, (9,), 0, 3)
    name = made.disk(f"{EVIL}x", claimant, serves(f"{ARRAY}lost"))
    finding = found(made)[name]
    assert finding.verdict == verdict, finding.reason
    if verdict == "refuse":
        assert finding.code == "scan_unsafe"
        assert "no path of that map is left" in finding.reason


def test_a_claim_by_a_better_name_than_the_disk_had() -> None:
    """It was found by an EUI-64 name, and the scan would bring it by its NAA name."""
    made = node(0, 4)
    made.maps_of(EVIL, (9,), 0, 3)
    name = made.disk("20000666x", 9, serves("20000666y", f"{ARRAY}60000"))
    finding = found(made)[name]
    assert (finding.verdict, finding.code) == ("refuse", "scan_unsafe")


def test_a_lun_that_a_disk_in_no_map_was_found_as() -> None:
    """Where no map has its name, such a disk tells whose it is, however well it serves it."""
    made = node(0, 3)
    made.disk(f"{ARRAY}plain", 6, serves(f"{ARRAY}plain"))
    made.maps_of(EVIL, (9,), 0, 3)
    name = made.disk(f"{EVIL}x", 9, serves(f"{ARRAY}plain"))
    finding = found(made)[name]
    assert (finding.verdict, finding.code) == ("refuse", "scan_unsafe")
    # The array's own LUN may come to another number of it.
    own = made.disk(f"{ARRAY}y", 7, serves(f"{ARRAY}plain"))
    assert found(made)[own].verdict == "repair"


@pytest.mark.parametrize(
    ("wwid", "maker"),
    [
        ("36001405e4563a9b6215b4e49ba37cfd9", "001405"),
        ("350014380123456789", "001438"),
        ("32abc001405123456", "001405"),
        ("30123456789abcdef", ""),
        ("20014050123456789", "001405"),
        ("1LIO-ORG_lun1_4563a9b6", "LIO-ORG"),
        ("1ATA_QEMU", "ATA"),
        ("0QEMU", ""),
        ("", ""),
    ],
)
def test_who_made_a_volume(wwid: str, maker: str) -> None:
    assert maker_of(wwid) == maker
