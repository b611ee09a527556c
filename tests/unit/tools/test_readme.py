# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""README.md stays short and true, and the pages that are shipped lead to each other, as in the
checkout: a site without a network reads them in the collection's folder.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest
import yaml

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.controls import CONTROLS

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text("utf-8")
# They are parts of others.
PARTS = {"check_limit", "check_target", "conclude", "merge_compliance_reports"}
# Not to an address, and not what a block of code shows.
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.M | re.S)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of the built collection; of pages the text."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        ["ansible-galaxy", "collection", "build", "--output-path", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    (tarball,) = folder.glob("*.tar.gz")
    files = {}
    with tarfile.open(tarball) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream:
                page = member.name.endswith(".md")
                files[member.name] = stream.read().decode("utf-8") if page else ""
    return files


def anchor(heading: str) -> str:
    """As GitHub and myst-parser name it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_it_is_read_in_five_minutes() -> None:
    assert len(README.split()) <= 900


def test_each_playbook_is_in_its_table() -> None:
    table = README.partition("\n|---")[2].partition("\n\n")[0]
    named = set(re.findall(r"\| `(\w+)` \|", table))
    assert named == {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - PARTS


def test_its_commands_name_what_exists() -> None:
    pages = [README, (ROOT / "docs/guides/first_steps.md").read_text("utf-8")]
    for page in pages:
        for name in re.findall(r"^ansible-playbook storage_ops\.runbooks\.(\w+)", page, re.M):
            assert (ROOT / f"playbooks/{name}.yml").is_file(), name
        for name in re.findall(r"^ansible .* -m storage_ops\.runbooks\.(\w+)", page, re.M):
            assert (ROOT / f"plugins/modules/{name}.py").is_file(), name
        targets = re.findall(r"(?:^|`)make ([a-z-]+)", page, re.M)
        makefile = (ROOT / "Makefile").read_text("utf-8")
        assert targets and all(f"\n{target}: ## " in makefile for target in targets), targets


def test_cron_finds_what_was_installed() -> None:
    """It has neither the PATH nor the variables of the shell."""
    (folder,) = re.findall(r"^python3 -m venv ~/(\S+)", README, re.M)
    steps = (ROOT / "docs/guides/first_steps.md").read_text("utf-8")
    (line,) = re.findall(r"^30 2 \* \* \* (.*)$", steps, re.M)
    assert f" $HOME/{folder}/bin/ansible-playbook " in line and line.startswith("KUBECONFIG=$HOME/")


def test_who_makes_an_environment_is_told_what_debian_lacks() -> None:
    """Its python3 cannot make one."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    making = [path for path in pages if "python3 -m venv" in path.read_text("utf-8")]
    assert making and all("`python3-venv`" in path.read_text("utf-8") for path in making)


def test_the_version_to_pin_is_the_collections() -> None:
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text("utf-8"))["version"]
    pages = [README, (ROOT / "docs/installation.md").read_text("utf-8")]
    for page in pages:
        pinned = set(re.findall(r"(?:version: v?|/tree/v|runbooks-)(\d+(?:\.\d+)+)", page))
        assert pinned == {version}


def test_each_control_is_on_its_page() -> None:
    page = (ROOT / "docs/controls.md").read_text("utf-8")
    rows = re.findall(r"^\| (STOR-\d\d) \| .* \| `(\w+)`(?: \(reports\))? \| [^|]+ \|$", page, re.M)
    assert rows == [(control.id, control.playbook) for control in CONTROLS.values()]


def test_guides_are_shipped_and_the_sites_tools_are_not(shipped: dict[str, str]) -> None:
    pages = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if "site" not in path.relative_to(ROOT).parts
    }
    assert len(pages) > 20 and pages <= set(shipped)
    assert not [name for name in shipped if name.startswith(("docs/site/", "tests/", "."))]


def test_links_of_the_shipped_pages_lead_to_what_is_shipped(shipped: dict[str, str]) -> None:
    count = 0
    for name, text in shipped.items():
        for path, part in LINK.findall(CODE.sub("", text)):
            count += 1
            target = normpath(join(dirname(name), path)) if path else name
            assert target in shipped, (name, target)
            if part:
                headings = re.findall(r"^#+ (.*)$", shipped[target], re.M)
                assert part in map(anchor, headings), (name, target, part)
    assert count > 100
