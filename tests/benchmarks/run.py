# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an audit of a node costs, with 2 and with 256 maps, against the command tasks that an
operator's playbook needs today.

Prints seconds per audit and ratios, all of one run on one node; asserts nothing, since a machine's
speed proves nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab.vm import Vm
from support.node import COLLECTION, environment

# (LUNs, how often each way is measured): with many disks a single round takes a minute, and its
# noise matters less.
SIZES = ((2, 3), (256, 1))
# What one looks at by hand to find residual disks, a task each.
BY_HAND = [
    "multipath -ll",
    "multipathd show maps json",
    "dmsetup info -c",
    "lsblk --json",
    "cat /proc/self/mountinfo",
    "cat /proc/swaps",
    "sh -c 'for disk in /sys/block/sd*; do sg_turs /dev/${disk##*/}; sg_vpd -p di -q "
    "/dev/${disk##*/}; done; true'",
]


def play(tasks: list[dict[str, Any]]) -> str:
    """A playbook with these tasks."""
    return json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}])


def seconds(vm: Vm, rounds: int, tasks: list[dict[str, Any]]) -> float:
    """Seconds of the tasks: the median of some rounds, what Ansible itself needs to start taken
    off.
    """

    def run(playbook: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "play.yml"
            path.write_text(playbook, encoding="utf-8")
            begun = time.monotonic()
            command = ["ansible-playbook", "-i", str(vm.inventory()), str(path)]
            answer = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                timeout=1800,
                env=environment(),
            )
            if answer.returncode:
                sys.exit(answer.stdout + answer.stderr)
            return time.monotonic() - begun

    start = statistics.median(run(play([])) for _number in range(rounds))
    return statistics.median(run(play(tasks)) for _number in range(rounds)) - start


def measure(vm: Vm, rounds: int) -> None:
    """One line per way to look at the node."""
    maps = int(vm.run("dmsetup ls --target multipath | grep -c .").stdout)
    ping = seconds(vm, rounds, [{"ansible.builtin.ping": {}}])
    module = seconds(
        vm,
        rounds,
        [{f"{COLLECTION}.node_storage_info": {"controls": ["STOR-01", "STOR-02", "STOR-03"]}}],
    )
    by_hand = seconds(vm, rounds, [{"ansible.builtin.command": command} for command in BY_HAND])
    print(f"{maps} maps")
    print(f"  ping, Ansible's own cost of a task    {ping:7.2f} s")
    print(
        f"  node_storage_info                     {module:7.2f} s   beyond a task's own cost: "
        f"{module - ping:.2f} s"
    )
    print(
        f"  {len(BY_HAND)} command tasks by hand              {by_hand:7.2f} s   ratio to the "
        f"module: {by_hand / module:.1f}",
        flush=True,
    )


def main() -> None:
    """Entry point."""
    vm = Vm("bench", memory=1536)
    vm.up()
    try:
        # LIO's four LUNs would be in the way of counting: only scsi_debug's stay.
        vm.run("multipath -F; iscsiadm -m node -u", check=False, timeout=120)
        for luns, rounds in SIZES:
            vm.labctl("scsi-debug", "load", str(luns), timeout=1200)
            measure(vm, rounds)
            vm.labctl("scsi-debug", "unload", timeout=1200)
    finally:
        vm.stop()


if __name__ == "__main__":
    main()
