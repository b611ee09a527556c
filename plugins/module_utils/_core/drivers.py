# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What CSI drivers are known to do on a node, as data with its source. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import untrusted

# Where the mount at a pod's mount point comes from. It decides whether that mount is right
# (STOR-07): one that a driver always makes elsewhere would look wrong in every pod.
STAGING = "staging"
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class DriverOptions:
    """What a driver always says to a program, besides the source and the address of the server.

    A word with ``{region}`` is said where there is a region, which must be one word
    (untrusted.word).
    """

    program: str
    words: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Driver:
    """A CSI driver. ``name``: of its CSIDriver. ``prefixed``: it is installed under PREFIX.name,
    too.

    ``publishes``: STAGING if the mount of a pod is always a bind of a mount in the staging folder;
    ELSEWHERE if it may be one that the driver makes or keeps at another place. ``source``: where
    that was read, in the driver's own repository. ``options``: what it gives the programs that it
    mounts with in any case, by the program, with their source.
    """

    name: str
    publishes: str
    source: str
    options: tuple[DriverOptions, ...] = ()
    prefixed: bool = False


# All say allow_other as well, which a new mount gets where the dead one had it.
_S3FS = ("use_path_request_style", "mp_umask=000", "endpoint={region}")
# Without it, rclone cannot add to a file (rclone.org/commands/rclone_mount, "VFS File Caching").
_RCLONE = ("--vfs-cache-mode=writes",)

# Of drivers that are not here nothing is assumed.
KNOWN = (
    # Rook puts its namespace in front of the names (CSI_DRIVER_NAME_PREFIX of its operator).
    Driver(
        "rbd.csi.ceph.com",
        STAGING,
        "ceph/ceph-csi internal/rbd/nodeserver.go mountVolume",
        prefixed=True,
    ),
    Driver(
        "cephfs.csi.ceph.com",
        STAGING,
        "ceph/ceph-csi internal/cephfs/nodeserver.go NodePublishVolume",
        prefixed=True,
    ),
    # Its dTree volumes have no mount in the staging folder.
    Driver(
        "csi.huawei.com",
        STAGING,
        "Huawei/eSDK_K8S_Plugin csi/manage/manager_helper.go PublishFilesystem",
    ),
    Driver(
        "ebs.csi.aws.com",
        STAGING,
        "kubernetes-sigs/aws-ebs-csi-driver pkg/driver/node.go NodePublishVolume",
    ),
    # Until it bound from the staging folder, that had no mount.
    Driver(
        "ru.yandex.s3.csi",
        STAGING,
        "yandex-cloud/k8s-csi-s3 pkg/driver/nodeserver.go NodePublishVolume",
        (
            DriverOptions("s3fs", _S3FS, "yandex-cloud/k8s-csi-s3 pkg/mounter/s3fs.go Mount"),
            DriverOptions("rclone", _RCLONE, "yandex-cloud/k8s-csi-s3 pkg/mounter/rclone.go Mount"),
        ),
    ),
    # One FUSE mount for each pod, or (s3backer) a loop device on a file of the staging mount.
    Driver(
        "ch.ctrox.csi.s3-driver",
        ELSEWHERE,
        "ctrox/csi-s3 pkg/mounter/s3backer.go Mount",
        (
            DriverOptions("s3fs", _S3FS, "ctrox/csi-s3 pkg/mounter/s3fs.go Mount"),
            DriverOptions("rclone", _RCLONE, "ctrox/csi-s3 pkg/mounter/rclone.go Mount"),
        ),
    ),
)


# Drivers whose volumes come by iSCSI: True for all of them, None for some of them, since the driver
# has other protocols as well. Those with iscsi in their name are not listed.
_ISCSI = {
    # longhorn.io, "Installation Requirements": open-iscsi on each node.
    "driver.longhorn.io": True,
    # docs.netapp.com, Trident, "Prepare the worker node": NFS, iSCSI, NVMe or FC.
    "csi.trident.netapp.io": None,
    # Huawei/eSDK_K8S_Plugin, user guide: "protocol" of a backend.
    "csi.huawei.com": None,
    # SynologyOpenSource/synology-csi README.md: "protocol" of a StorageClass.
    "csi.san.synology.com": None,
    # dell.github.io/csm-docs, "Prerequisites" of each driver: FC, iSCSI, NVMe or NFS.
    "csi-unity.dellemc.com": None,
    "csi-powerstore.dellemc.com": None,
    "csi-powermax.dellemc.com": None,
    # scod.hpedev.io, HPE CSI Driver, "accessProtocol" of a StorageClass.
    "csi.hpe.com": None,
    # ibm.com/docs, IBM block storage CSI driver, "Compatibility and requirements".
    "block.csi.ibm.com": None,
    # Infinidat/infinibox-csi-driver README.md: "storage_protocol" of a StorageClass.
    "infinibox-csi-driver": None,
}


def uses_iscsi(driver: str, given: Mapping[str, bool]) -> bool | None:
    """Whether the volumes of a driver come by iSCSI; None if some may. ``given``: what the user
    says, by name.
    """
    if driver in given:
        return given[driver]
    return True if "iscsi" in driver else _ISCSI.get(driver, False)


def publishes(driver: str, given: Mapping[str, str]) -> str:
    """STAGING, ELSEWHERE, or empty if nothing is known; ``given``: what the user says, by name."""
    if driver in given:
        return given[driver]
    known = _known(driver)
    return known.publishes if known else ""


def options(driver: str, program: str, region: str) -> list[str]:
    """The mount options that a driver gives to a program whatever the volume is.

    A tenant's Secret may name the region. Where that is no region, nothing is made of it.
    """
    known = _known(driver)
    words = [
        word
        for given in (known.options if known else ())
        if given.program == program
        for word in given.words
    ]
    known_region = region if region and not untrusted.problem("region", region) else ""
    return [
        word.replace("{region}", known_region)
        for word in words
        if known_region or "{region}" not in word
    ]


def _known(driver: str) -> Driver | None:
    for known in KNOWN:
        if driver == known.name or (known.prefixed and driver.endswith(f".{known.name}")):
            return known
    return None
