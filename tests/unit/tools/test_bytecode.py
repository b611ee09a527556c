# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The code that nodes are given: it is found where Ansible has a module imported out of a zip
archive.
"""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

bytecode = pytest.importorskip("lab.bytecode")
GUEST = Path(bytecode.__file__).with_name("guest")
PREFIX = bytecode.PACKAGE.replace(".", "/")


def archive(target: Path) -> None:
    """As Ansible packs modules: the files as they are, and packages around them."""
    with zipfile.ZipFile(target, "w") as found:
        made = set()
        for path in sorted(bytecode.PLUGINS.rglob("*.py")):
            inside = Path(PREFIX, path.relative_to(bytecode.PLUGINS))
            found.writestr(str(inside), path.read_bytes())
            made |= {inside, *(folder / "__init__.py" for folder in inside.parents)}
        for path in sorted(made - {Path("__init__.py")}):
            if str(path) not in found.namelist():
                found.writestr(str(path), "")


@pytest.mark.parametrize("given", [True, False])
def test_a_node_module_compiles_nothing_of_ours(given: bool, tmp_path: Path) -> None:
    archive(tmp_path / "module.zip")
    kept = tmp_path / "kept"
    kept.mkdir()
    if given:
        data = io.BytesIO(base64.b64decode(bytecode.packed(frozenset())))
        with tarfile.open(fileobj=data) as packed:
            packed.extractall(kept)
    before = set(os.listdir(kept))
    paths = {"PYTHONPATH": f"{tmp_path}/module.zip:{GUEST}", "LAB_BYTECODE": str(kept)}
    subprocess.run(
        [sys.executable, "-c", f"import {bytecode.PACKAGE}.modules.multipath_residual"],
        env={**os.environ, **paths},
        check=True,
        timeout=60,
    )
    made = {name for name in set(os.listdir(kept)) - before if not name.endswith("__init__.py")}
    assert bool(made) is not given, made


def test_only_what_is_not_there_is_packed() -> None:
    names = list(bytecode.compiled())
    data = io.BytesIO(base64.b64decode(bytecode.packed(frozenset(names[1:]))))
    with tarfile.open(fileobj=data) as packed:
        assert packed.getnames() == names[:1]
    assert bytecode.packed(frozenset(names)) == ""
