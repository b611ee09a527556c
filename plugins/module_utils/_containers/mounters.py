# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who mounted a FUSE filesystem that a container in a user namespace of its own has: the node, or
perhaps the container itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from .._core.codes import Reason
from .._node.host import Host
from .._node.mounts import CONNECTIONS

# Of one container, so many filesystems are asked that the node has no more. Volumes whose mounts
# were replaced are a few; and a container that gets mounts from another one of its pod, over a
# socket, may have any number of others.
MOST_GONE = 32
# One extent of a user namespace (user_namespaces(7)): its first user there, the node's number of
# that user, how many.
_EXTENT = re.compile(r"^\s*[0-9]+\s+([0-9]+)\s+([0-9]+)$", re.MULTILINE | re.ASCII)
_ROOT = 0


def mounter_of(host: Host, device: str) -> int | None:
    """The user, by the node's number, as whom a FUSE filesystem was mounted; None if that is not
    known, as where fusectl is not mounted.

    ``device``: its major:minor.
    """
    # The owner of its folder is the option user_id, as the kernel has it (fs/fuse/control.c
    # fuse_ctl_add_conn); in mountinfo it is a number of the user namespace that mounted. The folder
    # is there until the last mount of the filesystem is gone, also once its server has ended.
    with contextlib.suppress(OSError):
        return os.lstat(host.path(f"{CONNECTIONS}/{device.partition(':')[2]}")).st_uid
    return None


def of_the_node(
    host: Host, pid: str, points: Sequence[tuple[str, str]], volumes: Mapping[str, int | None]
) -> tuple[list[tuple[str, str]], str]:
    """(those mounts that the container cannot have made itself, why there may be others).

    ``points``: (mount point, device) of FUSE mounts in a process's mount namespace that another
    user namespace than the node's owns. ``volumes``: by device, the users who mounted the volumes
    that the node has now.
    """
    users = {_ROOT, *(user for user in volumes.values() if user is not None)}
    own = _users_of(host, pid)
    gone: set[str] = set()
    doubts: dict[str, Reason] = {}
    for device in dict.fromkeys(device for _point, device in points if device not in volumes):
        user = mounter_of(host, device)
        if user is None or own is None:
            said = "the kernel does not tell who mounted it (fusectl)"
            doubts[device] = Reason("evidence_unreadable", said)
        # A user namespace mounts as one of its own users only (fs/fuse/inode.c fuse_parse_param):
        # what another user mounted is the node's, and may be a volume that the node has no more.
        elif not _has(own, user):
            if len(gone) == MOST_GONE:
                said = f"it has more than {MOST_GONE} that the node has no more"
                doubts[device] = Reason("evidence_unreadable", said)
            else:
                gone.add(device)
        # Both may have mounted it. It is not asked: a tenant's server may hang, in each run.
        elif user in users:
            said = "its user namespace has the user who mounts volumes on the node"
            doubts[device] = Reason("evidence_unreadable", said)
    seen = [(point, device) for point, device in points if device in volumes or device in gone]
    return seen, _doubt(doubts)


def _users_of(host: Host, pid: str) -> list[tuple[int, int]] | None:
    """(the node's number of the first, how many) of the users of a process's user namespace; None
    if that cannot be read.
    """
    text = host.read(f"/proc/{pid}/uid_map")
    return None if text is None else [(int(one), int(many)) for one, many in _EXTENT.findall(text)]


def _has(users: Collection[tuple[int, int]], user: int) -> bool:
    return any(first <= user < first + many for first, many in users)


def _doubt(doubts: Mapping[str, str]) -> str:
    """The sentence about filesystems of which it is not known whose they are."""
    if not doubts:
        return ""
    (why, _times), *_others = Counter(doubts.values()).most_common()
    return (
        f"it is in a user namespace of its own, and {len(doubts)} of its FUSE filesystems (as "
        f"{next(iter(doubts))}) may be volumes that the node has no more: {why}"
    )
