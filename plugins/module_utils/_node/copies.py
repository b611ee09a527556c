# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mounts that other mount namespaces have of the node's filesystems, as many as can be kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import Callable, NamedTuple

from .._core.turns import within
from .control_groups import container_id_of, of_pod, read
from .host import Host
from .mounts import Mount
from .namespaces import UNTOLD, Namespace, Namespaces

# How many mounts of one filesystem are kept that one pod has in all its mount namespaces, and how
# many of all. A tenant may make any number of namespaces, each with 100,000 mounts
# (fs.mount-max, Documentation/admin-guide/sysctl/fs.rst).
MOST_COPIES = 1000
MOST_OF_ALL = 10_000
# Characters. Of a mount that has more, as many as it has times that count as mounts of all.
_USUAL = 512
# Of the paths of a mount: twice what a path has that a system call takes
# (include/uapi/linux/limits.h PATH_MAX).
_MOST_CHARACTERS = 8192
# Of a pod whose mounts could not be read, so many processes are looked at. Others have fewer.
_MOST_PROCESSES = 1000


class Others(NamedTuple):
    """``mounts`` in other mount namespaces than the node's, with those that they are mounted on,
    since these tell about propagation.

    ``crowded``: by device, a text about where there are too many to read them all. ``namespaces``:
    by the pid of a mount, and of process 1, the mount namespace; empty if that is not known.
    """

    mounts: tuple[Mount, ...]
    crowded: dict[str, str]
    namespaces: dict[str, str]


def other_mounts(host: Host, devices: Collection[str]) -> Others:
    """The mounts of these filesystems in other mount namespaces than the node's."""
    # The node's own mounts are read apart, and completely.
    own = host.link("/proc/1/ns/mnt")
    everywhere = Namespaces(host)
    others = [one for one in everywhere.found if one.link != own]
    found: list[_Copy] = []
    size = 0
    crowded: dict[str, str] = {}
    counts: Counter[tuple[str, str]] = Counter()

    def too_long(mount: Mount) -> None:
        crowded[mount.device] = (
            f"a mount in the mount namespace of pid {mount.pid}, whose path is too long to read"
        )

    for namespace, mount in everywhere.mounts(
        lambda _number, device: device in devices, too_long, others
    ):
        copy = _Copy(namespace, mount)
        counts[copy.owner, mount.device] += 1
        if _is_long(mount):
            too_long(mount)
        elif counts[copy.owner, mount.device] <= MOST_COPIES:
            found.append(copy)
            size += copy.size
        if size > 2 * MOST_OF_ALL:
            found = _fewer(found, crowded)
            size = sum(copy.size for copy in found)
    found = _fewer(found, crowded)
    parents = _parents(everywhere, found, too_long)
    crowded.update(_too_many(counts))
    crowded.update(_unread(host, everywhere, devices, too_long))
    # A copy may be what another one is on. It is whole.
    mounts = [*filter(None, parents), *(copy.mount for copy in found)]
    unique = {(mount.pid, mount.id): mount for mount in mounts}
    # Kept now: that process may end before the others of its namespace do.
    links = {copy.mount.pid: copy.namespace.link for copy in found}
    # A process that tells its own only later is in none of these, for all that is known.
    spaces = {pid: "" if link.startswith(UNTOLD) else link for pid, link in links.items()}
    return Others(tuple(unique.values()), crowded, {"1": own, **spaces})


def _unread(
    host: Host,
    everywhere: Namespaces,
    devices: Collection[str],
    too_long: Callable[[Mount], object],
) -> dict[str, str]:
    """By device that may be in a mount namespace that was not read, a text about that."""
    unread, everywhere.unread = everywhere.unread, {}
    sources = {pod: sources_of(host, everywhere, pod) for pod in unread}
    seen: dict[str, set[str]] = {pod: set() for pod in unread}
    for namespace, mount in everywhere.mounts(
        lambda _number, device: device in devices,
        too_long,
        chain.from_iterable(filter(None, sources.values())),
    ):
        seen[namespace.owner].add(mount.device)
    found = {}
    for pod, said in unread.items():
        known = sources[pod] is not None and pod not in everywhere.unread
        found.update(
            dict.fromkeys(
                seen[pod] if known else devices, f"perhaps mounts in {said}, not read in time"
            )
        )
    return found


