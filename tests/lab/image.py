# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the VM node's image (kernel, initrd, root disk) for a Debian release with mmdebstrap and mke2fs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .common import DEFAULT_RELEASE, RELEASES, LabError, cache_dir, locked, run, step

BUILD_DEADLINE = 1800.0
DISK_MB = 2400
PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps", "psmisc", "openssh-server", "python3"),
    *("multipath-tools", "kpartx", "open-iscsi", "lvm2", "parted", "sg3-utils", "nftables", "strace"),
    *("e2fsprogs", "xfsprogs", "initramfs-tools", "lz4", "linux-image-amd64"),
    *("fuse3", "bindfs", "fuse-overlayfs", "python3-fusepy", "s3fs", "rclone", "ca-certificates"),
    *("nfs-kernel-server", "nfs-common", "rpcbind", "containerd", "runc", "busybox-static"),
)
# For a node with a kubelet (kubelet/node.py), which is of the default release.
KUBELET_PACKAGES = ("containernetworking-plugins", "ceph-common", "rbd-nbd")
# Kernel drivers that no virtual machine of the lab needs: half of the kernel package.
UNWANTED_DRIVERS = (
    "gpu",
    "media",
    "net/wireless",
    "net/ethernet",
    "infiniband",
    "usb",
    "staging",
    "iio",
    "bluetooth",
    "hwmon",
    "mtd",
    "isdn",
)
# Timers would fire when a restored snapshot's clock is set; the others only slow the boot down.
MASKED_UNITS = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "logrotate.timer"),
    *("systemd-tmpfiles-clean.timer", "e2scrub_reap.service", "systemd-networkd-wait-online.service", "getty@tty1.service"),
    *("serial-getty@ttyS0.service", "systemd-timesyncd.service", "xfs_scrub_all.timer"),
)
# Started by the tests that need them; at every boot they would cost seconds.
DISABLED_UNITS = (
    *("nfs-server.service", "rpcbind.service", "rpcbind.socket", "nfs-client.target"),
    *("nfs-blkmap.service", "containerd.service"),
)
KUBELET_DISABLED = ("rbdmap.service",)
MODULES = (
    *("iscsi_tcp", "iscsi_target_mod", "target_core_mod", "target_core_file", "scsi_debug", "sg"),
    *("dm_multipath", "scsi_dh_alua", "scsi_dh_rdac", "scsi_dh_emc", "nf_tables", "xfs"),
    *("fuse", "nfsd", "nfs", "nfsv3", "nfsv4", "overlay", "rbd", "nbd", "veth"),
)
CONFIG = {
    "etc/hostname": "node1\n",
    "etc/hosts": "127.0.0.1 localhost node1\n",
    "etc/fstab": "/dev/vda / ext4 defaults,noatime 0 1\n",
    # One network card, known address (qemu's user network): nothing to wait for.
    "etc/systemd/system/lab-net.service": """[Unit]
DefaultDependencies=no
Before=network.target ssh.service iscsid.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/ip address replace 10.0.2.15/24 dev eth0
ExecStart=/sbin/ip link set eth0 up
[Install]
WantedBy=sysinit.target
""",
}
INITRAMFS_HOOK = (
    'mkdir -p "$1/etc/initramfs-tools/conf.d"'
    ' && printf "MODULES=list\\nCOMPRESS=lz4\\n" > "$1/etc/initramfs-tools/conf.d/lab"'
    ' && printf "virtio_pci\\nvirtio_blk\\nvirtio_net\\next4\\n" > "$1/etc/initramfs-tools/modules"'
)


@dataclass(frozen=True)
class Image:
    """A finished image."""

    release: str
    key: str
    path: Path

    @property
    def kernel(self) -> Path:
        return self.path / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.path / "initrd.img"

    @property
    def disk(self) -> Path:
        return self.path / "base.raw"

    @property
    def ssh_key(self) -> Path:
        return self.path / "id_ed25519"


def locate(release: str) -> Image:
    """Where the image of this release is, or will be."""
    if release not in RELEASES:
        raise LabError(f"unknown release {release!r}: the lab knows {', '.join(RELEASES)}")
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return Image(release, key, cache_dir() / "images" / f"{release}-{key}")


