# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of the objects that lead from a provisioner to the mounts of containers.

Pure: no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from .._kube.objects import Owner, parse_time

# external-provisioner notes here which driver made a volume. The claim has such an annotation too,
# but the owner of the claim may change that one.
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
# linux/limits.h
_PATH_MAX = 4096
# So much of a probe's command is looked at (characters): a tenant may give a megabyte of slashes.
_MOST_PROBED = 8_192
# Words of a command line, whatever shell reads it.
_WORD = re.compile(r"[^\s'\"`;|&<>()=$]+", re.UNICODE)


class SecretReference(NamedTuple):
    """Where a Secret is; never what it holds."""

    namespace: str
    name: str


class CsiVolume(NamedTuple):
    """A PersistentVolume of a CSI driver with a filesystem."""

    name: str
    driver: str
    handle: str
    # Namespace and name of the claim that it is bound to.
    claim: tuple[str, str]
    claim_uid: str
    storage_class: str
    access_modes: tuple[str, ...]
    mount_options: tuple[str, ...]
    attributes: dict[str, str]
    read_only: bool
    # What its nodeStageSecretRef or nodePublishSecretRef names.
    secret: SecretReference | None
    # Which driver made it; empty for one that was made by hand.
    provisioner: str = ""


class BoundClaim(NamedTuple):
    """A PersistentVolumeClaim that names a volume; see is_bound of _kube/objects.py."""

    namespace: str
    name: str
    uid: str
    volume: str
    phase: str


class Mounted(NamedTuple):
    """A container that mounts a volume of its pod."""

    volume: str
    name: str
    id: str
    # Of the volumeMount, from 0: the kubelet names the bind mount of a subPath by it.
    number: int
    mount_path: str
    # Empty for the whole volume.
    sub_path: str
    read_only: bool
    propagation: str
    # The liveness probe asks for something below mount_path, so the kubelet restarts the container
    # when the mount is dead.
    probe: bool
    restart_policy: str


class Tenant(NamedTuple):
    """A pod on a node."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    deleted: datetime | None
    owner: Owner | None
    # The pod's own name of each volume that is a claim's, and the claim.
    volumes: tuple[tuple[str, str], ...]
    mounts: tuple[Mounted, ...]
    created: datetime | None = None


class StorageClass(NamedTuple):
    """A StorageClass."""

    name: str
    parameters: dict[str, str]


def pick_csi_volume(item: dict[str, Any]) -> CsiVolume | None:
    """The record of a PersistentVolume; None for a block volume, and for one of no CSI driver."""
    meta, spec = item["metadata"], item["spec"]
    csi, claim = spec.get("csi"), spec.get("claimRef") or {}
    if not csi or spec.get("volumeMode") == "Block":
        return None
    return CsiVolume(
        meta["name"],
        csi["driver"],
        csi["volumeHandle"],
        (_text(claim, "namespace"), _text(claim, "name")),
        _text(claim, "uid"),
        _text(spec, "storageClassName"),
        _texts(spec, "accessModes"),
        _texts(spec, "mountOptions"),
        dict(csi.get("volumeAttributes") or {}),
        bool(csi.get("readOnly")),
        _pick_secret(csi),
        _text(meta.get("annotations") or {}, _PROVISIONED_BY),
    )


def _pick_secret(csi: Mapping[str, Any]) -> SecretReference | None:
    """The Secret by which a node stages the volume, or publishes it if nothing is staged."""
    reference = csi.get("nodeStageSecretRef") or csi.get("nodePublishSecretRef")
    if not reference:
        return None
    return SecretReference(_text(reference, "namespace"), _text(reference, "name"))


def _text(keys: Mapping[str, Any], name: str) -> str:
    return keys.get(name) or ""


def _texts(keys: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(keys.get(name) or ())


def pick_bound_claim(item: dict[str, Any]) -> BoundClaim | None:
    """The record of a PersistentVolumeClaim; None for one without a volume."""
    meta = item["metadata"]
    volume = (item.get("spec") or {}).get("volumeName")
    if not volume:
        return None
    return BoundClaim(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        volume,
        _text(item.get("status") or {}, "phase"),
    )


def pick_tenant(item: dict[str, Any]) -> Tenant | None:
    """The record of a pod; None for one that is on no node or has no claim."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    volumes = _claims(meta["name"], spec)
    if not volumes or not spec.get("nodeName"):
        return None
    owner: dict[str, Any] | None = next(
        (entry for entry in meta.get("ownerReferences") or [] if entry.get("controller")), None
    )
    ids = _container_ids(status)
    mounts = [
        found
        for container, policy in _lasting_containers(spec)
        for found in _mounts(container, ids, policy)
        if found.volume in volumes
    ]
    return Tenant(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        spec["nodeName"],
        status.get("phase") or "",
        parse_time(meta.get("deletionTimestamp")),
        Owner(owner["kind"], owner["name"], owner["uid"]) if owner else None,
        tuple(volumes.items()),
        tuple(mounts),
        parse_time(meta.get("creationTimestamp")),
    )


