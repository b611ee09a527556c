# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watchers over several observations, locks, and what ceph-csi noted, from Ceph's answers as Ceph
16.2.15 gave them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph import watchers
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.cli import Ceph, Connection
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

DUMP = {
    "fsid": "e85137c6",
    "blocklist": {"10.0.0.5:0/0": "2027-11-21T12:00:00.000000+0000"},
    "range_blocklist": {},
}
OMAP = """\
features
value (8 bytes) :
00000000  01 00 00 00 00 00 00 00                           |........|
00000008

metadata_.rbd.csi.ceph.com/clientaddress/0001-vol/node-a
value (14 bytes) :
00000000  31 30 2e 30 2e 30 2e 35  3a 30 2f 31 32 33        |10.0.0.5:0/123|
0000000e

metadata_.rbd.csi.ceph.com/clientAddress/node-b
value (8 bytes) :
00000000  31 30 2e 30 2e 30 2e 36                           |10.0.0.6|
00000008

metadata_.rbd.csi.ceph.com/clientaddress/0001-vol/node-c
value (37 bytes) :
00000000  5b 76 32 3a 31 30 2e 30  2e 30 2e 37 3a 30 2f 31  |[v2:10.0.0.7:0/1|
00000010  2c 76 31 3a 31 30 2e 30  2e 30 2e 37 3a 30 2f 31  |,v1:10.0.0.7:0/1|
00000020  5d 20 20 20 20                                    |]    |
00000025

metadata_.rbd.csi.ceph.com/clientaddress/0001-vol/node-d
value (8 bytes) :
00000000  77 6f 72 6b 65 72 30 31                           |worker01|
00000008

metadata_conf_rbd_cache
value (8 bytes) :
00000000  31 30 2e 30 2e 30 2e 36                           |10.0.0.6|
00000008
"""


def watcher(address: str, client: int, cookie: int) -> dict[str, Any]:
    return {"address": address, "client": client, "cookie": cookie}


A, B = watcher("10.0.0.5:0/319745466", 4123, 18446462598732840961), watcher("10.0.0.6:0/7", 4124, 1)


MONS = {
    "mons": [{"public_addrs": {"addrvec": [{"type": "v2", "addr": "10.0.0.1:3300", "nonce": 0}]}}]
}


class Tools:
    """``ceph``, ``rbd`` and ``rados``; ``rounds``: what each observation of the image ``data``
    shows, the last one for ever.
    """

    def __init__(
        self,
        *rounds: Any,
        missing: Sequence[str] = (),
        mirrors: str | None = None,
        primary: bool = True,
        omap: str = OMAP,
    ) -> None:
        self.rounds, self.missing, self.slept, self.asked = list(rounds), missing, [], []
        self.primary, self.omap = primary, omap
        # What ``rados listwatchers`` says of the object rbd_mirroring; None where the image is not
        # mirrored.
        self.mirrors = mirrors

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        def result(rc: int, out: Any = "", err: str = "") -> CommandResult:
            return CommandResult(
                tuple(argv), rc, out if isinstance(out, str) else json.dumps(out), err, 0.1
            )

        self.asked.append(list(argv))
        if argv[0] == "ceph":
            return result(0, MONS if "mon" in argv else DUMP)
        if argv[0] == "rados" and argv[-2:] == ["listwatchers", "rbd_mirroring"]:
            missing = result(
                1, err="error listing watchers rbd/rbd_mirroring: (2) No such file or directory\n"
            )
            return missing if not self.mirrors else result(0, self.mirrors)
        if argv[0] == "rados":
            return result(0, self.omap)
        if argv[argv.index("--image") + 1] in self.missing:
            return result(2, err="rbd: error opening image none: (2) No such file or directory\n")
        if "status" in argv:
            found = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
            return found if isinstance(found, CommandResult) else result(0, {"watchers": found})
        if "lock" in argv:
            return result(
                0, [{"id": "auto 1", "locker": "client.4123", "address": "10.0.0.5:0/319745466"}]
            )
        mirroring = (
            {}
            if self.mirrors is None
            else {"mirroring": {"mode": "snapshot", "state": "enabled", "primary": self.primary}}
        )
        return result(
            0,
            {
                "name": "data",
                "id": "102143bede28",
                "features": ["layering", "exclusive-lock"],
                **mirroring,
            },
        )


def options(**given: Any) -> watchers.WatcherOptions:
    return watchers.make_options(
        {
            **{
                "images": [{"pool": "rbd", "namespace": None, "image": "data"}],
                "volumes": [],
                "observations": 1,
                "observation_seconds": 0,
            },
            **{"gone": [], "gone_timeout": 60, "rados_namespaces": {}, "sessions": False},
            **given,
        }
    )


