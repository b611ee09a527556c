# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types that the plan of dead FUSE mounts reads and writes. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._node import kubelet
from .._node.kubelet import Place, VolumeNote
from .._node.mounts import Mount, MountTable
from .._node.probes import Answer
from .._node.processes import Process
from .limits import Limits

KIND = "FUSE mount"
# Where new mounts are made before they replace dead ones. /run is a tmpfs: a reboot, which also
# ends every mount, removes what an interrupted run left (file-hierarchy(7)).
PRIVATE = "/run/storage_ops/fuse"
# For what programs keep of volumes, a folder for each.
CACHES = "/var/cache/storage_ops/fuse"
# How the names of our systemd units begin.
UNIT = "storage_ops-fuse-"
# The slice of all of them, which limits what they take together.
SLICE = "storage_ops-fuse.slice"
# Mebibytes and threads. The defaults are for a server whose driver's container has no limits, or
# was not found; with less than the least values, none of the supported programs starts.
DEFAULT_MEMORY, DEFAULT_TASKS = 1024, 512
LEAST_MEMORY, LEAST_TASKS = 64, 16


@dataclass(frozen=True)
class FusePod:
    """A pod that uses a volume, as the API server describes it."""

    uid: str
    namespace: str = ""
    name: str = ""
    terminating: bool = False


@dataclass(frozen=True)
class FuseVolume:
    """How a volume has to be mounted, as the cluster or the user says.

    ``recipe``: name of a Recipe; ``sources``: candidates for the bucket or folder to mount.
    ``command``: the user's own command line, in place of a recipe. ``memory_max``: in MiB.
    ``pods``: None if it is unknown which pods use the volume. ``credentials_key``: of which of the
    option credentials its own are; ``doubt``: why it is not known which these are.
    ``unreadable``: why the cluster's mount options are not known.
    """

    # Name of the PersistentVolume; handle is what its CSI driver calls it (spec.csi.volumeHandle).
    volume: str = ""
    driver: str = ""
    handle: str = ""
    paths: tuple[str, ...] = ()
    # Not checked here: a StorageClass may name a program that is unknown to this collection.
    recipe: str = ""
    sources: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    # Only for the recipes; a user's command has its address in its own words.
    endpoint: str = ""
    region: str = ""
    # repr=False keeps secrets out of tracebacks and of the node's journal.
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    command: tuple[str, ...] = ()
    # A program that goes into the background needs Type=forking, or systemd ends it at once
    # (systemd.service(5)).
    foreground: bool = True
    memory_max: int | None = None
    tasks_max: int | None = None
    # None, not empty: without pods the strategy kubelet may unmount, without knowledge it may not.
    pods: tuple[FusePod, ...] | None = None
    secret_namespace: str = ""
    credentials_key: str = ""
    doubt: str = ""
    unreadable: str = ""

    def describe(self) -> str:
        """The best name there is, for messages."""
        return self.volume or self.handle or ", ".join(self.paths)


@dataclass(frozen=True)
class FuseOptions:
    """What the user asked for and allows. All times are in seconds.

    The documentation of fuse_remount describes each option.
    """

    paths: tuple[str, ...] = ()
    # remount: new mount at the same points. kubelet: unmount, and let the driver mount for new
    # pods.
    strategy: str = "remount"
    volumes: tuple[FuseVolume, ...] = ()
    kubelet_root: str = kubelet.ROOT
    node: str = ""
    probe_timeout: float = 5.0
    remount_timeout: float = 30.0
    containers_timeout: float = 0.0
    unstage_timeout: float = 60.0
    # Accepted risks, each off by default: an abort loses unwritten data; a majority may be an
    # outage.
    abort_hung_connections: bool = False
    max_repairs: int = 10
    accept_majority: bool = False


@dataclass(frozen=True)
class Target:
    """A mount point whose mount is replaced or removed.

    ``kind``: one of the kinds of _node.kubelet. ``take``: the layers that are unmounted, the
    topmost first. ``root``: which folder of the filesystem was mounted there. ``flags``: options
    that the mount had. ``beneath``: ID of the mount below them in the stack, 0 if there is none.
    """

    point: str
    kind: str
    # Whole mounts, with what identifies them, since IDs are used again after an unmount.
    take: tuple[Mount, ...]
    root: str
    flags: tuple[str, ...]
    # Where the new mount has to be stacked, so that nothing else is covered or uncovered.
    beneath: int


@dataclass(frozen=True)
class Unfinished:
    """What an interrupted run left: its new mount, and the mount points that were waiting for it.

    ``devices``: the dead superblocks. ``fstype``, ``origin``, ``kept`` and ``handles`` are those of
    the Recovery.
    ``begun``: its new mount was proven, and it had started to replace mounts. ``credentials``: its
    credentials file still exists.
    """

    key: str
    name: str
    devices: tuple[str, ...]
    targets: tuple[Target, ...]
    fstype: str = ""
    origin: str = ""
    kept: tuple[str, ...] = ()
    # From then on its server may serve mounts in use, so it is not stopped any more.
    begun: bool = False
    credentials: bool = False
    handles: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """Where its new mount is, if it has one."""
        return f"{PRIVATE}/{self.key}/mount"


