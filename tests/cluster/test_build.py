# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A build that was ended at any moment leaves to the next one only what that one can use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lab.__main__ import prepare
from lab.common import LabError, locked
from lab.kubernetes import build
from lab.kubernetes.build import OLD, PARTS, Unavailable, current

# A build of which the compiler holds the lock on "compiler" until it ends.
BUILD = """
import sys
from pathlib import Path
from lab.common import run
from lab.kubernetes.build import OLD, _building
with _building(OLD) as work:
    (work / "gocache").mkdir()
    (work / "bin/half").touch()
    run(["flock", "--no-fork", sys.argv[1], "sleep", "1000"], 2000, tied=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where builds are made, in a cache of its own."""
    monkeypatch.setenv("STORAGE_OPS_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    return tmp_path / "kubernetes"


def work_of(folder: Path) -> Path:
    return folder / f".{OLD}-{build._key(OLD)}"


def contents(folder: Path) -> set[str]:
    return {str(found.relative_to(folder)) for found in folder.rglob("*")}


def test_others_leftovers_go_and_its_own_caches_stay(folder: Path) -> None:
    own = work_of(folder)
    for others in (".1.20.2-abcd1234/tree/x", ".current-0/gocache", "1.20.2-0"):
        (folder / others).mkdir(parents=True)
    for left in ("gocache/00", "bin/etcd"):
        (own / left).mkdir(parents=True)
    (own / "go.mod").touch()
    with build._building(OLD) as work:
        assert work == own
        assert {found.name for found in folder.iterdir()} == {"build.lock", "1.20.2-0", own.name}
        assert contents(own) == {"gocache", "gocache/00", "bin"}
    assert {found.name for found in folder.iterdir()} == {"build.lock", "1.20.2-0"}


def test_a_failed_build_keeps_its_caches(folder: Path) -> None:
    def fail() -> None:
        with build._building(OLD) as work:
            (work / "modules").mkdir()
            raise LabError("no compiler")

    with pytest.raises(LabError, match="no compiler"):
        fail()
    assert (work_of(folder) / "modules").is_dir()


def test_a_killed_build_ends_with_its_programs(folder: Path, tmp_path: Path) -> None:
    """Its lock is free, its compiler gone, its caches are there for the next one."""
    compiler = tmp_path / "compiler"
    with subprocess.Popen([sys.executable, "-c", BUILD, str(compiler)]) as process:
        try:
            while not _is_locked(compiler):
                assert process.poll() is None
        finally:
            process.kill()
    with locked(compiler, 120), build._building(OLD) as work:
        assert contents(work) == {"gocache", "bin"}


def _is_locked(path: Path) -> bool:
    """Tried by a program that ends, so that a lock that is had is not kept."""
    if not path.exists():
        return False
    return subprocess.run(["flock", "-n", str(path), "true"], check=False).returncode != 0


def test_out_of_reach(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a module nor a Debian package can be had: each part says so, and nothing is left."""
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("LAB_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    for part in PARTS:
        with pytest.raises(Unavailable):
            current(part)
        assert contents(folder) == {"build.lock"}


def test_prepare_goes_on_and_fails_only_for_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    built: list[str] = []

    def out_of_reach() -> None:
        raise Unavailable("no mirror")

    def broken() -> None:
        raise LabError("no compiler")

    assert prepare({"a": out_of_reach, "b": lambda: built.append("b")}) == 0
    assert prepare({"a": out_of_reach, "b": broken, "c": lambda: built.append("c")}) == 1
    assert built == ["b", "c"]
    said = capsys.readouterr().err
    assert "prepare a: NOT AVAILABLE here: no mirror" in said
    assert "prepare b: FAILED: no compiler" in said
