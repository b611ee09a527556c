# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a killed run of the tests has left is swept by the next one, and nothing else is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import runs
from lab.common import cache_dir, patient, wait

TOOLS = Path(__file__).parents[1] / "tools"
CONFTEST = """
from support.fixtures import ceph, plane_current
"""
# The two are run at the same time, by workers of their own.
TESTS = """
import json, os, signal, subprocess
from pathlib import Path
from lab.ceph.client import Writer
from lab.kubernetes.kubelets import HollowKubelet
from lab.runs import temporary

HERE = Path(__file__).parent

def left(name, pids, paths):
    told = json.dumps({"pids": pids, "paths": [str(path) for path in paths]})
    (HERE / f"{name}.new").write_text(told)
    (HERE / f"{name}.new").rename(HERE / f"{name}.made")
    signal.pause()

def test_plane(plane_current):
    kubelet = HollowKubelet(plane_current, "n1")
    kubelet.start()
    pids = [process.pid for process in plane_current.processes.values()]
    left("plane", [*pids, kubelet.process.pid], [plane_current.folder, *kubelet.folders()])

def test_ceph(ceph):
    ceph.create_image("data")
    writer = Writer(ceph, "data")
    writer.start()
    stray = subprocess.Popen(["setsid", "sleep", "3600"])
    with temporary("test") as folder:
        (folder / "mounted").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "lab", str(folder / "mounted")], check=True)
        pids = [ceph.mon.pid, ceph.osd.pid, writer.process.pid, stray.pid]
        left("ceph", pids, [ceph.folder, folder])
"""


def lives(pid: int) -> bool:
    """It is there, and not merely not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def started(*command: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, with a pipe to its input and from its output."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=cwd, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_run(tmp_path: Path, number: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_left.py").write_text(TESTS)
    log = tmp_path / "log"
    command = [str(TOOLS / "run.sh"), "--lab", "pytest", "-n", "2", "-p", "no:cacheprovider"]
    with log.open("w") as said:
        run = subprocess.Popen(
            [*command, "--rootdir", str(tmp_path), str(tmp_path)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    made = [tmp_path / "plane.made", tmp_path / "ceph.made"]
    try:
        wait(lambda: all(map(Path.exists, made)) or run.poll() is not None, "all is made", 120)
        assert run.poll() is None, log.read_text()
    finally:
        os.killpg(run.pid, number)
        run.wait(patient(10))
    found: list[dict[str, Any]] = [json.loads(file.read_text()) for file in made]
    pids = [pid for one in found for pid in one["pids"]]
    paths = [Path(path) for one in found for path in one["paths"]]
    (folder,) = (path for path in paths if path.name.startswith("lab-test-"))
    # Else the sweep would have nothing to do.
    assert (
        any(map(lives, pids))
        and all(map(Path.exists, paths))
        and os.path.ismount(folder / "mounted")
    )
    assert list((cache_dir() / "runs").glob(f"{run.pid}.*"))

    runs.sweep()

    wait(lambda: not any(map(lives, pids)), "all have ended")
    assert not [path for path in paths if path.exists()]
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert not list((cache_dir() / "runs").glob(f"{run.pid}.*"))


def test_a_living_run_is_left_alone(tmp_path: Path) -> None:
    """The shell names itself as we do, so what it has claimed stays, and what it has started lives,
    until it ends.
    """
    script = (
        f". {TOOLS}/env.sh; temporary shell; sleep 3600 & echo $! $temporary $STORAGE_OPS_RUN; read"
    )
    with started("bash", "-c", script, cwd=tmp_path) as shell:
        assert shell.stdout is not None
        pid, folder, name = shell.stdout.readline().split()
        assert name == runs.name_of(shell.pid) and not runs.is_over(name)
        runs.sweep()
        assert lives(int(pid)) and Path(folder).is_dir()
        shell.kill()
        shell.wait(patient(10))
        assert runs.is_over(name)
    runs.sweep()
    assert not lives(int(pid)) and not Path(folder).exists()
    assert not (cache_dir() / "runs" / name).exists()


def test_what_another_run_has_now_is_left_to_it(tmp_path: Path) -> None:
    """A name that was used before; and a pid that is another's by now."""
    target = tmp_path / "cluster"
    target.mkdir()
    pid, _began, namespace, boot = runs.name_of(os.getpid()).split(".")
    over = cache_dir() / "runs" / f"{pid}.1.{namespace}.{boot}"
    assert runs.is_over(over.name)
    over.mkdir()
    mine = cache_dir() / "runs" / runs.name_of(os.getpid())
    mine.mkdir(parents=True, exist_ok=True)
    for folder in (mine, over):
        (folder / "claim").symlink_to(target)
    try:
        runs.sweep()
        assert target.is_dir() and not over.exists()
    finally:
        (mine / "claim").unlink()


def test_which_runs_are_over() -> None:
    pid, began, namespace, boot = runs.name_of(os.getpid()).split(".")
    assert not runs.is_over(f"{pid}.{began}.{namespace}.{boot}")
    assert runs.is_over(f"{pid}.{int(began) + 1}.{namespace}.{boot}")
    assert runs.is_over(f"{pid}.{began}.{namespace}.00000000")
    # Of a container we do not know who lives there, nor what the name means.
    assert not runs.is_over(f"{pid}.1.{int(namespace) + 1}.{boot}")
    assert not runs.is_over("something")
    child = subprocess.Popen(["true"])
    name = runs.name_of(child.pid)
    # It has ended, and is not waited for yet.
    wait(lambda: runs.is_over(name), "it is over")
    child.wait()
    assert runs.is_over(name)


def test_what_was_never_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is being built nothing is taken away, nor of what is done."""
    monkeypatch.setenv("STORAGE_OPS_CACHE", str(tmp_path))
    halves = [
        tmp_path / name
        for name in ("images/.bookworm-1", "states/ready-1/.containers-2", "venv-abc.12")
    ]
    for half in (*halves, tmp_path / "venv-abc.13", tmp_path / "venv-def.14"):
        half.mkdir(parents=True)
    (tmp_path / "venv-abc").symlink_to("venv-abc.13")
    builder = (
        "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.flock(file, 2); print(1, "
        "flush=True); sys.stdin.read()"
    )
    with started(
        "python3", "-c", builder, str(tmp_path / "venv-def.lock"), cwd=tmp_path
    ) as building:
        assert building.stdout is not None
        building.stdout.readline()
        runs.sweep()
        assert sorted(found.name for found in tmp_path.glob("venv-*.[0-9]*")) == [
            "venv-abc.13",
            "venv-def.14",
        ]
    assert not [half for half in halves if half.exists()]


def test_a_half_built_folder_is_one_thing(tmp_path: Path) -> None:
    """What is in it may come and go meanwhile, and is not looked at."""
    (tmp_path / ".bookworm-1/root/.cache-1").mkdir(parents=True)
    (tmp_path / "ready-1/.containers-2").mkdir(parents=True)
    assert runs._half_built(tmp_path) == [
        tmp_path / ".bookworm-1",
        tmp_path / "ready-1/.containers-2",
    ]
