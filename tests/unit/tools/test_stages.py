# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runner of the stages: no failure ends another stage, nothing fails unseen, nothing stays."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "tools" / "stages.py"


def load(path: Path, name: str) -> ModuleType:
    """A file of tests that is no part of a package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


stages = load(PROGRAM, "stages_under_test")
selection = load(ROOT / "tests" / "conftest.py", "conftest_under_test")
Stage = stages.Stage


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Makefile of three stages."""
    lines = [
        "good:",
        "\t@echo fine >> log",
        "bad:",
        "\t@echo wrong >> log; echo FAILED test_x - why; seq 100; exit 3",
        "hangs:",
        "\t@echo $$$$ > pid; exec sleep 600",
    ]
    (tmp_path / "Makefile").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_failure_ends_no_other_stage_and_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = stages.Runner([[Stage("bad", 1), Stage("good", 1)]])
    assert runner.run() == 1
    assert (folder / "log").read_text().split() == ["wrong", "fine"]
    assert "bad      | FAILED with 2 after" in capsys.readouterr().out
    assert {record.name: record.rc for record in runner.records} == {"bad": 2, "good": 0}


def test_what_a_failed_stage_said_last_is_said_again_at_the_end(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages.Runner([[Stage("bad", 1), Stage("good", 1)]]).run()
    lines = capsys.readouterr().out.splitlines()
    end = lines[lines.index("bad      | failed; its last 40 lines:") :]
    assert lines.index("good     | begins") < len(lines) - len(end)
    assert "bad      | 99" in end and "bad      | 10" not in end
    assert end[-1] == "bad      | FAILED with 2"


def test_what_a_stage_failed_of_is_in_the_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a stage whose tests are in no JUnit file, however much it said after that."""
    monkeypatch.setattr(stages, "PLANS", {"test": ((Stage("bad", 1), Stage("good", 1)),)})
    stages.Runner(stages.PLANS["test"]).run()
    capsys.readouterr()
    assert stages.table() == 1
    assert "\nFAILED: bad\nFAILED test_x - why\n" in capsys.readouterr().out


def test_a_stage_waits_for_what_it_needs_even_if_that_failed(folder: Path) -> None:
    runner = stages.Runner([[Stage("good", 1, after=("bad",))], [Stage("bad", 1)]])
    assert runner.run() == 1
    assert (folder / "log").read_text().split() == ["wrong", "fine"]


def test_a_stage_that_would_wait_lets_the_others_of_its_lane_go_first(folder: Path) -> None:
    """One lane: waiting for what comes after it would have no end."""
    runner = stages.Runner([[Stage("good", 1, after=("bad",)), Stage("bad", 1)]])
    assert runner.run() == 1
    assert (folder / "log").read_text().split() == ["wrong", "fine"]


def test_an_idle_lane_takes_a_stage_of_another(folder: Path) -> None:
    """Each of two stages of one lane ends only once the other one has begun."""
    waits = "for i in $$(seq 1200); do [ ! -e {} ] || exit 0; sleep 0.05; done; false"
    lines = [
        f"first:\n\t@touch a; {waits}".format("b"),
        f"second:\n\t@touch b; {waits}".format("a"),
    ]
    (folder / "Makefile").write_text("\n".join([*lines, "good:\n\t@true\n"]))
    runner = stages.Runner([[Stage("first", 1), Stage("second", 1)], [Stage("good", 1)]])
    assert runner.run() == 0
    assert len(runner.records) == 3


def test_a_stage_that_cannot_be_run_is_a_failure_and_holds_up_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    runner = stages.Runner([[Stage("good", 1, after=("bad",))], [Stage("bad", 1)]])
    assert runner.run() == 1
    assert runner.records == []


def runs(pid: int) -> bool:
    """It is there, and not merely not waited for. It may go while it is looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_runner_that_is_killed_leaves_no_stage(folder: Path, number: int) -> None:
    code = f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import stages"
    code += "; stages.Runner([[stages.Stage('hangs', 1)]]).run()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as runner:
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            assert runner.poll() is None
            time.sleep(0.05)
        os.kill(runner.pid, number)
        runner.wait()
    pid = int((folder / "pid").read_text())
    # Whether it ends, not when: a test that hangs here is ended by its stage's deadline.
    while runs(pid):
        time.sleep(0.05)


def test_the_table_shows_shares_failures_and_the_slowest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [stage.name for lane in stages.PLANS["test"] for stage in lane][:2]
    for name, rc, seconds in ((names[0], 0, 61.0), (names[1], 2, 30.0)):
        stages.Record(name, rc, seconds, 1).save()
    cases = "".join(
        f'<testcase classname="tests.cluster.test_x" name="test_{n}" time="{n}"/>'
        for n in range(12)
    )
    cases += (
        '<testcase classname="tests.ceph.test_y" name="test_bad" time="100">'
        '<properties/><failure message="assert 1 == 2">long</failure></testcase>'
    )
    cases += (
        '<testcase classname="tests.ceph.test_y" name="test_left" time="0"><skipped/></testcase>'
    )
    (stages.RECORDS / "smoke.xml").write_text(
        f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
    )
    assert stages.table() == 1
    text = capsys.readouterr().out
    assert f"{names[0]:10}      1.0      1  over its share" in text
    assert f"{names[1]:10}      0.5      1  FAILED with 2" in text
    slowest = text[text.index("slowest tests") :]
    assert slowest.index("ceph.test_y::test_bad") < slowest.index("cluster.test_x::test_11")
    assert "test_2" not in slowest and "test_3" in slowest
    end = "\nFAILED: smoke ceph.test_y::test_bad\nassert 1 == 2\n\n12 passed, 1 failed, 1 skipped"
    assert text.rstrip().endswith(end)


def test_ci_skips_no_test(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a developer's machine cannot have, that of CI can."""
    suite = (
        '<testsuites><testsuite><testcase classname="tests.ceph.test_y" name="test_left" '
        'time="0">{}</testcase></testsuite></testsuites>'
    )
    stages.RECORDS.mkdir(parents=True, exist_ok=True)
    for left, in_ci, rc in (("<skipped/>", True, 1), ("<skipped/>", False, 0), ("", True, 0)):
        (stages.RECORDS / "smoke.xml").write_text(suite.format(left))
        if in_ci:
            monkeypatch.setenv("CI_RECORDS", "keep")
        else:
            monkeypatch.delenv("CI_RECORDS", raising=False)
        assert stages.table() == rc
        assert ("CI skips no test" in capsys.readouterr().out) == bool(rc)


def test_every_stage_is_a_target_and_the_shares_are_the_budget() -> None:
    targets = (ROOT / "Makefile").read_text()
    for plan in stages.PLANS.values():
        names = {stage.name for lane in plan for stage in lane}
        for lane in plan:
            for stage in lane:
                assert f"\n{stage.name}:" in targets
                # A stage that no plan runs would be waited for until CI ends.
                assert names.issuperset(stage.after)
    longest = [
        max(sum(stage.share for stage in lane) for lane in plan) for plan in stages.PLANS.values()
    ]
    assert sum(longest) <= 70


def test_what_runs_on_real_parts_waits_for_them() -> None:
    """Any lane may take a stage, so its place in a lane says nothing."""
    makefile = (ROOT / "Makefile").read_text()
    parts = {"$(KIND)", "$(LAB)", "$(REAL)"}
    found = {
        stage.name: stage.after
        for lane in stages.PLANS["test"]
        for stage in lane
        if any(part in makefile.split(f"\n{stage.name}:")[1].split("\n\n")[0] for part in parts)
    }
    assert set(found) == {"prepare", "smoke", "kind", "molecule"}
    assert found.pop("prepare") == ()
    assert set(found.values()) == {("prepare",)}


class TestVariations:
    """The rotation of what varies another test."""

    def test_a_commit_chooses_a_number(self) -> None:
        said = subprocess.run([ROOT / "tests/tools/share.sh"], capture_output=True, check=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=False)
        assert int(said.stdout) == int(head.stdout or b"0", 16) % selection.NUMBERS

    @pytest.mark.parametrize(("mark", "shares"), selection.SHARES.items())
    def test_a_test_is_taken_by_each_number_of_its_share(self, mark: str, shares: int) -> None:
        names = [f"tests/faults/test_x.py::test_{test}" for test in range(50)]
        taken = [selection.taken(names, mark, number) for number in range(selection.NUMBERS)]
        for name in names:
            takes = [number for number, found in enumerate(taken) if name in found]
            assert takes == list(range(takes[0], selection.NUMBERS, shares))

    @pytest.mark.parametrize(("mark", "shares"), selection.SHARES.items())
    def test_shares_have_equally_many_of_a_folder(self, mark: str, shares: int) -> None:
        slow = [f"tests/kubelets/test_{test}.py::test_it" for test in range(26)]
        other = [f"tests/ceph/test_x.py::test_{test}" for test in range(33)]
        for number in range(selection.NUMBERS):
            taken = selection.taken([*other, *slow], mark, number)
            for names in (slow, other):
                assert 0 <= len(taken & set(names)) - len(names) // shares <= 1
            # Without the others it is the same.
            assert selection.taken(slow[::-1], mark, number) == taken & set(slow)

    def test_no_share_has_the_only_test_of_all_folders(self) -> None:
        names = [f"tests/folder_{test}/test_x.py::test_it" for test in range(100)]
        for number in range(selection.NUMBERS):
            assert len(selection.taken(names, "variation", number)) < 20

    def test_all_and_one(self) -> None:
        assert selection.chosen("all") is None
        assert selection.chosen("2") == 2

    @pytest.mark.parametrize("option", ["", "commit", "-1", str(selection.NUMBERS), "1.5"])
    def test_a_misspelt_choice_is_an_error(self, option: str) -> None:
        with pytest.raises(pytest.UsageError, match="all, or a number"):
            selection.chosen(option)


def test_records_can_be_read_back(folder: Path) -> None:
    stages.Record("lint", 0, 1.5, 2).save()
    assert json.loads((stages.RECORDS / "lint.json").read_text()) == {
        "name": "lint",
        "rc": 0,
        "seconds": 1.5,
        "share": 2,
        "failures": [],
    }
