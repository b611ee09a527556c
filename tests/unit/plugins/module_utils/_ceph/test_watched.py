# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of the blocklist, and who has what open once they are there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.blocklist import (
    make_options,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.cli import Ceph, Connection
from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.watched import (
    Watched,
    watch_of,
    watch_seconds,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import (
    CommandResult,
    Deadline,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support.module import Exit, Module

ADDRESS = "10.0.0.5"
ENTRY = f"{ADDRESS}:0/0"
UNTIL = "2099-01-01T00:00:00Z"
TOLD = {"fsid", "blocklist", "entries", "ceph"}
MONS = {
    "mons": [{"public_addrs": {"addrvec": [{"type": "v2", "addr": "10.0.0.1:3300", "nonce": 0}]}}]
}


class Tools:
    """``ceph`` and ``rbd``: a blocklist, and one image that the client at ``ADDRESS`` has open for
    so many looks after it was blocked.
    """

    def __init__(self, looks: int, obeys: bool = True, rbd: int = 0, **entries: str) -> None:
        self.looks, self.obeys, self.rbd = looks, obeys, rbd
        self.entries = entries
        self.asked: list[str] = []
        # By their clock, and how much of it each command takes, by its program or word.
        self.now = 0.0
        self.slow: dict[str, float] = {}

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        if timeout <= 0:
            return CommandResult(tuple(argv), None, "", "", 0, "not started: no time left")
        self.now += sum(seconds for word, seconds in self.slow.items() if word in argv)
        self.asked.append(" ".join(argv))
        rc, out = self._rbd(argv) if argv[0] == "rbd" else self._ceph(argv)
        return CommandResult(
            tuple(argv), rc, out if isinstance(out, str) else json.dumps(out), "", 0
        )

    def _ceph(self, argv: Sequence[str]) -> tuple[int, Any]:
        if "add" in argv:
            # The probe of the right to do it has another address.
            if ENTRY not in argv:
                return 22, ""
            if self.obeys:
                self.entries[ENTRY] = "2099-01-01T00:00:00.000000+0000"
            return 0, ""
        if "mon" in argv:
            return 0, MONS
        if "mgr" in argv or "fs" in argv:
            return 0, {"active_addrs": {"addrvec": []}, "standbys": [], "filesystems": []}
        told = {"fsid": "e85137c6", "osds": [], "epoch": 12}
        return 0, {**told, "blocklist": self.entries, "range_blocklist": {}}

    def _rbd(self, argv: Sequence[str]) -> tuple[int, Any]:
        if "lock" in argv:
            return 0, []
        if "info" in argv:
            return self.rbd, {"name": "data", "features": []}
        self.looks -= 1
        there = [{"address": f"{ADDRESS}:0/7", "client": 4123, "cookie": 1}]
        return 0, {"watchers": there if self.looks >= 0 else []}


PARAMS: dict[str, Any] = {
    "entries": [ADDRESS],
    "state": "present",
    "expiry_seconds": 31_536_000,
    "renew_below": 0.5,
    "protected_addresses": [],
    "accept_daemons": True,
    "accept_gap": False,
    "ends": {},
    "deadline": 60.0,
    "watch": {
        "images": [{"pool": "rbd", "namespace": "", "image": "data"}],
        "volumes": [],
        "rados_namespaces": {},
        "observations": 1,
        "observation_seconds": 0.0,
        "gone_timeout": 60.0,
        "sessions": False,
    },
}


def run(
    tools: Tools,
    check: bool = False,
    sleep: Callable[[float], None] = lambda _seconds: None,
    params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What the module returns, by the clock of the tools."""

    given = params or PARAMS

    def make() -> Watched:
        watch = watch_of(given)
        assert watch is not None
        ceph = Ceph(Connection(), Deadline(given["deadline"], lambda: tools.now), tools)
        return Watched(ceph, make_options(given), watch, watch_seconds(given), sleep)

    module = Module(check_mode=check)
    with pytest.raises(Exit):
        engine.run(module, make, True, given["deadline"])
    return module.result


def tells_the_entry(result: dict[str, Any], code: str) -> str:
    """It failed, and the entry is there and proven all the same; the message."""
    assert (result["failed"], result["code"], result["changed"]) == (True, code, True)
    assert result["entries"][0]["until"] == UNTIL and "half_made" not in result
    assert result["findings"][0]["evidence"]["proof"] == [
        f"{ENTRY} is in the blocklist until {UNTIL}"
    ]
    assert [action["outcome"] for action in result["actions"]] == ["done"]
    # Half of what is open would look like the whole.
    assert "ceph" not in result
    said: str = result["msg"]
    return said


def test_it_waits_until_who_is_blocked_has_nothing_open() -> None:
    tools = Tools(looks=3)
    found = run(tools)
    assert not found["failed"] and TOLD & found.keys() == {"ceph", "entries", "fsid"}
    assert [image["watchers"] for image in found["ceph"]["images"]] == [[]]
    assert [entry["entry"] for entry in found["ceph"]["blocklist"]] == [ENTRY]
    assert found["entries"][0]["until"] == UNTIL
    # It looked only once the entry was there, and until it saw no watcher.
    added = next(number for number, line in enumerate(tools.asked) if f"add {ENTRY}" in line)
    looks = [
        number for number, line in enumerate(tools.asked) if "rbd" in line and "status" in line
    ]
    assert len(looks) == 4 and added < looks[0]
    # The list was read between the two, and is handed on as it was after the last of them.
    lists = [number for number, line in enumerate(tools.asked) if "osd dump" in line]
    assert any(added < number < looks[0] for number in lists) and looks[-1] < lists[-1]
    assert not any(looks[0] < number < looks[-1] for number in lists)


def test_what_is_not_blocked_is_not_waited_for() -> None:
    """As in check mode, and where Ceph says that it did what it did not do."""
    disobeys = run(refusing := Tools(3, obeys=False))
    assert disobeys["failed"] and "the list says otherwise" in disobeys["msg"]
    there = {ENTRY: "2099-01-01T00:00:00.000000+0000"}
    for planned in (Tools(3), Tools(3, **there)):
        found = run(planned, check=True)
        assert not found["failed"] and TOLD & found.keys() == {"blocklist", "entries", "fsid"}
        assert not any(line.startswith("rbd ") for line in [*planned.asked, *refusing.asked])


def test_what_is_refused_is_not_waited_for() -> None:
    """Here an entry of a single client, which ends soon, and which nothing can stand in for."""
    client = f"{ADDRESS}:0/7"
    params = {**PARAMS, "entries": [client]}
    tools = Tools(3, **{client: "2020-01-01T00:00:00.000000+0000"})
    found = run(tools, params=params)
    assert found["failed"] and TOLD & found.keys() == {"blocklist", "entries", "fsid"}
    assert not any(line.startswith("rbd ") for line in tools.asked)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(("number", "late"), [(signal.SIGTERM, 0.0), (signal.SIGHUP, 1000.0)])
def test_an_entry_is_told_whatever_ends_the_watch(number: signal.Signals, late: float) -> None:
    """A job that is cancelled meanwhile; or a lost connection, when the time for it is over."""
    tools = Tools(3)

    def cancelled(_seconds: float) -> None:
        tools.now += late
        os.kill(os.getpid(), number)

    said = tells_the_entry(run(tools, sleep=cancelled), "interrupted")
    assert said.startswith(f"in the blocklist: {ENTRY}. ")
    assert "not proven" in said and f"interrupted by {number.name}" in said


def test_what_the_entry_takes_is_not_taken_from_the_watch() -> None:
    tools = Tools(3)
    # To ask for the right and to add the entry; then six commands for the image.
    tools.slow = {"add": 25.0, "rbd": 18.0}
    found = run(tools)
    assert not found["failed"] and tools.now == 2 * 25 + 6 * 18
    assert [image["problem"] for image in found["ceph"]["images"]] == [""]


def test_what_ends_a_late_module_waits_for_the_watch() -> None:
    """And ends that as well."""
    left: list[float] = []

    def asleep(_seconds: float) -> None:
        left.append(signal.getitimer(signal.ITIMER_REAL)[0])

    # So long that no busy machine takes the difference.
    long = {**PARAMS, "watch": {**PARAMS["watch"], "gone_timeout": 3600.0}}
    assert not run(Tools(1), sleep=asleep, params=long)["failed"]
    (seconds,) = left
    assert PARAMS["deadline"] < seconds - engine.LATE_SECONDS <= watch_seconds(long)
    # By the alarm itself.
    late = run(Tools(3), sleep=lambda _seconds: os.kill(os.getpid(), signal.SIGALRM))
    assert "deadline passed" in tells_the_entry(late, "deadline_passed")


def test_a_watch_that_is_slow_hides_no_entry() -> None:
    tools = Tools(3)
    tools.slow = {"rbd": 50.0}
    said = tells_the_entry(run(tools), "deadline_passed")
    assert "it was not over within 120 s: raise deadline" in said


def test_no_entry_is_begun_late_however_long_is_watched() -> None:
    """The Lease of the run is held for so long, and no longer."""
    tools = Tools(3)
    tools.slow = {"mgr": PARAMS["deadline"] - 4}
    found = run(tools, params={**PARAMS, "accept_daemons": False})
    assert (found["failed"], found["code"]) == (True, "deadline_passed")
    assert not tools.entries and "half_made" not in found


def test_an_image_that_cannot_be_read_is_not_one_that_nobody_has_open() -> None:
    (image,) = run(Tools(0, rbd=2))["ceph"]["images"]
    assert image["problem"]


def test_a_watch_is_for_what_is_blocked() -> None:
    assert watch_of({**PARAMS, "watch": None}) is None
    with pytest.raises(BadOption, match="watch is for state present"):
        watch_of({**PARAMS, "state": "absent"})
