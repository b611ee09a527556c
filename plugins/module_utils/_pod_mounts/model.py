# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of the plan of pod mounts: mount points, layers, filesystems. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .._core import drivers
from .._node import kubelet
from .._node.kubelet import Place, VolumeNote
from .._node.loops import is_loop
from .._node.mounts import Mount, MountTable
from .._node.probes import Answer
from .._node.processes import Process
from .._node.renewed import Renewed
from .backing import Backing

# Mount options by which the kernel shows a filesystem that has given up: emergency_ro since Linux
# 6.15 (fs/ext4/super.c _ext4_show_options), shutdown after a forced one.
_GIVEN_UP = ("emergency_ro", "shutdown")
_DELETED = "//deleted"


@dataclass(frozen=True)
class PodMountOptions:
    """What the user asked for and allows; the documentation of csi_mount_repair describes each.

    ``publish_from``: CSI driver -> drivers.STAGING or drivers.ELSEWHERE.
    """

    paths: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    kubelet_root: str = kubelet.ROOT
    probe_timeout: float = 5.0
    max_repairs: int = 10
    accept_majority: bool = False
    # What the user knows about drivers that are not in _core/drivers.py.
    publish_from: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PodMountState:
    """What was gathered, from which the plan is made. A device is a superblock's major:minor.

    ``root``: the kubelet's folder, without links. ``notes``: the kubelet's notes of volumes, by
    path. ``answers``: of filesystems, by device. ``logs``: by device, the lines in which the kernel
    gave a filesystem up. ``processes``, ``elsewhere`` (its mounts in other namespaces) and
    ``backings`` (by device, its block device) are read only if something looks wrong. ``loops``: by
    loop device, the filesystem that its file is on. ``publish_from``: as in Options.
    """

    node: str
    root: str
    table: MountTable
    notes: dict[str, VolumeNote]
    answers: dict[str, Answer] = field(default_factory=dict)
    logs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    elsewhere: tuple[Mount, ...] = ()
    # By device, how many more mounts elsewhere there are than were looked at.
    crowded: Mapping[str, str] = field(default_factory=dict)
    backings: dict[str, Backing] = field(default_factory=dict)
    loops: dict[str, str] = field(default_factory=dict)
    publish_from: Mapping[str, str] = field(default_factory=dict)
    # By the pid of mounts elsewhere, and of process 1, their mount namespace.
    spaces: Mapping[str, str] = field(default_factory=dict)
    # Of pods, by their uid, as far as the node tells.
    namespaces: Mapping[str, str] = field(default_factory=dict)
    # The mounts that fuse_remount has noted.
    renewed: frozenset[Renewed] = frozenset()

    def volumes_at(self, places: Iterable[Place]) -> list[str]:
        """The PersistentVolumes of these places, sorted."""
        # An inline volume has a name of its own, which may be that of a PersistentVolume.
        notes = ((place, self.notes.get(place.note)) for place in places)
        return sorted({place.volume for place, note in notes if not (note and note.inline)} - {""})

    def places(self, *kinds: str) -> list[Place]:
        """The places of these kinds where something is mounted; none if there is no kubelet."""
        return [place for place in self._places if place.kind in kinds]

    @cached_property
    def _places(self) -> list[Place]:
        # Once, since a pod may have thousands of subPaths, each of which is a mount of the node.
        points = dict.fromkeys(mount.point for mount in self.table.mounts) if self.root else ()
        found = (kubelet.classify(point, self.root) for point in points)
        # Mount points below another mount are in mountinfo, too, but cannot be reached.
        return [place for place in found if place is not None and self.table.layers(place.point)]


@dataclass(frozen=True)
class LayerSubject:
    """The layer that an action unmounts, and the whole stack when the plan was made."""

    mount: Mount
    layers: tuple[Mount, ...]


