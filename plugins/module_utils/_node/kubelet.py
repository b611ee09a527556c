# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's folder: what each mount point in it is for, and the kubelet's notes about volumes.

Other programs can make folders and mounts there, too. So a path counts only if every part of it is
a name that Kubernetes gives.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._core.bounded import call_each
from .._core.errors import BadOption, StorageOpsError
from .host import Host

ROOT = "/var/lib/kubelet"

# Kinds of places. A block volume has four: where it is staged, where it is published for a pod, the
# device bound for a pod, and the pod's link to it (kubernetes pkg/volume/csi/csi_block.go).
STAGING = "staging"
PUBLISH = "publish"
SUBPATH = "subpath"
BLOCK_STAGING = "block_staging"
BLOCK_PUBLISH = "block_publish"
BLOCK_MAP = "block_map"
BLOCK_POD = "block_pod"
IN_TREE = "in_tree"

# podLogsDir of the kubelet by default (KubeletConfiguration).
_POD_LOGS = "/var/log/pods"
# Bytes. A note has a few hundred; more would only be read to be refused.
_NOTE_BYTES = 65536
_NOTE = "vol_data.json"
_CSI = "plugins/kubernetes.io/csi"

# DNS names, UIDs, and plugins, whose slash the kubelet writes as ~ (k8s.io/utils/strings
# EscapeQualifiedName). Nothing that begins with a dot, and no kind of blank.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._~-]{0,252}"
# Some drivers mount in a folder of their own within the one they were given.
_BELOW = rf"(?:/(?P<below>{_NAME}(?:/{_NAME})*))?"
_POD = rf"pods/(?P<pod>{_NAME})"
_VOLUME = rf"(?P<volume>{_NAME})"
_PLUGIN = r"(?P<plugin>[A-Za-z0-9][A-Za-z0-9._-]{0,252}~[A-Za-z0-9][A-Za-z0-9._~-]{0,252})"
# The first that matches counts. The sources are kubernetes pkg/volume/csi/csi_attacher.go
# makeDeviceMountPath, csi_mounter.go getTargetPath, csi_block.go, pkg/kubelet/kubelet_getters.go
# and pkg/volume/util/subpath/subpath_linux.go.
_FORMS = tuple(
    (kind, re.compile(form, re.ASCII))
    for kind, form in (
        # Until Kubernetes 1.23, and for volumes that were staged before an upgrade.
        (STAGING, rf"{_CSI}/pv/{_VOLUME}/globalmount{_BELOW}"),
        (BLOCK_STAGING, rf"{_CSI}/volumeDevices/staging/{_VOLUME}{_BELOW}"),
        (BLOCK_PUBLISH, rf"{_CSI}/volumeDevices/publish/{_VOLUME}(?:/(?P<pod>{_NAME}))?"),
        (BLOCK_MAP, rf"{_CSI}/volumeDevices/{_VOLUME}/dev/(?P<pod>{_NAME})"),
        (STAGING, rf"{_CSI}/(?P<driver>{_NAME})/(?P<digest>[0-9a-f]{{64}})/globalmount{_BELOW}"),
        (PUBLISH, rf"{_POD}/volumes/(?P<plugin>kubernetes\.io~csi)/{_VOLUME}/mount"),
        (IN_TREE, rf"{_POD}/volumes/(?!kubernetes\.io~csi/){_PLUGIN}/{_VOLUME}"),
        (SUBPATH, rf"{_POD}/volume-subpaths/{_VOLUME}/(?P<container>{_NAME})/(?P<index>\d{{1,9}})"),
        (BLOCK_POD, rf"{_POD}/volumeDevices/{_PLUGIN}/{_VOLUME}"),
    )
)


@dataclass(frozen=True)
class Place:
    """What a mount point is for; fields that its path does not tell are empty.

    ``volume``: the PersistentVolume. In the folder of a pod it may also be the name that the pod's
    owner chose for an inline volume; there, only the note tells. ``plugin``: as
    ``kubernetes.io~csi``. ``driver`` and ``digest``: CSI driver and SHA-256 of the volume handle,
    in staging paths since Kubernetes 1.24.
    ``index``: of the volumeMount in the container. ``below``: where the driver mounted within the
    folder it was given. ``note``: the kubelet's vol_data.json of the volume.
    """

    kind: str
    point: str
    volume: str = ""
    plugin: str = ""
    pod: str = ""
    driver: str = ""
    digest: str = ""
    container: str = ""
    index: str = ""
    below: str = ""
    note: str = ""


