# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's own Docker engine: what it leaves behind when the run that started it is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import runs
from lab.common import wait
from lab.kind import archive, engine, runc_lab
from lab.kind.engine import Engine
from support.fixtures import start_if_it_can_be_had

# Started by a run of its own, which is killed while a container of its engine runs.
RUN = """
import sys, time
from pathlib import Path
from lab import runs
from lab.kind.engine import Engine
folder = Path(sys.argv[1])
runs.claim(folder)
folder.mkdir()
engine = Engine(folder)
engine.start(int(sys.argv[2]))
engine.docker("load", "--input", sys.argv[3])
engine.docker("network", "create", "lab")
engine.docker("run", "--detach", "--privileged", "--network", "lab", "lab/idle:1")
print("runs", flush=True)
time.sleep(1000)
"""


@pytest.mark.smoke
def test_a_killed_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_if_it_can_be_had("a Docker engine", Engine.check_machine)
    monkeypatch.setenv("STORAGE_OPS_CACHE", str(tmp_path / "cache"))
    before = _machine()
    folder = tmp_path / f"engine-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment.pop(runs.VARIABLE, None)
    command = [sys.executable, "-c", RUN, str(folder), "18765", str(_idle_image(tmp_path))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        inside = len(_processes(folder.name))
        process.kill()
        assert said == "runs\n", said + process.stdout.read()
    assert inside == 1
    runs.sweep()
    wait(lambda: not _processes(folder.name), "the container has ended")
    assert not folder.exists()
    assert list(runs.CGROUPS.glob(f"**/lab-{folder.name}")) == []
    assert _machine() == before


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip), ("true", pytest.fail)])
def test_a_machine_that_cannot_run_it_says_so(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: Any
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(engine, "SBIN", "")
    with pytest.raises(outcome.Exception, match="NOT TESTED: an engine .* no dockerd, docker"):
        start_if_it_can_be_had("an engine", Engine.check_machine)


def test_what_a_machine_lacks_is_not_asked_for() -> None:
    process = {
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": None},
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1 << 40, "hard": 1 << 40}],
        "oomScoreAdj": -500,
    }
    runc_lab.trim(process, {"CAP_CHOWN"})
    assert process["capabilities"] == {"bounding": ["CAP_CHOWN"], "ambient": []}
    assert process["rlimits"] == [] and process["oomScoreAdj"] == 0


def _idle_image(folder: Path) -> Path:
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    (root / "proc").mkdir()
    shutil.copy("/bin/busybox", root / "bin/busybox")
    made = folder / "idle.tar"
    archive.write_one(made, ["lab/idle:1"], root, {"Cmd": ["/bin/busybox", "sleep", "1000"]})
    return made


def _processes(name: str) -> list[str]:
    """Those in the engine's containers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"/lab-{name}/" in (entry / "cgroup").read_text():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


def _machine() -> tuple[list[str], list[str]]:
    """What Docker has in the network of this machine: bridges and firewall lines."""
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True)
    bridges = [name for name in os.listdir("/sys/class/net") if name.startswith(("br-", "docker"))]
    return sorted(bridges), [line for line in rules.stdout.splitlines() if "DOCKER" in line]
