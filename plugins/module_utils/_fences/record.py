# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From which address each node reaches Ceph, as Ceph showed it while the node was healthy.

A node that has lost its power, or its network for 30 s, has no watcher any more, and then nothing
else tells its address on Ceph's network. One ConfigMap has a record for each Node object, by its
uid, and for each Ceph, by its fsid. What a kubelet or a driver says is never part of it, but for
the boot and the machine by which a record is known to be an old one.

A reboot may give the node another address (DHCP, another interface), and in any case makes it
another client of Ceph. So a record of another boot says where the node was, and no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from .._core import untrusted
from .._core.ip import is_host, normal_address
from .._kube.client import Cluster, Object, path
from .._kube.objects import CLIENT_RECORD
from .ceph_reading import moment

# Raised with every change that an older collection would misread.
VERSION = 1
# What all records may be together (characters). The API server takes 1 MiB of data (MaxSecretSize
# in ValidateConfigMap of pkg/apis/core/validation/validation.go); about 3,000 nodes.
MOST = 900_000
# What one may be. A kubelet chooses its bootID and its systemUUID, so a long one is kept as a hash.
_MOST_TEXT, _MOST_WORD = 2_000, 100
# So many clients of a node are kept: for the eye alone, since each boot makes others.
_MOST_CLIENTS = 5
# As in a key of a ConfigMap (IsConfigMapKey of k8s.io/apimachinery pkg/util/validation).
_KEY = re.compile(r"(?P<uid>[-_a-zA-Z0-9]{1,63})\.(?P<fsid>[-_a-zA-Z0-9]{1,63})")
_CLIENT = re.compile(r"client\.[0-9]{1,20}")


class Record(NamedTuple):
    """Where Ceph saw a node. ``images``: how many images showed it; ``looks``: in so many
    observations, over ``seconds``; ``at``: when, by the clock of the host that asked Ceph.

    ``machine`` and ``boot_id``: of the node at that time, see ``word``.
    """

    node: str
    node_uid: str
    machine: str
    boot_id: str
    fsid: str
    address: str
    clients: tuple[str, ...]
    images: int
    looks: int
    seconds: float
    at: datetime

    @property
    def key(self) -> str:
        """Where the ConfigMap has it."""
        return key_of(self.node_uid, self.fsid)

    @property
    def text(self) -> str:
        """As the ConfigMap has it."""
        data = {
            "version": VERSION,
            "node": self.node,
            "machine": self.machine,
            "boot_id": self.boot_id,
            "address": self.address,
            "clients": list(self.clients),
            "source": "watchers of images that only this node has",
            "images": self.images,
            "looks": self.looks,
            "seconds": self.seconds,
            "at": f"{self.at:%Y-%m-%dT%H:%M:%SZ}",
        }
        return json.dumps(data, sort_keys=True)

    def says_the_same(self, other: Record) -> bool:
        """Nothing but when and how often it was seen differs."""
        return self._replace(images=0, looks=0, seconds=0.0, at=other.at) == other._replace(
            images=0, looks=0, seconds=0.0
        )

    def is_of_boot(self, boot_id: str, machine: str) -> bool:
        """It was seen in this very boot of this very machine."""
        # Without a bootID it is not known whether the node was booted since.
        return bool(boot_id) and (self.boot_id, self.machine) == (word(boot_id), word(machine))


class Records(NamedTuple):
    """What the ConfigMap has. ``unreadable``: by key, why a text is no record; ``item``: the
    object, None where it is missing.
    """

    found: Mapping[str, Record] = {}
    unreadable: Mapping[str, str] = {}
    item: Object | None = None

    def of(self, node_uid: str, fsid: str) -> Record | None:
        """That of a Node object and a Ceph."""
        return self.found.get(key_of(node_uid, fsid))


def key_of(node_uid: str, fsid: str) -> str:
    """The key of a record."""
    return f"{node_uid}.{fsid}"


def word(text: str) -> str:
    """What a kubelet says of itself, short enough to be kept; equal texts stay equal."""
    if len(text) <= _MOST_WORD and text.isprintable():
        return text
    return f"sha256-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def few_clients(names: Iterable[str]) -> tuple[str, ...]:
    """The clients that a record keeps."""
    return tuple(sorted(set(names))[:_MOST_CLIENTS])


def parse_records(item: Object | None) -> Records:
    """What the ConfigMap has. Whoever may write it could write anything into it, so each text is
    checked, and one that is no record hides no other.
    """
    data = (item or {}).get("data") or {}
    found, unreadable = {}, {}
    for key, text in data.items():
        try:
            found[key] = _parse(key, text)
        except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            unreadable[key] = untrusted.shown(said, 200)
    return Records(found, unreadable, item)


def _parse(key: str, text: str) -> Record:
    match = _KEY.fullmatch(key)
    if match is None or len(text) > _MOST_TEXT:
        raise ValueError("its key or its length is none of a record")
    fields = untrusted.from_json(text)
    if fields["version"] != VERSION:
        raise ValueError(f"its version is {fields['version']!r}")
    at, address = moment(_text(fields, "at")), normal_address(_text(fields, "address"))
    if at is None or not is_host(address):
        raise ValueError("its time is none, or its address is none of a host")
    node, clients = _text(fields, "node"), fields["clients"]
    if not untrusted.is_name(node):
        raise ValueError("its node is no name")
    if not isinstance(clients, list) or not all(_CLIENT.fullmatch(one) for one in clients):
        raise ValueError("its clients are none")
    return Record(
        node=node,
        node_uid=match["uid"],
        machine=_text(fields, "machine"),
        boot_id=_text(fields, "boot_id"),
        fsid=match["fsid"],
        address=address,
        clients=few_clients(clients),
        images=_number(fields, "images"),
        looks=_number(fields, "looks"),
        seconds=float(_number(fields, "seconds")),
        at=at,
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    if not isinstance(fields[name], str):
        raise TypeError(f"{name} is no text")
    return str(fields[name])


def _number(fields: Mapping[str, Any], name: str) -> Any:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise TypeError(f"{name} is no number")
    return value


def record_path(namespace: str) -> str:
    """Where the API has the ConfigMap."""
    return path("v1", "configmaps", CLIENT_RECORD, namespace)


def read_records(cluster: Cluster, namespace: str) -> Records:
    """What the ConfigMap of this namespace has; nothing where there is none."""
    return parse_records(cluster.get(record_path(namespace)))
