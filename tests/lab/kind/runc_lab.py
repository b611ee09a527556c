# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""runc for a machine whose bounding set of capabilities lacks some: asks for no more than there is.

A privileged container asks for all of them, and runc then fails with "unable to apply caps:
operation not permitted". Without CAP_SYS_RESOURCE no limit can be raised either, and no process's
oom_score_adj lowered. Called by dockerd's containerd as runc, which it becomes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

# capability.h(7) of the kernel, by number.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *("SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW"),
    *("IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT"),
    *("SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD"),
    *("LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG"),
    *("WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"),
)
RESOURCE = "CAP_SYS_RESOURCE"


def allowed() -> set[str]:
    """The capabilities of the bounding set."""
    lines = Path("/proc/self/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("CapBnd:"))
    return {f"CAP_{name}" for number, name in enumerate(CAPABILITIES) if mask >> number & 1}


def trim(process: dict[str, Any], has: set[str]) -> None:
    """Of the OCI runtime-spec's `process`: what this machine cannot give."""
    for kind, asked in (process.get("capabilities") or {}).items():
        process["capabilities"][kind] = [name for name in asked or [] if name in has]
    if RESOURCE in has:
        return
    limits = process.get("rlimits") or []
    process["rlimits"] = [limit for limit in limits if _is_within(limit)]
    process["oomScoreAdj"] = max(process.get("oomScoreAdj") or 0, 0)


def _is_within(limit: dict[str, Any]) -> bool:
    _soft, hard = resource.getrlimit(getattr(resource, limit["type"]))
    return hard == resource.RLIM_INFINITY or bool(limit["hard"] <= hard)


def main() -> None:
    """Edit the configuration that the arguments name, then become runc."""
    arguments, has = sys.argv[1:], allowed()
    for flag, following in zip(arguments, arguments[1:], strict=False):
        if flag in ("--bundle", "-b"):
            _edit(Path(following) / "config.json", has, "process")
        elif flag in ("--process", "-p"):
            _edit(Path(following), has, "")
    runc = shutil.which("runc", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    os.execv(runc or "/usr/sbin/runc", ["runc", *arguments])


def _edit(path: Path, has: set[str], part: str) -> None:
    if not path.exists():
        return
    config = json.loads(path.read_text())
    trim(config[part] if part else config, has)
    path.write_text(json.dumps(config))


if __name__ == "__main__":
    main()
