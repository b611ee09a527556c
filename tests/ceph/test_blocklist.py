# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_blocklist against a real monitor: every kind of entry, four ways, and everything that is
refused.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lab.ceph.client import Writer
from lab.common import patient, wait
from support.cluster import COLLECTION
from support.node import Outcome, environment
from support.storage import Storage, is_range

# As Ceph spells them in the OSD map.
KINDS = {
    "10.0.0.5": "10.0.0.5:0/0",
    "10.0.0.5:0/319745466": "10.0.0.5:0/319745466",
    "10.0.0.0/24": "cidr:10.0.0.0:0/24",
    "fd00::5": "[fd00::5]:0/0",
    "[fd00::5]:0/12": "[fd00::5]:0/12",
    "fd00::/64": "cidr:[fd00::]:0/64",
}
THREE = tuple(KINDS)[:3]
# Somebody else's: another kind for the same address, a neighbour, what Ceph itself adds for a lock
# that was broken.
FOREIGN = ("10.0.0.5:0/7", "10.0.0.50:0/0", "192.0.2.9:0/123456")
YEAR = 31_536_000
DAY = 86_400


def blocklist(storage: Storage, *entries: str, check: bool = False, **options: Any) -> Outcome:
    """One run."""
    return storage.ansible("ceph_blocklist", check, entries=list(entries), **options)


def add(storage: Storage, *entries: str, seconds: int = YEAR) -> None:
    """Entries that are there already, by hand."""
    for entry in entries:
        ranged = ["range"] if is_range(entry) else []
        storage.ceph.change_blocklist(*ranged, "add", entry, str(seconds))


def epoch(storage: Storage) -> int:
    """Of the OSD map: it grows with every change."""
    return int(storage.ceph.json("osd", "dump")["epoch"])


ADD, REMOVE = "add_blocklist_entry", "remove_blocklist_entry"


def command(action: dict[str, Any]) -> list[str]:
    """As it was run, but for the seconds: what stands in ends at a time of the day."""
    return [word for word in action["command"] if not word.isdigit()]


def told(storage: Storage) -> list[dict[str, Any]]:
    """The blocklist, as rbd_watcher_info returns it."""
    found: list[dict[str, Any]] = storage.ansible("rbd_watcher_info").result["ceph"]["blocklist"]
    return found


def four_ways(storage: Storage, *entries: str, verbs: tuple[str, ...], **options: Any) -> set[str]:
    """Check, run, run again, check again; returns the entries that are there in the end."""
    before = storage.ceph.osd_map()
    planned = blocklist(storage, *entries, check=True, **options)
    assert not planned.failed and planned.changed, planned.msg
    assert planned.outcomes == [(verb, "planned") for verb in verbs] * len(entries)
    assert storage.ceph.osd_map() == before
    done = blocklist(storage, *entries, **options)
    assert not done.failed and done.changed, done.msg
    assert done.outcomes == [(verb, "done") for verb in verbs] * len(entries)
    commands = [command(action) for action in planned.result["actions"]]
    assert [command(action) for action in done.result["actions"]] == commands
    after = storage.ceph.osd_map()
    assert after != before
    for check in (False, True):
        again = blocklist(storage, *entries, check=check, **options)
        assert not again.failed and not again.changed and not again.findings, again.msg
    assert storage.ceph.osd_map() == after
    return set(storage.ceph.blocklist())


@pytest.mark.smoke
def test_every_kind_is_added_and_taken_back_and_foreign_entries_stay(storage: Storage) -> None:
    add(storage, *storage.known(*FOREIGN, "192.0.2.0/24"))
    foreign, kinds = storage.ceph.blocklist(), storage.known(*KINDS)
    there = four_ways(storage, *kinds, verbs=(ADD,))
    assert there == {*foreign, *storage.known(*KINDS.values())}
    told = {found["entry"]: found for found in blocklist(storage, *kinds).result["blocklist"]}
    assert {told[name]["kind"] for name in ("10.0.0.5:0/0", "[fd00::5]:0/0")} == {"address"}
    assert told["10.0.0.5:0/319745466"]["kind"] == "client"
    for name in storage.known("10.0.0.0/24", "fd00::/64"):
        assert (told[name]["kind"], told[name]["address"]) == ("range", name)
    # Of the two clients at one address, only the one that is blocked for longer is told.
    assert "10.0.0.5:0/7" not in told and told["10.0.0.5:0/319745466"]["clients"] == 2
    assert told["[fd00::5]:0/12"]["until"].startswith(str(time.gmtime(time.time() + YEAR).tm_year))
    assert four_ways(storage, *kinds, verbs=(REMOVE,), state="absent") == set(foreign)
    assert storage.ceph.blocklist() == foreign


