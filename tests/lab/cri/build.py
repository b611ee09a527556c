# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build crictl, which no Debian release has, from the Go modules named in `go.mod`: 2 to 3 minutes, once."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from ..common import cache_dir, locked, run, step
from ..kubernetes import build as kubernetes

HERE = Path(__file__).resolve().parent
PACKAGE = "sigs.k8s.io/cri-tools/cmd/crictl"


def crictl() -> Path:
    """The program, built first when the cache has none made by this very recipe. Raises Unavailable when the modules are out of reach."""
    made_by = [Path(__file__), *sorted(HERE.glob("go.*"))]
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in made_by)).hexdigest()[:12]
    found = cache_dir() / "kubernetes" / f"crictl-{key}"
    if not found.exists():
        with locked(found.parent / "build.lock", kubernetes.BUILD_DEADLINE):
            if not found.exists():
                work = Path(tempfile.mkdtemp(prefix=".crictl-", dir=found.parent))
                try:
                    with step("crictl: building it"):
                        _build(work)
                    (work / "crictl").rename(found)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
    return found


def _build(work: Path) -> None:
    for path in HERE.glob("go.*"):
        shutil.copy(path, work)
    flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()
    env = kubernetes._go_environment(work, GOMODCACHE=str(work / "modules"), GOFLAGS=flags, GO111MODULE="on")
    go = kubernetes._new_go(work, env)
    with step("crictl: fetching modules"):
        kubernetes._fetch([go, "list", "-mod=readonly", "-deps", PACKAGE], work, env)
    command = [go, "build", "-mod=readonly", "-ldflags", "-s -w", "-v", "-o", str(work / "crictl"), PACKAGE]
    run(command, kubernetes.BUILD_DEADLINE, label="crictl", cwd=work, env={**env, "GOPROXY": "off"})
