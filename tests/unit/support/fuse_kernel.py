# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repair of FUSE mounts on the kernel of this machine, between whose plan and actions something
happens.

Runs as process 1 of PID and mount namespaces of its own: ``unshare -mpf --mount-proc python -m
...support.fuse_kernel SCENARIO``. Prints what became of it as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Callable

from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers import (
    runbook as containers,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.plan import (
    Container,
    ContainerOptions,
    Copy,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._containers.runbook import (
    StaleContainers,
    fuse_points,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import engine
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
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node import (
    kubelet,
    processes,
    usage,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.mounts import (
    Mount,
    read_table,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.probes import (
    ERROR,
    MOST_HELD,
    Answer,
    held_children,
    probe_folders,
)
from ansible_collections.storage_ops.runbooks.tests.unit.support import fuse_server
from ansible_collections.storage_ops.runbooks.tests.unit.support.fuse_server import (
    BIND,
    DETACH,
    FOLDER,
    NEW_MOUNTS,
    call,
    fuse_mount,
    serve,
)

DRIVER, HANDLE, PV = "s3.csi.example.com", "h-1", "pvc-1"
# Mounts what is given as {target}, with a folder for the subPath.
PROGRAM = ("python3", fuse_server.__file__, "{target}")
UID = "0a1b2c3d-1111-2222-3333-444455556666"


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
        call("mount", b"/mnt/filler", b"/mnt/filler", None, BIND, None)

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
        call("umount2", self.point.encode(), DETACH)
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


class Tenants(Scene):
    """Two tenants, each with a pod that has a volume. The server of each volume is gone."""

    PODS = ("00000000-1111-2222-3333-444455556666", "ffffffff-1111-2222-3333-444455556666")

    def __init__(self) -> None:
        super().__init__()
        self.points = [self._volume(number) for number in (0, 1)]

    def folder(self, number: int) -> str:
        return f"{self.root}/pods/{self.PODS[number]}/volumes/kubernetes.io~csi/pvc-{number}"

    def _volume(self, number: int) -> list[str]:
        """Its mount points: staged, of the pod, and for a subPath of it."""
        staging, folder = self._staged(f"vh-{number}"), self.folder(number)
        subpath = f"{self.root}/pods/{self.PODS[number]}/volume-subpaths/pvc-{number}/main/0"
        for point in (f"{folder}/mount", subpath):
            os.makedirs(point)
        self._note(
            folder,
            {"driverName": DRIVER, "volumeHandle": f"vh-{number}", "specVolID": f"pvc-{number}"},
        )
        connection = fuse_mount(staging)
        server = serve(connection, FOLDER)
        for source, point in ((staging, f"{folder}/mount"), (f"{staging}/sub", subpath)):
            call("mount", source.encode(), point.encode(), None, BIND, None)
        os.close(connection)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        return [staging, f"{folder}/mount", subpath]

    def volume(self, number: int, *words: str) -> FuseVolume:
        """``words``: of the program that mounts it again."""
        names = {"volume": f"pvc-{number}", "driver": DRIVER, "handle": f"vh-{number}"}
        return FuseVolume(**names, sources=("b",), command=words or PROGRAM)

    def runbook(self, first: FuseVolume, **options: Any) -> fuse.FuseRecovery:
        more = {"accept_majority": True, "kubelet_root": self.root, **options}
        more["volumes"] = (first, self.volume(1))
        return fuse.FuseRecovery(Host(Deadline(300), 10), FuseOptions(**more))

    def run(self, first: FuseVolume, **options: Any) -> dict[str, Any]:
        """What becomes of both volumes."""
        runbook = self.runbook(first, **options)
        runbook.prepare()
        plan = runbook.plan(runbook.gather())
        ended = ""
        try:
            engine._carry_out(runbook, plan)
        except StorageOpsError as error:
            ended = str(error)
        runbook.close(False)
        table = read_table(self.host, "1")
        return {
            "ended": ended,
            "half made": engine._half_made(plan),
            "failed": [one.reason for one in plan.findings if one.failed],
            "refused": [one.reason for one in plan.refusals if not one.failed],
            "answers": [
                [self.answer(point) if table.layers(point) else "bare" for point in points]
                for points in self.points
            ],
        }


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
        call("mount", scene.point.encode(), point.encode(), None, BIND, None)
    os.close(connection)
    volume = FuseVolume(PV, DRIVER, HANDLE, pods=(FusePod(UID, terminating=True),))
    runbook, actions = scene.plan(strategy="kubelet", volumes=(volume,), containers_timeout=5.0)
    told: dict[str, Any] = {}
    for action in actions:
        if action.verb == "wait_unstaged" and not os.fork():
            time.sleep(1)
            call("umount2", scene.point.encode(), DETACH)
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
        call("umount2", f"/run/storage_ops/fuse/{key}/mount".encode(), DETACH)

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
        call("umount2", scene.point.encode(), DETACH)
        os.close(hung.pop())
        serve(fuse_mount(other))
        hung.append(fuse_mount(scene.point))
        require(scene.top(other).device == before.device)
        require(scene.top().id == before.id)
    action = next(one for one in actions if one.verb == "abort_connection")
    return {**scene.told(runbook, action), "other": scene.answer(other)}


def in_namespace(doing: Callable[[], None]) -> int:
    """A process in a mount namespace of its own that has done this, and waits; its process ID."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        assert os.read(reader, 1), "it failed"
        os.close(reader)
        return child
    try:
        call("unshare", NEW_MOUNTS)
        call("mount", b"none", b"/", None, 0x4000 | (1 << 18), None)
        doing()
        os.write(writer, b"x")
        time.sleep(600)
    finally:
        os._exit(1)


def look_into(scene: Scene, pid: int, pod: str, timeout: float = 3.0) -> Container:
    """A container with what its FUSE mounts answer."""
    found, _why = fuse_points(read_table(scene.host, str(pid)))
    copies = tuple(Copy(point, device, Answer(ERROR)) for point, device in found)
    one = Container(f"{pid:064x}", pod, pid, "sh", copies)
    options = ContainerOptions(probe_timeout=timeout)
    # Its control group says nothing here.
    containers.owners_of = lambda _host, pids: dict.fromkeys(pids, pod)  # type: ignore[assignment]
    (asked,) = StaleContainers(Host(Deadline(300), 10), options)._ask([one])
    return asked


def killed_children(scene: Scene, devices: dict[str, str]) -> dict[str, int]:
    """How many children hang, by the device that they are called after."""
    names = [scene.host.read(f"/proc/{pid}/comm") or "" for pid in os.listdir("/proc")]
    found = [name[4:] for name in names if name.startswith("sops")]
    return {name: found.count(device) for name, device in devices.items()}


def nested(scene: Scene) -> dict[str, Any]:
    """A tenant mounts one volume below another, whose server hangs: each look at the inner one
    hangs at the outer one. Then it gives the inner one back, and another tenant's gets its number.
    """
    outer, inner = scene._staged("h-outer"), scene._staged("h-inner")
    connection, silence = fuse_mount(outer), "/mnt/silence"
    serve(connection, FOLDER, silence)
    os.close(connection)
    connection = fuse_mount(inner)
    server = serve(connection)
    os.close(connection)
    devices = {"outer": scene.top(outer).device, "inner": scene.top(inner).device}

    def mounting() -> None:
        call("mount", b"c", b"/mnt/filler", b"tmpfs", 0, None)
        os.mkdir("/mnt/filler/a")
        call("mount", outer.encode(), b"/mnt/filler/a", None, BIND, None)
        call("mount", inner.encode(), b"/mnt/filler/a/sub", None, BIND, None)
        for one in (outer, inner):
            call("umount2", one.encode(), DETACH)

    container = in_namespace(mounting)
    with open(silence, "w", encoding="ascii"):
        pass
    # On a busy machine a look may end before its child has come to the mount. So each has more time
    # than the one before.
    for run in range(10 * MOST_HELD):
        look_into(scene, container, "of-the-tenant", 0.2 + run / 50)
        called = killed_children(scene, devices)
        if called["outer"] >= MOST_HELD:
            break
    # It deletes the pod. Another one of it keeps the outer volume.
    os.kill(container, signal.SIGKILL)
    os.waitpid(container, 0)
    call("umount2", inner.encode(), DETACH)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    scene.pod()
    connection = fuse_mount(scene.point)
    server = serve(connection)
    os.close(connection)
    require(scene.top().device == devices["inner"])
    point = f"{scene.root}/pods/{UID}/volumes/kubernetes.io~csi/{PV}/mount"
    call("mount", scene.point.encode(), point.encode(), None, BIND, None)
    told = {"called": called, "asked": scene.answer(scene.point)}
    volume = FuseVolume(PV, DRIVER, HANDLE, pods=(FusePod(UID, "victim", "app-0"),))
    for when in ("well", "dead"):
        if when == "dead":
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        for strategy in ("remount", "kubelet"):
            options = FuseOptions(
                volumes=(volume,),
                strategy=strategy,
                abort_hung_connections=strategy == "kubelet",
                accept_majority=True,
                kubelet_root=scene.root,
                probe_timeout=3.0,
            )
            runbook = fuse.FuseRecovery(Host(Deadline(300), 10), options)
            told[f"{when}, {strategy}"] = [
                [one.control, "evict" in one.evidence]
                for one in runbook.plan(runbook.gather()).findings
                if one.name == scene.point
            ]
    victim = look_into(scene, in_namespace(lambda: None), "of-the-victim")
    told["container"] = sorted(
        one.answer.state for one in victim.copies if one.device == devices["inner"]
    )
    held = held_children(Host(Deadline(300), 10), 1)
    return {**told, "held": [name for name, device in devices.items() if device in held]}


def in_chroot(scene: Scene) -> dict[str, Any]:
    """Processes of a tenant have a folder of a volume open that is not below their root. Its server
    hangs.
    """
    connection, silence = fuse_mount(scene.point), "/mnt/silence"
    serve(connection, FOLDER, silence)
    os.close(connection)

    def opening() -> None:
        opened = os.open(scene.point, os.O_RDONLY | os.O_DIRECTORY)
        call("umount2", scene.point.encode(), DETACH)
        assert opened
        # CAP_SYS_CHROOT is among those that containers have by default.
        os.chroot("/mnt/filler")
        os.chdir("/")

    for _process in range(3):
        in_namespace(opening)
    call("umount2", scene.point.encode(), DETACH)
    with open(silence, "w", encoding="ascii"):
        pass
    processes._SECONDS = 1.0
    found = usage.read_openers(Host(Deadline(300), 5), {"8:0", "c1:3"})
    states = [scene.host.read(f"/proc/{pid}/stat") or "" for pid in os.listdir("/proc")]
    return {
        "doubt": found.doubt,
        "hang": sum(one.rpartition(") ")[2].startswith("D") for one in states),
        "null": len(found.of(["c1:3"])) > 0,
    }


def a_file(bare: bool) -> list[dict[str, Any]]:
    """A tenant has put a file where the folder of its subPath was. Two runs. ``bare``: a run before
    them was killed when it had taken the dead mount of the subPath off.
    """
    scene = Tenants()
    volume = scene.volume(0, *PROGRAM, f"{fuse_server.FILE:o}")
    if bare:
        runbook = scene.runbook(volume)
        (recovery,) = [
            one.repair[0].subject.recovery
            for one in runbook.plan(runbook.gather()).findings
            if one.name == scene.points[0][0]
        ]
        runbook._record(recovery, begun=True)
        serve(fuse_mount(recovery.source), fuse_server.FILE)
        call("umount2", scene.points[0][2].encode(), DETACH)
    return [scene.run(volume), scene.run(volume)]


def deleted() -> list[dict[str, Any]]:
    """A tenant deletes its pod while the new server starts; the kubelet takes the mount away."""
    scene = Tenants()
    return [scene.run(scene.volume(0, *PROGRAM, f"{fuse_server.FOLDER:o}", scene.folder(0)))]


# Of two tenants, on a node of their own.
SHARED: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "a file": lambda: a_file(False),
    "a file for a bare point": lambda: a_file(True),
    "deleted": deleted,
}
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
    "nested": nested,
    "in a chroot": in_chroot,
}


if __name__ == "__main__":
    shared = SHARED.get(sys.argv[1])
    told = shared() if shared else SCENARIOS[sys.argv[1]](Scene())
    print(json.dumps(told), flush=True)
    # The servers end with this, as with any process 1 (pid_namespaces(7)).
    os._exit(0)
