# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container images made without an engine: an archive as `docker save` writes it, with one layer.

What is in it: image-spec's `docker image specification v1.2`, github.com/moby/docker-image-spec.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common import run

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACK_DEADLINE = 300.0


def write(target: Path, names: Sequence[str], root: Path, config: Mapping[str, Any]) -> None:
    """An image of what is in a folder, with its owners; `config`: Cmd, Entrypoint, Env, ..."""
    layer = target.with_suffix(".layer")
    pack = ["tar", "--sort=name", "--numeric-owner", "-C", str(root), "-cf", str(layer), "."]
    run(pack, PACK_DEADLINE)
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [PATH], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    described = json.dumps(about).encode()
    identity = hashlib.sha256(described).hexdigest()
    entry = {
        "Config": f"{identity}.json",
        "RepoTags": list(names),
        "Layers": [f"{digest}.tar"],
    }
    with tarfile.open(target, "w") as archive:
        archive.add(layer, f"{digest}.tar")
        for path, data in (
            (f"{identity}.json", described),
            ("manifest.json", json.dumps([entry]).encode()),
        ):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    layer.unlink()
