# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a provisioner to its volumes, the pods that mount them, and where: the join that a node
cannot make. Pure: no I/O here.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from .._core.engine import MAX_RESULT_CHARACTERS
from .._core.untrusted import clean
from .._kube.objects import is_bound
from .records import BoundClaim, CsiVolume, Mounted, StorageClass, Tenant
from .secrets import masked, secret_of, without_secrets

# What drivers call the bucket (or container) of a volume, the folder in it, and both in one, in
# volumeAttributes and parameters of classes. csi-rclone's "remote" is a name in rclone's
# configuration, not a bucket.
_BUCKETS = ("bucket", "bucketName", "bucketname", "containerName")
_FOLDERS = ("path", "prefix", "subDir", "subPath")
_BOTH = ("remotePath",)
# Drivers that may put the files into a folder within the volume; only a file in the bucket says
# whether they did.
_WITHIN = {"ch.ctrox.csi.s3-driver": "csi-fs"}
# Characters around the lists of the result.
_FRAME = 100


@dataclass(frozen=True)
class CsiVolumeOptions:
    """What the user asked for; see the documentation of csi_volume_info.

    ``claims``: each as namespace/name.
    """

    provisioners: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    kubelet_root: str = "/var/lib/kubelet"


@dataclass(frozen=True)
class CsiVolumeState:
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


def wanted(
    volumes: Iterable[CsiVolume], claims: Iterable[BoundClaim], options: CsiVolumeOptions
) -> list[tuple[CsiVolume, BoundClaim]]:
    """The volumes that were asked for, each with its claim, in the order of their names."""
    by_name = {volume.name: volume for volume in volumes}
    found = [
        (volume, claim)
        for claim in claims
        for volume in [by_name.get(claim.volume)]
        if volume and is_bound(claim, volume) and _is_wanted(volume, claim, options)
    ]
    return sorted(found, key=lambda pair: pair[0].name)


def _is_wanted(volume: CsiVolume, claim: BoundClaim, options: CsiVolumeOptions) -> bool:
    made_by = {volume.provisioner, volume.driver}
    return (
        (not options.provisioners or bool(made_by & set(options.provisioners)))
        and (not options.namespaces or claim.namespace in options.namespaces)
        and (not options.claims or f"{claim.namespace}/{claim.name}" in options.claims)
    )


def join(state: CsiVolumeState, options: CsiVolumeOptions, room: int) -> Joined:
    """What is returned, within so many characters as JSON.

    A namespace that has too much, or a pod whose host is unknown, is left out as a whole: a part of
    its volumes would be taken for all of them.
    """
    classes = {entry.name: entry for entry in state.classes}
    found_volumes = wanted(state.volumes, state.claims, options)
    keys = {(claim.namespace, claim.name) for _volume, claim in found_volumes}
    tenants = _by_claim(state.pods, options.nodes, keys)
    left_out = _displaced(state)
    used, unused = [], []
    for volume, claim in found_volumes:
        if claim.namespace in left_out:
            continue
        pods = tenants.get((claim.namespace, claim.name), [])
        if options.nodes and not pods:
            entry = {"volume": volume.name, "driver": volume.driver, "handle": volume.handle}
            unused.append((claim.namespace, entry))
        else:
            found = classes.get(volume.storage_class)
            entry = _volume(state, volume, claim, found, pods, options.kubelet_root)
            used.append((claim.namespace, entry))
    # AWX truncates and then cannot parse what is too long, so nothing is returned in part.
    left_out.update(_too_long(used, unused, room))
    return Joined(
        [entry for namespace, entry in used if namespace not in left_out],
        [entry for namespace, entry in unused if namespace not in left_out],
        dict(sorted(left_out.items())),
    )


def _by_claim(
    pods: Iterable[Tenant], nodes: Collection[str], claims: Collection[tuple[str, str]]
) -> dict[tuple[str, str], list[Tenant]]:
    """The pods on the nodes, on any if there are none, by namespace and name of each of the claims;
    each with the mounts of that claim alone.
    """
    # A tenant's pod may have 50,000 volumes and as many mounts, so each is looked at once.
    found: dict[tuple[str, str], list[Tenant]] = defaultdict(list)
    for pod in pods:
        if nodes and pod.node not in nodes:
            continue
        claim_of = dict(pod.volumes)
        mounts: dict[str, list[Mounted]] = {
            name: [] for name in claim_of.values() if (pod.namespace, name) in claims
        }
        for mount in pod.mounts:
            mounts.get(claim_of[mount.volume], []).append(mount)
        for name, of_claim in mounts.items():
            found[pod.namespace, name].append(pod._replace(volumes=(), mounts=tuple(of_claim)))
    return found


def _displaced(state: CsiVolumeState) -> dict[str, str]:
    """Namespaces with a pod that is older than its node: a finalizer can keep it indefinitely."""
    found: dict[str, str] = {}
    for pod in state.pods:
        since = state.made.get(pod.node)
        if since and pod.created and pod.created < since:
            found[pod.namespace] = (
                f"node {pod.node} was created again after its pod {pod.namespace}/{pod.name}: it "
                "is unknown whether the old or the new host of that name has the pod's mounts. "
                "Delete the pod when the old host is off"
            )
    return found


