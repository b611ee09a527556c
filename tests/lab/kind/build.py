# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build what a kind cluster is made of: kind, a kubelet, kubeadm and kubectl by one `go build`; a
CSI driver of the lab's own; the real external-attacher and external-provisioner.

Their versions are those of `kubernetes/current/go.mod`, to which `more.mod` and `more.sum` add
what only they need: so the control planes' programs stay as they are when this changes. What only
the two sidecars need is in `sidecars.mod` and `sidecars.sum`.
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
# Of go list: not what is found. It would be all that is kept of its answer when something is not.
QUIET = "-f={{with .Error}}{{.}}{{end}}"
# Of a go.mod: a line of a block of requirements.
REQUIREMENT = re.compile(r"\t\S+ v\S+( // indirect)?$")


@dataclass(frozen=True)
class Sidecar:
    """A container beside a CSI driver's controller: a module with the program `cmd/NAME`, and what
    a go.sum says of it.
    """

    name: str
    module: str
    version: str
    sum: str


ATTACHER = Sidecar(
    "csi-attacher",
    "github.com/kubernetes-csi/external-attacher/v4",
    "4.13.0",
    "h1:lvr4pjyBc6TV57EB78mNrsg/KgaGFL5wc4Xe/i9Y+bM=",
)
PROVISIONER = Sidecar(
    "csi-provisioner",
    "github.com/kubernetes-csi/external-provisioner/v5",
    "5.3.0",
    "h1:eKwNaBOOmNknY9exQlUl/MLwxElKgvrZnq32fqm4m9E=",
)


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


def provisioner() -> Binaries:
    """The real external-provisioner."""
    return _current(_parts()[3])


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
def _parts() -> tuple[Part, Part, Part, Part]:
    """In the order in which they are built: each has use for what those before have compiled."""
    version = kubernetes_version()
    return (
        Part("kind", version_of(KIND), _build_node),
        Part("csi-driver", version, _build_driver, (DRIVER / "main.go",)),
        _sidecar(ATTACHER),
        _sidecar(PROVISIONER),
    )


def _sidecar(wanted: Sidecar) -> Part:
    build = functools.partial(_build_sidecar, wanted)
    return Part(wanted.name, wanted.version, build, tuple(sorted(HERE.glob("sidecars.*"))))


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
    _write_modules(work, "lab", "more")
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


def _build_sidecar(wanted: Sidecar, go: _Go) -> Path:
    """From its own source, but with the Kubernetes of the nodes and the modules of that, whatever
    it asks for itself: most of them are compiled by now.
    """
    version = f"v{wanted.version}"
    go.fetch(wanted.name, go.work, "mod", "download", f"{wanted.module}@{version}")
    about = go.modules / f"cache/download/{wanted.module}/@v/{version}.ziphash"
    fetched = about.read_text().strip()
    if fetched != wanted.sum:
        raise LabError(f"{wanted.module} {version} is not what it was: {fetched}")
    source = go.work / "sources" / wanted.name
    shutil.copytree(go.modules / f"{wanted.module}@{version}", source)
    _write_modules(source, wanted.module, "more", "sidecars")
    return go.build(wanted.name, source, [f"./cmd/{wanted.name}"])


def _write_modules(folder: Path, module: str, *named: str) -> None:
    """Make a folder this module, with the requirements of the control planes and those in the files
    of these names. Of a module in several, the version in the last of them counts.
    """
    texts = [path.read_text() for path in (MODULES / "go.mod", *_extra(named, "mod"))]
    lines = [line for text in texts for line in text.splitlines()]
    last = {line.split()[0]: line for line in lines if REQUIREMENT.match(line)}
    kept = [line for line in lines if not REQUIREMENT.match(line) or line == last[line.split()[0]]]
    text = re.sub(r"^module .*", f"module {module}", "\n".join(kept), flags=re.MULTILINE)
    (folder / "go.mod").write_text(text)
    sums = [path.read_text() for path in (MODULES / "go.sum", *_extra(named, "sum"))]
    (folder / "go.sum").write_text("".join(sums))


def _extra(named: Sequence[str], kind: str) -> list[Path]:
    return [HERE / f"{name}.{kind}" for name in named]
