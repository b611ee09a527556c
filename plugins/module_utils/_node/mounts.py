# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""mountinfo of every mount namespace, and swap (see proc_pid_mountinfo(5))."""

from __future__ import annotations

import errno
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Callable, Optional, Protocol

from .._core import untrusted
from .._core.errors import StorageOpsError
from .host import MOST_LINE, MOST_WORD, MOST_WORDS, Host

# Before Linux 5.8 a mount may be missing from mountinfo while others come and go (fixed by cursors
# in fs/namespace.c m_start), so it is read until two readings are the same.
_READINGS = 10
# How many of the mounts that have changed a message names, and how many characters of each path.
_MOST_NAMED, _SHOWN = 3, 200

# fusectl: a folder for each connection (Documentation/filesystems/fuse.rst, fs/fuse/control.c).
CONNECTIONS = "/sys/fs/fuse/connections"

_HEAD = re.compile(r"(?P<id>\d{1,10}) (?P<parent>\d{1,10}) (?P<device>\d+:\d+)", re.ASCII)
# ID, parent and device of a mount are within so many bytes; characters of a line in an error.
_HEAD_BYTES = 64
_SHOWN = 200
# Characters of options that are split once for all mounts that have the same.
_MOST_KEPT = 500
# Characters of a root that are kept.
_MOST_ROOT = 1_000
_DELETED = "//deleted"
_GROUP = re.compile(r"(shared|master):(\d{1,10})", re.ASCII)


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo.

    ``id``: its number, which is used again after an unmount. ``parent``: ID of the mount below.
    ``device``: major:minor of the superblock. ``root``: its folder or file that is mounted; ends in
    ``//deleted`` if that was removed; a very long one is only told apart from others.
    ``options``: those of this mount; ``super_options``: those of the superblock, for all its
    mounts. ``shared``: its peer group; ``master``: the peer group from which it only receives
    mounts; 0 is none. ``pid``: a process of the namespace.
    """

    id: int
    parent: int
    device: str
    root: str
    point: str
    options: tuple[str, ...]
    shared: int
    master: int
    unbindable: bool
    fstype: str
    source: str
    super_options: tuple[str, ...]
    pid: str


class _Digest(Protocol):
    """As hashlib makes them."""

    def update(self, data: bytes, /) -> None:
        """Go on with these bytes."""


Wanted = Callable[[str, str], bool]
TooLong = Optional[Callable[[Mount], object]]


def each_mount(
    lines: Iterable[bytes],
    pid: str,
    wanted: Wanted | None = None,
    too_long: TooLong = None,
) -> Iterator[Mount]:
    """The mounts in the lines of a mountinfo file, one by one.

    ``wanted``: takes ID and device of a mount, and returns whether to yield it. ``too_long``: is
    told a mount whose line is longer than what is read of one, with the beginnings of its texts;
    without it, such a line raises StorageOpsError.
    """
    for line in lines:
        mount = wanted_mount(line, pid, wanted, too_long)
        if mount:
            yield mount


def wanted_mount(line: bytes, pid: str, wanted: Wanted | None, too_long: TooLong) -> Mount | None:
    """The mount in a line, as for ``each_mount``; None if it is not to be yielded."""
    # A tenant's namespace may have 100,000 mounts (fs.mount-max), each with a path of any length.
    # So neither the text nor a list of them is kept.
    fields = line[:_HEAD_BYTES].decode("utf-8", "replace").split(" ")
    if not line or (wanted and len(fields) > 3 and not wanted(fields[0], fields[2])):
        return None
    # No path has a blank, so the filesystem's type is found behind two of any length
    # (fs/seq_file.c mangle_path).
    mount = _mount(line.decode("utf-8", "replace"), pid)
    if len(line) < MOST_LINE:
        return mount
    if too_long is None:
        raise StorageOpsError(
            f"/proc/{pid}/mountinfo has a line of more than {MOST_LINE} bytes",
            code="evidence_unreadable",
        )
    too_long(mount)
    return None


def pass_over(_mount: Mount) -> None:
    """As ``too_long`` of ``each_mount``: none of the mounts that are looked for has such a line."""


def _mount(line: str, pid: str) -> Mount:
    fields = line.split(" ")
    head = _HEAD.fullmatch(" ".join(fields[:3]))
    # A single dash ends the optional fields. A mount point before them may be one, too.
    dash = fields.index("-", 6) if "-" in fields[6:] else len(fields)
    if head is None or len(fields) < dash + 4:
        raise StorageOpsError(
            f"/proc/{pid}/mountinfo has a line that cannot be read: {line[:_SHOWN]!r}"
        )
    # Unknown optional fields are to be ignored (proc_pid_mountinfo(5)).
    groups = {name: int(number) for name, number in _GROUP.findall(" ".join(fields[6:dash]))}
    return Mount(
        id=int(head["id"]),
        parent=int(head["parent"]),
        device=head["device"],
        root=_root(fields[3]),
        point=_unescape(fields[4]),
        options=_words(fields[5]),
        shared=groups.get("shared", 0),
        master=groups.get("master", 0),
        unbindable="unbindable" in fields[6:dash],
        fstype=_unescape(fields[dash + 1]),
        source=_unescape(fields[dash + 2]),
        # Some filesystems do not escape blanks in their options.
        super_options=_words(" ".join(fields[dash + 3 :])),
        pid=pid,
    )


def _unescape(text: str) -> str:
    # Octal, as \\040 for a blank (fs/seq_file.c mangle_path); the kernel escapes only ASCII.
    return re.sub(r"\\([01][0-7]{2})", lambda match: chr(int(match.group(1), 8)), text)


def is_shortened(root: str) -> bool:
    """Whether the root of a mount is told apart from others only, and no path."""
    return len(root) > _MOST_ROOT


def _root(text: str) -> str:
    """A root of usual length; of a longer one its beginning and a hash."""
    # Each subPath of a tenant's pod is a mount in the node's namespace, and its root is a path that
    # the tenant chose: one pod had 16 MiB of them. It takes long to replace all escapes of such a
    # one, each of which has four characters.
    begin = _unescape(text[: 4 * _MOST_ROOT])
    if not is_shortened(begin):
        return begin
    name = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{begin[:_MOST_ROOT]}...{name}{_DELETED * text.endswith(_DELETED)}"


def _words(text: str) -> tuple[str, ...]:
    """Options in a list; a comma within one is escaped."""
    # An overlay in a user namespace may have 120 KB of them, and each such mount others.
    return _kept_words(text) if len(text) <= _MOST_KEPT else _split(text)


# Most mounts share theirs with others, and are many.
@functools.lru_cache(maxsize=1000)
def _kept_words(text: str) -> tuple[str, ...]:
    return _split(text)


def _split(text: str) -> tuple[str, ...]:
    return tuple(_unescape(word) for word in text.split(","))


class MountTable:
    """The mounts of one namespace as a tree.

    Only the tree says to which mount a path leads, not the order or the numbers of the mounts.
    """

    def __init__(self, mounts: Iterable[Mount]) -> None:
        self.mounts = tuple(mounts)
        self._by_id = {mount.id: mount for mount in self.mounts}
        self._on: dict[int, list[Mount]] = {}
        for mount in self.mounts:
            if mount.parent != mount.id:
                self._on.setdefault(mount.parent, []).append(mount)
        self._at: dict[tuple[int, str], Mount] = {}
        self._unclear: set[tuple[int, str]] = set()
        self._tops: dict[tuple[int, str], int] = {}
        for mount in self.mounts:
            place = (mount.parent, mount.point)
            if mount.parent != mount.id and self._at.setdefault(place, mount) is not mount:
                self._unclear.add(place)
        if len(self._by_id) < len(self.mounts):
            raise StorageOpsError(
                "two mounts have the same number, so it cannot be told which is on which"
            )
        # mountinfo of a process in a chroot does not list the mount that its root is in.
        outside = {
            mount.parent
            for mount in self.mounts
            if mount.parent == mount.id or mount.parent not in self._by_id
        }
        if len(outside) != 1:
            raise StorageOpsError("the mounts do not form one tree: part of them is missing")
        self._outside = outside.pop()

    def holding(self, path: str) -> Mount | None:
        """The mount in which a path is, if it is listed.

        The path has to be absolute and normalized, without links.
        """
        # A lookup starts in the root of the process, whatever is mounted over it
        # (path_resolution(7)).
        root = self._by_id.get(self._outside) or self._at.get((self._outside, "/"))
        number = root.id if root else self._outside
        prefix = ""
        for name in filter(None, path.split("/")):
            prefix += f"/{name}"
            number = self._top(number, prefix)
        return self._by_id.get(number)

    def _top(self, number: int, point: str) -> int:
        """ID of the topmost mount at a point of a mount; ``number`` if nothing is mounted there."""
        # Each stack is walked once: it may have 100,000 mounts, and others may be below its point.
        walked = []
        while (number, point) in self._at and (number, point) not in self._tops:
            # Since Linux 4.11 such mounts are stacked ("mnt: Tuck mounts under others instead of
            # creating shadow/side mounts").
            if (number, point) in self._unclear:
                raise StorageOpsError(
                    f"two mounts are side by side at {point!r}: which one a process gets "
                    "cannot be told"
                )
            walked.append((number, point))
            number = self._at[number, point].id
        top = self._tops.get((number, point), number)
        self._tops.update(dict.fromkeys(walked, top))
        return top

    def layers(self, point: str) -> list[Mount]:
        """The mounts stacked at a mount point; the last is the one that a process gets.

        Mounts that another one on a parent folder hides are not included.
        """
        found: dict[int, Mount] = {}
        top = self.holding(point)
        while top is not None and top.point == point and top.id not in found:
            found[top.id] = top
            top = self._by_id.get(top.parent)
        return list(reversed(found.values()))

    def on(self, mount: Mount) -> list[Mount]:
        """Every mount on this one, at any depth; a lazy unmount takes them along (umount(2))."""
        found: dict[int, Mount] = {}
        waiting = [mount]
        while waiting:
            new = [
                child
                for child in self._on.get(waiting.pop().id, [])
                if child is not mount and child.id not in found
            ]
            found.update((child.id, child) for child in new)
            waiting += new
        return list(found.values())


def read_table(host: Host, pid: str, most: float = math.inf) -> MountTable:
    """The mount table that a process sees, read until two readings are the same.

    Raises StorageOpsError, also if it has more than ``most`` bytes, or a line of MOST_LINE that is
    not so long by the root of the mount alone.
    """
    path, before = f"{host.living(pid)}/mountinfo", b""
    points: dict[tuple[int, str], str] = {}
    for _reading in range(_READINGS):
        digest = hashlib.sha256()
        try:
            found = [*_table(host, path, pid, most, digest)]
        except OSError as error:
            if error.errno == errno.ENOMEM:
                # The kernel writes a line as a whole (fs/seq_file.c seq_read_iter).
                raise StorageOpsError(
                    f"{path} cannot be read: it has a path that is longer than the kernel has "
                    "memory for. Find the pod with a subPath in a very deep folder, and delete it",
                    code="evidence_unreadable",
                ) from error
            found = []
        if not found:
            raise StorageOpsError(
                f"{path} cannot be read: the process is gone, or this does not run as root "
                "(become: true)",
                code="privileges_missing",
            )
        if digest.digest() == before:
            return MountTable(found)
        before = digest.digest()
        last, points = points, {(one.id, one.device): one.point[:_SHOWN] for one in found}
    raise StorageOpsError(
        f"{path} was different each of {_READINGS} times that it was read: run this again when "
        f"fewer mounts change{_changing(last, points, found)}",
        code="device_changing",
    )


def _changing(
    last: Mapping[tuple[int, str], str], now: Mapping[tuple[int, str], str], found: list[Mount]
) -> str:
    """Which mounts have come or gone between two readings, and those with long paths, with which
    each reading takes long. The kubelet's mount points tell the pods.
    """
    changed = [point for key, point in {**last, **now}.items() if (key in last) is not (key in now)]
    long = [one.point for one in found if is_shortened(one.root)]
    return _named("came or went the last time", changed) + _named("have a long path", long)


def _named(what: str, points: list[str]) -> str:
    several = list(dict.fromkeys(points))
    named = ", ".join(untrusted.shown(point, _SHOWN) for point in several[:_MOST_NAMED])
    more = len(several) - _MOST_NAMED
    return f". These {what}: {named}{f' and {more} more' if more > 0 else ''}" if several else ""


def _table(host: Host, path: str, pid: str, most: float, digest: _Digest) -> Iterator[Mount]:
    """The mounts in a mountinfo file, one by one; ``digest`` is told what tells them apart."""
    for line in host.lines(path):
        most -= len(line)
        if most < 0 or not _is_known(line):
            what = "more bytes" if most < 0 else "a longer line"
            raise StorageOpsError(f"{path} has {what} than are read", code="evidence_unreadable")
        fields = line.split(b" ", 4)
        # Not the root: a tenant may rename a folder of its volume, above a subPath that is mounted,
        # as often as it likes.
        digest.update(b" ".join([*fields[:3], *fields[4:], b"\n"]))
        yield _mount(line.decode("utf-8", "surrogateescape"), pid)


def _is_known(line: bytes) -> bool:
    """Whether a line tells all of its mount, but perhaps the end of its root.

    A tenant makes the root of a subPath as long as it likes, by renaming folders above it. The
    kubelet chooses the mount point.
    """
    words = line[MOST_LINE:].split(b" ")
    # The root is the fourth word: the first that is cut may be the end of it (see lines_of).
    ends_in_root = line[:MOST_LINE].count(b" ") == 3
    whole = all(len(word) < MOST_WORD for word in words[ends_in_root:])
    return whole and len(line) < MOST_LINE + MOST_WORDS


def read_mount(host: Host, number: int) -> Mount | None:
    """The mount with this ID in this process's namespace; None if there is none."""
    lines = (
        line for line in host.lines("/proc/self/mountinfo") if line.startswith(b"%d " % number)
    )
    return next((_mount(line.decode("utf-8", "surrogateescape"), "self") for line in lines), None)


def swap_devices(host: Host) -> list[str]:
    """The paths of devices that are in use as swap (proc_swaps(5))."""
    # After its path a blank follows; the kernel escapes those in it (mm/swapfile.c swap_show).
    lines = (host.read("/proc/swaps") or "").split("\n")[1:]
    return [line.partition(" ")[0] for line in lines if line]


def is_fuse(mount: Mount) -> bool:
    """Whether a process serves it. Not fuseblk (NTFS), which is on a disk of the node."""
    return mount.fstype == "fuse" or mount.fstype.startswith("fuse.")
