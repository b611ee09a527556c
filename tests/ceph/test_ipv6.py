# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph of IPv6, and one of both families: which address of its host a client has, and what an
entry for it does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from lab.ceph.client import Writer
from lab.ceph.cluster import Ceph
from lab.ceph.net import CLIENTS, IPV4, IPV6, NETWORKS
from lab.common import wait
from support.fixtures import own_name
from support.storage import Storage, fresh_storage

pytestmark = pytest.mark.variation

FOUR, SIX, OTHER_SIX = "127.0.0.11", *CLIENTS


def cluster(*families: str) -> Iterator[Ceph]:
    """One whose monitor has addresses of these families, in this order."""
    ceph = Ceph(own_name("-".join(families).lower()), families=families)
    ceph.start()
    yield ceph
    ceph.remove()


@pytest.fixture(scope="module")
def ceph_of_six() -> Iterator[Ceph]:
    yield from cluster(IPV6)


@pytest.fixture(scope="module")
def ceph_of_both() -> Iterator[Ceph]:
    yield from cluster(IPV6, IPV4)


@pytest.fixture
def six(ceph_of_six: Ceph) -> Iterator[Storage]:
    """A Ceph that has no IPv4 address."""
    yield from fresh_storage(ceph_of_six)


@pytest.fixture
def both(ceph_of_both: Ceph) -> Iterator[Storage]:
    """A Ceph whose monitor lists IPv6 first."""
    yield from fresh_storage(ceph_of_both)


def seen(storage: Storage, image: str = "data") -> set[str]:
    """At which addresses rbd_watcher_info shows clients of an image."""
    done = storage.ansible("rbd_watcher_info", images=[{"pool": "rbd", "image": image}])
    assert not done.failed, done.msg
    (found,) = done.result["ceph"]["images"]
    assert found["problem"] == ""
    return {one["address"] for one in found["watchers"]}


def stopped(client: Writer) -> None:
    """It gets an error, and nothing of it is written any more."""
    wait(lambda: client.error, "the fenced client gets an error")
    content = client.content()
    time.sleep(1)
    assert client.error == "ESHUTDOWN" and client.content() == content <= client.acknowledged + 1


def goes_on(client: Writer) -> None:
    """It writes as before."""
    before = client.acknowledged
    wait(lambda: client.acknowledged > before + 5, "it writes on")
    assert not client.error


def test_the_blocklist_of_a_ceph_of_ipv6(six: Storage) -> None:
    six.ceph.create_image("data")
    with (
        Writer(six.ceph, "data", SIX) as client,
        Writer(six.ceph, "data", OTHER_SIX) as other,
    ):
        assert seen(six) == {SIX, OTHER_SIX} and client.entry.startswith(f"[{SIX}]:0/")
        entries = [SIX, "fd00:99::/64"]
        for changed in (True, False):
            done = six.ansible("ceph_blocklist", entries=entries, state="present")
            assert not done.failed and done.changed is changed, done.msg
        assert six.entries() == {f"[{SIX}]:0/0", "cidr:[fd00:99::]:0/64"}
        stopped(client)
        goes_on(other)
        assert seen(six) == {OTHER_SIX}
        done = six.ansible(
            "rbd_watcher_info", images=[{"pool": "rbd", "image": "data"}], gone=[SIX]
        )
        assert not done.failed and done.findings == [], done.msg
        assert done.result["ceph"]["families"] == [IPV6]
        listed = {(one["entry"], one["address"]) for one in done.result["ceph"]["blocklist"]}
        assert listed == {(f"[{SIX}]:0/0", SIX), ("fd00:99::/64", "fd00:99::/64")}

        for changed in (True, False):
            done = six.ansible("ceph_blocklist", entries=entries, state="absent")
            assert not done.failed and done.changed is changed, done.msg
        assert six.entries() == set()
        wait(lambda: not client.error, "it is let in again")
        goes_on(client)


def test_an_entry_that_would_hit_the_host_itself_or_a_single_client(six: Storage) -> None:
    six.ceph.create_image("data")
    # The kernel chooses one of the host's addresses.
    refused = six.ansible("ceph_blocklist", entries=[NETWORKS[IPV6]], state="present")
    assert refused.failed and "it would hit this very host" in refused.msg, refused.msg
    assert six.entries() == set()
    with Writer(six.ceph, "data", SIX) as client:
        done = six.ansible("ceph_blocklist", entries=[client.entry], state="present")
        assert not done.failed and six.entries() == {client.entry}, done.msg
        stopped(client)


def test_a_host_of_both_families_is_one_client_at_one_address(both: Storage) -> None:
    """That of the family that the monitor map lists first when the client starts. An entry for the
    other address of the host does not stop it.
    """
    both.ceph.create_image("data")
    with Writer(both.ceph, "data", FOUR, six=SIX) as client:
        assert seen(both) == {SIX} == {client.address}
        done = both.ansible("rbd_watcher_info", images=[])
        assert done.result["ceph"]["families"] == [IPV4, IPV6]
        wrong = both.ansible("ceph_blocklist", entries=[FOUR], state="present")
        assert not wrong.failed and both.entries() == {f"{FOUR}:0/0"}, wrong.msg
        goes_on(client)
        assert seen(both) == {SIX}
        done = both.ansible("ceph_blocklist", entries=[SIX], state="present")
        assert not done.failed, done.msg
        stopped(client)
        assert seen(both) == set()


def test_a_client_that_starts_later_may_have_the_other_address(both: Storage) -> None:
    """So neither a note of when its volume was staged nor one of its addresses tells enough."""
    both.ceph.create_image("data")
    try:
        with Writer(both.ceph, "data", FOUR, six=SIX) as before:
            both.ceph.list_first(IPV4)
            with Writer(both.ceph, "data", FOUR, six=SIX) as after:
                assert (before.address, after.address) == (SIX, FOUR)
                assert seen(both) == {SIX, FOUR}
                # A client that runs keeps its address.
                goes_on(before)
                done = both.ansible("ceph_blocklist", entries=[SIX], state="present")
                assert not done.failed, done.msg
                stopped(before)
                goes_on(after)
                done = both.ansible("ceph_blocklist", entries=[FOUR], state="present")
                assert not done.failed, done.msg
                stopped(after)
    finally:
        both.ceph.list_first(IPV6)