@dataclass(frozen=True)
class Stack:
    """The mounts at a pod's mount point, compared with those where its volume is staged.

    ``layers``: the pod's mounts, the topmost last. ``staged``: the topmost mounts of the staging
    folders; ``hidden``: those below them. Neither includes mounts that came there by propagation
    from the pod's mount point. ``problem``: why it is unknown where the volume is staged.
    ``publishes``: what the driver is known to do (_core/drivers.py). ``loops``: as in State.
    ``folders``: the staging folders themselves, as (device, folder) of the filesystem they are in.
    ``renewed``: the layers that fuse_remount has made for the volume.
    """

    place: Place
    note: VolumeNote
    layers: tuple[Mount, ...]
    staged: tuple[Mount, ...]
    hidden: tuple[Mount, ...]
    problem: str
    publishes: str = ""
    loops: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[tuple[str, str], ...] = ()
    renewed: tuple[Mount, ...] = ()

    def right(self, layer: Mount) -> bool:
        """Whether a layer is the staged volume, or a folder or file of it, as some drivers do."""
        # Its driver may have staged the volume again since: another filesystem, and the same data.
        if layer in self.renewed:
            return True
        below = layer.device
        # At most as many steps as there are loop devices: they are read one after the other, so two
        # may seem to be on each other.
        for _depth in self.loops:
            below = self.loops.get(below, "")
            # Only whole filesystems count: the kernel does not say in which folder the file is.
            # A driver may format a file in the staged volume and mount that by a loop device.
            if any((below, "/") == (staged.device, staged.root) for staged in self.staged):
                return True
        return any(
            layer.device == staged.device and _within(layer.root, staged.root)
            for staged in self.staged
        )

    def has(self, device: str) -> bool:
        """Whether the volume is on that device, as far as is known."""
        return not self.problem and any(
            layer.device == device and layer not in self.wrong for layer in self.layers
        )

    @property
    def strange(self) -> list[Mount]:
        """The layers that are not what is staged."""
        return [layer for layer in self.layers if self.staged and not self.right(layer)]

    @property
    def unread(self) -> list[Mount]:
        """The strange layers on a loop device of which it is not known where its file is."""
        return [layer for layer in self.strange if self._is_unread(layer)]

    def _is_unread(self, layer: Mount) -> bool:
        below = layer.device
        for _depth in range(len(self.loops) + 1):
            if not is_loop(below):
                return False
            if below not in self.loops:
                return True
            below = self.loops[below]
        return False

    @property
    def wrong(self) -> list[Mount]:
        """The layers that are not the volume, since the driver publishes only what it staged."""
        # Only of such a driver is it known that the pod's mount has to be the staged one.
        if self.publishes != drivers.STAGING:
            return []
        unread = self.unread
        return [layer for layer in self.strange if layer not in unread]

    @property
    def unknown(self) -> list[Mount]:
        """The layers that may be the volume: its driver may have mounted them elsewhere, or a file
        of it may be behind their loop device.
        """
        # Judged as unknown, which is reported and never repaired.
        return self.unread if self.publishes == drivers.STAGING else self.strange

    def verdict(self, layer: Mount) -> str:
        """What a layer is, for the evidence; empty if that is not known."""
        # Nothing to compare with.
        if not self.staged:
            return ""
        if layer not in self.strange:
            return "the volume"
        return "wrong" if layer in self.wrong else "unknown"

    @property
    def bare(self) -> bool:
        """Whether the pod has the staging folder itself, without the mount that should be on it."""
        # The topmost is what the pod has; below it the folder would do no harm.
        top = self.layers[-1]
        return any(
            top.device == device and _within(top.root, folder) for device, folder in self.folders
        )

    @property
    def fine(self) -> bool:
        """Whether there is one layer, and nothing contradicts that it is the volume."""
        strange = (self.strange or self.bare) and self.publishes != drivers.ELSEWHERE
        # A driver that mounts elsewhere may rightly show another device than the staged one.
        return len(self.layers) == 1 and not self.problem and not strange


@dataclass(frozen=True)
class Filesystem:
    """A volume's filesystem, wherever the kubelet has it mounted.

    ``mounts``: its layers at staging and publish points, ``places``: these points.
    """

    device: str
    mounts: tuple[Mount, ...]
    places: tuple[Place, ...]

    @property
    def first(self) -> Mount:
        """The mount that the driver has made; that in the staging folder, if there is one."""
        # Binds of it may have other options, as readOnly of a volumeMount.
        return self.mounts[0]

    @property
    def read_only(self) -> bool:
        """Whether the superblock is read-only, and with it all mounts of it."""
        return "ro" in self.first.super_options

    @property
    def wanted(self) -> str:
        """``rw`` or ``ro``: what the driver asked for when it mounted the filesystem."""
        # When a filesystem turns read-only, only its superblock gets the flag (SB_RDONLY); that of
        # a mount (MNT_READONLY) stays (fs/proc_namespace.c show_mountinfo shows both).
        return "ro" if "ro" in self.first.options else "rw"

    @property
    def given_up(self) -> list[str]:
        """The options by which the kernel shows that it has given the filesystem up."""
        return [
            # Some filesystems give the flag a value, as shutdown=1.
            flag
            for flag in _GIVEN_UP
            if any(word.partition("=")[0] == flag for word in self.first.super_options)
        ]


def _within(root: str, above: str) -> bool:
    """Whether a folder of a filesystem is another one, or inside it; either may be deleted."""
    # mountinfo appends //deleted to a removed folder, which is still the same one.
    inner, outer = (
        path[: -len(_DELETED)] if path.endswith(_DELETED) else path for path in (root, above)
    )
    return inner == outer or inner.startswith(f"{outer.rstrip('/')}/")


def show(text: str) -> str:
    """A foreign text for messages: quoted and escaped if it has unprintable characters."""
    return text if text.isprintable() else repr(text)


def workload_of(note: VolumeNote, places: tuple[Place, ...]) -> dict[str, Any]:
    """What the playbook has to move off the node and back."""
    pods = sorted({place.pod for place in places if place.pod})
    return {"volume": note.volume, "driver": note.driver, "handle": note.handle, "pods": pods}
