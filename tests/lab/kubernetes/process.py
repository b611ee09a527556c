# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program of a control plane: started with a log and a pid file, ended by pid, found again by
another process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..common import LabError, patient
from ..qemu import tail

# The kernel ends a tied child when the *thread* that started it ends, so one thread, which lives as
# long as the tests, starts them all.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


class Process:
    """A program that has its folder in its environment: that is how a pid is known to be ours."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.pidfile = folder / f"{name}.pid"
        self.log = folder / f"{name}.log"
        self._mark = f"LAB_PROCESS={self.pidfile}"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its pid while it runs."""
        # A child of ours needs no such look; its environment would be empty while it is being
        # started.
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        try:
            number = int(self.pidfile.read_text())
            environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return number if self._mark.encode() in environment else None

    def start(self, command: Sequence[str], tied: bool) -> None:
        """Start it in a session of its own; tied, it ends with the process that started it, even if
        that one is killed.
        """
        if self.pid:
            raise LabError(f"{self.name} of {self.folder} runs already, as {self.pid}")
        argv = [*(["setpriv", "--pdeathsig", "KILL"] if tied else []), *command]

        def spawn() -> subprocess.Popen[bytes]:
            with self.log.open("ab") as log:
                name, _equals, value = self._mark.partition("=")
                # These programs, all in Go, spend less on collecting garbage, for more memory.
                environment = {**os.environ, "GOGC": "400", name: value}
                return subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=environment,
                )

        self._child = _starter.submit(spawn).result()
        self.pidfile.write_text(str(self._child.pid))

    def stop(self, number: int = signal.SIGTERM, deadline: float = 15) -> None:
        """End it, and wait until it has gone."""
        for current, seconds in ((number, deadline), (signal.SIGKILL, 10.0)):
            pid = self.pid
            if pid is None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, current)
            end = time.monotonic() + patient(seconds)
            while self.pid and time.monotonic() < end:
                time.sleep(0.02)
        if self.pid:
            raise LabError(f"{self.name} of {self.folder} cannot be killed")
        self.pidfile.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise if it has ended."""
        if not self.pid:
            raise LabError(f"{self.name} ended:\n{tail(self.log)}")

    @property
    def memory(self) -> int:
        """Resident memory in MB."""
        pid = self.pid
        if pid is None:
            return 0
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(
            (int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:")), 0
        )
