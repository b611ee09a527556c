# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build CSI-Addons' controller and sidecar from the Go modules named here, and our driver; the resource definitions come with them."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ...common import LabError, cache_dir, locked, run, step
from .. import build as kubernetes

HERE = Path(__file__).resolve().parent
MODULE = "github.com/csi-addons/kubernetes-csi-addons"
# All that changes what the sidecar does outside a cluster: it takes a kubeconfig, and it listens on loopback only.
SIDECAR_CHANGES = (
    ("rest.InClusterConfig()", "ctrl.GetConfig()"),
    ('\t"k8s.io/client-go/rest"\n', ""),
    ("server.NewSidecarServer(*controllerIP,", 'server.NewSidecarServer("127.0.0.1",'),
)


@dataclass(frozen=True)
class Parts:
    """The programs ``manager``, ``sidecar`` and ``driver``, and the folder ``crd`` of manifests."""

    version: str
    path: Path

    def __getitem__(self, program: str) -> str:
        return str(self.path / program)


@functools.cache
def release() -> str:
    """The version of CSI-Addons in our go.mod."""
    found = re.search(rf"^\s*{re.escape(MODULE)} v([0-9.]+)$", (HERE / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise LabError(f"{HERE / 'go.mod'} does not name {MODULE}")
    return found.group(1)


def parts() -> Parts:
    """They, built first when the cache has none made by this very recipe. Raises Unavailable when the modules are out of reach."""
    made_by = [Path(__file__), *sorted(HERE.glob("go.*")), *sorted(HERE.glob("driver/*.go"))]
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in made_by)).hexdigest()[:12]
    found = Parts(release(), cache_dir() / "kubernetes" / f"csi-addons-{release()}-{key}")
    if found.path.exists():
        return found
    with locked(found.path.parent / "build.lock", kubernetes.BUILD_DEADLINE):
        if not found.path.exists():
            work = Path(tempfile.mkdtemp(prefix=".csi-addons-", dir=found.path.parent))
            try:
                (work / "bin").mkdir()
                with step(f"CSI-Addons {found.version}: building all of it"):
                    _build(work, found.version)
                (work / "bin").rename(found.path)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return found


def _build(work: Path, version: str) -> None:
    for path in HERE.glob("go.*"):
        shutil.copy(path, work)
    shutil.copytree(HERE / "driver", work / "driver")
    flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()
    env = kubernetes._go_environment(work, GOMODCACHE=str(work / "modules"), GOFLAGS=flags, GO111MODULE="on")
    go = kubernetes._new_go(work, env)
    wanted = [f"{MODULE}/cmd/manager", f"{MODULE}/sidecar", "./driver"]
    with step(f"CSI-Addons {version}: fetching modules"):
        kubernetes._fetch([go, "list", "-mod=readonly", "-deps", *wanted], work, env)
    # Go compiles a changed module only from outside its cache.
    source = work / "csi-addons"
    (work / "modules" / f"{MODULE}@v{version}").rename(source)
    run([go, "mod", "edit", f"-replace={MODULE}=./csi-addons"], 60, cwd=work, env=env)
    main = source / "sidecar/main.go"
    text = main.read_text()
    for old, new in SIDECAR_CHANGES:
        if old not in text:
            raise LabError(f"the sidecar's source has changed: it no longer has {old.strip()}")
        text = text.replace(old, new)
    main.write_text(text)
    shutil.copytree(source / "config/crd/bases", work / "bin/crd")
    with step(f"CSI-Addons {version}: compiling (some minutes)"):
        command = [go, "build", "-mod=readonly", "-ldflags", "-s -w", "-v", "-o", f"{work / 'bin'}/", *wanted]
        run(command, kubernetes.BUILD_DEADLINE, label=f"CSI-Addons {version}", cwd=work, env={**env, "GOPROXY": "off"})
