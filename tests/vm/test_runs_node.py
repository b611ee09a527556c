# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node does not outlive the run of the tests that has started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lab import qemu, runs
from lab.common import patient, wait
from lab.vm import Vm

RUN = Path(__file__).parents[1] / "tools/run.sh"
# The node of this worker: its snapshot is there.
STARTED = """
import signal
from lab.vm import Vm
Vm("{name}").up()
print("up", flush=True)
signal.pause()
"""


def test_the_node_of_a_killed_run_is_swept(vm: Vm) -> None:
    vm.stop()
    command = [str(RUN), sys.executable, "-c", STARTED.format(name=vm.name)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        try:
            assert run.stdout.readline() == "up\n"
        finally:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait(patient(10))
    # None: another run of the tests on this machine has just begun, and was first.
    pid = qemu.running(vm.pidfile)
    runs.sweep()
    assert not vm.running
    # The kernel takes a moment to give its memory back.
    wait(lambda: not pid or not Path(f"/proc/{pid}").exists(), f"{pid} is gone")
    # And it is as good as before.
    vm.up()
    assert vm.state()["maps"]
