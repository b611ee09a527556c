# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the audit of a big cluster costs, against the k8s_info tasks that an operator's playbook needs today to see the same objects.

5,000 nodes, 20,000 volumes with attachments and 50,000 pods in a real API server; of each kind none, 10 and 1000 are broken. Prints seconds
(what Ansible itself needs to start is taken off), the memory of the biggest process, and ratios of one run; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from lab.kubernetes import load
from lab.kubernetes.build import CURRENT, VERSIONS
from lab.kubernetes.controlplane import ControlPlane
from node import COLLECTION, environment

BROKEN = (0, 10, 1000)
BY_HAND = [("storage.k8s.io/v1", "VolumeAttachment"), ("v1", "PersistentVolume"), ("v1", "Node"), ("v1", "Pod")]
# The observation window is a choice, not a cost.
AUDIT = {f"{COLLECTION}.volumeattachment_info": {"min_age": 0, "observation_seconds": 1}}

# Runs a command and tells how big its biggest process became, in kilobytes: of a child, the system says that only for all it ever had.
MEASURE = """
import os, resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
os.write(int(sys.argv[1]), str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss).encode())
sys.exit(status)
"""


class Cost(NamedTuple):
    """Seconds, and megabytes of the biggest process."""

    seconds: float
    megabytes: float


def run(kubeconfig: Path, tasks: list[dict[str, Any]]) -> Cost:
    """One run of ansible-playbook."""
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "play.yml"
        path.write_text(json.dumps(play), encoding="utf-8")
        command = ["ansible-playbook", "-i", "localhost,", "-e", "ansible_python_interpreter={{ansible_playbook_python}}", str(path)]
        reader, writer = os.pipe()
        begun = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-c", MEASURE, str(writer), *command],
            env={**environment(), "K8S_AUTH_KUBECONFIG": str(kubeconfig)},
            pass_fds=[writer],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            os.close(writer)
            output, _nothing = child.communicate(timeout=1800)
            seconds = time.monotonic() - begun
            kilobytes = int(os.read(reader, 100) or 0)
            os.close(reader)
        if child.returncode:
            sys.exit(output[-5000:])
    return Cost(seconds, kilobytes / 1024)


def measure(kubeconfig: Path, broken: int) -> None:
    """The lines of one cluster."""
    start = run(kubeconfig, [{"ansible.builtin.ping": {}}])
    audit = run(kubeconfig, [AUDIT])
    seconds = audit.seconds - start.seconds
    print(f"{broken} of each kind broken")
    print(f"  ansible-playbook with ping            {start.seconds:7.1f} s {start.megabytes:6.0f} MB")
    print(f"  volumeattachment_info, STOR-11 to 15  {seconds:7.1f} s {audit.megabytes:6.0f} MB", flush=True)
    # Reading everything costs the same whatever is broken.
    if not broken:
        tasks = [{"kubernetes.core.k8s_info": {"api_version": version, "kind": kind}} for version, kind in BY_HAND]
        hand = run(kubeconfig, tasks)
        print(f"  4 tasks with kubernetes.core.k8s_info {hand.seconds - start.seconds:7.1f} s {hand.megabytes:6.0f} MB")
        print(
            f"  ratio: {(hand.seconds - start.seconds) / seconds:.1f} in time, {hand.megabytes / audit.megabytes:.1f} in memory", flush=True
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=VERSIONS, default=CURRENT)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--volumes", type=int, default=20_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--broken", type=int, nargs="*", default=BROKEN)
    options = parser.parse_args()
    for broken in options.broken:
        # Nobody shall put in order what is broken on purpose.
        plane = ControlPlane(f"bench-{broken}", options.version, controller_manager=False, scheduler=False)
        plane.start()
        try:
            load.fill(plane, load.Load(options.nodes, options.volumes, options.pods, broken))
            measure(plane.kubeconfig(), broken)
        finally:
            plane.remove()


if __name__ == "__main__":
    main()
