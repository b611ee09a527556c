# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The mounts that other mount namespaces have of the node's filesystems, as many as can be kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from .._core.turns import in_turns
from .control_groups import pod_uid_of
from .host import Host
from .mounts import Mount, Namespace, each_namespace

# How many mounts of one filesystem are kept that one pod has in all its mount namespaces, and how
# many of all. A tenant may make any number of namespaces, each with 100,000 mounts
# (fs.mount-max, Documentation/admin-guide/sysctl/fs.rst).
MOST_COPIES = 1000
MOST_OF_ALL = 10_000


class Others(NamedTuple):
    """``mounts`` in other mount namespaces than the node's, with those that they are mounted on,
    since these tell about propagation.

    ``crowded``: by device, a text about where there are too many to read them all. ``namespaces``:
    by the pid of a mount, and of process 1, the mount namespace.
    """

    mounts: tuple[Mount, ...]
    crowded: dict[str, str]
    namespaces: dict[str, str]


def other_mounts(host: Host, devices: Collection[str]) -> Others:
    """The mounts of these filesystems in other mount namespaces than the node's."""
    # The node's own mounts are read apart, and completely.
    own = host.link("/proc/1/ns/mnt")
    found: list[_Copy] = []
    crowded: dict[str, str] = {}
    # Kept now: that process may end before the others of its namespace do.
    namespaces = {"1": own}
    counts: Counter[tuple[str, str]] = Counter()
    for namespace in each_namespace(host):
        pid = namespace.pid
        if namespace.link == own:
            continue
        owner = pod_uid_of(host.read(f"/proc/{pid}/cgroup") or "") or f"pid {pid}"
        more = _copies(namespace, owner, devices, counts, crowded)
        found += more
        namespaces.update({pid: namespace.link} if more else {})
        # In turns, so that the many of one pod leave room for the few of another.
        if len(found) > MOST_OF_ALL:
            found = in_turns(found, lambda copy: copy.owner)
            for copy in found[MOST_OF_ALL:]:
                crowded[copy.mount.device] = f"more mounts than the {MOST_OF_ALL} looked at in all"
            del found[MOST_OF_ALL:]
    crowded.update(_too_many(counts))
    mounts = [one for copy in found for one in (copy.parent, copy.mount) if one]
    unique = {(mount.pid, mount.id): mount for mount in mounts}
    return Others(tuple(unique.values()), crowded, namespaces)


def _too_many(counts: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """By device, a text about an owner of more mounts than were looked at."""
    crowded = {}
    for (owner, device), count in counts.items():
        if count > MOST_COPIES:
            crowded[device] = (
                f"{count} mounts in the mount namespace of {_whose(owner)}, of which {MOST_COPIES} "
                "were looked at"
            )
    return crowded


def _whose(owner: str) -> str:
    return owner if owner.startswith("pid ") else f"the processes of pod {owner}"


class _Copy(NamedTuple):
    """A mount in another namespace, with that on which it is mounted, if that is seen there.

    ``owner``: uid of the pod, or ``pid NUMBER`` of what is in none.
    """

    owner: str
    mount: Mount
    parent: Mount | None


def _copies(
    namespace: Namespace,
    owner: str,
    devices: Collection[str],
    counts: Counter[tuple[str, str]],
    crowded: dict[str, str],
) -> list[_Copy]:
    """The first of them, as long as their owner has not too many; adds to ``counts``, and to
    ``crowded`` those whose line is too long.
    """

    def too_long(mount: Mount) -> None:
        crowded[mount.device] = (
            f"a mount in the mount namespace of {_whose(owner)}, whose path is too long to read"
        )

    # Twice: a mount may be listed before the one that it is mounted on.
    copies: list[Mount] = []
    for mount in namespace.mounts(lambda _number, device: device in devices, too_long):
        counts[owner, mount.device] += 1
        if counts[owner, mount.device] <= MOST_COPIES:
            copies.append(mount)
    if not copies:
        return []
    needed = {str(mount.parent) for mount in copies}
    long: list[Mount] = []
    parents = {
        mount.id: mount
        for mount in namespace.mounts(lambda number, _: number in needed, long.append)
    }
    # On which mounts they are is then not known of all.
    if long:
        for mount in copies:
            too_long(mount)
    return [_Copy(owner, mount, parents.get(mount.parent)) for mount in copies]
