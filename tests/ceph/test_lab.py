# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the other tests on Ceph take for granted: clients that Ceph can tell apart, and what a fence
does to them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab.ceph.client import Visitor, Writer
from lab.ceph.cluster import Ceph, CephError
from lab.common import LabError, patient, wait
from support.storage import Storage


@pytest.fixture
def image(storage: Storage) -> str:
    """An image of 8 MiB."""
    storage.ceph.create_image("data")
    return "data"


def test_clients_have_addresses_of_their_own(storage: Storage, image: str) -> None:
    with (
        Writer(storage.ceph, image, "127.0.0.11") as a,
        Writer(storage.ceph, image, "127.0.0.12") as b,
    ):
        assert {found["address"] for found in storage.ceph.watchers(image)} == {a.entry, b.entry}
        assert a.entry.startswith("127.0.0.11:0/") and b.entry.startswith("127.0.0.12:0/")
        assert 0 < a.acknowledged <= a.content() and 0 < b.acknowledged <= b.content()
        a.close()
        assert {found["address"] for found in storage.ceph.watchers(image)} == {b.entry}


@pytest.mark.parametrize("whole_address", [False, True])
def test_a_fenced_client_writes_no_more(storage: Storage, image: str, whole_address: bool) -> None:
    with (
        Writer(storage.ceph, image, "127.0.0.11") as a,
        Writer(storage.ceph, image, "127.0.0.12") as b,
    ):
        entry = "127.0.0.11:0/0" if whole_address else a.entry
        storage.ceph.change_blocklist("add", entry, "3600")
        assert storage.entries() == {entry}
        wait(lambda: a.error, "the fenced client gets an error")
        assert a.error == "ESHUTDOWN"
        assert not storage.watches(a) and storage.watches(b)
        content, acknowledged, other = a.content(), a.acknowledged, b.acknowledged
        time.sleep(1)
        assert (a.content(), a.acknowledged) == (content, acknowledged)
        assert not b.error and b.acknowledged > other


def test_a_client_that_is_let_in_again_writes_on_without_a_watch(
    storage: Storage, image: str
) -> None:
    """Why a release has to know that the old client is gone: no watcher tells of it."""
    with Writer(storage.ceph, image) as a:
        storage.ceph.change_blocklist("add", a.entry, "3600")
        wait(lambda: a.error, "the fenced client gets an error")
        content = a.content()
        storage.ceph.change_blocklist("rm", a.entry)
        wait(lambda: a.content() > content, "it writes again")
        assert not storage.watches(a)


def test_a_machine_that_wakes_up_after_the_fence(storage: Storage, image: str) -> None:
    with Writer(storage.ceph, image) as a:
        a.pause()
        content = a.content()
        storage.ceph.change_blocklist("add", "127.0.0.11", "3600")
        a.resume()
        wait(lambda: a.error, "the fenced client gets an error")
        # One write may have been under way when it was stopped.
        assert a.content() == content


def test_a_killed_client_is_a_watcher_for_a_while(storage: Storage, image: str) -> None:
    a = Writer(storage.ceph, image)
    a.start()
    a.kill()
    time.sleep(10)
    assert storage.watches(a)
    wait(lambda: not storage.watches(a), "the watch has run out", 40)


def test_a_visitor_comes_and_goes(storage: Storage, image: str) -> None:
    with Visitor(storage.ceph, image, "127.0.0.12") as visitor:
        for _again in range(2):
            wait(lambda: storage.watches(visitor), "the visitor is there")
            wait(lambda: not storage.watches(visitor), "the visitor is not there")
        assert visitor.visits >= 2 and not visitor.error


def test_a_frozen_monitor_answers_nobody(storage: Storage) -> None:
    storage.ceph.freeze()
    command = ["ceph", "-c", str(storage.ceph.conf), "--connect-timeout", "2", "osd", "dump"]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert answer.returncode == 1 and "timed out" in answer.stderr, answer
    storage.ceph.thaw()
    assert storage.ceph.blocklist() == {}


def test_a_user_may_do_what_its_capabilities_say(storage: Storage) -> None:
    keyring = storage.user("reader", mon="allow r")

    def as_reader(*argv: str) -> int:
        command = [
            "ceph",
            "-c",
            str(storage.ceph.conf),
            "--keyring",
            str(keyring),
            "--name",
            "client.reader",
            *argv,
        ]
        return subprocess.run(
            command, capture_output=True, timeout=patient(60), check=False
        ).returncode

    assert as_reader("osd", "dump") == 0
    assert as_reader("osd", storage.ceph.word, "add", "192.0.2.1", "3600") == 13
    assert storage.entries() == set()


def test_a_reset_leaves_nothing_behind(storage: Storage) -> None:
    ceph = storage.ceph
    ceph.create_image("data", namespace="space")
    ceph.create_pool("other")
    ceph.user("somebody", mon="allow r")
    ceph.change_blocklist("add", "192.0.2.1", "3600")
    if ceph.ranges:
        ceph.change_blocklist("range", "add", "192.0.2.0/24", "3600")
    assert storage.entries() == {*storage.known("192.0.2.1:0/0", "cidr:192.0.2.0:0/24")}
    a = Writer(ceph, "data", namespace="space")
    a.start()
    assert storage.watches(a)
    ceph.freeze()
    ceph.reset()
    assert ceph.json("osd", "pool", "ls") == ["rbd"]
    assert ceph.rbd("namespace", "ls", "rbd") == ceph.rbd("ls") == ""
    assert ceph.blocklist() == {}
    with pytest.raises(CephError, match="ENOENT"):
        ceph.run("auth", "get", "client.somebody")
    with pytest.raises(LabError, match="ended"):
        a.process.check()


STARTED = """
import signal
from lab.ceph.client import Writer
from lab.ceph.cluster import Ceph
ceph = Ceph("{name}")
ceph.start()
ceph.create_image("data")
writer = Writer(ceph, "data")
writer.start()
print(ceph.mon.pid, ceph.osd.pid, writer.process.pid, flush=True)
signal.pause()
"""


def test_everything_ends_with_the_process_that_started_it() -> None:
    """And beside the cluster of the other tests, there can be another one."""
    ceph = Ceph(f"test-nested-{os.getpid()}")
    try:
        with subprocess.Popen(
            [sys.executable, "-c", STARTED.format(name=ceph.name)],
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            pids = child.stdout.readline().split()
            assert len(pids) == 3
            child.kill()
        for pid in pids:
            wait(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"{pid} has ended")  # type: ignore[misc]
    finally:
        ceph.remove()
