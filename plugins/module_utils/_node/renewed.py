# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mounts that a repair has put in the place of pods' dead FUSE mounts, as it has noted them.

A driver may stage such a volume again, for another pod. Then the node has two filesystems of one
volume, and nothing in the kernel says so: the source of a FUSE mount is often the name of its
program only.
"""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple

from .host import Host
from .mounts import Mount

# /run is a tmpfs: a reboot, which ends every mount, removes the note, too (file-hierarchy(7)).
NOTES = "/run/storage_ops/fuse.renewed"


class Renewed(NamedTuple):
    """A mount at the mount point of a pod, whose path names the pod and the volume.

    ``device``, ``root``, ``fstype``, ``source``: as of Mount. Its id is not known before it is
    made, and afterwards a run may be killed before it notes it.
    """

    point: str
    device: str
    root: str
    fstype: str
    source: str


def identity(mount: Mount) -> Renewed:
    """What a mount is noted as."""
    return Renewed(mount.point, mount.device, mount.root, mount.fstype, mount.source)


def read_renewed(host: Host) -> frozenset[Renewed]:
    """The mounts that are noted; none if the note cannot be read. Some may be gone."""
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        return frozenset(Renewed(*entry) for entry in json.loads(host.read(NOTES) or "[]"))
    return frozenset()