@dataclass(frozen=True)
class VolumeNote:
    """The content of a vol_data.json. ``problem``: why there is none.

    ``name``: the PersistentVolume, or what the pod's owner calls an ``inline`` volume. The note of
    a staging path lacks ``name`` and ``node``.
    """

    # Its keys are driverName, volumeHandle, specVolID, nodeName and volumeLifecycleMode (kubernetes
    # pkg/volume/csi/csi_mounter.go volDataKey, csi_plugin.go NewMounter; csi_attacher.go
    # MountDevice writes only the first two).

    driver: str = ""
    handle: str = ""
    name: str = ""
    node: str = ""
    problem: str = ""
    inline: bool = False

    @property
    def volume(self) -> str:
        """The PersistentVolume; empty for an inline volume, whose name only its pod knows."""
        # A tenant may give it the name of any PersistentVolume.
        return "" if self.inline else self.name


def classify(point: str, root: str = ROOT) -> Place | None:
    """What a mount point (as in mountinfo) is for; None if it is no place of the kubelet.

    ``root``: the kubelet's folder, without links. Only the text is judged: a link may have been put
    into the path, so act on it through ``opened_parent``.
    """
    inside = point[len(root) + 1 :] if point.startswith(f"{root}/") else ""
    for kind, form in _FORMS:
        match = form.fullmatch(inside)
        if match:
            said = {name: text or "" for name, text in match.groupdict().items()}
            return Place(kind, point, note=_note(kind, point, root, said), **said)
    return None


def namespaces_of(host: Host) -> dict[str, str]:
    """By uid of each pod its namespace, as far as the node tells.

    The kubelet names the folders of logs NAMESPACE_NAME_UID (BuildPodLogsDirectory in kubernetes
    pkg/kubelet/kuberuntime/helpers.go).
    """
    parts = [name.split("_") for name in host.names(_POD_LOGS)]
    return {part[2]: part[0] for part in parts if len(part) == 3}


# Whose turn is used up where it is not known; no namespace has such a name.
UNKNOWN = "?"


def turn_of(pod: str, namespaces: Mapping[str, str], otherwise: str = "") -> str:
    """Whose turn a pod uses up, by its uid: its namespace, as far as that is known.

    ``namespaces``: as of ``namespaces_of``; ``otherwise``: where there is no pod.
    """
    # A tenant may have any number of pods without a container yet, and of volumes that are staged
    # for none. All of these together have one turn, unless the node tells of no pod at all.
    return namespaces.get(pod) or (UNKNOWN if namespaces else pod or otherwise)


def owner_of(point: str, root: str, namespaces: Mapping[str, str]) -> str:
    """The same for a mount point; one that is no place of the kubelet has its own."""
    place = classify(point, root)
    return turn_of(place.pod, namespaces, point) if place else point


def _note(kind: str, point: str, root: str, said: dict[str, str]) -> str:
    if kind in (STAGING, PUBLISH):
        # The note is beside globalmount or mount, not where the driver mounted below it.
        folder = point[: -len(said["below"]) - 1] if said.get("below") else point
        return f"{folder.rpartition('/')[0]}/{_NOTE}"
    if kind in (BLOCK_STAGING, BLOCK_PUBLISH, BLOCK_MAP) or (
        kind == BLOCK_POD and said["plugin"] == "kubernetes.io~csi"
    ):
        # kubernetes pkg/volume/csi/csi_util.go getVolumeDeviceDataDir.
        return f"{root}/{_CSI}/volumeDevices/{said['volume']}/data/{_NOTE}"
    return ""


def digest_of(handle: str) -> str:
    """The SHA-256 of a volume handle, which is the name of the volume's staging folder."""
    # A text that UTF-8 cannot encode gets a digest, too, which no folder has.
    return hashlib.sha256(handle.encode(errors="surrogatepass")).hexdigest()