def test_another_kind_for_the_same_address_is_another_entry(storage: Storage) -> None:
    storage.need_ranges()
    add(storage, "10.0.0.5", "10.0.0.0/24")
    there = storage.entries()
    assert blocklist(storage, "10.0.0.5:0/24").changed
    assert storage.entries() == {*there, "10.0.0.5:0/24"}
    gone = blocklist(storage, "10.0.0.5:0/24", state="absent")
    assert storage.entries() == there
    proof = gone.finding("10.0.0.5:0/24")["evidence"]["proof"]
    assert sorted(proof) == [
        "10.0.0.0/24 still blocks it",
        "10.0.0.5:0/0 still blocks it",
        "10.0.0.5:0/24 is gone from the blocklist",
    ]


@pytest.mark.smoke
def test_what_soon_ends_is_renewed_and_nothing_else(storage: Storage) -> None:
    storage.need_ranges()
    ending = ("10.0.0.5", "10.0.1.0/24", "10.0.2.5/32")
    add(storage, *ending, seconds=100 * DAY)
    add(storage, "10.0.0.6", seconds=200 * DAY)
    before = storage.ceph.blocklist()
    planned = blocklist(storage, *ending, "10.0.0.6", check=True)
    assert [finding["summary"].split(" until ")[0] for finding in planned.findings] == [
        f"{name} is in the blocklist for only 100.0 more days,"
        for name in ("10.0.0.5:0/0", "10.0.1.0/24", "10.0.2.5/32")
    ]
    done = blocklist(storage, *ending, "10.0.0.6")
    assert done.outcomes == [(verb, "done") for verb in (ADD, REMOVE, ADD, REMOVE)] * 3
    assert [command(action) for action in done.result["actions"]] == [
        command(action) for action in planned.result["actions"]
    ]
    assert [(entry["was_there"], entry["renewed"]) for entry in done.result["entries"]] == [
        (True, True)
    ] * 3 + [(True, False)]
    after = storage.ceph.blocklist()
    assert set(after) == set(before)
    assert after.pop("10.0.0.6:0/0") == before["10.0.0.6:0/0"] and all(
        after[name] > before[name] for name in after
    )
    # An entry that lasts longer than was asked for is not made shorter.
    assert not blocklist(storage, *ending, expiry_seconds=30 * DAY).changed


def test_ceph_does_not_prolong_an_entry_though_it_says_so(storage: Storage) -> None:
    """Why a renewal takes four commands."""
    for entry in storage.known("10.0.0.5", "10.0.0.0/24"):
        add(storage, entry, seconds=100 * DAY)
        before = storage.ceph.blocklist()
        add(storage, entry)
        assert storage.ceph.blocklist() == before


# Runs what it is told, and kills who has told it right after the first change.
FATAL = """\
#!/bin/sh
{ceph} "$@"
rc=$?
case "$*" in
    *"/999"*|*"::ffff:"*) ;;
    *" blocklist add "*|*" blocklist rm "*|*" range add "*|*" range rm "*)
        kill -9 $PPID;;
esac
exit $rc
"""


@pytest.mark.parametrize("given_back", [False, True], ids=["renewed", "given_back"])
def test_a_renewal_that_is_killed_lets_nobody_in_and_is_finished_by_the_next(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_back: bool
) -> None:
    """Between each of its commands: every run is killed after its first, and goes on where the one
    before was killed. So it is when an operator's entry gets its end of before.
    """
    storage.need_ranges()
    end = f"{datetime.now(UTC) + timedelta(days=20):%Y-%m-%dT%H:%M:%SZ}"
    options = {"state": "absent", "ends": {"127.0.0.11": end}} if given_back else {}
    ceph = tmp_path / "ceph"
    ceph.write_text(FATAL.format(ceph=shutil.which("ceph")))
    ceph.chmod(0o755)
    storage.ceph.create_image("data")
    with Writer(storage.ceph, "data", "127.0.0.11") as a:
        add(storage, "127.0.0.11", seconds=YEAR if given_back else DAY)
        wait(lambda: a.error, "the blocked client gets an error")
        written, first = a.acknowledged, epoch(storage)
        stand_in = "cidr:127.0.0.11:0/32"
        for left in ({"127.0.0.11:0/0", stand_in}, {stand_in}, {"127.0.0.11:0/0", stand_in}):
            with monkeypatch.context() as patch:
                patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
                assert blocklist(storage, "127.0.0.11", **options).failed
            assert storage.entries() == left
        assert [(found["kind"], found["stand_in"]) for found in told(storage)] == [
            ("address", False),
            ("range", True),
        ]
        done = blocklist(storage, "127.0.0.11", **options)
        assert done.outcomes == [(REMOVE, "done")] and storage.entries() == {"127.0.0.11:0/0"}
        assert not blocklist(storage, "127.0.0.11", **options).changed
        # It tries all the time, and would have written, had it been let in.
        assert (a.acknowledged, a.error) == (written, "ESHUTDOWN")
        for number in range(first, epoch(storage) + 1):
            found = storage.ceph.json("osd", "dump", str(number))
            assert {*found["blocklist"], *found["range_blocklist"]} & {
                "127.0.0.11:0/0",
                "cidr:127.0.0.11:0/32",
            }, number
        storage.ceph.change_blocklist("rm", "127.0.0.11")
        wait(lambda: a.acknowledged > written, "the client writes again")


