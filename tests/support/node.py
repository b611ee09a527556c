# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM node as the tests use it: run our modules on it through Ansible, and see what
became of it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.common import patient, wait
from lab.vm import Vm

COLLECTION = "storage_ops.runbooks"
# The node's multipathd checks every 2 s, so this is the shortest observation that proves anything
# there.
QUICK: dict[str, Any] = {"observations": 2, "observation_seconds": 3}
ANSIBLE_DEADLINE = patient(120)
# On a busy machine an emulated node needs more than the default to read all of its processes, and
# who uses a mount is not known then; or what is alive does not answer in time.
PATIENT: dict[str, Any] = {"command_timeout": 120, "deadline": 600}
REMOUNT: dict[str, Any] = {**PATIENT, "probe_timeout": 10, "remount_timeout": 120}
NFS: dict[str, Any] = {**PATIENT, "slow_seconds": 25, "mount_timeout": 30}
_PATIENCE: dict[str, dict[str, Any]] = {
    "csi_mount_repair": {**PATIENT, "probe_timeout": 10},
    "node_storage_info": PATIENT,
    "fuse_remount": REMOUNT,
    "nfs_mount_check": NFS,
    "container_restart": {**PATIENT, "probe_timeout": 10},
}


def of_ansible(command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What a command of Ansible came to, with that environment."""
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=ANSIBLE_DEADLINE, env=settings
    )


@dataclass(frozen=True)
class Outcome:
    """What a task came to."""

    result: dict[str, Any]
    failed: bool

    @property
    def changed(self) -> bool:
        """The task says that it changed something, or would."""
        return bool(self.result["changed"])

    @property
    def msg(self) -> str:
        """The message."""
        return str(self.result["msg"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """All findings."""
        return list(self.result["findings"])

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """(action, outcome) in order."""
        return [(action["action"], action["outcome"]) for action in self.result["actions"]]

    def finding(self, name: str) -> dict[str, Any]:
        """The finding about the object of that name."""
        return next(finding for finding in self.findings if finding["object"]["name"] == name)


class Node:
    """One VM node, fresh from its snapshot."""

    def __init__(self, vm: Vm) -> None:
        self.vm = vm
        # A scenario that takes the iSCSI sessions away on purpose has no neighbours to watch over.
        self.guarded = True
        self.program = "ansible"
        self._ready = vm.begun

    # our modules

    def ansible(
        self, module: str, check: bool = False, user: str = "root", **options: Any
    ) -> Outcome:
        """Run one of our modules as an operator does ad hoc, but with patience."""
        status, text = self._ad_hoc(module, check, user, options)
        assert "Traceback" not in text, text
        result, _end = json.JSONDecoder().raw_decode(text.split("=>", 1)[1].lstrip())
        return Outcome(result, status)

    def killed(self) -> None:
        """Run multipath_residual for real, and see it die in the middle."""
        failed, text = self._ad_hoc("multipath_residual", False, "root", QUICK, pipelining="0")
        assert failed, text
        assert '"actions"' not in text, f"it came to its end: {text}"

    def _ad_hoc(
        self, module: str, check: bool, user: str, options: dict[str, Any], pipelining: str = "1"
    ) -> tuple[bool, str]:
        command = [
            self.program,
            "all",
            "-i",
            str(self.vm.inventory()),
            "-e",
            f"ansible_user={user}",
            "-m",
            f"{COLLECTION}.{module}",
        ]
        given = {**_PATIENCE.get(module, {}), **options}
        command += [
            *(["-a", json.dumps(given)] if given else []),
            *(["--check"] if check else []),
        ]
        settings = {**environment(), "ANSIBLE_PIPELINING": pipelining}
        answer = of_ansible(command, settings)
        text = answer.stdout
        assert "=>" in text and "UNREACHABLE" not in text, text + answer.stderr
        return "FAILED" in text.split("=>", 1)[0], text + answer.stderr

    def residual(self, check: bool = False, **options: Any) -> Outcome:
        """Run multipath_residual."""
        return self.ansible("multipath_residual", check, **{**QUICK, **options})

    def refused(self, name: str, *reasons: str, **options: Any) -> dict[str, Any]:
        """Run multipath_residual for real, and see it refuse the object for these reasons and
        change nothing.
        """
        before = self.shape()
        outcome = self.residual(**options)
        assert not outcome.failed, outcome.msg
        finding = outcome.finding(name)
        assert finding["verdict"] == "refuse", finding
        for reason in reasons:
            assert reason in finding["reason"], finding["reason"]
        assert outcome.outcomes == []
        assert not outcome.changed
        assert self.shape() == before
        return finding

    # the node

    def sh(self, command: str | Sequence[str], check: bool = True, timeout: float = 300) -> str:
        """Run a shell command on the node; its output."""
        return self.vm.run(command, timeout=timeout, check=check).stdout.strip()

    def quote(self, text: str) -> str:
        """Text as one word of a shell command."""
        return shlex.quote(text)

    def labctl(self, arguments: str, timeout: float = 300) -> str:
        """Have the lab do something."""
        return self.vm.labctl(*shlex.split(arguments), timeout=timeout).strip()

    def state(self) -> dict[str, Any]:
        """Maps, disks, sessions and the array's LUNs (``labctl state``)."""
        return self.vm.state()

    def shape(self) -> dict[str, Any]:
        """Which maps stand on which paths, and whether they queue: what a run that changes nothing
        leaves alone.
        """
        state = self.state()
        maps = {
            wwid: (
                entry["name"],
                sorted(path["hctl"] for path in entry["paths"].values()),
                entry["queueing"],
            )
            for wwid, entry in state["maps"].items()
        }
        return {"maps": maps, "disks": sorted(disk["hctl"] for disk in state["disks"].values())}

    def map_of(self, lun: int) -> tuple[str, str]:
        """(name, WWID) of the map of a LUN, as it was when the node was ready."""
        wwid = self._ready["luns"][str(lun)]["wwid"]
        return self._ready["maps"][wwid]["name"], wwid

    def paths_of(self, lun: int) -> list[str]:
        """Disk names of a LUN's paths, as they were when the node was ready."""
        return sorted(self._ready["maps"][self.map_of(lun)[1]]["paths"])

    def unmap(self, *luns: int) -> None:
        """Take LUNs away on the array, and wait until multipathd has seen it."""
        for lun in luns:
            self.labctl(f"lun unmap {lun}")
        for lun in luns:
            self.wait_for_failed_paths(self.map_of(lun)[0])

    def wait_for_failed_paths(self, name: str) -> None:
        """Wait until multipathd calls no path of the map ready."""
        self.wait(
            lambda: "ready" not in self.sh(f"multipathd show map {name} topology", check=False),
            "all paths failed",
        )

    def queue(self) -> None:
        """Maps queue while no path is left, as arrays' documentation asks for."""
        self.labctl("multipath-config no_path_retry=queue")

    def partition(self, lun: int, count: int = 1) -> list[str]:
        """Partition the map of a LUN; the partition maps' devices."""
        device, wwid = f"/dev/mapper/{self.map_of(lun)[0]}", self.map_of(lun)[1]
        parts = " ".join(
            f"mkpart p{number} {1 + 20 * number}MiB {20 + 20 * number}MiB"
            for number in range(count)
        )
        self.sh(
            f"parted -s {device} mklabel gpt {parts} && kpartx -a {device} && udevadm settle -t 20"
        )

        def maps() -> list[str]:
            rows = [
                row.split()
                for row in self.sh(
                    "dmsetup info -c --noheadings --separator ' ' -o name,uuid"
                ).splitlines()
            ]
            return sorted(
                f"/dev/mapper/{row[0]}"
                for row in rows
                if row[1].startswith("part") and row[1].endswith(f"-mpath-{wwid}")
            )

        self.wait(lambda: len(maps()) == count, "partition maps")
        return maps()

    def hung_reader(self, device: str) -> int:
        """A dd that hangs in D state on the device; its pid."""
        pid = int(self.labctl(f"read {device}"))
        self.wait(lambda: self.process_state(pid) == "D", "dd hangs")
        return pid

    def wrap(self, program: str, before: str = "", after: str = "") -> None:
        """Put shell code around a program of the node: the real one runs, and something happens
        right before or after it.
        """
        real = self.sh(f"command -v {program}")
        script = f'#!/bin/sh\n{before}\n{real} "$@"\nstatus=$?\n{after}\nexit $status\n'
        self.vm.run(
            f"cat > /usr/local/sbin/{program} && chmod +x /usr/local/sbin/{program}", stdin=script
        )

    def process_state(self, pid: int) -> str:
        """State letter of a process; empty when it is gone."""
        return self.sh(f"ps -o state= -p {pid}", check=False)[:1]

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Poll until something has come true."""
        # Each look takes the emulated processor from what is waited for.
        wait(condition, what, seconds, pause=0.8)

    def gone(self, lun: int) -> None:
        """See that nothing is left of a LUN: no map, no disk, no link."""
        name, wwid = self.map_of(lun)
        state = self.state()
        assert wwid not in state["maps"]
        assert wwid not in [disk["wwid"] for disk in state["disks"].values()]
        assert name not in self.sh("multipathd show maps format %n")
        links = self.sh("ls -l /dev/disk/by-id /dev/mapper")
        assert wwid not in links, links
        assert f"{name} " not in links

    def check_neighbours(self) -> None:
        """No path and no map of a LUN that the array still serves has gone."""
        now = self.state()
        served = {entry["wwid"] for entry in now["luns"].values()}
        for wwid, entry in self._ready["maps"].items():
            if wwid in served:
                assert wwid in now["maps"], f"the map of the healthy LUN {wwid} is gone"
                before = sorted(path["hctl"] for path in entry["paths"].values())
                assert (
                    sorted(path["hctl"] for path in now["maps"][wwid]["paths"].values()) == before
                ), f"a path of the healthy LUN {wwid} is gone"


def environment() -> dict[str, str]:
    """The environment Ansible runs in: ours, with output that can be parsed."""
    return {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_HOST_KEY_CHECKING": "0",
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
    }


def remote_environment() -> dict[str, str]:
    """The same for a play on a node: without pipelining, each of its tasks opens five sessions."""
    return {**environment(), "ANSIBLE_PIPELINING": "1"}
