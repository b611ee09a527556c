# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build what a kind cluster is made of: kind, a kubelet, kubeadm and kubectl by one `go build`; a
CSI driver of the lab's own; the real external-attacher.

Their versions are those of `kubernetes/current/go.mod`, to which `more.mod` and `more.sum` add
what only they need: so the control planes' programs stay as they are when this changes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import runs
from ..common import LabError, cache_dir, say, step
from ..kubernetes import build as recipe
from ..kubernetes.build import KUBERNETES, MODULES, Binaries, Unavailable

HERE = Path(__file__).resolve().parent
DRIVER = HERE / "driver"
KIND = "sigs.k8s.io/kind"
NODE = [f"{KUBERNETES.module}/cmd/{name}" for name in ("kubelet", "kubeadm", "kubectl")]
# What kind's own Dockerfile copies into a node's image.
FILES = "images/base/files"
# It is built in its own module, since what it needs is newer than what Kubernetes has.
ATTACHER, ATTACHER_VERSION = "github.com/kubernetes-csi/external-attacher/v4", "4.13.0"
ATTACHER_SUM = "h1:lvr4pjyBc6TV57EB78mNrsg/KgaGFL5wc4Xe/i9Y+bM="
# Of go list: not what is found. It would be all that is kept of its answer when something is not.
QUIET = "-f={{with .Error}}{{.}}{{end}}"


@dataclass(frozen=True, eq=False)
class Part:
    """What is built and kept together. ``sources``: what it is made by besides what all are."""

    name: str
    version: str
    build: Callable[[_Go], Path]
    sources: tuple[Path, ...] = ()


def node_programs() -> Binaries:
    """kind, kubelet, kubeadm, kubectl; and `files`, which kind's module has for a node's image."""
    return _current(_parts()[0])


def driver() -> Binaries:
    """The CSI driver of the lab."""
    return _current(_parts()[1])


def attacher() -> Binaries:
    """The real external-attacher."""
    return _current(_parts()[2])


def kubernetes_version() -> str:
    """That of the nodes, which is that of the current control planes."""
    return recipe._required(KUBERNETES.module)


def version_of(module: str) -> str:
    """The version of a module in `more.mod`."""
    text = (HERE / "more.mod").read_text()
    found = re.search(rf"^\s*{re.escape(module)} v([0-9.]+)$", text, re.MULTILINE)
    if not found:
        raise LabError(f"{HERE / 'more.mod'} does not name {module}")
    return found.group(1)


@functools.cache
def _parts() -> tuple[Part, Part, Part]:
    """In the order in which they are built: each has use for what those before have compiled."""
    version = kubernetes_version()
    return (
        Part("kind", version_of(KIND), _build_node),
        Part("csi-driver", version, _build_driver, (DRIVER / "main.go",)),
        Part("csi-attacher", ATTACHER_VERSION, _build_attacher),
    )


def _located(part: Part) -> Binaries:
    made_by = [Path(__file__), Path(recipe.__file__), *sorted(MODULES.glob("go.*"))]
    made_by += [*sorted(HERE.glob("more.*")), *part.sources]
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in made_by)).hexdigest()[:12]
    folder = cache_dir() / "kubernetes" / f"{part.name}-{part.version}-{key}"
    return Binaries(part.version, folder)


def _current(part: Part) -> Binaries:
    """A part, built first when the cache has none made by this very recipe; and with it all others
    that the cache lacks.

    Raises Unavailable when this part cannot be had on this machine.
    """
    found = _located(part)
    if found.path.exists():
        return found
    refused: dict[Part, Unavailable] = {}
    with recipe._building("kind") as work:
        missing = [other for other in _parts() if not _located(other).path.exists()]
        if part in missing:
            with step(f"{', '.join(other.name for other in missing)}: building all of it"):
                _build_planes(work)
                refused = _build(work, missing)
    if part in refused:
        raise refused[part]
    return found


def _build_planes(work: Path) -> None:
    """Build what the control planes need first if the cache lacks Kubernetes, too: most of what is
    compiled for it is compiled for kind's programs.

    Who needs a part that is out of reach says so.
    """
    missing = [part for part in recipe.PARTS if not recipe._located(part).path.exists()]
    if KUBERNETES not in missing:
        return
    recipe._build_current(work, missing)
    for left in work.iterdir():
        if left.name not in recipe.KEPT:
            runs.remove(left)
    (work / "bin").mkdir()


def _build(work: Path, wanted: Sequence[Part]) -> dict[Part, Unavailable]:
    """Build these parts, and put each where it belongs.

    Returns those that are out of reach, and why.
    """
    for kind in ("mod", "sum"):
        texts = [path.read_text() for path in (MODULES / f"go.{kind}", HERE / f"more.{kind}")]
        (work / f"go.{kind}").write_text("".join(texts))
    go = _Go(work)
    refused: dict[Part, Unavailable] = {}
    for part in wanted:
        try:
            part.build(go).rename(_located(part).path)
        except Unavailable as exc:
            say(f"{part.name} is out of reach: {exc}")
            refused[part] = exc
        (work / "bin").mkdir(exist_ok=True)
    return refused


class _Go:
    """A Go that is new enough, at work in a folder."""

    def __init__(self, work: Path) -> None:
        flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()
        self.work, self.modules = work, work / "modules"
        self.env = recipe._go_environment(
            work, GOMODCACHE=str(self.modules), GOFLAGS=flags, GO111MODULE="on"
        )
        self.go = recipe._new_go(work, self.env)

    def fetch(self, label: str, folder: Path, *arguments: str) -> None:
        """Raises Unavailable when what is asked for is out of reach."""
        with step(f"{label}: fetching modules"):
            recipe._fetch([self.go, *arguments], folder, self.env)

    def build(self, label: str, folder: Path, packages: Sequence[str]) -> Path:
        """Build packages of the module in a folder; where their programs are."""
        self.fetch(label, folder, "list", "-mod=readonly", "-deps", QUIET, *packages)
        # Sidecars refuse to run without a version.
        linked = f"{recipe._linker_flags(kubernetes_version(), '')} -X main.version=lab"
        command = [self.go, "build", "-mod=readonly", "-ldflags", linked]
        offline = {**self.env, "GOPROXY": "off"}
        recipe._compile(self.work, label, command, packages, folder, offline)
        return self.work / "bin"


def _build_node(go: _Go) -> Path:
    made = go.build("kind", go.work, [KIND, *NODE])
    shutil.copytree(go.modules / f"{KIND}@v{version_of(KIND)}" / FILES, made / "files")
    return made


def _build_driver(go: _Go) -> Path:
    shutil.copytree(DRIVER, go.work / "driver")
    return go.build("csi-driver", go.work, ["./driver"])


def _build_attacher(go: _Go) -> Path:
    version = f"v{ATTACHER_VERSION}"
    go.fetch("csi-attacher", go.work, "mod", "download", f"{ATTACHER}@{version}")
    fetched = (go.modules / f"cache/download/{ATTACHER}/@v/{version}.ziphash").read_text().strip()
    if fetched != ATTACHER_SUM:
        raise LabError(f"{ATTACHER} {version} is not what it was: {fetched}")
    source = go.work / "attacher"
    shutil.copytree(go.modules / f"{ATTACHER}@{version}", source)
    return go.build("csi-attacher", source, ["./cmd/csi-attacher"])