def read(tools: Tools, **given: Any) -> tuple[dict[str, Any], list[Any]]:
    """What the module returns as ``ceph``, and its findings."""
    audit = watchers.Watchers(
        Ceph(Connection(), Deadline(60), tools), options(**given), tools.slept.append
    )
    state = audit.gather()
    return audit.facts()["ceph"], audit.plan(state).findings


LISTED = (
    "watcher=10.0.0.5:0/319745466 client.4123 cookie=93919075689600\nwatcher=[fd00::9]:0/17 "
    "client.4127 cookie=2\n"
)


@pytest.mark.parametrize(
    ("mirrors", "is_mirror"),
    # Address and client must be the same: another client of the host is none.
    [
        (None, False),
        (LISTED, True),
        (LISTED.replace("client.4123", "client.9"), False),
        (LISTED.replace("319745466", "1"), False),
    ],
)
def test_who_mirrors_the_pool(mirrors: str | None, is_mirror: bool) -> None:
    tools = Tools([A], mirrors=mirrors)
    ceph, _findings = read(tools)
    assert [found["mirror"] for found in ceph["images"][0]["watchers"]] == [is_mirror]
    # What is not mirrored has no such object.
    assert any("rbd_mirroring" in argv for argv in tools.asked) == (mirrors is not None)


@pytest.mark.parametrize("mirrors", ["", "something else\n", "watcher=nobody client.1 cookie=1\n"])
def test_who_mirrors_the_pool_must_be_known(mirrors: str) -> None:
    ceph, findings = read(Tools([A], mirrors=mirrors))
    assert ceph["images"][0]["watchers"] == [] and ceph["images"][0]["problem"] and findings


def test_a_mirrored_copy_says_nothing_about_the_volume() -> None:
    """rbd-mirror copies the image with ceph-csi's notes under its own name. Who has it open, only
    the Ceph of the primary image knows.
    """
    ceph, findings = read(Tools([], mirrors=LISTED, primary=False))
    (found,) = ceph["images"]
    assert "copy of an image that is primary on another Ceph cluster" in found["problem"]
    assert (found["watchers"], found["locks"], found["client_addresses"]) == ([], [], [])
    assert [finding.verdict for finding in findings] == ["report"]
    _ceph, findings = read(Tools([], mirrors=LISTED, primary=False), gone=["10.0.0.5"])
    assert [finding.verdict for finding in findings] == ["refuse"]


def test_a_note_of_a_range_is_no_address_and_keeps_no_other_from_being_read() -> None:
    """Whoever has ceph-csi's key writes the notes."""
    note = "metadata_.rbd.csi.ceph.com/clientaddress/node-x\nvalue (11 bytes) :\n"
    dump = "00000000  31 30 2e 30 2e 30 2e 30  2f 32 34                 |10.0.0.0/24|\n0000000b\n\n"
    ceph, _findings = read(Tools([A], omap=note + dump + OMAP))
    assert [found["node"] for found in ceph["images"][0]["client_addresses"]] == [
        "node-a",
        "node-b",
        "node-c",
    ]


def note_of(text: str) -> str:
    """A note of the node node-x as ``rados listomapvals`` shows it."""
    dump = [
        f"{start:08x}  {text[start : start + 16].encode().hex(' ')}  |.|\n"
        for start in range(0, len(text), 16)
    ]
    return "metadata_.rbd.csi.ceph.com/clientaddress/node-x\nvalue:\n" + "".join(dump) + "\n"


def test_a_note_that_is_no_address_is_none() -> None:
    """A number of 5,000 digits, which Python does not read, ended the look at each image."""
    assert watchers.parse_notes(note_of("10.0.0.5:0/1")) == [("node-x", "10.0.0.5")]
    for text in (
        "10.0.0.5:0/" + "9" * 5000,
        f"10.0.0.5:{'9' * 5000}/1",
        "9" * 5000,
        "[" + "1" * 5000,
        # Of what is too long for an address, no part is one.
        "10.0.0.5:0/12345678901",
        "1" * 20 + "10.0.0.5:0/1",
        "10.0.0.5:0/1" + " " * 200,
    ):
        assert watchers.parse_notes(note_of(text) + OMAP) == watchers.parse_notes(OMAP)