def staging_points(
    note: VolumeNote, notes: Mapping[str, VolumeNote], root: str = ROOT
) -> tuple[str, ...]:
    """Where the kubelet stages a volume: since Kubernetes 1.24, and before.

    ``notes``: those of staging folders, by path. The older folder has only the PersistentVolume's
    name. So it counts only if its note names the same driver and volume handle.
    """
    # An inline volume is never staged (kubernetes pkg/volume/csi/csi_plugin.go CanDeviceMount).
    if note.inline:
        return ()
    newer = f"{root}/{_CSI}/{note.driver}/{digest_of(note.handle)}"
    older = f"{root}/{_CSI}/pv/{note.volume}"
    beside = notes.get(f"{older}/{_NOTE}", VolumeNote())
    same = (beside.driver, beside.handle) == (note.driver, note.handle)
    return tuple(f"{folder}/globalmount" for folder in ([newer, older] if same else [newer]))


def parse_note(text: str, path: str) -> VolumeNote:
    """The note in the text of a vol_data.json. Raises StorageOpsError, which names ``path``."""
    try:
        data = json.loads(text)
    # Deeply nested JSON raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise StorageOpsError(f"{path!r} is no JSON") from error
    if not isinstance(data, dict):
        raise StorageOpsError(f"{path!r} holds no JSON object")

    def take(key: str, form: str, needed: bool) -> str:
        value: Any = data.get(key, "")
        if not isinstance(value, str) or not (
            re.fullmatch(form, value, re.ASCII) or (value == "" and not needed)
        ):
            raise StorageOpsError(f"{path!r} has {'no' if value == '' else 'an invalid'} {key}")
        return value

    handle = take("volumeHandle", r"[^\0]{1,4096}", needed=True)
    # It is shown in messages. A lone surrogate, which JSON can encode, is not printable either.
    if not handle.isprintable():
        raise StorageOpsError(f"{path!r} has a volumeHandle that cannot be printed")
    return VolumeNote(
        take("driverName", _NAME, True),
        handle,
        take("specVolID", _NAME, False),
        take("nodeName", _NAME, False),
        # kubernetes/api storage/v1/types.go VolumeLifecycleMode.
        inline=take("volumeLifecycleMode", "Persistent|Ephemeral", False) == "Ephemeral",
    )


def contradiction(place: Place, note: VolumeNote) -> str:
    """Why a note cannot be about a place, as a sentence; empty if it can."""
    if note.name and place.volume and note.name != place.volume:
        return f"{place.note} is of the volume {note.name}, not {place.volume}"
    if place.driver and note.driver != place.driver:
        return (
            f"{place.note} names the driver {note.driver}, but is in the folder of {place.driver}"
        )
    if place.digest and digest_of(note.handle) != place.digest:
        return (
            f"{place.note} names the volume handle {note.handle}, which is not that of its folder"
        )
    return ""


def resolve_root(host: Host, root: str) -> str:
    """The kubelet's folder with its links resolved, as in mountinfo. Raises BadOption."""
    # Links up to the folder are the administrator's, unlike those inside it.
    if not root.startswith("/") or ".." in root.split("/"):
        raise BadOption(f"the kubelet's folder {root!r} has to be an absolute path without '..'")

    def resolving() -> str:
        real = host.resolve(root)
        return real if os.path.isdir(host.path(real)) else ""

    reply = host.bounded(resolving)
    if reply.problem:
        raise StorageOpsError(f"the kubelet's folder {root!r} cannot be read: {reply.problem}")
    real: str = reply.value
    if real.strip("/") == "":
        raise BadOption(f"the kubelet's folder {root!r} does not exist, or is no folder of its own")
    return real


def find_root(host: Host, root: str) -> str:
    """The same; empty if the default folder does not exist, as on a machine that is no node."""
    reply = host.bounded(lambda: os.path.lexists(host.path(root)))
    return (
        "" if root == ROOT and not reply.problem and not reply.value else resolve_root(host, root)
    )


def folders(path: str) -> list[str]:
    """The names of a folder's folders, without links; none if it does not exist or is a link."""
    try:
        # A link in its place could lead out of the kubelet's folder.
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.name.isprintable() and entry.is_dir(follow_symlinks=False)
            )
    finally:
        os.close(folder)


