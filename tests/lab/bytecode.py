# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's Python would compile of our modules, compiled here: an emulated processor takes
seconds for what one call needs.

A node finds it by a hash of the source (`guest/lab_bytecode.py`) that differs between versions of
Python: another version finds nothing, and compiles by itself.
"""

from __future__ import annotations

import base64
import functools
import io
import marshal
import re
import tarfile
from collections.abc import Iterator
from importlib.util import source_hash
from pathlib import Path

FOLDER = "/var/cache/lab-bytecode"
PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
PACKAGE = "ansible_collections.storage_ops.runbooks.plugins"
# What runs where Kubernetes or Ceph is reached, and not on a node.
ELSEWHERE = {"_kube", "_ceph"}
USED = re.compile(r"^\s*from \.+(?:module_utils\.)?(_\w+)", re.MULTILINE)


@functools.cache
def compiled() -> dict[str, bytes]:
    """Name of a file in ``FOLDER`` -> its content, for the modules of nodes and what they use."""
    found = {}
    for path in _sources():
        source = path.read_bytes()
        name = ".".join((PACKAGE, *path.relative_to(PLUGINS).parts))
        code = marshal.dumps(compile(source, name, "exec", dont_inherit=True))
        place = f"{source_hash(source).hex()}-{len(source)}-{name}"
        found[place] = source_hash(code) + code
    return found


@functools.cache
def packed(known: frozenset[str]) -> str:
    """All but the files of these names, for ``base64 -d | tar -xz``; empty: there is no other."""
    missing = {name: content for name, content in compiled().items() if name not in known}
    if not missing:
        return ""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in missing.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return base64.b64encode(target.getvalue()).decode()


def _sources() -> Iterator[Path]:
    folders = [path for path in (PLUGINS / "module_utils").iterdir() if path.is_dir()]
    uses = {folder.name: _uses(*folder.rglob("*.py")) for folder in folders}
    wanted: set[str] = set()
    for module in sorted((PLUGINS / "modules").glob("*.py")):
        reached, further = set[str](), _uses(module)
        while further:
            reached |= further
            further = {name for one in further for name in uses.get(one, ())} - reached
        if not reached & ELSEWHERE:
            wanted |= reached
            yield module
    for folder in sorted(folders):
        if folder.name in wanted:
            yield from sorted(folder.rglob("*.py"))


def _uses(*paths: Path) -> set[str]:
    return {name for path in paths for name in USED.findall(path.read_text())}
