# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Docker engine that leaves no trace: dockerd in namespaces of its own.

Its bridges and firewall lines are in its own network, its mounts in its own table, its containers
below its first process: with that one all of it is gone, however it ends. A user's own Docker on
this machine is not touched. Nothing comes in or goes out; a relay leads from a port of loopback
here to the same one there, and others lead back (`lead_out`).
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import runs
from ..common import LabError, patient, wait
from ..kubernetes.build import Unavailable
from ..kubernetes.process import Process
from ..qemu import tail
from . import runc_lab

START_DEADLINE = 60.0
DOCKER_DEADLINE = 300.0
PROGRAMS = ("dockerd", "docker", "iptables", "ip", "tini")
NEEDED = {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_MKNOD", "CAP_SYS_CHROOT"}
PACKAGES = "the packages in tests/lab/kind/apt-packages.txt"
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
# kind gives /lib/modules to its nodes, and Docker would make it here where there is none.
START = """set -e
ip link set lo up
mount -t tmpfs tmpfs /run
if [ ! -e /lib/modules ]; then
    mkdir {folder}/upper {folder}/work
    mount -t overlay overlay -o lowerdir=/usr/lib,upperdir={folder}/upper,workdir={folder}/work \
        /usr/lib
    mkdir /lib/modules
fi
exec dockerd {options}
"""


class Engine:
    """The engine of a folder."""

    def __init__(self, folder: Path, *, tied: bool = True) -> None:
        self.folder, self.tied = folder, tied
        self.socket = folder / "docker.sock"
        self._daemon = Process(folder, "dockerd")
        self._relay = Process(folder, "relay")

    @property
    def running(self) -> bool:
        """The daemon runs, and so does what leads to it."""
        return bool(self._daemon.pid and self._relay.pid)

    @property
    def environment(self) -> dict[str, str]:
        """For docker and for kind; nothing of the user's own Docker counts."""
        own = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CONFIG": str(self.folder / "docker")}
        path = f"{os.environ.get('PATH', '')}:{SBIN}"
        return {**os.environ, **own, "PATH": path, "KIND_EXPERIMENTAL_PROVIDER": "docker"}

    def start(self, port: int) -> None:
        """Start the daemon in a folder that is there; what listens at this port of its loopback can
        be had at ours.

        Raises Unavailable where it cannot run.
        """
        self.check_machine()
        for cgroup in self._cgroups():
            runs.claim(cgroup)
        options = [
            *("--data-root", str(self.folder / "data"), "-H", f"unix://{self.socket}"),
            *("--bridge", "none", "--exec-opt", "native.cgroupdriver=cgroupfs"),
            *("--cgroup-parent", f"/{self._cgroup}", *self._runtime()),
        ]
        script = START.format(folder=shlex.quote(str(self.folder)), options=shlex.join(options))
        apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        path = f"PATH={self.environment['PATH']}"
        command = ["env", path, *apart, "tini", "-s", "--", "sh", "-c", script]
        self._daemon.start(command, self.tied)

        def answers() -> bool:
            self._daemon.check()
            asked = self._run(["version"], START_DEADLINE)
            return asked.returncode == 0

        try:
            wait(answers, "dockerd answers", START_DEADLINE)
        except LabError as exc:
            raise LabError(f"{exc}\n{tail(self._daemon.log)}") from exc
        self._lead(self._relay, port)

    def lead_out(self, port: int) -> Process:
        """A relay by which containers reach a port of our loopback: at the same one of their
        network's gateway, until it is stopped.
        """
        relay = Process(self.folder, f"relay-{port}")
        self._lead(relay, port, "out")
        return relay

    def _lead(self, relay: Process, port: int, *direction: str) -> None:
        (first,) = _children(self._daemon.pid or 0)
        program = str(Path(__file__).with_name("relay.py"))
        command = [sys.executable, "-P", program, str(first), str(port), *direction]
        relay.start(command, self.tied)

    def stop(self) -> None:
        """End it and all containers, hard."""
        self._relay.stop(signal.SIGKILL)
        pid = self._daemon.pid
        handles = [os.pidfd_open(child) for child in _children(pid)] if pid else []
        self._daemon.stop(signal.SIGKILL)
        for handle in handles:
            # The first process of a pid namespace is gone when all others are.
            wait(lambda found=handle: _has_ended(found), "the containers ended", 30)  # type: ignore[misc]
            os.close(handle)
        for cgroup in self._cgroups():
            runs.remove(cgroup)
            runs.release(cgroup)

    def docker(self, *arguments: str, data: bytes | None = None) -> str:
        """What a docker command says. Raises LabError when it fails."""
        answer = self._run(arguments, DOCKER_DEADLINE, data)
        if answer.returncode:
            said = answer.stderr.decode(errors="replace").strip()
            raise LabError(f"docker {shlex.join(arguments[:6])} failed: {said}")
        return answer.stdout.decode(errors="replace")

    def _run(
        self, arguments: Sequence[str], deadline: float, data: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["docker", *arguments],
            input=data if data is not None else b"",
            capture_output=True,
            timeout=patient(deadline),
            env=self.environment,
            check=False,
        )

    @staticmethod
    def check_machine() -> None:
        """Raise Unavailable unless it can run here."""
        if os.geteuid() != 0:
            raise Unavailable("a Docker engine of the lab's own needs root")
        path = f"{os.environ.get('PATH', '')}:{SBIN}"
        missing = [program for program in PROGRAMS if not shutil.which(program, path=path)]
        if missing:
            raise Unavailable(f"there is no {', '.join(missing)}: install {PACKAGES}")
        if lacking := NEEDED - runc_lab.allowed():
            raise Unavailable(f"containers need {', '.join(sorted(lacking))}")

    def _runtime(self) -> list[str]:
        """Of containers: ours, where runc would ask for what this machine cannot give."""
        names = {f"CAP_{name}" for name in runc_lab.CAPABILITIES}
        if runc_lab.allowed() >= names:
            return []
        program = self.folder / "runc"
        argv = shlex.join([sys.executable, "-P", runc_lab.__file__])
        program.write_text(f'#!/bin/sh\nexec {argv} "$@"\n')
        program.chmod(0o755)
        return ["--add-runtime", f"lab={program}", "--default-runtime", "lab"]

    @property
    def _cgroup(self) -> str:
        return f"lab-{self.folder.name}"

    def _cgroups(self) -> Iterator[Path]:
        """Of its containers: one, or (cgroup v1) one for each controller. Empty ones stay."""
        if (runs.CGROUPS / "cgroup.controllers").exists():
            yield runs.CGROUPS / self._cgroup
            return
        for controller in sorted(runs.CGROUPS.iterdir()):
            if controller.is_dir() and not controller.is_symlink():
                yield controller / self._cgroup


def _children(pid: int) -> list[int]:
    # proc_pid_children(5)
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _has_ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])
