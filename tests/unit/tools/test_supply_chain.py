# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed as root, or on the way to it, is named exactly: packages, collections, the
version that AWX syncs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.action.on_node import UNTRIED

ROOT = Path(__file__).resolve().parents[3]
LOCKED = ROOT / "requirements/execution-environment.txt"
DECISIONS = ROOT / "requirements/decision-environment.txt"


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def names(text: str) -> set[str]:
    """Packages that requirements name, by whatever condition."""
    found = re.findall(r"^([A-Za-z0-9._-]+) ?[<>=~!]", text, re.MULTILINE)
    return {name.lower() for name in found}


@pytest.mark.parametrize("locked", [LOCKED, DECISIONS])
def test_every_package_has_one_version_and_hashes(locked: Path) -> None:
    lines = locked.read_text(encoding="utf-8").split("\n")
    for here, following in zip(lines, lines[1:]):
        if not here or here.lstrip().startswith("#"):
            continue
        if not here.startswith(" "):
            assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]* \\", here), here
            assert following.startswith("    --hash=sha256:"), here
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", here), here


def test_what_is_asked_for_is_locked() -> None:
    wanted = (ROOT / "requirements/execution-environment.in").read_text(encoding="utf-8")
    wanted += (ROOT / "meta/ee-requirements.txt").read_text(encoding="utf-8")
    assert (
        {"ansible-core", "kubernetes", "jmespath"}
        <= names(wanted)
        <= names(LOCKED.read_text(encoding="utf-8"))
    )


def test_the_locked_ansible_core_runs_modules_on_hosts() -> None:
    """With one that is too new, they would refuse to run."""
    wanted = (ROOT / "requirements/execution-environment.in").read_text(encoding="utf-8")
    (below,) = re.findall(r"(?m)^ansible-core >= [0-9.]+, < ([0-9.]+)$", wanted)
    assert below == "{}.{}".format(*UNTRIED)
    (locked,) = re.findall(r"(?m)^ansible-core==(\d+)\.(\d+)", LOCKED.read_text(encoding="utf-8"))
    assert (2, 20) <= tuple(map(int, locked)) < UNTRIED


def test_the_environment_for_decisions_has_what_the_other_one_has() -> None:
    """So that the list of the other one, which a release has, names its packages."""

    def packages(path: Path) -> set[tuple[str, ...]]:
        text = re.sub(r"(?m)^ *#.*\n", "", path.read_text(encoding="utf-8"))
        return {tuple(found.split()) for found in re.findall(r"(?m)^[a-z].*(?:\n .*)*", text)}

    assert {found[0].partition("==")[0] for found in packages(DECISIONS)} >= {"kubernetes"}
    assert packages(DECISIONS) < packages(LOCKED)


@pytest.mark.parametrize("locked", [LOCKED, DECISIONS])
def test_no_place_to_fetch_from_is_in_the_lock(locked: Path) -> None:
    """It is the machine's, and an operator may have another."""
    assert not re.search(
        r"^[^#\n]*(://|--(extra-)?index|--find|--trusted)",
        locked.read_text(encoding="utf-8"),
        re.MULTILINE,
    )


@pytest.mark.parametrize("name", ["execution-environment.yml", "decision-environment.yml"])
def test_collections_of_the_environment_have_exact_versions(name: str) -> None:
    galaxy, own = (
        load(name)["dependencies"]["galaxy"]["collections"],
        load("galaxy.yml"),
    )
    built = f"{own['namespace']}-{own['name']}-{own['version']}.tar.gz"
    assert [found["name"] for found in galaxy if found.get("type") == "file"] == [built]
    rest = {found["name"]: found["version"] for found in galaxy if found.get("type") != "file"}
    assert set(rest) == set(own["dependencies"])
    assert all(re.fullmatch(r"[0-9]+(\.[0-9]+)+", version) for version in rest.values()), rest


def test_what_awx_syncs_is_the_version() -> None:
    (found,) = load("collections/requirements.yml")["collections"]
    assert found["version"] == f"v{load('galaxy.yml')['version']}"
