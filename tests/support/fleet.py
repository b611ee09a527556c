# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet without machines: every node is a set of namespaces (mounts, processes, network,
hostname) with a kubelet's folder of its own.

Some have a FUSE mount whose server has ended (STOR-05), and some hang. What is the machine's own is
the same for all of them, so CONTROLS leaves out iSCSI, and what cannot be read without systemd.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.node import COLLECTION, environment

CONTROLS = "STOR-01 STOR-02 STOR-03 STOR-05 STOR-06 STOR-07 STOR-08 STOR-09"
# What runs a node's modules: its first process, so that /proc is that of the node.
_NODE = """#!/bin/sh
exec unshare --mount --pid --fork --mount-proc --uts --net --kill-child \\
    sh -ec '. {folder}/boot; exec {python} "$@"' - "$@"
"""
_HANGING = """#!/bin/sh
echo $$ > "{pids}/$$"
exec sleep 3600
"""
_DEAD_FUSE = """{python} -c 'import ctypes, os
handle = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={{handle}},rootmode=40000,user_id=0,group_id=0".encode()
raise SystemExit(ctypes.CDLL(None).mount(b"bucket", b"{point}", b"fuse.s3fs", 0, options))'
"""
# For somebody who waits: seconds between two looks at the command.
_PAUSE = 0.25


@dataclass(frozen=True)
class Run:
    """What a playbook came to.

    ``lines``: what it said, and after how many seconds. ``megabytes``: the most that the
    controller's processes had.
    """

    rc: int
    seconds: float
    lines: list[tuple[float, str]]
    megabytes: float

    @property
    def text(self) -> str:
        """All it said."""
        return "".join(line for _at, line in self.lines)

    def when(self, text: str) -> float:
        """After how many seconds it said this first."""
        return next(at for at, line in self.lines if text in line)


class Fleet:
    """Nodes n001, n002 and so on: the last of them hang, those before have a fault."""

    def __init__(self, folder: Path, size: int, faulty: int = 0, hanging: int = 0) -> None:
        self.folder, self.names = folder, [f"n{number:03d}" for number in range(1, size + 1)]
        self.hanging = self.names[size - hanging :]
        self.faulty = self.names[size - hanging - faulty : size - hanging]
        self.inventory = folder / "inventory.json"
        self._pids = folder / "hanging"
        self._pids.mkdir(parents=True)
        self.inventory.write_text(
            json.dumps({"all": {"hosts": {name: self._node(name) for name in self.names}}})
        )

    def _node(self, name: str) -> dict[str, Any]:
        """Make a node; its variables."""
        folder = self.folder / "nodes" / name
        kubelet = folder / "kubelet"
        point = (
            kubelet
            / "plugins/kubernetes.io/csi/s3.csi.example.com"
            / hashlib.sha256(b"bucket").hexdigest()
            / "globalmount"
        )
        point.mkdir(parents=True)
        dead = _DEAD_FUSE.format(python=sys.executable, point=point) if name in self.faulty else ""
        (folder / "boot").write_text(f"hostname {name}; ip link set lo up\n{dead}")
        program = (
            _HANGING.format(pids=self._pids)
            if name in self.hanging
            else _NODE.format(folder=folder, python=sys.executable)
        )
        (folder / "python").write_text(program)
        (folder / "python").chmod(0o755)
        return {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": str(folder / "python"),
            "compliance_node_options": {"kubelet_root": str(kubelet)},
        }

    def compliance(self, *arguments: str, **variables: Any) -> Run:
        """Run the playbook; its report is in the folder "report"."""
        given = {
            "compliance_read_cluster": False,
            "compliance_report_folder": f"{self.folder}/report",
            "compliance_report_controls": CONTROLS,
        }
        return self.play(
            f"{COLLECTION}.compliance", "-e", json.dumps({**given, **variables}), *arguments
        )

    def report(self) -> dict[str, Any]:
        """The report that was written last."""
        read: dict[str, Any] = json.loads((self.folder / "report" / "report.json").read_text())
        return read

    def play(self, *arguments: str) -> Run:
        """Run a playbook on the fleet, fifty nodes at a time, and look at the controller's memory
        meanwhile.
        """
        settings = {
            **environment(),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_LOCAL_TEMP": f"{self.folder}/tmp",
        }
        command = ["ansible-playbook", "-i", str(self.inventory), "--forks", "50", *arguments]
        begun, most = time.monotonic(), 0.0
        lines: list[tuple[float, str]] = []
        output = self.folder / "output"
        with open(output, "wb") as said, open(output, encoding="utf-8") as heard:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=settings,
            )
            try:
                over = False
                while not over:
                    over = process.poll() is not None
                    lines += [(time.monotonic() - begun, line) for line in heard]
                    most = max(most, _megabytes(process.pid))
                    time.sleep(0 if over else _PAUSE)
            finally:
                process.kill()
                self._end_hanging()
        return Run(process.returncode, time.monotonic() - begun, lines, most)

    def _end_hanging(self) -> None:
        """Nobody waits for them any more."""
        for file in self._pids.iterdir():
            pid = int(file.name)
            if _command(pid).startswith(b"sleep\x003600"):
                os.kill(pid, signal.SIGKILL)
            file.unlink()


def _megabytes(root: int) -> float:
    """Memory of the controller's own processes; what runs on behalf of the nodes would be there.

    Shared pages are counted once.
    """
    return (
        sum(_share(pid) for pid in [root, *_below(root)] if b"ansible-playbook" in _command(pid))
        / 1024
    )


def _below(pid: int) -> list[int]:
    try:
        children = [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []
    return [found for child in children for found in (child, *_below(child))]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _share(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
