# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The saved states that all tests on a node begin in."""

from __future__ import annotations

import dataclasses
import shlex

from lab.state import READY, State
from lab.vm import Vm


def test_state_is_kept_until_its_recipe_changes(vm: Vm) -> None:
    """What a test does to it is gone with the test; another recipe of that name makes it new, and
    the old one goes.
    """
    first = State(
        name="probe",
        files={"/srv/probe": b"one"},
        commands=("echo done >> /srv/probe",),
        before=READY,
    )
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


CALL = """
import sys, zipfile
with zipfile.ZipFile("/tmp/{folder}.zip", "w") as archive:
    archive.writestr("answer.py", {source!r})
sys.path.insert(0, "/tmp/{folder}.zip")
import answer
print(answer.get(), answer.get.__code__.co_filename)
"""


def test_code_of_an_archive_is_that_of_its_source(vm: Vm) -> None:
    """The node keeps what it compiled: of the same source, wherever the archive lies, and of no
    other.
    """

    def call(folder: str, source: str) -> str:
        return vm.run(
            f"python3 -c {shlex.quote(CALL.format(folder=folder, source=source))}"
        ).stdout.strip()

    one, two = "def get(): return 'one'", "def get(): return 'two'"
    before = int(vm.run("ls /var/cache/lab-bytecode | wc -l").stdout)
    # What Ansible's modules are made of is there from the beginning.
    assert before > 20
    assert call("a", one) == "one /tmp/a.zip/answer.py"
    assert call("b", one) == "one /tmp/b.zip/answer.py"
    assert int(vm.run("ls /var/cache/lab-bytecode | wc -l").stdout) == before + 1
    assert call("a", two) == "two /tmp/a.zip/answer.py"
    vm.run("for file in /var/cache/lab-bytecode/*-answer.py; do echo spoilt > $file; done")
    assert call("b", two) == "two /tmp/b.zip/answer.py"
    vm.run("mount --bind -o ro /var/cache/lab-bytecode /var/cache/lab-bytecode")
    assert call("a", "def get(): return 'three'") == "three /tmp/a.zip/answer.py"
