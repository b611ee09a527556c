# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The saved states that all tests on a node begin in."""

from __future__ import annotations

import dataclasses

from lab.state import READY, State
from lab.vm import Vm


def test_state_is_kept_until_its_recipe_changes(vm: Vm) -> None:
    """What a test does to it is gone with the test; another recipe of that name makes it new, and the old one goes."""
    first = State(name="probe", files={"/srv/probe": b"one"}, commands=("echo done >> /srv/probe",), before=READY)
    vm.up(first)
    (kept,) = vm.states.rglob("probe-*/")
    made = kept.stat()
    assert vm.run("cat /srv/probe").stdout == "onedone\n"
    vm.run("echo spoilt > /srv/probe")
    vm.reset(first)
    assert vm.run("cat /srv/probe").stdout == "onedone\n"
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    vm.reset(dataclasses.replace(first, files={"/srv/probe": b"two"}))
    assert vm.run("cat /srv/probe").stdout == "twodone\n"
    assert not kept.exists()
    vm.reset()
    assert vm.run("ls /srv/probe", check=False).rc != 0
