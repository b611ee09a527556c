# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What rbd_watcher_info has read of Ceph, as it reaches the cluster's modules by their option
``ceph``. Pure: no I/O here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Any, Callable, NamedTuple, TypeVar

from .._ceph.addresses import KERNEL_COOKIES
from .._core.errors import StorageOpsError
from .._core.ip import exact_address, exact_network, is_host, normal_address
from .._core.texts import is_number
from .._kube.objects import parse_time

T = TypeVar("T")
FAMILIES = frozenset({"IPv4", "IPv6"})
# The clocks of the Ceph host and of the API server may differ by so much (seconds) when a reading
# is called older than a note.
SKEW_SECONDS = 30.0


class Blocked(NamedTuple):
    """An entry of the blocklist, as Ceph spells it.

    ``kind``: "address", "client" or "range"; ``address``: normalised, a range as CIDR. An
    IPv4-mapped one is kept, since it blocks no IPv4 client.
    """

    entry: str
    kind: str
    address: str
    until: str

    @property
    def spelling(self) -> str:
        """As the module ceph_blocklist takes it."""
        return self.entry if self.kind == "client" else self.address

    def covers(self, address: str) -> bool:
        """It blocks every client at that address."""
        # Of a single client nothing is covered: the next one at the address has another nonce.
        if self.kind == "range":
            return ip_address(address) in ip_network(self.address, strict=False)
        return self.kind == "address" and self.address == address


class Watcher(NamedTuple):
    """A client that has an image open. ``persistent``: the same client with the same cookie in
    every one of several observations.

    ``mirror``: it is an rbd-mirror daemon.
    """

    address: str
    entry: str
    client: str
    cookie: str
    seen: int
    persistent: bool
    mirror: bool

    @property
    def title(self) -> str:
        """As a message names it."""
        return f"{self.entry} ({self.client})"

    @property
    def is_kernel(self) -> bool:
        """It is a client of the kernel, as a node has one that maps the image (krbd). Whatever else
        opens images does so by librbd: a provisioner, a backup, rbd-mirror, rbd-nbd.
        """
        # A number of 64 bits has at most 20 digits.
        text = self.cookie
        return is_number(text) and len(text) <= 20 and int(text) in KERNEL_COOKIES


class Lock(NamedTuple):
    """The owner of a lock on an image, which may be dead."""

    locker: str
    address: str
    entry: str


class ClientAddress(NamedTuple):
    """From which address a node opened an image, as ceph-csi noted when it staged it."""

    node: str
    address: str


class Image(NamedTuple):
    """An RBD image.

    ``volume``: its PersistentVolume, or empty; ``problem``: why it could not be read, or empty.
    """

    volume: str
    pool: str
    namespace: str
    image: str
    problem: str
    watchers: tuple[Watcher, ...]
    locks: tuple[Lock, ...]
    client_addresses: tuple[ClientAddress, ...]

    @property
    def title(self) -> str:
        """As rbd names it."""
        return "/".join(part for part in (self.pool, self.namespace, self.image) if part)


class Session(NamedTuple):
    """A client at the metadata servers of a CephFS. ``hostname``, ``program`` and ``root``, the
    folder that it has mounted, are its own words. ``more``: that many differ in nothing of it.
    """

    address: str
    entry: str
    client: str
    hostname: str
    program: str
    root: str
    more: int

    @property
    def title(self) -> str:
        """As a message names it."""
        return f"{self.entry} ({', '.join(filter(None, (self.client, self.program)))})"


class FileSystem(NamedTuple):
    """A CephFS. ``name``: empty if it is not known which there are; ``problem``: why its sessions
    are not known, or empty.
    """

    name: str
    problem: str
    sessions: tuple[Session, ...]


class Reading(NamedTuple):
    """``seconds``: from the first observation to the last; ``read_at``: by the clock of the host
    that asked Ceph; ``families``: those of its monitors' addresses, so IPv4, IPv6 or both;
    ``files``: every CephFS, None if they were not read.
    """

    fsid: str
    read_at: datetime
    observations: int
    seconds: float
    families: frozenset[str]
    blocklist: tuple[Blocked, ...]
    images: tuple[Image, ...]
    files: tuple[FileSystem, ...] | None = None

    def find(self, entry: str) -> Blocked | None:
        """Exactly this entry, in the spelling of the module ceph_blocklist.

        A range of one address may be kept as that address.
        """
        # ceph-csi blocks /32 as a range where Ceph has ranges, and as an address where not
        # (AddNetworkFence of internal/csi-addons/networkfence/fencing.go).
        spellings = {entry}
        if "/" in entry:
            # A client has a slash too, but is no network.
            with contextlib.suppress(ValueError):
                network = ip_network(entry, strict=False)
                spellings = {
                    str(network),
                    *([str(network.network_address)] if network.num_addresses == 1 else []),
                }
        return _last(found for found in self.blocklist if found.spelling in spellings)

    def blocks(self, entry: str) -> bool:
        """Exactly this entry is there."""
        return self.find(entry) is not None

    def covering(self, address: str) -> Blocked | None:
        """An entry that blocks every client at the address."""
        return _last(found for found in self.blocklist if found.covers(address))


def _last(found: Iterable[Blocked]) -> Blocked | None:
    """Of several that block the same, the one that stays longest."""
    # ISO 8601 in UTC with one format sorts as time does.
    return max(found, key=lambda entry: entry.until, default=None)


