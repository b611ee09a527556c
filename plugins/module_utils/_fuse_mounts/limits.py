# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of a CSI driver's container on this node.

A FUSE server that the driver starts runs in it, so a server that replaces it gets the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from .._node.control_groups import container_id_of
from .._node.control_groups import read as read_cgroup
from .._node.host import Host
from .._node.mounts import Mount, pass_over, read_table
from .._node.namespaces import Namespaces

_CGROUPS = "/sys/fs/cgroup"
# The files of a controller, by the version of control groups (kernel,
# Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, cgroup-v1/pids.rst).
_FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
}
# Version 1 writes "no limit" as the largest number of whole pages, PAGE_COUNTER_MAX
# (include/linux/page_counter.h); no node has that many bytes.
_UNLIMITED = 2**60


class Limits(NamedTuple):
    """``memory``: bytes. ``tasks``: processes and threads. None where there is no limit."""

    memory: int | None = None
    tasks: int | None = None


def read(host: Host, root: str, drivers: Collection[str]) -> dict[str, Limits]:
    """By driver, the limits of its container, if exactly one is found.

    ``root``: the kubelet's folder.
    """
    found: dict[str, set[str]] = {}
    for driver, cgroup in _plugins(host, root, _folders(host, root, drivers)):
        found.setdefault(driver, set()).add(cgroup)
    # Two, as while a DaemonSet is updated: which one served the mount is not known.
    return {
        driver: _limits(host, next(iter(several)))
        for driver, several in found.items()
        if len(several) == 1
    }


def _folders(host: Host, root: str, drivers: Collection[str]) -> dict[str, tuple[str, str]]:
    """By driver, the device and the path on it of the folder of its socket on the node."""
    table = read_table(host, "1") if drivers else None
    found = {}
    for driver in drivers:
        path = f"{root}/plugins/{driver}"
        mount = table.holding(path) if table else None
        if mount:
            below = path[len(mount.point.rstrip("/")) :]
            found[driver] = (mount.device, f"{mount.root.rstrip('/')}{below}")
    return found


def _plugins(
    host: Host, root: str, drivers: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """(driver, /proc/PID/cgroup of its container) for each container that is a driver's.

    ``drivers``: as ``_folders``.
    """
    # The kubelet looks for a driver's socket in plugins/DRIVER (kubernetes-csi
    # node-driver-registrar, --kubelet-registration-path), so a container mounts that folder.
    if not drivers:
        return
    everywhere = Namespaces(host)
    cgroups = {one: read_cgroup(host, one.pid) for one in everywhere.found}
    containers = [one for one, cgroup in cgroups.items() if container_id_of(cgroup)]
    seen: dict[str, list[Mount]] = {}
    # Of all that a tenant may have, only these are kept; a driver's are short. What a pod has too
    # many of to be read is no driver's.
    for namespace, mount in everywhere.mounts(too_long=pass_over, among=containers):
        if _is_of_kubelet(mount, root) or (mount.device, mount.root) in drivers.values():
            seen.setdefault(namespace.pid, []).append(mount)
    for container in containers:
        for driver, folder in drivers.items():
            if _is_node_plugin(seen.get(container.pid, ()), root, folder):
                yield driver, cgroups[container]


def _is_node_plugin(mounts: Collection[Mount], root: str, folder: tuple[str, str]) -> bool:
    """Whether a container has the folder of the driver's socket, and mounts volumes for the node.

    Sidecars have the socket, too. Only the driver itself needs mountPropagation Bidirectional, of
    a folder with the same path inside and outside.
    """
    # Bidirectional is rshared, which mountinfo shows as "shared:N" (kubernetes
    # pkg/kubelet/kubelet_pods.go translateMountPropagation; proc_pid_mountinfo(5)).
    # The very folder of the node, since a volume of a tenant may have a folder of the same name.
    socket = any((mount.device, mount.root) == folder for mount in mounts)
    return socket and any(_is_of_kubelet(mount, root) for mount in mounts)


def _is_of_kubelet(mount: Mount, root: str) -> bool:
    return bool(mount.shared) and (mount.point == root or mount.point.startswith(f"{root}/"))


def _limits(host: Host, cgroup: str) -> Limits:
    memory, tasks = (_least(host, cgroup, controller) for controller in ("memory", "pids"))
    return Limits(memory, tasks)


def _least(host: Host, cgroup: str, controller: str) -> int | None:
    """The smaller limit of the container and of its pod; the kernel enforces both."""
    said = [host.read(path) or "" for path in _paths(cgroup, controller)]
    numbers = [int(text) for text in said if text.isascii() and text.isdigit()]
    return min((number for number in numbers if number < _UNLIMITED), default=None)


def _paths(cgroup: str, controller: str) -> Iterator[str]:
    new, old = _FILES[controller]
    for line in filter(None, cgroup.split("\n")):
        _number, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        base = f"{_CGROUPS}/{controller}{path}" if names else f"{_CGROUPS}{path}"
        # A path outside of this process's cgroup namespace begins with /.. (cgroup_namespaces(7)).
        if ".." not in path.split("/"):
            yield f"{base}/{old if names else new}"
            yield f"{base.rpartition('/')[0]}/{old if names else new}"