def test_an_image_of_which_something_else_is_said_hides_no_other() -> None:
    """It is named."""

    class Odd(Tools):
        def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
            if "info" in argv and "odd" in argv:
                return CommandResult(tuple(argv), 0, "[]", "", 0.1)
            if "status" in argv and "endless" in argv:
                said = '{"watchers": [{"address": "10.0.0.5:0/1", "client": 1e999, "cookie": 1}]}'
                return CommandResult(tuple(argv), 0, said, "", 0.1)
            return super().__call__(argv, timeout)

    names = ("odd", "endless", "data")
    images = [{"pool": "rbd", "namespace": None, "image": name} for name in names]
    ceph, findings = read(Odd([A]), images=images)
    odd, endless, data = ceph["images"]
    assert "what is said of it cannot be read" in odd["problem"]
    assert "rbd status lacks what is needed" in endless["problem"]
    assert (data["problem"], len(data["watchers"])) == ("", 1)
    assert [finding.name for finding in findings] == ["rbd/odd", "rbd/endless"]


def test_one_observation() -> None:
    ceph, findings = read(Tools([A]))
    assert findings == []
    assert (ceph["fsid"], ceph["observations"], ceph["seconds"]) == (
        "e85137c6",
        1,
        pytest.approx(0, abs=1),
    )
    assert ceph["families"] == ["IPv4"]
    (blocked,) = ceph["blocklist"]
    assert blocked == {
        **{
            "entry": "10.0.0.5:0/0",
            "kind": "address",
            "address": "10.0.0.5",
            "until": "2027-11-21T12:00:00Z",
        },
        "stand_in": False,
        "clients": 0,
    }
    assert ceph["images"] == [
        {
            **{
                "volume": "",
                "pool": "rbd",
                "namespace": "",
                "image": "data",
                "problem": "",
                "features": ["layering", "exclusive-lock"],
            },
            "watchers": [
                {
                    **{
                        "address": "10.0.0.5",
                        "entry": "10.0.0.5:0/319745466",
                        "client": "client.4123",
                        "cookie": "18446462598732840961",
                    },
                    **{"seen": 1, "persistent": False, "mirror": False},
                }
            ],
            "more_watchers": 0,
            "locks": [
                {"locker": "client.4123", "address": "10.0.0.5", "entry": "10.0.0.5:0/319745466"}
            ],
            "more_locks": 0,
            "client_addresses": [
                {"node": "node-a", "address": "10.0.0.5"},
                {"node": "node-b", "address": "10.0.0.6"},
                {"node": "node-c", "address": "10.0.0.7"},
            ],
        }
    ]


def test_only_who_is_always_there_is_persistent() -> None:
    again = watcher("10.0.0.6:0/7", 4124, 2)
    tools = Tools([A, B], [A], [again, A])
    ceph, _findings = read(tools, observations=3, observation_seconds=61)
    assert {
        (found["entry"], found["cookie"]): (found["seen"], found["persistent"])
        for found in ceph["images"][0]["watchers"]
    } == {
        ("10.0.0.5:0/319745466", "18446462598732840961"): (3, True),
        ("10.0.0.6:0/7", "1"): (1, False),
        ("10.0.0.6:0/7", "2"): (1, False),
    }
    assert ceph["observations"] == 3 and [round(seconds) for seconds in tools.slept] == [30, 61]


def test_of_thousands_of_clients_those_that_decide_are_handed_on() -> None:
    """Who has a key for an image may open it as often as he likes, and a result has an end."""
    crowd = [watcher("10.9.9.9:0/1", 100_000 + number, 1) for number in range(9_000)]
    passing = [watcher("10.9.9.9:0/2", 200_000 + number, 1) for number in range(9_000)]
    # At an address of its own; there all the time; by another client that stays; and a mirror.
    stays = watcher("10.9.9.9:0/3", 4123, 1)
    others = [A, stays, watcher("10.9.9.9:0/4", 4999, 7)]
    mirrors = "watcher=10.9.9.9:0/4 client.4999 cookie=9\n"
    tools = Tools([*crowd, *passing, *others], [*crowd, A, others[2]], mirrors=mirrors)
    ceph, findings = read(tools, observations=2, observation_seconds=1)
    assert findings == []
    (image,) = ceph["images"]
    clients = [found["client"].removeprefix("client.") for found in image["watchers"]]
    assert clients == [
        *(str(100_000 + number) for number in range(5)),
        *(str(200_000 + number) for number in range(5)),
        "4123",
        "4123",
        "4999",
    ]
    assert image["more_watchers"] == 2 * 8_995
    assert {found["client"] for found in image["watchers"] if found["mirror"]} == {"client.4999"}
    # What is to be gone is asked of all of them, and told in few words.
    _ceph, (finding,) = read(Tools([*crowd, A]), gone=["10.9.9.9"], gone_timeout=0)
    assert "and 8995 more" in finding.summary and len(finding.summary) < 1_000


