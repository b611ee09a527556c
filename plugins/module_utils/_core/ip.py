# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IP addresses and ranges in the one spelling in which they are compared. Pure: no I/O here.

An IPv4-mapped IPv6 address (``::ffff:a.b.c.d``, RFC 4291, section 2.5.5.2) is the IPv4 address: a
socket that takes both families sees an IPv4 peer so, and Go, so ceph-csi, makes the IPv4 range of a
mapped one (net.ParseCIDR, net.IPNet.Contains). Ceph itself tells the two apart (entity_addr_t of
src/msg/msg_types.h has a family), so what it has in its blocklist is not read with this.

All else stays what it is, to Go and to Ceph (OSDMap::range_bits::matches of src/osd/OSDMap.cc): a
range wider than the mapped block, as ``::/0``, has no IPv4 address. Neither has one of NAT64
(RFC 6052) or 6to4 (RFC 3056): Ceph sees the translator or the IPv6 address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Union

Network = Union[IPv4Network, IPv6Network]
_MAPPED = IPv6Network("::ffff:0:0/96")
# No connection to another host comes from these (RFC 1122, section 3.2.1.3): localhost, broadcast,
# and an IPv4 address behind zeros (RFC 4291, section 2.5.5.1, deprecated), which Ceph misreads and
# among which is ::1. A Ceph that is all on one machine, as for tests, sees its clients at other
# addresses of 127.0.0.0/8; elsewhere an entry for one of these hits no client.
_NO_HOSTS = (IPv4Network("127.0.0.1"), IPv4Network("255.255.255.255"), IPv6Network("::/96"))


def exact_network(text: str) -> Network:
    """An address or a range without host bits, a mapped one as it is.

    Raises ValueError for anything else.
    """
    # A scope (RFC 4007, section 11) means something on one host only, and ipaddress takes any text.
    # Ceph and Go take none, so a node that claimed such an address could not be fenced.
    if "%" in text:
        raise ValueError(f"{text!r} has a scope")
    return ip_network(text.strip(), strict=False)


def normal_network(text: str) -> Network:
    """An address or a range without host bits. Raises ValueError for anything else."""
    found = exact_network(text)
    if not is_mapped(found):
        return found
    start = int(found.network_address) - int(_MAPPED.network_address)
    return IPv4Network((start, found.prefixlen - _MAPPED.prefixlen))


def exact_address(text: str) -> str:
    """A plain IP address, a mapped one as it is. Raises ValueError for anything else."""
    if "/" in text:
        raise ValueError(f"{text!r} is a range")
    return str(exact_network(text).network_address)


def normal_address(text: str) -> str:
    """A plain IP address. Raises ValueError for anything else."""
    return str(normal_network(exact_address(text)).network_address)


def family(address: str) -> str:
    """The family of an address, as Kubernetes calls it: IPv4 or IPv6."""
    return "IPv6" if ":" in address else "IPv4"


def is_mapped(network: Network) -> bool:
    """It has IPv4-mapped addresses alone."""
    return isinstance(network, IPv6Network) and network.subnet_of(_MAPPED)


def host_addresses(texts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a node says of its addresses, each once: those that it can have, and the others.

    What is no address is left out.
    """
    found: dict[str, bool] = {}
    for text in texts:
        with contextlib.suppress(ValueError):
            address = normal_address(text)
            found[address] = is_host(address)
    return (
        tuple(address for address, good in found.items() if good),
        tuple(address for address, good in found.items() if not good),
    )


def is_host(address: str) -> bool:
    """Another host can have this normal address, and Ceph can see it there."""
    found = ip_network(address)
    return not (
        found.is_multicast
        or found.is_unspecified
        # The same on every link, so of no one host (RFC 3927; RFC 4291, section 2.5.6).
        or found.is_link_local
        or any(found.version == none.version and found.overlaps(none) for none in _NO_HOSTS)
    )
