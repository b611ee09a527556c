# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a night costs: the compliance run on a fleet of 200 nodes, 7 of them with a fault, against
the same looks as command tasks.

The nodes are namespaces of this machine (see tests/support/fleet.py), so their own work is paid by
it, too; both ways pay it alike. Prints wall time, memory of the controller's processes at 50 forks,
and ratios of one run; then what becomes of it when one node hangs. Asserts nothing but what the
report says. Run with python -P: the folder has namesakes of the tests' modules.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.fleet import Fleet, Run

FAULTY = 7
TIMEOUT = 60
# What one looks at by hand for the same controls, a task each. Everything is registered, as whoever
# makes a report of it has to.
BY_HAND = [
    "multipath -ll",
    "multipathd show maps json",
    "multipathd show config",
    "dmsetup info -c",
    "dmsetup table",
    "lsblk --json",
    "ls -l /sys/class/scsi_disk",
    "ls -l /sys/class/iscsi_session",
    "ls -l /sys/class/fc_remote_ports",
    "cat /proc/self/mountinfo",
    "cat /proc/1/mountinfo",
    "cat /proc/mounts",
    "cat /proc/swaps",
    "findmnt --json -t fuse,fuse.s3fs,fuse.rclone",
    "timeout 5 stat -f {{ compliance_node_options.kubelet_root }}",
    "find {{ compliance_node_options.kubelet_root }} -maxdepth 7 -name vol_data.json",
    "ls {{ compliance_node_options.kubelet_root }}/pods",
    "ls -l /sys/fs/fuse/connections",
    "dmesg --level err,crit",
    "ps -eo pid,stat,wchan:32,comm",
    "findmnt --json -t nfs,nfs4",
    "ip -json route",
    "ss -Htn",
    "cat /proc/fs/nfsfs/servers",
    "cat /proc/sys/fs/nr_open",
]


def by_hand(fleet: Fleet) -> Run:
    """The playbook of command tasks."""
    tasks: list[dict[str, Any]] = [
        {
            "ansible.builtin.command": command,
            "register": f"said_{number}",
            "failed_when": False,
            "changed_when": False,
        }
        for number, command in enumerate(BY_HAND)
    ]
    playbook = fleet.folder / "by_hand.json"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    return fleet.play(str(playbook))


def told(fleet: Fleet) -> str:
    """What the report says of the hosts; stops where it is not what was made."""
    report = fleet.report()
    hosts, found = report["summary"]["hosts"], {finding["host"] for finding in report["findings"]}
    lost = {
        host["name"]
        for host in report["hosts"]
        if host["kind"] == "node" and host["status"] == "not_assessed"
    }
    if (found, lost) != (set(fleet.faulty), set(fleet.hanging)):
        sys.exit(
            f"findings on {sorted(found)}, not assessed {sorted(lost)}, and made were "
            f"{fleet.faulty} and {fleet.hanging}"
        )
    return f"findings on {len(found)}, assessed {hosts['assessed']}, not assessed {len(lost)}"


def line(what: str, run: Run) -> None:
    """One line of the result."""
    if run.rc:
        sys.exit(run.text[-5000:])
    print(f"  {what:42} {run.seconds:7.1f} s   {run.megabytes:6.0f} MB", flush=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument(
        "--without-tasks",
        action="store_true",
        help="leave out the command tasks, which take ten times as long",
    )
    given = parser.parse_args()
    nodes = given.nodes
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder) / "fleet", nodes, FAULTY)
        print(f"{nodes} nodes, 50 forks", flush=True)
        # Whoever comes first pays for what nobody has compiled yet.
        fleet.compliance("--limit", fleet.names[0])
        audit = fleet.compliance()
        line("compliance run", audit)
        print(f"    {told(fleet)}", flush=True)
        if not given.without_tasks:
            hand = by_hand(fleet)
            line(f"{len(BY_HAND)} command tasks", hand)
            ratios = hand.seconds / audit.seconds, hand.megabytes / audit.megabytes
            print(
                f"  ratio of the tasks to the run: {ratios[0]:.1f} "
                f"in time, {ratios[1]:.1f} in memory",
                flush=True,
            )
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder) / "fleet", nodes, FAULTY, hanging=1)
        run = fleet.compliance(compliance_node_timeout=TIMEOUT)
        line(f"compliance run, one node hangs for {TIMEOUT} s", run)
        last = max(run.when(f"ok: [{name}]") for name in fleet.names[:-1])
        print(f"    the others were done after {last:.1f} s; {told(fleet)}")


if __name__ == "__main__":
    main()
