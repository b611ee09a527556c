# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repair of FUSE mounts on the kernel of this machine, between whose plan and actions something
happens.

Runs as process 1 of PID and mount namespaces of its own: ``unshare -mpf --mount-proc python -m
...support.fuse_kernel SCENARIO``. Prints what became of it as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import sys
import time
from typing import Any, Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import Deadline
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.engine import Action
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts import (
    runbook as fuse,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._fuse_mounts.model import (
    FuseOptions,
    FusePod,
    FuseVolume,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import kubelet
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    read_table,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import probe_folders

DRIVER, HANDLE, PV = "s3.csi.example.com", "h-1", "pvc-1"
UID = "0a1b2c3d-1111-2222-3333-444455556666"
_LIBC = ctypes.CDLL(None, use_errno=True)
# include/uapi/linux/fuse.h, opcodes.
_FORGET, _GETATTR, _STATFS, _INIT, _OPENDIR, _READDIR, _BATCH_FORGET = 2, 3, 17, 26, 27, 28, 42
_RELEASEDIR = 29
_BIND, _DETACH = 4096, 2


def call(function: str, *arguments: bytes | int | None) -> None:
    if getattr(_LIBC, function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{function} {arguments}")


def fuse_mount(point: str) -> int:
    """Mount at a point; the descriptor of its connection."""
    connection = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={connection},rootmode=40000,user_id=0,group_id=0,allow_other"
    call("mount", b"s3fs", point.encode(), b"fuse.s3fs", 0, options.encode())
    return connection


def serve(connection: int) -> None:
    """Answer for an empty folder, in a child, until this process ends."""
    if os.fork():
        return
    while True:
        request = os.read(connection, 1 << 17)
        _length, operation, unique = struct.unpack_from("=IIQ", request)
        if operation not in (_FORGET, _BATCH_FORGET):
            error, data = _answer(operation)
            os.write(connection, struct.pack("=IiQ", 16 + len(data), error, unique) + data)


def _answer(operation: int) -> tuple[int, bytes]:
    """fuse_attr_out, fuse_kstatfs, fuse_init_out and fuse_open_out."""
    attributes = struct.pack("=QII6Q10I", 1, 0, 0, 1, *[0] * 8, 0o40755, 2, *[0] * 3, 4096, 0)
    answers = {
        _GETATTR: attributes,
        _STATFS: struct.pack("=5Q4I24x", 1, 1, 1, 1, 1, 512, 255, 512, 0),
        _INIT: struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 0, 0, 65536, 0, 0, 0, *[0] * 8)[:64],
        _OPENDIR: struct.pack("=QII", 1, 0, 0),
        _READDIR: b"",
        _RELEASEDIR: b"",
    }
    # ENOSYS for all others.
    return (0, answers[operation]) if operation in answers else (-38, b"")


def require(is_free: bool) -> None:
    """End here, to be tried once more, if the number that became free is another program's."""
    # Mounts and filesystems of all namespaces share their numbers.
    if not is_free:
        os._exit(os.EX_TEMPFAIL)


class Scene:
    """A volume that only its staging mount is left of, on a node of its own."""

    def __init__(self) -> None:
        assert os.getpid() == 1, "it would change the mounts of this machine"
        call("mount", b"none", b"/", None, 0x4000 | (1 << 18), None)
        for folder in ("/run", "/mnt"):
            call("mount", b"scene", folder.encode(), b"tmpfs", 0, None)
        self.root = "/mnt/kubelet"
        self.point = self._staged(HANDLE)
        self.host = Host(Deadline(300), 10)
        # Its number is lower than that of all that follow.
        os.mkdir("/mnt/filler")
        call("mount", b"/mnt/filler", b"/mnt/filler", None, _BIND, None)

    def _staged(self, handle: str) -> str:
        folder = f"{self.root}/plugins/kubernetes.io/csi/{DRIVER}/{kubelet.digest_of(handle)}"
        os.makedirs(f"{folder}/globalmount")
        self._note(folder, {"driverName": DRIVER, "volumeHandle": handle})
        return f"{folder}/globalmount"

    def _note(self, folder: str, note: dict[str, str]) -> None:
        with open(f"{folder}/vol_data.json", "w", encoding="utf-8") as file:
            json.dump(note, file)

    def dead(self) -> None:
        os.close(fuse_mount(self.point))

    def top(self, point: str = "") -> Mount:
        return read_table(self.host, "1").layers(point or self.point)[-1]

    def pod(self) -> None:
        """A pod gets the volume, before anything is mounted for it."""
        folder = f"{self.root}/pods/{UID}/volumes/kubernetes.io~csi/{PV}"
        os.makedirs(f"{folder}/mount")
        note = {"driverName": DRIVER, "volumeHandle": HANDLE, "specVolID": PV}
        self._note(folder, note)

    def again(self) -> None:
        """The driver takes the dead mount off and mounts again, with a server that answers."""
        before = self.top()
        call("umount2", self.point.encode(), _DETACH)
        serve(fuse_mount(self.point))
        now = self.top()
        require((now.id, now.device) == (before.id, before.device))

    def plan(self, **options: Any) -> tuple[fuse.FuseRecovery, list[Action]]:
        volume = FuseVolume(PV, DRIVER, HANDLE, sources=("b",), command=("true", "{target}"))
        more = {"volumes": (volume,), "accept_majority": True, "kubelet_root": self.root}
        runbook = fuse.FuseRecovery(self.host, FuseOptions(**{**more, **options}))
        (self.finding,) = (finding,) = runbook.plan(runbook.gather()).findings
        assert finding.repair, finding.reason
        return runbook, finding.repair

    def kubelet(self, **more: Any) -> tuple[fuse.FuseRecovery, list[Action]]:
        volume = FuseVolume(PV, DRIVER, HANDLE, pods=())
        return self.plan(strategy="kubelet", volumes=(volume,), **more)

    def told(self, runbook: fuse.FuseRecovery, action: Action) -> dict[str, Any]:
        """What an action says, and what is at the mount point then."""
        error = code = ""
        try:
            runbook.apply(action)
        except StorageOpsError as refused:
            error, code = f"{type(refused).__name__}: {refused}", refused.code
        there = [layer.fstype for layer in read_table(self.host, "1").layers(self.point)]
        return {"error": error, "code": code, "there": there, "answer": self.answer(self.point)}

    def answer(self, point: str) -> str:
        return probe_folders(self.host, [point], 2)[0].state


def unmount(scene: Scene, meanwhile: Callable[[], None]) -> dict[str, Any]:
    scene.dead()
    runbook, (action,) = scene.kubelet()
    meanwhile()
    return scene.told(runbook, action)


def stacked(scene: Scene, servers: list[bool]) -> dict[str, Any]:
    """Mounts on each other, the lowest first. ``servers``: which of them answer."""
    for answers in servers:
        connection = fuse_mount(scene.point)
        serve(connection) if answers else os.close(connection)
    runbook, (action,) = scene.kubelet()
    return scene.told(runbook, action)


def of_a_pod(scene: Scene) -> dict[str, Any]:
    """All mounts of a volume whose pod goes. The kubelet unstages it when those of the pod are
    gone.
    """
    scene.pod()
    pod = f"{scene.root}/pods/{UID}"
    points = [f"{pod}/volumes/kubernetes.io~csi/{PV}/mount"]
    points += [f"{pod}/volume-subpaths/{PV}/main/{number}" for number in range(3)]
    connection = fuse_mount(scene.point)
    for point in points:
        os.makedirs(point, exist_ok=True)
        call("mount", scene.point.encode(), point.encode(), None, _BIND, None)
    os.close(connection)
    volume = FuseVolume(PV, DRIVER, HANDLE, pods=(FusePod(UID, terminating=True),))
    runbook, actions = scene.plan(strategy="kubelet", volumes=(volume,), containers_timeout=5.0)
    told: dict[str, Any] = {}
    for action in actions:
        if action.verb == "wait_unstaged" and not os.fork():
            time.sleep(1)
            call("umount2", scene.point.encode(), _DETACH)
            shutil.rmtree(pod)
            shutil.rmtree(os.path.dirname(scene.point))
            os._exit(0)
        told = scene.told(runbook, action)
        assert not told["error"], told["error"]
    # Their folders are gone as well by now.
    os.wait()
    proof = runbook.verify(scene.finding)
    return {**told, "verbs": [action.verb for action in actions], "proof": len(proof)}


def replace(scene: Scene, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """The new server is up, and its mount is proven."""
    scene.dead()
    runbook, actions = scene.plan()
    recovery = actions[0].subject.recovery
    runbook._record(recovery, begun=False)
    serve(fuse_mount(recovery.source))
    real = fuse.replace_mount

    def replacing(*words: Any) -> None:
        meanwhile()
        real(*words)

    fuse.replace_mount = replacing  # type: ignore[assignment]
    (action,) = [one for one in actions if one.verb == "replace_mount"]
    return scene.told(runbook, action)


def swept(scene: Scene) -> dict[str, Any]:
    """Another run has unmounted what this one has made, and made its folder again."""

    def sweep() -> None:
        (key,) = os.listdir("/run/storage_ops/fuse")
        call("umount2", f"/run/storage_ops/fuse/{key}/mount".encode(), _DETACH)

    return replace(scene, sweep)


def abort(scene: Scene, another: bool) -> dict[str, Any]:
    """A server hangs. ``another``: meanwhile its device is another tenant's, and a mount with its
    number, which hangs as well, is at its point.
    """
    other = scene._staged("h-2")
    hung = [fuse_mount(scene.point)]
    before = scene.top()
    volumes = (FuseVolume(PV, DRIVER, HANDLE, pods=()),)
    runbook, actions = scene.plan(
        strategy="kubelet", volumes=volumes, abort_hung_connections=True, probe_timeout=1.0
    )
    if another:
        # Its number is free, and lower, so that the other tenant's mount gets it.
        call("umount2", b"/mnt/filler", 0)
        call("umount2", scene.point.encode(), _DETACH)
        os.close(hung.pop())
        serve(fuse_mount(other))
        hung.append(fuse_mount(scene.point))
        require(scene.top(other).device == before.device)
        require(scene.top().id == before.id)
    action = next(one for one in actions if one.verb == "abort_connection")
    return {**scene.told(runbook, action), "other": scene.answer(other)}


SCENARIOS: dict[str, Callable[[Scene], dict[str, Any]]] = {
    "dead": lambda scene: unmount(scene, lambda: None),
    "mounted again": lambda scene: unmount(scene, scene.again),
    "wanted": lambda scene: unmount(scene, scene.pod),
    "of a pod": of_a_pod,
    "on a healthy one": lambda scene: stacked(scene, [True, False, False]),
    "on dead ones": lambda scene: stacked(scene, [False, False, False]),
    "replace": lambda scene: replace(scene, lambda: None),
    "replace what was mounted again": lambda scene: replace(scene, scene.again),
    "replace by what was swept": swept,
    "abort": lambda scene: abort(scene, False),
    "abort another": lambda scene: abort(scene, True),
}


if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](Scene())), flush=True)
    # The servers end with this, as with any process 1 (pid_namespaces(7)).
    os._exit(0)
