# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the audit of a big cluster costs, against the k8s_info tasks that an operator's playbook
needs today to see the same objects.

5,000 nodes, 20,000 volumes with attachments and 50,000 pods in a real API server; of each kind
none, 10 and 1000 are broken. Then twice as many of everything. Prints seconds (what Ansible itself
needs to start is taken off), the memory of the biggest process, the seconds that curl takes for the
same lists, which is the limit, and ratios of one run; asserts nothing.
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
from support.node import COLLECTION, environment

# (nodes, volumes, pods, how many of each kind are broken)
SIZES = ((5_000, 20_000, 50_000, (0, 10, 1_000)), (10_000, 40_000, 100_000, (0, 1_000)))
BY_HAND = [
    ("storage.k8s.io/v1", "VolumeAttachment"),
    ("v1", "PersistentVolume"),
    ("v1", "Node"),
    ("v1", "Pod"),
]
# Seconds between two observations. That is a choice, not a cost, and taken off.
WINDOW = 1
AUDIT = {
    f"{COLLECTION}.cluster_storage_info": {
        "controls": [f"STOR-{number}" for number in range(11, 16)],
        "min_age_seconds": 0,
        "observation_seconds": WINDOW,
        "deadline": 1800,
    }
}
# What an audit reads of a healthy cluster, and what of one with suspects on many nodes besides.
HEALTHY = [
    "/version",
    "/apis/storage.k8s.io/v1/volumeattachments?resourceVersion=0",
    "/api/v1/persistentvolumes?resourceVersion=0",
    "/api/v1/nodes?resourceVersion=0",
    "/api/v1/pods?resourceVersion=0&fieldSelector=status.phase%3DPending",
]
SUSPECTS = ["/api/v1/persistentvolumeclaims?resourceVersion=0", "/api/v1/pods?resourceVersion=0"]
MANY = 500

# Runs a command and tells how big its biggest process became, in kilobytes: of a child, the system
# says that only for all it ever had.
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
        command = [
            "ansible-playbook",
            "-i",
            "localhost,",
            "-e",
            "ansible_python_interpreter={{ansible_playbook_python}}",
            str(path),
        ]
        return cost(command, kubeconfig)


def cost(command: list[str], kubeconfig: Path, **more: str) -> Cost:
    """What one command costs; ``more``: variables of its environment."""
    reader, writer = os.pipe()
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", MEASURE, str(writer), *command],
        env={**environment(), "K8S_AUTH_KUBECONFIG": str(kubeconfig), **more},
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


def by_curl(plane: ControlPlane, lists: list[str]) -> float:
    """Seconds for the answers alone, one after the other, over one connection."""
    command = [
        "curl",
        "--silent",
        "--fail",
        "--cacert",
        str(plane.ca),
        "--header",
        f"Authorization: Bearer {plane.token('admin')}",
    ]
    for where in lists:
        command += ["--output", os.devnull, f"https://127.0.0.1:{plane.port()}{where}"]
    begun = time.monotonic()
    subprocess.run(command, check=True, timeout=1800)
    return time.monotonic() - begun


def measure(plane: ControlPlane, broken: int, healthy: float, by_hand: bool) -> float:
    """The lines of one cluster, and the seconds of its audit.

    ``healthy``: the seconds of one where nothing is broken, if known.
    """
    kubeconfig = plane.kubeconfig()
    start = run(kubeconfig, [{"ansible.builtin.ping": {}}])
    audit = run(kubeconfig, [AUDIT])
    seconds = audit.seconds - start.seconds - (WINDOW if broken else 0)
    curl = by_curl(plane, HEALTHY + (SUSPECTS if broken >= MANY else []))
    print(f"{broken} of each kind broken")
    print(
        f"  ansible-playbook with ping            {start.seconds:7.1f} s {start.megabytes:6.0f} MB"
    )
    print(
        f"  cluster_storage_info, STOR-11 to 15   {seconds:7.1f} s {audit.megabytes:6.0f} MB",
        flush=True,
    )
    print(
        f"  the same lists by curl                {curl:7.1f} s   ratio of the audit to it: "
        f"{seconds / curl:.1f}"
    )
    if healthy:
        print(f"  ratio to the audit of a healthy cluster: {seconds / healthy:.1f}", flush=True)
    # Reading everything costs the same whatever is broken. Of the bigger cluster it takes more
    # memory than many machines have.
    if by_hand and not broken:
        tasks = [
            {"kubernetes.core.k8s_info": {"api_version": version, "kind": kind}}
            for version, kind in BY_HAND
        ]
        hand = run(kubeconfig, tasks)
        print(
            f"  4 tasks with kubernetes.core.k8s_info {hand.seconds - start.seconds:7.1f} s "
            f"{hand.megabytes:6.0f} MB"
        )
        print(
            f"  ratio: {(hand.seconds - start.seconds) / seconds:.1f} in time, "
            f"{hand.megabytes / audit.megabytes:.1f} in memory",
            flush=True,
        )
    return seconds


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=VERSIONS, default=CURRENT)
    parser.add_argument(
        "--size", type=int, choices=range(len(SIZES)), nargs="*", default=range(len(SIZES))
    )
    parser.add_argument("--broken", type=int, nargs="*")
    options = parser.parse_args()
    for size in options.size:
        nodes, volumes, pods, broken = SIZES[size]
        print(f"{nodes} nodes, {volumes} volumes, {pods} pods")
        healthy = 0.0
        for number in options.broken if options.broken is not None else broken:
            # Nobody shall put in order what is broken on purpose.
            plane = ControlPlane(
                f"bench-{number}", options.version, controller_manager=False, scheduler=False
            )
            plane.start()
            try:
                load.fill(plane, load.Load(nodes, volumes, pods, number))
                seconds = measure(plane, number, healthy, by_hand=not size)
                healthy = healthy or (0.0 if number else seconds)
            finally:
                plane.remove()


if __name__ == "__main__":
    main()
