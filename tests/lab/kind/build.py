# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build what a kind cluster is made of: kind, a kubelet, kubeadm and kubectl by one `go build`; a
CSI driver of the lab's own; the real external-attacher.

Their versions are those of `kubernetes/current/go.mod`, to which `more.mod` and `more.sum` add
what only they need: so the control planes' programs stay as they are when this changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ..common import LabError, cache_dir, step
from ..kubernetes import build as recipe
from ..kubernetes.build import KUBERNETES, MODULES, Binaries

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
Build = Callable[[Path], Path]


def kubernetes_version() -> str:
    """That of the nodes, which is that of the current control planes."""
    return recipe._required(KUBERNETES.module)


def node_programs() -> Binaries:
    """kind, kubelet, kubeadm, kubectl; and `files`, which kind's module has for a node's image."""
    return _built("kind", version_of(KIND), [], _build_node)


def driver() -> Binaries:
    """The CSI driver of the lab."""
    return _built("csi-driver", kubernetes_version(), [DRIVER / "main.go"], _build_driver)


def attacher() -> Binaries:
    """The real external-attacher."""
    return _built("csi-attacher", ATTACHER_VERSION, [], _build_attacher)


def version_of(module: str) -> str:
    """The version of a module in `more.mod`."""
    text = (HERE / "more.mod").read_text()
    found = re.search(rf"^\s*{re.escape(module)} v([0-9.]+)$", text, re.MULTILINE)
    if not found:
        raise LabError(f"{HERE / 'more.mod'} does not name {module}")
    return found.group(1)


def _built(name: str, version: str, sources: Sequence[Path], build: Build) -> Binaries:
    """The programs, built first when the cache has none made by this very recipe.

    Raises Unavailable when they cannot be had on this machine.
    """
    made_by = [Path(__file__), Path(recipe.__file__), *sorted(MODULES.glob("go.*"))]
    made_by += [*sorted(HERE.glob("more.*")), *sources]
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in made_by)).hexdigest()[:12]
    found = Binaries(version, cache_dir() / "kubernetes" / f"{name}-{version}-{key}")
    if not found.path.exists():
        with recipe._building(name) as work:
            if not found.path.exists():
                with step(f"{name}: building all of it"):
                    build(work).rename(found.path)
    return found


class _Go:
    """A Go that is new enough, at work in a folder."""

    def __init__(self, work: Path) -> None:
        flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()
        modules = str(work / "modules")
        self.work = work
        self.env = recipe._go_environment(work, GOMODCACHE=modules, GOFLAGS=flags, GO111MODULE="on")
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


def _build_node(work: Path) -> Path:
    _write_modules(work)
    made = _Go(work).build("kind", work, [KIND, *NODE])
    shutil.copytree(work / f"modules/{KIND}@v{version_of(KIND)}" / FILES, made / "files")
    return made


def _build_driver(work: Path) -> Path:
    _write_modules(work)
    shutil.copytree(DRIVER, work / "driver")
    return _Go(work).build("csi-driver", work, ["./driver"])


def _build_attacher(work: Path) -> Path:
    (work / "go.mod").write_text("module fetch\n")
    go = _Go(work)
    version = f"v{ATTACHER_VERSION}"
    go.fetch("csi-attacher", work, "mod", "download", f"{ATTACHER}@{version}")
    fetched = work / f"modules/cache/download/{ATTACHER}/@v/{version}.ziphash"
    if fetched.read_text().strip() != ATTACHER_SUM:
        raise LabError(f"{ATTACHER} {version} is not what it was: {fetched.read_text()}")
    source = work / "attacher"
    shutil.copytree(work / f"modules/{ATTACHER}@{version}", source)
    return go.build("csi-attacher", source, ["./cmd/csi-attacher"])


def _write_modules(work: Path) -> None:
    """The go.mod and go.sum of both lists."""
    for kind in ("mod", "sum"):
        texts = [path.read_text() for path in (MODULES / f"go.{kind}", HERE / f"more.{kind}")]
        (work / f"go.{kind}").write_text("".join(texts))
