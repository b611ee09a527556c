# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""From a provisioner to its volumes, the pods that mount them, and where: the join that a node
cannot make. Pure: no I/O here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core import untrusted
from ansible_collections.storage_ops.runbooks.plugins.module_utils._kube.objects import (
    Owner,
    parse_time,
)

# Who made a volume, says external-provisioner. A claim has the same in an annotation of its own,
# which whoever owns the claim may write.
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_STAGE = "csi.storage.k8s.io/node-stage-secret-"
_PUBLISH = "csi.storage.k8s.io/node-publish-secret-"

# What drivers call the bucket (or container) of a volume, the folder in it, and both in one, in
# volumeAttributes and parameters of classes. csi-rclone's "remote" is a name in rclone's
# configuration, and no bucket.
_BUCKETS = ("bucket", "bucketName", "bucketname", "containerName")
_FOLDERS = ("path", "prefix", "subDir", "subPath")
_BOTH = ("remotePath",)
# Drivers that may put the files into a folder within the volume, which only a file in the bucket
# tells.
_WITHIN = {"ch.ctrox.csi.s3-driver": "csi-fs"}
# Some drivers take credentials where everybody can read them; they are not handed on from there.
_SECRET_WORDS = r"secret|password|passwd|token|credential|access-?_?key|akid|aksecret"
_SECRET_KEY = re.compile(_SECRET_WORDS, re.IGNORECASE)
# A password may have slashes, and @, in it.
_USER_INFO = re.compile(r"(?<=://)[^\s'\"]*@")
# Within a line of options: key=value, or --key value.
_SECRET_OPTION = re.compile(
    rf"((?:[\w.-]*(?:{_SECRET_WORDS})[\w.-]*=)|(?:(?<!\S)-[\w.-]*(?:{_SECRET_WORDS})[\w.-]*\s+(?!-)))('[^']*'|\"[^\"]*\"|[^\s,]+)",
    re.IGNORECASE,
)
_HIDDEN = "(hidden)"
# A reference to a Secret, such as the name of one, is no secret.
_REFERENCE = re.compile(r"^csi\.storage\.k8s\.io/|secret-?(name|namespace|ref)", re.IGNORECASE)
# What external-provisioner puts in for these in the parameters that name a Secret.
_TEMPLATE = re.compile(r"\$\{(?P<name>[^}]*)\}")
# What is around the lists of the result (characters).
_FRAME = 100
# linux/limits.h
_PATH_MAX = 4096
# Words of a command line, whatever shell reads it.
_WORD = re.compile(r"[^\s'\"`;|&<>()=$]+")


@dataclass(frozen=True)
class Options:
    """What the user asked for; see the documentation of csi_volume_info.

    ``claims``: each as namespace/name.
    """

    provisioners: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    kubelet_root: str = "/var/lib/kubelet"


class SecretReference(NamedTuple):
    """Where a Secret is; never what it holds."""

    namespace: str
    name: str


class CsiVolume(NamedTuple):
    """A PersistentVolume of a CSI driver with a filesystem.

    ``secret``: what its nodeStageSecretRef or nodePublishSecretRef names; ``provisioner``: who made
    it, empty for one that was made by hand.
    """

    name: str
    driver: str
    handle: str
    claim: tuple[str, str]
    claim_uid: str
    storage_class: str
    access_modes: tuple[str, ...]
    mount_options: tuple[str, ...]
    attributes: dict[str, str]
    read_only: bool
    secret: SecretReference | None
    provisioner: str = ""


class BoundClaim(NamedTuple):
    """A PersistentVolumeClaim that has a volume."""

    namespace: str
    name: str
    uid: str
    volume: str
    annotations: dict[str, str]


class Mounted(NamedTuple):
    """A container that mounts a volume of its pod. ``number``: of the volumeMount; ``sub_path``:
    empty for the whole volume.

    ``probe``: its liveness probe asks for something below ``mount_path``, so the kubelet restarts
    it when the mount is dead.
    """

    volume: str
    name: str
    id: str
    number: int
    mount_path: str
    sub_path: str
    read_only: bool
    propagation: str
    probe: bool
    restart_policy: str