def image(release: str) -> Image:
    """The image of this release, built first when the cache has none made by this very recipe."""
    found = locate(release)
    if found.disk.exists():
        return found
    with locked(found.path.parent / f"{release}.lock", BUILD_DEADLINE):
        if not found.disk.exists():
            _build(found)
    return found


def _build(target: Image) -> None:
    if os.geteuid() != 0:
        raise LabError("building the VM image needs root (chroot, device nodes): run as root")
    work = Path(tempfile.mkdtemp(prefix=f".{target.release}-", dir=target.path.parent))
    try:
        work.chmod(0o755)
        root = work / "root"
        with step(f"image {target.release}: installing Debian into a folder (1 to 4 minutes)"):
            _bootstrap(target.release, root)
        with step(f"image {target.release}: configuring"):
            _configure(target.release, root, work)
        with step(f"image {target.release}: making the disk"):
            run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(work / "base.raw"), f"{DISK_MB}M"], 300)
        shutil.rmtree(root)
        work.rename(target.path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _bootstrap(release: str, root: Path) -> None:
    packages = [*PACKAGES, *(KUBELET_PACKAGES if release == DEFAULT_RELEASE else ())]
    options = [
        *("--variant=minbase", "--mode=root", f"--include={','.join(packages)}", f"--essential-hook={INITRAMFS_HOOK}"),
        # Lab clocks are wrong now and then, and the newest bullseye files are old by now.
        *('--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Check-Date "false"', '--aptopt=Acquire::Retries "3"'),
        *("--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*"),
        *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=*/lib/modules/*/kernel/sound/*"),
        *(f"--dpkgopt=path-exclude=*/lib/modules/*/kernel/drivers/{name}/*" for name in UNWANTED_DRIVERS),
    ]
    mirrors = debian_mirrors(release)
    try:
        run(["mmdebstrap", *options, release, str(root), *mirrors], BUILD_DEADLINE, label=f"image {release}")
    except LabError as exc:
        if mirrors:
            raise
        raise LabError(
            f"{exc}\nThis machine's apt sources are not Debian's, and mmdebstrap's own default mirror did not do: set LAB_DEBIAN_MIRROR to"
            " the URI of a Debian mirror (what stands in front of /dists)"
        ) from exc


def debian_mirrors(release: str) -> list[str]:
    """The apt lines to install from; none lets mmdebstrap use its own default."""
    mirror = os.environ.get("LAB_DEBIAN_MIRROR")
    if mirror:
        return [f"deb {mirror} {release} main"]
    fields = "$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(REPO_URI)"
    lines = subprocess.run(
        ["apt-get", "indextargets", "--format", fields], check=False, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    targets = (line.split("|") for line in sorted(set(lines)))
    uris = {label: uri for kind, origin, label, uri in targets if (kind, origin) == ("Packages", "Debian")}
    if "Debian" not in uris:
        return []
    mirrors = [f"deb {uris['Debian']} {release} main"]
    if "Debian-Security" in uris:
        mirrors.append(f"deb {uris['Debian-Security']} {release}-security main")
    return mirrors


def _configure(release: str, root: Path, work: Path) -> None:
    kernels = sorted((root / "lib/modules").iterdir())
    if len(kernels) != 1:
        raise LabError(f"expected one kernel in the image, found {[kernel.name for kernel in kernels]}")
    for module in MODULES:
        run(["chroot", str(root), "modprobe", "--set-version", kernels[0].name, "--show-depends", module], 60)
    for name, text in CONFIG.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(work / "id_ed25519")], 30)
    ssh = root / "root/.ssh"
    ssh.mkdir(exist_ok=True)
    ssh.chmod(0o700)
    shutil.copy(work / "id_ed25519.pub", ssh / "authorized_keys")
    run(["chroot", str(root), "systemctl", "enable", "-q", "lab-net.service", "ssh.service"], 60)
    run(["chroot", str(root), "systemctl", "disable", "-q", *DISABLED_UNITS], 60)
    if release == DEFAULT_RELEASE:
        run(["chroot", str(root), "systemctl", "disable", "-q", *KUBELET_DISABLED], 60)
    run(["chroot", str(root), "systemctl", "mask", "-q", *MASKED_UNITS], 60)
    for old in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")):
        old.unlink()
    for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd.img", "initrd.img-*")):
        (source,) = root.glob(f"boot/{pattern}")
        shutil.copy(source, work / name)
