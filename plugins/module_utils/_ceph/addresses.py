# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses as Ceph's blocklist has them, and as users write them. Pure: no I/O here.

Ceph takes almost any text: ``10.0.0.0/24`` without ``range`` is the client with nonce 24 at
10.0.0.0, ``::ffff:10.0.0.5`` becomes ::ffff:10, ``10.0.0.5:0/0x10`` the whole address. So what
users write either means here exactly what Ceph will store, or is refused.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_network
from typing import NamedTuple

from .._core.errors import BadOption
from .._core.ip import Network, exact_network, normal_network

# Three kinds of entries, in the order in which an OSD looks for a client that asks it
# (OSDMap::is_blocklisted of src/osd/OSDMap.cc): this very instance, the whole IP address (port and
# nonce 0), and a range of addresses (since Quincy).
ADDRESS, CLIENT, RANGE = "address", "client", "range"
# A wider range is a slip of the pen: it hits every client there is.
SHORTEST_PREFIX = {4: 16, 6: 48}
# The cookies of the kernel's watches, as "rbd status" shows them. They are numbered from
# CEPH_LINGER_ID_START on (include/linux/ceph/osd_client.h, since Linux 4.7); those of librbd are
# addresses in its memory (Objecter::LingerOp::get_cookie of src/osdc/Objecter.h).
KERNEL_COOKIES = range(0xFFFF_0000_0000_0000, 1 << 64)
# A nonce tells apart the clients at one address; entity_addr_t (src/msg/msg_types.h) has it as 32
# bits. Of a range, Ceph keeps the length of the prefix in this field.
_MAX_NONCE = 0xFFFFFFFF

_WRITTEN = re.compile(
    r"(?:(?P<type>v1|v2|any|cidr):)?"
    r"(?:\[(?P<bracketed>[0-9A-Fa-f:]+)\]|(?P<four>[0-9.]+)|(?P<six>[0-9A-Fa-f]*:[0-9A-Fa-f:]*))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/(?P<number>[0-9]{1,10}))?"
)
# What entity_addr_t prints: a type where it is not ANY, the address (IPv6 in brackets), the port
# and the nonce. Before Nautilus entries have the type of a legacy address, since then ANY.
_STORED = re.compile(
    r"(?:(?:v1|v2|any|cidr):)?(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]"
    r"|(?P<four>[0-9.]{7,15})):(?P<port>[0-9]{1,10})/(?P<number>[0-9]{1,10})"
)


class Entry(NamedTuple):
    """What an entry of the blocklist blocks.

    A single address is a network of one; ``port`` is 0 but for Ceph's own daemons.
    """

    kind: str
    network: Network
    nonce: int = 0
    port: int = 0

    @property
    def address(self) -> str:
        """The plain address, or the range as CIDR."""
        return str(self.network if self.kind == RANGE else self.network.network_address)

    @property
    def text(self) -> str:
        """As Ceph spells it and takes it; a range as CIDR."""
        if self.kind == RANGE:
            return self.address
        host = f"[{self.address}]" if self.network.version == 6 else self.address
        return f"{host}:{self.port}/{self.nonce}"

    def covers(self, other: Entry) -> bool:
        """Every client that ``other`` blocks, this one blocks too."""
        # Only the same instance is hit by an entry for a client; an entry for an address hits every
        # instance there, whatever its nonce.
        if self.kind == CLIENT:
            return other == self
        return within(other.network, self.network)

    def overlaps(self, network: Network) -> bool:
        """It blocks a client somewhere in the network."""
        return within(self.network, network) or within(network, self.network)


def within(inner: Network, outer: Network) -> bool:
    """All of ``inner`` is in ``outer``."""
    return (
        inner.version == outer.version
        and inner.prefixlen >= outer.prefixlen
        and inner.network_address in outer
    )


