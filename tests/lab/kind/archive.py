# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container images made without an engine: archives as `docker save` writes them.

What is in it: image-spec's `docker image specification v1.2`, github.com/moby/docker-image-spec.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common import run

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACK_DEADLINE = 300.0


@dataclass(frozen=True)
class Layer:
    """What an image has besides what is in the layers below."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Image:
    """Names, layers from the lowest on, and a configuration: Cmd, Entrypoint, Env, ..."""

    names: Sequence[str]
    layers: Sequence[Layer]
    config: Mapping[str, Any]


def layer(target: Path, root: Path, *paths: str) -> Layer:
    """All of a folder, or some of it, with its owners."""
    pack = ["tar", "--sort=name", "--numeric-owner", "-C", str(root), "-cf", str(target)]
    run([*pack, *(paths or ".")], PACK_DEADLINE)
    with target.open("rb") as stream:
        return Layer(target, hashlib.file_digest(stream, "sha256").hexdigest())


def write(target: Path, *images: Image) -> None:
    """An archive of these images; a layer that several have is in it once."""
    layers = {found.digest: found.path for image in images for found in image.layers}
    entries: list[dict[str, Any]] = []
    with tarfile.open(target, "w") as archive:
        for digest, path in layers.items():
            archive.add(path, f"{digest}.tar")
        for image in images:
            described = json.dumps(_described(image)).encode()
            name = f"{hashlib.sha256(described).hexdigest()}.json"
            _add(archive, name, described)
            parts = [f"{found.digest}.tar" for found in image.layers]
            entries.append({"Config": name, "RepoTags": list(image.names), "Layers": parts})
        _add(archive, "manifest.json", json.dumps(entries).encode())


def write_one(target: Path, names: Sequence[str], root: Path, config: Mapping[str, Any]) -> None:
    """An archive of one image, which has all of a folder."""
    made = layer(target.with_suffix(".layer"), root)
    write(target, Image(names, [made], config))
    made.path.unlink()


def _described(image: Image) -> dict[str, Any]:
    digests = [f"sha256:{found.digest}" for found in image.layers]
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [PATH], **image.config},
        "rootfs": {"type": "layers", "diff_ids": digests},
    }


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
