# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands behind a BMC: a machine that is a process, or a VM node. Its power is switched by
whoever knows its folder.

``python -m lab.bmc.machine FOLDER get|set power [0|1]`` is what ipmi_sim runs (chassis_control in
ipmi_lan(5)).
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..kubernetes.process import Process

if TYPE_CHECKING:
    from ..kubelet.node import KubeletVm

_NODE = "node.json"
# It counts for as long as it has power, as a node that writes. Its power may be gone between any
# two steps, so the file is replaced, and never empty.
_WORK = """
import itertools, pathlib, sys, time
new = pathlib.Path(sys.argv[1] + ".new")
for number in itertools.count(1):
    new.write_text(str(number))
    new.replace(sys.argv[1])
    time.sleep(0.02)
"""


class Machine:
    """A process that counts into a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count, self._answers = folder / "count", folder / "answers"

    @property
    def is_on(self) -> bool:
        """It runs."""
        return self._process.pid is not None

    @property
    def _process(self) -> Process:
        # Read each time, since the BMC, which is another process, may have restarted it.
        return Process(self._folder, "machine")

    @property
    def count(self) -> int:
        """How far it has counted."""
        return int(self._count.read_text() or 0) if self._count.exists() else 0

    def switch(self, on: bool) -> None:
        """Take its power away, as by its plug, or give it back."""
        if on and not self.is_on:
            command = [sys.executable, "-c", _WORK, str(self._count)]
            self._process.start(command, tied=False)
        elif not on:
            self._process.stop(signal.SIGKILL)

    # what its BMC says

    def lie(self, *answers: bool) -> None:
        """Its BMC gives these answers first, and the machine keeps its power meanwhile."""
        self._answers.write_text("".join("1" if answer else "0" for answer in answers))

    @property
    def says(self) -> bool:
        """What its BMC says of its power."""
        left = self._answers.read_text() if self._answers.exists() else ""
        if not left:
            return self.is_on
        self._answers.write_text(left[1:])
        return left[0] == "1"

    def told(self, on: bool) -> None:
        """Its BMC is told to switch it."""
        if not (self._answers.exists() and self._answers.read_text()):
            self.switch(on)


class VmMachine(Machine):
    """A VM node: without power, all that its kernel did has ended."""

    def __init__(self, folder: Path, vm: KubeletVm) -> None:
        super().__init__(folder)
        self._vm = vm

    @property
    def is_on(self) -> bool:
        """It runs."""
        return self._vm.running

    def switch(self, on: bool) -> None:
        """Take its power away, or have it begin to boot."""
        if on and not self.is_on:
            self._vm.launch()
        elif not on:
            self._vm.stop()


def put_behind(folder: Path, vm: KubeletVm) -> None:
    """From now on the machine of this folder is that node."""
    told = {"name": vm.name, "node": vm.node, "address": vm.address}
    (folder / _NODE).write_text(json.dumps(told))


def machine_of(folder: Path) -> Machine:
    """The machine of a BMC."""
    if not (folder / _NODE).exists():
        return Machine(folder)
    # The others need nothing that a node is made of.
    from ..kubelet.node import KubeletVm

    return VmMachine(folder, KubeletVm(**json.loads((folder / _NODE).read_text())))


def main() -> None:
    """One call of ipmi_sim."""
    folder, what, parameter, *values = sys.argv[1:]
    machine = machine_of(Path(folder))
    if parameter != "power":
        sys.exit(f"only power can be {what}, not {parameter}")
    if what == "set":
        machine.told(values[0] == "1")
    else:
        print(f"power:{int(machine.says)}")


if __name__ == "__main__":
    main()