def _claims(pod: str, spec: Mapping[str, Any]) -> dict[str, str]:
    """The claims of a pod, by its own name of each volume."""
    found = {}
    for volume in spec.get("volumes") or []:
        if volume.get("persistentVolumeClaim"):
            found[volume["name"]] = volume["persistentVolumeClaim"]["claimName"]
        elif volume.get("ephemeral"):
            # The controller of ephemeral volumes makes a claim of this name (VolumeClaimName of
            # k8s.io/component-helpers/storage/ephemeral).
            found[volume["name"]] = f"{pod}-{volume['name']}"
    return found


def _container_ids(status: Mapping[str, Any]) -> dict[str, str]:
    """Ids of containers as the runtime knows them; the API puts its name and :// in front."""
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {
        entry["name"]: (entry.get("containerID") or "").rpartition("://")[2]
        for kind in kinds
        for entry in status.get(kind) or []
    }


def _lasting_containers(spec: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The containers that run as long as the pod, each with its restart policy."""
    pod_policy = spec.get("restartPolicy") or "Always"
    for container in spec.get("initContainers") or []:
        # A sidecar: an init container that keeps running beside the others (Container.restartPolicy
        # of k8s.io/api/core/v1).
        if container.get("restartPolicy") == "Always":
            yield container, "Always"
    for container in spec.get("containers") or []:
        yield container, container.get("restartPolicy") or pod_policy
    # A debugging container is never restarted (EphemeralContainer of k8s.io/api/core/v1).
    for container in spec.get("ephemeralContainers") or []:
        yield container, "Never"


def _mounts(container: dict[str, Any], ids: Mapping[str, str], policy: str) -> list[Mounted]:
    mounts = container.get("volumeMounts") or []
    probed = _probed(container, [mount["mountPath"] for mount in mounts])
    return [
        Mounted(
            mount["name"],
            container["name"],
            ids.get(container["name"], ""),
            number,
            mount["mountPath"],
            # Only the kubelet knows the value of an expression; that there is one is enough here.
            mount.get("subPath") or mount.get("subPathExpr") or "",
            bool(mount.get("readOnly")),
            mount.get("mountPropagation") or "None",
            mount["mountPath"] in probed,
            policy,
        )
        for number, mount in enumerate(mounts)
    ]


def _probed(container: dict[str, Any], paths: list[str]) -> set[str]:
    """The mount paths below which the command of the liveness probe names something.

    A probe by HTTP or TCP may not notice a dead mount.
    """
    probe = (container.get("livenessProbe") or {}).get("exec") or {}
    # A tenant may give 100,000 words and paths, so they are not compared each with each.
    by_name = {path.rstrip("/"): path for path in sorted(paths, key=len) if len(path) <= _PATH_MAX}
    words = _path_words(probe.get("command") or [])
    # A path inside a nested mount proves only that mount.
    found = {_longest(word.rstrip("/"), by_name) for word in words}
    return {by_name[name] for name in found if name is not None}


def _path_words(command: Iterable[str]) -> set[str]:
    """The absolute paths in a command; only as far as any honest one goes."""
    text = " ".join(islice(command, _MOST_PROBED))[:_MOST_PROBED]
    words = {*_WORD.findall(text)}
    return {word for word in words if word.startswith("/") and len(word) <= _PATH_MAX}


def _longest(word: str, names: Collection[str]) -> str | None:
    """The longest of these paths (without a final slash) that contains the path."""
    while word not in names:
        if not word:
            return None
        word = word.rpartition("/")[0]
    return word


def pick_class(item: dict[str, Any]) -> StorageClass:
    """The record of a StorageClass."""
    return StorageClass(item["metadata"]["name"], dict(item.get("parameters") or {}))