def test_many_clients_of_the_kernel_hide_no_other_at_their_address() -> None:
    """Who takes the one for a node's must see the other."""
    crowd = [
        watcher(f"10.9.9.9:0/{number}", 4999, 18446462598732840960 + number) for number in range(9)
    ]
    other = watcher("10.9.9.9:0/77", 4999, 93919075689600)
    for seen in ([*crowd, other], [other, *crowd]):
        ceph, _findings = read(Tools(seen))
        cookies = {found["cookie"] for found in ceph["images"][0]["watchers"]}
        assert str(other["cookie"]) in cookies and len(cookies) == 6


def test_of_the_locks_of_an_address_the_first_are_handed_on() -> None:
    lock = {"locker": "client.9", "address": "10.9.9.9:0/1"}
    found = watchers.parse_locks([lock] * 9_000 + [{**lock, "address": "10.9.9.8:0/1"}])
    target = watchers.Target("", "rbd", "", "data")
    image = watchers._image(
        watchers.Observed(target, details=watchers.Details(locks=found)), 1, set()
    )
    assert [one["address"] for one in image["locks"]] == ["10.9.9.9"] * 5 + ["10.9.9.8"]
    assert image["more_locks"] == 8_995


def test_every_question_opens_the_image_read_only() -> None:
    tools = Tools([A])
    read(tools)
    asked = {
        " ".join(argv[argv.index("--client_mount_timeout=5") + 1 :])
        for argv in tools.asked
        if argv[0] != "ceph"
    }
    assert asked == {
        "status --pool rbd --image data --format json",
        "info --pool rbd --image data --format json",
        "lock ls --pool rbd --image data --format json",
        "--pool rbd listomapvals rbd_header.102143bede28",
    }


def test_an_image_that_cannot_be_read_is_none_without_watchers() -> None:
    tools = Tools([A], missing=["none"])
    ceph, (finding,) = read(
        tools,
        images=[{"pool": "rbd", "namespace": "n", "image": name} for name in ("none", "data")],
    )
    none, data = ceph["images"]
    assert "No such file" in none["problem"] and none["watchers"] == [] and data["problem"] == ""
    assert (finding.control, finding.name, finding.verdict, finding.named) == (
        "STOR-16",
        "rbd/n/none",
        "report",
        False,
    )
    assert "No such file" in finding.reason
    _ceph, (finding,) = read(
        tools, images=[{"pool": "rbd", "namespace": "n", "image": "none"}], gone=["10.0.0.5"]
    )
    assert (finding.verdict, finding.named) == ("refuse", True)


def test_one_bad_observation_is_a_problem() -> None:
    timed_out = CommandResult(
        ("rbd",), None, "", "", 13, "no answer within 13.0 s, abandoned as pid 1"
    )
    ceph, (finding,) = read(Tools([A], timed_out, [A]), observations=3, observation_seconds=3)
    assert "does not answer" in ceph["images"][0]["problem"] and ceph["images"][0]["watchers"] == []
    assert finding.verdict == "report"


def test_osds_that_never_answer_a_user_without_capabilities() -> None:
    """As those of Ceph 18.2.7, while its monitors answer it."""
    ceph = Ceph(Connection(user="ops"), Deadline(60))

    def said(*argv: str) -> str:
        problem = "no answer within 13.0 s, abandoned as pid 1"
        return str(ceph.error(CommandResult(argv, None, "", "", 13, problem, timed_out=True)))

    for program in ("rbd", "rados"):
        told = said(*ceph.argv(program, "status"))
        assert "may answer client.ops: else grant osd 'profile rbd-read-only'" in told
    assert "profile rbd-read-only" not in said(*ceph.argv("ceph", "osd", "dump"))


@pytest.mark.parametrize("gone", ["10.0.0.5", "10.0.0.5:0/319745466", "10.0.0.0/24"])
def test_what_is_to_be_gone_is_waited_for(gone: str) -> None:
    tools = Tools([A], [A], [])
    ceph, findings = read(tools, gone=[gone])
    assert findings == [] and ceph["images"][0]["watchers"] == [] and len(tools.slept) == 2
    assert (ceph["observations"], ceph["seconds"]) == (1, 0)


def test_others_are_not_waited_for() -> None:
    tools = Tools([B])
    _ceph, findings = read(tools, gone=["10.0.0.5", "10.0.0.6:0/8"])
    assert findings == [] and tools.slept == []


