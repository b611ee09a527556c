# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ceph of another Debian release on this machine: LAB_CEPH names the release.

Each of its programs is a process with the release's /usr in place of this machine's, in a mount
namespace of its own. All other folders are this machine's, so a path means the same to both, and
nothing stays mounted when the process has ended.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from .. import runs
from ..common import LabError, cache_dir, locked, run, step
from ..image import debian_mirrors

VARIABLE = "LAB_CEPH"
RELEASES = ("bullseye", "bookworm", "trixie", "sid")
BUILD_DEADLINE = 1800.0
# The last two are for ceph-fuse of Ceph 18: it aborts 5 s after its start if it cannot have a shell
# mount it again.
PACKAGES = (
    *("ceph-mon", "ceph-osd", "ceph-common", "ceph-fuse", "python3-rados", "python3-rbd"),
    *("mount", "dash"),
)
PROGRAMS = (
    *("ceph-mon", "ceph-osd", "ceph-mds", "ceph-fuse", "monmaptool", "ceph-authtool"),
    *("ceph", "rados", "rbd"),
)
# That of this machine, and that of each release.
PYTHON = "/usr/bin/python3"
# Before Debian 12 packages have files in /bin and /lib, too. Here all of them are to be in /usr.
MERGED = (
    'cd "$1" && for i in bin sbin lib lib64; do mkdir -p usr/$i && ln -s usr/$i . || exit; done'
)
# Its package needs that of the manager, with 30 others, of which it uses none.
METADATA = (
    'mkdir "$1/mds" && cd "$1/mds" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download ceph-mds '
    "&& dpkg-deb --extract ceph-mds_*.deb . && cp usr/bin/ceph-mds ../usr/bin/"
)
# A program is a symbolic link to this. A new mount namespace is private (unshare(1)).
ENTER = """\
#!/bin/sh
# Runs the program that this is called by, of Debian {release}.
exec unshare --mount sh -c 'mount --bind "$1" /usr && shift && exec "$@"' \\
    enter {usr} "/usr/bin/${{0##*/}}" "$@"
"""


def name() -> str:
    """The release whose Ceph is used; empty for that of this machine."""
    release = os.environ.get(VARIABLE, "")
    if release and release not in RELEASES:
        raise LabError(f"{VARIABLE}={release}: the lab knows {', '.join(RELEASES)}")
    return release


def python() -> str:
    """The interpreter that has the modules rados and rbd of the Ceph that is used."""
    return str(_folder(name()) / "python3") if name() else PYTHON


def use() -> None:
    """Have this process, and all that it starts, find the programs of the release that LAB_CEPH
    names. They are unpacked first if the cache has none that were made by this very recipe.
    """
    if not name():
        return
    folder = _folder(name())
    if not folder.exists():
        with locked(folder.parent / f"{name()}.lock", BUILD_DEADLINE):
            if not folder.exists():
                _build(name(), folder)
    paths = os.environ["PATH"].split(":")
    if str(folder / "bin") not in paths:
        os.environ["PATH"] = ":".join((str(folder / "bin"), *paths))


def _folder(release: str) -> Path:
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return cache_dir() / "ceph-releases" / f"{release}-{key}"


def _build(release: str, target: Path) -> None:
    if os.geteuid() != 0:
        raise LabError("unpacking Ceph of another release needs root (mmdebstrap): run as root")
    if not shutil.which("mmdebstrap"):
        raise LabError("mmdebstrap is not installed: see tests/lab/apt-packages.txt")
    work = Path(tempfile.mkdtemp(prefix=f".{release}-", dir=target.parent))
    try:
        with step(f"Ceph of {release}: unpacking Debian into a folder"):
            _unpack(release, work / "root")
        made = work / "made"
        (made / "bin").mkdir(parents=True)
        (work / "root/usr").rename(made / "usr")
        enter = made / "enter"
        enter.write_text(ENTER.format(release=release, usr=shlex.quote(str(target / "usr"))))
        enter.chmod(0o755)
        for program in PROGRAMS:
            (made / "bin" / program).symlink_to("../enter")
        # Not in the folder that is put on PATH: it is for what asks for it, and for nothing else.
        (made / "python3").symlink_to("enter")
        made.rename(target)
    finally:
        runs.remove(work)


def _unpack(release: str, root: Path) -> None:
    # Nothing of it is configured: what runs needs only its files.
    options = ["--variant=extract", "--mode=root", f"--include={','.join(PACKAGES)}"]
    options += [f"--setup-hook={MERGED}", f"--extract-hook={METADATA}"]
    options += ['--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "3"']
    options += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "locale", "man")]
    # Sid has no other updates, and those of a release that Debian no longer supports are listed,
    # but gone.
    mirrors = [line for line in debian_mirrors(release) if f"{release}-security" not in line]
    run(
        ["mmdebstrap", *options, release, str(root), *mirrors],
        BUILD_DEADLINE,
        label=f"Ceph of {release}",
    )
