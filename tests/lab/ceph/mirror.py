# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another site that mirrors images: its rbd-mirror is a client of this one, and watches what it
mirrors.
"""

from __future__ import annotations

import contextlib
import uuid
from types import TracebackType

from ..common import wait
from ..kubernetes.process import Process
from .client import bind_source
from .cluster import Ceph, CephError

FIRST = "first"


class Mirror:
    """A second cluster, whose rbd-mirror reaches the first one's pool ``rbd`` from ``address``."""

    def __init__(self, primary: Ceph, address: str) -> None:
        self.primary, self.address = primary, address
        self.site = Ceph(f"{primary.name}-{uuid.uuid4().hex[:6]}", tied=primary.tied)
        self.daemon = Process(self.site.folder, "rbd-mirror")

    def start(self, *images: str) -> None:
        """Mirror these images, and wait until the daemon watches each of them."""
        self.site.start()
        for site in (self.primary, self.site):
            site.rbd("mirror", "pool", "enable", "rbd", "image")
        # Clusters are found by their names, in the directory where the daemon is started.
        (self.site.folder / f"{FIRST}.conf").symlink_to(self.primary.conf)
        self.site.rbd("mirror", "pool", "peer", "add", "rbd", f"client.admin@{FIRST}")
        for image in images:
            self.primary.rbd("mirror", "image", "enable", f"rbd/{image}", "snapshot")
        environment = [
            "env",
            f"--chdir={self.site.folder}",
            f"LD_PRELOAD={bind_source()}",
            f"LAB_ADDRESS={self.address}",
        ]
        self.daemon.start(
            [*environment, "rbd-mirror", "-f", "--name", "client.admin"], self.site.tied
        )
        for image in images:
            wait(lambda image=image: self.watches(image), f"rbd-mirror watches {image}", 90)  # type: ignore[misc]

    def watches(self, image: str) -> bool:
        """The daemon has this image of the first cluster open."""
        self.daemon.check()
        with contextlib.suppress(CephError):
            return any(
                found["address"].startswith(f"{self.address}:")
                for found in self.primary.watchers(image)
            )
        return False

    def __enter__(self) -> Mirror:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.site.remove()