def parse_entry(text: str) -> Entry:
    """An entry as a user writes it. Raises BadOption with what is wrong with it."""
    # Ceph's own parser (entity_addr_t::parse) stops at what it does not understand and takes the
    # rest for zero, so a slip becomes an entry for something else. What is not understood whole is
    # refused here.
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise _refused(
            text, "give an address (10.0.0.5), a client (10.0.0.5:0/123) or a range (10.0.0.0/24)"
        )
    host = match["bracketed"] or match["four"] or match["six"]
    network = _single(text, host)
    number = None if match["number"] is None else int(match["number"])
    if match["port"] is not None:
        if int(match["port"]) or number is None:
            raise _refused(
                text,
                "the port of a client is 0, and its nonce follows: "
                "10.0.0.5:0/123; a whole address has neither",
            )
        if match["type"] != "cidr":
            return _client(text, network, number)
    if number is None:
        if match["type"] == "cidr":
            raise _refused(text, "a range has a prefix: 10.0.0.0/24")
        return Entry(ADDRESS, network)
    entry = _range(text, network, number)
    if (
        match["six"]
        and match["six"].endswith(":0")
        and entry.network.network_address != network.network_address
    ):
        raise _refused(text, "this may be a client or a range: write [fd00::5]:0/123 or fd00::/64")
    return entry


def parse_network(text: str) -> Network:
    """An address or a range that is to be spared, however wide."""
    try:
        return _single(text, text.strip()) if "/" not in text else normal_network(text)
    except ValueError:
        raise _refused(text, "give an address (10.0.0.5) or a range (10.0.0.0/24)") from None


def parse_stored(text: str, is_range: bool = False) -> Entry | None:
    """An address as Ceph spells it: of an entry, a watcher or a lock.

    None for what is none, as ``:/0``.
    """
    # A watcher or a lock of a client that is gone may have the blank address ":/0".
    match = _STORED.fullmatch(text)
    if match is None:
        return None
    try:
        port, number = int(match["port"]), int(match["number"])
        network = ip_network(
            f"{match['six'] or match['four']}/{number}"
            if is_range
            else match["six"] or match["four"],
            strict=False,
        )
    except ValueError:
        return None
    if is_range:
        return Entry(RANGE, network)
    return Entry(CLIENT if port or number else ADDRESS, network, number, port)


def _single(text: str, host: str) -> Network:
    try:
        network = exact_network(host)
    except ValueError:
        raise _refused(text, f"{host} is no address") from None
    address = network.network_address
    # Early releases of Python 3.9 take 010.0.0.5 for 10.0.0.5.
    if address.version == 4 and str(address) != host:
        raise _refused(text, f"{host} has leading zeros")
    if isinstance(address, IPv6Address) and (
        address.ipv4_mapped or (int(address) >> 32 == 0 and int(address) > 1)
    ):
        raise _refused(
            text, "Ceph misreads an IPv4 address inside of an IPv6 one: give the IPv4 address"
        )
    # No connection comes from these (RFC 4291, section 2.5.2 and 2.7; RFC 1122, section 3.2.1.3).
    if address.is_unspecified or address.is_multicast:
        raise _refused(text, f"{address} is no client's address")
    return network


def _client(text: str, network: Network, nonce: int) -> Entry:
    if nonce > _MAX_NONCE:
        raise _refused(text, f"a nonce is at most {_MAX_NONCE}")
    return Entry(CLIENT if nonce else ADDRESS, network, nonce)


def _range(text: str, network: Network, prefix: int) -> Entry:
    shortest = SHORTEST_PREFIX[network.version]
    if not shortest <= prefix <= network.max_prefixlen:
        raise _refused(
            text,
            f"the prefix of a range is /{shortest} to /{network.max_prefixlen}; a client is "
            f"written {Entry(CLIENT, network, prefix).text}",
        )
    # Ceph keeps host bits, so that one range could be there twice and be removed once.
    whole = ip_network((network.network_address, prefix), strict=False)
    _single(text, str(whole.network_address))
    return Entry(RANGE, whole)


def _refused(text: str, why: str) -> BadOption:
    return BadOption(f"{text!r} cannot be an entry of the blocklist: {why}")
