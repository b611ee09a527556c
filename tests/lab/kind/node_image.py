# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image of kind's nodes, made without an engine: Debian by mmdebstrap, the files of kind's
module, the programs of `build.py`, and the images that their containerd has from the start.

It follows kind's own images/base/Dockerfile and pkg/build/nodeimage.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .. import image as vm_image
from .. import runs
from ..common import LabError, cache_dir, locked, patient, run, step
from ..kubernetes.build import CRICTL, CURRENT, Binaries, Unavailable, binaries, current
from . import archive
from .build import kubernetes_version, node_programs

RELEASE = "bookworm"
BUILD_DEADLINE = 1800.0
IMPORT_DEADLINE = 300.0
# Those of kind's Dockerfile, and what it builds itself: containerd, runc, CNI plugins.
PACKAGES = (
    *("systemd", "systemd-sysv", "conntrack", "iptables", "nftables", "iproute2", "ethtool"),
    *("util-linux", "mount", "kmod", "libseccomp2", "nfs-common", "open-iscsi", "e2fsprogs"),
    *("bash", "ca-certificates", "curl", "jq", "procps"),
    *("containerd", "runc", "containernetworking-plugins", "busybox-static"),
    # Of the lab: Ansible's modules, and what serves FUSE mounts.
    *("python3", "s3fs", "rclone"),
)
# What kind's Dockerfile deletes: units that would touch the host.
UNWANTED_UNITS = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
# kind's in the dialect of Debian 12's containerd, without the hook that hides a host's product UUID
# from pods. A host without CAP_SYS_RESOURCE cannot lower a process's oom_score_adj.
CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
"""
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
# The image of what tests run in pods: busybox, with its commands on PATH.
BUSYBOX = "storage-ops/busybox:1"
# As kind's own build does it, but in a folder instead of a container: only this containerd knows
# how its store looks.
IMPORT = """mount -t proc proc /proc
containerd >/tmp/containerd.log 2>&1 &
for _ in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
for archive in /kind/images/*.tar; do
    ctr -n k8s.io images import --no-unpack "$archive" || { cat /tmp/containerd.log; exit 1; }
done
kill $!
wait
rm -rf /kind/images/* /tmp/containerd.log /run/containerd
"""


@dataclass(frozen=True)
class NodeImage:
    """Finished: an archive for `docker load`, and the names of two images in it. That of the
    control plane has more in its containerd's store.
    """

    worker: str
    control_plane: str
    path: Path


@dataclass(frozen=True)
class _Parts:
    """Programs by where they come from."""

    node: Binaries
    planes: Binaries
    crictl: Binaries


def node_image() -> NodeImage:
    """The image, built first when the cache has none made by this very recipe.

    Raises Unavailable when its programs cannot be had on this machine.
    """
    parts = _Parts(node_programs(), binaries(CURRENT), current(CRICTL))
    recipe = [path.read_bytes() for path in map(Path, (__file__, archive.__file__))]
    recipe += [os.fsencode(part.path.name) for part in (parts.node, parts.planes, parts.crictl)]
    key = hashlib.sha256(b"\0".join(recipe)).hexdigest()[:12]
    folder = cache_dir() / "images" / f"kind-{kubernetes_version()}-{key}"
    named = f"storage-ops/worker:{key}", f"storage-ops/control-plane:{key}"
    found = NodeImage(*named, folder / "nodes.tar")
    if not found.path.exists():
        with locked(folder.parent / "kind.lock", BUILD_DEADLINE):
            if not found.path.exists():
                _build(found, parts)
    return found


def _build(target: NodeImage, parts: _Parts) -> None:
    if os.geteuid() != 0:
        raise LabError("building the image of kind's nodes needs root (chroot): run as root")
    if not shutil.which("mmdebstrap"):
        raise Unavailable("mmdebstrap is not installed: see tests/lab/kind/apt-packages.txt")
    work = Path(tempfile.mkdtemp(prefix=".kind-", dir=target.path.parent.parent))
    try:
        # Root's folder, but a service's account must reach what is below.
        work.chmod(0o755)
        root = work / "root"
        with step("kind's node: installing Debian into a folder (1 to 4 minutes)"):
            _bootstrap(root)
        with step("kind's node: configuring"):
            _configure(root, parts)
        with step("kind's node: adding the images of its pods, and packing"):
            _pack(target, root, work, parts)
        for used in work.iterdir():
            if used.name != target.path.name:
                runs.remove(used)
        work.rename(target.path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _bootstrap(root: Path) -> None:
    options = ["--variant=minbase", "--mode=root", f"--include={','.join(PACKAGES)}"]
    options += [
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=Acquire::Retries "3"',
    ]
    options += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    mirrors = vm_image.debian_mirrors(RELEASE)
    command = ["mmdebstrap", *options, RELEASE, str(root), *mirrors]
    run(command, BUILD_DEADLINE, label="kind's node")


def _configure(root: Path, parts: _Parts) -> None:
    for pattern in UNWANTED_UNITS:
        for found in root.glob(pattern):
            found.unlink()
    shutil.copytree(parts.node["files"], root, dirs_exist_ok=True)
    for found in (*root.glob("usr/local/bin/*"), *root.glob("kind/bin/*")):
        found.chmod(0o755)
    with (root / "etc/systemd/journald.conf").open("a") as stream:
        stream.write("ReadKMsg=no\n")
    pause = next(name for name in _images(parts.node) if "/pause:" in name)
    (root / "etc/containerd/config.toml").write_text(CONTAINERD.format(pause=pause))
    # kind's unit has the path of the one that kind builds.
    (root / "usr/local/bin/containerd").symlink_to("/usr/bin/containerd")
    for name in ("etc/kubernetes/manifests", "etc/cni/net.d", "kind/images", "kind/manifests"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for program in ("kubeadm", "kubelet", "kubectl"):
        shutil.copy(parts.node[program], root / "usr/bin")
    shutil.copy(parts.crictl["crictl"], root / "usr/local/bin")
    (root / "kind/version").write_text(f"v{kubernetes_version()}\n")
    units = ("kubelet.service", "containerd.service", "undo-mount-hacks.service")
    run(["chroot", str(root), "systemctl", "enable", "-q", *units], 60)
    # It registers with the kernel, which the host has too.
    run(["chroot", str(root), "systemctl", "mask", "-q", "systemd-binfmt.service"], 60)
    for old in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")):
        old.unlink()


def _images(programs: Binaries) -> list[str]:
    """The images that kubeadm asks for."""
    command = [programs["kubeadm"], "config", "images", "list"]
    command += ["--kubernetes-version", f"v{kubernetes_version()}"]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=False
    )
    if answer.returncode:
        raise LabError(f"kubeadm does not name its images: {answer.stderr}")
    return answer.stdout.split()


def _pack(target: NodeImage, root: Path, work: Path, parts: _Parts) -> None:
    """The node with the image of what pods run; above it what the control plane runs."""
    named = {name.rsplit("/", 1)[1].partition(":")[0]: name for name in _images(parts.node)}
    folder = root / "kind/images"
    # A pod's own container only has to be there; containerd ends it by SIGKILL.
    idle = {"Cmd": ["/bin/busybox", "sleep", "infinity"]}
    small = _busybox(root, work / "busybox")
    archive.write_one(folder / "busybox.tar", [BUSYBOX, named["pause"]], small, idle)
    _import(root)
    lower = archive.layer(work / "worker.layer", root)
    big = work / "control-plane"
    (big / "usr/local/bin").mkdir(parents=True)
    for program in CONTROL_PLANE:
        shutil.copy(parts.planes[program], big / "usr/local/bin")
    names = [named[program] for program in CONTROL_PLANE]
    archive.write_one(folder / "control-plane.tar", names, big, {})
    _import(root)
    upper = archive.layer(work / "control-plane.layer", root, "var/lib/containerd")
    config = {
        "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
        "StopSignal": "SIGRTMIN+3",
        "Env": [archive.PATH, "container=docker"],
    }
    archive.write(
        work / target.path.name,
        archive.Image([target.worker], [lower], config),
        archive.Image([target.control_plane], [lower, upper], config),
    )


def _busybox(root: Path, folder: Path) -> Path:
    """A root with busybox and all its commands."""
    for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
        (folder / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", folder / "bin/busybox")
    listed = ["chroot", str(folder), "/bin/busybox", "--list"]
    commands = subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True)
    for command in commands.stdout.split():
        if command != "busybox":
            (folder / "bin" / command).symlink_to("busybox")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    return folder


def _import(root: Path) -> None:
    """Have what is in the node's folder of images in its containerd's store instead."""
    apart = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    run([*apart, "chroot", str(root), "sh", "-c", IMPORT], IMPORT_DEADLINE, tied=True)
