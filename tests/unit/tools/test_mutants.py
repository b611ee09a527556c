# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which refusals are dropped by `make mutants`, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.storage_ops.runbooks.tests.tools import mutants

SOURCE = """
def judge(state):
    reasons = []
    if state.held or "ä" in state.name:
        reasons.append(Reason("held", "x"))
    elif (busy := state.busy):
        finding.refuse(Reason("busy", f"{busy}"))
    if state.other:
        for name in state.names:
            if name:
                reasons.append(Reason("name", name))
    reasons += [Reason("late", each) for each in state.late if each > 3]
    return Reason("open", "y") if state.open else None
"""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[mutants.Mutant]:
    (tmp_path / "plugins/module_utils/_x").mkdir(parents=True)
    (tmp_path / "plugins/module_utils/_x/plan.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return list(mutants.mutants_of(Path("plugins/module_utils/_x/plan.py")))


def test_every_condition_of_a_reason_is_a_mutant_and_no_other(found: list[mutants.Mutant]) -> None:
    assert [mutant.condition for mutant in found] == [
        "state.held or 'ä' in state.name",
        "(busy := state.busy)",
        "name",
        "each > 3",
        "state.open",
    ]
    assert {mutant.function for mutant in found} == {"judge"}


def test_only_the_condition_is_changed(found: list[mutants.Mutant]) -> None:
    wanted = (
        'if ((state.held or "ä" in state.name) and False):',
        "(((busy := state.busy) and False)):",
    )
    assert wanted[0] in found[0].text and wanted[1] in found[1].text
    assert all(mutant.text.count("and False)") == 1 for mutant in found)
    for mutant in found:
        compile(mutant.text, "mutant", "exec")


ABSENCES = """
def not_applicable(state):
    absent = {}
    if not state.maps and not state.disks:
        absent["STOR-02"] = "none"
    inside = [mount for mount in state.mounts if mount.inside]
    if state.root and inside:
        return {}
    return absent

def signs(state):
    found = []
    if state.sessions:
        found.append("a session")
    return found

def other(state):
    if state.sessions:
        return {}
"""


def test_a_control_is_not_applicable_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.py").write_text(ABSENCES, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "FOLDER", Path())
    found = {one.condition: one for one in mutants.mutants_of(Path("plan.py"))}
    changed = {
        condition: "or True)" if "or True)" in one.text else "and False)"
        for condition, one in found.items()
    }
    assert changed == {
        **dict.fromkeys(("not state.maps", "not state.disks"), "or True)"),
        **dict.fromkeys(("state.root", "inside", "mount.inside", "state.sessions"), "and False)"),
    }
    assert {one.function for one in found.values()} == {"not_applicable", "signs"}
    for one in found.values():
        compile(one.text, "mutant", "exec")


def test_each_is_in_one_share(found: list[mutants.Mutant]) -> None:
    shares = [mutants.chosen(found, str(number)) for number in range(mutants.SHARES)]
    assert sorted(str(mutant) for share in shares for mutant in share) == sorted(map(str, found))
    assert mutants.chosen(found, "all") == found
