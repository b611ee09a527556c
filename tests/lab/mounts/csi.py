# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs in the VM node and mounts volumes as the kubelet and a CSI driver do: the same folders,
notes and bind mounts.

    csi stage PV DEVICE [OPTIONS]    csi publish UID PV [OPTIONS]    csi unpublish UID PV    csi
    unstage PV    csi pod UID COMMAND...

A PV's handle is vol-PV. ``pod`` runs a command in the control group that a container of the pod
would have, and prints its pid. A comma, as a word of its own, stands between several of these.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(os.environ.get("KUBELET_ROOT", "/var/lib/kubelet"))
DRIVER = "csi.huawei.com"
# The layout of Kubernetes before 1.24.
OLD = os.environ.get("OLD_LAYOUT") == "1"


def staging(volume: str) -> Path:
    """Where a volume is staged."""
    base = ROOT / "plugins/kubernetes.io/csi"
    digest = hashlib.sha256(f"vol-{volume}".encode()).hexdigest()
    return (base / "pv" / volume if OLD else base / DRIVER / digest) / "globalmount"


def point(uid: str, volume: str) -> Path:
    """Where a pod has it."""
    return ROOT / "pods" / uid / "volumes/kubernetes.io~csi" / volume / "mount"


def note(folder: Path, **more: str) -> None:
    """The kubelet's vol_data.json beside a mount point."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"driverName": DRIVER, **more}
    (folder.parent / "vol_data.json").write_text(json.dumps(data))


def mounted(path: Path) -> bool:
    """Something is; a filesystem that has given up cannot be asked."""
    return any(
        line.split(" ")[4] == str(path)
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )


def run(*command: str | Path) -> None:
    """A command that must succeed."""
    subprocess.run(command, check=True)


def stage(volume: str, device: str, options: str = "rw") -> None:
    """NodeStageVolume."""
    note(staging(volume), volumeHandle=f"vol-{volume}")
    run("mount", "-o", options, device, staging(volume))


def publish(uid: str, volume: str, options: str = "rw") -> None:
    """NodePublishVolume; a driver binds, then makes the bind read-only if the pod wants that."""
    handle = {
        "volumeHandle": f"vol-{volume}",
        "specVolID": volume,
        "nodeName": "node1",
        "attachmentID": "csi-1",
    }
    note(point(uid, volume), volumeLifecycleMode="Persistent", **handle)
    run("mount", "--bind", staging(volume), point(uid, volume))
    if options != "rw":
        run("mount", "-o", f"remount,bind,{options}", point(uid, volume))


def unpublish(uid: str, volume: str) -> None:
    """NodeUnpublishVolume, and what the kubelet removes afterwards."""
    while mounted(point(uid, volume)):
        run("umount", point(uid, volume))
    point(uid, volume).rmdir()
    (point(uid, volume).parent / "vol_data.json").unlink()


def unstage(volume: str) -> None:
    """NodeUnstageVolume."""
    if mounted(staging(volume)):
        run("umount", staging(volume))
    staging(volume).rmdir()
    (staging(volume).parent / "vol_data.json").unlink()


def pod(uid: str, *command: str) -> None:
    """A process of a container."""
    slice_name = f"kubepods-besteffort-pod{uid.replace('-', '_')}.slice"
    group = (
        Path("/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice")
        / slice_name
        / f"cri-containerd-{'ab' * 32}.scope"
    )
    group.mkdir(parents=True, exist_ok=True)
    with open(os.devnull, "r+b") as null:
        process = subprocess.Popen(
            command, stdin=null, stdout=null, stderr=null, start_new_session=True
        )
    (group / "cgroup.procs").write_text(str(process.pid))
    print(process.pid)


VERBS: dict[str, Callable[..., None]] = {
    "stage": stage,
    "publish": publish,
    "unpublish": unpublish,
    "unstage": unstage,
    "pod": pod,
}

if __name__ == "__main__":
    words = sys.argv[1:]
    while words:
        end = words.index(",") if "," in words else len(words)
        VERBS[words[0]](*words[1:end])
        words = words[end + 1 :]
