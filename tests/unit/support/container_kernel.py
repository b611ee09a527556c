# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers with FUSE mounts on the kernel of this machine; see own_kernel. Only their control
groups are not real.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers import runbook
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import CONNECTIONS
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import MOST_HELD
from ansible_collections.storage_ops.runbooks.tests.unit.support import fuse_kernel
from ansible_collections.storage_ops.runbooks.tests.unit.support.fuse_server import (
    DETACH,
    FOLDER,
    call,
    fuse_mount,
    serve,
)

# include/uapi/linux/sched.h: CLONE_NEWNS, CLONE_NEWUSER.
_MOUNTS, _USERS = 0x20000, 0x10000000
_PRIVATE = 0x4000 | (1 << 18)
# As of a pod with hostUsers: false; and as of a process of root that made a namespace itself.
POD, ROOT = "0 65536 65536", "0 0 1"
_PR_SET_PDEATHSIG = 1


class Node(fuse_kernel.Scene):
    """A node whose volume is mounted, and has a server."""

    def __init__(self, fusectl: bool = True) -> None:
        super().__init__()
        # As on nodes, where any user may open it.
        os.mknod("/mnt/fuse", 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
        os.chmod("/mnt/fuse", 0o666)
        call("mount", b"/mnt/fuse", b"/dev/fuse", None, fuse_kernel.BIND, None)
        # systemd mounts it, but not every node has systemd.
        with contextlib.suppress(OSError):
            call("umount2", CONNECTIONS.encode(), DETACH)
        if fusectl:
            call("mount", b"fusectl", CONNECTIONS.encode(), b"fusectl", 0, None)
        self.volumes = [self.point]
        self.connections: list[int] = []
        self.pids: list[int] = []

    def replaced(self, meanwhile: Callable[[], object], more: int = 0) -> None:
        """The servers of volumes end, and the node gets new mounts. ``meanwhile``: before."""
        self.volumes += [self._staged(f"h-{number}") for number in range(2, 2 + more)]
        self.connections = [fuse_mount(point) for point in self.volumes]
        meanwhile()
        for connection in self.connections:
            os.close(connection)
        # The containers have copies of these, so their numbers are given to no other.
        for point in self.volumes:
            call("umount2", point.encode(), DETACH)
            serve(fuse_mount(point))

    def container(
        self,
        users: str = "",
        mounts: Sequence[str] = (),
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """With copies of the node's mounts. ``users``: those of its own user namespace, if it has
        one. ``mounts``: FUSE filesystems that it mounts itself, whose servers hang. ``then``: what
        else it does.
        """
        (told, tell), (go, let) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for connection in self.connections:
                os.close(connection)
            call("unshare", _MOUNTS | (_USERS if users else 0))
            os.write(tell, b".")
            os.read(go, 1)
            if users:
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
            call("mount", b"none", b"/", None, _PRIVATE, None)
            if mounts:
                call("mount", b"own", b"/mnt/own", b"tmpfs", 0, None)
            for name in mounts:
                os.mkdir(f"/mnt/own/{name}")
                fuse_mount(f"/mnt/own/{name}")
            then()
            os.write(tell, b".")
            signal.pause()
        os.read(told, 1)
        for file in ("uid_map", "gid_map") if users else ():
            with open(f"/proc/{pid}/{file}", "w", encoding="ascii") as map_:
                map_.write(users)
        os.write(let, b".")
        os.read(told, 1)
        self.pids.append(pid)

    def behind(self, folder: str) -> None:
        """The container has the volume below a filesystem of its own, whose server reads each
        request and answers none.
        """
        # Without allow_other, root of the node may ask it (fs/fuse/dir.c).
        connection = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={connection},rootmode=40000,user_id=0,group_id=0"
        call("mount", b"own", folder.encode(), b"fuse.own", 0, options.encode())
        server = serve(connection, FOLDER)
        call("mount", self.point.encode(), f"{folder}/sub".encode(), None, fuse_kernel.BIND, None)
        # What it has from the node is hidden.
        call("mount", b"hides", self.point.encode(), b"tmpfs", 0, None)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        if not os.fork():
            while True:
                os.read(connection, 1 << 17)

    def look(self) -> list[dict[str, Any]]:
        """What a run finds in the containers, each of a pod and a namespace of its own."""
        # Their pods and IDs are what control groups tell.
        pods = {pid: f"{number:08x}{fuse_kernel.UID[8:]}" for number, pid in enumerate(self.pids)}
        found = [(f"{pid:064x}", pods[pid], pid) for pid in self.pids]
        runbook._container_processes = lambda _host: found
        runbook.pod_of = lambda _host, pid: pods[int(pid)]
        options = {"kubelet_root": self.root, "crictl": "/no/crictl", "probe_timeout": 1.0}
        audit = runbook.StaleContainers(self.host, runbook.container_options(options))
        state = audit.gather()
        findings = {
            one.evidence["container"]: {
                "control": one.control,
                "severity": one.severity,
                "code": one.code,
                "reason": one.reason,
            }
            for one in audit.plan(state).findings
        }
        copies = {one.id: one.copies for one in state.containers}
        return [
            {
                "asked": [(copy.point, copy.answer.state) for copy in copies.get(identity, ())],
                **findings.get(identity, {}),
            }
            for identity, _pod, _pid in found
        ]


def gone(users: Sequence[str], fusectl: bool = True, more: int = 0) -> Any:
    """The node's mounts are replaced. ``users``: of each container that keeps the dead ones."""
    node = Node(fusectl)
    node.replaced(lambda: [node.container(one) for one in users], more)
    return [node.volumes, node.look()]


def own(users: str) -> Any:
    """A container has mounted filesystems itself. Its volume is well."""
    node = Node()
    os.mkdir("/mnt/own")
    serve(fuse_mount(node.point))
    node.container(users, ["x", "y"])
    return [node.volumes, node.look()]


def shared(looks: int) -> Any:
    """Two tenants have one filesystem, whose server is gone. The way to it hangs in the container
    of one. ``looks``: of so many runs.
    """
    node = Node()
    os.mkdir("/mnt/own")
    node.connections = [fuse_mount(node.point)]
    node.container(ROOT, then=partial(node.behind, "/mnt/own"))
    node.container()
    os.close(node.connections[0])
    found = [node.look() for _look in range(looks)]
    return [node.volumes, found[-1]]


SCENARIOS = {
    "gone": partial(gone, ["", POD]),
    "gone, of root": partial(gone, [ROOT]),
    "gone, without fusectl": partial(gone, ["", POD], fusectl=False),
    "many are gone": partial(gone, [POD], more=40),
    "own": partial(own, POD),
    "own, of root": partial(own, ROOT),
    "shared": partial(shared, 1),
    "shared, often": partial(shared, MOST_HELD + 2),
}


if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()), flush=True)
    # All of them end with this, as with any process 1 (pid_namespaces(7)).
    os._exit(0)