class Tenant(NamedTuple):
    """A pod on a node.

    ``volumes``: its own name of each volume that is a claim's, and the claim.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    deleted: datetime | None
    owner: Owner | None
    volumes: tuple[tuple[str, str], ...]
    mounts: tuple[Mounted, ...]
    created: datetime | None = None


class StorageClass(NamedTuple):
    """A StorageClass."""

    name: str
    parameters: dict[str, str]


@dataclass(frozen=True)
class State:
    """What was read. ``made``: when the Node objects were, by name."""

    now: datetime
    volumes: tuple[CsiVolume, ...] = ()
    claims: tuple[BoundClaim, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    pods: tuple[Tenant, ...] = ()
    made: Mapping[str, datetime | None] = field(default_factory=dict)


class Joined(NamedTuple):
    """What csi_volume_info returns of the volumes, and of those that no pod on the chosen nodes
    has. ``left_out``: by namespace, why its volumes are in neither.
    """

    volumes: list[dict[str, Any]]
    unused: list[dict[str, Any]]
    left_out: dict[str, str]


def pick_csi_volume(item: dict[str, Any]) -> CsiVolume | None:
    """The record of a PersistentVolume; None for a block volume, and for one of no CSI driver."""
    spec = item["spec"]
    csi, claim = spec.get("csi"), spec.get("claimRef") or {}
    if not csi or spec.get("volumeMode") == "Block":
        return None
    reference = csi.get("nodeStageSecretRef") or csi.get("nodePublishSecretRef")
    return CsiVolume(
        item["metadata"]["name"],
        csi["driver"],
        csi["volumeHandle"],
        (claim.get("namespace") or "", claim.get("name") or ""),
        claim.get("uid") or "",
        spec.get("storageClassName") or "",
        tuple(spec.get("accessModes") or ()),
        tuple(spec.get("mountOptions") or ()),
        dict(csi.get("volumeAttributes") or {}),
        bool(csi.get("readOnly")),
        SecretReference(reference.get("namespace") or "", reference.get("name") or "")
        if reference
        else None,
        (item["metadata"].get("annotations") or {}).get(_PROVISIONED_BY) or "",
    )


def pick_bound_claim(item: dict[str, Any]) -> BoundClaim | None:
    """The record of a PersistentVolumeClaim; None for one without a volume."""
    meta = item["metadata"]
    volume = (item.get("spec") or {}).get("volumeName")
    annotations: dict[str, str] = meta.get("annotations") or {}
    return (
        BoundClaim(meta["namespace"], meta["name"], meta["uid"], volume, annotations)
        if volume
        else None
    )


def pick_tenant(item: dict[str, Any]) -> Tenant | None:
    """The record of a pod; None for one that is on no node or has no claim."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    volumes = {}
    for volume in spec.get("volumes") or []:
        if volume.get("persistentVolumeClaim"):
            volumes[volume["name"]] = volume["persistentVolumeClaim"]["claimName"]
        elif volume.get("ephemeral"):
            volumes[volume["name"]] = f"{meta['name']}-{volume['name']}"
    if not volumes or not spec.get("nodeName"):
        return None
    owner: dict[str, Any] | None = next(
        (entry for entry in meta.get("ownerReferences") or [] if entry.get("controller")), None
    )
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    ids = {
        entry["name"]: (entry.get("containerID") or "").rpartition("://")[2]
        for kind in kinds
        for entry in status.get(kind) or []
    }
    pod_policy = spec.get("restartPolicy") or "Always"
    mounts = []
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or []:
            # Of init containers only those that go on running beside the others matter; a debugging
            # container is never started again.
            policy = (
                "Never"
                if kind == "ephemeralContainers"
                else container.get("restartPolicy") or pod_policy
            )
            if kind != "initContainers" or container.get("restartPolicy") == "Always":
                mounts += [
                    found for found in _mounts(container, ids, policy) if found.volume in volumes
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
            # What an expression comes to, only the kubelet knows.
            mount.get("subPath") or mount.get("subPathExpr") or "",
            bool(mount.get("readOnly")),
            mount.get("mountPropagation") or "None",
            mount["mountPath"] in probed,
            policy,
        )
        for number, mount in enumerate(mounts)
    ]


