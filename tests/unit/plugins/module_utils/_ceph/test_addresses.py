# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users write as an entry of the blocklist, and what Ceph has stored."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.storage_ops.runbooks.plugins.module_utils._ceph.addresses import (
    ADDRESS,
    CLIENT,
    RANGE,
    Entry,
    parse_entry,
    parse_network,
    parse_stored,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)

ADDRESSES = st.ip_addresses().filter(
    lambda ip: (
        not (ip.is_multicast or ip.is_unspecified or (ip.version == 6 and int(ip) >> 48 == 0))
    )
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any entry that may be."""
    address = draw(ADDRESSES)
    kind = draw(st.sampled_from((ADDRESS, CLIENT, RANGE)))
    if kind != RANGE:
        return Entry(
            kind,
            ipaddress.ip_network(address),
            draw(st.integers(1, 2**32 - 1)) if kind == CLIENT else 0,
        )
    prefix = draw(st.integers(16, 32) if address.version == 4 else st.integers(48, 128))
    network = ipaddress.ip_network((address, prefix), strict=False)
    assume(not network.network_address.is_unspecified)
    return Entry(RANGE, network)


@pytest.mark.parametrize(
    ("written", "kind", "text"),
    [
        ("10.0.0.5", ADDRESS, "10.0.0.5:0/0"),
        (" 10.0.0.5\n", ADDRESS, "10.0.0.5:0/0"),
        ("10.0.0.5:0/0", ADDRESS, "10.0.0.5:0/0"),
        ("v1:10.0.0.5", ADDRESS, "10.0.0.5:0/0"),
        ("v2:10.0.0.5:0/4", CLIENT, "10.0.0.5:0/4"),
        ("any:10.0.0.5:0/4", CLIENT, "10.0.0.5:0/4"),
        ("10.0.0.5:0/4294967295", CLIENT, "10.0.0.5:0/4294967295"),
        ("10.0.0.5:0/00012", CLIENT, "10.0.0.5:0/12"),
        ("10.0.0.0/24", RANGE, "10.0.0.0/24"),
        ("10.0.0.7/24", RANGE, "10.0.0.0/24"),
        ("10.0.0.5/32", RANGE, "10.0.0.5/32"),
        ("cidr:10.0.0.7:0/24", RANGE, "10.0.0.0/24"),
        ("FD00:0:0::A", ADDRESS, "[fd00::a]:0/0"),
        ("[fd00::5]", ADDRESS, "[fd00::5]:0/0"),
        ("[fd00::5]:0/12", CLIENT, "[fd00::5]:0/12"),
        ("fd00::5/64", RANGE, "fd00::/64"),
        ("[fd00::5]/64", RANGE, "fd00::/64"),
        ("fd00::0/64", RANGE, "fd00::/64"),
        ("2001::5:0:0:0/80", RANGE, "2001::5:0:0:0/80"),
        ("::1", ADDRESS, "[::1]:0/0"),
    ],
)
def test_what_is_understood(written: str, kind: str, text: str) -> None:
    entry = parse_entry(written)
    assert (entry.kind, entry.text) == (kind, text)
    assert parse_entry(text) == entry


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "-",
            "worker01",
            "localhost",
            "10.0.0",
            "10.5",
            "0x0a000005",
            "010.0.0.5",
            "10.0.0.5foo",
            "10.0.0.5 10.0.0.6",
        ),
        *(
            "10.0.0.5:0",
            "10.0.0.5:3300/1",
            "10.0.0.5:99999/1",
            "10.0.0.5:0/-1",
            "10.0.0.5:0/4294967296",
            "10.0.0.5:0/0x10",
        ),
        *(
            "10.0.0.5:0/12foo",
            "10.0.0.5:0/1/2",
            "10.0.0.5/123",
            "10.0.0.0/15",
            "10.0.0.0/33",
            "10.0.0.0/0",
            "0.0.0.0/0",
            "0.0.0.0",
        ),
        *(
            "224.0.0.1",
            "::",
            "ff02::1",
            "::ffff:10.0.0.5",
            "::ffff:a00:5",
            "::10.0.0.5",
            "::ffff:10",
            "fe80::1%eth0",
            "fd00::/47",
        ),
        *(
            "::5/64",
            "fd00::/129",
            "fd00::5:0/64",
            "[fd00::5",
            "fd00::5]",
            "[10.0.0.5]",
            "[v2:10.0.0.5:0/1,v1:10.0.0.5:0/1]",
            "cidr:10.0.0.5",
        ),
        *("١٠.0.0.5", "10.0.0.5:0/١", "https://10.0.0.5", "10.0.0.5,10.0.0.6", "v3:10.0.0.5"),
    ],
)
def test_what_is_refused(written: str) -> None:
    with pytest.raises(StorageOpsError, match="cannot be an entry of the blocklist: "):
        parse_entry(written)


@given(st.text() | st.text(alphabet="0123456789abcdef.:/[]v% "))
def test_any_text_is_either_one_entry_or_refused(text: str) -> None:
    try:
        entry = parse_entry(text)
    except StorageOpsError:
        return
    assert parse_entry(entry.text) == entry


@given(entries())
def test_what_we_write_is_what_we_read(entry: Entry) -> None:
    assert parse_entry(entry.text) == entry
    if entry.kind == RANGE:
        host = entry.network.network_address
        stored = f"cidr:{f'[{host}]' if host.version == 6 else host}:0/{entry.network.prefixlen}"
        assert parse_stored(stored, is_range=True) == entry
        assert parse_entry(stored) == entry
    else:
        assert parse_stored(entry.text) == entry


@given(entries(), entries())
def test_who_blocks_the_same(one: Entry, other: Entry) -> None:
    assert one.covers(one)
    if one.covers(other):
        assert one.overlaps(other.network)
    whole = Entry(ADDRESS, ipaddress.ip_network(other.network.network_address))
    assert whole.covers(Entry(CLIENT, whole.network, 7)) and not Entry(
        CLIENT, whole.network, 7
    ).covers(whole)
    assert not Entry(CLIENT, whole.network, 7).covers(Entry(CLIENT, whole.network, 8))


def test_what_ceph_stores() -> None:
    assert parse_stored("(unrecognized address family 0)/0") is None
    assert parse_stored(":/0") is None
    assert parse_stored("10.0.0.500:0/1") is None
    assert parse_stored("cidr:10.0.0.0:0/99", is_range=True) is None
    # Who has ceph-csi's key writes any text where its notes are.
    for wrong in ("10.0.0.5:0/" + "9" * 5000, f"10.0.0.5:{'9' * 5000}/1", "10.0.0.5:0/12345678901"):
        assert parse_stored(wrong) is None
        assert parse_stored(wrong, is_range=True) is None
    daemon = parse_stored("v1:10.0.0.5:6801/123")
    assert daemon is not None and (daemon.kind, daemon.text, daemon.port) == (
        CLIENT,
        "10.0.0.5:6801/123",
        6801,
    )
    assert parse_stored("[::255.255.0.16]:0/0") is not None


def test_what_is_to_be_spared() -> None:
    assert str(parse_network(" 10.0.0.5 ")) == "10.0.0.5/32"
    assert str(parse_network("10.0.0.5/8")) == "10.0.0.0/8"
    assert str(parse_network("::ffff:10.0.0.0/112")) == "10.0.0.0/16"
    for text in ("10.0.0", "", "10.0.0.0/40", "worker01", "fe80::1%eth0/64", "fe80::1%eth0"):
        with pytest.raises(StorageOpsError):
            parse_network(text)