def test_the_entry_of_a_client_cannot_be_renewed(storage: Storage) -> None:
    add(storage, "10.0.0.5:0/7", seconds=DAY)
    before = storage.ceph.blocklist()
    refused = blocklist(storage, "10.0.0.5:0/7", "10.0.0.8")
    assert refused.failed and not refused.changed and "Ceph cannot prolong it" in refused.msg
    assert storage.ceph.blocklist() == before


def test_a_range_that_is_there_with_host_bits_is_the_same_range(storage: Storage) -> None:
    storage.need_ranges()
    add(storage, "10.0.0.7/24")
    assert not blocklist(storage, "10.0.0.9/24").changed
    assert blocklist(storage, "10.0.0.0/24", state="absent").outcomes == [(REMOVE, "done")]
    assert storage.entries() == set()


@pytest.mark.smoke
def test_a_blocked_writer_loses_its_watch(storage: Storage) -> None:
    storage.ceph.create_image("data")
    with (
        Writer(storage.ceph, "data", "127.0.0.11") as a,
        Writer(storage.ceph, "data", "127.0.0.12") as b,
    ):
        assert blocklist(storage, "127.0.0.11").changed
        wait(lambda: a.error, "the blocked client gets an error")
        assert a.error == "ESHUTDOWN" and not b.error
        assert not storage.watches(a) and storage.watches(b)
        assert blocklist(storage, "127.0.0.11", b.entry, state="absent").changed
        assert not b.error and storage.entries() == set()


HITTING = ("10.0.0.6", "10.0.0.6:0/9", "10.0.0.0/24", "fd00::6", "fd00::/56")


def test_protected_addresses_and_this_very_host_are_never_hit(storage: Storage) -> None:
    before = storage.ceph.osd_map()
    hitting, this_host = storage.known(*HITTING), storage.known("127.0.0.0/16", "127.0.0.1")[0]
    refused = blocklist(
        storage,
        "10.0.0.50",
        *hitting,
        this_host,
        protected_addresses=["10.0.0.6", "fd00::6"],
        accept_daemons=True,
    )
    assert refused.failed and not refused.changed
    reasons = {finding["object"]["name"]: finding["reason"] for finding in refused.findings}
    name = this_host if is_range(this_host) else f"{this_host}:0/0"
    assert reasons.pop(name) == "it would hit this very host"
    # Neither is the other one blocked.
    assert reasons.pop("10.0.0.50:0/0").startswith("nothing is changed, since ")
    assert len(reasons) == len(hitting) and all(
        "protected_addresses" in reason for reason in reasons.values()
    )
    assert storage.ceph.osd_map() == before
    assert blocklist(storage, "10.0.0.50", protected_addresses=["10.0.0.6"]).changed


