# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is private to the collection, and may change at any time.

"""The kubelet's folder: what each mount point in it is for, and what the kubelet noted of the
volume.

Whoever can mount or make folders there chooses the names, so a path counts only if every part of it
is one that Kubernetes gives.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.bounded import call_each
from ansible_collections.storage_ops.runbooks.plugins.module_utils._core.errors import (
    BadOption,
    StorageOpsError,
)
from ansible_collections.storage_ops.runbooks.plugins.module_utils._node.host import Host

ROOT = "/var/lib/kubelet"

# Kinds of places. Block volumes have four: staged, published to a pod, the device bound for a pod,
# and the pod's name for it.
STAGING = "staging"
PUBLISH = "publish"
SUBPATH = "subpath"
BLOCK_STAGING = "block_staging"
BLOCK_PUBLISH = "block_publish"
BLOCK_MAP = "block_map"
BLOCK_POD = "block_pod"
IN_TREE = "in_tree"

# A note is a few hundred bytes.
_NOTE_BYTES = 65536
_NOTE = "vol_data.json"
_CSI = "plugins/kubernetes.io/csi"

# DNS names, uids, and plugins with a ~ for their slash. Nothing that begins with a dot, and no
# blank of any kind.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._~-]{0,252}"
# Some drivers mount in a folder of their own within the one they were given.
_BELOW = rf"(?:/(?P<below>{_NAME}(?:/{_NAME})*))?"
_POD = rf"pods/(?P<pod>{_NAME})"
_VOLUME = rf"(?P<volume>{_NAME})"
_PLUGIN = r"(?P<plugin>[A-Za-z0-9][A-Za-z0-9._-]{0,252}~[A-Za-z0-9][A-Za-z0-9._~-]{0,252})"
# The first that fits counts.
_FORMS = tuple(
    (kind, re.compile(form, re.ASCII))
    for kind, form in (
        # Until Kubernetes 1.23, and for what was staged before an upgrade.
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
    """What a mount point is for; what its path does not tell is empty.

    ``volume``: the PersistentVolume, or the pod's own name for a volume without one. ``plugin``: as
    ``kubernetes.io~csi``. ``driver`` and
    ``digest``: CSI driver and SHA-256 of the volume handle, in staging paths since Kubernetes 1.24.
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
    """What a vol_data.json says; that of a staging path lacks ``volume`` (specVolID) and ``node``.

    ``problem``: why it says nothing.
    """

    driver: str = ""
    handle: str = ""
    volume: str = ""
    node: str = ""
    problem: str = ""


def classify(point: str, root: str = ROOT) -> Place | None:
    """What a mount point (as in mountinfo) is for; None if it is no place of the kubelet whose
    folder, without links, is ``root``.

    Pure: says nothing of links that were put in the way since. See ``opened_parent``.
    """
    inside = point[len(root) + 1 :] if point.startswith(f"{root}/") else ""
    for kind, form in _FORMS:
        match = form.fullmatch(inside)
        if match:
            said = {name: text or "" for name, text in match.groupdict().items()}
            return Place(kind, point, note=_note(kind, point, root, said), **said)
    return None


def _note(kind: str, point: str, root: str, said: dict[str, str]) -> str:
    if kind in (STAGING, PUBLISH):
        folder = point[: -len(said["below"]) - 1] if said.get("below") else point
        return f"{folder.rpartition('/')[0]}/{_NOTE}"
    if kind in (BLOCK_STAGING, BLOCK_PUBLISH, BLOCK_MAP) or (
        kind == BLOCK_POD and said["plugin"] == "kubernetes.io~csi"
    ):
        return f"{root}/{_CSI}/volumeDevices/{said['volume']}/data/{_NOTE}"
    return ""


def digest_of(handle: str) -> str:
    """By which the kubelet names the folder of a volume.

    A text that UTF-8 cannot hold has one that no folder has.
    """
    return hashlib.sha256(handle.encode(errors="surrogatepass")).hexdigest()


def staging_points(note: VolumeNote, root: str = ROOT) -> tuple[str, str]:
    """Where the kubelet stages the volume of a publish path: (since Kubernetes 1.24, before)."""
    return (
        f"{root}/{_CSI}/{note.driver}/{digest_of(note.handle)}/globalmount",
        f"{root}/{_CSI}/pv/{note.volume}/globalmount",
    )


