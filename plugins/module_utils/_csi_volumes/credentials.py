# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the credentials of volumes from their Secrets, and nothing else of these.

A tenant may write the Secret that its volume names, up to the size that the API server takes, and
have as many of them as it has claims. So each Secret is read alone, and what is kept of it is
bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._core.engine import Plan
from .._core.errors import BadOption, StorageOpsError
from .._core.turns import in_turns, within
from .._core.untrusted import shown
from .._kube.client import Cluster, path

# Characters, in base64, of all credentials of one Secret. A session token of S3, the longest one,
# has some 1,000 (https://docs.aws.amazon.com/STS/latest/APIReference/API_Credentials.html sets no
# limit).
MOST_OF_ONE = 16_000
# And of all together, with their names. A result may have 500,000 (MAX_RESULT_CHARACTERS), and has
# the names of those that were not read, too: csi_volume_info tells of some hundred at most.
MOST = 200_000
# Of the deadline, for the reads; the rest is for the result.
_SHARE = 0.8
_MOST_REASON = 120


class Reference(NamedTuple):
    """A Secret, and the namespace of a claim that needs it, which has its turns."""

    owner: str
    namespace: str
    name: str

    @property
    def place(self) -> tuple[str, str]:
        """Which Secret it is, whoever needs it."""
        return self.namespace, self.name


class Credentials(NamedTuple):
    """What was read: by place, the wanted keys of each Secret, and why one has none."""

    found: Mapping[tuple[str, str], Mapping[str, str]]
    unread: Mapping[tuple[str, str], str]


class CsiSecrets:
    """The audit behind csi_secret_info: it reads and does not judge."""

    def __init__(
        self, cluster: Cluster, references: Sequence[Reference], keys: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self._references = references
        self._keys = frozenset(keys)
        self._read = Credentials({}, {})

    def gather(self) -> Credentials:
        """One Secret after the other, in turns of the namespaces of claims."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        unread: dict[tuple[str, str], str] = {}
        deadline = self._cluster.deadline
        asked = in_turns(self._references, lambda one: one.owner)
        first = {one.place: one for one in reversed(asked)}
        with deadline.shortened(deadline.remaining() * _SHARE):
            for place in dict.fromkeys(one.place for one in asked):
                try:
                    found[place] = self._credentials(first[place])
                except StorageOpsError as error:
                    unread[place] = shown(str(error), _MOST_REASON)
        self._read = _within_bounds(found, unread, first)
        return self._read

    def _credentials(self, secret: Reference) -> dict[str, str]:
        """The wanted keys, in base64; none of a Secret that does not exist."""
        if not self._cluster.deadline.remaining():
            raise StorageOpsError(
                "the time was over before it was its turn", code="deadline_passed"
            )
        item = self._cluster.get(path("v1", "secrets", secret.name, secret.namespace)) or {}
        data = item.get("data") or {}
        wanted = {key: str(data[key]) for key in self._keys & set(data) if data[key]}
        if _size(wanted) > MOST_OF_ONE:
            raise StorageOpsError(
                f"its credentials have more than {MOST_OF_ONE:,} characters", code="result_too_long"
            )
        return wanted

    def plan(self, _state: Credentials) -> Plan:
        """Nothing is wrong with a Secret as such."""
        return Plan([])

    def facts(self) -> dict[str, Any]:
        """The Secrets, in the form of the API, and those that were not read."""
        return {
            "secrets": [
                {"metadata": {"namespace": namespace, "name": name}, "data": dict(data)}
                for (namespace, name), data in self._read.found.items()
            ],
            "unread": [
                {"secret": {"namespace": namespace, "name": name}, "reason": why}
                for (namespace, name), why in self._read.unread.items()
            ],
        }

    def healthy(self, state: Credentials) -> str:
        """What was read."""
        return f"{len(state.found)} Secrets were read, and {len(state.unread)} were not"


def _size(data: Mapping[str, str]) -> int:
    return sum(len(text) for text in data.values())


def _within_bounds(
    found: Mapping[tuple[str, str], Mapping[str, str]],
    unread: Mapping[tuple[str, str], str],
    first: Mapping[tuple[str, str], Reference],
) -> Credentials:
    """Those that fit, in turns again, by how long they are."""
    kept, _left = within(
        list(found),
        lambda place: first[place].owner,
        lambda place: sum(map(len, place)) + _size(found[place]),
        MOST,
    )
    reason = f"all Secrets together have more than {MOST:,} characters of credentials"
    left = {place: reason for place in found if place not in set(kept)}
    return Credentials({place: found[place] for place in kept}, {**unread, **left})


def secret_references(volumes: Sequence[Mapping[str, Any]]) -> list[Reference]:
    """The Secrets that volumes of csi_volume_info name. Raises BadOption."""
    try:
        found = [
            Reference(str(volume["namespace"]), str(secret["namespace"]), str(secret["name"]))
            for volume in volumes
            if (secret := volume.get("secret"))
        ]
    except (KeyError, TypeError) as error:
        raise BadOption("volumes is not what csi_volume_info returns") from error
    return list(dict.fromkeys(found))