def moment(text: str) -> datetime | None:
    """A time with its zone; None for anything else."""
    with contextlib.suppress(ValueError):
        found = parse_time(text)
        return found if found and found.tzinfo else None
    return None


def parse_reading(data: Mapping[str, Any]) -> Reading:
    """The option ``ceph``, checked.

    Raises StorageOpsError that says which part of it does not do.
    """
    # The reading passes through a playbook, so it may be cut, old or written by hand. What is not
    # understood whole is refused: a missing list of watchers must not become an empty one.
    reader = _Reader(data, "ceph")
    read_at = moment(reader.text("read_at"))
    if read_at is None:
        raise _malformed("ceph.read_at", "is no time with its zone")
    return Reading(
        reader.text("fsid"),
        read_at,
        int(reader.number("observations")),
        float(reader.number("seconds")),
        _families(reader),
        reader.every("blocklist", _blocked),
        reader.every("images", _image),
        reader.every("filesystems", _file_system) if reader.has("filesystems") else None,
    )


def _families(reader: _Reader) -> frozenset[str]:
    found = reader.texts("families")
    if not found or not {*found} <= FAMILIES:
        raise _malformed("ceph.families", f"is {found!r}")
    return frozenset(found)


def _file_system(reader: _Reader) -> FileSystem:
    return FileSystem(
        reader.text("name"), reader.text("problem"), reader.every("sessions", _session)
    )


def _session(reader: _Reader) -> Session:
    entry, client, hostname, program, root = (
        reader.text(name) for name in ("entry", "client", "hostname", "program", "root")
    )
    more = int(reader.number("more"))
    return Session(reader.address("address"), entry, client, hostname, program, root, more)


def _blocked(reader: _Reader) -> Blocked:
    kind = reader.text("kind")
    normalise = {
        "address": exact_address,
        "client": exact_address,
        "range": lambda text: str(exact_network(text)),
    }.get(kind)
    if normalise is None:
        raise _malformed(f"{reader.where}.kind", f"is {kind!r}")
    return Blocked(
        reader.text("entry"), kind, reader.address("address", normalise), reader.text("until")
    )


def _image(reader: _Reader) -> Image:
    volume, pool, namespace, image, problem = (
        reader.text(name) for name in ("volume", "pool", "namespace", "image", "problem")
    )
    notes = reader.every(
        "client_addresses",
        lambda found: ClientAddress(found.text("node"), found.address("address")),
    )
    return Image(
        volume,
        pool,
        namespace,
        image,
        problem,
        reader.every("watchers", _watcher),
        reader.every(
            "locks",
            lambda lock: Lock(lock.text("locker"), lock.address("address"), lock.text("entry")),
        ),
        # Root on a node writes the notes about it, and Ceph takes no entry for 0.0.0.0.
        tuple(found for found in notes if is_host(found.address)),
    )


def _watcher(reader: _Reader) -> Watcher:
    entry, client, cookie = (reader.text(name) for name in ("entry", "client", "cookie"))
    seen, persistent, mirror = (
        int(reader.number("seen")),
        reader.flag("persistent"),
        reader.flag("mirror"),
    )
    return Watcher(reader.address("address"), entry, client, cookie, seen, persistent, mirror)


class _Reader:
    """A dictionary, and where it stands, for errors."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise _malformed(where, f"is not a dictionary but {type(data).__name__}")
        self._data, self.where = data, where

    def has(self, name: str) -> bool:
        """It is there; only for what may be left out."""
        return name in self._data

    def _get(self, name: str) -> Any:
        if name not in self._data:
            raise _malformed(f"{self.where}.{name}", "is missing")
        return self._data[name]

    def text(self, name: str) -> str:
        value = self._get(name)
        # Jinja turns text that looks like a number into one; True and False are ints to Python.
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise _malformed(f"{self.where}.{name}", f"is not a text but {type(value).__name__}")
        return str(value)

    def texts(self, name: str) -> list[str]:
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise _malformed(f"{self.where}.{name}", f"is no list of texts but {value!r}")
        return value

    def number(self, name: str) -> float:
        value = self._get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            # NaN fails both comparisons.
            or not 0 <= value < math.inf
        ):
            raise _malformed(f"{self.where}.{name}", f"is no number but {value!r}")
        return value

    def flag(self, name: str) -> bool:
        value = self._get(name)
        if not isinstance(value, bool):
            # A text "false" is true to Python.
            raise _malformed(f"{self.where}.{name}", f"is neither true nor false but {value!r}")
        return value

    def address(self, name: str, normalise: Callable[[str], str] = normal_address) -> str:
        text = self.text(name)
        try:
            return normalise(text)
        except ValueError:
            raise _malformed(f"{self.where}.{name}", f"is no address but {text!r}") from None

    def every(self, name: str, make: Callable[[_Reader], T]) -> tuple[T, ...]:
        value = self._get(name)
        if not isinstance(value, list):
            raise _malformed(f"{self.where}.{name}", f"is not a list but {type(value).__name__}")
        return tuple(
            make(_Reader(item, f"{self.where}.{name}[{index}]")) for index, item in enumerate(value)
        )


def _malformed(where: str, what: str) -> StorageOpsError:
    return StorageOpsError(
        f"{where} {what}: give the option ceph what storage_ops.runbooks.rbd_watcher_info returned "
        "as ceph, as it is",
        code="bad_option",
    )
