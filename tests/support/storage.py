# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph cluster as the tests use it: run our modules against it through Ansible, as on an admin
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.ceph.client import Client
from lab.ceph.cluster import Ceph

from support.cluster import ad_hoc
from support.node import Outcome

OLD = 'docs/guides/ceph_blocklist.md, "Releases"'


class Storage:
    """A Ceph cluster as fresh as after its start."""

    def __init__(self, ceph: Ceph) -> None:
        self.ceph = ceph
        self._keyrings = {"admin": ceph.keyring}

    def ansible(
        self,
        module: str,
        check: bool = False,
        user: str = "admin",
        diff: bool = False,
        **options: Any,
    ) -> Outcome:
        """Run one of our modules as an operator does ad hoc, as a user that there is."""
        python = self.ceph.python if self.ceph.net else ""
        return ad_hoc(module, {**self.connection(user), **options}, check, diff, python)

    def connection(self, user: str = "admin") -> dict[str, str]:
        """The options by which a module finds the cluster."""
        return {"conf": str(self.ceph.conf), "keyring": str(self._keyrings[user]), "user": user}

    def user(self, name: str, **caps: str) -> Path:
        """Make a user with these capabilities (``mon="profile rbd", osd="profile rbd"``); its
        keyring.
        """
        self._keyrings[name] = self.ceph.user(name, **caps)
        return self._keyrings[name]

    def entries(self) -> set[str]:
        """The blocklist, without ends."""
        return set(self.ceph.blocklist())

    @property
    def caps(self) -> str:
        """What the guide ceph_blocklist.md asks for of the monitor, by the name that this release
        has for its blocklist.
        """
        return f'allow r, allow command "osd {self.ceph.word}"'

    def known(self, *entries: str) -> tuple[str, ...]:
        """Those of these entries that this release knows: before Ceph 16 it has no ranges."""
        return tuple(text for text in entries if self.ceph.ranges or not is_range(text))

    def need_ranges(self) -> None:
        """Skip a test on a release that has none."""
        if not self.ceph.ranges:
            pytest.skip(f"this Ceph has no ranges, and so no stand-in for a renewal: {OLD}")

    def watches(self, client: Client) -> bool:
        """This client is a watcher of its image."""
        return client.entry in [found["address"] for found in self.ceph.watchers(client.spec)]


def is_range(text: str) -> bool:
    """Whether an entry is a range, as we or Ceph write it; the others may have a nonce behind a
    slash.
    """
    return text.startswith("cidr:") or ("/" in text and ":0/" not in text)


def fresh_storage(ceph: Ceph) -> Iterator[Storage]:
    """The cluster for one test."""
    ceph.reset()
    yield Storage(ceph)
    # A test that froze it and failed shall not stop the next one.
    ceph.thaw()