def test_what_is_not_gone_in_time() -> None:
    ceph, (finding,) = read(Tools([A, B]), gone=["10.0.0.5"], gone_timeout=0)
    assert (finding.control, finding.severity, finding.verdict, finding.named) == (
        "STOR-16",
        "critical",
        "refuse",
        True,
    )
    assert (
        "still watched by 10.0.0.5:0/319745466 (client.4123)" in finding.summary
        and "10.0.0.6" not in finding.summary
    )
    assert len(ceph["images"][0]["watchers"]) == 2


def test_volumes_and_images() -> None:
    attributes = {"clusterID": "c", "pool": "rbd", "imageName": "data"}
    rbd = {
        "metadata": {"name": "pv-a"},
        "spec": {
            "csi": {
                "driver": "rbd.csi.ceph.com",
                "volumeHandle": "h",
                "volumeAttributes": attributes,
            }
        },
    }
    twin = {**rbd, "metadata": {"name": "pv-b"}}
    vague = {
        "metadata": {"name": "pv-c"},
        "spec": {"csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": "h"}},
    }
    nfs = {"metadata": {"name": "pv-d"}, "spec": {"nfs": {"server": "s"}}}
    tools = Tools([A])
    audit = watchers.Watchers(
        Ceph(Connection(), Deadline(60), tools),
        options(volumes=[rbd, twin, vague, nfs]),
        tools.slept.append,
    )
    state = audit.gather()
    images = audit.facts()["ceph"]["images"]
    assert [
        (image["volume"], bool(image["problem"]), len(image["watchers"])) for image in images
    ] == [
        ("", False, 1),
        ("pv-a", False, 1),
        ("pv-b", False, 1),
        ("pv-c", True, 0),
    ]
    assert len([argv for argv in tools.asked if "status" in argv]) == 1
    assert audit.facts()["ignored"] == [
        "pv-d"
    ] and "1 volumes that are not RBD were ignored" in audit.healthy(state)
    assert [finding.name for finding in audit.plan(state).findings] == ["pv-c"]


def test_the_namespace_of_a_volume_that_does_not_say() -> None:
    attributes = {"clusterID": "c", "pool": "rbd", "imageName": "data"}
    volume = {
        "metadata": {"name": "pv"},
        "spec": {
            "csi": {
                "driver": "rbd.csi.ceph.com",
                "volumeHandle": "h",
                "volumeAttributes": attributes,
            }
        },
    }
    ceph, findings = read(Tools([A]), images=[], volumes=[volume], rados_namespaces={"c": "tenant"})
    assert findings == [] and [
        (image["volume"], image["namespace"]) for image in ceph["images"]
    ] == [("pv", "tenant")]
    _ceph, (finding,) = read(Tools([A], missing=["data"]), images=[], volumes=[volume])
    assert "give it in rados_namespaces" in finding.reason


NO_WATCHERS = (
    [{}],
    [None],
    [watcher(":/0", 1, 1)],
    [{**A, "cookie": "x"}],
    [{**A, "client": None}],
    "none",
    3,
)


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"watchers": None}, *({"watchers": found} for found in NO_WATCHERS)]
)
def test_a_status_that_is_none(answer: Any) -> None:
    with pytest.raises(StorageOpsError, match="rbd status lacks"):
        watchers.parse_watchers(answer)


def test_answers_of_old_releases() -> None:
    assert watchers.parse_watchers({"watchers": {"watcher": A}}) == watchers.parse_watchers(
        {"watchers": [A]}
    )
    lock = {"locker": "client.1", "address": "[fd00:0::5]:0/9"}
    assert watchers.parse_locks({"auto 1": lock}) == watchers.parse_locks([lock])
    assert watchers.parse_locks([lock])[0].entry.text == "[fd00::5]:0/9"
    for answer in (None, [None], [{}], {"a": 1}):
        with pytest.raises(StorageOpsError, match="rbd lock ls lacks"):
            watchers.parse_locks(answer)


@given(st.text())
def test_notes_never_break(text: str) -> None:
    assert isinstance(watchers.parse_notes(OMAP.replace("31 30", text)), list)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"observations": 0}, "observations is 0"),
        ({"observations": 2}, "give observation_seconds"),
        ({"observation_seconds": float("nan")}, "observation_seconds is nan"),
        ({"observation_seconds": float("inf")}, "observation_seconds is inf"),
        ({"gone_timeout": -1}, "gone_timeout is -1"),
        ({"gone_timeout": float("nan")}, "gone_timeout is nan"),
        ({"gone_timeout": float("inf")}, "gone_timeout is inf"),
        ({"rados_namespaces": {"c": ["n"]}}, "rados_namespaces is not a dictionary"),
        ({"gone": ["worker01"]}, "'worker01' cannot be"),
        ({"volumes": [{"spec": {}}]}, "not a PersistentVolume"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(StorageOpsError, match=said):
        options(**given)
