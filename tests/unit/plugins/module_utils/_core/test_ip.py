# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses and ranges in one spelling, and those that no host has."""

from __future__ import annotations

import pytest

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import ip


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("10.99.0.7", "10.99.0.7/32"),
        (" 10.99.0.7/24 ", "10.99.0.0/24"),
        # What net.ParseCIDR of Go 1.24 makes of them, and so ceph-csi.
        ("::ffff:10.99.0.7", "10.99.0.7/32"),
        ("::FFFF:a63:7/128", "10.99.0.7/32"),
        ("0:0:0:0:0:ffff:a63:7/112", "10.99.0.0/16"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        # IPNet.Contains: no IPv4 address is in these.
        ("::ffff:0:0/95", "::fffe:0:0/95"),
        ("::/0", "::/0"),
        ("64:ff9b::a63:7", "64:ff9b::a63:7/128"),
        ("2002:a63:7::1", "2002:a63:7::1/128"),
        ("::a63:7", "::a63:7/128"),
    ],
)
def test_an_ipv4_mapped_address_is_the_ipv4_address(text: str, normal: str) -> None:
    assert str(ip.normal_network(text)) == normal
    if "/" not in text:
        assert ip.normal_address(text) == normal.partition("/")[0]


@pytest.mark.parametrize("text", ["fe80::1%eth0", "fe80::1%eth0/128", "10.99.0.7:0/32", "x", ""])
def test_what_is_no_address(text: str) -> None:
    for parse in (ip.normal_address, ip.exact_address, ip.normal_network, ip.exact_network):
        with pytest.raises(ValueError, match=".*"):
            parse(text)


def test_an_address_is_no_range() -> None:
    for parse in (ip.normal_address, ip.exact_address):
        with pytest.raises(ValueError, match="is a range"):
            parse("10.99.0.7/32")


def test_what_ceph_has_is_kept() -> None:
    exact = ip.exact_network("::ffff:a63:7")
    assert (exact.version, ip.is_mapped(exact)) == (6, True)
    assert not any(map(ip.is_mapped, map(ip.exact_network, ("10.99.0.7", "::/0", "fd00::/64"))))


def test_addresses_that_a_host_can_have() -> None:
    good = ["10.0.0.5", "240.0.0.1", "fd00::5", "64:ff9b::1", "2002:a63:7::1", "127.0.0.11"]
    bad = ["127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::5"]
    bad += ["::10.0.0.99", "169.254.1.1", "fe80::1"]
    said = ["nonsense", *good, "::ffff:10.0.0.5", *bad, "::ffff:127.0.0.1", "10.0.0.0/24"]
    hosts, others = ip.host_addresses(said)
    assert list(hosts) == good
    assert others == tuple(ip.exact_address(text) for text in bad)
