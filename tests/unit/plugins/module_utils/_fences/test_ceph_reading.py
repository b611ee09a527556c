# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option ``ceph``: what rbd_watcher_info hands on is read as it is, and nothing else passes for
it.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fences.ceph_reading import (
    Blocked,
    parse_reading,
)

# As rbd_watcher_info returned it.
DATA: dict[str, Any] = {
    "fsid": "f1",
    "read_at": "2026-01-01T12:00:00Z",
    "observations": 3,
    "seconds": 61.2,
    "families": ["IPv4"],
    "blocklist": [
        {
            "entry": "10.0.0.5:0/0",
            "kind": "address",
            "address": "10.0.0.5",
            "until": "2027-01-01T00:00:00Z",
        },
        {
            "entry": "10.0.0.6:0/12",
            "kind": "client",
            "address": "10.0.0.6",
            "until": "2027-01-01T00:00:00Z",
        },
        {
            "entry": "10.0.1.0/24",
            "kind": "range",
            "address": "10.0.1.0/24",
            "until": "2027-01-01T00:00:00Z",
        },
        {
            "entry": "10.0.0.7/32",
            "kind": "range",
            "address": "10.0.0.7/32",
            "until": "2027-01-01T00:00:00Z",
        },
        {
            "entry": "[fd00::5]:0/0",
            "kind": "address",
            "address": "fd00::5",
            "until": "2027-01-01T00:00:00Z",
        },
    ],
    "images": [
        {
            "volume": "v",
            "pool": "p",
            "namespace": "n",
            "image": "i",
            "problem": "",
            "features": ["layering"],
            "watchers": [
                {
                    "address": "10.0.0.5",
                    "entry": "10.0.0.5:0/11",
                    "client": "client.1",
                    "cookie": "1",
                    "seen": 3,
                    "persistent": True,
                    "mirror": False,
                }
            ],
            "locks": [{"locker": "client.1", "address": "10.0.0.5", "entry": "10.0.0.5:0/11"}],
            "client_addresses": [{"node": "a", "address": "10.0.0.5"}],
        }
    ],
}


def test_a_reading() -> None:
    found = parse_reading(DATA)
    (image,) = found.images
    assert (found.fsid, found.observations, found.seconds, image.title) == ("f1", 3, 61.2, "p/n/i")
    assert image.watchers[0].title == "10.0.0.5:0/11 (client.1)" and image.watchers[0].persistent
    assert image.locks[0].locker == "client.1" and image.client_addresses[0].node == "a"


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("10.0.0.5", "10.0.0.5:0/0"),
        ("fd00::5", "[fd00::5]:0/0"),
        ("10.0.0.6:0/12", "10.0.0.6:0/12"),
        ("10.0.1.0/24", "10.0.1.0/24"),
        ("10.0.1.77/24", "10.0.1.0/24"),
        # A range of one is kept as an address by some, and means the same.
        ("10.0.0.5/32", "10.0.0.5:0/0"),
        ("10.0.0.7/32", "10.0.0.7/32"),
        # But an address is not what was written as a client or as a range.
        ("10.0.0.7", None),
        ("10.0.0.6", None),
        ("10.0.0.6:0/0", None),
        ("10.0.0.5:0/11", None),
        ("10.0.1.0/25", None),
    ],
)
def test_exactly_an_entry(entry: str, found: str | None) -> None:
    blocked = parse_reading(DATA).find(entry)
    assert (blocked.entry if blocked else None) == found
    assert parse_reading(DATA).blocks(entry) == (found is not None)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("10.0.0.5", True),
        ("10.0.1.9", True),
        ("10.0.0.7", True),
        ("10.0.0.6", False),
        ("fd00::5", True),
    ],
)
def test_what_covers_an_address(address: str, found: bool) -> None:
    assert (parse_reading(DATA).covering(address) is not None) == found


def test_of_two_the_one_that_stays_longer() -> None:
    data = copy.deepcopy(DATA)
    data["blocklist"].append(
        {
            "entry": "10.0.0.0/29",
            "kind": "range",
            "address": "10.0.0.0/29",
            "until": "2028-01-01T00:00:00Z",
        }
    )
    assert parse_reading(data).covering("10.0.0.5") == Blocked(
        "10.0.0.0/29", "range", "10.0.0.0/29", "2028-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("fsid",), None, "ceph.fsid is not a text"),
        (("read_at",), "2026-01-01T12:00:00", "ceph.read_at is no time with its zone"),
        (("read_at",), "today", "ceph.read_at is no time with its zone"),
        (("families",), [], "ceph.families is []"),
        (("families",), ["IPv4", "IPv5"], "ceph.families is ['IPv4', 'IPv5']"),
        (("families",), "IPv4", "ceph.families is no list of texts but 'IPv4'"),
        (("families",), [4], "ceph.families is no list of texts but [4]"),
        (("observations",), "3", "ceph.observations is no number but '3'"),
        (("seconds",), float("nan"), "ceph.seconds is no number"),
        (("observations",), float("inf"), "ceph.observations is no number"),
        (("blocklist",), {}, "ceph.blocklist is not a list but dict"),
        (("blocklist", 0, "kind"), "all", "ceph.blocklist[0].kind is 'all'"),
        (("images", 0), "v", "ceph.images[0] is not a dictionary but str"),
        (
            ("images", 0, "watchers", 0, "address"),
            "v1:10.0.0.5",
            "ceph.images[0].watchers[0].address is no address",
        ),
        (
            ("images", 0, "watchers", 0, "persistent"),
            "false",
            "persistent is neither true nor false but 'false'",
        ),
        (("images", 0, "locks", 0, "address"), "", "locks[0].address is no address"),
    ],
)
def test_what_is_no_reading(place: tuple[Any, ...], value: Any, said: str) -> None:
    data = copy.deepcopy(DATA)
    where: Any = data
    for key in place[:-1]:
        where = where[key]
    where[place[-1]] = value
    with pytest.raises(StorageOpsError) as error:
        parse_reading(data)
    assert said in str(error.value) and "rbd_watcher_info" in str(error.value)
    del where[place[-1]]
    if isinstance(place[-1], str):
        with pytest.raises(StorageOpsError, match=f"{place[-1]} is (missing|no time)"):
            parse_reading(data)


@pytest.mark.parametrize("said", ["::ffff:10.0.0.9", "::ffff:a00:9"])
def test_an_ipv4_mapped_address_is_the_ipv4_one_but_in_the_blocklist(said: str) -> None:
    """Ceph compares the family too, so such an entry blocks no IPv4 client."""
    data = copy.deepcopy(DATA)
    data["images"][0]["watchers"][0]["address"] = said
    until = "2027-01-01T00:00:00Z"
    data["blocklist"] = [
        {"entry": f"[{said}]:0/0", "kind": "address", "address": said, "until": until},
        {"entry": f"{said}/128", "kind": "range", "address": f"{said}/128", "until": until},
    ]
    found = parse_reading(data)
    assert found.images[0].watchers[0].address == "10.0.0.9"
    assert found.covering("10.0.0.9") is None and found.find("10.0.0.9") is None


def test_what_is_no_address_of_a_host_is_no_note() -> None:
    data = copy.deepcopy(DATA)
    notes = ["0.0.0.0", "10.0.0.5", "::1", "ff02::1"]
    data["images"][0]["client_addresses"] = [{"node": "a", "address": text} for text in notes]
    assert [note.address for note in parse_reading(data).images[0].client_addresses] == ["10.0.0.5"]