@contextlib.contextmanager
def opened_parent(path: str, root: str) -> Iterator[tuple[int, str]]:
    """(descriptor of the folder that ``path`` is in, the name in it), without following links.

    ``root``: folder without links that it must be in. The descriptor is an O_PATH one: use it as
    ``dir_fd``, or as ``/proc/self/fd/N``. What is at ``path`` is not touched. Call it in a child,
    since a folder on the way may be a mount that never answers. Raises StorageOpsError if there is
    no such folder, or a link in its place.
    """
    # Folder by folder, since openat2(2) with RESOLVE_NO_SYMLINKS needs Linux 5.6.
    names = path.split("/")[1:]
    if (
        not path.startswith(f"{root}/")
        or not root.startswith("/")
        or {"", ".", ".."} & set(names)
        or "\0" in path
    ):
        raise StorageOpsError(f"{path!r} is not inside {root!r}")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = os.open("/", flags)
    try:
        for index, name in enumerate(names[:-1], 1):
            try:
                inner = os.open(name, flags, dir_fd=folder)
            except OSError as error:
                # With O_DIRECTORY and O_NOFOLLOW a link is ENOTDIR, too (open(2)).
                why = (
                    "it is a link, or no folder"
                    if isinstance(error, NotADirectoryError)
                    else str(error.strerror)
                )
                raise StorageOpsError(
                    f"{'/' + '/'.join(names[:index])!r} cannot be entered: {why}"
                ) from error
            os.close(folder)
            folder = inner
        yield folder, names[-1]
    finally:
        os.close(folder)


def parents_problem(host: Host, paths: Sequence[str], root: str) -> list[str]:
    """For each path, why the folders above it cannot be trusted; empty if they can.

    One may be a link, be missing, or not answer in time.
    """

    def entering(path: str) -> str:
        try:
            with opened_parent(host.path(path), host.path(root)):
                return ""
        except StorageOpsError as error:
            return str(error)

    replies = call_each(entering, paths, host.command_timeout, host.deadline.remaining())
    return [
        f"the folders of {path!r} cannot be entered: {reply.problem}"
        if reply.problem
        else reply.value
        for path, reply in zip(paths, replies)
    ]


def absent_points(host: Host, points: list[str]) -> list[str]:
    """The paths at which nothing exists. A dead mount exists, though stat fails on it."""

    def asking(point: str) -> bool:
        try:
            os.lstat(host.path(point))
        except (FileNotFoundError, NotADirectoryError):
            return True
        # As ENOTCONN, which a dead FUSE mount answers (fs/fuse/dev.c).
        except OSError:
            return False
        return False

    replies = call_each(asking, points, host.command_timeout, host.deadline.remaining())
    return [point for point, reply in zip(points, replies) if reply.value]


def read_notes(host: Host, notes: Sequence[str], root: str) -> list[VolumeNote]:
    """Read vol_data.json files in children: one note for each path, in order, with its problem."""

    def reading(path: str) -> dict[str, str]:
        try:
            return asdict(parse_note(_text(host.path(path), host.path(root)), path))
        except StorageOpsError as error:
            return {"problem": str(error)}

    replies = call_each(reading, notes, host.command_timeout, host.deadline.remaining())
    return [
        VolumeNote(problem=f"{path!r} cannot be read: {reply.problem}")
        if reply.problem
        else VolumeNote(**reply.value)
        for path, reply in zip(notes, replies)
    ]


def _text(path: str, root: str) -> str:
    """The text of a small regular file, without following links. Raises StorageOpsError."""
    with opened_parent(path, root) as (folder, name):
        try:
            # O_NONBLOCK: a pipe in its place would make open(2) wait for a writer.
            note = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError as error:
            raise StorageOpsError(f"{path!r} cannot be opened: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(note).st_mode):
            raise StorageOpsError(f"{path!r} is no file")
        data = os.read(note, _NOTE_BYTES + 1)
    finally:
        os.close(note)
    if len(data) > _NOTE_BYTES:
        raise StorageOpsError(f"{path!r} has more than {_NOTE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StorageOpsError(f"{path!r} is no UTF-8") from error
