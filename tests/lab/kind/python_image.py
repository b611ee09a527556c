# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container image with Python, made without an engine and without a registry.

Its Debian is older than that of the lab's nodes: Python 3.9, the oldest that the collection
supports, and another C library. What took the node's libraries by mistake would not work there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from .. import image as vm_image
from .. import runs
from ..common import LabError, cache_dir, locked, run, step
from ..kubernetes.build import Unavailable
from . import archive

IMAGE = "storage-ops/python:1"
RELEASE = "bullseye"
# Ansible runs its commands by sh, and makes folders and copies files by the others.
PACKAGES = ("python3", "dash", "coreutils")
BUILD_DEADLINE = 1800.0


def python_image() -> Path:
    """An archive with the image. Raises Unavailable when it cannot be had."""
    recipe = [path.read_bytes() for path in map(Path, (__file__, archive.__file__))]
    key = hashlib.sha256(b"\0".join(recipe)).hexdigest()[:12]
    target = cache_dir() / "images" / f"python-{RELEASE}-{key}.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        with locked(target.parent / "python.lock", BUILD_DEADLINE):
            if not target.exists():
                _build(target)
    return target


def _build(target: Path) -> None:
    if os.geteuid() != 0:
        raise LabError("building the image with Python needs root (chroot): run as root")
    if not shutil.which("mmdebstrap"):
        raise Unavailable("mmdebstrap is not installed: see tests/lab/kind/apt-packages.txt")
    work = Path(tempfile.mkdtemp(prefix=".python-", dir=target.parent))
    try:
        root, packed = work / "root", work / target.name
        # Nothing of it is configured: what runs needs only its files.
        options = ["--variant=extract", "--mode=root", f"--include={','.join(PACKAGES)}"]
        options += ['--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "3"']
        options += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man")]
        mirrors = vm_image.debian_mirrors(RELEASE)
        with step("image with Python: unpacking Debian into a folder"):
            run(
                ["mmdebstrap", *options, RELEASE, str(root), *mirrors],
                BUILD_DEADLINE,
                label="image with Python",
            )
        archive.write_one(packed, [IMAGE], root, {})
        packed.rename(target)
    finally:
        runs.remove(work)