def _probed(container: dict[str, Any], paths: list[str]) -> set[str]:
    """The mount paths that the command of the liveness probe names something in.

    A probe by HTTP or TCP need not notice.
    """
    command = ((container.get("livenessProbe") or {}).get("exec") or {}).get("command") or []
    # Each word and each path is a tenant's, and there may be 100,000 of them: none is compared with
    # all others.
    by_name = {path.rstrip("/"): path for path in sorted(paths, key=len) if len(path) <= _PATH_MAX}
    words = {word for part in command for word in _WORD.findall(part) if len(word) <= _PATH_MAX}
    # What lies in a mount within the mount tells of that one alone.
    found = {_longest(word.rstrip("/"), by_name) for word in words if word.startswith("/")}
    return {by_name[name] for name in found if name is not None}


def _longest(word: str, names: Collection[str]) -> str | None:
    """Of these paths, without their last slash, the longest that a path is in."""
    while word not in names:
        if not word:
            return None
        word = word.rpartition("/")[0]
    return word


def pick_class(item: dict[str, Any]) -> StorageClass:
    """The record of a StorageClass."""
    return StorageClass(item["metadata"]["name"], dict(item.get("parameters") or {}))


def wanted(
    volumes: Iterable[CsiVolume], claims: Iterable[BoundClaim], options: Options
) -> list[tuple[CsiVolume, BoundClaim]]:
    """The volumes that were asked for, each with the claim that it is bound to and that is bound to
    it.
    """
    by_name = {volume.name: volume for volume in volumes}
    found = []
    for claim in claims:
        volume = by_name.get(claim.volume)
        if (
            volume is None
            or volume.claim != (claim.namespace, claim.name)
            or volume.claim_uid not in ("", claim.uid)
        ):
            continue
        if options.provisioners and not {volume.provisioner, volume.driver} & set(
            options.provisioners
        ):
            continue
        if options.namespaces and claim.namespace not in options.namespaces:
            continue
        if options.claims and f"{claim.namespace}/{claim.name}" not in options.claims:
            continue
        found.append((volume, claim))
    return sorted(found, key=lambda pair: pair[0].name)


def join(state: State, options: Options, room: int) -> Joined:
    """What is returned, within so many characters as JSON.

    Whoever has too much, or a pod of which the host is not known, is left out whole, so that
    nothing is taken for what is gone; the others are not.
    """
    classes = {entry.name: entry for entry in state.classes}
    tenants: dict[tuple[str, str], list[Tenant]] = {}
    for pod in state.pods:
        if not options.nodes or pod.node in options.nodes:
            for claim_name in {claim for _volume, claim in pod.volumes}:
                tenants.setdefault((pod.namespace, claim_name), []).append(pod)
    left_out = _displaced(state)
    used, unused = [], []
    for volume, claim in wanted(state.volumes, state.claims, options):
        if claim.namespace in left_out:
            continue
        pods = tenants.get((claim.namespace, claim.name), [])
        if options.nodes and not pods:
            entry = {"volume": volume.name, "driver": volume.driver, "handle": volume.handle}
            unused.append((claim.namespace, entry))
        else:
            found = classes.get(volume.storage_class)
            told = _volume(state, volume, claim, found, pods, options.kubelet_root)
            used.append((claim.namespace, told))
    left_out.update(_too_long(used, unused, room))
    return Joined(
        [entry for namespace, entry in used if namespace not in left_out],
        [entry for namespace, entry in unused if namespace not in left_out],
        dict(sorted(left_out.items())),
    )


def _displaced(state: State) -> dict[str, str]:
    """Namespaces with a pod that is older than its node: a finalizer keeps it for as long as its
    owner likes.
    """
    found: dict[str, str] = {}
    for pod in state.pods:
        since = state.made.get(pod.node)
        if since and pod.created and pod.created < since:
            found[pod.namespace] = (
                f"node {pod.node} was made again after its pod {pod.namespace}/{pod.name}: which "
                "host has that pod's mounts, the one that had the name before or the one that has "
                "it now, is not known. Delete the pod when the old one is off"
            )
    return found


