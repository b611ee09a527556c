# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which RBD image, or which folder of CephFS, is behind a PersistentVolume. Pure: no I/O here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._core.errors import BadOption

_DRIVER = "rbd.csi.ceph.com"
# Before its release 3 ceph-csi did not write the image's name into the volume; the handle has its
# UUID (CSIIdentifier of ceph-csi internal/util/volid.go: version, length, clusterID, pool, UUID).
_HANDLE = re.compile(
    r"[0-9a-f]{4}-[0-9a-f]{4}-.+-[0-9a-f]{16}-"
    r"(?P<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)


class Target(NamedTuple):
    """An image, and the volume it is behind (or empty).

    ``problem``: why it is not known which image it is.
    """

    volume: str
    pool: str
    namespace: str
    image: str
    problem: str = ""

    @property
    def spec(self) -> tuple[str, str, str]:
        """What the image is found by."""
        return self.pool, self.namespace, self.image

    @property
    def title(self) -> str:
        """As rbd names it, or else the volume."""
        return "/".join(part for part in self.spec if part) if self.image else self.volume


def image_of(volume: Mapping[str, Any], namespaces: Mapping[str, str]) -> Target | None:
    """The image of a PersistentVolume, as the API server has it; None if it is no RBD volume.

    ``namespaces``: clusterID -> RADOS namespace, for volumes that do not say theirs.
    """
    name = str((volume.get("metadata") or {}).get("name") or "")
    spec = volume.get("spec")
    if not name or not isinstance(spec, Mapping):
        raise BadOption(
            "an item of volumes is not a PersistentVolume: it has no "
            f"{'spec' if name else 'metadata.name'}"
        )
    tree, csi = spec.get("rbd"), spec.get("csi")
    if tree:
        # The in-tree plugin has this default (SetDefaults_RBDPersistentVolumeSource of
        # pkg/apis/core/v1/defaults.go).
        return _target(name, tree.get("pool") or "rbd", "", tree.get("image"))
    if not csi or not _is_rbd(csi):
        return None
    attributes = csi.get("volumeAttributes") or {}
    # ceph-csi keeps the RADOS namespace of a clusterID in its ConfigMap (ClusterInfo of
    # internal/util/csiconfig.go), not in the volume.
    namespace = attributes.get("radosNamespace") or namespaces.get(str(attributes.get("clusterID")))
    return _target(name, attributes.get("pool"), namespace, _image_name(csi))


def root_of(volume: Mapping[str, Any]) -> str:
    """The folder of a CephFS that a node mounts for this volume; empty where it is not known."""
    # ceph-csi writes subvolumePath into the volumes that it makes (internal/cephfs/
    # controllerserver.go); a static one has rootPath (docs/static-pvc.md).
    attributes = ((volume.get("spec") or {}).get("csi") or {}).get("volumeAttributes") or {}
    root = str(attributes.get("subvolumePath") or attributes.get("rootPath") or "")
    return root.rstrip("/") if root.startswith("/") else ""


def _is_rbd(csi: Mapping[str, Any]) -> bool:
    """A driver of ceph-csi for RBD, or another that names an image.

    An installation may have given its driver any name.
    """
    # ceph-csi writes "imageName", and the pool as "pool" or, before the image is made,
    # "journalPool" into the volumeAttributes (internal/rbd/controllerserver.go).
    attributes = csi.get("volumeAttributes") or {}
    names_image = attributes.get("imageName") and (
        attributes.get("pool") or attributes.get("journalPool")
    )
    return bool(names_image) or str(csi.get("driver", "")).endswith(_DRIVER)


def _image_name(csi: Mapping[str, Any]) -> str:
    """The name of the image; empty where the volume does not tell it."""
    attributes = csi.get("volumeAttributes") or {}
    handle = str(csi.get("volumeHandle") or "")
    # ceph-csi docs/static-pvc.md: the handle of a static volume is the name of its image.
    if str(attributes.get("staticVolume", "")).lower() == "true":
        return handle
    match = _HANDLE.fullmatch(handle)
    return attributes.get("imageName") or (f"csi-vol-{match['uuid']}" if match else "")


def _target(volume: str, pool: Any, namespace: Any, image: Any) -> Target:
    problem = (
        ""
        if pool and image
        else "the PersistentVolume does not say which pool and image it is: give them by the "
        "option images"
    )
    return Target(volume, str(pool or ""), str(namespace or ""), str(image or ""), problem)