def _too_long(
    used: Sequence[tuple[str, dict[str, Any]]],
    unused: Sequence[tuple[str, dict[str, Any]]],
    room: int,
) -> dict[str, str]:
    """The largest namespaces, until the others fit, and why each is left out."""
    sizes: Counter[str] = Counter()
    for namespace, entry in used:
        # Containers are in the result twice.
        sizes[namespace] += sum(_size(it) for it in (entry, *containers([entry])))
    for namespace, entry in unused:
        sizes[namespace] += _size(entry)
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


def _size(entry: Mapping[str, Any]) -> int:
    """Characters of an entry in the result, with its separator."""
    # As the engine returns it: a pod's owner chooses its mount paths, and each DEL in one becomes
    # four characters there.
    return len(json.dumps(clean(entry, MAX_RESULT_CHARACTERS))) + 2


def _volume(
    state: CsiVolumeState,
    volume: CsiVolume,
    claim: BoundClaim,
    found: StorageClass | None,
    pods: list[Tenant],
    root: str,
) -> dict[str, Any]:
    parameters = found.parameters if found else {}
    secret, problem = secret_of(volume, claim, parameters)
    # Problems do not leave the volume out: who does not need the Secret can still use the rest.
    problems = [problem] if problem else []
    if volume.storage_class and found is None:
        problems.append(
            f"StorageClass {volume.storage_class} does not exist any more, so its parameters are "
            "unknown"
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
        "pods": [_pod(state, pod, volume, root) for pod in sorted(pods)],
        "staging": staging(volume, root),
    }


def _pod(state: CsiVolumeState, pod: Tenant, volume: CsiVolume, root: str) -> dict[str, Any]:
    publish, subpaths = _host_paths(pod, volume, pod.mounts, root)
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "node": pod.node,
        "phase": pod.phase,
        "terminating": pod.deleted is not None,
        # A deletionTimestamp already includes the grace period (BeforeDelete in
        # apiserver/pkg/registry/rest/delete.go).
        "overdue": max(0, int((state.now - pod.deleted).total_seconds())) if pod.deleted else 0,
        "owner": {"kind": pod.owner.kind, "name": pod.owner.name} if pod.owner else {},
        "containers": [
            _container(mount, subpath or publish) for mount, subpath in zip(pod.mounts, subpaths)
        ],
        "paths": {"publish": publish, "subpaths": list(filter(None, subpaths))},
    }


def _host_paths(
    pod: Tenant, volume: CsiVolume, mounts: Iterable[Mounted], root: str
) -> tuple[str, list[str]]:
    """Where the kubelet mounts the volume for the pod, and each subPath; empty without one."""
    folder = f"{root}/pods/{pod.uid}"
    # GetPath of pkg/volume/csi/csi_mounter.go, and getSubpathBindTarget of
    # pkg/volume/util/subpath/subpath_linux.go.
    publish = f"{folder}/volumes/kubernetes.io~csi/{volume.name}/mount"
    below = f"{folder}/volume-subpaths/{volume.name}"
    return publish, [
        f"{below}/{mount.name}/{mount.number}" if mount.sub_path else "" for mount in mounts
    ]


def _container(mount: Mounted, host_path: str) -> dict[str, Any]:
    shown = {
        key: value for key, value in mount._asdict().items() if key not in ("volume", "number")
    }
    return {**shown, "host_path": host_path}


def containers(volumes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mounts of containers of running pods that are not being deleted, as container_restart
    takes them.
    """
    # A pod that is being deleted takes its containers with it: to restart one would only delay
    # that.
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
    # makeDeviceMountPath of pkg/volume/csi/csi_attacher.go.
    folder = f"{root}/plugins/kubernetes.io/csi"
    return [
        f"{folder}/{volume.driver}/{sha256(volume.handle.encode()).hexdigest()}/globalmount",
        f"{folder}/pv/{volume.name}/globalmount",
    ]


def sources(
    attributes: Mapping[str, str], parameters: Mapping[str, str], handle: str, within: str = ""
) -> list[str]:
    """What the volume may be, as bucket or bucket/folder: one, or all candidates.

    ``within``: a folder within the volume that its files may be in.
    """
    # The attributes of the volume outrank the parameters of its class. A handle that names a folder
    # in the bucket is the volume, since volumes share the bucket; where only the class names a
    # bucket, its volumes are folders of it.
    of_volume = _places(attributes)
    of_class = [] if of_volume else _places(parameters)
    places = of_volume or of_class
    if any(handle == place or handle.startswith(f"{place}/") for place in places):
        found = [handle]
    else:
        found = of_volume or list(dict.fromkeys([*of_class, handle]))
    return found + [f"{place}/{within}" for place in found if within]


def _places(keys: Mapping[str, str]) -> list[str]:
    """The buckets, and bucket/folder pairs, that attributes or parameters name."""
    buckets, folders = _values(keys, _BUCKETS), _values(keys, _FOLDERS)
    return _values(keys, _BOTH) + [
        f"{bucket}/{folder}" if folder else bucket
        for bucket in buckets
        for folder in folders or [""]
    ]


def _values(keys: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The different values under these names, without slashes around them."""
    stripped = (keys.get(name, "").strip("/") for name in names)
    return list(dict.fromkeys(value for value in stripped if value))