def _too_long(
    used: Sequence[tuple[str, dict[str, Any]]],
    unused: Sequence[tuple[str, dict[str, Any]]],
    room: int,
) -> dict[str, str]:
    """The largest namespaces, until the others fit."""
    sizes: Counter[str] = Counter()
    for namespace, entry in used:
        # With what separates them; containers are told twice.
        sizes[namespace] += sum(len(json.dumps(it)) + 2 for it in (entry, *containers([entry])))
    for namespace, entry in unused:
        sizes[namespace] += len(json.dumps(entry)) + 2
    excess, found = sum(sizes.values()) + _FRAME - room, {}
    for namespace, size in sizes.most_common():
        if excess <= 0:
            break
        excess -= size
        found[namespace] = (
            f"its volumes and pods take {size} characters, and with them the list is too long for "
            f"AWX (at most {room} are returned): run for this namespace alone, or narrow it down "
            "by claims"
        )
    return found


def _volume(
    state: State,
    volume: CsiVolume,
    claim: BoundClaim,
    found: StorageClass | None,
    pods: list[Tenant],
    root: str,
) -> dict[str, Any]:
    parameters = found.parameters if found else {}
    secret, problem = secret_of(volume, claim, parameters)
    problems = [problem] if problem else []
    if volume.storage_class and found is None:
        problems.append(
            f"there is no StorageClass {volume.storage_class} any "
            "more, so its parameters are not known"
        )
    return {
        "volume": volume.name,
        "driver": volume.driver,
        "handle": volume.handle,
        "claim": claim.name,
        "namespace": claim.namespace,
        "storage_class": volume.storage_class,
        "access_modes": list(volume.access_modes),
        "read_only": volume.read_only,
        "mount_options": [masked(option) for option in volume.mount_options],
        "attributes": without_secrets(volume.attributes),
        "parameters": without_secrets(parameters),
        "sources": sources(
            volume.attributes, parameters, volume.handle, _WITHIN.get(volume.driver, "")
        ),
        "secret": {"namespace": secret.namespace, "name": secret.name} if secret else {},
        "problems": problems,
        "pods": [_pod(state, pod, volume, claim, root) for pod in sorted(pods)],
        "staging": staging(volume, root),
    }


def _pod(
    state: State, pod: Tenant, volume: CsiVolume, claim: BoundClaim, root: str
) -> dict[str, Any]:
    names = {name for name, claim_name in pod.volumes if claim_name == claim.name}
    mounts = [mount for mount in pod.mounts if mount.volume in names]
    folder = f"{root}/pods/{pod.uid}"
    publish = f"{folder}/volumes/kubernetes.io~csi/{volume.name}/mount"
    subpaths = [
        f"{folder}/volume-subpaths/{volume.name}/{mount.name}/{mount.number}"
        if mount.sub_path
        else ""
        for mount in mounts
    ]
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "node": pod.node,
        "phase": pod.phase,
        "terminating": pod.deleted is not None,
        # The deletionTimestamp has the grace period in it.
        "overdue": max(0, int((state.now - pod.deleted).total_seconds())) if pod.deleted else 0,
        "owner": {"kind": pod.owner.kind, "name": pod.owner.name} if pod.owner else {},
        "containers": [
            {
                **{
                    key: value
                    for key, value in mount._asdict().items()
                    if key not in ("volume", "number")
                },
                "host_path": subpath or publish,
            }
            for mount, subpath in zip(mounts, subpaths)
        ],
        "paths": {"publish": publish, "subpaths": list(filter(None, subpaths))},
    }