def parse_note(text: str, path: str) -> VolumeNote:
    """The note in the text of the vol_data.json at ``path``; anything else is a StorageOpsError
    that names it.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StorageOpsError(f"{path!r} is no JSON") from error
    if not isinstance(data, dict):
        raise StorageOpsError(f"{path!r} holds no JSON object")

    def take(key: str, form: str, needed: bool) -> str:
        value: Any = data.get(key, "")
        if not isinstance(value, str) or not (
            re.fullmatch(form, value, re.ASCII) or (value == "" and not needed)
        ):
            raise StorageOpsError(
                f"{path!r} has {'no' if value == '' else 'a'} "
                f"{key}{'' if value == '' else ' that can be one'}"
            )
        return value

    handle = take("volumeHandle", r"[^\0]{1,4096}", needed=True)
    # A lone surrogate, which JSON can hold, is not printable either.
    if not handle.isprintable():
        raise StorageOpsError(f"{path!r} has a volumeHandle that cannot be printed")
    return VolumeNote(
        take("driverName", _NAME, True),
        handle,
        take("specVolID", _NAME, False),
        take("nodeName", _NAME, False),
    )


def contradiction(place: Place, note: VolumeNote) -> str:
    """Why a note cannot be that of a place, as a sentence; empty if it can."""
    if note.volume and place.volume and note.volume != place.volume:
        return f"{place.note} is of the volume {note.volume}, not {place.volume}"
    if place.driver and note.driver != place.driver:
        return (
            f"{place.note} names the driver {note.driver}, but lies in the folder of {place.driver}"
        )
    if place.digest and digest_of(note.handle) != place.digest:
        return (
            f"{place.note} names the volume handle {note.handle}, "
            "which is not the one of its folder"
        )
    return ""


def resolve_root(host: Host, root: str) -> str:
    """The kubelet's folder with its links followed, which is how mountinfo has it: those above it
    are the administrator's.
    """
    if not root.startswith("/") or ".." in root.split("/"):
        raise BadOption(f"the kubelet's folder {root!r} is no absolute path without '..'")

    def resolving() -> str:
        real = host.resolve(root)
        return real if os.path.isdir(host.path(real)) else ""

    reply = host.bounded(resolving)
    if reply.problem:
        raise StorageOpsError(f"the kubelet's folder {root!r} cannot be looked at: {reply.problem}")
    real: str = reply.value
    if real.strip("/") == "":
        raise BadOption(f"the kubelet's folder {root!r} is not there, or is no folder of its own")
    return real


def find_root(host: Host, root: str) -> str:
    """The same; empty on a machine that is no node of a cluster, of which nobody has said where the
    folder should be.
    """
    reply = host.bounded(lambda: os.path.lexists(host.path(root)))
    return (
        "" if root == ROOT and not reply.problem and not reply.value else resolve_root(host, root)
    )


@contextlib.contextmanager
def opened_parent(path: str, root: str) -> Iterator[tuple[int, str]]:
    """(descriptor of the folder that ``path`` is in, its name there), with no link followed on the
    way, to act on just that.

    ``root``: folder without links that it must be in. The descriptor is an O_PATH one: hand it on
    as ``dir_fd``, or as ``/proc/self/fd/N``. What is at ``path`` is not touched. A folder on the
    way may be a mount that never answers: call it in a child. StorageOpsError if there is no such
    folder, or a link in its place.
    """
    names = path.split("/")[1:]
    if (
        not path.startswith(f"{root}/")
        or not root.startswith("/")
        or {"", ".", ".."} & set(names)
        or "\0" in path
    ):
        raise StorageOpsError(f"{path!r} is not inside of {root!r}")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = os.open("/", flags)
    try:
        for index, name in enumerate(names[:-1], 1):
            try:
                inner = os.open(name, flags, dir_fd=folder)
            except OSError as error:
                # A link is "not a directory" to the kernel, too.
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
    """For each path, why no folder on the way to it can be trusted (a link, gone, no answer in
    time); empty if all is well.
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


def read_notes(host: Host, notes: Sequence[str], root: str) -> list[VolumeNote]:
    """Read the vol_data.json files at these paths in children; one note per path, in order, with
    its problem if it has one.
    """

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
    """A small file's text, if it is a file and no link leads to it."""
    with opened_parent(path, root) as (folder, name):
        try:
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