@dataclass(frozen=True)
class Service:
    """How a new mount is made.

    ``argv``: the program and its arguments. ``fstypes``: what mountinfo may call its mount.
    ``secret``: text of the credentials file. ``environment``: variables without secrets.
    ``as_is``: started without systemd. ``limits``: properties of the systemd unit, which take
    rights away from the program and bound what it uses of the node. ``secrets``: texts that the
    program knows, and that must not appear in what it is quoted with.
    """

    argv: tuple[str, ...]
    fstypes: tuple[str, ...]
    # Written to a file of mode 0600, and never part of a command line.
    secret: str = field(default="", repr=False)
    environment: tuple[str, ...] = ()
    foreground: bool = True
    # Without systemd: the command has to put itself into the background.
    as_is: bool = False
    limits: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Recovery:
    """The repair of one finding; all its actions carry it.

    ``key``: names its folder and its systemd unit. ``devices``, ``fstype``: the dead superblocks,
    as major:minor, and their type. ``origin``: the source in mountinfo, if that says more than the
    name of a program. ``kept``: options that the new mount must have, too. ``ready``: a mount that
    already answers, below ``trusted``; empty if ``service`` (a Service) makes it. ``pods``: UIDs.
    ``volumes``: names of PersistentVolumes. ``handles``: (driver, volume handle).
    """

    key: str
    name: str
    devices: tuple[str, ...]
    targets: tuple[Target, ...]
    fstype: str = ""
    origin: str = ""
    kept: tuple[str, ...] = ()
    # The mount that the driver has renewed, or that of an interrupted run.
    ready: str = ""
    # Below this folder no path may contain a link, see opened_parent() of _node/kubelet.py.
    trusted: str = ""
    service: Any = None
    pods: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    handles: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """Where this repair keeps its note, its credentials and its new mount."""
        return f"{PRIVATE}/{self.key}"

    @property
    def unit(self) -> str:
        """The transient systemd unit in which the new server runs."""
        # systemd unit names allow these characters (systemd.unit(5)), and the key has only
        # hexadecimal digits.
        return f"{UNIT}{self.key}.service"

    @property
    def source(self) -> str:
        """The mount that all targets show after the repair."""
        return self.ready or f"{self.folder}/mount"


@dataclass(frozen=True)
class Step:
    """The subject of an action. ``target``: a Target, if the action is about one mount point."""

    recovery: Recovery
    target: Any = None


@dataclass(frozen=True)
class PodFolder:
    """A volume's folder in the folder of a pod.

    The kubelet removes it once the volume is torn down for the pod, so until then it is not done
    with the volume (kubernetes pkg/kubelet/kubelet_volumes.go podVolumesExist). ``volume``: the
    PersistentVolume, or what may be its name; empty for an inline volume.
    """

    pod: str
    volume: str
    driver: str
    handle: str


@dataclass(frozen=True)
class FuseState:
    """What was gathered, from which the plan is made.

    ``root``: the kubelet's folder, empty if there is none. ``answers``: by device of the
    superblock. ``others``: FUSE mounts in other mount namespaces, and ``spaces``: which namespace
    that is, by the process through which it was read. ``notes``: by the path of a
    vol_data.json. ``parents``: by mount point, why the folders above it cannot be trusted.
    ``absent``: mount points that an interrupted run noted and that no longer exist. ``waiting``:
    by device, how many requests wait for its server. ``programs``: name -> path. ``servers``: IDs
    of processes that have /dev/fuse open. ``unread``: ID -> why it is not known of a process.
    ``crowded``: by device, how many mounts elsewhere there
    are, where too many to look at all of them. ``limits``: by driver, those of its container.
    ``spare``: by folder on the node, a tenth of its file system in MiB.
    """

    node: str
    root: str
    table: MountTable
    answers: dict[str, Answer] = field(default_factory=dict)
    others: tuple[Mount, ...] = ()
    processes: tuple[Process, ...] = ()
    notes: dict[str, VolumeNote] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    waiting: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    systemd: bool = True
    folders: tuple[PodFolder, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    # Only read if the driver keeps mounts of its own, since it costs a look at all open files.
    servers: tuple[int, ...] = ()
    unread: dict[int, str] = field(default_factory=dict)
    # A tenant can mount a volume any number of times in namespaces of its own.
    crowded: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Limits] = field(default_factory=dict)
    spare: dict[str, int] = field(default_factory=dict)
    # Of pods, by their uid, as far as the node tells.
    namespaces: Mapping[str, str] = field(default_factory=dict)
    # By the pid of a mount in others.
    spaces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Superblock:
    """A FUSE filesystem with its mounts at places of the kubelet.

    ``outside``: its mounts elsewhere, and those that a mount higher up hides. ``device`` is the
    only name that a superblock has in mountinfo; each FUSE mount gets an anonymous one of its own
    (fs/super.c get_anon_bdev).
    """

    device: str
    mounts: tuple[tuple[Mount, Place], ...]
    outside: tuple[Mount, ...]


def printable(path: str) -> str:
    """A path for messages; one with unprintable characters is quoted and escaped."""
    return path if path.isprintable() else ascii(path)