def containers(volumes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mounts of containers that run and are to go on running, as container_restart
    takes them.
    """
    return [
        {
            "pod": pod["uid"],
            "namespace": pod["namespace"],
            "pod_name": pod["name"],
            "container": container["name"],
            "volume": volume["volume"],
            "claim": volume["claim"],
            **{
                name: container[name]
                for name in ("id", "mount_path", "host_path", "probe", "restart_policy")
            },
        }
        for volume in volumes
        for pod in volume["pods"]
        if pod["phase"] == "Running" and not pod["terminating"]
        for container in pod["containers"]
    ]


def staging(volume: CsiVolume, root: str) -> list[str]:
    """Where a kubelet may have staged a volume: since Kubernetes 1.24, and before."""
    folder = f"{root}/plugins/kubernetes.io/csi"
    return [
        f"{folder}/{volume.driver}/{sha256(volume.handle.encode()).hexdigest()}/globalmount",
        f"{folder}/pv/{volume.name}/globalmount",
    ]


def sources(
    attributes: Mapping[str, str], parameters: Mapping[str, str], handle: str, within: str = ""
) -> list[str]:
    """What the volume may be, as bucket or bucket/folder: one, or all that it may be; ``within``: a
    folder that its files may be in.

    What a driver was told for this volume (attributes) is better than what holds for its whole
    class. A handle that names a folder in the bucket is the volume, and the bucket is what many
    share; where a bucket is all that is known of a class, its volumes are folders of it.
    """
    told = _places(attributes)
    of_class = [] if told else _places(parameters)
    places = told or of_class
    if any(handle == place or handle.startswith(f"{place}/") for place in places):
        found = [handle]
    else:
        found = places if told else list(dict.fromkeys([*of_class, handle]))
    return found + [f"{place}/{within}" for place in found if within]


def _places(keys: Mapping[str, str]) -> list[str]:
    folders = list(
        dict.fromkeys(keys[name].strip("/") for name in _FOLDERS if keys.get(name, "").strip("/"))
    )
    buckets = list(
        dict.fromkeys(keys[name].strip("/") for name in _BUCKETS if keys.get(name, "").strip("/"))
    )
    both = [keys[name].strip("/") for name in _BOTH if keys.get(name, "").strip("/")]
    return both + [
        f"{bucket}/{folder}" if folder else bucket
        for bucket in buckets
        for folder in folders or [""]
    ]


def secret_of(
    volume: CsiVolume, claim: BoundClaim, parameters: Mapping[str, str]
) -> tuple[SecretReference | None, str]:
    """Where the credentials of a volume are, and why that is not known."""
    if volume.secret:
        return volume.secret, ""
    for prefix in (_STAGE, _PUBLISH):
        name, namespace = parameters.get(f"{prefix}name"), parameters.get(f"{prefix}namespace")
        if not name and not namespace:
            continue
        if not name or not namespace:
            return (
                None,
                f"StorageClass {volume.storage_class} has only one of {prefix}name and "
                f"{prefix}namespace",
            )
        values = {"pv.name": volume.name, "pvc.namespace": claim.namespace}
        spelled = _filled(namespace, values)
        values["pvc.name"] = claim.name
        values.update(
            {f"pvc.annotations['{key}']": value for key, value in claim.annotations.items()}
        )
        found = SecretReference(spelled, _filled(name, values))
        if "" in found:
            return (
                None,
                f"StorageClass {volume.storage_class} names the Secret {namespace}/{name}, which "
                "says nothing for this claim",
            )
        # Who owns the claim writes its annotations.
        if not all(untrusted.is_name(part) for part in found):
            return (
                None,
                f"StorageClass {volume.storage_class} names the Secret {namespace}/{name}, which "
                "is none for this claim",
            )
        return found, ""
    return None, ""


def _filled(template: str, values: Mapping[str, str]) -> str:
    """A template with its values; empty if it has one that is not known."""
    names = [match["name"] for match in _TEMPLATE.finditer(template)]
    if any(name not in values for name in names):
        return ""
    return _TEMPLATE.sub(lambda match: values[match["name"]], template)


def without_secrets(keys: Mapping[str, str]) -> dict[str, str]:
    """Attributes or parameters without the credentials that some drivers want there."""
    return {
        key: _HIDDEN if _SECRET_KEY.search(key) and not _REFERENCE.search(key) else masked(value)
        for key, value in keys.items()
    }


def masked(text: str) -> str:
    """Text without the credentials in addresses and options.

    Rather too much is hidden than too little.
    """
    return _SECRET_OPTION.sub(rf"\1{_HIDDEN}", _USER_INFO.sub(f"{_HIDDEN}@", text))
