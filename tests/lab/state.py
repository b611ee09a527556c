# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States that a VM node is saved in: each is made once by its recipe, then all nodes
begin there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from .common import GUEST


@dataclass(frozen=True)
class State:
    """A recipe: what a node gets besides what it has in the state before.

    ``files``: path on the node -> content; a file in a ``bin`` or ``sbin`` folder is a program.
    Then ``commands`` are run. Nothing outside the node can be part of it: a connection to the host
    does not outlive the saving. At last Ansible calls ``modules`` there, so that the node has their
    code (lab_bytecode.py). They change nothing, and are no part of the key: of modules that changed
    since, the node compiles what is new.
    """

    name: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    # None: right after a boot of the image.
    before: State | None = None

    @property
    def key(self) -> str:
        """Names everything that makes it: another text of a file or a command is another state."""
        digest = hashlib.sha256(self.before.key.encode() if self.before else b"")
        for path, content in sorted(self.files.items()):
            digest.update(f"{path}\0{len(content)}\0".encode() + content)
        digest.update("\0".join(self.commands).encode())
        return digest.hexdigest()


LABCTL = "/usr/local/lib/lab/labctl.py"
# Compiled once: to do so at each call takes an emulated processor a quarter of the call.
RUN_LABCTL = b"""#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/usr/local/lib/lab")
import labctl
sys.exit(labctl.main())
"""
PACKAGES = "/usr/lib/python3/dist-packages"
READY = State(
    name="ready",
    files={
        LABCTL: (GUEST / "labctl.py").read_bytes(),
        "/usr/local/sbin/labctl": RUN_LABCTL,
        f"{PACKAGES}/lab_bytecode.py": (GUEST / "lab_bytecode.py").read_bytes(),
        f"{PACKAGES}/lab_bytecode.pth": b"import lab_bytecode\n",
        "/etc/systemd/system/lab-array.service": (GUEST / "lab-array.service").read_bytes(),
    },
    commands=(
        f"python3 -m py_compile {LABCTL} {PACKAGES}/lab_bytecode.py",
        "mkdir /var/cache/lab-bytecode",
        "systemctl daemon-reload",
        "systemctl enable -q lab-array.service open-iscsi.service",
        # "degraded" is an answer, too.
        "systemctl is-system-running --wait || true",
        "labctl ready",
    ),
    modules=("storage_ops.runbooks.node_storage_info",),
)