def sources_of(host: Host, everywhere: Namespaces, pod: str) -> list[Namespace] | None:
    """The mount namespaces from which a pod's others are, if these can have no filesystem of the
    node that those do not have; None if that is not known.
    """
    of_pod = [one for one in everywhere.found if one.owner == pod]
    pids = [pid for one in of_pod for pid in (one.pid, *one.others)]
    # Without CAP_SYS_ADMIN in the node's user namespace, a process mounts nothing in the namespace
    # that the runtime has made for its container, and enters no other (fs/namespace.c may_mount,
    # mntns_install). It can only copy that one, in a user namespace of its own, and mount there
    # what is no disk (FS_USERNS_MOUNT), or what it has already (user_namespaces(7)).
    if len(pids) > _MOST_PROCESSES or any(map(host.may_mount, pids)):
        return None
    owners = {id(one): host.owner(one.pid) for one in of_pod}
    if not all(owners.values()):
        return None
    own = host.owner("self")
    sources = [one for one in of_pod if owners[id(one)] == own]
    return sources if _have_all(host, sources, of_pod) else None


def _have_all(host: Host, sources: list[Namespace], of_pod: list[Namespace]) -> bool:
    """Whether each process of a pod is of a container that has one of these namespaces."""
    # A container whose own namespace is gone may have left another one. A process of no container
    # that is known, as in an unknown pod, may be of any.
    kept = {container for one in sources for container in _containers(host, one)}
    others = {container for one in of_pod for container in _containers(host, one)}
    return others <= kept - {""}


def _containers(host: Host, namespace: Namespace) -> set[str]:
    """The IDs of the containers that have a process in a mount namespace; empty for none."""
    return {container_id_of(read(host, pid)) for pid in (namespace.pid, *namespace.others)}


def _is_long(mount: Mount) -> bool:
    # 1,000 of 1 MiB would fill the memory.
    return len(mount.point) + len(mount.root) > _MOST_CHARACTERS


class _Copy(NamedTuple):
    """A mount in another namespace."""

    namespace: Namespace
    mount: Mount

    @property
    def owner(self) -> str:
        """UID of the pod, UNKNOWN, or ``pid NUMBER`` of what is in none."""
        return self.namespace.pod or f"pid {self.mount.pid}"

    @property
    def size(self) -> int:
        """As how many usual mounts it counts."""
        one = self.mount
        return 1 + sum(map(len, (one.point, one.root, one.source, *one.super_options))) // _USUAL


def _fewer(found: list[_Copy], crowded: dict[str, str]) -> list[_Copy]:
    """As many as are kept; those of others are in ``crowded``."""
    # In turns, so that the many, or the long ones, of one pod leave room for the few of another.
    kept, left = within(found, lambda copy: copy.owner, lambda copy: copy.size, MOST_OF_ALL)
    if left:
        keys = {id(copy) for copy in kept}
        devices = {copy.mount.device for copy in found if id(copy) not in keys}
        said = f"more mounts, or longer paths, than the {MOST_OF_ALL} looked at in all"
        crowded.update(dict.fromkeys(devices, said))
    return kept


def _parents(
    everywhere: Namespaces, found: list[_Copy], too_long: Callable[[Mount], object]
) -> list[Mount | None]:
    """By each copy, the mount on which it is, if that is seen there."""
    # By a second reading: a mount may be listed before the one that it is mounted on.
    needed = {str(copy.mount.parent) for copy in found}
    parents: dict[tuple[str, int], Mount] = {}
    long: set[str] = set()
    among = {copy.namespace.pid: copy.namespace for copy in found}
    for namespace, mount in everywhere.mounts(
        lambda number, _device: number in needed,
        lambda mount: long.add(mount.pid),
        among.values(),
    ):
        if _is_long(mount):
            long.add(mount.pid)
        else:
            # Only its peer groups matter; some characters tell where it is.
            parents[namespace.link, mount.id] = replace(
                mount,
                point=mount.point[:_USUAL],
                root=mount.root[:_USUAL],
                source=mount.source[:_USUAL],
                super_options=(),
            )
    # On which mounts they are is then not known of all.
    for copy in found:
        if copy.mount.pid in long:
            too_long(copy.mount)
    lookups = ((copy, parents.get((copy.namespace.link, copy.mount.parent))) for copy in found)
    return [replace(parent, pid=copy.mount.pid) if parent else None for copy, parent in lookups]


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
    return owner if owner.startswith("pid ") else f"the processes{of_pod(owner)}"
