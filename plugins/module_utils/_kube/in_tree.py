# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver and handle by which Kubernetes attaches a volume of one of its former in-tree plugins.

As k8s.io/csi-translation-lib v0.36.3 does in TranslateInTreePVToCSI of plugins/*.go, for RBD
v0.28.0, the last but two that had it. Azure File is left out: its volumes are mounted and never
attached. Pure: no I/O here.
"""

from __future__ import annotations

import re
from hashlib import md5
from typing import Any, Callable

Source = dict[str, Any]
# The metadata of a PersistentVolume.
Meta = dict[str, Any]
# Driver and handle; empty texts where there are none.
Disk = tuple[str, str]

NO_DISK: Disk = ("", "")
GCE_PD = "pd.csi.storage.gke.io"
AZURE_DISK = "disk.csi.azure.com"

# Driver -> the plugin that it stands in for, by the name that kubelets write into the annotation
# storage.alpha.kubernetes.io/migrated-plugins of their CSINode (*InTreePluginName of plugins/*.go).
PLUGINS = {
    "ebs.csi.aws.com": "kubernetes.io/aws-ebs",
    GCE_PD: "kubernetes.io/gce-pd",
    AZURE_DISK: "kubernetes.io/azure-disk",
    "cinder.csi.openstack.org": "kubernetes.io/cinder",
    "csi.vsphere.vmware.com": "kubernetes.io/vsphere-volume",
    "pxd.portworx.com": "kubernetes.io/portworx-volume",
    "rbd.csi.ceph.com": "kubernetes.io/rbd",
}

# Two of these labels of a PersistentVolume tell its zone, the older one first.
_ZONES = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_EBS_VOLUME = re.compile(r"aws://[^/]*/+(vol-[^/]*)/*")


def translate(spec: Source, meta: Meta) -> Disk:
    """Driver and handle of a PersistentVolume, by its spec and metadata.

    Empty for a CSI volume, and for what Kubernetes does not translate either, since it is never
    attached by a driver.
    """
    for key, (driver, handle_of) in _PLUGINS.items():
        if spec.get(key):
            handle = handle_of(spec[key], meta)
            return (driver, handle) if handle else NO_DISK
    return NO_DISK


def same_disk(disk: Disk) -> Disk:
    """A form in which all spellings of one disk are equal.

    A GCE disk is its name, for the project and often the zone are UNSPECIFIED in what is
    translated, and the attacher fills them in (RepairVolumeHandle of plugins/gce_pd.go). Azure does
    not tell upper from lower case in its resource ids.
    """
    driver, handle = disk
    if driver == GCE_PD:
        return driver, handle.rpartition("/")[2]
    return (driver, handle.lower()) if driver == AZURE_DISK else disk


def _aws(source: Source, _meta: Meta) -> str:
    """A bare id, or aws://ZONE/ID (KubernetesVolumeIDToEBSVolumeID of plugins/aws_ebs.go)."""
    text = str(source.get("volumeID") or "")
    if not text.startswith("aws://"):
        return text
    found = _EBS_VOLUME.fullmatch(text)
    return found[1] if found else ""


def _gce(source: Source, meta: Meta) -> str:
    """A zonal or regional disk, by the label of its zones, which are joined by two underscores."""
    labels = meta.get("labels") or {}
    text = next((labels[name] for name in _ZONES if labels.get(name)), "")
    zones, name = text.split("__"), source.get("pdName") or ""
    if len(zones) > 1:
        region = min(zone.rpartition("-")[0] for zone in zones)
        return f"projects/UNSPECIFIED/regions/{region}/disks/{name}"
    return f"projects/UNSPECIFIED/zones/{text or 'UNSPECIFIED'}/disks/{name}"


def _azure(source: Source, _meta: Meta) -> str:
    """Only managed disks are migrated."""
    managed = str(source.get("kind") or "Managed").lower() == "managed"
    return str(source.get("diskURI") or "") if managed else ""


def _rbd(source: Source, meta: Meta) -> str:
    """By an annotation, or as composeMigVolID of plugins/rbd.go; the hash is no secret."""
    text = (meta.get("annotations") or {}).get("rbd.csi.ceph.com/volume-handle")
    if text:
        return str(text)
    monitors = ",".join(source.get("monitors") or ())
    cluster = md5(monitors.encode(), usedforsecurity=False).hexdigest()
    image = str(source.get("image") or "")
    image = image[len(_RBD_PREFIX) :] if image.startswith(_RBD_PREFIX) else image
    pool = str(source.get("pool") or "rbd").encode().hex()
    return f"mig_mons-{cluster}_image-{image}_{pool}"


_RBD_PREFIX = "kubernetes-dynamic-pvc-"


def _plain(field: str) -> Callable[[Source, Meta], str]:
    return lambda source, _meta: str(source.get(field) or "")


_PLUGINS: dict[str, tuple[str, Callable[[Source, Meta], str]]] = {
    "awsElasticBlockStore": ("ebs.csi.aws.com", _aws),
    "gcePersistentDisk": (GCE_PD, _gce),
    "azureDisk": (AZURE_DISK, _azure),
    "cinder": ("cinder.csi.openstack.org", _plain("volumeID")),
    "vsphereVolume": ("csi.vsphere.vmware.com", _plain("volumePath")),
    "portworxVolume": ("pxd.portworx.com", _plain("volumeID")),
    "rbd": ("rbd.csi.ceph.com", _rbd),
}