def test_a_missing_capability_is_named_before_anything_is_changed(storage: Storage) -> None:
    storage.user("rbd", mon="profile rbd", osd="profile rbd")
    word = storage.ceph.word
    storage.user("adder", mon=f'allow r, allow command "osd {word}" with {word}op=add')
    storage.user("reader", mon="allow r")
    storage.user("nobody", mon='allow command "mon dump"')
    add(storage, *storage.known("10.0.0.6:0/1", "10.0.0.0/24"))
    before = storage.ceph.osd_map()
    for user, state, wanted in (
        (
            "reader",
            "present",
            {
                "10.0.0.5": "add a whole address",
                "10.0.0.5:0/1": "add a single client",
                "10.0.1.0/24": "add a range",
            },
        ),
        (
            "adder",
            "absent",
            {"10.0.0.6:0/1": "remove a single client", "10.0.0.0/24": "remove a range"},
        ),
        # It may add clients, but not look whether they are Ceph's own.
        ("rbd", "present", {"10.0.0.5:0/1": "whether it hits a daemon of Ceph is not known"}),
    ):
        entries = storage.known(*wanted)
        said = [wanted[entry] for entry in entries]
        for check in (True, False):
            refused = blocklist(storage, *entries, check=check, user=user, state=state)
            assert refused.failed and not refused.changed and len(refused.findings) == len(said), (
                refused.msg
            )
            for finding, words in zip(refused.findings, said, strict=True):
                assert words in finding["reason"]
                if "lacks" in finding["reason"]:
                    assert (
                        f"client.{user} lacks the mon capability to {words} "
                        "(Error EACCES: access denied" in finding["reason"]
                    )
                    assert f"ceph auth caps client.{user} mon '{storage.caps}'" in finding["reason"]
    refused = blocklist(storage, "10.0.0.5", user="nobody")
    assert refused.failed and "EACCES" in refused.msg and "client.nobody" in refused.msg
    assert storage.ceph.osd_map() == before
    # What is as wanted needs no capability to change it.
    assert not blocklist(storage, "10.0.0.6:0/1", user="reader").failed


def test_the_capabilities_of_the_guide_are_enough(storage: Storage) -> None:
    storage.user("storage-ops", mon=storage.caps, osd="profile rbd-read-only")
    for state in ("present", "absent"):
        done = blocklist(storage, *storage.known(*THREE), user="storage-ops", state=state)
        assert not done.failed and done.changed, done.msg
    storage.user("rbd", mon="profile rbd", osd="profile rbd")
    assert blocklist(storage, "10.0.0.5:0/1", user="rbd", accept_daemons=True).changed


def test_a_cluster_that_cannot_be_asked(storage: Storage, tmp_path: Path) -> None:
    storage.ceph.freeze()
    unreachable = blocklist(storage, "10.0.0.5")
    assert unreachable.failed and not unreachable.changed and "findings" in unreachable.result
    assert (
        f"{storage.ceph.conf} (mon_host: [v2:127.0.0.1:" in unreachable.msg
        and "does not answer" in unreachable.msg
    )
    assert "mon stat" in unreachable.msg
    storage.ceph.thaw()
    missing = blocklist(storage, "10.0.0.5", conf=str(tmp_path / "none.conf"))
    assert missing.failed and f"{tmp_path}/none.conf cannot be read" in missing.msg
    stranger = blocklist(storage, "10.0.0.5", user="admin", keyring=str(tmp_path / "none.keyring"))
    assert stranger.failed and "does not let client.admin in" in stranger.msg, stranger.msg
    assert storage.entries() == set()


def test_two_operators_at_once(storage: Storage) -> None:
    entries = storage.known("10.0.0.5", "10.0.0.0/24")
    for state, verb in (("present", ADD), ("absent", REMOVE)):
        outcomes: list[Outcome] = []

        def work(state: str, outcomes: list[Outcome]) -> None:
            outcomes.append(blocklist(storage, *entries, state=state))

        threads = [threading.Thread(target=work, args=(state, outcomes)) for _number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [outcome.failed for outcome in outcomes] == [False, False], [
            outcome.msg for outcome in outcomes
        ]
        assert {done for outcome in outcomes for done in outcome.outcomes} == {(verb, "done")}
        added = {*storage.known("10.0.0.5:0/0", "cidr:10.0.0.0:0/24")}
        assert storage.entries() == (added if state == "present" else set())


def test_the_standard_library_is_enough(storage: Storage, tmp_path: Path) -> None:
    """As in a toolbox pod, whose Python has nothing else.

    The connection to a pod itself cannot be had here.
    """
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -I -S "$@"\n')
    python.chmod(0o755)
    options = {**storage.connection(), "entries": ["10.0.0.5"]}
    # It would choose another cluster.
    surroundings = {**environment(), "CEPH_ARGS": "--conf /nonexistent"}
    inventory = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={python}"]
    for module, arguments in (
        ("ceph_blocklist", options),
        (
            "rbd_watcher_info",
            {**storage.connection(), "images": [{"pool": "rbd", "image": "none"}]},
        ),
    ):
        command = [
            "ansible",
            "localhost",
            *inventory,
            "-m",
            f"{COLLECTION}.{module}",
            "-a",
            json.dumps(arguments),
            "--diff",
        ]
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
            env=surroundings,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
    assert storage.entries() == {"10.0.0.5:0/0"}
